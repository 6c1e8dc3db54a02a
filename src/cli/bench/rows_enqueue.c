/* SPDX-License-Identifier: Apache-2.0 */
/* Durable enqueue: batches of one producer, and many threads that wait for one task each. */
#include "cli/bench/bench.h"

/* ---- batches -------------------------------------------------------------------------------- */

static enum mr_err run_batch(struct bench *bench)
{
    enum { OUTSTANDING = 4 };
    static const double GOAL = 0.6;
    double raw, p99, seconds = 1;
    MR_TRY(bench_raw(bench, BENCH_BATCH, &raw, &p99));
    struct bench_store store;
    MR_TRY(bench_store_open(bench, "enqueue-batch", NULL, &store));
    bench_doing(bench, "enqueue-batch");
    struct bench_load load = {.seconds = bench->seconds, .outstanding = OUTSTANDING};
    uint64_t tasks = 0;
    enum mr_err err = bench_load_run(store.client, &load, &tasks, &seconds);
    bench_store_close(&store);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "enqueue-batch", (double)tasks / seconds, "tasks/s");
    bench_yardstick(row, raw, "raw append+fdatasync of %d", BENCH_BATCH);
    bench_goal(row, row->ratio >= GOAL, "%.1f x the yardstick", GOAL);
    return MR_OK;
}

const struct bench_group bench_enqueue_batch = {
    .names = (const char *const[]){"enqueue-batch", NULL}, .run = run_batch};

/* ---- threads -------------------------------------------------------------------------------- */

enum { THREADS = 64 };

struct producer {
    pthread_t thread;
    struct mr_client *client;
    double seconds;
    uint64_t tasks;
    enum mr_err err;
};

static void *produce(void *arg)
{
    struct producer *self = arg;
    struct mr_task_options task = bench_task();
    struct mr_enqueue_result result;
    for (int64_t start = bench_now_ns();
         self->err == MR_OK && bench_seconds_since(start) < self->seconds; self->tasks++) {
        self->err = mr_enqueue(self->client, &task, 1, &result);
        if (self->err == MR_OK)
            self->err = bench_interrupted() ? MR_CANCELLED : result.err;
    }
    return NULL;
}

static enum mr_err produce_all(struct mr_client *client, double seconds, double *ret_rate)
{
    struct producer producers[THREADS] = {0};
    int64_t start = bench_now_ns();
    enum mr_err err = MR_OK;
    size_t started = 0;
    for (; err == MR_OK && started < THREADS; started++) {
        producers[started] = (struct producer){.client = client, .seconds = seconds};
        err = mr_thread_start(&producers[started].thread, "producer", produce, &producers[started]);
        if (err != MR_OK)
            break;
    }
    uint64_t tasks = 0;
    for (size_t i = 0; i < started; i++) {
        mr_thread_join(producers[i].thread);
        tasks += producers[i].tasks;
        err = err == MR_OK ? producers[i].err : err;
    }
    if (err == MR_OK)
        *ret_rate = (double)tasks / bench_seconds_since(start);
    return err;
}

static enum mr_err run_threads(struct bench *bench)
{
    static const double GOAL = 10;
    double raw, p99, rate = 0;
    MR_TRY(bench_raw(bench, 1, &raw, &p99));
    struct bench_store store;
    MR_TRY(bench_store_open(bench, "enqueue-threads", NULL, &store));
    bench_doing(bench, "enqueue-threads");
    enum mr_err err = produce_all(store.client, bench->seconds, &rate);
    bench_store_close(&store);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "enqueue-threads", rate, "tasks/s");
    bench_yardstick(row, raw, "raw append+fdatasync of 1");
    bench_goal(row, row->ratio >= GOAL, "%.0f x the yardstick", GOAL);
    return MR_OK;
}

const struct bench_group bench_enqueue_threads = {
    .names = (const char *const[]){"enqueue-threads", NULL}, .run = run_threads};
