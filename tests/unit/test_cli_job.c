/* SPDX-License-Identifier: Apache-2.0 */
/* How far a job is, as people see it, and a job in JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/job.h"
#include "wire/job_json.h"

static struct mr_slice s(const char *text)
{
    return mr_slice_str(text);
}

/* A job of 200 parts in one stage, 50 of which are done. */
static struct mr_job_info quarter(struct mr_job_stage *stage)
{
    *stage = (struct mr_job_stage){.type = s("speak"), .total = 200, .done = 50};
    return (struct mr_job_info){.id = s("01a1e36b-0000-7000-8000-000000000000"),
                                .job = {.queue = s("q"), .reduce = s("concat")},
                                .state = MR_JOB_RUNNING,
                                .total = 200,
                                .done = 50,
                                .stages = stage,
                                .stages_n = 1,
                                .rate = 12.5,
                                .eta_ms = 12 * 1000,
                                .first_segment = 3,
                                .last_segment = 5};
}

static void a_bar_has_what_is_done_how_fast_and_how_long_it_takes(void **state)
{
    (void)state;
    struct mr_job_stage stage;
    struct mr_job_info job = quarter(&stage);
    char text[160];
    job_progress(&job, text, sizeof text);
    assert_string_equal(text, "[######                  ]  25%  50/200  12.5/s  12s left");
    job_progress(&job, text, 40); /* no room for the bar */
    assert_string_equal(text, " 25%  50/200  12.5/s  12s left");
    job_progress(&job, text, 20);
    assert_int_equal(strlen(text), 19);
}

static void a_bar_has_failures_and_the_end(void **state)
{
    (void)state;
    struct mr_job_stage stage;
    struct mr_job_info job = quarter(&stage);
    char text[160];
    job.failed = stage.failed = 3;
    job.eta_ms = -1;
    job_progress(&job, text, sizeof text);
    assert_string_equal(text, "[######                  ]  26%  50/200  12.5/s  3 failed");
    job.done = stage.done = 197;
    job.reducing = true;
    job_progress(&job, text, sizeof text);
    assert_string_equal(text,
                        "[########################] 100%  197/200  12.5/s  putting it together  "
                        "3 failed");
}

/* Half of the runs of two stages; a part that failed in the first needs no second one. */
static void a_bar_is_about_all_stages(void **state)
{
    (void)state;
    struct mr_job_stage stages[2] = {{.type = s("cut"), .total = 100, .done = 90, .failed = 10},
                                     {.type = s("glue"), .total = 90, .done = 40}};
    struct mr_job_info job = {.state = MR_JOB_RUNNING,
                              .total = 100,
                              .done = 40,
                              .failed = 10,
                              .stages = stages,
                              .stages_n = 2,
                              .eta_ms = -1};
    char text[160];
    job_progress(&job, text, sizeof text);
    assert_string_equal(text, "[##################      ]  75%  40/100  0.0/s  10 failed  "
                              "stage 2/2 glue");
}

static void a_job_without_anything_has_a_bar_too(void **state)
{
    (void)state;
    char text[160];
    job_progress(&(struct mr_job_info){.state = MR_JOB_CREATED}, text, sizeof text);
    assert_string_equal(text, "[                        ]   0%  0/0  0.0/s");
}

static void json_has_null_for_what_nobody_knows(void **state)
{
    (void)state;
    struct mr_job_stage stage;
    struct mr_job_info job = quarter(&stage);
    struct jw jw = {0};
    job.eta_ms = -1;
    jw_job(&jw, NULL, &job);
    assert_int_equal(jw.err, MR_OK);
    assert_int_equal(mr_buf_append(&jw.buf, "", 1), MR_OK);
    const char *text = (const char *)jw.buf.data;
    assert_non_null(strstr(text, "\"eta_ms\":null"));
    assert_non_null(strstr(text, "\"segments\":3"));
    assert_non_null(strstr(text, "\"stages\":[{\"type\":\"speak\",\"total\":200,\"done\":50,"
                                 "\"failed\":0}]"));
    assert_null(strstr(text, "\"reason\""));
    mr_buf_done(&jw.buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bar_has_what_is_done_how_fast_and_how_long_it_takes),
        cmocka_unit_test(a_bar_has_failures_and_the_end),
        cmocka_unit_test(a_bar_is_about_all_stages),
        cmocka_unit_test(a_job_without_anything_has_a_bar_too),
        cmocka_unit_test(json_has_null_for_what_nobody_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
