/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs to their end: progress, stages, luck, results. */
#include <stdio.h>

#include "base/rand.h"
#include "jobs/child.h"
#include "jobs/rig.h"

/* ---- 103 ------------------------------------------------------------------------------------- */

static void test_103_a_job_of_100_parts_to_its_end(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct mr_job_health health;
    (void)state;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(), "part %zu\n", 100, id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_work(rig, 0, 4);
    rig_watch_await_end(watch);
    assert_int_equal(watch->state, MR_JOB_SUCCEEDED);
    assert_int_equal(watch->remaining[0], 100);
    assert_int_equal(watch->remaining[watch->events - 1], 0);
    rig_check_result(rig, id, "part %zu\n", 100);
    rig_health(rig, 0, &health);
    assert_int_equal(health.reduced, 1);
    assert_int_equal(health.parts_done, 100);
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_103_with_one_worker_every_single_end_can_be_seen(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(), "sleep 20 %zu\n", 20, id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_work(rig, 0, 1);
    rig_watch_await_end(watch);
    bool seen[21] = {false};
    for (size_t i = 0; i < watch->events; i++)
        seen[watch->remaining[i]] = true;
    size_t missing = 0;
    for (size_t i = 0; i <= 20; i++)
        missing += !seen[i];
    assert_true(missing <= 4); /* two that end at once are written at once */
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_103_who_comes_later_or_again_sees_each_version_once(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_serve(rig, 1);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "sleep 5 %zu\n", 200, id);
    struct rig_watch *first = rig_watch(rig, 0, id, 0);
    RIG_UNTIL(rig_ended(rig, id) > 80);
    struct rig_watch *later = rig_watch(rig, 1, id, 0);
    RIG_UNTIL(rig_ended(rig, id) > 120);
    mr_lock_enter(&first->lock);
    uint64_t seen = first->version;
    mr_lock_leave(&first->lock);
    struct rig_watch *again = rig_watch(rig, 1, id, seen);
    struct rig_watch *from_first = rig_watch(rig, 0, id, 1);
    rig_watch_await_end(first);
    rig_watch_await_end(later);
    rig_watch_await_end(again);
    rig_watch_await_end(from_first);
    assert_true(later->remaining[0] < 120);
    assert_int_equal(again->first, seen + 1);
    assert_int_equal(from_first->first, 2);
    assert_int_equal(first->version, again->version);
    assert_int_equal(first->version, later->version);
    /* Who has seen the end is told so. */
    struct rig_watch *over = rig_watch(rig, 1, id, first->version);
    rig_watch_await_end(over);
    assert_int_equal(over->events, 0);
    rig_watch_free(first);
    rig_watch_free(later);
    rig_watch_free(again);
    rig_watch_free(from_first);
    rig_watch_free(over);
    rig_free(rig);
}

static void test_103_a_job_that_is_not_there_cannot_be_watched(void **state)
{
    struct rig *rig = rig_make();
    (void)state;
    rig_serve(rig, 0);
    struct rig_watch *watch = rig_watch(rig, 0, "01890000-0000-7000-8000-000000000000", 0);
    RIG_UNTIL(rig_watch_is_over(watch));
    assert_int_equal(watch->err, MR_NOT_FOUND);
    rig_watch_free(watch);
    rig_free(rig);
}

/* ---- 104 ------------------------------------------------------------------------------------- */

/* What a server that was slow would write once more. */
static void repeat_ends(struct rig *rig, const char *id)
{
    struct mr_store_parts_list list = {.req.op = MR_STORE_PARTS_LIST, .max = 1000};
    struct mr_store_end ends[1000];
    enum mr_err errs[1000];
    size_t n = 0;
    assert_true(mr_uuid_parse(mr_slice_str(id), &list.uid));
    assert_int_equal(mr_store_call(rig->store, &list.req), MR_OK);
    for (size_t i = 0; i < list.n; i++) {
        const struct mr_store_part *part = &list.parts[i];
        if (part->state != MR_PART_DONE)
            continue;
        ends[n++] = (struct mr_store_end){.uid = list.uid,
                                          .index = part->index,
                                          .segment = part->segment,
                                          .stage = part->stage,
                                          .round = part->round,
                                          .failed = i % 2 == 0,
                                          .bytes = MR_SLICE_LIT("another one")};
    }
    mr_store_req_done(&list.req);
    struct mr_store_parts_end again = {
        .req.op = MR_STORE_PARTS_END, .items = ends, .n = n, .results = errs};
    if (n > 0)
        assert_int_equal(mr_store_call(rig->store, &again.req), MR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(errs[i], MR_OK);
    mr_store_req_done(&again.req);
}

static void test_104_lost_workers_repeats_and_failures_change_nothing(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t n = rig_full() ? 1000 : 200;
    struct child children[2] = {{.slots = 2, .luck = 20}, {.slots = 2, .luck = 20}};
    (void)state;
    rig->luck = 20;
    rig_serve(rig, 0);
    rig_serve(rig, 1);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(.max_retry = 100), "sleep 3 %zu\n", n, id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    for (size_t round = 0; !rig_is_end(rig_state(rig, id)); round++) {
        struct child *child = &children[round % 2];
        child->broker_url = rig->broker_url;
        child->store_url = rig->store_url;
        if (rig_is_shared()) { /* workers are processes there, and die */
            child_kill(child);
            child_start(child);
        } else { /* one in this process can only be told to go, at once */
            rig_unwork(rig, 1);
            rig_work(rig, 1, 2);
        }
        rig_sleep_ms((int64_t)mr_rand_below(mr_rand_of_thread(), 100));
        repeat_ends(rig, id);
    }
    rig_watch_await_end(watch);
    rig_check_result(rig, id, "sleep 3 %zu\n", n);
    child_kill(&children[0]);
    child_kill(&children[1]);
    rig_watch_free(watch);
    rig_free(rig);
}

/* ---- 109 ------------------------------------------------------------------------------------- */

static const struct mr_slice two_stages[] = {{"one", 3}, {"two", 3}};

static void check_two_stages(struct rig *rig, const char *id, size_t n)
{
    struct mr_buf result = {0}, expected = {0};
    rig_result(rig, id, &result);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mr_buf_printf(&expected, "two(one(part %zu))\n", i), MR_OK);
    assert_int_equal(result.len, expected.len);
    assert_memory_equal(result.data, expected.data, result.len);
    mr_buf_done(&result);
    mr_buf_done(&expected);
}

static void test_109_a_stage_begins_when_the_one_before_is_complete(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    struct mr_job_options job = {
        .stages = two_stages, .stages_n = 2, .reduce = MR_SLICE_LIT("lines")};
    rig_load(rig, &job, "part %zu", 100, id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_watch_await_end(watch);
    struct rig_job end = rig_job(rig, id);
    assert_int_equal(end.stages_n, 2);
    assert_int_equal(end.stages[0].done, 100);
    assert_int_equal(end.stages[1].done, 100);
    check_two_stages(rig, id, 100);
    /* In the order of the runs, all of the first stage are before any of the second. */
    const char *second = strstr(rig->order, "one(");
    assert_non_null(second);
    size_t before = 0;
    for (const char *at = rig->order; at < second; at++)
        before += *at == '\n';
    assert_int_equal(before, 100);
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_109_in_a_pipeline_a_part_goes_on_as_it_arrives(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct mr_slice parts[40];
    char texts[40][32];
    (void)state;
    rig->settings.window = 40;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    for (size_t i = 0; i < 40; i++) {
        (void)snprintf(texts[i], sizeof texts[i], i == 0 ? "hold" : "part %zu", i);
        parts[i] = mr_slice_str(texts[i]);
    }
    struct mr_job_options job = {
        .stages = two_stages, .stages_n = 2, .pipeline = true, .reduce = MR_SLICE_LIT("lines")};
    rig_load_parts(rig, &job, parts, 40, id);
    /* The first stage is not complete, and the others are through the second. */
    RIG_UNTIL(rig_job(rig, id).stages[1].done == 39);
    assert_int_equal(rig_job(rig, id).stages[0].done, 39);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    struct mr_buf result = {0};
    rig_result(rig, id, &result);
    assert_memory_equal(result.data, "two(one(hold))\ntwo(one(part 1))\n", 32);
    mr_buf_done(&result);
    rig_free(rig);
}

/* ---- reduces --------------------------------------------------------------------------------- */

static void check_reduce(struct rig *rig, const char *reduce, const char *format, size_t n,
                         const char *expected)
{
    struct mr_buf result = {0};
    char id[RIG_ID_MAX];
    rig_load(rig, RIG_JOB(.reduce = mr_slice_str(reduce)), format, n, id);
    rig_await_end(rig, id);
    struct rig_job job = rig_job(rig, id);
    if (job.state != MR_JOB_SUCCEEDED)
        fail_msg("%s: %s", reduce, job.reason);
    rig_result(rig, id, &result);
    assert_int_equal(result.len, strlen(expected));
    assert_memory_equal(result.data, expected, result.len);
    mr_buf_done(&result);
}

static void test_103_each_reduce_makes_one_result(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    check_reduce(rig, "concat", "%zu,", 12, "0,1,2,3,4,5,6,7,8,9,10,11,");
    check_reduce(rig, "lines", "%zu", 3, "0\n1\n2\n");
    check_reduce(rig, "json", "{\"n\":%zu}", 2, "[{\"n\":0},\n{\"n\":1}]\n");
    check_reduce(rig, "sum", "%zu", 101, "5050\n");
    check_reduce(rig, "none", "%zu", 3, "");
    check_reduce(rig, "command:cat * && echo $MILLRACE_JOB_ID | wc -c", "%zu\n", 11,
                 "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n37\n");
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("command:echo no luck >&2; exit 3")), "%zu", 2,
             id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_FAILED);
    assert_non_null(strstr(rig_job(rig, id).reason, "no luck"));
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("sum")), "word %zu", 2, id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_FAILED);
    rig_free(rig);
}

static void test_103_a_result_of_many_pieces_comes_in_order(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t n = rig_full() ? 10000 : 3000; /* of 200 bytes each */
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(), "%0200zu", n, id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    rig_check_result(rig, id, "%0200zu", n);
    rig_free(rig);
}

int jobs_running(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_103_a_job_of_100_parts_to_its_end),
        cmocka_unit_test(test_103_with_one_worker_every_single_end_can_be_seen),
        cmocka_unit_test(test_103_who_comes_later_or_again_sees_each_version_once),
        cmocka_unit_test(test_103_a_job_that_is_not_there_cannot_be_watched),
        cmocka_unit_test(test_103_each_reduce_makes_one_result),
        cmocka_unit_test(test_103_a_result_of_many_pieces_comes_in_order),
        cmocka_unit_test(test_104_lost_workers_repeats_and_failures_change_nothing),
        cmocka_unit_test(test_109_a_stage_begins_when_the_one_before_is_complete),
        cmocka_unit_test(test_109_in_a_pipeline_a_part_goes_on_as_it_arrives),
    };
    return JOBS_RUN("jobs: running", tests);
}
