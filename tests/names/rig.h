/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The acceptance tests of the nameserver, by their numbers, on real processes: up to three nameservers, three servers with a
 * folder each, any number of workers, and one PostgreSQL. Between nameservers there are ways that can be cut. Timers are put into
 * the store as an applier would (timers/bench.h); workers run a shell that notes each run in a file; the result is 1.
 *
 * Each test ends with rig_check: of every timer each planned time has one row and one accepted end, and so has every task; each
 * slot has one owner; and nothing has run twice, unless the test has taken somebody away who had it in hand.
 */
#ifndef MR_TESTS_NAMES_RIG_H
#define MR_TESTS_NAMES_RIG_H

#include "names/client.h"
#include "support/forwarder.h"
#include "support/postgres_rig.h"
#include "support/program.h"
#include "timer/plan_view.h"
#include "timers/bench.h"

enum {
    RIG_NAMESERVERS = 3,
    RIG_SERVERS = 3,
    RIG_WORKERS = 12,
    RIG_LEASE_MS = 2000,
    RIG_LONG_LEASE_MS = 10 * 1000, /* the default: a busy machine is late for shorter ones */
    RIG_PATH_MAX = PROGRAM_TEXT_MAX,
};

/* MR_ACCEPT=full: the tests as they are written down; else a sample of each. */
bool rig_full(void);
/* In full, or with MR_ALONE: nothing runs beside this, so what is promised about time is held against it. */
bool rig_judges_time(void);
/* Between digests: in full the default, 2 s. */
int rig_interval_ms(void);

/* What one nameserver shows. */
struct rig_eye {
    struct rig *rig;
    struct mr_names_client *client;
    size_t servers, workers; /* of the app; lock */
    uint64_t sum;            /* of all that is there: equal views have equal ones; lock */
};

struct rig {
    struct bench *bench;
    size_t nameservers_n;
    uint16_t ports[RIG_NAMESERVERS];
    struct program nameservers[RIG_NAMESERVERS];
    struct forwarder *ways[RIG_NAMESERVERS][RIG_NAMESERVERS]; /* from, to; NULL: straight */
    struct program servers[RIG_SERVERS];
    struct program workers[RIG_WORKERS];
    const char *server_args[8]; /* more, up to a NULL, of servers that are started from now on */
    const char *store_url;      /* of servers that are started from now on; NULL: the bench's */
    int64_t lease_ms;           /* of servers that are started from now on; 0: RIG_LEASE_MS */
    const char *worker_queue;   /* of workers that are started from now on; NULL: default */
    struct mr_lock lock;
    struct mr_rpc *rpc; /* of the eyes */
    struct rig_eye eyes[RIG_NAMESERVERS];
    char runs_path[RIG_PATH_MAX];
    long runs_at;             /* read so far */
    size_t timers_n, tasks_n; /* that are there */
    /* Somebody was killed, or stood still, who may have had a run in hand: up to the next rig_check, one may be repeated. */
    bool repeats;
    size_t repeated; /* so far */
    unsigned round;  /* makes ids of tasks new */
};

/* ---- the processes ---------------------------------------------------------------------------- */

/* So many nameservers, none of which runs yet. cut: their ways can be. */
enum rig_ways { RIG_STRAIGHT, RIG_CUTTABLE };
struct rig *rig_make(size_t nameservers, enum rig_ways ways);
void rig_free(struct rig *rig);
void rig_name(struct rig *rig, size_t i);  /* starts a nameserver, on its port */
void rig_serve(struct rig *rig, size_t i); /* a server, on its folder */
void rig_work(struct rig *rig, size_t i);  /* a worker w0, w1 ... */
void rig_work_at(struct rig *rig, size_t i, size_t nameserver); /* which knows this one alone */
void rig_work_for(struct rig *rig, size_t i, size_t server);    /* which knows this server alone */
/* All nameservers, and so many servers and workers; each is seen by all. */
void rig_start(struct rig *rig, size_t servers, size_t workers);
/* Nothing passes between this nameserver and the others, or it does again. */
void rig_cut(struct rig *rig, size_t nameserver);
void rig_heal(struct rig *rig);
/* The folder of a server that does not run. */
void rig_lose_disk(struct rig *rig, size_t server);
/* A client at one server; and one that knows the nameservers alone. */
struct mr_client *rig_client(struct rig *rig, size_t server);
struct mr_client *rig_names_client(struct rig *rig);

/* ---- looking ---------------------------------------------------------------------------------- */

/* Whether every nameserver that runs shows so many. */
bool rig_is_seen(struct rig *rig, size_t servers, size_t workers);
/* Whether all that run show the same. */
bool rig_is_agreed(struct rig *rig);
size_t rig_eye_workers(struct rig *rig, size_t nameserver);
/* Bytes that have passed between nameservers so far, where their ways can be cut. */
uint64_t rig_passed(struct rig *rig);

/* What the servers say of the queue that all work for: runs that have ended there, and workers that are attached. One that does not run
 * has none. */
uint64_t rig_processed(struct rig *rig, size_t server);
size_t rig_attached(struct rig *rig, size_t server);
/* Servers at which more runs have ended than these. */
void rig_note_processed(struct rig *rig, uint64_t ret_processed[RIG_SERVERS]);
size_t rig_worked_for(struct rig *rig, const uint64_t since[RIG_SERVERS]);

/* How the app is cut. */
struct rig_plan {
    size_t parts, owners, unowned; /* owners: different ones; unowned: parts */
    uint64_t slots;                /* of all parts */
    bool is_disjoint;
    unsigned least, most;                   /* slots of a part */
    size_t moves;                           /* for whichever reason, of those that are kept */
    size_t balance_moves;                   /* for balance */
    int64_t apart_ms;                       /* the least time between two of those */
    char names[64][MR_STORE_OWNER_MAX + 1]; /* of the owner of each part */
    uint64_t slots_of[64];                  /* of each part */
};
struct rig_plan rig_plan(struct rig *rig);
/* All that were moved, and why, to stdout. */
void rig_print_moves(struct rig *rig);
/* Cut into so many, each slot in one of them, each with an owner. */
bool rig_is_cut(struct rig *rig, size_t parts);
/* Runs by this worker so far. */
size_t rig_runs_by(struct rig *rig, size_t worker);

/* ---- the load --------------------------------------------------------------------------------- */

/* So many timers t-0, t-1 ... of this interval, and so many plain tasks, spread over the servers. */
void rig_load(struct rig *rig, size_t timers, const char *every, size_t tasks);
/* Each of the tasks has ended, at one server. */
void rig_await_tasks(struct rig *rig);
/* Waits until all that was planned up to now has its end, looks at all of it, and removes it. */
void rig_check(struct rig *rig);
/* Runs that were one more than their attempt allows, so far. */
size_t rig_repeated(struct rig *rig);
/* All firings up to this time are in the ledger. */
bool rig_fires(struct rig *rig, int64_t to_ms);

int names_run(const char *theme, struct CMUnitTest *tests, size_t n);
#define NAMES_RUN(theme, tests) names_run(theme, tests, sizeof(tests) / sizeof((tests)[0]))

int names_split(void);
int names_registry(void);
int names_deaths(void);
int names_replicas(void);
int names_cut_off(void);
int names_balance(void);
int names_producers(void);
int names_figures(void);
int names_chaos(void);

#endif
