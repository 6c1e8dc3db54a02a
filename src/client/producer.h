/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer of operations on timers: everything that is sent goes through one of these per client.
 *
 * A flight is what one call of the client sends. It goes to the door of a broker in this process or of a Redis; or
 * to the servers of the client, in turn: each flight to the next one, those that wait for the same server together in
 * one call. When a server cannot be reached, refuses for a passing reason or does not answer in time, the
 * flight goes to the next one, once around; whether it may have been accepted somewhere is remembered. A server
 * that did not answer in time is passed over for a while, as long as there are others. With affinity a flight goes to
 * the first live server behind the hash of its timer instead, so that operations on one timer meet at one server. Which
 * servers there are may change at any time.
 */
#ifndef MR_CLIENT_PRODUCER_H
#define MR_CLIENT_PRODUCER_H

#include "client/client.h"
#include "timer/door.h"

enum {
    MR_PRODUCER_ANSWER_MS = 5000, /* a server has so long */
    MR_PRODUCER_PENDING_MAX = 100000,
    MR_PRODUCER_APPLIED_MS = 30000, /* who waits for an effect, waits so long for it */
};

struct mr_producer;

struct mr_producer_options {
    struct mr_timer_door *door; /* not NULL: everything goes there, and it outlives the producer */
    struct mr_broker *many;     /* not NULL: to its servers (broker/many). Likewise */
    struct mr_broker *const *servers; /* else to these: they answer MR_OP_CALL. Likewise */
    size_t servers_n;                 /* to MR_MANY_SERVERS_MAX */
    enum mr_affinity affinity;
    int64_t answer_ms;      /* 0: MR_PRODUCER_ANSWER_MS */
    size_t pending_max;     /* 0: MR_PRODUCER_PENDING_MAX */
    struct mr_clock *clock; /* of versions and waits; NULL: the system's */
};

MR_MUST_USE enum mr_err mr_producer_new(const struct mr_producer_options *options,
                                        struct mr_producer **ret_producer);
/* What is not sent yet is answered with MR_CLOSED; what is under way, when its broker is closed. */
void mr_producer_stop(struct mr_producer *producer);
/* Waits until nothing is under way any more. NULL is fine. */
void mr_producer_free(struct mr_producer *producer);

/* As mr_timer_send_async; for MR_TIMER_APPLIED as well. MR_BUSY: nothing was sent. Thread: any. */
MR_MUST_USE enum mr_err mr_producer_send(struct mr_producer *producer,
                                         const struct mr_timer_op *ops, size_t n,
                                         enum mr_timer_wait wait, struct mr_timer_result *ret_ids,
                                         mr_timer_done *done, void *arg);

#endif
