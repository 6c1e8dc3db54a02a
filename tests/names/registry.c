/* SPDX-License-Identifier: Apache-2.0 */
/* 76 to 80: nameservers that are cut off, die and come back, while everything goes on. One story on one rig, as in split.c. */
#include <stdio.h>

#include "client/client.h"
#include "names/rig.h"

enum { TIMERS = 6, TASKS = 12, WORKERS = 3 }; /* with one more it is cut as before */

static struct rig *rig;
static struct mr_client *producer; /* that knows the nameservers alone */
static uint64_t made_n;            /* by it, each of them accepted */

/* A load; before the first one all begins, so that each test may be the first. */
static void load(void)
{
    bool begins = rig->nameservers[0].pid == 0;
    if (begins)
        rig_start(rig, RIG_SERVERS, WORKERS); /* and each is seen by all */
    rig_load(rig, TIMERS, "400ms", TASKS);
    if (begins) {
        BENCH_UNTIL(rig_is_cut(rig, 2));
        producer = rig_names_client(rig);
    }
}

static int64_t now_ms(void)
{
    return bench_now_ms(rig->bench);
}

static void produce(void)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("made")};
    struct mr_enqueue_result result = {.err = MR_OK};
    assert_int_equal(mr_enqueue(producer, &task, 1, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
    made_n++;
}

/* Each of those that were accepted is at one server. */
static void check_made(void)
{
    uint64_t n = 0;
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        struct mr_queue_info info = {.name = ""};
        struct mr_client *client = rig_client(rig, i);
        enum mr_err err = mr_queue_get(client, MR_SLICE_LIT("made"), &info);
        assert_true(err == MR_OK || err == MR_NOT_FOUND);
        n += err == MR_OK ? info.counts[MR_PENDING] : 0;
        mr_client_close(client);
    }
    assert_int_equal(n, made_n);
}

/* Nothing is cut, joined or given away meanwhile, all fires, and producers are served. */
static void go_on_for(int64_t ms, const struct rig_plan *plan)
{
    int64_t until_ms = now_ms() + ms;
    while (now_ms() < until_ms) {
        struct rig_plan is = rig_plan(rig);
        assert_int_equal(is.parts, plan->parts);
        assert_int_equal(is.moves, plan->moves);
        produce();
        bench_sleep_ms(100);
    }
    BENCH_UNTIL(rig_fires(rig, until_ms));
    check_made();
}

static void test_76_workers_of_one_machine_are_as_many_as_they_are(void **state)
{
    (void)state;
    load();
    assert_true(rig_is_seen(rig, RIG_SERVERS, WORKERS));
    assert_true(rig_is_agreed(rig));
    rig_check(rig);
}

static void test_77_who_lives_stays_and_who_was_killed_goes_everywhere(void **state)
{
    (void)state;
    load();
    int64_t until_ms = now_ms() + (rig_full() ? 10 * 60 * 1000 : 3500);
    while (now_ms() < until_ms) { /* longer than a time-to-live */
        assert_true(rig_is_seen(rig, RIG_SERVERS, WORKERS));
        bench_sleep_ms(100);
    }
    rig_work(rig, WORKERS);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS + 1));
    program_kill(&rig->workers[WORKERS]);
    rig->repeats = true;
    int64_t since_ms = now_ms();
    while (!rig_is_seen(rig, RIG_SERVERS, WORKERS)) {
        assert_true(now_ms() - since_ms < 70 * 1000);
        bench_sleep_ms(50);
    }
    printf("77: a killed worker was gone everywhere after %lld ms\n",
           (long long)(now_ms() - since_ms));
    rig_check(rig);
}

static void test_79_who_registers_at_one_is_seen_by_all(void **state)
{
    (void)state;
    load();
    for (size_t i = 0; i < RIG_NAMESERVERS; i++) {
        rig_work_at(rig, WORKERS, i);
        BENCH_UNTIL(rig_eye_workers(rig, i) == WORKERS + 1);
        int64_t since_ms = now_ms();
        BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS + 1));
        assert_true(now_ms() - since_ms < 2000 || !rig_judges_time());
        program_stop(&rig->workers[WORKERS], 0);
        BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS));
    }
    rig_check(rig);
}

/* One is cut off from the other two. Workers come on either side; who came before is still there for all. */
static void test_79_after_a_partition_all_see_the_same(void **state)
{
    (void)state;
    load();
    struct rig_plan plan = rig_plan(rig);
    rig_cut(rig, 0);
    rig_work_at(rig, WORKERS, 0);
    BENCH_UNTIL(rig_eye_workers(rig, 0) == WORKERS + 1);
    assert_false(rig_is_agreed(rig));
    int64_t until_ms = now_ms() + (rig_full() ? 60 * 1000 : 1500);
    while (now_ms() < until_ms)
        bench_sleep_ms(50);
    rig_heal(rig);
    int64_t since_ms = now_ms();
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS + 1) && rig_is_agreed(rig));
    int64_t took_ms = now_ms() - since_ms;
    printf("79: all views were equal %lld ms after the partition, with %d ms between digests\n",
           (long long)took_ms, rig_interval_ms());
    /* A way that was cut is tried again after half a second at most; what it carries first is a digest. */
    assert_true(took_ms < rig_interval_ms() + 500 || !rig_judges_time());
    assert_int_equal(rig_plan(rig).parts, plan.parts);
    assert_int_equal(rig_plan(rig).moves, plan.moves);
    program_stop(&rig->workers[WORKERS], 0);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS));
    rig_check(rig);
}

/* With nothing new there are digests and signs of life, for each other nameserver; no more, however long ago a partition was. */
static void test_79_what_nameservers_tell_each_other_is_bounded(void **state)
{
    enum { WAYS = RIG_NAMESERVERS * (RIG_NAMESERVERS - 1), DIGEST = 2048 + 256, SIGN = 1024 };
    (void)state;
    load();
    rig_cut(rig, 0);
    rig_heal(rig);
    BENCH_UNTIL(rig_is_agreed(rig));
    rig_check(rig);
    int64_t since_ms = now_ms(), register_ms = rig_full() ? 10 * 1000 : 500;
    uint64_t before = rig_passed(rig);
    bench_sleep_ms(rig_full() ? 60 * 1000 : 3000);
    uint64_t passed = rig_passed(rig) - before;
    int64_t ms = now_ms() - since_ms;
    uint64_t digests = (uint64_t)(ms / rig_interval_ms() + 2);
    uint64_t signs = (uint64_t)(ms / register_ms + 2) * (RIG_SERVERS + WORKERS);
    uint64_t most = WAYS * digests * DIGEST + (RIG_NAMESERVERS - 1) * signs * SIGN;
    printf("79: %llu bytes in %lld ms, of %llu at most\n", (unsigned long long)passed,
           (long long)ms, (unsigned long long)most);
    assert_true(passed > 0 && passed < most);
}

static void test_80_nobody_notices_that_one_nameserver_dies(void **state)
{
    (void)state;
    load();
    struct rig_plan plan = rig_plan(rig);
    for (size_t i = 0; i < (rig_full() ? RIG_NAMESERVERS : 1); i++) {
        program_kill(&rig->nameservers[i]);
        go_on_for(rig_full() ? 70 * 1000 : 3500, &plan);
        assert_true(rig_is_seen(rig, RIG_SERVERS, WORKERS));
        rig_name(rig, i);
        BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS) && rig_is_agreed(rig));
    }
    rig_check(rig);
}

static void test_78_the_only_nameserver_restarts(void **state)
{
    (void)state;
    load();
    struct rig_plan plan = rig_plan(rig);
    for (size_t i = 0; i < RIG_NAMESERVERS; i++)
        program_kill(&rig->nameservers[RIG_NAMESERVERS - 1 - i]);
    go_on_for(rig_full() ? 60 * 1000 : 1500, &plan);
    rig_name(rig, 0);
    int64_t since_ms = now_ms();
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS));
    assert_true(now_ms() - since_ms < 20 * 1000);
    go_on_for(rig_full() ? 60 * 1000 : 3500, &plan);
    rig_check(rig);
}

int names_registry(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_76_workers_of_one_machine_are_as_many_as_they_are),
        cmocka_unit_test(test_77_who_lives_stays_and_who_was_killed_goes_everywhere),
        cmocka_unit_test(test_79_who_registers_at_one_is_seen_by_all),
        cmocka_unit_test(test_79_after_a_partition_all_see_the_same),
        cmocka_unit_test(test_79_what_nameservers_tell_each_other_is_bounded),
        cmocka_unit_test(test_80_nobody_notices_that_one_nameserver_dies),
        cmocka_unit_test(test_78_the_only_nameserver_restarts),
    };
    rig = rig_make(RIG_NAMESERVERS, RIG_CUTTABLE);
    int failed = NAMES_RUN("registry", tests);
    mr_client_close(producer);
    rig_free(rig);
    return failed;
}
