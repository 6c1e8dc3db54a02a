/* SPDX-License-Identifier: Apache-2.0 */
#include "job/reduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "job/json.h"
#include "job/spec.h"

enum { NUMBER_MAX = 400 }; /* bytes of a number that is summed up; no double needs more */

struct mr_reduce {
    enum mr_reduce_kind kind;
    size_t chunk_max;
    mr_reduce_chunk *chunk;
    void *arg;
    struct mr_buf buf;  /* of the chunk at hand, less than chunk_max */
    uint64_t bytes;     /* of the result so far */
    uint64_t next;      /* index of the next part */
    __int128 whole;     /* sum of those that are whole: 2^64 of them fit */
    double real, error; /* sum of the others, and what was lost by rounding it */
    bool is_real;       /* there were others */
};

/* ---- out ------------------------------------------------------------------------------------ */

static enum mr_err flush(struct mr_reduce *reduce)
{
    if (reduce->buf.len == 0)
        return MR_OK;
    MR_TRY(reduce->chunk(mr_buf_slice(&reduce->buf), reduce->arg));
    mr_buf_clear(&reduce->buf);
    return MR_OK;
}

static enum mr_err put(struct mr_reduce *reduce, const void *data, size_t len)
{
    const uint8_t *p = data;
    reduce->bytes += len;
    while (len > 0) {
        size_t room = reduce->chunk_max - reduce->buf.len;
        size_t now = len < room ? len : room;
        if (now == reduce->chunk_max) {
            MR_TRY(reduce->chunk(mr_slice_make(p, now), reduce->arg));
        } else {
            MR_TRY(mr_buf_append(&reduce->buf, p, now));
            if (now == room)
                MR_TRY(flush(reduce));
        }
        p += now;
        len -= now;
    }
    return MR_OK;
}

/* ---- json ----------------------------------------------------------------------------------- */

/* Without the white space around it. */
static struct mr_slice trim(struct mr_slice text)
{
    const uint8_t *p = text.data;
    while (text.len > 0 && job_json_is_space(p[text.len - 1]))
        text.len--;
    for (; text.len > 0 && job_json_is_space(*p); p++)
        text.len--;
    return mr_slice_make(p, text.len);
}

static enum mr_err put_string(struct mr_reduce *reduce, struct mr_slice text)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = text.data;
    size_t plain = 0; /* start of the run that needs no escape */
    MR_TRY(put(reduce, "\"", 1));
    for (size_t i = 0; i < text.len; i++) {
        if (p[i] >= 0x20 && p[i] != '"' && p[i] != '\\')
            continue;
        MR_TRY(put(reduce, p + plain, i - plain));
        plain = i + 1;
        if (p[i] == '\n')
            MR_TRY(put(reduce, "\\n", 2));
        else if (p[i] >= 0x20)
            MR_TRY(put(reduce, (const uint8_t[]){'\\', p[i]}, 2));
        else
            MR_TRY(put(reduce, (const char[]){'\\', 'u', '0', '0', hex[p[i] >> 4], hex[p[i] & 15]},
                       6));
    }
    if (text.len > plain)
        MR_TRY(put(reduce, p + plain, text.len - plain));
    return put(reduce, "\"", 1);
}

static enum mr_err put_base64(struct mr_reduce *reduce, struct mr_slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = bytes.data;
    MR_TRY(put(reduce, "{\"base64\":\"", 11));
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t v = (uint32_t)p[i] << 16;
        v |= n > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= n > 2 ? p[i + 2] : 0;
        char out[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                       n > 2 ? digits[v & 63] : '='};
        MR_TRY(put(reduce, out, sizeof out));
    }
    return put(reduce, "\"}", 2);
}

static enum mr_err put_element(struct mr_reduce *reduce, struct mr_slice result)
{
    struct mr_slice value = trim(result);
    if (value.len > 0 && job_json_valid(value))
        return put(reduce, value.data, value.len);
    return result.len == 0 || mr_utf8_valid(result) ? put_string(reduce, result)
                                                    : put_base64(reduce, result);
}

/* ---- sum ------------------------------------------------------------------------------------ */

static enum mr_err not_a_number(uint64_t index, const char *why, struct mr_detail *detail)
{
    mr_detail_set(detail, "sum: the result of part %" PRIu64 " %s", index, why);
    return MR_INVALID;
}

/* Neumaier's: what rounding takes off is summed up apart. */
static void add_real(struct mr_reduce *reduce, double value)
{
    double sum = reduce->real + value;
    bool big = fabs(reduce->real) >= fabs(value);
    reduce->error += big ? (reduce->real - sum) + value : (value - sum) + reduce->real;
    reduce->real = sum;
    reduce->is_real = true;
}

static enum mr_err part_sum(struct mr_reduce *reduce, struct mr_slice result,
                            struct mr_detail *detail)
{
    char text[NUMBER_MAX + 1];
    struct mr_slice number = trim(result);
    int64_t whole = 0;
    double real = 0;
    if (number.len == 0 || number.len > NUMBER_MAX || memchr(number.data, '\0', number.len) != NULL)
        return not_a_number(reduce->next, "is no number", detail);
    memcpy(text, number.data, number.len);
    text[number.len] = '\0';
    bool is_real = strpbrk(text, ".eE") != NULL;
    enum mr_err err = is_real ? mr_parse_double(text, &real) : mr_parse_int64(text, &whole);
    if (err == MR_NOMEM)
        return err;
    if (err != MR_OK)
        return not_a_number(reduce->next, err == MR_TOO_BIG ? "is too big" : "is no number",
                            detail);
    if (is_real)
        add_real(reduce, real);
    else
        reduce->whole += whole;
    return MR_OK;
}

static enum mr_err end_sum(struct mr_reduce *reduce, struct mr_detail *detail)
{
    char text[MR_DOUBLE_TEXT_MAX + 1];
    if (reduce->is_real) {
        add_real(reduce, (double)reduce->whole);
        double sum = reduce->real + reduce->error;
        if (!isfinite(sum)) {
            mr_detail_set(detail, "sum: too big");
            return MR_INVALID;
        }
        MR_TRY(mr_format_double(sum, text));
    } else if (reduce->whole >= INT64_MIN && reduce->whole <= INT64_MAX) {
        snprintf(text, sizeof text, "%" PRId64, (int64_t)reduce->whole);
    } else {
        mr_detail_set(detail, "sum: does not fit 64 bits");
        return MR_INVALID;
    }
    MR_TRY(put(reduce, text, strlen(text)));
    return put(reduce, "\n", 1);
}

/* ---- the kinds ------------------------------------------------------------------------------ */

static enum mr_err part_concat(struct mr_reduce *reduce, struct mr_slice result,
                               struct mr_detail *detail)
{
    (void)detail;
    return put(reduce, result.data, result.len);
}

static enum mr_err part_lines(struct mr_reduce *reduce, struct mr_slice result,
                              struct mr_detail *detail)
{
    (void)detail;
    MR_TRY(put(reduce, result.data, result.len));
    bool whole = result.len > 0 && ((const char *)result.data)[result.len - 1] == '\n';
    return whole ? MR_OK : put(reduce, "\n", 1);
}

static enum mr_err before_element(struct mr_reduce *reduce)
{
    return reduce->next == 0 ? put(reduce, "[", 1) : put(reduce, ",\n", 2);
}

static enum mr_err part_json(struct mr_reduce *reduce, struct mr_slice result,
                             struct mr_detail *detail)
{
    (void)detail;
    MR_TRY(before_element(reduce));
    return put_element(reduce, result);
}

static enum mr_err gap_json(struct mr_reduce *reduce)
{
    MR_TRY(before_element(reduce));
    return put(reduce, "null", 4);
}

static enum mr_err end_json(struct mr_reduce *reduce, struct mr_detail *detail)
{
    (void)detail;
    return reduce->next == 0 ? put(reduce, "[]\n", 3) : put(reduce, "]\n", 2);
}

/* What is missing does nothing. */
static const struct kind {
    const char *name;
    enum mr_err (*part)(struct mr_reduce *reduce, struct mr_slice result, struct mr_detail *detail);
    enum mr_err (*gap)(struct mr_reduce *reduce);
    enum mr_err (*end)(struct mr_reduce *reduce, struct mr_detail *detail);
} kinds[] = {
    [MR_REDUCE_CONCAT] = {"concat", part_concat, NULL, NULL},
    [MR_REDUCE_LINES] = {"lines", part_lines, NULL, NULL},
    [MR_REDUCE_JSON] = {"json", part_json, gap_json, end_json},
    [MR_REDUCE_SUM] = {"sum", part_sum, NULL, end_sum},
    [MR_REDUCE_NONE] = {"none", NULL, NULL, NULL},
    [MR_REDUCE_COMMAND] = {"command", NULL, NULL, NULL},
};
_Static_assert(sizeof kinds / sizeof *kinds == MR_REDUCE_KIND_COUNT, "a row for each kind");

enum mr_err mr_reduce_parse(struct mr_slice text, struct mr_reduce_spec *ret_spec,
                            struct mr_detail *detail)
{
    struct job_spec words;
    if (text.len == 0)
        text = MR_SLICE_LIT("concat");
    MR_TRY(job_spec_read("reduce", text, &words, detail));
    for (unsigned i = 0; i < MR_REDUCE_KIND_COUNT; i++) {
        bool command = i == MR_REDUCE_COMMAND;
        if (!mr_slice_equal(words.name, mr_slice_str(kinds[i].name)) ||
            command != (words.rest.data != NULL) || (command && words.rest.len == 0))
            continue;
        *ret_spec = (struct mr_reduce_spec){(enum mr_reduce_kind)i, words.rest};
        return MR_OK;
    }
    mr_detail_set(detail, "reduce: not one of concat, lines, json, sum, none, command:CMD");
    return MR_INVALID;
}

enum mr_err mr_reduce_put(const struct mr_reduce_spec *spec, struct mr_buf *buf)
{
    const char *name = kinds[spec->kind].name;
    if (spec->kind != MR_REDUCE_COMMAND)
        return mr_buf_printf(buf, "%s", name);
    MR_TRY(mr_buf_printf(buf, "%s:", name));
    return mr_buf_append_slice(buf, spec->command);
}

/* ---- all of it ------------------------------------------------------------------------------ */

enum mr_err mr_reduce_new(const struct mr_reduce_options *options, struct mr_reduce **ret_reduce)
{
    if (options->kind == MR_REDUCE_COMMAND)
        return MR_UNSUPPORTED;
    struct mr_reduce *reduce = calloc(1, sizeof *reduce);
    if (reduce == NULL)
        return MR_NOMEM;
    reduce->kind = options->kind;
    reduce->chunk_max = options->chunk_max != 0 ? options->chunk_max : MR_REDUCE_CHUNK_MAX;
    reduce->chunk = options->chunk;
    reduce->arg = options->arg;
    *ret_reduce = reduce;
    return MR_OK;
}

static enum mr_err check_index(const struct mr_reduce *reduce, uint64_t index,
                               struct mr_detail *detail)
{
#ifdef MR_PLANT_REDUCED_WITHOUT_A_PART
    return MR_OK;
#endif
    if (index == reduce->next)
        return MR_OK;
    mr_detail_set(detail, "part %" PRIu64 " comes where part %" PRIu64 " should", index,
                  reduce->next);
    return MR_DAMAGED;
}

enum mr_err mr_reduce_part(struct mr_reduce *reduce, uint64_t index, struct mr_slice result,
                           struct mr_detail *detail)
{
    const struct kind *kind = &kinds[reduce->kind];
    MR_TRY(check_index(reduce, index, detail));
    if (kind->part != NULL)
        MR_TRY(kind->part(reduce, result, detail));
    reduce->next++;
    return MR_OK;
}

enum mr_err mr_reduce_gap(struct mr_reduce *reduce, uint64_t index, struct mr_detail *detail)
{
    const struct kind *kind = &kinds[reduce->kind];
    MR_TRY(check_index(reduce, index, detail));
    if (kind->gap != NULL)
        MR_TRY(kind->gap(reduce));
    reduce->next++;
    return MR_OK;
}

enum mr_err mr_reduce_end(struct mr_reduce *reduce, uint64_t *ret_bytes, struct mr_detail *detail)
{
    const struct kind *kind = &kinds[reduce->kind];
    if (kind->end != NULL)
        MR_TRY(kind->end(reduce, detail));
    MR_TRY(flush(reduce));
    if (ret_bytes != NULL)
        *ret_bytes = reduce->bytes;
    return MR_OK;
}

void mr_reduce_free(struct mr_reduce *reduce)
{
    if (reduce == NULL)
        return;
    mr_buf_done(&reduce->buf);
    free(reduce);
}
