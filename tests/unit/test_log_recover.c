/* SPDX-License-Identifier: Apache-2.0 */
/* At a start: everything durable is found, a torn tail is cut, and nothing that was cut ever comes
 * back. Damage is the business of test_log_repair.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc.h"
#include "log/log.h"
#include "sim/simfs.h"
#include "unit/log_rig.h"

/* ---- nothing wrong -------------------------------------------------------------------------- */

static void everything_durable_is_found_in_order_over_many_segments(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 700, LOG_LEN);
    log_open(rig);
    assert_int_equal(rig->found_n, 700);
    assert_int_equal(rig->recovery.records, 700);
    assert_int_equal(rig->recovery.damaged + rig->recovery.torn_bytes, 0);
    for (size_t i = 0; i < 700; i++)
        assert_int_equal(rig->found[i].seq, i + 1);
    assert_int_equal(mr_log_durable(rig->log), 700);
    assert_int_equal(mr_log_last_seq(rig->log), 700);
}

static void only_what_the_snapshot_does_not_cover_is_visited(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 300, LOG_LEN);
    for (uint64_t after = 0; after <= 300; after += 25) {
        rig->recovery.after_seq = after;
        log_open(rig);
        assert_int_equal(rig->found_n, 300 - after);
        if (after < 300)
            assert_int_equal(rig->found[0].seq, after + 1);
    }
}

static void each_opening_has_a_higher_term(void **state)
{
    struct log_rig *rig = *state;
    for (uint32_t term = 1; term < 5; term++) {
        assert_int_equal(mr_log_term(rig->log), term);
        log_put_durable(rig, 1, LOG_LEN);
        log_open(rig);
        assert_int_equal(mr_log_last_term(rig->log), term);
    }
}

static void what_is_found_is_synced_before_it_counts(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; i < 5; i++)
        log_put(rig, LOG_LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL); /* only the process died */
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
    log_crash(rig, SIMFS_DROP_ALL);
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
}

static enum mr_err refuse_third(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    (void)pos, (void)arg;
    return record->seq == 3 ? MR_VERSION : MR_OK;
}

static void an_error_of_the_visitor_ends_the_recovery(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LOG_LEN);
    rig->recovery.visit = refuse_third;
    assert_int_equal(log_recover(rig), MR_VERSION);
}

static void reading_only_changes_nothing(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(10) + 40);
    uint64_t points = simfs_points(rig->sim);
    rig->recovery.read_only = true;
    assert_int_equal(log_recover(rig), MR_OK);
    assert_int_equal(rig->recovery.damaged, 1);
    assert_int_equal(rig->found_n, 19);
    assert_int_equal(simfs_points(rig->sim), points);
}

static void a_disk_that_cannot_read_is_not_taken_for_the_end(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 300, LOG_LEN);
    for (uint64_t n = 0; n < 6; n++) {
        simfs_fail(rig->sim, SIMFS_READ, n, 1, MR_IO); /* once: what is asked again is read */
        enum mr_err err = log_recover(rig);
        assert_true(err == MR_DAMAGED || (err == MR_OK && rig->found_n == 300));
        simfs_heal(rig->sim);
        simfs_fail(rig->sim, SIMFS_READ, n, SIMFS_FOR_EVER, MR_IO);
        log_assert_refused(rig, MR_DAMAGED, "cannot be read");
        simfs_heal(rig->sim);
    }
    log_open(rig);
    assert_int_equal(rig->found_n, 300);
}

static void a_sync_that_fails_at_the_start_is_told(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LOG_LEN);
    simfs_fail(rig->sim, SIMFS_SYNC, 0, 1, MR_IO);
    assert_int_equal(log_recover(rig), MR_IO);
    log_open(rig);
    assert_int_equal(rig->found_n, 3);
}

static void a_log_shorter_than_its_snapshot_is_refused(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 10, LOG_LEN);
    rig->recovery.after_seq = 11;
    log_assert_refused(rig, MR_DAMAGED, "damaged record 11");
}

static void a_folder_without_segments_is_no_empty_log(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LOG_LEN);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    for (int mode = 0; mode < 3; mode++) {
        rig->recovery.mode = mode == 1 ? MR_FSCK_REPAIR : MR_FSCK_CHECK;
        rig->recovery.read_only = mode == 2;
        log_assert_refused(rig, MR_DAMAGED, "store: the log is missing");
    }
}

/* ---- torn tails ----------------------------------------------------------------------------- */

static void a_record_torn_at_any_byte_is_cut_and_reported(void **state)
{
    static const uint8_t zeroes[LOG_SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 6, LOG_LEN);
    log_drop(rig);
    struct simfs *whole = simfs_clone(rig->sim);
    for (size_t cut = 0; cut < LOG_SIZE; cut++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(whole);
        rig->fs = simfs_fs(rig->sim);
        simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), log_place(6) + cut, zeroes,
                        LOG_SIZE - cut);
        log_open(rig);
        assert_int_equal(rig->found_n, 5);
        assert_int_equal(rig->recovery.damaged, 0);
        if (cut >= MR_RECORD_HEADER)
            assert_int_equal(rig->recovery.torn_bytes, LOG_SIZE);
        log_put_durable(rig, 2, LOG_LEN);
        log_open(rig);
        assert_int_equal(rig->found_n, 7);
        assert_int_equal(rig->recovery.torn_bytes, 0);
        log_drop(rig);
    }
    simfs_free(whole);
}

static void a_hole_in_what_was_never_durable_is_a_torn_tail(void **state)
{
    static const uint8_t zeroes[LOG_SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LOG_LEN);
    for (int i = 0; i < 3; i++)
        log_put(rig, LOG_LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), log_place(6), zeroes, LOG_SIZE);
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
    assert_int_equal(rig->recovery.torn_bytes, LOG_SIZE);
    assert_int_equal(rig->recovery.damaged, 0);
}

static void the_remains_of_a_torn_tail_never_come_back(void **state)
{
    static const uint8_t zeroes[LOG_SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LOG_LEN);
    for (int i = 0; i < 3; i++)
        log_put(rig, LOG_LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), log_place(6), zeroes, LOG_SIZE);
    log_open(rig);
    /* The new sixth record ends exactly where the old seventh stands, whole. */
    log_put_durable(rig, 1, LOG_LEN);
    for (int round = 0; round < 3; round++) {
        log_open(rig);
        assert_int_equal(rig->found_n, 6 + round);
        assert_int_equal(rig->recovery.damaged, 0);
        log_put_durable(rig, 1, LOG_LEN);
    }
}

static void the_remains_in_a_segment_ahead_never_come_back(void **state)
{
    struct log_rig *rig = *state;
    while (mr_log_segments(rig->log) < 2)
        log_put_durable(rig, 1, LOG_LEN);
    uint64_t last = mr_log_last_seq(rig->log);
    for (int i = 0; i < 10; i++)
        log_put(rig, LOG_LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    static const uint8_t zeroes[LOG_SIZE];
    size_t i = log_file(rig, "log-00000002");
    simfs_overwrite(rig->sim, i, MR_SEGMENT_HEADER + LOG_SIZE, zeroes, LOG_SIZE);
    for (uint64_t round = 0; round < 10; round++) {
        log_open(rig);
        assert_int_equal(rig->found_n, last + round);
        assert_int_equal(rig->recovery.damaged, 0);
        log_put_durable(rig, 1, LOG_LEN);
    }
}

static void unfinished_files_are_no_part_of_the_log(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LOG_LEN);
    static const char *const names[] = {"tmp-00000002", "log-0000000", "log-000000020", "log-xyz"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[MR_PATH_MAX];
        struct mr_file *file;
        assert_int_equal(mr_path_join(path, LOG_DIR, names[i]), MR_OK);
        assert_int_equal(mr_fs_open(rig->fs, path, MR_OPEN_CREATE, &file), MR_OK);
        assert_int_equal(mr_file_pwrite(file, "x", 1, 0), MR_OK);
        mr_file_close(file);
    }
    log_open(rig);
    assert_int_equal(rig->found_n, 3);
    assert_int_equal(mr_log_segments(rig->log), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, log_begin, log_end)

/* A power cut takes the end of a segment but not what was written to the next one; later a snapshot
 * covers more than those numbers. */
static void remains_in_the_next_segment_are_no_place_to_start(void **state)
{
    static const uint8_t zeros[2 * LOG_SIZE];
    struct log_rig *rig = *state;
    const uint64_t n = (LOG_SEGMENT - MR_SEGMENT_HEADER) / LOG_SIZE; /* fill a segment */
    log_put_durable(rig, n - 2, LOG_LEN);
    for (int i = 0; i < 4; i++)
        log_put(rig, LOG_LEN, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_segments(rig->log), 2);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_drop(rig);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), log_place(n - 1), zeros, sizeof zeros);
    log_open(rig);
    assert_int_equal(rig->found_n, n - 2);
    log_put_durable(rig, 5, 0);
    assert_int_equal(mr_log_segments(rig->log), 1);
    rig->recovery.after_seq = n + 3;
    rig->recovery.after_term = mr_log_last_term(rig->log) + 1;
    log_open(rig);
    assert_int_equal(mr_log_last_seq(rig->log), n + 3);
    log_put_durable(rig, 5, LOG_LEN);
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(remains_in_the_next_segment_are_no_place_to_start),
        TEST(everything_durable_is_found_in_order_over_many_segments),
        TEST(only_what_the_snapshot_does_not_cover_is_visited),
        TEST(each_opening_has_a_higher_term),
        TEST(what_is_found_is_synced_before_it_counts),
        TEST(an_error_of_the_visitor_ends_the_recovery),
        TEST(reading_only_changes_nothing),
        TEST(a_disk_that_cannot_read_is_not_taken_for_the_end),
        TEST(a_sync_that_fails_at_the_start_is_told),
        TEST(a_log_shorter_than_its_snapshot_is_refused),
        TEST(a_folder_without_segments_is_no_empty_log),
        TEST(a_record_torn_at_any_byte_is_cut_and_reported),
        TEST(a_hole_in_what_was_never_durable_is_a_torn_tail),
        TEST(the_remains_of_a_torn_tail_never_come_back),
        TEST(the_remains_in_a_segment_ahead_never_come_back),
        TEST(unfinished_files_are_no_part_of_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
