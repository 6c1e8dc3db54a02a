/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions of jobs and how they stand: against protobuf-c, and into their one form. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job/def.h"
#include "millrace/v1/job.pb-c.h"

static struct mr_arena arena;

static int end(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return 0;
}

static void assert_text(struct mr_slice slice, const char *text)
{
    assert_int_equal(slice.len, strlen(text));
    if (slice.len > 0)
        assert_memory_equal(slice.data, text, slice.len);
}

static const struct mr_slice stages[] = {{"speak", 5}, {"encode", 6}, {"check", 5}};

static struct mr_job_options full(void)
{
    return (struct mr_job_options){
        .name = MR_SLICE_LIT("book"),
        .queue = MR_SLICE_LIT("voices"),
        .stages = stages,
        .stages_n = 3,
        .split = MR_SLICE_LIT("paragraphs"),
        .reduce = MR_SLICE_LIT("command:sox * -t wav -"),
        .policy = MR_JOB_FINISH,
        .pipeline = true,
        .priority_s = -2.5,
        .max_retry = -1,
        .timeout_ms = -1,
        .retention_ms = 86400000,
        .speculate_ms = 60000,
    };
}

static void definitions_are_read_by_others_as_they_were_written(void **state)
{
    struct mr_job_options options = full(), again;
    struct mr_buf buf = {0}, packed = {0};
    (void)state;
    assert_int_equal(mr_job_encode(&options, &buf), MR_OK);
    Millrace__V1__JobDefinition *pb = millrace__v1__job_definition__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_string_equal(pb->name, "book");
    assert_string_equal(pb->queue, "voices");
    assert_int_equal(pb->n_stages, 3);
    assert_string_equal(pb->stages[0], "speak");
    assert_string_equal(pb->stages[2], "check");
    assert_string_equal(pb->split, "paragraphs");
    assert_string_equal(pb->reduce, "command:sox * -t wav -");
    assert_int_equal(pb->policy, MILLRACE__V1__JOB_POLICY__JOB_FINISH);
    assert_true(pb->pipeline && pb->priority == -2.5 && pb->max_retry == -1);
    assert_true(pb->timeout_ms == -1 && pb->retention_ms == 86400000 && pb->speculate_ms == 60000);
    /* And the other way. */
    assert_int_equal(mr_buf_reserve(&packed, buf.len), MR_OK);
    packed.len = millrace__v1__job_definition__pack(pb, packed.data);
    assert_int_equal(mr_job_decode(mr_buf_slice(&packed), &arena, &again), MR_OK);
    assert_text(again.name, "book");
    assert_text(again.queue, "voices");
    assert_int_equal(again.stages_n, 3);
    assert_text(again.stages[1], "encode");
    assert_text(again.split, "paragraphs");
    assert_text(again.reduce, "command:sox * -t wav -");
    assert_true(again.policy == MR_JOB_FINISH && again.pipeline && again.priority_s == -2.5);
    assert_true(again.max_retry == -1 && again.timeout_ms == -1);
    assert_true(again.retention_ms == 86400000 && again.speculate_ms == 60000);
    millrace__v1__job_definition__free_unpacked(pb, NULL);
    mr_buf_done(&packed);
    mr_buf_done(&buf);
}

static struct mr_job_info running(const struct mr_job_stage *in_stages)
{
    return (struct mr_job_info){
        .id = MR_SLICE_LIT("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"),
        .version = UINT64_MAX,
        .state = MR_JOB_RUNNING,
        .reducing = true,
        .reason = MR_SLICE_LIT("why"),
        .total = 100,
        .done = 40,
        .failed = 2,
        .running = 8,
        .stages = in_stages,
        .stages_n = 3,
        .rate = 12.5,
        .eta_ms = -1,
        .created_ms = 1,
        .started_ms = 2,
        .finished_ms = 3,
        .first_segment = 4,
        .last_segment = 5,
        .round = 6,
        .result_bytes = 7,
    };
}

static void jobs_are_read_by_others_as_they_were_written(void **state)
{
    static const struct mr_job_stage in_stages[] = {
        {{"speak", 5}, 100, 60, 1}, {{"encode", 6}, 99, 50, 1}, {{"check", 5}, 98, 40, 0}};
    struct mr_job_options options = full();
    struct mr_job_info info = running(in_stages), again;
    struct mr_buf definition = {0}, buf = {0}, packed = {0};
    (void)state;
    assert_int_equal(mr_job_encode(&options, &definition), MR_OK);
    assert_int_equal(mr_job_info_encode(&info, mr_buf_slice(&definition), &buf), MR_OK);
    Millrace__V1__Job *pb = millrace__v1__job__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_string_equal(pb->definition->name, "book");
    assert_string_equal(pb->id, "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b");
    assert_true(pb->version == UINT64_MAX && pb->state == MILLRACE__V1__JOB_STATE__JOB_RUNNING);
    assert_int_equal(pb->n_stages, 3);
    assert_string_equal(pb->stages[1]->type, "encode");
    assert_true(pb->stages[1]->total == 99 && pb->stages[1]->done == 50);
    assert_true(pb->stages[0]->failed == 1 && pb->reducing);
    assert_string_equal(pb->reason, "why");
    assert_true(pb->total == 100 && pb->done == 40 && pb->failed == 2 && pb->running == 8);
    assert_true(pb->rate == 12.5 && pb->eta_ms == -1 && pb->created_ms == 1);
    assert_true(pb->started_ms == 2 && pb->finished_ms == 3 && pb->first_segment == 4);
    assert_true(pb->last_segment == 5 && pb->round == 6 && pb->result_bytes == 7);
    /* And the other way. */
    assert_int_equal(mr_buf_reserve(&packed, buf.len), MR_OK);
    packed.len = millrace__v1__job__pack(pb, packed.data);
    assert_int_equal(mr_job_info_decode(mr_buf_slice(&packed), &arena, &again), MR_OK);
    assert_text(again.job.reduce, "command:sox * -t wav -");
    assert_int_equal(again.job.stages_n, 3);
    assert_int_equal(again.stages_n, 3);
    assert_text(again.stages[2].type, "check");
    assert_true(again.stages[2].total == 98 && again.stages[2].done == 40);
    assert_true(again.total == 100 && again.rate == 12.5 && again.eta_ms == -1 && again.reducing);
    assert_true(again.result_bytes == 7 && again.round == 6 && again.state == MR_JOB_RUNNING);
    millrace__v1__job__free_unpacked(pb, NULL);
    mr_buf_done(&packed);
    mr_buf_done(&definition);
    mr_buf_done(&buf);
}

static void parts_are_read_by_others_as_they_were_written(void **state)
{
    struct mr_part_info part = {.job = MR_SLICE_LIT("j"),
                                .index = 1,
                                .stage = 2,
                                .round = 3,
                                .state = MR_PART_FAILED,
                                .task_id = MR_SLICE_LIT("t"),
                                .error = MR_SLICE_LIT("e"),
                                .finished_ms = 4,
                                .segment = 5};
    uint8_t bytes[64];
    (void)state;
    size_t size = mr_flat_size(&mr_flat_part, &part);
    assert_true(size <= sizeof bytes);
    mr_flat_write(&mr_flat_part, &part, bytes);
    Millrace__V1__Part *pb = millrace__v1__part__unpack(NULL, size, bytes);
    assert_non_null(pb);
    assert_string_equal(pb->job, "j");
    assert_true(pb->index == 1 && pb->stage == 2 && pb->round == 3);
    assert_int_equal(pb->state, MILLRACE__V1__PART_STATE__PART_FAILED);
    assert_string_equal(pb->task_id, "t");
    assert_string_equal(pb->error, "e");
    assert_true(pb->finished_ms == 4 && pb->segment == 5);
    millrace__v1__part__free_unpacked(pb, NULL);
}

static void what_is_left_out_is_filled_in(void **state)
{
    struct mr_job_options nothing = {0}, is;
    (void)state;
    assert_int_equal(mr_job_canonical(&nothing, &arena, &is, NULL), MR_OK);
    assert_text(is.name, "");
    assert_text(is.queue, "default");
    assert_int_equal(is.stages_n, 1);
    assert_text(is.stages[0], "task");
    assert_text(is.split, "");
    assert_text(is.reduce, "concat");
    assert_true(is.retention_ms == MR_JOB_RETENTION_MS && is.max_retry == 0 && is.timeout_ms == 0);
    nothing.split = MR_SLICE_LIT("lines:1");
    nothing.retention_ms = 5;
    assert_int_equal(mr_job_canonical(&nothing, &arena, &is, NULL), MR_OK);
    assert_text(is.split, "lines");
    assert_int_equal(is.retention_ms, 5);
}

static void a_task_of_a_job_is_kept_for_a_day_and_leaves_a_result(void **state)
{
    struct mr_job_options options = full();
    (void)state;
    struct mr_task_options task = mr_job_task(&options, 1);
    assert_text(task.queue, "voices");
    assert_text(task.type, "encode");
    assert_text(task.topic, MR_JOB_TOPIC);
    assert_true(task.retention_ms == 86400000 && task.priority_s == -2.5 && task.max_retry == -1);
    assert_true(task.timeout_ms == -1);
}

static void refused(const struct mr_job_options *options, enum mr_err err, const char *line)
{
    struct mr_job_options is;
    struct mr_detail detail = {0};
    assert_int_equal(mr_job_canonical(options, &arena, &is, &detail), err);
    assert_string_equal(detail.text, line);
}

static void what_no_job_can_be_is_refused_in_one_line(void **state)
{
    struct mr_slice many[MR_JOB_STAGES_MAX + 1], none[] = {{"a", 1}, {"", 0}}, brace = {"{", 1};
    char big[MR_NAME_MAX + 1];
    (void)state;
    memset(big, 'x', sizeof big);
    for (size_t i = 0; i < MR_JOB_STAGES_MAX + 1; i++)
        many[i] = MR_SLICE_LIT("t");
#define REFUSED(err, line, ...) refused(&(struct mr_job_options){__VA_ARGS__}, err, line)
    REFUSED(MR_TOO_BIG, "stages: 17, the limit is 16", .stages = many,
            .stages_n = MR_JOB_STAGES_MAX + 1);
    REFUSED(MR_INVALID, "stages: the type of stage 2 is missing", .stages = none, .stages_n = 2);
    REFUSED(MR_INVALID, "type: must be UTF-8 without control characters or braces",
            .stages = &brace, .stages_n = 1);
    REFUSED(MR_TOO_BIG, "name: 129 bytes, the limit is 128", .name = {big, sizeof big});
    REFUSED(MR_INVALID, "name: must be UTF-8 without control characters or braces",
            .name = MR_SLICE_LIT("a\n"));
    REFUSED(MR_TOO_BIG, "queue: 129 bytes, the limit is 128", .queue = {big, sizeof big});
    REFUSED(MR_INVALID, "policy: not one of fail-fast, finish", .policy = MR_JOB_POLICY_COUNT);
    REFUSED(MR_INVALID, "retention: must be within 0 and 100 years", .retention_ms = -1);
    REFUSED(MR_INVALID, "retention: must be within 0 and 100 years", .retention_ms = INT64_MAX);
    REFUSED(MR_INVALID, "speculate: must be 0 or within 1 s and 100 years", .speculate_ms = 999);
    REFUSED(MR_INVALID, "speculate: must be 0 or within 1 s and 100 years", .speculate_ms = -1);
    REFUSED(MR_INVALID, "timeout: must not be negative", .timeout_ms = -2);
    REFUSED(MR_INVALID, "retry: must be within 0 and 65535", .max_retry = 65536);
    REFUSED(MR_INVALID, "priority: must be within 10 years", .priority_s = (double)NAN);
    REFUSED(MR_INVALID, "reduce: not one of concat, lines, json, sum, none, command:CMD",
            .reduce = MR_SLICE_LIT("max"));
    REFUSED(MR_INVALID, "split: chars:N, with N within 1 and 1000000000",
            .split = MR_SLICE_LIT("chars"));
#undef REFUSED
    struct mr_job_options most = {.stages = many, .stages_n = MR_JOB_STAGES_MAX}, is;
    assert_int_equal(mr_job_canonical(&most, &arena, &is, NULL), MR_OK);
}

static void bytes_that_are_no_definition_are_refused(void **state)
{
    struct mr_job_options options;
    struct mr_job_info info;
    struct mr_buf buf = {0};
    (void)state;
    assert_int_equal(mr_job_decode(mr_slice_str("\xff"), &arena, &options), MR_INVALID);
    assert_int_equal(mr_job_decode(mr_slice_str("\x30\x02"), &arena, &options), MR_INVALID);
    for (int i = 0; i <= MR_JOB_STAGES_MAX; i++)
        assert_int_equal(mr_buf_append(&buf, "\x1a\x01t", 3), MR_OK);
    assert_int_equal(mr_job_decode(mr_buf_slice(&buf), &arena, &options), MR_INVALID);
    buf.len -= 3;
    assert_int_equal(mr_job_decode(mr_buf_slice(&buf), &arena, &options), MR_OK);
    assert_int_equal(options.stages_n, MR_JOB_STAGES_MAX);
    assert_int_equal(mr_job_info_decode(mr_slice_str("\x0a\x01\xff"), &arena, &info), MR_INVALID);
    assert_int_equal(mr_job_decode(mr_slice_str(""), &arena, &options), MR_OK);
    mr_buf_done(&buf);
}

static void states_have_names(void **state)
{
    (void)state;
    for (unsigned i = MR_JOB_CREATED; i < MR_JOB_STATE_COUNT; i++) {
        const char *name = mr_job_state_name((enum mr_job_state)i);
        assert_non_null(name);
        assert_int_equal(mr_job_state_parse(mr_slice_str(name)), i);
    }
    assert_int_equal(mr_job_state_parse(mr_slice_str("none")), MR_JOB_STATE_NONE);
    for (unsigned i = 0; i < MR_PART_STATE_COUNT; i++)
        assert_non_null(mr_part_state_name((enum mr_part_state)i));
    assert_string_equal(mr_job_policy_name(MR_JOB_FAIL_FAST), "fail-fast");
    assert_null(mr_job_policy_name(MR_JOB_POLICY_COUNT));
    assert_null(mr_job_state_name(MR_JOB_STATE_COUNT));
    assert_null(mr_part_state_name(MR_PART_STATE_COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(definitions_are_read_by_others_as_they_were_written),
        cmocka_unit_test(jobs_are_read_by_others_as_they_were_written),
        cmocka_unit_test(parts_are_read_by_others_as_they_were_written),
        cmocka_unit_test(what_is_left_out_is_filled_in),
        cmocka_unit_test(a_task_of_a_job_is_kept_for_a_day_and_leaves_a_result),
        cmocka_unit_test(what_no_job_can_be_is_refused_in_one_line),
        cmocka_unit_test(bytes_that_are_no_definition_are_refused),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
