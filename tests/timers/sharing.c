/* SPDX-License-Identifier: Apache-2.0 */
/* Several servers, one store, one broker: never twice, none missing. */
#include <sqlite3.h>
#include <stdio.h>

#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL
#define ALL    0
#define BIT    MR_LEDGER_BIT

static struct bench *two_servers(void)
{
    struct bench *bench = bench_new(8);
    bench->settings = (struct mr_timer_settings){.lease_ms = 1000, .renew_ms = 300};
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    bench_serve(bench, 1);
    return bench;
}

static size_t owner_of(struct bench *bench)
{
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        struct mr_scheduler_figures figures = {0};
        if (bench->servers[i].scheduler != NULL)
            mr_scheduler_figures(bench->servers[i].scheduler, &figures);
        if (figures.apps_owned > 0)
            return i;
    }
    return BENCH_SERVERS_MAX;
}

static size_t all_ended(struct bench *bench, const char *name, size_t n)
{
    char text[64];
    size_t open = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s-%zu", name, i);
        open += bench_count(bench, text, MR_LEDGER_OPEN);
    }
    return open == 0;
}

static void test_60_two_servers_share_one_app(void **state)
{
    (void)state;
    size_t timers = rig_full() ? 1000 : 50;
    int64_t seconds = rig_full() ? 300 : 3;
    struct bench *bench = two_servers();
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "1s", .misfire = MR_MISFIRE_ALL), "t-%zu",
                   timers);
    int64_t to_ms = bench_now_ms(bench) + seconds * SECOND;
    while (bench_now_ms(bench) < to_ms)
        bench_sleep_ms(50);
    bench_check_all(bench, timers, to_ms);
    bench_free(bench);
}

static void test_65_two_servers_of_one_machine_are_two_owners(void **state)
{
    (void)state;
    struct bench *bench = two_servers();
    struct mr_scheduler_figures figures;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "100ms"));
    BENCH_UNTIL(bench_runs(bench) > 3);
    bench_figures(bench, &figures);
    assert_int_equal(figures.apps_owned, 1); /* of the two, one */
    size_t owner = owner_of(bench);
    bench_unserve(bench, owner);
    size_t runs = bench_runs(bench);
    BENCH_UNTIL(bench_runs(bench) > runs + 3);
    assert_int_equal(owner_of(bench), 1 - owner);
    bench_serve(bench, owner);
    bench_free(bench);
}

/* ---- apps are shared ---------------------------------------------------------------------------- */

/* One timer each, of apps 0 to n - 1. */
static void put_apps(struct bench *bench, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(bench->app, sizeof bench->app, "app-%zu", i);
        bench_put(bench, BENCH_TIMER("t-0", MR_TIMER_EVERY, "100ms", .misfire = MR_MISFIRE_ALL,
                                     .queue = MR_SLICE_LIT(MR_TIMER_APP)));
    }
}

static void check_apps(struct bench *bench, size_t n, int64_t to_ms)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(bench->app, sizeof bench->app, "app-%zu", i);
        bench_check_all(bench, 1, to_ms);
    }
}

/* Their leases last for a minute: what changes hands has been given. */
static struct bench *patient_server(void)
{
    struct bench *bench = bench_new(8);
    bench->settings = (struct mr_timer_settings){.lease_ms = 60 * SECOND, .renew_ms = 500};
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    return bench;
}

static void test_60_servers_share_the_apps_alike(void **state)
{
    (void)state;
    struct bench *bench = patient_server();
    struct bench_owners before;
    put_apps(bench, 6);
    BENCH_UNTIL(bench_is_shared(bench, 1, 6));
    bench_serve(bench, 1);
    BENCH_UNTIL(bench_is_shared(bench, 2, 3));
    bench_owners(bench, &before);
    bench_serve(bench, 2);
    BENCH_UNTIL(bench_is_shared(bench, 3, 2));
    assert_int_equal(bench_moved(bench, &before), 2);
    bench_unserve(bench, 1);
    BENCH_UNTIL(bench_is_shared(bench, 2, 3));
    size_t runs = bench_runs(bench);
    BENCH_UNTIL(bench_runs(bench) > runs + 12);
    check_apps(bench, 6, bench_now_ms(bench));
    bench_free(bench);
}

static void test_60_apps_that_change_hands_again_and_again_fire_each_time_once(void **state)
{
    (void)state;
    size_t rounds = rig_full() ? 100 : 5;
    struct bench *bench = patient_server();
    bench_serve(bench, 1);
    put_apps(bench, 12);
    for (size_t i = 0; i < rounds; i++) {
        BENCH_UNTIL(bench_is_shared(bench, 2, 6));
        size_t new = (i + 2) % BENCH_SERVERS_MAX;
        bench_serve(bench, new);
        BENCH_UNTIL(bench_is_shared(bench, 3, 4));
        bench_unserve(bench, (new + 1) % BENCH_SERVERS_MAX);
    }
    check_apps(bench, 12, bench_now_ms(bench));
    bench_free(bench);
}

static bool has_own_apps(struct bench *bench, struct bench_owners *owners)
{
    bench_owners(bench, owners);
    return owners->apps == 5 && owners->nobodys == 0 &&
           strcmp(owners->names[1], owners->names[4]) == 0;
}

static void test_60_a_server_is_given_only_the_apps_that_it_is_there_for(void **state)
{
    (void)state;
    static const char *const names[] = {"app-1", "app-9"}; /* of the second there is no timer */
    struct bench *bench = patient_server();
    struct bench_owners owners;
    struct mr_scheduler_options options = {.broker = bench->broker,
                                           .store = bench->store,
                                           .clock = &bench->clock.clock,
                                           .apps = names,
                                           .apps_n = 2,
                                           .settings = &bench->settings};
    put_apps(bench, 4);
    BENCH_UNTIL(bench_is_shared(bench, 1, 4));
    assert_int_equal(mr_scheduler_start(&options, &bench->servers[1].scheduler), MR_OK);
    BENCH_UNTIL(has_own_apps(bench, &owners));
    assert_string_equal(owners.names[0], owners.names[2]);
    assert_string_equal(owners.names[0], owners.names[3]);
    assert_string_not_equal(owners.names[0], owners.names[1]);
    check_apps(bench, 4, bench_now_ms(bench));
    bench_free(bench);
}

/* In front of the broker: notes as whose tasks are made. */
struct watched {
    struct mr_broker broker;
    struct mr_broker *real;
    struct bench *bench;
    struct mr_event ready;          /* the server is in the bench: nothing is carried out before */
    _Atomic size_t made, made_late; /* late: after the clocks had gone on, in the same ownership */
};

static void watched_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct watched *w = mr_container(broker, struct watched, broker);
    struct mr_scheduler_figures figures = {0};
    assert_true(mr_event_wait(&w->ready, BENCH_WAIT_MS * MR_NS_PER_MS));
    if (req->op == MR_OP_ENQUEUE) {
        mr_scheduler_figures(w->bench->servers[0].scheduler, &figures);
        atomic_fetch_add(&w->made, 1);
        if (atomic_load(&w->bench->stall_ms) == 0 && figures.owned == 1)
            atomic_fetch_add(&w->made_late, 1);
    }
    mr_broker_submit(w->real, req);
}

static enum mr_err watched_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    return mr_broker_lease_open(mr_container(broker, struct watched, broker)->real, lease);
}

static const struct mr_broker_ops watched_ops = {.submit = watched_submit,
                                                 .lease_open = watched_lease_open};

/* It stands still between the row and the task, for longer than its lease: others may have made the task by then. */
static void test_61_who_stood_still_makes_no_task_of_what_it_has_written(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    struct watched watched = {.broker.ops = &watched_ops, .real = bench->broker, .bench = bench};
    bench_unserve(bench, 0);
    bench_put(bench, BENCH_TIMER("told", MR_TIMER_DELAY, "1ms", .misfire = MR_MISFIRE_SKIP));
    bench_put(bench, BENCH_TIMER("t-0", MR_TIMER_DELAY, "1ms", .misfire = MR_MISFIRE_ALL));
    bench_set_wall(bench, 10 * SECOND); /* both have missed their time, and are written together */
    atomic_store(&bench->stall_ms, 60 * SECOND);
    bench->broker = &watched.broker;
    mr_event_init(&watched.ready);
    bench_serve(bench, 0);
    mr_event_set(&watched.ready);
    BENCH_UNTIL(bench_count(bench, "t-0", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    assert_int_equal(bench_count(bench, "told", BIT(MR_LEDGER_MISFIRED)), 1);
    assert_int_equal(atomic_load(&watched.made_late), 0);
    assert_true(atomic_load(&watched.made) > 0);
    assert_int_equal(bench_runs(bench), 1);
    bench_unserve(bench, 0);
    bench->broker = watched.real;
    bench_free(bench);
}

/* The owner holds a firing that the ledger has, but no task; then it is gone. */
static void test_63_what_was_recorded_and_not_dispatched_is_dispatched(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "1h"));
    BENCH_UNTIL(owner_of(bench) == 0);
    bench_unserve(bench, 0);
    bench_leave_waiting(bench, "t");
    bench_serve(bench, 1);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(bench_runs(bench), 1);
    bench_serve(bench, 0);
    bench_free(bench);
}

/* It was dispatched, but the ledger does not say so. */
static void test_63_what_was_dispatched_and_not_recorded_runs_once(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_DELAY, "1ms", .payload = MR_SLICE_LIT("sleep 500")));
    BENCH_UNTIL(bench_runs(bench) == 1);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_DISPATCHED);
    bench_unserve(bench, 0);
    struct bench_timer timer;
    assert_true(bench_timer(bench, "t", &timer));
    struct mr_store_set set = {.uid = timer.uid,
                               .planned_ms = bench_row(bench, "t", 0).planned_ms,
                               .from = BIT(MR_LEDGER_DISPATCHED),
                               .to = MR_LEDGER_WAITING};
    struct mr_store_set_result result;
    struct mr_store_firing_set req = {.req.op = MR_STORE_FIRING_SET,
                                      .app = MR_SLICE_LIT("default"),
                                      .items = &set,
                                      .n = 1,
                                      .results = &result};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_store_req_done(&req.req);
    bench_serve(bench, 1);
    BENCH_UNTIL(bench_row(bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(bench_runs(bench), 1);
    bench_serve(bench, 0);
    bench_free(bench);
}

/* A lease that was taken away, as of an owner that did not run for a while. */
static void test_61_who_lost_its_lease_fires_nothing(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    struct mr_scheduler_figures figures;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "200ms", .misfire = MR_MISFIRE_ALL));
    BENCH_UNTIL(bench_runs(bench) > 2);
    /* Somebody else has it from now on: the store says so, whatever the owner believes. */
    struct mr_store_lease_row row;
    struct mr_store_lease_list list = {
        .req.op = MR_STORE_LEASE_LIST, .prefix = MR_SLICE_LIT("app:"), .max = 10};
    assert_int_equal(mr_store_call(bench->store, &list.req), MR_OK);
    assert_int_equal(list.n, 1);
    row = list.leases[0];
    struct mr_store_lease_item items[2] = {
        {MR_LEASE_RELEASE, row.name, row.owner, row.token, 0},
        {MR_LEASE_ACQUIRE, row.name, MR_SLICE_LIT("another"), 0, 1500},
    };
    struct mr_store_lease_result results[2];
    struct mr_store_lease req = {
        .req.op = MR_STORE_LEASE, .items = items, .n = 2, .results = results};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(results[1].err, MR_OK);
    int64_t taken_ms = bench_now_ms(bench);
    mr_store_req_done(&req.req);
    mr_store_req_done(&list.req);
    size_t rows = bench_count(bench, "t", ALL);
    while (bench_now_ms(bench) < taken_ms + 1200)
        bench_sleep_ms(20);
    assert_int_equal(bench_count(bench, "t", ALL), rows);
    bench_figures(bench, &figures);
    assert_int_equal(figures.lost, 1);
    BENCH_UNTIL(bench_count(bench, "t", ALL) > rows + 5); /* it is free again */
    int64_t to_ms = bench_now_ms(bench);
    BENCH_UNTIL(bench_caught_up(bench, "t", to_ms));
    bench_pause(bench, "t");
    BENCH_UNTIL(bench_count(bench, "t", MR_LEDGER_OPEN) == 0);
    bench_check(bench, "t", to_ms);
    bench_free(bench);
}

static size_t runs_with(struct bench *bench, const char *payload)
{
    size_t n = 0;
    mr_lock_enter(&bench->lock);
    for (size_t i = 0; i < bench->runs_n; i++)
        n += strcmp(bench->runs[i].payload, payload) == 0;
    mr_lock_leave(&bench->lock);
    return n;
}

/* Firings that nobody had looked at within a second. */
static size_t caught_up(struct bench *bench, const char *name, size_t n)
{
    char text[64];
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s-%zu", name, i);
        found += bench_row(bench, text, 0).kind == MR_LEDGER_CAUGHT_UP;
    }
    return found;
}

/* What is due from now on is on time. */
static void check_on_time(struct bench *bench, const char *name)
{
    size_t seen = bench_count(bench, name, ALL), n;
    BENCH_UNTIL(bench_count(bench, name, ALL) >= seen + 5);
    bench_pause(bench, name);
    BENCH_UNTIL(bench_count(bench, name, MR_LEDGER_OPEN) == 0);
    struct bench_row *rows = bench_rows(bench, name, &n);
    for (size_t i = seen + 2; i < n; i++)
        assert_int_equal(rows[i].kind, MR_LEDGER_PLANNED);
    bench_check(bench, name, rows[n - 1].planned_ms);
    free(rows);
}

static void test_57_many_in_the_same_second(void **state)
{
    (void)state;
    size_t n = rig_full() ? 10000 : 500;
    struct bench *bench = two_servers();
    bench_serve(bench, 2);
    bench_put_many(
        bench,
        BENCH_TIMER("", MR_TIMER_DELAY, rig_full() ? "30s" : "2s", .payload = MR_SLICE_LIT("many")),
        "t-%zu", n);
    bench_put(bench, BENCH_TIMER("later", MR_TIMER_EVERY, "250ms"));
    mr_mono since = mr_mono_now(mr_clock_system());
    while (runs_with(bench, "many") < n) {
        bench_sleep_ms(50);
        assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < 90 * MR_NS_PER_S);
    }
    check_on_time(bench, "later");
    struct mr_scheduler_figures figures;
    bench_figures(bench, &figures);
    printf("57: %zu timers, lateness of tasks p50 %llu us, p99 %llu us, of runs p99 %llu us\n", n,
           (unsigned long long)mr_hist_percentile_us(&figures.lateness, NULL, 50),
           (unsigned long long)mr_hist_percentile_us(&figures.lateness, NULL, 99),
           (unsigned long long)bench_lateness_us(bench, 99));
    uint64_t most_ms = rig_alone() ? 200 : rig_full() ? 5 * SECOND : SECOND;
    assert_true(mr_hist_percentile_us(&figures.lateness, NULL, 99) <
                most_ms * (uint64_t)MR_US_PER_MS);
    if (rig_alone() || !rig_full())
        assert_true(caught_up(bench, "t", n) <= n / 100);
    BENCH_UNTIL(all_ended(bench, "t", n));
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "t-%zu", i);
        bench_check(bench, name, bench_now_ms(bench));
    }
    bench_free(bench);
}

static void test_66_clocks_that_differ_double_nothing(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    struct bench_clock ahead = bench->clock;
    bench->settings = (struct mr_timer_settings){.lease_ms = 1000, .renew_ms = 300};
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    ahead.wall_us += 2 * SECOND * MR_US_PER_MS;
    bench_put(bench, BENCH_TIMER("t", MR_TIMER_EVERY, "250ms", .misfire = MR_MISFIRE_ALL));
    BENCH_UNTIL(bench_runs(bench) > 2);
    /* One of them is 2 s ahead of the other, and they take turns. */
    for (int round = 0; round < 2; round++) {
        struct mr_scheduler_options options = {.broker = bench->broker,
                                               .store = bench->store,
                                               .clock = &ahead.clock,
                                               .settings = &bench->settings};
        assert_int_equal(mr_scheduler_start(&options, &bench->servers[1].scheduler), MR_OK);
        bench_unserve(bench, 0);
        size_t runs = bench_runs(bench);
        BENCH_UNTIL(bench_runs(bench) > runs + 2);
        bench_serve(bench, 0);
        bench_unserve(bench, 1);
        runs = bench_runs(bench);
        BENCH_UNTIL(bench_runs(bench) > runs + 2);
    }
    int64_t to_ms = bench_now_ms(bench);
    BENCH_UNTIL(bench_caught_up(bench, "t", to_ms));
    bench_pause(bench, "t");
    BENCH_UNTIL(bench_count(bench, "t", MR_LEDGER_OPEN) == 0);
    bench_check(bench, "t", to_ms);
    bench_free(bench);
}

/* A firing waits for the store for so long that an end which waits for that firing is not put off any more. */
static void test_ends_that_were_put_off_are_written_once(void **state)
{
    (void)state;
    struct bench *bench = bench_new(4);
    char path[BENCH_DIR_MAX + 16];
    sqlite3 *other;
    bench_put(bench,
              BENCH_TIMER("run", MR_TIMER_DELAY, "1ms", .payload = MR_SLICE_LIT("sleep 600")));
    BENCH_UNTIL(bench_runs(bench) > 0);
    bench_put(bench, BENCH_TIMER("waits", MR_TIMER_DELAY, "200ms"));
    snprintf(path, sizeof path, "%s/store.db", bench->dir);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    (void)sqlite3_busy_timeout(other, BENCH_WAIT_MS);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    bench_sleep_ms(1500);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    BENCH_UNTIL(bench_count(bench, "run", BIT(MR_LEDGER_SUCCEEDED)) == 1 &&
                bench_count(bench, "waits", BIT(MR_LEDGER_SUCCEEDED)) == 1);
    bench_check(bench, "run", bench_now_ms(bench));
    bench_check(bench, "waits", bench_now_ms(bench));
    bench_free(bench);
}

int timers_sharing(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_57_many_in_the_same_second),
        cmocka_unit_test(test_60_two_servers_share_one_app),
        cmocka_unit_test(test_60_servers_share_the_apps_alike),
        cmocka_unit_test(test_60_apps_that_change_hands_again_and_again_fire_each_time_once),
        cmocka_unit_test(test_60_a_server_is_given_only_the_apps_that_it_is_there_for),
        cmocka_unit_test(test_61_who_lost_its_lease_fires_nothing),
        cmocka_unit_test(test_61_who_stood_still_makes_no_task_of_what_it_has_written),
        cmocka_unit_test(test_63_what_was_recorded_and_not_dispatched_is_dispatched),
        cmocka_unit_test(test_63_what_was_dispatched_and_not_recorded_runs_once),
        cmocka_unit_test(test_ends_that_were_put_off_are_written_once),
        cmocka_unit_test(test_65_two_servers_of_one_machine_are_two_owners),
        cmocka_unit_test(test_66_clocks_that_differ_double_nothing),
    };
    return timers_run("sharing", tests, sizeof tests / sizeof *tests);
}
