/* SPDX-License-Identifier: Apache-2.0 */
#include "job/split.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "job/spec.h"
#include "job/split_internal.h"

enum takes { NOTHING, NUMBER_OR_ONE, NUMBER, COMMAND };

static const struct kind {
    const char *name;
    enum takes takes;
    split_write *write;
    split_end *end;
} kinds[] = {
    [MR_SPLIT_LINES] = {"lines", NUMBER_OR_ONE, split_lines_write, split_held_end},
    [MR_SPLIT_PARAGRAPHS] = {"paragraphs", NOTHING, split_paragraphs_write, split_paragraphs_end},
    [MR_SPLIT_CHARS] = {"chars", NUMBER, split_chars_write, split_chars_end},
    [MR_SPLIT_BYTES] = {"bytes", NUMBER, split_bytes_write, split_held_end},
    [MR_SPLIT_JSON] = {"json", NOTHING, split_json_write, split_json_end},
    [MR_SPLIT_CSV] = {"csv", NUMBER_OR_ONE, split_csv_write, split_csv_end},
    [MR_SPLIT_COMMAND] = {"command", COMMAND, split_lines_write, split_held_end},
};
_Static_assert(sizeof kinds / sizeof *kinds == MR_SPLIT_KIND_COUNT, "a row for each kind");

/* ---- the text of it ------------------------------------------------------------------------- */

static enum mr_err unknown(struct mr_detail *detail)
{
    mr_detail_set(detail,
                  "split: not one of lines[:N], paragraphs, chars:N, bytes:N, json, csv[:N], "
                  "command:CMD");
    return MR_INVALID;
}

static bool read_number(struct mr_slice text, uint64_t *ret_n)
{
    const char *p = text.data;
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (p[i] < '0' || p[i] > '9' || n > MR_SPLIT_N_MAX)
            return false;
        n = n * 10 + (uint64_t)(p[i] - '0');
    }
    *ret_n = n;
    return n >= 1 && n <= MR_SPLIT_N_MAX;
}

static enum mr_err read_rest(const struct kind *kind, struct mr_slice rest,
                             struct mr_split_spec *spec, struct mr_detail *detail)
{
    switch (kind->takes) {
    case NOTHING:
        if (rest.data == NULL)
            return MR_OK;
        mr_detail_set(detail, "split: %s has nothing behind it", kind->name);
        return MR_INVALID;
    case COMMAND:
        spec->n = 1;
        spec->command = rest;
        if (rest.len > 0)
            return MR_OK;
        mr_detail_set(detail, "split: command: has a command behind it");
        return MR_INVALID;
    default:
        spec->n = 1;
        if ((rest.data == NULL && kind->takes == NUMBER_OR_ONE) || read_number(rest, &spec->n))
            return MR_OK;
        mr_detail_set(detail, "split: %s:N, with N within 1 and %d", kind->name, MR_SPLIT_N_MAX);
        return MR_INVALID;
    }
}

enum mr_err mr_split_parse(struct mr_slice text, struct mr_split_spec *ret_spec,
                           struct mr_detail *detail)
{
    struct job_spec words;
    if (text.len == 0)
        text = MR_SLICE_LIT("lines");
    MR_TRY(job_spec_read("split", text, &words, detail));
    for (unsigned i = 0; i < MR_SPLIT_KIND_COUNT; i++) {
        if (!mr_slice_equal(words.name, mr_slice_str(kinds[i].name)))
            continue;
        struct mr_split_spec spec = {.kind = (enum mr_split_kind)i};
        MR_TRY(read_rest(&kinds[i], words.rest, &spec, detail));
        *ret_spec = spec;
        return MR_OK;
    }
    return unknown(detail);
}

enum mr_err mr_split_put(const struct mr_split_spec *spec, struct mr_buf *buf)
{
    const struct kind *kind = &kinds[spec->kind];
    if (kind->takes == COMMAND) {
        MR_TRY(mr_buf_printf(buf, "%s:", kind->name));
        return mr_buf_append_slice(buf, spec->command);
    }
    if (kind->takes == NOTHING || (kind->takes == NUMBER_OR_ONE && spec->n == 1))
        return mr_buf_printf(buf, "%s", kind->name);
    return mr_buf_printf(buf, "%s:%" PRIu64, kind->name, spec->n);
}

/* ---- parts ---------------------------------------------------------------------------------- */

enum mr_err split_fault(struct mr_split *split, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(split->why.text, sizeof split->why.text, fmt, args);
    va_end(args);
    return MR_INVALID;
}

enum mr_err split_empty(struct mr_split *split)
{
    return split_fault(split, "the input is empty: a job has one part at least");
}

enum mr_err split_too_big(struct mr_split *split)
{
    mr_detail_set(&split->why, "part %" PRIu64 ": over the limit of a part, %zu bytes",
                  split->index, split->part_max);
    return MR_TOO_BIG;
}

static enum mr_err give(struct mr_split *split, const uint8_t *p, size_t len)
{
    mr_assert(len > 0);
    if (len > split->part_max)
        return split_too_big(split);
    MR_TRY(split->part(mr_slice_make(p, len), split->index, split->arg));
    split->index++;
    return MR_OK;
}

enum mr_err split_hold(struct mr_split *split, const uint8_t *p, size_t len)
{
    size_t all = split->held.len + len;
    if (all - split->back > split->part_max)
        return split_too_big(split);
    return len > 0 ? mr_buf_append(&split->held, p, len) : MR_OK;
}

enum mr_err split_cut(struct mr_split *split, const uint8_t *p, size_t len)
{
    split->back = 0;
    if (split->held.len == 0)
        return give(split, p, len);
    MR_TRY(split_hold(split, p, len));
    MR_TRY(give(split, split->held.data, split->held.len));
    mr_buf_clear(&split->held);
    return MR_OK;
}

enum mr_err split_cut_back(struct mr_split *split, struct split_rest *rest, const uint8_t *at,
                           size_t back)
{
    size_t fresh = (size_t)(at - rest->from);
    if (back <= fresh) {
        const uint8_t *from = rest->from;
        rest->from = at - back;
        return split_cut(split, from, fresh - back);
    }
    struct mr_buf *held = &split->held;
    size_t keep = back - fresh;
    mr_assert(keep < held->len);
    MR_TRY(give(split, held->data, held->len - keep));
    memmove(held->data, held->data + held->len - keep, keep);
    held->len = keep;
    return MR_OK;
}

/* ---- lines, bytes --------------------------------------------------------------------------- */

enum mr_err split_lines_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len, *from = p;
    while (p < end) {
        const uint8_t *newline = memchr(p, '\n', (size_t)(end - p));
        if (newline == NULL)
            break;
        p = newline + 1;
        if (++split->is.count < split->spec.n)
            continue;
        MR_TRY(split_cut(split, from, (size_t)(p - from)));
        split->is.count = 0;
        from = p;
    }
    return split_hold(split, from, (size_t)(end - from));
}

enum mr_err split_bytes_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    while (len >= split->spec.n - split->is.count) {
        size_t more = split->spec.n - split->is.count;
        MR_TRY(split_cut(split, p, more));
        split->is.count = 0;
        p += more;
        len -= more;
    }
    split->is.count += len;
    return split_hold(split, p, len);
}

enum mr_err split_held_end(struct mr_split *split)
{
    if (split->held.len > 0)
        return split_cut(split, NULL, 0);
    return split->index > 0 ? MR_OK : split_empty(split);
}

/* ---- all of it ------------------------------------------------------------------------------ */

enum mr_err mr_split_new(const struct mr_split_options *options, struct mr_split **ret_split)
{
    struct mr_split *split = calloc(1, sizeof *split);
    if (split == NULL)
        return MR_NOMEM;
    split->spec = options->spec;
    split->spec.command = (struct mr_slice){0};
    split->part_max = options->part_max != 0 ? options->part_max : MR_PAYLOAD_MAX;
    split->part = options->part;
    split->arg = options->arg;
    *ret_split = split;
    return MR_OK;
}

/* A failure stays. Where it is the callback's, that has said why. */
static enum mr_err done(struct mr_split *split, enum mr_err err, struct mr_detail *detail)
{
    split->failed = err;
    if (err != MR_OK && split->why.text[0] != '\0')
        mr_detail_set(detail, "%s", split->why.text);
    return err;
}

enum mr_err mr_split_write(struct mr_split *split, struct mr_slice bytes, struct mr_detail *detail)
{
    enum mr_err err = split->failed;
    if (err == MR_OK && bytes.len > 0)
        err = kinds[split->spec.kind].write(split, bytes.data, bytes.len);
    split->offset += bytes.len;
    return done(split, err, detail);
}

enum mr_err mr_split_end(struct mr_split *split, struct mr_detail *detail)
{
    enum mr_err err = split->failed;
    if (err == MR_OK)
        err = kinds[split->spec.kind].end(split);
    return done(split, err, detail);
}

void mr_split_free(struct mr_split *split)
{
    if (split == NULL)
        return;
    if (split->spec.kind == MR_SPLIT_CSV)
        mr_buf_done(&split->is.csv.header);
    mr_buf_done(&split->held);
    free(split);
}
