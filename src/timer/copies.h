/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of operations that other servers have accepted (replica.h), kept for them until they have applied them: so the
 * loss of one disk loses none. A copy is a task of an inner queue of our own broker, where nobody takes it: durable as
 * anything else there. When the server that it is of is gone, by its row in the store, the operation goes into our own
 * queue of operations, as if it had come through our door; the copy is deleted behind that, so what is interrupted is
 * repeated. That it was applied before does no harm: it has a version.
 *
 * One thread, which sleeps while nothing is kept.
 */
#ifndef MR_TIMER_COPIES_H
#define MR_TIMER_COPIES_H

#include "broker/broker.h"
#include "store/store.h"

struct mr_copies;

struct mr_copies_options {
    struct mr_broker *broker; /* both outlive it */
    struct mr_store *store;
    const char
        *own; /* our own name in the store: who sends copies to itself has one disk. Copied */
    int64_t lease_ms; /* who has sent something since is not gone, whatever its row says; 0: 10 s */
};

MR_MUST_USE enum mr_err mr_copies_start(const struct mr_copies_options *options,
                                        struct mr_copies **ret_copies);
/* When all that was kept is answered. NULL is fine. */
void mr_copies_stop(struct mr_copies *copies);

/* One message of a server. Zero it, set the inputs and done; they are borrowed until then. */
struct mr_copies_keeping {
    struct mr_slice origin;            /* the server: a life of it, by its name in the store */
    const struct mr_slice *operations; /* to be kept: encoded, as its door has made them */
    size_t n;                          /* to MR_BATCH_MAX */
    const struct mr_slice *gone;       /* ids of operations whose copies are not needed any more */
    size_t gone_n;                     /* likewise */
    /* All are durable, or err says why one of them is not. The broker's thread, or the caller's own. */
    void (*done)(struct mr_copies_keeping *keeping);
    void *arg; /* the caller's */
    enum mr_err err;
    void *own;
};

/* Thread: any. */
void mr_copies_keep(struct mr_copies *copies, struct mr_copies_keeping *keeping);

#endif
