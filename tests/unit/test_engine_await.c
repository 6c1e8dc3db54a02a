/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the end of a task, where the moment of an answer counts: on virtual time and disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { WAITERS_MAX = 65536, LONG_MS = 3600 * 1000 };

struct waiter {
    struct mr_req_await req;
    unsigned answers;
};

static void answered(struct mr_req *req)
{
    ++((struct waiter *)req->arg)->answers;
}

static void begin_wait(struct store_rig *f, struct waiter *waiter, const char *id, int64_t wait_ms)
{
    *waiter = (struct waiter){.req = {.req = {.op = MR_OP_AWAIT, .done = answered, .arg = waiter},
                                      .id = mr_slice_str(id),
                                      .wait_ms = wait_ms}};
    rig_submit(&f->rig, &waiter->req.req);
    mr_engine_validate(f->rig.engine);
}

static void expect(struct waiter *waiter, enum mr_err err)
{
    assert_int_equal(waiter->answers, 1);
    assert_string_equal(mr_err_name(waiter->req.req.err), mr_err_name(err));
    mr_req_done(&waiter->req.req);
}

static void pass_ms(struct store_rig *f, int64_t ms)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + ms * MR_NS_PER_MS);
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Takes the only pending task on a node of its own, where it begins to run. */
static struct mr_lease *take(struct store_rig *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 1000,
                                    .events = {.stop = on_stop}};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), req.leases), MR_OK);
    mr_broker_begun(mr_engine_broker(f->rig.engine), open.first_slot, req.leases->epoch);
    return req.leases;
}

/* A finish that is in the log and not durable. */
struct finish {
    struct mr_req_finish req;
    struct mr_finish item;
    enum mr_err err;
    bool done;
};

static void finished(struct mr_req *req)
{
    *(bool *)req->arg = true;
}

static void begin_finish(struct store_rig *f, struct finish *finish, const struct mr_lease *lease)
{
    *finish = (struct finish){
        .req = {.req = {.op = MR_OP_FINISH, .done = finished, .arg = &finish->done}, .n = 1},
        .item = {.id = lease->task.id,
                 .epoch = lease->epoch,
                 .ref = lease->ref,
                 .outcome = MR_DONE,
                 .result = MR_SLICE_LIT("the result")}};
    finish->req.items = &finish->item;
    finish->req.errs = &finish->err;
    rig_submit(&f->rig, &finish->req.req);
    assert_false(finish->done);
}

static void an_end_is_told_when_it_is_durable_and_not_before(void **state)
{
    struct store_rig *f = *state;
    struct waiter waiter;
    struct finish finish;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    struct mr_lease *lease = take(f);
    begin_wait(f, &waiter, "t", LONG_MS);
    begin_finish(f, &finish, lease);
    assert_int_equal(waiter.answers, 0);
    pass_ms(f, 1);
    assert_true(finish.done);
    assert_int_equal(waiter.req.task.state, MR_COMPLETED);
    assert_true(mr_slice_equal(waiter.req.task.result, MR_SLICE_LIT("the result")));
    assert_int_equal(waiter.req.task.payload.len, 600);
    assert_int_equal(waiter.req.task.node.len, 0);
    assert_int_equal(waiter.req.task.epoch, lease->epoch);
    expect(&waiter, MR_OK);
    mr_req_done(&finish.req.req);
    mr_lease_free(lease);
}

static void an_end_that_a_crash_takes_back_was_told_to_nobody(void **state)
{
    struct store_rig *f = *state;
    struct waiter waiter;
    struct finish finish;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    struct mr_lease *lease = take(f);
    begin_wait(f, &waiter, "t", LONG_MS);
    begin_finish(f, &finish, lease);
    simfs_stop(f->fs);
    rig_kill(&f->rig);
    expect(&waiter, MR_CLOSED);
    simfs_crash(f->fs, &f->rig.rand, SIMFS_DROP_ALL);
    store_rig_open(f);
    struct mr_req_get get = store_rig_get(f, "t");
    assert_int_equal(get.task.state, MR_PENDING);
    mr_req_done(&get.req);
    mr_req_done(&finish.req.req);
    mr_lease_free(lease);
}

static void a_timeout_is_exact_and_leaves_the_others_waiting(void **state)
{
    struct store_rig *f = *state;
    struct waiter quick, patient;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    begin_wait(f, &quick, "t", 100);
    begin_wait(f, &patient, "t", LONG_MS);
    pass_ms(f, 99);
    assert_int_equal(quick.answers, 0);
    pass_ms(f, 2);
    expect(&quick, MR_TIMEOUT);
    assert_int_equal(patient.answers, 0);
    store_rig_control(f, MR_VERB_CANCEL, "t");
    assert_int_equal(patient.req.task.state, MR_ARCHIVED);
    expect(&patient, MR_OK);
}

static void a_lost_worker_is_no_end_until_the_third_time(void **state)
{
    struct store_rig *f = *state;
    struct waiter waiter;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    begin_wait(f, &waiter, "t", LONG_MS);
    for (int i = 0; i < MR_CRASHES_MAX; i++) {
        assert_int_equal(waiter.answers, 0);
        mr_lease_free(take(f));
        pass_ms(f, 2000);
    }
    assert_int_equal(waiter.req.task.state, MR_ARCHIVED);
    assert_int_equal(waiter.req.task.crashes, MR_CRASHES_MAX);
    expect(&waiter, MR_OK);
}

static void one_that_is_taken_back_is_answered_once(void **state)
{
    struct store_rig *f = *state;
    struct waiter waiting, ending;
    struct finish finish;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    begin_wait(f, &waiting, "t", LONG_MS);
    struct mr_req_unawait unawait = {.req.op = MR_OP_UNAWAIT, .await = &waiting.req};
    assert_int_equal(rig_call(&f->rig, &unawait.req), MR_OK);
    assert_int_equal(rig_call(&f->rig, &unawait.req), MR_OK); /* it has been answered by now */
    expect(&waiting, MR_CANCELLED);
    struct mr_lease *lease = take(f);
    begin_wait(f, &ending, "t", LONG_MS);
    begin_finish(f, &finish, lease);
    unawait.await = &ending.req; /* its end is on the way to the disk */
    assert_int_equal(rig_call(&f->rig, &unawait.req), MR_OK);
    expect(&ending, MR_CANCELLED);
    pass_ms(f, 1);
    assert_int_equal(ending.answers, 1);
    mr_engine_validate(f->rig.engine);
    mr_req_done(&finish.req.req);
    mr_lease_free(lease);
}

static void more_than_the_limit_are_refused_and_the_rest_is_served(void **state)
{
    struct store_rig *f = *state;
    struct waiter *waiters = calloc(WAITERS_MAX, sizeof *waiters);
    assert_non_null(waiters);
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    for (size_t i = 0; i < WAITERS_MAX; i++) {
        waiters[i] = (struct waiter){
            .req = {.req = {.op = MR_OP_AWAIT, .done = answered, .arg = &waiters[i]},
                    .id = MR_SLICE_LIT("t"),
                    .wait_ms = LONG_MS}};
        mr_broker_submit(mr_engine_broker(f->rig.engine), &waiters[i].req.req);
    }
    struct waiter extra;
    begin_wait(f, &extra, "t", LONG_MS);
    expect(&extra, MR_BUSY);
    store_rig_control(f, MR_VERB_DELETE, "t");
    for (size_t i = 0; i < WAITERS_MAX; i++)
        expect(&waiters[i], MR_NOT_FOUND);
    store_rig_enqueue(f, "u");
    begin_wait(f, &extra, "u", 1);
    assert_int_equal(extra.answers, 0);
    pass_ms(f, 2);
    expect(&extra, MR_TIMEOUT);
    free(waiters);
}

static void a_store_that_stops_answers_those_who_wait(void **state)
{
    struct store_rig *f = *state;
    struct waiter before, after;
    struct finish finish;
    store_rig_open(f);
    store_rig_enqueue(f, "t");
    struct mr_lease *lease = take(f);
    begin_wait(f, &before, "t", LONG_MS);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    begin_finish(f, &finish, lease);
    pass_ms(f, 1);
    expect(&before, MR_IO);
    begin_wait(f, &after, "t", LONG_MS); /* it may be done or not */
    pass_ms(f, 1);
    expect(&after, MR_IO);
    mr_req_done(&finish.req.req);
    mr_lease_free(lease);
}

static void the_next_task_in_the_same_place_has_waiters_of_its_own(void **state)
{
    struct store_rig *f = *state;
    struct waiter first, second;
    store_rig_open(f);
    store_rig_enqueue(f, "a");
    begin_wait(f, &first, "a", LONG_MS);
    store_rig_control(f, MR_VERB_DELETE, "a");
    expect(&first, MR_NOT_FOUND);
    store_rig_enqueue(f, "b");
    begin_wait(f, &second, "b", 10);
    pass_ms(f, 20);
    expect(&second, MR_TIMEOUT);
    store_rig_control(f, MR_VERB_DELETE, "b"); /* still marked */
    store_rig_enqueue(f, "c");
    mr_engine_validate(f->rig.engine);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_end_is_told_when_it_is_durable_and_not_before),
        TEST(an_end_that_a_crash_takes_back_was_told_to_nobody),
        TEST(a_timeout_is_exact_and_leaves_the_others_waiting),
        TEST(a_lost_worker_is_no_end_until_the_third_time),
        TEST(one_that_is_taken_back_is_answered_once),
        TEST(more_than_the_limit_are_refused_and_the_rest_is_served),
        TEST(a_store_that_stops_answers_those_who_wait),
        TEST(the_next_task_in_the_same_place_has_waiters_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
