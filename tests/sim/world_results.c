/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody who takes results, commits some, gives some back and dies: see world_int.h. */
#include <stdlib.h>
#include <string.h>

#include "sim/world_int.h"

static uint64_t below(struct world *world, uint64_t n)
{
    return mr_rand_below(&world->rand, n);
}

static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static struct wreq *new_req(struct world *world, enum mr_op op)
{
    struct wreq *wreq = world_new_req(world, op);
    wreq->of_master = true;
    wreq->incarnation = world->master.incarnation;
    return wreq;
}

void world_master_lost(struct world *world)
{
    struct master *master = &world->master;
    master->used = master->open = master->taking = false;
    master->incarnation = ++world->incarnations;
}

void world_master_drop(struct world *world)
{
    for (size_t i = 0; i < WORLD_RESULTS; i++) {
        mr_lease_free(world->master.leases[i]);
        world->master.leases[i] = NULL;
    }
    world_master_lost(world);
}

static void open_node(struct world *world)
{
    static char name[MR_NAME_MAX + 1];
    struct wreq *wreq = new_req(world, MR_OP_NODE_OPEN);
    world->master.used = true;
    wreq->queues[0] =
        (struct mr_worker_queue){.name = mr_result_queue(mr_slice_str("outcomes"), name)};
    wreq->u.node_open.role = MR_NODE_MASTER;
    wreq->u.node_open.queues = wreq->queues;
    wreq->u.node_open.queues_n = 1;
    wreq->u.node_open.lease_ms = world->dials.lease_ms;
    wreq->u.node_open.events = (struct mr_node_events){.stop = tell_nobody};
    rig_submit(&world->rig, &wreq->u.req);
}

static void take(struct world *world)
{
    struct wreq *wreq = new_req(world, MR_OP_TAKE);
    wreq->u.take.node = world->master.handle;
    wreq->u.take.max = 1 + below(world, WORLD_RESULTS);
    wreq->u.take.wait_ms = world_chance(world, 50) ? (int64_t)below(world, 2000) : 0;
    world->master.taking = true;
    rig_submit(&world->rig, &wreq->u.req);
}

static void end(struct world *world, size_t i, enum mr_outcome outcome)
{
    struct mr_lease *lease = world->master.leases[i];
    struct wreq *wreq = new_req(world, MR_OP_FINISH);
    world->master.leases[i] = NULL;
    wreq->lease = lease;
    wreq->finishes[0] = (struct mr_finish){.id = lease->task.id,
                                           .epoch = lease->epoch,
                                           .ref = world_chance(world, 50) ? lease->ref : 0,
                                           .outcome = outcome};
    wreq->u.finish = (struct mr_req_finish){.req = wreq->u.req,
                                            .items = wreq->finishes,
                                            .n = 1,
                                            .errs = wreq->errs,
                                            .only_results = world_chance(world, 50)};
    struct result_row *row = oracle_result_known(world->oracle, lease);
    if (outcome == MR_DONE && row)
        oracle_commit_sent(row);
    world_trace(world, "commit_sent", lease->epoch, outcome);
    rig_submit(&world->rig, &wreq->u.req);
}

static void close_node(struct world *world)
{
    struct wreq *wreq = new_req(world, MR_OP_NODE_CLOSE);
    wreq->u.node_close.node = world->master.handle;
    world_master_lost(world);
    rig_submit(&world->rig, &wreq->u.req);
}

void world_results(struct world *world)
{
    struct master *master = &world->master;
    size_t i = below(world, WORLD_RESULTS);
    if (!master->used)
        open_node(world);
    else if (master->open && world_chance(world, 5))
        close_node(world);
    else if (master->leases[i])
        end(world, i, world_chance(world, 85) ? MR_DONE : MR_HAND_BACK);
    else if (master->open && !master->taking)
        take(world);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void taken(struct world *world, struct wreq *wreq)
{
    bool mine = wreq->incarnation == world->master.incarnation;
    if (mine)
        world->master.taking = false;
    if (mine && wreq->u.req.err == MR_CLOSED)
        world_master_lost(world);
    for (struct mr_lease *lease = wreq->u.take.leases, *next; lease; lease = next) {
        next = lease->next;
        if (mr_broker_lease_open(mr_engine_broker(world->rig.engine), lease) != MR_OK)
            oracle_fail(world->oracle, "a result does not open");
        else
            (void)oracle_result(world->oracle, lease);
        size_t i = 0;
        while (i < WORLD_RESULTS && world->master.leases[i])
            i++;
        if (i < WORLD_RESULTS)
            world->master.leases[i] = lease;
        else
            mr_lease_free(lease);
    }
    wreq->u.take.leases = NULL;
}

static void ended(struct world *world, struct wreq *wreq)
{
    enum mr_err err = wreq->u.req.err != MR_OK ? wreq->u.req.err : wreq->errs[0];
    struct result_row *row = oracle_result_known(world->oracle, wreq->lease);
    if (row && wreq->finishes[0].outcome == MR_DONE)
        oracle_committed(world->oracle, row, err);
    if (err == MR_IO || err == MR_CLOSED)
        world->restart = true;
}

void world_master_answered(struct world *world, struct wreq *wreq)
{
    struct master *master = &world->master;
    world_trace(world, "master", wreq->u.req.op, wreq->u.req.err);
    if (wreq->u.req.op == MR_OP_TAKE)
        taken(world, wreq);
    else if (wreq->u.req.op == MR_OP_FINISH)
        ended(world, wreq);
    else if (wreq->u.req.op == MR_OP_NODE_OPEN && wreq->incarnation == master->incarnation) {
        master->used = master->open = wreq->u.req.err == MR_OK;
        master->handle = wreq->u.node_open.node;
    }
}
