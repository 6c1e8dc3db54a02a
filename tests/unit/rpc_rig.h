/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with a few small methods and a client, each with a loop of its own, on a port that the
 * kernel chose. Calls are driven from the thread of the test: what must be done on a loop is posted
 * there and waited for. Include it in one file of a test program.
 */
#ifndef MR_TESTS_RPC_RIG_H
#define MR_TESTS_RPC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/list.h"
#include "rpc/rpc.h"
#include "support/on_loop.h"

/* Waits until a number that another thread counts reaches this. */
static inline void wait_count(const _Atomic size_t *count, size_t wanted)
{
    int64_t give_up = mr_mono_now(mr_clock_system()).ns + patience_ns;
    while (atomic_load(count) < wanted) {
        assert_true(mr_mono_now(mr_clock_system()).ns < give_up);
        sched_yield();
    }
}

static inline void let_pass(int64_t ms)
{
    struct mr_event never;
    mr_event_init(&never);
    assert_false(mr_event_wait(&never, ms * MR_NS_PER_MS));
}

/* Nothing spins: while nothing happens, the process uses hardly any time of a processor. */
static inline void assert_quiet(void)
{
    clock_t before = clock();
    let_pass(200);
    assert_true(clock() - before < CLOCKS_PER_SEC / 10);
}

/* ---- the server ----------------------------------------------------------------------------- */

/* What a call of the server is doing; made by begin, freed by closed. */
struct served {
    struct rig *rig;
    size_t bytes, messages;
    size_t left; /* /t/Count: messages still to send */
    size_t size; /* of each */
};

struct rig {
    struct mr_rpc *server, *client;
    struct mr_channel *channel;
    uint16_t port;
    char address[32];
    struct mr_event up, down; /* of the channel */
    char why[200];
    _Atomic size_t ups;
    /* What the server saw. */
    _Atomic size_t begun, closed, received, received_bytes;
    _Atomic int last_status;
    _Atomic bool hold; /* /t/Sink holds its calls from the first message on */
    struct mr_call *held;
    _Atomic size_t queued_most; /* of a /t/Count call */
};

static inline struct served *served_of(struct mr_call *call)
{
    return mr_call_data(call);
}

static inline void served_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)text;
    struct served *served = served_of(call);
    struct rig *rig = served->rig;
    if (rig->held == call)
        rig->held = NULL;
    free(served);
    atomic_store(&rig->last_status, status);
    atomic_fetch_add(&rig->closed, 1);
}

static inline void end_ok(struct mr_call *call)
{
    mr_call_end(call, MR_RPC_OK, (struct mr_slice){0});
}

static inline void echo_message(struct mr_call *call, struct mr_slice bytes)
{
    struct served *served = served_of(call);
    served->messages++;
    atomic_fetch_add(&served->rig->received, 1);
    enum mr_err err = mr_call_send(call, bytes);
    mr_assert(err == MR_OK || err == MR_CLOSED || err == MR_BUSY);
}

static inline void sum_message(struct mr_call *call, struct mr_slice bytes)
{
    struct served *served = served_of(call);
    served->messages++;
    served->bytes += bytes.len;
    atomic_fetch_add(&served->rig->received_bytes, bytes.len);
    atomic_fetch_add(&served->rig->received, 1);
    if (atomic_load(&served->rig->hold)) {
        served->rig->held = call;
        mr_call_hold(call, true);
    }
}

static inline void sum_end(struct mr_call *call)
{
    char text[64];
    struct served *served = served_of(call);
    snprintf(text, sizeof text, "%zu messages, %zu bytes", served->messages, served->bytes);
    mr_assert(mr_call_send(call, mr_slice_str(text)) == MR_OK);
    end_ok(call);
}

static inline void count_on(struct mr_call *call)
{
    struct served *served = served_of(call);
    while (served->left > 0 && mr_call_queued(call) < MR_CALL_QUEUED_HIGH) {
        uint8_t *room;
        mr_assert(mr_call_room(call, served->size, &room) == MR_OK);
        memset(room, (int)(served->left & 0xff), served->size);
        served->left--;
    }
    size_t queued = mr_call_queued(call);
    if (queued > atomic_load(&served->rig->queued_most))
        atomic_store(&served->rig->queued_most, queued);
    if (served->left == 0)
        end_ok(call);
}

/* "N SIZE": N messages of SIZE bytes. */
static inline void count_message(struct mr_call *call, struct mr_slice bytes)
{
    struct served *served = served_of(call);
    char text[64] = "";
    memcpy(text, bytes.data, bytes.len < sizeof text ? bytes.len : sizeof text - 1);
    mr_assert(sscanf(text, "%zu %zu", &served->left, &served->size) == 2);
    count_on(call);
}

static inline void fail_message(struct mr_call *call, struct mr_slice bytes)
{
    mr_call_trailer(call, "x-code", MR_SLICE_LIT("seventeen"));
    mr_call_end(call, 9, bytes);
}

static inline void meta_message(struct mr_call *call, struct mr_slice bytes)
{
    char name[64] = "";
    memcpy(name, bytes.data, bytes.len);
    struct mr_slice value = mr_call_metadata(call, name);
    mr_assert(mr_call_send(call, value) == MR_OK);
    end_ok(call);
}

static inline void nothing_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)bytes;
    atomic_fetch_add(&served_of(call)->rig->received, 1);
}

static inline void begin_with(struct mr_call *call, void *arg, const struct mr_call_ops *ops)
{
    struct served *served = calloc(1, sizeof *served);
    mr_assert(served != NULL);
    served->rig = arg;
    mr_call_set(call, ops, served);
    atomic_fetch_add(&served->rig->begun, 1);
}

#define RIG_METHOD(name, ...)                                                                      \
    static inline void begin_##name(struct mr_call *call, void *arg)                               \
    {                                                                                              \
        static const struct mr_call_ops ops = {.closed = served_closed, __VA_ARGS__};              \
        begin_with(call, arg, &ops);                                                               \
    }

RIG_METHOD(echo, .message = echo_message, .half_closed = end_ok)
RIG_METHOD(sum, .message = sum_message, .half_closed = sum_end)
RIG_METHOD(count, .message = count_message, .writable = count_on)
RIG_METHOD(fail, .message = fail_message)
RIG_METHOD(meta, .message = meta_message)
RIG_METHOD(hang, .message = nothing_message)

static inline void begin_refuse(struct mr_call *call, void *arg)
{
    (void)arg;
    mr_call_end(call, MR_RPC_UNAUTHENTICATED, MR_SLICE_LIT("who are you?"));
}

static const struct mr_rpc_method rig_methods[] = {
    {"/t/Echo", begin_echo},     {"/t/Sum", begin_sum},   {"/t/Count", begin_count},
    {"/t/Fail", begin_fail},     {"/t/Meta", begin_meta}, {"/t/Hang", begin_hang},
    {"/t/Refuse", begin_refuse},
};

/* ---- set-up --------------------------------------------------------------------------------- */

static inline void rig_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    (void)channel;
    struct rig *rig = arg;
    if (up) {
        mr_event_reset(&rig->down);
        atomic_fetch_add(&rig->ups, 1);
        mr_event_set(&rig->up);
    } else {
        snprintf(rig->why, sizeof rig->why, "%s", why);
        mr_event_reset(&rig->up);
        mr_event_set(&rig->down);
    }
}

static inline void rig_listen(struct rig *rig, const char *address, const struct mr_rpc_tls *tls)
{
    struct mr_detail detail = {""};
    struct mr_rpc_service service = {
        .address = address,
        .tls = tls,
        .methods = rig_methods,
        .methods_n = sizeof rig_methods / sizeof rig_methods[0],
        .arg = rig,
    };
    if (mr_rpc_listen(rig->server, &service, &rig->port, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", (unsigned)rig->port);
}

static inline void rig_connect(struct rig *rig, const struct mr_rpc_tls *tls)
{
    struct mr_channel_options options = {.address = rig->address,
                                         .tls = tls,
                                         .authorization = "Bearer sesame",
                                         .changed = rig_changed,
                                         .arg = rig};
    assert_int_equal(mr_channel_new(rig->client, &options, &rig->channel, NULL), MR_OK);
}

static inline struct rig *rig_new(const struct mr_rpc_limits *server_limits,
                                  const struct mr_rpc_limits *client_limits)
{
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    mr_event_init(&rig->up);
    mr_event_init(&rig->down);
    assert_int_equal(mr_rpc_new("server", server_limits, &rig->server), MR_OK);
    assert_int_equal(mr_rpc_new("client", client_limits, &rig->client), MR_OK);
    return rig;
}

static inline struct rig *rig_start(const struct mr_rpc_limits *server_limits,
                                    const struct mr_rpc_limits *client_limits)
{
    struct rig *rig = rig_new(server_limits, client_limits);
    rig_listen(rig, "127.0.0.1:0", NULL);
    rig_connect(rig, NULL);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    return rig;
}

static inline void rig_stop(struct rig *rig)
{
    mr_channel_free(rig->channel);
    mr_rpc_free(rig->client);
    mr_rpc_free(rig->server);
    assert_int_equal(atomic_load(&rig->begun), atomic_load(&rig->closed));
    free(rig);
}

/* ---- calls of the client -------------------------------------------------------------------- */

struct probe {
    struct rig *rig;
    struct mr_call *call;
    struct mr_event closed;
    _Atomic size_t messages, bytes;
    struct mr_buf last; /* message */
    int status;
    char text[300];
    char trailer[64];
    bool hold; /* after each message */
    _Atomic size_t writables;
    /* Arguments of what is done on the loop. */
    const char *path;
    int64_t deadline_ms;
    struct mr_slice to_send;
    size_t times;
    enum mr_err err;
};

static inline void probe_message(struct mr_call *call, struct mr_slice bytes)
{
    struct probe *probe = mr_call_data(call);
    mr_buf_clear(&probe->last);
    mr_assert(mr_buf_append_slice(&probe->last, bytes) == MR_OK);
    atomic_fetch_add(&probe->bytes, bytes.len);
    atomic_fetch_add(&probe->messages, 1);
    if (probe->hold)
        mr_call_hold(call, true);
}

static inline void probe_writable(struct mr_call *call)
{
    struct probe *probe = mr_call_data(call);
    atomic_fetch_add(&probe->writables, 1);
}

static inline void probe_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct probe *probe = mr_call_data(call);
    probe->status = status;
    snprintf(probe->text, sizeof probe->text, "%.*s", (int)text.len, (const char *)text.data);
    struct mr_slice trailer = mr_call_metadata(call, "x-code");
    snprintf(probe->trailer, sizeof probe->trailer, "%.*s", (int)trailer.len,
             trailer.len > 0 ? (const char *)trailer.data : "");
    probe->call = NULL;
    mr_event_set(&probe->closed);
}

static const struct mr_call_ops probe_ops = {
    .message = probe_message, .writable = probe_writable, .closed = probe_closed};

static inline void do_begin(void *arg)
{
    struct probe *probe = arg;
    probe->err = mr_channel_call(probe->rig->channel, probe->path, probe->deadline_ms, &probe_ops,
                                 probe, &probe->call);
}

static inline void probe_begin(struct rig *rig, struct probe *probe, const char *path,
                               int64_t deadline_ms)
{
    *probe = (struct probe){.rig = rig, .path = path, .deadline_ms = deadline_ms};
    mr_event_init(&probe->closed);
    on_loop(rig->client, do_begin, probe);
    assert_int_equal(probe->err, MR_OK);
}

static inline void do_send(void *arg)
{
    struct probe *probe = arg;
    for (size_t i = 0; i < probe->times && probe->call != NULL; i++) {
        probe->err = mr_call_send(probe->call, probe->to_send);
        if (probe->err != MR_OK)
            return;
    }
}

static inline enum mr_err probe_send_times(struct probe *probe, struct mr_slice bytes, size_t times)
{
    probe->to_send = bytes;
    probe->times = times;
    probe->err = MR_CLOSED;
    on_loop(probe->rig->client, do_send, probe);
    return probe->err;
}

static inline void probe_send(struct probe *probe, const char *text)
{
    assert_int_equal(probe_send_times(probe, mr_slice_str(text), 1), MR_OK);
}

static inline void do_half_close(void *arg)
{
    struct probe *probe = arg;
    if (probe->call != NULL)
        mr_call_half_close(probe->call);
}

static inline void probe_half_close(struct probe *probe)
{
    on_loop(probe->rig->client, do_half_close, probe);
}

static inline void do_cancel(void *arg)
{
    struct probe *probe = arg;
    if (probe->call != NULL)
        mr_call_cancel(probe->call);
}

static inline void do_release(void *arg)
{
    struct probe *probe = arg;
    probe->hold = false;
    if (probe->call != NULL)
        mr_call_hold(probe->call, false);
}

/* Waits for the end; answers the status. */
static inline int probe_end(struct probe *probe)
{
    assert_true(mr_event_wait(&probe->closed, patience_ns));
    return probe->status;
}

static inline void probe_done(struct probe *probe)
{
    mr_buf_done(&probe->last);
}

static inline void assert_last(const struct probe *probe, const char *text)
{
    assert_int_equal(probe->last.len, strlen(text));
    assert_memory_equal(probe->last.data, text, probe->last.len);
}

/* The good client still has its first connection, and it works. */
static inline void assert_served(struct rig *rig)
{
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_send(&probe, "still there?");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "still there?");
    probe_done(&probe);
    assert_int_equal(atomic_load(&rig->ups), 1);
}

#endif
