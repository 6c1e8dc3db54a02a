/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and the ready list, made anew from outcomes: when a row of counters is missing, and when a job
 * is retried. Thread: the store's.
 */
#include "store/jobs_internal.h"

struct ranges {
    struct mr_arena *arena;
    struct job_range *rows;
    size_t n, cap;
};

static enum mr_err take_range(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct ranges *ranges = arg;
    if (ranges->n == ranges->cap) {
        size_t cap = ranges->cap > 0 ? 2 * ranges->cap : RANGES_PAGE;
        struct job_range *grown = mr_arena_calloc(ranges->arena, cap, sizeof *grown);
        if (!grown)
            return MR_NOMEM;
        if (ranges->n > 0)
            memcpy(grown, ranges->rows, ranges->n * sizeof *grown);
        ranges->rows = grown;
        ranges->cap = cap;
    }
    ranges->rows[ranges->n++] =
        (struct job_range){(uint64_t)row[0].number, (uint64_t)row[1].number,
                           (uint64_t)row[2].number, (uint64_t)row[3].number, row[4].number};
    return MR_OK;
}

/* All of them; locked, where the transaction writes. */
static enum mr_err read_ranges(struct tx *tx, const struct tx_job *job, enum sql_job statement,
                               struct ranges *ret_ranges)
{
    *ret_ranges = (struct ranges){.arena = &tx->scratch};
    struct db_value values[] = {db_number((int64_t)job->row.no), db_number(0),
                                db_number(INT32_MAX)};
    return job_run(tx, statement, values, 1, take_range, ret_ranges);
}

/* What was asked for is carried out by now. A database that is asked for many things at once, a range of 100 000 parts
 * each, would be taken for one that does not answer. */
static enum mr_err catch_up(struct tx *tx)
{
    int64_t now_ms = 0;
    return tx->db->ops->now(tx->db, &now_ms);
}

/* ---- counting ------------------------------------------------------------------------------- */

struct count {
    struct tx_job *job;
    uint64_t ended;                     /* parts of the range */
    uint64_t behind[MR_JOB_STAGES_MAX]; /* the last outcome of the stage */
};

static enum mr_err take_count(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct count *count = arg;
    struct tx_job *job = count->job;
    uint64_t stage = (uint64_t)row[0].number, n = (uint64_t)row[2].number;
    bool failed = row[1].number != 0;
    if (stage >= job->row.stages_n)
        return MR_DAMAGED;
    *(failed ? &job->stages[stage].failed : &job->stages[stage].done) += n;
    if (failed || stage + 1 == job->row.stages_n)
        count->ended += n;
    if ((uint64_t)row[3].number >= count->behind[stage])
        count->behind[stage] = (uint64_t)row[3].number + 1;
    return MR_OK;
}

/* Leaves in each range how many of its parts have ended. */
static enum mr_err count_ranges(struct tx *tx, struct tx_job *job, struct ranges *ranges)
{
    struct count count = {.job = job};
    for (size_t i = 0; i < job->row.stages_n; i++)
        job->stages[i].done = job->stages[i].failed = 0;
    for (size_t i = 0; i < ranges->n; i++) {
        struct db_value values[] = {db_number((int64_t)ranges->rows[i].segment),
                                    db_number((int64_t)job->row.no)};
        count.ended = 0;
        MR_TRY(job_run(tx, SQL_OUTCOME_COUNT, values, 1, take_count, &count));
        ranges->rows[i].ended = count.ended;
    }
    for (size_t i = 0; i < job->row.stages_n; i++) {
        struct mr_store_stage *stage = &job->stages[i];
        if ((job->stages_there & 1u << i) == 0)
            stage->cursor = count.behind[i];
        stage->sent = stage->done + stage->failed;
    }
    job_totals(job);
    return MR_OK;
}

enum mr_err job_recount(struct tx *tx, struct tx_job *job)
{
    struct ranges ranges;
    MR_TRY(read_ranges(tx, job, SQL_RANGES_FROM, &ranges));
    return count_ranges(tx, job, &ranges);
}

/* ---- the ready list ------------------------------------------------------------------------- */

static enum mr_err write_ranges(struct tx *tx, const struct tx_job *job,
                                const struct ranges *ranges)
{
    enum { WIDTH = 4 };
    struct db_value *values = mr_arena_calloc(&tx->scratch, ranges->n * WIDTH, sizeof *values);
    if (!values)
        return MR_NOMEM;
    bool live = mr_jobrow_is_live(job->row.state);
    for (size_t i = 0; i < ranges->n; i++) {
        const struct job_range *range = &ranges->rows[i];
        struct db_value *row = values + i * WIDTH;
        bool closed = !live || range->ended >= range->n;
        row[0] = db_number((int64_t)job->row.no);
        row[1] = db_number((int64_t)range->segment);
        row[2] = db_number((int64_t)range->ended);
        row[3] = db_number(!closed ? 0 : range->closed_ms > 0 ? range->closed_ms : tx->now_ms);
    }
    return job_run(tx, SQL_RANGE_SET, values, ranges->n, NULL, NULL);
}

/* What has come to a stage, was passed by its cursor and has no outcome. In a pipeline no cursor passes it. */
static enum mr_err fill_stage(struct tx *tx, struct tx_job *job, size_t stage,
                              const struct ranges *ranges)
{
    uint64_t below = job->row.pipeline && stage > 0 ? job->row.total : job->stages[stage].cursor;
    for (size_t i = 0; below > 0 && i < ranges->n; i++) {
        if (ranges->rows[i].first >= below)
            break;
        struct db_value values[] = {
            db_number((int64_t)ranges->rows[i].segment),
            db_number((int64_t)job->row.no),
            db_number((int64_t)job->row.ready_last),
            db_number((int64_t)below),
            db_number(job->row.round),
            db_number((int64_t)stage),
        };
        MR_TRY(
            job_run(tx, stage == 0 ? SQL_READY_INPUTS : SQL_READY_RESULTS, values, 1, NULL, NULL));
        MR_TRY(catch_up(tx));
    }
    job->row.ready_last += job->row.total;
    return MR_OK;
}

static enum mr_err fill(struct tx *tx, struct tx_job *job, const struct ranges *ranges)
{
    struct db_value no = db_number((int64_t)job->row.no);
    MR_TRY(job_run(tx, SQL_READY_CLEAR, &no, 1, NULL, NULL));
    job->row.ready_cursor = job->row.ready_last;
    for (size_t i = 0; i < job->row.stages_n; i++)
        MR_TRY(fill_stage(tx, job, i, ranges));
    return MR_OK;
}

/* The rest of making anew, when the ranges are known. */
static enum mr_err refill(struct tx *tx, struct tx_job *job, struct ranges *ranges)
{
    MR_TRY(count_ranges(tx, job, ranges));
    MR_TRY(fill(tx, job, ranges));
    MR_TRY(write_ranges(tx, job, ranges));
    job->stages_there = (1u << job->row.stages_n) - 1;
    job_settle(job);
    return MR_OK;
}

enum mr_err job_refill(struct tx *tx, struct tx_job *job)
{
    struct ranges ranges;
    job_change(tx, job);
    MR_TRY(read_ranges(tx, job, SQL_RANGES_LOCK, &ranges));
    return refill(tx, job, &ranges);
}

enum mr_err job_forgive(struct tx *tx, struct tx_job *job)
{
    struct ranges ranges;
    uint64_t parts = 0;
    /* Locked, so that their segments stay. */
    MR_TRY(read_ranges(tx, job, SQL_RANGES_LOCK, &ranges));
    for (size_t i = 0; i < ranges.n; i++)
        parts += ranges.rows[i].n;
    if (parts != job->row.total)
        return MR_EMPTY;
    for (size_t i = 0; i < ranges.n; i++) {
        struct db_value values[] = {db_number((int64_t)ranges.rows[i].segment),
                                    db_number((int64_t)job->row.no)};
        MR_TRY(job_run(tx, SQL_OUTCOMES_FORGET, values, 1, NULL, NULL));
        MR_TRY(catch_up(tx));
    }
    struct db_value trim[] = {db_number((int64_t)job->row.no), db_number(0), db_number(0)};
    MR_TRY(job_run(tx, SQL_CHUNKS_TRIM, trim, 1, NULL, NULL));
    job_change(tx, job);
    job->row.state = MR_JOBROW_RUNNING;
    job->row.reason = (struct mr_slice){0};
    job->row.round += 2;
    job->row.started_ms = job->row.started_ms > 0 ? job->row.started_ms : tx->now_ms;
    job->row.finished_ms = 0;
    job->row.result_bytes = 0;
    job->row.result_chunks = 0;
    job->result_token = 0;
    return refill(tx, job, &ranges);
}
