/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a queue change, are asked for, and tasks are handed out under them: see limit.h. */
#include "broker/embedded/limit.h"

#include <stdlib.h>

enum { LOOK_MAX = 1000 }; /* tasks that one take passes over; then others have their turn */

/* ---- life ----------------------------------------------------------------------------------- */

enum mr_err limits_new(struct mr_engine *engine)
{
    static const struct mr_map_ops permit_ops = {permit_hash, permit_equal, NULL};
    static const struct mr_map_ops track_ops = {track_hash, track_equal, NULL};
    static const struct mr_map_ops parked_ops = {parked_hash, parked_equal, NULL};
    struct limits *all = calloc(1, sizeof *all);
    if (all == NULL)
        return MR_NOMEM;
    engine->limits = all;
    all->engine = engine;
    slab_init(&all->permits, sizeof(struct permit), NULL);
    slab_init(&all->tracks, sizeof(struct track), NULL);
    slab_init(&all->parked, sizeof(struct parked), NULL);
    MR_TRY(mr_map_new(&permit_ops, all, &all->permit_by_name));
    MR_TRY(mr_map_new(&track_ops, all, &all->track_by_permits));
    return mr_map_new(&parked_ops, all, &all->parked_by_task);
}

static void limiter_free(struct limiter *limiter)
{
    struct limits *all = limiter->all;
    limiter_clear(limiter);
    while (!mr_list_empty(&limiter->permits))
        permit_drop(all, mr_container(limiter->permits.next, struct permit, link));
    permit_done(&limiter->whole);
    for (unsigned part = 0; part < MR_PARTITIONS_MAX; part++)
        mr_heap_done(&limiter->parts[part].ready);
    limiter->queue->limiter = NULL;
    free(limiter);
}

void limits_forget_queue(struct queue *queue)
{
    if (queue->limiter != NULL)
        limiter_free(queue->limiter);
}

void limits_free(struct mr_engine *engine)
{
    struct limits *all = engine->limits;
    if (all == NULL)
        return;
    for (uint32_t i = 0; i < engine->state.queues_n; i++)
        if (engine->state.queues[i] != NULL)
            limits_forget_queue(engine->state.queues[i]);
    mr_map_free(all->permit_by_name);
    mr_map_free(all->track_by_permits);
    mr_map_free(all->parked_by_task);
    slab_done(&all->permits);
    slab_done(&all->tracks);
    slab_done(&all->parked);
    free(all);
    engine->limits = NULL;
}

static enum mr_err limiter_new(struct mr_engine *engine, struct queue *queue)
{
    struct limiter *limiter = calloc(1, sizeof *limiter);
    if (limiter == NULL)
        return MR_NOMEM;
    limiter->all = engine->limits;
    limiter->queue = queue;
    limiter->chosen = NO_HANDLE;
    mr_list_init(&limiter->permits);
    mr_list_init(&limiter->tracks);
    permit_init(&limiter->whole, limiter);
    queue->limiter = limiter;
    return MR_OK;
}

/* ---- in hand -------------------------------------------------------------------------------- */

/* The track of a task by its message; NO_HANDLE where that cannot be read: who takes it finds out. */
static enum mr_err track_of(struct limiter *limiter, uint32_t task, uint32_t *ret_track)
{
    struct mr_engine *engine = limiter->all->engine;
    const struct task *its = task_at(&engine->state, task);
    struct mr_task_msg msg;
    int64_t created_ms;
    *ret_track = NO_HANDLE;
    enum mr_err err = read_message(engine, its, &created_ms, &msg, NULL);
    if (err == MR_DAMAGED)
        return MR_OK;
    MR_TRY(err);
    return track_get(limiter, its->part, msg.type, msg.key, ret_track);
}

/* The reference to the track is the task's from now on. */
static void into_track(struct limiter *limiter, uint32_t task, uint32_t track)
{
    struct state *state = &limiter->all->engine->state;
    more_of(state, task_at(state, task))->group = track == NO_HANDLE ? 0 : track + 1;
}

static enum mr_err count_active(struct limiter *limiter)
{
    struct limits *all = limiter->all;
    const struct state *state = &all->engine->state;
    const struct order *active = &limiter->queue->sets[MR_ACTIVE];
    struct order_at at = order_seek(active, &state->tasks, INT64_MIN, 0);
    uint32_t task, track = NO_HANDLE;
    while ((task = order_next(active, &at)) != NO_HANDLE) {
        if (limiter->split)
            MR_TRY(track_of(limiter, task, &track));
        into_track(limiter, task, track);
        limiter->whole.active++;
        for (size_t i = 0; track != NO_HANDLE && i < PERMITS; i++)
            if (track_at(all, track)->permits[i] != NO_HANDLE)
                permit_at(all, track_at(all, track)->permits[i])->active++;
    }
    return MR_OK;
}

/* What is known of types and keys that have a limit yet is kept. */
static void permits_change(struct limiter *limiter)
{
    const struct mr_limits *limits = &limiter->queue->limits;
    struct mr_link *link = limiter->permits.next;
    while (link != &limiter->permits) {
        struct permit *permit = mr_container(link, struct permit, link);
        const struct mr_limit *limit =
            mr_limits_find(limits, permit->scope, mr_slice_make(permit->name, permit->name_len));
        link = link->next;
        if (limit != NULL)
            permit_set(permit, limit);
        else
            permit_drop(limiter->all, permit);
    }
    const struct mr_limit *whole = mr_limits_find(limits, MR_LIMIT_QUEUE, (struct mr_slice){0});
    permit_set(&limiter->whole, whole);
}

enum mr_err limits_changed(struct mr_engine *engine, struct queue *queue)
{
    struct limiter *limiter = queue->limiter;
    if (queue->limits.n == 0) {
        limits_forget_queue(queue);
        queue->filled = 0;
        for (unsigned part = 0; part < queue->parts_n; part++)
            queue->filled |= (uint64_t)(queue->parts[part].pending.count > 0) << part;
        return MR_OK;
    }
    if (limiter == NULL)
        MR_TRY(limiter_new(engine, queue));
    limiter = queue->limiter;
    limiter->split = mr_limits_split(&queue->limits);
    limiter_clear(limiter);
    permits_change(limiter);
    MR_TRY(limiter_freshen(limiter));
    MR_TRY(count_active(limiter));
    limiter_fill_all(limiter);
    return MR_OK;
}

/* How much was handed out before the end of the last life is not known, but when the last was: all that was
 * allowed, then. What was written last is lost with the machine. */
static void rates_used_up(const struct mr_engine *engine, struct queue *queue)
{
    int64_t taken_ms = queue->settings.taken_ms, ago_ms = engine->now_ms - taken_ms;
    int64_t now_ms = engine->now.ns / MR_NS_PER_MS + 1;
    if (engine->other_boot || ago_ms < 0)
        ago_ms = 0;
    for (size_t i = 0; i < queue->limits.n; i++) {
        struct mr_limit *limit = &queue->limits.at[i];
        int64_t left_ms = mr_limit_span_us(limit) / MR_US_PER_MS + 1 - ago_ms;
        limit->rate_until_ms = taken_ms > 0 && left_ms > 0 ? now_ms + left_ms : 0;
    }
}

enum mr_err limits_start(struct mr_engine *engine)
{
    for (uint32_t i = 0; i < engine->state.queues_n; i++) {
        struct queue *queue = engine->state.queues[i];
        if (queue == NULL || queue->limits.n == 0)
            continue;
        rates_used_up(engine, queue);
        MR_TRY(limits_changed(engine, queue));
    }
    return MR_OK;
}

/* ---- handing out ---------------------------------------------------------------------------- */

static void choose(struct limiter *limiter, uint32_t track)
{
    if (limiter->chosen != NO_HANDLE)
        track_unref(limiter->all, limiter->chosen);
    limiter->chosen = track;
}

/* The first track of those that are ready, if it comes before the task; it may turn out not to be. */
static bool track_is_next(const struct limiter *limiter, unsigned part, uint32_t task)
{
    const struct mr_heap_node *top = mr_heap_top(&limiter->parts[part].ready);
    if (top == NULL || task == NO_HANDLE)
        return top != NULL;
    const struct task *fresh = task_at(&limiter->all->engine->state, task);
    return top->key != fresh->key ? top->key < fresh->key : top->tie < fresh->tie;
}

static void note_kept_back(struct limiter *limiter, uint32_t permit)
{
    limiter->queue->throttled[permit_at(limiter->all, permit)->scope]++;
}

/* MR_EMPTY: it has found out that this may not be taken from; look for the next one. */
static enum mr_err try_track(struct limiter *limiter, unsigned part, uint32_t *ret_task)
{
    struct limits *all = limiter->all;
    struct track *track =
        mr_container(mr_heap_top(&limiter->parts[part].ready), struct track, node);
    uint32_t blocked = track_blocked_by(all, track);
    if (blocked != NO_HANDLE) {
        note_kept_back(limiter, blocked);
        MR_TRY(track_wait(all, track->handle, blocked));
        return MR_EMPTY;
    }
    track->refs++;
    choose(limiter, track->handle);
    *ret_task = order_first(&track->parked);
    return MR_OK;
}

static enum mr_err try_fresh(struct limiter *limiter, uint32_t task, uint32_t *ret_task)
{
    struct limits *all = limiter->all;
    uint32_t track;
    MR_TRY(track_of(limiter, task, &track));
    choose(limiter, track);
    uint32_t blocked = track != NO_HANDLE ? track_blocked_by(all, track_at(all, track)) : NO_HANDLE;
    if (blocked != NO_HANDLE) {
        note_kept_back(limiter, blocked);
        MR_TRY(track_park(all, track, task));
        MR_TRY(track_wait(all, track, blocked));
        return MR_EMPTY;
    }
    *ret_task = task;
    return MR_OK;
}

enum mr_err limiter_first(struct limiter *limiter, unsigned part, uint32_t *ret_task)
{
    if (!limiter->split) {
        *ret_task = order_first(&limiter->queue->parts[part].pending);
        return MR_OK;
    }
    enum mr_err err = MR_EMPTY;
    for (size_t looks = 0; err == MR_EMPTY; looks++) {
        uint32_t fresh = order_first(&limiter->parts[part].fresh);
        bool by_track = track_is_next(limiter, part, fresh);
        if (!by_track && fresh == NO_HANDLE)
            break;
        if (looks == LOOK_MAX) {
            limiter->all->looking = true;
            return MR_BUSY;
        }
        err = by_track ? try_track(limiter, part, ret_task) : try_fresh(limiter, fresh, ret_task);
    }
    if (err != MR_OK) {
        choose(limiter, NO_HANDLE);
        limiter_fill(limiter, part);
    }
    return err;
}

enum mr_err limiter_taken(struct limiter *limiter, uint32_t task)
{
    struct limits *all = limiter->all;
    uint32_t track = limiter->chosen;
    limiter->chosen = NO_HANDLE;
    into_track(limiter, task, track);
    MR_TRY(permit_take(&limiter->whole));
    for (size_t i = 0; track != NO_HANDLE && i < PERMITS; i++)
        if (track_at(all, track)->permits[i] != NO_HANDLE) {
            MR_TRY(permit_take(permit_at(all, track_at(all, track)->permits[i])));
            permit_settle(all, permit_at(all, track_at(all, track)->permits[i]));
        }
    if (!permit_is_free(&limiter->whole)) {
        limiter->queue->throttled[MR_LIMIT_QUEUE] += limiter->queue->counts[MR_PENDING] > 0;
        limiter_fill_all(limiter);
    }
    return MR_OK;
}

/* Before anything of the task changes. */
void limiter_ended(struct limiter *limiter, struct more *more)
{
    struct limits *all = limiter->all;
    bool was_free = permit_is_free(&limiter->whole);
    limiter->whole.active--;
    uint32_t track = more->group - 1;
    for (size_t i = 0; more->group != 0 && i < PERMITS; i++)
        if (track_at(all, track)->permits[i] != NO_HANDLE) {
            struct permit *permit = permit_at(all, track_at(all, track)->permits[i]);
            permit->active--;
            permit_settle(all, permit);
        }
    if (more->group != 0)
        track_unref(all, track);
    more->group = 0;
    if (!was_free)
        limiter_fill_all(limiter);
}

enum mr_err limits_ready_retry(struct mr_engine *engine, struct queue *queue)
{
    for (bool late = true; late;) {
        size_t before = queue->sets[MR_RETRY].count;
        if (state_due_retry(&engine->state, queue, engine->now_ms, &late) == NO_HANDLE)
            break;
        MR_TRY(state_ready_retry(&engine->state, queue, engine->now_ms));
        if (queue->sets[MR_RETRY].count == before)
            break;
        if (++engine->limits->readied > LOOK_MAX) {
            engine->limits->looking = true;
            return MR_BUSY;
        }
    }
    return MR_OK;
}

void limits_turn(struct mr_engine *engine)
{
    engine->limits->readied = 0;
    engine->limits->looking = false;
}

bool limits_looking(const struct mr_engine *engine)
{
    return engine->limits->looking;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* permit: NULL where nothing was done under the limit lately. */
static void put(struct mr_engine *engine, struct mr_req_queue_limits *req,
                const struct mr_limit *limit, const struct permit *permit)
{
    if (limit == NULL)
        return;
    struct mr_limit *out = &req->limits[req->n++];
    *out = *limit;
    int64_t free_ns =
        permit != NULL ? permit_rate_free_ns(permit) : limit->rate_until_ms * MR_NS_PER_MS;
    bool later = limit->rate > 0 && free_ns > engine->now.ns;
    int64_t left_ms = (free_ns - engine->now.ns) / MR_NS_PER_MS + 1;
    out->active = permit != NULL ? permit->active : 0;
    out->rate_until_ms = later ? engine->now_ms + left_ms : 0;
}

static void put_named(struct mr_engine *engine, struct mr_req_queue_limits *req,
                      const struct queue *queue, enum mr_limit_scope scope, struct mr_slice name)
{
    put(engine, req, mr_limits_find(&queue->limits, scope, name),
        queue->limiter == NULL    ? NULL
        : scope == MR_LIMIT_QUEUE ? &queue->limiter->whole
                                  : permit_find(queue->limiter, scope, name));
}

static enum mr_err limits_of_task(struct mr_engine *engine, const struct queue *queue,
                                  struct mr_req_queue_limits *req)
{
    bool is_uuid;
    struct mr_uuid id = id_key(&engine->state, req->id, &is_uuid);
    uint32_t handle = find_shown_task(&engine->state, &id);
    struct mr_task_msg msg;
    int64_t created_ms;
    if (handle == NO_HANDLE || task_at(&engine->state, handle)->queue != queue->number)
        return MR_NOT_FOUND;
    MR_TRY(read_message(engine, task_at(&engine->state, handle), &created_ms, &msg, NULL));
    put_named(engine, req, queue, MR_LIMIT_QUEUE, (struct mr_slice){0});
    put_named(engine, req, queue, MR_LIMIT_TYPE, msg.type);
    put_named(engine, req, queue, MR_LIMIT_KEY, msg.key);
    return MR_OK;
}

enum handled handle_queue_limits(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_queue_limits *req = mr_container(base, struct mr_req_queue_limits, req);
    const struct queue *queue = find_shown_queue(&engine->state, req->queue);
    enum mr_err err = queue != NULL ? MR_OK : MR_NOT_FOUND;
    req->n = 0;
    if (err == MR_OK && req->id.len > 0)
        err = limits_of_task(engine, queue, req);
    for (size_t i = 0; err == MR_OK && req->id.len == 0 && i < queue->limits.n; i++) {
        const struct mr_limit *limit = &queue->limits.at[i];
        put_named(engine, req, queue, limit->scope, mr_slice_str(limit->name));
    }
    answer(engine, base, err);
    return HANDLED;
}
