/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producing with a server that may not answer, by the remote and the Redis engine.
 *
 * Ids are made on the caller's thread, so that a caller who gets no answer knows them. A task whose
 * answer was lost is in doubt: it may have been accepted, run and forgotten already, and a second try
 * would run it again. So it is answered with MR_UNAVAILABLE and the caller decides; only tasks with an
 * id of ours that are kept long enough after their end are tried again, since then a conflict is the
 * proof that they were accepted.
 */
#ifndef MR_BROKER_DOUBT_H
#define MR_BROKER_DOUBT_H

#include "broker/broker.h"

/* Checks a task and chooses its id; the result has it from now on. Thread: any. */
MR_MUST_USE enum mr_err mr_doubt_id(const struct mr_task_options *task, size_t payload_max,
                                    mr_wall now, struct mr_enqueue_result *ret_result);
/* Whether a second try does no harm. */
bool mr_doubt_none(const struct mr_task_options *task);
/* The answer to a second try. */
void mr_doubt_ends(const struct mr_task_options *task, struct mr_enqueue_result *result);

#endif
