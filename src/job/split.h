/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts an input into the parts of a job, as it streams by: no more than one part is held. Where the input is cut
 * never depends on how it came in pieces.
 *
 *   lines[:N]    N lines (1). A line ends with its newline, which stays with it; the last one may have none.
 *   paragraphs   what stands between blank lines. A blank line has nothing but spaces, tabs and carriage returns. It
 *                stays with the paragraph before it, those at the beginning with the first one.
 *   chars:N      N characters of UTF-8 (code points). A byte that is no part of one counts as one.
 *   bytes:N      N bytes, wherever that is.
 *   json         the elements of one array, each as it is written there, without what is between them. RFC 8259,
 *                and nothing else; nested 512 deep at most.
 *   csv[:N]      N rows (1) behind the header, RFC 4180: a quoted field may have newlines in it. The header is the
 *                first line that is not empty, and stands again before the rows of each part. Empty lines are left out.
 *   command:CMD  what a command prints, cut as by `lines`. It is run by whoever has the input, not here.
 *
 * With lines, paragraphs, chars and bytes the parts, one behind the other, are the input again.
 *
 * Pure; nothing here knows of jobs. Thread: any, one at a time for a splitter.
 */
#ifndef MR_JOB_SPLIT_H
#define MR_JOB_SPLIT_H

#include "base/buf.h"

enum mr_split_kind {
    MR_SPLIT_LINES,
    MR_SPLIT_PARAGRAPHS,
    MR_SPLIT_CHARS,
    MR_SPLIT_BYTES,
    MR_SPLIT_JSON,
    MR_SPLIT_CSV,
    MR_SPLIT_COMMAND,
    MR_SPLIT_KIND_COUNT
};

#define MR_SPLIT_N_MAX 1000000000 /* of lines:N and the like */

struct mr_split_spec {
    enum mr_split_kind kind;
    uint64_t n;              /* 1 and more, where the kind has a number; else 0 */
    struct mr_slice command; /* MR_SPLIT_COMMAND */
};

/* Reads one; empty is "lines". MR_INVALID, MR_TOO_BIG: detail says why in one line. The command points into text. */
MR_MUST_USE enum mr_err mr_split_parse(struct mr_slice text, struct mr_split_spec *ret_spec,
                                       struct mr_detail *detail);
/* Appends its one text: what is 1 unless it is said is not said. */
MR_MUST_USE enum mr_err mr_split_put(const struct mr_split_spec *spec, struct mr_buf *buf);

/* The next part, counted from 0; it lives during the call and is never empty. What is not MR_OK ends the split. */
typedef enum mr_err mr_split_part(struct mr_slice part, uint64_t index, void *arg);

struct mr_split_options {
    struct mr_split_spec spec; /* nothing of it is kept but the kind and the number */
    size_t part_max;           /* bytes of a part; 0: MR_PAYLOAD_MAX */
    mr_split_part *part;
    void *arg;
};

struct mr_split;
MR_MUST_USE enum mr_err mr_split_new(const struct mr_split_options *options,
                                     struct mr_split **ret_split);
/*
 * The next bytes of the input, as many as there are. MR_TOO_BIG: a part is over the limit, detail says which;
 * MR_INVALID: the input is not what it should be, detail (may be NULL) says where; or what the callback answered. Then it stays so.
 */
MR_MUST_USE enum mr_err mr_split_write(struct mr_split *split, struct mr_slice bytes,
                                       struct mr_detail *detail);
/* That was all of it: the last part comes. MR_INVALID also when there is no part at all. */
MR_MUST_USE enum mr_err mr_split_end(struct mr_split *split, struct mr_detail *detail);
void mr_split_free(struct mr_split *split); /* NULL is fine */

#endif
