/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is applied to timers. Items that are about the same timer are carried out one after the other
 * in memory; only what it comes to is written. Thread: the store's.
 */
#include "store/internal.h"

#include <stdlib.h>

/* Limits of a request, beside the number of its items: a message to a database has to hold it. */
#define BYTES_MAX (256u * 1024 * 1024)

/* A timer on its way through the items of a request. */
struct head {
    struct mr_slice app, name;
    struct mr_uuid uid;
    uint64_t version;
    enum mr_row_state state; /* MR_ROW_NONE: no row */
    struct mr_slice definition;
    int64_t next_ms, last_ms, created_ms;
    uint64_t fired;
    enum mr_row_state before; /* as it was read */
    bool written;
};

/* An item, sorted by its timer. */
struct place {
    const struct mr_store_apply *item;
    struct mr_store_applied *result;
    struct head *head;
    bool uid_taken;
};

struct work {
    struct tx *tx;
    struct place *places; /* by app, name, and the order of items */
    size_t n;
    struct head *heads; /* likewise, one per timer */
    size_t heads_n;
};

static bool is_tombstone(enum mr_row_state state)
{
    return state >= MR_ROW_DELETED;
}

/* ---- the door ------------------------------------------------------------------------------- */

static enum mr_err check_put(const struct mr_store_apply *item)
{
    if (item->definition.len > MR_STORE_DEFINITION_MAX)
        return MR_TOO_BIG;
    bool state_ok = item->state >= MR_ROW_ACTIVE && item->state <= MR_ROW_FINISHED;
    bool times_ok = time_is_valid(item->next_ms) && time_is_valid(item->created_ms);
    return state_ok && times_ok && !uid_is_zero(&item->uid) ? MR_OK : MR_INVALID;
}

static enum mr_err check_item(const struct mr_store_apply *item)
{
    MR_TRY(mr_name_check(item->app));
    MR_TRY(mr_name_check(item->name));
    if (item->version == 0 || item->version > INT64_MAX)
        return MR_INVALID;
    if (item->verb == MR_APPLY_DELETE)
        return MR_OK;
    return item->verb == MR_APPLY_PUT ? check_put(item) : MR_INVALID;
}

static enum mr_err check(const struct mr_store_req *req)
{
    const struct mr_store_timers_apply *apply = store_request(req, mr_store_timers_apply);
    if (apply->n > MR_STORE_BATCH_MAX)
        return MR_TOO_BIG;
    size_t bytes = 0;
    for (size_t i = 0; i < apply->n; i++) {
        size_t len = apply->items[i].definition.len;
        bytes += len < BYTES_MAX ? len : BYTES_MAX;
    }
    return bytes > BYTES_MAX ? MR_TOO_BIG : MR_OK;
}

static enum mr_err locks(const struct mr_store_req *req, struct tx_locks *locks)
{
    const struct mr_store_timers_apply *apply = store_request(req, mr_store_timers_apply);
    for (size_t i = 0; i < apply->n; i++) {
        if (check_item(&apply->items[i]) == MR_OK)
            MR_TRY(tx_names_add(&locks->apps, apply->items[i].app));
    }
    return MR_OK;
}

static size_t cost(const struct mr_store_req *req)
{
    return store_request(req, mr_store_timers_apply)->n;
}

static void fail(struct mr_store_req *req, enum mr_err err)
{
    struct mr_store_timers_apply *apply = store_request(req, mr_store_timers_apply);
    for (size_t i = 0; apply->n <= MR_STORE_BATCH_MAX && i < apply->n; i++)
        apply->results[i] = (struct mr_store_applied){.err = err};
}

/* ---- reading -------------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = mr_slice_compare(x->item->app, y->item->app);
    if (order == 0)
        order = mr_slice_compare(x->item->name, y->item->name);
    return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

static enum mr_err sort_items(struct work *work, const struct mr_store_timers_apply *apply)
{
    struct mr_arena *arena = &work->tx->scratch;
    work->places = mr_arena_calloc(arena, apply->n, sizeof *work->places);
    work->heads = mr_arena_calloc(arena, apply->n, sizeof *work->heads);
    if (!work->places || !work->heads)
        return MR_NOMEM;
    for (size_t i = 0; i < apply->n; i++) {
        apply->results[i] = (struct mr_store_applied){.err = check_item(&apply->items[i])};
        if (apply->results[i].err == MR_OK)
            work->places[work->n++] =
                (struct place){&apply->items[i], &apply->results[i], NULL, false};
    }
    qsort(work->places, work->n, sizeof *work->places, compare_places);
    for (size_t i = 0; i < work->n; i++) {
        struct head *head = work->heads_n > 0 ? &work->heads[work->heads_n - 1] : NULL;
        const struct mr_store_apply *item = work->places[i].item;
        if (!head || !mr_slice_equal(head->app, item->app) ||
            !mr_slice_equal(head->name, item->name)) {
            head = &work->heads[work->heads_n++];
            *head = (struct head){.app = item->app, .name = item->name};
        }
        work->places[i].head = head;
    }
    return MR_OK;
}

static enum mr_err take_head(size_t item, const struct db_value *row, void *arg)
{
    struct work *work = arg;
    struct head *head = &work->heads[item];
    MR_TRY(row_uid(row[0].bytes, &head->uid));
    head->version = (uint64_t)row[1].number;
    head->state = head->before = (enum mr_row_state)row[2].number;
    head->next_ms = row[3].number;
    head->fired = (uint64_t)row[4].number;
    head->last_ms = row[5].number;
    head->created_ms = row[6].number;
    return MR_OK;
}

static enum mr_err read_heads(struct work *work)
{
    struct db_value *keys = mr_arena_calloc(&work->tx->scratch, work->heads_n, 2 * sizeof *keys);
    if (!keys)
        return MR_NOMEM;
    for (size_t i = 0; i < work->heads_n; i++) {
        keys[2 * i] = db_bytes(work->heads[i].app);
        keys[2 * i + 1] = db_bytes(work->heads[i].name);
    }
    return tx_run(work->tx, SQL_TIMER_HEAD_BY_NAME, keys, work->heads_n, take_head, work);
}

/* ---- uids ----------------------------------------------------------------------------------- */

/* Puts that bring a uid to a name that has not got it. */
struct bringers {
    struct place **places;
    size_t n;
};

static enum mr_err take_owner(size_t item, const struct db_value *row, void *arg)
{
    struct place *place = ((struct bringers *)arg)->places[item];
    if (!mr_slice_equal(row[0].bytes, place->item->app) ||
        !mr_slice_equal(row[1].bytes, place->item->name))
        place->uid_taken = true;
    return MR_OK;
}

static int compare_bringers(const void *a, const void *b)
{
    const struct place *x = *(struct place *const *)a, *y = *(struct place *const *)b;
    int order = memcmp(x->item->uid.bytes, y->item->uid.bytes, sizeof x->item->uid.bytes);
    return order != 0 ? order : (x->item > y->item) - (x->item < y->item);
}

/* Of two timers in the same request the first item has it. */
static void find_twins(struct bringers *bringers)
{
    qsort(bringers->places, bringers->n, sizeof *bringers->places, compare_bringers);
    struct place *first = bringers->n > 0 ? bringers->places[0] : NULL;
    for (size_t i = 1; i < bringers->n; i++) {
        struct place *place = bringers->places[i];
        if (memcmp(&place->item->uid, &first->item->uid, sizeof first->item->uid) != 0)
            first = place;
        else if (place->head != first->head)
            place->uid_taken = true;
    }
}

static enum mr_err find_taken_uids(struct work *work)
{
    struct bringers bringers = {0};
    bringers.places = mr_arena_calloc(&work->tx->scratch, work->n, sizeof *bringers.places);
    struct db_value *keys = mr_arena_calloc(&work->tx->scratch, work->n, sizeof *keys);
    if (!bringers.places || !keys)
        return MR_NOMEM;
    for (size_t i = 0; i < work->n; i++) {
        struct place *place = &work->places[i];
        bool has_it = place->head->state != MR_ROW_NONE && !is_tombstone(place->head->state) &&
                      memcmp(&place->head->uid, &place->item->uid, sizeof place->head->uid) == 0;
        if (place->item->verb == MR_APPLY_PUT && !has_it) {
            keys[bringers.n] = db_bytes(uid_slice(&place->item->uid));
            bringers.places[bringers.n++] = place;
        }
    }
    MR_TRY(tx_run(work->tx, SQL_TIMER_HEAD_BY_UID, keys, bringers.n, take_owner, &bringers));
    find_twins(&bringers);
    return MR_OK;
}

/* ---- deciding ------------------------------------------------------------------------------- */

/* The order in which everything ends up, whichever way it came: negative when the item is older than what is
 * there, 0 when it is what is there. */
static int compare_age(const struct mr_store_apply *item, const struct head *head)
{
    if (item->version != head->version)
        return item->version > head->version ? 1 : -1;
    bool deletes = item->verb == MR_APPLY_DELETE;
    if (deletes != is_tombstone(head->state))
        return deletes ? 1 : -1;
    return deletes ? 0 : memcmp(item->uid.bytes, head->uid.bytes, sizeof head->uid.bytes);
}

static bool expected(const struct mr_store_apply *item, const struct head *head)
{
    bool none = head->state == MR_ROW_NONE || is_tombstone(head->state);
    if (item->if_version == 0)
        return true;
    if (item->if_version == MR_STORE_IF_NONE)
        return none;
    return !none && head->version == item->if_version;
}

/* What it knows of the next time is what was there, and may be older than what is. */
static bool keeps(const struct head *head, const struct mr_store_apply *item)
{
    return item->keeps_of != 0 && item->keeps_of == head->version && head->state != MR_ROW_NONE &&
           !is_tombstone(head->state) && memcmp(&head->uid, &item->uid, sizeof head->uid) == 0;
}

static void put(struct head *head, const struct mr_store_apply *item)
{
    bool kept = keeps(head, item);
    bool stays_finished = kept && head->state == MR_ROW_FINISHED && item->state != MR_ROW_PAUSED;
    if (memcmp(&head->uid, &item->uid, sizeof head->uid) != 0) {
        head->fired = 0;
        head->last_ms = 0;
        head->created_ms = item->created_ms;
    }
    head->uid = item->uid;
    head->version = item->version;
    head->state = stays_finished ? MR_ROW_FINISHED : item->state;
    head->definition = item->definition;
    head->next_ms = kept ? head->next_ms : item->next_ms;
    head->written = true;
}

/* Of one that was there before its history can still be looked at, however often it is deleted. */
static void bury(struct head *head, const struct mr_store_apply *item)
{
    bool never = head->state == MR_ROW_NONE || head->state == MR_ROW_ABSENT;
    head->version = item->version;
    head->state = never ? MR_ROW_ABSENT : MR_ROW_DELETED;
    head->definition = mr_slice_make("", 0);
    head->next_ms = MR_STORE_NEVER_MS;
    head->written = true;
}

static enum mr_err decide(const struct place *place)
{
    struct head *head = place->head;
    const struct mr_store_apply *item = place->item;
    if (head->state != MR_ROW_NONE) {
        int age = compare_age(item, head);
        if (age < 0)
            return MR_STALE;
        if (age == 0)
            return head->state == MR_ROW_ABSENT ? MR_NOT_FOUND : MR_OK;
    }
    if (place->uid_taken || !expected(item, head))
        return MR_CONFLICT;
    if (item->verb == MR_APPLY_PUT) {
        put(head, item);
        return MR_OK;
    }
    bool there = head->state != MR_ROW_NONE && !is_tombstone(head->state);
    bury(head, item);
    return there ? MR_OK : MR_NOT_FOUND;
}

static void answer_item(const struct place *place)
{
    const struct head *head = place->head;
    place->result->err = decide(place);
    place->result->state = head->state;
    place->result->version = head->state != MR_ROW_NONE ? head->version : 0;
    place->result->uid = head->uid;
}

/* ---- writing -------------------------------------------------------------------------------- */

enum { PUT_VALUES = 12 };

static void put_values(struct work *work, const struct head *head, struct db_value *values)
{
    struct tx_app *app = tx_app(work->tx, head->app);
    mr_assert(app);
    tx_app_count(app, head->before, head->state);
    *values++ = db_bytes(head->app);
    *values++ = db_bytes(head->name);
    *values++ = db_bytes(uid_slice(&head->uid));
    *values++ = db_number((int64_t)head->version);
    *values++ = db_number(head->state);
    *values++ = db_bytes(head->definition);
    *values++ = db_number(head->next_ms);
    *values++ = db_number((int64_t)head->fired);
    *values++ = db_number(head->last_ms);
    *values++ = db_number(head->created_ms);
    *values++ = db_number((int64_t)app->changed);
    *values++ = db_number(work->tx->now_ms);
}

static enum mr_err write_heads(struct work *work)
{
    struct db_value *values =
        mr_arena_calloc(&work->tx->scratch, work->heads_n, PUT_VALUES * sizeof *values);
    if (!values)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < work->heads_n; i++) {
        if (work->heads[i].written)
            put_values(work, &work->heads[i], values + PUT_VALUES * n++);
    }
    return tx_run(work->tx, SQL_TIMER_PUT, values, n, NULL, NULL);
}

static enum mr_err carry(struct tx *tx, struct mr_store_req *req)
{
    struct work work = {.tx = tx};
    MR_TRY(sort_items(&work, store_request(req, mr_store_timers_apply)));
    MR_TRY(read_heads(&work));
    MR_TRY(find_taken_uids(&work));
    for (size_t i = 0; i < work.n; i++)
        answer_item(&work.places[i]);
    return write_heads(&work);
}

const struct store_op op_timers_apply = {
    .access = DB_WRITE,
    .cost = cost,
    .check = check,
    .locks = locks,
    .carry = carry,
    .fail = fail,
};
