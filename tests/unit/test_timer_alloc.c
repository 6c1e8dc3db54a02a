/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedulers that find no memory, again and again: what one of them cannot do now it does later, and nothing is fired twice for
 * that, or not at all. One allocation of eight fails, of the threads of schedulers alone.
 */
#include "support/themes.h"
#include "timer/plan_view.h"
#include "timers/bench.h"
#include "unit/failing_alloc.h"

enum { TIMERS = 12, SERVERS = 3, ROUNDS = FAILING_ALLOC ? 4 : 1 };

/* ---- what the registry would say --------------------------------------------------------------- */

static void say(struct bench *bench, size_t workers)
{
    struct mr_loads loads[SERVERS] = {0};
    struct mr_view_server servers[SERVERS] = {0};
    struct mr_view_app app = {MR_SLICE_LIT(MR_TIMER_APP), workers};
    struct mr_view view = {
        .servers = servers, .servers_n = SERVERS, .apps = &app, .apps_n = 1, .complete = true};
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(mr_scheduler_loads(bench->servers[i].scheduler, &loads[i]), MR_OK);
        servers[i] = (struct mr_view_server){
            .server = loads[i].server, .loads = loads[i].loads, .loads_n = loads[i].n};
    }
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(mr_scheduler_set_view(bench->servers[i].scheduler, &view), MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        mr_loads_done(&loads[i]);
}

static bool is_cut(struct bench *bench, size_t parts)
{
    struct mr_plan_look look = {0};
    uint64_t slots = 0;
    bool has_owners = true;
    assert_int_equal(mr_plan_look(bench->store, &look), MR_OK);
    for (size_t i = 0; i < look.parts_n; i++) {
        slots |= look.parts[i].slots;
        has_owners = has_owners && look.parts[i].owner.len > 0;
    }
    size_t n = look.parts_n;
    mr_plan_look_done(&look);
    return n == parts && has_owners && slots == UINT64_MAX;
}

/* ---- the tests --------------------------------------------------------------------------------- */

static struct bench *start(void)
{
    struct bench *bench = bench_new(0);
    bench->settings = (struct mr_timer_settings){.lease_ms = 3 * 1000,
                                                 .renew_ms = 300,
                                                 .give_ms = 30 * 1000, /* all is given */
                                                 .merge_ms = 300,
                                                 .reconcile_ms = 300,
                                                 .cool_ms = 300};
    bench_unserve(bench, 0);
    bench->homes = true;
    for (size_t i = 0; i < SERVERS; i++)
        bench_serve(bench, i);
    return bench;
}

/* Where the machine has so much to do that one of them stands still for longer than its lease, the next one goes on with what
 * it had handed out. */
static bool lost_any(struct bench *bench)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < SERVERS; i++) {
        struct mr_scheduler_figures figures;
        mr_scheduler_figures(bench->servers[i].scheduler, &figures);
        lost += figures.lost;
    }
    return lost > 0;
}

static void servers_without_memory_share_an_app_and_fire_each_time_once(void **state)
{
    (void)state;
    struct bench *bench = start();
    bench_put_many(bench,
                   BENCH_TIMER("", MR_TIMER_EVERY, "400ms", .misfire = MR_MISFIRE_ALL,
                               .payload = MR_SLICE_LIT("sleep 100")),
                   "t-%zu", TIMERS);
    fail_alloc_of("mr-timers", 8);
    for (size_t i = 0; i < ROUNDS; i++) {
        say(bench, 2 * SERVERS);
        BENCH_UNTIL(is_cut(bench, SERVERS));
        size_t runs = bench_runs(bench);
        BENCH_UNTIL(bench_runs(bench) > runs + TIMERS);
        say(bench, 1);
        BENCH_UNTIL(is_cut(bench, 1));
    }
    long failed = fail_alloc_of_stop();
    assert_true(failed > ROUNDS || !FAILING_ALLOC);
    bench->repeats = lost_any(bench);
    bench_check_all(bench, TIMERS, bench_now_ms(bench));
    bench_free(bench);
}

/* They are read while every other allocation fails: then there is nothing that would have them read again. */
static void timers_that_found_no_memory_are_not_forgotten(void **state)
{
    enum { MANY = 60 };
    (void)state;
    struct bench *bench = bench_new(0);
    bench_put(bench, BENCH_TIMER("first", MR_TIMER_EVERY, "400ms"));
    BENCH_UNTIL(bench_count(bench, "first", MR_LEDGER_OPEN) > 0);
    fail_alloc_of("mr-timers", 2);
    bench_put_many(bench,
                   BENCH_TIMER("", MR_TIMER_EVERY, "1s", .misfire = MR_MISFIRE_ALL,
                               .payload = MR_SLICE_LIT("sleep 100")),
                   "t-%zu", MANY);
    BENCH_UNTIL(!FAILING_ALLOC || atomic_load(&allocs_of_failed) > MANY);
    (void)fail_alloc_of_stop();
    int64_t to_ms = bench_now_ms(bench);
    char name[32];
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_caught_up(bench, name, to_ms));
    }
    bench_free(bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timers_that_found_no_memory_are_not_forgotten),
        cmocka_unit_test(servers_without_memory_share_an_app_and_fire_each_time_once),
    };
    themes_prepare(); /* what they say of it is not heard */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
