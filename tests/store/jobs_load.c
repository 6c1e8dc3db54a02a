/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs are loaded part by part, and are there whole or not at all. */
#include "store/job_kit.h"

static void test_a_job_is_seen_from_its_commit_on_and_whole(void **state)
{
    struct suite *t = *state;
    MAKE(t, .name = "book", .definition = "what", .stages = 2, .priority_ms = 5000,
         .loading = true);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_NONE);
    assert_int_equal(kit_list(t, (struct mr_store_job_list){.max = 9})->n, 0);
    assert_int_equal(kit_live(t, (struct mr_store_job_live){.max = 9})->n, 0);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 10), MR_OK);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_CREATED);
    assert_slice(job->name, "book");
    assert_slice(job->queue, "q");
    assert_slice(job->definition, "what");
    assert_int_equal(job->total, 10);
    assert_int_equal(job->version, 1);
    assert_int_equal(job->stages_n, 2);
    assert_int_equal(job->stages[1].total, 10);
    assert_true(job->created_ms > 0 && job->order_ms == job->created_ms - 5000);
    assert_int_equal(job->first_segment, 1);
    assert_int_equal(job->last_segment, 1);
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .max = 100});
    assert_int_equal(read->n, 10);
    assert_slice(read->parts[0].bytes, "p0");
    assert_slice(read->parts[9].bytes, "p9");
    assert_int_equal(read->next, 10);
    kit_check(t, 1);
}

static void test_every_step_of_a_load_can_be_repeated(void **state)
{
    struct suite *t = *state;
    for (int i = 0; i < 2; i++)
        assert_err(kit_begin(t, (struct kit_job){0}), MR_OK);
    for (int i = 0; i < 2; i++)
        assert_err(kit_add(t, 1, 0, 4, 0), MR_OK);
    assert_err(kit_add(t, 1, 2, 4, 0), MR_OK); /* half of it is there */
    for (int i = 0; i < 2; i++)
        assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 6), MR_OK);
    assert_err(kit_add(t, 1, 0, 6, 0), MR_OK);
    assert_int_equal(kit_get(t, 1)->total, 6);
    assert_int_equal(kit_get(t, 1)->version, 1);
    assert_int_equal(kit_segments(t)->segments[0].parts, 6);
    kit_check(t, 1);
}

static void test_what_is_wrong_with_a_load_is_refused(void **state)
{
    struct suite *t = *state;
    assert_err(kit_begin(t, (struct kit_job){.stages = MR_JOB_STAGES_MAX + 1}), MR_INVALID);
    assert_err(kit_begin(t, (struct kit_job){.queue = ""}), MR_INVALID);
    assert_err(kit_add(t, 1, 0, 1, 0), MR_NOT_FOUND);
    assert_err(kit_begin(t, (struct kit_job){0}), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 0), MR_INVALID); /* nothing in it */
    assert_err(kit_add(t, 1, 1, 1, 0), MR_INVALID);                     /* the first is missing */
    assert_err(kit_add(t, 1, 0, 2, 0), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 3), MR_INVALID);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 2), MR_OK);
    assert_err(kit_add(t, 1, 2, 1, 0), MR_WRONG_STATE);
    assert_err(kit_begin(t, (struct kit_job){0}), MR_CONFLICT);
    assert_err(ACT(t, MR_STORE_JOB_ABORT, 1), MR_WRONG_STATE);
    assert_err(ACT(t, MR_STORE_JOB_ABORT, 2), MR_NOT_FOUND);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 2, .total = 1), MR_NOT_FOUND);
}

static void test_bytes_of_parts_are_kept_as_they_are(void **state)
{
    struct suite *t = *state;
    static char big[300000];
    memset(big, 7, sizeof big);
    struct mr_slice inputs[] = {MR_SLICE_LIT(""), MR_SLICE_LIT("a\0b\xff"),
                                mr_slice_make(big, sizeof big), MR_SLICE_LIT("end")};
    assert_err(kit_begin(t, (struct kit_job){0}), MR_OK);
    struct mr_store_parts_add add = {
        .req.op = MR_STORE_PARTS_ADD, .uid = suite_uid(1), .inputs = inputs, .n = 4};
    suite_keep_call(t, &add.req, sizeof add);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 4), MR_OK);
    struct mr_store_parts_read page = {.uid = suite_uid(1), .max = 10, .bytes_max = 1000};
    struct mr_store_parts_read *read = kit_read(t, page);
    assert_int_equal(read->n, 3); /* the page ends with the one that goes beyond */
    assert_int_equal(read->parts[0].bytes.len, 0);
    assert_true(mr_slice_equal(read->parts[1].bytes, inputs[1]));
    assert_true(mr_slice_equal(read->parts[2].bytes, inputs[2]));
    page.from = read->next;
    read = kit_read(t, page);
    assert_int_equal(read->n, 1);
    assert_slice(read->parts[0].bytes, "end");
    assert_int_equal(read->next, 4);
}

static void test_a_load_that_is_given_up_leaves_nothing(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .parts = 2500, .segment_parts = 1000, .loading = true);
    MAKE(t, .uid = 2, .parts = 10, .loading = true);
    MAKE(t, .uid = 3, .parts = 10, .retention_ms = 3600000);
    assert_err(ACT(t, MR_STORE_JOB_ABORT, 1), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_ABORT, 1), MR_OK);
    assert_err(kit_add(t, 1, 2500, 1, 0), MR_NOT_FOUND);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, 1, .total = 2500), MR_NOT_FOUND);
    struct mr_store_job_retain retain = {.load_ms = 3600000, .max = 700};
    unsigned steps = 0;
    while (kit_job_retain(t, retain)->more)
        steps++;
    assert_true(steps >= 3);
    t->engine->sql(t->engine->arg, "UPDATE job SET loaded_ms = 1000");
    assert_err(kit_begin(t, (struct kit_job){.uid = 2}), MR_OK); /* somebody has it */
    assert_int_equal(kit_job_retain(t, retain)->loads, 0);
    t->engine->sql(t->engine->arg, "UPDATE job SET loaded_ms = 1000");
    assert_int_equal(kit_job_retain(t, retain)->loads, 1);
    assert_err(kit_add(t, 2, 10, 1, 0), MR_NOT_FOUND);
    assert_false(kit_job_retain(t, retain)->more);
    assert_int_equal(kit_get(t, 3)->total, 10);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM part", 10);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM job", 1);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM job_definition", 1);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM job_range", 1);
    assert_err(kit_begin(t, (struct kit_job){.uid = 1}), MR_OK);
}

int suite_jobs_load(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_job_is_seen_from_its_commit_on_and_whole),
        SUITE_TEST(test_every_step_of_a_load_can_be_repeated),
        SUITE_TEST(test_what_is_wrong_with_a_load_is_refused),
        SUITE_TEST(test_bytes_of_parts_are_kept_as_they_are),
        SUITE_TEST(test_a_load_that_is_given_up_leaves_nothing),
    };
    return SUITE_RUN(engine, "jobs are loaded", tests);
}
