/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a worker and what they share.
 *
 *   broker ──take──> hand ──pop──> slots ──finish──> broker
 *
 * hand.c     leases granted and not begun, in order
 * address.c  queues that are for this worker, or for those with a tag
 * machine.c  slots for some types: which lease is for whom
 * pump.c     takes: when, how many, and what to do with the answer
 * slot.c     a thread: next lease, handler (handlers.c finds it), report, again
 * show.c     what slots do, for everybody to see
 * run.c      one run as its handler sees it, and how it is told to stop
 * report.c   finishes on their way to the broker    retry.c  when a failed one comes back
 * monitor.c  a thread: beats, timeouts, runs given up, leases held for too long
 * groups.c   a few threads: sets of groups, and the caller's function for them
 * worker.c   the life cycle
 * master.c   beside it all: a node that takes results
 * exec.c     beside it all: a handler that runs a command, with exec_env.c
 *
 * Each machine has a hand, a take and slots of its own; what it does not depend on, the node, the beats,
 * the reports, they share.
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

/* What is held ahead of the free slots is this much work of the slots together: a broker behind a
 * connection that hands out a full batch needs about so long, and must not wait for the slots. */
#define AHEAD_NS (4 * MR_NS_PER_MS)

enum {
    AHEAD_MAX = 2048,         /* leases held beyond the free slots */
    REPORTS_MAX = 8192,       /* finishes under way; beyond it nothing is taken */
    PROGRESS_MS = 200,        /* new progress is sent at most this late */
    TAKE_WAIT_MS = 60 * 1000, /* a take waits this long at the broker */
    BURST_WAIT_MS = 20,       /* ... with burst, while runs may still add tasks */
    HELD_WAIT_MS = 200,       /* ... or when limits keep back all that is left */
    MORE_WAIT_MS = 100,       /* ... or while more will come */
    RETRY_MS = 500, /* a request that failed for a passing reason is sent again, or about then */
    SHOW_MS = 1000, /* the broker learns of what slots do at most this late */
    RECALL_MS = 20, /* leases not begun for about this long are handed back */
    WANTED_MS = 10, /* nothing is held ahead for so long after others wanted it */
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

/*
 * Which task a slot has. The slot writes it for every run, the monitor reads it now and then: neither waits
 * for the other. The number is odd while it is written; who sees another one behind the words than before
 * them has read nothing.
 */
enum { LABEL_WORDS = (MR_ID_MAX + MR_NAME_MAX) / 8 };
struct slot_label {
    _Atomic uint32_t number;
    _Atomic uint32_t lens; /* of the id, and in the upper half of the type behind it */
    _Atomic uint64_t words[LABEL_WORDS];
};

struct mr_slot {
    struct mr_worker *worker;
    struct machine *machine;
    uint32_t index;
    _Atomic int state;        /* enum mr_slot_state; POLLING is PENDING here, see mr_slot_state */
    _Atomic int64_t since_ns; /* in this state */
    struct slot_label label;
    bool thread_there;
    pthread_t thread;
    struct mr_rand rand;                  /* the slot's, for the spread of delays */
    struct mr_report *spare;              /* the slot's */
    _Atomic(struct mr_report *) returned; /* by the broker's thread, for spare */
    _Atomic uint32_t out;                 /* reports of it that are not answered */
    _Atomic bool resting;                 /* it has nothing to do */
    struct mr_event wake;                 /* ends the sleep of an idle slot */
    struct mr_slot *next;                 /* in the list of idle or woken slots */
    /* Under the lock. */
    int told;              /* enum mr_slot_state: what the caller's watch knows */
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

/* Slots for some types, and what they need to get tasks. Under the lock, but for what is fixed. */
struct machine {
    struct mr_worker *worker;
    /* Fixed after the start. */
    struct mr_slot *slots;
    uint32_t slots_n;
    uint64_t queues; /* bits of the worker's; 0: all */
    struct mr_slice *types;
    size_t types_n; /* 0: all */

    struct mr_hand hand;
    struct mr_slot *idle; /* slots asleep, last one first */
    size_t busy;          /* runs begun and not given up */
    size_t stuck;         /* runs given up whose handler has not returned */
    uint64_t popped;      /* leases that left the hand for a slot */
    int64_t run_ns;       /* moving average of a run's length */
    /* The take: one at a time. */
    struct mr_req_take take;
    bool take_busy;
    mr_mono take_sent;
    bool take_idle;        /* the worker had nothing to do when it was sent */
    bool empty;            /* ... and there was nothing: with burst */
    bool held_back;        /* ... but for what limits keep back: the next one waits for that */
    uint64_t taken_epoch;  /* of the last lease that came: those on their way are above */
    mr_mono take_after;    /* not before: a pause, or the last one failed */
    enum mr_err take_said; /* a failure that was said; MR_OK: none since it went well */
    size_t passed;         /* the last takes brought so many for others that had no room */
    mr_mono recall_at;     /* MR_MONO_NEVER: the hand was empty */
    uint64_t recall_popped;
};

/*
 * How near the end of a burst is. When the queues are empty and all is reported, whoever knows of more is asked (struct mr_more);
 * where nobody does, it is over. Nothing is taken meanwhile. If more comes, takes wait for it, and when they bring nothing it
 * is asked again; if not, the queues are looked at once more, since something may have come before the answer. Every task that is
 * taken begins it anew.
 */
enum burst { BURST_TAKES, BURST_ASKS, BURST_WAITS, BURST_LAST, BURST_OVER };

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
    struct mr_leading leading; /* leads is NULL: it is no candidate */
    struct mr_more more;       /* comes is NULL: nobody knows of any */
    uint32_t slots_n;
    struct mr_slot *slots; /* of the first machine, of the second, ... */
    struct machine *machines;
    size_t machines_n;

    struct mr_groups *groups; /* NULL: none of its business */
    struct mr_lock lock;
    /* Under the lock. */
    enum worker_life life;
    bool starting;               /* threads are being made: a stop waits */
    bool hurried;                /* stopped a second time: nothing is waited for */
    uint64_t reported;           /* finish requests sent */
    enum burst burst;            /* of a worker that has options.burst */
    enum mr_err failure;         /* why the broker carries out nothing any more; MR_OK: it does */
    bool awaited;                /* mr_worker_run tells it */
    struct mr_hash_key back_key; /* fixed */
    struct back_row back[BACK_ROWS];

    /* The node. */
    bool node_open;
    uint64_t node;
    uint32_t first_slot;

    mr_mono reopen_after;    /* not before: it failed */
    enum mr_err reopen_said; /* a failure that was said; MR_OK: none since it went well */

    struct early_stop early[EARLY_MAX];
    size_t early_n;
    mr_mono ahead_after;      /* nothing ahead before: others wanted it */
    struct mr_rand pump_rand; /* for pauses */

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
    uint64_t shown;                   /* sum of what the last beat said of the slots */
    mr_mono show_at;                  /* looks whether they do something else by now */
    struct mr_report *again;          /* finishes to send again */
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

/* ---- address.c ------------------------------------------------------------------------------ */

MR_MUST_USE enum mr_err mr_addresses_check(const struct mr_worker_options *options);
/* The queues of the worker, whose name is known, with its addresses; all copied. */
MR_MUST_USE enum mr_err mr_addresses_make(struct mr_worker *w);
/* Bits of those queues of the worker that the machine serves. */
uint64_t mr_addresses_queues(const struct mr_worker_options *options,
                             const struct mr_machine *machine);

/* ---- machine.c ------------------------------------------------------------------------------ */

/* From the options, which were checked: copies, and the number of slots in all. */
MR_MUST_USE enum mr_err mr_machines_check(const struct mr_worker_options *options);
MR_MUST_USE enum mr_err mr_machines_make(struct mr_worker *w);
/* Each gets its slots, once they are there. */
void mr_machines_share(struct mr_worker *w);
/* Under the lock. */
size_t mr_machine_free_slots(const struct machine *m);
size_t mr_worker_busy(const struct mr_worker *w);
/* Nothing runs, is in hand or on its way to the broker. Under the lock. */
bool mr_worker_idle(const struct mr_worker *w);
/* A take is under way that may bring this epoch. Under the lock. */
bool mr_worker_expects(const struct mr_worker *w, uint64_t epoch);
/* Out of whichever hand it is in. Under the lock. */
struct mr_lease *mr_worker_remove(struct mr_worker *w, uint64_t epoch,
                                  struct machine **ret_machine);
/*
 * What a take of m brought: into the hands of those who run it. What those have no room for is answered
 * as a list, for which m is to tell the broker. Under the lock.
 */
struct mr_lease *mr_machine_accept(struct machine *m, struct mr_lease *leases, mr_mono now);
/* Its slots run tasks of this type. Thread: any. */
bool mr_machine_takes(const struct machine *m, struct mr_slice type);

/* ---- pump.c --------------------------------------------------------------------------------- */

/* Under the lock: whether m->take should be sent now; then it is filled and marked busy, and the
 * caller submits it after leaving the lock. */
bool mr_pump_prepare(struct machine *m, mr_mono now);
void mr_pump_submit(struct machine *m);
/* The same of all machines: bits of those to submit. */
uint64_t mr_pumps_prepare(struct mr_worker *w, mr_mono now);
void mr_pumps_submit(struct mr_worker *w, uint64_t machines);
/* Under the lock: how many leases m should have in hand. */
size_t mr_pump_target(const struct machine *m, mr_mono now);
/* Under the lock: takes up to n idle slots out of the list; mr_slots_wake ends their sleep,
 * outside. */
struct mr_slot *mr_slots_unlist(struct machine *m, size_t n);
void mr_slots_wake(struct mr_slot *slots);

/* ---- show.c --------------------------------------------------------------------------------- */

/* The slot is in this state from now on. Not under the lock, and under it. JUST_NOW: a clock is not worth it,
 * since it is over before anybody looks, or mr_slot_rest says since when it lasts. */
#define JUST_NOW ((mr_mono){0})
void mr_slot_show(struct mr_slot *slot, enum mr_slot_state state, mr_mono now);
void mr_slot_show_locked(struct mr_slot *slot, enum mr_slot_state state, mr_mono now);
/* It has nothing to do from now on: it waits, once its reports are answered. Under the lock. */
void mr_slot_rest(struct mr_slot *slot, mr_mono now);
/* Its report was answered: it waits now, unless it went on before. Thread: any, not under the lock. */
void mr_slot_reported(struct mr_slot *slot);
/* The idle slots poll, or wait: for the caller's watch. Under the lock. */
void mr_machine_tell(struct machine *m, enum mr_slot_state state, int64_t pause_us);
/* The task that it has now. Thread: the slot's. */
void mr_slot_label(struct mr_slot *slot, const struct mr_task *task);
/* What the slots do, the first MR_SLOTS_SHOWN, since_ms for how long; in the arena. 0: no memory. Under the
 * lock. */
size_t mr_slots_look(struct mr_worker *w, struct mr_arena *arena, struct mr_slot_info **ret_infos);
/* Differs where they do something else, polling and waiting apart. Under the lock. */
uint64_t mr_slots_sum(const struct mr_worker *w);
/* Under the lock. */
enum mr_slot_state mr_slot_state(const struct mr_slot *slot);

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
 * Not under the lock. Where the broker cannot be told, they go back to the hand of m; a stopping worker
 * frees them, since the broker gets them back when the node is closed. */
struct unrun {
    enum mr_outcome outcome;
    int64_t delay_ms; /* MR_HAND_BACK: not before this */
    const char *error;
};
#define UNRUN_BACK      ((struct unrun){MR_HAND_BACK, 0, ""})
#define UNRUN_CANCELLED ((struct unrun){MR_FAIL_FOR_GOOD, 0, "cancelled"})
void mr_leases_finish(struct machine *m, struct mr_lease *leases, struct unrun how);

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

/* Whether a node can lead for so long with beats that often; 0: the default of either. */
bool mr_leader_ms_fits(int64_t leader_ms, int64_t beat_ms);
/* When a candidate should have beaten again, by the answer of its last beat: nobody may lead then. Another
 * one does, or it does itself, until then; MR_MONO_NEVER: its beats come soon enough. */
mr_mono mr_leader_ends(const struct mr_req_beat *beat, mr_mono now);

#endif
