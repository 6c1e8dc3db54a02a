/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of RFC 4180. Only where they end matters, but what breaks the rules is refused: a quote out of place would move
 * the ends of all that follows. */
#include <inttypes.h>

#include "job/split_internal.h"

static enum mr_err fault(struct mr_split *split, uint64_t at, const char *what)
{
    return split_fault(split, "csv: offset %" PRIu64 ": %s", at, what);
}

/* One byte that ends no line, and is not within quotes. */
static enum mr_err step(struct mr_split *split, uint8_t c, uint64_t at)
{
    struct split_csv *is = &split->is.csv;
    bool quote = c == '"';
    if (is->place == CSV_RETURN)
        return fault(split, at, "here a newline must be");
    if (quote && is->place == CSV_PLAIN)
        return fault(split, at, "a quote in a field that does not begin with one");
    if (quote) {
        if (is->place == CSV_BEGIN)
            is->quote_at = at;
        is->place = CSV_QUOTED;
    } else if (c == ',') {
        is->place = CSV_BEGIN;
    } else if (is->place == CSV_QUOTE) {
        is->place = CSV_RETURN;
        return c == '\r' ? MR_OK : fault(split, at, "behind the quote a comma must be");
    } else {
        is->place = CSV_PLAIN;
    }
    return MR_OK;
}

/* Up to the end of the line at hand, or of what came. */
static enum mr_err read_line(struct mr_split *split, const uint8_t **ret_p, const uint8_t *end,
                             uint64_t at, bool *ret_over)
{
    struct split_csv *is = &split->is.csv;
    const uint8_t *start = *ret_p, *p = start;
    bool over = false;
    while (p < end && !over) {
        if (is->place == CSV_QUOTED) {
            const uint8_t *quote = memchr(p, '"', (size_t)(end - p));
            if (quote != NULL)
                is->place = CSV_QUOTE;
            p = quote != NULL ? quote + 1 : end;
            continue;
        }
        over = *p == '\n';
        if (!over) {
            is->filled |= *p != '\r';
            MR_TRY(step(split, *p, at + (uint64_t)(p - start)));
        }
        p++;
    }
    *ret_p = p;
    *ret_over = over;
    return MR_OK;
}

/* Bytes of the line at hand, behind the header if they are the first of their part. */
static enum mr_err add(struct mr_split *split, const uint8_t *p, size_t len)
{
    struct split_csv *is = &split->is.csv;
    if (is->has_header && split->held.len == 0)
        MR_TRY(split_hold(split, is->header.data, is->header.len));
    is->line_bytes += len;
    /* A line that is empty so far may be left out again. */
    split->back = is->filled || is->line_bytes > split->part_max ? 0 : is->line_bytes;
    return split_hold(split, p, len);
}

static enum mr_err line_over(struct mr_split *split)
{
    struct split_csv *is = &split->is.csv;
    uint64_t bytes = is->line_bytes;
    bool filled = is->filled;
    is->place = CSV_BEGIN;
    is->line_bytes = 0;
    is->filled = false;
    if (!filled) {
        split->held.len -= bytes;
        return MR_OK;
    }
    if (!is->has_header) {
        is->has_header = true;
        is->header = split->held;
        split->held = (struct mr_buf){0};
        return MR_OK;
    }
    if (++is->rows < split->spec.n)
        return MR_OK;
    is->rows = 0;
    return split_cut(split, NULL, 0);
}

enum mr_err split_csv_write(struct mr_split *split, const uint8_t *p, size_t len)
{
    const uint8_t *start = p, *end = p + len;
    while (p < end) {
        const uint8_t *from = p;
        bool over;
        MR_TRY(read_line(split, &p, end, split->offset + (uint64_t)(from - start), &over));
        MR_TRY(add(split, from, (size_t)(p - from)));
        if (over)
            MR_TRY(line_over(split));
    }
    return MR_OK;
}

enum mr_err split_csv_end(struct mr_split *split)
{
    struct split_csv *is = &split->is.csv;
    if (is->place == CSV_QUOTED)
        return fault(split, is->quote_at, "the quoted field that begins here does not end");
    if (is->line_bytes > 0)
        MR_TRY(line_over(split));
    if (is->rows > 0)
        return split_cut(split, NULL, 0);
    if (split->index > 0)
        return MR_OK;
    if (!is->has_header)
        return split_empty(split);
    return split_fault(split, "csv: no row is behind the header: a job has one part at least");
}
