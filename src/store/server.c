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

struct servers_page {
    struct page page;
    struct tx_lease *terms; /* of each row: until when it is there */
};

static enum mr_err take_row(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct servers_page *servers = arg;
    struct page *page = &servers->page;
    if (!page_takes(page))
        return MR_OK;
    servers->terms[page->n] = (struct tx_lease){.until_ms = row[3].number, .ttl_ms = row[4].number};
    struct mr_store_server_row *server = &((struct mr_store_server_row *)page->rows)[page->n++];
    MR_TRY(mr_arena_copy(page->arena, row[0].bytes, &server->server));
    MR_TRY(mr_arena_copy(page->arena, row[2].bytes, &server->home));
    return mr_arena_copy(page->arena, row[1].bytes, &server->apps);
}

/* By a clock that is read behind the rows: one that was written since the transaction began is of no clock that was set back. */
static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_server_list *list = store_request(req, mr_store_server_list);
    struct servers_page servers;
    struct db_value values[] = {db_number(tx->now_ms), db_number((int64_t)list->max + 1)};
    int64_t now_ms;
    MR_TRY(page_init(&servers.page, &req->arena, list->max, sizeof *list->servers));
    servers.terms = mr_arena_calloc(&tx->scratch, list->max, sizeof *servers.terms);
    if (!servers.terms)
        return MR_NOMEM;
    MR_TRY(tx_run(tx, SQL_SERVER_LIST, values, 1, take_row, &servers));
    MR_TRY(tx->db->ops->now(tx->db, &now_ms));
    list->servers = servers.page.rows;
    list->n = 0;
    for (size_t i = 0; i < servers.page.n; i++) {
        if (tx_lease_held(&servers.terms[i], now_ms))
            list->servers[list->n++] = list->servers[i];
    }
    list->more = servers.page.more;
    return MR_OK;
}

const struct store_op op_server_list = {
    .access = DB_READ,
    .check = list_check,
    .carry = list_carry,
};
