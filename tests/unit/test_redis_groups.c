/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What groups cost on a Redis, and groups that other programs fill and empty as well. What every engine does
 * with groups is the conformance suite's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/chan.h"
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/redis_one.h"

#define Q "asynq:{default}:"

enum { HOUR_MS = 3600000, WAIT_MS = 20000, BATCH = 1000, NAME_SIZE = 32 };

/* ---- requests ------------------------------------------------------------------------------- */

static size_t put_all(struct mr_broker *broker, const struct mr_task_options *tasks, size_t n)
{
    struct mr_enqueue_result *results = calloc(n, sizeof *results);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = n, .results = results};
    size_t put = 0;
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    for (size_t i = 0; i < n; i++)
        put += results[i].err == MR_OK;
    mr_req_done(&req.req);
    free(results);
    return put;
}

static void join(struct mr_broker *broker, const char *group)
{
    struct mr_task_options task = {.group = mr_slice_str(group)};
    assert_int_equal(put_all(broker, &task, 1), 1);
}

/* g0, g1, ... with so many members each. */
static void make_groups(struct mr_broker *broker, size_t groups, size_t members)
{
    static char names[BATCH][NAME_SIZE];
    static struct mr_task_options tasks[BATCH];
    size_t n = 0;
    for (size_t i = 0; i < groups * members; i++) {
        (void)snprintf(names[n], NAME_SIZE, "g%zu", i / members);
        tasks[n] = (struct mr_task_options){.group = mr_slice_str(names[n])};
        if (++n == BATCH || i + 1 == groups * members) {
            assert_int_equal(put_all(broker, tasks, n), n);
            n = 0;
        }
    }
}

/* As a Go client fills groups FIRST0, FIRST1, ... with a member each, which joined so many seconds ago. */
static void make_groups_of_others(const char *first, const char *n, const char *age_s)
{
    static const char fill[] =
        "local P, now = 'asynq:{default}:', redis.call('TIME')[1] - ARGV[3] "
        "redis.call('SADD', 'asynq:queues', 'default') "
        "for i = 0, ARGV[2] - 1 do local group = ARGV[1] .. i "
        "  local id = 'm-' .. group .. redis.call('ZCARD', P .. 'g:' .. group) "
        "  redis.call('HSET', P .. 't:' .. id, 'msg', '\\n\\1t\\26' .. string.char(#id) .. id .. "
        "'\\34\\7default',"
        "    'state', 'aggregating', 'group', group) "
        "  redis.call('ZADD', P .. 'g:' .. group, now, id) "
        "  redis.call('SADD', P .. 'groups', group) end";
    (void)RIG(server(), "EVAL", fill, "0", first, n, age_s);
}

struct gathering {
    struct mr_req_gather req;
    struct mr_event done;
    mr_mono since;
};

static void answered(struct mr_req *req)
{
    mr_event_set(&mr_container(req, struct gathering, req.req)->done);
}

/* Zero in the rule: neither by size nor by time. */
static void gather_start(struct mr_broker *broker, struct gathering *g, struct mr_req_gather rule)
{
    *g = (struct gathering){.req = rule, .since = mr_mono_now(mr_clock_system())};
    g->req.req = (struct mr_req){.op = MR_OP_GATHER, .done = answered};
    g->req.queue = MR_SLICE_LIT("default");
    if (rule.grace_ms == 0)
        g->req.grace_ms = HOUR_MS;
    mr_event_init(&g->done);
    mr_broker_submit(broker, &g->req.req);
}

/* Answers how many ms it took. */
static int64_t gather_end(struct gathering *g, enum mr_err err)
{
    assert_true(mr_event_wait(&g->done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(g->req.req.err, err);
    mr_req_done(&g->req.req);
    return (mr_mono_now(mr_clock_system()).ns - g->since.ns) / MR_NS_PER_MS;
}

#define GATHER(broker, g, ...) gather_start(broker, g, (struct mr_req_gather){__VA_ARGS__})

/* ---- what Redis did ------------------------------------------------------------------------- */

/* A figure of a command: "calls", "usec". */
static int64_t figure(const char *command, const char *what)
{
    char line[64];
    (void)snprintf(line, sizeof line, "cmdstat_%s:", command);
    const char *at = strstr(RIG(server(), "INFO", "commandstats"), line);
    if (at == NULL)
        return 0;
    (void)snprintf(line, sizeof line, "%s=", what);
    return strtoll(strstr(at, line) + strlen(line), NULL, 10);
}

static int64_t commands(void)
{
    static const char name[] = "total_commands_processed:";
    return strtoll(strstr(RIG(server(), "INFO", "stats"), name) + strlen(name), NULL, 10);
}

/* ---- what a look costs ---------------------------------------------------------------------- */

/* Commands of a look that finds nothing ripe and does not walk. */
static int64_t cost_of_a_look(struct mr_broker *broker)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 5; i++) { /* one of them may walk, then no other does for a second */
        struct gathering g;
        int64_t before = commands();
        GATHER(broker, &g, .wait_ms = 1);
        (void)gather_end(&g, MR_EMPTY);
        int64_t cost = commands() - before;
        least = cost < least ? cost : least;
    }
    return least;
}

static void a_look_costs_the_same_with_many_groups(void **state)
{
    int64_t none = cost_of_a_look(*state);
    make_groups(*state, 1, 4);
    int64_t one = cost_of_a_look(*state);
    make_groups(*state, 5000, 4);
    int64_t many = cost_of_a_look(*state);
    assert_in_range(none, 2, 12);
    assert_in_range(one, 5, 25);
    assert_in_range(many, 5, 25);
}

/* All groups at each look took 190 ms. */
static void a_look_that_walks_through_groups_is_short(void **state)
{
    struct gathering g;
    make_groups(*state, 5000, 4);
    RIG(server(), "CONFIG", "RESETSTAT");
    for (int i = 0; i < 20; i++) {
        GATHER(*state, &g, .wait_ms = 0); /* who does not wait walks each time */
        (void)gather_end(&g, MR_EMPTY);
    }
    int64_t calls = figure("evalsha", "calls"), us = figure("evalsha", "usec");
    assert_int_equal(figure("sscan", "calls"), 20);
    print_message("a look at 5000 groups: %lld us\n", (long long)(us / calls));
    assert_in_range(us / calls, 0, 20000);
}

static void who_waits_is_woken_by_the_first_group_and_a_full_one(void **state)
{
    struct gathering g;
    GATHER(*state, &g, .max_size = 100, .wait_ms = WAIT_MS);
    while (RIG_INT(server(), "EXISTS", Q "mr:full") == 0)
        ; /* it waits */
    RIG(server(), "CONFIG", "RESETSTAT");
    for (size_t i = 0; i < 99; i++) {
        char name[NAME_SIZE];
        join(*state, "g");
        (void)snprintf(name, sizeof name, "other%zu", i);
        join(*state, name);
    }
    assert_int_equal(figure("publish", "calls"), 1);
    assert_in_range(figure("zrevrange", "calls"), 0,
                    20); /* looks, on a slow machine one a second */
    assert_false(mr_event_is_set(&g.done));
    g.since = mr_mono_now(mr_clock_system());
    join(*state, "g");
    assert_int_equal(figure("publish", "calls"), 2);
    assert_in_range(gather_end(&g, MR_OK), 0, WAIT_MS);
    assert_int_equal(g.req.n, 100);
}

static void members_that_come_all_the_time_do_not_make_who_waits_look_all_the_time(void **state)
{
    struct gathering small, big;
    join(*state, "g");
    join(*state, "g");
    GATHER(*state, &small, .max_size = 3, .wait_ms = 1); /* leaves word that 3 are enough */
    (void)gather_end(&small, MR_EMPTY);
    GATHER(*state, &big, .max_size = BATCH, .wait_ms = WAIT_MS);
    RIG(server(), "CONFIG", "RESETSTAT");
    mr_mono since = mr_mono_now(mr_clock_system());
    for (size_t i = 0; i < BATCH - 3; i++)
        join(*state, "g");
    int64_t ms = (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
    assert_int_equal(figure("publish", "calls"), BATCH - 3);
    assert_in_range(figure("zrevrange", "calls"), 0, ms / 10 + 2);
    join(*state, "g");
    (void)gather_end(&big, MR_OK);
    assert_int_equal(big.req.n, BATCH);
}

/* As a worker gathers: again and again, for a second each. */
static void who_gathers_again_and_again_subscribes_once(void **state)
{
    struct gathering g;
    GATHER(*state, &g, .wait_ms = 100);
    (void)gather_end(&g, MR_EMPTY);
    RIG(server(), "CONFIG", "RESETSTAT");
    for (int i = 0; i < 5; i++) {
        GATHER(*state, &g, .wait_ms = 100);
        (void)gather_end(&g, MR_EMPTY);
    }
    assert_int_equal(figure("subscribe", "calls") + figure("unsubscribe", "calls"), 0);
    assert_int_equal(figure("evalsha", "calls"), 5);
    GATHER(*state, &g, .max_size = 1, .wait_ms = WAIT_MS);
    join(*state, "g"); /* and it is still told */
    assert_in_range(gather_end(&g, MR_OK), 0, 900);
}

static void a_full_redis_has_nothing_against_waiting_for_a_group(void **state)
{
    struct gathering g;
    RIG(server(), "CONFIG", "SET", "maxmemory", "1");
    GATHER(*state, &g, .wait_ms = 100);
    (void)gather_end(&g, MR_EMPTY);
    RIG(server(), "CONFIG", "SET", "maxmemory", "0");
}

/* ---- the greatest length -------------------------------------------------------------------- */

static void set_max(struct mr_broker *broker, uint64_t max)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_MAX_LENGTH,
                                   .value = max};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void groups_are_not_counted_for_each_task_of_a_queue_with_a_greatest_length(void **state)
{
    enum { GROUPS = 2000, ROOM = 70 };
    struct mr_task_options tasks[100];
    for (size_t i = 0; i < 100; i++)
        tasks[i] =
            (struct mr_task_options){.priority_s = i % 2 == 0 ? 5 : 0,
                                     .group = i % 3 == 0 ? MR_SLICE_LIT("g7") : MR_SLICE_LIT("")};
    make_groups(*state, GROUPS, 1);
    set_max(*state, GROUPS + ROOM);
    RIG(server(), "CONFIG", "RESETSTAT");
    assert_int_equal(put_all(*state, tasks, 50), 50);
    assert_int_equal(put_all(*state, tasks + 50, 50), ROOM - 50);
    assert_int_equal(put_all(*state, tasks, 1), 0);
    assert_in_range(figure("smembers", "calls"), 1, 2);
}

static void members_of_other_programs_count_for_the_greatest_length(void **state)
{
    set_max(*state, 3);
    join(*state, "g0");
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "g:g0"), 1);
    make_groups_of_others("g", "2", "0");
    struct mr_task_options task = {.priority_s = 1};
    while (RIG_INT(server(), "EXISTS", Q "mr:members") == 1)
        ; /* a second */
    assert_int_equal(put_all(*state, &task, 1), 0);
}

/* ---- groups of other programs --------------------------------------------------------------- */

static void a_group_that_another_program_filled_is_found_among_many(void **state)
{
    struct gathering g;
    make_groups(*state, 1000, 1);
    make_groups_of_others("theirs", "1", "3600");
    GATHER(*state, &g, .grace_ms = HOUR_MS, .wait_ms = WAIT_MS);
    (void)gather_end(&g, MR_OK);
    assert_string_equal(g.req.group, "theirs0");
    assert_int_equal(g.req.n, 1);
}

static void a_group_of_ours_that_another_program_fills_is_found(void **state)
{
    struct gathering g;
    make_groups(*state, 600, 1);
    GATHER(*state, &g, .max_size = 2, .wait_ms = WAIT_MS);
    make_groups_of_others("g", "1", "0");
    (void)gather_end(&g, MR_OK);
    assert_string_equal(g.req.group, "g0");
    assert_int_equal(g.req.n, 2);
}

/* What was noted of it is wrong then, and no longer there after a look. */
static void groups_that_another_program_gathered_are_forgotten(void **state)
{
    struct gathering g;
    make_groups(*state, 300, 2);
    join(*state, "g299");
    for (size_t i = 0; i < 299; i++) {
        char key[64], name[NAME_SIZE];
        (void)snprintf(name, sizeof name, "g%zu", i);
        (void)snprintf(key, sizeof key, Q "g:%s", name);
        RIG(server(), "DEL", key);
        RIG(server(), "SREM", Q "groups", name);
    }
    GATHER(*state, &g, .max_size = 2, .wait_ms = WAIT_MS);
    (void)gather_end(&g, MR_OK);
    assert_string_equal(g.req.group, "g299");
    GATHER(*state, &g, .max_size = 2, .wait_ms = 100);
    (void)gather_end(&g, MR_EMPTY);
    assert_string_equal(RIG(server(), "ZRANGE", Q "mr:size", "0", "-1"), "g299");
}

/* Go servers gather, none of ours does. */
static void what_is_noted_of_groups_that_are_gone_stays_little(void **state)
{
    enum { GROUPS = 1000, LIVE = 20 };
    for (size_t i = 0; i < GROUPS; i++) {
        char name[NAME_SIZE], key[64];
        (void)snprintf(name, sizeof name, "g%zu", i);
        join(*state, name);
        if (i >= LIVE) {
            (void)snprintf(name, sizeof name, "g%zu", i - LIVE);
            (void)snprintf(key, sizeof key, Q "g:%s", name);
            RIG(server(), "DEL", key);
            RIG(server(), "SREM", Q "groups", name);
        }
    }
    assert_in_range(RIG_INT(server(), "ZCARD", Q "mr:size"), LIVE, 10 * LIVE);
    assert_in_range(RIG_INT(server(), "ZCARD", Q "mr:oldest"), LIVE, 10 * LIVE);
    assert_in_range(RIG_INT(server(), "ZCARD", Q "mr:newest"), LIVE, 10 * LIVE);
}

/* A Go client joins a group of ours: nobody has joined for a second, and not for an hour, by our own note. */
static void a_member_of_another_program_makes_a_group_wait_on(void **state)
{
    struct gathering g;
    join(*state, "g0");
    RIG(server(), "ZADD", Q "g:g0", "XX", "1000000", RIG(server(), "ZRANGE", Q "g:g0", "0", "0"));
    RIG(server(), "ZADD", Q "mr:newest", "1000000000", "g0");
    RIG(server(), "ZADD", Q "mr:oldest", "1000000000", "g0");
    make_groups_of_others("g", "1", "0");
    GATHER(*state, &g, .grace_ms = HOUR_MS, .wait_ms = 1);
    (void)gather_end(&g, MR_EMPTY);
    GATHER(*state, &g, .grace_ms = HOUR_MS, .max_delay_ms = HOUR_MS, .wait_ms = 1);
    (void)gather_end(&g, MR_OK);
    assert_int_equal(g.req.n, 2);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(a_look_costs_the_same_with_many_groups),
        CASE(a_look_that_walks_through_groups_is_short),
        CASE(who_waits_is_woken_by_the_first_group_and_a_full_one),
        CASE(members_that_come_all_the_time_do_not_make_who_waits_look_all_the_time),
        CASE(who_gathers_again_and_again_subscribes_once),
        CASE(a_full_redis_has_nothing_against_waiting_for_a_group),
        CASE(groups_are_not_counted_for_each_task_of_a_queue_with_a_greatest_length),
        CASE(members_of_other_programs_count_for_the_greatest_length),
        CASE(a_group_that_another_program_filled_is_found_among_many),
        CASE(a_group_of_ours_that_another_program_fills_is_found),
        CASE(groups_that_another_program_gathered_are_forgotten),
        CASE(what_is_noted_of_groups_that_are_gone_stays_little),
        CASE(a_member_of_another_program_makes_a_group_wait_on),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
