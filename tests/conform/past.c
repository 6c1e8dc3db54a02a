/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a task has behind it: each run that did not end well, with who ran it and what it said, and what people did, in order. The
 * last few alone are kept; of a run that ended well, or counts as none, nothing is.
 */
#include "broker/past.h"

#include "conform/conform.h"

static size_t past_of(struct conform *t, const char *id, struct mr_past list[MR_PAST_MAX])
{
    struct mr_slice rest = conform_get(t, id)->past;
    size_t n = 0;
    while (n < MR_PAST_MAX && mr_past_next(&rest, &list[n]))
        n++;
    assert_int_equal(rest.len, 0);
    return n;
}

static void fail_once(struct conform *t, struct conform_node *node, const char *id, const char *why,
                      enum mr_finish_reason reason)
{
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_FAIL, .delay_ms = 1,
              .error = mr_slice_str(why), .reason = reason);
}

static void every_run_that_failed_is_told_with_its_error(void **state)
{
    struct conform *t = *state;
    struct mr_past past[MR_PAST_MAX];
    const char *id = PUT_OK(t, .max_retry = 2);
    struct conform_node *node = NODE(t, .name = "hand");
    assert_int_equal(past_of(t, id, past), 0);
    int64_t before_ms = conform_wall_ms();
    fail_once(t, node, id, "first\nof two lines", MR_REASON_NONE);
    fail_once(t, node, id, "second", MR_REASON_TIMEOUT);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_FAIL_FOR_GOOD,
              .error = MR_SLICE_LIT("third"));
    assert_int_equal(past_of(t, id, past), 3);
    static const char *const texts[] = {"first\nof two lines", "second", "third"};
    static const char *const words[] = {"error", "timeout", "error"};
    for (uint32_t i = 0; i < 3; i++) {
        assert_slice(past[i].text, texts[i]);
        assert_slice(past[i].what, words[i]);
        assert_slice(past[i].node, "hand");
        assert_int_equal(past[i].attempt, i + 1);
        assert_true(past[i].started_ms >= before_ms - 1);
        assert_true(past[i].ms >= past[i].started_ms);
        assert_true(i == 0 || past[i].started_ms >= past[i - 1].ms);
    }
}

static void what_people_did_is_told(void **state)
{
    struct conform *t = *state;
    struct mr_past past[MR_PAST_MAX];
    const char *id = PUT_OK(t, .max_retry = 1);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, id, 5), MR_OK);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, id, 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, id, 0), MR_WRONG_STATE);
    assert_err(conform_act(t, MR_VERB_RUN, id, 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_CANCEL, id, 0), MR_OK);
    assert_int_equal(past_of(t, id, past), 4);
    static const char *const words[] = {"prioritise", "archive", "run", "cancel"};
    for (size_t i = 0; i < 4; i++) {
        assert_slice(past[i].what, words[i]);
        assert_int_equal(past[i].started_ms, 0);
        assert_int_equal(past[i].attempt, 0);
        assert_int_equal(past[i].node.len, 0);
    }
}

static void a_crash_is_told_and_what_never_ran_is_not(void **state)
{
    struct conform *t = *state;
    struct mr_past past[MR_PAST_MAX];
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t, .name = "crasher");
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_HAND_BACK);
    struct mr_lease *lease = conform_take_id(t, node, id);
    assert_err(conform_node_close(t, node), MR_OK); /* it had not begun */
    mr_lease_free(lease);
    node = NODE(t, .name = "crasher");
    lease = conform_take_id(t, node, id);
    mr_broker_begun(t->broker, node->first_slot, lease->epoch);
    assert_err(conform_node_close(t, node), MR_OK);
    mr_lease_free(lease);
    (void)conform_state(t, id);
    WAIT_UNTIL(past_of(t, id, past) == 1);
    assert_slice(past[0].what, "crash");
    assert_slice(past[0].node, "crasher");
    assert_int_equal(past[0].attempt, 1);
}

static void the_last_few_are_kept(void **state)
{
    enum { MORE = 3 };
    struct conform *t = *state;
    struct mr_past past[MR_PAST_MAX];
    const char *id = PUT_OK(t, .max_retry = 2 * MR_PAST_MAX);
    struct conform_node *node = NODE(t);
    char text[2 * MR_PAST_TEXT_MAX + 1];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (size_t i = 0; i < MR_PAST_MAX + MORE; i++)
        fail_once(t, node, id, text, MR_REASON_NONE);
    assert_int_equal(past_of(t, id, past), MR_PAST_MAX);
    assert_int_equal(past[0].attempt, 1 + MORE);
    assert_int_equal(past[MR_PAST_MAX - 1].attempt, MR_PAST_MAX + MORE);
    assert_int_equal(past[0].text.len, MR_PAST_TEXT_MAX);
}

static void a_new_task_of_the_same_id_begins_without(void **state)
{
    struct conform *t = *state;
    struct mr_past past[MR_PAST_MAX];
    (void)PUT_OK(t, .id = MR_SLICE_LIT("again"), .max_retry = MR_NO_RETRY);
    fail_once(t, NODE(t), "again", "no", MR_REASON_NONE);
    assert_int_equal(past_of(t, "again", past), 1);
    int64_t before_ms = conform_wall_ms();
    assert_err(conform_act(t, MR_VERB_DELETE, "again", 0), MR_OK);
    WAIT_UNTIL(conform_wall_ms() > before_ms);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("again"));
    assert_int_equal(past_of(t, "again", past), 0);
}

int conform_past(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(every_run_that_failed_is_told_with_its_error),
        CONFORM_TEST(what_people_did_is_told),
        CONFORM_TEST(a_crash_is_told_and_what_never_ran_is_not),
        CONFORM_TEST(the_last_few_are_kept),
        CONFORM_TEST(a_new_task_of_the_same_id_begins_without),
    };
    return CONFORM_RUN(engine, "past", tests);
}
