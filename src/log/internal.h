/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the log and what they share; nobody else includes it.
 *
 * log.c      appending, group commit, the log's life
 * segment.c  segment files: made ahead, recycled, removed
 * read.c     records read back, through a small cache
 * recover.c  the end of the log at a start (scan.c reads it), or what is damaged; repair.c sets that aside
 * folder.c   what segments say before their log is opened
 */
#ifndef MR_LOG_INTERNAL_H
#define MR_LOG_INTERNAL_H

#include "base/hist.h"
#include "log/log.h"

enum {
    BLOCK_BYTES = 64 * 1024,     /* unit of the read cache */
    BLOCKS = 64,                 /* in the cache */
    SECTOR_BYTES = 512,          /* what a disk may fail to read alone */
    FREE_STEP = 4 * 1024 * 1024, /* given back at once of a segment that is no longer needed */
    FILL_STEP = 512 * 1024,      /* zeroes written between two syncs of a segment in the making */
    EXTEND_MAX = 4096,  /* body of a record that was extended: damage takes no more at once */
    FILES_PER_SYNC = 4, /* segments one sync can cover */
    FIRST_SEGMENT = 1,  /* number of a new log's */
};

enum {
    READY_MAX = 2,       /* segments made ready ahead: one to go on in, and one as a reserve */
    RESERVE_DIVISOR = 4, /* share of a segment that new work leaves free as long as they are not */
};

/* Records that a repair found missing before a segment: from the first of them up to, not
 * including, the one the log goes on with. Both 0: none. */
struct gap {
    uint64_t from, to;
};

struct segment {
    uint32_t number;
    struct mr_file *file;
    uint64_t bytes;     /* size of the file */
    uint64_t end;       /* first byte not in use; for sealed segments found at start: bytes */
    uint64_t first_seq; /* 0: no record yet */
    struct gap gap;     /* before its first record */
    uint64_t last_seq;  /* of a sealed segment found at a start: or more, see find_start */
    uint64_t told_upto; /* at a start: sectors before this that cannot be read were told of */
    uint64_t live;      /* bytes held by tasks */
    uint64_t left;      /* of them, those that the last walk found no way to carry off */
    uint64_t dead_seq;  /* newest record when the last of them was let go */
    uint64_t unsaid;    /* the last that was let go without a record: see mr_log_unsaid */
    bool sealed;
    bool removing; /* a chore is taking it away */
    bool stuck;    /* one could not; it is tried again with mr_log_retry_space */
};

/* One block of the read cache. */
struct block {
    uint32_t segment; /* 0: empty */
    uint32_t index;
    size_t valid; /* bytes read; the end of the newest block grows later */
    uint8_t *data;
};

/*
 * One sync. Two may be under way: one running and one behind it, which begins without waiting for
 * the owner. Until it begins, what is written meanwhile is added to it through want.
 */
struct sync_chore {
    struct mr_chore chore;
    struct mr_log *log;
    bool busy; /* with the executor */
    struct mr_file *files[FILES_PER_SYNC + 1];
    size_t files_n;
    uint32_t segment;      /* the last of the files */
    uint64_t promised;     /* what want was when it was submitted: it covers at least this */
    _Atomic uint64_t want; /* newest record written to those files */
    uint64_t upto;         /* want when it began: durable when it succeeds */
    int64_t took_ns;
    enum mr_err err;
};

/* Makes the next segment (from nothing or from an old one), or removes one; a step at a time. */
struct file_chore {
    struct mr_chore chore;
    struct mr_log *log;
    enum { FILE_IDLE, FILE_CREATE, FILE_RECYCLE, FILE_REMOVE } kind;
    uint32_t number;      /* of the new segment */
    uint32_t old_number;  /* recycled or removed */
    struct mr_file *file; /* under construction */
    uint64_t filled;      /* bytes zeroed so far */
    uint64_t left;        /* bytes not yet given back */
    bool nameless;        /* the old one has lost its name: a later start does not find it */
    bool alone;           /* the log is not in use yet: no step needs to be small */
    bool complete;
    enum mr_err err;
};

struct mr_log {
    struct mr_fs *fs;
    char dir[MR_PATH_MAX];
    struct mr_uuid store;
    uint32_t salt, term, last_term;
    uint8_t label[MR_SEGMENT_LABEL];
    size_t segment_bytes;
    struct mr_clock *clock;
    struct mr_exec *sync_exec, *file_exec;
    void (*changed)(void *arg);
    void *arg;

    struct segment *segments; /* by number; the last one is written to */
    size_t segments_n, segments_cap;
    struct segment ready[READY_MAX]; /* the next ones, empty, in the order of their numbers */
    size_t ready_n;
    size_t ready_wanted; /* READY_MAX while a reserve is kept, else one */

    /* Sealed records not yet handed to the operating system stand in buf, from file offset
     * buf_offset. */
    struct mr_buf buf;
    uint64_t buf_offset;
    size_t open_len; /* body length between begin and append */
    /* The newest record is sealed when the next one begins or it is written: until then it can be
     * extended. */
    struct mr_record tail;
    size_t tail_at; /* in buf */
    bool tail_open;
    uint64_t last_seq, written_seq, durable_seq;
    uint64_t wanted_seq;                      /* newest record somebody waits for */
    struct mr_file *unsynced[FILES_PER_SYNC]; /* sealed segments written since the last sync */
    size_t unsynced_n;

    struct sync_chore syncs[2];
    struct sync_chore *newest; /* of the two, the one submitted last */
    struct file_chore filing;
    enum mr_err full; /* why the next segment could not be made; MR_OK: it could */
    bool stuck;       /* some segment is */
    enum mr_err failure;
    unsigned pins;
    bool chores_held; /* the start makes its segments itself */
    uint64_t trim_seq;
    uint64_t unsaids, said; /* see mr_log_unsaid */

    struct block blocks[BLOCKS];
    struct mr_buf scratch; /* a record that spans blocks */

    uint64_t syncs_n;
    struct mr_hist sync_times;
    struct mr_meter sync_us, group; /* see struct mr_log_figures */
};

/* folder.c */
struct numbers {
    uint32_t *numbers;
    size_t n, cap;
    enum mr_err err;
};
/* All segments of a folder, by number; the caller frees numbers. */
MR_MUST_USE enum mr_err segment_numbers(struct mr_fs *fs, const char *dir,
                                        struct numbers *ret_numbers);

/* segment.c */
MR_MUST_USE enum mr_err segment_path(const struct mr_log *log, const char *prefix, uint32_t number,
                                     char path[MR_PATH_MAX]);
/* MR_DAMAGED: it is open, but its header cannot be used. detail says why, without the folder. */
MR_MUST_USE enum mr_err segment_open(struct mr_log *log, uint32_t number, bool read_only,
                                     struct segment *ret_segment, struct mr_detail *detail);
/* The label in a good header; NULL: it is none. */
const uint8_t *segment_label(const uint8_t header[MR_SEGMENT_HEADER]);
MR_MUST_USE enum mr_err segment_write_header(struct mr_log *log, struct mr_file *file,
                                             uint32_t number, struct gap gap);
MR_MUST_USE enum mr_err segment_add(struct mr_log *log, const struct segment *segment);
struct segment *segment_find(const struct mr_log *log, uint32_t number);
/* Something was let go there that neither a record nor a snapshot says. */
bool segment_unsaid(const struct mr_log *log, const struct segment *segment);
struct segment *segment_current(const struct mr_log *log);
/* Starts making the next segment when it is time to. */
void segment_prepare(struct mr_log *log);

/* read.c */
void cache_forget(struct mr_log *log, uint32_t segment);

#endif
