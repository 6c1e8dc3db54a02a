/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker with two handlers: one for a single type, one for all types that begin alike. It gives
 * itself something to do, works until the queue is empty, and shows what came of it.
 *
 *   cc worker.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <stdlib.h>
#include <string.h>

#include <millrace.h>

/* Counts the bytes of the payload, telling how far it is, and leaves the sum as its result. */
static enum mr_outcome count_bytes(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    const unsigned char *bytes = task->payload.data;
    unsigned long sum = 0;
    for (size_t i = 0; i < task->payload.len; i++) {
        sum += bytes[i];
        if (i % 1024 == 0 && mr_run_cancelled(run))
            return MR_FAIL; /* timeout, cancel or a stopping worker: the worker knows which */
    }
    char text[32];
    snprintf(text, sizeof text, "%lu", sum);
    if (mr_run_progress(run, 100, mr_slice_str("counted")) != MR_OK ||
        mr_run_result(run, mr_slice_str(text)) != MR_OK) {
        mr_run_error(run, "the result was refused");
        return MR_FAIL;
    }
    return MR_DONE;
}

/* Pretends to send mail; the first attempt always fails. */
static enum mr_outcome send_mail(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    if (task->attempt == 1) {
        mr_run_error(run, "the mail server is having a nap");
        mr_run_retry_after(run, 0);
        return MR_FAIL;
    }
    printf("sent %.*s\n", (int)task->type.len, (const char *)task->type.data);
    return MR_DONE;
}

static void tell(const struct mr_task *task, const char *error, void *arg)
{
    (void)arg;
    printf("attempt %u of %.*s failed: %s\n", task->attempt, (int)task->type.len,
           (const char *)task->type.data, error);
}

static enum mr_err add_tasks(struct mr_client *client)
{
    const struct mr_task_options tasks[] = {
        {.id = mr_slice_str("sum"),
         .type = mr_slice_str("count"),
         .payload = mr_slice_str("all these bytes"),
         .retention_ms = 60 * 1000},
        {.type = mr_slice_str("mail:welcome")},
    };
    struct mr_enqueue_result results[2];
    return mr_enqueue(client, tasks, 2, results);
}

static enum mr_err work(struct mr_client *client)
{
    const struct mr_worker_options options = {.slots = 4, .burst = true, .on_error = tell};
    struct mr_worker *worker;
    enum mr_err err = mr_worker_new(client, &options, &worker);
    if (err != MR_OK)
        return err;
    err = mr_worker_handle(worker, "count", count_bytes, NULL);
    if (err == MR_OK)
        err = mr_worker_handle(worker, "mail:*", send_mail, NULL);
    if (err == MR_OK)
        err = mr_worker_run(worker); /* until the queue is empty */
    struct mr_worker_figures figures;
    mr_worker_figures(worker, &figures);
    printf("%llu done, %llu failed\n", (unsigned long long)figures.done,
           (unsigned long long)figures.failed);
    mr_worker_free(worker);
    return err;
}

static enum mr_err show_result(struct mr_client *client)
{
    struct mr_task_list *list;
    enum mr_err err = mr_task_get(client, mr_slice_str("sum"), &list);
    if (err != MR_OK)
        return err;
    const struct mr_task *task = mr_task_list_at(list, 0);
    printf("the sum is %.*s\n", (int)task->result.len, (const char *)task->result.data);
    mr_task_list_free(list);
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
    err = add_tasks(client);
    if (err == MR_OK)
        err = work(client);
    if (err == MR_OK)
        err = show_result(client);
    mr_client_close(client);
    if (err != MR_OK)
        fprintf(stderr, "failed: %s\n", mr_err_text(err));
    return mr_err_exit_code(err);
}
