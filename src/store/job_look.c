/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: looking. Thread: the store's. */
#include "store/jobs_internal.h"

/* What people see. */
#define SEEN (MR_JOBROW_LIVE | MR_JOBROW_ENDED)

/* ---- pages of jobs -------------------------------------------------------------------------- */

/* Rows as they come; their slices are the answer's. */
struct jobs {
    struct mr_arena *arena;
    struct tx_job *rows;
    size_t n, max;
    bool more;
};

static enum mr_err jobs_init(struct jobs *jobs, struct tx *tx, struct mr_arena *arena, size_t max)
{
    *jobs = (struct jobs){.arena = arena, .max = max};
    jobs->rows = mr_arena_calloc(&tx->scratch, max, sizeof *jobs->rows);
    return jobs->rows ? MR_OK : MR_NOMEM;
}

static enum mr_err take_job(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct jobs *jobs = arg;
    if (jobs->n == jobs->max) {
        jobs->more = true;
        return DB_ENOUGH;
    }
    return row_job(row, jobs->arena, &jobs->rows[jobs->n++]);
}

static enum mr_err take_bytes(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct jobs *jobs = arg;
    return mr_arena_copy(jobs->arena, row[0].bytes, &jobs->rows[jobs->n].row.definition);
}

/* One by one: big ones end a page. */
static enum mr_err read_definitions(struct tx *tx, struct jobs *jobs)
{
    size_t n = jobs->n;
    for (jobs->n = 0; jobs->n < n; jobs->n++) {
        struct db_value no = db_number((int64_t)jobs->rows[jobs->n].row.no);
        if (jobs->n > 0 && jobs->arena->bytes > PAGE_BYTES_MAX) {
            jobs->more = true;
            return MR_OK;
        }
        if (jobs->rows[jobs->n].there)
            MR_TRY(job_run(tx, SQL_DEFINITION, &no, 1, take_bytes, jobs));
    }
    return MR_OK;
}

/* The rest of each job, and the rows of the answer. */
static enum mr_err jobs_finish(struct tx *tx, struct jobs *jobs, bool brief,
                               struct mr_store_job **ret_jobs)
{
    MR_TRY(jobs_read_stages(tx, jobs->rows, jobs->n));
    if (!brief)
        MR_TRY(read_definitions(tx, jobs));
    *ret_jobs = mr_arena_calloc(jobs->arena, jobs->n, sizeof **ret_jobs);
    if (!*ret_jobs)
        return MR_NOMEM;
    for (size_t i = 0; i < jobs->n; i++)
        (*ret_jobs)[i] = jobs->rows[i].row;
    return MR_OK;
}

/* ---- JOB_GET -------------------------------------------------------------------------------- */

static enum mr_err get_check(const struct mr_store_req *req)
{
    return store_request(req, mr_store_job_get)->n > MR_STORE_BATCH_MAX ? MR_TOO_BIG : MR_OK;
}

static size_t get_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_job_get)->n;
}

static enum mr_err take_at(size_t item, const struct db_value *row, void *arg)
{
    struct jobs *jobs = arg;
    struct tx_job *job = &jobs->rows[item];
    MR_TRY(row_job(row, jobs->arena, job));
    if ((MR_JOBROW_BIT(job->row.state) & SEEN) == 0)
        *job = (struct tx_job){0};
    return MR_OK;
}

static enum mr_err get_jobs(struct tx *tx, struct mr_store_job_get *get)
{
    struct mr_store_req *req = &get->req;
    struct jobs jobs;
    MR_TRY(tx_jobs_write(tx));
    MR_TRY(jobs_init(&jobs, tx, &req->arena, get->n));
    struct db_value *values = mr_arena_calloc(&tx->scratch, get->n, sizeof *values);
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0; i < get->n; i++)
        values[i] = db_bytes(uid_slice(&get->uids[i]));
    MR_TRY(job_run(tx, SQL_JOB_BY_UID, values, get->n, take_at, &jobs));
    jobs.n = get->n;
    MR_TRY(jobs_finish(tx, &jobs, get->brief, &get->jobs));
    if (jobs.more)
        req->err = MR_TOO_BIG; /* fewer at a time */
    return MR_OK;
}

static enum mr_err get_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_get *get = store_request(req, mr_store_job_get);
    return get->settled ? MR_OK : get_jobs(tx, get);
}

/* What comes behind it in the transaction has the same version. */
static enum mr_err get_answer(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_get *get = store_request(req, mr_store_job_get);
    return get->settled ? get_jobs(tx, get) : MR_OK;
}

const struct store_op op_job_get = {
    .access = DB_READ,
    .cost = get_cost,
    .check = get_check,
    .carry = get_carry,
    .answer = get_answer,
    .timeless = true,
};

/* ---- JOB_LIST, JOB_LIVE --------------------------------------------------------------------- */

static enum mr_err list_check(const struct mr_store_req *req)
{
    const struct mr_store_job_list *list = store_request(req, mr_store_job_list);
    MR_TRY(page_check(list->max));
    return list->before > INT64_MAX ? MR_INVALID : name_or_empty(list->queue);
}

static size_t list_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_job_list)->max;
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_list *list = store_request(req, mr_store_job_list);
    struct jobs jobs;
    MR_TRY(tx_jobs_write(tx));
    MR_TRY(jobs_init(&jobs, tx, &req->arena, list->max));
    struct db_value values[] = {
        db_number(list->before > 0 ? (int64_t)list->before : INT64_MAX),
        db_number(list->states != 0 ? list->states & SEEN : SEEN),
        db_number((int64_t)list->max + 1),
        db_bytes(list->queue),
    };
    MR_TRY(job_run(tx, list->queue.len > 0 ? SQL_JOB_LIST_QUEUE : SQL_JOB_LIST, values, 1, take_job,
                   &jobs));
    MR_TRY(jobs_finish(tx, &jobs, list->brief, &list->jobs));
    list->n = jobs.n;
    list->more = jobs.more;
    return MR_OK;
}

const struct store_op op_job_list = {
    .access = DB_READ,
    .cost = list_cost,
    .check = list_check,
    .carry = list_carry,
    .timeless = true,
};

static enum mr_err live_check(const struct mr_store_req *req)
{
    const struct mr_store_job_live *live = store_request(req, mr_store_job_live);
    MR_TRY(page_check(live->max));
    return live->after_no > INT64_MAX ? MR_INVALID : mr_name_check(live->queue);
}

static size_t live_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_job_live)->max;
}

static enum mr_err live_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_live *live = store_request(req, mr_store_job_live);
    struct jobs jobs;
    MR_TRY(tx_jobs_write(tx));
    MR_TRY(jobs_init(&jobs, tx, &req->arena, live->max));
    struct db_value values[] = {
        db_bytes(live->queue),
        db_number(live->after_no > 0 ? live->after_ms : INT64_MIN),
        db_number((int64_t)live->after_no),
        db_number((int64_t)live->max + 1),
    };
    MR_TRY(job_run(tx, SQL_JOB_LIVE, values, 1, take_job, &jobs));
    MR_TRY(jobs_finish(tx, &jobs, live->brief, &live->jobs));
    live->n = jobs.n;
    live->more = jobs.more;
    return MR_OK;
}

const struct store_op op_job_live = {
    .access = DB_READ,
    .cost = live_cost,
    .check = live_check,
    .carry = live_carry,
    .timeless = true,
};

/* ---- JOB_QUEUES ----------------------------------------------------------------------------- */

static enum mr_err queues_check(const struct mr_store_req *req)
{
    const struct mr_store_job_queues *queues = store_request(req, mr_store_job_queues);
    MR_TRY(page_check(queues->max));
    return name_or_empty(queues->after);
}

static enum mr_err take_queue(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return DB_ENOUGH;
    return mr_arena_copy(page->arena, row[0].bytes, &((struct mr_slice *)page->rows)[page->n++]);
}

static enum mr_err queues_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_queues *queues = store_request(req, mr_store_job_queues);
    struct page page;
    MR_TRY(tx_jobs_write(tx));
    MR_TRY(page_init(&page, &req->arena, queues->max, sizeof *queues->queues));
    struct db_value values[] = {db_bytes(queues->after), db_number((int64_t)queues->max + 1)};
    MR_TRY(job_run(tx, SQL_JOB_QUEUES, values, 1, take_queue, &page));
    queues->queues = page.rows;
    queues->n = page.n;
    queues->more = page.more;
    return MR_OK;
}

const struct store_op op_job_queues = {
    .access = DB_READ,
    .check = queues_check,
    .carry = queues_carry,
    .timeless = true,
};

/* ---- JOB_EVENTS ----------------------------------------------------------------------------- */

static enum mr_err events_check(const struct mr_store_req *req)
{
    const struct mr_store_job_events *events = store_request(req, mr_store_job_events);
    if (uid_is_zero(&events->uid) || events->after > INT64_MAX)
        return MR_INVALID;
    return page_check(events->max);
}

struct events {
    const struct tx_job *job;
    struct page page;
};

/* The job as it is, but for what stands in the event. */
static enum mr_err take_event(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct events *events = arg;
    struct page *page = &events->page;
    if (!page_takes(page))
        return DB_ENOUGH;
    struct tx_job was = *events->job;
    was.stages = mr_arena_calloc(page->arena, was.row.stages_n, sizeof *was.stages);
    if (!was.stages)
        return MR_NOMEM;
    was.row.stages = was.stages;
    MR_TRY(job_counters_read(row[4].bytes, &was));
    was.row.version = (uint64_t)row[0].number;
    was.row.state = (enum mr_jobrow_state)row[1].number;
    was.row.round = (uint32_t)row[3].number;
    was.row.started_ms = row[5].number;
    was.row.finished_ms = row[6].number;
    was.row.changed_ms = row[7].number;
    was.row.result_bytes = (uint64_t)row[8].number;
    was.row.result_chunks = (uint32_t)row[9].number;
    MR_TRY(mr_arena_copy(page->arena, row[2].bytes, &was.row.reason));
    ((struct mr_store_job *)page->rows)[page->n++] = was.row;
    return MR_OK;
}

/* As above: versions are settled. */
static enum mr_err events_carry(struct tx *tx, struct mr_store_req *req)
{
    (void)tx, (void)req;
    return MR_OK;
}

static enum mr_err events_answer(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_events *request = store_request(req, mr_store_job_events);
    struct events events;
    struct tx_job *job = NULL;
    MR_TRY(job_read(tx, &request->uid, &req->arena, &job));
    if (!job) {
        req->err = MR_NOT_FOUND;
        return MR_OK;
    }
    events.job = job;
    MR_TRY(page_init(&events.page, &req->arena, request->max, sizeof *request->jobs));
    struct db_value values[] = {db_number((int64_t)job->row.no), db_number((int64_t)request->after),
                                db_number((int64_t)request->max + 1)};
    MR_TRY(job_run(tx, SQL_EVENTS, values, 1, take_event, &events));
    request->jobs = events.page.rows;
    request->n = events.page.n;
    request->more = events.page.more;
    return MR_OK;
}

const struct store_op op_job_events = {
    .access = DB_READ,
    .check = events_check,
    .carry = events_carry,
    .answer = events_answer,
    .timeless = true,
};
