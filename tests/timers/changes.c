/* SPDX-License-Identifier: Apache-2.0 */
/* Timers that are changed while they run, and firings that people act upon at another server than the app's. */
#include <stdio.h>

#include "timer/apply_internal.h"
#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL
#define ALL    0
#define BIT    MR_LEDGER_BIT

static size_t owner_of(struct bench *bench)
{
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        struct mr_scheduler_figures figures = {0};
        if (bench->servers[i].scheduler != NULL)
            mr_scheduler_figures(bench->servers[i].scheduler, &figures);
        if (figures.apps_owned > 0)
            return i;
    }
    return BENCH_SERVERS_MAX;
}

/* Two servers; answers which of them has not got the app. */
static size_t serve_two(struct bench *bench)
{
    bench_put(bench, BENCH_TIMER("of the app", MR_TIMER_MANUAL, ""));
    bench_serve(bench, 1);
    BENCH_UNTIL(owner_of(bench) < BENCH_SERVERS_MAX);
    return 1 - owner_of(bench);
}

static void acted(struct mr_firing_act *act)
{
    mr_event_set(act->arg);
}

static enum mr_err act_at(struct bench *bench, size_t server, enum mr_timer_verb verb,
                          const char *name, int64_t planned_ms)
{
    struct mr_event event;
    struct mr_firing_act act = {.done = acted,
                                .arg = &event,
                                .verb = verb,
                                .app = MR_SLICE_LIT(MR_TIMER_APP),
                                .name = mr_slice_str(name),
                                .planned_ms = planned_ms};
    mr_event_init(&event);
    mr_scheduler_act(bench->servers[server].scheduler, &act);
    assert_true(mr_event_wait(&event, BENCH_WAIT_MS * MR_NS_PER_MS));
    return act.err;
}

/* As the applier does it: what the next time becomes follows from what is there. */
static void change(struct bench *bench, const char *name, bool paused, const char *payload)
{
    struct mr_store_timer_key key = {.app = MR_SLICE_LIT(MR_TIMER_APP), .name = mr_slice_str(name)};
    struct mr_store_timer_get get = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
    struct mr_arena arena = {0};
    struct item item = {0};
    struct mr_buf definition = {0};
    struct mr_store_applied result;
    assert_int_equal(mr_store_call(bench->store, &get.req), MR_OK);
    const struct mr_store_timer *row = &get.timers[0];
    assert_int_equal(mr_timer_decode(row->definition, &arena, &item.options), MR_OK);
    item.options.paused = paused;
    item.options.payload = mr_slice_str(payload);
    item.op.created_ms = row->created_ms;
    assert_int_equal(mr_timer_encode(&item.options, &definition), MR_OK);
    struct mr_store_apply apply = {.app = row->app,
                                   .name = row->name,
                                   .uid = row->uid,
                                   .version = row->version + 1,
                                   .verb = MR_APPLY_PUT,
                                   .definition = mr_buf_slice(&definition)};
    assert_int_equal(apply_plan(bench->zones, &item, row, bench_now_ms(bench), &apply, NULL),
                     MR_OK);
    struct mr_store_timers_apply req = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = &apply, .n = 1, .results = &result};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        if (bench->servers[i].scheduler != NULL)
            mr_scheduler_changed(bench->servers[i].scheduler, key.app);
    }
    mr_store_req_done(&req.req);
    mr_store_req_done(&get.req);
    mr_buf_done(&definition);
    mr_arena_done(&arena);
}

static struct bench_timer timer_of(struct bench *bench, const char *name)
{
    struct bench_timer timer;
    assert_true(bench_timer(bench, name, &timer));
    return timer;
}

static bool has_ended(struct bench *bench, size_t run)
{
    return bench_runs(bench) > run && bench_run(bench, run).end_us != 0;
}

/* ---- after-done: each run is followed by the next, whatever happens during it ---------------- */

static void test_50_after_done_goes_on_when_it_is_changed_during_a_run(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "200ms", .payload = MR_SLICE_LIT("sleep 400")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    change(bench, "t", false, "sleep 401");
    BENCH_UNTIL(bench_runs(bench) == 3);
    for (size_t i = 1; i < 3; i++) {
        assert_true(bench_run(bench, i).begin_us - bench_run(bench, i - 1).end_us >= 198000);
        assert_string_equal(bench_run(bench, i).payload, "sleep 401");
    }
    bench_free(bench);
}

static void test_50_after_done_goes_on_when_it_was_paused_during_a_run(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "100ms", .payload = MR_SLICE_LIT("sleep 300")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    change(bench, "t", true, "sleep 800");
    BENCH_UNTIL(bench_count(bench, "t", MR_LEDGER_OPEN) == 0);
    change(bench, "t", false, "sleep 800");
    BENCH_UNTIL(bench_runs(bench) == 2);
    /* It goes on during a run: the next one waits for the end of that all the same. */
    change(bench, "t", true, "");
    change(bench, "t", false, "");
    BENCH_UNTIL(bench_runs(bench) == 3);
    assert_true(bench_run(bench, 2).begin_us - bench_run(bench, 1).end_us >= 98000);
    BENCH_UNTIL(bench_runs(bench) >= 5);
    bench_free(bench);
}

static void test_50_after_done_goes_on_when_there_was_no_worker(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "200ms", .strategy = MR_STRATEGY_BROADCAST));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_FAILED)) == 2);
    struct mr_worker *worker = bench_hire(bench, "a");
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) >= 2);
    mr_worker_free(worker);
    bench_free(bench);
}

/* Two runs of it end at the same moment, as far as the ledger is concerned. */
static void test_50_after_done_goes_on_when_two_runs_end_together(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "300ms", .payload = MR_SLICE_LIT("sleep 500")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    assert_int_equal(act_at(bench, 0, MR_TIMER_RUN, "t", bench_now_ms(bench)), MR_OK);
    BENCH_UNTIL(bench_runs(bench) == 2);
    bench_unserve(bench, 0); /* both results wait for the next one */
    BENCH_UNTIL(has_ended(bench, 0) && has_ended(bench, 1));
    bench_serve(bench, 0);
    BENCH_UNTIL(bench_runs(bench) == 4);
    bench_free(bench);
}

/* Who fires it hears nothing of the second run, and of the first one's end while the second goes on. */
static void test_50_after_done_goes_on_when_another_server_has_run_it_meanwhile(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    size_t other = serve_two(bench);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "100ms", .payload = MR_SLICE_LIT("sleep 600")));
    for (size_t runs = 1; runs < 7; runs += 2) {
        BENCH_UNTIL(bench_runs(bench) == runs);
        bench_sleep_ms(200);
        assert_int_equal(act_at(bench, other, MR_TIMER_RUN, "t", bench_now_ms(bench)), MR_OK);
    }
    BENCH_UNTIL(bench_runs(bench) == 7);
    bench_free(bench);
}

static void test_53_after_done_is_finished_when_its_time_is_over_during_a_run(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench,
              BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "100ms", .payload = MR_SLICE_LIT("sleep 500"),
                          .end_ms = bench_now_ms(bench) + 400));
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    BENCH_UNTIL(timer_of(bench, "t").state == MR_ROW_FINISHED);
    assert_int_equal(bench_count(bench, "t", ALL), 1);
    bench_free(bench);
}

/* ---- acts at another server ------------------------------------------------------------------ */

static void test_5_the_next_one_is_cancelled_at_another_server(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    size_t other = serve_two(bench);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "1s"));
    bench_settle(bench);
    int64_t first_ms = timer_of(bench, "t").next_ms;
    assert_int_equal(act_at(bench, other, MR_TIMER_STOP, "t", 0), MR_OK);
    int64_t second_ms = timer_of(bench, "t").next_ms;
    assert_true(second_ms > first_ms);
    BENCH_UNTIL(bench_runs(bench) == 1);
    assert_int_equal(bench_row(bench, "t", 0).state, MR_LEDGER_CANCELLED);
    assert_int_equal(bench_row(bench, "t", 1).planned_ms, second_ms);
    bench_free(bench);
}

static void test_91_one_that_waits_for_its_turn_is_cancelled_at_any_server(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    size_t other = serve_two(bench);
    for (size_t round = 0; round < 2; round++) {
        const char *name = round == 0 ? "at the owner" : "at another";
        size_t server = round == 0 ? 1 - other : other;
        bench_put(bench, BENCH_TIMER(name, MR_TIMER_EVERY, "300ms", .overlap = MR_OVERLAP_QUEUE,
                                     .payload = MR_SLICE_LIT("sleep 60000")));
        BENCH_UNTIL(bench_count(bench, name, BIT(MR_LEDGER_SKIPPED)) >= 1);
        int64_t planned_ms = bench_row(bench, name, 1).planned_ms;
        assert_int_equal(bench_row(bench, name, 1).state, MR_LEDGER_WAITING);
        assert_int_equal(act_at(bench, server, MR_TIMER_STOP, name, planned_ms), MR_OK);
        assert_int_equal(bench_row(bench, name, 1).state, MR_LEDGER_CANCELLED);
        /* There is room for the next one to wait. */
        BENCH_UNTIL(bench_count(bench, name, BIT(MR_LEDGER_WAITING)) == 1);
        bench_delete(bench, name);
    }
    bench_free(bench);
}

static void test_91_one_that_no_worker_has_begun_is_stopped_at_another_server(void **state)
{
    (void)state;
    struct bench *bench = bench_new(0);
    size_t other = serve_two(bench);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_AFTER_DONE, "300ms"));
    for (size_t i = 0; i < 3; i++) {
        BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_DISPATCHED)) == 1);
        int64_t planned_ms = bench_row(bench, "t", i).planned_ms;
        assert_int_equal(act_at(bench, i == 1 ? 1 - other : other, MR_TIMER_STOP, "t", planned_ms),
                         MR_OK);
        BENCH_UNTIL(bench_row(bench, "t", i).state == MR_LEDGER_CANCELLED);
    }
    bench_free(bench);
}

/* Nothing is fired over it, also right after it. */
static void test_85_a_run_by_hand_at_another_server_counts(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    size_t other = serve_two(bench);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "250ms", .overlap = MR_OVERLAP_SKIP,
                                 .start_ms = bench_now_ms(bench) + 700,
                                 .payload = MR_SLICE_LIT("sleep 60000")));
    bench_settle(bench);
    assert_int_equal(act_at(bench, other, MR_TIMER_RUN, "t", bench_now_ms(bench)), MR_OK);
    BENCH_UNTIL(bench_count(bench, "t", BIT(MR_LEDGER_SKIPPED)) >= 3);
    assert_int_equal(bench_count(bench, "t", MR_LEDGER_OPEN), 1);
    assert_int_equal(bench_runs(bench), 1);
    /* And nothing by hand over what was fired. */
    bench_delete(bench, "t");
    bench_put(bench, BENCH_TIMER("u", MR_TIMER_DELAY, "10ms", .overlap = MR_OVERLAP_SKIP,
                                 .payload = MR_SLICE_LIT("sleep 60000")));
    BENCH_UNTIL(bench_count(bench, "u", MR_LEDGER_OPEN) == 1);
    assert_int_equal(act_at(bench, other, MR_TIMER_RUN, "u", bench_now_ms(bench)), MR_OK);
    assert_int_equal(bench_count(bench, "u", BIT(MR_LEDGER_SKIPPED)), 1);
    bench_free(bench);
}

int timers_changes(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_50_after_done_goes_on_when_it_is_changed_during_a_run),
        cmocka_unit_test(test_50_after_done_goes_on_when_it_was_paused_during_a_run),
        cmocka_unit_test(test_50_after_done_goes_on_when_there_was_no_worker),
        cmocka_unit_test(test_50_after_done_goes_on_when_two_runs_end_together),
        cmocka_unit_test(test_50_after_done_goes_on_when_another_server_has_run_it_meanwhile),
        cmocka_unit_test(test_53_after_done_is_finished_when_its_time_is_over_during_a_run),
        cmocka_unit_test(test_5_the_next_one_is_cancelled_at_another_server),
        cmocka_unit_test(test_91_one_that_waits_for_its_turn_is_cancelled_at_any_server),
        cmocka_unit_test(test_91_one_that_no_worker_has_begun_is_stopped_at_another_server),
        cmocka_unit_test(test_85_a_run_by_hand_at_another_server_counts),
    };
    return timers_run("changes", tests, sizeof tests / sizeof *tests);
}
