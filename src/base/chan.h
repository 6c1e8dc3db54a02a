/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How threads meet; the only place with locks and futexes.
 *
 * chan: many senders, one receiver. Sending never blocks and makes a system call only when the
 * receiver sleeps; the receiver takes everything there is in one go, in the order of sending.
 * event: one waiter (or more), one word; set once, reset by its owner.
 */
#ifndef MR_BASE_CHAN_H
#define MR_BASE_CHAN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/err.h"

/* Intrusive: embed one in every message. */
struct mr_msg {
    struct mr_msg *next;
    /* What the receiver does with it; set by whoever makes the message, called by the receiver's
     * loop. */
    void (*deliver)(struct mr_msg *msg, void *receiver);
};

struct mr_chan {
    _Atomic(struct mr_msg *) head; /* newest first */
    _Atomic uint32_t sleeping;     /* futex word: awake, sleeping (or about to), or woken */
};

void mr_chan_init(struct mr_chan *chan);
/* Thread: any. The message belongs to the receiver now. */
void mr_chan_send(struct mr_chan *chan, struct mr_msg *msg);
/* Oldest first, NULL when there is none. Thread: the receiver. */
struct mr_msg *mr_chan_take_all(struct mr_chan *chan);
/* Sleeps until there is a message, mr_chan_wake is called or max_ns passed (0: returns at once;
 * INT64_MAX: for ever). Thread: the receiver. */
void mr_chan_wait(struct mr_chan *chan, int64_t max_ns);
/* Ends the receiver's wait without a message; when it does not wait, its next one. Thread: any. */
void mr_chan_wake(struct mr_chan *chan);

struct mr_event {
    _Atomic uint32_t word;
};

void mr_event_init(struct mr_event *event);
/* Thread: any. Wakes every waiter; the event may be gone as soon as a waiter has seen it. */
void mr_event_set(struct mr_event *event);
void mr_event_reset(struct mr_event *event);
/* False when max_ns passed without it. */
bool mr_event_wait(struct mr_event *event, int64_t max_ns);

/* A mutex and condition for modules above that must share a small structure between threads. */
struct mr_lock {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};
void mr_lock_init(struct mr_lock *lock);
void mr_lock_done(struct mr_lock *lock);
void mr_lock_enter(struct mr_lock *lock);
void mr_lock_leave(struct mr_lock *lock);
/* Both with the lock held. False when max_ns passed. */
bool mr_lock_wait(struct mr_lock *lock, int64_t max_ns);
void mr_lock_notify_one(struct mr_lock *lock);
void mr_lock_notify_all(struct mr_lock *lock);

/* Threads with all signals blocked, so that the main thread gets them. name is cut at 15 bytes. */
MR_MUST_USE enum mr_err mr_thread_start(pthread_t *ret_thread, const char *name,
                                        void *(*run)(void *), void *arg);
void mr_thread_join(pthread_t thread);

#endif
