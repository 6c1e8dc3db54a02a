/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations fail while an input is split, results are reduced, a definition is read: that is answered, and nothing
 * is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/def.h"
#include "job/reduce.h"
#include "job/split.h"
#include "unit/failing_alloc.h"

enum { TRIES_MAX = 100 };

/* Once for each allocation that it makes, and once without any that fails. */
static void with_failures(enum mr_err (*act)(const char *arg), const char *arg)
{
    for (long i = 0; i < TRIES_MAX; i++) {
        fail_alloc_after(i);
        enum mr_err err = act(arg);
        long failed = fail_alloc_stop();
        assert_int_equal(err, failed > 0 ? MR_NOMEM : MR_OK);
        if (failed == 0)
            return;
    }
    fail_msg("it does not come to an end");
}

static enum mr_err ignore_part(struct mr_slice part, uint64_t index, void *arg)
{
    (void)part, (void)index, (void)arg;
    return MR_OK;
}

static enum mr_err split_pieces(const char *spec)
{
    struct mr_split_options options = {.part = ignore_part};
    struct mr_split *split;
    bool json = strcmp(spec, "json") == 0;
    const char *input = json ? "[[1,2],[3,4]]" : "a,b\n\n\xc3\xa9,d\n\ne";
    MR_TRY(mr_split_parse(mr_slice_str(spec), &options.spec, NULL));
    MR_TRY(mr_split_new(&options, &split));
    enum mr_err err = MR_OK;
    for (size_t i = 0; input[i] != '\0' && err == MR_OK; i++)
        err = mr_split_write(split, mr_slice_make(input + i, 1), NULL);
    if (err == MR_OK)
        err = mr_split_end(split, NULL);
    mr_split_free(split);
    return err;
}

static enum mr_err ignore_chunk(struct mr_slice chunk, void *arg)
{
    (void)chunk, (void)arg;
    return MR_OK;
}

static enum mr_err reduce_some(const char *text)
{
    struct mr_reduce_options options = {.chunk = ignore_chunk, .chunk_max = 200};
    struct mr_reduce_spec spec;
    struct mr_reduce *reduce;
    MR_TRY(mr_reduce_parse(mr_slice_str(text), &spec, NULL));
    options.kind = spec.kind;
    MR_TRY(mr_reduce_new(&options, &reduce));
    enum mr_err err = MR_OK;
    for (uint64_t i = 0; i < 100 && err == MR_OK; i++)
        err = i % 10 == 9 ? mr_reduce_gap(reduce, i, NULL)
                          : mr_reduce_part(reduce, i, mr_slice_str("1.5"), NULL);
    if (err == MR_OK)
        err = mr_reduce_end(reduce, NULL, NULL);
    mr_reduce_free(reduce);
    return err;
}

static enum mr_err read_definition(const char *arg)
{
    static const struct mr_slice stages[] = {{"a", 1}, {"b", 1}};
    struct mr_job_options options = {.stages = stages,
                                     .stages_n = 2,
                                     .split = MR_SLICE_LIT("lines:5"),
                                     .reduce = MR_SLICE_LIT("command:cat *")};
    struct mr_job_options kept;
    struct mr_job_stage stage = {.type = MR_SLICE_LIT("a"), .total = 7};
    struct mr_job_info info = {.stages = &stage, .stages_n = 1}, shown;
    struct mr_arena arena = {0};
    struct mr_buf definition = {0}, job = {0};
    (void)arg;
    enum mr_err err = mr_job_canonical(&options, &arena, &kept, NULL);
    if (err == MR_OK)
        err = mr_job_encode(&kept, &definition);
    if (err == MR_OK)
        err = mr_job_info_encode(&info, mr_buf_slice(&definition), &job);
    if (err == MR_OK)
        err = mr_job_info_decode(mr_buf_slice(&job), &arena, &shown);
    mr_arena_done(&arena);
    mr_buf_done(&definition);
    mr_buf_done(&job);
    return err;
}

static void a_split_says_that_memory_is_out(void **state)
{
    static const char *const specs[] = {"lines",   "lines:2", "paragraphs", "chars:2",
                                        "bytes:3", "json",    "csv"};
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        with_failures(split_pieces, specs[i]);
}

static void a_reduce_says_that_memory_is_out(void **state)
{
    static const char *const specs[] = {"concat", "lines", "json", "sum", "none"};
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        with_failures(reduce_some, specs[i]);
}

static void a_reader_of_definitions_says_that_memory_is_out(void **state)
{
    (void)state;
    with_failures(read_definition, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_says_that_memory_is_out),
        cmocka_unit_test(a_reduce_says_that_memory_is_out),
        cmocka_unit_test(a_reader_of_definitions_says_that_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
