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
 *
 * Segments that the snapshot covers are not read at a start; a check and a repair read them too,
 * each for itself, since those between them may be gone.
 */
#include <stdlib.h>

#include "log/scan.h"

/* ---- the scan ------------------------------------------------------------------------------- */

static bool is_next(const struct scan *scan, const struct mr_record *record)
{
    return record->seq == scan->expected &&
           (record->seq <= scan->r->after_seq || record->term >= scan->term);
}

/* Visits the record at *place and moves on. A skip record leads to where it says. */
static enum mr_err take_record(struct scan *scan, struct place *place,
                               const struct mr_record *record)
{
    struct segment *segment = &scan->log->segments[place->i];
    struct mr_log_pos pos = {segment->number, (uint32_t)place->at};
    if (segment->first_seq == 0)
        segment->first_seq = record->seq;
    segment->end = place->at + mr_record_size(record->body.len);
    if (record->term > scan->term)
        scan->term = record->term;
    scan->end = (struct place){place->i, segment->end};
    scan->expected = seq_behind(record);
    segment->last_seq = scan->expected - 1;
    scan->r->records++;
    place->at = mr_record_next(record, place->at);
    /* One that stands for lost records may begin before the snapshot's end and reach behind it. */
    return segment->last_seq > scan->r->after_seq ? scan->r->visit(record, pos, scan->r->arg)
                                                  : MR_OK;
}

/* Whether the log goes on in this segment: with the next record, or, as a repair has told, behind a gap, even if
 * nothing was written there yet. */
static enum mr_err begins_with_expected(struct scan *scan, size_t i, bool *ret_yes)
{
    *ret_yes = false;
    if (i >= scan->log->segments_n)
        return MR_OK;
    /* Only what was missing then may be missing now. */
    const struct gap *gap = &scan->log->segments[i].gap;
    bool behind_gap = gap->from <= scan->expected && scan->expected < gap->to;
    if (behind_gap) {
        scan->expected = gap->to;
        scan->r->gaps++;
    }
    struct mr_record record;
    enum mr_err err = scan_record(scan, (struct place){i, MR_SEGMENT_HEADER}, &record);
    *ret_yes = behind_gap || (err == MR_OK && is_next(scan, &record));
    return err == MR_NOT_FOUND ? MR_OK : err;
}

/* Measures what a crash left of writes nobody was told of, for the report. */
static enum mr_err measure_tail(struct scan *scan, struct place place)
{
    struct later torn;
    enum mr_err err = scan_later(scan, place, LATER_ANY, &torn);
    if (err == MR_NOT_FOUND) {
        const uint8_t *bytes;
        MR_TRY(scan_window(scan, place, MR_RECORD_HEADER, &bytes));
        bool begun = bytes != NULL &&
                     mr_load32(bytes + 24) == scan->log->segments[place.i].number &&
                     mr_load64(bytes + 8) == scan->expected;
        scan->r->torn_bytes = begun ? mr_record_size(mr_load32(bytes + 4)) : 0;
        return MR_OK;
    }
    MR_TRY(err);
    scan->r->torn_bytes = torn.place.i == place.i ? torn.place.at - place.at : 1;
    return MR_OK;
}

static enum mr_err scan_from(struct scan *scan, struct place place)
{
    for (;;) {
        struct mr_record record;
        enum mr_err err = scan_record(scan, place, &record);
        if (err == MR_OK && is_next(scan, &record)) {
            MR_TRY(take_record(scan, &place, &record));
            continue;
        }
        if (err != MR_OK && err != MR_NOT_FOUND)
            return err;
        bool goes_on;
        MR_TRY(begins_with_expected(scan, place.i + 1, &goes_on));
        if (goes_on) {
            place = scan->end = (struct place){place.i + 1, MR_SEGMENT_HEADER};
            continue;
        }
        struct later later;
        err = scan_later(scan, place, LATER_KNEW, &later);
        if (err == MR_NOT_FOUND)
            return measure_tail(scan, place);
        MR_TRY(err);
        MR_TRY(pass_damage(scan, &place));
        scan->end = place; /* also where no record is left behind what was set aside */
    }
}

/* ---- segments that the snapshot covers ------------------------------------------------------ */

/* Whether the last number of a segment is certain: the next one begins right behind it. */
static bool end_is_known(const struct scan *scan, size_t i)
{
    const struct segment *next = &scan->log->segments[i + 1];
    return next->number == scan->log->segments[i].number + 1 && next->first_seq != 0 &&
           next->gap.to == 0;
}

/* Damage at *place: to the next record of the segment, or to its end where records are missing up
 * to there. MR_NOT_FOUND: nothing is missing, the rest was never used. */
static enum mr_err pass_sealed_damage(struct scan *scan, struct place *place)
{
    const struct segment *segment = &scan->log->segments[place->i];
    struct later later;
    enum mr_err err = scan_later(scan, *place, LATER_ANY, &later);
    bool lost = end_is_known(scan, place->i) && scan->expected <= segment->last_seq;
    if (err != MR_OK && (err != MR_NOT_FOUND || !lost))
        return err;
    uint64_t next_seq = segment->last_seq + 1;
    if (err == MR_OK)
        MR_TRY(leave_room(scan, *place, &later, &next_seq));
    uint64_t to = err == MR_OK ? later.place.at : segment->bytes;
    if (scan->expected == 0) /* nobody knows where it began */
        scan->expected = next_seq - 1;
    MR_TRY(damage_record(scan, *place));
    MR_TRY(cover_damage(scan, *place, to, next_seq));
    scan->expected = next_seq;
    place->at = to;
    return MR_OK;
}

static enum mr_err check_sealed(struct scan *scan, size_t i)
{
    struct place place = {i, MR_SEGMENT_HEADER};
    scan->expected = scan->log->segments[i].first_seq;
    scan->term = 0;
    scan->stop_i = i + 1;
    for (;;) {
        struct mr_record record;
        enum mr_err err = scan_record(scan, place, &record);
        if (err == MR_OK && record.seq == scan->expected && record.term >= scan->term) {
            scan->term = record.term;
            scan->expected = seq_behind(&record);
            scan->r->records++;
            place.at = mr_record_next(&record, place.at);
            continue;
        }
        if (err == MR_OK || err == MR_NOT_FOUND)
            err = pass_sealed_damage(scan, &place);
        if (err != MR_OK)
            return err == MR_NOT_FOUND ? MR_OK : err;
    }
}

static enum mr_err check_all_sealed(struct scan *scan, size_t start)
{
    for (size_t i = 0; i < start; i++)
        MR_TRY(check_sealed(scan, i));
    return MR_OK;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* A damaged header hides nothing: the name says which segment it is. Nor does a file that was cut
 * short. */
static enum mr_err open_one(struct scan *scan, uint32_t number)
{
    struct mr_log *log = scan->log;
    struct mr_detail found = {{0}};
    struct segment segment = {0};
    enum mr_err err = segment_open(log, number, scan->r->read_only, &segment, &found);
    if (err != MR_OK && err != MR_DAMAGED) {
        mr_detail_set(scan->detail, "%s/%s", log->dir, found.text);
        return err;
    }
    enum mend what = err == MR_DAMAGED ? MEND_HEADER : MEND_SIZE;
    err = segment_add(log, &segment);
    if (err != MR_OK) {
        mr_file_close(segment.file);
        return err;
    }
    if (what == MEND_SIZE && segment.bytes >= log->segment_bytes)
        return MR_OK;
    if (what == MEND_SIZE)
        mr_detail_set(&found, "log-%08x at offset %llu: the file is cut short", number,
                      (unsigned long long)segment.bytes);
    MR_TRY(damage_found(scan, found.text));
    return mend_segment(scan, log->segments_n - 1, what);
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
 * before it are sealed; their last number follows from the first of the next one, which is too high
 * where segments between them are gone. */
static enum mr_err find_start(struct scan *scan, size_t *ret_i)
{
    struct mr_log *log = scan->log;
    size_t start = 0;
    scan->peeks = true;
    for (size_t i = 0; i < log->segments_n; i++) {
        struct mr_record record;
        enum mr_err err = scan_record(scan, (struct place){i, MR_SEGMENT_HEADER}, &record);
        if (err == MR_NOT_FOUND)
            continue;
        MR_TRY(err);
        log->segments[i].first_seq = record.seq;
        if (record.seq <= scan->r->after_seq + 1)
            start = i;
    }
    scan->peeks = false;
    scan->in.i = SIZE_MAX; /* it may have holes nobody was told of */
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

/* Whether no segment has a record, though one before the first of them had: the last segment with
 * anything durable in it is never removed (see segment.c, removable). */
static bool lost_all(const struct scan *scan)
{
    return scan->end.i == 0 && scan->end.at == MR_SEGMENT_HEADER &&
           scan->log->segments[0].number != FIRST_SEGMENT && scan->log->segments[0].gap.to == 0;
}

/* The segment made ready ahead has the next number. If it has not, the one between was lost. */
static bool lost_next(const struct scan *scan)
{
    const struct mr_log *log = scan->log;
    size_t next = scan->end.i + 1;
    return next < log->segments_n &&
           log->segments[next].number != log->segments[scan->end.i].number + 1;
}

static enum mr_err check_numbers(struct scan *scan)
{
    if (lost_all(scan))
        return pass_lost_log(scan);
    return lost_next(scan) ? damage_record(scan, scan->end) : MR_OK;
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

/* Behind the end, whole and without a gap. With the remains of a torn tail at its beginning it must
 * go: once a snapshot covers those numbers, the next start would take it for the place to begin. */
static bool is_ready(const struct scan *scan, size_t i)
{
    const struct mr_log *log = scan->log;
    size_t ahead = i - scan->end.i;
    return ahead <= READY_MAX && log->segments[i].bytes == log->segment_bytes &&
           log->segments[i].first_seq == 0 &&
           log->segments[i].number == log->segments[scan->end.i].number + ahead &&
           (ahead == 1 || is_ready(scan, i - 1));
}

/* The end is known: the segment it lies in is written on, those made ready behind it still are,
 * others behind hold nothing but a torn tail and go. */
static enum mr_err settle_end(struct scan *scan)
{
    struct mr_log *log = scan->log;
    for (size_t i = 0; i < scan->end.i; i++)
        log->segments[i].sealed = true;
    while (log->segments_n > scan->end.i + 1) {
        size_t i = --log->segments_n, ahead = i - scan->end.i;
        const struct segment *last = &log->segments[i];
        if (is_ready(scan, i)) {
            log->ready_n = ahead > log->ready_n ? ahead : log->ready_n;
            log->ready[ahead - 1] = (struct segment){.number = last->number,
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
    segment_current(log)->end = scan->end.at;
    log->buf_offset = scan->end.at;
    log->last_seq = log->written_seq = log->durable_seq = log->wanted_seq = scan->expected - 1;
    log->last_term = scan->term;
    return MR_OK;
}

static enum mr_err sync_found(struct scan *scan, size_t from)
{
    struct mr_log *log = scan->log;
    for (size_t i = from; i < log->segments_n; i++)
        MR_TRY(mr_file_sync(log->segments[i].file));
    return log->fs->ops->dir_sync(log->fs, log->dir);
}

/* The first record of the segment where the scan begins is not there. Where the first that is stands no further
 * than right behind the snapshot's end, what should stand before it was durable: damage, whatever others knew, and
 * no reason to give up any record behind the snapshot. */
static enum mr_err pass_damaged_start(struct scan *scan)
{
    struct later first;
    struct place place = scan->end;
    uint64_t next_seq = scan->expected;
    scan->expected = 0;
    scan->term = 0;
    scan->stop_i = place.i + 1;
    enum mr_err err = scan_later(scan, place, LATER_ANY, &first);
    bool covered = err == MR_OK && first.record.seq > 1 && first.record.seq <= next_seq;
    scan->expected = next_seq;
    scan->term = scan->r->after_term;
    scan->stop_i = scan->log->segments_n;
    if (!covered)
        return err == MR_NOT_FOUND ? MR_OK : err;
    scan->expected = first.record.seq - 1;
    MR_TRY(damage_record(scan, place));
    MR_TRY(cover_damage(scan, place, first.place.at, first.record.seq));
    scan->expected = first.record.seq;
    scan->end = first.place;
    return MR_OK;
}

static enum mr_err begin_at(struct scan *scan, size_t start)
{
    uint64_t first = scan->log->segments[start].first_seq, next = scan->r->after_seq + 1;
    scan->expected = first > 0 && first <= next ? first : next;
    scan->term = scan->r->after_term;
    scan->stop_i = scan->log->segments_n;
    scan->end = (struct place){start, MR_SEGMENT_HEADER};
    return first == 0 ? pass_damaged_start(scan) : MR_OK;
}

static enum mr_err recover(struct scan *scan)
{
    struct mr_log *log = scan->log;
    MR_TRY(open_all(scan));
    if (log->segments_n == 0) {
        mr_detail_set(scan->detail,
                      "%s: the log is missing, all of its log- files; restore the store from a "
                      "backup",
                      log->dir);
        return MR_DAMAGED;
    }
    size_t start;
    MR_TRY(find_start(scan, &start));
    if (scan->r->read_only || scan->r->mode == MR_FSCK_REPAIR)
        MR_TRY(check_all_sealed(scan, start));
    MR_TRY(begin_at(scan, start));
    bool ignored; /* after a repair it may go on behind a gap */
    if (scan->end.at == MR_SEGMENT_HEADER)
        MR_TRY(begins_with_expected(scan, start, &ignored));
    MR_TRY(scan_from(scan, scan->end));
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
    struct scan scan = {.log = log, .r = recovery, .detail = detail, .in.i = SIZE_MAX};
    enum mr_err err = recover(&scan);
    mr_buf_done(&scan.window);
    return err;
}
