/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is to be submitted: pages of payloads behind the cursor of a stage, and of the ready list; and cursors that
 * move. Thread: the store's.
 */
#include "store/jobs_internal.h"

/* Payloads of the ready list are looked for so many at a time, so that big ones fill no memory. */
enum { READY_AT_ONCE = 64 };

/* ---- ranges --------------------------------------------------------------------------------- */

struct ranges_take {
    struct job_range *ranges;
    size_t n;
};

static enum mr_err take_range(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct ranges_take *take = arg;
    if (take->n == RANGES_PAGE)
        return DB_ENOUGH;
    take->ranges[take->n++] =
        (struct job_range){(uint64_t)row[0].number, (uint64_t)row[1].number,
                           (uint64_t)row[2].number, (uint64_t)row[3].number, row[4].number};
    return MR_OK;
}

enum mr_err job_ranges(struct tx *tx, uint64_t no, uint64_t from,
                       struct job_range ranges[RANGES_PAGE], size_t *ret_n)
{
    struct ranges_take take = {.ranges = ranges};
    struct db_value values[] = {db_number((int64_t)no), db_number((int64_t)from),
                                db_number(RANGES_PAGE)};
    MR_TRY(job_run(tx, SQL_RANGES_FROM, values, 1, take_range, &take));
    /* The one that has the index, or would have it, is the first. */
    size_t behind = take.n > 0 && ranges[0].first + ranges[0].n <= from ? 1 : 0;
    memmove(ranges, ranges + behind, (take.n - behind) * sizeof *ranges);
    *ret_n = take.n - behind;
    return MR_OK;
}

/* ---- PARTS_READ ----------------------------------------------------------------------------- */

static enum mr_err read_check(const struct mr_store_req *req)
{
    const struct mr_store_parts_read *read = store_request(req, mr_store_parts_read);
    if (uid_is_zero(&read->uid) || read->from > INT64_MAX || read->stage > MR_JOB_STAGES_MAX)
        return MR_INVALID;
    return page_check(read->max);
}

static size_t read_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_parts_read)->max;
}

/* A page that is being read. */
struct payloads {
    struct mr_arena *arena;
    struct mr_store_payload *rows;
    size_t n, max;
    size_t bytes, bytes_max;
    uint64_t segment; /* of the range that is read now */
};

static bool is_full(const struct payloads *page)
{
    return page->n == page->max || (page->n > 0 && page->bytes >= page->bytes_max);
}

static enum mr_err take_payload(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct payloads *page = arg;
    if (is_full(page))
        return DB_ENOUGH;
    struct mr_store_payload *payload = &page->rows[page->n++];
    payload->index = (uint64_t)row[0].number;
    payload->segment = page->segment;
    page->bytes += row[1].bytes.len;
    return mr_arena_copy(page->arena, row[1].bytes, &payload->bytes);
}

/* What of a range fits into the page, which is not full. */
static enum mr_err read_range(struct tx *tx, const struct mr_store_parts_read *read, uint64_t no,
                              const struct job_range *range, struct payloads *page)
{
    uint64_t from = read->from > range->first ? read->from : range->first;
    page->segment = range->segment;
    struct db_value inputs[] = {
        db_number((int64_t)range->segment),
        db_number((int64_t)no),
        db_number((int64_t)from),
        db_number((int64_t)(range->first + range->n)),
        db_number((int64_t)(page->max - page->n)),
        db_number((int64_t)(page->bytes_max - page->bytes)),
    };
    if (read->stage == 0)
        return job_run(tx, SQL_PARTS_PAGE, inputs, 1, take_payload, page);
    struct db_value results[] = {inputs[0], inputs[1], db_number((int64_t)read->stage - 1),
                                 inputs[2], inputs[3], inputs[4],
                                 inputs[5]};
    return job_run(tx, SQL_RESULTS_PAGE, results, 1, take_payload, page);
}

/* From range to range, until the page is full or the job is at its end. MR_EMPTY: one is gone. */
static enum mr_err read_ranges(struct tx *tx, struct mr_store_parts_read *read,
                               const struct tx_job *job, struct payloads *page)
{
    read->next = read->from;
    while (read->next < job->row.total && !is_full(page)) {
        struct job_range ranges[RANGES_PAGE];
        size_t n = 0;
        MR_TRY(job_ranges(tx, job->row.no, read->next, ranges, &n));
        if (n == 0)
            return MR_EMPTY;
        for (size_t i = 0; i < n && !is_full(page); i++) {
            if (ranges[i].first > read->next)
                return MR_EMPTY;
            MR_TRY(read_range(tx, read, job->row.no, &ranges[i], page));
            read->next =
                is_full(page) ? page->rows[page->n - 1].index + 1 : ranges[i].first + ranges[i].n;
        }
    }
    return MR_OK;
}

static enum mr_err read_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_parts_read *read = store_request(req, mr_store_parts_read);
    struct tx_job *job = NULL;
    MR_TRY(job_read(tx, &read->uid, &tx->scratch, &job));
    if (!job || read->stage > job->row.stages_n) {
        req->err = !job ? MR_NOT_FOUND : MR_INVALID;
        return MR_OK;
    }
    struct payloads page = {
        .arena = &req->arena,
        .rows = mr_arena_calloc(&req->arena, read->max, sizeof *page.rows),
        .max = read->max,
        .bytes_max = read->bytes_max > 0 ? read->bytes_max : MR_STORE_READ_BYTES,
    };
    if (!page.rows)
        return MR_NOMEM;
    enum mr_err err = read_ranges(tx, read, job, &page);
    read->parts = page.rows;
    read->n = page.n;
    read->round = job->row.round;
    if (err == MR_EMPTY) {
        req->err = MR_EMPTY;
        return MR_OK;
    }
    return err;
}

const struct store_op op_parts_read = {
    .access = DB_READ,
    .cost = read_cost,
    .check = read_check,
    .carry = read_carry,
    .timeless = true,
};

/* ---- READY_READ ----------------------------------------------------------------------------- */

static enum mr_err ready_check(const struct mr_store_req *req)
{
    const struct mr_store_ready_read *read = store_request(req, mr_store_ready_read);
    if (uid_is_zero(&read->uid) || read->after > INT64_MAX)
        return MR_INVALID;
    return page_check(read->max);
}

static size_t ready_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_ready_read)->max;
}

static enum mr_err take_ready(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (page->n == page->max)
        return DB_ENOUGH;
    struct mr_store_ready *ready = &((struct mr_store_ready *)page->rows)[page->n++];
    *ready = (struct mr_store_ready){.seq = (uint64_t)row[0].number,
                                     .stage = (uint32_t)row[1].number,
                                     .index = (uint64_t)row[2].number,
                                     .segment = (uint64_t)row[3].number,
                                     .round = (uint32_t)row[4].number};
    return MR_OK;
}

/* Some rows of the list, and the payloads that were found for them. */
struct ready_some {
    struct mr_arena *arena;
    struct mr_store_ready *rows;
    size_t n;
    size_t places[READY_AT_ONCE]; /* of the rows that a statement is about */
    bool found[READY_AT_ONCE];
};

static enum mr_err take_ready_payload(size_t item, const struct db_value *row, void *arg)
{
    struct ready_some *some = arg;
    size_t place = some->places[item];
    some->found[place] = true;
    return mr_arena_copy(some->arena, row[0].bytes, &some->rows[place].bytes);
}

/* Those that are in a segment, and in stage 0 or behind it. */
static enum mr_err find_payloads(struct tx *tx, uint64_t no, struct ready_some *some,
                                 uint64_t segment, bool first_stage)
{
    struct db_value values[READY_AT_ONCE * 4];
    size_t width = first_stage ? 3 : 4, n = 0;
    for (size_t i = 0; i < some->n; i++) {
        const struct mr_store_ready *ready = &some->rows[i];
        if (ready->segment != segment || (ready->stage == 0) != first_stage)
            continue;
        struct db_value *row = values + n * width;
        row[0] = db_number((int64_t)ready->segment);
        row[1] = db_number((int64_t)no);
        if (!first_stage)
            row[2] = db_number(ready->stage);
        row[width - 1] = db_number((int64_t)ready->index);
        some->places[n++] = i;
    }
    return job_run(tx, first_stage ? SQL_PART_INPUT : SQL_PART_RESULT, values, n,
                   take_ready_payload, some);
}

static enum mr_err find_some(struct tx *tx, uint64_t no, struct ready_some *some)
{
    for (size_t i = 0; i < some->n; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = some->rows[j].segment == some->rows[i].segment;
        if (seen)
            continue;
        MR_TRY(find_payloads(tx, no, some, some->rows[i].segment, true));
        MR_TRY(find_payloads(tx, no, some, some->rows[i].segment, false));
    }
    return MR_OK;
}

/* Leaves only rows with a payload: what has an outcome by now has none. */
static enum mr_err read_payloads(struct tx *tx, struct mr_store_ready_read *read,
                                 const struct tx_job *job, struct page *page)
{
    struct mr_store_ready *rows = page->rows;
    size_t bytes = 0, kept = 0;
    size_t bytes_max = read->bytes_max > 0 ? read->bytes_max : MR_STORE_READ_BYTES;
    for (size_t i = 0; i < page->n && bytes < bytes_max; i += READY_AT_ONCE) {
        size_t left = page->n - i;
        struct ready_some some = {.arena = page->arena,
                                  .rows = rows + i,
                                  .n = left < READY_AT_ONCE ? left : READY_AT_ONCE};
        MR_TRY(find_some(tx, job->row.no, &some));
        for (size_t j = 0; j < some.n; j++) {
            read->next = some.rows[j].seq;
            if (!some.found[j])
                continue;
            bytes += some.rows[j].bytes.len;
            rows[kept] = some.rows[j];
            if (rows[kept].round < job->row.round) /* put there before a retry */
                rows[kept].round = job->row.round;
            kept++;
        }
    }
    page->n = kept;
    return MR_OK;
}

static enum mr_err ready_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_ready_read *read = store_request(req, mr_store_ready_read);
    struct tx_job *job = NULL;
    MR_TRY(job_read(tx, &read->uid, &tx->scratch, &job));
    if (!job) {
        req->err = MR_NOT_FOUND;
        return MR_OK;
    }
    struct page page;
    MR_TRY(page_init(&page, &req->arena, read->max, sizeof *read->parts));
    struct db_value values[] = {db_number((int64_t)job->row.no), db_number((int64_t)read->after),
                                db_number((int64_t)read->max)};
    MR_TRY(job_run(tx, SQL_READY_LIST, values, 1, take_ready, &page));
    bool at_end = page.n < read->max;
    uint64_t last = page.n > 0 ? ((struct mr_store_ready *)page.rows)[page.n - 1].seq : read->after;
    read->next = read->after;
    MR_TRY(read_payloads(tx, read, job, &page));
    /* Numbers need not be close: behind the last row nothing is left. */
    if (at_end && read->next == last && job->row.ready_last > last)
        read->next = job->row.ready_last;
    read->parts = page.rows;
    read->n = page.n;
    read->round = job->row.round;
    return MR_OK;
}

const struct store_op op_ready_read = {
    .access = DB_READ,
    .cost = ready_cost,
    .check = ready_check,
    .carry = ready_carry,
    .timeless = true,
};

/* ---- JOB_ADVANCE ---------------------------------------------------------------------------- */

static enum mr_err advance_check(const struct mr_store_req *req)
{
    const struct mr_store_job_advance *advance = store_request(req, mr_store_job_advance);
    return advance->n > MR_STORE_BATCH_MAX ? MR_TOO_BIG : fence_check(&advance->fence);
}

static size_t advance_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_job_advance)->n;
}

static enum mr_err advance_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_job_advance *advance = store_request(req, mr_store_job_advance);
    if (advance->fence.lease.len > 0)
        MR_TRY(tx_names_add(&locks->fences, advance->fence.lease));
    for (size_t i = 0; i < advance->n; i++)
        MR_TRY(job_lock_uid(locks, &advance->items[i].uid));
    return MR_OK;
}

struct ready_count {
    struct tx *tx;
    struct tx_job *job;
};

static enum mr_err take_ready_count(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct ready_count *count = arg;
    if (row[0].number < 0 || (uint64_t)row[0].number >= count->job->row.stages_n)
        return MR_DAMAGED;
    struct mr_store_stage *stage = &count->job->stages[row[0].number];
    stage->sent += (uint64_t)row[1].number;
    stage->sent_ms = count->tx->now_ms;
    return MR_OK;
}

static enum mr_err advance_ready(struct tx *tx, struct tx_job *job,
                                 const struct mr_store_advance *item)
{
    struct ready_count count = {tx, job};
    struct db_value values[] = {db_number((int64_t)job->row.no), db_number((int64_t)item->from),
                                db_number((int64_t)item->to)};
    MR_TRY(job_run(tx, SQL_READY_COUNT, values, 1, take_ready_count, &count));
    MR_TRY(job_run(tx, SQL_READY_PASS, values, 1, NULL, NULL));
    job->row.ready_cursor = item->to;
    return MR_OK;
}

static void advance_stage(struct tx *tx, struct tx_job *job, const struct mr_store_advance *item)
{
    struct mr_store_stage *stage = &job->stages[item->stage];
    stage->cursor = item->to;
    stage->sent += item->parts;
    stage->sent_ms = tx->now_ms;
}

static enum mr_err advance_item(struct tx *tx, const struct mr_store_advance *item,
                                enum mr_err *ret_err)
{
    bool ready = item->stage == MR_STORE_STAGE_READY;
    struct tx_job *job = tx_job_seen(tx, &item->uid);
    *ret_err = !job ? MR_NOT_FOUND : MR_OK;
    if (job && !ready && item->stage >= job->row.stages_n)
        *ret_err = MR_INVALID;
    if (*ret_err != MR_OK)
        return MR_OK;
    uint64_t at = ready ? job->row.ready_cursor : job->stages[item->stage].cursor;
    uint64_t last = ready ? job->row.ready_last : job->row.total;
    if (item->to < item->from || item->to > last || item->parts > item->to - item->from)
        *ret_err = MR_INVALID;
    else if (job->row.round != item->round || !mr_jobrow_is_live(job->row.state) ||
             mr_store_job_retrying(&job->row) || (at != item->from && at < item->to))
        *ret_err = MR_STALE;
    if (*ret_err != MR_OK || at >= item->to)
        return MR_OK;
    job_change(tx, job);
    if (job->row.state == MR_JOBROW_CREATED) {
        job->row.state = MR_JOBROW_RUNNING;
        job->row.started_ms = tx->now_ms;
    }
    if (ready)
        return advance_ready(tx, job, item);
    advance_stage(tx, job, item);
    return MR_OK;
}

static enum mr_err advance_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_advance *advance = store_request(req, mr_store_job_advance);
    req->err = tx_fence(tx, &advance->fence);
    for (size_t i = 0; req->err == MR_OK && i < advance->n; i++)
        MR_TRY(advance_item(tx, &advance->items[i], &advance->results[i]));
    return MR_OK;
}

static enum mr_err advance_answer(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_advance *advance = store_request(req, mr_store_job_advance);
    struct tx_job **jobs = mr_arena_calloc(&tx->scratch, advance->n, sizeof *jobs);
    if (!jobs)
        return MR_NOMEM;
    for (size_t i = 0; i < advance->n; i++)
        jobs[i] = advance->results[i] == MR_OK ? tx_job(tx, &advance->items[i].uid) : NULL;
    return job_tell(jobs, advance->n, &req->arena, &advance->changed);
}

static void advance_fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_job_advance *advance = store_request(req, mr_store_job_advance);
    advance->changed = (struct mr_store_jobs_changed){0};
    for (size_t i = 0; advance->n <= MR_STORE_BATCH_MAX && i < advance->n; i++)
        advance->results[i] = err;
}

const struct store_op op_job_advance = {
    .access = DB_WRITE,
    .cost = advance_cost,
    .check = advance_check,
    .locks = advance_locks,
    .carry = advance_carry,
    .answer = advance_answer,
    .fail = advance_fail,
};
