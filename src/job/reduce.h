/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one result of the results of a job's parts, which come in the order of their indexes, and hands it out in
 * chunks: nothing is held but one of them.
 *
 *   concat       the results, one behind the other.
 *   lines        the same; one that does not end with a newline gets one. An empty result is an empty line.
 *   json         an array of them: what is JSON (RFC 8259) as it is, without the white space around it; other text as a
 *                string; what is not UTF-8 as {"base64":"..."}; null for a part that failed.
 *   sum          the sum of numbers, a line. Of whole numbers it is exact, and must fit 64 bits; with a
 *                fraction or an exponent anywhere it is that of doubles.
 *   none         no result.
 *   command:CMD  what a command prints; it is run by whoever reduces, not here.
 *
 * A part that failed is left out everywhere but in json. Pure. Thread: any, one at a time for a reducer.
 */
#ifndef MR_JOB_REDUCE_H
#define MR_JOB_REDUCE_H

#include "base/buf.h"

enum mr_reduce_kind {
    MR_REDUCE_CONCAT,
    MR_REDUCE_LINES,
    MR_REDUCE_JSON,
    MR_REDUCE_SUM,
    MR_REDUCE_NONE,
    MR_REDUCE_COMMAND,
    MR_REDUCE_KIND_COUNT
};

struct mr_reduce_spec {
    enum mr_reduce_kind kind;
    struct mr_slice command; /* MR_REDUCE_COMMAND */
};

/* Reads one; empty is "concat". MR_INVALID, MR_TOO_BIG: detail says why in one line. The command points into text. */
MR_MUST_USE enum mr_err mr_reduce_parse(struct mr_slice text, struct mr_reduce_spec *ret_spec,
                                        struct mr_detail *detail);
/* Appends its one text. */
MR_MUST_USE enum mr_err mr_reduce_put(const struct mr_reduce_spec *spec, struct mr_buf *buf);

enum { MR_REDUCE_CHUNK_MAX = 256 * 1024 };

/* The next bytes of the result, chunk_max of them, but for the last; they live during the call and are never
 * none. What is not MR_OK ends the reduce. */
typedef enum mr_err mr_reduce_chunk(struct mr_slice chunk, void *arg);

struct mr_reduce_options {
    enum mr_reduce_kind kind;
    size_t chunk_max; /* 0: MR_REDUCE_CHUNK_MAX */
    mr_reduce_chunk *chunk;
    void *arg;
};

struct mr_reduce;
/* MR_UNSUPPORTED: a command. */
MR_MUST_USE enum mr_err mr_reduce_new(const struct mr_reduce_options *options,
                                      struct mr_reduce **ret_reduce);
/* The result of the next part, or that it has none: it failed. Indexes count up from 0 over both: MR_DAMAGED. MR_INVALID:
 * this is nothing that can be summed up; or what the callback answered. Detail (may be NULL) says why. */
MR_MUST_USE enum mr_err mr_reduce_part(struct mr_reduce *reduce, uint64_t index,
                                       struct mr_slice result, struct mr_detail *detail);
MR_MUST_USE enum mr_err mr_reduce_gap(struct mr_reduce *reduce, uint64_t index,
                                      struct mr_detail *detail);
/* Those were all: the last chunk comes. MR_INVALID: the sum does not fit. ret_bytes (may be NULL): of the result. */
MR_MUST_USE enum mr_err mr_reduce_end(struct mr_reduce *reduce, uint64_t *ret_bytes,
                                      struct mr_detail *detail);
void mr_reduce_free(struct mr_reduce *reduce); /* NULL is fine */

#endif
