/* SPDX-License-Identifier: Apache-2.0 */
/* Which segments go, when, and what becomes of their space: also where the disk does not let them go at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log/log.h"
#include "sim/simfs.h"
#include "unit/log_rig.h"

enum { SMALL = 40 };

static void a_segment_goes_only_when_nothing_lives_in_it(void **state)
{
    struct log_rig *rig = *state;
    mr_log_hold(rig->log, 1, 100);
    log_fill_segments(rig, 3);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    log_run_chores(rig);
    assert_true(mr_log_has_segment(rig->log, 1));
    assert_false(mr_log_has_segment(rig->log, 2));
    mr_log_hold(rig->log, 1, -100);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    assert_false(mr_log_has_segment(rig->log, 1)); /* not to be read while it goes */
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 1));
    assert_int_equal(mr_log_segments(rig->log), 1);
}

static void a_segment_goes_only_when_a_snapshot_covers_it(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 3);
    struct mr_segment_info first;
    mr_log_segment_at(rig->log, 0, &first);
    mr_log_trim(rig->log, first.last_seq - 1);
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 3);
    mr_log_trim(rig->log, first.last_seq);
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 2);
    assert_false(mr_log_has_segment(rig->log, 1));
}

static void a_segment_that_something_left_unsaid_waits_for_a_later_snapshot(void **state)
{
    struct log_rig *rig = *state;
    mr_log_hold(rig->log, 1, 100);
    log_fill_segments(rig, 3);
    uint64_t last = mr_log_last_seq(rig->log), before = mr_log_unsaids(rig->log);
    mr_log_unsaid(rig->log, 1);
    mr_log_hold(rig->log, 1, -100);
    mr_log_said(rig->log, before);
    mr_log_trim(rig->log, last);
    log_run_chores(rig);
    assert_true(mr_log_has_segment(rig->log, 1));
    struct mr_segment_info info;
    mr_log_segment_at(rig->log, 0, &info);
    assert_true(info.unsaid);
    mr_log_said(rig->log, mr_log_unsaids(rig->log));
    mr_log_trim(rig->log, last);
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 1));
}

static void a_segment_goes_only_when_what_emptied_it_is_durable(void **state)
{
    struct log_rig *rig = *state;
    mr_log_hold(rig->log, 1, 100);
    log_fill_segments(rig, 2);
    log_put(rig, SMALL, MR_LOG_LAZY, NULL); /* stands for a finish */
    mr_log_hold(rig->log, 1, -100);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    log_run_chores(rig);
    assert_true(mr_log_has_segment(rig->log, 1));
    log_flush(rig);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 1));
}

static void the_segment_in_use_never_goes(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, SMALL);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 1);
}

static void nothing_goes_while_pinned_and_pins_nest(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 2);
    mr_log_pin(rig->log);
    mr_log_pin(rig->log);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    mr_log_unpin(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 2);
    mr_log_unpin(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 1);
}

static void a_segment_no_longer_needed_becomes_the_next_one(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 2);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    uint64_t creates = simfs_count(rig->sim, SIMFS_CREATE);
    log_run_chores(rig);
    assert_false(log_has_file(rig, "log-00000001"));
    assert_true(log_has_file(rig, "log-00000003"));
    log_fill_segments(rig, 2);
    assert_true(mr_log_has_segment(rig->log, 3));
    assert_int_equal(simfs_count(rig->sim, SIMFS_CREATE), creates);
}

static void disk_use_stays_bounded_while_everything_comes_and_goes(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; i < 500; i++) {
        log_put_durable(rig, 1, 1000);
        mr_log_trim(rig->log, mr_log_last_seq(rig->log));
        log_run_chores(rig);
        assert_true(mr_log_disk_bytes(rig->log) <= 3 * LOG_SEGMENT);
    }
    assert_int_equal(mr_log_last_seq(rig->log), 500);
}

static void a_chore_may_have_run_before_its_submit_returns(void **state)
{
    struct log_rig *rig = *state;
    rig->sync_exec.eager = rig->file_exec.eager = true;
    for (int i = 0; i < 200; i++) {
        log_put_durable(rig, 1, 1000);
        mr_log_trim(rig->log, mr_log_last_seq(rig->log) - 1);
        log_run_chores(rig);
    }
    assert_int_equal(mr_log_failure(rig->log), MR_OK);
    assert_true(mr_log_disk_bytes(rig->log) <= 3 * LOG_SEGMENT);
    rig->recovery.after_seq = 199;
    log_open(rig);
    assert_int_equal(rig->found_n, 1);
}

static enum mr_err only_newer(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    (void)pos;
    assert_non_null(record);
    assert_true(record->seq > *(uint64_t *)arg);
    log_check_body(record);
    return MR_OK;
}

static void a_recycled_segment_never_shows_its_old_records(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos old;
    struct mr_record record;
    log_put(rig, 1000, MR_LOG_DURABLE, &old);
    log_fill_segments(rig, 2);
    uint64_t covered = mr_log_last_seq(rig->log);
    mr_log_trim(rig->log, covered);
    log_run_chores(rig);
    size_t i = log_file(rig, "log-00000003");
    assert_int_not_equal(simfs_file_data(rig->sim, i)[old.offset + 40], 0); /* they stand there */
    uint64_t last = mr_log_last_seq(rig->log);
    log_fill_segments(rig, 2);
    assert_true(mr_log_has_segment(rig->log, 3));
    old.segment = 3;
    old.offset += (uint32_t)(3 * mr_record_size(1000)); /* behind what is new */
    assert_int_equal(mr_log_read(rig->log, old, MR_RECORD_HEADER + 1000, &record), MR_DAMAGED);
    uint32_t offset = 0;
    assert_int_equal(mr_log_walk(rig->log, 3, &offset, LOG_SEGMENT, only_newer, &last), MR_OK);
    for (int round = 0; round < 2; round++) {
        rig->recovery.after_seq = covered;
        log_open(rig);
        assert_int_equal(rig->recovery.damaged, 0);
        for (size_t k = 0; k < rig->found_n; k++)
            assert_int_equal(rig->found[k].seq, covered + 1 + k);
        log_put_durable(rig, 3, 1000);
    }
}

/* Its records are durable and a snapshot covers them, but a sync has its file in hand. */
static void a_segment_goes_only_when_no_sync_has_it(void **state)
{
    struct log_rig *rig = *state;
    uint64_t last = 0;
    for (int i = 0; i < 15; i++)
        last = log_put(rig, 1000, MR_LOG_DURABLE, NULL);
    log_flush(rig);
    for (int i = 0; i < 6; i++) {
        log_put(rig, 1000, MR_LOG_LAZY, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
    }
    log_run_chores(rig);
    assert_int_equal(mr_log_segments(rig->log), 2);
    mr_log_trim(rig->log, last);
    log_run_chores(rig);
    assert_true(mr_log_has_segment(rig->log, 1));
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    mr_log_sync(rig->log);
    mr_log_trim(rig->log, last); /* now it is with the sync under way */
    log_exec_run(&rig->file_exec);
    assert_true(mr_log_has_segment(rig->log, 1));
    log_run_chores(rig);
    mr_log_trim(rig->log, last);
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 1));
}

static void a_segment_that_cannot_be_removed_does_no_harm(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 2);
    uint64_t last = mr_log_last_seq(rig->log);
    simfs_fail(rig->sim, SIMFS_RENAME, 0, 1, MR_IO);
    mr_log_trim(rig->log, last);
    log_run_chores(rig);
    assert_int_equal(mr_log_failure(rig->log), MR_OK);
    mr_log_retry_space(rig->log);
    log_run_chores(rig);
    log_put_durable(rig, 30, 1000);
    rig->recovery.after_seq = last;
    log_open(rig);
    assert_int_equal(rig->found_n, 30);
}

/* It stays as it was and is counted, and it goes once the disk lets it. */
static void a_segment_that_cannot_be_removed_is_tried_again(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 4);
    uint64_t last = mr_log_last_seq(rig->log), tries = simfs_count(rig->sim, SIMFS_REMOVE);
    simfs_fail(rig->sim, SIMFS_REMOVE, 0, SIMFS_FOR_EVER, MR_IO);
    for (uint64_t round = 1; round <= 3; round++) {
        for (int i = 0; i < 3; i++) {
            mr_log_trim(rig->log, last);
            log_run_chores(rig);
        }
        assert_true(mr_log_wants_retry(rig->log));
        assert_int_equal(simfs_count(rig->sim, SIMFS_REMOVE), tries + 2 * round); /* once a retry */
        assert_true(mr_log_has_segment(rig->log, 2)); /* the first one was recycled */
        assert_true(mr_log_has_segment(rig->log, 3));
        assert_int_equal(mr_log_failure(rig->log), MR_OK);
        assert_int_equal(mr_log_full(rig->log), MR_OK);
        log_put_durable(rig, 1, SMALL);
        mr_log_retry_space(rig->log);
        log_run_chores(rig);
    }
    simfs_heal(rig->sim);
    mr_log_retry_space(rig->log);
    log_run_chores(rig);
    assert_false(mr_log_wants_retry(rig->log));
    assert_int_equal(mr_log_segments(rig->log), 1);
    assert_false(log_has_file(rig, "log-00000002"));
    assert_in_range(simfs_used(rig->sim), 1, 2 * LOG_SEGMENT);
    log_put_durable(rig, 30, 1000);
    rig->recovery.after_seq = last;
    log_open(rig);
    assert_int_equal(rig->found_n, 33);
}

/* One file that the disk holds on to must not fill it with all that come after. */
static void a_segment_that_cannot_be_removed_keeps_no_other(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 4);
    simfs_fail(rig->sim, SIMFS_REMOVE, 0, 1, MR_IO);
    mr_log_trim(rig->log, mr_log_last_seq(rig->log));
    log_run_chores(rig);
    assert_true(mr_log_has_segment(rig->log, 2));
    assert_false(mr_log_has_segment(rig->log, 3));
    assert_true(mr_log_wants_retry(rig->log));
    mr_log_retry_space(rig->log);
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 2));
    assert_false(mr_log_wants_retry(rig->log));
}

/* Each call on the way fails once. What lost its name is dropped, and leaves no file that is nobody's. */
static void a_segment_that_cannot_be_recycled_leaves_nothing_behind(void **state)
{
    static const struct {
        enum simfs_op op;
        uint64_t after;
    } calls[] = {{SIMFS_RENAME, 0}, {SIMFS_DIR_SYNC, 0}, {SIMFS_WRITE, 0},
                 {SIMFS_SYNC, 0},   {SIMFS_RENAME, 1},   {SIMFS_DIR_SYNC, 1}};
    struct log_rig *rig = *state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        while (mr_log_segments(rig->log) < 2 || mr_log_ready(rig->log) > 0)
            log_put_durable(rig, 1, 500);
        simfs_fail(rig->sim, calls[i].op, calls[i].after, 1, MR_IO);
        mr_log_trim(rig->log, mr_log_last_seq(rig->log));
        log_run_chores(rig);
        assert_int_equal(mr_log_failure(rig->log), MR_OK);
        assert_int_equal(mr_log_full(rig->log), MR_OK);
        mr_log_retry_space(rig->log);
        log_run_chores(rig);
        assert_int_equal(mr_log_segments(rig->log), 1);
        log_put_durable(rig, 40, 1000);
        mr_log_trim(rig->log, mr_log_last_seq(rig->log));
        log_run_chores(rig);
        assert_in_range(simfs_used(rig->sim), 1, 2 * LOG_SEGMENT);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, log_begin, log_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_segment_goes_only_when_nothing_lives_in_it),
        TEST(a_segment_goes_only_when_a_snapshot_covers_it),
        TEST(a_segment_that_something_left_unsaid_waits_for_a_later_snapshot),
        TEST(a_segment_goes_only_when_what_emptied_it_is_durable),
        TEST(the_segment_in_use_never_goes),
        TEST(nothing_goes_while_pinned_and_pins_nest),
        TEST(a_segment_no_longer_needed_becomes_the_next_one),
        TEST(disk_use_stays_bounded_while_everything_comes_and_goes),
        TEST(a_chore_may_have_run_before_its_submit_returns),
        TEST(a_recycled_segment_never_shows_its_old_records),
        TEST(a_segment_goes_only_when_no_sync_has_it),
        TEST(a_segment_that_cannot_be_removed_does_no_harm),
        TEST(a_segment_that_cannot_be_removed_is_tried_again),
        TEST(a_segment_that_cannot_be_removed_keeps_no_other),
        TEST(a_segment_that_cannot_be_recycled_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
