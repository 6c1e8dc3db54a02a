/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task of another broker comes as it stood there. One record has all that the index knows of it and
 * its message; its last result or error stands right before, in a record that says nothing by itself.
 * So a crash leaves all of it, or nothing. It is held until somebody releases it.
 */
#include "broker/embedded/carry.h"

/* What is kept of how it went so far: a completed task has its result, if any. */
static struct mr_event_change text_of(const struct mr_task *carried, const struct item *item)
{
    bool result = carried->state == MR_COMPLETED && carried->result.len > 0;
    return (struct mr_event_change){
        .id = item->id,
        .state = (uint8_t)carried->state,
        .dropped = carried->state == MR_COMPLETED && !result,
        .text = result ? carried->result : carried->last_error,
    };
}

/* Its place in the order of its state. */
static int64_t key_of(const struct mr_task *carried)
{
    switch (carried->state) {
    case MR_SCHEDULED:
    case MR_RETRY:
        return carried->due_ms;
    case MR_ARCHIVED:
        return carried->finished_ms;
    case MR_COMPLETED:
        return carried->finished_ms + carried->retention_ms;
    default:
        return carried->order_time_ms;
    }
}

static struct mr_entry entry_for(const struct mr_engine *engine, const struct mr_task *carried,
                                 const struct item *item, const struct queue *queue, uint8_t part)
{
    bool ended = carried->state == MR_ARCHIVED || carried->state == MR_COMPLETED;
    bool keeps_key = !ended && carried->unique_until_ms > engine->now_ms &&
                     live_holder(engine, item) == NO_HANDLE;
    uint8_t flags = item->flags & (uint8_t)~MR_TASK_UNIQUE;
    flags |= MR_TASK_HELD;
    flags |= carried->cancel_requested ? MR_TASK_CANCEL : 0;
    int64_t key = key_of(carried);
    /* While it is held started_ms says since when, and priority_ms, which only one that was given another
     * priority has, keeps when its last run began. */
    struct mr_entry entry = {
        .id = item->id,
        .key = key,
        .queue = queue->number,
        .part = part,
        .retried = (uint16_t)carried->retried,
        .max_retry = item->max_retry,
        .state = (uint8_t)carried->state,
        .crashes = (uint8_t)(carried->crashes < MR_CRASHES_MAX ? carried->crashes : MR_CRASHES_MAX),
        .has_more = 1,
        .epoch = mr_carried_epoch(carried),
        .started_ms = engine->now_ms,
        .priority_ms = ended ? carried->started_ms : 0,
        .finished_ms = ended ? carried->finished_ms : 0,
        .failed_ms = carried->last_failed_ms,
        .order_ms = carried->order_time_ms != key ? carried->order_time_ms : 0,
    };
    if (item->flags & MR_TASK_UNIQUE) {
        entry.unique = item->unique;
        entry.unique_until_ms = carried->unique_until_ms;
        flags |= keeps_key ? MR_TASK_UNIQUE : 0;
    }
    entry.flags = flags;
    return entry;
}

static enum mr_err log_text(struct mr_engine *engine, const struct mr_event_change *change,
                            struct mr_entry *entry)
{
    size_t len = MR_EVENT_CHANGE_SIZE + change->text.len;
    struct mr_log_pos pos;
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    mr_event_change_encode(change, at);
    engine->appended_bytes += mr_record_size(len);
    mr_log_append(engine->log, MR_RECORD_TEXT, MR_LOG_LAZY, &pos);
    entry->note_segment = pos.segment;
    entry->note_offset = pos.offset;
    entry->note_size = (uint32_t)(MR_RECORD_HEADER + len);
    return MR_OK;
}

static enum mr_err log_carried(struct mr_engine *engine, const struct mr_task *carried,
                               const struct mr_entry *entry, struct mr_slice message)
{
    uint8_t head[COPY_HEAD + MR_ENTRY_MAX];
    mr_store64(head, (uint64_t)carried->created_ms);
    size_t head_len = COPY_HEAD + mr_entry_encode(entry, head + COPY_HEAD);
    size_t len = head_len + message.len;
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    memcpy(at, head, head_len);
    memcpy(at + head_len, message.data, message.len);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    uint64_t seq = mr_log_append(engine->log, MR_RECORD_CARRIED, MR_LOG_DURABLE, &pos);
    struct mr_record record = {
        .seq = seq, .type = MR_RECORD_CARRIED, .body = mr_slice_make(at, len)};
    enum mr_err err = apply_carried(&engine->state, &record, pos);
    if (err != MR_OK)
        engine_fail(engine, err);
    return err;
}

enum mr_err carry_one(struct mr_engine *engine, const struct mr_task *carried,
                      const struct item *item, const uint8_t *message,
                      struct mr_enqueue_result *result)
{
    struct queue *queue;
    MR_TRY(item->err);
    MR_TRY(mr_carried_check(carried));
    struct mr_event_change change = text_of(carried, item);
    size_t len = mr_record_size(MR_EVENT_CHANGE_SIZE + change.text.len) + COPY_HEAD + MR_ENTRY_MAX +
                 item->len;
    MR_TRY(log_room(engine, len, MR_LOG_NEW_WORK));
    uint32_t same = find_task(&engine->state, &item->id);
    if (same != NO_HANDLE) {
        result->state = task_at(&engine->state, same)->state;
        return MR_CONFLICT;
    }
    MR_TRY(ensure_queue(engine, item->queue, &queue));
    struct mr_task_options options = mr_carried_options(carried);
    struct part_choice choice;
    MR_TRY(part_choose(queue, &options, item, &choice));
    MR_TRY(ensure_results(engine, carried->topic));
    /* Again: the record of a new queue may have taken the room. */
    MR_TRY(log_room(engine, len, MR_LOG_NEW_WORK));
    struct mr_entry entry = entry_for(engine, carried, item, queue, choice.part);
    part_chosen(queue, choice);
    if (change.text.len > 0)
        MR_TRY(log_text(engine, &change, &entry));
    MR_TRY(log_carried(engine, carried, &entry, mr_slice_make(message, item->len)));
    if (entry.epoch > engine->last_epoch)
        engine->last_epoch = entry.epoch;
    result->state = carried->state;
    engine->carried++;
    return MR_OK;
}
