/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and the ready list, made anew from outcomes when a row of counters is missing. Thread: the store's. */
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
    if (failed || stage + 1 == job->row.stages_n)
        count->ended += n;
    /* While it is retried nothing new fails: what is there the retry removes, when it comes to it. */
    if (failed && job->row.retry_next < job->row.total)
        return MR_OK;
    *(failed ? &job->stages[stage].failed : &job->stages[stage].done) += n;
    if ((uint64_t)row[3].number >= count->behind[stage])
        count->behind[stage] = (uint64_t)row[3].number + 1;
    return MR_OK;
}

void job_unsend(struct tx_job *job)
{
    for (size_t i = 0; i < job->row.stages_n; i++)
        job->stages[i].sent = job->stages[i].done + job->stages[i].failed;
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
        if ((job->stages_there & 1u << i) == 0)
            job->stages[i].cursor = count.behind[i];
    }
    job_unsend(job);
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

void job_ready_renew(struct tx_job *job)
{
    job->row.ready_cursor = job->row.ready_last;
    job->row.ready_last += job->row.stages_n * job->row.total;
}

enum mr_err job_ready_fill(struct tx *tx, const struct tx_job *job, uint64_t segment,
                           uint64_t first, uint64_t behind)
{
    const struct mr_store_job *row = &job->row;
    for (size_t i = 0; i < row->stages_n; i++) {
        /* In a pipeline no cursor passes parts behind the first stage. */
        uint64_t passed = row->pipeline && i > 0 ? row->total : job->stages[i].cursor;
        uint64_t to = behind < passed ? behind : passed;
        if (first >= to)
            continue;
        struct db_value values[] = {
            db_number((int64_t)segment),
            db_number((int64_t)row->no),
            db_number((int64_t)(row->ready_cursor + i * row->total)),
            db_number((int64_t)first),
            db_number((int64_t)to),
            db_number(row->round),
            db_number((int64_t)i),
        };
        MR_TRY(job_run(tx, i == 0 ? SQL_READY_INPUTS : SQL_READY_RESULTS, values, 1, NULL, NULL));
    }
    return MR_OK;
}

static enum mr_err fill(struct tx *tx, struct tx_job *job, const struct ranges *ranges)
{
    struct db_value no = db_number((int64_t)job->row.no);
    MR_TRY(job_run(tx, SQL_READY_CLEAR, &no, 1, NULL, NULL));
    for (size_t i = 0; i < ranges->n; i++) {
        const struct job_range *range = &ranges->rows[i];
        MR_TRY(job_ready_fill(tx, job, range->segment, range->first, range->first + range->n));
        MR_TRY(catch_up(tx));
    }
    return MR_OK;
}

enum mr_err job_refill(struct tx *tx, struct tx_job *job)
{
    struct ranges ranges;
    job_change(tx, job);
    MR_TRY(read_ranges(tx, job, SQL_RANGES_LOCK, &ranges));
    MR_TRY(count_ranges(tx, job, &ranges));
    job_ready_renew(job);
    if (job->row.retry_next < job->row.total)
        job->row.retry_next = 0;
    else
        MR_TRY(fill(tx, job, &ranges));
    MR_TRY(write_ranges(tx, job, &ranges));
    job->stages_there = (1u << job->row.stages_n) - 1;
    job_settle(job);
    return MR_OK;
}
