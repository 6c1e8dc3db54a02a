/* SPDX-License-Identifier: Apache-2.0 */
/* The remote engine: the broker of a `millrace serve`, over gRPC. */
#ifndef MR_BROKER_REMOTE_H
#define MR_BROKER_REMOTE_H

#include "broker/broker.h"
#include "rpc/rpc.h"

struct mr_remote_options {
    const char *address;          /* "host:port" */
    const struct mr_rpc_tls *tls; /* NULL: plain */
    const char *token;            /* NULL: none */
    struct mr_slice namespace_;   /* the server's must be this one; empty: whichever it has */
    mr_refusal *refused;          /* what the server says with a refusal; NULL: nobody is told */
    void *refused_arg;
    size_t payload_max; /* 0: MR_PAYLOAD_MAX; the server has a limit of its own */
    int64_t open_ms;    /* 0: 3 s; the first connection must be there by then */
    bool later;         /* it need not: the server may come later, or never */
    int64_t away_ms;    /* 0: 10 s; tasks not sent yet wait so long for another one */
    int64_t answer_ms;  /* 0: 10 s; a server that lets a node wait longer hangs */
    /* One of several servers (broker/many): it lives on the loop of that engine, which outlives it and is
     * told when the connection comes and goes; what was not sent when it goes is given back at once, for
     * another server. NULL: it has a loop of its own. Both are told on the loop. */
    struct mr_rpc *rpc;
    void (*changed)(bool up, void *arg);
    void *changed_arg;
};

/* Of a loop for such an engine. */
extern const struct mr_rpc_limits mr_remote_limits;

/* MR_UNAVAILABLE with the reason when there is no connection in time; MR_INVALID for an address that is
 * none, and where the server has another namespace; what mr_channel_new answers. detail may be NULL. */
MR_MUST_USE enum mr_err mr_remote_open(const struct mr_remote_options *options,
                                       struct mr_broker **ret_broker, struct mr_detail *detail);
/* Begins what closing waits for, so that several can be closed in the time of one; mr_broker_close must follow. Thread: any. */
void mr_remote_leave(struct mr_broker *broker);
/* Another server from now on, in the place of one that is not there; no node may be open. What mr_channel_new answers; then
 * nothing has changed. For one of several servers. Loop thread. */
MR_MUST_USE enum mr_err mr_remote_readdress(struct mr_broker *broker,
                                            const struct mr_remote_options *options,
                                            struct mr_detail *detail);
/* How many leases a node has in hand. Loop thread. */
size_t mr_remote_node_holds(struct mr_broker *broker, uint64_t node);
/* The server has not answered the node for too long: its leases are lost, which their holder is told, and it
 * is dead from now on. Loop thread. */
void mr_remote_node_fence(struct mr_broker *broker, uint64_t node);

#endif
