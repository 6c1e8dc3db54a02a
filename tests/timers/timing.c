/* SPDX-License-Identifier: Apache-2.0 */
/* When timers fire: on the machine's clock where it is about precision, else on one that the test moves. */
#include <stdio.h>

#include "base/text.h"
#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define ALL    0

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

/* Goes on to each planned time up to to_ms, and a moment before it: nothing is early, and each comes. */
static size_t go_through(struct bench *bench, const char *name, int64_t to_ms)
{
    size_t n = bench_count(bench, name, ALL);
    for (;;) {
        int64_t next_ms = next_of(bench, name);
        if (next_ms > to_ms) {
            if (to_ms > bench_now_ms(bench))
                bench_go_to(bench, to_ms);
            bench_settle(bench);
            assert_int_equal(bench_count(bench, name, ALL), n);
            return n;
        }
        if (next_ms - 1 > bench_now_ms(bench)) {
            bench_go_to(bench, next_ms - 1);
            bench_settle(bench);
            assert_int_equal(bench_count(bench, name, ALL), n);
        }
        bench_go_to(bench, next_ms);
        n++;
        /* The lease ended on the way: who did not get it at the first look gets it at the next, for which time has to pass. */
        BENCH_UNTIL(bench_count(bench, name, ALL) == n ||
                    (bench_go_to(bench, bench_now_ms(bench) + 100), false));
        BENCH_UNTIL(next_of(bench, name) > next_ms);
    }
}

static void test_2_a_cron_does_not_fire_before_its_first_match(void **state)
{
    (void)state;
    struct bench *bench = bench_new_at(ms_of("2026-03-02T08:00:52Z"));
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_CRON, "1 8 * * *"));
    bench_settle(bench);
    bench_go_to(bench, ms_of("2026-03-02T08:01:00Z") - 1);
    bench_settle(bench);
    assert_int_equal(bench_count(bench, "t", ALL), 0);
    bench_go_to(bench, ms_of("2026-03-02T08:01:00Z"));
    BENCH_UNTIL(bench_runs(bench) == 1);
    bench_check(bench, "t", bench_now_ms(bench));
    bench_free(bench);
}

static void test_4_a_change_inside_of_the_window_takes_effect(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("old", MR_TIMER_DELAY, "3s", .payload = MR_SLICE_LIT("old")));
    bench_put(bench, BENCH_TIMER("paused", MR_TIMER_DELAY, "3s"));
    bench_put(bench, BENCH_TIMER("gone", MR_TIMER_DELAY, "3s"));
    bench_settle(bench);
    bench_go_to(bench, start_ms + 2 * SECOND);
    bench_put(bench, BENCH_TIMER("old", MR_TIMER_DELAY, "3s", .payload = MR_SLICE_LIT("new")));
    bench_put(bench, BENCH_TIMER("paused", MR_TIMER_DELAY, "3s", .paused = true));
    bench_delete(bench, "gone");
    bench_go_to(bench, start_ms + 3 * SECOND);
    BENCH_UNTIL(bench_runs(bench) == 1);
    bench_go_to(bench, start_ms + MINUTE);
    bench_settle(bench);
    assert_int_equal(bench_runs(bench), 1);
    assert_string_equal(bench_run(bench, 0).payload, "new");
    bench_free(bench);
}

/* Of a change that another server has applied nobody tells this one. */
static void test_4_a_change_by_another_server_takes_effect(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench, BENCH_TIMER("a", MR_TIMER_DELAY, "2s500ms", .payload = MR_SLICE_LIT("old")));
    bench_put(bench, BENCH_TIMER("b", MR_TIMER_DELAY, "2s500ms"));
    struct mr_scheduler *scheduler = bench->servers[0].scheduler;
    bench->servers[0].scheduler = NULL; /* it is not told */
    bench_put(bench, BENCH_TIMER("a", MR_TIMER_DELAY, "2s500ms", .payload = MR_SLICE_LIT("new")));
    bench_put(bench, BENCH_TIMER("c", MR_TIMER_DELAY, "2s500ms"));
    bench_delete(bench, "b");
    BENCH_UNTIL(bench_runs(bench) == 2);
    bench->servers[0].scheduler = scheduler;
    bench_settle(bench);
    assert_int_equal(bench_count(bench, "a", ALL), 1);
    assert_int_equal(bench_count(bench, "c", ALL), 1);
    for (size_t i = 0; i < 2; i++)
        assert_string_not_equal(bench_run(bench, i).payload, "old");
    bench_free(bench);
}

/* ---- by the machine's clock ------------------------------------------------------------------ */

static void test_47_cron_every_second(void **state)
{
    (void)state;
    size_t seconds = rig_full() ? 60 : 4;
    struct bench *bench = bench_new(4);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_CRON, "* * * * * *"));
    int64_t first_ms = next_of(bench, "t");
    int64_t last_ms = first_ms + (int64_t)(seconds - 1) * SECOND;
    while (!bench_caught_up(bench, "t", last_ms))
        bench_sleep_ms(20);
    bench_pause(bench, "t");
    BENCH_UNTIL(bench_count(bench, "t", MR_LEDGER_OPEN) == 0);
    assert_true(bench_count(bench, "t", ALL) >= seconds);
    bench_check(bench, "t", last_ms);
    printf("47: lateness p50 %llu us, p99 %llu us\n",
           (unsigned long long)bench_lateness_us(bench, 50),
           (unsigned long long)bench_lateness_us(bench, 99));
    /* Beside other tests it says how busy they are; that it comes at all within its second is judged there, too. */
    assert_true(bench_lateness_us(bench, 99) < (rig_alone() ? 20000 : 1000000));
    bench_free(bench);
}

/* ---- by a clock that the test moves ---------------------------------------------------------- */

static void test_48_cron_every_five_seconds(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_CRON, "*/5 * * * * *"));
    assert_int_equal(go_through(bench, "t", start_ms + 2 * MINUTE), 24);
    BENCH_UNTIL(bench_count(bench, "t", MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) == 24);
    bench_check(bench, "t", start_ms + 2 * MINUTE);
    bench_free(bench);
}

static void test_51_one_shots_are_on_time(void **state)
{
    (void)state;
    static const char *const delays[] = {"1ms", "999ms", "1s",  "59s900ms", "60s",
                                         "61s", "65s",   "70s", "2h"};
    static const int64_t due_ms[] = {1, 999, 1000, 59900, 60000, 61000, 65000, 70000, 7200000};
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    for (size_t i = 0; i < 9; i++)
        bench_put(bench, BENCH_TIMER(delays[i], MR_TIMER_DELAY, delays[i]));
    for (size_t i = 0; i < 9; i++) {
        bench_go_to(bench, start_ms + due_ms[i] - 1);
        bench_settle(bench);
        assert_int_equal(bench_count(bench, delays[i], ALL), 0);
        bench_go_to(bench, start_ms + due_ms[i]);
        BENCH_UNTIL(bench_runs(bench) == i + 1);
        struct bench_row row = bench_row(bench, delays[i], 0);
        assert_int_equal(row.planned_ms, start_ms + due_ms[i]);
        assert_true(row.fired_ms - row.planned_ms < 50);
        struct bench_timer timer;
        assert_true(bench_timer(bench, delays[i], &timer));
        assert_int_equal(timer.state, MR_ROW_FINISHED);
    }
    bench_free(bench);
}

static void test_52_a_daily_interval_over_a_week(void **state)
{
    (void)state;
    int64_t monday_ms = ms_of("2026-03-02T00:00:00Z");
    int days = rig_full() ? 7 : 1;
    struct bench *bench = bench_new_at(monday_ms);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DAILY, "09:00-18:00/10m@mon-fri"));
    int64_t to_ms = monday_ms + days * 24 * HOUR - 1;
    assert_int_equal(go_through(bench, "t", to_ms), (days < 5 ? days : 5) * 55);
    bench_check(bench, "t", to_ms);
    bench_free(bench);
}

static void test_53_nothing_is_fired_outside_of_start_and_end(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "10s", .start_ms = start_ms + MINUTE,
                                 .end_ms = start_ms + 2 * MINUTE));
    assert_int_equal(next_of(bench, "t"), start_ms + MINUTE);
    assert_int_equal(go_through(bench, "t", start_ms + 10 * MINUTE), 7);
    struct bench_timer timer;
    assert_true(bench_timer(bench, "t", &timer));
    assert_int_equal(timer.state, MR_ROW_FINISHED);
    assert_int_equal(timer.fired, 7);
    bench_check(bench, "t", start_ms + 10 * MINUTE);
    bench_free(bench);
}

static void test_55_the_same_cron_in_two_zones(void **state)
{
    (void)state;
    struct bench *bench = bench_new_at(ms_of("2026-03-28T00:00:00Z"));
    bench_put(bench, BENCH_TIMER("berlin", MR_TIMER_CRON, "30 2 * * *",
                                 .tz = MR_SLICE_LIT("Europe/Berlin")));
    bench_put(bench,
              BENCH_TIMER("tokyo", MR_TIMER_CRON, "30 2 * * *", .tz = MR_SLICE_LIT("Asia/Tokyo")));
    assert_int_equal(go_through(bench, "berlin", ms_of("2026-03-30T12:00:00Z")), 3);
    assert_int_equal(bench_row(bench, "berlin", 0).planned_ms, ms_of("2026-03-28T01:30:00Z"));
    assert_int_equal(bench_row(bench, "berlin", 1).planned_ms, ms_of("2026-03-29T01:00:00Z"));
    assert_int_equal(bench_row(bench, "berlin", 2).planned_ms, ms_of("2026-03-30T00:30:00Z"));
    BENCH_UNTIL(bench_count(bench, "tokyo", ALL) >= 2);
    bench_check(bench, "tokyo", ms_of("2026-03-29T18:00:00Z"));
    bench_free(bench);
    /* The hour that comes twice. */
    bench = bench_new_at(ms_of("2026-10-24T20:00:00Z"));
    bench_put(bench, BENCH_TIMER("berlin", MR_TIMER_CRON, "30 2 * * *",
                                 .tz = MR_SLICE_LIT("Europe/Berlin")));
    assert_int_equal(go_through(bench, "berlin", ms_of("2026-10-25T12:00:00Z")), 1);
    assert_int_equal(bench_row(bench, "berlin", 0).planned_ms, ms_of("2026-10-25T00:30:00Z"));
    bench_free(bench);
}

static void test_56_steps_of_the_wall_clock_repeat_nothing(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    struct mr_scheduler_figures figures;
    bench_put(bench, BENCH_TIMER("once", MR_TIMER_EVERY, "10m"));
    bench_put(bench, BENCH_TIMER("all", MR_TIMER_EVERY, "10m", .misfire = MR_MISFIRE_ALL));
    bench_put(bench, BENCH_TIMER("skip", MR_TIMER_EVERY, "10m", .misfire = MR_MISFIRE_SKIP));
    assert_int_equal(go_through(bench, "once", start_ms + 15 * MINUTE), 1);
    BENCH_UNTIL(bench_count(bench, "all", ALL) == 1 && bench_count(bench, "skip", ALL) == 1);
    bench_set_wall(bench, HOUR); /* 09:15; 08:20 to 09:10 were jumped over */
    BENCH_UNTIL(bench_count(bench, "once", ALL) == 3 && bench_count(bench, "all", ALL) == 7 &&
                bench_count(bench, "skip", ALL) == 2);
    assert_int_equal(bench_row(bench, "once", 2).kind, MR_LEDGER_CAUGHT_UP);
    assert_int_equal(bench_row(bench, "once", 2).planned_ms, start_ms + 70 * MINUTE);
    assert_int_equal(bench_row(bench, "skip", 1).until_ms, start_ms + 70 * MINUTE);
    bench_set_wall(bench, -HOUR); /* 08:15 again */
    bench_settle(bench);
    bench_go_to(bench, start_ms + 79 * MINUTE);
    bench_settle(bench);
    assert_int_equal(bench_count(bench, "once", ALL), 3);
    assert_int_equal(bench_count(bench, "all", ALL), 7);
    bench_go_to(bench, start_ms + 80 * MINUTE);
    BENCH_UNTIL(bench_count(bench, "once", ALL) == 4 && bench_count(bench, "all", ALL) == 8);
    BENCH_UNTIL(bench_count(bench, "all", MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) == 8);
    for (const char *const *name = (const char *const[]){"once", "all", "skip", NULL};
         *name != NULL; name++)
        bench_check(bench, *name, start_ms + 80 * MINUTE);
    bench_figures(bench, &figures);
    assert_true(figures.clock_steps >= 2);
    bench_free(bench);
}

/* What this process has in memory, in MiB. */
static long memory_mib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
    (void)fclose(file);
    return pages * 4096 / 1024 / 1024;
}

static void test_58_many_timers_cost_little(void **state)
{
    (void)state;
    size_t n = rig_alone() ? 1000000 : rig_full() ? 100000 : 5000;
    struct bench *bench = bench_new(4);
    struct mr_scheduler_figures figures;
    bench_unserve(bench, 0);
    bench_put_spread(bench, n, bench_now_ms(bench) + HOUR, 7 * 24 * HOUR);
    bench_put(bench,
              BENCH_TIMER("probe", MR_TIMER_CRON, "* * * * * *", .misfire = MR_MISFIRE_SKIP));
    long before_mib = memory_mib();
    mr_mono since = mr_mono_now(mr_clock_system());
    bench_serve(bench, 0);
    BENCH_UNTIL(bench_count(bench, "probe", MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) > 0);
    int64_t start_ms = (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
    size_t seen = bench_runs(bench);
    BENCH_UNTIL(bench_runs(bench) >= seen + (rig_full() ? 15 : 1));
    bench_figures(bench, &figures);
    printf("58: %zu timers, first firing after %lld ms, %llu in memory, %ld MiB more, lateness p99 "
           "%llu us\n",
           n, (long long)start_ms, (unsigned long long)figures.in_memory, memory_mib() - before_mib,
           (unsigned long long)bench_lateness_us(bench, 99));
    assert_true(start_ms < 10 * SECOND);
    assert_true(figures.in_memory < 100);
    assert_true(memory_mib() - before_mib < 300);
    assert_true(!rig_alone() || bench_lateness_us(bench, 99) < 20000);
    bench_free(bench);
}

/* All of them are overdue when a server comes. */
static void test_58_what_is_overdue_is_in_memory_a_part_at_a_time(void **state)
{
    (void)state;
    enum { MANY = 6000, MAX = 100, PAGE = 1000 };
    struct bench *bench = bench_new(0);
    struct mr_scheduler_figures figures;
    uint64_t most = 0;
    bench_unserve(bench, 0);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "t-%zu", MANY);
    bench->settings.backlog_max = MAX;
    bench_serve(bench, 0);
    mr_mono since = mr_mono_now(mr_clock_system());
    for (figures.fired = 0; figures.fired < MANY;) { /* without a pause: a part is soon gone */
        bench_figures(bench, &figures);
        most = figures.in_memory > most ? figures.in_memory : most;
        assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < BENCH_WAIT_MS * MR_NS_PER_MS);
    }
    assert_true(most > 0 && most <= MAX + PAGE);
    assert_int_equal(figures.fired, MANY);
    bench_free(bench);
}

static void test_59_misfires_follow_the_policy(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:30Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("once", MR_TIMER_CRON, "* * * * *"));
    bench_put(bench, BENCH_TIMER("skip", MR_TIMER_CRON, "* * * * *", .misfire = MR_MISFIRE_SKIP));
    bench_put(bench, BENCH_TIMER("all", MR_TIMER_CRON, "* * * * *", .misfire = MR_MISFIRE_ALL));
    bench_settle(bench);
    bench_unserve(bench, 0);
    bench_go_to(bench, start_ms + 5 * MINUTE);
    bench_serve(bench, 0);
    BENCH_UNTIL(bench_runs(bench) == 1 + 5);
    BENCH_UNTIL(bench_count(bench, "skip", ALL) == 1 && bench_count(bench, "once", ALL) == 2);
    assert_int_equal(bench_row(bench, "skip", 0).state, MR_LEDGER_MISFIRED);
    assert_int_equal(bench_row(bench, "skip", 0).until_ms - bench_row(bench, "skip", 0).planned_ms,
                     4 * MINUTE);
    bench_go_to(bench, start_ms + 5 * MINUTE + 30 * SECOND); /* on schedule again */
    BENCH_UNTIL(bench_runs(bench) == 6 + 3);
    for (const char *const *name = (const char *const[]){"once", "all", "skip", NULL};
         *name != NULL; name++) {
        BENCH_UNTIL(bench_count(bench, *name, MR_LEDGER_OPEN) == 0);
        bench_check(bench, *name, bench_now_ms(bench));
    }
    assert_true(bench->alarms[MR_ALARM_MISFIRED] == 2);
    bench_free(bench);
}

/* There are more than fit into the transactions that are under way at a time; for the last ones it takes seconds. */
static void test_59_who_is_there_in_time_and_busy_misses_nothing(void **state)
{
    (void)state;
    enum { MANY = 7000 };
    int64_t start_ms = ms_of("2026-03-02T08:00:00Z");
    struct bench *bench = bench_new_at(start_ms);
    struct mr_scheduler_figures figures = {0};
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "5s", .misfire = MR_MISFIRE_SKIP),
                   "t-%zu", MANY);
    BENCH_UNTIL((bench_figures(bench, &figures), figures.in_memory == MANY));
    bench_go_to(bench, start_ms + 5 * SECOND);
    BENCH_UNTIL((bench_figures(bench, &figures), figures.fired > 0)); /* and half is under way */
    bench_go_to(bench, start_ms + 7 * SECOND);
    BENCH_UNTIL((bench_figures(bench, &figures), figures.fired + figures.misfired >= MANY));
    assert_int_equal(figures.misfired, 0);
    bench_free(bench);
}

/* Who looks at two clocks may be held up between them, for as long as the machine likes. */
static void test_56_who_is_held_up_at_a_clock_is_not_late_for_that(void **state)
{
    (void)state;
    enum { LOOKS = 40 };
    struct bench *bench = bench_new_at(ms_of("2026-03-02T08:00:00Z"));
    for (int i = 0; i < LOOKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "t-%d", i);
        bench_leap(bench, 4 * SECOND, i);
        bench_put(bench, BENCH_TIMER(name, MR_TIMER_DELAY, "8s"));
        BENCH_UNTIL(atomic_load(&bench->clock.leap_us) == 0 || (bench_settle(bench), false));
        bench_settle(bench);
        if (bench_now_ms(bench) < next_of(bench, name))
            bench_go_to(bench, next_of(bench, name));
        BENCH_UNTIL(bench_runs(bench) == (size_t)i + 1);
        bench_check(bench, name, bench_now_ms(bench));
    }
    bench_free(bench);
}

static void test_jitter_comes_later_and_is_no_misfire(void **state)
{
    (void)state;
    int64_t start_ms = ms_of("2026-03-02T08:00:30Z");
    struct bench *bench = bench_new_at(start_ms);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_CRON, "* * * * *", .jitter_ms = 30 * SECOND,
                                 .misfire = MR_MISFIRE_SKIP));
    for (int64_t at_ms = start_ms; at_ms <= start_ms + 5 * MINUTE; at_ms += 500) {
        bench_go_to(bench, at_ms);
        bench_settle(bench);
    }
    size_t n;
    struct bench_row *rows = bench_rows(bench, "t", &n);
    int64_t late_ms = 0;
    assert_int_equal(n, 5);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(rows[i].kind, MR_LEDGER_PLANNED);
        assert_true(rows[i].state != MR_LEDGER_MISFIRED);
        late_ms += rows[i].fired_ms - rows[i].planned_ms;
    }
    assert_true(late_ms > SECOND);
    free(rows);
    bench_free(bench);
}

int timers_timing(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_2_a_cron_does_not_fire_before_its_first_match),
        cmocka_unit_test(test_4_a_change_inside_of_the_window_takes_effect),
        cmocka_unit_test(test_4_a_change_by_another_server_takes_effect),
        cmocka_unit_test(test_47_cron_every_second),
        cmocka_unit_test(test_48_cron_every_five_seconds),
        cmocka_unit_test(test_51_one_shots_are_on_time),
        cmocka_unit_test(test_52_a_daily_interval_over_a_week),
        cmocka_unit_test(test_53_nothing_is_fired_outside_of_start_and_end),
        cmocka_unit_test(test_55_the_same_cron_in_two_zones),
        cmocka_unit_test(test_56_steps_of_the_wall_clock_repeat_nothing),
        cmocka_unit_test(test_56_who_is_held_up_at_a_clock_is_not_late_for_that),
        cmocka_unit_test(test_58_many_timers_cost_little),
        cmocka_unit_test(test_58_what_is_overdue_is_in_memory_a_part_at_a_time),
        cmocka_unit_test(test_59_misfires_follow_the_policy),
        cmocka_unit_test(test_59_who_is_there_in_time_and_busy_misses_nothing),
        cmocka_unit_test(test_jitter_comes_later_and_is_no_misfire),
    };
    return timers_run("timing", tests, sizeof tests / sizeof *tests);
}
