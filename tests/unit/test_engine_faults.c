/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on a disk that fails it: syncs that fail, sectors that cannot be read, no space, no
 * descriptors. What still can be done is done, what cannot is said, and nobody is told anything
 * after he has gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { HOUR_MS = 3600 * 1000, SEGMENT = 16 * 1024 };

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err enqueue(struct store_rig *f, const char *id, size_t payload_len,
                           int64_t retention_ms)
{
    static const char payload[4096];
    struct mr_task_options task = {.id = mr_slice_str(id),
                                   .payload = mr_slice_make(payload, payload_len),
                                   .retention_ms = retention_ms};
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = rig_call(&f->rig, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || result.err == err); /* what fails as a whole fails in its items */
    return result.err;
}

/* Tells whom it was told to, and when it should have been quiet. */
struct listener {
    uint64_t node;
    unsigned told;
    bool gone;
};

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct listener *listener = arg;
    (void)epoch, (void)reason;
    assert_false(listener->gone);
    listener->told++;
}

static void open_node(struct store_rig *f, struct listener *listener, int64_t lease_ms)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("n"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 4,
                                   .lease_ms = lease_ms,
                                   .events = {.stop = on_stop, .arg = listener}};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    listener->node = req.node;
    mr_req_done(&req.req);
}

static enum mr_err close_node(struct store_rig *f, struct listener *listener)
{
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = listener->node};
    enum mr_err err = rig_call(&f->rig, &req.req);
    mr_req_done(&req.req);
    listener->gone = true;
    return err;
}

/* Takes up to max, which the caller frees. */
static struct mr_lease *take(struct store_rig *f, uint64_t node, size_t max)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = max};
    enum mr_err err = rig_call(&f->rig, &req.req);
    assert_true(err == MR_OK || err == MR_EMPTY || err == MR_DISK_FULL);
    mr_req_done(&req.req);
    return req.leases;
}

static void free_leases(struct mr_lease *lease)
{
    while (lease != NULL) {
        struct mr_lease *next = lease->next;
        mr_lease_free(lease);
        lease = next;
    }
}

static enum mr_err finish(struct store_rig *f, struct mr_lease *lease, struct mr_slice result)
{
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .outcome = MR_DONE, .result = result};
    enum mr_err end = MR_FAILED;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &end};
    enum mr_err err = rig_call(&f->rig, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || end == err);
    return end;
}

static uint64_t count(struct store_rig *f, enum mr_state state)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = &info, .max = 1};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info.counts[state];
}

static void pass(struct store_rig *f, int64_t ms)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + ms * MR_NS_PER_MS);
}

/* ---- syncs ---------------------------------------------------------------------------------- */

static void reading_goes_on_after_a_failed_sync(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "kept");
    pass(f, 1000);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    assert_int_equal(enqueue(f, "never", 10, 0), MR_IO);
    assert_true(store_rig_stats(f).failed);
    struct mr_req_list list = {.req.op = MR_OP_LIST};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    assert_int_equal(list.n, 1);
    assert_true(mr_slice_equal(list.tasks[0].id, MR_SLICE_LIT("kept")));
    mr_req_done(&list.req);
    assert_int_equal(count(f, MR_PENDING), 1);
    struct mr_queue_day day;
    struct mr_req_queue_history history = {
        .req.op = MR_OP_QUEUE_HISTORY, .queue = MR_SLICE_LIT("default"), .days = &day, .max = 1};
    assert_int_equal(rig_call(&f->rig, &history.req), MR_OK);
    mr_req_done(&history.req);
    struct mr_req_get get = store_rig_get(f, "kept");
    mr_req_done(&get.req);
    struct mr_req_get other = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("never")};
    assert_int_equal(rig_call(&f->rig, &other.req), MR_IO); /* whether it is there shows later */
    mr_req_done(&other.req);
}

static void note(struct mr_req *req)
{
    *(bool *)req->arg = true;
}

static void whoever_waits_for_a_task_learns_of_a_failed_sync(void **state)
{
    struct store_rig *f = *state;
    struct listener listener = {0};
    store_rig_open(f);
    open_node(f, &listener, HOUR_MS);
    bool answered = false;
    struct mr_req_take waiting = {.req = {.op = MR_OP_TAKE, .done = note, .arg = &answered},
                                  .node = listener.node,
                                  .max = 1,
                                  .wait_ms = HOUR_MS};
    rig_submit(&f->rig, &waiting.req);
    pass(f, 1000);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    assert_false(answered);
    assert_int_equal(enqueue(f, "never", 10, 0), MR_IO);
    assert_true(answered);
    assert_int_equal(waiting.req.err, MR_IO);
    mr_req_done(&waiting.req);
    struct mr_req_take next = {.req.op = MR_OP_TAKE, .node = listener.node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &next.req), MR_IO);
    mr_req_done(&next.req);
}

static void a_task_in_doubt_is_named(void **state)
{
    struct store_rig *f = *state;
    struct mr_task_options task = {0};
    struct mr_enqueue_result result = {.err = MR_OK};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    store_rig_open(f);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_IO);
    mr_req_done(&req.req);
    assert_int_equal(result.err, MR_IO);
    assert_int_equal(strlen(result.id), MR_UUID_TEXT_LEN); /* it can be asked for after a restart */
}

static void a_node_that_closes_after_a_failed_sync_is_told_nothing_more(void **state)
{
    struct store_rig *f = *state;
    struct listener listener = {0};
    store_rig_open(f);
    store_rig_enqueue(f, "a");
    open_node(f, &listener, 10 * 1000);
    struct mr_lease *lease = take(f, listener.node, 1);
    assert_non_null(lease);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    assert_int_equal(enqueue(f, "never", 10, 0), MR_IO);
    assert_int_equal(close_node(f, &listener), MR_IO);
    pass(f, HOUR_MS); /* its lease runs out as well */
    free_leases(lease);
}

/* ---- space and descriptors ------------------------------------------------------------------ */

static size_t fill_up(struct store_rig *f, enum mr_err refusal)
{
    enum mr_err err = MR_OK;
    size_t n = 0;
    for (; err == MR_OK; n++) {
        char id[32];
        snprintf(id, sizeof id, "t-%zu", n);
        err = enqueue(f, id, 500, 0);
    }
    assert_int_equal(err, refusal);
    return n - 1;
}

static void nodes_come_and_go_on_a_full_disk_and_their_tasks_return(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    simfs_set_capacity(f->fs, 600 * 1024);
    size_t n = fill_up(f, MR_DISK_FULL);
    for (int round = 0; round < 3; round++) {
        struct listener closing = {0}, dying = {0};
        open_node(f, &closing, HOUR_MS);
        open_node(f, &dying, 1000);
        struct mr_lease *closed = take(f, closing.node, 10), *lost = take(f, dying.node, 10);
        assert_true(closed != NULL && lost != NULL);
        assert_int_equal(close_node(f, &closing), MR_OK);
        pass(f, 3000);
        assert_true(dying.told > 0);
        assert_int_equal(count(f, MR_PENDING), n);
        free_leases(closed);
        free_leases(lost);
    }
}

static void without_descriptors_work_is_finished_and_service_resumes(void **state)
{
    struct store_rig *f = *state;
    struct listener listener = {0};
    store_rig_open(f);
    store_rig_enqueue(f, "first");
    open_node(f, &listener, HOUR_MS);
    struct mr_lease *lease = take(f, listener.node, 1);
    assert_non_null(lease);
    simfs_fail(f->fs, SIMFS_CREATE, 0, SIMFS_FOR_EVER, MR_BUSY); /* EMFILE */
    (void)fill_up(f, MR_UNAVAILABLE);
    assert_int_equal(finish(f, lease, (struct mr_slice){0}), MR_OK);
    free_leases(lease);
    assert_false(store_rig_stats(f).failed);
    simfs_heal(f->fs);
    pass(f, 3000);
    assert_int_equal(enqueue(f, "again", 500, 0), MR_OK);
}

/* ---- sizes and sectors ---------------------------------------------------------------------- */

static void a_result_that_fits_no_segment_ends_its_task_in_the_archive(void **state)
{
    static const char result[9000];
    struct store_rig *f = *state;
    struct listener listener = {0};
    f->rig.segment_bytes = SEGMENT;
    store_rig_open(f);
    assert_int_equal(enqueue(f, "big", 10, HOUR_MS), MR_OK);
    open_node(f, &listener, HOUR_MS);
    struct mr_lease *lease = take(f, listener.node, 1);
    assert_int_equal(finish(f, lease, mr_slice_make(result, sizeof result)), MR_OK);
    free_leases(lease);
    struct mr_req_get get = store_rig_get(f, "big");
    assert_int_equal(get.task.state, MR_ARCHIVED);
    assert_true(mr_slice_starts_with(get.task.last_error, MR_SLICE_LIT("the result is too big")));
    mr_req_done(&get.req);
}

/* The place of a task's record: where its id stands in the first segment. */
static uint64_t place_of(const struct store_rig *f, const char *id)
{
    size_t file = store_rig_file(f, "log-00000001"), len = strlen(id);
    const uint8_t *data = simfs_file_data(f->fs, file);
    for (uint64_t at = 0; at + len <= simfs_file_size(f->fs, file); at++)
        if (memcmp(data + at, id, len) == 0)
            return at;
    fail_msg("no %s", id);
    return 0;
}

static void one_unreadable_sector_takes_only_the_tasks_in_it(void **state)
{
    enum { SECTOR = 512 };
    struct store_rig *f = *state;
    struct listener listener = {0};
    store_rig_make(f); /* records of about 700 bytes: a sector touches two at most */
    uint64_t at = place_of(f, "task-5") / SECTOR * SECTOR;
    store_rig_open(f);
    simfs_unreadable(f->fs, store_rig_file(f, "log-00000001"), at, SECTOR);
    open_node(f, &listener, HOUR_MS);
    size_t taken = 0;
    for (struct mr_lease *lease; (lease = take(f, listener.node, 1)) != NULL; taken++) {
        assert_int_equal(finish(f, lease, (struct mr_slice){0}), MR_OK);
        free_leases(lease);
    }
    uint64_t archived = count(f, MR_ARCHIVED);
    assert_in_range(archived, 1, 2);
    assert_int_equal(taken + archived, STORE_RIG_TASKS);
    assert_int_equal(store_rig_stats(f).records_damaged, archived);
}

/* ---- pages ---------------------------------------------------------------------------------- */

static void a_page_copies_nothing_of_types_that_are_not_wanted(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    store_rig_open(f);
    struct mr_req_list list = {
        .req.op = MR_OP_LIST,
        .options = {.type = MR_SLICE_LIT("other"), .with_payload = true, .limit = 10}};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    assert_int_equal(list.n, 0);
    assert_true(list.req.arena.bytes < 16 * 1024); /* the tasks have over 36 KB */
    mr_req_done(&list.req);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reading_goes_on_after_a_failed_sync),
        TEST(whoever_waits_for_a_task_learns_of_a_failed_sync),
        TEST(a_task_in_doubt_is_named),
        TEST(a_node_that_closes_after_a_failed_sync_is_told_nothing_more),
        TEST(nodes_come_and_go_on_a_full_disk_and_their_tasks_return),
        TEST(without_descriptors_work_is_finished_and_service_resumes),
        TEST(a_result_that_fits_no_segment_ends_its_task_in_the_archive),
        TEST(one_unreadable_sector_takes_only_the_tasks_in_it),
        TEST(a_page_copies_nothing_of_types_that_are_not_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
