/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/hidden.h"

bool mr_queue_is_inner(struct mr_slice name)
{
    return name.len > 1 && *(const char *)name.data == MR_INNER_QUEUE_MARK;
}

struct mr_slice mr_queue_shown(struct mr_slice name)
{
    const char *text = name.data;
    bool marked = name.len > 0 && (*text == MR_INNER_QUEUE_MARK || *text == MR_RESULT_QUEUE_MARK);
    return marked ? mr_slice_make(text + 1, name.len - 1) : name;
}

enum mr_err mr_inner_task_check(const struct mr_task_options *task, size_t payload_max)
{
    struct mr_task_options rest = *task;
    if (!mr_queue_is_inner(task->queue))
        return MR_INVALID;
    rest.queue = mr_queue_shown(task->queue);
    return mr_task_options_check(&rest, payload_max + MR_INNER_MORE, NULL);
}
