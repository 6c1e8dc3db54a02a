/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random rules in local time that know what they mean: cron expressions, and daily intervals as the
 * simpler relation; both with days that are excluded. An expression is made of elements, written as
 * text for the program under test, and matched here value by value and day by day, with nothing of
 * that program. Thread: one.
 */
#ifndef MR_TESTS_TIMER_EXPR_H
#define MR_TESTS_TIMER_EXPR_H

#include "base/rand.h"

enum {
    EXPR_YEAR_MIN = 1970,
    EXPR_YEAR_MAX = 2199,
    EXPR_ELEMENTS_MAX = 4,
    EXPR_EXCLUDED_MAX = 3,
    EXPR_TEXT_MAX = 512,
};

enum expr_field_id { F_SECOND, F_MINUTE, F_HOUR, F_DAY, F_MONTH, F_WEEKDAY, F_YEAR, F_COUNT };

enum expr_kind {
    E_STAR,
    E_QUESTION,
    E_STAR_STEP,  /* "*" and a step */
    E_VALUE,      /* a */
    E_FROM_STEP,  /* a/step */
    E_RANGE,      /* a-b */
    E_RANGE_STEP, /* a-b/step */
    E_LAST,       /* L, L-a */
    E_LAST_NEAR,  /* LW, L-aW */
    E_NEAR,       /* aW */
    E_WEEK_LAST,  /* aL */
    E_WEEK_NTH,   /* a#b */
};

struct expr_element {
    enum expr_kind kind;
    int a, b, step;
};

struct expr_field {
    int count;
    struct expr_element elements[EXPR_ELEMENTS_MAX];
};

/* Days without firings: weekdays, or dates from..to as year * 10000 + month * 100 + day; without a
 * year they are of every year. */
struct expr_excluded {
    int weekday; /* -1: dates */
    int from, to;
};

struct expr {
    struct expr_field fields[F_COUNT];
    char text[EXPR_TEXT_MAX], exclude[EXPR_TEXT_MAX];
    int excluded_count;
    struct expr_excluded excluded[EXPR_EXCLUDED_MAX];
    /* An interval of every day instead of fields, in seconds; to may be on the next day. */
    bool daily;
    int from, to, step, weekdays;
    /* Made of the fields, one flag a value. */
    bool second[60], minute[60], hour[24], month[13], year[EXPR_YEAR_MAX + 1];
};

/* A day as one walks through the calendar from 1970-01-01 on. */
struct expr_day {
    int year, month, day, weekday, len; /* len: of the month */
};

/* All days up to the end of EXPR_YEAR_MAX. */
extern struct expr_day expr_days[];
extern int expr_days_count;

void expr_init(void);
void expr_make(struct expr *expr, struct mr_rand *rand);
/* Whether anything may fire on the day. */
bool expr_matches_day(const struct expr *expr, const struct expr_day *day);
/* The first second counted from the beginning of a day that matches, at or after from, of what belongs
 * to that day; -1 when there is none. */
int expr_second_from(const struct expr *expr, int from);

#endif
