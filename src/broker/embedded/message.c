/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/embedded/message.h"

struct mr_uuid message_unique_key(struct mr_hash_key key, const struct mr_task_msg *msg)
{
    uint8_t bytes[2 * (MR_NAME_MAX + 1) + 1 + MR_NAME_MAX + sizeof(struct mr_uuid)];
    size_t n = 0;
    memcpy(bytes, msg->queue.data, msg->queue.len);
    n += msg->queue.len;
    bytes[n++] = '\0';
    if (msg->unique_key.len > 0) {
        bytes[n++] = 'k';
        memcpy(bytes + n, msg->unique_key.data, msg->unique_key.len);
        n += msg->unique_key.len;
    } else {
        struct mr_uuid payload = mr_hash128(key, msg->payload);
        bytes[n++] = 'p';
        memcpy(bytes + n, msg->type.data, msg->type.len);
        n += msg->type.len;
        bytes[n++] = '\0';
        memcpy(bytes + n, &payload, sizeof payload);
        n += sizeof payload;
    }
    return mr_hash128(key, mr_slice_make(bytes, n));
}

enum mr_err message_split_copy(struct mr_slice body, struct mr_entry *ret_entry,
                               int64_t *ret_created_ms, struct mr_slice *ret_message)
{
    if (body.len < COPY_HEAD)
        return MR_DAMAGED;
    struct mr_slice rest =
        mr_slice_make((const uint8_t *)body.data + COPY_HEAD, body.len - COPY_HEAD);
    MR_TRY(mr_entry_decode(&rest, ret_entry));
    *ret_created_ms = (int64_t)mr_load64(body.data);
    *ret_message = rest;
    return MR_OK;
}

enum mr_err message_split(const struct mr_record *record, const struct mr_uuid *id,
                          int64_t *ret_created_ms, struct mr_slice *ret_message)
{
    struct mr_entry entry = {0};
    struct mr_event_task event = {0};
    const struct mr_uuid *found;
    if (record->type == MR_RECORD_TASK) {
        MR_TRY(mr_event_task_decode(record->body, &event, ret_message));
        *ret_created_ms = event.created_ms;
        found = &event.id;
    } else if (record->type == MR_RECORD_COPY || record->type == MR_RECORD_CARRIED) {
        MR_TRY(message_split_copy(record->body, &entry, ret_created_ms, ret_message));
        found = &entry.id;
    } else if (record->type == MR_RECORD_GATHERED) {
        struct mr_slice ids;
        MR_TRY(mr_event_gathered_decode(record->body, &event, &ids, ret_message));
        *ret_created_ms = event.created_ms;
        found = &event.id;
    } else if (record->type == MR_RECORD_RESULT) {
        struct mr_event_result result;
        MR_TRY(mr_event_result_decode(record->body, &result, ret_message));
        event = result.task;
        *ret_created_ms = event.created_ms;
        found = &event.id;
    } else {
        return MR_DAMAGED;
    }
    return memcmp(found, id, sizeof *id) == 0 ? MR_OK : MR_DAMAGED;
}

enum mr_err message_note(const struct mr_record *record, struct mr_event_change *ret_change)
{
    struct mr_event_result result;
    struct mr_slice message;
    if (record->type != MR_RECORD_RESULT)
        return mr_event_change_decode(record->body, ret_change);
    MR_TRY(mr_event_result_decode(record->body, &result, &message));
    *ret_change = result.change;
    return MR_OK;
}

enum mr_err message_fill(const struct mr_task_msg *msg, const struct mr_uuid *id, bool is_uuid,
                         char text[MR_UUID_TEXT_LEN + 1], struct mr_task *task)
{
    if (is_uuid)
        mr_uuid_format(id, text);
    else if (msg->id.len == 0)
        return MR_DAMAGED;
    task->id = is_uuid ? mr_slice_make(text, MR_UUID_TEXT_LEN) : msg->id;
    task->queue = msg->queue;
    task->type = msg->type;
    task->payload = msg->payload;
    task->unique_key = msg->unique_key;
    task->group = msg->group;
    task->topic = msg->topic;
    task->key = msg->key;
    task->priority_s = (double)msg->priority_ms / 1000.0;
    task->max_retry = msg->max_retry;
    task->timeout_ms = msg->timeout_ms;
    task->deadline_ms = msg->deadline_ms;
    task->retention_ms = msg->retention_ms;
    return MR_OK;
}
