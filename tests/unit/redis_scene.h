/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis for a test program, and for each of its tests a broker on it, empty, and a node that works. */
#ifndef MR_TESTS_REDIS_SCENE_H
#define MR_TESTS_REDIS_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"

#define Q "asynq:{default}:"

enum { WAIT_MS = 20000, LEASE_MS = 60000 };

static struct redis_rig *rig;

static inline struct redis_rig_server *server(void)
{
    return redis_rig_server(rig, 0);
}

struct scene {
    struct mr_broker *broker;
    uint64_t node;
    uint32_t first_slot;
    _Atomic uint64_t cancelled;
    char refusal[256]; /* what Redis said last, as it is told */
    _Atomic int refusals;
};

static inline void note_refusal(enum mr_err err, const char *text, void *arg)
{
    struct scene *scene = arg;
    (void)err;
    (void)snprintf(scene->refusal, sizeof scene->refusal, "%s", text);
    atomic_fetch_add(&scene->refusals, 1);
}

static inline void stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct scene *scene = arg;
    if (reason == MR_STOP_CANCEL)
        atomic_store(&scene->cancelled, epoch);
}

static inline void open_node_of(struct scene *scene, const struct mr_worker_queue *queues, size_t n)
{
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("node"),
                                   .queues = queues,
                                   .queues_n = n,
                                   .slots = 4,
                                   .lease_ms = LEASE_MS,
                                   .events = {.stop = stop, .arg = scene}};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    scene->node = req.node;
    scene->first_slot = req.first_slot;
    mr_req_done(&req.req);
}

static inline void open_node(struct scene *scene)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default"), .weight = 3};
    open_node_of(scene, &queue, 1);
}

static inline int setup(void **state)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct mr_redis_broker_options options = {
        .url = redis_rig_url(rig), .archive_max = 2, .refused = note_refusal, .refused_arg = scene};
    assert_non_null(scene);
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "0");
    RIG_ALL(rig, "FLUSHALL");
    assert_int_equal(mr_redis_broker_open(&options, &scene->broker, NULL), MR_OK);
    *state = scene;
    return 0;
}

static inline int teardown(void **state)
{
    struct scene *scene = *state;
    mr_broker_close(scene->broker);
    free(scene);
    return 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

static inline enum mr_err put(struct scene *scene, struct mr_task_options task)
{
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = mr_broker_call(scene->broker, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : result.err;
}
#define PUT_OK(scene, ...)                                                                         \
    assert_int_equal(put(scene, (struct mr_task_options){__VA_ARGS__}), MR_OK)

/* NULL: nothing came in time. */
static inline struct mr_lease *take(struct scene *scene, int64_t wait_ms)
{
    struct mr_req_take req = {
        .req.op = MR_OP_TAKE, .node = scene->node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(scene->broker, &req.req);
    mr_req_done(&req.req);
    if (err == MR_EMPTY)
        return NULL;
    assert_int_equal(err, MR_OK);
    assert_int_equal(mr_broker_lease_open(scene->broker, req.leases), MR_OK);
    return req.leases;
}

static inline struct mr_lease *take_id(struct scene *scene, const char *id)
{
    struct mr_lease *lease = take(scene, WAIT_MS);
    assert_non_null(lease);
    assert_true(mr_slice_equal(lease->task.id, mr_slice_str(id)));
    return lease;
}

static inline enum mr_err finish(struct scene *scene, struct mr_lease *lease, struct mr_finish item)
{
    enum mr_err err;
    item.id = lease->task.id;
    item.epoch = lease->epoch;
    item.ref = lease->ref;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(scene->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    mr_lease_free(lease);
    return err;
}
#define FINISH(scene, lease, ...) finish(scene, lease, (struct mr_finish){__VA_ARGS__})

static inline int64_t elapsed_ms(mr_mono since)
{
    return (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
}

/* As a client of Asynq's writes it. */
static inline void put_as_others(const char *id, const char *state)
{
    char key[128], message[256];
    (void)snprintf(key, sizeof key, Q "t:%s", id);
    (void)snprintf(message, sizeof message,
                   "\n\x01t\x1a%c%s\"\x07"
                   "default",
                   (int)strlen(id), id);
    RIG(server(), "SADD", "asynq:queues", "default");
    RIG(server(), "HSET", key, "msg", message, "state", state);
}

static inline void push_as_others(const char *id)
{
    put_as_others(id, "pending");
    RIG(server(), "EVAL", "return redis.call('LPUSH', KEYS[1], ARGV[1])", "1", Q "pending", id);
}

/* What is acknowledged survives the end of the server. */
static inline int run_scenes(const char *name, const struct CMUnitTest *tests, size_t n)
{
    struct redis_rig_options options = {.config = "appendonly yes\nappendfsync always\n"};
    rig = redis_rig_standalone(&options);
    int failed = _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}

#endif
