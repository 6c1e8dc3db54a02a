/* SPDX-License-Identifier: Apache-2.0 */
/* What upkeep costs: enqueue while snapshots are written, disk that is given back, and doing
 * nothing. */
#include <sys/resource.h>

#include "base/clock.h"
#include "cli/bench/bench.h"

enum { SLOTS = 8, MIB = 1024 * 1024 };

/* ---- enqueue while snapshots are written ---------------------------------------------------- */

/* Batches that come and go beside the one whose latency is measured. */
struct churn {
    struct mr_client *client;
    pthread_t thread;
    struct mr_event stop;
    enum mr_err err;
};

static void *churn_main(void *arg)
{
    enum { BATCHES = 4, PAUSE_NS = 2 * 1000 * 1000 };
    struct churn *churn = arg;
    struct bench_load load = {.tasks = BATCHES * BENCH_BATCH, .outstanding = 2};
    while (churn->err == MR_OK && !mr_event_wait(&churn->stop, PAUSE_NS))
        churn->err = bench_load_run(churn->client, &load, NULL, NULL);
    return NULL;
}

static enum mr_err time_enqueues(struct mr_client *client, double seconds, double *ret_p99_ms)
{
    enum { SAMPLES = 1000 * 1000 };
    struct bench_samples samples;
    struct mr_task_options task = bench_task();
    struct mr_enqueue_result result;
    enum mr_err err = MR_OK;
    bench_samples_init(&samples, SAMPLES);
    for (int64_t start = bench_now_ns(); err == MR_OK && bench_seconds_since(start) < seconds;) {
        int64_t called = bench_now_ns();
        err = mr_enqueue(client, &task, 1, &result);
        if (err == MR_OK)
            err = bench_interrupted() ? MR_CANCELLED : result.err;
        bench_samples_add(&samples, bench_now_ns() - called);
    }
    if (err == MR_OK)
        *ret_p99_ms = bench_samples_ms(&samples, 0.99);
    bench_samples_done(&samples);
    return err;
}

/* The p99 of single enqueues under the same load, and the snapshots written meanwhile. */
static enum mr_err under_churn(struct mr_client *client, double seconds, double *ret_p99_ms,
                               uint64_t *ret_snapshots)
{
    struct churn churn = {.client = client};
    struct mr_worker *worker = NULL;
    struct mr_stats before, after;
    mr_event_init(&churn.stop);
    MR_TRY(mr_stats_get(client, &before));
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    enum mr_err err = mr_thread_start(&churn.thread, "churn", churn_main, &churn);
    if (err == MR_OK) {
        err = time_enqueues(client, seconds, ret_p99_ms);
        mr_event_set(&churn.stop);
        mr_thread_join(churn.thread);
        err = err == MR_OK ? churn.err : err;
    }
    if (err == MR_OK)
        err = mr_stats_get(client, &after);
    mr_worker_free(worker);
    if (err == MR_OK)
        *ret_snapshots = after.snapshots - before.snapshots;
    return err;
}

/* Long-lived tasks make every snapshot a big one. */
static void shape_later(struct mr_task_options *task, uint64_t i, void *arg)
{
    (void)i;
    (void)arg;
    task->delay_ms = MR_MS_PER_DAY;
}

static enum mr_err churn_in_store(struct bench *bench, size_t segment_bytes, double *ret_p99_ms,
                                  uint64_t *ret_snapshots)
{
    struct bench_store store;
    struct mr_client_options options = {.segment_bytes = segment_bytes};
    MR_TRY(bench_store_open(bench, "snapshot", &options, &store));
    struct bench_load load = {
        .tasks = bench->backlog / 10 + 1, .outstanding = 4, .shape = shape_later};
    enum mr_err err = bench_load_run(store.client, &load, NULL, NULL);
    if (err == MR_OK)
        err = under_churn(store.client, bench->seconds, ret_p99_ms, ret_snapshots);
    bench_store_close(&store);
    return err;
}

static enum mr_err run_snapshot(struct bench *bench)
{
    enum { BIG_SEGMENT = 1024 * MIB, SMALL_SEGMENT = 8 * MIB };
    static const double GOAL = 3;
    double quiet = 0, busy = 0;
    uint64_t quiet_snapshots = 0, snapshots = 0;
    bench_doing(bench, "snapshot-p99: without snapshots");
    MR_TRY(churn_in_store(bench, BIG_SEGMENT, &quiet, &quiet_snapshots));
    bench_doing(bench, "snapshot-p99: with snapshots");
    MR_TRY(churn_in_store(bench, SMALL_SEGMENT, &busy, &snapshots));
    struct bench_row *row = bench_add(bench, "snapshot-p99", busy, "ms");
    bench_yardstick(row, quiet, "p99 without snapshots");
    bench_goal(row, row->ratio <= GOAL && snapshots > 0, "%.0f x the yardstick", GOAL);
    snprintf(row->note, sizeof row->note,
             "%llu snapshots written meanwhile, %llu in the yardstick%s",
             (unsigned long long)snapshots, (unsigned long long)quiet_snapshots,
             snapshots ? "" : ": nothing was measured");
    return MR_OK;
}

const struct bench_group bench_snapshot = {.names = (const char *const[]){"snapshot-p99", NULL},
                                           .run = run_snapshot};

/* ---- disk ----------------------------------------------------------------------------------- */

static void shape_one_percent(struct mr_task_options *task, uint64_t i, void *arg)
{
    (void)arg;
    if (i % 100 == 0)
        task->delay_ms = MR_MS_PER_DAY;
}

/* Space comes back while the store runs: gives it a moment after the last task. */
static enum mr_err await_space(struct mr_client *client, size_t segment_bytes,
                               struct mr_stats *ret_stats, double *ret_limit)
{
    enum { PATIENCE_S = 10 };
    static const double LOOK_S = 0.05;
    struct mr_stats stats;
    double limit = 0;
    for (int64_t start = bench_now_ns(); bench_seconds_since(start) < PATIENCE_S;) {
        MR_TRY(mr_stats_get(client, &stats));
        limit = 2 * (double)stats.live_bytes + 3 * (double)segment_bytes;
        if ((double)stats.disk_bytes <= limit)
            break;
        if (bench_interrupted())
            return MR_CANCELLED;
        bench_sleep(LOOK_S);
    }
    *ret_stats = stats;
    *ret_limit = limit;
    return MR_OK;
}

static enum mr_err come_and_go(struct mr_client *client, uint64_t tasks)
{
    struct mr_worker *worker = NULL;
    struct bench_load load = {.tasks = tasks, .outstanding = 4, .shape = shape_one_percent};
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    enum mr_err err = bench_load_run(client, &load, NULL, NULL);
    if (err == MR_OK)
        err = bench_worker_await(worker, tasks - (tasks + 99) / 100);
    mr_worker_free(worker);
    return err;
}

static enum mr_err run_disk(struct bench *bench)
{
    enum { SEGMENT = 8 * MIB };
    struct bench_store store;
    struct mr_client_options options = {.segment_bytes = SEGMENT};
    struct mr_stats stats;
    double limit = 0;
    uint64_t tasks = bench->backlog * 2 / 5;
    MR_TRY(bench_store_open(bench, "disk", &options, &store));
    bench_doing(bench, "disk");
    enum mr_err err = come_and_go(store.client, tasks);
    if (err == MR_OK)
        err = await_space(store.client, SEGMENT, &stats, &limit);
    bench_store_close(&store);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "disk", (double)stats.disk_bytes, "bytes");
    bench_yardstick(row, limit, "2 x live data + 3 segments");
    bench_goal(row, row->ratio <= 1, "the yardstick");
    snprintf(row->note, sizeof row->note, "%llu tasks came and went, %llu bytes live",
             (unsigned long long)tasks, (unsigned long long)stats.live_bytes);
    return MR_OK;
}

const struct bench_group bench_disk = {.names = (const char *const[]){"disk", NULL},
                                       .run = run_disk};

/* ---- doing nothing -------------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static enum mr_err run_idle(struct bench *bench)
{
    static const double GOAL = 0.5;
    struct bench_store store;
    struct mr_worker *worker = NULL;
    MR_TRY(bench_store_open(bench, "idle", NULL, &store));
    bench_doing(bench, "idle-cpu");
    enum mr_err err = bench_worker_new(store.client, SLOTS, bench_noop, NULL, &worker);
    double cpu = cpu_seconds();
    int64_t start = bench_now_ns();
    if (err == MR_OK)
        bench_sleep(bench->seconds);
    double percent = 100 * (cpu_seconds() - cpu) / bench_seconds_since(start);
    mr_worker_free(worker);
    bench_store_close(&store);
    MR_TRY(err);
    if (bench_interrupted())
        return MR_CANCELLED;
    struct bench_row *row = bench_add(bench, "idle-cpu", percent, "percent of a core");
    bench_yardstick(row, GOAL, "goal");
    bench_goal(row, percent <= GOAL, "%.1f percent", GOAL);
    return MR_OK;
}

const struct bench_group bench_idle = {.names = (const char *const[]){"idle-cpu", NULL},
                                       .run = run_idle};
