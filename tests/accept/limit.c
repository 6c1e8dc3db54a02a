/* SPDX-License-Identifier: Apache-2.0 */
/* Limits over eight workers: no window above them, and what they allow is used. */
#include "accept/accept.h"

enum {
    WORKERS = 8,
    RATE = 100,
    SPAN_US = 1000000,
    AT_ONCE = 5,
    SLEEP_MS = 100,
    USED_PERCENT = 95,
    USED_PERCENT_SAMPLE = 50, /* a few windows on a machine that does other things */
};

/* A process each, where several may use the broker. */
static void employ(struct accept *t)
{
    for (size_t i = 0; i < WORKERS; i++) {
        if (t->engine->shared)
            (void)PROCESS(t, t->place[0].url, .slots = 4);
        else
            (void)WORKER(t, .slots = 4);
    }
}

static int by_epoch(const void *a, const void *b)
{
    const struct accept_run *x = a, *y = b;
    return x->epoch < y->epoch ? -1 : x->epoch > y->epoch;
}

static int by_begin(const void *a, const void *b)
{
    const struct accept_run *x = a, *y = b;
    return x->mono_ns < y->mono_ns ? -1 : x->mono_ns > y->mono_ns;
}

/* Each when it was handed out, by the broker's clock. */
static void test_limit_of_100_a_second_is_never_exceeded_and_used(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(20, 2) * RATE, runs_n;
    struct mr_limit limit = {.rate = RATE, .rate_ms = SPAN_US / 1000};
    assert_err(mr_queue_set_rate(t->client, MR_SLICE_LIT("default"), &limit), MR_OK);
    accept_put_many(t, "r", n, &(struct accept_task){.type = "echo"});
    employ(t);
    UNTIL(accept_all_completed(t));
    struct accept_run *runs = accept_runs(t, &runs_n);
    assert_int_equal(runs_n, n);
    qsort(runs, n, sizeof *runs, by_epoch);
    for (size_t i = RATE; i < n; i++)
        if (runs[i].epoch - runs[i - RATE].epoch < SPAN_US)
            fail_msg("%d and one more within %llu us", RATE,
                     (unsigned long long)(runs[i].epoch - runs[i - RATE].epoch));
    uint64_t took_us = runs[n - 1].epoch - runs[0].epoch;
    uint64_t allowed = took_us * RATE / SPAN_US + RATE;
    print_message("%zu in %llu us: %llu %% of the limit\n", n, (unsigned long long)took_us,
                  (unsigned long long)(100 * n / allowed));
    assert_true(100 * n >= accept_size(USED_PERCENT, USED_PERCENT_SAMPLE) * allowed);
    /* Where the work is done, as far as this machine is on time. */
    qsort(runs, n, sizeof *runs, by_begin);
    for (size_t i = RATE; i < n; i++)
        assert_true(runs[i].mono_ns - runs[i - RATE].mono_ns >= SPAN_US / 2 * MR_NS_PER_US);
    free(runs);
}

/* How long this one was in hand. */
static int64_t in_hand_ms(struct accept *t, const char *id, int64_t *first_ms, int64_t *last_ms)
{
    struct mr_task_list *list = accept_get(t, id);
    assert_non_null(list);
    const struct mr_task *task = mr_task_list_at(list, 0);
    int64_t ms = task->finished_ms - task->started_ms;
    if (task->started_ms < *first_ms)
        *first_ms = task->started_ms;
    if (task->finished_ms > *last_ms)
        *last_ms = task->finished_ms;
    mr_task_list_free(list);
    return ms;
}

static void test_limit_of_5_at_once_is_never_exceeded_and_used(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(150, 8) * AT_ONCE, runs_n;
    struct mr_limit limit = {.concurrency = AT_ONCE};
    assert_err(mr_queue_set_concurrency(t->client, MR_SLICE_LIT("default"), &limit), MR_OK);
    accept_put_many(t, "c", n, &(struct accept_task){.type = "nap", .payload = "100"});
    employ(t);
    UNTIL(accept_count(t, "default", MR_COMPLETED) > AT_ONCE);
    UNTIL(accept_all_completed(t));
    struct accept_run *runs = accept_runs(t, &runs_n);
    assert_int_equal(runs_n, n);
    qsort(runs, n, sizeof *runs, by_begin);
    /* When one begins, at least one of the five before it has ended, which took its time. */
    for (size_t i = AT_ONCE; i < n; i++)
        assert_true(runs[i].mono_ns - runs[i - AT_ONCE].mono_ns >= SLEEP_MS * MR_NS_PER_MS);
    int64_t held_ms = 0, first_ms = INT64_MAX, last_ms = 0;
    for (size_t i = 0; i < n; i++)
        held_ms += in_hand_ms(t, runs[i].id, &first_ms, &last_ms);
    int64_t allowed_ms = AT_ONCE * (last_ms - first_ms);
    print_message("in hand %lld ms of %lld\n", (long long)held_ms, (long long)allowed_ms);
    assert_true(held_ms <= allowed_ms + (int64_t)n); /* a ms of rounding each */
    assert_true(100 * held_ms >=
                (int64_t)accept_size(USED_PERCENT, USED_PERCENT_SAMPLE) * allowed_ms);
    free(runs);
}

/* A worker that is killed gives its permits back with its tasks. */
static void test_limit_comes_back_from_a_worker_that_was_killed(void **state)
{
    struct accept *t = *state;
    struct mr_limit limit = {.scope = MR_LIMIT_TYPE, .name = "nap", .concurrency = AT_ONCE};
    if (!t->engine->shared)
        return;
    assert_err(mr_queue_set_concurrency(t->client, MR_SLICE_LIT("default"), &limit), MR_OK);
    accept_put_many(t, "k", 4 * AT_ONCE, &(struct accept_task){.type = "nap", .payload = "200"});
    pid_t pid = PROCESS(t, t->place[0].url, .slots = AT_ONCE);
    UNTIL(accept_count(t, "default", MR_ACTIVE) == AT_ONCE);
    (void)PROCESS(t, t->place[0].url, .slots = AT_ONCE);
    accept_kill_process(t, pid);
    UNTIL(accept_all_completed(t));
}

int accept_limit(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_limit_of_100_a_second_is_never_exceeded_and_used),
        ACCEPT_TEST(test_limit_of_5_at_once_is_never_exceeded_and_used),
        ACCEPT_TEST(test_limit_comes_back_from_a_worker_that_was_killed),
    };
    return ACCEPT_RUN(engine, "limits", tests);
}
