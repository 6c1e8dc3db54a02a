/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-sim: runs seeds of the simulated world. Each run is done from its seed alone, and a
 * sample of them twice: the same seed must give the same trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim/rig.h"
#include "sim/world.h"

enum { TWICE_EVERY = 20, SEEDS_DEFAULT = 100 };

struct settings {
    uint64_t seed, seeds;
    enum world_detail detail;
};

static void usage(void)
{
    puts("millrace-sim [--seed N] [--seeds M] [--verbose]\n"
         "  --seed N     first seed; alone: only that one (default: MR_SEED, or 1)\n"
         "  --seeds M    how many (default: MR_SEEDS, or 100)\n"
         "  --verbose    print the trace");
}

static bool parse(int argc, char **argv, struct settings *settings)
{
    bool one = false;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--seed") == 0 && more) {
            settings->seed = strtoull(argv[++i], NULL, 10);
            one = true;
        } else if (strcmp(argv[i], "--seeds") == 0 && more) {
            settings->seeds = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--verbose") == 0) {
            settings->detail = WORLD_VERBOSE;
        } else {
            return false;
        }
    }
    if (settings->seeds == 0)
        settings->seeds = one ? 1 : rig_env("MR_SEEDS", SEEDS_DEFAULT);
    if (!one)
        settings->seed = rig_env("MR_SEED", 1);
    return true;
}

/* False when the seed failed, which it says. */
static bool run_seed(uint64_t seed, enum world_detail detail, struct world_report *sum)
{
    struct world_report report, again;
    world_run(seed, detail, &report);
    if (!report.failed && seed % TWICE_EVERY == 0) {
        world_run(seed, WORLD_QUIET, &again);
        if (again.hash != report.hash) {
            report.failed = true;
            snprintf(report.error, sizeof report.error, "the same seed gave another trace");
        }
    }
    sum->tasks += report.tasks;
    sum->leases += report.leases;
    sum->kills += report.kills;
    sum->power_cuts += report.power_cuts;
    sum->faults += report.faults;
    sum->backups += report.backups;
    sum->virtual_ms += report.virtual_ms;
    if (report.failed) {
        printf("seed %llu: %s\n  repeat: millrace-sim --seed %llu --verbose\n",
               (unsigned long long)seed, report.error, (unsigned long long)seed);
        fflush(stdout);
    }
    return !report.failed;
}

int main(int argc, char **argv)
{
    struct settings settings = {0};
    if (!parse(argc, argv, &settings)) {
        usage();
        return 2;
    }
    struct world_report sum = {0};
    uint64_t passed = 0, failed = 0;
    clock_t start = clock();
    for (uint64_t i = 0; i < settings.seeds; i++)
        if (run_seed(settings.seed + i, settings.detail, &sum))
            passed++;
        else
            failed++;
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("%llu tasks, %llu leases, %llu backups, %llu kills, %llu power cuts, %llu faults, "
           "%.1f virtual hours, %.0f seeds/s\n",
           (unsigned long long)sum.tasks, (unsigned long long)sum.leases,
           (unsigned long long)sum.backups, (unsigned long long)sum.kills,
           (unsigned long long)sum.power_cuts, (unsigned long long)sum.faults,
           (double)sum.virtual_ms / 3.6e6, seconds > 0 ? (double)settings.seeds / seconds : 0);
    printf("%llu passed, %llu failed\n", (unsigned long long)passed, (unsigned long long)failed);
    return failed ? 1 : 0;
}
