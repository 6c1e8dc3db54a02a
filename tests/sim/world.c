/* SPDX-License-Identifier: Apache-2.0 */
/* The world's loop: dials, steps, accidents, and the heal phase at the end. See world.h. */
#include "sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/world_int.h"

enum { HEAL_ROUNDS_MAX = 20000, NESTED_MAX = 3, READ_FAULTS_MAX = 8 };

static uint64_t below(struct world *world, uint64_t n)
{
    return mr_rand_below(&world->rand, n);
}

/* ---- dials ---------------------------------------------------------------------------------- */

/* How heavy each act is when its dial is on, and how often the dial is on, in percent. */
static const struct {
    uint32_t weight, on;
} acts[ACT_COUNT] = {
    [ACT_ENQUEUE] = {40, 100},    [ACT_ENQUEUE_AGAIN] = {6, 60}, [ACT_NODE_OPEN] = {8, 100},
    [ACT_NODE_CLOSE] = {1, 50},   [ACT_NODE_VANISH] = {2, 50},   [ACT_NODE_STALL] = {2, 40},
    [ACT_TAKE] = {40, 100},       [ACT_BEGIN] = {40, 100},       [ACT_FINISH] = {40, 100},
    [ACT_FINISH_LATE] = {6, 60},  [ACT_CONTROL] = {10, 60},      [ACT_PAUSE] = {3, 40},
    [ACT_GATHER] = {10, 60},      [ACT_GATHERED] = {8, 100},     [ACT_LIMIT] = {1, 20},
    [ACT_QUEUE_REMOVE] = {1, 20}, [ACT_GET] = {6, 80},           [ACT_AWAIT] = {10, 60},
    [ACT_BACKUP] = {1, 25},       [ACT_READ_FAULT] = {1, 15},    [ACT_CHECK] = {2, 80},
    [ACT_KILL] = {1, 60},         [ACT_POWER_CUT] = {1, 60},     [ACT_STOP_AT] = {1, 60},
    [ACT_SYNC_FAULT] = {1, 20},   [ACT_WRITE_FAULT] = {1, 15},   [ACT_DISK_FULL] = {1, 25},
    [ACT_DISK_FREE] = {2, 100},   [ACT_JUMP] = {1, 20},          [ACT_RESULTS] = {20, 60},
    [ACT_SPLIT] = {4, 60},        [ACT_RETRY_MODE] = {2, 50},
};

static uint32_t percent_dial(struct world *world)
{
    return world_chance(world, 50) ? 0 : (uint32_t)below(world, 60);
}

static void choose_dials(struct world *world)
{
    struct dials *dials = &world->dials;
    dials->steps = 200 + (uint32_t)below(world, 800);
    for (size_t i = 0; i < ACT_COUNT; i++)
        dials->weights[i] =
            world_chance(world, acts[i].on) ? 1 + (uint32_t)below(world, acts[i].weight * 2) : 0;
    for (size_t i = 0; i <= MR_LATER; i++)
        dials->outcomes[i] = world_chance(world, 50) ? 1 + (uint32_t)below(world, 10) : 0;
    dials->outcomes[MR_DONE] += 5;
    static const int64_t dts_ns[] = {100 * MR_NS_PER_US, 10 * MR_NS_PER_MS, MR_NS_PER_S,
                                     10 * MR_NS_PER_S};
    dials->dt_max_ns = dts_ns[below(world, 4)];
    static const uint32_t bursts[] = {0, 30, 60, 90};
    dials->burst = bursts[below(world, 4)];
    dials->lease_ms = 15000 + (int64_t)below(world, 30000);
    dials->queues = 1 + (uint32_t)below(world, 5);
    dials->batch_max = 1 + (uint32_t)below(world, WORLD_BATCH);
    dials->payload_max = world_chance(world, 50) ? 64 : 2000;
    dials->own_id = percent_dial(world);
    dials->delayed = percent_dial(world);
    dials->prioritised = percent_dial(world);
    dials->unique = percent_dial(world);
    dials->kept = percent_dial(world);
    dials->headed = percent_dial(world);
    dials->grouped = dials->weights[ACT_GATHER] > 0 ? percent_dial(world) : 0;
    dials->placed = dials->weights[ACT_SPLIT] > 0 ? percent_dial(world) : 0;
    dials->dated = world_chance(world, 20) ? percent_dial(world) : 0;
    static const int64_t delays_ns[] = {0, 100 * MR_NS_PER_US, 5 * MR_NS_PER_MS, MR_NS_PER_S};
    world->rig.chore_delay_max_ns = delays_ns[below(world, 4)];
    static const int64_t turns_ns[] = {0, 0, 50 * MR_NS_PER_US, 5 * MR_NS_PER_MS};
    world->rig.turn_delay_max_ns = turns_ns[below(world, 4)];
    if (world_chance(world, 20)) {
        dials->stalls = true;
        world->rig.stall_one_in = 50;
        world->rig.stall_ns = 30 * MR_NS_PER_S;
    }
    world->rig.segment_bytes = world_chance(world, 70) ? 16 * 1024 : 64 * 1024;
    world->rig.validate = world_chance(world, 25);
}

/* ---- accidents ------------------------------------------------------------------------------ */

static void check_store(struct world *world, enum rig_judge how)
{
    uint64_t digest = 0;
    enum mr_err err = rig_judge(&world->rig, world->oracle, how, &digest);
    world_trace(world, "check", err, digest);
    if (err == MR_IO)
        world->restart = true;
}

static enum simfs_policy pick_policy(struct world *world)
{
    return (enum simfs_policy)(SIMFS_DROP_ALL + below(world, SIMFS_POLICY_COUNT - 1));
}

/* The process is gone; the disk becomes what the next one finds. */
static void die(struct world *world, enum simfs_policy policy)
{
    if (!simfs_crashed(world->fs))
        simfs_stop(world->fs);
    world->dying = true;
    rig_kill(&world->rig);
    world_drop(world);
    world->dying = false;
    simfs_crash(world->fs, &world->rand, policy);
    bool all_kept = policy == SIMFS_KEEP_ALL && !world->io_failed;
    oracle_crashed(world->oracle, all_kept ? ORACLE_KILLED : ORACLE_POWER_CUT);
    world_trace(world, "die", policy, 0);
    if (policy == SIMFS_KEEP_ALL)
        world->report->kills++;
    else
        world->report->power_cuts++;
    simfs_heal(world->fs);
    world->io_failed = world->restart = false;
    world->read_faults = 0;
}

static void crash(struct world *world, enum simfs_policy policy)
{
    die(world, policy);
    int nested = world_chance(world, 30) ? NESTED_MAX : 0;
    for (;;) {
        int64_t pause_ns = (int64_t)below(world, 20 * (uint64_t)MR_NS_PER_S);
        world->rig.clock.mono_ns += pause_ns;
        world->rig.clock.wall_us += pause_ns / MR_NS_PER_US;
        if (nested-- > 0)
            simfs_stop_at(world->fs, 1 + below(world, 12));
        bool unreadable = world->dials.weights[ACT_READ_FAULT] && world_chance(world, 30);
        if (unreadable) {
            simfs_fail(world->fs, SIMFS_READ, below(world, 60), 1, MR_IO);
            oracle_crashed(world->oracle, ORACLE_POWER_CUT); /* a board may be lost as well */
        }
        enum mr_err err = rig_open(&world->rig);
        simfs_heal(world->fs);
        oracle_time(world->oracle, rig_wall_ms(&world->rig));
        if (err == MR_OK && !simfs_crashed(world->fs)) {
            simfs_stop_at(world->fs, 0);
            check_store(world, RIG_CHECK);
            if (!world->restart && world->rig.engine)
                return;
        } else if (err != MR_OK && !simfs_crashed(world->fs) && !unreadable) {
            oracle_fail(world->oracle, "the store does not open after %s: %s: %s",
                        simfs_policy_name(policy), mr_err_name(err), world->rig.detail.text);
        }
        if (oracle_error(world->oracle))
            return;
        policy = world_chance(world, 30) ? SIMFS_KEEP_ALL : pick_policy(world);
        die(world, policy);
    }
}

static void see_clock(struct world *world)
{
    oracle_time(world->oracle, rig_wall_ms(&world->rig));
    if (world->rig.clock.wall_us > world->wall_max_us)
        world->wall_max_us = world->rig.clock.wall_us;
}

static void accident(struct world *world, enum act act)
{
    uint64_t used = simfs_used(world->fs);
    uint32_t times;
    world->report->faults++;
    switch (act) {
    case ACT_KILL:
        crash(world, SIMFS_KEEP_ALL);
        return;
    case ACT_POWER_CUT:
        crash(world, pick_policy(world));
        return;
    case ACT_STOP_AT:
        simfs_stop_at(world->fs, 1 + below(world, 40));
        return;
    case ACT_SYNC_FAULT:
        oracle_short_of_space(world->oracle); /* the next segment may be what cannot be made */
        simfs_fail(world->fs, SIMFS_SYNC, below(world, 3), 1, MR_IO);
        world->io_failed = true;
        return;
    case ACT_WRITE_FAULT:
        simfs_fail(world->fs, (enum simfs_op)below(world, SIMFS_POINT_LAST + 1), below(world, 5), 1,
                   world_chance(world, 50) ? MR_IO : MR_DISK_FULL);
        oracle_short_of_space(world->oracle);
        world->io_failed = true;
        return;
    case ACT_READ_FAULT:
        if (world->read_faults++ >= READ_FAULTS_MAX)
            return;
        times = 1 + (uint32_t)below(world, 4); /* one alone may be tried again */
        oracle_reads_fail(world->oracle, times);
        oracle_short_of_space(world->oracle);
        simfs_fail(world->fs, SIMFS_READ, below(world, 20), times, MR_IO);
        return;
    case ACT_DISK_FULL:
        oracle_short_of_space(world->oracle);
        simfs_set_capacity(world->fs, used + below(world, 32 * 1024));
        return;
    case ACT_DISK_FREE:
        simfs_set_capacity(world->fs, UINT64_MAX / 2);
        return;
    case ACT_JUMP:
        see_clock(world);
        oracle_clock_jumped(world->oracle);
        rig_jump(&world->rig, ((int64_t)below(world, 2 * MR_MS_PER_DAY) - MR_MS_PER_DAY) *
                                  MR_US_PER_MS / (world_chance(world, 50) ? 1 : 1000));
        return;
    default:
        return;
    }
}

/* ---- the run -------------------------------------------------------------------------------- */

static enum act pick_act(struct world *world)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ACT_COUNT; i++)
        sum += world->dials.weights[i];
    uint64_t at = below(world, sum);
    size_t i = 0;
    while (at >= world->dials.weights[i])
        at -= world->dials.weights[i++];
    return (enum act)i;
}

static void after_calls(struct world *world)
{
    if (world->rig.spins) {
        oracle_fail(world->oracle, "the engine spins");
        return;
    }
    if (simfs_crashed(world->fs) || !world->rig.engine)
        crash(world, world_chance(world, 40) ? SIMFS_KEEP_ALL : pick_policy(world));
    else if (world->restart && world_chance(world, 20))
        crash(world, world_chance(world, 50) ? SIMFS_KEEP_ALL : pick_policy(world));
    world_reap(world);
}

static void pass_time(struct world *world, int64_t by_ns)
{
    rig_run(&world->rig, world->rig.clock.mono_ns + by_ns);
    see_clock(world);
    after_calls(world);
}

static void step(struct world *world)
{
    uint64_t scale = below(world, 4); /* mostly short waits */
    int64_t dt_ns = (int64_t)below(world, (uint64_t)world->dials.dt_max_ns) >> (scale * 3);
    /* Some requests come right behind one another, before the engine had a turn of its own. */
    if (!world_chance(world, world->dials.burst))
        pass_time(world, dt_ns);
    if (oracle_error(world->oracle))
        return;
    world_beat(world);
    if (!simfs_crashed(world->fs)) {
        enum act act = pick_act(world);
        if (act == ACT_CHECK)
            check_store(world, RIG_CHECK);
        else if (act >= ACT_KILL)
            accident(world, act);
        else
            world_act(world, act);
    }
    after_calls(world);
}

/* ---- heal ----------------------------------------------------------------------------------- */

static bool all_ended(struct world *world)
{
    for (uint32_t i = 0; i < oracle_count(world->oracle); i++)
        if (oracle_may_live(world->oracle, i))
            return false;
    return true;
}

static void work_off(struct world *world, struct node *node)
{
    for (size_t i = 0; i < WORLD_HANDS && node->open; i++) {
        struct hand *hand = &node->hands[i];
        if (!hand->lease)
            continue;
        world_begin(world, node, hand);
        if (hand->begun)
            world_finish(world, node, hand, MR_DONE);
    }
    if (node->open && !node->taking)
        world_take(world, node, WORLD_SLOTS, 1000);
}

static void gather_all(struct world *world)
{
    for (size_t i = 0; i < WORLD_SETS; i++)
        if (world->sets[i].n > 0)
            world_gathered(world, &world->sets[i]);
    for (size_t i = 0; world->gathering == 0 && i < world->dials.queues; i++)
        world_gather(world, world_queues[i]);
}

/* Faults stop, the clock goes on from its latest time, one good worker serves every queue. */
static void heal(struct world *world)
{
    world->healing = true;
    if (world->rig.clock.wall_us < world->wall_max_us)
        rig_jump(&world->rig, world->wall_max_us - world->rig.clock.wall_us);
    simfs_heal(world->fs);
    if (world->restart || world->io_failed)
        crash(world, SIMFS_KEEP_ALL);
    if (oracle_error(world->oracle))
        return;
    world->rig.stall_one_in = 0;
    pass_time(world, 2 * world->rig.stall_ns); /* what is stalled already comes to its end */
    if (oracle_error(world->oracle))
        return;
    struct node *node = &world->nodes[0];
    for (size_t i = 0; i < WORLD_NODES; i++)
        if (world->nodes[i].used)
            world_node_close(world, &world->nodes[i]);
    int rounds = 0;
    for (; rounds < HEAL_ROUNDS_MAX && !oracle_error(world->oracle); rounds++) {
        /* More than once: the engine may find out about the free disk a little later. */
        for (size_t i = 0; rounds % 64 == 0 && i < world->dials.queues; i++)
            world_pause(world, world_queues[i], false);
        if (world->refused && node->used)
            world_node_close(world, node);
        world->refused = false;
        if (!node->used)
            world_node_open(world, node);
        world_beat(world);
        work_off(world, node);
        if (world->dials.grouped > 0 && rounds % 16 == 0)
            gather_all(world);
        pass_time(world, rounds % 64 == 63 ? 3 * MR_NS_PER_S : 50 * MR_NS_PER_MS);
        if (rounds % 64 == 63 && !oracle_error(world->oracle))
            check_store(world, RIG_CHECK);
        if (rounds % 64 == 63 && all_ended(world))
            break;
    }
    if (!oracle_error(world->oracle))
        check_store(world, RIG_CHECK_IDLE);
    world_master_drop(world);
    pass_time(world, 2 * world->dials.lease_ms * MR_NS_PER_MS);
    if (!oracle_error(world->oracle) && rig_judge_results(&world->rig, world->oracle) != MR_OK)
        oracle_fail(world->oracle, "results cannot be taken");
    for (struct mr_link *link = world->reqs.next; link != &world->reqs; link = link->next) {
        const struct wreq *wreq = mr_container(link, struct wreq, link);
        if (wreq->u.req.op == MR_OP_AWAIT && !wreq->answered)
            oracle_fail(world->oracle, "task %u has ended, and who waits for it was not told",
                        wreq->token);
    }
}

/* Enqueues one task more and waits for it, which must succeed. */
static void enqueue_last(struct world *world)
{
    struct oracle_spec spec = {.queue = "last", .type = "task", .payload_len = 900};
    uint32_t token = oracle_add(world->oracle, &spec);
    struct oracle_op op;
    struct mr_task_options options;
    uint8_t payload[900];
    struct mr_enqueue_result result = {0};
    oracle_options(world->oracle, token, payload, &options);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .n = 1, .results = &result};
    oracle_enqueue_sent(world->oracle, token, &op);
    enum mr_err err = rig_call(&world->rig, &req.req);
    oracle_enqueue_answered(world->oracle, &op, err, &result);
    if (err != MR_OK || result.err != MR_OK)
        oracle_fail(world->oracle, "no faults, but an enqueue is answered %s",
                    mr_err_name(err != MR_OK ? err : result.err));
    mr_req_done(&req.req);
}

static struct world *world_new(uint64_t seed, struct world_report *report)
{
    memset(report, 0, sizeof *report);
    struct world *world = calloc(1, sizeof *world);
    mr_assert(world);
    world->report = report;
    world->fs = simfs_new(seed);
    world->oracle = oracle_new();
    mr_rand_seed(&world->rand, seed);
    rig_init(&world->rig, world->fs, seed + 1);
    mr_list_init(&world->reqs);
    choose_dials(world);
    return world;
}

static void world_free(struct world *world)
{
    struct world_report *report = world->report;
    report->points = simfs_points(world->fs);
    report->tasks = oracle_count(world->oracle);
    report->virtual_ms = world->rig.clock.mono_ns / MR_NS_PER_MS;
    if (oracle_error(world->oracle)) {
        report->failed = true;
        snprintf(report->error, sizeof report->error, "%s", oracle_error(world->oracle));
    }
    world->dying = true;
    rig_done(&world->rig);
    world_drop(world);
    world_master_drop(world);
    oracle_free(world->oracle);
    simfs_free(world->fs);
    free(world);
}

static void run_steps(struct world *world)
{
    enum mr_err err = rig_open(&world->rig);
    if (err != MR_OK && world->io_failed)
        crash(world, SIMFS_KEEP_ALL); /* which opens it again */
    else if (err != MR_OK)
        oracle_fail(world->oracle, "a new store does not open: %s: %s", mr_err_name(err),
                    world->rig.detail.text);
    for (uint32_t i = 0; i < world->dials.steps && !oracle_error(world->oracle); i++)
        step(world);
}

void world_run(uint64_t seed, enum world_detail detail, struct world_report *ret_report)
{
    struct world *world = world_new(seed, ret_report);
    world->verbose = detail == WORLD_VERBOSE;
    run_steps(world);
    if (!oracle_error(world->oracle))
        heal(world);
    if (!oracle_error(world->oracle))
        enqueue_last(world);
    world_free(world);
}

static void at_point(struct simfs *fs, enum simfs_op op, void *arg)
{
    struct world *world = arg;
    (void)op;
    oracle_time(world->oracle, rig_wall_ms(&world->rig));
    world->calm->point(fs, world->oracle, &world->rig.clock, world->calm->arg);
}

/* Everything a store can hold, at a pace that fills, empties and rewrites segments. */
static void choose_calm(struct world *world, uint32_t steps)
{
    struct dials *dials = &world->dials;
    for (size_t i = ACT_KILL; i < ACT_COUNT; i++)
        dials->weights[i] = 0;
    dials->weights[ACT_QUEUE_REMOVE] = 0;
    dials->weights[ACT_GATHER] = acts[ACT_GATHER].weight;
    dials->weights[ACT_GATHERED] = acts[ACT_GATHERED].weight;
    dials->grouped = 20;
    dials->weights[ACT_SPLIT] = acts[ACT_SPLIT].weight;
    dials->weights[ACT_RETRY_MODE] = acts[ACT_RETRY_MODE].weight;
    dials->placed = 30;
    dials->weights[ACT_RESULTS] = acts[ACT_RESULTS].weight;
    dials->headed = 100;
    dials->steps = steps;
    dials->dt_max_ns = 20 * MR_NS_PER_MS;
    dials->payload_max = 2000;
    dials->burst = 50;
    world->rig.turn_delay_max_ns = MR_NS_PER_MS;
    dials->stalls = false;
    world->rig.stall_one_in = 0;
    world->rig.segment_bytes = 16 * 1024;
    world->rig.validate = false;
    if (world->rig.chore_delay_max_ns > 5 * MR_NS_PER_MS)
        world->rig.chore_delay_max_ns = 5 * MR_NS_PER_MS;
}

void world_run_calm(const struct world_calm *calm, struct world_report *ret_report)
{
    struct world *world = world_new(calm->seed, ret_report);
    world->calm = calm;
    choose_calm(world, calm->steps);
    if (calm->point)
        simfs_set_hook(world->fs, at_point, world);
    run_steps(world);
    if (calm->ended && !oracle_error(world->oracle)) {
        pass_time(world, 2 * MR_NS_PER_S);
        enqueue_last(world);
        pass_time(world, 10 * MR_NS_PER_MS);
        calm->ended(world->fs, world->oracle, &world->rig.clock, calm->arg);
    }
    world_free(world);
}

static void plan_fault(struct world *world, const struct world_fault *fault)
{
    if (fault->err == MR_OK)
        return;
    oracle_short_of_space(world->oracle);
    if (fault->op == SIMFS_READ)
        oracle_reads_fail(world->oracle, 1);
    world->io_failed = true;
    world->report->faults = 1;
    simfs_fail(world->fs, fault->op, fault->after, 1, fault->err);
}

void world_run_fault(const struct world_fault *fault, struct world_report *ret_report)
{
    struct world *world = world_new(fault->seed, ret_report);
    choose_calm(world, fault->steps);
    plan_fault(world, fault);
    run_steps(world);
    for (enum simfs_op op = 0; op < SIMFS_OP_COUNT; op++)
        ret_report->calls[op] = simfs_count(world->fs, op);
    if (!oracle_error(world->oracle))
        heal(world);
    if (!oracle_error(world->oracle))
        enqueue_last(world);
    world_free(world);
}
