/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a snapshot, packed: each is written as what differs from the one before it. Tasks
 * that came together lie together, in the log and in the index, so most entries are the task's id
 * and a few small numbers.
 *
 *   u8 head      1 has_more, 2 shape, 4 segment and 8 size are there (else as before); no other bit
 *   id           16 bytes
 *   numbers      key, tie and offset less the one before: zigzag, then 7 bits a byte, low ones first
 *   shape        u16 queue, u8 part, u8 zero, u16 retried, u16 max_retry, u8 state, u8 flags, u8 crashes
 *   segment, size  u32 each
 *   more         as in an entry (event.h)
 *
 * Before the first entry of a block everything is zero.
 */
#ifndef MR_WIRE_PACK_H
#define MR_WIRE_PACK_H

#include "wire/event.h"

enum {
    MR_PACK_NUMBER_MAX = 10,
    MR_PACK_SHAPE = 11,
    MR_PACK_SIZE = 1 + 16 + 3 * MR_PACK_NUMBER_MAX + MR_PACK_SHAPE + 8, /* at most, without more */
    MR_PACK_MAX = MR_PACK_SIZE + MR_ENTRY_MORE_SIZE,
};

/* Returns the bytes used; *before becomes the entry. */
size_t mr_entry_pack(const struct mr_entry *entry, struct mr_entry *before,
                     uint8_t bytes[MR_PACK_MAX]);
/* Takes one entry off the front of *bytes; *entry is the one before it, then this one. */
MR_MUST_USE enum mr_err mr_entry_unpack(struct mr_slice *bytes, struct mr_entry *entry);

#endif
