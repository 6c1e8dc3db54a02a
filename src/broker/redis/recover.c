/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases that ended, tasks that were kept long enough. Every engine whose nodes listen to a queue looks
 * after it: the script is one step, so it does not matter how many do. It tells when the next lease ends;
 * that of a worker which died since is among them, as long as the look is not rarer than its beats. Where nothing
 * runs and nothing is kept it rests until idle.c finds something.
 */
#include "broker/redis/internal.h"

enum {
    LOOK_MS = 5000,           /* at the latest */
    KEPT_LOOK_MS = 60 * 1000, /* where nothing runs: what is kept ends when it was told to */
    /* Redis was away: whoever lives says so first. He may be in an attempt to connect that gets no answer, and
     * in the pause behind it; where the server is new, he is in a pause. */
    AFTER_UP_MS = 4000,
    AFTER_BEGIN_MS = 2000,
    LATES_MAX = 3, /* looks that came late one after the other: the next one counts in any case */
};

/* So often that a lease as long as those of our own nodes is seen before it ends: then the look at its end is
 * on time. */
int64_t recover_look_ms(const struct engine *engine)
{
    int64_t ms = LOOK_MS;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        ms = node->lease_ms < ms ? node->lease_ms : ms;
    }
    return ms;
}

/* How long it is still too early to take what ended from those who had it. */
static int64_t early_ms(const struct engine *engine)
{
    mr_mono began = mr_redis_began(engine->redis);
    mr_mono from = mr_mono_add_ms(engine->up_at, engine->ups > 1 ? AFTER_UP_MS : 0);
    mr_mono from_begin = mr_mono_add_ms(began, began.ns != 0 ? AFTER_BEGIN_MS : 0);
    int64_t until_ns = from.ns > from_begin.ns ? from.ns : from_begin.ns;
    return (until_ns - mr_redis_now(engine->redis).ns) / MR_NS_PER_MS;
}

/* Its part of a Cluster was away and is back, as far as we can see. */
static void back(struct rqueue *queue)
{
    queue->recover.away = false;
    nodes_beat(queue->engine);
    recover_in(queue, AFTER_UP_MS);
}

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    bool was_away = queue->recover.away;
    queue->recover.running = false;
    if (queue->listeners == 0 || err == MR_CLOSED)
        return;
    queue->recover.away = err == MR_UNAVAILABLE || err == MR_TIMEOUT;
    if (was_away && err == MR_OK) {
        back(queue);
        return;
    }
    if (err == MR_FAILED || err == MR_DENIED)
        (void)rqueue_refused(queue, err, reply);
    int64_t next_ms = err == MR_OK ? mr_reply_int(mr_reply_at(reply, 1), -1) : -1;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    if (err == MR_OK) {
        queue->engine->ahead_ms = mr_reply_int(mr_reply_at(reply, 2), now_ms) - now_ms;
        queue->recover.from = mr_reply_int(mr_reply_at(reply, 3), 1);
        queue->recover.lates =
            mr_reply_int(mr_reply_at(reply, 0), 0) < 0 ? queue->recover.lates + 1 : 0;
    }
    if (err == MR_OK && next_ms < 0)
        return; /* nothing is there: it rests until something is */
    bool kept = err == MR_OK && mr_reply_int(mr_reply_at(reply, 4), 1) == 0;
    int64_t most_ms = kept ? KEPT_LOOK_MS : recover_look_ms(queue->engine);
    recover_in(queue, next_ms >= 0 && next_ms < most_ms ? next_ms + 1 : most_ms);
}

int64_t recover_early_ms(const struct engine *engine)
{
    int64_t ms = early_ms(engine);
    return ms > 0 ? ms + 1 : 0;
}

void recover_send(struct rqueue *queue, struct mr_redis_call *call)
{
    struct engine *engine = queue->engine;
    char most[NUMBER_MAX], keep[NUMBER_MAX], from[NUMBER_MAX], sent[NUMBER_MAX];
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + engine->ahead_ms;
    if (queue->recover.lates == LATES_MAX)
        now_ms += MR_MS_PER_DAY; /* it is always so slow */
    struct mr_slice args[] = {
        number_arg(engine->archive_max, most), number_arg(engine->archive_ms, keep),
        number_arg(queue->recover.away ? 0 : queue->recover.from, from), number_arg(now_ms, sent)};
    rqueue_eval(queue, call, SCRIPT_RECOVER, args, 4);
}

static void look(struct rqueue *queue)
{
    queue->recover.running = true;
    /* It must not wait for a Redis that is away: when that is back, whoever lives says so first. */
    queue->recover.call =
        (struct mr_redis_call){.answered = answered, .arg = queue, .urgent = true};
    recover_send(queue, &queue->recover.call);
}

static void fire(struct mr_timer *timer, void *arg)
{
    struct rqueue *queue = mr_container(timer, struct rqueue, recover.timer);
    struct engine *engine = queue->engine;
    (void)arg;
    queue->recover.at = MR_MONO_NEVER;
    int64_t wait_ms = engine->up ? early_ms(engine) : AFTER_UP_MS;
    if (queue->listeners == 0 || engine->closing)
        return;
    if (!engine->up)
        queue->recover.away = false; /* that holds for all queues */
    if (wait_ms > 0)
        recover_in(queue, wait_ms + 1);
    else if (!queue->recover.running)
        look(queue);
}

void recover_init(struct rqueue *queue)
{
    mr_timer_init(&queue->recover.timer, fire);
    queue->recover.at = MR_MONO_NEVER;
    queue->recover.from = 1;
}

void recover_stop(struct rqueue *queue)
{
    mr_redis_timer_stop(queue->engine->redis, &queue->recover.timer);
    queue->recover.at = MR_MONO_NEVER;
}

void recover_in(struct rqueue *queue, int64_t ms)
{
    struct mr_redis *redis = queue->engine->redis;
    mr_mono at = mr_mono_add_ms(mr_redis_now(redis), ms);
    if (queue->listeners == 0 || at.ns >= queue->recover.at.ns)
        return;
    queue->recover.at = at;
    mr_redis_timer_start(redis, &queue->recover.timer, at);
}

void recover_wakes(struct rqueue *queue, bool runs)
{
    struct engine *engine = queue->engine;
    mr_mono soon = mr_mono_add_ms(mr_redis_now(engine->redis), recover_look_ms(engine));
    mr_mono late = runs ? soon : (mr_mono){MR_MONO_NEVER.ns - 1};
    if (queue->recover.at.ns > late.ns && !queue->recover.running)
        recover_in(queue, 0);
}
