/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at the ledger. Thread: the store's. */
#include "store/internal.h"

static enum mr_err take_firing(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct page *page = arg;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_firing *firings = page->rows;
    return row_firing(row, page->arena, &firings[page->n++]);
}

/* ---- by key --------------------------------------------------------------------------------- */

static enum mr_err take_got(size_t item, const struct db_value *row, void *arg)
{
    struct mr_store_firing_get *get = arg;
    return row_firing(row, &get->req.arena, &get->firings[item]);
}

static enum mr_err get_check(const struct mr_store_req *req)
{
    return store_request(req, mr_store_firing_get)->n > MR_STORE_BATCH_MAX ? MR_TOO_BIG : MR_OK;
}

static enum mr_err get_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_firing_get *get = store_request(req, mr_store_firing_get);
    get->firings = mr_arena_calloc(&req->arena, get->n, sizeof *get->firings);
    struct db_value *values = mr_arena_calloc(&tx->scratch, get->n, 2 * sizeof *values);
    if (!get->firings || !values)
        return MR_NOMEM;
    for (size_t i = 0; i < get->n; i++) {
        values[2 * i] = db_bytes(uid_slice(&get->keys[i].uid));
        values[2 * i + 1] = db_number(get->keys[i].planned_ms);
    }
    return tx_run(tx, SQL_FIRING_GET, values, get->n, take_got, get);
}

static size_t get_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_firing_get)->n;
}

const struct store_op op_firing_get = {
    .access = DB_READ,
    .cost = get_cost,
    .check = get_check,
    .carry = get_carry,
    .timeless = true,
};

/* ---- of a timer ----------------------------------------------------------------------------- */

static enum mr_err list_check(const struct mr_store_req *req)
{
    return page_check(store_request(req, mr_store_firing_list)->max);
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_firing_list *list = store_request(req, mr_store_firing_list);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, list->max, sizeof *list->firings));
    struct db_value values[] = {
        db_bytes(uid_slice(&list->uid)),
        db_number(list->before_ms != 0 ? list->before_ms : INT64_MAX),
        db_number(list->states != 0 ? list->states : MR_LEDGER_BIT(MR_LEDGER_STATE_COUNT) - 1),
        db_number((int64_t)list->max + 1),
    };
    MR_TRY(tx_run(tx, SQL_FIRING_LIST, values, 1, take_firing, &page));
    list->firings = page.rows;
    list->n = page.n;
    list->more = page.more;
    return MR_OK;
}

static size_t list_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_firing_list)->max;
}

const struct store_op op_firing_list = {
    .access = DB_READ,
    .cost = list_cost,
    .check = list_check,
    .carry = list_carry,
    .timeless = true,
};

/* ---- those that have not ended -------------------------------------------------------------- */

static enum mr_err open_check(const struct mr_store_req *req)
{
    const struct mr_store_firing_open *open = store_request(req, mr_store_firing_open);
    MR_TRY(page_check(open->max));
    MR_TRY(mr_name_check(open->app));
    MR_TRY(home_check(open->home));
    return time_is_valid(open->after_ms) ? MR_OK : MR_INVALID;
}

static enum mr_err open_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_firing_open *open = store_request(req, mr_store_firing_open);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, open->max, sizeof *open->firings));
    struct db_value values[] = {
        db_bytes(open->app),
        db_number(open->after_ms),
        db_bytes(uid_slice(&open->after_uid)),
        db_number((int64_t)open->max + 1),
        slots_value(open->slots),
        db_bytes(open->home),
    };
    bool of_all = uid_is_zero(&open->uid);
    if (!of_all)
        values[4] = db_bytes(uid_slice(&open->uid));
    MR_TRY(
        tx_run(tx, of_all ? SQL_FIRING_OPEN : SQL_FIRING_OPEN_OF, values, 1, take_firing, &page));
    open->firings = page.rows;
    open->n = page.n;
    open->more = page.more;
    return MR_OK;
}

/* Of one timer few firings are open as a rule, and an index finds them. Who takes a subApp over asks so for every timer
 * that it watches: at the price of a whole page two of these questions would fill a transaction. */
enum { OPEN_OF_ONE_COST = 10 };

static size_t open_cost(const struct mr_store_req *req)
{
    const struct mr_store_firing_open *open = store_request(req, mr_store_firing_open);
    bool of_one = !uid_is_zero(&open->uid) && open->max > OPEN_OF_ONE_COST;
    return of_one ? OPEN_OF_ONE_COST : open->max;
}

const struct store_op op_firing_open = {
    .access = DB_READ,
    .cost = open_cost,
    .check = open_check,
    .carry = open_carry,
    .timeless = true,
};
