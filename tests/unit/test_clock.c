/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks: the machine's, and arithmetic on times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <time.h>

#include "base/clock.h"

static void monotonic_time_never_goes_back(void **state)
{
    (void)state;
    struct mr_clock *clock = mr_clock_system();
    int64_t first = mr_mono_now(clock).ns;
    int64_t last = first;
    /* The readings are apart by less than a microsecond, so time must move within these. */
    for (int i = 0; i < 100000; i++) {
        int64_t now = mr_mono_now(clock).ns;
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > first);
}

static void wall_time_is_the_systems(void **state)
{
    (void)state;
    struct timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    int64_t us = mr_wall_now(mr_clock_system()).us;
    clock_gettime(CLOCK_REALTIME, &after);
    assert_true(us >= before.tv_sec * 1000000LL + before.tv_nsec / 1000);
    assert_true(us <= after.tv_sec * 1000000LL + after.tv_nsec / 1000);
}

static void milliseconds_round_down(void **state)
{
    (void)state;
    static const struct {
        int64_t us, ms;
    } rows[] = {
        {0, 0},   {1, 0},     {999, 0},    {1000, 1},   {1999, 1},
        {-1, -1}, {-999, -1}, {-1000, -1}, {-1001, -2}, {1700000000123456, 1700000000123},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(mr_wall_ms((mr_wall){rows[i].us}), rows[i].ms);
}

static void monotonic_times_are_moved_by_milliseconds(void **state)
{
    (void)state;
    assert_int_equal(mr_mono_add_ms((mr_mono){5}, 3).ns, 3000005);
    assert_int_equal(mr_mono_add_ms((mr_mono){5000000}, -3).ns, 2000000);
    assert_int_equal(MR_MONO_NEVER.ns, INT64_MAX);
    assert_int_equal(mr_mono_add_ms((mr_mono){5}, INT64_MAX).ns, INT64_MAX);
    assert_int_equal(mr_mono_add_ms((mr_mono){INT64_MAX - 5}, 1).ns, INT64_MAX);
    assert_int_equal(mr_mono_add_ms((mr_mono){-5}, INT64_MIN).ns, INT64_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic_time_never_goes_back),
        cmocka_unit_test(wall_time_is_the_systems),
        cmocka_unit_test(milliseconds_round_down),
        cmocka_unit_test(monotonic_times_are_moved_by_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
