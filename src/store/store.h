/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store contract: what is kept of timers and their firings, and who may fire them. SQLite and
 * PostgreSQL fulfil it; the suite in tests/store is its definition in code.
 *
 * A caller fills a request, submits it and is called back once, on the store's own thread. Requests
 * of one thread are carried out in the order of submission. Inputs are borrowed until done is called;
 * answers live in the request's arena until mr_store_req_done. Batches answer per item: a request
 * whose err is MR_OK was carried out, and each item has its own err; one that failed as a whole gives
 * its err to every item too.
 *
 * What an answer promises: all that it is based on is durable. Requests that wait at the same time
 * share a transaction. Whatever is asked for can be asked for again: an item that finds its own
 * effect answers as if it had just done it. So the store repeats by itself what failed for a passing
 * reason (another writer, a lost connection, a commit whose outcome is unknown), and so may callers.
 *
 * Errors of a request as a whole: MR_INVALID, MR_TOO_BIG (nothing was done), MR_STALE (of a fence),
 * MR_UNAVAILABLE (out of reach for longer than away_ms; it may have been done), MR_DISK_FULL (not
 * done; looking goes on, and so does the rest when there is space), MR_IO, MR_DAMAGED (the store has
 * stopped: nothing is carried out any more), MR_CLOSED.
 *
 * Times are ms since the Unix epoch.
 */
#ifndef MR_STORE_STORE_H
#define MR_STORE_STORE_H

#include "base/arena.h"
#include "base/chan.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

struct mr_store;

enum {
    MR_STORE_BATCH_MAX = 10000,                /* items of a request, rows of a page */
    MR_STORE_REASON_MAX = MR_TIMER_REASON_MAX, /* bytes kept of a reason; cut there */
    MR_STORE_TARGET_MAX = 65536,               /* bytes of a target */
    MR_STORE_OWNER_MAX = 256,                  /* bytes of the owner of a lease */
    MR_STORE_APPS_MAX = 65536,                 /* bytes of the apps of a server */
    MR_STORE_SLOTS = 64,                       /* of an app; see mr_store_slot */
    MR_STORE_TABLE_MAX = 65536,                /* bytes of a table of subApps, and of a wish */
    MR_STORE_MOVES_KEPT = 100,                 /* of subApps, the newest */
    MR_STORE_AWAY_MS = 10 * 1000               /* default of away_ms */
};

/* No planned time: the same as MR_NEVER_MS of time rules. */
#define MR_STORE_NEVER_MS INT64_MAX

/* A definition has to fit beside a payload of the biggest size. */
#define MR_STORE_DEFINITION_MAX (MR_PAYLOAD_HARD_MAX + 1024 * 1024)

enum mr_store_op {
    MR_STORE_TIMERS_APPLY,
    MR_STORE_TIMER_GET,
    MR_STORE_TIMER_LIST,
    MR_STORE_DUE,
    MR_STORE_FIRE,
    MR_STORE_FIRING_SET,
    MR_STORE_FIRING_GET,
    MR_STORE_FIRING_LIST,
    MR_STORE_FIRING_OPEN,
    MR_STORE_LEASE,
    MR_STORE_LEASE_LIST,
    MR_STORE_SERVER_BEAT,
    MR_STORE_SERVER_LIST,
    MR_STORE_APP_LIST,
    MR_STORE_SUBAPPS_SET,
    MR_STORE_SUBAPPS_LIST,
    MR_STORE_MOVES_LIST,
    MR_STORE_RETAIN,
    MR_STORE_STATS,
    /* Jobs: store/jobs.h. */
    MR_STORE_JOB_BEGIN,
    MR_STORE_PARTS_ADD,
    MR_STORE_JOB_COMMIT,
    MR_STORE_JOB_ABORT,
    MR_STORE_JOB_CANCEL,
    MR_STORE_JOB_RETRY,
    MR_STORE_JOB_END,
    MR_STORE_JOB_GET,
    MR_STORE_JOB_LIST,
    MR_STORE_JOB_LIVE,
    MR_STORE_JOB_QUEUES,
    MR_STORE_JOB_EVENTS,
    MR_STORE_PARTS_LIST,
    MR_STORE_PARTS_READ,
    MR_STORE_READY_READ,
    MR_STORE_JOB_ADVANCE,
    MR_STORE_PARTS_AGAIN,
    MR_STORE_PARTS_END,
    MR_STORE_RESULT_ADD,
    MR_STORE_RESULT_READ,
    MR_STORE_SEGMENTS,
    MR_STORE_SEGMENT_RETAIN,
    MR_STORE_JOB_RETAIN,
    MR_STORE_OP_COUNT
};

/* Head of every request. Zero it, then set op and done. */
struct mr_store_req {
    struct mr_msg msg; /* for the way to the store's thread */
    enum mr_store_op op;
    enum mr_err err;                        /* of the request as a whole */
    void (*done)(struct mr_store_req *req); /* store's thread; the request is the caller's again */
    void *arg;                              /* the caller's */
    struct mr_arena arena;                  /* holds the answer */
    struct mr_link link;                    /* the store's, while it has the request */
    mr_mono submitted;                      /* the store's */
};

/* Frees the answer; not the request itself. */
void mr_store_req_done(struct mr_store_req *req);

/* ---- slots ---------------------------------------------------------------------------------- */

/*
 * An app is cut by slots, and what is asked about some of them has a mask, a bit each; 0 means all. The slot of a timer, and of
 * all its firings, is the last six bits of its uid, which are random: so it needs no column. Never changes.
 */
static inline uint32_t mr_store_slot(const struct mr_uuid *uid)
{
    return uid->bytes[sizeof uid->bytes - 1] % MR_STORE_SLOTS;
}

/* ---- timers --------------------------------------------------------------------------------- */

enum mr_row_state {
    MR_ROW_NONE, /* no such timer */
    MR_ROW_ACTIVE,
    MR_ROW_PAUSED,
    MR_ROW_FINISHED,
    MR_ROW_DELETED, /* a tombstone: keeps older operations from bringing it back */
    MR_ROW_ABSENT,  /* a tombstone that a delete left where there was none */
    MR_ROW_STATE_COUNT
};

#define MR_ROW_BIT(state) (1u << (state))
/* What people see. */
#define MR_ROW_LIVE                                                                                \
    (MR_ROW_BIT(MR_ROW_ACTIVE) | MR_ROW_BIT(MR_ROW_PAUSED) | MR_ROW_BIT(MR_ROW_FINISHED))

/* A timer as it stands; (app, name) is its key, and no two live ones have the same uid. */
struct mr_store_timer {
    struct mr_slice app, name;
    struct mr_uuid uid;
    uint64_t version;
    enum mr_row_state state;
    struct mr_slice definition; /* empty of tombstones */
    int64_t next_ms;            /* MR_STORE_NEVER_MS: none */
    uint64_t fired;             /* firings counted since the timer is there */
    int64_t last_ms;            /* planned time of the last of them; 0: none */
    int64_t created_ms;
    uint64_t changed; /* rises within its app with everything that is applied; see DUE */
};

enum mr_apply_verb { MR_APPLY_PUT, MR_APPLY_DELETE };

/* if_version: only when there is no such timer, or only a tombstone. */
#define MR_STORE_IF_NONE UINT64_MAX

struct mr_store_apply {
    struct mr_slice app, name;
    struct mr_uuid uid;  /* of a put */
    uint64_t version;    /* from 1 */
    uint64_t if_version; /* only when this version is there; 0: whatever is there */
    enum mr_apply_verb verb;
    /* Of a put: */
    enum mr_row_state state; /* active, paused or finished */
    struct mr_slice definition;
    int64_t next_ms;
    int64_t created_ms; /* of a new timer */
    /* As long as this version of the same uid is there: its next_ms stays, and so does its being finished unless
     * this one is paused; firings may have moved it since it was looked at. 0: never. */
    uint64_t keeps_of;
};

struct mr_store_applied {
    enum mr_err err;
    enum mr_row_state state; /* as it stands now, whatever err says */
    uint64_t version;        /* 0: there is none */
    struct mr_uuid uid;
};

/*
 * Brings timers to the versions given, in the order of the items. Per item:
 *   MR_OK         it is so now, or was already
 *   MR_STALE      a newer version is there: nothing was done, and nothing is missing
 *   MR_CONFLICT   if_version says otherwise, or another timer has this uid, when the request comes or
 *                 by an item before: nothing was done
 *   MR_NOT_FOUND  a delete of what is not there: noted, so that no older operation makes it
 *   MR_INVALID, MR_TOO_BIG
 * The highest version wins in whatever order they come; of the same version a delete, else the
 * greater uid. A put with another uid than the one there is a new timer of that name: it has fired
 * nothing yet. With the same uid it keeps fired, last_ms and created_ms, also over a delete.
 */
struct mr_store_timers_apply {
    struct mr_store_req req;
    const struct mr_store_apply *items;
    size_t n;
    struct mr_store_applied *results; /* n entries, the caller's memory */
};

/* By app and name, or, without a name, by uid (no tombstones then). */
struct mr_store_timer_key {
    struct mr_slice app, name;
    struct mr_uuid uid;
};

struct mr_store_timer_get {
    struct mr_store_req req;
    const struct mr_store_timer_key *keys;
    size_t n;
    struct mr_store_timer *timers; /* answer: n entries; state MR_ROW_NONE where there is none */
};

/* By app and name. A request looks at no more than some thousands of timers, so that those that are rare do not keep
 * everybody else waiting: then its page is short, or empty, and there may be more behind it. */
struct mr_store_timer_list {
    struct mr_store_req req;
    struct mr_slice app;                   /* empty: of all */
    struct mr_slice prefix;                /* of the names */
    unsigned states;                       /* MR_ROW_BITs; 0: MR_ROW_LIVE */
    struct mr_slice after_app, after_name; /* behind this one; empty: from the first on */
    size_t max;
    struct mr_store_timer *timers; /* answer */
    size_t n;
    bool
        more; /* answer: there are some behind the place, or may be; also when big ones have filled the page */
    struct mr_slice place_app,
        place_name; /* answer, with more: where to go on, for after_app and after_name */
};

/*
 * Active timers of an app with next_ms <= until_ms, by (next_ms, uid).
 *
 * `changed` of the answer is a number for `since`: what was applied to the app later than that answer
 * has a higher one, whichever server applied it. With since, only timers to which something was
 * applied after it.
 */
struct mr_store_due {
    struct mr_store_req req;
    struct mr_slice app;
    uint64_t slots; /* only of these; 0: of all */
    int64_t until_ms;
    uint64_t since;   /* 0: all of them */
    int64_t after_ms; /* behind (after_ms, after_uid); both zero: from the first on */
    struct mr_uuid after_uid;
    size_t max;
    struct mr_store_timer *timers; /* answer */
    size_t n;
    bool more;
    uint64_t changed;
    int64_t now_ms; /* answer: the store's clock */
};

/* ---- the ledger ----------------------------------------------------------------------------- */

enum mr_ledger_state {
    MR_LEDGER_NONE,
    MR_LEDGER_WAITING, /* for its dispatch */
    MR_LEDGER_DISPATCHED,
    MR_LEDGER_RUNNING,
    MR_LEDGER_FAILED,
    MR_LEDGER_SUCCEEDED,
    MR_LEDGER_CANCELLED,
    MR_LEDGER_STOPPED,
    MR_LEDGER_SKIPPED,
    MR_LEDGER_MISFIRED,
    MR_LEDGER_STATE_COUNT
};

#define MR_LEDGER_BIT(state) (1u << (state))
#define MR_LEDGER_OPEN                                                                             \
    (MR_LEDGER_BIT(MR_LEDGER_WAITING) | MR_LEDGER_BIT(MR_LEDGER_DISPATCHED) |                      \
     MR_LEDGER_BIT(MR_LEDGER_RUNNING))

static inline bool mr_ledger_is_open(enum mr_ledger_state state)
{
    return (MR_LEDGER_BIT(state) & MR_LEDGER_OPEN) != 0;
}

enum mr_ledger_kind { MR_LEDGER_PLANNED, MR_LEDGER_MANUAL, MR_LEDGER_CAUGHT_UP };

/* One row per planned time: (uid, planned_ms) is its key. */
struct mr_store_firing {
    struct mr_slice app, name;
    struct mr_uuid uid;
    int64_t planned_ms;
    int64_t until_ms; /* the last planned time that the row stands for; 0: just planned_ms */
    uint32_t run;     /* from 0, rises with each time it is run again */
    enum mr_ledger_kind kind;
    enum mr_ledger_state state;
    struct mr_slice reason;
    struct mr_slice target; /* where its task goes, as the caller has said with the row */
    uint32_t attempt;
    int64_t fired_ms, started_ms, finished_ms; /* 0: not yet */
    struct mr_slice
        home; /* which broker its task is in, where servers have their own; empty: no matter */
};

/* Who writes must hold this lease now, by the store's clock; empty: no matter. Else the request as a
 * whole is answered with MR_STALE, and nothing was done. What is written without one is news to the holder: its
 * timers count as changed (DUE). */
struct mr_store_fence {
    struct mr_slice lease;
    uint64_t token;
};

/* A move may be for a timer that has open rows in the ledger, or for one that has none, as the item leaves it. Not with a row to
 * fire. */
enum mr_store_when { MR_STORE_ALWAYS, MR_STORE_WHILE_OPEN, MR_STORE_WHEN_NONE_OPEN };

/* Moves a timer on, where it is still active, its version is this one and its next_ms is from_ms. One that
 * finishes may have no next time before and after. */
struct mr_store_move {
    bool moves; /* false: there is none */
    enum mr_store_when when;
    uint64_t version;
    int64_t from_ms, to_ms;  /* MR_STORE_NEVER_MS: none */
    enum mr_row_state state; /* active or finished; MR_ROW_NONE: active */
    uint32_t counts;         /* is added to fired */
    int64_t last_ms;         /* 0: stays */
};

struct mr_store_fire {
    struct mr_uuid uid;
    /* The ledger row. state MR_LEDGER_NONE: none, the timer is only moved. */
    int64_t planned_ms, until_ms;
    uint32_t run;
    enum mr_ledger_kind kind;
    enum mr_ledger_state state;
    struct mr_slice reason;
    struct mr_slice target;        /* to MR_STORE_TARGET_MAX; no NUL */
    struct mr_slice home;          /* whose it is to make a task of it; empty: the owner's */
    int64_t fired_ms, finished_ms; /* finished_ms of a state that is an end; 0: fired_ms */
    /* Only while fewer runs of the timer than this are open, but for those that wait with a reason; 0: no matter. */
    uint32_t limit;
    /* Without a move: the timer needs to be there, in whichever state, and no more. */
    struct mr_store_move move;
};

struct mr_store_fired {
    enum mr_err err;
    bool existed; /* the row was there already; state and run are what it has */
    enum mr_ledger_state state;
    uint32_t run;
};

/*
 * In one step, per item and in their order: a row of the ledger, and the timer moves on. Per item:
 *   MR_OK         the row is there, by this request or by an earlier one (existed); what its timer
 *                 still needs of the move has been done
 *   MR_STALE      it is not there, and the timer is not as the move says (any more): nothing was done
 *   MR_RUNNING    it is not there, and as many runs as its limit are open: nothing was done
 *   MR_WRONG_STATE the move is for another time, when runs are open or none is: nothing was done
 *   MR_NOT_FOUND  no such timer (any more): nothing was done
 *   MR_INVALID
 */
struct mr_store_fire_batch {
    struct mr_store_req req;
    struct mr_store_fence fence;
    struct mr_slice app; /* of the timers; those of others are not found */
    const struct mr_store_fire *items;
    size_t n;
    struct mr_store_fired *results; /* n entries, the caller's memory */
};

struct mr_store_set {
    struct mr_uuid uid;
    int64_t planned_ms;
    uint32_t run;
    bool again;    /* the run before this one ended in a state of `from`; this one begins in `to` */
    unsigned from; /* MR_LEDGER_BITs */
    enum mr_ledger_state to;
    struct mr_slice reason;          /* replaces, also when empty */
    struct mr_slice target;          /* of `again`: replaces; else the row keeps what it has */
    struct mr_slice home;            /* replaces where it is not empty, and with `again` */
    uint32_t attempt;                /* 0: stays */
    int64_t started_ms, finished_ms; /* 0: stays; of `again`: both are what is given */
    struct mr_store_move move;       /* of its timer, as well; see moved */
};

struct mr_store_set_result {
    enum mr_err err;
    enum mr_ledger_state state; /* as it stands now, whatever err says */
    uint32_t run;
    bool moved; /* the move was done */
};

/*
 * Changes rows of the ledger. Per item:
 *   MR_OK           it has this state now, or had it already (then nothing else is changed, unless
 *                   `from` says so)
 *   MR_WRONG_STATE  it is in a state that is not in `from`, or another one has brought it there: its home is not this one
 *   MR_STALE        another run is on
 *   MR_CONFLICT     the timer stands where the move begins, but has another version: nothing was done. A move that
 *                   fails otherwise is left out (moved)
 *   MR_NOT_FOUND    no such row
 *   MR_INVALID
 */
struct mr_store_firing_set {
    struct mr_store_req req;
    struct mr_store_fence fence;
    struct mr_slice app; /* of the timers; rows of others are not found */
    const struct mr_store_set *items;
    size_t n;
    struct mr_store_set_result *results; /* n entries, the caller's memory */
};

struct mr_store_firing_key {
    struct mr_uuid uid;
    int64_t planned_ms;
};

struct mr_store_firing_get {
    struct mr_store_req req;
    const struct mr_store_firing_key *keys;
    size_t n;
    struct mr_store_firing
        *firings; /* answer: n entries; state MR_LEDGER_NONE where there is none */
};

/* Of one timer, newest first. */
struct mr_store_firing_list {
    struct mr_store_req req;
    struct mr_uuid uid;
    unsigned states;   /* MR_LEDGER_BITs; 0: all */
    int64_t before_ms; /* planned before; 0: from the newest on */
    size_t max;
    struct mr_store_firing *firings; /* answer */
    size_t n;
    bool more;
};

/* Those of an app that have not ended, by (planned_ms, uid). */
struct mr_store_firing_open {
    struct mr_store_req req;
    struct mr_slice app;
    struct mr_uuid uid;   /* only of this timer; zero: of all */
    uint64_t slots;       /* only of these; 0: of all */
    struct mr_slice home; /* only those whose home it is; empty: of all */
    int64_t after_ms;     /* behind (after_ms, after_uid); both zero: from the first on */
    struct mr_uuid after_uid;
    size_t max;
    struct mr_store_firing *firings; /* answer */
    size_t n;
    bool more;
};

/* ---- leases --------------------------------------------------------------------------------- */

enum mr_lease_verb {
    MR_LEASE_ACQUIRE, /* or renew what is held; MR_IN_USE: another one holds it */
    MR_LEASE_RENEW,   /* MR_STALE: it is over, or was never held */
    MR_LEASE_RELEASE, /* MR_STALE likewise */
    MR_LEASE_RESUME, /* renew, also when it has run out or was released: nobody has had it since. MR_STALE: somebody has */
};

struct mr_store_lease_item {
    enum mr_lease_verb verb;
    struct mr_slice name;  /* such as "app:NAME" */
    struct mr_slice owner; /* an incarnation: never used by anybody else */
    uint64_t token;        /* of all but acquire */
    int64_t ttl_ms;        /* of all but release: from now on, by the store's clock */
};

struct mr_store_lease_result {
    enum mr_err err;
    uint64_t token;   /* of MR_OK; it rises with each change of owner and each time it ran out */
    int64_t until_ms; /* by the store's clock */
    char owner[MR_STORE_OWNER_MAX + 1]; /* who holds it; empty: nobody */
};

/* MR_INVALID per item, too. */
struct mr_store_lease {
    struct mr_store_req req;
    const struct mr_store_lease_item *items;
    size_t n;
    struct mr_store_lease_result *results; /* n entries, the caller's memory */
    int64_t now_ms;                        /* answer: the store's clock */
};

struct mr_store_lease_row {
    struct mr_slice name, owner; /* nobody holds it when until_ms <= now_ms */
    uint64_t token;
    int64_t until_ms;
};

/* By name. */
struct mr_store_lease_list {
    struct mr_store_req req;
    struct mr_slice prefix, after;
    size_t max;
    struct mr_store_lease_row *leases; /* answer */
    size_t n;
    bool more;
    int64_t now_ms; /* answer: the store's clock */
};

/* ---- servers -------------------------------------------------------------------------------- */

/* A server is there from now on, for so long by the store's clock, or it goes. */
struct mr_store_server_beat {
    struct mr_store_req req;
    struct mr_slice server; /* an incarnation, the owner of its leases */
    struct mr_slice apps;   /* that it fires, a line each; empty: all */
    struct mr_slice home;   /* of its broker, in all its lives; empty: it has none of its own */
    int64_t ttl_ms;         /* 0: it goes */
};

struct mr_store_server_row {
    struct mr_slice server, apps, home;
};

/* Those that are there, by name. */
struct mr_store_server_list {
    struct mr_store_req req;
    size_t max;
    struct mr_store_server_row *servers; /* answer */
    size_t n;
    bool more; /* answer: there are some behind the last */
};

/* ---- the rest ------------------------------------------------------------------------------- */

/* The lease of an app: this and its name. */
#define MR_APP_LEASE_PREFIX "app:"

struct mr_store_app_row {
    struct mr_slice name;
    struct mr_slice owner; /* who holds its lease; empty: nobody */
};

/* Apps that have, or had, timers or an owner, by name. */
struct mr_store_app_list {
    struct mr_store_req req;
    struct mr_slice after;
    size_t max;
    struct mr_store_app_row *apps; /* answer */
    size_t n;
    bool more;
};

/* ---- subApps -------------------------------------------------------------------------------- */

/* The lease of a subApp: this, the name of its app, a slash and its id. Its token is the epoch of the subApp. */
#define MR_SUBAPP_LEASE_PREFIX "sub:"
/* Who holds the lease of an app that is cut, for good: so nobody else takes the app as a whole. */
#define MR_SUBAPPS_OWNER "(subApps)"

/* A lease that goes to an owner, whoever holds it. */
struct mr_store_subapp_lease {
    struct mr_slice name;
    struct mr_slice owner; /* empty: nobody's */
    uint64_t token;        /* higher than it had; 0: one more than it had */
    int64_t ttl_ms;        /* with an owner */
};

struct mr_store_subapp_move {
    uint64_t number; /* answer of a list: rises */
    int64_t at_ms;   /* likewise, by the store's clock */
    struct mr_slice app;
    uint32_t part;
    struct mr_slice from, to; /* servers; empty: nobody */
    struct mr_slice reason;
};

/*
 * The table of an app's subApps, which are bytes to the store, and a wish for the next one beside it: replaced as a whole, if the
 * version is the one that was read. With it, in one step, leases get new owners and moves are noted. MR_CONFLICT: another
 * version is there; MR_STALE: a lease has a higher token: nothing was done.
 */
struct mr_store_subapps_set {
    struct mr_store_req req;
    struct mr_slice app;
    uint64_t version; /* that is there; 0: none */
    struct mr_slice table;
    struct mr_slice wish; /* empty: none */
    const struct mr_store_subapp_lease *leases;
    size_t leases_n;
    const struct mr_store_subapp_move *moves;
    size_t moves_n;
};

struct mr_store_subapps_row {
    struct mr_slice app;
    uint64_t version;
    struct mr_slice table, wish;
    int64_t wish_ms; /* so old is the wish, by the store's clock */
};

/* By app. */
struct mr_store_subapps_list {
    struct mr_store_req req;
    struct mr_slice after;
    size_t max;
    struct mr_store_subapps_row *rows; /* answer */
    size_t n;
    bool more;
};

/* The newest first, at most MR_STORE_MOVES_KEPT. */
struct mr_store_moves_list {
    struct mr_store_req req;
    struct mr_store_subapp_move *moves; /* answer */
    size_t n;
};

/* Removes what is older, by the store's clock: firings since they ended, tombstones since they were
 * made (not before a day has passed); leases and apps without anything stay.
 * Servers that are gone are removed by those that are there. */
struct mr_store_retain {
    struct mr_store_req req;
    int64_t firings_ms;         /* 0: none */
    int64_t tombstones_ms;      /* 0: none; at least a day */
    size_t max;                 /* rows of each kind */
    size_t firings, tombstones; /* answer: so many were removed */
};

struct mr_store_stats {
    struct mr_store_req req;
    /* All of it is the answer. */
    uint64_t timers[MR_ROW_STATE_COUNT];
    uint64_t firings[MR_LEDGER_STATE_COUNT]; /* of those that have not ended */
    uint64_t apps, leases;
    uint32_t schema;
    uint64_t bytes;  /* that the store takes up */
    char engine[64]; /* "sqlite 3.40.1", "postgresql 15.18" */
    int64_t now_ms;  /* the store's clock */
};

/* What this process has done since it was opened. Thread: any. */
struct mr_store_counts {
    uint64_t requests;     /* answered */
    uint64_t transactions; /* committed */
    uint64_t repeats;      /* of transactions, after a passing failure */
    uint64_t connects;     /* the first one included */
};

/* ---- opening and submitting ----------------------------------------------------------------- */

struct mr_store_options {
    /* "sqlite:PATH", "postgres://…" or "postgresql://…". */
    const char *url;
    struct mr_clock *clock; /* NULL: the machine's. SQLite's leases go by it */
    int64_t away_ms;        /* 0: MR_STORE_AWAY_MS */
    /* Called when the store has stopped, once, on its thread: MR_IO or MR_DAMAGED. May be NULL. */
    void (*stopped)(enum mr_err err, const char *text, void *arg);
    void *arg;
};

/*
 * Opens it, makes it when it is missing, and brings its schema up to date. MR_VERSION: a newer
 * Millrace has written it. MR_NOT_A_STORE: it is something else. MR_IN_USE: another process has it,
 * and it cannot be shared. MR_UNAVAILABLE: out of reach.
 */
MR_MUST_USE enum mr_err mr_store_open(const struct mr_store_options *options,
                                      struct mr_store **ret_store, struct mr_detail *detail);
/* Carries out what has been submitted, as far as that is possible now, then frees it. NULL is fine. */
void mr_store_close(struct mr_store *store);

/* Thread: any. */
void mr_store_submit(struct mr_store *store, struct mr_store_req *req);
/* Submits and waits; answers req->err. Not from the store's thread. */
MR_MUST_USE enum mr_err mr_store_call(struct mr_store *store, struct mr_store_req *req);
void mr_store_counts(struct mr_store *store, struct mr_store_counts *ret_counts);
/* What is wrong with it now: MR_OK, MR_UNAVAILABLE, MR_DISK_FULL, MR_IO or MR_DAMAGED, with a line for
 * people. Thread: any. */
MR_MUST_USE enum mr_err mr_store_problem(struct mr_store *store, struct mr_detail *ret_line);

#define MR_STORE_FILE "store.db" /* of a server or a client, in its folder */
/*
 * A copy of the store as of one moment, as MR_STORE_FILE in the folder; it may be in use, by this process too.
 * MR_UNSUPPORTED: only SQLite's; MR_NOT_FOUND: there is none; MR_CONFLICT: something is there. May take long. Thread: any.
 */
MR_MUST_USE enum mr_err mr_store_copy(const char *url, const char *dir, struct mr_detail *detail);

#endif
