/* SPDX-License-Identifier: Apache-2.0 */
/* Part H, 79 to 82: in which order tasks run. */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/hand.h"

enum { EQUAL_KEYS = 1000, SHARE_PERCENT = 5 };

/* A worker holds tasks ahead of its slots, and hands them back when it stalls; the order in which they are
 * handed out is the broker's. */
static void assert_handed_out(struct accept *t, const char *queue, const char *const *ids)
{
    struct hand *hand = hand_open(t, "hand", queue, 0);
    for (; *ids; ids++)
        hand_expect(hand, *ids);
    assert_null(hand_take(hand, 0, NULL));
    hand_close(hand);
}
#define ASSERT_HANDED_OUT(t, queue, ...)                                                           \
    assert_handed_out(t, queue, (const char *const[]){__VA_ARGS__, NULL})

/* The order of many, all in hand at once; then they go back, and are run. */
static void assert_fifo(struct accept *t, const char *prefix)
{
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    for (size_t i = 0; i < EQUAL_KEYS; i++) {
        char id[32], want[32];
        struct mr_lease *lease = hand_take(hand, 0, NULL);
        assert_non_null(lease);
        (void)snprintf(id, sizeof id, "%.*s", (int)lease->task.id.len,
                       (const char *)lease->task.id.data);
        (void)snprintf(want, sizeof want, "%s%zu", prefix, i);
        assert_string_equal(id, want);
        mr_lease_free(lease);
    }
    hand_close(hand);
    BURST(t);
}

static void test_79_priority_then_first_in_first_out(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "p0");
    PUT(t, .id = "p60", .priority_s = 60);
    PUT(t, .id = "p10", .priority_s = 10);
    ASSERT_HANDED_OUT(t, NULL, "p60", "p10", "p0");
    accept_put_many(t, "plain", EQUAL_KEYS, &(struct accept_task){0});
    assert_fifo(t, "plain");
    accept_put_many(t, "ahead", EQUAL_KEYS, &(struct accept_task){.priority_s = 60});
    assert_fifo(t, "ahead");
}

static void test_80_who_waits_long_enough_goes_first(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "a", .queue = "aged");
    PUT(t, .id = "c", .queue = "young");
    PUT(t, .id = "d", .queue = "young", .priority_s = 5);
    accept_pass_ms(400);
    PUT(t, .id = "b", .queue = "aged", .priority_s = 0.3);
    ASSERT_HANDED_OUT(t, "aged", "a", "b");
    ASSERT_HANDED_OUT(t, "young", "d", "c");
}

static int64_t order_of(struct accept *t, const char *id)
{
    struct mr_task_list *list = accept_get(t, id);
    assert_non_null(list);
    int64_t order_ms = mr_task_list_at(list, 0)->order_time_ms;
    mr_task_list_free(list);
    return order_ms;
}

static void test_81_a_recovered_task_keeps_its_place(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "a", .type = "sleep", .payload = "200", .priority_s = 5);
    int64_t order_ms = order_of(t, "a");
    if (!t->engine->shared)
        accept_close(t);
    pid_t pid = accept_spawn_worker(t, t->place[0].url, "default", 1);
    UNTIL(accept_ran(t, "a") == 1);
    accept_kill_process(t, pid);
    if (!t->client)
        accept_open(t);
    /* At a Redis, who listens to a queue looks after it. */
    struct hand *watch = hand_open(t, "watch", NULL, 0);
    PUT(t, .id = "b", .priority_s = 5);
    PUT(t, .id = "c", .priority_s = 5);
    PUT(t, .id = "d");
    UNTIL(accept_state(t, "a") == MR_PENDING);
    hand_close(watch);
    assert_int_equal(order_of(t, "a"), order_ms);
    ASSERT_HANDED_OUT(t, NULL, "a", "b", "c", "d");
}

/* ---- 82 ------------------------------------------------------------------------------------- */

static void fill_classes(struct accept *t, size_t n)
{
    accept_put_many(t, "l", n, &(struct accept_task){.queue = "low"});
    accept_put_many(t, "m", n, &(struct accept_task){.queue = "medium"});
    accept_put_many(t, "h", n, &(struct accept_task){.queue = "high"});
}

static void test_82_strict_classes_are_served_one_by_one(void **state)
{
    struct accept *t = *state;
    enum { PER_CLASS = 20 };
    fill_classes(t, PER_CLASS);
    struct hand *hand = hand_open(t, "hand", "high medium low", 0);
    for (size_t i = 0; i < 3 * PER_CLASS; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "%c%zu", "hml"[i / PER_CLASS], i % PER_CLASS);
        hand_expect(hand, id);
    }
    hand_close(hand);
}

static void test_82_weighted_classes_get_their_shares(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(10000, 1000), all, last_low = 0;
    size_t shares[3] = {0};
    static const char *const classes[3] = {"high", "medium", "low"};
    static const size_t weights[3] = {6, 3, 1};
    fill_classes(t, n);
    BURST(t, .queues = "high=6 medium=3 low=1", .slots = 1);
    struct accept_run *runs = accept_runs(t, &all);
    assert_int_equal(all, 3 * n);
    for (size_t i = 0; i < n; i++) {
        for (size_t c = 0; c < 3; c++)
            shares[c] += strcmp(runs[i].queue, classes[c]) == 0;
        if (strcmp(runs[i].queue, "low") == 0)
            last_low = i;
        assert_in_range(i - last_low, 0, n / 2);
    }
    free(runs);
    for (size_t c = 0; c < 3; c++) {
        size_t due = n * weights[c] / 10;
        if (shares[c] + n * SHARE_PERCENT / 100 < due || shares[c] > due + n * SHARE_PERCENT / 100)
            fail_msg("%s: %zu of %zu, must be %zu", classes[c], shares[c], n, due);
    }
}

int accept_order(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_79_priority_then_first_in_first_out),
        ACCEPT_TEST(test_80_who_waits_long_enough_goes_first),
        ACCEPT_TEST(test_81_a_recovered_task_keeps_its_place),
        ACCEPT_TEST(test_82_strict_classes_are_served_one_by_one),
        ACCEPT_TEST(test_82_weighted_classes_get_their_shares),
    };
    return ACCEPT_RUN(engine, "H: order", tests);
}
