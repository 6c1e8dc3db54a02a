/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine counts for figures: tasks by type and how they end, runs, limits that hold, syncs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { LEASE_MS = 1000, TYPES = 60 };

struct worker {
    struct store_rig *f;
    uint64_t node;
    uint32_t first_slot;
};

static struct worker open_worker(struct store_rig *f)
{
    static const struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 4,
                                    .lease_ms = LEASE_MS,
                                    .events.stop = store_rig_ignore_stop};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    return (struct worker){f, open.node, open.first_slot};
}

static void put(struct store_rig *f, const char *type, int32_t max_retry)
{
    struct mr_task_options task = {.type = mr_slice_str(type), .max_retry = max_retry};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static struct mr_lease *take(const struct worker *worker)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = worker->node, .max = 1};
    assert_int_equal(rig_call(&worker->f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(worker->f->rig.engine), req.leases),
                     MR_OK);
    return req.leases;
}

static void end(const struct worker *worker, enum mr_outcome outcome, enum mr_finish_reason reason)
{
    struct mr_lease *lease = take(worker);
    enum mr_err err;
    struct mr_finish item = {.id = lease->task.id,
                             .epoch = lease->epoch,
                             .ref = lease->ref,
                             .outcome = outcome,
                             .reason = reason};
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&worker->f->rig, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
    mr_lease_free(lease);
}

/* The figures of a queue; the caller ends the request. */
static struct mr_queue_meters look(struct store_rig *f, struct mr_req_queue_list *req)
{
    static struct mr_queue_info info;
    static struct mr_queue_meters meters;
    meters = (struct mr_queue_meters){0};
    *req = (struct mr_req_queue_list){.req.op = MR_OP_QUEUE_LIST,
                                      .only = MR_SLICE_LIT("default"),
                                      .infos = &info,
                                      .meters = &meters,
                                      .max = 1};
    assert_int_equal(rig_call(&f->rig, &req->req), MR_OK);
    assert_true(meters.counted);
    return meters;
}

static struct mr_tally of_type(struct store_rig *f, const char *type)
{
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    struct mr_tally tally = {.enqueued = UINT64_MAX};
    for (size_t i = 0; i < meters.types_n; i++)
        if (mr_slice_equal(meters.types[i].type, mr_slice_str(type)))
            tally = meters.types[i].tally;
    mr_req_done(&req.req);
    return tally;
}

static uint64_t attempts(struct store_rig *f, enum mr_attempt attempt)
{
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    mr_req_done(&req.req);
    return meters.attempts[attempt];
}

static void pass_ms(struct store_rig *f, int64_t ms)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + ms * MR_NS_PER_MS);
}

static void tasks_are_counted_by_type_and_end(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    put(f, "mail", 0);
    end(&worker, MR_DONE, MR_REASON_NONE);
    put(f, "mail", 0);
    end(&worker, MR_FAIL_FOR_GOOD, MR_REASON_NONE);
    put(f, "sms", 0);
    end(&worker, MR_DROP, MR_REASON_NONE);
    struct mr_tally mail = of_type(f, "mail"), sms = of_type(f, "sms");
    assert_int_equal(mail.enqueued, 2);
    assert_int_equal(mail.ended[MR_TASK_END_COMPLETED], 1);
    assert_int_equal(mail.ended[MR_TASK_END_ARCHIVED], 1);
    assert_int_equal(mail.ended[MR_TASK_END_DROPPED], 0);
    assert_int_equal(sms.enqueued, 1);
    assert_int_equal(sms.ended[MR_TASK_END_DROPPED], 1);
}

static void runs_are_counted_by_how_they_end(void **state)
{
    static const struct {
        enum mr_outcome outcome;
        enum mr_finish_reason reason;
        enum mr_attempt attempt; /* MR_ATTEMPT_COUNT: none */
    } rows[] = {
        {MR_DONE, MR_REASON_NONE, MR_ATTEMPT_OK},
        {MR_DROP, MR_REASON_NONE, MR_ATTEMPT_OK},
        {MR_FAIL_FOR_GOOD, MR_REASON_NONE, MR_ATTEMPT_ERROR},
        {MR_FAIL, MR_REASON_NONE, MR_ATTEMPT_ERROR},
        {MR_FAIL_FOR_GOOD, MR_REASON_TIMEOUT, MR_ATTEMPT_TIMEOUT},
        {MR_FAIL_FOR_GOOD, MR_REASON_CANCELLED, MR_ATTEMPT_CANCELLED},
        {MR_LATER, MR_REASON_NONE, MR_ATTEMPT_LATER},
        {MR_HAND_BACK, MR_REASON_NONE, MR_ATTEMPT_COUNT},
    };
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    uint64_t expected[MR_ATTEMPT_COUNT + 1] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put(f, "t", -1);
        end(&worker, rows[i].outcome, rows[i].reason);
        expected[rows[i].attempt]++;
        if (rows[i].outcome == MR_LATER) { /* it comes again */
            pass_ms(f, 10);
            end(&worker, MR_DONE, MR_REASON_NONE);
            expected[MR_ATTEMPT_OK]++;
        }
    }
    for (unsigned a = 0; a < MR_ATTEMPT_COUNT; a++)
        assert_int_equal(attempts(f, (enum mr_attempt)a), expected[a]);
    assert_int_equal(of_type(f, "t").enqueued, sizeof rows / sizeof *rows);
}

static void a_task_without_a_type_has_the_default_one(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    put(f, "", 0);
    end(&worker, MR_DONE, MR_REASON_NONE);
    struct mr_tally tally = of_type(f, "task");
    assert_int_equal(tally.enqueued, 1);
    assert_int_equal(tally.ended[MR_TASK_END_COMPLETED], 1);
}

/* The node says nothing any more: what had begun is a crash, what had not is not. */
static void runs_that_end_with_their_worker_are_counted_apart(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    for (int life = 0; life < MR_CRASHES_MAX; life++) {
        struct worker worker = open_worker(f);
        if (life == 0) {
            put(f, "poison", 0);
            put(f, "calm", 0);
        }
        struct mr_lease *first = take(&worker), *second = take(&worker);
        bool is_poison = mr_slice_equal(first->task.type, MR_SLICE_LIT("poison"));
        mr_broker_begun(mr_engine_broker(f->rig.engine), worker.first_slot,
                        is_poison ? first->epoch : second->epoch);
        mr_lease_free(first);
        mr_lease_free(second);
        pass_ms(f, 5 * LEASE_MS);
    }
    assert_int_equal(attempts(f, MR_ATTEMPT_CRASH), MR_CRASHES_MAX);
    assert_int_equal(attempts(f, MR_ATTEMPT_LEASE_LOST), MR_CRASHES_MAX);
    assert_int_equal(of_type(f, "poison").ended[MR_TASK_END_QUARANTINED], 1);
    assert_int_equal(of_type(f, "calm").ended[MR_TASK_END_QUARANTINED], 0);
}

/* Whoever makes up types cannot make up memory. */
static void only_so_many_types_are_told_apart(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    for (int i = 0; i < TYPES; i++) {
        char type[32];
        snprintf(type, sizeof type, "type-%d", i);
        put(f, type, 0);
    }
    for (int i = 0; i < TYPES; i++)
        end(&worker, MR_DONE, MR_REASON_NONE);
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    assert_true(meters.types_n > 10 && meters.types_n < TYPES);
    uint64_t enqueued = meters.others.enqueued, done = meters.others.ended[MR_TASK_END_COMPLETED];
    assert_int_equal(enqueued, TYPES - meters.types_n);
    for (size_t i = 0; i < meters.types_n; i++) {
        enqueued += meters.types[i].tally.enqueued;
        done += meters.types[i].tally.ended[MR_TASK_END_COMPLETED];
    }
    assert_int_equal(enqueued, TYPES);
    assert_int_equal(done, TYPES);
    mr_req_done(&req.req);
}

static void a_queue_that_is_made_again_begins_anew(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    for (int i = 0; i < TYPES; i++) {
        char type[32];
        snprintf(type, sizeof type, "type-%d", i);
        put(f, type, 0);
    }
    struct mr_req_queue_remove remove = {.req.op = MR_OP_QUEUE_REMOVE,
                                         .queue = MR_SLICE_LIT("default"),
                                         .mode = MR_QUEUE_REMOVE_FORCE};
    assert_int_equal(rig_call(&f->rig, &remove.req), MR_OK);
    mr_req_done(&remove.req);
    put(f, "late", 0);
    put(f, "type-3", 0);
    assert_int_equal(of_type(f, "late").enqueued, 1);
    assert_int_equal(of_type(f, "type-3").enqueued, 1);
    assert_int_equal(of_type(f, "type-4").enqueued, UINT64_MAX);
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    assert_int_equal(meters.types_n, 2);
    assert_int_equal(meters.others.enqueued, 0);
    mr_req_done(&req.req);
}

static void limit(struct store_rig *f, enum mr_limit_scope scope, const char *name)
{
    struct mr_req_queue_set set = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_CONCURRENCY,
                                   .value = 1,
                                   .scope = scope,
                                   .name = mr_slice_str(name)};
    assert_int_equal(rig_call(&f->rig, &set.req), MR_OK);
    mr_req_done(&set.req);
}

static void limits_that_hold_are_counted(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    limit(f, MR_LIMIT_TYPE, "slow");
    put(f, "slow", 0);
    put(f, "slow", 0);
    put(f, "quick", 0);
    struct mr_lease *slow = take(&worker), *quick = take(&worker);
    assert_true(mr_slice_equal(quick->task.type, MR_SLICE_LIT("quick")));
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    mr_req_done(&req.req);
    assert_int_equal(meters.throttled[MR_LIMIT_TYPE], 1);
    assert_int_equal(meters.throttled[MR_LIMIT_QUEUE], 0);
    mr_lease_free(slow);
    mr_lease_free(quick);
    limit(f, MR_LIMIT_QUEUE, "");
    pass_ms(f, 5 * LEASE_MS); /* all is given back */
    worker = open_worker(f);
    mr_lease_free(take(&worker));
    meters = look(f, &req);
    mr_req_done(&req.req);
    assert_int_equal(meters.throttled[MR_LIMIT_QUEUE], 1);
}

static void syncs_and_the_space_left_are_known(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    for (int i = 0; i < 10; i++)
        put(f, "t", 0);
    struct mr_req_stats req = {.req.op = MR_OP_STATS, .meters_wanted = true};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_true(req.meters.known && req.meters.free_known);
    assert_true(req.meters.free_bytes > 0);
    assert_int_equal(mr_meter_count(&req.meters.sync_us), req.stats.syncs);
    assert_true(mr_meter_count(&req.meters.group) >= 10);
    assert_true(req.meters.group.sum >= 10);
    assert_int_equal(rig_call(&f->rig, &(struct mr_req_stats){.req.op = MR_OP_STATS}.req), MR_OK);
}

static void waits_and_runs_are_all_remembered(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct worker worker = open_worker(f);
    put(f, "t", 0);
    pass_ms(f, 20);
    end(&worker, MR_DONE, MR_REASON_NONE);
    pass_ms(f, 300000); /* longer than percentiles last */
    struct mr_req_queue_list req;
    struct mr_queue_meters meters = look(f, &req);
    mr_req_done(&req.req);
    assert_int_equal(mr_meter_count(&meters.wait_us), 1);
    assert_int_equal(mr_meter_count(&meters.run_us), 1);
    assert_in_range(meters.wait_us.sum, 19000, 30000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tasks_are_counted_by_type_and_end),
        TEST(runs_are_counted_by_how_they_end),
        TEST(a_task_without_a_type_has_the_default_one),
        TEST(runs_that_end_with_their_worker_are_counted_apart),
        TEST(only_so_many_types_are_told_apart),
        TEST(a_queue_that_is_made_again_begins_anew),
        TEST(limits_that_hold_are_counted),
        TEST(syncs_and_the_space_left_are_known),
        TEST(waits_and_runs_are_all_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
