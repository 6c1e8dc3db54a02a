/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: queues. Pause, maximum length, removal, and figures that equal what was done. */
#include <stdio.h>

#include "conform/conform.h"

static void a_paused_queue_accepts_but_does_not_give(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .queues = "default other");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"));
    assert_false(conform_queue(t, "default").paused);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
    assert_true(conform_queue(t, "default").paused);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"));
    assert_int_equal(conform_state(t, "b"), MR_PENDING);
    conform_take_none(t, node);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("o"), .queue = MR_SLICE_LIT("other"));
    FINISH_OK(t, conform_take_id(t, node, "o"), .outcome = MR_DONE);
    conform_take_none(t, node);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 0), MR_OK);
    assert_false(conform_queue(t, "default").paused);
    FINISH_OK(t, conform_take_id(t, node, "a"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "b"), .outcome = MR_DONE);
}

static void running_tasks_finish_in_a_paused_queue(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .retention_ms = 3600000);
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_int_equal(conform_state(t, id), MR_COMPLETED);
}

static void pausing_an_unknown_queue_is_not_found(void **state)
{
    struct conform *t = *state;
    assert_err(conform_queue_set(t, "nowhere", MR_QUEUE_PAUSED, 1), MR_NOT_FOUND);
    assert_err(conform_queue_set(t, "nowhere", MR_QUEUE_PAUSED, 0), MR_NOT_FOUND);
    struct mr_queue_info info;
    assert_err(conform_queue_get(t, "nowhere", &info), MR_NOT_FOUND);
    assert_err(conform_queue_remove(t, "nowhere", MR_QUEUE_REMOVE_EMPTY), MR_NOT_FOUND);
    assert_err(conform_queue_remove(t, "nowhere", MR_QUEUE_REMOVE_FORCE), MR_NOT_FOUND);
    assert_err(conform_queue_set(t, "br{ce", MR_QUEUE_MAX_LENGTH, 1), MR_INVALID);
}

static void a_full_queue_refuses_and_opens_again(void **state)
{
    struct conform *t = *state;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_MAX_LENGTH, 3), MR_OK);
    assert_int_equal(conform_queue(t, "q").max_length, 3);
    struct mr_task_options tasks[5];
    struct mr_enqueue_result results[5];
    for (size_t i = 0; i < 5; i++)
        tasks[i] = (struct mr_task_options){.queue = MR_SLICE_LIT("q")};
    conform_put_all(t, tasks, 5, results);
    for (size_t i = 0; i < 5; i++)
        assert_err(results[i].err, i < 3 ? MR_OK : MR_QUEUE_FULL);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], 3);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("other")).err, MR_OK);
    struct conform_node *node = NODE(t, .queues = "q");
    struct mr_lease *lease = conform_take_id(t, node, results[0].id);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q")).err, MR_OK);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q")).err, MR_QUEUE_FULL);
    /* Work that returns is never refused. */
    FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], 4);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_MAX_LENGTH, 0), MR_OK);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q")).err, MR_OK);
}

static void an_empty_queue_can_be_removed_and_a_filled_one_only_by_force(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .queues = "q");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .queue = MR_SLICE_LIT("q"));
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_EMPTY), MR_WRONG_STATE);
    FINISH_OK(t, conform_take_id(t, node, "x"), .outcome = MR_DONE);
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_EMPTY), MR_OK);
    struct mr_queue_info info;
    assert_err(conform_queue_get(t, "q", &info), MR_NOT_FOUND);

    conform_put_many(t, "q", "t", 5);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("later"), .queue = MR_SLICE_LIT("q"), .delay_ms = 3600000);
    struct mr_lease *lease = conform_take_id(t, node, "t0");
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_RUNNING);
    assert_int_equal(conform_stats_now(t).tasks, 6);
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 3600000);
    uint64_t deleted = conform_stats_now(t).deleted;
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_int_equal(conform_stats_now(t).tasks, 0);
    assert_int_equal(conform_stats_now(t).deleted, deleted + 6);
    assert_int_equal(conform_state(t, "t3"), MR_STATE_NONE);
    conform_take_none(t, node);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t3"), .queue = MR_SLICE_LIT("q"));
    FINISH_OK(t, conform_take_id(t, node, "t3"), .outcome = MR_DONE);
}

static void counts_follow_every_state(void **state)
{
    struct conform *t = *state;
    static const enum mr_state order[] = {MR_RETRY,     MR_ARCHIVED, MR_COMPLETED,
                                          MR_SCHEDULED, MR_ACTIVE,   MR_PENDING};
    char id[8];
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k <= i; k++) {
            (void)snprintf(id, sizeof id, "%zu-%zu", i, k);
            conform_make_state(t, id, order[i]);
        }
    struct mr_queue_info queue = conform_queue(t, "default");
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(queue.counts[order[i]], i + 1);
    assert_int_equal(conform_stats_now(t).tasks, 21);
}

static int64_t today(void)
{
    return conform_wall_ms() / MR_MS_PER_DAY;
}

static void totals_and_todays_figures_equal_what_was_done(void **state)
{
    struct conform *t = *state;
    int64_t day = today();
    conform_put_many(t, "default", "t", 6);
    struct conform_node *node = NODE(t);
    static const struct mr_finish ends[] = {
        {.outcome = MR_DONE},          {.outcome = MR_DONE},
        {.outcome = MR_DROP},          {.outcome = MR_FAIL, .delay_ms = 3600000},
        {.outcome = MR_FAIL_FOR_GOOD}, {.outcome = MR_LATER, .delay_ms = 3600000}};
    for (size_t i = 0; i < 6; i++) {
        struct mr_lease *lease = conform_take_one(t, node);
        assert_err(conform_finish_one(t, lease, ends[i]), MR_OK);
        mr_lease_free(lease);
    }
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.failed_total, 2);
    assert_in_range(queue.processed_total, 3, 5);
    if (day == today()) {
        assert_int_equal(queue.processed_today, queue.processed_total);
        assert_int_equal(queue.failed_today, queue.failed_total);
    }
}

static size_t history(struct conform *t, const char *queue, struct mr_queue_day *days, size_t max,
                      enum mr_err err)
{
    struct mr_req_queue_history req = {
        .req.op = MR_OP_QUEUE_HISTORY, .queue = mr_slice_str(queue), .days = days, .max = max};
    assert_err(mr_broker_call(t->broker, &req.req), err);
    mr_req_done(&req.req);
    return req.n;
}

static void the_days_of_a_queue_add_up_to_its_totals(void **state)
{
    struct conform *t = *state;
    struct mr_queue_day days[3];
    assert_int_equal(history(t, "none", days, 3, MR_NOT_FOUND), 0);
    int64_t first = today();
    conform_put_many(t, "default", "t", 5);
    assert_int_equal(history(t, "default", days, 3, MR_OK), 0);
    struct conform_node *node = NODE(t);
    for (size_t i = 0; i < 4; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = i == 0 ? MR_FAIL_FOR_GOOD : MR_DONE);
    if (t->engine->can_reopen)
        conform_reopen(t);
    size_t n = history(t, "default", days, 3, MR_OK);
    assert_in_range(n, 1, 2); /* midnight may have passed */
    uint64_t processed = 0, failed = 0;
    for (size_t i = 0; i < n; i++) {
        assert_in_range(days[i].start_ms / MR_MS_PER_DAY, first, today());
        assert_int_equal(days[i].start_ms % MR_MS_PER_DAY, 0);
        assert_true(i == 0 || days[i].start_ms < days[i - 1].start_ms);
        processed += days[i].processed;
        failed += days[i].failed;
    }
    assert_int_equal(processed, 4);
    assert_int_equal(failed, 1);
    assert_int_equal(history(t, "default", days, 1, MR_OK), 1);
}

static void the_oldest_waiting_task_is_the_age_of_the_queue(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("later"), .delay_ms = 3600000);
    assert_int_equal(conform_queue(t, "default").oldest_pending_ms, 0);
    mr_mono since = conform_mono();
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"));
    WAIT_UNTIL(conform_queue(t, "default").oldest_pending_ms >= 50);
    int64_t elapsed = conform_elapsed_ms(since);
    assert_true(elapsed >= 49);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"), .priority_s = 3600);
    assert_true(conform_queue(t, "default").oldest_pending_ms >= 50);
    assert_true(conform_queue(t, "default").oldest_pending_ms <= conform_elapsed_ms(since) + 1);
    FINISH_OK(t, conform_take_id(t, node, "b"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "a"), .outcome = MR_DONE);
    assert_int_equal(conform_queue(t, "default").oldest_pending_ms, 0);
}

static void queues_are_listed_by_name_in_pages(void **state)
{
    struct conform *t = *state;
    enum { N = 25, PAGE_N = 10 };
    char names[N][16];
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "q%02zu", i);
        size_t shuffled = (i * 7) % N;
        char name[16];
        (void)snprintf(name, sizeof name, "q%02zu", shuffled);
        (void)PUT_OK(t, .queue = mr_slice_str(name));
    }
    struct mr_queue_info infos[PAGE_N];
    char after[MR_NAME_MAX + 1] = "";
    size_t seen = 0;
    for (;;) {
        struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST,
                                        .after = mr_slice_str(after),
                                        .infos = infos,
                                        .max = PAGE_N};
        assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
        mr_req_done(&req.req);
        if (req.n == 0)
            break;
        for (size_t i = 0; i < req.n; i++)
            assert_string_equal(infos[i].name, names[seen++]);
        (void)snprintf(after, sizeof after, "%s", infos[req.n - 1].name);
    }
    assert_int_equal(seen, N);
}

static void as_many_queues_come_as_were_asked_for(void **state)
{
    struct conform *t = *state;
    enum { N = MR_BATCH_MAX + 100 };
    static struct mr_task_options tasks[N];
    static struct mr_enqueue_result results[N];
    static struct mr_queue_info infos[N + 1];
    static char names[N][16];
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "q%04zu", i);
        tasks[i] = (struct mr_task_options){.queue = mr_slice_str(names[i])};
    }
    conform_put_all(t, tasks, MR_BATCH_MAX, results);
    conform_put_all(t, tasks + MR_BATCH_MAX, N - MR_BATCH_MAX, results);
    for (size_t max = N - 1; max <= N + 1; max++) {
        struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = max};
        assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
        mr_req_done(&req.req);
        assert_int_equal(req.n, max < N ? max : N);
        assert_string_equal(infos[req.n - 1].name, names[req.n - 1]);
    }
}

int conform_queues(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_paused_queue_accepts_but_does_not_give),
        CONFORM_TEST(running_tasks_finish_in_a_paused_queue),
        CONFORM_TEST(pausing_an_unknown_queue_is_not_found),
        CONFORM_TEST(a_full_queue_refuses_and_opens_again),
        CONFORM_TEST(an_empty_queue_can_be_removed_and_a_filled_one_only_by_force),
        CONFORM_TEST(counts_follow_every_state),
        CONFORM_TEST(totals_and_todays_figures_equal_what_was_done),
        CONFORM_TEST(the_days_of_a_queue_add_up_to_its_totals),
        CONFORM_TEST(the_oldest_waiting_task_is_the_age_of_the_queue),
        CONFORM_TEST(queues_are_listed_by_name_in_pages),
        CONFORM_TEST(as_many_queues_come_as_were_asked_for),
    };
    return CONFORM_RUN(engine, "queues", tests);
}
