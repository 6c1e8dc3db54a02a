/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts an input and keeps the parts, for tests of split. */
#ifndef MR_TESTS_JOB_CUT_H
#define MR_TESTS_JOB_CUT_H

#include <stdlib.h>

#include "base/buf.h"
#include "job/split.h"

struct cut {
    struct mr_buf bytes; /* of all parts, one behind the other */
    struct mr_buf ends;  /* size_t of each: where it ends in them */
    size_t n;
    enum mr_err err;
    struct mr_detail detail;
    size_t stop_at; /* the callback refuses this part with MR_BUSY; 0: none */
};

static inline enum mr_err cut_part(struct mr_slice part, uint64_t index, void *arg)
{
    struct cut *cut = arg;
    mr_assert(index == cut->n && part.len > 0);
    if (cut->stop_at > 0 && index == cut->stop_at)
        return MR_BUSY;
    mr_assert(mr_buf_append_slice(&cut->bytes, part) == MR_OK);
    mr_assert(mr_buf_append(&cut->ends, &cut->bytes.len, sizeof cut->bytes.len) == MR_OK);
    cut->n++;
    return MR_OK;
}

static inline struct mr_slice cut_at(const struct cut *cut, size_t i)
{
    size_t from = 0, end;
    if (i > 0)
        memcpy(&from, cut->ends.data + (i - 1) * sizeof from, sizeof from);
    memcpy(&end, cut->ends.data + i * sizeof end, sizeof end);
    return mr_slice_make(cut->bytes.data + from, end - from);
}

static inline void cut_done(struct cut *cut)
{
    mr_buf_done(&cut->bytes);
    mr_buf_done(&cut->ends);
}

/* Whether the parts, one behind the other, are the input again. */
static inline bool cut_joins(enum mr_split_kind kind)
{
    return kind == MR_SPLIT_LINES || kind == MR_SPLIT_PARAGRAPHS || kind == MR_SPLIT_CHARS ||
           kind == MR_SPLIT_BYTES;
}

/* Where the next write ends, for an input of which so much is left. */
typedef size_t cut_step(size_t left, void *arg);

static inline void cut_input(struct cut *cut, const struct mr_split_options *given,
                             struct mr_slice input, cut_step *step, void *step_arg)
{
    struct mr_split_options options = *given;
    struct mr_split *split;
    options.part = cut_part;
    options.arg = cut;
    mr_assert(mr_split_new(&options, &split) == MR_OK);
    const uint8_t *p = input.data;
    while (input.len > 0 && cut->err == MR_OK) {
        size_t len = step != NULL ? step(input.len, step_arg) : input.len;
        /* A copy of its own, so that a sanitizer sees who reads beyond it. */
        uint8_t *copy = malloc(len > 0 ? len : 1);
        mr_assert(copy != NULL && len <= input.len);
        memcpy(copy, p, len);
        cut->err = mr_split_write(split, mr_slice_make(copy, len), &cut->detail);
        free(copy);
        p += len;
        input.len -= len;
    }
    if (cut->err == MR_OK)
        cut->err = mr_split_end(split, &cut->detail);
    mr_split_free(split);
}

#endif
