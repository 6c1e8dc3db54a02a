/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of several servers: three of them, each behind a piece of network that can be cut. What it does at one
 * server is the conformance suite's.
 */
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

static mr_mono now(void)
{
    return mr_mono_now(mr_clock_system());
}

static void look_for(mr_mono since, const char *what)
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

static void server_up(struct server *s)
{
    struct mr_embedded_options options = {.dir = s->dir, .segment_bytes = 1024 * 1024};
    struct mr_detail detail = {.text = ""};
    assert_int_equal(mr_embedded_open(&options, &s->store, &detail), MR_OK);
    assert_int_equal(server_rig_start(&s->rig, s->store), MR_OK);
    s->net.refuse = false;
}

/* Its port may be another program's from now on. */
static void server_down(struct server *s)
{
    if (s->store == NULL)
        return;
    s->net.refuse = true;
    server_rig_stop(&s->rig, 0);
    mr_broker_close(s->store);
    s->store = NULL;
}

static void open_many(struct world *w, size_t n)
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

static int begin(void **state)
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

static int end(void **state)
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

static void change_list(void *arg)
{
    const struct change *change = arg;
    const char *addresses[SERVERS];
    for (size_t i = 0; i < change->n; i++)
        addresses[i] = change->w->servers[change->first + i].address;
    mr_assert(mr_many_set_servers(change->w->many, addresses, change->n) == MR_OK);
}

static void set_servers(struct world *w, size_t first, size_t n)
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

static void set_list(void *arg)
{
    struct listing *list = arg;
    list->err = mr_many_set_servers(list->w->many, list->addresses, list->n);
}

/* How many tasks a server has in a state. */
static uint64_t count(struct mr_broker *broker, enum mr_state state)
{
    struct mr_queue_info info = {.name = ""};
    struct mr_req_queue_list req = {
        .req = {.op = MR_OP_QUEUE_LIST}, .only = MR_SLICE_LIT("q"), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err == MR_OK ? info.counts[state] : 0;
}

static uint64_t count_at(const struct world *w, size_t i, enum mr_state state)
{
    return count(w->servers[i].store, state);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static struct mr_enqueue_result put(struct mr_broker *broker, const char *id)
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

static enum mr_state state_of(struct mr_broker *broker, const char *id)
{
    struct mr_req_get req = {.req = {.op = MR_OP_GET}, .id = mr_slice_str(id)};
    enum mr_err err = mr_broker_call(broker, &req.req);
    enum mr_state state = err == MR_OK ? req.task.state : MR_STATE_NONE;
    mr_req_done(&req.req);
    return state;
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct world *w = arg;
    mr_lock_enter(&w->lock);
    if (reason == MR_STOP_LOST && w->stops_n < STOPS_MAX)
        w->stops[w->stops_n++] = epoch;
    mr_lock_leave(&w->lock);
}

static size_t stops(struct world *w)
{
    mr_lock_enter(&w->lock);
    size_t n = w->stops_n;
    mr_lock_leave(&w->lock);
    return n;
}

static void open_node(struct world *w, int64_t lease_ms)
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

static size_t nodes_at(const struct world *w, size_t i)
{
    struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
    assert_int_equal(mr_broker_call(w->servers[i].store, &req.req), MR_OK);
    size_t n = req.n;
    mr_req_done(&req.req);
    return n;
}

static void await_attached(const struct world *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        WAIT_UNTIL(nodes_at(w, i) == 1);
}

static enum mr_err take(struct world *w, size_t max, int64_t wait_ms, struct mr_lease **ret_leases,
                        size_t *ret_n)
{
    struct mr_req_take req = {
        .req = {.op = MR_OP_TAKE}, .node = w->node, .max = max, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    *ret_leases = req.leases;
    *ret_n = req.n;
    return err;
}

static struct mr_lease *take_one(struct world *w)
{
    struct mr_lease *lease;
    size_t n;
    assert_int_equal(take(w, 1, WAIT_MS, &lease, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(mr_broker_lease_open(w->many, lease), MR_OK);
    return lease;
}

static enum mr_err finish(struct world *w, const struct mr_lease *lease)
{
    enum mr_err one;
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    struct mr_req_finish req = {.req = {.op = MR_OP_FINISH}, .items = &item, .n = 1, .errs = &one};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : one;
}

static enum mr_err beat(struct world *w)
{
    struct mr_req_beat req = {.req = {.op = MR_OP_BEAT}, .node = w->node};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* ---- producing ------------------------------------------------------------------------------ */

static void test_tasks_go_to_the_servers_in_turn(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 10 * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(count_at(w, i, MR_PENDING), 10);
    assert_int_equal(count(w->many, MR_PENDING), 10 * SERVERS);
}

static void test_the_same_id_meets_the_same_server(void **state)
{
    struct world *w = *state;
    char id[32];
    size_t used = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 30; i++) {
        (void)snprintf(id, sizeof id, "id%zu", i);
        assert_int_equal(put(w->many, id).err, MR_OK);
        assert_int_equal(put(w->many, id).err, MR_CONFLICT);
        assert_int_equal(state_of(w->many, id), MR_PENDING);
    }
    for (size_t i = 0; i < SERVERS; i++)
        used += count_at(w, i, MR_PENDING) > 0;
    assert_int_equal(used, SERVERS);
    assert_int_equal(state_of(w->many, "nobody's"), MR_STATE_NONE);
}

/* By queue, type and payload, where it has no key: the same one meets the same server. */
static void test_what_is_unique_without_a_key_is_so_over_all_servers(void **state)
{
    struct world *w = *state;
    size_t used = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 12; i++) {
        for (size_t again = 0; again < 2 * SERVERS; again++) {
            char payload[16];
            (void)snprintf(payload, sizeof payload, "p%zu", i);
            struct mr_task_options task = {.queue = MR_SLICE_LIT("q"),
                                           .payload = mr_slice_str(payload),
                                           .unique_ms = MR_MS_PER_DAY};
            struct mr_enqueue_result result;
            struct mr_req_enqueue req = {
                .req = {.op = MR_OP_ENQUEUE}, .tasks = &task, .n = 1, .results = &result};
            assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
            mr_req_done(&req.req);
            assert_int_equal(result.err, again == 0 ? MR_OK : MR_DUPLICATE);
        }
    }
    for (size_t i = 0; i < SERVERS; i++)
        used += count_at(w, i, MR_PENDING) > 0;
    assert_true(used > 1);
}

enum { BATCH = 30 };

/* A call with tasks t0, t1 ... */
struct batch {
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    struct mr_req_enqueue req;
    char ids[BATCH][16];
};

static void batch_init(struct batch *batch)
{
    *batch = (struct batch){
        .req = {
            .req.op = MR_OP_ENQUEUE, .tasks = batch->tasks, .n = BATCH, .results = batch->results}};
    for (size_t i = 0; i < BATCH; i++) {
        (void)snprintf(batch->ids[i], sizeof batch->ids[i], "t%zu", i);
        batch->tasks[i] =
            (struct mr_task_options){.queue = MR_SLICE_LIT("q"), .id = mr_slice_str(batch->ids[i])};
    }
}

static void test_a_batch_of_ids_is_split_and_each_has_its_answer(void **state)
{
    struct world *w = *state;
    struct batch batch;
    open_many(w, SERVERS);
    assert_int_equal(put(w->many, "t7").err, MR_OK);
    batch_init(&batch);
    assert_int_equal(mr_broker_call(w->many, &batch.req.req), MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, i == 7 ? MR_CONFLICT : MR_OK);
        assert_string_equal(batch.results[i].id, batch.ids[i]);
    }
    assert_int_equal(count(w->many, MR_PENDING), BATCH);
}

static void answered(struct mr_req *req)
{
    mr_event_set(req->arg);
}

/* Which servers get them is decided when there are some: else who sends one of them again would send it elsewhere. */
static void test_a_batch_that_waited_for_servers_is_where_each_id_is_looked_for(void **state)
{
    struct world *w = *state;
    struct batch batch;
    struct mr_event done;
    open_many(w, SERVERS);
    set_servers(w, 0, 0);
    batch_init(&batch);
    batch.tasks[0].id = (struct mr_slice){0};
    mr_event_init(&done);
    batch.req.req.done = answered;
    batch.req.req.arg = &done;
    mr_broker_submit(w->many, &batch.req.req);
    set_servers(w, 0, SERVERS);
    assert_true(mr_event_wait(&done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(batch.req.req.err, MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, MR_OK);
        if (i > 0) /* the first has no id of its producer's: it is anywhere */
            assert_int_equal(put(w->many, batch.ids[i]).err, MR_CONFLICT);
    }
}

/* What is left of a share goes on by the id of each task, too, not behind that of the first one. */
static void test_what_one_server_has_no_room_for_is_split_again(void **state)
{
    struct world *w = *state;
    struct server *s = &w->servers[0];
    struct full_broker full = {{&full_broker_ops}, s->store};
    struct batch batch;
    server_rig_stop(&s->rig, 0);
    assert_int_equal(server_rig_start(&s->rig, &full.broker), MR_OK);
    open_many(w, SERVERS);
    batch_init(&batch);
    assert_int_equal(mr_broker_call(w->many, &batch.req.req), MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, MR_OK);
        assert_int_equal(put(w->many, batch.ids[i]).err, MR_CONFLICT);
    }
    assert_int_equal(count_at(w, 0, MR_PENDING), 0);
    mr_broker_close(w->many);
    w->many = NULL;
    server_down(s); /* before what stands between goes */
}

static void test_a_dead_server_is_passed_over_and_a_new_one_used(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    server_down(&w->servers[0]);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(count_at(w, 1, MR_PENDING), 20);
    set_servers(w, 1, 2);
    mr_mono since = now();
    while (count_at(w, 2, MR_PENDING) == 0) {
        assert_int_equal(put(w->many, "").err, MR_OK);
        look_for(since, "a new server is used");
    }
    server_up(&w->servers[0]); /* it is in no list any more */
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(count_at(w, 0, MR_PENDING), 0);
}

struct putting {
    struct mr_broker *many;
    struct mr_enqueue_result result;
};

static void *put_main(void *arg)
{
    struct putting *putting = arg;
    putting->result = put(putting->many, "doubtful");
    return NULL;
}

static void test_what_was_sent_goes_to_no_other_server(void **state)
{
    struct world *w = *state;
    struct putting putting;
    pthread_t thread;
    open_many(w, SERVERS);
    putting.many = w->many;
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].net.mute = true;
    assert_int_equal(mr_thread_start(&thread, "put", put_main, &putting), MR_OK);
    uint64_t there = 0;
    WAIT_UNTIL((there = count_at(w, 0, MR_PENDING) + count_at(w, 1, MR_PENDING) +
                        count_at(w, 2, MR_PENDING)) == 1);
    for (size_t i = 0; i < SERVERS; i++) {
        if (count_at(w, i, MR_PENDING) == 1) {
            w->servers[i].net.refuse = true;
            forwarder_cut(&w->servers[i].net);
        }
        w->servers[i].net.mute = false;
    }
    mr_thread_join(thread);
    assert_int_equal(putting.result.err, MR_UNAVAILABLE);
    assert_true(putting.result.unknown);
    assert_string_equal(putting.result.id, "doubtful");
    there = 0;
    for (size_t i = 0; i < SERVERS; i++)
        there += count_at(w, i, MR_PENDING);
    assert_int_equal(there, 1);
}

static void test_without_a_server_it_is_certain_that_nothing_is_there(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        server_down(&w->servers[i]);
    struct mr_enqueue_result result;
    mr_mono since = now();
    do {
        result = put(w->many, "");
        look_for(since, "nobody is there");
    } while (result.unknown);
    assert_int_equal(result.err, MR_UNAVAILABLE);
}

/* ---- looking -------------------------------------------------------------------------------- */

static void test_pages_go_over_all_servers(void **state)
{
    enum { N = 25, LIMIT = 4 };
    struct world *w = *state;
    char cursor[MR_CURSOR_MAX] = "";
    size_t seen = 0, pages = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    do {
        struct mr_req_list req = {
            .req = {.op = MR_OP_LIST},
            .options = {
                .queue = MR_SLICE_LIT("q"), .state = MR_PENDING, .limit = LIMIT, .cursor = cursor}};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        /* All pages but the last are full, and none is empty. */
        assert_true(req.n == LIMIT || (req.n == N % LIMIT && req.next[0] == '\0'));
        seen += req.n;
        pages++;
        memcpy(cursor, req.next, sizeof cursor);
        mr_req_done(&req.req);
    } while (cursor[0] != '\0' && pages < N);
    assert_int_equal(seen, N);
}

/* Nobody says that there is more when the last task of all was shown. */
static void test_a_page_that_has_all_says_so(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(put(w->servers[0].store, "").err, MR_OK);
    struct mr_req_list req = {
        .req = {.op = MR_OP_LIST},
        .options = {.queue = MR_SLICE_LIT("q"), .state = MR_PENDING, .limit = 4}};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    assert_int_equal(req.n, 4);
    assert_string_equal(req.next, "");
    mr_req_done(&req.req);
}

/* Whoever is asked first: it is enough that one of them has a group that is ripe. */
static void test_a_group_is_gathered_without_waiting_wherever_it_is(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 2 * SERVERS; i++) {
        struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .group = MR_SLICE_LIT("g")};
        struct mr_enqueue_result result;
        struct mr_req_enqueue put = {
            .req = {.op = MR_OP_ENQUEUE}, .tasks = &task, .n = 1, .results = &result};
        assert_int_equal(mr_broker_call(w->servers[i % SERVERS].store, &put.req), MR_OK);
        mr_req_done(&put.req);
        struct mr_req_gather gather = {.req = {.op = MR_OP_GATHER},
                                       .queue = MR_SLICE_LIT("q"),
                                       .max_size = 1,
                                       .grace_ms = MR_MS_PER_DAY};
        assert_int_equal(mr_broker_call(w->many, &gather.req), MR_OK);
        assert_int_equal(gather.n, 1);
        mr_req_done(&gather.req);
    }
}

static void test_a_verb_reaches_the_task_wherever_it_is(void **state)
{
    enum { N = 12 };
    struct world *w = *state;
    struct mr_control items[N + 1];
    enum mr_err errs[N + 1];
    char ids[N][16];
    open_many(w, SERVERS);
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "v%zu", i);
        assert_int_equal(put(w->many, ids[i]).err, MR_OK);
        items[i] = (struct mr_control){.verb = MR_VERB_DELETE, .id = mr_slice_str(ids[i])};
    }
    items[N] = (struct mr_control){.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("none")};
    struct mr_req_control req = {
        .req = {.op = MR_OP_CONTROL}, .items = items, .n = N + 1, .errs = errs};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(errs[i], MR_OK);
    assert_int_equal(errs[N], MR_NOT_FOUND);
    assert_int_equal(count(w->many, MR_PENDING), 0);
}

static enum mr_err pause_queue(struct world *w, uint64_t value)
{
    struct mr_req_queue_set req = {.req = {.op = MR_OP_QUEUE_SET},
                                   .queue = MR_SLICE_LIT("q"),
                                   .setting = MR_QUEUE_PAUSED,
                                   .value = value};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* Also where its first task comes later. */
static void test_a_queue_that_is_paused_is_so_at_all_servers(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    assert_int_equal(pause_queue(w, 1), MR_NOT_FOUND);
    assert_int_equal(put(w->servers[1].store, "first").err, MR_OK);
    assert_int_equal(pause_queue(w, 1), MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
    assert_int_equal(take(w, 1, 100, &lease, &n), MR_EMPTY);
    assert_int_equal(pause_queue(w, 0), MR_OK);
    for (size_t i = 0; i < SERVERS + 1; i++) {
        lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
    }
}

/* What it runs is counted wherever it was taken. */
static void test_a_node_is_shown_as_busy_as_it_is(void **state)
{
    struct world *w = *state;
    struct mr_lease *leases[SERVERS];
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        leases[i] = take_one(w);
        mr_broker_begun(w->many, w->first_slot + (uint32_t)i, leases[i]->epoch);
    }
    uint32_t busy = 0;
    for (mr_mono since = now(); busy != SERVERS;) {
        struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        assert_int_equal(req.n, 1);
        assert_int_equal(req.nodes[0].in_hand, SERVERS);
        busy = req.nodes[0].busy;
        mr_req_done(&req.req);
        look_for(since, "all slots are busy");
    }
    for (size_t i = 0; i < SERVERS; i++)
        mr_lease_free(leases[i]);
}

static void test_what_a_dead_server_may_have_is_not_said_to_be_missing(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    server_down(&w->servers[0]);
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    WAIT_UNTIL(mr_many_servers(w->many, found) == SERVERS && !found[0].up);
    struct mr_req_get req = {.req = {.op = MR_OP_GET}, .id = MR_SLICE_LIT("perhaps")};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_UNAVAILABLE);
    mr_req_done(&req.req);
}

static void test_a_node_at_all_servers_is_listed_once(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    assert_int_equal(req.n, 1);
    mr_req_done(&req.req);
}

/* ---- working -------------------------------------------------------------------------------- */

static void test_a_worker_takes_from_all_and_finishes_where_it_took(void **state)
{
    enum { EACH = 5 };
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < EACH * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    for (size_t i = 0; i < EACH * SERVERS; i++) {
        struct mr_lease *lease = take_one(w);
        mr_broker_begun(w->many, w->first_slot, lease->epoch);
        assert_int_equal(finish(w, lease), MR_OK);
        assert_int_equal(finish(w, lease), MR_STALE);
        mr_lease_free(lease);
    }
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(count_at(w, i, MR_COMPLETED), EACH);
}

/* So the first take, which does not wait, finds what there is: a worker that ends when there is nothing depends on it. */
static void test_a_node_that_is_open_is_so_at_all_servers(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(nodes_at(w, i), 1);
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        assert_int_equal(take(w, 1, 0, &lease, &n), MR_OK);
        mr_lease_free(lease);
    }
}

static void test_no_more_is_in_hand_than_was_asked_for(void **state)
{
    struct world *w = *state;
    struct mr_lease *leases;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < 4 * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(take(w, 2, 1000, &leases, &n), MR_OK);
    assert_int_equal(n, 2);
    WAIT_UNTIL(count(w->many, MR_ACTIVE) == 2);
    assert_int_equal(count(w->many, MR_PENDING), 4 * SERVERS - 2);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

static void test_a_take_that_waits_is_woken_by_any_server(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    struct mr_lease *lease;
    size_t n;
    assert_int_equal(take(w, 1, 0, &lease, &n), MR_EMPTY);
    assert_int_equal(take(w, 1, 30, &lease, &n), MR_EMPTY);
    for (size_t i = 0; i < 2 * SERVERS; i++) {
        assert_int_equal(put(w->servers[i % SERVERS].store, "").err, MR_OK);
        lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
    }
}

static void test_what_comes_and_nobody_waits_for_goes_back(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    assert_int_equal(take(w, 1, 30, &lease, &n), MR_EMPTY);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
    lease = take_one(w); /* the others wait where they are, or are there again soon */
    WAIT_UNTIL(count(w->many, MR_PENDING) == SERVERS - 1 && count(w->many, MR_ACTIVE) == 1);
    assert_int_equal(finish(w, lease), MR_OK);
    mr_lease_free(lease);
}

static void test_a_task_in_hand_is_finished_at_a_server_that_left_the_list(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    open_node(w, LEASE_MS);
    await_attached(w, 2);
    assert_int_equal(put(w->servers[0].store, "a").err, MR_OK);
    struct mr_lease *lease = take_one(w);
    set_servers(w, 1, 2);
    WAIT_UNTIL(nodes_at(w, 2) == 1);
    assert_int_equal(put(w->servers[0].store, "b").err, MR_OK);
    assert_int_equal(put(w->servers[2].store, "c").err, MR_OK);
    struct mr_lease *other = take_one(w);
    assert_memory_equal(other->task.id.data, "c", 1); /* nothing new from the one that left */
    assert_int_equal(beat(w), MR_OK);
    assert_int_equal(finish(w, lease), MR_OK);
    assert_int_equal(finish(w, other), MR_OK);
    assert_int_equal(state_of(w->servers[0].store, "a"), MR_COMPLETED);
    WAIT_UNTIL(nodes_at(w, 0) == 0); /* it has taken its leave */
    assert_int_equal(stops(w), 0);
    mr_lease_free(lease);
    mr_lease_free(other);
}

static void test_a_server_that_hangs_costs_its_own_leases_only(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    open_node(w, 3000);
    await_attached(w, 2);
    assert_int_equal(beat(w), MR_OK);
    assert_int_equal(put(w->servers[0].store, "a").err, MR_OK);
    struct mr_lease *lost = take_one(w);
    assert_int_equal(put(w->servers[1].store, "b").err, MR_OK);
    struct mr_lease *kept = take_one(w);
    w->servers[0].net.frozen = true;
    mr_mono since = now();
    while (stops(w) == 0) {
        assert_int_equal(beat(w), MR_OK); /* the other one answers */
        look_for(since, "the fence falls");
    }
    assert_int_equal(w->stops[0], lost->epoch);
    assert_int_equal(finish(w, kept), MR_OK);
    assert_int_equal(put(w->servers[1].store, "c").err, MR_OK);
    struct mr_lease *next = take_one(w);
    assert_memory_equal(next->task.id.data, "c", 1);
    assert_int_equal(finish(w, next), MR_OK);
    assert_int_equal(stops(w), 1);
    w->servers[0].net.frozen = false;
    WAIT_UNTIL(count_at(w, 0, MR_PENDING) == 1); /* the task waits for another run */
    struct mr_lease *again = take_one(w);        /* and the server is worked for again */
    assert_memory_equal(again->task.id.data, "a", 1);
    mr_lease_free(lost);
    mr_lease_free(kept);
    mr_lease_free(next);
    mr_lease_free(again);
}

static void test_a_server_that_was_started_again_is_worked_for_again(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    server_down(&w->servers[1]);
    server_up(&w->servers[1]);
    assert_int_equal(put(w->servers[1].store, "a").err, MR_OK);
    struct mr_lease *lease = take_one(w);
    assert_int_equal(finish(w, lease), MR_OK);
    assert_int_equal(state_of(w->servers[1].store, "a"), MR_COMPLETED);
    mr_lease_free(lease);
}

/* Servers that hang are not waited for one after the other. */
static void test_closing_waits_for_all_at_once(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].net.frozen = true;
    mr_mono since = now();
    mr_broker_close(w->many);
    w->many = NULL;
    assert_true(now().ns - since.ns < (int64_t)2 * MR_DOOR_CLOSE_MS * MR_NS_PER_MS);
}

/* Servers that come, and go for good, each with another address: those that are gone make room. */
static void test_any_number_of_servers_may_come_and_go(void **state)
{
    enum { OTHERS = 2 * MR_MANY_SERVERS_MAX };
    struct world *w = *state;
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    open_many(w, 1);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < OTHERS; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "127.0.0.1:%zu", i + 1); /* nobody listens there */
        struct listing list = {w, {w->servers[0].address, text}, 2, MR_FAILED};
        on_loop(mr_many_rpc(w->many), set_list, &list);
        assert_int_equal(list.err, MR_OK);
        assert_int_equal(mr_many_servers(w->many, found), 2);
        assert_true(found[0].up || found[1].up);
    }
    struct listing list = {w, {w->servers[0].address, w->servers[1].address}, 2, MR_FAILED};
    on_loop(mr_many_rpc(w->many), set_list, &list);
    assert_int_equal(list.err, MR_OK);
    WAIT_UNTIL(nodes_at(w, 1) == 1); /* the node follows */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        struct mr_lease *lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
        assert_int_equal(count_at(w, i, MR_COMPLETED), 1);
    }
}

static void test_the_end_of_a_task_is_waited_for_wherever_it_is(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "w%zu", i);
        assert_int_equal(put(w->servers[i].store, id).err, MR_OK);
        struct mr_req_await req = {
            .req = {.op = MR_OP_AWAIT}, .id = mr_slice_str(id), .wait_ms = 50};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_TIMEOUT);
        mr_req_done(&req.req);
        struct mr_lease *lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
        req = (struct mr_req_await){
            .req = {.op = MR_OP_AWAIT}, .id = mr_slice_str(id), .wait_ms = WAIT_MS};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        assert_int_equal(req.task.state, MR_COMPLETED);
        mr_req_done(&req.req);
    }
}

/* ---- routing alone -------------------------------------------------------------------------- */

/* When a server goes, what was its own is spread over the others, and nothing else moves. */
static void test_only_the_keys_of_a_server_that_goes_move(void **state)
{
    enum { KEYS = 3000, N = 4 };
    uint64_t servers[N];
    size_t before[N] = {0}, after[N] = {0};
    (void)state;
    for (size_t i = 0; i < N; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "10.0.0.%zu:7401", i);
        servers[i] = mr_many_hash(mr_slice_str(name));
    }
    for (size_t i = 0; i < KEYS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "timer-%zu", i);
        uint64_t key = mr_many_hash(mr_slice_str(name));
        size_t first = 0, second = 1;
        for (size_t j = 0; j < N; j++)
            first = mr_many_rank(key, servers[j]) > mr_many_rank(key, servers[first]) ? j : first;
        second = first == 0 ? 1 : 0;
        for (size_t j = 0; j < N; j++)
            if (j != first && mr_many_rank(key, servers[j]) > mr_many_rank(key, servers[second]))
                second = j;
        before[first]++;
        after[first == 0 ? second : first]++;
    }
    for (size_t i = 0; i < N; i++)
        assert_true(before[i] > KEYS / N * 8 / 10 && before[i] < KEYS / N * 12 / 10);
    assert_int_equal(after[0], 0);
    for (size_t i = 1; i < N; i++)
        assert_true(after[i] > before[i] + before[0] / 5 && after[i] < before[i] + before[0] / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tasks_go_to_the_servers_in_turn),
        TEST(test_the_same_id_meets_the_same_server),
        TEST(test_what_is_unique_without_a_key_is_so_over_all_servers),
        TEST(test_a_batch_of_ids_is_split_and_each_has_its_answer),
        TEST(test_a_batch_that_waited_for_servers_is_where_each_id_is_looked_for),
        TEST(test_what_one_server_has_no_room_for_is_split_again),
        TEST(test_a_dead_server_is_passed_over_and_a_new_one_used),
        TEST(test_what_was_sent_goes_to_no_other_server),
        TEST(test_without_a_server_it_is_certain_that_nothing_is_there),
        TEST(test_pages_go_over_all_servers),
        TEST(test_a_page_that_has_all_says_so),
        TEST(test_a_group_is_gathered_without_waiting_wherever_it_is),
        TEST(test_a_verb_reaches_the_task_wherever_it_is),
        TEST(test_what_a_dead_server_may_have_is_not_said_to_be_missing),
        TEST(test_a_queue_that_is_paused_is_so_at_all_servers),
        TEST(test_a_node_is_shown_as_busy_as_it_is),
        TEST(test_a_node_at_all_servers_is_listed_once),
        TEST(test_a_worker_takes_from_all_and_finishes_where_it_took),
        TEST(test_a_node_that_is_open_is_so_at_all_servers),
        TEST(test_no_more_is_in_hand_than_was_asked_for),
        TEST(test_a_take_that_waits_is_woken_by_any_server),
        TEST(test_what_comes_and_nobody_waits_for_goes_back),
        TEST(test_a_task_in_hand_is_finished_at_a_server_that_left_the_list),
        TEST(test_a_server_that_hangs_costs_its_own_leases_only),
        TEST(test_a_server_that_was_started_again_is_worked_for_again),
        TEST(test_closing_waits_for_all_at_once),
        TEST(test_any_number_of_servers_may_come_and_go),
        TEST(test_the_end_of_a_task_is_waited_for_wherever_it_is),
        cmocka_unit_test(test_only_the_keys_of_a_server_that_goes_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
