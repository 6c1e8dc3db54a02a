/* SPDX-License-Identifier: Apache-2.0 */
/* How jobs end otherwise: failures, cancels, retries, what was lost, what lasts too long. */
#include <stdio.h>

#include "job/id.h"
#include "jobs/child.h"
#include "jobs/rig.h"

/* n parts "part I\n", but for one that says something else. */
static void load_with(struct rig *rig, const struct mr_job_options *job, size_t n, size_t odd,
                      const char *says, char id[RIG_ID_MAX])
{
    char(*texts)[32] = calloc(n, sizeof *texts);
    struct mr_slice *parts = calloc(n, sizeof *parts);
    assert_true(texts != NULL && parts != NULL);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "part %zu\n", i);
        parts[i] = mr_slice_str(i == odd ? says : texts[i]);
    }
    rig_load_parts(rig, job, parts, n, id);
    free(texts);
    free(parts);
}

/* ---- 106 ------------------------------------------------------------------------------------- */

static void test_106_fail_fast_ends_the_job_and_its_siblings(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct mr_slice parts[100];
    (void)state;
    rig->settings.window = 20;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    for (size_t i = 0; i < 100; i++)
        parts[i] = mr_slice_str(i == 5 ? "fail" : i < 5 ? "sleep 5" : "hold");
    rig_load_parts(rig, RIG_JOB(), parts, 100, id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_FAILED);
    struct rig_job job = rig_job(rig, id);
    assert_int_equal(job.failed, 1);
    assert_non_null(strstr(job.reason, "as told"));
    /* What waited is gone, what ran was told to stop. */
    RIG_UNTIL(rig_tasks(rig, "default", MR_PENDING) == 0 &&
              rig_tasks(rig, "default", MR_ACTIVE) == 0 &&
              rig_tasks(rig, "default", MR_RETRY) == 0);
    assert_true(rig->runs < 60);
    assert_true(rig_job(rig, id).done <= 100 - 1);
    rig_free(rig);
}

static void test_106_by_the_other_policy_the_rest_goes_on(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct mr_buf result = {0};
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    load_with(rig, RIG_JOB(.policy = MR_JOB_FINISH, .reduce = MR_SLICE_LIT("json")), 4, 2, "fail",
              id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    struct rig_job job = rig_job(rig, id);
    assert_int_equal(job.failed, 1);
    assert_int_equal(job.done, 3);
    assert_int_equal(rig_parts(rig, id, MR_PART_FAILED), 1);
    rig_result(rig, id, &result);
    static const char expected[] = "[\"part 0\\n\",\n\"part 1\\n\",\nnull,\n\"part 3\\n\"]\n";
    assert_int_equal(result.len, strlen(expected));
    assert_memory_equal(result.data, expected, result.len);
    mr_buf_done(&result);
    rig_free(rig);
}

static void test_106_a_part_that_failed_does_not_come_to_the_next_stage(void **state)
{
    static const struct mr_slice stages[] = {{"one", 3}, {"two", 3}};
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    for (unsigned pipeline = 0; pipeline < 2; pipeline++) {
        struct mr_job_options job = {
            .stages = stages, .stages_n = 2, .policy = MR_JOB_FINISH, .pipeline = pipeline != 0};
        load_with(rig, &job, 30, 7, "fail", id);
        RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
        struct rig_job end = rig_job(rig, id);
        assert_int_equal(end.stages[0].done, 29);
        assert_int_equal(end.stages[0].failed, 1);
        assert_int_equal(end.stages[1].total, 29);
        assert_int_equal(end.stages[1].done, 29);
    }
    rig_free(rig);
}

/* ---- retry ----------------------------------------------------------------------------------- */

static void test_106_a_retry_runs_only_what_failed_and_what_never_ran(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    /* It fails once for each run of it, without a retry; the next round is its second attempt. */
    load_with(rig, RIG_JOB(.policy = MR_JOB_FINISH, .max_retry = MR_NO_RETRY), 50, 20, "luck", id);
    rig_await_end(rig, id);
    assert_int_equal(rig_state(rig, id), MR_JOB_SUCCEEDED);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_WRONG_STATE); /* nothing failed */
    load_with(rig, RIG_JOB(.policy = MR_JOB_FINISH), 50, 20, "fail", id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    size_t runs = rig->runs;
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_OK);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED && rig_job(rig, id).failed == 1);
    assert_int_equal(rig_job(rig, id).round, 1);
    assert_int_equal(rig->runs, runs + 1); /* just that one */
    rig_free(rig);
}

static void test_111_a_job_that_was_cancelled_can_be_retried(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.window = 5;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 40, id);
    RIG_UNTIL(atomic_load(&rig->running) == 2);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, id), MR_OK);
    RIG_UNTIL(atomic_load(&rig->running) == 0);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_OK);
    atomic_store(&rig->let_go, true);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "hold %zu\n", 40);
    rig_free(rig);
}

/* ---- 111 ------------------------------------------------------------------------------------- */

static void test_111_a_cancelled_job_ends_at_once_and_its_tasks_go(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.window = 10;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 100, id);
    RIG_UNTIL(atomic_load(&rig->running) == 2 && rig_tasks(rig, "default", MR_PENDING) >= 10);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, id), MR_OK);
    assert_int_equal(rig_state(rig, id), MR_JOB_CANCELLED);
    rig_watch_await_end(watch);
    assert_int_equal(watch->state, MR_JOB_CANCELLED);
    RIG_UNTIL(rig_tasks(rig, "default", MR_PENDING) == 0 && atomic_load(&rig->running) == 0);
    assert_int_equal(rig->stopped, 2);
    /* A result that comes late is discarded. */
    assert_int_equal(rig_job(rig, id).done, 0);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, id), MR_OK); /* it is so already */
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_111_a_result_that_comes_after_the_cancel_is_discarded(void **state)
{
    struct rig *rig = rig_make();
    struct mr_uuid uid;
    char id[RIG_ID_MAX];
    enum mr_err err = MR_OK;
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 1);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 3, id);
    RIG_UNTIL(atomic_load(&rig->running) == 1);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, id), MR_OK);
    assert_true(mr_uuid_parse(mr_slice_str(id), &uid));
    struct mr_store_end end = {.uid = uid, .index = 0, .segment = 1, .bytes = MR_SLICE_LIT("x")};
    struct mr_store_parts_end write = {
        .req.op = MR_STORE_PARTS_END, .items = &end, .n = 1, .results = &err};
    assert_int_equal(mr_store_call(rig->store, &write.req), MR_OK);
    assert_int_equal(err, MR_STALE);
    mr_store_req_done(&write.req);
    assert_int_equal(rig_job(rig, id).done, 0);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, "no such id"), MR_NOT_FOUND);
    rig_free(rig);
}

/* A server that is slow learns of the cancel when the job is on again. */
static void test_111_a_sweep_that_comes_after_a_retry_leaves_it_alone(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX], quick[RIG_ID_MAX];
    (void)state;
    rig->settings.window = 5;
    rig_serve(rig, 0);
    rig_serve(rig, 1);
    rig_work(rig, 0, 2);
    rig_work_on(rig, 1, 1, "quick");
    /* The second one hangs when it takes a result; meanwhile the first one has the queue. */
    rig_load(rig, RIG_JOB(), "hold %zu\n", 40, id);
    RIG_UNTIL(atomic_load(&rig->running) == 2);
    struct mr_job_health health;
    rig_health(rig, 0, &health);
    size_t owner = health.queues == 1 ? 0 : 1, other = 1 - owner;
    atomic_store(&rig->freezes[other].wanted, true);
    while (!atomic_load(&rig->freezes[other].is)) {
        rig_load(rig, RIG_JOB(.queue = MR_SLICE_LIT("quick")), "part %zu\n", 5, quick);
        rig_sleep_ms(20);
    }
    struct mr_job_service *owning = rig->services[owner];
    rig->services[owner] = NULL;
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, id), MR_OK);
    RIG_UNTIL(rig_tasks(rig, "default", MR_STATE_NONE) == 0 && atomic_load(&rig->running) == 0);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_OK);
    rig->services[owner] = owning;
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) >= 5 && atomic_load(&rig->running) == 2);
    rig_thaw(rig, other);
    rig_sleep_ms(300);
    atomic_store(&rig->let_go, true);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "hold %zu\n", 40);
    rig_health(rig, owner, &health);
    assert_int_equal(health.resubmitted, 0);
    rig_free(rig);
}

static void count_down(struct mr_job_ask *ask)
{
    assert_int_equal(ask->err, MR_OK);
    atomic_fetch_sub((_Atomic size_t *)ask->arg, 1);
}

static void test_111_the_tasks_of_many_jobs_that_are_cancelled_at_once_go(void **state)
{
    enum { JOBS = 150 };
    struct rig *rig = rig_make();
    static char ids[JOBS][RIG_ID_MAX];
    static struct mr_job_ask asks[JOBS];
    _Atomic size_t left = JOBS;
    (void)state;
    rig->settings.window = 1000;
    rig_serve(rig, 0);
    rig_work(rig, 0, 1);
    for (size_t i = 0; i < JOBS; i++)
        rig_load(rig, RIG_JOB(), "hold %zu\n", 2, ids[i]);
    RIG_UNTIL(rig_tasks(rig, "default", MR_STATE_NONE) == 2 * JOBS);
    for (size_t i = 0; i < JOBS; i++)
        RIG_UNTIL(rig_parts(rig, ids[i], MR_PART_SUBMITTED) == 2);
    for (size_t i = 0; i < JOBS; i++) {
        asks[i] = (struct mr_job_ask){
            .kind = MR_JOB_CANCEL, .id = mr_slice_str(ids[i]), .done = count_down, .arg = &left};
        mr_job_service_ask(rig->services[0], &asks[i]);
    }
    RIG_UNTIL(atomic_load(&left) == 0);
    for (size_t i = 0; i < JOBS; i++)
        mr_job_ask_done(&asks[i]);
    RIG_UNTIL(rig_tasks(rig, "default", MR_STATE_NONE) == 0);
    rig_free(rig);
}

/* ---- 107 ------------------------------------------------------------------------------------- */

static void test_107_a_counter_that_was_deleted_is_made_again(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.window = 10;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    rig_load(rig, RIG_JOB(), "sleep 5 %zu\n", 200, id);
    RIG_UNTIL(rig_ended(rig, id) > 50);
    rig_sql(rig, "DELETE FROM job_stage");
    rig_await_end(rig, id);
    rig_check_result(rig, id, "sleep 5 %zu\n", 200);
    rig_free(rig);
}

/* ---- tasks that are gone, and that nobody told of -------------------------------------------- */

static void control(struct rig *rig, enum mr_verb verb, const char *id, size_t index)
{
    struct mr_part_id part = {.segment = 1, .index = index};
    char text[MR_PART_ID_MAX + 1];
    struct mr_control item = {.verb = verb};
    if (verb == MR_VERB_MOVED)
        item.text = MR_SLICE_LIT("elsewhere");
    enum mr_err err = MR_OK;
    assert_true(mr_uuid_parse(mr_slice_str(id), &part.job));
    item.id = mr_slice_make(text, mr_part_id_format(&part, text));
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(rig->broker, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
}

static void test_105_a_task_that_is_gone_is_submitted_again(void **state)
{
    struct rig *rig = rig_make();
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.reconcile_ms = 300;
    rig_serve(rig, 0);
    rig_work(rig, 0, 1);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 10, id);
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) == 10);
    control(rig, MR_VERB_DELETE, id, 7);
    control(rig, MR_VERB_DELETE, id, 8);
    atomic_store(&rig->let_go, true);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "hold %zu\n", 10);
    rig_health(rig, 0, &health);
    assert_int_equal(health.resubmitted, 2);
    rig_free(rig);
}

static void test_105_an_end_that_no_result_told_of_is_found(void **state)
{
    struct rig *rig = rig_make();
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.reconcile_ms = 300;
    rig_serve(rig, 0);
    rig_work(rig, 0, 1);
    rig_load(rig, RIG_JOB(.policy = MR_JOB_FINISH), "hold %zu\n", 10, id);
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) == 10);
    /* A task that waits and is put into the archive leaves no result. */
    control(rig, MR_VERB_ARCHIVE, id, 9);
    atomic_store(&rig->let_go, true);
    rig_await_end(rig, id);
    struct rig_job job = rig_job(rig, id);
    assert_int_equal(job.state, MR_JOB_SUCCEEDED);
    assert_int_equal(job.failed, 1);
    rig_health(rig, 0, &health);
    assert_int_equal(health.reconciled, 1);
    rig_free(rig);
}

/* It goes on at another broker: what is left of it here is no end. Nothing moves away from a Redis. */
static void test_105_a_task_that_was_moved_is_not_taken_for_done(void **state)
{
    struct rig *rig = rig_make();
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.reconcile_ms = 100;
    rig_serve(rig, 0);
    rig_work(rig, 0, 1);
    rig_load(rig, RIG_JOB(), "hold %zu\n", 10, id);
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) == 10);
    control(rig, MR_VERB_MOVED, id, 9);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL(rig_job(rig, id).done == 9);
    rig_sleep_ms(10 * rig->settings.reconcile_ms);
    rig_health(rig, 0, &health);
    assert_int_equal(health.reconciled, 0);
    assert_int_equal(rig_job(rig, id).done, 9);
    rig_free(rig);
}

/* ---- stragglers ------------------------------------------------------------------------------ */

static void test_104_a_part_that_lasts_is_run_once_more_and_counts_once(void **state)
{
    struct rig *rig = rig_make();
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    mr_mono since = mr_mono_now(mr_clock_system());
    load_with(rig, RIG_JOB(.speculate_ms = 1000), 20, 3, "sleep 60000", id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_watch_await_end(watch);
    assert_int_equal(watch->state, MR_JOB_SUCCEEDED);
    assert_true(rig_elapsed_ms(since) < 20000);
    rig_health(rig, 0, &health);
    assert_int_equal(health.speculated, 1);
    assert_int_equal(rig_job(rig, id).done, 20);
    /* The first one is told to stop. */
    RIG_UNTIL(atomic_load(&rig->running) == 0);
    assert_int_equal(rig->stopped, 1);
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_104_a_second_task_that_fails_leaves_the_part_to_the_first(void **state)
{
    struct rig *rig = rig_make();
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.reconcile_ms = 300; /* it finds the one that failed, too */
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    load_with(rig, RIG_JOB(.speculate_ms = 1000), 20, 3, "slow 4000", id);
    rig_await_end(rig, id);
    struct rig_job job = rig_job(rig, id);
    assert_int_equal(job.state, MR_JOB_SUCCEEDED);
    assert_int_equal(job.done, 20);
    rig_health(rig, 0, &health);
    assert_int_equal(health.speculated, 1);
    assert_int_equal(rig->runs, 21);
    rig_free(rig);
}

int jobs_ends(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_104_a_part_that_lasts_is_run_once_more_and_counts_once),
        cmocka_unit_test(test_104_a_second_task_that_fails_leaves_the_part_to_the_first),
        cmocka_unit_test(test_105_a_task_that_is_gone_is_submitted_again),
        cmocka_unit_test(test_105_an_end_that_no_result_told_of_is_found),
        cmocka_unit_test(test_106_fail_fast_ends_the_job_and_its_siblings),
        cmocka_unit_test(test_106_by_the_other_policy_the_rest_goes_on),
        cmocka_unit_test(test_106_a_part_that_failed_does_not_come_to_the_next_stage),
        cmocka_unit_test(test_106_a_retry_runs_only_what_failed_and_what_never_ran),
        cmocka_unit_test(test_107_a_counter_that_was_deleted_is_made_again),
        cmocka_unit_test(test_111_a_job_that_was_cancelled_can_be_retried),
        cmocka_unit_test(test_111_a_cancelled_job_ends_at_once_and_its_tasks_go),
        cmocka_unit_test(test_111_a_result_that_comes_after_the_cancel_is_discarded),
        cmocka_unit_test(test_111_a_sweep_that_comes_after_a_retry_leaves_it_alone),
        cmocka_unit_test(test_111_the_tasks_of_many_jobs_that_are_cancelled_at_once_go),
    };
    struct CMUnitTest of_local[] = {
        cmocka_unit_test(test_105_a_task_that_was_moved_is_not_taken_for_done),
    };
    int failed = rig_is_shared() ? 0 : JOBS_RUN("jobs: ends, local", of_local);
    return failed + JOBS_RUN("jobs: ends", tests);
}
