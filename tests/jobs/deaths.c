/* SPDX-License-Identifier: Apache-2.0 */
/* Servers that die between two steps of a job, and at any moment: it ends as if they had not. */
#include <stdio.h>

#include "base/rand.h"
#include "jobs/child.h"
#include "jobs/rig.h"

enum { RETRY_STEP = 30 };

/* The one job that is there. */
static void find_job(struct rig *rig, char id[RIG_ID_MAX])
{
    struct mr_job_ask ask = {.kind = MR_JOB_LIST};
    assert_int_equal(mr_job_service_ask_wait(rig->services[0], &ask), MR_OK);
    assert_int_equal(ask.jobs_n, 1);
    snprintf(id, RIG_ID_MAX, "%.*s", (int)ask.jobs[0].info.id.len,
             (const char *)ask.jobs[0].info.id.data);
    mr_job_ask_done(&ask);
}

/* A server loads a job and works on it; it dies at the step. The next one goes on. */
static void die_at(enum mr_job_step step, unsigned times, size_t parts)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct child child = {.broker_url = rig->broker_url,
                          .store_url = rig->store_url,
                          .serves = true,
                          .slots = 4,
                          .load = parts,
                          .step = step,
                          .times = times};
    rig_close(rig);
    child_start(&child);
    child_await_death(&child);
    rig_open(rig);
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    find_job(rig, id);
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_watch_await_end(watch);
    rig_check_result(rig, id, "part %zu\n", parts);
    rig_watch_free(watch);
    rig_free(rig);
}

static void test_105_a_death_between_any_two_steps_changes_nothing(void **state)
{
    static const enum mr_job_step at[] = {
        MR_JOB_STEP_SUBMIT, MR_JOB_STEP_SUBMITTED, MR_JOB_STEP_ADVANCED,
        MR_JOB_STEP_TAKEN,  MR_JOB_STEP_ENDED,     MR_JOB_STEP_SETTLED,
        MR_JOB_STEP_REDUCE, MR_JOB_STEP_REDUCED,   MR_JOB_STEP_CLOSED,
    };
    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        bool once = at[i] >= MR_JOB_STEP_REDUCE;
        if (!rig_full() && i % 3 == 2)
            continue; /* as the next one, but for what was told */
        die_at(at[i], 1, 300);
        if (rig_full() && !once) {
            die_at(at[i], 2, 300);
            die_at(at[i], 3, 3000);
        }
    }
}

/* Servers, masters and workers are one process on an embedded broker; on a Redis they are several. */
static void test_105_kills_at_any_moment_leave_the_exact_result(void **state)
{
    size_t parts = rig_full() ? 100000 : 3000, kills = rig_full() ? 100 : 6, done = 0;
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    struct child children[3];
    size_t n = rig_is_shared() ? 3 : 1;
    (void)state;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(.max_retry = 1000), "part %zu\n", parts, id);
    rig_close(rig);
    for (size_t i = 0; i < n; i++) {
        children[i] = (struct child){.broker_url = rig->broker_url,
                                     .store_url = rig->store_url,
                                     .serves = !rig_is_shared() || i < 2,
                                     .slots = !rig_is_shared() || i == 2 ? 4 : 0};
        child_start(&children[i]);
    }
    for (; done < kills; done++) {
        struct child *child = &children[done % n];
        rig_sleep_ms(100 + (int64_t)mr_rand_below(mr_rand_of_thread(), rig_full() ? 400 : 150));
        child_kill(child);
        child_start(child);
    }
    for (size_t i = 0; i < n; i++)
        child_kill(&children[i]);
    rig_open(rig);
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "part %zu\n", parts);
    rig_free(rig);
}

/* ---- retries --------------------------------------------------------------------------------- */

/* One step of the retry, as if by somebody who died then. Answers how far it has come. */
static uint64_t step_once(struct rig *rig, const char *id)
{
    struct mr_store_job_act act = {.req.op = MR_STORE_JOB_RETRY, .max = RETRY_STEP};
    assert_true(mr_uuid_parse(mr_slice_str(id), &act.uid));
    assert_int_equal(mr_store_call(rig->store, &act.req), MR_OK);
    assert_true(mr_store_job_retrying(&act.job));
    uint64_t next = act.job.retry_next;
    mr_store_req_done(&act.req);
    return next;
}

static void test_106_a_retry_comes_to_its_end_whoever_dies_on_the_way(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    size_t parts = 10 * RETRY_STEP;
    struct child child = {.broker_url = rig->broker_url,
                          .store_url = rig->store_url,
                          .serves = true,
                          .slots = 4,
                          .step = MR_JOB_STEP_FORGIVEN,
                          .times = 2,
                          .retry_parts = RETRY_STEP};
    (void)state;
    rig->luck = 100; /* all fail */
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load(rig, RIG_JOB(.policy = MR_JOB_FINISH, .max_retry = MR_NO_RETRY), "part %zu\n", parts,
             id);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    assert_int_equal(rig_job(rig, id).failed, parts);
    rig_unserve(rig, 0);
    /* Who asked has died after the first step, who found it so after two more. */
    assert_int_equal(step_once(rig, id), RETRY_STEP);
    rig_close(rig);
    child_start(&child);
    child_await_death(&child);
    rig_open(rig);
    assert_int_equal(step_once(rig, id), 4 * RETRY_STEP);
    rig->luck = 0;
    rig->settings.retry_parts = RETRY_STEP;
    rig_serve(rig, 0);
    assert_int_equal(rig_job(rig, id).failed, 0);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_WRONG_STATE); /* it goes on */
    struct rig_watch *watch = rig_watch(rig, 0, id, 0);
    rig_work(rig, 0, 4);
    rig_watch_await_end(watch);
    rig_check_result(rig, id, "part %zu\n", parts);
    assert_int_equal(rig_job(rig, id).round, 1);
    rig_watch_free(watch);
    rig_free(rig);
}

int jobs_deaths(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_105_a_death_between_any_two_steps_changes_nothing),
        cmocka_unit_test(test_105_kills_at_any_moment_leave_the_exact_result),
        cmocka_unit_test(test_106_a_retry_comes_to_its_end_whoever_dies_on_the_way),
    };
    return JOBS_RUN("jobs: deaths", tests);
}
