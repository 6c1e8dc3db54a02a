/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pb.h"

#include <string.h>

#include "base/id.h"

/* ---- bytes and text ------------------------------------------------------------------------- */

static void *arena_alloc(void *arena, size_t size)
{
    return mr_arena_alloc(arena, size);
}

static void arena_free(void *arena, void *memory)
{
    (void)arena, (void)memory; /* all at once, with the arena */
}

ProtobufCAllocator mr_pb_allocator(struct mr_arena *arena)
{
    return (ProtobufCAllocator){.alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
}

enum mr_err mr_pb_decode(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                         struct mr_arena *arena, ProtobufCMessage **ret_message)
{
    ProtobufCAllocator allocator = mr_pb_allocator(arena);
    ProtobufCMessage *message =
        protobuf_c_message_unpack(kind, &allocator, bytes.len, (const uint8_t *)bytes.data);
    if (message == NULL)
        return MR_INVALID;
    *ret_message = message;
    return MR_OK;
}

enum mr_err mr_pb_encode(const ProtobufCMessage *message, struct mr_buf *buf)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    MR_TRY(mr_buf_reserve(buf, size));
    buf->len += protobuf_c_message_pack(message, buf->data + buf->len);
    return MR_OK;
}

struct mr_slice mr_pb_text(const char *text)
{
    return text == NULL ? mr_slice_make(NULL, 0) : mr_slice_make(text, strlen(text));
}

struct mr_slice mr_pb_bytes(ProtobufCBinaryData bytes)
{
    return mr_slice_make(bytes.data, bytes.len);
}

ProtobufCBinaryData mr_pb_of_bytes(struct mr_slice bytes)
{
    return (ProtobufCBinaryData){.len = bytes.len, .data = (uint8_t *)(uintptr_t)bytes.data};
}

char *mr_pb_of_text(struct mr_arena *arena, struct mr_slice text)
{
    struct mr_slice copy;
    if (text.len == 0)
        return (char *)(uintptr_t)protobuf_c_empty_string;
    if (mr_arena_copy(arena, text, &copy) != MR_OK)
        return NULL;
    return (char *)(uintptr_t)copy.data;
}

enum mr_err mr_pb_code(int code)
{
    return code >= 0 && code < MR_ERR_COUNT ? (enum mr_err)code : MR_FAILED;
}

/* Copies into a field of the public structs that ends with a NUL; cut where it does not fit. */
static void put_text(char *field, size_t size, const char *text)
{
    struct mr_slice from = mr_pb_text(text);
    size_t len = from.len < size ? from.len : size - 1;
    if (len > 0)
        memcpy(field, from.data, len);
    field[len] = '\0';
}

/* Several texts of one message; false when memory ran out on the way. */
struct texts {
    struct mr_arena *arena;
    bool failed;
};

static char *text_of(struct texts *texts, struct mr_slice text)
{
    char *copy = mr_pb_of_text(texts->arena, text);
    texts->failed |= copy == NULL;
    return copy;
}

/* ---- headers -------------------------------------------------------------------------------- */

static enum mr_err headers_from(Millrace__V1__Header *const *messages, size_t n,
                                struct mr_arena *arena, const struct mr_header **ret_headers)
{
    *ret_headers = NULL;
    if (n == 0)
        return MR_OK;
    struct mr_header *headers = mr_arena_calloc(arena, n, sizeof *headers);
    if (headers == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++)
        headers[i] =
            (struct mr_header){mr_pb_text(messages[i]->name), mr_pb_bytes(messages[i]->value)};
    *ret_headers = headers;
    return MR_OK;
}

static enum mr_err headers_to(const struct mr_header *headers, size_t n, struct texts *texts,
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

/* ---- what a producer says ------------------------------------------------------------------- */

enum mr_err mr_pb_new_task(const Millrace__V1__NewTask *message, struct mr_arena *arena,
                           struct mr_task_options *ret_options)
{
    if ((unsigned)message->on_duplicate > MR_DUPLICATE_REPLACE)
        return MR_INVALID;
    *ret_options = (struct mr_task_options){
        .queue = mr_pb_text(message->queue),
        .type = mr_pb_text(message->type),
        .payload = mr_pb_bytes(message->payload),
        .id = mr_pb_text(message->id),
        .priority_s = message->priority,
        .delay_ms = message->delay_ms,
        .at_ms = message->at_ms,
        .max_retry = message->max_retry,
        .timeout_ms = message->timeout_ms,
        .deadline_ms = message->deadline_ms,
        .retention_ms = message->retention_ms,
        .unique_ms = message->unique_ms,
        .unique_key = mr_pb_text(message->unique_key),
        .on_duplicate = (enum mr_on_duplicate)message->on_duplicate,
        .group = mr_pb_text(message->group),
        .topic = mr_pb_text(message->topic),
        .headers_n = message->n_headers,
    };
    return headers_from(message->headers, message->n_headers, arena, &ret_options->headers);
}

enum mr_err mr_pb_of_new_task(const struct mr_task_options *options, struct mr_arena *arena,
                              Millrace__V1__NewTask *ret_message)
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
    ret_message->n_headers = options->headers_n;
    MR_TRY(headers_to(options->headers, options->headers_n, &texts, &ret_message->headers));
    return texts.failed ? MR_NOMEM : MR_OK;
}

/* ---- what is known of a task ---------------------------------------------------------------- */

enum mr_err mr_pb_task(const Millrace__V1__Task *message, struct mr_arena *arena,
                       struct mr_task *ret_task)
{
    if ((unsigned)message->state >= MR_STATE_COUNT)
        return MR_INVALID;
    *ret_task = (struct mr_task){
        .id = mr_pb_text(message->id),
        .queue = mr_pb_text(message->queue),
        .type = mr_pb_text(message->type),
        .payload = mr_pb_bytes(message->payload),
        .unique_key = mr_pb_text(message->unique_key),
        .group = mr_pb_text(message->group),
        .topic = mr_pb_text(message->topic),
        .node = mr_pb_text(message->node),
        .last_error = mr_pb_bytes(message->last_error),
        .result = mr_pb_bytes(message->result),
        .progress = mr_pb_text(message->progress),
        .headers_n = message->n_headers,
        .state = (enum mr_state)message->state,
        .priority_s = message->priority,
        .order_time_ms = message->order_time_ms,
        .attempt = message->attempt,
        .retried = message->retried,
        .max_retry = message->max_retry,
        .crashes = message->crashes,
        .epoch = message->epoch,
        .timeout_ms = message->timeout_ms,
        .deadline_ms = message->deadline_ms,
        .retention_ms = message->retention_ms,
        .created_ms = message->created_ms,
        .due_ms = message->due_ms,
        .started_ms = message->started_ms,
        .finished_ms = message->finished_ms,
        .last_failed_ms = message->last_failed_ms,
        .cancel_requested = message->cancel_requested,
    };
    return headers_from(message->headers, message->n_headers, arena, &ret_task->headers);
}

static void task_numbers(const struct mr_task *task, Millrace__V1__Task *message)
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
}

enum mr_err mr_pb_of_task(const struct mr_task *task, struct mr_arena *arena,
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

/* ---- answers -------------------------------------------------------------------------------- */

void mr_pb_enqueue_result(const Millrace__V1__EnqueueResult *message,
                          struct mr_enqueue_result *ret_result)
{
    ret_result->err = mr_pb_code((int)message->code);
    ret_result->state =
        (unsigned)message->state < MR_STATE_COUNT ? (enum mr_state)message->state : MR_STATE_NONE;
    put_text(ret_result->id, sizeof ret_result->id, message->id);
}

enum mr_err mr_pb_of_enqueue_result(const struct mr_enqueue_result *result, struct mr_arena *arena,
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

void mr_pb_queue(const Millrace__V1__Queue *message, struct mr_queue_info *ret_info)
{
    *ret_info = (struct mr_queue_info){
        .counts = {[MR_PENDING] = message->pending,
                   [MR_ACTIVE] = message->active,
                   [MR_SCHEDULED] = message->scheduled,
                   [MR_RETRY] = message->retry,
                   [MR_ARCHIVED] = message->archived,
                   [MR_COMPLETED] = message->completed},
        .paused = message->paused,
        .oldest_pending_ms = message->oldest_pending_ms,
        .processed_total = message->processed_total,
        .failed_total = message->failed_total,
        .processed_today = message->processed_today,
        .failed_today = message->failed_today,
        .max_length = message->max_length,
    };
    put_text(ret_info->name, sizeof ret_info->name, message->queue);
}

enum mr_err mr_pb_of_queue(const struct mr_queue_info *info, struct mr_arena *arena,
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
    return ret_message->queue == NULL ? MR_NOMEM : MR_OK;
}
