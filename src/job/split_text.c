/* SPDX-License-Identifier: Apache-2.0 */
/* Paragraphs and characters: whether a part has ended is seen some bytes behind its end. */
#include "job/split_internal.h"

/* ---- paragraphs ----------------------------------------------------------------------------- */

enum mr_err split_paragraphs_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    struct split_paragraphs *is = &split->is.paragraphs;
    struct split_rest rest = {p, p + len};
    while (p < rest.end) {
        if (is->in_line) {
            const uint8_t *newline = memchr(p, '\n', (size_t)(rest.end - p));
            if (newline == NULL)
                break;
            p = newline + 1;
            is->in_line = false;
        } else if (*p == '\n') {
            is->gap = is->text;
            is->spaces = 0;
            p++;
        } else if (*p == ' ' || *p == '\t' || *p == '\r') {
            p++;
            /* Whether they are of this part or of the next one, they are too many for it. */
            if (++is->spaces > split->part_max)
                return split_too_big(split);
        } else {
            if (is->gap)
                MR_TRY(split_cut_back(split, &rest, p, is->spaces));
            *is = (struct split_paragraphs){.in_line = true, .text = true};
        }
    }
    split->back = is->gap ? is->spaces : 0;
    return split_hold(split, rest.from, (size_t)(rest.end - rest.from));
}

enum mr_err split_paragraphs_end(struct mr_split *split)
{
    if (split->is.paragraphs.text)
        return split_cut(split, NULL, 0);
    if (split->held.len == 0)
        return split_empty(split);
    return split_fault(split, "paragraphs: nothing but blank lines: a job has one part at least");
}

/* ---- characters ----------------------------------------------------------------------------- */

/* One more character, which ended back bytes before at. */
static enum mr_err count_one(struct mr_split *split, struct split_rest *rest, const uint8_t *at,
                             size_t back)
{
    if (++split->is.chars.count < split->spec.n)
        return MR_OK;
    split->is.chars.count = 0;
    return split_cut_back(split, rest, at, back);
}

/* The bytes before at were none: each is one. */
static enum mr_err count_pending(struct mr_split *split, struct split_rest *rest, const uint8_t *at)
{
    struct split_chars *is = &split->is.chars;
    while (is->pending > 0) {
        is->pending--;
        MR_TRY(count_one(split, rest, at, is->pending));
    }
    return MR_OK;
}

/* Nearly all text is ASCII: eight characters at a time, but not up to the end of the part. */
static const uint8_t *skip_ascii(struct mr_split *split, const uint8_t *p, const uint8_t *end)
{
    const uint64_t high_bits = 0x8080808080808080ULL;
    struct split_chars *is = &split->is.chars;
    while (end - p >= 8 && split->spec.n - is->count > 8 && (mr_load64(p) & high_bits) == 0) {
        p += 8;
        is->count += 8;
    }
    return p;
}

enum mr_err split_chars_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    struct split_chars *is = &split->is.chars;
    struct split_rest rest = {p, p + len};
    while (p < rest.end) {
        if (is->pending == 0) {
            p = skip_ascii(split, p, rest.end);
            if (p == rest.end)
                break;
            (void)job_utf8_lead(&is->utf8, *p); /* what begins none is whole at once */
        } else if (!job_utf8_next(&is->utf8, *p)) {
            MR_TRY(count_pending(split, &rest, p));
            continue;
        }
        p++;
        is->pending++;
        if (is->utf8.left > 0)
            continue;
        is->pending = 0;
        MR_TRY(count_one(split, &rest, p, 0));
    }
    split->back = is->pending;
    return split_hold(split, rest.from, (size_t)(rest.end - rest.from));
}

enum mr_err split_chars_end(struct mr_split *split)
{
    static const uint8_t none[1];
    struct split_rest rest = {none, none};
    MR_TRY(count_pending(split, &rest, none));
    return split_held_end(split);
}
