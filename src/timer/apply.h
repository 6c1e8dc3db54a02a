/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The applier: takes operations on timers from the broker's hidden queue (door.h), up to a thousand at a time,
 * brings them into the store with one transaction, and ends their tasks with what became of them. Whatever
 * happens between these steps, they can be repeated: the store knows by its version whether an operation has been
 * applied. Any number of servers may apply what is in a queue.
 *
 * What the store does not take for the time being is tried again after the delays of the levels, then it is a
 * dead letter: archived, with the reason. What is invalid is a dead letter at once. Operations of a timer that come
 * behind one that waits are applied meanwhile; when its turn comes again, it is stale.
 *
 * One thread, which waits for the broker and the store.
 */
#ifndef MR_TIMER_APPLY_H
#define MR_TIMER_APPLY_H

#include "timer/scheduler.h"
#include "timer/zone.h"
#include "wire/timer.h"

struct mr_applier;

/* An operation that was given up. Slices live during the call. */
struct mr_timer_dead {
    struct mr_slice operation, app, name; /* empty where it could not be read */
    enum mr_timer_verb verb;
    uint32_t attempts;
    struct mr_slice reason; /* "INVALID: ..." */
};

struct mr_applier_options {
    struct mr_broker *broker; /* these outlive it */
    struct mr_store *store;
    struct mr_zones *zones;
    struct mr_clock *clock;                   /* NULL: the system's */
    size_t payload_max;                       /* of a timer's tasks; 0: MR_PAYLOAD_MAX */
    const char *node;                         /* as of a service */
    const struct mr_timer_settings *settings; /* copied; NULL: defaults */
    /* All on its thread; each may be NULL. */
    void (*changed)(struct mr_slice app, void *arg); /* something was applied to timers of it */
    /* Carries out run, stop and rerun (mr_scheduler_act); without it they are refused. */
    void (*act)(struct mr_firing_act *act, void *arg);
    void (*dead)(const struct mr_timer_dead *dead, void *arg);
    /* An operation has ended for good; its task, with headers. */
    void (*ended)(const struct mr_task *task, void *arg);
    /* Tests make the store refuse an operation so. */
    enum mr_err (*fault)(const struct mr_timer_operation *op, void *arg);
    void *arg;
};

MR_MUST_USE enum mr_err mr_applier_start(const struct mr_applier_options *options,
                                         struct mr_applier **ret_applier);
/* Gives back what it has not applied. Before what it acts with is stopped. NULL is fine. */
void mr_applier_stop(struct mr_applier *applier);

/* Since it was started. Thread: any. */
struct mr_applier_figures {
    uint64_t applied, stale, retried, rejected;
    uint64_t dead; /* the rejected ones among them */
};
void mr_applier_figures(struct mr_applier *applier, struct mr_applier_figures *ret_figures);

#endif
