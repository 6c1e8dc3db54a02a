/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: addresses. What is in the queue Q@NAME is for those who listen to it, and falls to the other
 * workers of Q when its time is over.
 */
#include <stdio.h>

#include "broker/result.h"
#include "conform/conform.h"

enum {
    FALL_MS = 300,
    LONG_MS = 60 * 60 * 1000, /* longer than any test */
};

#define WORKER(t, name_, fall_)                                                                    \
    NODE(t, .name = (name_), .queues = "q@" name_ " q", .fall_ms = (fall_))

static void what_is_addressed_to_a_worker_is_left_to_it(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = WORKER(t, "a", LONG_MS), *b = WORKER(t, "b", LONG_MS);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@a"));
    conform_take_none(t, b);
    struct mr_lease *lease = conform_take_id(t, a, id);
    assert_slice(lease->task.queue, "q@a");
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_worker_that_waits_gets_what_is_addressed_to_it_at_once(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = WORKER(t, "a", LONG_MS);
    struct conform_take take;
    conform_take_start(t, &take, a, 1, CONFORM_WAIT_MS);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@a"));
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_slice(take.req.leases->task.id, id);
    FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
}

static void what_nobody_took_in_time_falls_to_a_worker_of_the_queue_and_not_before(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    struct conform_take take;
    conform_take_start(t, &take, b, 4, CONFORM_WAIT_MS);
    mr_mono since = conform_mono();
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"), .retention_ms = 3600000);
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_true(take.done_at.ns - since.ns >= FALL_MS * MR_NS_PER_MS);
    assert_int_equal(take.req.n, 1);
    assert_slice(take.req.leases->task.id, id);
    assert_slice(take.req.leases->task.queue, "q@gone");
    FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
    assert_int_equal(conform_state(t, id), MR_COMPLETED);
}

static void nothing_falls_to_a_worker_that_does_not_want_it_or_serves_another_queue(void **state)
{
    struct conform *t = *state;
    struct conform_node *other = NODE(t, .name = "other", .queues = "qq r", .fall_ms = FALL_MS);
    struct conform_node *never = WORKER(t, "never", 0), *b = WORKER(t, "b", FALL_MS);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"));
    struct mr_lease *lease = conform_take_id(t, b, id);
    FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
    WAIT_UNTIL(conform_state(t, id) == MR_PENDING);
    conform_take_none(t, never);
    conform_take_none(t, other);
    lease = conform_take_id(t, b, id); /* it is as old as before */
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void what_falls_comes_in_its_order_and_once(void **state)
{
    struct conform *t = *state;
    enum { N = 20 };
    struct conform_node *nodes[] = {WORKER(t, "b", FALL_MS), WORKER(t, "c", FALL_MS)};
    conform_put_many(t, "q@gone", "t", N);
    struct mr_lease *held[N];
    for (size_t i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%zu", i);
        held[i] = conform_take_id(t, nodes[i % 2], id);
    }
    conform_take_none(t, nodes[0]);
    conform_take_none(t, nodes[1]);
    for (size_t i = 0; i < N; i++)
        FINISH_OK(t, held[i], .outcome = MR_DONE);
}

static void a_young_task_stays_when_an_old_one_falls(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", 4 * FALL_MS);
    const char *old = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"));
    conform_pass_ms(2 * FALL_MS);
    mr_mono since = conform_mono();
    const char *young = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"));
    struct conform_take take;
    conform_take_start(t, &take, b, 4, CONFORM_WAIT_MS);
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_slice(take.req.leases->task.id, old);
    if (take.done_at.ns - since.ns < 4 * FALL_MS * MR_NS_PER_MS)
        assert_int_equal(take.req.n, 1);
    bool both = take.req.n == 2; /* a machine that stood still for a while */
    conform_finish_list(t, take.req.leases, MR_DONE);
    if (both)
        return;
    struct mr_lease *lease = conform_take_id(t, b, young);
    assert_true(conform_elapsed_ms(since) >= 4 * FALL_MS);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_priority_does_not_make_a_task_fall_sooner(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    mr_mono since = conform_mono();
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"), .priority_s = 3600);
    struct mr_lease *lease = conform_take_id(t, b, id);
    assert_true(conform_elapsed_ms(since) >= FALL_MS);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void the_time_counts_from_when_a_task_is_due(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    mr_mono since = conform_mono();
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"), .delay_ms = 2 * FALL_MS);
    struct mr_lease *lease = conform_take_id(t, b, id);
    assert_true(conform_elapsed_ms(since) >= 3 * FALL_MS);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_retry_is_left_to_its_worker_again(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = WORKER(t, "a", LONG_MS), *b = WORKER(t, "b", FALL_MS);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@a"), .max_retry = 5);
    struct mr_lease *lease = conform_take_id(t, a, id);
    mr_mono since = conform_mono();
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 1, .error = MR_SLICE_LIT("no"));
    lease = conform_take_id(t, b, id);
    assert_true(conform_elapsed_ms(since) >= FALL_MS);
    assert_int_equal(lease->task.attempt, 2);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void what_a_lost_worker_held_of_its_own_falls_to_others(void **state)
{
    struct conform *t = *state;
    struct conform_node *dying =
        NODE(t, .name = "a", .queues = "q@a q", .lease_ms = CONFORM_LEASE_MS);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q@a"));
    struct mr_lease *lost = conform_take_id(t, dying, id);
    mr_broker_begun(t->broker, dying->first_slot, lost->epoch);
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    struct mr_lease *lease = conform_take_id(t, b, id);
    assert_true(lease->epoch > lost->epoch);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    mr_lease_free(lost);
}

static void those_who_share_a_tag_share_what_is_addressed_to_it(void **state)
{
    struct conform *t = *state;
    enum { N = 10 };
    struct conform_node *a = NODE(t, .name = "a", .queues = "q@gpu q", .fall_ms = LONG_MS);
    struct conform_node *b = NODE(t, .name = "b", .queues = "q@gpu q", .fall_ms = LONG_MS);
    struct conform_node *none = WORKER(t, "none", LONG_MS);
    conform_put_many(t, "q@gpu", "t", N);
    conform_take_none(t, none);
    for (size_t i = 0; i < N; i++) {
        struct mr_lease *lease = conform_take_one(t, i % 2 == 0 ? a : b);
        FINISH_OK(t, lease, .outcome = MR_DONE);
    }
    conform_take_none(t, a);
}

static void nothing_of_an_address_is_taken_while_its_queue_is_paused(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    const char *first = PUT_OK(t, .queue = MR_SLICE_LIT("q"));
    FINISH_OK(t, conform_take_id(t, b, first), .outcome = MR_DONE);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PAUSED, 1), MR_OK);
    conform_take_none(t, b); /* it has seen that the queue is paused */
    const char *own = PUT_OK(t, .queue = MR_SLICE_LIT("q@b"));
    const char *fallen = PUT_OK(t, .queue = MR_SLICE_LIT("q@gone"));
    conform_pass_ms(2 * FALL_MS);
    conform_take_none(t, b);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PAUSED, 0), MR_OK);
    struct mr_lease *one = conform_take_one(t, b), *two = conform_take_one(t, b);
    bool in_order = mr_slice_equal(one->task.id, mr_slice_str(own));
    assert_slice((in_order ? one : two)->task.id, own);
    assert_slice((in_order ? two : one)->task.id, fallen);
    FINISH_OK(t, one, .outcome = MR_DONE);
    FINISH_OK(t, two, .outcome = MR_DONE);
}

static void what_falls_has_the_limits_of_its_own_queue(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = WORKER(t, "b", FALL_MS);
    assert_err(conform_queue_set(t, "q@gone", MR_QUEUE_CONCURRENCY, 1), MR_OK);
    conform_put_many(t, "q@gone", "t", 2);
    struct mr_lease *first = conform_take_id(t, b, "t0");
    conform_take_none(t, b);
    FINISH_OK(t, first, .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, b, "t1"), .outcome = MR_DONE);
}

static void what_is_addressed_to_a_name_with_an_at_sign_falls_as_well(void **state)
{
    struct conform *t = *state;
    struct conform_node *b = NODE(t, .name = "b", .queues = "q r@s", .fall_ms = FALL_MS);
    const char *ids[] = {PUT_OK(t, .queue = MR_SLICE_LIT("q@root@host")),
                         PUT_OK(t, .queue = MR_SLICE_LIT("r@s@gone"))};
    struct mr_lease *one = conform_take_one(t, b), *two = conform_take_one(t, b);
    bool in_order = mr_slice_equal(one->task.id, mr_slice_str(ids[0]));
    assert_slice((in_order ? one : two)->task.id, ids[0]);
    assert_slice((in_order ? two : one)->task.id, ids[1]);
    FINISH_OK(t, one, .outcome = MR_DONE);
    FINISH_OK(t, two, .outcome = MR_DONE);
}

static void a_master_gets_nothing_that_falls(void **state)
{
    struct conform *t = *state;
    char name[MR_NAME_MAX + 1];
    struct conform_node *like = NODE(t);
    struct mr_worker_queue queue = {mr_result_queue(MR_SLICE_LIT("topic"), name), 1};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .role = MR_NODE_MASTER,
                                   .name = MR_SLICE_LIT("master"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .lease_ms = 60000,
                                   .fall_ms = FALL_MS,
                                   .events = {.stop = conform_node_stop, .arg = like}};
    assert_err(mr_broker_call(t->broker, &req.req), MR_INVALID);
    mr_req_done(&req.req);
}

static void tags_are_seen_by_the_queues_of_a_node(void **state)
{
    struct conform *t = *state;
    (void)NODE(t, .name = "n", .queues = "q@n q@gpu q@eu q r@n r@gpu r lone@x");
    size_t n;
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    assert_int_equal(n, 1);
    struct mr_slice tags[8];
    assert_int_equal(mr_node_tags(nodes, tags, 8), 2);
    assert_slice(tags[0], "gpu");
    assert_slice(tags[1], "eu");
    size_t served = 0;
    for (size_t i = 0; i < nodes->queues_n; i++)
        served += mr_node_serves(nodes, i);
    assert_int_equal(served, 3);
}

int conform_addresses(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(what_is_addressed_to_a_worker_is_left_to_it),
        CONFORM_TEST(a_worker_that_waits_gets_what_is_addressed_to_it_at_once),
        CONFORM_TEST(what_nobody_took_in_time_falls_to_a_worker_of_the_queue_and_not_before),
        CONFORM_TEST(nothing_falls_to_a_worker_that_does_not_want_it_or_serves_another_queue),
        CONFORM_TEST(what_falls_comes_in_its_order_and_once),
        CONFORM_TEST(a_young_task_stays_when_an_old_one_falls),
        CONFORM_TEST(a_priority_does_not_make_a_task_fall_sooner),
        CONFORM_TEST(the_time_counts_from_when_a_task_is_due),
        CONFORM_TEST(a_retry_is_left_to_its_worker_again),
        CONFORM_TEST(what_a_lost_worker_held_of_its_own_falls_to_others),
        CONFORM_TEST(those_who_share_a_tag_share_what_is_addressed_to_it),
        CONFORM_TEST(nothing_of_an_address_is_taken_while_its_queue_is_paused),
        CONFORM_TEST(what_falls_has_the_limits_of_its_own_queue),
        CONFORM_TEST(what_is_addressed_to_a_name_with_an_at_sign_falls_as_well),
        CONFORM_TEST(a_master_gets_nothing_that_falls),
        CONFORM_TEST(tags_are_seen_by_the_queues_of_a_node),
    };
    return CONFORM_RUN(engine, "addresses", tests);
}
