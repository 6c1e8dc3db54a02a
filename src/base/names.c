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

static const char *const assign_names[] = {
    [MR_ASSIGN_ROUND_ROBIN] = "round-robin", [MR_ASSIGN_CONSISTENT_HASH] = "consistent-hash"};

const char *mr_assign_name(enum mr_assign assign)
{
    return (unsigned)assign < MR_ASSIGN_COUNT ? assign_names[assign] : NULL;
}

const char *mr_version(void)
{
    return MR_VERSION_TEXT;
}
