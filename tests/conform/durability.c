/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: closing and opening again. Everything is as it was, and nothing that was gone is
 * back. */
#include <stdio.h>

#include "conform/conform.h"

static void check_same(const struct mr_task *a, const struct mr_task *b)
{
    assert_slices(b->id, a->id);
    assert_slices(b->queue, a->queue);
    assert_slices(b->type, a->type);
    assert_slices(b->payload, a->payload);
    assert_slices(b->unique_key, a->unique_key);
    assert_slices(b->group, a->group);
    assert_slices(b->topic, a->topic);
    assert_slices(b->last_error, a->last_error);
    assert_slices(b->result, a->result);
    assert_int_equal(b->headers_n, a->headers_n);
    for (size_t i = 0; i < a->headers_n; i++) {
        assert_slices(b->headers[i].name, a->headers[i].name);
        assert_slices(b->headers[i].value, a->headers[i].value);
    }
    assert_int_equal(b->state, a->state);
    assert_true(b->priority_s == a->priority_s);
    assert_int_equal(b->order_time_ms, a->order_time_ms);
    assert_int_equal(b->attempt, a->attempt);
    assert_int_equal(b->retried, a->retried);
    assert_int_equal(b->max_retry, a->max_retry);
    assert_int_equal(b->crashes, a->crashes);
    assert_int_equal(b->timeout_ms, a->timeout_ms);
    assert_int_equal(b->deadline_ms, a->deadline_ms);
    assert_int_equal(b->retention_ms, a->retention_ms);
    assert_int_equal(b->created_ms, a->created_ms);
    assert_int_equal(b->due_ms, a->due_ms);
    assert_int_equal(b->finished_ms, a->finished_ms);
    assert_int_equal(b->last_failed_ms, a->last_failed_ms);
    assert_int_equal(b->cancel_requested, a->cancel_requested);
}

/* A task with every option, then moved on as told. */
static void put_rich(struct conform *t, struct conform_node *node, const char *id,
                     struct mr_finish end)
{
    struct mr_header headers[] = {{MR_SLICE_LIT("trace"), MR_SLICE_LIT("abc")},
                                  {MR_SLICE_LIT("x"), MR_SLICE_LIT("")}};
    (void)PUT_OK(t, .id = mr_slice_str(id), .type = MR_SLICE_LIT("mail"),
                 .payload = MR_SLICE_LIT("pay\0load"), .priority_s = 12.5, .max_retry = 7,
                 .timeout_ms = 1234, .retention_ms = 3600000, .unique_ms = 3600000,
                 .unique_key = mr_slice_str(id), .topic = MR_SLICE_LIT("results"),
                 .headers = headers, .headers_n = 2);
    struct mr_lease *lease = conform_take_id(t, node, id);
    assert_err(conform_finish_one(t, lease, end), MR_OK);
    mr_lease_free(lease);
}

static void tasks_of_every_state_are_as_they_were(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    put_rich(t, node, "retry",
             (struct mr_finish){
                 .outcome = MR_FAIL, .delay_ms = 3600000, .error = MR_SLICE_LIT("no route")});
    put_rich(t, node, "later", (struct mr_finish){.outcome = MR_LATER, .delay_ms = 3600000});
    put_rich(t, node, "archived",
             (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("bad\0input")});
    put_rich(t, node, "completed",
             (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("re\0sult")});
    put_rich(t, node, "dropped", (struct mr_finish){.outcome = MR_DROP});
    put_rich(t, node, "pending", (struct mr_finish){.outcome = MR_HAND_BACK});
    (void)PUT_OK(t, .id = MR_SLICE_LIT("scheduled"), .delay_ms = 3600000, .priority_s = -5);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("aggregating"), .group = MR_SLICE_LIT("g"));
    static const char *const ids[] = {"retry",   "later",     "archived",   "completed",
                                      "pending", "scheduled", "aggregating"};
    enum { N = sizeof ids / sizeof ids[0] };
    const struct mr_task *before[N];
    for (size_t i = 0; i < N; i++)
        before[i] = conform_get(t, ids[i]);
    for (int round = 0; round < 2; round++) {
        conform_reopen(t);
        for (size_t i = 0; i < N; i++) {
            const struct mr_task *after = conform_get(t, ids[i]);
            assert_non_null(after);
            check_same(before[i], after);
        }
        assert_int_equal(conform_state(t, "dropped"), MR_STATE_NONE);
        assert_int_equal(conform_stats_now(t).tasks, N);
        assert_err(PUT(t, .unique_ms = 1000, .unique_key = MR_SLICE_LIT("retry")).err,
                   MR_DUPLICATE);
        assert_err(PUT(t, .id = MR_SLICE_LIT("pending")).err, MR_CONFLICT);
    }
}

static void what_was_running_returns_to_its_place(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 4);
    struct conform_node *node = NODE(t);
    struct mr_lease *begun = conform_take_id(t, node, "t0");
    struct mr_lease *not_begun = conform_take_id(t, node, "t1");
    mr_broker_begun(t->broker, node->first_slot, begun->epoch);
    conform_reopen(t);
    node = NODE(t);
    assert_err(FINISH(t, begun, .outcome = MR_DONE), MR_STALE);
    struct mr_lease *lease = conform_take_id(t, node, "t0");
    assert_true(lease->epoch > not_begun->epoch);
    assert_true(lease->task.crashes <= 1);
    assert_int_equal(lease->task.retried, 0);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    lease = conform_take_id(t, node, "t1");
    assert_int_equal(lease->task.crashes, 0);
    assert_err(FINISH(t, not_begun, .outcome = MR_DONE), MR_STALE);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t2"), .outcome = MR_DONE);
    mr_lease_free(begun);
    mr_lease_free(not_begun);
}

/* More of them than fit into whatever an engine keeps ready at its start. */
static void any_number_of_running_tasks_returns(void **state)
{
    struct conform *t = *state;
    size_t many = conform_many(110000);
    conform_put_many(t, "default", "t", many);
    struct conform_node *node = NODE(t);
    for (size_t taken = 0, n = 0; taken < many; taken += n) {
        struct mr_lease *leases = conform_take_list(t, node, MR_BATCH_MAX, 0, &n);
        assert_non_null(leases);
        while (leases != NULL) {
            struct mr_lease *next = leases->next;
            mr_lease_free(leases);
            leases = next;
        }
    }
    assert_int_equal(conform_queue(t, "default").counts[MR_ACTIVE], many);
    conform_reopen(t);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], many);
    node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "t0"), .outcome = MR_DONE);
}

static void order_survives(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 300);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("ahead"), .priority_s = 60);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "t150", 30), MR_OK);
    conform_reopen(t);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "ahead"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t150"), .outcome = MR_DONE);
    for (size_t i = 0; i < 300; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%zu", i);
        if (i != 150)
            FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DONE);
    }
    conform_take_none(t, node);
}

static void queue_settings_and_figures_survive(void **state)
{
    struct conform *t = *state;
    int64_t day = conform_wall_ms() / MR_MS_PER_DAY;
    struct conform_node *node = NODE(t, .queues = "q");
    conform_put_many(t, "q", "t", 5);
    FINISH_OK(t, conform_take_id(t, node, "t0"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t1"), .outcome = MR_FAIL, .delay_ms = 3600000);
    FINISH_OK(t, conform_take_id(t, node, "t2"), .outcome = MR_FAIL_FOR_GOOD);
    assert_err(conform_act(t, MR_VERB_DELETE, "t3", 0), MR_OK);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PAUSED, 1), MR_OK);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_MAX_LENGTH, 2), MR_OK);
    assert_err(conform_queue_set(t, "empty", MR_QUEUE_MAX_LENGTH, 9), MR_OK);
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("removed"));
    assert_err(conform_queue_remove(t, "removed", MR_QUEUE_REMOVE_FORCE), MR_OK);
    struct mr_queue_info before = conform_queue(t, "q");
    struct mr_stats stats = conform_stats_now(t);
    for (int round = 0; round < 2; round++) {
        conform_reopen(t);
        struct mr_queue_info after = conform_queue(t, "q");
        assert_memory_equal(after.counts, before.counts, sizeof after.counts);
        assert_true(after.paused);
        assert_int_equal(after.max_length, 2);
        assert_int_equal(after.processed_total, before.processed_total);
        assert_int_equal(after.failed_total, before.failed_total);
        if (day == conform_wall_ms() / MR_MS_PER_DAY) {
            assert_int_equal(after.processed_today, before.processed_today);
            assert_int_equal(after.failed_today, before.failed_today);
        }
        assert_int_equal(conform_queue(t, "empty").max_length, 9);
        struct mr_queue_info info;
        assert_err(conform_queue_get(t, "removed", &info), MR_NOT_FOUND);
        assert_int_equal(conform_stats_now(t).deleted, stats.deleted);
        conform_take_none(t, NODE(t, .queues = "q"));
        assert_err(PUT(t, .queue = MR_SLICE_LIT("q")).err, MR_QUEUE_FULL);
    }
}

static void what_fell_due_while_closed_runs_at_once(void **state)
{
    struct conform *t = *state;
    mr_mono since = conform_mono();
    (void)PUT_OK(t, .id = MR_SLICE_LIT("due"), .delay_ms = 100);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("kept"), .retention_ms = 100, .priority_s = 10);
    FINISH_OK(t, conform_take_id(t, NODE(t), "kept"), .outcome = MR_DONE);
    mr_broker_close(t->broker);
    t->broker = NULL;
    WAIT_UNTIL(conform_elapsed_ms(since) > 300);
    assert_err(t->engine->reopen(t->engine->arg, &t->broker), MR_OK);
    FINISH_OK(t, conform_take_id(t, NODE(t), "due"), .outcome = MR_DONE);
    WAIT_UNTIL(conform_state(t, "kept") == MR_STATE_NONE);
}

static void what_is_gone_stays_gone(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 50);
    struct conform_node *node = NODE(t);
    for (int i = 0; i < 20; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
    for (int i = 20; i < 40; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%d", i);
        assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_OK);
    }
    for (int round = 0; round < 3; round++) {
        conform_reopen(t);
        assert_int_equal(conform_stats_now(t).tasks, 10);
        assert_int_equal(conform_state(t, "t5"), MR_STATE_NONE);
        assert_int_equal(conform_state(t, "t25"), MR_STATE_NONE);
        assert_int_equal(conform_state(t, "t45"), MR_PENDING);
    }
}

static void epochs_rise_across_every_opening(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"));
    uint64_t last = 0;
    for (int round = 0; round < 5; round++) {
        struct mr_lease *lease = conform_take_id(t, NODE(t), "x");
        assert_true(lease->epoch > last);
        last = lease->epoch;
        FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
        conform_reopen(t);
    }
}

int conform_durability(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(tasks_of_every_state_are_as_they_were),
        CONFORM_TEST(what_was_running_returns_to_its_place),
        CONFORM_TEST(any_number_of_running_tasks_returns),
        CONFORM_TEST(order_survives),
        CONFORM_TEST(queue_settings_and_figures_survive),
        CONFORM_TEST(what_fell_due_while_closed_runs_at_once),
        CONFORM_TEST(what_is_gone_stays_gone),
        CONFORM_TEST(epochs_rise_across_every_opening),
    };
    return engine->can_reopen ? CONFORM_RUN(engine, "durability", tests) : 0;
}
