/* SPDX-License-Identifier: Apache-2.0 */
/* Looking: tasks, nodes, the archive. */
#include <stdio.h>
#include <stdlib.h>

#include "api/doubts.h"
#include "api/http_scan.h"
#include "broker/hidden.h"

enum { TEXT_SEEN_MAX = 2000 };

/* ---- tasks ---------------------------------------------------------------------------------- */

static void write_tasks(struct http_call *call, struct jw *jw)
{
    const struct mr_req_list *req = &call->req.list;
    for (size_t i = 0; i < req->n; i++)
        if (mr_access_queue(&call->token, req->tasks[i].queue))
            jw_task(jw, &req->tasks[i]);
}

static void tasks_back(struct http_call *call)
{
    struct jw jw = {0};
    http_page_begin(&jw);
    write_tasks(call, &jw);
    http_page_end(&jw, call->req.list.next);
    http_call_reply(call, &jw);
}

/* What a list of tasks is of, but for its state and its cursor. */
static bool read_filter(struct http_call *call)
{
    struct mr_list_options *options = &call->req.list.options;
    options->queue = http_query(call, "queue");
    options->type = http_query(call, "type");
    options->limit = HTTP_LIMIT;
    options->with_payload = true;
    if (options->queue.len > 0 &&
        (!http_read_name(call, "queue", options->queue) || !http_may_touch(call, options->queue)))
        return false;
    if (options->type.len > 0 && !http_read_name(call, "type", options->type))
        return false;
    mr_detail_set(&call->detail, "%s%.*s", options->queue.len > 0 ? "queue " : "this list",
                  (int)options->queue.len, (const char *)options->queue.data);
    return http_read_limit(call, MR_BATCH_MAX, &options->limit);
}

/*
 * Those with a text in them: the broker has no index of that, so some pages are gone through. What is asked for next is never
 * more than there is room for, since a cursor is behind a whole page; when that is little, or much was gone through, it is
 * enough.
 */
struct search {
    struct jw jw;
    struct mr_slice text;
    struct mr_list_options options;
    size_t limit, found, seen;
    char cursor[MR_CURSOR_MAX];
};

static void search_freed(struct http_call *call)
{
    struct search *search = call->data;
    mr_buf_done(&search->jw.buf);
    free(search);
}

static void search_on(struct http_call *call);

static void search_back(struct http_call *call)
{
    struct search *search = call->data;
    const struct mr_req_list *req = &call->req.list;
    for (size_t i = 0; i < req->n; i++) {
        const struct mr_task *task = &req->tasks[i];
        if (!mr_access_queue(&call->token, task->queue) || !http_task_has_text(task, search->text))
            continue;
        jw_task(&search->jw, task);
        search->found++;
    }
    search->seen += req->n;
    memcpy(search->cursor, req->next, sizeof search->cursor);
    http_call_clear(call);
    if (search->cursor[0] != '\0' && search->found * 2 < search->limit &&
        search->seen < TEXT_SEEN_MAX) {
        search_on(call);
        return;
    }
    http_page_end(&search->jw, search->cursor);
    struct jw jw = search->jw;
    search->jw = (struct jw){0};
    http_call_reply(call, &jw);
}

static void search_on(struct http_call *call)
{
    struct search *search = call->data;
    call->req.list.options = search->options;
    call->req.list.options.limit = search->limit - search->found;
    if (search->cursor[0] != '\0')
        call->req.list.options.cursor = search->cursor;
    http_call_submit(call, MR_OP_LIST, search_back);
}

static void search_begin(struct http_call *call, struct mr_slice text)
{
    struct search *search = calloc(1, sizeof *search);
    if (search == NULL || text.len > MR_NAME_MAX) {
        enum mr_err err = search == NULL ? MR_NOMEM : MR_INVALID;
        free(search);
        http_call_fail(call, err, "%s",
                       err == MR_NOMEM ? mr_err_text(err) : "text: at most 128 bytes");
        return;
    }
    call->data = search;
    call->freed = search_freed;
    search->text = text;
    search->options = call->req.list.options;
    search->limit = search->options.limit;
    http_call_clear(call);
    http_page_begin(&search->jw);
    search_on(call);
}

void http_tasks(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    int state = MR_STATE_NONE;
    if (call == NULL || !read_filter(call) || !http_read_word(call, &words_states, "state", &state))
        return;
    call->req.list.options.state = (enum mr_state)state;
    struct mr_slice text = http_query(call, "text");
    call->req.list.options.cursor = mr_http_query(request, "cursor");
    if (text.len > 0)
        search_begin(call, text);
    else
        http_call_submit(call, MR_OP_LIST, tasks_back);
}

static void task_back(struct http_call *call)
{
    const struct mr_task *task = &call->req.get.task;
    struct jw jw = {0};
    if (!http_may_touch(call, task->queue))
        return;
    jw_task(&jw, task);
    http_call_reply(call, &jw);
}

void http_task(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    if (call == NULL)
        return;
    call->req.get.id = mr_http_parameter(request);
    mr_detail_set(&call->detail, "task %.*s", (int)call->about.len, (const char *)call->about.data);
    http_call_submit(call, MR_OP_GET, task_back);
}

/* ---- the archive ---------------------------------------------------------------------------- */

/*
 * Archived tasks first, then operations on timers that could not be applied: two lists of the broker, and a cursor
 * says of which of them it is.
 */
#define OF_TASKS      "t"
#define OF_OPERATIONS "o"

static void dead_back(struct http_call *call)
{
    const struct mr_req_list *req = &call->req.list;
    char next[MR_CURSOR_MAX + 1] = "";
    struct jw jw = {0};
    bool operations = mr_queue_is_inner(req->options.queue);
    bool more = req->options.queue.len == 0 && mr_access_all_queues(&call->token);
    if (req->next[0] != '\0')
        (void)snprintf(next, sizeof next, "%s%s", operations ? OF_OPERATIONS : OF_TASKS, req->next);
    else if (more)
        (void)snprintf(next, sizeof next, OF_OPERATIONS);
    http_page_begin(&jw);
    write_tasks(call, &jw);
    http_page_end(&jw, next);
    http_call_reply(call, &jw);
}

/* A queue that nobody has used has nothing in it. */
static void dead_back_any(struct http_call *call)
{
    enum mr_err err = call->req.head.err;
    bool none = err == MR_NOT_FOUND && mr_queue_is_inner(call->req.list.options.queue);
    if (none)
        call->req.list.n = 0;
    if (err == MR_OK || none)
        dead_back(call);
    else
        http_call_fail(call, err, "%s: %s", call->detail.text, mr_err_text(err));
}

void http_dead(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    if (call == NULL || !read_filter(call))
        return;
    struct mr_list_options *options = &call->req.list.options;
    const char *cursor = mr_http_query(request, "cursor");
    options->state = MR_ARCHIVED;
    if (cursor != NULL && cursor[0] == OF_OPERATIONS[0] && options->queue.len == 0) {
        options->queue = mr_slice_str(MR_TIMERS_QUEUE);
        if (!http_may_touch(call, options->queue))
            return;
    } else if (cursor != NULL && cursor[0] != OF_TASKS[0]) {
        http_call_fail(call, MR_INVALID, "cursor: not one of ours");
        return;
    }
    options->cursor = cursor != NULL && cursor[1] != '\0' ? cursor + 1 : NULL;
    http_call_submit_any(call, MR_OP_LIST, dead_back_any);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void nodes_back(struct http_call *call)
{
    struct mr_req_node_list *req = &call->req.node_list;
    struct jw_crew crew = {&req->leader, req->assignments, req->assignments_n};
    struct jw jw = {0};
    mr_doubts_mark(call->api->options.doubts, req->nodes, req->n);
    http_page_begin(&jw);
    for (size_t i = 0; jw.err == MR_OK && i < req->n; i++) {
        bool seen = false;
        jw.err = node_filter(&call->token, &req->req.arena, &req->nodes[i], &seen);
        if (jw.err == MR_OK && seen)
            jw_node(&jw, &crew, &req->nodes[i]);
    }
    http_page_end(&jw, "");
    http_call_reply(call, &jw);
}

void http_nodes(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    if (call != NULL)
        http_call_submit(call, MR_OP_NODE_LIST, nodes_back);
}

static void leader_back(struct http_call *call)
{
    struct jw jw = {0};
    jw_leader(&jw, &call->req.node_list.leader);
    http_call_reply(call, &jw);
}

void http_leader(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    if (call == NULL)
        return;
    call->req.node_list.for_assignments = true; /* the rest is not wanted */
    http_call_submit(call, MR_OP_NODE_LIST, leader_back);
}

/* ---- itself --------------------------------------------------------------------------------- */

void http_version(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct mr_token token;
    struct jw jw = {0};
    if (!http_door_admit(&api->options.door, request, &token))
        return;
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "version", mr_version());
    jw_object_end(&jw);
    http_reply(request, http_row_of(request)->status, &jw);
}

/* Who asks, for those that show people what they may do. */
void http_session(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct mr_token token;
    struct jw jw = {0};
    if (!http_door_admit(&api->options.door, request, &token))
        return;
    bool known = token.id[0] != '\0';
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "role", mr_role_name(token.role));
    if (known)
        jw_text(&jw, "token", token.id);
    else
        jw_null(&jw, "token");
    if (!mr_access_all_queues(&token))
        jw_text(&jw, "queue", token.queue);
    else
        jw_null(&jw, "queue");
    jw_text(&jw, "version", mr_version());
    jw_object_end(&jw);
    http_reply(request, http_row_of(request)->status, &jw);
}

void http_document(struct mr_http_request *request, void *arg)
{
    const struct mr_http_api *api = arg;
    mr_http_reply_answer(request, 200, api->document);
}
