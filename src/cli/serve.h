/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `millrace serve` share. */
#ifndef MR_CLI_SERVE_H
#define MR_CLI_SERVE_H

#include "api/access.h"
#include "base/chan.h"
#include "base/net.h"
#include "broker/broker.h"
#include "cli/settings.h"
#include "http/http.h"
#include "job/service.h"
#include "store/store.h"
#include "timer/replica.h"
#include "timer/service.h"

/* ---- serve_plan.c --------------------------------------------------------------------------- */

enum { SERVE_TOKEN_MAX = 1024 }; /* with "Bearer " before it */

/* What follows from the settings before anything is opened. It is not copied: parts of it point to others. */
struct serve_plan {
    char dir[MR_PATH_MAX];        /* of the store and of the tokens */
    const char *redis;            /* URL of the Redis where the tasks are; NULL: in dir */
    char shown[MR_URL_SHOWN_MAX]; /* of it, for people */
    bool tls;
    enum mr_access_mode access;
    char store[MR_URL_SHOWN_MAX]; /* URL of the store of timers and jobs */
    struct mr_timer_settings timers;
    bool
        keeps_copies; /* of what other servers accept: they share the store, and each has its own tasks */
    struct mr_replica_options replica;
    bool is_replicated; /* by others, as that says: */
    struct mr_rpc_tls replica_tls;
    char replica_token[SERVE_TOKEN_MAX];
};

/* 0, or the exit code after one line that says which setting is wrong or missing. */
int serve_plan(const struct cli *cli, const struct settings *settings, struct serve_plan *ret_plan);

/* An address to listen on, and what is to keep others out there. */
struct serve_door {
    const char *name; /* of the setting */
    const char *address;
    const char *dir; /* of the tokens */
    bool tls, insecure;
};
/* 0, or the exit code: other machines reach it, and it has not both TLS and a token, nor is that said to be fine. */
int serve_door_check(const struct cli *cli, const struct serve_door *door);

/* ---- serve_timers.c ------------------------------------------------------------------------- */

/* Of the plan: where timers are kept, and what else is said of them. 0, or the exit code. */
int serve_timers_plan(const struct cli *cli, const struct settings *settings,
                      struct serve_plan *plan);
/* Opens the store. 0, or the exit code after saying why not. */
int serve_store_open(const struct cli *cli, const struct settings *settings,
                     const struct serve_plan *plan, struct mr_store **ret_store);
/* Opens the timers on it. Likewise. */
int serve_timers_open(const struct cli *cli, const struct settings *settings,
                      const struct serve_plan *plan, struct mr_broker *broker,
                      struct mr_store *store, struct mr_timer_service **ret_service);

/* ---- serve_replica.c ------------------------------------------------------------------------- */

/* Of the plan: whether copies are kept for others, and who keeps ours. 0, or the exit code. */
int serve_replica_plan(const struct cli *cli, const struct settings *settings,
                       struct serve_plan *plan);
/* Those that --replica-peer names are asked to keep copies. */
void serve_replica_start(const struct settings *settings, struct mr_timer_service *timers);
/* All servers that live: those behind our own address are asked first. Thread: any. */
void serve_replica_peers(struct mr_timer_service *timers, const char *own,
                         const char *const *addresses, size_t n);

/* ---- serve_jobs.c --------------------------------------------------------------------------- */

/* Opens the jobs on the store. 0, or the exit code after saying why not. */
int serve_jobs_open(const struct settings *settings, const struct serve_plan *plan,
                    struct mr_broker *broker, struct mr_store *store,
                    struct mr_job_service **ret_service);

/* Who this server is, for people: machine and process. */
enum { SERVE_NODE_MAX = MR_HOST_MAX + 32 };
void serve_node(char node[SERVE_NODE_MAX]);

/* ---- serve_health.c ------------------------------------------------------------------------- */

/*
 * Whether the engine is well, asked over and over: a question is sent with every beat, unless one is
 * still open. Beats come from the main thread, answers on the broker's, readers on any.
 */
struct serve_health {
    struct mr_broker *broker;                  /* NULL: not open yet */
    _Atomic(struct mr_timer_service *) timers; /* NULL: not open (any more) */
    struct mr_req_stats req;
    _Atomic bool asked;
    _Atomic int64_t answered_ns; /* monotonic; 0: never */
    _Atomic bool failed, disk_full, ready;
};

/* From now on there is a broker; asks at once. */
void serve_health_open(struct serve_health *health, struct mr_broker *broker);
void serve_health_beat(struct serve_health *health);
/* Work is accepted from now on, or no more. */
void serve_health_set_ready(struct serve_health *health, bool ready);
/* The engine answered less than this long ago. */
bool serve_health_answers(const struct serve_health *health, int64_t within_ms);
/* The store can do nothing more until it is opened again. */
bool serve_health_failed(const struct serve_health *health);

/* /livez and /readyz, with a struct serve_health as arg. */
extern const struct mr_http_route serve_routes[];
extern const size_t serve_routes_n;

/* ---- serve_audit.c -------------------------------------------------------------------------- */

struct mr_audit;
struct serve_audit;

/* path NULL: standard error. detail says why not. */
MR_MUST_USE enum mr_err serve_audit_open(const char *path, struct serve_audit **ret_audit,
                                         struct mr_detail *detail);
/* Opens the file again, for whoever has moved it away. Thread: any. */
MR_MUST_USE enum mr_err serve_audit_reopen(struct serve_audit *audit);
void serve_audit_close(struct serve_audit *audit); /* NULL is fine */
/* A mr_audit_line with a struct serve_audit as arg. Thread: any. */
void serve_audit_line(const struct mr_audit *line, void *arg);

#endif
