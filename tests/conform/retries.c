/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: what becomes of a task that failed and is tried again after a delay: it waits behind a gate, it is only
 * put behind others, or it has a class of its own. */
#include <stdio.h>

#include "conform/conform.h"

enum { SECOND = 1000 };

static void set_mode(struct conform *t, const char *queue, enum mr_retry_mode mode,
                     uint64_t wait_ms)
{
    assert_err(conform_queue_set(t, queue, MR_QUEUE_RETRY_WAIT, wait_ms), MR_OK);
    assert_err(conform_queue_set(t, queue, MR_QUEUE_RETRY_MODE, mode), MR_OK);
}

static void put(struct conform *t, const char *id)
{
    (void)PUT_OK(t, .id = mr_slice_str(id));
}

/* It is the next one, and fails. */
static void it_fails(struct conform *t, const struct conform_node *node, const char *id,
                     int64_t delay_ms)
{
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_FAIL, .delay_ms = delay_ms,
              .error = MR_SLICE_LIT("no"));
}

static void next_is(struct conform *t, const struct conform_node *node, const char *id)
{
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DROP);
}

static void a_queue_shows_its_mode_and_its_bound(void **state)
{
    struct conform *t = *state;
    put(t, "x");
    struct mr_queue_info info = conform_queue(t, "default");
    assert_int_equal(info.retry_mode, MR_RETRY_GATE);
    assert_int_equal(info.retry_wait_ms, MR_RETRY_WAIT_MS);
    set_mode(t, "default", MR_RETRY_CLASS, 1234);
    info = conform_queue(t, "default");
    assert_int_equal(info.retry_mode, MR_RETRY_CLASS);
    assert_int_equal(info.retry_wait_ms, 1234);
    set_mode(t, "new", MR_RETRY_ORDER, 0);
    info = conform_queue(t, "new");
    assert_int_equal(info.retry_mode, MR_RETRY_ORDER);
    assert_int_equal(info.retry_wait_ms, MR_RETRY_WAIT_MS);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_RETRY_MODE, MR_RETRY_MODE_COUNT),
               MR_INVALID);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_RETRY_WAIT, MR_DELAY_MAX_MS + 1),
               MR_INVALID);
    info = conform_queue(t, "default");
    assert_int_equal(info.retry_mode, MR_RETRY_CLASS);
    assert_int_equal(info.retry_wait_ms, 1234);
}

static void a_mode_leaves_other_settings_as_they_are(void **state)
{
    struct conform *t = *state;
    assert_err(conform_queue_set(t, "default", MR_QUEUE_MAX_LENGTH, 7), MR_OK);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
    set_mode(t, "default", MR_RETRY_ORDER, 0);
    struct mr_queue_info info = conform_queue(t, "default");
    assert_int_equal(info.max_length, 7);
    assert_true(info.paused);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 0), MR_OK);
    assert_int_equal(conform_queue(t, "default").retry_mode, MR_RETRY_ORDER);
}

static void a_mode_is_still_there_after_a_restart(void **state)
{
    struct conform *t = *state;
    if (!t->engine->can_reopen)
        return;
    set_mode(t, "default", MR_RETRY_CLASS, 1234);
    conform_reopen(t);
    struct mr_queue_info info = conform_queue(t, "default");
    assert_int_equal(info.retry_mode, MR_RETRY_CLASS);
    assert_int_equal(info.retry_wait_ms, 1234);
}

static void a_retry_by_order_only_stands_behind_what_comes_meanwhile(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_ORDER, 0);
    struct conform_node *node = NODE(t);
    put(t, "a");
    put(t, "b");
    int64_t before_ms = conform_wall_ms();
    it_fails(t, node, "a", 30 * SECOND);
    const struct mr_task *task = conform_get(t, "a");
    assert_int_equal(task->state, MR_PENDING);
    assert_int_equal(task->retried, 1);
    assert_slice(task->last_error, "no");
    assert_in_range(task->order_time_ms, before_ms + 30 * SECOND - 50,
                    conform_wall_ms() + 30 * SECOND + 50);
    put(t, "c");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("much later"), .priority_s = -60);
    next_is(t, node, "b");
    next_is(t, node, "c");
    next_is(t, node, "a");
    next_is(t, node, "much later");
}

static void a_retry_by_order_only_waits_for_nothing_else(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_ORDER, 0);
    struct conform_node *node = NODE(t);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .max_retry = 2);
    it_fails(t, node, "a", 3600 * SECOND);
    struct mr_lease *lease = conform_take_id(t, node, "a");
    assert_int_equal(lease->task.attempt, 2);
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 3600 * SECOND);
    it_fails(t, node, "a", 3600 * SECOND);
    assert_int_equal(conform_state(t, "a"), MR_ARCHIVED);
}

static void what_is_put_off_waits_also_where_retries_do_not(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_ORDER, 0);
    struct conform_node *node = NODE(t);
    put(t, "a");
    FINISH_OK(t, conform_take_id(t, node, "a"), .outcome = MR_LATER, .delay_ms = 3600 * SECOND);
    assert_int_equal(conform_state(t, "a"), MR_RETRY);
    conform_take_none(t, node);
}

static void the_class_of_retries_is_served_when_nothing_else_is_ready(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 3600 * SECOND);
    struct conform_node *node = NODE(t);
    put(t, "a");
    it_fails(t, node, "a", 1);
    put(t, "b");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"), .priority_s = -60);
    conform_pass_ms(20); /* by now it is due */
    next_is(t, node, "b");
    assert_int_equal(conform_state(t, "a"), MR_RETRY);
    next_is(t, node, "c");
    next_is(t, node, "a");
    conform_take_none(t, node);
}

static void a_class_of_several_is_served_in_the_order_in_which_they_were_due(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 3600 * SECOND);
    struct conform_node *node = NODE(t);
    static const char *const ids[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++)
        put(t, ids[i]);
    for (size_t i = 0; i < 3; i++)
        it_fails(t, node, ids[i], 450 - 150 * (int64_t)i); /* far apart: the machine may be busy */
    conform_pass_ms(470);
    size_t n;
    struct mr_lease *leases = conform_take_list(t, node, 2, 0, &n);
    assert_int_equal(n, 2);
    assert_slice(leases->task.id, "c");
    assert_slice(leases->next->task.id, "b");
    conform_finish_list(t, leases, MR_DROP);
    next_is(t, node, "a");
}

static void a_waiter_gets_a_retry_of_the_class_as_soon_as_it_is_due(void **state)
{
    enum { DELAY = 100 };
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 0);
    struct conform_node *node = NODE(t);
    put(t, "a");
    mr_mono since = conform_mono();
    it_fails(t, node, "a", DELAY);
    struct mr_lease *lease = conform_take_id(t, node, "a");
    assert_in_range(conform_elapsed_ms(since), DELAY, DELAY + 5 * SECOND);
    FINISH_OK(t, lease, .outcome = MR_DROP);
}

static void who_waited_for_longer_than_the_bound_goes_first(void **state)
{
    enum { BOUND = 150 };
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, BOUND);
    struct conform_node *node = NODE(t);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .priority_s = 7200);
    for (int i = 0; i < 20; i++)
        (void)PUT_OK(t, .priority_s = 3600);
    mr_mono since = conform_mono();
    it_fails(t, node, "a", 1);
    struct mr_lease *lease;
    for (;;) { /* there is always something that goes before it */
        (void)PUT_OK(t, .priority_s = 3600);
        bool early = conform_elapsed_ms(since) < BOUND;
        lease = conform_take_one(t, node);
        if (mr_slice_equal(lease->task.id, MR_SLICE_LIT("a")))
            break;
        assert_true(early || conform_elapsed_ms(since) < BOUND + SECOND);
        FINISH_OK(t, lease, .outcome = MR_DROP);
        conform_pass_ms(5);
    }
    assert_true(conform_elapsed_ms(since) >= BOUND);
    FINISH_OK(t, lease, .outcome = MR_DROP);
}

static void at_once(struct conform *t, const char *key, uint64_t n)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_CONCURRENCY,
                                   .value = n,
                                   .scope = MR_LIMIT_KEY,
                                   .name = mr_slice_str(key)};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void put_keyed(struct conform *t, const char *id, const char *key)
{
    (void)PUT_OK(t, .id = mr_slice_str(id), .key = mr_slice_str(key));
}

/* What is kept back is no reason to let a retry of the class wait that could run: neither a new task, nor
 * retries before it, however many. */
static void limits_keep_nobody_of_a_class_back_but_those_they_are_for(void **state)
{
    enum { KEPT = 30 };
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 3600 * SECOND);
    struct conform_node *node = NODE(t);
    char id[16];
    for (int i = 0; i <= KEPT; i++) {
        (void)snprintf(id, sizeof id, "r%d", i);
        put_keyed(t, id, i < KEPT ? "k" : "");
        it_fails(t, node, id, 1);
        conform_pass_ms(2);
    }
    at_once(t, "k", 1);
    put_keyed(t, "busy", "k");
    struct mr_lease *busy = conform_take_id(t, node, "busy");
    put_keyed(t, "kept", "k");
    next_is(t, node, id); /* the last of them */
    conform_take_none(t, node);
    FINISH_OK(t, busy, .outcome = MR_DROP);
    for (int i = 0; i < KEPT + 1; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DROP);
    conform_take_none(t, node);
}

static void who_waited_too_long_goes_first_where_limits_let_it(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 3600 * SECOND);
    struct conform_node *node = NODE(t);
    put_keyed(t, "r0", "k");
    put_keyed(t, "r1", "");
    it_fails(t, node, "r0", 1);
    it_fails(t, node, "r1", 1);
    at_once(t, "k", 1);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("busy"), .key = MR_SLICE_LIT("k"), .priority_s = 7200);
    struct mr_lease *busy = conform_take_id(t, node, "busy");
    set_mode(t, "default", MR_RETRY_CLASS, 10);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("new"), .priority_s = 3600);
    conform_pass_ms(30);
    next_is(t, node, "r1");
    next_is(t, node, "new");
    conform_take_none(t, node);
    FINISH_OK(t, busy, .outcome = MR_DROP);
    next_is(t, node, "r0");
}

static void with_the_gate_again_those_that_are_due_have_their_places(void **state)
{
    struct conform *t = *state;
    set_mode(t, "default", MR_RETRY_CLASS, 3600 * SECOND);
    struct conform_node *node = NODE(t);
    put(t, "a");
    put(t, "b");
    it_fails(t, node, "a", 1);
    conform_pass_ms(20);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"));
    set_mode(t, "default", MR_RETRY_GATE, 0);
    next_is(t, node, "b");
    next_is(t, node, "a");
    next_is(t, node, "c");
}

int conform_retries(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_queue_shows_its_mode_and_its_bound),
        CONFORM_TEST(a_mode_leaves_other_settings_as_they_are),
        CONFORM_TEST(a_mode_is_still_there_after_a_restart),
        CONFORM_TEST(a_retry_by_order_only_stands_behind_what_comes_meanwhile),
        CONFORM_TEST(a_retry_by_order_only_waits_for_nothing_else),
        CONFORM_TEST(what_is_put_off_waits_also_where_retries_do_not),
        CONFORM_TEST(the_class_of_retries_is_served_when_nothing_else_is_ready),
        CONFORM_TEST(a_class_of_several_is_served_in_the_order_in_which_they_were_due),
        CONFORM_TEST(a_waiter_gets_a_retry_of_the_class_as_soon_as_it_is_due),
        CONFORM_TEST(who_waited_for_longer_than_the_bound_goes_first),
        CONFORM_TEST(limits_keep_nobody_of_a_class_back_but_those_they_are_for),
        CONFORM_TEST(who_waited_too_long_goes_first_where_limits_let_it),
        CONFORM_TEST(with_the_gate_again_those_that_are_due_have_their_places),
    };
    return CONFORM_RUN(engine, "retries", tests);
}
