/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs [PATTERN]: the acceptance tests of jobs; those whose names fit the pattern ("*_103_*"). MR_JOBS=shared: on a Redis and
 * a PostgreSQL. jobs --pace N [COLD]: see pace.c. With MR_SHARE="2/3" the second of three shares of them, which can run beside each other.
 */
#include <signal.h>
#include <stdio.h>

#include "base/diag.h"
#include "jobs/child.h"
#include "jobs/rig.h"

static int (*const themes[])(void) = {jobs_create,   jobs_pump,   jobs_running, jobs_ends,
                                      jobs_segments, jobs_deaths, jobs_reduces, jobs_cold};

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
        (void)fprintf(stderr, "jobs: MR_SHARE is '%s'; it must be like 1/3\n", text);
        exit(2);
    }
    return part % of + 1 == share;
}

int jobs_run(const char *theme, struct CMUnitTest *tests, size_t n)
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
    if (argc > 1 && strcmp(argv[1], "--child") == 0)
        return child_main(argc, argv);
    if (argc > 2 && strcmp(argv[1], "--pace") == 0)
        return jobs_pace(strtoul(argv[2], NULL, 10), argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (size_t i = 0; i < sizeof themes / sizeof *themes; i++)
        if (is_in_share(i))
            failed += themes[i]();
    rig_shared_end();
    return failed != 0;
}
