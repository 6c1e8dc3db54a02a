/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC over HTTP/2: calls, their messages and their ends, for servers and for clients. What the
 * messages say is not known here.
 *
 * One thread, the loop, owns every connection and call of a struct mr_rpc; all callbacks come from
 * it, and all functions of calls are for it alone. Others reach it with mr_rpc_post. Both ends of a
 * call have the same shape: messages come in through its ops, mr_call_send sends one, and closed is
 * the last callback.
 *
 * Back-pressure: what a peer sends is taken only as fast as the ops let it (mr_call_hold), and a
 * sender looks at mr_call_queued and goes on when writable is called. Nothing here grows without a
 * limit that the options name.
 */
#ifndef MR_RPC_RPC_H
#define MR_RPC_RPC_H

#include "base/chan.h"
#include "base/slice.h"

/* Status codes of gRPC that the transport itself gives. */
enum mr_rpc_status {
    MR_RPC_OK = 0,
    MR_RPC_CANCELLED = 1,
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
struct mr_call;

struct mr_call_ops {
    /* A whole message; the bytes live during this callback. */
    void (*message)(struct mr_call *call, struct mr_slice bytes);
    /* Server: the client sends no more messages. May be NULL. */
    void (*half_closed)(struct mr_call *call);
    /* What was queued has fallen below the low mark again. May be NULL. */
    void (*writable)(struct mr_call *call);
    /* The call is over; the last callback. Client: how it ended, status of the server or of the
     * transport (MR_RPC_UNAVAILABLE: the connection broke). Server: answered, or cancelled by the
     * client, its deadline or a broken connection. */
    void (*closed)(struct mr_call *call, int status, struct mr_slice text);
};

/* ---- calls (loop thread) -------------------------------------------------------------------- */

/* The caller's own; the server's begin and mr_channel_call set them. */
void mr_call_set(struct mr_call *call, const struct mr_call_ops *ops, void *data);
void *mr_call_data(const struct mr_call *call);
/* Frames and queues a copy of the bytes. After the end of the call: nothing happens. */
MR_MUST_USE enum mr_err mr_call_send(struct mr_call *call, struct mr_slice bytes);
/* Bytes queued and not yet with the kernel. */
size_t mr_call_queued(const struct mr_call *call);
/* While held, no further message is delivered and the peer's window is not opened. */
void mr_call_hold(struct mr_call *call, bool held);
/* Server: ends the call behind what was sent. text may be empty. */
void mr_call_end(struct mr_call *call, int status, struct mr_slice text);
/* Client: sends no more messages. */
void mr_call_half_close(struct mr_call *call);
/* Client: gives the call up; closed is called with MR_RPC_CANCELLED. */
void mr_call_cancel(struct mr_call *call);
/* Server: value of a metadata name, empty when absent. */
struct mr_slice mr_call_metadata(const struct mr_call *call, const char *name);
/* Server: who calls: "127.0.0.1:5123"; and a number that all calls of one connection share. */
const char *mr_call_peer(const struct mr_call *call);
uint64_t mr_call_connection(const struct mr_call *call);

/* ---- the loop ------------------------------------------------------------------------------- */

struct mr_rpc_limits {          /* 0: the default */
    size_t message_max;         /* 4 MiB: of a received message */
    uint32_t calls_max;         /* 1000: in flight on one connection */
    size_t queued_max;          /* 16 MiB: sent and not taken by the peer, per connection; then it is closed */
    uint32_t connections_max;   /* 20000 */
    int64_t idle_ms;            /* 5 min: a connection without calls is closed */
    int64_t keepalive_ms;       /* 10 s without a byte: ping; no answer in the same time: closed */
    int64_t handshake_ms;       /* 10 s: TLS, preface and settings */
};

MR_MUST_USE enum mr_err mr_rpc_new(const char *thread_name, const struct mr_rpc_limits *limits,
                                   struct mr_rpc **ret_rpc);
/* Server: refuses new calls and connections (GOAWAY), waits up to max_ms for calls under way. */
void mr_rpc_drain(struct mr_rpc *rpc, int64_t max_ms);
/* Ends every call and connection, then the thread. NULL is fine. */
void mr_rpc_free(struct mr_rpc *rpc);
/* Thread: any. deliver is called on the loop with receiver = rpc. */
void mr_rpc_post(struct mr_rpc *rpc, struct mr_msg *msg);
/* Loop thread: calls back once, at this time or right after; runs at most every ms. */
struct mr_rpc_timer;
void mr_rpc_timer_start(struct mr_rpc *rpc, struct mr_rpc_timer *timer, mr_mono at);

struct mr_rpc_tls {
    const char *cert_file, *key_file; /* server: both; client: for mutual TLS */
    const char *ca_file;              /* server: clients must have a certificate of it; client: whom to trust */
    const char *server_name;          /* client: instead of the host */
};

/* ---- servers -------------------------------------------------------------------------------- */

struct mr_rpc_method {
    const char *path;                                  /* "/millrace.v1.Tasks/Enqueue" */
    void (*begin)(struct mr_call *call, void *arg);    /* sets the call's ops, or ends it */
};

/* methods live as long as rpc. tls NULL: plain. ret_port: the one bound, for port 0. */
MR_MUST_USE enum mr_err mr_rpc_listen(struct mr_rpc *rpc, const char *address, /* "127.0.0.1:7401" */
                                      const struct mr_rpc_tls *tls,
                                      const struct mr_rpc_method *methods, size_t methods_n,
                                      void *arg, uint16_t *ret_port, struct mr_detail *detail);

/* ---- clients -------------------------------------------------------------------------------- */

struct mr_channel_options {
    const char *address; /* "host:port" */
    const struct mr_rpc_tls *tls;
    const char *authorization; /* metadata of every call; NULL: none. Never in a log. */
    /* The connection is there or gone (why: one line). Loop thread. Calls in flight were closed
     * before gone is said. */
    void (*changed)(struct mr_channel *channel, bool up, const char *why, void *arg);
    void *arg;
};

/* Connects and keeps connecting, with jittered back-off from 50 ms to 2 s. */
MR_MUST_USE enum mr_err mr_channel_new(struct mr_rpc *rpc, const struct mr_channel_options *options,
                                       struct mr_channel **ret_channel, struct mr_detail *detail);
void mr_channel_free(struct mr_channel *channel);
/* Loop thread. deadline_ms 0: none. While the channel is down: MR_UNAVAILABLE. */
MR_MUST_USE enum mr_err mr_channel_call(struct mr_channel *channel, const char *path,
                                        int64_t deadline_ms, const struct mr_call_ops *ops,
                                        void *data, struct mr_call **ret_call);

#endif
