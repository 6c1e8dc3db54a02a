/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine keeps back: tasks that are this server's only until a time, by the topic of their results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "unit/temp_dir.h"

enum { SOON_MS = 30 * 1000 };

struct fixture {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16];
    struct mr_broker *broker;
    struct mr_gate *gate;
    uint64_t node;
};

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void open_store(struct fixture *f)
{
    static const struct mr_worker_queue queues[] = {{.name = {"default", 7}},
                                                    {.name = {"other", 5}}};
    struct mr_embedded_options options = {.dir = f->dir, .segment_bytes = 256 * 1024};
    struct mr_detail detail = {{0}};
    if (mr_embedded_open(&options, &f->broker, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    f->gate = mr_embedded_gate(f->broker);
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = mr_slice_str("node"),
                                   .queues = queues,
                                   .queues_n = 2,
                                   .slots = 10,
                                   .events.stop = no_stop,
                                   .lease_ms = 60000};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    f->node = req.node;
    mr_req_done(&req.req);
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    temp_dir_make(f->base);
    snprintf(f->dir, sizeof f->dir, "%s/store", f->base);
    open_store(f);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    mr_broker_close(f->broker);
    temp_dir_remove(f->base);
    free(f);
    return 0;
}

static void put(struct fixture *f, const char *queue, const char *id, const char *topic)
{
    struct mr_task_options task = {
        .queue = mr_slice_str(queue), .id = mr_slice_str(id), .topic = mr_slice_str(topic)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* Takes one, and it is this one; NULL: there is none. */
static void expect(struct fixture *f, const char *id, int64_t wait_ms)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = f->node, .max = 1, .wait_ms = wait_ms};
    enum mr_err err = mr_broker_call(f->broker, &req.req);
    if (id == NULL) {
        assert_int_equal(err, MR_EMPTY);
    } else {
        assert_int_equal(err, MR_OK);
        assert_int_equal(mr_broker_lease_open(f->broker, req.leases), MR_OK);
        assert_true(mr_slice_equal(req.leases->task.id, mr_slice_str(id)));
        mr_lease_free(req.leases);
    }
    mr_req_done(&req.req);
}

static uint64_t scheduled(struct fixture *f)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = mr_slice_str("default"), .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info.counts[MR_SCHEDULED];
}

static mr_mono in_ms(int64_t ms)
{
    return mr_mono_add_ms(mr_mono_now(mr_clock_system()), ms);
}

static void what_is_not_guarded_is_handed_out(void **state)
{
    struct fixture *f = *state;
    put(f, "default", "before", "held:a");
    expect(f, "before", 0);
    mr_gate_guard(f->gate, "held:", MR_GATE_BY_TOPIC);
    put(f, "default", "plain", "");
    put(f, "default", "other", "topic");
    put(f, "default", "guarded", "held:a");
    expect(f, "plain", 0);
    expect(f, "other", 0);
    expect(f, NULL, 0);
}

/* Others pass by it, and when it may go it has its old place. */
static void what_is_kept_back_keeps_its_place(void **state)
{
    struct fixture *f = *state;
    mr_gate_guard(f->gate, "held:", MR_GATE_BY_TOPIC);
    put(f, "default", "1", "held:a");
    put(f, "default", "2", "");
    put(f, "default", "3", "held:b");
    put(f, "default", "4", "");
    expect(f, "2", 0);
    expect(f, "4", 0);
    expect(f, NULL, 0);
    put(f, "default", "5", "");
    mr_gate_until(f->gate, "held:", (struct mr_slice){0}, in_ms(SOON_MS));
    for (mr_mono end = in_ms(SOON_MS); scheduled(f) > 0;) {
        assert_true(mr_mono_now(mr_clock_system()).ns < end.ns);
        (void)usleep(1000);
    }
    expect(f, "1", 0);
    expect(f, "3", 0);
    expect(f, "5", 0);
    expect(f, NULL, 0);
}

/* Nobody has to say so: an engine whose server stands still hands out nothing when it goes on. */
static void it_closes_by_the_passing_of_time(void **state)
{
    struct fixture *f = *state;
    mr_gate_guard(f->gate, "held:", MR_GATE_BY_TOPIC);
    mr_mono until = in_ms(50);
    mr_gate_until(f->gate, "held:", (struct mr_slice){0}, until);
    while (mr_mono_now(mr_clock_system()).ns < until.ns)
        (void)usleep(1000);
    put(f, "default", "late", "held:a");
    expect(f, NULL, 20);
    mr_gate_until(f->gate, "held:", (struct mr_slice){0}, in_ms(SOON_MS));
    expect(f, "late", SOON_MS);
}

/* A take that waits gets it when it may go, and not before. */
static void each_queue_has_its_own_time(void **state)
{
    struct fixture *f = *state;
    mr_gate_guard(f->gate, "parts", MR_GATE_BY_QUEUE);
    mr_gate_until(f->gate, "parts", mr_slice_str("other"), in_ms(SOON_MS));
    put(f, "default", "a", "parts");
    put(f, "other", "b", "parts");
    expect(f, "b", 0);
    expect(f, NULL, 20);
    mr_gate_until(f->gate, "parts", mr_slice_str("other"), (mr_mono){0});
    mr_gate_until(f->gate, "parts", mr_slice_str("default"), in_ms(SOON_MS));
    put(f, "other", "c", "parts");
    expect(f, "a", SOON_MS);
    expect(f, NULL, 20);
}

/* It is a change like any other: a store that is opened again knows of it. */
static void what_is_kept_back_is_there_after_a_restart(void **state)
{
    struct fixture *f = *state;
    mr_gate_guard(f->gate, "held:", MR_GATE_BY_TOPIC);
    put(f, "default", "1", "held:a");
    put(f, "default", "2", "held:a");
    expect(f, NULL, 0);
    mr_broker_close(f->broker);
    open_store(f);
    expect(f, "1", SOON_MS);
    expect(f, "2", SOON_MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_not_guarded_is_handed_out, begin, end),
        cmocka_unit_test_setup_teardown(what_is_kept_back_keeps_its_place, begin, end),
        cmocka_unit_test_setup_teardown(it_closes_by_the_passing_of_time, begin, end),
        cmocka_unit_test_setup_teardown(each_queue_has_its_own_time, begin, end),
        cmocka_unit_test_setup_teardown(what_is_kept_back_is_there_after_a_restart, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
