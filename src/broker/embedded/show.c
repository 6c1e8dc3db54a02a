/* SPDX-License-Identifier: Apache-2.0 */
/* A task as people see it: what the index knows and what its records say, copied into an arena. */
#include <stdio.h>

#include "broker/embedded/engine.h"

/* The message and its headers as a copy; slices of the task point into it. */
static enum mr_err copy_message(struct mr_engine *engine, const struct task *task,
                                bool with_payload, struct mr_arena *arena, struct mr_task *out)
{
    struct mr_task_msg msg;
    struct mr_slice bytes, copy;
    char *text = mr_arena_alloc(arena, MR_UUID_TEXT_LEN + 1);
    if (text == NULL)
        return MR_NOMEM;
    MR_TRY(read_message(engine, task, &out->created_ms, &msg, &bytes));
    if (!with_payload)
        bytes.len -= msg.payload.len; /* it stands last */
    MR_TRY(mr_arena_copy(arena, bytes, &copy));
    ptrdiff_t moved = (const uint8_t *)copy.data - (const uint8_t *)bytes.data;
    struct mr_slice *slices[] = {&msg.queue, &msg.type,  &msg.id,  &msg.payload, &msg.unique_key,
                                 &msg.group, &msg.topic, &msg.key, &msg.headers};
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
        if (slices[i]->len > 0)
            slices[i]->data = (const uint8_t *)slices[i]->data + moved;
    if (!with_payload)
        msg.payload = mr_slice_make(NULL, 0);
    if (msg.headers_n > 0) {
        struct mr_header *headers = mr_arena_calloc(arena, msg.headers_n, sizeof *headers);
        if (headers == NULL)
            return MR_NOMEM;
        mr_task_msg_headers(&msg, headers);
        out->headers = headers;
        out->headers_n = msg.headers_n;
    }
    return message_fill(&msg, &task->id, task->flags & MR_TASK_UUID, text, out);
}

/* The last result or error: the record says which. */
static enum mr_err copy_note(struct mr_engine *engine, const struct more *more,
                             struct mr_arena *arena, struct mr_task *out)
{
    if (more->note_size == 0)
        return MR_OK;
    struct mr_record record;
    struct mr_event_change change;
    enum mr_err err = mr_log_read(engine->log, more->note, more->note_size, &record);
    if (err == MR_OK)
        err = message_note(&record, &change);
    if (err == MR_DAMAGED) {
        out->last_error = MR_SLICE_LIT("(the record of the last outcome is damaged)");
        return MR_OK;
    }
    MR_TRY(err);
    struct mr_slice text;
    MR_TRY(mr_arena_copy(arena, change.text, &text));
    if (change.state == MR_COMPLETED && !change.dropped)
        out->result = text;
    else
        out->last_error = text;
    return MR_OK;
}

static enum mr_err copy_more(struct mr_engine *engine, const struct task *task,
                             struct mr_arena *arena, struct mr_task *out)
{
    const struct more *more = more_of(&engine->state, task);
    if (more == NULL)
        return MR_OK;
    out->epoch = more->epoch;
    bool held = task->flags & MR_TASK_HELD;
    out->started_ms = held || task->state == MR_ACTIVE || more->finished_ms ? more->started_ms : 0;
    out->finished_ms = more->finished_ms;
    out->last_failed_ms = more->failed_ms;
    out->unique_until_ms = more->unique_until_ms > engine->now_ms ? more->unique_until_ms : 0;
    if (task->flags & MR_TASK_REORDERED)
        out->priority_s = (double)more->priority_ms / 1000.0;
    if (task->state != MR_PENDING && more->order_ms != 0)
        out->order_time_ms = more->order_ms;
    if (task->state == MR_ACTIVE && more->node != 0) {
        const char *name = engine->nodes_by_number[more->node]->name;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(name, strlen(name)), &out->node));
    }
    if (more->percent >= 0) {
        char text[8 + MR_PROGRESS_TEXT_MAX];
        int len = snprintf(text, sizeof text, "%d%s%s", (int)more->percent,
                           more->progress ? " " : "", more->progress ? more->progress : "");
        size_t used = (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(text, used), &out->progress));
    }
    return copy_note(engine, more, arena, out);
}

/* A task whose record is damaged is shown with what the index knows. */
static enum mr_err copy_damaged(struct mr_engine *engine, const struct task *task,
                                struct mr_arena *arena, struct mr_task *out)
{
    char text[2 * sizeof task->id.bytes + 1];
    if (task->flags & MR_TASK_UUID) {
        char uuid[MR_UUID_TEXT_LEN + 1];
        mr_uuid_format(&task->id, uuid);
        MR_TRY(mr_arena_copy(arena, mr_slice_make(uuid, MR_UUID_TEXT_LEN), &out->id));
    } else {
        for (size_t i = 0; i < sizeof task->id.bytes; i++)
            snprintf(text + 2 * i, 3, "%02x", task->id.bytes[i]);
        MR_TRY(mr_arena_copy(arena, mr_slice_make(text, sizeof text - 1), &out->id));
    }
    const struct queue *queue = queue_of(&engine->state, task);
    MR_TRY(mr_arena_copy(arena, mr_slice_make(queue->name, queue->name_len), &out->queue));
    out->max_retry = task->max_retry;
    return MR_OK;
}

enum mr_err show_task(struct mr_engine *engine, uint32_t handle, bool with_payload,
                      struct mr_arena *arena, struct mr_task *ret_task)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_task out = {.state = task->state};
    bool by_due = task->state == MR_SCHEDULED || task->state == MR_RETRY;
    out.order_time_ms = task->key;
    out.due_ms = by_due ? task->key : 0;
    out.retried = task->retried;
    out.crashes = task->crashes;
    out.partition = task->part + 1u;
    out.attempt = 1u + task->retried + task->crashes;
    out.cancel_requested = task->flags & MR_TASK_CANCEL;
    out.held = task->flags & MR_TASK_HELD;
    enum mr_err err = copy_message(engine, task, with_payload, arena, &out);
    if (err == MR_DAMAGED)
        err = copy_damaged(engine, task, arena, &out);
    MR_TRY(err);
    MR_TRY(copy_more(engine, task, arena, &out));
    *ret_task = out;
    return MR_OK;
}

/* Its last change will never be durable here: the store has stopped. */
static bool undecided(const struct mr_engine *engine, uint32_t handle)
{
    return mr_log_failure(engine->log) != MR_OK && task_at(&engine->state, handle)->limbo;
}

enum mr_err show_known_task(struct mr_engine *engine, uint32_t handle, struct mr_arena *arena,
                            struct mr_task *ret_task)
{
    if (handle == NO_HANDLE)
        return MR_NOT_FOUND;
    return undecided(engine, handle) ? MR_IO : show_task(engine, handle, true, arena, ret_task);
}
