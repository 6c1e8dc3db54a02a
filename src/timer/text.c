/* SPDX-License-Identifier: Apache-2.0 */
/* Reading what people type, with the column of what is wrong; days of months. */
#include <stdarg.h>
#include <stdio.h>

#include "timer/internal.h"

enum { SHOWN_MAX = 20, DIGITS_MAX = 4, MESSAGE_MAX = 400 };

enum mr_err timer_wrong(const struct timer_text *text, const char *where, const char *fmt, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    mr_detail_set(text->detail, "%s, column %d: %s", text->what, (int)(where - text->begin) + 1,
                  message);
    return MR_INVALID;
}

char timer_peek(const struct timer_text *text)
{
    return text->at < text->end ? *text->at : '\0';
}

bool timer_accept(struct timer_text *text, char c)
{
    if (text->at == text->end || *text->at != c)
        return false;
    text->at++;
    return true;
}

int timer_shown(const struct timer_text *text, const char *from)
{
    int len = 0;
    while (from + len < text->end && len < SHOWN_MAX && from[len] > ' ' && from[len] < 0x7f &&
           from[len] != ',')
        len++;
    return len;
}

enum mr_err timer_read_number(struct timer_text *text, const char *what, int *ret_value)
{
    const char *from = text->at;
    int value = 0;
    while (timer_peek(text) >= '0' && timer_peek(text) <= '9') {
        if (text->at - from == DIGITS_MAX)
            return timer_wrong(text, from, "the number is too long; expected %s", what);
        value = value * 10 + (*text->at++ - '0');
    }
    if (text->at == from)
        return timer_wrong(text, from, "'%.*s' is no number; expected %s", timer_shown(text, from),
                           from, what);
    *ret_value = value;
    return MR_OK;
}

uint32_t timer_days_all(const struct timer_month *month)
{
    return (uint32_t)((2ULL << month->len) - 2);
}

uint32_t timer_days_of(unsigned weekdays, const struct timer_month *month)
{
    enum { EVERY_SEVENTH = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29 };
    uint32_t days = 0;
    for (unsigned left = weekdays; left != 0; left &= left - 1)
        days |= (uint32_t)EVERY_SEVENTH << (__builtin_ctz(left) - month->first + 7) % 7;
    return days & timer_days_all(month);
}

/* The next month, or the first of the next year; *first_day is the first day of the month. */
static void go_on(struct timer_month *month, bool next_year, int64_t *first_day)
{
    if (next_year) {
        *first_day = mr_date_to_days(month->year + 1, 1, 1);
        month->first = mr_date_weekday(*first_day);
        month->month = 12;
    } else {
        *first_day += month->len;
        month->first = (month->first + month->len) % 7;
    }
    month->year += month->month == 12;
    month->month = month->month == 12 ? 1 : month->month + 1;
    month->len = mr_date_days_in_month(month->year, month->month);
}

int64_t timer_days_next(timer_month_days *month_days, const void *rule, int64_t from)
{
    if (from < 0)
        from = 0;
    struct mr_date date = mr_date_from_days(from);
    int64_t first_day = from - date.day + 1;
    struct timer_month month = {date.year, date.month, mr_date_days_in_month(date.year, date.month),
                                mr_date_weekday(first_day)};
    uint32_t passed = (1u << date.day) - 2;
    while (month.year <= MR_RULE_YEAR_MAX) {
        uint32_t days = month_days(rule, &month) & ~passed;
        if (days > TIMER_NOT_THIS_YEAR)
            return first_day + __builtin_ctz(days) - 1;
        passed = 0;
        go_on(&month, days == TIMER_NOT_THIS_YEAR, &first_day);
    }
    return TIMER_NEVER;
}
