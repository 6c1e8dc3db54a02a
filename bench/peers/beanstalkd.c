/* SPDX-License-Identifier: Apache-2.0 */
/* beanstalkd by its text protocol. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"

enum { WORK_DEPTH = PEER_PREFETCH / PEER_SLOTS, PUT_MAX = 64 + PEER_PAYLOAD };

/* A line's length with its end, 0 when that has not come. */
static size_t line_length(const char *bytes, size_t n)
{
    const char *end = memchr(bytes, '\n', n);
    return end ? (size_t)(end - bytes) + 1 : 0;
}

static bool begins(const char *bytes, size_t n, const char *word)
{
    return n >= strlen(word) && memcmp(bytes, word, strlen(word)) == 0;
}

static _Noreturn void unexpected(const char *bytes, size_t n)
{
    peer_die("beanstalkd: %.*s", (int)(n < 80 ? n : 80), bytes);
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static void put(struct pipeline *pipeline, struct connection *connection)
{
    static char request[PUT_MAX];
    static size_t length;
    if (length == 0)
        length = (size_t)snprintf(request, sizeof request, "put 0 0 60 %d\r\n%.*s\r\n",
                                  PEER_PAYLOAD, PEER_PAYLOAD, peer_payload);
    connection_put(pipeline, connection, request, length, 1);
}

static void put_first(struct pipeline *pipeline, struct connection *connection)
{
    for (unsigned i = 0; i < pipeline->ops->depth; i++)
        put(pipeline, connection);
}

static size_t on_inserted(struct pipeline *pipeline, struct connection *connection,
                          const char *bytes, size_t n)
{
    size_t length = line_length(bytes, n);
    if (length == 0)
        return 0;
    if (!begins(bytes, length, "INSERTED "))
        unexpected(bytes, length);
    pipeline->done++;
    if (!pipeline->over)
        put(pipeline, connection);
    return length;
}

/* ---- take, run, finish ---------------------------------------------------------------------- */

/* No more than there are: a reserve of nothing would be answered never. */
static void reserve(struct pipeline *pipeline, struct connection *connection)
{
    static const char request[] = "reserve\r\n";
    if (pipeline->over || pipeline->begun == pipeline->phase->tasks)
        return;
    pipeline->begun++;
    connection_put(pipeline, connection, request, sizeof request - 1, 1);
}

static void reserve_first(struct pipeline *pipeline, struct connection *connection)
{
    for (unsigned i = 0; i < pipeline->ops->depth; i++)
        reserve(pipeline, connection);
}

/* It has run already: it does nothing. It is deleted, and the next one asked for, in one go. */
static size_t on_reserved(struct pipeline *pipeline, struct connection *connection,
                          const char *bytes, size_t n)
{
    char request[64];
    char *end;
    size_t length = line_length(bytes, n);
    unsigned long long id = strtoull(bytes + strlen("RESERVED "), &end, 10);
    size_t size = strtoull(end, &end, 10);
    if (*end != '\r')
        unexpected(bytes, length);
    if (n < length + size + 2)
        return 0;
    int written = snprintf(request, sizeof request, "delete %llu\r\n", id);
    connection_put(pipeline, connection, request, (size_t)written, 1);
    reserve(pipeline, connection);
    return length + size + 2;
}

static size_t on_work(struct pipeline *pipeline, struct connection *connection, const char *bytes,
                      size_t n)
{
    size_t length = line_length(bytes, n);
    if (length == 0)
        return 0;
    if (begins(bytes, length, "RESERVED "))
        return on_reserved(pipeline, connection, bytes, n);
    if (!begins(bytes, length, "DELETED"))
        unexpected(bytes, length);
    pipeline->done++;
    return length;
}

/* ---- phases --------------------------------------------------------------------------------- */

static const struct pipeline_ops singles = {
    .begin = put_first, .answer = on_inserted, .connections = PEER_SINGLE, .depth = 1};
static const struct pipeline_ops batches = {
    .begin = put_first, .answer = on_inserted, .connections = PEER_BATCHES, .depth = PEER_BATCH};
static const struct pipeline_ops works = {
    .begin = reserve_first, .answer = on_work, .connections = PEER_SLOTS, .depth = WORK_DEPTH};

int main(int argc, char **argv)
{
    static const struct pipeline_phases phases = {&singles, &batches, &works};
    return pipeline_main(argc, argv, &phases);
}
