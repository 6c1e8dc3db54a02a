/* SPDX-License-Identifier: Apache-2.0 */
/* Three servers, each behind a piece of network that can be cut, and the engine of several servers at them. For the
 * test_many programs. */
#ifndef MR_TESTS_MANY_RIG_H
#define MR_TESTS_MANY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/door.h"
#include "broker/embedded/embedded.h"
#include "broker/many/many.h"
#include "support/forwarder.h"
#include "support/full_broker.h"
#include "support/on_loop.h"
#include "support/server_rig.h"
#include "unit/temp_dir.h"

enum { SERVERS = 3, WAIT_MS = 20000, LEASE_MS = 60000, STOPS_MAX = 64 };

struct server {
    char dir[128];
    struct mr_broker *store; /* NULL: it is down */
    struct server_rig rig;
    struct forwarder net;
    char address[64]; /* of the network before it */
};

struct world {
    char dir[TEMP_DIR_MAX];
    struct server servers[SERVERS];
    struct mr_broker *many;
    uint64_t node;
    uint32_t first_slot;
    struct mr_lock lock;
    uint64_t stops[STOPS_MAX];
    size_t stops_n;
};

static inline mr_mono now(void)
{
    return mr_mono_now(mr_clock_system());
}

static inline void look_for(mr_mono since, const char *what)
{
    struct mr_event never;
    mr_event_init(&never);
    if (now().ns - since.ns > WAIT_MS * MR_NS_PER_MS)
        fail_msg("never: %s", what);
    (void)mr_event_wait(&never, MR_NS_PER_MS);
}
#define WAIT_UNTIL(cond)                                                                           \
    for (mr_mono since_ = now(); !(cond);)                                                         \
    look_for(since_, #cond)

/* ---- servers -------------------------------------------------------------------------------- */

static inline void server_up(struct server *s)
{
    struct mr_embedded_options options = {.dir = s->dir, .segment_bytes = 1024 * 1024};
    struct mr_detail detail = {.text = ""};
    assert_int_equal(mr_embedded_open(&options, &s->store, &detail), MR_OK);
    assert_int_equal(server_rig_start(&s->rig, s->store), MR_OK);
    s->net.refuse = false;
}

/* Its port may be another program's from now on. */
static inline void server_down(struct server *s)
{
    if (s->store == NULL)
        return;
    s->net.refuse = true;
    server_rig_stop(&s->rig, 0);
    mr_broker_close(s->store);
    s->store = NULL;
}

static inline void open_many(struct world *w, size_t n)
{
    const char *addresses[SERVERS];
    struct mr_many_options options = {
        .servers = addresses, .servers_n = n, .server.away_ms = 300, .ask_ms = 200, .fan_ms = 1000};
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    for (size_t i = 0; i < n; i++)
        addresses[i] = w->servers[i].address;
    assert_int_equal(mr_many_open(&options, &w->many, NULL), MR_OK);
    for (size_t i = 0; i < n; i++)
        WAIT_UNTIL(mr_many_servers(w->many, found) == n && found[i].up);
}

static inline int begin(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    temp_dir_make(w->dir);
    mr_lock_init(&w->lock);
    for (size_t i = 0; i < SERVERS; i++) {
        struct server *s = &w->servers[i];
        (void)snprintf(s->dir, sizeof s->dir, "%s/%zu", w->dir, i);
        server_up(s);
        assert_int_equal(forwarder_start(&s->net, s->rig.port), MR_OK);
        (void)snprintf(s->address, sizeof s->address, "127.0.0.1:%u", s->net.port);
    }
    *state = w;
    return 0;
}

static inline int end(void **state)
{
    struct world *w = *state;
    mr_broker_close(w->many);
    for (size_t i = 0; i < SERVERS; i++) {
        forwarder_stop(&w->servers[i].net);
        server_down(&w->servers[i]);
    }
    mr_lock_done(&w->lock);
    temp_dir_remove(w->dir);
    free(w);
    return 0;
}

struct change {
    struct world *w;
    size_t first, n;
};

static inline void change_list(void *arg)
{
    const struct change *change = arg;
    const char *addresses[SERVERS];
    for (size_t i = 0; i < change->n; i++)
        addresses[i] = change->w->servers[change->first + i].address;
    mr_assert(mr_many_set_servers(change->w->many, addresses, change->n) == MR_OK);
}

static inline void set_servers(struct world *w, size_t first, size_t n)
{
    struct change change = {w, first, n};
    on_loop(mr_many_rpc(w->many), change_list, &change);
}

struct listing {
    struct world *w;
    const char *addresses[2];
    size_t n;
    enum mr_err err;
};

static inline void set_list(void *arg)
{
    struct listing *list = arg;
    list->err = mr_many_set_servers(list->w->many, list->addresses, list->n);
}

/* How many tasks a server has in a state. */
static inline uint64_t count(struct mr_broker *broker, enum mr_state state)
{
    struct mr_queue_info info = {.name = ""};
    struct mr_req_queue_list req = {
        .req = {.op = MR_OP_QUEUE_LIST}, .only = MR_SLICE_LIT("q"), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err == MR_OK ? info.counts[state] : 0;
}

static inline uint64_t count_at(const struct world *w, size_t i, enum mr_state state)
{
    return count(w->servers[i].store, state);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static inline struct mr_enqueue_result put(struct mr_broker *broker, const char *id)
{
    struct mr_task_options task = {
        .queue = MR_SLICE_LIT("q"), .id = mr_slice_str(id), .retention_ms = MR_MS_PER_DAY};
    struct mr_enqueue_result result = {.unknown = true}; /* until it is answered */
    struct mr_req_enqueue req = {
        .req = {.op = MR_OP_ENQUEUE}, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        assert_int_equal(result.err, err);
    return result;
}

static inline enum mr_state state_of(struct mr_broker *broker, const char *id)
{
    struct mr_req_get req = {.req = {.op = MR_OP_GET}, .id = mr_slice_str(id)};
    enum mr_err err = mr_broker_call(broker, &req.req);
    enum mr_state state = err == MR_OK ? req.task.state : MR_STATE_NONE;
    mr_req_done(&req.req);
    return state;
}

static inline void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct world *w = arg;
    mr_lock_enter(&w->lock);
    if (reason == MR_STOP_LOST && w->stops_n < STOPS_MAX)
        w->stops[w->stops_n++] = epoch;
    mr_lock_leave(&w->lock);
}

static inline size_t stops(struct world *w)
{
    mr_lock_enter(&w->lock);
    size_t n = w->stops_n;
    mr_lock_leave(&w->lock);
    return n;
}

static inline void open_node(struct world *w, int64_t lease_ms)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_req_node_open req = {.req = {.op = MR_OP_NODE_OPEN},
                                   .name = MR_SLICE_LIT("worker"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 4,
                                   .lease_ms = lease_ms,
                                   .events = {.stop = on_stop, .arg = w}};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    mr_req_done(&req.req);
    w->node = req.node;
    w->first_slot = req.first_slot;
}

static inline size_t nodes_at(const struct world *w, size_t i)
{
    struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
    assert_int_equal(mr_broker_call(w->servers[i].store, &req.req), MR_OK);
    size_t n = req.n;
    mr_req_done(&req.req);
    return n;
}

static inline void await_attached(const struct world *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WAIT_UNTIL(nodes_at(w, i) == 1);
}

static inline enum mr_err take(struct world *w, size_t max, int64_t wait_ms,
                               struct mr_lease **ret_leases, size_t *ret_n)
{
    struct mr_req_take req = {
        .req = {.op = MR_OP_TAKE}, .node = w->node, .max = max, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    *ret_leases = req.leases;
    *ret_n = req.n;
    return err;
}

static inline struct mr_lease *take_one(struct world *w)
{
    struct mr_lease *lease;
    size_t n;
    assert_int_equal(take(w, 1, WAIT_MS, &lease, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(mr_broker_lease_open(w->many, lease), MR_OK);
    return lease;
}

static inline enum mr_err finish(struct world *w, const struct mr_lease *lease)
{
    enum mr_err one;
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    struct mr_req_finish req = {.req = {.op = MR_OP_FINISH}, .items = &item, .n = 1, .errs = &one};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : one;
}

static inline enum mr_err beat(struct world *w)
{
    struct mr_req_beat req = {.req = {.op = MR_OP_BEAT}, .node = w->node};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err;
}

static inline void answered(struct mr_req *req)
{
    mr_event_set(req->arg);
}

#endif
