/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of jobs, and jobs, as they come from elsewhere: what is accepted stays the same when it is written and read
 * again; a refusal says why in one line. */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "job/def.h"

static void check_refusal(enum mr_err err, const struct mr_detail *detail)
{
    size_t len = strnlen(detail->text, sizeof detail->text);
    mr_assert(err == MR_INVALID || err == MR_TOO_BIG);
    mr_assert(len > 0 && len < sizeof detail->text);
    for (size_t i = 0; i < len; i++)
        mr_assert(detail->text[i] >= ' ' && detail->text[i] < 0x7f);
}

/* The canonical form of a canonical form is the same. */
static void check_definition(struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_job_options options, once, twice;
    struct mr_detail detail = {0};
    struct mr_buf first = {0}, second = {0};
    if (mr_job_decode(bytes, &arena, &options) == MR_OK) {
        enum mr_err err = mr_job_canonical(&options, &arena, &once, &detail);
        if (err != MR_OK) {
            check_refusal(err, &detail);
        } else {
            mr_assert(once.stages_n >= 1 && once.stages_n <= MR_JOB_STAGES_MAX);
            mr_assert(once.queue.len > 0 && once.reduce.len > 0 && once.retention_ms > 0);
            mr_assert(mr_job_encode(&once, &first) == MR_OK);
            mr_assert(mr_job_decode(mr_buf_slice(&first), &arena, &options) == MR_OK);
            mr_assert(mr_job_canonical(&options, &arena, &twice, &detail) == MR_OK);
            mr_assert(mr_job_encode(&twice, &second) == MR_OK);
            mr_assert(mr_slice_equal(mr_buf_slice(&first), mr_buf_slice(&second)));
        }
    }
    mr_buf_done(&first);
    mr_buf_done(&second);
    mr_arena_done(&arena);
}

static void check_job(struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_job_info info, again;
    struct mr_buf definition = {0}, first = {0}, second = {0};
    if (mr_job_info_decode(bytes, &arena, &info) == MR_OK) {
        mr_assert(mr_job_encode(&info.job, &definition) == MR_OK);
        mr_assert(mr_job_info_encode(&info, mr_buf_slice(&definition), &first) == MR_OK);
        mr_assert(mr_job_info_decode(mr_buf_slice(&first), &arena, &again) == MR_OK);
        mr_assert(mr_job_info_encode(&again, mr_buf_slice(&definition), &second) == MR_OK);
        mr_assert(mr_slice_equal(mr_buf_slice(&first), mr_buf_slice(&second)));
    }
    mr_buf_done(&definition);
    mr_buf_done(&first);
    mr_buf_done(&second);
    mr_arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_part_info part;
    check_definition(mr_slice_make(data, size));
    check_job(mr_slice_make(data, size));
    (void)(mr_flat_read(&mr_flat_part, mr_slice_make(data, size), NULL, &part) == MR_OK);
    return 0;
}
