/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a full disk leaves room for. A store that was filled by its own backlog must come out of it
 * by finishing that backlog, so each step of it has its space kept from the start:
 *
 *   handing out, finishing  more than a segment of the log that new work never uses (log.c); nothing
 *                           is handed out whose end would have no room, and a result that would take
 *                           the room of other ends is left out before an end is
 *   the snapshot            the file `spare`, as big as the next snapshot will be, which is written
 *                           over it; without a snapshot no segment can go, however dead
 *
 * As long as the disk has space in plenty, looked at when the store is opened and whenever a segment
 * is begun, none of it is taken.
 */
#include "broker/embedded/engine.h"
#include "broker/embedded/snapfile.h"
#include "wire/pack.h"

/* Kept in the log for each task in hand: its end, and a short result or error. */
enum { TEXT_ROOM = 200, FINISH_ROOM = MR_RECORD_HEADER + MR_EVENT_CHANGE_SIZE + TEXT_ROOM };

/* ---- the log -------------------------------------------------------------------------------- */

static uint64_t finish_room(size_t in_hand, size_t leaving)
{
    return (uint64_t)in_hand * FINISH_ROOM + (uint64_t)leaving * RESULT_ROOM;
}

enum mr_err log_room(struct mr_engine *engine, size_t body_len, enum mr_log_use use)
{
    if (engine->failure != MR_OK)
        return engine->failure;
    if (use == MR_LOG_NEW_WORK) {
        MR_TRY(engine->spare.err);
        if (engine->spare.needed && !engine->spare.known)
            return MR_BUSY; /* until what is kept of it stands, or does not fit */
    }
    return mr_log_room(engine->log, body_len, use);
}

enum mr_err log_room_beside(struct mr_engine *engine, size_t body_len, size_t in_hand)
{
    MR_TRY(log_room(engine, body_len, MR_LOG_ONGOING));
    enum mr_err full = mr_log_full(engine->log);
    size_t leaving = engine->in_hand_leaving + (in_hand > engine->in_hand);
    uint64_t need = mr_record_size(body_len) + finish_room(in_hand, leaving);
    if (mr_log_left(engine->log) >= need || (full == MR_OK && mr_log_ready(engine->log) > 0))
        return MR_OK;
    mr_log_prepare(engine->log); /* whether the disk is full will show */
    return full != MR_OK ? full : MR_BUSY;
}

enum mr_err log_room_finish(struct mr_engine *engine, size_t size, size_t text_len)
{
    MR_TRY(log_room(engine, size, MR_LOG_ONGOING));
    enum mr_err full = mr_log_full(engine->log);
    uint64_t keep = mr_log_segment_bytes(engine->log); /* long texts would stop all hand-outs */
    bool fits = text_len <= TEXT_ROOM || log_left_beside(engine) >= keep + size;
    return full != MR_OK && !fits ? full : MR_OK;
}

uint64_t log_left_beside(const struct mr_engine *engine)
{
    uint64_t left = mr_log_left(engine->log);
    uint64_t need = finish_room(engine->in_hand, engine->in_hand_leaving);
    return left > need ? left - need : 0;
}

/* ---- the next snapshot ---------------------------------------------------------------------- */

enum {
    SETTINGS_BYTES = 64, /* of a queue, its limits apart */
    QUEUE_BYTES = SNAP_BLOCK_HEAD + MR_EVENT_QUEUE_SIZE + MR_NAME_MAX + SNAP_QUEUE_FIGURES +
                  SNAP_DAY * DAYS_KEPT + SETTINGS_BYTES,
    GROUP_BLOCK = SNAP_BLOCK_HEAD + SNAP_GROUP + MR_NAME_MAX,
    AHEAD = 256,      /* tasks that even a small store has space for ahead */
    AHEAD_QUEUES = 4, /* and queues */
    PLENTY = 8,       /* segments and snapshots for which there is space in plenty */
};

static size_t ahead_of(size_t n, size_t least)
{
    return n + n / 4 + least;
}

/* An upper bound of what the next snapshot takes, and some more. */
static struct spare_size size_for(const struct state *state)
{
    struct spare_size size = {.tasks = ahead_of(state->tasks.count, AHEAD),
                              .mores = ahead_of(state->mores.count, AHEAD),
                              .queues = ahead_of(mr_map_count(state->by_name), AHEAD_QUEUES),
                              .groups = ahead_of(state->groups.count, AHEAD_QUEUES),
                              .limits = ahead_of(state->limits_bytes, 0)};
    uint64_t chunks = ahead_of(state->tasks.used, AHEAD) / SLAB_CHUNK + 1;
    uint64_t data = SNAP_FILE_HEAD + 2 * SNAP_BLOCK_HEAD + SNAP_HEAD_BODY + sizeof(uint64_t) +
                    chunks * SNAP_BLOCK_HEAD + size.tasks * MR_PACK_SIZE +
                    size.mores * MR_ENTRY_MORE_SIZE + size.queues * QUEUE_BYTES +
                    size.groups * GROUP_BLOCK + size.limits;
    size.bytes = (data / GROUP_DATA + 1) * GROUP_BYTES;
    return size;
}

static bool covers(size_t size, size_t n)
{
    return n + n / 8 <= size;
}

static bool far_above(size_t size, size_t n)
{
    return size > 4 * (n + AHEAD);
}

static enum mr_err resize_file(struct mr_file *file, uint64_t bytes)
{
    uint64_t old;
    MR_TRY(mr_file_size(file, &old));
    enum mr_err err = file->fs->ops->truncate(file, bytes);
    if (err != MR_OK)
        (void)!file->fs->ops->truncate(file, old); /* a part of what is missing helps nobody */
    return err;
}

static enum mr_err resize(struct mr_engine *engine)
{
    struct mr_fs *fs = engine->fs;
    uint64_t bytes = engine->spare.wanted.bytes;
    char path[MR_PATH_MAX];
    struct mr_file *file;
    MR_TRY(mr_path_join(path, engine->dir, "spare"));
    if (bytes == 0) {
        enum mr_err err = fs->ops->remove(fs, path);
        return err == MR_NOT_FOUND ? MR_OK : err;
    }
    enum mr_err err = mr_fs_open(fs, path, MR_OPEN_WRITE, &file);
    if (err == MR_NOT_FOUND)
        err = mr_fs_open(fs, path, MR_OPEN_CREATE, &file);
    MR_TRY(err);
    err = resize_file(file, bytes);
    mr_file_close(file);
    return err;
}

static void resize_run(struct mr_chore *chore)
{
    struct spare *spare = mr_container(chore, struct spare, chore);
    spare->chore_err = resize(mr_container(spare, struct mr_engine, spare));
}

static void resize_done(struct mr_chore *chore)
{
    struct spare *spare = mr_container(chore, struct spare, chore);
    spare->busy = false;
    spare->known = true;
    spare->waits = spare->chore_err != MR_OK;
    if (spare->chore_err == MR_OK)
        spare->size = spare->wanted;
    /* Nothing but want of space is a reason to refuse work. */
    spare->err = spare->chore_err == MR_DISK_FULL ? MR_DISK_FULL : MR_OK;
}

/* The right size: none, or big enough and not far too big. */
static bool size_fits(const struct spare *spare, const struct state *state)
{
    const struct spare_size *size = &spare->size;
    size_t tasks = state->tasks.count, mores = state->mores.count;
    if (!spare->needed)
        return size->bytes == 0;
    return covers(size->tasks, tasks) && covers(size->mores, mores) &&
           size->queues >= mr_map_count(state->by_name) && size->limits >= state->limits_bytes &&
           covers(size->groups, state->groups.count) && !far_above(size->tasks, tasks) &&
           !far_above(size->mores, mores);
}

/* Whether the disk may come to its end before this is looked at again. */
static void look_at_space(struct mr_engine *engine)
{
    struct spare *spare = &engine->spare;
    struct mr_segment_info info;
    uint64_t free_bytes = 0;
    mr_log_segment_at(engine->log, mr_log_segments(engine->log) - 1, &info);
    if (info.number == spare->segment)
        return;
    spare->segment = info.number;
    uint64_t plenty = PLENTY * (mr_log_segment_bytes(engine->log) + size_for(&engine->state).bytes);
    enum mr_err err = engine->fs->ops->space(engine->fs, engine->dir, &free_bytes);
    spare->needed = err != MR_OK || free_bytes < plenty;
    mr_log_keep_reserve(engine->log, spare->needed);
}

/* Before the first request: producers that open a full store, add a task and go would use up, one by
 * one, what finishing needs. */
void spare_begin(struct mr_engine *engine)
{
    look_at_space(engine);
    engine->spare.segment = 0; /* the first turn looks once more: others write, too */
}

void spare_keep(struct mr_engine *engine)
{
    struct spare *spare = &engine->spare;
    look_at_space(engine);
    if (spare->busy || engine->snapshot != NULL)
        return;
    bool fits = size_fits(spare, &engine->state);
    if (fits)
        spare->err = MR_OK;
    if ((fits && spare->known) || spare->waits)
        return;
    spare->wanted = spare->needed ? size_for(&engine->state) : (struct spare_size){0};
    spare->busy = true;
    mr_chore_init(&spare->chore, resize_run, resize_done);
    engine->options.file_exec->submit(engine->options.file_exec, &spare->chore);
}

void spare_retry(struct mr_engine *engine)
{
    engine->spare.waits = false;
    engine->spare.segment = 0; /* look again */
}

void spare_used(struct mr_engine *engine)
{
    mr_assert(!engine->spare.busy);
    engine->spare.size = (struct spare_size){0};
    engine->spare.waits = false;
}
