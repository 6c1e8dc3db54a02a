/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What limits cost a Redis: it does nothing else while a script runs, so what many tasks are passed over for is
 * measured in commands, and is done some at a time. What every engine does is the conformance suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"

#define Q     "asynq:{default}:"
#define TRACK Q "mr:l:z:\nk:k"

enum { BATCH = 500, BATCHES = 8, N = BATCH * BATCHES };

/* All of them with the same key; every other batch with a priority, so that those stand beside the list. */
static void put_backlog(struct mr_broker *broker)
{
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    for (int b = 0; b < BATCHES; b++) {
        for (int i = 0; i < BATCH; i++)
            tasks[i] =
                (struct mr_task_options){.key = MR_SLICE_LIT("k"), .priority_s = b % 2 ? 1 : 0};
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = BATCH, .results = results};
        assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
        mr_req_done(&req.req);
    }
}

/* So many at once of each type, or of each key. */
static void set_limit(struct mr_broker *broker, enum mr_limit_scope scope, uint64_t value)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_CONCURRENCY,
                                   .scope = scope,
                                   .name = MR_SLICE_LIT("*"),
                                   .value = value};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void one_at_a_time(struct mr_broker *broker)
{
    set_limit(broker, MR_LIMIT_KEY, 1);
}

static uint64_t commands(void)
{
    uint64_t sum = 0;
    for (const char *at = RIG(server(), "INFO", "commandstats");
         (at = strstr(at, "calls=")) != NULL; at++)
        sum += strtoull(at + strlen("calls="), NULL, 10);
    return sum;
}

/* Opened already. NULL: there is none. */
static struct mr_lease *take(struct mr_broker *broker, uint64_t node, int64_t wait_ms)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || err == MR_EMPTY);
    if (err == MR_OK)
        assert_int_equal(mr_broker_lease_open(broker, req.leases), MR_OK);
    return err == MR_OK ? req.leases : NULL;
}

static void take_id(struct mr_broker *broker, uint64_t node, const char *id)
{
    struct mr_lease *lease = take(broker, node, 10000);
    assert_non_null(lease);
    assert_true(mr_slice_equal(lease->task.id, mr_slice_str(id)));
    mr_lease_free(lease);
}

static void passing_over_a_backlog_costs_few_commands(void **state)
{
    struct mr_broker *broker = *state;
    put_backlog(broker);
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("other")});
    one_at_a_time(broker);
    mr_lease_free(take_one(broker));
    uint64_t node = open_node_once(broker);
    uint64_t before = commands();
    take_id(broker, node, "other");
    assert_in_range(commands() - before, N, 6 * N);
    assert_int_equal(RIG_INT(server(), "ZCARD", TRACK), N - 1);
}

/* Else it would never become less full. */
static void a_full_redis_hands_out_what_was_kept_back(void **state)
{
    struct mr_broker *broker = *state;
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("a"), .key = MR_SLICE_LIT("k")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("b"), .key = MR_SLICE_LIT("k")});
    one_at_a_time(broker);
    struct mr_lease *first = take_one(broker);
    uint64_t node = open_node_once(broker);
    assert_null(take(broker, node, 0));
    assert_int_equal(RIG_INT(server(), "ZCARD", TRACK), 1);
    RIG(server(), "CONFIG", "SET", "maxmemory", "1");
    assert_null(take(broker, node, 0));
    enum mr_err err;
    struct mr_finish item = {
        .id = first->task.id, .epoch = first->epoch, .ref = first->ref, .outcome = MR_DONE};
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_lease_free(first);
    take_id(broker, node, "b");
    RIG(server(), "CONFIG", "SET", "maxmemory", "0");
}

static void what_was_parked_and_is_gone_is_forgotten_some_at_a_time(void **state)
{
    static const char remove_all[] =
        "for _, id in ipairs(redis.call('ZRANGE', KEYS[1] .. 'mr:order', 0, -1)) do "
        "redis.call('DEL', KEYS[1] .. 't:' .. id) end "
        "return redis.call('DEL', KEYS[1] .. 'mr:order', KEYS[1] .. 'scheduled')";
    struct mr_broker *broker = *state;
    put_backlog(broker);
    one_at_a_time(broker);
    struct mr_lease *first = take_one(broker);
    uint64_t node = open_node_once(broker);
    for (int i = 0; i < N && RIG_INT(server(), "ZCARD", TRACK) < N - 1; i++)
        assert_null(take(broker, node, 0));
    assert_int_equal(RIG_INT(server(), "EVAL", remove_all, "1", Q), 2);
    enum mr_err err;
    struct mr_finish item = {
        .id = first->task.id, .epoch = first->epoch, .ref = first->ref, .outcome = MR_DONE};
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_lease_free(first);
    assert_null(take(broker, node, 0));
    assert_in_range(RIG_INT(server(), "ZCARD", TRACK), 1, N - 2);
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("next"), .key = MR_SLICE_LIT("k")});
    take_id(broker, node, "next");
    assert_int_equal(RIG_INT(server(), "ZCARD", TRACK), 0);
}

/* As many kinds of tasks as there are keys, all of them kept back. */
static void a_limit_that_changes_costs_no_more_where_many_wait(void **state)
{
    enum { KEYS = 1000 };
    static struct mr_task_options tasks[KEYS];
    static struct mr_enqueue_result results[KEYS];
    static char keys[KEYS][8];
    struct mr_broker *broker = *state;
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "k%d", i);
        tasks[i] = (struct mr_task_options){.key = mr_slice_str(keys[i])};
    }
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = KEYS, .results = results};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    one_at_a_time(broker);
    set_limit(broker, MR_LIMIT_TYPE, 1);
    struct mr_lease *first = take_one(broker);
    uint64_t node = open_node_once(broker);
    for (int i = 0; i < KEYS && RIG_INT(server(), "ZCARD", Q "mr:l:s") < KEYS - 1; i++)
        assert_null(take(broker, node, 0));
    uint64_t before = commands();
    set_limit(broker, MR_LIMIT_TYPE, 0);
    assert_in_range(commands() - before, 1, 100);
    take_id(broker, node, results[1].id);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:l:g"), 0);
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:l:y"), KEYS - 2);
    mr_lease_free(first);
}

static void a_limit_that_is_lifted_leaves_nothing_of_what_runs(void **state)
{
    struct mr_broker *broker = *state;
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("x"), .key = MR_SLICE_LIT("k")});
    one_at_a_time(broker);
    set_limit(broker, MR_LIMIT_TYPE, 5);
    struct mr_lease *lease = take_one(broker);
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:l:a:k:k"), 1);
    set_limit(broker, MR_LIMIT_KEY, 0);
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:l:a:k:k"), 0);
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:l:a:t:task"), 1);
    set_limit(broker, MR_LIMIT_TYPE, 0);
    assert_string_equal(RIG(server(), "KEYS", Q "mr:l:a:*"), "");
    assert_int_equal(RIG_INT(server(), "HEXISTS", Q "t:x", "mr:w"), 0);
    mr_lease_free(lease);
}

/* What the forwarder of Asynq makes of ready tasks with a priority: they are in the list, and in our order as well. */
static void what_another_program_moved_is_forgotten_some_at_a_time(void **state)
{
    static const char forward[] =
        "local ids = redis.call('ZRANGE', KEYS[1] .. 'scheduled', 0, -1) "
        "redis.call('DEL', KEYS[1] .. 'scheduled') for _, id in ipairs(ids) do "
        "redis.call('HSET', KEYS[1] .. 't:' .. id, 'state', 'pending', 'pending_since', '1') "
        "redis.call('LPUSH', KEYS[1] .. 'pending', id) end return #ids";
    enum { MOVED = N / 2 };
    struct mr_broker *broker = *state;
    for (int limited = 0; limited < 2; limited++) {
        RIG(server(), "FLUSHALL");
        put_backlog(broker);
        if (limited)
            one_at_a_time(broker);
        assert_int_equal(RIG_INT(server(), "EVAL", forward, "1", Q), MOVED);
        uint64_t node = open_node_once(broker);
        assert_null(take(broker, node, 0));
        assert_in_range(RIG_INT(server(), "ZCARD", Q "mr:order"), 1, MOVED - 2);
        mr_lease_free(take(broker, node, 10000));
        assert_int_equal(RIG_INT(server(), "ZCOUNT", Q "mr:order", "-inf", "1e14"), 0);
    }
}

static void retries_that_another_program_moved_are_forgotten_some_at_a_time(void **state)
{
    static const char hold[] =
        "for i = 1, 3000 do redis.call('ZADD', KEYS[1] .. 'mr:late', i, 'r' .. i) end "
        "return redis.call('HSET', KEYS[1] .. 'mr:set', 'retry', '2')";
    struct mr_broker *broker = *state;
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("next")});
    assert_int_equal(RIG_INT(server(), "EVAL", hold, "1", Q), 1);
    uint64_t node = open_node_once(broker);
    assert_null(take(broker, node, 0));
    assert_in_range(RIG_INT(server(), "ZCARD", Q "mr:late"), 1, 2998);
    take_id(broker, node, "next");
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:late"), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(passing_over_a_backlog_costs_few_commands),
        TEST(a_full_redis_hands_out_what_was_kept_back),
        TEST(what_was_parked_and_is_gone_is_forgotten_some_at_a_time),
        TEST(a_limit_that_changes_costs_no_more_where_many_wait),
        TEST(a_limit_that_is_lifted_leaves_nothing_of_what_runs),
        TEST(what_another_program_moved_is_forgotten_some_at_a_time),
        TEST(retries_that_another_program_moved_are_forgotten_some_at_a_time),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
