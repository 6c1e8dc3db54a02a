/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of firings: overlaps, failures, ends that nobody tells of, and what people do to them. */
#include <stdio.h>

#include "base/text.h"
#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL
#define ALL    0
#define BIT    MR_LEDGER_BIT

static int64_t ms_of(const char *text)
{
    int64_t ms;
    assert_int_equal(mr_parse_time_ms(text, &ms), MR_OK);
    return ms;
}

static int64_t next_of(struct bench *bench, const char *name)
{
    struct bench_timer timer;
    assert_true(bench_timer(bench, name, &timer));
    return timer.next_ms;
}

static size_t ended(struct bench *bench)
{
    size_t n = 0;
    for (size_t i = 0; i < bench_runs(bench); i++)
        n += bench_run(bench, i).end_us != 0;
    return n;
}

/* ---- rates and delays ------------------------------------------------------------------------ */

static void test_49_a_fixed_rate_does_not_wait_for_runs(void **state)
{
    (void)state;
    size_t n = rig_full() ? 1200 : 6;
    struct bench *bench = bench_new(16);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_EVERY, "500ms", .payload = MR_SLICE_LIT("sleep 2000")));
    int64_t first_ms = next_of(bench, "t");
    for (size_t seen = 0; seen < n; bench_sleep_ms(10))
        seen = bench_runs(bench);
    bench_unserve(bench, 0);
    size_t late = 0, late_max = n / 10 + 1; /* beside other tests one may be, and one in ten */
    for (size_t i = 0; i < n; i++) {
        int64_t off_us =
            bench_run(bench, i).begin_us - (first_ms + (int64_t)i * 500) * MR_US_PER_MS;
        late += off_us > 50000;
        if (off_us < 0 || off_us > 500000 || late > late_max)
            fail_msg("run %zu: %lld us off, %zu late", i, (long long)off_us, late);
    }
    bench_check(bench, "t", first_ms + (int64_t)(n - 1) * 500);
    bench_free(bench);
}

static void test_50_a_fixed_delay_counts_from_ends(void **state)
{
    (void)state;
    size_t n = rig_full() ? 20 : 2;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "1s", .payload = MR_SLICE_LIT("sleep 700")));
    for (size_t i = 1; i <= n; i++)
        BENCH_UNTIL(bench_runs(bench) == i);
    for (size_t i = 1; i < n; i++) {
        int64_t gap_us = bench_run(bench, i).begin_us - bench_run(bench, i - 1).end_us;
        if (gap_us < 1000 * 1000 - 2000 || gap_us > (rig_alone() ? 1050 : 3000) * 1000)
            fail_msg("gap %zu: %lld us", i, (long long)gap_us);
    }
    assert_int_equal(bench_count(bench, "t", ALL), n);
    bench_free(bench);
}

/* The server that has fired is gone when the run ends. */
static void test_50_after_done_goes_on_at_the_next_server(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "300ms", .payload = MR_SLICE_LIT("sleep 300")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    bench_unserve(bench, 0);
    BENCH_UNTIL(ended(bench) == 1);
    bench_serve(bench, 1);
    BENCH_UNTIL(bench_runs(bench) == 3);
    bench_serve(bench, 0);
    bench_free(bench);
}

/* ---- overlaps -------------------------------------------------------------------------------- */

static struct bench *overlapping(enum mr_overlap overlap, const char *payload)
{
    struct bench *bench = bench_new(8);
    bench_put(bench,
              BENCH_TIMER("other", MR_TIMER_EVERY, "200ms",
                          .payload = MR_SLICE_LIT("sleep 5000"))); /* counts for nobody else */
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "250ms", .overlap = overlap,
                                 .max_running = overlap == MR_OVERLAP_ALLOW ? 1 : 0,
                                 .payload = mr_slice_str(payload)));
    BENCH_UNTIL(bench_count(bench, "t", ALL) > 0);
    bench_delete(bench, "other");
    return bench;
}

static void test_85_skip_fires_when_nothing_runs(void **state)
{
    (void)state;
    struct bench *bench = overlapping(MR_OVERLAP_SKIP, "sleep 600");
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) == 2);
    assert_true(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)) >= 3);
    assert_string_equal(bench_row(bench, "t", 1).reason, "the last run is not over");
    assert_int_equal(bench_row(bench, "t", 1).state, MR_LEDGER_SKIPPED);
    bench_check(bench, "t", bench_row(bench, "t", 3).planned_ms);
    bench_free(bench);
}

static void test_85_allow_has_a_limit_if_it_is_told_one(void **state)
{
    (void)state;
    struct bench *bench = overlapping(MR_OVERLAP_ALLOW, "sleep 600");
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)) >= 2);
    assert_int_equal(bench_row(bench, "t", 1).state, MR_LEDGER_SKIPPED);
    bench_free(bench);
}

static void test_85_queue_lets_one_wait(void **state)
{
    (void)state;
    struct bench *bench = overlapping(MR_OVERLAP_QUEUE, "sleep 850");
    struct mr_scheduler_figures figures;
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)) >= 1);
    assert_int_equal(bench_row(bench, "t", 1).state, MR_LEDGER_WAITING);
    assert_int_equal(bench_row(bench, "t", 2).state, MR_LEDGER_SKIPPED);
    /* It comes when the one before it has ended. */
    BENCH_UNTIL(bench_row(bench, "t", 1).state == MR_LEDGER_SUCCEEDED);
    bench_check(bench, "t", bench_row(bench, "t", 2).planned_ms);
    bench_figures(bench, &figures);
    assert_int_equal(figures.recovered, 0); /* its turn has come, that is all */
    bench_free(bench);
}

/* The owner goes while one waits for its turn. */
static void test_85_who_waits_for_its_turn_comes_at_the_next_server(void **state)
{
    (void)state;
    struct bench *bench = overlapping(MR_OVERLAP_QUEUE, "sleep 750");
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)) >= 1);
    bench_unserve(bench, 0);
    bench_serve(bench, 1);
    BENCH_UNTIL(bench_row(bench, "t", 1).state == MR_LEDGER_SUCCEEDED);
    bench_serve(bench, 0);
    bench_check(bench, "t", bench_row(bench, "t", 1).planned_ms);
    bench_free(bench);
}

static void test_85_cancel_stops_the_one_that_runs(void **state)
{
    (void)state;
    struct bench *bench = overlapping(MR_OVERLAP_CANCEL, "sleep 30000");
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_STOPPED)) >= 2);
    assert_int_equal(bench_row(bench, "t", 0).state, MR_LEDGER_STOPPED);
    assert_int_equal(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)), 0);
    bench_delete(bench, "t");
    bench_free(bench);
}

static void nobody_stops(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void test_84_without_a_worker_it_waits(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_DISPATCHED)) == 1);
    bench_settle(bench);
    assert_int_equal(bench_row(bench, "t", 0).state, MR_LEDGER_DISPATCHED);
    bench_work(bench, 1);
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    bench_free(bench);
}

static void test_84_it_waits_no_longer_than_it_is_told(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .expire_ms = 300));
    bench_put(bench, BENCH_TIMER("kept", MR_TIMER_DELAY, "10ms", .expire_ms = 60 * SECOND));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    assert_string_equal(bench_row(bench, "t", 0).reason, "no worker took it in time");
    BENCH_UNTIL(bench->alarms[MR_ALARM_NO_WORKER] == 1);
    bench_work(bench, 1);
    BENCH_UNTIL(bench_count(bench, "kept", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    assert_int_equal(bench_runs(bench), 1);
    bench_free(bench);
}

/* A broadcast to nobody. */
static void test_84_without_anybody_to_tell_it_fails(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .strategy = MR_STRATEGY_BROADCAST));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    assert_string_equal(bench_row(bench, "t", 0).reason, "no worker");
    BENCH_UNTIL(bench->alarms[MR_ALARM_NO_WORKER] == 1);
    bench_free(bench);
}

static void test_83_a_broadcast_reaches_every_worker_once(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    struct mr_worker *workers[3];
    for (size_t i = 0; i < 3; i++)
        workers[i] = bench_hire(bench, (const char *const[]){"a", "b", "c"}[i]);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "500ms", .strategy = MR_STRATEGY_BROADCAST,
                                 .payload = MR_SLICE_LIT("sleep 200")));
    BENCH_UNTIL(bench_runs(bench) == 3);
    assert_int_equal(bench_count(bench, "t", MR_LEDGER_OPEN), 1); /* until the last one has ended */
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    bench_settle(bench);
    assert_int_equal(bench_runs(bench), 3);
    assert_string_not_equal(bench_run(bench, 0).id, bench_run(bench, 1).id);
    for (size_t i = 0; i < 3; i++)
        mr_worker_free(workers[i]);
    bench_free(bench);
}

/* Their names fit into no row. */
static void test_83_a_broadcast_to_too_many_workers_fails_and_says_so(void **state)
{
    enum { WORKERS = 600, NAME_LEN = 100 };
    (void)state;
    struct bench *bench = bench_new(0);
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    for (size_t i = 0; i < WORKERS; i++) {
        char name[NAME_LEN + 1];
        snprintf(name, sizeof name, "%0*zu", NAME_LEN, i);
        struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                        .role = MR_NODE_WORKER,
                                        .name = mr_slice_str(name),
                                        .queues = &queue,
                                        .queues_n = 1,
                                        .slots = 1,
                                        .lease_ms = 60 * SECOND,
                                        .events = {.stop = nobody_stops}};
        assert_int_equal(mr_broker_call(bench->broker, &open.req), MR_OK);
        mr_req_done(&open.req);
    }
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .strategy = MR_STRATEGY_BROADCAST));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    assert_string_equal(bench_row(bench, "t", 0).reason, "too many workers for one broadcast");
    BENCH_UNTIL(bench->alarms[MR_ALARM_NO_WORKER] == 1);
    bench_free(bench);
}

/* A worker that is lost: it took the task, and is not heard of any more. */
static void test_87_a_run_whose_worker_is_lost_is_repeated(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_WORKER,
                                    .name = MR_SLICE_LIT("lost"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 500,
                                    .events = {.stop = nobody_stops}};
    assert_int_equal(mr_broker_call(bench->broker, &open.req), MR_OK);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = BENCH_WAIT_MS};
    assert_int_equal(mr_broker_call(bench->broker, &take.req), MR_OK);
    mr_broker_begun(bench->broker, open.first_slot, take.leases->epoch);
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    mr_req_done(&open.req);
    bench_work(bench, 1);
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    assert_int_equal(bench_row(bench, "t", 0).attempt, 2);
    assert_int_equal(bench_runs(bench), 1); /* the first one never came to its handler */
    bench_free(bench);
}

static void test_86_failures_are_tried_again_then_it_has_failed(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .max_retry = 3,
                                 .payload = MR_SLICE_LIT("fail")));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    assert_int_equal(bench_runs(bench), 4);
    assert_int_equal(bench_row(bench, "t", 0).attempt, 4);
    assert_string_equal(bench_row(bench, "t", 0).reason, "as told");
    for (size_t i = 1; i < 4; i++) { /* levels of the bench: 100, 200, 400 ms */
        int64_t gap_ms =
            (bench_run(bench, i).begin_us - bench_run(bench, i - 1).end_us) / MR_US_PER_MS;
        assert_in_range(gap_ms, 100 << (i - 1), (100 << (i - 1)) + 500);
    }
    BENCH_UNTIL(bench->alarms[MR_ALARM_FAILED] == 1);
    bench_put(bench, BENCH_TIMER("second", MR_TIMER_DELAY, "10ms", .max_retry = 3,
                                 .payload = MR_SLICE_LIT("fail 1")));
    BENCH_UNTIL(bench_count(bench, "second", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    assert_int_equal(bench_row(bench, "second", 0).attempt, 2);
    assert_int_equal(bench_runs(bench), 6);
    bench_free(bench);
}

static void test_89_an_end_without_a_server_is_kept_for_the_next(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .payload = MR_SLICE_LIT("sleep 200")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    bench_unserve(bench, 0);
    BENCH_UNTIL(ended(bench) == 1);
    bench_unwork(bench); /* has told the broker */
    assert_int_equal(bench_row(bench, "t", 0).state, MR_LEDGER_DISPATCHED);
    bench_serve(bench, 0);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    bench_check(bench, "t", bench_row(bench, "t", 0).planned_ms);
    bench_free(bench);
}

static void test_90_a_timeout_is_a_failure_that_says_so(void **state)
{
    (void)state;
    struct bench *bench = bench_new(1);
    int64_t timeout_ms = rig_full() ? 2000 : 500;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .timeout_ms = timeout_ms,
                                 .max_retry = MR_NO_RETRY, .payload = MR_SLICE_LIT("sleep 60000")));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    struct bench_run run = bench_run(bench, 0);
    assert_true(run.stopped);
    assert_in_range((run.end_us - run.begin_us) / MR_US_PER_MS, timeout_ms - 20, timeout_ms + 500);
    assert_non_null(strstr(bench_row(bench, "t", 0).reason, "time"));
    bench_put(bench, BENCH_TIMER("next", MR_TIMER_DELAY, "1ms")); /* the slot is free */
    BENCH_UNTIL(bench_count(bench, "next", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    bench_free(bench);
}

/* ---- what people do -------------------------------------------------------------------------- */

static void test_91_a_running_one_is_stopped(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .payload = MR_SLICE_LIT("sleep 60000")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    int64_t planned_ms = bench_row(bench, "t", 0).planned_ms;
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "t", planned_ms), MR_OK);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_STOPPED);
    assert_true(bench_run(bench, 0).stopped);
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "t", planned_ms), MR_WRONG_STATE);
    bench_free(bench);
}

static void test_91_a_waiting_one_is_cancelled(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_DISPATCHED)) == 1);
    int64_t planned_ms = bench_row(bench, "t", 0).planned_ms;
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "t", planned_ms), MR_OK);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_CANCELLED);
    bench_work(bench, 1);
    bench_put(bench, BENCH_TIMER("next", MR_TIMER_DELAY, "1ms"));
    BENCH_UNTIL(bench_count(bench, "next", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    assert_int_equal(bench_runs(bench), 1);
    bench_check(bench, "t", planned_ms);
    bench_free(bench);
}

static void test_5_one_that_has_not_come_yet_is_cancelled(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "5s"));
    bench_settle(bench);
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "t", 0), MR_OK);
    bench_go_to(bench, start_ms + 10 * SECOND);
    bench_settle(bench);
    assert_int_equal(bench_runs(bench), 0);
    assert_int_equal(bench_row(bench, "t", 0).state, MR_LEDGER_CANCELLED);
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "t", 0), MR_WRONG_STATE);
    /* One of many is left out; the others come. */
    bench_put(bench, BENCH_TIMER("m", MR_TIMER_EVERY, "5s"));
    bench_settle(bench);
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "m", 0), MR_OK);
    bench_go_to(bench, start_ms + 15 * SECOND);
    bench_settle(bench);
    bench_go_to(bench, start_ms + 20 * SECOND);
    BENCH_UNTIL(bench_runs(bench) == 1);
    assert_int_equal(bench_row(bench, "m", 0).state, MR_LEDGER_CANCELLED);
    BENCH_UNTIL(bench_row(bench, "m", 1).state == MR_LEDGER_SUCCEEDED);
    bench_check(bench, "m", start_ms + 20 * SECOND);
    bench_free(bench);
}

static void test_91_a_failed_one_is_run_again(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .max_retry = MR_NO_RETRY,
                                 .payload = MR_SLICE_LIT("fail")));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 1);
    int64_t planned_ms = bench_row(bench, "t", 0).planned_ms;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    assert_int_equal(bench_act(bench, MR_TIMER_RERUN, "t", planned_ms), MR_OK);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(bench_row(bench, "t", 0).run, 1);
    assert_int_equal(bench_runs(bench), 2);
    assert_int_equal(bench_act(bench, MR_TIMER_RERUN, "t", planned_ms), MR_WRONG_STATE);
    assert_int_equal(bench_act(bench, MR_TIMER_RERUN, "t", planned_ms + 1), MR_NOT_FOUND);
    bench_free(bench);
}

static void test_run_now_is_a_firing_of_its_own(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    int64_t now_ms = bench_now_ms(bench);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_MANUAL, ""));
    assert_int_equal(bench_act(bench, MR_TIMER_RUN, "t", now_ms), MR_OK);
    assert_int_equal(bench_act(bench, MR_TIMER_RUN, "t", now_ms), MR_OK); /* the same once more */
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(bench_row(bench, "t", 0).kind, MR_LEDGER_MANUAL);
    assert_int_equal(bench_count(bench, "t", ALL), 1);
    assert_int_equal(bench_runs(bench), 1);
    assert_int_equal(bench_act(bench, MR_TIMER_RUN, "nobody", now_ms), MR_NOT_FOUND);
    bench_free(bench);
}

/* ---- steps that are repeated ----------------------------------------------------------------- */

static void test_an_end_that_nobody_tells_of_is_found(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench->settings.reconcile_ms = 200;
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_DISPATCHED)) == 1);
    bench_lose_task(bench, "t");
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_FAILED);
    assert_string_equal(bench_row(bench, "t", 0).reason, "its task is gone");
    bench_free(bench);
}

/* A walk through open firings looks at so many. */
enum { WALK = 1000 };

/* Which of them is the last one of a walk: those of one time are in the order of their uids. */
static void find_last(struct bench *bench, char last[16])
{
    struct mr_uuid greatest = {{0}};
    for (size_t i = 0; i < WALK; i++) {
        struct bench_timer timer;
        char name[16];
        snprintf(name, sizeof name, "t-%zu", i);
        assert_true(bench_timer(bench, name, &timer));
        if (memcmp(&timer.uid, &greatest, sizeof greatest) < 0)
            continue;
        greatest = timer.uid;
        snprintf(last, 16, "%s", name);
    }
}

static void pass_a_minute(struct bench *bench)
{
    bench_go_to(bench, bench_now_ms(bench) + 61 * SECOND);
}

/* One walk ends before the last firing; when the next one begins that one is over. Then it begins with the first again. */
static void test_a_walk_that_finds_nothing_more_begins_anew(void **state)
{
    (void)state;
    int64_t start_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    struct bench *bench = bench_new_at(start_ms);
    char last[16];
    bench->settings = (struct mr_timer_settings){.lease_ms = MR_MS_PER_DAY};
    bench_unwork(bench);
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1s"), "t-%zu", WALK);
    bench_put(bench, BENCH_TIMER("behind", MR_TIMER_DELAY, "2s"));
    find_last(bench, last);
    bench_go_to(bench, start_ms + 3 * SECOND);
    BENCH_UNTIL(bench_count(bench, "behind", BIT(MR_LEDGER_DISPATCHED)) == 1 &&
                bench_count(bench, last, BIT(MR_LEDGER_DISPATCHED)) == 1);
    bench_lose_task(bench, last);
    pass_a_minute(bench);
    BENCH_UNTIL(bench_row(bench, last, 0).state == MR_LEDGER_FAILED); /* it has come so far */
    int64_t planned_ms = bench_row(bench, "behind", 0).planned_ms;
    assert_int_equal(bench_act(bench, MR_TIMER_STOP, "behind", planned_ms), MR_OK);
    BENCH_UNTIL(bench_count(bench, "behind", MR_LEDGER_OPEN) == 0);
    const char *first = strcmp(last, "t-0") != 0 ? "t-0" : "t-1";
    bench_lose_task(bench, first);
    BENCH_UNTIL((pass_a_minute(bench), bench_row(bench, first, 0).state == MR_LEDGER_FAILED));
    bench_free(bench);
}

static void enqueue_again(struct bench *bench, const char *id, enum mr_err expected)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("default"), .id = mr_slice_str(id)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(bench->broker, &req.req), MR_OK);
    assert_int_equal(result.err, expected);
    mr_req_done(&req.req);
}

static void test_93_a_firing_that_is_dispatched_again_runs_once(void **state)
{
    (void)state;
    struct bench *bench = bench_new(2);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_DELAY, "10ms", .payload = MR_SLICE_LIT("sleep 300")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    char id[MR_FIRING_ID_MAX + 1];
    snprintf(id, sizeof id, "%s", bench_run(bench, 0).id);
    enqueue_again(bench, id, MR_CONFLICT);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    enqueue_again(bench, id, MR_CONFLICT); /* also after its end */
    bench_settle(bench);
    assert_int_equal(bench_runs(bench), 1);
    bench_free(bench);
}

static void test_99_old_history_is_removed(void **state)
{
    (void)state;
    /* Ends are told by the broker, by the machine's clock: it begins with that. */
    int64_t start_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    struct bench *bench = bench_new_at(start_ms);
    struct mr_scheduler_figures figures;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "1s"));
    bench_put(bench, BENCH_TIMER("later", MR_TIMER_DELAY, "31d"));
    bench_settle(bench);
    bench_go_to(bench, start_ms + SECOND);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    bench_go_to(bench, start_ms + 29 * MR_MS_PER_DAY);
    bench_settle(bench);
    bench_go_to(bench, bench_now_ms(bench) + 61 * SECOND);
    bench_settle(bench);
    assert_int_equal(bench_count(bench, "t", ALL), 1);
    bench_go_to(bench, start_ms + 31 * MR_MS_PER_DAY);
    BENCH_UNTIL(bench_runs(bench) == 2); /* what is due comes meanwhile */
    for (int minute = 0; minute < 3; minute++) {
        bench_go_to(bench, bench_now_ms(bench) + 61 * SECOND);
        bench_settle(bench);
    }
    BENCH_UNTIL(bench_count(bench, "t", ALL) == 0);
    bench_figures(bench, &figures);
    assert_true(figures.retained >= 1);
    bench_free(bench);
}

int timers_running(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_49_a_fixed_rate_does_not_wait_for_runs),
        cmocka_unit_test(test_50_a_fixed_delay_counts_from_ends),
        cmocka_unit_test(test_50_after_done_goes_on_at_the_next_server),
        cmocka_unit_test(test_85_skip_fires_when_nothing_runs),
        cmocka_unit_test(test_85_allow_has_a_limit_if_it_is_told_one),
        cmocka_unit_test(test_85_queue_lets_one_wait),
        cmocka_unit_test(test_85_who_waits_for_its_turn_comes_at_the_next_server),
        cmocka_unit_test(test_85_cancel_stops_the_one_that_runs),
        cmocka_unit_test(test_84_without_a_worker_it_waits),
        cmocka_unit_test(test_84_it_waits_no_longer_than_it_is_told),
        cmocka_unit_test(test_84_without_anybody_to_tell_it_fails),
        cmocka_unit_test(test_83_a_broadcast_reaches_every_worker_once),
        cmocka_unit_test(test_83_a_broadcast_to_too_many_workers_fails_and_says_so),
        cmocka_unit_test(test_87_a_run_whose_worker_is_lost_is_repeated),
        cmocka_unit_test(test_86_failures_are_tried_again_then_it_has_failed),
        cmocka_unit_test(test_89_an_end_without_a_server_is_kept_for_the_next),
        cmocka_unit_test(test_90_a_timeout_is_a_failure_that_says_so),
        cmocka_unit_test(test_91_a_running_one_is_stopped),
        cmocka_unit_test(test_91_a_waiting_one_is_cancelled),
        cmocka_unit_test(test_5_one_that_has_not_come_yet_is_cancelled),
        cmocka_unit_test(test_91_a_failed_one_is_run_again),
        cmocka_unit_test(test_run_now_is_a_firing_of_its_own),
        cmocka_unit_test(test_an_end_that_nobody_tells_of_is_found),
        cmocka_unit_test(test_a_walk_that_finds_nothing_more_begins_anew),
        cmocka_unit_test(test_93_a_firing_that_is_dispatched_again_runs_once),
        cmocka_unit_test(test_99_old_history_is_removed),
    };
    return timers_run("running", tests, sizeof tests / sizeof *tests);
}
