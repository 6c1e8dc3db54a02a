/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker as the level above makes it: on a broker instead of a client. Everything else of it is
 * in millrace.h.
 */
#ifndef MR_WORKER_WORKER_H
#define MR_WORKER_WORKER_H

#include "broker/broker.h"

/* The broker must outlive the worker. Errors: MR_INVALID, MR_TOO_BIG, MR_NOMEM. Thread: any. */
MR_MUST_USE enum mr_err mr_worker_new_on(struct mr_broker *broker,
                                         const struct mr_worker_options *options,
                                         struct mr_worker **ret_worker);

/* What a slot does now; design.md, 6. */
enum mr_slot_state {
    MR_SLOT_PENDING,   /* waits for a task */
    MR_SLOT_POLLING,   /* has one, about to begin */
    MR_SLOT_WORKING,   /* its handler runs */
    MR_SLOT_REPORTING, /* tells the broker how it ended */
    MR_SLOT_ERROR,     /* stuck: the run was given up, its handler has not returned */
    MR_SLOT_STOPPING,  /* takes no more */
};

/* For people: may have changed by the time it is read. slot is below the number of slots. Thread:
 * any. */
enum mr_slot_state mr_worker_slot_state(struct mr_worker *worker, uint32_t slot);

#endif
