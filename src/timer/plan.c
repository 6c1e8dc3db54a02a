/* SPDX-License-Identifier: Apache-2.0 */
#include "timer/plan.h"

#include "base/err.h"

/* One planned time is known, and the next one when the run that it becomes has ended. */
static bool counts_from_ends(const struct mr_rule *rule)
{
    return mr_rule_kind_of(rule) == MR_TIMER_AFTER_DONE;
}

/* The last planned time up to `to`; `from` is one, and not above it. */
static int64_t last_planned(const struct mr_rule *rule, uint64_t fired, int64_t from, int64_t to)
{
    /* low is planned; nothing is, above high */
    int64_t low = from, high = counts_from_ends(rule) ? from : to;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t next = mr_rule_next(rule, fired, middle);
        if (next <= to)
            low = next;
        else
            high = middle;
    }
    return low;
}

/* The last planned time that was to happen up to `to`; false when there is none. Jitter stays before the next
 * planned time, so at most one that is planned by then happens later. */
static bool last_due(const struct mr_rule *rule, const struct mr_uuid *uid, uint64_t fired,
                     int64_t from, int64_t to, int64_t *ret_last)
{
    if (from > to)
        return false;
    int64_t last = last_planned(rule, fired, from, to);
    if (mr_rule_fire_ms(rule, uid, last) > to) {
        if (last == from)
            return false;
        last = last_planned(rule, fired, from, last - 1);
    }
    *ret_last = last;
    return true;
}

/* Whether more than max are planned from `from`, which is one, to `to`. */
static bool more_than(const struct mr_rule *rule, uint64_t fired, int64_t from, int64_t to,
                      uint32_t max)
{
    for (int64_t at = from; at <= to; at = mr_rule_next(rule, fired, at)) {
        if (max-- == 0)
            return true;
    }
    return false;
}

/* The first planned time from `from`, which is one, on from where not more than max are planned to `last`. */
static int64_t first_of_last(const struct mr_rule *rule, uint64_t fired, int64_t from, int64_t last,
                             uint32_t max)
{
    if (!more_than(rule, fired, from, last, max))
        return from;
    int64_t low = from, high = last; /* from low on there are too many, above high too few */
    int64_t first = last;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int64_t next = mr_rule_next(rule, fired, middle);
        if (next <= last && more_than(rule, fired, next, last, max)) {
            low = next;
        } else {
            first = next <= last ? next : first;
            high = middle;
        }
    }
    return first;
}

static struct mr_plan_step fire(const struct mr_rule *rule, const struct mr_plan_state *state,
                                enum mr_plan_kind kind)
{
    struct mr_plan_step step = {kind, state->next_ms, state->next_ms, *state, false};
    step.after.fired++;
    step.after.next_ms = mr_rule_next(rule, step.after.fired, state->next_ms);
    step.finished = step.after.next_ms == MR_NEVER_MS;
    if (counts_from_ends(rule))
        step.after.next_ms = MR_NEVER_MS;
    return step;
}

/* Up to until_ms; what is planned behind it, up to admitted_ms, is fired. */
static struct mr_plan_step gap(const struct mr_rule *rule, const struct mr_plan_state *state,
                               int64_t until_ms, int64_t admitted_ms, int64_t now_ms)
{
    struct mr_plan_step step = {MR_PLAN_GAP, state->next_ms, until_ms, *state, false};
    /* Nothing runs whose end could be counted from. */
    int64_t from_ms = counts_from_ends(rule) ? now_ms : until_ms;
    step.after.next_ms = mr_rule_next(rule, state->fired, from_ms);
    step.after.admitted_ms = admitted_ms;
    step.finished = step.after.next_ms == MR_NEVER_MS;
    return step;
}

int64_t mr_plan_due_ms(const struct mr_rule *rule, const struct mr_uuid *uid, int64_t next_ms)
{
    return next_ms == MR_NEVER_MS ? MR_NEVER_MS : mr_rule_fire_ms(rule, uid, next_ms);
}

/* The first one that is fired; *ret_last: the last one. False: none is. */
static bool first_fired(const struct mr_rule *rule, const struct mr_uuid *uid,
                        const struct mr_plan_policy *policy, const struct mr_plan_state *state,
                        int64_t now_ms, int64_t *ret_first, int64_t *ret_last)
{
    if (policy->misfire == MR_MISFIRE_SKIP ||
        !last_due(rule, uid, state->fired, state->next_ms, now_ms, ret_last))
        return false;
    *ret_first = *ret_last;
    if (policy->misfire != MR_MISFIRE_ALL || counts_from_ends(rule))
        return true;
    int64_t first = state->next_ms, oldest = now_ms - policy->catch_up_ms;
    if (first < oldest)
        first = mr_rule_next(rule, state->fired, oldest - 1);
    if (first > *ret_last)
        return false; /* all of them are too old */
    *ret_first = first_of_last(rule, state->fired, first, *ret_last, policy->catch_up_max);
    return true;
}

struct mr_plan_step mr_plan(const struct mr_rule *rule, const struct mr_uuid *uid,
                            const struct mr_plan_policy *policy, const struct mr_plan_state *state,
                            int64_t now_ms)
{
    int64_t due_ms = mr_plan_due_ms(rule, uid, state->next_ms);
    if (due_ms == MR_NEVER_MS || due_ms > now_ms)
        return (struct mr_plan_step){.kind = MR_PLAN_NONE, .after = *state};
    bool late = now_ms - due_ms > policy->misfire_ms;
    if (!late)
        return fire(rule, state, MR_PLAN_FIRE);
    if (state->next_ms <= state->admitted_ms)
        return fire(rule, state, MR_PLAN_CATCH_UP);
    int64_t first, last;
    if (!first_fired(rule, uid, policy, state, now_ms, &first, &last)) {
        int64_t to = now_ms - policy->misfire_ms - 1;
        if (!last_due(rule, uid, state->fired, state->next_ms, to, &last))
            last = state->next_ms;
        return gap(rule, state, last, state->admitted_ms, now_ms);
    }
    if (first > state->next_ms)
        return gap(rule, state, last_planned(rule, state->fired, state->next_ms, first - 1), last,
                   now_ms);
    struct mr_plan_step step = fire(rule, state, MR_PLAN_CATCH_UP);
    step.after.admitted_ms = last;
    return step;
}

void mr_plan_skip(const struct mr_rule *rule, const struct mr_plan_state *state,
                  struct mr_plan_step *step)
{
    step->after.fired = state->fired;
    step->after.next_ms =
        counts_from_ends(rule) ? MR_NEVER_MS : mr_rule_next(rule, state->fired, step->planned_ms);
    step->finished = !counts_from_ends(rule) && step->after.next_ms == MR_NEVER_MS;
}

void mr_plan_ended(const struct mr_rule *rule, int64_t now_ms, struct mr_plan_step *step)
{
    if (!counts_from_ends(rule))
        return;
    step->after.next_ms = mr_rule_next(rule, step->after.fired, now_ms);
    step->finished = step->after.next_ms == MR_NEVER_MS;
}

void mr_plan_wait(const struct mr_plan_state *state, struct mr_plan_step *step)
{
    *step = (struct mr_plan_step){
        .kind = MR_PLAN_NONE,
        .planned_ms = state->next_ms,
        .until_ms = state->next_ms,
        .after = {.next_ms = MR_NEVER_MS, .fired = state->fired},
    };
}

int64_t mr_plan_after_end(const struct mr_rule *rule, uint64_t fired, int64_t ended_ms,
                          int64_t next_ms)
{
    return counts_from_ends(rule) && next_ms == MR_NEVER_MS ? mr_rule_next(rule, fired, ended_ms)
                                                            : next_ms;
}
