/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the time rules share. */
#ifndef MR_TIMER_INTERNAL_H
#define MR_TIMER_INTERNAL_H

#include "base/buf.h"
#include "base/date.h"
#include "timer/zone.h"

enum {
    TIMER_S_PER_DAY = 86400,
    /* RFC 9636: an offset lies between -25 and +26 hours. */
    TIMER_OFFSET_MAX = 26 * 3600 - 1,
};

/* ---- zones ----------------------------------------------------------------------------------- */

/* From at on the clock is offset ahead of UTC. */
struct zone_change {
    int64_t at;
    int32_t offset;
};

/* Changes in rising order, each another offset than before; the first one has been in force
 * always (at is INT64_MIN). */
struct mr_zone {
    struct mr_zone *next; /* in the cache */
    char name[MR_ZONE_NAME_MAX + 1];
    size_t count;
    struct zone_change changes[];
};

/* A growing list of changes in the making. */
struct zone_list {
    struct mr_buf buf; /* of struct zone_change */
};

MR_MUST_USE enum mr_err zone_list_add(struct zone_list *list, int64_t at, int32_t offset);

/* Adds the changes by a POSIX rule ("CET-1CEST,M3.5.0,M10.5.0/3") later than after, up to the end
 * of MR_RULE_YEAR_MAX. MR_INVALID when the text is no such rule. */
MR_MUST_USE enum mr_err zone_posix_add(struct mr_slice rule, int64_t after, struct zone_list *list);

/* ---- days ------------------------------------------------------------------------------------ */

#define TIMER_NEVER INT64_MAX

struct timer_month {
    int year, month;
    int len;   /* in days */
    int first; /* weekday of its first day, 0 is Sunday */
};

/* Which days of a month a rule has: bit 1 is the first. No bit beyond the end of the month. Bit 0
 * alone: it has no day in the rest of the year. */
enum { TIMER_NOT_THIS_YEAR = 1 };
typedef uint32_t timer_month_days(const void *rule, const struct timer_month *month);

/* The first day of the rule at or after from, in days since the Unix epoch; TIMER_NEVER when there
 * is none up to MR_RULE_YEAR_MAX. Goes from month to month. */
int64_t timer_days_next(timer_month_days *month_days, const void *rule, int64_t from);
/* All days of a month, and those of weekdays (bit 0 is Sunday). */
uint32_t timer_days_all(const struct timer_month *month);
uint32_t timer_days_of(unsigned weekdays, const struct timer_month *month);

/* ---- reading what people type ---------------------------------------------------------------- */

/* A text and how far it has been read. */
struct timer_text {
    const char *what; /* "cron", for messages */
    const char *begin, *at, *end;
    struct mr_detail *detail; /* may be NULL */
};

/* MR_INVALID; detail says "WHAT, column N: ..." with the column of `where`, counted from 1. */
MR_MUST_USE enum mr_err timer_wrong(const struct timer_text *text, const char *where,
                                    const char *fmt, ...) MR_PRINTF(3, 4);
char timer_peek(const struct timer_text *text); /* NUL at the end */
bool timer_accept(struct timer_text *text, char c);
/* How much of it, at most 20 bytes, is shown in a message: up to the next blank or comma. */
int timer_shown(const struct timer_text *text, const char *from);
/* One to four digits; MR_INVALID otherwise, what says what was expected. */
MR_MUST_USE enum mr_err timer_read_number(struct timer_text *text, const char *what,
                                          int *ret_value);
/* "mon-fri", "mon,wed", "6,7": bits from Sunday = 0. Up to the end of the text. */
MR_MUST_USE enum mr_err timer_read_weekdays(struct timer_text *text, unsigned *ret_days);
MR_MUST_USE enum mr_err timer_put_weekdays(unsigned days, struct mr_buf *buf);

/* ---- calendars ------------------------------------------------------------------------------- */

/* Days on which nothing is planned. */
struct mr_calendar;

/* "2026-12-24..2026-12-26,01-01,sat-sun": dates, dates of every year, ranges of both, weekdays. */
MR_MUST_USE enum mr_err calendar_parse(struct mr_slice text, struct mr_calendar **ret_calendar,
                                       struct mr_detail *detail);
void calendar_free(struct mr_calendar *calendar); /* NULL is fine */
MR_MUST_USE enum mr_err calendar_put(const struct mr_calendar *calendar, struct mr_buf *buf);
/* The days of a month that are left; calendar may be NULL. */
uint32_t calendar_open_days(const struct mr_calendar *calendar, const struct timer_month *month);

/* ---- cron ------------------------------------------------------------------------------------ */

enum { CRON_YEARS = MR_RULE_YEAR_MAX - MR_RULE_YEAR_MIN + 1, CRON_NTH_MAX = 5 };

/* Sets of values: bit n is value n, or for years n after MR_RULE_YEAR_MIN. */
struct cron {
    uint64_t seconds, minutes;
    uint32_t hours, months;
    uint64_t years[(CRON_YEARS + 63) / 64];
    /* Days of the month: themselves, the weekday nearest to them (W), and both counted back from
     * the last day (L, L-n, LW). */
    uint32_t days, near, last, last_near;
    uint8_t weekdays, weekdays_last; /* "5", "5L" */
    uint8_t weekdays_nth[CRON_NTH_MAX];
    /* The field begins with * or ?, so the other day field must match, too. */
    bool days_star, weekdays_star;
};

MR_MUST_USE enum mr_err cron_parse(struct mr_slice text, struct cron *ret_cron,
                                   struct mr_detail *detail);
MR_MUST_USE enum mr_err cron_put(const struct cron *cron, struct mr_buf *buf);
/* The first local time after local_s that matches, on a day the calendar (may be NULL) leaves;
 * TIMER_NEVER. */
int64_t cron_next(const struct cron *cron, const struct mr_calendar *calendar, int64_t local_s);

#endif
