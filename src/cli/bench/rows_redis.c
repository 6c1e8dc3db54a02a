/* SPDX-License-Identifier: Apache-2.0 */
/* The rows on a Redis: beside what it gives to a bare script and to redis-benchmark. */
#include <sys/resource.h>

#include "cli/bench/redis.h"
#include "cli/bench/server.h"

enum { SLOTS = 10, OUTSTANDING = 4 };

#define GROUP(name_, run_, ...)                                                                    \
    const struct bench_group name_ = {                                                             \
        .names = (const char *const[]){__VA_ARGS__, NULL}, .place = BENCH_ON_REDIS, .run = run_}

/* ---- enqueue, batched ----------------------------------------------------------------------- */

/* Memory is dear there: what a round has put in goes before the next. */
static enum mr_err clear_queue(struct mr_client *client)
{
    enum mr_err err = mr_queue_remove(client, MR_SLICE_LIT(BENCH_QUEUE), MR_QUEUE_REMOVE_FORCE);
    return err == MR_NOT_FOUND ? MR_OK : err;
}

static enum mr_err batch_rounds(struct bench *bench, struct bench_redis *redis,
                                struct mr_client *client, double *ret_rate, double *ret_bare)
{
    struct bench_load load = {.seconds = bench_round_seconds(bench), .outstanding = OUTSTANDING};
    uint64_t tasks = 0, bare = 0;
    double seconds = 0, bare_seconds = 0;
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        uint64_t round_tasks = 0;
        double round_seconds = 0;
        MR_TRY(bench_redis_bare(redis, OUTSTANDING, load.seconds, &bare, &bare_seconds));
        MR_TRY(bench_load_run(client, &load, &round_tasks, &round_seconds));
        MR_TRY(clear_queue(client));
        tasks += round_tasks;
        seconds += round_seconds;
    }
    *ret_rate = (double)tasks / seconds;
    *ret_bare = (double)bare / bare_seconds;
    return MR_OK;
}

static enum mr_err run_batch(struct bench *bench)
{
    static const double GOAL = 0.7;
    struct bench_redis *redis = NULL;
    struct bench_store store = {0};
    double rate = 0, bare = 0;
    bench_doing(bench, "redis-enqueue-batch");
    enum mr_err err = bench_redis_open(bench, &redis);
    if (err == MR_OK)
        err = bench_store_open(bench, "redis", NULL, &store);
    if (err == MR_OK)
        err = batch_rounds(bench, redis, store.client, &rate, &bare);
    bench_store_close(&store);
    bench_redis_close(redis);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "redis-enqueue-batch", rate, "tasks/s");
    bench_yardstick(row, bare, "EXISTS, HSET, LPUSH for %d in a script", BENCH_BATCH);
    bench_goal(row, row->ratio >= GOAL, "%.1f x the yardstick", GOAL);
    snprintf(row->note, sizeof row->note, "%d calls in flight, both", OUTSTANDING);
    return MR_OK;
}

GROUP(bench_redis_batch, run_batch, "redis-enqueue-batch");

/* ---- take, run and finish ------------------------------------------------------------------- */

static enum mr_err work_off(struct mr_client *client, uint64_t backlog, uint64_t *tasks,
                            double *seconds)
{
    struct bench_load load = {.tasks = backlog, .outstanding = OUTSTANDING};
    struct mr_worker *worker = NULL;
    MR_TRY(bench_load_run(client, &load, NULL, NULL));
    int64_t start = bench_now_ns();
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    enum mr_err err = bench_worker_await(worker, backlog);
    *seconds += bench_seconds_since(start);
    *tasks += backlog;
    mr_worker_free(worker);
    return err;
}

static enum mr_err process_rounds(struct bench *bench, struct bench_redis *redis,
                                  struct mr_client *client, double *ret_rate, double *ret_pushes)
{
    static const double GUESS = 40 * 1000; /* a second */
    double round = bench_round_seconds(bench), seconds = 0, push_seconds = 0;
    uint64_t tasks = 0, pushes = 0;
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        MR_TRY(bench_redis_pushes(redis, round, &pushes, &push_seconds));
        MR_TRY(work_off(client, (uint64_t)(round * GUESS) + BENCH_BATCH, &tasks, &seconds));
    }
    *ret_rate = (double)tasks / seconds;
    *ret_pushes = (double)pushes / push_seconds;
    return MR_OK;
}

static enum mr_err run_process(struct bench *bench)
{
    static const double GOAL = 0.7;
    struct bench_redis *redis = NULL;
    struct bench_store store = {0};
    double rate = 0, pushes = 0;
    bench_doing(bench, "redis-process");
    enum mr_err err = bench_redis_open(bench, &redis);
    if (err == MR_OK)
        err = bench_store_open(bench, "redis", NULL, &store);
    if (err == MR_OK)
        err = process_rounds(bench, redis, store.client, &rate, &pushes);
    bench_store_close(&store);
    bench_redis_close(redis);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "redis-process", rate, "tasks/s");
    bench_yardstick(row, pushes, "redis-benchmark -P 1 -c 50 lpush");
    bench_goal(row, row->ratio >= GOAL, "%.1f x the yardstick", GOAL);
    snprintf(row->note, sizeof row->note, "%d slots in one process", SLOTS);
    return MR_OK;
}

GROUP(bench_redis_process, run_process, "redis-process");

/* ---- from the call to the handler in another process ---------------------------------------- */

static enum mr_err latency_loop(struct bench *bench, struct mr_client *client,
                                struct bench_other *other, struct bench_samples *samples)
{
    int64_t ns;
    MR_TRY(bench_other_latency(client, other, &ns)); /* until the other one is there */
    for (int64_t start = bench_now_ns(); bench_seconds_since(start) < bench->seconds;) {
        MR_TRY(bench_other_latency(client, other, &ns));
        bench_samples_add(samples, ns);
    }
    return MR_OK;
}

static enum mr_err run_latency(struct bench *bench)
{
    enum { SAMPLES = 1000 * 1000 };
    static const double GOAL_MS = 2;
    struct bench_server server;
    struct bench_samples samples;
    struct bench_other other = {0};
    struct mr_client *client = NULL;
    bench_samples_init(&samples, SAMPLES);
    enum mr_err err = bench_server_begin(bench, "redis", &server);
    if (err == MR_OK)
        err = bench_other_start(&server, BENCH_OTHER_WORKS, &other);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    bench_doing(bench, "redis-latency-p99");
    if (err == MR_OK)
        err = latency_loop(bench, client, &other, &samples);
    bench_other_end(&other);
    mr_client_close(client);
    bench_server_end(&server);
    if (err == MR_OK) {
        double p99 = bench_samples_ms(&samples, 0.99);
        struct bench_row *row = bench_add(bench, "redis-latency-p99", p99, "ms");
        bench_yardstick(row, GOAL_MS, "goal");
        bench_goal(row, p99 <= GOAL_MS, "%.0f ms", GOAL_MS);
        snprintf(row->note, sizeof row->note, "median %.3f ms over %zu tasks",
                 bench_samples_ms(&samples, 0.5), samples.n);
    }
    bench_samples_done(&samples);
    return err;
}

GROUP(bench_redis_latency, run_latency, "redis-latency-p99");

/* ---- memory --------------------------------------------------------------------------------- */

static enum mr_err run_memory(struct bench *bench)
{
    enum { TASKS = 100 * 1000 };
    static const double ASYNQ = 626, GOAL = 1.1;
    struct bench_redis *redis = NULL;
    struct bench_store store = {0};
    struct bench_load load = {.tasks = TASKS, .outstanding = 1};
    double before = 0, after = 0;
    bench_doing(bench, "redis-memory");
    enum mr_err err = bench_redis_open(bench, &redis);
    if (err == MR_OK)
        err = bench_store_open(bench, "redis", NULL, &store);
    if (err == MR_OK)
        err = bench_redis_info(redis, "used_memory", &before);
    if (err == MR_OK)
        err = bench_load_run(store.client, &load, NULL, NULL);
    if (err == MR_OK)
        err = bench_redis_info(redis, "used_memory", &after);
    bench_store_close(&store);
    bench_redis_close(redis);
    MR_TRY(err);
    struct bench_row *row =
        bench_add(bench, "redis-memory", (after - before) / TASKS, "bytes a task");
    bench_yardstick(row, ASYNQ, "Asynq's own");
    bench_goal(row, row->ratio <= GOAL, "%.1f x the yardstick", GOAL);
    snprintf(row->note, sizeof row->note, "%d pending, %d bytes of payload each", TASKS,
             BENCH_PAYLOAD);
    return MR_OK;
}

GROUP(bench_redis_memory, run_memory, "redis-memory");

/* ---- a worker that waits -------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

struct idle {
    double commands, cpu; /* a second, percent */
};

static enum mr_err measure_idle(struct bench *bench, struct bench_redis *redis,
                                struct mr_client *client, struct idle *ret_idle)
{
    struct mr_worker *worker = NULL;
    double before = 0, after = 0;
    MR_TRY(bench_worker_new(client, SLOTS, bench_noop, NULL, &worker));
    bench_sleep(1); /* what beginning has cost is not idling */
    enum mr_err err = bench_redis_info(redis, "total_commands_processed", &before);
    double cpu = cpu_seconds();
    int64_t start = bench_now_ns();
    if (err == MR_OK)
        bench_sleep(bench->seconds);
    double seconds = bench_seconds_since(start);
    ret_idle->cpu = 100 * (cpu_seconds() - cpu) / seconds;
    if (err == MR_OK)
        err = bench_redis_info(redis, "total_commands_processed", &after);
    ret_idle->commands = (after - before - 1) / seconds; /* the question is one itself */
    mr_worker_free(worker);
    return err;
}

static enum mr_err run_idle(struct bench *bench)
{
    static const double GOAL_COMMANDS = 5, GOAL_PERCENT = 1;
    struct bench_redis *redis = NULL;
    struct bench_store store = {0};
    struct idle idle = {0};
    bench_doing(bench, "redis-idle-commands");
    enum mr_err err = bench_redis_open(bench, &redis);
    if (err == MR_OK)
        err = bench_store_open(bench, "redis", NULL, &store);
    if (err == MR_OK)
        err = measure_idle(bench, redis, store.client, &idle);
    bench_store_close(&store);
    bench_redis_close(redis);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "redis-idle-commands", idle.commands, "commands/s");
    bench_yardstick(row, GOAL_COMMANDS, "goal");
    bench_goal(row, idle.commands < GOAL_COMMANDS, "%.0f commands/s", GOAL_COMMANDS);
    snprintf(row->note, sizeof row->note, "all that this Redis got while one worker waited");
    row = bench_add(bench, "redis-idle-cpu", idle.cpu, "percent of a core");
    bench_yardstick(row, GOAL_PERCENT, "goal");
    bench_goal(row, idle.cpu < GOAL_PERCENT, "%.0f percent", GOAL_PERCENT);
    snprintf(row->note, sizeof row->note, "of the same worker");
    return MR_OK;
}

GROUP(bench_redis_idle, run_idle, "redis-idle-commands", "redis-idle-cpu");

/* ---- a worker that dies --------------------------------------------------------------------- */

static enum mr_err measure_recovery(struct bench_server *server, double *ret_seconds)
{
    struct bench_other first = {0}, second = {0};
    struct mr_client *client = NULL;
    int64_t ns, killed = 0, began = 0;
    enum mr_err err = bench_other_start(server, BENCH_OTHER_HOLDS, &first);
    if (err == MR_OK)
        err = bench_server_open(server, &client);
    if (err == MR_OK)
        err = bench_other_latency(client, &first, &ns);
    mr_client_close(client);
    if (err == MR_OK)
        err = bench_other_start(server, BENCH_OTHER_WORKS, &second);
    if (err == MR_OK) {
        bench_sleep(1); /* until it waits as well */
        killed = bench_now_ns();
        bench_other_kill(&first);
        err = bench_other_await(&second, &began);
    }
    bench_other_kill(&first);
    bench_other_end(&second);
    *ret_seconds = (double)(began - killed) / (double)MR_NS_PER_S;
    return err;
}

static enum mr_err run_recovery(struct bench *bench)
{
    static const double DEATH_S = 15, SLACK_S = 1;
    struct bench_server server;
    double seconds = 0;
    bench_doing(bench, "redis-recovery");
    enum mr_err err = bench_server_begin(bench, "redis", &server);
    if (err == MR_OK)
        err = measure_recovery(&server, &seconds);
    bench_server_end(&server);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "redis-recovery", seconds, "s");
    bench_yardstick(row, DEATH_S, "death time");
    bench_goal(row, seconds <= DEATH_S + SLACK_S, "the yardstick + %.0f s", SLACK_S);
    snprintf(row->note, sizeof row->note, "from kill -9 of its worker to its run elsewhere");
    return MR_OK;
}

GROUP(bench_redis_recovery, run_recovery, "redis-recovery");
