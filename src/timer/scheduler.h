/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler: planned times of timers become rows of the ledger and tasks of the broker, each once.
 *
 * An app is fired by the server that holds its lease in the store. What is due within the window is read from the
 * store and waits in a wheel for its moment. Then, in batches: one transaction, fenced by the lease, writes the
 * ledger rows and moves the timers on (FIRE); the rows become tasks, whose ids follow from them; the rows say so
 * (FIRING_SET). The ends of the tasks come back by a result topic of the app. Each of these steps can be
 * repeated, by this server or by the next one, and nothing doubles; nothing is only in memory.
 *
 * One thread; the store and the broker answer it by messages. It wakes up when something is due, when it is told
 * something, and once a second.
 */
#ifndef MR_TIMER_SCHEDULER_H
#define MR_TIMER_SCHEDULER_H

#include "base/chan.h"
#include "base/hist.h"
#include "base/id.h"
#include "timer/service.h"

struct mr_scheduler;

/* Something that a person may want to hear of. Slices live during the call. */
enum mr_alarm_kind { MR_ALARM_FAILED, MR_ALARM_MISFIRED, MR_ALARM_NO_WORKER, MR_ALARM_KIND_COUNT };
struct mr_scheduler_alarm {
    enum mr_alarm_kind kind;
    struct mr_slice app, name; /* of the timer; name may be empty when it is gone */
    struct mr_uuid uid;
    int64_t planned_ms, until_ms; /* until_ms: of a gap; else 0 */
    struct mr_slice task_id;      /* empty: there is none */
    struct mr_slice reason;
};

struct mr_scheduler_options {
    struct mr_broker *broker; /* both outlive it */
    struct mr_store *store;
    struct mr_clock *clock;  /* NULL: the system's */
    const char *const *apps; /* fires the timers of these; none: of all */
    size_t apps_n;
    const char *node; /* a part of the owner's name, for people; NULL: none */
    /* What the broker is known by in all its lives, if no other server on this store has the same broker: who fires the
     * timers next then cannot see the tasks in it, and leaves them to this server while it lives. NULL: they share one. */
    const char *home;
    /* Of that broker, where others may have the store, too: it hands out firings only while the store says that this server is
     * there. It outlives the scheduler. NULL: whatever it has. */
    struct mr_gate *gate;
    const struct mr_timer_settings *settings; /* copied; NULL: defaults */
    /* Once per event. Its thread; do little. May be NULL. */
    void (*alarm)(const struct mr_scheduler_alarm *alarm, void *arg);
    void *arg;
};

MR_MUST_USE enum mr_err mr_scheduler_start(const struct mr_scheduler_options *options,
                                           struct mr_scheduler **ret_scheduler);
/* Gives its leases back and waits for what is under way. NULL is fine. */
void mr_scheduler_stop(struct mr_scheduler *scheduler);

/* Something was applied to timers of this app, by this server: it looks at once. Thread: any. */
void mr_scheduler_changed(struct mr_scheduler *scheduler, struct mr_slice app);
/*
 * Waits until the broker of our own has been looked through for tasks that others have made anew while we were not there, and those are
 * deleted; or until it is known that there are no others. Who lets workers in before that has some of them run in vain. False: not in
 * this time. Thread: any but its own.
 */
bool mr_scheduler_await_swept(struct mr_scheduler *scheduler, int64_t max_ms);

/*
 * Acts on firings, carried out by any server, whoever owns the app. An act that is repeated finds its own effect.
 *   MR_TIMER_RUN    a firing with planned_ms, which is of the operation and not 0, beside those that are planned.
 *                   MR_NOT_FOUND: no such timer
 *   MR_TIMER_STOP   the firing planned for planned_ms, 0: the next one. One that runs is told to stop; one that
 *                   waits or has not come yet is cancelled. MR_NOT_FOUND; MR_WRONG_STATE: it is over
 *   MR_TIMER_RERUN  the firing planned for planned_ms, which failed, was stopped or cancelled, once more.
 *                   MR_NOT_FOUND; MR_WRONG_STATE: it is not over, or succeeded
 * Besides: what the store answers. Zero it, fill in the inputs and done; it is the caller's again with done, which is
 * called on the scheduler's thread, MR_CLOSED when that stops.
 */
struct mr_firing_act {
    struct mr_msg msg; /* the scheduler's, as all that is not said to be input or answer */
    void (*done)(struct mr_firing_act *act);
    void *arg;               /* the caller's */
    enum mr_timer_verb verb; /* input, as those that follow; borrowed until done */
    struct mr_slice app, name;
    int64_t planned_ms;
    enum mr_err err;    /* answer */
    struct mr_uuid uid; /* answer: of the timer; with MR_OK and MR_WRONG_STATE */
};
/* Thread: any. */
void mr_scheduler_act(struct mr_scheduler *scheduler, struct mr_firing_act *act);

/* Since it was started. */
struct mr_scheduler_figures {
    uint32_t apps, apps_owned; /* now */
    uint64_t owned;            /* so often an app became ours ... */
    uint64_t lost;             /* ... and so often it was taken from us */
    uint64_t fired;            /* rows that became tasks, caught up ones among them */
    uint64_t caught_up;
    uint64_t skipped, misfired;            /* rows; one may stand for many planned times */
    uint64_t succeeded, failed, cancelled; /* ends */
    uint64_t recovered;   /* firings that were dispatched for another server, or again */
    uint64_t reconciled;  /* ends that no result told of */
    uint64_t moved;       /* tasks of ours that were deleted, since they go on in another broker */
    uint64_t retained;    /* rows that were removed for their age */
    uint64_t clock_steps; /* of the wall clock */
    uint64_t in_memory;   /* timers, now */
    struct mr_hist
        lateness; /* from when it was to happen to when its task was there; not of what was caught
                                   up */
    struct mr_meter lateness_us; /* the same, by mr_meter_us */
};
/* Thread: any. */
void mr_scheduler_figures(struct mr_scheduler *scheduler, struct mr_scheduler_figures *ret_figures);

/* So long it is remembered that a timer was deleted. */
#define MR_TIMER_BURIED_MS (24 * 3600000LL)

/* ---- names ----------------------------------------------------------------------------------- */

/* How long the task of a firing is kept after its end: so long a repeated step finds it. */
#define MR_FIRING_KEPT_MS (24 * 3600000LL)

/* "UID-PLANNED-RUN" with its NUL; its length. Thread: any, as of those that follow. */
size_t mr_firing_id(const struct mr_uuid *uid, int64_t planned_ms, uint32_t run,
                    char id[MR_FIRING_ID_MAX + 1]);
/* False when it is no such id. */
bool mr_firing_id_parse(struct mr_slice id, struct mr_uuid *ret_uid, int64_t *ret_planned_ms,
                        uint32_t *ret_run);
/* The result topic of an app's firings; all of them begin so. */
#define MR_FIRING_TOPICS "millrace-timers:"
struct mr_slice mr_firing_topic(struct mr_slice app, char topic[MR_TOPIC_MAX + 1]);

/* This life of the server, by its name in the store; good while the scheduler is. Thread: any. */
const char *mr_scheduler_owner(const struct mr_scheduler *scheduler);

#endif
