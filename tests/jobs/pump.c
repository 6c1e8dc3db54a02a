/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting: as much as the workers can have, in the order of the jobs, by one of several servers. */
#include <stdio.h>

#include "jobs/child.h"
#include "jobs/rig.h"

enum { WINDOW = 4, PERIOD_MS = 1000 };

static uint64_t depth(struct rig *rig)
{
    return rig_tasks(rig, "default", MR_STATE_NONE);
}

/* ---- a broker between the service and the rig's ---------------------------------------------- */

/* It does not do so many enqueues, and counts how often the workers were looked for, until now and until the last
 * enqueue. */
struct bad_broker {
    struct mr_broker broker;
    struct mr_broker *inner;
    enum mr_err err;
    _Atomic int times;
    _Atomic unsigned looks, looks_before;
};

static void bad_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct bad_broker *bad = mr_container(broker, struct bad_broker, broker);
    if (req->op == MR_OP_NODE_LIST)
        atomic_fetch_add(&bad->looks, 1);
    if (req->op == MR_OP_ENQUEUE)
        atomic_store(&bad->looks_before, atomic_load(&bad->looks));
    if (req->op == MR_OP_ENQUEUE && atomic_fetch_sub(&bad->times, 1) > 0)
        mr_req_answer(req, bad->err);
    else
        mr_broker_submit(bad->inner, req);
}

static enum mr_err bad_open(struct mr_broker *broker, struct mr_lease *lease)
{
    return mr_broker_lease_open(mr_container(broker, struct bad_broker, broker)->inner, lease);
}

static const struct mr_broker_ops bad_ops = {.submit = bad_submit, .lease_open = bad_open};

/* Behind it from now on: the service. */
static void serve_behind(struct rig *rig, struct bad_broker *bad)
{
    bad->broker.ops = &bad_ops;
    bad->inner = rig->broker;
    rig->broker = &bad->broker;
    rig_serve(rig, 0);
    rig->broker = bad->inner;
}

/* ---- 101 ------------------------------------------------------------------------------------- */

static uint64_t live_slots(struct rig *rig)
{
    struct mr_req_node_list list = {.req.op = MR_OP_NODE_LIST};
    uint64_t slots = 0;
    assert_int_equal(mr_broker_call(rig->broker, &list.req), MR_OK);
    for (size_t i = 0; i < list.n; i++)
        slots += list.nodes[i].role == MR_NODE_WORKER ? list.nodes[i].slots : 0;
    mr_req_done(&list.req);
    return slots;
}

/* A worker is there: its window is filled by the next look for workers, which comes within a period. By the clock of a busy
 * machine that would be hard to tell. */
static void check_filled(struct rig *rig, struct bad_broker *bad, uint64_t slots)
{
    RIG_UNTIL(live_slots(rig) == slots);
    unsigned before = atomic_load(&bad->looks);
    RIG_UNTIL(depth(rig) == slots * WINDOW);
    unsigned looks = atomic_load(&bad->looks_before);
    if (looks > before + 1)
        fail_msg("it took %u periods", looks - before);
}

static void test_101_nothing_is_submitted_while_nobody_works(void **state)
{
    struct rig *rig = rig_make();
    static struct bad_broker bad; /* outlives a test that fails */
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.window = WINDOW;
    rig->settings.look_ms = PERIOD_MS;
    rig->settings.lease_ms = 4 * PERIOD_MS;
    rig->settings.renew_ms = PERIOD_MS;
    serve_behind(rig, &bad);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 100, id);
    RIG_UNTIL(atomic_load(&bad.looks) >= 3);
    assert_int_equal(depth(rig), 0);
    assert_int_equal(rig_state(rig, id), MR_JOB_CREATED);
    /* The first worker comes, and one more. */
    rig_work(rig, 0, 2);
    check_filled(rig, &bad, 2);
    rig_work(rig, 1, 3);
    check_filled(rig, &bad, 5);
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) == 5 * WINDOW);
    assert_int_equal(rig_state(rig, id), MR_JOB_RUNNING);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    rig_check_result(rig, id, "hold %zu\n", 100);
    rig_free(rig);
}

static void test_101_the_queue_is_never_deeper_than_the_window_and_not_empty(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    uint64_t deepest = 0;
    size_t n = rig_full() ? 1000 : 80, empty = 0, looks = 0;
    (void)state;
    rig->settings.window = WINDOW;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(), "sleep 40 %zu\n", n, id);
    RIG_UNTIL(depth(rig) > 0);
    for (;;) {
        uint64_t deep = depth(rig);
        if (rig_ended(rig, id) + 4 * WINDOW >= n)
            break; /* the rest fits the window */
        deepest = deep > deepest ? deep : deepest;
        empty += deep == 0;
        looks++;
    }
    if (deepest == 0 || deepest > 4 * WINDOW)
        fail_msg("the queue was %llu deep", (unsigned long long)deepest);
    assert_true(empty * 10 < looks + 10); /* a look may come between two tasks */
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    assert_int_equal(rig->runs, n);
    rig_free(rig);
}

/* ---- 102 ------------------------------------------------------------------------------------- */

static void test_102_two_servers_submit_each_task_once(void **state)
{
    struct rig *rig = rig_make();
    char ids[4][RIG_ID_MAX];
    size_t n = rig_full() ? 5000 : 500;
    struct mr_job_health health[2];
    (void)state;
    rig_serve(rig, 0);
    rig_serve(rig, 1);
    rig_work(rig, 0, 4);
    for (size_t i = 0; i < 4; i++)
        rig_load(rig, RIG_JOB(), "part %zu\n", n, ids[i]);
    for (size_t i = 0; i < 4; i++) {
        RIG_UNTIL(rig_state(rig, ids[i]) == MR_JOB_SUCCEEDED);
        rig_check_result(rig, ids[i], "part %zu\n", n);
    }
    for (size_t i = 0; i < 2; i++)
        rig_health(rig, i, &health[i]);
    assert_int_equal(health[0].submitted + health[1].submitted, 4 * n);
    assert_int_equal(health[0].parts_done + health[1].parts_done, 4 * n);
    assert_int_equal(rig->runs, 4 * n);
    rig_free(rig);
}

static void test_102_when_the_server_that_submits_stops_the_other_goes_on(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t n = rig_full() ? 5000 : 400;
    struct mr_job_health health[2];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "sleep 2 %zu\n", n, id);
    RIG_UNTIL(rig_ended(rig, id) > n / 10);
    rig_serve(rig, 1);
    rig_unserve(rig, 0);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    rig_health(rig, 1, &health[1]);
    assert_true(health[1].submitted > 0 && health[1].queues <= 1);
    assert_int_equal(rig->runs, n);
    rig_check_result(rig, id, "sleep 2 %zu\n", n);
    rig_free(rig);
}

/* The one that submits is a process, and is killed. An embedded broker is of one process: see the next one, and 105. */
static void test_102_when_the_server_that_submits_is_killed_the_other_goes_on(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t n = rig_full() ? 5000 : 400;
    struct child child = {
        .broker_url = rig->broker_url, .store_url = rig->store_url, .serves = true};
    (void)state;
    child_start(&child);
    struct mr_job_service_options looks = {
        .broker = rig->broker, .store = rig->store, .looks = true};
    assert_int_equal(mr_job_service_open(&looks, &rig->services[0], NULL), MR_OK);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "sleep 2 %zu\n", n, id);
    RIG_UNTIL(rig_ended(rig, id) > n / 10);
    child_kill(&child);
    rig_serve(rig, 1);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    assert_int_equal(rig->runs, n);
    rig_check_result(rig, id, "sleep 2 %zu\n", n);
    rig_free(rig);
}

/* Worse than one that is dead: it hangs with a batch in its hands, and goes on with that when another one has done all. */
static void test_102_when_the_server_that_submits_hangs_the_other_goes_on(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t n = rig_full() ? 5000 : 400;
    struct mr_job_health health[2];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "sleep 2 %zu\n", n, id);
    RIG_UNTIL(rig_ended(rig, id) > n / 10);
    rig_freeze(rig, 0);
    rig_serve(rig, 1);
    rig_await_end(rig, id);
    rig_health(rig, 1, &health[1]);
    assert_true(health[1].submitted > 0);
    rig_thaw(rig, 0);
    RIG_UNTIL((rig_health(rig, 0, &health[0]), health[0].queues == 0));
    rig_unserve(rig, 0);
    rig_check_result(rig, id, "sleep 2 %zu\n", n);
    assert_int_equal(rig_tasks(rig, "default", MR_STATE_NONE), 0);
    assert_int_equal(rig->runs, n);
    rig_free(rig);
}

/* ---- 106 ------------------------------------------------------------------------------------- */

static void test_106_no_part_fails_by_what_is_wrong_with_the_broker(void **state)
{
    static const enum mr_err errs[] = {MR_FAILED, MR_DENIED, MR_UNAVAILABLE, MR_DISK_FULL};
    struct rig *rig = rig_make();
    static struct bad_broker bad;
    (void)state;
    serve_behind(rig, &bad);
    rig_work(rig, 0, 2);
    for (size_t i = 0; i < sizeof errs / sizeof *errs; i++) {
        char id[RIG_ID_MAX];
        bad.err = errs[i];
        atomic_store(&bad.times, 2);
        rig_load(rig, RIG_JOB(), "part %zu\n", 20, id);
        rig_await_end(rig, id);
        rig_check_result(rig, id, "part %zu\n", 20);
    }
    rig_free(rig);
}

/* ---- the order of jobs ----------------------------------------------------------------------- */

static void test_115_a_job_ahead_goes_before_those_that_were_there(void **state)
{
    struct rig *rig = rig_make();
    char normal[RIG_ID_MAX], vip[RIG_ID_MAX], gate[RIG_ID_MAX];
    (void)state;
    rig->settings.window = 2;
    rig->settings.segment_parts = 10;
    rig_serve(rig, 0);
    /* One slot, and it is busy. */
    rig_work(rig, 0, 1);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 1, gate);
    RIG_UNTIL(atomic_load(&rig->running) == 1);
    rig_load(rig, RIG_JOB(), "normal %zu\n", 20, normal);
    rig_load(rig, RIG_JOB(.priority_s = 3600), "vip %zu\n", 20, vip);
    assert_true(rig_job(rig, vip).first_segment > rig_job(rig, normal).first_segment);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, vip) == MR_JOB_SUCCEEDED);
    RIG_UNTIL(rig_state(rig, normal) == MR_JOB_SUCCEEDED);
    /* No more than the window of normal ones, which had been submitted, went before the last one ahead. */
    const char *last_vip = strstr(rig->order, "vip 19\n");
    size_t before = 0;
    for (const char *at = rig->order; (at = strstr(at, "normal")) != NULL && at < last_vip; at++)
        before++;
    assert_true(before <= 2);
    rig_check_result(rig, normal, "normal %zu\n", 20);
    rig_free(rig);
}

int jobs_pump(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_101_nothing_is_submitted_while_nobody_works),
        cmocka_unit_test(test_101_the_queue_is_never_deeper_than_the_window_and_not_empty),
        cmocka_unit_test(test_102_two_servers_submit_each_task_once),
        cmocka_unit_test(test_102_when_the_server_that_submits_stops_the_other_goes_on),
        cmocka_unit_test(test_102_when_the_server_that_submits_hangs_the_other_goes_on),
        cmocka_unit_test(test_106_no_part_fails_by_what_is_wrong_with_the_broker),
        cmocka_unit_test(test_115_a_job_ahead_goes_before_those_that_were_there),
    };
    struct CMUnitTest of_shared[] = {
        cmocka_unit_test(test_102_when_the_server_that_submits_is_killed_the_other_goes_on),
    };
    int failed = rig_is_shared() ? JOBS_RUN("jobs: pump, shared", of_shared) : 0;
    return failed + JOBS_RUN("jobs: pump", tests);
}
