/* SPDX-License-Identifier: Apache-2.0 */
/* What is applied to timers: versions, tombstones, conditions, uids. */
#include "store/suite.h"

static void test_a_timer_that_was_put_is_there_as_it_was_put(void **state)
{
    struct suite *t = *state;
    struct mr_store_applied put = PUT(t, .version = 10);
    assert_err(put.err, MR_OK);
    assert_int_equal(put.version, 10);
    assert_int_equal(put.state, MR_ROW_ACTIVE);
    const struct mr_store_timer *timer = suite_get(t, "a", "n");
    assert_slice(timer->app, "a");
    assert_slice(timer->name, "n");
    assert_slice(timer->definition, "def");
    assert_int_equal(timer->version, 10);
    assert_int_equal(timer->state, MR_ROW_ACTIVE);
    assert_int_equal(timer->next_ms, 1000);
    assert_int_equal(timer->created_ms, 500);
    assert_int_equal(timer->fired, 0);
    assert_int_equal(timer->last_ms, 0);
    assert_slice(suite_get_uid(t, 1)->name, "n");
    assert_int_equal(suite_get(t, "a", "m")->state, MR_ROW_NONE);
    assert_int_equal(suite_get_uid(t, 2)->state, MR_ROW_NONE);
    suite_reopen(t);
    assert_int_equal(suite_get(t, "a", "n")->version, 10);
}

static void test_the_highest_version_wins_whatever_the_order(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10).err, MR_OK);
    assert_err(PUT(t, .version = 30, .definition = MR_SLICE_LIT("new")).err, MR_OK);
    struct mr_store_applied old = PUT(t, .version = 20, .definition = MR_SLICE_LIT("old"));
    assert_err(old.err, MR_STALE);
    assert_int_equal(old.version, 30);
    assert_slice(suite_get(t, "a", "n")->definition, "new");
    assert_err(PUT(t, .version = 30).err, MR_OK); /* it is there already */
    assert_slice(suite_get(t, "a", "n")->definition, "new");
}

static void test_a_deleted_timer_is_not_brought_back_by_what_is_older(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10).err, MR_OK);
    assert_err(DELETE(t, .version = 30).err, MR_OK);
    assert_err(DELETE(t, .version = 30).err, MR_OK); /* the same once more */
    assert_err(PUT(t, .version = 20).err, MR_STALE);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_DELETED);
    assert_int_equal(suite_get_uid(t, 1)->state, MR_ROW_NONE);
    assert_int_equal(suite_list(t, (struct mr_store_timer_list){.max = 10})->n, 0);
    suite_reopen(t);
    assert_err(PUT(t, .version = 20).err, MR_STALE);
    assert_err(PUT(t, .version = 40).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_ACTIVE);
}

static void test_a_delete_of_what_is_not_there_is_noted_and_says_so(void **state)
{
    struct suite *t = *state;
    assert_err(DELETE(t, .version = 30).err, MR_NOT_FOUND);
    assert_err(DELETE(t, .version = 30).err, MR_NOT_FOUND);
    assert_err(PUT(t, .version = 20).err, MR_STALE); /* sent before, and late */
    assert_err(PUT(t, .version = 40).err, MR_OK);
    assert_err(DELETE(t, .version = 50).err, MR_OK);
    assert_err(DELETE(t, .version = 60).err, MR_NOT_FOUND);
    assert_err(DELETE(t, .version = 55).err, MR_STALE);
}

static void test_a_new_uid_is_a_new_timer_of_that_name(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10).err, MR_OK);
    struct mr_store_move move = {.moves = true, .version = 10, .from_ms = 1000, .to_ms = 2000};
    move.counts = 1;
    move.last_ms = 1000;
    assert_err(FIRE(t, .planned_ms = 1000, .move = move).err, MR_OK);
    assert_err(PUT(t, .version = 20, .created_ms = 900).err, MR_OK);
    const struct mr_store_timer *same = suite_get(t, "a", "n");
    assert_int_equal(same->fired, 1);
    assert_int_equal(same->last_ms, 1000);
    assert_int_equal(same->created_ms, 500);
    assert_err(DELETE(t, .version = 30).err, MR_OK);
    assert_err(PUT(t, .version = 40, .created_ms = 900).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->fired, 1); /* as if the delete had come too late */
    assert_err(PUT(t, .version = 50, .uid = suite_uid(2), .created_ms = 900).err, MR_OK);
    const struct mr_store_timer *other = suite_get(t, "a", "n");
    assert_int_equal(other->fired, 0);
    assert_int_equal(other->last_ms, 0);
    assert_int_equal(other->created_ms, 900);
    assert_int_equal(suite_get_uid(t, 1)->state, MR_ROW_NONE);
}

static void test_of_one_version_a_delete_wins_and_else_the_greater_uid(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10, .uid = suite_uid(5)).err, MR_OK);
    assert_err(PUT(t, .version = 10, .uid = suite_uid(4)).err, MR_STALE);
    assert_err(PUT(t, .version = 10, .uid = suite_uid(6)).err, MR_OK);
    assert_slice(suite_get_uid(t, 6)->name, "n");
    assert_err(DELETE(t, .version = 10).err, MR_OK);
    assert_err(PUT(t, .version = 10, .uid = suite_uid(7)).err, MR_STALE);
}

static void test_a_condition_on_the_version_is_kept(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10, .if_version = 5).err, MR_CONFLICT);
    assert_int_equal(PUT(t, .version = 10, .if_version = 5).version, 0);
    assert_err(PUT(t, .version = 10, .if_version = MR_STORE_IF_NONE).err, MR_OK);
    assert_err(PUT(t, .version = 10, .if_version = MR_STORE_IF_NONE).err,
               MR_OK); /* it is that one */
    struct mr_store_applied refused = PUT(t, .version = 20, .if_version = MR_STORE_IF_NONE);
    assert_err(refused.err, MR_CONFLICT);
    assert_int_equal(refused.version, 10);
    assert_err(PUT(t, .version = 20, .if_version = 11).err, MR_CONFLICT);
    assert_err(DELETE(t, .version = 20, .if_version = 11).err, MR_CONFLICT);
    assert_err(PUT(t, .version = 20, .if_version = 10).err, MR_OK);
    assert_err(DELETE(t, .version = 30, .if_version = 20).err, MR_OK);
    assert_err(PUT(t, .version = 40, .if_version = 30).err, MR_CONFLICT); /* a tombstone is none */
    assert_err(PUT(t, .version = 40, .if_version = MR_STORE_IF_NONE).err, MR_OK);
}

static void test_a_put_that_keeps_the_next_time_keeps_what_is_there(void **state)
{
    struct suite *t = *state;
    struct mr_store_move move = {.moves = true, .version = 10, .from_ms = 1000, .to_ms = 2000};
    assert_err(PUT(t, .version = 10, .next_ms = 1000).err, MR_OK);
    /* It was looked at, and then it fired. */
    assert_err(FIRE(t, .planned_ms = 1000, .move = move).err, MR_OK);
    assert_err(PUT(t, .version = 20, .next_ms = 1000, .keeps_of = 10).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 2000);
    /* Another version came between: what was seen does not count, but what was said. */
    assert_err(PUT(t, .version = 30, .next_ms = 3000, .keeps_of = 10).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 3000);
    /* What has finished meanwhile stays so. */
    move = (struct mr_store_move){.moves = true,
                                  .version = 30,
                                  .from_ms = 3000,
                                  .to_ms = MR_STORE_NEVER_MS,
                                  .state = MR_ROW_FINISHED};
    assert_err(FIRE(t, .planned_ms = 3000, .move = move).err, MR_OK);
    assert_err(PUT(t, .version = 40, .next_ms = 3000, .keeps_of = 30).err, MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_FINISHED);
    assert_true(suite_get(t, "a", "n")->next_ms == MR_STORE_NEVER_MS);
    /* A new timer has nothing to keep. */
    assert_err(PUT(t, .version = 50, .next_ms = 5000, .uid = suite_uid(2), .keeps_of = 40).err,
               MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 5000);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_ACTIVE);
}

static void test_a_uid_belongs_to_one_timer(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 10).err, MR_OK);
    assert_err(PUT(t, .version = 20, .name = MR_SLICE_LIT("m")).err, MR_CONFLICT);
    assert_err(PUT(t, .version = 20, .app = MR_SLICE_LIT("b")).err, MR_CONFLICT);
    assert_int_equal(suite_get(t, "b", "n")->state, MR_ROW_NONE);
    struct mr_store_apply twins[2] = {
        {.app = MR_SLICE_LIT("a"), .name = MR_SLICE_LIT("y"), .version = 1, .state = MR_ROW_ACTIVE},
        {.app = MR_SLICE_LIT("a"), .name = MR_SLICE_LIT("x"), .version = 1, .state = MR_ROW_ACTIVE},
    };
    twins[0].uid = twins[1].uid = suite_uid(7);
    struct mr_store_applied results[2];
    suite_apply_all(t, twins, 2, results);
    assert_err(results[0].err, MR_OK);
    assert_err(results[1].err, MR_CONFLICT);
    assert_err(DELETE(t, .version = 30).err, MR_OK);
    assert_err(PUT(t, .version = 40, .name = MR_SLICE_LIT("m")).err, MR_OK);
}

static void test_items_about_one_timer_in_a_batch_follow_each_other(void **state)
{
    struct suite *t = *state;
    struct mr_store_apply items[50] = {{.verb = MR_APPLY_PUT}};
    struct mr_store_applied results[50];
    for (size_t i = 0; i < 50; i++) {
        /* 1, 50, 2, 49 ... and the last but one deletes */
        uint64_t version = i % 2 == 0 ? i / 2 + 1 : 50 - i / 2;
        items[i] = (struct mr_store_apply){.app = MR_SLICE_LIT("a"),
                                           .name = MR_SLICE_LIT("n"),
                                           .uid = suite_uid(1),
                                           .version = version,
                                           .verb = version == 49 ? MR_APPLY_DELETE : MR_APPLY_PUT,
                                           .state = MR_ROW_PAUSED,
                                           .next_ms = (int64_t)version};
    }
    suite_apply_all(t, items, 50, results);
    assert_err(results[0].err, MR_OK);
    assert_err(results[1].err, MR_OK);
    for (size_t i = 2; i < 50; i++)
        assert_err(results[i].err, MR_STALE);
    assert_int_equal(suite_get(t, "a", "n")->version, 50);
    assert_int_equal(suite_get(t, "a", "n")->next_ms, 50);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_PAUSED);
}

static void test_what_is_wrong_with_an_item_is_its_own(void **state)
{
    struct suite *t = *state;
    struct mr_store_apply good = {.app = MR_SLICE_LIT("a"),
                                  .name = MR_SLICE_LIT("n"),
                                  .uid = suite_uid(1),
                                  .version = 1,
                                  .state = MR_ROW_ACTIVE};
    struct mr_store_apply items[9];
    for (size_t i = 0; i < 9; i++)
        items[i] = good;
    items[0].app = MR_SLICE_LIT("");
    items[1].name = MR_SLICE_LIT("\xff");
    items[2].version = 0;
    items[3].version = UINT64_MAX;
    items[4].state = MR_ROW_DELETED;
    items[5].next_ms = -1;
    items[6].uid = (struct mr_uuid){{0}};
    items[7].name = mr_slice_make("a\0b", 3);
    struct mr_store_applied results[9];
    suite_apply_all(t, items, 9, results);
    for (size_t i = 0; i < 8; i++)
        assert_err(results[i].err, MR_INVALID);
    assert_err(results[8].err, MR_OK);
}

static void test_a_request_over_the_limit_is_refused_as_a_whole(void **state)
{
    struct suite *t = *state;
    struct mr_store_timers_apply apply = {.req.op = MR_STORE_TIMERS_APPLY,
                                          .n = MR_STORE_BATCH_MAX + 1};
    assert_err(mr_store_call(t->store, &apply.req), MR_TOO_BIG);
    struct mr_store_timers_apply none = {.req.op = MR_STORE_TIMERS_APPLY};
    assert_err(mr_store_call(t->store, &none.req), MR_OK);
}

static void test_names_and_definitions_come_back_byte_by_byte(void **state)
{
    struct suite *t = *state;
    uint8_t bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    struct mr_slice odd = mr_slice_make(bytes, sizeof bytes);
    assert_err(
        PUT(t, .version = 1, .name = MR_SLICE_LIT("\xc3\xa4 '\"\\%$1"), .definition = odd).err,
        MR_OK);
    const struct mr_store_timer *timer = suite_get(t, "a", "\xc3\xa4 '\"\\%$1");
    assert_int_equal(timer->state, MR_ROW_ACTIVE);
    assert_true(mr_slice_equal(timer->definition, odd));
    size_t len = 3 * 1024 * 1024;
    char *big = malloc(len);
    assert_non_null(big);
    memset(big, 'x', len);
    assert_err(PUT(t, .version = 1, .uid = suite_uid(2), .definition = mr_slice_make(big, len)).err,
               MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->definition.len, len);
    assert_err(PUT(t, .version = 2, .uid = suite_uid(2), .definition = mr_slice_make("", 0)).err,
               MR_OK);
    assert_int_equal(suite_get(t, "a", "n")->definition.len, 0);
    free(big);
}

int suite_apply(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_timer_that_was_put_is_there_as_it_was_put),
        SUITE_TEST(test_the_highest_version_wins_whatever_the_order),
        SUITE_TEST(test_a_deleted_timer_is_not_brought_back_by_what_is_older),
        SUITE_TEST(test_a_delete_of_what_is_not_there_is_noted_and_says_so),
        SUITE_TEST(test_a_new_uid_is_a_new_timer_of_that_name),
        SUITE_TEST(test_of_one_version_a_delete_wins_and_else_the_greater_uid),
        SUITE_TEST(test_a_condition_on_the_version_is_kept),
        SUITE_TEST(test_a_put_that_keeps_the_next_time_keeps_what_is_there),
        SUITE_TEST(test_a_uid_belongs_to_one_timer),
        SUITE_TEST(test_items_about_one_timer_in_a_batch_follow_each_other),
        SUITE_TEST(test_what_is_wrong_with_an_item_is_its_own),
        SUITE_TEST(test_a_request_over_the_limit_is_refused_as_a_whole),
        SUITE_TEST(test_names_and_definitions_come_back_byte_by_byte),
    };
    return SUITE_RUN(engine, "apply", tests);
}
