/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on timers in the hidden queue of a broker whose disk forgets, fills up or fails: 17, 24 and 25 of the
 * timers' list. On the simulator's disk, so that what was not synced is really gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/hidden.h"
#include "sim/rig.h"
#include "timer/def.h"
#include "wire/timer.h"

enum { SEGMENT = 64 * 1024, BATCH = 50, HOUR_MS = 3600 * 1000 };

struct fixture {
    struct simfs *fs;
    struct rig rig;
    uint64_t node;
    size_t sent, taken;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fs = simfs_new(7);
    rig_init(&f->rig, f->fs, 7);
    f->rig.segment_bytes = SEGMENT;
    f->rig.chore_delay_max_ns = MR_NS_PER_MS;
    assert_int_equal(rig_open(&f->rig), MR_OK);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    rig_done(&f->rig);
    simfs_free(f->fs);
    free(f);
    return 0;
}

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* The i-th operation, encoded. */
static void operation(size_t i, struct mr_buf *buf)
{
    char id[MR_TIMER_ID_MAX + 1], name[32];
    (void)snprintf(id, sizeof id, "00000000-0000-7000-8000-%012zu", i);
    (void)snprintf(name, sizeof name, "t%zu", i);
    struct mr_timer_operation op = {.operation = mr_slice_str(id),
                                    .verb = MR_TIMER_DELETE,
                                    .app = MR_SLICE_LIT("default"),
                                    .name = mr_slice_str(name),
                                    .version = i + 1};
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, buf), MR_OK);
}

/* Sends the next n <= BATCH; answers how the first went that was not accepted. */
static enum mr_err send(struct fixture *f, size_t n)
{
    struct mr_buf bytes[BATCH] = {{0}};
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    for (size_t i = 0; i < n; i++) {
        operation(f->sent + i, &bytes[i]);
        tasks[i] = (struct mr_task_options){.queue = MR_SLICE_LIT(MR_TIMERS_QUEUE),
                                            .payload = mr_buf_slice(&bytes[i])};
        results[i].err = MR_FAILED;
    }
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = n, .results = results, .inner = true};
    enum mr_err err = rig_call(&f->rig, &req.req);
    for (size_t i = 0; i < n; i++) {
        if (err == MR_OK && results[i].err == MR_OK)
            f->sent++;
        else if (err == MR_OK)
            err = results[i].err;
        mr_buf_done(&bytes[i]);
    }
    mr_req_done(&req.req);
    return err;
}

static void open_node(struct fixture *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT(MR_TIMERS_QUEUE)};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("applier"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 1,
                                   .lease_ms = 100LL * HOUR_MS,
                                   .inner = true,
                                   .events.stop = no_stop};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    f->node = req.node;
    mr_req_done(&req.req);
}

/* Takes and ends one batch; each of them must be the next one, byte by byte. */
static size_t apply(struct fixture *f)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = f->node, .max = BATCH};
    enum mr_err err = rig_call(&f->rig, &take.req);
    size_t n = 0;
    assert_true(err == MR_OK || err == MR_EMPTY || err == MR_DISK_FULL);
    for (struct mr_lease *lease = take.leases; lease != NULL; n++) {
        struct mr_lease *next = lease->next;
        struct mr_buf expected = {0};
        enum mr_err ended = MR_FAILED;
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
        operation(f->taken++, &expected);
        assert_true(mr_slice_equal(lease->task.payload, mr_buf_slice(&expected)));
        struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &ended};
        assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
        assert_int_equal(ended, MR_OK);
        mr_req_done(&req.req);
        mr_buf_done(&expected);
        mr_lease_free(lease);
        lease = next;
    }
    mr_req_done(&take.req);
    return n;
}

static void crash(struct fixture *f, enum simfs_policy policy)
{
    rig_kill(&f->rig);
    simfs_stop(f->fs);
    simfs_crash(f->fs, &f->rig.rand, policy);
    assert_int_equal(rig_open(&f->rig), MR_OK);
}

static void test_17_what_was_acknowledged_survives_the_loss_of_all_that_was_not_synced(void **state)
{
    struct fixture *f = *state;
    static const enum simfs_policy policies[] = {SIMFS_DROP_ALL, SIMFS_TEAR, SIMFS_SCRAMBLE};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        for (size_t j = 0; j < 1000 / BATCH; j++)
            assert_int_equal(send(f, BATCH), MR_OK);
        crash(f, policies[i]);
        open_node(f);
        while (apply(f) > 0)
            continue;
        assert_int_equal(f->taken, f->sent);
    }
}

static void
test_24_a_full_disk_refuses_operations_by_name_applies_the_others_and_goes_on(void **state)
{
    struct fixture *f = *state;
    enum mr_err err;
    assert_int_equal(send(f, BATCH), MR_OK); /* others fill it while it runs */
    simfs_set_capacity(f->fs, 14 * SEGMENT + 256 * 1024);
    while ((err = send(f, BATCH)) == MR_OK)
        continue;
    assert_int_equal(err, MR_DISK_FULL);
    assert_true(f->sent > 0);
    open_node(f);
    while (f->taken < f->sent)
        assert_true(apply(f) > 0);
    int64_t until = f->rig.clock.mono_ns + 60 * MR_NS_PER_S;
    while ((err = send(f, 1)) == MR_DISK_FULL && f->rig.clock.mono_ns < until)
        rig_run(&f->rig, f->rig.clock.mono_ns + 100 * MR_NS_PER_MS);
    assert_int_equal(err, MR_OK); /* without a restart */
    assert_int_equal(apply(f), 1);
}

static void
test_25_after_a_failed_sync_nothing_is_acknowledged_and_nothing_acknowledged_is_lost(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(send(f, BATCH), MR_OK);
    simfs_fail(f->fs, SIMFS_SYNC, 0, 1, MR_IO);
    size_t acknowledged = f->sent;
    assert_int_not_equal(send(f, BATCH), MR_OK);
    assert_int_not_equal(send(f, BATCH),
                         MR_OK); /* nor later, although the next sync would succeed */
    assert_int_equal(f->sent, acknowledged);
    simfs_heal(f->fs);
    crash(f, SIMFS_DROP_ALL);
    open_node(f);
    while (apply(f) > 0)
        continue;
    assert_true(f->taken >= acknowledged);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    static const struct CMUnitTest tests[] = {
        TEST(test_17_what_was_acknowledged_survives_the_loss_of_all_that_was_not_synced),
        TEST(test_24_a_full_disk_refuses_operations_by_name_applies_the_others_and_goes_on),
        TEST(test_25_after_a_failed_sync_nothing_is_acknowledged_and_nothing_acknowledged_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
