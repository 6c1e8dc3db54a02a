/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 72 to 74: subApps move from a server that has more than twice the load of another. Load is that of the last minute, so these
 * last; what is decided by which numbers is in unit/test_names_balance.c.
 */
#include <stdio.h>

#include "names/rig.h"

enum { WORKERS = 4, TIMERS = 64 };

static int64_t now_ms(const struct rig *rig)
{
    return bench_now_ms(rig->bench);
}

/* Moves for balance that there were, when so long has passed; workers of all subApps have had something to do. */
static size_t moves_after(struct rig *rig, int64_t ms)
{
    int64_t until_ms = now_ms(rig) + ms;
    while (now_ms(rig) < until_ms)
        bench_sleep_ms(200);
    return rig_plan(rig).balance_moves;
}

/* Two subApps on one server; then an idle one joins, and a third. */
static void test_72_and_74_one_subapp_goes_to_an_idle_server(void **state)
{
    (void)state;
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    rig_start(rig, 1, WORKERS);
    rig_load(rig, TIMERS, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 2));
    assert_int_equal(rig_plan(rig).owners, 1);
    (void)moves_after(rig, 20 * 1000); /* it has a load */
    assert_int_equal(rig_plan(rig).balance_moves, 0);
    rig_serve(rig, 1);
    int64_t since_ms = now_ms(rig);
    while (rig_plan(rig).owners < 2) {
        assert_true(now_ms(rig) - since_ms <
                    90 * 1000); /* the cut was a change, too: so long it cools */
        bench_sleep_ms(200);
    }
    printf("72: a subApp was at the new server after %lld ms\n",
           (long long)(now_ms(rig) - since_ms));
    BENCH_UNTIL(rig_fires(rig, now_ms(rig) - 1000));
    /* Then there is one each: nothing goes back, whatever the window still says. */
    assert_int_equal(moves_after(rig, rig_full() ? 10 * 60 * 1000 : 70 * 1000), 1);
    assert_int_equal(rig_plan(rig).owners, 2);
    rig_check(rig);
    rig_free(rig);
}

/* Two subApps of about the same load. That 1.9 times as much moves nothing, and exactly twice neither, is shown by numbers in
 * the unit test. */
static void test_73_at_less_than_twice_nothing_moves(void **state)
{
    (void)state;
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    rig_start(rig, 2, WORKERS);
    rig_load(rig, TIMERS, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 2) && rig_plan(rig).owners == 2);
    assert_int_equal(moves_after(rig, 130 * 1000), 0);
    rig_check(rig);
    rig_free(rig);
}

int names_balance(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_72_and_74_one_subapp_goes_to_an_idle_server),
        cmocka_unit_test(test_73_at_less_than_twice_nothing_moves),
    };
    return rig_full() ? NAMES_RUN("balance", tests) : 0;
}
