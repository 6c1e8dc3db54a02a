/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with its threads, on real files whose syncs fail, or with more to do at a start than a
 * segment holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "unit/temp_dir.h"

enum { SEGMENT = 16 * 1024, RUNNING = 900, PATIENCE_S = 120 };

struct fixture {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16], copy[TEMP_DIR_MAX + 16];
    struct mr_broker *broker;
};

/* The system's files, but for syncs: from the chosen one on they fail. */
static atomic_long syncs_left;
static struct mr_fs_ops failing_ops;
static struct mr_fs failing_fs = {&failing_ops};

static enum mr_err failing_sync(struct mr_file *file)
{
    if (atomic_fetch_sub(&syncs_left, 1) <= 0)
        return MR_IO;
    return mr_fs_system()->ops->sync(file);
}

static enum mr_err open_store(struct fixture *f, long syncs)
{
    struct mr_embedded_options options = {
        .dir = f->dir, .segment_bytes = SEGMENT, .fs = &failing_fs};
    struct mr_detail detail = {{0}};
    atomic_store(&syncs_left, syncs);
    enum mr_err err = mr_embedded_open(&options, &f->broker, &detail);
    if (err != MR_OK)
        assert_int_not_equal(detail.text[0], '\0');
    return err;
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    failing_ops = *mr_fs_system()->ops;
    failing_ops.sync = failing_sync;
    temp_dir_make(f->base);
    snprintf(f->dir, sizeof f->dir, "%s/store", f->base);
    snprintf(f->copy, sizeof f->copy, "%s/copy", f->base);
    alarm(PATIENCE_S); /* what never ends is a failure, not a hang */
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    alarm(0);
    temp_dir_remove(f->base);
    free(f);
    return 0;
}

static enum mr_err enqueue(struct fixture *f, const char *id, size_t len)
{
    static char payload[2048];
    struct mr_task_options task = {.id = mr_slice_str(id), .payload = mr_slice_make(payload, len)};
    struct mr_enqueue_result result = {.err = MR_OK};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = mr_broker_call(f->broker, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : result.err;
}

static enum mr_err delete_task(struct fixture *f, const char *id)
{
    struct mr_control item = {.verb = MR_VERB_DELETE, .id = mr_slice_str(id)};
    enum mr_err result;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &result};
    enum mr_err err = mr_broker_call(f->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* Segments fill and empty, snapshots are made, until a sync fails. */
static enum mr_err churn_until_it_fails(struct fixture *f, long round)
{
    enum mr_err err = MR_OK;
    for (unsigned i = 0; err == MR_OK && i < 5000; i++) {
        char id[32];
        snprintf(id, sizeof id, "%ld-%u", round, i);
        err = enqueue(f, id, 800);
        if (err == MR_OK)
            err = delete_task(f, id);
    }
    return err;
}

static void closing_and_backups_end_whenever_a_sync_failed(void **state)
{
    struct fixture *f = *state;
    unsigned failed = 0;
    for (long syncs = 10; syncs < 250; syncs += 7) {
        if (open_store(f, syncs) != MR_OK)
            continue;
        assert_int_not_equal(churn_until_it_fails(f, syncs), MR_OK);
        struct mr_req_backup backup = {.req.op = MR_OP_BACKUP, .dir = f->copy};
        assert_int_not_equal(mr_broker_call(f->broker, &backup.req), MR_OK);
        mr_req_done(&backup.req);
        mr_broker_close(f->broker);
        failed++;
    }
    assert_true(failed > 20);
    assert_int_equal(open_store(f, LONG_MAX), MR_OK);
    mr_broker_close(f->broker);
}

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Leaves that many tasks in the hands of a worker. */
static void take_all(struct fixture *f, size_t n)
{
    struct mr_worker_queue queue = {.name = mr_slice_str("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = mr_slice_str("node"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .events.stop = no_stop,
                                    .lease_ms = 3600000};
    assert_int_equal(mr_broker_call(f->broker, &node.req), MR_OK);
    for (size_t taken = 0; taken < n;) {
        struct mr_req_take req = {
            .req.op = MR_OP_TAKE, .node = node.node, .max = n - taken, .wait_ms = 1000};
        assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
        struct mr_lease *next;
        for (struct mr_lease *lease = req.leases; lease != NULL; lease = next, taken++) {
            next = lease->next;
            mr_lease_free(lease);
        }
        mr_req_done(&req.req);
    }
    mr_req_done(&node.req);
}

static uint64_t count(struct fixture *f, enum mr_state state)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info.counts[state];
}

/* Each of them costs a record at the start; the segments for them are made there and then. */
static void a_start_takes_back_more_running_tasks_than_segments_hold(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_store(f, LONG_MAX), MR_OK);
    for (unsigned i = 0; i < RUNNING; i++) {
        char id[32];
        snprintf(id, sizeof id, "%u", i);
        assert_int_equal(enqueue(f, id, 20), MR_OK);
    }
    for (int round = 0; round < 3; round++) {
        take_all(f, RUNNING);
        assert_int_equal(count(f, MR_ACTIVE), RUNNING);
        mr_broker_close(f->broker);
        assert_int_equal(open_store(f, LONG_MAX), MR_OK);
        assert_int_equal(count(f, MR_PENDING), RUNNING);
        char id[32];
        snprintf(id, sizeof id, "more-%d", round);
        assert_int_equal(enqueue(f, id, 20), MR_OK);
        assert_int_equal(delete_task(f, id), MR_OK);
    }
    mr_broker_close(f->broker);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(closing_and_backups_end_whenever_a_sync_failed),
        TEST(a_start_takes_back_more_running_tasks_than_segments_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
