/* SPDX-License-Identifier: Apache-2.0 */
/* What three servers promise in figures: with nothing beside it, or in full. */
#include <stdio.h>

#include "client/client.h"
#include "names/rig.h"

enum { TIMERS = 3000, FIRINGS = 30 * 1000, WORKERS = 5, SLOTS = 16, LOAD_MS = 120 * 1000 };

/* A worker inside the test: a process for each of so many runs would be what is measured. */
static enum mr_outcome note(struct mr_run *run, void *arg)
{
    bench_note(arg, mr_run_task(run));
    return MR_DONE;
}

static struct mr_worker *hire(struct rig *rig, struct mr_client *client)
{
    struct mr_worker *worker;
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_worker_options options = {.node = MR_SLICE_LIT("inside"),
                                        .queues = &queue,
                                        .queues_n = 1,
                                        .slots = SLOTS,
                                        .drain_ms = 1000};
    assert_int_equal(mr_worker_new(client, &options, &worker), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", note, rig->bench), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    return worker;
}

/* Runs that have ended since, of all servers; the least and the most of one. */
static uint64_t dispatched(struct rig *rig, const uint64_t before[RIG_SERVERS], uint64_t *ret_least,
                           uint64_t *ret_most)
{
    uint64_t all = 0;
    *ret_least = UINT64_MAX;
    *ret_most = 0;
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        uint64_t n = rig_processed(rig, i) - before[i];
        all += n;
        *ret_least = n < *ret_least ? n : *ret_least;
        *ret_most = n > *ret_most ? n : *ret_most;
    }
    return all;
}

/* Five workers of the app, which is cut in three by that; what there is to run is run inside. */
static void test_of_30000_firings_each_server_dispatches_a_third(void **state)
{
    (void)state;
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    uint64_t before[RIG_SERVERS], least, most;
    rig->worker_queue = "idle";
    rig->lease_ms =
        10 * 1000; /* the default: what a busy server loses in between goes to another */
    rig_start(rig, RIG_SERVERS, WORKERS);
    struct mr_client *client = rig_names_client(rig);
    struct mr_worker *worker = hire(rig, client);
    rig_load(rig, 1, "1s", 0);
    BENCH_UNTIL(rig_is_cut(rig, 3) && rig_plan(rig).owners == RIG_SERVERS);
    rig_check(rig);
    rig_note_processed(rig, before);
    rig_load(rig, TIMERS, "5s", 0);
    int64_t since_ms = bench_now_ms(rig->bench);
    while (dispatched(rig, before, &least, &most) < FIRINGS) {
        assert_true(bench_now_ms(rig->bench) - since_ms < LOAD_MS);
        bench_sleep_ms(500);
    }
    printf("30 000 firings of one app: %llu at one of three servers, %llu at another, in %lld ms\n",
           (unsigned long long)least, (unsigned long long)most,
           (long long)(bench_now_ms(rig->bench) - since_ms));
    if (most * 5 > least * 6)
        rig_print_moves(rig);
    assert_true(most * 5 <= least * 6);
    rig_check(rig);
    mr_worker_free(worker);
    mr_client_close(client);
    rig_free(rig);
}

int names_figures(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_30000_firings_each_server_dispatches_a_third),
    };
    return rig_judges_time() ? NAMES_RUN("figures", tests) : 0;
}
