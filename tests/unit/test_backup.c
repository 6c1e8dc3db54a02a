/* SPDX-License-Identifier: Apache-2.0 */
/* A backup is whole or not there at all, whatever the disk does and whatever goes on meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/embedded/embedded.h"
#include "sim/rig.h"
#include "unit/store_rig.h"

#define COPY_DIR "copy"

static enum mr_err backup(struct store_rig *f, struct mr_detail *detail)
{
    struct mr_req_backup req = {.req.op = MR_OP_BACKUP, .dir = COPY_DIR};
    enum mr_err err = rig_call(&f->rig, &req.req);
    *detail = req.detail;
    mr_req_done(&req.req);
    return err;
}

static size_t files_in_copy(const struct store_rig *f)
{
    size_t n = 0;
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        n += strncmp(simfs_file_path(f->fs, i), COPY_DIR "/", sizeof COPY_DIR) == 0;
    return n;
}

static void remove_copy(struct store_rig *f)
{
    for (size_t i = simfs_file_count(f->fs); i-- > 0;)
        if (strncmp(simfs_file_path(f->fs, i), COPY_DIR "/", sizeof COPY_DIR) == 0)
            simfs_lose(f->fs, i);
}

/* The copy is a sound store with so many tasks. */
static void check_copy(struct store_rig *f, uint64_t tasks)
{
    struct mr_store_check options = {.dir = COPY_DIR, .fs = simfs_fs(f->fs)};
    struct mr_fsck_report report = {0};
    struct mr_detail detail = {{0}};
    enum mr_err err = mr_store_fsck(&options, &report, &detail);
    if (err != MR_OK)
        print_error("%s\n", detail.text);
    assert_int_equal(err, MR_OK);
    assert_int_equal(report.damaged + report.mismatches, 0);
    assert_int_equal(report.tasks, tasks);
}

static void a_full_disk_leaves_no_half_copy_and_the_next_try_succeeds(void **state)
{
    struct store_rig *f = *state;
    struct mr_detail detail;
    store_rig_make(f);
    store_rig_open(f);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_S);
    for (uint64_t room = 0; room < 40000; room += 5000) {
        simfs_set_capacity(f->fs, simfs_used(f->fs) + room);
        assert_int_equal(backup(f, &detail), MR_DISK_FULL);
        assert_non_null(strstr(detail.text, "copy: the disk is full: the copy needs "));
        assert_int_equal(files_in_copy(f), 0);
        simfs_heal(f->fs);
    }
    assert_int_equal(backup(f, &detail), MR_OK);
    check_copy(f, STORE_RIG_TASKS);
}

static void any_failure_leaves_nothing_and_the_store_goes_on(void **state)
{
    static const enum simfs_op ops[] = {SIMFS_WRITE, SIMFS_SYNC,     SIMFS_DIR_SYNC, SIMFS_CREATE,
                                        SIMFS_OPEN,  SIMFS_TRUNCATE, SIMFS_READ};
    struct store_rig *f = *state;
    struct mr_detail detail;
    unsigned failed = 0;
    store_rig_make(f);
    store_rig_open(f);
    assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS); /* the log is quiet now */
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        for (uint64_t n = 0; n < 5; n++) {
            simfs_fail(f->fs, ops[k], n, 1, MR_IO);
            enum mr_err err = backup(f, &detail);
            simfs_heal(f->fs);
            if (err != MR_OK) {
                assert_int_equal(err, MR_IO);
                assert_non_null(strstr(detail.text, "copy: "));
                assert_int_equal(files_in_copy(f), 0);
                failed++;
                assert_int_equal(backup(f, &detail), MR_OK);
            }
            check_copy(f, STORE_RIG_TASKS);
            remove_copy(f);
        }
    }
    assert_true(failed >= 20);
    store_rig_enqueue(f, "after");
}

static void ignore_answer(struct mr_req *req)
{
    (void)req;
}

static void a_file_that_somebody_else_put_there_meanwhile_is_left_alone(void **state)
{
    struct store_rig *f = *state;
    struct mr_fs *fs = simfs_fs(f->fs);
    struct mr_file *file;
    store_rig_make(f);
    store_rig_open(f);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_S);
    f->rig.chore_delay_max_ns = MR_NS_PER_S;
    struct mr_req_backup req = {.req = {.op = MR_OP_BACKUP, .done = ignore_answer},
                                .dir = COPY_DIR};
    rig_submit(&f->rig, &req.req);
    assert_int_equal(mr_fs_open(fs, COPY_DIR "/meta", MR_OPEN_CREATE, &file), MR_OK);
    mr_file_close(file);
    rig_run(&f->rig, f->rig.clock.mono_ns + 100 * MR_NS_PER_S);
    assert_int_equal(req.req.err, MR_CONFLICT);
    mr_req_done(&req.req);
    assert_int_equal(files_in_copy(f), 1);
}

/* As a server does it: whole, then under its name. */
static void write_tokens(struct store_rig *f, const char *text)
{
    struct mr_fs *fs = simfs_fs(f->fs);
    struct mr_file *file;
    char tmp[64], path[64];
    snprintf(tmp, sizeof tmp, "%s/tmp-tokens", f->rig.dir);
    snprintf(path, sizeof path, "%s/tokens", f->rig.dir);
    assert_int_equal(mr_fs_open(fs, tmp, MR_OPEN_CREATE_SECRET, &file), MR_OK);
    assert_int_equal(mr_file_pwrite(file, text, strlen(text), 0), MR_OK);
    mr_file_close(file);
    assert_int_equal(fs->ops->rename(fs, tmp, path), MR_OK);
}

static void tokens_go_along_as_they_were_when_it_began(void **state)
{
    static const char before[] = "tokens as they were\n", after[] = "one less\n";
    struct store_rig *f = *state;
    struct mr_file *file;
    char text[64] = "";
    store_rig_make(f);
    store_rig_open(f);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_S);
    write_tokens(f, before);
    f->rig.chore_delay_max_ns = MR_NS_PER_S;
    struct mr_req_backup req = {.req = {.op = MR_OP_BACKUP, .done = ignore_answer},
                                .dir = COPY_DIR};
    rig_submit(&f->rig, &req.req);
    write_tokens(f, after);
    rig_run(&f->rig, f->rig.clock.mono_ns + 100 * MR_NS_PER_S);
    assert_int_equal(req.req.err, MR_OK);
    mr_req_done(&req.req);
    check_copy(f, STORE_RIG_TASKS);
    struct mr_fs *fs = simfs_fs(f->fs);
    assert_int_equal(mr_fs_open(fs, COPY_DIR "/tokens", MR_OPEN_READ, &file), MR_OK);
    assert_int_equal(mr_file_pread(file, text, sizeof before - 1, 0), MR_OK);
    mr_file_close(file);
    assert_string_equal(text, before);
}

/* Segments are recycled all the time, by jobs that may be under way when a backup begins. */
static void backups_while_segments_come_and_go_are_all_whole(void **state)
{
    struct store_rig *f = *state;
    struct mr_detail detail;
    f->rig.chore_delay_max_ns = 3 * MR_NS_PER_MS;
    store_rig_open(f);
    store_rig_enqueue(f, "stays");
    for (unsigned i = 0; i < 1200; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%u", i);
        store_rig_enqueue(f, id);
        store_rig_control(f, MR_VERB_DELETE, id);
        if (i % 6 != 0)
            continue;
        enum mr_err err = backup(f, &detail);
        if (err != MR_OK)
            print_error("%u: %s\n", i, detail.text);
        assert_int_equal(err, MR_OK);
        check_copy(f, 1);
        remove_copy(f);
    }
    assert_true(store_rig_stats(f).snapshots >= 10);
}

static void after_a_failed_sync_a_backup_is_refused_and_does_not_wait_for_ever(void **state)
{
    struct store_rig *f = *state;
    struct mr_detail detail;
    store_rig_make(f);
    store_rig_open(f);
    simfs_fail(f->fs, SIMFS_SYNC, 0, SIMFS_FOR_EVER, MR_IO);
    struct mr_task_options task = {.payload = MR_SLICE_LIT("x")};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_IO);
    mr_req_done(&req.req);
    assert_int_equal(backup(f, &detail), MR_IO);
    assert_int_equal(files_in_copy(f), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_leaves_no_half_copy_and_the_next_try_succeeds),
        TEST(any_failure_leaves_nothing_and_the_store_goes_on),
        TEST(a_file_that_somebody_else_put_there_meanwhile_is_left_alone),
        TEST(tokens_go_along_as_they_were_when_it_began),
        TEST(backups_while_segments_come_and_go_are_all_whole),
        TEST(after_a_failed_sync_a_backup_is_refused_and_does_not_wait_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
