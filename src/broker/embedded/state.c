/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the state, look-ups, limbo, time, recounts. Applying records is in apply.c, queues in
 * queue.c. */
#include "broker/embedded/state_internal.h"

#include <stdlib.h>

/* ---- maps ----------------------------------------------------------------------------------- */

static uint64_t id_hash(uint32_t handle, void *arg)
{
    return mr_uuid_hash(&task_at(arg, handle)->id);
}

static bool id_equal(uint32_t handle, const void *key, void *arg)
{
    return memcmp(&task_at(arg, handle)->id, key, sizeof(struct mr_uuid)) == 0;
}

static void id_prefetch(uint32_t handle, void *arg)
{
    __builtin_prefetch(task_at(arg, handle));
}

static uint64_t unique_hash(uint32_t handle, void *arg)
{
    return mr_uuid_hash(&more_of(arg, task_at(arg, handle))->unique);
}

static bool unique_equal(uint32_t handle, const void *key, void *arg)
{
    return memcmp(&more_of(arg, task_at(arg, handle))->unique, key, sizeof(struct mr_uuid)) == 0;
}

uint64_t queue_name_hash(const struct state *state, struct mr_slice name)
{
    struct mr_uuid hash = mr_hash128(state->hash_key, name);
    return mr_uuid_hash(&hash);
}

static uint64_t name_hash(uint32_t number, void *arg)
{
    const struct state *state = arg;
    const struct queue *queue = state->queues[number];
    return queue_name_hash(state, mr_slice_make(queue->name, queue->name_len));
}

static bool name_equal(uint32_t number, const void *key, void *arg)
{
    const struct queue *queue = ((const struct state *)arg)->queues[number];
    return mr_slice_equal(mr_slice_make(queue->name, queue->name_len),
                          *(const struct mr_slice *)key);
}

enum mr_err state_init(struct state *state, struct mr_hash_key key, struct mr_warm *warm)
{
    static const struct mr_map_ops id_ops = {id_hash, id_equal, id_prefetch};
    static const struct mr_map_ops unique_ops = {unique_hash, unique_equal, NULL};
    static const struct mr_map_ops name_ops = {name_hash, name_equal, NULL};
    static const struct mr_map_ops group_ops = {group_hash, group_equal, NULL};
    *state = (struct state){.hash_key = key, .replaying = true};
    slab_init(&state->tasks, sizeof(struct task), warm);
    slab_init(&state->mores, sizeof(struct more), warm);
    slab_init(&state->groups, sizeof(struct group), NULL);
    mr_list_init(&state->ready);
    mr_list_init(&state->riper);
    mr_list_init(&state->addressed);
    MR_TRY(mr_map_new(&id_ops, state, &state->by_id));
    mr_map_warm(state->by_id, warm);
    MR_TRY(mr_map_new(&unique_ops, state, &state->by_unique));
    MR_TRY(mr_map_new(&group_ops, state, &state->by_group));
    return mr_map_new(&name_ops, state, &state->by_name);
}

void state_done(struct state *state)
{
    for (uint32_t i = 0; i < state->mores.used; i++)
        free(((struct more *)slab_at(&state->mores, i))->progress);
    for (uint32_t i = 0; i < state->queues_n; i++)
        queue_free(state->queues[i]);
    free(state->queues);
    free(state->sorted);
    free(state->limbo);
    mr_heap_done(&state->due);
    mr_map_free(state->by_id);
    mr_map_free(state->by_unique);
    mr_map_free(state->by_name);
    mr_map_free(state->by_group);
    slab_done(&state->tasks);
    slab_done(&state->mores);
    slab_done(&state->groups);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

struct mr_uuid id_key(const struct state *state, struct mr_slice id, bool *ret_is_uuid)
{
    struct mr_uuid key;
    *ret_is_uuid = mr_uuid_parse(id, &key);
    return *ret_is_uuid ? key : mr_hash128(state->hash_key, id);
}

uint32_t find_task(const struct state *state, const struct mr_uuid *id)
{
    uint32_t handle = mr_map_find(state->by_id, mr_uuid_hash(id), id);
    return handle == MR_MAP_NONE ? NO_HANDLE : handle;
}

uint32_t find_unique(const struct state *state, const struct mr_uuid *key)
{
    uint32_t handle = mr_map_find(state->by_unique, mr_uuid_hash(key), key);
    return handle == MR_MAP_NONE ? NO_HANDLE : handle;
}

struct queue *find_queue(struct state *state, struct mr_slice name)
{
    struct queue *recent = state->recent < state->queues_n ? state->queues[state->recent] : NULL;
    if (recent != NULL && mr_slice_equal(mr_slice_make(recent->name, recent->name_len), name))
        return recent;
    uint32_t number = mr_map_find(state->by_name, queue_name_hash(state, name), &name);
    if (number == MR_MAP_NONE)
        return NULL;
    state->recent = number;
    return state->queues[number];
}

struct queue *queue_of(const struct state *state, const struct task *task)
{
    return state->queues[task->queue];
}

struct queue *find_shown_queue(struct state *state, struct mr_slice name)
{
    struct queue *queue = find_queue(state, name);
    return queue != NULL && !queue->results && !queue->inner ? queue : NULL;
}

uint32_t find_shown_task(const struct state *state, const struct mr_uuid *id)
{
    uint32_t handle = find_task(state, id);
    bool shown = handle != NO_HANDLE && !queue_of(state, task_at(state, handle))->results;
    return shown ? handle : NO_HANDLE;
}

static enum mr_err queue_due_at(struct state *state, struct queue *queue, int64_t ms);

/* ---- sets and limbo ------------------------------------------------------------------------- */

/* Held ones are in a set of their own, where nothing happens to them. */
static unsigned set_of(const struct task *task)
{
    return task->flags & MR_TASK_HELD ? HELD_SET : task->state;
}

void count_task(struct state *state, const struct task *task, enum mr_state in, int by)
{
    static const uint8_t waits[MR_STATE_COUNT] = {
        [MR_PENDING] = 1, [MR_SCHEDULED] = 1, [MR_RETRY] = 1, [MR_AGGREGATING] = 1};
    struct queue *queue = queue_of(state, task);
    queue->counts[in] += (uint64_t)(int64_t)by;
    queue->parts[task->part].waiting += (uint64_t)(int64_t)(by * waits[in]);
}

enum mr_err set_enter(struct state *state, uint32_t handle)
{
    struct task *task = task_at(state, handle);
    struct queue *queue = queue_of(state, task);
    MR_TRY(order_insert(queue_set(queue, set_of(task), task->part), &state->tasks, handle));
    if (task->flags & MR_TASK_HELD)
        return MR_OK;
    if (task->state == MR_PENDING && queue->limiter != NULL)
        return limiter_enter(queue->limiter, handle);
    if (task->state == MR_PENDING) {
        queue->filled |= (uint64_t)1 << task->part;
        if (mr_list_empty(&queue->ready))
            mr_list_push_back(&state->ready, &queue->ready);
        return MR_OK;
    }
    if (task->state == MR_AGGREGATING && !state->replaying)
        return group_enter(state, handle);
    bool is_timed =
        task->state == MR_SCHEDULED || task->state == MR_RETRY || task->state == MR_COMPLETED;
    if (is_timed && (queue->due.index == SIZE_MAX || task->key < queue->due.key))
        return queue_due_at(state, queue, task->key);
    return MR_OK;
}

void set_leave(struct state *state, uint32_t handle)
{
    struct task *task = task_at(state, handle);
    if (task->limbo) {
        task->limbo = 0; /* its entry in the ring no longer matches */
        return;
    }
    struct queue *queue = queue_of(state, task);
    struct order *set = queue_set(queue, set_of(task), task->part);
    order_remove(set, &state->tasks, handle);
    if (set_of(task) == MR_PENDING && queue->limiter != NULL)
        limiter_leave(queue->limiter, handle);
    else if (set_of(task) == MR_PENDING && set->count == 0)
        queue->filled &= ~((uint64_t)1 << task->part);
    if (set_of(task) == MR_AGGREGATING && !state->replaying)
        group_leave(state, handle);
}

static enum mr_err limbo_grow(struct state *state)
{
    size_t cap = state->limbo_cap ? 2 * state->limbo_cap : 1024;
    struct limbo *grown = malloc(cap * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < state->limbo_n; i++)
        grown[i] = state->limbo[(state->limbo_head + i) & (state->limbo_cap - 1)];
    free(state->limbo);
    state->limbo = grown;
    state->limbo_head = 0;
    state->limbo_cap = cap;
    return MR_OK;
}

enum mr_err limbo_enter(struct state *state, uint32_t handle, uint64_t seq)
{
    struct task *task = task_at(state, handle);
    task->last = (uint32_t)seq;
#ifndef MR_PLANT_HAND_OUT_UNDURABLE
    if (!state->replaying) {
        if (state->limbo_n == state->limbo_cap)
            MR_TRY(limbo_grow(state));
        size_t at = (state->limbo_head + state->limbo_n++) & (state->limbo_cap - 1);
        state->limbo[at] = (struct limbo){.seq = seq, .tie = task->tie, .task = handle};
        task->limbo = 1;
        return MR_OK;
    }
#endif
    return set_enter(state, handle);
}

enum mr_err state_durable(struct state *state, uint64_t seq)
{
    while (state->limbo_n > 0) {
        struct limbo limbo = state->limbo[state->limbo_head];
        if (limbo.seq > seq)
            return MR_OK;
        state->limbo_head = (state->limbo_head + 1) & (state->limbo_cap - 1);
        state->limbo_n--;
        struct task *task = task_at(state, limbo.task);
        bool same = task->state != MR_STATE_NONE && task->tie == limbo.tie &&
                    task->last == (uint32_t)limbo.seq && task->limbo;
        if (!same)
            continue; /* changed again since: a later entry stands for it, or it is gone */
        task->limbo = 0;
        MR_TRY(set_enter(state, limbo.task));
    }
    return MR_OK;
}

/* ---- time ----------------------------------------------------------------------------------- */

static const enum mr_state timed[] = {MR_SCHEDULED, MR_RETRY, MR_COMPLETED};
enum { TIMED = sizeof timed / sizeof *timed };

/* But for what limits keep back. */
static bool nothing_pending(const struct queue *queue)
{
    if (queue->limiter != NULL)
        return limiter_is_empty(queue->limiter);
    for (size_t i = 0; i < queue->parts_n; i++)
        if (queue->parts[i].pending.count > 0)
            return false;
    return true;
}

/* The retries of the queue are a class of their own: those that are due wait until they are asked for. */
static bool has_class(const struct queue *queue)
{
    return queue->settings.retry_mode == MR_RETRY_CLASS;
}

/* The first of a set for which something happens by the passing of time. */
static uint32_t next_timed(const struct state *state, const struct queue *queue, enum mr_state set,
                           int64_t now_ms)
{
    const struct order *order = &queue->sets[set];
    uint32_t first = order_first(order);
    int64_t since_ms = queue->settings.class_since_ms;
    if (set != MR_RETRY || !has_class(queue) || first == NO_HANDLE ||
        task_at(state, first)->key <= since_ms)
        return first;
    struct order_at at =
        order_seek(order, &state->tasks, (now_ms > since_ms ? now_ms : since_ms) + 1, 0);
    return order_next(order, &at);
}

static int64_t queue_next_ms(const struct state *state, const struct queue *queue, int64_t now_ms)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < TIMED; i++) {
        uint32_t handle = next_timed(state, queue, timed[i], now_ms);
        if (handle != NO_HANDLE && task_at(state, handle)->key < next)
            next = task_at(state, handle)->key;
    }
    return next;
}

static void queue_undue(struct state *state, struct queue *queue)
{
    if (queue->due.index == SIZE_MAX)
        return;
    mr_heap_remove(&state->due, &queue->due);
    queue->due.index = SIZE_MAX;
}

/* Something happens in the queue at ms, and nothing before. */
static enum mr_err queue_due_at(struct state *state, struct queue *queue, int64_t ms)
{
    queue_undue(state, queue);
    if (ms == INT64_MAX)
        return MR_OK;
    queue->due.key = ms;
    queue->due.tie = queue->number;
    enum mr_err err = mr_heap_push(&state->due, &queue->due);
    if (err != MR_OK)
        queue->due.index = SIZE_MAX;
    return err;
}

static void unsaid(struct state *state, struct mr_log_pos pos)
{
    if (!state->replaying && pos.segment != 0)
        mr_log_unsaid(state->log, pos.segment);
}

static void expire(struct state *state, uint32_t handle)
{
    const struct task *task = task_at(state, handle);
    const struct more *more = more_of(state, task);
    unsaid(state, task->pos);
    if (more != NULL && more->note_size > 0)
        unsaid(state, more->note);
    state->expired++;
    task_release(state, handle);
}

static enum mr_err tick_one(struct state *state, uint32_t handle)
{
    struct task *task = task_at(state, handle);
    if (task->state == MR_COMPLETED) {
        expire(state, handle);
        return MR_OK;
    }
    const struct more *more = more_of(state, task);
    state->touch(handle, state->touch_arg);
    set_leave(state, handle);
    count_task(state, task, task->state, -1);
    count_task(state, task, MR_PENDING, 1);
    task->state = MR_PENDING;
    if (more != NULL && more->order_ms != 0)
        task->key = more->order_ms;
    return set_enter(state, handle);
}

#define AHEAD_OF_ALL_MS (5000 * MR_MS_PER_DAY) /* more than any priority */

uint32_t state_due_retry(const struct state *state, const struct queue *queue, int64_t now_ms,
                         bool *ret_late)
{
    const struct order *order = &queue->sets[MR_RETRY];
    if (!has_class(queue) || order->count == 0)
        return NO_HANDLE;
    struct order_at at = order_seek(order, &state->tasks, queue->settings.class_since_ms + 1, 0);
    uint32_t handle = order_next(order, &at);
    if (handle == NO_HANDLE || task_at(state, handle)->key > now_ms)
        return NO_HANDLE;
    int64_t wait_ms = queue->settings.retry_wait_ms;
    *ret_late = now_ms - task_at(state, handle)->key >= (wait_ms > 0 ? wait_ms : MR_RETRY_WAIT_MS);
    return handle;
}

enum mr_err state_ready_retry(struct state *state, struct queue *queue, int64_t now_ms)
{
    bool late;
    uint32_t handle = state_due_retry(state, queue, now_ms, &late);
    if (handle == NO_HANDLE || (!late && !nothing_pending(queue)))
        return MR_OK;
    struct task *task = task_at(state, handle);
    struct more *more = more_of(state, task);
    state->touch(handle, state->touch_arg);
    if (late && more != NULL) /* those that waited too long among themselves as they were due */
        more->order_ms = task->key - AHEAD_OF_ALL_MS;
    return tick_one(state, handle);
}

enum mr_err state_retimed(struct state *state, struct queue *queue, int64_t now_ms)
{
    return queue_due_at(state, queue, queue_next_ms(state, queue, now_ms));
}

static enum mr_err queue_tick(struct state *state, struct queue *queue, int64_t now_ms,
                              size_t *budget)
{
    for (size_t i = 0; i < TIMED; i++) {
        while (*budget > 0) {
            uint32_t handle = next_timed(state, queue, timed[i], now_ms);
            if (handle == NO_HANDLE || task_at(state, handle)->key > now_ms)
                break;
            MR_TRY(tick_one(state, handle));
            --*budget;
        }
    }
    bool late, due = state_due_retry(state, queue, now_ms, &late) != NO_HANDLE;
    if (due && !mr_list_empty(&queue->waiters) && mr_list_empty(&queue->ready))
        mr_list_push_back(&state->ready, &queue->ready); /* somebody asks for it */
    return queue_due_at(state, queue, queue_next_ms(state, queue, now_ms));
}

enum mr_err state_tick(struct state *state, int64_t now_ms, size_t budget)
{
    const struct mr_heap_node *top;
    while (budget > 0 && (top = mr_heap_top(&state->due)) != NULL && top->key <= now_ms) {
        struct queue *queue = mr_container(top, struct queue, due);
        MR_TRY(queue_tick(state, queue, now_ms, &budget));
    }
    return MR_OK;
}

int64_t state_next_ms(const struct state *state)
{
    const struct mr_heap_node *top = mr_heap_top(&state->due);
    return top == NULL ? INT64_MAX : top->key;
}

/* ---- space and recounts --------------------------------------------------------------------- */

void hold(struct state *state, struct mr_log_pos pos, uint32_t size, int sign)
{
    if (state->replaying || pos.segment == 0)
        return;
    mr_log_hold(state->log, pos.segment, sign * (int64_t)size);
    state->live_bytes += (uint64_t)(sign * (int64_t)size);
}

/* Whether the task was lost with its segment. A completed one whose time is over has merely
 * expired: that is not logged, and on a full disk the segment does not wait for a snapshot. */
static bool hold_task(struct state *state, uint32_t handle, int64_t now_ms)
{
    struct task *task = task_at(state, handle);
    struct more *more = more_of(state, task);
    bool gone = !mr_log_has_segment(state->log, task->pos.segment);
    bool note_gone =
        more != NULL && more->note_size > 0 && !mr_log_has_segment(state->log, more->note.segment);
    if (gone)
        task->pos.segment = 0;
    if (note_gone)
        more->note_size = 0;
    hold(state, task->pos, task->size, 1);
    if (more != NULL && more->note_size > 0)
        hold(state, more->note, more->note_size, 1);
    if ((gone || note_gone) && task->state == MR_COMPLETED && task->key <= now_ms) {
        state->expired++;
        task_release(state, handle);
        return false;
    }
    return gone;
}

uint64_t state_hold_all(struct state *state, int64_t now_ms)
{
    uint64_t lost = 0;
    for (uint32_t i = 0; i < state->tasks.used; i++)
        if (task_at(state, i)->state != MR_STATE_NONE && hold_task(state, i, now_ms))
            lost++;
    return lost;
}

size_t state_bytes(const struct state *state)
{
    size_t bytes = slab_bytes(&state->tasks) + slab_bytes(&state->mores) +
                   slab_bytes(&state->groups) + mr_map_bytes(state->by_id) +
                   mr_map_bytes(state->by_unique) + state->limbo_cap * sizeof *state->limbo;
    for (uint32_t i = 0; i < state->queues_n; i++)
        for (unsigned s = 0; state->queues[i] != NULL && s < MR_STATE_COUNT; s++)
            for (unsigned p = 0; p < queue_sets(state->queues[i], s); p++)
                bytes += order_bytes(queue_set(state->queues[i], s, p));
    return bytes;
}

static void validate_task(const struct state *state, uint32_t handle)
{
    const struct task *task = task_at(state, handle);
    const struct more *more = more_of(state, task);
    mr_assert(find_task(state, &task->id) == handle);
    mr_assert(task->queue < state->queues_n && state->queues[task->queue] != NULL);
    mr_assert(task->part < queue_of(state, task)->parts_n);
    mr_assert(task->state != MR_ACTIVE || (more != NULL && more->epoch != 0));
    mr_assert(!task->limbo || task->state != MR_ACTIVE);
    mr_assert(!(task->flags & MR_TASK_HELD) || task->state != MR_ACTIVE);
    if (task->flags & MR_TASK_UNIQUE)
        mr_assert(more != NULL && find_unique(state, &more->unique) == handle);
}

static uint64_t waiting_in(const struct state *state, const struct queue *queue, unsigned part)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        n += task->queue == queue->number && task->part == part &&
             (task->state == MR_PENDING || task->state == MR_SCHEDULED || task->state == MR_RETRY ||
              task->state == MR_AGGREGATING);
    }
    return n;
}

/* Answers how many are in its sets. */
static size_t validate_sets(const struct state *state, struct queue *queue)
{
    size_t n = 0;
    uint64_t waiting = queue->counts[MR_PENDING] + queue->counts[MR_SCHEDULED] +
                       queue->counts[MR_RETRY] + queue->counts[MR_AGGREGATING];
    for (unsigned s = 0; s < MR_STATE_COUNT; s++)
        for (unsigned p = 0; p < queue_sets(queue, s); p++) {
            const struct order *set = queue_set(queue, s, p);
            order_validate(set, &state->tasks);
            mr_assert(s != MR_PENDING || queue->limiter != NULL ||
                      (queue->filled >> p & 1) == (set->count > 0));
            n += set->count;
        }
    if (queue->limiter != NULL)
        limiter_validate(queue->limiter);
    for (unsigned p = 0; p < queue->parts_n; p++)
        mr_assert(queue->parts[p].waiting ==
                  (queue->parts_n == 1 ? waiting : waiting_in(state, queue, p)));
    mr_assert(queue->parts_n == MR_PARTITIONS_MAX || queue->filled >> queue->parts_n == 0);
    return n;
}

void state_validate(const struct state *state)
{
    uint64_t(*counts)[MR_STATE_COUNT] = calloc(state->queues_n + 1, sizeof *counts);
    mr_assert(counts != NULL);
    size_t total = 0, unique = 0, in_limbo = 0, in_sets = 0;
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        if (task->state == MR_STATE_NONE)
            continue;
        validate_task(state, i);
        counts[task->queue][task->state]++;
        unique += (task->flags & MR_TASK_UNIQUE) != 0;
        in_limbo += task->limbo;
        total++;
    }
    for (uint32_t i = 0; i < state->queues_n; i++) {
        struct queue *queue = state->queues[i];
        for (size_t s = 0; queue != NULL && s < MR_STATE_COUNT; s++)
            mr_assert(queue->counts[s] == counts[i][s]);
        in_sets += queue != NULL ? validate_sets(state, queue) : 0;
    }
    free(counts);
    mr_assert(total == state->tasks.count && total == mr_map_count(state->by_id));
    mr_assert(unique == mr_map_count(state->by_unique) && in_sets + in_limbo == total);
    mr_map_validate(state->by_id);
    groups_validate(state);
}
