/* SPDX-License-Identifier: Apache-2.0 */
/* New tasks in JSON, and their answers: the same for people's commands and for HTTP. */
#ifndef MR_API_TASK_JSON_H
#define MR_API_TASK_JSON_H

#include <jansson.h>

#include "base/arena.h"
#include "broker/json.h"

/* Puts what the object says into task, whose other fields stay as they are. Its slices point into json and the
 * arena. What is wrong is in detail. */
MR_MUST_USE enum mr_err mr_task_from_json(json_t *json, struct mr_arena *arena,
                                          struct mr_task_options *task, struct mr_detail *detail);
/* Why the broker did not take it, where more can be said than its error says. */
bool mr_task_refusal(const struct mr_task_options *task, const struct mr_enqueue_result *result,
                     struct mr_detail *detail);
/* {"id","state"} or {"id","error"}; id: as the producer gave it; why: of an error. */
void mr_task_answer_json(struct jw *jw, struct mr_slice id, const struct mr_enqueue_result *result,
                         const char *why);

#endif
