/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: who takes tasks, and what is in their hands. A node lives while it beats. When it goes, closed or dead, what it
 * holds is given back as soon as the calls that are under way for it are answered, since one of them may
 * bring it more.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"
#include "broker/result.h"
#include "wire/node.h"

enum {
    AWAY_MS = 50, /* a timer so late means that the loop itself did not run */
    INDEX_MASK = NODES_MAX - 1,
};

/* ---- in hand -------------------------------------------------------------------------------- */

static uint64_t ref_of(const struct node *node, uint32_t index)
{
    return (node->handle & INDEX_MASK) << 32 | (index + 1);
}

static uint64_t epoch_hash(uint64_t epoch)
{
    uint64_t hash = epoch * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 32;
}

static uint64_t hold_hash(uint32_t index, void *arg)
{
    const struct node *node = arg;
    return epoch_hash(node->holds[index].epoch);
}

static bool hold_equal(uint32_t index, const void *key, void *arg)
{
    const struct node *node = arg;
    return node->holds[index].epoch == *(const uint64_t *)key;
}

static const struct mr_map_ops hold_map_ops = {.hash = hold_hash, .equal = hold_equal};

static bool hold_room(struct node *node)
{
    if (node->holds_free != 0 || node->holds_n < node->holds_cap)
        return true;
    uint32_t cap = node->holds_cap != 0 ? node->holds_cap * 2 : 32;
    struct hold *holds = realloc(node->holds, cap * sizeof *holds);
    if (holds == NULL)
        return false;
    node->holds = holds;
    node->holds_cap = cap;
    return true;
}

uint64_t hold_add(struct node *node, struct rqueue *queue, const struct taken *taken)
{
    const struct mr_task *task = &taken->task;
    if (!hold_room(node))
        return 0;
    bool reused = node->holds_free != 0;
    uint32_t index = reused ? node->holds_free - 1 : node->holds_n;
    struct hold *hold = &node->holds[index];
    uint32_t next_free = reused ? hold->next_free : 0;
    *hold = (struct hold){
        .queue = queue,
        .epoch = task->epoch,
        .plain = taken->plain,
        .kept = task->retention_ms > 0,
        .id_len = (uint8_t)task->id.len,
        .type_len = (uint8_t)(task->type.len <= MR_NAME_MAX ? task->type.len : 0),
        .started_ms = task->started_ms,
        .timeout_ms = task->timeout_ms,
        .deadline_ms = task->deadline_ms,
    };
    memcpy(hold->id, task->id.data, hold->id_len);
    memcpy(hold->type, task->type.data, hold->type_len);
    if (mr_map_insert(node->by_epoch, epoch_hash(hold->epoch), index) != MR_OK) {
        *hold = (struct hold){.next_free = next_free};
        return 0;
    }
    node->holds_free = next_free;
    node->holds_n += !reused;
    node->in_hand++;
    return ref_of(node, index);
}

struct hold *hold_find(struct engine *engine, uint64_t ref, uint64_t epoch, struct node **ret_node)
{
    uint64_t index = (uint32_t)ref;
    struct node *node = ref >> 32 < NODES_MAX ? engine->by_index[ref >> 32] : NULL;
    if (node == NULL || index == 0 || index > node->holds_n || epoch == 0 ||
        node->holds[index - 1].epoch != epoch)
        return NULL;
    *ret_node = node;
    return &node->holds[index - 1];
}

struct hold *hold_of_epoch(struct node *node, uint64_t epoch)
{
    uint32_t index = mr_map_find(node->by_epoch, epoch_hash(epoch), &epoch);
    return index != MR_MAP_NONE ? &node->holds[index] : NULL;
}

void hold_remove(struct node *node, struct hold *hold)
{
    uint32_t index = (uint32_t)(hold - node->holds);
    mr_map_remove(node->by_epoch, epoch_hash(hold->epoch), index);
    *hold = (struct hold){.next_free = node->holds_free};
    node->holds_free = index + 1;
    node->in_hand--;
}

void hold_lost(struct node *node, struct hold *hold)
{
    uint64_t epoch = hold->epoch;
    hold_remove(node, hold);
    node->events.stop(epoch, MR_STOP_LOST, node->events.arg);
    takes_slot_free(node);
}

void hold_cancelled(struct node *node, struct hold *hold)
{
    if (!hold->cancelled)
        node->events.stop(hold->epoch, MR_STOP_CANCEL, node->events.arg);
    hold->cancelled = true;
}

/* Asks for cancelling come without an epoch. */
static void nodes_cancelled(struct engine *engine, struct mr_slice id)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        for (uint32_t i = 0; i < node->holds_n; i++) {
            struct hold *hold = &node->holds[i];
            if (hold->epoch != 0 && mr_slice_equal(id, mr_slice_make(hold->id, hold->id_len)))
                hold_cancelled(node, hold);
        }
    }
}

/* ---- finding -------------------------------------------------------------------------------- */

struct node *node_get(struct engine *engine, uint64_t handle)
{
    struct node *node = engine->by_index[handle & INDEX_MASK];
    return node != NULL && node->handle == handle && !node->leaving ? node : NULL;
}

static uint32_t free_index(struct engine *engine)
{
    for (uint32_t tried = 0; tried < NODES_MAX; tried++) {
        uint32_t index = ++engine->last_number & INDEX_MASK;
        if (engine->by_index[index] == NULL)
            return index;
    }
    return NODES_MAX;
}

/* ---- a node goes ---------------------------------------------------------------------------- */

static void node_free(struct node *node)
{
    struct engine *engine = node->engine;
    engine->by_index[node->handle & INDEX_MASK] = NULL;
    mr_list_remove(&node->link);
    mr_map_free(node->by_epoch);
    free(node->holds);
    free(node->listens);
    mr_arena_done(&node->slots_memory);
    mr_arena_done(&node->memory);
    free(node);
}

/* Nothing is under way for it any more. */
static void node_end(struct node *node)
{
    struct engine *engine = node->engine;
    struct ticket *closer = node->closer;
    begun_give(node);
    mr_redis_timer_stop(engine->redis, &node->again);
    node_free(node);
    if (closer != NULL)
        ticket_done(closer, MR_OK);
    engine_quiet(engine);
}

/* Gives back what it holds, and says that it is gone. */
static void node_release(struct node *node)
{
    node->released = true;
    node->calls++;
    node_give_back(node);
    node_announce(node);
    leader_vote(node, NULL);
    node_call_done(node);
}

void node_call_done(struct node *node)
{
    if (--node->calls > 0 || !node->leaving)
        return;
    if (!node->released)
        node_release(node);
    else
        node_end(node);
}

static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void node_leave(struct node *node)
{
    if (node->leaving)
        return;
    node->leaving = true;
    mr_redis_timer_stop(node->engine->redis, &node->lease);
    mr_redis_timer_stop(node->engine->redis, &node->again);
    node->calls++;
    takes_answer(node, MR_CLOSED);
    finishes_leave(node->engine);
    for (size_t i = 0; i < node->listens_n; i++) {
        if (node->listens[i]->fallen)
            watch_stop_fallen(node->listens[i]->queue);
        else
            watch_stop(node->listens[i]->queue);
    }
    if (node->role == MR_NODE_MASTER)
        results_stop(node->engine);
    node_call_done(node);
}

static void lease_runs(struct node *node, int64_t ms)
{
    struct mr_redis *redis = node->engine->redis;
    node->dead_at = mr_mono_add_ms(mr_redis_now(redis), ms);
    mr_redis_timer_start(redis, &node->lease, node->dead_at);
}

void node_heard(struct node *node)
{
    node->last_beat_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    node->doubted = false;
    lease_runs(node, node->lease_ms);
}

/* It was silent too long: whatever it thinks, it is dead. Unless it was us who did not run: then nobody
 * could have been heard, and it gets its time again. Where that was too short to be noticed, a beat that was due
 * is about to come: so it is waited for once more. */
static void died(struct mr_timer *timer, void *arg)
{
    struct node *node = mr_container(timer, struct node, lease);
    int64_t late_ns = mr_redis_now(node->engine->redis).ns - node->dead_at.ns;
    (void)arg;
    if (late_ns > AWAY_MS * MR_NS_PER_MS || !node->doubted) {
        node->doubted = late_ns <= AWAY_MS * MR_NS_PER_MS;
        lease_runs(node, node->doubted ? AWAY_MS : node->lease_ms);
        return;
    }
    for (uint32_t i = 0; i < node->holds_n; i++)
        if (node->holds[i].epoch != 0)
            node->events.stop(node->holds[i].epoch, MR_STOP_LOST, node->events.arg);
    node->events = (struct mr_node_events){.stop = tell_nobody};
    node_leave(node);
}

void node_close_begin(struct ticket *ticket)
{
    const struct mr_req_node_close *req = mr_container(ticket->req, struct mr_req_node_close, req);
    struct node *node = node_get(ticket->engine, req->node);
    if (node == NULL) {
        ticket_done(ticket, MR_NOT_FOUND);
        return;
    }
    node->closer = ticket;
    node->events = (struct mr_node_events){.stop = tell_nobody};
    node_leave(node);
}

void nodes_close(struct engine *engine)
{
    struct mr_link *next;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = next) {
        struct node *node = mr_container(link, struct node, link);
        next = link->next;
        node->events = (struct mr_node_events){.stop = tell_nobody};
        if (node->lasts && node->in_hand > 0 && !node->leaving) {
            node_announce(node); /* it says last what it holds, and stays so */
            node->released = true;
        }
        node_leave(node);
    }
}

void node_forget(struct node *node)
{
    node->events = (struct mr_node_events){.stop = tell_nobody};
    node_leave(node);
}

void nodes_done(struct engine *engine)
{
    while (!mr_list_empty(&engine->nodes))
        node_free(mr_container(engine->nodes.next, struct node, link));
}

/* ---- a node comes --------------------------------------------------------------------------- */

enum mr_err node_open_prepare(struct ticket *ticket)
{
    const struct mr_req_node_open *req = mr_container(ticket->req, struct mr_req_node_open, req);
    return mr_node_open_check(req);
}

static void say_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    node_announce(mr_container(timer, struct node, again));
}

/* Names are copied; the handle and the slots are given. */
static enum mr_err node_fill(struct node *node, const struct mr_req_node_open *req)
{
    struct mr_arena *memory = &node->memory;
    node->queues = mr_arena_calloc(memory, req->queues_n, sizeof *node->queues);
    node->served = mr_arena_calloc(memory, req->queues_n, sizeof *node->served);
    node->types = mr_arena_calloc(memory, req->types_n, sizeof *node->types);
    if (node->queues == NULL || node->served == NULL || (node->types == NULL && req->types_n > 0))
        return MR_NOMEM;
    MR_TRY(mr_arena_copy(memory, req->name, &node->name));
    for (size_t i = 0; i < req->types_n; i++)
        MR_TRY(mr_arena_copy(memory, req->types[i], &node->types[i]));
    for (size_t i = 0; i < req->queues_n; i++) {
        uint32_t weight = req->queues[i].weight != 0 ? req->queues[i].weight : 1;
        struct mr_slice name = req->queues[i].name, topic = mr_result_topic(name);
        MR_TRY(mr_arena_copy(memory, topic.len > 0 ? topic : mr_queue_shown(name),
                             &node->queues[i].name));
        node->queues[i].weight = weight;
        node->served[i] = (struct served){.queue = rqueue_of(node->engine, req->queues[i].name),
                                          .owned = UINT64_MAX,
                                          .weight = weight};
        if (node->served[i].queue == NULL)
            return MR_NOMEM;
        node->served[i].base = &node->served[mr_address_base(req->queues, req->queues_n, i)];
    }
    return node_name(node);
}

static enum mr_err node_new(struct engine *engine, const struct mr_req_node_open *req,
                            struct node **ret_node)
{
    uint32_t index = free_index(engine);
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL || index == NODES_MAX) {
        free(node);
        return node == NULL ? MR_NOMEM : MR_TOO_BIG;
    }
    *node = (struct node){
        .engine = engine,
        .handle = mr_rand_next(&engine->rand) << 12 | index,
        .role = req->role,
        .lasts = req->lasts,
        .inner = req->inner,
        .types_n = req->types_n,
        .queues_n = req->queues_n,
        .order = req->order,
        .slots = req->slots,
        .lease_ms = req->lease_ms,
        .leader_ms = req->leads ? req->leader_ms : 0,
        .fall_ms = req->fall_ms,
        .incarnation = mr_rand_next(&engine->rand) >> 1,
        .started_ms = mr_wall_ms(mr_wall_now(mr_clock_system())),
        .events = req->events,
    };
    mr_list_init(&node->link);
    enum mr_err err = mr_map_new(&hold_map_ops, node, &node->by_epoch);
    if (err == MR_OK)
        err = node_fill(node, req);
    if (err == MR_OK)
        err = mr_board_take(&engine->board, node->slots, &node->first_slot);
    if (err != MR_OK) {
        mr_map_free(node->by_epoch);
        mr_arena_done(&node->memory);
        free(node);
        return err;
    }
    mr_timer_init(&node->lease, died);
    mr_timer_init(&node->again, say_again);
    engine->by_index[index] = node;
    mr_list_push_back(&engine->nodes, &node->link);
    if (node->role == MR_NODE_MASTER)
        results_start(engine);
    *ret_node = node;
    return MR_OK;
}

static void cancel_told(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    if (bytes.data != NULL)
        nodes_cancelled(channel->arg, bytes);
    else
        nodes_beat(channel->arg); /* the answers say what was missed */
}

/* Asks for cancelling, of all queues, from the first node on. */
static enum mr_err cancels_hear(struct engine *engine)
{
    struct mr_arena arena = {0};
    if (engine->cancels_on)
        return MR_OK;
    struct mr_slice name = global_key(engine, "cancel", &arena);
    engine->cancels_name = name.len > 0 ? strndup(name.data, name.len) : NULL;
    mr_arena_done(&arena);
    if (engine->cancels_name == NULL)
        return MR_NOMEM;
    engine->cancels = (struct mr_redis_channel){
        .name = mr_slice_str(engine->cancels_name), .message = cancel_told, .arg = engine};
    mr_redis_subscribe(engine->redis, &engine->cancels);
    engine->cancels_on = true;
    return MR_OK;
}

static struct listen *listen_add(struct node *node, struct rqueue *part, struct served *served)
{
    if (node->listens_n == node->listens_cap) {
        size_t cap = node->listens_cap != 0 ? 2 * node->listens_cap : 8;
        struct listen **listens = realloc(node->listens, cap * sizeof(*listens));
        if (listens == NULL)
            return NULL;
        node->listens = listens;
        node->listens_cap = cap;
    }
    struct listen *listen = mr_arena_calloc(&node->memory, 1, sizeof *listen);
    if (listen == NULL)
        return NULL;
    *listen = (struct listen){.queue = part, .served = served};
    node->listens[node->listens_n++] = listen;
    return listen;
}

void node_catches(struct node *node, struct rqueue *queue, struct served *served)
{
    for (size_t i = 0; i < node->listens_n; i++)
        if (node->listens[i]->queue == queue)
            return;
    struct listen *listen = listen_add(node, queue, served);
    if (listen == NULL)
        return; /* the next time */
    listen->fallen = true;
    watch_start_fallen(queue);
}

/* It listens to it as to what is its own: so others wake it by messages, and it needs no lane. */
static bool listen_start(struct node *node, struct rqueue *part, struct served *served)
{
    bool address = served->base != served;
    if (listen_add(node, part, served) == NULL)
        return false;
    served->width++;
    part->lane_less = address && (part->takers == 0 || part->lane_less);
    watch_start(part);
    return true;
}

/* Listens to all partitions that its queues have now. */
static void node_widen(struct node *node)
{
    for (size_t i = 0; i < node->queues_n && !node->leaving; i++) {
        struct served *served = &node->served[i];
        const struct rqueue *topic = served->queue->topic.len > 0 ? served->queue : NULL;
        while (served->width < (topic != NULL ? topic->places_n : served->queue->widest)) {
            struct rqueue *part = topic != NULL ? topic->places[served->width]
                                                : rqueue_part(served->queue, served->width + 1);
            if (!listen_start(node, part, served))
                return; /* the next time */
        }
    }
}

void nodes_widen(struct engine *engine)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        node_widen(mr_container(link, struct node, link));
    takes_serve(engine);
}

static void open_node(struct ticket *ticket)
{
    struct mr_req_node_open *req = mr_container(ticket->req, struct mr_req_node_open, req);
    struct node *node;
    enum mr_err err = cancels_hear(ticket->engine);
    if (err == MR_OK)
        err = node_new(ticket->engine, req, &node);
    if (err != MR_OK) {
        ticket_done(ticket, err);
        return;
    }
    node_widen(node);
    if (node->fall_ms > 0)
        falls_joined(ticket->engine);
    node_heard(node);
    req->node = node->handle;
    req->first_slot = node->first_slot;
    node->opener = ticket;
    leader_vote(node, NULL); /* first: whoever is seen, of it is known how long it lives */
    node_announce(node);
}

/* It is known which partitions its queues have. */
static void parts_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct ticket *ticket = call->arg;
    err = parts_answered(ticket->engine, err, reply);
    if (err != MR_OK || ticket->engine->closing)
        ticket_done(ticket, err != MR_OK ? err : MR_CLOSED);
    else if (mr_container(ticket->req, struct mr_req_node_open, req)->role == MR_NODE_MASTER)
        results_open(ticket, open_node);
    else
        open_node(ticket);
}

void node_open_begin(struct ticket *ticket)
{
    struct mr_redis_call *call = mr_arena_calloc(&ticket->req->arena, 1, sizeof *call);
    if (call == NULL || !ticket->engine->up) {
        ticket_done(ticket, call == NULL ? MR_NOMEM : MR_UNAVAILABLE);
        return;
    }
    *call = (struct mr_redis_call){.answered = parts_came, .arg = ticket, .urgent = true};
    parts_send(ticket->engine, call);
}
