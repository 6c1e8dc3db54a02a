/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: taking. Empty is said at once, a waiter is woken, and no task is given twice. */
#include "conform/conform.h"

enum { WAKE_MS = 50, WAKE_TRIES = 10 };

static void an_empty_queue_says_so_at_once(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct conform_take take;
    conform_take_start(t, &take, node, 1, 0);
    assert_err(conform_take_end(t, &take), MR_EMPTY);
}

static void a_wait_ends_empty_and_not_early(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct conform_take take;
    mr_mono since = conform_mono();
    conform_take_start(t, &take, node, 1, 120);
    assert_err(conform_take_end(t, &take), MR_EMPTY);
    assert_true(take.done_at.ns - since.ns >= 120 * MR_NS_PER_MS);
}

/* The machine may stall any one try; a broker that polls cannot be quick in any of them. */
static void a_waiter_is_woken_by_an_enqueue(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    int64_t best_ns = INT64_MAX;
    for (int i = 0; i < WAKE_TRIES; i++) {
        struct conform_take take;
        conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
        assert_false(mr_event_wait(&take.done, 20 * MR_NS_PER_MS));
        mr_mono since = conform_mono();
        (void)PUT_OK(t, .payload = MR_SLICE_LIT("x"));
        assert_err(conform_take_end(t, &take), MR_OK);
        if (take.done_at.ns - since.ns < best_ns)
            best_ns = take.done_at.ns - since.ns;
        FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
    }
    assert_true(best_ns < WAKE_MS * MR_NS_PER_MS);
}

static void pass_us(int64_t us)
{
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, us * MR_NS_PER_US);
}

/* The task comes at any time while they are about to wait, and afterwards. */
static void waiters_are_served_in_the_order_they_came(void **state)
{
    struct conform *t = *state;
    for (int64_t pause_us = 0; pause_us < 2000; pause_us += 100) {
        struct conform_node *one = NODE(t, .name = "one");
        struct conform_node *two = NODE(t, .name = "two");
        struct conform_take first, second;
        conform_take_start(t, &first, one, 1, CONFORM_WAIT_MS);
        conform_take_start(t, &second, two, 1, CONFORM_WAIT_MS);
        pass_us(pause_us);
        const char *a = PUT_OK(t, .payload = MR_SLICE_LIT("a"));
        assert_err(conform_take_end(t, &first), MR_OK);
        assert_slice(first.req.leases->task.id, a);
        assert_false(mr_event_wait(&second.done, 0));
        const char *b = PUT_OK(t, .payload = MR_SLICE_LIT("b"));
        assert_err(conform_take_end(t, &second), MR_OK);
        assert_slice(second.req.leases->task.id, b);
        FINISH_OK(t, first.req.leases, .outcome = MR_DONE);
        FINISH_OK(t, second.req.leases, .outcome = MR_DONE);
        assert_err(conform_node_close(t, one), MR_OK);
        assert_err(conform_node_close(t, two), MR_OK);
    }
}

static void a_waiter_is_woken_by_every_way_a_task_can_come(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct conform_node *other = NODE(t, .name = "other");
    enum { BY_TIMER, BY_HAND_BACK, BY_CLOSE, BY_RUN, BY_RESUME, WAYS };
    for (int way = 0; way < WAYS; way++) {
        (void)PUT_OK(t, .id = MR_SLICE_LIT("x"),
                     .delay_ms = way == BY_TIMER ? 50
                                 : way == BY_RUN ? 3600000
                                                 : 0);
        struct mr_lease *held = NULL;
        if (way == BY_HAND_BACK || way == BY_CLOSE)
            held = conform_take_id(t, other, "x");
        if (way == BY_RESUME)
            assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
        struct conform_take take;
        conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
        if (way == BY_HAND_BACK)
            assert_err(FINISH(t, held, .outcome = MR_HAND_BACK), MR_OK);
        if (way == BY_CLOSE)
            assert_err(conform_node_close(t, other), MR_OK);
        if (way == BY_RUN)
            assert_err(conform_act(t, MR_VERB_RUN, "x", 0), MR_OK);
        if (way == BY_RESUME)
            assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 0), MR_OK);
        assert_err(conform_take_end(t, &take), MR_OK);
        assert_slice(take.req.leases->task.id, "x");
        FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
        mr_lease_free(held);
    }
}

static void no_more_than_max_are_given(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 10);
    struct conform_node *node = NODE(t);
    static const struct {
        size_t max, expected;
    } takes[] = {{3, 3}, {1, 1}, {100, 6}};
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        struct mr_lease *leases = conform_take_list(t, node, takes[i].max, 0, &n);
        assert_int_equal(n, takes[i].expected);
        conform_finish_list(t, leases, MR_DONE);
    }
    conform_take_none(t, node);
}

static void a_taken_task_is_not_given_again(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *one = NODE(t, .name = "one");
    struct conform_node *two = NODE(t, .name = "two");
    struct mr_lease *lease = conform_take_id(t, one, id);
    conform_take_none(t, two);
    conform_take_none(t, one);
    const struct mr_task *task = conform_get(t, id);
    assert_int_equal(task->state, MR_ACTIVE);
    assert_slice(task->node, "one");
    assert_int_equal(task->epoch, lease->epoch);
    assert_true(task->started_ms > 0);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.counts[MR_PENDING], 0);
    assert_int_equal(queue.counts[MR_ACTIVE], 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void two_nodes_share_a_queue_without_overlap(void **state)
{
    struct conform *t = *state;
    enum { N = 200 };
    conform_put_many(t, "default", "t", N);
    struct conform_node *nodes[2] = {NODE(t, .name = "one"), NODE(t, .name = "two")};
    bool seen[N] = {false};
    for (size_t taken = 0; taken < N;) {
        size_t n;
        struct mr_lease *leases = conform_take_list(t, nodes[taken % 2], 7, 0, &n);
        assert_non_null(leases);
        for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
            char id[16] = {0};
            memcpy(id, lease->task.id.data, lease->task.id.len);
            size_t i = strtoul(id + 1, NULL, 10);
            assert_false(seen[i]);
            seen[i] = true;
            taken++;
        }
        while (leases != NULL) {
            struct mr_lease *next = leases->next;
            mr_lease_free(leases);
            leases = next;
        }
    }
    assert_int_equal(conform_queue(t, "default").counts[MR_ACTIVE], N);
    conform_take_none(t, nodes[0]);
}

static void a_node_gets_from_its_own_queues_only(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .queue = MR_SLICE_LIT("qa"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("b"), .queue = MR_SLICE_LIT("qb"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("c"), .queue = MR_SLICE_LIT("qc"));
    struct conform_node *one = NODE(t, .name = "one", .queues = "qa");
    struct conform_node *two = NODE(t, .name = "two", .queues = "qc qb", .order = MR_QUEUES_STRICT);
    FINISH_OK(t, conform_take_id(t, one, "a"), .outcome = MR_DONE);
    conform_take_none(t, one);
    FINISH_OK(t, conform_take_id(t, two, "c"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, two, "b"), .outcome = MR_DONE);
    conform_take_none(t, two);
}

static void a_waiter_hears_of_a_queue_made_later(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .queues = "not-yet other");
    struct conform_take take;
    conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .queue = MR_SLICE_LIT("not-yet"));
    assert_err(conform_take_end(t, &take), MR_OK);
    FINISH_OK(t, take.req.leases, .outcome = MR_DONE);
}

static void epochs_rise_with_every_take(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 100);
    struct conform_node *node = NODE(t, .slots = 100);
    size_t n;
    struct mr_lease *leases = conform_take_list(t, node, 100, 0, &n);
    uint64_t last = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        assert_true(lease->epoch > last);
        assert_int_equal(lease->task.epoch, lease->epoch);
        last = lease->epoch;
    }
    conform_finish_list(t, leases, MR_HAND_BACK);
    leases = conform_take_list(t, node, 100, 0, &n);
    assert_int_equal(n, 100);
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        assert_true(lease->epoch > last);
        last = lease->epoch;
    }
    conform_finish_list(t, leases, MR_DONE);
}

static void a_take_of_an_unknown_or_closed_node_is_refused(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct conform_take take;
    conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
    assert_err(conform_node_close(t, node), MR_OK);
    assert_err(conform_take_end(t, &take), MR_CLOSED);
    conform_take_start(t, &take, node, 1, 0);
    assert_err(conform_take_end(t, &take), MR_CLOSED);
    struct conform_node never = {.node = UINT64_MAX - 7};
    conform_take_start(t, &take, &never, 1, 0);
    assert_err(conform_take_end(t, &take), MR_CLOSED);
    assert_err(conform_node_close(t, node), MR_NOT_FOUND);
}

/* One task of these queues of the node, or none. */
static struct mr_lease *take_of(struct conform *t, const struct conform_node *node, uint64_t queues)
{
    struct mr_req_take req = {
        .req.op = MR_OP_TAKE, .node = node->node, .max = 10, .queues = queues};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    assert_err(err, req.n > 0 ? MR_OK : MR_EMPTY);
    for (struct mr_lease *lease = req.leases; lease != NULL; lease = lease->next)
        assert_err(mr_broker_lease_open(t->broker, lease), MR_OK);
    return req.leases;
}

static void a_take_for_some_queues_gets_nothing_of_the_others(void **state)
{
    struct conform *t = *state;
    for (int order = MR_QUEUES_WEIGHTED; order <= MR_QUEUES_STRICT; order++) {
        struct conform_node *node = NODE(t, .queues = "a b c", .order = (enum mr_queue_order)order);
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("a"), .id = MR_SLICE_LIT("in a"));
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("c"), .id = MR_SLICE_LIT("in c"));
        assert_null(take_of(t, node, 2));
        struct mr_lease *lease = take_of(t, node, 2 | 4);
        assert_non_null(lease);
        assert_null(lease->next);
        assert_slice(lease->task.id, "in c");
        FINISH_OK(t, lease, .outcome = MR_DROP);
        assert_null(take_of(t, node, 2 | 4));
        FINISH_OK(t, conform_take_id(t, node, "in a"), .outcome = MR_DROP);
        assert_err(conform_node_close(t, node), MR_OK);
    }
}

static void takes_of_a_node_for_different_queues_do_not_wait_for_each_other(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .queues = "a b not-there-yet");
    static struct conform_take takes[3];
    static const char *const queues[] = {"a", "b", "not-there-yet"};
    for (unsigned i = 0; i < 3; i++) {
        takes[i].req = (struct mr_req_take){
            .node = node->node, .max = 1, .wait_ms = CONFORM_WAIT_MS, .queues = (uint64_t)1 << i};
        conform_take_submit(t, &takes[i]);
    }
    for (unsigned i = 3; i-- > 0;) {
        (void)PUT_OK(t, .queue = mr_slice_str(queues[i]), .id = mr_slice_str(queues[i]));
        assert_err(conform_take_end(t, &takes[i]), MR_OK);
        assert_slice(takes[i].req.leases->task.id, queues[i]);
        FINISH_OK(t, takes[i].req.leases, .outcome = MR_DROP);
    }
}

int conform_take(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(an_empty_queue_says_so_at_once),
        CONFORM_TEST(a_wait_ends_empty_and_not_early),
        CONFORM_TEST(a_waiter_is_woken_by_an_enqueue),
        CONFORM_TEST(waiters_are_served_in_the_order_they_came),
        CONFORM_TEST(a_waiter_is_woken_by_every_way_a_task_can_come),
        CONFORM_TEST(no_more_than_max_are_given),
        CONFORM_TEST(a_taken_task_is_not_given_again),
        CONFORM_TEST(two_nodes_share_a_queue_without_overlap),
        CONFORM_TEST(a_node_gets_from_its_own_queues_only),
        CONFORM_TEST(a_waiter_hears_of_a_queue_made_later),
        CONFORM_TEST(epochs_rise_with_every_take),
        CONFORM_TEST(a_take_of_an_unknown_or_closed_node_is_refused),
        CONFORM_TEST(a_take_for_some_queues_gets_nothing_of_the_others),
        CONFORM_TEST(takes_of_a_node_for_different_queues_do_not_wait_for_each_other),
    };
    return CONFORM_RUN(engine, "take", tests);
}
