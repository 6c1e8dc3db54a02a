/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast it is: `jobs --pace N` runs a job of N lines with a handler that does nothing, from the first line to the
 * reduced result, in this process: a broker in a folder, SQLite, one service, 8 slots.
 */
#include <stdio.h>
#include <sys/resource.h>

#include "jobs/child.h"
#include "jobs/rig.h"

enum { SLOTS = 8 };

static enum mr_outcome do_nothing(struct mr_run *run, void *arg)
{
    (void)arg;
    return mr_run_result(run, MR_SLICE_LIT("done\n")) == MR_OK ? MR_DONE : MR_FAIL;
}

static double seconds_since(mr_mono since)
{
    return (double)(mr_mono_now(mr_clock_system()).ns - since.ns) / (double)MR_NS_PER_S;
}

static double cpu_seconds(const struct rusage *used)
{
    return (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
           (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
}

static void run_one(struct rig *rig, size_t n, const char *what)
{
    char id[RIG_ID_MAX];
    struct rusage used;
    mr_mono since = mr_mono_now(mr_clock_system());
    rig_load(rig, RIG_JOB(), "line %zu of a text that is neither long nor short\n", n, id);
    double loaded = seconds_since(since);
    while (!rig_is_end(rig_state(rig, id)))
        rig_sleep_ms(20);
    double all = seconds_since(since);
    struct rig_job job = rig_job(rig, id);
    (void)getrusage(RUSAGE_SELF, &used);
    printf(
        "%s parts=%zu state=%s done=%llu load_s=%.2f load_per_s=%.0f all_s=%.2f parts_per_s=%.0f "
        "rss_mib=%ld cpu_s=%.2f versions=%llu\n",
        what, n, mr_job_state_name(job.state), (unsigned long long)job.done, loaded,
        (double)n / loaded, all, (double)n / all, used.ru_maxrss / 1024, cpu_seconds(&used),
        (unsigned long long)job.version);
}

int jobs_pace(size_t n, size_t cold)
{
    struct rig *rig = rig_make();
    rig->settings = (struct mr_job_settings){.segment_parts = 0};
    rig_serve(rig, 0);
    rig->workers[0] = child_work(rig->broker, SLOTS, "default", do_nothing, rig);
    run_one(rig, n, "pace");
    for (size_t i = 0; i < cold; i++)
        run_one(rig, 100000, "cold");
    if (cold > 0)
        run_one(rig, n, "pace_behind_cold");
    rig_free(rig);
    return 0;
}
