/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at jobs, their versions and their parts. */
#include <stdio.h>

#include "store/job_kit.h"

static void test_jobs_are_listed_newest_first(void **state)
{
    struct suite *t = *state;
    for (unsigned uid = 1; uid <= 5; uid++)
        MAKE(t, .uid = uid, .queue = uid % 2 == 0 ? "even" : "odd", .definition = "d");
    MAKE(t, .uid = 6, .loading = true);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 2), MR_OK);
    struct mr_store_job_list *list = kit_list(t, (struct mr_store_job_list){.max = 3});
    assert_int_equal(list->n, 3);
    assert_true(list->more);
    struct mr_uuid uid = suite_uid(5);
    assert_memory_equal(&list->jobs[0].uid, &uid, sizeof uid);
    assert_slice(list->jobs[0].definition, "d");
    list = kit_list(
        t, (struct mr_store_job_list){.max = 3, .before = list->jobs[2].no, .brief = true});
    assert_int_equal(list->n, 2);
    assert_false(list->more);
    assert_int_equal(list->jobs[0].definition.len, 0);
    uid = suite_uid(1);
    assert_memory_equal(&list->jobs[1].uid, &uid, sizeof uid);
    list = kit_list(t, (struct mr_store_job_list){.max = 9, .queue = MR_SLICE_LIT("even")});
    assert_int_equal(list->n, 2);
    list = kit_list(
        t, (struct mr_store_job_list){.max = 9, .states = MR_JOBROW_BIT(MR_JOBROW_CANCELLED)});
    assert_int_equal(list->n, 1);
    list = kit_list(t, (struct mr_store_job_list){.max = 9, .states = ~0u});
    assert_int_equal(list->n, 5);
}

static void test_many_jobs_are_got_at_once(void **state)
{
    struct suite *t = *state;
    struct mr_uuid uids[] = {suite_uid(2), suite_uid(9), suite_uid(1), suite_uid(3)};
    MAKE(t, .uid = 1, .stages = 3);
    MAKE(t, .uid = 2);
    MAKE(t, .uid = 3, .loading = true);
    struct mr_store_job_get get = {.req.op = MR_STORE_JOB_GET, .uids = uids, .n = 4, .brief = true};
    struct mr_store_job *jobs =
        ((struct mr_store_job_get *)suite_keep_call(t, &get.req, sizeof get))->jobs;
    assert_int_equal(jobs[0].stages_n, 1);
    assert_int_equal(jobs[1].state, MR_JOBROW_NONE);
    assert_int_equal(jobs[2].stages_n, 3);
    assert_memory_equal(&jobs[2].uid, &uids[2], sizeof uids[2]);
    assert_int_equal(jobs[3].state, MR_JOBROW_NONE);
}

static void test_queues_with_live_jobs_are_listed(void **state)
{
    struct suite *t = *state;
    MAKE(t, .uid = 1, .queue = "b");
    MAKE(t, .uid = 2, .queue = "a");
    MAKE(t, .uid = 3, .queue = "b");
    MAKE(t, .uid = 4, .queue = "c");
    MAKE(t, .uid = 5, .queue = "d", .loading = true);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 4), MR_OK);
    struct mr_store_job_queues queues = {.req.op = MR_STORE_JOB_QUEUES, .max = 1};
    struct mr_store_job_queues *page =
        (struct mr_store_job_queues *)suite_keep_call(t, &queues.req, sizeof queues);
    assert_int_equal(page->n, 1);
    assert_true(page->more);
    assert_slice(page->queues[0], "a");
    queues.after = MR_SLICE_LIT("a");
    page = (struct mr_store_job_queues *)suite_keep_call(t, &queues.req, sizeof queues);
    assert_int_equal(page->n, 1);
    assert_slice(page->queues[0], "b");
    assert_false(page->more);
}

static void test_every_version_of_a_job_can_be_read(void **state)
{
    struct suite *t = *state;
    MAKE(t, .policy = MR_JOB_FINISH);
    kit_submit(t, 1, 0);
    for (uint64_t i = 0; i < 9; i++)
        kit_end_all(t, 1, 0, i, 1);
    assert_err(END(t, 1, .index = 9, .failed = true), MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_FAILED, .reason = MR_SLICE_LIT("x")),
               MR_OK);
    struct mr_store_job_events *events = kit_events(t, 1, 0, 5);
    assert_int_equal(events->n, 5);
    assert_true(events->more);
    assert_int_equal(events->jobs[0].state, MR_JOBROW_CREATED);
    assert_int_equal(events->jobs[0].stages[0].sent, 0);
    assert_int_equal(events->jobs[1].state, MR_JOBROW_RUNNING);
    assert_int_equal(events->jobs[1].stages[0].sent, 10);
    assert_int_equal(events->jobs[4].stages[0].done, 3);
    assert_int_equal(events->jobs[4].total, 10);
    events = kit_events(t, 1, 5, 100);
    assert_int_equal(events->n, 8);
    assert_int_equal(events->jobs[0].version, 6);
    assert_int_equal(events->jobs[6].state, MR_JOBROW_REDUCING);
    assert_int_equal(events->jobs[6].stages[0].failed, 1);
    assert_int_equal(events->jobs[7].state, MR_JOBROW_FAILED);
    assert_slice(events->jobs[7].reason, "x");
    assert_true(events->jobs[7].finished_ms > 0 && events->jobs[6].finished_ms == 0);
    assert_int_equal(kit_events(t, 1, 13, 100)->n, 0);
    struct mr_store_job_events none = {
        .req.op = MR_STORE_JOB_EVENTS, .uid = suite_uid(2), .max = 1};
    assert_err(mr_store_call(t->store, &none.req), MR_NOT_FOUND);
    mr_store_req_done(&none.req);
}

static void test_old_versions_are_forgotten(void **state)
{
    struct suite *t = *state;
    char text[64];
    MAKE(t);
    for (uint64_t i = 0; i < 3; i++)
        kit_end_all(t, 1, 0, i, 1);
    /* As if there had been so many in between. */
    (void)snprintf(text, sizeof text, "UPDATE job SET version = %d", MR_STORE_EVENTS_KEPT + 1);
    t->engine->sql(t->engine->arg, text);
    kit_end_all(t, 1, 0, 3, 2);
    struct mr_store_job_events *events = kit_events(t, 1, 0, 9);
    assert_int_equal(events->n, 3);
    assert_int_equal(events->jobs[0].version, 3);
    assert_int_equal(events->jobs[2].version, MR_STORE_EVENTS_KEPT + 2);
}

static void test_parts_are_listed_by_how_they_stand(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .pipeline = true, .policy = MR_JOB_FINISH, .parts = 30,
         .segment_parts = 8);
    struct mr_store_advance item = {.uid = suite_uid(1), .to = 20, .parts = 20};
    assert_err(kit_advance(t, (struct mr_store_fence){0}, item), MR_OK);
    kit_end_all(t, 1, 0, 0, 10);
    assert_int_equal(kit_submit_ready(t, 1), 10);
    kit_end_all(t, 1, 1, 0, 8); /* all of the first segment */
    assert_err(END(t, 1, .index = 12, .segment = 2, .failed = true, .bytes = MR_SLICE_LIT("why")),
               MR_OK);
    kit_end_all(t, 1, 0, 15, 2);
    static const struct {
        enum mr_part_state state;
        size_t n;
        uint64_t first;
        uint32_t stage;
    } expected[] = {
        {MR_PART_WAITING, 12, 15, 1}, /* 15 and 16 in stage 1, 20..29 in stage 0 */
        {MR_PART_SUBMITTED, 9, 8,
         1}, /* 8 and 9 in stage 1; 10, 11, 13, 14, 17, 18, 19 in stage 0 */
        {MR_PART_DONE, 8, 0, 1},
        {MR_PART_FAILED, 1, 12, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct mr_store_parts_list *list =
            kit_parts(t, (struct mr_store_parts_list){
                             .uid = suite_uid(1), .states = 1u << expected[i].state, .max = 100});
        assert_int_equal(list->n, expected[i].n);
        assert_int_equal(list->parts[0].index, expected[i].first);
        assert_int_equal(list->parts[0].stage, expected[i].stage);
        assert_int_equal(list->parts[0].segment, 1 + expected[i].first / 8);
        assert_int_equal(list->next, 30);
    }
    /* Indexes are looked at a few at a time; those of a segment that is through cost nothing. */
    struct mr_store_parts_list *list =
        kit_parts(t, (struct mr_store_parts_list){
                         .uid = suite_uid(1), .states = 1u << MR_PART_SUBMITTED, .max = 3});
    assert_int_equal(list->n, 3);
    assert_int_equal(list->next, 11);
    list = kit_parts(t, (struct mr_store_parts_list){
                            .uid = suite_uid(1), .states = 1u << MR_PART_FAILED, .max = 3});
    assert_int_equal(list->n, 0);
    assert_int_equal(list->next, 3);
    list = kit_parts(t, (struct mr_store_parts_list){.uid = suite_uid(1), .from = 12, .max = 1});
    assert_slice(list->parts[0].error, "why");
    assert_true(list->parts[0].finished_ms > 0);
    kit_check(t, 1);
}

static void test_pages_of_the_ready_list_are_bounded(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .pipeline = true, .parts = 200, .segment_parts = 90);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 200);
    struct mr_store_ready_read page = {.uid = suite_uid(1), .max = 1000, .bytes_max = 10};
    size_t sum = 0;
    for (uint64_t last = kit_get(t, 1)->ready_last; page.after < last;) {
        struct mr_store_ready_read *read = kit_ready(t, page);
        assert_true(read->n > 0 && read->n <= 64);
        for (size_t i = 0; i < read->n; i++)
            assert_int_equal(read->parts[i].index, sum++);
        page.after = read->next;
    }
    assert_int_equal(sum, 200);
}

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void test_a_look_that_is_submitted_behind_a_change_sees_it(void **state)
{
    enum { ENDS = 8 };
    struct suite *t = *state;
    struct mr_store_end items[ENDS];
    struct mr_store_parts_end ends[ENDS];
    struct mr_store_job_get gets[ENDS];
    enum mr_err results[ENDS];
    struct mr_event answered[2 * ENDS];
    struct mr_uuid uid = suite_uid(1);
    MAKE(t);
    for (size_t i = 0; i < ENDS; i++) {
        mr_event_init(&answered[2 * i]);
        mr_event_init(&answered[2 * i + 1]);
        items[i] = (struct mr_store_end){.uid = uid, .index = i, .segment = 1};
        ends[i] = (struct mr_store_parts_end){
            .req = {.op = MR_STORE_PARTS_END, .done = set_event, .arg = &answered[2 * i]},
            .items = &items[i],
            .n = 1,
            .results = &results[i]};
        gets[i] = (struct mr_store_job_get){
            .req = {.op = MR_STORE_JOB_GET, .done = set_event, .arg = &answered[2 * i + 1]},
            .uids = &uid,
            .n = 1};
        mr_store_submit(t->store, &ends[i].req);
        mr_store_submit(t->store, &gets[i].req);
    }
    for (size_t i = 0; i < 2 * ENDS; i++)
        assert_true(mr_event_wait(&answered[i], SUITE_WAIT_MS * MR_NS_PER_MS));
    for (size_t i = 0; i < ENDS; i++) {
        assert_err(results[i], MR_OK);
        assert_int_equal(gets[i].jobs[0].stages[0].done, i + 1);
        mr_store_req_done(&ends[i].req);
        mr_store_req_done(&gets[i].req);
    }
    kit_check(t, 1);
}

/* Whatever shares a transaction with it: what it says of a version is what is kept of that. */
static void test_a_settled_look_sees_whole_versions(void **state)
{
    enum { ROUNDS = 40, ENDS = 2 };
    struct suite *t = *state;
    struct mr_uuid uid = suite_uid(1);
    MAKE(t, .parts = ROUNDS * ENDS + 1);
    for (size_t round = 0; round < ROUNDS; round++) {
        struct mr_store_end items[ENDS];
        struct mr_store_parts_end ends[ENDS];
        enum mr_err results[ENDS];
        struct mr_event answered[ENDS + 1];
        struct mr_store_job_get get = {
            .req = {.op = MR_STORE_JOB_GET, .done = set_event, .arg = &answered[ENDS]},
            .uids = &uid,
            .n = 1,
            .settled = true};
        mr_event_init(&answered[ENDS]);
        for (size_t i = 0; i < ENDS; i++) {
            mr_event_init(&answered[i]);
            items[i] = (struct mr_store_end){.uid = uid, .index = round * ENDS + i, .segment = 1};
            ends[i] = (struct mr_store_parts_end){
                .req = {.op = MR_STORE_PARTS_END, .done = set_event, .arg = &answered[i]},
                .items = &items[i],
                .n = 1,
                .results = &results[i]};
        }
        mr_store_submit(t->store, &ends[0].req);
        mr_store_submit(t->store, &get.req);
        mr_store_submit(t->store, &ends[1].req);
        for (size_t i = 0; i <= ENDS; i++)
            assert_true(mr_event_wait(&answered[i], SUITE_WAIT_MS * MR_NS_PER_MS));
        const struct mr_store_job *seen = &get.jobs[0];
        struct mr_store_job_events *kept = kit_events(t, 1, seen->version - 1, 1);
        assert_int_equal(kept->n, 1);
        assert_int_equal(kept->jobs[0].version, seen->version);
        assert_int_equal(kept->jobs[0].stages[0].done, seen->stages[0].done);
        for (size_t i = 0; i < ENDS; i++)
            mr_store_req_done(&ends[i].req);
        mr_store_req_done(&get.req);
    }
    kit_check(t, 1);
}

int suite_jobs_look(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_jobs_are_listed_newest_first),
        SUITE_TEST(test_many_jobs_are_got_at_once),
        SUITE_TEST(test_queues_with_live_jobs_are_listed),
        SUITE_TEST(test_every_version_of_a_job_can_be_read),
        SUITE_TEST(test_old_versions_are_forgotten),
        SUITE_TEST(test_parts_are_listed_by_how_they_stand),
        SUITE_TEST(test_pages_of_the_ready_list_are_bounded),
        SUITE_TEST(test_a_look_that_is_submitted_behind_a_change_sees_it),
        SUITE_TEST(test_a_settled_look_sees_whole_versions),
    };
    return SUITE_RUN(engine, "looking at jobs", tests);
}
