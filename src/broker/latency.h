/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long tasks of a queue waited and ran of late: the last half minute, and what there is of the
 * next; and all of them by size. Only in memory, and only for queues that hand out.
 */
#ifndef MR_BROKER_LATENCY_H
#define MR_BROKER_LATENCY_H

#include "base/clock.h"
#include "base/hist.h"
#include "broker/broker.h"

enum latency_kind { LATENCY_WAIT, LATENCY_RUN, LATENCY_KINDS };

struct latency;

/* Makes *latency when it is NULL; without memory nothing is noted. */
void latency_note(struct latency **latency, enum latency_kind kind, mr_mono now, int64_t us);
/* All there were so far; stays as it is without any. latency may be NULL. */
void latency_meters(const struct latency *latency, struct mr_queue_meters *meters);
/* The percentiles of a queue; 0: nothing in that time. latency may be NULL. */
void latency_show(struct latency *latency, mr_mono now, struct mr_queue_info *info);
void latency_free(struct latency *latency);

#endif
