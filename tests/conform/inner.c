/* SPDX-License-Identifier: Apache-2.0 */
/* Inner queues: the system's own, which people do not see. A broker at a server has none for its callers. */
#include "broker/hidden.h"
#include "conform/conform.h"

static const struct mr_slice timers = MR_SLICE_LIT(MR_TIMERS_QUEUE);

static enum mr_err put(struct conform *t, const struct mr_task_options *task, bool inner)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = task, .n = 1, .results = &result, .inner = inner};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : result.err;
}

static uint64_t count(struct conform *t, enum mr_state state)
{
    struct mr_queue_info info;
    assert_err(conform_queue_get(t, MR_TIMERS_QUEUE, &info), MR_OK);
    assert_string_equal(info.name, "timers");
    return info.counts[state];
}

static void put_inner(struct conform *t, const char *id)
{
    struct mr_task_options task = {.queue = timers,
                                   .id = mr_slice_str(id),
                                   .payload = mr_slice_str(id),
                                   .max_retry = MR_RETRY_MAX};
    assert_err(put(t, &task, true), MR_OK);
}

static void only_requests_that_say_so_name_an_inner_queue(void **state)
{
    struct conform *t = *state;
    struct mr_task_options task = {.queue = timers}, other = {.queue = MR_SLICE_LIT("default")};
    struct mr_worker_queue queue = {.name = timers};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 1000,
                                    .events = {.stop = conform_node_stop}};
    assert_err(put(t, &task, false), MR_INVALID);
    assert_err(put(t, &other, true), MR_INVALID);
    assert_err(mr_broker_call(t->broker, &open.req), MR_INVALID);
    mr_req_done(&open.req);
    assert_err(conform_queue_set(t, MR_TIMERS_QUEUE, MR_QUEUE_MAX_LENGTH, 1), MR_INVALID);
}

static void nobody_sees_it_who_does_not_ask_for_it_by_name_or_id(void **state)
{
    struct conform *t = *state;
    size_t n;
    struct mr_queue_info infos[4];
    struct mr_req_queue_list queues = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
    struct conform_node *node =
        NODE(t, .name = "applier", .queues = MR_TIMERS_QUEUE, .inner = true);
    put_inner(t, "a");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("seen"));
    assert_err(mr_broker_call(t->broker, &queues.req), MR_OK);
    mr_req_done(&queues.req);
    assert_int_equal(queues.n, 1);
    assert_string_equal(infos[0].name, "default");
    struct conform_page all = PAGE(t, .limit = 10);
    assert_int_equal(all.n, 1);
    assert_slice(all.tasks[0].id, "seen");
    (void)conform_list_nodes(t, &n);
    assert_int_equal(n, 0);
    struct conform_page its = PAGE(t, .queue = timers, .limit = 10);
    assert_err(its.err, MR_OK);
    assert_int_equal(its.n, 1);
    assert_slice(its.tasks[0].id, "a");
    assert_int_equal(conform_state(t, "a"), MR_PENDING);
    assert_int_equal(count(t, MR_PENDING), 1);
    assert_err(conform_node_close(t, node), MR_OK);
}

static void its_tasks_are_handed_out_and_end_like_any_others(void **state)
{
    struct conform *t = *state;
    struct conform_node *other = NODE(t, .name = "worker");
    struct conform_node *node =
        NODE(t, .name = "applier", .queues = MR_TIMERS_QUEUE, .inner = true);
    put_inner(t, "done");
    struct mr_lease *lease = conform_take_id(t, node, "done");
    assert_slice(lease->task.payload, "done");
    conform_take_none(t, other);
    assert_err(conform_beat(t, node), MR_OK);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_null(conform_get(t, "done"));
    put_inner(t, "again");
    FINISH_OK(t, conform_take_id(t, node, "again"), .outcome = MR_FAIL, .delay_ms = 100,
              .error = MR_SLICE_LIT("UNAVAILABLE: not now"));
    assert_int_equal(conform_state(t, "again"), MR_RETRY);
    lease = conform_take_one(t, node);
    assert_int_equal(lease->task.retried, 1);
    FINISH_OK(t, lease, .outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("INVALID: never"));
    assert_int_equal(conform_state(t, "again"), MR_ARCHIVED);
}

static void its_dead_ones_can_be_run_again_and_deleted(void **state)
{
    struct conform *t = *state;
    struct conform_node *node =
        NODE(t, .name = "applier", .queues = MR_TIMERS_QUEUE, .inner = true);
    for (size_t i = 0; i < 2; i++) {
        put_inner(t, i == 0 ? "a" : "b");
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_FAIL_FOR_GOOD,
                  .error = MR_SLICE_LIT("INVALID: so"));
    }
    struct conform_page dead = PAGE(t, .queue = timers, .state = MR_ARCHIVED, .limit = 10);
    assert_int_equal(dead.n, 2);
    assert_slice(dead.tasks[0].last_error, "INVALID: so");
    assert_err(conform_act(t, MR_VERB_RUN, "a", 0), MR_OK);
    FINISH_OK(t, conform_take_id(t, node, "a"), .outcome = MR_DONE);
    assert_err(conform_act(t, MR_VERB_DELETE, "b", 0), MR_OK);
    assert_null(conform_get(t, "b"));
    assert_int_equal(count(t, MR_ARCHIVED), 0);
}

static void who_holds_some_and_goes_leaves_them_to_the_next(void **state)
{
    struct conform *t = *state;
    size_t n;
    struct conform_node *first = NODE(t, .name = "a", .queues = MR_TIMERS_QUEUE, .inner = true);
    put_inner(t, "x");
    put_inner(t, "y");
    struct mr_lease *leases = conform_take_list(t, first, 10, 1000, &n);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
    assert_err(conform_node_close(t, first), MR_OK);
    struct conform_node *second = NODE(t, .name = "b", .queues = MR_TIMERS_QUEUE, .inner = true);
    struct mr_lease *lease = conform_take_one(t, second);
    assert_int_equal(lease->task.crashes, 0);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_one(t, second), .outcome = MR_DONE);
}

int conform_inner(const struct conform_engine *engine)
{
    struct CMUnitTest tests[] = {
        CONFORM_TEST(only_requests_that_say_so_name_an_inner_queue),
        CONFORM_TEST(nobody_sees_it_who_does_not_ask_for_it_by_name_or_id),
        CONFORM_TEST(its_tasks_are_handed_out_and_end_like_any_others),
        CONFORM_TEST(its_dead_ones_can_be_run_again_and_deleted),
        CONFORM_TEST(who_holds_some_and_goes_leaves_them_to_the_next),
    };
    return engine->has_inner ? CONFORM_RUN(engine, "inner", tests) : 0;
}
