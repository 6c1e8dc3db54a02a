/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for descriptors and messages at the same time, with epoll. A loop belongs to the thread
 * that calls mr_loop_wait; others send to its inbox.
 */
#ifndef MR_BASE_LOOP_H
#define MR_BASE_LOOP_H

#include "base/chan.h"

struct mr_loop;

enum mr_loop_events {
    MR_LOOP_NONE = 0, /* told of errors only */
    MR_LOOP_READ = 1,
    MR_LOOP_WRITE = 2,
};

/* A descriptor that is watched; embed one in what it stands for. Level-triggered. */
struct mr_watch {
    int fd;
    unsigned events; /* as last asked for; kept by the loop */
    /* events: what is possible; with an error or a hang-up, everything that was asked for. */
    void (*ready)(struct mr_watch *watch, unsigned events);
};

MR_MUST_USE enum mr_err mr_loop_new(struct mr_loop **ret_loop);
void mr_loop_free(struct mr_loop *loop);
/* Whoever sends here ends the wait of a turn. */
struct mr_chan *mr_loop_inbox(struct mr_loop *loop);
MR_MUST_USE enum mr_err mr_loop_add(struct mr_loop *loop, struct mr_watch *watch, unsigned events);
/* What to watch for from now on; no system call when it is what was asked for before. */
void mr_loop_change(struct mr_loop *loop, struct mr_watch *watch, unsigned events);
/* Before the descriptor is closed. From then on ready is not called, also not in this turn. */
void mr_loop_remove(struct mr_loop *loop, struct mr_watch *watch);
/* A turn has two halves, so that its owner can look at the clock between them. Waits up to max_ns
 * (0: not at all; INT64_MAX: for ever) for a descriptor or a message. */
void mr_loop_wait(struct mr_loop *loop, int64_t max_ns);
/* Calls ready for each descriptor that was. Messages are the owner's to take. */
void mr_loop_dispatch(struct mr_loop *loop);

#endif
