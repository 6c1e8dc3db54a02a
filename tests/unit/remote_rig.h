/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store, a server on it, a piece of network that the test holds in its hand, and the remote engine at
 * the far end. Include it in one file of a test program.
 */
#ifndef MR_TESTS_REMOTE_RIG_H
#define MR_TESTS_REMOTE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/embedded/embedded.h"
#include "broker/remote/remote.h"
#include "support/forwarder.h"
#include "support/server_rig.h"

enum { WAIT_MS = 20000, LOOK_MS = 1, STOPS_MAX = 16 };

struct world {
    char dir[128];
    struct mr_broker *store; /* what the server serves; asked directly to see what is true */
    struct server_rig server;
    struct forwarder network;
    struct mr_broker *far;
    uint64_t node;
    uint32_t first_slot;
    _Atomic uint32_t stops_n;
    _Atomic uint64_t stops[STOPS_MAX];
    size_t payload_max; /* of the far end */
    struct mr_lock lock;
    enum mr_err refused; /* the last one */
    char why[512];
};

static inline void look_again(int *looks)
{
    assert_true(++*looks < WAIT_MS / LOOK_MS);
    (void)poll(NULL, 0, LOOK_MS);
}
#define WAIT_UNTIL(cond)                                                                           \
    for (int looks_ = 0; !(cond);)                                                                 \
    look_again(&looks_)

/* ---- the world ------------------------------------------------------------------------------ */

static inline void open_store(struct world *w)
{
    struct mr_embedded_options options = {.dir = w->dir, .segment_bytes = 16 * 1024 * 1024};
    assert_int_equal(mr_embedded_open(&options, &w->store, NULL), MR_OK);
    assert_int_equal(server_rig_start(&w->server, w->store), MR_OK);
}

static inline void note_refusal(enum mr_err err, const char *text, void *arg)
{
    struct world *w = arg;
    mr_lock_enter(&w->lock);
    w->refused = err;
    (void)snprintf(w->why, sizeof w->why, "%s", text);
    mr_lock_leave(&w->lock);
}

/* What was said with the last refusal. */
static inline void assert_refusal(struct world *w, enum mr_err err, const char *part)
{
    mr_lock_enter(&w->lock);
    enum mr_err refused = w->refused;
    bool said = strstr(w->why, part) != NULL;
    mr_lock_leave(&w->lock);
    assert_int_equal(refused, err);
    assert_true(said);
}

static inline void open_far(struct world *w, const char *token)
{
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", w->network.port);
    struct mr_remote_options options = {.address = address,
                                        .open_ms = WAIT_MS,
                                        .away_ms = 2000,
                                        .token = token,
                                        .payload_max = w->payload_max,
                                        .refused = note_refusal,
                                        .refused_arg = w};
    assert_int_equal(mr_remote_open(&options, &w->far, NULL), MR_OK);
}

static inline int begin(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(w->dir, sizeof w->dir, "%s/millrace-remote-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(w->dir));
    mr_lock_init(&w->lock);
    open_store(w);
    assert_int_equal(forwarder_start(&w->network, w->server.port), MR_OK);
    open_far(w, NULL);
    *state = w;
    return 0;
}

static inline void remove_store(const char *dir)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static inline int end(void **state)
{
    struct world *w = *state;
    mr_broker_close(w->far);
    forwarder_stop(&w->network);
    server_rig_stop(&w->server, 0);
    mr_broker_close(w->store);
    remove_store(w->dir);
    mr_lock_done(&w->lock);
    free(w);
    return 0;
}

/* As a kill would: nothing is said to anybody. */
static inline void stop_server(struct world *w)
{
    w->network.refuse = true;
    forwarder_cut(&w->network);
    server_rig_stop(&w->server, 0);
    mr_broker_close(w->store);
    w->store = NULL;
}

static inline void start_server(struct world *w)
{
    open_store(w);
    w->network.to = w->server.port;
    w->network.refuse = false;
}

/* ---- requests ------------------------------------------------------------------------------- */

static inline enum mr_err put(struct mr_broker *broker, const struct mr_task_options *task,
                              struct mr_enqueue_result *result)
{
    struct mr_req_enqueue req = {.req.op = MR_OP_ENQUEUE, .tasks = task, .n = 1, .results = result};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static inline void put_id(struct world *w, const char *id)
{
    struct mr_task_options task = {.id = mr_slice_str(id), .retention_ms = 3600000};
    struct mr_enqueue_result result;
    assert_int_equal(put(w->store, &task, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
}

/* Looked up where the truth is. */
static inline struct mr_task task_of(struct world *w, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    struct mr_task task = {.state = MR_STATE_NONE};
    if (mr_broker_call(w->store, &req.req) == MR_OK)
        task = req.task;
    mr_req_done(&req.req);
    return task; /* its numbers: the slices are gone */
}

static inline enum mr_state state_of(struct world *w, const char *id)
{
    return task_of(w, id).state;
}

static inline uint64_t tasks_in_store(struct world *w)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(mr_broker_call(w->store, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats.tasks;
}

static inline enum mr_err look(struct world *w)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    enum mr_err err = mr_broker_call(w->far, &req.req);
    mr_req_done(&req.req);
    return err;
}

static inline void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct world *w = arg;
    if (reason == MR_STOP_LOST && w->stops_n < STOPS_MAX)
        w->stops[w->stops_n++] = epoch;
}

static inline enum mr_err try_open_node(struct world *w, int64_t lease_ms)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {
        .req.op = MR_OP_NODE_OPEN,
        .name = MR_SLICE_LIT("far"),
        .queues = &queue,
        .queues_n = 1,
        .slots = 4,
        .lease_ms = lease_ms,
        .events = {.stop = on_stop, .arg = w},
    };
    enum mr_err err = mr_broker_call(w->far, &req.req);
    mr_req_done(&req.req);
    w->node = req.node;
    w->first_slot = req.first_slot;
    return err;
}

static inline void open_node(struct world *w)
{
    assert_int_equal(try_open_node(w, 60000), MR_OK);
}

static inline enum mr_err beat(struct world *w)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = w->node};
    enum mr_err err = mr_broker_call(w->far, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* Something under way. */
struct flight {
    union {
        struct mr_req req;
        struct mr_req_take take;
        struct mr_req_finish finish;
        struct mr_req_enqueue enqueue;
        struct mr_req_node_open open;
    };
    struct mr_event done;
    struct mr_worker_queue queue;
    struct mr_finish item;
    struct mr_task_options task;
    struct mr_enqueue_result result;
    enum mr_err err;
};

static inline void flight_done(struct mr_req *req)
{
    mr_event_set(&((struct flight *)req->arg)->done);
}

static inline void flight_start(struct world *w, struct flight *flight, enum mr_op op)
{
    mr_event_init(&flight->done);
    flight->req = (struct mr_req){.op = op, .done = flight_done, .arg = flight};
    mr_broker_submit(w->far, &flight->req);
}

static inline enum mr_err flight_end(struct flight *flight)
{
    assert_true(mr_event_wait(&flight->done, WAIT_MS * MR_NS_PER_MS));
    mr_req_done(&flight->req);
    return flight->req.err;
}

static inline void open_start(struct world *w, struct flight *flight)
{
    *flight = (struct flight){.queue.name = MR_SLICE_LIT("default")};
    flight->open.name = MR_SLICE_LIT("far");
    flight->open.queues = &flight->queue;
    flight->open.queues_n = 1;
    flight->open.slots = 4;
    flight->open.lease_ms = 60000;
    flight->open.events.stop = on_stop;
    flight->open.events.arg = w;
    flight_start(w, flight, MR_OP_NODE_OPEN);
}

static inline void take_start(struct world *w, struct flight *flight, size_t max)
{
    *flight = (struct flight){0};
    flight->take.node = w->node;
    flight->take.max = max;
    flight->take.wait_ms = WAIT_MS;
    flight_start(w, flight, MR_OP_TAKE);
}

static inline struct mr_lease *take(struct world *w, size_t max, size_t expected)
{
    struct flight flight;
    take_start(w, &flight, max);
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.take.n, expected);
    for (struct mr_lease *lease = flight.take.leases; lease != NULL; lease = lease->next)
        assert_int_equal(mr_broker_lease_open(w->far, lease), MR_OK);
    return flight.take.leases;
}

static inline void finish_start(struct world *w, struct flight *flight,
                                const struct mr_lease *lease)
{
    *flight = (struct flight){
        .item = {
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE}};
    flight->finish.items = &flight->item;
    flight->finish.n = 1;
    flight->finish.errs = &flight->err;
    flight_start(w, flight, MR_OP_FINISH);
}

static inline enum mr_err finish(struct world *w, const struct mr_lease *lease)
{
    struct flight flight;
    finish_start(w, &flight, lease);
    enum mr_err err = flight_end(&flight);
    return err != MR_OK ? err : flight.err;
}

static inline void enqueue_start(struct world *w, struct flight *flight,
                                 struct mr_task_options task)
{
    *flight = (struct flight){.task = task};
    flight->enqueue.tasks = &flight->task;
    flight->enqueue.n = 1;
    flight->enqueue.results = &flight->result;
    flight_start(w, flight, MR_OP_ENQUEUE);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

#endif
