/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node that takes and finishes when the test says so, by the contract of brokers: the C API takes tasks
 * only to run them.
 */
#ifndef MR_TESTS_ACCEPT_HAND_H
#define MR_TESTS_ACCEPT_HAND_H

#include "broker/broker.h"

struct accept;
struct hand;

/* lease_ms 0: too long to end within a test. queues: "a b c", an earlier one is emptied first; NULL:
 * default. */
struct hand *hand_open(struct accept *t, const char *name, const char *queues, int64_t lease_ms);
/* Gives back what it holds, forgets the node. NULL is fine. */
void hand_close(struct hand *hand);
/* Frees it without a word to the broker, as if its process had died: its leases end by themselves. */
void hand_abandon(struct hand *hand);
/* The node is closed, the rest is still there to be asked. */
void hand_leave(struct hand *hand);
/* How many runs of all hands so far were told that their lease is lost. */
size_t hand_lost(void);
/* It lives; says so only so often. */
void hand_beat(struct hand *hand);
/* One task, its lease the caller's; NULL: see ret_err (may be NULL). */
struct mr_lease *hand_take(struct hand *hand, int64_t wait_ms, enum mr_err *ret_err);
/* What the broker says to this end of a run; the lease stays. */
enum mr_err hand_finish(struct hand *hand, const struct mr_lease *lease, struct mr_finish item);
/* Done with its payload as result; must be accepted, frees the lease. */
void hand_done(struct hand *hand, struct mr_lease *lease);
/* The next task is this one; takes it and is done with it. */
void hand_expect(struct hand *hand, const char *id);

#endif
