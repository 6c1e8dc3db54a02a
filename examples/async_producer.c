/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer that does not wait: it keeps thousands of tasks in flight and counts them as they
 * become durable. One sync of the disk then serves hundreds of tasks, so this is the quickest way
 * to hand over many, and no less safe: a task counts only when its callback says so.
 *
 *   cc async_producer.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <semaphore.h>
#include <stdatomic.h>

#include <millrace.h>

enum { TASKS = 100 * 1000, BATCH = 250, IN_FLIGHT = 40 /* batches */ };

struct progress {
    sem_t room;           /* batches that may still be sent */
    atomic_size_t stored; /* tasks on disk */
    atomic_size_t refused;
};

/* On the broker's thread: counts and leaves. */
static void batch_done(enum mr_err err, const struct mr_enqueue_result *results, size_t n,
                       void *arg)
{
    struct progress *progress = arg;
    for (size_t i = 0; i < n; i++) {
        bool stored = err == MR_OK && results[i].err == MR_OK;
        atomic_fetch_add(stored ? &progress->stored : &progress->refused, 1);
    }
    sem_post(&progress->room);
}

static enum mr_err send_all(struct mr_client *client, struct progress *progress)
{
    for (size_t sent = 0; sent < TASKS; sent += BATCH) {
        struct mr_task_options tasks[BATCH];
        char payloads[BATCH][32];
        for (size_t i = 0; i < BATCH; i++) {
            snprintf(payloads[i], sizeof payloads[i], "{\"number\":%zu}", sent + i);
            tasks[i] = (struct mr_task_options){.payload = mr_slice_str(payloads[i])};
        }
        sem_wait(&progress->room);
        enum mr_err err = mr_enqueue_async(client, tasks, BATCH, batch_done, progress);
        if (err != MR_OK) {
            sem_post(&progress->room);
            return err;
        }
    }
    return MR_OK;
}

int main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_detail detail = {0};
    enum mr_err err = mr_client_open(argc > 1 ? argv[1] : "file:data", NULL, &client, &detail);
    if (err != MR_OK) {
        fprintf(stderr, "open: %s: %s\n", mr_err_text(err), detail.text);
        return mr_err_exit_code(err);
    }
    struct progress progress = {0};
    sem_init(&progress.room, 0, IN_FLIGHT);
    err = send_all(client, &progress);
    for (int i = 0; i < IN_FLIGHT; i++) /* all room is back: every callback has been called */
        sem_wait(&progress.room);
    printf("%zu tasks are on disk, %zu were refused\n", atomic_load(&progress.stored),
           atomic_load(&progress.refused));
    sem_destroy(&progress.room);
    mr_client_close(client);
    if (err != MR_OK)
        fprintf(stderr, "enqueue: %s\n", mr_err_text(err));
    return mr_err_exit_code(err);
}
