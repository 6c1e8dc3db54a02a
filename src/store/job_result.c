/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The result of a job, in pieces. They are written under the lease of who reduces; the end of the job says whose are
 * the result. Thread: the store's.
 */
#include "store/jobs_internal.h"

static enum mr_err add_check(const struct mr_store_req *req)
{
    const struct mr_store_result_add *add = store_request(req, mr_store_result_add);
    if (add->bytes.len > MR_STORE_CHUNK_MAX || add->seq > INT32_MAX)
        return MR_TOO_BIG;
    return uid_is_zero(&add->uid) ? MR_INVALID : fence_check(&add->fence);
}

static enum mr_err add_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_result_add *add = store_request(req, mr_store_result_add);
    if (add->fence.lease.len > 0)
        MR_TRY(tx_names_add(&locks->fences, add->fence.lease));
    return job_lock_uid(locks, &add->uid);
}

static enum mr_err add_carry(struct tx *tx, struct mr_store_req *req)
{
    const struct mr_store_result_add *add = store_request(req, mr_store_result_add);
    const struct tx_job *job = tx_job_seen(tx, &add->uid);
    req->err = !job ? MR_NOT_FOUND : tx_fence(tx, &add->fence);
    if (req->err == MR_OK && (job->row.state != MR_JOBROW_REDUCING || job->row.round != add->round))
        req->err = MR_STALE;
    if (req->err != MR_OK)
        return MR_OK;
    struct db_value values[] = {db_number((int64_t)job->row.no),
                                db_number((int64_t)add->fence.token), db_number(add->seq),
                                db_bytes(add->bytes)};
    return job_run(tx, SQL_CHUNK_PUT, values, 1, NULL, NULL);
}

const struct store_op op_result_add = {
    .access = DB_WRITE,
    .check = add_check,
    .locks = add_locks,
    .carry = add_carry,
};

static enum mr_err read_check(const struct mr_store_req *req)
{
    const struct mr_store_result_read *read = store_request(req, mr_store_result_read);
    return uid_is_zero(&read->uid) ? MR_INVALID : page_check(read->max);
}

static enum mr_err take_chunk(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return DB_ENOUGH;
    return mr_arena_copy(page->arena, row[0].bytes, &((struct mr_slice *)page->rows)[page->n++]);
}

static enum mr_err read_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_result_read *read = store_request(req, mr_store_result_read);
    struct tx_job *job = NULL;
    MR_TRY(job_read(tx, &read->uid, &tx->scratch, &job));
    if (!job || job->row.state != MR_JOBROW_SUCCEEDED) {
        req->err = !job ? MR_NOT_FOUND : MR_WRONG_STATE;
        return MR_OK;
    }
    /* A page is at most so many bytes, also where all rows come at once. */
    size_t most = PAGE_BYTES_MAX / MR_STORE_CHUNK_MAX;
    size_t max = read->max < most ? read->max : most;
    struct page page;
    MR_TRY(page_init(&page, &req->arena, max, sizeof *read->chunks));
    struct db_value values[] = {db_number((int64_t)job->row.no),
                                db_number((int64_t)job->result_token), db_number(read->seq),
                                db_number((int64_t)max + 1)};
    MR_TRY(job_run(tx, SQL_CHUNKS, values, 1, take_chunk, &page));
    read->chunks = page.rows;
    read->n = page.n;
    read->more = page.more;
    read->round = job->row.round;
    return MR_OK;
}

const struct store_op op_result_read = {
    .access = DB_READ,
    .check = read_check,
    .carry = read_carry,
    .timeless = true,
};
