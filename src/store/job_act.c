/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to one job: commit, abort, cancel, end. Thread: the store's. */
#include "store/jobs_internal.h"

static struct mr_store_job_act *of(struct mr_store_req *req)
{
    return store_request(req, mr_store_job_act);
}

static enum mr_err act_check(const struct mr_store_req *req)
{
    const struct mr_store_job_act *act = store_request(req, mr_store_job_act);
    if (uid_is_zero(&act->uid))
        return MR_INVALID;
    return fence_check(&act->fence);
}

static enum mr_err act_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_job_act *act = store_request(req, mr_store_job_act);
    if (act->fence.lease.len > 0)
        MR_TRY(tx_names_add(&locks->fences, act->fence.lease));
    return job_lock_uid(locks, &act->uid);
}

/* Behind what else the transaction does to it. */
static enum mr_err act_answer(struct tx *tx, struct mr_store_req *req)
{
    return job_copy(tx_job(tx, &of(req)->uid), &req->arena, &of(req)->job);
}

/* ---- commit, abort -------------------------------------------------------------------------- */

static enum mr_err commit_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_act *act = of(req);
    struct tx_job *job = tx_job(tx, &act->uid);
    struct mr_store_job *row = &job->row;
    if (!job->there || row->state == MR_JOBROW_DROPPED)
        req->err = MR_NOT_FOUND;
    else if (row->total == 0 || row->total != act->total)
        req->err = MR_INVALID;
    if (req->err != MR_OK || row->state != MR_JOBROW_LOADING)
        return MR_OK;
    row->state = MR_JOBROW_CREATED;
    row->created_ms = tx->now_ms;
    row->order_ms = tx->now_ms - row->priority_ms;
    job_totals(job);
    job_change(tx, job);
    return MR_OK;
}

static enum mr_err abort_carry(struct tx *tx, struct mr_store_req *req)
{
    struct tx_job *job = tx_job(tx, &of(req)->uid);
    if (!job->there)
        req->err = MR_NOT_FOUND;
    else if (job->row.state == MR_JOBROW_LOADING) {
        job_change(tx, job);
        job->row.state = MR_JOBROW_DROPPED;
    } else if (job->row.state != MR_JOBROW_DROPPED)
        req->err = MR_WRONG_STATE;
    return MR_OK;
}

const struct store_op op_job_commit = {
    .access = DB_WRITE,
    .check = act_check,
    .locks = act_locks,
    .carry = commit_carry,
    .answer = act_answer,
};

const struct store_op op_job_abort = {
    .access = DB_WRITE,
    .check = act_check,
    .locks = act_locks,
    .carry = abort_carry,
};

/* ---- cancel --------------------------------------------------------------------------------- */

static enum mr_err cancel_carry(struct tx *tx, struct mr_store_req *req)
{
    struct tx_job *job = tx_job_seen(tx, &of(req)->uid);
    if (!job)
        req->err = MR_NOT_FOUND;
    else if (mr_jobrow_is_live(job->row.state))
        return job_finish(tx, job, MR_JOBROW_CANCELLED, of(req)->reason);
    else if (job->row.state != MR_JOBROW_CANCELLED)
        req->err = MR_WRONG_STATE;
    return MR_OK;
}

const struct store_op op_job_cancel = {
    .access = DB_WRITE,
    .check = act_check,
    .locks = act_locks,
    .carry = cancel_carry,
    .answer = act_answer,
};

/* ---- end ------------------------------------------------------------------------------------ */

static enum mr_err end_check(const struct mr_store_req *req)
{
    const struct mr_store_job_act *act = store_request(req, mr_store_job_act);
    bool ok = act->state == MR_JOBROW_SUCCEEDED || act->state == MR_JOBROW_FAILED;
    return ok && act->bytes <= INT64_MAX ? act_check(req) : MR_INVALID;
}

/* Its own effect, found again. */
static bool is_ended_so(const struct tx_job *job, const struct mr_store_job_act *act)
{
    return job->row.round == act->round && job->row.state == act->state &&
           (act->state == MR_JOBROW_FAILED || job->result_token == act->fence.token);
}

static enum mr_err end_refusal(const struct tx_job *job, const struct mr_store_job_act *act)
{
    if (job->row.round != act->round)
        return MR_STALE;
    bool fits = act->state == MR_JOBROW_FAILED ? mr_jobrow_is_live(job->row.state)
                                               : job->row.state == MR_JOBROW_REDUCING;
    return fits ? MR_OK : MR_WRONG_STATE;
}

static enum mr_err end_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_act *act = of(req);
    struct tx_job *job = tx_job_seen(tx, &act->uid);
    req->err = !job ? MR_NOT_FOUND : tx_fence(tx, &act->fence);
    if (req->err != MR_OK || is_ended_so(job, act))
        return MR_OK;
    req->err = end_refusal(job, act);
    if (req->err != MR_OK)
        return MR_OK;
    uint32_t chunks = act->state == MR_JOBROW_SUCCEEDED ? act->chunks : 0;
    struct db_value trim[] = {db_number((int64_t)job->row.no), db_number((int64_t)act->fence.token),
                              db_number(chunks)};
    MR_TRY(job_run(tx, SQL_CHUNKS_TRIM, trim, 1, NULL, NULL));
    job->result_token = act->fence.token;
    job->row.result_chunks = chunks;
    job->row.result_bytes = chunks > 0 ? act->bytes : 0;
    return job_finish(tx, job, act->state, act->reason);
}

const struct store_op op_job_end = {
    .access = DB_WRITE,
    .check = end_check,
    .locks = act_locks,
    .carry = end_carry,
    .answer = act_answer,
};
