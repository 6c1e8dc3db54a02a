/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a worker and what they share.
 *
 *   broker ──take──> hand ──pop──> slots ──finish──> broker
 *
 * hand.c     leases granted and not begun, in order
 * pump.c     takes: when, how many, and what to do with the answer
 * slot.c     a thread: next lease, handler, report, again
 * run.c      one run as its handler sees it, and how it is told to stop
 * report.c   finishes on their way to the broker
 * monitor.c  a thread: beats, timeouts, runs given up, leases held for too long
 * groups.c   a few threads: sets of groups, and the caller's function for them
 * worker.c   the life cycle
 * master.c   beside it all: a node that takes results
 *
 * One lock guards everything that is not atomic or said to belong to one thread. It is held for a
 * few dozen instructions, never across a call of the broker or of the caller's functions
 * (exception: the watch function of a run). Slots sleep on events of their own; the lock's
 * condition wakes the monitor, mr_worker_stop and mr_worker_run. In steady state a task costs one
 * short section of the lock and no system call.
 */
#ifndef MR_WORKER_INTERNAL_H
#define MR_WORKER_INTERNAL_H

#include "base/buf.h"
#include "wheel/wheel.h"
#include "worker/handlers.h"
#include "worker/retry.h"
#include "worker/worker.h"

/* Of every node: it beats so often, and is dead after so many that were missed. */
#define BEAT_MS      (5 * MR_MS_PER_S)
#define BEATS_MISSED 3

/* What is held ahead of the free slots is this much work of the slots together. */
#define AHEAD_NS MR_NS_PER_MS

enum {
    AHEAD_MAX = 2048,         /* leases held beyond the free slots */
    REPORTS_MAX = 8192,       /* finishes under way; beyond it nothing is taken */
    PROGRESS_MS = 200,        /* new progress is sent at most this late */
    TAKE_WAIT_MS = 60 * 1000, /* a take waits this long at the broker */
    BURST_WAIT_MS = 20,       /* ... with burst, while runs may still add tasks */
    RETRY_MS = 500,           /* a request that failed for a passing reason is sent again */
    RECALL_MS = 20,           /* leases not begun for about this long are handed back */
    WANTED_MS = 10,           /* nothing is held ahead for so long after others wanted it */
    ABANDON_SLACK_MS = 250,   /* beyond the grace: a killed process needs a moment to be gone */
    EARLY_MAX = MR_BATCH_MAX, /* stops remembered: one for each lease that is on its way */
    UNHANDLED_MS = 1000,      /* a task nobody handles comes back after this, and a bit */
    BACK_ROWS = 1024,         /* tasks handed back by handlers that are remembered */
};

/* Why a run should stop. The first reason stays, except that a lost lease overrides all. */
enum run_stop {
    RUN_GOES_ON,
    RUN_CANCELLED,
    RUN_TIMEOUT,
    RUN_DEADLINE,
    RUN_WORKER_STOPS,
    RUN_LOST,
    RUN_STOP_COUNT
};

/* Who reports a run: whoever changes it from RUN_OPEN. */
enum run_owner { RUN_OPEN, RUN_RETURNED, RUN_ABANDONED };

struct mr_run {
    struct mr_lease *lease; /* the slot's; the monitor's too while pinned */
    mr_mono started;
    _Atomic int stop;            /* enum run_stop */
    _Atomic int owner;           /* enum run_owner */
    struct mr_event stopping;    /* set with stop */
    struct mr_buf result, error; /* the handler's; error ends with a NUL when it is not empty */
    int64_t retry_after_ms;      /* -1: by policy */
    /* Under the lock. */
    bool by_deadline;         /* the task's deadline comes before its timeout */
    bool pinned;              /* the monitor reads the lease: the slot must keep it */
    void (*watch)(void *arg); /* called when stop is set */
    void *watch_arg;
    bool progress_new;
    int percent;
    size_t progress_len;
    char progress[MR_PROGRESS_TEXT_MAX];
};

/* One finish under way. Belongs to its slot, then to the broker until it is answered. */
struct mr_report {
    struct mr_req_finish finish;
    struct mr_finish item;
    enum mr_err err;
    bool unhandled;         /* counted apart */
    struct mr_lease *lease; /* holds the id; freed with the answer */
    struct mr_buf result, error;
    struct mr_worker *worker;
    struct mr_slot *home; /* goes back there; NULL: freed */
    struct mr_report *next;
};

struct mr_slot {
    struct mr_worker *worker;
    uint32_t index;
    _Atomic int state; /* enum mr_slot_state */
    bool thread_there;
    pthread_t thread;
    struct mr_rand rand;                  /* the slot's, for the spread of delays */
    struct mr_report *spare;              /* the slot's */
    _Atomic(struct mr_report *) returned; /* by the broker's thread, for spare */
    struct mr_event wake;                 /* ends the sleep of an idle slot */
    struct mr_slot *next;                 /* in the list of idle or woken slots */
    /* Under the lock. */
    bool running;          /* run is valid */
    uint64_t epoch, ref;   /* of the lease it runs */
    uint32_t broker_slot;  /* this slot's number at the broker, when the run began */
    struct mr_timer timer; /* timeout, then grace */
    struct mr_slot *overdue_next;
    _Atomic int64_t due_ns; /* when the run must be over; INT64_MAX never */
    struct mr_run run;
};

/* A stop that came before the lease it is for: the broker may decide on both at once. Or one that
 * could not be reported, for a lease that is in the hand again. */
struct early_stop {
    uint64_t epoch;
    enum mr_stop_reason reason;
};

/* A task handed back by a handler. The next one whose id falls on its row takes the row over. */
struct back_row {
    uint64_t hash; /* of the id */
    uint32_t n;
    mr_mono last;
};

struct mr_hand {
    struct mr_lease *first, *last;
    size_t n;
};

enum figure {
    FIGURE_DONE,
    FIGURE_FAILED,
    FIGURE_HANDED_BACK,
    FIGURE_LATER,
    FIGURE_DROPPED,
    FIGURE_UNHANDLED,
    FIGURE_STALE,
    FIGURE_IN_DOUBT,
    FIGURE_AGGREGATED,
    FIGURE_NOT_AGGREGATED,
    FIGURE_COUNT
};

enum worker_life { WORKER_NEW, WORKER_RUNNING, WORKER_STOPPING, WORKER_STOPPED };

struct mr_worker {
    struct mr_broker *broker;
    struct mr_clock *clock;
    /* Options, copied; fixed after mr_worker_start. */
    struct mr_arena memory;
    struct mr_worker_options options;
    struct mr_retry retry;
    struct mr_handlers handlers;
    int64_t lease_ms;
    uint32_t slots_n;
    struct mr_slot *slots;

    struct mr_groups *groups; /* NULL: none of its business */
    struct mr_lock lock;
    /* Under the lock. */
    enum worker_life life;
    bool starting; /* threads are being made: a stop waits */
    bool hurried;  /* stopped a second time: nothing is waited for */
    struct mr_hand hand;
    struct mr_slot *idle;        /* slots asleep, last one first */
    size_t busy;                 /* runs begun and not given up */
    size_t stuck;                /* runs given up whose handler has not returned */
    uint64_t popped;             /* leases that left the hand for a slot */
    int64_t run_ns;              /* moving average of a run's length */
    uint64_t reported;           /* finish requests sent */
    bool burst_over;             /* the queues are empty and all is reported */
    enum mr_err failure;         /* why the broker carries out nothing any more; MR_OK: it does */
    bool awaited;                /* mr_worker_run tells it */
    struct mr_hash_key back_key; /* fixed */
    struct back_row back[BACK_ROWS];

    /* The node. */
    bool node_open;
    uint64_t node;
    uint32_t first_slot;

    /* The take: one at a time. */
    struct mr_req_take take;
    bool take_busy;
    struct early_stop early[EARLY_MAX];
    size_t early_n;
    uint64_t taken_epoch; /* of the last lease that came: those on their way are above */
    bool take_idle;       /* the worker had nothing to do when it was sent */
    mr_mono take_after;   /* not before: the last one failed */
    enum mr_err take_said,
        reopen_said;     /* failures that were said; MR_OK: none since it went well */
    mr_mono ahead_after; /* nothing ahead before: others wanted it */

    /* The monitor. */
    pthread_t monitor;
    bool monitor_there, monitor_ends;
    mr_mono monitor_wakes;   /* it sleeps until then */
    mr_mono start;           /* tick 0 of the wheel */
    struct mr_wheel *wheel;  /* timers of runs that end before scan_ns */
    struct mr_slot *overdue; /* runs to give up, found by the wheel */
    _Atomic int64_t scan_ns; /* next look at all runs */
    mr_mono beat_at;
    struct mr_req_beat beat;
    bool beat_busy;
    struct mr_arena beat_memory;      /* progress of the beat under way */
    struct mr_rand rand;              /* the monitor's */
    mr_mono beat_sent, beat_answered; /* answered: when the last answered one was sent */
    mr_mono recall_at;                /* MR_MONO_NEVER: the hand was empty */
    uint64_t recall_popped;
    struct mr_report *again; /* finishes to send again */
    mr_mono again_at;

    /* Written by the broker's thread, read by all. */
    _Atomic uint64_t acked;   /* finish requests answered */
    _Atomic bool ack_awaited; /* somebody waits for acked to rise */
    _Atomic uint64_t figures[FIGURE_COUNT];
};

/* ---- worker.c: under the lock --------------------------------------------------------------- */

/* Notes what the broker answered: some errors are its end. True when this is one of them. */
bool mr_worker_fails(struct mr_worker *w, enum mr_err err);
/* It runs, and its broker works. */
bool mr_worker_works(const struct mr_worker *w);

/* ---- hand.c: under the lock ----------------------------------------------------------------- */

void mr_hand_push(struct mr_hand *hand, struct mr_lease *leases, size_t n);
/* NULL when empty. */
struct mr_lease *mr_hand_pop(struct mr_hand *hand);
/* Takes out all but the first keep; list of *ret_n in order. */
struct mr_lease *mr_hand_cut(struct mr_hand *hand, size_t keep, size_t *ret_n);
/* The lease of this epoch, taken out; NULL when it is not there. */
struct mr_lease *mr_hand_remove(struct mr_hand *hand, uint64_t epoch);
void mr_leases_free(struct mr_lease *leases);
/* Remembers a stop, once per lease; that it is lost says more than that it is cancelled. Under the
 * lock. */
void mr_early_note(struct mr_worker *w, uint64_t epoch, enum mr_stop_reason reason);
/* Forgets it again; false: there is none. Under the lock. */
bool mr_early_take(struct mr_worker *w, uint64_t epoch, enum mr_stop_reason *ret_reason);
/* Fills lease->task unless that was done before. Thread: the holder, no lock needed. */
MR_MUST_USE enum mr_err mr_lease_ready(struct mr_worker *w, struct mr_lease *lease);

/* ---- pump.c --------------------------------------------------------------------------------- */

/* Under the lock: whether w->take should be sent now; then it is filled and marked busy, and the
 * caller submits it after leaving the lock. */
bool mr_pump_prepare(struct mr_worker *w, mr_mono now);
void mr_pump_submit(struct mr_worker *w);
/* Under the lock. */
size_t mr_worker_free_slots(const struct mr_worker *w);
/* Under the lock: takes up to n idle slots out of the list; mr_slots_wake ends their sleep,
 * outside. */
struct mr_slot *mr_slots_unlist(struct mr_worker *w, size_t n);
void mr_slots_wake(struct mr_slot *slots);

/* ---- slot.c --------------------------------------------------------------------------------- */

void *mr_slot_main(void *slot);

/* ---- run.c ---------------------------------------------------------------------------------- */

/* Tells the run of a slot to stop, and starts its grace. Under the lock. */
void mr_run_stop(struct mr_slot *slot, enum run_stop reason, mr_mono now);
/* Ends the grace of a run that was told to stop. Under the lock. */
void mr_run_hurry(struct mr_slot *slot, mr_mono now);
/* How a run ended, as its handler said. */
struct run_answer {
    enum mr_outcome outcome;
    const char *error;      /* "" for none */
    int64_t retry_after_ms; /* -1: by policy */
};

/* Fills outcome, delay and error of report: what the handler said, unless the run was told to stop,
 * and the worker's policy. Calls the caller's functions. Thread: the slot's, or the monitor's while
 * the run is pinned. */
void mr_run_judge(struct mr_run *run, struct run_answer answer, struct mr_rand *rand,
                  struct mr_report *report);
/* Calls watch when the run should stop (at once when it already should) and when its grace is cut
 * short, with the worker's lock held: it may only wake somebody. NULL ends it; after that it is not called any more. Thread: the
 * handler's. */
void mr_run_watch(struct mr_run *run, void (*watch)(void *arg), void *arg);
/* How long a run that should stop has, from now on, until it is given up. */
int64_t mr_run_grace_ms(struct mr_run *run);

/* ---- groups.c ------------------------------------------------------------------------------- */

/* Fills in the defaults of groups; MR_INVALID. */
MR_MUST_USE enum mr_err mr_groups_options(struct mr_worker_options *options);
MR_MUST_USE enum mr_err mr_groups_start(struct mr_worker *w);
/* Waits for functions that have not returned; nothing of groups is at the broker afterwards. */
void mr_groups_stop(struct mr_worker *w);

/* ---- report.c ------------------------------------------------------------------------------- */

/* A report of the slot's own, waiting for one to come back when memory is short. Thread: the
 * slot's. */
struct mr_report *mr_report_get(struct mr_slot *slot);
/* One without a home, with room for a copy of an id; NULL when out of memory. */
struct mr_report *mr_report_new(struct mr_worker *w);
void mr_report_set_id(struct mr_report *report, struct mr_slice id);
/* Sends it. The caller counts it in w->reported. */
void mr_report_send(struct mr_report *report);
void mr_reports_free(struct mr_report *reports);
/* The same, and says that nobody knows whether they count. */
void mr_reports_give_up(struct mr_report *reports);
/* Ends leases that did not run, all with the same outcome; counts in w->reported. Takes the leases.
 * Not under the lock. Where the broker cannot be told, they go back to the hand; a stopping worker
 * frees them, since the broker gets them back when the node is closed. */
void mr_leases_finish(struct mr_worker *w, struct mr_lease *leases, enum mr_outcome outcome,
                      struct mr_slice error);

/* ---- monitor.c ------------------------------------------------------------------------------ */

void *mr_monitor_main(void *worker);
/* What the timer of a slot fires. */
void mr_monitor_fire(struct mr_timer *timer, void *worker);
/* Under the lock: the monitor looks again at the latest then. */
void mr_monitor_by(struct mr_worker *w, mr_mono at);
/* Sends a node open request and waits. Not under the lock. */
MR_MUST_USE enum mr_err mr_node_open(struct mr_worker *w);
void mr_node_close(struct mr_worker *w);
/* Tick of the wheel, rounded up. */
uint64_t mr_worker_tick_up(const struct mr_worker *w, int64_t mono_ns);

/* The name of a node, by default host:pid, written to name. */
struct mr_slice mr_node_name(struct mr_slice given, char name[MR_NAME_MAX + 1]);

#endif
