/* SPDX-License-Identifier: Apache-2.0 */
/* A check says what is true and changes nothing; a repair leaves nothing to be found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "log/log.h"
#include "sim/rig.h"
#include "unit/store_rig.h"

struct found {
    char said[4096];
    size_t lines;
    struct mr_fsck_report report;
    struct mr_detail detail;
};

static void note_line(const char *text, void *arg)
{
    struct found *found = arg;
    size_t used = strlen(found->said);
    snprintf(found->said + used, sizeof found->said - used, "%s\n", text);
    found->lines++;
}

static enum mr_err run(struct store_rig *f, enum mr_fsck_mode mode, struct found *found)
{
    struct mr_store_check options = {.dir = RIG_DIR,
                                     .fs = simfs_fs(f->fs),
                                     .clock = &f->rig.clock.clock,
                                     .mode = mode,
                                     .line = note_line,
                                     .arg = found};
    *found = (struct found){0};
    enum mr_err err = mr_store_fsck(&options, &found->report, &found->detail);
    if (err != MR_OK)
        assert_int_not_equal(found->detail.text[0], '\0');
    return err;
}

/* A check that finds so much and changes nothing. */
static struct found check(struct store_rig *f, uint64_t damaged, uint64_t mismatches)
{
    static struct found found;
    uint32_t before = store_rig_digest(f);
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_OK);
    assert_int_equal(store_rig_digest(f), before);
    if (found.report.damaged != damaged || found.report.mismatches != mismatches)
        print_error("%s", found.said);
    assert_int_equal(found.report.damaged, damaged);
    assert_int_equal(found.report.mismatches, mismatches);
    return found;
}

static struct found repair(struct store_rig *f, uint64_t damaged)
{
    static struct found found;
    assert_int_equal(run(f, MR_FSCK_REPAIR, &found), MR_OK);
    if (found.report.repaired != damaged)
        print_error("%s", found.said);
    assert_int_equal(found.report.repaired, damaged);
    assert_int_equal(found.report.damaged + found.report.mismatches, 0);
    (void)check(f, 0, 0);
    return found;
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, text);
    assert_non_null(strstr(text, part));
}

/* ---- sound ---------------------------------------------------------------------------------- */

static void a_sound_store_has_no_findings_wherever_its_log_has_gaps(void **state)
{
    struct store_rig *f = *state;
    for (uint64_t round = 1; round <= 6; round++) {
        store_rig_open(f);
        store_rig_churn(f, round % 3 + 1);
        uint64_t tasks = store_rig_stats(f).tasks;
        store_rig_close(f);
        struct found found = check(f, 0, 0);
        assert_int_equal(found.lines, 0);
        assert_int_equal(found.report.tasks, tasks);
        assert_true(found.report.segments > 0 && found.report.records > tasks);
        for (uint64_t k = 1; k <= 3; k++) { /* so that names can come again */
            store_rig_open(f);
            struct mr_req_queue_remove remove = {.req.op = MR_OP_QUEUE_REMOVE,
                                                 .queue = MR_SLICE_LIT("default"),
                                                 .mode = MR_QUEUE_REMOVE_FORCE};
            enum mr_err err = rig_call(&f->rig, &remove.req);
            assert_true(err == MR_OK || err == MR_NOT_FOUND);
            mr_req_done(&remove.req);
            store_rig_close(f);
        }
    }
}

/* ---- damage --------------------------------------------------------------------------------- */

/* Where the n-th record of a type stands in a segment. */
static uint64_t find_record(struct store_rig *f, const char *name, enum mr_record_type type,
                            unsigned n)
{
    size_t i = store_rig_file(f, name);
    uint32_t salt = mr_load32(simfs_file_data(f->fs, store_rig_file(f, "meta")) + 12);
    const uint8_t *bytes = simfs_file_data(f->fs, i);
    uint64_t size = simfs_file_size(f->fs, i);
    for (uint64_t at = MR_SEGMENT_HEADER; at + MR_RECORD_HEADER < size; at += MR_RECORD_ALIGN) {
        struct mr_record record;
        if (mr_record_parse(mr_slice_make(bytes + at, size - at), salt, &record) ==
                MR_RECORD_GOOD &&
            record.type == type && n-- == 0)
            return at;
    }
    fail();
    return 0;
}

static void one_damaged_record_is_one_finding(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    uint64_t at = find_record(f, "log-00000001", MR_RECORD_TASK, 5);
    simfs_flip_bit(f->fs, store_rig_file(f, "log-00000001"), 8 * (at + 100));
    struct found found = check(f, 1, 0);
    assert_int_equal(found.lines, 1);
    char where[64];
    snprintf(where, sizeof where, "log-00000001 at offset %llu: damaged record",
             (unsigned long long)at);
    assert_says(found.said, where);
    found = repair(f, 1);
    assert_int_equal(found.lines, 1);
    assert_true(found.report.bytes_aside > 600);
    assert_int_equal(found.report.tasks, STORE_RIG_TASKS - 1);
}

/* The first segment that the snapshot covers and that still has tasks. */
static const char *covered_segment(struct store_rig *f)
{
    static char name[32];
    for (uint32_t number = 1; number < 1000; number++) {
        mr_segment_name(name, number);
        if (store_rig_file(f, name) != SIZE_MAX)
            return name;
    }
    fail();
    return NULL;
}

static void a_task_whose_record_is_lost_is_told_and_goes_to_the_archive_by_repair(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_enqueue(f, "kept");
    store_rig_churn(f, 2);
    store_rig_close(f);
    const char *name = covered_segment(f);
    enum mr_record_type type = strcmp(name, "log-00000001") == 0 ? MR_RECORD_TASK : MR_RECORD_COPY;
    uint64_t at = find_record(f, name, type, 0);
    simfs_unreadable(f->fs, store_rig_file(f, name), at / 512 * 512, 512);
    store_rig_open(f); /* no reason not to start */
    uint64_t archived = 0, tasks = store_rig_stats(f).tasks;
    store_rig_close(f);
    struct found found;
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_OK);
    assert_true(found.report.damaged > 0 && found.report.mismatches > 0);
    assert_says(found.said, "its record cannot be read");
    uint64_t lost = found.report.mismatches;
    found = repair(f, found.report.damaged);
    assert_says(found.said, "bytes cannot be read and are zeroes now");
    store_rig_open(f);
    struct mr_queue_info info;
    struct mr_req_queue_list list = {.req.op = MR_OP_QUEUE_LIST, .infos = &info, .max = 1};
    assert_int_equal(rig_call(&f->rig, &list.req), MR_OK);
    archived = info.counts[MR_ARCHIVED];
    mr_req_done(&list.req);
    assert_in_range(archived, 1, lost); /* writing the sector may bring a part of it back */
    assert_int_equal(store_rig_stats(f).tasks, tasks);
}

/* Completed tasks expire without a record, so their segment may be gone; but not before their time.
 */
static void a_completed_task_lost_with_its_segment_is_told_until_its_time_is_over(void **state)
{
    struct store_rig *f = *state;
    struct mr_task_options task = {.id = MR_SLICE_LIT("done"), .retention_ms = 1000000};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    store_rig_finish(f, "done");
    for (int i = 0; i < 60; i++) { /* the first segment is too full to be emptied */
        char id[32];
        snprintf(id, sizeof id, "more-%d", i);
        store_rig_enqueue(f, id);
    }
    store_rig_churn(f, 1);
    store_rig_close(f);
    simfs_lose(f->fs, store_rig_file(f, "log-00000001"));
    struct found found;
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_OK);
    uint64_t lost = found.report.mismatches;
    assert_true(lost > 0);
    rig_jump(&f->rig, 1000001LL * MR_US_PER_MS);
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_OK);
    assert_int_equal(found.report.mismatches, lost - 1);
}

static size_t snapshot_file(const struct store_rig *f)
{
    size_t snap = SIZE_MAX;
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strstr(simfs_file_path(f->fs, i), "/snap-") != NULL)
            snap = i;
    assert_int_not_equal(snap, SIZE_MAX);
    return snap;
}

static void a_damaged_sector_of_the_snapshot_is_told_and_mended(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_churn(f, 1);
    store_rig_close(f);
    size_t snap = snapshot_file(f);
    simfs_unreadable(f->fs, snap, 4096, 4096);
    struct found found = check(f, 1, 0);
    assert_says(found.said, "snap-");
    assert_says(found.said, " at offset 4096: 1 damaged sectors, rebuilt from their parity\n");
    (void)repair(f, 1);
}

static void a_snapshot_damaged_beyond_its_parity_is_set_aside_and_the_log_serves(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    store_rig_churn(f, 1);
    uint64_t tasks = store_rig_stats(f).tasks;
    store_rig_close(f);
    size_t snap = snapshot_file(f);
    char name[MR_PATH_MAX];
    snprintf(name, sizeof name, "%s", simfs_file_path(f->fs, snap));
    simfs_unreadable(f->fs, snap, 4096, 2 * 4096);
    assert_int_equal(rig_open(&f->rig), MR_DAMAGED);
    assert_says(f->rig.detail.text, "damaged beyond its parity");
    assert_says(f->rig.detail.text, "fsck --repair");
    struct found found;
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_OK);
    assert_true(found.report.damaged > 0);
    assert_says(found.said, "damaged beyond its parity; tasks come from the log alone");
    assert_int_equal(run(f, MR_FSCK_REPAIR, &found), MR_OK);
    assert_true(found.report.repaired > 0);
    (void)check(f, 0, 0);
    assert_null(strstr(simfs_file_path(f->fs, snapshot_file(f)), name));
    store_rig_open(f);
    assert_true(store_rig_stats(f).tasks >= tasks);
    store_rig_close(f);
}

/* Its queue was made in a segment that is long gone; the copy of the task has the name. */
static void a_task_that_was_copied_forward_is_served_without_the_snapshot(void **state)
{
    struct store_rig *f = *state;
    struct mr_task_options task = {.id = MR_SLICE_LIT("kept"), .queue = MR_SLICE_LIT("quiet")};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    store_rig_open(f);
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (uint64_t n = 1; store_rig_file(f, "log-00000001") != SIZE_MAX; n++)
        store_rig_churn(f, n);
    store_rig_close(f);
    size_t snap = snapshot_file(f);
    simfs_unreadable(f->fs, snap, 4096, 2 * 4096);
    struct found found;
    assert_int_equal(run(f, MR_FSCK_REPAIR, &found), MR_OK);
    for (int round = 0; round < 2; round++) {
        store_rig_open(f);
        struct mr_req_get get = store_rig_get(f, "kept");
        assert_int_equal(get.task.state, MR_PENDING);
        assert_memory_equal(get.task.queue.data, "quiet", 5);
        mr_req_done(&get.req);
        store_rig_close(f);
    }
}

/* ---- the description ------------------------------------------------------------------------ */

static void a_lost_description_is_told_counted_and_restored(void **state)
{
    struct store_rig *f = *state;
    static const uint8_t garbage[80] = "nothing that anybody could read, and no magic either";
    store_rig_make(f);
    for (int how = 0; how < 3; how++) {
        size_t meta = store_rig_file(f, "meta");
        if (how == 0) {
            simfs_lose(f->fs, meta);
        } else if (how == 1) {
            simfs_overwrite(f->fs, meta, 0, garbage, sizeof garbage);
            simfs_overwrite(f->fs, meta, 4096, garbage, sizeof garbage);
        } else {
            simfs_unreadable(f->fs, meta, 0, simfs_file_size(f->fs, meta));
        }
        struct found found = check(f, 1, 0);
        assert_int_equal(found.lines, 1);
        assert_int_equal(found.report.tasks, STORE_RIG_TASKS);
        assert_says(found.said, "meta at offset 0: missing or damaged; --repair restores it");
        found = repair(f, 1);
        assert_says(found.said, "meta at offset 0: missing or damaged; restored from the log");
    }
    simfs_flip_bit(f->fs, store_rig_file(f, "meta"), 8 * 4100);
    struct found found = check(f, 1, 0);
    assert_says(found.said, "meta: one of its two copies is damaged");
    (void)repair(f, 1);
}

static void a_store_without_log_is_damaged(void **state)
{
    struct store_rig *f = *state;
    struct found found;
    store_rig_make(f);
    for (size_t i = simfs_file_count(f->fs); i-- > 0;)
        if (strstr(simfs_file_path(f->fs, i), "/log-") != NULL)
            simfs_lose(f->fs, i);
    for (int mode = 0; mode < 2; mode++) {
        assert_int_equal(run(f, mode ? MR_FSCK_REPAIR : MR_FSCK_CHECK, &found), MR_DAMAGED);
        assert_says(found.detail.text, "the log is missing");
    }
}

/* ---- the board ------------------------------------------------------------------------------ */

static void a_board_of_a_newer_version_is_refused_as_by_every_command(void **state)
{
    struct store_rig *f = *state;
    static const uint8_t newer = 2;
    enum { AT_VERSION = 8 };
    struct found found;
    store_rig_make(f);
    simfs_overwrite(f->fs, store_rig_file(f, "board"), AT_VERSION, &newer, sizeof newer);
    uint32_t before = store_rig_digest(f);
    for (int mode = 0; mode < 2; mode++) {
        assert_int_equal(run(f, mode ? MR_FSCK_REPAIR : MR_FSCK_CHECK, &found), MR_VERSION);
        assert_says(found.detail.text, "store/board: format version 2 is newer");
    }
    store_rig_refused(f, MR_VERSION, "store/board: format version 2 is newer");
    assert_int_equal(store_rig_digest(f), before);
    simfs_unreadable(f->fs, store_rig_file(f, "board"), 0, 64); /* names nobody: made again */
    (void)check(f, 0, 0);
}

/* ---- folders -------------------------------------------------------------------------------- */

static void a_folder_without_a_store_is_left_as_it_is(void **state)
{
    struct store_rig *f = *state;
    struct found found;
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_NOT_FOUND);
    assert_says(found.detail.text, "store: no such folder");
    store_rig_put(f, "notes.txt", "mine");
    for (int mode = 0; mode < 2; mode++) {
        assert_int_equal(run(f, mode ? MR_FSCK_REPAIR : MR_FSCK_CHECK, &found), MR_NOT_FOUND);
        assert_says(found.detail.text, "store: no Millrace store in this folder");
        assert_int_equal(simfs_file_count(f->fs), 1);
    }
}

static void who_or_what_is_in_the_way_is_said_as_it_is(void **state)
{
    struct store_rig *f = *state;
    struct found found;
    store_rig_open(f);
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_IN_USE);
    assert_says(found.detail.text, "store: in use by process 4242;");
    store_rig_close(f);
    simfs_fail(f->fs, SIMFS_LOCK, 0, 2, MR_DENIED);
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_DENIED);
    assert_says(found.detail.text, "store/lock: not allowed to write to it;");
    simfs_lose(f->fs, store_rig_file(f, "lock"));
    assert_int_equal(run(f, MR_FSCK_CHECK, &found), MR_DENIED);
    assert_says(found.detail.text, "store: this folder is not writable for this user");
    (void)check(f, 0, 0);
}

static void a_file_is_not_a_folder(void **state)
{
    (void)state;
    char path[] = "/tmp/millrace-fsck-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct mr_store_check options = {.dir = path};
    struct mr_fsck_report report;
    struct mr_detail detail = {{0}};
    for (int mode = 0; mode < 2; mode++) {
        options.mode = mode ? MR_FSCK_REPAIR : MR_FSCK_CHECK;
        assert_int_equal(mr_store_fsck(&options, &report, &detail), MR_NOT_A_STORE);
        assert_says(detail.text, ": not a folder");
    }
    unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sound_store_has_no_findings_wherever_its_log_has_gaps),
        TEST(one_damaged_record_is_one_finding),
        TEST(a_task_whose_record_is_lost_is_told_and_goes_to_the_archive_by_repair),
        TEST(a_completed_task_lost_with_its_segment_is_told_until_its_time_is_over),
        TEST(a_damaged_sector_of_the_snapshot_is_told_and_mended),
        TEST(a_snapshot_damaged_beyond_its_parity_is_set_aside_and_the_log_serves),
        TEST(a_task_that_was_copied_forward_is_served_without_the_snapshot),
        TEST(a_lost_description_is_told_counted_and_restored),
        TEST(a_store_without_log_is_damaged),
        TEST(a_board_of_a_newer_version_is_refused_as_by_every_command),
        TEST(a_folder_without_a_store_is_left_as_it_is),
        TEST(who_or_what_is_in_the_way_is_said_as_it_is),
        TEST(a_file_is_not_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
