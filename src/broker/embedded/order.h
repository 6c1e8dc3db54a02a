/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of tasks ordered by (key, tie): 4 bytes a task. Tasks mostly arrive at the back and leave
 * at the front, both O(1); anywhere else is O(log n) plus a short move. Two levels: leaves of
 * handles, and an array of leaves. Each task is in exactly one set: that of its queue and state.
 */
#ifndef MR_EMBEDDED_ORDER_H
#define MR_EMBEDDED_ORDER_H

#include "broker/embedded/slab.h"

struct task;
struct leaf;

struct order {
    struct leaf **leaves;
    size_t begin, end, cap; /* leaves in use are begin .. end - 1 */
    size_t count;
};

/* A place in a set; valid while the set does not change. */
struct order_at {
    size_t leaf, index;
};

void order_done(struct order *order);
MR_MUST_USE enum mr_err order_insert(struct order *order, const struct slab *tasks,
                                     uint32_t handle);
/* The task must be in the set, its key and tie as they were at the insert. */
void order_remove(struct order *order, const struct slab *tasks, uint32_t handle);
/* NO_HANDLE when empty. */
uint32_t order_first(const struct order *order);
/* The first place at or behind (key, tie). */
struct order_at order_seek(const struct order *order, const struct slab *tasks, int64_t key,
                           uint64_t tie);
/* The handle there and the next place; NO_HANDLE at the end. */
uint32_t order_next(const struct order *order, struct order_at *at);
size_t order_bytes(const struct order *order);
void order_validate(const struct order *order, const struct slab *tasks);

#endif
