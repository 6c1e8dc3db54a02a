/* SPDX-License-Identifier: Apache-2.0 */
/* The actors of the world, and what they ask. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/simfs_int.h"
#include "sim/world_int.h"

const char *const world_queues[8] = {"default", "mail", "mail@b", "default@b",
                                     "low",     "q5",   "q6",     "q7"};

static uint64_t below(struct world *world, uint64_t n)
{
    return mr_rand_below(&world->rand, n);
}

bool world_chance(struct world *world, uint32_t percent)
{
    return below(world, 100) < percent;
}

void world_trace(struct world *world, const char *what, uint64_t a, uint64_t b)
{
    uint64_t numbers[] = {a, b, (uint64_t)world->rig.clock.mono_ns};
    uint64_t hash = world->report->hash;
    for (const char *c = what; *c; c++)
        hash = (hash ^ (uint8_t)*c) * 0x100000001b3ULL;
    for (size_t i = 0; i < 3; i++)
        hash = (hash ^ numbers[i]) * 0x100000001b3ULL ^ hash >> 31;
    world->report->hash = hash;
    if (world->verbose)
        printf("%14.6f %-18s %llu %llu\n", (double)world->rig.clock.mono_ns / 1e9, what,
               (unsigned long long)a, (unsigned long long)b);
}

struct wreq *world_new_req(struct world *world, enum mr_op op)
{
    struct wreq *wreq = sim_alloc(sizeof *wreq);
    memset(wreq, 0, sizeof *wreq);
    wreq->world = world;
    wreq->u.req.op = op;
    wreq->u.req.done = world_answered;
    wreq->u.req.arg = wreq;
    wreq->sent_ns = world->rig.clock.mono_ns;
    mr_list_push_back(&world->reqs, &wreq->link);
    oracle_time(world->oracle, rig_wall_ms(&world->rig));
    return wreq;
}

static void free_req(struct wreq *wreq)
{
    mr_list_remove(&wreq->link);
    mr_req_done(&wreq->u.req);
    mr_lease_free(wreq->lease);
    mr_arena_done(&wreq->memory);
    free(wreq);
}

void world_reap(struct world *world)
{
    for (struct mr_link *link = world->reqs.next, *next; link != &world->reqs; link = next) {
        next = link->next;
        struct wreq *wreq = mr_container(link, struct wreq, link);
        if (wreq->answered)
            free_req(wreq);
    }
}

void world_drop(struct world *world)
{
    oracle_free(world->before);
    world->before = NULL;
    while (!mr_list_empty(&world->reqs))
        free_req(mr_container(world->reqs.next, struct wreq, link));
    world->gathering = 0;
    world_master_lost(world);
    for (size_t i = 0; i < WORLD_SETS; i++)
        world->sets[i].dead = true;
    for (size_t n = 0; n < WORLD_NODES; n++) {
        struct node *node = &world->nodes[n];
        for (size_t i = 0; i < WORLD_HANDS; i++)
            if (node->hands[i].lease && node->hands[i].token != UINT32_MAX)
                world_bury(world, &node->hands[i]);
        *node = (struct node){.incarnation = ++world->incarnations};
    }
}

static void pick_name(struct world *world, struct oracle_spec *spec)
{
    uint32_t token = oracle_count(world->oracle);
    snprintf(spec->queue, sizeof spec->queue, "%s",
             world_queues[below(world, world->dials.queues)]);
    snprintf(spec->type, sizeof spec->type, "type%u", (unsigned)below(world, 3));
    spec->payload_len = (size_t)below(world, world->dials.payload_max);
    if (world_chance(world, world->dials.own_id) || spec->payload_len < 8)
        snprintf(spec->id, sizeof spec->id, "t-%u", token);
}

uint32_t world_new_task(struct world *world)
{
    struct dials *dials = &world->dials;
    struct oracle_spec spec = {0};
    pick_name(world, &spec);
    if (world_chance(world, dials->delayed))
        spec.delay_ms = 1 + (int64_t)below(world, 600000);
    if (world_chance(world, dials->prioritised))
        spec.priority_s = (double)below(world, 4) * 10 - 10;
    if (world_chance(world, dials->kept))
        spec.retention_ms = 1 + (int64_t)below(world, 300000);
    if (world_chance(world, dials->dated))
        spec.deadline_ms = rig_wall_ms(&world->rig) + 1 + (int64_t)below(world, 300000);
    if (world_chance(world, dials->unique)) {
        spec.unique = 1 + (uint32_t)below(world, WORLD_KEYS);
        spec.unique_forever = spec.unique % 2;
        spec.on_duplicate = (enum mr_on_duplicate)below(world, 3);
    }
    if (world_chance(world, dials->headed)) {
        spec.headers = (uint32_t)below(world, ORACLE_HEADER_SETS);
        spec.timeout_ms = (int64_t)below(world, 3) - 1;
    }
    if (world_chance(world, dials->grouped))
        spec.group = 1 + (uint32_t)below(world, ORACLE_GROUPS_MAX);
    if (world_chance(world, dials->placed))
        spec.partition = 1 + (uint32_t)below(world, WORLD_PARTS);
    else if (world_chance(world, dials->placed))
        spec.key = 1 + (uint32_t)below(world, ORACLE_KEYS_MAX);
    static const int32_t retries[] = {0, MR_NO_RETRY, 1, 2, 5};
    spec.max_retry = retries[below(world, 5)];
    return oracle_add(world->oracle, &spec);
}

void world_enqueue(struct world *world, const uint32_t *tokens, size_t n)
{
    struct wreq *wreq = world_new_req(world, MR_OP_ENQUEUE);
    wreq->n = n;
    for (size_t i = 0; i < n; i++) {
        size_t len = oracle_spec(world->oracle, tokens[i])->payload_len;
        uint8_t *payload = mr_arena_alloc(&wreq->memory, len ? len : 1);
        mr_assert(payload);
        struct mr_task_options *task = &wreq->tasks[i];
        oracle_options(world->oracle, tokens[i], payload, task);
        /* The oracle's own text may move while the request is under way. */
        struct mr_slice *texts[] = {&task->queue, &task->type, &task->id};
        for (size_t t = 0; t < sizeof texts / sizeof texts[0]; t++)
            mr_assert(mr_arena_copy(&wreq->memory, *texts[t], texts[t]) == MR_OK);
        oracle_enqueue_sent(world->oracle, tokens[i], &wreq->ops[i]);
    }
    wreq->u.enqueue.tasks = wreq->tasks;
    wreq->u.enqueue.n = n;
    wreq->u.enqueue.results = wreq->results;
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_enqueue(struct world *world)
{
    uint32_t tokens[WORLD_BATCH];
    size_t n = 1 + below(world, world->dials.batch_max);
    if (oracle_count(world->oracle) + n > WORLD_TASKS)
        return;
    for (size_t i = 0; i < n; i++)
        tokens[i] = world_new_task(world);
    world_enqueue(world, tokens, n);
}

/* The same id once more: a producer that did not hear the answer. */
static void act_enqueue_again(struct world *world)
{
    uint32_t count = oracle_count(world->oracle);
    if (count == 0)
        return;
    uint32_t token = (uint32_t)below(world, count);
    if (oracle_spec(world->oracle, token)->id[0])
        world_enqueue(world, &token, 1);
}

static void told_to_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct world *world = arg;
    world_trace(world, "stop", epoch, reason);
    if (reason == MR_STOP_LOST)
        oracle_lease_lost(world->oracle, epoch);
    for (size_t n = 0; reason == MR_STOP_LOST && n < WORLD_NODES; n++)
        for (size_t i = 0; i < WORLD_HANDS; i++) {
            struct hand *hand = &world->nodes[n].hands[i];
            hand->lost = hand->lost || (hand->lease && hand->lease->epoch == epoch);
        }
}

static void told_wanted(void *arg)
{
    world_trace(arg, "wanted", 0, 0);
}

void world_node_open(struct world *world, struct node *node)
{
    struct wreq *wreq = world_new_req(world, MR_OP_NODE_OPEN);
    *node = (struct node){.used = true,
                          .slots = world->healing ? WORLD_SLOTS
                                                  : 1 + (uint32_t)below(world, WORLD_SLOTS),
                          .incarnation = ++world->incarnations,
                          .beat_sent_ns = world->rig.clock.mono_ns};
    wreq->node = node;
    wreq->incarnation = node->incarnation;
    size_t n = 0, start = below(world, world->dials.queues);
    size_t want = world->healing ? world->dials.queues : 1 + below(world, world->dials.queues);
    for (; n < want; n++)
        wreq->queues[n] =
            (struct mr_worker_queue){mr_slice_str(world_queues[(start + n) % world->dials.queues]),
                                     (uint32_t)below(world, 4)};
    struct mr_req_node_open *open = &wreq->u.node_open;
    for (size_t i = 0; i < n; i++)
        node->served |= 1u << (start + i) % world->dials.queues;
    node->catches = node->incarnation % 3 != 0;
    open->fall_ms = node->catches ? 1 + world->dials.lease_ms / 10 : 0;
    open->name = MR_SLICE_LIT("node");
    open->queues = wreq->queues;
    open->queues_n = n;
    open->order = below(world, 2) ? MR_QUEUES_STRICT : MR_QUEUES_WEIGHTED;
    open->slots = node->slots;
    open->lease_ms = world->dials.lease_ms;
    open->leads = node->incarnation % 4 != 0; /* without chance: seeds mean what they meant */
    open->leader_ms = world->dials.lease_ms / 2 + 1;
    open->events = (struct mr_node_events){told_to_stop, told_wanted, world};
    rig_submit(&world->rig, &wreq->u.req);
}

static struct node *pick_node(struct world *world, bool used)
{
    size_t start = below(world, WORLD_NODES);
    for (size_t i = 0; i < WORLD_NODES; i++) {
        struct node *node = &world->nodes[(start + i) % WORLD_NODES];
        bool ready = node->open && node->stalled_until_ns <= world->rig.clock.mono_ns;
        if (used ? ready : !node->used)
            return node;
    }
    return NULL;
}

static void act_node_open(struct world *world)
{
    struct node *node = pick_node(world, false);
    if (node)
        world_node_open(world, node);
}

void world_node_close(struct world *world, struct node *node)
{
    struct wreq *wreq = world_new_req(world, MR_OP_NODE_CLOSE);
    wreq->u.node_close.node = node->handle;
    for (size_t i = 0; i < WORLD_HANDS; i++)
        if (node->hands[i].lease)
            world_bury(world, &node->hands[i]);
    *node = (struct node){.incarnation = ++world->incarnations};
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_node_close(struct world *world)
{
    struct node *node = pick_node(world, true);
    if (node)
        world_node_close(world, node);
}

static void act_node_vanish(struct world *world)
{
    struct node *node = pick_node(world, true);
    if (!node)
        return;
    world_trace(world, "vanish", (uint64_t)(node - world->nodes), 0);
    for (size_t i = 0; i < WORLD_HANDS; i++)
        if (node->hands[i].lease)
            world_bury(world, &node->hands[i]);
    *node = (struct node){.incarnation = ++world->incarnations};
}

static void act_node_stall(struct world *world)
{
    struct node *node = pick_node(world, true);
    if (node)
        node->stalled_until_ns =
            world->rig.clock.mono_ns +
            (int64_t)below(world, (uint64_t)world->dials.lease_ms * 3 * MR_NS_PER_MS);
}

void world_take(struct world *world, struct node *node, size_t max, int64_t wait_ms)
{
    struct wreq *wreq = world_new_req(world, MR_OP_TAKE);
    wreq->node = node;
    wreq->incarnation = node->incarnation;
    wreq->u.take.node = node->handle;
    wreq->u.take.max = max;
    wreq->u.take.wait_ms = wait_ms;
    node->taking = true;
    rig_submit(&world->rig, &wreq->u.req);
}

static size_t free_hands(const struct node *node)
{
    size_t n = 0;
    for (size_t i = 0; i < WORLD_HANDS; i++)
        n += !node->hands[i].lease;
    return n;
}

static void act_take(struct world *world)
{
    struct node *node = pick_node(world, true);
    if (!node || node->taking || free_hands(node) == 0)
        return;
    size_t max = 1 + below(world, free_hands(node));
    world_take(world, node, max, world_chance(world, 50) ? (int64_t)below(world, 5000) : 0);
}

static bool self_fenced(const struct world *world, const struct node *node)
{
    int64_t age_ns = world->rig.clock.mono_ns - node->beat_sent_ns;
    return age_ns * 10 >= world->dials.lease_ms * MR_NS_PER_MS * 9;
}

void world_begin(struct world *world, struct node *node, struct hand *hand)
{
    if (hand->begun || self_fenced(world, node))
        return;
    bool taken[WORLD_SLOTS] = {false};
    for (size_t i = 0; i < WORLD_HANDS; i++)
        if (node->hands[i].lease && node->hands[i].begun)
            taken[node->hands[i].slot] = true;
    for (uint32_t slot = 0; slot < node->slots; slot++) {
        if (taken[slot])
            continue;
        hand->begun = true;
        hand->slot = slot;
        mr_broker_begun(mr_engine_broker(world->rig.engine), node->first_slot + slot,
                        hand->lease->epoch);
        oracle_begun(world->oracle, hand->token, hand->lease->epoch);
        return;
    }
}

static struct hand *pick_hand(struct world *world, struct node *node, bool begun)
{
    size_t start = below(world, WORLD_HANDS);
    for (size_t i = 0; i < WORLD_HANDS; i++) {
        struct hand *hand = &node->hands[(start + i) % WORLD_HANDS];
        if (hand->lease && hand->begun == begun)
            return hand;
    }
    return NULL;
}

static void act_begin(struct world *world)
{
    struct node *node = pick_node(world, true);
    struct hand *hand = node ? pick_hand(world, node, false) : NULL;
    if (hand)
        world_begin(world, node, hand);
}

static struct mr_slice make_note(struct world *world, struct wreq *wreq, uint32_t token,
                                 uint64_t epoch)
{
    size_t most = world_chance(world, 80) ? 2 * ORACLE_NOTE_MIN : ORACLE_NOTE_MAX;
    size_t len = ORACLE_NOTE_MIN + below(world, most - ORACLE_NOTE_MIN);
    char *text = mr_arena_alloc(&wreq->memory, len);
    mr_assert(text);
    oracle_note(token, epoch, len, text);
    return mr_slice_make(text, len);
}

static void add_finish(struct world *world, struct wreq *wreq, struct mr_finish finish,
                       uint32_t token, bool alive)
{
    size_t i = wreq->n++;
    if (finish.outcome == MR_FAIL || finish.outcome == MR_LATER || finish.outcome == MR_HAND_BACK)
        finish.delay_ms = world_chance(world, 50) ? (int64_t)below(world, 120000) : 0;
    if (finish.outcome == MR_FAIL || finish.outcome == MR_FAIL_FOR_GOOD)
        finish.error = make_note(world, wreq, token, finish.epoch);
    if (finish.outcome == MR_DONE && world_chance(world, 50))
        finish.result = make_note(world, wreq, token, finish.epoch);
    memcpy(wreq->ids[i], finish.id.data, finish.id.len);
    finish.id = mr_slice_make(wreq->ids[i], finish.id.len);
    wreq->finishes[i] = finish;
    oracle_finish_sent(world->oracle, token, &wreq->finishes[i], alive, &wreq->ops[i]);
    world_trace(world, "finish_sent", token, finish.outcome);
}

static void send_finish(struct world *world, struct wreq *wreq)
{
    wreq->u.finish.items = wreq->finishes;
    wreq->u.finish.n = wreq->n;
    wreq->u.finish.errs = wreq->errs;
    rig_submit(&world->rig, &wreq->u.req);
}

static void drop_hand(struct world *world, struct node *node, struct hand *hand)
{
    /* Past its lease the slot may be another node's. */
    if (hand->begun && !self_fenced(world, node))
        mr_broker_begun(mr_engine_broker(world->rig.engine), node->first_slot + hand->slot, 0);
    mr_lease_free(hand->lease);
    *hand = (struct hand){0};
}

void world_finish(struct world *world, struct node *node, struct hand *hand,
                  enum mr_outcome outcome)
{
    struct wreq *wreq = world_new_req(world, MR_OP_FINISH);
    struct mr_finish finish = {.id = hand->lease->task.id,
                               .epoch = hand->lease->epoch,
                               .ref = world_chance(world, 90) ? hand->lease->ref : 0,
                               .outcome = outcome};
    bool alive = !world->dials.stalls && !hand->lost && !self_fenced(world, node);
    add_finish(world, wreq, finish, hand->token, alive);
    send_finish(world, wreq);
    if (!simfs_crashed(world->fs))
        drop_hand(world, node, hand);
}

static enum mr_outcome pick_outcome(struct world *world)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= MR_LATER; i++)
        sum += world->dials.outcomes[i];
    uint64_t at = below(world, sum);
    size_t i = 0;
    while (at >= world->dials.outcomes[i])
        at -= world->dials.outcomes[i++];
    return (enum mr_outcome)i;
}

static void act_finish(struct world *world)
{
    struct node *node = pick_node(world, true);
    struct hand *hand = node ? pick_hand(world, node, !world_chance(world, 5)) : NULL;
    if (hand)
        world_finish(world, node, hand, pick_outcome(world));
}

/* A worker that lost its lease long ago and does not know. */
static void act_finish_late(struct world *world)
{
    size_t n = world->zombies_n < WORLD_ZOMBIES ? world->zombies_n : WORLD_ZOMBIES;
    if (n == 0)
        return;
    struct zombie *zombie = &world->zombies[below(world, n)];
    struct wreq *wreq = world_new_req(world, MR_OP_FINISH);
    struct mr_finish finish = {
        .id = mr_slice_str(zombie->id), .epoch = zombie->epoch, .outcome = pick_outcome(world)};
    add_finish(world, wreq, finish, zombie->token, false);
    send_finish(world, wreq);
}

static void act_control(struct world *world)
{
    uint32_t count = oracle_count(world->oracle);
    if (count == 0)
        return;
    struct wreq *wreq = world_new_req(world, MR_OP_CONTROL);
    size_t n = 1 + below(world, 3);
    for (size_t i = 0; i < n; i++) {
        uint32_t token = (uint32_t)below(world, count);
        if (!oracle_id(world->oracle, token)[0])
            continue;
        enum mr_verb verb = (enum mr_verb)below(world, MR_VERB_PRIORITISE + 1);
        if (verb == MR_VERB_ARCHIVE && token % 4 == 1)
            verb = MR_VERB_MOVED;
        size_t at = wreq->n++;
        snprintf(wreq->ids[at], sizeof wreq->ids[at], "%s", oracle_id(world->oracle, token));
        wreq->controls[at] = (struct mr_control){.verb = verb,
                                                 .id = mr_slice_str(wreq->ids[at]),
                                                 .text = MR_SLICE_LIT("there"),
                                                 .value = (double)below(world, 100) - 50};
        oracle_control_sent(world->oracle, token, verb, &wreq->ops[at]);
        world_trace(world, "control_sent", token, verb);
    }
    wreq->u.control.items = wreq->controls;
    wreq->u.control.n = wreq->n;
    wreq->u.control.errs = wreq->errs;
    if (wreq->n)
        rig_submit(&world->rig, &wreq->u.req);
    else
        free_req(wreq);
}

void world_pause(struct world *world, const char *queue, bool paused)
{
    struct wreq *wreq = world_new_req(world, MR_OP_QUEUE_SET);
    snprintf(wreq->name, sizeof wreq->name, "%s", queue);
    wreq->u.queue_set.queue = mr_slice_str(wreq->name);
    wreq->u.queue_set.setting = MR_QUEUE_PAUSED;
    wreq->u.queue_set.value = paused;
    oracle_pause_sent(world->oracle, queue);
    rig_submit(&world->rig, &wreq->u.req);
}

static const char *pick_queue(struct world *world)
{
    return world_queues[below(world, world->dials.queues)];
}

static void act_pause(struct world *world)
{
    world_pause(world, pick_queue(world), world_chance(world, 40));
}

static void act_limit(struct world *world)
{
    struct wreq *wreq = world_new_req(world, MR_OP_QUEUE_SET);
    wreq->u.queue_set.queue = mr_slice_str(pick_queue(world));
    static const struct {
        enum mr_queue_setting setting;
        uint32_t most;
    } kinds[] = {{MR_QUEUE_MAX_LENGTH, 50}, {MR_QUEUE_RATE, 20}, {MR_QUEUE_CONCURRENCY, 5}};
    /* Of the whole queue: what is passed over would be out of order. */
    size_t kind = below(world, sizeof kinds / sizeof *kinds);
    wreq->u.queue_set.setting = kinds[kind].setting;
    wreq->u.queue_set.value = world_chance(world, 50) ? 0 : 1 + below(world, kinds[kind].most);
    wreq->u.queue_set.rate_ms = 10 + (int64_t)below(world, 500);
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_split(struct world *world)
{
    struct wreq *wreq = world_new_req(world, MR_OP_QUEUE_SET);
    snprintf(wreq->name, sizeof wreq->name, "%s", pick_queue(world));
    wreq->u.queue_set.queue = mr_slice_str(wreq->name);
    wreq->u.queue_set.setting = MR_QUEUE_PARTITIONS;
    wreq->u.queue_set.value = 1 + below(world, WORLD_PARTS);
    oracle_split_sent(world->oracle, wreq->name);
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_retry_mode(struct world *world)
{
    struct wreq *wreq = world_new_req(world, MR_OP_QUEUE_SET);
    bool mode = world_chance(world, 70);
    snprintf(wreq->name, sizeof wreq->name, "%s", pick_queue(world));
    wreq->u.queue_set.queue = mr_slice_str(wreq->name);
    wreq->u.queue_set.setting = mode ? MR_QUEUE_RETRY_MODE : MR_QUEUE_RETRY_WAIT;
    wreq->u.queue_set.value = below(world, mode ? MR_RETRY_MODE_COUNT : 2000);
    if (mode)
        oracle_mode_sent(world->oracle, wreq->name);
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_queue_remove(struct world *world)
{
    struct wreq *wreq = world_new_req(world, MR_OP_QUEUE_REMOVE);
    snprintf(wreq->name, sizeof wreq->name, "%s", pick_queue(world));
    wreq->u.queue_remove.queue = mr_slice_str(wreq->name);
    wreq->u.queue_remove.mode =
        world_chance(world, 30) ? MR_QUEUE_REMOVE_FORCE : MR_QUEUE_REMOVE_EMPTY;
    oracle_remove_sent(world->oracle, wreq->name, &wreq->ops[0]);
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_get(struct world *world)
{
    uint32_t count = oracle_count(world->oracle);
    if (count == 0)
        return;
    uint32_t token = (uint32_t)below(world, count);
    if (!oracle_id(world->oracle, token)[0])
        return;
    struct wreq *wreq = world_new_req(world, MR_OP_GET);
    wreq->token = token;
    wreq->version = oracle_version(world->oracle, token);
    wreq->readable = world->restart && oracle_is_settled(world->oracle, token);
    snprintf(wreq->ids[0], sizeof wreq->ids[0], "%s", oracle_id(world->oracle, token));
    wreq->u.get.id = mr_slice_str(wreq->ids[0]);
    rig_submit(&world->rig, &wreq->u.req);
}

static void act_await(struct world *world)
{
    uint32_t count = oracle_count(world->oracle);
    uint32_t token = count > 0 ? (uint32_t)below(world, count) : 0;
    if (count == 0 || !oracle_id(world->oracle, token)[0])
        return;
    struct wreq *wreq = world_new_req(world, MR_OP_AWAIT);
    wreq->token = token;
    wreq->version = oracle_version(world->oracle, token);
    snprintf(wreq->ids[0], sizeof wreq->ids[0], "%s", oracle_id(world->oracle, token));
    wreq->u.await.id = mr_slice_str(wreq->ids[0]);
    wreq->u.await.wait_ms = world_chance(world, 30) ? (int64_t)below(world, 5000) : MR_MS_PER_DAY;
    rig_submit(&world->rig, &wreq->u.req);
}

void world_beat(struct world *world)
{
    for (size_t i = 0; i < WORLD_NODES; i++) {
        struct node *node = &world->nodes[i];
        int64_t now_ns = world->rig.clock.mono_ns;
        bool due = (now_ns - node->beat_sent_ns) * 4 >= world->dials.lease_ms * MR_NS_PER_MS;
        if (!node->open || node->beating || node->stalled_until_ns > now_ns || !due)
            continue;
        struct wreq *wreq = world_new_req(world, MR_OP_BEAT);
        wreq->node = node;
        wreq->incarnation = node->incarnation;
        wreq->u.beat.node = node->handle;
        node->beating = true;
        rig_submit(&world->rig, &wreq->u.req);
        if (simfs_crashed(world->fs))
            return;
    }
}

void world_act(struct world *world, enum act act)
{
    static void (*const rows[ACT_COUNT])(struct world *) = {
        [ACT_ENQUEUE] = act_enqueue,
        [ACT_ENQUEUE_AGAIN] = act_enqueue_again,
        [ACT_NODE_OPEN] = act_node_open,
        [ACT_NODE_CLOSE] = act_node_close,
        [ACT_NODE_VANISH] = act_node_vanish,
        [ACT_NODE_STALL] = act_node_stall,
        [ACT_TAKE] = act_take,
        [ACT_BEGIN] = act_begin,
        [ACT_FINISH] = act_finish,
        [ACT_FINISH_LATE] = act_finish_late,
        [ACT_CONTROL] = act_control,
        [ACT_RESULTS] = world_results,
        [ACT_GATHER] = world_gather_some,
        [ACT_GATHERED] = world_gathered_some,
        [ACT_PAUSE] = act_pause,
        [ACT_LIMIT] = act_limit,
        [ACT_SPLIT] = act_split,
        [ACT_RETRY_MODE] = act_retry_mode,
        [ACT_QUEUE_REMOVE] = act_queue_remove,
        [ACT_GET] = act_get,
        [ACT_AWAIT] = act_await,
        [ACT_BACKUP] = world_backup,
    };
    if (rows[act])
        rows[act](world);
}
