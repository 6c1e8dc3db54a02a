/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the applier: apply.c is a node of the hidden queue and takes batches from it, apply_batch.c carries
 * them out and ends them, apply_put.c decides what becomes of a timer.
 */
#ifndef MR_TIMER_APPLY_INTERNAL_H
#define MR_TIMER_APPLY_INTERNAL_H

#include "broker/broker.h"
#include "store/store.h"
#include "timer/apply.h"
#include "timer/def.h"

/* What is known of an operation's end. */
enum fate {
    FATE_OPEN,  /* nothing yet */
    FATE_DONE,  /* result says what became of it */
    FATE_AGAIN, /* the store did not take it: err, text */
    FATE_NEVER, /* invalid: err, text */
    FATE_BACK, /* it goes back as if it had not been taken: the store as a whole is away, or memory is */
};

struct item {
    struct mr_lease *lease;
    struct mr_timer_operation op;    /* slices in the lease or the arena */
    struct mr_timer_options options; /* MR_TIMER_PUT: in its canonical form */
    enum fate fate;
    enum mr_err err;
    struct mr_slice text;
    struct mr_timer_result result;
};

struct batch {
    struct mr_arena arena;
    size_t n;
    struct item items[MR_BATCH_MAX];
    /* Those of one transaction. */
    size_t puts_n;
    size_t put_of[MR_BATCH_MAX]; /* which item each is */
    struct mr_store_apply applies[MR_BATCH_MAX];
    struct mr_store_applied applied[MR_BATCH_MAX];
    struct mr_store_timer_key keys[MR_BATCH_MAX];
    struct mr_firing_act acts[MR_BATCH_MAX];
    struct mr_finish finishes[MR_BATCH_MAX];
    enum mr_err errs[MR_BATCH_MAX];
};

struct mr_applier {
    struct mr_applier_options options;
    struct mr_clock *clock;
    size_t payload_max;
    int64_t ahead_ms;
    int64_t levels_ms[MR_TIMER_LEVELS_MAX];
    size_t levels_n;
    char name[MR_NAME_MAX + 1];
    pthread_t thread;
    struct mr_lock lock; /* over the two that follow; notified when it stops */
    bool stopping;
    bool taking;           /* it waits for operations */
    _Atomic uint64_t node; /* 0: none */
    mr_mono beat_at;
    struct batch *batch;
    _Atomic uint64_t applied, stale, retried, rejected, dead;
};

/* Waits for an answer however long it takes, and beats meanwhile. */
void applier_wait(struct mr_applier *a, struct mr_event *answered);
enum mr_err applier_store_call(struct mr_applier *a, struct mr_store_req *req);
/* Carries out these operations and ends their tasks; the leases are freed. False: some went back, so it is no
 * use to take more at once. */
bool applier_work(struct mr_applier *a, struct mr_lease *leases);

/* Fills in what is applied to the timer: its state and next time, by what the store has of it (NULL: nothing).
 * MR_INVALID: its rule cannot be made (any more), detail says why. */
MR_MUST_USE enum mr_err apply_plan(struct mr_zones *zones, const struct item *item,
                                   const struct mr_store_timer *there, int64_t now_ms,
                                   struct mr_store_apply *apply, struct mr_detail *detail);
/* What would be there afterwards, for the next operation of the same timer in a batch. */
void apply_after(const struct mr_store_apply *apply, struct mr_store_timer *there);

#endif
