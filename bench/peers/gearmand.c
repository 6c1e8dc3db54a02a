/* SPDX-License-Identifier: Apache-2.0 */
/* gearmand by its binary protocol, with background jobs. */
#include <arpa/inet.h>
#include <string.h>

#include "pipeline.h"

enum {
    CAN_DO = 1,
    JOB_CREATED = 8,
    GRAB_JOB = 9,
    NO_JOB = 10,
    JOB_ASSIGN = 11,
    WORK_COMPLETE = 13,
    ECHO_REQ = 16,
    ECHO_RES = 17,
    SUBMIT_JOB_BG = 18,
};
enum {
    HEAD = 12, /* magic, type, length */
    PACKET_MAX = 512,
    WORK_DEPTH = PEER_PREFETCH / PEER_SLOTS,
};

static const char function[] = "peers"; /* with the NUL behind it */

static void packet(struct pipeline *pipeline, struct connection *connection, uint32_t type,
                   const void *body, size_t n, unsigned expects)
{
    char bytes[PACKET_MAX] = {0, 'R', 'E', 'Q'};
    uint32_t words[2] = {htonl(type), htonl((uint32_t)n)};
    if (HEAD + n > sizeof bytes)
        peer_die("a packet of %zu bytes", n);
    memcpy(bytes + 4, words, sizeof words);
    if (n > 0)
        memcpy(bytes + HEAD, body, n);
    connection_put(pipeline, connection, bytes, HEAD + n, expects);
}

/* Its length, 0 when it is not whole. */
static size_t read_head(const char *bytes, size_t n, uint32_t *ret_type)
{
    uint32_t words[2];
    if (n < HEAD)
        return 0;
    if (memcmp(bytes, "\0RES", 4) != 0)
        peer_die("gearmand: not an answer");
    memcpy(words, bytes + 4, sizeof words);
    size_t length = HEAD + ntohl(words[1]);
    *ret_type = ntohl(words[0]);
    return n < length ? 0 : length;
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static void submit(struct pipeline *pipeline, struct connection *connection)
{
    /* function, no unique key, payload */
    char body[sizeof function + 1 + PEER_PAYLOAD] = {0};
    memcpy(body, function, sizeof function);
    memcpy(body + sizeof function + 1, peer_payload, PEER_PAYLOAD);
    packet(pipeline, connection, SUBMIT_JOB_BG, body, sizeof body, 1);
}

static void submit_first(struct pipeline *pipeline, struct connection *connection)
{
    for (unsigned i = 0; i < pipeline->ops->depth; i++)
        submit(pipeline, connection);
}

static size_t on_created(struct pipeline *pipeline, struct connection *connection,
                         const char *bytes, size_t n)
{
    uint32_t type;
    size_t length = read_head(bytes, n, &type);
    if (length == 0)
        return 0;
    if (type != JOB_CREATED)
        peer_die("gearmand: answer %u to a job", type);
    pipeline->done++;
    if (!pipeline->over)
        submit(pipeline, connection);
    return length;
}

/* ---- take, run, finish ---------------------------------------------------------------------- */

static void grab(struct pipeline *pipeline, struct connection *connection)
{
    if (!pipeline->over)
        packet(pipeline, connection, GRAB_JOB, NULL, 0, 1);
}

static void grab_first(struct pipeline *pipeline, struct connection *connection)
{
    packet(pipeline, connection, CAN_DO, function, sizeof function - 1, 0);
    for (unsigned i = 0; i < pipeline->ops->depth; i++)
        grab(pipeline, connection);
}

/* It has run already. No answer is given to its end; an echo behind the last one stands for it. */
static void complete(struct pipeline *pipeline, struct connection *connection, const char *body)
{
    packet(pipeline, connection, WORK_COMPLETE, body, strlen(body) + 1, 0);
    if (++pipeline->done == pipeline->phase->tasks)
        pipeline->over = true;
    if (pipeline->over)
        packet(pipeline, connection, ECHO_REQ, NULL, 0, 1);
    grab(pipeline, connection);
}

static size_t on_work(struct pipeline *pipeline, struct connection *connection, const char *bytes,
                      size_t n)
{
    uint32_t type;
    size_t length = read_head(bytes, n, &type);
    if (length == 0)
        return 0;
    if (type == JOB_ASSIGN) /* the handle ends with a NUL */
        complete(pipeline, connection, bytes + HEAD);
    else if (type != NO_JOB && type != ECHO_RES)
        peer_die("gearmand: answer %u to a worker", type);
    return length;
}

/* ---- phases --------------------------------------------------------------------------------- */

static const struct pipeline_ops singles = {
    .begin = submit_first, .answer = on_created, .connections = PEER_SINGLE, .depth = 1};
static const struct pipeline_ops batches = {
    .begin = submit_first, .answer = on_created, .connections = PEER_BATCHES, .depth = PEER_BATCH};
static const struct pipeline_ops works = {
    .begin = grab_first, .answer = on_work, .connections = PEER_SLOTS, .depth = WORK_DEPTH};

int main(int argc, char **argv)
{
    static const struct pipeline_phases phases = {&singles, &batches, &works};
    return pipeline_main(argc, argv, &phases);
}
