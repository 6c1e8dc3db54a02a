/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Online backup: the meta file, the newest snapshot and the log up to the durable end, copied in
 * small steps beside the engine while nothing is removed. The copy is what a start would find after
 * a crash at that moment, and it is opened the same way. A server's tokens go along as they are: else
 * nobody could use what is restored.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "broker/embedded/snapfile.h"

enum { STEP = 4 * 1024 * 1024, CHUNK = 256 * 1024 };

struct part {
    char name[32];
    uint64_t bytes;       /* to copy */
    uint64_t size;        /* of the copy: the rest is zeroes */
    struct mr_file *from; /* open since it was listed, as another may get its name; NULL: not yet */
    enum mr_open_mode how; /* the copy is made */
};

struct backup {
    struct mr_engine *engine;
    struct mr_req_backup *req;
    char dir[MR_PATH_MAX];
    struct part *parts;
    size_t parts_n;
    /* With the executor while it runs. */
    struct mr_chore chore;
    size_t at;   /* part being copied */
    size_t made; /* files that stand in the target by our hand */
    uint64_t offset;
    struct mr_file *from, *to;
    uint8_t *chunk;
    bool complete;
    enum mr_err err;
};

/* ---- beside the engine ---------------------------------------------------------------------- */

static enum mr_err open_part(struct backup *backup)
{
    char path[MR_PATH_MAX];
    struct mr_fs *fs = backup->engine->fs;
    struct part *part = &backup->parts[backup->at];
    MR_TRY(mr_path_join(path, backup->engine->dir, part->name));
    if (part->from == NULL)
        MR_TRY(mr_fs_open(fs, path, MR_OPEN_READ, &part->from));
    backup->from = part->from;
    part->from = NULL;
    MR_TRY(mr_path_join(path, backup->dir, part->name));
    MR_TRY(mr_fs_open(fs, path, part->how, &backup->to));
    backup->made = backup->at + 1;
    return MR_OK;
}

static enum mr_err end_part(struct backup *backup)
{
    const struct part *part = &backup->parts[backup->at];
    if (part->size > part->bytes)
        MR_TRY(backup->engine->fs->ops->truncate(backup->to, part->size));
#ifndef MR_PLANT_BACKUP_NOT_SYNCED
    MR_TRY(mr_file_sync(backup->to));
#endif
    mr_file_close(backup->from);
    mr_file_close(backup->to);
    backup->from = backup->to = NULL;
    backup->at++;
    backup->offset = 0;
    return MR_OK;
}

static enum mr_err copy_step(struct backup *backup)
{
    for (size_t done = 0; done < STEP && backup->at < backup->parts_n; done += CHUNK) {
        uint64_t bytes = backup->parts[backup->at].bytes;
        if (backup->from == NULL)
            MR_TRY(open_part(backup));
        uint64_t left = bytes - backup->offset;
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        MR_TRY(mr_file_pread(backup->from, backup->chunk, n, backup->offset));
        MR_TRY(mr_file_pwrite(backup->to, backup->chunk, n, backup->offset));
        backup->offset += n;
        if (backup->offset == bytes)
            MR_TRY(end_part(backup));
    }
    if (backup->at < backup->parts_n)
        return MR_OK;
    backup->complete = true;
    return backup->engine->fs->ops->dir_sync(backup->engine->fs, backup->dir);
}

/* Half a copy is of no use, and would be in the way of the next try. */
static void remove_made(struct backup *backup)
{
    char path[MR_PATH_MAX];
    struct mr_fs *fs = backup->engine->fs;
    mr_file_close(backup->to);
    backup->to = NULL;
    for (size_t i = 0; i < backup->made; i++)
        if (mr_path_join(path, backup->dir, backup->parts[i].name) == MR_OK)
            (void)fs->ops->remove(fs, path);
    backup->made = 0;
}

static void backup_run(struct mr_chore *chore)
{
    struct backup *backup = mr_container(chore, struct backup, chore);
    backup->err = copy_step(backup);
    if (backup->err != MR_OK)
        remove_made(backup);
}

static void backup_free(struct backup *backup)
{
    if (backup == NULL)
        return;
    mr_file_close(backup->from);
    mr_file_close(backup->to);
    for (size_t i = 0; backup->parts != NULL && i < backup->parts_n; i++)
        mr_file_close(backup->parts[i].from);
    free(backup->chunk);
    free(backup->parts);
    free(backup);
}

static void explain(const struct backup *backup)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < backup->parts_n; i++)
        bytes += backup->parts[i].bytes;
    struct mr_detail *detail = &backup->req->detail;
    if (backup->err == MR_DISK_FULL)
        mr_detail_set(detail,
                      "%s: the disk is full: the copy needs %llu KiB; it was removed again, make "
                      "room or choose another disk",
                      backup->dir, (unsigned long long)(bytes / 1024 + 1));
    else
        mr_detail_set(detail, "%s: backup stopped: %s; the copy was removed again", backup->dir,
                      mr_err_text(backup->err));
}

static void backup_done(struct mr_chore *chore)
{
    struct backup *backup = mr_container(chore, struct backup, chore);
    struct mr_engine *engine = backup->engine;
    if (backup->err == MR_OK && !backup->complete) {
        engine->options.file_exec->submit(engine->options.file_exec, &backup->chore);
        return;
    }
    struct mr_req_backup *req = backup->req;
    enum mr_err err = backup->err;
    if (err != MR_OK)
        explain(backup);
    engine->backup = NULL;
    backup_free(backup);
    mr_log_unpin(engine->log);
    mr_req_answer(&req->req, err);
}

void backup_abandon(struct mr_engine *engine)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&engine->backups)) != NULL)
        mr_req_answer(mr_container(link, struct mr_req, link), MR_CLOSED);
    if (engine->backup == NULL)
        return;
    struct mr_req_backup *req = engine->backup->req;
    backup_free(engine->backup);
    engine->backup = NULL;
    mr_req_answer(&req->req, MR_CLOSED);
}

/* ---- on the engine's thread ----------------------------------------------------------------- */

static void count_entry(const char *name, void *arg)
{
    (void)name;
    ++*(size_t *)arg;
}

/* Whether a folder is the store's own or lies in it, however it is spelled. */
static enum mr_err is_inside(struct mr_engine *engine, const char *dir, bool *ret_inside)
{
    char store[MR_PATH_MAX], target[MR_PATH_MAX];
    MR_TRY(engine->fs->ops->real(engine->fs, engine->dir, store));
    MR_TRY(engine->fs->ops->real(engine->fs, dir, target));
    size_t len = strlen(store);
    *ret_inside = strncmp(target, store, len) == 0 && (target[len] == '/' || target[len] == '\0');
    return MR_OK;
}

static enum mr_err check_target(struct mr_engine *engine, struct mr_req_backup *req)
{
    size_t entries = 0;
    bool inside;
    MR_TRY(is_inside(engine, req->dir, &inside));
    if (inside) {
        mr_detail_set(&req->detail, "%s: inside the store itself; choose a folder elsewhere",
                      req->dir);
        return MR_INVALID;
    }
    enum mr_err err = engine->fs->ops->dir_make(engine->fs, req->dir);
    if (err == MR_OK)
        err = engine->fs->ops->dir_list(engine->fs, req->dir, count_entry, &entries);
    if (err == MR_OK && entries > 0) {
        mr_detail_set(&req->detail, "%s: not empty; a backup needs a new or empty folder",
                      req->dir);
        return MR_INVALID;
    }
    if (err == MR_CONFLICT) { /* something of this name is there, which no folder is */
        mr_detail_set(&req->detail, "%s: not a folder; a backup needs a new or empty one",
                      req->dir);
        return MR_INVALID;
    }
    if (err != MR_OK)
        mr_detail_set(&req->detail, "%s: cannot use the folder: %s", req->dir, mr_err_text(err));
    return err;
}

static enum mr_err add_file(struct backup *backup, const char *name, enum mr_open_mode how)
{
    char path[MR_PATH_MAX];
    struct part *part = &backup->parts[backup->parts_n];
    snprintf(part->name, sizeof part->name, "%s", name);
    part->how = how;
    MR_TRY(mr_path_join(path, backup->engine->dir, name));
    MR_TRY(mr_fs_open(backup->engine->fs, path, MR_OPEN_READ, &part->from));
    backup->parts_n++;
    return mr_file_size(part->from, &part->bytes);
}

/* Everything written now. What is not durable yet was not acknowledged: a torn tail at worst. */
static enum mr_err list_parts(struct mr_engine *engine, struct backup *backup)
{
    size_t segments = mr_log_segments(engine->log);
    backup->parts = calloc(segments + 3, sizeof *backup->parts);
    backup->chunk = malloc(CHUNK);
    if (backup->parts == NULL || backup->chunk == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < segments; i++) {
        struct mr_segment_info info;
        mr_log_segment_at(engine->log, i, &info);
        if (info.removing)
            continue;
        struct part *part = &backup->parts[backup->parts_n++];
        mr_segment_name(part->name, info.number);
        part->bytes = info.end;
        part->size = info.bytes;
        part->how = MR_OPEN_CREATE;
    }
    if (engine->snap_seq > 0) {
        char name[32];
        snprintf(name, sizeof name, "snap-%016llx", (unsigned long long)engine->snap_seq);
        MR_TRY(add_file(backup, name, MR_OPEN_CREATE));
    }
    enum mr_err err = add_file(backup, "tokens", MR_OPEN_CREATE_SECRET);
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    return add_file(backup, "meta", MR_OPEN_CREATE); /* last: without it the copy is no store */
}

static enum mr_err start(struct mr_engine *engine, struct mr_req_backup *req)
{
    size_t len = strlen(req->dir);
    struct backup *backup = calloc(1, sizeof *backup);
    enum mr_err err = backup == NULL ? MR_NOMEM : MR_OK;
    if (err == MR_OK && len >= sizeof backup->dir)
        err = MR_TOO_BIG;
    if (err == MR_OK) {
        backup->engine = engine;
        backup->req = req;
        memcpy(backup->dir, req->dir, len + 1);
        err = list_parts(engine, backup);
    }
    if (err != MR_OK) {
        backup_free(backup);
        return err;
    }
    engine->backup = backup;
    mr_log_pin(engine->log);
    mr_chore_init(&backup->chore, backup_run, backup_done);
    engine->options.file_exec->submit(engine->options.file_exec, &backup->chore);
    return MR_OK;
}

static void try_start(struct mr_engine *engine, struct mr_req_backup *req)
{
    enum mr_err err = check_target(engine, req);
    if (err == MR_OK)
        err = mr_log_write(engine->log); /* everything acknowledged is in the files already */
    if (err == MR_OK)
        err = start(engine, req);
    if (err == MR_OK)
        return;
    if (req->detail.text[0] == '\0')
        mr_detail_set(&req->detail, "%s: backup not begun: %s", req->dir, mr_err_text(err));
    mr_req_answer(&req->req, err);
}

bool backup_start_waiting(struct mr_engine *engine)
{
    struct mr_link *link;
    while (engine->backup == NULL && (link = mr_list_pop_front(&engine->backups)) != NULL)
        try_start(engine, mr_container(link, struct mr_req_backup, req.link));
    return engine->backup != NULL;
}

/* It begins when no snapshot is in the making and no other backup is under way: see maintain. */
enum handled handle_backup(struct mr_engine *engine, struct mr_req *base)
{
    mr_list_push_back(&engine->backups, &base->link);
    return HANDLED;
}
