/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets tasks of a queue with partitions while no leader has written whose they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct store_rig *f, const char *name)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = mr_slice_str(name),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = MR_MS_PER_DAY,
                                    .events = {.stop = on_stop}};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    mr_req_done(&open.req);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS); /* the next one starts later */
    return open.node;
}

static void close_node(struct store_rig *f, uint64_t node)
{
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = node};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void set(struct store_rig *f, enum mr_queue_setting setting, uint64_t value)
{
    struct mr_req_queue_set req = {
        .req.op = MR_OP_QUEUE_SET, .queue = MR_SLICE_LIT("q"), .setting = setting, .value = value};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static enum mr_err put(struct store_rig *f, uint32_t partition)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .partition = partition};
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return result.err;
}

/* The partition of what it answered, and ends the run. */
static uint32_t taken(struct store_rig *f, struct mr_req_take *take)
{
    struct mr_lease *lease = take->leases;
    struct mr_broker *broker = mr_engine_broker(f->rig.engine);
    assert_int_equal(take->n, 1);
    assert_int_equal(mr_broker_lease_open(broker, lease), MR_OK);
    uint32_t partition = lease->task.partition;
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .outcome = MR_DONE};
    enum mr_err err = MR_FAILED;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
    mr_lease_free(lease);
    mr_req_done(&take->req);
    return partition;
}

static uint32_t take(struct store_rig *f, uint64_t node)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    return taken(f, &req);
}

/* ---- whose they are ------------------------------------------------------------------------- */

enum { N = 4, FAIR_EVERY = 8, TAKES = 8 * FAIR_EVERY };

static void fill(struct store_rig *f, unsigned each)
{
    for (unsigned i = 0; i < each; i++)
        for (uint32_t p = 1; p <= N; p++)
            assert_int_equal(put(f, p), MR_OK);
}

/* The partitions that it prefers, as bits: while all of them have something, one take in FAIR_EVERY is from
 * any, the others are from these. */
static uint64_t preferred(struct store_rig *f, uint64_t node)
{
    unsigned counts[N + 1] = {0};
    uint64_t mask = 0;
    for (unsigned i = 0; i < TAKES; i++)
        counts[take(f, node)]++;
    for (uint32_t p = 1; p <= N; p++)
        mask |= counts[p] > TAKES / FAIR_EVERY ? (uint64_t)1 << (p - 1) : 0;
    return mask;
}

static int count(uint64_t mask)
{
    return __builtin_popcountll(mask);
}

static void workers_share_them_and_only_what_must_move_moves(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, N);
    uint64_t a = open_node(f, "a"), b = open_node(f, "b");
    fill(f, 4 * TAKES);
    uint64_t as = preferred(f, a), bs = preferred(f, b);
    assert_int_equal(as | bs, (1 << N) - 1);
    assert_int_equal(as & bs, 0);
    assert_int_equal(count(as), N / 2);
    uint64_t c = open_node(f, "c");
    uint64_t as_then = preferred(f, a), bs_then = preferred(f, b), cs = preferred(f, c);
    assert_int_equal(as_then | bs_then | cs, (1 << N) - 1);
    assert_int_equal(as_then & ~as, 0);
    assert_int_equal(bs_then & ~bs, 0);
    assert_int_equal(count(cs), 1);
    close_node(f, b);
    assert_int_equal(preferred(f, a) & as_then, as_then);
    assert_int_equal(preferred(f, c) & cs, cs);
    assert_int_equal(preferred(f, a) | preferred(f, c), (1 << N) - 1);
}

static void by_a_hash_one_that_starts_again_gets_what_it_had(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, N);
    set(f, MR_QUEUE_ASSIGN, MR_ASSIGN_CONSISTENT_HASH);
    uint64_t a = open_node(f, "a"), b = open_node(f, "b");
    fill(f, 4 * TAKES);
    uint64_t as = preferred(f, a), bs = preferred(f, b);
    assert_int_equal(as | bs, (1 << N) - 1);
    close_node(f, a);
    assert_int_equal(preferred(f, b), (1 << N) - 1);
    a = open_node(f, "a");
    assert_int_equal(preferred(f, a), as);
    assert_int_equal(preferred(f, b), bs);
}

/* ---- who gets what comes -------------------------------------------------------------------- */

static void answered(struct mr_req *req)
{
    *(bool *)req->arg = true;
}

static struct mr_req_take waiting(uint64_t node, bool *done)
{
    return (struct mr_req_take){.req = {.op = MR_OP_TAKE, .done = answered, .arg = done},
                                .node = node,
                                .max = 1,
                                .wait_ms = MR_MS_PER_DAY};
}

static void of_those_that_wait_the_one_that_prefers_it_gets_it(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, N);
    uint64_t a = open_node(f, "a"), b = open_node(f, "b");
    fill(f, 2 * TAKES);
    uint32_t of_b = (uint32_t)__builtin_ctzll(preferred(f, b)) + 1;
    for (unsigned left = (2 * N - 1) * TAKES; left > 0; left--)
        (void)take(f, a);
    bool a_done = false, b_done = false;
    struct mr_req_take first = waiting(a, &a_done), second = waiting(b, &b_done);
    rig_submit(&f->rig, &first.req);
    rig_submit(&f->rig, &second.req);
    assert_int_equal(put(f, of_b), MR_OK);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS);
    assert_true(b_done && !a_done);
    assert_int_equal(taken(f, &second), of_b);
    assert_int_equal(put(f, of_b), MR_OK); /* b is busy: nobody lets it lie */
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS);
    assert_true(a_done);
    assert_int_equal(taken(f, &first), of_b);
}

static void no_partition_waits_for_more_than_twice_as_many_takes(void **state)
{
    enum { MANY = MR_PARTITIONS_MAX, EACH = 6 };
    struct store_rig *f = *state;
    unsigned last[MANY + 1] = {0};
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, MANY);
    uint64_t node = open_node(f, "a");
    for (unsigned i = 0; i < EACH; i++)
        for (uint32_t p = 1; p <= MANY; p++)
            assert_int_equal(put(f, p), MR_OK);
    for (unsigned i = 1; i <= (EACH - 2) * MANY; i++) { /* all of them have something so long */
        uint32_t p = take(f, node);
        assert_true(i - last[p] <= 2 * MANY);
        last[p] = i;
    }
    for (uint32_t p = 1; p <= MANY; p++)
        assert_true(last[p] > (EACH - 4) * MANY);
}

static void tasks_that_may_go_into_any_go_past_those_that_are_full(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, 3);
    set(f, MR_QUEUE_MAX_LENGTH, 2);
    assert_int_equal(put(f, 1), MR_OK);
    assert_int_equal(put(f, 1), MR_OK);
    assert_int_equal(put(f, 1), MR_QUEUE_FULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(put(f, 0), MR_OK);
    assert_int_equal(put(f, 0), MR_QUEUE_FULL);
    uint64_t node = open_node(f, "a");
    uint32_t freed = take(f, node);
    assert_int_equal(put(f, 0), MR_OK);
    assert_int_equal(put(f, freed), MR_QUEUE_FULL);
}

/* Where a task went that may go into any. */
static uint32_t goes_to(struct store_rig *f, int64_t retention_ms)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .retention_ms = retention_ms};
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    struct mr_req_get get = {.req.op = MR_OP_GET, .id = mr_slice_str(result.id)};
    assert_int_equal(rig_call(&f->rig, &get.req), MR_OK);
    uint32_t partition = get.task.partition;
    mr_req_done(&get.req);
    mr_req_done(&req.req);
    return partition;
}

/* Whoever enqueues one task and is gone has no turn to go on with: the store says whose it is. */
static void producers_of_one_task_each_take_turns(void **state)
{
    struct store_rig *f = *state;
    enum { PARTS = 3, ROUNDS = 5 };
    store_rig_open(f);
    set(f, MR_QUEUE_PARTITIONS, PARTS);
    store_rig_close(f);
    for (uint32_t i = 0; i < ROUNDS * PARTS; i++) {
        store_rig_open(f);
        assert_int_equal(goes_to(f, i % 2 * MR_MS_PER_DAY), i % PARTS + 1);
        if (i >= PARTS) /* what is done has come as well, whether it is kept or not */
            (void)take(f, open_node(f, "a"));
        store_rig_close(f);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(workers_share_them_and_only_what_must_move_moves),
        TEST(by_a_hash_one_that_starts_again_gets_what_it_had),
        TEST(of_those_that_wait_the_one_that_prefers_it_gets_it),
        TEST(no_partition_waits_for_more_than_twice_as_many_takes),
        TEST(tasks_that_may_go_into_any_go_past_those_that_are_full),
        TEST(producers_of_one_task_each_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
