/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: figures of the broker. */
#include "conform/conform.h"

static void a_new_broker_has_nothing_to_report(void **state)
{
    struct conform *t = *state;
    struct mr_stats stats = conform_stats_now(t);
    assert_int_equal(stats.tasks, 0);
    assert_int_equal(stats.deleted, 0);
    assert_int_equal(stats.expired, 0);
    assert_int_equal(stats.stale_refused, 0);
    assert_int_equal(stats.records_damaged, 0);
    assert_false(stats.disk_full);
    assert_false(stats.failed);
}

static void tasks_are_counted_in_every_state(void **state)
{
    struct conform *t = *state;
    conform_make_state(t, "retry", MR_RETRY);
    conform_make_state(t, "archived", MR_ARCHIVED);
    conform_make_state(t, "completed", MR_COMPLETED);
    conform_make_state(t, "scheduled", MR_SCHEDULED);
    conform_make_state(t, "active", MR_ACTIVE);
    conform_make_state(t, "pending", MR_PENDING);
    assert_int_equal(conform_stats_now(t).tasks, 6);
}

static void removed_tasks_are_counted_by_their_reason(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 4);
    assert_err(conform_act(t, MR_VERB_DELETE, "t0", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "t1", 0), MR_OK);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "t2"), .outcome = MR_DONE);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("short"), .retention_ms = 1, .priority_s = 100);
    FINISH_OK(t, conform_take_id(t, node, "short"), .outcome = MR_DONE);
    WAIT_UNTIL(conform_stats_now(t).expired == 1);
    struct mr_stats stats = conform_stats_now(t);
    assert_int_equal(stats.deleted, 2);
    assert_int_equal(stats.tasks, 1);
}

int conform_stats(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_new_broker_has_nothing_to_report),
        CONFORM_TEST(tasks_are_counted_in_every_state),
        CONFORM_TEST(removed_tasks_are_counted_by_their_reason),
    };
    return CONFORM_RUN(engine, "stats", tests);
}
