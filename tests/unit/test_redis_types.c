/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a queue that somebody made another type by hand: what was to be done stays as it was. */
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"

#define Q "asynq:{default}:"

/* Opens a node and takes once; answers the error of that. */
static enum mr_err take_soon(struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 8,
                                    .lease_ms = 600000,
                                    .events = {.stop = ignore_stop}};
    assert_int_equal(mr_broker_call(broker, &node.req), MR_OK);
    mr_req_done(&node.req);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node.node, .max = 8, .wait_ms = 50};
    enum mr_err err = mr_broker_call(broker, &take.req);
    mr_req_done(&take.req);
    return err;
}

static void put_some(struct mr_broker *broker)
{
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("plain")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("due"), .delay_ms = 1});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("later"), .delay_ms = 3600000});
}

/* Everything is in its place, and nothing else is. */
static void assert_untouched(void)
{
    assert_string_equal(RIG(server(), "LRANGE", Q "pending", "0", "-1"), "plain");
    assert_string_equal(RIG(server(), "HGET", Q "t:plain", "state"), "pending");
    assert_string_equal(RIG(server(), "ZRANGE", Q "scheduled", "0", "-1"), "due\nlater");
    assert_string_equal(RIG(server(), "HGET", Q "t:due", "state"), "scheduled");
}

static void a_take_that_meets_a_key_of_another_type_takes_nothing(void **state)
{
    static const char *const keys[] = {Q "lease", Q "active", Q "mr:epoch", Q "mr:order"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        put_some(*state);
        RIG(server(), "HSET", keys[i], "of", "another type");
        assert_int_not_equal(take_soon(*state), MR_OK);
        assert_untouched();
        RIG(server(), "DEL", keys[i]);
        (void)teardown(state);
        struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
        struct mr_broker *broker; /* another one, which does not wait until it tries again */
        assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
        *state = broker;
        struct mr_lease *lease = take_one(*state);
        assert_true(mr_slice_equal(lease->task.id, MR_SLICE_LIT("plain")));
        mr_lease_free(lease);
        RIG_ALL(rig, "FLUSHALL");
    }
}

/* What was refused must not be found later as a task that lost its place, and run. */
static void an_enqueue_that_meets_a_key_of_another_type_leaves_nothing(void **state)
{
    static const struct {
        const char *key;
        struct mr_task_options task;
    } cases[] = {
        {Q "pending", {.id = MR_SLICE_LIT("new")}},
        {Q "scheduled", {.id = MR_SLICE_LIT("new"), .delay_ms = 3600000}},
        {Q "mr:due", {.id = MR_SLICE_LIT("new"), .delay_ms = 3600000}},
        {Q "mr:order", {.id = MR_SLICE_LIT("new"), .priority_s = 5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RIG(server(), "HSET", cases[i].key, "of", "another type");
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &cases[i].task, .n = 1, .results = &result};
        enum mr_err err = mr_broker_call(*state, &req.req);
        mr_req_done(&req.req);
        assert_true(err != MR_OK || result.err != MR_OK);
        assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:new"), 0);
        RIG_ALL(rig, "FLUSHALL");
    }
}

static char said[512];

static void note_refused(enum mr_err err, const char *why, void *arg)
{
    (void)err;
    (void)arg;
    (void)snprintf(said, sizeof said, "%s", why);
}

static void a_list_of_queues_names_the_one_with_a_key_of_another_type(void **state)
{
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig), .refused = note_refused};
    struct mr_broker *broker;
    put_some(*state);
    RIG(server(), "HSET", Q "retry", "of", "another type");
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    struct mr_queue_info infos[4];
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_FAILED);
    mr_req_done(&req.req);
    mr_broker_close(broker);
    assert_non_null(strstr(said, "queue default: "));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(a_take_that_meets_a_key_of_another_type_takes_nothing),
        CASE(an_enqueue_that_meets_a_key_of_another_type_leaves_nothing),
        CASE(a_list_of_queues_names_the_one_with_a_key_of_another_type),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
