/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: begin..end, where parts are, and what is dropped. Numbers are those of the acceptance tests. */
#include <stdio.h>

#include "base/rand.h"
#include "store/job_kit.h"

static void check_range(struct suite *t, uint64_t begin, uint64_t end)
{
    struct mr_store_segments *segments = kit_segments(t);
    assert_int_equal(segments->begin, begin);
    assert_int_equal(segments->end, end);
    /* None is missing, and there is none beside. */
    for (size_t i = 0; i < segments->n; i++)
        assert_int_equal(segments->segments[i].n, end + 1 - segments->n + i);
}

static void end_one(struct suite *t, unsigned uid, uint64_t index)
{
    assert_err(END(t, uid, .index = index, .segment = kit_segment_of(t, uid, index)), MR_OK);
}

static void finish(struct suite *t, unsigned uid)
{
    const struct mr_store_job *job = kit_get(t, uid);
    assert_err(ACT(t, MR_STORE_JOB_END, uid, .round = job->round, .state = MR_JOBROW_SUCCEEDED),
               MR_OK);
}

static void test_112_at_the_start_begin_and_end_are_1(void **state)
{
    struct suite *t = *state;
    check_range(t, 1, 1);
    assert_int_equal(kit_segments(t)->segments[0].parts, 0);
    assert_true(kit_segments(t)->segments[0].created_ms > 0);
}

static void test_113_at_the_threshold_the_next_segment_is_made(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .parts = 999, .segment_parts = 1000);
    check_range(t, 1, 1);
    MAKE(t, .uid = 2, .parts = 1, .segment_parts = 1000);
    check_range(t, 1, 2);
    assert_int_equal(kit_segments(t)->segments[0].parts, 1000);
    assert_int_equal(kit_segment_of(t, 2, 0), 1);
    MAKE(t, .uid = 3, .parts = 1, .segment_parts = 1000);
    assert_int_equal(kit_segment_of(t, 3, 0), 2);
    check_range(t, 1, 2);
}

static void test_113_one_request_can_fill_many_segments(void **state)
{
    struct suite *t = *state;
    MAKE(t, .parts = 100, .segment_parts = 7);
    check_range(t, 1, 15);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->first_segment, 1);
    assert_int_equal(job->last_segment, 15);
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .max = 100});
    assert_int_equal(read->n, 100);
    for (size_t i = 0; i < 100; i++) {
        char text[8];
        (void)snprintf(text, sizeof text, "p%zu", i);
        assert_int_equal(read->parts[i].index, i);
        assert_int_equal(read->parts[i].segment, 1 + i / 7);
        assert_slice(read->parts[i].bytes, text);
    }
    kit_check(t, 1);
}

static void test_114_begin_moves_when_every_part_of_it_has_ended(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .policy = MR_JOB_FINISH, .parts = 10, .segment_parts = 5);
    check_range(t, 1, 3);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 9);
    assert_err(END(t, 1, .index = 9, .segment = 2, .failed = true), MR_OK);
    check_range(t, 1, 3); /* they have another stage before them */
    kit_submit(t, 1, 1);
    kit_end_all(t, 1, 1, 0, 4);
    check_range(t, 1, 3);
    assert_err(END(t, 1, .index = 4, .segment = 1, .stage = 1, .failed = true), MR_OK);
    check_range(t, 2, 3);
    kit_end_all(t, 1, 1, 5, 4);
    check_range(t, 3, 3);
    finish(t, 1);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_OK);
    check_range(t, 1, 3); /* what failed runs again */
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    check_range(t, 3, 3);
}

static void test_115_jobs_are_in_the_order_of_their_keys_over_all_segments(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .parts = 5, .segment_parts = 5);
    MAKE(t, .uid = 2, .parts = 5, .segment_parts = 5, .priority_ms = 3600000);
    MAKE(t, .uid = 3, .parts = 5, .segment_parts = 5, .priority_ms = -3600000);
    MAKE(t, .uid = 4, .parts = 5, .segment_parts = 5, .queue = "other");
    struct mr_store_job_live *live = kit_live(t, (struct mr_store_job_live){.max = 2});
    assert_int_equal(live->n, 2);
    assert_true(live->more);
    assert_int_equal(live->jobs[0].first_segment, 2); /* the one with priority */
    assert_int_equal(live->jobs[1].first_segment, 1);
    live = kit_live(t, (struct mr_store_job_live){.max = 2,
                                                  .after_ms = live->jobs[1].order_ms,
                                                  .after_no = live->jobs[1].no});
    assert_int_equal(live->n, 1);
    assert_false(live->more);
    assert_int_equal(live->jobs[0].first_segment, 3);
    /* One that lasts in segment 1 keeps nobody from being served. */
    kit_submit(t, 3, 0);
    kit_end_all(t, 3, 0, 0, 5);
    assert_int_equal(kit_get(t, 3)->state, MR_JOBROW_REDUCING);
    check_range(t, 1, 5);
}

static void test_116_a_result_finds_its_part_in_an_old_segment(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .parts = 25, .segment_parts = 10);
    kit_submit(t, 1, 0);
    MAKE(t, .uid = 2, .parts = 30, .segment_parts = 10);
    check_range(t, 1, 6);
    for (uint64_t i = 25; i-- > 0;)
        end_one(t, 1, i);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .stage = 1, .max = 100});
    assert_int_equal(read->n, 25);
    for (size_t i = 0; i < 25; i++)
        assert_int_equal(read->parts[i].index, i);
    kit_check(t, 1);
}

static void test_117_begin_moves_past_several_at_once(void **state)
{
    enum { SEGMENTS = 10, EACH = 2, PARTS = SEGMENTS * EACH };
    struct suite *t = *state;
    struct mr_rand rand;
    uint64_t order[PARTS];
    unsigned left[SEGMENTS + 2] = {0};
    MAKE(t, .parts = PARTS, .segment_parts = EACH);
    check_range(t, 1, SEGMENTS + 1);
    kit_submit(t, 1, 0);
    mr_rand_seed(&rand, suite_size("MR_SEED", 117));
    for (uint64_t i = 0; i < PARTS; i++) {
        uint64_t j = mr_rand_below(&rand, i + 1);
        order[i] = order[j];
        order[j] = i;
        left[1 + i / EACH]++;
    }
    for (size_t i = 0; i < PARTS; i++) {
        end_one(t, 1, order[i]);
        left[1 + order[i] / EACH]--;
        uint64_t begin = 1;
        while (begin <= SEGMENTS && left[begin] == 0)
            begin++;
        check_range(t, begin, SEGMENTS + 1);
    }
}

/* ---- retention ------------------------------------------------------------------------------- */

static void test_121_the_oldest_cold_segments_are_dropped_and_no_others(void **state)
{
    struct suite *t = *state;
    for (unsigned uid = 1; uid <= 4; uid++)
        MAKE(t, .uid = uid, .parts = 10, .segment_parts = 10);
    MAKE(t, .uid = 5, .parts = 5, .segment_parts = 10);
    for (unsigned uid = 1; uid <= 4; uid++)
        kit_submit(t, uid, 0);
    kit_end_all(t, 1, 0, 0, 10);
    kit_end_all(t, 2, 0, 0, 10);
    kit_end_all(t, 4, 0, 0, 10);
    finish(t, 2);
    finish(t, 4);
    check_range(t, 3, 5);
    assert_int_equal(kit_segment_retain(t, 0, 100)->segments,
                     0); /* job 1 needs its results still */
    finish(t, 1);
    assert_int_equal(kit_segment_retain(t, 3600000, 100)->segments, 0); /* not old enough */
    unsigned dropped = 0;
    struct mr_store_segment_retain *retain = NULL;
    do {
        retain = kit_segment_retain(t, 0, 7);
        dropped += (unsigned)retain->segments;
    } while (retain->more);
    assert_int_equal(dropped, 2); /* 4 is cold, but behind 3 */
    check_range(t, 3, 5);
    assert_int_equal(kit_segments(t)->n, 3);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM part WHERE segment <= 2", 0);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM outcome", 10);
    /* What is left of the job is there, and says that its parts are gone. */
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_SUCCEEDED);
    struct mr_store_parts_list *list =
        kit_parts(t, (struct mr_store_parts_list){.uid = suite_uid(1), .max = 99});
    assert_int_equal(list->n, 0);
    assert_int_equal(list->next, 10);
    assert_err(END(t, 1, .index = 1, .segment = 1), MR_STALE);
    kit_check(t, 3);
}

static void test_a_job_whose_parts_are_gone_cannot_be_retried(void **state)
{
    struct suite *t = *state;
    MAKE(t, .parts = 10, .segment_parts = 5);
    kit_submit(t, 1, 0);
    assert_err(END(t, 1, .index = 7, .segment = 2, .failed = true), MR_OK);
    while (kit_segment_retain(t, 0, 100)->more)
        ;
    check_range(t, 3, 3);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_EMPTY);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_FAILED);
    struct mr_store_parts_read read = {
        .req.op = MR_STORE_PARTS_READ, .uid = suite_uid(1), .max = 9};
    assert_err(mr_store_call(t->store, &read.req), MR_EMPTY);
    mr_store_req_done(&read.req);
}

static void test_jobs_go_with_all_that_is_theirs_when_their_time_is_over(void **state)
{
    struct suite *t = *state;
    static const char *const tables[] = {"job",       "job_definition", "job_stage",
                                         "job_event", "job_result",     "job_range",
                                         "ready",     "part",           "outcome"};
    MAKE(t, .uid = 1, .stages = 2, .pipeline = true, .parts = 500, .segment_parts = 200,
         .retention_ms = 1);
    MAKE(t, .uid = 2, .parts = 10, .retention_ms = 3600000);
    MAKE(t, .uid = 3, .parts = 10); /* kept for ever */
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 500);
    kit_submit_ready(t, 1);
    kit_end_all(t, 1, 1, 0, 500);
    assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(1),
                                                         .bytes = MR_SLICE_LIT("result")}),
               MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_SUCCEEDED, .chunks = 1), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 2), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 3), MR_OK);
    struct mr_store_job_retain retain = {.max = 60};
    size_t ended = 0;
    WAIT_UNTIL((ended += kit_job_retain(t, retain)->ended) > 0);
    assert_int_equal(ended, 1);
    assert_int_equal(kit_get(t, 1)->state,
                     MR_JOBROW_NONE); /* at once, though much is there still */
    assert_err(END(t, 1, .index = 1), MR_NOT_FOUND);
    unsigned steps = 0;
    while (kit_job_retain(t, retain)->more)
        steps++;
    assert_true(steps >= 500 / 60 - 1);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char text[100];
        (void)snprintf(text, sizeof text, "SELECT count(*) FROM %s WHERE %s = 1", tables[i],
                       i == 0 ? "no" : "job");
        t->engine->check(t->engine->arg, text, 0);
    }
    kit_check(t, 2);
    kit_check(t, 3);
}

int suite_jobs_segments(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_112_at_the_start_begin_and_end_are_1),
        SUITE_TEST(test_113_at_the_threshold_the_next_segment_is_made),
        SUITE_TEST(test_113_one_request_can_fill_many_segments),
        SUITE_TEST(test_114_begin_moves_when_every_part_of_it_has_ended),
        SUITE_TEST(test_115_jobs_are_in_the_order_of_their_keys_over_all_segments),
        SUITE_TEST(test_116_a_result_finds_its_part_in_an_old_segment),
        SUITE_TEST(test_117_begin_moves_past_several_at_once),
        SUITE_TEST(test_121_the_oldest_cold_segments_are_dropped_and_no_others),
        SUITE_TEST(test_a_job_whose_parts_are_gone_cannot_be_retried),
        SUITE_TEST(test_jobs_go_with_all_that_is_theirs_when_their_time_is_over),
    };
    return SUITE_RUN(engine, "segments", tests);
}
