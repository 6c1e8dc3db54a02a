/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs and segments that go. A job is marked first, so that nobody sees it, and then removed bit by
 * bit; a segment whose jobs have all ended is dropped whole. Each has a transaction for itself.
 * Thread: the store's.
 */
#include "store/jobs_internal.h"

static enum mr_err count_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    (void)row;
    ++*(size_t *)arg;
    return MR_OK;
}

static enum mr_err take_number(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    *(uint64_t *)arg = (uint64_t)row[0].number;
    return MR_OK;
}

static size_t alone(const struct mr_store_req *req)
{
    (void)req;
    return COST_ALONE;
}

/* ---- SEGMENTS ------------------------------------------------------------------------------- */

static enum mr_err segments_check(const struct mr_store_req *req)
{
    const struct mr_store_segments *segments = store_request(req, mr_store_segments);
    return segments->after > INT64_MAX ? MR_INVALID : page_check(segments->max);
}

static enum mr_err take_segment(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return DB_ENOUGH;
    struct mr_store_segment *segment = &((struct mr_store_segment *)page->rows)[page->n++];
    *segment = (struct mr_store_segment){
        .n = (uint64_t)row[0].number,
        .parts = (uint64_t)row[1].number,
        .created_ms = row[2].number,
        .open = (uint64_t)row[3].number,
        .ended_ms = row[3].number == 0 ? row[4].number : 0,
    };
    return MR_OK;
}

static enum mr_err begin_and_end(struct tx *tx, uint64_t *ret_begin, uint64_t *ret_end)
{
    struct db_value none = {0};
    MR_TRY(job_run(tx, SQL_SEGMENT_BEGIN, &none, 1, take_number, ret_begin));
    return job_run(tx, SQL_SEGMENT_END, &none, 1, take_number, ret_end);
}

static enum mr_err segments_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_segments *segments = store_request(req, mr_store_segments);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, segments->max, sizeof *segments->segments));
    struct db_value values[] = {db_number((int64_t)segments->after),
                                db_number((int64_t)segments->max + 1)};
    MR_TRY(job_run(tx, SQL_SEGMENTS, values, 1, take_segment, &page));
    segments->segments = page.rows;
    segments->n = page.n;
    segments->more = page.more;
    return begin_and_end(tx, &segments->begin, &segments->end);
}

const struct store_op op_segments = {
    .access = DB_READ,
    .check = segments_check,
    .carry = segments_carry,
    .timeless = true,
};

/* ---- SEGMENT_RETAIN ------------------------------------------------------------------------- */

static enum mr_err segment_retain_check(const struct mr_store_req *req)
{
    const struct mr_store_segment_retain *retain = store_request(req, mr_store_segment_retain);
    MR_TRY(page_check(retain->max));
    return retain->age_ms < 0 ? MR_INVALID : fence_check(&retain->fence);
}

static enum mr_err segment_retain_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_segment_retain *retain = store_request(req, mr_store_segment_retain);
    return retain->fence.lease.len > 0 ? tx_names_add(&locks->fences, retain->fence.lease) : MR_OK;
}

struct oldest {
    uint64_t n;
    int64_t ended_ms;
};

static enum mr_err take_oldest(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct oldest *oldest = arg;
    oldest->n = (uint64_t)row[0].number;
    /* Without jobs any more: they have had their time. */
    oldest->ended_ms = row[2].number;
    return MR_OK;
}

/* Jobs that had parts in a segment. */
struct owners {
    struct mr_arena *arena;
    struct db_value *values;
    size_t n, cap;
};

static enum mr_err take_owner(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct owners *owners = arg;
    if (owners->n == owners->cap) {
        size_t cap = owners->cap > 0 ? 2 * owners->cap : RANGES_PAGE;
        struct db_value *grown = mr_arena_calloc(owners->arena, cap, sizeof *grown);
        if (!grown)
            return MR_NOMEM;
        if (owners->n > 0)
            memcpy(grown, owners->values, owners->n * sizeof *grown);
        owners->values = grown;
        owners->cap = cap;
    }
    owners->values[owners->n++] = db_number(row[0].number);
    return MR_OK;
}

/* Its ranges go, and with them the way to its parts. A job that was retried meanwhile keeps them: all of it is
 * repeated then. */
static enum mr_err drop_ranges(struct tx *tx, uint64_t segment)
{
    struct owners owners = {.arena = &tx->scratch};
    struct db_value value = db_number((int64_t)segment);
    size_t live = 0;
    MR_TRY(job_run(tx, SQL_SEGMENT_RANGES_DROP, &value, 1, take_owner, &owners));
    MR_TRY(job_run(tx, SQL_JOB_IS_LIVE, owners.values, owners.n, count_row, &live));
    return live > 0 ? MR_BUSY : MR_OK;
}

/* Answers whether nothing is left of it. */
static enum mr_err drop_rows(struct tx *tx, uint64_t segment, size_t max, bool *ret_empty)
{
    if (tx->db->ops->segment_drop) {
        *ret_empty = true;
        return tx->db->ops->segment_drop(tx->db, segment);
    }
    size_t n = 0;
    struct db_value values[] = {db_number((int64_t)segment), db_number((int64_t)max)};
    MR_TRY(job_run(tx, SQL_SEGMENT_OUTCOMES_DROP, values, 1, count_row, &n));
    values[1] = db_number((int64_t)(max - n));
    if (n < max)
        MR_TRY(job_run(tx, SQL_SEGMENT_PARTS_DROP, values, 1, count_row, &n));
    *ret_empty = n < max;
    return MR_OK;
}

/* The oldest of them, if it is to go. */
static enum mr_err next_to_drop(struct tx *tx, int64_t age_ms, uint64_t *ret_segment)
{
    struct oldest oldest = {0};
    struct db_value none = {0};
    uint64_t begin = 0, end = 0, live = 0;
    *ret_segment = 0;
    MR_TRY(job_run(tx, SQL_SEGMENT_FIRST, &none, 1, take_oldest, &oldest));
    MR_TRY(begin_and_end(tx, &begin, &end));
    if (oldest.n >= begin || oldest.n >= end || oldest.ended_ms > tx->now_ms - age_ms)
        return MR_OK;
    /* Its parts have ended, but a job that goes on in other segments needs their results. */
    struct db_value value = db_number((int64_t)oldest.n);
    MR_TRY(job_run(tx, SQL_SEGMENT_IN_USE, &value, 1, take_number, &live));
    *ret_segment = live > 0 ? 0 : oldest.n;
    return MR_OK;
}

static enum mr_err segment_retain_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_segment_retain *retain = store_request(req, mr_store_segment_retain);
    uint64_t segment = 0;
    retain->segments = 0;
    retain->more = false;
    req->err = tx_fence(tx, &retain->fence);
    if (req->err != MR_OK)
        return MR_OK;
    MR_TRY(next_to_drop(tx, retain->age_ms, &segment));
    if (segment == 0)
        return MR_OK;
    bool empty = false;
    retain->more = true;
    MR_TRY(drop_ranges(tx, segment));
    MR_TRY(drop_rows(tx, segment, retain->max, &empty));
    if (!empty)
        return MR_OK;
    struct db_value value = db_number((int64_t)segment);
    retain->segments = 1;
    return job_run(tx, SQL_SEGMENT_DROP, &value, 1, NULL, NULL);
}

const struct store_op op_segment_retain = {
    .access = DB_WRITE,
    .cost = alone,
    .check = segment_retain_check,
    .locks = segment_retain_locks,
    .carry = segment_retain_carry,
};

/* ---- JOB_RETAIN ----------------------------------------------------------------------------- */

static enum mr_err job_retain_check(const struct mr_store_req *req)
{
    const struct mr_store_job_retain *retain = store_request(req, mr_store_job_retain);
    MR_TRY(page_check(retain->max));
    return retain->load_ms < 0 ? MR_INVALID : fence_check(&retain->fence);
}

static enum mr_err job_retain_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_job_retain *retain = store_request(req, mr_store_job_retain);
    return retain->fence.lease.len > 0 ? tx_names_add(&locks->fences, retain->fence.lease) : MR_OK;
}

struct dropped {
    uint64_t no;
    size_t stages;
};

static enum mr_err take_dropped(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct dropped *dropped = arg;
    *dropped = (struct dropped){(uint64_t)row[0].number, (size_t)row[1].number};
    return MR_OK;
}

/* The last indexes of a range, as many as may be; the range is shorter then. */
static enum mr_err drop_of_range(struct tx *tx, const struct dropped *job,
                                 const struct job_range *range, size_t *left)
{
    uint64_t n = range->n < *left ? range->n : *left;
    uint64_t behind = range->first + range->n;
    struct db_value no = db_number((int64_t)job->no);
    struct db_value values[] = {db_number((int64_t)range->segment), no,
                                db_number((int64_t)(behind - n)), db_number((int64_t)behind),
                                db_number(0)};
    MR_TRY(job_run(tx, SQL_DROP_PARTS, values, 1, NULL, NULL));
    for (size_t i = 0; i < job->stages; i++) {
        values[4] = db_number((int64_t)i);
        MR_TRY(job_run(tx, SQL_DROP_OUTCOMES, values, 1, NULL, NULL));
    }
    struct db_value rest[] = {no, values[0], db_number((int64_t)(range->n - n))};
    *left -= n;
    return job_run(tx, n == range->n ? SQL_DROP_RANGE : SQL_RANGE_SHORTEN, rest, 1, NULL, NULL);
}

static enum mr_err drop_rest(struct tx *tx, const struct dropped *job, size_t *left)
{
    static const enum sql_job many[] = {SQL_DROP_READY, SQL_DROP_CHUNKS};
    static const enum sql_job few[] = {SQL_DROP_EVENTS, SQL_DROP_STAGES, SQL_DROP_DEFINITION,
                                       SQL_DROP_JOB};
    for (size_t i = 0; i<sizeof many / sizeof *many && * left> 0; i++) {
        size_t n = 0;
        struct db_value values[] = {db_number((int64_t)job->no), db_number((int64_t)*left)};
        MR_TRY(job_run(tx, many[i], values, 1, count_row, &n));
        *left -= n < *left ? n : *left;
    }
    if (*left == 0)
        return MR_OK;
    struct db_value no = db_number((int64_t)job->no);
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        MR_TRY(job_run(tx, few[i], &no, 1, NULL, NULL));
    (*left)--;
    return MR_OK;
}

/* Until so much is removed, or nothing is left of it. */
static enum mr_err drop_job(struct tx *tx, const struct dropped *job, size_t *left)
{
    for (;;) {
        struct job_range ranges[RANGES_PAGE];
        size_t n = 0;
        MR_TRY(job_ranges(tx, job->no, 0, ranges, &n));
        for (size_t i = 0; i<n && * left> 0; i++)
            MR_TRY(drop_of_range(tx, job, &ranges[i], left));
        if (*left == 0)
            return MR_OK;
        if (n == 0)
            return drop_rest(tx, job, left);
    }
}

static enum mr_err mark(struct tx *tx, enum sql_job statement, int64_t before_ms, size_t max,
                        size_t *ret_n)
{
    struct db_value values[] = {db_number(before_ms), db_number((int64_t)max)};
    return job_run(tx, statement, values, 1, count_row, ret_n);
}

static enum mr_err job_retain_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_job_retain *retain = store_request(req, mr_store_job_retain);
    retain->ended = retain->loads = 0;
    retain->more = false;
    req->err = tx_fence(tx, &retain->fence);
    if (req->err != MR_OK)
        return MR_OK;
    MR_TRY(mark(tx, SQL_DROP_ENDED, tx->now_ms, retain->max, &retain->ended));
    if (retain->load_ms > 0)
        MR_TRY(mark(tx, SQL_DROP_LOADS, tx->now_ms - retain->load_ms, retain->max, &retain->loads));
    for (size_t left = retain->max; left > 0;) {
        struct dropped job = {0};
        struct db_value none = {0};
        MR_TRY(job_run(tx, SQL_DROPPED, &none, 1, take_dropped, &job));
        if (job.no == 0)
            return MR_OK;
        MR_TRY(drop_job(tx, &job, &left));
        retain->more = left == 0;
    }
    return MR_OK;
}

const struct store_op op_job_retain = {
    .access = DB_WRITE,
    .cost = alone,
    .check = job_retain_check,
    .locks = job_retain_locks,
    .carry = job_retain_carry,
};
