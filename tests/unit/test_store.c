/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a store: its description, its lock, and what is refused with which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/crc.h"
#include "broker/embedded/embedded.h"
#include "log/log.h"
#include "sim/rig.h"
#include "sim/simfs.h"
#include "unit/store_rig.h"

enum { META_BYTES = 80, META_COPY = 4096 };

/* ---- a store -------------------------------------------------------------------------------- */

static void a_new_folder_becomes_a_store(void **state)
{
    static const char *const names[] = {"lock", "meta", "board", "log-00000001"};
    struct store_rig *f = *state;
    store_rig_open(f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_not_equal(store_rig_file(f, names[i]), SIZE_MAX);
    assert_int_equal(store_rig_stats(f).tasks, 0);
}

static void an_empty_folder_becomes_a_store_too(void **state)
{
    struct store_rig *f = *state;
    struct mr_fs *fs = simfs_fs(f->fs);
    assert_int_equal(fs->ops->dir_make(fs, RIG_DIR), MR_OK);
    store_rig_open(f);
}

static void a_store_that_was_closed_opens_as_it_was(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    for (int round = 0; round < 3; round++) {
        store_rig_open(f);
        assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
        assert_int_equal(store_rig_stats(f).records_damaged, 0);
        mr_engine_validate(f->rig.engine);
        store_rig_close(f);
    }
}

static void the_segment_size_is_the_one_it_was_made_with(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    f->rig.segment_bytes = 64 * 1024;
    store_rig_open(f);
    for (int i = STORE_RIG_TASKS; i < 2 * STORE_RIG_TASKS; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%d", i);
        store_rig_enqueue(f, id);
    }
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strstr(simfs_file_path(f->fs, i), "/log-") != NULL)
            assert_int_equal(simfs_file_size(f->fs, i), 16 * 1024);
}

static void what_a_crash_left_unfinished_is_removed(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    store_rig_put(f, "tmp-00000009", "half a segment");
    store_rig_put(f, "tmp-snap", "half a snapshot");
    store_rig_open(f);
    assert_int_equal(store_rig_file(f, "tmp-00000009"), SIZE_MAX);
    assert_int_equal(store_rig_file(f, "tmp-snap"), SIZE_MAX);
    assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
}

static void a_store_whose_log_is_gone_is_refused_and_never_opened_as_an_empty_one(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    for (size_t i = simfs_file_count(f->fs); i-- > 0;)
        if (strstr(simfs_file_path(f->fs, i), "/log-") != NULL)
            simfs_lose(f->fs, i);
    for (int repair = 0; repair < 2; repair++) {
        uint32_t before = store_rig_digest(f);
        f->rig.repair = repair;
        store_rig_refused(f, MR_DAMAGED, "store: the log is missing");
        assert_int_equal(store_rig_digest(f), before);
    }
}

static void a_segment_size_out_of_range_is_refused_before_anything_is_written(void **state)
{
    struct store_rig *f = *state;
    static const size_t sizes[] = {1, 1000, 16 * 1024 - 1, 1024 * 1024 * 1024 + 1UL, 5000000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        f->rig.segment_bytes = sizes[i];
        store_rig_refused(f, MR_INVALID, "it must have between");
        assert_int_equal(simfs_file_count(f->fs), 0);
    }
}

/* ---- who was running ------------------------------------------------------------------------ */

/* A store whose process died during a run, of which the board tells. */
static void die_while_running(struct store_rig *f, enum simfs_policy policy)
{
    store_rig_open(f);
    store_rig_enqueue(f, "a");
    assert_int_equal(store_rig_take(f, 1, true), 1);
    store_rig_enqueue(f, "b"); /* with it the hand-out becomes durable */
    /* As the kernel does of itself after a while. */
    struct mr_fs *fs = simfs_fs(f->fs);
    struct mr_file *board;
    assert_int_equal(mr_fs_open(fs, RIG_DIR "/board", MR_OPEN_WRITE, &board), MR_OK);
    assert_int_equal(mr_file_sync(board), MR_OK);
    assert_int_equal(fs->ops->dir_sync(fs, RIG_DIR), MR_OK);
    mr_file_close(board);
    store_rig_die(f, policy);
}

static unsigned crashes_counted(struct store_rig *f)
{
    store_rig_open(f);
    struct mr_req_get req = store_rig_get(f, "a");
    assert_int_equal(req.task.state, MR_PENDING);
    unsigned crashes = req.task.crashes;
    mr_req_done(&req.req);
    return crashes;
}

static void the_death_of_the_process_counts_as_a_crash_of_what_it_ran(void **state)
{
    struct store_rig *f = *state;
    die_while_running(f, SIMFS_KEEP_ALL);
    assert_int_equal(crashes_counted(f), 1);
}

static void a_power_cut_is_nobodys_fault_even_if_the_board_reached_the_disk(void **state)
{
    struct store_rig *f = *state;
    die_while_running(f, SIMFS_DROP_ALL);
    assert_int_not_equal(mr_load64(simfs_file_data(f->fs, store_rig_file(f, "board")) + 64), 0);
    assert_int_equal(crashes_counted(f), 0);
}

static void a_board_that_cannot_be_read_names_nobody(void **state)
{
    struct store_rig *f = *state;
    die_while_running(f, SIMFS_KEEP_ALL);
    simfs_unreadable(f->fs, store_rig_file(f, "board"), 4096, 4096);
    assert_int_equal(crashes_counted(f), 0);
}

static void a_start_begins_no_job_whatever_it_has_to_write(void **state)
{
    struct store_rig *f = *state;
    store_rig_open(f);
    for (int i = 0; i < 300; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%d", i);
        store_rig_enqueue(f, id);
    }
    assert_int_equal(store_rig_take(f, 300, false), 300);
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_S);
    store_rig_die(f, SIMFS_KEEP_ALL);
    /* More than a segment of lost leases; the sync at the end fails first. */
    struct simfs *trial = simfs_clone(f->fs);
    struct rig rig;
    rig_init(&rig, trial, 2);
    assert_int_equal(rig_open(&rig), MR_OK);
    assert_int_equal(rig.file_exec.n + rig.sync_exec.n, 0);
    uint64_t syncs = simfs_count(trial, SIMFS_SYNC);
    rig_done(&rig);
    simfs_free(trial);
    simfs_fail(f->fs, SIMFS_SYNC, syncs - 1, 1, MR_IO);
    store_rig_refused(f, MR_IO, "store");
    simfs_heal(f->fs);
    store_rig_open(f);
    assert_int_equal(store_rig_stats(f).tasks, 300);
    mr_engine_validate(f->rig.engine);
}

/* ---- the description ------------------------------------------------------------------------ */

static void either_copy_of_the_description_is_enough_and_mends_the_other(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    for (uint64_t copy = 0; copy <= META_COPY; copy += META_COPY) {
        for (uint64_t byte = 0; byte < META_BYTES; byte += 5) {
            simfs_flip_bit(f->fs, store_rig_file(f, "meta"), 8 * (copy + byte) + byte % 8);
            store_rig_open(f);
            assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
            assert_int_equal(store_rig_stats(f).records_damaged, 1);
            store_rig_close(f);
            const uint8_t *meta = simfs_file_data(f->fs, store_rig_file(f, "meta"));
            assert_memory_equal(meta, meta + META_COPY, META_BYTES);
        }
    }
}

static void without_its_description_a_store_is_refused_and_repair_restores_it(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    for (int how = 0; how < 3; how++) {
        size_t i = store_rig_file(f, "meta");
        uint8_t before[META_BYTES];
        memcpy(before, simfs_file_data(f->fs, i), META_BYTES);
        if (how == 0) {
            simfs_lose(f->fs, i);
        } else if (how == 1) {
            simfs_flip_bit(f->fs, i, 8 * 20);
            simfs_flip_bit(f->fs, i, 8 * (META_COPY + 40));
        } else {
            simfs_cut(f->fs, i, 0);
        }
        f->rig.repair = false;
        store_rig_refused(f, MR_DAMAGED, "store/meta");
        f->rig.repair = true;
        store_rig_open(f);
        assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
        store_rig_close(f);
        assert_memory_equal(simfs_file_data(f->fs, store_rig_file(f, "meta")), before, META_BYTES);
    }
    f->rig.repair = false;
    store_rig_open(f);
    assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
}

/* Also where only one copy is, as when a newer program died between the two; and then it stays as it is. */
static void a_description_of_a_newer_version_is_refused(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    size_t file = store_rig_file(f, "meta");
    uint8_t ours[META_BYTES], newer[META_BYTES];
    memcpy(ours, simfs_file_data(f->fs, file), META_BYTES);
    memcpy(newer, ours, META_BYTES);
    mr_store32(newer + 8, 2);
    mr_store32(newer + 76, mr_crc32c(0, newer, 76));
    for (int round = 0; round < 6; round++) {
        int which = 1 + round / 2;
        const uint8_t *first = which & 1 ? newer : ours, *second = which & 2 ? newer : ours;
        f->rig.repair = round % 2 != 0;
        simfs_overwrite(f->fs, file, 0, first, META_BYTES);
        simfs_overwrite(f->fs, file, META_COPY, second, META_BYTES);
        store_rig_refused(f, MR_VERSION, "store/meta: format version 2 is newer");
        const uint8_t *left = simfs_file_data(f->fs, file);
        assert_memory_equal(left, first, META_BYTES);
        assert_memory_equal(left + META_COPY, second, META_BYTES);
    }
    /* Nothing else than the version needs to be where it is now. */
    simfs_overwrite(f->fs, file, META_COPY, newer, META_BYTES - 4);
    simfs_overwrite(f->fs, file, 0, "neither", 8);
    store_rig_refused(f, MR_VERSION, "store/meta: format version 2 is newer");
}

/* ---- folders of somebody else --------------------------------------------------------------- */

static void a_folder_of_somebody_else_is_refused_and_left_as_it_was(void **state)
{
    struct store_rig *f = *state;
    store_rig_put(f, "letters.txt", "Dear Sir");
    store_rig_refused(f, MR_NOT_A_STORE, "not part of a Millrace store");
    assert_int_equal(simfs_file_count(f->fs), 1);
}

static void files_of_somebody_else_stay_though_they_are_called_tmp(void **state)
{
    struct store_rig *f = *state;
    store_rig_put(f, "tmp-report.doc", "mine");
    store_rig_put(f, "notes.txt", "mine");
    store_rig_refused(f, MR_NOT_A_STORE, "not part of a Millrace store");
    assert_int_equal(simfs_file_count(f->fs), 2);
    simfs_lose(f->fs, store_rig_file(f, "tmp-report.doc"));
    simfs_lose(f->fs, store_rig_file(f, "notes.txt"));
    store_rig_make(f);
    store_rig_put(f, "tmp-report.doc", "mine");
    store_rig_put(f, "tmp-0000000", "mine");
    store_rig_open(f);
    assert_int_not_equal(store_rig_file(f, "tmp-report.doc"), SIZE_MAX);
    assert_int_not_equal(store_rig_file(f, "tmp-0000000"), SIZE_MAX);
}

static void segments_without_any_description_are_refused_and_kept(void **state)
{
    struct store_rig *f = *state;
    store_rig_make(f);
    simfs_lose(f->fs, store_rig_file(f, "meta"));
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strstr(simfs_file_path(f->fs, i), "/log-") != NULL)
            simfs_flip_bit(f->fs, i, 8 * 70);
    store_rig_put(f, "tmp-snap", "half a snapshot");
    f->rig.repair = true;
    store_rig_refused(f, MR_DAMAGED, "store/meta: missing");
    assert_int_equal(store_rig_file(f, "meta"), SIZE_MAX);
}

static void a_file_called_meta_does_not_make_a_store(void **state)
{
    struct store_rig *f = *state;
    store_rig_put(f, "meta",
                  "these are notes about something else, long enough to be looked at, "
                  "and even longer than that");
    store_rig_refused(f, MR_NOT_A_STORE, "store/meta: not a Millrace store");
}

static void a_second_opener_is_refused_and_told_who_has_it(void **state)
{
    struct store_rig *f = *state;
    struct rig second;
    store_rig_open(f);
    store_rig_enqueue(f, "a");
    rig_init(&second, f->fs, 2);
    assert_int_equal(rig_open(&second), MR_IN_USE);
    assert_non_null(strstr(second.detail.text, "in use by process"));
    store_rig_enqueue(f, "b"); /* the first goes on */
    store_rig_close(f);
    assert_int_equal(rig_open(&second), MR_OK);
    mr_engine_finish(second.engine);
    rig_kill(&second);
    rig_done(&second);
    store_rig_open(f);
    assert_int_equal(store_rig_stats(f).tasks, 2);
}

static void a_folder_name_that_cannot_be_is_refused(void **state)
{
    struct store_rig *f = *state;
    static char longest[2 * MR_PATH_MAX];
    memset(longest, 'd', sizeof longest - 1);
    const char *const names[] = {"", longest};
    for (size_t i = 0; i < 2; i++) {
        struct mr_engine_options options = {
            .base = {.dir = names[i], .fs = simfs_fs(f->fs), .clock = &f->rig.clock.clock}};
        struct mr_engine *engine = NULL;
        struct mr_detail detail;
        assert_int_equal(mr_engine_open(&options, &engine, &detail), MR_INVALID);
        assert_null(engine);
        assert_non_null(strstr(detail.text, "folder name"));
    }
}

/* ---- a bad disk ----------------------------------------------------------------------------- */

static void any_failure_while_opening_is_told_and_does_no_harm(void **state)
{
    static const enum simfs_op ops[] = {SIMFS_WRITE,  SIMFS_SYNC,   SIMFS_DIR_SYNC,
                                        SIMFS_CREATE, SIMFS_RENAME, SIMFS_OPEN,
                                        SIMFS_READ,   SIMFS_MAP,    SIMFS_LOCK};
    struct store_rig *f = *state;
    store_rig_make(f);
    unsigned refused = 0;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        for (uint64_t n = 0; n < 8; n++) {
            simfs_fail(f->fs, ops[k], n, 1, MR_IO);
            enum mr_err err = rig_open(&f->rig);
            simfs_heal(f->fs);
            if (err != MR_OK) {
                assert_int_equal(err, MR_IO);
                assert_int_not_equal(f->rig.detail.text[0], '\0');
                refused++;
                store_rig_open(f);
            }
            assert_int_equal(store_rig_stats(f).tasks, STORE_RIG_TASKS);
            store_rig_close(f);
        }
    }
    assert_true(refused >= 15);
}

static void a_disk_without_room_makes_no_store_and_one_with_room_does(void **state)
{
    struct store_rig *f = *state;
    simfs_set_capacity(f->fs, 10000);
    store_rig_refused(f, MR_DISK_FULL, "needs a segment of 16 KiB and 9 KiB are free; make room");
    simfs_heal(f->fs);
    store_rig_open(f);
    store_rig_enqueue(f, "a");
    assert_int_equal(store_rig_stats(f).tasks, 1);
}

static void a_store_can_be_made_again_after_a_crash_at_any_point_of_making_it(void **state)
{
    (void)state;
    bool whole = false, log_alone = false;
    for (uint64_t n = 1; !whole; n++) {
        struct store_rig *f;
        store_rig_begin((void **)&f);
        struct mr_rand rand;
        mr_rand_seed(&rand, n);
        simfs_stop_at(f->fs, n);
        whole = rig_open(&f->rig) == MR_OK && !simfs_crashed(f->fs);
        if (!simfs_crashed(f->fs))
            simfs_stop(f->fs);
        rig_kill(&f->rig);
        simfs_crash(f->fs, &rand, (enum simfs_policy)(n % SIMFS_POLICY_COUNT));
        log_alone |=
            store_rig_file(f, "log-00000001") != SIZE_MAX && store_rig_file(f, "meta") == SIZE_MAX;
        store_rig_open(f);
        store_rig_enqueue(f, "a");
        store_rig_close(f);
        store_rig_open(f);
        assert_int_equal(store_rig_stats(f).tasks, 1);
        store_rig_end((void **)&f);
    }
    assert_true(log_alone); /* the one order in which the two can come */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_folder_becomes_a_store),
        TEST(an_empty_folder_becomes_a_store_too),
        TEST(a_store_that_was_closed_opens_as_it_was),
        TEST(the_segment_size_is_the_one_it_was_made_with),
        TEST(what_a_crash_left_unfinished_is_removed),
        TEST(a_store_whose_log_is_gone_is_refused_and_never_opened_as_an_empty_one),
        TEST(a_segment_size_out_of_range_is_refused_before_anything_is_written),
        TEST(the_death_of_the_process_counts_as_a_crash_of_what_it_ran),
        TEST(a_power_cut_is_nobodys_fault_even_if_the_board_reached_the_disk),
        TEST(a_board_that_cannot_be_read_names_nobody),
        TEST(a_start_begins_no_job_whatever_it_has_to_write),
        TEST(either_copy_of_the_description_is_enough_and_mends_the_other),
        TEST(without_its_description_a_store_is_refused_and_repair_restores_it),
        TEST(a_description_of_a_newer_version_is_refused),
        TEST(a_folder_of_somebody_else_is_refused_and_left_as_it_was),
        TEST(files_of_somebody_else_stay_though_they_are_called_tmp),
        TEST(segments_without_any_description_are_refused_and_kept),
        TEST(a_file_called_meta_does_not_make_a_store),
        TEST(a_second_opener_is_refused_and_told_who_has_it),
        TEST(a_folder_name_that_cannot_be_is_refused),
        TEST(any_failure_while_opening_is_told_and_does_no_harm),
        TEST(a_disk_without_room_makes_no_store_and_one_with_room_does),
        cmocka_unit_test(a_store_can_be_made_again_after_a_crash_at_any_point_of_making_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
