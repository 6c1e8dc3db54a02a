/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about jobs that have one answer. */
#include <stdlib.h>

#include "api/http_jobs_internal.h"
#include "api/words.h"
#include "base/text.h"
#include "wire/job_json.h"

/* ---- who ------------------------------------------------------------------------------------ */

bool http_admit(struct mr_http_jobs *jobs, struct mr_http_request *request,
                struct mr_token *ret_token, struct mr_job_service **ret_service)
{
    if (!http_door_admit(jobs->options.door, request, ret_token))
        return false;
    if (jobs->http == NULL) /* once: other threads read it from the first watch or ask on */
        jobs->http = mr_http_of(request);
    *ret_service = atomic_load(&jobs->service);
    jobs->feeds.service = *ret_service;
    if (*ret_service == NULL)
        mr_http_fail(request, MR_UNAVAILABLE, "the server is starting or stopping");
    return *ret_service != NULL;
}

bool http_pay(struct mr_http_jobs *jobs, struct mr_http_request *request,
              const struct mr_token *token)
{
    struct mr_detail detail;
    enum mr_err err = http_door_pay(jobs->options.door, request, token, &detail);
    if (err == MR_OK)
        return true;
    http_door_audit(jobs->options.door, request, token, mr_http_parameter(request), err);
    mr_http_fail(request, err, detail.text);
    return false;
}

bool http_id(struct mr_http_request *request, char id[MR_JOB_ID_MAX + 1])
{
    struct mr_slice text = mr_http_parameter(request);
    if (text.len > MR_JOB_ID_MAX) {
        mr_http_fail(request, MR_NOT_FOUND, "no job has such an id");
        return false;
    }
    memcpy(id, text.data, text.len);
    id[text.len] = '\0';
    return true;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* A job with this status. */
static void http_show(struct mr_http_request *request, int status, const struct mr_job_info *info)
{
    struct jw jw = {0};
    jw_job(&jw, NULL, info);
    http_reply(request, status, &jw);
}

void http_fail(struct mr_http_request *request, const struct mr_job_ask *ask)
{
    struct mr_detail text;
    jobs_why(ask, &text);
    mr_http_fail(request, ask->err, text.text);
}

static void reply_page(struct mr_http_request *request, const struct mr_job_ask *ask)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "items");
    for (size_t i = 0; ask->kind == MR_JOB_LIST && i < ask->jobs_n; i++)
        jw_job(&jw, NULL, &ask->jobs[i].info);
    for (size_t i = 0; ask->kind == MR_JOB_PARTS && i < ask->parts_n; i++)
        jw_part(&jw, NULL, &ask->parts[i]);
    jw_array_end(&jw);
    if (ask->next[0] != '\0')
        jw_text(&jw, "next", ask->next);
    else
        jw_null(&jw, "next");
    jw_object_end(&jw);
    http_reply(request, 200, &jw);
}

/* ---- asking --------------------------------------------------------------------------------- */

static void deliver(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct http_asking *asking = mr_container(msg, struct http_asking, msg);
    mr_http_release(asking->jobs->http);
    asking->back(asking);
}

/* Thread: the service's. */
static void answered(struct jobs_asking *head)
{
    struct http_asking *asking = mr_container(head, struct http_asking, head);
    asking->msg.deliver = deliver;
    mr_http_post(asking->jobs->http, &asking->msg);
}

void http_ask(struct http_asking *asking, struct mr_job_service *service)
{
    asking->head.service = service;
    asking->head.token = &asking->token;
    asking->head.done = answered;
    mr_http_hold(asking->jobs->http);
    jobs_ask(&asking->head);
}

static void back(struct http_asking *asking)
{
    struct mr_job_ask *ask = &asking->head.ask;
    if (http_row_of(asking->request)->act != NULL)
        http_door_audit(asking->jobs->options.door, asking->request, &asking->token, ask->id,
                        ask->err);
    if (ask->err != MR_OK)
        http_fail(asking->request, ask);
    else if (ask->kind == MR_JOB_LIST || ask->kind == MR_JOB_PARTS)
        reply_page(asking->request, ask);
    else
        http_show(asking->request, 200, &ask->jobs[0].info);
    mr_job_ask_done(ask);
    free(asking);
}

/* What a page is of: the names of states, how many, from where on. */
static enum mr_err read_page(struct mr_http_request *request, struct http_asking *asking,
                             struct mr_detail *detail)
{
    struct mr_job_ask *ask = &asking->head.ask;
    const char *limit = mr_http_query(request, "limit"), *state = mr_http_query(request, "state");
    const char *queue = mr_http_query(request, "queue"), *cursor = mr_http_query(request, "cursor");
    int64_t number = 0;
    if (limit != NULL &&
        (mr_parse_int64(limit, &number) != MR_OK || number < 0 || number > MR_BATCH_MAX)) {
        mr_detail_set(detail, "limit: must be a number from 0 to %d", MR_BATCH_MAX);
        return MR_INVALID;
    }
    ask->limit = (uint32_t)number;
    ask->queue = mr_slice_str(queue != NULL ? queue : "");
    ask->cursor = mr_slice_str(cursor != NULL ? cursor : "");
    if (ask->queue.len > 0 && !mr_access_queue(&asking->token, ask->queue)) {
        mr_access_not_covered(&asking->token, ask->queue, detail);
        return MR_DENIED;
    }
    int known = -1;
    MR_TRY(words_read(ask->kind == MR_JOB_PARTS ? &words_part_states : &words_job_states, "state",
                      mr_slice_str(state != NULL ? state : ""), &known, detail));
    ask->states = known >= 0 ? 1u << known : 0;
    return MR_OK;
}

/* The library keeps the texts of a request until it is answered. */
static void ask_of(struct mr_http_request *request, struct mr_http_jobs *jobs,
                   enum mr_job_ask_kind kind)
{
    struct mr_token token;
    struct mr_job_service *service;
    struct mr_detail detail;
    if (!http_admit(jobs, request, &token, &service) || !http_pay(jobs, request, &token))
        return;
    struct http_asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL) {
        mr_http_fail(request, MR_NOMEM, mr_err_text(MR_NOMEM));
        return;
    }
    *asking = (struct http_asking){
        .jobs = jobs, .request = request, .token = token, .back = back, .head.ask.kind = kind};
    bool pages = kind == MR_JOB_LIST || kind == MR_JOB_PARTS;
    enum mr_err err = pages ? read_page(request, asking, &detail) : MR_OK;
    if (err != MR_OK)
        mr_http_fail(request, err, detail.text);
    if (err != MR_OK || (kind != MR_JOB_LIST && !http_id(request, asking->id))) {
        free(asking);
        return;
    }
    asking->head.ask.id = mr_slice_str(asking->id);
    mr_http_later(request);
    http_ask(asking, service);
}

/* ---- routes --------------------------------------------------------------------------------- */

void http_jobs_list(struct mr_http_request *request, void *arg)
{
    ask_of(request, arg, MR_JOB_LIST);
}

void http_jobs_get(struct mr_http_request *request, void *arg)
{
    ask_of(request, arg, MR_JOB_GET);
}

void http_jobs_parts(struct mr_http_request *request, void *arg)
{
    ask_of(request, arg, MR_JOB_PARTS);
}

void http_jobs_cancel(struct mr_http_request *request, void *arg)
{
    ask_of(request, arg, MR_JOB_CANCEL);
}

void http_jobs_retry(struct mr_http_request *request, void *arg)
{
    ask_of(request, arg, MR_JOB_RETRY);
}

/* Nobody sends megabytes that are refused by who sends them. */
bool http_jobs_may_send(struct mr_http_request *request, void *arg)
{
    struct mr_token token;
    struct mr_job_service *service;
    return http_admit(arg, request, &token, &service);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void feeds_post(struct feeds *feeds, struct mr_msg *msg)
{
    mr_http_post(mr_container(feeds, struct mr_http_jobs, feeds)->http, msg);
}

enum mr_err mr_http_jobs_new(const struct mr_http_jobs_options *options,
                             struct mr_http_jobs **ret_jobs)
{
    struct mr_http_jobs *jobs = calloc(1, sizeof *jobs);
    if (jobs == NULL)
        return MR_NOMEM;
    jobs->options = *options;
    if (jobs->options.payload_max == 0)
        jobs->options.payload_max = MR_PAYLOAD_MAX;
    if (jobs->options.alive_ms == 0)
        jobs->options.alive_ms = 10 * MR_MS_PER_S;
    mr_list_init(&jobs->events);
    feeds_init(&jobs->feeds, feeds_post, http_encode_event);
    *ret_jobs = jobs;
    return MR_OK;
}

void mr_http_jobs_tick(struct mr_http_jobs *jobs)
{
    http_events_tick(jobs);
}

void mr_http_jobs_set(struct mr_http_jobs *jobs, struct mr_job_service *service)
{
    atomic_store(&jobs->service, service);
}

struct mr_job_service *mr_http_jobs_service(struct mr_http_jobs *jobs)
{
    return atomic_load(&jobs->service);
}

struct order {
    struct mr_msg msg;
    struct mr_http_jobs *jobs;
    struct mr_event done;
};

static void end(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct order *order = mr_container(msg, struct order, msg);
    http_events_end(order->jobs);
    mr_event_set(&order->done);
}

void mr_http_jobs_stop(struct mr_http_jobs *jobs, struct mr_http *http)
{
    if (jobs == NULL)
        return;
    atomic_store(&jobs->service, NULL);
    if (http == NULL)
        return;
    struct order order = {.msg.deliver = end, .jobs = jobs};
    mr_event_init(&order.done);
    mr_http_post(http, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

void mr_http_jobs_free(struct mr_http_jobs *jobs)
{
    free(jobs);
}
