/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: control. One table says what each verb does in each state; the rest is about its
 * effects. */
#include <math.h>
#include <stdio.h>

#include "conform/conform.h"

/* What a verb does to a task in a state: the answer, and the state afterwards. */
struct effect {
    enum mr_verb verb;
    enum mr_state before;
    enum mr_err err;
    enum mr_state after;
};

static const struct effect effects[] = {
    {MR_VERB_CANCEL, MR_SCHEDULED, MR_OK, MR_ARCHIVED},
    {MR_VERB_CANCEL, MR_PENDING, MR_OK, MR_ARCHIVED},
    {MR_VERB_CANCEL, MR_ACTIVE, MR_OK, MR_ACTIVE},
    {MR_VERB_CANCEL, MR_RETRY, MR_OK, MR_ARCHIVED},
    {MR_VERB_CANCEL, MR_ARCHIVED, MR_WRONG_STATE, MR_ARCHIVED},
    {MR_VERB_CANCEL, MR_COMPLETED, MR_WRONG_STATE, MR_COMPLETED},
    {MR_VERB_CANCEL, MR_AGGREGATING, MR_OK, MR_ARCHIVED},
    {MR_VERB_DELETE, MR_SCHEDULED, MR_OK, MR_STATE_NONE},
    {MR_VERB_DELETE, MR_PENDING, MR_OK, MR_STATE_NONE},
    {MR_VERB_DELETE, MR_ACTIVE, MR_RUNNING, MR_ACTIVE},
    {MR_VERB_DELETE, MR_RETRY, MR_OK, MR_STATE_NONE},
    {MR_VERB_DELETE, MR_ARCHIVED, MR_OK, MR_STATE_NONE},
    {MR_VERB_DELETE, MR_COMPLETED, MR_OK, MR_STATE_NONE},
    {MR_VERB_DELETE, MR_AGGREGATING, MR_OK, MR_STATE_NONE},
    {MR_VERB_RUN, MR_SCHEDULED, MR_OK, MR_PENDING},
    {MR_VERB_RUN, MR_PENDING, MR_WRONG_STATE, MR_PENDING},
    {MR_VERB_RUN, MR_ACTIVE, MR_RUNNING, MR_ACTIVE},
    {MR_VERB_RUN, MR_RETRY, MR_OK, MR_PENDING},
    {MR_VERB_RUN, MR_ARCHIVED, MR_OK, MR_PENDING},
    {MR_VERB_RUN, MR_COMPLETED, MR_WRONG_STATE, MR_COMPLETED},
    {MR_VERB_RUN, MR_AGGREGATING, MR_OK, MR_PENDING},
    {MR_VERB_ARCHIVE, MR_SCHEDULED, MR_OK, MR_ARCHIVED},
    {MR_VERB_ARCHIVE, MR_PENDING, MR_OK, MR_ARCHIVED},
    {MR_VERB_ARCHIVE, MR_ACTIVE, MR_RUNNING, MR_ACTIVE},
    {MR_VERB_ARCHIVE, MR_RETRY, MR_OK, MR_ARCHIVED},
    {MR_VERB_ARCHIVE, MR_ARCHIVED, MR_WRONG_STATE, MR_ARCHIVED},
    {MR_VERB_ARCHIVE, MR_COMPLETED, MR_WRONG_STATE, MR_COMPLETED},
    {MR_VERB_ARCHIVE, MR_AGGREGATING, MR_OK, MR_ARCHIVED},
    {MR_VERB_PRIORITISE, MR_SCHEDULED, MR_OK, MR_SCHEDULED},
    {MR_VERB_PRIORITISE, MR_PENDING, MR_OK, MR_PENDING},
    {MR_VERB_PRIORITISE, MR_ACTIVE, MR_RUNNING, MR_ACTIVE},
    {MR_VERB_PRIORITISE, MR_RETRY, MR_OK, MR_RETRY},
    {MR_VERB_PRIORITISE, MR_ARCHIVED, MR_WRONG_STATE, MR_ARCHIVED},
    {MR_VERB_PRIORITISE, MR_COMPLETED, MR_WRONG_STATE, MR_COMPLETED},
    {MR_VERB_PRIORITISE, MR_AGGREGATING, MR_WRONG_STATE, MR_AGGREGATING},
};

static void every_verb_does_its_part_in_every_state(void **state)
{
    struct conform *t = *state;
    static const char *const verbs[] = {"cancel", "delete", "run", "archive", "prioritise"};
    for (size_t i = 0; i < sizeof effects / sizeof effects[0]; i++) {
        const struct effect *e = &effects[i];
        conform_make_state(t, "x", e->before);
        enum mr_err err = conform_act(t, e->verb, "x", 5);
        enum mr_state after = conform_state(t, "x");
        if (err != e->err || after != e->after)
            fail_msg("%s of a %s task: %s, then %s; expected %s, then %s", verbs[e->verb],
                     mr_state_name(e->before), mr_err_name(err), mr_state_name(after),
                     mr_err_name(e->err), mr_state_name(e->after));
        struct mr_queue_info queue = conform_queue(t, "default");
        for (int s = 1; s < MR_STATE_COUNT; s++)
            assert_int_equal(queue.counts[s], s == (int)after ? 1 : 0);
        if (after == MR_ACTIVE)
            assert_err(conform_node_close(t, t->nodes), MR_OK);
        if (conform_state(t, "x") != MR_STATE_NONE)
            assert_err(conform_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
        assert_int_equal(conform_stats_now(t).tasks, 0);
    }
}

static void every_verb_says_not_found(void **state)
{
    struct conform *t = *state;
    for (int verb = MR_VERB_CANCEL; verb <= MR_VERB_PRIORITISE; verb++)
        assert_err(conform_act(t, (enum mr_verb)verb, "nobody", 0), MR_NOT_FOUND);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"));
    assert_err(conform_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "x", 0), MR_NOT_FOUND);
}

static void a_deleted_task_is_never_taken(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 3);
    assert_err(conform_act(t, MR_VERB_DELETE, "t1", 0), MR_OK);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "t0"), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, "t2"), .outcome = MR_DONE);
    conform_take_none(t, node);
    assert_int_equal(conform_stats_now(t).deleted, 1);
}

static void deleting_a_running_task_flags_it_and_its_result_still_counts(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .retention_ms = 3600000);
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_RUNNING);
    assert_true(conform_get(t, id)->cancel_requested);
    FINISH_OK(t, lease, .outcome = MR_DONE, .result = MR_SLICE_LIT("late"));
    const struct mr_task *task = conform_get(t, id);
    assert_slice(task->result, "late");
    assert_true(task->cancel_requested);
}

static void cancelling_a_running_task_tells_its_node(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    assert_err(conform_act(t, MR_VERB_CANCEL, id, 0), MR_OK);
    WAIT_UNTIL(conform_was_stopped(node, lease->epoch, MR_STOP_CANCEL));
    assert_true(conform_get(t, id)->cancel_requested);
    FINISH_OK(t, lease, .outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("cancelled"));
    assert_int_equal(conform_state(t, id), MR_ARCHIVED);
}

static void a_task_cancelled_while_waiting_says_why(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    assert_err(conform_act(t, MR_VERB_CANCEL, id, 0), MR_OK);
    const struct mr_task *task = conform_get(t, id);
    assert_true(task->last_error.len > 0);
    assert_true(task->finished_ms > 0);
    conform_take_none(t, NODE(t));
}

static void run_now_can_be_taken_at_once(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    static const enum mr_state states[] = {MR_SCHEDULED, MR_RETRY, MR_ARCHIVED};
    for (size_t i = 0; i < 3; i++) {
        conform_make_state(t, "x", states[i]);
        assert_err(conform_act(t, MR_VERB_RUN, "x", 0), MR_OK);
        struct mr_lease *lease = conform_take_id(t, node, "x");
        assert_int_equal(lease->task.retried, states[i] == MR_RETRY ? 1 : 0);
        FINISH_OK(t, lease, .outcome = MR_DROP);
    }
}

static void a_priority_out_of_range_is_refused(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .priority_s = 3);
    static const double bad[] = {NAN, INFINITY, -INFINITY, 1e12, -1e12};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        enum mr_err err = conform_act(t, MR_VERB_PRIORITISE, "x", bad[i]);
        assert_true(err == MR_INVALID || err == MR_TOO_BIG);
    }
    assert_true(conform_get(t, "x")->priority_s == 3);
}

static void a_batch_of_verbs_answers_per_item(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 3);
    struct mr_control items[] = {
        {.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("t0")},
        {.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("t0")},
        {.verb = MR_VERB_ARCHIVE, .id = MR_SLICE_LIT("t1")},
        {.verb = MR_VERB_RUN, .id = MR_SLICE_LIT("t1")},
        {.verb = (enum mr_verb)99, .id = MR_SLICE_LIT("t2")},
        {.verb = MR_VERB_CANCEL, .id = MR_SLICE_LIT("t2")},
    };
    static const enum mr_err expected[] = {MR_OK, MR_NOT_FOUND, MR_OK, MR_OK, MR_INVALID, MR_OK};
    enum mr_err errs[6];
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = 6, .errs = errs};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (size_t i = 0; i < 6; i++)
        assert_err(errs[i], expected[i]);
}

int conform_control(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(every_verb_does_its_part_in_every_state),
        CONFORM_TEST(every_verb_says_not_found),
        CONFORM_TEST(a_deleted_task_is_never_taken),
        CONFORM_TEST(deleting_a_running_task_flags_it_and_its_result_still_counts),
        CONFORM_TEST(cancelling_a_running_task_tells_its_node),
        CONFORM_TEST(a_task_cancelled_while_waiting_says_why),
        CONFORM_TEST(run_now_can_be_taken_at_once),
        CONFORM_TEST(a_priority_out_of_range_is_refused),
        CONFORM_TEST(a_batch_of_verbs_answers_per_item),
    };
    return CONFORM_RUN(engine, "control", tests);
}
