/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How apps are cut: a row for each of them, which is replaced as a whole. What a table says is its writers' matter; here it is bytes.
 * The leases of the subApps change hands in the same transaction, under the locks that every write with such a lease takes: so
 * there is no moment in which the table says one thing and a fence another. Thread: the store's.
 */
#include "store/internal.h"

enum { SET_MAX = 1000 }; /* leases and moves of a request */

/* ---- writing -------------------------------------------------------------------------------- */

/* A name may have a prefix before that of an app, and an id behind it. */
static enum mr_err check_leases(const struct mr_store_subapps_set *set)
{
    for (size_t i = 0; i < set->leases_n; i++) {
        const struct mr_store_subapp_lease *lease = &set->leases[i];
        MR_TRY(text_check(lease->name, MR_NAME_MAX + 64));
        if (lease->owner.len == 0)
            continue;
        MR_TRY(text_check(lease->owner, MR_STORE_OWNER_MAX));
        if (lease->ttl_ms <= 0 || lease->ttl_ms > TTL_MAX_MS)
            return MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err check_moves(const struct mr_store_subapps_set *set)
{
    for (size_t i = 0; i < set->moves_n; i++) {
        MR_TRY(home_check(set->moves[i].from));
        MR_TRY(home_check(set->moves[i].to));
    }
    return MR_OK;
}

static enum mr_err set_check(const struct mr_store_req *req)
{
    const struct mr_store_subapps_set *set = store_request(req, mr_store_subapps_set);
    MR_TRY(mr_name_check(set->app));
    if (set->table.len == 0 || set->version >= INT64_MAX)
        return MR_INVALID;
    if (set->table.len > MR_STORE_TABLE_MAX || set->wish.len > MR_STORE_TABLE_MAX ||
        set->leases_n > SET_MAX || set->moves_n > SET_MAX)
        return MR_TOO_BIG;
    MR_TRY(check_leases(set));
    return check_moves(set);
}

static enum mr_err set_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_subapps_set *set = store_request(req, mr_store_subapps_set);
    for (size_t i = 0; i < set->leases_n; i++)
        MR_TRY(tx_names_add(&locks->leases, set->leases[i].name));
    return tx_names_add(&locks->apps, set->app);
}

struct there {
    struct mr_arena *arena;
    uint64_t version;
    struct mr_slice table, wish;
};

static enum mr_err take_there(size_t item, const struct db_value *row, void *arg)
{
    struct there *there = arg;
    (void)item;
    there->version = (uint64_t)row[0].number;
    MR_TRY(mr_arena_copy(there->arena, row[1].bytes, &there->table));
    return mr_arena_copy(there->arena, row[2].bytes, &there->wish);
}

/* By this very request, when it was carried out the first time. */
static bool is_done(const struct there *there, const struct mr_store_subapps_set *set)
{
    return there->version == set->version + 1 && mr_slice_equal(there->table, set->table) &&
           mr_slice_equal(there->wish, set->wish);
}

static bool is_behind(struct tx *tx, const struct mr_store_subapps_set *set)
{
    for (size_t i = 0; i < set->leases_n; i++) {
        const struct tx_lease *row = tx_lease(tx, set->leases[i].name);
        if (row && set->leases[i].token != 0 && set->leases[i].token <= row->token)
            return true;
    }
    return false;
}

static enum mr_err set_lease(struct tx *tx, const struct mr_store_subapp_lease *lease)
{
    struct tx_lease *row = tx_lease(tx, lease->name);
    mr_assert(row);
    bool is_owned = lease->owner.len > 0;
    row->owner = is_owned ? lease->owner : MR_SLICE_LIT("");
    row->token = lease->token != 0 ? lease->token : row->token + 1;
    row->until_ms = is_owned ? tx->now_ms + lease->ttl_ms : 0;
    row->ttl_ms = is_owned ? lease->ttl_ms : 0;
    return tx_lease_write(tx, row);
}

static enum mr_err add_moves(struct tx *tx, const struct mr_store_subapps_set *set)
{
    for (size_t i = 0; i < set->moves_n; i++) {
        const struct mr_store_subapp_move *move = &set->moves[i];
        struct mr_slice reason;
        MR_TRY(reason_copy(&tx->scratch, move->reason, &reason));
        struct db_value values[] = {db_number(tx->now_ms), db_bytes(set->app),
                                    db_number(move->part), db_bytes(move->from),
                                    db_bytes(move->to),    db_bytes(reason)};
        MR_TRY(tx_run(tx, SQL_MOVE_ADD, values, 1, NULL, NULL));
    }
    struct db_value kept = db_number(MR_STORE_MOVES_KEPT);
    return set->moves_n > 0 ? tx_run(tx, SQL_MOVE_TRIM, &kept, 1, NULL, NULL) : MR_OK;
}

static enum mr_err set_carry(struct tx *tx, struct mr_store_req *req)
{
    const struct mr_store_subapps_set *set = store_request(req, mr_store_subapps_set);
    struct there there = {.arena = &tx->scratch};
    struct db_value app = db_bytes(set->app);
    MR_TRY(tx_run(tx, SQL_SUBAPPS_GET, &app, 1, take_there, &there));
    if (is_done(&there, set))
        return MR_OK;
    if (there.version != set->version || is_behind(tx, set)) {
        req->err = there.version != set->version ? MR_CONFLICT : MR_STALE;
        return MR_OK;
    }
    struct db_value values[] = {app, db_number((int64_t)set->version + 1), db_bytes(set->table),
                                db_bytes(set->wish), db_number(set->wish.len > 0 ? tx->now_ms : 0)};
    MR_TRY(tx_run(tx, SQL_SUBAPPS_PUT, values, 1, NULL, NULL));
    for (size_t i = 0; i < set->leases_n; i++)
        MR_TRY(set_lease(tx, &set->leases[i]));
    return add_moves(tx, set);
}

const struct store_op op_subapps_set = {
    .access = DB_WRITE,
    .check = set_check,
    .locks = set_locks,
    .carry = set_carry,
};

/* ---- looking -------------------------------------------------------------------------------- */

struct rows {
    struct page page;
    int64_t now_ms;
};

static enum mr_err take_row(size_t item, const struct db_value *row, void *arg)
{
    struct rows *rows = arg;
    struct page *page = &rows->page;
    (void)item;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_subapps_row *to = &((struct mr_store_subapps_row *)page->rows)[page->n++];
    to->version = (uint64_t)row[1].number;
    MR_TRY(mr_arena_copy(page->arena, row[0].bytes, &to->app));
    MR_TRY(mr_arena_copy(page->arena, row[2].bytes, &to->table));
    MR_TRY(mr_arena_copy(page->arena, row[3].bytes, &to->wish));
    to->wish_ms = to->wish.len > 0 ? rows->now_ms - row[4].number : 0;
    return MR_OK;
}

static enum mr_err list_check(const struct mr_store_req *req)
{
    const struct mr_store_subapps_list *list = store_request(req, mr_store_subapps_list);
    MR_TRY(page_check(list->max));
    return name_or_empty(list->after);
}

static enum mr_err list_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_subapps_list *list = store_request(req, mr_store_subapps_list);
    struct rows rows = {.now_ms = tx->now_ms};
    MR_TRY(page_init(&rows.page, &req->arena, list->max, sizeof *list->rows));
    struct db_value values[] = {db_bytes(list->after), db_number((int64_t)list->max + 1)};
    MR_TRY(tx_run(tx, SQL_SUBAPPS_LIST, values, 1, take_row, &rows));
    list->rows = rows.page.rows;
    list->n = rows.page.n;
    list->more = rows.page.more;
    return MR_OK;
}

const struct store_op op_subapps_list = {
    .access = DB_READ,
    .check = list_check,
    .carry = list_carry,
};

static enum mr_err take_move(size_t item, const struct db_value *row, void *arg)
{
    struct page *page = arg;
    (void)item;
    if (!page_takes(page))
        return MR_OK;
    struct mr_store_subapp_move *move = &((struct mr_store_subapp_move *)page->rows)[page->n++];
    move->number = (uint64_t)row[0].number;
    move->at_ms = row[1].number;
    move->part = (uint32_t)row[3].number;
    MR_TRY(mr_arena_copy(page->arena, row[2].bytes, &move->app));
    MR_TRY(mr_arena_copy(page->arena, row[4].bytes, &move->from));
    MR_TRY(mr_arena_copy(page->arena, row[5].bytes, &move->to));
    return mr_arena_copy(page->arena, row[6].bytes, &move->reason);
}

static enum mr_err moves_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_moves_list *list = store_request(req, mr_store_moves_list);
    struct page page;
    MR_TRY(page_init(&page, &req->arena, MR_STORE_MOVES_KEPT, sizeof *list->moves));
    struct db_value max = db_number(MR_STORE_MOVES_KEPT);
    MR_TRY(tx_run(tx, SQL_MOVE_LIST, &max, 1, take_move, &page));
    list->moves = page.rows;
    list->n = page.n;
    return MR_OK;
}

const struct store_op op_moves_list = {
    .access = DB_READ,
    .carry = moves_carry,
    .timeless = true,
};
