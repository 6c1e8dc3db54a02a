/* SPDX-License-Identifier: Apache-2.0 */
/* H, what concerns the way from a firing to a worker and back: 82, 84, 88, 94. */
#include <dirent.h>
#include <stdio.h>

#include "timers/bench.h"
#include "timers/rig.h"

#define BIT MR_LEDGER_BIT

static size_t threads_now(void)
{
    DIR *dir = opendir("/proc/self/task");
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    (void)closedir(dir);
    return n;
}

static long memory_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    (void)fclose(file);
    return pages * 4;
}

static void await_runs(struct bench *bench, size_t n)
{
    for (size_t before = 0; before < n;) {
        before = bench_runs(bench);
        BENCH_UNTIL(bench_runs(bench) > before || before >= n); /* it goes on */
    }
}

/* Of a firing the broker keeps its task for a day, and the bench its run; nothing else stays. */
static void test_82_many_dispatches_take_no_threads_and_no_memory_of_their_own(void **state)
{
    enum { KEPT_KIB = 1, SLACK_KIB = 48 * 1024 }; /* a sanitizer's quarantine is in the slack */
    size_t n = rig_full() ? 100000 : 1500, timers = rig_full() ? 1000 : 50;
    struct bench *bench = bench_new(8);
    (void)state;
    bench_put_many(
        bench,
        BENCH_TIMER("", MR_TIMER_EVERY, rig_full() ? "1s" : "100ms", .misfire = MR_MISFIRE_ALL),
        "t-%zu", timers);
    await_runs(bench, n / 5);
    size_t threads = threads_now();
    long before_kib = memory_kib();
    await_runs(bench, n);
    int64_t to_ms = bench_now_ms(bench);
    assert_int_equal(threads_now(), threads);
    assert_in_range(memory_kib(), 0, before_kib + SLACK_KIB + (long)n * KEPT_KIB);
    bench_check_all(bench, timers, to_ms);
    bench_free(bench);
}

/* A worker that is cut off in the middle of a run. */
struct lost {
    uint64_t epoch, ref;
    char id[MR_FIRING_ID_MAX + 1];
    _Atomic bool told; /* to stop */
};

static void tell_lost(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct lost *lost = arg;
    lost->told = epoch == lost->epoch && reason == MR_STOP_LOST;
}

static void take_and_be_lost(struct bench *bench, struct lost *lost)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_WORKER,
                                    .name = MR_SLICE_LIT("lost"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 500,
                                    .events = {.stop = tell_lost, .arg = lost}};
    assert_int_equal(mr_broker_call(bench->broker, &open.req), MR_OK);
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = BENCH_WAIT_MS};
    assert_int_equal(mr_broker_call(bench->broker, &take.req), MR_OK);
    assert_int_equal(mr_broker_lease_open(bench->broker, take.leases), MR_OK);
    lost->epoch = take.leases->epoch;
    lost->ref = take.leases->ref;
    (void)snprintf(lost->id, sizeof lost->id, "%.*s", (int)take.leases->task.id.len,
                   (const char *)take.leases->task.id.data);
    mr_broker_begun(bench->broker, open.first_slot, lost->epoch);
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    mr_req_done(&open.req);
}

static void test_88_a_run_that_was_given_to_another_cannot_end_the_firing(void **state)
{
    struct bench *bench = bench_new(0);
    struct lost lost = {.epoch = 0};
    enum mr_err err = MR_OK;
    (void)state;
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .payload = MR_SLICE_LIT("sleep 700")));
    take_and_be_lost(bench, &lost);
    bench_work(bench, 1);
    BENCH_UNTIL(bench_runs(bench) == 1); /* elsewhere */
    BENCH_UNTIL(lost.told);
    /* It is heard of again, and says that it has failed for good. */
    struct mr_finish item = {.id = mr_slice_str(lost.id),
                             .epoch = lost.epoch,
                             .ref = lost.ref,
                             .outcome = MR_FAIL_FOR_GOOD,
                             .error = MR_SLICE_LIT("of the first run")};
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(bench->broker, &finish.req), MR_OK);
    mr_req_done(&finish.req);
    assert_int_equal(err, MR_STALE);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(bench_row(bench, "t", 0).attempt, 2);
    assert_int_equal(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)), 0);
    assert_int_equal(bench_runs(bench), 1);
    bench_free(bench);
}

static void test_84_what_no_worker_took_is_one_alarm(void **state)
{
    struct bench *bench = bench_new(0);
    (void)state;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .expire_ms = 100));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    BENCH_UNTIL(bench->alarms[MR_ALARM_NO_WORKER] == 1);
    bench_settle(bench);
    assert_int_equal(bench->alarms[MR_ALARM_FAILED], 0);
    /* Also of what somebody has run by hand. */
    bench_put(bench, BENCH_TIMER("all", MR_TIMER_MANUAL, "", .strategy = MR_STRATEGY_BROADCAST));
    assert_int_equal(bench_act(bench, MR_TIMER_RUN, "all", bench_now_ms(bench)), MR_OK);
    BENCH_UNTIL(bench_count(bench, "all", BIT(MR_LEDGER_FAILED)) == 1);
    BENCH_UNTIL(bench->alarms[MR_ALARM_NO_WORKER] == 2);
    assert_int_equal(bench->alarms[MR_ALARM_FAILED], 0);
    bench_free(bench);
}

/* Each of two servers goes with grace and comes back, in turn. */
static void test_94_servers_restarted_one_by_one_fail_nothing_and_miss_nothing(void **state)
{
    enum { TIMERS = 20 };
    size_t rounds = rig_full() ? 20 : 3;
    struct bench *bench = bench_new(8);
    char name[16];
    (void)state;
    bench_serve(bench, 1);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "100ms", .misfire = MR_MISFIRE_ALL),
                   "t-%zu", TIMERS);
    for (size_t i = 0; i < rounds; i++) {
        await_runs(bench, bench_runs(bench) + 3 * TIMERS);
        bench_unserve(bench, i % 2);
        await_runs(bench, bench_runs(bench) + 3 * TIMERS); /* the other one fires */
        bench_serve(bench, i % 2);
    }
    bench_check_all(bench, TIMERS, bench_now_ms(bench));
    for (size_t i = 0; i < TIMERS; i++) {
        (void)snprintf(name, sizeof name, "t-%zu", i);
        assert_int_equal(bench_count(bench, name, BIT(MR_LEDGER_FAILED) | BIT(MR_LEDGER_MISFIRED)),
                         0);
    }
    bench_free(bench);
}

int timers_dispatch(void)
{
    static struct CMUnitTest tests[] = {
        cmocka_unit_test(test_84_what_no_worker_took_is_one_alarm),
        cmocka_unit_test(test_82_many_dispatches_take_no_threads_and_no_memory_of_their_own),
        cmocka_unit_test(test_94_servers_restarted_one_by_one_fail_nothing_and_miss_nothing),
        cmocka_unit_test(test_88_a_run_that_was_given_to_another_cannot_end_the_firing),
    };
    return TIMERS_RUN("dispatch", tests);
}
