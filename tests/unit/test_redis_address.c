/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses as Redis has them: what they cost a worker, and what other programs see and do of them. What every engine
 * does with addresses is the conformance suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "broker/redis/redis.h"
#include "support/redis_rig.h"

enum { WAIT_MS = 20000, LEASE_MS = 60000, OTHERS = 40 };

static struct redis_rig *rig;

static struct redis_rig_server *server(void)
{
    return redis_rig_server(rig, 0);
}

static int setup(void **state)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    RIG(server(), "FLUSHALL");
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    *state = broker;
    return 0;
}

static int teardown(void **state)
{
    mr_broker_close(*state);
    return 0;
}

static void stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct mr_broker *broker, const char *const *names, size_t n,
                          int64_t fall_ms)
{
    struct mr_worker_queue queues[8] = {0};
    for (size_t i = 0; i < n; i++)
        queues[i].name = mr_slice_str(names[i]);
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("n"),
                                   .queues = queues,
                                   .queues_n = n,
                                   .slots = 4,
                                   .lease_ms = LEASE_MS,
                                   .fall_ms = fall_ms,
                                   .events = {.stop = stop}};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.node;
}

static uint64_t open_worker(struct mr_broker *broker, int64_t fall_ms)
{
    static const char *const names[] = {"q@n", "q@gpu", "q"};
    return open_node(broker, names, 3, fall_ms);
}

static void put(struct mr_broker *broker, const char *queue, const char *id)
{
    struct mr_enqueue_result result;
    struct mr_task_options task = {.queue = mr_slice_str(queue), .id = mr_slice_str(id)};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* As a client of Asynq's enqueues it. */
static void push_as_others(const char *queue, const char *id)
{
    char key[128], message[256];
    (void)snprintf(message, sizeof message, "\n\x01t\x1a%c%s\"%c%s", (int)strlen(id), id,
                   (int)strlen(queue), queue);
    RIG(server(), "SADD", "asynq:queues", queue);
    (void)snprintf(key, sizeof key, "asynq:{%s}:t:%s", queue, id);
    RIG(server(), "HSET", key, "msg", message, "state", "pending", "pending_since", "1");
    (void)snprintf(key, sizeof key, "asynq:{%s}:pending", queue);
    RIG(server(), "LPUSH", key, id);
}

static void work_one(struct mr_broker *broker, uint64_t node, const char *id)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = WAIT_MS};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    struct mr_lease *lease = take.leases;
    assert_int_equal(mr_broker_lease_open(broker, lease), MR_OK);
    assert_true(mr_slice_equal(lease->task.id, mr_slice_str(id)));
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
    enum mr_err err;
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_req_done(&take.req);
    mr_lease_free(lease);
}

static void wait_for_nothing(struct mr_broker *broker, uint64_t node, int64_t ms)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = ms};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_EMPTY);
    mr_req_done(&take.req);
}

static int64_t elapsed_ms(mr_mono since)
{
    return (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
}

static size_t waiting_connections(void)
{
    size_t n = 0;
    for (const char *at = RIG(server(), "CLIENT", "LIST"); (at = strstr(at, "cmd=blmove")); at++)
        n++;
    return n;
}

static void an_address_costs_a_worker_no_connection(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = open_worker(broker, 60000);
    wait_for_nothing(broker, node, 300);
    assert_int_equal(waiting_connections(), 1);
}

static void an_address_without_its_queue_is_a_queue_like_any_other(void **state)
{
    struct mr_broker *broker = *state;
    static const char *const names[] = {"mail@example"};
    uint64_t node = open_node(broker, names, 1, 60000);
    wait_for_nothing(broker, node, 300);
    assert_int_equal(waiting_connections(), 1);
}

static void what_we_enqueue_wakes_whose_it_is(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = open_worker(broker, 60000);
    int64_t best_ms = WAIT_MS;
    for (int i = 0; i < 5; i++) {
        struct mr_req_take take = {
            .req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = 300 + i};
        assert_int_equal(mr_broker_call(broker, &take.req), MR_EMPTY);
        mr_req_done(&take.req);
        put(broker, i % 2 == 0 ? "q@n" : "q@gpu", "t");
        mr_mono since = mr_mono_now(mr_clock_system());
        work_one(broker, node, "t");
        best_ms = elapsed_ms(since) < best_ms ? elapsed_ms(since) : best_ms;
    }
    assert_true(best_ms < 100);
}

static void what_another_program_enqueues_is_found_soon(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = open_worker(broker, 60000);
    wait_for_nothing(broker, node, 300);
    push_as_others("q@gpu", "a");
    mr_mono since = mr_mono_now(mr_clock_system());
    work_one(broker, node, "a");
    assert_true(elapsed_ms(since) < 5000);
}

static void what_another_program_enqueued_falls_as_well(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = open_worker(broker, 500);
    push_as_others("q@gone", "a");
    work_one(broker, node, "a");
    assert_string_equal(RIG(server(), "EXISTS", "asynq:{q@gone}:t:a"), "0");
    assert_string_equal(RIG(server(), "GET", "asynq:{q@gone}:processed"), "1");
}

/* The question itself too, and what scripts do. */
static int64_t commands(void)
{
    static const char name[] = "total_commands_processed:";
    return strtoll(strstr(RIG(server(), "INFO", "stats"), name) + strlen(name), NULL, 10);
}

/* Each of those has something that is not old enough. */
static void who_waits_beside_many_addresses_of_others_asks_little(void **state)
{
    enum { SECONDS = 4 };
    struct mr_broker *broker = *state;
    for (int i = 0; i < OTHERS; i++) {
        char queue[16];
        (void)snprintf(queue, sizeof queue, "q@w%d", i);
        put(broker, queue, queue);
    }
    uint64_t node = open_worker(broker, 3600 * 1000);
    wait_for_nothing(broker, node, 1500);
    int64_t before = commands();
    wait_for_nothing(broker, node, SECONDS * 1000);
    assert_in_range(commands() - before, 0, SECONDS * 5);
    assert_int_equal(RIG_INT(server(), "LLEN", "asynq:{q@w0}:pending"), 1);
}

static bool is_known(const char *queue)
{
    return RIG_INT(server(), "SISMEMBER", "asynq:queues", queue) == 1;
}

/* Nothing ran there today; of one that is listened to by another program of ours, too. */
static void an_address_that_nobody_needs_goes_and_others_stay(void **state)
{
    struct mr_broker *broker = *state;
    static const char *const queues[] = {"q@gone",  "q@paused", "q@full",
                                         "q@other", "q@n",      "r@gone"};
    static const char *const other_names[] = {"q@other"};
    uint64_t node = open_worker(broker, 100);
    struct mr_broker *other;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &other, NULL), MR_OK);
    (void)open_node(other, other_names, 1, 0);
    for (size_t i = 0; i < 6; i++)
        RIG(server(), "SADD", "asynq:queues", queues[i]);
    RIG(server(), "SET", "asynq:{q@paused}:paused", "1");
    put(broker, "r@gone", "kept");
    push_as_others("q@full", "full");
    RIG(server(), "SET", "asynq:{q@full}:paused", "1");
    for (mr_mono since = mr_mono_now(mr_clock_system()); is_known("q@gone");) {
        wait_for_nothing(broker, node, 50);
        assert_true(elapsed_ms(since) < WAIT_MS);
    }
    wait_for_nothing(broker, node, 1500); /* and one sweep more */
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(is_known(queues[i]), i > 0);
    put(broker, "q@gone", "again");
    work_one(broker, node, "again");
    mr_broker_close(other);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_address_costs_a_worker_no_connection),
        TEST(an_address_without_its_queue_is_a_queue_like_any_other),
        TEST(what_we_enqueue_wakes_whose_it_is),
        TEST(what_another_program_enqueues_is_found_soon),
        TEST(what_another_program_enqueued_falls_as_well),
        TEST(an_address_that_nobody_needs_goes_and_others_stay),
        TEST(who_waits_beside_many_addresses_of_others_asks_little),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
