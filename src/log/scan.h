/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that read the log at a start: recover.c finds its end, scan.c reads, repair.c
 * reports damage and sets it aside. Nobody else includes it.
 */
#ifndef MR_LOG_SCAN_H
#define MR_LOG_SCAN_H

#include "log/internal.h"

enum {
    WINDOW = 1024 * 1024, /* bytes read at once */
    PAGE = 4096,          /* what the kernel reads or fails to read as one */
};

struct place {
    size_t i; /* index of a segment */
    uint64_t at;
};

struct scan {
    struct mr_log *log;
    struct mr_log_recovery *r;
    struct mr_detail *detail;
    struct mr_buf window; /* bytes of segment in.i from in.at on; in.i is SIZE_MAX: none */
    struct place in;
    uint64_t expected; /* next sequence number */
    uint32_t term;     /* below this a later record is the remains of a torn tail */
    size_t stop_i;     /* later records are looked for in segments before this one */
    struct place end;  /* where the log ends so far */
    bool peeks;        /* what cannot be read now is told when it is needed */
};

/* ---- scan.c --------------------------------------------------------------------------------- */

/* need bytes at a place; NULL in ret when the file is shorter. What the disk does not give is
 * damage: told, and read as zeroes where that is no reason to stop. */
MR_MUST_USE enum mr_err scan_window(struct scan *scan, struct place place, size_t need,
                                    const uint8_t **ret_bytes);
/* A whole valid record of this segment, or MR_NOT_FOUND. */
MR_MUST_USE enum mr_err scan_record(struct scan *scan, struct place place,
                                    struct mr_record *ret_record);

/* The number of the record behind this one. */
uint64_t seq_behind(const struct mr_record *record);

enum later_kind {
    LATER_ANY,
    LATER_KNEW, /* only a record that knew the expected one to be durable */
};
struct later {
    struct place place;
    struct mr_record record;
};
/* The first valid record at or behind a place with a higher number than expected, or MR_NOT_FOUND.
 */
MR_MUST_USE enum mr_err scan_later(struct scan *scan, struct place from, enum later_kind kind,
                                   struct later *ret_later);

/* ---- repair.c ------------------------------------------------------------------------------- */

/* A page of which some sectors cannot be read; bytes has zeroes for them. */
struct lost_page {
    struct place place; /* its start */
    uint8_t bytes[PAGE];
    size_t len;         /* less than PAGE at the end of the file */
    uint64_t lost_from; /* first of them */
    size_t lost;        /* bytes in all; 0: none */
};

/* All below: MR_OK when the caller may go on, because damage is being repaired or only looked for;
 * MR_DAMAGED with the place and the next step in detail when it must stop. */

/* One finding: name, offset and what is wrong, without the folder. */
MR_MUST_USE enum mr_err damage_found(struct scan *scan, const char *text);
MR_MUST_USE enum mr_err damage_page(struct scan *scan, const struct lost_page *page);
/* The expected record does not stand at a place where it must. */
MR_MUST_USE enum mr_err damage_record(struct scan *scan, struct place place);
/* The header of a segment cannot be used, or its file was cut short: why is told already. */
enum mend { MEND_SIZE, MEND_HEADER };
MR_MUST_USE enum mr_err mend_segment(struct scan *scan, size_t i, enum mend what);
/* Sets [from, to) of one segment aside, with a skip record in its place; the log goes on with
 * next_seq. Nothing when only looking. */
MR_MUST_USE enum mr_err cover_damage(struct scan *scan, struct place from, uint64_t to,
                                     uint64_t next_seq);
/* The number with which the log goes on at *next, behind damage from a place on. Where sectors have
 * changed places, *next may stand too close for a skip record before it, though numbers are
 * missing: then it is given up as well, and *next moves behind it. */
MR_MUST_USE enum mr_err leave_room(struct scan *scan, struct place from, struct later *next,
                                   uint64_t *ret_seq);
/* Moves the scan behind damage at *place: to the next record of this segment or of a later one. */
MR_MUST_USE enum mr_err pass_damage(struct scan *scan, struct place *place);
/* The log ends before the snapshot does: its tail was lost. What it said up to there is in the
 * snapshot, so the log goes on behind that. */
MR_MUST_USE enum mr_err bridge_to_snapshot(struct scan *scan);
/* No segment is left that had a record behind the snapshot: the log goes on in the empty one. */
MR_MUST_USE enum mr_err pass_lost_log(struct scan *scan);

#endif
