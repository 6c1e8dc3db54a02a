/* SPDX-License-Identifier: Apache-2.0 */
/* Part C: a master takes results and commits them; and what other parts say of results. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "accept/accept.h"
#include "accept/hand.h"

#define TOPIC "news"

enum { THREADS = 8, MASTERS = 4, TAKE = 50, LATE_MS = 1000 }; /* the machine may be busy */

/* ---- masters -------------------------------------------------------------------------------- */

static struct mr_master *master_open(struct accept *t, const char *name, int64_t lease_ms)
{
    const struct mr_slice topic = mr_slice_str(TOPIC);
    struct mr_master *master;
    struct mr_master_options options = {.node = mr_slice_str(name),
                                        .topics = &topic,
                                        .topics_n = 1,
                                        .beat_ms = ACCEPT_BEAT_MS,
                                        .beats_missed = ACCEPT_BEATS_MISSED,
                                        .lease_ms = lease_ms};
    assert_err(mr_master_open(t->client, &options, &master), MR_OK);
    return master;
}

/* NULL: nothing came. */
static struct mr_result_list *take(struct mr_master *master, size_t max, int64_t wait_ms)
{
    struct mr_result_list *list = NULL;
    enum mr_err err = mr_master_take(master, max, wait_ms, &list);
    if (err != MR_EMPTY)
        assert_err(err, MR_OK);
    return list;
}

static void is_of(const struct mr_result_list *list, size_t i, const char *id)
{
    const struct mr_result *result = mr_result_list_at(list, i);
    assert_non_null(result);
    assert_int_equal(result->task_id.len, strlen(id));
    assert_memory_equal(result->task_id.data, id, strlen(id));
}

/* What the broker says to the commit of the i-th. */
static enum mr_err commit(struct mr_master *master, const struct mr_result_list *list, size_t i)
{
    enum mr_err err = MR_FAILED;
    struct mr_slice receipt = mr_result_list_at(list, i)->receipt;
    assert_err(mr_master_commit(master, &receipt, 1, &err), MR_OK);
    return err;
}

static void commit_all(struct mr_master *master, struct mr_result_list *list)
{
    for (size_t i = 0; i < mr_result_list_count(list); i++)
        assert_err(commit(master, list, i), MR_OK);
    mr_result_list_free(list);
}

static uint64_t waiting(struct accept *t)
{
    uint64_t n, in_hand;
    assert_err(mr_topic_get(t->client, mr_slice_str(TOPIC), &n, &in_hand), MR_OK);
    return n;
}

static uint64_t in_hand(struct accept *t)
{
    uint64_t n, held;
    assert_err(mr_topic_get(t->client, mr_slice_str(TOPIC), &n, &held), MR_OK);
    return held;
}

/* Results of r0, r1, ... in this order. */
static void leave(struct accept *t, size_t n)
{
    accept_put_many(t, "r", n, &(struct accept_task){.payload = "p", .topic = TOPIC});
    BURST(t, .slots = 1);
    UNTIL(waiting(t) == n);
}

/* ---- A and B: what a run leaves ------------------------------------------------------------- */

static void test_02_any_bytes_go_through_a_topic(void **state)
{
    struct accept *t = *state;
    char *big = malloc(MR_PAYLOAD_MAX);
    assert_non_null(big);
    for (size_t i = 0; i < MR_PAYLOAD_MAX; i++)
        big[i] = (char)(i * 31 + (i >> 8));
    const struct mr_slice payloads[] = {
        mr_slice_str("a^pillar^b"),
        mr_slice_str("^codewave^"),
        {"\0a\0\0", 4},
        {"\xff\xfe\xc0\x80", 4},
        {"", 0},
        {big, MR_PAYLOAD_MAX},
    };
    struct mr_master *master = master_open(t, "master", 0);
    WORKER(t, .slots = 1);
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
        struct mr_task_options options = {
            .type = mr_slice_str("echo"), .payload = payloads[i], .topic = mr_slice_str(TOPIC)};
        struct mr_enqueue_result result = accept_try(t, options);
        assert_err(result.err, MR_OK);
        (void)accept_remember(t, result.id);
        struct mr_result_list *list = take(master, 1, ACCEPT_WAIT_MS);
        assert_non_null(list);
        is_of(list, 0, result.id);
        assert_int_equal(in_hand(t), 1);
        struct mr_slice got = mr_result_list_at(list, 0)->result;
        assert_int_equal(got.len, payloads[i].len);
        if (got.len > 0)
            assert_memory_equal(got.data, payloads[i].data, got.len);
        commit_all(master, list);
        assert_int_equal(in_hand(t), 0);
    }
    mr_master_free(master);
    free(big);
}

static void test_08_the_result_of_a_task_that_was_to_be_deleted_says_so(void **state)
{
    struct accept *t = *state;
    struct mr_master *master = master_open(t, "master", 0);
    PUT(t, .id = "x", .type = "deaf", .payload = "p", .topic = TOPIC);
    t->hold = true;
    WORKER(t, .slots = 1, .grace_ms = ACCEPT_WAIT_MS);
    UNTIL(accept_ran(t, "x") == 1);
    assert_err(accept_act(t, MR_VERB_DELETE, "x", 0), MR_RUNNING);
    t->hold = false;
    struct mr_result_list *list = take(master, 1, ACCEPT_WAIT_MS);
    is_of(list, 0, "x");
    assert_true(mr_result_list_at(list, 0)->cancel_requested);
    assert_int_equal(mr_result_list_at(list, 0)->outcome, MR_RESULT_OK);
    commit_all(master, list);
    mr_master_free(master);
}

static void test_16_a_commit_leaves_one_result_at_the_tail(void **state)
{
    struct accept *t = *state;
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    accept_put_many(t, "t", 3, &(struct accept_task){.payload = "p", .topic = TOPIC});
    for (uint64_t i = 0; i < 3; i++) {
        struct mr_lease *lease = hand_take(hand, 0, NULL);
        assert_non_null(lease);
        assert_int_equal(waiting(t), i);
        hand_done(hand, lease);
        assert_int_equal(waiting(t), i + 1);
        assert_int_equal(accept_count(t, "default", MR_ACTIVE), 0);
    }
    struct mr_master *master = master_open(t, "master", 0);
    struct mr_result_list *list = take(master, 10, 0);
    assert_int_equal(mr_result_list_count(list), 3);
    is_of(list, 0, "t0");
    is_of(list, 2, "t2");
    commit_all(master, list);
    mr_master_free(master);
    hand_close(hand);
}

/* The answer to the first was lost; for a server that was killed meanwhile, and for one that was not. */
static void test_49_a_commit_that_is_repeated_leaves_one_result(void **state)
{
    struct accept *t = *state;
    for (int killed = 0; killed <= (t->engine->kill != NULL); killed++) {
        struct hand *hand = hand_open(t, "hand", NULL, 0);
        const char *id = PUT(t, .payload = "p", .topic = TOPIC);
        struct mr_lease *lease = hand_take(hand, ACCEPT_WAIT_MS, NULL);
        assert_non_null(lease);
        struct mr_finish done = {.outcome = MR_DONE, .result = lease->task.payload};
        assert_err(hand_finish(hand, lease, done), MR_OK);
        if (killed) {
            t->engine->kill(&t->place[0]);
            t->engine->restart(&t->place[0]);
            struct mr_stats stats;
            UNTIL(mr_stats_get(t->client, &stats) == MR_OK);
        }
        enum mr_err again = hand_finish(hand, lease, done);
        assert_true(again == MR_STALE || again == MR_NOT_FOUND);
        mr_lease_free(lease);
        assert_int_equal(waiting(t), 1);
        assert_int_equal(accept_state(t, id), MR_COMPLETED);
        hand_abandon(hand);
        struct mr_master *master = master_open(t, "master", 0);
        commit_all(master, take(master, 1, 0));
        mr_master_free(master);
    }
}

/* ---- C -------------------------------------------------------------------------------------- */

static void test_23_results_come_in_the_order_of_their_commits(void **state)
{
    struct accept *t = *state;
    enum { N = 5 };
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    struct mr_lease *leases[N];
    char id[8] = "t0";
    accept_put_many(t, "t", N, &(struct accept_task){.payload = "p", .topic = TOPIC});
    for (size_t i = 0; i < N; i++)
        leases[i] = hand_take(hand, 0, NULL);
    for (size_t i = N; i-- > 0;)
        hand_done(hand, leases[i]);
    struct mr_master *master = master_open(t, "master", 0);
    struct mr_result_list *list = take(master, N, 0);
    for (size_t i = 0; i < N; i++, id[1]++)
        is_of(list, N - 1 - i, id);
    commit_all(master, list);
    mr_master_free(master);
    hand_close(hand);
}

static void test_24_what_a_master_holds_the_others_do_not_get(void **state)
{
    struct accept *t = *state;
    leave(t, 3);
    struct mr_master *first = master_open(t, "first", 0), *second = master_open(t, "second", 0);
    struct mr_result_list *held = take(first, 2, 0);
    is_of(held, 0, "r0");
    is_of(held, 1, "r1");
    assert_int_equal(in_hand(t), 2);
    struct mr_result_list *rest = take(second, 10, 0);
    assert_int_equal(mr_result_list_count(rest), 1);
    is_of(rest, 0, "r2");
    assert_null(take(second, 10, 0));
    commit_all(first, held);
    commit_all(second, rest);
    mr_master_free(first);
    mr_master_free(second);
}

static void test_25_a_commit_takes_one_away_and_a_second_does_no_harm(void **state)
{
    struct accept *t = *state;
    leave(t, 2);
    struct mr_master *master = master_open(t, "master", 0);
    struct mr_result_list *list = take(master, 2, 0);
    assert_err(commit(master, list, 0), MR_OK);
    assert_int_equal(in_hand(t), 1);
    assert_err(commit(master, list, 0), MR_NOT_FOUND);
    assert_int_equal(in_hand(t), 1);
    assert_err(commit(master, list, 1), MR_OK);
    assert_int_equal(in_hand(t), 0);
    mr_result_list_free(list);
    mr_master_free(master);
}

struct drainer {
    struct mr_master *master;
    pthread_t thread;
    _Atomic size_t *committed, *delivered;
    size_t all;
    const char *problem;
};

static void *drain(void *arg)
{
    struct drainer *d = arg;
    while (*d->committed < d->all && !d->problem) {
        struct mr_result_list *list = NULL;
        enum mr_err err = mr_master_take(d->master, TAKE, 20, &list), errs[TAKE];
        struct mr_slice receipts[TAKE];
        if (err == MR_EMPTY)
            continue;
        size_t n = err == MR_OK ? mr_result_list_count(list) : 0;
        for (size_t i = 0; i < n; i++)
            receipts[i] = mr_result_list_at(list, i)->receipt;
        *d->delivered += n;
        if (err != MR_OK || mr_master_commit(d->master, receipts, n, errs) != MR_OK)
            d->problem = "a take or a commit failed";
        for (size_t i = 0; i < n && !d->problem; i++)
            *d->committed += errs[i] == MR_OK;
        mr_result_list_free(list);
    }
    return NULL;
}

static void drain_with(struct accept *t, size_t n, size_t masters_n, size_t threads,
                       _Atomic size_t *delivered)
{
    struct mr_master *masters[MASTERS];
    struct drainer drainers[2 * THREADS];
    _Atomic size_t committed = 0;
    for (size_t i = 0; i < masters_n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "master%zu", i);
        masters[i] = master_open(t, name, 0);
    }
    for (size_t i = 0; i < threads; i++) {
        drainers[i] = (struct drainer){.master = masters[i % masters_n],
                                       .committed = &committed,
                                       .delivered = delivered,
                                       .all = n};
        assert_err(mr_thread_start(&drainers[i].thread, "drainer", drain, &drainers[i]), MR_OK);
    }
    for (size_t i = 0; i < threads; i++)
        mr_thread_join(drainers[i].thread);
    for (size_t i = 0; i < threads; i++)
        if (drainers[i].problem)
            fail_msg("%s", drainers[i].problem);
    for (size_t i = 0; i < masters_n; i++)
        mr_master_free(masters[i]);
    assert_int_equal(committed, n);
    assert_int_equal(waiting(t) + in_hand(t), 0);
}

static void leave_many(struct accept *t, size_t n)
{
    accept_put_many(t, "r", n, &(struct accept_task){.payload = "p", .topic = TOPIC});
    BURST(t, .slots = 8);
    UNTIL(waiting(t) == n);
}

static void test_26_two_masters_with_eight_threads_get_each_result_once(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(10000, 1000);
    _Atomic size_t delivered = 0;
    leave_many(t, n);
    drain_with(t, n, 2, 2 * THREADS, &delivered);
    assert_int_equal(delivered, n);
}

/* Masters die with what they took while others drain: it comes back to the head meanwhile. */
static void test_27_results_that_come_back_are_neither_lost_nor_accepted_twice(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(10000, 1000);
    _Atomic size_t delivered = 0;
    leave_many(t, n);
    for (size_t i = 0; i < 5; i++) {
        struct mr_master *dying = master_open(t, "dying", ACCEPT_BEAT_MS);
        struct mr_result_list *list = take(dying, n / 10, 0);
        assert_non_null(list);
        mr_result_list_free(list);
        mr_master_free(dying);
    }
    drain_with(t, n, MASTERS, MASTERS, &delivered);
    assert_true(delivered >= n);
}

/* ---- F, H, I --------------------------------------------------------------------------------- */

int accept_master_main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_master *master;
    struct mr_result_list *list = NULL;
    if (argc < 6)
        return 2;
    struct mr_slice topic = mr_slice_str(argv[3]);
    struct mr_master_options options = {.topics = &topic,
                                        .topics_n = 1,
                                        .beat_ms = ACCEPT_BEAT_MS,
                                        .beats_missed = ACCEPT_BEATS_MISSED};
    size_t n = (size_t)strtoul(argv[4], NULL, 10);
    if (mr_client_open(argv[2], NULL, &client, NULL) != MR_OK ||
        mr_master_open(client, &options, &master) != MR_OK ||
        mr_master_take(master, n, ACCEPT_WAIT_MS, &list) != MR_OK ||
        mr_result_list_count(list) != n)
        return 1;
    int fd = open(argv[5], O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
        return 1;
    for (;;)
        (void)pause();
}

static void test_48_the_results_of_a_killed_master_are_at_the_head(void **state)
{
    struct accept *t = *state;
    char file[MR_PATH_MAX + 8];
    (void)snprintf(file, sizeof file, "%s.master", t->audit);
    leave(t, 3);
    if (!t->engine->shared)
        accept_close(t);
    pid_t pid = accept_spawn_master(t, t->place[0].url, TOPIC, 2, file);
    UNTIL(access(file, F_OK) == 0);
    (void)unlink(file);
    if (t->engine->shared)
        assert_int_equal(in_hand(t), 2);
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    if (!t->engine->shared)
        accept_open(t);
    UNTIL(waiting(t) == 3);
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + ACCEPT_BEAT_MS + LATE_MS);
    struct mr_master *master = master_open(t, "master", 0);
    struct mr_result_list *list = take(master, 3, 0);
    for (size_t i = 0; i < 3; i++)
        is_of(list, i, (const char *const[]){"r0", "r1", "r2"}[i]);
    commit_all(master, list);
    mr_master_free(master);
}

static void test_88_a_timeout_is_an_outcome_with_its_attempt(void **state)
{
    struct accept *t = *state;
    struct mr_master *master = master_open(t, "master", 0);
    PUT(t, .id = "x", .type = "sleep", .payload = "60000", .timeout_ms = 100, .topic = TOPIC,
        .max_retry = 1);
    static const int64_t levels_ms[] = {1};
    WORKER(t, .slots = 1, .retry_levels_ms = levels_ms, .retry_levels_n = 1);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        struct mr_result_list *list = take(master, 1, ACCEPT_WAIT_MS);
        assert_non_null(list);
        is_of(list, 0, "x");
        const struct mr_result *result = mr_result_list_at(list, 0);
        assert_int_equal(result->outcome, MR_RESULT_TIMEOUT);
        assert_int_equal(result->attempt, attempt);
        assert_int_equal(result->final, attempt == 2);
        commit_all(master, list);
    }
    UNTIL(accept_state(t, "x") == MR_ARCHIVED);
    mr_master_free(master);
}

static void test_93_each_end_puts_one_outcome_on_the_topic(void **state)
{
    struct accept *t = *state;
    static const char *const types[] = {"echo", "fail", "fatal", "echo", "fail"};
    enum { N = sizeof types / sizeof *types };
    struct mr_master *master = master_open(t, "master", 0);
    for (size_t i = 0; i < N; i++)
        PUT(t, .type = types[i], .payload = "p", .topic = TOPIC, .max_retry = MR_NO_RETRY);
    BURST(t, .slots = 2);
    assert_int_equal(waiting(t), N);
    struct mr_result_list *list = take(master, 2 * N, 0);
    size_t ok = 0, error = 0;
    for (size_t i = 0; i < mr_result_list_count(list); i++) {
        const struct mr_result *result = mr_result_list_at(list, i);
        ok += result->outcome == MR_RESULT_OK;
        error += result->outcome == MR_RESULT_ERROR;
        assert_true(result->final);
    }
    assert_int_equal(ok, 2);
    assert_int_equal(error, 3);
    commit_all(master, list);
    mr_master_free(master);
}

int accept_result(const struct accept_engine *engine)
{
    static struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_02_any_bytes_go_through_a_topic),
        ACCEPT_TEST(test_08_the_result_of_a_task_that_was_to_be_deleted_says_so),
        ACCEPT_TEST(test_16_a_commit_leaves_one_result_at_the_tail),
        ACCEPT_TEST(test_23_results_come_in_the_order_of_their_commits),
        ACCEPT_TEST(test_24_what_a_master_holds_the_others_do_not_get),
        ACCEPT_TEST(test_25_a_commit_takes_one_away_and_a_second_does_no_harm),
        ACCEPT_TEST(test_26_two_masters_with_eight_threads_get_each_result_once),
        ACCEPT_TEST(test_27_results_that_come_back_are_neither_lost_nor_accepted_twice),
        ACCEPT_TEST(test_48_the_results_of_a_killed_master_are_at_the_head),
        ACCEPT_TEST(test_49_a_commit_that_is_repeated_leaves_one_result),
        ACCEPT_TEST(test_88_a_timeout_is_an_outcome_with_its_attempt),
        ACCEPT_TEST(test_93_each_end_puts_one_outcome_on_the_topic),
    };
    return ACCEPT_RUN(engine, "C: results", tests);
}
