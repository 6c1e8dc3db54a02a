/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that answers whatever it likes: the remote engine reads it without harm, answers each of
 * its requests once, and can be closed.
 *
 * An input is a list of answers, each behind its status (one byte) and its length in two bytes. A
 * call gets the next one for each of its messages; with status 0 a stream goes on, everything else
 * ends it. When there are no more, or after a moment without any, each call ends.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "broker/remote/remote.h"
#include "fuzz/fuzz.h"
#include "support/on_loop.h"

enum { WAIT_MS = 60 * 1000, LEASE_MS = 20, MOMENT_MS = 3, METHODS_MAX = 64, STREAMS_MAX = 16 };

/* ---- the server, once for all inputs -------------------------------------------------------- */

static struct {
    struct mr_rpc *rpc;
    struct mr_rpc_method methods[METHODS_MAX];
    char address[32];
    /* The loop's. */
    struct fuzz_in in;
    struct mr_call *streams[STREAMS_MAX];
} server;

/* The place of a stream, NULL: of none. */
static struct mr_call **place_of(const struct mr_call *call)
{
    return mr_call_data(call);
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)bytes;
    bool any = server.in.left > 0;
    int status = fuzz_u8(&server.in) % (MR_RPC_UNAUTHENTICATED + 1);
    size_t len = fuzz_u8(&server.in);
    len = len << 8 | fuzz_u8(&server.in);
    if (any && status == MR_RPC_OK)
        mr_assert(mr_call_send(call, fuzz_bytes(&server.in, len)) == MR_OK);
    if (!any)
        mr_call_end(call, MR_RPC_UNAVAILABLE, (struct mr_slice){0});
    else if (status != MR_RPC_OK || place_of(call) == NULL)
        mr_call_end(call, status, (struct mr_slice){0});
}

static void on_half_closed(struct mr_call *call)
{
    mr_call_end(call, MR_RPC_UNAVAILABLE, (struct mr_slice){0});
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)status, (void)text;
    if (place_of(call) != NULL)
        *place_of(call) = NULL;
}

static const struct mr_call_ops ops = {
    .message = on_message, .half_closed = on_half_closed, .closed = on_closed};

static void begin_unary(struct mr_call *call, void *arg)
{
    (void)arg;
    mr_call_set(call, &ops, NULL);
}

static void begin_stream(struct mr_call *call, void *arg)
{
    (void)arg;
    size_t i = 0;
    while (i < STREAMS_MAX && server.streams[i] != NULL)
        i++;
    if (i == STREAMS_MAX) {
        mr_call_end(call, MR_RPC_UNAVAILABLE, (struct mr_slice){0});
        return;
    }
    server.streams[i] = call;
    mr_call_set(call, &ops, &server.streams[i]);
}

static void start(void)
{
    size_t n;
    uint16_t port;
    const struct mr_rpc_method *real = mr_api_methods(&n);
    mr_assert(n <= METHODS_MAX);
    for (size_t i = 0; i < n; i++) {
        bool stream =
            strstr(real[i].path, "Stream") != NULL || strstr(real[i].path, "Attach") != NULL;
        server.methods[i].path = real[i].path;
        server.methods[i].begin = stream ? begin_stream : begin_unary;
    }
    struct mr_rpc_service service = {
        .address = "127.0.0.1:0", .methods = server.methods, .methods_n = n};
    mr_assert(mr_rpc_new("server", NULL, &server.rpc) == MR_OK);
    mr_assert(mr_rpc_listen(server.rpc, &service, &port, NULL) == MR_OK);
    snprintf(server.address, sizeof server.address, "127.0.0.1:%u", (unsigned)port);
}

static void load_input(void *arg)
{
    server.in = *(const struct fuzz_in *)arg;
}

static void end_streams(void *arg)
{
    (void)arg;
    server.in.left = 0;
    for (size_t i = 0; i < STREAMS_MAX; i++)
        if (server.streams[i] != NULL)
            mr_call_end(server.streams[i], MR_RPC_UNAVAILABLE, (struct mr_slice){0});
}

/* ---- requests ------------------------------------------------------------------------------- */

enum { ITEMS = 2, ROWS = 4 };

/* One of each kind, all under way at the same time. */
struct flights {
    struct mr_req_enqueue enqueue;
    struct mr_req_get get;
    struct mr_req_await await;
    struct mr_req_list list;
    struct mr_req_queue_list queues;
    struct mr_req_queue_history history;
    struct mr_req_queue_set set;
    struct mr_req_node_list nodes;
    struct mr_req_stats stats;
    struct mr_req_control control;
    struct mr_req_beat beat;
    struct mr_req_take take;
    struct mr_req_finish finish;
    struct mr_task_options tasks[ITEMS];
    struct mr_enqueue_result results[ITEMS];
    struct mr_control controls[ITEMS];
    struct mr_finish finishes[ITEMS];
    enum mr_err control_errs[ITEMS], finish_errs[ITEMS];
    struct mr_queue_info infos[ROWS];
    struct mr_queue_day days[ROWS];
    _Atomic int left;
    struct mr_event done;
};

static void flight_done(struct mr_req *req)
{
    struct flights *f = req->arg;
    if (atomic_fetch_sub(&f->left, 1) == 1)
        mr_event_set(&f->done);
}

static void fly(struct flights *f, struct mr_broker *broker, struct mr_req *req, enum mr_op op)
{
    req->op = op;
    req->done = flight_done;
    req->arg = f;
    atomic_fetch_add(&f->left, 1);
    mr_broker_submit(broker, req);
}

/* The last one is counted from the beginning, so that done comes once. */
static void land(struct flights *f)
{
    bool over =
        atomic_fetch_sub(&f->left, 1) == 1 || mr_event_wait(&f->done, MOMENT_MS * MR_NS_PER_MS);
    on_loop(server.rpc, end_streams, NULL);
    if (!over)
        mr_assert(mr_event_wait(&f->done, patience_ns));
}

static void look(struct flights *f, struct mr_broker *broker)
{
    f->get.id = f->await.id = MR_SLICE_LIT("id");
    f->list.options = (struct mr_list_options){.limit = ROWS};
    f->queues.infos = f->infos;
    f->queues.max = f->history.max = ROWS;
    f->history.days = f->days;
    f->history.queue = f->set.queue = MR_SLICE_LIT("q");
    fly(f, broker, &f->get.req, MR_OP_GET);
    fly(f, broker, &f->await.req, MR_OP_AWAIT);
    fly(f, broker, &f->list.req, MR_OP_LIST);
    fly(f, broker, &f->queues.req, MR_OP_QUEUE_LIST);
    fly(f, broker, &f->history.req, MR_OP_QUEUE_HISTORY);
    fly(f, broker, &f->set.req, MR_OP_QUEUE_SET);
    fly(f, broker, &f->nodes.req, MR_OP_NODE_LIST);
    fly(f, broker, &f->stats.req, MR_OP_STATS);
}

static void act(struct flights *f, struct mr_broker *broker)
{
    for (size_t i = 0; i < ITEMS; i++)
        f->controls[i] = (struct mr_control){.id = MR_SLICE_LIT("id")};
    f->control.items = f->controls;
    f->control.errs = f->control_errs;
    f->enqueue.tasks = f->tasks;
    f->enqueue.results = f->results;
    f->control.n = f->enqueue.n = ITEMS;
    fly(f, broker, &f->control.req, MR_OP_CONTROL);
    fly(f, broker, &f->enqueue.req, MR_OP_ENQUEUE);
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void work(struct flights *f, struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = ITEMS,
                                    .lease_ms = LEASE_MS,
                                    .events.stop = on_stop};
    enum mr_err err = mr_broker_call(broker, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK)
        return;
    for (size_t i = 0; i < ITEMS; i++)
        f->finishes[i] = (struct mr_finish){.id = MR_SLICE_LIT("id"), .epoch = i + 1};
    f->take.node = f->beat.node = open.node;
    f->take.max = ITEMS;
    f->finish.items = f->finishes;
    f->finish.errs = f->finish_errs;
    f->finish.n = ITEMS;
    fly(f, broker, &f->take.req, MR_OP_TAKE);
    fly(f, broker, &f->beat.req, MR_OP_BEAT);
    fly(f, broker, &f->finish.req, MR_OP_FINISH);
}

static void free_leases(struct mr_broker *broker, struct mr_lease *lease)
{
    while (lease != NULL) {
        struct mr_lease *next = lease->next;
        if (mr_broker_lease_open(broker, lease) == MR_OK)
            mr_assert(lease->task.id.len > 0);
        mr_lease_free(lease);
        lease = next;
    }
}

static void release(struct flights *f)
{
    struct mr_req *all[] = {&f->enqueue.req, &f->get.req,     &f->await.req, &f->list.req,
                            &f->queues.req,  &f->history.req, &f->set.req,   &f->nodes.req,
                            &f->stats.req,   &f->control.req, &f->beat.req,  &f->take.req,
                            &f->finish.req};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mr_req_done(all[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (server.rpc == NULL)
        start();
    struct fuzz_in in = {data, size};
    on_loop(server.rpc, load_input, &in);
    struct mr_remote_options options = {
        .address = server.address, .open_ms = WAIT_MS, .away_ms = 1, .answer_ms = LEASE_MS};
    struct mr_broker *broker;
    mr_assert(mr_remote_open(&options, &broker, NULL) == MR_OK);
    static struct flights f;
    f = (struct flights){.left = 1};
    mr_event_init(&f.done);
    work(&f, broker);
    look(&f, broker);
    act(&f, broker);
    land(&f);
    free_leases(broker, f.take.leases);
    mr_broker_close(broker);
    release(&f);
    return 0;
}
