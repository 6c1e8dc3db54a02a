/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that the store itself has filled: new work is refused, what was accepted is handed out and
 * finished, the space of it comes back, and service resumes, all without help from outside. On the
 * simulator's disk, so that the size is exact.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>

#include "sim/rig.h"

enum { SEGMENT = 64 * 1024, SEGMENTS = 14, TAKE = 20, HOUR_MS = 3600 * 1000 };

struct fixture {
    struct simfs *fs;
    struct rig rig;
    uint64_t node;
    size_t accepted;
};

static void never_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void open_node(struct fixture *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("n"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = TAKE,
                                   .lease_ms = 100LL * HOUR_MS,
                                   .events.stop = never_stop};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    f->node = req.node;
    mr_req_done(&req.req);
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fs = simfs_new(1);
    rig_init(&f->rig, f->fs, 1);
    f->rig.segment_bytes = SEGMENT;
    f->rig.chore_delay_max_ns = MR_NS_PER_MS;
    assert_int_equal(rig_open(&f->rig), MR_OK);
    simfs_set_capacity(f->fs, (uint64_t)SEGMENTS * SEGMENT + 256 * 1024);
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

static enum mr_err enqueue(struct fixture *f, size_t payload_len, const struct mr_task_options *as)
{
    static const char payload[16 * 1024];
    struct mr_task_options task = *as;
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    task.payload = mr_slice_make(payload, payload_len);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return result.err;
}

static struct mr_stats stats(struct fixture *f)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

static void fill_up(struct fixture *f, size_t payload_len, const struct mr_task_options *as)
{
    enum mr_err err;
    struct mr_task_options task = *as;
    for (f->accepted = 0; (err = enqueue(f, payload_len, &task)) == MR_OK; f->accepted++)
        if (as->priority_s != 0) /* any order, but the same one every time */
            task.priority_s = (double)((f->accepted * 7919) % 10007);
    assert_int_equal(err, MR_DISK_FULL);
    assert_true(stats(f).disk_full);
    mr_engine_validate(f->rig.engine);
}

/* Takes and finishes a batch; how many. */
static size_t work(struct fixture *f, struct mr_slice result_text)
{
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = f->node, .max = TAKE, .wait_ms = 10 * 1000};
    enum mr_err err = rig_call(&f->rig, &take.req);
    assert_true(err == MR_OK || err == MR_EMPTY || err == MR_DISK_FULL);
    size_t n = 0;
    for (struct mr_lease *lease = take.leases; lease != NULL; n++) {
        struct mr_lease *next = lease->next;
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
        struct mr_finish item = {.id = lease->task.id,
                                 .epoch = lease->epoch,
                                 .ref = lease->ref,
                                 .outcome = MR_DONE,
                                 .result = result_text};
        enum mr_err end = MR_FAILED;
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &end};
        assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
        assert_int_equal(end, MR_OK); /* whatever was handed out can be finished */
        mr_req_done(&req.req);
        mr_lease_free(lease);
        lease = next;
    }
    mr_req_done(&take.req);
    mr_engine_validate(f->rig.engine); /* a look at every task: not with each turn */
    return n;
}

static void drain(struct fixture *f, struct mr_slice result_text)
{
    size_t done = 0;
    open_node(f);
    while (done < f->accepted) {
        size_t n = work(f, result_text);
        assert_true(n > 0); /* it never comes to a standstill */
        done += n;
    }
}

static void await_room(struct fixture *f, size_t payload_len)
{
    for (int i = 0; i < 20 && stats(f).disk_full; i++)
        rig_run(&f->rig, f->rig.clock.mono_ns + 1000 * MR_NS_PER_MS);
    for (size_t i = 0; i < f->accepted / 2; i++)
        assert_int_equal(enqueue(f, payload_len, &(struct mr_task_options){0}), MR_OK);
}

static void fill_and_drain(struct fixture *f, size_t payload_len, const struct mr_task_options *as)
{
    for (int round = 0; round < 2; round++) {
        fill_up(f, payload_len, as);
        drain(f, (struct mr_slice){0});
        assert_int_equal(stats(f).tasks, 0);
        await_room(f, payload_len);
        f->accepted /= 2;
        drain(f, (struct mr_slice){0});
    }
}

static void a_backlog_that_filled_the_disk_drains_and_work_is_accepted_again(void **state)
{
    fill_and_drain(*state, 2000, &(struct mr_task_options){0});
}

/* A producer whose answer was lost learns that its task is there. */
static void who_repeats_an_enqueue_is_told_so_on_a_full_disk(void **state)
{
    struct fixture *f = *state;
    struct mr_task_options named = {.id = mr_slice_str("order-1")};
    assert_int_equal(enqueue(f, 100, &named), MR_OK);
    fill_up(f, 2000, &(struct mr_task_options){0});
    assert_int_equal(enqueue(f, 100, &named), MR_CONFLICT);
    named.id = mr_slice_str("order-2");
    assert_int_equal(enqueue(f, 2000, &named), MR_DISK_FULL);
}

static void so_does_one_of_small_tasks(void **state)
{
    fill_and_drain(*state, 100, &(struct mr_task_options){0});
}

static void so_does_one_that_is_taken_in_any_order(void **state)
{
    fill_and_drain(*state, 1000, &(struct mr_task_options){.priority_s = 1});
}

static void so_does_one_after_a_restart_on_the_full_disk(void **state)
{
    struct fixture *f = *state;
    fill_up(f, 500, &(struct mr_task_options){0});
    for (int i = 0; i < 3; i++) {
        rig_kill(&f->rig);
        simfs_crash(f->fs, &f->rig.rand, SIMFS_KEEP_ALL);
        simfs_set_capacity(f->fs, simfs_used(f->fs));
        assert_int_equal(rig_open(&f->rig), MR_OK);
        assert_int_equal(stats(f).tasks, f->accepted);
    }
    drain(f, (struct mr_slice){0});
    assert_int_equal(stats(f).tasks, 0);
    await_room(f, 500);
}

/* What finishing needs is not used up by producers that come, add a task, and go. */
static void whoever_opens_a_store_on_a_full_disk_adds_nothing_either(void **state)
{
    struct fixture *f = *state;
    fill_up(f, 500, &(struct mr_task_options){0});
    enum mr_err err = MR_OK;
    for (int i = 0; i < 200; i++) {
        rig_kill(&f->rig);
        simfs_crash(f->fs, &f->rig.rand, SIMFS_KEEP_ALL);
        simfs_set_capacity(f->fs, simfs_used(f->fs));
        assert_int_equal(rig_open(&f->rig), MR_OK);
        err = enqueue(f, 500, &(struct mr_task_options){0});
        f->accepted += err == MR_OK;
    }
    assert_int_equal(err, MR_DISK_FULL);
    drain(f, (struct mr_slice){0});
    assert_int_equal(stats(f).tasks, 0);
    await_room(f, 500);
}

static void results_that_do_not_fit_are_left_out_before_an_end_is(void **state)
{
    static const char result[8000];
    struct fixture *f = *state;
    fill_up(f, 2000, &(struct mr_task_options){.retention_ms = HOUR_MS});
    drain(f, mr_slice_make(result, sizeof result));
    assert_true(stats(f).texts_dropped > 0);
    struct mr_req_list list = {.req.op = MR_OP_LIST,
                               .options = {.state = MR_COMPLETED, .limit = MR_BATCH_MAX}};
    size_t kept = 0, noted = 0;
    do {
        list.options.cursor = list.next;
        assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
        for (size_t i = 0; i < list.n; i++) {
            kept += list.tasks[i].result.len == sizeof result;
            noted += list.tasks[i].result.len == 0 &&
                     mr_slice_equal(list.tasks[i].last_error,
                                    MR_SLICE_LIT("left out: the disk was full"));
        }
    } while (list.next[0] != '\0');
    mr_req_done(&list.req);
    assert_int_equal(kept + noted, f->accepted);
    assert_int_equal(noted, stats(f).texts_dropped);
    rig_jump(&f->rig, 2LL * HOUR_MS * MR_US_PER_MS); /* their time is over: space again */
    await_room(f, 2000);
}

static void nothing_is_handed_out_that_could_not_be_finished(void **state)
{
    struct fixture *f = *state;
    fill_up(f, 2000, &(struct mr_task_options){0});
    open_node(f);
    size_t taken = 0;
    struct mr_lease *all = NULL;
    for (enum mr_err err = MR_OK; err == MR_OK;) {
        struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = f->node, .max = MR_BATCH_MAX};
        err = rig_call(&f->rig, &take.req);
        assert_true(err == MR_OK || err == MR_DISK_FULL || err == MR_EMPTY);
        while (take.leases != NULL) {
            struct mr_lease *lease = take.leases;
            take.leases = lease->next;
            lease->next = all;
            all = lease;
            taken++;
        }
        mr_req_done(&take.req);
    }
    assert_true(taken > 0);
    while (all != NULL) {
        struct mr_lease *lease = all;
        all = lease->next;
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
        struct mr_finish item = {.id = lease->task.id,
                                 .epoch = lease->epoch,
                                 .outcome = MR_FAIL,
                                 .delay_ms = 1000,
                                 .error = MR_SLICE_LIT("why it failed, in a short sentence")};
        enum mr_err end = MR_FAILED;
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &end};
        assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
        assert_int_equal(end, MR_OK);
        mr_req_done(&req.req);
        mr_lease_free(lease);
    }
    assert_int_equal(stats(f).texts_dropped, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_backlog_that_filled_the_disk_drains_and_work_is_accepted_again),
        TEST(so_does_one_of_small_tasks),
        TEST(so_does_one_that_is_taken_in_any_order),
        TEST(so_does_one_after_a_restart_on_the_full_disk),
        TEST(whoever_opens_a_store_on_a_full_disk_adds_nothing_either),
        TEST(who_repeats_an_enqueue_is_told_so_on_a_full_disk),
        TEST(results_that_do_not_fit_are_left_out_before_an_end_is),
        TEST(nothing_is_handed_out_that_could_not_be_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
