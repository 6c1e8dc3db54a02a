/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of planned times that are due: on time, late, and against a walk through all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "base/text.h"
#include "timer/plan.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define SECOND       1000LL
#define MINUTE       (60 * SECOND)
#define HOUR         (60 * MINUTE)
#define T0           1700000000000LL /* on a second; all tests begin here */

enum { ROWS_MAX = 5000 };

static struct mr_zones *zones;
static const struct mr_uuid uid = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};

static int open_zones(void **state)
{
    (void)state;
    return mr_zones_new(mr_fs_system(), NULL, &zones) == MR_OK ? 0 : -1;
}

static int close_zones(void **state)
{
    (void)state;
    mr_zones_free(zones);
    return 0;
}

/* A timer, and the rows that it has got. */
struct timer {
    struct mr_rule *rule;
    struct mr_plan_policy policy;
    struct mr_plan_state state;
    struct mr_plan_step rows[ROWS_MAX];
    size_t rows_n;
    bool finished;
};

static struct timer *timer_of(const struct mr_rule_options *options, enum mr_misfire misfire)
{
    struct timer *t = calloc(1, sizeof *t);
    struct mr_rule_options with = *options;
    struct mr_detail detail = {0};
    assert_non_null(t);
    with.created_ms = T0;
    if (mr_rule_new(zones, &with, &t->rule, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    t->policy = (struct mr_plan_policy){misfire, SECOND, 24 * HOUR, 1000};
    t->state.next_ms = mr_rule_next(t->rule, 0, T0);
    return t;
}

static struct timer *simple(enum mr_timer_kind kind, const char *expression,
                            enum mr_misfire misfire)
{
    return timer_of(&(struct mr_rule_options){.kind = kind, .expression = mr_slice_str(expression)},
                    misfire);
}

static void timer_free(struct timer *t)
{
    mr_rule_free(t->rule);
    free(t);
}

/* Takes all steps that are due at this time; answers how many. */
static size_t look(struct timer *t, int64_t now_ms)
{
    size_t before = t->rows_n;
    for (;;) {
        struct mr_plan_step step = mr_plan(t->rule, &uid, &t->policy, &t->state, now_ms);
        if (step.kind == MR_PLAN_NONE)
            return t->rows_n - before;
        assert_false(t->finished);
        assert_int_equal(step.planned_ms, t->state.next_ms);
        assert_true(step.until_ms >= step.planned_ms && step.until_ms <= now_ms);
        assert_true(step.after.next_ms > step.until_ms);
        assert_true(t->rows_n < ROWS_MAX);
        t->rows[t->rows_n++] = step;
        t->state = step.after;
        t->finished = step.finished;
    }
}

static size_t count(const struct timer *t, enum mr_plan_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < t->rows_n; i++)
        n += t->rows[i].kind == kind;
    return n;
}

static void assert_row(const struct timer *t, size_t i, enum mr_plan_kind kind, int64_t planned_ms,
                       int64_t until_ms)
{
    assert_true(i < t->rows_n);
    assert_int_equal(t->rows[i].kind, kind);
    assert_int_equal(t->rows[i].planned_ms, T0 + planned_ms);
    assert_int_equal(t->rows[i].until_ms, T0 + until_ms);
}

/* ---- on time -------------------------------------------------------------------------------- */

static void test_nothing_is_fired_before_its_time(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_EVERY, "8s", MR_MISFIRE_ONCE);
    assert_int_equal(look(t, T0), 0);
    assert_int_equal(look(t, T0 + 8 * SECOND - 1), 0);
    assert_int_equal(look(t, T0 + 8 * SECOND), 1);
    assert_row(t, 0, MR_PLAN_FIRE, 8 * SECOND, 8 * SECOND);
    timer_free(t);
}

static void test_each_second_is_fired_once_whenever_one_looks(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_CRON, "* * * * * *", MR_MISFIRE_ONCE);
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    for (int64_t now = T0; now < T0 + MINUTE;) {
        look(t, now);
        now += (int64_t)mr_rand_below(&rand, 900);
    }
    look(t, T0 + MINUTE);
    assert_int_equal(t->rows_n, 60);
    for (size_t i = 0; i < 60; i++)
        assert_row(t, i, MR_PLAN_FIRE, (int64_t)(i + 1) * SECOND, (int64_t)(i + 1) * SECOND);
    timer_free(t);
}

static void test_late_within_the_threshold_is_on_time(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_EVERY, "300ms", MR_MISFIRE_SKIP);
    assert_int_equal(look(t, T0 + 1300), 4);
    assert_int_equal(count(t, MR_PLAN_FIRE), 4);
    timer_free(t);
}

static void test_a_one_shot_is_finished_with_its_firing(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_DELAY, "59s900ms", MR_MISFIRE_SKIP);
    assert_int_equal(look(t, T0 + 59899), 0);
    assert_int_equal(look(t, T0 + 59900), 1);
    assert_true(t->finished);
    assert_int_equal(look(t, T0 + HOUR), 0);
    timer_free(t);
}

static void test_the_number_of_firings_is_kept(void **state)
{
    (void)state;
    struct timer *t = timer_of(&(struct mr_rule_options){.kind = MR_TIMER_EVERY,
                                                         .expression = MR_SLICE_LIT("1s"),
                                                         .times = 3},
                               MR_MISFIRE_SKIP);
    look(t, T0 + SECOND);
    look(t, T0 + MINUTE); /* what is skipped is no firing; the last minute is on time */
    assert_int_equal(count(t, MR_PLAN_FIRE), 3);
    assert_true(t->finished);
    assert_int_equal(t->state.fired, 3);
    assert_int_equal(look(t, T0 + 2 * MINUTE), 0);
    timer_free(t);
}

static void test_nothing_is_fired_outside_of_the_window(void **state)
{
    (void)state;
    struct timer *t = timer_of(&(struct mr_rule_options){.kind = MR_TIMER_CRON,
                                                         .expression = MR_SLICE_LIT("* * * * * *"),
                                                         .start_ms = T0 + 5 * SECOND,
                                                         .end_ms = T0 + 8 * SECOND},
                               MR_MISFIRE_ALL);
    for (int64_t now = T0; now < T0 + 20 * SECOND; now += 100)
        look(t, now);
    assert_int_equal(t->rows_n, 4);
    assert_row(t, 0, MR_PLAN_FIRE, 5 * SECOND, 5 * SECOND);
    assert_row(t, 3, MR_PLAN_FIRE, 8 * SECOND, 8 * SECOND);
    assert_true(t->finished);
    timer_free(t);
}

static void test_jitter_is_no_misfire(void **state)
{
    (void)state;
    struct timer *t = timer_of(&(struct mr_rule_options){.kind = MR_TIMER_CRON,
                                                         .expression = MR_SLICE_LIT("* * * * *"),
                                                         .jitter_ms = 40 * SECOND},
                               MR_MISFIRE_SKIP);
    for (int64_t now = T0; now < T0 + HOUR; now += 100)
        look(t, now);
    assert_true(t->rows_n >= 59);
    assert_int_equal(count(t, MR_PLAN_FIRE), t->rows_n);
    timer_free(t);
}

/* ---- after the end -------------------------------------------------------------------------- */

static void test_after_done_waits_for_the_end(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_AFTER_DONE, "1s", MR_MISFIRE_ONCE);
    assert_int_equal(look(t, T0 + SECOND), 1);
    assert_false(t->finished);
    assert_int_equal(look(t, T0 + HOUR), 0);
    int64_t ended_ms = T0 + HOUR + 700;
    t->state.next_ms = mr_plan_after_end(t->rule, t->state.fired, ended_ms, t->state.next_ms);
    assert_int_equal(t->state.next_ms, ended_ms + SECOND);
    /* Another end changes nothing. */
    assert_int_equal(mr_plan_after_end(t->rule, 1, ended_ms + 5, t->state.next_ms),
                     ended_ms + SECOND);
    assert_int_equal(look(t, ended_ms + SECOND), 1);
    timer_free(t);
}

static void test_after_done_goes_on_behind_a_skipped_misfire(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_AFTER_DONE, "10s", MR_MISFIRE_SKIP);
    assert_int_equal(look(t, T0 + MINUTE), 1);
    assert_row(t, 0, MR_PLAN_GAP, 10 * SECOND, 10 * SECOND);
    assert_int_equal(t->state.next_ms, T0 + MINUTE + 10 * SECOND);
    timer_free(t);
}

static void test_after_done_knows_its_last_firing(void **state)
{
    (void)state;
    struct timer *t = timer_of(&(struct mr_rule_options){.kind = MR_TIMER_AFTER_DONE,
                                                         .expression = MR_SLICE_LIT("1s"),
                                                         .times = 2},
                               MR_MISFIRE_ONCE);
    look(t, T0 + SECOND);
    assert_false(t->finished);
    t->state.next_ms = mr_plan_after_end(t->rule, 1, T0 + 2 * SECOND, MR_NEVER_MS);
    look(t, T0 + 3 * SECOND);
    assert_true(t->finished);
    assert_true(mr_plan_after_end(t->rule, 2, T0 + 4 * SECOND, MR_NEVER_MS) == MR_NEVER_MS);
    timer_free(t);
}

static void test_what_is_skipped_counts_for_nothing(void **state)
{
    (void)state;
    struct timer *t = timer_of(&(struct mr_rule_options){.kind = MR_TIMER_EVERY,
                                                         .expression = MR_SLICE_LIT("1s"),
                                                         .times = 1},
                               MR_MISFIRE_ONCE);
    struct mr_plan_step step = mr_plan(t->rule, &uid, &t->policy, &t->state, T0 + SECOND);
    assert_true(step.finished);
    mr_plan_skip(t->rule, &t->state, &step);
    assert_false(step.finished);
    assert_int_equal(step.after.fired, 0);
    assert_int_equal(step.after.next_ms, T0 + 2 * SECOND);
    timer_free(t);
}

/* ---- misfires ------------------------------------------------------------------------------- */

/* Five planned times while nobody looked. */
static struct timer *five_missed(enum mr_misfire misfire)
{
    struct timer *t = simple(MR_TIMER_CRON, "* * * * *", misfire); /* T0 is at 20 s of a minute */
    look(t, T0 + 4 * MINUTE + 50 * SECOND);
    return t;
}

static void test_skip_leaves_one_row_for_the_gap(void **state)
{
    (void)state;
    struct timer *t = five_missed(MR_MISFIRE_SKIP);
    assert_int_equal(t->rows_n, 1);
    assert_row(t, 0, MR_PLAN_GAP, 40 * SECOND, 4 * MINUTE + 40 * SECOND);
    assert_int_equal(look(t, T0 + 5 * MINUTE + 40 * SECOND), 1);
    assert_row(t, 1, MR_PLAN_FIRE, 5 * MINUTE + 40 * SECOND, 5 * MINUTE + 40 * SECOND);
    timer_free(t);
}

static void test_once_fires_the_last_one(void **state)
{
    (void)state;
    struct timer *t = five_missed(MR_MISFIRE_ONCE);
    assert_int_equal(t->rows_n, 2);
    assert_row(t, 0, MR_PLAN_GAP, 40 * SECOND, 3 * MINUTE + 40 * SECOND);
    assert_row(t, 1, MR_PLAN_CATCH_UP, 4 * MINUTE + 40 * SECOND, 4 * MINUTE + 40 * SECOND);
    assert_int_equal(t->state.fired, 1);
    assert_int_equal(look(t, T0 + 5 * MINUTE + 40 * SECOND), 1);
    timer_free(t);
}

static void test_all_fires_each(void **state)
{
    (void)state;
    struct timer *t = five_missed(MR_MISFIRE_ALL);
    assert_int_equal(t->rows_n, 5);
    assert_int_equal(count(t, MR_PLAN_CATCH_UP), 5);
    assert_int_equal(look(t, T0 + 5 * MINUTE + 40 * SECOND), 1);
    timer_free(t);
}

static void test_a_single_misfire_is_made_up_for_without_a_gap(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_DELAY, "10s", MR_MISFIRE_ONCE);
    assert_int_equal(look(t, T0 + HOUR), 1);
    assert_row(t, 0, MR_PLAN_CATCH_UP, 10 * SECOND, 10 * SECOND);
    assert_true(t->finished);
    timer_free(t);
}

static void test_a_skipped_one_shot_is_finished(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_DELAY, "10s", MR_MISFIRE_SKIP);
    assert_int_equal(look(t, T0 + HOUR), 1);
    assert_row(t, 0, MR_PLAN_GAP, 10 * SECOND, 10 * SECOND);
    assert_true(t->finished);
    assert_int_equal(t->state.fired, 0);
    timer_free(t);
}

static void test_all_goes_back_as_far_as_the_catch_up_window(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_EVERY, "1h", MR_MISFIRE_ALL);
    look(t, T0 + 100 * HOUR + 1); /* 77 h to 100 h are within a day */
    assert_row(t, 0, MR_PLAN_GAP, HOUR, 76 * HOUR);
    assert_row(t, 1, MR_PLAN_CATCH_UP, 77 * HOUR, 77 * HOUR);
    assert_int_equal(t->rows_n, 1 + 24);
    assert_int_equal(t->rows[24].kind, MR_PLAN_FIRE);
    timer_free(t);
}

static void test_all_makes_up_for_a_thousand_at_most(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_EVERY, "1s", MR_MISFIRE_ALL);
    look(t, T0 + 5000 * SECOND);
    assert_row(t, 0, MR_PLAN_GAP, SECOND, 4000 * SECOND);
    assert_row(t, 1, MR_PLAN_CATCH_UP, 4001 * SECOND, 4001 * SECOND);
    assert_int_equal(t->rows_n, 1001);
    timer_free(t);
}

/* Making up for them takes its time, in which they get older. */
static void test_what_was_admitted_is_fired_however_long_it_takes(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_EVERY, "1h", MR_MISFIRE_ALL);
    t->policy.catch_up_ms = 3 * HOUR;
    int64_t now = T0 + 10 * HOUR + 1;
    for (size_t i = 0; i < 4; i++) {
        struct mr_plan_step step = mr_plan(t->rule, &uid, &t->policy, &t->state, now);
        t->rows[t->rows_n++] = step;
        t->state = step.after;
        now += 50 * MINUTE;
    }
    assert_row(t, 0, MR_PLAN_GAP, HOUR, 7 * HOUR);
    assert_row(t, 1, MR_PLAN_CATCH_UP, 8 * HOUR, 8 * HOUR);
    assert_row(t, 2, MR_PLAN_CATCH_UP, 9 * HOUR, 9 * HOUR);
    assert_row(t, 3, MR_PLAN_CATCH_UP, 10 * HOUR, 10 * HOUR);
    timer_free(t);
}

static void test_a_clock_that_goes_back_repeats_nothing(void **state)
{
    (void)state;
    struct timer *t = simple(MR_TIMER_CRON, "* * * * * *", MR_MISFIRE_ALL);
    for (int64_t now = T0; now <= T0 + 10 * SECOND; now += 100)
        look(t, now);
    assert_int_equal(t->rows_n, 10);
    for (int64_t now = T0 - HOUR; now <= T0 + 10 * SECOND; now += SECOND)
        assert_int_equal(look(t, now), 0);
    assert_int_equal(look(t, T0 + 11 * SECOND), 1);
    timer_free(t);
}

/* ---- against a walk through all planned times ----------------------------------------------- */

static int64_t walk_last(const struct timer *t, int64_t from, int64_t to, bool due)
{
    int64_t last = -1;
    for (int64_t at = from; at <= to; at = mr_rule_next(t->rule, t->state.fired, at)) {
        if (!due || mr_rule_fire_ms(t->rule, &uid, at) <= to)
            last = at;
    }
    return last;
}

/* What the policy says, read off a list of what is due. */
static void expect_step(const struct timer *t, int64_t now, const struct mr_plan_step *step)
{
    int64_t next = t->state.next_ms, due = mr_rule_fire_ms(t->rule, &uid, next);
    if (due > now) {
        assert_int_equal(step->kind, MR_PLAN_NONE);
        return;
    }
    if (now - due <= t->policy.misfire_ms) {
        assert_int_equal(step->kind, MR_PLAN_FIRE);
        return;
    }
    if (next <= t->state.admitted_ms) {
        assert_int_equal(step->kind, MR_PLAN_CATCH_UP);
        return;
    }
    int64_t last = walk_last(t, next, now, true), until;
    if (t->policy.misfire == MR_MISFIRE_SKIP) {
        until = walk_last(t, next, now - t->policy.misfire_ms - 1, true);
    } else if (t->policy.misfire == MR_MISFIRE_ONCE) {
        until = last > next ? walk_last(t, next, last - 1, false) : -1;
    } else {
        size_t n = 0, i = 0;
        for (int64_t at = next; at <= last; at = mr_rule_next(t->rule, t->state.fired, at))
            n++;
        until = -1;
        for (int64_t at = next; at <= last; at = mr_rule_next(t->rule, t->state.fired, at), i++) {
            if (at < now - t->policy.catch_up_ms || n - i > t->policy.catch_up_max)
                until = at;
        }
    }
    assert_int_equal(step->kind, until >= 0 ? MR_PLAN_GAP : MR_PLAN_CATCH_UP);
    assert_int_equal(step->until_ms, until >= 0 ? until : next);
}

static struct timer *random_timer(struct mr_rand *rand)
{
    static const char *const crons[] = {"* * * * * *", "*/7 * * * * *", "0 * * * *", "5 0 * * MON",
                                        "0 0/5 9-17 * * *"};
    char every[32];
    snprintf(every, sizeof every, "%llums", (unsigned long long)(1 + mr_rand_below(rand, 100000)));
    bool cron = mr_rand_one_in(rand, 2);
    struct timer *t = timer_of(
        &(struct mr_rule_options){
            .kind = cron ? MR_TIMER_CRON : MR_TIMER_EVERY,
            .expression = mr_slice_str(cron ? crons[mr_rand_below(rand, COUNT(crons))] : every),
            .jitter_ms = mr_rand_one_in(rand, 2) ? (int64_t)mr_rand_below(rand, 100000) : 0},
        (enum mr_misfire)mr_rand_below(rand, MR_MISFIRE_COUNT));
    t->policy.misfire_ms = (int64_t)mr_rand_below(rand, 3000);
    t->policy.catch_up_ms = t->policy.misfire_ms + (int64_t)mr_rand_below(rand, HOUR);
    t->policy.catch_up_max = 1 + (uint32_t)mr_rand_below(rand, 20);
    return t;
}

static void test_random_looks_agree_with_a_walk_through_all_times(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct mr_rand rand;
        mr_rand_seed(&rand, seed);
        struct timer *t = random_timer(&rand);
        int64_t now = T0;
        for (size_t i = 0; i < 60 && t->state.next_ms < T0 + 24 * HOUR; i++) {
            struct mr_plan_step step = mr_plan(t->rule, &uid, &t->policy, &t->state, now);
            expect_step(t, now, &step);
            if (step.kind != MR_PLAN_NONE) {
                assert_int_equal(step.planned_ms, t->state.next_ms); /* none is left out */
                assert_int_equal(step.after.next_ms,
                                 mr_rule_next(t->rule, t->state.fired, step.until_ms));
                t->state = step.after;
            } else {
                int64_t far = 1LL << mr_rand_below(&rand, 21);
                now = t->state.next_ms + (int64_t)mr_rand_below(&rand, (uint64_t)far);
            }
        }
        timer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_fired_before_its_time),
        cmocka_unit_test(test_each_second_is_fired_once_whenever_one_looks),
        cmocka_unit_test(test_late_within_the_threshold_is_on_time),
        cmocka_unit_test(test_a_one_shot_is_finished_with_its_firing),
        cmocka_unit_test(test_the_number_of_firings_is_kept),
        cmocka_unit_test(test_nothing_is_fired_outside_of_the_window),
        cmocka_unit_test(test_jitter_is_no_misfire),
        cmocka_unit_test(test_after_done_waits_for_the_end),
        cmocka_unit_test(test_after_done_goes_on_behind_a_skipped_misfire),
        cmocka_unit_test(test_after_done_knows_its_last_firing),
        cmocka_unit_test(test_what_is_skipped_counts_for_nothing),
        cmocka_unit_test(test_skip_leaves_one_row_for_the_gap),
        cmocka_unit_test(test_once_fires_the_last_one),
        cmocka_unit_test(test_all_fires_each),
        cmocka_unit_test(test_a_single_misfire_is_made_up_for_without_a_gap),
        cmocka_unit_test(test_a_skipped_one_shot_is_finished),
        cmocka_unit_test(test_all_goes_back_as_far_as_the_catch_up_window),
        cmocka_unit_test(test_all_makes_up_for_a_thousand_at_most),
        cmocka_unit_test(test_what_was_admitted_is_fired_however_long_it_takes),
        cmocka_unit_test(test_a_clock_that_goes_back_repeats_nothing),
        cmocka_unit_test(test_random_looks_agree_with_a_walk_through_all_times),
    };
    return cmocka_run_group_tests(tests, open_zones, close_zones);
}
