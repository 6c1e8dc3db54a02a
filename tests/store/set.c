/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of firings, and looking at them. */
#include "store/suite.h"

#define OPEN MR_LEDGER_OPEN

static void fire_at(struct suite *t, unsigned uid, int64_t planned_ms)
{
    assert_err(FIRE(t, .uid = suite_uid(uid), .planned_ms = planned_ms).err, MR_OK);
}

static void test_a_firing_goes_from_state_to_state(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    fire_at(t, 1, 1000);
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                   .to = MR_LEDGER_DISPATCHED)
                   .err,
               MR_OK);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_RUNNING, .attempt = 1,
                   .started_ms = 20)
                   .err,
               MR_OK);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_RUNNING, .attempt = 2).err,
               MR_OK);
    struct mr_store_set_result done =
        SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_FAILED,
            .reason = MR_SLICE_LIT("boom"), .finished_ms = 30);
    assert_err(done.err, MR_OK);
    assert_int_equal(done.state, MR_LEDGER_FAILED);
    const struct mr_store_firing *row = suite_firing(t, 1, 1000);
    assert_int_equal(row->state, MR_LEDGER_FAILED);
    assert_int_equal(row->attempt, 2);
    assert_int_equal(row->started_ms, 20);
    assert_int_equal(row->finished_ms, 30);
    assert_slice(row->reason, "boom");
}

static void test_what_has_been_set_already_is_fine_and_stays(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    fire_at(t, 1, 1000);
    assert_err(
        SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .finished_ms = 30).err,
        MR_OK);
    assert_err(
        SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .finished_ms = 99).err,
        MR_OK);
    assert_int_equal(suite_firing(t, 1, 1000)->finished_ms, 30);
    struct mr_store_set_result late =
        SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_FAILED, .finished_ms = 99);
    assert_err(late.err, MR_WRONG_STATE);
    assert_int_equal(late.state, MR_LEDGER_SUCCEEDED);
    assert_err(SET(t, .planned_ms = 1001, .from = OPEN, .to = MR_LEDGER_FAILED).err, MR_NOT_FOUND);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_NONE).err, MR_INVALID);
}

static void test_an_end_without_a_time_gets_one(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    fire_at(t, 1, 1000);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_CANCELLED).err, MR_OK);
    assert_true(suite_firing(t, 1, 1000)->finished_ms > 0);
}

static void test_a_failed_firing_runs_again_once_per_number(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    fire_at(t, 1, 1000);
    unsigned failed = MR_LEDGER_BIT(MR_LEDGER_FAILED);
    struct mr_store_set again = {.uid = suite_uid(1),
                                 .planned_ms = 1000,
                                 .run = 1,
                                 .again = true,
                                 .from = failed,
                                 .to = MR_LEDGER_WAITING};
    assert_err(suite_set_one(t, again).err, MR_WRONG_STATE);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_FAILED, .started_ms = 20,
                   .finished_ms = 30, .attempt = 3)
                   .err,
               MR_OK);
    assert_err(suite_set_one(t, again).err, MR_OK);
    assert_err(suite_set_one(t, again).err, MR_OK); /* that very one is on */
    const struct mr_store_firing *row = suite_firing(t, 1, 1000);
    assert_int_equal(row->run, 1);
    assert_int_equal(row->state, MR_LEDGER_WAITING);
    assert_int_equal(row->attempt, 0);
    assert_int_equal(row->started_ms, 0);
    assert_int_equal(row->finished_ms, 0);
    /* The end of the first run comes late. */
    assert_err(SET(t, .planned_ms = 1000, .run = 0, .from = OPEN, .to = MR_LEDGER_SUCCEEDED).err,
               MR_STALE);
    assert_err(SET(t, .planned_ms = 1000, .run = 1, .from = OPEN, .to = MR_LEDGER_SUCCEEDED).err,
               MR_OK);
    again.run = 3;
    assert_err(suite_set_one(t, again).err, MR_STALE);
}

static void test_an_end_can_move_its_timer_on(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    fire_at(t, 1, 1000);
    struct mr_store_move move = {
        .moves = true, .version = 1, .from_ms = MR_STORE_NEVER_MS, .to_ms = 5000};
    for (int i = 0; i < 2; i++) {
        struct mr_store_set_result result =
            SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .move = move);
        assert_err(result.err, MR_OK);
        assert_true(result.moved);
        assert_int_equal(suite_get(t, "a", "n")->next_ms, 5000);
    }
    assert_err(PUT(t, .version = 2, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    fire_at(t, 1, 2000);
    struct mr_store_set_result late =
        SET(t, .planned_ms = 2000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .move = move);
    assert_err(late.err,
               MR_CONFLICT); /* of a version that is not there any more: nothing is done */
    assert_false(late.moved);
    assert_int_equal(suite_firing(t, 1, 2000)->state, MR_LEDGER_WAITING);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, MR_STORE_NEVER_MS);
    assert_err(PUT(t, .version = 3, .state = MR_ROW_PAUSED, .next_ms = MR_STORE_NEVER_MS).err,
               MR_OK);
    late = SET(t, .planned_ms = 2000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .move = move);
    assert_err(late.err, MR_OK); /* a timer that moves by no version does not keep its end */
    assert_false(late.moved);
}

/* Of two ends that are written at once each would leave it to the other. */
static void test_the_last_end_of_several_moves_its_timer_on(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    fire_at(t, 1, 1000);
    fire_at(t, 1, 2000);
    struct mr_store_move move = {.moves = true,
                                 .when = MR_STORE_WHEN_NONE_OPEN,
                                 .version = 1,
                                 .from_ms = MR_STORE_NEVER_MS,
                                 .to_ms = 5000};
    struct mr_store_set_result first =
        SET(t, .planned_ms = 2000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .move = move);
    assert_err(first.err, MR_OK);
    assert_false(first.moved);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, MR_STORE_NEVER_MS);
    struct mr_store_set_result last =
        SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_FAILED, .move = move);
    assert_err(last.err, MR_OK);
    assert_true(last.moved);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 5000);
}

/* What its batch has ended before counts, also where that moves nothing. */
static void test_an_end_beside_others_of_its_timer_moves_it_on(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    fire_at(t, 1, 1000);
    fire_at(t, 1, 2000);
    struct mr_store_set items[] = {
        {.uid = suite_uid(1), .planned_ms = 2000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED},
        {.uid = suite_uid(1), .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED}};
    items[1].move = (struct mr_store_move){.moves = true,
                                           .when = MR_STORE_WHEN_NONE_OPEN,
                                           .version = 1,
                                           .from_ms = MR_STORE_NEVER_MS,
                                           .to_ms = 5000};
    struct mr_store_set_result results[2];
    struct mr_store_firing_set set = {
        .req.op = MR_STORE_FIRING_SET,
        .fence = {MR_SLICE_LIT("app:a"),
                  LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 60000).token},
        .app = MR_SLICE_LIT("a"),
        .items = items,
        .n = 2,
        .results = results};
    assert_err(mr_store_call(t->store, &set.req), MR_OK);
    assert_err(results[0].err, MR_OK);
    assert_false(results[0].moved);
    assert_err(results[1].err, MR_OK);
    assert_true(results[1].moved);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 5000);
}

static void test_an_end_can_finish_its_timer(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    fire_at(t, 1, 1000);
    struct mr_store_move move = {.moves = true,
                                 .version = 1,
                                 .from_ms = MR_STORE_NEVER_MS,
                                 .to_ms = MR_STORE_NEVER_MS,
                                 .state = MR_ROW_FINISHED};
    for (int i = 0; i < 2; i++) {
        struct mr_store_set_result result =
            SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED, .move = move);
        assert_err(result.err, MR_OK);
        assert_true(result.moved);
    }
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_FINISHED);
    assert_int_equal(suite_stats(t)->timers[MR_ROW_FINISHED], 1);
    move.state = MR_ROW_ACTIVE; /* from nowhere to nowhere is no move */
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_FAILED, .move = move).err,
               MR_INVALID);
}

/* Whoever holds the lease looks for what has changed since: that it sees. */
static void test_what_is_done_without_the_lease_counts_as_a_change(void **state)
{
    struct suite *t = *state;
    struct mr_store_due since = {.until_ms = 9000, .max = 9};
    assert_err(PUT(t, .next_ms = 5000).err, MR_OK);
    since.since = suite_due(t, since)->changed;
    assert_int_equal(suite_due(t, since)->n, 0);
    fire_at(t, 1, 1000);
    assert_int_equal(suite_due(t, since)->n, 1);
    since.since = suite_due(t, since)->changed;
    assert_int_equal(suite_due(t, since)->n, 0);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_CANCELLED).err, MR_OK);
    assert_int_equal(suite_due(t, since)->n, 1);
    since.since = suite_due(t, since)->changed;
    struct mr_store_fire item = {
        .uid = suite_uid(1), .planned_ms = 2000, .state = MR_LEDGER_WAITING};
    struct mr_store_fired fired;
    struct mr_store_fire_batch own = {
        .req.op = MR_STORE_FIRE,
        .fence = {MR_SLICE_LIT("app:a"),
                  LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 60000).token},
        .app = MR_SLICE_LIT("a"),
        .items = &item,
        .n = 1,
        .results = &fired};
    assert_err(mr_store_call(t->store, &own.req), MR_OK);
    assert_err(fired.err, MR_OK);
    assert_int_equal(suite_due(t, since)->n, 0); /* what it does itself it knows */
}

static void test_no_more_runs_than_the_limit_are_open(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(PUT(t, .name = MR_SLICE_LIT("m"), .uid = suite_uid(2)).err, MR_OK);
    fire_at(t, 1, 1000);
    assert_err(FIRE(t, .planned_ms = 2000, .limit = 1).err, MR_RUNNING);
    assert_int_equal(suite_firing(t, 1, 2000)->state, MR_LEDGER_NONE);
    assert_err(FIRE(t, .planned_ms = 1000, .limit = 1).err, MR_OK); /* that one is there */
    assert_err(FIRE(t, .planned_ms = 2000, .limit = 2).err, MR_OK);
    assert_err(FIRE(t, .uid = suite_uid(2), .planned_ms = 2000, .limit = 1).err, MR_OK);
    /* One that waits for its turn does not run. */
    assert_err(FIRE(t, .planned_ms = 3000, .reason = MR_SLICE_LIT("its turn")).err, MR_OK);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 4000, .limit = 2).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 5000, .limit = 2).err, MR_RUNNING);
}

static void test_rows_of_another_app_are_not_found(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .app = MR_SLICE_LIT("b")).err, MR_OK);
    struct mr_store_fire item = {
        .uid = suite_uid(1), .planned_ms = 1000, .state = MR_LEDGER_WAITING};
    struct mr_store_fired result;
    struct mr_store_fire_batch fire = {.req.op = MR_STORE_FIRE,
                                       .app = MR_SLICE_LIT("b"),
                                       .items = &item,
                                       .n = 1,
                                       .results = &result};
    assert_err(mr_store_call(t->store, &fire.req), MR_OK);
    assert_err(result.err, MR_OK);
    assert_err(SET(t, .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED).err,
               MR_NOT_FOUND);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_WAITING);
}

static void test_setting_is_fenced_too(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    fire_at(t, 1, 1000);
    struct mr_store_set item = {
        .uid = suite_uid(1), .planned_ms = 1000, .from = OPEN, .to = MR_LEDGER_SUCCEEDED};
    struct mr_store_set_result result;
    struct mr_store_firing_set set = {.req.op = MR_STORE_FIRING_SET,
                                      .fence = {MR_SLICE_LIT("app:a"), 1},
                                      .app = MR_SLICE_LIT("a"),
                                      .items = &item,
                                      .n = 1,
                                      .results = &result};
    assert_err(mr_store_call(t->store, &set.req), MR_STALE);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_WAITING);
    set.fence.token = LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = 60000).token;
    assert_err(mr_store_call(t->store, &set.req), MR_OK);
    assert_int_equal(suite_firing(t, 1, 1000)->state, MR_LEDGER_SUCCEEDED);
}

/* ---- looking -------------------------------------------------------------------------------- */

static void test_the_history_of_a_timer_comes_newest_first_by_pages(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(PUT(t, .name = MR_SLICE_LIT("m"), .uid = suite_uid(2)).err, MR_OK);
    for (int64_t i = 1; i <= 20; i++) {
        fire_at(t, 1, i * 100);
        fire_at(t, 2, i * 100);
    }
    assert_err(SET(t, .planned_ms = 500, .from = OPEN, .to = MR_LEDGER_FAILED).err, MR_OK);
    struct mr_store_firing_list page = {.uid = suite_uid(1), .max = 6};
    int64_t expected = 2000;
    for (bool more = true; more;) {
        const struct mr_store_firing_list *got = suite_firing_list(t, page);
        for (size_t i = 0; i < got->n; i++, expected -= 100)
            assert_int_equal(got->firings[i].planned_ms, expected);
        more = got->more;
        page.before_ms = got->firings[got->n - 1].planned_ms;
    }
    assert_int_equal(expected, 0);
    struct mr_store_firing_list failed = {
        .uid = suite_uid(1), .states = MR_LEDGER_BIT(MR_LEDGER_FAILED), .max = 6};
    assert_int_equal(suite_firing_list(t, failed)->n, 1);
}

static void test_what_has_not_ended_is_listed_oldest_first_by_pages(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(PUT(t, .name = MR_SLICE_LIT("m"), .uid = suite_uid(2)).err, MR_OK);
    for (int64_t i = 1; i <= 10; i++) {
        fire_at(t, 2, i * 100);
        fire_at(t, 1, i * 100);
    }
    for (int64_t i = 1; i <= 5; i++)
        assert_err(SET(t, .planned_ms = i * 100, .from = OPEN, .to = MR_LEDGER_STOPPED).err, MR_OK);
    struct mr_store_firing_open page = {.max = 4};
    size_t seen = 0;
    int64_t last_ms = 0;
    for (bool more = true; more;) {
        const struct mr_store_firing_open *got = suite_firing_open(t, page);
        for (size_t i = 0; i < got->n; i++, seen++) {
            assert_true(got->firings[i].planned_ms >= last_ms);
            assert_true(mr_ledger_is_open(got->firings[i].state));
            last_ms = got->firings[i].planned_ms;
        }
        more = got->more;
        page.after_ms = last_ms;
        page.after_uid = got->firings[got->n - 1].uid;
    }
    assert_int_equal(seen, 15);
    struct mr_store_firing_open one = {.uid = suite_uid(1), .max = 100};
    assert_int_equal(suite_firing_open(t, one)->n, 5);
    struct mr_store_firing_open other = {.app = MR_SLICE_LIT("b"), .max = 100};
    assert_int_equal(suite_firing_open(t, other)->n, 0);
}

int suite_set(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_firing_goes_from_state_to_state),
        SUITE_TEST(test_what_has_been_set_already_is_fine_and_stays),
        SUITE_TEST(test_an_end_without_a_time_gets_one),
        SUITE_TEST(test_a_failed_firing_runs_again_once_per_number),
        SUITE_TEST(test_an_end_can_move_its_timer_on),
        SUITE_TEST(test_the_last_end_of_several_moves_its_timer_on),
        SUITE_TEST(test_an_end_beside_others_of_its_timer_moves_it_on),
        SUITE_TEST(test_an_end_can_finish_its_timer),
        SUITE_TEST(test_what_is_done_without_the_lease_counts_as_a_change),
        SUITE_TEST(test_no_more_runs_than_the_limit_are_open),
        SUITE_TEST(test_rows_of_another_app_are_not_found),
        SUITE_TEST(test_setting_is_fenced_too),
        SUITE_TEST(test_the_history_of_a_timer_comes_newest_first_by_pages),
        SUITE_TEST(test_what_has_not_ended_is_listed_oldest_first_by_pages),
    };
    return SUITE_RUN(engine, "set", tests);
}
