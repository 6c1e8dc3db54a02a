/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs over the ends of a folder's engine: they rise whatever happened, and stay by the clock if they can. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

#define HOUR_US (3600LL * 1000 * 1000)

/* The epoch of a hand-out; the task stays where it was. */
static uint64_t hand_out(struct store_rig *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 60000,
                                    .events.stop = store_rig_ignore_stop};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = 60000};
    assert_int_equal(rig_call(&f->rig, &take.req), MR_OK);
    mr_req_done(&take.req);
    assert_non_null(take.leases);
    uint64_t epoch = take.leases->epoch;
    mr_lease_free(take.leases);
    struct mr_req_node_close gone = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    assert_int_equal(rig_call(&f->rig, &gone.req), MR_OK);
    mr_req_done(&gone.req);
    return epoch;
}

/* A task that ran elsewhere, under this epoch; it goes again. */
static void bring(struct store_rig *f, uint64_t epoch)
{
    int64_t now_ms = rig_wall_ms(&f->rig);
    struct mr_task task = {.id = MR_SLICE_LIT("brought"),
                           .queue = MR_SLICE_LIT("default"),
                           .state = MR_PENDING,
                           .created_ms = now_ms,
                           .order_time_ms = now_ms,
                           .epoch = epoch};
    struct mr_task_options options = mr_carried_options(&task);
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
    store_rig_control(f, MR_VERB_DELETE, "brought");
}

static void openings_do_not_run_ahead_of_the_clock(void **state)
{
    struct store_rig *f = *state;
    for (int i = 0; i < 10; i++) {
        store_rig_open(f);
        store_rig_close(f);
    }
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    uint64_t now_us = (uint64_t)f->rig.clock.wall_us, epoch = hand_out(f);
    assert_in_range(epoch, now_us, now_us + 1000000);
}

static void a_store_that_was_closed_goes_on_behind_its_last_epoch(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    uint64_t last = hand_out(f);
    for (int i = 0; i < 3; i++) {
        store_rig_close(f);
        rig_jump(&f->rig, -HOUR_US);
        store_rig_open(f);
        uint64_t epoch = hand_out(f);
        assert_in_range(epoch, last + 1, last + 1000);
        last = epoch;
    }
}

/* What was handed out last need not be on the disk. */
static void a_store_that_was_not_closed_goes_on_behind_its_ceiling(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    store_rig_close(f);
    store_rig_open(f);
    uint64_t last = hand_out(f), ceiling_us = (uint64_t)f->rig.clock.wall_us + HOUR_US / 6;
    rig_kill(&f->rig);
    simfs_crash(f->fs, &f->rig.rand, SIMFS_DROP_ALL);
    rig_jump(&f->rig, -HOUR_US);
    store_rig_open(f);
    uint64_t epoch = hand_out(f);
    assert_true(epoch > last);
    assert_in_range(epoch, ceiling_us - 1000000, ceiling_us + 1000000);
}

static void what_was_brought_is_behind_no_end(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    uint64_t brought = (uint64_t)(f->rig.clock.wall_us + HOUR_US);
    bring(f, brought);
    rig_kill(&f->rig);
    simfs_crash(f->fs, &f->rig.rand, SIMFS_DROP_ALL);
    store_rig_open(f);
    assert_true(hand_out(f) > brought);
    brought += 2 * HOUR_US;
    bring(f, brought);
    store_rig_close(f);
    store_rig_open(f);
    assert_true(hand_out(f) > brought);
}

/* Its record is gone with its segment. */
static void what_was_brought_is_in_a_snapshot(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    uint64_t brought = (uint64_t)(f->rig.clock.wall_us + HOUR_US);
    bring(f, brought);
    store_rig_churn(f, 2);
    rig_kill(&f->rig);
    simfs_crash(f->fs, &f->rig.rand, SIMFS_DROP_ALL);
    store_rig_open(f);
    assert_true(hand_out(f) > brought);
}

/* A segment that is set aside may have had a ceiling. */
static void a_store_that_was_repaired_begins_beyond_the_clock(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    store_rig_close(f);
    f->rig.repair = true;
    store_rig_open(f);
    assert_true(hand_out(f) > (uint64_t)f->rig.clock.wall_us + HOUR_US / 12);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(openings_do_not_run_ahead_of_the_clock),
        TEST(a_store_that_was_closed_goes_on_behind_its_last_epoch),
        TEST(a_store_that_was_not_closed_goes_on_behind_its_ceiling),
        TEST(what_was_brought_is_behind_no_end),
        TEST(what_was_brought_is_in_a_snapshot),
        TEST(a_store_that_was_repaired_begins_beyond_the_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
