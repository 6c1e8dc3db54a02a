/* SPDX-License-Identifier: Apache-2.0 */
/* What people do to tasks and queues. */
#include <stdio.h>

#include "broker/embedded/engine.h"

/* ---- verbs, by state ------------------------------------------------------------------------ */

typedef enum mr_err act(struct mr_engine *engine, uint32_t handle, const struct mr_control *item);

static enum mr_err move(struct mr_engine *engine, uint32_t handle, enum mr_verb verb,
                        struct mr_event_change *change)
{
    static const char *const words[] = {[MR_VERB_CANCEL] = "cancel",
                                        [MR_VERB_DELETE] = "cancel", /* of one that runs */
                                        [MR_VERB_RUN] = "run",
                                        [MR_VERB_ARCHIVE] = "archive",
                                        [MR_VERB_PRIORITISE] = "prioritise"};
    struct diary_run none = {.id = change->id};
    change->outcome = (uint8_t)verb;
    MR_TRY(change_task(engine, MR_RECORD_MOVE, handle, change));
    if ((size_t)verb < sizeof words / sizeof *words)
        diary_add(engine, &none, words[verb], (struct mr_slice){0});
    return MR_OK;
}

static enum mr_err refuse(struct mr_engine *engine, uint32_t handle, const struct mr_control *item)
{
    (void)engine, (void)handle, (void)item;
    return MR_WRONG_STATE;
}

static enum mr_err refuse_running(struct mr_engine *engine, uint32_t handle,
                                  const struct mr_control *item)
{
    (void)engine, (void)handle, (void)item;
    return MR_RUNNING;
}

static enum mr_err archive(struct mr_engine *engine, uint32_t handle, const struct mr_control *item)
{
    struct mr_event_change change = change_of(engine, handle);
    change_to_end(engine, &change, MR_ARCHIVED, engine->now_ms);
    change.text = item->verb == MR_VERB_CANCEL ? MR_SLICE_LIT("cancelled")
                                               : MR_SLICE_LIT("archived by request");
    return move(engine, handle, item->verb, &change);
}

/* The wish is durable: a run that ends in any way but success after it goes to the archive. */
static enum mr_err flag_cancel(struct mr_engine *engine, uint32_t handle,
                               const struct mr_control *item)
{
    struct mr_event_change change = change_of(engine, handle);
    change.flags |= MR_TASK_CANCEL;
    return move(engine, handle, item->verb, &change);
}

static enum mr_err cancel_running(struct mr_engine *engine, uint32_t handle,
                                  const struct mr_control *item)
{
    MR_TRY(flag_cancel(engine, handle, item));
    const struct more *more = more_of(&engine->state, task_at(&engine->state, handle));
    struct node *node = more->node ? engine->nodes_by_number[more->node] : NULL;
    if (node != NULL)
        node->events.stop(more->epoch, MR_STOP_CANCEL, node->events.arg);
    return MR_OK;
}

static enum mr_err delete_running(struct mr_engine *engine, uint32_t handle,
                                  const struct mr_control *item)
{
    MR_TRY(flag_cancel(engine, handle, item));
    return MR_RUNNING;
}

static enum mr_err delete_task(struct mr_engine *engine, uint32_t handle,
                               const struct mr_control *item)
{
    (void)item;
    struct mr_event_change change = change_of(engine, handle);
    change.state = MR_STATE_NONE;
    return change_task(engine, MR_RECORD_DELETE, handle, &change);
}

/* Given by a caller later on, or by its producer. */
static int64_t priority_of(struct mr_engine *engine, uint32_t handle)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_task_msg msg;
    int64_t created_ms;
    if (task->flags & MR_TASK_REORDERED)
        return more_of(&engine->state, task)->priority_ms;
    if (!(task->flags & MR_TASK_PRIORITY) ||
        read_message(engine, task, &created_ms, &msg, NULL) != MR_OK)
        return 0;
    return msg.priority_ms;
}

/* In the archive it let go of its unique key. If its time is not over it takes it again, unless
 * somebody else has it. */
static enum mr_err take_key_again(struct mr_engine *engine, uint32_t handle,
                                  struct mr_event_change *change)
{
    const struct state *state = &engine->state;
    const struct more *more = more_of(state, task_at(state, handle));
    if (more == NULL || more->unique_until_ms <= engine->now_ms)
        return MR_OK;
    uint32_t holder = find_unique(state, &more->unique);
    if (holder != NO_HANDLE &&
        more_of(state, task_at(state, holder))->unique_until_ms > engine->now_ms)
        return MR_DUPLICATE;
    change->flags |= MR_TASK_UNIQUE;
    return MR_OK;
}

static enum mr_err run_now(struct mr_engine *engine, uint32_t handle, const struct mr_control *item)
{
    struct mr_event_change change = change_of(engine, handle);
    if (change.state == MR_ARCHIVED) {
        MR_TRY(take_key_again(engine, handle, &change));
        change.retried = 0;
        change.crashes = 0;
        change.flags &= (uint8_t)~MR_TASK_CANCEL;
    }
    change.state = MR_PENDING;
    change.key = engine->now_ms - priority_of(engine, handle);
    return move(engine, handle, item->verb, &change);
}

/* As if it had been enqueued with this priority, so that the time it has waited still counts. */
static enum mr_err prioritise(struct mr_engine *engine, uint32_t handle,
                              const struct mr_control *item)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_event_change change = change_of(engine, handle);
    struct mr_task_msg msg;
    int64_t base = task->key;
    if (task->state == MR_PENDING)
        MR_TRY(read_message(engine, task, &base, &msg, NULL));
    change.epoch = (uint64_t)mr_priority_ms(item->value);
    change.flags |= MR_TASK_REORDERED;
    change.order_ms = base - mr_priority_ms(item->value);
    if (task->state == MR_PENDING)
        change.key = change.order_ms;
    return move(engine, handle, item->verb, &change);
}

/* It goes on elsewhere, and was not processed here: nothing counts it but engine->moved. The text is no
 * result. */
static enum mr_err moved(struct mr_engine *engine, uint32_t handle, const struct mr_control *item)
{
    char text[sizeof MR_MOVED_PREFIX + MR_MOVED_TEXT_MAX];
    int len = snprintf(text, sizeof text, MR_MOVED_PREFIX "%.*s", (int)item->text.len,
                       (const char *)item->text.data);
    struct mr_event_change change = change_of(engine, handle);
    change_to_end(engine, &change, MR_COMPLETED, engine->now_up_ms + MR_MOVED_KEPT_MS);
    change.flags &= (uint8_t)~MR_TASK_CANCEL;
    change.text = mr_slice_make(text, (size_t)len);
    change.dropped = 1;
    MR_TRY(log_room_beside(engine, MR_EVENT_CHANGE_SIZE + change.text.len, engine->in_hand));
    MR_TRY(move(engine, handle, item->verb, &change));
    engine->moved++;
    return MR_OK;
}

/* Nothing of it changes but that it is no longer held: the time of its end, too. */
static enum mr_err release(struct mr_engine *engine, uint32_t handle)
{
    const struct more *more = more_of(&engine->state, task_at(&engine->state, handle));
    struct mr_event_change change = change_of(engine, handle);
    change.flags &= (uint8_t)~MR_TASK_HELD;
    change.order_ms = more->order_ms;
    if (change.state == MR_ARCHIVED || change.state == MR_COMPLETED)
        change.ms = more->finished_ms;
    return move(engine, handle, MR_VERB_RELEASE, &change);
}

static act *const acts[][MR_STATE_COUNT] = {
    [MR_VERB_CANCEL] = {[MR_SCHEDULED] = archive,
                        [MR_PENDING] = archive,
                        [MR_ACTIVE] = cancel_running,
                        [MR_RETRY] = archive,
                        [MR_ARCHIVED] = refuse,
                        [MR_COMPLETED] = refuse,
                        [MR_AGGREGATING] = archive},
    [MR_VERB_DELETE] = {[MR_SCHEDULED] = delete_task,
                        [MR_PENDING] = delete_task,
                        [MR_ACTIVE] = delete_running,
                        [MR_RETRY] = delete_task,
                        [MR_ARCHIVED] = delete_task,
                        [MR_COMPLETED] = delete_task,
                        [MR_AGGREGATING] = delete_task},
    [MR_VERB_RUN] = {[MR_SCHEDULED] = run_now,
                     [MR_PENDING] = refuse,
                     [MR_ACTIVE] = refuse_running,
                     [MR_RETRY] = run_now,
                     [MR_ARCHIVED] = run_now,
                     [MR_COMPLETED] = refuse,
                     [MR_AGGREGATING] = run_now},
    [MR_VERB_ARCHIVE] = {[MR_SCHEDULED] = archive,
                         [MR_PENDING] = archive,
                         [MR_ACTIVE] = refuse_running,
                         [MR_RETRY] = archive,
                         [MR_ARCHIVED] = refuse,
                         [MR_COMPLETED] = refuse,
                         [MR_AGGREGATING] = archive},
    [MR_VERB_PRIORITISE] = {[MR_SCHEDULED] = prioritise,
                            [MR_PENDING] = prioritise,
                            [MR_ACTIVE] = refuse_running,
                            [MR_RETRY] = prioritise,
                            [MR_ARCHIVED] = refuse,
                            [MR_COMPLETED] = refuse,
                            [MR_AGGREGATING] = refuse},
    [MR_VERB_MOVED] = {[MR_SCHEDULED] = moved,
                       [MR_PENDING] = moved,
                       [MR_ACTIVE] = refuse_running,
                       [MR_RETRY] = moved,
                       [MR_ARCHIVED] = moved,
                       [MR_COMPLETED] = moved,
                       [MR_AGGREGATING] = moved},
    [MR_VERB_RELEASE] = {[MR_SCHEDULED] = refuse,
                         [MR_PENDING] = refuse,
                         [MR_ACTIVE] = refuse,
                         [MR_RETRY] = refuse,
                         [MR_ARCHIVED] = refuse,
                         [MR_COMPLETED] = refuse,
                         [MR_AGGREGATING] = refuse},
};

/* Somebody may still take it back to where it came from. */
static enum mr_err act_on_held(struct mr_engine *engine, uint32_t handle,
                               const struct mr_control *item)
{
    if (item->verb == MR_VERB_RELEASE)
        return release(engine, handle);
    return item->verb == MR_VERB_DELETE ? delete_task(engine, handle, item) : MR_WRONG_STATE;
}

enum { CHANGE_ROOM = MR_EVENT_CHANGE_SIZE + 64 }; /* a change with a short text */

static enum mr_err control_one(struct mr_engine *engine, const struct mr_control *item)
{
    bool is_uuid;
    MR_TRY(mr_control_check(item));
    struct mr_uuid id = id_key(&engine->state, item->id, &is_uuid);
    uint32_t handle = find_shown_task(&engine->state, &id);
    if (handle == NO_HANDLE)
        return MR_NOT_FOUND;
    MR_TRY(log_room_beside(engine, CHANGE_ROOM, engine->in_hand));
    if (in_set(&engine->state, handle))
        return MR_RUNNING;
    if (task_at(&engine->state, handle)->flags & MR_TASK_HELD)
        return act_on_held(engine, handle, item);
    return acts[item->verb][task_at(&engine->state, handle)->state](engine, handle, item);
}

enum handled handle_control(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_control *req = mr_container(base, struct mr_req_control, req);
    if (req->n > MR_BATCH_MAX) {
        mr_req_answer(base, MR_TOO_BIG);
        return HANDLED;
    }
    for (size_t i = base->next_item; i < req->n; i++) {
        req->errs[i] = control_one(engine, &req->items[i]);
        if (req->errs[i] == MR_BUSY) {
            base->next_item = i;
            return STALLED;
        }
    }
    answer(engine, base, MR_OK);
    return HANDLED;
}

/* ---- queues --------------------------------------------------------------------------------- */

/* limits: room for an encoding of its own, if that changes. */
static enum mr_err change_settings(const struct queue *queue, const struct mr_req_queue_set *req,
                                   int64_t now_ms, struct mr_buf *limits, struct mr_buf *ret_bytes)
{
    struct mr_queue_settings settings = queue->settings;
    mr_queue_settings_change(&settings, req, now_ms);
    if (req->setting == MR_QUEUE_RATE || req->setting == MR_QUEUE_CONCURRENCY) {
        struct mr_limits changed = {0};
        MR_TRY(mr_limits_decode(settings.limits, &changed));
        enum mr_err err = mr_limits_change(&changed, req);
        if (err == MR_OK)
            err = mr_limits_encode(&changed, limits);
        mr_limits_done(&changed);
        MR_TRY(err);
        settings.limits = mr_slice_make(limits->data, limits->len);
    }
    return mr_queue_settings_encode(&settings, ret_bytes);
}

static enum mr_err set_queue(struct mr_engine *engine, const struct mr_req_queue_set *req)
{
    MR_TRY(mr_queue_set_check(req));
    struct queue *queue = find_queue(&engine->state, req->queue);
    if (queue == NULL && req->setting == MR_QUEUE_PAUSED)
        return MR_NOT_FOUND;
    if (queue == NULL)
        MR_TRY(ensure_queue(engine, req->queue, &queue));
    struct mr_event_queue event = {
        .number = queue->number,
        .paused = queue->paused,
        .more_parts = (uint8_t)(queue->parts_n - 1),
        .assign = queue->assign,
        .max_length = queue->max_length,
        .name = mr_slice_make(queue->name, queue->name_len),
    };
    if (req->setting == MR_QUEUE_PAUSED)
        event.paused = req->value != 0;
    else if (req->setting == MR_QUEUE_MAX_LENGTH)
        event.max_length = req->value;
    else if (req->setting == MR_QUEUE_PARTITIONS)
        event.more_parts = (uint8_t)(req->value - 1);
    else if (req->setting == MR_QUEUE_ASSIGN)
        event.assign = (uint8_t)req->value;
    struct mr_buf bytes = {0}, limits = {0};
    enum mr_err err = change_settings(queue, req, engine->now_ms, &limits, &bytes);
    event.settings = mr_slice_make(bytes.data, bytes.len);
    if (err == MR_OK)
        err = log_queue(engine, &event, &queue);
    mr_buf_done(&bytes);
    mr_buf_done(&limits);
    MR_TRY(err);
    if (req->setting == MR_QUEUE_RATE || req->setting == MR_QUEUE_CONCURRENCY)
        err = limits_changed(engine, queue);
    if (err == MR_OK)
        err = state_retimed(&engine->state, queue, engine->now_ms);
    if (err != MR_OK)
        engine_fail(engine, err);
    MR_TRY(err);
    assignment_refit(engine, queue);
    if (queue->parts_n > 1)
        parts_assign(engine, queue);
    if (!queue->paused && mr_list_empty(&queue->ready))
        mr_list_push_back(&engine->state.ready, &queue->ready);
    return MR_OK;
}

enum handled handle_queue_set(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_queue_set *req = mr_container(base, struct mr_req_queue_set, req);
    enum mr_err err = set_queue(engine, req);
    if (err == MR_BUSY)
        return STALLED;
    answer(engine, base, err);
    return HANDLED;
}

enum mr_err remove_queue(struct mr_engine *engine, struct queue *queue,
                         enum mr_queue_remove_mode mode)
{
    uint64_t total = 0;
    for (size_t s = 0; s < MR_STATE_COUNT; s++)
        total += queue->counts[s];
    if (total > 0 && mode == MR_QUEUE_REMOVE_EMPTY)
        return MR_WRONG_STATE;
    if (queue->counts[MR_ACTIVE] > 0)
        return MR_RUNNING;
    struct mr_event_queue event = {.number = queue->number,
                                   .max_length = (uint64_t)engine->now_ms,
                                   .name = mr_slice_make(queue->name, queue->name_len)};
    uint8_t body[MR_EVENT_QUEUE_SIZE + MR_NAME_MAX];
    size_t len = MR_EVENT_QUEUE_SIZE + event.name.len;
    MR_TRY(log_room(engine, len, MR_LOG_ONGOING));
    mr_event_queue_encode(&event, body);
    if (log_bytes(engine, MR_RECORD_UNQUEUE, MR_LOG_DURABLE, body, len, NULL) == 0)
        return MR_NOMEM;
    node_forget_queue(engine, queue);
    assignments_forget(engine, queue);
    gather_forget_queue(engine, queue);
    await_queue_gone(engine, queue);
    limits_forget_queue(queue);
    tally_forget_queue(engine, queue);
    queue_drop(&engine->state, queue, engine->now_ms);
    return MR_OK;
}

enum handled handle_queue_remove(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_queue_remove *req = mr_container(base, struct mr_req_queue_remove, req);
    struct queue *queue = find_shown_queue(&engine->state, req->queue);
    enum mr_err err = queue != NULL ? remove_queue(engine, queue, req->mode) : MR_NOT_FOUND;
    if (err == MR_BUSY)
        return STALLED;
    answer(engine, base, err);
    return HANDLED;
}
