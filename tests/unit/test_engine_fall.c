/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of addresses in the embedded engine when their workers are gone, on virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { FALL_MS = 60 * 1000 };
#define HOUR_MS (3600 * 1000LL)

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct store_rig *f, const char *address)
{
    struct mr_worker_queue queues[] = {{mr_slice_str(address), 1}, {MR_SLICE_LIT("q"), 1}};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = queues,
                                    .queues_n = 2,
                                    .slots = 4,
                                    .lease_ms = 100 * HOUR_MS,
                                    .fall_ms = FALL_MS,
                                    .events = {.stop = on_stop}};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    return open.node;
}

static void put(struct store_rig *f, const char *queue)
{
    struct mr_enqueue_result result;
    struct mr_task_options task = {.queue = mr_slice_str(queue)};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* One task, waited for; it is done. Answers how long that took. */
static int64_t work_one(struct store_rig *f, uint64_t node)
{
    int64_t before_ns = f->rig.clock.mono_ns;
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = 10 * FALL_MS};
    assert_int_equal(rig_call(&f->rig, &take.req), MR_OK);
    struct mr_lease *lease = take.leases;
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
    enum mr_err err;
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&f->rig, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_req_done(&take.req);
    mr_lease_free(lease);
    return (f->rig.clock.mono_ns - before_ns) / MR_NS_PER_MS;
}

static bool is_there(struct store_rig *f, const char *queue)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = mr_slice_str(queue), .infos = &info, .max = 1};
    enum mr_err err = rig_call(&f->rig, &req.req);
    mr_req_done(&req.req);
    return err == MR_OK;
}

static void pause_queue(struct store_rig *f, const char *queue)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = MR_QUEUE_PAUSED,
                                   .value = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void hours_pass(struct store_rig *f, int64_t hours)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + hours * HOUR_MS * MR_NS_PER_MS);
}

static void a_task_falls_when_its_time_is_over_and_at_most_a_second_later(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    uint64_t node = open_node(f, "q@n");
    put(f, "q@gone");
    assert_in_range(work_one(f, node), FALL_MS, FALL_MS + 1001);
}

static void what_fell_while_nobody_waited_is_taken_at_once(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    uint64_t node = open_node(f, "q@n");
    put(f, "q@gone");
    rig_run(&f->rig, f->rig.clock.mono_ns + FALL_MS * MR_NS_PER_MS);
    assert_in_range(work_one(f, node), 0, 10);
}

static void what_fell_is_before_what_came_later(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    uint64_t node = open_node(f, "q@n");
    put(f, "q@gone");
    rig_run(&f->rig, f->rig.clock.mono_ns + FALL_MS * MR_NS_PER_MS);
    put(f, "q");
    (void)work_one(f, node);
    assert_true(is_there(f, "q@gone"));
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("q"), .infos = &info, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(info.counts[MR_PENDING], 1);
}

static void an_address_that_nobody_needs_goes_and_others_stay(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    uint64_t node = open_node(f, "q@n");
    static const char *const queues[] = {"q", "q@n", "q@gone", "q@paused", "other@gone"};
    for (size_t i = 0; i < 5; i++)
        put(f, queues[i]);
    for (size_t i = 0; i < 4; i++) /* nobody serves "other" */
        (void)work_one(f, node);
    pause_queue(f, "q@paused");
    hours_pass(f, 1);
    assert_true(is_there(f, "q@gone")); /* it ran today */
    hours_pass(f, 25);
    assert_false(is_there(f, "q@gone"));
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(is_there(f, queues[i]), i != 2);
    put(f, "q@gone"); /* as if it had never been there */
    assert_in_range(work_one(f, node), FALL_MS, FALL_MS + 1001);
    store_rig_close(f);
    store_rig_open(f);
    for (size_t i = 0; i < 5; i++)
        assert_true(is_there(f, queues[i]));
}

static void an_address_with_tasks_that_are_kept_stays(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    (void)open_node(f, "q@n");
    struct mr_enqueue_result result;
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q@gone"), .delay_ms = 40 * HOUR_MS};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    hours_pass(f, 30);
    assert_true(is_there(f, "q@gone"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_task_falls_when_its_time_is_over_and_at_most_a_second_later),
        TEST(what_fell_while_nobody_waited_is_taken_at_once),
        TEST(what_fell_is_before_what_came_later),
        TEST(an_address_that_nobody_needs_goes_and_others_stay),
        TEST(an_address_with_tasks_that_are_kept_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
