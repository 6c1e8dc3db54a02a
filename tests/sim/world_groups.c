/* SPDX-License-Identifier: Apache-2.0 */
/* Those who make one task of a group's: see world_int.h. */
#include <stdio.h>
#include <string.h>

#include "sim/world_int.h"

enum { SET_MS_MAX = 60000 };

static uint64_t below(struct world *world, uint64_t n)
{
    return mr_rand_below(&world->rand, n);
}

void world_gather(struct world *world, const char *queue)
{
    struct wreq *wreq = world_new_req(world, MR_OP_GATHER);
    struct mr_req_gather *req = &wreq->u.gather;
    snprintf(wreq->name, sizeof wreq->name, "%s", queue);
    req->queue = mr_slice_str(wreq->name);
    req->max_size = 1 + (uint32_t)below(world, WORLD_BATCH);
    req->max_delay_ms = world_chance(world, 50) ? (int64_t)below(world, 5000) : 0;
    req->grace_ms = world->healing ? 1 : 1 + (int64_t)below(world, 5000);
    req->wait_ms = world_chance(world, 30) ? (int64_t)below(world, 5000) : 0;
    req->set_ms = 1 + (int64_t)below(world, SET_MS_MAX);
    world->gathering++;
    rig_submit(&world->rig, &wreq->u.req);
}

/* Nobody else holds it, unless the time of that set is over, or its queue went. */
static void check_alone(struct world *world, uint32_t token)
{
    for (size_t s = 0; s < WORLD_SETS; s++) {
        const struct set *set = &world->sets[s];
        bool holds = set->n > 0 && !set->dead && !world->dials.weights[ACT_QUEUE_REMOVE] &&
                     world->rig.clock.mono_ns < set->until_ns;
        for (size_t i = 0; holds && i < set->n; i++)
            if (set->tokens[i] == token)
                oracle_fail(world->oracle, "task %u is in two sets", token);
    }
}

void world_gather_answered(struct world *world, struct wreq *wreq)
{
    const struct mr_req_gather *req = &wreq->u.gather;
    world_trace(world, "gather", req->n, req->req.err);
    world->gathering--;
    if (req->req.err != MR_OK)
        return;
    struct set set = {.n = req->n, .until_ns = wreq->sent_ns + req->set_ms * MR_NS_PER_MS};
    if (req->n == 0 || req->n > req->max_size || req->n > WORLD_BATCH)
        oracle_fail(world->oracle, "a set of %zu", req->n);
    snprintf(set.name, sizeof set.name, "%s", req->set);
    snprintf(set.queue, sizeof set.queue, "%s", wreq->name);
    for (size_t i = 0; i < req->n && !oracle_error(world->oracle); i++) {
        uint32_t token = oracle_token(world->oracle, &req->tasks[i]);
        oracle_check_task_body(world->oracle, &req->tasks[i]);
        if (token == UINT32_MAX)
            return;
        oracle_in_set(world->oracle, token, oracle_version(world->oracle, token));
        check_alone(world, token);
        set.tokens[i] = token;
    }
    for (size_t s = 0; s < WORLD_SETS; s++)
        if (world->sets[s].n == 0) {
            world->sets[s] = set;
            return;
        }
    world->sets[below(world, WORLD_SETS)] = set; /* its time will end the other one */
}

void world_gathered(struct world *world, struct set *set)
{
    struct wreq *wreq = world_new_req(world, MR_OP_GATHERED);
    struct mr_req_gathered *req = &wreq->u.gathered;
    wreq->set = *set;
    req->queue = mr_slice_str(wreq->set.queue);
    req->set = mr_slice_str(wreq->set.name);
    if (world->healing || world_chance(world, 80)) {
        struct oracle_spec spec = {.type = "whole", .payload_len = 8 + (size_t)below(world, 200)};
        memcpy(spec.queue, set->queue, sizeof spec.queue);
        struct oracle_gathered *gathered = &wreq->gathered;
        gathered->n = set->n;
        memcpy(gathered->members, set->tokens, sizeof set->tokens);
        gathered->made = oracle_add(world->oracle, &spec);
        uint8_t *payload = mr_arena_alloc(&wreq->memory, spec.payload_len);
        mr_assert(payload);
        oracle_options(world->oracle, gathered->made, payload, &wreq->tasks[0]);
        wreq->tasks[0].queue = (struct mr_slice){0};
        wreq->tasks[0].type = MR_SLICE_LIT("whole");
        wreq->tasks[0].id = (struct mr_slice){0};
        oracle_gathered_sent(world->oracle, gathered);
        req->task = &wreq->tasks[0];
    }
    *set = (struct set){0};
    rig_submit(&world->rig, &wreq->u.req);
}

void world_gathered_answered(struct world *world, struct wreq *wreq)
{
    const struct mr_req_gathered *req = &wreq->u.gathered;
    const struct set *set = &wreq->set;
    enum mr_err err = req->req.err;
    world_trace(world, "gathered", wreq->gathered.made, (uint64_t)err << 8 | req->result.err);
    bool alive = !set->dead && !world->dials.weights[ACT_QUEUE_REMOVE] &&
                 world->rig.clock.mono_ns < set->until_ns;
    if (err == MR_STALE && alive)
        oracle_fail(world->oracle, "a set is gone before its time");
    if (err == MR_OK && set->dead)
        oracle_fail(world->oracle, "a set is there after the end of its engine");
    if (req->task != NULL)
        oracle_gathered_answered(world->oracle, &wreq->gathered, err, &req->result);
    if (err == MR_IO || err == MR_CLOSED || req->result.err == MR_IO)
        world->restart = true;
}

void world_gather_some(struct world *world)
{
    if (world->gathering < WORLD_SETS)
        world_gather(world, world_queues[below(world, world->dials.queues)]);
}

void world_gathered_some(struct world *world)
{
    struct set *set = &world->sets[below(world, WORLD_SETS)];
    if (set->n > 0)
        world_gathered(world, set);
}
