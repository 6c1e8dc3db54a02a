/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timers [PATTERN]: the acceptance tests of timers; those whose names fit the pattern ("*_47_*"). With
 * MR_SHARE="2/3" the second of three shares of them, which can run beside each other.
 */
#include "support/themes.h"
#include "timers/bench.h"
#include "timers/rig.h"

static int (*const themes[])(void) = {
    timers_operations, timers_producers, timers_recovery, timers_levels,     timers_timing,
    timers_sharing,    timers_running,   timers_servers,  timers_strategies, timers_dispatch,
    timers_changes,    timers_subapps,   timers_health};

int timers_run(const char *theme, struct CMUnitTest *tests, size_t n)
{
    return _cmocka_run_group_tests(theme, tests, n, NULL, NULL);
}

int main(int argc, char **argv)
{
    int failed = 0;
    themes_prepare();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof themes / sizeof *themes; i++)
        if (themes_in_share(i))
            failed += themes[i]();
    return failed != 0;
}
