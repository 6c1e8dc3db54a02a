/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nghttp2 tells of a session, for both sides. A frame that breaks the protocol is nghttp2's to
 * judge; here stands what gRPC makes of the good ones, and what a peer may not do too often.
 */
#include "rpc/internal.h"

enum {
    RESET_BURST = 2,  /* times the calls it may have: resets by a client at once */
    RESET_RATE = 500, /* and then a second */
    ACKS_MAX = 1000,  /* answers to pings and settings that a peer may leave unread */
};

static struct mr_call *call_of(nghttp2_session *session, int32_t stream_id)
{
    return nghttp2_session_get_stream_user_data(session, stream_id);
}

/* ---- streams -------------------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    if (conn->listener == NULL || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct mr_call *call = rpc_call_new(conn->rpc, conn);
    if (call == NULL)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    rpc_call_has_stream(call, frame->hd.stream_id);
    if (nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, call) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    conn->head_stream = frame->hd.stream_id;
    conn->head_since = conn->rpc->now;
    return rpc_call_charge(call, RPC_CALL_COST) ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    (void)flags;
    (void)arg;
    struct mr_call *call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    enum mr_err err =
        rpc_header_take(call, mr_slice_make(name, name_len), mr_slice_make(value, value_len));
    return err == MR_OK ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *arg)
{
    (void)flags;
    struct rpc_conn *conn = arg;
    if (nghttp2_session_consume_connection(session, len) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    struct mr_call *call = call_of(session, stream_id);
    if (call != NULL)
        rpc_receive(call, data, len);
    else
        (void)nghttp2_session_consume_stream(session, stream_id, len);
    rpc_conn_dirty(conn);
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *arg)
{
    struct rpc_conn *conn = arg;
    if (conn->head_stream == stream_id) /* refused before its end */
        conn->head_stream = 0;
    struct mr_call *call = call_of(session, stream_id);
    if (call != NULL)
        rpc_call_stream_closed(call, code);
    return 0;
}

/* ---- frames --------------------------------------------------------------------------------- */

static void headers_came(struct rpc_conn *conn, struct mr_call *call, const nghttp2_frame *frame)
{
    conn->head_stream = 0;
    if (conn->listener != NULL && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        rpc_server_begin(call);
}

/* A client's connection takes no new calls from now on. */
static void goaway_came(struct rpc_conn *conn)
{
    if (conn->channel == NULL)
        return;
    conn->leave = RPC_GOAWAY;
    if (conn->calls_n == 0)
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the server ends the connection");
}

/* What costs us more than the peer. Frames of calls are paid for by the limit of calls, resets have
 * one of their own in nghttp2. */
static int64_t nuisance_of(const nghttp2_frame *frame)
{
    switch (frame->hd.type) {
    case NGHTTP2_PING:
    case NGHTTP2_SETTINGS:
        return frame->hd.flags & NGHTTP2_FLAG_ACK ? 0 : 1;
    case NGHTTP2_PRIORITY:
        return 1;
    case NGHTTP2_DATA:
        return frame->hd.length == 0 && !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ? 1 : 0;
    default:
        return 0;
    }
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    int64_t nuisance = nuisance_of(frame);
    if (nuisance > 0 && !rpc_conn_nuisance(conn, nuisance))
        return 0;
    struct mr_call *call = frame->hd.stream_id > 0 ? call_of(session, frame->hd.stream_id) : NULL;
    if (frame->hd.type == NGHTTP2_HEADERS && call != NULL)
        headers_came(conn, call, frame);
    else if (frame->hd.type == NGHTTP2_SETTINGS && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
        rpc_conn_opened(conn);
    else if (frame->hd.type == NGHTTP2_GOAWAY)
        goaway_came(conn);
    else if (frame->hd.type == NGHTTP2_PING && frame->hd.flags & NGHTTP2_FLAG_ACK)
        rpc_conn_ponged(conn, frame->ping.opaque_data);
    bool body = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (call != NULL && body && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        rpc_receive_end(call);
    rpc_conn_dirty(conn);
    return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
    struct rpc_conn *conn = arg;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        rpc_conn_goaway_sent(conn);
    bool body = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (!body || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct mr_call *call = call_of(session, frame->hd.stream_id);
    if (call == NULL)
        return 0;
    call->end_sent = true;
    /* The answer is complete and the client still sends: it should stop, without harm to what it
     * got. */
    if (conn->listener != NULL && !call->remote_ended)
        rpc_call_reset(call, NGHTTP2_NO_ERROR);
    return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                        size_t len, nghttp2_data_source *source, void *arg)
{
    (void)session;
    (void)frame;
    struct rpc_conn *conn = arg;
    if (rpc_call_write(source->ptr, head, len) != MR_OK)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    /* Enough for one write: nghttp2 gives the word back. */
    return conn->rpc->out.len >= RPC_OUT_TARGET ? NGHTTP2_ERR_PAUSE : 0;
}

/* ---- sessions ------------------------------------------------------------------------------- */

enum mr_err rpc_session_new_shared(struct mr_rpc *rpc)
{
    if (nghttp2_session_callbacks_new(&rpc->callbacks) != 0 ||
        nghttp2_option_new(&rpc->option) != 0)
        return MR_NOMEM;
    nghttp2_session_callbacks *callbacks = rpc->callbacks;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_option_set_no_auto_window_update(rpc->option, 1);
    nghttp2_option_set_no_closed_streams(rpc->option, 1);
    nghttp2_option_set_max_outbound_ack(rpc->option, ACKS_MAX);
    nghttp2_option_set_stream_reset_rate_limit(
        rpc->option, (uint64_t)RESET_BURST * rpc->limits.calls_max, RESET_RATE);
    return MR_OK;
}

void rpc_session_free_shared(struct mr_rpc *rpc)
{
    nghttp2_session_callbacks_del(rpc->callbacks);
    nghttp2_option_del(rpc->option);
}

static int submit_settings(struct rpc_conn *conn)
{
    nghttp2_settings_entry entries[] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, RPC_STREAM_WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, RPC_HEADER_LIST_MAX},
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, conn->rpc->limits.calls_max},
    };
    size_t n = sizeof entries / sizeof entries[0];
    /* A server makes no calls; a client allows none. */
    if (conn->channel != NULL)
        entries[n - 1] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    int rc = nghttp2_submit_settings(conn->session, NGHTTP2_FLAG_NONE, entries, n);
    return rc != 0 ? rc
                   : nghttp2_session_set_local_window_size(conn->session, NGHTTP2_FLAG_NONE, 0,
                                                           RPC_CONN_WINDOW);
}

enum mr_err rpc_session_start(struct rpc_conn *conn)
{
    struct mr_rpc *rpc = conn->rpc;
    int rc = conn->listener != NULL
                 ? nghttp2_session_server_new2(&conn->session, rpc->callbacks, conn, rpc->option)
                 : nghttp2_session_client_new2(&conn->session, rpc->callbacks, conn, rpc->option);
    if (rc == 0)
        rc = submit_settings(conn);
    return rc == 0 ? MR_OK : MR_NOMEM;
}
