/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hierarchical timing wheel: O(1) start and stop, ticks of 1 ms, any range, never early. Time is an
 * argument: whole ticks that the caller counts from its own monotonic clock. Intrusive: a timer
 * costs its own 32 bytes. Thread: the owner.
 */
#ifndef MR_WHEEL_WHEEL_H
#define MR_WHEEL_WHEEL_H

#include "base/err.h"
#include "base/list.h"

struct mr_wheel;

struct mr_timer {
    struct mr_link link; /* in no list while stopped */
    uint64_t due;        /* tick at which it fires, at the earliest */
    void (*fire)(struct mr_timer *timer, void *arg);
};

#define MR_TICK_NEVER UINT64_MAX

MR_MUST_USE enum mr_err mr_wheel_new(uint64_t now, struct mr_wheel **ret_wheel);
/* Timers that still run are forgotten, not touched. NULL is fine. */
void mr_wheel_free(struct mr_wheel *wheel);
void mr_timer_init(struct mr_timer *timer, void (*fire)(struct mr_timer *timer, void *arg));
/* Starts, or moves a running timer. A due that has passed fires at the next advance. */
void mr_wheel_start(struct mr_wheel *wheel, struct mr_timer *timer, uint64_t due);
/* Fine on a stopped timer. */
void mr_wheel_stop(struct mr_wheel *wheel, struct mr_timer *timer);
bool mr_timer_running(const struct mr_timer *timer);
/* Fires everything due up to and including now, in order of due tick, then of starting; a fire
 * function may start, stop and free any timer. What it starts for a tick still ahead fires in its
 * turn, in the same advance when now covers it; what it starts for the tick being fired or an
 * earlier one waits for the next advance, so that no timer keeps its own advance from ending.
 * Returns how many fired. now never goes back. */
size_t mr_wheel_advance(struct mr_wheel *wheel, uint64_t now, void *arg);
/* A tick not later than the first due timer and later than now: when to call advance again.
 * The very next tick when a started timer is due already, MR_TICK_NEVER when there is no timer.
 * Exact when the first timer is within the lowest level. */
uint64_t mr_wheel_next(const struct mr_wheel *wheel);
/* O(n); asserts that every timer is in the slot of its due tick. */
void mr_wheel_validate(const struct mr_wheel *wheel);

#endif
