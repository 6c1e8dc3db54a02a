/* SPDX-License-Identifier: Apache-2.0 */
#include "job/def.h"

#include "broker/broker.h"
#include "job/reduce.h"
#include "job/split.h"
#include "wire/task.h"

#define PERIOD_MAX_MS    (100 * 366 * 24 * 3600000LL) /* of retention and speculation: for ever */
#define SPECULATE_MIN_MS 1000

/* ---- checks --------------------------------------------------------------------------------- */

static enum mr_err check_numbers(const struct mr_job_options *o, struct mr_detail *detail)
{
    const char *fault = NULL;
    if ((unsigned)o->policy >= MR_JOB_POLICY_COUNT)
        fault = "policy: not one of fail-fast, finish";
    else if (o->retention_ms < 0 || o->retention_ms > PERIOD_MAX_MS)
        fault = "retention: must be within 0 and 100 years";
    else if (o->speculate_ms != 0 &&
             (o->speculate_ms < SPECULATE_MIN_MS || o->speculate_ms > PERIOD_MAX_MS))
        fault = "speculate: must be 0 or within 1 s and 100 years";
    if (fault == NULL)
        return MR_OK;
    mr_detail_set(detail, "%s", fault);
    return MR_INVALID;
}

struct mr_task_options mr_job_task(const struct mr_job_options *options, uint32_t stage)
{
    mr_assert(stage < options->stages_n);
    return (struct mr_task_options){
        .queue = options->queue,
        .type = options->stages[stage],
        .priority_s = options->priority_s,
        .max_retry = options->max_retry,
        .timeout_ms = options->timeout_ms,
        .retention_ms = MR_JOB_TASK_KEPT_MS,
        .topic = MR_SLICE_LIT(MR_JOB_TOPIC),
    };
}

/* Each stage makes tasks that a broker takes. */
static enum mr_err check_stages(const struct mr_job_options *o, struct mr_detail *detail)
{
    if (o->stages_n > MR_JOB_STAGES_MAX) {
        mr_detail_set(detail, "stages: %zu, the limit is %d", o->stages_n, MR_JOB_STAGES_MAX);
        return MR_TOO_BIG;
    }
    for (uint32_t i = 0; i < o->stages_n; i++) {
        if (o->stages[i].len == 0) {
            mr_detail_set(detail, "stages: the type of stage %u is missing", i + 1);
            return MR_INVALID;
        }
        struct mr_task_options task = mr_job_task(o, i);
        MR_TRY(mr_task_options_check(&task, 0, detail));
    }
    return MR_OK;
}

/* ---- the one form --------------------------------------------------------------------------- */

static enum mr_err canonical_split(struct mr_slice *split, struct mr_arena *arena,
                                   struct mr_detail *detail)
{
    struct mr_split_spec spec;
    struct mr_buf buf = {0};
    if (split->len == 0)
        return MR_OK;
    MR_TRY(mr_split_parse(*split, &spec, detail));
    enum mr_err err = mr_split_put(&spec, &buf);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&buf), split);
    mr_buf_done(&buf);
    return err;
}

static enum mr_err canonical_reduce(struct mr_slice *reduce, struct mr_arena *arena,
                                    struct mr_detail *detail)
{
    struct mr_reduce_spec spec;
    struct mr_buf buf = {0};
    MR_TRY(mr_reduce_parse(*reduce, &spec, detail));
    enum mr_err err = mr_reduce_put(&spec, &buf);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&buf), reduce);
    mr_buf_done(&buf);
    return err;
}

enum mr_err mr_job_canonical(const struct mr_job_options *options, struct mr_arena *arena,
                             struct mr_job_options *ret_options, struct mr_detail *detail)
{
    static const struct mr_slice stages[] = {MR_SLICE_LIT(MR_DEFAULT_TYPE)};
    struct mr_job_options o = *options;
    o.queue = mr_queue_or_default(o.queue);
    if (o.stages_n == 0) {
        o.stages = stages;
        o.stages_n = 1;
    }
    if (o.retention_ms == 0)
        o.retention_ms = MR_JOB_RETENTION_MS;
    if (o.name.len > 0)
        MR_TRY(mr_name_check_of("name", o.name, detail));
    MR_TRY(check_numbers(&o, detail));
    MR_TRY(check_stages(&o, detail));
    MR_TRY(canonical_split(&o.split, arena, detail));
    MR_TRY(canonical_reduce(&o.reduce, arena, detail));
    *ret_options = o;
    return MR_OK;
}
