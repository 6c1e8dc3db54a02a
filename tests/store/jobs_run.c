/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on their way: submitted, ended, reduced, failed, cancelled, retried. */
#include "store/job_kit.h"

static uint64_t open_of(struct suite *t, unsigned uid, uint32_t stage)
{
    return mr_store_stage_open(&kit_get(t, uid)->stages[stage]);
}

static struct mr_store_job_act succeeded(unsigned uid, uint32_t round)
{
    return (struct mr_store_job_act){
        .uid = suite_uid(uid), .round = round, .state = MR_JOBROW_SUCCEEDED};
}

/* ---- the way through ------------------------------------------------------------------------- */

static void test_a_job_goes_from_created_to_succeeded(void **state)
{
    struct suite *t = *state;
    MAKE(t);
    assert_int_equal(kit_submit(t, 1, 0), 10);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_RUNNING);
    assert_true(job->started_ms > 0);
    assert_int_equal(job->stages[0].cursor, 10);
    assert_true(job->stages[0].sent_ms > 0);
    assert_int_equal(open_of(t, 1, 0), 10);
    kit_end_all(t, 1, 0, 0, 9);
    assert_int_equal(open_of(t, 1, 0), 1);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_RUNNING);
    kit_check(t, 1);
    kit_end_all(t, 1, 0, 9, 1);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    struct mr_store_parts_read *results =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .stage = 1, .max = 100});
    assert_int_equal(results->n, 10);
    assert_slice(results->parts[3].bytes, "r0.3");
    assert_int_equal(results->next, 10);
    for (int i = 0; i < 2; i++)
        assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(1),
                                                             .bytes = MR_SLICE_LIT("all")}),
                   MR_OK);
    struct mr_store_job_act act = succeeded(1, 0);
    act.chunks = 1;
    act.bytes = 3;
    for (int i = 0; i < 2; i++)
        assert_err(kit_act(t, MR_STORE_JOB_END, act), MR_OK);
    job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_SUCCEEDED);
    assert_int_equal(job->result_bytes, 3);
    assert_true(job->finished_ms >= job->started_ms);
    assert_slice(kit_result(t, 1, 0, 9)->chunks[0], "all");
    assert_int_equal(kit_result(t, 1, 1, 9)->n, 0);
    assert_int_equal(kit_live(t, (struct mr_store_job_live){.max = 9})->n, 0);
    kit_check(t, 1);
}

static void test_an_outcome_is_accepted_once(void **state)
{
    struct suite *t = *state;
    MAKE(t);
    assert_err(END(t, 1, .index = 3, .bytes = MR_SLICE_LIT("first")), MR_OK);
    uint64_t version = kit_get(t, 1)->version;
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_RUNNING); /* before its cursor has moved */
    assert_err(END(t, 1, .index = 3, .bytes = MR_SLICE_LIT("second")), MR_CONFLICT);
    assert_err(END(t, 1, .index = 3, .round = 1, .bytes = MR_SLICE_LIT("third")), MR_CONFLICT);
    assert_err(END(t, 1, .index = 3, .failed = true), MR_CONFLICT);
    assert_int_equal(kit_get(t, 1)->version, version);
    assert_int_equal(kit_get(t, 1)->stages[0].done, 1);
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .stage = 1, .max = 9});
    assert_int_equal(read->n, 1);
    assert_int_equal(read->parts[0].index, 3);
    assert_slice(read->parts[0].bytes, "first");
}

static void test_each_item_of_a_batch_has_its_own_answer(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .stages = 2);
    MAKE(t, .uid = 2);
    MAKE(t, .uid = 3, .loading = true);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 2), MR_OK);
    assert_err(END(t, 1, .index = 0), MR_OK);
    struct mr_store_end items[] = {
        {.uid = suite_uid(1), .segment = 1, .index = 1},
        {.uid = suite_uid(1), .segment = 1, .index = 1}, /* twice in it */
        {.uid = suite_uid(1), .segment = 1, .index = 0}, /* there already */
        {.uid = suite_uid(1), .segment = 1, .index = 0, .stage = 1},
        {.uid = suite_uid(1), .segment = 1, .index = 5, .stage = 1}, /* it did not come there */
        {.uid = suite_uid(1), .segment = 1, .index = 10},
        {.uid = suite_uid(1), .segment = 2, .index = 2},
        {.uid = suite_uid(1), .segment = 1, .index = 2, .stage = 2},
        {.uid = suite_uid(2), .segment = 1, .index = 2}, /* cancelled */
        {.uid = suite_uid(3), .segment = 1, .index = 2}, /* loading */
        {.uid = suite_uid(9), .segment = 1, .index = 2},
        {.uid = suite_uid(1), .segment = 1, .index = UINT64_MAX},
        {.segment = 1},
    };
    static const enum mr_err expected[] = {
        MR_OK,        MR_CONFLICT,  MR_CONFLICT,  MR_OK,    MR_NOT_FOUND,
        MR_NOT_FOUND, MR_NOT_FOUND, MR_NOT_FOUND, MR_STALE, MR_NOT_FOUND,
        MR_NOT_FOUND, MR_INVALID,   MR_INVALID,
    };
    enum { N = sizeof items / sizeof *items };
    enum mr_err results[N];
    struct mr_store_parts_end end = {
        .req.op = MR_STORE_PARTS_END, .items = items, .n = N, .results = results};
    struct mr_store_parts_end *kept =
        (struct mr_store_parts_end *)suite_keep_call(t, &end.req, sizeof end);
    for (size_t i = 0; i < N; i++)
        assert_err(results[i], expected[i]);
    assert_int_equal(kept->changed.n, 1);
    assert_memory_equal(&kept->changed.jobs[0].uid, &items[0].uid, sizeof items[0].uid);
    assert_int_equal(kept->changed.jobs[0].stages[0].done, 2);
    assert_int_equal(kept->changed.jobs[0].version, kit_get(t, 1)->version);
    kit_check(t, 1);
}

static void test_a_cursor_moves_forward_from_where_it_is(void **state)
{
    struct suite *t = *state;
    struct mr_store_fence none = {0};
    MAKE(t);
    struct mr_store_advance item = {.uid = suite_uid(1), .from = 0, .to = 4, .parts = 4};
    assert_err(kit_advance(t, none, item), MR_OK);
    assert_err(kit_advance(t, none, item), MR_OK);
    assert_int_equal(kit_get(t, 1)->stages[0].sent, 4);
    item = (struct mr_store_advance){.uid = suite_uid(1), .from = 2, .to = 6, .parts = 4};
    assert_err(kit_advance(t, none, item), MR_STALE);
    item = (struct mr_store_advance){.uid = suite_uid(1), .from = 4, .to = 6, .parts = 2};
    item.round = 2;
    assert_err(kit_advance(t, none, item), MR_STALE);
    item.round = 0;
    item.to = 11;
    assert_err(kit_advance(t, none, item), MR_INVALID);
    item.stage = 1;
    assert_err(kit_advance(t, none, item), MR_INVALID);
    assert_int_equal(kit_get(t, 1)->stages[0].cursor, 4);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    item = (struct mr_store_advance){.uid = suite_uid(1), .from = 4, .to = 6, .parts = 2};
    assert_err(kit_advance(t, none, item), MR_STALE);
    item.uid = suite_uid(7);
    assert_err(kit_advance(t, none, item), MR_NOT_FOUND);
    kit_check(t, 1);
}

static void test_who_lost_the_lease_moves_and_ends_nothing(void **state)
{
    struct suite *t = *state;
    struct mr_store_lease_item lease = {
        .name = MR_SLICE_LIT("pump:q"), .owner = MR_SLICE_LIT("me"), .ttl_ms = 60000};
    uint64_t token = suite_lease_one(t, lease).token;
    struct mr_store_fence ours = {MR_SLICE_LIT("pump:q"), token};
    struct mr_store_fence old = {MR_SLICE_LIT("pump:q"), token - 1};
    MAKE(t);
    struct mr_store_advance item = {.uid = suite_uid(1), .from = 0, .to = 10, .parts = 10};
    assert_err(kit_advance(t, old, item), MR_STALE);
    assert_err(kit_advance(t, ours, item), MR_OK);
    kit_end_all(t, 1, 0, 0, 10);
    struct mr_store_result_add add = {
        .uid = suite_uid(1), .fence = old, .bytes = MR_SLICE_LIT("old")};
    assert_err(kit_chunk(t, add), MR_STALE);
    add.fence = ours;
    add.bytes = MR_SLICE_LIT("ours");
    assert_err(kit_chunk(t, add), MR_OK);
    struct mr_store_job_act act = succeeded(1, 0);
    act.fence = old;
    assert_err(kit_act(t, MR_STORE_JOB_END, act), MR_STALE);
    act.fence = ours;
    act.chunks = 1;
    assert_err(kit_act(t, MR_STORE_JOB_END, act), MR_OK);
    assert_slice(kit_result(t, 1, 0, 1)->chunks[0], "ours");
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void test_results_of_a_stage_are_the_payloads_of_the_next(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .policy = MR_JOB_FINISH, .parts = 5);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 2);
    assert_err(END(t, 1, .index = 2, .failed = true, .bytes = MR_SLICE_LIT("no")), MR_OK);
    kit_end_all(t, 1, 0, 3, 2);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_true(mr_store_stage_complete(&job->stages[0]));
    assert_int_equal(job->stages[1].total, 4);
    assert_int_equal(job->state, MR_JOBROW_RUNNING);
    assert_int_equal(job->ready_last, 0);
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .stage = 1, .max = 3});
    assert_int_equal(read->n, 3);
    assert_slice(read->parts[2].bytes, "r0.3");
    assert_int_equal(read->next, 4);
    assert_int_equal(kit_submit(t, 1, 1), 4);
    assert_int_equal(open_of(t, 1, 1), 4);
    kit_end_all(t, 1, 1, 0, 2);
    kit_end_all(t, 1, 1, 3, 2);
    job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_REDUCING);
    assert_int_equal(mr_store_job_done(job), 4);
    assert_int_equal(mr_store_job_failed(job), 1);
    kit_check(t, 1);
    read = kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1), .stage = 2, .max = 9});
    assert_int_equal(read->n, 4);
    assert_int_equal(read->parts[2].index, 3);
    assert_slice(read->parts[3].bytes, "r1.4");
    assert_int_equal(read->next, 5);
}

static void test_in_a_pipeline_a_part_goes_on_when_it_is_through(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 3, .pipeline = true, .parts = 4);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 2, 1);
    struct mr_store_ready_read *ready =
        kit_ready(t, (struct mr_store_ready_read){.uid = suite_uid(1), .max = 9});
    assert_int_equal(ready->n, 1);
    assert_int_equal(ready->parts[0].index, 2);
    assert_int_equal(ready->parts[0].stage, 1);
    assert_slice(ready->parts[0].bytes, "r0.2");
    assert_int_equal(kit_submit_ready(t, 1), 1);
    assert_int_equal(open_of(t, 1, 1), 1);
    kit_check(t, 1);
    kit_end_all(t, 1, 1, 2, 1);
    kit_end_all(t, 1, 0, 0, 2);
    assert_int_equal(kit_submit_ready(t, 1), 3);
    kit_check(t, 1);
    kit_end_all(t, 1, 2, 2, 1);
    kit_end_all(t, 1, 1, 0, 2);
    kit_end_all(t, 1, 0, 3, 1);
    kit_submit_ready(t, 1);
    kit_end_all(t, 1, 1, 3, 1);
    kit_submit_ready(t, 1);
    kit_end_all(t, 1, 2, 0, 2);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_RUNNING);
    kit_end_all(t, 1, 2, 3, 1);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    kit_check(t, 1);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void test_by_fail_fast_the_first_failure_ends_the_job(void **state)
{
    struct suite *t = *state;
    MAKE(t);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 3);
    assert_err(END(t, 1, .index = 4, .failed = true, .bytes = MR_SLICE_LIT("no paper")), MR_OK);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_FAILED);
    assert_slice(job->reason, "no paper");
    assert_true(job->finished_ms > 0);
    assert_err(END(t, 1, .index = 5), MR_STALE);
    assert_int_equal(kit_segments(t)->segments[0].open, 0);
    struct mr_store_parts_list *list =
        kit_parts(t, (struct mr_store_parts_list){
                         .uid = suite_uid(1), .states = 1u << MR_PART_SUBMITTED, .max = 99});
    assert_int_equal(list->n, 6); /* what is to be cancelled */
    list = kit_parts(t, (struct mr_store_parts_list){
                            .uid = suite_uid(1), .states = 1u << MR_PART_FAILED, .max = 99});
    assert_int_equal(list->n, 1);
    assert_slice(list->parts[0].error, "no paper");
    kit_check(t, 1);
}

static void test_a_retry_runs_what_failed_or_never_ran(void **state)
{
    struct suite *t = *state;
    struct mr_store_fence none = {0};
    MAKE(t);
    struct mr_store_advance item = {.uid = suite_uid(1), .from = 0, .to = 6, .parts = 6};
    assert_err(kit_advance(t, none, item), MR_OK);
    kit_end_all(t, 1, 0, 0, 2);
    assert_err(END(t, 1, .index = 3, .failed = true), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1, .round = 2), MR_STALE);
    for (int i = 0; i < 2; i++)
        assert_err(ACT(t, MR_STORE_JOB_RETRY, 1, .round = 0), MR_OK);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_RUNNING);
    assert_int_equal(job->round, 2);
    assert_int_equal(job->reason.len, 0);
    assert_int_equal(job->finished_ms, 0);
    assert_int_equal(mr_store_job_failed(job), 0);
    assert_int_equal(kit_segments(t)->segments[0].open, 1);
    /* What was submitted with the old round counts when it succeeds, not when it fails. */
    assert_err(END(t, 1, .index = 3, .failed = true), MR_STALE);
    assert_err(END(t, 1, .index = 4), MR_OK);
    struct mr_store_ready_read *ready =
        kit_ready(t, (struct mr_store_ready_read){.uid = suite_uid(1), .max = 9});
    assert_int_equal(ready->n, 3); /* 2, 3 and 5 */
    assert_int_equal(ready->parts[1].index, 3);
    assert_int_equal(ready->parts[1].round, 2);
    assert_slice(ready->parts[1].bytes, "p3");
    kit_check(t, 1);
    item = (struct mr_store_advance){.uid = suite_uid(1), .from = 6, .to = 10, .parts = 4};
    assert_err(kit_advance(t, none, item), MR_STALE); /* of the round before */
    assert_int_equal(kit_submit_ready(t, 1), 3);
    assert_int_equal(kit_submit(t, 1, 0), 4);
    kit_check(t, 1);
    assert_err(END(t, 1, .index = 2, .round = 2), MR_OK);
    assert_err(END(t, 1, .index = 3, .round = 2), MR_OK);
    kit_end_all(t, 1, 0, 5, 5);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 0)), MR_STALE);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 2)), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1, .round = 2), MR_WRONG_STATE);
    kit_check(t, 1);
}

static void test_a_retry_goes_on_in_the_stages_behind(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .policy = MR_JOB_FINISH, .parts = 4);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 3);
    assert_err(END(t, 1, .index = 3, .failed = true), MR_OK);
    kit_submit(t, 1, 1);
    kit_end_all(t, 1, 1, 0, 2);
    assert_err(END(t, 1, .index = 2, .stage = 1, .failed = true), MR_OK);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_WRONG_STATE);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 0)), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_OK);
    kit_check(t, 1);
    assert_int_equal(kit_submit_ready(t, 1), 2);
    kit_end_all(t, 1, 0, 3, 1);
    assert_int_equal(kit_submit_ready(t, 1), 1); /* its next stage has passed it */
    kit_check(t, 1);
    kit_end_all(t, 1, 1, 2, 2);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_int_equal(mr_store_job_done(kit_get(t, 1)), 4);
    kit_check(t, 1);
}

static void test_a_reduce_that_failed_is_retried_without_its_parts(void **state)
{
    struct suite *t = *state;
    MAKE(t);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 10);
    assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(1),
                                                         .bytes = MR_SLICE_LIT("half")}),
               MR_OK);
    assert_err(
        ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_FAILED, .reason = MR_SLICE_LIT("exit 1")),
        MR_OK);
    assert_slice(kit_get(t, 1)->reason, "exit 1");
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_OK);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(1)}), MR_STALE);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 2)), MR_OK);
    assert_int_equal(kit_result(t, 1, 0, 9)->n, 0);
}

static void test_a_job_is_cancelled_once_and_late_results_are_discarded(void **state)
{
    struct suite *t = *state;
    MAKE(t);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 3);
    for (int i = 0; i < 2; i++)
        assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1, .reason = MR_SLICE_LIT("enough")), MR_OK);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_CANCELLED);
    assert_slice(kit_get(t, 1)->reason, "enough");
    assert_err(END(t, 1, .index = 3), MR_STALE);
    assert_int_equal(kit_get(t, 1)->stages[0].done, 3);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 0)), MR_WRONG_STATE);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 2), MR_NOT_FOUND);
    assert_err(ACT(t, MR_STORE_JOB_RETRY, 1), MR_OK);
    assert_int_equal(kit_submit_ready(t, 1), 7);
    kit_check(t, 1);
    kit_end_all(t, 1, 0, 3, 7);
    assert_err(kit_act(t, MR_STORE_JOB_END, succeeded(1, 2)), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_WRONG_STATE);
}

/* ---- again ----------------------------------------------------------------------------------- */

static void test_a_part_whose_task_is_gone_is_submitted_again(void **state)
{
    struct suite *t = *state;
    struct mr_store_again item = {.index = 4, .segment = 1};
    MAKE(t);
    assert_err(kit_again(t, 1, 0, item), MR_STALE); /* it was not submitted */
    kit_submit(t, 1, 0);
    for (int i = 0; i < 2; i++)
        assert_err(kit_again(t, 1, 0, item), MR_OK);
    assert_int_equal(open_of(t, 1, 0), 9);
    kit_check(t, 1);
    struct mr_store_ready_read *ready =
        kit_ready(t, (struct mr_store_ready_read){.uid = suite_uid(1), .max = 9});
    assert_int_equal(ready->n, 1);
    assert_int_equal(ready->parts[0].round, 0);
    assert_int_equal(kit_submit_ready(t, 1), 1);
    assert_int_equal(open_of(t, 1, 0), 10);
    kit_end_all(t, 1, 0, 4, 1);
    assert_err(kit_again(t, 1, 0, item), MR_STALE);
    assert_err(kit_again(t, 1, 2, item), MR_STALE);
    item.index = 10;
    assert_err(kit_again(t, 1, 0, item), MR_STALE);
    assert_err(kit_again(t, 5, 0, item), MR_NOT_FOUND);
    kit_check(t, 1);
}

static void test_a_part_has_one_second_task_in_a_round(void **state)
{
    struct suite *t = *state;
    struct mr_store_again item = {.index = 4, .segment = 1, .kind = MR_AGAIN_SECOND};
    MAKE(t);
    kit_submit(t, 1, 0);
    for (int i = 0; i < 2; i++)
        assert_err(kit_again(t, 1, 0, item), MR_OK);
    assert_int_equal(open_of(t, 1, 0), 10);
    struct mr_store_ready_read *ready =
        kit_ready(t, (struct mr_store_ready_read){.uid = suite_uid(1), .max = 9});
    assert_int_equal(ready->n, 1);
    assert_int_equal(ready->parts[0].round, 1);
    assert_int_equal(kit_submit_ready(t, 1), 1);
    assert_int_equal(open_of(t, 1, 0), 10);
    assert_err(kit_again(t, 1, 0, item), MR_CONFLICT);
    struct mr_store_parts_list *list =
        kit_parts(t, (struct mr_store_parts_list){.uid = suite_uid(1), .from = 4, .max = 1});
    assert_true(list->parts[0].again);
    assert_int_equal(list->parts[0].state, MR_PART_SUBMITTED);
    /* When it fails, the first one goes on. */
    assert_err(END(t, 1, .index = 4, .round = 1, .failed = true), MR_STALE);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_RUNNING);
    assert_err(END(t, 1, .index = 4, .round = 1), MR_OK);
    assert_err(END(t, 1, .index = 4, .round = 0), MR_CONFLICT);
    kit_check(t, 1);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* What a person may do to the table of counters, in the middle of everything. */
static void test_107_counters_that_were_deleted_are_made_anew_from_outcomes(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .policy = MR_JOB_FINISH, .parts = 50, .segment_parts = 20);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 10);
    kit_end_all(t, 1, 0, 30, 5);
    assert_err(END(t, 1, .index = 12, .failed = true), MR_OK);
    struct mr_store_stage before = kit_get(t, 1)->stages[0];
    t->engine->sql(t->engine->arg, "DELETE FROM job_stage");
    t->engine->sql(t->engine->arg, "UPDATE job_range SET ended = 0");
    struct mr_store_stage seen = kit_get(t, 1)->stages[0];
    assert_int_equal(seen.done, before.done);
    assert_int_equal(seen.failed, before.failed);
    assert_int_equal(kit_get(t, 1)->stages[1].total, 49);
    kit_end_all(t, 1, 0, 40, 1);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->stages[0].done, 16);
    assert_int_equal(job->stages[0].failed, 1);
    assert_int_equal(job->stages[0].cursor, 35);
    kit_check(t, 1);
    /* Everything is submitted again that has no outcome, and nothing else. */
    uint64_t again = kit_submit_ready(t, 1) + kit_submit(t, 1, 0);
    assert_int_equal(again, 50 - 16 + 1 - 1);
    kit_end_all(t, 1, 0, 10, 2);
    kit_end_all(t, 1, 0, 13, 17);
    kit_end_all(t, 1, 0, 35, 5);
    kit_end_all(t, 1, 0, 41, 9);
    assert_true(mr_store_stage_complete(&kit_get(t, 1)->stages[0]));
    kit_submit(t, 1, 1);
    t->engine->sql(t->engine->arg, "DELETE FROM job_stage WHERE stage = 1");
    kit_end_all(t, 1, 1, 0, 12);
    kit_end_all(t, 1, 1, 13, 37);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_int_equal(kit_segments(t)->begin, kit_segments(t)->end);
    kit_check(t, 1);
}

int suite_jobs_run(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_job_goes_from_created_to_succeeded),
        SUITE_TEST(test_an_outcome_is_accepted_once),
        SUITE_TEST(test_each_item_of_a_batch_has_its_own_answer),
        SUITE_TEST(test_a_cursor_moves_forward_from_where_it_is),
        SUITE_TEST(test_who_lost_the_lease_moves_and_ends_nothing),
        SUITE_TEST(test_results_of_a_stage_are_the_payloads_of_the_next),
        SUITE_TEST(test_in_a_pipeline_a_part_goes_on_when_it_is_through),
        SUITE_TEST(test_by_fail_fast_the_first_failure_ends_the_job),
        SUITE_TEST(test_a_retry_runs_what_failed_or_never_ran),
        SUITE_TEST(test_a_retry_goes_on_in_the_stages_behind),
        SUITE_TEST(test_a_reduce_that_failed_is_retried_without_its_parts),
        SUITE_TEST(test_a_job_is_cancelled_once_and_late_results_are_discarded),
        SUITE_TEST(test_a_part_whose_task_is_gone_is_submitted_again),
        SUITE_TEST(test_a_part_has_one_second_task_in_a_round),
        SUITE_TEST(test_107_counters_that_were_deleted_are_made_anew_from_outcomes),
    };
    return SUITE_RUN(engine, "jobs run", tests);
}
