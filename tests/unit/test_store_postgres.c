/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can happen to a store of PostgreSQL and to no other: a process that is stopped in the middle of a
 * transaction and wakes up later, a server that hangs, one that is too old or speaks otherwise.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/store.h"
#include "support/postgres_rig.h"

enum { LEASE_MS = 2000, TAKE_OVER_MS = 20000, AWAY_MS = 400, LOOK_MS = 5 };

static struct postgres_rig *rig;

static void look_again(void)
{
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, LOOK_MS * MR_NS_PER_MS);
}

static struct mr_store *open_store(int64_t away_ms)
{
    struct mr_store *store = NULL;
    struct mr_detail detail = {.text = ""};
    struct mr_store_options options = {.url = postgres_rig_url(rig), .away_ms = away_ms};
    enum mr_err err = mr_store_open(&options, &store, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s", mr_err_name(err), detail.text);
    return store;
}

static enum mr_err put(struct mr_store *store, uint64_t version)
{
    struct mr_store_apply item = {.app = MR_SLICE_LIT("a"),
                                  .name = MR_SLICE_LIT("n"),
                                  .uid = {{1}},
                                  .version = version,
                                  .state = MR_ROW_ACTIVE,
                                  .next_ms = 1000};
    struct mr_store_applied result;
    struct mr_store_timers_apply apply = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = &item, .n = 1, .results = &result};
    enum mr_err err = mr_store_call(store, &apply.req);
    mr_store_req_done(&apply.req);
    return err != MR_OK ? err : result.err;
}

static struct mr_store_lease_result acquire(struct mr_store *store, const char *owner)
{
    struct mr_store_lease_item item = {
        .name = MR_SLICE_LIT("app:a"), .owner = mr_slice_str(owner), .ttl_ms = LEASE_MS};
    struct mr_store_lease_result result = {.err = MR_OK};
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
    enum mr_err err = mr_store_call(store, &lease.req);
    result.err = err != MR_OK ? err : result.err;
    return result;
}

static enum mr_err fire(struct mr_store *store, uint64_t token)
{
    struct mr_store_fire item = {
        .uid = {{1}},
        .planned_ms = 1000,
        .state = MR_LEDGER_WAITING,
        .move = {.moves = true, .version = 1, .from_ms = 1000, .to_ms = 2000}};
    struct mr_store_fired result;
    struct mr_store_fire_batch batch = {.req.op = MR_STORE_FIRE,
                                        .fence = {MR_SLICE_LIT("app:a"), token},
                                        .app = MR_SLICE_LIT("a"),
                                        .items = &item,
                                        .n = 1,
                                        .results = &result};
    enum mr_err err = mr_store_call(store, &batch.req);
    mr_store_req_done(&batch.req);
    return err;
}

static int setup(void **state)
{
    (void)state;
    (void)postgres_rig_sql(rig, "DROP SCHEMA IF EXISTS millrace CASCADE");
    return 0;
}

/* ---- a process that is stopped -------------------------------------------------------------- */

_Noreturn static void fire_in_a_process(int out)
{
    struct mr_store *store = open_store(0);
    uint64_t token = acquire(store, "stopped").token;
    enum mr_err err = fire(store, token);
    _exit(write(out, &err, sizeof err) == sizeof err ? 0 : 1);
}

/* Its row is being written, slowly; so it holds the locks of the lease and of the app. */
static bool is_firing(void)
{
    return postgres_rig_sql(rig, "SELECT count(*) FROM pg_stat_activity WHERE application_name ="
                                 " 'millrace' AND state = 'active' AND wait_event = 'PgSleep'") > 0;
}

static void who_was_stopped_in_a_transaction_keeps_no_lock_and_fires_nothing_later(void **state)
{
    (void)state;
    struct mr_store *store = open_store(0);
    assert_int_equal(put(store, 1), MR_OK);
    mr_store_close(store); /* no thread of ours is alive when we fork */
    (void)postgres_rig_sql(rig,
                           "CREATE FUNCTION millrace.slow() RETURNS trigger LANGUAGE plpgsql AS"
                           " $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$;"
                           " CREATE TRIGGER slow BEFORE INSERT ON millrace.firing"
                           " FOR EACH ROW EXECUTE FUNCTION millrace.slow()");
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        fire_in_a_process(ends[1]);
    (void)close(ends[1]);
    while (!is_firing())
        look_again();
    assert_int_equal(kill(pid, SIGSTOP), 0);
    store = open_store(0);
    mr_mono since = mr_mono_now(mr_clock_system());
    struct mr_store_lease_result mine;
    while ((mine = acquire(store, "other")).err != MR_OK)
        look_again();
    int64_t took_ms = (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
    print_message("taken over after %lld ms\n", (long long)took_ms);
    assert_true(took_ms < TAKE_OVER_MS);
    assert_int_equal(kill(pid, SIGCONT), 0);
    enum mr_err err = MR_OK;
    assert_int_equal(read(ends[0], &err, sizeof err), sizeof err);
    assert_int_equal(err, MR_STALE);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(ends[0]);
    assert_int_equal(postgres_rig_sql(rig, "SELECT count(*) FROM millrace.firing"), 0);
    assert_int_equal(fire(store, acquire(store, "other").token), MR_OK);
    mr_store_close(store);
}

/* ---- a server that hangs -------------------------------------------------------------------- */

static void a_server_that_does_not_answer_is_out_of_reach_in_time(void **state)
{
    (void)state;
    struct mr_store *store = open_store(AWAY_MS);
    assert_int_equal(put(store, 1), MR_OK);
    pid_t backend = (pid_t)postgres_rig_sql(
        rig, "SELECT pid FROM pg_stat_activity WHERE application_name = 'millrace'");
    assert_true(backend > 0);
    assert_int_equal(kill(backend, SIGSTOP), 0);
    /* It is given up and another connection is made, which answers. */
    mr_mono since = mr_mono_now(mr_clock_system());
    enum mr_err err = put(store, 2);
    assert_true(err == MR_OK || err == MR_UNAVAILABLE);
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns >= AWAY_MS * MR_NS_PER_MS);
    while (put(store, 3) != MR_OK)
        look_again();
    assert_int_equal(kill(backend, SIGCONT), 0);
    mr_store_close(store);
}

/* ---- what it may be ------------------------------------------------------------------------- */

static void a_database_of_another_encoding_is_refused_with_its_name(void **state)
{
    (void)state;
    (void)postgres_rig_sql(rig, "DROP DATABASE IF EXISTS latin");
    (void)postgres_rig_sql(rig, "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'"
                                " LC_COLLATE 'C' LC_CTYPE 'C'");
    char url[512];
    (void)snprintf(url, sizeof url, "postgresql://mill@127.0.0.1:%u/latin", postgres_rig_port(rig));
    struct mr_store *store = NULL;
    struct mr_detail detail = {.text = ""};
    struct mr_store_options options = {.url = url};
    assert_int_equal(mr_store_open(&options, &store, &detail), MR_UNSUPPORTED);
    assert_non_null(strstr(detail.text, "LATIN1"));
    (void)postgres_rig_sql(rig, "DROP DATABASE latin");
}

static void a_url_with_an_unknown_part_is_refused_with_its_name(void **state)
{
    (void)state;
    struct mr_store *store = NULL;
    struct mr_detail detail = {.text = ""};
    struct mr_store_options options = {.url = "postgres://mill@127.0.0.1/x?colour=red"};
    assert_int_equal(mr_store_open(&options, &store, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "colour"));
}

static void a_password_is_in_no_message(void **state)
{
    (void)state;
    struct mr_store *store = NULL;
    struct mr_detail detail = {.text = ""};
    char url[512];
    (void)snprintf(url, sizeof url, "postgresql://nobody:sesame@127.0.0.1:%u/none",
                   postgres_rig_port(rig));
    struct mr_store_options options = {.url = url};
    assert_int_not_equal(mr_store_open(&options, &store, &detail), MR_OK);
    assert_true(detail.text[0] != '\0');
    assert_null(strstr(detail.text, "sesame"));
}

static void commits_are_synced_also_where_the_server_would_not(void **state)
{
    (void)state;
    (void)postgres_rig_sql(rig, "ALTER ROLE mill SET synchronous_commit = off");
    struct mr_store *store = open_store(0);
    assert_int_equal(put(store, 1), MR_OK);
    (void)postgres_rig_sql(rig,
                           "CREATE TABLE millrace.seen (setting text);"
                           " CREATE FUNCTION millrace.see() RETURNS trigger LANGUAGE plpgsql AS"
                           " $$ BEGIN INSERT INTO millrace.seen SELECT"
                           " current_setting('synchronous_commit'); RETURN NEW; END $$;"
                           " CREATE TRIGGER see BEFORE UPDATE ON millrace.timer"
                           " FOR EACH ROW EXECUTE FUNCTION millrace.see()");
    assert_int_equal(put(store, 2), MR_OK);
    assert_int_equal(
        postgres_rig_sql(rig, "SELECT count(*) FROM millrace.seen WHERE setting = 'on'"), 1);
    mr_store_close(store);
    (void)postgres_rig_sql(rig, "ALTER ROLE mill RESET synchronous_commit");
}

#define TEST(function) cmocka_unit_test_setup(function, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_was_stopped_in_a_transaction_keeps_no_lock_and_fires_nothing_later),
        TEST(a_server_that_does_not_answer_is_out_of_reach_in_time),
        TEST(a_database_of_another_encoding_is_refused_with_its_name),
        TEST(a_url_with_an_unknown_part_is_refused_with_its_name),
        TEST(a_password_is_in_no_message),
        TEST(commits_are_synced_also_where_the_server_would_not),
    };
    rig = postgres_rig_start(NULL);
    int failed = cmocka_run_group_tests_name("store on postgres", tests, NULL, NULL);
    postgres_rig_stop(rig);
    return failed;
}
