/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-crash: stops a workload before every write, sync, folder sync, rename, removal, creation
 * and truncation, and makes of each such moment the disks that a process kill or a power cut could
 * leave. Each disk is recovered and judged, recovered again (nothing may change), and for a sample
 * the recovery is stopped at each of its own points and repeated. MR_IMAGES says how many disks,
 * spread evenly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/rig.h"
#include "sim/world.h"

enum {
    IMAGES_DEFAULT = 2000,
    IMAGES_A_POINT = 8, /* one of each policy, and more of those with chance */
    STEPS = 500,
    NESTED_EVERY = 25, /* images whose recovery is crashed too */
    NESTED_STOPS_MAX = 40,
    ERRORS_SHOWN_MAX = 20,
};

static const enum simfs_policy policies[IMAGES_A_POINT] = {
    SIMFS_KEEP_ALL, SIMFS_DROP_ALL, SIMFS_KEEP_SOME, SIMFS_KEEP_SOME,
    SIMFS_TEAR,     SIMFS_TEAR,     SIMFS_SCRAMBLE,  SIMFS_SCRAMBLE};

struct campaign {
    uint64_t seed;
    uint64_t points; /* of this workload in all */
    uint64_t at;     /* the present one */
    uint64_t quota;  /* images to make of this workload */
    uint64_t passed, failed, nested;
    /* the present image, for messages */
    enum simfs_policy policy;
    uint64_t nested_stop;
};

/* One life on a disk: opens, looks, and dies again. */
struct life {
    struct rig rig;
    uint64_t digest;
    bool stopped; /* by the crash point set before */
};

static void report(struct campaign *campaign, const char *what)
{
    campaign->failed++;
    if (campaign->failed <= ERRORS_SHOWN_MAX)
        printf("seed %llu point %llu %s nested %llu: %s\n", (unsigned long long)campaign->seed,
               (unsigned long long)campaign->at, simfs_policy_name(campaign->policy),
               (unsigned long long)campaign->nested_stop, what);
    fflush(stdout);
}

/* Recovers the disk and lets the oracle look. */
static void live(struct life *life, struct simfs *fs, const struct rig_clock *clock,
                 struct oracle *oracle)
{
    memset(life, 0, sizeof *life);
    struct rig *rig = &life->rig;
    rig_init(rig, fs, 7);
    rig->clock.mono_ns = clock->mono_ns;
    rig->clock.wall_us = clock->wall_us;
    enum mr_err err = rig_open(rig);
    if (err == MR_OK && !simfs_crashed(fs)) {
        err = rig_judge(rig, oracle, RIG_CHECK, &life->digest);
        if (err == MR_OK)
            err = rig_judge_results(rig, oracle);
        if (err == MR_OK)
            mr_engine_validate(rig->engine);
        else if (!simfs_crashed(fs))
            oracle_fail(oracle, "the recovered store answers %s", mr_err_name(err));
    } else if (!simfs_crashed(fs)) {
        oracle_fail(oracle, "the store does not open: %s: %s", mr_err_name(err), rig->detail.text);
    }
    /* A call that never ends stops the disk by itself; that must not pass for the planned stop. */
    life->stopped = simfs_crashed(fs);
    rig_done(rig);
}

static void die(struct simfs *fs, struct oracle *oracle, struct mr_rand *rand,
                enum simfs_policy policy)
{
    simfs_crash(fs, rand, policy);
    oracle_crashed(oracle, policy == SIMFS_KEEP_ALL ? ORACLE_KILLED : ORACLE_POWER_CUT);
}

/* Crashes the recovery itself before each of its points. */
static void crash_recovery(struct campaign *campaign, const struct simfs *image,
                           const struct oracle *before, const struct rig_clock *clock,
                           struct mr_rand *rand)
{
    for (uint64_t stop = 1; stop <= NESTED_STOPS_MAX; stop++) {
        struct simfs *fs = simfs_clone(image);
        struct oracle *oracle = oracle_clone(before);
        struct life life;
        campaign->nested_stop = stop;
        simfs_stop_at(fs, stop);
        live(&life, fs, clock, oracle);
        bool stopped = life.stopped;
        if (stopped) {
            die(fs, oracle, rand, (enum simfs_policy)mr_rand_below(rand, SIMFS_POLICY_COUNT));
            live(&life, fs, clock, oracle);
            if (life.stopped)
                oracle_fail(oracle, "the recovered store answers nothing");
            campaign->nested++;
        }
        if (oracle_error(oracle))
            report(campaign, oracle_error(oracle));
        bool failed = oracle_error(oracle) != NULL;
        oracle_free(oracle);
        simfs_free(fs);
        if (!stopped || failed)
            break;
    }
    campaign->nested_stop = 0;
}

static void try_image(struct campaign *campaign, const struct simfs *disk,
                      const struct oracle *known, const struct rig_clock *clock, uint64_t number)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, campaign->seed << 32 ^ number);
    struct simfs *fs = simfs_clone(disk);
    struct oracle *oracle = oracle_clone(known);
    die(fs, oracle, &rand, campaign->policy);
    struct simfs *image = NULL;
    struct oracle *before = NULL;
    if (number % NESTED_EVERY == 0) {
        image = simfs_clone(fs);
        before = oracle_clone(oracle);
        /* Marks of begun runs may be lost by the crash of the recovery. */
        oracle_crashed(before, ORACLE_POWER_CUT);
    }
    struct life first, second;
    live(&first, fs, clock, oracle);
    if (first.stopped && !oracle_error(oracle))
        oracle_fail(oracle, "the recovered store answers nothing");
    if (!oracle_error(oracle)) {
        die(fs, oracle, &rand, (enum simfs_policy)mr_rand_below(&rand, SIMFS_POLICY_COUNT));
        live(&second, fs, clock, oracle);
        if (!oracle_error(oracle) && first.digest != second.digest)
            oracle_fail(oracle, "two recoveries differ");
    }
    if (oracle_error(oracle))
        report(campaign, oracle_error(oracle));
    else
        campaign->passed++;
    if (image && !oracle_error(oracle))
        crash_recovery(campaign, image, before, clock, &rand);
    oracle_free(before);
    simfs_free(image);
    oracle_free(oracle);
    simfs_free(fs);
}

static void at_point(const struct simfs *fs, const struct oracle *oracle,
                     const struct rig_clock *clock, void *arg)
{
    struct campaign *campaign = arg;
    campaign->at++;
    uint64_t all = campaign->points * IMAGES_A_POINT;
    for (uint64_t i = 0; i < IMAGES_A_POINT; i++) {
        uint64_t number = (campaign->at - 1) * IMAGES_A_POINT + i;
        if (number >= all || (number + 1) * campaign->quota / all == number * campaign->quota / all)
            continue;
        campaign->policy = policies[i];
        try_image(campaign, fs, oracle, clock, number);
    }
}

/* Runs the workload once to count its points, then once more to try them. */
static bool run_workload(struct campaign *campaign, uint64_t images)
{
    struct world_report sized, report_;
    struct world_calm calm = {.seed = campaign->seed, .steps = STEPS};
    world_run_calm(&calm, &sized);
    if (sized.failed) {
        printf("seed %llu without a crash: %s\n", (unsigned long long)campaign->seed, sized.error);
        campaign->failed++;
        return false;
    }
    campaign->points = sized.points;
    campaign->at = 0;
    uint64_t all = sized.points * IMAGES_A_POINT;
    campaign->quota = images < all ? images : all;
    calm.point = at_point;
    calm.arg = campaign;
    world_run_calm(&calm, &report_);
    if (report_.failed || report_.hash != sized.hash) {
        printf("seed %llu: the workload does not repeat\n", (unsigned long long)campaign->seed);
        campaign->failed++;
    }
    return true;
}

int main(int argc, char **argv)
{
    uint64_t images = rig_env("MR_IMAGES", IMAGES_DEFAULT);
    struct campaign campaign = {.seed =
                                    argc > 1 ? strtoull(argv[1], NULL, 10) : rig_env("MR_SEED", 1)};
    uint64_t workloads = 0, points = 0;
    while (campaign.passed + campaign.failed < images && campaign.failed < ERRORS_SHOWN_MAX) {
        run_workload(&campaign, images - campaign.passed - campaign.failed);
        points += campaign.points;
        workloads++;
        campaign.seed++;
    }
    printf("%llu workloads, %llu crash points, %llu images, %llu crashes during recovery\n",
           (unsigned long long)workloads, (unsigned long long)points,
           (unsigned long long)(campaign.passed + campaign.failed),
           (unsigned long long)campaign.nested);
    printf("%llu passed, %llu failed\n", (unsigned long long)campaign.passed,
           (unsigned long long)campaign.failed);
    return campaign.failed ? 1 : 0;
}
