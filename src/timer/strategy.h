/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategies: to which worker the task of a firing goes. A task is sent to a worker by the name of its queue,
 * Q@NAME (include/millrace.h, struct mr_worker_options), so what is decided here are names of queues, from the
 * list of nodes and the number of the firing alone: every server that sees the same nodes decides alike, and
 * nothing is remembered. A task whose worker does not take it in time falls to any worker of Q, so a list that is
 * some seconds old costs time and no task.
 *
 * Pure functions but for what a roster counts. Thread: one for each roster.
 */
#ifndef MR_TIMER_STRATEGY_H
#define MR_TIMER_STRATEGY_H

#include "base/arena.h"

/* What a timer says (include/millrace.h, struct mr_timer_options). */
struct mr_strategy_to {
    enum mr_strategy kind;
    struct mr_slice name; /* of MR_STRATEGY_KEY and MR_STRATEGY_TAG */
};

/*
 * The live workers of one queue, as a list of nodes has them: those that serve the queue by its own name, are live
 * (not suspect, dead or about to stop) and can be addressed (Q@NAME is no longer than a name may be). Made anew for each
 * list of nodes; it counts what was sent to whom, so that a batch of firings is spread. Everything is in the arena,
 * and names point into the list. MR_NOMEM.
 */
struct mr_roster;
MR_MUST_USE enum mr_err mr_roster_make(struct mr_arena *arena, struct mr_slice queue,
                                       const struct mr_node_info *nodes, size_t nodes_n,
                                       struct mr_roster **ret_roster);
/* How many of them handle this type of task. */
size_t mr_roster_count(const struct mr_roster *roster, struct mr_slice type);

struct mr_target {
    struct mr_slice queue; /* Q, or Q@NAME; in the arena */
    uint64_t incarnation;  /* of the node, where one is meant; 0: none is */
};

/*
 * Where the task of a firing goes: targets, n of them, in the arena.
 *
 * number  counts the firings of the timer (its `fired`, say): what round robin goes by
 * type    of the task: workers that say they do not handle it are passed over
 *
 * There is one target, except for a broadcast: that has one for each worker, and none if there is none. The others
 * go to Q itself when no worker is there that could be meant; a tag is a name, whether somebody has it or not.
 */
MR_MUST_USE enum mr_err mr_roster_targets(struct mr_roster *roster, struct mr_strategy_to strategy,
                                          struct mr_slice type, uint64_t number,
                                          struct mr_arena *arena, struct mr_target **ret_targets,
                                          size_t *ret_n);

/*
 * What was decided, as text, and back. It must stand in the row of the firing, written together with it and before
 * anything is enqueued: on Redis an id is known by its queue, so a step that is repeated and decides otherwise would
 * make a second task. No text is one target, the queue itself. MR_NOMEM; reading: MR_INVALID.
 */
struct mr_buf;
MR_MUST_USE enum mr_err mr_targets_write(const struct mr_target *targets, size_t n,
                                         struct mr_buf *text);
MR_MUST_USE enum mr_err mr_targets_read(struct mr_slice text, struct mr_slice queue,
                                        struct mr_arena *arena, struct mr_target **ret_targets,
                                        size_t *ret_n);

/*
 * The tasks of a broadcast. Each has the id of its firing with the incarnation of its node behind it, so a step that
 * is repeated doubles nothing and nobody gets two. The firing has ended when all of its tasks have, which the text of its
 * targets names: succeeded if all did, else failed, for the reason of the first that did not.
 */
enum { MR_BROADCAST_ID_MAX = MR_ID_MAX + 1 };
/* "FIRING-INCARNATION" with its NUL; the incarnation as 16 hex digits. Its length. */
size_t mr_broadcast_id(struct mr_slice firing_id, uint64_t incarnation,
                       char id[MR_BROADCAST_ID_MAX]);
/* The firing that a task of a broadcast belongs to; empty: it is none. */
struct mr_slice mr_broadcast_firing(struct mr_slice task_id);

#endif
