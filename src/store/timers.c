/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at timers and apps. Thread: the store's. */
#include "store/internal.h"

/* The greatest character there is: what begins with a text is not above the text with it. */
#define LAST_CHARACTER "\xf4\x8f\xbf\xbf"

enum { SCAN_MAX = 2000 }; /* timers that a page is made of, at least */

/* ---- by key --------------------------------------------------------------------------------- */

struct getting {
    struct mr_store_timer_get *get;
    const size_t *items; /* which key each of the statement's is */
};

static enum mr_err take_got(size_t item, const struct db_value *row, void *arg)
{
    struct getting *getting = arg;
    struct mr_store_timer_get *get = getting->get;
    return row_timer(row, &get->req.arena, &get->timers[getting->items[item]]);
}

enum key_kind { KEY_NAME, KEY_UID };

static enum key_kind kind_of(const struct mr_store_timer_key *key)
{
    return key->name.len > 0 ? KEY_NAME : KEY_UID;
}

static enum mr_err get_kind(struct tx *tx, struct mr_store_timer_get *get, enum key_kind kind)
{
    struct db_value *values = mr_arena_calloc(&tx->scratch, get->n, 2 * sizeof *values);
    size_t *items = mr_arena_calloc(&tx->scratch, get->n, sizeof *items);
    if (!values || !items)
        return MR_NOMEM;
    size_t n = 0, at = 0;
    for (size_t i = 0; i < get->n; i++) {
        const struct mr_store_timer_key *key = &get->keys[i];
        if (kind_of(key) != kind)
            continue;
        if (kind == KEY_NAME)
            values[at++] = db_bytes(key->app);
        values[at++] = kind == KEY_NAME ? db_bytes(key->name) : db_bytes(uid_slice(&key->uid));
        items[n++] = i;
    }
    struct getting getting = {get, items};
    return tx_run(tx, kind == KEY_NAME ? SQL_TIMER_BY_NAME : SQL_TIMER_BY_UID, values, n, take_got,
                  &getting);
}

static enum mr_err get_check(const struct mr_store_req *req)
{
    const struct mr_store_timer_get *get = store_request(req, mr_store_timer_get);
    if (get->n > MR_STORE_BATCH_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < get->n; i++) {
        if (kind_of(&get->keys[i]) != KEY_NAME)
            continue;
        MR_TRY(mr_name_check(get->keys[i].app));
        MR_TRY(mr_name_check(get->keys[i].name));
    }
    return MR_OK;
}

static enum mr_err get_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_timer_get *get = store_request(req, mr_store_timer_get);
    get->timers = mr_arena_calloc(&req->arena, get->n, sizeof *get->timers);
    if (!get->timers)
        return MR_NOMEM;
    MR_TRY(get_kind(tx, get, KEY_NAME));
    return get_kind(tx, get, KEY_UID);
}

static size_t get_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_timer_get)->n;
}

const struct store_op op_timer_get = {
    .access = DB_READ,
    .cost = get_cost,
    .check = get_check,
    .carry = get_carry,
    .timeless = true,
};

/* ---- pages ---------------------------------------------------------------------------------- */

static enum mr_err take_timer(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_timer *timers = page->rows;
    return row_timer(row, page->arena, &timers[page->n++]);
}

static enum mr_err list_check(const struct mr_store_req *req)
{
    const struct mr_store_timer_list *list = store_request(req, mr_store_timer_list);
    MR_TRY(page_check(list->max));
    MR_TRY(name_or_empty(list->app));
    MR_TRY(name_or_empty(list->prefix));
    MR_TRY(name_or_empty(list->after_app));
    return name_or_empty(list->after_name);
}

static enum mr_err take_place(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct mr_store_timer_list *list = arg;
    MR_TRY(mr_arena_copy(&list->req.arena, row[0].bytes, &list->place_app));
    return mr_arena_copy(&list->req.arena, row[1].bytes, &list->place_name);
}

/* Where to go on: behind the last row of the page, or of those that were looked at. */
static enum mr_err list_place(struct tx *tx, struct mr_store_timer_list *list,
                              const struct db_value *values, size_t scanned)
{
    list->place_app = list->place_name = (struct mr_slice){0};
    if (list->more) {
        list->place_app = list->timers[list->n - 1].app;
        list->place_name = list->timers[list->n - 1].name;
        return MR_OK;
    }
    struct db_value place[] = {values[0], values[1], values[2], values[3],
                               db_number((int64_t)scanned - 1)};
    MR_TRY(tx_run(tx, list->app.len > 0 ? SQL_TIMER_PLACE_APP : SQL_TIMER_PLACE, place, 1,
                  take_place, list));
    list->more = list->place_name.len > 0;
    return MR_OK;
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_timer_list *list = store_request(req, mr_store_timer_list);
    struct page page;
    size_t scanned = list->max < SCAN_MAX ? SCAN_MAX : list->max + 1;
    MR_TRY(page_init(&page, &req->arena, list->max, sizeof *list->timers));
    char last[MR_NAME_MAX + sizeof LAST_CHARACTER];
    size_t len = list->prefix.len;
    if (len > 0)
        memcpy(last, list->prefix.data, len);
    memcpy(last + len, LAST_CHARACTER, sizeof LAST_CHARACTER);
    struct db_value values[] = {
        db_bytes(list->app.len > 0 ? list->app : list->after_app),
        db_bytes(list->after_name),
        db_bytes(list->prefix),
        db_bytes(mr_slice_make(last, len + sizeof LAST_CHARACTER - 1)),
        db_number(list->states != 0 ? list->states : MR_ROW_LIVE),
        db_number((int64_t)list->max + 1),
        db_number((int64_t)scanned),
    };
    MR_TRY(tx_run(tx, list->app.len > 0 ? SQL_TIMER_LIST_APP : SQL_TIMER_LIST, values, 1,
                  take_timer, &page));
    list->timers = page.rows;
    list->n = page.n;
    list->more = page.more;
    return list_place(tx, list, values, scanned);
}

static size_t list_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_timer_list)->max;
}

const struct store_op op_timer_list = {
    .access = DB_READ,
    .cost = list_cost,
    .check = list_check,
    .carry = list_carry,
    .timeless = true,
};

/* ---- what is due ---------------------------------------------------------------------------- */

static enum mr_err due_check(const struct mr_store_req *req)
{
    const struct mr_store_due *due = store_request(req, mr_store_due);
    MR_TRY(page_check(due->max));
    MR_TRY(mr_name_check(due->app));
    bool times_ok = due->until_ms < MR_STORE_NEVER_MS && time_is_valid(due->after_ms);
    return times_ok && due->since <= INT64_MAX ? MR_OK : MR_INVALID;
}

static enum mr_err take_changed(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    *(uint64_t *)arg = (uint64_t)row[0].number;
    return MR_OK;
}

static enum mr_err due_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_due *due = store_request(req, mr_store_due);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, due->max, sizeof *due->timers));
    struct db_value app = db_bytes(due->app);
    due->changed = 0;
    due->now_ms = tx->now_ms;
    /* Before the timers are read: what comes between is said again the next time, not left out. */
    MR_TRY(tx_run(tx, SQL_APP_CHANGED, &app, 1, take_changed, &due->changed));
    /* Likewise what this very transaction applies behind this request, under the number that it has taken. */
    if (tx_app(tx, due->app) != NULL)
        due->changed--;
    struct db_value values[] = {
        app,
        db_number(due->until_ms),
        db_number(due->after_ms),
        db_bytes(uid_slice(&due->after_uid)),
        db_number((int64_t)due->max + 1),
        db_number((int64_t)due->since),
        slots_value(due->slots),
    };
    MR_TRY(tx_run(tx, due->since > 0 ? SQL_DUE_SINCE : SQL_DUE, values, 1, take_timer, &page));
    due->timers = page.rows;
    due->n = page.n;
    due->more = page.more;
    return MR_OK;
}

static size_t due_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_due)->max;
}

const struct store_op op_due = {
    .access = DB_READ,
    .cost = due_cost,
    .check = due_check,
    .carry = due_carry,
};

/* ---- apps ----------------------------------------------------------------------------------- */

static enum mr_err apps_check(const struct mr_store_req *req)
{
    const struct mr_store_app_list *list = store_request(req, mr_store_app_list);
    MR_TRY(page_check(list->max));
    return name_or_empty(list->after);
}

struct apps_page {
    struct page page;
    struct tx_lease *leases; /* of each row */
};

static enum mr_err take_app(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct apps_page *apps = arg;
    struct page *page = &apps->page;
    if (!page_takes(page))
        return MR_OK;
    apps->leases[page->n] = (struct tx_lease){.until_ms = row[2].number, .ttl_ms = row[3].number};
    struct mr_store_app_row *app = &((struct mr_store_app_row *)page->rows)[page->n++];
    MR_TRY(mr_arena_copy(page->arena, row[1].bytes, &app->owner));
    return mr_arena_copy(page->arena, row[0].bytes, &app->name);
}

/* By a clock that is read behind the rows, as servers are listed. */
static enum mr_err apps_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_app_list *list = store_request(req, mr_store_app_list);
    struct apps_page apps;
    int64_t now_ms;
    MR_TRY(page_init(&apps.page, &req->arena, list->max, sizeof *list->apps));
    apps.leases = mr_arena_calloc(&tx->scratch, list->max, sizeof *apps.leases);
    if (!apps.leases)
        return MR_NOMEM;
    struct db_value values[] = {db_bytes(list->after), db_number((int64_t)list->max + 1)};
    MR_TRY(tx_run(tx, SQL_APP_LIST, values, 1, take_app, &apps));
    MR_TRY(tx->db->ops->now(tx->db, &now_ms));
    list->apps = apps.page.rows;
    list->n = apps.page.n;
    for (size_t i = 0; i < list->n; i++) {
        if (!tx_lease_held(&apps.leases[i], now_ms))
            list->apps[i].owner = (struct mr_slice){0};
    }
    list->more = apps.page.more;
    return MR_OK;
}

const struct store_op op_app_list = {
    .access = DB_READ,
    .check = apps_check,
    .carry = apps_carry,
};
