/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outcomes. Inserting one is what counts: the first that comes for a part in a stage is the one, and the counters of
 * its job, of its range, the job's state and what becomes ready follow in the same transaction. Thread: the store's.
 */
#include "store/jobs_internal.h"

struct work {
    struct tx *tx;
    struct mr_store_parts_end *end;
    struct job_slot *slots;
    size_t n;
};

static enum mr_err check_item(const struct mr_store_end *item)
{
    if (item->bytes.len > MR_PAYLOAD_HARD_MAX)
        return MR_TOO_BIG;
    bool ok = !uid_is_zero(&item->uid) && item->index <= INT64_MAX && item->segment <= INT64_MAX &&
              item->round <= INT32_MAX && time_is_valid(item->finished_ms);
    return ok ? MR_OK : MR_INVALID;
}

/* What stands between an item and its part, as far as the job tells. */
static enum mr_err refusal(const struct tx_job *job, const struct mr_store_end *item)
{
    if (!job || item->stage >= job->row.stages_n)
        return MR_NOT_FOUND;
    /* A second task can only help: when it fails, the first one goes on. */
    bool counts = !item->failed || (item->round >= job->row.round && item->round % 2 == 0);
    return mr_jobrow_is_live(job->row.state) && counts ? MR_OK : MR_STALE;
}

/* The items that may be outcomes. */
static void make_slots(struct work *work)
{
    struct mr_store_parts_end *end = work->end;
    for (size_t i = 0; i < end->n; i++) {
        const struct mr_store_end *item = &end->items[i];
        end->results[i] = check_item(item);
        if (end->results[i] != MR_OK)
            continue;
        struct tx_job *job = tx_job_seen(work->tx, &item->uid);
        end->results[i] = refusal(job, item);
        if (end->results[i] == MR_OK)
            work->slots[work->n++] = (struct job_slot){.job = job,
                                                       .segment = item->segment,
                                                       .index = item->index,
                                                       .stage = item->stage,
                                                       .item = i,
                                                       .err = &end->results[i]};
    }
}

/* ---- the outcomes themselves ---------------------------------------------------------------- */

static enum mr_err take_accepted(size_t item, const struct db_value *row, void *arg)
{
    (void)row;
    ((bool *)arg)[item] = true;
    return MR_OK;
}

static void outcome_values(const struct work *work, const struct job_slot *slot,
                           struct db_value *values)
{
    const struct mr_store_end *item = &work->end->items[slot->item];
    int64_t finished_ms = item->finished_ms > 0 ? item->finished_ms : work->tx->now_ms;
    values[0] = db_number((int64_t)slot->segment);
    values[1] = db_number((int64_t)slot->job->row.no);
    values[2] = db_number(slot->stage);
    values[3] = db_number((int64_t)slot->index);
    values[4] = db_number(item->failed);
    values[5] = db_bytes(item->bytes);
    values[6] = db_number(finished_ms);
}

/* Leaves only those in the slots that are outcomes now. */
static enum mr_err add_outcomes(struct work *work)
{
    enum { WIDTH = 7 };
    struct mr_arena *arena = &work->tx->scratch;
    struct db_value *values = mr_arena_calloc(arena, work->n * WIDTH, sizeof *values);
    bool *accepted = mr_arena_calloc(arena, work->n, sizeof *accepted);
    size_t n = 0;
    if (!values || !accepted)
        return MR_NOMEM;
    for (size_t i = 0; i < work->n; i++) {
        if (*work->slots[i].err != MR_OK)
            continue;
        outcome_values(work, &work->slots[i], values + n * WIDTH);
        work->slots[n++] = work->slots[i];
    }
    MR_TRY(job_run(work->tx, SQL_OUTCOME_ADD, values, n, take_accepted, accepted));
    work->n = 0;
    for (size_t i = 0; i < n; i++) {
#ifdef MR_PLANT_OUTCOME_COUNTED_TWICE
        accepted[i] = true;
#endif
        if (accepted[i])
            work->slots[work->n++] = work->slots[i];
        else
            *work->slots[i].err = MR_CONFLICT;
    }
    return MR_OK;
}

/* ---- what follows --------------------------------------------------------------------------- */

static bool is_failure(const struct work *work, const struct job_slot *slot)
{
    return work->end->items[slot->item].failed;
}

/* Nothing more comes of the part. */
static bool is_last(const struct work *work, const struct job_slot *slot)
{
    return is_failure(work, slot) || slot->stage + 1 == slot->job->row.stages_n;
}

static void count_outcomes(struct work *work)
{
    for (size_t i = 0; i < work->n; i++) {
        struct job_slot *slot = &work->slots[i];
        struct mr_store_stage *stage = &slot->job->stages[slot->stage];
        job_change(work->tx, slot->job);
        (*(is_failure(work, slot) ? &stage->failed : &stage->done))++;
        /* A retry that comes to it finds nothing to submit. */
        stage->sent += job_forgives(slot->job, slot->index) ? 1 : 0;
        if (slot->job->row.state == MR_JOBROW_CREATED) {
            slot->job->row.state = MR_JOBROW_RUNNING;
            slot->job->row.started_ms = work->tx->now_ms;
        }
    }
}

static bool same_range(const struct job_slot *a, const struct job_slot *b)
{
    return a->segment == b->segment && a->job == b->job;
}

static enum mr_err count_ranges(struct work *work)
{
    enum { WIDTH = 4 };
    struct db_value *values = mr_arena_calloc(&work->tx->scratch, work->n * WIDTH, sizeof *values);
    size_t n = 0;
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0, behind; i < work->n; i = behind) {
        const struct job_slot *slot = &work->slots[i];
        int64_t ended = 0;
        for (behind = i; behind < work->n && same_range(slot, &work->slots[behind]); behind++)
            ended += is_last(work, &work->slots[behind]) ? 1 : 0;
        struct db_value *row = values + n * WIDTH;
        row[0] = db_number((int64_t)slot->job->row.no);
        row[1] = db_number((int64_t)slot->segment);
        row[2] = db_number(ended);
        row[3] = db_number(work->tx->now_ms);
        n += ended > 0 ? 1 : 0;
    }
    return job_run(work->tx, SQL_RANGE_END, values, n, NULL, NULL);
}

/* A part whose next stage does not come to it by its cursor: in a pipeline, or when that has passed. Where a retry has
 * yet to come, that puts it into the list. */
static bool becomes_ready(const struct work *work, const struct job_slot *slot)
{
    const struct tx_job *job = slot->job;
    return !is_last(work, slot) && !job_forgives(job, slot->index) &&
           (job->row.pipeline || slot->index < job->stages[slot->stage + 1].cursor);
}

static enum mr_err add_ready(struct work *work)
{
    enum { WIDTH = 6 };
    struct db_value *values = mr_arena_calloc(&work->tx->scratch, work->n * WIDTH, sizeof *values);
    size_t n = 0;
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0; i < work->n; i++) {
        const struct job_slot *slot = &work->slots[i];
        if (!becomes_ready(work, slot))
            continue;
        struct db_value *row = values + n++ * WIDTH;
        row[0] = db_number((int64_t)slot->job->row.no);
        row[1] = db_number((int64_t)++slot->job->row.ready_last);
        row[2] = db_number((int64_t)slot->stage + 1);
        row[3] = db_number((int64_t)slot->index);
        row[4] = db_number((int64_t)slot->segment);
        row[5] = db_number(slot->job->row.round);
    }
    return job_run(work->tx, SQL_READY_ADD, values, n, NULL, NULL);
}

/* Failures first, in the order of the request: the first of them is the reason. */
static enum mr_err settle(struct work *work)
{
    struct mr_store_parts_end *end = work->end;
    for (size_t i = 0; i < end->n; i++) {
        const struct mr_store_end *item = &end->items[i];
        if (end->results[i] != MR_OK || !item->failed)
            continue;
        struct tx_job *job = tx_job(work->tx, &item->uid);
        if (job->row.policy == MR_JOB_FAIL_FAST && mr_jobrow_is_live(job->row.state))
            MR_TRY(job_finish(work->tx, job, MR_JOBROW_FAILED, item->bytes));
    }
    for (size_t i = 0; i < work->n; i++) {
        if (i == 0 || work->slots[i].job != work->slots[i - 1].job)
            job_settle(work->slots[i].job);
    }
    return MR_OK;
}

static enum mr_err end_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_end *end = store_request(req, mr_store_parts_end);
    struct work work = {.tx = tx, .end = end};
    work.slots = mr_arena_calloc(&tx->scratch, end->n, sizeof *work.slots);
    if (!work.slots)
        return MR_NOMEM;
    make_slots(&work);
    MR_TRY(job_slots_find(tx, work.slots, work.n));
    MR_TRY(add_outcomes(&work));
    count_outcomes(&work);
    MR_TRY(count_ranges(&work));
    MR_TRY(add_ready(&work));
    return settle(&work);
}

static enum mr_err end_answer(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_end *end = store_request(req, mr_store_parts_end);
    struct tx_job **jobs = mr_arena_calloc(&tx->scratch, end->n, sizeof *jobs);
    if (!jobs)
        return MR_NOMEM;
    for (size_t i = 0; i < end->n; i++)
        jobs[i] = end->results[i] == MR_OK ? tx_job(tx, &end->items[i].uid) : NULL;
    return job_tell(jobs, end->n, &req->arena, &end->changed);
}

static enum mr_err end_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_parts_end *end = store_request(req, mr_store_parts_end);
    for (size_t i = 0; i < end->n; i++)
        MR_TRY(job_lock_uid(locks, &end->items[i].uid));
    return MR_OK;
}

static enum mr_err end_check(const struct mr_store_req *req)
{
    const struct mr_store_parts_end *end = store_request(req, mr_store_parts_end);
    size_t sum = 0;
    if (end->n > MR_STORE_BATCH_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < end->n; i++) {
        size_t len = end->items[i].bytes.len;
        sum += len <= MR_PAYLOAD_HARD_MAX ? len : 0;
    }
    return sum > MR_STORE_LOAD_BYTES_MAX ? MR_TOO_BIG : MR_OK;
}

static size_t end_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_end)->n;
}

static void end_fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_parts_end *end = store_request(req, mr_store_parts_end);
    end->changed = (struct mr_store_jobs_changed){0};
    for (size_t i = 0; end->n <= MR_STORE_BATCH_MAX && i < end->n; i++)
        end->results[i] = err;
}

const struct store_op op_parts_end = {
    .access = DB_WRITE,
    .cost = end_cost,
    .check = end_check,
    .locks = end_locks,
    .carry = end_carry,
    .answer = end_answer,
    .fail = end_fail,
};
