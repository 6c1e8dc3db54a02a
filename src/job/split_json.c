/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of an array: json.h reads each of them, here is what stands around them. */
#include <inttypes.h>

#include "job/split_internal.h"

static enum mr_err fault(struct mr_split *split, uint64_t at, const char *what)
{
    return split_fault(split, "json: offset %" PRIu64 ": %s", at, what);
}

static enum mr_err begin_element(struct mr_split *split)
{
    split->is.json.place = JSON_WITHIN;
    job_json_begin(&split->is.json.value);
    return MR_OK;
}

/* A byte that is no white space, and not within an element; but it may be the first of one, then it is not eaten. */
static enum mr_err around(struct mr_split *split, uint8_t c, uint64_t at)
{
    enum split_json_place *place = &split->is.json.place;
    switch (*place) {
    case JSON_BEFORE:
        *place = JSON_FIRST;
        return c == '[' ? MR_OK : fault(split, at, "here an array must begin, with [");
    case JSON_FIRST:
        if (c != ']')
            return begin_element(split);
        *place = JSON_AFTER;
        return MR_OK;
    case JSON_NEXT:
        return begin_element(split);
    case JSON_BEHIND:
        *place = c == ',' ? JSON_NEXT : JSON_AFTER;
        return c == ',' || c == ']' ? MR_OK : fault(split, at, "here a comma or ] must be");
    default:
        return fault(split, at, "something is behind the array");
    }
}

static enum mr_err within(struct mr_split *split, const uint8_t **p, const uint8_t *end,
                          uint64_t at)
{
    struct split_json *is = &split->is.json;
    struct mr_slice bytes = mr_slice_make(*p, (size_t)(end - *p));
    const uint8_t *from = *p;
    size_t used;
    enum job_json_verdict verdict = job_json_read(&is->value, bytes, &used);
    *p += used;
    if (verdict == JOB_JSON_BAD)
        return fault(split, at + used, is->value.fault);
    if (verdict == JOB_JSON_MORE)
        return split_hold(split, from, used);
    is->place = JSON_BEHIND;
    return split_cut(split, from, used);
}

enum mr_err split_json_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    const uint8_t *start = p, *end = p + len;
    while (p < end) {
        uint64_t at = split->offset + (uint64_t)(p - start);
        if (split->is.json.place == JSON_WITHIN) {
            MR_TRY(within(split, &p, end, at));
            continue;
        }
        if (!job_json_is_space(*p))
            MR_TRY(around(split, *p, at));
        p += split->is.json.place != JSON_WITHIN;
    }
    return MR_OK;
}

enum mr_err split_json_end(struct mr_split *split)
{
    if (split->is.json.place == JSON_BEFORE)
        return split_empty(split);
    if (split->is.json.place != JSON_AFTER)
        return fault(split, split->offset, "it ends before the array does");
    if (split->index == 0)
        return split_fault(split, "json: the array is empty: a job has one part at least");
    return MR_OK;
}
