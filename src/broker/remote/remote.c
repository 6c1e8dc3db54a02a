/* SPDX-License-Identifier: Apache-2.0 */
/* The remote engine as a whole: see internal.h. */
#include "broker/remote/remote.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/remote/internal.h"

/* A task with its results may be as big as 16 MiB twice; and we trust our own queue to be sent. */
const struct mr_rpc_limits mr_remote_limits = {
    .message_max = 64 * 1024 * 1024,
    .queued_max = 256 * 1024 * 1024,
};

/* ---- requests ------------------------------------------------------------------------------- */

static const struct op ops[MR_OP_COUNT] = {
    [MR_OP_ENQUEUE] = {remote_prepare_enqueue, remote_begin_enqueue, NULL, NULL},
    [MR_OP_NODE_OPEN] = {remote_prepare_node_open, remote_begin_node_open, NULL, NULL},
    [MR_OP_NODE_CLOSE] = {NULL, remote_begin_node_close, NULL, NULL},
    [MR_OP_TAKE] = {NULL, remote_begin_take, NULL, NULL},
    [MR_OP_BEAT] = {NULL, remote_begin_beat, NULL, NULL},
    [MR_OP_FINISH] = {remote_prepare_finish, remote_begin_finish, remote_read_finish, NULL},
};

static const struct op *op_of(enum mr_op op)
{
    return ops[op].begin != NULL ? &ops[op] : &unary_ops[op];
}

/* Whether tasks that failed with the connection may be there all the same. */
static void tell_sent(const struct ticket *ticket, struct mr_req_enqueue *req, enum mr_err err)
{
    req->sent = ticket->sent > 0 || ticket->doubtful > 0 || ticket->left;
    bool unknown = req->sent && (err == MR_UNAVAILABLE || err == MR_CLOSED);
    for (size_t i = 0; unknown && i < req->n; i++)
        req->results[i].unknown = true;
}

void ticket_answer(struct ticket *ticket, enum mr_err err)
{
    struct mr_req *req = ticket->req;
    mr_list_remove(&ticket->link);
    ticket->remote->awaits_n -= ticket->awaits;
    if (req->op == MR_OP_ENQUEUE)
        tell_sent(ticket, mr_container(req, struct mr_req_enqueue, req), err);
    mr_req_answer(req, err);
}

void tickets_answer(struct mr_link *tickets, enum mr_err err)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(tickets)) != NULL)
        ticket_answer(mr_container(link, struct ticket, link), err);
}

struct ticket *ticket_of(const struct mr_req *req)
{
    return req->own;
}

static void deliver(struct mr_msg *msg, void *receiver)
{
    struct mr_req *req = mr_container(msg, struct mr_req, msg);
    struct ticket *ticket = ticket_of(req);
    (void)receiver;
    if (ticket == NULL) {
        mr_req_answer(req, MR_NOMEM);
    } else if (ticket->err != MR_OK) {
        ticket_answer(ticket, ticket->err);
    } else {
        ticket->op->begin(ticket);
    }
}

static void remote_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    struct ticket *ticket = mr_arena_calloc(&req->arena, 1, sizeof *ticket);
    req->own = ticket;
    req->msg.deliver = deliver;
    if (ticket != NULL) {
        ticket->remote = remote;
        ticket->req = req;
        ticket->op = op_of(req->op);
        mr_list_init(&ticket->link);
        if (ticket->op->begin == NULL)
            ticket->err = MR_UNSUPPORTED;
        else if (ticket->op->prepare != NULL)
            ticket->err = ticket->op->prepare(ticket);
    }
    mr_rpc_post(remote->rpc, &req->msg);
}

/* ---- the end of a turn ---------------------------------------------------------------------- */

void remote_flush_soon(struct remote *remote)
{
    if (!atomic_load(&remote->flush_posted) && !atomic_exchange(&remote->flush_posted, true))
        mr_rpc_post(remote->rpc, &remote->flush);
}

/* Posted behind the requests of a turn, so it comes when all of them are here. */
static void flush(struct mr_msg *msg, void *receiver)
{
    struct remote *remote = mr_container(msg, struct remote, flush);
    (void)receiver;
    atomic_store(&remote->flush_posted, false);
    producer_send(remote);
    for (struct mr_link *link = remote->nodes.next; link != &remote->nodes; link = link->next)
        node_send(mr_container(link, struct node, link));
    begun_flushed(remote);
}

/* ---- the connection ------------------------------------------------------------------------- */

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct remote *remote = arg;
    (void)channel;
    remote->up = up;
    mr_door_changed(&remote->door, up, up ? MR_OK : MR_UNAVAILABLE, why);
    if (remote->closing)
        return;
    if (up) {
        nodes_attach(remote);
        producer_up(remote);
        awaits_up(remote);
    } else if (remote->shares) {
        producer_give_up(remote);
    }
    if (remote->changed != NULL)
        remote->changed(up, remote->changed_arg);
}

/* ---- closing -------------------------------------------------------------------------------- */

void remote_quiet(struct remote *remote)
{
    if (remote->closing && mr_list_empty(&remote->calls) && mr_list_empty(&remote->nodes) &&
        mr_list_empty(&remote->producer.lane.tickets))
        mr_door_quiet(&remote->door);
}

static void close_late(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_door_quiet(&mr_container(timer, struct remote, close_timer)->door);
}

static void close_begin(struct mr_msg *msg, void *receiver)
{
    struct remote *remote = mr_container(msg, struct remote, close);
    (void)receiver;
    remote->closing = true;
    mr_rpc_timer_start(remote->rpc, &remote->close_timer,
                       mr_mono_add_ms(mr_rpc_now(remote->rpc), MR_DOOR_CLOSE_MS));
    producer_leave(remote);
    awaits_leave(remote);
    nodes_leave(remote);
    remote_quiet(remote);
}

struct barrier {
    struct mr_msg msg;
    struct remote *remote;
    struct mr_event done;
};

static void pass_barrier(struct mr_msg *msg, void *receiver)
{
    struct barrier *barrier = mr_container(msg, struct barrier, msg);
    struct remote *remote = barrier->remote;
    remote->up = false; /* nothing is called any more */
    mr_rpc_timer_stop(receiver, &remote->close_timer);
    mr_rpc_timer_stop(receiver, &remote->producer.again);
    mr_rpc_timer_stop(receiver, &remote->producer.expiry);
    mr_event_set(&barrier->done);
}

static void await_loop(struct remote *remote)
{
    struct barrier barrier = {.msg.deliver = pass_barrier, .remote = remote};
    mr_event_init(&barrier.done);
    mr_rpc_post(remote->rpc, &barrier.msg);
    mr_event_wait(&barrier.done, INT64_MAX);
}

/* A loop that goes on knows nothing of us any more: what we posted has come, and what that posted. */
static void leave_loop(struct remote *remote)
{
    await_loop(remote);
    mr_channel_free(remote->channel);
    await_loop(remote);
    await_loop(remote);
}

static void remote_free(struct remote *remote)
{
    /* What is under way is answered with MR_CLOSED. */
    if (remote->shares && remote->channel != NULL)
        leave_loop(remote);
    else
        mr_channel_free(remote->channel);
    if (!remote->shares)
        mr_rpc_free(remote->rpc);
    mr_door_done(&remote->door);
    mr_board_done(&remote->board);
    free(remote->authorization);
    mr_buf_done(&remote->namespace_);
    free(remote);
}

void mr_remote_leave(struct mr_broker *broker)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    if (remote->leaves)
        return;
    remote->leaves = true;
    remote->close.deliver = close_begin;
    mr_rpc_post(remote->rpc, &remote->close);
}

static void remote_close(struct mr_broker *broker)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    mr_remote_leave(broker);
    mr_door_await_quiet(&remote->door);
    remote_free(remote);
}

/* ---- opening -------------------------------------------------------------------------------- */

static const struct mr_broker_ops broker_ops = {
    .submit = remote_submit,
    .begun = remote_begun,
    .lease_open = remote_lease_open,
    .close = remote_close,
};

static enum mr_err set_token(struct remote *remote, const char *token)
{
    static const char scheme[] = "Bearer ";
    if (token == NULL || token[0] == '\0')
        return MR_OK;
    size_t size = sizeof scheme + strlen(token);
    remote->authorization = malloc(size);
    if (remote->authorization == NULL)
        return MR_NOMEM;
    (void)snprintf(remote->authorization, size, "%s%s", scheme, token);
    return MR_OK;
}

static enum mr_err connect_to(struct remote *remote, const struct mr_remote_options *options,
                              struct mr_channel **ret_channel, struct mr_detail *detail)
{
    bool named = remote->namespace_.len > 0;
    struct mr_channel_options channel = {
        .address = options->address,
        .tls = options->tls,
        .authorization = remote->authorization,
        .extra_name = MR_NAMESPACE_METADATA,
        .extra_value = named ? (const char *)remote->namespace_.data : NULL,
        .changed = changed,
        .arg = remote,
    };
    return mr_channel_new(remote->rpc, &channel, ret_channel, detail);
}

enum mr_err mr_remote_readdress(struct mr_broker *broker, const struct mr_remote_options *options,
                                struct mr_detail *detail)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    struct mr_channel *last = remote->channel;
    mr_assert(remote->shares && !remote->up && mr_list_empty(&remote->nodes));
    MR_TRY(connect_to(remote, options, &remote->channel, detail));
    mr_channel_free(last);
    return MR_OK;
}

static enum mr_err start(struct remote *remote, const struct mr_remote_options *options,
                         struct mr_detail *detail)
{
    MR_TRY(mr_board_init(&remote->board));
    MR_TRY(set_token(remote, options->token));
    if (options->namespace_.len > 0) {
        MR_TRY(mr_rpc_percent_encode(options->namespace_, &remote->namespace_));
        MR_TRY(mr_buf_append(&remote->namespace_, "", 1));
    }
    if (options->rpc != NULL)
        remote->rpc = options->rpc;
    else
        MR_TRY(mr_rpc_new("mr-remote", &mr_remote_limits, &remote->rpc));
    return connect_to(remote, options, &remote->channel, detail);
}

/* Waits for the first connection. */
static enum mr_err await_up(struct remote *remote, const struct mr_remote_options *options,
                            struct mr_detail *detail)
{
    struct mr_detail why;
    enum mr_err err = mr_door_await_up(&remote->door, options->open_ms, &why);
    if (err != MR_OK)
        mr_detail_set(detail, "no server at %s: %s", options->address, why.text);
    return err;
}

enum mr_err mr_remote_open(const struct mr_remote_options *options, struct mr_broker **ret_broker,
                           struct mr_detail *detail)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL)
        return MR_NOMEM;
    remote->broker.ops = &broker_ops;
    remote->payload_max = options->payload_max != 0 ? options->payload_max : MR_PAYLOAD_MAX;
    remote->refused = options->refused;
    remote->refused_arg = options->refused_arg;
    remote->shares = options->rpc != NULL;
    remote->changed = options->changed;
    remote->changed_arg = options->changed_arg;
    remote->away_ms = options->away_ms > 0 ? options->away_ms : AWAY_MS;
    remote->answer_ms = options->answer_ms > 0 ? options->answer_ms : ANSWER_MS;
    remote->flush.deliver = flush;
    mr_list_init(&remote->calls);
    mr_list_init(&remote->awaits);
    mr_list_init(&remote->nodes);
    mr_door_init(&remote->door);
    mr_timer_init(&remote->close_timer, close_late);
    producer_init(remote);
    enum mr_err err = start(remote, options, detail);
    if (err == MR_OK && !options->later)
        err = await_up(remote, options, detail);
    if (err == MR_OK && !options->later && options->namespace_.len > 0)
        err = remote_probe(remote, detail);
    if (err != MR_OK) {
        remote_free(remote);
        return err;
    }
    *ret_broker = &remote->broker;
    return MR_OK;
}
