/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the scheduler: its map.
 *
 *   scheduler.c  the thread, its clock and wheel, the apps it knows
 *   share.c      who else is there, and which apps are to be ours
 *   cut.c        which subApps of apps that are cut are ours
 *   planner.c    how apps are to be cut, and whose that is to be
 *   plan_write.c what is planned is written
 *   view.c       what the planner is told, and loads
 *   lease.c      whose an app is; what begins and ends with that
 *   window.c     timers in memory: reading what is due soon, and what was changed
 *   fire.c       what is due becomes rows of the ledger
 *   target.c     to which worker that goes
 *   dispatch.c   rows become tasks
 *   ends.c       results of tasks become ends of rows
 *   late.c       ends whose timer has to be looked at first
 *   recover.c    rows that are open: when an app has become ours, and every now and then
 *   broadcast.c  firings of several tasks: whether all have ended
 *   sweep.c      tasks in our own broker that go on in another one
 *   keep.c       until when the others are ours
 *   expire.c     firings that no worker took in time
 *   stop.c       the task of a firing is stopped
 *   act.c        what people do to a firing
 *   names.c      ids of tasks, names of topics
 *
 * An app is one struct app, its base, or, where it is cut, one for each subApp that is ours beside it: each has its own lease and
 * its timers. What is of the app as a whole, such as the results of its tasks, is the base's.
 *
 * All of it belongs to the scheduler's thread. Requests to the store and the broker are errands: they come back as
 * messages. An app that was lost meanwhile has another generation, and what comes back for the old one is
 * dropped; that it was carried out does no harm.
 */
#ifndef MR_TIMER_SCHED_INTERNAL_H
#define MR_TIMER_SCHED_INTERNAL_H

#include "base/diag.h"
#include "base/map.h"
#include "broker/gate.h"
#include "desk/intake.h"
#include "names/balance.h"
#include "names/subapp.h"
#include "timer/plan.h"
#include "timer/plan_view.h"
#include "timer/scheduler.h"
#include "timer/share.h"

enum {
    LOOK_MS = 1000,  /* how often it looks for what others have changed */
    SHARE_MS = 200,  /* and, when there are others, for what they have left */
    LEAVE_MS = 1000, /* so long what is under way may keep an app that is to be another's */
    AGAIN_MS = 1000, /* what failed for a passing reason is tried again after this */
    FIRE_MAX = 2000, /* rows of one transaction */
    FIRES_MAX = 2,   /* transactions of an app under way */
    LATER_MS = 500,  /* what can wait is put off by this at most while there is something to fire */
    PAGE_MAX = 1000, /* rows of one answer */
    NODE_LEASE_MS = 15000, /* of the node that takes results */
    RECONCILE_MAX = 1000,  /* rows of an app that are held against their tasks at a time */
};

#define PLAN_LEASE "plan" /* whoever holds it plans */

struct mr_scheduler;
struct app;
struct reading;

/* ---- errands --------------------------------------------------------------------------------- */

/* An errand is of an app, or of NULL. */
static inline struct mr_scheduler *sched_of(const struct mr_errand *errand)
{
    return errand->desk->options.service;
}

static inline struct app *sched_app_of(const struct mr_errand *errand)
{
    return errand->of;
}

/* Submits; done is called on the scheduler's thread. */
void sched_errand_store(struct mr_errand *errand, struct mr_store_req *req);
void sched_errand_broker(struct mr_errand *errand, struct mr_req *req);
/* Whether the app is still ours, as when it was submitted. */
bool sched_errand_current(const struct mr_errand *errand);

/* ---- timers in memory ------------------------------------------------------------------------ */

/* A definition, shared by its timer and what it has fired. */
struct def {
    unsigned refs;
    struct mr_arena arena;
    struct mr_timer_options options; /* slices in the arena */
    struct mr_rule *rule;
    uint32_t limit; /* runs at once; UINT32_MAX: any number */
    bool watched;   /* its ends matter for what is fired next */
};

/* A firing of a watched timer that has not ended. */
struct open_run {
    int64_t planned_ms;
    uint32_t run;
    bool held; /* waits in the ledger for its turn */
};

enum entry_state {
    ENTRY_RESTS,  /* nothing of it is due within the window; it is here for its open runs */
    ENTRY_ASKS,   /* for its open runs, or for the row as it is now */
    ENTRY_WAITS,  /* in the wheel */
    ENTRY_DUE,    /* in the list of what is due */
    ENTRY_FIRING, /* in a transaction */
};

struct entry {
    struct mr_timer timer;
    struct mr_link link; /* in due */
    struct app *app;
    uint32_t handle;
    struct mr_uuid uid;
    uint64_t version;
    uint64_t seen; /* what was changed up to this number is known */
    struct def *def;
    struct mr_plan_state plan;
    enum entry_state state;
    bool changed; /* while it was in a transaction: its row has to be read */
    bool unsure; /* one of its open runs may have ended: the store has to be asked which are open */
    struct open_run *open;
    uint32_t open_n, open_cap;
};

/* ---- apps ------------------------------------------------------------------------------------ */

struct app {
    struct mr_link link;
    struct mr_scheduler *s;
    struct app *base;       /* the app as a whole: itself, if it is no subApp */
    struct mr_link parts;   /* of a base: its subApps that are, or were, ours */
    struct mr_link of_base; /* in parts */
    uint32_t part;          /* the id of a subApp; 0: the app as a whole */
    uint64_t slots;         /* of a subApp; 0: all */
    uint64_t lease_token;   /* of a subApp, what its lease has to have: its epoch in the table */
    uint64_t declined;      /* a lease_token that was not begun with */
    bool cut;               /* of a base: others than itself fire it */
    bool seen;              /* by a look: it is still ours */
    bool few;          /* of a base, the planner's: it has fewer workers than subApps need, ... */
    mr_mono few_since; /* ... since then */
    struct mr_balance_window load; /* of its dispatches; under the lock */
    char name[MR_NAME_MAX + 1];
    char lease[MR_NAME_MAX + sizeof MR_APP_LEASE_PREFIX + 16];
    char topic[MR_TOPIC_MAX + 1];
    bool wanted; /* we would like to have it */
    bool share;  /* it is to be ours: else we leave it when nothing of it is under way */
    bool free;   /* nobody else had it when that was found */
    bool owned, asking;
    uint64_t token, generation;
    mr_mono until; /* it is ours so long */
    mr_mono leave; /* no later than this, when it is to be another's */

    struct mr_map *map; /* of entries, by uid */
    struct entry **entries;
    uint32_t entries_n, entries_cap, free_handle;
    struct mr_link due;
    unsigned fires;    /* transactions under way */
    bool fires_paused; /* until fire_again: the last one failed */
    struct mr_timer fire_again;

    int64_t until_ms; /* the window was read up to here */
    uint64_t since;   /* and changes up to here */
    bool reading, read_again, recovering;
    bool forgot; /* there was no memory for a timer: the whole window is to be read again */
    struct reading *held;      /* goes on when some of what is overdue has been fired */
    struct mr_link shots;      /* to be dispatched again */
    unsigned dispatching;      /* requests that make tasks */
    struct mr_link dispatched; /* tasks are there, and the rows do not say so yet */
    struct mr_timer dispatch_again, reconcile;
    int64_t walk_ms; /* the walk through the open rows is here */
    struct mr_uuid walk_uid;
    struct mr_intake results;  /* of a base */
    struct mr_link broadcasts; /* that are looked at */
    struct mr_link expiries;   /* of firings that may not wait for ever */
};

struct nodes;
struct broadcast;
struct view;

/* ---- what a look at the store has seen -------------------------------------------------------- */

/* The table of an app that is cut, and the wish beside it. */
struct cut {
    struct mr_slice app;
    uint64_t version;
    bool has_wish;
    int64_t wish_ms; /* so old it is */
    struct mr_subapps now, wish;
};

struct sight {
    struct mr_share_server *servers; /* that live, by name */
    size_t servers_n;
    size_t us;                 /* of servers; MR_SHARE_NOBODY: not among them */
    struct mr_share_app *apps; /* by name */
    size_t apps_n, apps_cap;
    struct cut *cuts; /* by app */
    size_t cuts_n, cuts_cap;
    struct mr_arena arena; /* of names */
};

/* The planner's memory. */
struct planner {
    bool asking;          /* for the lease */
    uint64_t token;       /* of the lease; 0: it is not ours */
    mr_mono until;        /* it is so long */
    mr_mono again;        /* when it is to be asked for */
    size_t writing;       /* requests under way */
    bool has_moved;       /* for balance ... */
    mr_mono moved;        /* ... then */
    struct mr_link moves; /* of subApps, the newest last */
    size_t moves_n;
    struct mr_link names; /* of servers that are, or were, there */
    const char *verdict;  /* of the last look, for people; NULL: we do not plan. Under the lock */
};

struct mr_scheduler {
    struct mr_desk desk;
    struct mr_timer_settings settings;
    void (*alarm)(const struct mr_scheduler_alarm *alarm, void *arg);
    void *alarm_arg;
    uint64_t id; /* of the desk's owner, as tables have it */
    char
        home[MR_STORE_OWNER_MAX + 1]; /* of the broker, where each server has its own; else empty */
    struct mr_arena homes_arena;
    struct mr_slice *homes; /* of the servers that were there at the last look */
    size_t homes_n;
    bool homes_known;     /* else there was no memory for them: nobody is taken for gone */
    struct mr_gate *gate; /* of the broker; NULL: it hands out whatever it has */
    mr_mono row_until;    /* so long the store says that we are there; zero: it does not */
    uint64_t row_life;    /* so often that has begun */
    bool row_swept;       /* since then we know what goes on elsewhere */
    struct view *view;    /* or NULL */
    struct planner planner;
    bool all_apps;
    struct mr_zones *zones;
    int64_t offset_us; /* from the monotonic to the wall clock */
    struct mr_link apps;
    struct mr_timer look, share, retain;
    char *apps_text;     /* the apps that it fires, a line each; empty: all */
    bool present;        /* it is one of those that share the apps: it reaches the broker */
    bool probing;        /* whether it does */
    mr_mono back;        /* when it has given up: not before this */
    mr_mono beat;        /* when that it is there, and has what it has, is to be said again */
    size_t others;       /* that are there, too */
    bool wished;         /* some subApp is about to change hands */
    bool sharing;        /* it is looking at that */
    bool share_again;    /* and once more */
    struct nodes *nodes; /* the workers, as they were lately; or NULL */
    bool nodes_asking;
    mr_mono nodes_again;   /* the last time failed: not before this */
    bool nodes_wanted;     /* there are timers that go by them */
    bool sweep_due;        /* others may have made tasks anew that are in our broker */
    bool sweeping;         /* they are looked for */
    size_t sweep_round;    /* so often they were */
    struct mr_timer sweep; /* then they are */
    mr_mono sweep_ended;   /* the last time */
    struct mr_event swept; /* they were once, or there are none */
    uint64_t found;        /* rows that were found and dispatched */
    struct mr_link
        finds; /* shots of such rows, of which these may still say that they are others' */
    struct mr_lock lock; /* over figures */
    struct mr_scheduler_figures figures;
};

/* scheduler.c */
int64_t sched_now_ms(const struct mr_scheduler *s); /* wall clock, as of this turn */
void sched_at(struct mr_scheduler *s, struct mr_timer *timer, int64_t wall_ms);
void sched_alarm(struct mr_scheduler *s, const struct mr_scheduler_alarm *alarm);
/* Under the lock: figures.FIELD += n. */
#define SCHED_COUNT(s, field, n)                                                                   \
    do {                                                                                           \
        mr_lock_enter(&(s)->lock);                                                                 \
        (s)->figures.field += (n);                                                                 \
        mr_lock_leave(&(s)->lock);                                                                 \
    } while (0)
/* NULL: no memory. */
struct app *sched_app(struct mr_scheduler *s, struct mr_slice name);

struct app *sched_app_find(struct mr_scheduler *s, struct mr_slice name);
/* A subApp of the base. NULL: no memory. */
struct app *sched_part(struct app *base, uint32_t part);
/* Where the timer is, if it is ours: the app, or the subApp of its slot. Else the base. */
struct app *sched_app_for(struct app *app, const struct mr_uuid *uid);
/* What is due of the app, or of any subApp of it, keeps the store busy. */
bool sched_is_any_firing(const struct app *base);

/* Where the task of a firing is. */
enum home { HOME_OURS, HOME_OTHERS, HOME_GONE /* its server does not live */ };
enum home sched_home(const struct mr_scheduler *s, struct mr_slice home);

/* sweep.c: a look at the store has been; shared: there are others. */
void sched_sweep_init(struct mr_scheduler *s);
void sched_sweep_look(struct mr_scheduler *s, bool is_shared);

/* keep.c: our row in the store is there, by a request that was sent then; what goes on elsewhere was looked for, in a sweep that was
 * begun in this life of the row; the row ends now. */
void sched_keep_init(struct mr_scheduler *s);
void sched_keep_beaten(struct mr_scheduler *s, mr_mono at);
void sched_keep_swept(struct mr_scheduler *s, uint64_t life);
void sched_keep_end(struct mr_scheduler *s);

/* cut.c: the number of a server in tables. */
uint64_t sched_server_id(struct mr_slice server);
/* A page of tables goes into the sight. */
MR_MUST_USE enum mr_err sched_cuts_add(struct sight *sight,
                                       const struct mr_store_subapps_list *page);
struct cut *sched_cut_find(const struct sight *sight, struct mr_slice app);
/* Whether the subApp is in the other table as it is in this one. */
bool sched_is_same_part(const struct mr_subapps *table, const struct mr_subapp *part);
void sched_cuts_follow(struct mr_scheduler *s, const struct sight *sight);

/* planner.c */
void sched_plan(struct mr_scheduler *s, const struct sight *sight);
void sched_plan_end(struct mr_scheduler *s); /* others may plan from now on */
void sched_planner_done(struct mr_scheduler *s);

/* plan_write.c */
struct plan_change {
    struct mr_slice app;
    uint64_t version;             /* that was read; 0: the app is not cut yet */
    const struct mr_subapps *old; /* NULL likewise */
    const struct mr_subapps *now; /* NULL: it is only wished */
    const struct mr_subapps *wish;
    const struct mr_subapp_change *changes;
    size_t changes_n;
    const char *why; /* instead of the names of their reasons; NULL: those */
};
void sched_plan_write(struct mr_scheduler *s, const struct plan_change *change);
/* What was wished comes about, if those who have to give have given, or have had time enough. */
void sched_plan_carry_out(struct mr_scheduler *s, const struct sight *sight, const struct cut *cut);
bool sched_server_lives(const struct sight *sight, uint64_t server);
/* Names for numbers of servers. */
void sched_names_note(struct mr_scheduler *s, const struct sight *sight);
void sched_names_free(struct mr_scheduler *s);

/* view.c: what it says; without a view nothing. */
void sched_view_free(struct view *view);
void sched_view_of_server(const struct mr_scheduler *s, struct mr_slice server,
                          uint32_t *ret_weight, int64_t *ret_other);
int64_t sched_view_load(const struct mr_scheduler *s, struct mr_slice app, uint32_t part);
size_t sched_view_workers(const struct mr_scheduler *s, struct mr_slice app);
bool sched_view_complete(const struct mr_scheduler *s);
uint32_t sched_view_threshold(const struct mr_scheduler *s);

/* share.c */
void sched_share_init(struct mr_scheduler *s);
void sched_share_look(struct mr_scheduler *s); /* at once */
/* It reaches the store, but not the broker: others may. All it has goes. */
void sched_share_give_up(struct mr_scheduler *s, enum mr_err err);
void sched_share_end(struct mr_scheduler *s); /* likewise, for good */

/* lease.c */
void sched_lease_check(struct mr_scheduler *s); /* what has run out is not ours */
void sched_lease_renew(struct mr_scheduler *s); /* what is */
void sched_lease_take(struct mr_scheduler *s);  /* what is free and to be ours */
void sched_lease_leave(struct app *app);        /* when it is to be another's and that can be */
void sched_lease_lost(struct app *app, enum mr_err err);
void sched_lease_drop(struct app *app); /* it was given to another */
/* A subApp that was given to us is to go before we have begun with it. */
void sched_lease_decline(struct app *app);
void sched_lease_release_all(struct mr_scheduler *s);

/* window.c */
/* MR_NOMEM; anything else: the definition is damaged, which is told. */
MR_MUST_USE enum mr_err sched_def_new(struct mr_scheduler *s, const struct mr_store_timer *row,
                                      struct def **ret_def);
struct def *sched_def_ref(struct def *def);
void sched_def_unref(struct def *def);
void sched_window_read(struct app *app); /* what is due soon, and changes */
struct entry *sched_entry_find(struct app *app, const struct mr_uuid *uid);
/* A row as it was read: the entry for it is made, or brought up to it. NULL: there is none. */
struct entry *sched_entry_load(struct app *app, const struct mr_store_timer *row);
/* An entry for a timer whose runs are watched, where there is none: for them. NULL: they are not. */
struct entry *sched_entry_rest(struct app *app, const struct mr_store_timer *row);
/* It waits for its moment, rests, or goes. */
void sched_entry_settle(struct entry *entry);
/* Its row is read again. */
void sched_entry_ask(struct entry *entry);
void sched_entry_opened(struct entry *entry, int64_t planned_ms, uint32_t run, bool held);
/* Likewise, as a page of rows says that may be older than what has been heard since; make_sure asks the store, if need be. */
void sched_entry_maybe_opened(struct entry *entry, int64_t planned_ms, uint32_t run, bool held);
void sched_entry_make_sure(struct entry *entry);
void sched_entry_closed(struct entry *entry, int64_t planned_ms);
/* Its open runs are these, and no others. */
void sched_entry_open_are(struct entry *entry, const struct mr_store_firing *rows, size_t n);
/* They are read; then it is seen how it stands. */
void sched_entry_ask_open(struct entry *entry);
/* Runs that are not over and not held; of those that were not planned for planned_ms. */
uint32_t sched_entry_running(const struct entry *entry);
uint32_t sched_entry_running_without(const struct entry *entry, int64_t planned_ms);
uint32_t sched_entry_held(const struct entry *entry);
MR_MUST_USE enum mr_err sched_window_init(struct app *app);
void sched_window_drop(struct app *app); /* it is not ours any more */
void sched_window_done(struct app *app);
void sched_window_rewind(struct app *app); /* the wall clock was set */
void sched_window_go_on(struct app *app); /* reads on, where it waits for what is due to be fired */
/* A timer was moved by others than its owner's transactions. */
void sched_window_moved(struct app *app, const struct mr_uuid *uid);

/* fire.c */
void sched_fire_init(struct app *app);
void sched_fire_due(struct app *app);
/* The store is busy with what is due: what can wait should. */
bool sched_is_firing(const struct app *app);
/* How a row that is written now stands, by the policy of its timer: MR_LEDGER_WAITING or SKIPPED; held: waiting, but not
 * to be dispatched. */
enum mr_ledger_state sched_fire_state(const struct def *def, uint32_t running, uint32_t held,
                                      bool *ret_held);
/* So many runs may be open when a row of this state is written; 0: any number. */
uint32_t sched_fire_limit(const struct def *def, enum mr_ledger_state state, bool held);
extern const struct mr_slice sched_why_skipped, sched_why_held;

/* target.c */
struct mr_slice sched_queue_of(const struct app *app, const struct def *def);
/* What is said of a firing that goes nowhere, for either of the last two. */
struct mr_slice sched_why_nowhere(enum mr_err err);
bool sched_needs_nodes(const struct mr_timer_options *options);
/* Asks for the list of workers when it is old; false: it is not here yet, or too old. */
bool sched_nodes_ready(struct mr_scheduler *s);
void sched_nodes_free(struct nodes *nodes);
/* What is to stand in the row; in the arena, for the timer may go before the row is written. number counts the firings. MR_EMPTY: the workers are
 * not known yet; MR_NOT_FOUND: there is none; MR_TOO_BIG: too many for one broadcast. */
MR_MUST_USE enum mr_err sched_target(struct app *app, const struct def *def, uint64_t number,
                                     struct mr_arena *arena, struct mr_slice *ret_target);

/* dispatch.c */
struct shot {
    struct mr_link link;
    struct mr_link among_found; /* in the scheduler's, until the row says that its task is here */
    struct def *def;
    char *target; /* as in the row */
    size_t target_len;
    size_t tasks_n;
    struct mr_uuid uid;
    int64_t planned_ms;
    int64_t due_ms; /* 0: it is late anyway */
    uint32_t run;
    bool adopts; /* its task was elsewhere, where nobody is any more */
    char id[MR_FIRING_ID_MAX + 1];
};
/* NULL: no memory; it is found as an open row later. */
struct shot *sched_shot_new(struct def *def, const struct mr_uuid *uid, int64_t planned_ms,
                            uint32_t run, struct mr_slice target);
/* Takes all of the list. */
void sched_dispatch(struct app *app, struct mr_link *shots);
void sched_dispatch_init(struct app *app);
void sched_dispatch_drop(struct app *app);
void sched_dispatch_flush(struct app *app); /* nothing is fired now: what was put off is written */

/* broadcast.c */
void sched_broadcast_look(struct app *app, const struct mr_uuid *uid, int64_t planned_ms);
bool sched_is_broadcast(struct mr_slice target);

/* expire.c: the firing has become a task; it has so long as its timer says. */
void sched_expire(struct app *app, const struct def *def, const struct mr_uuid *uid,
                  int64_t planned_ms, uint32_t run);
void sched_expire_drop(struct app *app);

/* ends.c: results of the base are taken as long as the app, or a subApp, is ours and recovered, and, where the broker
 * is our own, from then on. */
void sched_results_begin(struct app *app);
void sched_results_end(struct app *app);    /* if nobody needs them any more */
void sched_results_flush(struct app *base); /* likewise */
void sched_results_init(struct app *base);
/* One end of a firing, known by whatever means. */
struct end {
    struct mr_uuid uid;
    int64_t planned_ms;
    uint32_t run;
    bool final;
    enum mr_ledger_state state;
    uint32_t attempt;
    int64_t started_ms, finished_ms;
    struct mr_slice reason;
    bool no_worker; /* that is why: an alarm of its own kind */
};
/* Writes them down; done (may be NULL) is called with what the store says of the whole. Copies all of it. */
typedef void ends_done(struct app *app, enum mr_err err, void *arg);
void sched_ends_write(struct app *app, const struct end *ends, size_t n, ends_done *done,
                      void *arg);
/* One end, of whoever's app: what its timer does next is written with it. */
void sched_end_write(struct app *app, const struct end *end);
void sched_end_told(struct app *app,
                    const struct end *end); /* it is written: counted, and an alarm */
/* late.c: likewise, when it has been read how the timer stands. */
void sched_end_late(struct app *app, const struct end *end);
/* Likewise, of many that are not ours; all is copied. */
void sched_ends_late(struct app *app, const struct end *ends, size_t n, ends_done *done, void *arg);
/* What the ledger is told of it, but for the move. */
struct mr_store_set sched_end_set(const struct end *end);
/* What follows the end for a timer that stands so. */
struct mr_store_move sched_end_move(const struct mr_rule *rule, const struct mr_store_timer *timer,
                                    int64_t finished_ms);
/* What the task says of its end; false: it has not ended. Slices of the task. */
bool sched_end_of_task(const struct mr_task *task, struct end *ret_end);

/* recover.c */
void sched_recover_init(struct app *app);
void sched_recover_begin(struct app *app);
/* Of a base that is cut: what is in our broker of subApps that are others'. */
void sched_recover_left(struct app *base);
void sched_recover_drop(struct app *app);
/* The open rows of one timer are read; those that may be are dispatched. */
void sched_recover_timer(struct app *app, const struct mr_uuid *uid);
/* Whether a row that we wrote then, with our home, is still ours to make a task of. */
bool sched_claim_holds(const struct mr_scheduler *s, int64_t fired_ms);

/* stop.c: tells the broker to stop the task of a firing; one that had not begun ends here. why is a literal. */
void sched_stop_task(struct app *app, const struct mr_uuid *uid, int64_t planned_ms, uint32_t run,
                     const char *why);

#endif
