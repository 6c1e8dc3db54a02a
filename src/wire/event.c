/* SPDX-License-Identifier: Apache-2.0 */
/* See event.h. Encoders write what is known to be right; decoders check every length and range. */
#include "wire/event.h"

#include "wire/record.h"

static void put_uuid(uint8_t *at, const struct mr_uuid *uuid)
{
    memcpy(at, uuid->bytes, sizeof uuid->bytes);
}

static void get_uuid(const uint8_t *at, struct mr_uuid *uuid)
{
    memcpy(uuid->bytes, at, sizeof uuid->bytes);
}

static bool state_known(uint8_t state)
{
    return state < MR_STATE_COUNT;
}

void mr_event_place_encode(uint16_t queue, uint8_t part, uint8_t bytes[4])
{
    mr_store16(bytes, queue);
    bytes[2] = part;
    bytes[3] = 0;
}

bool mr_event_place_decode(const uint8_t bytes[4], uint16_t *ret_queue, uint8_t *ret_part)
{
    *ret_queue = mr_load16(bytes);
    *ret_part = bytes[2];
    return bytes[2] < MR_PARTITIONS_MAX && bytes[3] == 0;
}

void mr_event_task_encode(const struct mr_event_task *event, uint8_t bytes[MR_EVENT_TASK_SIZE])
{
    put_uuid(bytes, &event->id);
    mr_store64(bytes + 16, (uint64_t)event->key);
    mr_store64(bytes + 24, (uint64_t)event->created_ms);
    mr_event_place_encode(event->queue, event->part, bytes + 32);
    mr_store16(bytes + 36, event->max_retry);
    bytes[38] = event->state;
    bytes[39] = event->flags;
}

enum mr_err mr_event_task_decode(struct mr_slice body, struct mr_event_task *ret_event,
                                 struct mr_slice *ret_message)
{
    const uint8_t *bytes = body.data;
    if (body.len < MR_EVENT_TASK_SIZE ||
        (bytes[38] != MR_SCHEDULED && bytes[38] != MR_PENDING && bytes[38] != MR_AGGREGATING) ||
        !mr_event_place_decode(bytes + 32, &ret_event->queue, &ret_event->part))
        return MR_DAMAGED;
    get_uuid(bytes, &ret_event->id);
    ret_event->key = (int64_t)mr_load64(bytes + 16);
    ret_event->created_ms = (int64_t)mr_load64(bytes + 24);
    ret_event->max_retry = mr_load16(bytes + 36);
    ret_event->state = bytes[38];
    ret_event->flags = bytes[39];
    *ret_message = mr_slice_make(bytes + MR_EVENT_TASK_SIZE, body.len - MR_EVENT_TASK_SIZE);
    return MR_OK;
}

void mr_event_gathered_encode(const struct mr_event_task *event, size_t n, uint8_t *bytes)
{
    mr_event_task_encode(event, bytes);
    mr_store32(bytes + MR_EVENT_TASK_SIZE, (uint32_t)n);
    mr_store32(bytes + MR_EVENT_TASK_SIZE + 4, 0);
}

enum mr_err mr_event_gathered_decode(struct mr_slice body, struct mr_event_task *ret_event,
                                     struct mr_slice *ret_ids, struct mr_slice *ret_message)
{
    struct mr_slice rest;
    MR_TRY(mr_event_task_decode(body, ret_event, &rest));
    const uint8_t *bytes = rest.data;
    if (rest.len < MR_EVENT_GATHERED_HEAD || ret_event->state == MR_AGGREGATING)
        return MR_DAMAGED;
    size_t n = mr_load32(bytes);
    rest = mr_slice_make(bytes + MR_EVENT_GATHERED_HEAD, rest.len - MR_EVENT_GATHERED_HEAD);
    if (n == 0 || n > rest.len / sizeof(struct mr_uuid))
        return MR_DAMAGED;
    size_t len = n * sizeof(struct mr_uuid);
    *ret_ids = mr_slice_make(rest.data, len);
    *ret_message = mr_slice_make((const uint8_t *)rest.data + len, rest.len - len);
    return MR_OK;
}

void mr_event_run_encode(const struct mr_event_run *event, uint8_t bytes[MR_EVENT_RUN_SIZE])
{
    put_uuid(bytes, &event->id);
    mr_store64(bytes + 16, event->epoch);
}

enum mr_err mr_event_runs_decode(struct mr_slice body, int64_t *ret_ms, size_t *ret_n)
{
    if (body.len <= MR_EVENT_RUNS_TIME)
        return MR_DAMAGED;
    size_t runs = body.len - MR_EVENT_RUNS_TIME;
    if (runs % MR_EVENT_RUN_SIZE != 0)
        return MR_DAMAGED;
    *ret_ms = (int64_t)mr_load64((const uint8_t *)body.data + runs);
    *ret_n = runs / MR_EVENT_RUN_SIZE;
    return MR_OK;
}

struct mr_event_run mr_event_run_at(struct mr_slice body, size_t i)
{
    const uint8_t *bytes = (const uint8_t *)body.data + i * MR_EVENT_RUN_SIZE;
    struct mr_event_run run = {.epoch = mr_load64(bytes + 16)};
    get_uuid(bytes, &run.id);
    return run;
}

void mr_event_change_encode(const struct mr_event_change *event, uint8_t *bytes)
{
    put_uuid(bytes, &event->id);
    mr_store64(bytes + 16, event->epoch);
    mr_store64(bytes + 24, (uint64_t)event->key);
    mr_store64(bytes + 32, (uint64_t)event->order_ms);
    mr_store64(bytes + 40, (uint64_t)event->ms);
    mr_store16(bytes + 48, event->retried);
    bytes[50] = event->crashes;
    bytes[51] = event->state;
    bytes[52] = event->flags;
    bytes[53] = event->outcome;
    bytes[54] = event->dropped;
    bytes[55] = 0;
    if (event->text.len > 0)
        memcpy(bytes + MR_EVENT_CHANGE_SIZE, event->text.data, event->text.len);
}

enum mr_err mr_event_change_decode(struct mr_slice body, struct mr_event_change *ret_event)
{
    const uint8_t *bytes = body.data;
    if (body.len < MR_EVENT_CHANGE_SIZE || !state_known(bytes[51]))
        return MR_DAMAGED;
    get_uuid(bytes, &ret_event->id);
    ret_event->epoch = mr_load64(bytes + 16);
    ret_event->key = (int64_t)mr_load64(bytes + 24);
    ret_event->order_ms = (int64_t)mr_load64(bytes + 32);
    ret_event->ms = (int64_t)mr_load64(bytes + 40);
    ret_event->retried = mr_load16(bytes + 48);
    ret_event->crashes = bytes[50];
    ret_event->state = bytes[51];
    ret_event->flags = bytes[52];
    ret_event->outcome = bytes[53];
    ret_event->dropped = bytes[54];
    ret_event->text = mr_slice_make(bytes + MR_EVENT_CHANGE_SIZE, body.len - MR_EVENT_CHANGE_SIZE);
    return MR_OK;
}

enum {
    RESULT_AT_TASK = MR_EVENT_CHANGE_SIZE,
    RESULT_AT_TEXT = RESULT_AT_TASK + MR_EVENT_TASK_SIZE
};

void mr_event_result_encode(const struct mr_event_result *event,
                            uint8_t bytes[MR_EVENT_RESULT_SIZE])
{
    struct mr_event_change change = event->change;
    change.text.len = 0;
    mr_event_change_encode(&change, bytes);
    mr_event_task_encode(&event->task, bytes + RESULT_AT_TASK);
    mr_store32(bytes + RESULT_AT_TEXT, (uint32_t)event->change.text.len);
    mr_store32(bytes + RESULT_AT_TEXT + 4, event->type);
}

enum mr_err mr_event_result_decode(struct mr_slice body, struct mr_event_result *ret_event,
                                   struct mr_slice *ret_message)
{
    const uint8_t *bytes = body.data;
    if (body.len < MR_EVENT_RESULT_SIZE)
        return MR_DAMAGED;
    struct mr_slice message = mr_slice_make(bytes + MR_EVENT_RESULT_SIZE,
                                            body.len - MR_EVENT_RESULT_SIZE),
                    none;
    MR_TRY(mr_event_change_decode(mr_slice_make(bytes, MR_EVENT_CHANGE_SIZE), &ret_event->change));
    MR_TRY(mr_event_task_decode(mr_slice_make(bytes + RESULT_AT_TASK, MR_EVENT_TASK_SIZE),
                                &ret_event->task, &none));
    uint32_t text_len = mr_load32(bytes + RESULT_AT_TEXT),
             type = mr_load32(bytes + RESULT_AT_TEXT + 4);
    if ((type != MR_RECORD_FINISH && type != MR_RECORD_LOST) || text_len > message.len ||
        ret_event->task.state != MR_PENDING || ret_event->change.state == MR_ACTIVE)
        return MR_DAMAGED;
    ret_event->type = (uint8_t)type;
    ret_event->change.text =
        mr_slice_make((const uint8_t *)message.data + message.len - text_len, text_len);
    *ret_message = message;
    return MR_OK;
}

void mr_event_queue_encode(const struct mr_event_queue *event, uint8_t *bytes)
{
    mr_store32(bytes, event->number);
    bytes[4] = event->paused;
    bytes[5] = (uint8_t)event->name.len;
    bytes[6] = event->more_parts;
    bytes[7] = event->assign;
    mr_store64(bytes + 8, event->max_length);
    memcpy(bytes + MR_EVENT_QUEUE_SIZE, event->name.data, event->name.len);
    if (event->settings.len > 0)
        memcpy(bytes + MR_EVENT_QUEUE_SIZE + event->name.len, event->settings.data,
               event->settings.len);
}

enum mr_err mr_event_queue_decode(struct mr_slice body, struct mr_event_queue *ret_event)
{
    const uint8_t *bytes = body.data;
    if (body.len < MR_EVENT_QUEUE_SIZE || body.len < MR_EVENT_QUEUE_SIZE + (size_t)bytes[5] ||
        bytes[5] == 0 || bytes[5] > MR_NAME_MAX || bytes[6] >= MR_PARTITIONS_MAX ||
        bytes[7] >= MR_ASSIGN_COUNT)
        return MR_DAMAGED;
    ret_event->number = mr_load32(bytes);
    ret_event->paused = bytes[4];
    ret_event->more_parts = bytes[6];
    ret_event->assign = bytes[7];
    ret_event->max_length = mr_load64(bytes + 8);
    ret_event->name = mr_slice_make(bytes + MR_EVENT_QUEUE_SIZE, bytes[5]);
    size_t fixed = MR_EVENT_QUEUE_SIZE + ret_event->name.len;
    ret_event->settings = mr_slice_make(bytes + fixed, body.len - fixed);
    return MR_OK;
}

void mr_entry_more_encode(const struct mr_entry *entry, uint8_t *at)
{
    mr_store64(at, entry->epoch);
    mr_store32(at + 8, entry->note_segment);
    mr_store32(at + 12, entry->note_offset);
    mr_store32(at + 16, entry->note_size);
    mr_store64(at + 20, (uint64_t)entry->started_ms);
    mr_store64(at + 28, (uint64_t)entry->finished_ms);
    mr_store64(at + 36, (uint64_t)entry->failed_ms);
    mr_store64(at + 44, (uint64_t)entry->order_ms);
    mr_store64(at + 52, (uint64_t)entry->unique_until_ms);
    mr_store64(at + 60, (uint64_t)entry->priority_ms);
    put_uuid(at + 68, &entry->unique);
}

void mr_entry_more_decode(const uint8_t *at, struct mr_entry *entry)
{
    entry->epoch = mr_load64(at);
    entry->note_segment = mr_load32(at + 8);
    entry->note_offset = mr_load32(at + 12);
    entry->note_size = mr_load32(at + 16);
    entry->started_ms = (int64_t)mr_load64(at + 20);
    entry->finished_ms = (int64_t)mr_load64(at + 28);
    entry->failed_ms = (int64_t)mr_load64(at + 36);
    entry->order_ms = (int64_t)mr_load64(at + 44);
    entry->unique_until_ms = (int64_t)mr_load64(at + 52);
    entry->priority_ms = (int64_t)mr_load64(at + 60);
    get_uuid(at + 68, &entry->unique);
}

size_t mr_entry_encode(const struct mr_entry *entry, uint8_t bytes[MR_ENTRY_MAX])
{
    put_uuid(bytes, &entry->id);
    mr_store64(bytes + 16, (uint64_t)entry->key);
    mr_store64(bytes + 24, entry->tie);
    mr_store32(bytes + 32, entry->segment);
    mr_store32(bytes + 36, entry->offset);
    mr_store32(bytes + 40, entry->size);
    mr_event_place_encode(entry->queue, entry->part, bytes + 44);
    mr_store16(bytes + 48, entry->retried);
    mr_store16(bytes + 50, entry->max_retry);
    bytes[52] = entry->state;
    bytes[53] = entry->flags;
    bytes[54] = entry->crashes;
    bytes[55] = entry->has_more;
    if (!entry->has_more)
        return MR_ENTRY_SIZE;
    mr_entry_more_encode(entry, bytes + MR_ENTRY_SIZE);
    return MR_ENTRY_MAX;
}

bool mr_entry_state_ok(uint8_t state)
{
    return state != MR_STATE_NONE && state_known(state);
}

enum mr_err mr_entry_decode(struct mr_slice *bytes, struct mr_entry *ret_entry)
{
    const uint8_t *at = bytes->data;
    if (bytes->len < MR_ENTRY_SIZE || at[55] > 1 || !mr_entry_state_ok(at[52]))
        return MR_DAMAGED;
    size_t size = at[55] ? MR_ENTRY_MAX : MR_ENTRY_SIZE;
    if (bytes->len < size)
        return MR_DAMAGED;
    *ret_entry = (struct mr_entry){
        .key = (int64_t)mr_load64(at + 16),
        .tie = mr_load64(at + 24),
        .segment = mr_load32(at + 32),
        .offset = mr_load32(at + 36),
        .size = mr_load32(at + 40),
        .retried = mr_load16(at + 48),
        .max_retry = mr_load16(at + 50),
        .state = at[52],
        .flags = at[53],
        .crashes = at[54],
        .has_more = at[55],
    };
    get_uuid(at, &ret_entry->id);
    if (!mr_event_place_decode(at + 44, &ret_entry->queue, &ret_entry->part))
        return MR_DAMAGED;
    if (ret_entry->has_more)
        mr_entry_more_decode(at + MR_ENTRY_SIZE, ret_entry);
    *bytes = mr_slice_make(at + size, bytes->len - size);
    return MR_OK;
}
