/* SPDX-License-Identifier: Apache-2.0 */
/* A task of another broker as carry.lua wants it: what says how it stood there. */
#include <stdio.h>

#include "broker/redis/internal.h"

struct list {
    struct mr_arena *arena;
    struct mr_slice *args;
    size_t n;
};

static enum mr_err add_text(struct list *list, const char *name, struct mr_slice value)
{
    list->args[list->n++] = mr_slice_str(name);
    list->args[list->n++] = value;
    return MR_OK;
}

static enum mr_err number_of(struct list *list, int64_t number, struct mr_slice *ret_text)
{
    char text[NUMBER_MAX];
    return mr_arena_copy(list->arena, number_arg(number, text), ret_text);
}

static enum mr_err add_number(struct list *list, const char *name, int64_t number)
{
    struct mr_slice value;
    MR_TRY(number_of(list, number, &value));
    return add_text(list, name, value);
}

/* The failures so far left their results where it comes from. */
static enum mr_err add_failures(struct list *list, const struct mr_task *task)
{
    char text[2 * NUMBER_MAX];
    struct mr_slice value;
    int len = snprintf(text, sizeof text, "%u %lld", task->retried,
                       (long long)(task->last_failed_ms / MR_MS_PER_S));
    MR_TRY(mr_arena_copy(list->arena, mr_slice_make(text, (size_t)len), &value));
    return add_text(list, "mr:v", value);
}

/* Its last run: here the epoch would not say when it began. */
static enum mr_err add_run(struct list *list, const struct mr_task *task)
{
    char text[2 * NUMBER_MAX];
    struct mr_slice value;
    int len = snprintf(text, sizeof text, "%llu %lld", (unsigned long long)mr_carried_epoch(task),
                       (long long)task->started_ms);
    MR_TRY(mr_arena_copy(list->arena, mr_slice_make(text, (size_t)len), &value));
    return add_text(list, "mr:s", value);
}

static bool is_timed(const struct mr_task *task)
{
    return task->state == MR_SCHEDULED || task->state == MR_RETRY;
}

static enum mr_err add_fields(struct list *list, const struct mr_task *task)
{
    const int64_t ns = MR_NS_PER_MS;
    bool ended = task->state == MR_ARCHIVED || task->state == MR_COMPLETED;
    MR_TRY(add_number(list, "mr:t", task->created_ms * ns));
    if (!is_timed(task) && task->order_time_ms != task->created_ms)
        MR_TRY(add_number(list, "mr:o", task->order_time_ms * ns));
    if (is_timed(task))
        MR_TRY(add_number(list, "mr:w", task->due_ms));
    if (task->state == MR_COMPLETED)
        MR_TRY(add_number(list, "mr:w", task->finished_ms + task->retention_ms));
    if (ended)
        MR_TRY(add_number(list, "mr:f", task->finished_ms));
    if (task->crashes > 0)
        MR_TRY(add_number(list, "mr:c", task->crashes));
    if (task->cancel_requested)
        MR_TRY(add_number(list, "mr:x", 1));
    if (task->last_failed_ms > 0)
        MR_TRY(add_number(list, "mr:l", task->last_failed_ms));
    if (task->topic.len > 0)
        MR_TRY(add_failures(list, task));
    if (mr_carried_epoch(task) > 0)
        MR_TRY(add_run(list, task));
    if (task->state == MR_COMPLETED)
        MR_TRY(add_text(list, "result", task->result));
    if (task->state == MR_AGGREGATING)
        MR_TRY(add_text(list, "group", task->group));
    return MR_OK;
}

enum mr_err carry_args(struct mr_arena *arena, const struct mr_task *task,
                       const struct new_task *made, struct mr_slice *args, size_t *n)
{
    bool waits = task->state != MR_ARCHIVED && task->state != MR_COMPLETED;
    struct mr_slice *head = args + *n;
    struct list list = {.arena = arena, .args = head, .n = CARRY_ARGS};
    head[0] = made->id;
    head[1] = made->message;
    head[2] = mr_slice_str(mr_state_name(task->state));
    head[3] = made->lock;
    MR_TRY(number_of(&list, task->unique_until_ms, &head[4]));
    head[5] = mr_slice_str(waits ? "1" : "0");
    MR_TRY(number_of(&list, task->order_time_ms, &head[6]));
    MR_TRY(number_of(&list, (int64_t)mr_carried_epoch(task), &head[7]));
    memcpy(head + list.n, made->fields, made->fields_n * sizeof *head);
    list.n += made->fields_n;
    MR_TRY(add_fields(&list, task));
    MR_TRY(number_of(&list, (int64_t)(list.n - CARRY_ARGS), &head[8]));
    *n += list.n;
    return MR_OK;
}
