/* SPDX-License-Identifier: Apache-2.0 */
/* How long one task waits: from the call of enqueue to the handler's start, and lateness of due
 * ones. */
#include "base/clock.h"
#include "cli/bench/bench.h"

/* ---- enqueue to start ----------------------------------------------------------------------- */

/* One task at a time: the handler tells when it began. */
struct meeting {
    struct mr_event began;
    int64_t began_ns;
};

static enum mr_outcome note_start(struct mr_run *run, void *arg)
{
    (void)run;
    struct meeting *meeting = arg;
    meeting->began_ns = bench_now_ns();
    mr_event_set(&meeting->began);
    return MR_DONE;
}

static enum mr_err one_by_one(struct mr_client *client, struct meeting *meeting, double seconds,
                              struct bench_samples *samples)
{
    enum { PATIENCE_S = 30 };
    struct mr_task_options task = bench_task();
    struct mr_enqueue_result result;
    for (int64_t start = bench_now_ns(); bench_seconds_since(start) < seconds;) {
        mr_event_reset(&meeting->began);
        int64_t called = bench_now_ns();
        MR_TRY(mr_enqueue(client, &task, 1, &result));
        MR_TRY(result.err);
        if (!mr_event_wait(&meeting->began, PATIENCE_S * MR_NS_PER_S))
            return MR_TIMEOUT;
        bench_samples_add(samples, meeting->began_ns - called);
        if (bench_interrupted())
            return MR_CANCELLED;
    }
    return MR_OK;
}

static enum mr_err latency_rounds(struct bench *bench, struct bench_raw *raw,
                                  struct mr_client *client, struct bench_samples *samples)
{
    enum { SLOTS = 8 };
    struct meeting meeting;
    struct mr_worker *worker = NULL;
    double round = bench_round_seconds(bench);
    bench_doing(bench, "latency-p99");
    mr_event_init(&meeting.began);
    MR_TRY(bench_worker_new(client, SLOTS, note_start, &meeting, &worker));
    enum mr_err err = MR_OK;
    for (int i = 0; err == MR_OK && i < BENCH_ROUNDS; i++) {
        err = bench_raw_run(raw, 1, round);
        if (err == MR_OK)
            err = one_by_one(client, &meeting, round, samples);
    }
    mr_worker_free(worker);
    return err;
}

static void add_latency(struct bench *bench, struct bench_raw *raw, struct bench_samples *samples)
{
    static const double SLACK_MS = 0.3;
    double p99 = bench_samples_ms(samples, 0.99), sync_p99 = bench_samples_ms(&raw->samples, 0.99);
    struct bench_row *row = bench_add(bench, "latency-p99", p99, "ms");
    bench_yardstick(row, sync_p99, "p99 of one sync");
    bench_goal(row, p99 <= sync_p99 + SLACK_MS, "the yardstick + %.1f ms", SLACK_MS);
    snprintf(row->note, sizeof row->note, "median %.3f ms over %zu tasks, of a sync %.3f ms",
             bench_samples_ms(samples, 0.5), samples->n, bench_samples_ms(&raw->samples, 0.5));
}

static enum mr_err run_latency(struct bench *bench)
{
    enum { SAMPLES = 1000 * 1000 };
    struct bench_raw raw;
    struct bench_store store = {0};
    struct bench_samples samples;
    bench_samples_init(&samples, SAMPLES);
    enum mr_err err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = bench_store_open(bench, "latency", NULL, &store);
    if (err == MR_OK)
        err = latency_rounds(bench, &raw, store.client, &samples);
    bench_store_close(&store);
    if (err == MR_OK)
        add_latency(bench, &raw, &samples);
    bench_raw_close(&raw);
    bench_samples_done(&samples);
    return err;
}

const struct bench_group bench_latency = {.names = (const char *const[]){"latency-p99", NULL},
                                          .run = run_latency};

/* ---- due tasks ------------------------------------------------------------------------------ */

enum { DUE_PER_SECOND = 10 * 1000, DUE_SECONDS_MAX = 10, DUE_SLOTS = 8 };

/* An active task has no due time any more, so each carries its own in the payload. */
struct due {
    char payloads[BENCH_BATCH][BENCH_PAYLOAD];
    int64_t first_ms;
    uint64_t tasks, span_ms;
    struct mr_lock lock; /* samples come from several slots */
    struct bench_samples late;
    uint64_t early;
};

static void shape_due(struct mr_task_options *task, uint64_t i, void *arg)
{
    struct due *due = arg;
    char *payload = due->payloads[i % BENCH_BATCH];
    task->at_ms = due->first_ms + (int64_t)(i * due->span_ms / due->tasks);
    mr_store64(payload, (uint64_t)task->at_ms);
    task->payload = mr_slice_make(payload, BENCH_PAYLOAD);
}

static enum mr_outcome note_lateness(struct mr_run *run, void *arg)
{
    struct due *due = arg;
    int64_t now_us = mr_wall_now(mr_clock_system()).us;
    int64_t due_ms = (int64_t)mr_load64(mr_run_task(run)->payload.data);
    int64_t late_us = now_us - due_ms * MR_US_PER_MS;
    mr_lock_enter(&due->lock);
    bench_samples_add(&due->late, late_us * MR_NS_PER_US);
    due->early += late_us < 0;
    mr_lock_leave(&due->lock);
    return MR_DONE;
}

/* The same on every engine, but for what was promised. */
struct due_row {
    const char *name;
    double goal_ms;
    int64_t lead_ms; /* time to enqueue them all before the first is due */
};

static void add_lateness(struct bench *bench, const struct due_row *it, struct due *due)
{
    double p99 = bench_samples_ms(&due->late, 0.99);
    struct bench_row *row = bench_add(bench, it->name, p99, "ms");
    bench_yardstick(row, it->goal_ms, "goal");
    bench_goal(row, p99 <= it->goal_ms && due->early == 0, "%.0f ms, none early", it->goal_ms);
    snprintf(row->note, sizeof row->note, "%llu tasks over %g s, %llu early",
             (unsigned long long)due->tasks, (double)due->span_ms / (double)MR_MS_PER_S,
             (unsigned long long)due->early);
}

static enum mr_err measure_lateness(struct bench *bench, const struct due_row *it)
{
    double span = bench->seconds < DUE_SECONDS_MAX ? bench->seconds : DUE_SECONDS_MAX;
    struct due due = {.tasks = (uint64_t)(span * DUE_PER_SECOND),
                      .span_ms = (uint64_t)(span * (double)MR_MS_PER_S)};
    struct bench_store store;
    MR_TRY(bench_store_open(bench, "lateness", NULL, &store));
    bench_doing(bench, it->name);
    mr_lock_init(&due.lock);
    bench_samples_init(&due.late, due.tasks);
    due.first_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + it->lead_ms;
    struct bench_load load = {
        .tasks = due.tasks, .outstanding = 4, .shape = shape_due, .arg = &due};
    struct mr_worker *worker = NULL;
    enum mr_err err = bench_load_run(store.client, &load, NULL, NULL);
    if (err == MR_OK && mr_wall_ms(mr_wall_now(mr_clock_system())) >= due.first_ms) {
        mr_detail_set(&bench->detail, "enqueueing took longer than the lead of %lld ms",
                      (long long)it->lead_ms);
        err = MR_TIMEOUT;
    }
    if (err == MR_OK)
        err = bench_worker_new(store.client, DUE_SLOTS, note_lateness, &due, &worker);
    if (err == MR_OK)
        err = bench_worker_await(worker, due.tasks);
    mr_worker_free(worker);
    bench_store_close(&store);
    if (err == MR_OK)
        add_lateness(bench, it, &due);
    bench_samples_done(&due.late);
    mr_lock_done(&due.lock);
    return err;
}

static enum mr_err run_lateness(struct bench *bench)
{
    static const struct due_row it = {"lateness-p99", 5, 3000};
    return measure_lateness(bench, &it);
}

static enum mr_err run_redis_lateness(struct bench *bench)
{
    static const struct due_row it = {"redis-lateness-p99", 10, 6000};
    return measure_lateness(bench, &it);
}

const struct bench_group bench_redis_lateness = {
    .names = (const char *const[]){"redis-lateness-p99", NULL},
    .place = BENCH_ON_REDIS,
    .run = run_redis_lateness};

const struct bench_group bench_lateness = {.names = (const char *const[]){"lateness-p99", NULL},
                                           .run = run_lateness};
