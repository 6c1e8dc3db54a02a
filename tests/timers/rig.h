/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The acceptance tests of timers, by their numbers. A test that does not concern processes has all parts in its
 * own: a broker in a folder, a store, the door for operations and the applier; any number of brokers may share
 * one store. Tests wait for conditions up to RIG_WAIT_MS and never for time to pass.
 */
#ifndef MR_TESTS_TIMERS_RIG_H
#define MR_TESTS_TIMERS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/hidden.h"
#include "store/store.h"
#include "timer/apply.h"
#include "timer/def.h"
#include "timer/door.h"

enum { RIG_WAIT_MS = 20000, RIG_BROKERS_MAX = 3, RIG_DIR_MAX = 96 };

/* ---- clocks --------------------------------------------------------------------------------- */

/* The machine's, moved by so much. */
struct rig_clock {
    struct mr_clock clock;
    _Atomic int64_t ahead_us;
};
void rig_clock_init(struct rig_clock *clock);

int64_t rig_now_ms(void); /* of the wall */
mr_mono rig_mono(void);
int64_t rig_elapsed_ms(mr_mono since);
/* Sleeps for a moment between two looks at a condition; fails the test when the time is up. */
void rig_wait_a_moment(mr_mono since, const char *what);
/* MR_ACCEPT=full: the tests as they are written down; else a sample of each. */
bool rig_full(void);
/* MR_ALONE: nothing runs beside this, so what it promises about time is held against it. */
bool rig_alone(void);

/* ---- a broker with its applier -------------------------------------------------------------- */

struct rig;

struct rig_broker {
    struct rig *rig;
    char dir[RIG_DIR_MAX];
    struct mr_broker *broker; /* NULL: closed */
    struct mr_timer_door *door;
    struct mr_applier *applier; /* NULL: nobody applies */
};

struct rig {
    char dir[RIG_DIR_MAX / 2];
    struct rig_clock clock;
    struct mr_store *store;
    int64_t away_ms; /* of the store when it is opened again */
    struct mr_zones *zones;
    struct mr_timer_settings settings; /* of appliers that are started from now on */
    struct rig_broker brokers[RIG_BROKERS_MAX];
    /* What the applier's test hooks do. */
    struct mr_lock lock;          /* over what follows */
    char faulty[MR_NAME_MAX + 1]; /* operations on timers whose names begin so fail ... */
    int64_t faults_left;          /* ... so often; < 0: always */
    size_t attempts_n;            /* at what was faulty, with their times: */
    int64_t attempts_ms[64];
    size_t dead_n; /* told to the hook */
    char dead_reason[512];
    uint32_t dead_attempts;
    size_t changes_n;
    size_t acts_n;
    int64_t acts_ms[8]; /* the planned times of the first ones */
};

/* A store and a broker with an applier. */
struct rig *rig_make(void);
/* The same without an applier. */
struct rig *rig_make_idle(void);
void rig_free(struct rig *rig);
/* The i-th broker, which is opened when it is not. */
struct rig_broker *rig_broker(struct rig *rig, size_t i);
void rig_apply(struct rig_broker *broker);    /* starts its applier */
void rig_no_apply(struct rig_broker *broker); /* stops it */
void rig_close(struct rig_broker *broker);
/* The store is closed and opened again; appliers are stopped. */
void rig_reopen_store(struct rig *rig);

/* ---- operations ----------------------------------------------------------------------------- */

/* A timer of the app "default", by kind and expression; a literal may say more. */
#define RIG_RULE(name_, kind_, expression_, ...)                                                   \
    (&(struct mr_timer_options){.name = mr_slice_str(name_),                                       \
                                .kind = (kind_),                                                   \
                                .expression = mr_slice_str(expression_),                           \
                                __VA_ARGS__})
#define RIG_TIMER(name_, ...) RIG_RULE(name_, MR_TIMER_EVERY, "1h", __VA_ARGS__)

/* An operation with what its producer makes: ids, version. Memory: the operation's own. */
struct rig_op {
    struct mr_timer_operation op;
    char operation[MR_TIMER_ID_MAX + 1], id[MR_TIMER_ID_MAX + 1];
    char name[MR_NAME_MAX + 1];
    struct mr_buf definition;
};
/* A put; id NULL: of a new timer. */
void rig_op_put(struct rig_op *op, const struct mr_timer_options *timer, const char *id,
                uint64_t version);
void rig_op_do(struct rig_op *op, enum mr_timer_verb verb, const char *name, uint64_t version);
void rig_op_done(struct rig_op *op);
uint64_t rig_version(void); /* rises */

/* Sends and waits. */
struct mr_timer_result rig_send(struct rig_broker *broker, const struct mr_timer_operation *op,
                                enum mr_timer_wait wait);
void rig_send_all(struct rig_broker *broker, const struct mr_timer_operation *ops, size_t n,
                  enum mr_timer_wait wait, struct mr_timer_result *ret_results);
/* A put of a new timer, applied; fails the test when it is refused. */
struct mr_timer_result rig_put(struct rig_broker *broker, const struct mr_timer_options *timer);
struct mr_timer_result rig_delete(struct rig_broker *broker, const char *name);
/* Into the hidden queue without the door's checks. Its id is the result's. */
void rig_smuggle(struct rig_broker *broker, struct mr_slice payload, char id[MR_ID_MAX + 1]);

/* ---- looking -------------------------------------------------------------------------------- */

/* As the store has it; the state MR_ROW_NONE when it is not there. Its definition is decoded. */
struct rig_timer {
    struct mr_store_timer row;
    struct mr_timer_options options;
    struct mr_arena arena;
};
void rig_get(struct rig *rig, const char *name, struct rig_timer *ret_timer);
void rig_timer_done(struct rig_timer *timer);
enum mr_row_state rig_state(struct rig *rig, const char *name);
/* How many timers the store shows. */
uint64_t rig_count(struct rig *rig);
/* How many operations are in this state in the hidden queue. */
uint64_t rig_operations(struct rig_broker *broker, enum mr_state state);
void rig_await_count(struct rig *rig, uint64_t n);
void rig_await_operations(struct rig_broker *broker, enum mr_state state, uint64_t n);
/* The end of an operation; its slices live in the arena. */
enum mr_err rig_end(struct rig_broker *broker, const char *id, struct mr_arena *arena,
                    struct mr_task *ret_task);

/* ---- the tests ------------------------------------------------------------------------------ */

int timers_run(const char *theme, struct CMUnitTest *tests, size_t n);
#define TIMERS_RUN(theme, tests) timers_run(theme, tests, sizeof(tests) / sizeof((tests)[0]))

int timers_operations(void);
int timers_recovery(void);
int timers_levels(void);
int timers_producers(void);
int timers_dispatch(void);

#endif
