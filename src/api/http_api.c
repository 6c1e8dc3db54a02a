/* SPDX-License-Identifier: Apache-2.0 */
/* Life of the HTTP API, and a request's way to the broker and back. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/http_history.h"
#include "api/http_leaders.h"

/* ---- calls ---------------------------------------------------------------------------------- */

struct http_call *http_call_new(struct mr_http_api *api, struct mr_http_request *request)
{
    struct mr_token token;
    struct mr_detail detail;
    enum mr_err err;
    if (!http_door_admit(&api->options.door, request, &token))
        return NULL;
    struct mr_broker *broker = atomic_load(&api->broker);
    struct http_call *call = NULL;
    if (broker == NULL)
        mr_http_fail(request, MR_UNAVAILABLE, "the server is starting or stopping");
    else if (api->calls_n >= HTTP_CALLS_MAX)
        mr_http_fail(request, MR_BUSY, "too many requests are under way: try again");
    else if ((call = calloc(1, sizeof *call)) == NULL)
        mr_http_fail(request, MR_NOMEM, mr_err_text(MR_NOMEM));
    if (call == NULL)
        return NULL;
    api->http = mr_http_of(request);
    api->calls_n++;
    call->api = api;
    call->request = request;
    call->row = http_row_of(request);
    call->broker = broker;
    call->token = token;
    call->about = mr_http_parameter(request);
    err = http_door_pay(&api->options.door, request, &token, &detail);
    if (err == MR_OK)
        return call;
    http_call_fail(call, err, "%s", detail.text);
    return NULL;
}

struct http_call *http_call_new_heavy(struct mr_http_api *api, struct mr_http_request *request)
{
    struct http_call *call = http_call_new(api, request);
    if (call == NULL)
        return NULL;
    if (api->heavy_waiting_n >= HTTP_HEAVY_WAITING_MAX) {
        http_call_fail(call, MR_BUSY, "too many lists are under way: try again");
        return NULL;
    }
    call->heavy = true;
    return call;
}

/* One of those whose answers are large has ended: the next goes to the broker, if its client is still there. */
static void let_next_in(struct mr_http_api *api)
{
    struct mr_link *link;
    api->heavy_n--;
    while (api->heavy_n < HTTP_HEAVY_MAX &&
           (link = mr_list_pop_front(&api->heavy_waiting)) != NULL) {
        struct http_call *call = mr_container(link, struct http_call, link);
        api->heavy_waiting_n--;
        if (mr_http_is_gone(call->request)) {
            mr_http_release(api->http);
            http_call_fail(call, MR_CLOSED, "%s", mr_err_text(MR_CLOSED));
            continue;
        }
        call->let_in = true;
        api->heavy_n++;
        mr_broker_submit(call->broker, &call->req.head);
    }
}

/* Whether it may go to the broker now; else it waits, and goes by itself. */
static bool is_let_in(struct http_call *call)
{
    struct mr_http_api *api = call->api;
    if (!call->heavy || call->let_in)
        return true;
    call->let_in = api->heavy_n < HTTP_HEAVY_MAX;
    api->heavy_n += call->let_in;
    if (call->let_in)
        return true;
    mr_list_push_back(&api->heavy_waiting, &call->link);
    api->heavy_waiting_n++;
    return false;
}

void http_call_clear(struct http_call *call)
{
    mr_req_done(&call->req.head);
    memset(&call->req, 0, sizeof call->req);
}

/* What is left of a call that was answered. */
static void http_call_free(struct http_call *call)
{
    mr_assert(call->request == NULL);
    if (call->freed != NULL)
        call->freed(call);
    struct mr_http_api *api = call->api;
    bool was_let_in = call->let_in;
    api->calls_n--;
    json_decref(call->json);
    mr_req_done(&call->req.head);
    free(call);
    if (was_let_in)
        let_next_in(api);
}

static void audit(struct http_call *call, enum mr_err err)
{
    if (call->row->act != NULL)
        http_door_audit(&call->api->options.door, call->request, &call->token, call->about, err);
}

void http_call_answer(struct http_call *call, int status, struct jw *jw, enum mr_err err)
{
    audit(call, err);
    http_reply(call->request, status, jw);
    call->request = NULL;
    http_call_free(call);
}

void http_call_reply(struct http_call *call, struct jw *jw)
{
    http_call_answer(call, call->row->status, jw, MR_OK);
}

void http_call_fail(struct http_call *call, enum mr_err err, const char *fmt, ...)
{
    char text[sizeof call->detail.text];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    audit(call, err);
    mr_http_fail(call->request, err, text);
    call->request = NULL;
    http_call_free(call);
}

void http_call_text(struct http_call *call, const char *type, enum mr_err err, struct mr_slice text)
{
    if (err != MR_OK) {
        http_call_fail(call, err, "%s", mr_err_text(err));
        return;
    }
    mr_http_reply(call->request, call->row->status, type, text);
    call->request = NULL;
    http_call_free(call);
}

void http_call_send(struct http_call *call, struct mr_http_answer *answer)
{
    mr_http_reply_answer(call->request, call->row->status, answer);
    call->request = NULL;
    http_call_free(call);
}

/* ---- to the broker and back ----------------------------------------------------------------- */

static void deliver(struct mr_msg *msg, void *receiver)
{
    struct http_call *call = mr_container(msg, struct http_call, msg);
    mr_http_release(receiver);
    call->back(call);
}

void http_call_return(struct http_call *call)
{
    call->msg.deliver = deliver;
    mr_http_post(call->api->http, &call->msg);
}

/* Thread: the broker's. */
static void on_done(struct mr_req *req)
{
    http_call_return(req->arg);
}

void http_call_later(struct http_call *call)
{
    if (call->request != NULL && !call->later)
        mr_http_later(call->request);
    call->later = true;
}

void http_call_leave(struct http_call *call, void (*back)(struct http_call *call))
{
    http_call_later(call);
    call->back = back;
    mr_http_hold(call->api->http);
}

void http_call_submit_any(struct http_call *call, enum mr_op op,
                          void (*back)(struct http_call *call))
{
    call->req.head.op = op;
    call->req.head.done = on_done;
    call->req.head.arg = call;
    http_call_leave(call, back);
    if (is_let_in(call))
        mr_broker_submit(call->broker, &call->req.head);
}

static void back_well(struct http_call *call)
{
    enum mr_err err = call->req.head.err;
    if (err == MR_OK)
        call->carried(call);
    else if (call->detail.text[0] != '\0')
        http_call_fail(call, err, "%s: %s", call->detail.text, mr_err_text(err));
    else
        http_call_fail(call, err, "%s", mr_err_text(err));
}

void http_call_submit(struct http_call *call, enum mr_op op, void (*back)(struct http_call *call))
{
    call->carried = back;
    http_call_submit_any(call, op, back_well);
}

bool http_may_touch(struct http_call *call, struct mr_slice queue)
{
    struct mr_detail detail;
    if (mr_access_queue(&call->token, queue))
        return true;
    mr_access_not_covered(&call->token, queue, &detail);
    http_call_fail(call, MR_DENIED, "%s", detail.text);
    return false;
}

bool http_may_touch_all(struct http_call *call, const char *rest)
{
    struct mr_detail detail;
    if (mr_access_all_queues(&call->token))
        return true;
    mr_access_not_all(&call->token, rest, &detail);
    http_call_fail(call, MR_DENIED, "%s", detail.text);
    return false;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* Nobody sends megabytes that are refused by who sends them. */
static bool may_send(struct mr_http_request *request, void *arg)
{
    struct mr_token token;
    struct mr_http_api *api = arg;
    return http_door_admit(&api->options.door, request, &token);
}

static void add_routes(struct mr_http_api *api, enum http_owner owner, mr_http_admit *admit)
{
    for (size_t i = 0; i < http_rows_n; i++) {
        const struct http_row *row = &http_rows[i];
        if (row->owner == owner)
            api->routes[api->routes_n++] = (struct mr_http_route){.method = row->method,
                                                                  .path = row->path,
                                                                  .handle = row->handle,
                                                                  .body_max = row->body_max,
                                                                  .admit = admit,
                                                                  .data = row};
    }
}

enum mr_err mr_http_api_new(const struct mr_http_api_options *options, struct mr_http_api **ret_api)
{
    struct mr_http_api *api = calloc(1, sizeof *api);
    if (api == NULL)
        return MR_NOMEM;
    api->options = *options;
    if (api->options.payload_max == 0)
        api->options.payload_max = MR_PAYLOAD_MAX;
    mr_list_init(&api->heavy_waiting);
    http_hands_init(&api->hands);
    http_together_init(&api->together);
    struct mr_http_jobs_options jobs = {.door = &api->options.door,
                                        .payload_max = api->options.payload_max};
    struct mr_buf document = {0};
    enum mr_err err = mr_http_jobs_new(&jobs, &api->jobs);
    if (err == MR_OK && options->rate > 0)
        err = http_rates_new(options->rate, &api->options.door.rates);
    if (err == MR_OK)
        err = http_history_new(api, &api->history);
    if (err == MR_OK)
        err = http_leaders_new(api, &api->leaders);
    if (err == MR_OK)
        err = http_openapi(&document);
    if (err == MR_OK)
        err = mr_http_answer_new(HTTP_JSON, &document, &api->document);
    if (err == MR_OK && (api->routes = calloc(http_rows_n, sizeof *api->routes)) == NULL)
        err = MR_NOMEM;
    if (err != MR_OK) {
        mr_http_api_free(api);
        return err;
    }
    add_routes(api, HTTP_API, may_send);
    api->routes_ours_n = api->routes_n;
    add_routes(api, HTTP_JOBS, http_jobs_may_send);
    *ret_api = api;
    return MR_OK;
}

static void tick_ours(void *arg)
{
    http_events_look(arg);
}

static void beat(struct mr_http *http, void *arg)
{
    struct mr_http_api *api = arg;
    http_history_beat(api->history, http);
    http_leaders_beat(api->leaders, http);
    http_takes_look(api);
}

static void tick_jobs(void *arg)
{
    mr_http_jobs_tick(arg);
}

void mr_http_api_tables(struct mr_http_api *api, struct mr_http_table tables[MR_HTTP_API_TABLES])
{
    size_t ours = api->routes_ours_n;
    tables[0] = (struct mr_http_table){
        .routes = api->routes, .routes_n = ours, .arg = api, .tick = tick_ours, .beat = beat};
    tables[1] = (struct mr_http_table){.routes = api->routes + ours,
                                       .routes_n = api->routes_n - ours,
                                       .arg = api->jobs,
                                       .tick = tick_jobs};
}

void mr_http_api_set(struct mr_http_api *api, const struct mr_http_parts *parts)
{
    atomic_store(&api->timers, parts->timers);
    atomic_store(&api->store, parts->store);
    atomic_store(&api->view_arg, parts->view_arg);
    atomic_store(&api->broker, parts->broker);
    mr_http_jobs_set(api->jobs, parts->jobs);
}

struct order {
    struct mr_msg msg;
    struct mr_http_api *api;
    struct mr_event done;
};

static void end(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct order *order = mr_container(msg, struct order, msg);
    http_takes_end(order->api);
    http_events_stop(order->api);
    mr_event_set(&order->done);
}

void mr_http_api_stop(struct mr_http_api *api, struct mr_http *http)
{
    if (api == NULL)
        return;
    atomic_store(&api->broker, NULL);
    atomic_store(&api->timers, NULL);
    atomic_store(&api->store, NULL);
    mr_http_jobs_stop(api->jobs, http);
    if (http == NULL)
        return;
    struct order order = {.msg.deliver = end, .api = api};
    mr_event_init(&order.done);
    mr_http_post(http, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

void mr_http_api_free(struct mr_http_api *api)
{
    if (api == NULL)
        return;
    mr_assert(api->events == NULL);
    mr_exec_thread_free(api->looks);
    http_leaders_free(api->leaders);
    http_history_free(api->history);
    mr_http_jobs_free(api->jobs);
    mr_http_answer_free(api->document);
    http_rates_free(api->options.door.rates);
    free(api->timings.at);
    free(api->routes);
    free(api);
}
