/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/tasks: one object, or an array of them with an answer for each. What is wrong with one of them is its own
 * affair: the others are enqueued. An id that is there already is answered with the state of the task that has it, so that
 * who has lost an answer asks again.
 */
#include "api/http_internal.h"
#include "api/task_json.h"
#include "wire/task.h"
#include "wire/trace.h"

/* An object of a task, with an object of headers. */
static const struct http_bounds bounds = {
    .depth = 3,
    .containers = 1 + 2 * MR_BATCH_MAX,
    .commas = MR_BATCH_MAX * (MR_HEADERS_MAX + 64),
};

/* What came, in the request's arena. Those that may be enqueued stand one behind the other in the request of the
 * broker. */
struct item {
    struct mr_slice id;
    struct mr_enqueue_result result; /* of one that was refused here */
    const char *why;
    bool sent;
};

struct posting {
    struct item *items;
    size_t n;
    struct mr_task_options *tasks;
    struct mr_trace trace; /* of the request */
};

static enum mr_err refuse(struct http_call *call, struct item *item, enum mr_err err,
                          const char *text)
{
    struct mr_slice copy;
    MR_TRY(mr_arena_copy(&call->req.head.arena, mr_slice_make(text, strlen(text) + 1), &copy));
    item->result.err = err;
    item->why = copy.data;
    return MR_OK;
}

static enum mr_err read_item(struct http_call *call, struct item *item, json_t *json,
                             struct mr_task_options *task)
{
    struct mr_http_api *api = call->api;
    struct mr_detail detail = {.text = ""};
    *task = (struct mr_task_options){.retention_ms = MR_PEOPLE_RETENTION_MS};
    const struct posting *posting = call->data;
    enum mr_err err = mr_task_from_json(json, &call->req.head.arena, task, &detail);
    if (err == MR_OK)
        err = mr_trace_add(&posting->trace, &call->req.head.arena, task);
    if (err == MR_OK)
        err = mr_task_options_check(task, api->options.payload_max, &detail);
    if (err == MR_OK)
        err = mr_access_enqueue(api->options.door.access, &call->token, task, &detail);
    if (err == MR_NOMEM)
        return err;
    item->id = task->id;
    item->sent = err == MR_OK;
    if (item->sent)
        return MR_OK;
    return refuse(call, item, err, detail.text[0] != '\0' ? detail.text : mr_err_text(err));
}

/* Gives the token what was not accepted. */
static void settle(struct http_call *call)
{
    const struct mr_req_enqueue *req = &call->req.enqueue;
    size_t refused = 0;
    if (call->token.quota == 0)
        return;
    for (size_t i = 0; i < req->n; i++)
        refused += req->req.err != MR_OK || req->results[i].err != MR_OK;
    if (refused > 0)
        mr_tokens_give_back(call->api->options.door.access->tokens, call->token.id, refused);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void write_item(struct http_call *call, struct jw *jw, const struct item *item, size_t sent)
{
    const struct mr_req_enqueue *req = &call->req.enqueue;
    struct mr_detail detail;
    if (!item->sent) {
        mr_task_answer_json(jw, item->id, &item->result, item->why);
        return;
    }
    const struct mr_enqueue_result *result = &req->results[sent];
    if (result->err != MR_OK && !mr_task_refusal(&req->tasks[sent], result, &detail))
        mr_detail_set(&detail, "%s", mr_err_text(result->err));
    mr_task_answer_json(jw, item->id, result, detail.text);
}

static void answer(struct http_call *call)
{
    const struct posting *posting = call->data;
    struct jw jw = {0};
    size_t sent = 0;
    if (json_is_array(call->json)) {
        jw_array_begin(&jw, NULL);
        for (size_t i = 0; i < posting->n; i++) {
            write_item(call, &jw, &posting->items[i], sent);
            sent += posting->items[i].sent;
        }
        jw_array_end(&jw);
        http_call_reply(call, &jw);
        return;
    }
    const struct item *item = posting->items;
    enum mr_err err = item->sent ? call->req.enqueue.results[0].err : item->result.err;
    write_item(call, &jw, item, 0);
    http_call_answer(call, err == MR_OK ? call->row->status : mr_err_http_status(err), &jw, err);
}

static void back(struct http_call *call)
{
    enum mr_err err = call->req.head.err;
    settle(call);
    if (err == MR_OK)
        answer(call);
    else
        http_call_fail(call, err, "%s", mr_err_text(err));
}

/* ---- reading -------------------------------------------------------------------------------- */

static struct mr_slice request_trace(enum mr_trace_part part, void *arg)
{
    const char *value = mr_http_header(arg, mr_trace_names[part]);
    return mr_slice_str(value != NULL ? value : "");
}

static enum mr_err make_room(struct http_call *call, size_t n)
{
    struct mr_req_enqueue *req = &call->req.enqueue;
    struct mr_arena *arena = &req->req.arena;
    struct posting *posting = mr_arena_calloc(arena, 1, sizeof *posting);
    if (posting == NULL)
        return MR_NOMEM;
    posting->n = n;
    posting->items = mr_arena_calloc(arena, n + 1, sizeof *posting->items);
    posting->tasks = mr_arena_alloc(arena, (n + 1) * sizeof *posting->tasks);
    req->results = mr_arena_calloc(arena, n + 1, sizeof *req->results);
    req->tasks = posting->tasks;
    call->data = posting;
    bool fine = posting->items != NULL && posting->tasks != NULL && req->results != NULL;
    return fine ? mr_trace_read(request_trace, call->request, arena, &posting->trace) : MR_NOMEM;
}

static enum mr_err read_items(struct http_call *call)
{
    const struct posting *posting = call->data;
    struct mr_req_enqueue *req = &call->req.enqueue;
    bool many = json_is_array(call->json);
    for (size_t i = 0; i < posting->n; i++) {
        json_t *json = many ? json_array_get(call->json, i) : call->json;
        MR_TRY(read_item(call, &posting->items[i], json, &posting->tasks[req->n]));
        req->n += posting->items[i].sent;
    }
    return MR_OK;
}

void http_enqueue(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    if (call == NULL || !http_read_json(call, &bounds))
        return;
    size_t n = json_is_array(call->json) ? json_array_size(call->json) : 1;
    if (n > MR_BATCH_MAX) {
        http_call_fail(call, MR_TOO_BIG, "%zu tasks in one call, the limit is %d", n, MR_BATCH_MAX);
        return;
    }
    struct mr_detail detail = {.text = ""};
    enum mr_err err = make_room(call, n);
    if (err == MR_OK)
        err = read_items(call);
    if (err == MR_OK && call->req.enqueue.n > 1)
        err = http_door_pay_more(&call->api->options.door, call->request, &call->token,
                                 call->req.enqueue.n - 1, &detail);
    if (err != MR_OK) {
        call->req.head.err = err;
        settle(call);
        http_call_fail(call, err, "%s", detail.text[0] != '\0' ? detail.text : mr_err_text(err));
    } else if (call->req.enqueue.n == 0) {
        answer(call);
    } else {
        http_call_submit_any(call, MR_OP_ENQUEUE, back);
    }
}
