/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cron expressions: the next match. The days of a month are made as one set, so sparse expressions
 * cost a step a month; within a day it is the next bit of each field.
 */
#include "timer/internal.h"

static bool has_year(const struct cron *cron, int year)
{
    unsigned bit = (unsigned)(year - MR_RULE_YEAR_MIN);
    return bit < CRON_YEARS && (cron->years[bit / 64] >> bit % 64 & 1);
}

/* The day from Monday to Friday that is nearest to this one, in the same month. */
static uint32_t nearest_weekday(const struct timer_month *month, int day)
{
    if (day < 1 || day > month->len)
        return 0;
    int weekday = (month->first + day - 1) % 7;
    if (weekday == 6)
        day += day > 1 ? -1 : 2;
    else if (weekday == 0)
        day += day < month->len ? 1 : -2;
    return 1u << day;
}

static uint32_t days_by_date(const struct cron *cron, const struct timer_month *month)
{
    uint32_t days = cron->days;
    for (uint32_t left = cron->near; left != 0; left &= left - 1)
        days |= nearest_weekday(month, __builtin_ctz(left));
    for (uint32_t left = cron->last_near; left != 0; left &= left - 1)
        days |= nearest_weekday(month, month->len - __builtin_ctz(left));
    for (uint32_t left = cron->last; left != 0; left &= left - 1) {
        int day = month->len - __builtin_ctz(left);
        if (day >= 1)
            days |= 1u << day;
    }
    return days;
}

/* The days from day `from` on, seven of them. */
static uint32_t week_from(int from)
{
    return 0x7fu << from;
}

static uint32_t days_by_weekday(const struct cron *cron, const struct timer_month *month)
{
    uint32_t days = timer_days_of(cron->weekdays, month);
    for (int i = 0; i < CRON_NTH_MAX; i++) {
        if (cron->weekdays_nth[i] != 0)
            days |= timer_days_of(cron->weekdays_nth[i], month) & week_from(1 + 7 * i);
    }
    if (cron->weekdays_last != 0)
        days |= timer_days_of(cron->weekdays_last, month) & week_from(month->len - 6);
    return days;
}

struct days_rule {
    const struct cron *cron;
    const struct mr_calendar *calendar;
};

static uint32_t month_days(const void *rule, const struct timer_month *month)
{
    const struct days_rule *days_rule = rule;
    const struct cron *cron = days_rule->cron;
    if (!has_year(cron, month->year) || cron->months >> month->month == 0)
        return TIMER_NOT_THIS_YEAR;
    if (!(cron->months >> month->month & 1))
        return 0;
    uint32_t by_date = days_by_date(cron, month);
    uint32_t by_weekday = days_by_weekday(cron, month);
    bool both = cron->days_star || cron->weekdays_star;
    uint32_t days = both ? by_date & by_weekday : by_date | by_weekday;
    return days & calendar_open_days(days_rule->calendar, month);
}

/* The first bit at or above from, or -1. */
static int next_bit(uint64_t bits, int from)
{
    bits = from < 64 ? bits >> from : 0;
    return bits != 0 ? from + __builtin_ctzll(bits) : -1;
}

/* The first time of the day at or after of_day, in seconds, or -1. */
static int64_t time_next(const struct cron *cron, int of_day)
{
    int hour = of_day / 3600, minute = of_day / 60 % 60, second = of_day % 60;
    int found = next_bit(cron->seconds, second);
    if (found < 0) {
        minute++;
        found = next_bit(cron->seconds, 0);
    }
    int at = next_bit(cron->minutes, minute);
    if (at != minute)
        found = next_bit(cron->seconds, 0);
    if (at < 0) {
        hour++;
        at = next_bit(cron->minutes, 0);
    }
    int hour_at = next_bit(cron->hours, hour);
    if (hour_at < 0)
        return -1;
    if (hour_at != hour) {
        at = next_bit(cron->minutes, 0);
        found = next_bit(cron->seconds, 0);
    }
    return hour_at * 3600 + at * 60 + found;
}

int64_t cron_next(const struct cron *cron, const struct mr_calendar *calendar, int64_t local_s)
{
    struct days_rule rule = {cron, calendar};
    int64_t from = local_s < 0 ? 0 : local_s + 1;
    int64_t today = from / TIMER_S_PER_DAY;
    int64_t day = timer_days_next(month_days, &rule, today);
    if (day == today) {
        int64_t time = time_next(cron, (int)(from % TIMER_S_PER_DAY));
        if (time >= 0)
            return day * TIMER_S_PER_DAY + time;
        day = timer_days_next(month_days, &rule, today + 1);
    }
    return day == TIMER_NEVER ? TIMER_NEVER : day * TIMER_S_PER_DAY + time_next(cron, 0);
}
