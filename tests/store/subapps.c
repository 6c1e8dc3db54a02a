/* SPDX-License-Identifier: Apache-2.0 */
/* Apps that are cut: what is asked about some slots, tables that are replaced as a whole, leases that go with them, homes. */
#include <stdio.h>

#include "store/suite.h"

enum { ALL = 100, HOUR_MS = 3600000 };

static enum mr_err set_table(struct suite *t, struct mr_store_subapps_set set)
{
    set.req.op = MR_STORE_SUBAPPS_SET;
    set.app = MR_SLICE_LIT("a");
    enum mr_err err = mr_store_call(t->store, &set.req);
    mr_store_req_done(&set.req);
    return err;
}
#define SET_TABLE(t, ...) set_table(t, (struct mr_store_subapps_set){__VA_ARGS__})

static struct mr_store_subapps_list *tables(struct suite *t, size_t max)
{
    struct mr_store_subapps_list list = {.req.op = MR_STORE_SUBAPPS_LIST, .max = max};
    return mr_container(suite_keep_call(t, &list.req, sizeof list), struct mr_store_subapps_list,
                        req);
}

static struct mr_store_moves_list *moves(struct suite *t)
{
    struct mr_store_moves_list list = {.req.op = MR_STORE_MOVES_LIST};
    return mr_container(suite_keep_call(t, &list.req, sizeof list), struct mr_store_moves_list,
                        req);
}

#define TABLE(text) .table = MR_SLICE_LIT(text)
#define SUB(...)                                                                                   \
    suite_lease_one(t, (struct mr_store_lease_item){.name = MR_SLICE_LIT("sub:a/1"), __VA_ARGS__})
#define ME    .owner = MR_SLICE_LIT("me")
#define OTHER .owner = MR_SLICE_LIT("other")

/* ---- slots ---------------------------------------------------------------------------------- */

static void put_all(struct suite *t)
{
    for (unsigned i = 0; i < ALL; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "n%u", i);
        assert_err(PUT(t, .name = mr_slice_str(name), .uid = suite_uid(i + 1)).err, MR_OK);
        assert_err(FIRE(t, .uid = suite_uid(i + 1), .planned_ms = 1000).err, MR_OK);
    }
}

static void test_timers_and_firings_are_found_by_their_slots(void **state)
{
    struct suite *t = *state;
    uint64_t masks[] = {1, 1ULL << 63, 0xff00, ~(0xff00 | 1 | 1ULL << 63)};
    size_t due_n = 0, open_n = 0;
    put_all(t);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const struct mr_store_due *due = suite_due(
            t, (struct mr_store_due){.slots = masks[i], .until_ms = 5000, .max = ALL + 1});
        const struct mr_store_firing_open *open =
            suite_firing_open(t, (struct mr_store_firing_open){.slots = masks[i], .max = ALL + 1});
        for (size_t k = 0; k < due->n; k++)
            assert_true((masks[i] >> mr_store_slot(&due->timers[k].uid) & 1) != 0);
        for (size_t k = 0; k < open->n; k++)
            assert_true((masks[i] >> mr_store_slot(&open->firings[k].uid) & 1) != 0);
        assert_true(due->n > 0 && open->n == due->n);
        due_n += due->n;
        open_n += open->n;
    }
    assert_int_equal(due_n, ALL);
    assert_int_equal(open_n, ALL);
    assert_int_equal(suite_due(t, (struct mr_store_due){.until_ms = 5000, .max = ALL + 1})->n, ALL);
}

static void test_what_was_changed_is_found_by_its_slot(void **state)
{
    struct suite *t = *state;
    put_all(t);
    uint64_t since = suite_due(t, (struct mr_store_due){.until_ms = 5000, .max = ALL + 1})->changed;
    assert_err(PUT(t, .name = MR_SLICE_LIT("n4"), .uid = suite_uid(5), .version = 2).err, MR_OK);
    struct mr_store_due ask = {.slots = 1ULL << 5, .until_ms = 5000, .since = since, .max = 9};
    assert_int_equal(suite_due(t, ask)->n, 1);
    ask.slots = ~ask.slots;
    assert_int_equal(suite_due(t, ask)->n, 0);
}

static void test_pages_of_some_slots_follow_each_other(void **state)
{
    struct suite *t = *state;
    put_all(t);
    struct mr_store_due page = {.slots = 0x5555555555555555, .until_ms = 5000, .max = 7};
    size_t seen = 0;
    for (bool more = true; more;) {
        const struct mr_store_due *due = suite_due(t, page);
        seen += due->n;
        more = due->more;
        page.after_ms = due->timers[due->n - 1].next_ms;
        page.after_uid = due->timers[due->n - 1].uid;
    }
    assert_int_equal(seen, ALL / 2);
}

/* ---- homes ---------------------------------------------------------------------------------- */

static void test_a_firing_says_where_its_task_is(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    assert_err(FIRE(t, .planned_ms = 1000).err, MR_OK);
    assert_slice(suite_firing(t, 1, 1000)->home, "");
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                   .to = MR_LEDGER_DISPATCHED, .home = MR_SLICE_LIT("here"))
                   .err,
               MR_OK);
    assert_slice(suite_firing(t, 1, 1000)->home, "here");
    /* One that a person asked for says so while it still waits. */
    assert_err(FIRE(t, .planned_ms = 2000, .home = MR_SLICE_LIT("asked")).err, MR_OK);
    assert_slice(suite_firing(t, 1, 2000)->home, "asked");
    assert_int_equal(suite_firing(t, 1, 2000)->state, MR_LEDGER_WAITING);
    /* Who has done the same elsewhere is told that it was not the first. */
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                   .to = MR_LEDGER_DISPATCHED, .home = MR_SLICE_LIT("there"))
                   .err,
               MR_WRONG_STATE);
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                   .to = MR_LEDGER_DISPATCHED, .home = MR_SLICE_LIT("here"))
                   .err,
               MR_OK);
    assert_slice(suite_firing(t, 1, 1000)->home, "here");
    struct mr_store_firing_open open = {.home = MR_SLICE_LIT("here"), .max = 9};
    assert_int_equal(suite_firing_open(t, open)->n, 1);
    open.home = MR_SLICE_LIT("there");
    assert_int_equal(suite_firing_open(t, open)->n, 0);
    /* Another one takes it over; what says nothing of it leaves it. */
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_OPEN, .to = MR_LEDGER_DISPATCHED,
                   .home = MR_SLICE_LIT("there"))
                   .err,
               MR_OK);
    assert_err(SET(t, .planned_ms = 1000, .from = MR_LEDGER_OPEN, .to = MR_LEDGER_FAILED).err,
               MR_OK);
    assert_slice(suite_firing(t, 1, 1000)->home, "there");
    assert_err(SET(t, .planned_ms = 1000, .run = 1, .again = true,
                   .from = MR_LEDGER_BIT(MR_LEDGER_FAILED), .to = MR_LEDGER_WAITING)
                   .err,
               MR_OK);
    assert_slice(suite_firing(t, 1, 1000)->home, "");
}

static void test_a_server_says_where_its_tasks_are(void **state)
{
    struct suite *t = *state;
    struct mr_store_server_beat beat = {.req.op = MR_STORE_SERVER_BEAT,
                                        .server = MR_SLICE_LIT("one"),
                                        .home = MR_SLICE_LIT("here"),
                                        .ttl_ms = 60000};
    assert_err(mr_store_call(t->store, &beat.req), MR_OK);
    mr_store_req_done(&beat.req);
    assert_slice(suite_server_list(t, 9)->servers[0].home, "here");
    beat.home = (struct mr_slice){0};
    assert_err(mr_store_call(t->store, &beat.req), MR_OK);
    mr_store_req_done(&beat.req);
    assert_slice(suite_server_list(t, 9)->servers[0].home, "");
}

/* ---- tables --------------------------------------------------------------------------------- */

static void test_a_table_is_replaced_if_it_is_the_one_that_was_read(void **state)
{
    struct suite *t = *state;
    assert_int_equal(tables(t, 9)->n, 0);
    assert_err(SET_TABLE(t, .version = 1, TABLE("x")), MR_CONFLICT);
    assert_err(SET_TABLE(t, TABLE("one")), MR_OK);
    assert_err(SET_TABLE(t, TABLE("one")), MR_OK); /* once more */
    assert_err(SET_TABLE(t, TABLE("other")), MR_CONFLICT);
    assert_err(SET_TABLE(t, .version = 1, TABLE("one"), .wish = MR_SLICE_LIT("two")), MR_OK);
    suite_reopen(t);
    const struct mr_store_subapps_list *list = tables(t, 9);
    assert_int_equal(list->n, 1);
    assert_slice(list->rows[0].app, "a");
    assert_int_equal(list->rows[0].version, 2);
    assert_slice(list->rows[0].table, "one");
    assert_slice(list->rows[0].wish, "two");
    assert_true(list->rows[0].wish_ms >= 0 && list->rows[0].wish_ms < HOUR_MS);
    WAIT_UNTIL(tables(t, 9)->rows[0].wish_ms > 20);
    assert_err(SET_TABLE(t, .version = 2, TABLE("two")), MR_OK);
    list = tables(t, 9);
    assert_int_equal(list->rows[0].version, 3);
    assert_slice(list->rows[0].wish, "");
    assert_int_equal(list->rows[0].wish_ms, 0);
    assert_err(SET_TABLE(t, .version = 3), MR_INVALID);
}

static void test_tables_are_listed_by_pages(void **state)
{
    struct suite *t = *state;
    const char *apps[] = {"b", "a", "c"};
    for (size_t i = 0; i < 3; i++) {
        struct mr_store_subapps_set set = {
            .req.op = MR_STORE_SUBAPPS_SET, .app = mr_slice_str(apps[i]), TABLE("x")};
        assert_err(mr_store_call(t->store, &set.req), MR_OK);
        mr_store_req_done(&set.req);
    }
    assert_int_equal(tables(t, 3)->n, 3);
    assert_false(tables(t, 3)->more);
    const struct mr_store_subapps_list *list = tables(t, 2);
    assert_true(list->more);
    assert_slice(list->rows[1].app, "b");
    struct mr_store_subapps_list rest = {
        .req.op = MR_STORE_SUBAPPS_LIST, .after = MR_SLICE_LIT("b"), .max = 9};
    assert_err(mr_store_call(t->store, &rest.req), MR_OK);
    assert_int_equal(rest.n, 1);
    assert_slice(rest.rows[0].app, "c");
    mr_store_req_done(&rest.req);
}

static void test_leases_change_hands_with_the_table(void **state)
{
    struct suite *t = *state;
    struct mr_store_subapp_lease lease = {
        .name = MR_SLICE_LIT("sub:a/1"), ME, .token = 1, .ttl_ms = 60000};
    struct mr_store_fire row = {.uid = suite_uid(1), .planned_ms = 1, .state = MR_LEDGER_WAITING};
    struct mr_store_fired fired;
    struct mr_store_fence mine = {MR_SLICE_LIT("sub:a/1"), 1}, others = {mine.lease, 2};
    assert_err(PUT(t).err, MR_OK);
    assert_err(SET_TABLE(t, TABLE("one"), .leases = &lease, .leases_n = 1), MR_OK);
    assert_err(suite_fire_all(t, mine, &row, 1, &fired), MR_OK);
    /* A table that does not come about changes no lease. */
    lease.owner = MR_SLICE_LIT("other");
    lease.token = 2;
    assert_err(SET_TABLE(t, TABLE("no"), .leases = &lease, .leases_n = 1), MR_CONFLICT);
    assert_err(suite_fire_all(t, mine, &row, 1, &fired), MR_OK);
    assert_err(SET_TABLE(t, .version = 1, TABLE("two"), .leases = &lease, .leases_n = 1), MR_OK);
    assert_err(suite_fire_all(t, mine, &row, 1, &fired), MR_STALE);
    assert_err(suite_fire_all(t, others, &row, 1, &fired), MR_OK);
    assert_err(SUB(ME, .verb = MR_LEASE_RESUME, .token = 1, .ttl_ms = 1000).err, MR_STALE);
    assert_err(SUB(OTHER, .verb = MR_LEASE_RENEW, .token = 2, .ttl_ms = 60000).err, MR_OK);
    /* Nor one with a number that was there. */
    assert_err(SET_TABLE(t, .version = 2, TABLE("three"), .leases = &lease, .leases_n = 1),
               MR_STALE);
    assert_int_equal(tables(t, 9)->rows[0].version, 2);
    lease = (struct mr_store_subapp_lease){.name = lease.name, .token = 3};
    assert_err(SET_TABLE(t, .version = 2, TABLE("three"), .leases = &lease, .leases_n = 1), MR_OK);
    assert_err(suite_fire_all(t, others, &row, 1, &fired), MR_STALE);
    assert_err(SUB(OTHER, .verb = MR_LEASE_RESUME, .token = 2, .ttl_ms = 1000).err, MR_STALE);
}

static void test_an_app_that_is_cut_is_taken_by_nobody(void **state)
{
    struct suite *t = *state;
    uint64_t token = LEASE(t, ME, .ttl_ms = 60000).token;
    struct mr_store_subapp_lease lease = {.name = MR_SLICE_LIT("app:a"),
                                          .owner = MR_SLICE_LIT(MR_SUBAPPS_OWNER),
                                          .ttl_ms = 100LL * 365 * 24 * HOUR_MS};
    assert_err(SET_TABLE(t, TABLE("one"), .leases = &lease, .leases_n = 1), MR_OK);
    assert_err(LEASE(t, ME, .verb = MR_LEASE_RENEW, .token = token, .ttl_ms = 1000).err, MR_STALE);
    assert_err(LEASE(t, OTHER, .ttl_ms = 60000).err, MR_IN_USE);
    assert_slice(suite_app_list(t, (struct mr_store_app_list){.max = 9})->apps[0].owner,
                 MR_SUBAPPS_OWNER);
}

static void test_a_lease_that_nobody_had_since_is_resumed_with_its_number(void **state)
{
    struct suite *t = *state;
    assert_err(SUB(ME, .verb = MR_LEASE_RESUME, .token = 1, .ttl_ms = 1000).err, MR_STALE);
    uint64_t token = SUB(ME, .ttl_ms = 20).token;
    const struct mr_store_lease_list *list;
    do
        list = suite_lease_list(t, (struct mr_store_lease_list){.max = 1});
    while (list->leases[0].until_ms > list->now_ms);
    struct mr_store_lease_result mine =
        SUB(ME, .verb = MR_LEASE_RESUME, .token = token, .ttl_ms = 60000);
    assert_err(mine.err, MR_OK);
    assert_int_equal(mine.token, token);
    assert_err(SUB(ME, .verb = MR_LEASE_RELEASE, .token = token).err, MR_OK);
    assert_err(SUB(OTHER, .verb = MR_LEASE_RESUME, .token = token, .ttl_ms = 1000).err, MR_STALE);
    assert_err(SUB(ME, .verb = MR_LEASE_RESUME, .token = token, .ttl_ms = 60000).err, MR_OK);
    assert_err(SUB(ME, .verb = MR_LEASE_RELEASE, .token = token).err, MR_OK);
    assert_err(SUB(OTHER, .ttl_ms = 1000).err, MR_OK);
    assert_err(SUB(ME, .verb = MR_LEASE_RESUME, .token = token, .ttl_ms = 1000).err, MR_STALE);
}

/* ---- moves ---------------------------------------------------------------------------------- */

static void test_the_last_moves_are_kept(void **state)
{
    struct suite *t = *state;
    struct mr_store_subapp_move two[] = {
        {.part = 1, .to = MR_SLICE_LIT("me"), .reason = MR_SLICE_LIT("first")},
        {.part = 2, .from = MR_SLICE_LIT("me"), .to = MR_SLICE_LIT("other")},
    };
    assert_int_equal(moves(t)->n, 0);
    assert_err(SET_TABLE(t, .version = 7, TABLE("x"), .moves = two, .moves_n = 2), MR_CONFLICT);
    assert_int_equal(moves(t)->n, 0);
    assert_err(SET_TABLE(t, TABLE("x"), .moves = two, .moves_n = 2), MR_OK);
    const struct mr_store_moves_list *list = moves(t);
    assert_int_equal(list->n, 2);
    assert_slice(list->moves[0].from, "me");
    assert_slice(list->moves[0].to, "other");
    assert_slice(list->moves[1].app, "a");
    assert_slice(list->moves[1].reason, "first");
    assert_slice(list->moves[1].from, "");
    assert_int_equal(list->moves[1].part, 1);
    assert_true(list->moves[0].number > list->moves[1].number && list->moves[0].at_ms > 0);
    for (unsigned i = 1; i <= MR_STORE_MOVES_KEPT; i++) {
        two[0].part = i;
        assert_err(SET_TABLE(t, .version = i, TABLE("x"), .moves = two, .moves_n = 1), MR_OK);
    }
    list = moves(t);
    assert_int_equal(list->n, MR_STORE_MOVES_KEPT);
    assert_int_equal(list->moves[0].part, MR_STORE_MOVES_KEPT);
    assert_int_equal(list->moves[MR_STORE_MOVES_KEPT - 1].part, 1);
}

int suite_subapps(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_timers_and_firings_are_found_by_their_slots),
        SUITE_TEST(test_what_was_changed_is_found_by_its_slot),
        SUITE_TEST(test_pages_of_some_slots_follow_each_other),
        SUITE_TEST(test_a_firing_says_where_its_task_is),
        SUITE_TEST(test_a_server_says_where_its_tasks_are),
        SUITE_TEST(test_a_table_is_replaced_if_it_is_the_one_that_was_read),
        SUITE_TEST(test_tables_are_listed_by_pages),
        SUITE_TEST(test_leases_change_hands_with_the_table),
        SUITE_TEST(test_an_app_that_is_cut_is_taken_by_nobody),
        SUITE_TEST(test_a_lease_that_nobody_had_since_is_resumed_with_its_number),
        SUITE_TEST(test_the_last_moves_are_kept),
    };
    return SUITE_RUN(engine, "subApps", tests);
}
