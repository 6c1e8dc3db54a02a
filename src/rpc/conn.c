/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: bytes from the socket to the session and back, its clock, and its end.
 *
 * What the session has to say is collected in a buffer that all connections share and written at
 * once; only what the socket does not take is copied to the connection, which then says nothing new
 * until that has left. An idle connection holds no buffer.
 */
#include "rpc/internal.h"

#include <stdarg.h>
#include <stdlib.h>

enum {
    READS_MAX = 4,   /* of one connection in a turn */
    WRITES_MAX = 16, /* likewise */
    NUISANCE_BURST = 4000,
    NUISANCE_RATE = 1000, /* a second */
    EAGER_HANDSHAKE_MS = 2000,
    NOTICE_MS = 1000, /* a peer that has not answered a ping by then has seen the notice, or
                             will never */
};

static const uint8_t notice_ping[8] = "leaving";

/* ---- the clock ------------------------------------------------------------------------------ */

static mr_mono earlier(mr_mono a, mr_mono b)
{
    return a.ns < b.ns ? a : b;
}

static bool may_idle(const struct rpc_conn *conn)
{
    return conn->listener != NULL && conn->calls_n == 0 && conn->leave == RPC_STAY &&
           conn->rpc->limits.idle_ms > 0;
}

/* Frames of a head come one behind the other, so that there is at most one. */
static mr_mono head_until(const struct rpc_conn *conn)
{
    return mr_mono_add_ms(conn->head_since, conn->rpc->limits.handshake_ms);
}

static mr_mono next_tick(const struct rpc_conn *conn)
{
    const struct mr_rpc_limits *limits = &conn->rpc->limits;
    if (conn->phase < RPC_OPEN)
        return conn->phase_until;
    mr_mono at =
        mr_mono_add_ms(conn->ping_out ? conn->pinged : conn->last_read, limits->keepalive_ms);
    if (conn->leave == RPC_NOTICE)
        at = earlier(at, conn->phase_until);
    if (conn->head_stream != 0)
        at = earlier(at, head_until(conn));
    if (may_idle(conn))
        at = earlier(at, mr_mono_add_ms(conn->idle_since, limits->idle_ms));
    return at;
}

static void arm(struct rpc_conn *conn)
{
    mr_rpc_timer_start(conn->rpc, &conn->timer, next_tick(conn));
}

static void ping(struct rpc_conn *conn, const uint8_t *opaque)
{
    if (nghttp2_submit_ping(conn->session, NGHTTP2_FLAG_NONE, opaque) != 0)
        rpc_conn_doom(conn, NGHTTP2_INTERNAL_ERROR, "out of memory");
    conn->ping_out = true;
    conn->pinged = conn->rpc->now;
    rpc_conn_dirty(conn);
}

static void leave_next(struct rpc_conn *conn)
{
    conn->leave = RPC_GOAWAY;
    int32_t last = nghttp2_session_get_last_proc_stream_id(conn->session);
    if (nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0) !=
        0)
        rpc_conn_doom(conn, NGHTTP2_INTERNAL_ERROR, "out of memory");
    rpc_conn_dirty(conn);
}

static void check_alive(struct rpc_conn *conn)
{
    int64_t limit_ns = conn->rpc->limits.keepalive_ms * MR_NS_PER_MS;
    int64_t now_ns = conn->rpc->now.ns;
    /* It may talk all the while: as long as for one that is silent. */
    if (conn->rest.len > 0 && now_ns - conn->stuck_since.ns >= 2 * limit_ns) {
        conn->broken = true;
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the peer does not read");
    } else if (!conn->ping_out) {
        if (now_ns - conn->last_read.ns >= limit_ns)
            ping(conn, NULL);
    } else if (now_ns - conn->pinged.ns >= limit_ns) {
        conn->broken = true;
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the peer does not answer");
    }
}

static void tick(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct rpc_conn *conn = mr_container(timer, struct rpc_conn, timer);
    mr_mono now = conn->rpc->now;
    if (conn->phase < RPC_OPEN) {
        if (now.ns >= conn->phase_until.ns)
            rpc_conn_doom(conn, NGHTTP2_SETTINGS_TIMEOUT, "no connection in time");
    } else {
        check_alive(conn);
        if (conn->head_stream != 0 && now.ns >= head_until(conn).ns)
            rpc_conn_doom(conn, NGHTTP2_ENHANCE_YOUR_CALM, "a head that does not end");
        if (conn->leave == RPC_NOTICE && now.ns >= conn->phase_until.ns)
            leave_next(conn);
        if (may_idle(conn) &&
            now.ns >= mr_mono_add_ms(conn->idle_since, conn->rpc->limits.idle_ms).ns)
            rpc_conn_leave(conn);
    }
    arm(conn);
}

void rpc_conn_ponged(struct rpc_conn *conn, const uint8_t *opaque)
{
    if (conn->leave == RPC_NOTICE && memcmp(opaque, notice_ping, sizeof notice_ping) == 0)
        leave_next(conn);
}

void rpc_conn_leave(struct rpc_conn *conn)
{
    if (conn->leave != RPC_STAY)
        return;
    if (conn->phase < RPC_OPEN) {
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the server ends");
        return;
    }
    conn->leave = RPC_NOTICE;
    conn->phase_until = mr_mono_add_ms(conn->rpc->now, NOTICE_MS);
    if (nghttp2_submit_shutdown_notice(conn->session) != 0)
        rpc_conn_doom(conn, NGHTTP2_INTERNAL_ERROR, "out of memory");
    rpc_conn_dirty(conn);
    arm(conn);
}

/* Only now: pings overtake other frames that wait. */
void rpc_conn_goaway_sent(struct rpc_conn *conn)
{
    if (conn->leave == RPC_NOTICE)
        ping(conn, notice_ping);
}

void rpc_conn_idle(struct rpc_conn *conn)
{
    if (conn->phase == RPC_CLOSED)
        return;
    conn->idle_since = conn->rpc->now;
    if (conn->channel != NULL && conn->leave == RPC_GOAWAY)
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the server ends the connection");
    rpc_conn_dirty(conn); /* a server's may be done now */
}

bool rpc_conn_nuisance(struct rpc_conn *conn, int64_t cost)
{
    if (conn->listener == NULL)
        return true;
    const int64_t each_ns = MR_NS_PER_S / NUISANCE_RATE;
    int64_t earned = (conn->rpc->now.ns - conn->nuisance_at.ns) / each_ns;
    conn->nuisance_left += earned;
    conn->nuisance_at.ns += earned * each_ns;
    if (conn->nuisance_left > NUISANCE_BURST)
        conn->nuisance_left = NUISANCE_BURST;
    conn->nuisance_left -= cost;
    if (conn->nuisance_left >= 0)
        return true;
    rpc_conn_doom(conn, NGHTTP2_ENHANCE_YOUR_CALM, "too many pings, settings or empty frames");
    return false;
}

void rpc_conn_opened(struct rpc_conn *conn)
{
    if (conn->phase != RPC_OPENING)
        return;
    conn->phase = RPC_OPEN;
    arm(conn);
    if (conn->channel != NULL)
        rpc_channel_up(conn->channel);
}

/* ---- bytes in ------------------------------------------------------------------------------- */

static bool tls_wants_write(const struct rpc_conn *conn)
{
    return conn->tls != NULL && mr_tls_wants_write(conn->tls);
}

static enum mr_err conn_read(struct rpc_conn *conn, size_t *ret_n)
{
    uint8_t *in = conn->rpc->in;
    return conn->tls != NULL ? mr_tls_read(conn->tls, in, RPC_IN_MAX, ret_n)
                             : mr_net_read(conn->watch.fd, in, RPC_IN_MAX, ret_n);
}

bool rpc_conn_is_doomed(const struct rpc_conn *conn)
{
    return !mr_list_empty(&conn->doom_link);
}

/* nghttp2 has queued a GOAWAY of its own where it can say what was wrong. */
static void take_bytes(struct rpc_conn *conn, const uint8_t *data, size_t len)
{
    ssize_t taken = nghttp2_session_mem_recv(conn->session, data, len);
    if (taken < 0)
        rpc_conn_doom(conn, NGHTTP2_PROTOCOL_ERROR, "%s", nghttp2_strerror((int)taken));
    else if (conn->listener != NULL &&
             nghttp2_session_get_outbound_queue_size(conn->session) > RPC_CONTROL_QUEUE_MAX)
        rpc_conn_doom(conn, NGHTTP2_ENHANCE_YOUR_CALM, "the peer does not read");
    rpc_conn_dirty(conn);
}

static void read_some(struct rpc_conn *conn)
{
    for (int i = 0; i < READS_MAX && !rpc_conn_is_doomed(conn); i++) {
        size_t n;
        enum mr_err err = conn_read(conn, &n);
        if (err == MR_EMPTY)
            return;
        if (err != MR_OK) {
            conn->broken = true;
            rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "%s",
                          err == MR_CLOSED ? "the peer closed the connection"
                                           : "the connection broke");
            return;
        }
        conn->last_read = conn->rpc->now;
        conn->ping_out = false;
        take_bytes(conn, conn->rpc->in, n);
        if (n < RPC_IN_MAX && conn->tls == NULL)
            return;
    }
}

/* ---- bytes out ------------------------------------------------------------------------------ */

/* Sends what the socket takes; what is left over when it takes no more is not an error. */
static enum mr_err conn_write(struct rpc_conn *conn, const uint8_t *data, size_t len,
                              size_t *ret_sent)
{
    size_t sent = 0;
    while (sent < len) {
        size_t n;
        enum mr_err err = conn->tls != NULL
                              ? mr_tls_write(conn->tls, data + sent, len - sent, &n)
                              : mr_net_write(conn->watch.fd, data + sent, len - sent, &n);
        if (err == MR_EMPTY)
            break;
        if (err != MR_OK) {
            conn->broken = true;
            rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the connection broke");
            return err;
        }
        sent += n;
    }
    *ret_sent = sent;
    return MR_OK;
}

static void drop_rest(struct rpc_conn *conn)
{
    conn->rpc->memory -= conn->rest.len;
    mr_buf_done(&conn->rest);
    conn->rest_at = 0;
}

/* False while some of it is left. */
static bool write_rest(struct rpc_conn *conn)
{
    size_t len = conn->rest.len - conn->rest_at, sent;
    if (len == 0)
        return true;
    if (conn_write(conn, conn->rest.data + conn->rest_at, len, &sent) != MR_OK)
        return false;
    conn->rest_at += sent;
    if (sent > 0)
        conn->stuck_since = conn->rpc->now;
    if (sent < len)
        return false;
    drop_rest(conn);
    return true;
}

static bool keep_rest(struct rpc_conn *conn, const uint8_t *data, size_t len)
{
    if (len == 0)
        return true;
    if (mr_buf_append(&conn->rest, data, len) != MR_OK)
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "out of memory");
    else
        conn->rpc->memory += len;
    conn->stuck_since = conn->rpc->now;
    return false;
}

/* About RPC_OUT_TARGET bytes of frames. False when the session failed. */
static bool collect(struct rpc_conn *conn)
{
    struct mr_buf *out = &conn->rpc->out;
    mr_buf_clear(out);
    while (out->len < RPC_OUT_TARGET) {
        const uint8_t *data;
        size_t before = out->len; /* bodies go to out by themselves */
        ssize_t n = nghttp2_session_mem_send(conn->session, &data);
        if (n < 0 || mr_buf_append(out, data, (size_t)(n > 0 ? n : 0)) != MR_OK) {
            rpc_conn_doom(conn, NGHTTP2_INTERNAL_ERROR, "%s",
                          n < 0 ? nghttp2_strerror((int)n) : "out of memory");
            return false;
        }
        if (out->len == before)
            break;
    }
    return true;
}

/* False when the socket takes no more, or the connection failed. */
static bool write_some(struct rpc_conn *conn, bool *ret_done)
{
    struct mr_buf *out = &conn->rpc->out;
    size_t sent;
    if (!collect(conn))
        return false;
    *ret_done = out->len == 0;
    if (*ret_done)
        return true;
    if (conn_write(conn, out->data, out->len, &sent) != MR_OK)
        return false;
    return keep_rest(conn, out->data + sent, out->len - sent);
}

static void watch_for(struct rpc_conn *conn)
{
    bool waits = conn->rest.len > 0 || tls_wants_write(conn);
    mr_loop_change(conn->rpc->loop, &conn->watch, MR_LOOP_READ | (waits ? MR_LOOP_WRITE : 0));
}

void rpc_conn_flush(struct rpc_conn *conn)
{
    mr_list_remove(&conn->dirty_link);
    if (conn->session == NULL || conn->broken)
        return;
    bool done = false, open = write_rest(conn);
    for (int i = 0; open && !done && i < WRITES_MAX; i++)
        open = write_some(conn, &done);
    if (open && !done)
        rpc_conn_dirty(conn);
    watch_for(conn);
    if (done && !nghttp2_session_want_read(conn->session) &&
        !nghttp2_session_want_write(conn->session))
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the connection ended");
}

/* ---- memory --------------------------------------------------------------------------------- */

static size_t holds(const struct rpc_conn *conn)
{
    return conn->queued + conn->received + conn->heads + conn->rest.len;
}

/* Who takes nothing and who sends what nobody takes must not be the ruin of all others. */
bool rpc_conn_may_hold(struct rpc_conn *conn, size_t more)
{
    struct mr_rpc *rpc = conn->rpc;
    if (rpc->memory + more <= rpc->limits.memory_max + rpc->going)
        return true;
    struct rpc_conn *most = conn;
    for (struct mr_link *link = rpc->conns.next; link != &rpc->conns; link = link->next) {
        struct rpc_conn *other = mr_container(link, struct rpc_conn, link);
        if (!rpc_conn_is_doomed(other) && holds(other) > holds(most) + (most == conn ? more : 0))
            most = other;
    }
    if (!rpc_conn_is_doomed(most))
        rpc->going += holds(most);
    rpc_conn_doom(most, NGHTTP2_ENHANCE_YOUR_CALM, "the peer holds too much memory");
    return most != conn;
}

/* ---- beginning ------------------------------------------------------------------------------ */

static void start_session(struct rpc_conn *conn)
{
    conn->phase = RPC_OPENING;
    mr_loop_change(conn->rpc->loop, &conn->watch, MR_LOOP_READ);
    if (rpc_session_start(conn) != MR_OK)
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "out of memory");
    rpc_conn_dirty(conn);
}

static void shake_hands(struct rpc_conn *conn)
{
    enum mr_err err = mr_tls_handshake(conn->tls);
    if (err == MR_OK) {
        start_session(conn);
    } else if (err == MR_EMPTY) {
        watch_for(conn);
    } else {
        conn->broken = true;
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR,
                      err == MR_UNSUPPORTED ? "TLS: the peer does not speak HTTP/2" : "TLS failed");
    }
}

static void start(struct rpc_conn *conn)
{
    struct mr_tls *tls = conn->listener != NULL ? conn->listener->tls : conn->channel->tls;
    if (tls == NULL) {
        start_session(conn);
        return;
    }
    conn->phase = RPC_TLS;
    const char *name = conn->channel != NULL ? conn->channel->server_name : NULL;
    if (mr_tls_start(tls, conn->watch.fd, name, &conn->tls) != MR_OK) {
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "out of memory");
        return;
    }
    mr_loop_change(conn->rpc->loop, &conn->watch, MR_LOOP_READ);
    shake_hands(conn);
}

static void connected(struct rpc_conn *conn)
{
    enum mr_err err = mr_net_connected(conn->watch.fd);
    if (err == MR_OK) {
        start(conn);
        return;
    }
    conn->broken = true;
    rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "%s",
                  err == MR_UNAVAILABLE ? "nobody listens there"
                  : err == MR_TIMEOUT   ? "it is out of reach"
                                        : mr_err_text(err));
}

static void ready(struct mr_watch *watch, unsigned events)
{
    struct rpc_conn *conn = mr_container(watch, struct rpc_conn, watch);
    if (rpc_conn_is_doomed(conn))
        return;
    if (conn->phase == RPC_CONNECTING) {
        connected(conn);
    } else if (conn->phase == RPC_TLS) {
        shake_hands(conn);
    } else {
        if (events & MR_LOOP_WRITE)
            rpc_conn_dirty(conn);
        if (events & MR_LOOP_READ || tls_wants_write(conn))
            read_some(conn);
    }
}

/* Where packets are lost without a word, the next attempt is sooner there than the last one's repetitions. */
static int64_t handshake_ms(const struct mr_rpc *rpc, const struct mr_channel *channel)
{
    bool is_eager = channel != NULL && channel->haste == MR_CHANNEL_EAGER;
    int64_t ms = rpc->limits.handshake_ms;
    return is_eager && ms > EAGER_HANDSHAKE_MS ? EAGER_HANDSHAKE_MS : ms;
}

enum mr_err rpc_conn_new(struct mr_rpc *rpc, int fd, const struct mr_addr *peer,
                         struct rpc_listener *listener, struct mr_channel *channel)
{
    struct rpc_conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL)
        return MR_NOMEM;
    conn->rpc = rpc;
    conn->listener = listener;
    conn->channel = channel;
    conn->watch = (struct mr_watch){.fd = fd, .ready = ready};
    conn->id = ++rpc->last_conn_id;
    conn->loopback = mr_addr_is_loopback(peer);
    mr_addr_text(peer, conn->peer);
    conn->phase_until = mr_mono_add_ms(rpc->now, handshake_ms(rpc, channel));
    conn->last_read = conn->idle_since = conn->nuisance_at = rpc->now;
    conn->nuisance_left = NUISANCE_BURST;
    mr_list_init(&conn->calls);
    mr_list_init(&conn->dirty_link);
    mr_list_init(&conn->doom_link);
    mr_timer_init(&conn->timer, tick);
    enum mr_err err =
        mr_loop_add(rpc->loop, &conn->watch, channel != NULL ? MR_LOOP_WRITE : MR_LOOP_READ);
    if (err != MR_OK) {
        free(conn);
        return err;
    }
    mr_list_push_back(&rpc->conns, &conn->link);
    rpc->conns_n++;
    rpc->served_n += listener != NULL;
    if (channel != NULL)
        channel->conn = conn;
    arm(conn);
    if (listener != NULL)
        start(conn);
    return MR_OK;
}

/* ---- the end -------------------------------------------------------------------------------- */

void rpc_conn_dirty(struct rpc_conn *conn)
{
    if (mr_list_empty(&conn->dirty_link) && conn->phase != RPC_CLOSED)
        mr_list_push_back(&conn->rpc->dirty, &conn->dirty_link);
}

void rpc_conn_doom(struct rpc_conn *conn, uint32_t code, const char *fmt, ...)
{
    if (rpc_conn_is_doomed(conn) || conn->phase == RPC_CLOSED)
        return;
    conn->doom_code = code;
    if (conn->tls != NULL && mr_tls_why(conn->tls)[0] != '\0') { /* it has said it better */
        snprintf(conn->why, sizeof conn->why, "%s", mr_tls_why(conn->tls));
    } else {
        va_list args;
        va_start(args, fmt);
        vsnprintf(conn->why, sizeof conn->why, fmt, args);
        va_end(args);
    }
    mr_list_push_back(&conn->rpc->doomed, &conn->doom_link);
}

/* Tells the peer why, if it listens. */
static void say_last_words(struct rpc_conn *conn)
{
    size_t sent;
    if (conn->session == NULL || conn->broken || !write_rest(conn))
        return;
    (void)nghttp2_session_terminate_session(conn->session, conn->doom_code);
    if (collect(conn))
        (void)!conn_write(conn, conn->rpc->out.data, conn->rpc->out.len, &sent);
}

/* A socket closed with something unread takes back what was sent last, and with it the reason. */
static void read_away(struct rpc_conn *conn)
{
    size_t n;
    for (int i = 0; i < READS_MAX; i++)
        if (mr_net_read(conn->watch.fd, conn->rpc->in, RPC_IN_MAX, &n) != MR_OK)
            return;
}

void rpc_conn_close(struct rpc_conn *conn)
{
    struct mr_rpc *rpc = conn->rpc;
    say_last_words(conn);
    conn->phase = RPC_CLOSED;
    mr_list_remove(&conn->doom_link);
    mr_list_remove(&conn->dirty_link);
    mr_wheel_stop(rpc->wheel, &conn->timer);
    struct mr_link *link;
    while ((link = conn->calls.next) != &conn->calls)
        rpc_call_lost(mr_container(link, struct mr_call, link), conn->why);
    nghttp2_session_del(conn->session);
    conn->session = NULL;
    mr_tls_stop(conn->tls, conn->broken ? MR_TLS_BROKEN : MR_TLS_SAY_BYE);
    conn->tls = NULL;
    mr_loop_remove(rpc->loop, &conn->watch);
    if (conn->listener != NULL)
        read_away(conn);
    mr_net_close(conn->watch.fd);
    drop_rest(conn);
    mr_list_remove(&conn->link);
    mr_list_push_back(&rpc->dead, &conn->link);
}

void rpc_conn_free(struct rpc_conn *conn)
{
    struct mr_rpc *rpc = conn->rpc;
    mr_assert(conn->phase == RPC_CLOSED && conn->queued == 0 && conn->received == 0 &&
              conn->heads == 0);
    rpc->conns_n--;
    rpc->served_n -= conn->listener != NULL;
    mr_list_remove(&conn->link);
    if (conn->channel != NULL)
        rpc_channel_lost(conn->channel, conn->why);
    free(conn);
}
