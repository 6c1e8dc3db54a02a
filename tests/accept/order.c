/* SPDX-License-Identifier: Apache-2.0 */
/* Part H, 79 to 82: in which order tasks run. */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/hand.h"

enum { EQUAL_KEYS = 1000, SHARE_PERCENT = 5 };

/* The order of runs so far, from the i-th on, is the one of these ids up to a NULL. */
static void assert_ran(struct accept *t, size_t i, const char *const *ids)
{
    size_t n;
    struct accept_run *runs = accept_runs(t, &n);
    for (; *ids; ids++, i++) {
        assert_true(i < n);
        assert_string_equal(runs[i].id, *ids);
    }
    assert_int_equal(i, n);
    free(runs);
}
#define ASSERT_RAN(t, from, ...) assert_ran(t, from, (const char *const[]){__VA_ARGS__, NULL})

static void assert_fifo(struct accept *t, const char *prefix, size_t from)
{
    size_t n;
    struct accept_run *runs = accept_runs(t, &n);
    assert_int_equal(n, from + EQUAL_KEYS);
    for (size_t i = 0; i < EQUAL_KEYS; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "%s%zu", prefix, i);
        assert_string_equal(runs[from + i].id, id);
    }
    free(runs);
}

static void test_79_priority_then_first_in_first_out(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "p0");
    PUT(t, .id = "p60", .priority_s = 60);
    PUT(t, .id = "p10", .priority_s = 10);
    BURST(t, .slots = 1);
    ASSERT_RAN(t, 0, "p60", "p10", "p0");
    accept_put_many(t, "plain", EQUAL_KEYS, &(struct accept_task){0});
    BURST(t, .slots = 1);
    assert_fifo(t, "plain", 3);
    accept_put_many(t, "ahead", EQUAL_KEYS, &(struct accept_task){.priority_s = 60});
    BURST(t, .slots = 1);
    assert_fifo(t, "ahead", 3 + EQUAL_KEYS);
}

static void test_80_who_waits_long_enough_goes_first(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "a", .queue = "aged");
    PUT(t, .id = "c", .queue = "young");
    PUT(t, .id = "d", .queue = "young", .priority_s = 0.3);
    accept_pass_ms(400);
    PUT(t, .id = "b", .queue = "aged", .priority_s = 0.3);
    BURST(t, .queues = "aged", .slots = 1);
    ASSERT_RAN(t, 0, "a", "b");
    BURST(t, .queues = "young", .slots = 1);
    ASSERT_RAN(t, 2, "d", "c");
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
    BURST(t, .slots = 1);
    ASSERT_RAN(t, 1, "a", "b", "c", "d");
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
    size_t per_class = 100, n;
    static const char *const classes[] = {"high", "medium", "low"};
    fill_classes(t, per_class);
    BURST(t, .queues = "high medium low", .order = MR_QUEUES_STRICT, .slots = 1);
    struct accept_run *runs = accept_runs(t, &n);
    assert_int_equal(n, 3 * per_class);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(runs[i].queue, classes[i / per_class]);
    free(runs);
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
