/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of timer.proto, between their bytes and structs (flat.h). A definition stays encoded in
 * what carries it: only who looks into it reads it.
 */
#ifndef MR_WIRE_TIMER_H
#define MR_WIRE_TIMER_H

#include "wire/flat.h"

extern const struct mr_flat mr_flat_timer_definition; /* struct mr_timer_options */
extern const struct mr_flat mr_flat_firing;           /* struct mr_firing_info */
extern const struct mr_flat mr_flat_timer_result;     /* struct mr_timer_result */

/* TimerOperation. Slices of what was read point into the bytes. */
struct mr_timer_operation {
    struct mr_slice operation; /* its id */
    enum mr_timer_verb verb;
    struct mr_slice app, name;
    struct mr_slice id; /* of the timer */
    uint64_t version, if_version;
    int64_t created_ms;
    int64_t planned_ms;
    struct mr_slice definition; /* encoded */
};
extern const struct mr_flat mr_flat_timer_operation;

/* Timer, with its definition encoded. */
struct mr_timer_shown {
    struct mr_slice definition;
    struct mr_slice id;
    uint64_t version;
    enum mr_timer_state state;
    int64_t created_ms, next_ms, last_ms;
    uint64_t firings_total;
};
extern const struct mr_flat mr_flat_timer_shown;

/* What people are shown of it; slices point into the definition, headers are in the arena. MR_INVALID: the
 * definition is none. */
MR_MUST_USE enum mr_err mr_timer_shown_open(const struct mr_timer_shown *shown,
                                            struct mr_arena *arena, struct mr_timer_info *ret_info);

#endif
