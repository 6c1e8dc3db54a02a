/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote engine when things go wrong between it and its server: cut connections, lost answers,
 * restarts, refusals. What it does when all is well is the conformance suite's.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/embedded/embedded.h"
#include "broker/remote/remote.h"
#include "support/forwarder.h"
#include "support/server_rig.h"
#include "worker/worker.h"

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

static void look_again(int *looks)
{
    assert_true(++*looks < WAIT_MS / LOOK_MS);
    (void)poll(NULL, 0, LOOK_MS);
}
#define WAIT_UNTIL(cond)                                                                           \
    for (int looks_ = 0; !(cond);)                                                                 \
    look_again(&looks_)

/* ---- the world ------------------------------------------------------------------------------ */

static void open_store(struct world *w)
{
    struct mr_embedded_options options = {.dir = w->dir, .segment_bytes = 16 * 1024 * 1024};
    assert_int_equal(mr_embedded_open(&options, &w->store, NULL), MR_OK);
    assert_int_equal(server_rig_start(&w->server, w->store), MR_OK);
}

static void note_refusal(enum mr_err err, const char *text, void *arg)
{
    struct world *w = arg;
    mr_lock_enter(&w->lock);
    w->refused = err;
    (void)snprintf(w->why, sizeof w->why, "%s", text);
    mr_lock_leave(&w->lock);
}

/* What was said with the last refusal. */
static void assert_refusal(struct world *w, enum mr_err err, const char *part)
{
    mr_lock_enter(&w->lock);
    enum mr_err refused = w->refused;
    bool said = strstr(w->why, part) != NULL;
    mr_lock_leave(&w->lock);
    assert_int_equal(refused, err);
    assert_true(said);
}

static void open_far(struct world *w, const char *token)
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

static int begin(void **state)
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

static void remove_store(const char *dir)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static int end(void **state)
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
static void stop_server(struct world *w)
{
    w->network.refuse = true;
    forwarder_cut(&w->network);
    server_rig_stop(&w->server, 0);
    mr_broker_close(w->store);
    w->store = NULL;
}

static void start_server(struct world *w)
{
    open_store(w);
    w->network.to = w->server.port;
    w->network.refuse = false;
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err put(struct mr_broker *broker, const struct mr_task_options *task,
                       struct mr_enqueue_result *result)
{
    struct mr_req_enqueue req = {.req.op = MR_OP_ENQUEUE, .tasks = task, .n = 1, .results = result};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void put_id(struct world *w, const char *id)
{
    struct mr_task_options task = {.id = mr_slice_str(id), .retention_ms = 3600000};
    struct mr_enqueue_result result;
    assert_int_equal(put(w->store, &task, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
}

/* Looked up where the truth is. */
static struct mr_task task_of(struct world *w, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    struct mr_task task = {.state = MR_STATE_NONE};
    if (mr_broker_call(w->store, &req.req) == MR_OK)
        task = req.task;
    mr_req_done(&req.req);
    return task; /* its numbers: the slices are gone */
}

static enum mr_state state_of(struct world *w, const char *id)
{
    return task_of(w, id).state;
}

static uint64_t tasks_in_store(struct world *w)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(mr_broker_call(w->store, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats.tasks;
}

static enum mr_err look(struct world *w)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    enum mr_err err = mr_broker_call(w->far, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct world *w = arg;
    if (reason == MR_STOP_LOST && w->stops_n < STOPS_MAX)
        w->stops[w->stops_n++] = epoch;
}

static enum mr_err try_open_node(struct world *w, int64_t lease_ms)
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

static void open_node(struct world *w)
{
    assert_int_equal(try_open_node(w, 60000), MR_OK);
}

static enum mr_err beat(struct world *w)
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
    };
    struct mr_event done;
    struct mr_finish item;
    struct mr_task_options task;
    struct mr_enqueue_result result;
    enum mr_err err;
};

static void flight_done(struct mr_req *req)
{
    mr_event_set(&((struct flight *)req->arg)->done);
}

static void flight_start(struct world *w, struct flight *flight, enum mr_op op)
{
    mr_event_init(&flight->done);
    flight->req = (struct mr_req){.op = op, .done = flight_done, .arg = flight};
    mr_broker_submit(w->far, &flight->req);
}

static enum mr_err flight_end(struct flight *flight)
{
    assert_true(mr_event_wait(&flight->done, WAIT_MS * MR_NS_PER_MS));
    mr_req_done(&flight->req);
    return flight->req.err;
}

static void take_start(struct world *w, struct flight *flight, size_t max)
{
    *flight = (struct flight){0};
    flight->take.node = w->node;
    flight->take.max = max;
    flight->take.wait_ms = WAIT_MS;
    flight_start(w, flight, MR_OP_TAKE);
}

static struct mr_lease *take(struct world *w, size_t max, size_t expected)
{
    struct flight flight;
    take_start(w, &flight, max);
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.take.n, expected);
    for (struct mr_lease *lease = flight.take.leases; lease != NULL; lease = lease->next)
        assert_int_equal(mr_broker_lease_open(w->far, lease), MR_OK);
    return flight.take.leases;
}

static void finish_start(struct world *w, struct flight *flight, const struct mr_lease *lease)
{
    *flight = (struct flight){
        .item = {
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE}};
    flight->finish.items = &flight->item;
    flight->finish.n = 1;
    flight->finish.errs = &flight->err;
    flight_start(w, flight, MR_OP_FINISH);
}

static enum mr_err finish(struct world *w, const struct mr_lease *lease)
{
    struct flight flight;
    finish_start(w, &flight, lease);
    enum mr_err err = flight_end(&flight);
    return err != MR_OK ? err : flight.err;
}

static void enqueue_start(struct world *w, struct flight *flight, struct mr_task_options task)
{
    *flight = (struct flight){.task = task};
    flight->enqueue.tasks = &flight->task;
    flight->enqueue.n = 1;
    flight->enqueue.results = &flight->result;
    flight_start(w, flight, MR_OP_ENQUEUE);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void a_node_comes_back_and_keeps_its_leases(void **state)
{
    struct world *w = *state;
    open_node(w);
    put_id(w, "a");
    put_id(w, "b");
    struct mr_lease *leases = take(w, 2, 2);
    mr_broker_begun(w->far, w->first_slot, leases->epoch);
    for (int i = 0; i < 3; i++) {
        forwarder_cut(&w->network);
        assert_int_equal(beat(w), MR_OK);
    }
    assert_int_equal(finish(w, leases), MR_OK);
    assert_int_equal(finish(w, leases->next), MR_OK);
    assert_int_equal(w->stops_n, 0);
    assert_int_equal(task_of(w, "a").crashes, 0);
    assert_int_equal(state_of(w, "b"), MR_COMPLETED);
    mr_lease_free(leases->next);
    mr_lease_free(leases);
}

static void what_is_asked_while_away_waits(void **state)
{
    struct world *w = *state;
    struct flight taking, finishing;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    take_start(w, &taking, 1);
    finish_start(w, &finishing, lease);
    assert_false(mr_event_wait(&finishing.done, 100 * MR_NS_PER_MS));
    assert_false(mr_event_is_set(&taking.done));
    w->network.refuse = false;
    assert_int_equal(flight_end(&finishing), MR_OK);
    assert_int_equal(finishing.err, MR_OK);
    put_id(w, "b");
    assert_int_equal(flight_end(&taking), MR_OK);
    mr_lease_free(taking.take.leases);
    mr_lease_free(lease);
}

static void a_finish_whose_answer_was_lost_counts_once_and_is_fine(void **state)
{
    struct world *w = *state;
    struct flight finishing;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    w->network.mute = true;
    finish_start(w, &finishing, lease);
    WAIT_UNTIL(state_of(w, "a") == MR_COMPLETED);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&finishing), MR_OK);
    assert_int_equal(finishing.err, MR_OK);
    mr_lease_free(lease);
}

static void tasks_lost_on_their_way_come_again(void **state)
{
    struct world *w = *state;
    struct flight taking;
    open_node(w);
    put_id(w, "a");
    w->network.mute = true;
    take_start(w, &taking, 1);
    WAIT_UNTIL(state_of(w, "a") == MR_ACTIVE);
    uint64_t lost = task_of(w, "a").epoch;
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&taking), MR_OK);
    assert_true(taking.take.leases->epoch > lost);
    assert_int_equal(mr_broker_lease_open(w->far, taking.take.leases), MR_OK);
    assert_int_equal(taking.take.leases->task.attempt, 1);
    assert_int_equal(finish(w, taking.take.leases), MR_OK);
    mr_lease_free(taking.take.leases);
}

static void a_node_that_cannot_come_back_in_time_fences_itself(void **state)
{
    struct world *w = *state;
    struct flight taking;
    assert_int_equal(try_open_node(w, 300), MR_OK); /* the grace is never above it */
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    take_start(w, &taking, 1);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(w->stops_n == 1);
    assert_int_equal(w->stops[0], lease->epoch);
    assert_int_equal(flight_end(&taking), MR_CLOSED);
    assert_int_equal(beat(w), MR_NOT_FOUND);
    assert_int_equal(finish(w, lease), MR_UNAVAILABLE);
    assert_int_equal(try_open_node(w, 300), MR_UNAVAILABLE);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
    w->network.refuse = false;
    WAIT_UNTIL(finish(w, lease) == MR_STALE);
    mr_lease_free(lease);
}

static void a_server_that_forgot_a_node_costs_it_its_leases_only(void **state)
{
    struct world *w = *state;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    stop_server(w);
    start_server(w);
    WAIT_UNTIL(w->stops_n == 1);
    assert_int_equal(w->stops[0], lease->epoch);
    assert_int_equal(finish(w, lease), MR_STALE);
    struct mr_lease *again = take(w, 1, 1);
    assert_true(again->epoch > lease->epoch);
    assert_int_equal(finish(w, again), MR_OK);
    mr_lease_free(lease);
    mr_lease_free(again);
}

static void a_lost_node_counts_only_the_runs_it_began(void **state)
{
    struct world *w = *state;
    assert_int_equal(try_open_node(w, 300), MR_OK);
    put_id(w, "a");
    put_id(w, "b");
    struct mr_lease *leases = take(w, 2, 2);
    mr_broker_begun(w->far, w->first_slot, leases->epoch);
    assert_int_equal(beat(w), MR_OK);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING && state_of(w, "b") == MR_PENDING);
    assert_int_equal(task_of(w, "a").crashes, 1);
    assert_int_equal(task_of(w, "b").crashes, 0);
    mr_lease_free(leases->next);
    mr_lease_free(leases);
}

/* Without a beat or anything else that would take it along. How long "at once" takes is the
 * machine's business, but a run that is not said by itself is never said here. */
static void a_begun_run_is_said_at_once(void **state)
{
    struct world *w = *state;
    int64_t patience_ms = 10;
    put_id(w, "a");
    do {
        assert_int_equal(try_open_node(w, 300), MR_OK); /* the grace is never above it */
        struct mr_lease *lease = take(w, 1, 1);
        mr_broker_begun(w->far, w->first_slot, lease->epoch);
        (void)poll(NULL, 0, (int)patience_ms);
        w->network.refuse = true;
        forwarder_cut(&w->network);
        WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
        w->network.refuse = false;
        WAIT_UNTIL(finish(w, lease) == MR_STALE);
        mr_lease_free(lease);
        patience_ms *= 2;
    } while (task_of(w, "a").crashes == 0 && patience_ms < WAIT_MS);
    assert_int_equal(task_of(w, "a").crashes, 1);
}

static void a_server_that_stops_has_crashed_nobody(void **state)
{
    struct world *w = *state;
    put_id(w, "a");
    open_node(w);
    struct mr_lease *lease = take(w, 1, 1);
    mr_broker_begun(w->far, w->first_slot, lease->epoch);
    assert_int_equal(beat(w), MR_OK); /* goes behind it */
    server_rig_stop(&w->server, 0);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
    assert_int_equal(task_of(w, "a").crashes, 0);
    mr_lease_free(lease);
}

/* ---- producing ------------------------------------------------------------------------------ */

static void a_task_not_sent_waits_for_the_server(void **state)
{
    struct world *w = *state;
    struct flight flight;
    stop_server(w);
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    assert_false(mr_event_wait(&flight.done, 50 * MR_NS_PER_MS));
    start_server(w);
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.result.err, MR_OK);
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_does_not_wait_for_ever(void **state)
{
    struct world *w = *state;
    struct flight flight;
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(look(w) == MR_UNAVAILABLE); /* others fail at once */
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    assert_int_equal(flight_end(&flight), MR_UNAVAILABLE);
    struct mr_enqueue_result result;
    assert_int_equal(put(w->far, &flight.task, &result), MR_UNAVAILABLE);
    w->network.refuse = false;
    WAIT_UNTIL(put(w->far, &flight.task, &result) == MR_OK);
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_whose_answer_was_lost_is_in_doubt(void **state)
{
    struct world *w = *state;
    struct flight flight;
    w->network.mute = true;
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    WAIT_UNTIL(tasks_in_store(w) == 1);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&flight), MR_UNAVAILABLE);
    assert_int_equal(flight.result.err, MR_UNAVAILABLE);
    assert_int_equal(state_of(w, flight.result.id), MR_PENDING); /* the id to ask for is there */
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_that_leaves_a_trace_is_sent_again(void **state)
{
    struct world *w = *state;
    struct flight flight;
    struct mr_enqueue_result result;
    struct mr_task_options task = {.payload = MR_SLICE_LIT("x"), .retention_ms = 3600000};
    w->network.mute = true;
    enqueue_start(w, &flight, task);
    WAIT_UNTIL(tasks_in_store(w) == 1);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.result.err, MR_OK);
    assert_int_equal(flight.result.state, MR_PENDING);
    assert_int_equal(state_of(w, flight.result.id), MR_PENDING);
    assert_int_equal(tasks_in_store(w), 1);
    /* A conflict with an id of the caller's is still one. */
    task.id = mr_slice_str(flight.result.id);
    assert_int_equal(put(w->far, &task, &result), MR_OK);
    assert_int_equal(result.err, MR_CONFLICT);
}

static void big_batches_pass_in_several_messages(void **state)
{
    struct world *w = *state;
    enum { N = 40, BYTES = 1024 * 1024 };
    char *payload = malloc(BYTES);
    struct mr_task_options tasks[N];
    struct mr_enqueue_result results[N];
    memset(payload, 'p', BYTES);
    for (size_t i = 0; i < N; i++)
        tasks[i] = (struct mr_task_options){.payload = {payload, BYTES}};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = N, .results = results};
    assert_int_equal(mr_broker_call(w->far, &req.req), MR_OK);
    mr_req_done(&req.req);
    open_node(w);
    for (size_t taken = 0; taken < N;) {
        struct flight flight;
        take_start(w, &flight, N);
        assert_int_equal(flight_end(&flight), MR_OK);
        for (struct mr_lease *lease = flight.take.leases, *next; lease != NULL; lease = next) {
            next = lease->next;
            assert_int_equal(mr_broker_lease_open(w->far, lease), MR_OK);
            assert_int_equal(lease->task.payload.len, BYTES);
            assert_memory_equal(lease->task.id.data, results[taken].id, lease->task.id.len);
            assert_int_equal(finish(w, lease), MR_OK);
            mr_lease_free(lease);
            taken++;
        }
    }
    free(payload);
}

/* One of many that shared a message may not be there: the others do not suffer. */
static void a_refused_task_hurts_no_other(void **state)
{
    struct world *w = *state;
    enum { N = 64 };
    static struct flight flights[N];
    struct mr_tokens *tokens;
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .queue = "mine*"}, made;
    char text[MR_TOKEN_TEXT_LEN + 1];
    assert_int_equal(mr_tokens_open(w->dir, NULL, &tokens, NULL), MR_OK);
    assert_int_equal(mr_tokens_create(tokens, &wanted, &made, text, NULL), MR_OK);
    mr_broker_close(w->far);
    stop_server(w);
    w->server.access = (struct mr_access){.mode = MR_ACCESS_TOKENS, .tokens = tokens};
    start_server(w);
    open_far(w, text);
    for (size_t i = 0; i < N; i++)
        enqueue_start(w, &flights[i],
                      (struct mr_task_options){.queue = i % 16 == 5 ? MR_SLICE_LIT("yours")
                                                                    : MR_SLICE_LIT("mine")});
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(flight_end(&flights[i]), MR_OK);
        assert_int_equal(flights[i].result.err, i % 16 == 5 ? MR_DENIED : MR_OK);
        assert_int_equal(strlen(flights[i].result.id), MR_UUID_TEXT_LEN);
    }
    assert_refusal(w, MR_DENIED, "is for queues mine*, not for yours");
    assert_int_equal(tasks_in_store(w), N - N / 16);
    mr_broker_close(w->far);
    server_rig_stop(&w->server, 0);
    mr_tokens_free(tokens);
    w->server.access = (struct mr_access){0};
    assert_int_equal(server_rig_start(&w->server, w->store), MR_OK);
    w->network.to = w->server.port;
    open_far(w, NULL);
}

/* The client's own limit is above what the server takes at all. */
static void a_task_too_big_for_the_server_hurts_no_other(void **state)
{
    struct world *w = *state;
    enum { N = 9, BYTES = 8 * 1024 * 1024 };
    static struct flight flights[N];
    char *payload = calloc(1, BYTES);
    mr_broker_close(w->far);
    w->payload_max = MR_PAYLOAD_HARD_MAX;
    open_far(w, NULL);
    for (size_t i = 0; i < N; i++)
        enqueue_start(w, &flights[i],
                      (struct mr_task_options){.payload = {payload, i % 3 == 1 ? BYTES : 1000}});
    for (size_t i = 0; i < N; i++) {
        enum mr_err want = i % 3 == 1 ? MR_TOO_BIG : MR_OK;
        assert_int_equal(flight_end(&flights[i]), want);
        assert_int_equal(flights[i].result.err, want);
    }
    assert_refusal(w, MR_TOO_BIG, "over the server's limit");
    assert_int_equal(tasks_in_store(w), N - N / 3);
    free(payload);
}

static enum mr_err get_nowhere(struct world *w)
{
    struct mr_req_get get = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("nowhere")};
    enum mr_err err = mr_broker_call(w->far, &get.req);
    mr_req_done(&get.req);
    return err;
}

static void a_refused_look_says_why(void **state)
{
    struct world *w = *state;
    assert_int_equal(get_nowhere(w), MR_NOT_FOUND);
    assert_refusal(w, MR_NOT_FOUND, "task nowhere: not found");
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void opening_says_where_nobody_answers(void **state)
{
    struct world *w = *state;
    struct mr_detail detail = {.text = ""};
    struct mr_broker *broker = NULL;
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", w->server.port);
    stop_server(w);
    struct mr_remote_options options = {.address = address, .open_ms = 50};
    assert_int_equal(mr_remote_open(&options, &broker, &detail), MR_UNAVAILABLE);
    assert_null(broker);
    assert_non_null(strstr(detail.text, address));
    assert_non_null(strstr(detail.text, "no server at"));
    start_server(w);
}

static enum mr_err open_namespace(struct world *w, const char *name, struct mr_detail *detail)
{
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", w->network.port);
    struct mr_remote_options options = {
        .address = address, .open_ms = WAIT_MS, .namespace_ = mr_slice_str(name)};
    return mr_remote_open(&options, &w->far, detail);
}

static void a_server_of_another_namespace_is_not_taken_for_ours(void **state)
{
    struct world *w = *state;
    struct mr_detail detail = {.text = ""};
    enum mr_err err;
    mr_broker_close(w->far);
    w->far = NULL;
    assert_int_equal(open_namespace(w, "blue", &detail), MR_INVALID);
    assert_string_equal(detail.text, "this server has no namespace but the default one, not blue");
    stop_server(w);
    w->server.namespace_ = "gr\xc3\xbcn %1";
    start_server(w);
    assert_int_equal(open_namespace(w, "blue", &detail), MR_INVALID);
    assert_null(w->far);
    assert_int_equal(open_namespace(w, "", &detail), MR_OK); /* whichever it has */
    mr_broker_close(w->far);
    assert_int_equal(open_namespace(w, "gr\xc3\xbcn %1", &detail), MR_OK);
    assert_int_equal(get_nowhere(w), MR_NOT_FOUND);
    stop_server(w);
    w->server.namespace_ = "blue"; /* started again, on another store */
    start_server(w);
    WAIT_UNTIL((err = get_nowhere(w)) != MR_UNAVAILABLE);
    assert_int_equal(err, MR_INVALID);
}

/* Takes every call and says nothing. */
static void hang_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void hang_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call, (void)status, (void)text;
}

static void hang(struct mr_call *call, void *arg)
{
    static const struct mr_call_ops ops = {.message = hang_message, .closed = hang_closed};
    mr_call_set(call, &ops, arg);
}

static void a_server_that_hangs_does_not_hang_a_worker(void **state)
{
    struct world *w = *state;
    struct mr_broker *far = w->far;
    struct mr_rpc *rpc;
    uint16_t port;
    char address[64];
    static const struct mr_rpc_method methods[] = {{"/millrace.v1.Work/Attach", hang}};
    struct mr_rpc_service service = {
        .address = "127.0.0.1:0", .methods = methods, .methods_n = 1, .arg = w};
    assert_int_equal(mr_rpc_new("hangs", NULL, &rpc), MR_OK);
    assert_int_equal(mr_rpc_listen(rpc, &service, &port, NULL), MR_OK);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct mr_remote_options options = {.address = address, .answer_ms = 50};
    assert_int_equal(mr_remote_open(&options, &w->far, NULL), MR_OK);
    assert_int_equal(try_open_node(w, 60000), MR_UNAVAILABLE);
    mr_broker_close(w->far);
    mr_rpc_free(rpc);
    w->far = far;
}

static void closing_without_a_server_answers_everything(void **state)
{
    struct world *w = *state;
    struct flight taking, enqueueing;
    open_node(w);
    take_start(w, &taking, 1);
    stop_server(w);
    enqueue_start(w, &enqueueing, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    mr_broker_close(w->far);
    assert_int_equal(flight_end(&taking), MR_CLOSED);
    assert_int_equal(flight_end(&enqueueing), MR_CLOSED);
    start_server(w);
    open_far(w, NULL);
}

/* ---- a worker on it ------------------------------------------------------------------------- */

enum { RUNS = 2000 };
static _Atomic uint32_t runs[RUNS];

static enum mr_outcome count_run(struct mr_run *run, void *arg)
{
    const struct mr_task *task = mr_run_task(run);
    char number[16] = {0};
    (void)arg;
    memcpy(number, task->payload.data, task->payload.len);
    runs[strtoul(number, NULL, 10)]++;
    return MR_DONE;
}

static void put_numbers(struct world *w)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        char number[16];
        struct mr_enqueue_result result;
        (void)snprintf(number, sizeof number, "%u", i);
        struct mr_task_options task = {.payload = mr_slice_str(number)};
        assert_int_equal(put(w->store, &task, &result), MR_OK);
        runs[i] = 0;
    }
}

static void a_worker_runs_each_task_once_through_cut_connections(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    struct mr_worker_figures figures;
    put_numbers(w);
    assert_int_equal(mr_worker_new_on(w->far, &(struct mr_worker_options){.slots = 4}, &worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", count_run, NULL), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    do {
        forwarder_cut(&w->network);
        (void)poll(NULL, 0, 10);
        mr_worker_figures(worker, &figures);
    } while (tasks_in_store(w) > 0);
    WAIT_UNTIL((mr_worker_figures(worker, &figures), figures.done + figures.stale >= RUNS));
    mr_worker_stop(worker);
    mr_worker_free(worker);
    for (uint32_t i = 0; i < RUNS; i++)
        assert_int_equal(runs[i], 1);
    assert_int_equal(figures.done, RUNS);
    assert_int_equal(figures.stale, 0);
}

struct patient {
    struct mr_event begun;
    _Atomic uint32_t runs;
    _Atomic int64_t stopped_ns;
};

/* The first run goes on until it is told to stop. */
static enum mr_outcome run_patiently(struct mr_run *run, void *arg)
{
    struct patient *patient = arg;
    if (patient->runs++ > 0)
        return MR_DONE;
    mr_event_set(&patient->begun);
    (void)mr_run_wait_cancelled(run, WAIT_MS);
    patient->stopped_ns = mr_mono_now(mr_clock_system()).ns;
    return MR_DONE;
}

/* No end of the connection is told, on either side; the lease is what both go by. */
static void a_network_that_falls_silent_ends_the_run_before_another_begins(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    struct patient patient = {0};
    struct mr_worker_options options = {.slots = 1, .beat_ms = 300, .beats_missed = 3};
    mr_event_init(&patient.begun);
    put_id(w, "t");
    assert_int_equal(mr_worker_new_on(w->far, &options, &worker), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", run_patiently, &patient), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    assert_true(mr_event_wait(&patient.begun, WAIT_MS * MR_NS_PER_MS));
    w->network.frozen = true;
    WAIT_UNTIL(state_of(w, "t") != MR_ACTIVE);
    int64_t given_up_ns = mr_mono_now(mr_clock_system()).ns;
    WAIT_UNTIL(patient.stopped_ns != 0);
    assert_true(patient.stopped_ns - given_up_ns < 500 * MR_NS_PER_MS);
    assert_int_equal(patient.runs, 1);
    w->network.frozen = false;
    WAIT_UNTIL(state_of(w, "t") == MR_COMPLETED);
    assert_int_equal(patient.runs, 2);
    mr_worker_stop(worker);
    mr_worker_free(worker);
}

static void a_worker_goes_on_after_a_restart(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    put_numbers(w);
    assert_int_equal(mr_worker_new_on(w->far, &(struct mr_worker_options){.slots = 4}, &worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", count_run, NULL), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    for (int i = 0; i < 3; i++) {
        stop_server(w);
        start_server(w);
    }
    WAIT_UNTIL(tasks_in_store(w) == 0);
    mr_worker_stop(worker);
    mr_worker_free(worker);
    for (uint32_t i = 0; i < RUNS; i++)
        assert_in_range(runs[i], 1, 4);
}

/* ---- a task that kills ---------------------------------------------------------------------- */

static enum mr_outcome die_at_once(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    (void)kill(getpid(), SIGKILL);
    return MR_DONE;
}

/* Another process, started by the test below. */
static int be_killed(const char *address)
{
    struct mr_broker *far;
    struct mr_worker *worker;
    struct mr_remote_options options = {.address = address};
    if (mr_remote_open(&options, &far, NULL) != MR_OK ||
        mr_worker_new_on(far, &(struct mr_worker_options){.slots = 4}, &worker) != MR_OK ||
        mr_worker_handle(worker, "*", die_at_once, NULL) != MR_OK)
        return 1;
    return mr_worker_run(worker) == MR_OK ? 0 : 1;
}

/* However quickly it does so: the server knows of a run before its first instruction. */
static void a_task_that_kills_its_worker_three_times_is_quarantined(void **state)
{
    struct world *w = *state;
    char self[256] = "", command[512];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    stop_server(w);
    w->server.grace_ms = 100;
    start_server(w);
    put_id(w, "poison");
    for (uint32_t i = 1; i <= MR_CRASHES_MAX; i++) {
        (void)snprintf(command, sizeof command, "'%s' --be-killed '%s'", self, w->server.address);
        int status = system(command);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
        WAIT_UNTIL(state_of(w, "poison") != MR_ACTIVE);
        assert_int_equal(task_of(w, "poison").crashes, i);
    }
    assert_int_equal(state_of(w, "poison"), MR_ARCHIVED);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_comes_back_and_keeps_its_leases),
        TEST(what_is_asked_while_away_waits),
        TEST(a_finish_whose_answer_was_lost_counts_once_and_is_fine),
        TEST(tasks_lost_on_their_way_come_again),
        TEST(a_node_that_cannot_come_back_in_time_fences_itself),
        TEST(a_server_that_forgot_a_node_costs_it_its_leases_only),
        TEST(a_lost_node_counts_only_the_runs_it_began),
        TEST(a_begun_run_is_said_at_once),
        TEST(a_server_that_stops_has_crashed_nobody),
        TEST(a_task_not_sent_waits_for_the_server),
        TEST(a_task_does_not_wait_for_ever),
        TEST(a_task_whose_answer_was_lost_is_in_doubt),
        TEST(a_task_that_leaves_a_trace_is_sent_again),
        TEST(big_batches_pass_in_several_messages),
        TEST(a_refused_task_hurts_no_other),
        TEST(a_task_too_big_for_the_server_hurts_no_other),
        TEST(a_refused_look_says_why),
        TEST(opening_says_where_nobody_answers),
        TEST(a_server_of_another_namespace_is_not_taken_for_ours),
        TEST(a_server_that_hangs_does_not_hang_a_worker),
        TEST(closing_without_a_server_answers_everything),
        TEST(a_worker_runs_each_task_once_through_cut_connections),
        TEST(a_network_that_falls_silent_ends_the_run_before_another_begins),
        TEST(a_worker_goes_on_after_a_restart),
        TEST(a_task_that_kills_its_worker_three_times_is_quarantined),
    };
    if (argc > 2 && strcmp(argv[1], "--be-killed") == 0)
        return be_killed(argv[2]);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
