/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The POSIX rule in the footer of a TZif file: "std offset [dst [offset] , start , end]", with the
 * extensions of RFC 9636 (names in <>, times of day from -167 to 167 hours). It becomes changes,
 * two a year, so that nobody after this needs to know that there are rules.
 */
#include "timer/internal.h"

enum {
    TIME_HOURS_MAX = 167,
    OFFSET_HOURS_MAX = 24,
    NAME_MIN = 3,
    DEFAULT_TIME_S = 2 * 3600,
    DST_AHEAD_S = 3600,
};

enum day_form { DAY_JULIAN, DAY_ZERO, DAY_MONTH };

/* When the year's change comes, on the clock that is in force before it. */
struct posix_date {
    enum day_form form;
    int day;               /* DAY_JULIAN: 1..365 without leap days; DAY_ZERO: 0..365 */
    int month, week, wday; /* DAY_MONTH; week 5 is the last one */
    int32_t time_s;
};

struct posix_rule {
    int32_t std, dst; /* seconds ahead of UTC */
    bool has_dst;
    struct posix_date start, end; /* of daylight saving */
};

/* What is left of the text. */
struct reader {
    const char *at, *end;
};

static char peek(const struct reader *in)
{
    return in->at < in->end ? *in->at : '\0';
}

static bool accept(struct reader *in, char c)
{
    if (peek(in) != c)
        return false;
    in->at++;
    return true;
}

static bool read_number(struct reader *in, int max, int *ret_value)
{
    const char *from = in->at;
    int value = 0;
    for (; peek(in) >= '0' && peek(in) <= '9'; in->at++) {
        value = value * 10 + (peek(in) - '0');
        if (value > max)
            return false;
    }
    *ret_value = value;
    return in->at > from;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool skip_name(struct reader *in)
{
    bool quoted = accept(in, '<');
    const char *from = in->at;
    while (is_letter(peek(in)) || (quoted && peek(in) != '>' && peek(in) != '\0'))
        in->at++;
    return in->at - from >= NAME_MIN && (!quoted || accept(in, '>'));
}

/* [+-]hh[:mm[:ss]] */
static bool read_time(struct reader *in, int hours_max, int32_t *ret_s)
{
    int sign = accept(in, '-') ? -1 : 1;
    if (sign == 1)
        (void)accept(in, '+');
    int hours, minutes = 0, seconds = 0;
    if (!read_number(in, hours_max, &hours))
        return false;
    if (accept(in, ':')) {
        if (!read_number(in, 59, &minutes))
            return false;
        if (accept(in, ':') && !read_number(in, 59, &seconds))
            return false;
    }
    *ret_s = sign * (hours * 3600 + minutes * 60 + seconds);
    return true;
}

static bool read_date(struct reader *in, struct posix_date *date)
{
    if (!accept(in, ','))
        return false;
    bool good;
    if (accept(in, 'M')) {
        date->form = DAY_MONTH;
        good = read_number(in, 12, &date->month) && date->month >= 1 && accept(in, '.') &&
               read_number(in, 5, &date->week) && date->week >= 1 && accept(in, '.') &&
               read_number(in, 6, &date->wday);
    } else if (accept(in, 'J')) {
        date->form = DAY_JULIAN;
        good = read_number(in, 365, &date->day) && date->day >= 1;
    } else {
        date->form = DAY_ZERO;
        good = read_number(in, 365, &date->day);
    }
    date->time_s = DEFAULT_TIME_S;
    return good && (!accept(in, '/') || read_time(in, TIME_HOURS_MAX, &date->time_s));
}

static bool read_rule(struct reader *in, struct posix_rule *rule)
{
    int32_t west;
    if (!skip_name(in) || !read_time(in, OFFSET_HOURS_MAX, &west))
        return false;
    rule->std = -west;
    rule->has_dst = in->at < in->end;
    if (!rule->has_dst)
        return true;
    if (!skip_name(in))
        return false;
    rule->dst = rule->std + DST_AHEAD_S;
    if (peek(in) != ',') {
        if (!read_time(in, OFFSET_HOURS_MAX, &west))
            return false;
        rule->dst = -west;
    }
    return read_date(in, &rule->start) && read_date(in, &rule->end) && in->at == in->end;
}

/* The day of the year's change, in days since the Unix epoch. */
static int64_t day_of(const struct posix_date *date, int year)
{
    int64_t first = mr_date_to_days(year, 1, 1);
    switch (date->form) {
    case DAY_ZERO:
        return first + date->day;
    case DAY_JULIAN: {
        bool behind_leap_day = date->day >= 60 && mr_date_days_in_month(year, 2) == 29;
        return first + date->day - 1 + behind_leap_day;
    }
    case DAY_MONTH:
        break;
    }
    int64_t of_month = mr_date_to_days(year, date->month, 1);
    int64_t day = (date->wday - mr_date_weekday(of_month) + 7) % 7 + (date->week - 1) * 7;
    if (day >= mr_date_days_in_month(year, date->month))
        day -= 7;
    return of_month + day;
}

static int64_t moment_of(const struct posix_date *date, int year, int32_t offset)
{
    return day_of(date, year) * TIMER_S_PER_DAY + date->time_s - offset;
}

/* Both changes of a year, the earlier one first, those later than after. */
static enum mr_err add_year(const struct posix_rule *rule, int year, int64_t after,
                            struct zone_list *list)
{
    struct zone_change two[] = {
        {moment_of(&rule->start, year, rule->std), rule->dst},
        {moment_of(&rule->end, year, rule->dst), rule->std},
    };
    bool swapped = two[1].at < two[0].at;
    for (int i = 0; i < 2; i++) {
        const struct zone_change *change = &two[swapped ? 1 - i : i];
        if (change->at > after)
            MR_TRY(zone_list_add(list, change->at, change->offset));
    }
    return MR_OK;
}

enum mr_err zone_posix_add(struct mr_slice text, int64_t after, struct zone_list *list)
{
    struct reader in = {text.data, (const char *)text.data + text.len};
    struct posix_rule rule = {0};
    if (text.len == 0 || !read_rule(&in, &rule))
        return MR_INVALID;
    int year = MR_RULE_YEAR_MIN - 1;
    int64_t first = mr_date_to_days(year, 1, 1) * TIMER_S_PER_DAY;
    if (after < first)
        after = first;
    else if (after < mr_date_to_days(MR_RULE_YEAR_MAX + 1, 1, 1) * TIMER_S_PER_DAY)
        year = mr_date_from_days(after / TIMER_S_PER_DAY).year - 1; /* a time may be a week off */
    else
        return MR_OK;
    if (!rule.has_dst)
        return zone_list_add(list, after, rule.std);
    for (; year <= MR_RULE_YEAR_MAX + 1; year++)
        MR_TRY(add_year(&rule, year, after, list));
    return MR_OK;
}
