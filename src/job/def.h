/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of jobs: checked whole, brought into their one form, and what their tasks are. wire/job.h has the
 * encoding. Pure. Thread: any. */
#ifndef MR_JOB_DEF_H
#define MR_JOB_DEF_H

#include "base/arena.h"
#include "wire/job.h"

#define MR_JOB_TOPIC        "millrace-jobs"  /* where the results of parts are left */
#define MR_JOB_TASK_KEPT_MS (24 * 3600000LL) /* so long the id of a part's task stays taken */

/*
 * A definition as it is kept: what may be left out is filled in, split and reduce are in their canonical text. An
 * empty split stays empty: the job is given in parts. Slices point into what was given, or into the arena. MR_INVALID,
 * MR_TOO_BIG: detail says why in one line.
 */
MR_MUST_USE enum mr_err mr_job_canonical(const struct mr_job_options *options,
                                         struct mr_arena *arena, struct mr_job_options *ret_options,
                                         struct mr_detail *detail);
/* What the task of a part is in this stage, but for its id, payload and headers. Slices are those of the job. */
struct mr_task_options mr_job_task(const struct mr_job_options *options, uint32_t stage);

#endif
