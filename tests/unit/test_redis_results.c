/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results on a Redis that Go programs use as well: what they ended leaves one result each, as far as it can be known;
 * and masters of several programs find the results of all queues. What every engine does is the conformance
 * suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "broker/redis/redis.h"
#include "broker/result.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"
#include "wire/asynq.h"

#define Q "asynq:{default}:"

enum { WAIT_MS = 20000 };

/* ---- masters -------------------------------------------------------------------------------- */

static uint64_t master_open(struct mr_broker *broker, int64_t lease_ms, bool lasts)
{
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = mr_result_queue(MR_SLICE_LIT("news"), name)};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .role = MR_NODE_MASTER,
                                   .name = MR_SLICE_LIT("master"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .lease_ms = lease_ms,
                                   .lasts = lasts,
                                   .events = {.stop = ignore_stop}};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.node;
}

static uint64_t master(struct mr_broker *broker)
{
    return master_open(broker, 600000, false);
}

/* NULL: nothing came in time. */
static struct mr_lease *take(struct mr_broker *broker, uint64_t node, int64_t wait_ms)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    if (err == MR_EMPTY)
        return NULL;
    assert_int_equal(err, MR_OK);
    assert_int_equal(mr_broker_lease_open(broker, req.leases), MR_OK);
    return req.leases;
}

static enum mr_err finish(struct mr_broker *broker, const struct mr_lease *lease, uint64_t ref,
                          struct mr_finish item)
{
    enum mr_err err = MR_FAILED;
    item.id = lease->task.id;
    item.epoch = lease->epoch;
    item.ref = ref;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return err;
}

static void commit(struct mr_broker *broker, struct mr_lease *lease)
{
    assert_int_equal(finish(broker, lease, lease->ref, (struct mr_finish){.outcome = MR_DONE}),
                     MR_OK);
    mr_lease_free(lease);
}

/* The next one, which is committed; slices live until the lease is freed. */
static struct mr_result result_of(const struct mr_lease *lease)
{
    struct mr_result result;
    assert_non_null(lease);
    assert_int_equal(mr_result_decode(lease->task.payload, &result), MR_OK);
    return result;
}

static void assert_next(struct mr_broker *broker, uint64_t node, enum mr_result_outcome outcome,
                        uint32_t attempt, bool final, const char *text)
{
    struct mr_lease *lease = take(broker, node, WAIT_MS);
    struct mr_result result = result_of(lease);
    struct mr_slice said = outcome == MR_RESULT_OK ? result.result : result.error;
    assert_int_equal(result.outcome, outcome);
    assert_int_equal(result.attempt, attempt);
    assert_int_equal(result.final, final);
    if (!mr_slice_equal(said, mr_slice_str(text)))
        fail_msg("\"%s\" expected: %.*s", text, (int)said.len, (const char *)said.data);
    commit(broker, lease);
}

static void assert_nothing(struct mr_broker *broker)
{
    uint64_t node = master(broker); /* one that opens looks for itself */
    assert_null(take(broker, node, 0));
}

/* ---- as Asynq's programs do ------------------------------------------------------------------- */

static int64_t now_s(void)
{
    return strtoll(RIG(server(), "TIME"), NULL, 10);
}

static const char *seconds(int64_t s)
{
    static char text[4][32];
    static unsigned next;
    char *at = text[next++ % 4];
    (void)snprintf(at, sizeof text[0], "%lld", (long long)s);
    return at;
}

static void next_second(void)
{
    int64_t before_s = now_s();
    while (now_s() == before_s)
        ;
}

/* A worker takes the only task that waits. */
static void go_takes(void)
{
    RIG(server(), "RPOPLPUSH", Q "pending", Q "active");
    RIG(server(), "HSET", Q "t:a", "state", "active");
    RIG(server(), "HDEL", Q "t:a", "pending_since");
    RIG(server(), "ZADD", Q "lease", seconds(now_s() + 30), "a");
}

/* It writes the message anew, and moves the task. */
static void go_ends(struct mr_asynq_task change, const char *state, int64_t score)
{
    struct mr_asynq_task message;
    struct mr_arena arena = {0};
    struct mr_buf bytes = {0};
    char set[64];
    (void)snprintf(set, sizeof set, Q "%s", state);
    const char *text = RIG(server(), "HGET", Q "t:a", "msg");
    assert_int_equal(mr_asynq_task_decode(mr_slice_str(text), &arena, &message), MR_OK);
    message.retried += change.retried;
    message.completed_s = change.completed_s;
    if (change.error.len > 0) {
        message.error = change.error;
        message.last_failed_s = change.last_failed_s;
    }
    assert_int_equal(mr_asynq_task_encode(&message, &bytes), MR_OK);
    assert_int_equal(mr_buf_append(&bytes, "", 1), MR_OK);
    RIG(server(), "LREM", Q "active", "0", "a");
    RIG(server(), "ZREM", Q "lease", "a");
    RIG(server(), "ZADD", set, seconds(score), "a");
    RIG(server(), "HSET", Q "t:a", "msg", (const char *)bytes.data, "state", state);
    RIG(server(), "INCR", Q "processed");
    mr_buf_done(&bytes);
    mr_arena_done(&arena);
}

static int64_t retention_s(void)
{
    struct mr_asynq_task message;
    struct mr_arena arena = {0};
    const char *text = RIG(server(), "HGET", Q "t:a", "msg");
    assert_int_equal(mr_asynq_task_decode(mr_slice_str(text), &arena, &message), MR_OK);
    mr_arena_done(&arena);
    return message.retention_s;
}

/* Asynq keeps what it ended if its message says so. */
static void go_completes(const char *result)
{
    assert_true(retention_s() > 0);
    RIG(server(), "HSET", Q "t:a", "result", result);
    go_ends((struct mr_asynq_task){.completed_s = now_s()}, "completed", now_s() + retention_s());
}

static void go_retries(const char *error, int64_t in_s)
{
    struct mr_asynq_task change = {
        .retried = 1, .error = mr_slice_str(error), .last_failed_s = now_s()};
    go_ends(change, "retry", now_s() + in_s);
}

static void go_archives(const char *error, int64_t failed_s)
{
    go_ends((struct mr_asynq_task){.error = mr_slice_str(error), .last_failed_s = failed_s},
            "archived", now_s());
}

/* Its time has come. */
static void go_forwards(void)
{
    RIG(server(), "ZREM", Q "retry", "a");
    RIG(server(), "LPUSH", Q "pending", "a");
    RIG(server(), "HSET", Q "t:a", "state", "pending");
}

static void put_a(struct mr_broker *broker, int64_t retention_ms)
{
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("a"),
                                         .type = MR_SLICE_LIT("mail"),
                                         .topic = MR_SLICE_LIT("news"),
                                         .max_retry = 2,
                                         .retention_ms = retention_ms});
}

static struct mr_broker *open_other(void)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

/* ---- ends of theirs ------------------------------------------------------------------------- */

static void what_go_ended_well_leaves_one_result_and_goes(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    go_takes();
    go_completes("from go");
    uint64_t node = master(broker);
    struct mr_lease *lease = take(broker, node, 0);
    struct mr_result result = result_of(lease);
    assert_true(mr_slice_equal(result.task_id, MR_SLICE_LIT("a")));
    assert_true(mr_slice_equal(result.type, MR_SLICE_LIT("mail")));
    assert_true(mr_slice_equal(result.queue, MR_SLICE_LIT("default")));
    assert_true(mr_slice_equal(result.result, MR_SLICE_LIT("from go")));
    assert_true(result.final && result.outcome == MR_RESULT_OK && result.attempt == 1);
    commit(broker, lease);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:a", Q "completed", Q "mr:open"), 0);
    assert_int_equal(state_of(broker, "a"), MR_STATE_NONE);
    assert_nothing(broker);
}

static void with_a_retention_of_its_own_it_is_kept_so_long(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 3600000);
    go_takes();
    go_completes("from go");
    assert_next(broker, master(broker), MR_RESULT_OK, 1, true, "from go");
    assert_int_equal(state_of(broker, "a"), MR_COMPLETED);
    int64_t until_s = strtoll(RIG(server(), "ZSCORE", Q "completed", "a"), NULL, 10);
    assert_in_range(until_s, now_s() + 3590, now_s() + 3600);
    assert_nothing(broker);
}

static void a_master_that_waits_is_told_of_what_go_ends(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = master(broker);
    put_a(broker, 0);
    go_takes();
    go_completes("x");
    assert_next(broker, node, MR_RESULT_OK, 1, true, "x");
}

static void each_failure_of_go_leaves_one_and_the_last_is_final(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        go_takes();
        go_retries("go says no", 0);
        assert_next(broker, master(broker), MR_RESULT_ERROR, attempt, false, "go says no");
        assert_nothing(broker);
        go_forwards();
    }
    go_takes();
    next_second(); /* two failures of one second are one, as far as can be seen */
    go_archives("context deadline exceeded", now_s());
    assert_next(broker, master(broker), MR_RESULT_TIMEOUT, 3, true, "context deadline exceeded");
    assert_nothing(broker);
    assert_int_equal(state_of(broker, "a"), MR_ARCHIVED);
}

static void failures_that_nobody_saw_are_told_without_their_texts(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    for (int i = 0; i < 2; i++) {
        go_takes();
        go_retries(i == 0 ? "first" : "second", 0);
        go_forwards();
    }
    uint64_t node = master(broker);
    struct mr_lease *lease = take(broker, node, 0);
    assert_int_equal(result_of(lease).attempt, 1);
    assert_true(mr_slice_starts_with(result_of(lease).error, MR_SLICE_LIT("not known")));
    commit(broker, lease);
    assert_next(broker, node, MR_RESULT_ERROR, 2, false, "second");
    go_takes();
    go_completes("");
    assert_next(broker, node, MR_RESULT_OK, 3, true, "");
    assert_nothing(broker);
}

static void what_a_person_archives_leaves_none(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    RIG(server(), "LREM", Q "pending", "0", "a");
    RIG(server(), "ZADD", Q "archived", seconds(now_s()), "a");
    RIG(server(), "HSET", Q "t:a", "state", "archived");
    assert_nothing(broker);
    RIG(server(), "INCR", Q "processed"); /* another task ended, so there is a look */
    assert_nothing(broker);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:open"), 0);
}

static void go_fails_and_ours_ends_it(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    go_takes();
    go_retries("go says no", 0);
    go_forwards();
    struct mr_lease *run = take_one(broker);
    assert_int_equal(finish(broker, run, run->ref,
                            (struct mr_finish){.outcome = MR_FAIL, .error = MR_SLICE_LIT("ours")}),
                     MR_OK);
    mr_lease_free(run);
    uint64_t node = master(broker);
    assert_next(broker, node, MR_RESULT_ERROR, 1, false, "go says no");
    assert_next(broker, node, MR_RESULT_ERROR, 2, false, "ours");
    assert_nothing(broker);
}

static void a_run_that_go_lost_leaves_one(void **state)
{
    struct mr_broker *broker = *state;
    put_a(broker, 0);
    go_takes();
    RIG(server(), "ZADD", Q "lease", seconds(now_s() - 31), "a");
    (void)open_node_once(broker); /* who works there looks for such */
    assert_next(broker, master(broker), MR_RESULT_LOST, 1, false, "asynq: task lease expired");
    assert_nothing(broker);
}

static void put_many(struct mr_broker *broker, int n)
{
    char id[16];
    for (int i = 0; i < n; i++) {
        (void)snprintf(id, sizeof id, "w%d", i);
        put(broker,
            (struct mr_task_options){.id = mr_slice_str(id), .topic = MR_SLICE_LIT("news")});
    }
}

static void those_that_wait_do_not_hide_what_go_ended_behind_them(void **state)
{
    struct mr_broker *broker = *state;
    put_many(broker, 500);
    put_a(broker, 0);
    RIG(server(), "LREM", Q "pending", "0", "a");
    RIG(server(), "RPUSH", Q "pending", "a");
    go_takes();
    go_completes("x");
    assert_next(broker, master(broker), MR_RESULT_OK, 1, true, "x");
}

/* "ENDS LEFT ..." of mr:looked. */
static long looks_left(void)
{
    char *rest = NULL;
    (void)strtol(RIG(server(), "GET", Q "mr:looked"), &rest, 10);
    return strtol(rest, NULL, 10);
}

/* One that is gone must not let the walk pass over others, and one that Go ended without a topic must not end it. */
static void a_walk_through_all_that_wait_passes_over_none(void **state)
{
    struct mr_broker *broker = *state;
    put_many(broker, 700);
    put_a(broker, 0);
    RIG(server(), "LREM", Q "pending", "0", "a");
    RIG(server(), "RPUSH", Q "pending", "a");
    go_takes();
    go_retries("x", 0);
    go_forwards(); /* so it is not where ends of runs are */
    RIG(server(), "INCR", Q "processed");
    struct mr_lease *lease = NULL;
    for (int looks = 0; lease == NULL && looks < 10; looks++) {
        lease = take(broker, master(broker), 0);
        char *at = strrchr(RIG(server(), "GET", Q "mr:looked"), ' ');
        RIG(server(), "ZREM", Q "mr:open", at + 1); /* the last one that was looked at */
    }
    assert_true(mr_slice_equal(result_of(lease).error, MR_SLICE_LIT("x")));
    commit(broker, lease);
    for (int looks = 0; looks_left() > 0 && looks < 10; looks++)
        assert_nothing(broker);
    assert_int_equal(looks_left(), 0);
}

static int64_t calls_of(const char *command)
{
    char name[64];
    (void)snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
    const char *at = strstr(RIG(server(), "INFO", "commandstats"), name);
    return at != NULL ? strtoll(at + strlen(name), NULL, 10) : 0;
}

static void pass_ms(int64_t ms)
{
    mr_mono since = mr_mono_now(mr_clock_system());
    while (mr_mono_now(mr_clock_system()).ns - since.ns < ms * MR_NS_PER_MS)
        (void)RIG(server(), "PING");
}

static void end_one_of_ours(struct mr_broker *broker)
{
    struct mr_lease *run = take_one(broker);
    struct mr_finish done = {.outcome = MR_DONE};
    assert_int_equal(finish(broker, run, run->ref, done), MR_OK);
    mr_lease_free(run);
}

static void put_at_once(struct mr_broker *broker, size_t n)
{
    struct mr_task_options tasks[256];
    struct mr_enqueue_result results[256];
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = n, .results = results};
    for (size_t i = 0; i < n; i++)
        tasks[i] = (struct mr_task_options){.topic = MR_SLICE_LIT("news")};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void tasks_that_others_deleted_are_forgotten_and_cost_little(void **state)
{
    struct mr_broker *broker = *state;
    put_at_once(broker, 200);
    RIG(server(), "EVAL",
        "for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do "
        "redis.call('DEL', '" Q "t:' .. id) end redis.call('DEL', KEYS[1])",
        "1", Q "pending");
    put_at_once(broker, 200);
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:open"), 200);
    RIG(server(), "CONFIG", "RESETSTAT");
    put_at_once(broker, 200);
    assert_in_range(calls_of("exists"), 200, 200 + 20);
}

/* What waits is not looked at while only workers of ours end runs, with a topic or without; but when Go does, by one
 * of all masters. */
static void masters_look_only_when_go_ended_something(void **state)
{
    enum { MASTERS = 4 };
    struct mr_broker *broker = *state, *others[MASTERS];
    put_many(broker, 150);
    put(broker, (struct mr_task_options){.type = MR_SLICE_LIT("plain"), .priority_s = 3600});
    uint64_t node = master(broker);
    for (int i = 0; i < MASTERS; i++) {
        others[i] = open_other();
        (void)master(others[i]);
    }
    end_one_of_ours(broker); /* the plain one */
    end_one_of_ours(broker);
    commit(broker, take(broker, node, WAIT_MS));
    assert_int_equal(RIG_INT(server(), "GET", Q "mr:ran"), 2);
    RIG(server(), "CONFIG", "RESETSTAT");
    pass_ms(2200);
    assert_in_range(calls_of("hmget"), 0, 20);
    assert_in_range(calls_of("evalsha"), 0, 20 * (1 + MASTERS));
    RIG(server(), "INCR", Q "processed");
    pass_ms(2200);
    assert_in_range(calls_of("hmget"), 149, 149 + 40);
    for (int i = 0; i < MASTERS; i++)
        mr_broker_close(others[i]);
}

/* A Cluster is asked for one queue after the other. */
static void with_many_queues_a_master_is_told_of_what_go_ends(void **state)
{
    struct mr_broker *broker = *state;
    char queue[16];
    for (int i = 0; i < 12; i++) {
        (void)snprintf(queue, sizeof queue, "q%d", i);
        put(broker,
            (struct mr_task_options){.queue = mr_slice_str(queue), .topic = MR_SLICE_LIT("news")});
    }
    uint64_t node = master(broker);
    put_a(broker, 0);
    for (int round = 0; round < 2; round++) {
        go_takes();
        if (round == 0)
            go_retries("no", 0);
        else
            go_completes("x");
        struct mr_lease *lease = take(broker, node, 8000);
        assert_int_equal(result_of(lease).attempt, 1 + round);
        commit(broker, lease);
        if (round == 0)
            go_forwards();
    }
}

static void a_full_redis_loses_no_result(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = master(broker);
    put_a(broker, 0);
    struct mr_lease *run = take_one(broker);
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "1");
    struct mr_finish done = {.outcome = MR_DONE, .result = MR_SLICE_LIT("x")};
    assert_int_equal(finish(broker, run, run->ref, done), MR_OK);
    mr_lease_free(run);
    assert_next(broker, node, MR_RESULT_OK, 1, true, "x");
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "0");
    put_a(broker, 0);
    go_takes();
    go_completes("y");
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "1");
    assert_next(broker, node, MR_RESULT_OK, 1, true, "y");
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "0");
}

/* ---- several queues, several programs --------------------------------------------------------- */

static void leave_one(struct mr_broker *broker, const char *queue, uint32_t partition)
{
    struct mr_worker_queue of = {.name = mr_slice_str(queue)};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("w"),
                                    .queues = &of,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 600000,
                                    .events = {.stop = ignore_stop}};
    put(broker, (struct mr_task_options){.queue = mr_slice_str(queue),
                                         .partition = partition,
                                         .topic = MR_SLICE_LIT("news")});
    assert_int_equal(mr_broker_call(broker, &node.req), MR_OK);
    mr_req_done(&node.req);
    struct mr_lease *run = take(broker, node.node, WAIT_MS);
    assert_non_null(run);
    assert_int_equal(finish(broker, run, run->ref, (struct mr_finish){.outcome = MR_DONE}), MR_OK);
    mr_lease_free(run);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node.node};
    assert_int_equal(mr_broker_call(broker, &close.req), MR_OK);
    mr_req_done(&close.req);
}

static void a_master_is_told_of_results_in_queues_that_are_new(void **state)
{
    struct mr_broker *broker = *state, *other = open_other();
    uint64_t node = master(broker);
    mr_mono since = mr_mono_now(mr_clock_system());
    for (int i = 0; i < 5; i++) {
        char queue[] = {'q', (char)('0' + i), '\0'};
        leave_one(other, queue, 0);
        struct mr_lease *lease = take(broker, node, WAIT_MS);
        assert_true(mr_slice_equal(result_of(lease).queue, mr_slice_str(queue)));
        commit(broker, lease);
    }
    int64_t took_ms = (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
    assert_true(took_ms < 5000); /* told, not found by looking: that would be 5 s each time */
    mr_broker_close(other);
}

static void what_is_committed_leaves_nothing_behind(void **state)
{
    struct mr_broker *broker = *state;
    uint64_t node = master(broker);
    leave_one(broker, "q", 0);
    assert_true(RIG_INT(server(), "EXISTS", "asynq:{q}:mr:r:[news]:pending") == 1);
    commit(broker, take(broker, node, WAIT_MS));
    assert_string_equal(RIG(server(), "KEYS", "asynq:{q}:mr:r:*"), "");
    assert_string_equal(RIG(server(), "KEYS", "asynq:{q}:mr:topics"), "");
    assert_string_equal(RIG(server(), "KEYS", "asynq:{q}:mr:open"), "");
}

static void remove_queue(struct mr_broker *broker, const char *name)
{
    struct mr_req_queue_remove req = {
        .req.op = MR_OP_QUEUE_REMOVE, .queue = mr_slice_str(name), .mode = MR_QUEUE_REMOVE_FORCE};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

/* Who has known it before still finds its results, and so does who comes later. */
static void the_name_of_a_queue_goes_with_it_and_comes_with_its_next_task(void **state)
{
    struct mr_broker *broker = *state, *other = open_other();
    uint64_t node = master(broker);
    for (int round = 0; round < 3; round++) {
        leave_one(other, "q", 0);
        (void)RIG(server(), "SADD", "asynq:queues", "q"); /* that name comes within seconds */
        assert_int_equal(RIG_INT(server(), "SISMEMBER", "asynq:mr:results", "q"), 1);
        if (round == 2) /* it stays where somebody needs it */
            remove_queue(broker, "q");
        assert_int_equal(RIG_INT(server(), "SISMEMBER", "asynq:mr:results", "q"), 1);
        struct mr_broker *late = open_other();
        struct mr_lease *lease = take(late, master(late), round == 2 ? WAIT_MS : 0);
        assert_non_null(lease);
        commit(late, lease);
        mr_broker_close(late);
        if (round < 2)
            remove_queue(broker, "q");
        assert_int_equal(RIG_INT(server(), "SISMEMBER", "asynq:mr:results", "q"), round == 2);
    }
    assert_null(take(broker, node, 0));
    mr_broker_close(other);
}

static void topics_that_look_like_keys_are_not_mixed_up(void **state)
{
    struct mr_broker *broker = *state;
    static const char *const topics[] = {"a", "a]:mr", "a:mr", "a]", "[a]:t:"};
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        put(broker, (struct mr_task_options){.topic = mr_slice_str(topics[i])});
        struct mr_lease *run = take_one(broker);
        struct mr_finish done = {.outcome = MR_DONE};
        assert_int_equal(finish(broker, run, run->ref, done), MR_OK);
        mr_lease_free(run);
    }
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++) {
        char name[MR_NAME_MAX + 1];
        struct mr_queue_info info;
        struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST,
                                        .only = mr_result_queue(mr_slice_str(topics[i]), name),
                                        .infos = &info,
                                        .max = 1};
        assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
        mr_req_done(&req.req);
        assert_int_equal(info.counts[MR_PENDING], 1);
    }
}

/* Of all nodes, as they are listed. */
static uint64_t in_hands(struct mr_broker *broker)
{
    struct mr_req_node_list req = {.req.op = MR_OP_NODE_LIST};
    uint64_t n = 0;
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    for (size_t i = 0; i < req.n; i++)
        n += req.nodes[i].in_hand;
    mr_req_done(&req.req);
    return n;
}

static void what_a_master_took_that_lasts_is_its_own_when_its_process_ends(void **state)
{
    struct mr_broker *broker = *state, *other = open_other();
    leave_one(broker, "q", 0);
    struct mr_lease *lease = take(other, master_open(other, 600000, true), WAIT_MS);
    assert_non_null(lease);
    mr_broker_close(other);
    assert_int_equal(in_hands(broker), 1);
    assert_nothing(broker);
    assert_int_equal(finish(broker, lease, 0, (struct mr_finish){.outcome = MR_DONE}), MR_OK);
    assert_int_equal(finish(broker, lease, 0, (struct mr_finish){.outcome = MR_DONE}),
                     MR_NOT_FOUND);
    mr_lease_free(lease);
}

static void a_master_that_comes_after_one_that_died_has_all_in_their_order(void **state)
{
    struct mr_broker *broker = *state, *other = open_other();
    for (int i = 0; i < 3; i++)
        leave_one(broker, "q", 0);
    uint64_t dies = master_open(other, 300, true);
    struct mr_lease *first = take(other, dies, WAIT_MS), *second = take(other, dies, WAIT_MS);
    mr_broker_close(other);
    mr_mono died = mr_mono_now(mr_clock_system());
    while (mr_mono_now(mr_clock_system()).ns - died.ns < 400 * MR_NS_PER_MS)
        (void)RIG(server(), "PING");
    uint64_t node = master(broker);
    struct mr_lease *again = take(broker, node, 0);
    assert_true(mr_slice_equal(again->task.id, first->task.id));
    commit(broker, again);
    again = take(broker, node, 0);
    assert_true(mr_slice_equal(again->task.id, second->task.id));
    commit(broker, again);
    mr_lease_free(first);
    mr_lease_free(second);
}

static void a_master_is_no_server_of_asynqs(void **state)
{
    struct mr_broker *broker = *state;
    (void)master(broker);
    assert_int_equal(RIG_INT(server(), "EXISTS", "asynq:servers", "asynq:workers"), 0);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:mr:nodes"), 1);
}

/* Redis 7 gives a new user no channels. A message that may not be sent must not end a script in the middle. */
static void a_user_without_channels_leaves_one_result(void **state)
{
    struct mr_broker *broker = *state;
    RIG(server(), "ACL", "SETUSER", "default", "resetchannels");
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news")});
    struct mr_lease *lease = take_one(broker);
    commit(broker, lease);
    RIG(server(), "ACL", "SETUSER", "default", "allchannels");
    assert_int_equal(RIG_INT(server(), "LLEN", Q "mr:r:[news]:pending"), 1);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:a", Q "active"), 0);
}

static void a_master_that_waits_finds_what_nobody_may_tell_of(void **state)
{
    struct mr_broker *broker = *state, *silent;
    char url[256];
    leave_one(broker, "q", 0);
    uint64_t node = master(broker);
    struct mr_lease *first = take(broker, node, WAIT_MS); /* so it knows the place */
    RIG(server(), "ACL", "SETUSER", "silent", "on", ">p", "~*", "+@all", "resetchannels");
    (void)snprintf(url, sizeof url, "redis://silent:p@%s", redis_rig_url(rig) + strlen("redis://"));
    struct mr_redis_broker_options options = {.url = url};
    assert_int_equal(mr_redis_broker_open(&options, &silent, NULL), MR_OK);
    assert_null(take(broker, node, 100));
    leave_one(silent, "q", 0);
    commit(broker, take(broker, node, 5000));
    commit(broker, first);
    mr_broker_close(silent);
    RIG(server(), "ACL", "DELUSER", "silent");
}

static void lease_over(struct mr_req *req)
{
    mr_req_done(req);
    mr_lease_free(req->arg);
}

/* The end of the run is kept meanwhile, and answered when the broker closes. */
static void a_topic_with_a_key_of_another_type_gets_no_half_result(void **state)
{
    static struct mr_finish item;
    static struct mr_req_finish req;
    static enum mr_err err;
    struct mr_broker *broker = *state;
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news")});
    struct mr_lease *lease = take_one(broker);
    RIG(server(), "SET", Q "mr:r:[news]:pending", "of another type");
    item = (struct mr_finish){
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    req = (struct mr_req_finish){.req = {.op = MR_OP_FINISH, .done = lease_over, .arg = lease},
                                 .items = &item,
                                 .n = 1,
                                 .errs = &err};
    RIG(server(), "CONFIG", "RESETSTAT");
    mr_broker_submit(broker, &req.req);
    while (strstr(RIG(server(), "INFO", "errorstats"), "WRONGTYPE") == NULL)
        ;
    assert_string_equal(RIG(server(), "KEYS", Q "mr:r:\\[news\\]:t:*"), "");
    assert_string_equal(RIG(server(), "HGET", Q "t:a", "state"), "active");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest everywhere[] = {
        TEST(what_go_ended_well_leaves_one_result_and_goes),
        TEST(with_a_retention_of_its_own_it_is_kept_so_long),
        TEST(a_master_that_waits_is_told_of_what_go_ends),
        TEST(each_failure_of_go_leaves_one_and_the_last_is_final),
        TEST(failures_that_nobody_saw_are_told_without_their_texts),
        TEST(what_a_person_archives_leaves_none),
        TEST(go_fails_and_ours_ends_it),
        TEST(a_run_that_go_lost_leaves_one),
        TEST(those_that_wait_do_not_hide_what_go_ended_behind_them),
        TEST(a_walk_through_all_that_wait_passes_over_none),
        TEST(with_many_queues_a_master_is_told_of_what_go_ends),
    };
    const struct CMUnitTest on_one_server[] = {
        TEST(masters_look_only_when_go_ended_something),
        TEST(tasks_that_others_deleted_are_forgotten_and_cost_little),
        TEST(a_full_redis_loses_no_result),
        TEST(a_master_is_told_of_results_in_queues_that_are_new),
        TEST(what_is_committed_leaves_nothing_behind),
        TEST(the_name_of_a_queue_goes_with_it_and_comes_with_its_next_task),
        TEST(topics_that_look_like_keys_are_not_mixed_up),
        TEST(what_a_master_took_that_lasts_is_its_own_when_its_process_ends),
        TEST(a_master_that_comes_after_one_that_died_has_all_in_their_order),
        TEST(a_master_is_no_server_of_asynqs),
        TEST(a_user_without_channels_leaves_one_result),
        TEST(a_master_that_waits_finds_what_nobody_may_tell_of),
        TEST(a_topic_with_a_key_of_another_type_gets_no_half_result),
    };
    rig = is_cluster() ? redis_rig_cluster(NULL) : redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(everywhere, NULL, NULL);
    if (!is_cluster())
        failed += cmocka_run_group_tests(on_one_server, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
