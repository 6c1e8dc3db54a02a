/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction: its locks, what is in them, and what operations share. Thread: the store's. */
#include "store/internal.h"

#include <stdlib.h>

enum { NAMES_FIRST = 16 };

enum mr_err tx_names_add(struct tx_names *names, struct mr_slice name)
{
    if (names->n > 0 && mr_slice_equal(names->names[names->n - 1], name))
        return MR_OK;
    if (names->n == names->cap) {
        size_t cap = names->cap > 0 ? 2 * names->cap : NAMES_FIRST;
        struct mr_slice *grown = mr_arena_calloc(names->arena, cap, sizeof *grown);
        if (!grown)
            return MR_NOMEM;
        if (names->n > 0)
            memcpy(grown, names->names, names->n * sizeof *grown);
        names->names = grown;
        names->cap = cap;
    }
    names->names[names->n++] = name;
    return MR_OK;
}

static int compare_names(const void *a, const void *b)
{
    return mr_slice_compare(*(const struct mr_slice *)a, *(const struct mr_slice *)b);
}

/* In their order, each once. */
static void names_sort(struct tx_names *names)
{
    if (names->n == 0)
        return;
    qsort(names->names, names->n, sizeof *names->names, compare_names);
    size_t n = 1;
    for (size_t i = 1; i < names->n; i++) {
        if (!mr_slice_equal(names->names[i], names->names[n - 1]))
            names->names[n++] = names->names[i];
    }
    names->n = n;
}

static enum mr_err take_lease(size_t item, const struct db_value *row, void *arg)
{
    struct tx *tx = arg;
    struct tx_lease *lease = &tx->leases[item];
    lease->token = (uint64_t)row[1].number;
    lease->until_ms = row[2].number;
    lease->ttl_ms = row[3].number;
    lease->there = true;
    return mr_arena_copy(&tx->scratch, row[0].bytes, &lease->owner);
}

static struct db_value *values_of_names(struct tx *tx, const struct tx_names *names)
{
    struct db_value *values = mr_arena_calloc(&tx->scratch, names->n, sizeof *values);
    for (size_t i = 0; values && i < names->n; i++)
        values[i] = db_bytes(names->names[i]);
    return values;
}

static enum mr_err lock_leases(struct tx *tx, struct tx_locks *locks)
{
    names_sort(&locks->leases);
    struct tx_names *made = &locks->leases;
    struct tx_names *all = &locks->fences;
    struct db_value *values = values_of_names(tx, made);
    if (!values)
        return MR_NOMEM;
    MR_TRY(tx_run(tx, SQL_LEASE_ADD, values, made->n, NULL, NULL));
    for (size_t i = 0; i < made->n; i++)
        MR_TRY(tx_names_add(all, made->names[i]));
    names_sort(all);
    values = values_of_names(tx, all);
    tx->leases = mr_arena_calloc(&tx->scratch, all->n, sizeof *tx->leases);
    if (!values || !tx->leases)
        return MR_NOMEM;
    for (size_t i = 0; i < all->n; i++)
        tx->leases[i].name = all->names[i];
    tx->leases_n = all->n;
    return tx_run(tx, SQL_LEASE_LOCK, values, all->n, take_lease, tx);
}

static enum mr_err take_touched(size_t item, const struct db_value *row, void *arg)
{
    (void)item;
    struct tx *tx = arg;
    tx->apps[tx->apps_n++].changed = (uint64_t)row[0].number;
    tx->now_ms = row[1].number;
    return MR_OK;
}

static enum mr_err lock_apps(struct tx *tx, struct tx_names *names)
{
    names_sort(names);
    tx->apps = mr_arena_calloc(&tx->scratch, names->n, sizeof *tx->apps);
    if (!tx->apps)
        return MR_NOMEM;
    for (size_t i = 0; i < names->n; i++) {
        tx->apps[i].name = names->names[i];
        struct db_value value = db_bytes(tx->apps[i].name);
        MR_TRY(tx_run(tx, SQL_APP_TOUCH, &value, 1, take_touched, tx));
    }
    mr_assert(tx->apps_n == names->n);
    return MR_OK;
}

enum mr_err tx_lock(struct tx *tx, struct tx_locks *locks)
{
    if (locks->leases.n > 0 || locks->fences.n > 0)
        MR_TRY(lock_leases(tx, locks));
    if (locks->apps.n > 0)
        MR_TRY(lock_apps(tx, &locks->apps));
    bool jobs = locks->segment || locks->jobs.n > 0;
    if (jobs) {
        names_sort(&locks->jobs);
        MR_TRY(tx_jobs_lock(tx, locks));
    }
    /* The clock that came with apps has seen all locks, when they came last. */
    if ((tx->now_ms == 0 || jobs) && locks->clock)
        MR_TRY(tx->db->ops->now(tx->db, &tx->now_ms));
    return tx_jobs_mend(tx);
}

static int compare_to_lease(const void *name, const void *lease)
{
    return mr_slice_compare(*(const struct mr_slice *)name, ((const struct tx_lease *)lease)->name);
}

struct tx_lease *tx_lease(struct tx *tx, struct mr_slice name)
{
    if (tx->leases_n == 0)
        return NULL;
    struct tx_lease *lease =
        bsearch(&name, tx->leases, tx->leases_n, sizeof *tx->leases, compare_to_lease);
    return lease && lease->there ? lease : NULL;
}

static int compare_to_app(const void *name, const void *app)
{
    return mr_slice_compare(*(const struct mr_slice *)name, ((const struct tx_app *)app)->name);
}

struct tx_app *tx_app(struct tx *tx, struct mr_slice name)
{
    if (tx->apps_n == 0)
        return NULL;
    return bsearch(&name, tx->apps, tx->apps_n, sizeof *tx->apps, compare_to_app);
}

void tx_app_count(struct tx_app *app, enum mr_row_state from, enum mr_row_state to)
{
    if (from <= MR_ROW_FINISHED)
        app->counts[from]--;
    if (to <= MR_ROW_FINISHED)
        app->counts[to]++;
}

enum mr_err tx_end(struct tx *tx)
{
    MR_TRY(tx_jobs_write(tx));
    for (size_t i = 0; i < tx->apps_n; i++) {
        const struct tx_app *app = &tx->apps[i];
        const int64_t *counts = app->counts;
        struct db_value values[] = {
            db_bytes(app->name),
            db_number(counts[MR_ROW_ACTIVE]),
            db_number(counts[MR_ROW_PAUSED]),
            db_number(counts[MR_ROW_FINISHED]),
        };
        if (counts[MR_ROW_ACTIVE] != 0 || counts[MR_ROW_PAUSED] != 0 ||
            counts[MR_ROW_FINISHED] != 0)
            MR_TRY(tx_run(tx, SQL_APP_COUNT, values, 1, NULL, NULL));
    }
    return MR_OK;
}

/* A time further ahead than the lease was long comes from a clock that has been set back since. */
bool tx_lease_held(const struct tx_lease *lease, int64_t now_ms)
{
    return lease->until_ms > now_ms && lease->until_ms - now_ms <= lease->ttl_ms;
}

enum mr_err tx_fence(struct tx *tx, const struct mr_store_fence *fence)
{
    if (fence->lease.len == 0)
        return MR_OK;
    const struct tx_lease *lease = tx_lease(tx, fence->lease);
    return lease && lease->token == fence->token && tx_lease_held(lease, tx->now_ms) ? MR_OK
                                                                                     : MR_STALE;
}

enum mr_err tx_lease_write(struct tx *tx, const struct tx_lease *lease)
{
    struct db_value values[] = {
        db_bytes(lease->name),      db_bytes(lease->owner),   db_number((int64_t)lease->token),
        db_number(lease->until_ms), db_number(lease->ttl_ms),
    };
    return tx_run(tx, SQL_LEASE_SET, values, 1, NULL, NULL);
}

enum mr_err fence_check(const struct mr_store_fence *fence)
{
    bool ok = fence->lease.len == 0 ||
              (mr_utf8_valid(fence->lease) && !memchr(fence->lease.data, '\0', fence->lease.len));
    return ok ? MR_OK : MR_INVALID;
}

/* ---- rows ----------------------------------------------------------------------------------- */

enum mr_err page_check(size_t max)
{
    if (max == 0)
        return MR_INVALID;
    return max > MR_STORE_BATCH_MAX ? MR_TOO_BIG : MR_OK;
}

enum mr_err page_init(struct page *page, struct mr_arena *arena, size_t max, size_t size)
{
    *page = (struct page){.arena = arena, .max = max};
    page->rows = mr_arena_calloc(arena, max, size);
    return page->rows ? MR_OK : MR_NOMEM;
}

enum mr_err row_uid(struct mr_slice bytes, struct mr_uuid *ret_uid)
{
    if (bytes.len != sizeof ret_uid->bytes)
        return MR_DAMAGED;
    memcpy(ret_uid->bytes, bytes.data, sizeof ret_uid->bytes);
    return MR_OK;
}

bool uid_is_zero(const struct mr_uuid *uid)
{
    return mr_load64(uid->bytes) == 0 && mr_load64(uid->bytes + 8) == 0;
}

static enum mr_err row_row_state(int64_t number, enum mr_row_state *ret_state)
{
    if (number <= MR_ROW_NONE || number >= MR_ROW_STATE_COUNT)
        return MR_DAMAGED;
    *ret_state = (enum mr_row_state)number;
    return MR_OK;
}

enum mr_err row_timer(const struct db_value *row, struct mr_arena *arena,
                      struct mr_store_timer *ret_timer)
{
    MR_TRY(mr_arena_copy(arena, row[0].bytes, &ret_timer->app));
    MR_TRY(mr_arena_copy(arena, row[1].bytes, &ret_timer->name));
    MR_TRY(row_uid(row[2].bytes, &ret_timer->uid));
    ret_timer->version = (uint64_t)row[3].number;
    MR_TRY(row_row_state(row[4].number, &ret_timer->state));
    MR_TRY(mr_arena_copy(arena, row[5].bytes, &ret_timer->definition));
    ret_timer->next_ms = row[6].number;
    ret_timer->fired = (uint64_t)row[7].number;
    ret_timer->last_ms = row[8].number;
    ret_timer->created_ms = row[9].number;
    ret_timer->changed = (uint64_t)row[10].number;
    return MR_OK;
}

enum mr_err row_firing(const struct db_value *row, struct mr_arena *arena,
                       struct mr_store_firing *ret_firing)
{
    if (row[6].number < 0 || row[6].number > MR_LEDGER_CAUGHT_UP ||
        row[7].number <= MR_LEDGER_NONE || row[7].number >= MR_LEDGER_STATE_COUNT)
        return MR_DAMAGED;
    MR_TRY(mr_arena_copy(arena, row[0].bytes, &ret_firing->app));
    MR_TRY(mr_arena_copy(arena, row[1].bytes, &ret_firing->name));
    MR_TRY(row_uid(row[2].bytes, &ret_firing->uid));
    ret_firing->planned_ms = row[3].number;
    ret_firing->until_ms = row[4].number;
    ret_firing->run = (uint32_t)row[5].number;
    ret_firing->kind = (enum mr_ledger_kind)row[6].number;
    ret_firing->state = (enum mr_ledger_state)row[7].number;
    ret_firing->attempt = (uint32_t)row[9].number;
    ret_firing->fired_ms = row[10].number;
    ret_firing->started_ms = row[11].number;
    ret_firing->finished_ms = row[12].number;
    MR_TRY(mr_arena_copy(arena, row[13].bytes, &ret_firing->target));
    MR_TRY(mr_arena_copy(arena, row[14].bytes, &ret_firing->home));
    return mr_arena_copy(arena, row[8].bytes, &ret_firing->reason);
}

enum mr_err text_copy(struct mr_arena *arena, struct mr_slice text, size_t max,
                      struct mr_slice *ret_copy)
{
    struct mr_slice copy;
    text.len = mr_utf8_cut(text, max);
    MR_TRY(mr_arena_copy(arena, text, &copy));
    char *bytes = (char *)copy.data;
    mr_utf8_clean(bytes, copy.len);
    for (size_t i = 0; i < copy.len; i++) {
        if (bytes[i] == '\0')
            bytes[i] = '?';
    }
    *ret_copy = copy;
    return MR_OK;
}

enum mr_err reason_copy(struct mr_arena *arena, struct mr_slice reason, struct mr_slice *ret_copy)
{
    return text_copy(arena, reason, MR_STORE_REASON_MAX, ret_copy);
}

enum mr_err text_check(struct mr_slice text, size_t max)
{
    if (text.len > max)
        return MR_TOO_BIG;
    if (text.len == 0 || memchr(text.data, '\0', text.len))
        return MR_INVALID;
    return mr_utf8_valid(text) ? MR_OK : MR_INVALID;
}

enum mr_err name_or_empty(struct mr_slice name)
{
    return name.len == 0 ? MR_OK : mr_name_check(name);
}

enum mr_err home_check(struct mr_slice home)
{
    return home.len == 0 ? MR_OK : text_check(home, MR_STORE_OWNER_MAX);
}
