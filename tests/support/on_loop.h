/* SPDX-License-Identifier: Apache-2.0 */
/* Doing things on the loop of an rpc from the thread of a test: posted there and waited for. */
#ifndef MR_TESTS_ON_LOOP_H
#define MR_TESTS_ON_LOOP_H

#include "base/list.h"
#include "rpc/rpc.h"

static const int64_t patience_ns = 60 * MR_NS_PER_S;

struct errand {
    struct mr_msg msg;
    struct mr_event done;
    void (*run)(void *arg);
    void *arg;
};

static inline void run_errand(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct errand *errand = mr_container(msg, struct errand, msg);
    errand->run(errand->arg);
    mr_event_set(&errand->done);
}

static inline void on_loop(struct mr_rpc *rpc, void (*run)(void *arg), void *arg)
{
    struct errand errand = {.msg.deliver = run_errand, .run = run, .arg = arg};
    mr_event_init(&errand.done);
    mr_rpc_post(rpc, &errand.msg);
    mr_assert(mr_event_wait(&errand.done, patience_ns));
}

#endif
