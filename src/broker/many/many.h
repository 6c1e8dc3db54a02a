/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of several servers: each is a remote engine (broker/remote), and this one in front of them is a
 * broker like any other. The list of servers may change at any time.
 *
 * Producing    round robin over the servers that are there. A task with an id of its caller's, a unique key or a
 *              group goes to the first live server behind the hash of that, so that the same one meets the same
 *              server while it lives. What was not sent when a connection broke, and what a server has no room
 *              for, goes to the next one; what was sent is never sent to another: it would run twice.
 * Looking      asked of all that are there, and put together; a task is found wherever it is.
 * Working      a node is attached to every server of the list. One take is asked of one server after the other,
 *              then waits at all. What was taken is finished where it was taken, also when that server has
 *              left the list.
 *
 * What is promised for a queue (its order, limits, unique keys) is promised by each server for what it has.
 */
#ifndef MR_BROKER_MANY_H
#define MR_BROKER_MANY_H

#include "broker/broker.h"
#include "broker/remote/remote.h"

enum {
    MR_MANY_SERVERS_MAX =
        64, /* at a time, with those that have left the list and are still there */
    MR_MANY_ADDRESS_MAX = 300,
};

/* Zero means default. */
struct mr_many_options {
    struct mr_remote_options
        server; /* of each; copied. Address, loop, and what is told of it are left out */
    const char *const *servers; /* addresses to begin with: "host:port" */
    size_t servers_n;
    int64_t ask_ms; /* 0: 500 ms; a server that does not answer a take for so long is passed over */
    int64_t fan_ms; /* 0: 5 s; one that does not answer a question for so long is left out */
};

/* Needs nobody to be there. MR_INVALID: an address that is none, with detail (may be NULL); MR_TOO_BIG. */
MR_MUST_USE enum mr_err mr_many_open(const struct mr_many_options *options,
                                     struct mr_broker **ret_broker, struct mr_detail *detail);
/* Waits up to ms (0: 3 s) until one of the servers is there; then for the others, a second at most, unless it is known that
 * they are not. MR_UNAVAILABLE. Thread: any but the loop. */
MR_MUST_USE enum mr_err mr_many_await_up(struct mr_broker *broker, int64_t ms);

/* The loop that all of it lives on, for whoever finds the servers; it ends with the engine. */
struct mr_rpc *mr_many_rpc(struct mr_broker *broker);
/* These are the servers from now on. New ones are connected to; those that are missing get nothing new, and
 * what was taken from them is finished there. What is no address, or too many, is left out: MR_INVALID,
 * MR_TOO_BIG. Loop thread. */
enum mr_err mr_many_set_servers(struct mr_broker *broker, const char *const *addresses, size_t n);

/* A server of the list, for what goes to a certain one. */
struct mr_many_server {
    struct mr_broker *broker; /* good as long as the engine; after 64 others, of another server */
    uint64_t hash;            /* of its address: the same in every process */
    bool up;
};
/* Those of the list, up to MR_MANY_SERVERS_MAX; answers how many. Thread: any. */
size_t mr_many_servers(struct mr_broker *broker,
                       struct mr_many_server ret_servers[MR_MANY_SERVERS_MAX]);
/* One that is there, in turn; if none is, one that is not; NULL: the list is empty. Thread: any. */
struct mr_broker *mr_many_pick(struct mr_broker *broker);

/* The hash that decides which server is first for a key; and how far in front a server is for it: the highest
 * is the first. */
uint64_t mr_many_hash(struct mr_slice bytes);
uint64_t mr_many_rank(uint64_t key, uint64_t server);

#endif
