/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the parts of a job stand. Nothing says so but outcomes, cursors and the ready list, which are read for a
 * window of indexes and put together. Thread: the store's.
 */
#include "store/jobs_internal.h"

#define OPEN_STATES (1u << MR_PART_WAITING | 1u << MR_PART_SUBMITTED)

/* Of one part. */
struct stand {
    struct mr_store_part part;
    bool ended; /* its state is known */
    bool waits; /* in the ready list, in the stage that it is in */
};

struct window {
    struct tx *tx;
    const struct tx_job *job;
    struct mr_arena *arena;
    uint64_t first;
    size_t n;
    uint64_t segment;
    struct stand *stands;
    uint32_t stage; /* that is read now */
};

static struct stand *stand_of(const struct window *window, int64_t index)
{
    uint64_t at = (uint64_t)index - window->first;
    return index >= 0 && (uint64_t)index >= window->first && at < window->n ? &window->stands[at]
                                                                            : NULL;
}

static enum mr_err take_outcome(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    const struct window *window = arg;
    struct stand *stand = stand_of(window, row[0].number);
    if (!stand)
        return MR_DAMAGED;
    struct mr_store_part *part = &stand->part;
    bool failed = row[1].number != 0, last = window->stage + 1 == window->job->row.stages_n;
    if (failed && job_forgives(window->job, part->index))
        return MR_OK;
    stand->ended = failed || last;
    part->finished_ms = row[3].number;
    part->state = failed ? MR_PART_FAILED : MR_PART_DONE;
    part->stage = window->stage + (stand->ended ? 0 : 1);
    if (!stand->ended)
        part->finished_ms = 0;
    return failed ? reason_copy(window->arena, row[2].bytes, &part->error) : MR_OK;
}

static enum mr_err take_ready(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    const struct window *window = arg;
    struct stand *stand = stand_of(window, row[0].number);
    if (!stand || stand->ended || stand->part.stage != window->stage)
        return MR_OK;
    bool second = row[2].number == (int64_t)window->job->row.round + 1;
    stand->part.again = stand->part.again || second;
    stand->waits =
        stand->waits || (!second && (uint64_t)row[1].number > window->job->row.ready_cursor);
    return MR_OK;
}

static enum mr_err read_stage(struct window *window, uint32_t stage)
{
    window->stage = stage;
    struct db_value first = db_number((int64_t)window->first);
    struct db_value behind = db_number((int64_t)(window->first + window->n));
    struct db_value no = db_number((int64_t)window->job->row.no);
    struct db_value outcomes[] = {db_number((int64_t)window->segment), no, db_number(stage), first,
                                  behind};
    struct db_value ready[] = {no, db_number(stage), first, behind};
    MR_TRY(job_run(window->tx, SQL_OUTCOMES, outcomes, 1, take_outcome, window));
    return job_run(window->tx, SQL_READY_OF, ready, 1, take_ready, window);
}

/* Of one that has no outcome in its stage. */
static bool was_submitted(const struct tx_job *job, const struct stand *stand)
{
    const struct mr_store_part *part = &stand->part;
    bool passed =
        (job->row.pipeline && part->stage > 0) || part->index < job->stages[part->stage].cursor;
    return passed && !stand->waits && !job_forgives(job, part->index);
}

static enum mr_err read_window(struct window *window)
{
    window->stands = mr_arena_calloc(&window->tx->scratch, window->n, sizeof *window->stands);
    if (!window->stands)
        return MR_NOMEM;
    for (size_t i = 0; i < window->n; i++)
        window->stands[i].part = (struct mr_store_part){.index = window->first + i,
                                                        .segment = window->segment,
                                                        .round = window->job->row.round};
    for (uint32_t stage = 0; stage < window->job->row.stages_n; stage++)
        MR_TRY(read_stage(window, stage));
    for (size_t i = 0; i < window->n; i++) {
        struct stand *stand = &window->stands[i];
        if (!stand->ended)
            stand->part.state =
                was_submitted(window->job, stand) ? MR_PART_SUBMITTED : MR_PART_WAITING;
    }
    return MR_OK;
}

/* ---- PARTS_LIST ----------------------------------------------------------------------------- */

static enum mr_err list_check(const struct mr_store_req *req)
{
    const struct mr_store_parts_list *list = store_request(req, mr_store_parts_list);
    if (uid_is_zero(&list->uid) || list->from > INT64_MAX)
        return MR_INVALID;
    return page_check(list->max);
}

static size_t list_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_list)->max;
}

static void take_window(struct mr_store_parts_list *list, const struct window *window,
                        unsigned states)
{
    for (size_t i = 0; i < window->n; i++) {
        if ((states & 1u << window->stands[i].part.state) != 0)
            list->parts[list->n++] = window->stands[i].part;
    }
}

/* What of a range is within the next `left` indexes. */
static enum mr_err list_range(struct tx *tx, struct mr_store_parts_list *list,
                              const struct tx_job *job, const struct job_range *range, size_t *left)
{
    unsigned states = list->states != 0 ? list->states : ~0u;
    uint64_t first = list->next > range->first ? list->next : range->first;
    uint64_t behind = range->first + range->n;
    bool all_ended =
        range->closed_ms > 0 && range->ended >= range->n && !job_forgives(job, behind - 1);
    if (all_ended && (states & ~OPEN_STATES) == 0) {
        list->next = behind;
        return MR_OK;
    }
    struct window window = {.tx = tx,
                            .job = job,
                            .arena = &list->req.arena,
                            .first = first,
                            .n = behind - first < *left ? (size_t)(behind - first) : *left,
                            .segment = range->segment};
    MR_TRY(read_window(&window));
    take_window(list, &window, states);
    *left -= window.n;
    list->next = first + window.n;
    return MR_OK;
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_list *list = store_request(req, mr_store_parts_list);
    struct tx_job *job = NULL;
    MR_TRY(job_read(tx, &list->uid, &tx->scratch, &job));
    if (!job) {
        req->err = MR_NOT_FOUND;
        return MR_OK;
    }
    list->parts = mr_arena_calloc(&req->arena, list->max, sizeof *list->parts);
    if (!list->parts)
        return MR_NOMEM;
    list->n = 0;
    list->next = list->from;
    for (size_t left = list->max; left > 0 && list->next < job->row.total;) {
        struct job_range ranges[RANGES_PAGE];
        size_t n = 0;
        MR_TRY(job_ranges(tx, job->row.no, list->next, ranges, &n));
        if (n == 0) /* the rest has gone with its segments */
            list->next = job->row.total;
        for (size_t i = 0; i < n && left > 0; i++)
            MR_TRY(list_range(tx, list, job, &ranges[i], &left));
    }
    return MR_OK;
}

const struct store_op op_parts_list = {
    .access = DB_READ,
    .cost = list_cost,
    .check = list_check,
    .carry = list_carry,
    .timeless = true,
};
