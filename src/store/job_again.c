/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that were submitted and are to be submitted again: into the ready list. Thread: the store's. */
#include "store/jobs_internal.h"

/* What is known of the part of a slot. */
struct known {
    bool has_outcome;
    bool waits;      /* in the ready list, with the task that it had */
    bool has_second; /* in this round */
    bool second_waits;
};

struct work {
    struct tx *tx;
    struct mr_store_parts_again *again;
    struct tx_job *job;
    struct job_slot *slots;
    struct known *known;
    size_t n;
};

static struct mr_store_parts_again *of(struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_again);
}

static enum mr_err again_check(const struct mr_store_req *req)
{
    const struct mr_store_parts_again *again = store_request(req, mr_store_parts_again);
    if (uid_is_zero(&again->uid))
        return MR_INVALID;
    return again->n > MR_STORE_BATCH_MAX ? MR_TOO_BIG : fence_check(&again->fence);
}

static enum mr_err again_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_parts_again *again = store_request(req, mr_store_parts_again);
    if (again->fence.lease.len > 0)
        MR_TRY(tx_names_add(&locks->fences, again->fence.lease));
    return job_lock_uid(locks, &again->uid);
}

static size_t again_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_again)->n;
}

static void again_fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_parts_again *again = of(req);
    again->changed = (struct mr_store_jobs_changed){0};
    for (size_t i = 0; again->n <= MR_STORE_BATCH_MAX && i < again->n; i++)
        again->results[i] = err;
}

static enum mr_err check_item(const struct work *work, const struct mr_store_again *item)
{
    if (item->index > INT64_MAX || item->segment > INT64_MAX || item->kind > MR_AGAIN_SECOND)
        return MR_INVALID;
    const struct tx_job *job = work->job;
    if (!job || item->stage >= job->row.stages_n)
        return MR_NOT_FOUND;
    bool passed =
        (job->row.pipeline && item->stage > 0) || item->index < job->stages[item->stage].cursor;
    bool fits = job->row.state == MR_JOBROW_RUNNING && job->row.round == work->again->round &&
                !mr_store_job_retrying(&job->row);
    return fits && passed ? MR_OK : MR_STALE;
}

/* ---- what is there -------------------------------------------------------------------------- */

static enum mr_err take_outcome(size_t item, const struct db_value *row, void *arg)
{
    (void)row;
    ((struct work *)arg)->known[item].has_outcome = true;
    return MR_OK;
}

static enum mr_err take_ready(size_t item, const struct db_value *row, void *arg)
{
    struct work *work = arg;
    struct known *known = &work->known[item];
    bool waits = (uint64_t)row[0].number > work->job->row.ready_cursor;
    bool second = row[1].number == (int64_t)work->job->row.round + 1;
    known->waits = known->waits || (waits && !second);
    known->has_second = known->has_second || second;
    known->second_waits = known->second_waits || (waits && second);
    return MR_OK;
}

static enum mr_err look(struct work *work)
{
    enum { OUTCOME = 4, READY = 3 };
    struct mr_arena *arena = &work->tx->scratch;
    struct db_value *outcomes = mr_arena_calloc(arena, work->n * OUTCOME, sizeof *outcomes);
    struct db_value *ready = mr_arena_calloc(arena, work->n * READY, sizeof *ready);
    work->known = mr_arena_calloc(arena, work->n, sizeof *work->known);
    if (!outcomes || !ready || !work->known)
        return MR_NOMEM;
    for (size_t i = 0; i < work->n; i++) {
        struct db_value no = db_number((int64_t)work->job->row.no);
        struct db_value stage = db_number(work->slots[i].stage);
        struct db_value index = db_number((int64_t)work->slots[i].index);
        struct db_value outcome[] = {db_number((int64_t)work->slots[i].segment), no, stage, index};
        struct db_value at[] = {no, stage, index};
        memcpy(outcomes + i * OUTCOME, outcome, sizeof outcome);
        memcpy(ready + i * READY, at, sizeof at);
    }
    MR_TRY(job_run_by_segment(work->tx, SQL_OUTCOME_AT, outcomes, work->n, take_outcome, work));
    return job_run(work->tx, SQL_READY_AT, ready, work->n, take_ready, work);
}

/* ---- what is done --------------------------------------------------------------------------- */

static enum mr_err decide(const struct known *known, enum mr_again_kind kind, bool *ret_adds)
{
    *ret_adds = false;
    if (known->has_outcome)
        return MR_STALE;
    if (kind == MR_AGAIN_SAME) {
        *ret_adds = !known->waits;
        return MR_OK;
    }
    if (known->has_second)
        return known->second_waits ? MR_OK : MR_CONFLICT;
    *ret_adds = !known->waits;
    return known->waits ? MR_STALE : MR_OK;
}

static enum mr_err write(struct work *work)
{
    enum { WIDTH = 6 };
    struct db_value *values = mr_arena_calloc(&work->tx->scratch, work->n * WIDTH, sizeof *values);
    struct mr_store_job *row = &work->job->row;
    size_t n = 0;
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0; i < work->n; i++) {
        const struct job_slot *slot = &work->slots[i];
        bool adds = false, second = work->again->items[slot->item].kind == MR_AGAIN_SECOND;
        if (*slot->err == MR_OK)
            *slot->err = decide(&work->known[i], work->again->items[slot->item].kind, &adds);
        if (*slot->err != MR_OK || !adds)
            continue;
        struct db_value ready[] = {
            db_number((int64_t)row->no),
            db_number((int64_t)++row->ready_last),
            db_number(slot->stage),
            db_number((int64_t)slot->index),
            db_number((int64_t)slot->segment),
            db_number((int64_t)row->round + (second ? 1 : 0)),
        };
        memcpy(values + n++ * WIDTH, ready, sizeof ready);
        struct mr_store_stage *stage = &work->job->stages[slot->stage];
        stage->sent -= !second && stage->sent > 0 ? 1 : 0;
    }
    if (n > 0)
        job_change(work->tx, work->job);
    return job_run(work->tx, SQL_READY_ADD, values, n, NULL, NULL);
}

static enum mr_err again_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_again *again = of(req);
    struct work work = {.tx = tx, .again = again, .job = tx_job_seen(tx, &again->uid)};
    req->err = tx_fence(tx, &again->fence);
    if (req->err != MR_OK)
        return MR_OK;
    work.slots = mr_arena_calloc(&tx->scratch, again->n, sizeof *work.slots);
    if (!work.slots)
        return MR_NOMEM;
    for (size_t i = 0; i < again->n; i++) {
        const struct mr_store_again *item = &again->items[i];
        again->results[i] = check_item(&work, item);
        if (again->results[i] == MR_OK)
            work.slots[work.n++] = (struct job_slot){.job = work.job,
                                                     .segment = item->segment,
                                                     .index = item->index,
                                                     .stage = item->stage,
                                                     .item = i,
                                                     .err = &again->results[i]};
    }
    if (work.n == 0)
        return MR_OK;
    MR_TRY(job_slots_find(tx, work.slots, work.n));
    MR_TRY(look(&work));
    return write(&work);
}

static enum mr_err again_answer(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_again *again = of(req);
    struct tx_job *job = NULL;
    for (size_t i = 0; i < again->n && !job; i++)
        job = again->results[i] == MR_OK ? tx_job(tx, &again->uid) : NULL;
    return job_tell(&job, 1, &req->arena, &again->changed);
}

const struct store_op op_parts_again = {
    .access = DB_WRITE,
    .cost = again_cost,
    .check = again_check,
    .locks = again_locks,
    .carry = again_carry,
    .answer = again_answer,
    .fail = again_fail,
};
