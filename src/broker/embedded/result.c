/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results. A result is a task in the queue of its topic, which people do not see: it waits, is handed
 * out, comes back and goes like any other. It comes in one record with the end of the run that left it,
 * so there is no moment at which one of them is there and the other is not.
 */
#include "broker/embedded/engine.h"

enum mr_err ensure_results(struct mr_engine *engine, struct mr_slice topic)
{
    char name[MR_NAME_MAX + 1];
    struct queue *queue;
    return topic.len == 0 ? MR_OK : ensure_queue(engine, mr_result_queue(topic, name), &queue);
}

static bool is_end(uint8_t state)
{
    return state == MR_STATE_NONE || state == MR_COMPLETED || state == MR_ARCHIVED;
}

/* What the run has left, but for its text. id: room for a UUID as text. */
static struct mr_result result_of(const struct mr_engine *engine, const struct task *task,
                                  const struct mr_task_msg *msg, char id[MR_UUID_TEXT_LEN + 1])
{
    bool is_uuid = task->flags & MR_TASK_UUID;
    if (is_uuid)
        mr_uuid_format(&task->id, id);
    return (struct mr_result){
        .task_id = is_uuid ? mr_slice_make(id, MR_UUID_TEXT_LEN) : msg->id,
        .queue = msg->queue,
        .type = msg->type,
        .topic = msg->topic,
        .partition = task->part + 1u,
        .attempt = 1u + task->retried + task->crashes,
        .cancel_requested = task->flags & MR_TASK_CANCEL,
        .finished_ms = engine->now_ms,
    };
}

/* The message of the result, in the engine's buffer, with the name of its queue, and its id. */
static enum mr_err encode(struct mr_engine *engine, const struct mr_result *result, uint64_t epoch,
                          char queue[MR_NAME_MAX + 1], struct mr_uuid *ret_id)
{
    mr_buf_clear(&engine->result);
    mr_buf_clear(&engine->result_message);
    *ret_id = mr_result_id(result->task_id, epoch);
    MR_TRY(mr_result_encode(result, &engine->result));
    struct mr_task_options options = {.queue = mr_result_queue(result->topic, queue),
                                      .type = result->type,
                                      .max_retry = MR_NO_RETRY,
                                      .payload = mr_buf_slice(&engine->result)};
    return mr_task_msg_encode(&options, (struct mr_slice){0}, &engine->result_message);
}

static enum mr_err append(struct mr_engine *engine, uint32_t handle,
                          const struct mr_event_result *event, struct mr_slice done)
{
    const struct mr_event_change *change = &event->change;
    struct mr_slice message = mr_buf_slice(&engine->result_message);
    size_t len = MR_EVENT_RESULT_SIZE + message.len, rest = message.len - change->text.len;
    mr_assert(change->text.len <= message.len); /* and its end: see event.h */
    mr_assert(change->text.len == 0 ||
              memcmp(change->text.data, (const uint8_t *)message.data + rest, change->text.len) ==
                  0);
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    mr_event_result_encode(event, at);
    memcpy(at + MR_EVENT_RESULT_SIZE, message.data, message.len);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    uint64_t seq = mr_log_append(engine->log, MR_RECORD_RESULT, MR_LOG_DURABLE, &pos);
    struct mr_record record = {
        .seq = seq, .type = MR_RECORD_RESULT, .body = mr_slice_make(at, len)};
    if (change->state == MR_STATE_NONE)
        await_end(engine, handle, TASK_END_LEFT, done);
    enum mr_err err = apply_result(&engine->state, &record, pos, handle);
    if (err != MR_OK)
        engine_fail(engine, err);
    else if (is_end(change->state) && change->state != MR_STATE_NONE)
        await_end(engine, handle, TASK_END_KEPT, (struct mr_slice){0});
    return err;
}

#ifdef MR_PLANT_RESULT_APART
static enum mr_err append_apart(struct mr_engine *engine, const struct mr_event_task *event)
{
    struct mr_slice message = mr_buf_slice(&engine->result_message);
    size_t len = MR_EVENT_TASK_SIZE + message.len;
    uint8_t *at = mr_log_begin(engine->log, len);
    struct mr_log_pos pos;
    mr_event_task_encode(event, at);
    memcpy(at + MR_EVENT_TASK_SIZE, message.data, message.len);
    uint64_t seq = mr_log_append(engine->log, MR_RECORD_TASK, MR_LOG_DURABLE, &pos);
    struct mr_record record = {.seq = seq, .type = MR_RECORD_TASK, .body = mr_slice_make(at, len)};
    return apply_task(&engine->state, &record, pos);
}
#endif

enum mr_err change_with_result(struct mr_engine *engine, enum mr_record_type type, uint32_t handle,
                               const struct mr_event_change *change, enum mr_result_outcome outcome,
                               struct mr_slice text)
{
    const struct task *task = task_at(&engine->state, handle);
    uint64_t epoch = more_of(&engine->state, task)->epoch;
    char id[MR_UUID_TEXT_LEN + 1], name[MR_NAME_MAX + 1];
    struct mr_event_result event = {.change = *change, .type = (uint8_t)type};
    struct mr_task_msg msg;
    int64_t created_ms;
    struct queue *queue;
    enum mr_err err = read_message(engine, task, &created_ms, &msg, NULL);
    if (err == MR_DAMAGED) /* its topic is not known any more */
        return change_task(engine, type, handle, change);
    MR_TRY(err);
    struct mr_result result = result_of(engine, task, &msg, id);
    bool done = outcome == MR_RESULT_OK && !change->dropped;
    result.outcome = outcome;
    result.final = is_end(change->state);
    *(done ? &result.result : &result.error) = text;
    MR_TRY(encode(engine, &result, epoch, name, &event.task.id));
    MR_TRY(ensure_queue(engine, mr_slice_str(name), &queue));
    /* Again: the record of a new queue may have taken the room. */
    MR_TRY(log_room(engine, MR_EVENT_RESULT_SIZE + engine->result_message.len, MR_LOG_ONGOING));
    event.task.key = event.task.created_ms = engine->now_ms;
    event.task.queue = queue->number;
    event.task.state = MR_PENDING;
    event.task.flags = MR_TASK_UUID;
#ifdef MR_PLANT_RESULT_APART
    MR_TRY(change_task(engine, type, handle, change));
    MR_TRY(mr_log_write(engine->log));
    return append_apart(engine, &event.task);
#endif
    return append(engine, handle, &event, done ? text : (struct mr_slice){0});
}
