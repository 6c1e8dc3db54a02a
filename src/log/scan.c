/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the log at a start, through a window of a megabyte. A disk may refuse to give some
 * sectors: then the window is read around them, page by page, and only what is really looked at is
 * called damaged.
 */
#include "log/scan.h"

static uint64_t left_of(const struct segment *segment, uint64_t at)
{
    return segment->bytes - at;
}

/* A page, with zeroes for what cannot be read of it. */
static enum mr_err read_page(struct scan *scan, struct lost_page *page)
{
    const struct segment *segment = &scan->log->segments[page->place.i];
    uint64_t start = page->place.at;
    page->len = left_of(segment, start) < PAGE ? (size_t)left_of(segment, start) : PAGE;
    page->lost = 0;
    enum mr_err err = mr_file_pread(segment->file, page->bytes, page->len, start);
    if (err != MR_IO)
        return err;
    for (size_t at = 0; at < page->len; at += SECTOR_BYTES) {
        size_t n = page->len - at < SECTOR_BYTES ? page->len - at : SECTOR_BYTES;
        err = mr_file_pread(segment->file, page->bytes + at, n, start + at);
        if (err == MR_IO) {
            memset(page->bytes + at, 0, n);
            page->lost_from = page->lost == 0 ? start + at : page->lost_from;
            page->lost += n;
        } else if (err != MR_OK) {
            return err;
        }
    }
    return MR_OK;
}

/* Fills the window up to the first page that cannot be read and is not needed yet. */
static enum mr_err read_around(struct scan *scan, struct place place, size_t need, size_t len)
{
    while (scan->window.len < len) {
        uint64_t at = place.at + scan->window.len;
        size_t inside = (size_t)(at % PAGE);
        struct lost_page page = {.place = {place.i, at - inside}};
        MR_TRY(read_page(scan, &page));
        if (page.lost > 0 && scan->window.len >= need)
            return MR_OK;
        if (page.lost > 0)
            MR_TRY(damage_page(scan, &page));
        size_t left = len - scan->window.len;
        size_t n = page.len - inside < left ? page.len - inside : left;
        MR_TRY(mr_buf_append(&scan->window, page.bytes + inside, n));
    }
    return MR_OK;
}

enum mr_err scan_window(struct scan *scan, struct place place, size_t need,
                        const uint8_t **ret_bytes)
{
    const struct segment *segment = &scan->log->segments[place.i];
    *ret_bytes = NULL;
    if (place.at + need > segment->bytes)
        return MR_OK;
    if (scan->in.i != place.i || place.at < scan->in.at ||
        place.at + need > scan->in.at + scan->window.len) {
        size_t len =
            left_of(segment, place.at) < WINDOW ? (size_t)left_of(segment, place.at) : WINDOW;
        len = len < need ? need : len;
        mr_buf_clear(&scan->window);
        scan->in.i = SIZE_MAX;
        MR_TRY(mr_buf_reserve(&scan->window, len));
        enum mr_err err = mr_file_pread(segment->file, scan->window.data, len, place.at);
        if (err == MR_OK)
            scan->window.len = len;
        else if (err == MR_IO)
            err = read_around(scan, place, need, len);
        MR_TRY(err);
        scan->in = place;
    }
    *ret_bytes = scan->window.data + (place.at - scan->in.at);
    return MR_OK;
}

enum mr_err scan_record(struct scan *scan, struct place place, struct mr_record *ret_record)
{
    size_t need = MR_RECORD_HEADER;
    for (;;) {
        const uint8_t *bytes;
        MR_TRY(scan_window(scan, place, need, &bytes));
        if (bytes == NULL)
            return MR_NOT_FOUND;
        enum mr_record_check check =
            mr_record_parse(mr_slice_make(bytes, need), scan->log->salt, ret_record);
        if (check == MR_RECORD_GOOD)
            return ret_record->segment == scan->log->segments[place.i].number ? MR_OK
                                                                              : MR_NOT_FOUND;
        if (check == MR_RECORD_BAD)
            return MR_NOT_FOUND;
        need = ret_record->body.len;
    }
}

uint64_t seq_behind(const struct mr_record *record)
{
    return record->type == MR_RECORD_SKIP ? record->seq + record->lag : record->seq + 1;
}

/* Quick look at a header before its checksum is worth computing. */
static bool may_be_later(const struct scan *scan, const uint8_t *at, uint32_t number)
{
    return mr_load32(at + 24) == number && mr_load64(at + 8) > scan->expected &&
           mr_load32(at + 20) >= scan->term;
}

static bool knew(const struct scan *scan, const struct mr_record *record)
{
    return record->type == MR_RECORD_SKIP || record->seq - record->lag >= scan->expected;
}

/* How far to go on from a place in the window: past the headers that are nothing but zeroes. Most of
 * a segment is, behind the end of the log, and a start looks at all of it. */
static uint64_t step_at(const struct scan *scan, struct place place)
{
    const uint8_t *bytes = scan->window.data + (place.at - scan->in.at);
    size_t len = scan->window.len - (size_t)(place.at - scan->in.at), zeroes = 0;
    while (zeroes + 8 <= len && mr_load64(bytes + zeroes) == 0)
        zeroes += 8;
    return zeroes > MR_RECORD_HEADER ? zeroes - MR_RECORD_HEADER + MR_RECORD_ALIGN
                                     : MR_RECORD_ALIGN;
}

enum mr_err scan_later(struct scan *scan, struct place from, enum later_kind kind,
                       struct later *ret_later)
{
    struct place place = from;
    for (; place.i < scan->stop_i; place = (struct place){place.i + 1, MR_SEGMENT_HEADER}) {
        const struct segment *segment = &scan->log->segments[place.i];
        for (uint64_t step; place.at + MR_RECORD_HEADER <= segment->bytes; place.at += step) {
            const uint8_t *at;
            MR_TRY(scan_window(scan, place, MR_RECORD_HEADER, &at));
            step = step_at(scan, place);
            if (!may_be_later(scan, at, segment->number))
                continue;
            enum mr_err err = scan_record(scan, place, &ret_later->record);
            if (err == MR_NOT_FOUND)
                continue;
            MR_TRY(err);
            if (kind == LATER_KNEW && !knew(scan, &ret_later->record))
                continue;
            ret_later->place = place;
            return MR_OK;
        }
    }
    return MR_NOT_FOUND;
}
