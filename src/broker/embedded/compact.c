/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving space back while running. A segment may go when no task needs a record in it and a
 * snapshot covers what it says. So there are two tools: a snapshot frees segments that are dead
 * already; copying the few live records of a segment forward makes it dead. Both run in small steps
 * between requests.
 *
 * The aim: files of at most twice the live data and three segments (the one being written, the
 * next, and one being emptied). Both tools wait until what they would free is worth their writing,
 * so the cost stays a fraction of the load's own, whatever the backlog.
 */
#include "broker/embedded/engine.h"

enum {
    WALK_STEP = 128 * 1024, /* bytes of a segment looked at in one turn */
    REPLAY_SEGMENTS = 8,    /* a start replays about this much log behind a snapshot */
    WATCH_MS = 200,         /* a segment is watched so long when little is written */
};

/* ---- copying forward ------------------------------------------------------------------------ */

static bool same_pos(struct mr_log_pos a, struct mr_log_pos b)
{
    return a.segment == b.segment && a.offset == b.offset;
}

/* Copies are like new work and leave the reserve alone; on a full disk they may use what finishing
 * leaves of it, since they are what frees space. */
static enum mr_err copy_room(struct mr_engine *engine, size_t len)
{
    if (mr_log_full(engine->log) == MR_OK)
        return log_room(engine, len, MR_LOG_NEW_WORK);
    return log_room_beside(engine, len, engine->in_hand);
}

static enum mr_err copy_task(struct mr_engine *engine, uint32_t handle,
                             const struct mr_record *record)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_slice message;
    struct mr_entry entry;
    int64_t created_ms;
    uint8_t head[COPY_HEAD + MR_ENTRY_MAX];
    MR_TRY(message_split(record, &task->id, &created_ms, &message));
    entry_of(task, more_of(&engine->state, task), &entry);
    mr_store64(head, (uint64_t)created_ms);
    size_t head_len = COPY_HEAD + mr_entry_encode(&entry, head + COPY_HEAD);
    size_t len = head_len + message.len;
    MR_TRY(copy_room(engine, len));
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    memcpy(at, head, head_len);
    memcpy(at + head_len, message.data, message.len);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    mr_log_append(engine->log, MR_RECORD_COPY, MR_LOG_LAZY, &pos);
    moved_task(&engine->state, handle, pos, (uint32_t)(MR_RECORD_HEADER + len));
    return MR_OK;
}

static enum mr_err copy_note(struct mr_engine *engine, uint32_t handle,
                             const struct mr_record *record)
{
    struct mr_event_change change;
    struct mr_log_pos pos;
    MR_TRY(message_note(record, &change));
    size_t len = MR_EVENT_CHANGE_SIZE + change.text.len;
    MR_TRY(copy_room(engine, len));
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    mr_event_change_encode(&change, at);
    engine->appended_bytes += mr_record_size(len);
    mr_log_append(engine->log, MR_RECORD_NOTE, MR_LOG_LAZY, &pos);
    moved_note(&engine->state, handle, pos, (uint32_t)(MR_RECORD_HEADER + len));
    return MR_OK;
}

/* What a task may need of a record: its own, or its last result or error; and where the task's id
 * stands then. */
static const struct {
    bool task, note;
    uint8_t task_id_at, note_id_at;
} needs[MR_RECORD_TYPE_COUNT] = {
    [MR_RECORD_TASK] = {.task = true},
    [MR_RECORD_GATHERED] = {.task = true},
    [MR_RECORD_COPY] = {.task = true, .task_id_at = COPY_HEAD},
    [MR_RECORD_CARRIED] = {.task = true, .task_id_at = COPY_HEAD},
    [MR_RECORD_RESULT] = {.task = true, .note = true, .task_id_at = MR_EVENT_CHANGE_SIZE},
    [MR_RECORD_FINISH] = {.note = true},
    [MR_RECORD_LOST] = {.note = true},
    [MR_RECORD_MOVE] = {.note = true},
    [MR_RECORD_NOTE] = {.note = true},
    [MR_RECORD_TEXT] = {.note = true},
};

static uint32_t find_by_id_at(const struct mr_engine *engine, const struct mr_record *record,
                              size_t at)
{
    struct mr_uuid id;
    if (record->body.len < at + sizeof id)
        return NO_HANDLE;
    memcpy(&id, (const uint8_t *)record->body.data + at, sizeof id);
    return find_task(&engine->state, &id);
}

static enum mr_err carry_on(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    struct mr_engine *engine = arg;
    uint32_t handle = NO_HANDLE;
    if (record->type >= MR_RECORD_TYPE_COUNT) /* from before the snapshot, which was not newer */
        return MR_OK;
    if (needs[record->type].task)
        handle = find_by_id_at(engine, record, needs[record->type].task_id_at);
    if (handle != NO_HANDLE && same_pos(task_at(&engine->state, handle)->pos, pos))
        MR_TRY(copy_task(engine, handle, record));
    handle = NO_HANDLE;
    if (needs[record->type].note)
        handle = find_by_id_at(engine, record, needs[record->type].note_id_at);
    if (handle == NO_HANDLE)
        return MR_OK;
    const struct more *more = more_of(&engine->state, task_at(&engine->state, handle));
    if (more != NULL && more->note_size > 0 && same_pos(more->note, pos))
        return copy_note(engine, handle, record);
    return MR_OK;
}

static void compact_step(struct mr_engine *engine)
{
    enum mr_err err = MR_OK;
    if (!mr_log_has_segment(engine->log, engine->compacting))
        engine->compact_offset = 0; /* its last task went by itself, and the segment with it */
    else
        err = mr_log_walk(engine->log, engine->compacting, &engine->compact_offset, WALK_STEP,
                          carry_on, engine);
    engine->compact_waits = err == MR_BUSY;
    if (err == MR_BUSY)
        return; /* from the same place once there is room */
    if (err != MR_OK || engine->compact_offset == 0) {
        engine->compacting = 0;
        mr_log_demand(engine->log); /* the segment goes once its copies are durable */
    }
}

/* ---- what is worth doing -------------------------------------------------------------------- */

struct usage {
    uint64_t sealed, sealed_live; /* bytes of sealed segments; of them, needed by tasks */
    uint64_t uncovered;           /* of sealed segments that no snapshot covers */
    uint64_t dead;                /* of them, those nothing lives in: a snapshot frees them */
    uint32_t emptiest;            /* sealed segment with the smallest share of live bytes */
    uint64_t emptiest_live, emptiest_bytes;
    uint64_t watched_live; /* of the segment that is watched; 0: gone, or not worth it */
};

static bool worth_emptying(uint64_t live, uint64_t bytes)
{
    return live > 0 && 4 * live < 3 * bytes;
}

/* What a walk could not carry off, since its records cannot be read, the next one will not either. */
static bool is_stuck(const struct mr_segment_info *info)
{
    return info->left > 0 && info->live >= info->left;
}

static void measure(const struct mr_engine *engine, struct usage *usage)
{
    bool full = mr_log_full(engine->log) != MR_OK;
    *usage = (struct usage){0};
    for (size_t i = 0; i < mr_log_segments(engine->log); i++) {
        struct mr_segment_info info;
        mr_log_segment_at(engine->log, i, &info);
        bool covered = info.last_seq <= engine->snap_seq && !info.unsaid;
        if (!info.sealed || (info.live == 0 && covered))
            continue; /* written to, or on its way out */
        usage->sealed += info.bytes;
        usage->sealed_live += info.live;
        usage->uncovered += covered ? 0 : info.bytes;
        if (info.live == 0) {
            usage->dead += info.bytes;
            continue;
        }
        if (info.number == engine->watched && worth_emptying(info.live, info.bytes))
            usage->watched_live = info.live;
        bool emptier = usage->emptiest == 0 ||
                       info.live * usage->emptiest_bytes < usage->emptiest_live * info.bytes;
        /* On a full disk there may be no space for another snapshot: what this one does not cover would not go. */
        if (emptier && !is_stuck(&info) && (covered || !full)) {
            usage->emptiest = info.number;
            usage->emptiest_live = info.live;
            usage->emptiest_bytes = info.bytes;
        }
    }
}

/* Whether to empty the segment that is watched. Not one whose tasks are going by themselves, as
 * those at the head of a queue that is being worked off: copying them would be for nothing. So it
 * is watched while an eighth of a segment is written, or a moment has passed, and emptied if it kept
 * most of them. */
static bool is_settled(struct mr_engine *engine, const struct usage *usage)
{
    uint64_t step = mr_log_segment_bytes(engine->log) / 8;
    bool enough = engine->watched_enough || engine->appended_bytes - engine->watched_at >= step;
    if (usage->watched_live != 0 && !enough)
        return false;
    bool settled = usage->watched_live != 0 && 8 * usage->watched_live >= 7 * engine->watched_live;
    if (usage->watched_live == 0)
        engine->watched = usage->emptiest;
    engine->watched_live = usage->watched_live != 0 ? usage->watched_live : usage->emptiest_live;
    engine->watched_at = engine->appended_bytes;
    engine->watched_enough = false;
    mr_wheel_start(engine->wheel, &engine->watch_timer, tick_of(engine, engine->now) + WATCH_MS);
    return settled;
}

/*
 * On a full disk: one snapshot at once, from the space kept for it, so that from then on each
 * segment goes as soon as its tasks have ended. Another one when what was written since is worth it,
 * or the room in the log comes to its end.
 */
static bool snapshot_helps(const struct mr_engine *engine, const struct usage *usage)
{
    if (engine->spare.size.bytes == 0)
        return false; /* it would find no space */
    if (2 * usage->uncovered >= usage->sealed)
        return true;
    return usage->dead > 0 && (usage->dead >= engine->spare.size.bytes ||
                               mr_log_left(engine->log) < mr_log_segment_bytes(engine->log));
}

/* On a full disk the copies must find room in what is left. Each has a head that its task had not. */
static bool copies_fit(const struct mr_engine *engine, const struct usage *usage)
{
    if (mr_log_full(engine->log) == MR_OK)
        return true;
    uint64_t tasks = engine->state.tasks.count + 1, mean = engine->state.live_bytes / tasks + 1;
    uint64_t heads = (usage->emptiest_live / mean + 1) * (COPY_HEAD + MR_ENTRY_MAX);
    return usage->emptiest_live + heads <= log_left_beside(engine);
}

static void decide(struct mr_engine *engine)
{
    struct usage usage;
    measure(engine, &usage);
    bool full = mr_log_full(engine->log) != MR_OK;
    uint64_t live = engine->state.live_bytes, segment = mr_log_segment_bytes(engine->log);
    uint64_t garbage = usage.sealed - usage.sealed_live;
    uint64_t since = engine->appended_bytes - engine->snap_log_bytes;
    uint64_t surplus = mr_log_ready(engine->log) > 1 ? segment : 0;
    bool replay_long = since > REPLAY_SEGMENTS * segment + live;
    bool worth = full || garbage + surplus > live / 2 + segment / 4;
    bool snapshot = full ? snapshot_helps(engine, &usage)
                         : worth && usage.dead > 0 && 2 * usage.dead >= garbage;
    if (since > 0 && usage.sealed > 0 && (replay_long || snapshot)) {
        if (snapshot_begin(engine) != MR_OK)
            engine->snap_log_bytes = engine->appended_bytes;
    } else if (worth && worth_emptying(usage.emptiest_live, usage.emptiest_bytes)) {
        if (full ? !copies_fit(engine, &usage) : !is_settled(engine, &usage))
            return;
        engine->compacting = full ? usage.emptiest : engine->watched;
        engine->watched = 0;
        engine->compact_offset = 0;
    }
}

void maintain(struct mr_engine *engine)
{
    if (engine->failure != MR_OK || mr_log_failure(engine->log) != MR_OK)
        return;
    bool wants_space = mr_log_wants_retry(engine->log) || engine->spare.waits;
    if (wants_space && !mr_timer_running(&engine->space_timer))
        mr_wheel_start(engine->wheel, &engine->space_timer,
                       tick_of(engine, engine->now) + RETRY_SPACE_MS);
    if (engine->snapshot != NULL) {
        snapshot_step(engine);
        return;
    }
    mr_log_trim(engine->log, engine->snap_seq);
    spare_keep(engine);
    if (engine->compacting != 0 && !engine->compact_waits)
        compact_step(engine);
    else if (engine->compacting == 0 && engine->backup == NULL && !backup_start_waiting(engine) &&
             !engine->spare.busy)
        decide(engine);
}
