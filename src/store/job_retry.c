/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A retry. With its first step the job runs, in its next round, and nothing of it has failed. What that means for a million
 * parts would be a transaction of many seconds, and whoever has to renew a lease would wait for it. So it follows in steps,
 * which move retry_next over the indexes: failures are removed, and what was submitted and has no success comes into the
 * ready list. Behind retry_next failures are passed over by whoever looks (job_forgives), so nobody sees how far it has come.
 * A step that was not answered is repeated, and one that nobody comes back for is taken by whoever finds the job live.
 * Thread: the store's.
 */
#include "store/jobs_internal.h"

enum { CHUNKS_MAX = 64 }; /* pieces of the old result that go in a step: they are big */

static struct mr_store_job_act *of(struct mr_store_req *req)
{
    return store_request(req, mr_store_job_act);
}

static enum mr_err retry_check(const struct mr_store_req *req)
{
    return uid_is_zero(&store_request(req, mr_store_job_act)->uid) ? MR_INVALID : MR_OK;
}

/* Others wait for a step, and not for several. */
static size_t retry_cost(const struct mr_store_req *req)
{
    (void)req;
    return COST_ALONE;
}

static enum mr_err retry_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    return job_lock_uid(locks, &store_request(req, mr_store_job_act)->uid);
}

/* ---- the first step -------------------------------------------------------------------------- */

static enum mr_err add_parts(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    *(uint64_t *)arg += (uint64_t)row[2].number;
    return MR_OK;
}

/* Why it cannot be, or MR_OK. */
static enum mr_err refusal(const struct tx_job *job, uint32_t round)
{
    enum mr_jobrow_state state = job->row.state;
    if (job->row.round != round)
        return MR_STALE;
    if (!mr_jobrow_is_ended(state) ||
        (state == MR_JOBROW_SUCCEEDED && mr_store_job_failed(&job->row) == 0))
        return MR_WRONG_STATE;
    return MR_OK;
}

static void begin(struct tx *tx, struct tx_job *job)
{
    struct mr_store_job *row = &job->row;
    job_change(tx, job);
    row->state = MR_JOBROW_RUNNING;
    row->reason = (struct mr_slice){0};
    row->round += 2;
    row->started_ms = row->started_ms > 0 ? row->started_ms : tx->now_ms;
    row->finished_ms = 0;
    row->result_bytes = 0;
    row->result_chunks = 0;
    job->result_token = 0;
    row->retry_next = 0;
    for (size_t i = 0; i < row->stages_n; i++)
        job->stages[i].failed = 0;
    job_unsend(job);
    job_totals(job);
    job_ready_renew(job);
}

/* Leaves in req->err why not. */
static enum mr_err try_begin(struct tx *tx, struct tx_job *job, struct mr_store_req *req)
{
    struct db_value no = db_number((int64_t)job->row.no);
    uint64_t parts = 0;
    req->err = refusal(job, of(req)->round);
    if (req->err != MR_OK)
        return MR_OK;
    /* Locked, so that their segments stay: from then on the job is live. */
    MR_TRY(job_run(tx, SQL_RANGES_LOCK, &no, 1, add_parts, &parts));
    if (parts == job->row.total)
        begin(tx, job);
    else
        req->err = MR_EMPTY;
    return MR_OK;
}

/* ---- each step ------------------------------------------------------------------------------- */

static enum mr_err count_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    (void)row;
    ++*(uint64_t *)arg;
    return MR_OK;
}

/* The old result and the old ready list, a part of them. Answers whether nothing is left. */
static enum mr_err clear(struct tx *tx, const struct tx_job *job, size_t max, bool *ret_clear)
{
    struct db_value no = db_number((int64_t)job->row.no);
    size_t chunks_max = max < CHUNKS_MAX ? max : CHUNKS_MAX;
    struct db_value chunks[] = {no, db_number((int64_t)chunks_max)};
    struct db_value ready[] = {no, db_number((int64_t)job->row.ready_cursor),
                               db_number((int64_t)max)};
    uint64_t chunks_n = 0, ready_n = 0;
    MR_TRY(job_run(tx, SQL_DROP_CHUNKS, chunks, 1, count_row, &chunks_n));
    MR_TRY(job_run(tx, SQL_READY_TRIM, ready, 1, count_row, &ready_n));
    *ret_clear = chunks_n < chunks_max && ready_n < max;
    return MR_OK;
}

/* The next parts, as far as they are in this range: so many at most. */
static enum mr_err forgive(struct tx *tx, struct tx_job *job, const struct job_range *range,
                           uint64_t *left)
{
    uint64_t first = job->row.retry_next > range->first ? job->row.retry_next : range->first;
    uint64_t behind = range->first + range->n, failed = 0;
    if (behind - first > *left)
        behind = first + *left;
    struct db_value segment = db_number((int64_t)range->segment);
    struct db_value no = db_number((int64_t)job->row.no);
    for (size_t i = 0; i < job->row.stages_n; i++) {
        struct db_value values[] = {segment, no, db_number((int64_t)i), db_number((int64_t)first),
                                    db_number((int64_t)behind)};
        MR_TRY(job_run(tx, SQL_OUTCOMES_FORGET, values, 1, count_row, &failed));
    }
    MR_TRY(job_ready_fill(tx, job, range->segment, first, behind));
    struct db_value reopen[] = {no, segment, db_number((int64_t)failed)};
    *left -= behind - first;
    job->row.retry_next = behind;
    return job_run(tx, SQL_RANGE_REOPEN, reopen, 1, NULL, NULL);
}

static enum mr_err forgive_some(struct tx *tx, struct tx_job *job, uint64_t left)
{
    while (left > 0 && job->row.retry_next < job->row.total) {
        struct job_range ranges[RANGES_PAGE];
        size_t n = 0;
        MR_TRY(job_ranges(tx, job->row.no, job->row.retry_next, ranges, &n));
        if (n == 0)
            return MR_DAMAGED; /* segments of a live job do not go */
        for (size_t i = 0; i < n && left > 0; i++)
            MR_TRY(forgive(tx, job, &ranges[i], &left));
    }
    return MR_OK;
}

/* A part costs as much as it has stages. What changes meanwhile is nothing that people see: that is no version. */
static enum mr_err go_on(struct tx *tx, struct tx_job *job, size_t max)
{
    bool is_clear = false;
    job->changed = true;
    MR_TRY(clear(tx, job, max, &is_clear));
    if (!is_clear)
        return MR_OK;
    MR_TRY(forgive_some(tx, job, max > job->row.stages_n ? max / job->row.stages_n : 1));
    if (job->row.retry_next < job->row.total)
        return MR_OK;
    job_change(tx, job);
    job->row.retry_next = MR_STORE_RETRY_NONE;
    job_settle(job);
    return MR_OK;
}

static enum mr_err retry_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_act *act = of(req);
    struct tx_job *job = tx_job_seen(tx, &act->uid);
    if (!job) {
        req->err = MR_NOT_FOUND;
        return MR_OK;
    }
    if (job->row.round != act->round + 2) /* else it was begun, by a request like this */
        MR_TRY(try_begin(tx, job, req));
    bool given = act->max > 0 && act->max < MR_STORE_RETRY_PARTS;
    return req->err == MR_OK && mr_store_job_retrying(&job->row)
               ? go_on(tx, job, given ? act->max : MR_STORE_RETRY_PARTS)
               : MR_OK;
}

static enum mr_err retry_answer(struct tx *tx, struct mr_store_req *req)
{
    return job_copy(tx_job(tx, &of(req)->uid), &req->arena, &of(req)->job);
}

const struct store_op op_job_retry = {
    .access = DB_WRITE,
    .cost = retry_cost,
    .check = retry_check,
    .locks = retry_locks,
    .carry = retry_carry,
    .answer = retry_answer,
};
