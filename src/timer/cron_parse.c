/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cron expressions: reading.
 *
 *     [second] minute hour day-of-month month day-of-week [year]
 *
 * A field is a list of elements: "*", "a", "a-b", each with "/step"; "a/step" goes on to the end of
 * the field. Weekdays count from Sunday = 0 (or 7) whatever the number of fields. One row of
 * `fields` per field; what only the days know (L, W, #, ?) has functions of its own.
 */
#include <stdio.h>

#include "timer/internal.h"

enum { TEXT_MAX = 1024, NAME_LEN = 3, FIELDS_MIN = 5, FIELDS_MAX = 7 };

enum field_id { SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR };

struct field {
    const char *name;
    const char *expected; /* for messages */
    int min, max;
    bool cyclic; /* a range may go over the end: 22-4, FRI-MON */
    const char *const *names;
    int names_first; /* the value of the first name */
};

static const char *const month_names[] = {"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL",
                                          "AUG", "SEP", "OCT", "NOV", "DEC", NULL};
static const char *const weekday_names[] = {"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", NULL};

static const struct field fields[] = {
    [SECOND] = {"second", "0-59", 0, 59, true, NULL, 0},
    [MINUTE] = {"minute", "0-59", 0, 59, true, NULL, 0},
    [HOUR] = {"hour", "0-23", 0, 23, true, NULL, 0},
    [DAY] = {"day of month", "1-31, L, L-3, LW, 15W or ?", 1, 31, false, NULL, 0},
    [MONTH] = {"month", "1-12 or JAN-DEC", 1, 12, true, month_names, 1},
    [WEEKDAY] = {"day of week", "0-7 (0 and 7 are Sunday), SUN-SAT, FRIL, FRI#2 or ?", 0, 6, true,
                 weekday_names, 0},
    [YEAR] = {"year", "1970-2199", MR_RULE_YEAR_MIN, MR_RULE_YEAR_MAX, false, NULL, 0},
};

/* The values of a field; years need most. Bit n is value n, of years the one n after the first. */
struct values {
    uint64_t bits[(CRON_YEARS + 63) / 64];
};

/* A field in the making. */
struct parse {
    struct timer_text *text; /* ends where the field ends */
    const struct field *field;
    const char *from; /* where the element begins */
    struct values values;
    bool star;
};

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static bool at_letter(const struct timer_text *text, char letter)
{
    return upper(timer_peek(text)) == letter;
}

static bool accept_letter(struct timer_text *text, char letter)
{
    bool there = at_letter(text, letter);
    text->at += there;
    return there;
}

static enum mr_err wrong_element(const struct parse *p)
{
    return timer_wrong(p->text, p->from, "'%.*s' is no %s; expected %s",
                       timer_shown(p->text, p->from), p->from, p->field->name, p->field->expected);
}

static void set_value(struct parse *p, int value)
{
    unsigned bit = (unsigned)(p->field == &fields[YEAR] ? value - MR_RULE_YEAR_MIN : value);
    p->values.bits[bit / 64] |= 1ULL << bit % 64;
}

/* ---- plain elements -------------------------------------------------------------------------- */

/* The value of a name of three letters, or -1. */
static int read_name(struct parse *p)
{
    struct timer_text *text = p->text;
    if (p->field->names == NULL || text->end - text->at < NAME_LEN)
        return -1;
    for (int i = 0; p->field->names[i] != NULL; i++) {
        const char *name = p->field->names[i];
        bool same = true;
        for (int k = 0; k < NAME_LEN; k++)
            same = same && upper(text->at[k]) == name[k];
        if (same) {
            text->at += NAME_LEN;
            return p->field->names_first + i;
        }
    }
    return -1;
}

/* A number or a name; 7 is Sunday, too, and left as it is. */
static enum mr_err read_value(struct parse *p, int *ret_value)
{
    const struct field *field = p->field;
    const char *from = p->text->at;
    int value = read_name(p);
    if (value < 0) {
        char first = timer_peek(p->text);
        if (first < '0' || first > '9')
            return wrong_element(p);
        MR_TRY(timer_read_number(p->text, field->expected, &value));
    }
    int max = field == &fields[WEEKDAY] ? 7 : field->max;
    if (value < field->min || value > max)
        return timer_wrong(p->text, from, "%d is no %s; expected %s", value, field->name,
                           field->expected);
    *ret_value = value;
    return MR_OK;
}

/* "/n" if there is one, else 1. */
static enum mr_err read_step(struct parse *p, int *ret_step)
{
    int count = p->field->max - p->field->min + 1;
    *ret_step = 1;
    if (!timer_accept(p->text, '/'))
        return MR_OK;
    const char *from = p->text->at;
    MR_TRY(timer_read_number(p->text, "a step behind the /", ret_step));
    if (*ret_step < 1 || *ret_step > count)
        return timer_wrong(p->text, from, "a step of %d makes no sense for a %s; expected 1 to %d",
                           *ret_step, p->field->name, count);
    return MR_OK;
}

static enum mr_err set_range(struct parse *p, int first, int last, int step)
{
    const struct field *field = p->field;
    int count = field->max - field->min + 1;
    if (first > last && !field->cyclic)
        return timer_wrong(p->text, p->from,
                           "the range %d-%d goes backwards; write %d-%d or a list", first, last,
                           last, first);
    if (first > last)
        last += count;
    for (int value = first; value <= last; value += step)
        set_value(p, (value - field->min) % count + field->min);
    return MR_OK;
}

/* What stands behind the first value of an element: a range, a step, nothing. */
static enum mr_err read_range(struct parse *p, int first)
{
    int last = first, step;
    bool ranged = timer_accept(p->text, '-');
    if (ranged)
        MR_TRY(read_value(p, &last));
    /* A week that begins with 7 begins with Sunday; one that ends with 7 ends with it. */
    if (p->field == &fields[WEEKDAY] && first == 7) {
        first = 0;
        last %= 7;
    }
    bool stepped = timer_peek(p->text) == '/';
    MR_TRY(read_step(p, &step));
    if (stepped && !ranged)
        last = p->field->max;
    return set_range(p, first, last, step);
}

static enum mr_err read_star(struct parse *p)
{
    int step;
    MR_TRY(read_step(p, &step));
    return set_range(p, p->field->min, p->field->max, step);
}

static enum mr_err read_plain(struct parse *p)
{
    int value;
    if (timer_accept(p->text, '*'))
        return read_star(p);
    MR_TRY(read_value(p, &value));
    return read_range(p, value);
}

/* ---- days ------------------------------------------------------------------------------------ */

/* L, L-n, LW, L-nW */
static enum mr_err read_last_day(struct parse *p, struct cron *cron)
{
    int back = 0;
    const char *from = p->text->at + 1;
    if (timer_accept(p->text, '-')) {
        MR_TRY(timer_read_number(p->text, "days before the last one, 0-30", &back));
        if (back > 30)
            return timer_wrong(p->text, from, "no month has %d days before its last one", back);
    }
    *(accept_letter(p->text, 'W') ? &cron->last_near : &cron->last) |= 1u << back;
    return MR_OK;
}

static enum mr_err read_day(struct parse *p, struct cron *cron)
{
    int day;
    if (accept_letter(p->text, 'L'))
        return read_last_day(p, cron);
    if (timer_accept(p->text, '*'))
        return read_star(p);
    MR_TRY(read_value(p, &day));
    if (accept_letter(p->text, 'W')) {
        cron->near |= 1u << day;
        return MR_OK;
    }
    return read_range(p, day);
}

static enum mr_err read_weekday(struct parse *p, struct cron *cron)
{
    int weekday, nth;
    if (timer_accept(p->text, '*'))
        return read_star(p);
    if (at_letter(p->text, 'L'))
        return timer_wrong(p->text, p->from,
                           "L alone is Saturday to some and Sunday to others; write SAT or SUN, or "
                           "FRIL for the last Friday of the month");
    MR_TRY(read_value(p, &weekday));
    uint8_t bit = (uint8_t)(1u << weekday % 7);
    if (accept_letter(p->text, 'L')) {
        cron->weekdays_last |= bit;
        return MR_OK;
    }
    if (!timer_accept(p->text, '#'))
        return read_range(p, weekday);
    const char *from = p->text->at;
    MR_TRY(timer_read_number(p->text, "1-5 behind the #", &nth));
    if (nth < 1 || nth > CRON_NTH_MAX)
        return timer_wrong(p->text, from, "no month has the same weekday %d times; expected 1-5",
                           nth);
    cron->weekdays_nth[nth - 1] |= bit;
    return MR_OK;
}

/* ---- fields ---------------------------------------------------------------------------------- */

static enum mr_err read_element(struct parse *p, struct cron *cron)
{
    if (p->field == &fields[DAY])
        return read_day(p, cron);
    return p->field == &fields[WEEKDAY] ? read_weekday(p, cron) : read_plain(p);
}

/* A list of elements up to the end of the text. Of the days, cron keeps what is no plain value; it
 * is NULL where nothing else is allowed. */
static enum mr_err read_field(struct parse *p, struct cron *cron)
{
    const char *begin = p->text->at;
    bool of_days = p->field == &fields[DAY] || p->field == &fields[WEEKDAY];
    if (cron != NULL && of_days && p->text->end - begin == 1 && timer_accept(p->text, '?')) {
        p->star = true;
        return set_range(p, p->field->min, p->field->max, 1);
    }
    bool listed = false;
    for (;; listed = true) {
        p->from = p->text->at;
        MR_TRY(cron != NULL ? read_element(p, cron) : read_plain(p));
        if (p->text->at == p->text->end)
            break;
        if (!timer_accept(p->text, ','))
            return wrong_element(p);
    }
    p->star = !listed && *begin == '*';
    return MR_OK;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The fields of the text, in order; more than FIELDS_MAX are counted, not kept. */
static size_t split(const struct timer_text *text, struct timer_text parts[FIELDS_MAX])
{
    size_t count = 0;
    for (const char *at = text->begin; at < text->end;) {
        const char *from = at;
        while (at < text->end && !is_blank(*at))
            at++;
        if (at > from && count++ < FIELDS_MAX) {
            parts[count - 1] = *text;
            parts[count - 1].at = from;
            parts[count - 1].end = at;
        }
        while (at < text->end && is_blank(*at))
            at++;
    }
    return count;
}

static void keep_field(const struct parse *p, enum field_id id, struct cron *cron)
{
    const uint64_t *bits = p->values.bits;
    switch (id) {
    case SECOND:
        cron->seconds = bits[0];
        break;
    case MINUTE:
        cron->minutes = bits[0];
        break;
    case HOUR:
        cron->hours = (uint32_t)bits[0];
        break;
    case DAY:
        cron->days = (uint32_t)bits[0];
        cron->days_star = p->star;
        break;
    case MONTH:
        cron->months = (uint32_t)bits[0];
        break;
    case WEEKDAY:
        cron->weekdays = (uint8_t)bits[0];
        cron->weekdays_star = p->star;
        break;
    case YEAR:
        memcpy(cron->years, bits, sizeof cron->years);
        break;
    }
}

static void set_every_year(struct cron *cron)
{
    for (int i = 0; i < CRON_YEARS; i++)
        cron->years[i / 64] |= 1ULL << i % 64;
}

static enum mr_err parse_fields(const struct timer_text *text, struct cron *cron)
{
    struct timer_text parts[FIELDS_MAX];
    size_t count = split(text, parts);
    if (count < FIELDS_MIN || count > FIELDS_MAX)
        return timer_wrong(text, text->end,
                           "%zu fields; expected 5 (minute hour day month weekday), 6 (second in "
                           "front) or 7 (year behind), or @hourly and the like",
                           count);
    cron->seconds = 1;
    set_every_year(cron);
    for (size_t i = 0; i < count; i++) {
        enum field_id id = (enum field_id)(count == FIELDS_MIN ? i + 1 : i);
        struct timer_text part = parts[i];
        struct parse p = {.text = &part, .field = &fields[id], .from = part.at};
        MR_TRY(read_field(&p, cron));
        keep_field(&p, id, cron);
    }
    if (cron_next(cron, NULL, -1) == TIMER_NEVER)
        return timer_wrong(text, parts[count == FIELDS_MIN ? 2 : 3].at,
                           "no date from %d to %d is like this, so it would never fire; look at "
                           "day, month and year",
                           MR_RULE_YEAR_MIN, MR_RULE_YEAR_MAX);
    return MR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct word {
    const char *name, *expression;
};

static const struct word words[] = {
    {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},
    {"@weekly", "0 0 * * 0"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"},
    {"@hourly", "0 * * * *"},
};

static bool is_word(const struct timer_text *text, const char *name)
{
    size_t len = strlen(name);
    if ((size_t)(text->end - text->begin) != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = text->begin[i];
        if ((c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c) != name[i])
            return false;
    }
    return true;
}

static enum mr_err parse_word(struct timer_text *text, struct cron *cron)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!is_word(text, words[i].name))
            continue;
        struct mr_slice expression = mr_slice_str(words[i].expression);
        text->begin = expression.data;
        text->end = text->begin + expression.len;
        return parse_fields(text, cron);
    }
    return timer_wrong(text, text->begin,
                       "'%.*s' is not known; expected @yearly, @monthly, @weekly, @daily, @hourly "
                       "or @every D",
                       timer_shown(text, text->begin), text->begin);
}

enum mr_err cron_parse(struct mr_slice slice, struct cron *ret_cron, struct mr_detail *detail)
{
    const char *begin = slice.data;
    struct timer_text text = {"cron", begin, begin, begin + slice.len, detail};
    struct cron cron = {0};
    if (slice.len > TEXT_MAX)
        return timer_wrong(&text, begin + TEXT_MAX, "longer than %d bytes", TEXT_MAX);
    while (text.end > text.begin && is_blank(text.end[-1]))
        text.end--;
    MR_TRY(timer_peek(&text) == '@' ? parse_word(&text, &cron) : parse_fields(&text, &cron));
    *ret_cron = cron;
    return MR_OK;
}

enum mr_err timer_read_weekdays(struct timer_text *text, unsigned *ret_days)
{
    struct parse p = {.text = text, .field = &fields[WEEKDAY], .from = text->at};
    MR_TRY(read_field(&p, NULL));
    *ret_days = (unsigned)p.values.bits[0];
    return MR_OK;
}
