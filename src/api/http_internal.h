/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the HTTP API. Thread: the server's, for all but what says otherwise.
 *
 *   http_routes.c    the rows: every route there is
 *   http_openapi.c   the document that is made of them
 *   http_door.c      who may come by one, and how often (http_rates.c)
 *   http_api.c       life, and a request's way to the broker and back
 *   http_json.c      bodies, and what may stand in them; task_json.c a task in one
 *   http_web.c       the dashboard's files
 *   http_queues.c http_look.c http_timers.c http_why.c http_past.c   looking
 *   http_act.c http_enqueue.c http_timers_act.c   acting
 *   http_scan.c      walking over tasks: http_bulk.c (acting on many), http_groups.c (the archive by errors)
 *   http_history.c   figures of the last hour    http_leaders.c  who has led
 *   http_take.c http_finish.c              workers
 *   http_events.c    what changes, as it changes
 *   http_metrics.c   figures for Prometheus (metrics_text.c), http_timings.c those of HTTP itself
 *   http_jobs*.c     jobs
 */
#ifndef MR_API_HTTP_INTERNAL_H
#define MR_API_HTTP_INTERNAL_H

#include <jansson.h>

#include "api/http_api.h"
#include "api/http_jobs.h"
#include "api/internal.h"
#include "base/exec.h"
#include "base/rand.h"
#include "broker/json.h"

enum {
    HTTP_CALLS_MAX = 2048,        /* with the broker at a time */
    HTTP_HEAVY_MAX = 8,           /* of them those whose answers are megabytes */
    HTTP_HEAVY_WAITING_MAX = 256, /* such that wait for one of them to end */
    HTTP_BODY_MAX = 16 * 1024 * 1024,
    HTTP_SMALL_MAX = 256 * 1024, /* of a body without payloads */
    HTTP_LIMIT = 50,             /* of a page, where nothing is said */
};

/* Those who ask for all queues: http_queues.c. */
struct http_together {
    bool under_way;                 /* the broker is asked */
    struct mr_link served, waiting; /* of struct http_call: for them, and for the next time */
};
void http_together_init(struct http_together *together);

/* What workers that have nothing but HTTP have taken: http_take.c. */
enum { HTTP_HELD_BUCKETS = 4096 };
struct http_hands {
    struct mr_link list; /* of struct http_hand */
    size_t n;
    struct mr_link buckets[HTTP_HELD_BUCKETS]; /* of struct http_held, by epoch */
    struct mr_rand rand;                       /* for the spread of delays */
    uint64_t extensions;                       /* calls, so far */
    bool stopped;
};

/* How long answers took: http_timings.c. */
enum { HTTP_TIMINGS_MAX = 512 };
struct http_timing {
    const struct mr_http_route *route; /* NULL: none */
    int status;
    struct mr_meter us; /* by mr_meter_us */
};
struct http_timings {
    struct http_timing *at;
    size_t n, cap, recent;
};

struct mr_http_api {
    struct mr_http_api_options options;
    _Atomic(struct mr_broker *) broker; /* NULL: not now */
    _Atomic(struct mr_timer_service *) timers;
    struct mr_http *http; /* of the first request on */
    struct mr_http_jobs *jobs;
    size_t calls_n, heavy_n, heavy_waiting_n;
    struct mr_link heavy_waiting; /* of struct http_call, who came first is first */
    struct http_hands hands;
    struct http_events *events; /* NULL: nobody reads them */
    uint64_t events_id;         /* of the last one */
    struct http_history *history;
    struct http_timings timings;
    struct http_together together;
    struct mr_http_route *routes;    /* all of them, those of jobs last */
    size_t routes_n, routes_ours_n;  /* in all, and before those of jobs */
    struct mr_http_answer *document; /* openapi.json */
    _Atomic(struct mr_store *) store;
    _Atomic(void *) view_arg;
    struct mr_exec_thread *looks; /* at the store; NULL: nobody has asked yet */
    struct http_leaders *leaders;
};

/* A request under way. Zeroed memory behind its head is the handler's. */
struct http_call {
    struct mr_http_api *api;
    struct mr_http_request *request; /* NULL: it is answered */
    const struct http_row *row;
    struct mr_broker *broker;
    struct mr_token token;
    struct mr_msg msg;
    void (*back)(struct http_call *call);    /* with an answer */
    void (*carried)(struct http_call *call); /* with one that is no error */
    void (*freed)(struct http_call *call);   /* with it goes data; NULL: there is none */
    void *data;
    struct http_scan *scan; /* http_scan.h */
    struct mr_link link;    /* among those that are answered together, or wait for others to end */
    bool heavy, let_in;     /* one of HTTP_HEAVY_MAX, once it is let in */
    bool later;
    struct mr_slice about;   /* for the audit */
    char text[32];           /* of it, where it is none of the request's */
    json_t *json;            /* the body */
    struct mr_detail detail; /* "queue mail", for the text of a refusal */
    union any_req req;
};

/* Admits the request; NULL: it is answered. */
struct http_call *http_call_new(struct mr_http_api *api, struct mr_http_request *request);
/* The same for one whose answer may be large. */
struct http_call *http_call_new_heavy(struct mr_http_api *api, struct mr_http_request *request);
/* Asks the broker; back is called here when it was carried out. When it fails as a whole the call ends. */
void http_call_submit(struct http_call *call, enum mr_op op, void (*back)(struct http_call *call));
/* The same, and back is called in any case. */
void http_call_submit_any(struct http_call *call, enum mr_op op,
                          void (*back)(struct http_call *call));
/* It is answered later, and not by something that returns. */
void http_call_later(struct http_call *call);
/* Leaves for somewhere else than the broker; whoever has dealt with it, on whichever thread, says so. */
void http_call_leave(struct http_call *call, void (*back)(struct http_call *call));
void http_call_return(struct http_call *call);
/* Frees the broker's answer, so that something else can be asked. */
void http_call_clear(struct http_call *call);
/* Each of these answers, writes the audit and frees the call. */
void http_call_reply(struct http_call *call, struct jw *jw);
void http_call_fail(struct http_call *call, enum mr_err err, const char *fmt, ...) MR_PRINTF(3, 4);
/* err: for the audit, of a call that answers with an error in its own words. */
void http_call_answer(struct http_call *call, int status, struct jw *jw, enum mr_err err);
/* With a text of another type than JSON, unless err says that it is none. */
void http_call_text(struct http_call *call, const char *type, enum mr_err err,
                    struct mr_slice text);
/* With what others are answered with too. */
void http_call_send(struct http_call *call, struct mr_http_answer *answer);

/* Whether the token covers the queue; when not, the call is ended. */
bool http_may_touch(struct http_call *call, struct mr_slice queue);
/* The same for every queue there is; rest: as of mr_access_not_all. */
bool http_may_touch_all(struct http_call *call, const char *rest);

/* ---- what a request says; when it is wrong the call is ended, and this is false ------------- */

/* limit, from 1 to max; *ret_limit stays as it is without one. */
bool http_read_limit(struct http_call *call, size_t max, size_t *ret_limit);
/* The name in the path, or behind the ?; empty: there is none. */
bool http_read_name(struct http_call *call, const char *what, struct mr_slice name);
/* The number of the word that stands behind the ?; *ret_number stays as it is without one. */
bool http_read_word(struct http_call *call, const struct words *words, const char *what,
                    int *ret_number);
struct mr_slice http_query(const struct http_call *call, const char *name);

/* What may stand in a body, so that it is not larger in memory than it should be. */
struct http_bounds {
    size_t depth;      /* of objects and arrays */
    size_t containers; /* of them, all together */
    size_t commas;
};
/* Into call->json. */
bool http_read_json(struct http_call *call, const struct http_bounds *bounds);
/* An object of these fields, whose values go where they say. */
enum http_kind { HTTP_TEXT, HTTP_NUMBER, HTTP_FLAG, HTTP_ANY };
struct http_field {
    const char *name;
    enum http_kind kind;
    void *
        value; /* struct mr_slice, int64_t, bool, const json_t *; stays as it is where nothing is said */
};
MR_MUST_USE enum mr_err http_read_object(const json_t *json, const struct http_field *fields,
                                         size_t n, struct mr_detail *detail);

/* ---- pages ---------------------------------------------------------------------------------- */

void http_page_begin(struct jw *jw);
/* next: empty at the end. */
void http_page_end(struct jw *jw, const char *next);

/* ---- the document --------------------------------------------------------------------------- */

MR_MUST_USE enum mr_err http_openapi(struct mr_buf *ret_document);

/* ---- rows ----------------------------------------------------------------------------------- */

mr_http_handler http_queues, http_queue, http_tasks, http_task, http_nodes, http_leader, http_dead,
    http_version, http_session, http_document, http_events, http_history, http_task_why,
    http_task_events, http_servers, http_leader_history, http_dead_groups;
mr_http_handler http_timers, http_timer, http_timer_next, http_timer_history, http_timer_create,
    http_timer_put, http_timer_pause, http_timer_resume, http_timer_run, http_timer_delete;
mr_http_handler http_queue_pause, http_queue_resume, http_queue_delete, http_queue_set,
    http_task_cancel, http_task_run, http_task_archive, http_task_delete, http_requeue,
    http_tasks_bulk, http_enqueue, http_take, http_extend, http_finish, http_metrics;
/* http_bulk.c: /dead/requeue by what they are, not by their ids; the body is in call->json. */
void http_requeue_all(struct http_call *call);

/* ---- http_events.c -------------------------------------------------------------------------- */

/* Now and then, while there is a stream. */
void http_events_look(struct mr_http_api *api);
/* All of them end. */
void http_events_stop(struct mr_http_api *api);

/* ---- http_take.c ---------------------------------------------------------------------------- */

void http_hands_init(struct http_hands *hands);
/* Now and then: who has gone while it waited is waited for no longer, and its place is free. */
void http_takes_look(struct mr_http_api *api);
/* The server stops: who waits is answered, and what is in hand goes back. */
void http_takes_end(struct mr_http_api *api);

#endif
