/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 67 to 71: an app is cut as its workers come, and joined as they go. The tests of this file are one story on one rig, in
 * their order; each ends with rig_check.
 */
#include <stdio.h>

#include "names/rig.h"

enum { TIMERS = 12, TASKS = 30, PULL_MS = 10 * 1000, FOLLOW_MS = 10 * 1000 };

static struct rig *rig;

/* How long it took, from now, until the app was cut so. */
static int64_t cut_ms(size_t parts)
{
    int64_t since_ms = bench_now_ms(rig->bench);
    BENCH_UNTIL(rig_is_cut(rig, parts));
    return bench_now_ms(rig->bench) - since_ms;
}

static void load(void)
{
    rig_load(rig, TIMERS, "400ms", TASKS);
    BENCH_UNTIL(rig_fires(rig, bench_now_ms(rig->bench) - 1000));
}

/* Where the story stands when it has come to a test, also when that one runs by itself: so many workers, a load, and the app cut
 * into so many. */
static void come_to(size_t workers, size_t parts)
{
    if (rig->nameservers[0].pid == 0)
        rig_start(rig, RIG_SERVERS, 0);
    for (size_t i = 0; i < workers; i++)
        if (rig->workers[i].pid == 0)
            rig_work(rig, i);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, workers));
    if (rig->timers_n == 0)
        rig_load(rig, 1, "400ms", 0); /* more would be a load of servers that own nothing yet */
    BENCH_UNTIL(rig_is_cut(rig, parts));
    load();
}

/* The plan with a server for each of so many parts. */
static struct rig_plan plan_of_owners(size_t owners)
{
    struct rig_plan plan = rig_plan(rig);
    if (plan.owners != owners)
        rig_print_moves(rig);
    assert_int_equal(plan.owners, owners);
    assert_true(plan.most - plan.least <= 1);
    return plan;
}

static void test_67_the_third_worker_cuts_the_app(void **state)
{
    (void)state;
    come_to(2, 1); /* with two workers it is whole */
    struct rig_plan before = rig_plan(rig);
    rig_work(rig, 2);
    int64_t took_ms = cut_ms(2), since_ms = bench_now_ms(rig->bench);
    printf("67: two subApps %lld ms after the third worker was started\n", (long long)took_ms);
    assert_true(took_ms < PULL_MS || !rig_judges_time());
    struct rig_plan plan = plan_of_owners(2); /* the new one is with a server that has none */
    assert_true(strcmp(plan.names[0], before.names[0]) == 0 ||
                strcmp(plan.names[1], before.names[0]) == 0);
    /* What either owner dispatches from now on is run: the workers have followed. */
    uint64_t processed[RIG_SERVERS];
    rig_await_tasks(rig);
    rig_note_processed(rig, processed);
    BENCH_UNTIL(rig_worked_for(rig, processed) == 2);
    took_ms = bench_now_ms(rig->bench) - since_ms;
    printf("67: the workers had followed after %lld ms\n", (long long)took_ms);
    assert_true(took_ms < FOLLOW_MS || !rig_judges_time());
    BENCH_UNTIL(rig_runs_by(rig, 0) > 0 && rig_runs_by(rig, 1) > 0 && rig_runs_by(rig, 2) > 0);
    rig_check(rig);
}

static void test_68_the_fourth_does_not_and_the_fifth_does(void **state)
{
    (void)state;
    come_to(3, 2);
    rig_work(rig, 3);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, 4));
    int64_t since_ms = bench_now_ms(rig->bench);
    while (bench_now_ms(rig->bench) < since_ms + (rig_full() ? PULL_MS : 1500)) {
        assert_true(rig_is_cut(rig, 2));
        bench_sleep_ms(100);
    }
    rig_work(rig, 4);
    int64_t took_ms = cut_ms(3);
    assert_true(took_ms < PULL_MS || !rig_judges_time());
    (void)plan_of_owners(3);
    rig_check(rig);
}

/* By the name of the app alone, at any server. */
static void test_70_a_new_worker_starts_and_people_name_the_app_only(void **state)
{
    (void)state;
    char text[4096];
    come_to(5, 3);
    rig_work(rig, 5);
    BENCH_UNTIL(rig_runs_by(rig, 5) > 0);
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        struct program_args args = {0};
        program_arg(&args, "--broker");
        program_arg(&args, "millrace://%s", rig->servers[i].grpc);
        program_arg(&args, "timer");
        program_arg(&args, "create");
        program_arg(&args, "by-name-%zu", i);
        program_arg(&args, "--every");
        program_arg(&args, "300ms");
        assert_int_equal(program_run(&args, text, sizeof text), 0);
    }
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "by-name-%zu", i);
        BENCH_UNTIL(bench_count(rig->bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) > 2);
        bench_pause(rig->bench, name);
        BENCH_UNTIL(bench_count(rig->bench, name, MR_LEDGER_OPEN) == 0);
        bench_check(rig->bench, name, bench_row(rig->bench, name, 0).planned_ms);
        bench_delete(rig->bench, name);
    }
    rig_check(rig);
}

/* They leave in order, and what they have in hand is ended before. */
static void leave(size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        program_stop(&rig->workers[i], 0);
}

static void test_69_the_app_is_joined_when_workers_leave(void **state)
{
    enum { MOST = 6 };
    (void)state;
    come_to(MOST, MOST / 2);
    leave(2, MOST);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, 2));
    int64_t since_ms = bench_now_ms(rig->bench);
    while (!rig_is_cut(rig, 1)) {
        assert_true(bench_now_ms(rig->bench) - since_ms < 60 * 1000);
        bench_sleep_ms(100);
    }
    printf("69: joined %lld ms after the last worker had left\n",
           (long long)(bench_now_ms(rig->bench) - since_ms));
    rig_check(rig);
}

static void test_71_cut_and_joined_under_load(void **state)
{
    (void)state;
    size_t rounds = rig_full() ? 5 : 1;
    come_to(2, 1);
    rig_check(rig);
    rig_load(rig, rig_full() ? 100 : 30, "250ms", 5 * TASKS);
    for (size_t i = 0; i < rounds; i++) {
        for (size_t j = 2; j < 6; j++)
            rig_work(rig, j);
        (void)cut_ms(3);
        leave(2, 6);
        int64_t since_ms = bench_now_ms(rig->bench);
        while (!rig_is_cut(rig, 1) && bench_now_ms(rig->bench) - since_ms < 60 * 1000)
            bench_sleep_ms(100);
        assert_true(rig_is_cut(rig, 1));
    }
    rig_check(rig);
}

int names_split(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_67_the_third_worker_cuts_the_app),
        cmocka_unit_test(test_68_the_fourth_does_not_and_the_fifth_does),
        cmocka_unit_test(test_70_a_new_worker_starts_and_people_name_the_app_only),
        cmocka_unit_test(test_69_the_app_is_joined_when_workers_leave),
        cmocka_unit_test(test_71_cut_and_joined_under_load),
    };
    rig = rig_make(RIG_NAMESERVERS, RIG_STRAIGHT);
    rig->lease_ms = RIG_LONG_LEASE_MS; /* who is late when the app is cut is given no part of it */
    int failed = NAMES_RUN("split", tests);
    rig_free(rig);
    return failed;
}
