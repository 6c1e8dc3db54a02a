/* SPDX-License-Identifier: Apache-2.0 */
/* The rolling table of parts: begin..end. */
#include <stdio.h>

#include "base/rand.h"
#include "jobs/child.h"
#include "jobs/rig.h"

enum { THRESHOLD = 1000 };

static void assert_range(struct rig *rig, uint64_t begin, uint64_t end)
{
    uint64_t is_begin, is_end;
    rig_segments(rig, &is_begin, &is_end);
    assert_int_equal(is_begin, begin);
    assert_int_equal(is_end, end);
}

static uint64_t begin_of(struct rig *rig)
{
    uint64_t begin, end;
    rig_segments(rig, &begin, &end);
    return begin;
}

static void test_112_it_starts_with_one_segment(void **state)
{
    struct rig *rig = rig_make();
    (void)state;
    assert_range(rig, 1, 1);
    rig_free(rig);
}

static void test_113_at_the_threshold_the_next_segment_begins(void **state)
{
    struct rig *rig = rig_make();
    char first[RIG_ID_MAX], second[RIG_ID_MAX];
    (void)state;
    rig->settings.segment_parts = THRESHOLD;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(), "part %zu\n", THRESHOLD, first);
    assert_int_equal(rig_job(rig, first).first_segment, 1);
    assert_int_equal(rig_job(rig, first).last_segment, 1);
    assert_range(rig, 1, 2);
    rig_load(rig, RIG_JOB(), "part %zu\n", 1, second);
    assert_int_equal(rig_job(rig, second).first_segment, 2);
    assert_range(rig, 1, 2);
    rig_free(rig);
}

static void test_114_begin_moves_when_all_of_the_segment_has_ended(void **state)
{
    struct rig *rig = rig_make();
    char held[RIG_ID_MAX], others[RIG_ID_MAX], retries[RIG_ID_MAX];
    (void)state;
    rig->settings.segment_parts = 100;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 1, held);
    rig_load(rig, RIG_JOB(), "part %zu\n", 99, others);
    RIG_UNTIL(rig_state(rig, others) == MR_JOB_SUCCEEDED);
    assert_range(rig, 1, 2); /* one of the first segment is running */
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, held) == MR_JOB_SUCCEEDED);
    assert_range(rig, 2, 2);
    /* One that waits to be tried again holds it as well. */
    rig->luck = 100;
    rig_load(rig, RIG_JOB(.max_retry = 1000), "part %zu\n", 100, retries);
    RIG_UNTIL(rig->runs > 100 + 20);
    assert_range(rig, 2, 3);
    rig->luck = 0;
    RIG_UNTIL(rig_state(rig, retries) == MR_JOB_SUCCEEDED);
    assert_range(rig, 3, 3);
    rig_free(rig);
}

static void test_115_later_segments_are_served_while_one_stays_behind(void **state)
{
    struct rig *rig = rig_make();
    char held[RIG_ID_MAX], later[RIG_ID_MAX];
    (void)state;
    rig->settings.segment_parts = 10;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 2, held);
    RIG_UNTIL(atomic_load(&rig->running) == 2);
    rig_load(rig, RIG_JOB(), "part %zu\n", 50, later);
    RIG_UNTIL(rig_state(rig, later) == MR_JOB_SUCCEEDED);
    assert_int_equal(begin_of(rig), 1);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, held) == MR_JOB_SUCCEEDED);
    rig_free(rig);
}

static void test_116_a_result_finds_its_segment_when_others_have_begun(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX], more[RIG_ID_MAX];
    (void)state;
    rig->settings.segment_parts = 10;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 25, id); /* in 1, 2 and 3 */
    assert_int_equal(rig_job(rig, id).first_segment, 1);
    assert_int_equal(rig_job(rig, id).last_segment, 3);
    RIG_UNTIL(atomic_load(&rig->running) == 2);
    rig_load(rig, RIG_JOB(), "part %zu\n", 30, more);
    uint64_t begin, end;
    rig_segments(rig, &begin, &end);
    assert_true(end >= 5);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    rig_check_result(rig, id, "hold %zu\n", 25);
    RIG_UNTIL(rig_state(rig, more) == MR_JOB_SUCCEEDED);
    rig_free(rig);
}

static void test_117_begin_moves_past_several_at_once(void **state)
{
    struct rig *rig = rig_make();
    char ids[10][RIG_ID_MAX];
    size_t order[10];
    bool over[12] = {false};
    (void)state;
    rig->settings.segment_parts = 20;
    rig_serve(rig, 0);
    for (size_t i = 0; i < 10; i++) {
        rig_load(rig, RIG_JOB(), "part %zu\n", 20, ids[i]);
        order[i] = i;
    }
    assert_range(rig, 1, 11);
    for (size_t i = 9; i > 0; i--) { /* a job ends when it is cancelled */
        size_t k = mr_rand_below(mr_rand_of_thread(), i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
    for (size_t i = 0; i < 10; i++) {
        uint64_t first = 1;
        assert_int_equal(rig_act(rig, MR_JOB_CANCEL, ids[order[i]]), MR_OK);
        over[order[i] + 1] = true;
        while (first < 11 && over[first])
            first++;
        assert_range(rig, first, 11);
    }
    rig_free(rig);
}

static void test_118_two_servers_at_the_threshold_make_one_segment(void **state)
{
    struct rig *rig = rig_make();
    size_t rounds = rig_full() ? 20 : 4;
    (void)state;
    rig->settings.segment_parts = 100;
    rig_serve(rig, 0);
    struct mr_store *own = rig->store, *other = NULL;
    assert_int_equal(mr_store_open(&(struct mr_store_options){.url = rig->store_url}, &other, NULL),
                     MR_OK);
    rig->store = other;
    rig_serve(rig, 1);
    rig->store = own;
    uint64_t parts = 0;
    for (size_t i = 0; i < rounds; i++) {
        struct mr_job_load *loads[2];
        struct mr_job_service *first = rig->services[0];
        loads[0] = rig_load_begin(rig, RIG_JOB());
        rig->services[0] = NULL;
        loads[1] = rig_load_begin(rig, RIG_JOB());
        rig->services[0] = first;
        for (size_t k = 0; k < 2; k++)
            assert_int_equal(child_add(loads[k], "part %zu\n", 0, 75), MR_OK);
        for (size_t k = 0; k < 2; k++)
            mr_job_load_commit(loads[k]); /* both are under way */
        for (size_t k = 0; k < 2; k++) {
            RIG_UNTIL(rig_jobs(rig) >= 2 * i + 1 + k);
        }
        parts += 150;
        RIG_UNTIL(rig_jobs(rig) == 2 * (i + 1));
        rig_sleep_ms(5); /* the answers of both */
        for (size_t k = 0; k < 2; k++)
            mr_job_load_free(loads[k]);
        struct mr_store_segments req = {.req.op = MR_STORE_SEGMENTS, .max = 1000};
        uint64_t sum = 0;
        assert_int_equal(mr_store_call(rig->store, &req.req), MR_OK);
        for (size_t n = 0; n < req.n; n++) {
            sum += req.segments[n].parts;
            assert_int_equal(req.segments[n].n, n + 1); /* none is left out, none is there twice */
            assert_true(n + 1 == req.n || req.segments[n].parts >= 100);
        }
        assert_int_equal(sum, parts);
        mr_store_req_done(&req.req);
    }
    rig_unserve(rig, 1);
    mr_store_close(other);
    rig_free(rig);
}

static void test_119_a_kill_while_segments_roll_leaves_them_whole(void **state)
{
    size_t kills = rig_full() ? 30 : 3;
    struct rig *rig = rig_make();
    (void)state;
    for (size_t i = 0; i < kills; i++) {
        struct child child = {.broker_url = rig->broker_url,
                              .store_url = rig->store_url,
                              .step = MR_JOB_STEP_ADDED,
                              .times = 1 + (unsigned)mr_rand_below(mr_rand_of_thread(), 3),
                              .load = 20000,
                              .segment_parts = 700};
        rig_close(rig);
        child_start(&child);
        if (i % 2 == 0)
            (void)child_loaded(&child, RIG_WAIT_MS);
        else
            rig_sleep_ms((int64_t)mr_rand_below(mr_rand_of_thread(), 200));
        child_kill(&child);
        rig_open(rig);
        struct mr_store_segments req = {.req.op = MR_STORE_SEGMENTS, .max = 10000};
        assert_int_equal(mr_store_call(rig->store, &req.req), MR_OK);
        for (size_t n = 0; n < req.n; n++)
            assert_int_equal(req.segments[n].n, req.segments[0].n + n);
        assert_int_equal(req.segments[req.n - 1].n, req.end);
        assert_true(req.begin <= req.end);
        mr_store_req_done(&req.req);
    }
    /* What comes next has a place, and is found. */
    char id[RIG_ID_MAX];
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig->settings.segment_parts = 700;
    rig_load(rig, RIG_JOB(.priority_s = 60), "part %zu\n", 1500, id);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "part %zu\n", 1500);
    rig_free(rig);
}

static void test_121_retention_drops_cold_segments_and_no_others(void **state)
{
    struct rig *rig = rig_make();
    char done[3][RIG_ID_MAX], held[RIG_ID_MAX], last[RIG_ID_MAX];
    (void)state;
    rig->settings.segment_parts = 50;
    rig->settings.segment_ms = 300;
    rig->settings.govern_ms = 50;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    for (size_t i = 0; i < 3; i++) {
        rig_load(rig, RIG_JOB(), "part %zu\n", 50, done[i]);
        RIG_UNTIL(rig_state(rig, done[i]) == MR_JOB_SUCCEEDED);
    }
    struct mr_slice parts[50];
    for (size_t i = 0; i < 50; i++)
        parts[i] = i == 30 ? MR_SLICE_LIT("hold") : MR_SLICE_LIT("x");
    rig_load_parts(rig, RIG_JOB(), parts, 50, held);  /* in 4 */
    rig_load(rig, RIG_JOB(), "part %zu\n", 50, last); /* in 5, cold before 4 is */
    RIG_UNTIL(rig_state(rig, last) == MR_JOB_SUCCEEDED);
    struct mr_job_health health;
    RIG_UNTIL((rig_health(rig, 0, &health), health.segments_removed >= 3));
    rig_sleep_ms(500);
    rig_health(rig, 0, &health);
    assert_int_equal(health.segments_removed, 3);
    assert_range(rig, 4, 6);
    /* The results of jobs whose parts are gone are there. */
    rig_check_result(rig, done[0], "part %zu\n", 50);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_state(rig, held) == MR_JOB_SUCCEEDED);
    assert_int_equal(rig_job(rig, held).done, 50);
    rig_free(rig);
}

static void test_121_jobs_go_when_their_retention_is_over(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX], kept[RIG_ID_MAX];
    (void)state;
    rig->settings.govern_ms = 50;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(.retention_ms = 200), "part %zu\n", 2000, id);
    rig_load(rig, RIG_JOB(), "part %zu\n", 20, kept);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_STATE_NONE);
    RIG_UNTIL(rig_state(rig, kept) == MR_JOB_SUCCEEDED);
    rig_check_result(rig, kept, "part %zu\n", 20);
    assert_int_equal(rig_jobs(rig), 1);
    rig_free(rig);
}

int jobs_segments(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_112_it_starts_with_one_segment),
        cmocka_unit_test(test_113_at_the_threshold_the_next_segment_begins),
        cmocka_unit_test(test_114_begin_moves_when_all_of_the_segment_has_ended),
        cmocka_unit_test(test_115_later_segments_are_served_while_one_stays_behind),
        cmocka_unit_test(test_116_a_result_finds_its_segment_when_others_have_begun),
        cmocka_unit_test(test_117_begin_moves_past_several_at_once),
        cmocka_unit_test(test_118_two_servers_at_the_threshold_make_one_segment),
        cmocka_unit_test(test_119_a_kill_while_segments_roll_leaves_them_whole),
        cmocka_unit_test(test_121_retention_drops_cold_segments_and_no_others),
        cmocka_unit_test(test_121_jobs_go_when_their_retention_is_over),
    };
    return JOBS_RUN("jobs: segments", tests);
}
