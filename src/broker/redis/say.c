/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said about nodes: as Asynq's servers say it, every few seconds, so that its tools show ours among
 * them; and our own details beside it. All of it goes away by itself when a node does not say it again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/redis/internal.h"
#include "wire/node.h"

enum {
    AGAIN_S = 5, /* Asynq's */
    SETS = 3,    /* sorted sets of members: servers, workers, nodes */
    CALLS = SETS + 1,
    HEAD_ARGS = 5, /* of say.lua */
    SWEEP_EVERY =
        12, /* times that a node says what it is, those are forgotten that died without a word */
    SAME_MS = 500, /* moments that near are one, seen by clocks that move */
};

struct say {
    struct mr_redis_call calls[CALLS];
    struct node *node;
    struct mr_slice sweep;
    size_t left;
    enum mr_err err;
};

/* "host:pid:uuid" */
enum mr_err node_name(struct node *node)
{
    char text[sizeof node->engine->host + MR_UUID_TEXT_LEN + 32], uuid_text[MR_UUID_TEXT_LEN + 1];
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, mr_wall_now(mr_clock_system()), &node->engine->rand);
    mr_uuid_format(&uuid, uuid_text);
    int len =
        snprintf(text, sizeof text, "%s:%ld:%s", node->engine->host, (long)getpid(), uuid_text);
    MR_TRY(mr_arena_copy(&node->memory, mr_slice_make(text, (size_t)len), &node->member));
    char holder[MR_NAME_MAX + 32];
    len =
        snprintf(holder, sizeof holder, "%.*s%c%llx", (int)node->name.len,
                 (const char *)node->name.data, HOLDER_MARK, (unsigned long long)node->incarnation);
    return mr_arena_copy(&node->memory, mr_slice_make(holder, (size_t)len), &node->holder);
}

/* How many of its slots run something. */
static uint32_t node_busy(const struct node *node)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < node->slots; i++)
        busy += mr_board_epoch(&node->engine->board, node->first_slot + i) != 0;
    return busy;
}

void node_info(const struct node *node, struct mr_node_info *ret_info)
{
    *ret_info = (struct mr_node_info){
        .name = node->name,
        .role = node->role,
        .incarnation = node->incarnation,
        .state = MR_NODE_LIVE,
        .started_ms = node->started_ms,
        .last_beat_ms = node->last_beat_ms,
        .in_hand = node->in_hand,
        .slots = node->slots,
        .busy = node_busy(node),
        .queues = node->queues,
        .queues_n = node->queues_n,
        .types = node->types,
        .types_n = node->types_n,
        .slot_infos = node->slots_said,
        .slot_infos_n = node->slots_said_n,
    };
}

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct say *say = call->arg;
    struct node *node = say->node;
    bool broken = err == MR_FAILED; /* people do not see the node, but it can work */
    if (broken && !node->engine->unsaid)
        (void)engine_refused(node->engine, err, reply);
    node->engine->unsaid |= broken;
    if (err != MR_OK && !broken)
        say->err = engine_refused(node->engine, err, reply);
    if (--say->left > 0)
        return;
    struct ticket *opener = node->opener;
    err = say->err;
    free(say);
    node->opener = NULL;
    if (opener != NULL)
        ticket_done(opener, err);
    if (opener != NULL && err != MR_OK)
        node_forget(node);
    node_call_done(node);
}

static struct mr_slice server_uuid(const struct node *node)
{
    return mr_slice_make((const char *)node->member.data + node->member.len - MR_UUID_TEXT_LEN,
                         MR_UUID_TEXT_LEN);
}

static struct mr_asynq_time time_of_ms(int64_t ms)
{
    return (struct mr_asynq_time){ms / MR_MS_PER_S, (int32_t)(ms % MR_MS_PER_S * MR_NS_PER_MS)};
}

static enum mr_err server_bytes(const struct node *node, struct mr_arena *arena,
                                struct mr_slice *ret_bytes)
{
    struct mr_buf bytes = {0};
    struct mr_asynq_server server = {
        .host = mr_slice_str(node->engine->host),
        .id = server_uuid(node),
        .status = MR_SLICE_LIT("active"),
        .pid = (int32_t)getpid(),
        .concurrency = (int32_t)node->slots,
        .active = (int32_t)node_busy(node),
        .queues = node->queues,
        .queues_n = node->queues_n,
        .strict = node->order == MR_QUEUES_STRICT,
        .started = time_of_ms(node->started_ms),
    };
    enum mr_err err = mr_asynq_server_encode(&server, &bytes);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&bytes), ret_bytes);
    mr_buf_done(&bytes);
    return err;
}

static enum mr_err worker_bytes(const struct node *node, const struct hold *hold,
                                struct mr_arena *arena, struct mr_slice *ret_bytes)
{
    struct mr_buf bytes = {0};
    int64_t started_ms = hold->started_ms, end_ms = hold->deadline_ms;
    if (hold->timeout_ms > 0 && (end_ms == 0 || started_ms + hold->timeout_ms < end_ms))
        end_ms = started_ms + hold->timeout_ms;
    struct mr_asynq_worker worker = {
        .host = mr_slice_str(node->engine->host),
        .server_id = server_uuid(node),
        .task_id = mr_slice_make(hold->id, hold->id_len),
        .task_type = mr_slice_make(hold->type, hold->type_len),
        .queue = hold->queue->name,
        .pid = (int32_t)getpid(),
        .started = time_of_ms(started_ms),
        .deadline = time_of_ms(end_ms),
    };
    enum mr_err err = mr_asynq_worker_encode(&worker, &bytes);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&bytes), ret_bytes);
    mr_buf_done(&bytes);
    return err;
}

static enum mr_err details_bytes(const struct node *node, struct mr_arena *arena,
                                 struct mr_slice *ret_bytes)
{
    struct mr_node_info info;
    node_info(node, &info);
    size_t size = mr_node_size(&info);
    uint8_t *bytes = mr_arena_alloc(arena, size + 1);
    if (bytes == NULL)
        return MR_NOMEM;
    (void)mr_node_write(&info, bytes);
    *ret_bytes = mr_slice_make(bytes, size);
    return MR_OK;
}

/* Key of what is said: "asynq:servers:{host:pid:uuid}" and the like. */
static enum mr_err member_key(const struct node *node, const char *kind, struct mr_arena *arena,
                              struct mr_slice *ret_key)
{
    struct mr_buf text = {0};
    enum mr_err err = mr_buf_printf(&text, "%.*sasynq:%s:{%.*s}", (int)node->engine->prefix.len,
                                    (const char *)node->engine->prefix.data, kind,
                                    (int)node->member.len, (const char *)node->member.data);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), ret_key);
    mr_buf_done(&text);
    return err;
}

/* What runs: as many as there are begun runs among what is in hand. */
static enum mr_err add_workers(struct node *node, struct mr_arena *arena, struct mr_slice *args,
                               size_t *n)
{
    for (uint32_t slot = 0; slot < node->slots; slot++) {
        uint64_t epoch = mr_board_epoch(&node->engine->board, node->first_slot + slot);
        const struct hold *hold = hold_of_epoch(node, epoch);
        if (hold == NULL || hold->queue == NULL)
            continue;
        args[(*n)++] = mr_slice_make(hold->id, hold->id_len);
        MR_TRY(worker_bytes(node, hold, arena, &args[(*n)++]));
    }
    return MR_OK;
}

static struct mr_redis_call *next_call(struct say *say)
{
    struct mr_redis_call *call = &say->calls[say->left++];
    *call = (struct mr_redis_call){
        .answered = answered, .arg = say, .repeatable = true, .urgent = say->node->leaving};
    return call;
}

/* Names what lives for some seconds in a set of such; 0: it is gone. */
static void say_member(struct say *say, struct mr_slice set, struct mr_slice member, int64_t ttl_s)
{
    const struct engine *engine = say->node->engine;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + engine->ahead_ms;
    char score[NUMBER_MAX];
    struct mr_slice args[] = {
        member, number_arg(ttl_s > 0 ? now_ms / MR_MS_PER_S + ttl_s : 0, score), say->sweep};
    mr_redis_eval(engine->redis, next_call(say), SCRIPT_MEMBER, &set, 1, args, 3);
}

/* Our details of it outlive its lease: who looks sees that it is gone, not nothing. */
static int64_t node_ttl_s(const struct node *node)
{
    return (node->lease_ms + MR_MS_PER_S - 1) / MR_MS_PER_S + SERVER_TTL_S;
}

/* The three things about it live in one slot; the sets that name them have their own, so in a Cluster each of
 * them needs a call. */
static enum mr_err say_all(struct say *say, struct mr_arena *arena)
{
    static const char *const kinds[SETS] = {"servers", "workers", "mr:node"};
    static const char *const sets[SETS] = {"servers", "workers", "mr:nodes"};
    struct node *node = say->node;
    struct mr_redis *redis = node->engine->redis;
    struct mr_slice keys[2 * SETS], *set_keys = keys + SETS;
    bool together = mr_redis_kind(redis) != MR_REDIS_CLUSTER;
    bool master = node->role == MR_NODE_MASTER;
    struct mr_slice *args =
        mr_arena_calloc(arena, HEAD_ARGS + 2 * (size_t)node->slots, sizeof *args);
    if (args == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < SETS; i++) {
        MR_TRY(member_key(node, kinds[i], arena, &keys[i]));
        set_keys[i] = global_key(node->engine, sets[i], arena);
        if (set_keys[i].len == 0)
            return MR_NOMEM;
    }
    char ttl[NUMBER_MAX], node_ttl[NUMBER_MAX];
    int64_t ttl_s = node->leaving ? 0 : SERVER_TTL_S;
    int64_t lease_s = node_ttl_s(node);
    size_t n = HEAD_ARGS;
    args[0] = number_arg(ttl_s, ttl);
    args[1] = number_arg(node->leaving ? 0 : lease_s, node_ttl);
    if (!master) /* Asynq's tools know no such thing */
        MR_TRY(server_bytes(node, arena, &args[2]));
    MR_TRY(details_bytes(node, arena, &args[3]));
    say->sweep = mr_slice_str(node->says++ % SWEEP_EVERY == 0 ? "1" : "0");
    args[4] = say->sweep;
    MR_TRY(add_workers(node, arena, args, &n));
    mr_redis_eval(redis, next_call(say), SCRIPT_SAY, keys, together ? 2 * SETS : SETS, args, n);
    for (size_t i = master ? SETS - 1 : 0; i < SETS && !together; i++)
        say_member(say, set_keys[i], keys[i], node->leaving ? 0 : i == 2 ? lease_s : ttl_s);
    return MR_OK;
}

static void details_said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct node *node = call->arg;
    (void)err, (void)reply; /* the next announcement has it too */
    node->details_busy = false;
    node_call_done(node);
}

/* What is said of its slots is in the arena of the beat: it is copied. */
static enum mr_err keep_slots(struct node *node, const struct mr_req_beat *req)
{
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + node->engine->ahead_ms;
    size_t n = req->slots_n < MR_SLOTS_SHOWN ? req->slots_n : MR_SLOTS_SHOWN;
    node->slots_said_n = 0;
    mr_arena_reset(&node->slots_memory);
    struct mr_slot_info *infos = mr_arena_calloc(&node->slots_memory, n, sizeof *infos);
    if (infos == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        infos[i] = req->slots[i];
        infos[i].since_ms = now_ms - infos[i].since_ms;
        MR_TRY(mr_arena_copy(&node->slots_memory, infos[i].id, &infos[i].id));
        MR_TRY(mr_arena_copy(&node->slots_memory, infos[i].type, &infos[i].type));
    }
    node->slots_said = infos;
    node->slots_said_n = n;
    return MR_OK;
}

/* As it was said: an idle node says nothing new with its beats. */
static bool is_known(const struct node *node, const struct mr_req_beat *req)
{
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + node->engine->ahead_ms;
    bool same = req->slots_n == node->slots_said_n;
    for (size_t i = 0; same && i < req->slots_n; i++) {
        const struct mr_slot_info *new = &req->slots[i], *old = &node->slots_said[i];
        int64_t apart_ms = now_ms - new->since_ms - old->since_ms;
        same = new->state == old->state &&mr_slice_equal(new->id, old->id) &&
               apart_ms > -SAME_MS &&apart_ms < SAME_MS;
    }
    return same;
}

void node_say_slots(struct node *node, const struct mr_req_beat *req)
{
    struct engine *engine = node->engine;
    struct mr_slice args[4] = {MR_SLICE_LIT("SETEX")};
    char ttl[NUMBER_MAX];
    if (req->slots_n == 0 || is_known(node, req) || keep_slots(node, req) != MR_OK ||
        node->details_busy || node->leaving)
        return;
    mr_arena_reset(&engine->scratch);
    args[2] = number_arg(node_ttl_s(node), ttl);
    if (member_key(node, "mr:node", &engine->scratch, &args[1]) != MR_OK ||
        details_bytes(node, &engine->scratch, &args[3]) != MR_OK)
        return;
    node->details_busy = true;
    node->calls++;
    node->details = (struct mr_redis_call){
        .answered = details_said, .arg = node, .repeatable = true, .urgent = true};
    mr_redis_send(engine->redis, &node->details, args[1], args, 4);
}

void node_announce(struct node *node)
{
    struct engine *engine = node->engine;
    struct say *say = calloc(1, sizeof *say);
    mr_arena_reset(&engine->scratch);
    node->calls++;
    if (!node->leaving) {
        releases_send(engine);
        losts_ask(engine);
        parts_refresh(engine);
        parts_survey(engine);
        mr_redis_timer_start(engine->redis, &node->again,
                             mr_mono_add_ms(mr_redis_now(engine->redis), AGAIN_S * MR_MS_PER_S));
    }
    if (say != NULL && !node->inner) {
        say->node = node;
        (void)say_all(say, &engine->scratch);
    }
    if (say != NULL && say->left > 0)
        return;
    free(say);
    struct ticket *opener = node->opener;
    node->opener = NULL;
    if (opener != NULL)
        ticket_done(opener, node->inner ? MR_OK : MR_NOMEM);
    node_call_done(node);
}
