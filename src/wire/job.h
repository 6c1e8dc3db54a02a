/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of job.proto, between their bytes and structs of the public header. */
#ifndef MR_WIRE_JOB_H
#define MR_WIRE_JOB_H

#include "base/buf.h"
#include "wire/flat.h"

extern const struct mr_flat mr_flat_part; /* Part: struct mr_part_info */

/* Appends the encoding: JobDefinition of proto/. */
MR_MUST_USE enum mr_err mr_job_encode(const struct mr_job_options *options, struct mr_buf *buf);
/* MR_INVALID: the bytes are none, or there are more than MR_JOB_STAGES_MAX stages. Slices point into them, the stages
 * are in the arena. */
MR_MUST_USE enum mr_err mr_job_decode(struct mr_slice bytes, struct mr_arena *arena,
                                      struct mr_job_options *ret_options);

/* The same for Job. definition: encoded, stands for info->job, which is not looked at. */
MR_MUST_USE enum mr_err mr_job_info_encode(const struct mr_job_info *info,
                                           struct mr_slice definition, struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_job_info_decode(struct mr_slice bytes, struct mr_arena *arena,
                                           struct mr_job_info *ret_info);

#endif
