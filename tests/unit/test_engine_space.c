/* SPDX-License-Identifier: Apache-2.0 */
/* Disk that is given back: 1 % long-lived tasks among many that come and go, on virtual time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "wire/record.h"

enum {
    SEGMENT = 64 * 1024,
    BATCH = 100,
    PAYLOAD = 100,
    FIXED = 136 * 1024, /* the board and the meta file, whatever the store holds */
};

struct fixture {
    struct simfs *fs;
    struct rig rig;
    uint64_t node;
};

static void told_to_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void begin_with(struct fixture *f, size_t segment_bytes)
{
    static const struct mr_worker_queue queue = {{"default", 7}, 1};
    f->fs = simfs_new(1);
    rig_init(&f->rig, f->fs, 1);
    f->rig.segment_bytes = segment_bytes;
    assert_int_equal(rig_open(&f->rig), MR_OK);
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("node"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 600 * MR_MS_PER_S,
                                    .events = {.stop = told_to_stop}};
    assert_int_equal(rig_call(&f->rig, &open.req), MR_OK);
    f->node = open.node;
}

static void begin(struct fixture *f)
{
    begin_with(f, SEGMENT);
}

static void end(struct fixture *f)
{
    rig_done(&f->rig);
    simfs_free(f->fs);
}

static const char long_lived[PAYLOAD] = "long-lived";

/* Kept for so long when they are done; where that is not at all, one of the batch stays. */
static void enqueue_kept(struct fixture *f, int64_t retention_ms)
{
    static const uint8_t payload[PAYLOAD];
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    memset(tasks, 0, sizeof tasks);
    for (size_t i = 0; i < BATCH; i++)
        tasks[i] = (struct mr_task_options){.payload = mr_slice_make(payload, sizeof payload),
                                            .retention_ms = retention_ms};
    if (retention_ms == 0) {
        tasks[0].payload = mr_slice_make(long_lived, sizeof long_lived);
        tasks[0].delay_ms = 24 * 3600 * MR_MS_PER_S;
    }
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = BATCH, .results = results};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    for (size_t i = 0; i < BATCH; i++)
        assert_int_equal(results[i].err, MR_OK);
    mr_req_done(&req.req);
}

static void enqueue(struct fixture *f)
{
    enqueue_kept(f, 0);
}

/* Ends as many as are handed out at once; false when nothing waits. */
static bool work_some(struct fixture *f)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = f->node, .max = BATCH};
    if (rig_call(&f->rig, &take.req) == MR_EMPTY)
        return false;
    struct mr_finish items[BATCH];
    enum mr_err errs[BATCH];
    size_t n = 0;
    for (struct mr_lease *lease = take.leases; lease; lease = lease->next) {
        assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->rig.engine), lease), MR_OK);
        items[n++] = (struct mr_finish){.id = lease->task.id, .epoch = lease->epoch};
    }
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = items, .n = n, .errs = errs};
    assert_int_equal(rig_call(&f->rig, &finish.req), MR_OK);
    for (struct mr_lease *lease = take.leases, *next; lease; lease = next) {
        next = lease->next;
        mr_lease_free(lease);
    }
    mr_req_done(&finish.req);
    mr_req_done(&take.req);
    return true;
}

static struct mr_stats stats_of(struct fixture *f)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    struct mr_stats stats = req.stats;
    mr_req_done(&req.req);
    return stats;
}

static uint64_t file_bytes(const struct simfs *fs)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < simfs_file_count(fs); i++)
        bytes += simfs_file_size(fs, i);
    return bytes;
}

static uint64_t bound(const struct mr_stats *stats)
{
    return 2 * stats->live_bytes + 3 * (uint64_t)SEGMENT;
}

static void files_keep_to_the_bound_when_the_load_stops(void **state)
{
    (void)state;
    for (int batches = 5; batches <= 80; batches += 5) {
        struct fixture f;
        begin(&f);
        for (int i = 0; i < batches; i++) {
            enqueue(&f);
            while (work_some(&f))
                ;
        }
        rig_run(&f.rig, f.rig.clock.mono_ns + 10 * MR_NS_PER_S);
        struct mr_stats stats = stats_of(&f);
        assert_int_equal(stats.tasks, batches);
        assert_in_range(stats.disk_bytes, 1, bound(&stats));
        assert_in_range(file_bytes(f.fs), stats.disk_bytes, stats.disk_bytes + FIXED);
        end(&f);
    }
}

static void files_keep_to_the_bound_after_a_backlog(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (int i = 0; i < 60; i++)
        enqueue(&f);
    while (work_some(&f))
        ;
    rig_run(&f.rig, f.rig.clock.mono_ns + 10 * MR_NS_PER_S);
    struct mr_stats stats = stats_of(&f);
    assert_int_equal(stats.tasks, 60);
    assert_in_range(stats.disk_bytes, 1, bound(&stats));
    end(&f);
}

static size_t segment_files(const struct simfs *fs)
{
    size_t n = 0;
    for (size_t i = 0; i < simfs_file_count(fs); i++)
        n += strstr(simfs_file_path(fs, i), "/log-") != NULL ||
             strstr(simfs_file_path(fs, i), "/tmp-") != NULL;
    return n;
}

/* Two removals fail: of a segment in most rounds, else of what a new one removes before it is made, or of a snapshot. */
static void segments_go_though_a_removal_failed(void **state)
{
    (void)state;
    for (uint64_t after = 0; after < 20; after++) {
        struct fixture f;
        begin(&f);
        for (int i = 0; i < 60; i++)
            enqueue(&f);
        simfs_fail(f.fs, SIMFS_REMOVE, after, 2, MR_IO);
        while (work_some(&f)) /* also while the log has no room */
            rig_run(&f.rig, f.rig.clock.mono_ns + 10 * MR_NS_PER_MS);
        rig_run(&f.rig, f.rig.clock.mono_ns + 10 * MR_NS_PER_S);
        struct mr_stats stats = stats_of(&f);
        assert_int_equal(stats.tasks, 60);
        assert_false(stats.failed || stats.disk_full);
        assert_in_range(stats.disk_bytes, 1, bound(&stats));
        assert_in_range(segment_files(f.fs), 1, stats.segments + 1); /* and the next one */
        end(&f);
    }
}

/* Expiry is not logged: what expired since the last snapshot comes back with a start, and must find
 * its record, also where the clock was set back meanwhile. And its space comes back in a store that
 * has nothing else to do. */
static void what_expired_takes_its_segment_along_only_behind_a_snapshot(void **state)
{
    enum { HOUR_MS = 3600 * MR_MS_PER_S };
    (void)state;
    struct fixture f;
    begin(&f);
    for (int i = 0; i < 40; i++)
        enqueue_kept(&f, HOUR_MS);
    while (work_some(&f))
        ;
    for (uint64_t snapshots = stats_of(&f).snapshots; stats_of(&f).snapshots < snapshots + 2;) {
        enqueue(&f);
        while (work_some(&f))
            ;
    }
    uint64_t tasks = stats_of(&f).tasks;
    int64_t until = f.rig.clock.mono_ns + (HOUR_MS + 60 * MR_MS_PER_S) * MR_NS_PER_MS;
    bool expired = false;
    while (f.rig.clock.mono_ns < until) { /* at every moment it may die */
        rig_run(&f.rig, f.rig.clock.mono_ns + 20 * MR_NS_PER_S);
        expired = expired || stats_of(&f).tasks < tasks;
        if (!expired)
            continue;
        struct simfs *disk = f.fs;
        struct rig trial = f.rig;
        f.fs = simfs_clone(disk);
        rig_init(&f.rig, f.fs, 1);
        f.rig.segment_bytes = SEGMENT;
        f.rig.clock.wall_us = trial.clock.wall_us - 2 * (int64_t)HOUR_MS * MR_US_PER_MS;
        assert_int_equal(rig_open(&f.rig), MR_OK);
        assert_int_equal(stats_of(&f).records_damaged, 0);
        end(&f);
        f.fs = disk;
        f.rig = trial;
    }
    assert_true(expired);
    struct mr_stats stats = stats_of(&f);
    assert_in_range(stats.disk_bytes, 1, bound(&stats));
    end(&f);
}

/* Damages the payload of every long-lived task; they were the first of their batches. */
static size_t damage_long_lived(struct fixture *f)
{
    size_t damaged = 0;
    for (size_t i = 0; i < simfs_file_count(f->fs); i++) {
        const uint8_t *bytes = simfs_file_data(f->fs, i);
        uint64_t size = simfs_file_size(f->fs, i);
        if (strstr(simfs_file_path(f->fs, i), "/log-") == NULL)
            continue;
        for (uint64_t at = 0; at + sizeof long_lived <= size; at++)
            if (bytes[at] == 'l' && memcmp(bytes + at, long_lived, sizeof long_lived) == 0) {
                simfs_flip_bit(f->fs, i, at * 8);
                damaged++;
            }
    }
    return damaged;
}

static void segments_that_cannot_be_emptied_are_not_walked_for_ever(void **state)
{
    enum { BATCHES = 600, BIG_SEGMENT = 5 * 1024 * 1024 }; /* each is more than the cache holds */
    (void)state;
    struct fixture f;
    begin_with(&f, BIG_SEGMENT);
    for (int i = 0; i < BATCHES; i++)
        enqueue(&f);
    assert_int_equal(damage_long_lived(&f), BATCHES);
    while (work_some(&f))
        ;
    rig_run(&f.rig, f.rig.clock.mono_ns + 20 * MR_NS_PER_S);
    uint64_t reads = simfs_count(f.fs, SIMFS_READ);
    rig_run(&f.rig, f.rig.clock.mono_ns + 60 * MR_NS_PER_S);
    assert_int_equal(simfs_count(f.fs, SIMFS_READ), reads);
    assert_int_equal(stats_of(&f).tasks, BATCHES);
    end(&f);
}

/* ---- what is copied forward ------------------------------------------------------------------ */

struct copy {
    size_t file;
    uint64_t at, seq;
};

/* The newest copy in all segments; seq is 0 where there is none. */
static struct copy last_copy(const struct simfs *fs)
{
    struct copy last = {0};
    uint32_t salt = 0;
    for (size_t i = 0; i < simfs_file_count(fs); i++)
        if (strcmp(simfs_file_path(fs, i), RIG_DIR "/meta") == 0)
            salt = mr_load32(simfs_file_data(fs, i) + 12);
    for (size_t i = 0; i < simfs_file_count(fs); i++) {
        if (strstr(simfs_file_path(fs, i), "/log-") == NULL)
            continue;
        const uint8_t *bytes = simfs_file_data(fs, i);
        uint64_t size = simfs_file_size(fs, i);
        for (uint64_t at = 0; at + MR_RECORD_HEADER <= size; at += MR_RECORD_ALIGN) {
            struct mr_record record;
            struct mr_slice rest = mr_slice_make(bytes + at, size - at);
            if (mr_record_parse(rest, salt, &record) == MR_RECORD_GOOD &&
                record.type == MR_RECORD_COPY && record.seq > last.seq)
                last = (struct copy){i, at, record.seq};
        }
    }
    return last;
}

/* The segment they came from may be gone: a copy that is lost is a task that is lost. */
static void the_last_copy_is_guarded_once_all_is_quiet(void **state)
{
    (void)state;
    int guarded = 0;
    for (int batches = 5; batches <= 80; batches += 5) {
        struct fixture f;
        struct mr_rand rand;
        begin(&f);
        for (int i = 0; i < batches; i++) {
            enqueue(&f);
            while (work_some(&f))
                ;
        }
        rig_run(&f.rig, f.rig.clock.mono_ns + 10 * MR_NS_PER_S);
        mr_rand_seed(&rand, 1);
        simfs_stop(f.fs);
        rig_kill(&f.rig);
        simfs_crash(f.fs, &rand, SIMFS_KEEP_ALL);
        struct copy copy = last_copy(f.fs);
        if (copy.seq > 0) {
            simfs_flip_bit(f.fs, copy.file, 8 * (copy.at + MR_RECORD_HEADER));
            assert_int_equal(rig_open(&f.rig), MR_DAMAGED);
            assert_non_null(strstr(f.rig.detail.text, "damaged record"));
            guarded++;
        }
        end(&f);
    }
    assert_int_not_equal(guarded, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_keep_to_the_bound_when_the_load_stops),
        cmocka_unit_test(files_keep_to_the_bound_after_a_backlog),
        cmocka_unit_test(segments_go_though_a_removal_failed),
        cmocka_unit_test(what_expired_takes_its_segment_along_only_behind_a_snapshot),
        cmocka_unit_test(segments_that_cannot_be_emptied_are_not_walked_for_ever),
        cmocka_unit_test(the_last_copy_is_guarded_once_all_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
