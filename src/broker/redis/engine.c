/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis engine as a whole: see internal.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "broker/redis/format.h"
#include "broker/redis/internal.h"
#include "broker/redis/risk.h"

/* An attempt ends before opening gives up, so that it can say why. */
enum { REDIS_AWAY_MS = 10 * 1000, CONNECT_MS = MR_DOOR_OPEN_MS - 500 };

/* ---- requests ------------------------------------------------------------------------------- */

const struct op work_ops[MR_OP_COUNT] = {
    [MR_OP_ENQUEUE] = {enqueue_prepare, enqueue_begin},
    [MR_OP_NODE_OPEN] = {node_open_prepare, node_open_begin},
    [MR_OP_NODE_CLOSE] = {NULL, node_close_begin},
    [MR_OP_TAKE] = {NULL, take_begin},
    [MR_OP_BEAT] = {NULL, node_beat_begin},
    [MR_OP_FINISH] = {finish_prepare, finish_begin},
    [MR_OP_ASSIGN] = {assign_prepare, assign_begin},
    [MR_OP_EXHIBIT] = {exhibit_prepare, exhibit_begin},
};

static const struct op *op_of(enum mr_op op)
{
    return work_ops[op].begin != NULL ? &work_ops[op] : &look_ops[op];
}

/* NULL: memory ran out when it was submitted. */
static struct ticket *req_ticket(const struct mr_req *req)
{
    return req->own;
}

void ticket_done(struct ticket *ticket, enum mr_err err)
{
    struct engine *engine = ticket->engine;
    mr_list_remove(&ticket->link);
    mr_req_answer(ticket->req, err);
    engine_quiet(engine);
}

static void tickets_done(struct mr_link *tickets, enum mr_err err)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(tickets)) != NULL)
        ticket_done(mr_container(link, struct ticket, link), err);
}

static void deliver(struct mr_msg *msg, void *receiver)
{
    struct mr_req *req = mr_container(msg, struct mr_req, msg);
    struct ticket *ticket = req_ticket(req);
    (void)receiver;
    if (ticket == NULL) {
        mr_req_answer(req, MR_NOMEM);
    } else if (ticket->err != MR_OK || ticket->engine->closing) {
        ticket_done(ticket, ticket->err != MR_OK ? ticket->err : MR_CLOSED);
    } else if (!mr_list_empty(&ticket->engine->enqueues) && req->op != MR_OP_ENQUEUE) {
        mr_list_push_back(&ticket->engine->enqueues, &ticket->link); /* behind what came before */
    } else {
        mr_list_push_back(&ticket->engine->tickets, &ticket->link);
        ticket->op->begin(ticket);
    }
}

static void engine_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct engine *engine = mr_container(broker, struct engine, broker);
    struct ticket *ticket = mr_arena_calloc(&req->arena, 1, sizeof *ticket);
    req->own = ticket;
    req->msg.deliver = deliver;
    if (ticket != NULL) {
        ticket->engine = engine;
        ticket->req = req;
        ticket->op = op_of(req->op);
        mr_list_init(&ticket->link);
        if (ticket->op->begin == NULL)
            ticket->err = MR_UNSUPPORTED;
        else if (ticket->op->prepare != NULL)
            ticket->err = ticket->op->prepare(ticket);
    }
    mr_redis_post(engine->redis, &req->msg);
}

static void refusal_text(const struct engine *engine, enum mr_err err, const struct mr_reply *reply,
                         char text[WHY_MAX])
{
    bool said = reply != NULL && reply->kind == MR_REPLY_ERROR;
    if (err == MR_OK || (err == MR_FAILED && !said))
        (void)snprintf(text, WHY_MAX, "an answer that makes no sense");
    else if (err == MR_DISK_FULL)
        (void)snprintf(text, WHY_MAX,
                       "the memory of this Redis is full (maxmemory): new work is "
                       "refused until there is space");
    else if (said)
        (void)snprintf(text, WHY_MAX, "%.*s", (int)reply->text.len, (const char *)reply->text.data);
    else if (err == MR_UNAVAILABLE)
        (void)snprintf(text, WHY_MAX, "%s", mr_redis_why(engine->redis));
    else
        (void)snprintf(text, WHY_MAX, "%s", mr_err_text(err));
}

enum mr_err engine_refused(struct engine *engine, enum mr_err err, const struct mr_reply *reply)
{
    char text[WHY_MAX];
    refusal_text(engine, err, reply, text);
    err = err == MR_OK ? MR_FAILED : err;
    if (engine->refused != NULL)
        engine->refused(err, text, engine->refused_arg);
    return err;
}

enum mr_err rqueue_refused(struct rqueue *queue, enum mr_err err, const struct mr_reply *reply)
{
    struct engine *engine = queue->engine;
    char text[WHY_MAX], line[2 * MR_NAME_MAX + WHY_MAX + 32];
    const struct rqueue *named = queue->home != NULL ? queue->home : queue;
    bool results = queue->topic.len > 0;
    refusal_text(engine, err, reply, text);
    err = err == MR_OK ? MR_FAILED : err;
    (void)snprintf(line, sizeof line, "queue %s: %s%.*s%s%s", (const char *)named->name.data,
                   results ? "results of " : "", (int)queue->topic.len,
                   (const char *)queue->topic.data, results ? ": " : "", text);
    if (engine->refused != NULL)
        engine->refused(err, line, engine->refused_arg);
    return err;
}

/* ---- the connection ------------------------------------------------------------------------- */

/* One line when it goes, one when it is back; nothing of a Redis that only opens or closes here. */
static void note_change(struct engine *engine, const struct mr_redis *redis, bool up,
                        const char *why)
{
    mr_mono now = mr_redis_now(redis);
    bool said = !engine->closing && engine->ups > 0;
    if (said && up)
        mr_diag(MR_DIAG_WARN, "redis.back", "after_ms=%lld",
                (long long)((now.ns - engine->down_at.ns) / MR_NS_PER_MS));
    else if (said)
        mr_diag(MR_DIAG_WARN, "redis.away", "why=\"%s\"", why != NULL ? why : "");
    engine->up = up;
    engine->ups += up;
    if (up)
        engine->up_at = now;
    else
        engine->down_at = now;
}

static void changed(struct mr_redis *redis, bool up, const char *why, void *arg)
{
    struct engine *engine = arg;
    if (up != engine->up)
        note_change(engine, redis, up, why);
    mr_door_changed(&engine->door, up, mr_redis_err(redis), why);
    if (!up || engine->closing)
        return;
    nodes_beat(engine);
    releases_send(engine);
    losts_ask(engine);
    finishes_deliver(engine);
    takes_serve(engine);
    look_up(engine);
}

/* What would have been told there is looked for; that costs, so it is said once. */
static void unheard(struct mr_redis *redis, const struct mr_reply *reply, void *arg)
{
    struct engine *engine = arg;
    (void)redis;
    if (!engine->unheard)
        (void)engine_refused(engine, MR_DENIED, reply);
    engine->unheard = true;
}

/* ---- closing -------------------------------------------------------------------------------- */

void engine_quiet(struct engine *engine)
{
    if (engine->closing && mr_list_empty(&engine->tickets) && mr_list_empty(&engine->enqueues) &&
        mr_list_empty(&engine->nodes) && mr_list_empty(&engine->undelivered))
        mr_door_quiet(&engine->door);
}

static void close_late(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_door_quiet(&mr_container(timer, struct engine, close_timer)->door);
}

void engine_close_goes_on(struct engine *engine)
{
    mr_redis_timer_start(engine->redis, &engine->close_timer,
                         mr_mono_add_ms(mr_redis_now(engine->redis), MR_DOOR_CLOSE_MS));
}

static void close_begin(struct mr_msg *msg, void *receiver)
{
    struct engine *engine = mr_container(msg, struct engine, close);
    (void)receiver;
    engine->closing = true;
    engine_close_goes_on(engine);
    look_leave(engine);
    nodes_close(engine);
    releases_drop(engine);
    if (!engine->up)
        finishes_fail(engine, MR_CLOSED);
    engine_quiet(engine);
}

/* The loop is gone, and every call was answered. */
static void engine_free(struct engine *engine)
{
    mr_redis_free(engine->redis);
    nodes_done(engine);
    finishes_fail(engine, MR_CLOSED);
    tickets_done(&engine->enqueues, MR_CLOSED);
    tickets_done(&engine->tickets, MR_CLOSED);
    look_done(engine);
    for (uint32_t i = 0; i < engine->queues_n; i++)
        rqueue_free(engine->queues[i]);
    free(engine->queues);
    mr_map_free(engine->by_name);
    mr_door_done(&engine->door);
    mr_arena_done(&engine->scratch);
    free(engine->cancels_name);
    begun_done(engine);
    free((void *)(uintptr_t)engine->prefix.data);
    free(engine);
}

static void engine_close(struct mr_broker *broker)
{
    struct engine *engine = mr_container(broker, struct engine, broker);
    engine->close.deliver = close_begin;
    mr_redis_post(engine->redis, &engine->close);
    mr_door_await_quiet(&engine->door);
    engine_free(engine);
}

/* ---- opening -------------------------------------------------------------------------------- */

static enum mr_err engine_risk(struct mr_broker *broker, struct mr_detail *ret_line)
{
    struct engine *engine = mr_container(broker, struct engine, broker);
    return redis_risk(engine->redis, engine->wait_replicas, ret_line);
}

static const struct mr_broker_ops broker_ops = {
    .submit = engine_submit,
    .begun = begun,
    .lease_open = message_lease_open,
    .risk = engine_risk,
    .close = engine_close,
    .exhibits = true,
};

static enum mr_err set_prefix(struct engine *engine, struct mr_slice namespace_)
{
    char *text = calloc(1, namespace_.len + 2);
    if (text == NULL)
        return MR_NOMEM;
    if (namespace_.len > 0) {
        memcpy(text, namespace_.data, namespace_.len);
        text[namespace_.len] = ':';
    }
    engine->prefix = mr_slice_make(text, strlen(text));
    return MR_OK;
}

static enum mr_err start(struct engine *engine, const struct mr_redis_broker_options *options,
                         struct mr_detail *detail)
{
    MR_TRY(begun_init(engine));
    MR_TRY(set_prefix(engine, options->namespace_));
    MR_TRY(mr_map_new(&rqueue_map_ops, engine, &engine->by_name));
    MR_TRY(look_init(engine));
    struct mr_redis_options redis = {
        .url = options->url,
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .tls_name = options->tls_name,
        .scripts = scripts,
        .scripts_n = SCRIPT_COUNT,
        .connect_ms = CONNECT_MS,
        .away_ms = REDIS_AWAY_MS,
        .wait_replicas = options->wait_replicas,
        .changed = changed,
        .unheard = unheard,
        .arg = engine,
    };
    return mr_redis_new("mr-redis", &redis, &engine->redis, detail);
}

static struct engine *engine_new(const struct mr_redis_broker_options *options)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return NULL;
    engine->broker.ops = &broker_ops;
    engine->payload_max = options->payload_max != 0 ? options->payload_max : MR_PAYLOAD_MAX;
    engine->wait_replicas = options->wait_replicas;
    engine->archive_max = options->archive_max != 0 ? options->archive_max : ARCHIVE_MAX;
    engine->archive_ms = options->archive_ms != 0 ? options->archive_ms : ARCHIVE_MS;
    engine->refused = options->refused;
    engine->refused_arg = options->refused_arg;
    mr_rand_seed_system(&engine->rand);
    if (gethostname(engine->host, sizeof engine->host - 1) != 0)
        (void)snprintf(engine->host, sizeof engine->host, "localhost");
    mr_list_init(&engine->nodes);
    mr_list_init(&engine->releases);
    mr_list_init(&engine->waits);
    mr_list_init(&engine->enqueues);
    mr_list_init(&engine->tickets);
    mr_list_init(&engine->undelivered);
    mr_door_init(&engine->door);
    mr_timer_init(&engine->close_timer, close_late);
    finish_init(engine);
    beat_init(engine);
    idle_init(engine);
    falls_init(engine);
    results_init(engine);
    return engine;
}

enum mr_err mr_redis_broker_open(const struct mr_redis_broker_options *options,
                                 struct mr_broker **ret_broker, struct mr_detail *detail)
{
    struct engine *engine = engine_new(options);
    if (engine == NULL)
        return MR_NOMEM;
    enum mr_err err = start(engine, options, detail);
    if (err == MR_OK)
        err = mr_door_await_up(&engine->door, options->open_ms, detail);
    if (err != MR_OK) {
        engine_free(engine);
        return err;
    }
    struct mr_arena arena = {0};
    err = redis_format_check(engine->redis, global_key(engine, "", &arena), detail);
    mr_arena_done(&arena);
    if (err != MR_OK) {
        engine_close(&engine->broker);
        return err;
    }
    *ret_broker = &engine->broker;
    return MR_OK;
}
