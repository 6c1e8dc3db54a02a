/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: the aggregating tasks of a queue by the name they share. A group lives as long as a task
 * refers to it. Those of its members that are durable and in no set are linked through their second
 * parts, by (key, tie): the time they joined, then the order in which they came. Three heaps of a
 * queue know its biggest group, the one whose oldest member is oldest, and the one that nobody has
 * joined for longest; whether one is ripe is a look at their tops, however many there are.
 *
 * While replaying nothing is linked; groups_link does it for all at once.
 */
#include "broker/embedded/state_internal.h"

/* ---- by name -------------------------------------------------------------------------------- */

struct group_key {
    uint32_t queue;
    struct mr_slice name;
};

static uint64_t key_hash(const struct state *state, struct group_key key)
{
    return queue_name_hash(state, key.name) ^ (key.queue * 0x9e3779b97f4a7c15ULL);
}

uint64_t group_hash(uint32_t number, void *arg)
{
    const struct group *group = group_at(arg, number);
    return key_hash(arg, (struct group_key){group->queue, group_name(group)});
}

bool group_equal(uint32_t number, const void *key_, void *arg)
{
    const struct group *group = group_at(arg, number);
    const struct group_key *key = key_;
    return group->queue == key->queue && mr_slice_equal(group_name(group), key->name);
}

enum mr_err group_put(struct state *state, uint32_t queue, struct mr_slice name,
                      uint32_t *ret_number)
{
    struct group_key key = {queue, name};
    uint64_t hash = key_hash(state, key);
    uint32_t number = mr_map_find(state->by_group, hash, &key);
    if (number != MR_MAP_NONE) {
        *ret_number = number;
        return MR_OK;
    }
    if (name.len == 0 || name.len > MR_NAME_MAX)
        return MR_DAMAGED;
    MR_TRY(slab_alloc(&state->groups, &number));
    struct group *group = group_at(state, number);
    group->queue = queue;
    group->name_len = (uint8_t)name.len;
    memcpy(group->name, name.data, name.len);
    group->first = group->last = NO_HANDLE;
    for (size_t i = 0; i < RIPE_BY; i++)
        group->ripe[i].index = SIZE_MAX;
    enum mr_err err = mr_map_insert(state->by_group, hash, number);
    if (err != MR_OK) {
        slab_free(&state->groups, number);
        return err;
    }
    *ret_number = number;
    return MR_OK;
}

void group_hold(struct state *state, uint32_t handle, uint32_t number)
{
    more_of(state, task_at(state, handle))->group = number;
    group_at(state, number)->refs++;
}

void group_let_go(struct state *state, uint32_t handle)
{
    struct more *more = more_of(state, task_at(state, handle));
    uint32_t number = more->group;
    struct group *group = group_at(state, number);
    more->group = more->next = more->prev = more->node = 0;
    mr_assert(group->refs > 0);
    if (--group->refs > 0)
        return;
    mr_assert(group->count == 0);
    mr_map_remove(state->by_group, group_hash(number, state), number);
    slab_free(&state->groups, number);
}

/* ---- members -------------------------------------------------------------------------------- */

/* Its places in the heaps of its queue, after its members have changed. */
static enum mr_err rank(struct state *state, uint32_t number)
{
    struct group *group = group_at(state, number);
    struct queue *queue = state->queues[group->queue];
    int64_t keys[RIPE_BY] = {0};
    if (group->count > 0) {
        keys[RIPE_BY_SIZE] = -(int64_t)group->count;
        keys[RIPE_BY_OLDEST] = task_at(state, group->first)->key;
        keys[RIPE_BY_NEWEST] = task_at(state, group->last)->key;
    }
    for (size_t i = 0; i < RIPE_BY; i++) {
        struct mr_heap_node *node = &group->ripe[i];
        bool in_heap = node->index != SIZE_MAX;
        if (in_heap && group->count > 0 && node->key == keys[i])
            continue;
        if (in_heap)
            mr_heap_remove(&queue->ripe[i], node);
        node->index = SIZE_MAX;
        if (group->count == 0)
            continue;
        *node = (struct mr_heap_node){.key = keys[i], .tie = number};
        enum mr_err err = mr_heap_push(&queue->ripe[i], node);
        if (err != MR_OK) {
            node->index = SIZE_MAX;
            return err;
        }
    }
    return MR_OK;
}

static bool comes_before(const struct state *state, uint32_t a, uint32_t b)
{
    const struct task *x = task_at(state, a), *y = task_at(state, b);
    return x->key != y->key ? x->key < y->key : x->tie < y->tie;
}

/* Behind after, or first of all for NO_HANDLE. */
static void link_behind(struct state *state, struct group *group, uint32_t after, uint32_t handle)
{
    struct more *more = more_of(state, task_at(state, handle));
    uint32_t next = after == NO_HANDLE ? group->first : more_of(state, task_at(state, after))->next;
    more->prev = after;
    more->next = next;
    if (after == NO_HANDLE)
        group->first = handle;
    else
        more_of(state, task_at(state, after))->next = handle;
    if (next == NO_HANDLE)
        group->last = handle;
    else
        more_of(state, task_at(state, next))->prev = handle;
    group->count++;
}

static void unlink_member(struct state *state, struct group *group, uint32_t handle)
{
    const struct more *more = more_of(state, task_at(state, handle));
    if (more->prev == NO_HANDLE)
        group->first = more->next;
    else
        more_of(state, task_at(state, more->prev))->next = more->next;
    if (more->next == NO_HANDLE)
        group->last = more->prev;
    else
        more_of(state, task_at(state, more->next))->prev = more->prev;
    group->count--;
}

static struct group *group_of(const struct state *state, uint32_t handle)
{
    return group_at(state, more_of(state, task_at(state, handle))->group);
}

/* Who has just joined comes last, unless the clock was set back. */
enum mr_err group_enter(struct state *state, uint32_t handle)
{
    struct group *group = group_of(state, handle);
    struct queue *queue = state->queues[group->queue];
    uint32_t after = group->last;
    while (after != NO_HANDLE && comes_before(state, handle, after))
        after = more_of(state, task_at(state, after))->prev;
    link_behind(state, group, after, handle);
    if (!mr_list_empty(&queue->gathers) && mr_list_empty(&queue->riper))
        mr_list_push_back(&state->riper, &queue->riper);
    return rank(state, more_of(state, task_at(state, handle))->group);
}

void group_leave(struct state *state, uint32_t handle)
{
    const struct more *more = more_of(state, task_at(state, handle));
    if (more->node != 0)
        return; /* it is in a set */
    unlink_member(state, group_of(state, handle), handle);
    /* A heap that has lost one has room for it. */
    enum mr_err err = rank(state, more->group);
    mr_assert(err == MR_OK);
}

void group_set_out(struct state *state, uint32_t handle)
{
    group_leave(state, handle);
    more_of(state, task_at(state, handle))->node = 1;
}

/* They were the oldest when they left, so their places are near the front. */
enum mr_err group_set_back(struct state *state, const uint32_t *handles, size_t n)
{
    struct group *group = group_of(state, handles[0]);
    struct queue *queue = state->queues[group->queue];
    uint32_t after = NO_HANDLE, next = group->first;
    for (size_t i = 0; i < n; i++) {
        while (next != NO_HANDLE && comes_before(state, next, handles[i])) {
            after = next;
            next = more_of(state, task_at(state, next))->next;
        }
        more_of(state, task_at(state, handles[i]))->node = 0;
        link_behind(state, group, after, handles[i]);
        after = handles[i];
    }
    if (!mr_list_empty(&queue->gathers) && mr_list_empty(&queue->riper))
        mr_list_push_back(&state->riper, &queue->riper);
    return rank(state, more_of(state, task_at(state, handles[0]))->group);
}

enum mr_err groups_link(struct state *state)
{
    for (uint32_t i = 0; i < state->queues_n; i++) {
        if (state->queues[i] == NULL)
            continue;
        const struct order *members = &state->queues[i]->sets[MR_AGGREGATING];
        struct order_at at = order_seek(members, &state->tasks, INT64_MIN, 0);
        uint32_t handle;
        while ((handle = order_next(members, &at)) != NO_HANDLE)
            MR_TRY(group_enter(state, handle));
    }
    return MR_OK;
}

/* ---- ripeness ------------------------------------------------------------------------------- */

static struct group *top(const struct queue *queue, enum ripe_by by)
{
    struct mr_heap_node *node = mr_heap_top(&queue->ripe[by]);
    return node == NULL ? NULL : mr_container(node, struct group, ripe[by]);
}

static int64_t later(int64_t ms, int64_t by)
{
    return ms > INT64_MAX - by ? INT64_MAX : ms + by;
}

int64_t group_ripe_ms(const struct queue *queue, const struct mr_req_gather *rule, enum ripe_by by)
{
    const struct group *group = top(queue, by);
    if (group == NULL)
        return INT64_MAX;
    if (by == RIPE_BY_SIZE)
        return group->count >= mr_gather_max(rule) ? INT64_MIN : INT64_MAX;
    if (by == RIPE_BY_OLDEST)
        return rule->max_delay_ms == 0 ? INT64_MAX : later(group->ripe[by].key, rule->max_delay_ms);
#ifdef MR_PLANT_GRACE_FROM_FIRST
    by = RIPE_BY_OLDEST;
#endif
    return later(group->ripe[by].key, rule->grace_ms);
}

/* Of the ripe ones at the tops that with the oldest member, so that no busy group keeps another from
 * its turn. */
struct group *group_ripe(const struct queue *queue, const struct mr_req_gather *rule,
                         int64_t now_ms)
{
    struct group *best = NULL;
    for (enum ripe_by by = 0; by < RIPE_BY; by++) {
        struct group *group = top(queue, by);
        if (group_ripe_ms(queue, rule, by) > now_ms)
            continue;
        if (best == NULL || group->ripe[RIPE_BY_OLDEST].key < best->ripe[RIPE_BY_OLDEST].key)
            best = group;
    }
    return best;
}

/* ---- recounts ------------------------------------------------------------------------------- */

static size_t validate_group(const struct state *state, uint32_t number)
{
    const struct group *group = group_at(state, number);
    size_t n = 0;
    uint32_t before = NO_HANDLE;
    for (uint32_t handle = group->first; handle != NO_HANDLE; n++) {
        const struct task *task = task_at(state, handle);
        const struct more *more = more_of(state, task);
        mr_assert(task->state == MR_AGGREGATING && !task->limbo);
        mr_assert(more->group == number && more->node == 0 && more->prev == before);
        mr_assert(before == NO_HANDLE || comes_before(state, before, handle));
        before = handle;
        handle = more->next;
    }
    mr_assert(n == group->count && group->last == before && n <= group->refs);
    for (size_t i = 0; i < RIPE_BY; i++)
        mr_assert((group->ripe[i].index == SIZE_MAX) == (n == 0));
    if (n > 0)
        mr_assert(group->ripe[RIPE_BY_SIZE].key == -(int64_t)n &&
                  group->ripe[RIPE_BY_OLDEST].key == task_at(state, group->first)->key &&
                  group->ripe[RIPE_BY_NEWEST].key == task_at(state, group->last)->key);
    return n;
}

void groups_validate(const struct state *state)
{
    size_t refs = 0, linked = 0, members = 0, out = 0, groups = 0;
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        if (task->state != MR_AGGREGATING)
            continue;
        members++;
        out += more_of(state, task)->node != 0 || task->limbo || (task->flags & MR_TASK_HELD);
        mr_assert(group_of(state, i)->queue == task->queue);
    }
    for (uint32_t i = 0; i < state->groups.used; i++) {
        if (group_at(state, i)->refs == 0)
            continue;
        groups++;
        refs += group_at(state, i)->refs;
        linked += validate_group(state, i);
    }
    mr_assert(refs == members && (state->replaying || linked + out == members));
    mr_assert(groups == state->groups.count && groups == mr_map_count(state->by_group));
    for (uint32_t i = 0; i < state->queues_n; i++)
        for (size_t by = 0; state->queues[i] != NULL && by < RIPE_BY; by++)
            mr_heap_validate(&state->queues[i]->ripe[by]);
}
