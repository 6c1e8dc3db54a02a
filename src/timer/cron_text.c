/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cron expressions: writing. The text follows from the sets alone, so expressions that mean the
 * same have the same text: numbers instead of names, rising, no more fields than needed.
 */
#include "timer/internal.h"

/* Runs of at least this many are written as a range. */
enum { RUN_MIN = 3 };

static bool has(const uint64_t *bits, int i)
{
    return bits[i / 64] >> i % 64 & 1;
}

static enum mr_err put_comma(struct mr_buf *buf, size_t from)
{
    return buf->len > from ? mr_buf_append(buf, ",", 1) : MR_OK;
}

/* How far the next value is from this one; 0 when there is none. */
static int gap_behind(const uint64_t *bits, int value, int end)
{
    for (int i = value + 1; i < end; i++) {
        if (has(bits, i))
            return i - value;
    }
    return 0;
}

/* The last of the values that follow first at the same distance each. */
static int run_end(const uint64_t *bits, int first, int step, int end)
{
    int last = first;
    while (step > 0 && gap_behind(bits, last, end) == step)
        last += step;
    return last;
}

/* The values below end as a list of runs; a value is written with base added. */
static enum mr_err put_list(struct mr_buf *buf, const uint64_t *bits, int end, int base)
{
    size_t from = buf->len;
    for (int i = 0; i < end; i++) {
        if (!has(bits, i))
            continue;
        int step = gap_behind(bits, i, end);
        int last = run_end(bits, i, step, end);
        if (last - i < (RUN_MIN - 1) * step)
            last = i;
        MR_TRY(put_comma(buf, from));
        MR_TRY(mr_buf_printf(buf, "%d", i + base));
        if (last > i)
            MR_TRY(mr_buf_printf(buf, "-%d", last + base));
        if (last > i && step > 1)
            MR_TRY(mr_buf_printf(buf, "/%d", step));
        i = last;
    }
    return MR_OK;
}

/* The step n for which the values first..end-1 are what "*" with this step means; 0 when there is none.
 */
static int star_step(const uint64_t *bits, int first, int end)
{
    int step = 1;
    if (!has(bits, first))
        return 0;
    while (first + step < end && !has(bits, first + step))
        step++;
    for (int i = first; i < end; i++) {
        if (has(bits, i) != ((i - first) % step == 0))
            return 0;
    }
    return step;
}

static enum mr_err put_star(struct mr_buf *buf, int step)
{
    return step == 1 ? mr_buf_printf(buf, "*") : mr_buf_printf(buf, "*/%d", step);
}

/* A field without days: a star where it says the same of at least RUN_MIN values. */
static enum mr_err put_field(struct mr_buf *buf, const uint64_t *bits, int first, int end, int base)
{
    int step = star_step(bits, first, end);
    if (step > 0 && first + (RUN_MIN - 1) * step < end)
        return put_star(buf, step);
    return put_list(buf, bits, end, base);
}

static enum mr_err put_marked(struct mr_buf *buf, size_t from, uint32_t values, char mark)
{
    for (; values != 0; values &= values - 1) {
        MR_TRY(put_comma(buf, from));
        MR_TRY(mr_buf_printf(buf, "%d%c", __builtin_ctz(values), mark));
    }
    return MR_OK;
}

/* L or LW, then those that are counted from it. */
static enum mr_err put_last(struct mr_buf *buf, size_t from, uint32_t last, const char *suffix)
{
    for (; last != 0; last &= last - 1) {
        int back = __builtin_ctz(last);
        MR_TRY(put_comma(buf, from));
        if (back == 0)
            MR_TRY(mr_buf_printf(buf, "L%s", suffix));
        else
            MR_TRY(mr_buf_printf(buf, "L-%d%s", back, suffix));
    }
    return MR_OK;
}

static enum mr_err put_days(struct mr_buf *buf, const struct cron *cron)
{
    uint64_t bits = cron->days;
    size_t from = buf->len;
    if (cron->days_star)
        return put_star(buf, star_step(&bits, 1, 32));
    MR_TRY(put_list(buf, &bits, 32, 0));
    MR_TRY(put_marked(buf, from, cron->near, 'W'));
    MR_TRY(put_last(buf, from, cron->last, ""));
    return put_last(buf, from, cron->last_near, "W");
}

static enum mr_err put_weekdays(struct mr_buf *buf, const struct cron *cron)
{
    uint64_t bits = cron->weekdays;
    size_t from = buf->len;
    if (cron->weekdays_star)
        return put_star(buf, star_step(&bits, 0, 7));
    MR_TRY(put_list(buf, &bits, 7, 0));
    MR_TRY(put_marked(buf, from, cron->weekdays_last, 'L'));
    for (int i = 0; i < CRON_NTH_MAX; i++) {
        for (uint32_t left = cron->weekdays_nth[i]; left != 0; left &= left - 1) {
            MR_TRY(put_comma(buf, from));
            MR_TRY(mr_buf_printf(buf, "%d#%d", __builtin_ctz(left), i + 1));
        }
    }
    return MR_OK;
}

static enum mr_err put_blank(struct mr_buf *buf)
{
    return mr_buf_append(buf, " ", 1);
}

enum mr_err cron_put(const struct cron *cron, struct mr_buf *buf)
{
    uint64_t hours = cron->hours, months = cron->months;
    bool every_year = star_step(cron->years, 0, CRON_YEARS) == 1;
    if (cron->seconds != 1 || !every_year) {
        MR_TRY(put_field(buf, &cron->seconds, 0, 60, 0));
        MR_TRY(put_blank(buf));
    }
    MR_TRY(put_field(buf, &cron->minutes, 0, 60, 0));
    MR_TRY(put_blank(buf));
    MR_TRY(put_field(buf, &hours, 0, 24, 0));
    MR_TRY(put_blank(buf));
    MR_TRY(put_days(buf, cron));
    MR_TRY(put_blank(buf));
    MR_TRY(put_field(buf, &months, 1, 13, 0));
    MR_TRY(put_blank(buf));
    MR_TRY(put_weekdays(buf, cron));
    if (every_year)
        return MR_OK;
    MR_TRY(put_blank(buf));
    return put_field(buf, cron->years, 0, CRON_YEARS, MR_RULE_YEAR_MIN);
}

enum mr_err timer_put_weekdays(unsigned days, struct mr_buf *buf)
{
    static const char names[][4] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
    size_t from = buf->len;
    /* From Monday on, so that a working week and a weekend are ranges. */
    for (int i = 1; i <= 7; i++) {
        int len = 0;
        while (i + len <= 7 && (days >> (i + len) % 7 & 1))
            len++;
        if (len == 0)
            continue;
        MR_TRY(put_comma(buf, from));
        MR_TRY(mr_buf_printf(buf, "%s", names[i % 7]));
        if (len > 1)
            MR_TRY(mr_buf_printf(buf, "-%s", names[(i + len - 1) % 7]));
        i += len - 1;
    }
    return MR_OK;
}
