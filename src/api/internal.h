/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the services. One row of methods.c per method; the files behind it:
 *
 *   call.c       from the path to the row: who calls, unary calls, streams and what they share
 *   errand.c     a request's way to the broker and back, and how much of that a peer may have (rate.c: how quickly)
 *   access.c tokens.c (tokens_file.c)   who may call what
 *   tasks.c wait.c why.c queues.c nodes.c server.c admin.c enqueue.c (batch.c) carry.c groups.c health.c
 *   servers.c timers.c timers_keep.c jobs.c (jobs_rules.c jobs_submit.c jobs_watch.c feed.c)
 *   reflection.c (descriptors.c)
 *                the services
 *   events.c sample.c   Events.Watch: who watches, and what there is to see; sample.c serves HTTP, too
 *   attach.c session.c work.c held.c doubts.c   Work.Attach: the stream, the node behind it, what it does
 *
 * Thread: the loop, for everything but the done of errands and the events of nodes.
 */
#ifndef MR_API_INTERNAL_H
#define MR_API_INTERNAL_H

#include "api/api.h"
#include "api/feed.h"
#include "api/rate.h"
#include "api/words.h"
#include "base/exec.h"
#include "wire/flat.h"
#include "wire/pb.h"

enum {
    CONN_BUCKETS = 1024,
    SESSION_BUCKETS = 1024,
    ANSWER_BYTES = 2 * 1024 * 1024, /* a take ends at about so many: clients take 4 MiB */
    SMALL_BYTES = 256 * 1024, /* of a message that is not of many tasks: decoding makes it larger */
    TOKENS_LOOK_MS = 250,     /* how often streams are held against revoked tokens */
    HEALTH_LOOK_MS = 1000,    /* how often the broker is asked while somebody watches */
};

/* Status of gRPC for a caller that is not known; the list of errors has none for it. */
enum { STATUS_UNAUTHENTICATED = MR_RPC_UNAUTHENTICATED };

/* ---- what a peer may have under way --------------------------------------------------------- */

/* Requests under way. While it is full, its calls are not read. */
struct budget {
    uint32_t requests;
    size_t bytes;
    bool full;
    struct mr_link valves;
};

/* A call that can be held. */
struct valve {
    struct mr_link link;   /* in its budget's */
    struct budget *budget; /* NULL: none */
    struct mr_call *call;
    bool held;
    bool waits; /* for something of its own, as well */
};

/* A connection, while something of it is under way or its rate is to be remembered. */
struct conn {
    struct mr_link link; /* in its bucket */
    uint64_t id;
    uint32_t refs; /* calls and errands */
    struct budget budget;
    struct rate rate;
};

struct mr_api {
    struct mr_api_options options;
    struct mr_buf namespace_; /* as calls name it; empty: the default one */
    struct mr_link conns[CONN_BUCKETS];
    struct mr_link sessions[SESSION_BUCKETS]; /* those that a worker may come back to */
    struct mr_link streams;                   /* of struct stream */
    struct mr_link watchers;                  /* of struct watch, in health.c */
    struct events *events;                    /* NULL: nobody watches */
    uint64_t events_id;                       /* of the last one */
    size_t sessions_n;                        /* with a node, those that are closing included */
    size_t errands_n;                         /* with the broker */
    size_t bytes;                             /* of their memory */
    size_t expected;                          /* of answers that will be big */
    uint64_t attaches;                        /* so far */
    uint64_t tokens_seen;                     /* generation the streams were last held against */
    struct mr_timer conns_timer, tokens_timer, health_timer;
    bool health_asked; /* an errand of the timer's is under way */
    bool stopping;     /* no new streams; those there are end when they can */
    bool stopped;      /* nothing goes to the broker any more */
    struct mr_event quiet;
    struct feeds job_feeds;
    struct mr_exec_thread *slow;  /* for what waits for the disk; NULL: not needed so far */
    struct mr_exec_thread *looks; /* the same for what waits for the store, which may be away */
    size_t looks_n;               /* of them, under way */
};

/* Says so when it was stopped and nothing is left. */
void api_look_quiet(struct mr_api *api);

struct conn *conn_get(struct mr_api *api, const struct mr_call *call);
void conn_unref(struct mr_api *api, struct conn *conn);
/* As rate_pay, and for what a call of one brings beyond itself. */
MR_MUST_USE enum mr_err conn_pay(struct mr_api *api, struct conn *conn, size_t n,
                                 struct mr_detail *detail);
MR_MUST_USE enum mr_err conn_pay_more(struct mr_api *api, struct conn *conn, size_t n,
                                      struct mr_detail *detail);
void conns_sweep(struct mr_timer *timer, void *arg);
void conns_free(struct mr_api *api);

void budget_init(struct budget *budget);
void valve_open(struct valve *valve, struct budget *budget, struct mr_call *call);
void valve_move(struct valve *valve, struct budget *budget);
/* Its call is not read, whatever the budget says; then it is again, if that lets it. */
void valve_hold(struct valve *valve);
void valve_release(struct valve *valve);
void valve_close(struct valve *valve);

/* ---- a request's way through the broker ----------------------------------------------------- */

union any_req {
    struct mr_req head;
    struct mr_req_enqueue enqueue;
    struct mr_req_node_open node_open;
    struct mr_req_node_close node_close;
    struct mr_req_take take;
    struct mr_req_beat beat;
    struct mr_req_finish finish;
    struct mr_req_control control;
    struct mr_req_get get;
    struct mr_req_await await;
    struct mr_req_unawait unawait;
    struct mr_req_node_list node_list;
    struct mr_req_list list;
    struct mr_req_queue_list queue_list;
    struct mr_req_queue_history queue_history;
    struct mr_req_queue_set queue_set;
    struct mr_req_queue_remove queue_remove;
    struct mr_req_queue_limits queue_limits;
    struct mr_req_stats stats;
    struct mr_req_backup backup;
    struct mr_req_gather gather;
    struct mr_req_gathered gathered;
    struct mr_req_assign assign;
};

struct errand {
    struct mr_api *api;
    struct budget *budget;               /* NULL: not counted for anybody */
    size_t bytes;                        /* of memory, when it went */
    size_t expected;                     /* and of the answer, if it will be big */
    void (*back)(struct errand *errand); /* on the loop, with the answer */
    union any_req req;                   /* its arena also holds what goes in */
};

/* Zeroed memory is an errand. Until back is called it belongs to the broker. */
void errand_submit(struct errand *errand, struct mr_api *api, enum mr_op op,
                   void (*back)(struct errand *errand));
/* The same for what goes elsewhere than to the broker: it leaves, and whoever has dealt with it, on whichever
 * thread, says so. */
void errand_leave(struct errand *errand, struct mr_api *api, void (*back)(struct errand *errand));
void errand_return(struct errand *errand);
/* Frees the answer and what went in, so that the same errand may be submitted again. */
void errand_clear(struct errand *errand);

/* ---- calls ---------------------------------------------------------------------------------- */

struct unary;

struct method {
    const char *path;
    unsigned roles; /* 0: for everybody */
    /* Of a change by a person, for its line of audit: what it is done to. NULL: it only looks. */
    struct mr_slice (*about)(struct unary *u);
    /* Unary. Without a kind, start reads the bytes itself. */
    const ProtobufCMessageDescriptor *kind;
    void (*start)(struct unary *u);
    /* The queue the request names; NULL: none, or the method looks itself. */
    struct mr_slice (*queue)(const ProtobufCMessage *message);
    /* Streams. changes: it is a change by a person, and has its line of audit. */
    void (*open)(struct mr_api *api, struct mr_call *call, const struct mr_token *token);
    bool changes;
};

void method_begin(struct mr_call *call, struct mr_api *api, const struct method *method);

/* Ends a call with this error, its code as a trailer, and text, or the error's own when empty. */
void call_end(struct mr_call *call, enum mr_err err, struct mr_slice text);

/* mr_pb_decode for messages that are small when they are honest. */
MR_MUST_USE enum mr_err decode_small(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                                     struct mr_arena *arena, ProtobufCMessage **ret_message);

/* One message in, one out. start answers, or submits and answers in reply. */
struct unary {
    struct errand errand;
    struct mr_api *api;
    const struct method *method;
    struct mr_call *call; /* NULL: it is over, nobody waits for the answer */
    struct valve valve;
    struct conn *conn;
    struct mr_token token;
    struct mr_slice bytes;     /* of the request, in the arena */
    ProtobufCMessage *message; /* the same, decoded */
    struct mr_slice about;     /* for the audit, in the arena */
    enum mr_err outcome;       /* likewise, of a call that answers with an error for each item */
    bool routine;              /* a program's daily work: no line of audit */
    char peer[64];
    bool got, busy;
    bool refused; /* by its role, as detail says; it is read for the audit alone */
    void (*reply)(struct unary *u);
    /* The call is over while its request is with the broker; NULL: nothing is to be done. */
    void (*gone)(struct unary *u);
    void *data;              /* of the method's own */
    struct mr_detail detail; /* of a refusal */
};

/* An arena for what start prepares; it lives until the answer is sent. */
struct mr_arena *unary_arena(struct unary *u);
/* reply is called when the broker carried it out; an error of the whole is answered before. */
void unary_submit(struct unary *u, enum mr_op op, void (*reply)(struct unary *u));
void unary_fail(struct unary *u, enum mr_err err, const char *fmt, ...) MR_PRINTF(3, 4);
void unary_send(struct unary *u, const ProtobufCMessage *message);
void unary_send_task(struct unary *u, const struct mr_task *task);
/* The same for an answer of size bytes that the caller writes to the room right away; NULL: there
 * is nobody to answer. After it unary_sent. */
uint8_t *unary_room(struct unary *u, size_t size);
void unary_sent(struct unary *u);
/* It was kept (busy), is answered now, and may be freed. */
void unary_idle(struct unary *u);
/* Whether the caller's token covers the queue; when not, the call is ended. */
bool unary_may_touch(struct unary *u, struct mr_slice queue);
/* The same for every queue there is; rest: as of mr_access_not_all. */
bool unary_may_touch_all(struct unary *u, const char *rest);

/* What all streams have in common: they end when the server stops or their token is revoked. */
enum stream_end { STREAM_STOPPING, STREAM_REVOKED };

struct stream {
    struct mr_link link;
    struct mr_api *api;
    struct mr_call *call;
    struct mr_token token;
    void (*end)(struct stream *stream, enum stream_end why); /* when you can */
};

void stream_open(struct stream *stream, struct mr_api *api, struct mr_call *call,
                 const struct mr_token *token,
                 void (*end)(struct stream *stream, enum stream_end why));
void stream_close(struct stream *stream);
/* Ends its call, now. */
void stream_end_now(struct stream *stream, enum stream_end why);
void tokens_look(struct mr_timer *timer, void *arg);
MR_MUST_USE enum mr_err stream_send(struct mr_call *call, const ProtobufCMessage *message);

/* ---- services ------------------------------------------------------------------------------- */

typedef void unary_start(struct unary *u);
unary_start tasks_enqueue, tasks_get, tasks_list, tasks_wait, tasks_why, tasks_control, queues_list,
    queues_get, queues_history, queues_pause, queues_resume, queues_set_max_length,
    queues_set_partitions, queues_set_assign, queues_set_retry_mode, queues_set_retry_wait,
    queues_set_rate, queues_set_concurrency, queues_limits, queues_remove, nodes_list, server_stats,
    server_backup, tokens_create, tokens_list, tokens_revoke, health_check, work_finish,
    results_commit, results_get, groups_gather, groups_gathered, tasks_carry;
unary_start timers_send, timers_get, timers_list, timers_next, timers_history, timers_status,
    timers_keep;

/* Whether the token may send this: the app, the queue and the priority must be its own. MR_DENIED, MR_INVALID: with why. */
struct mr_timer_operation;
MR_MUST_USE enum mr_err timers_may(const struct mr_token *token,
                                   const struct mr_timer_operation *op, struct mr_arena *arena,
                                   struct mr_detail *detail);

unary_start jobs_get, jobs_list, jobs_parts, jobs_cancel, jobs_retry;
unary_start nodes_assign, nodes_servers;

typedef struct mr_slice unary_about(struct unary *u);
unary_about tasks_about, tasks_about_carried, tokens_about_new, timers_about, jobs_about;

typedef void stream_opener(struct mr_api *api, struct mr_call *call, const struct mr_token *token);
stream_opener enqueue_stream_open, attach_open, events_watch_open, health_watch_open,
    reflection_open, jobs_submit_open, jobs_watch_open, jobs_result_open;

void jobs_feeds_init(struct mr_api *api);

/* Nodes whose streams are broken are suspect. */
void nodes_mark(const struct mr_api *api, struct mr_node_info *nodes, size_t n);
/* Whether a stream has this node, or may come back to it. */
bool nodes_has_session(const struct mr_api *api, uint64_t node);
/* Leaves what the token may see of a node: whether it may at all, and the queues of its pattern. */
MR_MUST_USE enum mr_err node_filter(const struct mr_token *token, struct mr_arena *arena,
                                    struct mr_node_info *node, bool *ret_seen);

void health_tell(struct mr_api *api, bool serving);
void health_look(struct mr_timer *timer, void *arg);

/* Files and symbols that reflection knows. */
bool descriptor_by_name(struct mr_slice name, struct mr_slice *ret_file);
bool descriptor_by_symbol(struct mr_slice symbol, struct mr_slice *ret_file);
/* Name of the service with this number, with its package; empty behind the last. The text is
 * written to name. */
enum { SERVICE_NAME_MAX = 128 };
struct mr_slice descriptor_service(size_t i, char name[SERVICE_NAME_MAX]);

#endif
