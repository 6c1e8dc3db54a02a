/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/doubt.h"

enum { REPEAT_RETENTION_MS = 60000 }; /* a task kept so long can be enqueued again without doubt */

enum mr_err mr_doubt_id(const struct mr_task_options *task, size_t payload_max, mr_wall now,
                        struct mr_enqueue_result *ret_result)
{
    ret_result->id[0] = '\0';
    ret_result->state = MR_STATE_NONE;
    ret_result->unknown = false;
    MR_TRY(mr_task_options_check(task, payload_max, NULL));
    if (task->id.len > 0) {
        memcpy(ret_result->id, task->id.data, task->id.len);
        ret_result->id[task->id.len] = '\0';
    } else {
        struct mr_uuid uuid;
        mr_uuid_make(&uuid, now, mr_rand_of_thread());
        mr_uuid_format(&uuid, ret_result->id);
    }
    return MR_OK;
}

bool mr_doubt_none(const struct mr_task_options *task)
{
    return task->id.len == 0 && task->retention_ms >= REPEAT_RETENTION_MS;
}

void mr_doubt_ends(const struct mr_task_options *task, struct mr_enqueue_result *result)
{
    if (result->err == MR_CONFLICT && task->id.len == 0)
        result->err = MR_OK; /* ours, of the first try */
}
