/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit log: records in preallocated, zero-filled segments, one writer, group commit.
 *
 * Life of a record: mr_log_room says whether it may come; mr_log_begin gives room for its body and
 * mr_log_append keeps it in memory; mr_log_write hands everything to the operating system;
 * mr_log_sync starts one fdatasync beside the owner's thread when there is something to sync and
 * none is under way, so a lone writer waits for one sync and many share one. When it ends,
 * mr_log_durable has moved on.
 *
 * A failed write or sync is final: the log answers MR_IO from then on and what is not yet durable
 * never will be. Nothing is ever retried into silence.
 *
 * Space: the next segment is made ready beside the owner's thread while the current one fills, from
 * one that is no longer needed where there is any; and a second one while a reserve is kept. New
 * work then goes on into the next one only when there is another behind it; when that cannot be
 * made because the disk is full, new work is refused and more than a segment serves the rest.
 *
 * Thread: the owner, for everything here.
 */
#ifndef MR_LOG_LOG_H
#define MR_LOG_LOG_H

#include "base/buf.h"
#include "base/exec.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/meter.h"
#include "wire/record.h"

struct mr_log;

/* Where a record stands. Offsets are below 4 GiB. */
struct mr_log_pos {
    uint32_t segment, offset;
};

enum {
    MR_SEGMENT_HEADER = 512,
    MR_SEGMENT_LABEL = 128,
    MR_SEGMENT_VERSION = 1,
    MR_SEGMENT_BYTES_MIN = 16 * 1024,
    MR_SEGMENT_BYTES_DEFAULT = 64 * 1024 * 1024,
};

struct mr_log_options {
    struct mr_fs *fs;
    const char *dir;       /* copied */
    struct mr_uuid store;  /* written into every segment and checked */
    uint32_t salt;         /* starts every checksum */
    struct mr_slice label; /* kept in every segment; at most MR_SEGMENT_LABEL bytes */
    size_t segment_bytes;
    struct mr_clock *clock; /* times the syncs */
    struct mr_exec *sync_exec;
    struct mr_exec *file_exec;
    /* After every chore of the log that ended: something may have become durable, room, or failed. */
    void (*changed)(void *arg);
    void *arg;
};

/* Makes the first segment of a new log, durable; the folder has none. */
MR_MUST_USE enum mr_err mr_log_create(const struct mr_log_options *options);
/* Whether a folder has the first segment of a log and nothing was ever written to it. */
MR_MUST_USE enum mr_err mr_log_unused(struct mr_fs *fs, const char *dir, bool *ret_unused);

MR_MUST_USE enum mr_err mr_log_new(const struct mr_log_options *options, struct mr_log **ret_log);
/* Closes files; no chore may be under way. NULL is fine. */
void mr_log_free(struct mr_log *log);

/* The label of some segment in a folder, for a store whose own description is lost. MR_NOT_FOUND.
 */
MR_MUST_USE enum mr_err mr_log_label(struct mr_fs *fs, const char *dir,
                                     uint8_t ret_label[MR_SEGMENT_LABEL]);

/* ---- recovery ------------------------------------------------------------------------------- */

/* Called for every record behind the snapshot, in order. An error ends the recovery with it. */
typedef enum mr_err mr_log_visit(const struct mr_record *record, struct mr_log_pos pos, void *arg);

struct mr_log_recovery {
    uint32_t after_term; /* term of the record at after_seq */
    uint64_t after_seq;  /* records up to this one are known already */
    mr_log_visit *visit;
    void *arg;
    enum mr_fsck_mode mode; /* MR_FSCK_REPAIR: set damage aside and go on */
    bool read_only;         /* change nothing: no repair, no sync */
    mr_fsck_line *line;     /* told of each finding; may be NULL */
    void *line_arg;
    /* Answers. */
    uint64_t records, damaged, bytes_aside, torn_bytes;
    uint64_t gaps; /* so far: places where an earlier repair found records missing */
};

/*
 * Reads the segments, finds the end of the log and makes everything found durable. A torn tail is
 * cut; damage before the end, sectors that cannot be read and a folder without segments answer
 * MR_DAMAGED with file and offset in detail. With read_only or repair also the segments are read
 * that the snapshot covers, without visiting their records.
 */
MR_MUST_USE enum mr_err mr_log_recover(struct mr_log *log, struct mr_log_recovery *recovery,
                                       struct mr_detail *detail);

/* ---- writing -------------------------------------------------------------------------------- */

enum mr_log_use {
    MR_LOG_NEW_WORK, /* keeps the reserve free */
    MR_LOG_ONGOING,  /* finishing and the like: may use the reserve */
};

/* Whether a record with this much body may be appended now: MR_OK; MR_BUSY (the next segment is
 * being made: try again after changed); MR_DISK_FULL; MR_IO (failed); MR_TOO_BIG (never fits a
 * segment). */
MR_MUST_USE enum mr_err mr_log_room(struct mr_log *log, size_t body_len, enum mr_log_use use);
/* Bytes that records can have without any further segment. */
uint64_t mr_log_left(const struct mr_log *log);
/* Room for the body, valid until append. After mr_log_room said yes. NULL when out of memory. */
uint8_t *mr_log_begin(struct mr_log *log, size_t body_len);
/* Ends what begin gave room for. wait: somebody waits for it. Returns its sequence number. */
enum mr_log_wait { MR_LOG_LAZY, MR_LOG_DURABLE };
uint64_t mr_log_append(struct mr_log *log, enum mr_record_type type, enum mr_log_wait wait,
                       struct mr_log_pos *ret_pos);
/* Makes the newest record longer, if it is of this type and not written yet: room for so many more
 * bytes behind its body. NULL: begin another one. Its number, and who waits for it, stay. */
uint8_t *mr_log_extend(struct mr_log *log, enum mr_record_type type, size_t more);
/* The checked record at a place that is still in memory or on disk; pointers stay valid until the
 * next call of the log. MR_DAMAGED when it does not check. */
MR_MUST_USE enum mr_err mr_log_read(struct mr_log *log, struct mr_log_pos pos, size_t size,
                                    struct mr_record *ret_record);

MR_MUST_USE enum mr_err mr_log_write(struct mr_log *log);
void mr_log_sync(struct mr_log *log);
/* Asks for a sync of everything appended so far. */
void mr_log_demand(struct mr_log *log);
/* The newest record that somebody waits for. */
uint64_t mr_log_wanted(const struct mr_log *log);
/* Writes and syncs while the caller waits; for the start and the end, when no chore is under way. */
MR_MUST_USE enum mr_err mr_log_sync_now(struct mr_log *log);
/* While held, no chore is started: for the start, which does everything itself. */
void mr_log_hold_chores(struct mr_log *log, bool held);
/* Makes the next segment while the caller waits, when the current one is half full. */
void mr_log_make_room(struct mr_log *log);

void mr_log_set_term(struct mr_log *log, uint32_t term);
uint64_t mr_log_last_seq(const struct mr_log *log);
uint64_t mr_log_durable(const struct mr_log *log);
uint32_t mr_log_last_term(const struct mr_log *log); /* found by the recovery */
uint32_t mr_log_term(const struct mr_log *log);      /* of what is written now */
enum mr_err mr_log_failure(const struct mr_log *log);
/* MR_OK, or why no further segment can be made: MR_DISK_FULL, MR_UNAVAILABLE. */
enum mr_err mr_log_full(const struct mr_log *log);
/* No chore is under way. */
bool mr_log_idle(const struct mr_log *log);
/* Whether a reserve is kept: it should be where space on disk may come to an end. */
void mr_log_keep_reserve(struct mr_log *log, bool kept);
/* Makes another segment ready, where fewer than the usual number are. */
void mr_log_prepare(struct mr_log *log);
/* A segment could not be made, or an old one not be taken away: call mr_log_retry_space in a while. */
bool mr_log_wants_retry(const struct mr_log *log);
/* Tries that again. The disk counts as full until the segment is made. */
void mr_log_retry_space(struct mr_log *log);

/* ---- space ---------------------------------------------------------------------------------- */

/* A task holds (positive) or no longer holds (negative) so many bytes of a segment. */
void mr_log_hold(struct mr_log *log, uint32_t segment, int64_t bytes);
/* What is let go there now, no record says (a task that expired). So the segment stays until there is
 * a snapshot that was begun later: before that, a start would look for the task in it. Unless the
 * disk is full. */
void mr_log_unsaid(struct mr_log *log, uint32_t segment);
/* How many there were of that. A snapshot that is begun now says them all, */
uint64_t mr_log_unsaids(const struct mr_log *log);
/* and here it is. */
void mr_log_said(struct mr_log *log, uint64_t unsaids);

struct mr_segment_info {
    uint32_t number;
    uint64_t bytes; /* of the file */
    uint64_t end;   /* bytes in use */
    uint64_t live;  /* held by tasks */
    uint64_t left;  /* what was live when it was last walked to its end */
    uint64_t last_seq;
    bool unsaid;   /* something was let go that only the next snapshot says */
    bool removing; /* on its way out: nobody needs it */
    bool sealed;   /* no longer written */
};

size_t mr_log_segments(const struct mr_log *log);
/* Made ready ahead. */
size_t mr_log_ready(const struct mr_log *log);
void mr_log_segment_at(const struct mr_log *log, size_t i, struct mr_segment_info *ret_info);
size_t mr_log_segment_bytes(const struct mr_log *log);
uint64_t mr_log_disk_bytes(const struct mr_log *log);
/* Whether it is there to be read; not when it is on its way out. */
bool mr_log_has_segment(const struct mr_log *log, uint32_t number);

/* Removes or recycles sealed segments that nothing lives in and whose records are all covered by
 * snap_seq. One for which that failed is passed over until mr_log_retry_space. */
void mr_log_trim(struct mr_log *log, uint64_t snap_seq);
/* While pinned nothing is removed. Pins nest. */
void mr_log_pin(struct mr_log *log);
void mr_log_unpin(struct mr_log *log);

/* Walks a segment in steps: from *offset (0 at the start) visits records until about max_bytes are
 * read; *offset is 0 again at its end. Damage is passed over. */
MR_MUST_USE enum mr_err mr_log_walk(struct mr_log *log, uint32_t segment, uint32_t *offset,
                                    size_t max_bytes, mr_log_visit *visit, void *arg);

struct mr_log_figures {
    uint64_t syncs, sync_p50_us, sync_p99_us;
    struct mr_meter sync_us; /* how long each took, by mr_meter_us */
    struct mr_meter group;   /* records that each made durable, by mr_meter_many */
};
void mr_log_figures(const struct mr_log *log, struct mr_log_figures *ret_figures);

void mr_segment_name(char name[32], uint32_t number);

#endif
