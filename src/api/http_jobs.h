/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs over HTTP: what is behind /api/v1/jobs and below, and the events of one (SSE).
 */
#ifndef MR_API_HTTP_JOBS_H
#define MR_API_HTTP_JOBS_H

#include "api/http_door.h"

struct mr_http_jobs;
struct mr_job_service;

struct mr_http_jobs_options {
    const struct http_door *door; /* lives as long as it */
    size_t payload_max;           /* of a part; 0: MR_PAYLOAD_MAX */
    int64_t alive_ms;             /* 10 s: a stream says something so often */
};

MR_MUST_USE enum mr_err mr_http_jobs_new(const struct mr_http_jobs_options *options,
                                         struct mr_http_jobs **ret_jobs);
/* Now and then, while there is a stream. Thread: the server's. */
void mr_http_jobs_tick(struct mr_http_jobs *jobs);
/* From now on there are jobs; before that, and with NULL, requests are refused for now. Thread: any. */
void mr_http_jobs_set(struct mr_http_jobs *jobs, struct mr_job_service *service);
/* NULL: not now. */
struct mr_job_service *mr_http_jobs_service(struct mr_http_jobs *jobs);
/* Nothing of it is with the service any more when this returns, but for what the server's stop waits for. Then
 * the server is stopped, then the service is closed. http NULL: it never ran. Thread: any but the server's. */
void mr_http_jobs_stop(struct mr_http_jobs *jobs, struct mr_http *http);
/* When the server has stopped. NULL is fine. */
void mr_http_jobs_free(struct mr_http_jobs *jobs);

/* Handlers of the rows that are of jobs, with a struct mr_http_jobs as arg. */
mr_http_handler http_jobs_list, http_jobs_get, http_jobs_parts, http_jobs_cancel, http_jobs_retry,
    http_jobs_events, http_jobs_result, http_jobs_submit;
mr_http_admit http_jobs_may_send;

#endif
