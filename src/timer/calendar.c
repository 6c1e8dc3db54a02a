/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Days on which nothing is planned: dates, dates of every year, ranges of both, weekdays. Kept in
 * order, dates of every year before the others, so that the same days in another order have the
 * same text.
 */
#include <stdlib.h>

#include "timer/internal.h"

enum { ENTRIES_MAX = 1000, TEXT_MAX = 32 * 1024, YEARLY = 0, LEAP_YEAR = 2000 };

/* Both ends belong to it. Of every year when the years are YEARLY: then it may go over New Year. */
struct entry {
    struct mr_date from, to;
};

struct mr_calendar {
    unsigned weekdays;
    size_t count;
    struct entry entries[];
};

static int order_of(const struct mr_date *date)
{
    return (date->year * 16 + date->month) * 32 + date->day;
}

static bool same_date(const struct mr_date *a, const struct mr_date *b)
{
    return order_of(a) == order_of(b);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "2026-12-24" or "12-24" */
static enum mr_err read_date(struct timer_text *text, struct mr_date *date)
{
    const char *from = text->at;
    static const char expected[] = "a date like 2026-12-24, or 12-24 for every year";
    size_t digits = 0;
    while (from + digits < text->end && is_digit(from[digits]))
        digits++;
    date->year = YEARLY;
    if (digits == 4) {
        MR_TRY(timer_read_number(text, expected, &date->year));
        if (date->year < MR_RULE_YEAR_MIN || date->year > MR_RULE_YEAR_MAX)
            return timer_wrong(text, from, "the year is not within %d-%d", MR_RULE_YEAR_MIN,
                               MR_RULE_YEAR_MAX);
        if (!timer_accept(text, '-'))
            return timer_wrong(text, from, "expected %s", expected);
    }
    MR_TRY(timer_read_number(text, expected, &date->month));
    if (!timer_accept(text, '-'))
        return timer_wrong(text, from, "expected %s", expected);
    MR_TRY(timer_read_number(text, expected, &date->day));
    int year = date->year == YEARLY ? LEAP_YEAR : date->year;
    if (date->month < 1 || date->month > 12 || date->day < 1 ||
        date->day > mr_date_days_in_month(year, date->month))
        return timer_wrong(text, from, "there is no date %.*s", timer_shown(text, from), from);
    return MR_OK;
}

static enum mr_err read_entry(struct timer_text *text, struct entry *entry)
{
    const char *from = text->at;
    MR_TRY(read_date(text, &entry->from));
    entry->to = entry->from;
    if (timer_peek(text) == '.') {
        if (!timer_accept(text, '.') || !timer_accept(text, '.'))
            return timer_wrong(text, text->at, "expected .. between two dates");
        MR_TRY(read_date(text, &entry->to));
    }
    if ((entry->from.year == YEARLY) != (entry->to.year == YEARLY))
        return timer_wrong(text, from, "one date of the range has a year, the other has none");
    if (entry->from.year != YEARLY && order_of(&entry->to) < order_of(&entry->from))
        return timer_wrong(text, from, "the range goes backwards");
    return MR_OK;
}

/* In its place; one that is there already stays alone. */
static void insert_entry(struct mr_calendar *calendar, const struct entry *entry)
{
    size_t at = calendar->count;
    for (; at > 0; at--) {
        const struct entry *before = &calendar->entries[at - 1];
        int order = order_of(&before->from) - order_of(&entry->from);
        if (order == 0)
            order = order_of(&before->to) - order_of(&entry->to);
        if (order == 0)
            return;
        if (order < 0)
            break;
    }
    memmove(&calendar->entries[at + 1], &calendar->entries[at],
            (calendar->count - at) * sizeof *entry);
    calendar->entries[at] = *entry;
    calendar->count++;
}

/* One part of the list; the text ends with it. */
static enum mr_err read_part(struct timer_text *text, struct mr_calendar *calendar)
{
    struct entry entry;
    unsigned weekdays;
    if (!is_digit(timer_peek(text))) {
        MR_TRY(timer_read_weekdays(text, &weekdays));
        calendar->weekdays |= weekdays;
        return MR_OK;
    }
    MR_TRY(read_entry(text, &entry));
    if (text->at != text->end)
        return timer_wrong(text, text->at, "expected a comma and the next date");
    insert_entry(calendar, &entry);
    return MR_OK;
}

static enum mr_err read_parts(struct timer_text *text, struct mr_calendar *calendar)
{
    const char *end = text->end;
    for (;;) {
        while (timer_peek(text) == ' ')
            text->at++;
        const char *comma = memchr(text->at, ',', (size_t)(end - text->at));
        text->end = comma != NULL ? comma : end;
        while (text->end > text->at && text->end[-1] == ' ')
            text->end--;
        MR_TRY(read_part(text, calendar));
        if (comma == NULL)
            return MR_OK;
        text->at = comma + 1;
        text->end = end;
    }
}

static uint32_t open_days(const void *calendar, const struct timer_month *month)
{
    return calendar_open_days(calendar, month);
}

enum mr_err calendar_parse(struct mr_slice slice, struct mr_calendar **ret_calendar,
                           struct mr_detail *detail)
{
    const char *begin = slice.data;
    struct timer_text text = {"exclude", begin, begin, begin + slice.len, detail};
    if (slice.len == 0)
        return timer_wrong(&text, begin, "no dates; expected a date like 2026-12-24");
    if (slice.len > TEXT_MAX)
        return timer_wrong(&text, begin + TEXT_MAX, "longer than %d bytes", TEXT_MAX);
    size_t parts = 1;
    for (size_t i = 0; i < slice.len; i++)
        parts += begin[i] == ',';
    if (parts > ENTRIES_MAX)
        return timer_wrong(&text, begin, "more than %d dates", ENTRIES_MAX);
    struct mr_calendar *calendar =
        calloc(1, sizeof *calendar + (parts + 1) * sizeof calendar->entries[0]);
    if (calendar == NULL)
        return MR_NOMEM;
    enum mr_err err = read_parts(&text, calendar);
    if (err == MR_OK && timer_days_next(open_days, calendar, 0) == TIMER_NEVER)
        err = timer_wrong(&text, begin, "no day is left");
    if (err == MR_OK)
        *ret_calendar = calendar;
    else
        calendar_free(calendar);
    return err;
}

void calendar_free(struct mr_calendar *calendar)
{
    free(calendar);
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum mr_err put_date(const struct mr_date *date, struct mr_buf *buf)
{
    if (date->year != YEARLY)
        MR_TRY(mr_buf_printf(buf, "%04d-", date->year));
    return mr_buf_printf(buf, "%02d-%02d", date->month, date->day);
}

enum mr_err calendar_put(const struct mr_calendar *calendar, struct mr_buf *buf)
{
    size_t from = buf->len;
    MR_TRY(timer_put_weekdays(calendar->weekdays, buf));
    for (size_t i = 0; i < calendar->count; i++) {
        const struct entry *entry = &calendar->entries[i];
        if (buf->len > from)
            MR_TRY(mr_buf_append(buf, ",", 1));
        MR_TRY(put_date(&entry->from, buf));
        if (same_date(&entry->from, &entry->to))
            continue;
        MR_TRY(mr_buf_append(buf, "..", 2));
        MR_TRY(put_date(&entry->to, buf));
    }
    return MR_OK;
}

/* ---- the days of a month --------------------------------------------------------------------- */

/* The days of the month from..to, both dates of this or another month. */
static uint32_t days_between(const struct mr_date *from, const struct mr_date *to,
                             const struct mr_date *month)
{
    struct mr_date first = {month->year, month->month, 1}, last = {month->year, month->month, 31};
    if (order_of(to) < order_of(&first) || order_of(from) > order_of(&last))
        return 0;
    int low = order_of(from) > order_of(&first) ? from->day : 1;
    int high = order_of(to) < order_of(&last) ? to->day : 31;
    return (uint32_t)((2ULL << high) - (1ULL << low));
}

static uint32_t closed_by(const struct entry *entry, const struct timer_month *month)
{
    struct mr_date of = {entry->from.year == YEARLY ? YEARLY : month->year, month->month, 1};
    static const struct mr_date first = {YEARLY, 1, 1}, last = {YEARLY, 12, 31};
    if (order_of(&entry->from) <= order_of(&entry->to))
        return days_between(&entry->from, &entry->to, &of);
    return days_between(&entry->from, &last, &of) | days_between(&first, &entry->to, &of);
}

uint32_t calendar_open_days(const struct mr_calendar *calendar, const struct timer_month *month)
{
    uint32_t open = timer_days_all(month);
    if (calendar == NULL)
        return open;
    open &= ~timer_days_of(calendar->weekdays, month);
    for (size_t i = 0; i < calendar->count; i++)
        open &= ~closed_by(&calendar->entries[i], month);
    return open;
}
