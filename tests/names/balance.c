/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 72 to 74: subApps move from a server that has more than twice the load of another. Load is that of the last minute, so these
 * last; what is decided by which numbers is in unit/test_names_balance.c.
 */
#include <assert.h>
#include <stdio.h>

#include "names/balance.h"
#include "names/client.h"
#include "names/rig.h"

enum { WORKERS = 4, TIMERS = 64, FOLLOW_MS = 10 * 1000, COOL_MS = MR_BALANCE_COOL_MS };

/* Else 73 fails now and then: who had a subApp before is heard beside who has it, and it seems to be more. */
static_assert(COOL_MS >= MR_BALANCE_WINDOW_MS + MR_NAMES_SERVER_MS,
              "a move rests until it is seen");

static int64_t now_ms(const struct rig *rig)
{
    return bench_now_ms(rig->bench);
}

/* Nobody dies here, and what an owner had that is late would move. */
static struct rig *make(void)
{
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    rig->lease_ms = RIG_LONG_LEASE_MS;
    return rig;
}

/* When so long has passed there were so many moves for balance. */
static void expect_moves(struct rig *rig, int64_t ms, size_t n)
{
    int64_t until_ms = now_ms(rig) + ms;
    while (now_ms(rig) < until_ms)
        bench_sleep_ms(200);
    if (rig_plan(rig).balance_moves != n)
        rig_print_moves(rig);
    assert_int_equal(rig_plan(rig).balance_moves, n);
}

/* Two subApps on one server; then an idle one joins. */
static void test_72_one_subapp_goes_to_an_idle_server(void **state)
{
    (void)state;
    struct rig *rig = make();
    rig_start(rig, 1, WORKERS);
    rig_load(rig, TIMERS, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 2));
    assert_int_equal(rig_plan(rig).owners, 1);
    expect_moves(rig, 20 * 1000, 0); /* it has a load */
    rig_serve(rig, 1);
    int64_t since_ms = now_ms(rig);
    while (rig_plan(rig).owners < 2) {
        assert_true(now_ms(rig) - since_ms <
                    90 * 1000); /* the cut was a change, too: so long it cools */
        bench_sleep_ms(200);
    }
    printf("72: a subApp was at the new server after %lld ms\n",
           (long long)(now_ms(rig) - since_ms));
    uint64_t before[RIG_SERVERS];
    since_ms = now_ms(rig);
    rig_note_processed(rig, before);
    BENCH_UNTIL(rig_worked_for(rig, before) == 2);
    printf("72: its workers had followed after %lld ms\n", (long long)(now_ms(rig) - since_ms));
    assert_true(now_ms(rig) - since_ms < FOLLOW_MS);
    BENCH_UNTIL(rig_fires(rig, now_ms(rig) - 1000));
    /* Then there is one each: nothing goes back, whatever the window still says. */
    expect_moves(rig, rig_full() ? 10 * 60 * 1000 : 70 * 1000, 1);
    assert_int_equal(rig_plan(rig).owners, 2);
    rig_check(rig);
    rig_free(rig);
}

/* Four subApps on one server, which rests no more; then an idle one joins. It is given one as soon as it is known, and the second
 * when the first has rested: then both have as much. */
static void test_74_an_idle_server_is_given_one_at_once_and_the_next_after_a_rest(void **state)
{
    enum {
        PARTS = 4,
        AT_ONCE_MS = 20 * 1000 /* it registers, the list is read, a wish is given */
    };
    (void)state;
    struct rig *rig = make();
    rig_start(rig, 1, 2 * PARTS);
    rig_load(rig, TIMERS, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, PARTS));
    expect_moves(rig, COOL_MS + 10 * 1000, 0);
    rig_serve(rig, 1);
    int64_t since_ms = now_ms(rig);
    BENCH_UNTIL(rig_plan(rig).owners == 2);
    printf("74: a subApp was at the idle server after %lld ms\n",
           (long long)(now_ms(rig) - since_ms));
    assert_true(now_ms(rig) - since_ms < AT_ONCE_MS);
    expect_moves(rig, COOL_MS - AT_ONCE_MS, 1);
    expect_moves(rig, 2 * COOL_MS + AT_ONCE_MS, 2);
    printf("74: the second one followed %lld ms later\n", (long long)rig_plan(rig).apart_ms);
    assert_true(rig_plan(rig).apart_ms > COOL_MS - 1000);
    rig_check(rig);
    rig_free(rig);
}

/* Two subApps of about the same load. */
static void test_73_at_less_than_twice_nothing_moves(void **state)
{
    (void)state;
    struct rig *rig = make();
    rig_start(rig, 2, WORKERS);
    rig_load(rig, TIMERS, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 2) && rig_plan(rig).owners == 2);
    expect_moves(rig, 130 * 1000, 0);
    rig_check(rig);
    rig_free(rig);
}

/* ---- a load that is divided as the test wants -------------------------------------------------- */

/* Whose the parts are when one server has two of three. */
struct shares {
    uint64_t greater[2], lesser; /* slots */
};

static struct shares shares_of(struct rig *rig)
{
    struct rig_plan plan = rig_plan(rig);
    struct shares shares = {.lesser = 0};
    size_t n = 0;
    assert_true(plan.parts == 3 && plan.owners == 2);
    for (size_t i = 0; i < 3; i++) {
        bool alone = true;
        for (size_t j = 0; j < 3; j++)
            alone = alone && (i == j || strcmp(plan.names[i], plan.names[j]) != 0);
        if (alone)
            shares.lesser = plan.slots_of[i];
        else
            shares.greater[n++] = plan.slots_of[i];
    }
    assert_int_equal(n, 2);
    return shares;
}

/* The next timer, in one of these slots: by chance, so it is made until it is. */
static void put_in(struct rig *rig, uint64_t slots)
{
    char name[32];
    struct bench_timer timer;
    (void)snprintf(name, sizeof name, "t-%zu", rig->timers_n++);
    for (;;) {
        bench_put(rig->bench, BENCH_TIMER(name, MR_TIMER_EVERY, "1s", .misfire = MR_MISFIRE_ALL));
        assert_true(bench_timer(rig->bench, name, &timer));
        if ((slots >> (timer.uid.bytes[sizeof timer.uid.bytes - 1] & 63) & 1) != 0)
            return;
        bench_delete(rig->bench, name);
    }
}

/* Of one server 1.9 times the load of the other, which stays so; then 2.4 times, of which one of its two subApps goes. The
 * lesser load is there first, so that the greater one comes near from below, whatever is reported when. */
static void test_73_at_1_9_times_nothing_moves_and_above_twice_one_does(void **state)
{
    enum { LESSER = 20, GREATER = 38, MORE = 10, WINDOW_MS = 60 * 1000, REPORT_MS = 10 * 1000 };
    (void)state;
    struct rig *rig = make();
    rig_start(rig, 2, WORKERS + 1);
    rig_load(rig, 1, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 3) && rig_plan(rig).owners == 2);
    rig_check(rig);
    struct shares shares = shares_of(rig);
    for (size_t i = 0; i < LESSER; i++)
        put_in(rig, shares.lesser);
    expect_moves(rig, WINDOW_MS + REPORT_MS, 0);
    for (size_t i = 0; i < GREATER; i++)
        put_in(rig, shares.greater[i % 2]);
    expect_moves(rig, 2 * WINDOW_MS + REPORT_MS, 0);
    for (size_t i = 0; i < MORE; i++)
        put_in(rig, shares.greater[i % 2]);
    expect_moves(rig, 2 * WINDOW_MS + REPORT_MS, 1);
    rig_check(rig);
    rig_free(rig);
}

int names_balance(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_72_one_subapp_goes_to_an_idle_server),
        cmocka_unit_test(test_74_an_idle_server_is_given_one_at_once_and_the_next_after_a_rest),
        cmocka_unit_test(test_73_at_less_than_twice_nothing_moves),
        cmocka_unit_test(test_73_at_1_9_times_nothing_moves_and_above_twice_one_does),
    };
    return rig_full() ? NAMES_RUN("balance", tests) : 0;
}
