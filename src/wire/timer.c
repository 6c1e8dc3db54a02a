/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/timer.h"

/* Row i is field i + 1 of the .proto. */
#define FIELD(kind, type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(type, member), 0                                                  \
    }
#define FIELD_ENUM(type, member, count)                                                            \
    {                                                                                              \
        MR_FLAT_ENUM, offsetof(type, member), (count)-1                                            \
    }
#define FIELD_CHARS(type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_CHARS, offsetof(type, member), sizeof(((type *)0)->member)                         \
    }

#define TIMER(kind, member)       FIELD(kind, struct mr_timer_options, member)
#define TIMER_ENUM(member, count) FIELD_ENUM(struct mr_timer_options, member, count)
static const struct mr_flat_field definition_fields[] = {
    TIMER(SLICE, app),
    TIMER(SLICE, name),
    TIMER_ENUM(kind, MR_TIMER_KIND_COUNT),
    TIMER(SLICE, expression),
    TIMER(SLICE, tz),
    TIMER(SLICE, exclude),
    TIMER(64, start_ms),
    TIMER(64, end_ms),
    TIMER(64, jitter_ms),
    TIMER(64, times),
    TIMER(BOOL, paused),
    TIMER_ENUM(misfire, MR_MISFIRE_COUNT),
    TIMER_ENUM(overlap, MR_OVERLAP_COUNT),
    TIMER(U32, max_running),
    TIMER_ENUM(strategy, MR_STRATEGY_COUNT),
    TIMER(SLICE, target),
    TIMER(64, expire_ms),
    TIMER(SLICE, queue),
    TIMER(SLICE, type),
    TIMER(SLICE, payload),
    TIMER(32, max_retry),
    TIMER(64, timeout_ms),
    TIMER(DOUBLE, priority_s),
    {MR_FLAT_HEADERS, offsetof(struct mr_timer_options, headers),
     offsetof(struct mr_timer_options, headers_n)},
};
MR_FLAT(struct mr_timer_options, mr_flat_timer_definition, definition_fields);

#define SHOWN(kind, member) FIELD(kind, struct mr_timer_shown, member)
static const struct mr_flat_field shown_fields[] = {
    SHOWN(SLICE, definition), SHOWN(SLICE, id),
    SHOWN(64, version),       FIELD_ENUM(struct mr_timer_shown, state, MR_TIMER_STATE_COUNT),
    SHOWN(64, created_ms),    SHOWN(64, next_ms),
    SHOWN(64, last_ms),       SHOWN(64, firings_total),
};
MR_FLAT(struct mr_timer_shown, mr_flat_timer_shown, shown_fields);

enum mr_err mr_timer_shown_open(const struct mr_timer_shown *shown, struct mr_arena *arena,
                                struct mr_timer_info *ret_info)
{
    struct mr_timer_info info = {
        .id = shown->id,
        .version = shown->version,
        .state = shown->state,
        .created_ms = shown->created_ms,
        .next_ms = shown->next_ms,
        .last_ms = shown->last_ms,
        .firings_total = shown->firings_total,
    };
    MR_TRY(mr_flat_read(&mr_flat_timer_definition, shown->definition, arena, &info.timer));
    *ret_info = info;
    return MR_OK;
}

#define FIRING(kind, member) FIELD(kind, struct mr_firing_info, member)
static const struct mr_flat_field firing_fields[] = {
    FIRING(SLICE, app),
    FIRING(SLICE, timer),
    FIRING(SLICE, timer_id),
    FIRING(64, planned_ms),
    FIRING(64, until_ms),
    FIRING(U32, run),
    FIELD_ENUM(struct mr_firing_info, state, MR_FIRING_STATE_COUNT),
    FIELD_ENUM(struct mr_firing_info, cause, MR_FIRING_CAUSE_COUNT),
    FIRING(SLICE, reason),
    FIRING(SLICE, task_id),
    FIRING(U32, attempt),
    FIRING(64, fired_ms),
    FIRING(64, started_ms),
    FIRING(64, finished_ms),
};
MR_FLAT(struct mr_firing_info, mr_flat_firing, firing_fields);

#define OPERATION(kind, member) FIELD(kind, struct mr_timer_operation, member)
static const struct mr_flat_field operation_fields[] = {
    OPERATION(SLICE, operation), FIELD_ENUM(struct mr_timer_operation, verb, MR_TIMER_VERB_COUNT),
    OPERATION(SLICE, app),       OPERATION(SLICE, name),
    OPERATION(SLICE, id),        OPERATION(64, version),
    OPERATION(64, if_version),   OPERATION(64, created_ms),
    OPERATION(64, planned_ms),   OPERATION(SLICE, definition),
};
MR_FLAT(struct mr_timer_operation, mr_flat_timer_operation, operation_fields);

static const struct mr_flat_field result_fields[] = {
    FIELD_CHARS(struct mr_timer_result, operation),
    FIELD_ENUM(struct mr_timer_result, err, MR_ERR_COUNT),
    FIELD_CHARS(struct mr_timer_result, id),
    FIELD(64, struct mr_timer_result, version),
    FIELD_CHARS(struct mr_timer_result, why),
    FIELD(BOOL, struct mr_timer_result, unknown),
};
MR_FLAT(struct mr_timer_result, mr_flat_timer_result, result_fields);
