/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thing done to all tasks that fit: POST /tasks/bulk, and POST /dead/requeue by queue, type or error, or of all. First
 * their ids are collected, or only counted (dry_run), then they are dealt with in batches: what is done moves tasks, and a walk
 * that went on meanwhile would meet some of them twice.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/http_scan.h"
#include "base/text.h"

enum {
    IDS_MAX = 10 * 1000, /* in one call */
    IDS_DEFAULT = MR_BATCH_MAX,
    COUNT_MAX = 100 * 1000, /* are looked at */
};

struct bulk {
    struct http_scan scan;
    enum mr_verb verb;
    bool dry_run;
    size_t max; /* tasks */
    size_t matched, done, failed;
    struct mr_arena arena; /* of ids */
    struct mr_slice *ids;
    size_t at;
    enum mr_err err;
};

static void freed(struct http_call *call)
{
    struct bulk *bulk = call->data;
    mr_arena_done(&bulk->arena);
    free(bulk->ids);
    free(bulk);
}

/* ---- acting --------------------------------------------------------------------------------- */

static void reply(struct http_call *call)
{
    const struct bulk *bulk = call->data;
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_uint(&jw, "matched", bulk->matched);
    jw_uint(&jw, "done", bulk->done);
    jw_uint(&jw, "failed", bulk->failed);
    jw_bool(&jw, "more", bulk->scan.more);
    jw_object_end(&jw);
    (void)snprintf(call->text, sizeof call->text, "%zu task%s", bulk->done, mr_plural(bulk->done));
    call->about = mr_slice_str(call->text);
    http_call_reply(call, &jw);
}

static void act(struct http_call *call);

static void acted(struct http_call *call)
{
    struct bulk *bulk = call->data;
    const struct mr_req_control *req = &call->req.control;
    enum mr_err err = req->req.err;
    for (size_t i = 0; i < req->n; i++)
        *(err == MR_OK && req->errs[i] == MR_OK ? &bulk->done : &bulk->failed) += 1;
    bulk->at += req->n;
    http_call_clear(call);
    if (err != MR_OK)
        http_call_fail(call, err, "after %zu task%s: %s", bulk->done, mr_plural(bulk->done),
                       mr_err_text(err));
    else
        act(call);
}

static void act(struct http_call *call)
{
    struct bulk *bulk = call->data;
    struct mr_req_control *req = &call->req.control;
    size_t n = bulk->matched - bulk->at < MR_BATCH_MAX ? bulk->matched - bulk->at : MR_BATCH_MAX;
    if (bulk->dry_run || n == 0) {
        reply(call);
        return;
    }
    struct mr_control *items = mr_arena_calloc(&req->req.arena, n, sizeof *items);
    req->errs = mr_arena_calloc(&req->req.arena, n, sizeof *req->errs);
    if (items == NULL || req->errs == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    for (size_t i = 0; i < n; i++)
        items[i] = (struct mr_control){.verb = bulk->verb, .id = bulk->ids[bulk->at + i]};
    req->items = items;
    req->n = n;
    http_call_submit_any(call, MR_OP_CONTROL, acted);
}

/* ---- collecting ----------------------------------------------------------------------------- */

static bool found(struct http_call *call, const struct mr_task *task)
{
    struct bulk *bulk = call->data;
    if (bulk->matched == bulk->max)
        return false;
    if (!bulk->dry_run)
        bulk->err = mr_arena_copy(&bulk->arena, task->id, &bulk->ids[bulk->matched]);
    bulk->matched += bulk->err == MR_OK;
    return bulk->err == MR_OK;
}

static void over(struct http_call *call)
{
    const struct bulk *bulk = call->data;
    if (bulk->err != MR_OK)
        http_call_fail(call, bulk->err, "%s", mr_err_text(bulk->err));
    else
        act(call);
}

/* ---- what is asked for ---------------------------------------------------------------------- */

struct asked {
    struct mr_slice action, queue, state, type, text, error;
    bool all, dry_run;
    int64_t max;
};

static bool read_verb(struct mr_slice action, enum mr_verb *ret_verb)
{
    static const struct {
        const char *name;
        enum mr_verb verb;
    } verbs[] = {{"run", MR_VERB_RUN},
                 {"cancel", MR_VERB_CANCEL},
                 {"archive", MR_VERB_ARCHIVE},
                 {"delete", MR_VERB_DELETE}};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (mr_slice_equal(action, mr_slice_str(verbs[i].name))) {
            *ret_verb = verbs[i].verb;
            return true;
        }
    }
    return false;
}

/* Nobody empties everything by leaving something out. */
static const char *wrong_with(const struct asked *asked, const struct bulk *bulk)
{
    bool some = asked->queue.len > 0 || asked->state.len > 0 || asked->type.len > 0 ||
                asked->text.len > 0 || bulk->scan.by_error;
    if (!some && !asked->all)
        return "say which: queue, state, type, text or error; or \"all\":true";
    if (some && asked->all)
        return "all: stands alone";
    if (asked->max < 1 || asked->max > IDS_MAX)
        return "max: must be a number from 1 to 10000";
    if (asked->text.len > MR_NAME_MAX)
        return "text: at most 128 bytes";
    return NULL;
}

static void begin(struct http_call *call, const struct asked *asked)
{
    struct bulk *bulk = call->data;
    struct http_scan *scan = &bulk->scan;
    const char *wrong = wrong_with(asked, bulk);
    if (wrong != NULL) {
        http_call_fail(call, MR_INVALID, "%s", wrong);
        return;
    }
    if (asked->queue.len > 0 &&
        (!http_read_name(call, "queue", asked->queue) || !http_may_touch(call, asked->queue)))
        return;
    if (asked->type.len > 0 && !http_read_name(call, "type", asked->type))
        return;
    bulk->dry_run = asked->dry_run;
    bulk->max = asked->dry_run ? COUNT_MAX : (size_t)asked->max;
    bulk->ids = calloc(asked->dry_run ? 1 : bulk->max, sizeof *bulk->ids);
    if (bulk->ids == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    scan->options.queue = asked->queue;
    scan->options.type = asked->type;
    scan->text = asked->text;
    scan->error = asked->error;
    scan->seen_max = COUNT_MAX;
    scan->found = found;
    scan->over = over;
    http_scan(call, scan);
}

/* NULL: the call is ended. */
static struct bulk *bulk_new(struct http_call *call)
{
    call->data = calloc(1, sizeof(struct bulk));
    if (call->data == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return NULL;
    }
    call->freed = freed;
    return call->data;
}

void http_tasks_bulk(struct mr_http_request *request, void *arg)
{
    static const struct http_bounds bounds = {.depth = 1, .containers = 1, .commas = 16};
    struct http_call *call = http_call_new_heavy(arg, request);
    struct mr_detail detail;
    struct asked asked = {.max = IDS_DEFAULT};
    const struct http_field fields[] = {
        {"action", HTTP_TEXT, &asked.action},   {"queue", HTTP_TEXT, &asked.queue},
        {"state", HTTP_TEXT, &asked.state},     {"type", HTTP_TEXT, &asked.type},
        {"text", HTTP_TEXT, &asked.text},       {"all", HTTP_FLAG, &asked.all},
        {"dry_run", HTTP_FLAG, &asked.dry_run}, {"max", HTTP_NUMBER, &asked.max},
    };
    if (call == NULL || !http_read_json(call, &bounds))
        return;
    struct bulk *bulk = bulk_new(call);
    if (bulk == NULL)
        return;
    int state = MR_STATE_NONE;
    enum mr_err err = http_read_object(call->json, fields, sizeof fields / sizeof *fields, &detail);
    if (err == MR_OK)
        err = words_read(&words_states, "state", asked.state, &state, &detail);
    bulk->scan.options.state = (enum mr_state)state;
    if (err != MR_OK)
        http_call_fail(call, err, "%s", detail.text);
    else if (!read_verb(asked.action, &bulk->verb))
        http_call_fail(call, MR_INVALID, "action: must be run, cancel, archive or delete");
    else
        begin(call, &asked);
}

void http_requeue_all(struct http_call *call)
{
    struct mr_detail detail;
    struct asked asked = {.max = IDS_DEFAULT};
    const json_t *error = NULL;
    const struct http_field fields[] = {
        {"queue", HTTP_TEXT, &asked.queue},
        {"type", HTTP_TEXT, &asked.type},
        {"error", HTTP_ANY, &error},
        {"all", HTTP_FLAG, &asked.all},
        {"dry_run", HTTP_FLAG, &asked.dry_run},
        {"max", HTTP_NUMBER, &asked.max},
    };
    struct bulk *bulk = bulk_new(call);
    if (bulk == NULL)
        return;
    enum mr_err err = http_read_object(call->json, fields, sizeof fields / sizeof *fields, &detail);
    if (err == MR_OK && error != NULL && !json_is_string(error) && !json_is_null(error)) {
        mr_detail_set(&detail, "error: must be a string");
        err = MR_INVALID;
    }
    if (err != MR_OK) {
        http_call_fail(call, err, "%s", detail.text);
        return;
    }
    if (json_is_string(error)) {
        asked.error = mr_slice_make(json_string_value(error), json_string_length(error));
        bulk->scan.by_error = true;
    }
    bulk->verb = MR_VERB_RUN;
    bulk->scan.options.state = MR_ARCHIVED;
    bulk->scan.operations = asked.all && mr_access_all_queues(&call->token);
    begin(call, &asked);
}
