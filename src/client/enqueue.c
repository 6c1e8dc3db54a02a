/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producing. The waiting form lends the caller's memory to the broker. The other copies everything
 * into one block that lives until the answer; how many tasks and bytes may be in such blocks is
 * limited.
 */
#include <stdlib.h>

#include "client/client.h"

enum mr_err mr_enqueue(struct mr_client *client, const struct mr_task_options *tasks, size_t n,
                       struct mr_enqueue_result *ret_results)
{
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (n == 0)
        return MR_OK;
    struct mr_req_enqueue enqueue = {
        .req = {.op = MR_OP_ENQUEUE},
        .tasks = tasks,
        .n = n,
        .results = ret_results,
    };
    enum mr_err err = mr_broker_call(client->broker, &enqueue.req);
    mr_req_done(&enqueue.req);
    return err;
}

enum mr_err mr_carry(struct mr_client *client, const struct mr_task *tasks, size_t n,
                     struct mr_enqueue_result *ret_results)
{
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (n == 0)
        return MR_OK;
    struct mr_task_options *options = calloc(n, sizeof *options);
    if (options == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++)
        options[i] = mr_carried_options(&tasks[i]);
    struct mr_req_enqueue enqueue = {
        .req = {.op = MR_OP_ENQUEUE},
        .tasks = options,
        .carried = tasks,
        .n = n,
        .results = ret_results,
    };
    enum mr_err err = mr_broker_call(client->broker, &enqueue.req);
    mr_req_done(&enqueue.req);
    free(options);
    return err;
}

/* ---- without waiting ------------------------------------------------------------------------ */

/* One request and everything it needs, by falling alignment: options, headers, results, bytes. */
struct flight {
    struct mr_req_enqueue enqueue;
    struct mr_client *client;
    mr_enqueue_done *done;
    void *arg;
    size_t bytes;
    struct mr_task_options tasks[];
};

/* The slices of a task that must be copied. */
static const size_t slice_fields[] = {
    offsetof(struct mr_task_options, queue),      offsetof(struct mr_task_options, type),
    offsetof(struct mr_task_options, payload),    offsetof(struct mr_task_options, id),
    offsetof(struct mr_task_options, unique_key), offsetof(struct mr_task_options, group),
    offsetof(struct mr_task_options, topic),      offsetof(struct mr_task_options, key),
};
enum { SLICE_FIELDS = sizeof slice_fields / sizeof *slice_fields };

/* Adds up what a task needs; nothing over the limit, so no sum overflows. */
static bool add_size(size_t *size, struct mr_slice slice)
{
    if (slice.len > MR_IN_FLIGHT_BYTES_MAX - *size || (slice.len > 0 && !slice.data))
        return false;
    *size += slice.len;
    return true;
}

static bool task_size(const struct mr_task_options *task, size_t *size)
{
    for (size_t i = 0; i < SLICE_FIELDS; i++)
        if (!add_size(size, *(const struct mr_slice *)((const char *)task + slice_fields[i])))
            return false;
    if (task->headers_n > MR_HEADERS_MAX || (task->headers_n > 0 && !task->headers))
        return false;
    *size += task->headers_n * sizeof *task->headers;
    for (size_t i = 0; i < task->headers_n; i++)
        if (!add_size(size, task->headers[i].name) || !add_size(size, task->headers[i].value))
            return false;
    return *size <= MR_IN_FLIGHT_BYTES_MAX;
}

static void copy_slice(struct mr_slice *slice, char **at)
{
    if (slice->len == 0)
        return;
    memcpy(*at, slice->data, slice->len);
    slice->data = *at;
    *at += slice->len;
}

/* Lays out the block and copies everything into it. */
static void copy_tasks(struct flight *flight, const struct mr_task_options *tasks, size_t n)
{
    struct mr_task_options *copies = flight->tasks;
    memcpy(copies, tasks, n * sizeof *copies);
    struct mr_header *headers = (struct mr_header *)(copies + n);
    struct mr_header *header = headers;
    for (size_t i = 0; i < n; i++) {
        if (tasks[i].headers_n == 0)
            continue;
        memcpy(headers, tasks[i].headers, tasks[i].headers_n * sizeof *headers);
        copies[i].headers = headers;
        headers += tasks[i].headers_n;
    }
    flight->enqueue.tasks = copies;
    flight->enqueue.results = (struct mr_enqueue_result *)headers;
    char *at = (char *)(flight->enqueue.results + n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < SLICE_FIELDS; j++)
            copy_slice((struct mr_slice *)((char *)&copies[i] + slice_fields[j]), &at);
        for (size_t j = 0; j < copies[i].headers_n; j++, header++) {
            copy_slice(&header->name, &at);
            copy_slice(&header->value, &at);
        }
    }
    mr_assert(at == (char *)flight + flight->bytes);
}

/* Broker's thread. */
static void flight_done(struct mr_req *req)
{
    struct flight *flight = req->arg;
    struct mr_client *client = flight->client;
    flight->done(req->err, flight->enqueue.results, flight->enqueue.n, flight->arg);
    atomic_fetch_sub(&client->tasks, flight->enqueue.n);
    atomic_fetch_sub(&client->bytes, flight->bytes);
    mr_req_done(req);
    free(flight);
}

/* Counts it in, unless that is too much at once. */
static bool admit(struct mr_client *client, size_t n, size_t bytes)
{
    size_t tasks = atomic_fetch_add(&client->tasks, n);
    size_t before = atomic_fetch_add(&client->bytes, bytes);
    if (tasks + n <= MR_IN_FLIGHT_TASKS_MAX && before + bytes <= MR_IN_FLIGHT_BYTES_MAX)
        return true;
    atomic_fetch_sub(&client->tasks, n);
    atomic_fetch_sub(&client->bytes, bytes);
    return false;
}

enum mr_err mr_enqueue_async(struct mr_client *client, const struct mr_task_options *tasks,
                             size_t n, mr_enqueue_done *done, void *arg)
{
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (n == 0 || !done)
        return MR_INVALID;
    size_t bytes = sizeof(struct flight) + n * (sizeof(struct mr_enqueue_result) + sizeof *tasks);
    for (size_t i = 0; i < n; i++)
        if (!task_size(&tasks[i], &bytes))
            return MR_TOO_BIG;
    if (!admit(client, n, bytes))
        return MR_BUSY;
    struct flight *flight = malloc(bytes);
    if (!flight) {
        atomic_fetch_sub(&client->tasks, n);
        atomic_fetch_sub(&client->bytes, bytes);
        return MR_NOMEM;
    }
    *flight = (struct flight){
        .enqueue = {.req = {.op = MR_OP_ENQUEUE, .done = flight_done, .arg = flight}, .n = n},
        .client = client,
        .done = done,
        .arg = arg,
        .bytes = bytes,
    };
    copy_tasks(flight, tasks, n);
    mr_broker_submit(client->broker, &flight->enqueue.req);
    return MR_OK;
}
