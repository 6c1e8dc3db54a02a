/* SPDX-License-Identifier: Apache-2.0 */
/* 83: to which worker firings go, as the workers see it. A broadcast is in running.c. */
#include "timers/bench.h"
#include "timers/rig.h"
#include "worker/worker.h"

enum { CREW = 3, FALL_MS = 300 };

#define BIT(state) MR_LEDGER_BIT(state)

/* A worker that counts its runs. */
struct member {
    struct mr_worker *worker;
    _Atomic size_t ran;
    _Atomic bool busy; /* its runs last while it is set */
};

static enum mr_outcome count(struct mr_run *run, void *arg)
{
    struct member *member = arg;
    member->ran++;
    while (member->busy && !mr_run_wait_cancelled(run, 5))
        ;
    return MR_DONE;
}

static void hire(struct bench *bench, struct member *member, const char *name, const char *tag,
                 uint32_t slots)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_slice tags[] = {mr_slice_str(tag != NULL ? tag : "")};
    struct mr_worker_options options = {.node = mr_slice_str(name),
                                        .queues = &queue,
                                        .queues_n = 1,
                                        .tags = tags,
                                        .tags_n = tag != NULL,
                                        .fall_ms = FALL_MS,
                                        .slots = slots,
                                        .drain_ms = 1000};
    assert_int_equal(mr_worker_new_on(bench->broker, &options, &member->worker), MR_OK);
    assert_int_equal(mr_worker_handle(member->worker, "*", count, member), MR_OK);
    assert_int_equal(mr_worker_start(member->worker), MR_OK);
}

/* Three of them, the first one with the tag "gpu". */
static struct bench *begin(struct member crew[CREW])
{
    static const char *const names[CREW] = {"a", "b", "c"};
    struct bench *bench = bench_new(0);
    for (size_t i = 0; i < CREW; i++) {
        crew[i].worker = NULL;
        crew[i].ran = 0;
        crew[i].busy = false;
        hire(bench, &crew[i], names[i], i == 0 ? "gpu" : NULL, 4);
    }
    return bench;
}

static void end(struct bench *bench, struct member crew[CREW])
{
    for (size_t i = 0; i < CREW; i++) {
        crew[i].busy = false;
        mr_worker_free(crew[i].worker);
    }
    bench_free(bench);
}

/* A timer that fires n times, and has. */
static void fire(struct bench *bench, const char *name, uint32_t n, enum mr_strategy strategy,
                 const char *target)
{
    bench_put(bench, BENCH_TIMER(name, MR_TIMER_EVERY, "50ms", .times = n, .strategy = strategy,
                                 .overlap = MR_OVERLAP_ALLOW, .target = mr_slice_str(target)));
    BENCH_UNTIL(bench_count(bench, name, BIT(MR_LEDGER_SUCCEEDED)) == n);
}

static void test_83_round_robin_reaches_each_worker_in_turn(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    fire(bench, "t", 9, MR_STRATEGY_ROUND_ROBIN, "");
    for (size_t i = 0; i < CREW; i++)
        assert_int_equal(crew[i].ran, 3);
    end(bench, crew);
}

static void test_83_the_healthiest_is_one_that_is_not_busy(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    struct mr_enqueue_result results[8];
    struct mr_task_options tasks[8];
    for (size_t i = 0; i < 8; i++) /* all slots of two of them */
        tasks[i] =
            (struct mr_task_options){.queue = mr_slice_str(i % 2 == 0 ? "default@a" : "default@b")};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = 8, .results = results};
    crew[0].busy = crew[1].busy = true;
    assert_int_equal(mr_broker_call(bench->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    BENCH_UNTIL(crew[0].ran == 4 && crew[1].ran == 4);
    fire(bench, "t", 6, MR_STRATEGY_HEALTHIEST, "");
    assert_int_equal(crew[2].ran, 6);
    end(bench, crew);
}

static void test_83_a_key_stays_with_its_worker(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    fire(bench, "one", 6, MR_STRATEGY_KEY, "customer-1");
    size_t before[CREW], used = 0;
    for (size_t i = 0; i < CREW; i++) {
        before[i] = crew[i].ran;
        used += before[i] > 0;
        assert_true(before[i] == 0 || before[i] == 6);
    }
    assert_int_equal(used, 1);
    fire(bench, "two", 4, MR_STRATEGY_KEY, "customer-1"); /* the key, not the timer */
    for (size_t i = 0; i < CREW; i++)
        assert_int_equal(crew[i].ran, before[i] + (before[i] > 0 ? 4 : 0));
    end(bench, crew);
}

static void test_83_a_tag_is_for_those_who_have_it(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    fire(bench, "t", 5, MR_STRATEGY_TAG, "gpu");
    assert_int_equal(crew[0].ran, 5);
    assert_int_equal(crew[1].ran + crew[2].ran, 0);
    end(bench, crew);
}

static void test_83_whom_nobody_is_there_for_falls_to_any_worker(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    mr_mono since = mr_mono_now(mr_clock_system());
    fire(bench, "t", 1, MR_STRATEGY_TAG, "nobody");
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns >= FALL_MS * MR_NS_PER_MS);
    assert_int_equal(crew[0].ran + crew[1].ran + crew[2].ran, 1);
    end(bench, crew);
}

static void test_83_any_worker_may_have_it(void **state)
{
    (void)state;
    struct member crew[CREW];
    struct bench *bench = begin(crew);
    fire(bench, "t", 10, MR_STRATEGY_ANY, "");
    assert_int_equal(crew[0].ran + crew[1].ran + crew[2].ran, 10);
    end(bench, crew);
}

int timers_strategies(void)
{
    static struct CMUnitTest tests[] = {
        cmocka_unit_test(test_83_round_robin_reaches_each_worker_in_turn),
        cmocka_unit_test(test_83_the_healthiest_is_one_that_is_not_busy),
        cmocka_unit_test(test_83_a_key_stays_with_its_worker),
        cmocka_unit_test(test_83_a_tag_is_for_those_who_have_it),
        cmocka_unit_test(test_83_whom_nobody_is_there_for_falls_to_any_worker),
        cmocka_unit_test(test_83_any_worker_may_have_it),
    };
    return timers_run("strategies", tests, sizeof tests / sizeof tests[0]);
}
