/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that a worker has in its hand go on, or end. */
#include <stdlib.h>

#include "api/http_take.h"
#include "worker/retry.h"

#define RETRY_MAX_MS (24 * 3600 * 1000LL)

/* An object for each run. */
static const struct http_bounds bounds = {
    .depth = 2, .containers = 1 + MR_BATCH_MAX, .commas = 16 * MR_BATCH_MAX};

/* What a token for some queues has not taken itself is nobody's; nor is what somebody has mixed up: the epoch of one task with
 * the id of another. */
static struct http_held *held_of(struct http_call *call, struct mr_slice id, uint64_t epoch)
{
    struct http_held *held = http_held_find(&call->api->hands, epoch);
    if (held == NULL || !mr_slice_equal(held->id, id))
        return NULL;
    bool ours = strcmp(held->hand->token, call->token.id) == 0;
    return ours || mr_access_all_queues(&call->token) ? held : NULL;
}

static size_t count_of(const json_t *json)
{
    return json_is_array(json) ? json_array_size(json) : 1;
}

static const json_t *item_of(const json_t *json, size_t i)
{
    return json_is_array(json) ? json_array_get(json, i) : json;
}

/* Reads the body; false: it is answered. */
static bool read_body(struct http_call *call)
{
    if (!http_read_json(call, &bounds))
        return false;
    size_t n = count_of(call->json);
    if (n <= MR_BATCH_MAX)
        return true;
    http_call_fail(call, MR_TOO_BIG, "%zu items in one call, the limit is %d", n, MR_BATCH_MAX);
    return false;
}

/* ---- finish --------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    enum mr_outcome outcome;
} outcomes[] = {
    {"ok", MR_DONE},
    {"error", MR_FAIL},
    {"fatal", MR_FAIL_FOR_GOOD},
    {"handback", MR_HAND_BACK},
    {"later", MR_LATER},
    {"drop", MR_DROP},
};

static enum mr_err read_outcome(struct mr_slice word, enum mr_outcome *ret_outcome)
{
    for (size_t i = 0; i < sizeof outcomes / sizeof *outcomes; i++) {
        if (mr_slice_equal(word, mr_slice_str(outcomes[i].word))) {
            *ret_outcome = outcomes[i].outcome;
            return MR_OK;
        }
    }
    return MR_INVALID;
}

/* As other workers do it: later and later. */
static int64_t delay_of(struct http_call *call, const struct http_held *held,
                        const struct mr_finish *item)
{
    static const struct mr_retry retry = {.max_ms = RETRY_MAX_MS};
    if (item->outcome != MR_FAIL && item->outcome != MR_LATER)
        return 0;
    return mr_retry_delay_ms(&retry, NULL, (held != NULL ? held->retried : 0) + 1,
                             &call->api->hands.rand);
}

static enum mr_err read_end(struct http_call *call, const json_t *json, struct mr_finish *item,
                            struct mr_detail *detail)
{
    int64_t epoch = 0, delay_ms = -1;
    struct mr_slice outcome = {0}, queue = {0};
    const struct http_field fields[] = {
        {"id", HTTP_TEXT, &item->id},       {"epoch", HTTP_NUMBER, &epoch},
        {"outcome", HTTP_TEXT, &outcome},   {"result", HTTP_TEXT, &item->result},
        {"error", HTTP_TEXT, &item->error}, {"delay_ms", HTTP_NUMBER, &delay_ms},
        {"queue", HTTP_TEXT, &queue},
    };
    MR_TRY(http_read_object(json, fields, sizeof fields / sizeof *fields, detail));
    mr_detail_set(detail, "outcome: must be ok, error, fatal, handback, later or drop");
    MR_TRY(read_outcome(outcome, &item->outcome));
    mr_detail_set(detail, "id and epoch: must be those of a task that was taken");
    if (item->id.len == 0 || item->id.len > MR_ID_MAX || epoch == 0)
        return MR_INVALID;
    mr_detail_set(detail, "result, error or delay_ms: over the limit");
    if (item->result.len > MR_RESULT_MAX || delay_ms > MR_DELAY_MAX_MS)
        return MR_TOO_BIG;
    if (item->error.len > MR_ERROR_TEXT_MAX)
        item->error.len = MR_ERROR_TEXT_MAX;
    const struct http_held *held = held_of(call, item->id, (uint64_t)epoch);
    bool may = held != NULL || mr_access_all_queues(&call->token);
    item->epoch = may ? (uint64_t)epoch : 0;
    item->ref = held != NULL ? held->ref : 0;
    item->delay_ms = delay_ms >= 0 ? delay_ms : delay_of(call, held, item);
    return MR_OK;
}

static void finished(struct http_call *call)
{
    const struct mr_req_finish *req = &call->req.finish;
    struct jw jw = {0};
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < req->n; i++) {
        enum mr_err err = req->errs[i];
        struct http_held *held = held_of(call, req->items[i].id, req->items[i].epoch);
        if (held != NULL && (err == MR_OK || err == MR_STALE || err == MR_NOT_FOUND))
            http_held_over(held);
        jw_object_begin(&jw, NULL);
        jw_bytes(&jw, "id", req->items[i].id);
        if (err != MR_OK)
            jw_error(&jw, err, mr_err_text(err), MR_STATE_NONE);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    http_call_reply(call, &jw);
}

/* A body with something in it that cannot be read is refused as a whole: nobody has to look for that. */
void http_finish(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    struct mr_detail detail;
    if (call == NULL || !read_body(call))
        return;
    struct mr_req_finish *req = &call->req.finish;
    size_t n = count_of(call->json);
    struct mr_finish *items = mr_arena_calloc(&req->req.arena, n + 1, sizeof *items);
    req->errs = mr_arena_calloc(&req->req.arena, n + 1, sizeof *req->errs);
    req->items = items;
    enum mr_err err = items != NULL && req->errs != NULL ? MR_OK : MR_NOMEM;
    for (; err == MR_OK && req->n < n; req->n++)
        err = read_end(call, item_of(call->json, req->n), &items[req->n], &detail);
    if (err == MR_NOMEM)
        http_call_fail(call, err, "%s", mr_err_text(err));
    else if (err != MR_OK)
        http_call_fail(call, err, "[%zu] %s", req->n - 1, detail.text);
    else
        http_call_submit(call, MR_OP_FINISH, finished);
}

/* ---- extend --------------------------------------------------------------------------------- */

/* What was taken together is extended once. */
struct extending {
    uint64_t number;
    struct run {
        struct mr_slice id;
        uint64_t epoch;
        enum mr_err err;
        bool cancelled;
    } * runs;
    size_t n, at;
    struct mr_arena arena;
};

static void freed(struct http_call *call)
{
    struct extending *extending = call->data;
    if (extending == NULL)
        return;
    mr_arena_done(&extending->arena);
    free(extending);
}

static void write_runs(struct http_call *call)
{
    const struct extending *extending = call->data;
    struct jw jw = {0};
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < extending->n; i++) {
        const struct run *run = &extending->runs[i];
        jw_object_begin(&jw, NULL);
        jw_bytes(&jw, "id", run->id);
        if (run->err == MR_OK)
            jw_bool(&jw, "cancelled", run->cancelled);
        else
            jw_error(&jw, run->err, mr_err_text(run->err), MR_STATE_NONE);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    http_call_reply(call, &jw);
}

static void extend_next(struct http_call *call);

/* A node that is not known any more was declared dead: what it had is somebody else's. */
static void beaten(struct http_call *call)
{
    struct extending *extending = call->data;
    struct run *run = &extending->runs[extending->at];
    struct http_held *held = held_of(call, run->id, run->epoch);
    enum mr_err err = call->req.head.err == MR_NOT_FOUND ? MR_STALE : call->req.head.err;
    if (held == NULL)
        err = MR_STALE;
    else
        held->hand->extension = err;
    run->err = err;
    run->cancelled = held != NULL && held->cancelled;
    extending->at++;
    extend_next(call);
}

static void extend_next(struct http_call *call)
{
    struct extending *extending = call->data;
    for (; extending->at < extending->n; extending->at++) {
        struct run *run = &extending->runs[extending->at];
        struct http_held *held = held_of(call, run->id, run->epoch);
        run->cancelled = held != NULL && held->cancelled;
        run->err = held == NULL || held->hand->is_closing ? MR_STALE : held->hand->extension;
        if (run->err == MR_STALE || held->hand->extended == extending->number)
            continue;
        held->hand->extended = extending->number;
        http_call_clear(call);
        call->req.beat.node = held->hand->node;
        http_call_submit_any(call, MR_OP_BEAT, beaten);
        return;
    }
    write_runs(call);
}

static enum mr_err read_runs(struct http_call *call, struct mr_detail *detail)
{
    struct extending *extending = call->data;
    size_t n = count_of(call->json);
    extending->runs = mr_arena_calloc(&extending->arena, n + 1, sizeof *extending->runs);
    if (extending->runs == NULL)
        return MR_NOMEM;
    for (; extending->n < n; extending->n++) {
        struct run *run = &extending->runs[extending->n];
        int64_t epoch = 0;
        const struct http_field fields[] = {{"id", HTTP_TEXT, &run->id},
                                            {"epoch", HTTP_NUMBER, &epoch}};
        MR_TRY(http_read_object(item_of(call->json, extending->n), fields,
                                sizeof fields / sizeof *fields, detail));
        run->epoch = (uint64_t)epoch;
    }
    return MR_OK;
}

void http_extend(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    struct mr_detail detail;
    if (call == NULL || !read_body(call))
        return;
    struct extending *extending = calloc(1, sizeof *extending);
    call->data = extending;
    call->freed = freed;
    enum mr_err err = extending != NULL ? read_runs(call, &detail) : MR_NOMEM;
    if (err != MR_OK) {
        http_call_fail(call, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
        return;
    }
    extending->number = ++call->api->hands.extensions;
    extend_next(call);
}
