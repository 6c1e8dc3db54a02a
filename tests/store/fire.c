/* SPDX-License-Identifier: Apache-2.0 */
/* Firing: one row per planned time, the timer moves on in the same step, and only by the holder. */
#include "store/suite.h"

static struct mr_store_move move_to(int64_t from_ms, int64_t to_ms)
{
    return (struct mr_store_move){.moves = true,
                                  .version = 1,
                                  .from_ms = from_ms,
                                  .to_ms = to_ms,
                                  .counts = 1,
                                  .last_ms = from_ms};
}

static void test_a_firing_is_a_row_and_the_timer_moves_on(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    struct mr_store_fired fired =
        FIRE(t, .planned_ms = 1000, .run = 0, .kind = MR_LEDGER_CAUGHT_UP,
             .reason = MR_SLICE_LIT("why"), .until_ms = 1500, .move = move_to(1000, 2000));
    assert_err(fired.err, MR_OK);
    assert_false(fired.existed);
    assert_int_equal(fired.state, MR_LEDGER_WAITING);
    const struct mr_store_firing *row = suite_firing(t, 1, 1000);
    assert_slice(row->app, "a");
    assert_slice(row->name, "n");
    assert_slice(row->reason, "why");
    assert_int_equal(row->state, MR_LEDGER_WAITING);
    assert_int_equal(row->kind, MR_LEDGER_CAUGHT_UP);
    assert_int_equal(row->until_ms, 1500);
    assert_int_equal(row->fired_ms, 7);
    assert_int_equal(row->finished_ms, 0);
    const struct mr_store_timer *timer = suite_get(t, "a", "n");
    assert_int_equal(timer->next_ms, 2000);
    assert_int_equal(timer->fired, 1);
    assert_int_equal(timer->last_ms, 1000);
    assert_int_equal(timer->version, 1);
    assert_slice(timer->definition, "def");
}

static void test_firing_again_finds_the_row_and_changes_nothing(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    for (int i = 0; i < 3; i++) {
        struct mr_store_fired fired = FIRE(t, .planned_ms = 1000, .move = move_to(1000, 2000));
        assert_err(fired.err, MR_OK);
        assert_int_equal(fired.existed, i > 0);
        assert_int_equal(suite_get(t, "a", "n")->fired, 1);
        assert_int_equal(suite_get(t, "a", "n")->next_ms, 2000);
    }
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = 10};
    assert_int_equal(suite_firing_list(t, all)->n, 1);
}

static void test_a_timer_that_has_changed_is_not_fired(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 900, .move = move_to(900, 2000)).err, MR_STALE);
    assert_err(PUT(t, .version = 2).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1000, .move = move_to(1000, 2000)).err, MR_STALE);
    assert_err(PUT(t, .version = 3, .state = MR_ROW_PAUSED).err, MR_OK);
    struct mr_store_move move = move_to(1000, 2000);
    move.version = 3;
    assert_err(FIRE(t, .planned_ms = 1000, .move = move).err, MR_STALE);
    assert_err(DELETE(t, .version = 4).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1000, .move = move).err, MR_NOT_FOUND);
    assert_err(FIRE(t, .uid = suite_uid(9), .planned_ms = 1000).err, MR_NOT_FOUND);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_NONE);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, MR_STORE_NEVER_MS);
}

static void test_timers_of_another_app_are_not_found(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .app = MR_SLICE_LIT("b")).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1000, .move = move_to(1000, 2000)).err, MR_NOT_FOUND);
    assert_int_equal(suite_get(t, "b", "n")->next_ms, 1000);
}

/* The other app has numbers of its own: written to this timer, they would hide what was done to it. */
static void test_a_row_that_is_found_under_another_app_is_no_news_of_its_timer(void **state)
{
    struct suite *t = *state;
    struct mr_store_due ask = {.until_ms = 5000, .max = 9};
    for (uint64_t version = 1; version < 4; version++)
        assert_err(PUT(t, .version = version).err, MR_OK);
    ask.since = suite_due(t, ask)->changed;
    assert_err(FIRE(t, .planned_ms = 1000).err, MR_OK);
    assert_int_equal(suite_due(t, ask)->n, 1);
    struct mr_store_fire item = {
        .uid = suite_uid(1), .planned_ms = 1000, .state = MR_LEDGER_WAITING};
    struct mr_store_fired result;
    struct mr_store_fire_batch batch = {.req.op = MR_STORE_FIRE,
                                        .app = MR_SLICE_LIT("b"),
                                        .items = &item,
                                        .n = 1,
                                        .results = &result};
    assert_err(mr_store_call(t->store, &batch.req), MR_OK);
    mr_store_req_done(&batch.req);
    assert_true(result.existed);
    assert_int_equal(suite_due(t, ask)->n, 1);
}

static void test_several_firings_of_a_timer_in_a_batch_follow_each_other(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    struct mr_store_fire items[5];
    struct mr_store_fired results[5];
    for (int i = 0; i < 5; i++) {
        int64_t at = 1000 * (i + 1);
        items[i] = (struct mr_store_fire){.uid = suite_uid(1),
                                          .planned_ms = at,
                                          .state = MR_LEDGER_WAITING,
                                          .kind = MR_LEDGER_CAUGHT_UP,
                                          .move = move_to(at, at + 1000)};
    }
    items[4].planned_ms = 1000; /* that was there before */
    items[4].move = (struct mr_store_move){0};
    struct mr_store_fence none = {0};
    assert_err(suite_fire_all(t, none, items, 5, results), MR_OK);
    for (int i = 0; i < 5; i++) {
        assert_err(results[i].err, MR_OK);
        assert_int_equal(results[i].existed, i == 4);
    }
    assert_int_equal(suite_get(t, "a", "n")->fired, 4);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 5000);
    assert_int_equal(suite_get(t, "a", "n")->last_ms, 4000);
}

static void test_a_run_by_hand_leaves_the_plan_alone(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .state = MR_ROW_PAUSED).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1000, .kind = MR_LEDGER_MANUAL).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 1000);
    assert_int_equal(suite_get(t, "a", "n")->fired, 0);
    assert_err(PUT(t, .version = 2).err, MR_OK);
    struct mr_store_move move = move_to(1000, 2000); /* planned for that very moment */
    move.version = 2;
    struct mr_store_fired fired = FIRE(t, .planned_ms = 1000, .move = move);
    assert_err(fired.err, MR_OK);
    assert_true(fired.existed);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 2000);
}

static void test_a_timer_can_be_moved_without_a_row(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    struct mr_store_fire move = {.uid = suite_uid(1), .move = move_to(1000, 2000)};
    assert_err(suite_fire_one(t, move).err, MR_OK);
    assert_err(suite_fire_one(t, move).err, MR_OK); /* done already */
    assert_int_equal(suite_get(t, "a", "n")->fired, 1);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 2000);
    move.move = move_to(1500, 3000);
    assert_err(suite_fire_one(t, move).err, MR_STALE);
    move.move = move_to(2000, MR_STORE_NEVER_MS);
    move.move.state = MR_ROW_FINISHED;
    assert_err(suite_fire_one(t, move).err, MR_OK);
    assert_err(suite_fire_one(t, move).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_FINISHED);
    assert_int_equal(suite_get(t, "a", "n")->fired, 2);
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = 10};
    assert_int_equal(suite_firing_list(t, all)->n, 0);
}

/* Else it would wait for an end that was written a moment before, for ever. */
static void test_a_timer_waits_for_an_end_only_while_a_run_is_open(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    struct mr_store_fire wait = {.uid = suite_uid(1), .move = move_to(1000, MR_STORE_NEVER_MS)};
    wait.move.when = MR_STORE_WHILE_OPEN;
    assert_err(suite_fire_one(t, wait).err, MR_WRONG_STATE);
    assert_err(FIRE(t, .planned_ms = 500, .state = MR_LEDGER_SKIPPED).err, MR_OK);
    assert_err(suite_fire_one(t, wait).err, MR_WRONG_STATE);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 1000);
    assert_err(FIRE(t, .planned_ms = 600).err, MR_OK);
    assert_err(suite_fire_one(t, wait).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, MR_STORE_NEVER_MS);
    struct mr_store_fire row = {.uid = suite_uid(1), .planned_ms = 700, .state = MR_LEDGER_WAITING};
    row.move = wait.move;
    assert_err(suite_fire_one(t, row).err, MR_INVALID);
}

static void test_what_is_wrong_with_a_firing_is_its_own(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = -1).err, MR_INVALID);
    assert_err(FIRE(t, .planned_ms = 1, .state = MR_LEDGER_STATE_COUNT).err, MR_INVALID);
    assert_err(FIRE(t, .planned_ms = 1, .move = move_to(5, 5)).err, MR_INVALID);
    assert_err(suite_fire_one(t, (struct mr_store_fire){.uid = suite_uid(1)}).err, MR_INVALID);
}

static void test_a_reason_is_cut_and_made_readable(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    char text[MR_STORE_REASON_MAX + 100];
    memset(text, 'x', sizeof text);
    memcpy(text, "a\0\xff", 3);
    assert_err(FIRE(t, .planned_ms = 1, .reason = mr_slice_make(text, sizeof text)).err, MR_OK);
    struct mr_slice kept = suite_firing(t, 1, 1)->reason;
    assert_int_equal(kept.len, MR_STORE_REASON_MAX);
    assert_memory_equal(kept.data, "a??xx", 5);
}

static void test_a_skipped_firing_has_ended(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1, .state = MR_LEDGER_SKIPPED).err, MR_OK);
    assert_int_equal(suite_firing(t, 1, 1)->finished_ms, 7);
    assert_int_equal(suite_firing_open(t, (struct mr_store_firing_open){.max = 9})->n, 0);
}

/* ---- fences --------------------------------------------------------------------------------- */

static struct mr_store_fence fence_of(uint64_t token)
{
    return (struct mr_store_fence){MR_SLICE_LIT("app:a"), token};
}

static void test_only_the_holder_of_the_lease_fires(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    struct mr_store_fire item = {
        .uid = suite_uid(1), .planned_ms = 1000, .state = MR_LEDGER_WAITING};
    struct mr_store_fired result = {.err = MR_OK};
    assert_err(suite_fire_all(t, fence_of(0), &item, 1, &result), MR_STALE);
    assert_err(result.err, MR_STALE);
    uint64_t token = LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 60000).token;
    assert_err(suite_fire_all(t, fence_of(token + 1), &item, 1, &result), MR_STALE);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_NONE);
    assert_err(suite_fire_all(t, fence_of(token), &item, 1, &result), MR_OK);
    assert_err(LEASE(t, .owner = MR_SLICE_LIT("me"), .token = token, .verb = MR_LEASE_RELEASE).err,
               MR_OK);
    item.planned_ms = 2000;
    assert_err(suite_fire_all(t, fence_of(token), &item, 1, &result), MR_STALE);
    assert_int_equal(suite_firing(t, 1, 2000)->state, MR_LEDGER_NONE);
}

static void test_a_lease_that_ran_out_fires_nothing_by_the_stores_clock(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    uint64_t token = LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 100).token;
    struct mr_store_fire item = {
        .uid = suite_uid(1), .planned_ms = 1000, .state = MR_LEDGER_WAITING};
    struct mr_store_fired result;
    WAIT_UNTIL(suite_fire_all(t, fence_of(token), &item, 1, &result) == MR_STALE);
    item.planned_ms = 3000;
    assert_err(suite_fire_all(t, fence_of(token), &item, 1, &result), MR_STALE);
    uint64_t other = LEASE(t, .owner = MR_SLICE_LIT("other"), .ttl_ms = 60000).token;
    assert_true(other > token);
    assert_err(suite_fire_all(t, fence_of(token), &item, 1, &result), MR_STALE);
    assert_int_equal(suite_firing(t, 1, 3000)->state, MR_LEDGER_NONE);
    assert_err(suite_fire_all(t, fence_of(other), &item, 1, &result), MR_OK);
}

int suite_fire(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_firing_is_a_row_and_the_timer_moves_on),
        SUITE_TEST(test_firing_again_finds_the_row_and_changes_nothing),
        SUITE_TEST(test_a_timer_that_has_changed_is_not_fired),
        SUITE_TEST(test_timers_of_another_app_are_not_found),
        SUITE_TEST(test_a_row_that_is_found_under_another_app_is_no_news_of_its_timer),
        SUITE_TEST(test_several_firings_of_a_timer_in_a_batch_follow_each_other),
        SUITE_TEST(test_a_run_by_hand_leaves_the_plan_alone),
        SUITE_TEST(test_a_timer_can_be_moved_without_a_row),
        SUITE_TEST(test_a_timer_waits_for_an_end_only_while_a_run_is_open),
        SUITE_TEST(test_what_is_wrong_with_a_firing_is_its_own),
        SUITE_TEST(test_a_reason_is_cut_and_made_readable),
        SUITE_TEST(test_a_skipped_firing_has_ended),
        SUITE_TEST(test_only_the_holder_of_the_lease_fires),
        SUITE_TEST(test_a_lease_that_ran_out_fires_nothing_by_the_stores_clock),
    };
    return SUITE_RUN(engine, "fire", tests);
}
