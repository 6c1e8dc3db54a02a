/* SPDX-License-Identifier: Apache-2.0 */
/* Random cron expressions: making, writing, matching. */
#include "timer/expr.h"

#include <stdio.h>
#include <string.h>

enum { DAYS_MAX = 84100 };

struct expr_day expr_days[DAYS_MAX];
int expr_days_count;

struct range {
    int min, max;
    bool cyclic;
};

static const struct range ranges[F_COUNT] = {
    [F_SECOND] = {0, 59, true},
    [F_MINUTE] = {0, 59, true},
    [F_HOUR] = {0, 23, true},
    [F_DAY] = {1, 31, false},
    [F_MONTH] = {1, 12, true},
    [F_WEEKDAY] = {0, 6, true},
    [F_YEAR] = {EXPR_YEAR_MIN, EXPR_YEAR_MAX, false},
};

static const char *const month_names[] = {"",    "JAN", "feb", "Mar", "APR", "may", "jUN",
                                          "JUL", "aug", "Sep", "OCT", "nov", "Dec"};
static const char *const weekday_names[] = {"SUN", "mon", "Tue", "WED", "thu", "Fri", "sAT"};

/* ---- the calendar ---------------------------------------------------------------------------- */

static int month_len(int year, int month)
{
    if (month == 2)
        return year % 400 == 0 || (year % 4 == 0 && year % 100 != 0) ? 29 : 28;
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

void expr_init(void)
{
    struct expr_day day = {EXPR_YEAR_MIN, 1, 1, 4, 31}; /* a Thursday */
    while (day.year <= EXPR_YEAR_MAX) {
        mr_assert(expr_days_count < DAYS_MAX);
        expr_days[expr_days_count++] = day;
        day.weekday = day.weekday == 6 ? 0 : day.weekday + 1;
        if (++day.day > day.len) {
            day.day = 1;
            if (++day.month > 12) {
                day.month = 1;
                day.year++;
            }
            day.len = month_len(day.year, day.month);
        }
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

static int between(struct mr_rand *rand, int min, int max)
{
    return min + (int)mr_rand_below(rand, (uint64_t)(max - min + 1));
}

static int make_value(enum expr_field_id id, struct mr_rand *rand)
{
    /* The ends are where the faults are. */
    if (mr_rand_one_in(rand, 4))
        return mr_rand_one_in(rand, 2) ? ranges[id].min : ranges[id].max;
    if (id == F_YEAR)
        return mr_rand_one_in(rand, 3) ? between(rand, EXPR_YEAR_MIN, EXPR_YEAR_MAX)
                                       : between(rand, 2000, 2060);
    return between(rand, ranges[id].min, ranges[id].max + (id == F_WEEKDAY));
}

static int make_step(enum expr_field_id id, struct mr_rand *rand)
{
    int count = ranges[id].max - ranges[id].min + 1;
    return mr_rand_one_in(rand, 4) ? between(rand, 1, count)
                                   : between(rand, 1, count < 15 ? count : 15);
}

/* One of the kinds that only days have. */
static enum expr_kind make_special(enum expr_field_id id, struct mr_rand *rand)
{
    if (id == F_DAY)
        return (enum expr_kind)between(rand, E_LAST, E_NEAR);
    return mr_rand_one_in(rand, 2) ? E_WEEK_LAST : E_WEEK_NTH;
}

static struct expr_element make_element(enum expr_field_id id, struct mr_rand *rand)
{
    struct expr_element e = {.step = make_step(id, rand), .a = make_value(id, rand)};
    bool of_days = id == F_DAY || id == F_WEEKDAY;
    e.kind = of_days && mr_rand_one_in(rand, 3)
                 ? make_special(id, rand)
                 : (enum expr_kind)between(rand, E_STAR_STEP, E_RANGE_STEP);
    if (e.kind == E_RANGE || e.kind == E_RANGE_STEP) {
        e.b = make_value(id, rand);
        if (!ranges[id].cyclic && e.b < e.a) {
            int a = e.a;
            e.a = e.b;
            e.b = a;
        }
    }
    if (e.kind == E_LAST || e.kind == E_LAST_NEAR)
        e.a = mr_rand_one_in(rand, 2) ? 0 : between(rand, 0, 30);
    if (e.kind == E_WEEK_NTH)
        e.b = between(rand, 1, 5);
    return e;
}

static void make_field(struct expr_field *field, enum expr_field_id id, struct mr_rand *rand)
{
    bool of_days = id == F_DAY || id == F_WEEKDAY;
    field->count = 1;
    if (mr_rand_one_in(rand, id == F_HOUR || id == F_MONTH ? 2 : 3)) {
        field->elements[0] = (struct expr_element){.kind = E_STAR};
        return;
    }
    if (of_days && mr_rand_one_in(rand, 3)) {
        field->elements[0] = (struct expr_element){.kind = E_QUESTION};
        return;
    }
    if (mr_rand_one_in(rand, 2))
        field->count = between(rand, 1, EXPR_ELEMENTS_MAX);
    for (int i = 0; i < field->count; i++)
        field->elements[i] = make_element(id, rand);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int put_value(char *to, size_t size, enum expr_field_id id, int value, struct mr_rand *rand)
{
    bool named = mr_rand_one_in(rand, 2);
    if (named && id == F_MONTH)
        return snprintf(to, size, "%s", month_names[value]);
    if (named && id == F_WEEKDAY && value < 7)
        return snprintf(to, size, "%s", weekday_names[value]);
    return snprintf(to, size, mr_rand_one_in(rand, 10) ? "%02d" : "%d", value);
}

static void put_element(char to[64], enum expr_field_id id, const struct expr_element *e,
                        struct mr_rand *rand)
{
    char a[16], b[16], back[16] = "";
    put_value(a, sizeof a, id, e->a, rand);
    if (e->kind == E_RANGE || e->kind == E_RANGE_STEP)
        put_value(b, sizeof b, id, e->b, rand);
    if ((e->kind == E_LAST || e->kind == E_LAST_NEAR) && e->a > 0)
        (void)snprintf(back, sizeof back, "-%d", e->a);
    const char *w = mr_rand_one_in(rand, 2) ? "W" : "w", *l = mr_rand_one_in(rand, 2) ? "L" : "l";
    switch (e->kind) {
    case E_STAR:
        (void)snprintf(to, 64, "*");
        break;
    case E_QUESTION:
        (void)snprintf(to, 64, "?");
        break;
    case E_STAR_STEP:
        (void)snprintf(to, 64, "*/%d", e->step);
        break;
    case E_VALUE:
        (void)snprintf(to, 64, "%s", a);
        break;
    case E_FROM_STEP:
        (void)snprintf(to, 64, "%s/%d", a, e->step);
        break;
    case E_RANGE:
        (void)snprintf(to, 64, "%s-%s", a, b);
        break;
    case E_RANGE_STEP:
        (void)snprintf(to, 64, "%s-%s/%d", a, b, e->step);
        break;
    case E_LAST:
        (void)snprintf(to, 64, "%s%s", l, back);
        break;
    case E_LAST_NEAR:
        (void)snprintf(to, 64, "%s%s%s", l, back, w);
        break;
    case E_NEAR:
        (void)snprintf(to, 64, "%s%s", a, w);
        break;
    case E_WEEK_LAST:
        (void)snprintf(to, 64, "%s%s", a, l);
        break;
    case E_WEEK_NTH:
        (void)snprintf(to, 64, "%s#%d", a, e->b);
        break;
    }
}

static void put_text(struct expr *expr, int first, int end, struct mr_rand *rand)
{
    size_t len = 0;
    for (int id = first; id < end; id++) {
        const struct expr_field *field = &expr->fields[id];
        for (int i = 0; i < field->count; i++) {
            char element[64];
            put_element(element, (enum expr_field_id)id, &field->elements[i], rand);
            const char *between_them = i > 0 ? "," : id == first ? "" : " ";
            len += (size_t)snprintf(expr->text + len, EXPR_TEXT_MAX - len, "%s%s", between_them,
                                    element);
            mr_assert(len < EXPR_TEXT_MAX);
        }
    }
}

/* ---- matching -------------------------------------------------------------------------------- */

/* Whether going from a to b (over the end, if b is smaller) by steps meets the value. */
static bool walk_meets(enum expr_field_id id, int a, int b, int step, int value)
{
    int count = ranges[id].max - ranges[id].min + 1;
    if (id == F_WEEKDAY) {
        if (a == 7 && b == 7)
            return value == 0;
        a = a == 7 ? 0 : a;
        value = b == 7 && value == 0 && a > 0 ? 7 : value;
        b = b == 7 && a == 0 ? 6 : b;
        if (b == 7)
            return value >= a && value <= b && (value - a) % step == 0;
    }
    for (int at = a, left = (b - a + count) % count; left >= 0; left -= step) {
        if (at == value)
            return true;
        at += step;
        if (at > ranges[id].max)
            at -= count;
    }
    return false;
}

static bool element_has(enum expr_field_id id, const struct expr_element *e, int value)
{
    switch (e->kind) {
    case E_STAR:
    case E_QUESTION:
        return true;
    case E_STAR_STEP:
        return (value - ranges[id].min) % e->step == 0;
    case E_VALUE:
        return value == (id == F_WEEKDAY ? e->a % 7 : e->a);
    case E_FROM_STEP:
        return walk_meets(id, e->a, ranges[id].max, e->step, value);
    case E_RANGE:
        return walk_meets(id, e->a, e->b, 1, value);
    case E_RANGE_STEP:
        return walk_meets(id, e->a, e->b, e->step, value);
    default:
        return false;
    }
}

static bool field_has(const struct expr *expr, enum expr_field_id id, int value)
{
    for (int i = 0; i < expr->fields[id].count; i++) {
        if (element_has(id, &expr->fields[id].elements[i], value))
            return true;
    }
    return false;
}

/* The day from Monday to Friday of this month that is fewest days away. */
static int nearest_weekday(const struct expr_day *any, int to)
{
    int best = 0, best_away = 99;
    for (int day = 1; day <= any->len; day++) {
        int weekday = ((any->weekday + day - any->day) % 7 + 7) % 7;
        int away = day > to ? day - to : to - day;
        if (weekday >= 1 && weekday <= 5 && away < best_away) {
            best = day;
            best_away = away;
        }
    }
    return best;
}

static bool special_matches(const struct expr_element *e, const struct expr_day *day)
{
    int back = day->len - e->a;
    switch (e->kind) {
    case E_LAST:
        return day->day == back;
    case E_LAST_NEAR:
        return back >= 1 && day->day == nearest_weekday(day, back);
    case E_NEAR:
        return e->a <= day->len && day->day == nearest_weekday(day, e->a);
    case E_WEEK_LAST:
        return day->weekday == e->a % 7 && day->day + 7 > day->len;
    case E_WEEK_NTH:
        return day->weekday == e->a % 7 && (day->day + 6) / 7 == e->b;
    default:
        return false;
    }
}

static bool field_matches_day(const struct expr *expr, enum expr_field_id id,
                              const struct expr_day *day)
{
    const struct expr_field *field = &expr->fields[id];
    for (int i = 0; i < field->count; i++) {
        if (special_matches(&field->elements[i], day))
            return true;
    }
    return field_has(expr, id, id == F_DAY ? day->day : day->weekday);
}

/* One element, and it begins with a star or is a question mark. */
static bool is_open(const struct expr_field *field)
{
    return field->count == 1 && field->elements[0].kind <= E_STAR_STEP;
}

static bool is_excluded(const struct expr_excluded *excluded, const struct expr_day *day)
{
    if (excluded->weekday >= 0)
        return day->weekday == excluded->weekday;
    int date = day->month * 100 + day->day;
    if (excluded->from >= 10000)
        date += day->year * 10000;
    if (excluded->from <= excluded->to)
        return date >= excluded->from && date <= excluded->to;
    return date >= excluded->from || date <= excluded->to;
}

bool expr_matches_day(const struct expr *expr, const struct expr_day *day)
{
    for (int i = 0; i < expr->excluded_count; i++) {
        if (is_excluded(&expr->excluded[i], day))
            return false;
    }
    if (expr->daily)
        return expr->weekdays >> day->weekday & 1;
    if (!expr->year[day->year] || !expr->month[day->month])
        return false;
    bool by_date = field_matches_day(expr, F_DAY, day);
    bool by_weekday = field_matches_day(expr, F_WEEKDAY, day);
    if (is_open(&expr->fields[F_DAY]) || is_open(&expr->fields[F_WEEKDAY]))
        return by_date && by_weekday;
    return by_date || by_weekday;
}

static int cron_second_from(const struct expr *expr, int from)
{
    for (int hour = from / 3600; hour < 24; hour++, from = hour * 3600) {
        if (!expr->hour[hour])
            continue;
        for (int minute = from / 60 % 60; minute < 60; minute++, from = minute * 60) {
            if (!expr->minute[minute])
                continue;
            for (int second = from % 60; second < 60; second++) {
                if (expr->second[second])
                    return hour * 3600 + minute * 60 + second;
            }
        }
    }
    return -1;
}

int expr_second_from(const struct expr *expr, int from)
{
    if (!expr->daily)
        return cron_second_from(expr, from);
    for (int at = expr->from; at <= expr->to; at += expr->step) {
        if (at >= from)
            return at;
    }
    return -1;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int make_date(struct mr_rand *rand, bool yearly)
{
    const struct expr_day *day = &expr_days[mr_rand_below(rand, (uint64_t)expr_days_count)];
    return (yearly ? 0 : day->year * 10000) + day->month * 100 + day->day;
}

static int put_date(char *to, size_t size, int date)
{
    if (date < 10000)
        return snprintf(to, size, "%02d-%02d", date / 100, date % 100);
    return snprintf(to, size, "%04d-%02d-%02d", date / 10000, date / 100 % 100, date % 100);
}

static void make_excluded(struct expr *expr, struct mr_rand *rand)
{
    size_t len = 0;
    expr->excluded_count = mr_rand_one_in(rand, 3) ? between(rand, 1, EXPR_EXCLUDED_MAX) : 0;
    for (int i = 0; i < expr->excluded_count; i++) {
        struct expr_excluded *e = &expr->excluded[i];
        bool yearly = mr_rand_one_in(rand, 2);
        e->weekday = mr_rand_one_in(rand, 3) ? between(rand, 0, 6) : -1;
        e->from = make_date(rand, yearly);
        e->to = mr_rand_one_in(rand, 2) ? e->from : make_date(rand, yearly);
        if (!yearly && e->to < e->from)
            e->to = e->from;
        if (i > 0)
            len += (size_t)snprintf(expr->exclude + len, EXPR_TEXT_MAX - len, ",");
        if (e->weekday >= 0) {
            len += (size_t)snprintf(expr->exclude + len, EXPR_TEXT_MAX - len, "%s",
                                    weekday_names[e->weekday]);
            continue;
        }
        len += (size_t)put_date(expr->exclude + len, EXPR_TEXT_MAX - len, e->from);
        if (e->to != e->from) {
            len += (size_t)snprintf(expr->exclude + len, EXPR_TEXT_MAX - len, "..");
            len += (size_t)put_date(expr->exclude + len, EXPR_TEXT_MAX - len, e->to);
        }
    }
}

static void make_daily(struct expr *expr, struct mr_rand *rand)
{
    static const int units[] = {3600, 900, 60, 1};
    int unit = units[mr_rand_below(rand, 4)];
    expr->daily = true;
    do {
        expr->from = between(rand, 0, 86400 / unit - 1) * unit;
        expr->to = between(rand, 0, 86400 / unit) * unit;
    } while (expr->from == expr->to);
    expr->step = between(rand, 60, mr_rand_one_in(rand, 4) ? 86400 : 3600);
    /* The last one often falls on the end itself. */
    int len = (expr->to - expr->from + 86400) % 86400, parts = between(rand, 1, 20);
    if (len % parts == 0 && len / parts >= 60)
        expr->step = len / parts;
    int first = between(rand, 0, 6), last = between(rand, 0, 6);
    for (int day = first;; day = (day + 1) % 7) {
        expr->weekdays |= 1 << day;
        if (day == last)
            break;
    }
    (void)snprintf(expr->text, EXPR_TEXT_MAX, "%02d:%02d:%02d-%02d:%02d:%02d/%ds@%s-%s",
                   expr->from / 3600, expr->from / 60 % 60, expr->from % 60, expr->to / 3600,
                   expr->to / 60 % 60, expr->to % 60, expr->step, weekday_names[first],
                   weekday_names[last]);
    if (expr->to < expr->from)
        expr->to += 86400;
}

void expr_make(struct expr *expr, struct mr_rand *rand)
{
    memset(expr, 0, sizeof *expr);
    make_excluded(expr, rand);
    if (mr_rand_one_in(rand, 10)) {
        make_daily(expr, rand);
        return;
    }
    int first = mr_rand_one_in(rand, 2) ? F_MINUTE : F_SECOND;
    int end = first == F_SECOND && mr_rand_one_in(rand, 2) ? F_COUNT : F_YEAR;
    for (int id = first; id < end; id++)
        make_field(&expr->fields[id], (enum expr_field_id)id, rand);
    if (first == F_MINUTE)
        expr->fields[F_SECOND] = (struct expr_field){1, {{.kind = E_VALUE}}};
    if (end == F_YEAR)
        expr->fields[F_YEAR] = (struct expr_field){1, {{.kind = E_STAR}}};
    put_text(expr, first, end, rand);
    for (int i = 0; i < 60; i++) {
        expr->second[i] = field_has(expr, F_SECOND, i);
        expr->minute[i] = field_has(expr, F_MINUTE, i);
    }
    for (int i = 0; i < 24; i++)
        expr->hour[i] = field_has(expr, F_HOUR, i);
    for (int i = 1; i <= 12; i++)
        expr->month[i] = field_has(expr, F_MONTH, i);
    for (int i = EXPR_YEAR_MIN; i <= EXPR_YEAR_MAX; i++)
        expr->year[i] = field_has(expr, F_YEAR, i);
}
