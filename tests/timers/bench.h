/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bench for schedulers: a broker in a folder, a store, any number of schedulers on both (servers, as far as timers
 * are concerned), and a worker that notes each run. Timers are put into the store as an applier would.
 *
 * bench_check is the oracle of all tests that fire: never twice, none missing.
 */
#ifndef MR_TESTS_TIMERS_BENCH_H
#define MR_TESTS_TIMERS_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/broker.h"
#include "store/store.h"
#include "timer/def.h"
#include "timer/scheduler.h"

enum {
    BENCH_WAIT_MS = 20000, /* a condition that has not come by then never will */
    BENCH_SERVERS_MAX = 3,
    BENCH_DIR_MAX = 96,
};

/* ---- clocks ---------------------------------------------------------------------------------- */

/* The machine's, until it is stopped; then it goes as the test says. Both go on at once, as no two of the machine's are
 * seen to: what is added to both is one number. */
struct bench_clock {
    struct mr_clock clock;
    bool stopped;
    _Atomic int64_t on_us, wall_us; /* added to both; to the wall clock alone */
    _Atomic int64_t leap_us;        /* both go on by so much right after a look at the wall clock */
    _Atomic int leap_after;         /* ... that comes after so many more */
};

/* ---- what has run ---------------------------------------------------------------------------- */

struct bench_run {
    char id[MR_FIRING_ID_MAX + 1];
    char payload[64];
    uint32_t attempt;
    int64_t begin_us, end_us; /* of the wall; end_us 0: it runs */
    bool stopped;             /* it was told to */
};

struct bench;

struct bench_server {
    struct bench *bench;
    struct mr_scheduler *scheduler; /* NULL: it is not there */
    struct mr_broker *broker;       /* of its own; else NULL */
    struct mr_worker *worker;       /* on that */
};

struct bench {
    char dir[BENCH_DIR_MAX];
    struct redis_rig *redis; /* of a bench for processes; else NULL */
    struct postgres_rig *postgres;
    char store_url[512], database[32];
    struct bench_clock clock;
    struct mr_broker *broker;
    struct mr_store *store;
    struct mr_zones *zones;
    struct mr_timer_settings settings; /* of servers that are started from now on */
    struct bench_server servers[BENCH_SERVERS_MAX];
    struct mr_worker *worker; /* NULL: nobody works */
    bool homes;               /* servers that are started from now on have brokers of their own */
    bool idle;                /* ... and no workers on them */
    /* ... and their schedulers this one before it, for which it is good until they are gone. NULL: nothing. */
    struct mr_broker *(*before)(struct mr_broker *broker);
    char app[32]; /* of timers that are named from now on; empty: the default */
    uint64_t version;
    struct mr_lock lock; /* over what follows */
    struct bench_run *runs;
    size_t runs_n, runs_cap;
    /* Of workers that are processes: adds what they have run since the last look (bench_note). NULL: the worker is here. */
    void (*look)(struct bench *bench, void *arg);
    void *look_arg;
    bool
        repeats; /* what a server that is gone had handed out may run again elsewhere; one end of it counts */
    struct bench_run *by_id; /* a copy of the first so many, sorted, for the oracle */
    size_t by_id_n;
    _Atomic int64_t
        stall_ms; /* with the next alarm the clocks go on by so much, while its server stands still */
    _Atomic size_t alarms[MR_ALARM_KIND_COUNT];
    char alarm_reason[256];
};

/* A broker, a store and one server; and a worker with so many slots, 0: none. With a stopped clock it begins at
 * start_ms. */
struct bench *bench_new(uint32_t slots);
struct bench *bench_new_at(int64_t start_ms);
/* On a Redis and a PostgreSQL, with a worker and without servers: those are processes, see servers.c. */
struct bench *bench_new_shared(uint32_t slots);
/* On a PostgreSQL alone: servers are processes with brokers of their own, and so are workers; see names/rig.h. */
struct bench *bench_new_on_store(void);
/* Somebody has run this. */
void bench_note(struct bench *bench, const struct mr_task *task);
void bench_shared_end(void); /* the PostgreSQL that they share goes */
void bench_free(struct bench *bench);
struct bench_server *bench_serve(struct bench *bench, size_t i); /* starts it */
void bench_unserve(struct bench *bench, size_t i);               /* it stops in order */
void bench_work_at(struct bench *bench, size_t i); /* a worker on a server's own broker */
void bench_work(struct bench *bench, uint32_t slots);
void bench_unwork(struct bench *bench);
/* Another worker beside it, with a name. */
struct mr_worker *bench_hire(struct bench *bench, const char *node);

int64_t bench_now_ms(const struct bench *bench);
/* The stopped clock goes on to this time, and servers are told. */
void bench_go_to(struct bench *bench, int64_t wall_ms);
/* Between a look at the wall clock, after so many others, and what is done next, so much time goes by. */
void bench_leap(struct bench *bench, int64_t by_ms, int looks);
/* The wall clock alone is set. */
void bench_set_wall(struct bench *bench, int64_t by_ms);
/* All that was due, was changed and had come to the servers by now is dealt with. */
void bench_settle(struct bench *bench);

/* Waits for a condition, up to BENCH_WAIT_MS. */
#define BENCH_UNTIL(condition)                                                                     \
    do {                                                                                           \
        mr_mono since_ = mr_mono_now(mr_clock_system());                                           \
        while (!(condition))                                                                       \
            bench_wait_a_moment(since_, #condition, __FILE__, __LINE__);                           \
    } while (0)
void bench_wait_a_moment(mr_mono since, const char *what, const char *file, int line);
/* So long by the machine's clock, where nothing can be waited for: that nothing happens. */
void bench_sleep_ms(int64_t ms);

/* ---- timers ---------------------------------------------------------------------------------- */

/* A timer of the bench's app; a literal may say more. */
#define BENCH_TIMER(name_, kind_, expression_, ...)                                                \
    (&(struct mr_timer_options){.name = mr_slice_str(name_),                                       \
                                .kind = (kind_),                                                   \
                                .expression = mr_slice_str(expression_),                           \
                                ##__VA_ARGS__})

/* Made now, or changed when there is one of its name. Answers when it is in the store. */
void bench_put(struct bench *bench, const struct mr_timer_options *options);
/* Many of them at once: name is a format for the number. All are made at the same moment. */
void bench_put_many(struct bench *bench, const struct mr_timer_options *options, const char *name,
                    size_t n);
/* One-shots t-0, t-1 ... spread evenly over the time from first_ms on. */
void bench_put_spread(struct bench *bench, size_t n, int64_t first_ms, int64_t span_ms);
void bench_delete(struct bench *bench, const char *name);
void bench_pause(struct bench *bench, const char *name);
/* Copies what the store has; false: there is none. */
struct bench_timer {
    struct mr_uuid uid;
    uint64_t version, fired;
    enum mr_row_state state;
    int64_t next_ms, last_ms, created_ms;
};
bool bench_timer(struct bench *bench, const char *name, struct bench_timer *ret_timer);
/* All that is planned for the timer up to to_ms has its row. */
bool bench_caught_up(struct bench *bench, const char *name, int64_t to_ms);
enum mr_err bench_act(struct bench *bench, enum mr_timer_verb verb, const char *name,
                      int64_t planned_ms);

/* The next firing has its row and no task, as a server leaves it that dies between the two. */
void bench_leave_waiting(struct bench *bench, const char *name);
/* Takes the task of the first firing out of the broker's hands as a Go worker would: it leaves no result. */
void bench_lose_task(struct bench *bench, const char *name);

/* ---- whose the apps are ----------------------------------------------------------------------- */

enum { BENCH_APPS_MAX = 64 };

/* By name; who holds each of them now. */
struct bench_owners {
    size_t apps, nobodys, servers; /* nobodys: apps; servers: that have any */
    char names[BENCH_APPS_MAX][MR_STORE_OWNER_MAX + 1];
};
void bench_owners(struct bench *bench, struct bench_owners *ret_owners);
/* Each app has an owner, and so many servers have so many of them each. */
bool bench_is_shared(struct bench *bench, size_t servers, size_t each);
/* Apps whose owner is another one now. */
size_t bench_moved(struct bench *bench, const struct bench_owners *since);

/* ---- the ledger ------------------------------------------------------------------------------ */

struct bench_row {
    int64_t planned_ms, until_ms, fired_ms, started_ms, finished_ms;
    uint32_t run, attempt;
    enum mr_ledger_kind kind;
    enum mr_ledger_state state;
    char reason[128];
};

/* Of a timer, oldest first; free it. */
struct bench_row *bench_rows(struct bench *bench, const char *name, size_t *ret_n);
size_t bench_count(struct bench *bench, const char *name,
                   unsigned states); /* MR_LEDGER_BITs; 0: all */
struct bench_row bench_row(struct bench *bench, const char *name, size_t i);
void bench_figures(struct bench *bench, struct mr_scheduler_figures *ret_figures); /* of all */
size_t bench_runs(struct bench *bench);
struct bench_run bench_run(struct bench *bench, size_t i);
/* In microseconds: from planned to the begin of the run; of all runs so far. */
uint64_t bench_lateness_us(struct bench *bench, unsigned percent);

/*
 * The oracle. Of every planned time of the timer since it was made, up to to_ms: it is in one row, and in no other; what
 * became a task ran, once for each attempt; what was skipped or is a misfire did not. Fails the test otherwise.
 */
void bench_check(struct bench *bench, const char *name, int64_t to_ms);
/* Of the timers t-0, t-1, ...: waits until they have come to to_ms, pauses them and looks at each. */
void bench_check_all(struct bench *bench, size_t timers, int64_t to_ms);

int timers_timing(void);
int timers_sharing(void);
int timers_subapps(void);
int timers_running(void);
int timers_strategies(void);
int timers_changes(void);
int timers_servers(void);
int timers_health(void);

#endif
