/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is addressed to others falls to a node: a queue Q@NAME is for the workers of Q that listen to it by this
 * name, and what stood ready there for fall_ms is handed out to any of Q that says so. It is taken from where it
 * is: nothing moves, so nothing can be lost or doubled by it, and its order, its limits and its figures stay those of its
 * own queue. Stores without such queues pay a look at an empty list.
 *
 * Time alone makes a task fall, so takes that wait are served by a timer, which runs only while there is
 * something to fall and somebody to catch it.
 *
 * Workers come and go, and most have a new name each time: so a queue that is an address of one that is gone, and holds
 * nothing any more, goes too, some time after its last run.
 */
#include "broker/embedded/engine.h"
#include "wire/node.h"

enum {
    TICK_MOST_MS = 1000, /* so late it may be noticed */
    TICKS = 8,           /* or a part of the shortest time there is */
    SWEEP_MS = 10 * 60 * 1000,
};

static struct mr_slice name_of(const struct queue *queue)
{
    return mr_slice_make(queue->name, queue->name_len);
}

static bool listens_to(const struct node *node, const struct queue *queue)
{
    for (size_t i = 0; i < node->listens_n; i++)
        if (node->listens[i].queue == queue)
            return true;
    return false;
}

/* Whether it has been ready for long enough. By its place in the order first: a priority only makes that
 * earlier, and what it was must be read. */
static bool has_fallen(struct mr_engine *engine, uint32_t handle, int64_t fall_ms)
{
    const struct task *task = task_at(&engine->state, handle);
    int64_t ready_us;
    return engine->now_ms - fall_ms >= take_order_ms(engine, task) &&
           take_ready_us(engine, task, &ready_us) == MR_OK &&
           engine->now_us - fall_ms * MR_US_PER_MS >= ready_us;
}

/* The partition whose first task is the first of all. */
static unsigned first_part(const struct mr_engine *engine, const struct queue *queue)
{
    unsigned best = 0;
    int64_t best_ms = INT64_MAX;
    for (uint64_t left = queue->filled; left != 0 && queue->parts_n > 1; left &= left - 1) {
        unsigned part = (unsigned)__builtin_ctzll(left);
        uint32_t handle = order_first(&queue->parts[part].pending);
        int64_t ms = handle != NO_HANDLE ? task_at(&engine->state, handle)->key : INT64_MAX;
        if (ms < best_ms) {
            best = part;
            best_ms = ms;
        }
    }
    return best;
}

/* The first of a queue that is an address of another node. */
static uint32_t first_of(struct mr_engine *engine, const struct node *node, struct queue *queue)
{
    uint32_t handle;
    if (queue->paused || listens_to(node, queue))
        return NO_HANDLE;
    if (queue->limiter != NULL &&
        (node->in_hand >= node->slots ||
         state_ready_retry(&engine->state, queue, engine->now_ms) != MR_OK))
        return NO_HANDLE;
    if (!take_has_some(engine, queue) ||
        take_first(engine, queue, first_part(engine, queue), &handle) != MR_OK)
        return NO_HANDLE;
    return has_fallen(engine, handle, node->fall_ms) ? handle : NO_HANDLE;
}

uint32_t fall_first(struct mr_engine *engine, const struct listen *listen)
{
    struct mr_link *all = &engine->state.addressed;
    uint32_t best = NO_HANDLE;
    if (mr_list_empty(all) || listen->node->fall_ms == 0 ||
        (listen->queue != NULL && listen->queue->paused))
        return NO_HANDLE;
    struct mr_slice base = mr_slice_make(listen->name, listen->name_len);
    for (struct mr_link *link = all->next; link != all; link = link->next) {
        struct queue *queue = mr_container(link, struct queue, addressed);
        if (!mr_is_address(name_of(queue), base))
            continue;
        uint32_t handle = first_of(engine, listen->node, queue);
        if (handle != NO_HANDLE &&
            (best == NO_HANDLE || take_order_ms(engine, task_at(&engine->state, handle)) <
                                      take_order_ms(engine, task_at(&engine->state, best))))
            best = handle;
    }
    return best;
}

/* ---- those who wait ------------------------------------------------------------------------- */

/* The shortest time after which something falls to a node that waits; 0: there is none. */
static int64_t shortest_ms(const struct mr_engine *engine)
{
    int64_t ms = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        if (node->fall_ms > 0 && !mr_list_empty(&node->takes) && (ms == 0 || node->fall_ms < ms))
            ms = node->fall_ms;
    }
    return ms;
}

void fall_watch(struct mr_engine *engine)
{
    struct mr_link *all = &engine->state.addressed;
    bool some = false;
    if (!mr_list_empty(all) && !mr_timer_running(&engine->sweep_timer))
        mr_wheel_start(engine->wheel, &engine->sweep_timer,
                       tick_of(engine, engine->now) + SWEEP_MS);
    if (mr_list_empty(all) || mr_timer_running(&engine->fall_timer))
        return;
    for (struct mr_link *link = all->next; link != all && !some; link = link->next)
        some = take_has_some(engine, mr_container(link, struct queue, addressed));
    int64_t ms = some ? shortest_ms(engine) / TICKS : 0;
    if (!some || (ms == 0 && shortest_ms(engine) == 0))
        return;
    ms = ms < 1 ? 1 : ms > TICK_MOST_MS ? TICK_MOST_MS : ms;
    mr_wheel_start(engine->wheel, &engine->fall_timer, tick_of(engine, engine->now) + (uint64_t)ms);
}

static void tick(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    (void)timer;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        if (node->fall_ms > 0 && !node->dying)
            take_serve_node(engine, node);
    }
    fall_watch(engine);
}

/* ---- those that nobody needs any more -------------------------------------------------------- */

/* A queue of this name's beginning is there, or somebody serves one. */
static bool is_address_of_any(const struct mr_engine *engine, const struct queue *queue)
{
    const struct state *state = &engine->state;
    for (uint32_t i = 0; i < state->queues_n; i++)
        if (state->queues[i] != NULL && mr_is_address(name_of(queue), name_of(state->queues[i])))
            return true;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        for (size_t i = 0; i < node->listens_n; i++) {
            const struct listen *listen = &node->listens[i];
            if (mr_is_address(name_of(queue), mr_slice_make(listen->name, listen->name_len)))
                return true;
        }
    }
    return false;
}

/* It holds nothing, is as it was made, and nothing has run there today. */
static bool is_left(const struct mr_engine *engine, const struct queue *queue)
{
    int64_t today = engine->now_ms / MR_MS_PER_DAY;
    bool made = !queue->paused && queue->max_length == 0 && queue->parts_n == 1 &&
                queue->settings.retry_mode == MR_RETRY_GATE && queue->limits_bytes == NULL;
    for (size_t s = 0; s < MR_STATE_COUNT; s++)
        made = made && queue->counts[s] == 0;
    return made && (queue->days_n == 0 || queue->days[queue->days_n - 1].day < today);
}

static bool is_listened_to(const struct mr_engine *engine, const struct queue *queue)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        if (listens_to(mr_container(link, struct node, link), queue))
            return true;
    return !mr_list_empty(&queue->gathers);
}

/* What cannot be removed just now is the next time. */
static void sweep(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    struct mr_link *all = &engine->state.addressed, *next;
    for (struct mr_link *link = all->next; link != all; link = next) {
        struct queue *queue = mr_container(link, struct queue, addressed);
        next = link->next;
        if (!is_left(engine, queue) || is_listened_to(engine, queue) ||
            !is_address_of_any(engine, queue))
            continue;
        if (remove_queue(engine, queue, MR_QUEUE_REMOVE_EMPTY) != MR_OK)
            break;
    }
    if (!mr_list_empty(all))
        mr_wheel_start(engine->wheel, timer, tick_of(engine, engine->now) + SWEEP_MS);
}

void fall_init(struct mr_engine *engine)
{
    mr_timer_init(&engine->fall_timer, tick);
    mr_timer_init(&engine->sweep_timer, sweep);
}
