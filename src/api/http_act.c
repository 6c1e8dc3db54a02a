/* SPDX-License-Identifier: Apache-2.0 */
/* Acting on tasks and queues: what people do. */
#include <stdio.h>
#include <stdlib.h>

#include "api/http_internal.h"
#include "base/text.h"

enum { IDS_BODY_DEPTH = 2 };

/* ---- one task ------------------------------------------------------------------------------- */

static void control_back(struct http_call *call)
{
    enum mr_err err = call->req.control.errs[0];
    struct jw jw = {0};
    if (err != MR_OK) {
        http_call_fail(call, err, "task %.*s: %s", (int)call->about.len,
                       (const char *)call->about.data, mr_err_text(err));
        return;
    }
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "id", call->about);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

static void control(struct http_call *call, enum mr_verb verb)
{
    struct mr_req_control *req = &call->req.control;
    struct mr_control *item = mr_arena_calloc(&req->req.arena, 1, sizeof *item);
    req->errs = mr_arena_calloc(&req->req.arena, 1, sizeof *req->errs);
    if (item == NULL || req->errs == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    *item = (struct mr_control){.verb = verb, .id = call->about};
    req->items = item;
    req->n = 1;
    http_call_submit(call, MR_OP_CONTROL, control_back);
}

static void looked(struct http_call *call)
{
    enum mr_verb verb = (enum mr_verb)(uintptr_t)call->data;
    if (!http_may_touch(call, call->req.get.task.queue))
        return;
    http_call_clear(call);
    control(call, verb);
}

/* With a token for some queues it is looked first where the task stands. */
static void control_one(struct mr_http_request *request, struct mr_http_api *api, enum mr_verb verb)
{
    struct http_call *call = http_call_new(api, request);
    if (call == NULL)
        return;
    mr_detail_set(&call->detail, "task %.*s", (int)call->about.len, (const char *)call->about.data);
    if (mr_access_all_queues(&call->token)) {
        control(call, verb);
        return;
    }
    call->data = (void *)(uintptr_t)verb;
    call->req.get.id = call->about;
    http_call_submit(call, MR_OP_GET, looked);
}

void http_task_cancel(struct mr_http_request *request, void *arg)
{
    control_one(request, arg, MR_VERB_CANCEL);
}

void http_task_run(struct mr_http_request *request, void *arg)
{
    control_one(request, arg, MR_VERB_RUN);
}

void http_task_archive(struct mr_http_request *request, void *arg)
{
    control_one(request, arg, MR_VERB_ARCHIVE);
}

void http_task_delete(struct mr_http_request *request, void *arg)
{
    control_one(request, arg, MR_VERB_DELETE);
}

/* ---- many of the archive -------------------------------------------------------------------- */

static void requeue_back(struct http_call *call)
{
    const struct mr_req_control *req = &call->req.control;
    struct jw jw = {0};
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < req->n; i++) {
        jw_object_begin(&jw, NULL);
        jw_bytes(&jw, "id", req->items[i].id);
        if (req->errs[i] != MR_OK)
            jw_error(&jw, req->errs[i], mr_err_text(req->errs[i]), MR_STATE_NONE);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    http_call_reply(call, &jw);
}

/* The items, or what is wrong, in detail. */
static enum mr_err read_ids(struct http_call *call, struct mr_detail *detail)
{
    struct mr_req_control *req = &call->req.control;
    const json_t *ids = NULL;
    const struct http_field fields[] = {{"ids", HTTP_ANY, &ids}};
    MR_TRY(http_read_object(call->json, fields, 1, detail));
    size_t n = json_array_size(ids);
    mr_detail_set(detail, "ids: must be an array of 1 to %d strings", MR_BATCH_MAX);
    if (!json_is_array(ids) || n == 0)
        return MR_INVALID;
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct mr_control *items = mr_arena_calloc(&req->req.arena, n, sizeof *items);
    req->errs = mr_arena_calloc(&req->req.arena, n, sizeof *req->errs);
    req->items = items;
    for (; items != NULL && req->n < n; req->n++) {
        const json_t *id = json_array_get(ids, req->n);
        if (!json_is_string(id))
            return MR_INVALID;
        items[req->n] =
            (struct mr_control){.verb = MR_VERB_RUN,
                                .id = mr_slice_make(json_string_value(id), json_string_length(id))};
    }
    return items != NULL && req->errs != NULL ? MR_OK : MR_NOMEM;
}

void http_requeue(struct mr_http_request *request, void *arg)
{
    static const struct http_bounds bounds = {
        .depth = IDS_BODY_DEPTH, .containers = 4, .commas = MR_BATCH_MAX + 8};
    struct http_call *call = http_call_new_heavy(arg, request);
    struct mr_detail detail;
    if (call == NULL || !http_read_json(call, &bounds))
        return;
    if (json_object_size(call->json) > 0 && json_object_get(call->json, "ids") == NULL) {
        http_requeue_all(call);
        return;
    }
    enum mr_err err = read_ids(call, &detail);
    (void)snprintf(call->text, sizeof call->text, "%zu task%s", call->req.control.n,
                   mr_plural(call->req.control.n));
    call->about = mr_slice_str(call->text);
    if (err != MR_OK)
        http_call_fail(call, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
    else if (http_may_touch_all(call, ": run its tasks one by one, by /tasks/ID/run"))
        http_call_submit(call, MR_OP_CONTROL, requeue_back);
}

/* ---- queues --------------------------------------------------------------------------------- */

static void named_back(struct http_call *call)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "queue", call->about);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

/* NULL: it is answered. */
static struct http_call *call_of_queue(struct mr_http_request *request, struct mr_http_api *api)
{
    struct http_call *call = http_call_new(api, request);
    struct mr_slice queue = mr_http_parameter(request);
    if (call == NULL || !http_read_name(call, "queue", queue) || !http_may_touch(call, queue))
        return NULL;
    mr_detail_set(&call->detail, "queue %.*s", (int)queue.len, (const char *)queue.data);
    return call;
}

static void set_paused(struct mr_http_request *request, struct mr_http_api *api, uint64_t paused)
{
    struct http_call *call = call_of_queue(request, api);
    if (call == NULL)
        return;
    call->req.queue_set.queue = call->about;
    call->req.queue_set.setting = MR_QUEUE_PAUSED;
    call->req.queue_set.value = paused;
    http_call_submit(call, MR_OP_QUEUE_SET, named_back);
}

void http_queue_pause(struct mr_http_request *request, void *arg)
{
    set_paused(request, arg, 1);
}

void http_queue_resume(struct mr_http_request *request, void *arg)
{
    set_paused(request, arg, 0);
}

void http_queue_delete(struct mr_http_request *request, void *arg)
{
    struct http_call *call = call_of_queue(request, arg);
    if (call == NULL)
        return;
    const char *force = mr_http_query(request, "force");
    bool forced = force != NULL && strcmp(force, "true") == 0;
    if (force != NULL && !forced && strcmp(force, "false") != 0) {
        http_call_fail(call, MR_INVALID, "force: must be true or false");
        return;
    }
    call->req.queue_remove.queue = call->about;
    call->req.queue_remove.mode = forced ? MR_QUEUE_REMOVE_FORCE : MR_QUEUE_REMOVE_EMPTY;
    http_call_submit(call, MR_OP_QUEUE_REMOVE, named_back);
}

/* ---- settings of a queue -------------------------------------------------------------------- */

enum { SETTINGS_MAX = 7 };

struct settings {
    struct mr_req_queue_set sets[SETTINGS_MAX]; /* what is to be set, one behind the other */
    size_t n, at;
};

static const char *const setting_names[] = {
    [MR_QUEUE_MAX_LENGTH] = "max_length",
    [MR_QUEUE_PARTITIONS] = "partitions",
    [MR_QUEUE_RATE] = "rate",
    [MR_QUEUE_CONCURRENCY] = "concurrency",
    [MR_QUEUE_RETRY_WAIT] = "retry_wait_ms",
    [MR_QUEUE_ASSIGN] = "assign",
    [MR_QUEUE_RETRY_MODE] = "retry_mode",
};

static void add_setting(struct settings *settings, enum mr_queue_setting setting, int64_t value,
                        int64_t rate_ms)
{
    if (value >= 0)
        settings->sets[settings->n++] = (struct mr_req_queue_set){
            .setting = setting, .value = (uint64_t)value, .rate_ms = rate_ms};
}

static enum mr_err read_settings(const json_t *json, struct settings *settings,
                                 struct mr_detail *detail)
{
    int64_t max_length = -1, partitions = -1, rate = -1, rate_ms = MR_MS_PER_S, concurrency = -1,
            wait_ms = -1;
    struct mr_slice assign = {0}, retry = {0};
    const struct http_field fields[] = {
        {"max_length", HTTP_NUMBER, &max_length},
        {"partitions", HTTP_NUMBER, &partitions},
        {"rate", HTTP_NUMBER, &rate},
        {"rate_ms", HTTP_NUMBER, &rate_ms},
        {"concurrency", HTTP_NUMBER, &concurrency},
        {"retry_wait_ms", HTTP_NUMBER, &wait_ms},
        {"assign", HTTP_TEXT, &assign},
        {"retry_mode", HTTP_TEXT, &retry},
    };
    MR_TRY(http_read_object(json, fields, sizeof fields / sizeof *fields, detail));
    int assigned = -1, mode = -1;
    MR_TRY(words_read(&words_assigns, "assign", assign, &assigned, detail));
    MR_TRY(words_read(&words_retry_modes, "retry_mode", retry, &mode, detail));
    add_setting(settings, MR_QUEUE_MAX_LENGTH, max_length, 0);
    add_setting(settings, MR_QUEUE_PARTITIONS, partitions, 0);
    add_setting(settings, MR_QUEUE_RATE, rate, rate > 0 ? rate_ms : 0);
    add_setting(settings, MR_QUEUE_CONCURRENCY, concurrency, 0);
    add_setting(settings, MR_QUEUE_RETRY_WAIT, wait_ms, 0);
    add_setting(settings, MR_QUEUE_ASSIGN, assigned, 0);
    add_setting(settings, MR_QUEUE_RETRY_MODE, mode, 0);
    mr_detail_set(detail, "there is nothing to be set");
    return settings->n > 0 ? MR_OK : MR_INVALID;
}

static void set_next(struct http_call *call);

static void set_back(struct http_call *call)
{
    struct settings *settings = call->data;
    if (++settings->at < settings->n)
        set_next(call);
    else
        named_back(call);
}

static void set_next(struct http_call *call)
{
    const struct settings *settings = call->data;
    http_call_clear(call);
    call->req.queue_set = settings->sets[settings->at];
    call->req.queue_set.queue = call->about;
    http_call_submit(call, MR_OP_QUEUE_SET, set_back);
}

static void settings_freed(struct http_call *call)
{
    free(call->data);
}

/* What no engine takes is found before anything is set. */
static enum mr_err check_settings(const struct settings *settings, struct mr_slice queue,
                                  struct mr_detail *detail)
{
    for (size_t i = 0; i < settings->n; i++) {
        struct mr_req_queue_set set = settings->sets[i];
        set.queue = queue;
        enum mr_err err = mr_queue_set_check(&set);
        if (err != MR_OK) {
            mr_detail_set(detail, "%s: %s", setting_names[set.setting], mr_err_text(err));
            return err;
        }
    }
    return MR_OK;
}

/* Each of them is a step of its own: when the broker fails between two of them, those before it are in force. */
void http_queue_set(struct mr_http_request *request, void *arg)
{
    static const struct http_bounds bounds = {.depth = 1, .containers = 1, .commas = 16};
    struct http_call *call = call_of_queue(request, arg);
    struct mr_detail detail;
    if (call == NULL || !http_read_json(call, &bounds))
        return;
    call->data = calloc(1, sizeof(struct settings));
    call->freed = settings_freed;
    enum mr_err err =
        call->data != NULL ? read_settings(call->json, call->data, &detail) : MR_NOMEM;
    if (err == MR_OK)
        err = check_settings(call->data, call->about, &detail);
    if (err != MR_OK)
        http_call_fail(call, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
    else
        set_next(call);
}
