/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What writes the ledger and moves timers on. The timers of a request are read once and change in
 * memory item by item; so do the rows of the ledger that it is about. Thread: the store's.
 */
#include "store/internal.h"

#include <stdlib.h>

/* A timer on its way through the items of a request. */
struct mover {
    struct mr_uuid uid;
    struct mr_slice name;
    uint64_t version;
    enum mr_row_state state; /* MR_ROW_NONE: there is none in this app */
    int64_t next_ms, last_ms;
    uint64_t fired;
    enum mr_row_state before; /* as it was read */
    bool written;
    bool touched;           /* something was done to it without a fence */
    bool counted;           /* its open rows matter: then they are known, */
    uint64_t open, running; /* and how many of them do not wait with a reason */
};

/* A row of the ledger likewise. */
struct entry {
    struct mr_store_firing row; /* state MR_LEDGER_NONE: there is none */
    bool added, changed;
};

/* What an item is about: keys are found by sorting, and then by their places. */
struct slot {
    const struct mr_uuid *uid;
    int64_t planned_ms;
    bool needs_timer, needs_row, counts;
    struct mover *mover;
    struct entry *entry;
};

struct work {
    struct tx *tx;
    struct mr_slice app;
    bool fenced;
    struct slot *slots; /* by item */
    size_t n;
    struct mover *movers;
    size_t movers_n;
    struct entry *entries;
    size_t entries_n;
};

/* ---- reading -------------------------------------------------------------------------------- */

static int compare_slots(const void *a, const void *b)
{
    const struct slot *x = *(struct slot *const *)a, *y = *(struct slot *const *)b;
    int order = memcmp(x->uid->bytes, y->uid->bytes, sizeof x->uid->bytes);
    return order != 0 ? order : (x->planned_ms > y->planned_ms) - (x->planned_ms < y->planned_ms);
}

static struct mover *mover_for(struct work *work, const struct slot *slot)
{
    struct mover *last = work->movers_n > 0 ? &work->movers[work->movers_n - 1] : NULL;
    if (last && memcmp(&last->uid, slot->uid, sizeof last->uid) == 0)
        return last;
    struct mover *mover = &work->movers[work->movers_n++];
    *mover = (struct mover){.uid = *slot->uid};
    return mover;
}

static struct entry *entry_for(struct work *work, const struct slot *slot)
{
    struct entry *last = work->entries_n > 0 ? &work->entries[work->entries_n - 1] : NULL;
    if (last && last->row.planned_ms == slot->planned_ms &&
        memcmp(&last->row.uid, slot->uid, sizeof last->row.uid) == 0)
        return last;
    struct entry *entry = &work->entries[work->entries_n++];
    *entry = (struct entry){.row = {.uid = *slot->uid, .planned_ms = slot->planned_ms}};
    return entry;
}

static enum mr_err work_init(struct work *work, struct tx *tx, struct mr_slice app,
                             const struct mr_store_fence *fence, size_t n)
{
    *work = (struct work){.tx = tx, .app = app, .fenced = fence->lease.len > 0, .n = n};
    work->slots = mr_arena_calloc(&tx->scratch, n, sizeof *work->slots);
    work->movers = mr_arena_calloc(&tx->scratch, n, sizeof *work->movers);
    work->entries = mr_arena_calloc(&tx->scratch, n, sizeof *work->entries);
    return work->slots && work->movers && work->entries ? MR_OK : MR_NOMEM;
}

/* An item that needs no timer, of one that another item moves: what is open of it counts there. */
static void share_movers(struct work *work, struct slot *const *sorted, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        while (at < work->movers_n &&
               memcmp(&work->movers[at].uid, sorted[i]->uid, sizeof work->movers[at].uid) < 0)
            at++;
        if (at < work->movers_n &&
            memcmp(&work->movers[at].uid, sorted[i]->uid, sizeof work->movers[at].uid) == 0)
            sorted[i]->mover = &work->movers[at];
    }
}

/* Slots without a uid are of items that are refused. */
static enum mr_err find_places(struct work *work)
{
    struct slot **sorted = mr_arena_calloc(&work->tx->scratch, work->n, sizeof *sorted);
    if (!sorted)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < work->n; i++) {
        if (work->slots[i].uid)
            sorted[n++] = &work->slots[i];
    }
    qsort(sorted, n, sizeof *sorted, compare_slots);
    for (size_t i = 0; i < n; i++) {
        if (sorted[i]->needs_timer)
            mover_for(work, sorted[i])->counted |= sorted[i]->counts;
        if (sorted[i]->needs_row)
            sorted[i]->entry = entry_for(work, sorted[i]);
    }
    share_movers(work, sorted, n);
    return MR_OK;
}

static enum mr_err take_mover(size_t item, const struct db_value *row, void *arg)
{
    struct work *work = arg;
    struct mover *mover = &work->movers[item];
    if (!mr_slice_equal(row[0].bytes, work->app))
        return MR_OK;
    mover->version = (uint64_t)row[2].number;
    mover->state = mover->before = (enum mr_row_state)row[3].number;
    mover->next_ms = row[4].number;
    mover->fired = (uint64_t)row[5].number;
    mover->last_ms = row[6].number;
    return mr_arena_copy(&work->tx->scratch, row[1].bytes, &mover->name);
}

static enum mr_err take_entry(size_t item, const struct db_value *row, void *arg)
{
    struct work *work = arg;
    return row_firing(row, &work->tx->scratch, &work->entries[item].row);
}

static enum mr_err take_running(size_t item, const struct db_value *row, void *arg)
{
    struct mover *const *movers = arg;
    movers[item]->running = (uint64_t)row[0].number;
    movers[item]->open = (uint64_t)row[1].number;
    return MR_OK;
}

static enum mr_err read_running(struct work *work, struct db_value *values)
{
    struct mover **movers = mr_arena_calloc(&work->tx->scratch, work->movers_n, sizeof *movers);
    size_t n = 0;
    if (!movers)
        return MR_NOMEM;
    for (size_t i = 0; i < work->movers_n; i++) {
        if (!work->movers[i].counted)
            continue;
        values[2 * n] = db_bytes(uid_slice(&work->movers[i].uid));
        values[2 * n + 1] = db_bytes(work->app);
        movers[n++] = &work->movers[i];
    }
    return tx_run(work->tx, SQL_FIRING_RUNNING, values, n, take_running, movers);
}

static enum mr_err read_places(struct work *work)
{
    MR_TRY(find_places(work));
    struct db_value *values = mr_arena_calloc(&work->tx->scratch, work->n, 2 * sizeof *values);
    if (!values)
        return MR_NOMEM;
    for (size_t i = 0; i < work->movers_n; i++)
        values[i] = db_bytes(uid_slice(&work->movers[i].uid));
    MR_TRY(tx_run(work->tx, SQL_TIMER_HEAD_BY_UID, values, work->movers_n, take_mover, work));
    MR_TRY(read_running(work, values));
    for (size_t i = 0; i < work->entries_n; i++) {
        values[2 * i] = db_bytes(uid_slice(&work->entries[i].row.uid));
        values[2 * i + 1] = db_number(work->entries[i].row.planned_ms);
    }
    return tx_run(work->tx, SQL_FIRING_GET, values, work->entries_n, take_entry, work);
}

/* ---- moving --------------------------------------------------------------------------------- */

static bool move_is_valid(const struct mr_store_move *move)
{
    if (!move->moves)
        return true;
    bool state_ok = move->state == MR_ROW_NONE || move->state == MR_ROW_ACTIVE ||
                    move->state == MR_ROW_FINISHED;
    state_ok = state_ok && (unsigned)move->when <= MR_STORE_WHEN_NONE_OPEN;
    return state_ok && time_is_valid(move->from_ms) && time_is_valid(move->to_ms) &&
           time_is_valid(move->last_ms) &&
           (move->from_ms != move->to_ms || move->state == MR_ROW_FINISHED);
}

static enum mr_row_state state_after(const struct mr_store_move *move)
{
    return move->state == MR_ROW_NONE ? MR_ROW_ACTIVE : move->state;
}

static bool can_move(const struct mover *mover, const struct mr_store_move *move)
{
    return mover->state == MR_ROW_ACTIVE && mover->version == move->version &&
           mover->next_ms == move->from_ms;
}

static bool is_time(const struct mover *mover, const struct mr_store_move *move)
{
    return move->when == MR_STORE_ALWAYS ||
           (mover->open > 0) == (move->when == MR_STORE_WHILE_OPEN);
}

static bool has_moved(const struct mover *mover, const struct mr_store_move *move)
{
    return mover->state == state_after(move) && mover->version == move->version &&
           mover->next_ms == move->to_ms;
}

static void move_on(struct mover *mover, const struct mr_store_move *move)
{
    mover->state = state_after(move);
    mover->next_ms = move->to_ms;
    mover->fired += move->counts;
    if (move->last_ms != 0)
        mover->last_ms = move->last_ms;
    mover->written = true;
}

/* ---- writing -------------------------------------------------------------------------------- */

enum { MOVE_VALUES = 5, TOUCH_VALUES = 2, ADD_VALUES = 15, SET_VALUES = 10 };

/* So that who holds the lease sees them. */
static enum mr_err touch_movers(struct work *work)
{
    struct db_value *values =
        mr_arena_calloc(&work->tx->scratch, work->movers_n, TOUCH_VALUES * sizeof *values);
    struct tx_app *app = tx_app(work->tx, work->app);
    if (!values)
        return MR_NOMEM;
    mr_assert(app);
    size_t n = 0;
    for (size_t i = 0; i < work->movers_n; i++) {
        if (!work->movers[i].touched)
            continue;
        values[TOUCH_VALUES * n] = db_bytes(uid_slice(&work->movers[i].uid));
        values[TOUCH_VALUES * n++ + 1] = db_number((int64_t)app->changed);
    }
    return tx_run(work->tx, SQL_TIMER_TOUCH, values, n, NULL, NULL);
}

static enum mr_err write_movers(struct work *work)
{
    struct db_value *values =
        mr_arena_calloc(&work->tx->scratch, work->movers_n, MOVE_VALUES * sizeof *values);
    struct tx_app *app = tx_app(work->tx, work->app);
    if (!values)
        return MR_NOMEM;
    mr_assert(app);
    size_t n = 0;
    for (size_t i = 0; i < work->movers_n; i++) {
        const struct mover *mover = &work->movers[i];
        if (!mover->written)
            continue;
        tx_app_count(app, mover->before, mover->state);
        struct db_value *at = values + MOVE_VALUES * n++;
        *at++ = db_bytes(uid_slice(&mover->uid));
        *at++ = db_number(mover->state);
        *at++ = db_number(mover->next_ms);
        *at++ = db_number((int64_t)mover->fired);
        *at++ = db_number(mover->last_ms);
    }
    return tx_run(work->tx, SQL_TIMER_MOVE, values, n, NULL, NULL);
}

static void add_values(const struct mr_store_firing *row, struct db_value *at)
{
    *at++ = db_bytes(row->app);
    *at++ = db_bytes(row->name);
    *at++ = db_bytes(uid_slice(&row->uid));
    *at++ = db_number(row->planned_ms);
    *at++ = db_number(row->until_ms);
    *at++ = db_number(row->run);
    *at++ = db_number(row->kind);
    *at++ = db_number(row->state);
    *at++ = db_bytes(row->reason);
    *at++ = db_number(row->attempt);
    *at++ = db_number(row->fired_ms);
    *at++ = db_number(row->started_ms);
    *at++ = db_number(row->finished_ms);
    *at++ = db_bytes(row->target);
    *at++ = db_bytes(row->home);
}

static void set_values(const struct mr_store_firing *row, struct db_value *at)
{
    *at++ = db_bytes(uid_slice(&row->uid));
    *at++ = db_number(row->planned_ms);
    *at++ = db_number(row->run);
    *at++ = db_number(row->state);
    *at++ = db_bytes(row->reason);
    *at++ = db_number(row->attempt);
    *at++ = db_number(row->started_ms);
    *at++ = db_number(row->finished_ms);
    *at++ = db_bytes(row->target);
    *at++ = db_bytes(row->home);
}

static enum mr_err write_entries(struct work *work, bool added)
{
    size_t width = added ? ADD_VALUES : SET_VALUES;
    struct db_value *values =
        mr_arena_calloc(&work->tx->scratch, work->entries_n, width * sizeof *values);
    if (!values)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < work->entries_n; i++) {
        const struct entry *entry = &work->entries[i];
        if (added ? entry->added : entry->changed)
            (added ? add_values : set_values)(&entry->row, values + width * n++);
    }
    return tx_run(work->tx, added ? SQL_FIRING_ADD : SQL_FIRING_SET, values, n, NULL, NULL);
}

/* ---- FIRE ----------------------------------------------------------------------------------- */

static bool target_is_valid(struct mr_slice target)
{
    return target.len <= MR_STORE_TARGET_MAX && mr_utf8_valid(target) &&
           (target.len == 0 || memchr(target.data, '\0', target.len) == NULL);
}

static enum mr_err fire_check_item(const struct mr_store_fire *item)
{
    bool row_ok = item->state < MR_LEDGER_STATE_COUNT && item->kind <= MR_LEDGER_CAUGHT_UP &&
                  item->run <= INT32_MAX;
    bool times_ok = time_is_valid(item->planned_ms) && time_is_valid(item->until_ms) &&
                    time_is_valid(item->fired_ms) && time_is_valid(item->finished_ms);
    bool does =
        item->state == MR_LEDGER_NONE ? item->move.moves : item->move.when == MR_STORE_ALWAYS;
    return row_ok && times_ok && does && target_is_valid(item->target) &&
                   home_check(item->home) == MR_OK && !uid_is_zero(&item->uid) &&
                   move_is_valid(&item->move)
               ? MR_OK
               : MR_INVALID;
}

static enum mr_err fire_row(struct work *work, const struct slot *slot,
                            const struct mr_store_fire *item)
{
    bool open = mr_ledger_is_open(item->state);
    int64_t finished_ms = item->finished_ms != 0 ? item->finished_ms : item->fired_ms;
    slot->entry->row = (struct mr_store_firing){
        .app = work->app,
        .name = slot->mover->name,
        .uid = item->uid,
        .planned_ms = item->planned_ms,
        .until_ms = item->until_ms,
        .run = item->run,
        .kind = item->kind,
        .state = item->state,
        .target = item->target,
        .home = item->home,
        .fired_ms = item->fired_ms,
        .finished_ms = open ? 0 : finished_ms,
    };
    slot->entry->added = true;
    slot->mover->open += open;
    slot->mover->running += open && (item->state != MR_LEDGER_WAITING || item->reason.len == 0);
    return reason_copy(&work->tx->scratch, item->reason, &slot->entry->row.reason);
}

/* Not one of another app, whose row may be there all the same: its numbers are others. */
static void touch(const struct work *work, struct mover *mover, enum mr_err err)
{
    mover->touched |= !work->fenced && err == MR_OK && mover->state != MR_ROW_NONE;
}

/* Only a move. */
static enum mr_err fire_move(struct mover *mover, const struct mr_store_move *move)
{
    if (mover->state == MR_ROW_NONE)
        return MR_NOT_FOUND;
    if (!can_move(mover, move))
        return has_moved(mover, move) ? MR_OK : MR_STALE;
    if (!is_time(mover, move))
        return MR_WRONG_STATE;
    move_on(mover, move);
    return MR_OK;
}

static enum mr_err fire_item(struct work *work, const struct slot *slot,
                             const struct mr_store_fire *item, struct mr_store_fired *result)
{
    struct mover *mover = slot->mover;
    if (!slot->entry) {
        result->err = fire_move(mover, &item->move);
        touch(work, mover, result->err);
        return MR_OK;
    }
    struct mr_store_firing *row = &slot->entry->row;
    bool moves = item->move.moves && can_move(mover, &item->move);
    result->existed = row->state != MR_LEDGER_NONE;
    if (!result->existed) {
        if (mover->state == MR_ROW_NONE)
            result->err = MR_NOT_FOUND;
        else if (item->move.moves && !moves)
            result->err = MR_STALE;
        else if (item->limit > 0 && mover->running >= item->limit)
            result->err = MR_RUNNING;
        else
            MR_TRY(fire_row(work, slot, item));
    }
    if (moves && result->err == MR_OK)
        move_on(mover, &item->move);
    touch(work, mover, result->err);
    result->state = row->state;
    result->run = row->run;
    return MR_OK;
}

static enum mr_err fire_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_fire_batch *fire = store_request(req, mr_store_fire_batch);
#ifndef MR_PLANT_FIRED_WITHOUT_LEASE
    req->err = tx_fence(tx, &fire->fence);
    if (req->err != MR_OK)
        return MR_OK;
#endif
    struct work work;
    MR_TRY(work_init(&work, tx, fire->app, &fire->fence, fire->n));
    for (size_t i = 0; i < fire->n; i++) {
        const struct mr_store_fire *item = &fire->items[i];
        fire->results[i] = (struct mr_store_fired){.err = fire_check_item(item)};
        if (fire->results[i].err == MR_OK)
            work.slots[i] = (struct slot){.uid = &item->uid,
                                          .planned_ms = item->planned_ms,
                                          .needs_timer = true,
                                          .needs_row = item->state != MR_LEDGER_NONE,
                                          .counts = item->limit > 0 || item->move.when};
    }
    MR_TRY(read_places(&work));
    for (size_t i = 0; i < fire->n; i++) {
        if (work.slots[i].uid)
            MR_TRY(fire_item(&work, &work.slots[i], &fire->items[i], &fire->results[i]));
    }
    MR_TRY(write_entries(&work, true));
    MR_TRY(write_movers(&work));
    return touch_movers(&work);
}

static enum mr_err lock_names(const struct mr_store_fence *fence, struct mr_slice app,
                              struct tx_locks *locks)
{
    if (fence->lease.len > 0)
        MR_TRY(tx_names_add(&locks->fences, fence->lease));
    return tx_names_add(&locks->apps, app);
}

/* The name of a fence need not be one that a lease can have: then nobody holds it. */
static enum mr_err check_batch(const struct mr_store_fence *fence, struct mr_slice app, size_t n)
{
    if (n > MR_STORE_BATCH_MAX)
        return MR_TOO_BIG;
    if (fence->lease.len > 0 &&
        (!mr_utf8_valid(fence->lease) || memchr(fence->lease.data, '\0', fence->lease.len)))
        return MR_INVALID;
    return mr_name_check(app);
}

static enum mr_err fire_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_fire_batch *fire = store_request(req, mr_store_fire_batch);
    return lock_names(&fire->fence, fire->app, locks);
}

static enum mr_err fire_check(const struct mr_store_req *req)
{
    const struct mr_store_fire_batch *fire = store_request(req, mr_store_fire_batch);
    return check_batch(&fire->fence, fire->app, fire->n);
}

static size_t fire_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_fire_batch)->n;
}

static void fire_fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_fire_batch *fire = store_request(req, mr_store_fire_batch);
    for (size_t i = 0; fire->n <= MR_STORE_BATCH_MAX && i < fire->n; i++)
        fire->results[i] = (struct mr_store_fired){.err = err};
}

const struct store_op op_fire = {
    .access = DB_WRITE,
    .cost = fire_cost,
    .check = fire_check,
    .locks = fire_locks,
    .carry = fire_carry,
    .fail = fire_fail,
};

/* ---- FIRING_SET ----------------------------------------------------------------------------- */

static enum mr_err set_check_item(const struct mr_store_set *item)
{
    bool row_ok = item->to > MR_LEDGER_NONE && item->to < MR_LEDGER_STATE_COUNT &&
                  item->run <= INT32_MAX && item->attempt <= INT32_MAX &&
                  (!item->again || item->run > 0);
    bool times_ok = time_is_valid(item->planned_ms) && time_is_valid(item->started_ms) &&
                    time_is_valid(item->finished_ms);
    return row_ok && times_ok && !uid_is_zero(&item->uid) && move_is_valid(&item->move) &&
                   target_is_valid(item->target) && home_check(item->home) == MR_OK
               ? MR_OK
               : MR_INVALID;
}

/* What stands between an item and its row. */
static enum mr_err set_refusal(const struct mr_store_firing *row, const struct mr_store_set *item)
{
    if (row->run != (item->again ? item->run - 1 : item->run))
        return MR_STALE;
    return (item->from & MR_LEDGER_BIT(row->state)) != 0 ? MR_OK : MR_WRONG_STATE;
}

/* Its own effect, found again. */
static bool set_is_done(const struct mr_store_firing *row, const struct mr_store_set *item)
{
    if (item->again)
        return row->run == item->run;
    return row->run == item->run && row->state == item->to &&
           (item->from & MR_LEDGER_BIT(row->state)) == 0 &&
           (item->home.len == 0 || mr_slice_equal(item->home, row->home));
}

static enum mr_err set_row(struct work *work, struct mover *mover, struct entry *entry,
                           const struct mr_store_set *item)
{
    struct mr_store_firing *row = &entry->row;
    if (mover != NULL && mover->counted)
        mover->open += mr_ledger_is_open(item->to) - (uint64_t)mr_ledger_is_open(row->state);
    row->run = item->run;
    row->state = item->to;
    if (item->again)
        row->target = item->target;
    if (item->home.len > 0 || item->again)
        row->home = item->home;
    if (item->attempt != 0 || item->again)
        row->attempt = item->attempt;
    if (item->started_ms != 0 || item->again)
        row->started_ms = item->started_ms;
    if (item->finished_ms != 0 || item->again)
        row->finished_ms = item->finished_ms;
    /* Retention goes by it. */
    if (!mr_ledger_is_open(row->state) && row->finished_ms == 0)
        row->finished_ms = work->tx->now_ms;
    entry->changed = true;
    return reason_copy(&work->tx->scratch, item->reason, &row->reason);
}

/* The timer stands where the move begins, but it is not the one that who wants to move it knows. */
static bool was_changed(const struct mover *mover, const struct mr_store_move *move)
{
    return mover->state == MR_ROW_ACTIVE && mover->next_ms == move->from_ms &&
           mover->version != move->version;
}

static bool set_move(struct mover *mover, const struct mr_store_move *move)
{
    if (!can_move(mover, move) || !is_time(mover, move))
        return has_moved(mover, move);
    move_on(mover, move);
    return true;
}

static enum mr_err set_item(struct work *work, const struct slot *slot,
                            const struct mr_store_set *item, struct mr_store_set_result *result)
{
    struct mr_store_firing *row = &slot->entry->row;
    if (row->state == MR_LEDGER_NONE || !mr_slice_equal(row->app, work->app)) {
        result->err = MR_NOT_FOUND;
        return MR_OK;
    }
    bool done = set_is_done(row, item);
    result->err = done ? MR_OK : set_refusal(row, item);
    if (result->err == MR_OK && item->move.moves && was_changed(slot->mover, &item->move))
        result->err = MR_CONFLICT;
    if (result->err == MR_OK && !done)
        MR_TRY(set_row(work, slot->mover, slot->entry, item));
    result->state = row->state;
    result->run = row->run;
    if (result->err == MR_OK && slot->mover) {
        touch(work, slot->mover, result->err);
        result->moved = item->move.moves && set_move(slot->mover, &item->move);
    }
    return MR_OK;
}

static enum mr_err set_carry(struct tx *tx, struct mr_store_req *req)
{
    struct mr_store_firing_set *set = store_request(req, mr_store_firing_set);
    req->err = tx_fence(tx, &set->fence);
    if (req->err != MR_OK)
        return MR_OK;
    struct work work;
    MR_TRY(work_init(&work, tx, set->app, &set->fence, set->n));
    for (size_t i = 0; i < set->n; i++) {
        const struct mr_store_set *item = &set->items[i];
        set->results[i] = (struct mr_store_set_result){.err = set_check_item(item)};
        if (set->results[i].err == MR_OK)
            work.slots[i] = (struct slot){.uid = &item->uid,
                                          .planned_ms = item->planned_ms,
                                          .needs_timer = item->move.moves || !work.fenced,
                                          .needs_row = true,
                                          .counts = item->move.when != MR_STORE_ALWAYS};
    }
    MR_TRY(read_places(&work));
    for (size_t i = 0; i < set->n; i++) {
        if (work.slots[i].uid)
            MR_TRY(set_item(&work, &work.slots[i], &set->items[i], &set->results[i]));
    }
    MR_TRY(write_entries(&work, false));
    MR_TRY(write_movers(&work));
    return touch_movers(&work);
}

static enum mr_err set_locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_firing_set *set = store_request(req, mr_store_firing_set);
    return lock_names(&set->fence, set->app, locks);
}

static enum mr_err set_check(const struct mr_store_req *req)
{
    const struct mr_store_firing_set *set = store_request(req, mr_store_firing_set);
    return check_batch(&set->fence, set->app, set->n);
}

static size_t set_cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_firing_set)->n;
}

static void set_fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_firing_set *set = store_request(req, mr_store_firing_set);
    for (size_t i = 0; set->n <= MR_STORE_BATCH_MAX && i < set->n; i++)
        set->results[i] = (struct mr_store_set_result){.err = err};
}

const struct store_op op_firing_set = {
    .access = DB_WRITE,
    .cost = set_cost,
    .check = set_check,
    .locks = set_locks,
    .carry = set_carry,
    .fail = set_fail,
};
