/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Split: a spec, a newline, the limit of a part, how the writes go, and an input. The parts are the same in one write
 * and in many, none is over the limit, and they give the input back where that is promised; a refusal says why in
 * one line.
 */
#include "fuzz/fuzz.h"
#include "job/json.h"
#include "job/split.h"
#include "unit/job_cut.h"

static size_t next_step(size_t left, void *arg)
{
    uint64_t *seed = arg;
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    size_t len = (size_t)(*seed >> 60);
    return len < left ? len : left;
}

static void check_line(const struct mr_detail *detail)
{
    size_t len = strnlen(detail->text, sizeof detail->text);
    mr_assert(len > 0 && len < sizeof detail->text);
    for (size_t i = 0; i < len; i++)
        mr_assert(detail->text[i] >= ' ' && detail->text[i] < 0x7f);
}

static void check_parts(const struct cut *cut, const struct mr_split_options *options,
                        struct mr_slice input)
{
    enum mr_split_kind kind = options->spec.kind;
    for (size_t i = 0; i < cut->n; i++) {
        struct mr_slice part = cut_at(cut, i);
        mr_assert(part.len > 0 && part.len <= options->part_max);
        if (kind == MR_SPLIT_JSON)
            mr_assert(job_json_valid(part));
        if (kind == MR_SPLIT_BYTES)
            mr_assert(i + 1 == cut->n ? part.len <= options->spec.n : part.len == options->spec.n);
        if (kind == MR_SPLIT_CHARS && mr_utf8_valid(input))
            mr_assert(mr_utf8_valid(part));
    }
    /* Also what came before a refusal. */
    if (cut_joins(kind))
        mr_assert(
            cut->bytes.len <= input.len &&
            (cut->bytes.len == 0 || memcmp(cut->bytes.data, input.data, cut->bytes.len) == 0));
    if (cut_joins(kind) && cut->err == MR_OK)
        mr_assert(cut->bytes.len == input.len);
}

static void check_spec(const struct mr_split_spec *spec)
{
    struct mr_split_spec again;
    struct mr_buf first = {0}, second = {0};
    mr_assert(mr_split_put(spec, &first) == MR_OK);
    mr_assert(mr_split_parse(mr_buf_slice(&first), &again, NULL) == MR_OK);
    mr_assert(mr_split_put(&again, &second) == MR_OK);
    mr_assert(mr_slice_equal(mr_buf_slice(&first), mr_buf_slice(&second)));
    mr_buf_done(&first);
    mr_buf_done(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
    struct mr_slice text = fuzz_bytes(&in, newline != NULL ? (size_t)(newline - data) : size);
    struct mr_split_options options = {0};
    struct mr_detail detail = {0};
    (void)fuzz_u8(&in);
    if (mr_split_parse(text, &options.spec, &detail) != MR_OK) {
        check_line(&detail);
        return 0;
    }
    check_spec(&options.spec);
    options.part_max = (size_t)fuzz_u8(&in) + 1;
    uint64_t seed = fuzz_u8(&in);
    struct mr_slice input = mr_slice_make(in.at, in.left);
    struct cut whole = {0}, pieces = {0};
    cut_input(&whole, &options, input, NULL, NULL);
    cut_input(&pieces, &options, input, next_step, &seed);
    mr_assert((whole.err == MR_OK) == (pieces.err == MR_OK) && whole.n == pieces.n);
    mr_assert(mr_slice_equal(mr_buf_slice(&whole.bytes), mr_buf_slice(&pieces.bytes)));
    mr_assert(mr_slice_equal(mr_buf_slice(&whole.ends), mr_buf_slice(&pieces.ends)));
    check_parts(&whole, &options, input);
    if (whole.err != MR_OK) {
        mr_assert(whole.err == MR_INVALID || whole.err == MR_TOO_BIG);
        check_line(&whole.detail);
        check_line(&pieces.detail);
    }
    cut_done(&whole);
    cut_done(&pieces);
    return 0;
}
