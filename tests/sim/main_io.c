/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-io: lets every call of the disk fail, once. A workload is run once to count its calls, and then
 * once for each of them and each way in which it can fail. Whatever fails, nothing that was acknowledged is lost, nothing is
 * acknowledged that is not there, and when the disk is well again all work ends. MR_FAILS says how many calls fail in
 * all, spread evenly over the workloads of MR_WORKLOADS seeds; 0: each of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/rig.h"
#include "sim/world.h"

enum { WORKLOADS_DEFAULT = 1, STEPS = 250, ERRORS_SHOWN_MAX = 20 };

/* How a call of each kind can fail. */
static const struct {
    enum simfs_op op;
    enum mr_err err;
} ways[] = {
    {SIMFS_WRITE, MR_IO},
    {SIMFS_WRITE, MR_DISK_FULL},
    {SIMFS_SYNC, MR_IO},
    {SIMFS_DIR_SYNC, MR_IO},
    {SIMFS_RENAME, MR_IO},
    {SIMFS_RENAME, MR_DISK_FULL},
    {SIMFS_REMOVE, MR_IO},
    {SIMFS_CREATE, MR_IO},
    {SIMFS_CREATE, MR_DISK_FULL},
    {SIMFS_TRUNCATE, MR_IO},
    {SIMFS_TRUNCATE, MR_DISK_FULL},
    {SIMFS_OPEN, MR_IO},
    {SIMFS_OPEN, MR_BUSY},
    {SIMFS_READ, MR_IO},
    {SIMFS_LOCK, MR_IO},
    {SIMFS_MAP, MR_IO},
};
enum { WAYS = sizeof ways / sizeof *ways };

struct campaign {
    uint64_t seed;
    uint64_t quota; /* calls to fail of this workload */
    uint64_t passed, failed;
    uint64_t by_op[SIMFS_OP_COUNT];
};

static void report(struct campaign *campaign, const struct world_fault *fault, const char *what)
{
    campaign->failed++;
    if (campaign->failed <= ERRORS_SHOWN_MAX)
        printf("seed %llu, %s %llu fails with %s: %s\n", (unsigned long long)campaign->seed,
               simfs_op_name(fault->op), (unsigned long long)fault->after, mr_err_name(fault->err),
               what);
    fflush(stdout);
}

static void try_fault(struct campaign *campaign, size_t way, uint64_t after)
{
    struct world_report world;
    struct world_fault fault = {.seed = campaign->seed,
                                .steps = STEPS,
                                .op = ways[way].op,
                                .after = after,
                                .err = ways[way].err};
    world_run_fault(&fault, &world);
    campaign->by_op[fault.op]++;
    if (world.failed)
        report(campaign, &fault, world.error);
    else
        campaign->passed++;
}

/* Every call, or as many as the quota says, spread evenly. */
static void run_workload(struct campaign *campaign)
{
    struct world_report sized;
    struct world_fault none = {.seed = campaign->seed, .steps = STEPS};
    world_run_fault(&none, &sized);
    if (sized.failed) {
        report(campaign, &none, sized.error);
        return;
    }
    uint64_t all = 0, done = 0;
    for (size_t way = 0; way < WAYS; way++)
        all += sized.calls[ways[way].op];
    uint64_t quota = campaign->quota > 0 && campaign->quota < all ? campaign->quota : all;
    for (size_t way = 0; way < WAYS; way++)
        for (uint64_t n = 0; n < sized.calls[ways[way].op]; n++, done++)
            if ((done + 1) * quota / all != done * quota / all &&
                campaign->failed < ERRORS_SHOWN_MAX)
                try_fault(campaign, way, n);
}

int main(int argc, char **argv)
{
    uint64_t workloads = rig_env("MR_WORKLOADS", WORKLOADS_DEFAULT), fails = rig_env("MR_FAILS", 0);
    struct campaign campaign = {
        .seed = argc > 1 ? strtoull(argv[1], NULL, 10) : rig_env("MR_SEED", 1),
        .quota = (fails + workloads - 1) / workloads,
    };
    for (uint64_t i = 0; i < workloads && campaign.failed < ERRORS_SHOWN_MAX; i++) {
        run_workload(&campaign);
        campaign.seed++;
    }
    printf("%llu workloads; failed calls:", (unsigned long long)workloads);
    for (enum simfs_op op = 0; op < SIMFS_OP_COUNT; op++)
        printf(" %llu %s%s", (unsigned long long)campaign.by_op[op], simfs_op_name(op),
               op + 1 < SIMFS_OP_COUNT ? "," : "\n");
    printf("%llu passed, %llu failed\n", (unsigned long long)campaign.passed,
           (unsigned long long)campaign.failed);
    return campaign.failed ? 1 : 0;
}
