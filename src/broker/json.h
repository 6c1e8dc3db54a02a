/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks, queues and nodes in JSON: the same for people's commands and for HTTP. */
#ifndef MR_BROKER_JSON_H
#define MR_BROKER_JSON_H

#include "broker/broker.h"
#include "wire/jw.h"

/* {"code":...,"message":...} under the name error; with the state of the task that is there unless
 * NONE. */
void jw_error(struct jw *jw, enum mr_err err, const char *message, enum mr_state state);

void jw_task(struct jw *jw, const struct mr_task *task);
/* Whether the task is an operation on a timer; then which. */
struct mr_timer_operation;
bool jw_operation_of(const struct mr_task *task, struct mr_timer_operation *ret_op);

void jw_queue(struct jw *jw, const struct mr_queue_info *info);
/* The same object left open, for more fields. */
void jw_queue_open(struct jw *jw, const struct mr_queue_info *info);

/* Those that a node is one of: who leads, and what they own. Zero: nothing is known. */
struct jw_crew {
    const struct mr_leader *leader;
    const struct mr_assignment *assignments;
    size_t assignments_n;
};

/* The state in a word: one that lives and takes nothing more, since it ends, is draining. */
const char *jw_node_state(const struct mr_node_info *node);
bool jw_node_drains(const struct mr_node_info *node);
void jw_node(struct jw *jw, const struct jw_crew *crew, const struct mr_node_info *node);
bool jw_node_leads(const struct jw_crew *crew, const struct mr_node_info *node);
/* Partitions of a queue that the node owns, as bits; 0: none, or it is one partition. */
uint64_t jw_node_owns(const struct jw_crew *crew, const struct mr_node_info *node,
                      struct mr_slice queue);
void jw_leader(struct jw *jw, const struct mr_leader *leader);

#endif
