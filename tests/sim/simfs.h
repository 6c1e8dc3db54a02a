/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system in memory that forgets what a real disk may forget.
 *
 * Each file has the content the process sees, the content that is surely on disk, and between the
 * two the writes that were not synced, in order. Each folder has its entries in the same two
 * versions: a synced file whose folder was not synced may be gone after a power cut, and a rename
 * may show the old name. Folders themselves are durable as soon as they are made. simfs_crash turns
 * all of this into the image that the next process finds.
 *
 * The boot id changes with every crash that is more than the death of the process.
 *
 * Deterministic: chance comes only from the seed and from the rand given to simfs_crash. Thread:
 * one.
 */
#ifndef MR_TESTS_SIMFS_H
#define MR_TESTS_SIMFS_H

#include "base/fs.h"
#include "base/rand.h"

struct simfs;

/* Kinds of calls. Those up to SIMFS_POINT_LAST change something: each is a crash point. */
enum simfs_op {
    SIMFS_WRITE,
    SIMFS_SYNC,
    SIMFS_DIR_SYNC,
    SIMFS_RENAME,
    SIMFS_REMOVE,
    SIMFS_CREATE,
    SIMFS_TRUNCATE,
    SIMFS_POINT_LAST = SIMFS_TRUNCATE,
    SIMFS_OPEN,
    SIMFS_READ,
    SIMFS_LOCK,
    SIMFS_MAP,
    SIMFS_OP_COUNT
};

/* What becomes of unsynced writes and folder entries at a crash. */
enum simfs_policy {
    SIMFS_KEEP_ALL,  /* only the process died: everything stays, and stays unsynced */
    SIMFS_DROP_ALL,  /* nothing unsynced arrived */
    SIMFS_KEEP_SOME, /* each write arrived wholly or not at all */
    SIMFS_TEAR,      /* also in part: cut at a sector, or any subset of sectors */
    SIMFS_SCRAMBLE,  /* also as garbage within the bytes of that write */
    SIMFS_POLICY_COUNT
};

enum { SIMFS_SECTOR = 512 };

const char *simfs_op_name(enum simfs_op op);
const char *simfs_policy_name(enum simfs_policy policy);

struct simfs *simfs_new(uint64_t seed);
void simfs_free(struct simfs *fs);
struct mr_fs *simfs_fs(struct simfs *fs);
/* A deep copy without the handles, locks, faults and hook; unsynced writes stay unsynced. */
struct simfs *simfs_clone(const struct simfs *fs);

/* Number of calls of one kind, and of crash points passed. */
uint64_t simfs_count(const struct simfs *fs, enum simfs_op op);
uint64_t simfs_points(const struct simfs *fs);
/* The process dies instead of passing the n-th crash point from now (1 is the next); 0: never. */
void simfs_stop_at(struct simfs *fs, uint64_t n);
/* The process dies now: every call fails with MR_IO until simfs_crash. */
void simfs_stop(struct simfs *fs);
bool simfs_crashed(const struct simfs *fs);
/* Called before each crash point; may clone fs but not use it. NULL for none. */
typedef void simfs_hook(struct simfs *fs, enum simfs_op op, void *arg);
void simfs_set_hook(struct simfs *fs, simfs_hook *hook, void *arg);

/* Makes the image the next process finds. Handles of the old process are dead: they can only be
 * closed. */
void simfs_crash(struct simfs *fs, struct mr_rand *rand, enum simfs_policy policy);

#define SIMFS_FOR_EVER UINT64_MAX
/* Lets `after` calls of a kind pass, then fails `times` calls with err. A failed sync leaves its
 * writes in limbo: reported once, kept or lost by chance at the next crash, whatever is synced
 * later. */
void simfs_fail(struct simfs *fs, enum simfs_op op, uint64_t after, uint64_t times,
                enum mr_err err);
void simfs_heal(struct simfs *fs); /* forgets all faults and the capacity */
/* Bytes that all files together may have; growing beyond is MR_DISK_FULL. */
void simfs_set_capacity(struct simfs *fs, uint64_t bytes);
uint64_t simfs_used(const struct simfs *fs);

/* Damage, behind the back of everybody: in what the process sees and in what is durable. */
size_t simfs_file_count(const struct simfs *fs);
const char *simfs_file_path(const struct simfs *fs, size_t i);
uint64_t simfs_file_size(const struct simfs *fs, size_t i);
/* Valid until the next call that changes the file system. */
const uint8_t *simfs_file_data(const struct simfs *fs, size_t i);
void simfs_flip_bit(struct simfs *fs, size_t i, uint64_t bit);
void simfs_overwrite(struct simfs *fs, size_t i, uint64_t offset, const void *data, size_t len);
void simfs_cut(struct simfs *fs, size_t i, uint64_t size);
void simfs_lose(struct simfs *fs, size_t i);
/* Reads that touch these bytes fail with MR_IO, until a write covers all of them. One range a file.
 */
void simfs_unreadable(struct simfs *fs, size_t i, uint64_t offset, uint64_t len);

#endif
