/* SPDX-License-Identifier: Apache-2.0 */
/* Between store.c and fsck.c: reading a folder without opening it for work. */
#ifndef MR_EMBEDDED_STORE_H
#define MR_EMBEDDED_STORE_H

#include "broker/embedded/engine.h"

struct meta {
    uint32_t salt;
    struct mr_uuid store_id;
    struct mr_hash_key hash_key;
    size_t segment_bytes;
    bool half_damaged; /* one of the two copies cannot be read */
};

struct recovery {
    struct mr_engine *engine;
    struct mr_detail *detail;
    struct meta meta;
    struct mr_log_recovery log;
};

/* MR_NOT_FOUND when there is none. */
MR_MUST_USE enum mr_err meta_read(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                                  struct mr_detail *detail);
/* Snapshot and log into engine->state; engine has fs, dir, clock and options. */
MR_MUST_USE enum mr_err recover_state(struct recovery *recovery);

#endif
