/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/job_json.h"

#include <math.h>

static void stages(struct jw *jw, const struct mr_job_info *info)
{
    jw_array_begin(jw, "stages");
    for (size_t i = 0; i < info->stages_n; i++) {
        const struct mr_job_stage *stage = &info->stages[i];
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "type", stage->type);
        jw_uint(jw, "total", stage->total);
        jw_uint(jw, "done", stage->done);
        jw_uint(jw, "failed", stage->failed);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}

static uint64_t segments(const struct mr_job_info *info)
{
    return info->first_segment > 0 ? info->last_segment - info->first_segment + 1 : 0;
}

void jw_job(struct jw *jw, const char *name, const struct mr_job_info *info)
{
    const struct mr_job_options *job = &info->job;
    jw_object_begin(jw, name);
    jw_bytes(jw, "id", info->id);
    jw_bytes(jw, "name", job->name);
    jw_bytes(jw, "queue", job->queue);
    jw_text(jw, "state", mr_job_state_name(info->state));
    if (info->reason.len > 0)
        jw_bytes(jw, "reason", info->reason);
    jw_uint(jw, "version", info->version);
    jw_uint(jw, "total", info->total);
    jw_uint(jw, "done", info->done);
    jw_uint(jw, "failed", info->failed);
    jw_uint(jw, "running", info->running);
    stages(jw, info);
    jw_real(jw, "rate", round(info->rate * 1000) / 1000);
    if (info->eta_ms >= 0)
        jw_int(jw, "eta_ms", info->eta_ms);
    else
        jw_null(jw, "eta_ms"); /* not known */
    jw_real(jw, "priority", job->priority_s);
    jw_bytes(jw, "split", job->split);
    jw_bytes(jw, "reduce", job->reduce);
    jw_text(jw, "policy", mr_job_policy_name(job->policy));
    jw_bool(jw, "pipeline", job->pipeline);
    jw_bool(jw, "reducing", info->reducing);
    jw_uint(jw, "round", info->round);
    jw_int(jw, "created_ms", info->created_ms);
    jw_int(jw, "started_ms", info->started_ms);
    jw_int(jw, "finished_ms", info->finished_ms);
    jw_uint(jw, "segments", segments(info));
    jw_uint(jw, "result_bytes", info->result_bytes);
    jw_object_end(jw);
}

void jw_part(struct jw *jw, const char *name, const struct mr_part_info *part)
{
    jw_object_begin(jw, name);
    jw_bytes(jw, "job", part->job);
    jw_uint(jw, "index", part->index);
    jw_uint(jw, "stage", part->stage);
    jw_uint(jw, "round", part->round);
    jw_text(jw, "state", mr_part_state_name(part->state));
    jw_bytes(jw, "task_id", part->task_id);
    jw_bytes(jw, "error", part->error);
    jw_int(jw, "finished_ms", part->finished_ms);
    jw_uint(jw, "segment", part->segment);
    jw_object_end(jw);
}
