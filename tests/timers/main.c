/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timers [PATTERN]: the acceptance tests of timers; those whose names fit the pattern ("*_47_*"). With
 * MR_SHARE="2/3" the second of three shares of them, which can run beside each other.
 */
#include <signal.h>
#include <stdio.h>

#include "base/diag.h"
#include "timers/bench.h"
#include "timers/rig.h"

static int (*const themes[])(void) = {timers_operations, timers_producers, timers_recovery,
                                      timers_levels,     timers_timing,    timers_sharing,
                                      timers_running,    timers_servers,   timers_strategies,
                                      timers_dispatch,   timers_changes};

/* What goes wrong is what many tests are about. */
static void hush(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static bool is_in_share(size_t part)
{
    const char *text = getenv("MR_SHARE");
    unsigned share, of;
    if (text == NULL)
        return true;
    if (sscanf(text, "%u/%u", &share, &of) != 2 || of == 0) {
        (void)fprintf(stderr, "timers: MR_SHARE is '%s'; it must be like 1/3\n", text);
        exit(2);
    }
    return part % of + 1 == share;
}

int timers_run(const char *theme, struct CMUnitTest *tests, size_t n)
{
    return _cmocka_run_group_tests(theme, tests, n, NULL, NULL);
}

int main(int argc, char **argv)
{
    int failed = 0;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("MR_LOUD") == NULL)
        mr_diag_set_sink(hush, NULL);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof themes / sizeof *themes; i++)
        if (is_in_share(i))
            failed += themes[i]();
    return failed != 0;
}
