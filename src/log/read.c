/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading records back through a small cache of blocks: tasks are mostly taken in the order in
 * which they were written, so one read serves hundreds of them. Every record is checked each time
 * it is read.
 */
#include <stdlib.h>

#include "log/internal.h"

void cache_forget(struct mr_log *log, uint32_t segment)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (log->blocks[i].segment == segment)
            log->blocks[i].segment = 0;
}

/* Bytes of a segment that can be read from its file. */
static uint64_t readable(const struct mr_log *log, const struct segment *segment)
{
    return segment == segment_current(log) ? log->buf_offset : segment->bytes;
}

/* The block with at least the bytes up to `upto` of it. */
static enum mr_err block_get(struct mr_log *log, const struct segment *segment, uint32_t index,
                             size_t upto, struct block **ret_block)
{
    struct block *block = &log->blocks[(segment->number * 31 + index) % BLOCKS];
    if (block->segment == segment->number && block->index == index && block->valid >= upto) {
        *ret_block = block;
        return MR_OK;
    }
    if (block->data == NULL && (block->data = malloc(BLOCK_BYTES)) == NULL)
        return MR_NOMEM;
    uint64_t start = (uint64_t)index * BLOCK_BYTES, end = readable(log, segment);
    if (start + upto > end)
        return MR_DAMAGED;
    size_t len = end - start < BLOCK_BYTES ? (size_t)(end - start) : BLOCK_BYTES;
    block->segment = 0;
    MR_TRY(mr_file_pread(segment->file, block->data, len, start));
    block->segment = segment->number;
    block->index = index;
    block->valid = len;
    *ret_block = block;
    return MR_OK;
}

/* size bytes at offset, in a block where they fit one, else gathered in the scratch buffer. */
static enum mr_err bytes_at(struct mr_log *log, const struct segment *segment, uint64_t offset,
                            size_t size, const uint8_t **ret_bytes)
{
    uint32_t index = (uint32_t)(offset / BLOCK_BYTES);
    size_t inside = (size_t)(offset % BLOCK_BYTES);
    struct block *block;
    if (inside + size <= BLOCK_BYTES) {
        enum mr_err err = block_get(log, segment, index, inside + size, &block);
        if (err == MR_OK)
            *ret_bytes = block->data + inside;
        if (err != MR_IO)
            return err;
        /* Some sector of the block cannot be read; these bytes perhaps can. */
    }
    if (offset + size > readable(log, segment))
        return MR_DAMAGED;
    mr_buf_clear(&log->scratch);
    MR_TRY(mr_buf_reserve(&log->scratch, size));
    enum mr_err err = mr_file_pread(segment->file, log->scratch.data, size, offset);
    *ret_bytes = log->scratch.data;
    return err == MR_IO ? MR_DAMAGED : err; /* what cannot be read is damaged, and harms no other */
}

/* What could not be written is still in memory: a copy of a task that was durable long before may be among it. */
static enum mr_err bytes_unwritten(const struct mr_log *log, uint64_t offset, size_t size,
                                   const uint8_t **ret_bytes)
{
    if (offset < log->buf_offset || offset + size > log->buf_offset + log->buf.len)
        return MR_IO;
    *ret_bytes = log->buf.data + (offset - log->buf_offset);
    return MR_OK;
}

enum mr_err mr_log_read(struct mr_log *log, struct mr_log_pos pos, size_t size,
                        struct mr_record *ret_record)
{
    const struct segment *segment = segment_find(log, pos.segment);
    if (segment == NULL || size < MR_RECORD_HEADER)
        return MR_DAMAGED;
    bool buffered = segment == segment_current(log) && pos.offset + size > log->buf_offset;
    bool failed = log->failure != MR_OK;
    const uint8_t *bytes;
    if (buffered && !failed)
        MR_TRY(mr_log_write(log)); /* where this fails, so does who believed it had not */
    if (buffered && failed)
        MR_TRY(bytes_unwritten(log, pos.offset, size, &bytes));
    else
        MR_TRY(bytes_at(log, segment, pos.offset, size, &bytes));
    struct mr_record record;
    if (mr_record_parse(mr_slice_make(bytes, size), log->salt, &record) != MR_RECORD_GOOD ||
        record.segment != pos.segment)
        return MR_DAMAGED;
    *ret_record = record;
    return MR_OK;
}

/* ---- walking -------------------------------------------------------------------------------- */

/* The record at offset, however long. MR_NOT_FOUND when none stands there, MR_DAMAGED when not even
 * its header can be read. */
static enum mr_err record_at(struct mr_log *log, const struct segment *segment, uint64_t offset,
                             struct mr_record *ret_record)
{
    size_t need = MR_RECORD_HEADER;
    for (;;) {
        if (offset + need > readable(log, segment))
            return MR_NOT_FOUND;
        const uint8_t *bytes;
        enum mr_err err = bytes_at(log, segment, offset, need, &bytes);
        if (err == MR_DAMAGED && need > MR_RECORD_HEADER)
            return MR_NOT_FOUND;
        MR_TRY(err);
        enum mr_record_check check =
            mr_record_parse(mr_slice_make(bytes, need), log->salt, ret_record);
        if (check == MR_RECORD_GOOD)
            return ret_record->segment == segment->number ? MR_OK : MR_NOT_FOUND;
        if (check == MR_RECORD_BAD)
            return MR_NOT_FOUND;
        need = ret_record->body.len;
    }
}

enum mr_err mr_log_walk(struct mr_log *log, uint32_t number, uint32_t *offset, size_t max_bytes,
                        mr_log_visit *visit, void *arg)
{
    struct segment *segment = segment_find(log, number);
    mr_assert(segment != NULL);
    uint64_t at = *offset == 0 ? MR_SEGMENT_HEADER : *offset, start = at;
    while (at + MR_RECORD_HEADER <= segment->end && at - start < max_bytes) {
        struct mr_record record;
        enum mr_err err = record_at(log, segment, at, &record);
        if (err == MR_DAMAGED) { /* asking a failing disk for the same sector again is slow */
            at += SECTOR_BYTES - at % SECTOR_BYTES;
            continue;
        }
        if (err != MR_OK && err != MR_NOT_FOUND)
            return err;
        if (err != MR_OK || record.seq < segment->first_seq || record.seq > segment->last_seq) {
            at += MR_RECORD_ALIGN;
            continue;
        }
        uint64_t seq = record.seq;
        uint64_t next = mr_record_next(&record, at);
        MR_TRY(visit(&record, (struct mr_log_pos){number, (uint32_t)at}, arg));
        segment = segment_find(log, number); /* the visit may have appended, and moved the table */
        at = seq == segment->last_seq ? segment->end : next;
    }
    *offset = at + MR_RECORD_HEADER <= segment->end ? (uint32_t)at : 0;
    if (*offset == 0)
        segment->left = segment->live;
    return MR_OK;
}
