/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job is loaded: its row, then parts, in order, into the last segment. Nobody sees it before its
 * commit. Segments roll here, with the parts that fill one. Thread: the store's.
 */
#include "store/jobs_internal.h"

/* ---- JOB_BEGIN ------------------------------------------------------------------------------ */

static enum mr_err begin_check(const struct mr_store_req *req)
{
    const struct mr_store_job_begin *begin = store_request(req, mr_store_job_begin);
    if (begin->definition.len > MR_STORE_DEFINITION_MAX || begin->name.len > MR_NAME_MAX)
        return MR_TOO_BIG;
    if (begin->name.len > 0)
        MR_TRY(text_check(begin->name, MR_NAME_MAX));
    MR_TRY(mr_name_check(begin->queue));
    bool ok = !uid_is_zero(&begin->uid) && begin->stages_n >= 1 &&
              begin->stages_n <= MR_JOB_STAGES_MAX && (unsigned)begin->policy < MR_JOB_POLICY_COUNT;
    bool times_ok = begin->retention_ms >= 0 && begin->retention_ms <= TTL_MAX_MS &&
                    begin->priority_ms >= -TTL_MAX_MS && begin->priority_ms <= TTL_MAX_MS;
    return ok && times_ok ? MR_OK : MR_INVALID;
}

static enum mr_err begin_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    return job_lock_uid(locks, &store_request(req, mr_store_job_begin)->uid);
}

static enum mr_err take_no(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    *(uint64_t *)arg = (uint64_t)row[0].number;
    return MR_OK;
}

/* As the row is that was just made. */
static enum mr_err begin_row(struct tx *tx, const struct mr_store_job_begin *begin,
                             struct tx_job *job)
{
    job->row = (struct mr_store_job){
        .uid = begin->uid,
        .no = job->row.no,
        .policy = begin->policy,
        .pipeline = begin->pipeline,
        .priority_ms = begin->priority_ms,
        .state = MR_JOBROW_LOADING,
        .stages_n = begin->stages_n,
        .retry_next = MR_STORE_RETRY_NONE,
    };
    job->retention_ms = begin->retention_ms;
    job->loaded_ms = tx->now_ms;
    job->stages = mr_arena_calloc(&tx->scratch, begin->stages_n, sizeof *job->stages);
    job->row.stages = job->stages;
    job->there = true;
    MR_TRY(mr_arena_copy(&tx->scratch, begin->name, &job->row.name));
    MR_TRY(mr_arena_copy(&tx->scratch, begin->queue, &job->row.queue));
    return job->stages ? MR_OK : MR_NOMEM;
}

static enum mr_err begin_carry(struct tx *tx, struct mr_store_req *req)
{
    const struct mr_store_job_begin *begin = store_request(req, mr_store_job_begin);
    struct tx_job *job = tx_job(tx, &begin->uid);
    if (job->there) {
        req->err = job->row.state == MR_JOBROW_LOADING ? MR_OK : MR_CONFLICT;
        if (req->err == MR_OK) {
            job->loaded_ms = tx->now_ms;
            job_change(tx, job);
        }
        return MR_OK;
    }
    struct db_value row[] = {
        db_bytes(uid_slice(&begin->uid)),
        db_bytes(begin->name),
        db_bytes(begin->queue),
        db_number(begin->policy),
        db_number(begin->pipeline),
        db_number(begin->priority_ms),
        db_number(begin->retention_ms),
        db_number((int64_t)begin->stages_n),
        db_number(tx->now_ms),
    };
    MR_TRY(job_run(tx, SQL_JOB_ADD, row, 1, take_no, &job->row.no));
    struct db_value definition[] = {db_number((int64_t)job->row.no), db_bytes(begin->definition)};
    MR_TRY(job_run(tx, SQL_DEFINITION_ADD, definition, 1, NULL, NULL));
    return begin_row(tx, begin, job);
}

const struct store_op op_job_begin = {
    .access = DB_WRITE,
    .check = begin_check,
    .locks = begin_locks,
    .carry = begin_carry,
};

/* ---- segments ------------------------------------------------------------------------------- */

static enum mr_err write_segment(struct tx *tx)
{
    struct db_value values[] = {db_number((int64_t)tx->segment),
                                db_number((int64_t)tx->segment_parts)};
    return job_run(tx, SQL_SEGMENT_SET, values, 1, NULL, NULL);
}

/* The last one is full: the next is made, with its tables. All of it is there with this transaction, or nothing. */
static enum mr_err roll(struct tx *tx)
{
    const struct db_ops *ops = tx->db->ops;
    tx->segment++;
    tx->segment_parts = 0;
    struct db_value values[] = {db_number((int64_t)tx->segment), db_number(tx->now_ms)};
    MR_TRY(job_run(tx, SQL_SEGMENT_ADD, values, 1, NULL, NULL));
    return ops->segment_make ? ops->segment_make(tx->db, tx->segment) : MR_OK;
}

/* ---- PARTS_ADD ------------------------------------------------------------------------------ */

static enum mr_err add_check(const struct mr_store_req *req)
{
    const struct mr_store_parts_add *add = store_request(req, mr_store_parts_add);
    size_t sum = 0;
    if (add->n > MR_STORE_BATCH_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < add->n; i++) {
        sum += add->inputs[i].len;
        if (add->inputs[i].len > MR_PAYLOAD_HARD_MAX || sum > MR_STORE_LOAD_BYTES_MAX)
            return MR_TOO_BIG;
    }
    return add->n > 0 && add->first <= INT64_MAX - add->n ? MR_OK : MR_INVALID;
}

static size_t add_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_add)->n;
}

static enum mr_err add_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    locks->segment = true;
    return job_lock_uid(locks, &store_request(req, mr_store_parts_add)->uid);
}

/* So many of them go into the segment as it is. */
static enum mr_err add_to_segment(struct tx *tx, struct tx_job *job, const struct mr_slice *inputs,
                                  size_t n)
{
    enum { WIDTH = 4 };
    struct db_value *values = mr_arena_calloc(&tx->scratch, n * WIDTH, sizeof *values);
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        struct db_value *row = values + i * WIDTH;
        row[0] = db_number((int64_t)tx->segment);
        row[1] = db_number((int64_t)job->row.no);
        row[2] = db_number((int64_t)(job->row.total + i));
        row[3] = db_bytes(inputs[i]);
    }
    struct db_value range[] = {db_number((int64_t)job->row.no), db_number((int64_t)tx->segment),
                               db_number((int64_t)job->row.total), db_number((int64_t)n)};
    MR_TRY(job_run(tx, SQL_PART_ADD, values, n, NULL, NULL));
    MR_TRY(job_run(tx, SQL_RANGE_PUT, range, 1, NULL, NULL));
    if (job->row.first_segment == 0)
        job->row.first_segment = tx->segment;
    job->row.last_segment = tx->segment;
    job->row.total += n;
    tx->segment_parts += n;
    return MR_OK;
}

static enum mr_err add_parts(struct tx *tx, struct tx_job *job, const struct mr_slice *inputs,
                             size_t n, uint64_t full)
{
    while (n > 0) {
        /* It may be fuller than that already, by another setting. */
        uint64_t room = tx->segment_parts < full ? full - tx->segment_parts : 0;
        size_t now = n < room ? n : (size_t)room;
        if (now > 0)
            MR_TRY(add_to_segment(tx, job, inputs, now));
        MR_TRY(write_segment(tx));
        if (tx->segment_parts >= full)
            MR_TRY(roll(tx));
        inputs += now;
        n -= now;
    }
    return MR_OK;
}

static enum mr_err add_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_add *add = store_request(req, mr_store_parts_add);
    struct tx_job *job = tx_job(tx, &add->uid);
    uint64_t total = job->row.total, behind = add->first + add->n;
    add->end = tx->segment;
    add->total = total;
    if (!job->there || job->row.state == MR_JOBROW_DROPPED)
        req->err = MR_NOT_FOUND;
    else if (add->first > total)
        req->err = MR_INVALID;
    else if (behind > total && job->row.state != MR_JOBROW_LOADING)
        req->err = MR_WRONG_STATE;
    if (req->err != MR_OK || behind <= total)
        return MR_OK;
    size_t there = (size_t)(total - add->first);
    uint64_t full = add->segment_parts > 0 ? add->segment_parts : MR_STORE_SEGMENT_PARTS;
    job->loaded_ms = tx->now_ms;
    job_change(tx, job);
    MR_TRY(add_parts(tx, job, add->inputs + there, add->n - there, full));
    add->total = job->row.total;
    add->end = tx->segment;
    return MR_OK;
}

const struct store_op op_parts_add = {
    .access = DB_WRITE,
    .cost = add_cost,
    .check = add_check,
    .locks = add_locks,
    .carry = add_carry,
};
