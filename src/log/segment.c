/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segment files. Header, 512 bytes, little-endian:
 *
 *   0   magic
 *   8   u32 version
 *   12  u32 number
 *   16  store id (16)
 *   32  u64 gap to
 *   40  u64 gap from
 *   64  label (128)
 *   508 u32 CRC32C of bytes 0..507
 *
 * The rest is zero.
 *
 * The gap is not 0 where a repair found the records before this segment missing: from the first of
 * them up to the one it begins with. The label is the store's description of itself, so that any
 * segment can bring a lost one back.
 *
 * A segment gets its name only when it is whole: it is made under a tmp- name (or an old one is
 * renamed to it), zero-filled, given its header, synced and then renamed, and the folder is synced.
 * So a crash leaves either a tmp- file, which the next start removes, or a complete segment.
 *
 * Zero-filling is more than allocation: blocks that were only reserved turn every later sync into a
 * commit of the file system's own journal, which halves the rate.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/crc.h"
#include "log/internal.h"

static const char magic[8] = {'M', 'R', 'S', 'E', 'G', 'M', 'N', 'T'};

enum {
    AT_VERSION = 8,
    AT_NUMBER = 12,
    AT_STORE = 16,
    AT_GAP_TO = 32,
    AT_GAP_FROM = 40,
    AT_LABEL = 64,
    AT_CRC = 508
};

void mr_segment_name(char name[32], uint32_t number)
{
    snprintf(name, 32, "log-%08x", number);
}

enum mr_err segment_path(const struct mr_log *log, const char *prefix, uint32_t number,
                         char path[MR_PATH_MAX])
{
    char name[32];
    snprintf(name, sizeof name, "%s-%08x", prefix, number);
    return mr_path_join(path, log->dir, name);
}

enum mr_err segment_write_header(struct mr_log *log, struct mr_file *file, uint32_t number,
                                 struct gap gap)
{
    uint8_t header[MR_SEGMENT_HEADER] = {0};
    memcpy(header, magic, sizeof magic);
    mr_store32(header + AT_VERSION, MR_SEGMENT_VERSION);
    mr_store32(header + AT_NUMBER, number);
    memcpy(header + AT_STORE, log->store.bytes, sizeof log->store.bytes);
    mr_store64(header + AT_GAP_TO, gap.to);
    mr_store64(header + AT_GAP_FROM, gap.from);
    memcpy(header + AT_LABEL, log->label, sizeof log->label);
    mr_store32(header + AT_CRC, mr_crc32c(0, header, AT_CRC));
    return mr_file_pwrite(file, header, sizeof header, 0);
}

static enum mr_err header_check(const struct mr_log *log, const uint8_t *header, uint32_t number,
                                struct mr_detail *detail)
{
    uint32_t version = mr_load32(header + AT_VERSION);
    const char *wrong = NULL;
    if (memcmp(header, magic, sizeof magic) != 0)
        wrong = "not a log segment";
    else if (mr_load32(header + AT_CRC) != mr_crc32c(0, header, AT_CRC))
        wrong = "damaged segment header";
    else if (version <= MR_SEGMENT_VERSION &&
             (mr_load32(header + AT_NUMBER) != number ||
              memcmp(header + AT_STORE, log->store.bytes, sizeof log->store.bytes) != 0))
        wrong = "the segment belongs to another place or store";
    if (wrong != NULL) {
        mr_detail_set(detail, "log-%08x at offset 0: %s", number, wrong);
        return MR_DAMAGED;
    }
    if (version > MR_SEGMENT_VERSION) {
        mr_detail_set(detail,
                      "log-%08x: format version %u is newer than this program knows (%d); use a "
                      "newer one",
                      number, version, MR_SEGMENT_VERSION);
        return MR_VERSION;
    }
    return MR_OK;
}

enum mr_err segment_open(struct mr_log *log, uint32_t number, bool read_only,
                         struct segment *ret_segment, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    MR_TRY(segment_path(log, "log", number, path));
    struct segment segment = {.number = number, .end = MR_SEGMENT_HEADER};
    enum mr_err err =
        mr_fs_open(log->fs, path, read_only ? MR_OPEN_READ : MR_OPEN_WRITE, &segment.file);
    if (err == MR_OK)
        err = mr_file_size(segment.file, &segment.bytes);
    if (err != MR_OK) {
        mr_detail_set(detail, "log-%08x: cannot be opened: %s", number, mr_err_text(err));
        mr_file_close(segment.file);
        return err == MR_DAMAGED ? MR_IO : err;
    }
    uint8_t header[MR_SEGMENT_HEADER] = {0};
    if (segment.bytes >= sizeof header)
        err = mr_file_pread(segment.file, header, sizeof header, 0);
    if (err == MR_IO) {
        mr_detail_set(detail, "log-%08x at offset 0: the segment header cannot be read", number);
        err = MR_DAMAGED;
    } else if (err == MR_OK) {
        err = header_check(log, header, number, detail);
    }
    if (err != MR_OK && err != MR_DAMAGED) {
        mr_file_close(segment.file);
        return err;
    }
    if (err == MR_OK)
        segment.gap = (struct gap){mr_load64(header + AT_GAP_FROM), mr_load64(header + AT_GAP_TO)};
    *ret_segment = segment; /* open even when its header is damaged: repair needs it */
    return err;
}

const uint8_t *segment_label(const uint8_t header[MR_SEGMENT_HEADER])
{
    bool good = memcmp(header, magic, sizeof magic) == 0 &&
                mr_load32(header + AT_CRC) == mr_crc32c(0, header, AT_CRC);
    return good ? header + AT_LABEL : NULL;
}

enum mr_err segment_add(struct mr_log *log, const struct segment *segment)
{
    if (log->segments_n == log->segments_cap) {
        size_t cap = log->segments_cap ? 2 * log->segments_cap : 16;
        struct segment *grown = realloc(log->segments, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        log->segments = grown;
        log->segments_cap = cap;
    }
    mr_assert(log->segments_n == 0 || log->segments[log->segments_n - 1].number < segment->number);
    log->segments[log->segments_n++] = *segment;
    return MR_OK;
}

struct segment *segment_current(const struct mr_log *log)
{
    mr_assert(log->segments_n > 0);
    return &log->segments[log->segments_n - 1];
}

struct segment *segment_find(const struct mr_log *log, uint32_t number)
{
    size_t low = 0, high = log->segments_n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (log->segments[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < log->segments_n && log->segments[low].number == number;
    return found ? &log->segments[low] : NULL;
}

/* ---- making, recycling and removing, beside the owner's thread ------------------------------ */

/* Zero-fills up to one step, or all of it where nobody's sync has to wait behind ours; complete when
 * the whole file is. */
static enum mr_err fill_step(struct file_chore *chore)
{
    static const uint8_t zeroes[64 * 1024];
    size_t bytes = chore->log->segment_bytes;
    uint64_t step = chore->alone ? bytes : FILL_STEP;
    uint64_t stop = chore->filled + step < bytes ? chore->filled + step : bytes;
    while (chore->filled < stop) {
        size_t n =
            stop - chore->filled < sizeof zeroes ? (size_t)(stop - chore->filled) : sizeof zeroes;
        MR_TRY(mr_file_pwrite(chore->file, zeroes, n, chore->filled));
        chore->filled += n;
    }
    return mr_file_sync(chore->file);
}

/* Header, sync, the final name, folder sync. */
static enum mr_err publish(struct file_chore *chore, uint32_t tmp_number)
{
    struct mr_log *log = chore->log;
    char from[MR_PATH_MAX], to[MR_PATH_MAX];
    MR_TRY(segment_path(log, "tmp", tmp_number, from));
    MR_TRY(segment_path(log, "log", chore->number, to));
    MR_TRY(segment_write_header(log, chore->file, chore->number, (struct gap){0}));
    MR_TRY(mr_file_sync(chore->file));
    MR_TRY(log->fs->ops->rename(log->fs, from, to));
#ifndef MR_PLANT_NO_DIR_SYNC
    MR_TRY(log->fs->ops->dir_sync(log->fs, log->dir));
#endif
    chore->complete = true;
    return MR_OK;
}

static enum mr_err create_step(struct file_chore *chore)
{
    char path[MR_PATH_MAX];
    MR_TRY(segment_path(chore->log, "tmp", chore->number, path));
    if (chore->file == NULL) {
        enum mr_err err =
            chore->log->fs->ops->remove(chore->log->fs, path); /* left by a failed attempt */
        if (err != MR_OK && err != MR_NOT_FOUND)
            return err;
        MR_TRY(mr_fs_open(chore->log->fs, path, MR_OPEN_CREATE, &chore->file));
    }
    MR_TRY(fill_step(chore));
    return chore->filled == chore->log->segment_bytes ? publish(chore, chore->number) : MR_OK;
}

/* The old name goes first, so that no start ever sees one file under two numbers. */
static enum mr_err recycle_step(struct file_chore *chore)
{
    struct mr_log *log = chore->log;
    char from[MR_PATH_MAX], to[MR_PATH_MAX];
    MR_TRY(segment_path(log, "log", chore->old_number, from));
    MR_TRY(segment_path(log, "tmp", chore->old_number, to));
    MR_TRY(log->fs->ops->rename(log->fs, from, to));
    chore->nameless = true;
    MR_TRY(log->fs->ops->dir_sync(log->fs, log->dir));
    return publish(chore, chore->old_number);
}

/* Without a name it is not there any more for anybody. Its space goes back step by step: freeing all
 * of it at once is long, and the file system lets syncs wait meanwhile. */
static enum mr_err remove_step(struct file_chore *chore)
{
    struct mr_log *log = chore->log;
    char path[MR_PATH_MAX];
    if (chore->left == 0) {
        MR_TRY(segment_path(log, "log", chore->old_number, path));
        MR_TRY(log->fs->ops->remove(log->fs, path));
        chore->nameless = true;
        MR_TRY(log->fs->ops->dir_sync(log->fs, log->dir));
        MR_TRY(mr_file_size(chore->file, &chore->left));
    }
    chore->left -= chore->left < FREE_STEP ? chore->left : FREE_STEP;
    MR_TRY(log->fs->ops->truncate(chore->file, chore->left));
    if (chore->left > 0)
        return MR_OK;
    mr_file_close(chore->file); /* here: this, too, is work for the system */
    chore->file = NULL;
    chore->complete = true;
    return MR_OK;
}

static enum mr_err (*const steps[])(struct file_chore *chore) = {
    [FILE_CREATE] = create_step,
    [FILE_RECYCLE] = recycle_step,
    [FILE_REMOVE] = remove_step,
};

static void file_run(struct mr_chore *base)
{
    struct file_chore *chore = mr_container(base, struct file_chore, chore);
    chore->err = steps[chore->kind](chore);
}

static void drop_unfinished(struct file_chore *chore)
{
    char path[MR_PATH_MAX];
    uint32_t number = chore->kind == FILE_CREATE ? chore->number : chore->old_number;
    mr_file_close(chore->file);
    chore->file = NULL;
    if (chore->kind != FILE_REMOVE && segment_path(chore->log, "tmp", number, path) == MR_OK)
        (void)chore->log->fs->ops->remove(chore->log->fs, path); /* else the next start does */
}

static void forget_segment(struct mr_log *log, uint32_t number)
{
    struct segment *segment = segment_find(log, number);
    mr_assert(segment != NULL && segment->removing);
    cache_forget(log, number);
    size_t i = (size_t)(segment - log->segments);
    memmove(segment, segment + 1, (log->segments_n - i - 1) * sizeof *segment);
    log->segments_n--;
}

/* It has its name, so it is as it was. */
static void give_back(struct mr_log *log, const struct file_chore *chore)
{
    struct segment *segment = segment_find(log, chore->old_number);
    mr_assert(segment != NULL && segment->removing);
    segment->removing = false;
    segment->file = chore->file;
    segment->stuck = log->stuck = true;
}

/* No failure here can lose anything, and all of it is tried again later: see mr_log_retry_space. While a new
 * segment cannot be made there is no room beyond the reserve. */
static void file_failed(struct mr_log *log, struct file_chore *chore)
{
    if (chore->kind == FILE_CREATE) {
        log->full = chore->err == MR_DISK_FULL ? MR_DISK_FULL : MR_UNAVAILABLE;
    } else if (!chore->nameless && chore->err != MR_NOT_FOUND) {
        give_back(log, chore);
        return;
    } else {
        forget_segment(log, chore->old_number);
    }
    drop_unfinished(chore);
}

static void file_succeeded(struct mr_log *log, const struct file_chore *chore)
{
    if (chore->kind != FILE_CREATE)
        forget_segment(log, chore->old_number);
    if (chore->kind == FILE_REMOVE)
        return;
    log->ready[log->ready_n++] = (struct segment){.number = chore->number,
                                                  .file = chore->file,
                                                  .bytes = log->segment_bytes,
                                                  .end = MR_SEGMENT_HEADER};
    if (chore->kind == FILE_CREATE || log->ready_n >= log->ready_wanted)
        log->full = MR_OK; /* a recycled one says nothing of the space on disk */
}

static void file_done(struct mr_chore *base)
{
    struct file_chore *chore = mr_container(base, struct file_chore, chore);
    struct mr_log *log = chore->log;
    if (chore->err == MR_OK && !chore->complete) {
        log->file_exec->submit(log->file_exec, &chore->chore);
        return;
    }
    if (chore->err != MR_OK)
        file_failed(log, chore);
    else
        file_succeeded(log, chore);
    chore->kind = FILE_IDLE;
    chore->file = NULL;
    mr_log_trim(log, log->trim_seq);
    segment_prepare(log);
    log->changed(log->arg);
}

static void file_start(struct mr_log *log, const struct file_chore *chore)
{
    mr_assert(log->filing.kind == FILE_IDLE);
    log->filing = *chore;
    log->filing.log = log;
    mr_chore_init(&log->filing.chore, file_run, file_done);
    log->file_exec->submit(log->file_exec, &log->filing.chore);
}

/* Where old segments are running empty, one may soon be free to be recycled: a part of the current
 * one is waited for it. Otherwise the next is made at once, so that a burst does not have to wait
 * for it. */
static bool time_to_prepare(const struct mr_log *log)
{
    const struct segment *current = segment_current(log);
    if (log->buf_offset + log->buf.len >= current->bytes / (log->ready_n == 0 ? 4 : 2))
        return true;
    for (size_t i = 0; i + 1 < log->segments_n; i++)
        if (log->segments[i].live < log->segments[i].bytes / 2)
            return false;
    return log->segments_n > 1;
}

static uint32_t next_number(const struct mr_log *log)
{
    return segment_current(log)->number + 1 + (uint32_t)log->ready_n;
}

static void make_another(struct mr_log *log)
{
    if (!log->chores_held && log->ready_n < log->ready_wanted && log->filing.kind == FILE_IDLE &&
        log->failure == MR_OK)
        file_start(log, &(struct file_chore){.kind = FILE_CREATE, .number = next_number(log)});
}

void mr_log_keep_reserve(struct mr_log *log, bool kept)
{
    log->ready_wanted = kept ? READY_MAX : 1;
}

void mr_log_prepare(struct mr_log *log)
{
    if (log->full == MR_OK)
        make_another(log);
}

void segment_prepare(struct mr_log *log)
{
    if (time_to_prepare(log))
        mr_log_prepare(log);
}

/* The new segment first: where no old one can be taken away, it is what the log goes on in. */
void mr_log_retry_space(struct mr_log *log)
{
    log->stuck = false;
    for (size_t i = 0; i < log->segments_n; i++)
        log->segments[i].stuck = false;
    if (log->full != MR_OK)
        make_another(log);
    mr_log_trim(log, log->trim_seq);
}

/* A sync under way, or still to come, has the file in its hands. */
static bool being_synced(const struct mr_log *log, const struct mr_file *file)
{
    for (size_t i = 0; i < log->unsynced_n; i++)
        if (log->unsynced[i] == file)
            return true;
    for (size_t j = 0; j < 2; j++)
        for (size_t i = 0; log->syncs[j].busy && i < log->syncs[j].files_n; i++)
            if (log->syncs[j].files[i] == file)
                return true;
    return false;
}

/* On a full disk a snapshot may find no space before this segment has gone. */
bool segment_unsaid(const struct mr_log *log, const struct segment *segment)
{
    return segment->unsaid > log->said && log->full == MR_OK;
}

/* What it says is in the snapshot, as is what no record says; what made it dead (a finish, a copy
 * elsewhere) is durable as well, and something behind it: a start that finds no record at all knows
 * that files were lost. */
static bool removable(const struct mr_log *log, const struct segment *segment)
{
    return segment->sealed && !segment->removing && !segment->stuck && segment->live == 0 &&
           segment->last_seq <= log->trim_seq && !segment_unsaid(log, segment) &&
           segment->dead_seq <= log->durable_seq && segment->last_seq < log->durable_seq &&
           !being_synced(log, segment->file);
}

void mr_log_trim(struct mr_log *log, uint64_t snap_seq)
{
    log->trim_seq = snap_seq;
    if (log->pins > 0 || log->filing.kind != FILE_IDLE || log->failure != MR_OK)
        return;
    for (size_t i = 0; i + 1 < log->segments_n; i++) {
        struct segment *segment = &log->segments[i];
#ifdef MR_PLANT_REMOVE_LIVE_SEGMENT
        if (!removable(log, segment) && !(segment->sealed && segment->last_seq <= snap_seq))
#else
        if (!removable(log, segment))
#endif
            continue;
        segment->removing = true;
        bool recycle = log->ready_n < log->ready_wanted && segment->bytes == log->segment_bytes;
        struct file_chore chore = {
            .kind = FILE_REMOVE, .old_number = segment->number, .file = segment->file};
        if (recycle) {
            chore.kind = FILE_RECYCLE;
            chore.number = next_number(log);
        }
        segment->file = NULL; /* the chore's */
        file_start(log, &chore);
        return;
    }
}

/* The whole of create_step while the caller waits. */
static enum mr_err make_now(struct mr_log *log, uint32_t number, struct segment *ret_segment)
{
    struct file_chore chore = {.log = log, .kind = FILE_CREATE, .number = number, .alone = true};
    enum mr_err err = MR_OK;
    while (err == MR_OK && !chore.complete)
        err = create_step(&chore);
    if (err != MR_OK) {
        drop_unfinished(&chore);
        return err;
    }
    *ret_segment = (struct segment){.number = number,
                                    .file = chore.file,
                                    .bytes = log->segment_bytes,
                                    .end = MR_SEGMENT_HEADER};
    return MR_OK;
}

enum mr_err mr_log_create(const struct mr_log_options *options)
{
    struct mr_log *log;
    struct segment segment;
    MR_TRY(mr_log_new(options, &log));
    enum mr_err err = make_now(log, FIRST_SEGMENT, &segment);
    if (err == MR_OK)
        mr_file_close(segment.file);
    mr_log_free(log);
    return err;
}

void mr_log_hold_chores(struct mr_log *log, bool held)
{
    log->chores_held = held;
}

void mr_log_make_room(struct mr_log *log)
{
    mr_assert(log->filing.kind == FILE_IDLE);
    if (log->ready_n > 0 || log->buf_offset < segment_current(log)->bytes / 2)
        return;
    log->full = make_now(log, next_number(log), &log->ready[0]);
    log->ready_n = log->full == MR_OK;
}
