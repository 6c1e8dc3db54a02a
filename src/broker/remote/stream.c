/* SPDX-License-Identifier: Apache-2.0 */
/* Streams for a thread that waits: see stream.h. The loop owns the call; both sides meet under a lock. */
#include "broker/remote/stream.h"

#include <stdlib.h>

#include "broker/remote/internal.h"

enum {
    SENT_MAX = 1024 * 1024, /* on the way to the loop */
    CAME_MAX = 1024 * 1024, /* not taken by the thread: then no more is read */
};

struct mr_remote_stream {
    struct remote *remote;
    const char *path;
    struct mr_call *call; /* of the loop; NULL: it is over, or was never there */
    struct mr_lock lock;  /* for all that follows */
    size_t orders;        /* under way to the loop */
    size_t sent;          /* bytes of them */
    bool full;            /* the call has enough for now */
    bool held;            /* and is not read */
    struct mr_link came;  /* of struct came */
    size_t came_bytes;
    bool ended;
    enum mr_err err;
    struct mr_detail detail;
    struct came *taken; /* the thread's: the message it has now */
};

struct came {
    struct mr_link link;
    size_t len;
    uint8_t bytes[];
};

/* What the loop is to do. */
struct stream_order {
    struct mr_msg msg;
    struct mr_remote_stream *stream;
    size_t len;
    uint8_t bytes[];
};

/* ---- on the loop ---------------------------------------------------------------------------- */

static void end_with(struct mr_remote_stream *stream, enum mr_err err, struct mr_slice text)
{
    mr_lock_enter(&stream->lock);
    stream->call = NULL;
    stream->ended = true;
    stream->err = err;
    mr_detail_set(&stream->detail, "%.*s", (int)text.len,
                  text.len > 0 ? (const char *)text.data : "");
    mr_lock_notify_all(&stream->lock);
    mr_lock_leave(&stream->lock);
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct mr_remote_stream *stream = mr_call_data(call);
    struct came *came = malloc(sizeof *came + bytes.len);
    if (came == NULL) {
        mr_call_cancel(call);
        return;
    }
    came->len = bytes.len;
    if (bytes.len > 0)
        memcpy(came->bytes, bytes.data, bytes.len);
    mr_lock_enter(&stream->lock);
    mr_list_init(&came->link);
    mr_list_push_back(&stream->came, &came->link);
    stream->came_bytes += bytes.len;
    stream->held = stream->came_bytes >= CAME_MAX;
    bool held = stream->held;
    mr_lock_notify_all(&stream->lock);
    mr_lock_leave(&stream->lock);
    if (held)
        mr_call_hold(call, true);
}

static void on_writable(struct mr_call *call)
{
    struct mr_remote_stream *stream = mr_call_data(call);
    mr_lock_enter(&stream->lock);
    stream->full = false;
    mr_lock_notify_all(&stream->lock);
    mr_lock_leave(&stream->lock);
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct mr_remote_stream *stream = mr_call_data(call);
    enum mr_err err = call_err(call, status);
    if (call_said(call))
        remote_refused(stream->remote, err, text);
    end_with(stream, err, text);
}

/* The last thing that an order does. */
static void order_done(struct stream_order *order)
{
    struct mr_remote_stream *stream = order->stream;
    mr_lock_enter(&stream->lock);
    stream->orders--;
    stream->sent -= order->len;
    if (stream->call != NULL && mr_call_queued(stream->call) >= MR_CALL_QUEUED_HIGH)
        stream->full = true;
    mr_lock_notify_all(&stream->lock);
    mr_lock_leave(&stream->lock);
    free(order);
}

static struct stream_order *order_of(struct mr_msg *msg)
{
    return mr_container(msg, struct stream_order, msg);
}

static void do_open(struct mr_msg *msg, void *receiver)
{
    static const struct mr_call_ops ops = {
        .message = on_message, .writable = on_writable, .closed = on_closed};
    struct mr_remote_stream *stream = order_of(msg)->stream;
    struct remote *remote = stream->remote;
    (void)receiver;
    enum mr_err err = remote->up ? MR_OK : MR_UNAVAILABLE;
    if (err == MR_OK)
        err = mr_channel_call(remote->channel, stream->path, 0, &ops, stream, &stream->call);
    if (err != MR_OK)
        end_with(stream, err, (struct mr_slice){0});
    order_done(order_of(msg));
}

static void do_send(struct mr_msg *msg, void *receiver)
{
    struct stream_order *order = order_of(msg);
    struct mr_call *call = order->stream->call;
    (void)receiver;
    if (call != NULL) {
        enum mr_err err = mr_call_send(call, mr_slice_make(order->bytes, order->len));
        if (err != MR_OK && err != MR_CLOSED)
            mr_call_cancel(call);
    }
    order_done(order);
}

static void do_half_close(struct mr_msg *msg, void *receiver)
{
    struct mr_call *call = order_of(msg)->stream->call;
    (void)receiver;
    if (call != NULL)
        mr_call_half_close(call);
    order_done(order_of(msg));
}

static void do_go_on(struct mr_msg *msg, void *receiver)
{
    struct mr_call *call = order_of(msg)->stream->call;
    (void)receiver;
    if (call != NULL)
        mr_call_hold(call, false);
    order_done(order_of(msg));
}

static void do_cancel(struct mr_msg *msg, void *receiver)
{
    struct mr_call *call = order_of(msg)->stream->call;
    (void)receiver;
    if (call != NULL)
        mr_call_cancel(call);
    order_done(order_of(msg));
}

/* ---- the thread's side ---------------------------------------------------------------------- */

/* With the lock. */
static enum mr_err give_order(struct mr_remote_stream *stream,
                              void (*deliver)(struct mr_msg *msg, void *receiver),
                              struct mr_slice bytes)
{
    struct stream_order *order = malloc(sizeof *order + bytes.len);
    if (order == NULL)
        return MR_NOMEM;
    *order = (struct stream_order){.msg.deliver = deliver, .stream = stream, .len = bytes.len};
    if (bytes.len > 0)
        memcpy(order->bytes, bytes.data, bytes.len);
    stream->orders++;
    stream->sent += bytes.len;
    mr_rpc_post(stream->remote->rpc, &order->msg);
    return MR_OK;
}

enum mr_err mr_remote_stream_open(struct mr_broker *broker, const char *path,
                                  struct mr_remote_stream **ret_stream)
{
    struct mr_remote_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return MR_NOMEM;
    stream->remote = mr_container(broker, struct remote, broker);
    stream->path = path;
    mr_lock_init(&stream->lock);
    mr_list_init(&stream->came);
    mr_lock_enter(&stream->lock);
    enum mr_err err = give_order(stream, do_open, (struct mr_slice){0});
    while (err == MR_OK && stream->orders > 0)
        (void)mr_lock_wait(&stream->lock, INT64_MAX);
    if (err == MR_OK && stream->ended)
        err = stream->err;
    stream->ended = stream->ended || err != MR_OK;
    mr_lock_leave(&stream->lock);
    if (err != MR_OK) {
        mr_remote_stream_free(stream);
        return err;
    }
    *ret_stream = stream;
    return MR_OK;
}

enum mr_err mr_remote_stream_send(struct mr_remote_stream *stream, struct mr_slice bytes)
{
    enum mr_err err = MR_CLOSED;
    mr_lock_enter(&stream->lock);
    while (!stream->ended && (stream->full || stream->sent >= SENT_MAX))
        (void)mr_lock_wait(&stream->lock, INT64_MAX);
    if (!stream->ended)
        err = give_order(stream, do_send, bytes);
    mr_lock_leave(&stream->lock);
    return err;
}

void mr_remote_stream_half_close(struct mr_remote_stream *stream)
{
    mr_lock_enter(&stream->lock);
    while (!stream->ended && give_order(stream, do_half_close, (struct mr_slice){0}) != MR_OK)
        (void)mr_lock_wait(&stream->lock, MR_NS_PER_MS);
    mr_lock_leave(&stream->lock);
}

/* With the lock: the oldest message becomes the thread's. */
static void take_one(struct mr_remote_stream *stream)
{
    stream->taken = mr_container(mr_list_pop_front(&stream->came), struct came, link);
    stream->came_bytes -= stream->taken->len;
    if (stream->held && stream->came_bytes < CAME_MAX / 2) {
        stream->held = false;
        if (give_order(stream, do_go_on, (struct mr_slice){0}) != MR_OK)
            stream->held = true;
    }
}

enum mr_err mr_remote_stream_next(struct mr_remote_stream *stream, int64_t max_ns,
                                  struct mr_slice *ret_bytes, struct mr_detail *detail)
{
    bool in_time = true;
    enum mr_err err = MR_OK;
    free(stream->taken);
    stream->taken = NULL;
    mr_lock_enter(&stream->lock);
    while (in_time && mr_list_empty(&stream->came) && !stream->ended)
        in_time = mr_lock_wait(&stream->lock, max_ns);
    if (!mr_list_empty(&stream->came)) {
        take_one(stream);
        *ret_bytes = mr_slice_make(stream->taken->bytes, stream->taken->len);
    } else if (!stream->ended) {
        err = MR_TIMEOUT;
    } else {
        err = stream->err == MR_OK ? MR_EMPTY : stream->err;
        if (detail != NULL)
            *detail = stream->detail;
    }
    mr_lock_leave(&stream->lock);
    return err;
}

void mr_remote_stream_free(struct mr_remote_stream *stream)
{
    if (stream == NULL)
        return;
    mr_lock_enter(&stream->lock);
    while (!stream->ended && give_order(stream, do_cancel, (struct mr_slice){0}) != MR_OK)
        (void)mr_lock_wait(&stream->lock, MR_NS_PER_MS);
    while (!stream->ended || stream->orders > 0)
        (void)mr_lock_wait(&stream->lock, INT64_MAX);
    mr_lock_leave(&stream->lock);
    while (!mr_list_empty(&stream->came))
        free(mr_container(mr_list_pop_front(&stream->came), struct came, link));
    free(stream->taken);
    mr_lock_done(&stream->lock);
    free(stream);
}
