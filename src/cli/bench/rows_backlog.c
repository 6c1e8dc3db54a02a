/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures about many waiting tasks, on one store that is filled once: memory a task, time to open,
 * and how fast a worker drains it, compared with a small backlog.
 */
#include <malloc.h>
#include <unistd.h>

#include "cli/bench/bench.h"

enum { SLOTS = 8, SMALL_BACKLOG = 10 * 1000, OUTSTANDING = 8, ROUNDS = 4 };

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

/* A paused queue, a worker on it, and what it took to run its tasks. */
struct side {
    struct mr_client *client;
    struct mr_worker *worker;
    uint64_t tasks;
    double seconds;
};

static enum mr_err side_init(struct side *side, struct mr_client *client)
{
    *side = (struct side){.client = client};
    MR_TRY(mr_queue_set_max_length(client, MR_SLICE_LIT(BENCH_QUEUE), 0)); /* makes it */
    MR_TRY(mr_queue_pause(client, MR_SLICE_LIT(BENCH_QUEUE)));
    return bench_worker_new(client, SLOTS, bench_noop, NULL, &side->worker);
}

static double side_rate(const struct side *side)
{
    return side->seconds > 0 ? (double)side->tasks / side->seconds : 0;
}

static uint64_t done_by(const struct side *side)
{
    struct mr_worker_figures figures;
    mr_worker_figures(side->worker, &figures);
    return figures.done;
}

/* Waits until nothing of the paused queue is in hand. */
static enum mr_err settle(struct side *side)
{
    static const double LOOK_S = 0.001;
    struct mr_queue_info info;
    for (;;) {
        MR_TRY(mr_queue_get(side->client, MR_SLICE_LIT(BENCH_QUEUE), &info));
        if (info.counts[MR_ACTIVE] == 0)
            return MR_OK;
        if (bench_interrupted())
            return MR_CANCELLED;
        bench_sleep(LOOK_S);
    }
}

/* Fills the paused queue and works all of it off; only that is timed. */
static enum mr_err drain(struct side *side, uint64_t tasks, uint64_t there)
{
    struct mr_slice queue = MR_SLICE_LIT(BENCH_QUEUE);
    uint64_t before = done_by(side);
    MR_TRY(fill(side->client, tasks - there));
    int64_t start = bench_now_ns();
    MR_TRY(mr_queue_resume(side->client, queue));
    MR_TRY(bench_worker_await(side->worker, before + tasks));
    side->seconds += bench_seconds_since(start);
    side->tasks += done_by(side) - before;
    MR_TRY(mr_queue_pause(side->client, queue));
    return settle(side);
}

/* Small backlogs again and again, until they have lasted long enough. */
static enum mr_err drain_small(struct side *side, double seconds)
{
    double until = side->seconds + seconds;
    enum mr_err err = MR_OK;
    while (err == MR_OK && side->seconds < until)
        err = drain(side, SMALL_BACKLOG, 0);
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

/* Big and small ones in turn, several times: a machine that changes meanwhile does so for both. A big one is worked off
 * without a pause, as in life: a queue that rests half full is a time for upkeep. Without a big one only small ones. */
static enum mr_err take_turns(struct bench *bench, struct side *small, struct side *big)
{
    for (int i = 0; i < ROUNDS; i++) {
        bench_doing(bench, big ? "process" : "process-small");
        MR_TRY(drain_small(small, bench->seconds / ROUNDS));
        if (big) /* the first is there, since it was weighed */
            MR_TRY(drain(big, bench->backlog, i == 0 ? bench->backlog : 0));
        MR_TRY(drain_small(small, bench->seconds / ROUNDS));
    }
    return MR_OK;
}

static enum mr_err measure_process(struct bench *bench, struct mr_client *client)
{
    struct bench_store store;
    struct side small = {0}, big = {0};
    MR_TRY(bench_store_open(bench, "process-small", NULL, &store));
    enum mr_err err = side_init(&small, store.client);
    if (err == MR_OK && client)
        err = side_init(&big, client);
    if (err == MR_OK)
        err = take_turns(bench, &small, client ? &big : NULL);
    mr_worker_free(big.worker);
    mr_worker_free(small.worker);
    bench_store_close(&store);
    if (err == MR_OK && bench_wants(bench, "process-small"))
        add_small(bench, side_rate(&small));
    if (err == MR_OK && client)
        add_process(bench, side_rate(&big), side_rate(&small));
    return err;
}

/* ---- the group ------------------------------------------------------------------------------ */

static enum mr_err on_big_store(struct bench *bench)
{
    struct bench_store store;
    MR_TRY(bench_store_open(bench, "backlog", NULL, &store));
    enum mr_err err = measure_memory(bench, store.client);
    if (err == MR_OK && bench_wants(bench, "restart"))
        err = measure_restart(bench, &store);
    if (err == MR_OK && bench_wants(bench, "process"))
        err = measure_process(bench, store.client);
    bench_store_close(&store);
    return err;
}

static enum mr_err run(struct bench *bench)
{
    bool wants_process = bench_wants(bench, "process");
    if (wants_process || bench_wants(bench, "memory") || bench_wants(bench, "restart"))
        MR_TRY(on_big_store(bench));
    if (!wants_process && bench_wants(bench, "process-small"))
        return measure_process(bench, NULL);
    return MR_OK;
}

const struct bench_group bench_backlog = {
    .names = (const char *const[]){"memory", "restart", "process-small", "process", NULL},
    .run = run};
