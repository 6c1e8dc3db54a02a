/* SPDX-License-Identifier: Apache-2.0 */
/* The end of runs. A finish counts only under the epoch of the lease that is in force. */
#include "broker/embedded/engine.h"

/* The lease's own shortcut, when it still leads to this task. */
static uint32_t follow_ref(const struct state *state, uint64_t ref, const struct mr_uuid *id)
{
    if (ref == 0 || ref - 1 >= state->tasks.used)
        return NO_HANDLE;
    uint32_t handle = (uint32_t)(ref - 1);
    const struct task *task = task_at(state, handle);
    bool same = task->state == MR_ACTIVE && memcmp(&task->id, id, sizeof *id) == 0;
    return same ? handle : NO_HANDLE;
}

/* NO_HANDLE with *ret_err set when the finish does not hold. */
static uint32_t find_leased(struct mr_engine *engine, const struct mr_finish *item,
                            bool only_results, enum mr_err *ret_err)
{
    struct state *state = &engine->state;
    bool is_uuid;
    struct mr_uuid id = id_key(state, item->id, &is_uuid);
    if (only_results && !is_uuid) { /* no result has such an id */
        *ret_err = MR_INVALID;
        return NO_HANDLE;
    }
    uint32_t handle = follow_ref(state, item->ref, &id);
    if (handle == NO_HANDLE)
        handle = find_task(state, &id);
    bool is_result = handle != NO_HANDLE && queue_of(state, task_at(state, handle))->results;
    if (handle == NO_HANDLE || (only_results && !is_result)) {
        *ret_err = MR_NOT_FOUND;
        return NO_HANDLE;
    }
    const struct task *task = task_at(state, handle);
    const struct more *more = more_of(state, task);
#ifdef MR_PLANT_NO_EPOCH_CHECK
    if (task->state == MR_ACTIVE)
        return handle;
#endif
    bool theirs = more != NULL && more->epoch == item->epoch;
    if (theirs && task->state == MR_ACTIVE)
        return handle;
    if (theirs && is_result && item->outcome == MR_DONE && task->state == MR_PENDING)
        return handle; /* its lease is over, and nobody has got it since */
    *ret_err = MR_STALE;
    engine->stale_refused++;
    return NO_HANDLE;
}

/* ---- what becomes of the task, by outcome --------------------------------------------------- */

typedef enum mr_err decide(struct mr_engine *engine, const struct task *task,
                           const struct mr_finish *item, struct mr_event_change *change);

static void to_archive(struct mr_engine *engine, struct mr_event_change *change)
{
    change_to_end(engine, change, MR_ARCHIVED, engine->now_ms);
}

static enum mr_err decide_done(struct mr_engine *engine, const struct task *task,
                               const struct mr_finish *item, struct mr_event_change *change)
{
    change->state = MR_STATE_NONE;
    if (!(task->flags & MR_TASK_RETAIN))
        return MR_OK;
    struct mr_task_msg msg;
    int64_t created_ms;
    enum mr_err err = read_message(engine, task, &created_ms, &msg, NULL);
    if (err == MR_DAMAGED)
        return MR_OK; /* how long to keep it is not known any more */
    MR_TRY(err);
    change_to_end(engine, change, MR_COMPLETED, engine->now_up_ms + msg.retention_ms);
    change->text = item->result;
#ifdef MR_PLANT_LONG_RESULT_CUT
    change->text.len = change->text.len > 1024 ? 1024 : change->text.len;
#endif
    return MR_OK;
}

static enum mr_err decide_fail(struct mr_engine *engine, const struct task *task,
                               const struct mr_finish *item, struct mr_event_change *change)
{
    change->text = item->error;
    if (task->retried >= task->max_retry || (task->flags & MR_TASK_CANCEL)) {
        to_archive(engine, change);
        return MR_OK;
    }
    bool waits = queue_of(&engine->state, task)->settings.retry_mode != MR_RETRY_ORDER;
    change->state = waits ? MR_RETRY : MR_PENDING;
    change->retried++;
    change->key = engine->now_up_ms + item->delay_ms;
    return MR_OK;
}

static enum mr_err decide_fail_for_good(struct mr_engine *engine, const struct task *task,
                                        const struct mr_finish *item,
                                        struct mr_event_change *change)
{
    (void)task;
    change->text = item->error;
    to_archive(engine, change);
    return MR_OK;
}

static enum mr_err decide_hand_back(struct mr_engine *engine, const struct task *task,
                                    const struct mr_finish *item, struct mr_event_change *change)
{
    if (task->flags & MR_TASK_CANCEL) {
        change->text = MR_SLICE_LIT("cancelled");
        to_archive(engine, change);
        return MR_OK;
    }
    change->state = item->delay_ms > 0 ? MR_SCHEDULED : MR_PENDING;
    if (item->delay_ms > 0) {
        change->order_ms = task->key;
        change->key = engine->now_up_ms + item->delay_ms;
    }
    return MR_OK;
}

static enum mr_err decide_drop(struct mr_engine *engine, const struct task *task,
                               const struct mr_finish *item, struct mr_event_change *change)
{
    (void)engine, (void)task, (void)item;
    change->state = MR_STATE_NONE;
    return MR_OK;
}

static enum mr_err decide_later(struct mr_engine *engine, const struct task *task,
                                const struct mr_finish *item, struct mr_event_change *change)
{
    if (task->flags & MR_TASK_CANCEL)
        return decide_hand_back(engine, task, item, change);
    change->state = MR_RETRY;
    change->key = engine->now_up_ms + item->delay_ms;
    return MR_OK;
}

static decide *const decisions[] = {
    [MR_DONE] = decide_done,
    [MR_FAIL] = decide_fail,
    [MR_FAIL_FOR_GOOD] = decide_fail_for_good,
    [MR_HAND_BACK] = decide_hand_back,
    [MR_DROP] = decide_drop,
    [MR_LATER] = decide_later,
};

/* What a run of a task with a topic leaves, by how it ended. A run that is handed back or put off
 * leaves nothing, unless that was its end. */
static bool leaves_result(const struct mr_finish *item, const struct mr_event_change *change)
{
    bool goes_on = item->outcome == MR_HAND_BACK || item->outcome == MR_LATER;
    return (change->flags & MR_TASK_TOPIC) && (!goes_on || change->state == MR_ARCHIVED);
}

static enum mr_result_outcome result_outcome(const struct mr_finish *item,
                                             const struct mr_event_change *change)
{
    static const enum mr_result_outcome failures[] = {
        [MR_REASON_NONE] = MR_RESULT_ERROR,
        [MR_REASON_TIMEOUT] = MR_RESULT_TIMEOUT,
        [MR_REASON_CANCELLED] = MR_RESULT_CANCELLED,
    };
    if (item->outcome == MR_DONE || item->outcome == MR_DROP)
        return change->state == MR_ARCHIVED ? MR_RESULT_ERROR : MR_RESULT_OK;
    if (item->outcome == MR_HAND_BACK || item->outcome == MR_LATER)
        return MR_RESULT_CANCELLED;
    return failures[item->reason];
}

/* A run that ended well and leaves nothing: nearly all of them. */
static enum mr_err finish_done(struct mr_engine *engine, uint32_t handle,
                               const struct mr_finish *item)
{
    struct mr_event_run run = {.id = task_at(&engine->state, handle)->id, .epoch = item->epoch};
    MR_TRY(log_room(engine, MR_EVENT_RUN_SIZE + MR_EVENT_RUNS_TIME, MR_LOG_ONGOING));
    if (log_run(engine, MR_RECORD_DONE, MR_LOG_DURABLE, &run) == 0)
        return MR_NOMEM;
    await_end(engine, handle, TASK_END_LEFT, item->result);
    enum mr_err err = apply_done(&engine->state, &run, engine->now_ms, handle);
    if (err != MR_OK)
        engine_fail(engine, err);
    return err;
}

/* The end of a run counts more than its text: a result or error that cannot be kept is left out,
 * and a note says so in its place. text: of the record, which has fixed bytes beside it. */
static enum mr_err finish_room(struct mr_engine *engine, size_t fixed,
                               struct mr_event_change *change, struct mr_slice *text)
{
    const struct mr_slice note = MR_SLICE_LIT("left out: the disk was full");
    enum mr_err err = log_room_finish(engine, fixed + text->len, text->len);
    if (err != MR_TOO_BIG && err != MR_DISK_FULL && err != MR_UNAVAILABLE)
        return err;
    if (err == MR_TOO_BIG) {
        *text = change->text = MR_SLICE_LIT("the result is too big for this store's segments");
        to_archive(engine, change);
    } else if (text->len > note.len) {
        *text = note;
        change->text = change->text.len > 0 ? note : change->text;
        change->dropped = 1;
    }
    err = log_room(engine, fixed + text->len, MR_LOG_ONGOING);
    engine->texts_dropped += err == MR_OK && change->dropped;
    return err;
}

/* The epoch is the time of the hand-out, unless the clock was behind an earlier one. */
static int64_t run_us(const struct mr_engine *engine, uint32_t handle)
{
    const struct more *more = more_of(&engine->state, task_at(&engine->state, handle));
    int64_t at_us = (int64_t)more->epoch;
    if (at_us / MR_US_PER_MS != more->started_ms)
        at_us = more->started_ms * MR_US_PER_MS;
    return engine->now_us - at_us;
}

/* In another way than well and without a trace. */
static enum mr_err finish_change(struct mr_engine *engine, uint32_t handle,
                                 const struct mr_finish *item, struct mr_event_change *change)
{
    bool leaves = leaves_result(item, change);
    size_t fixed = MR_EVENT_CHANGE_SIZE + (leaves ? RESULT_ROOM : 0);
    struct mr_slice text = leaves && item->outcome == MR_DONE ? item->result : change->text;
    MR_TRY(finish_room(engine, fixed, change, &text));
    if (!leaves)
        return change_task(engine, MR_RECORD_FINISH, handle, change);
    return change_with_result(engine, MR_RECORD_FINISH, handle, change,
                              result_outcome(item, change), text);
}

static enum mr_err finish_one(struct mr_engine *engine, const struct mr_finish *item,
                              bool only_results)
{
    enum mr_err err = mr_finish_check(item);
    MR_TRY(err);
    uint32_t handle = find_leased(engine, item, only_results, &err);
    if (handle == NO_HANDLE)
        return err;
    struct mr_event_change change = change_of(engine, handle);
    struct queue *queue = queue_of(&engine->state, task_at(&engine->state, handle));
    int64_t took_us = run_us(engine, handle);
    uint16_t tally = more_of(&engine->state, task_at(&engine->state, handle))->tally;
    if (queue->results && item->outcome != MR_DONE && item->outcome != MR_HAND_BACK)
        return MR_INVALID;
    bool told = item->outcome != MR_DONE && !queue->results;
    struct diary_run run = told ? diary_run(engine, handle) : (struct diary_run){0};
    change.outcome = (uint8_t)item->outcome;
    MR_TRY(decisions[item->outcome](engine, task_at(&engine->state, handle), item, &change));
    bool quietly = item->outcome == MR_DONE && change.state == MR_STATE_NONE;
    if (quietly && !(change.flags & MR_TASK_TOPIC))
        MR_TRY(finish_done(engine, handle, item));
    else
        MR_TRY(finish_change(engine, handle, item, &change));
    tally_finish(engine, queue, tally, item, (enum mr_state)change.state);
    const char *word = tally_word(item, (enum mr_state)change.state);
    if (told && word != NULL && change.state != MR_STATE_NONE)
        diary_add(engine, &run, word, change.text);
    if (item->outcome != MR_HAND_BACK) /* what never ran comes back so */
        latency_note(&queue->latency, LATENCY_RUN, engine->now, took_us);
    return MR_OK;
}

enum handled handle_finish(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_finish *req = mr_container(base, struct mr_req_finish, req);
    if (req->n > MR_BATCH_MAX) {
        mr_req_answer(base, MR_TOO_BIG);
        return HANDLED;
    }
    for (size_t i = base->next_item; i < req->n; i++) {
        req->errs[i] = finish_one(engine, &req->items[i], req->only_results);
        if (req->errs[i] == MR_BUSY) {
            base->next_item = i;
            return STALLED;
        }
    }
    answer(engine, base, MR_OK);
    return HANDLED;
}

void finish_prefetch(const struct mr_engine *engine, const struct mr_req *base,
                     enum finish_distance distance)
{
    const struct mr_req_finish *req = mr_container(base, const struct mr_req_finish, req);
    if (base->op != MR_OP_FINISH || req->n == 0 || req->items[0].ref == 0 ||
        req->items[0].ref - 1 >= engine->state.tasks.used)
        return;
    const struct task *task = task_at(&engine->state, (uint32_t)(req->items[0].ref - 1));
    if (distance == FINISH_FAR) {
        __builtin_prefetch(task, 1);
        return;
    }
    mr_map_prefetch(engine->state.by_id, mr_uuid_hash(&task->id));
    if (task->state == MR_ACTIVE)
        __builtin_prefetch(more_of(&engine->state, task), 1);
}
