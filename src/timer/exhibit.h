/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows the timers that this server fires to tools of others, where its broker can: on a Redis as the entries
 * and the history of an Asynq scheduler, every ten seconds, and soon after a change. The first thousand timers are
 * shown. Nothing depends on it; what fails is tried again the next time.
 */
#ifndef MR_TIMER_EXHIBIT_H
#define MR_TIMER_EXHIBIT_H

#include "base/err.h"

struct mr_broker;
struct mr_store;
struct mr_exhibition;

/* node: as of the scheduler, whose leases begin with it. Both outlive it. */
MR_MUST_USE enum mr_err mr_exhibition_start(struct mr_broker *broker, struct mr_store *store,
                                            const char *node,
                                            struct mr_exhibition **ret_exhibition);
/* Takes down what it shows. NULL is fine. */
void mr_exhibition_stop(struct mr_exhibition *exhibition);
/* Something was changed. Thread: any. NULL is fine. */
void mr_exhibition_changed(struct mr_exhibition *exhibition);

#endif
