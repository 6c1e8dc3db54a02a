/* SPDX-License-Identifier: Apache-2.0 */
/* A user of a broker: small requests from the test's thread that must succeed. */
#ifndef MR_TESTS_BROKER_USER_H
#define MR_TESTS_BROKER_USER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/broker.h"

static inline void put(struct mr_broker *broker, struct mr_task_options task)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static inline void ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* A node of the default queue that lives on. */
static inline uint64_t open_node_once(struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 600000,
                                    .events = {.stop = ignore_stop}};
    assert_int_equal(mr_broker_call(broker, &node.req), MR_OK);
    mr_req_done(&node.req);
    return node.node;
}

/* Takes the first task of the default queue for such a node. */
static inline struct mr_lease *take_one(struct mr_broker *broker)
{
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open_node_once(broker), .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    mr_req_done(&take.req);
    assert_int_equal(mr_broker_lease_open(broker, take.leases), MR_OK);
    return take.leases;
}

static inline enum mr_state state_of(struct mr_broker *broker, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    enum mr_err err = mr_broker_call(broker, &req.req);
    enum mr_state state = err == MR_OK ? req.task.state : MR_STATE_NONE;
    mr_req_done(&req.req);
    return state;
}

#endif
