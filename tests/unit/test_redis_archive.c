/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of the archive on a Redis: who trims it, by what, and that it is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"

#define Q "asynq:{default}:"

enum { HOUR_MS = 3600000 };

static struct redis_rig *rig;

static struct redis_rig_server *server(void)
{
    return redis_rig_server(rig, 0);
}

static struct mr_broker *open_with(uint32_t archive_max, int64_t archive_ms)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {
        .url = redis_rig_url(rig), .archive_max = archive_max, .archive_ms = archive_ms};
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

static int setup(void **state)
{
    (void)state;
    RIG_ALL(rig, "FLUSHALL");
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void call(struct mr_broker *broker, struct mr_req *req)
{
    assert_int_equal(mr_broker_call(broker, req), MR_OK);
    mr_req_done(req);
}

/* t0, t1, ... */
static void put_n(struct mr_broker *broker, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "t%zu", i);
        struct mr_task_options task = {.id = mr_slice_str(id)};
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        call(broker, &req.req);
        assert_int_equal(result.err, MR_OK);
    }
}

/* Runs what is there; each fails for good. */
static void fail_all(struct mr_broker *broker, size_t n)
{
    uint64_t node = open_node_once(broker);
    for (size_t i = 0; i < n; i++) {
        struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = 20000};
        call(broker, &take.req);
        assert_int_equal(mr_broker_lease_open(broker, take.leases), MR_OK);
        struct mr_finish end = {.id = take.leases->task.id,
                                .epoch = take.leases->epoch,
                                .ref = take.leases->ref,
                                .outcome = MR_FAIL_FOR_GOOD,
                                .error = MR_SLICE_LIT("no")};
        enum mr_err err;
        struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &end, .n = 1, .errs = &err};
        call(broker, &finish.req);
        assert_int_equal(err, MR_OK);
        mr_lease_free(take.leases);
    }
}

static struct mr_queue_info info(struct mr_broker *broker)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("default"), .infos = &info, .max = 1};
    call(broker, &req.req);
    return info;
}

static struct mr_stats stats(struct mr_broker *broker)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    call(broker, &req.req);
    return req.stats;
}

static void archive(struct mr_broker *broker, const char *id)
{
    struct mr_control item = {.verb = MR_VERB_ARCHIVE, .id = mr_slice_str(id)};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    call(broker, &req.req);
    assert_int_equal(err, MR_OK);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void what_is_over_the_greatest_number_is_trimmed_and_counted(void **state)
{
    struct mr_broker *broker = open_with(3, 0);
    (void)state;
    put_n(broker, 5);
    fail_all(broker, 5);
    struct mr_queue_info queue = info(broker);
    assert_int_equal(queue.counts[MR_ARCHIVED], 3);
    assert_int_equal(queue.trimmed, 2);
    assert_int_equal(stats(broker).trimmed, 2);
    assert_int_equal(stats(broker).tasks, 3);
    assert_string_equal(RIG(server(), "KEYS", Q "t:t0"), ""); /* its hash, too */
    mr_broker_close(broker);
}

static void what_is_too_old_is_trimmed_and_counted(void **state)
{
    struct mr_broker *broker = open_with(0, HOUR_MS);
    (void)state;
    put_n(broker, 3);
    fail_all(broker, 2);
    assert_int_equal(info(broker).trimmed, 0);
    RIG(server(), "ZINCRBY", Q "archived", "-3601", "t0");
    RIG(server(), "ZINCRBY", Q "archived", "-3500", "t1");
    fail_all(broker, 1);
    assert_int_equal(info(broker).counts[MR_ARCHIVED], 2);
    assert_int_equal(info(broker).trimmed, 1);
    assert_string_equal(RIG(server(), "ZSCORE", Q "archived", "t0"), "(nil)");
    mr_broker_close(broker);
}

static void without_limits_asynqs_hold(void **state)
{
    struct mr_broker *broker = open_with(0, 0);
    (void)state;
    put_n(broker, 1);
    RIG(server(), "EVAL",
        "local now = redis.call('TIME')[1] for i = 1, 9999 do "
        "redis.call('ZADD', 'asynq:{default}:archived', now - 10, 'a' .. i) end "
        "redis.call('ZADD', 'asynq:{default}:archived', now - 90 * 86400 - 1, 'old')",
        "0");
    fail_all(broker, 1);
    assert_int_equal(info(broker).counts[MR_ARCHIVED], 9999);
    assert_int_equal(info(broker).trimmed, 2);
    assert_string_equal(RIG(server(), "ZSCORE", Q "archived", "old"), "(nil)");
    mr_broker_close(broker);
}

/* A person's own settings are not those of the workers. */
static void what_a_person_archives_trims_nothing(void **state)
{
    struct mr_broker *broker = open_with(2, 0);
    (void)state;
    put_n(broker, 4);
    archive(broker, "t0");
    archive(broker, "t1");
    archive(broker, "t2");
    assert_int_equal(info(broker).counts[MR_ARCHIVED], 3);
    assert_int_equal(info(broker).trimmed, 0);
    fail_all(broker, 1);
    assert_int_equal(info(broker).counts[MR_ARCHIVED], 2);
    assert_int_equal(info(broker).trimmed, 2);
    mr_broker_close(broker);
}

static void what_a_removed_queue_had_trimmed_and_quarantined_is_still_counted(void **state)
{
    struct mr_broker *broker = open_with(1, 0);
    (void)state;
    put_n(broker, 3);
    fail_all(broker, 3);
    RIG(server(), "HINCRBY", Q "mr:counts", "quarantined", "4");
    assert_int_equal(info(broker).quarantined, 4);
    struct mr_req_queue_remove req = {.req.op = MR_OP_QUEUE_REMOVE,
                                      .queue = MR_SLICE_LIT("default"),
                                      .mode = MR_QUEUE_REMOVE_FORCE};
    call(broker, &req.req);
    assert_int_equal(stats(broker).trimmed, 2);
    assert_int_equal(stats(broker).quarantined, 4);
    mr_broker_close(broker);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    static const struct CMUnitTest tests[] = {
        CASE(what_is_over_the_greatest_number_is_trimmed_and_counted),
        CASE(what_is_too_old_is_trimmed_and_counted),
        CASE(without_limits_asynqs_hold),
        CASE(what_a_person_archives_trims_nothing),
        CASE(what_a_removed_queue_had_trimmed_and_quarantined_is_still_counted),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
