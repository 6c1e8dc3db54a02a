/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures about many waiting tasks, on one store that is filled once: memory a task, time to open,
 * and how fast a worker drains it, compared with a small backlog.
 */
#include <malloc.h>
#include <unistd.h>

#include "cli/bench/bench.h"

enum { SLOTS = 8, SMALL_BACKLOG = 10 * 1000, OUTSTANDING = 8 };

static const double GOAL_RATE = 250 * 1000, GOAL_FALL = 0.9, GOAL_BYTES = 128, GOAL_RESTART_S = 5;

/* ---- memory --------------------------------------------------------------------------------- */

static double rss_bytes(void)
{
    long total = 0, resident = 0;
    malloc_trim(0); /* what is free already is not the engine's */
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%ld %ld", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static enum mr_err fill(struct mr_client *client, uint64_t tasks)
{
    struct bench_load load = {.tasks = tasks, .outstanding = OUTSTANDING};
    return bench_load_run(client, &load, NULL, NULL);
}

static enum mr_err measure_memory(struct bench *bench, struct mr_client *client)
{
    /* The buffers of the first requests are not the tasks'. */
    uint64_t warm_up = bench->backlog / 100;
    bench_doing(bench, "memory: filling the backlog");
    MR_TRY(fill(client, warm_up));
    double before = rss_bytes();
    MR_TRY(fill(client, bench->backlog - warm_up));
    double bytes = (rss_bytes() - before) / (double)(bench->backlog - warm_up);
    if (!bench_wants(bench, "memory"))
        return MR_OK;
    struct mr_stats stats;
    MR_TRY(mr_stats_get(client, &stats));
    struct bench_row *row = bench_add(bench, "memory", bytes, "bytes a task");
    bench_yardstick(row, GOAL_BYTES, "goal");
    bench_goal(row, bytes <= GOAL_BYTES, "%.0f bytes", GOAL_BYTES);
    snprintf(row->note, sizeof row->note, "%llu waiting; the engine counts %.1f",
             (unsigned long long)stats.tasks,
             (double)stats.memory_bytes / (double)(stats.tasks ? stats.tasks : 1));
    return MR_OK;
}

/* ---- restart -------------------------------------------------------------------------------- */

static enum mr_err measure_restart(struct bench *bench, struct bench_store *store)
{
    double seconds = 0;
    bench_doing(bench, "restart");
    MR_TRY(bench_store_reopen(bench, store, &seconds));
    struct bench_row *row = bench_add(bench, "restart", seconds, "s");
    bench_yardstick(row, GOAL_RESTART_S, "goal");
    bench_goal(row, seconds <= GOAL_RESTART_S, "%.0f s", GOAL_RESTART_S);
    snprintf(row->note, sizeof row->note, "%llu waiting tasks", (unsigned long long)bench->backlog);
    return MR_OK;
}

/* ---- processing ----------------------------------------------------------------------------- */

/* Lets the worker drain what waits in the paused queue; adds to the time. */
static enum mr_err drain(struct mr_client *client, struct mr_worker *worker, uint64_t until,
                         double *seconds)
{
    struct mr_slice queue = MR_SLICE_LIT(BENCH_QUEUE);
    int64_t start = bench_now_ns();
    MR_TRY(mr_queue_resume(client, queue));
    MR_TRY(bench_worker_await(worker, until));
    *seconds += bench_seconds_since(start);
    return mr_queue_pause(client, queue);
}

/* What small backlogs took, over all rounds. */
struct small {
    uint64_t tasks;
    double seconds;
};

static double small_rate(const struct small *small)
{
    return small->seconds > 0 ? (double)small->tasks / small->seconds : 0;
}

/* Small backlogs again and again, until they have lasted long enough. */
static enum mr_err drain_small(struct mr_client *client, double seconds, struct small *small)
{
    struct mr_worker *worker = NULL;
    uint64_t tasks = 0;
    double took = 0;
    MR_TRY(mr_queue_set_max_length(client, MR_SLICE_LIT(BENCH_QUEUE), 0)); /* makes it */
    MR_TRY(mr_queue_pause(client, MR_SLICE_LIT(BENCH_QUEUE)));
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    enum mr_err err = MR_OK;
    while (err == MR_OK && took < seconds) {
        err = fill(client, SMALL_BACKLOG);
        tasks += SMALL_BACKLOG;
        if (err == MR_OK)
            err = drain(client, worker, tasks, &took);
    }
    mr_worker_free(worker);
    small->tasks += tasks;
    small->seconds += took;
    return err;
}

/* Half of the small backlogs come before the big one and half after it, so that a machine that
 * changes meanwhile does so for both. */
static enum mr_err measure_small(struct bench *bench, struct small *small)
{
    struct bench_store store;
    bench_doing(bench, "process-small");
    MR_TRY(bench_store_open(bench, "process-small", NULL, &store));
    enum mr_err err = drain_small(store.client, bench->seconds / 2, small);
    bench_store_close(&store);
    return err;
}

static void add_small(struct bench *bench, double rate)
{
    struct bench_row *row = bench_add(bench, "process-small", rate, "tasks/s");
    bench_yardstick(row, GOAL_RATE, "goal");
    bench_goal(row, rate >= GOAL_RATE, "%.0f tasks/s", GOAL_RATE);
    snprintf(row->note, sizeof row->note, "backlogs of %d", SMALL_BACKLOG);
}

static void add_process(struct bench *bench, double rate, double small)
{
    struct bench_row *row = bench_add(bench, "process", rate, "tasks/s");
    bench_yardstick(row, small, "process-small");
    bench_goal(row, rate >= GOAL_RATE && row->ratio >= GOAL_FALL,
               "%.0f tasks/s and %.1f x the yardstick", GOAL_RATE, GOAL_FALL);
    snprintf(row->note, sizeof row->note, "backlog of %llu", (unsigned long long)bench->backlog);
}

static enum mr_err measure_process(struct bench *bench, struct mr_client *client, double *ret_rate)
{
    struct mr_worker *worker = NULL;
    double seconds = 0;
    bench_doing(bench, "process");
    MR_TRY(mr_queue_pause(client, MR_SLICE_LIT(BENCH_QUEUE)));
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    enum mr_err err = drain(client, worker, bench->backlog, &seconds);
    mr_worker_free(worker);
    MR_TRY(err);
    *ret_rate = (double)bench->backlog / seconds;
    return MR_OK;
}

/* ---- the group ------------------------------------------------------------------------------ */

static enum mr_err on_big_store(struct bench *bench, double *ret_rate)
{
    struct bench_store store;
    MR_TRY(bench_store_open(bench, "backlog", NULL, &store));
    enum mr_err err = measure_memory(bench, store.client);
    if (err == MR_OK && bench_wants(bench, "restart"))
        err = measure_restart(bench, &store);
    if (err == MR_OK && bench_wants(bench, "process"))
        err = measure_process(bench, store.client, ret_rate);
    bench_store_close(&store);
    return err;
}

static enum mr_err run(struct bench *bench)
{
    struct small small = {0};
    double rate = 0;
    bool wants_process = bench_wants(bench, "process");
    bool wants_small = wants_process || bench_wants(bench, "process-small");
    if (wants_small)
        MR_TRY(measure_small(bench, &small));
    if (wants_process || bench_wants(bench, "memory") || bench_wants(bench, "restart"))
        MR_TRY(on_big_store(bench, &rate));
    if (wants_small)
        MR_TRY(measure_small(bench, &small));
    if (bench_wants(bench, "process-small"))
        add_small(bench, small_rate(&small));
    if (wants_process)
        add_process(bench, rate, small_rate(&small));
    return MR_OK;
}

const struct bench_group bench_backlog = {
    .names = (const char *const[]){"memory", "restart", "process-small", "process", NULL},
    .run = run};
