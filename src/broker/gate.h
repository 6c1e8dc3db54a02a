/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a broker may hand out, and until when. Where servers share a store and each has a broker of its own, a firing or the part
 * of a job is one server's at a time: the store says whose, for as long as a lease. Who holds it says here until when that
 * is; behind that time the engine keeps such tasks back, whatever else the process is busy with, or how long it
 * stood still. So nothing is handed out that another server may have made anew by then. The time is that of the monotonic clock,
 * counted from before the store was asked.
 *
 * Tasks are known by the topic their results go to. Other tasks are nobody's business here. Thread: any.
 */
#ifndef MR_BROKER_GATE_H
#define MR_BROKER_GATE_H

#include "base/clock.h"
#include "base/err.h"
#include "base/slice.h"

struct mr_gate;

/* One time for all tasks of such topics, or one for each queue. */
enum mr_gate_by { MR_GATE_BY_TOPIC, MR_GATE_BY_QUEUE };

MR_MUST_USE enum mr_err mr_gate_new(struct mr_clock *clock, struct mr_gate **ret_gate);
void mr_gate_free(struct mr_gate *gate);

/* Tasks whose topics begin with this are kept back from now on, until it is said how long they are not. The text must live as long as
 * the gate. A gate has MR_GATE_GUARDS_MAX of them. */
enum { MR_GATE_GUARDS_MAX = 2 };
void mr_gate_guard(struct mr_gate *gate, const char *topic, enum mr_gate_by by);
/* Such tasks (of this queue, where each has its own time) are handed out before this time; zero: not any more. Without memory
 * for it they are not. */
void mr_gate_until(struct mr_gate *gate, const char *topic, struct mr_slice queue, mr_mono until);
/* Whether a task may be handed out now. */
bool mr_gate_lets(struct mr_gate *gate, struct mr_slice topic, struct mr_slice queue);

#endif
