/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redis is gone for a moment, under what was asked of an engine: producers hear of it at once, and nothing is
 * lost with a connection. How runs fare that go on meanwhile is test_redis_outage's.
 */
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/redis_scene.h"

static void producers_are_refused_at_once_while_redis_is_away(void **state)
{
    struct scene *scene = *state;
    PUT_OK(scene, .id = MR_SLICE_LIT("before"));
    redis_rig_kill(server());
    mr_mono since = mr_mono_now(mr_clock_system());
    while (put(scene, (struct mr_task_options){.payload = MR_SLICE_LIT("x")}) == MR_OK)
        assert_true(elapsed_ms(since) < WAIT_MS);
    int64_t best_ms = WAIT_MS;
    for (int i = 0; i < 5; i++) {
        since = mr_mono_now(mr_clock_system());
        assert_int_equal(put(scene, (struct mr_task_options){.id = MR_SLICE_LIT("given")}),
                         MR_UNAVAILABLE);
        best_ms = elapsed_ms(since) < best_ms ? elapsed_ms(since) : best_ms;
    }
    assert_true(best_ms < 100);
    redis_rig_start(server());
    since = mr_mono_now(mr_clock_system());
    while (put(scene, (struct mr_task_options){.payload = MR_SLICE_LIT("x")}) != MR_OK)
        assert_true(elapsed_ms(since) < WAIT_MS);
}

static void finished(struct mr_req *req)
{
    mr_event_set(req->arg);
}

/* An end of a run on its way. */
struct end {
    struct mr_event done;
    enum mr_err err;
    struct mr_finish item;
    struct mr_req_finish req;
};

static void end_begin(struct scene *scene, struct end *end, const struct mr_lease *lease)
{
    end->item = (struct mr_finish){.id = lease->task.id,
                                   .epoch = lease->epoch,
                                   .ref = lease->ref,
                                   .outcome = MR_DONE,
                                   .result = MR_SLICE_LIT("result")};
    end->req =
        (struct mr_req_finish){.req = {.op = MR_OP_FINISH, .done = finished, .arg = &end->done},
                               .items = &end->item,
                               .n = 1,
                               .errs = &end->err};
    mr_event_init(&end->done);
    mr_broker_submit(scene->broker, &end->req.req);
}

static void end_is_accepted(struct end *end, struct mr_lease *lease)
{
    assert_true(mr_event_wait(&end->done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(end->req.req.err, MR_OK);
    assert_int_equal(end->err, MR_OK);
    mr_req_done(&end->req.req);
    mr_lease_free(lease);
    assert_string_equal(RIG(server(), "HGET", Q "t:a", "result"), "result");
    assert_string_equal(RIG(server(), "GET", Q "processed"), "1");
}

static void an_end_of_a_run_is_kept_until_redis_is_back(void **state)
{
    struct scene *scene = *state;
    struct end end;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .retention_ms = 60000);
    struct mr_lease *lease = take_id(scene, "a");
    redis_rig_kill(server());
    end_begin(scene, &end, lease);
    assert_false(mr_event_wait(&end.done, 300 * MR_NS_PER_MS));
    redis_rig_start(server());
    end_is_accepted(&end, lease);
}

/* It was sent, and whether it was carried out is not known. */
static void an_end_without_an_answer_is_sent_again(void **state)
{
    struct scene *scene = *state;
    struct end end;
    open_node(scene);
    PUT_OK(scene, .id = MR_SLICE_LIT("a"), .retention_ms = 60000);
    struct mr_lease *lease = take_id(scene, "a");
    redis_rig_freeze(server());
    end_begin(scene, &end, lease);
    assert_false(mr_event_wait(&end.done, 50 * MR_NS_PER_MS));
    redis_rig_kill(server());
    redis_rig_start(server());
    end_is_accepted(&end, lease);
}

static void who_waits_for_a_task_goes_on_when_redis_is_back(void **state)
{
    struct scene *scene = *state;
    open_node(scene);
    struct mr_event done;
    struct mr_req_take req = {.req = {.op = MR_OP_TAKE, .done = finished, .arg = &done},
                              .node = scene->node,
                              .max = 1,
                              .wait_ms = WAIT_MS};
    mr_event_init(&done);
    mr_broker_submit(scene->broker, &req.req);
    assert_false(mr_event_wait(&done, 50 * MR_NS_PER_MS));
    redis_rig_kill(server());
    assert_false(mr_event_wait(&done, 300 * MR_NS_PER_MS));
    redis_rig_start(server());
    push_as_others("a");
    assert_true(mr_event_wait(&done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(req.req.err, MR_OK);
    mr_lease_free(req.leases);
    mr_req_done(&req.req);
}
int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(producers_are_refused_at_once_while_redis_is_away),
        TEST(an_end_of_a_run_is_kept_until_redis_is_back),
        TEST(an_end_without_an_answer_is_sent_again),
        TEST(who_waits_for_a_task_goes_on_when_redis_is_back),
    };
    return run_scenes("redis: gone", tests, sizeof tests / sizeof *tests);
}
