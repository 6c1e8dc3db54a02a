/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC services of proto/: a call is decoded, held against who may do what, given to the broker,
 * and answered. What is right is decided by the broker.
 *
 * Everything lives on the loop of the rpc. An answer of the broker comes on the broker's thread and
 * is posted to the loop; a call that ended meanwhile (cancelled, late, its connection broken) is
 * gone by then and the answer is dropped.
 */
#ifndef MR_API_API_H
#define MR_API_API_H

#include "api/access.h"
#include "broker/broker.h"
#include "rpc/rpc.h"

struct mr_api;

/* A change made by a person, or refused to somebody with a token. Loop thread. */
struct mr_audit {
    const char *token;     /* id; "": without a token */
    const char *peer;      /* address */
    const char *method;    /* "Queues/Pause" */
    struct mr_slice about; /* what it was done to: a queue, a token, a folder, how many tasks */
    enum mr_err err;       /* how it ended */
};
typedef void mr_audit_line(const struct mr_audit *line, void *arg);

/* Per connection, where nothing else is said; 0: the default. */
struct mr_api_limits {
    uint32_t requests_max; /* 4096 under way; then no more is read from it */
    size_t bytes_max;      /* 16 MiB of memory for them; the same */
    size_t bytes_total;    /* 512 MiB over all connections; then MR_BUSY */
    uint32_t rate;         /* tasks and calls a second, with as much at once; then MR_BUSY (rate.h).
                              0: as many as it likes. Not for the streams of workers */
    size_t payload_max;    /* MR_PAYLOAD_MAX; the broker's own limit, for the text of a refusal */
};

struct mr_timer_service;
struct mr_job_service;
struct mr_store;
struct mr_view;
struct mr_doubts;

struct mr_api_options {
    struct mr_broker *broker;
    struct mr_timer_service *timers; /* NULL: there are none here */
    struct mr_job_service *jobs;     /* likewise */
    const char *store_url;           /* theirs, for backups; NULL: it is not part of those */
    struct mr_rpc *rpc;
    struct mr_access access;
    struct mr_api_limits limits;
    const char *namespace_; /* of the store; NULL or "": the default one. Calls that name another
                               are refused */
    struct mr_store *store; /* of timers and jobs; NULL: there is none */
    /* What is known of the registry, copied into the arena; MR_NOT_FOUND: nothing. NULL: nothing ever. Thread: any. */
    enum mr_err (*view)(struct mr_arena *arena, struct mr_view *ret_view, void *arg);
    void *view_arg;
    _Atomic uint64_t *handed; /* counts the tasks that workers get; NULL: nobody asks */
    struct mr_doubts *doubts; /* told of nodes whose stream broke (doubts.h); the same */
    int64_t grace_ms;     /* 5 s: a worker whose stream broke may come back; at most its lease */
    mr_audit_line *audit; /* may be NULL */
    void *audit_arg;
};

/* What options point to outlives the api. */
MR_MUST_USE enum mr_err mr_api_new(const struct mr_api_options *options, struct mr_api **ret_api);
/* For mr_rpc_listen, with the api as arg. */
const struct mr_rpc_method *mr_api_methods(size_t *ret_n);
/*
 * Health says NOT_SERVING, no new calls come in, workers may finish what they hold; after max_ms at
 * the latest everything is cut. Returns when nothing of the api is with the broker any more. Then
 * the rpc is freed, then the api. Thread: any but the loop.
 */
void mr_api_stop(struct mr_api *api, int64_t max_ms);
/* After mr_api_stop, unless nothing ever listened. NULL is fine. */
void mr_api_free(struct mr_api *api);

#endif
