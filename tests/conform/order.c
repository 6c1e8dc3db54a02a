/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: order. Within a queue by order time, equals first in first out; between queues by
 * weight. */
#include <stdio.h>

#include "conform/conform.h"

/* Takes the next task, which must be this one, and drops it. */
static void next_is(struct conform *t, const struct conform_node *node, const char *id)
{
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DROP);
}

static void a_thousand_equals_come_first_in_first_out(void **state)
{
    struct conform *t = *state;
    enum { N = 1000 };
    conform_put_many(t, "default", "t", N);
    struct conform_node *node = NODE(t);
    for (size_t taken = 0; taken < N;) {
        size_t n;
        struct mr_lease *leases = conform_take_list(t, node, 64, 0, &n);
        assert_non_null(leases);
        for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
            char id[32];
            (void)snprintf(id, sizeof id, "t%zu", taken++);
            assert_slice(lease->task.id, id);
        }
        conform_finish_list(t, leases, MR_DROP);
    }
    conform_take_none(t, node);
}

static void one_by_one_enqueues_come_first_in_first_out(void **state)
{
    struct conform *t = *state;
    char ids[50][8];
    for (size_t i = 0; i < 50; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "t%zu", i);
        (void)PUT_OK(t, .id = mr_slice_str(ids[i]));
    }
    struct conform_node *node = NODE(t);
    for (size_t i = 0; i < 50; i++)
        next_is(t, node, ids[i]);
}

static void more_seconds_ahead_go_first(void **state)
{
    struct conform *t = *state;
    struct mr_task_options tasks[] = {{.id = MR_SLICE_LIT("p0")},
                                      {.id = MR_SLICE_LIT("p60"), .priority_s = 60},
                                      {.id = MR_SLICE_LIT("p10"), .priority_s = 10},
                                      {.id = MR_SLICE_LIT("behind"), .priority_s = -30},
                                      {.id = MR_SLICE_LIT("p60b"), .priority_s = 60}};
    struct mr_enqueue_result results[5];
    conform_put_all(t, tasks, 5, results);
    struct conform_node *node = NODE(t);
    static const char *const expected[] = {"p60", "p60b", "p10", "p0", "behind"};
    for (size_t i = 0; i < 5; i++)
        next_is(t, node, expected[i]);
}

/* Ageing: order time = creation - priority, so waiting for P seconds outweighs a priority of P. */
static void waiting_outweighs_priority_in_time(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("old"));
    mr_mono since = conform_mono();
    (void)PUT_OK(t, .id = MR_SLICE_LIT("ahead"), .priority_s = 30);
    WAIT_UNTIL(conform_elapsed_ms(since) > 100);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("late"), .priority_s = 0.05);
    struct conform_node *node = NODE(t);
    next_is(t, node, "ahead");
    next_is(t, node, "old");
    next_is(t, node, "late");
}

static void prioritise_moves_a_waiting_task(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"));
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "c", 100), MR_OK);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "a", -100), MR_OK);
    assert_true(conform_get(t, "c")->priority_s == 100);
    assert_int_equal(conform_stats_now(t).tasks, 3);
    struct conform_node *node = NODE(t);
    next_is(t, node, "c");
    next_is(t, node, "b");
    next_is(t, node, "a");
    conform_take_none(t, node);
}

static void an_ended_task_is_shown_with_the_order_time_it_had(void **state)
{
    struct conform *t = *state;
    static const char *const ids[] = {"done", "failed", "archived", "later"};
    for (size_t i = 0; i < 4; i++)
        (void)PUT_OK(t, .id = mr_slice_str(ids[i]), .priority_s = 1000 - (double)i,
                     .retention_ms = 3600000, .delay_ms = i == 3 ? 7200000 : 0);
    int64_t before[4];
    for (size_t i = 0; i < 4; i++)
        before[i] = conform_get(t, ids[i])->order_time_ms;
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "done"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "failed"), .outcome = MR_FAIL_FOR_GOOD);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, "archived", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_CANCEL, "later", 0), MR_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(conform_get(t, ids[i])->order_time_ms, before[i]);
    if (t->engine->can_reopen)
        conform_reopen(t);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(conform_get(t, ids[i])->order_time_ms, before[i]);
}

static void a_returned_task_keeps_its_place(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("first"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("second"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("third"));
    struct conform_node *dying = NODE(t, .name = "dying", .lease_ms = CONFORM_LEASE_MS);
    struct conform_node *node = NODE(t);
    struct mr_lease *lost = conform_take_id(t, dying, "first");
    int64_t order_ms = conform_get(t, "first")->order_time_ms;
    WAIT_UNTIL(conform_state(t, "first") == MR_PENDING);
    mr_lease_free(lost);
    assert_int_equal(conform_get(t, "first")->order_time_ms, order_ms);
    struct mr_lease *back = conform_take_id(t, node, "first");
    FINISH_OK(t, back, .outcome = MR_HAND_BACK);
    next_is(t, node, "first");
    next_is(t, node, "second");
    next_is(t, node, "third");
}

/* Of one moment, and so close to each other that only the exact times tell them apart. */
static void equals_keep_their_order_whichever_returns_first(void **state)
{
    struct conform *t = *state;
    enum { N = 9 };
    static const size_t back[2][N] = {{0, 1, 2, 6, 7, 8, 4, 3, 5}, {8, 5, 2, 7, 4, 1, 6, 3, 0}};
    struct mr_lease *leases[N];
    char id[8];
    conform_put_many(t, "default", "t", N);
    struct conform_node *node = NODE(t, .slots = N);
    for (size_t round = 0; round < 2; round++) {
        size_t n = 0, taken;
        struct mr_lease *list = conform_take_list(t, node, N, 0, &taken);
        assert_int_equal(taken, N);
        for (; list != NULL; n++) {
            leases[n] = list;
            list = list->next;
            leases[n]->next = NULL;
        }
        for (size_t i = 0; i < N; i++)
            FINISH_OK(t, leases[back[round][i]], .outcome = MR_HAND_BACK);
    }
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(id, sizeof id, "t%zu", i);
        next_is(t, node, id);
    }
}

static void tasks_of_a_closed_node_return_in_their_order(void **state)
{
    struct conform *t = *state;
    enum { N = 100 };
    conform_put_many(t, "default", "t", N);
    struct conform_node *leaving = NODE(t, .slots = N);
    size_t n;
    struct mr_lease *leases = conform_take_list(t, leaving, N, 0, &n);
    assert_int_equal(n, N);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
    assert_err(conform_node_close(t, leaving), MR_OK);
    struct conform_node *node = NODE(t, .slots = N);
    leases = conform_take_list(t, node, N, 0, &n);
    assert_int_equal(n, N);
    size_t i = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next, i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%zu", i);
        assert_slice(lease->task.id, id);
    }
    conform_finish_list(t, leases, MR_DROP);
}

/* Counts by first letter of the queue what picks of the node bring. */
static void count_picks(struct conform *t, struct conform_node *node, size_t picks, size_t batch,
                        size_t counts[3])
{
    static const char *const names[3] = {"high", "medium", "low"};
    for (size_t done = 0; done < picks;) {
        size_t n;
        struct mr_lease *leases = conform_take_list(t, node, batch, 0, &n);
        assert_non_null(leases);
        for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next)
            for (size_t i = 0; i < 3; i++)
                counts[i] += mr_slice_equal(lease->task.queue, mr_slice_str(names[i]));
        conform_finish_list(t, leases, MR_DROP);
        done += n;
    }
}

static void weights_hold_within_one_percent_of_100000_picks(void **state)
{
    struct conform *t = *state;
    size_t picks = conform_many(100000);
    conform_put_many(t, "high", "h", picks * 6 / 10 + 2000);
    conform_put_many(t, "medium", "m", picks * 3 / 10 + 2000);
    conform_put_many(t, "low", "l", picks / 10 + 2000);
    struct conform_node *node = NODE(t, .queues = "high=6 medium=3 low=1", .slots = 100);
    size_t counts[3] = {0};
    count_picks(t, node, picks, 100, counts);
    assert_in_range(counts[0], picks * 6 / 10 - picks / 100, picks * 6 / 10 + picks / 100);
    assert_in_range(counts[1], picks * 3 / 10 - picks / 100, picks * 3 / 10 + picks / 100);
    assert_in_range(counts[2], picks / 10 - picks / 100, picks / 10 + picks / 100);
}

static void weights_hold_for_single_takes_and_low_is_never_starved(void **state)
{
    struct conform *t = *state;
    enum { ROUNDS = 10, PICKS = 200 };
    conform_put_many(t, "high", "h", ROUNDS * PICKS);
    conform_put_many(t, "medium", "m", ROUNDS * PICKS);
    conform_put_many(t, "low", "l", ROUNDS * PICKS);
    struct conform_node *node = NODE(t, .queues = "high=6 medium=3 low=1");
    size_t sums[3] = {0};
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t counts[3] = {0};
        count_picks(t, node, PICKS, 1, counts);
        assert_true(counts[2] > 0);
        for (size_t i = 0; i < 3; i++)
            sums[i] += counts[i];
    }
    assert_in_range(sums[0], 1100, 1300);
    assert_in_range(sums[1], 500, 700);
    assert_in_range(sums[2], 100, 300);
}

/* In the order to run them: else a large answer would run one class after the other. */
static void weights_hold_in_every_stretch_of_one_answer(void **state)
{
    struct conform *t = *state;
    enum { N = 500, STRETCH = 50, HIGH = STRETCH * 6 / 10 };
    conform_put_many(t, "low", "l", N);
    conform_put_many(t, "medium", "m", N);
    conform_put_many(t, "high", "h", N);
    struct conform_node *node = NODE(t, .queues = "high=6 medium=3 low=1", .slots = N);
    size_t n, i = 0, high = 0;
    struct mr_lease *leases = conform_take_list(t, node, N, 0, &n);
    assert_int_equal(n, N);
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        high += mr_slice_equal(lease->task.queue, MR_SLICE_LIT("high"));
        if (++i % STRETCH > 0)
            continue;
        assert_in_range(high, HIGH - 2, HIGH + 2);
        high = 0;
    }
    conform_finish_list(t, leases, MR_DROP);
}

static void an_empty_queue_leaves_its_share_to_the_others(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "low", "l", 100);
    struct conform_node *node = NODE(t, .queues = "high=1000 medium=3 low=1");
    size_t counts[3] = {0};
    count_picks(t, node, 100, 10, counts);
    assert_int_equal(counts[2], 100);
}

static void strict_order_empties_the_earlier_queue_first(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "low", "l", 30);
    conform_put_many(t, "medium", "m", 30);
    conform_put_many(t, "high", "h", 30);
    struct conform_node *node =
        NODE(t, .queues = "high medium=50 low=99", .order = MR_QUEUES_STRICT);
    static const size_t expected[3][3] = {{30, 0, 0}, {0, 30, 0}, {0, 0, 30}};
    for (size_t i = 0; i < 3; i++) {
        size_t counts[3] = {0};
        count_picks(t, node, 30, 1, counts);
        assert_memory_equal(counts, expected[i], sizeof counts);
    }
    conform_take_none(t, node);
}

int conform_order(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_thousand_equals_come_first_in_first_out),
        CONFORM_TEST(one_by_one_enqueues_come_first_in_first_out),
        CONFORM_TEST(more_seconds_ahead_go_first),
        CONFORM_TEST(waiting_outweighs_priority_in_time),
        CONFORM_TEST(prioritise_moves_a_waiting_task),
        CONFORM_TEST(a_returned_task_keeps_its_place),
        CONFORM_TEST(an_ended_task_is_shown_with_the_order_time_it_had),
        CONFORM_TEST(equals_keep_their_order_whichever_returns_first),
        CONFORM_TEST(tasks_of_a_closed_node_return_in_their_order),
        CONFORM_TEST(weights_hold_within_one_percent_of_100000_picks),
        CONFORM_TEST(weights_hold_for_single_takes_and_low_is_never_starved),
        CONFORM_TEST(weights_hold_in_every_stretch_of_one_answer),
        CONFORM_TEST(an_empty_queue_leaves_its_share_to_the_others),
        CONFORM_TEST(strict_order_empties_the_earlier_queue_first),
    };
    return CONFORM_RUN(engine, "order", tests);
}
