/* SPDX-License-Identifier: Apache-2.0 */
/* The answers to what the actors of the world asked, and how the oracle is told of them. */
#include <stdio.h>

#include "sim/world_int.h"
#include "wire/node.h"

static void note_failure(struct world *world, enum mr_err err)
{
    if (is_doubt(err))
        world->restart = true;
}

static void enqueue_answered(struct world *world, struct wreq *wreq)
{
    for (size_t i = 0; i < wreq->n; i++) {
        enum mr_err err = wreq->u.req.err != MR_OK ? wreq->u.req.err : wreq->results[i].err;
        oracle_enqueue_answered(world->oracle, &wreq->ops[i], wreq->u.req.err, &wreq->results[i]);
        world_trace(world, "enqueue", wreq->ops[i].token, err);
        note_failure(world, err);
    }
}

static void node_open_answered(struct world *world, struct wreq *wreq)
{
    struct node *node = wreq->node;
    world_trace(world, "node_open", (uint64_t)(node - world->nodes), wreq->u.req.err);
    if (wreq->incarnation != node->incarnation)
        return;
    if (wreq->u.req.err != MR_OK) {
        node->used = false;
        return;
    }
    node->open = true;
    node->handle = wreq->u.node_open.node;
    node->first_slot = wreq->u.node_open.first_slot;
}

static void node_close_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "node_close", 0, wreq->u.req.err);
}

void world_bury(struct world *world, struct hand *hand)
{
    struct zombie *zombie = &world->zombies[world->zombies_n % WORLD_ZOMBIES];
    world->zombies_n++;
    *zombie = (struct zombie){.token = hand->token, .epoch = hand->lease->epoch};
    snprintf(zombie->id, sizeof zombie->id, "%.*s", (int)hand->lease->task.id.len,
             (const char *)hand->lease->task.id.data);
    mr_lease_free(hand->lease);
    *hand = (struct hand){0};
}

static struct hand *free_hand(struct node *node)
{
    for (size_t i = 0; i < WORLD_HANDS; i++)
        if (!node->hands[i].lease)
            return &node->hands[i];
    return NULL;
}

/* It is of one of the node's queues, or of an address of one of them. */
static bool is_for(const struct world *world, const struct node *node, struct mr_slice queue)
{
    for (size_t i = 0; i < world->dials.queues; i++) {
        struct mr_slice name = mr_slice_str(world_queues[i]);
        if ((node->served >> i & 1) == 0)
            continue;
        if (mr_slice_equal(queue, name) || (node->catches && mr_is_address(queue, name)))
            return true;
    }
    return false;
}

static void take_answered(struct world *world, struct wreq *wreq)
{
    struct node *node = wreq->node;
    bool mine = wreq->incarnation == node->incarnation;
    if (mine)
        node->taking = false;
    world_trace(world, "take", wreq->u.take.n, wreq->u.req.err);
    if (wreq->u.req.err != MR_OK)
        return;
    size_t n = 0;
    for (struct mr_lease *lease = wreq->u.take.leases, *next; lease; lease = next, n++) {
        next = lease->next;
        if (mr_broker_lease_open(mr_engine_broker(world->rig.engine), lease) != MR_OK)
            oracle_fail(world->oracle, "a lease does not open");
        if (mine && !is_for(world, node, lease->task.queue))
            oracle_fail(world->oracle, "a node got a task of %.*s", (int)lease->task.queue.len,
                        (const char *)lease->task.queue.data);
        struct hand hand = {.lease = lease, .token = oracle_leased(world->oracle, lease)};
        world_trace(world, "lease", hand.token, lease->epoch);
        world->report->leases++;
        struct hand *place = mine ? free_hand(node) : NULL;
        if (place)
            *place = hand;
        else
            world_bury(world, &hand);
        if (oracle_error(world->oracle) && hand.token == UINT32_MAX)
            return;
    }
    if (n != wreq->u.take.n || n == 0)
        oracle_fail(world->oracle, "a take says %zu leases and has %zu", wreq->u.take.n, n);
}

static bool is_open(const struct world *world, uint64_t incarnation)
{
    for (size_t i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].open && world->nodes[i].incarnation == incarnation)
            return true;
    return false;
}

/* A term is one node's, a new one is above all that were, also before a crash; and nobody loses its place while
 * it holds. */
static void check_leader(struct world *world, const struct wreq *wreq)
{
    const struct mr_req_beat *beat = &wreq->u.beat;
    int64_t now_ns = world->rig.clock.mono_ns;
    if (beat->req.err != MR_OK || beat->term == 0)
        return;
    bool same = beat->term == world->leader.term;
    if (beat->term < world->leader.term || (same && wreq->incarnation != world->leader.incarnation))
        oracle_fail(world->oracle, "term %llu was given before", (unsigned long long)beat->term);
    if (!same && now_ns < world->leader.until_ns && is_open(world, world->leader.incarnation) &&
        wreq->incarnation != world->leader.incarnation)
        oracle_fail(world->oracle, "two nodes lead at once");
    world->leader.term = beat->term;
    world->leader.incarnation = wreq->incarnation;
    world->leader.until_ns = now_ns + (beat->leader_ms - 1) * MR_NS_PER_MS;
}

static void beat_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "beat", (uint64_t)(wreq->node - world->nodes), wreq->u.req.err);
    struct node *node = wreq->node;
    check_leader(world, wreq);
    if (wreq->incarnation != node->incarnation)
        return;
    node->beating = false;
    if (wreq->u.req.err == MR_OK)
        node->beat_sent_ns = wreq->sent_ns;
    if (wreq->u.req.err != MR_NOT_FOUND)
        return;
    for (size_t i = 0; i < WORLD_HANDS; i++)
        if (node->hands[i].lease)
            world_bury(world, &node->hands[i]);
    *node = (struct node){.incarnation = ++world->incarnations};
}

static void finish_answered(struct world *world, struct wreq *wreq)
{
    for (size_t i = 0; i < wreq->n; i++) {
        enum mr_err err = wreq->u.req.err != MR_OK ? wreq->u.req.err : wreq->errs[i];
        oracle_finish_answered(world->oracle, &wreq->ops[i], err);
        world_trace(world, "finish", wreq->ops[i].token, err);
        note_failure(world, err);
        world->refused = world->refused || err == MR_DISK_FULL;
    }
}

static void control_answered(struct world *world, struct wreq *wreq)
{
    for (size_t i = 0; i < wreq->n; i++) {
        enum mr_err err = wreq->u.req.err != MR_OK ? wreq->u.req.err : wreq->errs[i];
        oracle_control_answered(world->oracle, &wreq->ops[i], err);
        world_trace(world, "control", wreq->ops[i].token, (uint64_t)wreq->ops[i].verb << 8 | err);
        note_failure(world, err);
    }
}

static void get_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "get", wreq->token, wreq->u.req.err);
    /* When the store has stopped, what was durable can still be read. */
    bool quiet = wreq->readable && wreq->version == oracle_version(world->oracle, wreq->token);
    if (quiet && wreq->u.req.err == MR_IO)
        oracle_fail(world->oracle, "task %u cannot be read after a failed write or sync",
                    wreq->token);
    oracle_saw(world->oracle, wreq->token, wreq->version, wreq->u.req.err, &wreq->u.get.task);
}

static void await_answered(struct world *world, struct wreq *wreq)
{
    enum mr_err err = wreq->u.req.err;
    int64_t waited_ns = world->rig.clock.mono_ns - wreq->sent_ns;
    world_trace(world, "await", wreq->token, err);
    if (err == MR_TIMEOUT && waited_ns < wreq->u.await.wait_ms * MR_NS_PER_MS)
        oracle_fail(world->oracle, "a wait for task %u ends early", wreq->token);
    oracle_awaited(world->oracle, wreq->token, wreq->version, err, &wreq->u.await.task);
}

static void queue_set_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "queue_set", wreq->u.queue_set.value, wreq->u.req.err);
    if (wreq->u.queue_set.setting == MR_QUEUE_PAUSED)
        oracle_pause_answered(world->oracle, wreq->name, wreq->u.queue_set.value, wreq->u.req.err);
    if (wreq->u.queue_set.setting == MR_QUEUE_PARTITIONS)
        oracle_split_answered(world->oracle, wreq->name, (uint32_t)wreq->u.queue_set.value,
                              wreq->u.req.err);
    if (wreq->u.queue_set.setting == MR_QUEUE_RETRY_MODE)
        oracle_mode_answered(world->oracle, wreq->name, (enum mr_retry_mode)wreq->u.queue_set.value,
                             wreq->u.req.err);
    note_failure(world, wreq->u.req.err);
}

static void queue_remove_answered(struct world *world, struct wreq *wreq)
{
    world_trace(world, "queue_remove", 0, wreq->u.req.err);
    oracle_remove_answered(world->oracle, wreq->name, &wreq->ops[0], wreq->u.req.err);
    note_failure(world, wreq->u.req.err);
}

void world_answered(struct mr_req *req)
{
    static void (*const rows[MR_OP_COUNT])(struct world *, struct wreq *) = {
        [MR_OP_ENQUEUE] = enqueue_answered,
        [MR_OP_NODE_OPEN] = node_open_answered,
        [MR_OP_NODE_CLOSE] = node_close_answered,
        [MR_OP_TAKE] = take_answered,
        [MR_OP_BEAT] = beat_answered,
        [MR_OP_FINISH] = finish_answered,
        [MR_OP_CONTROL] = control_answered,
        [MR_OP_GET] = get_answered,
        [MR_OP_AWAIT] = await_answered,
        [MR_OP_QUEUE_SET] = queue_set_answered,
        [MR_OP_QUEUE_REMOVE] = queue_remove_answered,
        [MR_OP_BACKUP] = world_backup_answered,
        [MR_OP_GATHER] = world_gather_answered,
        [MR_OP_GATHERED] = world_gathered_answered,
    };
    struct wreq *wreq = req->arg;
    struct world *world = wreq->world;
    mr_assert(!wreq->answered);
    wreq->answered = true;
    if (world->dying || simfs_crashed(world->fs))
        return; /* nobody hears the dead */
    oracle_time(world->oracle, rig_wall_ms(&world->rig));
    if (wreq->of_master)
        world_master_answered(world, wreq);
    else
        rows[req->op](world, wreq);
}
