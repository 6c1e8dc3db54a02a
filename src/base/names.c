/* SPDX-License-Identifier: Apache-2.0 */
/* Names that every surface shares: the version, the states of tasks and of nodes. */
#include "base/slice.h"

/* Not MR_VERSION: that is an error code. */
#ifndef MR_VERSION_TEXT
#define MR_VERSION_TEXT "0.1.0"
#endif

static const char *const state_names[] = {
    [MR_STATE_NONE] = "none",     [MR_SCHEDULED] = "scheduled",
    [MR_PENDING] = "pending",     [MR_ACTIVE] = "active",
    [MR_RETRY] = "retry",         [MR_ARCHIVED] = "archived",
    [MR_COMPLETED] = "completed", [MR_AGGREGATING] = "aggregating",
};

_Static_assert(sizeof state_names / sizeof state_names[0] == MR_STATE_COUNT, "a name per state");

const char *mr_state_name(enum mr_state state)
{
    return (unsigned)state < MR_STATE_COUNT ? state_names[state] : "unknown";
}

enum mr_state mr_state_parse(struct mr_slice name)
{
    for (unsigned state = MR_STATE_NONE + 1; state < MR_STATE_COUNT; state++) {
        if (mr_slice_equal(name, mr_slice_str(state_names[state])))
            return (enum mr_state)state;
    }
    return MR_STATE_NONE;
}

static const char *const node_state_names[] = {
    [MR_NODE_LIVE] = "live", [MR_NODE_SUSPECT] = "suspect", [MR_NODE_DEAD] = "dead"};

_Static_assert(sizeof node_state_names / sizeof *node_state_names == MR_NODE_STATE_COUNT,
               "a name per state");

const char *mr_node_state_name(enum mr_node_state state)
{
    return (unsigned)state < MR_NODE_STATE_COUNT ? node_state_names[state] : NULL;
}

static const char *const role_names[] = {[MR_NODE_WORKER] = "worker", [MR_NODE_MASTER] = "master"};

_Static_assert(sizeof role_names / sizeof *role_names == MR_NODE_ROLE_COUNT, "a name per role");

const char *mr_node_role_name(enum mr_node_role role)
{
    return (unsigned)role < MR_NODE_ROLE_COUNT ? role_names[role] : NULL;
}

static const char *const result_outcome_names[] = {
    [MR_RESULT_OK] = "ok",     [MR_RESULT_ERROR] = "error",         [MR_RESULT_TIMEOUT] = "timeout",
    [MR_RESULT_LOST] = "lost", [MR_RESULT_CANCELLED] = "cancelled",
};

_Static_assert(sizeof result_outcome_names / sizeof *result_outcome_names ==
                   MR_RESULT_OUTCOME_COUNT,
               "a name per outcome");

const char *mr_result_outcome_name(enum mr_result_outcome outcome)
{
    return (unsigned)outcome < MR_RESULT_OUTCOME_COUNT ? result_outcome_names[outcome] : NULL;
}

static const char *const slot_state_names[] = {
    [MR_SLOT_PENDING] = "pending", [MR_SLOT_POLLING] = "polling",
    [MR_SLOT_WORKING] = "working", [MR_SLOT_REPORTING] = "reporting",
    [MR_SLOT_ERROR] = "error",     [MR_SLOT_STOPPING] = "stopping",
};

const char *mr_slot_state_name(enum mr_slot_state state)
{
    return (unsigned)state < MR_SLOT_STATE_COUNT ? slot_state_names[state] : NULL;
}

static const char *const assign_names[] = {
    [MR_ASSIGN_ROUND_ROBIN] = "round-robin", [MR_ASSIGN_CONSISTENT_HASH] = "consistent-hash"};

const char *mr_assign_name(enum mr_assign assign)
{
    return (unsigned)assign < MR_ASSIGN_COUNT ? assign_names[assign] : NULL;
}

static const char *const limit_scope_names[] = {
    [MR_LIMIT_QUEUE] = "queue", [MR_LIMIT_TYPE] = "type", [MR_LIMIT_KEY] = "key"};

const char *mr_limit_scope_name(enum mr_limit_scope scope)
{
    return (unsigned)scope < MR_LIMIT_SCOPE_COUNT ? limit_scope_names[scope] : NULL;
}

static const char *const retry_mode_names[] = {
    [MR_RETRY_GATE] = "gate", [MR_RETRY_ORDER] = "order", [MR_RETRY_CLASS] = "class"};

const char *mr_retry_mode_name(enum mr_retry_mode mode)
{
    return (unsigned)mode < MR_RETRY_MODE_COUNT ? retry_mode_names[mode] : NULL;
}

static const char *const timer_kind_names[] = {
    [MR_TIMER_CRON] = "cron",     [MR_TIMER_EVERY] = "every", [MR_TIMER_AFTER_DONE] = "after-done",
    [MR_TIMER_AT] = "at",         [MR_TIMER_DELAY] = "delay", [MR_TIMER_DAILY] = "daily",
    [MR_TIMER_MANUAL] = "manual",
};

const char *mr_timer_kind_name(enum mr_timer_kind kind)
{
    return (unsigned)kind < MR_TIMER_KIND_COUNT ? timer_kind_names[kind] : NULL;
}

static const char *const misfire_names[] = {
    [MR_MISFIRE_ONCE] = "once", [MR_MISFIRE_SKIP] = "skip", [MR_MISFIRE_ALL] = "all"};

const char *mr_misfire_name(enum mr_misfire misfire)
{
    return (unsigned)misfire < MR_MISFIRE_COUNT ? misfire_names[misfire] : NULL;
}

static const char *const overlap_names[] = {
    [MR_OVERLAP_ALLOW] = "allow",
    [MR_OVERLAP_SKIP] = "skip",
    [MR_OVERLAP_QUEUE] = "queue",
    [MR_OVERLAP_CANCEL] = "cancel",
};

const char *mr_overlap_name(enum mr_overlap overlap)
{
    return (unsigned)overlap < MR_OVERLAP_COUNT ? overlap_names[overlap] : NULL;
}

static const char *const strategy_names[] = {
    [MR_STRATEGY_ANY] = "any",
    [MR_STRATEGY_ROUND_ROBIN] = "round-robin",
    [MR_STRATEGY_HEALTHIEST] = "healthiest",
    [MR_STRATEGY_KEY] = "key",
    [MR_STRATEGY_TAG] = "tag",
    [MR_STRATEGY_BROADCAST] = "broadcast",
};

const char *mr_strategy_name(enum mr_strategy strategy)
{
    return (unsigned)strategy < MR_STRATEGY_COUNT ? strategy_names[strategy] : NULL;
}

static const char *const timer_state_names[] = {
    [MR_TIMER_STATE_NONE] = "none",
    [MR_TIMER_ACTIVE] = "active",
    [MR_TIMER_PAUSED] = "paused",
    [MR_TIMER_FINISHED] = "finished",
};

const char *mr_timer_state_name(enum mr_timer_state state)
{
    return (unsigned)state < MR_TIMER_STATE_COUNT ? timer_state_names[state] : NULL;
}

static const char *const firing_state_names[] = {
    [MR_FIRING_NONE] = "none",
    [MR_FIRING_WAITING] = "waiting",
    [MR_FIRING_DISPATCHED] = "dispatched",
    [MR_FIRING_RUNNING] = "running",
    [MR_FIRING_FAILED] = "failed",
    [MR_FIRING_SUCCEEDED] = "succeeded",
    [MR_FIRING_CANCELLED] = "cancelled",
    [MR_FIRING_STOPPED] = "stopped",
    [MR_FIRING_SKIPPED] = "skipped",
    [MR_FIRING_MISFIRED] = "misfired",
};

_Static_assert(sizeof firing_state_names / sizeof *firing_state_names == MR_FIRING_STATE_COUNT,
               "a name per state");

const char *mr_firing_state_name(enum mr_firing_state state)
{
    return (unsigned)state < MR_FIRING_STATE_COUNT ? firing_state_names[state] : NULL;
}

static const char *const firing_cause_names[] = {[MR_FIRING_PLANNED] = "planned",
                                                 [MR_FIRING_MANUAL] = "manual",
                                                 [MR_FIRING_CAUGHT_UP] = "caught up"};

const char *mr_firing_cause_name(enum mr_firing_cause cause)
{
    return (unsigned)cause < MR_FIRING_CAUSE_COUNT ? firing_cause_names[cause] : NULL;
}

static const char *const timer_verb_names[] = {
    [MR_TIMER_PUT] = "put",   [MR_TIMER_DELETE] = "delete", [MR_TIMER_RUN] = "run",
    [MR_TIMER_STOP] = "stop", [MR_TIMER_RERUN] = "rerun",
};

const char *mr_timer_verb_name(enum mr_timer_verb verb)
{
    return (unsigned)verb < MR_TIMER_VERB_COUNT ? timer_verb_names[verb] : NULL;
}

static const char *const job_policy_names[] = {
    [MR_JOB_FAIL_FAST] = "fail-fast",
    [MR_JOB_FINISH] = "finish",
};

const char *mr_job_policy_name(enum mr_job_policy policy)
{
    return (unsigned)policy < MR_JOB_POLICY_COUNT ? job_policy_names[policy] : NULL;
}

static const char *const job_state_names[] = {
    [MR_JOB_STATE_NONE] = "none", [MR_JOB_CREATED] = "created",
    [MR_JOB_RUNNING] = "running", [MR_JOB_SUCCEEDED] = "succeeded",
    [MR_JOB_FAILED] = "failed",   [MR_JOB_CANCELLED] = "cancelled",
};

const char *mr_job_state_name(enum mr_job_state state)
{
    return (unsigned)state < MR_JOB_STATE_COUNT ? job_state_names[state] : NULL;
}

enum mr_job_state mr_job_state_parse(struct mr_slice name)
{
    for (unsigned state = MR_JOB_STATE_NONE + 1; state < MR_JOB_STATE_COUNT; state++) {
        if (mr_slice_equal(name, mr_slice_str(job_state_names[state])))
            return (enum mr_job_state)state;
    }
    return MR_JOB_STATE_NONE;
}

static const char *const part_state_names[] = {
    [MR_PART_WAITING] = "waiting",
    [MR_PART_SUBMITTED] = "submitted",
    [MR_PART_DONE] = "done",
    [MR_PART_FAILED] = "failed",
};

const char *mr_part_state_name(enum mr_part_state state)
{
    return (unsigned)state < MR_PART_STATE_COUNT ? part_state_names[state] : NULL;
}

const char *mr_version(void)
{
    return MR_VERSION_TEXT;
}
