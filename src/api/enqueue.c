/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks.Enqueue and Tasks.EnqueueStream. Requests are read straight from their bytes into the
 * options the broker wants, and answers written straight from its results: this is the way that
 * hundreds of thousands of tasks a second take.
 */
#include <stdlib.h>

#include "api/internal.h"

/* Numbers of the .proto. */
enum { REQUEST_TASKS = 1, RESPONSE_RESULTS = 1, RESULT_MESSAGE = 4 };

/* ---- in ------------------------------------------------------------------------------------- */

static enum mr_err may_enqueue(const struct mr_token *token, const struct mr_task_options *task,
                               struct mr_detail *detail)
{
    if (!mr_access_queue(token, task->queue)) {
        struct mr_slice queue = task->queue.len > 0 ? task->queue : MR_SLICE_LIT("default");
        mr_detail_set(detail, "token %s is for queues %s, not for %.*s", token->id, token->queue,
                      (int)queue.len, (const char *)queue.data);
        return MR_DENIED;
    }
    if (token->priority_limited && task->priority_s > token->priority_max_s) {
        mr_detail_set(detail, "token %s may ask for a priority of at most %g s, not %g", token->id,
                      token->priority_max_s, task->priority_s);
        return MR_DENIED;
    }
    return MR_OK;
}

static enum mr_err read_tasks(const struct mr_token *token, struct mr_slice bytes,
                              struct mr_arena *arena, struct mr_task_options *tasks,
                              struct mr_detail *detail)
{
    for (size_t i = 0; bytes.len > 0;) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != REQUEST_TASKS || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(mr_flat_read(&mr_flat_new_task, item.bytes, arena, &tasks[i]));
        MR_TRY(may_enqueue(token, &tasks[i++], detail));
    }
    return MR_OK;
}

static enum mr_err fill(const struct mr_token *token, struct mr_slice bytes,
                        struct mr_req_enqueue *req, struct mr_detail *detail)
{
    struct mr_arena *arena = &req->req.arena;
    MR_TRY(mr_flat_count(bytes, REQUEST_TASKS, &req->n));
    if (req->n > MR_BATCH_MAX) {
        mr_detail_set(detail, "%zu tasks in one call, the limit is %d", req->n, MR_BATCH_MAX);
        return MR_TOO_BIG;
    }
    struct mr_task_options *tasks = mr_arena_alloc(arena, (req->n + 1) * sizeof *tasks);
    req->results = mr_arena_alloc(arena, (req->n + 1) * sizeof *req->results);
    if (tasks == NULL || req->results == NULL)
        return MR_NOMEM;
    req->tasks = tasks;
    return read_tasks(token, bytes, arena, tasks, detail);
}

enum mr_err enqueue_fill(struct mr_api *api, const struct mr_token *token, struct mr_slice bytes,
                         struct mr_req_enqueue *req, struct mr_detail *detail)
{
    mr_detail_set(detail, "the message cannot be read");
    enum mr_err err = fill(token, bytes, req, detail);
    if (err == MR_OK && token->quota > 0)
        err = mr_tokens_spend(api->options.access.tokens, token->id, req->n, detail);
    return err;
}

void enqueue_settle(struct mr_api *api, const struct mr_token *token,
                    const struct mr_req_enqueue *req, enum mr_err err)
{
    size_t refused = 0;
    if (token->quota == 0)
        return;
    for (size_t i = 0; i < req->n; i++)
        refused += err != MR_OK || req->results[i].err != MR_OK;
    if (refused > 0)
        mr_tokens_give_back(api->options.access.tokens, token->id, refused);
}

/* ---- out ------------------------------------------------------------------------------------ */

/* What a refused task did wrong, in words; the broker only says which error it is. */
static struct mr_slice why(struct mr_api *api, struct mr_req_enqueue *req, size_t i)
{
    enum mr_err err = req->results[i].err;
    struct mr_detail detail = {.text = ""};
    struct mr_slice text = mr_slice_str(mr_err_text(err));
    if ((err != MR_INVALID && err != MR_TOO_BIG) ||
        mr_task_options_check(&req->tasks[i], api->options.limits.payload_max, &detail) == MR_OK ||
        mr_arena_copy(&req->req.arena, mr_slice_str(detail.text), &text) != MR_OK)
        return text;
    return text;
}

struct answer {
    const struct mr_enqueue_result *results;
    struct mr_slice *texts; /* NULL: none was refused */
    size_t *sizes;
    size_t n, size;
};

static size_t field_size(size_t len)
{
    return mr_flat_head_size(len) + len;
}

static size_t result_size(const struct answer *answer, size_t i)
{
    const struct mr_enqueue_result *result = &answer->results[i];
    size_t size = mr_flat_size(&mr_flat_enqueue_result, result);
    return result->err == MR_OK ? size : size + field_size(answer->texts[i].len);
}

static enum mr_err answer_measure(struct mr_api *api, struct mr_req_enqueue *req,
                                  struct answer *answer)
{
    struct mr_arena *arena = &req->req.arena;
    *answer = (struct answer){.results = req->results, .n = req->n};
    answer->sizes = mr_arena_alloc(arena, (req->n + 1) * sizeof *answer->sizes);
    if (answer->sizes == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        if (req->results[i].err != MR_OK) {
            if (answer->texts == NULL)
                answer->texts = mr_arena_calloc(arena, req->n, sizeof *answer->texts);
            if (answer->texts == NULL)
                return MR_NOMEM;
            answer->texts[i] = why(api, req, i);
        }
        answer->sizes[i] = result_size(answer, i);
        answer->size += field_size(answer->sizes[i]);
    }
    return MR_OK;
}

static void answer_write(const struct answer *answer, uint8_t *at)
{
    for (size_t i = 0; i < answer->n; i++) {
        const struct mr_enqueue_result *result = &answer->results[i];
        at = mr_flat_put_head(at, RESPONSE_RESULTS, answer->sizes[i]);
        at = mr_flat_write(&mr_flat_enqueue_result, result, at);
        if (result->err == MR_OK)
            continue;
        struct mr_slice text = answer->texts[i];
        at = mr_flat_put_head(at, RESULT_MESSAGE, text.len);
        memcpy(at, text.data, text.len);
        at += text.len;
    }
}

/* ---- one call ------------------------------------------------------------------------------- */

static void enqueue_reply(struct unary *u)
{
    struct mr_req_enqueue *req = &u->job.req.enqueue;
    struct answer answer;
    enqueue_settle(u->api, &u->token, req, MR_OK);
    if (u->call == NULL)
        return;
    enum mr_err err = answer_measure(u->api, req, &answer);
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

void tasks_enqueue(struct unary *u)
{
    struct mr_req_enqueue *req = &u->job.req.enqueue;
    struct mr_detail detail;
    enum mr_err err = enqueue_fill(u->api, &u->token, u->bytes, req, &detail);
    if (err != MR_OK) {
        unary_fail(u, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
        return;
    }
    if (req->n > 1 && !conn_pay(u->api, u->conn, req->n - 1)) {
        enqueue_settle(u->api, &u->token, req, MR_BUSY);
        unary_fail(u, MR_BUSY, "over the rate of %u a second", u->api->options.limits.rate);
        return;
    }
    unary_submit(u, MR_OP_ENQUEUE, enqueue_reply);
}

/* ---- a stream of them ----------------------------------------------------------------------- */

struct enqueue_stream {
    struct stream head;
    struct gate gate;
    struct conn *conn;
    struct mr_link requests; /* in the order they came, which is that of the answers */
    size_t requests_n;
    enum mr_err ending; /* why it ends behind the answers it owes */
    bool ends;          /* no more is taken */
    bool closed;        /* the call is gone; it lives on for what is with the broker */
    struct mr_detail detail;
};

struct stream_request {
    struct job job;
    struct mr_link link;
    struct enqueue_stream *stream;
    bool answered;
};

static void request_free(struct stream_request *request)
{
    mr_list_remove(&request->link);
    request->stream->requests_n--;
    job_clear(&request->job);
    free(request);
}

static void stream_try_free(struct enqueue_stream *stream)
{
    if (!stream->closed || stream->requests_n > 0)
        return;
    conn_unref(stream->head.api, stream->conn);
    free(stream);
}

static void stream_try_end(struct enqueue_stream *stream)
{
    if (stream->ends && !stream->closed && stream->requests_n == 0)
        call_end(stream->head.call, stream->ending, mr_slice_str(stream->detail.text));
}

/* No more is taken; what was taken is answered first. */
static void stream_ends(struct enqueue_stream *stream, enum mr_err err, const char *text)
{
    if (stream->ends)
        return;
    stream->ends = true;
    stream->ending = err;
    mr_detail_set(&stream->detail, "%s", text);
    gate_wait(&stream->gate, true);
    stream_try_end(stream);
}

static void request_answer(struct stream_request *request)
{
    struct enqueue_stream *stream = request->stream;
    struct mr_req_enqueue *req = &request->job.req.enqueue;
    struct answer answer;
    uint8_t *room;
    enum mr_err err = req->req.err;
    if (stream->closed)
        return;
    if (err == MR_OK)
        err = answer_measure(stream->head.api, req, &answer);
    if (err == MR_OK)
        err = mr_call_room(stream->head.call, answer.size, &room);
    if (err == MR_OK)
        answer_write(&answer, room);
    else
        stream_ends(stream, err, "");
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
    if (!stream->closed && !stream->ends)
        gate_wait(&stream->gate, mr_call_queued(stream->head.call) >= MR_CALL_QUEUED_HIGH);
    stream_try_end(stream);
    stream_try_free(stream);
}

static void request_back(struct job *job)
{
    struct stream_request *request = mr_container(job, struct stream_request, job);
    struct enqueue_stream *stream = request->stream;
    request->answered = true;
    enqueue_settle(stream->head.api, &stream->head.token, &job->req.enqueue, job->req.head.err);
    stream_flush(stream);
}

/* Over the rate: every task of it is refused, the stream goes on. */
static void request_refuse(struct stream_request *request)
{
    struct enqueue_stream *stream = request->stream;
    struct mr_req_enqueue *req = &request->job.req.enqueue;
    enqueue_settle(stream->head.api, &stream->head.token, req, MR_BUSY);
    for (size_t i = 0; i < req->n; i++)
        req->results[i] = (struct mr_enqueue_result){.err = MR_BUSY};
    request->answered = true;
    stream_flush(stream);
}

static enum mr_err request_read(struct enqueue_stream *stream, struct stream_request *request,
                                struct mr_slice bytes, struct mr_detail *detail)
{
    struct mr_req_enqueue *req = &request->job.req.enqueue;
    struct mr_slice copy;
    if (stream->head.api->bytes + bytes.len > stream->head.api->options.limits.bytes_total) {
        mr_detail_set(detail, "the server has too much under way");
        return MR_BUSY;
    }
    MR_TRY(mr_arena_copy(&req->req.arena, bytes, &copy));
    return enqueue_fill(stream->head.api, &stream->head.token, copy, req, detail);
}

static void enqueue_stream_message(struct mr_call *call, struct mr_slice bytes)
{
    struct enqueue_stream *stream = mr_call_data(call);
    struct mr_detail detail = {.text = ""};
    if (stream->ends)
        return;
    struct stream_request *request = calloc(1, sizeof *request);
    if (request == NULL) {
        stream_ends(stream, MR_NOMEM, "");
        return;
    }
    request->stream = stream;
    request->job.budget = &stream->conn->budget;
    mr_list_push_back(&stream->requests, &request->link);
    stream->requests_n++;
    enum mr_err err = request_read(stream, request, bytes, &detail);
    if (err != MR_OK) {
        request_free(request);
        stream_ends(stream, err, detail.text);
    } else if (!conn_pay(stream->head.api, stream->conn, request->job.req.enqueue.n)) {
        request_refuse(request);
    } else {
        job_submit(&request->job, stream->head.api, MR_OP_ENQUEUE, request_back);
    }
}

static void enqueue_stream_half_closed(struct mr_call *call)
{
    stream_ends(mr_call_data(call), MR_OK, "");
}

static void enqueue_stream_writable(struct mr_call *call)
{
    struct enqueue_stream *stream = mr_call_data(call);
    if (!stream->ends)
        gate_wait(&stream->gate, false);
}

static void enqueue_stream_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct enqueue_stream *stream = mr_call_data(call);
    (void)status, (void)text;
    gate_close(&stream->gate);
    stream_close(&stream->head);
    stream->closed = true;
    stream_try_free(stream);
}

static const struct mr_call_ops enqueue_stream_ops = {
    .message = enqueue_stream_message,
    .half_closed = enqueue_stream_half_closed,
    .writable = enqueue_stream_writable,
    .closed = enqueue_stream_closed,
};

static void enqueue_stream_stop(struct stream *head)
{
    stream_ends(mr_container(head, struct enqueue_stream, head), MR_UNAVAILABLE,
                "the server is stopping");
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
    gate_open(&stream->gate, &conn->budget, call);
    stream_open(&stream->head, api, call, token, enqueue_stream_stop);
}
