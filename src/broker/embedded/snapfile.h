/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot file, between its writer (snapshot.c) and its reader (snapload.c):
 *
 * The bytes below stand in the sectors of parity.h, padded with zeroes to a whole group.
 *
 *   0  "MRSNAP01", u32 version, u32 zero
 *   16 blocks: u32 crc (salted, over what follows), u32 len, u32 type, u32 zero, and a body:
 *
 *   HEAD   store id (16), u64 seq, u32 term, u32 zero, u64 epoch ceiling, u64 deleted, u64 expired,
 *          u64 gathered (from version 3 on)
 *   QUEUE  queue event (wire/event.h), u64 processed, u64 failed, u32 days, and per day
 *          i32 day since the Unix epoch, u64 processed, u64 failed; from version 4 on the
 *          settings (broker/settings.h)
 *   GROUP  u32 number, u32 number of its queue, its name; numbers rise; from version 3 on
 *   TASKS  entries (wire/event.h); version 1 only
 *   PACKED entries (wire/pack.h)
 *   END    u64 number of tasks
 */
#ifndef MR_EMBEDDED_SNAPFILE_H
#define MR_EMBEDDED_SNAPFILE_H

#include "broker/embedded/parity.h"

enum {
    SNAP_VERSION = 4,
    SNAP_FILE_HEAD = 16,
    SNAP_BLOCK_HEAD = 16,
    SNAP_HEAD_BODY = 64,
    SNAP_HEAD_BODY_2 = 56, /* to version 2 */
    SNAP_GROUP = 8,
    SNAP_QUEUE_FIGURES = 20,
    SNAP_DAY = 20,
    SNAP_BLOCK_MAX = 16 * 1024 * 1024,
};

enum snap_block { SNAP_HEAD = 1, SNAP_QUEUE, SNAP_TASKS, SNAP_END, SNAP_PACKED, SNAP_GROUP_BLOCK };

struct loader {
    struct mr_engine *engine;
    uint64_t seq;
    struct parity_reader reader;
    struct mr_buf block;
    bool headed, ended;
    uint64_t tasks;
    struct mr_buf groups; /* of struct loaded_group, by number */
};

void snap_head_make(uint8_t head[SNAP_FILE_HEAD]);
MR_MUST_USE enum mr_err snap_head_check(const uint8_t head[SNAP_FILE_HEAD]);
/* A block: head and body in one piece. */
void snap_block_seal(uint8_t *block, size_t body_len, enum snap_block type, uint32_t salt);
bool snap_block_ok(const uint8_t *block, size_t body_len, uint32_t salt);
MR_MUST_USE enum mr_err snap_path(const char *dir, uint64_t seq, char path[MR_PATH_MAX]);

#endif
