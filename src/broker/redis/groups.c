/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: a ripe one becomes a set, a set one task; Asynq's data (asynq-wire, 9), each step one script.
 *
 * A gather that finds none waits for the channel mr:ripe, on which we tell of a group that is full and of the
 * first group of all, and for the time at which something can be ripe. Other programs tell nothing, so it
 * looks every second besides, and walks through some of the groups then: what is seen of each is noted in
 * Redis (common.lua). Like an await it is answered while no call is under way for it.
 *
 * Of a queue with partitions it looks at one after the other. A set is where its members are, and its name
 * says so: UUID~NUMBER, but for the first partition.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/look.h"

enum {
    LOOK_MS = 1000,
    PAUSE_MS = 10, /* between looks that somebody asks for */
    LISTEN_MS =
        5000, /* a subscription outlives the last gather by so much: the next one will come */
    GATHER_ARGS = 8,
    NUMBERS = 5,
    GATHERED_ARGS = 1 + ENQUEUE_ARGS_MAX,
    SAID_CURSOR = 1, /* in the answer of gather.lua */
    SAID_NEXT = 2,
    SAID_GROUP = 2,
    FIRST_VIEW = 3,
};

struct gather {
    struct ticket *ticket;
    struct rqueue *queue; /* the partition that it looks at */
    struct rqueue *whole; /* the first of them */
    uint32_t parts_left;  /* to be looked at before it waits */
    int64_t next_ms;      /* when something can be ripe in one of them; -1: never */
    struct mr_link link;  /* of those that wait; else in none */
    struct mr_redis_call call;
    uint32_t listening; /* to so many of them */
    struct mr_timer timer, look;
    bool busy, again, over; /* over: its time has come */
    mr_mono looked_at, ends_at;
    enum mr_err end; /* that it is over with */
    char numbers[NUMBERS][NUMBER_MAX];
    struct mr_slice args[GATHER_ARGS];
};

static struct mr_req_gather *req_of(const struct gather *gather)
{
    return mr_container(gather->ticket->req, struct mr_req_gather, req);
}

/* ---- listening ------------------------------------------------------------------------------ */

static void listen_end(struct rqueue *queue)
{
    struct ripe *ripe = &queue->ripe;
    mr_redis_timer_stop(queue->engine->redis, &ripe->timer);
    if (ripe->channel_name != NULL)
        mr_redis_unsubscribe(queue->engine->redis, &ripe->channel);
    free(ripe->channel_name);
    ripe->channel_name = NULL;
}

static void listened_long(struct mr_timer *timer, void *arg)
{
    (void)arg;
    listen_end(mr_container(timer, struct rqueue, ripe.timer));
}

static enum mr_err listen(struct rqueue *queue,
                          void (*told)(struct mr_redis_channel *, struct mr_slice))
{
    struct ripe *ripe = &queue->ripe;
    size_t size = queue->prefix.len + sizeof "mr:ripe";
    if (ripe->channel_name == NULL) {
        ripe->channel_name = malloc(size);
        if (ripe->channel_name == NULL)
            return MR_NOMEM;
        (void)snprintf(ripe->channel_name, size, "%smr:ripe", (const char *)queue->prefix.data);
        ripe->channel = (struct mr_redis_channel){
            .name = mr_slice_str(ripe->channel_name), .message = told, .arg = queue};
        mr_redis_subscribe(queue->engine->redis, &ripe->channel);
    }
    mr_redis_timer_stop(queue->engine->redis, &ripe->timer);
    ripe->waiting++;
    return MR_OK;
}

static void listen_no_more(struct rqueue *queue)
{
    struct mr_redis *redis = queue->engine->redis;
    if (--queue->ripe.waiting > 0)
        return;
    if (queue->engine->closing)
        listen_end(queue);
    else
        mr_redis_timer_start(redis, &queue->ripe.timer,
                             mr_mono_add_ms(mr_redis_now(redis), LISTEN_MS));
}

void ripe_init(struct rqueue *queue)
{
    mr_timer_init(&queue->ripe.timer, listened_long);
}

void ripe_done(struct rqueue *queue)
{
    free(queue->ripe.channel_name);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static void answer(struct gather *gather, enum mr_err err)
{
    struct engine *engine = gather->queue->engine;
    mr_redis_timer_stop(engine->redis, &gather->timer);
    mr_redis_timer_stop(engine->redis, &gather->look);
    while (gather->listening > 0)
        listen_no_more(rqueue_part(gather->whole, gather->listening--));
    mr_list_remove(&gather->link);
    ticket_done(gather->ticket, err);
}

static void end_with(struct gather *gather, enum mr_err err)
{
    gather->over = true;
    gather->end = err;
    if (!gather->busy)
        answer(gather, err);
}

static enum mr_err read_set(struct gather *gather, const struct mr_reply *reply)
{
    struct mr_req_gather *req = req_of(gather);
    struct mr_slice group = mr_reply_at(reply, SAID_GROUP)->text;
    size_t n = reply->n - FIRST_VIEW;
    struct mr_task *tasks = mr_arena_calloc(&req->req.arena, n, sizeof *tasks);
    if (tasks == NULL)
        return MR_NOMEM;
    if (group.len > MR_NAME_MAX)
        return engine_refused(gather->queue->engine, MR_FAILED, NULL);
    for (size_t i = 0; i < n; i++)
        MR_TRY(view_read(gather->queue, mr_reply_at(reply, FIRST_VIEW + i), &req->req.arena,
                         &tasks[i]));
    memcpy(req->group, group.data, group.len);
    req->group[group.len] = '\0';
    req->tasks = tasks;
    req->n = n;
    return MR_OK;
}

/* Where the walk through the groups goes on. */
static void keep_cursor(struct rqueue *queue, struct mr_slice cursor)
{
    if (cursor.len > 0 && cursor.len < sizeof queue->ripe.walk)
        (void)snprintf(queue->ripe.walk, sizeof queue->ripe.walk, "%.*s", (int)cursor.len,
                       (const char *)cursor.data);
}

/* Nothing is ripe; next_ms: when something can be. */
static void wait_on(struct gather *gather, int64_t next_ms)
{
    struct mr_redis *redis = gather->queue->engine->redis;
    int64_t ms = next_ms >= 0 && next_ms < LOOK_MS ? next_ms + 1 : LOOK_MS;
    if (gather->again && ms > PAUSE_MS)
        ms = PAUSE_MS;
    if (req_of(gather)->wait_ms == 0)
        end_with(gather, MR_EMPTY);
    else if (gather->over)
        answer(gather, gather->end);
    else if (mr_mono_add_ms(mr_redis_now(redis), ms).ns < gather->ends_at.ns)
        mr_redis_timer_start(redis, &gather->look, mr_mono_add_ms(mr_redis_now(redis), ms));
}

static void look_at_next(struct gather *gather);

/* Nothing is ripe in this one. */
static void go_on(struct gather *gather, int64_t next_ms)
{
    if (next_ms >= 0 && (gather->next_ms < 0 || next_ms < gather->next_ms))
        gather->next_ms = next_ms;
    if (gather->parts_left > 0 && !gather->over)
        look_at_next(gather);
    else
        wait_on(gather, gather->next_ms);
}

static void looked(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct gather *gather = call->arg;
    gather->busy = false;
    if (err == MR_UNAVAILABLE && req_of(gather)->wait_ms > 0) {
        wait_on(gather, LOOK_MS); /* a worker keeps trying */
        return;
    }
    err = look_array(gather->queue->engine, err, reply);
    bool ripe =
        err == MR_OK && mr_reply_int(mr_reply_at(reply, 0), 0) != 0 && reply->n > FIRST_VIEW;
    if (err == MR_OK)
        keep_cursor(gather->queue, mr_reply_at(reply, SAID_CURSOR)->text);
    if (ripe)
        err = read_set(gather, reply);
    if (err != MR_OK || ripe)
        answer(gather, err);
    else
        go_on(gather, mr_reply_int(mr_reply_at(reply, SAID_NEXT), -1));
}

/* Who does not wait is shown all that this look can find. */
static struct mr_slice walk_from(const struct gather *gather)
{
    struct rqueue *queue = gather->queue;
    mr_mono now = mr_redis_now(queue->engine->redis);
    if (req_of(gather)->wait_ms > 0 && now.ns < mr_mono_add_ms(queue->ripe.walked_at, LOOK_MS).ns)
        return MR_SLICE_LIT("");
    queue->ripe.walked_at = now;
    return queue->ripe.walk[0] != '\0' ? mr_slice_str(queue->ripe.walk) : MR_SLICE_LIT("0");
}

/* The name of what may come of this look. */
static void name_set(const struct gather *gather)
{
    static_assert(MR_UUID_TEXT_LEN + sizeof "~64" <= MR_SET_MAX, "it has room");
    char *set = req_of(gather)->set;
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, mr_wall_now(mr_clock_system()), &gather->queue->engine->rand);
    mr_uuid_format(&uuid, set);
    if (gather->queue != gather->whole)
        (void)snprintf(set + MR_UUID_TEXT_LEN, MR_SET_MAX - MR_UUID_TEXT_LEN, "~%u",
                       gather->queue->number % (MR_PARTITIONS_MAX + 1));
}

static void look_at_next(struct gather *gather)
{
    uint32_t number = gather->queue->number % gather->whole->widest + 1;
    gather->parts_left--;
    if (gather->whole->widest > 1)
        gather->queue = rqueue_part(gather->whole, number);
    name_set(gather);
    gather->args[3] = mr_slice_str(req_of(gather)->set);
    gather->args[6] = walk_from(gather);
    gather->looked_at = mr_redis_now(gather->queue->engine->redis);
    gather->busy = true;
    gather->call = (struct mr_redis_call){.answered = looked, .arg = gather, .urgent = true};
    rqueue_eval(gather->queue, &gather->call, SCRIPT_GATHER, gather->args, GATHER_ARGS);
}

static void look(struct gather *gather)
{
    gather->parts_left = gather->whole->widest;
    gather->next_ms = -1;
    gather->again = false;
    look_at_next(gather);
}

static void look_fired(struct mr_timer *timer, void *arg)
{
    (void)arg;
    look(mr_container(timer, struct gather, look));
}

static void timed_out(struct mr_timer *timer, void *arg)
{
    (void)arg;
    end_with(mr_container(timer, struct gather, timer), MR_EMPTY);
}

static void look_soon(struct gather *gather)
{
    struct mr_redis *redis = gather->queue->engine->redis;
    gather->again = true;
    if (gather->busy)
        return;
    mr_mono now = mr_redis_now(redis), at = mr_mono_add_ms(gather->looked_at, PAUSE_MS);
    mr_redis_timer_stop(redis, &gather->look);
    mr_redis_timer_start(redis, &gather->look, at.ns > now.ns ? at : now);
}

static void told(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct rqueue *queue = channel->arg;
    struct mr_link *gathers = &look_of(queue->engine)->gathers;
    (void)bytes;
    for (struct mr_link *link = gathers->next; link != gathers; link = link->next) {
        struct gather *gather = mr_container(link, struct gather, link);
        if (queue->number <= gather->listening &&
            rqueue_part(gather->whole, queue->number) == queue)
            look_soon(gather);
    }
}

/* To each partition. */
static enum mr_err listen_to_all(struct gather *gather)
{
    struct mr_redis *redis = gather->queue->engine->redis;
    int64_t wait_ms = req_of(gather)->wait_ms;
    wait_ms = wait_ms < MR_DELAY_MAX_MS ? wait_ms : MR_DELAY_MAX_MS;
    for (; gather->listening < gather->whole->widest; gather->listening++)
        MR_TRY(listen(rqueue_part(gather->whole, gather->listening + 1), told));
    gather->ends_at = mr_mono_add_ms(mr_redis_now(redis), wait_ms + 1);
    mr_redis_timer_start(redis, &gather->timer, gather->ends_at);
    return MR_OK;
}

enum mr_err gather_prepare(struct ticket *ticket)
{
    struct mr_req_gather *req = mr_container(ticket->req, struct mr_req_gather, req);
    req->n = 0;
    return mr_gather_check(req);
}

static void gather_start(struct ticket *ticket)
{
    struct mr_req_gather *req = mr_container(ticket->req, struct mr_req_gather, req);
    struct rqueue *queue = rqueue_of(ticket->engine, req->queue);
    struct gather *gather = mr_arena_calloc(&req->req.arena, 1, sizeof *gather);
    if (gather == NULL || queue == NULL) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    /* Each begins at another one, or the groups of the first would always come before the others'. */
    queue->gathers++;
    *gather = (struct gather){.ticket = ticket,
                              .queue = rqueue_part(queue, queue->gathers % queue->widest + 1),
                              .whole = queue};
    mr_timer_init(&gather->timer, timed_out);
    mr_timer_init(&gather->look, look_fired);
    gather->args[0] = number_arg(mr_gather_max(req), gather->numbers[0]);
    gather->args[1] = number_arg(req->max_delay_ms, gather->numbers[1]);
    gather->args[2] = number_arg(req->grace_ms, gather->numbers[2]);
    gather->args[4] = number_arg(mr_gather_set_ms(req), gather->numbers[3]);
    gather->args[5] = number_arg(MR_SET_BYTES_MAX, gather->numbers[4]);
    gather->args[7] = req->wait_ms > 0 ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    mr_list_push_back(&look_of(ticket->engine)->gathers, &gather->link);
    if (req->wait_ms > 0 && listen_to_all(gather) != MR_OK)
        answer(gather, MR_NOMEM);
    else
        look(gather);
}

/* It must be known which partitions there are. */
void gather_begin(struct ticket *ticket)
{
    if (parts_known(ticket->engine))
        gather_start(ticket);
    else
        look_names(ticket, gather_start);
}

void gathers_leave(struct engine *engine)
{
    struct mr_link *gathers = &look_of(engine)->gathers, *link = gathers->next;
    while (link != gathers) {
        struct gather *gather = mr_container(link, struct gather, link);
        link = link->next;
        end_with(gather, MR_CLOSED);
    }
    for (uint32_t i = 0; i < engine->queues_n; i++)
        if (engine->queues[i]->ripe.waiting == 0)
            listen_end(engine->queues[i]);
}

/* ---- a set becomes a task ------------------------------------------------------------------- */

struct gathered {
    struct ticket *ticket;
    struct mr_slice name; /* of the queue, which is a partition */
    struct rqueue *queue;
    struct new_task task;
    struct mr_redis_call call;
    struct mr_slice args[GATHERED_ARGS];
    size_t n;
};

/* The queue of the partition that the name of a set says. */
static enum mr_err set_queue(const struct mr_req_gathered *req, struct mr_slice *ret_queue)
{
    char name[MR_NAME_MAX + MR_SET_MAX];
    bool first = req->set.len <= MR_UUID_TEXT_LEN;
    int len =
        snprintf(name, sizeof name, "%.*s%.*s", (int)req->queue.len, (const char *)req->queue.data,
                 first ? 0 : (int)(req->set.len - MR_UUID_TEXT_LEN),
                 (const char *)req->set.data + (first ? 0 : MR_UUID_TEXT_LEN));
    return mr_arena_copy((struct mr_arena *)(uintptr_t)&req->req.arena,
                         mr_slice_make(name, (size_t)len), ret_queue);
}

enum mr_err gathered_prepare(struct ticket *ticket)
{
    struct mr_req_gathered *req = mr_container(ticket->req, struct mr_req_gathered, req);
    struct mr_arena *arena = &req->req.arena;
    struct gathered *gathered = mr_arena_calloc(arena, 1, sizeof *gathered);
    req->result = (struct mr_enqueue_result){.err = MR_OK};
    MR_TRY(mr_gathered_check(req));
    if (gathered == NULL)
        return MR_NOMEM;
    gathered->ticket = ticket;
    gathered->args[gathered->n++] = req->set;
    ticket->own = gathered;
    MR_TRY(set_queue(req, &gathered->name));
    MR_TRY(mr_name_check(gathered->name));
    if (req->task == NULL)
        return MR_OK;
    struct mr_task_options options = *req->task;
    options.queue = gathered->name;
    req->result.err = mr_gathered_task_check(req);
    if (req->result.err == MR_OK)
        req->result.err = enqueue_prepare_one(ticket, &options, mr_wall_now(mr_clock_system()),
                                              &gathered->task, &req->result);
    if (req->result.err == MR_OK)
        MR_TRY(enqueue_args(arena, &options, &gathered->task, gathered->args, &gathered->n));
    return MR_OK;
}

static enum mr_err read_result(const struct gathered *gathered, const struct mr_reply *reply)
{
    struct mr_req_gathered *req = mr_container(gathered->ticket->req, struct mr_req_gathered, req);
    if (mr_reply_int(mr_reply_at(reply, 0), 1) != 0)
        return MR_STALE;
    if (req->task == NULL)
        return MR_OK;
    return enqueue_result(mr_reply_int(mr_reply_at(reply, 1), -1), mr_reply_at(reply, 2)->text,
                          mr_reply_at(reply, 3)->text, &req->result);
}

static void gathered_answered(struct mr_redis_call *call, enum mr_err err,
                              const struct mr_reply *reply)
{
    struct gathered *gathered = call->arg;
    err = look_array(gathered->queue->engine, err, reply);
    if (err == MR_OK)
        err = read_result(gathered, reply);
    ticket_done(gathered->ticket, err);
}

void gathered_begin(struct ticket *ticket)
{
    struct mr_req_gathered *req = mr_container(ticket->req, struct mr_req_gathered, req);
    struct gathered *gathered = ticket->own;
    gathered->queue = rqueue_of(ticket->engine, gathered->name);
    if (gathered->queue == NULL || req->result.err != MR_OK) {
        ticket_done(ticket, gathered->queue == NULL ? MR_NOMEM : MR_OK);
        return;
    }
    if (req->task != NULL && req->task->topic.len > 0 && !gathered->queue->leaves.known)
        results_name_again(gathered->queue);
    gathered->call =
        (struct mr_redis_call){.answered = gathered_answered, .arg = gathered, .durable = true};
    rqueue_eval(gathered->queue, &gathered->call, SCRIPT_GATHERED, gathered->args, gathered->n);
}
