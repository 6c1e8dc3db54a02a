/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions of a queue: which one a key leads to, and which workers prefer which. Pure functions; the
 * answers are the same on every machine. Here partitions are counted from 0.
 *
 * Who prefers a partition is only a preference: an idle worker takes from any of them.
 */
#ifndef MR_BROKER_PARTITION_H
#define MR_BROKER_PARTITION_H

#include "base/slice.h"

/* The partition of n that all with this key go to. Stored data depends on it: it never changes. */
uint32_t mr_partition_of(struct mr_slice key, uint32_t n);

/* A worker that serves the queue. Each partition is a bit. */
struct mr_member {
    uint64_t id;    /* no two have the same */
    uint64_t owned; /* before: what it owned; after: what it owns */
};

enum { MR_MEMBERS_MAX = 1024 }; /* those behind, by their ids, own nothing */

/*
 * Shares n partitions among the members, which are sorted by their ids. Each partition has an owner, if
 * there is a member. More members than partitions: each owns one, and as many share one as must. Members
 * differ by one at most (round robin), where only what must move moves; or nobody has more than 1.25 of
 * an even share, rounded up (consistent hash), where nothing but the ids counts.
 */
void mr_partitions_assign(enum mr_assign how, uint32_t n, struct mr_member *members,
                          size_t members_n);

/*
 * The same without a before: what they own depends on the ids alone. Round robin as if the members had come
 * one after the other in the order of their ids, so that one who comes as the last takes over only what is
 * its share.
 */
void mr_partitions_assign_anew(enum mr_assign how, uint32_t n, struct mr_member *members,
                               size_t members_n);

/* A live worker that serves the queue, as a list of nodes has it. */
struct mr_sharer {
    struct mr_slice name;
    uint64_t incarnation;
    int64_t started_ms;
    uint64_t owned; /* before: what it owned, 0 nothing; after: what it owns */
};

/*
 * The same among nodes. By a hash: their names count, so that one that starts again gets what it had; of
 * several with the same name all but one are told apart by their incarnations. Round robin: from what they
 * owned, or anew, in the order in which they started, if none of them owned anything. Any order will do,
 * and it is changed. MR_NOMEM.
 */
MR_MUST_USE enum mr_err mr_partitions_share(enum mr_assign how, uint32_t n,
                                            struct mr_sharer *sharers, size_t sharers_n);

#endif
