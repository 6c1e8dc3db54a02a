/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nobody tells us of: what other programs put into `scheduled` and `retry`, runs of other processes in
 * a queue where nothing ran, results of those who may not send messages, and pushes into lists that nobody waits
 * for. All queues that nodes listen to are asked together, once a second: with one EXISTS of all their keys,
 * and where there is something with one script. A Cluster takes no command for several slots; there one queue
 * is asked after the other, the faster the more there are.
 */
#include <stdio.h>

#include "broker/redis/internal.h"

enum {
    LOOK_MS = 1000,
    ROUND_MS = 5000, /* in a Cluster: each of them so often at least */
    LOOKS = 4,       /* ... and of a few that many a second */
    TIME_LOOKS = 5,  /* every so often the script looks in any case: it tells the time of Redis */
    QUEUE_ITEMS = 3, /* of the script's answer */
    RUNS = 1,        /* the last of them: something runs */
};

/* What is only kept does not belong to them: its end is known, or is found with the time. */
static const char *const kinds[] = {"scheduled", "retry", "lease", "active"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool is_cluster(const struct engine *engine)
{
    return mr_redis_kind(engine->redis) == MR_REDIS_CLUSTER;
}

/* Chooses whom to ask now; answers how many queues there are. */
static uint32_t choose(struct engine *engine)
{
    struct idle *idle = &engine->idle;
    uint32_t most = is_cluster(engine) ? 1 : IDLE_QUEUES, listened = 0, next = idle->next;
    idle->n = 0;
    for (uint32_t i = 0; i < engine->queues_n; i++) {
        uint32_t handle = (next + i) % engine->queues_n;
        const struct rqueue *queue = engine->queues[handle];
        if (queue->listeners == 0 || (queue->takers == 0 && !queue->known))
            continue;
        listened++;
        if (idle->n == most)
            continue;
        idle->group[idle->n++] = handle;
        idle->next = handle + 1;
    }
    return listened;
}

static int64_t pause_ms(const struct engine *engine, uint32_t listened)
{
    int64_t ms = recover_look_ms(engine);
    ms = ms < LOOK_MS ? ms : LOOK_MS;
    if (!is_cluster(
            engine)) { /* who has no lane waits for this look, so each of them is looked at as often */
        bool many = engine->part_lanes >= PART_LANES_MAX && listened > IDLE_QUEUES;
        return many ? 1 + ms * IDLE_QUEUES / listened : ms;
    }
    int64_t few_ms = ms / (listened < LOOKS ? listened : LOOKS), many_ms = ROUND_MS / listened;
    return 1 + (few_ms < many_ms ? few_ms : many_ms);
}

/* ---- what was found ------------------------------------------------------------------------- */

static void look_closer(struct engine *engine);

static struct rqueue *queue_of(struct engine *engine, int64_t number)
{
    const struct idle *idle = &engine->idle;
    return number >= 0 && number < idle->n ? engine->queues[idle->group[number]] : NULL;
}

static void read_answer(struct engine *engine, const struct mr_reply *reply)
{
    struct idle *idle = &engine->idle;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    engine->ahead_ms = mr_reply_int(mr_reply_at(reply, 0), now_ms) - now_ms;
    for (uint32_t i = 0; i < idle->n; i++)
        queue_of(engine, i)->watch.something = false;
    for (size_t i = 1; i + QUEUE_ITEMS <= reply->n; i += QUEUE_ITEMS) {
        struct rqueue *queue = queue_of(engine, mr_reply_int(&reply->items[i], -1));
        if (queue == NULL || queue->listeners == 0)
            continue;
        int64_t due_ms = mr_reply_int(&reply->items[i + 1], -1);
        int64_t what = mr_reply_int(&reply->items[i + 2], 0);
        queue->watch.something = due_ms >= 0 || what == RUNS;
        if (what != 0)
            recover_wakes(queue, what == RUNS);
        watch_due_in(queue, due_ms);
    }
}

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct engine *engine = call->arg;
    engine->idle.running = false;
    if (err != MR_OK || engine->closing)
        return; /* it is asked again soon */
    if (reply->kind == MR_REPLY_ARRAY)
        read_answer(engine, reply);
    else if (mr_reply_int(reply, 0) > 0)
        look_closer(engine);
}

/* ---- asking --------------------------------------------------------------------------------- */

static struct mr_redis_call *begin_call(struct engine *engine)
{
    struct idle *idle = &engine->idle;
    idle->running = true;
    idle->call = (struct mr_redis_call){
        .answered = answered, .arg = engine, .repeatable = true, .urgent = true};
    return &idle->call;
}

static void look_closer(struct engine *engine)
{
    struct idle *idle = &engine->idle;
    struct mr_slice prefixes[IDLE_QUEUES], lists[IDLE_QUEUES];
    for (uint32_t i = 0; i < idle->n; i++) {
        prefixes[i] = queue_of(engine, i)->prefix;
        lists[i] = watch_has_no_lane(queue_of(engine, i)) ? MR_SLICE_LIT("1") : MR_SLICE_LIT("");
    }
    mr_redis_eval(engine->redis, begin_call(engine), SCRIPT_IDLE, prefixes, idle->n, lists,
                  idle->n);
}

/* Whether there is anything at all. */
static void look(struct engine *engine)
{
    struct idle *idle = &engine->idle;
    mr_arena_reset(&engine->scratch);
    struct mr_slice *args =
        mr_arena_calloc(&engine->scratch, 1 + (size_t)idle->n * (KINDS + 1), sizeof *args);
    if (args == NULL)
        return;
    size_t n = 1;
    args[0] = MR_SLICE_LIT("EXISTS");
    for (uint32_t i = 0; i < idle->n; i++) {
        const struct rqueue *queue = queue_of(engine, i);
        size_t names_n = KINDS + watch_has_no_lane(queue);
        for (size_t kind = 0; kind < names_n; kind++) {
            char key[ID_KEY_MAX];
            int len = snprintf(key, sizeof key, "%s%s", (const char *)queue->prefix.data,
                               kind < KINDS ? kinds[kind] : "pending");
            if (mr_arena_copy(&engine->scratch, mr_slice_make(key, (size_t)len), &args[n++]) !=
                MR_OK)
                return;
        }
    }
    mr_redis_send(engine->redis, begin_call(engine), args[1], args, n);
}

static void fire(struct mr_timer *timer, void *arg)
{
    struct engine *engine = mr_container(timer, struct engine, idle.timer);
    struct idle *idle = &engine->idle;
    (void)arg;
    if (idle->running || engine->closing) { /* the group is that of the call */
        if (!engine->closing)
            mr_redis_timer_start(engine->redis, timer,
                                 mr_mono_add_ms(mr_redis_now(engine->redis), LOOK_MS));
        return;
    }
    uint32_t listened = choose(engine);
    if (listened == 0)
        return;
    bool something = idle->looks++ % TIME_LOOKS == 0;
    for (uint32_t i = 0; i < idle->n; i++)
        something |= queue_of(engine, i)->watch.something;
    if (something)
        look_closer(engine);
    else
        look(engine);
    mr_redis_timer_start(engine->redis, timer,
                         mr_mono_add_ms(mr_redis_now(engine->redis), pause_ms(engine, listened)));
}

void idle_init(struct engine *engine)
{
    mr_timer_init(&engine->idle.timer, fire);
}

void idle_start(struct engine *engine)
{
    if (!mr_timer_running(&engine->idle.timer))
        mr_redis_timer_start(engine->redis, &engine->idle.timer,
                             mr_mono_add_ms(mr_redis_now(engine->redis), LOOK_MS));
}
