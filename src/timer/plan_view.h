/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner is told of the world beside the store, and what it tells people (docs/nameserver.md, Ownership). The server
 * that holds the lease `plan` cuts apps into subApps and gives them to servers: by the rows of servers in the store, and by a
 * view of the registry that whoever knows it passes in again and again. Without a view no app is cut or moved for balance.
 */
#ifndef MR_TIMER_PLAN_VIEW_H
#define MR_TIMER_PLAN_VIEW_H

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

struct mr_scheduler;
struct mr_store;
struct mr_timer_service;

/* ---- in ------------------------------------------------------------------------------------- */

/* Dispatches of a subApp in the last 60 s by one server. part 0: of an app that is not cut. */
struct mr_view_load {
    struct mr_slice app;
    uint32_t part;
    int64_t load;
};

/* A server as it has registered itself. */
struct mr_view_server {
    struct mr_slice server; /* the name that its mr_loads says: one life of it */
    uint32_t weight;        /* 0: 100 */
    int64_t other; /* dispatches in the last 60 s of what is no subApp, such as plain tasks */
    struct mr_slice balance; /* for people; as mr_loads has it */
    const struct mr_view_load *loads;
    size_t loads_n;
};

/* So many workers of an app live. Apps without any may be left out. */
struct mr_view_app {
    struct mr_slice app;
    size_t workers_n;
};

struct mr_view {
    const struct mr_view_server *servers;
    size_t servers_n;
    const struct mr_view_app *apps;
    size_t apps_n;
    bool complete;      /* the registry says that it knows all: else nothing is merged or moved */
    uint32_t threshold; /* workers of a subApp; 0: 2 */
};

/* All of it is copied; the next one replaces it. NULL: there is none any more. Thread: any. MR_NOMEM: the last one stays. */
MR_MUST_USE enum mr_err mr_scheduler_set_view(struct mr_scheduler *scheduler,
                                              const struct mr_view *view);
/* The same for who has the service. Nothing while it only looks. */
MR_MUST_USE enum mr_err mr_timer_service_set_view(struct mr_timer_service *service,
                                                  const struct mr_view *view);

/* ---- out ------------------------------------------------------------------------------------ */

/* What this server has dispatched in the last 60 s: for the body of its registration. */
struct mr_loads {
    struct mr_arena arena;
    struct mr_slice server;     /* its name in the store; empty: it does not fire */
    int64_t all;                /* the sum of all loads: every app's */
    struct mr_slice balance;    /* if it plans: why nothing moves, or that something does */
    struct mr_view_load *loads; /* the greatest first; only those above 0 */
    size_t n;
};
/* Zero it; mr_loads_done frees the answer. Thread: any; waits for nothing. */
MR_MUST_USE enum mr_err mr_scheduler_loads(struct mr_scheduler *scheduler, struct mr_loads *loads);
MR_MUST_USE enum mr_err mr_timer_service_loads(struct mr_timer_service *service,
                                               struct mr_loads *loads);
void mr_loads_done(struct mr_loads *loads);

/* ---- for people ----------------------------------------------------------------------------- */

struct mr_plan_server {
    struct mr_slice server;
    struct mr_slice apps; /* that it fires, a line each; empty: all */
};

struct mr_plan_part {
    struct mr_slice app;
    uint32_t part;
    uint64_t slots; /* a bit each */
    uint64_t epoch;
    struct mr_slice owner; /* a server that lives; empty: nobody */
    bool is_cut;           /* false: the app has no table; part 0, all slots, epoch of its lease */
};

struct mr_plan_move {
    uint64_t number; /* rises */
    int64_t at_ms;
    struct mr_slice app;
    uint32_t part;
    struct mr_slice from, to; /* servers; empty: nobody */
    struct mr_slice reason;   /* "split", "merged", "owner lost", "first", "moved: 90 against 20" */
};

enum { MR_PLAN_MOVES_MAX = 100 }; /* so many are kept */

/* All of it by the store, so any server of it answers alike. */
struct mr_plan_look {
    struct mr_arena arena;          /* holds the answer */
    struct mr_slice planner;        /* who holds the lease; empty: nobody */
    struct mr_plan_server *servers; /* by name */
    size_t servers_n;
    struct mr_plan_part *parts; /* by app and id */
    size_t parts_n;
    struct mr_plan_move *moves; /* newest first */
    size_t moves_n;
};
/* Zero it; mr_plan_look_done frees the answer. Waits for the store: not from its thread, nor from a loop. */
MR_MUST_USE enum mr_err mr_plan_look(struct mr_store *store, struct mr_plan_look *look);
void mr_plan_look_done(struct mr_plan_look *look);

#endif
