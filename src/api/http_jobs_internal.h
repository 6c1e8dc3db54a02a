/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside jobs over HTTP. Thread: the server's, for all but what says otherwise.
 *
 *   http_jobs.c          questions of one answer
 *   http_jobs_stream.c   events and results
 *   http_jobs_submit.c   giving a job in
 */
#ifndef MR_API_HTTP_JOBS_INTERNAL_H
#define MR_API_HTTP_JOBS_INTERNAL_H

#include "api/feed.h"
#include "api/http_jobs.h"
#include "api/jobs.h"

struct mr_http_jobs {
    struct mr_http_jobs_options options;
    _Atomic(struct mr_job_service *) service; /* NULL: not now */
    struct mr_http *http;                     /* of the first request on */
    struct feeds feeds;
    struct mr_link events; /* streams, and those that will be one */
    size_t events_n;
    mr_mono woken;    /* when many of them were told last */
    bool ending;      /* there are jobs that have ended, and of which some are still to be told */
    int64_t credit;   /* bytes that they may be told beyond the newest: see http_jobs_stream.c */
    mr_mono credited; /* when it was last added to */
    bool thin;        /* it does not do: they are told the newest alone */
    uint64_t tokens_seen;
    mr_mono looked; /* at streams: who is silent, whose token was revoked */
};

/* What it asks and who asks it; the request is answered later. */
struct http_asking {
    struct jobs_asking head;
    struct mr_msg msg;
    struct mr_http_jobs *jobs;
    struct mr_http_request *request;
    struct mr_token token;
    char id[MR_JOB_ID_MAX + 1];
    void (*back)(struct http_asking *asking); /* with the answer */
};

/* Who asks, and whether it may: else it is answered, and this is false. */
bool http_admit(struct mr_http_jobs *jobs, struct mr_http_request *request,
                struct mr_token *ret_token, struct mr_job_service **ret_service);
/* Whether its rate lets it: the same. Once a request. */
bool http_pay(struct mr_http_jobs *jobs, struct mr_http_request *request,
              const struct mr_token *token);
/* Asks; back is called on the server's thread. The service is there. */
void http_ask(struct http_asking *asking, struct mr_job_service *service);
void http_fail(struct mr_http_request *request, const struct mr_job_ask *ask);
/* The id of the path; false: it was answered that there is none such. */
bool http_id(struct mr_http_request *request, char id[MR_JOB_ID_MAX + 1]);

enum mr_err http_encode_event(const struct mr_job_event *event, struct mr_buf *buf);
/* Now and then. */
void http_events_tick(struct mr_http_jobs *jobs);
/* All of them end. */
void http_events_end(struct mr_http_jobs *jobs);

#endif
