/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a task. A request that waits hangs in a bucket found by the task's handle,
 * which stays the same as long as the task lives. The task is marked, so that the end of those that
 * nobody waits for costs a look at one byte; the mark stays when a waiter gives up, which costs a
 * look into the bucket. The answer is filled when the end is in the log, and given when it is
 * durable.
 */
#include "broker/embedded/engine.h"

/* In the request's arena. */
struct await {
    struct mr_timer timer;
    struct mr_req_await *req;
    uint32_t task;
};

static struct mr_link *bucket_of(struct mr_engine *engine, uint32_t task)
{
    return &engine->awaits[task % AWAIT_BUCKETS];
}

static struct await *await_at(const struct mr_link *link)
{
    return mr_container(link, const struct mr_req_await, req.link)->wait;
}

static void wait_over(struct mr_engine *engine, struct await *await)
{
    mr_wheel_stop(engine->wheel, &await->timer);
    mr_list_remove(&await->req->req.link);
    await->req->wait = NULL;
    engine->awaits_n--;
}

/* That it took too long is true whatever becomes of the disk. */
static void timed_out(struct mr_timer *timer, void *arg)
{
    struct await *await = mr_container(timer, struct await, timer);
    wait_over(arg, await);
    mr_req_answer(&await->req->req, MR_TIMEOUT);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static enum mr_err fill(struct mr_engine *engine, struct await *await, enum task_end end,
                        struct mr_slice result)
{
    struct mr_task *task = &await->req->task;
    struct mr_arena *arena = &await->req->req.arena;
    if (end == TASK_END_GONE)
        return MR_NOT_FOUND;
    MR_TRY(show_task(engine, await->task, true, arena, task));
    if (end == TASK_END_KEPT)
        return MR_OK;
    task->state = MR_COMPLETED;
    task->finished_ms = engine->now_ms;
    task->node = (struct mr_slice){0};
    return mr_arena_copy(arena, result, &task->result);
}

void await_end(struct mr_engine *engine, uint32_t handle, enum task_end end, struct mr_slice result)
{
    if (!task_at(&engine->state, handle)->awaited)
        return;
    task_at(&engine->state, handle)->awaited = false;
    struct mr_link *bucket = bucket_of(engine, handle);
    for (struct mr_link *link = bucket->next, *next; link != bucket; link = next) {
        struct await *await = await_at(link);
        next = link->next;
        if (await->task != handle)
            continue;
        wait_over(engine, await);
        enum mr_err err = fill(engine, await, end, result);
#ifdef MR_PLANT_END_TOLD_UNDURABLE
        mr_req_answer(&await->req->req, err);
#else
        answer(engine, &await->req->req, err);
#endif
    }
}

void await_queue_gone(struct mr_engine *engine, const struct queue *queue)
{
    for (size_t i = 0; engine->awaits_n > 0 && i < AWAIT_BUCKETS; i++) {
        struct mr_link *bucket = &engine->awaits[i];
        for (struct mr_link *link = bucket->next, *next; link != bucket; link = next) {
            struct await *await = await_at(link);
            next = link->next;
            if (task_at(&engine->state, await->task)->queue != queue->number)
                continue;
            wait_over(engine, await);
            answer(engine, &await->req->req, MR_NOT_FOUND);
        }
    }
}

void await_fail_all(struct mr_engine *engine, enum mr_err err)
{
    for (size_t i = 0; engine->awaits_n > 0 && i < AWAIT_BUCKETS; i++)
        while (!mr_list_empty(&engine->awaits[i])) {
            struct await *await = await_at(engine->awaits[i].next);
            wait_over(engine, await);
            mr_req_answer(&await->req->req, err);
        }
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err start_waiting(struct mr_engine *engine, struct mr_req_await *req,
                                 uint32_t handle)
{
    MR_TRY(engine_failure(engine));
    if (req->wait_ms <= 0)
        return MR_TIMEOUT;
    if (engine->awaits_n == AWAITS_MAX)
        return MR_BUSY;
    struct await *await = mr_arena_alloc(&req->req.arena, sizeof *await);
    if (await == NULL)
        return MR_NOMEM;
    *await = (struct await){.req = req, .task = handle};
    mr_timer_init(&await->timer, timed_out);
    int64_t wait_ms = req->wait_ms < MR_DELAY_MAX_MS ? req->wait_ms : MR_DELAY_MAX_MS;
    mr_wheel_start(engine->wheel, &await->timer,
                   tick_of(engine, engine->now) + (uint64_t)wait_ms + 1);
    req->wait = await;
    mr_list_push_back(bucket_of(engine, handle), &req->req.link);
    task_at(&engine->state, handle)->awaited = true;
    engine->awaits_n++;
    return MR_OK;
}

enum handled handle_await(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_await *req = mr_container(base, struct mr_req_await, req);
    bool is_uuid;
    req->wait = NULL;
    struct mr_uuid id = id_key(&engine->state, req->id, &is_uuid);
    uint32_t handle = find_shown_task(&engine->state, &id);
    enum mr_state state =
        handle == NO_HANDLE ? MR_STATE_NONE : task_at(&engine->state, handle)->state;
    if (state == MR_STATE_NONE || state == MR_COMPLETED || state == MR_ARCHIVED) {
        answer(engine, base, show_known_task(engine, handle, &base->arena, &req->task));
        return HANDLED;
    }
    enum mr_err err = start_waiting(engine, req, handle);
    if (err != MR_OK)
        mr_req_answer(base, err);
    return HANDLED;
}

/* What is in no list has been answered; what is in another than a bucket waits for the disk. */
enum handled handle_unawait(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_await *req = mr_container(base, struct mr_req_unawait, req)->await;
    if (!mr_list_empty(&req->req.link)) {
        if (req->wait != NULL)
            wait_over(engine, req->wait);
        else
            mr_list_remove(&req->req.link);
        mr_req_answer(&req->req, MR_CANCELLED);
    }
    mr_req_answer(base, MR_OK);
    return HANDLED;
}

void await_validate(const struct mr_engine *engine)
{
    size_t n = 0;
    for (size_t i = 0; i < AWAIT_BUCKETS; i++)
        for (struct mr_link *link = engine->awaits[i].next; link != &engine->awaits[i];
             link = link->next) {
            const struct await *await = await_at(link);
            const struct task *task = task_at(&engine->state, await->task);
            mr_assert(await->task % AWAIT_BUCKETS == i && task->awaited);
            mr_assert(task->state != MR_STATE_NONE && task->state != MR_COMPLETED &&
                      task->state != MR_ARCHIVED);
            n++;
        }
    mr_assert(n == engine->awaits_n);
}
