/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timers of one broker and one store: the applier of operations and the scheduler, opened and closed as
 * one thing. `serve` has one, and so has a client on file:DIR in its own process.
 *
 * Opened in this order: scheduler (due rows become tasks), applier (operations of the broker's hidden
 * queue become rows). Closed the other way round; nothing that was acknowledged is lost by that, it goes on
 * with whoever opens them next.
 */
#ifndef MR_TIMER_SERVICE_H
#define MR_TIMER_SERVICE_H

#include "base/clock.h"
#include "base/meter.h"
#include "base/slice.h"

struct mr_broker;
struct mr_copies;
struct mr_gate;
struct mr_replica_options;
struct mr_store;
struct mr_timer_service;

enum {
    MR_TIMER_LEVELS_MAX = 18,
    MR_TIMER_LEASE_MS = 10 * 1000,
    MR_TIMER_MISFIRE_MS = 1000,
};
#define MR_TIMER_CATCH_UP_MS (24 * 3600000LL)
#define MR_TIMER_HISTORY_MS  (30 * 24 * 3600000LL)

/* What the parts may be told; zero is the default everywhere. Tests shorten times by it. */
struct mr_timer_settings {
    int64_t lease_ms;      /* MR_TIMER_LEASE_MS: an app is ours so long beyond the last renewal */
    int64_t renew_ms;      /* 3 s */
    int64_t window_ms;     /* 10 s: timers due within it are in memory */
    int64_t misfire_ms;    /* MR_TIMER_MISFIRE_MS: later than this is a misfire */
    int64_t catch_up_ms;   /* MR_TIMER_CATCH_UP_MS: misfires older than this are not made up for */
    uint32_t catch_up_max; /* 1000 of one timer */
    uint32_t backlog_max;  /* 20 000: timers in memory before what is overdue is read on */
    int64_t history_ms;    /* MR_TIMER_HISTORY_MS: ended firings are kept so long */
    int64_t ahead_ms;      /* MR_TIMER_AHEAD_MS: versions further ahead of our clock are refused */
    int64_t reconcile_ms;  /* 1 min: how often open firings are held against the broker's tasks */
    /* Of the planner (docs/nameserver.md): */
    int64_t give_ms;  /* 5 s: who has a subApp is given so long to leave it */
    int64_t merge_ms; /* MR_SUBAPP_MERGE_MS: subApps with too few workers for so long are merged */
    int64_t cool_ms;  /* 75 s: between two moves for balance */
    int64_t stay_ms;  /* 10 min: a subApp that has moved for balance stays so long */
    int64_t balance_floor; /* 60: a server that dispatched less in a minute is idle */
    /* An operation that the store did not take is tried again after these; 0: 5 s, 10 s. */
    int64_t levels_ms[MR_TIMER_LEVELS_MAX];
    size_t levels_n;
    /* Told of failures, misfires and dead letters: a command, with the event as JSON on its standard
     * input, or an http(s) URL, signed by HMAC-SHA256 with the secret. NULL: nobody. */
    const char *alarm;
    const char *alarm_secret;
};

struct mr_timer_service_options {
    struct mr_broker *broker; /* both outlive the service */
    struct mr_store *store;
    const char *const *apps; /* fires the timers of these; none: of all */
    size_t apps_n;
    size_t payload_max; /* of a timer's tasks; 0: MR_PAYLOAD_MAX */
    const char *node;   /* who it is, for people: name of the machine and the like; "": not known */
    const char *home;   /* see mr_scheduler_options, as for the gate */
    struct mr_gate *gate;
    struct mr_timer_settings settings;
    struct mr_clock *clock; /* NULL: the system's */
    /* Copies of operations that other servers accept are kept here, for them. Their broker must be one that a server has
     * for itself. */
    bool keeps_copies;
    /* And one other server keeps copies of what is accepted here, before it is (replica.h); the origin is filled in. NULL:
     * nobody does. */
    const struct mr_replica_options *replica;
    /* Until mr_timer_service_fire nothing is applied or fired, and there is no door: for who only looks. What
     * options point to lives until then. */
    bool looks;
};

/* MR_INVALID (app, alarm), MR_NOMEM, with detail. */
MR_MUST_USE enum mr_err mr_timer_service_open(const struct mr_timer_service_options *options,
                                              struct mr_timer_service **ret_service,
                                              struct mr_detail *detail);
/* Applies and fires from now on, if it does not yet. Thread: one at a time. */
MR_MUST_USE enum mr_err mr_timer_service_fire(struct mr_timer_service *service,
                                              struct mr_detail *detail);
/* Waits for what is under way. Before store and broker are closed. NULL is fine. */
void mr_timer_service_close(struct mr_timer_service *service);

/* For operations: mr_timer_door_send. Thread: any. */
struct mr_timer_door;
struct mr_timer_door *mr_timer_service_door(struct mr_timer_service *service);

/* See mr_scheduler_await_swept. True while it only looks. Thread: any. */
bool mr_timer_service_await_swept(struct mr_timer_service *service, int64_t max_ms);
/* The other servers' addresses, in the order in which they are asked to keep copies; see mr_replica_set_peers. Nothing
 * without a replica. Thread: any. */
void mr_timer_service_set_peers(struct mr_timer_service *service, const char *const *addresses,
                                size_t n);
/* For mr_copies_keep; NULL: it keeps none. Thread: any. */
struct mr_copies *mr_timer_service_copies(struct mr_timer_service *service);

/* How it is, for health, figures and people. */
struct mr_timer_health {
    enum mr_err
        store; /* MR_OK; MR_UNAVAILABLE: out of reach for now; MR_DISK_FULL; else it has failed */
    char store_text[256]; /* why, in one line; "" with MR_OK */
    uint32_t apps_owned;  /* by this service, now */
    /* Since it was opened. */
    uint64_t ownership_taken, ownership_lost;     /* of apps */
    uint64_t fired, caught_up, skipped, misfired; /* firings */
    uint64_t succeeded, failed, cancelled;        /* and their ends */
    uint64_t retained;                            /* rows removed for their age */
    uint64_t applied, stale, retried, rejected;   /* operations */
    uint64_t dead_letters;                        /* and those given up */
    uint64_t recovered, reconciled, moved;        /* see mr_scheduler_figures, as for these: */
    uint64_t clock_steps, in_memory;              /* in_memory: now */
    uint64_t lateness_p50_us, lateness_p99_us;    /* from when it was to happen to its task */
    struct mr_meter lateness_us;                  /* the same, by mr_meter_us */
};
/* Thread: any; waits for nothing. */
void mr_timer_service_health(struct mr_timer_service *service, struct mr_timer_health *ret_health);

#endif
