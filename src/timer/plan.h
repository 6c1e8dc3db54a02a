/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of the planned times of a timer that are due: a pure function of its rule, its policy, where it
 * stands and the time. One call is one step, and one step is one row of the ledger; who has written it down
 * asks again from where that leads to.
 *
 * A planned time is a misfire when nobody looked at it within misfire_ms after it was to happen:
 *   skip   all misfires are one row, the gap
 *   once   of all that is due only the last one is fired; what is before it is the gap
 *   all    each is fired, oldest first; what is older than catch_up_ms, or more than catch_up_max before now,
 *          is the gap
 */
#ifndef MR_TIMER_PLAN_H
#define MR_TIMER_PLAN_H

#include "timer/rule.h"

struct mr_plan_policy {
    enum mr_misfire misfire;
    int64_t misfire_ms;
    int64_t catch_up_ms;
    uint32_t catch_up_max; /* at least 1 */
};

/* Where a timer stands. */
struct mr_plan_state {
    int64_t next_ms; /* the first planned time that has no row; MR_NEVER_MS: none */
    uint64_t fired;
    /* What is planned up to here was looked at together with what came before: it is fired, however long
     * that takes. 0: nothing was. */
    int64_t admitted_ms;
};

enum mr_plan_kind {
    MR_PLAN_NONE,     /* nothing is due */
    MR_PLAN_FIRE,     /* planned_ms, on time */
    MR_PLAN_CATCH_UP, /* planned_ms, late */
    MR_PLAN_GAP,      /* planned_ms to until_ms are misfires and not made up for */
};

struct mr_plan_step {
    enum mr_plan_kind kind;
    int64_t planned_ms;
    int64_t until_ms;           /* of a gap: the last planned time in it; else planned_ms */
    struct mr_plan_state after; /* where the timer stands then */
    /* No planned time follows, ever. Else MR_NEVER_MS as next_ms says that the next one is not known yet:
     * after-done, until the run has ended; manual. */
    bool finished;
};

/* When the next one is to happen, jitter and all; MR_NEVER_MS. */
int64_t mr_plan_due_ms(const struct mr_rule *rule, const struct mr_uuid *uid, int64_t next_ms);
struct mr_plan_step mr_plan(const struct mr_rule *rule, const struct mr_uuid *uid,
                            const struct mr_plan_policy *policy, const struct mr_plan_state *state,
                            int64_t now_ms);
/* The firing of the step, taken from state, does not happen: it is no firing that counts. */
void mr_plan_skip(const struct mr_rule *rule, const struct mr_plan_state *state,
                  struct mr_plan_step *step);
/* The firing of the step ended at now_ms, as it was to begin: no run follows whose end could be counted from. */
void mr_plan_ended(const struct mr_rule *rule, int64_t now_ms, struct mr_plan_step *step);
/* The timer has planned times that count from ends, and a run is not over: the step is taken back, and the next time is
 * not known before that end. */
void mr_plan_wait(const struct mr_plan_state *state, struct mr_plan_step *step);
/* The state of a timer after an end at ended_ms of its last open run, where its rule counts from that; else
 * as it was. */
int64_t mr_plan_after_end(const struct mr_rule *rule, uint64_t fired, int64_t ended_ms,
                          int64_t next_ms);

#endif
