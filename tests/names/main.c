/* SPDX-License-Identifier: Apache-2.0 */
/*
 * names [PATTERN]: the acceptance tests of the nameserver; those whose names fit the pattern ("*_67_*"). With MR_SHARE="2/4"
 * the second of four shares of them, which can run beside each other.
 */
#include "names/rig.h"
#include "support/themes.h"

/* Every fourth is in one share: what lasts is in different ones. */
static int (*const themes[])(void) = {names_split,    names_registry, names_deaths,
                                      names_replicas, names_balance,  names_producers,
                                      names_chaos,    names_cut_off,  names_figures};

int names_run(const char *theme, struct CMUnitTest *tests, size_t n)
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
    bench_shared_end();
    return failed != 0;
}
