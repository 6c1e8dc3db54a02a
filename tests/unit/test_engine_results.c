/* SPDX-License-Identifier: Apache-2.0 */
/* Results in the log: one record with the end of their run, whatever happens to the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/result.h"
#include "sim/rig.h"
#include "unit/store_rig.h"

enum { TASKS = 8, TEXT = 300, CUTS = 150 };

static uint64_t open_node(struct rig *rig, enum mr_node_role role)
{
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    if (role == MR_NODE_MASTER)
        queue.name = mr_result_queue(MR_SLICE_LIT("news"), name);
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = role,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = role == MR_NODE_WORKER,
                                    .lease_ms = 3600000,
                                    .events.stop = store_rig_ignore_stop};
    assert_int_equal(rig_call(rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    return open.node;
}

static void put_with_topic(struct rig *rig, size_t n, int64_t retention_ms)
{
    for (size_t i = 0; i < n; i++) {
        char id[] = {'t', (char)('0' + i), '\0'};
        struct mr_enqueue_result result;
        struct mr_task_options task = {
            .id = mr_slice_str(id), .topic = MR_SLICE_LIT("news"), .retention_ms = retention_ms};
        struct mr_req_enqueue put = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        assert_int_equal(rig_call(rig, &put.req), MR_OK);
        mr_req_done(&put.req);
    }
}

/* A finish of n runs, all done with a text of their own; not sent. */
struct ends {
    struct mr_req_take take;
    struct mr_req_finish finish;
    struct mr_finish items[TASKS];
    enum mr_err errs[TASKS];
    char texts[TASKS][TEXT];
};

static void take_all(struct rig *rig, struct ends *ends, size_t n)
{
    ends->take = (struct mr_req_take){
        .req.op = MR_OP_TAKE, .node = open_node(rig, MR_NODE_WORKER), .max = n};
    assert_int_equal(rig_call(rig, &ends->take.req), MR_OK);
    assert_int_equal(ends->take.n, n);
    ends->finish = (struct mr_req_finish){
        .req.op = MR_OP_FINISH, .items = ends->items, .n = n, .errs = ends->errs};
    size_t i = 0;
    for (struct mr_lease *lease = ends->take.leases; lease != NULL; lease = lease->next, i++) {
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(rig->engine), lease), MR_OK);
        memset(ends->texts[i], 'a' + (int)i, TEXT);
        ends->items[i] = (struct mr_finish){.id = lease->task.id,
                                            .epoch = lease->epoch,
                                            .outcome = MR_DONE,
                                            .result = mr_slice_make(ends->texts[i], TEXT)};
    }
}

static void ends_done(struct ends *ends)
{
    while (ends->take.leases != NULL) {
        struct mr_lease *next = ends->take.leases->next;
        mr_lease_free(ends->take.leases);
        ends->take.leases = next;
    }
    mr_req_done(&ends->take.req);
    mr_req_done(&ends->finish.req);
}

/* Which of the tasks have a result, each of them one; its text is its own. */
static void look(struct rig *rig, bool ret_left[TASKS])
{
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open_node(rig, MR_NODE_MASTER), .max = MR_BATCH_MAX};
    enum mr_err err = rig_call(rig, &take.req);
    assert_true(err == MR_OK || err == MR_EMPTY);
    memset(ret_left, 0, TASKS * sizeof *ret_left);
    while (take.leases != NULL) {
        struct mr_lease *lease = take.leases;
        struct mr_result result;
        take.leases = lease->next;
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(rig->engine), lease), MR_OK);
        assert_int_equal(mr_result_decode(lease->task.payload, &result), MR_OK);
        if (result.outcome == MR_RESULT_OK) { /* else the run was lost with the process */
            size_t i = (size_t)(((const char *)result.task_id.data)[1] - '0');
            assert_true(i < TASKS && !ret_left[i]);
            ret_left[i] = true;
            assert_int_equal(result.result.len, TEXT);
            assert_int_equal(((const char *)result.result.data)[TEXT - 1], 'a' + (int)i);
        }
        mr_lease_free(lease);
    }
    mr_req_done(&take.req);
}

static bool is_there(struct rig *rig, size_t i)
{
    char id[] = {'t', (char)('0' + i), '\0'};
    struct mr_req_get get = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    enum mr_err err = rig_call(rig, &get.req);
    mr_req_done(&get.req);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    return err == MR_OK;
}

/* Cut somewhere on its way to the disk; answers how many of the runs have ended. */
static size_t cut_and_look(uint64_t seed)
{
    struct simfs *fs = simfs_new(seed);
    struct ends *ends = calloc(1, sizeof *ends);
    struct rig rig;
    struct mr_rand rand;
    bool left[TASKS];
    size_t ended = 0;
    assert_non_null(ends);
    mr_rand_seed(&rand, seed);
    rig_init(&rig, fs, seed);
    assert_int_equal(rig_open(&rig), MR_OK);
    put_with_topic(&rig, TASKS, 0);
    take_all(&rig, ends, TASKS);
    simfs_stop_at(fs, 1 + mr_rand_below(&rand, 6));
    (void)rig_call(&rig, &ends->finish.req);
    rig_kill(&rig);
    simfs_crash(fs, &rand, mr_rand_below(&rand, 2) ? SIMFS_TEAR : SIMFS_KEEP_SOME);
    assert_int_equal(rig_open(&rig), MR_OK);
    look(&rig, left);
    for (size_t i = 0; i < TASKS; i++) {
        bool there = is_there(&rig, i);
        if (left[i] == there)
            fail_msg("seed %llu: task %zu and the result of its end are both %s",
                     (unsigned long long)seed, i, there ? "there" : "gone");
        ended += !there;
    }
    ends_done(ends);
    free(ends);
    rig_done(&rig);
    simfs_free(fs);
    return ended;
}

static void a_power_cut_leaves_the_end_of_a_run_and_its_result_or_neither(void **state)
{
    (void)state;
    size_t none = 0, some = 0, all = 0;
    for (uint64_t seed = 1; seed <= CUTS; seed++) {
        size_t ended = cut_and_look(seed);
        none += ended == 0;
        all += ended == TASKS;
        some += ended > 0 && ended < TASKS;
    }
    assert_true(none > 0 && some > 0 && all > 0);
}

static void a_result_and_the_task_that_keeps_its_text_are_moved_together(void **state)
{
    struct store_rig *f = *state;
    struct ends *ends = calloc(1, sizeof *ends);
    bool left[TASKS];
    assert_non_null(ends);
    store_rig_open(f);
    put_with_topic(&f->rig, TASKS, 365LL * 24 * 3600 * 1000);
    take_all(&f->rig, ends, TASKS);
    assert_int_equal(rig_call(&f->rig, &ends->finish.req), MR_OK);
    ends_done(ends);
    free(ends);
    store_rig_churn(f, 3); /* segments come and go */
    for (int life = 0; life < 2; life++) {
        for (size_t i = 0; i < TASKS; i++) {
            char id[] = {'t', (char)('0' + i), '\0'};
            struct mr_req_get get = store_rig_get(f, id);
            assert_int_equal(get.task.result.len, TEXT);
            assert_int_equal(((const char *)get.task.result.data)[0], 'a' + (int)i);
            mr_req_done(&get.req);
        }
        look(&f->rig, left);
        for (size_t i = 0; i < TASKS; i++)
            assert_true(left[i]);
        if (life == 0) {
            store_rig_die(f, SIMFS_DROP_ALL);
            store_rig_open(f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_power_cut_leaves_the_end_of_a_run_and_its_result_or_neither),
        cmocka_unit_test_setup_teardown(
            a_result_and_the_task_that_keeps_its_text_are_moved_together, store_rig_begin,
            store_rig_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
