/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of proto/ that come by the hundred thousand, straight between their bytes and the
 * structs of the public header: one table of fields serves size, writing and reading. Nothing is
 * copied on the way in: slices point into the bytes that were read.
 */
#ifndef MR_WIRE_FLAT_H
#define MR_WIRE_FLAT_H

#include "base/arena.h"
#include "base/buf.h"

struct mr_flat;

extern const struct mr_flat mr_flat_new_task;       /* NewTask: struct mr_task_options */
extern const struct mr_flat mr_flat_task;           /* Task: struct mr_task */
extern const struct mr_flat mr_flat_enqueue_result; /* EnqueueResult: struct mr_enqueue_result;
                                                       not its message */
extern const struct mr_flat mr_flat_queue;          /* Queue: struct mr_queue_info */
extern const struct mr_flat mr_flat_stats;          /* StatsResponse: struct mr_stats */

/* Tables for structs of other modules: the field with number i + 1 is row i. */
enum mr_flat_kind {
    MR_FLAT_NONE,    /* of no interest */
    MR_FLAT_SLICE,   /* string or bytes; struct mr_slice */
    MR_FLAT_CHARS,   /* string; char [more], with a NUL; cut where it does not fit */
    MR_FLAT_32,      /* int32 */
    MR_FLAT_U32,     /* uint32 */
    MR_FLAT_64,      /* int64 and uint64 */
    MR_FLAT_FIXED64, /* fixed64; uint64_t */
    MR_FLAT_DOUBLE,
    MR_FLAT_BOOL,
    MR_FLAT_ENUM,    /* up to more, others are refused */
    MR_FLAT_HEADERS, /* repeated Header; const struct mr_header *, their number is at more. Of those
                        behind MR_HEADERS_MAX only the first is read */
};

struct mr_flat_field {
    uint16_t kind, offset, more;
};

struct mr_flat {
    const struct mr_flat_field *fields;
    size_t n;
    size_t size; /* of the struct */
};

#define MR_FLAT(type, name, fields_)                                                               \
    const struct mr_flat name = {fields_, sizeof(fields_) / sizeof *(fields_), sizeof(type)}

/* Of the encoding, fields that are zero left out. */
size_t mr_flat_size(const struct mr_flat *flat, const void *in);
/* Writes as many bytes; returns where they end. */
uint8_t *mr_flat_write(const struct mr_flat *flat, const void *in, uint8_t *at);
/* The same behind what is in buf; in the arena. */
MR_MUST_USE enum mr_err mr_flat_append(const struct mr_flat *flat, const void *in,
                                       struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_flat_make(const struct mr_flat *flat, const void *in,
                                     struct mr_arena *arena, struct mr_slice *ret_bytes);
/* MR_INVALID when the bytes are not such a message. arena: for headers. */
MR_MUST_USE enum mr_err mr_flat_read(const struct mr_flat *flat, struct mr_slice bytes,
                                     struct mr_arena *arena, void *out);

/* ---- by hand: what stands around them ------------------------------------------------------- */

enum mr_flat_type { MR_FLAT_VARINT = 0, MR_FLAT_EIGHT = 1, MR_FLAT_BYTES = 2, MR_FLAT_FOUR = 5 };

struct mr_flat_item {
    uint32_t number;
    enum mr_flat_type type;
    uint64_t value;        /* numbers */
    struct mr_slice bytes; /* MR_FLAT_BYTES */
};

/* Takes the first field off *bytes, which are not empty. */
MR_MUST_USE enum mr_err mr_flat_next(struct mr_slice *bytes, struct mr_flat_item *ret_item);
/* How many fields of this number and type stand in it; MR_INVALID when it is no message. */
MR_MUST_USE enum mr_err mr_flat_count(struct mr_slice bytes, uint32_t number, size_t *ret_n);

/* The tag and length before len bytes, and a whole varint field. Numbers up to 15. */
size_t mr_flat_head_size(size_t len);
uint8_t *mr_flat_put_head(uint8_t *at, unsigned number, size_t len);
size_t mr_flat_varint_size(uint64_t value);
uint8_t *mr_flat_put_varint(uint8_t *at, unsigned number, uint64_t value);

#endif
