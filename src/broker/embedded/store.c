/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a store:
 *
 *   lock             held while the store is open; names the process
 *   meta             what the store is: version, id, checksum salt, hash key, segment size
 *   log-XXXXXXXX     segments of the commit log (see log/)
 *   snap-XXXX…       snapshot of the index up to the record with that number (see snapshot.c)
 *   board            which run is in which slot, for the start after a death of the process
 *   tmp-…            unfinished; removed at the next start
 *   quarantine/      bytes that repair has set aside
 *
 * meta holds the same 80 bytes twice, at 0 and at 4096, since nothing can be read without them:
 *
 *   0  "MRSTORE1"
 *   8  u32 version
 *   12 u32 salt
 *   16 id (16)
 *   32 hash key (16)
 *   48 u64 segment bytes
 *   56 zero
 *   76 u32 CRC32C of bytes 0..75
 */
#include "broker/embedded/store.h"

#include <stdio.h>

#include "base/crc.h"

enum { SEGMENT_BYTES_MAX = 1024 * 1024 * 1024 };

enum { META_SIZE = 80, META_COPY_AT = 4096, META_VERSION = 1, BOARD_BYTES = BOARD_SLOTS * 8 };

static const char magic[8] = {'M', 'R', 'S', 'T', 'O', 'R', 'E', '1'};

/* ---- the meta file -------------------------------------------------------------------------- */

static void meta_encode(const struct meta *meta, uint8_t bytes[META_SIZE])
{
    memset(bytes, 0, META_SIZE);
    memcpy(bytes, magic, sizeof magic);
    mr_store32(bytes + 8, META_VERSION);
    mr_store32(bytes + 12, meta->salt);
    memcpy(bytes + 16, meta->store_id.bytes, 16);
    mr_store64(bytes + 32, meta->hash_key.k0);
    mr_store64(bytes + 40, meta->hash_key.k1);
    mr_store64(bytes + 48, meta->segment_bytes);
    mr_store32(bytes + 76, mr_crc32c(0, bytes, 76));
}

static enum mr_err meta_decode(const uint8_t bytes[META_SIZE], const char *path,
                               struct meta *ret_meta, struct mr_detail *detail)
{
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        mr_detail_set(detail, "%s: not a Millrace store; choose another folder", path);
        return MR_NOT_A_STORE;
    }
    if (mr_load32(bytes + 8) > META_VERSION) {
        mr_detail_set(
            detail, "%s: format version %u is newer than this program knows (%d); use a newer one",
            path, mr_load32(bytes + 8), META_VERSION);
        return MR_VERSION;
    }
    uint64_t segment_bytes = mr_load64(bytes + 48);
    if (mr_load32(bytes + 76) != mr_crc32c(0, bytes, 76) || segment_bytes < MR_SEGMENT_BYTES_MIN ||
        segment_bytes > UINT32_MAX) {
        mr_detail_set(detail, "%s at offset 0: damaged; restore this file from a backup", path);
        return MR_DAMAGED;
    }
    ret_meta->salt = mr_load32(bytes + 12);
    memcpy(ret_meta->store_id.bytes, bytes + 16, 16);
    ret_meta->hash_key = (struct mr_hash_key){mr_load64(bytes + 32), mr_load64(bytes + 40)};
    ret_meta->segment_bytes = (size_t)segment_bytes;
    return MR_OK;
}

static enum mr_err meta_read_at(struct mr_file *file, uint64_t at, const char *path,
                                struct meta *ret_meta, struct mr_detail *detail)
{
    uint8_t bytes[META_SIZE] = {0};
    uint64_t size;
    MR_TRY(mr_file_size(file, &size));
    size_t len = size > at + META_SIZE ? META_SIZE : size > at ? (size_t)(size - at) : 0;
    if (len > 0)
        MR_TRY(mr_file_pread(file, bytes, len, at));
    return meta_decode(bytes, path, ret_meta, detail);
}

enum mr_err meta_read(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                      struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    struct mr_file *file;
    struct meta copy;
    MR_TRY(mr_path_join(path, dir, "meta"));
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_READ, &file));
    enum mr_err err = meta_read_at(file, 0, path, ret_meta, detail);
    enum mr_err copy_err = meta_read_at(file, META_COPY_AT, path, &copy, NULL);
    mr_file_close(file);
    if (err == MR_OK) {
        ret_meta->half_damaged = copy_err != MR_OK;
    } else if (copy_err == MR_OK) {
        *ret_meta = copy;
        ret_meta->half_damaged = true;
        if (detail != NULL)
            detail->text[0] = '\0';
        return MR_OK;
    }
    return err;
}

static enum mr_err write_file(struct mr_fs *fs, const char *path, const void *bytes, size_t len)
{
    struct mr_file *file;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_CREATE, &file));
    enum mr_err err = mr_file_pwrite(file, bytes, len, 0);
    if (err == MR_OK)
        err = mr_file_sync(file);
    mr_file_close(file);
    return err;
}

static enum mr_err meta_write(struct mr_engine *engine, const struct meta *meta)
{
    uint8_t bytes[META_COPY_AT + META_SIZE] = {0};
    char tmp[MR_PATH_MAX], path[MR_PATH_MAX];
    meta_encode(meta, bytes);
    meta_encode(meta, bytes + META_COPY_AT);
    MR_TRY(mr_path_join(tmp, engine->dir, "tmp-meta"));
    MR_TRY(mr_path_join(path, engine->dir, "meta"));
    MR_TRY(write_file(engine->fs, tmp, bytes, sizeof bytes));
    MR_TRY(engine->fs->ops->rename(engine->fs, tmp, path));
    return engine->fs->ops->dir_sync(engine->fs, engine->dir);
}

static enum mr_err meta_create(struct mr_engine *engine, struct meta *meta)
{
    size_t segment_bytes = engine->options.base.segment_bytes;
    meta->segment_bytes = segment_bytes ? segment_bytes : MR_SEGMENT_BYTES_DEFAULT;
    meta->salt = (uint32_t)mr_rand_next(&engine->rand);
    meta->hash_key = (struct mr_hash_key){mr_rand_next(&engine->rand), mr_rand_next(&engine->rand)};
    mr_rand_bytes(&engine->rand, meta->store_id.bytes, sizeof meta->store_id.bytes);
    return meta_write(engine, meta);
}

/* ---- the folder ----------------------------------------------------------------------------- */

struct contents {
    struct mr_engine *engine;
    bool look_only; /* else unfinished files are removed */
    bool foreign;   /* files that no store has */
    bool ours;      /* a sign that a store was begun here */
    bool log;       /* segments or snapshots */
    char name[40];  /* of one that looks like ours, or is not */
    enum mr_err err;
};

/* Names that only an unfinished file of a store has. */
static bool is_unfinished(const char *name)
{
    unsigned number;
    int used = 0;
    bool segment =
        sscanf(name, "tmp-%8x%n", &number, &used) == 1 && used == 12 && name[used] == '\0';
    return segment || strcmp(name, "tmp-meta") == 0 || strcmp(name, "tmp-snap") == 0;
}

static void look_at(const char *name, void *arg)
{
    struct contents *contents = arg;
    struct mr_slice text = mr_slice_str(name);
    char path[MR_PATH_MAX];
    if (contents->name[0] == '\0' || mr_slice_starts_with(text, MR_SLICE_LIT("log-")))
        snprintf(contents->name, sizeof contents->name, "%.39s", name);
    if (mr_slice_starts_with(text, MR_SLICE_LIT("log-")) ||
        mr_slice_starts_with(text, MR_SLICE_LIT("snap-")))
        contents->log = true;
    else if (is_unfinished(name)) {
        contents->ours = true;
        if (contents->look_only)
            return;
        if (contents->err == MR_OK)
            contents->err = mr_path_join(path, contents->engine->dir, name);
        if (contents->err == MR_OK)
            contents->err = contents->engine->fs->ops->remove(contents->engine->fs, path);
    } else if (strcmp(name, "lock") != 0 && strcmp(name, "meta") != 0 && strcmp(name, "board") != 0)
        contents->foreign = true;
}

static enum mr_err find_meta(struct mr_engine *engine, struct meta *meta, struct mr_detail *detail)
{
    enum mr_err err = meta_read(engine->fs, engine->dir, meta, detail);
    struct contents contents = {.engine = engine};
    if (err == MR_OK || err == MR_NOT_FOUND) {
        enum mr_err listed = engine->fs->ops->dir_list(engine->fs, engine->dir, look_at, &contents);
        MR_TRY(listed);
        MR_TRY(contents.err);
    }
    if (err == MR_OK && meta->half_damaged) {
        engine->records_damaged++;
        err = meta_write(engine, meta); /* from the good copy */
    }
    if (err != MR_NOT_FOUND)
        return err;
    if (contents.foreign && !contents.log) {
        mr_detail_set(detail, "%s: has files but no store in it; choose an empty folder",
                      engine->dir);
        return MR_NOT_A_STORE;
    }
    return meta_create(engine, meta);
}

/* Without its meta file nothing of a store can be read; but every segment carries a copy. */
static enum mr_err find_or_restore_meta(struct mr_engine *engine, struct meta *meta,
                                        struct mr_detail *detail)
{
    uint8_t label[MR_SEGMENT_LABEL];
    enum mr_err err = meta_read(engine->fs, engine->dir, meta, detail);
    bool lost = err == MR_NOT_FOUND || err == MR_DAMAGED || err == MR_NOT_A_STORE;
    if (!lost || mr_log_label(engine->fs, engine->dir, label) != MR_OK)
        return find_meta(engine, meta, detail);
    if (!engine->options.base.repair) {
        mr_detail_set(detail,
                      "%s/meta at offset 0: missing or damaged; `millrace fsck --repair file:%s` "
                      "restores it from the log",
                      engine->dir, engine->dir);
        return MR_DAMAGED;
    }
    MR_TRY(meta_decode(label, engine->dir, meta, detail));
    MR_TRY(meta_write(engine, meta));
    engine->records_damaged++;
    return find_meta(engine, meta, detail);
}

/* Somebody else's folder is left as it is, without so much as a lock file. */
static enum mr_err refuse_foreign(struct mr_engine *engine, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    struct mr_file *file;
    struct contents contents = {.engine = engine, .look_only = true};
    enum mr_err err = engine->fs->ops->dir_list(engine->fs, engine->dir, look_at, &contents);
    uint8_t label[MR_SEGMENT_LABEL];
    bool other = contents.foreign || contents.log;
    if (err != MR_OK || !other || contents.ours ||
        mr_log_label(engine->fs, engine->dir, label) == MR_OK)
        return MR_OK; /* what is wrong with the folder itself is said by whoever needs it */
    MR_TRY(mr_path_join(path, engine->dir, "meta"));
    if (mr_fs_open(engine->fs, path, MR_OPEN_READ, &file) == MR_OK) {
        mr_file_close(file);
        return MR_OK;
    }
    mr_detail_set(detail, "%s/%s: not part of a Millrace store; choose an empty folder",
                  engine->dir, contents.name);
    return MR_NOT_A_STORE;
}

static enum mr_err lock_folder(struct mr_engine *engine, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    long pid = 0;
    enum mr_err err = engine->fs->ops->dir_make(engine->fs, engine->dir);
    if (err == MR_OK)
        err = mr_path_join(path, engine->dir, "lock");
    if (err == MR_OK)
        err = engine->fs->ops->lock(engine->fs, path, &engine->lock_file, &pid);
    if (err == MR_CONFLICT) {
        mr_detail_set(detail, "%s: a file, not a folder; choose a folder", engine->dir);
        return MR_NOT_A_STORE;
    }
    if (err == MR_IN_USE)
        mr_detail_set(detail,
                      "%s: in use by process %ld; a file: store is opened by one process at a time",
                      engine->dir, pid);
    else if (err != MR_OK)
        mr_detail_set(detail, "%s: cannot open the folder: %s", engine->dir, mr_err_text(err));
    return err;
}

/* ---- the board ------------------------------------------------------------------------------ */

static enum mr_err open_board(struct mr_engine *engine)
{
    static const uint8_t zeroes[BOARD_BYTES];
    char path[MR_PATH_MAX];
    uint64_t size = 0;
    void *memory;
    MR_TRY(mr_path_join(path, engine->dir, "board"));
    enum mr_err err = mr_fs_open(engine->fs, path, MR_OPEN_WRITE, &engine->board_file);
    if (err == MR_NOT_FOUND)
        err = mr_fs_open(engine->fs, path, MR_OPEN_CREATE, &engine->board_file);
    if (err == MR_OK)
        err = mr_file_size(engine->board_file, &size);
    if (err == MR_OK && size < BOARD_BYTES)
        err = mr_file_pwrite(engine->board_file, zeroes, BOARD_BYTES, 0);
    if (err == MR_OK)
        err = engine->board_file->fs->ops->map(engine->board_file, BOARD_BYTES, &memory);
    if (err == MR_OK)
        engine->board = memory;
    return err;
}

void store_close_files(struct mr_engine *engine)
{
    mr_file_close(engine->board_file);
    mr_file_close(engine->lock_file);
}

/* ---- recovery ------------------------------------------------------------------------------- */

static enum mr_err visit_record(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    struct recovery *recovery = arg;
    struct state *state = &recovery->engine->state;
#ifdef MR_PLANT_RECOVERY_OFF_BY_ONE
    if (record->seq == recovery->engine->snap_seq + 1 && record->type == MR_RECORD_FINISH)
        return MR_OK;
    if (record->type == MR_RECORD_DELETE && record->seq % 2)
        return MR_OK;
#endif
    if (record->type == MR_RECORD_SKIP || recovery->log.gaps > 0)
        state->damage_seen = true;
    enum mr_err err = apply_record(state, record, pos);
    bool tolerated = err == MR_NOT_FOUND || (err == MR_DAMAGED && state->damage_seen);
    if (tolerated) {
        state->anomalies++;
        return MR_OK;
    }
    if (err == MR_DAMAGED || err == MR_VERSION) {
        char name[32];
        mr_segment_name(name, pos.segment);
        mr_detail_set(
            recovery->detail, "%s/%s at offset %u: record %llu (%s) %s", recovery->engine->dir,
            name, pos.offset, (unsigned long long)record->seq, mr_record_type_name(record->type),
            err == MR_VERSION ? "was written by a newer version" : "does not fit what is known");
    }
    return err;
}

static void no_touch(uint32_t task, void *arg)
{
    (void)task, (void)arg;
}

static void log_changed(void *arg)
{
    ((struct mr_engine *)arg)->compact_waits =
        false; /* the turn that follows looks at everything */
}

enum mr_err recover_state(struct recovery *recovery)
{
    struct mr_engine *engine = recovery->engine;
    struct meta *meta = &recovery->meta;
    bool damage_seen = engine->state.damage_seen;
    MR_TRY(state_init(&engine->state, meta->hash_key, engine->options.warm));
    engine->state.damage_seen = damage_seen;
    engine->store_id = meta->store_id;
    engine->salt = meta->salt;
    engine->state.touch = no_touch;
    engine->state.lease_ended = node_lease_ended;
    engine->state.lease_arg = engine;
    uint8_t label[META_SIZE];
    meta_encode(meta, label);
    struct mr_log_options options = {
        .fs = engine->fs,
        .dir = engine->dir,
        .store = meta->store_id,
        .salt = meta->salt,
        .label = mr_slice_make(label, sizeof label),
        .segment_bytes = meta->segment_bytes,
        .clock = engine->clock,
        .sync_exec = engine->options.sync_exec,
        .file_exec = engine->options.file_exec,
        .changed = log_changed,
        .arg = engine,
    };
    MR_TRY(mr_log_new(&options, &engine->log));
    engine->state.log = engine->log;
    MR_TRY(snapshot_load(engine, recovery->detail));
    engine->state.damage_seen |= recovery->log.mode == MR_FSCK_REPAIR;
    recovery->log.after_seq = engine->snap_seq;
    recovery->log.after_term = engine->snap_term;
    recovery->log.visit = visit_record;
    recovery->log.arg = recovery;
    MR_TRY(mr_log_recover(engine->log, &recovery->log, recovery->detail));
    mr_log_hold_jobs(engine->log, true);
    engine->state.replaying = false;
    engine->records_damaged += state_hold_all(&engine->state);
    return MR_OK;
}

/* Leases do not outlive the process: every active task goes back, a crash counted where its run had
 * begun. */
static enum mr_err recover_leases(struct mr_engine *engine)
{
    for (uint32_t i = 0; i < engine->state.tasks.used; i++) {
        const struct task *task = task_at(&engine->state, i);
        if (task->state != MR_ACTIVE)
            continue;
        bool begun = board_has(engine, 0, BOARD_SLOTS, more_of(&engine->state, task)->epoch);
        enum mr_err err = lose_lease(engine, i, begun);
        if (err ==
            MR_BUSY) { /* more of them than a segment holds: the next is made while we wait */
            MR_TRY(mr_log_sync_now(engine->log));
            mr_log_make_room(engine->log);
            err = lose_lease(engine, i, begun);
        }
        MR_TRY(err);
    }
    return MR_OK;
}

static enum mr_err begin_term(struct mr_engine *engine, struct mr_detail *detail)
{
    if (mr_log_last_term(engine->log) == UINT32_MAX) {
        mr_detail_set(detail, "%s: the log's term is at its end", engine->dir);
        return MR_DAMAGED;
    }
    engine->last_epoch = engine->state.epoch_ceiling;
    uint64_t now = (uint64_t)engine->now_us;
    uint64_t base = engine->last_epoch > now ? engine->last_epoch : now;
    engine->ceiling = engine->ceiling_asked = base + CEILING_AHEAD_US;
    mr_log_set_term(engine->log, mr_log_last_term(engine->log) + 1);
    mr_log_make_room(engine->log);
    uint8_t body[MR_EVENT_CEILING_SIZE];
    mr_store64(body, engine->ceiling);
    enum mr_err err = log_room(engine, sizeof body, MR_LOG_ONGOING);
    if (err == MR_OK &&
        log_bytes(engine, MR_RECORD_OPEN, MR_LOG_DURABLE, body, sizeof body, NULL) == 0)
        err = MR_NOMEM;
    if (err == MR_OK)
        err = recover_leases(engine);
    if (err == MR_OK)
        err = mr_log_sync_now(engine->log);
    if (err == MR_OK)
        err = state_durable(&engine->state, mr_log_durable(engine->log));
    if (err != MR_OK) {
        mr_detail_set(detail, "%s: cannot begin: %s", engine->dir, mr_err_text(err));
        return err;
    }
    for (uint32_t i = 0; i < BOARD_SLOTS; i++)
        atomic_store_explicit(&engine->board[i], 0, memory_order_relaxed);
    mr_log_hold_jobs(engine->log, false);
    return MR_OK;
}

enum mr_err store_open(struct mr_engine *engine, struct mr_detail *detail)
{
    size_t len = strlen(engine->options.base.dir);
    if (len == 0 || len >= sizeof engine->dir - 64) {
        mr_detail_set(detail, "file: needs a folder name of at most %zu bytes",
                      sizeof engine->dir - 65);
        return MR_INVALID;
    }
    memcpy(engine->dir, engine->options.base.dir, len + 1);
    size_t segment_bytes = engine->options.base.segment_bytes;
    if (segment_bytes != 0 &&
        (segment_bytes < MR_SEGMENT_BYTES_MIN || segment_bytes > SEGMENT_BYTES_MAX)) {
        mr_detail_set(detail, "a segment of %zu bytes: it must have between %d and %d",
                      segment_bytes, MR_SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        return MR_INVALID;
    }
    struct recovery recovery = {.engine = engine, .detail = detail};
    recovery.log.mode = engine->options.base.repair ? MR_FSCK_REPAIR : MR_FSCK_CHECK;
    recovery.log.line = engine->options.base.line;
    recovery.log.line_arg = engine->options.base.line_arg;
    MR_TRY(refuse_foreign(engine, detail));
    MR_TRY(lock_folder(engine, detail));
    enum mr_err err = find_or_restore_meta(engine, &recovery.meta, detail);
    if (err == MR_OK)
        err = open_board(engine);
    if (err == MR_OK)
        err = recover_state(&recovery);
    if (err != MR_OK) {
        if (detail != NULL && detail->text[0] == '\0')
            mr_detail_set(detail, "%s: cannot open the store: %s", engine->dir, mr_err_text(err));
        return err;
    }
    size_t largest = recovery.meta.segment_bytes / 4;
    engine->payload_max = engine->payload_max < largest ? engine->payload_max : largest;
    engine->state.touch = snapshot_touch;
    engine->state.touch_arg = engine;
    snapshot_remove_older(engine);
    engine->torn_bytes = recovery.log.torn_bytes;
    if (engine->options.base.report != NULL)
        *engine->options.base.report = (struct mr_fsck_report){
            .records = recovery.log.records,
            .damaged = recovery.log.damaged,
            .bytes_aside = recovery.log.bytes_aside,
            .torn_bytes = recovery.log.torn_bytes,
        };
    return begin_term(engine, detail);
}
