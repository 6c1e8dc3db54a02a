/* SPDX-License-Identifier: Apache-2.0 */
/* A broker that passes everything on to another one but tasks: for them it has no room. */
#ifndef MR_TESTS_FULL_BROKER_H
#define MR_TESTS_FULL_BROKER_H

#include "broker/broker.h"

struct full_broker {
    struct mr_broker broker;
    struct mr_broker *behind;
};

static inline struct mr_broker *full_behind(struct mr_broker *broker)
{
    return mr_container(broker, struct full_broker, broker)->behind;
}

static inline void full_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_req_enqueue *put = mr_container(req, struct mr_req_enqueue, req);
    if (req->op != MR_OP_ENQUEUE || put->n == 0) {
        mr_broker_submit(full_behind(broker), req);
        return;
    }
    for (size_t i = 0; i < put->n; i++)
        put->results[i] = (struct mr_enqueue_result){.err = MR_DISK_FULL};
    mr_req_answer(req, MR_OK);
}

static inline void full_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    mr_broker_begun(full_behind(broker), slot, epoch);
}

static inline enum mr_err full_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    return mr_broker_lease_open(full_behind(broker), lease);
}

static const struct mr_broker_ops full_broker_ops = {
    .submit = full_submit,
    .begun = full_begun,
    .lease_open = full_lease_open,
    .in_process = true,
};

#endif
