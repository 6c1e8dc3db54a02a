/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: waiting for the end of a task. Whatever the end is, everybody who waits is told it
 * once, also where nothing of the task is kept.
 */
#include <stdio.h>

#include "conform/conform.h"

enum { LONG_MS = 10 * CONFORM_WAIT_MS };

struct waiter {
    struct mr_req_await req;
    struct mr_event done;
    _Atomic unsigned answers;
};

static void answered(struct mr_req *req)
{
    struct waiter *waiter = req->arg;
    waiter->answers++;
    mr_event_set(&waiter->done);
}

/* Returns when the broker knows that somebody waits: a look that was asked for later is answered. */
static void await_start(struct conform *t, struct waiter *waiter, const char *id, int64_t wait_ms)
{
    *waiter = (struct waiter){.req = {.req = {.op = MR_OP_AWAIT, .done = answered, .arg = waiter},
                                      .id = mr_slice_str(id),
                                      .wait_ms = wait_ms}};
    mr_event_init(&waiter->done);
    mr_broker_submit(t->broker, &waiter->req.req);
    (void)conform_state(t, id);
}

/* The task lives until waiter_done. */
static const struct mr_task *await_end(struct waiter *waiter, enum mr_err err)
{
    assert_true(mr_event_wait(&waiter->done, CONFORM_WAIT_MS * MR_NS_PER_MS));
    assert_err(waiter->req.req.err, err);
    assert_int_equal(waiter->answers, 1);
    return &waiter->req.task;
}

static void waiter_done(struct waiter *waiter)
{
    mr_req_done(&waiter->req.req);
}

static enum mr_err await(struct conform *t, const char *id, int64_t wait_ms, enum mr_state *ret)
{
    struct mr_req_await req = {.req.op = MR_OP_AWAIT, .id = mr_slice_str(id), .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    *ret = err == MR_OK ? req.task.state : MR_STATE_NONE;
    mr_req_done(&req.req);
    return err;
}

static void what_has_ended_is_answered_at_once(void **state)
{
    struct conform *t = *state;
    enum mr_state end;
    conform_make_state(t, "archived", MR_ARCHIVED);
    conform_make_state(t, "completed", MR_COMPLETED);
    assert_err(await(t, "archived", LONG_MS, &end), MR_OK);
    assert_int_equal(end, MR_ARCHIVED);
    assert_err(await(t, "completed", 0, &end), MR_OK);
    assert_int_equal(end, MR_COMPLETED);
    assert_err(await(t, "nobody", LONG_MS, &end), MR_NOT_FOUND);
}

static void without_a_wait_a_task_that_has_not_ended_is_a_timeout(void **state)
{
    static const enum mr_state states[] = {MR_SCHEDULED, MR_RETRY, MR_ACTIVE, MR_PENDING};
    struct conform *t = *state;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        enum mr_state end;
        const char *id = mr_state_name(states[i]);
        conform_make_state(t, id, states[i]);
        assert_err(await(t, id, 0, &end), MR_TIMEOUT);
        assert_err(await(t, id, 20, &end), MR_TIMEOUT);
    }
}

static void a_wait_ends_when_its_time_is_over_and_not_before(void **state)
{
    struct conform *t = *state;
    enum mr_state end;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    mr_mono since = conform_mono();
    assert_err(await(t, id, 100, &end), MR_TIMEOUT);
    assert_true(conform_elapsed_ms(since) >= 100);
}

static void a_result_reaches_who_waits_though_nothing_is_kept(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    struct conform_node *node = NODE(t, .name = "runner");
    const char *id =
        PUT_OK(t, .type = MR_SLICE_LIT("sum"), .payload = MR_SLICE_LIT("1 2"), .priority_s = 5);
    await_start(t, &waiter, id, LONG_MS);
    struct mr_lease *lease = conform_take_id(t, node, id);
    uint64_t epoch = lease->epoch;
    assert_int_equal(waiter.answers, 0);
    FINISH_OK(t, lease, .outcome = MR_DONE, .result = MR_SLICE_LIT("3"));
    const struct mr_task *task = await_end(&waiter, MR_OK);
    assert_int_equal(task->state, MR_COMPLETED);
    assert_slice(task->id, id);
    assert_slice(task->queue, "default");
    assert_slice(task->type, "sum");
    assert_slice(task->payload, "1 2");
    assert_slice(task->result, "3");
    assert_slice(task->node, "");
    assert_true(task->epoch == epoch);
    assert_true(task->priority_s == 5);
    assert_true(task->created_ms <= task->started_ms && task->started_ms <= task->finished_ms);
    assert_in_range(task->finished_ms, 1, conform_wall_ms());
    waiter_done(&waiter);
    assert_int_equal(conform_state(t, id), MR_STATE_NONE);
}

/* The end of a task that is kept is what a look at it shows. */
static void a_kept_end_is_answered_as_it_is_kept(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, .retention_ms = 3600000);
    await_start(t, &waiter, id, LONG_MS);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DONE, .result = MR_SLICE_LIT("r"));
    const struct mr_task *task = await_end(&waiter, MR_OK), *kept = conform_get(t, id);
    assert_int_equal(task->state, MR_COMPLETED);
    assert_slice(task->result, "r");
    assert_true(task->finished_ms == kept->finished_ms && task->epoch == kept->epoch);
    waiter_done(&waiter);
}

static void a_dropped_task_is_completed_for_who_waits(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    await_start(t, &waiter, id, LONG_MS);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DROP);
    assert_int_equal(await_end(&waiter, MR_OK)->state, MR_COMPLETED);
    waiter_done(&waiter);
}

static void a_failure_that_is_tried_again_is_no_end(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, .max_retry = 1);
    await_start(t, &waiter, id, LONG_MS);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_HAND_BACK);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_LATER);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_FAIL, .error = MR_SLICE_LIT("one"));
    struct mr_lease *last = conform_take_id(t, node, id);
    assert_int_equal(waiter.answers, 0);
    FINISH_OK(t, last, .outcome = MR_FAIL, .error = MR_SLICE_LIT("two"));
    const struct mr_task *task = await_end(&waiter, MR_OK);
    assert_int_equal(task->state, MR_ARCHIVED);
    assert_slice(task->last_error, "two");
    assert_int_equal(task->retried, 1);
    waiter_done(&waiter);
}

static void a_finish_that_is_refused_is_no_end(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_lease *old = conform_take_id(t, node, id);
    await_start(t, &waiter, id, LONG_MS);
    assert_err(FINISH(t, old, .outcome = MR_HAND_BACK), MR_OK);
    struct mr_lease *new = conform_take_id(t, node, id);
    assert_err(FINISH(t, old, .outcome = MR_DONE, .result = MR_SLICE_LIT("old")), MR_STALE);
    assert_int_equal(waiter.answers, 0);
    FINISH_OK(t, new, .outcome = MR_DONE, .result = MR_SLICE_LIT("new"));
    assert_slice(await_end(&waiter, MR_OK)->result, "new");
    waiter_done(&waiter);
    mr_lease_free(old);
}

static void what_people_do_to_a_task_can_be_its_end(void **state)
{
    static const struct {
        enum mr_verb verb;
        enum mr_err err;
        enum mr_state state;
    } ends[] = {
        {MR_VERB_CANCEL, MR_OK, MR_ARCHIVED},
        {MR_VERB_ARCHIVE, MR_OK, MR_ARCHIVED},
        {MR_VERB_DELETE, MR_NOT_FOUND, MR_STATE_NONE},
    };
    struct conform *t = *state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct waiter waiter;
        const char *id = PUT_OK(t, .delay_ms = 3600000);
        await_start(t, &waiter, id, LONG_MS);
        assert_err(conform_act(t, MR_VERB_PRIORITISE, id, 7), MR_OK);
        assert_err(conform_act(t, MR_VERB_RUN, id, 0), MR_OK);
        assert_int_equal(waiter.answers, 0);
        assert_err(conform_act(t, ends[i].verb, id, 0), MR_OK);
        const struct mr_task *task = await_end(&waiter, ends[i].err);
        if (ends[i].err == MR_OK)
            assert_int_equal(task->state, ends[i].state);
        waiter_done(&waiter);
    }
}

static void a_queue_that_is_removed_takes_its_tasks_along(void **state)
{
    struct conform *t = *state;
    struct waiter gone, stays;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .queue = MR_SLICE_LIT("old"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"));
    await_start(t, &gone, "a", LONG_MS);
    await_start(t, &stays, "b", LONG_MS);
    assert_err(conform_queue_remove(t, "old", MR_QUEUE_REMOVE_FORCE), MR_OK);
    (void)await_end(&gone, MR_NOT_FOUND);
    assert_int_equal(stays.answers, 0);
    assert_err(conform_act(t, MR_VERB_CANCEL, "b", 0), MR_OK);
    (void)await_end(&stays, MR_OK);
    waiter_done(&gone);
    waiter_done(&stays);
}

static void all_who_wait_are_answered_each_once(void **state)
{
    enum { TASKS = 20, EACH = 5 };
    static struct waiter waiters[TASKS][EACH];
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .slots = TASKS);
    size_t n;
    conform_put_many(t, "default", "w", TASKS);
    for (size_t i = 0; i < TASKS; i++)
        for (size_t j = 0; j < EACH; j++) {
            char id[8];
            (void)snprintf(id, sizeof id, "w%zu", i);
            await_start(t, &waiters[i][j], id, LONG_MS);
        }
    struct mr_lease *leases = conform_take_list(t, node, TASKS, CONFORM_WAIT_MS / 2, &n);
    assert_int_equal(n, TASKS);
    conform_finish_list(t, leases, MR_DONE);
    for (size_t i = 0; i < TASKS; i++)
        for (size_t j = 0; j < EACH; j++) {
            char id[8];
            (void)snprintf(id, sizeof id, "w%zu", i);
            assert_slice(await_end(&waiters[i][j], MR_OK)->id, id);
            waiter_done(&waiters[i][j]);
        }
}

static void a_broker_that_closes_answers_those_who_wait(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    await_start(t, &waiter, id, LONG_MS);
    mr_broker_close(t->broker);
    t->broker = NULL;
    (void)await_end(&waiter, MR_CLOSED);
    waiter_done(&waiter);
}

static void who_no_longer_waits_is_answered_at_once(void **state)
{
    struct conform *t = *state;
    struct waiter waiter;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    await_start(t, &waiter, id, LONG_MS);
    struct mr_req_unawait unawait = {.req.op = MR_OP_UNAWAIT, .await = &waiter.req};
    assert_err(mr_broker_call(t->broker, &unawait.req), MR_OK);
    mr_req_done(&unawait.req);
    (void)await_end(&waiter, MR_CANCELLED);
    waiter_done(&waiter);
    assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_OK);
}

int conform_await(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(what_has_ended_is_answered_at_once),
        CONFORM_TEST(without_a_wait_a_task_that_has_not_ended_is_a_timeout),
        CONFORM_TEST(a_wait_ends_when_its_time_is_over_and_not_before),
        CONFORM_TEST(a_result_reaches_who_waits_though_nothing_is_kept),
        CONFORM_TEST(a_kept_end_is_answered_as_it_is_kept),
        CONFORM_TEST(a_dropped_task_is_completed_for_who_waits),
        CONFORM_TEST(a_failure_that_is_tried_again_is_no_end),
        CONFORM_TEST(a_finish_that_is_refused_is_no_end),
        CONFORM_TEST(what_people_do_to_a_task_can_be_its_end),
        CONFORM_TEST(a_queue_that_is_removed_takes_its_tasks_along),
        CONFORM_TEST(all_who_wait_are_answered_each_once),
        CONFORM_TEST(a_broker_that_closes_answers_those_who_wait),
        CONFORM_TEST(who_no_longer_waits_is_answered_at_once),
    };
    return CONFORM_RUN(engine, "await", tests);
}
