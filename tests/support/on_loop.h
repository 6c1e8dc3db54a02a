/* SPDX-License-Identifier: Apache-2.0 */
/* Doing things on the loop of an rpc from the thread of a test: posted there and waited for. */
#ifndef MR_TESTS_ON_LOOP_H
#define MR_TESTS_ON_LOOP_H

#include "base/list.h"
#include "rpc/rpc.h"

static const int64_t patience_ns = 60 * MR_NS_PER_S;

struct posted {
    struct mr_msg msg;
    struct mr_event done;
    void (*run)(void *arg);
    void *arg;
};

static inline void run_posted(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct posted *posted = mr_container(msg, struct posted, msg);
    posted->run(posted->arg);
    mr_event_set(&posted->done);
}

static inline void on_loop(struct mr_rpc *rpc, void (*run)(void *arg), void *arg)
{
    struct posted posted = {.msg.deliver = run_posted, .run = run, .arg = arg};
    mr_event_init(&posted.done);
    mr_rpc_post(rpc, &posted.msg);
    mr_assert(mr_event_wait(&posted.done, patience_ns));
}

#endif
