/* SPDX-License-Identifier: Apache-2.0 */
/* Between the files that open a folder (meta.c, board.c, snapload.c, store.c) and fsck.c, which
 * reads it without opening it for work. */
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

/* ---- meta.c --------------------------------------------------------------------------------- */
enum { META_SIZE = 80 };
void meta_encode(const struct meta *meta, uint8_t bytes[META_SIZE]);
/* MR_NOT_FOUND when there is none. */
MR_MUST_USE enum mr_err meta_read(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                                  struct mr_detail *detail);
/* From the label of a segment; MR_NOT_FOUND when none has one. */
MR_MUST_USE enum mr_err meta_from_log(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                                      struct mr_detail *detail);
MR_MUST_USE enum mr_err meta_write(struct mr_fs *fs, const char *dir, const struct meta *meta);
/* Of a new store, with the first segment of its log. */
MR_MUST_USE enum mr_err meta_create(struct mr_engine *engine, struct meta *meta);

/* ---- board.c -------------------------------------------------------------------------------- */
MR_MUST_USE enum mr_err board_open(struct mr_engine *engine, struct mr_detail *detail);
/* Whether it can be opened, which changes nothing: MR_VERSION, or MR_OK. */
MR_MUST_USE enum mr_err board_check(struct mr_fs *fs, const char *dir, struct mr_detail *detail);
/* What it said is dealt with: no run is in any slot. */
MR_MUST_USE enum mr_err board_begin(struct mr_engine *engine);

/* ---- snapload.c ----------------------------------------------------------------------------- */
/* The newest snapshot, if there is one, into engine->state. */
MR_MUST_USE enum mr_err snapshot_read(struct recovery *recovery);

/* ---- store.c -------------------------------------------------------------------------------- */
/* Excludes every other process; detail says who has it, or what is missing. */
MR_MUST_USE enum mr_err store_lock(struct mr_fs *fs, const char *dir, struct mr_file **ret_file,
                                   struct mr_detail *detail);
/* label is filled, and must live as long as the options. */
struct mr_log_options store_log_options(struct mr_engine *engine, const struct meta *meta,
                                        uint8_t label[META_SIZE]);
/* A finding that is no record of the log: told and counted. */
void recovery_note(struct recovery *recovery, const char *text);
/* An empty engine->state, ready for records. */
MR_MUST_USE enum mr_err recovery_begin_state(struct recovery *recovery);
/* Snapshot and log into engine->state; engine has fs, dir, clock and options. */
MR_MUST_USE enum mr_err recover_state(struct recovery *recovery);

#endif
