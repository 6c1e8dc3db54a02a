/* SPDX-License-Identifier: Apache-2.0 */
/* 75: a server dies, and what it had accepted is applied: after its restart, or, when its disk is lost, by its replica. */
#include <stdio.h>

#include "client/client.h"
#include "names/rig.h"

enum { TIMERS = 8, TASKS = 12, WORKERS = 8, OPERATIONS = 200, FOLLOW_MS = 10 * 1000 };

static int64_t now_ms(const struct rig *rig)
{
    return bench_now_ms(rig->bench);
}

/* ---- operations that are accepted and cannot be applied --------------------------------------- */

static void timer_name(size_t i, char name[32])
{
    (void)snprintf(name, 32, "op-%zu", i);
}

/* Sends so many, each accepted, while the store is away. */
static void send_operations(struct rig *rig, size_t server)
{
    struct mr_client *client = rig_client(rig, server);
    for (size_t i = 0; i < OPERATIONS; i++) {
        char name[32];
        struct mr_timer_result result;
        timer_name(i, name);
        struct mr_timer_options timer = {
            .name = mr_slice_str(name), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
        struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = &timer};
        assert_int_equal(mr_timer_send(client, &op, 1, MR_TIMER_DURABLE, &result), MR_OK);
        if (result.err != MR_OK)
            fail_msg("operation %zu: %s: %s", i, mr_err_name(result.err), result.why);
    }
    mr_client_close(client);
}

static bool are_applied(struct rig *rig)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        char name[32];
        struct bench_timer timer;
        timer_name(i, name);
        if (!bench_timer(rig->bench, name, &timer))
            return false;
    }
    return true;
}

static void remove_operations(struct rig *rig)
{
    for (size_t i = 0; i < OPERATIONS; i++) {
        char name[32];
        timer_name(i, name);
        bench_delete(rig->bench, name);
    }
}

/* The store of the test itself was away, too. */
static bool answers(struct rig *rig)
{
    struct mr_store_server_list list = {.req.op = MR_STORE_SERVER_LIST, .max = 10};
    enum mr_err err = mr_store_call(rig->bench->store, &list.req);
    mr_store_req_done(&list.req);
    return err == MR_OK;
}

/* ---- with nameservers ------------------------------------------------------------------------- */

static void test_75_a_server_that_dies_leaves_its_timers_to_others(void **state)
{
    (void)state;
    struct rig *rig = rig_make(RIG_NAMESERVERS, RIG_STRAIGHT);
    rig_start(rig, RIG_SERVERS, WORKERS);
    rig_load(rig, TIMERS, "400ms", TASKS);
    BENCH_UNTIL(rig_is_cut(rig, WORKERS / 2) && rig_plan(rig).owners == RIG_SERVERS);
    size_t rounds = rig_full() ? RIG_SERVERS : 1;
    for (size_t i = 0; i < rounds; i++) {
        program_kill(&rig->servers[i]);
        rig->repeats = true;
        int64_t since_ms = now_ms(rig);
        BENCH_UNTIL(rig_is_cut(rig, WORKERS / 2) && rig_plan(rig).owners == RIG_SERVERS - 1);
        BENCH_UNTIL(rig_fires(rig, since_ms + RIG_LEASE_MS));
        int64_t took_ms = now_ms(rig) - since_ms;
        printf("75: its timers fired elsewhere %lld ms after a server was killed\n",
               (long long)took_ms);
        assert_true(took_ms < RIG_LEASE_MS + 5000 || !rig_judges_time());
        while (!rig_is_seen(rig, RIG_SERVERS - 1, WORKERS)) { /* within its timeout */
            assert_true(now_ms(rig) - since_ms < 40 * 1000);
            bench_sleep_ms(50);
        }
        rig_serve(rig, i); /* its tasks are on its disk */
        since_ms = now_ms(rig);
        BENCH_UNTIL(rig_attached(rig, i) == WORKERS);
        took_ms = now_ms(rig) - since_ms;
        printf("75: all workers were at the new server after %lld ms\n", (long long)took_ms);
        assert_true(took_ms < FOLLOW_MS || !rig_judges_time());
        BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS, WORKERS));
    }
    program_stop(&rig->servers[RIG_SERVERS - 1], 0);
    int64_t since_ms = now_ms(rig);
    BENCH_UNTIL(rig_is_seen(rig, RIG_SERVERS - 1, WORKERS));
    assert_true(now_ms(rig) - since_ms < 2000 || !rig_judges_time()); /* it said so */
    rig_serve(rig, RIG_SERVERS - 1);
    rig_check(rig);
    rig_free(rig);
}

/* ---- without ---------------------------------------------------------------------------------- */

/* Operations are accepted by the first server while the store is away; then that server is killed, and the store comes back. */
static void accept_and_die(struct rig *rig)
{
    postgres_rig_crash(rig->bench->postgres);
    send_operations(rig, 0);
    program_kill(&rig->servers[0]);
    postgres_rig_start_again(rig->bench->postgres);
    BENCH_UNTIL(answers(rig));
}

static void test_75_what_a_dead_server_had_accepted_is_applied_after_its_restart(void **state)
{
    (void)state;
    struct rig *rig = rig_make(0, RIG_STRAIGHT);
    rig_serve(rig, 0);
    rig_serve(rig, 1);
    accept_and_die(rig);
    bench_sleep_ms(RIG_LEASE_MS); /* nobody else has it */
    assert_false(are_applied(rig));
    rig_serve(rig, 0);
    BENCH_UNTIL(are_applied(rig));
    remove_operations(rig);
    rig_free(rig);
}

static void
test_75_what_a_server_with_a_lost_disk_had_accepted_is_applied_by_its_replica(void **state)
{
    (void)state;
    struct rig *rig = rig_make(0, RIG_STRAIGHT);
    rig_serve(rig, 1);
    rig->server_args[0] = "--replicas";
    rig->server_args[1] = "1";
    rig->server_args[2] = "--replica-peer";
    rig->server_args[3] = rig->servers[1].grpc;
    rig_serve(rig, 0);
    accept_and_die(rig);
    rig_lose_disk(rig, 0);
    BENCH_UNTIL(are_applied(rig));
    assert_true(program_says(&rig->servers[1], "is gone; operations="));
    rig_serve(rig, 0); /* with an empty one */
    assert_true(are_applied(rig));
    remove_operations(rig);
    rig_free(rig);
}

static bool accepts(struct rig *rig, size_t server)
{
    struct mr_client *client = rig_client(rig, server);
    struct mr_timer_result result;
    struct mr_timer_options timer = {
        .name = MR_SLICE_LIT("first"), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = &timer};
    assert_int_equal(mr_timer_send(client, &op, 1, MR_TIMER_DURABLE, &result), MR_OK);
    mr_client_close(client);
    return result.err == MR_OK;
}

/* Whom to ask for copies the nameserver says. */
static void test_75_replicas_find_each_other_by_nameservers(void **state)
{
    (void)state;
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    rig->server_args[0] = "--replicas";
    rig->server_args[1] = "1";
    rig_start(rig, RIG_SERVERS, 0);
    for (size_t i = 0; i < RIG_SERVERS; i++)
        BENCH_UNTIL(accepts(rig, i));
    accept_and_die(rig);
    rig_lose_disk(rig, 0);
    BENCH_UNTIL(are_applied(rig));
    assert_true(program_says(&rig->servers[1], "is gone; operations=") ||
                program_says(&rig->servers[2], "is gone; operations="));
    bench_delete(rig->bench, "first");
    remove_operations(rig);
    rig_free(rig);
}

static void test_75_without_another_server_a_replicated_one_accepts_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_make(0, RIG_STRAIGHT);
    struct mr_timer_result result;
    struct mr_timer_options timer = {
        .name = MR_SLICE_LIT("alone"), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = &timer};
    rig->server_args[0] = "--replicas";
    rig->server_args[1] = "1";
    rig_serve(rig, 0);
    struct mr_client *client = rig_client(rig, 0);
    assert_int_equal(mr_timer_send(client, &op, 1, MR_TIMER_DURABLE, &result), MR_OK);
    assert_int_equal(result.err, MR_UNAVAILABLE);
    assert_false(result.unknown);
    assert_string_equal(result.why, "--replicas 1: there is no other server to keep a copy");
    mr_client_close(client);
    rig_free(rig);
}

int names_deaths(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_75_a_server_that_dies_leaves_its_timers_to_others),
        cmocka_unit_test(test_75_what_a_dead_server_had_accepted_is_applied_after_its_restart),
    };
    return NAMES_RUN("deaths", tests);
}

int names_replicas(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_75_what_a_server_with_a_lost_disk_had_accepted_is_applied_by_its_replica),
        cmocka_unit_test(test_75_replicas_find_each_other_by_nameservers),
        cmocka_unit_test(test_75_without_another_server_a_replicated_one_accepts_nothing),
    };
    return NAMES_RUN("replicas", tests);
}
