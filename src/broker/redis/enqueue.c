/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producing. The caller's thread checks every task and encodes its message; the loop sorts them by queue
 * and sends one script call for each, plain tasks with a shorter one.
 *
 * An id that the caller chose must be new in all queues, but a script sees only one: so the others are
 * asked before. That is not one step: two producers that use the same id for two queues in the same
 * moment can both succeed.
 *
 * While Redis is away tasks are refused at once. One whose answer was lost is in doubt: see
 * broker/doubt.h.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

enum {
    BATCH_BYTES = 8 * 1024 * 1024, /* of messages in one call */
    ANSWER_SLICES = 4,
};

enum code { CODE_NEW, CODE_CONFLICT, CODE_DUPLICATE, CODE_FULL, CODE_HOLDER, CODE_RUNNING, CODES };

static const enum mr_err code_errs[CODES] = {
    [CODE_NEW] = MR_OK,          [CODE_CONFLICT] = MR_CONFLICT, [CODE_DUPLICATE] = MR_DUPLICATE,
    [CODE_FULL] = MR_QUEUE_FULL, [CODE_HOLDER] = MR_OK,         [CODE_RUNNING] = MR_RUNNING,
};

struct item {
    struct new_task task;
    struct rqueue *queue; /* NULL: refused at the door, or sent */
};

/* Items of one queue that go with one call. */
struct batch {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct rqueue *queue;
    uint32_t *items; /* their numbers */
    size_t n;
};

/* Asks another queue for ids. */
struct find {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct rqueue *queue;
    uint32_t *items;
    size_t n;
};

struct enqueue {
    struct item *items;
    size_t given;       /* ids that the caller chose */
    bool repeatable;    /* a second try does no harm */
    bool routed;        /* they have their queues */
    bool found;         /* the other queues have answered */
    size_t registering; /* queues that are put among those whose tasks leave results */
    size_t refused;     /* items of batches that failed */
    enum mr_err err;    /* of the last of those */
    struct queues_ask ask;
};

static struct mr_req_enqueue *enqueue_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_enqueue, req);
}

/* ---- on the caller's thread ----------------------------------------------------------------- */

/* The checks, and the id. */
static enum mr_err check(const struct ticket *ticket, const struct mr_task_options *task,
                         mr_wall now, struct mr_enqueue_result *result)
{
    size_t payload_max = ticket->engine->payload_max;
    if (ticket->req->op != MR_OP_ENQUEUE || !enqueue_of(ticket)->inner)
        return mr_doubt_id(task, payload_max, now, result);
    MR_TRY(mr_inner_task_check(task, payload_max));
    struct mr_task_options shown = *task;
    shown.queue = mr_queue_shown(task->queue);
    return mr_doubt_id(&shown, payload_max + MR_INNER_MORE, now, result);
}

enum mr_err enqueue_prepare_one(const struct ticket *ticket, const struct mr_task_options *task,
                                mr_wall now, struct new_task *ret_task,
                                struct mr_enqueue_result *result)
{
    MR_TRY(check(ticket, task, now, result));
    return message_make(ticket->engine, task, mr_slice_str(result->id), &ticket->req->arena,
                        ret_task);
}

/* One that stood elsewhere; its id is the caller's. */
static enum mr_err prepare_carried(const struct ticket *ticket, size_t i, struct new_task *ret_task)
{
    const struct mr_req_enqueue *req = enqueue_of(ticket);
    req->results[i] = (struct mr_enqueue_result){.err = MR_OK};
    MR_TRY(mr_carried_check(&req->carried[i]));
    MR_TRY(mr_task_options_check(&req->tasks[i], ticket->engine->payload_max, NULL));
    memcpy(req->results[i].id, req->carried[i].id.data, req->carried[i].id.len);
    return message_make_carried(ticket->engine, &req->tasks[i], &req->carried[i],
                                &ticket->req->arena, ret_task);
}

enum mr_err enqueue_prepare(struct ticket *ticket)
{
    struct mr_req_enqueue *req = enqueue_of(ticket);
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct enqueue *enqueue = mr_arena_calloc(&req->req.arena, 1, sizeof *enqueue);
    struct item *items = mr_arena_calloc(&req->req.arena, req->n, sizeof *items);
    if (enqueue == NULL || (items == NULL && req->n > 0))
        return MR_NOMEM;
    ticket->own = enqueue;
    enqueue->items = items;
    enqueue->repeatable = true;
    mr_wall now = mr_wall_now(mr_clock_system());
    for (size_t i = 0; i < req->n; i++) {
        const struct mr_task_options *task = &req->tasks[i];
        req->results[i].err =
            req->carried != NULL
                ? prepare_carried(ticket, i, &items[i].task)
                : enqueue_prepare_one(ticket, task, now, &items[i].task, &req->results[i]);
        if (req->results[i].err != MR_OK)
            continue;
        enqueue->given += task->id.len > 0;
        enqueue->repeatable &= req->inner || mr_doubt_none(task);
    }
    return MR_OK;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void finish_ticket(struct ticket *ticket)
{
    const struct enqueue *enqueue = ticket->own;
    const struct mr_req_enqueue *req = enqueue_of(ticket);
    bool whole = enqueue->refused > 0 && enqueue->refused == req->n;
    ticket_done(ticket, whole ? enqueue->err : MR_OK);
}

static void set_id(struct mr_enqueue_result *result, struct mr_slice id)
{
    if (id.len == 0 || id.len > MR_ID_MAX)
        return;
    memcpy(result->id, id.data, id.len);
    result->id[id.len] = '\0';
}

enum mr_err enqueue_result(int64_t code, struct mr_slice state, struct mr_slice id,
                           struct mr_enqueue_result *result)
{
    if (code < 0 || code >= CODES)
        return MR_FAILED;
    result->state = message_state(state);
    result->err = code_errs[code];
    set_id(result, id);
    return MR_OK;
}

/* What the script says of items that are not simply new. */
static enum mr_err read_answers(const struct batch *batch, const struct mr_reply *reply)
{
    struct mr_req_enqueue *req = enqueue_of(batch->ticket);
    const struct enqueue *enqueue = batch->ticket->own;
    if (reply->kind != MR_REPLY_ARRAY || reply->n % ANSWER_SLICES != 0)
        return MR_FAILED;
    for (size_t i = 0; i < reply->n; i += ANSWER_SLICES) {
        int64_t number = mr_reply_int(&reply->items[i], -1);
        if (number < 0 || number >= (int64_t)batch->n)
            return MR_FAILED;
        uint32_t item = batch->items[number];
        struct mr_enqueue_result *result = &req->results[item];
        MR_TRY(enqueue_result(mr_reply_int(&reply->items[i + 1], -1), reply->items[i + 2].text,
                              reply->items[i + 3].text, result));
        if (enqueue->repeatable)
            mr_doubt_ends(&req->tasks[item], result);
    }
    return MR_OK;
}

static void batch_answered(struct mr_redis_call *call, enum mr_err err,
                           const struct mr_reply *reply)
{
    struct batch *batch = call->arg;
    struct ticket *ticket = batch->ticket;
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    if (err == MR_OK)
        err = read_answers(batch, reply);
    if (err != MR_OK) {
        err = engine_refused(ticket->engine, err, reply);
        for (size_t i = 0; i < batch->n; i++)
            req->results[batch->items[i]].err = err;
        enqueue->refused += batch->n;
        enqueue->err = err;
    }
    if (--ticket->calls == 0)
        finish_ticket(ticket);
}

/* ---- sending -------------------------------------------------------------------------------- */

static bool batch_is_plain(const struct batch *batch)
{
    const struct enqueue *enqueue = batch->ticket->own;
    for (size_t i = 0; i < batch->n; i++)
        if (!enqueue->items[batch->items[i]].task.plain)
            return false;
    return true;
}

static enum mr_err number_in(struct mr_arena *arena, int64_t number, struct mr_slice *ret_text)
{
    char text[NUMBER_MAX];
    return mr_arena_copy(arena, number_arg(number, text), ret_text);
}

enum mr_err enqueue_args(struct mr_arena *arena, const struct mr_task_options *options,
                         const struct new_task *task, struct mr_slice *args, size_t *n)
{
    static const char *const duplicates[] = {"0", "1", "2"};
    struct mr_slice *at = args + *n;
    bool delayed = options->at_ms == 0 && options->delay_ms > 0;
    at[0] = task->id;
    at[1] = task->message;
    at[2] = mr_slice_str(options->at_ms != 0 ? "a" : delayed ? "d" : "n");
    MR_TRY(number_in(arena, options->at_ms != 0 ? options->at_ms : options->delay_ms, &at[3]));
    MR_TRY(number_in(arena, task->priority_ms, &at[4]));
    at[5] = task->lock;
    int64_t unique_ms = options->unique_ms;
#ifdef MR_PLANT_LOCK_ENDS_EARLY
    unique_ms = unique_ms / MR_MS_PER_S + 1;
#endif
    MR_TRY(number_in(arena, unique_ms, &at[6]));
    at[7] = mr_slice_str(duplicates[options->on_duplicate]);
    at[8] = options->group;
    MR_TRY(number_in(arena, (int64_t)task->fields_n, &at[9]));
    memcpy(at + ENQUEUE_ARGS, task->fields, task->fields_n * sizeof *at);
    *n += ENQUEUE_ARGS + task->fields_n;
    return MR_OK;
}

static enum mr_err batch_send(struct batch *batch)
{
    const struct enqueue *enqueue = batch->ticket->own;
    const struct mr_req_enqueue *req = enqueue_of(batch->ticket);
    struct mr_arena *arena = &batch->ticket->req->arena;
    bool carried = req->carried != NULL, plain = !carried && batch_is_plain(batch);
    size_t n = 0, most = 0;
    for (size_t i = 0; i < batch->n; i++)
        most += plain     ? 2
                : carried ? CARRY_ARGS_MAX
                          : ENQUEUE_ARGS + enqueue->items[batch->items[i]].task.fields_n;
    struct mr_slice *args = mr_arena_calloc(arena, most, sizeof *args);
    if (args == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < batch->n; i++) {
        uint32_t item = batch->items[i];
        const struct new_task *task = &enqueue->items[item].task;
        if (carried) {
            MR_TRY(carry_args(arena, &req->carried[item], task, args, &n));
        } else if (plain) {
            args[n++] = task->id;
            args[n++] = task->message;
        } else {
            MR_TRY(enqueue_args(arena, &req->tasks[item], task, args, &n));
        }
    }
    batch->call = (struct mr_redis_call){.answered = batch_answered,
                                         .arg = batch,
                                         .repeatable = enqueue->repeatable,
                                         .urgent = true,
                                         .durable = true};
    batch->ticket->calls++;
    rqueue_used(batch->queue);
    rqueue_eval(batch->queue, &batch->call,
                carried ? SCRIPT_CARRY
                : plain ? SCRIPT_PUSH
                        : SCRIPT_ENQUEUE,
                args, n);
    return MR_OK;
}

/* Sends what goes to the queue of the first item that is left, up to a number of bytes. */
static enum mr_err send_next(struct ticket *ticket, size_t first)
{
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    struct batch *batch = mr_arena_calloc(&ticket->req->arena, 1, sizeof *batch);
    if (batch == NULL)
        return MR_NOMEM;
    *batch = (struct batch){.ticket = ticket, .queue = enqueue->items[first].queue};
    batch->items = mr_arena_calloc(&ticket->req->arena, req->n - first, sizeof *batch->items);
    if (batch->items == NULL)
        return MR_NOMEM;
    size_t bytes = 0;
    for (size_t i = first; i < req->n && bytes < BATCH_BYTES; i++) {
        struct item *item = &enqueue->items[i];
        if (item->queue != batch->queue)
            continue;
        batch->items[batch->n++] = (uint32_t)i;
        bytes += item->task.message.len;
        item->queue = NULL;
        req->results[i].state = req->carried != NULL ? req->carried[i].state : MR_PENDING;
    }
    return batch_send(batch);
}

static void send_all(struct ticket *ticket)
{
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    ticket->calls++; /* none of them ends the ticket before all are sent */
    for (size_t i = 0; i < req->n; i++) {
        if (enqueue->items[i].queue == NULL)
            continue;
        enum mr_err err = send_next(ticket, i);
        if (err == MR_OK)
            continue;
        req->results[i].err = err;
        enqueue->items[i].queue = NULL;
        enqueue->refused++;
        enqueue->err = err;
    }
    if (--ticket->calls == 0)
        finish_ticket(ticket);
}

static bool is_ready(const struct ticket *ticket)
{
    const struct enqueue *enqueue = ticket->own;
    return ticket->req->op != MR_OP_ENQUEUE || (enqueue->found && enqueue->registering == 0);
}

/* In the order in which they came: one that waits for the other queues keeps the later ones back, and all
 * requests behind it. */
static void send_ready(struct engine *engine)
{
    while (!mr_list_empty(&engine->enqueues)) {
        struct ticket *ticket = mr_container(engine->enqueues.next, struct ticket, link);
        if (!is_ready(ticket))
            return;
        mr_list_remove(&ticket->link);
        mr_list_push_back(&engine->tickets, &ticket->link);
        if (ticket->req->op == MR_OP_ENQUEUE)
            send_all(ticket);
        else
            ticket->op->begin(ticket);
    }
}

/* ---- other queues --------------------------------------------------------------------------- */

static void found(struct ticket *ticket)
{
    struct enqueue *enqueue = ticket->own;
    enqueue->found = true;
    send_ready(ticket->engine);
}

static void fail_given(struct ticket *ticket, enum mr_err err)
{
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    for (size_t i = 0; i < req->n; i++) {
        if (enqueue->items[i].queue == NULL || req->tasks[i].id.len == 0)
            continue;
        req->results[i].err = err;
        enqueue->items[i].queue = NULL;
        enqueue->refused++;
        enqueue->err = err;
    }
}

static void find_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct find *find = call->arg;
    struct ticket *ticket = find->ticket;
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    if (err == MR_OK && (reply->kind != MR_REPLY_ARRAY || reply->n != find->n))
        err = MR_FAILED;
    if (err != MR_OK)
        fail_given(ticket, engine_refused(ticket->engine, err, reply));
    for (size_t i = 0; err == MR_OK && i < find->n; i++) {
        uint32_t item = find->items[i];
        if (reply->items[i].text.len == 0)
            continue;
        req->results[item].err = MR_CONFLICT;
        req->results[item].state = message_state(reply->items[i].text);
        enqueue->items[item].queue = NULL;
    }
    if (--ticket->calls == 0)
        found(ticket);
}

/* The ids that are meant for other queues than this one. */
static enum mr_err find_send(struct ticket *ticket, struct rqueue *queue)
{
    struct enqueue *enqueue = ticket->own;
    struct mr_req_enqueue *req = enqueue_of(ticket);
    struct mr_arena *arena = &ticket->req->arena;
    struct find *find = mr_arena_calloc(arena, 1, sizeof *find);
    struct mr_slice *ids = mr_arena_calloc(arena, enqueue->given, sizeof *ids);
    uint32_t *items = mr_arena_calloc(arena, enqueue->given, sizeof *items);
    if (find == NULL || ids == NULL || items == NULL)
        return MR_NOMEM;
    *find = (struct find){.ticket = ticket, .queue = queue, .items = items};
    for (size_t i = 0; i < req->n; i++) {
        const struct item *item = &enqueue->items[i];
        if (item->queue == NULL || item->queue == queue || req->tasks[i].id.len == 0)
            continue;
        ids[find->n] = item->task.id;
        items[find->n++] = (uint32_t)i;
    }
    if (find->n == 0)
        return MR_OK;
    find->call = (struct mr_redis_call){
        .answered = find_answered, .arg = find, .repeatable = true, .urgent = true};
    ticket->calls++;
    rqueue_eval(queue, &find->call, SCRIPT_FIND, ids, find->n);
    return MR_OK;
}

static void find_all(struct ticket *ticket, enum mr_err err)
{
    struct engine *engine = ticket->engine;
    for (uint32_t i = 0; err == MR_OK && i < engine->queues_n; i++)
        if (engine->queues[i]->known)
            err = find_send(ticket, engine->queues[i]);
    if (err != MR_OK)
        fail_given(ticket, err);
    if (--ticket->calls == 0)
        found(ticket);
}

/* ---- where they go -------------------------------------------------------------------------- */

/* A message names its queue, which is that of the partition. */
static enum mr_err make_again(const struct ticket *ticket, size_t i, const struct rqueue *part)
{
    const struct enqueue *enqueue = ticket->own;
    const struct mr_req_enqueue *req = enqueue_of(ticket);
    struct mr_arena *arena = &ticket->req->arena;
    struct new_task *task = &enqueue->items[i].task;
    struct mr_task_options options = req->tasks[i];
    options.queue = part->name;
    if (req->carried != NULL)
        return message_make_carried(ticket->engine, &options, &req->carried[i], arena, task);
    return message_make(ticket->engine, &options, mr_slice_str(req->results[i].id), arena, task);
}

struct registering {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct rqueue *queue;
};

/* If it could not be, the tasks are refused for the same reason, or workers do it. */
static void registered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct registering *registering = call->arg;
    struct ticket *ticket = registering->ticket;
    struct enqueue *enqueue = ticket->own;
    (void)reply;
    registering->queue->leaves.known |= err == MR_OK;
    if (--enqueue->registering == 0)
        send_ready(ticket->engine);
}

/* Masters must know of the queue before its first task with a topic is there. */
static enum mr_err register_queue(struct ticket *ticket, struct rqueue *queue)
{
    struct enqueue *enqueue = ticket->own;
    if (queue->leaves.known || queue->leaves.registrant == ticket || !ticket->engine->up)
        return MR_OK;
    struct registering *one = mr_arena_calloc(&ticket->req->arena, 1, sizeof *one);
    if (one == NULL)
        return MR_NOMEM;
    *one = (struct registering){.ticket = ticket, .queue = queue};
    one->call = (struct mr_redis_call){
        .answered = registered, .arg = one, .repeatable = true, .urgent = true, .durable = true};
    queue->leaves.registrant = ticket;
    enqueue->registering++;
    results_name_add(queue, &one->call);
    return MR_OK;
}

static enum mr_err route(struct ticket *ticket, size_t i)
{
    struct enqueue *enqueue = ticket->own;
    const struct mr_task_options *options = &enqueue_of(ticket)->tasks[i];
    struct rqueue *queue = rqueue_of(ticket->engine, options->queue);
    if (queue == NULL)
        return MR_NOMEM;
    struct rqueue *part = parts_choose(queue, options, &enqueue->items[i].task);
    if (part == NULL)
        return MR_INVALID;
    if (part != queue)
        MR_TRY(make_again(ticket, i, part));
    if (options->topic.len > 0)
        MR_TRY(register_queue(ticket, part));
    enqueue->items[i].queue = part;
    return MR_OK;
}

static void route_all(struct ticket *ticket)
{
    struct mr_req_enqueue *req = enqueue_of(ticket);
    for (size_t i = 0; i < req->n; i++)
        if (req->results[i].err == MR_OK)
            req->results[i].err = route(ticket, i);
}

static void names_came(struct queues_ask *ask, enum mr_err err)
{
    struct ticket *ticket = ask->arg;
    struct enqueue *enqueue = ticket->own;
    if (err != MR_OK && !parts_known(ask->engine)) {
        struct mr_req_enqueue *req = enqueue_of(ticket);
        for (size_t i = 0; i < req->n; i++)
            if (req->results[i].err == MR_OK)
                req->results[i].err = err;
        enqueue->refused = req->n;
        enqueue->err = err;
        ticket->calls = 0;
        found(ticket);
        return;
    }
    if (!enqueue->routed)
        route_all(ticket);
    if (enqueue->given > 0) {
        find_all(ticket, err);
        return;
    }
    ticket->calls = 0;
    found(ticket);
}

void enqueue_begin(struct ticket *ticket)
{
    struct engine *engine = ticket->engine;
    struct enqueue *enqueue = ticket->own;
    enqueue->routed = parts_known(engine) || !engine->up;
    if (enqueue->routed)
        route_all(ticket);
    mr_list_remove(&ticket->link);
    mr_list_push_back(&engine->enqueues, &ticket->link);
    enqueue->found = enqueue->routed && (enqueue->given == 0 || !engine->up);
    if (enqueue->found) {
        parts_refresh(engine);
        send_ready(engine);
        return;
    }
    ticket->calls = 1;
    enqueue->ask = (struct queues_ask){.then = names_came, .arg = ticket};
    if (enqueue->routed && queues_known(engine))
        find_all(ticket, MR_OK);
    else
        queues_ask(engine, &enqueue->ask);
}
