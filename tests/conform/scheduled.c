/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: tasks with a time. Never early, soon after, in the order they fall due. */
#include <stdio.h>

#include "conform/conform.h"

enum { N = 100, SPREAD_MS = 500, LATE_MS = 50, ROUNDS_MAX = 10 };

static int compare_ms(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Enqueues tasks with delays, takes them as they come, none early; answers the median lateness. */
static int64_t median_late_ms(struct conform *t, struct conform_node *node)
{
    struct mr_task_options tasks[N];
    struct mr_enqueue_result results[N];
    int64_t delays_ms[N], late_ms[N];
    for (size_t i = 0; i < N; i++) {
        delays_ms[i] = 50 + (int64_t)(i * 37 % SPREAD_MS);
        tasks[i] = (struct mr_task_options){
            .delay_ms = delays_ms[i], .payload = mr_slice_make(&delays_ms[i], sizeof(int64_t))};
    }
    mr_mono put_at = conform_mono();
    conform_put_all(t, tasks, N, results);
    for (size_t i = 0; i < N; i++) {
        assert_err(results[i].err, MR_OK);
        assert_int_equal(results[i].state, MR_SCHEDULED);
    }
    for (size_t got = 0; got < N;) {
        struct conform_take take;
        conform_take_start(t, &take, node, N, CONFORM_WAIT_MS / 2);
        assert_err(conform_take_end(t, &take), MR_OK);
        int64_t elapsed_ms = (take.done_at.ns - put_at.ns) / MR_NS_PER_MS;
        for (struct mr_lease *lease = take.req.leases; lease != NULL; lease = lease->next) {
            int64_t delay_ms;
            assert_int_equal(lease->task.payload.len, sizeof delay_ms);
            memcpy(&delay_ms, lease->task.payload.data, sizeof delay_ms);
            assert_true(elapsed_ms >= delay_ms);
            late_ms[got++] = elapsed_ms - delay_ms;
        }
        conform_finish_list(t, take.req.leases, MR_DONE);
    }
    qsort(late_ms, N, sizeof late_ms[0], compare_ms);
    return late_ms[N / 2];
}

/* The machine may be slow in any one round; a broker that polls is late in all of them. */
static void no_task_is_early_and_most_are_on_time(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .slots = N);
    int rounds = 1;
    while (median_late_ms(t, node) > LATE_MS)
        assert_true(++rounds <= ROUNDS_MAX);
    conform_take_none(t, node);
}

/* The machine may be so slow that it is due before it is looked at: then it gets more time. */
static void a_time_of_day_is_kept(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    bool seen = false;
    for (int64_t ahead_ms = 150; !seen; ahead_ms *= 4) {
        int64_t at_ms = conform_wall_ms() + ahead_ms;
        const char *id = PUT_OK(t, .at_ms = at_ms);
        seen = conform_get(t, id)->due_ms == at_ms;
        assert_true(seen || conform_wall_ms() >= at_ms);
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_true(conform_wall_ms() >= at_ms);
        FINISH_OK(t, lease, .outcome = MR_DONE);
    }
}

static void a_time_that_has_passed_means_now(void **state)
{
    struct conform *t = *state;
    struct mr_enqueue_result result = PUT(t, .at_ms = conform_wall_ms() - 60000);
    assert_err(result.err, MR_OK);
    assert_int_equal(result.state, MR_PENDING);
    FINISH_OK(t, conform_take_id(t, NODE(t), result.id), .outcome = MR_DONE);
}

static void tasks_fall_due_in_the_order_of_their_times(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("third"), .delay_ms = 180);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("first"), .delay_ms = 20);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("second"), .delay_ms = 100);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "first"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "second"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "third"), .outcome = MR_DONE);
}

static void run_now_forgets_the_due_time(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .delay_ms = 300);
    assert_err(conform_act(t, MR_VERB_RUN, "x", 0), MR_OK);
    struct conform_node *node = NODE(t);
    mr_mono since = conform_mono();
    FINISH_OK(t, conform_take_id(t, node, "x"), .outcome = MR_DONE);
    size_t n;
    assert_null(conform_take_list(t, node, 1, 400, &n));
    assert_true(conform_elapsed_ms(since) >= 400);
}

static void a_deleted_task_does_not_fall_due(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .delay_ms = 100);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("y"), .delay_ms = 200);
    assert_err(conform_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "y"), .outcome = MR_DONE);
    conform_take_none(t, node);
}

int conform_scheduled(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(no_task_is_early_and_most_are_on_time),
        CONFORM_TEST(a_time_of_day_is_kept),
        CONFORM_TEST(a_time_that_has_passed_means_now),
        CONFORM_TEST(tasks_fall_due_in_the_order_of_their_times),
        CONFORM_TEST(run_now_forgets_the_due_time),
        CONFORM_TEST(a_deleted_task_does_not_fall_due),
    };
    return CONFORM_RUN(engine, "scheduled", tests);
}
