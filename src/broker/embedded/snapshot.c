/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of the index, exact as of one record, written while the engine works on. The task table
 * is saved chunk by chunk over many turns; a chunk that is about to change before its turn is saved
 * first (snapshot_touch). So the file holds the state as of the moment it was begun, and a start
 * needs the file and the log behind it, nothing else. The engine only copies its records, as they
 * are in memory; the executor makes the file of them.
 *
 * It is written over the file `spare`, whose space was kept for it (space.c), and renamed when it is
 * whole and synced and its last record durable.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "broker/embedded/snapfile.h"
#include "wire/pack.h"

/* Copied and written at once: this share of a segment. It becomes about half of that, so
 * small that the log's own syncs hardly wait. */
enum {
    PIECES_A_SEGMENT = 64,
    COPY_AHEAD = 16, /* tasks that are fetched before they are copied */
};

struct snapshot {
    struct mr_engine *engine;
    uint64_t seq;
    uint64_t unsaids; /* it says those as well: see mr_log_unsaid */
    uint32_t term;
    uint8_t *saved;       /* by chunk of the task table */
    size_t chunks, next;  /* chunks below next are all saved */
    struct mr_buf copied; /* records not yet with the executor: each a task, and its more if any */
    enum mr_err err;      /* it is given up at its next step */
    /* With the executor while busy. */
    struct mr_chore chore;
    bool busy, last;
    struct mr_buf records; /* what to save now */
    struct mr_buf out;     /* blocks, not yet written */
    struct mr_buf sectors;
    uint64_t tasks; /* saved so far */
    struct mr_file *file;
    uint64_t offset;
    char tmp[MR_PATH_MAX], path[MR_PATH_MAX], old[MR_PATH_MAX];
    enum mr_err chore_err;
};

/* ---- making blocks -------------------------------------------------------------------------- */

/* Begins a block in out; the body is appended behind it, then block_end seals it. */
static enum mr_err block_begin(struct mr_buf *out, size_t *ret_at)
{
    static const uint8_t head[SNAP_BLOCK_HEAD];
    *ret_at = out->len;
    return mr_buf_append(out, head, sizeof head);
}

static void block_end(struct snapshot *snapshot, size_t at, enum snap_block type)
{
    size_t len = snapshot->out.len - at - SNAP_BLOCK_HEAD;
    snap_block_seal(snapshot->out.data + at, len, type, snapshot->engine->salt);
}

static enum mr_err save_block(struct snapshot *snapshot, enum snap_block type, const void *body,
                              size_t len)
{
    size_t at;
    MR_TRY(block_begin(&snapshot->out, &at));
    MR_TRY(mr_buf_append(&snapshot->out, body, len));
    block_end(snapshot, at, type);
    return MR_OK;
}

static enum mr_err save_head(struct snapshot *snapshot)
{
    const struct mr_engine *engine = snapshot->engine;
    uint8_t file_head[SNAP_FILE_HEAD], body[SNAP_HEAD_BODY] = {0};
    snap_head_make(file_head);
    MR_TRY(mr_buf_append(&snapshot->out, file_head, sizeof file_head));
    memcpy(body, engine->store_id.bytes, 16);
    mr_store64(body + 16, snapshot->seq);
    mr_store32(body + 24, snapshot->term);
    /* A task may have come with an epoch above the ceiling. */
    mr_store64(body + 32, engine->last_epoch > engine->ceiling_asked ? engine->last_epoch
                                                                     : engine->ceiling_asked);
    mr_store64(body + 40, engine->state.deleted);
    mr_store64(body + 48, engine->state.expired);
    mr_store64(body + 56, engine->state.gathered);
    return save_block(snapshot, SNAP_HEAD, body, sizeof body);
}

static enum mr_err save_queue(struct snapshot *snapshot, const struct queue *queue)
{
    struct mr_event_queue event = {
        .number = queue->number,
        .paused = queue->paused,
        .more_parts = (uint8_t)(queue->parts_n - 1),
        .assign = queue->assign,
        .max_length = queue->max_length,
        .name = mr_slice_make(queue->name, queue->name_len),
    };
    uint8_t bytes[MR_EVENT_QUEUE_SIZE + MR_NAME_MAX], figures[20];
    size_t at;
    mr_event_queue_encode(&event, bytes);
    mr_store64(figures, queue->processed);
    mr_store64(figures + 8, queue->failed);
    mr_store32(figures + 16, (uint32_t)queue->days_n);
    MR_TRY(block_begin(&snapshot->out, &at));
    MR_TRY(mr_buf_append(&snapshot->out, bytes, MR_EVENT_QUEUE_SIZE + queue->name_len));
    MR_TRY(mr_buf_append(&snapshot->out, figures, sizeof figures));
    for (size_t i = 0; i < queue->days_n; i++) {
        uint8_t day[20];
        mr_store32(day, (uint32_t)queue->days[i].day);
        mr_store64(day + 4, queue->days[i].processed);
        mr_store64(day + 12, queue->days[i].failed);
        MR_TRY(mr_buf_append(&snapshot->out, day, sizeof day));
    }
    MR_TRY(mr_queue_settings_encode(&queue->settings, &snapshot->out));
    block_end(snapshot, at, SNAP_QUEUE);
    return MR_OK;
}

static enum mr_err save_group(struct snapshot *snapshot, uint32_t number)
{
    const struct group *group = group_at(&snapshot->engine->state, number);
    uint8_t body[SNAP_GROUP + MR_NAME_MAX];
    mr_store32(body, number);
    mr_store32(body + 4, group->queue);
    memcpy(body + SNAP_GROUP, group->name, group->name_len);
    return save_block(snapshot, SNAP_GROUP_BLOCK, body, SNAP_GROUP + (size_t)group->name_len);
}

/* What is not saved by chunks. */
static enum mr_err save_rest(struct snapshot *snapshot)
{
    const struct state *state = &snapshot->engine->state;
    MR_TRY(save_head(snapshot));
    for (uint32_t i = 0; i < state->queues_n; i++)
        if (state->queues[i] != NULL)
            MR_TRY(save_queue(snapshot, state->queues[i]));
    for (uint32_t i = 0; i < state->groups.used; i++)
        if (group_at(state, i)->refs > 0)
            MR_TRY(save_group(snapshot, i));
    return MR_OK;
}

/* One block of the next records. */
static enum mr_err save_tasks(struct snapshot *snapshot, const uint8_t **at, const uint8_t *end)
{
    size_t begin;
    MR_TRY(block_begin(&snapshot->out, &begin));
    MR_TRY(mr_buf_reserve(&snapshot->out, SLAB_CHUNK * MR_PACK_MAX));
    struct mr_entry before = {0};
    for (size_t n = 0; n < SLAB_CHUNK && *at < end; n++) {
        struct task task;
        struct more more;
        struct mr_entry entry;
        memcpy(&task, *at, sizeof task);
        *at += sizeof task;
        bool has_more = task.more != NO_HANDLE;
        if (has_more) {
            memcpy(&more, *at, sizeof more);
            *at += sizeof more;
        }
        entry_of(&task, has_more ? &more : NULL, &entry);
        snapshot->out.len += mr_entry_pack(&entry, &before, snapshot->out.data + snapshot->out.len);
        snapshot->tasks++;
    }
    block_end(snapshot, begin, SNAP_PACKED);
    return MR_OK;
}

/* ---- copying, by the engine ----------------------------------------------------------------- */

static enum mr_err copy_chunk(struct snapshot *snapshot, size_t chunk)
{
    const struct state *state = &snapshot->engine->state;
    struct mr_buf *copied = &snapshot->copied;
    size_t left = state->tasks.chunks[chunk].count;
    MR_TRY(mr_buf_reserve(copied, left * (sizeof(struct task) + sizeof(struct more))));
    uint32_t first = (uint32_t)(chunk << SLAB_SHIFT);
    for (uint32_t i = first; i < first + SLAB_CHUNK && left > 0; i++) {
        const struct task *task = task_at(state, i);
        __builtin_prefetch(task + COPY_AHEAD); /* into the next page too, which is far away */
        if (task->state == MR_STATE_NONE)
            continue;
        left--;
        memcpy(copied->data + copied->len, task, sizeof *task);
        copied->len += sizeof *task;
        if (task->more == NO_HANDLE)
            continue;
        memcpy(copied->data + copied->len, more_of(state, task), sizeof(struct more));
        copied->len += sizeof(struct more);
    }
    snapshot->saved[chunk] = 1;
    return MR_OK;
}

void snapshot_touch(uint32_t task, void *arg)
{
    struct mr_engine *engine = arg;
    struct snapshot *snapshot = engine->snapshot;
#ifdef MR_PLANT_SKIP_COW
    return;
#endif
    size_t chunk = task >> SLAB_SHIFT;
    if (snapshot == NULL || chunk >= snapshot->chunks || snapshot->saved[chunk])
        return;
    if (copy_chunk(snapshot, chunk) != MR_OK)
        snapshot->err = MR_NOMEM;
}

/* ---- beside the engine ---------------------------------------------------------------------- */

/* The blocks of what was copied; behind the last of it the END block, padded to a whole group. */
static enum mr_err make_blocks(struct snapshot *snapshot)
{
    static const uint8_t zeroes[SECTOR];
    const uint8_t *at = snapshot->records.data, *end = at;
    if (snapshot->records.len > 0) /* else there may be no memory at all to point behind */
        end += snapshot->records.len;
    while (at < end)
        MR_TRY(save_tasks(snapshot, &at, end));
    if (!snapshot->last)
        return MR_OK;
    uint8_t body[8];
    mr_store64(body, snapshot->tasks);
    MR_TRY(save_block(snapshot, SNAP_END, body, sizeof body));
    while (snapshot->out.len % GROUP_DATA != 0) {
        size_t missing = GROUP_DATA - snapshot->out.len % GROUP_DATA;
        MR_TRY(mr_buf_append(&snapshot->out, zeroes, missing < SECTOR ? missing : SECTOR));
    }
    return MR_OK;
}

/* Writes the whole groups of what is made; what is left over begins the next piece. */
static enum mr_err write_groups(struct snapshot *snapshot)
{
    struct mr_buf *out = &snapshot->out;
    size_t groups = out->len / GROUP_DATA;
    mr_buf_clear(&snapshot->sectors);
    MR_TRY(mr_buf_reserve(&snapshot->sectors, groups * GROUP_BYTES));
    parity_encode(out->data, groups, snapshot->engine->salt, snapshot->sectors.data);
    MR_TRY(mr_file_pwrite(snapshot->file, snapshot->sectors.data, groups * GROUP_BYTES,
                          snapshot->offset));
    mr_file_sync_ahead(snapshot->file, snapshot->offset, groups * GROUP_BYTES);
    snapshot->offset += groups * GROUP_BYTES;
    out->len -= groups * GROUP_DATA;
    memmove(out->data, out->data + groups * GROUP_DATA, out->len);
    return MR_OK;
}

static enum mr_err write_piece(struct snapshot *snapshot)
{
    struct mr_fs *fs = snapshot->engine->fs;
    MR_TRY(make_blocks(snapshot));
    if (snapshot->file == NULL) {
        enum mr_err err = mr_fs_open(fs, snapshot->tmp, MR_OPEN_WRITE, &snapshot->file);
        if (err == MR_NOT_FOUND) /* no space was kept for it */
            err = mr_fs_open(fs, snapshot->tmp, MR_OPEN_CREATE, &snapshot->file);
        MR_TRY(err);
    }
    MR_TRY(write_groups(snapshot));
    if (!snapshot->last)
        return MR_OK;
    MR_TRY(fs->ops->truncate(snapshot->file, snapshot->offset));
    MR_TRY(mr_file_sync(snapshot->file));
    MR_TRY(fs->ops->rename(fs, snapshot->tmp, snapshot->path));
    return fs->ops->dir_sync(fs, snapshot->engine->dir);
}

static void snapshot_run(struct mr_chore *chore)
{
    struct snapshot *snapshot = mr_container(chore, struct snapshot, chore);
    enum mr_err err = write_piece(snapshot);
    snapshot->chore_err = err;
    if (err == MR_OK && snapshot->last && snapshot->old[0] != '\0')
        (void)snapshot->engine->fs->ops->remove(snapshot->engine->fs, snapshot->old);
}

static void snapshot_free(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    mr_file_close(snapshot->file);
    mr_buf_done(&snapshot->copied);
    mr_buf_done(&snapshot->records);
    mr_buf_done(&snapshot->out);
    mr_buf_done(&snapshot->sectors);
    free(snapshot->saved);
    free(snapshot);
}

static void snapshot_done(struct mr_chore *chore)
{
    struct snapshot *snapshot = mr_container(chore, struct snapshot, chore);
    struct mr_engine *engine = snapshot->engine;
    snapshot->busy = false;
    if (snapshot->err == MR_OK)
        snapshot->err = snapshot->chore_err;
    if (snapshot->chore_err != MR_OK || !snapshot->last)
        return;
    engine->snap_seq = snapshot->seq;
    mr_log_said(engine->log, snapshot->unsaids);
    engine->snap_term = snapshot->term;
    engine->snap_bytes = snapshot->offset;
    engine->snapshots++;
    engine->snapshot = NULL;
    spare_used(engine);
    snapshot_free(snapshot);
    mr_log_trim(engine->log, engine->snap_seq);
}

/* ---- steps ---------------------------------------------------------------------------------- */

enum mr_err snapshot_begin(struct mr_engine *engine)
{
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL)
        return MR_NOMEM;
    snapshot->engine = engine;
    snapshot->seq = mr_log_last_seq(engine->log);
    mr_assert(snapshot->seq > engine->snap_seq); /* else it would bear the name of the old one */
    snapshot->unsaids = mr_log_unsaids(engine->log);
    snapshot->term = mr_log_term(engine->log);
    snapshot->chunks = engine->state.tasks.chunks_n;
    snapshot->saved = calloc(snapshot->chunks + 1, 1);
    mr_chore_init(&snapshot->chore, snapshot_run, snapshot_done);
    enum mr_err err = snapshot->saved == NULL ? MR_NOMEM : MR_OK;
    if (err == MR_OK)
        err = mr_path_join(snapshot->tmp, engine->dir, "spare");
    if (err == MR_OK)
        err = snap_path(engine->dir, snapshot->seq, snapshot->path);
    if (err == MR_OK && engine->snap_seq > 0)
        err = snap_path(engine->dir, engine->snap_seq, snapshot->old);
    if (err == MR_OK)
        err = save_rest(snapshot);
    if (err != MR_OK) {
        snapshot_free(snapshot);
        return err;
    }
    engine->snapshot = snapshot;
    engine->snap_log_bytes = engine->appended_bytes;
    mr_log_demand(engine->log);
    return MR_OK;
}

static bool is_piece(const struct snapshot *snapshot)
{
    size_t piece = mr_log_segment_bytes(snapshot->engine->log) / PIECES_A_SEGMENT;
    return snapshot->copied.len >= piece;
}

static enum mr_err copy_piece(struct snapshot *snapshot)
{
    while (snapshot->next < snapshot->chunks && !is_piece(snapshot)) {
        if (!snapshot->saved[snapshot->next])
            MR_TRY(copy_chunk(snapshot, snapshot->next));
        snapshot->next++;
    }
    return MR_OK;
}

static void drop(struct mr_engine *engine)
{
    struct snapshot *snapshot = engine->snapshot;
    engine->snapshot = NULL;
    spare_used(engine);
    snapshot_free(snapshot);
}

/* A piece a step. The last one waits until the snapshot's last record is durable. */
void snapshot_step(struct mr_engine *engine)
{
    struct snapshot *snapshot = engine->snapshot;
    if (snapshot->busy)
        return;
    if (snapshot->err == MR_OK)
        snapshot->err = copy_piece(snapshot);
    if (snapshot->err != MR_OK) {
        drop(engine);
        engine->snap_log_bytes = engine->appended_bytes; /* not again before the log has grown */
        return;
    }
    snapshot->last =
        snapshot->next == snapshot->chunks && mr_log_durable(engine->log) >= snapshot->seq;
    if (!is_piece(snapshot) && !snapshot->last)
        return;
    struct mr_buf records = snapshot->records;
    snapshot->records = snapshot->copied;
    snapshot->copied = records;
    mr_buf_clear(&snapshot->copied);
    snapshot->busy = true;
    engine->options.file_exec->submit(engine->options.file_exec, &snapshot->chore);
}

bool snapshot_idle(const struct mr_engine *engine)
{
    const struct snapshot *snapshot = engine->snapshot;
    if (snapshot == NULL)
        return true;
    if (engine_failure(engine) != MR_OK)
        return !snapshot->busy;
    bool waits = snapshot->next == snapshot->chunks && mr_log_durable(engine->log) < snapshot->seq;
    return !snapshot->busy && !waits;
}

void snapshot_abandon(struct mr_engine *engine)
{
    snapshot_free(engine->snapshot);
    engine->snapshot = NULL;
}
