/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of the index, exact as of one record, written while the engine works on. The task table
 * is saved chunk by chunk over many turns; a chunk that is about to change before its turn is saved
 * first (snapshot_touch). So the file holds the state as of the moment it was begun, and a start
 * needs the file and the log behind it, nothing else.
 *
 * It is written over the file `spare`, whose space was kept for it (space.c), and renamed when it is
 * whole and synced and its last record durable.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "broker/embedded/snapfile.h"

enum {
    PIECE = 4 * GROUP_DATA, /* written and synced at once: small, the log's own syncs hardly wait */
};

struct snapshot {
    struct mr_engine *engine;
    uint64_t seq;
    uint32_t term;
    uint8_t *saved;      /* by chunk of the task table */
    size_t chunks, next; /* chunks below next are all saved */
    uint64_t tasks;      /* saved so far */
    struct mr_buf out;   /* made, not yet with the executor */
    bool ended;          /* the END block is made */
    enum mr_err err;     /* it is given up at its next step */
    /* With the executor while busy. */
    struct mr_job job;
    bool busy, last;
    struct mr_buf piece, sectors;
    struct mr_file *file;
    uint64_t offset;
    char tmp[MR_PATH_MAX], path[MR_PATH_MAX], old[MR_PATH_MAX];
    enum mr_err job_err;
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
    mr_store64(body + 32, engine->ceiling_asked);
    mr_store64(body + 40, engine->state.deleted);
    mr_store64(body + 48, engine->state.expired);
    return save_block(snapshot, SNAP_HEAD, body, sizeof body);
}

static enum mr_err save_queue(struct snapshot *snapshot, const struct queue *queue)
{
    struct mr_event_queue event = {
        .number = queue->number,
        .paused = queue->paused,
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
    block_end(snapshot, at, SNAP_QUEUE);
    return MR_OK;
}

static enum mr_err save_chunk(struct snapshot *snapshot, size_t chunk)
{
    const struct state *state = &snapshot->engine->state;
    size_t at;
    MR_TRY(block_begin(&snapshot->out, &at));
    MR_TRY(mr_buf_reserve(&snapshot->out, SLAB_CHUNK * MR_ENTRY_MAX));
    uint32_t first = (uint32_t)(chunk << SLAB_SHIFT);
    for (uint32_t i = first; i < first + SLAB_CHUNK && i < state->tasks.used; i++) {
        if (task_at(state, i)->state == MR_STATE_NONE)
            continue;
        struct mr_entry entry;
        entry_of(state, i, &entry);
        snapshot->out.len += mr_entry_encode(&entry, snapshot->out.data + snapshot->out.len);
        snapshot->tasks++;
    }
    if (snapshot->out.len - at == SNAP_BLOCK_HEAD)
        snapshot->out.len = at;
    else
        block_end(snapshot, at, SNAP_TASKS);
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
    if (save_chunk(snapshot, chunk) != MR_OK)
        snapshot->err = MR_NOMEM;
}

/* ---- beside the engine ---------------------------------------------------------------------- */

static enum mr_err write_piece(struct snapshot *snapshot)
{
    struct mr_fs *fs = snapshot->engine->fs;
    if (snapshot->file == NULL) {
        enum mr_err err = mr_fs_open(fs, snapshot->tmp, MR_OPEN_WRITE, &snapshot->file);
        if (err == MR_NOT_FOUND) /* no space was kept for it */
            err = mr_fs_open(fs, snapshot->tmp, MR_OPEN_CREATE, &snapshot->file);
        MR_TRY(err);
    }
    size_t groups = snapshot->piece.len / GROUP_DATA;
    mr_assert(groups * GROUP_DATA == snapshot->piece.len);
    mr_buf_clear(&snapshot->sectors);
    MR_TRY(mr_buf_reserve(&snapshot->sectors, groups * GROUP_BYTES));
    parity_encode(snapshot->piece.data, groups, snapshot->engine->salt, snapshot->sectors.data);
    MR_TRY(mr_file_pwrite(snapshot->file, snapshot->sectors.data, groups * GROUP_BYTES,
                          snapshot->offset));
    snapshot->offset += groups * GROUP_BYTES;
    if (snapshot->last)
        MR_TRY(fs->ops->truncate(snapshot->file, snapshot->offset));
    MR_TRY(mr_file_sync(snapshot->file));
    if (!snapshot->last)
        return MR_OK;
    MR_TRY(fs->ops->rename(fs, snapshot->tmp, snapshot->path));
    return fs->ops->dir_sync(fs, snapshot->engine->dir);
}

static void snapshot_run(struct mr_job *job)
{
    struct snapshot *snapshot = mr_container(job, struct snapshot, job);
    enum mr_err err = write_piece(snapshot);
    snapshot->job_err = err;
    if (err == MR_OK && snapshot->last && snapshot->old[0] != '\0')
        (void)snapshot->engine->fs->ops->remove(snapshot->engine->fs, snapshot->old);
}

static void snapshot_free(struct snapshot *snapshot)
{
    if (snapshot == NULL)
        return;
    mr_file_close(snapshot->file);
    mr_buf_done(&snapshot->out);
    mr_buf_done(&snapshot->piece);
    mr_buf_done(&snapshot->sectors);
    free(snapshot->saved);
    free(snapshot);
}

static void snapshot_done(struct mr_job *job)
{
    struct snapshot *snapshot = mr_container(job, struct snapshot, job);
    struct mr_engine *engine = snapshot->engine;
    snapshot->busy = false;
    if (snapshot->err == MR_OK)
        snapshot->err = snapshot->job_err;
    if (snapshot->job_err != MR_OK || !snapshot->last)
        return;
    engine->snap_seq = snapshot->seq;
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
    snapshot->term = mr_log_term(engine->log);
    snapshot->chunks = engine->state.tasks.chunks_n;
    snapshot->saved = calloc(snapshot->chunks + 1, 1);
    mr_job_init(&snapshot->job, snapshot_run, snapshot_done);
    enum mr_err err = snapshot->saved == NULL ? MR_NOMEM : MR_OK;
    if (err == MR_OK)
        err = mr_path_join(snapshot->tmp, engine->dir, "spare");
    if (err == MR_OK)
        err = snap_path(engine->dir, snapshot->seq, snapshot->path);
    if (err == MR_OK && engine->snap_seq > 0)
        err = snap_path(engine->dir, engine->snap_seq, snapshot->old);
    if (err == MR_OK)
        err = save_head(snapshot);
    for (uint32_t i = 0; err == MR_OK && i < engine->state.queues_n; i++)
        if (engine->state.queues[i] != NULL)
            err = save_queue(snapshot, engine->state.queues[i]);
    if (err != MR_OK) {
        snapshot_free(snapshot);
        return err;
    }
    engine->snapshot = snapshot;
    engine->snap_log_bytes = engine->appended_bytes;
    mr_log_demand(engine->log);
    return MR_OK;
}

/* Makes the next piece. At the end the END block, once the snapshot's last record is durable. */
static enum mr_err fill_piece(struct snapshot *snapshot)
{
    while (snapshot->next < snapshot->chunks && snapshot->out.len < PIECE) {
        if (!snapshot->saved[snapshot->next])
            MR_TRY(save_chunk(snapshot, snapshot->next));
        snapshot->next++;
    }
    bool durable = mr_log_durable(snapshot->engine->log) >= snapshot->seq;
    if (snapshot->next == snapshot->chunks && durable && !snapshot->ended) {
        uint8_t body[8];
        mr_store64(body, snapshot->tasks);
        MR_TRY(save_block(snapshot, SNAP_END, body, sizeof body));
        snapshot->ended = true;
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

/* Hands what is made to the executor, in whole groups; what is left over begins the next piece. */
static enum mr_err cut_piece(struct snapshot *snapshot)
{
    static const uint8_t zeroes[SECTOR];
    while (snapshot->ended && snapshot->out.len % GROUP_DATA != 0) {
        size_t missing = GROUP_DATA - snapshot->out.len % GROUP_DATA;
        MR_TRY(mr_buf_append(&snapshot->out, zeroes, missing < SECTOR ? missing : SECTOR));
    }
    size_t whole = snapshot->out.len / GROUP_DATA * GROUP_DATA;
    struct mr_buf made = snapshot->out;
    mr_buf_clear(&snapshot->piece);
    MR_TRY(mr_buf_append(&snapshot->piece, made.data + whole, made.len - whole));
    made.len = whole;
    snapshot->out = snapshot->piece;
    snapshot->piece = made;
    return MR_OK;
}

void snapshot_step(struct mr_engine *engine)
{
    struct snapshot *snapshot = engine->snapshot;
    if (snapshot->busy)
        return;
    if (snapshot->err == MR_OK)
        snapshot->err = fill_piece(snapshot);
    if (snapshot->err != MR_OK) {
        drop(engine);
        engine->snap_log_bytes = engine->appended_bytes; /* not again before the log has grown */
        return;
    }
    if (snapshot->out.len == 0 || (snapshot->out.len < PIECE && !snapshot->ended))
        return;
    snapshot->err = cut_piece(snapshot);
    if (snapshot->err != MR_OK)
        return;
    snapshot->last = snapshot->ended;
    snapshot->busy = true;
    engine->options.file_exec->submit(engine->options.file_exec, &snapshot->job);
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
