/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC over HTTP/2: calls, their messages and their ends, for servers and for clients. What the
 * messages say is not known here.
 *
 * One thread, the loop, owns every connection and call of a struct mr_rpc; all callbacks come from
 * it, and all functions of calls are for it alone. Others reach it with mr_rpc_post. Both ends of a
 * call have the same shape: messages come in through its ops, mr_call_send sends one, and closed is
 * the last callback. No function here calls back before it returns; what it causes is called by the
 * loop afterwards. What all calls of a turn send leaves in one write per connection.
 *
 * Back-pressure: what a peer sends is taken only as fast as the ops let it (mr_call_hold), and a
 * sender looks at mr_call_queued and goes on when writable is called. Nothing here grows without a
 * limit that mr_rpc_limits names.
 */
#ifndef MR_RPC_RPC_H
#define MR_RPC_RPC_H

#include "base/buf.h"
#include "base/chan.h"
#include "base/slice.h"
#include "wheel/wheel.h"

/* Status codes of gRPC that the transport itself gives; others pass through. */
enum mr_rpc_status {
    MR_RPC_OK = 0,
    MR_RPC_CANCELLED = 1,
    MR_RPC_UNKNOWN = 2,
    MR_RPC_INVALID = 3,
    MR_RPC_DEADLINE = 4,
    MR_RPC_DENIED = 7,
    MR_RPC_EXHAUSTED = 8,
    MR_RPC_UNIMPLEMENTED = 12,
    MR_RPC_INTERNAL = 13,
    MR_RPC_UNAVAILABLE = 14,
    MR_RPC_UNAUTHENTICATED = 16,
};

struct mr_rpc;     /* a loop thread and its connections */
struct mr_channel; /* client: one connection, made again when it breaks */
struct mr_call;    /* lives until closed has returned */

struct mr_call_ops {
    /* A whole message; the bytes live during this callback. */
    void (*message)(struct mr_call *call, struct mr_slice bytes);
    /* A message of len bytes, over the limit, was left out. NULL: the call ends for it. */
    void (*too_big)(struct mr_call *call, size_t len);
    /* Server: the client sends no more messages. May be NULL. */
    void (*half_closed)(struct mr_call *call);
    /* What was queued had reached MR_CALL_QUEUED_HIGH and is below MR_CALL_QUEUED_LOW again. May be
     * NULL. */
    void (*writable)(struct mr_call *call);
    /* The call is over; the last callback. Client: how it ended, status of the server or of the
     * transport (MR_RPC_UNAVAILABLE: the connection broke). Server: what it was ended with once
     * that has left, or cancelled by the client, its deadline (MR_RPC_DEADLINE) or a broken
     * connection (MR_RPC_UNAVAILABLE). */
    void (*closed)(struct mr_call *call, int status, struct mr_slice text);
};

/* ---- calls (loop thread) -------------------------------------------------------------------- */

enum { MR_CALL_QUEUED_LOW = 64 * 1024, MR_CALL_QUEUED_HIGH = 256 * 1024 };

/* The caller's own; the server's begin and mr_channel_call set them. */
void mr_call_set(struct mr_call *call, const struct mr_call_ops *ops, void *data);
void *mr_call_data(const struct mr_call *call);
/* Frames and queues a copy of the bytes. MR_CLOSED once the call was ended by either side; MR_BUSY
 * when the peer has left queued_max untaken (its connection is closed then). */
MR_MUST_USE enum mr_err mr_call_send(struct mr_call *call, struct mr_slice bytes);
/* The same without the copy: queues a message of len bytes, which the caller writes to *ret_room
 * right away, before any other function of this header. */
MR_MUST_USE enum mr_err mr_call_room(struct mr_call *call, size_t len, uint8_t **ret_room);
/* Bytes queued and not yet on their way. */
size_t mr_call_queued(const struct mr_call *call);
/* While held, no further message (and no half_closed) is delivered and the peer's window is not
 * opened. */
void mr_call_hold(struct mr_call *call, bool held);
/* Server: ends the call behind what was sent. text may be empty. */
void mr_call_end(struct mr_call *call, int status, struct mr_slice text);
/* Server: a pair of metadata that goes with the end, which has not been sent yet; one per call.
 * name is lower case and lives as long as the program. */
void mr_call_trailer(struct mr_call *call, const char *name, struct mr_slice value);
/* Client: sends no more messages. */
void mr_call_half_close(struct mr_call *call);
/* Client: gives the call up; closed is called with MR_RPC_CANCELLED. */
void mr_call_cancel(struct mr_call *call);
/* Value of a metadata name, empty when absent. Server: of the request. Client: of the answer and
 * its trailers, complete when closed is called. Names that end in "-bin" are not kept. */
struct mr_slice mr_call_metadata(const struct mr_call *call, const char *name);
/* Appends the text as it stands in metadata: what is not plain ASCII, and %, as %XX. Thread: any. */
MR_MUST_USE enum mr_err mr_rpc_percent_encode(struct mr_slice text, struct mr_buf *out);
/* Server: who calls: "127.0.0.1:5123"; and a number that all calls of one connection share and no
 * other connection of this loop ever has. */
const char *mr_call_peer(const struct mr_call *call);
uint64_t mr_call_connection(const struct mr_call *call);
/* Server: whether the peer is on this machine. */
bool mr_call_is_loopback(const struct mr_call *call);

/* ---- the loop ------------------------------------------------------------------------------- */

struct mr_rpc_limits {         /* 0: the default */
    size_t message_max;        /* 4 MiB: of a received message, unpacked */
    uint32_t calls_max;        /* 1000: in flight on one connection of a server */
    uint32_t client_calls_max; /* 200 000: begun and not closed on one channel; then MR_BUSY */
    size_t queued_max;         /* 16 MiB: sent and not taken by the peer, per connection; then it is
                                 closed. The same again for what is received and not taken by us */
    size_t
        memory_max; /* 16 times queued_max: both, over all connections; then the one that holds most
                                 is closed */
    uint32_t connections_max; /* 20 000; for another one the idlest is closed, or, when each has a
                                 call, that other one itself */
    int64_t idle_ms;          /* 5 min: a server's connection without calls is closed; -1: never */
    int64_t keepalive_ms;     /* 10 s without a byte: ping; no answer in the same time: closed */
    int64_t handshake_ms;     /* 10 s: TLS, preface and settings; about twice: the head of a call */
};

/* limits may be NULL. */
MR_MUST_USE enum mr_err mr_rpc_new(const char *thread_name, const struct mr_rpc_limits *limits,
                                   struct mr_rpc **ret_rpc);
/* Server: takes no new connections and calls (GOAWAY), waits up to max_ms for the calls under way,
 * then cuts what is left. Posts and timers still run afterwards. Thread: any but the loop. */
void mr_rpc_drain(struct mr_rpc *rpc, int64_t max_ms);
/* Delivers what was posted, ends every call and connection, then the thread. Whoever posts has
 * stopped before, channels were freed. NULL is fine. Thread: any but the loop. */
void mr_rpc_free(struct mr_rpc *rpc);
/* deliver is called on the loop with receiver = rpc. Thread: any. */
void mr_rpc_post(struct mr_rpc *rpc, struct mr_msg *msg);
/* Where posts go, for executors whose chores the loop owns. */
struct mr_chan *mr_rpc_inbox(struct mr_rpc *rpc);
/* The time of this turn. Loop thread. */
mr_mono mr_rpc_now(const struct mr_rpc *rpc);
/* Calls timer->fire once (arg = rpc), at this time or up to some ms after; moves a running timer.
 * Timers are made with mr_timer_init. Loop thread. */
void mr_rpc_timer_start(struct mr_rpc *rpc, struct mr_timer *timer, mr_mono at);
void mr_rpc_timer_stop(struct mr_rpc *rpc, struct mr_timer *timer);

/* Files in PEM. */
struct mr_rpc_tls {
    const char *cert_file, *key_file; /* server: both; client: for mutual TLS */
    const char *ca_file;     /* server: clients must have a certificate of it, NULL: they need none;
                                client: whom to trust, NULL: whom the system trusts */
    const char *server_name; /* client: the name in the certificate, NULL: the host */
};

/* Whether a server could use these files; detail says which one not, and why; with MR_OK it may hold a
 * warning. Thread: any. */
MR_MUST_USE enum mr_err mr_rpc_tls_check(const struct mr_rpc_tls *tls, struct mr_detail *detail);

/* ---- servers -------------------------------------------------------------------------------- */

struct mr_rpc_method {
    const char *path; /* "/millrace.v1.Tasks/Enqueue" */
    /* Sets the call's ops, or ends it, which then needs none. */
    void (*begin)(struct mr_call *call, void *arg);
};

struct mr_rpc_service {
    const char *address;                 /* "127.0.0.1:7401", "[::1]:0", "localhost:7401" */
    const struct mr_rpc_tls *tls;        /* NULL: plain */
    const struct mr_rpc_method *methods; /* live as long as rpc */
    size_t methods_n;
    void *arg; /* of begin */
};

/* ret_port: the one bound, for port 0. detail and ret_port may be NULL. Thread: any but the loop. */
MR_MUST_USE enum mr_err mr_rpc_listen(struct mr_rpc *rpc, const struct mr_rpc_service *service,
                                      uint16_t *ret_port, struct mr_detail *detail);

/* ---- clients -------------------------------------------------------------------------------- */

/* How a server that is away is tried. The eager ones are few, and must know soon that it is back. */
enum mr_channel_haste { MR_CHANNEL_PATIENT, MR_CHANNEL_EAGER };

struct mr_channel_options {
    const char *address; /* "host:port" */
    enum mr_channel_haste haste;
    const struct mr_rpc_tls *tls;
    const char *authorization; /* metadata of every call; NULL: none. Never in a message. */
    const char *extra_name, *extra_value; /* one more pair; NULL: none. The name lives as long as
                                             the channel */
    /* The connection is there or gone (why: one line), or could not be made (gone once more, with
     * the reason). Loop thread. Calls in flight were closed before gone is said. May be NULL. */
    void (*changed)(struct mr_channel *channel, bool up, const char *why, void *arg);
    void *arg;
};

/* Connects and keeps connecting, with jittered back-off from 20 ms to 500 ms, and after 5 s without a
 * connection to 2 s. An eager one stays at 500 ms, and gives an attempt 2 s instead of handshake_ms. Thread: any. */
MR_MUST_USE enum mr_err mr_channel_new(struct mr_rpc *rpc, const struct mr_channel_options *options,
                                       struct mr_channel **ret_channel, struct mr_detail *detail);
/* Closes its calls with MR_RPC_CANCELLED; changed is not called again. On the loop that happens
 * afterwards, for other threads before this returns. Channels end before their rpc. NULL is fine. */
void mr_channel_free(struct mr_channel *channel);
/* deadline_ms 0: none. MR_UNAVAILABLE while the channel is down, MR_BUSY over client_calls_max.
 * path lives as long as the call. Loop thread. */
MR_MUST_USE enum mr_err mr_channel_call(struct mr_channel *channel, const char *path,
                                        int64_t deadline_ms, const struct mr_call_ops *ops,
                                        void *data, struct mr_call **ret_call);

#endif
