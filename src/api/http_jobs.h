/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs over HTTP: /api/v1/jobs and below, and the events of one (SSE). Who may do what is decided by the same table
 * of tokens as for gRPC.
 */
#ifndef MR_API_HTTP_JOBS_H
#define MR_API_HTTP_JOBS_H

#include "api/api.h"
#include "http/http.h"

struct mr_http_jobs;
struct mr_job_service;

struct mr_http_jobs_options {
    const struct mr_access *access; /* lives as long as it */
    size_t payload_max;             /* of a part; 0: MR_PAYLOAD_MAX */
    mr_audit_line *audit;           /* may be NULL; on the server's thread */
    void *audit_arg;
    int64_t alive_ms; /* 10 s: a stream says something so often */
};

MR_MUST_USE enum mr_err mr_http_jobs_new(const struct mr_http_jobs_options *options,
                                         struct mr_http_jobs **ret_jobs);
/* For mr_http_start. */
struct mr_http_table mr_http_jobs_table(struct mr_http_jobs *jobs);
/* From now on there are jobs; before that, and with NULL, requests are refused for now. Thread: any. */
void mr_http_jobs_set(struct mr_http_jobs *jobs, struct mr_job_service *service);
/* Nothing of it is with the service any more when this returns, but for what the server's stop waits for. Then
 * the server is stopped, then the service is closed. http NULL: it never ran. Thread: any but the server's. */
void mr_http_jobs_stop(struct mr_http_jobs *jobs, struct mr_http *http);
/* When the server has stopped. NULL is fine. */
void mr_http_jobs_free(struct mr_http_jobs *jobs);

#endif
