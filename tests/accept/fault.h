/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A proxy between a worker and its server that knows where a message ends (a command or an answer of
 * Redis, a frame of HTTP/2), and strikes at the n-th of them: before it goes on to the server, before it
 * goes back to the worker, or right after. All connections together are counted as one.
 */
#ifndef MR_TESTS_ACCEPT_FAULT_H
#define MR_TESTS_ACCEPT_FAULT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum fault_point {
    FAULT_BEFORE_REQUEST, /* the server never gets it */
    FAULT_BEFORE_ANSWER,  /* the server has done it, the worker does not know */
    FAULT_AFTER_ANSWER,
    FAULT_POINTS
};

enum fault_kind {
    FAULT_KILL, /* SIGKILL of the worker; nothing passes any more */
    FAULT_CUT,  /* the connections end; new ones are let through */
};

enum { FAULT_PAIRS = 16 };

struct fault_pipe; /* one direction of one connection */

struct fault {
    uint16_t port; /* where the worker connects */
    uint16_t to;
    bool redis; /* else HTTP/2 */
    enum fault_point point;
    enum fault_kind kind;
    uint64_t nth;         /* 1: the first; 0: never */
    _Atomic pid_t victim; /* set as soon as it is known */
    _Atomic bool fired;
    _Atomic uint64_t requests, answers; /* so many have passed */
    /* Its own. */
    int listen_fd;
    pthread_t thread;
    _Atomic bool stop;
    struct fault_pipe *pipes[FAULT_PAIRS][2];
};

/* Fills port; the rest is the caller's to say, before. */
void fault_start(struct fault *fault);
void fault_stop(struct fault *fault);

#endif
