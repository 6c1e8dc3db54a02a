/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load by plain gRPC calls: nothing of the remote engine, which would put what comes together into
 * one message. Everything but opening, waiting and closing happens on the loop of the rpc.
 */
#include <stdlib.h>

#include "cli/bench/server.h"
#include "client/client.h"
#include "rpc/rpc.h"
#include "wire/flat.h"

enum { CALL_MS = 30 * 1000, OPEN_MS = 10 * 1000, FIELD_TASKS = 1, FIELD_RESULTS = 1 };

static const char path[] = "/millrace.v1.Tasks/Enqueue";

struct connection {
    struct bench_calls *calls;
    struct mr_channel *channel;
    bool was_up;
};

struct bench_calls {
    struct bench_calls_shape shape;
    struct mr_rpc *rpc;
    struct connection *connections;
    struct mr_buf request;
    struct mr_msg begin;
    struct mr_event all_up, all_answered;
    _Atomic bool running;
    /* The loop's. */
    unsigned up, in_flight;
    uint64_t answered;
    enum mr_err err;
};

/* ---- on the loop ---------------------------------------------------------------------------- */

static void begin_call(struct connection *connection);

static enum mr_err check_answer(const struct bench_calls *calls, struct mr_slice bytes)
{
    struct mr_enqueue_result result;
    struct mr_flat_item item;
    unsigned n = 0;
    while (bytes.len > 0) {
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != FIELD_RESULTS || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(mr_flat_read(&mr_flat_enqueue_result, item.bytes, NULL, &result));
        MR_TRY(result.err);
        n++;
    }
    return n == calls->shape.tasks ? MR_OK : MR_FAILED;
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct connection *connection = mr_call_data(call);
    struct bench_calls *calls = connection->calls;
    enum mr_err err = check_answer(calls, bytes);
    if (calls->err == MR_OK)
        calls->err = err;
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct connection *connection = mr_call_data(call);
    struct bench_calls *calls = connection->calls;
    (void)text;
    if (status != MR_RPC_OK && calls->err == MR_OK)
        calls->err = status == MR_RPC_UNAVAILABLE ? MR_UNAVAILABLE : MR_FAILED;
    calls->answered += status == MR_RPC_OK;
    calls->in_flight--;
    if (calls->err == MR_OK && atomic_load(&calls->running))
        begin_call(connection);
    if (calls->in_flight == 0)
        mr_event_set(&calls->all_answered);
}

static const struct mr_call_ops call_ops = {.message = on_message, .closed = on_closed};

static void begin_call(struct connection *connection)
{
    struct bench_calls *calls = connection->calls;
    struct mr_call *call;
    enum mr_err err =
        mr_channel_call(connection->channel, path, CALL_MS, &call_ops, connection, &call);
    if (err != MR_OK) {
        calls->err = err;
        return;
    }
    calls->in_flight++;
    err = mr_call_send(call, mr_buf_slice(&calls->request));
    if (err == MR_OK)
        mr_call_half_close(call);
    else
        mr_call_cancel(call);
}

static void begin_all(struct mr_msg *msg, void *receiver)
{
    struct bench_calls *calls = mr_container(msg, struct bench_calls, begin);
    (void)receiver;
    for (unsigned i = 0; i < calls->shape.connections; i++)
        for (unsigned k = 0; calls->err == MR_OK && k < calls->shape.in_flight; k++)
            begin_call(&calls->connections[i]);
    if (calls->in_flight == 0)
        mr_event_set(&calls->all_answered);
}

static void on_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct connection *connection = arg;
    struct bench_calls *calls = connection->calls;
    (void)channel, (void)why;
    if (!up || connection->was_up)
        return;
    connection->was_up = true;
    if (++calls->up == calls->shape.connections)
        mr_event_set(&calls->all_up);
}

/* ---- outside -------------------------------------------------------------------------------- */

static void fill_request(struct bench_calls *calls)
{
    struct mr_task_options task = bench_task();
    size_t len = mr_flat_size(&mr_flat_new_task, &task);
    size_t size = calls->shape.tasks * (mr_flat_head_size(len) + len);
    cli_must(mr_buf_reserve(&calls->request, size));
    uint8_t *at = calls->request.data;
    for (unsigned i = 0; i < calls->shape.tasks; i++)
        at = mr_flat_write(&mr_flat_new_task, &task, mr_flat_put_head(at, FIELD_TASKS, len));
    calls->request.len = size;
}

static enum mr_err connect_all(struct bench_server *server, struct bench_calls *calls)
{
    struct mr_detail *detail = &server->bench->detail;
    struct cli *cli = server->bench->cli;
    struct cli_tls chosen = {0};
    struct mr_buf token = {0}, authorization = {0};
    char address[MR_SERVER_MAX];
    bool own = server->bench->own_dir;
    const char *rest = strstr(server->url, "://") + strlen("://");
    bool secure = strncmp(server->url, "millraces", strlen("millraces")) == 0;
    if (!own && (cli_token_text(cli, &token) != CLI_OK || cli_tls(cli, &chosen) != CLI_OK))
        return MR_INVALID;
    struct mr_rpc_tls tls = {
        .ca_file = chosen.ca, .cert_file = chosen.cert, .key_file = chosen.key};
    cli_must(mr_buf_printf(&authorization, "Bearer %.*s%c", (int)token.len,
                           token.len > 0 ? (const char *)token.data : "", '\0'));
    enum mr_err err = mr_url_server(server->url, rest, address, detail);
    for (unsigned i = 0; err == MR_OK && i < calls->shape.connections; i++) {
        calls->connections[i].calls = calls;
        struct mr_channel_options options = {
            .address = address,
            .tls = secure ? &tls : NULL,
            .authorization = token.len > 0 ? (const char *)authorization.data : NULL,
            .changed = on_changed,
            .arg = &calls->connections[i],
        };
        err = mr_channel_new(calls->rpc, &options, &calls->connections[i].channel, detail);
    }
    mr_buf_done(&token);
    mr_buf_done(&authorization);
    if (err == MR_OK && !mr_event_wait(&calls->all_up, OPEN_MS * MR_NS_PER_MS))
        err = MR_UNAVAILABLE;
    return err;
}

enum mr_err bench_calls_open(struct bench_server *server, const struct bench_calls_shape *shape,
                             struct bench_calls **ret_calls)
{
    struct bench_calls *calls = cli_alloc(1, sizeof *calls);
    calls->shape = *shape;
    calls->connections = cli_alloc(shape->connections, sizeof *calls->connections);
    calls->begin.deliver = begin_all;
    mr_event_init(&calls->all_up);
    mr_event_init(&calls->all_answered);
    fill_request(calls);
    enum mr_err err = mr_rpc_new("bench", NULL, &calls->rpc);
    if (err == MR_OK)
        err = connect_all(server, calls);
    if (err != MR_OK) {
        bench_calls_close(calls);
        return err;
    }
    *ret_calls = calls;
    return MR_OK;
}

enum mr_err bench_calls_run(struct bench_calls *calls, double seconds, uint64_t *answered,
                            double *total_seconds)
{
    uint64_t before = calls->answered; /* nothing is in flight: the loop leaves it alone */
    int64_t start = bench_now_ns();
    mr_event_reset(&calls->all_answered);
    atomic_store(&calls->running, true);
    mr_rpc_post(calls->rpc, &calls->begin);
    bench_sleep(seconds);
    atomic_store(&calls->running, false);
    mr_event_wait(&calls->all_answered, INT64_MAX);
    *total_seconds += bench_seconds_since(start);
    *answered += calls->answered - before;
    return bench_interrupted() ? MR_CANCELLED : calls->err;
}

void bench_calls_close(struct bench_calls *calls)
{
    if (!calls)
        return;
    for (unsigned i = 0; i < calls->shape.connections; i++)
        mr_channel_free(calls->connections[i].channel);
    mr_rpc_free(calls->rpc);
    mr_buf_done(&calls->request);
    free(calls->connections);
    free(calls);
}
