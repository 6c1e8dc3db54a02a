/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocations of a store fail, those of SQLite and libpq included: requests end well or with an error, nothing
 * is left, and what was answered holds. Test and store take turns, so nobody else allocates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/store.h"
#include "support/postgres_rig.h"
#include "unit/failing_alloc.h"

enum { ITEMS = 5 };

static const struct mr_uuid uid = {{1, 2, 3}};

struct tally {
    bool opened;
    unsigned good, bad; /* requests */
    unsigned fired;     /* planned times whose firing was answered with MR_OK, as bits */
};

static struct tally tally;

static bool call(struct mr_store *store, struct mr_store_req *req)
{
    enum mr_err err = mr_store_call(store, req);
    tally.good += err == MR_OK;
    tally.bad += err != MR_OK;
    return err == MR_OK;
}

static void apply(struct mr_store *store)
{
    struct mr_store_apply item = {.app = MR_SLICE_LIT("a"),
                                  .name = MR_SLICE_LIT("n"),
                                  .uid = uid,
                                  .version = 1,
                                  .state = MR_ROW_ACTIVE,
                                  .definition = MR_SLICE_LIT("definition"),
                                  .next_ms = 1};
    struct mr_store_applied result;
    struct mr_store_timers_apply apply = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = &item, .n = 1, .results = &result};
    (void)call(store, &apply.req);
    mr_store_req_done(&apply.req);
}

static void fire(struct mr_store *store)
{
    struct mr_store_fire items[ITEMS];
    struct mr_store_fired results[ITEMS];
    for (int i = 0; i < ITEMS; i++)
        items[i] = (struct mr_store_fire){
            .uid = uid,
            .planned_ms = i + 1,
            .state = MR_LEDGER_WAITING,
            .reason = MR_SLICE_LIT("why"),
            .move = {.moves = true, .version = 1, .from_ms = i + 1, .to_ms = i + 2, .counts = 1}};
    struct mr_store_fire_batch fire = {.req.op = MR_STORE_FIRE,
                                       .app = MR_SLICE_LIT("a"),
                                       .items = items,
                                       .n = ITEMS,
                                       .results = results};
    if (call(store, &fire.req)) {
        for (int i = 0; i < ITEMS; i++)
            tally.fired |= (unsigned)(results[i].err == MR_OK) << i;
    }
    mr_store_req_done(&fire.req);
}

static void lease(struct mr_store *store)
{
    struct mr_store_lease_item item = {
        .name = MR_SLICE_LIT("app:a"), .owner = MR_SLICE_LIT("me"), .ttl_ms = 1000};
    struct mr_store_lease_result result;
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
    (void)call(store, &lease.req);
    mr_store_req_done(&lease.req);
}

static void share(struct mr_store *store)
{
    struct mr_store_server_beat beat = {.req.op = MR_STORE_SERVER_BEAT,
                                        .server = MR_SLICE_LIT("me"),
                                        .apps = MR_SLICE_LIT("a\nb"),
                                        .ttl_ms = 1000};
    struct mr_store_server_list servers = {.req.op = MR_STORE_SERVER_LIST, .max = 10};
    struct mr_store_app_list apps = {.req.op = MR_STORE_APP_LIST, .max = 10};
    (void)call(store, &beat.req);
    (void)call(store, &servers.req);
    (void)call(store, &apps.req);
    mr_store_req_done(&beat.req);
    mr_store_req_done(&servers.req);
    mr_store_req_done(&apps.req);
}

/* Answers how many rows the ledger has and how often the timer has fired. */
static bool look(struct mr_store *store, size_t *ret_rows, uint64_t *ret_fired)
{
    struct mr_store_firing_list firings = {.req.op = MR_STORE_FIRING_LIST, .uid = uid, .max = 100};
    struct mr_store_timer_list timers = {.req.op = MR_STORE_TIMER_LIST, .max = 100};
    bool good = call(store, &firings.req);
    good = call(store, &timers.req) && good;
    if (good) {
        *ret_rows = firings.n;
        *ret_fired = timers.n > 0 ? timers.timers[0].fired : 0;
    }
    mr_store_req_done(&firings.req);
    mr_store_req_done(&timers.req);
    return good;
}

static void run_once(const char *url)
{
    struct mr_store_options options = {.url = url, .away_ms = 2000};
    struct mr_store *store = NULL;
    size_t rows = 0;
    uint64_t fired = 0;
    tally = (struct tally){.opened = false};
    if (mr_store_open(&options, &store, NULL) != MR_OK)
        return;
    tally.opened = true;
    apply(store);
    fire(store);
    lease(store);
    share(store);
    (void)look(store, &rows, &fired);
    mr_store_close(store);
}

/* With the allocator as it should be: all or nothing, and what was answered is there. */
static void check_what_is_there(const char *url, unsigned answered)
{
    struct mr_store_options options = {.url = url};
    struct mr_store *store = NULL;
    size_t rows = 0;
    uint64_t fired = 0;
    assert_int_equal(mr_store_open(&options, &store, NULL), MR_OK);
    assert_true(look(store, &rows, &fired));
    assert_int_equal(rows, fired);
    assert_true(rows == 0 || rows == ITEMS);
    assert_true(answered == 0 || rows == ITEMS);
    mr_store_close(store);
}

/* Every step-th allocation of a run. */
static void fail_allocations(const char *url, long step, void (*empty)(void *arg), void *arg)
{
    unsigned runs = 0, good = 0, bad = 0, closed = 0;
    run_once(url);
    assert_int_equal(tally.bad, 0);
    for (long n = 0;; n += step, runs++) {
        empty(arg);
        fail_alloc_after(n);
        run_once(url);
        long failed = fail_alloc_stop();
        unsigned fired = tally.fired;
        closed += !tally.opened;
        good += tally.opened && tally.bad == 0;
        bad += tally.bad > 0;
        check_what_is_there(url, fired);
        if (failed == 0)
            break;
    }
    print_message("%u runs: %u not opened, %u with errors, %u good\n", runs, closed, bad, good);
    assert_true(!FAILING_ALLOC || (runs > 20 && closed > 0));
}

/* ---- engines -------------------------------------------------------------------------------- */

static char file[256];

static void remove_file(void *arg)
{
    (void)arg;
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char path[300];
        (void)snprintf(path, sizeof path, "%s%s", file, ends[i]);
        (void)unlink(path);
    }
}

static void allocations_of_sqlite_may_fail(void **state)
{
    (void)state;
    char url[300];
    const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
    (void)snprintf(file, sizeof file, "%s/millrace-alloc-%d.db", tmp != NULL ? tmp : "/tmp",
                   (int)getpid());
    (void)snprintf(url, sizeof url, "sqlite:%s", file);
    fail_allocations(url, 97, remove_file, NULL);
    remove_file(NULL);
}

static void drop_schema(void *arg)
{
    (void)postgres_rig_sql(arg, "DROP SCHEMA IF EXISTS millrace CASCADE");
}

static void allocations_of_postgres_may_fail(void **state)
{
    (void)state;
    struct postgres_rig *rig = postgres_rig_start(NULL);
    fail_allocations(postgres_rig_url(rig), 11, drop_schema, rig);
    postgres_rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_of_sqlite_may_fail),
        cmocka_unit_test(allocations_of_postgres_may_fail),
    };
    return cmocka_run_group_tests_name("store: out of memory", tests, NULL, NULL);
}
