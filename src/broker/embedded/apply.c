/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applying records. Every function checks what the bytes say against what is there and answers
 * MR_DAMAGED where they do not fit: a record is data from a disk. Live, the engine has made sure
 * that they fit.
 */
#include <stdlib.h>

#include "broker/embedded/message.h"
#include "broker/embedded/state_internal.h"

/* ---- the second part of a task -------------------------------------------------------------- */

static enum mr_err more_ensure(struct state *state, struct task *task, struct more **ret_more)
{
    if (task->more == NO_HANDLE) {
        uint32_t handle;
        MR_TRY(slab_alloc(&state->mores, &handle));
        task->more = handle;
        ((struct more *)slab_at(&state->mores, handle))->percent = -1;
    }
    *ret_more = slab_at(&state->mores, task->more);
    return MR_OK;
}

static void more_free(struct state *state, struct task *task)
{
    struct more *more = more_of(state, task);
    if (more == NULL)
        return;
    free(more->progress);
    slab_free(&state->mores, task->more);
    task->more = NO_HANDLE;
}

/* A waiting task with nothing to remember goes back to its 64 bytes. A result is remembered to have been
 * somebody's, and of any other task under which epoch it was: at another broker it goes on above that. */
static void more_trim(struct state *state, struct task *task)
{
    const struct more *more = more_of(state, task);
    if (queue_of(state, task)->results)
        return;
    bool waiting = task->state == MR_PENDING || task->state == MR_SCHEDULED;
    if (more != NULL && waiting && more->note_size == 0 && more->order_ms == 0 &&
        more->failed_ms == 0 && more->epoch == 0 &&
        !(task->flags & (MR_TASK_UNIQUE | MR_TASK_REORDERED)))
        more_free(state, task);
}

/* ---- unique keys ---------------------------------------------------------------------------- */

/* Lets go of its unique key, if it holds one. */
static void unique_release(struct state *state, struct task *task, uint32_t handle)
{
    if (!(task->flags & MR_TASK_UNIQUE))
        return;
    mr_map_remove(state->by_unique, mr_uuid_hash(&more_of(state, task)->unique), handle);
    task->flags &= (uint8_t)~MR_TASK_UNIQUE;
}

/* Takes the key, also from a holder whose time has passed. */
static enum mr_err unique_take(struct state *state, uint32_t handle, const struct mr_uuid *key)
{
    uint32_t holder = find_unique(state, key);
    if (holder != NO_HANDLE) {
        state->touch(holder, state->touch_arg);
        unique_release(state, task_at(state, holder), holder);
    }
    return mr_map_insert(state->by_unique, mr_uuid_hash(key), handle);
}

/* The key it let go of when it ended. */
static enum mr_err unique_take_again(struct state *state, struct task *task, uint32_t handle)
{
    const struct more *more = more_of(state, task);
    if ((task->flags & MR_TASK_UNIQUE) || more == NULL || more->unique_until_ms == 0)
        return MR_OK;
    MR_TRY(unique_take(state, handle, &more->unique));
    task->flags |= MR_TASK_UNIQUE;
    return MR_OK;
}

/* ---- a task comes --------------------------------------------------------------------------- */

/* A unique key, a group, or an order time other than the due time: only the message has them. */
static bool needs_message(const struct mr_event_task *event)
{
    return (event->flags & MR_TASK_UNIQUE) || event->state == MR_AGGREGATING ||
           (event->state == MR_SCHEDULED && (event->flags & MR_TASK_PRIORITY));
}

/* It holds no key yet, so that what made it can be undone. */
static enum mr_err join_group(struct state *state, uint32_t handle, struct mr_slice name)
{
    uint32_t number;
    MR_TRY(group_put(state, task_at(state, handle)->queue, name, &number));
    group_hold(state, handle, number);
    return MR_OK;
}

static enum mr_err note_message(struct state *state, uint32_t handle,
                                const struct mr_event_task *event, const struct mr_task_msg *msg)
{
    struct task *task = task_at(state, handle);
    struct more *more;
    MR_TRY(more_ensure(state, task, &more));
    if (event->state == MR_AGGREGATING)
        MR_TRY(join_group(state, handle, msg->group));
    if (event->state == MR_SCHEDULED && (event->flags & MR_TASK_PRIORITY))
        more->order_ms = event->key - msg->priority_ms;
    if (event->flags & MR_TASK_UNIQUE) {
        more->unique = message_unique_key(state->hash_key, msg);
        more->unique_until_ms =
            event->created_ms + msg->unique_ms + 1; /* created is rounded down */
        MR_TRY(unique_take(state, handle, &more->unique));
        task->flags |= MR_TASK_UNIQUE;
    }
    return MR_OK;
}

static enum mr_err task_new(struct state *state, const struct mr_uuid *id, uint32_t *ret_handle)
{
    uint32_t handle;
    state->touch(slab_peek(&state->tasks), state->touch_arg);
    MR_TRY(slab_alloc(&state->tasks, &handle));
    struct task *task = task_at(state, handle);
    task->id = *id;
    task->more = NO_HANDLE;
    enum mr_err err = mr_map_insert(state->by_id, mr_uuid_hash(id), handle);
    if (err != MR_OK) {
        slab_free(&state->tasks, handle);
        return err;
    }
    *ret_handle = handle;
    return MR_OK;
}

static bool queue_known(const struct state *state, uint32_t number)
{
    return number < state->queues_n && state->queues[number] != NULL;
}

/* A partition that its queue has; one that it has not only where damage took the record of the queue. */
static enum mr_err part_in(const struct state *state, uint16_t number, uint8_t part,
                           uint8_t *ret_part)
{
    const struct queue *queue = state->queues[number];
    if (part >= queue->parts_n && !state->damage_seen)
        return MR_DAMAGED;
    *ret_part = part % queue->parts_n;
    return MR_OK;
}

/* While replaying an id may still be held by a task that had expired when the new one came. */
static enum mr_err make_way(struct state *state, const struct mr_uuid *id)
{
    uint32_t old = find_task(state, id);
    if (old == NO_HANDLE)
        return MR_OK;
    if (task_at(state, old)->state != MR_COMPLETED && !state->damage_seen)
        return MR_DAMAGED;
    state->expired++;
    task_release(state, old);
    return MR_OK;
}

/* The record that made the queue was lost to damage; the message has its name. */
static enum mr_err queue_restore(struct state *state, uint32_t number, struct mr_slice message)
{
    struct mr_task_msg msg;
    struct queue *queue;
    if (!state->damage_seen)
        return MR_DAMAGED;
    MR_TRY(mr_task_msg_decode(message, &msg));
    return queue_put(state, &(struct mr_event_queue){.number = number, .name = msg.queue}, &queue);
}

static enum mr_err put_task(struct state *state, const struct mr_record *record,
                            struct mr_log_pos pos, const struct mr_event_task *event_,
                            struct mr_slice message)
{
    const struct mr_event_task event = *event_;
    uint32_t handle;
    struct mr_task_msg msg = {0};
    if (needs_message(&event)) /* before anything is changed: it may be damaged */
        MR_TRY(mr_task_msg_decode(message, &msg));
    if (event.state == MR_AGGREGATING && msg.group.len == 0)
        return MR_DAMAGED;
    uint8_t part;
    if (!queue_known(state, event.queue))
        MR_TRY(queue_restore(state, event.queue, message));
    MR_TRY(part_in(state, event.queue, event.part, &part));
    if (state->replaying)
        MR_TRY(make_way(state, &event.id));
    MR_TRY(task_new(state, &event.id, &handle));
    struct task *task = task_at(state, handle);
    task->key = event.key;
    task->tie = record->seq;
    task->pos = pos;
    task->size = (uint32_t)(MR_RECORD_HEADER + record->body.len);
    task->queue = event.queue;
    task->part = part;
    task->max_retry = event.max_retry;
    task->state = event.state;
    task->flags = event.flags & (uint8_t)~MR_TASK_UNIQUE;
    if (event.state == MR_PENDING)
        task->fraction = state->fraction & 0x7f;
    count_task(state, task, event.state, 1);
    hold(state, pos, task->size, 1);
    if (needs_message(&event))
        MR_TRY(note_message(state, handle, &event, &msg));
    return limbo_enter(state, handle, record->seq);
}

enum mr_err apply_task(struct state *state, const struct mr_record *record, struct mr_log_pos pos)
{
    struct mr_event_task event;
    struct mr_slice message;
    MR_TRY(mr_event_task_decode(record->body, &event, &message));
    return put_task(state, record, pos, &event, message);
}

/* ---- a task goes ---------------------------------------------------------------------------- */

void task_release(struct state *state, uint32_t handle)
{
    struct task *task = task_at(state, handle);
    struct more *more = more_of(state, task);
    state->touch(handle, state->touch_arg);
    if (task->state == MR_ACTIVE)
        state->lease_ended(handle, state->lease_arg);
    set_leave(state, handle);
    count_task(state, task, task->state, -1);
    if (task->state == MR_AGGREGATING)
        group_let_go(state, handle);
    unique_release(state, task, handle);
    mr_map_remove(state->by_id, mr_uuid_hash(&task->id), handle);
    hold(state, task->pos, task->size, -1);
    if (more != NULL && more->note_size > 0)
        hold(state, more->note, more->note_size, -1);
    more_free(state, task);
    slab_free(&state->tasks, handle);
}

/* ---- a set becomes a task -------------------------------------------------------------------- */

/* Damage may have taken members away; the others go, and the task comes. */
static enum mr_err members_go(struct state *state, struct mr_slice ids)
{
    enum mr_err err = MR_OK;
    for (size_t i = 0; i < ids.len / sizeof(struct mr_uuid); i++) {
        struct mr_uuid id;
        memcpy(&id, (const struct mr_uuid *)ids.data + i, sizeof id);
        uint32_t handle = find_task(state, &id);
        bool member = handle != NO_HANDLE && task_at(state, handle)->state == MR_AGGREGATING;
#ifdef MR_PLANT_MEMBER_STAYS
        if (state->replaying && i == 0)
            continue;
#endif
        if (!member) {
            err = MR_NOT_FOUND;
            continue;
        }
        state->gathered++;
        task_release(state, handle);
    }
    return err;
}

enum mr_err apply_gathered(struct state *state, const struct mr_record *record,
                           struct mr_log_pos pos)
{
    struct mr_event_task event;
    struct mr_slice ids, message;
    MR_TRY(mr_event_gathered_decode(record->body, &event, &ids, &message));
    enum mr_err gone = members_go(state, ids); /* first: it may have the key of one of them */
    MR_TRY(put_task(state, record, pos, &event, message));
    return gone;
}

/* ---- a task changes ------------------------------------------------------------------------- */

enum mr_err apply_take(struct state *state, const struct mr_event_run *run, int64_t ms,
                       uint32_t handle, uint64_t seq)
{
    if (handle == NO_HANDLE && (handle = find_task(state, &run->id)) == NO_HANDLE)
        return MR_NOT_FOUND;
    struct task *task = task_at(state, handle);
    bool waiting =
        task->state == MR_PENDING || task->state == MR_SCHEDULED || task->state == MR_RETRY;
    if (!waiting && !(state->damage_seen && state->replaying))
        return MR_DAMAGED;
    struct more *more;
    state->touch(handle, state->touch_arg);
    MR_TRY(more_ensure(state, task, &more));
    set_leave(state, handle);
    count_task(state, task, task->state, -1);
    count_task(state, task, MR_ACTIVE, 1);
    if (task->state != MR_PENDING && more->order_ms != 0)
        task->key = more->order_ms; /* becoming due is not logged */
    task->state = MR_ACTIVE;
    task->last = (uint32_t)seq;
    more->epoch = run->epoch;
    more->started_ms = ms;
    more->percent = -1;
    queue_of(state, task)->settings.taken_ms = ms;
    return set_enter(state, handle);
}

enum mr_err apply_done(struct state *state, const struct mr_event_run *run, int64_t ms,
                       uint32_t handle)
{
    if (handle == NO_HANDLE && (handle = find_task(state, &run->id)) == NO_HANDLE)
        return MR_NOT_FOUND;
    MR_TRY(queue_count_run(queue_of(state, task_at(state, handle)), ms, false));
    task_release(state, handle);
    return MR_OK;
}

static enum mr_err note_outcome(struct state *state, struct task *task,
                                const struct mr_event_change *event, const struct mr_record *record,
                                struct mr_log_pos pos)
{
    bool failed = record->type == MR_RECORD_FINISH &&
                  (event->outcome == MR_FAIL || event->outcome == MR_FAIL_FOR_GOOD);
    bool ended = event->state == MR_ARCHIVED || event->state == MR_COMPLETED;
    struct more *more;
    bool reordered = event->flags & MR_TASK_REORDERED;
    if (event->text.len == 0 && event->order_ms == 0 && !reordered && !failed && !ended &&
        task->more == NO_HANDLE)
        return MR_OK;
    MR_TRY(more_ensure(state, task, &more));
    if (event->text.len > 0) {
        if (more->note_size > 0)
            hold(state, more->note, more->note_size, -1);
        more->note = pos;
        more->note_size = (uint32_t)(MR_RECORD_HEADER + record->body.len);
        hold(state, pos, more->note_size, 1);
    }
    more->order_ms = event->order_ms;
    if (record->type == MR_RECORD_MOVE && event->outcome == MR_VERB_PRIORITISE)
        more->priority_ms = (int64_t)event->epoch;
    more->finished_ms = ended ? event->ms : 0;
    if (failed)
        more->failed_ms = event->ms;
    return MR_OK;
}

static enum mr_err count_outcome(struct queue *queue, const struct mr_event_change *event,
                                 uint8_t type)
{
    static const struct {
        bool counts, failed;
    } outcomes[] = {
        [MR_DONE] = {true, false}, [MR_FAIL] = {true, true},    [MR_FAIL_FOR_GOOD] = {true, true},
        [MR_DROP] = {true, false}, [MR_LATER] = {false, false},
    };
    if (type != MR_RECORD_FINISH || event->outcome >= sizeof outcomes / sizeof *outcomes)
        return MR_OK;
    if (!outcomes[event->outcome].counts)
        return MR_OK;
    return queue_count_run(queue, event->ms, outcomes[event->outcome].failed);
}

/* Since when it was held makes way for when its last run began: see entry_for. */
static void held_ends(struct more *more)
{
    more->started_ms = more->priority_ms;
    more->priority_ms = 0;
}

enum mr_err apply_change(struct state *state, const struct mr_event_change *event,
                         const struct mr_record *record, struct mr_log_pos pos, uint32_t handle)
{
    if (handle == NO_HANDLE && (handle = find_task(state, &event->id)) == NO_HANDLE)
        return MR_NOT_FOUND;
    struct task *task = task_at(state, handle);
    struct queue *queue = queue_of(state, task);
    MR_TRY(count_outcome(queue, event, record->type));
    if (event->state == MR_STATE_NONE) {
        state->deleted += record->type == MR_RECORD_DELETE;
        task_release(state, handle);
        return MR_OK;
    }
    uint8_t kept = MR_TASK_CANCEL | MR_TASK_REORDERED;
    bool leaves_group = task->state == MR_AGGREGATING && event->state != MR_AGGREGATING;
    state->touch(handle, state->touch_arg);
    task->flags = (uint8_t)((task->flags & ~kept) | (event->flags & kept));
    if (event->state == MR_ACTIVE)
        return task->state == MR_ACTIVE ? MR_OK : MR_DAMAGED; /* only the wish to cancel it */
    if (task->state == MR_ACTIVE)
        state->lease_ended(handle, state->lease_arg);
    set_leave(state, handle);
    if (task->flags & MR_TASK_HELD)
        held_ends(more_of(state, task));
    task->flags = (uint8_t)((task->flags & ~MR_TASK_HELD) | (event->flags & MR_TASK_HELD));
    if (leaves_group)
        group_let_go(state, handle);
    count_task(state, task, task->state, -1);
    count_task(state, task, event->state, 1);
    MR_TRY(note_outcome(state, task, event, record, pos));
    bool ended = event->state == MR_ARCHIVED || event->state == MR_COMPLETED;
#ifndef MR_PLANT_UNIQUE_LEAK
    if (ended)
        unique_release(state, task, handle);
#endif
    if ((event->flags & MR_TASK_UNIQUE) && !ended)
        MR_TRY(unique_take_again(state, task, handle));
    task->state = event->state;
    task->key = event->key;
    task->fraction = 0;
    task->retried = event->retried;
    task->crashes = event->crashes & 0x7f;
    more_trim(state, task);
    return limbo_enter(state, handle, record->seq);
}

/* Where damage took the task away, what it left is still there. */
enum mr_err apply_result(struct state *state, const struct mr_record *record, struct mr_log_pos pos,
                         uint32_t handle)
{
    struct mr_event_result event;
    struct mr_slice message;
    MR_TRY(mr_event_result_decode(record->body, &event, &message));
    struct mr_record change = *record;
    change.type = event.type;
    enum mr_err changed = apply_change(state, &event.change, &change, pos, handle);
    if (changed != MR_OK && changed != MR_NOT_FOUND)
        return changed;
    MR_TRY(put_task(state, record, pos, &event.task, message));
    return changed;
}

void moved_task(struct state *state, uint32_t handle, struct mr_log_pos pos, uint32_t size)
{
    struct task *task = task_at(state, handle);
    state->touch(handle, state->touch_arg);
    hold(state, task->pos, task->size, -1);
    task->pos = pos;
    task->size = size;
    hold(state, pos, size, 1);
}

void moved_note(struct state *state, uint32_t handle, struct mr_log_pos pos, uint32_t size)
{
    struct more *more = more_of(state, task_at(state, handle));
    state->touch(handle, state->touch_arg);
    hold(state, more->note, more->note_size, -1);
    more->note = pos;
    more->note_size = size;
    hold(state, pos, size, 1);
}

/* ---- snapshots ------------------------------------------------------------------------------ */

void entry_of(const struct task *task, const struct more *more, struct mr_entry *ret_entry)
{
    *ret_entry = (struct mr_entry){
        .id = task->id,
        .key = task->key,
        .tie = task->tie,
        .segment = task->pos.segment,
        .offset = task->pos.offset,
        .size = task->size,
        .queue = task->queue,
#ifndef MR_PLANT_PARTITION_FORGOTTEN
        .part = task->part,
#endif
        .retried = task->retried,
        .max_retry = task->max_retry,
        .state = task->state,
        .flags = task->flags,
        .crashes = task->crashes,
        .has_more = more != NULL,
    };
    if (more == NULL)
        return;
    ret_entry->epoch = task->state == MR_AGGREGATING ? more->group : more->epoch;
    ret_entry->note_segment = more->note.segment;
    ret_entry->note_offset = more->note.offset;
    ret_entry->note_size = more->note_size;
    ret_entry->started_ms = more->started_ms;
    ret_entry->finished_ms = more->finished_ms;
    ret_entry->failed_ms = more->failed_ms;
    ret_entry->order_ms = more->order_ms;
    ret_entry->unique_until_ms = more->unique_until_ms;
    ret_entry->priority_ms = more->priority_ms;
    ret_entry->unique = more->unique;
}

static enum mr_err entry_more(struct state *state, uint32_t handle, const struct mr_entry *entry)
{
    struct task *task = task_at(state, handle);
    struct more *more;
    MR_TRY(more_ensure(state, task, &more));
    if (entry->state == MR_AGGREGATING)
        group_hold(state, handle, (uint32_t)entry->epoch);
    else
        more->epoch = entry->epoch;
    more->note = (struct mr_log_pos){entry->note_segment, entry->note_offset};
    more->note_size = entry->note_size;
    more->started_ms = entry->started_ms;
    more->finished_ms = entry->finished_ms;
    more->failed_ms = entry->failed_ms;
    more->order_ms = entry->order_ms;
    more->unique_until_ms = entry->unique_until_ms;
    more->priority_ms = entry->priority_ms;
    more->unique = entry->unique;
    if (entry->flags & MR_TASK_UNIQUE) {
        MR_TRY(unique_take(state, handle, &more->unique));
        task->flags |= MR_TASK_UNIQUE;
    }
    return MR_OK;
}

/* In all but its set. */
static enum mr_err put_entry(struct state *state, const struct mr_entry *entry,
                             uint32_t *ret_handle)
{
    uint32_t handle;
    if (!queue_known(state, entry->queue) || find_task(state, &entry->id) != NO_HANDLE)
        return MR_DAMAGED;
    bool needs_more = entry->state == MR_ACTIVE || entry->state == MR_AGGREGATING ||
                      (entry->flags & (MR_TASK_UNIQUE | MR_TASK_HELD));
    uint8_t part;
    if (needs_more && !entry->has_more)
        return MR_DAMAGED;
    MR_TRY(part_in(state, entry->queue, entry->part, &part));
    MR_TRY(task_new(state, &entry->id, &handle));
    struct task *task = task_at(state, handle);
    task->key = entry->key;
    task->tie = entry->tie;
    task->pos = (struct mr_log_pos){entry->segment, entry->offset};
    task->size = entry->size;
    task->queue = entry->queue;
    task->part = part;
    task->retried = entry->retried;
    task->max_retry = entry->max_retry;
    task->state = entry->state;
    task->flags = entry->flags & (uint8_t)~MR_TASK_UNIQUE;
    task->crashes = entry->crashes & 0x7f;
    if (entry->has_more)
        MR_TRY(entry_more(state, handle, entry));
    count_task(state, task, entry->state, 1);
    *ret_handle = handle;
    return MR_OK;
}

enum mr_err apply_entry(struct state *state, const struct mr_entry *entry)
{
    uint32_t handle;
    MR_TRY(put_entry(state, entry, &handle));
    return set_enter(state, handle);
}

/* ---- a task comes from another broker -------------------------------------------------------- */

/* The number in a copy is of the life that wrote it; the message has the name. */
static enum mr_err restore_group(struct state *state, struct mr_entry *entry,
                                 struct mr_slice message)
{
    struct mr_task_msg msg;
    uint32_t number;
    if (!queue_known(state, entry->queue))
        return MR_DAMAGED;
    MR_TRY(mr_task_msg_decode(message, &msg));
    MR_TRY(group_put(state, entry->queue, msg.group, &number));
    entry->epoch = number;
    return MR_OK;
}

enum mr_err apply_carried(struct state *state, const struct mr_record *record,
                          struct mr_log_pos pos)
{
    struct mr_entry entry;
    struct mr_slice message;
    int64_t created_ms;
    uint32_t handle;
    MR_TRY(message_split_copy(record->body, &entry, &created_ms, &message));
    entry.tie = record->seq;
    entry.segment = pos.segment;
    entry.offset = pos.offset;
    entry.size = (uint32_t)(MR_RECORD_HEADER + record->body.len);
    if (entry.state == MR_ACTIVE)
        return MR_DAMAGED;
    if (!queue_known(state, entry.queue))
        MR_TRY(queue_restore(state, entry.queue, message));
    if (state->replaying)
        MR_TRY(make_way(state, &entry.id));
    if (entry.state == MR_AGGREGATING)
        MR_TRY(restore_group(state, &entry, message));
    if (entry.state != MR_AGGREGATING && entry.epoch > state->epoch_ceiling)
        state->epoch_ceiling = entry.epoch; /* as if it had been handed out here */
    MR_TRY(put_entry(state, &entry, &handle));
    hold(state, pos, entry.size, 1);
    if (entry.note_size > 0)
        hold(state, more_of(state, task_at(state, handle))->note, entry.note_size, 1);
    return limbo_enter(state, handle, record->seq);
}

/* ---- replaying ------------------------------------------------------------------------------ */

/* A run of a task that damage took away does not keep the others from their place. */
static enum mr_err replay_runs(struct state *state, const struct mr_record *record,
                               struct mr_log_pos pos)
{
    (void)pos;
    int64_t ms;
    size_t n;
    enum mr_err result = MR_OK;
    MR_TRY(mr_event_runs_decode(record->body, &ms, &n));
    for (size_t i = 0; i < n; i++) {
        struct mr_event_run run = mr_event_run_at(record->body, i);
        enum mr_err err = record->type == MR_RECORD_TAKE
                              ? apply_take(state, &run, ms, NO_HANDLE, record->seq)
                              : apply_done(state, &run, ms, NO_HANDLE);
        if (err != MR_OK && err != MR_NOT_FOUND)
            return err;
        result = err != MR_OK ? err : result;
    }
    return result;
}

static enum mr_err replay_change(struct state *state, const struct mr_record *record,
                                 struct mr_log_pos pos)
{
    struct mr_event_change event;
    MR_TRY(mr_event_change_decode(record->body, &event));
    return apply_change(state, &event, record, pos, NO_HANDLE);
}

static enum mr_err replay_result(struct state *state, const struct mr_record *record,
                                 struct mr_log_pos pos)
{
    return apply_result(state, record, pos, NO_HANDLE);
}

static enum mr_err replay_copy(struct state *state, const struct mr_record *record,
                               struct mr_log_pos pos)
{
    struct mr_entry entry;
    struct mr_slice message;
    int64_t created_ms;
    MR_TRY(message_split_copy(record->body, &entry, &created_ms, &message));
    uint32_t handle = find_task(state, &entry.id);
    uint32_t size = (uint32_t)(MR_RECORD_HEADER + record->body.len);
    if (handle == NO_HANDLE) {
        /* Its own record was lost to damage; the copy brings it back as it was. */
        if (!queue_known(state, entry.queue))
            MR_TRY(queue_restore(state, entry.queue, message));
        entry.segment = pos.segment;
        entry.offset = pos.offset;
        entry.size = size;
        if (entry.state == MR_AGGREGATING)
            MR_TRY(restore_group(state, &entry, message));
        return apply_entry(state, &entry);
    }
    moved_task(state, handle, pos, size);
    return MR_OK;
}

static enum mr_err replay_note(struct state *state, const struct mr_record *record,
                               struct mr_log_pos pos)
{
    struct mr_event_change event;
    MR_TRY(mr_event_change_decode(record->body, &event));
    uint32_t handle = find_task(state, &event.id);
    if (handle == NO_HANDLE || more_of(state, task_at(state, handle)) == NULL)
        return MR_NOT_FOUND;
    moved_note(state, handle, pos, (uint32_t)(MR_RECORD_HEADER + record->body.len));
    return MR_OK;
}

static enum mr_err replay_queue(struct state *state, const struct mr_record *record,
                                struct mr_log_pos pos)
{
    (void)pos;
    struct mr_event_queue event;
    struct queue *queue;
    MR_TRY(mr_event_queue_decode(record->body, &event));
    return queue_put(state, &event, &queue);
}

static enum mr_err replay_unqueue(struct state *state, const struct mr_record *record,
                                  struct mr_log_pos pos)
{
    (void)pos;
    struct mr_event_queue event;
    MR_TRY(mr_event_queue_decode(record->body, &event));
    struct queue *queue = find_queue(state, event.name);
    if (queue == NULL || queue->number != event.number)
        return MR_NOT_FOUND;
    queue_drop(state, queue, (int64_t)event.max_length);
    return MR_OK;
}

static enum mr_err replay_ceiling(struct state *state, const struct mr_record *record,
                                  struct mr_log_pos pos)
{
    (void)pos;
    if (record->body.len != MR_EVENT_CEILING_SIZE)
        return MR_DAMAGED;
    uint64_t ceiling = mr_load64(record->body.data);
#ifndef MR_PLANT_FORGET_CEILING
    if (ceiling > state->epoch_ceiling)
        state->epoch_ceiling = ceiling;
#endif
    return MR_OK;
}

/* That of a store that was closed has the last epoch: none was handed out behind it, so what was left up
 * to the ceiling is not used up. */
static enum mr_err replay_mark(struct state *state, const struct mr_record *record,
                               struct mr_log_pos pos)
{
    (void)pos;
    if (record->body.len == MR_EVENT_CEILING_SIZE)
        state->epoch_ceiling = mr_load64(record->body.data);
    return MR_OK;
}

static enum mr_err replay_nothing(struct state *state, const struct mr_record *record,
                                  struct mr_log_pos pos)
{
    (void)state, (void)record, (void)pos;
    return MR_OK;
}

enum mr_err apply_record(struct state *state, const struct mr_record *record, struct mr_log_pos pos)
{
    static enum mr_err (*const replay[MR_RECORD_TYPE_COUNT])(
        struct state *, const struct mr_record *, struct mr_log_pos) = {
        [MR_RECORD_OPEN] = replay_ceiling,  [MR_RECORD_CEILING] = replay_ceiling,
        [MR_RECORD_MARK] = replay_mark,     [MR_RECORD_SKIP] = replay_nothing,
        [MR_RECORD_QUEUE] = replay_queue,   [MR_RECORD_UNQUEUE] = replay_unqueue,
        [MR_RECORD_TASK] = apply_task,      [MR_RECORD_COPY] = replay_copy,
        [MR_RECORD_NOTE] = replay_note,     [MR_RECORD_TAKE] = replay_runs,
        [MR_RECORD_DONE] = replay_runs,     [MR_RECORD_FINISH] = replay_change,
        [MR_RECORD_LOST] = replay_change,   [MR_RECORD_MOVE] = replay_change,
        [MR_RECORD_DELETE] = replay_change, [MR_RECORD_GATHERED] = apply_gathered,
        [MR_RECORD_TEXT] = replay_nothing,  [MR_RECORD_CARRIED] = apply_carried,
        [MR_RECORD_RESULT] = replay_result,
    };
    if (record->version > MR_RECORD_VERSION || record->type >= MR_RECORD_TYPE_COUNT)
        return MR_VERSION;
    mr_assert(replay[record->type] != NULL);
    return replay[record->type](state, record, pos);
}
