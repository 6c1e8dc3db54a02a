/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 62, with a broker for each server: one that is cut off from the store, or that stands still, is replaced; and hands out no firing that
 * another one may have made anew by then, though its workers reach it and it has tasks for them.
 */
#include <signal.h>
#include <stdio.h>

#include "client/client.h"
#include "names/rig.h"

enum { TIMERS = 12 };

/* Tasks that wait in the broker of a server. */
static uint64_t waiting_at(struct rig *rig, size_t server)
{
    struct mr_queue_info info = {.name = ""};
    struct mr_client *client = rig_client(rig, server);
    enum mr_err err = mr_queue_get(client, MR_SLICE_LIT("default"), &info);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_client_close(client);
    return err == MR_OK ? info.counts[MR_PENDING] + info.counts[MR_SCHEDULED] : 0;
}

static void put_plain(struct rig *rig, size_t server)
{
    struct mr_client *client = rig_client(rig, server);
    struct mr_task_options task = {.id = MR_SLICE_LIT("plain")};
    struct mr_enqueue_result result;
    assert_int_equal(mr_enqueue(client, &task, 1, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_client_close(client);
}

static bool have_succeeded(struct rig *rig)
{
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t-%zu", i);
        if (bench_count(rig->bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) != 1)
            return false;
    }
    return true;
}

/* Firings wait at the first server, and nobody works for it; then it is gone for the others, who make them anew. */
static struct rig *make(struct forwarder *cable)
{
    char url[128];
    struct rig *rig = rig_make(0, RIG_STRAIGHT);
    assert_int_equal(forwarder_start(cable, (uint16_t)postgres_rig_port(rig->bench->postgres)),
                     MR_OK);
    (void)snprintf(url, sizeof url, "postgresql://mill@127.0.0.1:%u/%s", cable->port,
                   rig->bench->database);
    rig->store_url = url;
    rig_serve(rig, 0);
    rig->store_url = NULL;
    bench_put_many(rig->bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "t-%zu", TIMERS);
    BENCH_UNTIL(waiting_at(rig, 0) == TIMERS);
    rig_serve(rig, 1);
    return rig;
}

/* All of them run for the other server, once. */
static void finish(struct rig *rig, struct forwarder *cable)
{
    rig_work_for(rig, 1, 1);
    BENCH_UNTIL(have_succeeded(rig));
    BENCH_UNTIL(waiting_at(rig, 0) == 0); /* its own are gone */
    assert_int_equal(rig_runs_by(rig, 0), 1);
    assert_int_equal(rig_runs_by(rig, 1), TIMERS);
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t-%zu", i);
        bench_delete(rig->bench, name);
    }
    rig_free(rig);
    forwarder_stop(cable);
}

static void test_62_a_server_without_the_store_hands_out_no_firing(void **state)
{
    struct forwarder cable = {0};
    (void)state;
    struct rig *rig = make(&cable);
    atomic_store(&cable.frozen, true);
    BENCH_UNTIL(waiting_at(rig, 1) == TIMERS);
    rig_work_for(rig, 0, 0);
    put_plain(rig, 0);
    BENCH_UNTIL(rig_runs_by(rig, 0) > 0); /* what is no firing */
    bench_sleep_ms(300);
    assert_int_equal(rig_runs_by(rig, 0), 1);
    atomic_store(&cable.frozen, false);
    finish(rig, &cable);
}

/* Its worker waits for a task when it stands still; when it goes on, others have made them anew. */
static void test_62_a_server_that_stood_still_hands_out_no_firing(void **state)
{
    struct forwarder cable = {0};
    (void)state;
    struct rig *rig = make(&cable);
    assert_int_equal(kill(rig->servers[0].pid, SIGSTOP), 0);
    BENCH_UNTIL(waiting_at(rig, 1) == TIMERS);
    rig_work_for(rig, 0, 0);
    bench_sleep_ms(300); /* its question is there */
    assert_int_equal(kill(rig->servers[0].pid, SIGCONT), 0);
    put_plain(rig, 0);
    BENCH_UNTIL(rig_runs_by(rig, 0) > 0);
    finish(rig, &cable);
}

int names_cut_off(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_62_a_server_without_the_store_hands_out_no_firing),
        cmocka_unit_test(test_62_a_server_that_stood_still_hands_out_no_firing),
    };
    return NAMES_RUN("cut off", tests);
}
