/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and parts in JSON: the same for people's commands, HTTP and its events. */
#ifndef MR_WIRE_JOB_JSON_H
#define MR_WIRE_JOB_JSON_H

#include "wire/jw.h"

void jw_job(struct jw *jw, const char *name, const struct mr_job_info *info);
void jw_part(struct jw *jw, const char *name, const struct mr_part_info *part);

#endif
