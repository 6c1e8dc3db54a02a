/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a task. Who waits leaves a mark in Redis (mr:await); a script that ends a task
 * with a mark says its id on the channel asynq:mr:ended, and keeps what would go with it for a minute
 * (mr:end:ID). A message only means: look. So does the begin of the subscription, and some time that has
 * passed: the marks must be renewed, and workers of other programs leave no message.
 *
 * A wait is answered while no call is under way for it, so that it can lie in the arena of its request.
 */
#include <stdlib.h>

#include "broker/redis/look.h"

enum {
    AWAITS_MAX = 65536,
    BUCKETS = 256,
    LOOK_MS = 1000,   /* between two looks without a message */
    LOOK_EACH_MS = 2, /* ... and for each that waits: all of them cost so much and not more */
    MARK_LOOKS = 3,   /* a mark holds for so many of them, and */
    MARK_MS = 5000,   /* ... this: while there is one, every end of a task costs more */
    AWAY_MS = 30000,  /* so long without Redis, and it is given up */
    ARGS = 3,
};

struct awaits {
    struct engine *engine;
    struct mr_link buckets[BUCKETS]; /* by id */
    size_t n;
    struct mr_redis_channel channel;
    char *channel_name;
    bool subscribed;
};

struct await {
    struct awaits *awaits;
    struct ticket *ticket;
    struct mr_link link;
    struct mr_slice id;   /* a copy: who waits may have forgotten what it said */
    struct rqueue *queue; /* that has the task; NULL: not found yet */
    struct fan fan;       /* finds it */
    struct mr_redis_call call;
    struct mr_timer timer, look;
    bool busy;          /* the fan or the call is under way */
    bool again;         /* look once more after it */
    bool ended;         /* the answer is filled */
    enum mr_err over;   /* not MR_OK: what it is answered with at the next chance */
    mr_mono away_since; /* 0: Redis answers */
    struct ticket *unawait;
    struct mr_slice args[ARGS];
    char number[NUMBER_MAX];
};

static struct mr_req_await *req_of(const struct await *await)
{
    return mr_container(await->ticket->req, struct mr_req_await, req);
}

static struct mr_link *bucket_of(struct awaits *awaits, struct mr_slice id)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < id.len; i++)
        hash = (hash ^ ((const uint8_t *)id.data)[i]) * 16777619u;
    return &awaits->buckets[(hash ^ hash >> 15) % BUCKETS];
}

static void answer(struct await *await, enum mr_err err)
{
    struct ticket *unawait = await->unawait;
    struct mr_redis *redis = await->awaits->engine->redis;
    mr_redis_timer_stop(redis, &await->timer);
    mr_redis_timer_stop(redis, &await->look);
    mr_list_remove(&await->link);
    await->awaits->n--;
    req_of(await)->wait = NULL;
    ticket_done(await->ticket, err);
    if (unawait != NULL)
        ticket_done(unawait, MR_OK);
}

static void end_with(struct await *await, enum mr_err err)
{
    if (await->busy)
        await->over = err;
    else
        answer(await, err);
}

/* ---- looking -------------------------------------------------------------------------------- */

enum { LOOK_NONE, LOOK_WAITS, LOOK_ENDED };

static void look(struct await *await);

static enum mr_err look_read(struct await *await, struct rqueue *queue,
                             const struct mr_reply *reply)
{
    struct mr_req_await *req = req_of(await);
    int64_t how = mr_reply_int(mr_reply_at(reply, 0), LOOK_NONE);
    if (how == LOOK_WAITS)
        await->queue = queue;
    if (how != LOOK_ENDED)
        return how == LOOK_NONE && await->queue == queue ? MR_NOT_FOUND : MR_OK;
    MR_TRY(view_read(queue, mr_reply_at(reply, 1), &req->req.arena, &req->task));
    await->ended = true;
    return MR_OK;
}

/* What breaks may heal. */
static bool may_heal(struct await *await, enum mr_err err)
{
    mr_mono now = mr_redis_now(await->awaits->engine->redis);
    if (err != MR_UNAVAILABLE && err != MR_TIMEOUT)
        return false;
    if (await->away_since.ns == 0)
        await->away_since = now;
    return now.ns - await->away_since.ns < AWAY_MS * MR_NS_PER_MS;
}

static int64_t look_ms(const struct awaits *awaits)
{
    return LOOK_MS + LOOK_EACH_MS * (int64_t)awaits->n;
}

static void set_mark(struct await *await)
{
    await->args[2] = number_arg(MARK_LOOKS * look_ms(await->awaits) + MARK_MS, await->number);
}

static void look_later(struct await *await)
{
    struct mr_redis *redis = await->awaits->engine->redis;
    mr_redis_timer_start(redis, &await->look,
                         mr_mono_add_ms(mr_redis_now(redis), look_ms(await->awaits)));
}

static void looked(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct await *await = call->arg;
    await->busy = false;
    if (err == MR_OK) {
        await->away_since.ns = 0;
        err = look_array(await->awaits->engine, err, reply);
        if (err == MR_OK)
            err = look_read(await, await->queue, reply);
    } else if (may_heal(await, err)) {
        err = MR_OK;
    }
    if (err != MR_OK || await->ended)
        answer(await, err);
    else if (await->over != MR_OK)
        answer(await, await->over);
    else if (await->again)
        look(await);
    else
        look_later(await);
}

static void look(struct await *await)
{
    if (await->busy) {
        await->again = true;
        return;
    }
    await->busy = true;
    await->again = false;
    await->args[1] = MR_SLICE_LIT("0");
    set_mark(await);
    await->call = (struct mr_redis_call){
        .answered = looked, .arg = await, .repeatable = true, .urgent = true};
    rqueue_eval(await->queue, &await->call, SCRIPT_AWAIT, await->args, ARGS);
}

static void look_fired(struct mr_timer *timer, void *arg)
{
    (void)arg;
    look(mr_container(timer, struct await, look));
}

static void timed_out(struct mr_timer *timer, void *arg)
{
    (void)arg;
    end_with(mr_container(timer, struct await, timer), MR_TIMEOUT);
}

/* ---- messages ------------------------------------------------------------------------------- */

static void each(struct awaits *awaits, void (*act)(struct await *await))
{
    for (size_t i = 0; i < BUCKETS; i++) {
        struct mr_link *bucket = &awaits->buckets[i];
        for (struct mr_link *link = bucket->next, *next; link != bucket; link = next) {
            next = link->next;
            act(mr_container(link, struct await, link));
        }
    }
}

static void ended(struct awaits *awaits, struct mr_slice id)
{
    struct mr_link *bucket = bucket_of(awaits, id);
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next) {
        struct await *await = mr_container(link, struct await, link);
        if (mr_slice_equal(await->id, id))
            look(await);
    }
}

static void message(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct awaits *awaits = channel->arg;
    if (bytes.data == NULL)
        each(awaits, look);
    else
        ended(awaits, bytes);
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct await *await = fan->arg;
    return await->ended ? MR_OK : look_read(await, queue, reply);
}

/* It is known where the task is, if anywhere. */
static void found(struct fan *fan, enum mr_err err)
{
    struct await *await = fan->arg;
    const struct mr_req_await *req = req_of(await);
    await->busy = false;
    if (await->ended)
        err = MR_OK;
    else if (await->over != MR_OK)
        err = await->over;
    else if (err == MR_OK && await->queue == NULL)
        err = MR_NOT_FOUND;
    if (err != MR_OK || await->ended || req->wait_ms <= 0) {
        answer(await, err == MR_OK && !await->ended ? MR_TIMEOUT : err);
        return;
    }
    if (await->again)
        look(await);
    else
        look_later(await);
}

static void subscribe(struct awaits *awaits)
{
    if (awaits->subscribed)
        return;
    awaits->subscribed = true;
    mr_redis_subscribe(awaits->engine->redis, &awaits->channel);
}

static void find(struct await *await, struct awaits *awaits)
{
    struct mr_redis *redis = awaits->engine->redis;
    struct mr_req_await *req = req_of(await);
    int64_t wait_ms = req->wait_ms < MR_DELAY_MAX_MS ? req->wait_ms : MR_DELAY_MAX_MS;
    mr_timer_init(&await->timer, timed_out);
    mr_timer_init(&await->look, look_fired);
    mr_list_push_back(bucket_of(awaits, await->id), &await->link);
    awaits->n++;
    req->wait = await;
    if (wait_ms > 0) {
        subscribe(awaits);
        mr_redis_timer_start(redis, &await->timer,
                             mr_mono_add_ms(mr_redis_now(redis), wait_ms + 1));
    }
    await->args[0] = await->id;
    await->args[1] = MR_SLICE_LIT("1");
    set_mark(await);
    await->busy = true;
    await->fan = (struct fan){.ticket = await->ticket,
                              .script = SCRIPT_AWAIT,
                              .args = await->args,
                              .args_n = ARGS,
                              .said = said,
                              .done = found,
                              .arg = await};
    fan_out(&await->fan);
}

enum mr_err await_prepare(struct ticket *ticket)
{
    struct mr_req_await *req = mr_container(ticket->req, struct mr_req_await, req);
    struct await *await = mr_arena_calloc(&req->req.arena, 1, sizeof *await);
    req->wait = NULL;
    if (await == NULL)
        return MR_NOMEM;
    if (req->id.len == 0 || req->id.len > MR_ID_MAX)
        return MR_NOT_FOUND;
    ticket->own = await;
    return mr_arena_copy(&req->req.arena, req->id, &await->id);
}

void await_begin(struct ticket *ticket)
{
    struct awaits *awaits = look_of(ticket->engine)->awaits;
    struct await *await = ticket->own;
    if (awaits->n == AWAITS_MAX) {
        ticket_done(ticket, MR_BUSY);
        return;
    }
    await->awaits = awaits;
    await->ticket = ticket;
    find(await, awaits);
}

void unawait_begin(struct ticket *ticket)
{
    struct await *await = mr_container(ticket->req, struct mr_req_unawait, req)->await->wait;
    if (await == NULL) {
        ticket_done(ticket, MR_OK);
        return;
    }
    await->unawait = ticket;
    end_with(await, MR_CANCELLED);
}

/* ---- all of them ---------------------------------------------------------------------------- */

struct awaits *awaits_new(struct engine *engine)
{
    struct awaits *awaits = calloc(1, sizeof *awaits);
    struct mr_arena arena = {0};
    struct mr_slice name = global_key(engine, "mr:ended", &arena);
    if (awaits != NULL && name.len > 0)
        awaits->channel_name = strdup(name.data);
    mr_arena_done(&arena);
    if (awaits == NULL || awaits->channel_name == NULL) {
        free(awaits);
        return NULL;
    }
    awaits->engine = engine;
    awaits->channel = (struct mr_redis_channel){
        .name = mr_slice_str(awaits->channel_name), .message = message, .arg = awaits};
    for (size_t i = 0; i < BUCKETS; i++)
        mr_list_init(&awaits->buckets[i]);
    return awaits;
}

void awaits_free(struct awaits *awaits)
{
    if (awaits == NULL)
        return;
    free(awaits->channel_name);
    free(awaits);
}

void look_awaits_up(struct awaits *awaits)
{
    each(awaits, look);
}

static void closed(struct await *await)
{
    end_with(await, MR_CLOSED);
}

void look_awaits_leave(struct awaits *awaits)
{
    each(awaits, closed);
}
