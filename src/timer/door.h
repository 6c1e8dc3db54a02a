/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door of a broker for operations on timers: what a server does with those that producers send it, and a
 * client in whose process the broker is. Each is checked whole, gets what its producer left out (ids, version),
 * and becomes a task in the broker's hidden queue (broker/hidden.h); the answer is given when that is durable,
 * or when the applier (apply.h), of this process or of another one, has dealt with it. With a replica another server
 * keeps a copy before that; a header of the task says which one, for whoever ends it.
 */
#ifndef MR_TIMER_DOOR_H
#define MR_TIMER_DOOR_H

#include "broker/broker.h"
#include "timer/zone.h"
#include "wire/timer.h"

struct mr_replica;
struct mr_timer_door;

struct mr_timer_door_options {
    struct mr_broker *broker; /* both outlive the door */
    struct mr_zones *zones;
    struct mr_clock *clock; /* NULL: the system's */
    size_t payload_max;     /* of a timer's tasks; 0: MR_PAYLOAD_MAX */
    int64_t ahead_ms; /* versions further ahead of our clock are refused; 0: MR_TIMER_AHEAD_MS */
    struct mr_replica *replica; /* NULL: no copies are made; outlives the door */
};

/* The header of an operation of which there is a copy: where that is, for mr_replica_drop. */
#define MR_TIMER_COPY_HEADER "copy"
/* The header of one that was such a copy: who had accepted it. */
#define MR_TIMER_COPIED_HEADER "copied"

MR_MUST_USE enum mr_err mr_timer_door_new(const struct mr_timer_door_options *options,
                                          struct mr_timer_door **ret_door);
/* When all that was sent is answered. NULL is fine. */
void mr_timer_door_free(struct mr_timer_door *door);

/*
 * Some operations under way. Zero it, set the inputs and done. The definitions may be as people wrote them.
 * What is refused is answered per item, with why; what is accepted has its id, the timer's id and its version
 * there. Errors of the whole are given to every item, too.
 */
struct mr_timer_sending {
    const struct mr_timer_operation *ops; /* input, borrowed until done, as all that it points to */
    size_t n;                             /* 1 to MR_BATCH_MAX */
    enum mr_timer_wait wait;
    int64_t wait_ms; /* MR_TIMER_APPLIED: then MR_TIMEOUT per item, unknown; 0: 30 s */
    struct mr_timer_result *results; /* n entries, the caller's memory */
    /* The broker's thread, the replica's, or the caller's own before mr_timer_door_send returns. */
    void (*done)(struct mr_timer_sending *sending);
    void *arg; /* the caller's */
    enum mr_err err;
    void *own; /* the door's */
};

/* Thread: any. */
void mr_timer_door_send(struct mr_timer_door *door, struct mr_timer_sending *sending);

#endif
