/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading every byte of a store that nobody has open: the meta file, the head of the board, the
 * snapshot, every record of every segment, and every task's own record against the index. Checking
 * changes nothing; repair opens the store once with damage set aside, so that it can be opened as
 * usual afterwards.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/store.h"

struct fsck {
    const struct mr_store_check *options;
    struct mr_fs *fs;
    struct mr_engine *engine;
    struct mr_fsck_report *report;
    struct mr_detail *detail;
};

static void say(struct fsck *fsck, const char *text)
{
    if (fsck->options->line != NULL)
        fsck->options->line(text, fsck->options->arg);
}

/* One in the archive is dealt with: a repair, or the engine, put it there. */
static void check_tasks(struct fsck *fsck)
{
    const struct state *state = &fsck->engine->state;
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        if (task->state == MR_STATE_NONE)
            continue;
        struct mr_task_msg msg;
        int64_t created_ms;
        fsck->report->tasks++;
        if (read_message(fsck->engine, task, &created_ms, &msg, NULL) == MR_OK)
            continue;
        char id[MR_UUID_TEXT_LEN + 1], text[128];
        bool archived = task->state == MR_ARCHIVED;
        mr_uuid_format(&task->id, id);
        snprintf(text, sizeof text, "task %s: %sits record cannot be read", id,
                 archived ? "archived, since " : "");
        say(fsck, text);
        fsck->report->mismatches += !archived;
    }
}

/* The description of the store, from wherever it can still be read. */
static enum mr_err find_meta(struct fsck *fsck, struct meta *meta)
{
    const char *dir = fsck->options->dir;
    struct mr_detail ignored;
    enum mr_err err = meta_read(fsck->fs, dir, meta, fsck->detail);
    if (err == MR_OK && meta->half_damaged) {
        say(fsck, "meta: one of its two copies is damaged; opening the store mends it");
        fsck->report->damaged++;
    }
    if (err != MR_NOT_FOUND && err != MR_DAMAGED && err != MR_NOT_A_STORE)
        return err;
    if (meta_from_log(fsck->fs, dir, meta, &ignored) != MR_OK) {
        if (err == MR_NOT_FOUND)
            mr_detail_set(fsck->detail, "%s: no Millrace store in this folder", dir);
        return err;
    }
    if (fsck->detail != NULL)
        fsck->detail->text[0] = '\0';
    bool unused = false;
    if (err == MR_NOT_FOUND && mr_log_unused(fsck->fs, dir, &unused) == MR_OK && unused)
        return MR_OK; /* it died while it was made; opening it goes on from there */
    say(fsck, "meta at offset 0: missing or damaged; --repair restores it from the log");
    fsck->report->damaged++;
    return MR_OK;
}

static enum mr_err check_engine(struct fsck *fsck)
{
    struct mr_engine *engine = fsck->engine;
    struct recovery recovery = {.engine = engine, .detail = fsck->detail};
    recovery.log.read_only = true;
    recovery.log.line = fsck->options->line;
    recovery.log.line_arg = fsck->options->arg;
    engine->fs = fsck->fs;
    engine->clock = fsck->options->clock != NULL ? fsck->options->clock : mr_clock_system();
    engine->now_ms = mr_wall_ms(mr_wall_now(engine->clock));
    snprintf(engine->dir, sizeof engine->dir, "%s", fsck->options->dir);
    mr_list_init(&engine->waiting);
    mr_list_init(&engine->stalled);
    mr_list_init(&engine->granted);
    mr_list_init(&engine->nodes);
    mr_list_init(&engine->assignments);
    diary_init(&engine->diary);
    mr_list_init(&engine->backups);
    MR_TRY(find_meta(fsck, &recovery.meta));
    MR_TRY(board_check(fsck->fs, fsck->options->dir, fsck->detail));
    engine->state.damage_seen = true;
    MR_TRY(recover_state(&recovery));
    fsck->report->segments = mr_log_segments(engine->log);
    fsck->report->records = recovery.log.records;
    fsck->report->torn_bytes = recovery.log.torn_bytes;
    fsck->report->damaged += recovery.log.damaged;
    check_tasks(fsck);
    return MR_OK;
}

static enum mr_err check(struct fsck *fsck)
{
    struct mr_file *lock;
    MR_TRY(store_lock(fsck->fs, fsck->options->dir, &lock, fsck->detail));
    fsck->engine = calloc(1, sizeof *fsck->engine);
    enum mr_err err = fsck->engine == NULL ? MR_NOMEM : check_engine(fsck);
    mr_engine_abandon(fsck->engine);
    mr_file_close(lock);
    return err;
}

/* ---- repair --------------------------------------------------------------------------------- */

static void drop_chore(struct mr_exec *exec, struct mr_chore *chore)
{
    (void)exec, (void)chore; /* the next segment is made by whoever opens the store for work */
}

/* An open with repair does it; what it says of the damage it found goes to the caller. */
static enum mr_err repair(struct fsck *fsck)
{
    struct mr_exec nobody = {drop_chore};
    struct mr_engine_options options = {
        .base = {.dir = fsck->options->dir,
                 .repair = true,
                 .line = fsck->options->line,
                 .line_arg = fsck->options->arg,
                 .report = fsck->report,
                 .fs = fsck->fs,
                 .clock = fsck->options->clock != NULL ? fsck->options->clock : mr_clock_system()},
        .sync_exec = &nobody,
        .file_exec = &nobody,
    };
    mr_rand_seed_system(&options.rand);
    struct mr_engine *engine;
    MR_TRY(mr_engine_open(&options, &engine, fsck->detail));
    mr_engine_finish(engine);
    mr_engine_abandon(engine);
    return MR_OK;
}

/* ---- the folder ----------------------------------------------------------------------------- */

static void ignore_entry(const char *name, void *arg)
{
    (void)name, (void)arg;
}

/* Nothing is made or changed in a folder that has no store. */
static enum mr_err look_at_folder(struct fsck *fsck)
{
    const char *dir = fsck->options->dir;
    struct meta meta;
    enum mr_err err = fsck->fs->ops->dir_list(fsck->fs, dir, ignore_entry, NULL);
    if (err == MR_INVALID) {
        mr_detail_set(fsck->detail, "%s: not a folder", dir);
        return MR_NOT_A_STORE;
    }
    if (err == MR_NOT_FOUND)
        mr_detail_set(fsck->detail, "%s: no such folder", dir);
    else if (err != MR_OK)
        mr_detail_set(fsck->detail, "%s: cannot read the folder: %s", dir, mr_err_text(err));
    MR_TRY(err);
    struct fsck silent = {.options = &(struct mr_store_check){.dir = dir},
                          .fs = fsck->fs,
                          .report = &(struct mr_fsck_report){0},
                          .detail = fsck->detail};
    return find_meta(&silent, &meta);
}

enum mr_err mr_store_fsck(const struct mr_store_check *options, struct mr_fsck_report *ret_report,
                          struct mr_detail *detail)
{
    struct mr_fsck_report repaired = {0}, report = {0};
    struct fsck fsck = {.options = options,
                        .fs = options->fs != NULL ? options->fs : mr_fs_system(),
                        .report = &repaired,
                        .detail = detail};
    MR_TRY(look_at_folder(&fsck));
    if (options->mode == MR_FSCK_REPAIR)
        MR_TRY(repair(&fsck));
    fsck.report = &report;
    MR_TRY(check(&fsck));
    report.repaired = repaired.damaged;
    report.bytes_aside = repaired.bytes_aside;
    *ret_report = report;
    return MR_OK;
}
