/* SPDX-License-Identifier: Apache-2.0 */
/* Durable enqueue: batches of one producer, and many threads that wait for one task each. */
#include "cli/bench/bench.h"

/* ---- batches -------------------------------------------------------------------------------- */

static enum mr_err batch_rounds(struct bench *bench, struct bench_raw *raw,
                                struct mr_client *client, double *ret_rate)
{
    enum { OUTSTANDING = 4 };
    struct bench_load load = {.seconds = bench_round_seconds(bench), .outstanding = OUTSTANDING};
    uint64_t tasks = 0;
    double seconds = 0;
    bench_doing(bench, "enqueue-batch");
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        uint64_t round_tasks = 0;
        double round_seconds = 0;
        MR_TRY(bench_raw_run(raw, BENCH_BATCH, load.seconds));
        MR_TRY(bench_load_run(client, &load, &round_tasks, &round_seconds));
        tasks += round_tasks;
        seconds += round_seconds;
    }
    *ret_rate = (double)tasks / seconds;
    return MR_OK;
}

static enum mr_err run_batch(struct bench *bench)
{
    static const double GOAL = 0.6;
    struct bench_raw raw;
    struct bench_store store = {0};
    double rate = 0;
    enum mr_err err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = bench_store_open(bench, "enqueue-batch", NULL, &store);
    if (err == MR_OK)
        err = batch_rounds(bench, &raw, store.client, &rate);
    bench_store_close(&store);
    bench_raw_close(&raw);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "enqueue-batch", rate, "tasks/s");
    bench_yardstick(row, bench_raw_rate(&raw), "raw append+fdatasync of %d", BENCH_BATCH);
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

/* One round; adds to the tasks and to the time. */
static enum mr_err produce_all(struct mr_client *client, double seconds, uint64_t *tasks,
                               double *total_seconds)
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
    for (size_t i = 0; i < started; i++) {
        mr_thread_join(producers[i].thread);
        *tasks += producers[i].tasks;
        err = err == MR_OK ? producers[i].err : err;
    }
    *total_seconds += bench_seconds_since(start);
    return err;
}

static enum mr_err thread_rounds(struct bench *bench, struct bench_raw *raw,
                                 struct mr_client *client, double *ret_rate)
{
    uint64_t tasks = 0;
    double seconds = 0, round = bench_round_seconds(bench);
    bench_doing(bench, "enqueue-threads");
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        MR_TRY(bench_raw_run(raw, 1, round));
        MR_TRY(produce_all(client, round, &tasks, &seconds));
    }
    *ret_rate = (double)tasks / seconds;
    return MR_OK;
}

static enum mr_err run_threads(struct bench *bench)
{
    static const double GOAL = 10;
    struct bench_raw raw;
    struct bench_store store = {0};
    double rate = 0;
    enum mr_err err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = bench_store_open(bench, "enqueue-threads", NULL, &store);
    if (err == MR_OK)
        err = thread_rounds(bench, &raw, store.client, &rate);
    bench_store_close(&store);
    bench_raw_close(&raw);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "enqueue-threads", rate, "tasks/s");
    bench_yardstick(row, bench_raw_rate(&raw), "raw append+fdatasync of 1");
    bench_goal(row, row->ratio >= GOAL, "%.0f x the yardstick", GOAL);
    return MR_OK;
}

const struct bench_group bench_enqueue_threads = {
    .names = (const char *const[]){"enqueue-threads", NULL}, .run = run_threads};
