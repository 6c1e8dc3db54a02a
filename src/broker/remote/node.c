/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node is a stream, Work/Attach. When it breaks the node is away: the server keeps its leases for a
 * short grace, in which it may come back under the same incarnation. What it was asked meanwhile
 * waits. If it cannot come back in time, the fence falls: it must assume that its tasks run
 * elsewhere, tells their holder so, and is dead.
 *
 *              Welcome             broken               Welcome
 *   OPENING ───────────> ATTACHED ────────> AWAY ────────────────> ATTACHED
 *      │ fence, refused     │ close          │ fence, refused
 *      v                    v                v
 *    freed               LEAVING ─> freed   DEAD ── close ─> freed
 *
 * One that opens while the connection is away, or whose first stream breaks, waits for it as tasks do.
 *
 * A server that forgot the node (it was restarted, or the grace was over) opens a new one under the
 * same stream: the leases are lost, the node goes on.
 */
#include <stdlib.h>

#include "base/buf.h"
#include "broker/remote/internal.h"
#include "broker/result.h"
#include "wire/node.h"

static const char attach_path[] = "/millrace.v1.Work/Attach";

enum { SAY_HELLO = 1, FIELD_QUEUES = 3, FIELD_HOLDS = 7, FIELD_TYPES = 8, FIELD_TOPICS = 9 };
enum { FIELD_RESUMED = 2, FIELD_GRACE_MS = 3 };
enum { INDEX_BITS = 12 };
_Static_assert(NODES_MAX == 1 << INDEX_BITS, "a node's number holds its index");

static const struct mr_call_ops stream_ops;

struct node *node_find(struct remote *remote, uint64_t handle)
{
    struct node *node = remote->by_index[handle & (NODES_MAX - 1)];
    return node != NULL && node->number == handle && handle != 0 ? node : NULL;
}

static void start_timer(struct node *node, struct mr_timer *timer, int64_t ms)
{
    struct mr_rpc *rpc = node->remote->rpc;
    if (!mr_timer_running(timer))
        mr_rpc_timer_start(rpc, timer, mr_mono_add_ms(mr_rpc_now(rpc), ms));
}

static void stop_timers(struct node *node)
{
    mr_rpc_timer_stop(node->remote->rpc, &node->fence);
    mr_rpc_timer_stop(node->remote->rpc, &node->again);
}

/* ---- the end -------------------------------------------------------------------------------- */

static void orphan_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void orphan_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call, (void)status, (void)text;
}

/* Gives the call up; nobody is told of its end. */
static void drop_call(struct node *node)
{
    static const struct mr_call_ops orphan_ops = {.message = orphan_message,
                                                  .closed = orphan_closed};
    if (node->call == NULL)
        return;
    mr_call_set(node->call, &orphan_ops, NULL);
    mr_call_cancel(node->call);
    node->call = NULL;
}

/* Ends it all; answers what it has. Loop thread. */
static void node_free(struct node *node, enum mr_err err)
{
    struct remote *remote = node->remote;
    struct ticket *ticket = node->ticket;
    node_fail(node);
    stop_timers(node);
    drop_call(node);
    if (node->slots > 0)
        mr_board_give(&remote->board, node->first_slot, node->slots);
    remote->by_index[node->number & (NODES_MAX - 1)] = NULL;
    mr_list_remove(&node->link);
    mr_arena_done(&node->memory);
    free(node->holds);
    free(node);
    if (ticket != NULL)
        ticket_answer(ticket, err);
    remote_quiet(remote);
}

/* Its tasks may run elsewhere from now on. */
static void die(struct node *node)
{
    node->state = NODE_DEAD;
    stop_timers(node);
    drop_call(node);
    node_lose_all(node);
    node_fail(node);
}

static void fence_fell(struct mr_timer *timer, void *arg)
{
    struct node *node = mr_container(timer, struct node, fence);
    (void)arg;
    if (node->state == NODE_AWAY)
        die(node);
    else /* the server hangs */
        node_free(node, MR_UNAVAILABLE);
}

/* ---- coming --------------------------------------------------------------------------------- */

struct hello {
    struct mr_slice node;
    uint64_t incarnation;
    bool strict;
    uint32_t slots;
    int64_t lease_ms;
    bool lasts, leads;
    int64_t leader_ms, fall_ms;
};
static const struct mr_flat_field hello_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct hello, node), 0},
    {MR_FLAT_FIXED64, offsetof(struct hello, incarnation), 0},
    {MR_FLAT_NONE, 0, 0}, /* queues, by hand */
    {MR_FLAT_BOOL, offsetof(struct hello, strict), 0},
    {MR_FLAT_32, offsetof(struct hello, slots), 0},
    {MR_FLAT_64, offsetof(struct hello, lease_ms), 0},
    {MR_FLAT_NONE, 0, 0}, /* holds, types and topics, by hand */
    {MR_FLAT_NONE, 0, 0},
    {MR_FLAT_NONE, 0, 0},
    {MR_FLAT_BOOL, offsetof(struct hello, lasts), 0},
    {MR_FLAT_BOOL, offsetof(struct hello, leads), 0},
    {MR_FLAT_64, offsetof(struct hello, leader_ms), 0},
    {MR_FLAT_64, offsetof(struct hello, fall_ms), 0},
};
static MR_FLAT(struct hello, hello_flat, hello_fields);

static size_t holds_count(const struct node *node)
{
    size_t n = 0;
    for (uint32_t i = 0; i < node->holds_n; i++)
        n += node->holds[i].epoch != 0;
    return n;
}

static enum mr_err hello_encode(const struct node *node, struct mr_buf *buf)
{
    struct hello hello = {
        .node = node->name,
        .incarnation = node->incarnation,
        .strict = node->order == MR_QUEUES_STRICT,
        .slots = node->slots,
        .lease_ms = node->lease_ms,
        .lasts = node->lasts,
        .leads = node->leads,
        .leader_ms = node->leader_ms,
        .fall_ms = node->fall_ms,
    };
    unsigned types_field = node->role == MR_NODE_MASTER ? FIELD_TOPICS : FIELD_TYPES;
    size_t holds_len = holds_count(node) * sizeof(uint64_t);
    struct mr_node_lists lists = {node->queues,  node->queues_n, node->types,
                                  node->types_n, FIELD_QUEUES,   types_field};
    size_t size = mr_flat_size(&hello_flat, &hello) + mr_node_lists_size(&lists) +
                  mr_flat_head_size(holds_len) + holds_len;
    MR_TRY(mr_buf_reserve(buf, size));
    uint8_t *at = mr_node_lists_write(&lists, mr_flat_write(&hello_flat, &hello, buf->data));
    at = mr_flat_put_head(at, FIELD_HOLDS, holds_len);
    for (uint32_t i = 0; i < node->holds_n; i++) {
        if (node->holds[i].epoch == 0)
            continue;
        mr_store64(at, node->holds[i].epoch);
        at += sizeof(uint64_t);
    }
    buf->len = (size_t)(at - buf->data);
    mr_assert(buf->len == size);
    return MR_OK;
}

/* Opens the stream. */
static enum mr_err attach(struct node *node)
{
    struct remote *remote = node->remote;
    struct mr_buf buf = {0};
    enum mr_err err = hello_encode(node, &buf);
    if (err == MR_OK)
        err = mr_channel_call(remote->channel, attach_path, 0, &stream_ops, node, &node->call);
    if (err == MR_OK)
        node_say(node, SAY_HELLO, mr_buf_slice(&buf));
    mr_buf_done(&buf);
    return err;
}

static void attach_again(struct node *node)
{
    bool comes = node->state == NODE_AWAY || node->state == NODE_OPENING;
    if (comes && node->call == NULL && node->remote->up && attach(node) != MR_OK)
        start_timer(node, &node->again, AGAIN_MS);
}

static void again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    attach_again(mr_container(timer, struct node, again));
}

void nodes_attach(struct remote *remote)
{
    for (struct mr_link *link = remote->nodes.next; link != &remote->nodes; link = link->next)
        attach_again(mr_container(link, struct node, link));
}

static enum mr_err welcome(struct node *node, struct mr_slice bytes)
{
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    if (node->state != NODE_OPENING && node->state != NODE_AWAY)
        return MR_INVALID;
    int64_t grace_ms = (int64_t)fields.value[FIELD_GRACE_MS];
    node->grace_ms = grace_ms > 0 ? grace_ms : GRACE_MS;
    node->resumed = fields.value[FIELD_RESUMED] != 0;
    stop_timers(node);
    bool first = node->state == NODE_OPENING;
    node->state = NODE_ATTACHED;
    if (first) {
        struct ticket *ticket = node->ticket;
        struct mr_req_node_open *req = mr_container(ticket->req, struct mr_req_node_open, req);
        node->ticket = NULL;
        req->node = node->number;
        req->first_slot = node->first_slot;
        ticket_answer(ticket, MR_OK);
        return MR_OK;
    }
    if (!node->resumed)
        node_lose_all(node);
    begun_unsaid(node);
    node_send(node);
    return MR_OK;
}

/* ---- the stream ----------------------------------------------------------------------------- */

/* By the field of ServerMessage. */
static enum mr_err (*const readers[])(struct node *node, struct mr_slice bytes) = {
    [1] = welcome,          [2] = node_told_tasks, [3] = node_told_finished,
    [4] = node_told_beaten, [5] = node_told_stop,  [6] = node_told_wanted,
};

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct node *node = mr_call_data(call);
    struct remote *remote = node->remote;
    while (bytes.len > 0 && node->call == call) {
        struct mr_flat_item item;
        enum mr_err err = mr_flat_next(&bytes, &item);
        bool known = err == MR_OK && item.type == MR_FLAT_BYTES &&
                     item.number < sizeof readers / sizeof *readers;
        if (known && node->state != NODE_ATTACHED && node->state != NODE_LEAVING &&
            item.number != 1)
            err = MR_INVALID; /* before Welcome */
        else if (known)
            err = readers[item.number](node, item.bytes);
        if (err != MR_OK) {
            /* It makes no sense, or memory ran out: the next stream finds out what was lost. */
            mr_call_cancel(node->call);
            break;
        }
    }
    remote_quiet(remote);
}

static void on_writable(struct mr_call *call)
{
    node_send(mr_call_data(call));
}

/* Whether coming back may help; else the server does not want this node. */
static bool is_break(enum mr_err err)
{
    return err == MR_OK || err == MR_CANCELLED || err == MR_CLOSED || mr_err_retriable(err);
}

static void go_away(struct node *node, enum mr_err err)
{
    node->state = NODE_AWAY;
    node_detached(node);
    if (!is_break(err)) {
        die(node);
        return;
    }
    start_timer(node, &node->fence,
                node->grace_ms < node->lease_ms ? node->grace_ms : node->lease_ms);
    start_timer(node, &node->again, AGAIN_MS);
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct node *node = mr_call_data(call);
    enum mr_err err = call_err(call, status);
    if (call_said(call) && !is_break(err))
        remote_refused(node->remote, err, text);
    node->call = NULL;
    if (node->remote->closing)
        node_free(node, MR_CLOSED);
    else if (node->state == NODE_OPENING && is_break(err))
        start_timer(node, &node->again, AGAIN_MS);
    else if (node->state == NODE_OPENING)
        node_free(node, err);
    else if (node->state == NODE_LEAVING)
        node_free(node, node->bye_sent ? err : MR_UNAVAILABLE);
    else
        go_away(node, err);
}

static const struct mr_call_ops stream_ops = {
    .message = on_message,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- requests ------------------------------------------------------------------------------- */

enum mr_err remote_prepare_node_open(struct ticket *ticket)
{
    return mr_node_open_check(mr_container(ticket->req, struct mr_req_node_open, req));
}

static enum mr_err copy_topics(struct node *node, const struct mr_req_node_open *req)
{
    struct mr_slice *topics = mr_arena_calloc(&node->memory, req->queues_n, sizeof *topics);
    if (topics == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->queues_n; i++)
        MR_TRY(mr_arena_copy(&node->memory, mr_result_topic(req->queues[i].name), &topics[i]));
    node->types = topics;
    node->types_n = req->queues_n;
    return MR_OK;
}

static enum mr_err copy_queues(struct node *node, const struct mr_req_node_open *req)
{
    struct mr_worker_queue *queues = mr_arena_calloc(&node->memory, req->queues_n, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(&node->memory, req->types_n + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->types_n; i++)
        MR_TRY(mr_arena_copy(&node->memory, req->types[i], &types[i]));
    for (size_t i = 0; i < req->queues_n; i++) {
        queues[i].weight = req->queues[i].weight;
        MR_TRY(mr_arena_copy(&node->memory, req->queues[i].name, &queues[i].name));
    }
    node->queues = queues;
    node->queues_n = req->queues_n;
    node->types = types;
    node->types_n = req->types_n;
    return MR_OK;
}

static enum mr_err copy_terms(struct node *node, const struct mr_req_node_open *req)
{
    MR_TRY(req->role == MR_NODE_MASTER ? copy_topics(node, req) : copy_queues(node, req));
    node->role = req->role;
    node->lasts = req->lasts;
    node->leads = req->leads;
    node->leader_ms = req->leader_ms;
    node->fall_ms = req->fall_ms;
    node->order = req->order;
    node->lease_ms = req->lease_ms;
    node->events = req->events;
    return mr_arena_copy(&node->memory, req->name, &node->name);
}

static enum mr_err choose_number(struct remote *remote, struct node *node)
{
    for (uint32_t tried = 0; tried < NODES_MAX; tried++) {
        uint32_t number = ++remote->last_number;
        if (number == 0 || remote->by_index[number & (NODES_MAX - 1)] != NULL)
            continue;
        node->number = number;
        remote->by_index[number & (NODES_MAX - 1)] = node;
        return MR_OK;
    }
    return MR_TOO_BIG;
}

static enum mr_err node_new(struct ticket *ticket, struct node **ret_node)
{
    struct remote *remote = ticket->remote;
    const struct mr_req_node_open *req = mr_container(ticket->req, struct mr_req_node_open, req);
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return MR_NOMEM;
    node->remote = remote;
    enum mr_err err = copy_terms(node, req);
    if (err == MR_OK && req->slots > 0)
        err = mr_board_take(&remote->board, req->slots, &node->first_slot);
    if (err == MR_OK) {
        node->slots = req->slots;
        err = choose_number(remote, node);
    }
    if (err != MR_OK) {
        if (node->slots > 0)
            mr_board_give(&remote->board, node->first_slot, node->slots);
        mr_arena_done(&node->memory);
        free(node);
        return err;
    }
    struct mr_rand rand;
    mr_rand_seed_system(&rand);
    node->incarnation = mr_rand_next(&rand);
    mr_timer_init(&node->fence, fence_fell);
    mr_timer_init(&node->again, again);
    node_work_init(node);
    mr_list_push_back(&remote->nodes, &node->link);
    *ret_node = node;
    return MR_OK;
}

void remote_begin_node_open(struct ticket *ticket)
{
    struct node *node = NULL;
    enum mr_err err = node_new(ticket, &node);
    if (err == MR_OK && node->remote->up)
        err = attach(node);
    if (err == MR_OK) {
        node->ticket = ticket;
        start_timer(node, &node->fence, node->remote->answer_ms);
        return;
    }
    if (node != NULL)
        node_free(node, err);
    ticket_answer(ticket, err);
}

/* Says Bye; takes are answered at once, since nothing will come of them. */
static void leave(struct node *node, struct ticket *ticket)
{
    node->state = NODE_LEAVING;
    node->ticket = ticket;
    tickets_answer(&node->takes, MR_CLOSED);
    start_timer(node, &node->fence, node->remote->answer_ms);
    node_send(node);
}

void remote_begin_node_close(struct ticket *ticket)
{
    const struct mr_req_node_close *req = mr_container(ticket->req, struct mr_req_node_close, req);
    struct node *node = node_find(ticket->remote, req->node);
    if (node == NULL || node->state == NODE_LEAVING || node->state == NODE_OPENING) {
        ticket_answer(ticket, MR_NOT_FOUND);
    } else if (node->state == NODE_ATTACHED) {
        leave(node, ticket);
    } else {
        node->ticket = ticket;
        node_free(node, node->state == NODE_DEAD ? MR_NOT_FOUND : MR_UNAVAILABLE);
    }
}

void nodes_leave(struct remote *remote)
{
    for (struct mr_link *link = remote->nodes.next; link != &remote->nodes;) {
        struct node *node = mr_container(link, struct node, link);
        link = link->next;
        if (node->state == NODE_ATTACHED && !node->lasts)
            leave(node, NULL);
        else if (node->state != NODE_LEAVING)
            node_free(node, MR_CLOSED);
    }
}

/* ---- for an engine of several servers ------------------------------------------------------- */

size_t mr_remote_node_holds(struct mr_broker *broker, uint64_t node)
{
    const struct node *found = node_find(mr_container(broker, struct remote, broker), node);
    return found != NULL ? holds_count(found) : 0;
}

void mr_remote_node_fence(struct mr_broker *broker, uint64_t node)
{
    struct node *found = node_find(mr_container(broker, struct remote, broker), node);
    if (found != NULL && (found->state == NODE_ATTACHED || found->state == NODE_AWAY))
        die(found);
}
