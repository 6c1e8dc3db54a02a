/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call has two lives: the owner's, which ends with closed, and the stream's in nghttp2. Either may
 * end first; the memory goes with the second.
 *
 *   is_over  nothing but closed is told to the owner from now on; told: it was
 *   ending   the owner sends no more: a status (server) or END_STREAM (client) goes behind out
 */
#include "rpc/internal.h"

#include <stdlib.h>

enum { SPARE_MAX = 4096 };

static bool is_server(const struct mr_call *call)
{
    return call->channel == NULL;
}

/* Something can go on; rpc_call_stirred does it, later in this turn. */
static void stir(struct mr_call *call)
{
    if (!call->is_over && mr_list_empty(&call->turn_link))
        mr_list_push_back(&call->rpc->stirred, &call->turn_link);
}

void rpc_call_stirred(struct mr_call *call)
{
    bool writable = call->writable_due;
    call->writable_due = false;
    if (writable && call->ops->writable != NULL && !call->ending)
        call->ops->writable(call);
    rpc_receive_resume(call);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void deadline_passed(struct mr_timer *timer, void *arg);

struct mr_call *rpc_call_new(struct mr_rpc *rpc, struct rpc_conn *conn)
{
    struct mr_call *call = rpc->spare;
    if (call != NULL) {
        rpc->spare = call->next_spare;
        rpc->spare_n--;
    } else {
        call = malloc(sizeof *call);
        if (call == NULL)
            return NULL;
    }
    *call = (struct mr_call){.rpc = rpc,
                             .conn = conn,
                             .channel = conn->channel,
                             .deadline = MR_MONO_NEVER,
                             .timeout_ns = -1,
                             .status = -1};
    mr_list_init(&call->link);
    mr_list_init(&call->turn_link);
    mr_timer_init(&call->timer, deadline_passed);
    return call;
}

void rpc_call_free(struct mr_call *call)
{
    struct mr_rpc *rpc = call->rpc;
    mr_assert(!call->has_stream);
    rpc_receive_drop(call);
    mr_wheel_stop(rpc->wheel, &call->timer);
    mr_list_remove(&call->turn_link);
    mr_list_remove(&call->link);
    mr_buf_done(&call->out);
    mr_buf_done(&call->meta);
    mr_buf_done(&call->text);
    mr_buf_done(&call->trailer_value);
    if (rpc->spare_n == SPARE_MAX) {
        free(call);
        return;
    }
    call->next_spare = rpc->spare;
    rpc->spare = call;
    rpc->spare_n++;
}

void rpc_call_has_stream(struct mr_call *call, int32_t stream_id)
{
    call->stream_id = stream_id;
    call->has_stream = true;
    mr_list_push_back(&call->conn->calls, &call->link);
    call->conn->calls_n++;
}

bool rpc_call_charge(struct mr_call *call, size_t cost)
{
    if (!rpc_conn_may_hold(call->conn, cost))
        return false;
    call->cost += cost;
    call->conn->heads += cost;
    call->rpc->memory += cost;
    return true;
}

void rpc_call_over(struct mr_call *call, int status, struct mr_slice text)
{
    if (call->is_over)
        return;
    call->is_over = true;
    call->status = status;
    if (text.data != call->text.data) {
        mr_buf_clear(&call->text);
        /* Without memory the status has to speak for itself. */
        (void)!mr_buf_append_slice(&call->text, text);
    }
    mr_wheel_stop(call->rpc->wheel, &call->timer);
    mr_list_remove(&call->turn_link);
    mr_list_push_back(&call->rpc->over, &call->turn_link);
}

void rpc_call_tell(struct mr_call *call)
{
    mr_assert(call->is_over && !call->told);
    if (call->ops != NULL)
        call->ops->closed(call, call->status, mr_buf_slice(&call->text));
    call->told = true;
    rpc_receive_drop(call);
    if (call->channel != NULL)
        call->channel->calls_n--;
    if (!call->has_stream)
        rpc_call_free(call);
}

/* Nothing that is queued will be sent. */
static void drop_out(struct mr_call *call)
{
    size_t len = mr_call_queued(call);
    call->rpc->memory -= len;
    call->conn->queued -= len;
    mr_buf_done(&call->out);
    call->out_at = 0;
}

static void leave_conn(struct mr_call *call)
{
    struct rpc_conn *conn = call->conn;
    mr_assert(call->has_stream && conn->calls_n > 0);
    drop_out(call);
    conn->heads -= call->cost;
    call->rpc->memory -= call->cost;
    call->cost = 0;
    call->has_stream = false;
    mr_list_remove(&call->link);
    if (--conn->calls_n == 0)
        rpc_conn_idle(conn);
}

void rpc_call_stream_closed(struct mr_call *call, uint32_t code)
{
    leave_conn(call);
    if (call->is_over) {
        if (call->told)
            rpc_call_free(call);
    } else if (is_server(call)) {
        if (call->end_sent)
            rpc_call_over(call, call->status, mr_buf_slice(&call->text));
        else
            rpc_call_over(call, MR_RPC_CANCELLED, MR_SLICE_LIT("cancelled by the client"));
    } else if (call->remote_ended) {
        /* The owner holds messages that came before the end; it stays until they are taken. */
        call->conn->received -= call->in.len - call->in_at;
        call->conn = NULL;
        mr_list_push_back(&call->channel->lingering, &call->link);
    } else {
        rpc_call_over(call, rpc_status_of_reset(code), mr_slice_str(nghttp2_http2_strerror(code)));
    }
}

void rpc_call_lost(struct mr_call *call, const char *why)
{
    leave_conn(call);
    if (call->told)
        rpc_call_free(call);
    else
        rpc_call_over(call, MR_RPC_UNAVAILABLE, mr_slice_str(why));
}

void rpc_call_reset(struct mr_call *call, uint32_t code)
{
    if (!call->has_stream || (call->end_sent && call->remote_ended))
        return;
    int rc =
        nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE, call->stream_id, code);
    if (rc != 0)
        rpc_conn_doom(call->conn, NGHTTP2_INTERNAL_ERROR, "%s", nghttp2_strerror(rc));
    rpc_conn_dirty(call->conn);
}

/* ---- deadline ------------------------------------------------------------------------------- */

void rpc_call_set_timeout(struct mr_call *call, int64_t ns)
{
    call->deadline = (mr_mono){call->rpc->now.ns + ns};
    mr_rpc_timer_start(call->rpc, &call->timer, call->deadline);
}

static void deadline_passed(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct mr_call *call = mr_container(timer, struct mr_call, timer);
    rpc_call_fail(call, MR_RPC_DEADLINE, "deadline exceeded");
}

/* ---- the end -------------------------------------------------------------------------------- */

enum { END_HEADERS_MAX = 6 };

/* Status, text and trailer behind the n headers that are there; answers how many there are now. */
static size_t end_headers(struct mr_call *call, nghttp2_nv *nva, size_t n, char digits[16],
                          struct mr_buf *encoded)
{
    int len = snprintf(digits, 16, "%d", call->status);
    nva[n++] = rpc_nv("grpc-status", mr_slice_make(digits, (size_t)len), 0);
    struct mr_slice text = mr_buf_slice(&call->text);
    if (text.len > 0 && mr_rpc_percent_encode(text, encoded) == MR_OK)
        nva[n++] = rpc_nv("grpc-message", mr_buf_slice(encoded), 0);
    if (call->trailer != NULL)
        nva[n++] = rpc_nv(call->trailer, mr_buf_slice(&call->trailer_value), 0);
    return n;
}

static const char status_ok[] = "200", content_type[] = "application/grpc",
                  encodings[] = "identity,gzip";

static size_t answer_headers(nghttp2_nv *nva, const char *http_status)
{
    const uint8_t flags = NGHTTP2_NV_FLAG_NO_COPY_VALUE;
    nva[0] = rpc_nv(":status", mr_slice_str(http_status), flags);
    nva[1] = rpc_nv("content-type", mr_slice_str(content_type), flags);
    nva[2] = rpc_nv("grpc-accept-encoding", mr_slice_str(encodings), flags);
    return 3;
}

/* A failed submit means no memory, or a stream that closes already: its connection or the close
 * callback ends the call. */
static void check_submit(struct mr_call *call, int rc)
{
    if (rc == NGHTTP2_ERR_NOMEM)
        rpc_conn_doom(call->conn, NGHTTP2_INTERNAL_ERROR, "out of memory");
    rpc_conn_dirty(call->conn);
}

/* The answer to a call that sent no message: its head is its end. */
static void submit_end_only(struct mr_call *call)
{
    char digits[16];
    struct mr_buf encoded = {0};
    nghttp2_nv nva[END_HEADERS_MAX];
    static const char not_grpc[] = "415", not_post[] = "405";
    const char *http = !call->is_post ? not_post : !call->is_grpc ? not_grpc : status_ok;
    size_t n = end_headers(call, nva, answer_headers(nva, http), digits, &encoded);
    call->answered = true;
    check_submit(call, nghttp2_submit_response(call->conn->session, call->stream_id, nva, n, NULL));
    mr_buf_done(&encoded);
}

static int submit_trailers(struct mr_call *call)
{
    char digits[16];
    struct mr_buf encoded = {0};
    nghttp2_nv nva[END_HEADERS_MAX];
    size_t n = end_headers(call, nva, 0, digits, &encoded);
    int rc = nghttp2_submit_trailer(call->conn->session, call->stream_id, nva, n);
    mr_buf_done(&encoded);
    return rc;
}

static void submit_answer(struct mr_call *call)
{
    nghttp2_nv nva[END_HEADERS_MAX];
    size_t n = answer_headers(nva, status_ok);
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = rpc_call_read};
    call->answered = true;
    check_submit(call,
                 nghttp2_submit_response(call->conn->session, call->stream_id, nva, n, &provider));
}

/* There is something to send. */
static void wake_stream(struct mr_call *call)
{
    if (is_server(call) && !call->answered) {
        submit_answer(call);
    } else if (call->deferred) {
        call->deferred = false;
        check_submit(call, nghttp2_session_resume_data(call->conn->session, call->stream_id));
    }
    rpc_conn_dirty(call->conn);
}

static void set_end(struct mr_call *call, int status, struct mr_slice text)
{
    call->ending = true;
    call->status = status;
    text.len = mr_utf8_cut(text, RPC_TEXT_MAX);
    mr_buf_clear(&call->text);
    (void)!mr_buf_append_slice(&call->text, text);
    if (call->answered)
        wake_stream(call);
    else
        submit_end_only(call);
}

void mr_call_end(struct mr_call *call, int status, struct mr_slice text)
{
    mr_assert(is_server(call));
    if (!call->is_over && !call->ending)
        set_end(call, status, text);
}

void rpc_call_fail(struct mr_call *call, int status, const char *text)
{
    if (call->is_over)
        return;
    /* The rest of a message that was begun cannot be left out: then the stream is reset. */
    bool can_tell =
        call->has_stream && is_server(call) && !call->ending && mr_call_queued(call) == 0;
    if (can_tell)
        set_end(call, status, mr_slice_str(text));
    else
        rpc_call_reset(call, NGHTTP2_CANCEL);
    rpc_call_over(call, status, mr_slice_str(text));
}

void rpc_call_answered(struct mr_call *call)
{
    static const char no_status[] = "the server gave no status";
    struct mr_slice text = mr_buf_slice(&call->text);
    int status = call->status;
    if (status < 0) {
        bool odd = call->http_status != 200;
        status = odd ? rpc_status_of_http(call->http_status) : MR_RPC_UNKNOWN;
        text = mr_slice_str(odd ? "the server does not speak gRPC" : no_status);
    }
    rpc_call_reset(call, NGHTTP2_CANCEL);
    rpc_call_over(call, status, text);
}

void mr_call_trailer(struct mr_call *call, const char *name, struct mr_slice value)
{
    mr_assert(is_server(call));
    if (call->is_over || call->ending)
        return;
    mr_buf_clear(&call->trailer_value);
    bool copied = mr_buf_append_slice(&call->trailer_value, value) == MR_OK;
    call->trailer = copied ? name : NULL;
}

void mr_call_half_close(struct mr_call *call)
{
    mr_assert(!is_server(call));
    if (call->is_over || call->ending || !call->has_stream)
        return;
    call->ending = true;
    wake_stream(call);
}

void mr_call_cancel(struct mr_call *call)
{
    mr_assert(!is_server(call));
    rpc_call_fail(call, MR_RPC_CANCELLED, "cancelled");
}

/* ---- sending -------------------------------------------------------------------------------- */

/* Room in the queue for more bytes, what was sent is given up. */
static enum mr_err reserve_out(struct mr_call *call, size_t more)
{
    struct mr_buf *out = &call->out;
    if (call->out_at == out->len) {
        call->out_at = out->len = 0;
    } else if (call->out_at * 2 > out->len) {
        out->len -= call->out_at;
        memmove(out->data, out->data + call->out_at, out->len);
        call->out_at = 0;
    }
    return mr_buf_reserve(out, more);
}

enum mr_err mr_call_room(struct mr_call *call, size_t len, uint8_t **ret_room)
{
    if (call->is_over || call->ending || !call->has_stream)
        return MR_CLOSED;
    struct rpc_conn *conn = call->conn;
    size_t more = RPC_PREFIX_LEN + len;
    if (len > UINT32_MAX || more > call->rpc->limits.queued_max)
        return MR_TOO_BIG;
    if (conn->queued + more > call->rpc->limits.queued_max) {
        rpc_conn_doom(conn, NGHTTP2_ENHANCE_YOUR_CALM, "the peer does not take what is sent");
        return MR_BUSY;
    }
    if (!rpc_conn_may_hold(conn, more))
        return MR_BUSY;
    MR_TRY(reserve_out(call, more));
    uint8_t *p = call->out.data + call->out.len;
    p[0] = 0;
    for (int i = 0; i < 4; i++)
        p[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    call->out.len += more;
    call->rpc->memory += more;
    conn->queued += more;
    call->was_full |= mr_call_queued(call) >= MR_CALL_QUEUED_HIGH;
    wake_stream(call);
    *ret_room = p + RPC_PREFIX_LEN;
    return MR_OK;
}

enum mr_err mr_call_send(struct mr_call *call, struct mr_slice bytes)
{
    uint8_t *room;
    MR_TRY(mr_call_room(call, bytes.len, &room));
    if (bytes.len > 0)
        memcpy(room, bytes.data, bytes.len);
    return MR_OK;
}

size_t mr_call_queued(const struct mr_call *call)
{
    return call->out.len - call->out_at;
}

/* nghttp2 asks how much goes into the next frame; rpc_call_write follows in the same breath. */
ssize_t rpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t max,
                      uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    (void)session;
    (void)stream_id;
    (void)buf;
    (void)arg;
    struct mr_call *call = source->ptr;
    size_t queued = mr_call_queued(call);
    if (queued == 0 && !call->ending) {
        call->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (queued > max)
        return (ssize_t)max;
    if (call->ending) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (is_server(call)) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (submit_trailers(call) != 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)queued;
}

enum mr_err rpc_call_write(struct mr_call *call, const uint8_t *head, size_t len)
{
    enum { FRAME_HEAD_LEN = 9 };
    struct mr_rpc *rpc = call->rpc;
    MR_TRY(mr_buf_append(&rpc->out, head, FRAME_HEAD_LEN));
    MR_TRY(mr_buf_append(&rpc->out, call->out.data + call->out_at, len));
    call->out_at += len;
    rpc->memory -= len;
    call->conn->queued -= len;
    size_t queued = mr_call_queued(call);
    if (queued == 0 && call->out.cap > RPC_KEEP_MAX) {
        mr_buf_done(&call->out);
        call->out_at = 0;
    }
    if (call->was_full && queued < MR_CALL_QUEUED_LOW) {
        call->was_full = false;
        call->writable_due = true;
        stir(call);
    }
    return MR_OK;
}

/* ---- what the owner sees -------------------------------------------------------------------- */

void mr_call_set(struct mr_call *call, const struct mr_call_ops *ops, void *data)
{
    call->ops = ops;
    call->data = data;
}

void *mr_call_data(const struct mr_call *call)
{
    return call->data;
}

void mr_call_hold(struct mr_call *call, bool held)
{
    if (call->held == held)
        return;
    call->held = held;
    if (!held)
        stir(call);
}

const char *mr_call_peer(const struct mr_call *call)
{
    return call->conn != NULL ? call->conn->peer : "";
}

uint64_t mr_call_connection(const struct mr_call *call)
{
    return call->conn != NULL ? call->conn->id : 0;
}

bool mr_call_is_loopback(const struct mr_call *call)
{
    return call->conn != NULL && call->conn->loopback;
}
