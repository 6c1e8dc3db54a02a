/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers as Asynq's tools see them: entries of a scheduler and its history, under Asynq's keys and in its messages. That
 * the messages are right byte by byte is test_asynq.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/redis_rig.h"
#include "unit/redis_one.h"

#define LIST    "asynq:schedulers:{h:1:u}"
#define HISTORY "asynq:scheduler_history:e-1"

static void show(struct mr_broker *broker, int64_t ttl_s, const struct mr_exhibit *entries,
                 size_t n, const struct mr_exhibited *done, size_t done_n)
{
    struct mr_req_exhibit req = {.req.op = MR_OP_EXHIBIT,
                                 .name = MR_SLICE_LIT("h:1:u"),
                                 .ttl_s = ttl_s,
                                 .entries = entries,
                                 .n = n,
                                 .done = done,
                                 .done_n = done_n};
    assert_true(broker->ops->exhibits);
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static const struct mr_exhibit entry = {
    .id = {"e-1", 3},
    .spec = {"@every 5s", 9},
    .type = {"t", 1},
    .payload = {"p", 1},
    .queue = {"lo\"w", 4},
    .max_retry = 3,
    .timeout_ms = 3690000,
    .next_ms = 1700000005000,
};

static void entries_are_a_list_that_lives_for_a_while(void **state)
{
    const struct mr_exhibit two[] = {entry, entry};
    show(*state, 20, two, 2, NULL, 0);
    assert_int_equal(RIG_INT(server(), "LLEN", LIST), 2);
    assert_in_range(RIG_INT(server(), "TTL", LIST), 15, 20);
    assert_string_equal(RIG(server(), "ZRANGE", "asynq:schedulers", "0", "-1"), LIST);
    const char *bytes = RIG(server(), "LINDEX", LIST, "0");
    assert_non_null(strstr(bytes, "Queue(\"lo\\\"w\")"));
    assert_non_null(strstr(bytes, "MaxRetry(3)"));
    assert_non_null(strstr(bytes, "Timeout(1h1m30s)"));
    /* What was shown is replaced. */
    show(*state, 20, two, 1, NULL, 0);
    assert_int_equal(RIG_INT(server(), "LLEN", LIST), 1);
}

static void what_is_taken_down_leaves_nothing(void **state)
{
    show(*state, 20, &entry, 1, NULL, 0);
    show(*state, 0, NULL, 0, NULL, 0);
    assert_int_equal(RIG_INT(server(), "EXISTS", LIST), 0);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:schedulers"), 0);
}

/* Who was killed said nothing any more. */
static void the_dead_are_forgotten(void **state)
{
    assert_int_equal(RIG_INT(server(), "ZADD", "asynq:schedulers", "1000", "dead"), 1);
    show(*state, 20, &entry, 1, NULL, 0);
    assert_string_equal(RIG(server(), "ZRANGE", "asynq:schedulers", "0", "-1"), LIST);
}

static void a_history_has_each_task_once_and_the_newest_thousand(void **state)
{
    enum { BATCHES = 11, BATCH = 100 };
    struct mr_exhibited done[BATCH];
    char ids[BATCH][32];
    for (int64_t i = 0; i < BATCHES; i++) {
        for (int64_t k = 0; k < BATCH; k++) {
            int64_t at_ms = 1700000000000 + (i * BATCH + k) * 1000;
            int len = snprintf(ids[k], sizeof ids[k], "task-%lld", (long long)at_ms);
            done[k] = (struct mr_exhibited){.id = MR_SLICE_LIT("e-1"),
                                            .task_id = mr_slice_make(ids[k], (size_t)len),
                                            .at_ms = at_ms};
        }
        show(*state, 20, &entry, 1, done, BATCH);
        show(*state, 20, &entry, 1, done, BATCH); /* repeating changes nothing */
    }
    assert_int_equal(RIG_INT(server(), "ZCARD", HISTORY), 1000);
    assert_true(RIG_INT(server(), "TTL", HISTORY) > 0);
    assert_int_equal(RIG_INT(server(), "ZCOUNT", HISTORY, "1700001099", "1700001099"), 1);
    assert_int_equal(RIG_INT(server(), "ZCOUNT", HISTORY, "1700000099", "1700000099"), 0);
}

static void histories_of_several_entries_are_kept_apart(void **state)
{
    const struct mr_exhibited done[] = {
        {.id = {"e-1", 3}, .task_id = {"a", 1}, .at_ms = 1700000000000},
        {.id = {"e-1", 3}, .task_id = {"b", 1}, .at_ms = 1700000001000},
        {.id = {"e-2", 3}, .task_id = {"c", 1}, .at_ms = 1700000002000},
    };
    show(*state, 20, &entry, 1, done, 3);
    assert_int_equal(RIG_INT(server(), "ZCARD", HISTORY), 2);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:scheduler_history:e-2"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(entries_are_a_list_that_lives_for_a_while, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_taken_down_leaves_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(the_dead_are_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(a_history_has_each_task_once_and_the_newest_thousand, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(histories_of_several_entries_are_kept_apart, setup,
                                        teardown),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
