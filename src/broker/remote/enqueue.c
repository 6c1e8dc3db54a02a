/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producing: one stream, Tasks/EnqueueStream, for all threads. It is opened with the first task.
 *
 * When the stream breaks, what was not sent waits for the next one, up to AWAY_MS. What was sent is in
 * doubt: see broker/doubt.h.
 */
#include <stdlib.h>

#include "broker/remote/internal.h"

static const char enqueue_path[] = "/millrace.v1.Tasks/EnqueueStream";
enum { FIELD_TASKS = 1, FIELD_RESULTS = 1, FIELD_CODE = 2, FIELD_MESSAGE = 3 };
enum { FIELD_RESULT_MESSAGE = 4 };

/* ---- on the caller's thread ----------------------------------------------------------------- */

static struct mr_req_enqueue *enqueue_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_enqueue, req);
}

/* The task with the id it is sent under, which is also the answer's. */
static struct mr_task_options with_id(const struct mr_task_options *task,
                                      struct mr_enqueue_result *result)
{
    struct mr_task_options chosen = *task;
    chosen.id = mr_slice_str(result->id);
    return chosen;
}

enum mr_err remote_prepare_enqueue(struct ticket *ticket)
{
    struct mr_req_enqueue *req = enqueue_of(ticket);
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    if (req->carried != NULL)
        return remote_prepare_carry(ticket);
    size_t *sizes = mr_arena_calloc(&req->req.arena, req->n, sizeof *sizes);
    if (sizes == NULL)
        return MR_NOMEM;
    mr_wall now = mr_wall_now(mr_clock_system());
    ticket->repeatable = true;
    for (size_t i = 0; i < req->n; i++) {
        const struct mr_task_options *task = &req->tasks[i];
        req->results[i].err = mr_doubt_id(task, ticket->remote->payload_max, now, &req->results[i]);
        if (req->results[i].err != MR_OK)
            continue;
        struct mr_task_options sent = with_id(task, &req->results[i]);
        sizes[i] = mr_flat_size(&mr_flat_new_task, &sent);
        ticket->bytes += mr_flat_head_size(sizes[i]) + sizes[i];
        ticket->n++;
        ticket->repeatable &= mr_doubt_none(task);
    }
    uint8_t *at = ticket->entries = mr_arena_alloc(&req->req.arena, ticket->bytes);
    if (at == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        if (req->results[i].err != MR_OK)
            continue;
        struct mr_task_options sent = with_id(&req->tasks[i], &req->results[i]);
        at = mr_flat_write(&mr_flat_new_task, &sent, mr_flat_put_head(at, FIELD_TASKS, sizes[i]));
    }
    mr_assert(at == ticket->entries + ticket->bytes);
    return MR_OK;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* An EnqueueRequest is its entries. */
static size_t head_size(size_t entries_bytes)
{
    (void)entries_bytes;
    return 0;
}

static uint8_t *head(uint8_t *at, size_t entries_bytes, uint32_t tag)
{
    (void)entries_bytes, (void)tag;
    return at;
}

static enum mr_err *item_err(struct ticket *ticket, size_t item)
{
    return &enqueue_of(ticket)->results[item].err;
}

static enum mr_err read_result(struct remote *remote, struct mr_slice bytes)
{
    size_t item;
    struct lane *lane = &remote->producer.lane;
    struct ticket *ticket = lane_head(lane, &item);
    struct mr_req_enqueue *req = enqueue_of(ticket);
    struct mr_enqueue_result result;
    struct fields fields;
    MR_TRY(mr_flat_read(&mr_flat_enqueue_result, bytes, NULL, &result));
    if (ticket->replied < ticket->doubtful)
        mr_doubt_ends(&req->tasks[item], &result);
    if (result.err != MR_OK) {
        MR_TRY(fields_read(bytes, &fields));
        remote_refused(remote, result.err, fields.bytes[FIELD_RESULT_MESSAGE]);
    }
    if (result.id[0] == '\0') /* of one that was not even looked at */
        memcpy(result.id, req->results[item].id, sizeof result.id);
    req->results[item] = result;
    lane_next(lane);
    return MR_OK;
}

/* A message was refused as a whole, and so is each of its tasks; and the request, if that is all of
 * it. */
static void refuse_message(struct remote *remote, size_t n, enum mr_err err, struct mr_slice text)
{
    struct lane *lane = &remote->producer.lane;
    remote_refused(remote, err, text);
    for (size_t i = 0; i < n; i++) {
        size_t item;
        struct ticket *ticket = lane_head(lane, &item);
        struct mr_req_enqueue *req = enqueue_of(ticket);
        req->results[item].err = err;
        if (++ticket->refused == req->n)
            ticket->err = err;
        lane_next(lane);
    }
}

static enum mr_err read_response(struct remote *remote, struct mr_slice bytes)
{
    struct fields fields;
    size_t n, found;
    MR_TRY(lane_replied(&remote->producer.lane, &n));
    MR_TRY(mr_flat_count(bytes, FIELD_RESULTS, &found));
    if (found == 0 && n > 0) {
        MR_TRY(fields_read(bytes, &fields));
        enum mr_err err = code_of(fields.value[FIELD_CODE]);
        if (err != MR_OK)
            refuse_message(remote, n, err, fields.bytes[FIELD_MESSAGE]);
        return err == MR_OK ? MR_INVALID : MR_OK;
    }
    if (found != n)
        return MR_INVALID;
    while (bytes.len > 0) {
        struct mr_flat_item field;
        MR_TRY(mr_flat_next(&bytes, &field));
        if (field.number == FIELD_RESULTS && field.type == MR_FLAT_BYTES)
            MR_TRY(read_result(remote, field.bytes));
    }
    return MR_OK;
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct remote *remote = mr_call_data(call);
    if (read_response(remote, bytes) != MR_OK)
        mr_call_cancel(call);
    else if (lane_unsent(&remote->producer.lane))
        lane_send(&remote->producer.lane, call);
    remote_quiet(remote);
}

static void on_writable(struct mr_call *call)
{
    struct remote *remote = mr_call_data(call);
    lane_send(&remote->producer.lane, call);
}

static bool repeatable(const struct ticket *ticket)
{
    return ticket->repeatable;
}

/* Whether a stream that ended so was refused for what was sent on it; else it only ended. */
static bool is_verdict(enum mr_err err)
{
    return err != MR_OK && err != MR_UNAVAILABLE && err != MR_CLOSED && err != MR_CANCELLED;
}

/* ---- the stream ----------------------------------------------------------------------------- */

static void start_timer(struct remote *remote, struct mr_timer *timer, int64_t ms)
{
    if (!mr_timer_running(timer))
        mr_rpc_timer_start(remote->rpc, timer, mr_mono_add_ms(mr_rpc_now(remote->rpc), ms));
}

/* The server ends a stream behind the answers it owes, so a refusal is for all that have none. */
static void stream_ended(struct remote *remote, enum mr_err err, enum lane_end end)
{
    struct lane *lane = &remote->producer.lane;
    if (is_verdict(err))
        lane_rewind(lane, end, lane_keep_none, err);
    else
        lane_rewind(lane, end, end == LANE_ENDED ? lane_keep_all : repeatable, MR_UNAVAILABLE);
    start_timer(remote, &remote->producer.again, AGAIN_MS);
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct remote *remote = mr_call_data(call);
    struct producer *producer = &remote->producer;
    enum mr_err err = call_err(call, status);
    if (is_verdict(err))
        remote_refused(remote, err, text);
    producer->call = NULL;
    if (remote->closing)
        lane_fail(&producer->lane, MR_CLOSED);
    else
        stream_ended(remote, err, call_said(call) ? LANE_ENDED : LANE_BROKE);
    producer_send(remote);
    remote_quiet(remote);
}

static const struct mr_call_ops stream_ops = {
    .message = on_message,
    .writable = on_writable,
    .closed = on_closed,
};

void producer_send(struct remote *remote)
{
    struct producer *producer = &remote->producer;
    if (!lane_unsent(&producer->lane))
        return;
    bool may_open = producer->call == NULL && remote->up && !mr_timer_running(&producer->again);
    if (may_open && mr_channel_call(remote->channel, enqueue_path, 0, &stream_ops, remote,
                                    &producer->call) == MR_OK)
        mr_rpc_timer_stop(remote->rpc, &producer->expiry);
    if (producer->call != NULL)
        lane_send(&producer->lane, producer->call);
    else
        start_timer(remote, &producer->expiry, remote->away_ms);
}

void remote_begin_enqueue(struct ticket *ticket)
{
    struct remote *remote = ticket->remote;
    if (remote->producer.gave_up) {
        ticket_answer(ticket, MR_UNAVAILABLE);
        return;
    }
    lane_add(&remote->producer.lane, ticket);
    remote_flush_soon(remote);
}

static void again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    producer_send(mr_container(timer, struct remote, producer.again));
}

static void expired(struct mr_timer *timer, void *arg)
{
    struct remote *remote = mr_container(timer, struct remote, producer.expiry);
    (void)arg;
    remote->producer.gave_up = !remote->up;
    if (remote->producer.call == NULL)
        lane_fail(&remote->producer.lane, MR_UNAVAILABLE);
}

void producer_up(struct remote *remote)
{
    remote->producer.gave_up = false;
    mr_rpc_timer_stop(remote->rpc, &remote->producer.again);
    producer_send(remote);
}

/* The stream has told of its end before this, so nothing that is left here was sent, unless it may be sent twice. */
void producer_give_up(struct remote *remote)
{
    mr_rpc_timer_stop(remote->rpc, &remote->producer.expiry);
    remote->producer.gave_up = true;
    if (remote->producer.call == NULL)
        lane_fail(&remote->producer.lane, MR_UNAVAILABLE);
}

void producer_leave(struct remote *remote)
{
    mr_rpc_timer_stop(remote->rpc, &remote->producer.again);
    mr_rpc_timer_stop(remote->rpc, &remote->producer.expiry);
    producer_send(remote);
    if (remote->producer.call == NULL)
        lane_fail(&remote->producer.lane, MR_CLOSED);
}

void producer_init(struct remote *remote)
{
    static const struct lane_kind kind = {
        .head_size = head_size,
        .head = head,
        .item_err = item_err,
        .begin = unary_begin,
    };
    lane_init(&remote->producer.lane, &kind);
    mr_timer_init(&remote->producer.again, again);
    mr_timer_init(&remote->producer.expiry, expired);
}
