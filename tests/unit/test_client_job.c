/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs by the public calls, in the process that has the folder open, with a worker in it. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <millrace.h>

#include "base/buf.h"
#include "base/diag.h"
#include "client/client.h"

enum { WAIT_MS = 60 * 1000 };

struct world {
    char dir[64];
    char url[80];
    struct mr_client *client;
    struct mr_worker *worker;
    _Atomic bool mended; /* what failed does so no more */
};

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static int make_world(void **state)
{
    static const struct mr_client_options small = {.segment_bytes = 4 * 1024 * 1024};
    struct world *world = calloc(1, sizeof *world);
    struct mr_detail detail;
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    memcpy(world->dir, "/tmp/mr-client-XXXXXX", sizeof "/tmp/mr-client-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    snprintf(world->url, sizeof world->url, "file:%s/store", world->dir);
    assert_int_equal(mr_client_open(world->url, &small, &world->client, &detail), MR_OK);
    *state = world;
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
    (void)stat, (void)flag, (void)ftw;
    return remove(path);
}

static int end_world(void **state)
{
    struct world *world = *state;
    if (world->worker != NULL)
        mr_worker_stop(world->worker);
    mr_worker_free(world->worker);
    mr_client_close(world->client);
    nftw(world->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(world);
    return 0;
}

static struct mr_slice s(const char *text)
{
    return mr_slice_str(text);
}

/* Gives back what it got; a part that is "bad" fails until it is mended. */
static enum mr_outcome echo(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    struct mr_slice payload = mr_run_task(run)->payload;
    if (!world->mended && payload.len == 3 && memcmp(payload.data, "bad", 3) == 0) {
        mr_run_error(run, "it is bad");
        return MR_FAIL_FOR_GOOD;
    }
    return mr_run_result(run, payload) == MR_OK ? MR_DONE : MR_FAIL;
}

static void start_worker(struct world *world)
{
    struct mr_worker_options options = {.slots = 4};
    assert_int_equal(mr_worker_new(world->client, &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "*", echo, world), MR_OK);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

/* A job of these parts; its id, which the next one writes over. */
static struct mr_slice submit_parts(struct world *world, const struct mr_job_options *options,
                                    const char *const *parts, size_t n)
{
    static char id[MR_JOB_ID_MAX + 1];
    struct mr_job_input *input;
    struct mr_job_list *list;
    struct mr_detail detail;
    assert_int_equal(mr_job_begin(world->client, options, &input, &detail), MR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mr_job_part(input, s(parts[i]), &detail), MR_OK);
    assert_int_equal(mr_job_submit(input, &list, &detail), MR_OK);
    assert_int_equal(mr_job_list_count(list), 1);
    const struct mr_job_info *job = mr_job_list_at(list, 0);
    assert_int_equal(job->total, n);
    assert_int_equal(job->state, MR_JOB_CREATED);
    assert_int_equal(job->job.split.len, 0);
    snprintf(id, sizeof id, "%.*s", (int)job->id.len, (const char *)job->id.data);
    mr_job_list_free(list);
    return s(id);
}

static enum mr_err append(struct mr_slice bytes, void *arg)
{
    return mr_buf_append_slice(arg, bytes);
}

static void assert_result(struct world *world, struct mr_slice id, struct mr_slice wanted)
{
    struct mr_buf got = {0};
    struct mr_detail detail = {.text = ""};
    assert_int_equal(mr_job_result(world->client, id, append, &got, &detail), MR_OK);
    assert_int_equal(got.len, wanted.len);
    assert_memory_equal(got.data, wanted.data, wanted.len);
    mr_buf_done(&got);
}

static size_t jobs_there(struct world *world)
{
    struct mr_job_list *list;
    assert_int_equal(mr_job_list_get(world->client, NULL, &list), MR_OK);
    size_t n = mr_job_list_count(list);
    mr_job_list_free(list);
    return n;
}

/* ---- in --------------------------------------------------------------------------------------- */

static void a_long_input_in_odd_pieces_is_cut_done_and_put_together(void **state)
{
    enum { LINES = 20000 };
    struct world *world = *state;
    struct mr_job_options options = {.split = s("lines:7"), .name = s("long")};
    struct mr_job_input *input;
    struct mr_job_list *list;
    struct mr_buf text = {0};
    struct mr_detail detail;
    for (size_t i = 0; i < LINES; i++)
        assert_int_equal(mr_buf_printf(&text, "this is line %zu\n", i), MR_OK);
    assert_int_equal(mr_job_begin(world->client, &options, &input, &detail), MR_OK);
    for (size_t at = 0, n = 1; at < text.len; at += n, n = n * 3 % 10007) {
        n = n < text.len - at ? n : text.len - at;
        assert_int_equal(mr_job_write(input, mr_slice_make(text.data + at, n), &detail), MR_OK);
    }
    assert_int_equal(mr_job_submit(input, &list, &detail), MR_OK);
    struct mr_slice id = mr_job_list_at(list, 0)->id;
    assert_int_equal(mr_job_list_at(list, 0)->total, (LINES + 6) / 7);
    start_worker(world);
    struct mr_job_list *ended;
    assert_int_equal(mr_job_wait(world->client, id, WAIT_MS, &ended), MR_OK);
    assert_int_equal(mr_job_list_at(ended, 0)->state, MR_JOB_SUCCEEDED);
    assert_int_equal(mr_job_list_at(ended, 0)->result_bytes, text.len);
    assert_result(world, id, mr_buf_slice(&text));
    mr_job_list_free(ended);
    mr_job_list_free(list);
    mr_buf_done(&text);
}

static void what_is_wrong_with_a_job_is_said_and_leaves_nothing(void **state)
{
    struct world *world = *state;
    struct mr_job_input *input;
    struct mr_detail detail = {.text = ""};
    struct mr_job_options wrong = {.split = s("slices")};
    assert_int_equal(mr_job_begin(world->client, &wrong, &input, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "split"));
    assert_int_equal(mr_job_begin(world->client, NULL, &input, &detail), MR_OK);
    assert_int_equal(mr_job_submit(input, NULL, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "empty"));
    assert_int_equal(mr_job_begin(world->client, NULL, &input, &detail), MR_OK);
    assert_int_equal(mr_job_write(input, s("a line\n"), &detail), MR_OK);
    assert_int_equal(mr_job_part(input, s("a part"), &detail), MR_WRONG_STATE);
    assert_int_equal(mr_job_write(input, s("once wrong\n"), &detail), MR_WRONG_STATE);
    assert_int_equal(mr_job_submit(input, NULL, &detail), MR_WRONG_STATE);
    struct mr_job_options json = {.split = s("json")};
    assert_int_equal(mr_job_begin(world->client, &json, &input, &detail), MR_OK);
    assert_int_equal(mr_job_write(input, s("[1, 2, oh]"), &detail), MR_INVALID);
    assert_int_equal(mr_job_submit(input, NULL, &detail), MR_INVALID);
    assert_int_equal(mr_job_begin(world->client, NULL, &input, &detail), MR_OK);
    assert_int_equal(mr_job_write(input, s("never mind\n"), &detail), MR_OK);
    mr_job_abandon(input);
    mr_job_abandon(NULL);
    assert_int_equal(jobs_there(world), 0);
}

static void a_part_over_the_limit_is_named(void **state)
{
    struct world *world = *state;
    struct mr_job_input *input;
    struct mr_detail detail;
    char *big = calloc(1, MR_PAYLOAD_MAX + 1);
    assert_non_null(big);
    assert_int_equal(mr_job_begin(world->client, NULL, &input, &detail), MR_OK);
    assert_int_equal(mr_job_part(input, s("small"), &detail), MR_OK);
    assert_int_equal(mr_job_part(input, mr_slice_make(big, MR_PAYLOAD_MAX + 1), &detail),
                     MR_TOO_BIG);
    assert_non_null(strstr(detail.text, "part 1"));
    mr_job_abandon(input);
    free(big);
}

/* ---- looking, acting -------------------------------------------------------------------------- */

static const char *const words[] = {"good", "bad", "fine"};

static void a_job_with_a_failure_is_looked_at_and_retried(void **state)
{
    struct world *world = *state;
    struct mr_job_options options = {.policy = MR_JOB_FINISH, .reduce = s("lines")};
    struct mr_slice id = submit_parts(world, &options, words, 3);
    struct mr_job_list *list;
    struct mr_part_list *parts;
    struct mr_detail detail = {.text = ""};
    start_worker(world);
    assert_int_equal(mr_job_wait(world->client, id, WAIT_MS, &list), MR_OK);
    const struct mr_job_info *job = mr_job_list_at(list, 0);
    assert_int_equal(job->state, MR_JOB_SUCCEEDED);
    assert_int_equal(job->done, 2);
    assert_int_equal(job->failed, 1);
    mr_job_list_free(list);
    assert_result(world, id, s("good\nfine\n"));
    struct mr_part_list_options failed = {.id = id, .states = 1u << MR_PART_FAILED};
    assert_int_equal(mr_part_list_get(world->client, &failed, &parts), MR_OK);
    assert_int_equal(mr_part_list_count(parts), 1);
    assert_int_equal(mr_part_list_at(parts, 0)->index, 1);
    assert_non_null(mr_part_list_at(parts, 0)->error.data);
    assert_null(mr_part_list_at(parts, 1));
    mr_part_list_free(parts);
    world->mended = true;
    assert_int_equal(mr_job_retry(world->client, id, &list, &detail), MR_OK);
    assert_int_equal(mr_job_list_at(list, 0)->state, MR_JOB_RUNNING);
    mr_job_list_free(list);
    assert_int_equal(mr_job_wait(world->client, id, WAIT_MS, &list), MR_OK);
    assert_int_equal(mr_job_list_at(list, 0)->done, 3);
    assert_int_equal(mr_job_list_at(list, 0)->round, 1);
    mr_job_list_free(list);
    assert_result(world, id, s("good\nbad\nfine\n"));
    assert_int_equal(mr_job_retry(world->client, id, NULL, &detail), MR_WRONG_STATE);
}

static void a_job_that_waits_can_be_cancelled(void **state)
{
    struct world *world = *state;
    struct mr_slice id = submit_parts(world, NULL, words, 3);
    struct mr_job_list *list;
    struct mr_detail detail = {.text = ""};
    struct mr_buf none = {0};
    assert_int_equal(mr_job_result(world->client, id, append, &none, &detail), MR_WRONG_STATE);
    assert_true(detail.text[0] != '\0');
    assert_int_equal(mr_job_wait(world->client, id, 50, &list), MR_TIMEOUT);
    assert_int_equal(mr_job_cancel(world->client, id, NULL, &detail), MR_OK);
    assert_int_equal(mr_job_wait(world->client, id, WAIT_MS, &list), MR_OK);
    assert_int_equal(mr_job_list_at(list, 0)->state, MR_JOB_CANCELLED);
    mr_job_list_free(list);
    struct mr_job_list_options options = {.state = MR_JOB_RUNNING};
    assert_int_equal(mr_job_list_get(world->client, &options, &list), MR_OK);
    assert_int_equal(mr_job_list_count(list), 0);
    assert_string_equal(mr_job_list_next(list), "");
    mr_job_list_free(list);
}

static void a_job_that_is_not_there_is_not_found(void **state)
{
    struct world *world = *state;
    struct mr_job_list *list;
    struct mr_slice id = s("01a1e36b-0000-7000-8000-000000000000");
    assert_int_equal(mr_job_get(world->client, id, &list), MR_NOT_FOUND);
    assert_int_equal(mr_job_wait(world->client, id, WAIT_MS, &list), MR_NOT_FOUND);
    assert_int_equal(mr_job_cancel(world->client, id, NULL, NULL), MR_NOT_FOUND);
    assert_int_equal(mr_job_result(world->client, id, append, NULL, NULL), MR_NOT_FOUND);
    struct mr_job_list_options too_many = {.limit = MR_BATCH_MAX + 1};
    assert_int_equal(mr_job_list_get(world->client, &too_many, &list), MR_INVALID);
}

/* ---- watching --------------------------------------------------------------------------------- */

struct seen {
    uint64_t version, done;
    size_t n;
    enum mr_job_state state;
    size_t leave_at; /* 0: it stays */
};

static enum mr_err see(const struct mr_job_info *job, void *arg)
{
    struct seen *seen = arg;
    if (seen->n > 0)
        assert_int_equal(job->version, seen->version + 1);
    assert_true(job->done >= seen->done);
    seen->version = job->version;
    seen->done = job->done;
    seen->state = job->state;
    return ++seen->n == seen->leave_at ? MR_CANCELLED : MR_OK;
}

static void a_watch_sees_each_version_and_can_be_taken_up_again(void **state)
{
    struct world *world = *state;
    const char *many[40];
    for (size_t i = 0; i < 40; i++)
        many[i] = "word";
    struct mr_slice id = submit_parts(world, NULL, many, 40);
    struct seen first = {.leave_at = 1}, rest = {0}, after = {0};
    assert_int_equal(mr_job_watch(world->client, id, 0, see, &first), MR_CANCELLED);
    assert_int_equal(first.state, MR_JOB_CREATED);
    start_worker(world);
    rest.version = first.version;
    rest.n = 1;
    assert_int_equal(mr_job_watch(world->client, id, first.version, see, &rest), MR_OK);
    assert_int_equal(rest.state, MR_JOB_SUCCEEDED);
    assert_int_equal(rest.done, 40);
    assert_int_equal(mr_job_watch(world->client, id, rest.version, see, &after), MR_OK);
    assert_int_equal(after.n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_world, end_world)

/* ---- burst ------------------------------------------------------------------------------------ */

static void run_burst(struct world *world, const char *type)
{
    struct mr_worker_options options = {.slots = 4, .burst = true};
    struct mr_worker *worker;
    assert_int_equal(mr_worker_new(world->client, &options, &worker), MR_OK);
    assert_int_equal(mr_worker_handle(worker, type, echo, world), MR_OK);
    assert_int_equal(mr_worker_run(worker), MR_OK);
    mr_worker_free(worker);
}

static enum mr_job_state state_of(struct world *world, struct mr_slice id)
{
    struct mr_job_list *list;
    assert_int_equal(mr_job_get(world->client, id, &list), MR_OK);
    enum mr_job_state state = mr_job_list_at(list, 0)->state;
    mr_job_list_free(list);
    return state;
}

/* Parts become tasks only when somebody serves their queue: right after the submit there is none. */
static void a_burst_does_all_of_a_job_that_was_just_submitted(void **state)
{
    struct world *world = *state;
    const struct mr_slice stages[] = {s("one"), s("two")};
    struct mr_job_options options = {.stages = stages, .stages_n = 2, .reduce = s("lines")};
    const char *const parts[] = {"a", "b", "c", "d", "e", "f", "g"};
    struct mr_slice id = submit_parts(world, &options, parts, 7);
    run_burst(world, "*");
    assert_int_equal(state_of(world, id), MR_JOB_SUCCEEDED);
    assert_result(world, id, s("a\nb\nc\nd\ne\nf\ng\n"));
}

/* What it will not run, and what is not handed out, does not keep it. */
static void a_burst_does_not_wait_for_jobs_of_others(void **state)
{
    struct world *world = *state;
    const struct mr_slice stage = s("other");
    struct mr_job_options options = {.stages = &stage, .stages_n = 1};
    const char *const parts[] = {"a", "b"};
    char ids[2][MR_JOB_ID_MAX + 1];
    /* So there is such a queue, which can be paused. */
    struct mr_task_options later = {.delay_ms = 3600 * 1000};
    struct mr_enqueue_result made;
    assert_int_equal(mr_enqueue(world->client, &later, 1, &made), MR_OK);
    struct mr_slice id = submit_parts(world, &options, parts, 2);
    snprintf(ids[0], sizeof ids[0], "%.*s", (int)id.len, (const char *)id.data);
    run_burst(world, "one");
    assert_int_not_equal(state_of(world, s(ids[0])), MR_JOB_SUCCEEDED);
    assert_int_equal(mr_queue_pause(world->client, s("default")), MR_OK);
    id = submit_parts(world, NULL, parts, 2);
    snprintf(ids[1], sizeof ids[1], "%.*s", (int)id.len, (const char *)id.data);
    run_burst(world, "*");
    assert_int_not_equal(state_of(world, s(ids[1])), MR_JOB_SUCCEEDED);
    assert_int_equal(mr_queue_resume(world->client, s("default")), MR_OK);
    run_burst(world, "*");
    assert_int_equal(state_of(world, s(ids[1])), MR_JOB_SUCCEEDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_long_input_in_odd_pieces_is_cut_done_and_put_together),
        TEST(what_is_wrong_with_a_job_is_said_and_leaves_nothing),
        TEST(a_part_over_the_limit_is_named),
        TEST(a_job_with_a_failure_is_looked_at_and_retried),
        TEST(a_job_that_waits_can_be_cancelled),
        TEST(a_job_that_is_not_there_is_not_found),
        TEST(a_watch_sees_each_version_and_can_be_taken_up_again),
        TEST(a_burst_does_all_of_a_job_that_was_just_submitted),
        TEST(a_burst_does_not_wait_for_jobs_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
