/* SPDX-License-Identifier: Apache-2.0 */
/* Part H, 83 to 90: retries, timeouts, handlers that crash. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/accept.h"
#include "accept/hand.h"

enum { GATE_MS = 200, LATE_MS = 150, GATE_TRIES = 3, LATE_END_MS = 1200, SLOW_START_MS = 10000 };

static int64_t timeout_ms(void)
{
    return (int64_t)accept_size(1000, 400);
}

/* ms between the begins of the runs of a task. */
static size_t gaps_of(struct accept *t, const char *id, int64_t *gaps, size_t max)
{
    size_t n, found = 0;
    int64_t last_ns = 0;
    struct accept_run *runs = accept_runs(t, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(runs[i].id, id) != 0)
            continue;
        if (last_ns != 0 && found < max)
            gaps[found++] = (runs[i].mono_ns - last_ns) / MR_NS_PER_MS;
        last_ns = runs[i].mono_ns;
    }
    free(runs);
    return found;
}

static void test_84_a_retry_is_neither_early_nor_late(void **state)
{
    struct accept *t = *state;
    int64_t gaps[GATE_TRIES], best = INT64_MAX;
    PUT(t, .id = "x", .type = "pace", .payload = "200", .max_retry = GATE_TRIES);
    WORKER(t);
    UNTIL(accept_state(t, "x") == MR_ARCHIVED);
    assert_int_equal(gaps_of(t, "x", gaps, GATE_TRIES), GATE_TRIES);
    for (size_t i = 0; i < GATE_TRIES; i++) {
        /* Times are in whole ms. */
        assert_in_range(gaps[i], GATE_MS - 1, ACCEPT_WAIT_MS);
        best = gaps[i] < best ? gaps[i] : best;
    }
    assert_in_range(best, GATE_MS - 1, GATE_MS + LATE_MS);
}

/* A fails with 30 s, B and C wait, D comes later: all of them go before it, and nothing waits for the 30 s. */
static void test_83_a_retry_lowers_the_priority(void **state)
{
    enum { DELAY_MS = 30000, ABOUT_MS = 50 };
    struct accept *t = *state;
    assert_err(mr_queue_set_retry_mode(t->client, mr_slice_str("default"), MR_RETRY_ORDER), MR_OK);
    PUT(t, .id = "a");
    PUT(t, .id = "b");
    PUT(t, .id = "c");
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    struct mr_lease *lease = hand_take(hand, ACCEPT_WAIT_MS, NULL);
    int64_t before_ms = accept_wall_ms();
    assert_err(hand_finish(hand, lease,
                           (struct mr_finish){.outcome = MR_FAIL,
                                              .delay_ms = DELAY_MS,
                                              .error = mr_slice_str("later")}),
               MR_OK);
    int64_t after_ms = accept_wall_ms();
    mr_lease_free(lease);
    struct mr_task_list *list = accept_get(t, "a");
    assert_non_null(list);
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->state, MR_PENDING);
    assert_in_range(task->order_time_ms, before_ms + DELAY_MS - ABOUT_MS,
                    after_ms + DELAY_MS + ABOUT_MS);
    mr_task_list_free(list);
    PUT(t, .id = "d");
    hand_expect(hand, "b");
    hand_expect(hand, "c");
    hand_expect(hand, "d");
    hand_expect(hand, "a");
    hand_close(hand);
}

static void test_85_retries_are_taken_when_nothing_else_is_ready(void **state)
{
    enum { N = 20 };
    struct accept *t = *state;
    assert_err(mr_queue_set_retry_mode(t->client, mr_slice_str("default"), MR_RETRY_CLASS), MR_OK);
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    PUT(t, .id = "retry");
    struct mr_lease *lease = hand_take(hand, ACCEPT_WAIT_MS, NULL);
    assert_err(hand_finish(hand, lease, (struct mr_finish){.outcome = MR_FAIL, .delay_ms = 1}),
               MR_OK);
    mr_lease_free(lease);
    accept_put_many(t, "ready", N, &(struct accept_task){.type = "echo"});
    accept_pass_ms(20); /* it is due */
    for (size_t i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "ready%zu", i);
        assert_int_equal(accept_state(t, "retry"), MR_RETRY);
        hand_expect(hand, id);
    }
    hand_expect(hand, "retry");
    hand_close(hand);
}

static void test_85_the_oldest_retry_is_served_within_the_bound(void **state)
{
    enum { BOUND_MS = 300, ABOUT_MS = 1000 };
    struct accept *t = *state;
    assert_err(mr_queue_set_retry_mode(t->client, mr_slice_str("default"), MR_RETRY_CLASS), MR_OK);
    assert_err(mr_queue_set_retry_wait(t->client, mr_slice_str("default"), BOUND_MS), MR_OK);
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    PUT(t, .id = "retry");
    struct mr_lease *lease = hand_take(hand, ACCEPT_WAIT_MS, NULL);
    mr_mono before = accept_now(); /* it waits from somewhere in between */
    assert_err(hand_finish(hand, lease, (struct mr_finish){.outcome = MR_FAIL, .delay_ms = 1}),
               MR_OK);
    mr_lease_free(lease);
    mr_mono since = accept_now();
    bool served = false;
    while (!served) { /* something else is ready all the time */
        PUT(t, .priority_s = 60);
        PUT(t, .priority_s = 60);
        lease = hand_take(hand, ACCEPT_WAIT_MS, NULL);
        served = mr_slice_equal(lease->task.id, mr_slice_str("retry"));
        assert_true(accept_since_ms(since) < BOUND_MS + ABOUT_MS);
        hand_done(hand, lease);
        accept_pass_ms(2);
    }
    assert_true(accept_since_ms(before) >= BOUND_MS);
    hand_close(hand);
}

static void test_86_retries_grow_and_end(void **state)
{
    struct accept *t = *state;
    static const int64_t levels[] = {20, 60, 120};
    int64_t gaps[8];
    struct mr_worker *worker = WORKER(t, .retry_levels_ms = levels, .retry_levels_n = 3);
    PUT(t, .id = "levels", .type = "fail", .max_retry = 4);
    UNTIL(accept_state(t, "levels") == MR_ARCHIVED);
    assert_int_equal(gaps_of(t, "levels", gaps, 8), 4);
    for (size_t i = 0; i < 4; i++)
        assert_in_range(gaps[i], levels[i < 3 ? i : 2] - 1, ACCEPT_WAIT_MS);
    /* By hand it starts again from nothing. */
    assert_err(accept_act(t, MR_VERB_RUN, "levels", 0), MR_OK);
    UNTIL(accept_ran(t, "levels") == 10);
    UNTIL(accept_state(t, "levels") == MR_ARCHIVED);
    size_t n;
    struct accept_run *runs = accept_runs(t, &n);
    assert_int_equal(n, 10);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(runs[i].attempt, 1 + i % 5);
    free(runs);
    accept_dismiss(t, worker);
    /* The default grows by itself, up to its limit. */
    WORKER(t, .retry_max_ms = 60);
    PUT(t, .id = "default", .type = "fail", .max_retry = 3);
    UNTIL(accept_state(t, "default") == MR_ARCHIVED);
    assert_int_equal(accept_ran(t, "default"), 4);
}

static void test_87_what_cannot_be_retried_is_archived_at_once(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .type = "fatal");
    WORKER(t);
    UNTIL(accept_state(t, "x") == MR_ARCHIVED);
    assert_int_equal(accept_ran(t, "x"), 1);
    struct mr_task_list *list = accept_get(t, "x");
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->last_error.len, strlen("as it was told"));
    mr_task_list_free(list);
}

/* ---- processes as handlers ------------------------------------------------------------------ */

/* Runs `millrace work` until nothing waits; each task is a script of the shell. */
static void work_scripts(struct accept *t)
{
    if (!t->engine->shared)
        accept_close(t);
    pid_t pid =
        accept_spawn_millrace(t, (const char *const[]){"work", "--broker", t->place[0].url, "-c",
                                                       "1", "--burst", "--", "sh", NULL});
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < ACCEPT_PROCESSES_MAX; i++)
        if (t->processes[i] == pid)
            t->processes[i] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!t->client)
        accept_open(t);
}

/* state MR_PENDING: of a retry whose time may have come meanwhile. */
static void assert_failed(struct accept *t, const char *id, enum mr_state state, const char *error)
{
    struct mr_task_list *list = accept_get(t, id);
    assert_non_null(list);
    const struct mr_task *task = mr_task_list_at(list, 0);
    if (state != MR_PENDING || task->state != MR_RETRY)
        assert_int_equal(task->state, state);
    if (!memmem(task->last_error.data, task->last_error.len, error, strlen(error)))
        fail_msg("%s: \"%.*s\" does not say \"%s\"", id, (int)task->last_error.len,
                 (const char *)task->last_error.data, error);
    assert_int_equal(task->attempt, 2);
    assert_int_equal(task->retried, 1);
    mr_task_list_free(list);
}

static bool process_is_gone(const char *pid_file)
{
    char text[32] = "";
    FILE *file = fopen(pid_file, "r");
    if (!file || !fgets(text, sizeof text, file))
        return false;
    (void)fclose(file);
    return kill((pid_t)strtol(text, NULL, 10), 0) != 0 && errno == ESRCH;
}

static void test_88_a_handler_ends_at_its_timeout(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .type = "sleep", .payload = "10000", .timeout_ms = timeout_ms());
    PUT(t, .id = "next", .payload = "p");
    struct mr_worker *worker = WORKER(t, .slots = 1, .retry_max_ms = 3600 * 1000);
    UNTIL(accept_ran(t, "x") == 1);
    mr_mono begin = accept_now();
    accept_await_echo(t, "next"); /* the slot is free */
    assert_in_range(accept_since_ms(begin), 0, timeout_ms() + LATE_END_MS);
    assert_failed(t, "x", MR_RETRY, "stop");
    accept_dismiss(t, worker);
}

/* The second one does not listen to SIGTERM, and costs the whole grace of 5 s. */
static void test_88_a_process_ends_at_its_timeout(void **state)
{
    struct accept *t = *state;
    char file[MR_PATH_MAX], polite[MR_PATH_MAX + 64], deaf[MR_PATH_MAX + 64];
    (void)snprintf(file, sizeof file, "%.*s.pid", MR_PATH_MAX - 8, t->audit);
    (void)snprintf(polite, sizeof polite, "echo $$ >%s; exec sleep 20", file);
    (void)snprintf(deaf, sizeof deaf, "trap '' TERM; echo $$ >%s; sleep 20; sleep 20", file);
    PUT(t, .id = "polite", .payload = polite, .timeout_ms = timeout_ms());
    mr_mono begin = accept_now();
    work_scripts(t);
    assert_in_range(accept_since_ms(begin), timeout_ms() - 1, timeout_ms() + SLOW_START_MS);
    assert_true(process_is_gone(file));
    assert_failed(t, "polite", MR_PENDING, "time");
    if (accept_size(1, 0)) {
        PUT(t, .id = "deaf", .payload = deaf, .timeout_ms = timeout_ms());
        work_scripts(t);
        assert_true(process_is_gone(file));
        assert_failed(t, "deaf", MR_PENDING, "time");
    }
    (void)unlink(file);
}

static void test_89_a_long_task_with_a_live_worker_runs_once(void **state)
{
    struct accept *t = *state;
    char ms[16];
    (void)snprintf(ms, sizeof ms, "%zu", accept_size(10, 2) * ACCEPT_DEATH_MS);
    PUT(t, .id = "long", .type = "sleep", .payload = ms, .timeout_ms = 60000);
    PUT(t, .id = "equal", .type = "sleep", .payload = "200", .timeout_ms = ACCEPT_DEATH_MS);
    PUT(t, .id = "below", .type = "sleep", .payload = "20000", .timeout_ms = ACCEPT_DEATH_MS / 2,
        .max_retry = MR_NO_RETRY);
    WORKER(t);
    WORKER(t);
    accept_await_echo(t, "equal");
    UNTIL(accept_state(t, "below") == MR_ARCHIVED);
    accept_await_echo(t, "long");
    accept_each_ran_once(t);
}

static void test_90_a_crash_of_a_handler_is_a_failure(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "segv", .payload = "kill -SEGV $$");
    PUT(t, .id = "abrt", .payload = "kill -ABRT $$");
    PUT(t, .id = "exit", .payload = "exit 3");
    PUT(t, .id = "fine", .payload = "printf done");
    work_scripts(t);
    assert_failed(t, "segv", MR_RETRY, "signal 11");
    assert_failed(t, "abrt", MR_RETRY, "signal 6");
    assert_failed(t, "exit", MR_RETRY, "3");
    struct mr_task_list *list = accept_get(t, "fine");
    assert_int_equal(mr_task_list_at(list, 0)->state, MR_COMPLETED);
    assert_int_equal(mr_task_list_at(list, 0)->result.len, 4);
    mr_task_list_free(list);
}

int accept_retry(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_83_a_retry_lowers_the_priority),
        ACCEPT_TEST(test_84_a_retry_is_neither_early_nor_late),
        ACCEPT_TEST(test_85_retries_are_taken_when_nothing_else_is_ready),
        ACCEPT_TEST(test_85_the_oldest_retry_is_served_within_the_bound),
        ACCEPT_TEST(test_86_retries_grow_and_end),
        ACCEPT_TEST(test_87_what_cannot_be_retried_is_archived_at_once),
        ACCEPT_TEST(test_88_a_handler_ends_at_its_timeout),
        ACCEPT_TEST(test_88_a_process_ends_at_its_timeout),
        ACCEPT_TEST(test_89_a_long_task_with_a_live_worker_runs_once),
        ACCEPT_TEST(test_90_a_crash_of_a_handler_is_a_failure),
    };
    return ACCEPT_RUN(engine, "H: retry, timeout", tests);
}
