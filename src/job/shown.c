/* SPDX-License-Identifier: Apache-2.0 */
/* A row of the store as people see it. Pure. Thread: any. */
#include "job/internal.h"

static const enum mr_job_state states[MR_JOBROW_STATE_COUNT] = {
    [MR_JOBROW_CREATED] = MR_JOB_CREATED,  [MR_JOBROW_RUNNING] = MR_JOB_RUNNING,
    [MR_JOBROW_REDUCING] = MR_JOB_RUNNING, [MR_JOBROW_SUCCEEDED] = MR_JOB_SUCCEEDED,
    [MR_JOBROW_FAILED] = MR_JOB_FAILED,    [MR_JOBROW_CANCELLED] = MR_JOB_CANCELLED,
};

/* Ends of tasks so far, and those that are still to come. */
static void add_pace(const struct mr_store_job *row, int64_t now_ms, struct mr_job_info *info)
{
    uint64_t ended = 0, left = 0;
    int64_t until_ms = row->finished_ms != 0 ? row->finished_ms : now_ms;
    int64_t took_ms = row->started_ms != 0 ? until_ms - row->started_ms : 0;
    for (size_t i = 0; i < row->stages_n; i++) {
        const struct mr_store_stage *stage = &row->stages[i];
        ended += stage->done + stage->failed;
        left += stage->total - stage->done - stage->failed;
        info->running += mr_store_stage_open(stage);
    }
    if (took_ms > 0)
        info->rate = (double)ended * (double)MR_MS_PER_S / (double)took_ms;
    info->eta_ms = -1;
    if (left == 0 || mr_jobrow_is_ended(row->state))
        info->eta_ms = 0;
    else if (info->rate > 0)
        info->eta_ms = (int64_t)((double)left * (double)MR_MS_PER_S / info->rate);
    if (mr_jobrow_is_ended(row->state))
        info->running = 0;
}

static enum mr_err add_stages(const struct mr_store_job *row, struct mr_arena *arena,
                              struct mr_job_info *info)
{
    struct mr_job_stage *stages = mr_arena_calloc(arena, row->stages_n + 1, sizeof *stages);
    if (stages == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < row->stages_n; i++) {
        if (i < info->job.stages_n)
            stages[i].type = info->job.stages[i];
        stages[i].total = row->stages[i].total;
        stages[i].done = row->stages[i].done;
        stages[i].failed = row->stages[i].failed;
    }
    info->stages = stages;
    info->stages_n = row->stages_n;
    return MR_OK;
}

enum mr_err job_show(const struct mr_store_job *row, struct mr_slice definition, int64_t now_ms,
                     struct mr_arena *arena, struct mr_job_shown *ret_shown)
{
    struct mr_job_shown shown = {
        .info =
            {
                .version = row->version,
                .state = states[row->state],
                .reducing = row->state == MR_JOBROW_REDUCING,
                .total = row->total,
                .done = mr_store_job_done(row),
                .failed = mr_store_job_failed(row),
                .created_ms = row->created_ms,
                .started_ms = row->started_ms,
                .finished_ms = row->finished_ms,
                .first_segment = row->first_segment,
                .last_segment = row->last_segment,
                .round = row->round / 2, /* a retry raises it by two */
                .result_bytes = row->result_bytes,
            },
    };
    char id[MR_UUID_TEXT_LEN + 1];
    mr_uuid_format(&row->uid, id);
    MR_TRY(mr_arena_copy(arena, mr_slice_str(id), &shown.info.id));
    MR_TRY(mr_arena_copy(arena, row->reason, &shown.info.reason));
    MR_TRY(mr_arena_copy(arena, definition, &shown.definition));
    MR_TRY(mr_job_decode(shown.definition, arena, &shown.info.job));
    MR_TRY(add_stages(row, arena, &shown.info));
    add_pace(row, now_ms, &shown.info);
    *ret_shown = shown;
    return MR_OK;
}
