/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The other server's disk (--replicas 1): each operation that the door accepts is first sent to one other server, which
 * keeps a copy (copies.h) and answers when that is durable. When the operation was applied here, the copy is dropped
 * there, with others, a moment later. A server that does not answer is passed over for the next one of the list; while
 * none is reached it waits for one, but not for long. With nobody to keep a copy, nothing is accepted.
 *
 * It has a loop of its own.
 */
#ifndef MR_TIMER_REPLICA_H
#define MR_TIMER_REPLICA_H

#include "base/buf.h"
#include "base/chan.h"
#include "base/list.h"
#include "base/net.h"
#include "rpc/rpc.h"

struct mr_replica;

enum {
    MR_REPLICA_PEERS_MAX = 64,
    MR_REPLICA_ANSWER_MS = 2000, /* producers wait for 5 s */
};

struct mr_replica_options {
    const char *origin;           /* this life of the server, by its name in the store; copied */
    const struct mr_rpc_tls *tls; /* NULL: plain; lives as long as the replica */
    const char *authorization;    /* of an admin's token; NULL: none. Likewise */
    int64_t answer_ms;            /* 0: MR_REPLICA_ANSWER_MS */
};

MR_MUST_USE enum mr_err mr_replica_new(const struct mr_replica_options *options,
                                       struct mr_replica **ret_replica);
/* Ends what is under way with MR_CLOSED. NULL is fine. */
void mr_replica_free(struct mr_replica *replica);

/* The other servers, in the order in which they are tried: the next one of all servers first. Addresses are copied.
 * Those that left may still be told what they need not keep. Thread: any. */
void mr_replica_set_peers(struct mr_replica *replica, const char *const *addresses, size_t n);

enum { MR_REPLICA_WHERE_MAX = MR_HOST_MAX + 8 };

/* Copies on their way. Zero it, set the inputs and done; all of it is borrowed until then. */
struct mr_replica_copying {
    const struct mr_slice *ids;        /* of the operations */
    const struct mr_slice *operations; /* encoded */
    size_t n;                          /* 1 to MR_BATCH_MAX */
    /* The replica's thread. */
    void (*done)(struct mr_replica_copying *copying);
    void *arg; /* the caller's */
    /* The answer. MR_UNAVAILABLE: nobody keeps copies now; detail says who does not and why. */
    enum mr_err err;
    bool is_doubtful;                     /* with an error: somebody may have copies all the same */
    char where[MR_REPLICA_WHERE_MAX + 1]; /* they are there: for mr_replica_drop */
    struct mr_detail detail;
    /* The replica's own. */
    struct mr_msg msg;
    struct mr_link link;
    mr_mono until;
    struct mr_replica *replica;
    size_t tried, sent, sending;
    bool was_sent; /* to somebody */
    struct mr_replica_peer *peer;
    struct mr_call *call;
};

/* Thread: any. */
void mr_replica_copy(struct mr_replica *replica, struct mr_replica_copying *copying);
/* The copy of this operation is not needed any more. Thread: any. */
void mr_replica_drop(struct mr_replica *replica, struct mr_slice where, struct mr_slice id);

#endif
