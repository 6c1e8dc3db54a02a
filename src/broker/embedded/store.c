/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of a store:
 *
 *   lock             held while the store is open; names the process
 *   meta             what the store is (see meta.c)
 *   log-XXXXXXXX     segments of the commit log (see log/)
 *   snap-XXXX…       snapshot of the index up to the record with that number (see snapshot.c)
 *   board            which run is in which slot, for the start after a death of the process
 *   spare            space kept for the next snapshot, which is written over it (see space.c)
 *   tokens           who may do what, when a server runs on the folder (see api/); not ours to read
 *   tmp-…            unfinished; removed at the next start
 *   quarantine/      bytes that repair has set aside
 */
#include "broker/embedded/store.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEGMENT_BYTES_MAX = 1024 * 1024 * 1024 };

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
    uint64_t number;
    return mr_parse_hex_name(name, "tmp-", 8, &number) || strcmp(name, "tmp-meta") == 0 ||
           strcmp(name, "tmp-snap") == 0 || strcmp(name, "tmp-tokens") == 0;
}

/* Files that say nothing of whether a store was made here. */
static bool is_beside(const char *name)
{
    static const char *const names[] = {"lock",   "meta",     "board",        "spare",
                                        "tokens", "store.db", "store.db-wal", "store.db-shm"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
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
    } else if (!is_beside(name))
        contents->foreign = true;
}

static enum mr_err list_contents(struct mr_engine *engine, struct contents *contents)
{
    contents->engine = engine;
    MR_TRY(engine->fs->ops->dir_list(engine->fs, engine->dir, look_at, contents));
    return contents->err;
}

void recovery_note(struct recovery *recovery, const char *text)
{
    recovery->engine->records_damaged++;
    recovery->log.damaged++;
    if (recovery->log.line != NULL)
        recovery->log.line(text, recovery->log.line_arg);
}

/* There is no meta file, and no segment has a copy. */
static enum mr_err make_meta(struct recovery *recovery, const struct contents *contents)
{
    struct mr_engine *engine = recovery->engine;
    if (contents->log) {
        mr_detail_set(recovery->detail,
                      "%s/meta: missing, and %s is no segment that could restore it; restore the "
                      "store from a backup",
                      engine->dir, contents->name);
        return MR_DAMAGED;
    }
    if (contents->foreign) {
        mr_detail_set(recovery->detail, "%s: has files but no store in it; choose an empty folder",
                      engine->dir);
        return MR_NOT_A_STORE;
    }
    return meta_create(engine, &recovery->meta);
}

/* Without its meta file nothing of a store can be read; but every segment carries a copy. */
static enum mr_err restore_meta(struct recovery *recovery, bool missing)
{
    struct mr_engine *engine = recovery->engine;
    bool unused = false;
    if (missing && mr_log_unused(engine->fs, engine->dir, &unused) != MR_OK)
        unused = false;
    if (unused) /* it died while it was made */
        return meta_write(engine->fs, engine->dir, &recovery->meta);
    if (!engine->options.base.repair) {
        mr_detail_set(recovery->detail,
                      "%s/meta at offset 0: missing or damaged; `millrace fsck --repair file:%s` "
                      "restores it from the log",
                      engine->dir, engine->dir);
        return MR_DAMAGED;
    }
    recovery_note(recovery, "meta at offset 0: missing or damaged; restored from the log");
    return meta_write(engine->fs, engine->dir, &recovery->meta);
}

static enum mr_err find_meta(struct recovery *recovery)
{
    struct mr_engine *engine = recovery->engine;
    struct contents contents = {0};
    enum mr_err err = meta_read(engine->fs, engine->dir, &recovery->meta, recovery->detail);
    if (err == MR_OK) {
        MR_TRY(list_contents(engine, &contents));
        if (!recovery->meta.half_damaged)
            return MR_OK;
        recovery_note(recovery,
                      "meta: one of its two copies was damaged; written again from the other");
        return meta_write(engine->fs, engine->dir, &recovery->meta);
    }
    bool lost = err == MR_NOT_FOUND || err == MR_DAMAGED || err == MR_NOT_A_STORE;
    struct mr_detail ignored; /* what is wrong with meta says more */
    if (lost && meta_from_log(engine->fs, engine->dir, &recovery->meta, &ignored) == MR_OK) {
        MR_TRY(restore_meta(recovery, err == MR_NOT_FOUND));
        return list_contents(engine, &contents);
    }
    if (err != MR_NOT_FOUND)
        return err;
    MR_TRY(list_contents(engine, &contents));
    return make_meta(recovery, &contents);
}

/* Somebody else's folder is left as it is, without so much as a lock file; so is a store that cannot
 * be read here. */
static enum mr_err refuse_foreign(struct mr_engine *engine, struct mr_detail *detail)
{
    struct contents contents = {.engine = engine, .look_only = true};
    struct meta meta;
    uint8_t label[MR_SEGMENT_LABEL];
    if (engine->fs->ops->dir_list(engine->fs, engine->dir, look_at, &contents) != MR_OK ||
        contents.ours || mr_log_label(engine->fs, engine->dir, label) == MR_OK)
        return MR_OK; /* what is wrong with the folder itself is said by whoever needs it */
    enum mr_err err = meta_read(engine->fs, engine->dir, &meta, detail);
    if (err == MR_DAMAGED || err == MR_NOT_A_STORE || err == MR_VERSION)
        return err;
    if (err != MR_NOT_FOUND || (!contents.foreign && !contents.log))
        return MR_OK;
    mr_detail_set(detail, "%s/%s: not part of a Millrace store; choose an empty folder",
                  engine->dir, contents.name);
    return MR_NOT_A_STORE;
}

static bool file_exists(struct mr_fs *fs, const char *path)
{
    struct mr_file *file;
    enum mr_err err = mr_fs_open(fs, path, MR_OPEN_READ, &file);
    if (err == MR_OK)
        mr_file_close(file);
    return err != MR_NOT_FOUND;
}

enum mr_err store_lock(struct mr_fs *fs, const char *dir, struct mr_file **ret_file,
                       struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    long pid = 0;
    MR_TRY(mr_path_join(path, dir, "lock"));
    enum mr_err err = fs->ops->lock(fs, path, ret_file, &pid);
    if (err == MR_IN_USE && pid > 0)
        mr_detail_set(detail,
                      "%s: in use by process %ld; a file: store is opened by one process at a time",
                      dir, pid);
    else if (err == MR_IN_USE)
        mr_detail_set(detail,
                      "%s: in use by another process; a file: store is opened by one process at a "
                      "time",
                      dir);
    else if (err == MR_DENIED && file_exists(fs, path))
        mr_detail_set(detail, "%s: not allowed to write to it; work as the user who owns the store",
                      path);
    else if (err == MR_DENIED)
        mr_detail_set(detail, "%s: this folder is not writable for this user", dir);
    else if (err != MR_OK)
        mr_detail_set(detail, "%s: cannot be opened: %s", path, mr_err_text(err));
    return err;
}

static enum mr_err make_folder(struct mr_engine *engine, struct mr_detail *detail)
{
    enum mr_err err = engine->fs->ops->dir_make(engine->fs, engine->dir);
    if (err == MR_CONFLICT) {
        mr_detail_set(detail, "%s: a file, not a folder; choose a folder", engine->dir);
        return MR_NOT_A_STORE;
    }
    if (err != MR_OK)
        mr_detail_set(detail, "%s: cannot make the folder: %s", engine->dir, mr_err_text(err));
    return err;
}

void store_close_files(struct mr_engine *engine)
{
    mr_file_close(engine->board_file);
    mr_file_close(engine->lock_file);
    free(engine->own_board);
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
    /* Of a task that was in what was set aside. */
    if (err == MR_NOT_FOUND || (err == MR_DAMAGED && state->damage_seen))
        return MR_OK;
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

struct mr_log_options store_log_options(struct mr_engine *engine, const struct meta *meta,
                                        uint8_t label[META_SIZE])
{
    meta_encode(meta, label);
    return (struct mr_log_options){
        .fs = engine->fs,
        .dir = engine->dir,
        .store = meta->store_id,
        .salt = meta->salt,
        .label = mr_slice_make(label, META_SIZE),
        .segment_bytes = meta->segment_bytes,
        .clock = engine->clock,
        .sync_exec = engine->options.sync_exec,
        .file_exec = engine->options.file_exec,
        .changed = log_changed,
        .arg = engine,
    };
}

enum mr_err recovery_begin_state(struct recovery *recovery)
{
    struct mr_engine *engine = recovery->engine;
    bool damage_seen = engine->state.damage_seen;
    MR_TRY(state_init(&engine->state, recovery->meta.hash_key, engine->options.warm));
    engine->state.damage_seen = damage_seen;
    engine->state.touch = no_touch;
    engine->state.lease_ended = node_lease_ended;
    engine->state.lease_arg = engine;
    engine->state.log = engine->log;
    return MR_OK;
}

enum mr_err recover_state(struct recovery *recovery)
{
    struct mr_engine *engine = recovery->engine;
    const struct meta *meta = &recovery->meta;
    engine->store_id = meta->store_id;
    engine->salt = meta->salt;
    uint8_t label[META_SIZE];
    struct mr_log_options options = store_log_options(engine, meta, label);
    MR_TRY(mr_log_new(&options, &engine->log));
    MR_TRY(recovery_begin_state(recovery));
    MR_TRY(snapshot_read(recovery));
    engine->state.damage_seen |= recovery->log.mode == MR_FSCK_REPAIR;
    recovery->log.after_seq = engine->snap_seq;
    recovery->log.after_term = engine->snap_term;
    recovery->log.visit = visit_record;
    recovery->log.arg = recovery;
    MR_TRY(mr_log_recover(engine->log, &recovery->log, recovery->detail));
    mr_log_hold_chores(engine->log, true);
    engine->state.replaying = false;
    MR_TRY(groups_link(&engine->state));
    engine->records_damaged += state_hold_all(&engine->state, engine->now_ms);
    return MR_OK;
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* A change at the start may need more room than the segment has: the next one is made while we
 * wait. */
static enum mr_err make_room(struct mr_engine *engine)
{
    MR_TRY(mr_log_sync_now(engine->log));
    mr_log_make_room(engine->log);
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
        if (err == MR_BUSY) {
            MR_TRY(make_room(engine));
            err = lose_lease(engine, i, begun);
        }
        MR_TRY(err);
    }
    return MR_OK;
}

/* With repair, tasks whose record is lost go to the archive, where people see them. */
static enum mr_err archive_unreadable(struct mr_engine *engine)
{
    for (uint32_t i = 0; i < engine->state.tasks.used; i++) {
        const struct task *task = task_at(&engine->state, i);
        struct mr_task_msg msg;
        int64_t created_ms;
        if (task->state == MR_STATE_NONE || task->state == MR_ARCHIVED ||
            read_message(engine, task, &created_ms, &msg, NULL) != MR_DAMAGED)
            continue;
        enum mr_err err = quarantine_task(engine, i);
        if (err == MR_BUSY) {
            MR_TRY(make_room(engine));
            err = quarantine_task(engine, i);
        }
        MR_TRY(err);
    }
    return MR_OK;
}

static enum mr_err log_open_record(struct mr_engine *engine)
{
    uint8_t body[MR_EVENT_CEILING_SIZE];
    mr_store64(body, engine->ceiling);
    mr_log_make_room(engine->log);
    MR_TRY(log_room(engine, sizeof body, MR_LOG_ONGOING));
    return log_bytes(engine, MR_RECORD_OPEN, MR_LOG_DURABLE, body, sizeof body, NULL) == 0
               ? MR_NOMEM
               : MR_OK;
}

static enum mr_err begin_term(struct mr_engine *engine, struct mr_detail *detail)
{
    if (mr_log_last_term(engine->log) == UINT32_MAX) {
        mr_detail_set(detail, "%s: the log's term is at its end", engine->dir);
        return MR_DAMAGED;
    }
    engine->last_epoch = engine->state.epoch_ceiling;
    uint64_t now = (uint64_t)engine->now_us;
    if (engine->options.base.repair && engine->last_epoch < now + CEILING_AHEAD_US)
        engine->last_epoch = now + CEILING_AHEAD_US; /* a ceiling may be among what was lost */
    uint64_t base = engine->last_epoch > now ? engine->last_epoch : now;
    engine->ceiling = engine->ceiling_asked = base + CEILING_AHEAD_US;
    mr_log_set_term(engine->log, mr_log_last_term(engine->log) + 1);
    MR_TRY(log_open_record(engine));
    MR_TRY(recover_leases(engine));
    if (engine->options.base.repair)
        MR_TRY(archive_unreadable(engine));
    MR_TRY(mr_log_sync_now(engine->log));
    MR_TRY(state_durable(&engine->state, mr_log_durable(engine->log)));
    MR_TRY(board_begin(engine));
    mr_log_hold_chores(engine->log, false);
    return MR_OK;
}

/* Everything behind the checks at the door. */
static enum mr_err open_locked(struct mr_engine *engine, struct recovery *recovery)
{
    MR_TRY(find_meta(recovery));
    MR_TRY(board_open(engine, recovery->detail));
    MR_TRY(recover_state(recovery));
    parts_begin(&engine->state);
    size_t largest = recovery->meta.segment_bytes / 4;
    engine->payload_max = engine->payload_max < largest ? engine->payload_max : largest;
    engine->state.touch = snapshot_touch;
    engine->state.touch_arg = engine;
    snapshot_remove_older(engine);
    engine->torn_bytes = recovery->log.torn_bytes;
    if (engine->options.base.report != NULL)
        *engine->options.base.report = (struct mr_fsck_report){
            .records = recovery->log.records,
            .damaged = recovery->log.damaged,
            .bytes_aside = recovery->log.bytes_aside,
            .torn_bytes = recovery->log.torn_bytes,
        };
    return begin_term(engine, recovery->detail);
}

/* Where nobody knew more than the error: what it means here, and what to do. */
static void explain(struct mr_engine *engine, const struct recovery *recovery, enum mr_err err)
{
    struct mr_detail *detail = recovery->detail;
    if (detail == NULL || detail->text[0] != '\0')
        return;
    uint64_t left = 0;
    size_t kib = recovery->meta.segment_bytes / 1024;
    size_t number = kib < 1024 ? kib : kib / 1024;
    const char *unit = kib < 1024 ? "KiB" : "MiB";
    if (err != MR_DISK_FULL || engine->fs->ops->space(engine->fs, engine->dir, &left) != MR_OK)
        mr_detail_set(detail, "%s: cannot open the store: %s", engine->dir, mr_err_text(err));
    else if (left / 1024 < kib)
        mr_detail_set(detail,
                      "%s: the disk is full: the log needs a segment of %zu %s and %llu KiB are "
                      "free; make room and open it again",
                      engine->dir, number, unit, (unsigned long long)(left / 1024));
    else
        mr_detail_set(detail,
                      "%s: the log needs a segment of %zu %s, and a limit on the size of files "
                      "(ulimit -f) or a quota forbids it; raise it and open it again",
                      engine->dir, number, unit);
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
    MR_TRY(make_folder(engine, detail));
    MR_TRY(store_lock(engine->fs, engine->dir, &engine->lock_file, detail));
    enum mr_err err = open_locked(engine, &recovery);
    if (err != MR_OK)
        explain(engine, &recovery, err);
    return err;
}
