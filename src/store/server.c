/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers: who is there to share the apps. A row says so until a time, and is written again and again. Thread: the
 * store's.
 */
#include "store/internal.h"

enum { GONE_MS = 3600000 }; /* a row that has been over for so long is removed */

static enum mr_err beat_check(const struct mr_store_req *req)
{
    const struct mr_store_server_beat *beat = store_request(req, mr_store_server_beat);
    MR_TRY(text_check(beat->server, MR_STORE_OWNER_MAX));
    if (beat->apps.len > 0)
        MR_TRY(text_check(beat->apps, MR_STORE_APPS_MAX));
    MR_TRY(home_check(beat->home));
    return beat->ttl_ms >= 0 && beat->ttl_ms <= TTL_MAX_MS ? MR_OK : MR_INVALID;
}

static enum mr_err beat_carry(struct tx *tx, struct mr_store_req *req)
{
    const struct mr_store_server_beat *beat = store_request(req, mr_store_server_beat);
    struct db_value row[] = {db_bytes(beat->server), db_bytes(beat->apps),
                             db_number(tx->now_ms + beat->ttl_ms), db_number(beat->ttl_ms),
                             db_bytes(beat->home)};
    struct mr_slice goes = beat->ttl_ms == 0 ? beat->server : (struct mr_slice){0};
    struct db_value gone[] = {db_bytes(goes), db_number(tx->now_ms - GONE_MS)};
    MR_TRY(tx_run(tx, SQL_SERVER_REMOVE, gone, 1, NULL, NULL));
    return beat->ttl_ms > 0 ? tx_run(tx, SQL_SERVER_PUT, row, 1, NULL, NULL) : MR_OK;
}

const struct store_op op_server_beat = {
    .access = DB_WRITE,
    .check = beat_check,
    .carry = beat_carry,
};

static enum mr_err list_check(const struct mr_store_req *req)
{
    return page_check(store_request(req, mr_store_server_list)->max);
}

static enum mr_err take_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_server_row *server = &((struct mr_store_server_row *)page->rows)[page->n++];
    MR_TRY(mr_arena_copy(page->arena, row[0].bytes, &server->server));
    MR_TRY(mr_arena_copy(page->arena, row[2].bytes, &server->home));
    return mr_arena_copy(page->arena, row[1].bytes, &server->apps);
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_server_list *list = store_request(req, mr_store_server_list);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, list->max, sizeof *list->servers));
    struct db_value values[] = {db_number(tx->now_ms), db_number((int64_t)list->max + 1)};
    MR_TRY(tx_run(tx, SQL_SERVER_LIST, values, 1, take_row, &page));
    list->servers = page.rows;
    list->n = page.n;
    list->more = page.more;
    return MR_OK;
}

const struct store_op op_server_list = {
    .access = DB_READ,
    .check = list_check,
    .carry = list_carry,
};
