/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets: members of a ripe group in the hands of whoever makes one task of them. Who holds which is
 * known in memory only. Nothing is logged until a set has become a task, so a start finds all members
 * in their groups, as when the time of a set is over. A gather that finds no ripe group waits at its
 * queue; it looks again when a group gets a member, and when the next one is ripe by the time.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"

struct set {
    struct mr_link link; /* in its bucket */
    struct mr_uuid name;
    struct queue *queue;
    struct mr_timer timer; /* its time */
    size_t n;
    uint32_t tasks[]; /* oldest first */
};

/* In the request's arena; the request is in the engine's list of all. */
struct gather_wait {
    struct mr_link waiter; /* at its queue; in no list while there is none of that name */
    struct mr_req_gather *req;
    struct mr_timer timer; /* its end, or the next look */
    uint64_t looks, ends;  /* ticks */
};

bool in_set(const struct state *state, uint32_t handle)
{
    const struct task *task = task_at(state, handle);
    return task->state == MR_AGGREGATING && more_of(state, task)->node != 0;
}

/* ---- sets ----------------------------------------------------------------------------------- */

static struct mr_link *bucket_of(struct mr_engine *engine, const struct mr_uuid *name)
{
    return &engine->sets[mr_uuid_hash(name) % SET_BUCKETS];
}

static struct set *find_set(struct mr_engine *engine, struct mr_slice queue, struct mr_slice text)
{
    struct mr_uuid name;
    if (!mr_uuid_parse(text, &name))
        return NULL;
    struct mr_link *bucket = bucket_of(engine, &name);
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next) {
        struct set *set = mr_container(link, struct set, link);
        if (memcmp(&set->name, &name, sizeof name) == 0)
            return mr_slice_equal(mr_slice_make(set->queue->name, set->queue->name_len), queue)
                       ? set
                       : NULL;
    }
    return NULL;
}

static void set_end(struct mr_engine *engine, struct set *set)
{
    mr_wheel_stop(engine->wheel, &set->timer);
    mr_list_remove(&set->link);
    free(set);
}

static void set_back(struct mr_engine *engine, struct set *set)
{
    if (group_set_back(&engine->state, set->tasks, set->n) != MR_OK)
        engine_fail(engine, MR_NOMEM);
    set_end(engine, set);
}

static void time_over(struct mr_timer *timer, void *arg)
{
    set_back(arg, mr_container(timer, struct set, timer));
}

static void set_start(struct mr_engine *engine, struct set *set, struct queue *queue,
                      struct mr_req_gather *req)
{
    for (size_t i = 0; i < set->n; i++)
        group_set_out(&engine->state, set->tasks[i]);
    set->queue = queue;
    mr_uuid_make(&set->name, (mr_wall){engine->now_us}, &engine->rand);
    mr_uuid_format(&set->name, req->set);
    mr_list_push_back(bucket_of(engine, &set->name), &set->link);
    mr_timer_init(&set->timer, time_over);
    mr_wheel_start(engine->wheel, &set->timer,
                   tick_of(engine, engine->now) + (uint64_t)mr_gather_set_ms(req) + 1);
}

/* ---- gathering ------------------------------------------------------------------------------ */

/* Copies the oldest members into the answer. One whose record cannot be read goes to the archive. */
static enum mr_err collect(struct mr_engine *engine, const struct group *group,
                           struct mr_req_gather *req, struct set *set)
{
    struct state *state = &engine->state;
    uint32_t handle = group->first, next;
    size_t bytes = 0, all = group->count; /* it may be gone with its last member */
    for (size_t i = 0; i < all && set->n < mr_gather_max(req); i++, handle = next) {
        const struct task *task = task_at(state, handle);
        next = more_of(state, task)->next;
        if (set->n > 0 && bytes + task->size > MR_SET_BYTES_MAX)
            break;
        MR_TRY(show_task(engine, handle, true, &req->req.arena, &req->tasks[set->n]));
        if (req->tasks[set->n].type.len == 0) {
            MR_TRY(quarantine_task(engine, handle));
            continue;
        }
        bytes += task->size;
        set->tasks[set->n++] = handle;
    }
    return MR_OK;
}

static enum mr_err make_set(struct mr_engine *engine, struct queue *queue,
                            const struct group *group, struct mr_req_gather *req)
{
    size_t max = group->count < mr_gather_max(req) ? group->count : mr_gather_max(req);
    struct set *set = calloc(1, sizeof *set + max * sizeof *set->tasks);
    req->tasks = mr_arena_calloc(&req->req.arena, max, sizeof *req->tasks);
    memcpy(req->group, group->name, group->name_len);
    req->group[group->name_len] = '\0';
    enum mr_err err = set == NULL || req->tasks == NULL ? MR_NOMEM : MR_OK;
    if (err == MR_OK)
        err = collect(engine, group, req, set);
    if (err != MR_OK || set->n == 0) {
        free(set);
        return err;
    }
    set_start(engine, set, queue, req);
    req->n = set->n;
    return MR_OK;
}

/* MR_EMPTY: no group is ripe. */
static enum mr_err gather(struct mr_engine *engine, struct mr_req_gather *req)
{
    MR_TRY(engine_failure(engine));
    struct queue *queue = find_queue(&engine->state, req->queue);
    struct group *group = NULL;
    while (queue != NULL && (group = group_ripe(queue, req, engine->now_ms)) != NULL) {
        MR_TRY(make_set(engine, queue, group, req));
        if (req->n > 0)
            return MR_OK;
    }
    return MR_EMPTY;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* The wall clock, by which groups are ripe, may be set: while one may become so, it is looked at now
 * and then. */
static void look_later(struct mr_engine *engine, struct gather_wait *wait,
                       const struct queue *queue)
{
    int64_t in_ms = INT64_MAX;
    for (enum ripe_by by = 0; queue != NULL && by < RIPE_BY; by++) {
        int64_t ms = group_ripe_ms(queue, wait->req, by);
        int64_t left = ms <= engine->now_ms ? 0 : ms - engine->now_ms;
        if (ms != INT64_MAX && left < in_ms)
            in_ms = left;
    }
    uint64_t looks = wait->ends;
    if (in_ms != INT64_MAX) {
        in_ms = in_ms < WALL_CHECK_MS ? in_ms : WALL_CHECK_MS;
        looks = tick_of(engine, engine->now) + (uint64_t)in_ms + 1;
    }
    looks = looks < wait->ends ? looks : wait->ends;
    if (mr_timer_running(&wait->timer) && looks >= wait->looks)
        return;
    wait->looks = looks;
    mr_wheel_stop(engine->wheel, &wait->timer);
    mr_wheel_start(engine->wheel, &wait->timer, looks);
}

static void wait_over(struct mr_engine *engine, struct gather_wait *wait, enum mr_err err)
{
    mr_wheel_stop(engine->wheel, &wait->timer);
    mr_list_remove(&wait->waiter);
    mr_list_remove(&wait->req->req.link);
    mr_req_answer(&wait->req->req, err);
}

/* What a full disk or a segment in the making keeps back now may be there a moment later. */
static void look_again(struct mr_engine *engine, struct gather_wait *wait)
{
    struct mr_req_gather *req = wait->req;
    enum mr_err err = gather(engine, req);
    bool wait_on = err == MR_EMPTY || err == MR_BUSY || err == mr_log_full(engine->log);
    if (err == MR_OK || !wait_on)
        wait_over(engine, wait, err);
    else if (tick_of(engine, engine->now) >= wait->ends)
        wait_over(engine, wait, MR_EMPTY);
    else
        look_later(engine, wait, find_queue(&engine->state, req->queue));
}

static void time_to_look(struct mr_timer *timer, void *arg)
{
    look_again(arg, mr_container(timer, struct gather_wait, timer));
}

void serve_gathers(struct mr_engine *engine)
{
    struct mr_link *riper;
    while ((riper = mr_list_pop_front(&engine->state.riper)) != NULL) {
        struct queue *queue = mr_container(riper, struct queue, riper);
        for (struct mr_link *link = queue->gathers.next, *next; link != &queue->gathers;
             link = next) {
            next = link->next;
            look_again(engine, mr_container(link, struct gather_wait, waiter));
        }
    }
}

void gather_again(struct mr_engine *engine, struct queue *queue)
{
    struct mr_slice name = mr_slice_make(queue->name, queue->name_len);
    for (struct mr_link *link = engine->gathers.next; link != &engine->gathers; link = link->next) {
        struct mr_req_gather *req = mr_container(link, struct mr_req_gather, req.link);
        struct gather_wait *wait = req->wait;
        if (mr_slice_equal(req->queue, name))
            mr_list_push_back(&queue->gathers, &wait->waiter);
    }
}

void gather_forget_queue(struct mr_engine *engine, struct queue *queue)
{
    while (mr_list_pop_front(&queue->gathers) != NULL)
        ; /* they wait on, for another of that name */
    for (size_t i = 0; i < SET_BUCKETS; i++)
        for (struct mr_link *link = engine->sets[i].next, *next; link != &engine->sets[i];
             link = next) {
            struct set *set = mr_container(link, struct set, link);
            next = link->next;
            if (set->queue == queue)
                set_end(engine, set);
        }
}

void gather_fail_all(struct mr_engine *engine, enum mr_err err)
{
    /* An engine that only checks a store has no lists. */
    while (engine->gathers.next != NULL && !mr_list_empty(&engine->gathers)) {
        struct mr_req_gather *req =
            mr_container(engine->gathers.next, struct mr_req_gather, req.link);
        wait_over(engine, req->wait, err);
    }
}

void sets_free(struct mr_engine *engine)
{
    struct mr_link *link;
    for (size_t i = 0; i < SET_BUCKETS; i++)
        while (engine->sets[i].next != NULL && (link = mr_list_pop_front(&engine->sets[i])) != NULL)
            free(mr_container(link, struct set, link));
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err start_waiting(struct mr_engine *engine, struct mr_req_gather *req)
{
    struct gather_wait *wait = mr_arena_alloc(&req->req.arena, sizeof *wait);
    if (wait == NULL)
        return MR_NOMEM;
    *wait = (struct gather_wait){.req = req};
    mr_timer_init(&wait->timer, time_to_look);
    mr_list_init(&wait->waiter);
    int64_t wait_ms = req->wait_ms < MR_MS_PER_DAY ? req->wait_ms : MR_MS_PER_DAY;
    wait->ends = tick_of(engine, engine->now) + (uint64_t)wait_ms + 1;
    req->wait = wait;
    mr_list_push_back(&engine->gathers, &req->req.link);
    struct queue *queue = find_queue(&engine->state, req->queue);
    if (queue != NULL)
        mr_list_push_back(&queue->gathers, &wait->waiter);
    look_later(engine, wait, queue);
    return MR_OK;
}

/* Nothing has changed, and what is shown is durable: it is answered at once. */
enum handled handle_gather(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_gather *req = mr_container(base, struct mr_req_gather, req);
    req->n = 0;
    req->group[0] = req->set[0] = '\0';
    enum mr_err err = mr_gather_check(req);
    if (err == MR_OK)
        err = gather(engine, req);
    if (err == MR_BUSY)
        return STALLED;
    if (err == MR_EMPTY && req->wait_ms > 0)
        err = start_waiting(engine, req);
    else if (err == MR_OK) {
        mr_req_answer(base, MR_OK);
        return HANDLED;
    }
    if (err != MR_OK)
        mr_req_answer(base, err);
    return HANDLED;
}

enum handled handle_gathered(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_gathered *req = mr_container(base, struct mr_req_gathered, req);
    enum mr_err err = mr_gathered_check(req);
    if (err == MR_OK)
        err = engine_failure(engine);
    struct set *set = err == MR_OK ? find_set(engine, req->queue, req->set) : NULL;
    if (err == MR_OK && set == NULL) {
        engine->stale_refused++;
        err = MR_STALE;
    }
    if (err == MR_OK && req->task != NULL) {
        req->result.err = enqueue_gathered(engine, req, set->queue, set->tasks, set->n);
        if (req->result.err == MR_BUSY)
            return STALLED;
        if (req->result.err == MR_OK)
            set_end(engine, set);
    } else if (err == MR_OK) {
        set_back(engine, set);
    }
    unprepare_request(base);
#ifdef MR_PLANT_GATHERED_UNDURABLE
    mr_req_answer(base, err);
#else
    answer(engine, base, err);
#endif
    return HANDLED;
}

void gather_validate(const struct mr_engine *engine)
{
    const struct state *state = &engine->state;
    size_t members = 0, marked = 0;
    for (size_t i = 0; i < SET_BUCKETS; i++)
        for (struct mr_link *link = engine->sets[i].next; link != &engine->sets[i];
             link = link->next) {
            const struct set *set = mr_container(link, const struct set, link);
            mr_assert(set->n > 0 && mr_timer_running(&set->timer));
            for (size_t m = 0; m < set->n; m++)
                mr_assert(in_set(state, set->tasks[m]));
            members += set->n;
        }
    for (uint32_t i = 0; i < state->tasks.used; i++)
        marked += task_at(state, i)->state == MR_AGGREGATING && in_set(state, i);
    mr_assert(members == marked);
}
