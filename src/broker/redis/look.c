/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/redis/look.h"

#include <math.h>
#include <stdlib.h>

enum { FAN_MAX = 128 }; /* queues that are asked at once: an act of 1000 items is long */

const struct op look_ops[MR_OP_COUNT] = {
    [MR_OP_GET] = {.begin = get_begin},
    [MR_OP_LIST] = {.prepare = list_prepare, .begin = list_begin},
    [MR_OP_QUEUE_LIST] = {.begin = queue_list_begin},
    [MR_OP_QUEUE_HISTORY] = {.begin = queue_history_begin},
    [MR_OP_QUEUE_SET] = {.prepare = queue_set_prepare, .begin = queue_set_begin},
    [MR_OP_QUEUE_REMOVE] = {.begin = queue_remove_begin},
    [MR_OP_QUEUE_LIMITS] = {.begin = limits_begin},
    [MR_OP_CONTROL] = {.prepare = control_prepare, .begin = control_begin},
    [MR_OP_AWAIT] = {.prepare = await_prepare, .begin = await_begin},
    [MR_OP_UNAWAIT] = {.begin = unawait_begin},
    [MR_OP_NODE_LIST] = {.begin = node_list_begin},
    [MR_OP_STATS] = {.begin = stats_begin},
    [MR_OP_GATHER] = {.prepare = gather_prepare, .begin = gather_begin},
    [MR_OP_GATHERED] = {.prepare = gathered_prepare, .begin = gathered_begin},
};

enum mr_err look_init(struct engine *engine)
{
    struct look *look = calloc(1, sizeof *look);
    if (look == NULL)
        return MR_NOMEM;
    engine->look = look;
    mr_list_init(&look->gathers);
    look->awaits = awaits_new(engine);
    return look->awaits != NULL ? MR_OK : MR_NOMEM;
}

void look_done(struct engine *engine)
{
    if (engine->look != NULL)
        awaits_free(look_of(engine)->awaits);
    free(engine->look);
    engine->look = NULL;
}

void look_leave(struct engine *engine)
{
    look_awaits_leave(look_of(engine)->awaits);
    gathers_leave(engine);
}

void look_up(struct engine *engine)
{
    look_awaits_up(look_of(engine)->awaits);
}

enum mr_err look_array(struct engine *engine, enum mr_err err, const struct mr_reply *reply)
{
    if (err == MR_OK && reply->kind == MR_REPLY_ARRAY)
        return MR_OK;
    return engine_refused(engine, err, reply);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static double number_of(const struct mr_reply *reply)
{
    char text[64];
    if (reply->kind == MR_REPLY_INTEGER)
        return (double)reply->integer;
    if (reply->kind != MR_REPLY_TEXT || reply->text.len >= sizeof text)
        return 0;
    memcpy(text, reply->text.data, reply->text.len);
    text[reply->text.len] = '\0';
    double number = strtod(text, NULL);
    return isfinite(number) ? number : 0;
}

/* Ours counts as long as it says the same second as the score. */
static struct standing view_standing(const struct mr_reply *view)
{
    struct standing standing = {
        .state = (enum mr_state)mr_reply_int(mr_reply_at(view, VIEW_STATE), MR_STATE_NONE)};
    double score = number_of(mr_reply_at(view, VIEW_SCORE));
    double ours = number_of(mr_reply_at(view, VIEW_OURS));
    if (standing.state == MR_PENDING)
        standing.order_ms = ours;
    else if (standing.state == MR_SCHEDULED || standing.state == MR_RETRY)
        standing.due_ms = (int64_t)(ceil(ours / 1000) == score ? ours : score * 1000);
    return standing;
}

enum mr_err view_read(const struct rqueue *queue, const struct mr_reply *view,
                      struct mr_arena *arena, struct mr_task *ret_task)
{
    struct standing standing = view_standing(view);
    if ((unsigned)standing.state >= MR_STATE_COUNT)
        return MR_FAILED;
    struct mr_task task;
    enum mr_err err =
        message_read(queue->engine, mr_reply_at(view, VIEW_FIELDS), &standing, arena, &task);
    if (err == MR_DAMAGED) {
        task =
            (struct mr_task){.state = standing.state,
                             .due_ms = standing.due_ms,
                             .id = mr_reply_at(view, VIEW_ID)->text,
                             .queue = queue->name,
                             .last_error = MR_SLICE_LIT("(the message of this task is damaged)")};
        err = MR_OK;
    }
    MR_TRY(err);
    task.partition = queue->number;
    if (queue->part_of != NULL)
        task.queue = queue->part_of->name;
    MR_TRY(message_keep(&task, arena));
    *ret_task = task;
    return MR_OK;
}

/* ---- all queues ----------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct rqueue *x = *(struct rqueue *const *)a, *y = *(struct rqueue *const *)b;
    return mr_slice_compare(x->name, y->name);
}

/* Some of its partitions are. */
static bool is_known(const struct rqueue *queue)
{
    bool known = queue->known;
    for (uint32_t i = 1; i < queue->widest; i++)
        known |= queue->parts[i]->known;
    return known && (queue->inner || mr_name_check(queue->name) == MR_OK);
}

enum mr_err known_queues(struct engine *engine, struct mr_arena *arena, struct known *ret_known)
{
    struct known known = {.queues = mr_arena_calloc(arena, engine->queues_n + 1, sizeof(void *))};
    if (known.queues == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        if (engine->queues[i]->part_of == NULL && !engine->queues[i]->inner &&
            is_known(engine->queues[i]))
            known.queues[known.n++] = engine->queues[i];
    qsort(known.queues, known.n, sizeof *known.queues, by_name);
    *ret_known = known;
    return MR_OK;
}

enum mr_err known_parts(struct engine *engine, const struct rqueue *only, struct mr_arena *arena,
                        struct known *ret_known)
{
    struct known known = {.queues = mr_arena_calloc(arena, engine->queues_n + 1, sizeof(void *))};
    if (known.queues == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < engine->queues_n; i++) {
        struct rqueue *queue = engine->queues[i];
        bool wanted = only == NULL || only == queue || only == queue->part_of;
        bool named = queue->inner || mr_name_check(queue->name) == MR_OK;
        if (wanted && is_known(rqueue_whole(queue)) && named)
            known.queues[known.n++] = queue;
    }
    *ret_known = known;
    return MR_OK;
}

static enum mr_err known_leaving(struct engine *engine, enum fan_whom whom, struct mr_arena *arena,
                                 struct known *ret_known)
{
    struct known known = {.queues = mr_arena_calloc(arena, engine->queues_n + 1, sizeof(void *))};
    if (known.queues == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < engine->queues_n; i++) {
        struct rqueue *queue = engine->queues[i];
        bool there = whom == FAN_BOTH && is_known(rqueue_whole(queue));
        if ((there || queue->leaves.known) && mr_name_check(queue->name) == MR_OK)
            known.queues[known.n++] = queue;
    }
    *ret_known = known;
    return MR_OK;
}

struct rqueue *known_queue(struct engine *engine, struct mr_slice name)
{
    if (mr_queue_is_inner(name)) /* whether somebody has used it or not */
        return name.len <= MR_NAME_MAX ? rqueue_get(engine, name) : NULL;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        if (mr_slice_equal(engine->queues[i]->name, name))
            return is_known(engine->queues[i]) ? engine->queues[i] : NULL;
    return NULL;
}

struct fan_call {
    struct mr_redis_call call;
    struct fan *fan;
    struct rqueue *queue;
};

static void fan_failed(struct fan *fan, enum mr_err err)
{
    if (fan->own.err == MR_OK)
        fan->own.err = err;
}

static void fan_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);

/* Asks the next queue, if there is one. */
static void fan_next(struct fan *fan, struct fan_call *one)
{
    if (fan->own.next == fan->own.known.n)
        return;
    *one = (struct fan_call){.call = {.answered = fan_answered,
                                      .arg = one,
                                      .repeatable = !fan->acts,
                                      .urgent = true,
                                      .durable = fan->acts},
                             .fan = fan,
                             .queue = fan->own.known.queues[fan->own.next++]};
    rqueue_eval(one->queue, &one->call, fan->script, fan->args, fan->args_n);
}

static void fan_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct fan_call *one = call->arg;
    struct fan *fan = one->fan;
    err = look_array(fan->ticket->engine, err, reply);
    if (err == MR_OK)
        err = fan->said(fan, one->queue, reply);
    fan_failed(fan, err);
    if (--fan->own.left == 0)
        fan->done(fan, fan->own.err);
    else
        fan_next(fan, one);
}

/* Asks them, as many at once as may be. */
static void fan_start(struct fan *fan, enum mr_err err)
{
    struct mr_arena *arena = &fan->ticket->req->arena;
    const struct known *known = &fan->own.known;
    size_t n = known->n < FAN_MAX ? known->n : FAN_MAX;
    if (err == MR_OK && n > 0) {
        fan->own.calls = mr_arena_calloc(arena, n, sizeof *fan->own.calls);
        err = fan->own.calls != NULL ? MR_OK : MR_NOMEM;
    }
    if (err != MR_OK || n == 0) {
        fan->done(fan, err);
        return;
    }
    fan->own.left = known->n;
    for (size_t i = 0; i < n; i++)
        fan_next(fan, &fan->own.calls[i]);
}

static void fan_names(struct queues_ask *ask, enum mr_err err)
{
    struct fan *fan = ask->arg;
    if (err == MR_OK && fan->whom == FAN_QUEUES)
        err = known_parts(ask->engine, NULL, &fan->ticket->req->arena, &fan->own.known);
    else if (err == MR_OK)
        err = known_leaving(ask->engine, fan->whom, &fan->ticket->req->arena, &fan->own.known);
    fan_start(fan, err);
}

static void fan_begin(struct fan *fan)
{
    fan->own.err = MR_OK;
    fan->own.next = 0;
    fan->own.known = (struct known){0};
}

void fan_out(struct fan *fan)
{
    fan_begin(fan);
    fan->own.ask = (struct queues_ask){.then = fan_names, .arg = fan, .fresh = true};
    queues_ask(fan->ticket->engine, &fan->own.ask);
}

void fan_parts(struct fan *fan, struct rqueue *queue)
{
    struct mr_arena *arena = &fan->ticket->req->arena;
    fan_begin(fan);
    fan->own.known.queues = mr_arena_calloc(arena, queue->widest, sizeof(struct rqueue *));
    for (uint32_t i = 1; fan->own.known.queues != NULL && i <= queue->widest; i++)
        fan->own.known.queues[fan->own.known.n++] = rqueue_part(queue, i);
    fan_start(fan, fan->own.known.queues != NULL ? MR_OK : MR_NOMEM);
}

/* ---- one queue ------------------------------------------------------------------------------ */

struct names {
    struct queues_ask ask;
    struct ticket *ticket;
    void (*then)(struct ticket *ticket);
};

static void names_known(struct queues_ask *ask, enum mr_err err)
{
    struct names *names = ask->arg;
    if (err != MR_OK)
        ticket_done(names->ticket, err);
    else
        names->then(names->ticket);
}

void look_names(struct ticket *ticket, void (*then)(struct ticket *ticket))
{
    struct names *names = mr_arena_calloc(&ticket->req->arena, 1, sizeof *names);
    if (names == NULL) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    *names = (struct names){
        .ask = {.then = names_known, .arg = names, .fresh = true}, .ticket = ticket, .then = then};
    queues_ask(ticket->engine, &names->ask);
}
