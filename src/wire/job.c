/* SPDX-License-Identifier: Apache-2.0 */
/* What stands once in a message goes by its table of fields; what repeats is put behind it, and read, by hand. */
#include "wire/job.h"

/* Numbers of the fields that repeat, and of a definition within its job. */
enum { DEFINITION_STAGES = 3, JOB_DEFINITION = 1, JOB_STAGES = 5 };

#define FIELD(kind, type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(type, member), 0                                                  \
    }
#define FIELD_ENUM(type, member, count)                                                            \
    {                                                                                              \
        MR_FLAT_ENUM, offsetof(type, member), (count)-1                                            \
    }
#define FIELD_NONE                                                                                 \
    {                                                                                              \
        MR_FLAT_NONE, 0, 0                                                                         \
    }

#define OPTION(kind, member) FIELD(kind, struct mr_job_options, member)
static const struct mr_flat_field definition_fields[] = {
    OPTION(SLICE, name),
    OPTION(SLICE, queue),
    FIELD_NONE,
    OPTION(SLICE, split),
    OPTION(SLICE, reduce),
    FIELD_ENUM(struct mr_job_options, policy, MR_JOB_POLICY_COUNT),
    OPTION(BOOL, pipeline),
    OPTION(DOUBLE, priority_s),
    OPTION(32, max_retry),
    OPTION(64, timeout_ms),
    OPTION(64, retention_ms),
    OPTION(64, speculate_ms),
};
static MR_FLAT(struct mr_job_options, flat_definition, definition_fields);

#define STAGE(kind, member) FIELD(kind, struct mr_job_stage, member)
static const struct mr_flat_field stage_fields[] = {
    STAGE(SLICE, type),
    STAGE(64, total),
    STAGE(64, done),
    STAGE(64, failed),
};
static MR_FLAT(struct mr_job_stage, flat_stage, stage_fields);

#define INFO(kind, member) FIELD(kind, struct mr_job_info, member)
static const struct mr_flat_field info_fields[] = {
    FIELD_NONE,
    INFO(SLICE, id),
    INFO(64, version),
    FIELD_ENUM(struct mr_job_info, state, MR_JOB_STATE_COUNT),
    FIELD_NONE,
    INFO(BOOL, reducing),
    INFO(SLICE, reason),
    INFO(64, total),
    INFO(64, done),
    INFO(64, failed),
    INFO(64, running),
    INFO(DOUBLE, rate),
    INFO(64, eta_ms),
    INFO(64, created_ms),
    INFO(64, started_ms),
    INFO(64, finished_ms),
    INFO(64, first_segment),
    INFO(64, last_segment),
    INFO(U32, round),
    INFO(64, result_bytes),
};
static MR_FLAT(struct mr_job_info, flat_info, info_fields);

#define PART(kind, member) FIELD(kind, struct mr_part_info, member)
static const struct mr_flat_field part_fields[] = {
    PART(SLICE, job),
    PART(64, index),
    PART(U32, stage),
    PART(U32, round),
    FIELD_ENUM(struct mr_part_info, state, MR_PART_STATE_COUNT),
    PART(SLICE, task_id),
    PART(SLICE, error),
    PART(64, finished_ms),
    PART(64, segment),
};
MR_FLAT(struct mr_part_info, mr_flat_part, part_fields);

/* ---- writing -------------------------------------------------------------------------------- */

/* The tag and the length before a field of so many bytes. */
static enum mr_err append_head(unsigned number, size_t len, struct mr_buf *buf)
{
    size_t size = mr_flat_head_size(len);
    MR_TRY(mr_buf_reserve(buf, size));
    mr_flat_put_head(buf->data + buf->len, number, len);
    buf->len += size;
    return MR_OK;
}

enum mr_err mr_job_encode(const struct mr_job_options *options, struct mr_buf *buf)
{
    MR_TRY(mr_flat_append(&flat_definition, options, buf));
    for (size_t i = 0; i < options->stages_n; i++) {
        MR_TRY(append_head(DEFINITION_STAGES, options->stages[i].len, buf));
        MR_TRY(mr_buf_append_slice(buf, options->stages[i]));
    }
    return MR_OK;
}

enum mr_err mr_job_info_encode(const struct mr_job_info *info, struct mr_slice definition,
                               struct mr_buf *buf)
{
    MR_TRY(append_head(JOB_DEFINITION, definition.len, buf));
    MR_TRY(mr_buf_append_slice(buf, definition));
    MR_TRY(mr_flat_append(&flat_info, info, buf));
    for (size_t i = 0; i < info->stages_n; i++) {
        MR_TRY(append_head(JOB_STAGES, mr_flat_size(&flat_stage, &info->stages[i]), buf));
        MR_TRY(mr_flat_append(&flat_stage, &info->stages[i], buf));
    }
    return MR_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Room for what repeats under this number; none of them is NULL and 0. */
static enum mr_err make_room(struct mr_slice bytes, uint32_t number, size_t size,
                             struct mr_arena *arena, void **ret_room)
{
    size_t n;
    MR_TRY(mr_flat_count(bytes, number, &n));
    if (n > MR_JOB_STAGES_MAX)
        return MR_INVALID;
    *ret_room = n > 0 ? mr_arena_calloc(arena, n, size) : NULL;
    return n > 0 && *ret_room == NULL ? MR_NOMEM : MR_OK;
}

enum mr_err mr_job_decode(struct mr_slice bytes, struct mr_arena *arena,
                          struct mr_job_options *ret_options)
{
    struct mr_job_options options;
    void *room;
    MR_TRY(mr_flat_read(&flat_definition, bytes, arena, &options));
    MR_TRY(make_room(bytes, DEFINITION_STAGES, sizeof *options.stages, arena, &room));
    struct mr_slice *stages = room;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == DEFINITION_STAGES && item.type == MR_FLAT_BYTES)
            stages[options.stages_n++] = item.bytes;
    }
    options.stages = stages;
    *ret_options = options;
    return MR_OK;
}

enum mr_err mr_job_info_decode(struct mr_slice bytes, struct mr_arena *arena,
                               struct mr_job_info *ret_info)
{
    struct mr_job_info info;
    void *room;
    MR_TRY(mr_flat_read(&flat_info, bytes, arena, &info));
    MR_TRY(make_room(bytes, JOB_STAGES, sizeof *info.stages, arena, &room));
    struct mr_job_stage *stages = room;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.type != MR_FLAT_BYTES)
            continue;
        if (item.number == JOB_DEFINITION)
            MR_TRY(mr_job_decode(item.bytes, arena, &info.job));
        if (item.number == JOB_STAGES)
            MR_TRY(mr_flat_read(&flat_stage, item.bytes, arena, &stages[info.stages_n++]));
    }
    info.stages = stages;
    *ret_info = info;
    return MR_OK;
}
