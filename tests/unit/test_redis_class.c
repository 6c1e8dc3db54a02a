/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The class of retries on a Redis where Go programs fail tasks as well: what they left in `retry` stands in no set of
 * ours, and yet the oldest comes first. What every engine does is the acceptance suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"

#define Q "asynq:{default}:"

enum { N = 450 }; /* more than two takes look at */

static void use_a_class(struct mr_broker *broker)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_RETRY_MODE,
                                   .value = MR_RETRY_CLASS};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void put_some(struct mr_broker *broker)
{
    char id[16];
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof id, "r%d", i);
        put(broker, (struct mr_task_options){.id = mr_slice_str(id)});
    }
}

/* As a Go worker does: it takes and fails all that wait. They were due some seconds ago, `each` of them in the same one. Every
 * third is one of ours instead. */
static void go_fails_all(const char *each)
{
    static const char script[] =
        "local Q, n, t = 'asynq:{default}:', 0, tonumber(redis.call('TIME')[1]) "
        "while true do local id = redis.call('RPOP', Q .. 'pending') "
        "if not id then return n end "
        "local s = t - 30 + math.floor(n / ARGV[1]) "
        "redis.call('HSET', Q .. 't:' .. id, 'state', 'retry') "
        "redis.call('HDEL', Q .. 't:' .. id, 'pending_since') "
        "redis.call('ZADD', Q .. 'retry', s, id) "
        "if n % 3 == 0 then redis.call('ZADD', Q .. 'mr:due', s * 1000 - 500, id) end n = n + 1 "
        "end";
    assert_int_equal(RIG_INT(server(), "EVAL", script, "0", each), N);
}

static int number_of_next(struct mr_broker *broker, uint64_t node)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(mr_broker_lease_open(broker, req.leases), MR_OK);
    struct mr_slice id = req.leases->task.id;
    int number = (int)strtol((const char *)id.data + 1, NULL, 10);
    mr_lease_free(req.leases);
    return number;
}

static void of_retries_that_go_left_the_oldest_comes_first(void **state)
{
    struct mr_broker *broker = *state;
    use_a_class(broker);
    put_some(broker);
    go_fails_all("20");
    uint64_t node = open_node_once(broker);
    for (int i = 0; i < N; i++) /* those of one second in any order */
        assert_int_equal(number_of_next(broker, node) / 20, i / 20);
}

static void none_of_many_of_one_second_is_passed_over(void **state)
{
    struct mr_broker *broker = *state;
    bool seen[N] = {false};
    use_a_class(broker);
    put_some(broker);
    go_fails_all("100000");
    uint64_t node = open_node_once(broker);
    for (int i = 0; i < N; i++) {
        int number = number_of_next(broker, node);
        assert_false(seen[number]);
        seen[number] = true;
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(of_retries_that_go_left_the_oldest_comes_first),
        TEST(none_of_many_of_one_second_is_passed_over),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
