/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: what is old goes, a few rows at a time, and nothing else. */
#include "store/suite.h"

static struct mr_store_retain retain(struct suite *t, struct mr_store_retain retain)
{
    retain.req.op = MR_STORE_RETAIN;
    assert_err(mr_store_call(t->store, &retain.req), MR_OK);
    return retain;
}

static void test_ended_firings_go_when_they_are_old_and_open_ones_stay(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    int64_t now_ms = suite_stats(t)->now_ms;
    for (int64_t i = 1; i <= 10; i++)
        assert_err(
            FIRE(t, .planned_ms = i, .state = i % 2 ? MR_LEDGER_SKIPPED : MR_LEDGER_WAITING).err,
            MR_OK);
    assert_err(SET(t, .planned_ms = 2, .from = MR_LEDGER_OPEN, .to = MR_LEDGER_SUCCEEDED,
                   .finished_ms = now_ms)
                   .err,
               MR_OK);
    struct mr_store_retain some = {.firings_ms = MR_MS_PER_DAY, .max = 3};
    assert_int_equal(retain(t, some).firings, 3);
    assert_int_equal(retain(t, some).firings, 2);
    assert_int_equal(retain(t, some).firings, 0);
    assert_int_equal(retain(t, (struct mr_store_retain){.max = 3}).firings, 0);
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = 100};
    assert_int_equal(suite_firing_list(t, all)->n, 5);
    assert_int_equal(suite_firing(t, 1, 2)->state, MR_LEDGER_SUCCEEDED);
}

static void test_tombstones_stay_for_a_day(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(DELETE(t, .version = 2).err, MR_OK);
    struct mr_store_retain soon = {.req.op = MR_STORE_RETAIN, .tombstones_ms = 1000, .max = 10};
    assert_err(mr_store_call(t->store, &soon.req), MR_INVALID);
    struct mr_store_retain day = {.tombstones_ms = MR_MS_PER_DAY, .max = 10};
    assert_int_equal(retain(t, day).tombstones, 0);
    assert_err(PUT(t, .name = MR_SLICE_LIT("m"), .uid = suite_uid(2)).err, MR_OK);
    t->engine->sql(t->engine->arg, "UPDATE timer SET changed_ms = changed_ms - 90000000");
    assert_int_equal(retain(t, day).tombstones, 1);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_NONE);
    assert_int_equal(suite_get(t, "a", "m")->state, MR_ROW_ACTIVE);
}

int suite_retain(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_ended_firings_go_when_they_are_old_and_open_ones_stay),
        SUITE_TEST(test_tombstones_stay_for_a_day),
    };
    return SUITE_RUN(engine, "retain", tests);
}
