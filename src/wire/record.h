/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One record of the commit log. Little-endian, 8-byte aligned, 32 bytes of header and a body:
 *
 *   0  u32 crc      CRC32C, started with the store's salt, over everything behind it
 *   4  u32 len      bytes of body; the next record begins at the next multiple of 8
 *   8  u64 seq      rises by one a record, for ever
 *   16 u32 lag      seq minus the newest record known to be durable when this one was written; of a
 *                   skip record: by how much the next number is higher
 *   20 u32 term     which opening of the store wrote it; never falls along the log
 *   24 u32 segment  low bits of the segment's number
 *   28 u8  type     enum mr_record_type
 *   29 u8  version  of the body's layout
 *   30 u16 zero
 *
 * The salt and the segment number keep bytes of another store, or of a recycled segment's former
 * life, from ever looking valid. The term does the same for what a torn tail left behind the cut.
 * The lag tells a torn tail from damage: a record that a later one knew to be durable was
 * acknowledged.
 */
#ifndef MR_WIRE_RECORD_H
#define MR_WIRE_RECORD_H

#include "base/slice.h"

enum {
    MR_RECORD_HEADER = 32,
    MR_RECORD_ALIGN = 8,
    MR_RECORD_VERSION = 1,
    MR_RECORD_SKIP_BODY = 8, /* of a skip record: the offset it leads to; or none: right behind */
    MR_RECORD_BODY_MAX =
        20 * 1024 * 1024, /* above every payload, result and header limit together */
};

/* A new one raises the versions of the segment and of the snapshot: see docs/formats.md. */
enum mr_record_type {
    MR_RECORD_NONE,
    MR_RECORD_OPEN,     /* a term begins; epoch ceiling */
    MR_RECORD_CEILING,  /* epochs up to this may be handed out */
    MR_RECORD_MARK,     /* what stands before it is durable; of a closed store, the last epoch */
    MR_RECORD_SKIP,     /* damage was set aside here */
    MR_RECORD_QUEUE,    /* a queue was made or its settings changed */
    MR_RECORD_UNQUEUE,  /* a queue was removed */
    MR_RECORD_TASK,     /* a task was enqueued */
    MR_RECORD_COPY,     /* a live task, carried forward by compaction */
    MR_RECORD_NOTE,     /* its last result or error, carried forward */
    MR_RECORD_TAKE,     /* tasks were handed out */
    MR_RECORD_FINISH,   /* a run ended in another way */
    MR_RECORD_LOST,     /* a lease ended without a finish */
    MR_RECORD_MOVE,     /* a caller changed state or order */
    MR_RECORD_DELETE,   /* a task was removed */
    MR_RECORD_DONE,     /* runs ended well, and their tasks are gone */
    MR_RECORD_GATHERED, /* the members of a set became one task */
    MR_RECORD_TEXT,     /* the last result or error of the task that the next record carries here */
    MR_RECORD_CARRIED,  /* a task came from another broker as it stood there; a body as of a copy */
    MR_RECORD_RESULT,   /* a run ended, or its lease did, and left a result */
    MR_RECORD_TYPE_COUNT
};

struct mr_record {
    uint64_t seq;
    uint32_t lag, term, segment;
    uint8_t type; /* MR_RECORD_TYPE_COUNT or above: one that only a newer version knows */
    uint8_t version;
    struct mr_slice body;
};

/* Bytes a record with this much body takes in the log. */
static inline size_t mr_record_size(size_t body_len)
{
    return (MR_RECORD_HEADER + body_len + MR_RECORD_ALIGN - 1) & ~(size_t)(MR_RECORD_ALIGN - 1);
}

/* Fills the header in front of a body that already stands at at + MR_RECORD_HEADER, and zeroes the
 * padding. */
void mr_record_seal(uint8_t *at, const struct mr_record *record, uint32_t salt);

enum mr_record_check {
    MR_RECORD_GOOD,
    MR_RECORD_BAD,   /* not a record, or damaged */
    MR_RECORD_SHORT, /* may be one, but more bytes are needed: ret_record->body.len says how many in
                        all */
};

/* Checks the bytes at the start of a slice. The body points into it. */
enum mr_record_check mr_record_parse(struct mr_slice bytes, uint32_t salt,
                                     struct mr_record *ret_record);

/* File offset behind a record at offset at: where a skip record leads, or right behind. */
uint64_t mr_record_next(const struct mr_record *record, uint64_t at);

const char *mr_record_type_name(unsigned type);

#endif
