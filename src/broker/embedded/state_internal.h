/* SPDX-License-Identifier: Apache-2.0 */
/* Between state.c, apply.c, queue.c and group.c only. */
#ifndef MR_EMBEDDED_STATE_INTERNAL_H
#define MR_EMBEDDED_STATE_INTERNAL_H

#include "broker/embedded/state.h"

uint64_t queue_name_hash(const struct state *state, struct mr_slice name);
void queue_free(struct queue *queue);

/* One more task of its queue and partition is in this state (1), or one less (-1). */
void count_task(struct state *state, const struct task *task, enum mr_state in, int by);
/* Into the set of its queue and state, and out of it (or of limbo). */
MR_MUST_USE enum mr_err set_enter(struct state *state, uint32_t handle);
void set_leave(struct state *state, uint32_t handle);
/* Into limbo until seq is durable; while replaying straight into its set. */
MR_MUST_USE enum mr_err limbo_enter(struct state *state, uint32_t handle, uint64_t seq);
/* A task refers to a group; and no longer. */
void group_hold(struct state *state, uint32_t handle, uint32_t number);
void group_let_go(struct state *state, uint32_t handle);
/* Among the members of its group, and out of them unless it is in a set. */
MR_MUST_USE enum mr_err group_enter(struct state *state, uint32_t handle);
void group_leave(struct state *state, uint32_t handle);
uint64_t group_hash(uint32_t number, void *arg);
bool group_equal(uint32_t number, const void *key, void *arg);
/* Out of every set, map and count, its space given back. */
void task_release(struct state *state, uint32_t handle);
/* Counts bytes of a record as needed (1) or no longer needed (-1). */
void hold(struct state *state, struct mr_log_pos pos, uint32_t size, int sign);

#endif
