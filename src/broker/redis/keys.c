/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues as Redis knows them: by name, with the prefix of their keys. One is made when it is first
 * spoken of and stays: what is known of it costs some hundred bytes.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"
#include "wire/task.h"

enum { USED_AGAIN_MS = 5000 }; /* a queue in use is put among all queues so often */

/* ---- by name -------------------------------------------------------------------------------- */

static uint64_t name_hash(struct mr_slice name)
{
    uint64_t hash = mr_fnv64(MR_FNV64_SEED, name);
    return hash ^ hash >> 29;
}

static uint64_t handle_hash(uint32_t handle, void *arg)
{
    struct engine *engine = arg;
    return name_hash(engine->queues[handle]->name);
}

static bool handle_equal(uint32_t handle, const void *key, void *arg)
{
    struct engine *engine = arg;
    return mr_slice_equal(engine->queues[handle]->name, *(const struct mr_slice *)key);
}

const struct mr_map_ops rqueue_map_ops = {.hash = handle_hash, .equal = handle_equal};

static enum mr_err grow(struct engine *engine)
{
    if (engine->queues_n < engine->queues_cap)
        return MR_OK;
    uint32_t cap = engine->queues_cap != 0 ? engine->queues_cap * 2 : 16;
    struct rqueue **queues = realloc(engine->queues, cap * sizeof(*queues));
    if (queues == NULL)
        return MR_NOMEM;
    engine->queues = queues;
    engine->queues_cap = cap;
    return MR_OK;
}

/* One block: the struct, its name, its prefix. */
static struct rqueue *rqueue_new(struct engine *engine, struct mr_slice name)
{
    static const char form[] = "%.*sasynq:{%.*s}:%s%.*s%s"; /* longer than what it adds */
    struct mr_slice topic, home;
    size_t room = engine->prefix.len + sizeof form + name.len;
    struct rqueue *queue = calloc(1, sizeof *queue + name.len + 1 + room);
    if (queue == NULL)
        return NULL;
    char *text = (char *)(queue + 1), *prefix = text + name.len + 1;
    memcpy(text, name.data, name.len);
    bool results = result_place(mr_slice_make(text, name.len), &topic, &home);
    struct mr_slice tag = results ? home : name;
    int len =
        snprintf(prefix, room, form, (int)engine->prefix.len, (const char *)engine->prefix.data,
                 (int)tag.len, (const char *)tag.data, results ? "mr:r:[" : "", (int)topic.len,
                 (const char *)topic.data, results ? "]:" : "");
    mr_assert(len > 0 && (size_t)len < room);
    queue->engine = engine;
    queue->name = mr_slice_make(text, name.len);
    queue->prefix = mr_slice_make(prefix, (size_t)len);
    queue->topic = topic;
    queue->inner = queue->known = mr_queue_is_inner(queue->name);
    queue->handle = engine->queues_n;
    queue->maybe = true;
    queue->number = queue->partitions = queue->widest = 1;
    mr_list_init(&queue->finishes);
    mr_list_init(&queue->finishing);
    return queue;
}

struct rqueue *rqueue_find(struct engine *engine, struct mr_slice name)
{
    uint32_t handle = mr_map_find(engine->by_name, name_hash(name), &name);
    return handle != MR_MAP_NONE ? engine->queues[handle] : NULL;
}

struct rqueue *rqueue_get(struct engine *engine, struct mr_slice name)
{
    uint64_t hash = name_hash(name);
    struct rqueue *queue = rqueue_find(engine, name);
    if (queue != NULL)
        return queue;
    if (grow(engine) != MR_OK)
        return NULL;
    queue = rqueue_new(engine, name);
    if (queue == NULL)
        return NULL;
    engine->queues[queue->handle] = queue;
    if (mr_map_insert(engine->by_name, hash, queue->handle) != MR_OK) {
        free(queue);
        return NULL;
    }
    engine->queues_n++;
    watch_init(queue);
    ripe_init(queue);
    recover_init(queue);
    return queue;
}

struct rqueue *rqueue_of(struct engine *engine, struct mr_slice queue)
{
    return rqueue_get(engine, mr_queue_or_default(queue));
}

void rqueue_free(struct rqueue *queue)
{
    if (queue == NULL)
        return;
    watch_free(queue);
    ripe_done(queue);
    latency_free(queue->latency);
    free(queue->parts);
    free(queue->places);
    free(queue);
}

/* ---- all of them ---------------------------------------------------------------------------- */

struct mr_slice global_key(const struct engine *engine, const char *rest, struct mr_arena *arena)
{
    size_t len = engine->prefix.len + strlen("asynq:") + strlen(rest);
    char *text = mr_arena_alloc(arena, len + 1);
    if (text == NULL)
        return (struct mr_slice){0};
    (void)snprintf(text, len + 1, "%.*sasynq:%s", (int)engine->prefix.len,
                   (const char *)engine->prefix.data, rest);
    return mr_slice_make(text, len);
}

struct small_call {
    struct mr_redis_call call;
};

static void added(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct rqueue *queue = call->arg;
    (void)reply;
    queue->added = err == MR_OK || err == MR_DISK_FULL; /* that takes its time */
    free(mr_container(call, struct small_call, call));
}

void rqueue_used(struct rqueue *queue)
{
    struct engine *engine = queue->engine;
    mr_mono now = mr_redis_now(engine->redis);
    bool lately = queue->added && now.ns - queue->added_at.ns < USED_AGAIN_MS * MR_NS_PER_MS;
    if (lately || queue->topic.len > 0 || queue->inner)
        return;
    if (queue->leaves.known)
        results_name_again(queue);
    struct small_call *small = calloc(1, sizeof *small);
    struct mr_arena arena = {0};
    struct mr_slice key = global_key(engine, "queues", &arena);
    if (small != NULL && key.len > 0) {
        struct mr_slice args[] = {MR_SLICE_LIT("SADD"), key, queue->name};
        queue->added = queue->known = true;
        queue->added_at = now;
        small->call = (struct mr_redis_call){
            .answered = added, .arg = queue, .repeatable = true, .urgent = true};
        mr_redis_send(engine->redis, &small->call, key, args, 3);
        small = NULL;
    }
    free(small);
    mr_arena_done(&arena);
}

void rqueue_removed(struct rqueue *queue)
{
    queue->known = queue->added = queue->leaves.known = false;
    queue->leaves.registrant = NULL;
}

static enum mr_err names_read(struct engine *engine, const struct mr_reply *reply)
{
    enum mr_err err = MR_OK;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        engine->queues[i]->known = engine->queues[i]->inner;
    for (size_t i = 0; i < reply->n && err == MR_OK; i++) {
        struct mr_slice name = reply->items[i].text, topic, home;
        if (result_place(name, &topic, &home) || mr_queue_is_inner(name))
            continue; /* nobody gave a queue such a name */
        struct rqueue *queue = rqueue_get(engine, name);
        if (queue == NULL)
            err = MR_NOMEM;
        else
            queue->known = true;
    }
    for (uint32_t i = 0; i < engine->queues_n; i++)
        engine->queues[i]->added &= engine->queues[i]->known;
    if (err == MR_OK)
        engine->queues_at = mr_redis_now(engine->redis);
    return err;
}

static void one_came(struct queues_ask *ask, enum mr_err err)
{
    if (ask->err == MR_OK)
        ask->err = err;
    if (--ask->left == 0)
        ask->then(ask, ask->err);
}

static void names_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct queues_ask *ask = call->arg;
    one_came(ask, err == MR_OK ? names_read(ask->engine, reply)
                               : engine_refused(ask->engine, err, reply));
}

static void parts_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct queues_ask *ask = call->arg;
    one_came(ask, parts_answered(ask->engine, err, reply));
}

/* A user that may not read that knows of no results. */
static void results_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct queues_ask *ask = call->arg;
    if (err == MR_OK)
        results_names_read(ask->engine, reply);
    one_came(ask,
             err == MR_OK || err == MR_DENIED ? MR_OK : engine_refused(ask->engine, err, reply));
}

static void names_known(struct mr_msg *msg, void *receiver)
{
    struct queues_ask *ask = mr_container(msg, struct queues_ask, msg);
    (void)receiver;
    ask->then(ask, MR_OK);
}

bool queues_known(const struct engine *engine)
{
    int64_t age_ns = mr_redis_now(engine->redis).ns - engine->queues_at.ns;
    return engine->queues_at.ns != 0 && age_ns < QUEUES_FRESH_MS * MR_NS_PER_MS;
}

void queues_ask(struct engine *engine, struct queues_ask *ask)
{
    struct mr_arena arena = {0};
    ask->engine = engine;
    if (!ask->fresh && queues_known(engine)) {
        ask->msg.deliver = names_known;
        mr_redis_post(engine->redis, &ask->msg);
        return;
    }
    struct mr_slice key = global_key(engine, "queues", &arena);
    struct mr_slice args[] = {MR_SLICE_LIT("SMEMBERS"), key};
    ask->left = 3;
    ask->err = MR_OK;
    ask->call = (struct mr_redis_call){.answered = names_came, .arg = ask, .repeatable = true};
    ask->parts = (struct mr_redis_call){.answered = parts_came, .arg = ask, .repeatable = true};
    mr_redis_send(engine->redis, &ask->call, key, args, key.len > 0 ? 2 : 0);
    parts_send(engine, &ask->parts);
    ask->results = (struct mr_redis_call){.answered = results_came, .arg = ask, .repeatable = true};
    results_names_send(engine, &ask->results);
    mr_arena_done(&arena);
}

/* ---- arguments ------------------------------------------------------------------------------ */

struct mr_slice number_arg(int64_t number, char text[NUMBER_MAX])
{
    int len = snprintf(text, NUMBER_MAX, "%" PRId64, number);
    return mr_slice_make(text, (size_t)len);
}

void rqueue_eval(struct rqueue *queue, struct mr_redis_call *call, enum script script,
                 const struct mr_slice *args, size_t n)
{
    /*
     * Neither of the two keys is ever there. So a Cluster that is moving the slot to another node answers
     * TRYAGAIN at both nodes until all keys have arrived, and no script sees a part of the queue: with
     * one key it would run where that is, or where it would be.
     */
    struct mr_slice keys[] = {queue->prefix,
                              mr_slice_make(queue->prefix.data, queue->prefix.len - 1)};
    mr_redis_eval(queue->engine->redis, call, script, keys, 2, args, n);
}
