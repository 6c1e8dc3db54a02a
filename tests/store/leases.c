/* SPDX-License-Identifier: Apache-2.0 */
/* Leases: one holder at a time by the store's clock, and a number that never repeats. Servers. */
#include "store/suite.h"

#define ME    .owner = MR_SLICE_LIT("me")
#define OTHER .owner = MR_SLICE_LIT("other")

static void test_a_lease_has_one_holder(void **state)
{
    struct suite *t = *state;
    struct mr_store_lease_result mine = LEASE(t, ME, .ttl_ms = 60000);
    assert_err(mine.err, MR_OK);
    assert_true(mine.token > 0);
    assert_string_equal(mine.owner, "me");
    struct mr_store_lease_result refused = LEASE(t, OTHER, .ttl_ms = 60000);
    assert_err(refused.err, MR_IN_USE);
    assert_string_equal(refused.owner, "me");
    assert_int_equal(refused.until_ms, mine.until_ms);
    struct mr_store_lease_result again = LEASE(t, ME, .ttl_ms = 60000);
    assert_err(again.err, MR_OK);
    assert_int_equal(again.token, mine.token);
    suite_reopen(t);
    assert_err(LEASE(t, OTHER, .ttl_ms = 60000).err, MR_IN_USE);
}

static void test_a_lease_is_renewed_with_its_number_only(void **state)
{
    struct suite *t = *state;
    assert_err(LEASE(t, ME, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = 1).err, MR_STALE);
    uint64_t token = LEASE(t, ME, .ttl_ms = 60000).token;
    struct mr_store_lease_result renewed =
        LEASE(t, ME, .ttl_ms = 90000, .verb = MR_LEASE_RENEW, .token = token);
    assert_err(renewed.err, MR_OK);
    assert_int_equal(renewed.token, token);
    assert_err(LEASE(t, ME, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = token + 1).err,
               MR_STALE);
    assert_err(LEASE(t, OTHER, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = token).err,
               MR_STALE);
}

static void test_a_released_lease_is_free_and_its_number_rises(void **state)
{
    struct suite *t = *state;
    uint64_t token = LEASE(t, ME, .ttl_ms = 60000).token;
    assert_err(LEASE(t, OTHER, .verb = MR_LEASE_RELEASE, .token = token).err, MR_STALE);
    assert_err(LEASE(t, ME, .verb = MR_LEASE_RELEASE, .token = token).err, MR_OK);
    assert_err(LEASE(t, ME, .verb = MR_LEASE_RELEASE, .token = token).err, MR_OK); /* once more */
    assert_err(LEASE(t, ME, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = token).err, MR_STALE);
    struct mr_store_lease_result other = LEASE(t, OTHER, .ttl_ms = 60000);
    assert_err(other.err, MR_OK);
    assert_true(other.token > token);
    assert_err(LEASE(t, ME, .verb = MR_LEASE_RELEASE, .token = token).err, MR_STALE);
}

static void test_a_lease_runs_out_by_the_stores_clock(void **state)
{
    struct suite *t = *state;
    uint64_t token = LEASE(t, ME, .ttl_ms = 60).token;
    WAIT_UNTIL(LEASE(t, OTHER, .ttl_ms = 60).err == MR_OK);
    assert_err(LEASE(t, ME, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = token).err, MR_STALE);
    struct mr_store_lease_result mine = {.err = MR_IN_USE};
    WAIT_UNTIL((mine = LEASE(t, ME, .ttl_ms = 60000)).err == MR_OK);
    assert_true(mine.token >= token + 2);
}

static void test_a_lease_that_ran_out_comes_back_with_another_number(void **state)
{
    struct suite *t = *state;
    uint64_t token = LEASE(t, ME, .ttl_ms = 20).token;
    const struct mr_store_lease_list *list;
    do
        list = suite_lease_list(t, (struct mr_store_lease_list){.max = 1});
    while (list->leases[0].until_ms > list->now_ms);
    assert_err(LEASE(t, ME, .ttl_ms = 60000, .verb = MR_LEASE_RENEW, .token = token).err, MR_STALE);
    struct mr_store_lease_result mine = LEASE(t, ME, .ttl_ms = 60000);
    assert_err(mine.err, MR_OK);
    assert_true(mine.token > token);
}

static void test_leases_are_taken_and_listed_in_batches(void **state)
{
    struct suite *t = *state;
    struct mr_store_lease_item items[] = {
        {.name = MR_SLICE_LIT("app:b"), ME, .ttl_ms = 60000},
        {.name = MR_SLICE_LIT("app:a"), ME, .ttl_ms = 60000},
        {.name = MR_SLICE_LIT("app:b"), OTHER, .ttl_ms = 60000},
        {.name = MR_SLICE_LIT("x"), OTHER, .ttl_ms = 60000},
        {.name = MR_SLICE_LIT(""), OTHER, .ttl_ms = 60000},
        {.name = MR_SLICE_LIT("y"), OTHER},
    };
    struct mr_store_lease_result results[6];
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = items, .n = 6, .results = results};
    assert_err(mr_store_call(t->store, &lease.req), MR_OK);
    assert_err(results[0].err, MR_OK);
    assert_err(results[1].err, MR_OK);
    assert_err(results[2].err, MR_IN_USE);
    assert_err(results[3].err, MR_OK);
    assert_err(results[4].err, MR_INVALID);
    assert_err(results[5].err, MR_INVALID);
    assert_int_equal(results[0].until_ms, lease.now_ms + 60000);
    const struct mr_store_lease_list *list =
        suite_lease_list(t, (struct mr_store_lease_list){.prefix = MR_SLICE_LIT("app:"), .max = 1});
    assert_int_equal(list->n, 1);
    assert_true(list->more);
    assert_slice(list->leases[0].name, "app:a");
    assert_slice(list->leases[0].owner, "me");
    assert_true(list->leases[0].until_ms > list->now_ms);
    list = suite_lease_list(t, (struct mr_store_lease_list){.prefix = MR_SLICE_LIT("app:"),
                                                            .after = MR_SLICE_LIT("app:a"),
                                                            .max = 5});
    assert_int_equal(list->n, 1);
    assert_false(list->more);
    assert_slice(list->leases[0].name, "app:b");
}

/* ---- servers --------------------------------------------------------------------------------- */

static enum mr_err beat(struct suite *t, const char *server, const char *apps, int64_t ttl_ms)
{
    struct mr_store_server_beat beat = {.req.op = MR_STORE_SERVER_BEAT,
                                        .server = mr_slice_str(server),
                                        .apps = mr_slice_str(apps),
                                        .ttl_ms = ttl_ms};
    enum mr_err err = mr_store_call(t->store, &beat.req);
    mr_store_req_done(&beat.req);
    return err;
}

static void test_servers_are_there_as_long_as_they_say(void **state)
{
    struct suite *t = *state;
    assert_int_equal(suite_server_list(t, 10)->n, 0);
    assert_err(beat(t, "two", "", 60000), MR_OK);
    assert_err(beat(t, "one", "a\nb", 60000), MR_OK);
    assert_err(beat(t, "three", "", 60), MR_OK);
    WAIT_UNTIL(suite_server_list(t, 10)->n == 2);
    suite_reopen(t);
    const struct mr_store_server_list *list = suite_server_list(t, 10);
    assert_int_equal(list->n, 2);
    assert_false(list->more);
    assert_slice(list->servers[0].server, "one");
    assert_slice(list->servers[0].apps, "a\nb");
    assert_slice(list->servers[1].server, "two");
    assert_slice(list->servers[1].apps, "");
    assert_true(suite_server_list(t, 1)->more);
    assert_err(beat(t, "three", "c", 60000), MR_OK); /* it was only late */
    list = suite_server_list(t, 10);
    assert_int_equal(list->n, 3);
    assert_slice(list->servers[1].apps, "c");
}

static void test_a_server_that_goes_is_not_there_any_more(void **state)
{
    struct suite *t = *state;
    assert_err(beat(t, "one", "", 60000), MR_OK);
    assert_err(beat(t, "two", "", 60000), MR_OK);
    assert_err(beat(t, "one", "", 0), MR_OK);
    assert_err(beat(t, "one", "", 0), MR_OK); /* once more */
    const struct mr_store_server_list *list = suite_server_list(t, 10);
    assert_int_equal(list->n, 1);
    assert_slice(list->servers[0].server, "two");
    assert_err(beat(t, "", "", 60000), MR_INVALID);
    assert_err(beat(t, "one", "", -1), MR_INVALID);
}

static void test_servers_that_have_long_been_gone_leave_no_rows(void **state)
{
    struct suite *t = *state;
    t->engine->sql(t->engine->arg, "INSERT INTO server VALUES ('old', '', 1000, 1000, '')");
    assert_err(beat(t, "one", "", 60000), MR_OK);
    /* What comes from a clock that has been set back since is not there, either. */
    t->engine->sql(t->engine->arg,
                   "INSERT INTO server VALUES ('old', '', 99999999999999, 1000, '')");
    assert_int_equal(suite_server_list(t, 10)->n, 1);
}

#define LEASE_OF(t, name_, ...)                                                                    \
    suite_lease_one(t, (struct mr_store_lease_item){.name = MR_SLICE_LIT(name_), __VA_ARGS__})

static void test_apps_are_listed_with_who_holds_their_lease(void **state)
{
    struct suite *t = *state;
    const struct mr_store_app_list all = {.max = 10};
    assert_err(PUT(t).err, MR_OK);
    assert_err(LEASE(t, ME, .ttl_ms = 60).err, MR_OK);
    uint64_t token = LEASE_OF(t, "app:b", OTHER, .ttl_ms = 60000).token;
    assert_err(LEASE_OF(t, "apple", OTHER, .ttl_ms = 60000).err, MR_OK);
    const struct mr_store_app_list *list = suite_app_list(t, all);
    assert_int_equal(list->n, 2);
    assert_slice(list->apps[0].name, "a");
    assert_slice(list->apps[1].name, "b"); /* it has no timer yet */
    assert_slice(list->apps[1].owner, "other");
    WAIT_UNTIL(suite_app_list(t, all)->apps[0].owner.len == 0);
    assert_err(LEASE_OF(t, "app:b", OTHER, .verb = MR_LEASE_RELEASE, .token = token).err, MR_OK);
    list = suite_app_list(t, (struct mr_store_app_list){.after = MR_SLICE_LIT("a"), .max = 10});
    assert_int_equal(list->n, 1);
    assert_slice(list->apps[0].owner, "");
}

/* ---- while others write ------------------------------------------------------------------------ */

/* Another server, which says again and again that it is there, and renews its lease. */
struct beater {
    struct suite t;
    _Atomic bool stop;
    uint64_t token;
};

/* No cmocka in threads: what is wrong ends the program. */
static void *beat_on(void *arg)
{
    struct beater *b = arg;
    while (!b->stop) {
        struct mr_store_lease_item item = {.verb = MR_LEASE_RENEW,
                                           .name = MR_SLICE_LIT("app:a"),
                                           .owner = MR_SLICE_LIT("other"),
                                           .token = b->token,
                                           .ttl_ms = 60000};
        struct mr_store_lease_result result;
        struct mr_store_lease lease = {
            .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
        mr_assert(beat(&b->t, "other", "", 60000) == MR_OK);
        mr_assert(mr_store_call(b->t.store, &lease.req) == MR_OK && result.err == MR_OK);
        mr_store_req_done(&lease.req);
    }
    return NULL;
}

static void test_who_is_written_down_while_we_look_is_there(void **state)
{
    struct suite *t = *state;
    uint64_t looks = suite_size("MR_LOOKS", 1000);
    struct beater b = {.t.engine = t->engine};
    pthread_t thread;
    memcpy(b.t.url, t->url, sizeof t->url);
    suite_open(&b.t, NULL);
    b.token = LEASE_OF(&b.t, "app:a", OTHER, .ttl_ms = 60000).token;
    assert_err(beat(&b.t, "other", "", 60000), MR_OK);
    assert_err(mr_thread_start(&thread, "beater", beat_on, &b), MR_OK);
    for (uint64_t i = 0; i < looks; i++) {
        assert_int_equal(suite_server_list(t, 10)->n, 1);
        const struct mr_store_app_list *apps =
            suite_app_list(t, (struct mr_store_app_list){.max = 10});
        assert_int_equal(apps->n, 1);
        assert_slice(apps->apps[0].owner, "other");
    }
    b.stop = true;
    mr_thread_join(thread);
    suite_close(&b.t);
}

int suite_leases(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_lease_has_one_holder),
        SUITE_TEST(test_a_lease_is_renewed_with_its_number_only),
        SUITE_TEST(test_a_released_lease_is_free_and_its_number_rises),
        SUITE_TEST(test_a_lease_runs_out_by_the_stores_clock),
        SUITE_TEST(test_a_lease_that_ran_out_comes_back_with_another_number),
        SUITE_TEST(test_leases_are_taken_and_listed_in_batches),
        SUITE_TEST(test_servers_are_there_as_long_as_they_say),
        SUITE_TEST(test_a_server_that_goes_is_not_there_any_more),
        SUITE_TEST(test_servers_that_have_long_been_gone_leave_no_rows),
        SUITE_TEST(test_apps_are_listed_with_who_holds_their_lease),
        SUITE_TEST(test_who_is_written_down_while_we_look_is_there),
    };
    return SUITE_RUN(engine, "leases", tests);
}
