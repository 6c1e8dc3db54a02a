/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs [PATTERN]: the acceptance tests of jobs; those whose names fit the pattern ("*_103_*"). MR_JOBS=shared: on a Redis and
 * a PostgreSQL. jobs --pace N [COLD]: see pace.c. With MR_SHARE="2/3" the second of three shares of them, which can run beside each other.
 */
#include "jobs/child.h"
#include "jobs/rig.h"
#include "support/themes.h"

static int (*const themes[])(void) = {jobs_create,  jobs_pump,     jobs_running,
                                      jobs_ends,    jobs_segments, jobs_deaths,
                                      jobs_reduces, jobs_cold,     jobs_homes};

int jobs_run(const char *theme, struct CMUnitTest *tests, size_t n)
{
    return _cmocka_run_group_tests(theme, tests, n, NULL, NULL);
}

int main(int argc, char **argv)
{
    int failed = 0;
    themes_prepare();
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return child_main(argc, argv);
    if (argc > 2 && strcmp(argv[1], "--pace") == 0)
        return jobs_pace(strtoul(argv[2], NULL, 10), argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof themes / sizeof *themes; i++)
        if (themes_in_share(i))
            failed += themes[i]();
    rig_shared_end();
    return failed != 0;
}
