/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of the public header as messages of protobuf-c: a second way to the same bytes, field by
 * field, that wire/flat.h is held against. What is made lives as long as its source and the arena.
 */
#ifndef MR_TESTS_PB_OF_H
#define MR_TESTS_PB_OF_H

#include "base/buf.h"
#include "wire/pb.h"

/* Appends the encoding. */
static inline enum mr_err pb_encode(const ProtobufCMessage *message, struct mr_buf *buf)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    MR_TRY(mr_buf_reserve(buf, size));
    buf->len += protobuf_c_message_pack(message, buf->data + buf->len);
    return MR_OK;
}

/* Several texts of one message; false when memory ran out on the way. */
struct texts {
    struct mr_arena *arena;
    bool failed;
};

static inline char *text_of(struct texts *texts, struct mr_slice text)
{
    char *copy = mr_pb_of_text(texts->arena, text);
    texts->failed |= copy == NULL;
    return copy;
}

static inline enum mr_err headers_to(const struct mr_header *headers, size_t n, struct texts *texts,
                                     Millrace__V1__Header ***ret_messages)
{
    *ret_messages = NULL;
    if (n == 0)
        return MR_OK;
    Millrace__V1__Header **list = mr_arena_calloc(texts->arena, n, sizeof *list);
    Millrace__V1__Header *messages = mr_arena_calloc(texts->arena, n, sizeof *messages);
    if (list == NULL || messages == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        millrace__v1__header__init(&messages[i]);
        messages[i].name = text_of(texts, headers[i].name);
        messages[i].value = mr_pb_of_bytes(headers[i].value);
        list[i] = &messages[i];
    }
    *ret_messages = list;
    return MR_OK;
}

static inline enum mr_err pb_of_new_task(const struct mr_task_options *options,
                                         struct mr_arena *arena, Millrace__V1__NewTask *ret_message)
{
    struct texts texts = {.arena = arena};
    millrace__v1__new_task__init(ret_message);
    ret_message->queue = text_of(&texts, options->queue);
    ret_message->type = text_of(&texts, options->type);
    ret_message->payload = mr_pb_of_bytes(options->payload);
    ret_message->id = text_of(&texts, options->id);
    ret_message->priority = options->priority_s;
    ret_message->delay_ms = options->delay_ms;
    ret_message->at_ms = options->at_ms;
    ret_message->max_retry = options->max_retry;
    ret_message->timeout_ms = options->timeout_ms;
    ret_message->deadline_ms = options->deadline_ms;
    ret_message->retention_ms = options->retention_ms;
    ret_message->unique_ms = options->unique_ms;
    ret_message->unique_key = text_of(&texts, options->unique_key);
    ret_message->on_duplicate = (Millrace__V1__OnDuplicate)options->on_duplicate;
    ret_message->group = text_of(&texts, options->group);
    ret_message->topic = text_of(&texts, options->topic);
    ret_message->key = text_of(&texts, options->key);
    ret_message->partition = options->partition;
    ret_message->n_headers = options->headers_n;
    MR_TRY(headers_to(options->headers, options->headers_n, &texts, &ret_message->headers));
    return texts.failed ? MR_NOMEM : MR_OK;
}

static inline void task_numbers(const struct mr_task *task, Millrace__V1__Task *message)
{
    message->state = (Millrace__V1__State)task->state;
    message->priority = task->priority_s;
    message->order_time_ms = task->order_time_ms;
    message->attempt = task->attempt;
    message->retried = task->retried;
    message->max_retry = task->max_retry;
    message->crashes = task->crashes;
    message->epoch = task->epoch;
    message->timeout_ms = task->timeout_ms;
    message->deadline_ms = task->deadline_ms;
    message->retention_ms = task->retention_ms;
    message->created_ms = task->created_ms;
    message->due_ms = task->due_ms;
    message->started_ms = task->started_ms;
    message->finished_ms = task->finished_ms;
    message->last_failed_ms = task->last_failed_ms;
    message->cancel_requested = task->cancel_requested;
    message->partition = task->partition;
}

static inline enum mr_err pb_of_task(const struct mr_task *task, struct mr_arena *arena,
                                     Millrace__V1__Task *ret_message)
{
    struct texts texts = {.arena = arena};
    millrace__v1__task__init(ret_message);
    task_numbers(task, ret_message);
    ret_message->id = text_of(&texts, task->id);
    ret_message->queue = text_of(&texts, task->queue);
    ret_message->type = text_of(&texts, task->type);
    ret_message->payload = mr_pb_of_bytes(task->payload);
    ret_message->unique_key = text_of(&texts, task->unique_key);
    ret_message->group = text_of(&texts, task->group);
    ret_message->topic = text_of(&texts, task->topic);
    ret_message->node = text_of(&texts, task->node);
    ret_message->progress = text_of(&texts, task->progress);
    ret_message->last_error = mr_pb_of_bytes(task->last_error);
    ret_message->result = mr_pb_of_bytes(task->result);
    ret_message->n_headers = task->headers_n;
    MR_TRY(headers_to(task->headers, task->headers_n, &texts, &ret_message->headers));
    return texts.failed ? MR_NOMEM : MR_OK;
}

static inline enum mr_err pb_of_enqueue_result(const struct mr_enqueue_result *result,
                                               struct mr_arena *arena,
                                               Millrace__V1__EnqueueResult *ret_message)
{
    millrace__v1__enqueue_result__init(ret_message);
    ret_message->id = mr_pb_of_text(arena, mr_slice_str(result->id));
    ret_message->state = (Millrace__V1__State)result->state;
    ret_message->code = (Millrace__V1__Code)result->err;
    if (result->err != MR_OK)
        ret_message->message = (char *)(uintptr_t)mr_err_text(result->err);
    return ret_message->id == NULL ? MR_NOMEM : MR_OK;
}

static inline enum mr_err pb_of_queue(const struct mr_queue_info *info, struct mr_arena *arena,
                                      Millrace__V1__Queue *ret_message)
{
    millrace__v1__queue__init(ret_message);
    ret_message->queue = mr_pb_of_text(arena, mr_slice_str(info->name));
    ret_message->pending = info->counts[MR_PENDING];
    ret_message->active = info->counts[MR_ACTIVE];
    ret_message->scheduled = info->counts[MR_SCHEDULED];
    ret_message->retry = info->counts[MR_RETRY];
    ret_message->archived = info->counts[MR_ARCHIVED];
    ret_message->completed = info->counts[MR_COMPLETED];
    ret_message->paused = info->paused;
    ret_message->oldest_pending_ms = info->oldest_pending_ms;
    ret_message->processed_total = info->processed_total;
    ret_message->failed_total = info->failed_total;
    ret_message->processed_today = info->processed_today;
    ret_message->failed_today = info->failed_today;
    ret_message->max_length = info->max_length;
    ret_message->wait_p50_us = info->wait_p50_us;
    ret_message->wait_p99_us = info->wait_p99_us;
    ret_message->run_p50_us = info->run_p50_us;
    ret_message->run_p99_us = info->run_p99_us;
    ret_message->aggregating = info->counts[MR_AGGREGATING];
    ret_message->partitions = info->partitions;
    ret_message->assign = (Millrace__V1__Assign)info->assign;
    ret_message->trimmed = info->trimmed;
    ret_message->quarantined = info->quarantined;
    return ret_message->queue == NULL ? MR_NOMEM : MR_OK;
}

#endif
