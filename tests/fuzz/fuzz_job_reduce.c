/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce: a spec, a newline, the size of a chunk, and results, each behind its length (255: the part failed). The chunks
 * are full but for the last; the result is as long as is said, and has the form that its kind promises.
 */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "job/json.h"
#include "job/reduce.h"

enum { GAP = 255 };

struct got {
    struct mr_buf bytes;
    size_t chunk_max;
    bool last;
};

static enum mr_err take_chunk(struct mr_slice chunk, void *arg)
{
    struct got *got = arg;
    mr_assert(chunk.len > 0 && chunk.len <= got->chunk_max && !got->last);
    got->last = chunk.len < got->chunk_max;
    return mr_buf_append_slice(&got->bytes, chunk);
}

static void check_line(const struct mr_detail *detail)
{
    size_t len = strnlen(detail->text, sizeof detail->text);
    mr_assert(len > 0 && len < sizeof detail->text);
    for (size_t i = 0; i < len; i++)
        mr_assert(detail->text[i] >= ' ' && detail->text[i] < 0x7f);
}

/* What a result of this kind always is. */
static void check_result(enum mr_reduce_kind kind, struct mr_slice result, struct mr_slice concat,
                         size_t parts)
{
    const char *p = result.data;
    size_t lines = 0;
    for (size_t i = 0; i < result.len; i++)
        lines += p[i] == '\n';
    if (kind == MR_REDUCE_CONCAT)
        mr_assert(mr_slice_equal(result, concat));
    if (kind == MR_REDUCE_LINES)
        mr_assert(lines >= parts && (parts == 0 || p[result.len - 1] == '\n'));
    if (kind == MR_REDUCE_JSON || kind == MR_REDUCE_SUM) {
        mr_assert(result.len >= 2 && p[result.len - 1] == '\n');
        mr_assert(job_json_valid(mr_slice_make(p, result.len - 1)));
    }
    if (kind == MR_REDUCE_NONE)
        mr_assert(result.len == 0);
}

static void check_reduce(struct fuzz_in *in, enum mr_reduce_kind kind)
{
    struct got got = {.chunk_max = (size_t)fuzz_u8(in) + 1};
    struct mr_reduce_options options = {kind, got.chunk_max, take_chunk, &got};
    struct mr_reduce *reduce;
    struct mr_buf concat = {0};
    struct mr_detail detail = {0};
    uint64_t index = 0, bytes = 0;
    size_t parts = 0;
    enum mr_err err = mr_reduce_new(&options, &reduce);
    mr_assert(err == (kind == MR_REDUCE_COMMAND ? MR_UNSUPPORTED : MR_OK));
    if (err != MR_OK)
        return;
    while (in->left > 0 && err == MR_OK) {
        uint8_t len = fuzz_u8(in);
        struct mr_slice result = fuzz_bytes(in, len == GAP ? 0 : len);
        parts += len != GAP;
        mr_assert(mr_buf_append_slice(&concat, result) == MR_OK);
        err = len == GAP ? mr_reduce_gap(reduce, index, &detail)
                         : mr_reduce_part(reduce, index, result, &detail);
        index++;
    }
    if (err == MR_OK)
        err = mr_reduce_end(reduce, &bytes, &detail);
    if (err == MR_OK) {
        mr_assert(bytes == got.bytes.len);
        check_result(kind, mr_buf_slice(&got.bytes), mr_buf_slice(&concat), parts);
    } else {
        mr_assert(err == MR_INVALID && kind == MR_REDUCE_SUM);
        check_line(&detail);
    }
    mr_reduce_free(reduce);
    mr_buf_done(&got.bytes);
    mr_buf_done(&concat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
    struct mr_slice text = fuzz_bytes(&in, newline != NULL ? (size_t)(newline - data) : size);
    struct mr_reduce_spec spec;
    struct mr_detail detail = {0};
    (void)fuzz_u8(&in);
    if (mr_reduce_parse(text, &spec, &detail) != MR_OK)
        check_line(&detail);
    else
        check_reduce(&in, spec.kind);
    return 0;
}
