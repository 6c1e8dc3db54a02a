/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages out of the bytes of a call. What lies whole in the bytes just read is delivered from
 * there; only the part of a message that a frame cuts off is copied to call->in, and everything
 * while the call is held.
 *
 * The window of the stream is given back as bytes are delivered, or kept for a message that is not
 * whole yet; not while the call is held. That of the connection is given back at once, so that one
 * call that is held stops no other.
 */
#include "rpc/internal.h"

static bool is_server(const struct mr_call *call)
{
    return call->channel == NULL;
}

/* Whether anybody still wants what comes. */
static bool wanted(const struct mr_call *call)
{
    return !call->is_over && !(is_server(call) && call->ending);
}

static bool can_deliver(const struct mr_call *call)
{
    return wanted(call) && !call->held;
}

static size_t kept(const struct mr_call *call)
{
    return call->in.len - call->in_at;
}

static void consume(struct mr_call *call, size_t len)
{
    if (!call->has_stream || len == 0)
        return;
    int rc = nghttp2_session_consume_stream(call->conn->session, call->stream_id, len);
    if (rc != 0)
        rpc_conn_doom(call->conn, NGHTTP2_INTERNAL_ERROR, "%s", nghttp2_strerror(rc));
    rpc_conn_dirty(call->conn); /* a window update may be due */
}

static void count_kept(struct mr_call *call, size_t more, size_t less)
{
    call->rpc->memory += more - less;
    if (call->conn != NULL)
        call->conn->received += more - less;
}

/* ---- keeping -------------------------------------------------------------------------------- */

/* Moves what is kept to the front when most of the buffer lies before it. */
static void close_up(struct mr_call *call)
{
    if (call->in_at * 2 < call->in.len)
        return;
    size_t len = kept(call);
    if (len > 0)
        memmove(call->in.data, call->in.data + call->in_at, len);
    call->in.len = len;
    call->in_at = 0;
    if (len == 0 && call->in.cap > RPC_KEEP_MAX)
        mr_buf_done(&call->in);
}

/* False when there is no room for it; the call has failed then. */
static bool keep(struct mr_call *call, const uint8_t *data, size_t len)
{
    if (len == 0)
        return true;
    const struct mr_rpc_limits *limits = &call->rpc->limits;
    if (call->conn->received + len > limits->queued_max || !rpc_conn_may_hold(call->conn, len)) {
        rpc_call_fail(call, MR_RPC_EXHAUSTED, "too much is received and not yet taken");
        return false;
    }
    if (call->in_at > 0)
        close_up(call);
    if (mr_buf_append(&call->in, data, len) != MR_OK) {
        rpc_call_fail(call, MR_RPC_EXHAUSTED, "out of memory");
        return false;
    }
    count_kept(call, len, 0);
    return true;
}

void rpc_receive_drop(struct mr_call *call)
{
    count_kept(call, 0, kept(call));
    mr_buf_done(&call->in);
    call->in_at = 0;
    consume(call, call->unconsumed);
    call->unconsumed = 0;
}

/* ---- delivering ----------------------------------------------------------------------------- */

/* The length with its prefix of the message that begins here. False when it is refused; the call
 * has failed then. */
static bool message_len(struct mr_call *call, const uint8_t *prefix, size_t *ret_len)
{
    uint32_t len = (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 |
                   (uint32_t)prefix[3] << 8 | prefix[4];
    if (prefix[0] > 1) {
        rpc_call_fail(call, MR_RPC_INTERNAL, "not a gRPC message");
        return false;
    }
    *ret_len = RPC_PREFIX_LEN + (size_t)len;
    if (len <= call->rpc->limits.message_max || call->ops->too_big != NULL)
        return true;
    char text[96];
    snprintf(text, sizeof text, "message of %u bytes, at most %zu are taken", len,
             call->rpc->limits.message_max);
    rpc_call_fail(call, MR_RPC_EXHAUSTED, text);
    return false;
}

/* Leaves out a message over the limit, of which so many bytes are here; answers how many are. */
static size_t leave_out(struct mr_call *call, size_t whole, size_t here)
{
    size_t n = whole < here ? whole : here;
    call->left_out = whole - n;
    call->ops->too_big(call, whole - RPC_PREFIX_LEN);
    return n;
}

/* What belongs to a message that is left out. */
static void drop_left_out(struct mr_call *call, const uint8_t **data, size_t *len)
{
    size_t n = call->left_out < *len ? call->left_out : *len;
    call->left_out -= n;
    *data += n;
    *len -= n;
}

static void deliver_packed(struct mr_call *call, struct mr_slice packed)
{
    struct mr_rpc *rpc = call->rpc;
    if (call->encoding != RPC_GZIP) {
        rpc_call_fail(call, MR_RPC_INTERNAL, "packed message without grpc-encoding");
        return;
    }
    enum mr_err err = rpc_gunzip(packed, rpc->limits.message_max, &rpc->unpacked);
    if (err == MR_OK)
        call->ops->message(call, mr_buf_slice(&rpc->unpacked));
    else if (err == MR_TOO_BIG && call->ops->too_big != NULL)
        call->ops->too_big(call, packed.len);
    else if (err == MR_TOO_BIG)
        rpc_call_fail(call, MR_RPC_EXHAUSTED, "message over the limit when unpacked");
    else if (err == MR_NOMEM)
        rpc_call_fail(call, MR_RPC_EXHAUSTED, "out of memory");
    else
        rpc_call_fail(call, MR_RPC_INTERNAL, "message is not gzip");
    if (rpc->unpacked.cap > RPC_KEEP_MAX)
        mr_buf_done(&rpc->unpacked);
}

/* Delivers the whole messages at the front until the call is held or over; answers how many bytes
 * they were. */
static size_t deliver_whole(struct mr_call *call, const uint8_t *data, size_t len)
{
    size_t at = 0, whole;
    while (can_deliver(call) && len - at >= RPC_PREFIX_LEN) {
        if (!message_len(call, data + at, &whole))
            break;
        if (whole - RPC_PREFIX_LEN > call->rpc->limits.message_max) {
            at += leave_out(call, whole, len - at);
            continue;
        }
        if (len - at < whole)
            break;
        struct mr_slice body = mr_slice_make(data + at + RPC_PREFIX_LEN, whole - RPC_PREFIX_LEN);
        at += whole;
        if (data[at - whole] == 1)
            deliver_packed(call, body);
        else
            call->ops->message(call, body);
    }
    return at;
}

static void deliver_kept(struct mr_call *call)
{
    if (kept(call) == 0)
        return;
    size_t used = deliver_whole(call, call->in.data + call->in_at, kept(call));
    call->in_at += used;
    count_kept(call, 0, used);
    if (kept(call) == 0)
        close_up(call);
}

/* How much of what comes next belongs to the message that is kept in part. */
static size_t missing(struct mr_call *call)
{
    size_t have = kept(call), whole;
    if (have < RPC_PREFIX_LEN)
        return RPC_PREFIX_LEN - have;
    return message_len(call, call->in.data + call->in_at, &whole) ? whole - have : 0;
}

static void feed(struct mr_call *call, const uint8_t *data, size_t len)
{
    while (drop_left_out(call, &data, &len), len > 0 && kept(call) > 0 && can_deliver(call)) {
        size_t n = missing(call);
        if (n > len)
            n = len;
        if (!can_deliver(call) || !keep(call, data, n))
            return;
        data += n;
        len -= n;
        deliver_kept(call);
    }
    size_t used = deliver_whole(call, data, len);
    if (wanted(call))
        (void)keep(call, data + used, len - used);
}

/* What follows the last message. */
static void check_end(struct mr_call *call)
{
    if (!call->remote_ended || call->half_told || !can_deliver(call))
        return;
    if (kept(call) > 0 || call->left_out > 0) {
        rpc_call_fail(call, MR_RPC_INTERNAL, "message cut short");
        return;
    }
    call->half_told = true;
    if (!is_server(call))
        rpc_call_answered(call);
    else if (call->ops->half_closed != NULL)
        call->ops->half_closed(call);
}

static void give_back(struct mr_call *call)
{
    if (!wanted(call)) {
        rpc_receive_drop(call);
#ifdef MR_PLANT_HELD_CALL_GROWS
    } else {
#else
    } else if (!call->held) {
#endif
        consume(call, call->unconsumed);
        call->unconsumed = 0;
    }
}

void rpc_receive(struct mr_call *call, const uint8_t *data, size_t len)
{
    call->unconsumed += len;
    drop_left_out(call, &data, &len);
    if (can_deliver(call))
        feed(call, data, len);
    else if (wanted(call))
        (void)keep(call, data, len);
    give_back(call);
}

void rpc_receive_end(struct mr_call *call)
{
    call->remote_ended = true;
    check_end(call);
}

void rpc_receive_resume(struct mr_call *call)
{
    if (can_deliver(call))
        deliver_kept(call);
    check_end(call);
    give_back(call);
}
