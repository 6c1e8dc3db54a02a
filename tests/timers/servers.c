/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers that are processes, on one Redis and one PostgreSQL: killed, stopped, cut off. They are the program itself,
 * $MILLRACE; the worker is in the test, where each run is noted.
 */
#include <stdio.h>

#include "base/rand.h"
#include "support/forwarder.h"
#include "support/postgres_rig.h"
#include "support/program.h"
#include "support/redis_rig.h"
#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL
#define ALL    0

enum { SERVERS = 2, ARG_MAX_LEN = PROGRAM_TEXT_MAX, LEASE_MS = 2000 };

struct server {
    struct program program;
    char broker[ARG_MAX_LEN], store[ARG_MAX_LEN], data[ARG_MAX_LEN];
};

static void server_start(struct server *server)
{
    struct program_args args = {0};
    program_arg(&args, "serve");
    program_arg(&args, "--data");
    program_arg(&args, "%s", server->data);
    program_arg(&args, "--broker");
    program_arg(&args, "%s", server->broker);
    program_arg(&args, "--store");
    program_arg(&args, "%s", server->store);
    program_arg(&args, "--listen");
    program_arg(&args, "127.0.0.1:0");
    program_arg(&args, "--grpc");
    program_arg(&args, "127.0.0.1:0");
    program_arg(&args, "--timer-lease");
    program_arg(&args, "2s");
    program_start(&server->program, &args);
    program_await_ready(&server->program);
}

static void server_kill(struct server *server)
{
    program_kill(&server->program);
}

/* Servers on the bench, by sockets or by ports that the test can cut. */
static void server_init(struct bench *bench, struct server *server, size_t i)
{
    *server = (struct server){0};
    snprintf(server->broker, sizeof server->broker, "%s", redis_rig_url(bench->redis));
    snprintf(server->store, sizeof server->store, "%s", bench->store_url);
    snprintf(server->data, sizeof server->data, "%s/server-%zu", bench->dir, i);
    snprintf(server->program.log, sizeof server->program.log, "%s/server-%zu.log", bench->dir, i);
}

static void start_all(struct bench *bench, struct server servers[SERVERS])
{
    for (size_t i = 0; i < SERVERS; i++) {
        server_init(bench, &servers[i], i);
        server_start(&servers[i]);
    }
}

static bool fires(struct bench *bench, int64_t since_ms)
{
    return bench_caught_up(bench, "t-0", since_ms);
}

static void test_64_the_owner_is_killed_again_and_again(void **state)
{
    (void)state;
    size_t timers = rig_full() ? 200 : 20, kills = rig_full() ? 100 : 1;
    struct bench *bench = bench_new_shared(8);
    struct server servers[SERVERS];
    start_all(bench, servers);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "500ms", .misfire = MR_MISFIRE_ALL),
                   "t-%zu", timers);
    BENCH_UNTIL(bench_runs(bench) > timers);
    for (size_t i = 0; i < kills; i++) {
        /* One of them has it; when that one is gone it is the other's. */
        struct server *victim = &servers[i % SERVERS];
        bench_sleep_ms((int64_t)mr_rand_below(mr_rand_of_thread(), 300));
        server_kill(victim);
        int64_t now_ms = bench_now_ms(bench);
        BENCH_UNTIL(fires(bench, now_ms));
        server_start(victim);
    }
    bench_check_all(bench, timers, bench_now_ms(bench));
    for (size_t i = 0; i < SERVERS; i++)
        server_kill(&servers[i]);
    bench_free(bench);
}

/* ---- the apps are shared ------------------------------------------------------------------------ */

enum { APPS = 6, ALL_SERVERS = 3 };

static void put_apps(struct bench *bench)
{
    for (size_t i = 0; i < APPS; i++) {
        snprintf(bench->app, sizeof bench->app, "app-%zu", i);
        bench_put_many(bench,
                       BENCH_TIMER("", MR_TIMER_EVERY, "200ms", .misfire = MR_MISFIRE_ALL,
                                   .queue = MR_SLICE_LIT(MR_TIMER_APP)),
                       "t-%zu", rig_full() ? 20 : 2);
    }
}

static void check_apps(struct bench *bench)
{
    int64_t to_ms = bench_now_ms(bench);
    for (size_t i = 0; i < APPS; i++) {
        snprintf(bench->app, sizeof bench->app, "app-%zu", i);
        bench_check_all(bench, rig_full() ? 20 : 2, to_ms);
    }
}

/* So late was the latest of the first timers of all apps, planned since then. */
static int64_t latest_ms(struct bench *bench, int64_t since_ms)
{
    int64_t most_ms = 0;
    for (size_t i = 0; i < APPS; i++) {
        size_t n;
        snprintf(bench->app, sizeof bench->app, "app-%zu", i);
        struct bench_row *rows = bench_rows(bench, "t-0", &n);
        for (size_t j = 0; j < n; j++) {
            int64_t late_ms = rows[j].fired_ms - rows[j].planned_ms;
            if (rows[j].planned_ms >= since_ms && late_ms > most_ms)
                most_ms = late_ms;
        }
        free(rows);
    }
    return most_ms;
}

/* What `timer status` says at a server: whose each app is. */
static bool shows(const struct server *server, const struct bench_owners *owners)
{
    char command[ARG_MAX_LEN], text[8192], app[MR_STORE_OWNER_MAX + 64];
    snprintf(command, sizeof command, "\"$MILLRACE\" --broker millrace://%s timer status --json",
             server->program.grpc);
    FILE *output = popen(command, "re");
    assert_non_null(output);
    text[fread(text, 1, sizeof text - 1, output)] = '\0';
    (void)pclose(output);
    for (size_t i = 0; i < owners->apps; i++) {
        snprintf(app, sizeof app, "{\"app\":\"app-%zu\",\"owner\":\"%s\"", i, owners->names[i]);
        if (strstr(text, app) == NULL)
            return false;
    }
    return true;
}

static void test_60_apps_are_shared_by_servers_that_come_and_die(void **state)
{
    (void)state;
    struct bench *bench = bench_new_shared(8);
    struct bench_owners before;
    struct server servers[ALL_SERVERS];
    size_t rounds = rig_full() ? 20 : 1;
    for (size_t i = 0; i < ALL_SERVERS; i++)
        server_init(bench, &servers[i], i);
    server_start(&servers[0]);
    put_apps(bench);
    BENCH_UNTIL(bench_is_shared(bench, 1, APPS));
    server_start(&servers[1]);
    BENCH_UNTIL(bench_is_shared(bench, 2, APPS / 2));
    for (size_t i = 0; i < rounds; i++) {
        struct server *comes = &servers[(i + 2) % ALL_SERVERS];
        int64_t since_ms = bench_now_ms(bench);
        bench_owners(bench, &before);
        server_start(comes);
        BENCH_UNTIL(bench_is_shared(bench, ALL_SERVERS, APPS / ALL_SERVERS));
        assert_int_equal(bench_moved(bench, &before), APPS / ALL_SERVERS); /* and no more */
        bench_owners(bench, &before);
        assert_true(shows(comes, &before));
        printf("60: while apps changed hands firings were up to %lld ms late\n",
               (long long)latest_ms(bench, since_ms));
        server_kill(&servers[i % ALL_SERVERS]);
        BENCH_UNTIL(bench_is_shared(bench, 2, APPS / 2));
        assert_int_equal(bench_moved(bench, &before), APPS / ALL_SERVERS); /* those it had */
    }
    check_apps(bench);
    for (size_t i = 0; i < ALL_SERVERS; i++)
        server_kill(&servers[i]);
    bench_free(bench);
}

static void test_61_an_owner_that_was_stopped_fires_nothing(void **state)
{
    (void)state;
    int64_t stopped_ms = rig_full() ? 30 * SECOND : LEASE_MS + SECOND;
    struct bench *bench = bench_new_shared(4);
    struct server servers[SERVERS];
    start_all(bench, servers);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "200ms", .misfire = MR_MISFIRE_ALL),
                   "t-%zu", 5);
    BENCH_UNTIL(bench_runs(bench) > 5);
    for (size_t i = 0; i < SERVERS; i++) { /* one of them is the owner */
        int64_t since_ms = bench_now_ms(bench);
        program_freeze(&servers[i].program);
        BENCH_UNTIL(fires(bench, since_ms + LEASE_MS));
        assert_true(bench_now_ms(bench) - since_ms < LEASE_MS + LEASE_MS + 5 * SECOND);
        while (bench_now_ms(bench) < since_ms + stopped_ms)
            bench_sleep_ms(50);
        program_thaw(&servers[i].program);
    }
    bench_check_all(bench, 5, bench_now_ms(bench));
    for (size_t i = 0; i < SERVERS; i++)
        server_kill(&servers[i]);
    bench_free(bench);
}

/* By the port of the cable instead of its own. */
static void through(char url[ARG_MAX_LEN], uint16_t from, uint16_t to)
{
    char old[16], copy[ARG_MAX_LEN];
    snprintf(old, sizeof old, ":%u", from);
    snprintf(copy, sizeof copy, "%s", url);
    char *at = strstr(copy, old);
    assert_non_null(at);
    snprintf(url, ARG_MAX_LEN, "%.*s:%u%s", (int)(at - copy), copy, to, at + strlen(old));
}

/* Cut off from the store: somebody else takes over. From the broker: likewise, when that lasts. */
static void cut_off(bool from_store)
{
    struct bench *bench = bench_new_shared(4);
    struct server servers[SERVERS];
    struct forwarder cable = {0};
    for (size_t i = 0; i < SERVERS; i++)
        server_init(bench, &servers[i], i);
    uint16_t to = from_store ? (uint16_t)postgres_rig_port(bench->postgres)
                             : redis_rig_server(bench->redis, 0)->port;
    assert_int_equal(forwarder_start(&cable, to), MR_OK);
    if (from_store)
        snprintf(servers[0].store, sizeof servers[0].store, "postgresql://mill@127.0.0.1:%u/%s",
                 cable.port, bench->database);
    else
        through(servers[0].broker, to, cable.port);
    server_start(&servers[0]);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "250ms", .misfire = MR_MISFIRE_ALL),
                   "t-%zu", 5);
    BENCH_UNTIL(bench_runs(bench) > 5);
    server_start(&servers[1]); /* so that the first one owns it */
    atomic_store(&cable.frozen, true);
    int64_t since_ms = bench_now_ms(bench);
    size_t runs = bench_runs(bench);
    BENCH_UNTIL(fires(bench, since_ms + SECOND) && bench_runs(bench) > runs + 20);
    atomic_store(&cable.frozen, false);
    bench_check_all(bench, 5, bench_now_ms(bench));
    for (size_t i = 0; i < SERVERS; i++)
        server_kill(&servers[i]);
    forwarder_stop(&cable);
    bench_free(bench);
}

static void test_62_an_owner_without_the_store_is_replaced(void **state)
{
    (void)state;
    cut_off(true);
}

/* It gives up when the broker has been away for longer than a moment. */
static void test_62_an_owner_without_the_broker_is_replaced(void **state)
{
    (void)state;
    cut_off(false);
}

/* It would be given apps all the time, and let them wait, if it counted as there meanwhile. */
static void test_62_who_reaches_the_broker_again_has_its_share_again(void **state)
{
    (void)state;
    struct bench *bench = bench_new_shared(8);
    struct server servers[SERVERS];
    struct forwarder cable = {0};
    uint16_t to = redis_rig_server(bench->redis, 0)->port;
    for (size_t i = 0; i < SERVERS; i++)
        server_init(bench, &servers[i], i);
    assert_int_equal(forwarder_start(&cable, to), MR_OK);
    through(servers[0].broker, to, cable.port);
    for (size_t i = 0; i < SERVERS; i++)
        server_start(&servers[i]);
    put_apps(bench);
    BENCH_UNTIL(bench_is_shared(bench, 2, APPS / 2));
    atomic_store(&cable.frozen, true);
    BENCH_UNTIL(bench_is_shared(bench, 1, APPS));
    int64_t since_ms = bench_now_ms(bench);
    while (bench_now_ms(bench) < since_ms + 4 * LEASE_MS) { /* it does not come back */
        assert_true(bench_is_shared(bench, 1, APPS));
        bench_sleep_ms(50);
    }
    atomic_store(&cable.frozen, false);
    BENCH_UNTIL(bench_is_shared(bench, 2, APPS / 2));
    check_apps(bench);
    for (size_t i = 0; i < SERVERS; i++)
        server_kill(&servers[i]);
    forwarder_stop(&cable);
    bench_free(bench);
}

int timers_servers(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_60_apps_are_shared_by_servers_that_come_and_die),
        cmocka_unit_test(test_64_the_owner_is_killed_again_and_again),
        cmocka_unit_test(test_61_an_owner_that_was_stopped_fires_nothing),
        cmocka_unit_test(test_62_an_owner_without_the_store_is_replaced),
        cmocka_unit_test(test_62_an_owner_without_the_broker_is_replaced),
        cmocka_unit_test(test_62_who_reaches_the_broker_again_has_its_share_again),
    };
    /* The last two wait until a broker counts as away, which takes more than ten seconds. */
    size_t n = sizeof tests / sizeof *tests - (rig_full() ? 0 : 2);
    int failed = timers_run("servers", tests, n);
    bench_shared_end();
    return failed;
}
