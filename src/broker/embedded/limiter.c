/* SPDX-License-Identifier: Apache-2.0 */
/* Permits and tracks: see limit.h. */
#include "broker/embedded/limit.h"

#include <stdlib.h>

static int64_t now_ns(const struct limits *all)
{
    return all->engine->now.ns;
}

/* Memory for what was decided already: nothing is accepted from now on. */
static void insist(struct limits *all, enum mr_err err)
{
    if (err != MR_OK)
        engine_fail(all->engine, err);
}

/* ---- times ---------------------------------------------------------------------------------- */

static int64_t time_at(const struct times *times, uint32_t i)
{
    return times->at[(times->head + i) & (times->cap - 1)];
}

static enum mr_err times_push(struct times *times, int64_t at)
{
    if (times->n == times->cap) {
        uint32_t cap = times->cap ? 2 * times->cap : 4;
        int64_t *grown = malloc(cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        for (uint32_t i = 0; i < times->n; i++)
            grown[i] = time_at(times, i);
        free(times->at);
        *times = (struct times){.at = grown, .n = times->n, .cap = cap};
    }
    times->at[(times->head + times->n++) & (times->cap - 1)] = at;
    return MR_OK;
}

/* What is longer ago than the span no longer matters. */
static void times_forget(struct times *times, int64_t before)
{
    while (times->n > 0 && time_at(times, 0) <= before) {
        times->head = (times->head + 1) & (times->cap - 1);
        times->n--;
    }
}

/* ---- permits -------------------------------------------------------------------------------- */

static void permit_due(struct mr_timer *timer, void *arg);

void permit_init(struct permit *permit, struct limiter *limiter)
{
    *permit =
        (struct permit){.handle = NO_HANDLE, .limiter = limiter, .queue = limiter->queue->number};
    mr_timer_init(&permit->timer, permit_due);
    mr_list_init(&permit->link);
}

void permit_done(struct permit *permit)
{
    struct limits *all = permit->limiter->all;
    mr_wheel_stop(all->engine->wheel, &permit->timer);
    mr_list_remove(&permit->link);
    for (unsigned part = 0; part < permit->waiting_n; part++)
        mr_heap_done(&permit->waiting[part]);
    free(permit->waiting);
    free(permit->times.at);
}

void permit_set(struct permit *permit, const struct mr_limit *limit)
{
    permit->rate = limit != NULL ? limit->rate : 0;
    permit->concurrency = limit != NULL ? limit->concurrency : 0;
    permit->span_ns = limit != NULL ? mr_limit_span_us(limit) * MR_NS_PER_US : 0;
    permit->not_before_ns = permit->rate > 0 ? limit->rate_until_ms * MR_NS_PER_MS : 0;
    if (permit->rate == 0) /* one that is set again begins anew */
        permit->times.n = 0;
}

int64_t permit_rate_free_ns(const struct permit *permit)
{
    const struct times *times = &permit->times;
    int64_t free_ns = permit->not_before_ns;
    if (permit->rate > 0 && times->n >= permit->rate) {
        int64_t at = time_at(times, times->n - permit->rate) + permit->span_ns;
        free_ns = at > free_ns ? at : free_ns;
    }
    return free_ns > now_ns(permit->limiter->all) ? free_ns : 0;
}

bool permit_is_free(const struct permit *permit)
{
    bool full = permit->concurrency > 0 && permit->active >= permit->concurrency;
#ifdef MR_PLANT_ONE_OVER_THE_LIMIT
    full = full && permit->active > permit->concurrency;
#endif
    return !full && (permit->rate == 0 || permit_rate_free_ns(permit) == 0);
}

enum mr_err permit_take(struct permit *permit)
{
    int64_t now = now_ns(permit->limiter->all);
    permit->active++;
    if (permit->rate == 0)
        return MR_OK;
    times_forget(&permit->times, now - permit->span_ns);
    return times_push(&permit->times, now);
}

/* Never early: a tick has begun when it is over. */
static void permit_arm(struct permit *permit, int64_t at_ns)
{
    struct mr_engine *engine = permit->limiter->all->engine;
    mr_wheel_start(engine->wheel, &permit->timer, tick_of(engine, (mr_mono){at_ns}) + 1);
}

struct permit_key {
    uint32_t queue;
    uint8_t scope;
    struct mr_slice name;
};

static uint64_t permit_key_hash(const struct limits *all, const struct permit_key *key)
{
    uint8_t bytes[8 + MR_NAME_MAX];
    mr_store32(bytes, key->queue);
    mr_store32(bytes + 4, key->scope);
    memcpy(bytes + 8, key->name.data, key->name.len);
    struct mr_uuid hash =
        mr_hash128(all->engine->state.hash_key, mr_slice_make(bytes, 8 + key->name.len));
    return mr_uuid_hash(&hash);
}

static struct permit_key permit_key_of(const struct permit *permit)
{
    return (struct permit_key){permit->queue, permit->scope,
                               mr_slice_make(permit->name, permit->name_len)};
}

uint64_t permit_hash(uint32_t handle, void *arg)
{
    struct permit_key key = permit_key_of(permit_at(arg, handle));
    return permit_key_hash(arg, &key);
}

bool permit_equal(uint32_t handle, const void *key_, void *arg)
{
    const struct permit_key *key = key_;
    struct permit_key own = permit_key_of(permit_at(arg, handle));
    return own.queue == key->queue && own.scope == key->scope &&
           mr_slice_equal(own.name, key->name);
}

struct permit *permit_find(const struct limiter *limiter, enum mr_limit_scope scope,
                           struct mr_slice name)
{
    struct permit_key key = {limiter->queue->number, (uint8_t)scope, name};
    if (name.len == 0)
        return NULL;
    uint32_t handle =
        mr_map_find(limiter->all->permit_by_name, permit_key_hash(limiter->all, &key), &key);
    return handle == MR_MAP_NONE ? NULL : permit_at(limiter->all, handle);
}

static enum mr_err permit_get(struct limiter *limiter, enum mr_limit_scope scope,
                              struct mr_slice name, uint32_t *ret_handle)
{
    struct limits *all = limiter->all;
    const struct mr_limit *limit = mr_limits_find(&limiter->queue->limits, scope, name);
    struct permit *permit = limit != NULL ? permit_find(limiter, scope, name) : NULL;
    *ret_handle = permit != NULL ? permit->handle : NO_HANDLE;
    if (limit == NULL || permit != NULL)
        return MR_OK;
    uint32_t handle;
    MR_TRY(slab_alloc(&all->permits, &handle));
    permit = permit_at(all, handle);
    permit_init(permit, limiter);
    permit->handle = handle;
    permit_set(permit, limit);
    permit->scope = (uint8_t)scope;
    permit->name_len = (uint8_t)name.len;
    memcpy(permit->name, name.data, name.len);
    struct permit_key key = permit_key_of(permit);
    enum mr_err err = mr_map_insert(all->permit_by_name, permit_key_hash(all, &key), handle);
    if (err != MR_OK) {
        slab_free(&all->permits, handle);
        return err;
    }
    mr_list_push_back(&limiter->permits, &permit->link);
    *ret_handle = handle;
    return MR_OK;
}

void permit_drop(struct limits *all, struct permit *permit)
{
    mr_map_remove(all->permit_by_name, permit_hash(permit->handle, all), permit->handle);
    permit_done(permit);
    slab_free(&all->permits, permit->handle);
}

/* Once no track needs it, it goes, as soon as its times are over. */
static void permit_rest(struct limits *all, struct permit *permit)
{
    times_forget(&permit->times, now_ns(all) - permit->span_ns);
    if (permit->tracks > 0)
        return;
    if (permit->times.n == 0)
        permit_drop(all, permit);
    else
        permit_arm(permit, time_at(&permit->times, permit->times.n - 1) + permit->span_ns);
}

/* ---- tracks ---------------------------------------------------------------------------------- */

struct track_key {
    uint32_t queue, part, permits[PERMITS];
};

static struct track_key track_key_of(const struct track *track)
{
    return (struct track_key){
        track->queue, track->part, {track->permits[PERMIT_TYPE], track->permits[PERMIT_KEY]}};
}

static uint64_t track_key_hash(const struct limits *all, const struct track_key *key)
{
    struct mr_uuid hash = mr_hash128(all->engine->state.hash_key, mr_slice_make(key, sizeof *key));
    return mr_uuid_hash(&hash);
}

uint64_t track_hash(uint32_t handle, void *arg)
{
    struct track_key key = track_key_of(track_at(arg, handle));
    return track_key_hash(arg, &key);
}

bool track_equal(uint32_t handle, const void *key, void *arg)
{
    struct track_key own = track_key_of(track_at(arg, handle));
    return memcmp(&own, key, sizeof own) == 0;
}

/* Room for those that wait at a permit, in each partition. */
static enum mr_err permit_widen(struct permit *permit, unsigned parts_n)
{
    if (parts_n <= permit->waiting_n)
        return MR_OK;
    struct mr_heap *grown = realloc(permit->waiting, parts_n * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    memset(grown + permit->waiting_n, 0, (parts_n - permit->waiting_n) * sizeof *grown);
    permit->waiting = grown;
    permit->waiting_n = parts_n;
    return MR_OK;
}

static enum mr_err track_new(struct limiter *limiter, const struct track_key *key,
                             uint32_t *ret_handle)
{
    struct limits *all = limiter->all;
    uint32_t handle;
    for (size_t i = 0; i < PERMITS; i++)
        if (key->permits[i] != NO_HANDLE)
            MR_TRY(permit_widen(permit_at(all, key->permits[i]), limiter->queue->parts_n));
    MR_TRY(slab_alloc(&all->tracks, &handle));
    struct track *track = track_at(all, handle);
    *track =
        (struct track){.handle = handle, .queue = (uint16_t)key->queue, .part = (uint8_t)key->part};
    memcpy(track->permits, key->permits, sizeof track->permits);
    mr_list_init(&track->link);
    enum mr_err err = mr_map_insert(all->track_by_permits, track_key_hash(all, key), handle);
    if (err != MR_OK) {
        slab_free(&all->tracks, handle);
        return err;
    }
    for (size_t i = 0; i < PERMITS; i++)
        if (track->permits[i] != NO_HANDLE)
            permit_at(all, track->permits[i])->tracks++;
    mr_list_push_back(&limiter->tracks, &track->link);
    *ret_handle = handle;
    return MR_OK;
}

enum mr_err track_get(struct limiter *limiter, unsigned part, struct mr_slice type,
                      struct mr_slice key, uint32_t *ret_track)
{
    struct limits *all = limiter->all;
    struct track_key pair = {.queue = limiter->queue->number, .part = part};
    MR_TRY(permit_get(limiter, MR_LIMIT_TYPE, type, &pair.permits[PERMIT_TYPE]));
    MR_TRY(permit_get(limiter, MR_LIMIT_KEY, key, &pair.permits[PERMIT_KEY]));
    *ret_track = NO_HANDLE;
    if (pair.permits[PERMIT_TYPE] == NO_HANDLE && pair.permits[PERMIT_KEY] == NO_HANDLE)
        return MR_OK;
    uint32_t handle = mr_map_find(all->track_by_permits, track_key_hash(all, &pair), &pair);
    if (handle == MR_MAP_NONE)
        MR_TRY(track_new(limiter, &pair, &handle));
    track_at(all, handle)->refs++;
    *ret_track = handle;
    return MR_OK;
}

static struct limiter *limiter_of(const struct limits *all, const struct track *track)
{
    return all->engine->state.queues[track->queue]->limiter;
}

static struct mr_heap *heap_of(const struct limits *all, const struct track *track)
{
    return track->place == TRACK_READY ? &limiter_of(all, track)->parts[track->part].ready
                                       : &permit_at(all, track->waits_at)->waiting[track->part];
}

static void track_out(struct limits *all, struct track *track)
{
    if (track->place != TRACK_NOWHERE)
        mr_heap_remove(heap_of(all, track), &track->node);
    track->place = TRACK_NOWHERE;
}

static enum mr_err track_in(struct limits *all, struct track *track, enum track_place place,
                            uint32_t permit)
{
    const struct task *first = task_at(&all->engine->state, order_first(&track->parked));
    track->place = (uint8_t)place;
    track->waits_at = permit;
    track->node.key = first->key;
    track->node.tie = first->tie;
    enum mr_err err = mr_heap_push(heap_of(all, track), &track->node);
    if (err != MR_OK)
        track->place = TRACK_NOWHERE;
    return err;
}

void track_unref(struct limits *all, uint32_t handle)
{
    struct track *track = track_at(all, handle);
    mr_assert(track->refs > 0);
    if (--track->refs > 0)
        return;
    mr_assert(track->place == TRACK_NOWHERE && track->parked.count == 0);
    order_done(&track->parked);
    mr_map_remove(all->track_by_permits, track_hash(handle, all), handle);
    mr_list_remove(&track->link);
    uint32_t permits[PERMITS];
    memcpy(permits, track->permits, sizeof permits);
    slab_free(&all->tracks, handle);
    for (size_t i = 0; i < PERMITS; i++) {
        if (permits[i] == NO_HANDLE)
            continue;
        permit_at(all, permits[i])->tracks--;
        permit_rest(all, permit_at(all, permits[i]));
    }
}

uint32_t track_blocked_by(const struct limits *all, const struct track *track)
{
    for (size_t i = 0; i < PERMITS; i++)
        if (track->permits[i] != NO_HANDLE && !permit_is_free(permit_at(all, track->permits[i])))
            return track->permits[i];
    return NO_HANDLE;
}

enum mr_err track_wait(struct limits *all, uint32_t handle, uint32_t at)
{
    struct track *track = track_at(all, handle);
    bool was_ready = track->place == TRACK_READY;
    track_out(all, track);
    MR_TRY(track_in(all, track, TRACK_WAITS, at));
    struct permit *permit = permit_at(all, at);
    int64_t free_ns = permit_rate_free_ns(permit);
    if (free_ns > 0)
        permit_arm(permit, free_ns);
    /* It stood for others that wait at the permits that would let it go. */
    for (size_t i = 0; was_ready && i < PERMITS; i++)
        if (track->permits[i] != NO_HANDLE && track->permits[i] != at)
            permit_settle(all, permit_at(all, track->permits[i]));
    return MR_OK;
}

/* ---- parking -------------------------------------------------------------------------------- */

static uint64_t task_hash(uint32_t task)
{
    uint64_t x = task * 0x9e3779b97f4a7c15ull;
    return x ^ x >> 32;
}

uint64_t parked_hash(uint32_t handle, void *arg)
{
    const struct limits *all = arg;
    return task_hash(((const struct parked *)slab_at(&all->parked, handle))->task);
}

bool parked_equal(uint32_t handle, const void *key, void *arg)
{
    const struct limits *all = arg;
    return ((const struct parked *)slab_at(&all->parked, handle))->task == *(const uint32_t *)key;
}

static enum mr_err parked_add(struct limits *all, uint32_t task, uint32_t track)
{
    uint32_t handle;
    MR_TRY(slab_alloc(&all->parked, &handle));
    *(struct parked *)slab_at(&all->parked, handle) = (struct parked){.task = task, .track = track};
    enum mr_err err = mr_map_insert(all->parked_by_task, task_hash(task), handle);
    if (err != MR_OK)
        slab_free(&all->parked, handle);
    return err;
}

/* The track that it was in; NO_HANDLE: none. */
static uint32_t parked_remove(struct limits *all, uint32_t task)
{
    uint32_t handle = mr_map_find(all->parked_by_task, task_hash(task), &task);
    if (handle == MR_MAP_NONE)
        return NO_HANDLE;
    uint32_t track = ((const struct parked *)slab_at(&all->parked, handle))->track;
    mr_map_remove(all->parked_by_task, task_hash(task), handle);
    slab_free(&all->parked, handle);
    return track;
}

enum mr_err track_park(struct limits *all, uint32_t handle, uint32_t task)
{
    struct track *track = track_at(all, handle);
    struct state *state = &all->engine->state;
    MR_TRY(parked_add(all, task, handle));
    enum mr_err err = order_insert(&track->parked, &state->tasks, task);
    if (err != MR_OK) {
        (void)parked_remove(all, task);
        return err;
    }
    track->refs++;
    order_remove(&limiter_of(all, track)->parts[track->part].fresh, &state->tasks, task);
    return MR_OK;
}

/* ---- a permit becomes free ------------------------------------------------------------------ */

static void track_ready(struct limits *all, struct track *track)
{
    insist(all, track_in(all, track, TRACK_READY, NO_HANDLE));
    limiter_fill(limiter_of(all, track), track->part);
}

/* Only the first of a partition is let go: it takes the permit, or makes place for the next one. */
static void settle_part(struct limits *all, struct permit *permit, unsigned part)
{
    const struct mr_heap_node *top;
    while (permit_is_free(permit) && (top = mr_heap_top(&permit->waiting[part])) != NULL) {
        struct track *track = mr_container(top, struct track, node);
        uint32_t other = track_blocked_by(all, track);
        track_out(all, track);
        if (other == NO_HANDLE) {
            track_ready(all, track);
            return;
        }
        insist(all, track_in(all, track, TRACK_WAITS, other));
        struct permit *keeps = permit_at(all, other);
        if (permit_rate_free_ns(keeps) > 0)
            permit_arm(keeps, permit_rate_free_ns(keeps));
    }
    if (mr_heap_top(&permit->waiting[part]) != NULL && permit_rate_free_ns(permit) > 0)
        permit_arm(permit, permit_rate_free_ns(permit));
}

void permit_settle(struct limits *all, struct permit *permit)
{
    for (unsigned part = 0; part < permit->waiting_n; part++)
        settle_part(all, permit, part);
}

static void permit_due(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    struct permit *permit = mr_container(timer, struct permit, timer);
    struct limiter *limiter = permit->limiter;
    if (permit == &limiter->whole) {
        limiter_fill_all(limiter);
        return;
    }
    permit_settle(engine->limits, permit);
    permit_rest(engine->limits, permit);
}

/* ---- the sets of a partition ---------------------------------------------------------------- */

/* What a take may still come by, as far as is known. */
static size_t left_in(const struct limiter *limiter, unsigned part)
{
    return limiter->split ? limiter->parts[part].fresh.count + limiter->parts[part].ready.n
                          : limiter->queue->parts[part].pending.count;
}

bool limiter_is_empty(const struct limiter *limiter)
{
    for (unsigned part = 0; part < limiter->queue->parts_n; part++)
        if (left_in(limiter, part) > 0)
            return false;
    return true;
}

void limiter_fill(struct limiter *limiter, unsigned part)
{
    struct queue *queue = limiter->queue;
    struct state *state = &limiter->all->engine->state;
    uint64_t bit = (uint64_t)1 << part;
    if (left_in(limiter, part) == 0 || !permit_is_free(&limiter->whole)) {
        queue->filled &= ~bit;
        return;
    }
    queue->filled |= bit;
    if (mr_list_empty(&queue->ready))
        mr_list_push_back(&state->ready, &queue->ready);
}

void limiter_fill_all(struct limiter *limiter)
{
    struct permit *whole = &limiter->whole;
    for (unsigned part = 0; part < limiter->queue->parts_n; part++)
        limiter_fill(limiter, part);
    if (permit_rate_free_ns(whole) > 0)
        permit_arm(whole, permit_rate_free_ns(whole));
}

enum mr_err limiter_enter(struct limiter *limiter, uint32_t task)
{
    struct state *state = &limiter->all->engine->state;
    unsigned part = task_at(state, task)->part;
    if (limiter->split)
        MR_TRY(order_insert(&limiter->parts[part].fresh, &state->tasks, task));
    limiter_fill(limiter, part);
    return MR_OK;
}

static void unpark(struct limits *all, uint32_t handle, uint32_t task)
{
    struct track *track = track_at(all, handle);
    bool was_ready = track->place == TRACK_READY, first = order_first(&track->parked) == task;
    order_remove(&track->parked, &all->engine->state.tasks, task);
    if (first) {
        enum track_place place = track->place;
        track_out(all, track);
        if (track->parked.count > 0 && place != TRACK_NOWHERE)
            insist(all, track_in(all, track, place, track->waits_at));
    }
    /* Whether it was taken or went otherwise: another may be the first now of those at its permits. */
    for (size_t i = 0; was_ready && first && i < PERMITS; i++)
        if (track->permits[i] != NO_HANDLE)
            permit_settle(all, permit_at(all, track->permits[i]));
    track_unref(all, handle);
}

void limiter_leave(struct limiter *limiter, uint32_t task)
{
    struct state *state = &limiter->all->engine->state;
    unsigned part = task_at(state, task)->part;
    if (limiter->split) {
        uint32_t track = parked_remove(limiter->all, task);
        if (track == NO_HANDLE)
            order_remove(&limiter->parts[part].fresh, &state->tasks, task);
        else
            unpark(limiter->all, track, task);
    }
    limiter_fill(limiter, part);
}

/* ---- from the beginning --------------------------------------------------------------------- */

static void track_empty(struct limits *all, uint32_t handle)
{
    struct track *track = track_at(all, handle);
    track->refs++; /* so that it does not go on the way */
    track_out(all, track);
    uint32_t task;
    while ((task = order_first(&track->parked)) != NO_HANDLE) {
        order_remove(&track->parked, &all->engine->state.tasks, task);
        (void)parked_remove(all, task);
        track->refs--;
    }
    track->refs = 1;
    track_unref(all, handle);
}

void limiter_clear(struct limiter *limiter)
{
    struct limits *all = limiter->all;
    limiter->chosen = NO_HANDLE;
    while (!mr_list_empty(&limiter->tracks))
        track_empty(all, mr_container(limiter->tracks.next, struct track, link)->handle);
    limiter->whole.active = 0;
    for (struct mr_link *link = limiter->permits.next; link != &limiter->permits; link = link->next)
        mr_container(link, struct permit, link)->active = 0;
    for (unsigned part = 0; part < MR_PARTITIONS_MAX; part++)
        order_done(&limiter->parts[part].fresh);
}

enum mr_err limiter_freshen(struct limiter *limiter)
{
    struct state *state = &limiter->all->engine->state;
    for (unsigned part = 0; limiter->split && part < limiter->queue->parts_n; part++) {
        const struct order *pending = &limiter->queue->parts[part].pending;
        struct order_at at = order_seek(pending, &state->tasks, INT64_MIN, 0);
        uint32_t task;
        while ((task = order_next(pending, &at)) != NO_HANDLE)
            MR_TRY(order_insert(&limiter->parts[part].fresh, &state->tasks, task));
    }
    return MR_OK;
}

void limiter_validate(const struct limiter *limiter)
{
    const struct limits *all = limiter->all;
    const struct queue *queue = limiter->queue;
    const struct slab *tasks = &all->engine->state.tasks;
    size_t parked = 0, sets = 0;
    for (const struct mr_link *l = limiter->tracks.next; l != &limiter->tracks; l = l->next) {
        const struct track *track = mr_container(l, struct track, link);
        order_validate(&track->parked, tasks);
        mr_assert((track->place != TRACK_NOWHERE) == (track->parked.count > 0));
        mr_assert(track->parked.count <= track->refs && track->refs > 0);
        parked += track->parked.count;
    }
    for (unsigned part = 0; part < queue->parts_n; part++) {
        order_validate(&limiter->parts[part].fresh, tasks);
        mr_heap_validate(&limiter->parts[part].ready);
        sets += limiter->parts[part].fresh.count;
        sets -= limiter->split ? queue->parts[part].pending.count : 0;
    }
    mr_assert(sets + parked == 0);
    mr_assert(limiter->whole.active == queue->counts[MR_ACTIVE]);
    for (const struct mr_link *l = limiter->permits.next; l != &limiter->permits; l = l->next) {
        const struct permit *permit = mr_container(l, struct permit, link);
        for (unsigned part = 0; part < permit->waiting_n; part++)
            mr_heap_validate(&permit->waiting[part]);
        mr_assert(permit->active <= queue->counts[MR_ACTIVE]);
    }
}
