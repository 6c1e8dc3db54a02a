/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No polling: a queue that had nothing is looked at again when something came. A push, by whomever, ends a
 * BLMOVE of the list onto itself; what is not in the list (priorities, due times, resuming) is told on
 * the channel mr:wake; and what is due at a known time has a timer. While this guard stands, `maybe` is
 * false and nobody asks. But nobody tells of what a Go program puts into `scheduled` and `retry`: idle.c looks.
 * Nor that it resumed a queue: so one that is paused is asked for that now and then.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"

enum {
    PUSH_WAIT_S = 30, /* of one BLMOVE: also finds out that a connection is dead */
    QUEUE_WAIT_S = 2, /* ... but so long for each queue that there is: an idle worker says little */
    FOREIGN_MS = 1000, /* a paused queue is asked so often what others did */
    FAILED_MS = 5000,  /* after an error of this queue */
};

static bool is_quiet(const struct rqueue *queue)
{
    return mr_redis_now(queue->engine->redis).ns < queue->watch.quiet.ns;
}

void watch_woken(struct rqueue *queue)
{
    if (is_quiet(queue))
        return;
    queue->maybe = true;
    takes_serve(queue->engine);
}

static void look_in(struct rqueue *queue, int64_t ms, enum watch_look look)
{
    struct mr_redis *redis = queue->engine->redis;
    mr_mono at = mr_mono_add_ms(mr_redis_now(redis), ms);
    bool later = at.ns < queue->watch.quiet.ns;
    queue->watch.look = later ? LOOK_DUE : look;
    queue->watch.at = later ? queue->watch.quiet : at;
    mr_redis_timer_start(redis, &queue->watch.timer, queue->watch.at);
}

static void look_now(struct rqueue *queue)
{
    queue->watch.due = true;
    watch_woken(queue);
}

static bool is_paused(const struct watch *watch)
{
    return watch->look == LOOK_PAUSED && (watch->peeking || mr_timer_running(&watch->timer));
}

bool watch_is_paused(const struct rqueue *queue)
{
    return is_paused(&queue->watch);
}

void watch_due_in(struct rqueue *queue, int64_t ms)
{
    struct watch *watch = &queue->watch;
    if (ms < 0 || queue->takers == 0 || queue->maybe || is_paused(watch))
        return;
    mr_mono at = mr_mono_add_ms(mr_redis_now(queue->engine->redis), ms);
    if (ms == 0)
        look_now(queue);
    else if (!mr_timer_running(&watch->timer) || at.ns < watch->at.ns)
        look_in(queue, ms, LOOK_DUE);
}

static void peeked(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    queue->watch.peeking = false;
    if (queue->takers == 0 || err == MR_CLOSED || queue->maybe)
        return;
    if (err == MR_OK && mr_reply_int(reply, 0) == 0)
        look_now(queue);
    else
        look_in(queue, FOREIGN_MS, LOOK_PAUSED);
}

/* Whether it is still paused. */
static void peek(struct rqueue *queue)
{
    struct watch *watch = &queue->watch;
    char key[ID_KEY_MAX];
    int len = snprintf(key, sizeof key, "%spaused", (const char *)queue->prefix.data);
    struct mr_slice args[] = {MR_SLICE_LIT("EXISTS"), mr_slice_make(key, (size_t)len)};
    watch->peeking = true;
    watch->peek = (struct mr_redis_call){.answered = peeked, .arg = queue, .repeatable = true};
    mr_redis_send(queue->engine->redis, &watch->peek, args[1], args, 2);
}

static void due(struct mr_timer *timer, void *arg)
{
    struct rqueue *queue = mr_container(timer, struct rqueue, watch.timer);
    (void)arg;
    if (queue->watch.look == LOOK_DUE || queue->maybe)
        look_now(queue);
    else if (!queue->watch.peeking)
        peek(queue);
}

/* Messages before a subscription began may be missing, so its beginning is one, too. */
static void told(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct rqueue *queue = channel->arg;
    queue->watch.listening = true;
    queue->watch.due = true;
    if (mr_slice_equal(bytes, MR_SLICE_LIT("s"))) /* of set.lua */
        parts_changed(queue->engine);
    watch_woken(queue);
}

void watch_init(struct rqueue *queue)
{
    mr_timer_init(&queue->watch.timer, due);
    queue->watch.due = true;
}

bool watch_has_no_lane(const struct rqueue *queue)
{
    return queue->watch.lane == NULL && queue->takers > 0;
}

/* What it counts for is fixed then: a queue may become a partition, or cease to be one. */
static enum mr_err lane_open(struct rqueue *queue, struct mr_slice list)
{
    struct watch *watch = &queue->watch;
    MR_TRY(mr_redis_lane_new(queue->engine->redis, list, &watch->lane));
    watch->counted = queue->part_of != NULL;
    queue->engine->part_lanes += watch->counted;
    return MR_OK;
}

static void lane_close(struct rqueue *queue)
{
    struct watch *watch = &queue->watch;
    mr_redis_lane_free(watch->lane);
    watch->lane = NULL;
    queue->engine->part_lanes -= watch->counted;
    watch->counted = false;
}

static bool may_have_lane(const struct rqueue *queue)
{
    return !queue->lane_less && (queue->watch.lane != NULL || queue->part_of == NULL ||
                                 queue->engine->part_lanes < PART_LANES_MAX);
}

static void pushed(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);

static void wait_for_push(struct rqueue *queue)
{
    struct watch *watch = &queue->watch;
    char key[ID_KEY_MAX], seconds[NUMBER_MAX];
    if (watch->pushing || queue->takers == 0 || queue->engine->closing)
        return;
    if (queue->topic.len > 0) /* nobody else puts anything there: all is told on the channel */
        return;
    if (!may_have_lane(queue)) /* idle.c looks */
        return;
    int len = snprintf(key, sizeof key, "%spending", (const char *)queue->prefix.data);
    struct mr_slice list = mr_slice_make(key, (size_t)len);
    if (watch->lane == NULL && lane_open(queue, list) != MR_OK) {
        look_in(queue, AGAIN_MS, LOOK_DUE);
        return;
    }
    int64_t wait_s = (int64_t)QUEUE_WAIT_S * queue->engine->queues_n;
    struct mr_slice args[] = {MR_SLICE_LIT("BLMOVE"),
                              list,
                              list,
                              MR_SLICE_LIT("RIGHT"),
                              MR_SLICE_LIT("RIGHT"),
                              number_arg(wait_s > PUSH_WAIT_S ? wait_s : PUSH_WAIT_S, seconds)};
    watch->pushing = true;
    watch->call = (struct mr_redis_call){.answered = pushed, .arg = queue, .repeatable = true};
    mr_redis_lane_send(watch->lane, &watch->call, args, sizeof args / sizeof args[0]);
}

static void pushed(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    queue->watch.pushing = false;
    if (queue->takers == 0 || err == MR_CLOSED)
        return;
    bool away = err == MR_UNAVAILABLE || err == MR_TIMEOUT;
    if ((err == MR_DENIED || err == MR_FAILED) && !queue->watch.refused)
        (void)rqueue_refused(queue, err, reply); /* once: it is asked again and again */
    queue->watch.refused |= err == MR_DENIED || err == MR_FAILED;
    if (err != MR_OK && err != MR_CANCELLED)
        look_in(queue, away ? AGAIN_MS : FOREIGN_MS, LOOK_DUE);
    else if (err == MR_OK && reply->kind == MR_REPLY_TEXT)
        watch_woken(queue);
    else if (!queue->maybe)
        wait_for_push(queue);
}

void watch_start_fallen(struct rqueue *queue)
{
    if (queue->listeners++ > 0)
        return;
    recover_in(queue, 0);
    idle_start(queue->engine);
}

void watch_stop_fallen(struct rqueue *queue)
{
    mr_assert(queue->listeners > queue->takers);
    if (--queue->listeners == 0)
        recover_stop(queue);
}

void watch_start(struct rqueue *queue)
{
    struct watch *watch = &queue->watch;
    watch_start_fallen(queue);
    if (queue->takers++ > 0)
        return;
    queue->maybe = watch->due = true;
    size_t size = queue->prefix.len + sizeof "mr:wake";
    watch->channel_name = malloc(size);
    if (watch->channel_name != NULL) {
        (void)snprintf(watch->channel_name, size, "%smr:wake", (const char *)queue->prefix.data);
        watch->channel = (struct mr_redis_channel){
            .name = mr_slice_str(watch->channel_name), .message = told, .arg = queue};
        mr_redis_subscribe(queue->engine->redis, &watch->channel);
    }
}

void watch_stop(struct rqueue *queue)
{
    struct watch *watch = &queue->watch;
    mr_assert(queue->takers > 0);
    bool last = --queue->takers == 0;
    watch_stop_fallen(queue);
    if (!last)
        return;
    mr_redis_timer_stop(queue->engine->redis, &watch->timer);
    if (watch->channel_name != NULL)
        mr_redis_unsubscribe(queue->engine->redis, &watch->channel);
    lane_close(queue);
    free(watch->channel_name);
    watch->channel_name = NULL;
    watch->listening = false;
    queue->maybe = true;
}

void watch_free(struct rqueue *queue)
{
    free(queue->watch.channel_name);
}

void watch_looks(struct rqueue *queue)
{
    queue->watch.due = false;
}

void watch_looked(struct rqueue *queue, int64_t next_ms)
{
    struct watch *watch = &queue->watch;
    watch->due |= next_ms == 0;
    if (!watch->listening && (next_ms < 0 || next_ms > FOREIGN_MS))
        next_ms = FOREIGN_MS; /* nobody tells of anything, or not yet */
    if (next_ms > 0)
        look_in(queue, next_ms, LOOK_DUE);
    else
        mr_redis_timer_stop(queue->engine->redis, &watch->timer);
}

void watch_empty(struct rqueue *queue)
{
    if (queue->watch.due || queue->takers == 0)
        return;
    queue->maybe = false;
    wait_for_push(queue);
}

/* By its limits: that there is something in it is known, and when it may go is told, or has a timer. */
void watch_held_back(struct rqueue *queue)
{
    if (queue->takers == 0 || queue->watch.due)
        return;
    queue->maybe = false;
    if (!mr_timer_running(&queue->watch.timer))
        look_in(queue, FOREIGN_MS, LOOK_DUE);
}

void watch_paused(struct rqueue *queue)
{
    if (queue->takers == 0)
        return;
    queue->maybe = false;
    look_in(queue, FOREIGN_MS, LOOK_PAUSED);
}

void watch_failed(struct rqueue *queue)
{
    if (queue->takers == 0)
        return;
    queue->watch.quiet = mr_mono_add_ms(mr_redis_now(queue->engine->redis), FAILED_MS);
    queue->maybe = false;
    look_in(queue, FAILED_MS, LOOK_DUE);
}
