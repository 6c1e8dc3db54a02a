/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damage: told with its file and offset, and with repair set aside so that the log goes on behind
 * it. Nothing is overwritten before a copy of it stands, durable and under its final name, in the
 * folder's quarantine; a repair that is killed can be repeated, and copies are never replaced.
 */
#include <stdio.h>

#include "log/scan.h"

enum { ASIDE_TRIES = 1000 };

static bool repairs(const struct scan *scan)
{
    return scan->r->mode == MR_FSCK_REPAIR && !scan->r->read_only;
}

enum mr_err damage_found(struct scan *scan, const char *text)
{
    if (scan->r->line != NULL)
        scan->r->line(text, scan->r->line_arg);
    scan->r->damaged++;
    if (scan->r->mode == MR_FSCK_REPAIR || scan->r->read_only)
        return MR_OK;
    mr_detail_set(
        scan->detail,
        "%s/%s; nothing was changed; `millrace fsck --repair file:%s` sets it aside and keeps "
        "everything else",
        scan->log->dir, text, scan->log->dir);
    return MR_DAMAGED;
}

/* Behind the snapshot no segment ever goes: the file that should be next to this one, 0: it is there. A lost
 * snapshot looks the same. */
static uint32_t missing_beside(const struct scan *scan, struct place place)
{
    const struct segment *segment = &scan->log->segments[place.i];
    if (scan->expected <= scan->r->after_seq)
        return 0;
    if (place.i == 0 && place.at == MR_SEGMENT_HEADER && segment->first_seq > scan->expected)
        return segment->number - 1;
    bool last = place.i + 1 == scan->log->segments_n;
    return last || segment[1].number == segment->number + 1 ? 0 : segment->number + 1;
}

enum mr_err damage_record(struct scan *scan, struct place place)
{
    char text[128];
    uint32_t missing = missing_beside(scan, place);
    int len = snprintf(text, sizeof text, "log-%08x at offset %llu: damaged record %llu",
                       scan->log->segments[place.i].number, (unsigned long long)place.at,
                       (unsigned long long)scan->expected);
    if (missing != 0)
        snprintf(text + len, sizeof text - (size_t)len, "; log-%08x, or a snapshot, is missing",
                 missing);
    return damage_found(scan, text);
}

/* ---- setting aside -------------------------------------------------------------------------- */

/* A name that no copy has yet: the same place may be damaged, or its repair be begun, twice. */
static enum mr_err free_name(const struct scan *scan, const char *dir, struct place from,
                             char path[MR_PATH_MAX])
{
    struct mr_log *log = scan->log;
    for (unsigned n = 0; n < ASIDE_TRIES; n++) {
        char name[64];
        int len = snprintf(name, sizeof name, "log-%08x-%08llx", log->segments[from.i].number,
                           (unsigned long long)from.at);
        if (n > 0)
            snprintf(name + len, sizeof name - (size_t)len, ".%u", n);
        struct mr_file *file;
        MR_TRY(mr_path_join(path, dir, name));
        enum mr_err err = mr_fs_open(log->fs, path, MR_OPEN_READ, &file);
        if (err == MR_NOT_FOUND)
            return MR_OK;
        MR_TRY(err);
        mr_file_close(file);
    }
    return MR_CONFLICT;
}

static enum mr_err copy_out(struct scan *scan, struct place from, uint64_t to, const char *path)
{
    struct mr_fs *fs = scan->log->fs;
    struct mr_file *file;
    enum mr_err err = fs->ops->remove(fs, path); /* half of one, left by a repair that was killed */
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_CREATE, &file));
    err = MR_OK;
    for (struct place at = from; err == MR_OK && at.at < to; at.at += WINDOW) {
        size_t len = to - at.at < WINDOW ? (size_t)(to - at.at) : WINDOW;
        const uint8_t *bytes;
        err = scan_window(scan, at, len, &bytes);
        if (err == MR_OK)
            err = mr_file_pwrite(file, bytes, len, at.at - from.at);
    }
    if (err == MR_OK)
        err = mr_file_sync(file);
    mr_file_close(file);
    if (err != MR_OK)
        (void)fs->ops->remove(fs, path);
    return err;
}

/* Copies bytes of a segment into the folder's quarantine before they are overwritten. */
static enum mr_err set_aside(struct scan *scan, struct place from, uint64_t to)
{
    struct mr_fs *fs = scan->log->fs;
    char dir[MR_PATH_MAX], tmp[MR_PATH_MAX], path[MR_PATH_MAX];
    MR_TRY(mr_path_join(dir, scan->log->dir, "quarantine"));
    MR_TRY(mr_path_join(tmp, dir, "tmp-aside"));
    MR_TRY(fs->ops->dir_make(fs, dir));
    MR_TRY(free_name(scan, dir, from, path));
    MR_TRY(copy_out(scan, from, to, tmp));
    MR_TRY(fs->ops->rename(fs, tmp, path));
    MR_TRY(fs->ops->dir_sync(fs, dir));
    scan->r->bytes_aside += to - from.at;
    return MR_OK;
}

/* Puts a record over the damage. Its lag says by how much the next number is higher, its body where
 * the next record stands; without a body it stands right behind. */
static enum mr_err write_skip(struct scan *scan, struct place from, uint64_t to, uint64_t next_seq)
{
    uint8_t bytes[MR_RECORD_HEADER + MR_RECORD_SKIP_BODY] = {0};
    size_t len = to - from.at >= sizeof bytes ? MR_RECORD_SKIP_BODY : 0;
    if (next_seq - scan->expected > UINT32_MAX)
        return MR_DAMAGED;
    mr_store64(bytes + MR_RECORD_HEADER, to);
    struct segment *segment = &scan->log->segments[from.i];
    struct mr_record record = {
        .seq = scan->expected,
        .lag = (uint32_t)(next_seq - scan->expected),
        .term = scan->term,
        .segment = segment->number,
        .type = MR_RECORD_SKIP,
        .version = MR_RECORD_VERSION,
        .body.len = len,
    };
    mr_record_seal(bytes, &record, scan->log->salt);
    scan->in.i = SIZE_MAX; /* the window is stale now */
    MR_TRY(mr_file_pwrite(segment->file, bytes, mr_record_size(len), from.at));
    return mr_file_sync(segment->file);
}

enum mr_err cover_damage(struct scan *scan, struct place from, uint64_t to, uint64_t next_seq)
{
    if (!repairs(scan) || to - from.at < MR_RECORD_HEADER)
        return MR_OK; /* too small for a record, so none was there */
    MR_TRY(set_aside(scan, from, to));
    MR_TRY(write_skip(scan, from, to, next_seq));
    scan->expected = next_seq;
    return MR_OK;
}

/* ---- sectors and headers -------------------------------------------------------------------- */

/* Written again, with zeroes for what is lost: then the disk takes another sector for them. The
 * whole page, since the kernel cannot read what a smaller write would leave of it. */
static enum mr_err rewrite_page(struct scan *scan, const struct lost_page *page, const char *text)
{
    struct mr_file *file = scan->log->segments[page->place.i].file;
    enum mr_err err = mr_file_pwrite(file, page->bytes, page->len, page->place.at);
    if (err == MR_OK)
        err = mr_file_sync(file);
    if (err != MR_OK)
        mr_detail_set(scan->detail,
                      "%s/%s, nor be written again: %s; copy the store to another disk",
                      scan->log->dir, text, mr_err_text(err));
    return err;
}

enum mr_err damage_page(struct scan *scan, const struct lost_page *page)
{
    struct segment *segment = &scan->log->segments[page->place.i];
    if (scan->peeks || page->place.at < segment->told_upto)
        return MR_OK;
    char text[128];
    snprintf(text, sizeof text, "log-%08x at offset %llu: %zu bytes cannot be read%s",
             segment->number, (unsigned long long)page->lost_from, page->lost,
             repairs(scan) ? " and are zeroes now" : "");
    MR_TRY(damage_found(scan, text));
    segment->told_upto = page->place.at + page->len;
    return repairs(scan) ? rewrite_page(scan, page, text) : MR_OK;
}

enum mr_err mend_segment(struct scan *scan, size_t i, enum mend what)
{
    struct mr_log *log = scan->log;
    struct segment *segment = &log->segments[i];
    if (!repairs(scan))
        return MR_OK;
    if (what == MEND_HEADER) {
        uint64_t len = segment->bytes < MR_SEGMENT_HEADER ? segment->bytes : MR_SEGMENT_HEADER;
        if (len > 0)
            MR_TRY(set_aside(scan, (struct place){i, 0}, len));
        MR_TRY(segment_write_header(log, segment->file, segment->number, (struct gap){0}));
    }
    if (segment->bytes < log->segment_bytes) {
        MR_TRY(log->fs->ops->truncate(segment->file, log->segment_bytes));
        segment->bytes = log->segment_bytes;
    }
    scan->in.i = SIZE_MAX;
    return mr_file_sync(segment->file);
}

/* ---- going on ------------------------------------------------------------------------------- */

/* The log goes on at the start of a segment though the number before it is missing, and there was
 * no place for a skip record: the header remembers. */
static enum mr_err resume_here(struct scan *scan, size_t i, uint64_t next_seq)
{
    struct segment *segment = &scan->log->segments[i];
    segment->gap = (struct gap){scan->expected, next_seq};
    MR_TRY(segment_write_header(scan->log, segment->file, segment->number, segment->gap));
    return mr_file_sync(segment->file);
}

enum mr_err pass_lost_log(struct scan *scan)
{
    MR_TRY(damage_record(scan, scan->end));
    if (!repairs(scan))
        return MR_OK;
    MR_TRY(resume_here(scan, scan->end.i, scan->expected + 1));
    scan->expected++;
    return MR_OK;
}

/* In the unused end of a segment, which the next one has gone on from: the remains of a torn tail. */
static bool is_beyond(const struct scan *scan, const struct later *later)
{
    size_t next = later->place.i + 1;
    uint64_t first = next < scan->log->segments_n ? scan->log->segments[next].first_seq : 0;
    return first != 0 && later->record.seq >= first;
}

static enum mr_err scan_on(struct scan *scan, struct place from, struct later *ret_later)
{
    for (;; from.at += MR_RECORD_ALIGN) {
        MR_TRY(scan_later(scan, from, LATER_ANY, ret_later));
        if (!is_beyond(scan, ret_later))
            return MR_OK;
        from = ret_later->place;
    }
}

/* Where the log goes on behind damage: at the record with the lowest number above the expected one.
 * The first that is found need not be it: sectors may have changed places. But what stands behind a
 * higher term is the remains of a torn tail. And the first may be the expected one, where what was
 * damaged had no number of its own: see write_skip. */
static enum mr_err find_next(struct scan *scan, struct place from, struct later *ret_next)
{
    scan->expected--;
    enum mr_err found = scan_on(scan, from, ret_next);
    scan->expected++;
    MR_TRY(found);
    struct later other = *ret_next;
    while (ret_next->record.seq > scan->expected + 1) {
        other.place.at += MR_RECORD_ALIGN;
        enum mr_err err = scan_on(scan, other.place, &other);
        if (err == MR_NOT_FOUND || (err == MR_OK && other.place.i != ret_next->place.i))
            return MR_OK;
        MR_TRY(err);
        if (other.record.seq < ret_next->record.seq && other.record.term >= ret_next->record.term)
            *ret_next = other;
    }
    return MR_OK;
}

enum mr_err leave_room(struct scan *scan, struct place from, struct later *next, uint64_t *ret_seq)
{
    *ret_seq = next->record.seq;
    bool first = next->place.at == MR_SEGMENT_HEADER; /* then the header says what is missing */
    uint64_t room_at = next->place.i == from.i ? from.at : MR_SEGMENT_HEADER;
    if (first || next->place.at - room_at >= MR_RECORD_HEADER)
        return MR_OK;
    MR_TRY(scan_record(scan, next->place, &next->record)); /* the window may have moved on */
    if (next->record.term > scan->term)
        scan->term = next->record.term;
    next->place.at = mr_record_next(&next->record, next->place.at);
    *ret_seq = seq_behind(&next->record);
    return MR_OK;
}

enum mr_err pass_damage(struct scan *scan, struct place *place)
{
    MR_TRY(damage_record(scan, *place));
    struct later next;
    MR_TRY(find_next(scan, *place, &next));
    uint64_t next_seq;
    MR_TRY(leave_room(scan, *place, &next, &next_seq));
    for (struct place from = *place; from.i <= next.place.i;
         from = (struct place){from.i + 1, MR_SEGMENT_HEADER}) {
        uint64_t to = from.i == next.place.i ? next.place.at : scan->log->segments[from.i].bytes;
        MR_TRY(cover_damage(scan, from, to, next_seq));
        if (from.i < next.place.i) /* it goes with what says that they are missing, not before */
            scan->log->segments[from.i].last_seq = next_seq - 1;
    }
    if (repairs(scan) && scan->expected != next_seq && next.place.at == MR_SEGMENT_HEADER)
        MR_TRY(resume_here(scan, next.place.i, next_seq));
    scan->expected = next_seq;
    *place = next.place;
    return MR_OK;
}

/* Behind the last byte in use: copies of unused space help nobody. */
static enum mr_err find_used(struct scan *scan, struct place from, uint64_t *ret_end)
{
    uint64_t bytes = scan->log->segments[from.i].bytes;
    *ret_end = from.at;
    for (struct place at = from; at.at < bytes; at.at += WINDOW) {
        size_t len = bytes - at.at < WINDOW ? (size_t)(bytes - at.at) : WINDOW;
        const uint8_t *window;
        MR_TRY(scan_window(scan, at, len, &window));
        while (len > 0 && window[len - 1] == 0)
            len--;
        *ret_end = len > 0 ? at.at + len : *ret_end;
    }
    return MR_OK;
}

/* The segment is full to its end: the next one says what is missing. */
static enum mr_err bridge_into_next(struct scan *scan, uint64_t next_seq)
{
    size_t next = scan->end.i + 1;
    uint64_t used;
    scan->log->segments[scan->end.i].last_seq = next_seq - 1;
    scan->end = (struct place){next, MR_SEGMENT_HEADER};
    MR_TRY(find_used(scan, scan->end, &used));
    if (used > scan->end.at)
        MR_TRY(set_aside(scan, scan->end, used));
    MR_TRY(resume_here(scan, next, next_seq));
    scan->expected = next_seq;
    return MR_OK;
}

enum mr_err bridge_to_snapshot(struct scan *scan)
{
    struct mr_log *log = scan->log;
    uint64_t next_seq = scan->r->after_seq + 1;
    MR_TRY(damage_record(scan, scan->end));
    bool room = log->segments[scan->end.i].bytes - scan->end.at >= MR_RECORD_HEADER;
    if (repairs(scan) && !room && scan->end.i + 1 < log->segments_n)
        return bridge_into_next(scan, next_seq);
    if (repairs(scan) && !room) {
        mr_detail_set(scan->detail,
                      "%s: the log ends at record %llu, before its snapshot (%llu); restore the "
                      "store from a backup",
                      log->dir, (unsigned long long)scan->expected - 1,
                      (unsigned long long)scan->r->after_seq);
        return MR_DAMAGED;
    }
    if (repairs(scan)) {
        uint64_t to = scan->end.at + MR_RECORD_HEADER, used;
        MR_TRY(find_used(scan, scan->end, &used));
        if (used > scan->end.at)
            MR_TRY(set_aside(scan, scan->end, used));
        MR_TRY(write_skip(scan, scan->end, to, next_seq));
        scan->end.at = to;
    }
    log->segments[scan->end.i].last_seq = scan->r->after_seq;
    scan->expected = next_seq;
    return MR_OK;
}
