/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the end of the log at a start. Records are read in order from the first segment that may
 * hold one behind the snapshot. Where the next expected record does not stand, there are three
 * cases:
 *
 *   - the next segment begins with it: the segment was full, go on there;
 *   - some later record, here or in a later segment, knew it to be durable (see record.h, lag): it
 *     was acknowledged and is damaged. Stop, or with repair set the bytes aside and go on behind
 *     them;
 *   - neither: the log ends here. What stands behind is a torn tail of writes nobody was told of;
 *     the next records overwrite it, and their higher term keeps its remains from ever being read.
 *
 * Everything found is synced before it counts: after the death of the process alone it may still be
 * only in the kernel's memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "log/internal.h"

enum { WINDOW = 1024 * 1024 };

struct scan {
    struct mr_log *log;
    struct mr_log_recovery *r;
    struct mr_detail *detail;
    struct mr_buf window; /* bytes of segment `in` from `from` on */
    size_t in;            /* index of a segment */
    uint64_t from;
    uint64_t expected; /* next sequence number */
    size_t end_in;     /* where the log ends so far */
    uint64_t end_at;
};

/* ---- reading -------------------------------------------------------------------------------- */

static void say(struct scan *scan, const char *text)
{
    if (scan->r->line != NULL)
        scan->r->line(text, scan->r->line_arg);
}

/* need bytes at offset of segment i; NULL in ret when the file is shorter. */
static enum mr_err window_at(struct scan *scan, size_t i, uint64_t offset, size_t need,
                             const uint8_t **ret_bytes)
{
    const struct segment *segment = &scan->log->segments[i];
    *ret_bytes = NULL;
    if (offset + need > segment->bytes)
        return MR_OK;
    if (scan->in != i || offset < scan->from || offset + need > scan->from + scan->window.len) {
        size_t len = segment->bytes - offset < WINDOW ? (size_t)(segment->bytes - offset) : WINDOW;
        len = len < need ? need : len;
        mr_buf_clear(&scan->window);
        scan->in = SIZE_MAX;
        MR_TRY(mr_buf_reserve(&scan->window, len));
        MR_TRY(mr_file_pread(segment->file, scan->window.data, len, offset));
        scan->window.len = len;
        scan->in = i;
        scan->from = offset;
    }
    *ret_bytes = scan->window.data + (offset - scan->from);
    return MR_OK;
}

/* A whole valid record of this segment, or MR_NOT_FOUND. */
static enum mr_err record_at(struct scan *scan, size_t i, uint64_t offset,
                             struct mr_record *ret_record)
{
    size_t need = MR_RECORD_HEADER;
    for (;;) {
        const uint8_t *bytes;
        MR_TRY(window_at(scan, i, offset, need, &bytes));
        if (bytes == NULL)
            return MR_NOT_FOUND;
        enum mr_record_check check =
            mr_record_parse(mr_slice_make(bytes, need), scan->log->salt, ret_record);
        if (check == MR_RECORD_GOOD)
            return ret_record->segment == scan->log->segments[i].number ? MR_OK : MR_NOT_FOUND;
        if (check == MR_RECORD_BAD)
            return MR_NOT_FOUND;
        need = ret_record->body.len;
    }
}

static bool is_next(const struct scan *scan, const struct mr_record *record)
{
    return record->seq == scan->expected &&
           (record->seq <= scan->r->after_seq || record->term >= scan->log->last_term);
}

/* Quick look at a header before its checksum is worth computing. */
static bool may_be_later(const struct scan *scan, const uint8_t *at, uint32_t number)
{
    return mr_load32(at + 24) == number && mr_load64(at + 8) > scan->expected &&
           mr_load32(at + 20) >= scan->log->last_term;
}

/* The first valid record behind (i, offset) with a higher number than expected; MR_NOT_FOUND if
 * none. With durable_only: only one that knew the expected record to be durable. */
static enum mr_err find_later(struct scan *scan, size_t i, uint64_t offset, bool durable_only,
                              size_t *ret_i, uint64_t *ret_offset, struct mr_record *ret_record)
{
    for (; i < scan->log->segments_n; i++, offset = MR_SEGMENT_HEADER) {
        const struct segment *segment = &scan->log->segments[i];
        for (; offset + MR_RECORD_HEADER <= segment->bytes; offset += MR_RECORD_ALIGN) {
            const uint8_t *at;
            MR_TRY(window_at(scan, i, offset, MR_RECORD_HEADER, &at));
            if (!may_be_later(scan, at, segment->number))
                continue;
            enum mr_err err = record_at(scan, i, offset, ret_record);
            if (err == MR_NOT_FOUND)
                continue;
            MR_TRY(err);
            bool knew = ret_record->type == MR_RECORD_SKIP ||
                        ret_record->seq - ret_record->lag >= scan->expected;
            if (durable_only && !knew)
                continue;
            *ret_i = i;
            *ret_offset = offset;
            return MR_OK;
        }
    }
    return MR_NOT_FOUND;
}

/* ---- damage --------------------------------------------------------------------------------- */

/* Copies bytes of a segment into the folder's quarantine before they are overwritten. */
static enum mr_err set_aside(struct scan *scan, size_t i, uint64_t from, uint64_t to)
{
    struct mr_log *log = scan->log;
    char dir[MR_PATH_MAX], path[MR_PATH_MAX], name[64];
    MR_TRY(mr_path_join(dir, log->dir, "quarantine"));
    MR_TRY(log->fs->ops->dir_make(log->fs, dir));
    snprintf(name, sizeof name, "log-%08x-%08llx", log->segments[i].number,
             (unsigned long long)from);
    MR_TRY(mr_path_join(path, dir, name));
    struct mr_file *file;
    enum mr_err err =
        log->fs->ops->remove(log->fs, path); /* half of it, left by a repair that was killed */
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    err = mr_fs_open(log->fs, path, MR_OPEN_CREATE, &file);
    MR_TRY(err);
    for (uint64_t at = from; err == MR_OK && at < to; at += WINDOW) {
        size_t len = to - at < WINDOW ? (size_t)(to - at) : WINDOW;
        const uint8_t *bytes;
        err = window_at(scan, i, at, len, &bytes);
        if (err == MR_OK)
            err = mr_file_pwrite(file, bytes, len, at - from);
    }
    if (err == MR_OK)
        err = mr_file_sync(file);
    mr_file_close(file);
    if (err == MR_OK)
        err = log->fs->ops->dir_sync(log->fs, dir);
    scan->r->bytes_aside += to - from;
    return err;
}

/* Puts a record over the damage. Its lag says by how much the next number is higher, its body where
 * the next record stands; without a body it stands right behind. */
static enum mr_err write_skip(struct scan *scan, size_t i, uint64_t from, uint64_t to,
                              uint64_t next_seq)
{
    uint8_t bytes[MR_RECORD_HEADER + MR_RECORD_SKIP_BODY] = {0};
    size_t len = to - from >= sizeof bytes ? MR_RECORD_SKIP_BODY : 0;
    if (next_seq - scan->expected > UINT32_MAX)
        return MR_DAMAGED;
    mr_store64(bytes + MR_RECORD_HEADER, to);
    struct mr_record record = {
        .seq = scan->expected,
        .lag = (uint32_t)(next_seq - scan->expected),
        .term = scan->log->last_term,
        .segment = scan->log->segments[i].number,
        .type = MR_RECORD_SKIP,
        .version = MR_RECORD_VERSION,
        .body.len = len,
    };
    mr_record_seal(bytes, &record, scan->log->salt);
    scan->in = SIZE_MAX; /* the window is stale now */
    MR_TRY(mr_file_pwrite(scan->log->segments[i].file, bytes, mr_record_size(len), from));
    return mr_file_sync(scan->log->segments[i].file);
}

static enum mr_err report_damage(struct scan *scan, size_t i, uint64_t at)
{
    char name[32], text[256];
    mr_segment_name(name, scan->log->segments[i].number);
    snprintf(text, sizeof text, "%s at offset %llu: damaged record %llu", name,
             (unsigned long long)at, (unsigned long long)scan->expected);
    say(scan, text);
    scan->r->damaged++;
    if (scan->r->mode == MR_FSCK_REPAIR)
        return MR_OK;
    mr_detail_set(
        scan->detail,
        "%s/%s; nothing was changed; `millrace fsck --repair file:%s` sets it aside and keeps "
        "everything else",
        scan->log->dir, text, scan->log->dir);
    return scan->r->read_only ? MR_OK : MR_DAMAGED;
}

/* Sets [from, to) of one segment aside and puts a skip record in its place. */
static enum mr_err cover_damage(struct scan *scan, size_t i, uint64_t from, uint64_t to,
                                uint64_t next_seq)
{
    if (to - from < MR_RECORD_HEADER)
        return MR_OK; /* too small for a record, so none was there */
    MR_TRY(set_aside(scan, i, from, to));
    MR_TRY(write_skip(scan, i, from, to, next_seq));
    scan->expected = next_seq;
    return MR_OK;
}

/* The log goes on at the start of a segment though the number before it is missing: its header
 * remembers. */
static enum mr_err resume_here(struct scan *scan, size_t i, uint64_t next_seq)
{
    struct segment *segment = &scan->log->segments[i];
    segment->resume_seq = next_seq;
    MR_TRY(segment_write_header(scan->log, segment->file, segment->number, next_seq));
    return mr_file_sync(segment->file);
}

/* Where the log goes on behind damage: at the record with the lowest number above the expected one.
 * The first that is found need not be it: sectors may have changed places. */
static enum mr_err find_next(struct scan *scan, size_t i, uint64_t at, size_t *ret_i,
                             uint64_t *ret_at, uint64_t *ret_seq)
{
    struct mr_record record;
    MR_TRY(find_later(scan, i, at, false, ret_i, ret_at, &record));
    *ret_seq = record.seq;
    size_t next_i = *ret_i;
    uint64_t next_at = *ret_at;
    while (*ret_seq > scan->expected + 1) {
        enum mr_err err =
            find_later(scan, next_i, next_at + MR_RECORD_ALIGN, false, &next_i, &next_at, &record);
        if (err == MR_NOT_FOUND || (err == MR_OK && next_i != *ret_i))
            return MR_OK;
        MR_TRY(err);
        if (record.seq < *ret_seq) {
            *ret_seq = record.seq;
            *ret_at = next_at;
        }
    }
    return MR_OK;
}

/* Moves the scan behind damage at (i, at): to the next record of this segment or of a later one. */
static enum mr_err pass_damage(struct scan *scan, size_t *i, uint64_t *at)
{
    MR_TRY(report_damage(scan, *i, *at));
    size_t next_i;
    uint64_t next_at, next_seq, from = *at;
    MR_TRY(find_next(scan, *i, *at, &next_i, &next_at, &next_seq));
    for (size_t k = *i; !scan->r->read_only && k <= next_i; k++, from = MR_SEGMENT_HEADER) {
        uint64_t to = k == next_i ? next_at : scan->log->segments[k].bytes;
        MR_TRY(cover_damage(scan, k, from, to, next_seq));
    }
    if (!scan->r->read_only && next_at == MR_SEGMENT_HEADER)
        MR_TRY(resume_here(scan, next_i, next_seq));
    scan->expected = next_seq;
    *i = next_i;
    *at = next_at;
    return MR_OK;
}

/* ---- the scan ------------------------------------------------------------------------------- */

static void note_record(struct scan *scan, size_t i, uint64_t at, const struct mr_record *record)
{
    struct segment *segment = &scan->log->segments[i];
    if (segment->first_seq == 0)
        segment->first_seq = record->seq;
    segment->last_seq = record->seq;
    segment->end = at + mr_record_size(record->body.len);
    if (record->term > scan->log->last_term)
        scan->log->last_term = record->term;
    scan->expected = record->seq + 1;
    scan->end_in = i;
    scan->end_at = segment->end;
    scan->r->records++;
}

/* Visits the record at (i, *at) and moves on. A skip record leads to where it says. */
static enum mr_err take_record(struct scan *scan, size_t i, uint64_t *at,
                               const struct mr_record *record)
{
    struct mr_log_pos pos = {scan->log->segments[i].number, (uint32_t)*at};
    note_record(scan, i, *at, record);
    *at = mr_record_next(record, *at);
    if (record->type == MR_RECORD_SKIP) {
        scan->expected = record->seq + record->lag;
        scan->log->segments[i].last_seq = scan->expected - 1;
    }
    return record->seq > scan->r->after_seq ? scan->r->visit(record, pos, scan->r->arg) : MR_OK;
}

static bool begins_with_expected(struct scan *scan, size_t i)
{
    struct mr_record record;
    if (i < scan->log->segments_n && scan->log->segments[i].resume_seq > scan->expected) {
        scan->expected = scan->log->segments[i].resume_seq;
        scan->r->gaps++;
    }
    return i < scan->log->segments_n && record_at(scan, i, MR_SEGMENT_HEADER, &record) == MR_OK &&
           is_next(scan, &record);
}

/* Measures what a crash left of writes nobody was told of, for the report. */
static enum mr_err measure_tail(struct scan *scan, size_t i, uint64_t at)
{
    size_t torn_i;
    uint64_t torn_at;
    struct mr_record record;
    enum mr_err err = find_later(scan, i, at, false, &torn_i, &torn_at, &record);
    if (err == MR_NOT_FOUND) {
        const uint8_t *bytes;
        MR_TRY(window_at(scan, i, at, MR_RECORD_HEADER, &bytes));
        bool begun = bytes != NULL && mr_load32(bytes + 24) == scan->log->segments[i].number &&
                     mr_load64(bytes + 8) == scan->expected;
        scan->r->torn_bytes = begun ? mr_record_size(mr_load32(bytes + 4)) : 0;
        return MR_OK;
    }
    MR_TRY(err);
    scan->r->torn_bytes = torn_i == i ? torn_at - at : 1;
    return MR_OK;
}

static enum mr_err scan_from(struct scan *scan, size_t i, uint64_t at)
{
    for (;;) {
        struct mr_record record;
        enum mr_err err = record_at(scan, i, at, &record);
        if (err == MR_OK && is_next(scan, &record)) {
            MR_TRY(take_record(scan, i, &at, &record));
            continue;
        }
        if (err != MR_OK && err != MR_NOT_FOUND)
            return err;
        if (begins_with_expected(scan, i + 1)) {
            i++;
            at = MR_SEGMENT_HEADER;
            continue;
        }
        size_t later_i;
        uint64_t later_at;
        err = find_later(scan, i, at, true, &later_i, &later_at, &record);
        if (err == MR_NOT_FOUND)
            return measure_tail(scan, i, at);
        MR_TRY(err);
        MR_TRY(pass_damage(scan, &i, &at));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static void list_segment(const char *name, void *arg)
{
    struct numbers *listing = arg;
    unsigned number;
    int used = 0;
    if (sscanf(name, "log-%8x%n", &number, &used) != 1 || used != 12 || name[used] != '\0')
        return;
    if (listing->n == listing->cap) {
        size_t cap = listing->cap ? 2 * listing->cap : 64;
        uint32_t *grown = realloc(listing->numbers, cap * sizeof *grown);
        if (grown == NULL) {
            listing->err = MR_NOMEM;
            return;
        }
        listing->numbers = grown;
        listing->cap = cap;
    }
    listing->numbers[listing->n++] = number;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* A damaged header hides nothing: the name says which segment it is. Nor does a file that was cut
 * short. */
static enum mr_err mend_segment(struct scan *scan, struct segment *segment)
{
    struct mr_log *log = scan->log;
    if (scan->r->read_only)
        return MR_OK;
    if (scan->r->mode != MR_FSCK_REPAIR)
        return MR_DAMAGED;
    MR_TRY(segment_write_header(log, segment->file, segment->number, 0));
    if (segment->bytes < log->segment_bytes) {
        MR_TRY(log->fs->ops->truncate(segment->file, log->segment_bytes));
        segment->bytes = log->segment_bytes;
    }
    return mr_file_sync(segment->file);
}

static enum mr_err open_one(struct scan *scan, uint32_t number)
{
    struct mr_log *log = scan->log;
    struct mr_detail found = {{0}};
    struct segment segment = {0};
    enum mr_err err = segment_open(log, number, scan->r->read_only, &segment, &found);
    if (err == MR_OK && segment.bytes < log->segment_bytes) {
        mr_detail_set(&found, "%s/log-%08x at offset %llu: the file is cut short", log->dir, number,
                      (unsigned long long)segment.bytes);
        err = MR_DAMAGED;
    }
    if (err == MR_DAMAGED && segment.file != NULL) {
        say(scan, found.text);
        scan->r->damaged++;
        err = mend_segment(scan, &segment);
    }
    if (err == MR_OK)
        err = segment_add(log, &segment);
    if (err != MR_OK) {
        mr_detail_set(scan->detail, "%s", found.text);
        mr_file_close(segment.file);
    }
    return err;
}

enum mr_err segment_numbers(struct mr_fs *fs, const char *dir, struct numbers *ret_numbers)
{
    struct numbers list = {0};
    enum mr_err err = fs->ops->dir_list(fs, dir, list_segment, &list);
    if (err == MR_OK)
        err = list.err;
    if (err != MR_OK) {
        free(list.numbers);
        return err;
    }
    if (list.n > 1)
        qsort(list.numbers, list.n, sizeof *list.numbers, by_number);
    *ret_numbers = list;
    return MR_OK;
}

static enum mr_err open_all(struct scan *scan)
{
    struct numbers list;
    MR_TRY(segment_numbers(scan->log->fs, scan->log->dir, &list));
    enum mr_err err = MR_OK;
    for (size_t i = 0; err == MR_OK && i < list.n; i++)
        err = open_one(scan, list.numbers[i]);
    free(list.numbers);
    return err;
}

/* Where to begin: the last segment whose first record is not behind the snapshot's end. Segments
 * before it are sealed; their last number follows from the first of the next one. */
static enum mr_err find_start(struct scan *scan, size_t *ret_i)
{
    struct mr_log *log = scan->log;
    size_t start = 0;
    for (size_t i = 0; i < log->segments_n; i++) {
        struct mr_record record;
        enum mr_err err = record_at(scan, i, MR_SEGMENT_HEADER, &record);
        if (err == MR_NOT_FOUND)
            continue;
        MR_TRY(err);
        log->segments[i].first_seq = record.seq;
        if (record.seq <= scan->r->after_seq + 1)
            start = i;
    }
    for (size_t i = 0; i < start; i++) {
        struct segment *segment = &log->segments[i];
        segment->end = segment->bytes;
        segment->sealed = true;
        for (size_t j = i + 1; j <= start && segment->last_seq == 0; j++)
            segment->last_seq = log->segments[j].first_seq ? log->segments[j].first_seq - 1 : 0;
    }
    *ret_i = start;
    return MR_OK;
}

/* The segment made ready ahead has the next number. If it has not, the one between was lost. */
static enum mr_err check_numbers(struct scan *scan)
{
    const struct mr_log *log = scan->log;
    if (scan->end_in + 1 >= log->segments_n ||
        log->segments[scan->end_in + 1].number == log->segments[scan->end_in].number + 1)
        return MR_OK;
    return report_damage(scan, scan->end_in, scan->end_at);
}

/* From the highest number down, each removal durable before the next, so that no gap is ever left.
 */
static enum mr_err remove_empty(struct scan *scan, const char *path)
{
    struct mr_log *log = scan->log;
    if (scan->r->read_only)
        return MR_OK;
    MR_TRY(log->fs->ops->remove(log->fs, path));
    return log->fs->ops->dir_sync(log->fs, log->dir);
}

/* The end is known: the segment it lies in is written on, the one behind it becomes the next,
 * others behind hold nothing but a torn tail and go. */
static enum mr_err settle_end(struct scan *scan)
{
    struct mr_log *log = scan->log;
    for (size_t i = 0; i < scan->end_in; i++)
        log->segments[i].sealed = true;
    while (log->segments_n > scan->end_in + 1) {
        struct segment *last = &log->segments[--log->segments_n];
        bool keep = log->segments_n == scan->end_in + 1 && last->bytes == log->segment_bytes &&
                    last->number == log->segments[scan->end_in].number + 1;
        if (keep) {
            log->next = (struct segment){.number = last->number,
                                         .file = last->file,
                                         .bytes = last->bytes,
                                         .end = MR_SEGMENT_HEADER};
            continue;
        }
        char path[MR_PATH_MAX];
        mr_file_close(last->file);
        MR_TRY(segment_path(log, "log", last->number, path));
        MR_TRY(remove_empty(scan, path));
    }
    segment_current(log)->end = scan->end_at;
    log->buf_offset = scan->end_at;
    log->last_seq = log->written_seq = log->durable_seq = log->wanted_seq = scan->expected - 1;
    return MR_OK;
}

static enum mr_err sync_found(struct scan *scan, size_t from)
{
    struct mr_log *log = scan->log;
    for (size_t i = from; i < log->segments_n; i++)
        MR_TRY(mr_file_sync(log->segments[i].file));
    return log->fs->ops->dir_sync(log->fs, log->dir);
}

/* The log ends before the snapshot does: its tail was lost. What it said up to there is in the
 * snapshot, so with repair the log goes on behind it. */
static enum mr_err bridge_to_snapshot(struct scan *scan)
{
    struct mr_log *log = scan->log;
    uint64_t next_seq = scan->r->after_seq + 1,
             room = log->segments[scan->end_in].bytes - scan->end_at;
    MR_TRY(report_damage(scan, scan->end_in, scan->end_at));
    if (!scan->r->read_only && room < MR_RECORD_HEADER) {
        mr_detail_set(scan->detail, "%s: the log ends at record %llu, before its snapshot (%llu)",
                      log->dir, (unsigned long long)scan->expected - 1,
                      (unsigned long long)scan->r->after_seq);
        return MR_DAMAGED;
    }
    if (!scan->r->read_only) {
        uint64_t to = scan->end_at + MR_RECORD_HEADER;
        MR_TRY(write_skip(scan, scan->end_in, scan->end_at, to, next_seq));
        scan->end_at = to;
    }
    log->segments[scan->end_in].last_seq = scan->r->after_seq;
    scan->expected = next_seq;
    return MR_OK;
}

static enum mr_err recover(struct scan *scan)
{
    struct mr_log *log = scan->log;
    MR_TRY(open_all(scan));
    if (log->segments_n == 0) {
        if (scan->r->after_seq > 0) {
            mr_detail_set(scan->detail, "%s: the log is missing", log->dir);
            return MR_DAMAGED;
        }
        if (scan->r->read_only)
            return MR_OK;
        MR_TRY(segment_make_now(log, 1));
        log->buf_offset = MR_SEGMENT_HEADER;
        return MR_OK;
    }
    size_t start;
    MR_TRY(find_start(scan, &start));
    uint64_t first = log->segments[start].first_seq;
    scan->expected = first > 0 && first <= scan->r->after_seq + 1 ? first : scan->r->after_seq + 1;
    scan->end_in = start;
    scan->end_at = MR_SEGMENT_HEADER;
    (void)begins_with_expected(scan, start); /* after a repair it may go on behind a gap */
    MR_TRY(scan_from(scan, start, MR_SEGMENT_HEADER));
    if (scan->expected <= scan->r->after_seq)
        MR_TRY(bridge_to_snapshot(scan));
    MR_TRY(check_numbers(scan));
    if (!scan->r->read_only)
        MR_TRY(sync_found(scan, start));
    return settle_end(scan);
}

enum mr_err mr_log_recover(struct mr_log *log, struct mr_log_recovery *recovery,
                           struct mr_detail *detail)
{
    struct scan scan = {.log = log, .r = recovery, .detail = detail, .in = SIZE_MAX};
    log->last_term = recovery->after_term;
    enum mr_err err = recover(&scan);
    mr_buf_done(&scan.window);
    return err;
}
