/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a queue with limits does beside the others. It has a limiter; all that a queue without one pays is
 * the look whether it has.
 *
 * A permit is what a limit gives: for the whole queue, for one type, for one key. It knows how many tasks
 * are in hand under it and when the last ones were handed out, by the monotonic clock. A track is what
 * waits behind the same permits in one partition: tasks that a take came by and had to pass over, in their
 * order. So a task is passed over once, and from then on a take looks at tracks only: those that may be
 * taken from are in a heap by their first task, those that may not wait at the permit that keeps them back.
 * Tasks that no take has come by yet are fresh.
 *
 * The partition's own order has all of them, for those who look at the queue. Nothing here is on disk: at a
 * start all tasks are fresh, and a rate counts as used up until its span has passed.
 *
 *   limiter.c  permits, tracks, and the sets of a queue's partitions
 *   limit.c    the limits of a queue change, are asked for, and tasks are handed out under them
 */
#ifndef MR_EMBEDDED_LIMIT_H
#define MR_EMBEDDED_LIMIT_H

#include "broker/embedded/engine.h"

enum { PERMIT_TYPE, PERMIT_KEY, PERMITS }; /* of a track */

/* When tasks were handed out, oldest first, in ns: a ring. */
struct times {
    int64_t *at;
    uint32_t head, n, cap;
};

struct permit {
    uint32_t next_free; /* the slab's */
    uint32_t handle;    /* its own; NO_HANDLE: it is of the whole queue */
    uint8_t scope;      /* enum mr_limit_scope */
    uint8_t name_len;
    uint16_t queue;
    uint32_t rate, concurrency; /* 0: no limit */
    int64_t span_ns;
    int64_t not_before_ns; /* the rate is used up until then: nobody knows what was before */
    uint32_t active;       /* in hand */
    uint32_t tracks;       /* that refer to it */
    struct times times;
    struct mr_heap *waiting; /* by partition: tracks that it keeps back, by their first task */
    unsigned waiting_n;
    struct mr_timer timer; /* until it is free again, or until it is forgotten */
    struct mr_link link;   /* of its limiter */
    struct limiter *limiter;
    char name[MR_NAME_MAX];
};

enum track_place { TRACK_NOWHERE, TRACK_READY, TRACK_WAITS };

struct track {
    uint32_t next_free; /* the slab's; refs says whether the rest counts */
    uint32_t handle;    /* its own */
    uint32_t refs;      /* tasks in it, tasks in hand, and the limiter's choice */
    uint32_t permits[PERMITS];
    uint8_t part, place;
    uint16_t queue;
    uint32_t waits_at; /* permit */
    struct order parked;
    struct mr_heap_node node; /* by its first task, in the ready ones or at a permit */
    struct mr_link link;      /* of its limiter */
};

/* A task in a track. */
struct parked {
    uint32_t next_free; /* the slab's */
    uint32_t task, track;
};

struct limiter {
    struct limits *all;
    struct queue *queue;
    struct permit whole;
    bool split; /* there are limits for types or keys: the sets below are kept */
    uint32_t chosen;
    struct mr_link permits, tracks;
    struct {
        struct order fresh;
        struct mr_heap ready; /* tracks */
    } parts[MR_PARTITIONS_MAX];
};

/* Of all queues. */
struct limits {
    struct mr_engine *engine;
    struct slab permits, tracks, parked;
    struct mr_map *permit_by_name, *track_by_permits, *parked_by_task;
    bool looking;   /* a take has not come to the end of what it has to pass over */
    size_t readied; /* retries of classes of their own that became pending in this turn */
};

static inline struct permit *permit_at(const struct limits *all, uint32_t handle)
{
    return slab_at(&all->permits, handle);
}
static inline struct track *track_at(const struct limits *all, uint32_t handle)
{
    return slab_at(&all->tracks, handle);
}

/* ---- limiter.c ------------------------------------------------------------------------------ */

void permit_init(struct permit *permit, struct limiter *limiter);
void permit_done(struct permit *permit);
/* What the limit says from now on; NULL: nothing. */
void permit_set(struct permit *permit, const struct mr_limit *limit);
bool permit_is_free(const struct permit *permit);
/* When its rate lets the next one go; 0: now. */
int64_t permit_rate_free_ns(const struct permit *permit);
MR_MUST_USE enum mr_err permit_take(struct permit *permit);
/* Of a type or a key; NULL: there is none. */
struct permit *permit_find(const struct limiter *limiter, enum mr_limit_scope scope,
                           struct mr_slice name);
void permit_drop(struct limits *all, struct permit *permit);
/* It may have become free: the first of those that wait at it may go. */
void permit_settle(struct limits *all, struct permit *permit);

/* The track of what has this type and key, made if need be. NO_HANDLE: no limit is for it. */
MR_MUST_USE enum mr_err track_get(struct limiter *limiter, unsigned part, struct mr_slice type,
                                  struct mr_slice key, uint32_t *ret_track);
void track_unref(struct limits *all, uint32_t handle);
/* The permit that keeps it back; NO_HANDLE: none. */
uint32_t track_blocked_by(const struct limits *all, const struct track *track);
/* It is found to be kept back. */
MR_MUST_USE enum mr_err track_wait(struct limits *all, uint32_t handle, uint32_t permit);
/* A fresh task is passed over. */
MR_MUST_USE enum mr_err track_park(struct limits *all, uint32_t handle, uint32_t task);

/* For the maps; arg is struct limits. */
uint64_t permit_hash(uint32_t handle, void *arg);
bool permit_equal(uint32_t handle, const void *key, void *arg);
uint64_t track_hash(uint32_t handle, void *arg);
bool track_equal(uint32_t handle, const void *key, void *arg);
uint64_t parked_hash(uint32_t handle, void *arg);
bool parked_equal(uint32_t handle, const void *key, void *arg);

/* Whether its partitions have something to take. */
void limiter_fill(struct limiter *limiter, unsigned part);
void limiter_fill_all(struct limiter *limiter);
/* It knows of no task, waiting or in hand; what was handed out when it does. */
void limiter_clear(struct limiter *limiter);
/* All that wait are fresh. */
MR_MUST_USE enum mr_err limiter_freshen(struct limiter *limiter);

#endif
