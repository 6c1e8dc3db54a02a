/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of rpc and how they meet. Everything here belongs to the loop thread.
 *
 *   rpc.c      the loop: turns, posts, timers, the end
 *   conn.c     a connection: bytes in and out, its session, its clock, its end
 *   session.c  what nghttp2 tells: frames, headers, streams
 *   call.c     a call as its owner sees it; what is sent
 *   receive.c  messages out of the bytes of a call
 *   headers.c  grpc-timeout, grpc-message, metadata
 *   gzip.c     packed messages
 *   tls.c      contexts for HTTP/2
 *   server.c   listeners and draining
 *   channel.c  clients
 *
 * A turn: descriptors that are ready, posts, timers; then what they caused, in rpc_settle: messages
 * of calls no longer held, calls that are over, the end of connections and channels; then one write per
 * connection that has something to say. Whatever must not happen within a callback of nghttp2 or of
 * an owner is put on one of the lists and done there.
 */
#ifndef MR_RPC_INTERNAL_H
#define MR_RPC_INTERNAL_H

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/exec.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/net.h"
#include "base/rand.h"
#include "rpc/rpc.h"
#include "tls/tls.h"

enum {
    RPC_PREFIX_LEN = 5,            /* of a message: packed or not, length */
    RPC_IN_MAX = 64 * 1024,        /* read from a connection at once */
    RPC_OUT_TARGET = 64 * 1024,    /* written to a connection at once, about */
    RPC_OUT_CAP = 128 * 1024,      /* with the frame that goes beyond the target */
    RPC_KEEP_MAX = 32 * 1024,      /* larger buffers are not kept when they are empty */
    RPC_STREAM_WINDOW = 1 << 20,   /* what a peer may send on a call that does not take it */
    RPC_CONN_WINDOW = 4 << 20,     /* what it may have under way to us in all */
    RPC_HEADER_LIST_MAX = 16384,   /* of one call, counted as HTTP/2 does */
    RPC_TEXT_MAX = 1024,           /* of a status, before its encoding */
    RPC_WHY_MAX = 160,             /* why a connection ended */
    RPC_CONTROL_QUEUE_MAX = 10000, /* frames that a server owes a peer which does not read */
    RPC_ADDRS_MAX = 8,             /* of one host */
    RPC_CALL_COST = 2048, /* memory of a server's call, its owner's and nghttp2's included */
};

/* ---- the loop ------------------------------------------------------------------------------- */

struct rpc_conn;

struct mr_rpc {
    struct mr_loop *loop;
    struct mr_wheel *wheel;
    mr_mono now; /* of this turn */
    struct mr_rpc_limits limits;
    struct mr_rand rand;
    pthread_t thread;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;

    struct mr_link listeners, channels, conns;
    uint32_t conns_n;  /* all of them */
    uint32_t served_n; /* those of listeners */
    uint64_t last_conn_id;

    /* What this turn still has to do; see rpc_settle. */
    struct mr_link stirred; /* calls, by turn_link: writable is due, or messages wait */
    struct mr_link over;    /* calls, by turn_link: closed is due */
    struct mr_link dirty;   /* connections, by dirty_link: something to send */
    struct mr_link doomed;  /* connections, by doom_link: to be closed */
    struct mr_link dead;    /* connections, by link: closed, freed when their calls know it */
    struct mr_link leaving; /* channels, by link: to be freed */

    struct mr_call *spare; /* calls to use again, by next_spare */
    size_t spare_n;
    size_t memory;          /* bytes queued and received, heads of calls, unwritten rests: of all */
    size_t going;           /* of these, of connections that end in this turn for having most */
    uint8_t *in;            /* RPC_IN_MAX: what was just read */
    struct mr_buf out;      /* what is about to be written */
    struct mr_buf unpacked; /* a message that came packed */

    struct mr_exec_thread *resolver; /* made for the first host that is a name */
    struct mr_timer drain_timer;
    struct mr_event *drain_done; /* whoever drains waits for it; NULL: nobody */
    struct mr_msg stop_msg;
    bool draining, stopping;
};

/* Without its thread; whoever calls rpc_turn is the loop. max_ns: how long it may wait. */
MR_MUST_USE enum mr_err rpc_new(const struct mr_rpc_limits *limits, struct mr_rpc **ret_rpc);
void rpc_turn(struct mr_rpc *rpc, int64_t max_ns);
void rpc_free(struct mr_rpc *rpc);
/* Whether this thread is the loop. */
bool rpc_is_loop(const struct mr_rpc *rpc);

/* ---- connections ---------------------------------------------------------------------------- */

enum rpc_phase {
    RPC_CONNECTING, /* client: TCP */
    RPC_TLS,        /* handshake */
    RPC_OPENING,    /* the peer's settings have not come yet */
    RPC_OPEN,
    RPC_CLOSED, /* the socket is gone */
};

/* How a connection is left in peace: a notice, so that the peer makes no new calls; when it has
 * surely seen that, the number of the last call that counts; then the end of the calls. */
enum rpc_leave { RPC_STAY, RPC_NOTICE, RPC_GOAWAY };

struct rpc_listener;

struct rpc_conn {
    struct mr_watch watch;
    struct mr_link link; /* in conns, then in dead */
    struct mr_link dirty_link, doom_link;
    struct mr_rpc *rpc;
    struct rpc_listener *listener; /* server; NULL: client */
    struct mr_channel *channel;    /* client; NULL: server */
    struct mr_tls_session *tls;    /* NULL: plain */
    nghttp2_session *session;
    enum rpc_phase phase;
    enum rpc_leave leave;
    bool broken; /* the socket takes nothing any more */
    uint64_t id;
    bool loopback;
    char peer[MR_ADDR_TEXT_MAX];

    struct mr_link calls; /* with a stream, by link */
    uint32_t calls_n;
    struct mr_buf rest; /* what the socket did not take */
    size_t rest_at;
    size_t queued;   /* bytes of calls to be sent */
    size_t received; /* bytes of calls not yet delivered */
    size_t heads;    /* server: what its calls cost before their first message */

    struct mr_timer timer; /* the first of what follows */
    mr_mono phase_until;   /* the handshake; from RPC_NOTICE on: the next step */
    mr_mono last_read, pinged, idle_since;
    mr_mono stuck_since; /* with a rest: when the socket last took something */
    /* Server: the call whose head is not complete, 0: none; and when that began. */
    int32_t head_stream;
    mr_mono head_since;
    bool ping_out;
    /* Frames that cost us more than the peer, paid from a budget that grows with time. */
    int64_t nuisance_left;
    mr_mono nuisance_at;

    uint32_t doom_code; /* HTTP/2 error of the last GOAWAY */
    char why[RPC_WHY_MAX];
};

/* Takes the socket; the phase is RPC_CONNECTING for a channel, else RPC_TLS or RPC_OPENING. */
MR_MUST_USE enum mr_err rpc_conn_new(struct mr_rpc *rpc, int fd, const struct mr_addr *peer,
                                     struct rpc_listener *listener, struct mr_channel *channel);
/* It is closed in this turn; the first reason stays. */
void rpc_conn_doom(struct rpc_conn *conn, uint32_t code, const char *fmt, ...) MR_PRINTF(3, 4);
bool rpc_conn_is_doomed(const struct rpc_conn *conn);
void rpc_conn_dirty(struct rpc_conn *conn);
/* The peer's settings came. */
void rpc_conn_opened(struct rpc_conn *conn);
/* Lets the calls end and takes no new ones; then it is closed. */
void rpc_conn_leave(struct rpc_conn *conn);
/* The notice has left. */
void rpc_conn_goaway_sent(struct rpc_conn *conn);
/* The answer to a ping came: perhaps the one that says that the peer has seen the notice. */
void rpc_conn_ponged(struct rpc_conn *conn, const uint8_t *opaque);
/* Its calls have all ended, or their number changed to 0. */
void rpc_conn_idle(struct rpc_conn *conn);
/* For rpc_settle and the turn. */
void rpc_conn_close(struct rpc_conn *conn);
void rpc_conn_free(struct rpc_conn *conn);
void rpc_conn_flush(struct rpc_conn *conn);
/* Whether this connection may hold so many bytes more. When all together have too many, the one that
 * holds most is doomed; false when it is this one. */
bool rpc_conn_may_hold(struct rpc_conn *conn, size_t more);
/* False when the peer has used up its budget; the connection is doomed then. */
bool rpc_conn_nuisance(struct rpc_conn *conn, int64_t cost);
/* The session of either side, its settings queued. */
MR_MUST_USE enum mr_err rpc_session_start(struct rpc_conn *conn);
MR_MUST_USE enum mr_err rpc_session_new_shared(struct mr_rpc *rpc);
void rpc_session_free_shared(struct mr_rpc *rpc);

/* ---- TLS ------------------------------------------------------------------------------------ */

/* A context for HTTP/2. */
MR_MUST_USE enum mr_err rpc_tls_new(const struct mr_rpc_tls *options, enum mr_tls_side side,
                                    struct mr_tls **ret_tls, struct mr_detail *detail);

/* ---- calls ---------------------------------------------------------------------------------- */

enum rpc_encoding { RPC_IDENTITY, RPC_GZIP, RPC_ENCODING_UNKNOWN };

struct mr_call {
    struct mr_rpc *rpc;
    struct rpc_conn *conn; /* NULL: its stream ended and only messages that are held are left */
    struct mr_channel *channel; /* client */
    struct mr_link link;        /* in conn->calls, or in channel->lingering */
    struct mr_link turn_link;   /* in stirred or over */
    struct mr_call *next_spare;
    int32_t stream_id;
    const struct mr_call_ops *ops; /* NULL: nobody listens */
    void *data;
    struct mr_timer timer; /* of the deadline */
    mr_mono deadline;

    bool has_stream; /* nghttp2 knows of it */
    bool is_over;    /* closed is due or was called */
    bool told;       /* closed was called */
    bool held;
    bool answered;     /* server: the response has begun */
    bool ending;       /* no more messages from us: the status follows, or END_STREAM of a client */
    bool end_sent;     /* our END_STREAM left */
    bool deferred;     /* nghttp2 waits for us to have something to send */
    bool was_full;     /* queued reached the high mark */
    bool writable_due; /* and has fallen below the low one */
    bool remote_ended; /* the peer's END_STREAM came */
    bool half_told;    /* half_closed was called */

    /* To be sent: out.data[out_at ..]. */
    struct mr_buf out;
    size_t out_at;
    /* Received: a part of a message, or whole ones while held: in.data[in_at ..]. */
    struct mr_buf in;
    size_t in_at;
    size_t unconsumed; /* bytes whose window has not been given back */
    size_t left_out;   /* bytes to come of a message that is not taken */
    enum rpc_encoding encoding;

    /* The request's head, or the answer's. */
    const struct mr_rpc_method *method;
    bool is_post, is_grpc;
    bool timeout_bad;
    int http_status;
    int64_t timeout_ns; /* -1: none was given */
    size_t header_bytes;
    struct mr_buf meta; /* see headers.c */
    size_t cost;        /* of its connection's heads */

    int status;          /* how it ended; -1: not known yet */
    struct mr_buf text;  /* of the status */
    const char *trailer; /* NULL: none */
    struct mr_buf trailer_value;
};

/* NULL when out of memory. */
struct mr_call *rpc_call_new(struct mr_rpc *rpc, struct rpc_conn *conn);
/* Server: its head takes so much memory. False when there is no room for it. */
bool rpc_call_charge(struct mr_call *call, size_t cost);
/* One that nobody has heard of. */
void rpc_call_free(struct mr_call *call);
/* nghttp2 knows it under this number. */
void rpc_call_has_stream(struct mr_call *call, int32_t stream_id);
/* The call ends for its owner, now; the stream may go on for a while. Fine when it is over. */
void rpc_call_over(struct mr_call *call, int status, struct mr_slice text);
/* For rpc_settle: goes on, tells that it is over. */
void rpc_call_stirred(struct mr_call *call);
void rpc_call_tell(struct mr_call *call);
/* Client: everything of the server has come and was delivered; the call ends as it said. */
void rpc_call_answered(struct mr_call *call);
/* Refuses to go on: the peer gets the status (a client resets the stream), the owner too. */
void rpc_call_fail(struct mr_call *call, int status, const char *text);
/* The stream is gone, or its connection. */
void rpc_call_stream_closed(struct mr_call *call, uint32_t code);
void rpc_call_lost(struct mr_call *call, const char *why);
void rpc_call_set_timeout(struct mr_call *call, int64_t ns);
/* Resets the stream, if there is one. */
void rpc_call_reset(struct mr_call *call, uint32_t code);
/* What nghttp2 reads the body of a call with. */
ssize_t rpc_call_read(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t max,
                      uint32_t *flags, nghttp2_data_source *source, void *arg);
/* What was read goes to rpc->out. */
MR_MUST_USE enum mr_err rpc_call_write(struct mr_call *call, const uint8_t *head, size_t len);

/* ---- what is received ----------------------------------------------------------------------- */

void rpc_receive(struct mr_call *call, const uint8_t *data, size_t len);
/* END_STREAM came. */
void rpc_receive_end(struct mr_call *call);
/* Goes on where a hold stopped it. */
void rpc_receive_resume(struct mr_call *call);
/* Forgets what was received and gives its window back. */
void rpc_receive_drop(struct mr_call *call);
/* MR_TOO_BIG beyond max, MR_DAMAGED, MR_NOMEM. */
MR_MUST_USE enum mr_err rpc_gunzip(struct mr_slice packed, size_t max, struct mr_buf *out);

/* ---- headers -------------------------------------------------------------------------------- */

/* Takes in one header of the peer. MR_TOO_BIG, MR_NOMEM. */
MR_MUST_USE enum mr_err rpc_header_take(struct mr_call *call, struct mr_slice name,
                                        struct mr_slice value);
enum { RPC_TIMEOUT_TEXT_MAX = 16 };
void rpc_timeout_format(int64_t ns, char text[RPC_TIMEOUT_TEXT_MAX]);
int rpc_status_of_http(int http_status);
int rpc_status_of_reset(uint32_t code);

static inline nghttp2_nv rpc_nv(const char *name, struct mr_slice value, uint8_t flags)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value.data,
                        .namelen = strlen(name),
                        .valuelen = value.len,
                        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | flags};
}

/* ---- servers -------------------------------------------------------------------------------- */

/* Lives as long as rpc, since connections refer to it. */
struct rpc_listener {
    struct mr_watch watch; /* fd -1: closed */
    struct mr_link link;
    struct mr_rpc *rpc;
    struct mr_tls *tls;
    const struct mr_rpc_method *methods;
    size_t methods_n;
    void *arg;
    struct mr_timer timer; /* while there is no room for more connections */
};

/* Takes no more connections; fine when it takes none already. */
void rpc_listener_close(struct rpc_listener *listener);
void rpc_listener_free(struct rpc_listener *listener);
/* The head of a request is complete. */
void rpc_server_begin(struct mr_call *call);
const struct mr_rpc_method *rpc_server_find(const struct rpc_conn *conn, struct mr_slice path);
/* For the turn: says so when everything is drained. */
void rpc_server_drained(struct mr_rpc *rpc);

/* ---- clients -------------------------------------------------------------------------------- */

struct mr_channel {
    struct mr_rpc *rpc;
    struct mr_link link;
    struct mr_msg begin_msg, free_msg; /* on their way to the loop */
    enum mr_channel_haste haste;
    void (*changed)(struct mr_channel *channel, bool up, const char *why, void *arg);
    void *arg;
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    char *authority, *authorization, *server_name;
    const char *extra_name;
    char *extra_value;
    struct mr_tls *tls;

    struct rpc_conn *conn; /* NULL: none is there or being made */
    bool up;
    bool freed;
    struct mr_event *free_done; /* whoever frees it waits for that; NULL: nobody does */
    uint32_t calls_n;           /* begun, and closed not yet called */
    struct mr_link lingering;   /* calls without a stream whose messages are held */
    struct mr_timer timer;      /* the next attempt */
    int64_t backoff_ms;         /* of the last attempt; 0: none has failed */
    mr_mono away_since;
    struct mr_chore resolving;
    bool resolve_out; /* the chore is under way */
    enum mr_err resolve_err;
    struct mr_detail detail;
    struct mr_addr addrs[RPC_ADDRS_MAX];
    size_t addrs_n, addr_at;
};

/* The server's settings came: calls can be made. */
void rpc_channel_up(struct mr_channel *channel);
/* How long to wait before the next attempt. *backoff_ms: 0 at first, kept by the caller; away_ms:
 * since the connection was lost. */
int64_t rpc_backoff(int64_t *backoff_ms, int64_t away_ms, struct mr_rand *rand);
/* Its connection is gone, and its calls were closed. */
void rpc_channel_lost(struct mr_channel *channel, const char *why);
/* For rpc_settle: frees it once nothing refers to it. False: not yet. */
bool rpc_channel_end(struct mr_channel *channel);

#endif
