/* SPDX-License-Identifier: Apache-2.0 */
#include "api/batch.h"

/* Numbers of the .proto. */
enum { REQUEST_TASKS = 1, RESPONSE_RESULTS = 1, RESPONSE_CODE = 2, RESPONSE_MESSAGE = 3 };
enum { RESULT_MESSAGE = 4 };

/* ---- in ------------------------------------------------------------------------------------- */

static enum mr_err refuse(struct batch *batch, size_t i, enum mr_err err, struct mr_slice id,
                          struct mr_arena *arena, const struct mr_detail *detail)
{
    if (batch->refusals == NULL)
        batch->refusals = mr_arena_calloc(arena, batch->n, sizeof *batch->refusals);
    if (batch->refusals == NULL)
        return MR_NOMEM;
    struct refusal *refusal = &batch->refusals[i];
    refusal->result.err = err;
    if (id.len > 0 && id.len <= MR_ID_MAX)
        memcpy(refusal->result.id, id.data, id.len);
    if (batch->first == NULL)
        batch->first = refusal;
    return mr_arena_copy(arena, mr_slice_str(detail->text), &refusal->text);
}

/* Those that may be enqueued, one behind the other; their number is in the request. */
static enum mr_err read_tasks(struct mr_api *api, const struct mr_token *token,
                              struct mr_slice bytes, struct mr_req_enqueue *req,
                              struct mr_task_options *tasks, struct batch *batch)
{
    struct mr_arena *arena = &req->req.arena;
    for (size_t i = 0; bytes.len > 0;) {
        struct mr_flat_item item;
        struct mr_task_options *task = &tasks[req->n];
        struct mr_detail detail;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != REQUEST_TASKS || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(mr_flat_read(&mr_flat_new_task, item.bytes, arena, task));
        enum mr_err err = mr_access_enqueue(&api->options.access, token, task, &detail);
        if (err == MR_OK)
            req->n++;
        else
            MR_TRY(refuse(batch, i, err, task->id, arena, &detail));
        i++;
    }
    return MR_OK;
}

static enum mr_err fill(struct mr_api *api, const struct mr_token *token, struct mr_slice bytes,
                        struct mr_req_enqueue *req, struct batch *batch, struct mr_detail *detail)
{
    struct mr_arena *arena = &req->req.arena;
    mr_detail_set(detail, "the message cannot be read");
    MR_TRY(mr_flat_count(bytes, REQUEST_TASKS, &batch->n));
    if (batch->n > MR_BATCH_MAX) {
        mr_detail_set(detail, "%zu tasks in one call, the limit is %d", batch->n, MR_BATCH_MAX);
        return MR_TOO_BIG;
    }
    struct mr_task_options *tasks = mr_arena_alloc(arena, (batch->n + 1) * sizeof *tasks);
    req->results = mr_arena_alloc(arena, (batch->n + 1) * sizeof *req->results);
    if (tasks == NULL || req->results == NULL)
        return MR_NOMEM;
    req->tasks = batch->tasks = tasks;
    return read_tasks(api, token, bytes, req, tasks, batch);
}

void batch_settle(struct mr_api *api, const struct mr_token *token,
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

enum mr_err batch_read(struct mr_api *api, const struct mr_token *token, struct mr_slice bytes,
                       struct mr_req_enqueue *req, struct batch *batch, struct mr_detail *detail)
{
    enum mr_err err = fill(api, token, bytes, req, batch, detail);
    if (err != MR_OK)
        batch_settle(api, token, req, err);
    if (err == MR_NOMEM)
        mr_detail_set(detail, "%s", mr_err_text(err));
    return err;
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

/* What the broker said, with what it was not asked at its place. */
static enum mr_err answer_merge(struct mr_api *api, struct mr_req_enqueue *req,
                                const struct batch *batch, struct answer *answer)
{
    struct mr_arena *arena = &req->req.arena;
    struct mr_enqueue_result *all = mr_arena_alloc(arena, batch->n * sizeof *all);
    answer->texts = mr_arena_calloc(arena, batch->n, sizeof *answer->texts);
    if (all == NULL || answer->texts == NULL)
        return MR_NOMEM;
    for (size_t i = 0, asked = 0; i < batch->n; i++) {
        const struct refusal *refusal = &batch->refusals[i];
        bool refused = refusal->result.err != MR_OK;
        all[i] = refused ? refusal->result : req->results[asked];
        if (refused)
            answer->texts[i] = refusal->text;
        else if (all[i].err != MR_OK)
            answer->texts[i] = why(api, req, asked);
        asked += !refused;
    }
    answer->results = all;
    answer->n = batch->n;
    return MR_OK;
}

static enum mr_err answer_of_broker(struct mr_api *api, struct mr_req_enqueue *req,
                                    struct answer *answer)
{
    answer->results = req->results;
    answer->n = req->n;
    for (size_t i = 0; i < req->n; i++) {
        if (req->results[i].err == MR_OK)
            continue;
        if (answer->texts == NULL)
            answer->texts = mr_arena_calloc(&req->req.arena, req->n, sizeof *answer->texts);
        if (answer->texts == NULL)
            return MR_NOMEM;
        answer->texts[i] = why(api, req, i);
    }
    return MR_OK;
}

enum mr_err answer_measure(struct mr_api *api, struct mr_req_enqueue *req,
                           const struct batch *batch, struct answer *answer)
{
    *answer = (struct answer){0};
    MR_TRY(batch->refusals != NULL ? answer_merge(api, req, batch, answer)
                                   : answer_of_broker(api, req, answer));
    answer->sizes = mr_arena_alloc(&req->req.arena, (answer->n + 1) * sizeof *answer->sizes);
    if (answer->sizes == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < answer->n; i++) {
        answer->sizes[i] = result_size(answer, i);
        answer->size += field_size(answer->sizes[i]);
    }
    return MR_OK;
}

void answer_write(const struct answer *answer, uint8_t *at)
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

size_t refusal_size(enum mr_err err, struct mr_slice text)
{
    return 1 + mr_flat_varint_size(err) + field_size(text.len);
}

void refusal_write(enum mr_err err, struct mr_slice text, uint8_t *at)
{
    at = mr_flat_put_varint(at, RESPONSE_CODE, err);
    memcpy(mr_flat_put_head(at, RESPONSE_MESSAGE, text.len), text.data, text.len);
}
