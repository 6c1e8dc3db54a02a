/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues, by name. Who asks for all of them from the beginning is answered together with others: while the broker is asked, those
 * who come wait, and one of them asks next, for all. So nobody is told how it was before he asked, and many who ask at once cost
 * the broker one look, and are sent one answer.
 */
#include <stdlib.h>

#include "api/http_internal.h"

enum { QUEUES_MAX = 1000 };

static void write_page(const struct http_call *call, const struct mr_req_queue_list *req,
                       struct jw *jw)
{
    http_page_begin(jw);
    for (size_t i = 0; i < req->n; i++)
        if (mr_access_queue(&call->token, mr_slice_str(req->infos[i].name)))
            jw_queue(jw, &req->infos[i]);
    /* There may be more, also when the token may see none of these. */
    http_page_end(jw, req->n == req->max ? req->infos[req->n - 1].name : "");
}

static void page_back(struct http_call *call)
{
    struct jw jw = {0};
    write_page(call, &call->req.queue_list, &jw);
    http_call_reply(call, &jw);
}

/* The entries are for the broker to fill: most of them never are. */
static bool make_room(struct http_call *call, size_t max)
{
    struct mr_req_queue_list *req = &call->req.queue_list;
    req->max = max;
    req->infos = mr_arena_alloc(&req->req.arena, max * sizeof *req->infos);
    if (req->infos == NULL)
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
    return req->infos != NULL;
}

/* ---- together ------------------------------------------------------------------------------- */

/* For all who may see every queue. */
static enum mr_err make_shared(const struct http_call *call, const struct mr_req_queue_list *req,
                               struct mr_http_answer **ret_answer)
{
    struct jw jw = {0};
    write_page(call, req, &jw);
    enum mr_err err = jw.err == MR_OK ? mr_buf_append(&jw.buf, "\n", 1) : jw.err;
    if (err == MR_OK)
        return mr_http_answer_new(HTTP_JSON, &jw.buf, ret_answer);
    mr_buf_done(&jw.buf);
    return err;
}

/* shared: made for the first of those it is for. */
static void answer(struct http_call *call, const struct mr_req_queue_list *req,
                   struct mr_http_answer **shared)
{
    struct jw jw = {0};
    enum mr_err err = req->req.err;
    bool all = mr_access_all_queues(&call->token);
    if (err == MR_OK && all && *shared == NULL)
        err = make_shared(call, req, shared);
    if (err != MR_OK) {
        http_call_fail(call, err, "%s", mr_err_text(err));
    } else if (all) {
        http_call_send(call, *shared);
    } else {
        write_page(call, req, &jw);
        http_call_reply(call, &jw);
    }
}

static void together_back(struct http_call *first);

/* One of those who wait asks for all of them. */
static void ask_next(struct mr_http_api *api)
{
    struct http_together *together = &api->together;
    struct mr_link *link;
    struct http_call *call = NULL;
    while (call == NULL && (link = mr_list_pop_front(&together->waiting)) != NULL) {
        call = mr_container(link, struct http_call, link);
        if (!make_room(call, QUEUES_MAX))
            call = NULL; /* and it is answered */
    }
    together->under_way = call != NULL;
    if (call == NULL)
        return;
    mr_list_splice_back(&together->served, &together->waiting);
    http_call_submit_any(call, MR_OP_QUEUE_LIST, together_back);
}

static void together_back(struct http_call *first)
{
    struct mr_http_api *api = first->api;
    struct mr_http_answer *shared = NULL;
    struct mr_link *link;
    while ((link = mr_list_pop_front(&api->together.served)) != NULL)
        answer(mr_container(link, struct http_call, link), &first->req.queue_list, &shared);
    answer(first, &first->req.queue_list, &shared);
    mr_http_answer_free(shared);
    ask_next(api);
}

void http_together_init(struct http_together *together)
{
    mr_list_init(&together->served);
    mr_list_init(&together->waiting);
}

/* ---- routes --------------------------------------------------------------------------------- */

void http_queues(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct http_call *call = http_call_new(api, request);
    size_t limit = QUEUES_MAX;
    if (call == NULL || !http_read_limit(call, QUEUES_MAX, &limit))
        return;
    struct mr_slice after = http_query(call, "cursor");
    if (after.len > 0 && !http_read_name(call, "cursor", after))
        return;
    if (after.len > 0 || limit < QUEUES_MAX) {
        call->req.queue_list.after = after;
        if (make_room(call, limit))
            http_call_submit(call, MR_OP_QUEUE_LIST, page_back);
        return;
    }
    http_call_later(call);
    mr_list_push_back(&api->together.waiting, &call->link);
    if (!api->together.under_way)
        ask_next(api);
}

static void queue_back(struct http_call *call)
{
    struct jw jw = {0};
    jw_queue(&jw, call->req.queue_list.infos);
    http_call_reply(call, &jw);
}

void http_queue(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    struct mr_slice queue = mr_http_parameter(request);
    if (call == NULL || !http_read_name(call, "queue", queue) || !http_may_touch(call, queue) ||
        !make_room(call, 1))
        return;
    mr_detail_set(&call->detail, "queue %.*s", (int)queue.len, (const char *)queue.data);
    call->req.queue_list.only = queue;
    http_call_submit(call, MR_OP_QUEUE_LIST, queue_back);
}
