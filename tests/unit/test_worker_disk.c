/* SPDX-License-Identifier: Apache-2.0 */
/* A worker on an embedded store whose disk stalls or fails under it. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/diag.h"
#include "broker/embedded/embedded.h"
#include "unit/temp_dir.h"
#include "worker/worker.h"

enum { BEAT_MS = 50, LEASE_MS = 3 * BEAT_MS };

struct world {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16];
    struct mr_broker *broker;
    struct mr_worker *worker;
    struct mr_event entered, go; /* a run has begun; it may end */
    _Atomic int runs, told_to_stop;
};

/* ---- the disk ------------------------------------------------------------------------------- */

static struct {
    struct mr_fs_ops ops;
    struct mr_fs fs;
    _Atomic bool stalls, fails; /* the next write waits for goes_on; syncs fail */
    struct mr_event waits, goes_on;
} disk;

static enum mr_err disk_pwrite(struct mr_file *file, const void *data, size_t len, uint64_t offset)
{
    if (atomic_exchange(&disk.stalls, false)) {
        mr_event_set(&disk.waits);
        mr_event_wait(&disk.goes_on, INT64_MAX);
    }
    return mr_fs_system()->ops->pwrite(file, data, len, offset);
}

static enum mr_err disk_sync(struct mr_file *file)
{
    return atomic_load(&disk.fails) ? MR_IO : mr_fs_system()->ops->sync(file);
}

static void disk_init(void)
{
    disk.ops = *mr_fs_system()->ops;
    disk.ops.pwrite = disk_pwrite;
    disk.ops.sync = disk_sync;
    disk.fs.ops = &disk.ops;
    atomic_store(&disk.stalls, false);
    atomic_store(&disk.fails, false);
    mr_event_init(&disk.waits);
    mr_event_init(&disk.goes_on);
}

/* ---- the store and the worker --------------------------------------------------------------- */

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static int begin(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    mr_event_init(&world->entered);
    mr_event_init(&world->go);
    disk_init();
    temp_dir_make(world->base);
    snprintf(world->dir, sizeof world->dir, "%s/store", world->base);
    struct mr_embedded_options options = {
        .dir = world->dir, .segment_bytes = 1024 * 1024, .fs = &disk.fs};
    assert_int_equal(mr_embedded_open(&options, &world->broker, NULL), MR_OK);
    *state = world;
    return 0;
}

static int end(void **state)
{
    struct world *world = *state;
    mr_event_set(&disk.goes_on);
    mr_event_set(&world->go);
    mr_worker_free(world->worker);
    mr_broker_close(world->broker);
    temp_dir_remove(world->base);
    free(world);
    return 0;
}

static enum mr_outcome run_until_told(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    atomic_fetch_add(&world->runs, 1);
    mr_event_set(&world->entered);
    mr_event_wait(&world->go, INT64_MAX);
    atomic_fetch_add(&world->told_to_stop, mr_run_cancelled(run));
    return MR_DONE;
}

static void make_worker(struct world *world, struct mr_worker_options options)
{
    options.beat_ms = BEAT_MS;
    options.slots = 2;
    assert_int_equal(mr_worker_new_on(world->broker, &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "*", run_until_told, world), MR_OK);
}

static enum mr_err enqueue(struct world *world, const char *queue, const char *id)
{
    struct mr_task_options task = {
        .queue = mr_slice_str(queue), .id = mr_slice_str(id), .retention_ms = MR_MS_PER_DAY};
    struct mr_enqueue_result result = {0};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = mr_broker_call(world->broker, &req.req);
    mr_req_done(&req.req);
    return err != MR_OK ? err : result.err;
}

static void *enqueue_other(void *arg)
{
    assert_int_equal(enqueue(arg, "other", "other"), MR_OK);
    return NULL;
}

static struct mr_task look(struct world *world, const char *id)
{
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    assert_int_equal(mr_broker_call(world->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.task; /* without its texts */
}

static void a_disk_that_stalls_for_longer_than_the_lease_costs_no_run(void **state)
{
    struct world *world = *state;
    assert_int_equal(enqueue(world, "default", "long"), MR_OK);
    make_worker(world, (struct mr_worker_options){0});
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
    assert_true(mr_event_wait(&world->entered, INT64_MAX));
    atomic_store(&disk.stalls, true);
    pthread_t other;
    assert_int_equal(mr_thread_start(&other, "other", enqueue_other, world), MR_OK);
    assert_true(mr_event_wait(&disk.waits, INT64_MAX));
    struct mr_event never;
    mr_event_init(&never);
    assert_false(mr_event_wait(&never, 4 * LEASE_MS * MR_NS_PER_MS)); /* the stall itself */
    mr_event_set(&disk.goes_on);
    mr_thread_join(other);
    assert_false(mr_event_wait(&never, 2 * LEASE_MS * MR_NS_PER_MS)); /* for the wrong thing */
    mr_event_set(&world->go);
    mr_worker_stop(world->worker);
    struct mr_task task = look(world, "long");
    assert_int_equal(task.state, MR_COMPLETED);
    assert_int_equal(task.crashes, 0);
    assert_int_equal(atomic_load(&world->runs), 1);
    assert_int_equal(atomic_load(&world->told_to_stop), 0);
}

static void *run_worker(void *arg)
{
    struct world *world = arg;
    assert_int_equal(mr_worker_run(world->worker), MR_IO);
    return NULL;
}

static void a_failed_sync_ends_a_worker_that_waits_for_tasks(void **state)
{
    struct world *world = *state;
    assert_int_equal(enqueue(world, "default", "first"), MR_OK);
    mr_event_set(&world->go);
    make_worker(world, (struct mr_worker_options){0});
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "run", run_worker, world), MR_OK);
    struct mr_worker_figures figures = {0};
    while (figures.done == 0 ||
           figures.slots[MR_SLOT_PENDING] + figures.slots[MR_SLOT_POLLING] < 2) {
        sched_yield();
        mr_worker_figures(world->worker, &figures);
    }
    atomic_store(&disk.fails, true);
    assert_int_equal(enqueue(world, "other", "never"), MR_IO);
    mr_thread_join(thread);
}

static void a_failed_sync_ends_a_burst_with_the_error(void **state)
{
    struct world *world = *state;
    assert_int_equal(enqueue(world, "default", "a"), MR_OK);
    assert_int_equal(enqueue(world, "default", "b"), MR_OK);
    make_worker(world, (struct mr_worker_options){.burst = true});
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "run", run_worker, world), MR_OK);
    while (atomic_load(&world->runs) < 2)
        assert_true(mr_event_wait(&world->entered, INT64_MAX));
    atomic_store(&disk.fails, true);
    mr_event_set(&world->go);
    mr_thread_join(thread);
    struct mr_worker_figures figures;
    mr_worker_figures(world->worker, &figures);
    assert_int_equal(figures.done, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_disk_that_stalls_for_longer_than_the_lease_costs_no_run),
        TEST(a_failed_sync_ends_a_worker_that_waits_for_tasks),
        TEST(a_failed_sync_ends_a_burst_with_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
