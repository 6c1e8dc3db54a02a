/* SPDX-License-Identifier: Apache-2.0 */
/* Millrace itself, by its public API, on whichever engine the URL names. */
#include <millrace.h>
#include <pthread.h>
#include <time.h>

#include "client.h"

#define QUEUE "peers"

/* What is in flight; the broker's thread counts it down. */
struct pump {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    unsigned in_flight;
    enum mr_err err;
};

static void *client_open(const char *address, const char *phase)
{
    (void)phase;
    struct mr_client *client;
    struct mr_detail detail = {0};
    enum mr_err err = mr_client_open(address, NULL, &client, &detail);
    if (err != MR_OK)
        peer_die("%s: %s %s", address, mr_err_text(err), detail.text);
    return client;
}

static void client_close(void *peer)
{
    mr_client_close(peer);
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static void on_answer(enum mr_err err, const struct mr_enqueue_result *results, size_t n, void *arg)
{
    struct pump *pump = arg;
    for (size_t i = 0; err == MR_OK && i < n; i++)
        err = results[i].err;
    pthread_mutex_lock(&pump->lock);
    pump->in_flight--;
    if (err != MR_OK)
        pump->err = err;
    pthread_cond_signal(&pump->answered);
    pthread_mutex_unlock(&pump->lock);
}

/* Waits until fewer than max calls are in flight, and counts n more. */
static void await_room(struct pump *pump, unsigned max, unsigned n)
{
    pthread_mutex_lock(&pump->lock);
    while (pump->in_flight >= max)
        pthread_cond_wait(&pump->answered, &pump->lock);
    pump->in_flight += n;
    enum mr_err err = pump->err;
    pthread_mutex_unlock(&pump->lock);
    if (err != MR_OK)
        peer_die("enqueue: %s", mr_err_text(err));
}

/* Calls of n tasks each, so many in flight. */
static uint64_t enqueue(struct mr_client *client, const struct peer_phase *phase, size_t n,
                        unsigned in_flight)
{
    struct pump pump = {.lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};
    struct mr_task_options tasks[PEER_BATCH];
    uint64_t sent = 0;
    for (size_t i = 0; i < n; i++)
        tasks[i] = (struct mr_task_options){.queue = mr_slice_str(QUEUE),
                                            .payload = {peer_payload, PEER_PAYLOAD}};
    while (!peer_over(phase)) {
        await_room(&pump, in_flight, 1);
        enum mr_err err = mr_enqueue_async(client, tasks, n, on_answer, &pump);
        if (err != MR_OK)
            peer_die("enqueue: %s", mr_err_text(err));
        sent += n;
    }
    await_room(&pump, 1, 0);
    return sent;
}

static uint64_t single(void *peer, const struct peer_phase *phase)
{
    return enqueue(peer, phase, 1, PEER_SINGLE);
}

static uint64_t batch(void *peer, const struct peer_phase *phase)
{
    return enqueue(peer, phase, PEER_BATCH, PEER_BATCHES);
}

/* ---- take, run, finish ---------------------------------------------------------------------- */

static enum mr_outcome noop(struct mr_run *run, void *arg)
{
    (void)run;
    (void)arg;
    return MR_DONE;
}

static struct mr_worker *start_worker(struct mr_client *client)
{
    static struct mr_worker_queue queue = {.weight = 1};
    queue.name = mr_slice_str(QUEUE);
    struct mr_worker_options options = {.queues = &queue, .queues_n = 1, .slots = PEER_SLOTS};
    struct mr_worker *worker;
    enum mr_err err = mr_worker_new(client, &options, &worker);
    if (err == MR_OK)
        err = mr_worker_handle(worker, "*", noop, NULL);
    if (err == MR_OK)
        err = mr_worker_start(worker);
    if (err != MR_OK)
        peer_die("worker: %s", mr_err_text(err));
    return worker;
}

/* Only ends that the broker has accepted count. */
static uint64_t work(void *peer, const struct peer_phase *phase)
{
    static const struct timespec LOOK = {.tv_nsec = 500 * 1000};
    struct mr_worker *worker = start_worker(peer);
    struct mr_worker_figures figures;
    for (;;) {
        mr_worker_figures(worker, &figures);
        if (figures.done >= phase->tasks || peer_over(phase))
            break;
        nanosleep(&LOOK, NULL);
    }
    mr_worker_stop(worker); /* which waits for the answers to its last reports */
    mr_worker_figures(worker, &figures);
    mr_worker_free(worker);
    return figures.done;
}

int main(int argc, char **argv)
{
    static const struct peer_ops ops = {
        .open = client_open, .single = single, .batch = batch, .work = work, .close = client_close};
    return peer_main(argc, argv, &ops);
}
