/* SPDX-License-Identifier: Apache-2.0 */
/* Making a job: from an input to parts that are all there, or to nothing. */
#include <stdio.h>

#include "job/split.h"
#include "jobs/child.h"
#include "jobs/rig.h"

/* ---- 99 -------------------------------------------------------------------------------------- */

struct cut {
    struct mr_slice parts[64];
    size_t n;
    struct mr_arena arena;
};

static enum mr_err on_part(struct mr_slice part, uint64_t index, void *arg)
{
    struct cut *cut = arg;
    assert_int_equal(index, cut->n);
    return mr_arena_copy(&cut->arena, part, &cut->parts[cut->n++]);
}

static enum mr_err cut_text(struct cut *cut, const char *spec, const char *text)
{
    struct mr_split_options options = {.part = on_part, .arg = cut};
    struct mr_split *split;
    assert_int_equal(mr_split_parse(mr_slice_str(spec), &options.spec, NULL), MR_OK);
    assert_int_equal(mr_split_new(&options, &split), MR_OK);
    enum mr_err err = mr_split_write(split, mr_slice_str(text), NULL);
    if (err == MR_OK)
        err = mr_split_end(split, NULL);
    mr_split_free(split);
    return err;
}

/* A job of this text is run to its end: its result is the text again. */
static void run_text(struct rig *rig, const char *spec, const char *text, size_t parts)
{
    struct cut cut = {.n = 0};
    struct mr_buf result = {0};
    char id[RIG_ID_MAX];
    assert_int_equal(cut_text(&cut, spec, text), MR_OK);
    assert_int_equal(cut.n, parts);
    rig_load_parts(rig, RIG_JOB(.split = mr_slice_str(spec)), cut.parts, cut.n, id);
    struct rig_job job = rig_job(rig, id);
    assert_int_equal(job.total, parts);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_SUCCEEDED);
    rig_result(rig, id, &result);
    assert_int_equal(result.len, strlen(text));
    assert_memory_equal(result.data, text, result.len);
    mr_buf_done(&result);
    mr_arena_done(&cut.arena);
}

static void test_99_a_job_has_the_parts_of_its_input_and_gives_it_back(void **state)
{
    struct rig *rig = rig_make();
    struct cut none = {.n = 0};
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    run_text(rig, "paragraphs", "One line.\nAnd one.\n\nTwo.\n \t\n\nThree: \xc3\xa4\xe2\x82\xac.",
             3);
    run_text(rig, "paragraphs", "just one", 1);
    run_text(rig, "chars:2", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x8c\x8a!", 3);
    assert_int_not_equal(cut_text(&none, "paragraphs", ""), MR_OK);
    rig_free(rig);
}

static void test_99_a_job_without_parts_is_refused(void **state)
{
    struct rig *rig = rig_make();
    struct mr_detail detail = {.text = ""};
    (void)state;
    rig_serve(rig, 0);
    struct mr_job_load *load = rig_load_begin(rig, RIG_JOB());
    assert_int_equal(mr_job_load_commit_wait(load, NULL, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "empty"));
    mr_job_load_free(load);
    assert_int_equal(rig_jobs(rig), 0);
    rig_free(rig);
}

static void test_99_a_part_over_the_limit_is_refused_with_its_number(void **state)
{
    struct rig *rig = rig_make();
    struct mr_detail detail = {.text = ""};
    char *big = calloc(1, MR_PAYLOAD_MAX + 1);
    struct mr_slice parts[] = {MR_SLICE_LIT("a"), {big, MR_PAYLOAD_MAX + 1}};
    (void)state;
    assert_non_null(big);
    rig_serve(rig, 0);
    struct mr_job_load *load = rig_load_begin(rig, RIG_JOB());
    assert_int_equal(mr_job_load_add(load, parts, 2, &detail), MR_TOO_BIG);
    assert_non_null(strstr(detail.text, "part 1"));
    assert_int_equal(mr_job_load_count(load), 0);
    mr_job_load_free(load);
    free(big);
    rig_free(rig);
}

static void test_99_a_load_that_is_given_up_leaves_no_job(void **state)
{
    struct rig *rig = rig_make();
    (void)state;
    rig->settings.govern_ms = 50;
    rig_serve(rig, 0);
    struct mr_job_load *load = rig_load_begin(rig, RIG_JOB());
    assert_int_equal(child_add(load, "part %zu\n", 0, 10000), MR_OK);
    mr_job_load_free(load);
    assert_int_equal(rig_jobs(rig), 0);
    uint64_t begin, end;
    rig_segments(rig, &begin, &end);
    assert_true(begin <= end);
    rig_free(rig);
}

static void test_99_a_load_that_is_slow_is_not_removed(void **state)
{
    struct rig *rig = rig_make();
    struct mr_detail detail = {.text = ""};
    (void)state;
    rig->settings.govern_ms = 50;
    rig->settings.load_ms = 1000;
    rig_serve(rig, 0);
    struct mr_job_load *load = rig_load_begin(rig, RIG_JOB());
    assert_int_equal(child_add(load, "part %zu\n", 0, 10), MR_OK);
    rig_sleep_ms(3 * rig->settings.load_ms);
    assert_int_equal(child_add(load, "part %zu\n", 10, 20), MR_OK);
    if (mr_job_load_commit_wait(load, NULL, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    mr_job_load_free(load);
    assert_int_equal(rig_jobs(rig), 1);
    rig_free(rig);
}

/* ---- 100 ------------------------------------------------------------------------------------- */

/* After the death there is no job or the whole one; one that was acknowledged is there. */
static void check_all_or_nothing(struct rig *rig, size_t parts, bool acknowledged)
{
    struct mr_job_ask ask = {.kind = MR_JOB_LIST, .limit = MR_BATCH_MAX};
    rig_serve(rig, 0);
    assert_int_equal(mr_job_service_ask_wait(rig->services[0], &ask), MR_OK);
    assert_true(ask.jobs_n <= 1);
    if (acknowledged)
        assert_int_equal(ask.jobs_n, 1);
    if (ask.jobs_n == 1) {
        char id[RIG_ID_MAX];
        snprintf(id, sizeof id, "%.*s", (int)ask.jobs[0].info.id.len,
                 (const char *)ask.jobs[0].info.id.data);
        assert_int_equal(ask.jobs[0].info.total, parts);
        assert_int_equal(ask.jobs[0].info.done + ask.jobs[0].info.failed, 0);
        rig_work(rig, 0, 4);
        rig_await_end(rig, id);
        rig_check_result(rig, id, "part %zu\n", parts);
    }
    mr_job_ask_done(&ask);
}

static void die_while_loading(enum mr_job_step step, unsigned times, size_t parts)
{
    struct rig *rig = rig_make();
    struct child child = {.broker_url = rig->broker_url,
                          .store_url = rig->store_url,
                          .step = step,
                          .times = times,
                          .load = parts,
                          .segment_parts = 1000};
    rig_close(rig);
    child_start(&child);
    bool acknowledged = child_loaded(&child, RIG_WAIT_MS);
    child_kill(&child);
    rig_open(rig);
    rig->settings.segment_parts = 1000;
    check_all_or_nothing(rig, parts, acknowledged);
    rig_free(rig);
}

static void test_100_a_kill_at_any_step_leaves_no_job_or_all_of_it(void **state)
{
    static const enum mr_job_step at[] = {MR_JOB_STEP_ADD, MR_JOB_STEP_ADDED, MR_JOB_STEP_COMMIT,
                                          MR_JOB_STEP_COMMITTED};
    size_t parts = rig_full() ? 22000 : 9000; /* of 4000 a chunk */
    (void)state;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        unsigned times = i >= 2 ? 1 : rig_full() ? 6 : rig_is_shared() ? 1 : 2;
        for (unsigned k = 1; k <= times; k++)
            die_while_loading(at[i], k, parts);
    }
}

int jobs_create(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_99_a_job_has_the_parts_of_its_input_and_gives_it_back),
        cmocka_unit_test(test_99_a_job_without_parts_is_refused),
        cmocka_unit_test(test_99_a_part_over_the_limit_is_refused_with_its_number),
        cmocka_unit_test(test_99_a_load_that_is_given_up_leaves_no_job),
        cmocka_unit_test(test_99_a_load_that_is_slow_is_not_removed),
        cmocka_unit_test(test_100_a_kill_at_any_step_leaves_no_job_or_all_of_it),
    };
    return JOBS_RUN("jobs: create", tests);
}
