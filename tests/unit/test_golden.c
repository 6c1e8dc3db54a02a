/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores written by earlier versions open and say what they said then. tests/golden/v1 to
 * v8 are copied to a disk in memory, opened at a fixed time and compared field by field. Stores of a version
 * still to come are made from it by raising one number, and are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/crc.h"
#include "broker/embedded/snapfile.h"
#include "broker/result.h"
#include "log/log.h"
#include "sim/rig.h"
#include "sim/simfs.h"
#include "unit/golden_task.h"
#include "unit/store_rig.h"

/* An hour after the last thing that happened in it. */
#define GOLDEN_OPENED_US ((1790000799LL + 3600) * 1000000)
/* The greatest that came from another broker: ahead of all that were handed out, behind the ceiling. */
#define BROUGHT_EPOCH 1790001300000000ULL

enum { BOARD_SLOT_AT = 64 };

static void copy_file(struct mr_fs *fs, const char *dir, const char *name)
{
    char from[MR_PATH_MAX], to[MR_PATH_MAX];
    static uint8_t bytes[256 * 1024];
    assert_int_equal(mr_path_join(from, dir, name), MR_OK);
    assert_int_equal(mr_path_join(to, RIG_DIR, name), MR_OK);
    FILE *file = fopen(from, "rb");
    assert_non_null(file);
    size_t len = fread(bytes, 1, sizeof bytes, file);
    assert_true(len > 0 && len < sizeof bytes);
    assert_int_equal(fclose(file), 0);
    struct mr_file *copy;
    assert_int_equal(mr_fs_open(fs, to, MR_OPEN_CREATE, &copy), MR_OK);
    assert_int_equal(mr_file_pwrite(copy, bytes, len, 0), MR_OK);
    assert_int_equal(mr_file_sync(copy), MR_OK);
    mr_file_close(copy);
}

/* One of the golden stores, and what is not the same in all of them. */
static const struct golden {
    const char *dir;
    uint32_t snapshot_version;
    uint64_t processed, deleted;
    int64_t archived_order_ms; /* version 1 kept the time of its end in its place */
    bool groups;               /* before, a task with a group was pending like any other */
    bool results;              /* before, a topic meant nothing */
    bool parts;                /* before, a queue was one */
    bool limits;               /* before, there were none */
    bool carried;              /* before, none came from another broker */
    bool closed;               /* before, it died; and what came brought no epoch */
    uint64_t active_epoch;     /* 0: that which stands on the board of v1 */
} goldens[] = {
    {"v1", 1, 5, 15, 1790000052000, false, false, false, false, false, false, 0},
    {"v2", 2, 6, 15, 1790000050000, false, false, false, false, false, false, 0},
    {"v3", 3, 6, 15, 1790000050000, true, false, false, false, false, false, 0},
    {"v4", 3, 6, 15, 1790000050000, true, true, false, false, false, false, 0},
    {"v5", 4, 6, 14, 1790000050000, true, true, true, false, false, false, 0},
    {"v6", 4, 6, 14, 1790000050000, true, true, true, true, false, false, 0},
    {"v7", 4, 6, 14, 1790000050000, true, true, true, true, true, false, 0},
    {"v8", 4, 6, 14, 1790000050000, true, true, true, true, true, true, 1790001029000002}};
static const struct golden *golden = goldens;

static int begin(void **state)
{
    store_rig_begin(state);
    struct store_rig *f = *state;
    f->rig.clock.wall_us = GOLDEN_OPENED_US;
    f->rig.validate = true;
    struct mr_fs *fs = simfs_fs(f->fs);
    assert_int_equal(fs->ops->dir_make(fs, RIG_DIR), MR_OK);
    char path[MR_PATH_MAX];
    const char *source = getenv("MR_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/%s", source != NULL ? source : ".", golden->dir);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.')
            copy_file(fs, path, entry->d_name);
    closedir(dir);
    return 0;
}

/* ---- what it says --------------------------------------------------------------------------- */

static const char *const tasks[] = {
    "later: scheduled queue=default type=report payload=scheduled, carried forward "
    "order=1792592005000 due=1792592005000 attempt=1 max_retry=25 timeout=1800000 "
    "created=1790000005000",
    "scheduled: scheduled queue=default type=task priority_ms=-60000 order=1893456060000 "
    "due=1893456000000 attempt=1 max_retry=25 timeout=1800000 created=1790000428000",
    "active: pending queue=default type=task priority_ms=9000000 order=1789991797000 "
    "attempt=1 max_retry=25 timeout=1800000 created=1790000797000",
    "crashed: pending queue=default type=task priority_ms=5000000 order=1789995793000 "
    "attempt=2 max_retry=25 crashes=1 timeout=1800000 created=1790000793000",
    "moved: pending queue=default type=task priority_ms=99500 order=1790000325500 "
    "attempt=1 max_retry=25 timeout=1800000 created=1790000425000",
    "pending: pending queue=default type=task payload=hello order=1790000424000 attempt=1 "
    "max_retry=25 created=1790000424000",
    "01a0c456-eff8-7830-8236-fa0bb7033f71: pending queue=default type=task "
    "payload=generated id order=1790000427000 attempt=1 max_retry=25 timeout=1800000 "
    "created=1790000427000",
    "retry: retry queue=default type=task payload=fails once order=1792592049000 "
    "due=1792592049000 attempt=2 retried=1 max_retry=3 timeout=1800000 "
    "created=1790000047000 failed=1790000049000 error=no luck",
    "archived: archived queue=default type=task payload=\\xff\\x00 bytes "
    "attempt=1 timeout=1800000 created=1790000050000 "
    "started=1790000051000 finished=1790000052000 failed=1790000052000 error=gave up",
    "cancelled: archived queue=default type=task attempt=1 "
    "max_retry=25 timeout=1800000 created=1790000059000 finished=1790000060000 "
    "error=cancelled",
    "kept: completed queue=default type=task payload=carried forward "
    "attempt=1 max_retry=25 timeout=1800000 retention=315360000000 created=1790000002000 "
    "started=1790000003000 finished=1790000004000 result=result of kept",
    "completed: completed queue=default type=task topic=answers "
    "attempt=1 max_retry=25 timeout=1800000 retention=315360000000 created=1790000053000 "
    "started=1790000054000 finished=1790000055000 result=42",
};
enum { TASKS = sizeof tasks / sizeof *tasks };

static const char *const full =
    "full: pending queue=mail type=mail:send payload={\"to\":\"you\"} unique=key "
    "group=group topic=topic header=trace value=00-ab header=empty priority_ms=12500 "
    "order=1790000410500 attempt=1 max_retry=7 timeout=1234 deadline=1893456000000 "
    "retention=86400000 created=1790000423000";

/* In its place, behind what is of a queue that was made before. */
static const char *const grouped[] = {
    "whole: pending queue=z-groups type=task payload=of two order=1790000428000 attempt=1 "
    "max_retry=25 timeout=1800000 created=1790000428000",
    "g3: aggregating queue=z-groups type=task payload=g3 group=others order=1790000007000 "
    "attempt=1 max_retry=25 timeout=1800000 created=1790000007000",
    "g4: aggregating queue=z-groups type=task payload=g4 group=pages order=1790000428000 "
    "attempt=1 max_retry=25 timeout=1800000 created=1790000428000",
    "full: aggregating queue=mail type=mail:send payload={\"to\":\"you\"} unique=key "
    "group=group topic=topic header=trace value=00-ab header=empty priority_ms=12500 "
    "order=1790000423000 attempt=1 max_retry=7 timeout=1234 deadline=1893456000000 "
    "retention=86400000 created=1790000423000",
};
enum { GROUPED = sizeof grouped / sizeof *grouped };

/* Between them, before the last one; those of a partition that went are behind what was in theirs before. */
static const char *const parted[] = {
    "p1: pending queue=z-parts type=task order=1790000007000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000007000",
    "p4: pending queue=z-parts type=task order=1790000007000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000007000",
    "p5: pending queue=z-parts type=task order=1790000428000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000428000",
    "p2: pending queue=z-parts partition=2 type=task order=1790000007000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000007000",
    "p3: pending queue=z-parts partition=3 type=task order=1790000007000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000007000",
    "p6: pending queue=z-parts partition=3 type=task order=1790000428000 attempt=1 max_retry=25 "
    "timeout=1800000 created=1790000428000",
};
enum { PARTED = sizeof parted / sizeof *parted };

/* Last of all. */
static const struct {
    const char *text;
    bool closed; /* only there */
} carried[] = {
    {"c-later: scheduled queue=zz-carried type=moved payload=c-later unique=carried "
     "order=1780000000000 due=1893456000000 attempt=1 max_retry=25 timeout=1800000 "
     "created=1780000000000",
     false},
    {"c-pending: pending queue=zz-carried type=moved payload=c-pending order=1780000000000 "
     "attempt=4 "
     "retried=2 max_retry=25 crashes=1 timeout=1800000 created=1780000000000 failed=1780000001000 "
     "error=failed there",
     false},
    {"c-ran: pending queue=zz-carried type=moved payload=c-ran order=1780000000000 attempt=2 "
     "retried=1 max_retry=25 timeout=1800000 created=1780000000000",
     true},
    {"c-gone: completed queue=zz-carried type=moved payload=c-gone attempt=1 max_retry=25 "
     "timeout=1800000 created=1780000000000 finished=1790000791000 error=moved to "
     "redis://elsewhere",
     false},
    {"c-completed: completed queue=zz-carried type=moved payload=c-completed attempt=1 "
     "max_retry=25 "
     "timeout=1800000 retention=315360000000 created=1780000000000 finished=1780000002000 "
     "result=done there",
     false},
    {"c-ended: completed queue=zz-carried type=moved payload=c-ended attempt=1 max_retry=25 "
     "timeout=1800000 retention=315360000000 created=1780000000000 started=1780000002000 "
     "finished=1780000003000 result=it ran there",
     true},
};
enum { CARRIED = sizeof carried / sizeof *carried };

static size_t parted_n(void)
{
    return golden->parts ? PARTED : 0;
}

static bool is_carried(size_t i)
{
    return golden->carried && (golden->closed || !carried[i].closed);
}

static size_t carried_n(void)
{
    size_t n = 0;
    for (size_t i = 0; i < CARRIED; i++)
        n += is_carried(i);
    return n;
}

static const char *carried_at(size_t place)
{
    size_t i = 0;
    while (!is_carried(i) || place-- > 0)
        i++;
    return carried[i].text;
}

static size_t tasks_n(void)
{
    return TASKS + (golden->groups ? GROUPED : 1) + parted_n() + carried_n();
}

static const char *task_at(size_t i)
{
    assert_true(i < tasks_n());
    if (i < TASKS)
        return tasks[i];
    if (!golden->groups)
        return full;
    i -= TASKS;
    if (i < GROUPED - 1)
        return grouped[i];
    i -= GROUPED - 1;
    if (i < parted_n())
        return parted[i];
    i -= parted_n();
    return i == 0 ? grouped[GROUPED - 1] : carried_at(i - 1);
}

static void assert_line(const struct mr_buf *buf, const char *expected)
{
    if (buf->len != strlen(expected) || memcmp(buf->data, expected, buf->len) != 0) {
        print_error("found:    %.*s\nexpected: %s\n", (int)buf->len, (const char *)buf->data,
                    expected);
        fail();
    }
}

static void assert_tasks(struct store_rig *f)
{
    struct mr_req_list list = {.req.op = MR_OP_LIST, .options.limit = 100};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    for (size_t i = 0; i < list.n; i++) {
        struct mr_req_get get = {.req.op = MR_OP_GET, .id = list.tasks[i].id};
        struct mr_buf buf = {0};
        assert_int_equal(rig_call(&f->rig, &get.req), MR_OK);
        put_task(&buf, &get.task);
        assert_line(&buf, task_at(i));
        mr_buf_done(&buf);
        mr_req_done(&get.req);
    }
    assert_int_equal(list.n, tasks_n());
    mr_req_done(&list.req);
}

static void every_task_is_as_it_was_written(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    assert_tasks(f);
}

/* Somebody may have kept one over an upgrade. */
static void a_cursor_leads_where_it_led(void **state)
{
    static const char cursor[] = "0.2.0.1789995793000.201";
    struct store_rig *f = *state;
    if (!golden->carried)
        return; /* ties are numbers of records, which are others in each */
    store_rig_open(f);
    struct mr_req_list list = {.req.op = MR_OP_LIST, .options.limit = 3};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    assert_string_equal(list.next, cursor);
    mr_req_done(&list.req);
    struct mr_req_list next = {.req.op = MR_OP_LIST, .options = {.limit = 1, .cursor = cursor}};
    assert_int_equal(rig_call(&f->rig, &next.req), MR_OK);
    assert_int_equal(next.n, 1);
    assert_true(mr_slice_equal(next.tasks[0].id, MR_SLICE_LIT("crashed")));
    mr_req_done(&next.req);
}

static void an_ended_task_still_has_its_order_time(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct mr_req_get req = store_rig_get(f, "archived");
    assert_int_equal(req.task.order_time_ms, golden->archived_order_ms);
    mr_req_done(&req.req);
}

static void queues_are_as_they_were_written(void **state)
{
    struct store_rig *f = *state;
    struct mr_queue_info infos[6];
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 6};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(req.n, golden->carried ? 5 : golden->parts ? 4 : golden->groups ? 3 : 2);
    assert_string_equal(infos[0].name, "default");
    static const uint64_t counts[MR_STATE_COUNT] = {0, 2, 5, 0, 1, 2, 2, 0};
    assert_memory_equal(infos[0].counts, counts, sizeof counts);
    assert_false(infos[0].paused);
    assert_int_equal(infos[0].max_length, 0);
    assert_int_equal(infos[0].processed_total, golden->processed);
    assert_int_equal(infos[0].failed_total, 2);
    assert_int_equal(infos[0].processed_today, golden->processed);
    assert_string_equal(infos[1].name, "mail");
    enum mr_state waits = golden->groups ? MR_AGGREGATING : MR_PENDING;
    assert_int_equal(infos[1].counts[waits], 1);
    assert_true(infos[1].paused);
    assert_int_equal(infos[1].max_length, 100);
    assert_int_equal(infos[1].processed_total, 0);
    for (size_t i = 0; i < req.n; i++)
        assert_int_equal(infos[i].partitions, i == 3 ? 3 : 1);
    if (golden->parts) {
        assert_string_equal(infos[3].name, "z-parts");
        assert_int_equal(infos[3].assign, MR_ASSIGN_CONSISTENT_HASH);
        assert_int_equal(infos[3].retry_mode, MR_RETRY_CLASS);
        assert_int_equal(infos[3].counts[MR_PENDING], PARTED);
    }
    mr_req_done(&req.req);
}

static void what_came_from_another_broker_is_held_until_it_is_released(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    struct mr_req_list list = {.req.op = MR_OP_LIST, .options = {.limit = 100, .held = true}};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    assert_int_equal(list.n, golden->carried ? 1 : 0);
    if (golden->carried) {
        assert_true(mr_slice_equal(list.tasks[0].id, MR_SLICE_LIT("c-held")));
        assert_true(list.tasks[0].held);
        assert_int_equal(list.tasks[0].state, MR_PENDING);
    }
    mr_req_done(&list.req);
}

static void what_came_from_another_broker_has_the_epoch_that_it_brought(void **state)
{
    struct store_rig *f = *state;
    if (!golden->closed)
        return;
    store_rig_open(f);
    struct mr_req_get req = store_rig_get(f, "c-ran");
    assert_int_equal(req.task.epoch, BROUGHT_EPOCH);
    mr_req_done(&req.req);
}

static void limits_are_as_they_were_written(void **state)
{
    static const struct mr_limit want[] = {
        {.scope = MR_LIMIT_QUEUE, .rate = 100, .rate_ms = 1000, .concurrency = 5},
        {.scope = MR_LIMIT_TYPE, .name = "sum", .concurrency = 2},
        {.scope = MR_LIMIT_KEY, .name = "*", .rate = 7, .rate_ms = 60000}};
    struct store_rig *f = *state;
    struct mr_limit all[MR_LIMITS_MAX];
    struct mr_req_queue_limits req = {
        .req.op = MR_OP_QUEUE_LIMITS, .queue = MR_SLICE_LIT("z-parts"), .limits = all};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), golden->parts ? MR_OK : MR_NOT_FOUND);
    assert_int_equal(req.n, golden->limits ? 3 : 0);
    for (size_t i = 0; i < req.n; i++) {
        assert_int_equal(all[i].scope, want[i].scope);
        assert_string_equal(all[i].name, want[i].name);
        assert_int_equal(all[i].rate, want[i].rate);
        assert_int_equal(all[i].rate_ms, want[i].rate_ms);
        assert_int_equal(all[i].concurrency, want[i].concurrency);
    }
    mr_req_done(&req.req);
}

static void counters_are_as_they_were_written(void **state)
{
    struct store_rig *f = *state;
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(req.stats.tasks, tasks_n() + golden->carried); /* one is held */
    assert_int_equal(req.stats.records_damaged, 0);
    assert_int_equal(req.stats.deleted, golden->deleted);
    assert_int_equal(req.stats.expired, 0);
    assert_int_equal(req.stats.gathered, golden->groups ? 2 : 0);
    mr_req_done(&req.req);
}

static void groups_go_on_where_they_were(void **state)
{
    struct store_rig *f = *state;
    struct mr_req_gather req = {.req.op = MR_OP_GATHER,
                                .queue = MR_SLICE_LIT("z-groups"),
                                .max_size = 2,
                                .max_delay_ms = 1,
                                .grace_ms = 1};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), golden->groups ? MR_OK : MR_EMPTY);
    assert_int_equal(req.n, golden->groups ? 1 : 0);
    if (golden->groups)
        assert_string_equal(req.group, "others");
    mr_req_done(&req.req);
}

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void results_wait_where_they_were(void **state)
{
    struct store_rig *f = *state;
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = mr_result_queue(MR_SLICE_LIT("answers"), name)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_MASTER,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .lease_ms = 1000,
                                    .events.stop = no_stop};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 2};
    assert_int_equal(rig_call(&f->rig, &take.req), golden->results ? MR_OK : MR_EMPTY);
    assert_int_equal(take.n, golden->results ? 1 : 0);
    if (golden->results) {
        struct mr_result result;
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), take.leases), MR_OK);
        assert_int_equal(mr_result_decode(take.leases->task.payload, &result), MR_OK);
        assert_true(mr_slice_equal(result.task_id, MR_SLICE_LIT("completed")));
        assert_true(mr_slice_equal(result.result, MR_SLICE_LIT("42")));
        assert_int_equal(result.finished_ms, 1790000055000);
        assert_true(result.final);
        mr_lease_free(take.leases);
    }
    mr_req_done(&take.req);
    mr_req_done(&open.req);
}

static void the_unique_key_is_still_held(void **state)
{
    struct store_rig *f = *state;
    struct mr_task_options task = {
        .queue = MR_SLICE_LIT("mail"), .unique_key = MR_SLICE_LIT("key"), .unique_ms = 1000};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    f->rig.clock.wall_us = GOLDEN_OPENED_US - 3500 * 1000000LL; /* the key lasts an hour */
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_DUPLICATE);
    assert_string_equal(result.id, "full");
    mr_req_done(&req.req);
}

static void a_new_epoch_is_above_every_old_one_even_if_the_clock_was_set_back(void **state)
{
    struct store_rig *f = *state;
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 1000,
                                    .events.stop = no_stop};
    f->rig.clock.wall_us = RIG_EPOCH_US;
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &node.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node.node, .max = 1};
    assert_int_equal(rig_call(&f->rig, &take.req), MR_OK);
    assert_true(take.leases->epoch > 1790000798000000);
    if (golden->closed) /* what was left up to the ceiling is not used up */
        assert_int_equal(take.leases->epoch, BROUGHT_EPOCH + 1);
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), take.leases), MR_OK);
    assert_true(mr_slice_equal(take.leases->task.id, MR_SLICE_LIT("active")));
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
    mr_req_done(&node.req);
}

static void it_can_be_written_on_and_opened_again(void **state)
{
    struct store_rig *f = *state;
    for (int round = 0; round < 3; round++) {
        store_rig_open(f);
        assert_tasks(f);
        rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS);
        mr_engine_finish(f->rig.engine);
        rig_kill(&f->rig);
    }
}

static size_t file_index(const struct store_rig *f, const char *part)
{
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strstr(simfs_file_path(f->fs, i), part) != NULL)
            return i;
    fail();
    return 0;
}

static void patch(struct store_rig *f, size_t file, uint64_t at, uint32_t value)
{
    uint8_t bytes[4];
    mr_store32(bytes, value);
    simfs_overwrite(f->fs, file, at, bytes, sizeof bytes);
}

/* The board is no part of a store that is copied, so it stands by itself: with it the last run of
 * "active" had begun. */
static void add_board(struct store_rig *f)
{
    char path[MR_PATH_MAX];
    struct mr_fs *fs = simfs_fs(f->fs);
    const char *source = getenv("MR_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/v1-board", source != NULL ? source : ".");
    copy_file(fs, path, "board");
    if (golden->active_epoch != 0) {
        patch(f, file_index(f, "/board"), BOARD_SLOT_AT, (uint32_t)golden->active_epoch);
        patch(f, file_index(f, "/board"), BOARD_SLOT_AT + 4, golden->active_epoch >> 32);
    }
    assert_int_equal(fs->ops->dir_sync(fs, RIG_DIR), MR_OK);
}

static void the_board_is_believed_in_the_boot_that_wrote_it_and_in_no_other(void **state)
{
    struct store_rig *f = *state;
    add_board(f);
    for (int boot = 0; boot < 2; boot++) {
        struct simfs *disk = f->fs, *trial = simfs_clone(disk);
        if (boot == 1)
            simfs_crash(trial, &f->rig.rand, SIMFS_DROP_ALL);
        f->fs = f->rig.fs = trial;
        store_rig_open(f);
        struct mr_req_get req = store_rig_get(f, "active");
        assert_int_equal(req.task.crashes, boot == 0);
        mr_req_done(&req.req);
        rig_kill(&f->rig);
        simfs_free(trial);
        f->fs = f->rig.fs = disk;
    }
}

/* ---- stores of a version still to come ------------------------------------------------------ */

static uint32_t salt_of(const struct store_rig *f)
{
    return mr_load32(simfs_file_data(f->fs, file_index(f, "/meta")) + 12);
}

static void assert_newer(struct store_rig *f, const char *part)
{
    for (int repair = 0; repair < 2; repair++) {
        f->rig.repair = repair;
        assert_int_equal(rig_open(&f->rig), MR_VERSION);
        assert_non_null(strstr(f->rig.detail.text, part));
        assert_non_null(strstr(f->rig.detail.text, "newer"));
    }
}

static void a_newer_description_is_refused(void **state)
{
    struct store_rig *f = *state;
    size_t i = file_index(f, "/meta");
    for (uint64_t copy = 0; copy <= 4096; copy += 4096) {
        patch(f, i, copy + 8, 2);
        patch(f, i, copy + 76, mr_crc32c(0, simfs_file_data(f->fs, i) + copy, 76));
    }
    assert_newer(f, "store/meta");
}

static void a_newer_segment_is_refused(void **state)
{
    struct store_rig *f = *state;
    size_t i = file_index(f, "/log-");
    patch(f, i, 8, MR_SEGMENT_VERSION + 1);
    patch(f, i, 508, mr_crc32c(0, simfs_file_data(f->fs, i), 508));
    assert_newer(f, "store/log-");
}

static void a_newer_snapshot_is_refused(void **state)
{
    struct store_rig *f = *state;
    size_t i = file_index(f, "/snap-");
    assert_int_equal(mr_load32(simfs_file_data(f->fs, i) + 8), golden->snapshot_version);
    patch(f, i, 8, SNAP_VERSION + 1);
    patch(f, i, SECTOR_DATA, mr_crc32c(salt_of(f), simfs_file_data(f->fs, i), SECTOR_DATA));
    assert_newer(f, "store/snap-");
}

static void a_newer_board_is_refused(void **state)
{
    struct store_rig *f = *state;
    add_board(f);
    patch(f, file_index(f, "/board"), 8, 2);
    assert_newer(f, "store/board: format version 2");
}

/* The first hand-out becomes what a newer version wrote there. */
static void write_newer(struct store_rig *f, uint32_t type, uint32_t version)
{
    size_t i = file_index(f, "/log-00000002");
    const uint8_t *bytes = simfs_file_data(f->fs, i);
    uint64_t at = MR_SEGMENT_HEADER;
    struct mr_record record;
    do {
        at += MR_RECORD_ALIGN;
        assert_true(at + MR_RECORD_HEADER < simfs_file_size(f->fs, i));
    } while (mr_record_parse(mr_slice_make(bytes + at, simfs_file_size(f->fs, i) - at), salt_of(f),
                             &record) != MR_RECORD_GOOD ||
             record.type != MR_RECORD_TAKE || record.segment != 2);
    patch(f, i, at + 28, type | version << 8);
    size_t len = MR_RECORD_HEADER - 4 + MR_RECORD_HEADER;
    patch(f, i, at, mr_crc32c(salt_of(f), simfs_file_data(f->fs, i) + at + 4, len));
}

static void a_newer_record_is_refused(void **state)
{
    struct store_rig *f = *state;
    write_newer(f, MR_RECORD_TAKE, MR_RECORD_VERSION + 1);
    assert_newer(f, "log-00000002 at offset");
}

/* It is neither damage, to be set aside, nor the torn end of the log. */
static void a_record_of_a_newer_type_is_refused(void **state)
{
    struct store_rig *f = *state;
    write_newer(f, MR_RECORD_TYPE_COUNT, MR_RECORD_VERSION);
    assert_newer(f, "log-00000002 at offset");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_task_is_as_it_was_written),
        TEST(a_cursor_leads_where_it_led),
        TEST(an_ended_task_still_has_its_order_time),
        TEST(queues_are_as_they_were_written),
        TEST(what_came_from_another_broker_is_held_until_it_is_released),
        TEST(what_came_from_another_broker_has_the_epoch_that_it_brought),
        TEST(limits_are_as_they_were_written),
        TEST(counters_are_as_they_were_written),
        TEST(groups_go_on_where_they_were),
        TEST(results_wait_where_they_were),
        TEST(the_unique_key_is_still_held),
        TEST(a_new_epoch_is_above_every_old_one_even_if_the_clock_was_set_back),
        TEST(it_can_be_written_on_and_opened_again),
        TEST(the_board_is_believed_in_the_boot_that_wrote_it_and_in_no_other),
        TEST(a_newer_board_is_refused),
        TEST(a_newer_description_is_refused),
        TEST(a_newer_segment_is_refused),
        TEST(a_newer_snapshot_is_refused),
        TEST(a_newer_record_is_refused),
        TEST(a_record_of_a_newer_type_is_refused),
    };
    int failed = 0;
    for (; golden < goldens + sizeof goldens / sizeof *goldens; golden++)
        failed += cmocka_run_group_tests_name(golden->dir, tests, NULL, NULL);
    return failed;
}
