/* SPDX-License-Identifier: Apache-2.0 */
/* The rows at a server: plain gRPC calls, the remote engine, and a server that only stands there. */
#include <stdlib.h>

#include "base/net.h"
#include "cli/bench/server.h"
#include "cli/remove_dir.h"

enum { SLOTS = 8 };

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- durable enqueue by calls --------------------------------------------------------------- */

struct calls_row {
    const char *name, *unit;
    struct bench_calls_shape shape;
    double goal, per_call;
};

static enum mr_err call_rounds(struct bench *bench, struct bench_raw *raw, unsigned batch,
                               struct bench_calls *calls, double *ret_rate)
{
    uint64_t answered = 0;
    double seconds = 0, round = bench_round_seconds(bench);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        MR_TRY(bench_raw_run(raw, batch, round));
        MR_TRY(bench_calls_run(calls, round, &answered, &seconds));
    }
    *ret_rate = (double)answered / seconds;
    return MR_OK;
}

static enum mr_err run_calls(struct bench *bench, const struct calls_row *it)
{
    struct bench_raw raw = {0};
    struct bench_server server;
    struct bench_calls *calls = NULL;
    double rate = 0;
    bench_doing(bench, it->name);
    enum mr_err err = bench_server_begin(bench, it->name, &server);
    if (err == MR_OK)
        err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = bench_calls_open(&server, &it->shape, &calls);
    bench_doing(bench, it->name);
    if (err == MR_OK)
        err = call_rounds(bench, &raw, it->shape.tasks, calls, &rate);
    bench_calls_close(calls);
    bench_server_end(&server);
    bench_raw_close(&raw);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, it->name, rate * it->per_call, it->unit);
    bench_yardstick(row, bench_raw_rate(&raw), "raw append+fdatasync of %u", it->shape.tasks);
    bench_goal(row, row->value >= it->goal, "%.0f %s", it->goal, it->unit);
    snprintf(row->note, sizeof row->note, "%u connections, %u calls in flight on each",
             it->shape.connections, it->shape.in_flight);
    return MR_OK;
}

static enum mr_err run_batch(struct bench *bench)
{
    static const struct calls_row it = {
        "server-enqueue-batch", "tasks/s", {1, 8, BENCH_BATCH}, 400 * 1000, BENCH_BATCH};
    return run_calls(bench, &it);
}

const struct bench_group bench_server_batch = {NAMES("server-enqueue-batch"),
                                               .place = BENCH_AT_SERVER, .run = run_batch};

static enum mr_err run_unary(struct bench *bench)
{
    static const struct calls_row it = {
        "server-enqueue-unary", "calls/s", {8, 32, 1}, 60 * 1000, 1};
    return run_calls(bench, &it);
}

const struct bench_group bench_server_unary = {NAMES("server-enqueue-unary"),
                                               .place = BENCH_AT_SERVER, .run = run_unary};

/* ---- take, run and finish ------------------------------------------------------------------- */

/* A backlog is made without a worker and worked off, until that has lasted long enough. */
static enum mr_err work_off(struct bench *bench, struct mr_client *client, double *ret_rate)
{
    enum { BACKLOG = 200 * 1000 };
    struct bench_load load = {.tasks = BACKLOG, .outstanding = SLOTS};
    uint64_t tasks = 0;
    double seconds = 0;
    while (seconds < bench->seconds) {
        struct mr_worker *worker = NULL;
        MR_TRY(bench_load_run(client, &load, NULL, NULL));
        int64_t start = bench_now_ns();
        MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
        enum mr_err err = bench_worker_await(worker, BACKLOG);
        seconds += bench_seconds_since(start);
        tasks += BACKLOG;
        mr_worker_free(worker);
        MR_TRY(err);
    }
    *ret_rate = (double)tasks / seconds;
    return MR_OK;
}

static enum mr_err run_process(struct bench *bench)
{
    static const double GOAL = 150 * 1000;
    struct bench_server server;
    struct mr_client *client = NULL;
    double rate = 0;
    bench_doing(bench, "server-process");
    enum mr_err err = bench_server_begin(bench, "server-process", &server);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    if (err == MR_OK)
        err = work_off(bench, client, &rate);
    mr_client_close(client);
    bench_server_end(&server);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "server-process", rate, "tasks/s");
    bench_yardstick(row, GOAL, "goal");
    bench_goal(row, rate >= GOAL, "%.0f tasks/s", GOAL);
    snprintf(row->note, sizeof row->note, "%d slots, through the remote engine", SLOTS);
    return MR_OK;
}

const struct bench_group bench_server_process = {NAMES("server-process"), .place = BENCH_AT_SERVER,
                                                 .run = run_process};

/* ---- from the call to the handler in another process ---------------------------------------- */

static enum mr_err latency_rounds(struct bench *bench, struct bench_raw *raw,
                                  struct mr_client *client, struct bench_other *other,
                                  struct bench_samples *samples)
{
    int64_t ns;
    MR_TRY(bench_other_latency(client, other, &ns)); /* until the other one is there */
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        MR_TRY(bench_raw_run(raw, 1, bench_round_seconds(bench)));
        for (int64_t start = bench_now_ns();
             bench_seconds_since(start) < bench_round_seconds(bench);) {
            MR_TRY(bench_other_latency(client, other, &ns));
            bench_samples_add(samples, ns);
        }
    }
    return MR_OK;
}

static void add_latency(struct bench *bench, struct bench_raw *raw, struct bench_samples *samples)
{
    static const double SLACK_MS = 1;
    double p99 = bench_samples_ms(samples, 0.99), sync_p99 = bench_samples_ms(&raw->samples, 0.99);
    struct bench_row *row = bench_add(bench, "server-latency-p99", p99, "ms");
    bench_yardstick(row, sync_p99, "p99 of one sync");
    bench_goal(row, p99 <= sync_p99 + SLACK_MS, "the yardstick + %.0f ms", SLACK_MS);
    snprintf(row->note, sizeof row->note, "median %.3f ms over %zu tasks, of a sync %.3f ms",
             bench_samples_ms(samples, 0.5), samples->n, bench_samples_ms(&raw->samples, 0.5));
}

static enum mr_err run_latency(struct bench *bench)
{
    enum { SAMPLES = 1000 * 1000 };
    struct bench_raw raw = {0};
    struct bench_server server;
    struct bench_samples samples;
    struct bench_other other = {0};
    struct mr_client *client = NULL;
    bench_samples_init(&samples, SAMPLES);
    enum mr_err err = bench_server_begin(bench, "server-latency", &server);
    if (err == MR_OK)
        err = bench_other_start(&server, BENCH_OTHER_WORKS, &other);
    if (err == MR_OK)
        err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    bench_doing(bench, "server-latency-p99");
    if (err == MR_OK)
        err = latency_rounds(bench, &raw, client, &other, &samples);
    bench_other_end(&other);
    mr_client_close(client);
    bench_server_end(&server);
    if (err == MR_OK)
        add_latency(bench, &raw, &samples);
    bench_raw_close(&raw);
    bench_samples_done(&samples);
    return err;
}

const struct bench_group bench_server_latency = {NAMES("server-latency-p99"),
                                                 .place = BENCH_AT_SERVER, .run = run_latency};

/* ---- workers that wait ---------------------------------------------------------------------- */

enum { IDLE_WORKERS = 1000, MIB = 1024 * 1024 };

struct idler {
    struct mr_client *client;
    struct mr_worker *worker;
};

static void idlers_end(struct idler *idlers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mr_worker_free(idlers[i].worker);
        mr_client_close(idlers[i].client);
    }
    free(idlers);
}

/* Each with a connection of its own. */
static enum mr_err idlers_begin(struct bench_server *server, struct idler *idlers)
{
    for (size_t i = 0; i < IDLE_WORKERS; i++) {
        MR_TRY(bench_server_open(server, &idlers[i].client));
        MR_TRY(bench_worker_new(idlers[i].client, 1, bench_noop, NULL, &idlers[i].worker));
        if (bench_interrupted())
            return MR_CANCELLED;
    }
    return MR_OK;
}

static void add_idle(struct bench *bench, double memory, double percent)
{
    static const double GOAL_MIB = 200, GOAL_PERCENT = 2;
    struct bench_row *row = bench_add(bench, "server-idle-workers", memory / MIB, "MiB");
    bench_yardstick(row, GOAL_MIB, "goal");
    bench_goal(row, row->value < GOAL_MIB, "%.0f MiB", GOAL_MIB);
    snprintf(row->note, sizeof row->note, "of the server, with %d workers connected", IDLE_WORKERS);
    row = bench_add(bench, "server-idle-cpu", percent, "percent of a core");
    bench_yardstick(row, GOAL_PERCENT, "goal");
    bench_goal(row, row->value < GOAL_PERCENT, "%.0f percent", GOAL_PERCENT);
    snprintf(row->note, sizeof row->note, "of the same server");
}

static enum mr_err run_idle(struct bench *bench)
{
    struct bench_server server;
    struct bench_usage before = {0}, after = {0};
    struct idler *idlers = cli_alloc(IDLE_WORKERS, sizeof *idlers);
    double seconds = 0;
    mr_net_allow_many();
    bench_doing(bench, "server-idle-workers");
    enum mr_err err = bench_server_begin(bench, "server-idle", &server);
    if (err == MR_OK)
        err = idlers_begin(&server, idlers);
    if (err == MR_OK)
        bench_sleep(1); /* what connecting has cost is not idling */
    if (err == MR_OK)
        err = bench_server_usage(&server, &before);
    if (err == MR_OK) {
        int64_t start = bench_now_ns();
        bench_sleep(bench->seconds);
        seconds = bench_seconds_since(start);
        err = bench_interrupted() ? MR_CANCELLED : bench_server_usage(&server, &after);
    }
    idlers_end(idlers, IDLE_WORKERS);
    bench_server_end(&server);
    if (err == MR_OK)
        add_idle(bench, after.memory, 100 * (after.cpu_s - before.cpu_s) / seconds);
    return err;
}

const struct bench_group bench_server_idle = {NAMES("server-idle-workers", "server-idle-cpu"),
                                              .place = BENCH_AT_OWN_SERVER, .run = run_idle};

/* ---- starting ------------------------------------------------------------------------------- */

static enum mr_err run_start(struct bench *bench)
{
    enum { STARTS = 9 };
    static const double GOAL = 1;
    struct bench_samples samples;
    enum mr_err err = MR_OK;
    bench_samples_init(&samples, STARTS);
    bench_doing(bench, "server-start");
    for (int i = 0; err == MR_OK && i < STARTS; i++) {
        struct bench_server server;
        int64_t start = bench_now_ns();
        err = bench_server_begin(bench, "server-start", &server);
        bench_samples_add(&samples, bench_now_ns() - start);
        bench_server_end(&server);
        if (err == MR_OK && bench_interrupted())
            err = MR_CANCELLED;
    }
    if (err == MR_OK) {
        double median = bench_samples_ms(&samples, 0.5) / (double)MR_MS_PER_S;
        struct bench_row *row = bench_add(bench, "server-start", median, "s");
        bench_yardstick(row, GOAL, "goal");
        bench_goal(row, median <= GOAL, "%.0f s", GOAL);
        snprintf(row->note, sizeof row->note,
                 "the middle of %d with an empty folder; at most %.3f s", STARTS,
                 bench_samples_ms(&samples, 1) / (double)MR_MS_PER_S);
    }
    bench_samples_done(&samples);
    return err;
}

const struct bench_group bench_server_start = {NAMES("server-start"), .place = BENCH_AT_OWN_SERVER,
                                               .run = run_start};
