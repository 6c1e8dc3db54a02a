/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at timers: pages, what is due, apps. */
#include "store/suite.h"

#include <stdio.h>

/* Names of the app are n0000, n0001 ..., uids from 1 on. */
static void put_many(struct suite *t, const char *app, unsigned from, unsigned n, int64_t first_ms)
{
    struct mr_store_apply *items = calloc(n, sizeof *items);
    struct mr_store_applied *results = calloc(n, sizeof *results);
    char(*names)[16] = calloc(n, sizeof *names);
    assert_true(items && results && names);
    for (unsigned i = 0; i < n; i++) {
        int len = snprintf(names[i], sizeof names[i], "n%04u", i);
        items[i] = (struct mr_store_apply){.app = mr_slice_str(app),
                                           .name = mr_slice_make(names[i], (size_t)len),
                                           .uid = suite_uid(from + i),
                                           .version = 1,
                                           .state = MR_ROW_ACTIVE,
                                           .next_ms = first_ms + i / 2};
    }
    suite_apply_all(t, items, n, results);
    for (unsigned i = 0; i < n; i++)
        assert_err(results[i].err, MR_OK);
    free(items);
    free(results);
    free(names);
}

static void test_pages_of_timers_leave_none_out_and_repeat_none(void **state)
{
    struct suite *t = *state;
    put_many(t, "b", 1, 25, 0);
    put_many(t, "a", 101, 25, 0);
    struct mr_store_timer_list page = {.max = 7};
    size_t seen = 0;
    for (bool more = true; more;) {
        const struct mr_store_timer_list *got = suite_list(t, page);
        for (size_t i = 0; i < got->n; i++, seen++) {
            char name[16];
            (void)snprintf(name, sizeof name, "n%04zu", seen % 25);
            assert_slice(got->timers[i].app, seen < 25 ? "a" : "b");
            assert_slice(got->timers[i].name, name);
        }
        more = got->more;
        page.after_app = got->timers[got->n - 1].app;
        page.after_name = got->timers[got->n - 1].name;
    }
    assert_int_equal(seen, 50);
}

static void test_a_list_can_be_of_an_app_of_a_prefix_and_of_states(void **state)
{
    struct suite *t = *state;
    put_many(t, "a", 1, 30, 0);
    put_many(t, "b", 101, 30, 0);
    assert_err(PUT(t, .name = MR_SLICE_LIT("p"), .uid = suite_uid(200), .version = 1,
                   .state = MR_ROW_PAUSED)
                   .err,
               MR_OK);
    assert_err(DELETE(t, .name = MR_SLICE_LIT("n0003"), .version = 2).err, MR_OK);
    struct mr_slice a = MR_SLICE_LIT("a");
    assert_int_equal(suite_list(t, (struct mr_store_timer_list){.app = a, .max = 100})->n, 30);
    assert_int_equal(suite_list(t, (struct mr_store_timer_list){.max = 100})->n, 60);
    assert_int_equal(
        suite_list(t, (struct mr_store_timer_list){.prefix = MR_SLICE_LIT("n001"), .max = 100})->n,
        20);
    assert_int_equal(
        suite_list(
            t, (struct mr_store_timer_list){.app = a, .prefix = MR_SLICE_LIT("n000"), .max = 100})
            ->n,
        9);
    const struct mr_store_timer_list *paused = suite_list(
        t, (struct mr_store_timer_list){.states = MR_ROW_BIT(MR_ROW_PAUSED), .max = 100});
    assert_int_equal(paused->n, 1);
    assert_slice(paused->timers[0].name, "p");
    const struct mr_store_timer_list *gone = suite_list(
        t, (struct mr_store_timer_list){.states = MR_ROW_BIT(MR_ROW_DELETED), .max = 100});
    assert_int_equal(gone->n, 1);
    assert_slice(gone->timers[0].name, "n0003");
    assert_false(gone->more);
}

/* Who looks for something rare does not make everybody else wait for a walk through all there is. */
static void test_what_is_rare_is_found_by_requests_that_each_look_at_some(void **state)
{
    struct suite *t = *state;
    enum { MANY = 5000 };
    struct mr_store_timer_list page = {.states = MR_ROW_BIT(MR_ROW_PAUSED), .max = 10};
    size_t requests[2] = {0}, seen = 0;
    put_many(t, "a", 1, MANY, 0);
    assert_err(PUT(t, .name = MR_SLICE_LIT("n9"), .uid = suite_uid(MANY + 1), .version = 1,
                   .state = MR_ROW_PAUSED)
                   .err,
               MR_OK);
    for (size_t round = 0; round < 2; round++) { /* of all apps, of one */
        char app[8] = "", name[16] = "";
        page.app = round == 0 ? (struct mr_slice){0} : MR_SLICE_LIT("a");
        for (bool more = true; more; requests[round]++) {
            page.after_app = mr_slice_str(app);
            page.after_name = mr_slice_str(name);
            const struct mr_store_timer_list *got = suite_list(t, page);
            seen += got->n;
            more = got->more;
            (void)snprintf(app, sizeof app, "%.*s", (int)got->place_app.len,
                           (const char *)got->place_app.data);
            (void)snprintf(name, sizeof name, "%.*s", (int)got->place_name.len,
                           (const char *)got->place_name.data);
        }
        assert_true(requests[round] > 2);
    }
    assert_int_equal(seen, 2);
}

static void test_what_is_due_comes_in_its_order_by_pages(void **state)
{
    struct suite *t = *state;
    put_many(t, "a", 1, 40, 1000);
    put_many(t, "b", 101, 40, 1000);
    struct mr_store_due page = {.until_ms = 1014, .max = 4};
    size_t seen = 0;
    int64_t last_ms = 0;
    for (bool more = true; more;) {
        const struct mr_store_due *got = suite_due(t, page);
        for (size_t i = 0; i < got->n; i++, seen++) {
            assert_slice(got->timers[i].app, "a");
            assert_true(got->timers[i].next_ms >= last_ms);
            last_ms = got->timers[i].next_ms;
            struct mr_uuid uid = suite_uid(1 + (unsigned)seen);
            assert_memory_equal(&got->timers[i].uid, &uid, sizeof uid);
        }
        more = got->more;
        page.after_ms = got->timers[got->n - 1].next_ms;
        page.after_uid = got->timers[got->n - 1].uid;
    }
    assert_int_equal(seen, 30);
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = 999, .max = 4})->n, 0);
}

static void test_only_active_timers_with_a_time_are_due(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .version = 1, .next_ms = MR_STORE_NEVER_MS).err, MR_OK);
    assert_err(
        PUT(t, .version = 1, .name = MR_SLICE_LIT("p"), .uid = suite_uid(2), .state = MR_ROW_PAUSED)
            .err,
        MR_OK);
    assert_err(PUT(t, .version = 1, .name = MR_SLICE_LIT("f"), .uid = suite_uid(3),
                   .state = MR_ROW_FINISHED)
                   .err,
               MR_OK);
    assert_err(PUT(t, .version = 1, .name = MR_SLICE_LIT("d"), .uid = suite_uid(4)).err, MR_OK);
    assert_err(DELETE(t, .version = 2, .name = MR_SLICE_LIT("d")).err, MR_OK);
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = INT64_MAX - 1, .max = 9})->n,
                     0);
    assert_err(PUT(t, .version = 2, .next_ms = 1).err, MR_OK);
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = 1, .max = 9})->n, 1);
}

static void test_what_was_changed_since_an_answer_is_found_without_the_rest(void **state)
{
    struct suite *t = *state;
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = 5000, .max = 9})->changed, 0);
    put_many(t, "a", 1, 20, 1000);
    uint64_t since = suite_due(t, (struct mr_store_due){.until_ms = 5000, .max = 100})->changed;
    assert_true(since > 0);
    struct mr_store_due ask = {.until_ms = 5000, .max = 100, .since = since};
    assert_int_equal(suite_due(t, ask)->n, 0);
    assert_err(PUT(t, .version = 1, .uid = suite_uid(50), .next_ms = 3000).err, MR_OK);
    assert_err(
        PUT(t, .version = 1, .name = MR_SLICE_LIT("far"), .uid = suite_uid(51), .next_ms = 9000)
            .err,
        MR_OK);
    assert_err(
        PUT(t, .version = 2, .name = MR_SLICE_LIT("n0004"), .uid = suite_uid(5), .next_ms = 2000)
            .err,
        MR_OK);
    const struct mr_store_due *changed = suite_due(t, ask);
    assert_int_equal(changed->n, 2);
    assert_slice(changed->timers[0].name, "n0004");
    assert_slice(changed->timers[1].name, "n");
    assert_true(changed->changed > since);
    ask.since = changed->changed;
    assert_int_equal(suite_due(t, ask)->n, 0);
    put_many(t, "b", 101, 20, 1000); /* of another app */
    assert_int_equal(suite_due(t, ask)->n, 0);
}

static void test_apps_are_listed_by_pages(void **state)
{
    struct suite *t = *state;
    assert_int_equal(suite_app_list(t, (struct mr_store_app_list){.max = 5})->n, 0);
    put_many(t, "c", 1, 1, 0);
    put_many(t, "a", 2, 1, 0);
    put_many(t, "b", 3, 1, 0);
    const struct mr_store_app_list *page = suite_app_list(t, (struct mr_store_app_list){.max = 2});
    assert_int_equal(page->n, 2);
    assert_true(page->more);
    assert_slice(page->apps[0].name, "a");
    assert_slice(page->apps[1].name, "b");
    page = suite_app_list(t, (struct mr_store_app_list){.after = MR_SLICE_LIT("b"), .max = 2});
    assert_int_equal(page->n, 1);
    assert_false(page->more);
    assert_slice(page->apps[0].name, "c");
}

static void test_figures_count_what_is_there(void **state)
{
    struct suite *t = *state;
    put_many(t, "a", 1, 5, 1000);
    assert_err(DELETE(t, .name = MR_SLICE_LIT("n0000"), .version = 2).err, MR_OK);
    assert_err(DELETE(t, .name = MR_SLICE_LIT("other"), .version = 2).err, MR_NOT_FOUND);
    assert_err(PUT(t, .name = MR_SLICE_LIT("n0001"), .uid = suite_uid(2), .version = 2,
                   .state = MR_ROW_PAUSED)
                   .err,
               MR_OK);
    assert_err(FIRE(t, .uid = suite_uid(3), .planned_ms = 5).err, MR_OK);
    assert_err(FIRE(t, .uid = suite_uid(3), .planned_ms = 6, .state = MR_LEDGER_SKIPPED).err,
               MR_OK);
    const struct mr_store_stats *stats = suite_stats(t);
    assert_int_equal(stats->timers[MR_ROW_ACTIVE], 3);
    assert_int_equal(stats->timers[MR_ROW_PAUSED], 1);
    assert_int_equal(stats->timers[MR_ROW_FINISHED], 0);
    assert_int_equal(stats->timers[MR_ROW_DELETED], 1);
    assert_int_equal(stats->timers[MR_ROW_ABSENT], 1);
    assert_int_equal(stats->firings[MR_LEDGER_WAITING], 1);
    assert_int_equal(stats->firings[MR_LEDGER_SKIPPED], 0); /* it has ended */
    assert_int_equal(stats->apps, 1);
    assert_true(stats->schema > 0 && stats->bytes > 0 && stats->engine[0] != '\0');
    assert_true(stats->now_ms > 0);
}

static void test_a_page_without_an_end_is_refused(void **state)
{
    struct suite *t = *state;
    struct mr_store_timer_list none = {.req.op = MR_STORE_TIMER_LIST};
    assert_err(mr_store_call(t->store, &none.req), MR_INVALID);
    struct mr_store_timer_list all = {.req.op = MR_STORE_TIMER_LIST, .max = MR_STORE_BATCH_MAX + 1};
    assert_err(mr_store_call(t->store, &all.req), MR_TOO_BIG);
}

int suite_look(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_pages_of_timers_leave_none_out_and_repeat_none),
        SUITE_TEST(test_a_list_can_be_of_an_app_of_a_prefix_and_of_states),
        SUITE_TEST(test_what_is_rare_is_found_by_requests_that_each_look_at_some),
        SUITE_TEST(test_what_is_due_comes_in_its_order_by_pages),
        SUITE_TEST(test_only_active_timers_with_a_time_are_due),
        SUITE_TEST(test_what_was_changed_since_an_answer_is_found_without_the_rest),
        SUITE_TEST(test_apps_are_listed_by_pages),
        SUITE_TEST(test_figures_count_what_is_there),
        SUITE_TEST(test_a_page_without_an_end_is_refused),
    };
    return SUITE_RUN(engine, "look", tests);
}
