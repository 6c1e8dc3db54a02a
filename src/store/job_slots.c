/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the items of a request are about: sorted, and looked for together. Thread: the store's. */
#include "store/jobs_internal.h"

#include <stdlib.h>

/* ---- by segment ----------------------------------------------------------------------------- */

struct shifted {
    db_row *row;
    void *arg;
    size_t first;
};

static enum mr_err take_shifted(size_t item, const struct db_value *row, void *arg)
{
    const struct shifted *shifted = arg;
    return shifted->row(shifted->first + item, row, shifted->arg);
}

enum mr_err job_run_by_segment(struct tx *tx, enum sql_job statement, const struct db_value *values,
                               size_t n, db_row *row, void *arg)
{
    size_t width = strlen(sql_statement(statement)->params);
    for (size_t first = 0, behind; first < n; first = behind) {
        int64_t segment = values[first * width].number;
        for (behind = first; behind < n && values[behind * width].number == segment;)
            behind++;
        struct shifted shifted = {row, arg, first};
        MR_TRY(
            job_run(tx, statement, values + first * width, behind - first, take_shifted, &shifted));
    }
    return MR_OK;
}

/* ---- slots ---------------------------------------------------------------------------------- */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b ? 1 : 0;
}

/* But for the place in the request. */
static int compare_parts(const struct job_slot *a, const struct job_slot *b)
{
    int order = compare_numbers(a->segment, b->segment);
    if (order == 0)
        order = compare_numbers(a->job->row.no, b->job->row.no);
    if (order == 0)
        order = compare_numbers(a->stage, b->stage);
    return order != 0 ? order : compare_numbers(a->index, b->index);
}

static int compare_slots(const void *a, const void *b)
{
    int order = compare_parts(a, b);
    return order != 0 ? order
                      : compare_numbers(((const struct job_slot *)a)->item,
                                        ((const struct job_slot *)b)->item);
}

static bool is_in(const struct job_slot *slot)
{
    return *slot->err == MR_OK;
}

/* Of those that are about the same the first is it, if it is one at all. */
static void refuse_doubles(struct job_slot *slots, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (compare_parts(&slots[i - 1], &slots[i]) == 0)
            *slots[i].err = is_in(&slots[i - 1]) ? MR_CONFLICT : *slots[i - 1].err;
    }
}

/* ---- ranges --------------------------------------------------------------------------------- */

struct found_range {
    uint64_t first, n;
};

static enum mr_err take_range(size_t item, const struct db_value *row, void *arg)
{
    struct found_range *ranges = arg;
    ranges[item] = (struct found_range){(uint64_t)row[0].number, (uint64_t)row[1].number};
    return MR_OK;
}

static bool same_range(const struct job_slot *a, const struct job_slot *b)
{
    return a->segment == b->segment && a->job == b->job;
}

/* A part is in the range that its job has in the segment. */
static enum mr_err check_ranges(struct tx *tx, struct job_slot *slots, size_t n)
{
    enum { WIDTH = 2 };
    struct db_value *values = mr_arena_calloc(&tx->scratch, n * WIDTH, sizeof *values);
    struct found_range *ranges = mr_arena_calloc(&tx->scratch, n, sizeof *ranges);
    size_t ranges_n = 0;
    if (!values || !ranges)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && same_range(&slots[i - 1], &slots[i]))
            continue;
        values[ranges_n * WIDTH] = db_number((int64_t)slots[i].job->row.no);
        values[ranges_n * WIDTH + 1] = db_number((int64_t)slots[i].segment);
        ranges_n++;
    }
    MR_TRY(job_run(tx, SQL_RANGE_GET, values, ranges_n, take_range, ranges));
    for (size_t i = 0, at = 0; i < n; i++) {
        at += i > 0 && !same_range(&slots[i - 1], &slots[i]) ? 1 : 0;
        if (slots[i].index < ranges[at].first || slots[i].index - ranges[at].first >= ranges[at].n)
            *slots[i].err = MR_NOT_FOUND;
    }
    return MR_OK;
}

/* ---- the stage before ----------------------------------------------------------------------- */

static enum mr_err take_success(size_t item, const struct db_value *row, void *arg)
{
    bool *came = arg;
    came[item] = row[0].number == 0;
    return MR_OK;
}

/* A part comes to a stage by its success in the one before. */
static enum mr_err check_stages(struct tx *tx, struct job_slot *slots, size_t n)
{
    enum { WIDTH = 4 };
    struct db_value *values = mr_arena_calloc(&tx->scratch, n * WIDTH, sizeof *values);
    bool *came = mr_arena_calloc(&tx->scratch, n, sizeof *came);
    struct job_slot **asked = mr_arena_calloc(&tx->scratch, n, sizeof *asked);
    size_t asked_n = 0;
    if (!values || !came || !asked)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!is_in(&slots[i]) || slots[i].stage == 0)
            continue;
        struct db_value *row = values + asked_n * WIDTH;
        row[0] = db_number((int64_t)slots[i].segment);
        row[1] = db_number((int64_t)slots[i].job->row.no);
        row[2] = db_number((int64_t)slots[i].stage - 1);
        row[3] = db_number((int64_t)slots[i].index);
        asked[asked_n++] = &slots[i];
    }
    MR_TRY(job_run_by_segment(tx, SQL_OUTCOME_AT, values, asked_n, take_success, came));
    for (size_t i = 0; i < asked_n; i++) {
        if (!came[i])
            *asked[i]->err = MR_NOT_FOUND;
    }
    return MR_OK;
}

enum mr_err job_slots_find(struct tx *tx, struct job_slot *slots, size_t n)
{
    if (n == 0)
        return MR_OK;
    qsort(slots, n, sizeof *slots, compare_slots);
    MR_TRY(check_ranges(tx, slots, n));
    MR_TRY(check_stages(tx, slots, n));
    refuse_doubles(slots, n);
    return MR_OK;
}
