/* SPDX-License-Identifier: Apache-2.0 */
/* Load and samples that the groups share. */
#include <stdlib.h>

#include "base/clock.h"
#include "cli/bench/bench.h"

/* ---- time ----------------------------------------------------------------------------------- */

int64_t bench_now_ns(void)
{
    return mr_mono_now(mr_clock_system()).ns;
}

double bench_seconds_since(int64_t start_ns)
{
    return (double)(bench_now_ns() - start_ns) / (double)MR_NS_PER_S;
}

void bench_sleep(double seconds)
{
    static const double STEP = 0.5; /* after which an interruption is seen */
    struct mr_event never;
    mr_event_init(&never);
    for (double left = seconds; left > 0 && !bench_interrupted(); left -= STEP)
        mr_event_wait(&never, (int64_t)((left < STEP ? left : STEP) * (double)MR_NS_PER_S));
}

/* ---- producing ------------------------------------------------------------------------------ */

struct mr_task_options bench_task(void)
{
    static const char payload[BENCH_PAYLOAD] = "a payload of a hundred bytes";
    return (struct mr_task_options){.queue = MR_SLICE_LIT(BENCH_QUEUE),
                                    .payload = {payload, sizeof payload}};
}

/* Batches in flight. The lock is shared with the broker's thread, which counts them down. */
struct pump {
    struct mr_lock lock;
    unsigned in_flight;
    enum mr_err err;
};

static void on_batch(enum mr_err err, const struct mr_enqueue_result *results, size_t n, void *arg)
{
    struct pump *pump = arg;
    for (size_t i = 0; err == MR_OK && i < n; i++)
        err = results[i].err;
    mr_lock_enter(&pump->lock);
    pump->in_flight--;
    if (err != MR_OK)
        pump->err = err;
    mr_lock_notify_one(&pump->lock);
    mr_lock_leave(&pump->lock);
}

/* Waits until fewer than max batches are in flight. */
static enum mr_err await_room(struct pump *pump, unsigned max)
{
    mr_lock_enter(&pump->lock);
    while (pump->in_flight >= max)
        mr_lock_wait(&pump->lock, INT64_MAX);
    enum mr_err err = pump->err;
    mr_lock_leave(&pump->lock);
    return err;
}

static enum mr_err send_batch(struct mr_client *client, struct pump *pump,
                              const struct mr_task_options *tasks, size_t n)
{
    mr_lock_enter(&pump->lock);
    pump->in_flight++;
    mr_lock_leave(&pump->lock);
    enum mr_err err = mr_enqueue_async(client, tasks, n, on_batch, pump);
    if (err == MR_OK)
        return MR_OK;
    mr_lock_enter(&pump->lock);
    pump->in_flight--;
    mr_lock_leave(&pump->lock);
    return err;
}

/* Tasks of the next batch, 0 when the run is over. */
static size_t next_batch(const struct bench_load *load, uint64_t sent, int64_t start)
{
    if (load->tasks == 0)
        return bench_seconds_since(start) < load->seconds ? BENCH_BATCH : 0;
    return load->tasks - sent < BENCH_BATCH ? (size_t)(load->tasks - sent) : BENCH_BATCH;
}

static enum mr_err pump_all(struct mr_client *client, const struct bench_load *load,
                            struct pump *pump, int64_t start, uint64_t *ret_sent)
{
    struct mr_task_options tasks[BENCH_BATCH];
    for (size_t i = 0; i < BENCH_BATCH; i++)
        tasks[i] = bench_task();
    uint64_t sent = 0;
    for (size_t n; (n = next_batch(load, sent, start)) > 0; sent += n) {
        for (size_t i = 0; load->shape && i < n; i++) {
            tasks[i] = bench_task();
            load->shape(&tasks[i], sent + i, load->arg);
        }
        MR_TRY(await_room(pump, load->outstanding));
        MR_TRY(send_batch(client, pump, tasks, n));
        if (bench_interrupted())
            return MR_CANCELLED;
    }
    *ret_sent = sent;
    return MR_OK;
}

enum mr_err bench_load_run(struct mr_client *client, const struct bench_load *load,
                           uint64_t *ret_tasks, double *ret_seconds)
{
    struct pump pump = {0};
    mr_lock_init(&pump.lock);
    int64_t start = bench_now_ns();
    uint64_t sent = 0;
    enum mr_err err = pump_all(client, load, &pump, start, &sent);
    enum mr_err end_err = await_room(&pump, 1); /* also after a failure: the pump is on our stack */
    double seconds = bench_seconds_since(start);
    mr_lock_done(&pump.lock);
    if (err == MR_OK)
        err = end_err;
    if (err != MR_OK)
        return err;
    if (ret_tasks)
        *ret_tasks = sent;
    if (ret_seconds)
        *ret_seconds = seconds;
    return MR_OK;
}

/* ---- working -------------------------------------------------------------------------------- */

enum mr_outcome bench_noop(struct mr_run *run, void *arg)
{
    (void)run;
    (void)arg;
    return MR_DONE;
}

enum mr_err bench_worker_new(struct mr_client *client, uint32_t slots, mr_handler *handler,
                             void *arg, struct mr_worker **ret_worker)
{
    static const struct mr_worker_queue queue = {.name = MR_SLICE_LIT(BENCH_QUEUE), .weight = 1};
    struct mr_worker_options options = {.queues = &queue, .queues_n = 1, .slots = slots};
    struct mr_worker *worker = NULL;
    MR_TRY(mr_worker_new(client, &options, &worker));
    enum mr_err err = mr_worker_handle(worker, "*", handler, arg);
    if (err == MR_OK)
        err = mr_worker_start(worker);
    if (err != MR_OK) {
        mr_worker_free(worker);
        return err;
    }
    *ret_worker = worker;
    return MR_OK;
}

enum mr_err bench_worker_await(struct mr_worker *worker, uint64_t n)
{
    enum { STILL_S = 60 };
    static const double LOOK_S = 0.0002;
    struct mr_worker_figures figures;
    uint64_t last = 0;
    int64_t moved = bench_now_ns();
    for (;;) {
        mr_worker_figures(worker, &figures);
        if (figures.done >= n)
            return MR_OK;
        if (figures.done != last)
            moved = bench_now_ns();
        else if (bench_seconds_since(moved) > STILL_S)
            return MR_TIMEOUT;
        if (bench_interrupted())
            return MR_CANCELLED;
        last = figures.done;
        bench_sleep(LOOK_S);
    }
}

/* ---- samples -------------------------------------------------------------------------------- */

void bench_samples_init(struct bench_samples *samples, size_t n)
{
    samples->ns = cli_alloc(n, sizeof *samples->ns);
    samples->n = 0;
    samples->cap = n;
}

void bench_samples_done(struct bench_samples *samples)
{
    free(samples->ns);
    samples->ns = NULL;
}

void bench_samples_add(struct bench_samples *samples, int64_t ns)
{
    if (samples->n < samples->cap)
        samples->ns[samples->n++] = ns;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

double bench_samples_ms(struct bench_samples *samples, double share)
{
    if (samples->n == 0)
        return 0;
    qsort(samples->ns, samples->n, sizeof *samples->ns, compare_ns);
    size_t at = (size_t)((double)samples->n * share);
    at = at < samples->n ? at : samples->n - 1;
    return (double)samples->ns[at] / (double)MR_NS_PER_MS;
}
