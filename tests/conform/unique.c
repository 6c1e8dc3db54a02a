/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: unique keys. At most one task that has not ended holds a key, until its time runs
 * out. */
#include "conform/conform.h"

#define KEYED(key, ms) .unique_key = MR_SLICE_LIT(key), .unique_ms = (ms)

enum { LONG_MS = 600000 };

static void a_held_key_rejects_and_names_the_holder(void **state)
{
    struct conform *t = *state;
    const char *first = PUT_OK(t, KEYED("k", LONG_MS), .delay_ms = 3600000);
    struct mr_enqueue_result again = PUT(t, KEYED("k", LONG_MS));
    assert_err(again.err, MR_DUPLICATE);
    assert_string_equal(again.id, first);
    assert_int_equal(again.state, MR_SCHEDULED);
    assert_int_equal(conform_stats_now(t).tasks, 1);
    assert_err(PUT(t, KEYED("other", LONG_MS)).err, MR_OK);
}

static void ignore_answers_the_holder_and_runs_once(void **state)
{
    struct conform *t = *state;
    const char *first = PUT_OK(t, KEYED("k", LONG_MS), .payload = MR_SLICE_LIT("first"));
    struct mr_enqueue_result again =
        PUT(t, KEYED("k", LONG_MS), .on_duplicate = MR_DUPLICATE_IGNORE);
    assert_err(again.err, MR_OK);
    assert_string_equal(again.id, first);
    assert_int_equal(again.state, MR_PENDING);
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, first);
    assert_slice(lease->task.payload, "first");
    conform_take_none(t, node);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    conform_take_none(t, node);
}

static void replace_moves_the_waiting_task_in_the_order(void **state)
{
    struct conform *t = *state;
    const char *other = PUT_OK(t, .priority_s = 10);
    const char *first = PUT_OK(t, KEYED("k", LONG_MS));
    struct mr_enqueue_result again =
        PUT(t, KEYED("k", LONG_MS), .priority_s = 60, .on_duplicate = MR_DUPLICATE_REPLACE);
    assert_err(again.err, MR_OK);
    assert_string_equal(again.id, first);
    assert_int_equal(conform_stats_now(t).tasks, 2);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, first), .outcome = MR_DONE);
    FINISH_OK(t, conform_take_id(t, node, other), .outcome = MR_DONE);
    conform_take_none(t, node);
}

static void replace_moves_the_due_time(void **state)
{
    struct conform *t = *state;
    const char *first = PUT_OK(t, KEYED("k", LONG_MS), .delay_ms = 3600000);
    struct mr_enqueue_result again =
        PUT(t, KEYED("k", LONG_MS), .on_duplicate = MR_DUPLICATE_REPLACE);
    assert_err(again.err, MR_OK);
    assert_string_equal(again.id, first);
    assert_int_equal(conform_state(t, first), MR_PENDING);
    again = PUT(t, KEYED("k", LONG_MS), .delay_ms = 3600000, .on_duplicate = MR_DUPLICATE_REPLACE);
    assert_err(again.err, MR_OK);
    assert_int_equal(conform_state(t, first), MR_SCHEDULED);
    assert_int_equal(conform_stats_now(t).tasks, 1);
}

static void the_default_key_is_queue_type_and_payload(void **state)
{
    struct conform *t = *state;
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q"),
                                   .type = MR_SLICE_LIT("t"),
                                   .payload = MR_SLICE_LIT("p"),
                                   .unique_ms = LONG_MS};
    const char *first = conform_put_ok(t, &task);
    struct mr_enqueue_result again = conform_put_one(t, &task);
    assert_err(again.err, MR_DUPLICATE);
    assert_string_equal(again.id, first);
    struct mr_task_options others[3] = {task, task, task};
    others[0].queue = MR_SLICE_LIT("q2");
    others[1].type = MR_SLICE_LIT("t2");
    others[2].payload = MR_SLICE_LIT("p2");
    for (size_t i = 0; i < 3; i++)
        assert_err(conform_put_one(t, &others[i]).err, MR_OK);
    /* The parts must not run into each other. */
    task.queue = MR_SLICE_LIT("qt");
    task.type = MR_SLICE_LIT("p");
    task.payload = MR_SLICE_LIT("");
    assert_err(conform_put_one(t, &task).err, MR_OK);
}

static void a_key_holds_within_its_queue(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q1"), KEYED("k", LONG_MS));
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q2"), KEYED("k", LONG_MS));
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q1"), KEYED("k", LONG_MS)).err, MR_DUPLICATE);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q2"), KEYED("k", LONG_MS)).err, MR_DUPLICATE);
}

static void a_key_is_free_when_its_time_is_over(void **state)
{
    struct conform *t = *state;
    mr_mono since = conform_mono();
    const char *first = PUT_OK(t, KEYED("k", 150));
    struct mr_enqueue_result again = PUT(t, KEYED("k", 150));
    if (conform_elapsed_ms(since) < 140)
        assert_err(again.err, MR_DUPLICATE);
    if (again.err == MR_DUPLICATE)
        WAIT_UNTIL((again = PUT(t, KEYED("k", LONG_MS))).err == MR_OK);
    assert_true(conform_elapsed_ms(since) >= 150);
    assert_string_not_equal(again.id, first);
    assert_int_equal(conform_state(t, first), MR_PENDING);
}

static void an_outlived_holder_does_not_free_its_successors_key(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    const char *first = PUT_OK(t, KEYED("k", 30));
    struct mr_lease *lease = conform_take_id(t, node, first);
    struct mr_enqueue_result second;
    WAIT_UNTIL((second = PUT(t, KEYED("k", LONG_MS))).err == MR_OK);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    struct mr_enqueue_result third = PUT(t, KEYED("k", LONG_MS));
    assert_err(third.err, MR_DUPLICATE);
    assert_string_equal(third.id, second.id);
}

static void a_key_is_held_through_run_and_retry(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, KEYED("k", LONG_MS));
    struct mr_lease *lease = conform_take_id(t, node, id);
    struct mr_enqueue_result again = PUT(t, KEYED("k", LONG_MS));
    assert_err(again.err, MR_DUPLICATE);
    assert_int_equal(again.state, MR_ACTIVE);
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 3600000);
    again = PUT(t, KEYED("k", LONG_MS));
    assert_err(again.err, MR_DUPLICATE);
    assert_int_equal(again.state, MR_RETRY);
}

static void a_key_is_free_when_the_task_ends(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    static const struct mr_finish ends[] = {
        {.outcome = MR_DONE}, {.outcome = MR_FAIL_FOR_GOOD}, {.outcome = MR_DROP}};
    for (size_t i = 0; i < 3; i++) {
        const char *id = PUT_OK(t, KEYED("k", LONG_MS), .retention_ms = 3600000);
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_err(conform_finish_one(t, lease, ends[i]), MR_OK);
        mr_lease_free(lease);
    }
    const char *deleted = PUT_OK(t, KEYED("k", LONG_MS));
    assert_err(conform_act(t, MR_VERB_DELETE, deleted, 0), MR_OK);
    const char *archived = PUT_OK(t, KEYED("k", LONG_MS));
    assert_err(conform_act(t, MR_VERB_ARCHIVE, archived, 0), MR_OK);
    const char *cancelled = PUT_OK(t, KEYED("k", LONG_MS), .delay_ms = 3600000);
    assert_err(conform_act(t, MR_VERB_CANCEL, cancelled, 0), MR_OK);
    assert_err(PUT(t, KEYED("k", LONG_MS)).err, MR_OK);
}

static void a_task_that_leaves_the_archive_takes_its_key_again(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("first"), KEYED("k", LONG_MS));
    assert_err(conform_act(t, MR_VERB_ARCHIVE, "first", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_RUN, "first", 0), MR_OK);
    struct mr_enqueue_result again = PUT(t, KEYED("k", LONG_MS));
    assert_err(again.err, MR_DUPLICATE);
    assert_string_equal(again.id, "first");
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "first"), .outcome = MR_DONE);
    assert_err(PUT(t, KEYED("k", LONG_MS)).err, MR_OK);
}

static void it_stays_there_while_another_has_its_key(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("first"), KEYED("k", LONG_MS));
    assert_err(conform_act(t, MR_VERB_ARCHIVE, "first", 0), MR_OK);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("second"), KEYED("k", LONG_MS));
    assert_err(conform_act(t, MR_VERB_RUN, "first", 0), MR_DUPLICATE);
    assert_int_equal(conform_state(t, "first"), MR_ARCHIVED);
    assert_err(conform_act(t, MR_VERB_DELETE, "second", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_RUN, "first", 0), MR_OK);
    if (t->engine->can_reopen)
        conform_reopen(t);
    assert_err(PUT(t, KEYED("k", LONG_MS)).err, MR_DUPLICATE);
}

static void a_key_is_free_when_its_queue_is_removed(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), KEYED("k", LONG_MS));
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), KEYED("k", LONG_MS)).err, MR_OK);
}

/* The id is looked at first: it is the stronger promise. */
static void a_taken_id_conflicts_before_the_key_is_asked(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), KEYED("k", LONG_MS));
    struct mr_enqueue_result again =
        PUT(t, .id = MR_SLICE_LIT("x"), KEYED("k", LONG_MS), .on_duplicate = MR_DUPLICATE_IGNORE);
    assert_err(again.err, MR_CONFLICT);
    assert_string_equal(again.id, "x");
}

int conform_unique(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_held_key_rejects_and_names_the_holder),
        CONFORM_TEST(ignore_answers_the_holder_and_runs_once),
        CONFORM_TEST(replace_moves_the_waiting_task_in_the_order),
        CONFORM_TEST(replace_moves_the_due_time),
        CONFORM_TEST(the_default_key_is_queue_type_and_payload),
        CONFORM_TEST(a_key_holds_within_its_queue),
        CONFORM_TEST(a_key_is_free_when_its_time_is_over),
        CONFORM_TEST(an_outlived_holder_does_not_free_its_successors_key),
        CONFORM_TEST(a_key_is_held_through_run_and_retry),
        CONFORM_TEST(a_key_is_free_when_the_task_ends),
        CONFORM_TEST(a_task_that_leaves_the_archive_takes_its_key_again),
        CONFORM_TEST(it_stays_there_while_another_has_its_key),
        CONFORM_TEST(a_key_is_free_when_its_queue_is_removed),
        CONFORM_TEST(a_taken_id_conflicts_before_the_key_is_asked),
    };
    return CONFORM_RUN(engine, "unique", tests);
}
