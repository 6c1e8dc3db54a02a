/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: leases. A node that beats keeps what it holds however long it takes; what a dead
 * node held returns under a higher epoch; a crash counts only for runs that had begun, and three
 * quarantine the task.
 */
#include <stdio.h>

#include "conform/conform.h"

static void run_begins(struct conform *t, const struct conform_node *node, uint32_t slot,
                       const struct mr_lease *lease)
{
    mr_broker_begun(t->broker, node->first_slot + slot, lease->epoch);
}

/* Beats for ms without ever leaving a gap the node could die in; false when the machine made one.
 */
static bool beat_for(struct conform *t, const struct conform_node *node, int64_t ms)
{
    mr_mono since = conform_mono(), last = since;
    while (conform_elapsed_ms(since) < ms) {
        enum mr_err err = conform_beat(t, node);
        if (conform_elapsed_ms(last) > CONFORM_LEASE_MS / 2)
            return false;
        assert_err(err, MR_OK);
        last = conform_mono();
        conform_pass_ms(CONFORM_LEASE_MS / 10);
    }
    return true;
}

static void beats_keep_a_task_ten_leases_long(void **state)
{
    struct conform *t = *state;
    for (int tries = 0; tries < 10; tries++) {
        struct conform_node *node = NODE(t, .lease_ms = CONFORM_LEASE_MS);
        const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("long"));
        struct mr_lease *lease = conform_take_one(t, node);
        bool even = beat_for(t, node, 10 * CONFORM_LEASE_MS);
        if (even) {
            assert_int_equal(conform_state(t, id), MR_ACTIVE);
            FINISH_OK(t, lease, .outcome = MR_DONE);
            return;
        }
        mr_lease_free(lease);
        (void)conform_node_close(t, node);
        assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_OK);
    }
    fail_msg("this machine cannot keep a pace of %d ms", CONFORM_LEASE_MS / 10);
}

static void a_dead_nodes_task_returns_after_the_lease_and_not_before(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("low"), .priority_s = 7);
    struct conform_node *dying = NODE(t, .queues = "low", .lease_ms = CONFORM_LEASE_MS);
    struct conform_node *other = NODE(t, .name = "other", .queues = "low");
    mr_mono since = conform_mono();
    assert_err(conform_beat(t, dying), MR_OK);
    struct mr_lease *lost = conform_take_id(t, dying, id);
    struct conform_take take;
    conform_take_start(t, &take, other, 1, CONFORM_WAIT_MS);
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_true(take.done_at.ns - since.ns >= CONFORM_LEASE_MS * MR_NS_PER_MS);
    struct mr_lease *again = take.req.leases;
    assert_slice(again->task.id, id);
    assert_slice(again->task.queue, "low");
    assert_true(again->epoch > lost->epoch);
    assert_int_equal(again->task.order_time_ms, lost->task.order_time_ms);
    assert_int_equal(again->task.crashes, 0);
    assert_int_equal(again->task.retried, 0);
    assert_int_equal(again->task.attempt, 1);
    FINISH_OK(t, again, .outcome = MR_DONE);
    mr_lease_free(lost);
}

static void a_begun_run_of_a_dead_node_is_a_crash(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 3);
    struct conform_node *dying = NODE(t, .lease_ms = CONFORM_LEASE_MS);
    struct conform_node *other = NODE(t, .name = "other");
    struct mr_lease *held[3];
    for (size_t i = 0; i < 3; i++)
        held[i] = conform_take_one(t, dying);
    run_begins(t, dying, 0, held[0]);
    run_begins(t, dying, 1, held[1]);
    mr_broker_begun(t->broker, dying->first_slot + 1, 0);
    WAIT_UNTIL(conform_queue(t, "default").counts[MR_PENDING] == 3);
    static const uint32_t crashes[3] = {1, 0, 0};
    for (size_t i = 0; i < 3; i++) {
        struct mr_lease *lease = conform_take_one(t, other);
        assert_slices(lease->task.id, held[i]->task.id);
        assert_int_equal(lease->task.crashes, crashes[i]);
        assert_int_equal(lease->task.retried, 0);
        assert_int_equal(lease->task.attempt, 1 + crashes[i]);
        FINISH_OK(t, lease, .outcome = MR_DONE);
        mr_lease_free(held[i]);
    }
}

static void a_hundred_tasks_of_a_dead_node_return_once_in_order(void **state)
{
    struct conform *t = *state;
    enum { N = 100 };
    conform_put_many(t, "default", "t", N);
    struct conform_node *dying = NODE(t, .lease_ms = CONFORM_LEASE_MS, .slots = N);
    struct conform_node *other = NODE(t, .name = "other", .slots = N);
    size_t n;
    struct mr_lease *held = conform_take_list(t, dying, N, 0, &n);
    assert_int_equal(n, N);
    WAIT_UNTIL(conform_queue(t, "default").counts[MR_PENDING] == N);
    struct mr_lease *again = conform_take_list(t, other, N, 0, &n);
    assert_int_equal(n, N);
    size_t i = 0;
    for (struct mr_lease *lease = again; lease != NULL; lease = lease->next, i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "t%zu", i);
        assert_slice(lease->task.id, id);
    }
    conform_take_none(t, other);
    conform_finish_list(t, again, MR_DONE);
    while (held != NULL) {
        struct mr_lease *next = held->next;
        mr_lease_free(held);
        held = next;
    }
}

static void a_dead_node_is_told_and_can_change_nothing(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"), .retention_ms = 3600000);
    struct conform_node *dying = NODE(t, .lease_ms = CONFORM_LEASE_MS);
    struct conform_node *other = NODE(t, .name = "other");
    struct mr_lease *lost = conform_take_id(t, dying, id);
    uint64_t refused = conform_stats_now(t).stale_refused;
    WAIT_UNTIL(conform_was_stopped(dying, lost->epoch, MR_STOP_LOST));
    assert_err(conform_beat(t, dying), MR_NOT_FOUND);
    struct conform_take take;
    conform_take_start(t, &take, dying, 1, 0);
    assert_err(conform_take_end(t, &take), MR_CLOSED);

    WAIT_UNTIL(conform_state(t, id) == MR_PENDING);
    assert_err(FINISH(t, lost, .outcome = MR_DONE, .result = MR_SLICE_LIT("zombie")), MR_STALE);
    struct mr_lease *again = conform_take_id(t, other, id);
    static const enum mr_outcome outcomes[] = {MR_DONE,      MR_FAIL, MR_FAIL_FOR_GOOD,
                                               MR_HAND_BACK, MR_DROP, MR_LATER};
    for (size_t i = 0; i < 6; i++) {
        assert_err(FINISH(t, lost, .outcome = outcomes[i]), MR_STALE);
        assert_int_equal(conform_state(t, id), MR_ACTIVE);
    }
    assert_int_equal(conform_stats_now(t).stale_refused, refused + 7);
    FINISH_OK(t, again, .outcome = MR_DONE, .result = MR_SLICE_LIT("good"));
    assert_err(FINISH(t, lost, .outcome = MR_DONE, .result = MR_SLICE_LIT("zombie")), MR_STALE);
    assert_slice(conform_get(t, id)->result, "good");
    mr_lease_free(lost);
}

static void closing_a_node_hands_back_at_once(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 2);
    struct conform_node *leaving = NODE(t);
    struct conform_node *other = NODE(t, .name = "other");
    struct mr_lease *begun = conform_take_id(t, leaving, "t0");
    struct mr_lease *not_begun = conform_take_id(t, leaving, "t1");
    run_begins(t, leaving, 0, begun);
    assert_err(conform_node_close(t, leaving), MR_OK);
    assert_int_equal(conform_state(t, "t0"), MR_PENDING);
    assert_int_equal(conform_state(t, "t1"), MR_PENDING);
    assert_err(FINISH(t, begun, .outcome = MR_DONE), MR_STALE);
    struct mr_lease *lease = conform_take_id(t, other, "t0");
    assert_int_equal(lease->task.crashes, 1);
    assert_int_equal(lease->task.attempt, 2);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    lease = conform_take_id(t, other, "t1");
    assert_int_equal(lease->task.crashes, 0);
    assert_int_equal(lease->task.attempt, 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    mr_lease_free(begun);
    mr_lease_free(not_begun);
}

/* Takes the task, begins it and loses the node; answers the state the task is in then. */
static enum mr_state crash_once(struct conform *t, const char *id)
{
    struct conform_node *node = NODE(t, .name = "crasher");
    struct mr_lease *lease = conform_take_id(t, node, id);
    run_begins(t, node, 0, lease);
    assert_err(conform_node_close(t, node), MR_OK);
    mr_lease_free(lease);
    return conform_state(t, id);
}

static void three_crashes_quarantine_with_a_reason(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("poison"), .max_retry = MR_NO_RETRY);
    assert_int_equal(crash_once(t, "poison"), MR_PENDING);
    assert_int_equal(crash_once(t, "poison"), MR_PENDING);
    assert_int_equal(conform_get(t, "poison")->crashes, 2);
    assert_int_equal(crash_once(t, "poison"), MR_ARCHIVED);
    const struct mr_task *task = conform_get(t, "poison");
    assert_int_equal(task->crashes, MR_CRASHES_MAX);
    assert_int_equal(task->retried, 0);
    assert_true(task->last_error.len > 0);
    assert_true(task->finished_ms > 0);
    assert_int_equal(conform_queue(t, "default").quarantined, 1);
    assert_int_equal(conform_stats_now(t).quarantined, 1);
    conform_take_none(t, NODE(t));

    assert_err(conform_act(t, MR_VERB_RUN, "poison", 0), MR_OK);
    assert_int_equal(conform_get(t, "poison")->crashes, 0);
    assert_int_equal(crash_once(t, "poison"), MR_PENDING);
}

static void a_death_counts_like_a_close(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("poison"));
    assert_int_equal(crash_once(t, "poison"), MR_PENDING);
    assert_int_equal(crash_once(t, "poison"), MR_PENDING);
    struct conform_node *dying = NODE(t, .lease_ms = CONFORM_LEASE_MS);
    struct mr_lease *lease = conform_take_id(t, dying, "poison");
    run_begins(t, dying, 3, lease);
    WAIT_UNTIL(conform_state(t, "poison") == MR_ARCHIVED);
    mr_lease_free(lease);
}

static void crashes_never_eat_retries(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .max_retry = 1);
    assert_int_equal(crash_once(t, "x"), MR_PENDING);
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, "x");
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 1);
    assert_int_equal(crash_once(t, "x"), MR_PENDING);
    lease = conform_take_id(t, node, "x");
    assert_int_equal(lease->task.attempt, 4);
    assert_int_equal(lease->task.retried, 1);
    assert_int_equal(lease->task.crashes, 2);
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 1);
    assert_int_equal(conform_state(t, "x"), MR_ARCHIVED);
}

/* A slot goes on with its next task while the last finish is under way: begun follows the epoch. */
static void a_slot_that_moved_on_crashes_only_its_last_run(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 2);
    struct conform_node *node = NODE(t);
    struct mr_lease *first = conform_take_id(t, node, "t0");
    struct mr_lease *second = conform_take_id(t, node, "t1");
    run_begins(t, node, 0, first);
    run_begins(t, node, 0, second);
    FINISH_OK(t, first, .outcome = MR_FAIL, .delay_ms = 3600000);
    assert_err(conform_node_close(t, node), MR_OK);
    assert_int_equal(conform_get(t, "t0")->crashes, 0);
    assert_int_equal(conform_get(t, "t1")->crashes, 1);
    mr_lease_free(second);
}

static void progress_of_a_beat_is_shown(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    struct mr_progress progress = {
        .epoch = lease->epoch, .ref = lease->ref, .percent = 40, .text = MR_SLICE_LIT("copying")};
    struct mr_req_beat req = {
        .req.op = MR_OP_BEAT, .node = node->node, .progress = &progress, .progress_n = 1};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    const struct mr_task *task = conform_get(t, id);
    assert_non_null(memmem(task->progress.data, task->progress.len, "40", 2));
    assert_non_null(memmem(task->progress.data, task->progress.len, "copying", 7));
    progress.epoch++;
    progress.percent = 99;
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    task = conform_get(t, id);
    assert_null(memmem(task->progress.data, task->progress.len, "99", 2));
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_progress_text_is_kept_up_to_its_limit_in_whole_characters(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    char text[2 * MR_PROGRESS_TEXT_MAX];
    for (size_t i = 0; i < sizeof text; i += 2)
        memcpy(text + i, "\u00e4", 2);
    text[0] = text[1] = 'x';
    text[2] = 'y'; /* from here on characters begin at odd places */
    memmove(text + 3, text + 4, sizeof text - 4);
    struct mr_progress progress = {.epoch = lease->epoch,
                                   .ref = lease->ref,
                                   .percent = 1,
                                   .text = mr_slice_make(text, sizeof text - 1)};
    struct mr_req_beat req = {
        .req.op = MR_OP_BEAT, .node = node->node, .progress = &progress, .progress_n = 1};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    struct mr_slice shown = conform_get(t, id)->progress;
    assert_int_equal(shown.len, strlen("1 ") + MR_PROGRESS_TEXT_MAX - 1);
    assert_memory_equal((const char *)shown.data + 2, text, MR_PROGRESS_TEXT_MAX - 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void an_idle_node_that_beats_stays(void **state)
{
    struct conform *t = *state;
    struct conform_node *node;
    int tries = 0;
    do {
        node = NODE(t, .lease_ms = CONFORM_LEASE_MS);
    } while (!beat_for(t, node, 3 * CONFORM_LEASE_MS) && ++tries < 10);
    assert_true(tries < 10);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"));
    FINISH_OK(t, conform_take_id(t, node, "x"), .outcome = MR_DONE);
}

int conform_leases(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(beats_keep_a_task_ten_leases_long),
        CONFORM_TEST(a_dead_nodes_task_returns_after_the_lease_and_not_before),
        CONFORM_TEST(a_begun_run_of_a_dead_node_is_a_crash),
        CONFORM_TEST(a_hundred_tasks_of_a_dead_node_return_once_in_order),
        CONFORM_TEST(a_dead_node_is_told_and_can_change_nothing),
        CONFORM_TEST(closing_a_node_hands_back_at_once),
        CONFORM_TEST(three_crashes_quarantine_with_a_reason),
        CONFORM_TEST(a_death_counts_like_a_close),
        CONFORM_TEST(crashes_never_eat_retries),
        CONFORM_TEST(a_slot_that_moved_on_crashes_only_its_last_run),
        CONFORM_TEST(progress_of_a_beat_is_shown),
        CONFORM_TEST(a_progress_text_is_kept_up_to_its_limit_in_whole_characters),
        CONFORM_TEST(an_idle_node_that_beats_stays),
    };
    return CONFORM_RUN(engine, "leases", tests);
}
