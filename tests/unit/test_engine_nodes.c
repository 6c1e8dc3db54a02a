/* SPDX-License-Identifier: Apache-2.0 */
/* When a node is dead for the engine, and when it was the engine itself that could not hear it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { LEASE_MS = 600 };

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason;
    ++*(unsigned *)arg;
}

static struct mr_req_node_open open_node(struct store_rig *f, uint32_t slots, unsigned *lost)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = slots,
                                    .lease_ms = LEASE_MS,
                                    .events = {.stop = on_stop, .arg = lost}};
    (void)rig_call(&f->rig, &open.req);
    mr_req_done(&open.req);
    return open;
}

/* A store with a task "t" that runs on a node; answers the node. */
static uint64_t begin_run(struct store_rig *f, unsigned *lost)
{
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    struct mr_req_node_open open = open_node(f, 1, lost);
    assert_int_equal(open.req.err, MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &take.req), MR_OK);
    mr_req_done(&take.req);
    mr_broker_begun(mr_engine_broker(f->rig.engine), open.first_slot, take.leases->epoch);
    mr_lease_free(take.leases);
    return open.node;
}

static enum mr_err beat(struct store_rig *f, uint64_t node)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = node};
    enum mr_err err = rig_call(&f->rig, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* Time in which nothing of this process runs. When it is over the engine is the first who does. */
static void stand_still(struct store_rig *f, int64_t ms)
{
    f->rig.clock.mono_ns += ms * MR_NS_PER_MS;
    f->rig.clock.wall_us += ms * MR_US_PER_MS;
    mr_engine_turn(f->rig.engine);
}

static void a_stop_of_the_process_about_as_long_as_the_lease_costs_no_run(void **state)
{
    struct store_rig *f = *state;
    unsigned lost = 0;
    uint64_t node = begin_run(f, &lost);
    for (int64_t ms = LEASE_MS - 10; ms < LEASE_MS + 100; ms++) {
        assert_int_equal(beat(f, node), MR_OK);
        stand_still(f, ms);
    }
    assert_int_equal(beat(f, node), MR_OK);
    struct mr_req_get get = store_rig_get(f, "t");
    assert_int_equal(get.task.state, MR_ACTIVE);
    assert_int_equal(get.task.crashes, 0);
    assert_int_equal(lost, 0);
    mr_req_done(&get.req);
}

static void a_node_that_stays_silent_is_dead(void **state)
{
    struct store_rig *f = *state;
    unsigned lost = 0;
    uint64_t node = begin_run(f, &lost);
    rig_run(&f->rig, f->rig.clock.mono_ns + (LEASE_MS + 100) * MR_NS_PER_MS);
    assert_int_equal(lost, 1);
    assert_int_equal(beat(f, node), MR_NOT_FOUND);
    struct mr_req_get get = store_rig_get(f, "t");
    assert_int_equal(get.task.state, MR_PENDING);
    assert_int_equal(get.task.crashes, 1);
    mr_req_done(&get.req);
}

static void expect_node(struct store_rig *f, size_t n, enum mr_node_state state)
{
    struct mr_req_node_list req = {.req.op = MR_OP_NODE_LIST};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(req.n, n);
    if (n > 0)
        assert_int_equal(req.nodes[0].state, state);
    mr_req_done(&req.req);
}

static void a_silent_node_is_suspect_before_it_is_dead(void **state)
{
    struct store_rig *f = *state;
    unsigned lost = 0;
    uint64_t node = begin_run(f, &lost);
    rig_run(&f->rig, f->rig.clock.mono_ns + LEASE_MS * MR_NS_PER_MS);
    expect_node(f, 1, MR_NODE_LIVE);
    rig_run(&f->rig, f->rig.clock.mono_ns + 10 * MR_NS_PER_MS);
    expect_node(f, 1, MR_NODE_SUSPECT);
    assert_int_equal(beat(f, node), MR_OK);
    expect_node(f, 1, MR_NODE_LIVE);
    rig_run(&f->rig, f->rig.clock.mono_ns + (LEASE_MS + 100) * MR_NS_PER_MS);
    expect_node(f, 0, MR_NODE_DEAD);
}

/* Its threads may not know yet, and write that a run begins, or is over. */
static void the_slots_of_a_dead_node_rest_while_there_are_others(void **state)
{
    enum { ALL = 16384 };
    struct store_rig *f = *state;
    unsigned lost = 0;
    begin_run(f, &lost);
    rig_run(&f->rig, f->rig.clock.mono_ns + (LEASE_MS + 100) * MR_NS_PER_MS);
    assert_int_equal(lost, 1);
    struct mr_req_node_open next = open_node(f, 1, &lost);
    assert_int_equal(next.req.err, MR_OK);
    assert_int_equal(next.first_slot, 1);
    for (uint32_t left = ALL - 2; left > 0;) { /* all but that one */
        uint32_t slots = left < MR_SLOTS_MAX ? left : MR_SLOTS_MAX;
        assert_int_equal(open_node(f, slots, &lost).req.err, MR_OK);
        left -= slots;
    }
    struct mr_req_node_open last = open_node(f, 1, &lost);
    assert_int_equal(last.req.err, MR_OK);
    assert_int_equal(last.first_slot, 0);
    assert_int_equal(open_node(f, 1, &lost).req.err, MR_TOO_BIG);
}

/* The task "t" after the death of the process that ran the engine. */
static void expect_crashes(struct store_rig *f, uint32_t crashes)
{
    rig_kill(&f->rig);
    store_rig_open(f);
    struct mr_req_get get = store_rig_get(f, "t");
    assert_int_equal(get.task.state, MR_PENDING);
    assert_int_equal(get.task.crashes, crashes);
    mr_req_done(&get.req);
}

static void a_run_dies_with_the_process_it_is_in(void **state)
{
    struct store_rig *f = *state;
    unsigned lost = 0;
    begin_run(f, &lost);
    expect_crashes(f, 1);
}

static void a_run_elsewhere_outlives_the_process_of_the_engine(void **state)
{
    struct store_rig *f = *state;
    unsigned lost = 0;
    f->rig.nodes_elsewhere = true;
    begin_run(f, &lost);
    expect_crashes(f, 0);
}

static void a_silent_node_elsewhere_is_dead_and_its_run_a_crash(void **state)
{
    struct store_rig *f = *state;
    f->rig.nodes_elsewhere = true;
    a_node_that_stays_silent_is_dead(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_stop_of_the_process_about_as_long_as_the_lease_costs_no_run),
        TEST(a_node_that_stays_silent_is_dead),
        TEST(a_silent_node_is_suspect_before_it_is_dead),
        TEST(the_slots_of_a_dead_node_rest_while_there_are_others),
        TEST(a_run_dies_with_the_process_it_is_in),
        TEST(a_run_elsewhere_outlives_the_process_of_the_engine),
        TEST(a_silent_node_elsewhere_is_dead_and_its_run_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
