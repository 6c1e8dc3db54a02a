/* SPDX-License-Identifier: Apache-2.0 */
/* Part B: take and commit. Test 22 is in kill.c. What the C API does only together with a run is done with
 * a bare take (hand.h). */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/hand.h"

enum { WAIT_MS = 2000, LATE_MS = 50, TRIES = 5, SLOTS = 16 };

static uint64_t in_hand_of(struct accept *t, const char *node)
{
    struct mr_node_list *nodes = NULL;
    uint64_t n = UINT64_MAX;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(nodes); i++) {
        const struct mr_node_info *info = mr_node_list_at(nodes, i);
        if (info->name.len == strlen(node) && memcmp(info->name.data, node, info->name.len) == 0)
            n = info->in_hand;
    }
    mr_node_list_free(nodes);
    return n;
}

struct waiter {
    struct hand *hand;
    int64_t wait_ms;
    struct mr_lease *lease;
    enum mr_err err;
    mr_mono came;
    _Atomic bool answered;
    pthread_t thread;
};

static void *await_task(void *arg)
{
    struct waiter *waiter = arg;
    waiter->lease = hand_take(waiter->hand, waiter->wait_ms, &waiter->err);
    waiter->came = accept_now();
    waiter->answered = true;
    return NULL;
}

/* How many ms behind the answer to its submit a task comes to one who waits. */
static int64_t lateness_ms(struct accept *t, struct hand *hand)
{
    struct waiter waiter = {.hand = hand, .wait_ms = WAIT_MS};
    assert_err(mr_thread_start(&waiter.thread, "waiter", await_task, &waiter), MR_OK);
    accept_pass_ms((int64_t)accept_size(1000, 200));
    PUT(t, .payload = "p");
    mr_mono sent = accept_now();
    mr_thread_join(waiter.thread);
    assert_non_null(waiter.lease);
    hand_done(hand, waiter.lease);
    return (waiter.came.ns - sent.ns) / MR_NS_PER_MS;
}

static void test_13_empty_at_once_and_no_wait_behind_a_submit(void **state)
{
    struct accept *t = *state;
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    enum mr_err err;
    mr_mono begin = accept_now();
    assert_null(hand_take(hand, 0, &err));
    assert_err(err, MR_EMPTY);
    assert_in_range(accept_since_ms(begin), 0, WAIT_MS / 2);
    BURST(t);
    int64_t late_ms = INT64_MAX;
    for (int i = 0; i < TRIES && late_ms > LATE_MS; i++)
        late_ms = lateness_ms(t, hand);
    if (late_ms > LATE_MS)
        fail_msg("the task came after %lld ms", (long long)late_ms);
    hand_close(hand);
}

static void test_14_out_of_reach_is_not_empty(void **state)
{
    struct accept *t = *state;
    struct mr_client_options options = {.open_ms = 200};
    struct mr_client *client = NULL;
    struct mr_detail detail = {.text = ""};
    if (!t->engine->kill) {
        /* Out of reach is here a folder that somebody else has open. */
        assert_err(mr_client_open(t->place[0].url, &options, &client, &detail), MR_IN_USE);
        return;
    }
    struct waiter waiter = {.hand = hand_open(t, "hand", NULL, ACCEPT_DEATH_MS), .wait_ms = 100};
    t->engine->kill(&t->place[0]);
    /* It tries for a while, longer than it would wait for a task; empty is no answer to that. */
    assert_err(mr_thread_start(&waiter.thread, "waiter", await_task, &waiter), MR_OK);
    assert_err(mr_client_open(t->place[0].url, &options, &client, &detail), MR_UNAVAILABLE);
    assert_true(detail.text[0] != '\0');
    mr_mono began = accept_now();
    UNTIL(waiter.answered || accept_since_ms(began) > ACCEPT_DEATH_MS);
    if (waiter.answered)
        assert_true(waiter.err != MR_OK && waiter.err != MR_EMPTY);
    t->engine->restart(&t->place[0]);
    mr_thread_join(waiter.thread);
    hand_abandon(waiter.hand);
    struct mr_stats stats;
    UNTIL(mr_stats_get(t->client, &stats) == MR_OK);
    PUT(t, .id = "x");
    WORKER(t);
    UNTIL(accept_state(t, "x") == MR_COMPLETED);
}

static void test_15_a_taken_task_is_in_one_hand_only(void **state)
{
    struct accept *t = *state;
    struct hand *one = hand_open(t, "one", NULL, 0), *two = hand_open(t, "two", NULL, 0);
    PUT(t, .id = "x", .payload = "p");
    struct mr_lease *lease = hand_take(one, 0, NULL);
    assert_non_null(lease);
    assert_int_equal(accept_total(t, MR_PENDING), 0);
    assert_int_equal(accept_total(t, MR_ACTIVE), 1);
    assert_int_equal(in_hand_of(t, "one"), 1);
    assert_int_equal(in_hand_of(t, "two"), 0);
    struct mr_task_list *list = accept_get(t, "x");
    assert_int_equal(mr_task_list_at(list, 0)->node.len, 3);
    assert_memory_equal(mr_task_list_at(list, 0)->node.data, "one", 3);
    mr_task_list_free(list);
    assert_null(hand_take(two, 100, NULL));
    BURST(t);
    assert_int_equal(accept_ran_all(t), 0);
    hand_done(one, lease);
    hand_close(one);
    hand_close(two);
}

static void test_16_a_commit_is_one_step(void **state)
{
    struct accept *t = *state;
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    PUT(t, .id = "before", .payload = "first");
    PUT(t, .id = "x", .payload = "p");
    hand_done(hand, hand_take(hand, 0, NULL));
    hand_done(hand, hand_take(hand, 0, NULL));
    assert_int_equal(in_hand_of(t, "hand"), 0);
    assert_int_equal(accept_total(t, MR_ACTIVE), 0);
    struct mr_list_options options = {.queue = mr_slice_str("default"), .state = MR_COMPLETED};
    struct mr_task_list *list = NULL;
    assert_err(mr_task_list_get(t->client, &options, &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), 2);
    mr_task_list_free(list);
    accept_await_echo(t, "before");
    accept_await_echo(t, "x");
    hand_close(hand);
}

static void test_17_a_second_commit_changes_nothing(void **state)
{
    struct accept *t = *state;
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    PUT(t, .id = "x", .payload = "p");
    struct mr_lease *lease = hand_take(hand, 0, NULL);
    assert_non_null(lease);
    struct mr_finish item = {.outcome = MR_DONE, .result = lease->task.payload};
    assert_err(hand_finish(hand, lease, item), MR_OK);
    item.result = mr_slice_str("another");
    assert_err(hand_finish(hand, lease, item), MR_STALE);
    item.outcome = MR_FAIL_FOR_GOOD;
    assert_err(hand_finish(hand, lease, item), MR_STALE);
    accept_await_echo(t, "x");
    assert_int_equal(accept_queue(t, "default").processed_total, 1);
    mr_lease_free(lease);
    hand_close(hand);
}

static void test_18_a_commit_of_nothing_or_of_others_is_refused(void **state)
{
    struct accept *t = *state;
    struct hand *one = hand_open(t, "one", NULL, 0), *two = hand_open(t, "two", NULL, 0);
    PUT(t, .id = "a", .payload = "p");
    PUT(t, .id = "b", .payload = "p");
    struct mr_lease *a = hand_take(one, 0, NULL), *b = hand_take(two, 0, NULL);
    assert_true(a && b);
    struct mr_finish unknown = {.id = mr_slice_str("nobody"), .outcome = MR_DONE};
    assert_err(hand_finish(one, a, unknown), MR_NOT_FOUND);
    struct mr_finish theirs = {.epoch = b->epoch, .outcome = MR_DONE};
    assert_err(hand_finish(two, a, theirs), MR_STALE);
    assert_int_equal(in_hand_of(t, "one"), 1);
    assert_int_equal(in_hand_of(t, "two"), 1);
    assert_int_equal(accept_total(t, MR_ACTIVE), 2);
    hand_done(one, a);
    hand_done(two, b);
    /* The same where nothing would be kept. */
    accept_put_many(t, "u", 2, &(struct accept_task){.unkept = true});
    a = hand_take(one, 0, NULL);
    b = hand_take(two, 0, NULL);
    assert_true(a && b);
    theirs.epoch = b->epoch;
    assert_err(hand_finish(two, a, theirs), MR_STALE);
    assert_int_equal(accept_total(t, MR_ACTIVE), 2);
    hand_done(one, a);
    hand_done(two, b);
    hand_close(one);
    hand_close(two);
}

static void test_19_equal_payloads_are_not_mixed_up(void **state)
{
    struct accept *t = *state;
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    PUT(t, .id = "a", .payload = "same");
    PUT(t, .id = "b", .payload = "same");
    struct mr_lease *a = hand_take(hand, 0, NULL), *b = hand_take(hand, 0, NULL);
    assert_true(a && b);
    hand_done(hand, a);
    assert_int_equal(in_hand_of(t, "hand"), 1);
    assert_int_equal(accept_state(t, "a"), MR_COMPLETED);
    assert_int_equal(accept_state(t, "b"), MR_ACTIVE);
    hand_done(hand, b);
    hand_close(hand);
}

static void test_20_sixteen_slots_run_each_task_once(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(20000, 2000);
    accept_put_many(t, "t", n, &(struct accept_task){.payload = "p"});
    /* Long leases: a disk that stalls is no death. */
    WORKER(t, .node = "worker", .slots = SLOTS, .beat_ms = WAIT_MS);
    UNTIL(accept_count(t, "default", MR_COMPLETED) == n);
    UNTIL(in_hand_of(t, "worker") == 0);
    accept_each_ran_once(t);
}

static void test_21_work_is_pulled_and_slots_are_a_limit(void **state)
{
    struct accept *t = *state;
    struct hand *idle = hand_open(t, "idle", NULL, 0);
    t->hold = true;
    accept_put_many(t, "t", 11, &(struct accept_task){.type = "hold"});
    struct mr_worker *ten = WORKER(t, .node = "ten", .slots = 10);
    UNTIL(accept_ran_all(t) == 10);
    accept_pass_ms(ACCEPT_BEAT_MS);
    assert_int_equal(accept_ran_all(t), 10);
    assert_int_equal(accept_total(t, MR_PENDING), 1);
    assert_int_equal(in_hand_of(t, "idle"), 0);
    struct mr_worker *one = WORKER(t, .node = "one", .slots = 1);
    UNTIL(accept_ran_all(t) == 11);
    t->hold = false;
    UNTIL(accept_total(t, MR_COMPLETED) == 11);
    accept_dismiss(t, ten);
    accept_dismiss(t, one);
    assert_int_equal(in_hand_of(t, "idle"), 0);
    hand_close(idle);
    accept_each_ran_once(t);
}

int accept_work(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_13_empty_at_once_and_no_wait_behind_a_submit),
        ACCEPT_TEST(test_14_out_of_reach_is_not_empty),
        ACCEPT_TEST(test_15_a_taken_task_is_in_one_hand_only),
        ACCEPT_TEST(test_16_a_commit_is_one_step),
        ACCEPT_TEST(test_17_a_second_commit_changes_nothing),
        ACCEPT_TEST(test_18_a_commit_of_nothing_or_of_others_is_refused),
        ACCEPT_TEST(test_19_equal_payloads_are_not_mixed_up),
        ACCEPT_TEST(test_20_sixteen_slots_run_each_task_once),
        ACCEPT_TEST(test_21_work_is_pulled_and_slots_are_a_limit),
    };
    return ACCEPT_RUN(engine, "B: take and commit", tests);
}
