/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in a transaction: their locks, their rows, and what is written of them. Thread: the store's. */
#include "store/jobs_internal.h"

#include <stdlib.h>

enum { COUNTER_BYTES = 8, STAGE_COUNTERS = 5 };

/* ---- rows ----------------------------------------------------------------------------------- */

enum mr_err row_job(const struct db_value *row, struct mr_arena *arena, struct tx_job *job)
{
    struct mr_store_job *r = &job->row;
    int64_t state = row[13].number, stages = row[16].number;
    if (state <= MR_JOBROW_NONE || state >= MR_JOBROW_STATE_COUNT || stages < 1 ||
        stages > MR_JOB_STAGES_MAX || row[4].number < 0 || row[4].number >= MR_JOB_POLICY_COUNT)
        return MR_DAMAGED;
    MR_TRY(row_uid(row[1].bytes, &r->uid));
    MR_TRY(mr_arena_copy(arena, row[2].bytes, &r->name));
    MR_TRY(mr_arena_copy(arena, row[3].bytes, &r->queue));
    MR_TRY(mr_arena_copy(arena, row[14].bytes, &r->reason));
    r->no = (uint64_t)row[0].number;
    r->policy = (enum mr_job_policy)row[4].number;
    r->pipeline = row[5].number != 0;
    r->priority_ms = row[6].number;
    r->order_ms = row[7].number;
    r->total = (uint64_t)row[8].number;
    r->first_segment = (uint64_t)row[9].number;
    r->last_segment = (uint64_t)row[10].number;
    r->created_ms = row[11].number;
    r->version = (uint64_t)row[12].number;
    r->state = (enum mr_jobrow_state)state;
    r->round = (uint32_t)row[15].number;
    r->stages_n = (size_t)stages;
    r->ready_cursor = (uint64_t)row[17].number;
    r->ready_last = (uint64_t)row[18].number;
    r->started_ms = row[19].number;
    r->finished_ms = row[20].number;
    r->changed_ms = row[21].number;
    r->result_bytes = (uint64_t)row[22].number;
    r->result_chunks = (uint32_t)row[23].number;
    job->result_token = (uint64_t)row[24].number;
    job->retention_ms = row[25].number;
    job->loaded_ms = row[26].number;
    r->retry_next = (uint64_t)row[27].number;
    job->uid = r->uid;
    job->there = true;
    job->stages = mr_arena_calloc(arena, r->stages_n, sizeof *job->stages);
    r->stages = job->stages;
    return job->stages ? MR_OK : MR_NOMEM;
}

struct stages_take {
    struct tx_job *const *jobs;
};

static enum mr_err take_stage(size_t item, const struct db_value *row, void *arg)
{
    struct tx_job *job = ((struct stages_take *)arg)->jobs[item];
    if (row[0].number < 0 || (uint64_t)row[0].number >= job->row.stages_n)
        return MR_DAMAGED;
    job->stages[row[0].number] = (struct mr_store_stage){
        .done = (uint64_t)row[1].number,
        .failed = (uint64_t)row[2].number,
        .sent = (uint64_t)row[3].number,
        .cursor = (uint64_t)row[4].number,
        .sent_ms = row[5].number,
    };
    job->stages_there |= 1u << row[0].number;
    return MR_OK;
}

/* Those of jobs that have stages: from their commit on. */
static enum mr_err read_stages(struct tx *tx, struct tx_job *jobs, size_t n)
{
    struct tx_job **asked = mr_arena_calloc(&tx->scratch, n, sizeof *asked);
    struct db_value *values = mr_arena_calloc(&tx->scratch, n, sizeof *values);
    size_t asked_n = 0;
    if (!asked || !values)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!jobs[i].there || jobs[i].row.state == MR_JOBROW_LOADING)
            continue;
        asked[asked_n] = &jobs[i];
        values[asked_n++] = db_number((int64_t)jobs[i].row.no);
    }
    struct stages_take take = {asked};
    return job_run(tx, SQL_STAGES, values, asked_n, take_stage, &take);
}

static bool has_lost_stages(const struct tx_job *job)
{
    return job->there && job->row.state > MR_JOBROW_LOADING && job->row.state < MR_JOBROW_DROPPED &&
           job->stages_there != (1u << job->row.stages_n) - 1;
}

void job_totals(struct tx_job *job)
{
    uint64_t left = job->row.total;
    for (size_t i = 0; i < job->row.stages_n; i++) {
        job->stages[i].total = left;
        left -= job->stages[i].failed < left ? job->stages[i].failed : left;
    }
}

enum mr_err jobs_read_stages(struct tx *tx, struct tx_job *jobs, size_t n)
{
    MR_TRY(read_stages(tx, jobs, n));
    for (size_t i = 0; i < n; i++) {
        if (has_lost_stages(&jobs[i]))
            MR_TRY(job_recount(tx, &jobs[i]));
        if (jobs[i].there)
            job_totals(&jobs[i]);
    }
    return MR_OK;
}

struct one_take {
    struct mr_arena *arena;
    struct tx_job *job;
};

static enum mr_err take_one(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct one_take *take = arg;
    return row_job(row, take->arena, take->job);
}

static bool is_seen(const struct tx_job *job)
{
    return job->there && job->row.state > MR_JOBROW_LOADING && job->row.state < MR_JOBROW_DROPPED;
}

enum mr_err job_read(struct tx *tx, const struct mr_uuid *uid, struct mr_arena *arena,
                     struct tx_job **ret_job)
{
    struct tx_job *job = mr_arena_calloc(&tx->scratch, 1, sizeof *job);
    if (!job)
        return MR_NOMEM;
    struct one_take take = {arena, job};
    struct db_value value = db_bytes(uid_slice(uid));
    *ret_job = NULL;
    MR_TRY(tx_jobs_write(tx));
    MR_TRY(job_run(tx, SQL_JOB_BY_UID, &value, 1, take_one, &take));
    if (!is_seen(job))
        return MR_OK;
    MR_TRY(jobs_read_stages(tx, job, 1));
    *ret_job = job;
    return MR_OK;
}

/* ---- locks ---------------------------------------------------------------------------------- */

enum mr_err job_lock_uid(struct tx_locks *locks, const struct mr_uuid *uid)
{
    return tx_names_add(&locks->jobs, uid_slice(uid));
}

static enum mr_err take_locked(size_t item, const struct db_value *row, void *arg)
{
    struct tx *tx = arg;
    return row_job(row, &tx->scratch, &tx->jobs[item]);
}

static enum mr_err take_segment(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct tx *tx = arg;
    tx->segment = (uint64_t)row[0].number;
    tx->segment_parts = (uint64_t)row[1].number;
    return MR_OK;
}

static enum mr_err take_end(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    *(uint64_t *)arg = (uint64_t)row[0].number;
    return MR_OK;
}

/* Who holds the row of the last segment is the only one who makes the next. */
static enum mr_err lock_segment(struct tx *tx)
{
    struct db_value none = {0};
    uint64_t end = 0;
    do {
        MR_TRY(job_run(tx, SQL_SEGMENT_LOCK, &none, 1, take_segment, tx));
        MR_TRY(job_run(tx, SQL_SEGMENT_END, &none, 1, take_end, &end));
    } while (tx->segment != end);
    return end > 0 ? MR_OK : MR_DAMAGED;
}

enum mr_err tx_jobs_lock(struct tx *tx, struct tx_locks *locks)
{
    if (locks->segment)
        MR_TRY(lock_segment(tx));
    size_t n = locks->jobs.n;
    struct db_value *values = mr_arena_calloc(&tx->scratch, n, sizeof *values);
    tx->jobs = mr_arena_calloc(&tx->scratch, n, sizeof *tx->jobs);
    if (!values || !tx->jobs)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        values[i] = db_bytes(locks->jobs.names[i]);
        MR_TRY(row_uid(locks->jobs.names[i], &tx->jobs[i].uid));
    }
    tx->jobs_n = n;
    MR_TRY(job_run(tx, SQL_JOB_LOCK, values, n, take_locked, tx));
    return read_stages(tx, tx->jobs, n);
}

/* What has lost its counters gets them back before it is looked at. The clock is known by now. */
enum mr_err tx_jobs_mend(struct tx *tx)
{
    for (size_t i = 0; i < tx->jobs_n; i++) {
        struct tx_job *job = &tx->jobs[i];
        if (has_lost_stages(job))
            MR_TRY(job_refill(tx, job));
        if (job->there)
            job_totals(job);
    }
    return MR_OK;
}

static int compare_to_job(const void *uid, const void *job)
{
    return memcmp(uid, &((const struct tx_job *)job)->uid, sizeof(struct mr_uuid));
}

struct tx_job *tx_job(struct tx *tx, const struct mr_uuid *uid)
{
    struct tx_job *job = tx->jobs_n > 0
                             ? bsearch(uid, tx->jobs, tx->jobs_n, sizeof *tx->jobs, compare_to_job)
                             : NULL;
    mr_assert(job);
    return job;
}

struct tx_job *tx_job_seen(struct tx *tx, const struct mr_uuid *uid)
{
    struct tx_job *job = tx_job(tx, uid);
    return is_seen(job) ? job : NULL;
}

/* ---- changes -------------------------------------------------------------------------------- */

void job_change(struct tx *tx, struct tx_job *job)
{
    job->changed = true;
    if (job->row.state == MR_JOBROW_LOADING || job->versioned)
        return;
    job->versioned = true;
    job->row.version++;
    job->row.changed_ms = tx->now_ms;
}

enum mr_err job_finish(struct tx *tx, struct tx_job *job, enum mr_jobrow_state state,
                       struct mr_slice reason)
{
    job_change(tx, job);
    job->row.state = state;
    job->row.finished_ms = tx->now_ms;
    MR_TRY(text_copy(&tx->scratch, reason, MR_STORE_JOB_REASON_MAX, &job->row.reason));
    struct db_value values[] = {db_number((int64_t)job->row.no), db_number(tx->now_ms)};
    return job_run(tx, SQL_RANGES_CLOSE, values, 1, NULL, NULL);
}

void job_settle(struct tx_job *job)
{
    job_totals(job);
    if (job->row.state == MR_JOBROW_RUNNING && !mr_store_job_retrying(&job->row) &&
        mr_store_job_done(&job->row) + mr_store_job_failed(&job->row) == job->row.total)
        job->row.state = MR_JOBROW_REDUCING;
}

static int64_t keep_until(const struct tx_job *job)
{
    if (!mr_jobrow_is_ended(job->row.state) || job->retention_ms == 0)
        return MR_STORE_NEVER_MS;
    return job->row.finished_ms + job->retention_ms;
}

static void set_values(const struct tx_job *job, struct db_value *values)
{
    const struct mr_store_job *r = &job->row;
    struct db_value row[] = {
        db_number((int64_t)r->no),
        db_number(r->order_ms),
        db_number((int64_t)r->total),
        db_number((int64_t)r->first_segment),
        db_number((int64_t)r->last_segment),
        db_number(r->created_ms),
        db_number((int64_t)r->version),
        db_number(r->state),
        db_bytes(r->reason),
        db_number(r->round),
        db_number((int64_t)r->ready_cursor),
        db_number((int64_t)r->ready_last),
        db_number(r->started_ms),
        db_number(r->finished_ms),
        db_number(r->changed_ms),
        db_number((int64_t)r->result_bytes),
        db_number(r->result_chunks),
        db_number((int64_t)job->result_token),
        db_number(keep_until(job)),
        db_number(job->loaded_ms),
        db_number((int64_t)r->retry_next),
    };
    memcpy(values, row, sizeof row);
}

static void stage_values(const struct tx_job *job, size_t stage, struct db_value *values)
{
    const struct mr_store_stage *s = &job->stages[stage];
    struct db_value row[] = {
        db_number((int64_t)job->row.no), db_number((int64_t)stage),   db_number((int64_t)s->done),
        db_number((int64_t)s->failed),   db_number((int64_t)s->sent), db_number((int64_t)s->cursor),
        db_number(s->sent_ms),
    };
    memcpy(values, row, sizeof row);
}

static enum mr_err counters(const struct tx_job *job, struct mr_arena *arena,
                            struct mr_slice *ret_bytes)
{
    size_t len = job->row.stages_n * STAGE_COUNTERS * COUNTER_BYTES;
    uint8_t *bytes = mr_arena_alloc(arena, len);
    if (!bytes)
        return MR_NOMEM;
    uint8_t *p = bytes;
    for (size_t i = 0; i < job->row.stages_n; i++) {
        const struct mr_store_stage *s = &job->stages[i];
        uint64_t numbers[STAGE_COUNTERS] = {s->done, s->failed, s->sent, s->cursor,
                                            (uint64_t)s->sent_ms};
        for (size_t j = 0; j < STAGE_COUNTERS; j++, p += COUNTER_BYTES)
            mr_store64(p, numbers[j]);
    }
    *ret_bytes = mr_slice_make(bytes, len);
    return MR_OK;
}

enum mr_err job_counters_read(struct mr_slice bytes, struct tx_job *job)
{
    if (bytes.len != job->row.stages_n * STAGE_COUNTERS * COUNTER_BYTES)
        return MR_DAMAGED;
    const uint8_t *p = bytes.data;
    for (size_t i = 0; i < job->row.stages_n; i++, p += STAGE_COUNTERS * COUNTER_BYTES)
        job->stages[i] = (struct mr_store_stage){
            .done = mr_load64(p),
            .failed = mr_load64(p + COUNTER_BYTES),
            .sent = mr_load64(p + 2 * COUNTER_BYTES),
            .cursor = mr_load64(p + 3 * COUNTER_BYTES),
            .sent_ms = (int64_t)mr_load64(p + 4 * COUNTER_BYTES),
        };
    job_totals(job);
    return MR_OK;
}

static enum mr_err event_values(struct tx *tx, const struct tx_job *job, struct db_value *values)
{
    const struct mr_store_job *r = &job->row;
    struct mr_slice bytes;
    MR_TRY(counters(job, &tx->scratch, &bytes));
    struct db_value row[] = {
        db_number((int64_t)r->no),   db_number((int64_t)r->version),
        db_number(r->state),         db_bytes(r->reason),
        db_number(r->round),         db_bytes(bytes),
        db_number(r->started_ms),    db_number(r->finished_ms),
        db_number(r->changed_ms),    db_number((int64_t)r->result_bytes),
        db_number(r->result_chunks),
    };
    memcpy(values, row, sizeof row);
    return MR_OK;
}

/* Rows of the statements of a write; jobs in the order of their numbers need not be told apart. */
struct write {
    struct db_value *jobs, *stages, *events, *trims;
    size_t jobs_n, stages_n, events_n, trims_n;
};

enum { JOB_WIDTH = 21, STAGE_WIDTH = 7, EVENT_WIDTH = 11, TRIM_WIDTH = 2 };

static enum mr_err write_init(struct write *w, struct tx *tx, size_t jobs)
{
    struct mr_arena *arena = &tx->scratch;
    size_t value = sizeof(struct db_value);
    *w = (struct write){
        .jobs = mr_arena_calloc(arena, jobs * JOB_WIDTH, value),
        .stages = mr_arena_calloc(arena, jobs * MR_JOB_STAGES_MAX * STAGE_WIDTH, value),
        .events = mr_arena_calloc(arena, jobs * EVENT_WIDTH, value),
        .trims = mr_arena_calloc(arena, jobs * TRIM_WIDTH, value),
    };
    return w->jobs && w->stages && w->events && w->trims ? MR_OK : MR_NOMEM;
}

static enum mr_err write_add(struct write *w, struct tx *tx, struct tx_job *job)
{
    set_values(job, w->jobs + w->jobs_n++ * JOB_WIDTH);
    if (!job->versioned)
        return MR_OK;
    for (size_t i = 0; i < job->row.stages_n; i++)
        stage_values(job, i, w->stages + w->stages_n++ * STAGE_WIDTH);
    MR_TRY(event_values(tx, job, w->events + w->events_n++ * EVENT_WIDTH));
    if (job->row.version > MR_STORE_EVENTS_KEPT) {
        struct db_value *trim = w->trims + w->trims_n++ * TRIM_WIDTH;
        trim[0] = db_number((int64_t)job->row.no);
        trim[1] = db_number((int64_t)(job->row.version - MR_STORE_EVENTS_KEPT));
    }
    return MR_OK;
}

enum mr_err tx_jobs_write(struct tx *tx)
{
    size_t changed = 0;
    for (size_t i = 0; i < tx->jobs_n; i++)
        changed += tx->jobs[i].changed ? 1 : 0;
    if (changed == 0)
        return MR_OK;
    struct write w;
    MR_TRY(write_init(&w, tx, changed));
    for (size_t i = 0; i < tx->jobs_n; i++) {
        if (!tx->jobs[i].changed)
            continue;
        tx->jobs[i].changed = false;
        MR_TRY(write_add(&w, tx, &tx->jobs[i]));
    }
    MR_TRY(job_run(tx, SQL_JOB_SET, w.jobs, w.jobs_n, NULL, NULL));
    MR_TRY(job_run(tx, SQL_STAGE_PUT, w.stages, w.stages_n, NULL, NULL));
    MR_TRY(job_run(tx, SQL_EVENT_PUT, w.events, w.events_n, NULL, NULL));
    return job_run(tx, SQL_EVENT_TRIM, w.trims, w.trims_n, NULL, NULL);
}

/* ---- answers -------------------------------------------------------------------------------- */

enum mr_err job_copy(const struct tx_job *job, struct mr_arena *arena, struct mr_store_job *ret_job)
{
    struct mr_store_job copy = job->row;
    size_t size = copy.stages_n * sizeof *copy.stages;
    struct mr_store_stage *stages = mr_arena_alloc(arena, size);
    if (!stages)
        return MR_NOMEM;
    memcpy(stages, job->stages, size);
    copy.stages = stages;
    MR_TRY(mr_arena_copy(arena, job->row.name, &copy.name));
    MR_TRY(mr_arena_copy(arena, job->row.queue, &copy.queue));
    MR_TRY(mr_arena_copy(arena, job->row.reason, &copy.reason));
    *ret_job = copy;
    return MR_OK;
}

enum mr_err job_tell(struct tx_job *const *jobs, size_t n, struct mr_arena *arena,
                     struct mr_store_jobs_changed *ret_changed)
{
    *ret_changed = (struct mr_store_jobs_changed){0};
    size_t distinct = 0;
    for (size_t i = 0; i < n; i++) {
        if (jobs[i] && !jobs[i]->told) {
            jobs[i]->told = true;
            distinct++;
        }
    }
    ret_changed->jobs = mr_arena_calloc(arena, distinct, sizeof *ret_changed->jobs);
    if (!ret_changed->jobs)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!jobs[i] || !jobs[i]->told)
            continue;
        jobs[i]->told = false;
        MR_TRY(job_copy(jobs[i], arena, &ret_changed->jobs[ret_changed->n++]));
    }
    return MR_OK;
}
