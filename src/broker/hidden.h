/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues that people do not see. Their names begin with a mark that no caller can give; tasks in them wait, are
 * handed out, come back and go like any others. There are two kinds: those of the results of a topic
 * (result.h), and inner ones, for what the system does by itself. An inner queue is named by requests that say
 * so (inner), which only code in this process can: no such request comes from a server's callers. It is in no list
 * of queues, nor are its tasks in a list of tasks of all queues; a list of its own tasks may be asked for by its
 * name, and each of them by its id, for its dead ones are people's business.
 */
#ifndef MR_BROKER_HIDDEN_H
#define MR_BROKER_HIDDEN_H

#include "broker/broker.h"

#define MR_RESULT_QUEUE_MARK '\x01'
#define MR_INNER_QUEUE_MARK  '\x02'

/* Operations on timers: see src/timer/door.h. */
#define MR_TIMERS_QUEUE "\x02timers"
/* Copies of those that other servers have accepted: see src/timer/copies.h. */
#define MR_COPIES_QUEUE "\x02replica"

/* An operation carries a payload, and what else there is of a timer. */
enum { MR_INNER_MORE = 64 * 1024 };

bool mr_queue_is_inner(struct mr_slice name);
/* What people are shown: without the mark. */
struct mr_slice mr_queue_shown(struct mr_slice name);

/* As mr_task_options_check, for a task of a request that is inner. */
MR_MUST_USE enum mr_err mr_inner_task_check(const struct mr_task_options *task, size_t payload_max);

#endif
