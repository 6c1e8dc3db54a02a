/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading every byte of a store that nobody has open: the snapshot, every record of every segment,
 * and every waiting task's own record against the index. Checking changes nothing; repair opens the
 * store once with damage set aside, so that it can be opened as usual afterwards.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/store.h"

struct fsck {
    struct mr_engine *engine;
    mr_fsck_line *line;
    void *arg;
    struct mr_fsck_report *report;
};

static void say(struct fsck *fsck, const char *text)
{
    if (fsck->line != NULL)
        fsck->line(text, fsck->arg);
}

static enum mr_err count_record(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    struct fsck *fsck = arg;
    if (record != NULL) {
        fsck->report->records++;
        return MR_OK;
    }
    char name[32], text[128];
    mr_segment_name(name, pos.segment);
    snprintf(text, sizeof text, "%s at offset %u: damaged", name, pos.offset);
    say(fsck, text);
    fsck->report->damaged++;
    return MR_OK;
}

static enum mr_err check_segments(struct fsck *fsck)
{
    struct mr_log *log = fsck->engine->log;
    for (size_t i = 0; i < mr_log_segments(log); i++) {
        struct mr_segment_info info;
        uint32_t offset = 0;
        mr_log_segment_at(log, i, &info);
        if (info.last_seq > 0)
            MR_TRY(mr_log_walk(log, info.number, &offset, SIZE_MAX, count_record, fsck));
        fsck->report->segments++;
    }
    return MR_OK;
}

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
        mr_uuid_format(&task->id, id);
        snprintf(text, sizeof text, "task %s: its record cannot be read", id);
        say(fsck, text);
        fsck->report->mismatches++;
    }
}

static enum mr_err check(struct fsck *fsck, const char *dir, struct mr_detail *detail)
{
    struct mr_engine *engine = fsck->engine;
    struct recovery recovery = {.engine = engine, .detail = detail};
    recovery.log.read_only = true;
    recovery.log.line = fsck->line;
    recovery.log.line_arg = fsck->arg;
    engine->fs = mr_fs_system();
    engine->clock = mr_clock_system();
    snprintf(engine->dir, sizeof engine->dir, "%s", dir);
    mr_list_init(&engine->waiting);
    mr_list_init(&engine->stalled);
    mr_list_init(&engine->granted);
    mr_list_init(&engine->nodes);
    mr_list_init(&engine->backups);
    enum mr_err err = meta_read(engine->fs, dir, &recovery.meta, detail);
    if (err == MR_NOT_FOUND)
        mr_detail_set(detail, "%s: no Millrace store in this folder", dir);
    MR_TRY(err);
    if (recovery.meta.half_damaged) {
        say(fsck, "meta: one of its two copies is damaged; opening the store mends it");
        fsck->report->damaged++;
    }
    engine->state.damage_seen = true;
    MR_TRY(recover_state(&recovery));
    fsck->report->torn_bytes = recovery.log.torn_bytes;
    uint64_t found = recovery.log.damaged, before = fsck->report->damaged;
    MR_TRY(check_segments(fsck));
    /* The walk sees damaged records again, but not missing or cut segments: the larger count tells.
     */
    if (fsck->report->damaged - before < found)
        fsck->report->damaged = before + found;
    check_tasks(fsck);
    return MR_OK;
}

/* An open with repair does it; what it says of the damage it found goes to the caller. */
static enum mr_err repair(const char *dir, struct fsck *fsck, struct mr_detail *detail)
{
    struct mr_broker *broker;
    struct mr_embedded_options options = {.dir = dir,
                                          .repair = true,
                                          .line = fsck->line,
                                          .line_arg = fsck->arg,
                                          .report = fsck->report};
    MR_TRY(mr_embedded_open(&options, &broker, detail));
    mr_broker_close(broker);
    return MR_OK;
}

enum mr_err mr_store_fsck(const char *dir, enum mr_fsck_mode mode, mr_fsck_line *line, void *arg,
                          struct mr_fsck_report *ret_report, struct mr_detail *detail)
{
    struct mr_fsck_report report = {0};
    struct fsck fsck = {.line = line, .arg = arg, .report = &report};
    struct mr_fs *fs = mr_fs_system();
    uint8_t label[MR_SEGMENT_LABEL];
    struct meta meta;
    enum mr_err err = meta_read(fs, dir, &meta, detail);
    if (err == MR_NOT_FOUND && mr_log_label(fs, dir, label) != MR_OK) {
        mr_detail_set(detail, "%s: no Millrace store in this folder", dir);
        return MR_NOT_FOUND;
    }
    uint64_t repaired = 0, aside = 0;
    if (mode == MR_FSCK_REPAIR) {
        MR_TRY(repair(dir, &fsck, detail));
        repaired = report.damaged;
        aside = report.bytes_aside;
        report = (struct mr_fsck_report){0};
    }
    char path[MR_PATH_MAX];
    long pid = 0;
    struct mr_file *lock;
    MR_TRY(mr_path_join(path, dir, "lock"));
    err = fs->ops->lock(fs, path, &lock, &pid);
    if (err != MR_OK) {
        mr_detail_set(detail, "%s: %s (process %ld); stop it first", dir, mr_err_text(err), pid);
        return err;
    }
    fsck.engine = calloc(1, sizeof *fsck.engine);
    err = fsck.engine == NULL ? MR_NOMEM : check(&fsck, dir, detail);
    mr_engine_abandon(fsck.engine);
    mr_file_close(lock);
    if (err != MR_OK)
        return err;
    report.damaged += repaired;
    report.bytes_aside += aside;
    *ret_report = report;
    return MR_OK;
}
