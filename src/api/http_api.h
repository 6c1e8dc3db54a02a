/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP API: everything below /api/v1, /metrics and /openapi.json, as the rows of http_routes.c say. Who may
 * do what is decided by the same table of tokens as for gRPC; what is right, by the broker.
 */
#ifndef MR_API_HTTP_API_H
#define MR_API_HTTP_API_H

#include "api/http_door.h"

struct mr_http_api;
struct mr_timer_service;
struct mr_job_service;
struct mr_store;
struct mr_view;
struct mr_doubts;

struct mr_http_api_options {
    struct http_door door; /* its rates are made here */
    size_t payload_max;    /* MR_PAYLOAD_MAX */
    uint32_t rate; /* tasks, and calls that change something, a second and caller; 0: no limit */
    _Atomic uint64_t *handed;       /* counts the tasks that workers get; NULL: nobody asks */
    const struct mr_doubts *doubts; /* nodes whose stream broke; NULL: nobody knows of such */
    /* As in api.h. */
    enum mr_err (*view)(struct mr_arena *arena, struct mr_view *ret_view, void *arg);
};

/* What it is about, once that is open; NULL: not now, requests are refused for a while. */
struct mr_http_parts {
    struct mr_broker *broker;
    struct mr_timer_service *timers;
    struct mr_job_service *jobs;
    struct mr_store *store; /* of timers and jobs */
    void *view_arg;
};

MR_MUST_USE enum mr_err mr_http_api_new(const struct mr_http_api_options *options,
                                        struct mr_http_api **ret_api);
/* For mr_http_start. */
enum { MR_HTTP_API_TABLES = 2 };
void mr_http_api_tables(struct mr_http_api *api, struct mr_http_table tables[MR_HTTP_API_TABLES]);
/* The same: times its answers, with the API as its argument. */
mr_http_observe mr_http_api_observe;
/* Thread: any. */
void mr_http_api_set(struct mr_http_api *api, const struct mr_http_parts *parts);
/* Nothing new goes to any of the parts, and what waits there for long comes back; the rest is what the server's stop
 * waits for. Then the server is stopped, then the parts are closed. http NULL: it never ran. Thread: any but
 * the server's. */
void mr_http_api_stop(struct mr_http_api *api, struct mr_http *http);
/* When the server has stopped. NULL is fine. */
void mr_http_api_free(struct mr_http_api *api);

#endif
