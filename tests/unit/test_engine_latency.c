/* SPDX-License-Identifier: Apache-2.0 */
/* How long tasks waited and ran, on virtual time: from when to when, and how long it is remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { WINDOW_MS = 30000, LEASE_MS = 3600 * 1000 };

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_with_node(struct store_rig *f)
{
    store_rig_open(f);
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = LEASE_MS,
                                    .events = {.stop = on_stop}};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    return open.node;
}

static void pass_us(struct store_rig *f, int64_t us)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + us * MR_NS_PER_US);
}

static void put(struct store_rig *f, const struct mr_task_options *task)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static struct mr_lease *take(struct store_rig *f, uint64_t node)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), req.leases), MR_OK);
    return req.leases;
}

static void finish(struct store_rig *f, struct mr_lease *lease, enum mr_outcome outcome)
{
    enum mr_err err;
    struct mr_finish item = {.id = lease->task.id,
                             .epoch = lease->epoch,
                             .ref = lease->ref,
                             .outcome = outcome,
                             .delay_ms = outcome == MR_FAIL ? 10000 : 0};
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
    mr_lease_free(lease);
}

static struct mr_queue_info info(struct store_rig *f)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("default"), .infos = &info, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info;
}

/* The upper edge of a bucket a quarter wide; times are known to 8 us. */
static void assert_about(uint64_t us, int64_t expected)
{
    if ((int64_t)us < expected - 8 || (int64_t)us > expected + expected / 4 + 8)
        fail_msg("%llu us, expected about %lld", (unsigned long long)us, (long long)expected);
}

static void a_queue_nothing_was_taken_from_has_none(void **state)
{
    struct store_rig *f = *state;
    open_with_node(f);
    put(f, &(struct mr_task_options){.delay_ms = 1000});
    struct mr_queue_info queue = info(f);
    assert_int_equal(queue.wait_p50_us + queue.wait_p99_us, 0);
    assert_int_equal(queue.run_p50_us + queue.run_p99_us, 0);
}

static void a_wait_is_from_the_enqueue_and_a_run_from_the_hand_out(void **state)
{
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    pass_us(f, 777); /* not at the start of a ms */
    put(f, &(struct mr_task_options){0});
    pass_us(f, 300);
    struct mr_lease *lease = take(f, node);
    assert_about(info(f).wait_p50_us, 300);
    assert_int_equal(info(f).run_p50_us, 0);
    pass_us(f, 2345678);
    finish(f, lease, MR_DONE);
    assert_about(info(f).run_p50_us, 2345678);
    assert_about(info(f).run_p99_us, 2345678);
    assert_about(info(f).wait_p99_us, 300);
}

static void a_due_time_and_a_priority_are_no_wait(void **state)
{
    static const struct mr_task_options tasks[] = {
        {.delay_ms = 5000},
        {.priority_s = 3600},
        {.priority_s = -3600},
        {.delay_ms = 5000, .priority_s = 3600},
    };
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        put(f, &tasks[i]);
        pass_us(f, (tasks[i].delay_ms + 40) * MR_US_PER_MS);
        finish(f, take(f, node), MR_DONE);
    }
    assert_about(info(f).wait_p50_us, 40000);
    assert_about(info(f).wait_p99_us, 40000);
}

static void a_retry_waits_from_its_own_time(void **state)
{
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    put(f, &(struct mr_task_options){0});
    finish(f, take(f, node), MR_FAIL);
    pass_us(f, (10000 + 50) * MR_US_PER_MS);
    finish(f, take(f, node), MR_DONE);
    assert_about(info(f).wait_p99_us, 50000);
}

static void what_is_handed_back_did_not_run(void **state)
{
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    put(f, &(struct mr_task_options){0});
    finish(f, take(f, node), MR_HAND_BACK);
    assert_int_equal(info(f).run_p99_us, 0);
}

static void a_clock_that_goes_back_makes_no_run_long(void **state)
{
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    put(f, &(struct mr_task_options){0});
    struct mr_lease *first = take(f, node);
    rig_jump(&f->rig, -3600 * MR_US_PER_MS * MR_MS_PER_S);
    put(f, &(struct mr_task_options){0});
    struct mr_lease *second = take(f, node); /* its epoch is an hour ahead of the clock */
    pass_us(f, 20000);
    finish(f, second, MR_DONE);
    assert_in_range(info(f).run_p99_us, 20000, 26300);
    finish(f, first, MR_DONE);
    assert_in_range(info(f).run_p50_us, 1, 26300);
}

static void it_is_forgotten_after_a_minute(void **state)
{
    struct store_rig *f = *state;
    uint64_t node = open_with_node(f);
    put(f, &(struct mr_task_options){0});
    finish(f, take(f, node), MR_DONE);
    assert_true(info(f).wait_p99_us > 0 && info(f).run_p99_us > 0);
    pass_us(f, WINDOW_MS * MR_US_PER_MS);
    assert_true(info(f).wait_p99_us > 0);
    pass_us(f, WINDOW_MS * MR_US_PER_MS);
    assert_int_equal(info(f).wait_p99_us, 0);
    assert_int_equal(info(f).run_p99_us, 0);
    put(f, &(struct mr_task_options){0});
    finish(f, take(f, node), MR_DONE);
    pass_us(f, 5 * WINDOW_MS * MR_US_PER_MS); /* nobody looked meanwhile */
    assert_int_equal(info(f).run_p99_us, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_queue_nothing_was_taken_from_has_none),
        TEST(a_wait_is_from_the_enqueue_and_a_run_from_the_hand_out),
        TEST(a_due_time_and_a_priority_are_no_wait),
        TEST(a_retry_waits_from_its_own_time),
        TEST(what_is_handed_back_did_not_run),
        TEST(a_clock_that_goes_back_makes_no_run_long),
        TEST(it_is_forgotten_after_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
