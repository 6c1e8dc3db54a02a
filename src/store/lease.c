/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases. Their rows are there for good, so that a number is never used twice. Thread: the store's.
 */
#include "store/internal.h"

enum { NAME_MAX_BYTES = 2 * MR_NAME_MAX };

static enum mr_err check_item(const struct mr_store_lease_item *item)
{
    /* A name may have a prefix before that of an app, and an owner may be any text. */
    MR_TRY(text_check(item->name, NAME_MAX_BYTES));
    MR_TRY(text_check(item->owner, MR_STORE_OWNER_MAX));
    if (item->verb == MR_LEASE_RELEASE)
        return MR_OK;
    bool is_known = item->verb <= MR_LEASE_RESUME;
    return is_known && item->ttl_ms > 0 && item->ttl_ms <= TTL_MAX_MS ? MR_OK : MR_INVALID;
}

static enum mr_err check(const struct mr_store_req *req)
{
    return store_request(req, mr_store_lease)->n > MR_STORE_BATCH_MAX ? MR_TOO_BIG : MR_OK;
}

static enum mr_err locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_lease *lease = store_request(req, mr_store_lease);
    for (size_t i = 0; i < lease->n; i++) {
        const struct mr_store_lease_item *item = &lease->items[i];
        if (check_item(item) != MR_OK)
            continue;
        bool makes = item->verb == MR_LEASE_ACQUIRE;
        MR_TRY(tx_names_add(makes ? &locks->leases : &locks->fences, item->name));
    }
    return MR_OK;
}

static size_t cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_lease)->n;
}

static void fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_lease *lease = store_request(req, mr_store_lease);
    for (size_t i = 0; lease->n <= MR_STORE_BATCH_MAX && i < lease->n; i++)
        lease->results[i] = (struct mr_store_lease_result){.err = err};
}

static bool is_ours(const struct tx_lease *row, const struct mr_store_lease_item *item)
{
    return mr_slice_equal(row->owner, item->owner);
}

static enum mr_err acquire(struct tx *tx, struct tx_lease *row,
                           const struct mr_store_lease_item *item)
{
    bool held = tx_lease_held(row, tx->now_ms);
    if (held && !is_ours(row, item))
        return MR_IN_USE;
    if (!held)
        row->token++;
    row->owner = item->owner;
    row->until_ms = tx->now_ms + item->ttl_ms;
    row->ttl_ms = item->ttl_ms;
    return MR_OK;
}

static enum mr_err decide(struct tx *tx, struct tx_lease *row,
                          const struct mr_store_lease_item *item)
{
    if (item->verb == MR_LEASE_ACQUIRE)
        return acquire(tx, row, item);
    bool released = item->verb == MR_LEASE_RELEASE && row->until_ms == 0;
    if (!is_ours(row, item) || row->token != item->token)
        return MR_STALE;
    if (released) /* by this very request, when it was carried out the first time */
        return MR_OK;
    if (item->verb != MR_LEASE_RESUME && !tx_lease_held(row, tx->now_ms))
        return MR_STALE;
    row->until_ms = item->verb != MR_LEASE_RELEASE ? tx->now_ms + item->ttl_ms : 0;
    row->ttl_ms = item->verb != MR_LEASE_RELEASE ? item->ttl_ms : 0;
    return MR_OK;
}

static void answer_item(struct tx *tx, const struct tx_lease *row,
                        struct mr_store_lease_result *result, enum mr_err err)
{
    *result = (struct mr_store_lease_result){.err = err, .until_ms = row->until_ms};
    if (err == MR_OK)
        result->token = row->token;
    if (tx_lease_held(row, tx->now_ms) && row->owner.len <= MR_STORE_OWNER_MAX)
        memcpy(result->owner, row->owner.data, row->owner.len);
}

/* All rows of the transaction are written, which are few. */
static enum mr_err carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_lease *lease = store_request(req, mr_store_lease);
    lease->now_ms = tx->now_ms;
    for (size_t i = 0; i < lease->n; i++) {
        const struct mr_store_lease_item *item = &lease->items[i];
        struct mr_store_lease_result *result = &lease->results[i];
        *result = (struct mr_store_lease_result){.err = check_item(item)};
        struct tx_lease *row = result->err == MR_OK ? tx_lease(tx, item->name) : NULL;
        if (result->err == MR_OK && !row)
            result->err = MR_STALE;
        if (!row)
            continue;
        enum mr_err err = decide(tx, row, item);
        answer_item(tx, row, result, err);
        if (err == MR_OK)
            MR_TRY(tx_lease_write(tx, row));
    }
    return MR_OK;
}

const struct store_op op_lease = {
    .access = DB_WRITE,
    .cost = cost,
    .check = check,
    .locks = locks,
    .carry = carry,
    .fail = fail,
};

/* ---- looking -------------------------------------------------------------------------------- */

static enum mr_err list_check(const struct mr_store_req *req)
{
    const struct mr_store_lease_list *list = store_request(req, mr_store_lease_list);
    MR_TRY(page_check(list->max));
    if (list->prefix.len > 0)
        MR_TRY(text_check(list->prefix, NAME_MAX_BYTES));
    return list->after.len > 0 ? text_check(list->after, NAME_MAX_BYTES) : MR_OK;
}

static enum mr_err take_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_lease_row *lease = &((struct mr_store_lease_row *)page->rows)[page->n++];
    lease->token = (uint64_t)row[2].number;
    lease->until_ms = row[3].number;
    MR_TRY(mr_arena_copy(page->arena, row[0].bytes, &lease->name));
    return mr_arena_copy(page->arena, row[1].bytes, &lease->owner);
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_lease_list *list = store_request(req, mr_store_lease_list);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, list->max, sizeof *list->leases));
    struct db_value values[] = {db_bytes(list->after), db_bytes(list->prefix),
                                db_number((int64_t)list->max + 1)};
    MR_TRY(tx_run(tx, SQL_LEASE_LIST, values, 1, take_row, &page));
    list->leases = page.rows;
    list->n = page.n;
    list->more = page.more;
    list->now_ms = tx->now_ms;
    return MR_OK;
}

const struct store_op op_lease_list = {
    .access = DB_READ,
    .check = list_check,
    .carry = list_carry,
};
