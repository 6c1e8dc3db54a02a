/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks.Enqueue and Tasks.EnqueueStream; what their messages say is read and written by batch.c. */
#include <stdlib.h>

#include "api/batch.h"
#include "wire/trace.h"

/* ---- one call ------------------------------------------------------------------------------- */

void answer_unary(struct unary *u)
{
    static const struct batch nothing_refused;
    struct answer answer;
    enum mr_err err = answer_measure(u->api, &u->errand.req.enqueue, &nothing_refused, &answer);
    if (err != MR_OK) {
        unary_fail(u, err, NULL);
        return;
    }
    uint8_t *room = unary_room(u, answer.size);
    if (room == NULL)
        return;
    answer_write(&answer, room);
    unary_sent(u);
}

static void enqueue_reply(struct unary *u)
{
    batch_settle(u->api, &u->token, &u->errand.req.enqueue, MR_OK);
    if (u->call != NULL)
        answer_unary(u);
}

static struct mr_slice metadata_trace(enum mr_trace_part part, void *arg)
{
    return mr_call_metadata(arg, mr_trace_names[part]);
}

/* What is sent in a trace belongs to it. Only of single calls: a stream lasts longer than what it is used for. */
static enum mr_err join_trace(const struct unary *u, const struct mr_req_enqueue *req,
                              struct batch *batch, struct mr_arena *arena)
{
    struct mr_trace trace;
    MR_TRY(mr_trace_read(metadata_trace, u->call, arena, &trace));
    for (size_t i = 0; i < req->n && trace.n > 0; i++)
        MR_TRY(mr_trace_add(&trace, arena, &batch->tasks[i]));
    return MR_OK;
}

/* A single call is refused as a whole: nobody has to look for that in its results. */
void tasks_enqueue(struct unary *u)
{
    struct mr_req_enqueue *req = &u->errand.req.enqueue;
    struct batch batch = {0};
    struct mr_detail detail;
    enum mr_err err = batch_read(u->api, &u->token, u->bytes, req, &batch, &detail);
    enum mr_err joined = err == MR_OK ? join_trace(u, req, &batch, &req->req.arena) : MR_OK;
    if (err != MR_OK) {
        unary_fail(u, err, "%s", detail.text);
    } else if (joined != MR_OK) {
        batch_settle(u->api, &u->token, req, joined);
        unary_fail(u, joined, "%s", mr_err_text(joined));
    } else if (batch.first != NULL) {
        batch_settle(u->api, &u->token, req, MR_DENIED);
        unary_fail(u, batch.first->result.err, "%.*s", (int)batch.first->text.len,
                   (const char *)batch.first->text.data);
    } else if (req->n > 1 && conn_pay_more(u->api, u->conn, req->n - 1, &detail) != MR_OK) {
        batch_settle(u->api, &u->token, req, MR_BUSY);
        unary_fail(u, MR_BUSY, "%s", detail.text);
    } else {
        unary_submit(u, MR_OP_ENQUEUE, enqueue_reply);
    }
}

/* ---- a stream of them ----------------------------------------------------------------------- */

struct enqueue_stream {
    struct stream head;
    struct valve valve;
    struct conn *conn;
    struct mr_link requests; /* in the order they came, which is that of the answers */
    size_t requests_n;
    /* How it ends, behind the answers it owes. */
    void (*ending)(struct enqueue_stream *stream);
    enum stream_end why;
    bool closed; /* the call is gone; it lives on for what is with the broker */
};

struct stream_request {
    struct errand errand;
    struct mr_link link;
    struct enqueue_stream *stream;
    struct batch batch;
    enum mr_err err;         /* of the whole */
    struct mr_detail detail; /* the same in words */
    bool answered;
};

static void request_free(struct stream_request *request)
{
    mr_list_remove(&request->link);
    request->stream->requests_n--;
    errand_clear(&request->errand);
    free(request);
}

static void stream_try_free(struct enqueue_stream *stream)
{
    if (!stream->closed || stream->requests_n > 0)
        return;
    conn_unref(stream->head.api, stream->conn);
    free(stream);
}

static void end_well(struct enqueue_stream *stream)
{
    call_end(stream->head.call, MR_OK, (struct mr_slice){0});
}

static void end_without_memory(struct enqueue_stream *stream)
{
    call_end(stream->head.call, MR_NOMEM, (struct mr_slice){0});
}

static void end_of_all_streams(struct enqueue_stream *stream)
{
    stream_end_now(&stream->head, stream->why);
}

static void stream_try_end(struct enqueue_stream *stream)
{
    if (stream->ending != NULL && !stream->closed && stream->requests_n == 0)
        stream->ending(stream);
}

/* No more is taken; what was taken is answered first. */
static void stream_ends(struct enqueue_stream *stream, void (*ending)(struct enqueue_stream *))
{
    if (stream->ending != NULL)
        return;
    stream->ending = ending;
    valve_hold(&stream->valve);
    stream_try_end(stream);
}

static enum mr_err send_refusal(struct mr_call *call, enum mr_err err, struct mr_slice text)
{
    uint8_t *room;
    MR_TRY(mr_call_room(call, refusal_size(err, text), &room));
    refusal_write(err, text, room);
    return MR_OK;
}

static void request_answer(struct stream_request *request)
{
    struct enqueue_stream *stream = request->stream;
    struct mr_req_enqueue *req = &request->errand.req.enqueue;
    struct answer answer;
    uint8_t *room;
    enum mr_err err = request->err != MR_OK ? request->err : req->req.err;
    const char *text = request->detail.text[0] != '\0' ? request->detail.text : mr_err_text(err);
    if (stream->closed)
        return;
    if (err == MR_OK)
        err = answer_measure(stream->head.api, req, &request->batch, &answer);
    if (err != MR_OK) {
        err = send_refusal(stream->head.call, err, mr_slice_str(text));
    } else {
        err = mr_call_room(stream->head.call, answer.size, &room);
        if (err == MR_OK)
            answer_write(&answer, room);
    }
    if (err == MR_NOMEM)
        stream_ends(stream, end_without_memory);
}

/* Answers what can be answered in order. */
static void stream_flush(struct enqueue_stream *stream)
{
    while (!mr_list_empty(&stream->requests)) {
        struct stream_request *request =
            mr_container(stream->requests.next, struct stream_request, link);
        if (!request->answered)
            break;
        request_answer(request);
        request_free(request);
    }
    if (!stream->closed && stream->ending == NULL) {
        if (mr_call_queued(stream->head.call) >= MR_CALL_QUEUED_HIGH)
            valve_hold(&stream->valve);
        else
            valve_release(&stream->valve);
    }
    stream_try_end(stream);
    stream_try_free(stream);
}

static void request_back(struct errand *errand)
{
    struct stream_request *request = mr_container(errand, struct stream_request, errand);
    struct enqueue_stream *stream = request->stream;
    request->answered = true;
    batch_settle(stream->head.api, &stream->head.token, &errand->req.enqueue, errand->req.head.err);
    stream_flush(stream);
}

static enum mr_err request_read(struct enqueue_stream *stream, struct stream_request *request,
                                struct mr_slice bytes)
{
    struct mr_api *api = stream->head.api;
    struct mr_req_enqueue *req = &request->errand.req.enqueue;
    struct mr_detail *detail = &request->detail;
    struct mr_slice copy;
    if (api->bytes + bytes.len > api->options.limits.bytes_total) {
        mr_detail_set(detail, "the server has too much under way");
        return MR_BUSY;
    }
    MR_TRY(mr_arena_copy(&req->req.arena, bytes, &copy));
    MR_TRY(batch_read(api, &stream->head.token, copy, req, &request->batch, detail));
    enum mr_err err = conn_pay(api, stream->conn, req->n, detail);
    if (err != MR_OK) {
        batch_settle(api, &stream->head.token, req, err);
        return err;
    }
    detail->text[0] = '\0';
    return MR_OK;
}

/* At its place in the order of the answers; NULL: the stream ends. */
static struct stream_request *request_new(struct enqueue_stream *stream)
{
    if (stream->ending != NULL)
        return NULL;
    struct stream_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        stream_ends(stream, end_without_memory);
        return NULL;
    }
    request->stream = stream;
    request->errand.budget = &stream->conn->budget;
    mr_list_push_back(&stream->requests, &request->link);
    stream->requests_n++;
    return request;
}

/* It is answered so, and the stream goes on. */
static void request_refuse(struct stream_request *request, enum mr_err err)
{
    request->err = err;
    request->answered = true;
    stream_flush(request->stream);
}

static void enqueue_stream_message(struct mr_call *call, struct mr_slice bytes)
{
    struct enqueue_stream *stream = mr_call_data(call);
    struct stream_request *request = request_new(stream);
    if (request == NULL)
        return;
    enum mr_err err = request_read(stream, request, bytes);
    if (err == MR_OK)
        errand_submit(&request->errand, stream->head.api, MR_OP_ENQUEUE, request_back);
    else
        request_refuse(request, err);
}

static void enqueue_stream_too_big(struct mr_call *call, size_t len)
{
    struct stream_request *request = request_new(mr_call_data(call));
    if (request == NULL)
        return;
    mr_detail_set(&request->detail, "a message of %zu bytes is over the server's limit", len);
    request_refuse(request, MR_TOO_BIG);
}

static void enqueue_stream_half_closed(struct mr_call *call)
{
    stream_ends(mr_call_data(call), end_well);
}

static void enqueue_stream_writable(struct mr_call *call)
{
    struct enqueue_stream *stream = mr_call_data(call);
    if (stream->ending == NULL)
        valve_release(&stream->valve);
}

static void enqueue_stream_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct enqueue_stream *stream = mr_call_data(call);
    (void)status, (void)text;
    valve_close(&stream->valve);
    stream_close(&stream->head);
    stream->closed = true;
    stream_try_free(stream);
}

static const struct mr_call_ops enqueue_stream_ops = {
    .message = enqueue_stream_message,
    .too_big = enqueue_stream_too_big,
    .half_closed = enqueue_stream_half_closed,
    .writable = enqueue_stream_writable,
    .closed = enqueue_stream_closed,
};

static void enqueue_stream_end(struct stream *head, enum stream_end why)
{
    struct enqueue_stream *stream = mr_container(head, struct enqueue_stream, head);
    if (stream->ending == NULL)
        stream->why = why;
    stream_ends(stream, end_of_all_streams);
}

void enqueue_stream_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct enqueue_stream *stream = calloc(1, sizeof *stream);
    struct conn *conn = stream != NULL ? conn_get(api, call) : NULL;
    if (conn == NULL) {
        free(stream);
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    stream->conn = conn;
    mr_list_init(&stream->requests);
    mr_call_set(call, &enqueue_stream_ops, stream);
    valve_open(&stream->valve, &conn->budget, call);
    stream_open(&stream->head, api, call, token, enqueue_stream_end);
}
