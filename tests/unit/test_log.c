/* SPDX-License-Identifier: Apache-2.0 */
/* The commit log: what is durable when, who waits for which sync, room, space and reading back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <unistd.h>

#include "log/log.h"
#include "sim/simfs.h"
#include "unit/failing_alloc.h"
#include "unit/log_rig.h"

enum { HALF = 6000, SMALL = 40 };

static uint64_t syncs(const struct log_rig *rig)
{
    return simfs_count(rig->sim, SIMFS_SYNC);
}

/* ---- the life of a record ------------------------------------------------------------------- */

static void a_new_log_has_one_segment_filled_with_zeroes(void **state)
{
    struct log_rig *rig = *state;
    size_t i = log_file(rig, "log-00000001");
    assert_int_not_equal(i, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, i), LOG_SEGMENT);
    const uint8_t *bytes = simfs_file_data(rig->sim, i);
    for (size_t at = MR_SEGMENT_HEADER; at < LOG_SEGMENT; at++)
        assert_int_equal(bytes[at], 0);
    assert_int_equal(mr_log_segments(rig->log), 1);
    assert_int_equal(mr_log_last_seq(rig->log), 0);
}

static void a_record_is_appended_then_written_then_durable(void **state)
{
    struct log_rig *rig = *state;
    uint64_t writes = simfs_count(rig->sim, SIMFS_WRITE), before = syncs(rig);
    assert_int_equal(log_put(rig, SMALL, MR_LOG_DURABLE, NULL), 1);
    assert_int_equal(simfs_count(rig->sim, SIMFS_WRITE), writes);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    assert_int_equal(simfs_count(rig->sim, SIMFS_WRITE), writes + 1);
    assert_int_equal(mr_log_durable(rig->log), 0);
    mr_log_sync(rig->log);
    assert_int_equal(mr_log_durable(rig->log), 0); /* beside the owner's thread */
    assert_false(mr_log_idle(rig->log));
    log_run_chores(rig);
    assert_int_equal(mr_log_durable(rig->log), 1);
    assert_int_equal(syncs(rig), before + 1);
    assert_int_equal(rig->changed, 1);
    assert_true(mr_log_idle(rig->log));
}

static void the_newest_record_can_be_extended_until_it_is_written_or_asked_for(void **state)
{
    enum { MORE = 16 };
    struct log_rig *rig = *state;
    struct mr_log_pos pos;
    uint64_t seq = log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    assert_null(mr_log_extend(rig->log, MR_RECORD_TAKE, MORE)); /* another kind */
    for (size_t len = SMALL; len < SMALL + 4 * MORE; len += MORE) {
        uint8_t *more = mr_log_extend(rig->log, MR_RECORD_TASK, MORE);
        assert_non_null(more);
        for (size_t i = 0; i < MORE; i++)
            more[i] = log_pattern(seq, len + i);
    }
    assert_null(mr_log_extend(rig->log, MR_RECORD_TASK, 64 * 1024)); /* too much in one record */
    assert_int_equal(mr_log_last_seq(rig->log), seq);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    assert_null(mr_log_extend(rig->log, MR_RECORD_TASK, MORE));
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    mr_log_demand(rig->log);
    assert_null(mr_log_extend(rig->log, MR_RECORD_TASK, MORE));
    log_flush(rig);
    struct mr_record record;
    size_t size = MR_RECORD_HEADER + SMALL + 4 * MORE;
    assert_int_equal(mr_log_read(rig->log, pos, size, &record), MR_OK);
    for (size_t i = 0; i < record.body.len; i++)
        assert_int_equal(((const uint8_t *)record.body.data)[i], log_pattern(seq, i));
    log_crash(rig, SIMFS_DROP_ALL);
    log_open(rig);
    assert_int_equal(rig->found_n, 2);
}

static void one_sync_covers_many_records(void **state)
{
    struct log_rig *rig = *state;
    uint64_t before = syncs(rig), writes = simfs_count(rig->sim, SIMFS_WRITE);
    for (int i = 0; i < 40; i++)
        log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    log_flush(rig);
    assert_int_equal(mr_log_durable(rig->log), 40);
    assert_int_equal(syncs(rig), before + 1);
    assert_int_equal(simfs_count(rig->sim, SIMFS_WRITE), writes + 1);
}

static void a_lone_record_waits_for_one_sync_and_nothing_more_is_synced(void **state)
{
    struct log_rig *rig = *state;
    uint64_t before = syncs(rig);
    for (uint64_t i = 1; i <= 5; i++) {
        log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
        mr_log_sync(rig->log);
        log_run_chores(rig);
        assert_int_equal(syncs(rig), before + i);
        mr_log_sync(rig->log);
        assert_int_equal(rig->sync_exec.n, 0);
    }
}

static void what_comes_during_a_sync_shares_the_next_one(void **state)
{
    struct log_rig *rig = *state;
    uint64_t before = syncs(rig);
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    mr_log_sync(rig->log);
    for (int i = 0; i < 20; i++) {
        log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
        mr_log_sync(rig->log);
        assert_int_equal(rig->sync_exec.n, 2); /* one, and the next behind it: never more */
    }
    log_run_chores(rig);
    assert_int_equal(mr_log_durable(rig->log), 21);
    assert_int_equal(syncs(rig), before + 2);
}

static void a_record_nobody_waits_for_starts_no_sync_until_it_is_asked_for(void **state)
{
    struct log_rig *rig = *state;
    log_put(rig, SMALL, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    mr_log_sync(rig->log);
    assert_int_equal(rig->sync_exec.n, 0);
    mr_log_demand(rig->log);
    assert_int_equal(mr_log_wanted(rig->log), 1);
    mr_log_sync(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_durable(rig->log), 1);
}

static void a_synced_record_survives_a_power_cut_and_an_unsynced_one_need_not(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, SMALL);
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_DROP_ALL);
    log_open(rig);
    assert_int_equal(rig->found_n, 3);
}

static void each_record_says_how_far_the_disk_was(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos pos;
    struct mr_record record;
    log_put_durable(rig, 4, SMALL);
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_OK);
    assert_int_equal(record.seq - record.lag, 4);
    assert_int_equal(record.term, mr_log_term(rig->log));
}

/* ---- segments ------------------------------------------------------------------------------- */

static void records_go_on_from_segment_to_segment(void **state)
{
    struct log_rig *rig = *state;
    static struct mr_log_pos places[200];
    for (uint64_t i = 0; i < 200; i++) {
        assert_int_equal(log_put(rig, 500, MR_LOG_DURABLE, &places[i]), i + 1);
        log_flush(rig);
    }
    assert_true(mr_log_segments(rig->log) >= 6);
    for (uint64_t i = 0; i < 200; i++) {
        struct mr_record record;
        assert_true(i == 0 || places[i].segment >= places[i - 1].segment);
        assert_true(places[i].offset + MR_RECORD_HEADER + 500 <= LOG_SEGMENT);
        assert_int_equal(mr_log_read(rig->log, places[i], MR_RECORD_HEADER + 500, &record), MR_OK);
        assert_int_equal(record.seq, i + 1);
        log_check_body(&record);
    }
    log_open(rig);
    assert_int_equal(rig->found_n, 200);
}

static void the_next_segment_is_made_ready_well_before_it_is_needed(void **state)
{
    struct log_rig *rig = *state;
    log_put(rig, SMALL, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    assert_int_equal(rig->file_exec.n, 0);
    log_put(rig, LOG_SEGMENT / 4, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    assert_int_equal(rig->file_exec.n, 1);
    assert_false(log_has_file(rig, "log-00000002"));
    log_run_chores(rig);
    size_t i = log_file(rig, "log-00000002");
    assert_int_not_equal(i, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, i), LOG_SEGMENT);
    assert_false(log_has_file(rig, "tmp-00000002"));
    assert_int_equal(mr_log_segments(rig->log), 1);
    assert_int_equal(mr_log_disk_bytes(rig->log), 2 * LOG_SEGMENT);
}

static void the_next_segment_is_made_at_once_when_none_will_be_free(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; mr_log_segments(rig->log) < 2; i++) {
        log_put(rig, 1000, MR_LOG_LAZY, NULL);
        mr_log_hold(rig->log, 1, 1000);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
        if (mr_log_segments(rig->log) < 2)
            log_exec_run(&rig->file_exec);
    }
    assert_int_equal(rig->file_exec.n, 1);
}

static void a_segment_that_is_ready_survives_a_power_cut(void **state)
{
    struct log_rig *rig = *state;
    log_put(rig, HALF, MR_LOG_LAZY, NULL);
    log_put(rig, HALF / 2, MR_LOG_LAZY, NULL);
    log_flush(rig);
    log_crash(rig, SIMFS_DROP_ALL);
    assert_true(log_has_file(rig, "log-00000002"));
    log_open(rig);
    assert_int_equal(rig->found_n, 2);
}

static void a_sync_covers_the_segments_that_were_filled_since_the_last_one(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; i < 9; i++) {
        log_put(rig, 4000, MR_LOG_LAZY, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
        log_exec_run(&rig->file_exec);
    }
    assert_int_equal(mr_log_segments(rig->log), 3);
    uint64_t before = syncs(rig);
    log_flush(rig);
    assert_int_equal(syncs(rig), before + 3);
    log_crash(rig, SIMFS_DROP_ALL);
    log_open(rig);
    assert_int_equal(rig->found_n, 9);
}

static void unsynced_segments_do_not_pile_up_even_if_nobody_waits(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; i < 100 && rig->sync_exec.n == 0; i++) {
        log_put(rig, 4000, MR_LOG_LAZY, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
        log_exec_run(&rig->file_exec);
        mr_log_sync(rig->log);
    }
    assert_int_equal(rig->sync_exec.n, 1);
    assert_int_equal(mr_log_segments(rig->log), 5);
    log_run_chores(rig);
    assert_true(mr_log_durable(rig->log) > 0);
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Appends while a use has room, without running any chore. Returns why it stopped. */
static enum mr_err fill(struct log_rig *rig, enum mr_log_use use, size_t len)
{
    for (;;) {
        enum mr_err err = mr_log_room(rig->log, len, use);
        if (err != MR_OK)
            return err;
        assert_non_null(mr_log_begin(rig->log, len));
        memset(mr_log_begin(rig->log, len), 'x', len);
        mr_log_append(rig->log, MR_RECORD_MARK, MR_LOG_LAZY, NULL);
        assert_int_equal(mr_log_write(rig->log), MR_OK);
    }
}

static void new_work_waits_while_the_next_segment_is_made(void **state)
{
    struct log_rig *rig = *state;
    assert_int_equal(fill(rig, MR_LOG_NEW_WORK, 1000), MR_BUSY);
    assert_int_equal(mr_log_room(rig->log, 1000, MR_LOG_ONGOING), MR_OK);
    unsigned before = rig->changed;
    log_run_chores(rig);
    assert_true(rig->changed > before);
    assert_int_equal(mr_log_room(rig->log, 1000, MR_LOG_NEW_WORK), MR_OK);
}

static void ongoing_work_uses_the_reserve_of_a_quarter_and_then_waits_too(void **state)
{
    struct log_rig *rig = *state;
    assert_int_equal(fill(rig, MR_LOG_NEW_WORK, 200), MR_BUSY);
    struct mr_segment_info info;
    mr_log_segment_at(rig->log, 0, &info);
    uint64_t left = info.bytes - info.end;
    assert_in_range(left, LOG_SEGMENT / 4, LOG_SEGMENT / 4 + mr_record_size(200));
    assert_int_equal(fill(rig, MR_LOG_ONGOING, 200), MR_BUSY);
    mr_log_segment_at(rig->log, 0, &info);
    assert_true(info.bytes - info.end < mr_record_size(200));
}

static void a_full_disk_refuses_new_work_and_serves_ongoing_work_from_the_reserve(void **state)
{
    struct log_rig *rig = *state;
    simfs_set_capacity(rig->sim, simfs_used(rig->sim));
    assert_int_equal(fill(rig, MR_LOG_NEW_WORK, 200), MR_BUSY);
    log_run_chores(rig);
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_DISK_FULL);
    assert_int_equal(mr_log_full(rig->log), MR_DISK_FULL);
    assert_false(log_has_file(rig, "tmp-00000002"));
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_ONGOING), MR_OK);
    assert_int_equal(fill(rig, MR_LOG_ONGOING, 200), MR_DISK_FULL);
    assert_int_equal(mr_log_failure(rig->log), MR_OK); /* not broken, only full */
    mr_log_demand(rig->log);
    mr_log_sync(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_durable(rig->log), mr_log_last_seq(rig->log));
}

static void with_a_reserve_new_work_never_uses_the_last_segment_that_is_ready(void **state)
{
    struct log_rig *rig = *state;
    mr_log_keep_reserve(rig->log, true);
    simfs_set_capacity(rig->sim, simfs_used(rig->sim) + LOG_SEGMENT);
    enum mr_err err;
    while ((err = fill(rig, MR_LOG_NEW_WORK, 200)) == MR_BUSY)
        log_run_chores(rig);
    assert_int_equal(err, MR_DISK_FULL);
    assert_int_equal(mr_log_ready(rig->log), 1);
    assert_true(mr_log_left(rig->log) > LOG_SEGMENT);
    while ((err = fill(rig, MR_LOG_ONGOING, 200)) == MR_BUSY)
        log_run_chores(rig);
    assert_int_equal(err, MR_DISK_FULL);
    assert_true(mr_log_left(rig->log) < mr_record_size(200));
}

/* A big record may ask for the next segment long before the current one is half used. */
static void who_is_told_to_wait_for_a_segment_finds_it_being_made(void **state)
{
    enum { BIG = LOG_SEGMENT * 2 / 5 };
    struct log_rig *rig = *state;
    mr_log_keep_reserve(rig->log, true);
    mr_log_prepare(rig->log);
    log_run_chores(rig);
    while (mr_log_segments(rig->log) == 1)
        log_put(rig, 1000, MR_LOG_LAZY, NULL); /* nobody holds them: it may soon be free */
    while (mr_log_ready(rig->log) == 0)
        log_run_chores(rig);
    log_put(rig, BIG, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    assert_int_equal(mr_log_ready(rig->log), 1);
    assert_int_equal(rig->file_exec.n, 0);
    assert_int_equal(mr_log_room(rig->log, BIG, MR_LOG_NEW_WORK), MR_BUSY);
    assert_int_equal(rig->file_exec.n, 1);
    log_run_chores(rig);
    assert_int_equal(mr_log_room(rig->log, BIG, MR_LOG_NEW_WORK), MR_OK);
}

static void segments_that_were_ready_are_so_after_a_start(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 1, 1000);
    mr_log_keep_reserve(rig->log, true);
    mr_log_prepare(rig->log);
    log_run_chores(rig);
    mr_log_prepare(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_ready(rig->log), 2);
    mr_log_prepare(rig->log); /* no more than that */
    assert_int_equal(rig->file_exec.n, 0);
    uint64_t left = mr_log_left(rig->log);
    log_open(rig);
    assert_int_equal(mr_log_ready(rig->log), 2);
    assert_int_equal(mr_log_left(rig->log), left);
    log_put_durable(rig, 40, 1000);
    log_open(rig);
    assert_int_equal(rig->found_n, 41);
}

static void service_resumes_when_there_is_space_again(void **state)
{
    struct log_rig *rig = *state;
    simfs_set_capacity(rig->sim, simfs_used(rig->sim));
    assert_int_equal(fill(rig, MR_LOG_NEW_WORK, 200), MR_BUSY);
    log_run_chores(rig);
    mr_log_retry_space(rig->log); /* still full */
    log_run_chores(rig);
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_DISK_FULL);
    simfs_heal(rig->sim);
    mr_log_retry_space(rig->log);
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_DISK_FULL); /* not yet */
    log_run_chores(rig);
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_OK);
    assert_int_equal(mr_log_full(rig->log), MR_OK);
}

static void a_segment_that_could_not_be_made_for_another_reason_is_tried_again_too(void **state)
{
    static const enum simfs_op ops[] = {SIMFS_CREATE, SIMFS_WRITE, SIMFS_SYNC, SIMFS_RENAME,
                                        SIMFS_DIR_SYNC};
    struct log_rig *rig = *state;
    assert_int_equal(fill(rig, MR_LOG_NEW_WORK, 200), MR_BUSY);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        simfs_fail(rig->sim, ops[i], 0, 1, MR_IO);
        log_run_chores(rig);
        assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_UNAVAILABLE);
        assert_int_equal(mr_log_failure(rig->log), MR_OK);
        mr_log_retry_space(rig->log);
    }
    log_run_chores(rig);
    assert_int_equal(mr_log_room(rig->log, 200, MR_LOG_NEW_WORK), MR_OK);
}

static void a_record_over_half_a_segment_never_fits(void **state)
{
    struct log_rig *rig = *state;
    size_t most = (LOG_SEGMENT - MR_SEGMENT_HEADER) / 2 - MR_RECORD_HEADER;
    assert_int_equal(mr_log_room(rig->log, most, MR_LOG_NEW_WORK), MR_OK);
    assert_int_equal(mr_log_room(rig->log, most + 1, MR_LOG_NEW_WORK), MR_TOO_BIG);
    assert_int_equal(mr_log_room(rig->log, most + 1, MR_LOG_ONGOING), MR_TOO_BIG);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void a_failed_write_is_final(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 1, SMALL);
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    simfs_fail(rig->sim, SIMFS_WRITE, 0, 1, MR_IO);
    assert_int_equal(mr_log_write(rig->log), MR_IO);
    assert_int_equal(mr_log_write(rig->log), MR_IO);
    assert_int_equal(mr_log_failure(rig->log), MR_IO);
    assert_int_equal(mr_log_room(rig->log, SMALL, MR_LOG_ONGOING), MR_IO);
    mr_log_sync(rig->log);
    assert_int_equal(rig->sync_exec.n, 0);
    assert_int_equal(mr_log_sync_now(rig->log), MR_IO);
    assert_int_equal(mr_log_durable(rig->log), 1);
    log_open(rig);
    assert_int_equal(rig->found_n, 1);
}

static void a_write_refused_for_want_of_space_is_final_too(void **state)
{
    struct log_rig *rig = *state;
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    simfs_fail(rig->sim, SIMFS_WRITE, 0, 1, MR_DISK_FULL);
    assert_int_equal(mr_log_write(rig->log), MR_IO);
    assert_int_equal(mr_log_failure(rig->log), MR_IO);
}

static void a_failed_sync_is_final_and_never_tried_again(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 2, SMALL);
    log_put(rig, SMALL, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    simfs_fail(rig->sim, SIMFS_SYNC, 0, 1, MR_IO);
    unsigned changed = rig->changed;
    mr_log_sync(rig->log);
    log_run_chores(rig);
    assert_int_equal(rig->changed, changed + 1);
    assert_int_equal(mr_log_failure(rig->log), MR_IO);
    assert_int_equal(mr_log_durable(rig->log), 2);
    uint64_t before = syncs(rig);
    mr_log_sync(rig->log);
    log_run_chores(rig);
    assert_int_equal(mr_log_sync_now(rig->log), MR_IO);
    assert_int_equal(syncs(rig), before);
    assert_int_equal(mr_log_durable(rig->log), 2);
    assert_int_equal(mr_log_room(rig->log, SMALL, MR_LOG_ONGOING), MR_IO);
}

static void no_memory_for_a_record_is_said_and_the_log_goes_on(void **state)
{
    struct log_rig *rig = *state;
    assert_int_equal(mr_log_room(rig->log, HALF, MR_LOG_ONGOING), MR_OK);
    fail_alloc_after(0);
    const uint8_t *body = mr_log_begin(rig->log, HALF);
    long failed = fail_alloc_stop();
    assert_int_equal(body == NULL, failed);
    assert_int_equal(failed, FAILING_ALLOC);
    log_put_durable(rig, 2, HALF);
    assert_int_equal(mr_log_durable(rig->log), 2);
}

/* ---- reading back --------------------------------------------------------------------------- */

static void a_record_that_is_not_written_yet_can_be_read(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos pos;
    struct mr_record record;
    uint64_t seq = log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_OK);
    assert_int_equal(record.seq, seq);
    log_check_body(&record);
}

/* A copy of a task that is durable elsewhere may be among it. */
static void what_could_not_be_written_can_still_be_read(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos written, pos;
    struct mr_record record;
    log_put(rig, SMALL, MR_LOG_DURABLE, &written);
    log_flush(rig);
    uint64_t seq = log_put(rig, SMALL, MR_LOG_LAZY, &pos);
    simfs_fail(rig->sim, SIMFS_WRITE, 0, 1, MR_IO);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_IO);
    assert_int_equal(mr_log_failure(rig->log), MR_IO);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_OK);
    assert_int_equal(record.seq, seq);
    log_check_body(&record);
    assert_int_equal(mr_log_read(rig->log, written, MR_RECORD_HEADER + SMALL, &record), MR_OK);
    pos.offset += MR_RECORD_HEADER + SMALL;
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_IO);
}

static void every_read_is_checked(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos first, pos;
    struct mr_record record;
    log_put(rig, SMALL, MR_LOG_DURABLE, &first);
    log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    log_flush(rig);
    simfs_flip_bit(rig->sim, log_file(rig, "log-00000001"), 8 * (pos.offset + 50ULL));
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_DAMAGED);
    assert_int_equal(mr_log_read(rig->log, first, MR_RECORD_HEADER + SMALL, &record), MR_OK);
}

static void a_wrong_place_is_damage_not_a_crash(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos pos;
    struct mr_record record;
    size_t size = MR_RECORD_HEADER + SMALL;
    log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    log_flush(rig);
    struct mr_log_pos wrong[] = {{pos.segment + 1, pos.offset},
                                 {pos.segment, pos.offset + 8},
                                 {pos.segment, LOG_SEGMENT - 8},
                                 {pos.segment, UINT32_MAX - 8},
                                 {0, 0}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(mr_log_read(rig->log, wrong[i], size, &record), MR_DAMAGED);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER - 1, &record), MR_DAMAGED);
    assert_int_equal(mr_log_read(rig->log, pos, size, &record), MR_OK);
}

static void a_sector_that_cannot_be_read_harms_only_its_own_record(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_pos pos;
    struct mr_record record;
    log_put(rig, SMALL, MR_LOG_DURABLE, &pos);
    log_flush(rig);
    simfs_fail(rig->sim, SIMFS_READ, 0, 1, MR_IO); /* of the block; the record itself is readable */
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_OK);
    simfs_fail(rig->sim, SIMFS_READ, 0, 2, MR_IO);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_DAMAGED);
    assert_int_equal(mr_log_read(rig->log, pos, MR_RECORD_HEADER + SMALL, &record), MR_OK);
}

struct walked {
    uint64_t next, records;
};

static enum mr_err count_walked(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    struct walked *walked = arg;
    assert_int_equal(pos.segment, 1);
    assert_int_equal(record->seq, walked->next);
    walked->next++;
    walked->records++;
    log_check_body(record);
    return MR_OK;
}

static void a_walk_in_steps_visits_each_record_once(void **state)
{
    struct log_rig *rig = *state;
    log_fill_segments(rig, 2);
    struct mr_segment_info info;
    mr_log_segment_at(rig->log, 0, &info);
    static const size_t steps[] = {1, 3000, LOG_SEGMENT};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct walked walked = {.next = 1};
        uint32_t offset = 0;
        do
            assert_int_equal(mr_log_walk(rig->log, 1, &offset, steps[i], count_walked, &walked),
                             MR_OK);
        while (offset != 0);
        assert_int_equal(walked.records, info.last_seq);
    }
}

static enum mr_err note_walked(const struct mr_record *record, struct mr_log_pos pos, void *arg)
{
    (void)pos;
    *(uint64_t *)arg |= (uint64_t)1 << record->seq;
    return MR_OK;
}

static void a_walk_goes_on_behind_what_is_damaged_or_cannot_be_read(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 10, LOG_LEN);
    size_t i = log_file(rig, "log-00000001");
    uint64_t seen = 0;
    uint32_t offset = 0;
    simfs_flip_bit(rig->sim, i, 8 * (log_place(3) + 50));
    assert_int_equal(mr_log_walk(rig->log, 1, &offset, LOG_SEGMENT, note_walked, &seen), MR_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(seen, 0x7fe & ~(1 << 3));
    log_drop(rig); /* with what it has in memory */
    rig->recovery.read_only = true;
    simfs_unreadable(rig->sim, i, 1024, 512); /* records 5 to 8 */
    assert_int_equal(log_recover(rig), MR_OK);
    seen = 0;
    assert_int_equal(mr_log_walk(rig->log, 1, &offset, LOG_SEGMENT, note_walked, &seen), MR_OK);
    assert_int_equal(offset, 0);
    assert_int_equal(seen, 0x7fe & ~(1 << 3) & ~(0xf << 5));
}

static void figures_count_the_syncs(void **state)
{
    struct log_rig *rig = *state;
    struct mr_log_figures figures;
    mr_log_figures(rig->log, &figures);
    assert_int_equal(figures.syncs, 0);
    assert_int_equal(figures.sync_p99_us, 0);
    log_put_durable(rig, 10, SMALL);
    mr_log_figures(rig->log, &figures);
    assert_int_equal(figures.syncs, 10);
    assert_true(figures.sync_p50_us > 0 && figures.sync_p50_us <= figures.sync_p99_us);
}

/* ---- on real files -------------------------------------------------------------------------- */

static void count_file(const char *name, void *arg)
{
    (void)name;
    ++*(size_t *)arg;
}

static void the_log_works_on_real_files_too(void **state)
{
    struct log_rig *rig = *state;
    char old[MR_PATH_MAX], dir[] = "/tmp/millrace-log-XXXXXX";
    assert_non_null(mkdtemp(dir));
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(dir), 0);
    log_drop(rig);
    rig->fs = mr_fs_system();
    log_create(rig);
    log_open(rig);
    log_put_durable(rig, 60, 1000);
    log_open(rig);
    assert_int_equal(rig->found_n, 60);
    mr_log_trim(rig->log, 60);
    log_run_chores(rig);
    rig->recovery.after_seq = 60;
    log_put_durable(rig, 5, 1000);
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
    size_t files = 0;
    assert_int_equal(rig->fs->ops->dir_list(rig->fs, LOG_DIR, count_file, &files), MR_OK);
    assert_true(files <= 3);
    uint32_t numbers = 0;
    for (uint32_t n = 1; n < 20; n++) {
        char name[32], path[MR_PATH_MAX];
        mr_segment_name(name, n);
        assert_int_equal(mr_path_join(path, LOG_DIR, name), MR_OK);
        numbers += unlink(path) == 0;
    }
    assert_int_equal(numbers, files);
    assert_int_equal(rmdir(LOG_DIR), 0);
    assert_int_equal(chdir(old), 0);
    assert_int_equal(rmdir(dir), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, log_begin, log_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_log_has_one_segment_filled_with_zeroes),
        TEST(a_record_is_appended_then_written_then_durable),
        TEST(the_newest_record_can_be_extended_until_it_is_written_or_asked_for),
        TEST(one_sync_covers_many_records),
        TEST(a_lone_record_waits_for_one_sync_and_nothing_more_is_synced),
        TEST(what_comes_during_a_sync_shares_the_next_one),
        TEST(a_record_nobody_waits_for_starts_no_sync_until_it_is_asked_for),
        TEST(a_synced_record_survives_a_power_cut_and_an_unsynced_one_need_not),
        TEST(each_record_says_how_far_the_disk_was),
        TEST(records_go_on_from_segment_to_segment),
        TEST(the_next_segment_is_made_ready_well_before_it_is_needed),
        TEST(the_next_segment_is_made_at_once_when_none_will_be_free),
        TEST(a_segment_that_is_ready_survives_a_power_cut),
        TEST(a_sync_covers_the_segments_that_were_filled_since_the_last_one),
        TEST(unsynced_segments_do_not_pile_up_even_if_nobody_waits),
        TEST(new_work_waits_while_the_next_segment_is_made),
        TEST(ongoing_work_uses_the_reserve_of_a_quarter_and_then_waits_too),
        TEST(a_full_disk_refuses_new_work_and_serves_ongoing_work_from_the_reserve),
        TEST(with_a_reserve_new_work_never_uses_the_last_segment_that_is_ready),
        TEST(who_is_told_to_wait_for_a_segment_finds_it_being_made),
        TEST(segments_that_were_ready_are_so_after_a_start),
        TEST(service_resumes_when_there_is_space_again),
        TEST(a_segment_that_could_not_be_made_for_another_reason_is_tried_again_too),
        TEST(a_record_over_half_a_segment_never_fits),
        TEST(a_failed_write_is_final),
        TEST(a_write_refused_for_want_of_space_is_final_too),
        TEST(a_failed_sync_is_final_and_never_tried_again),
        TEST(no_memory_for_a_record_is_said_and_the_log_goes_on),
        TEST(a_record_that_is_not_written_yet_can_be_read),
        TEST(what_could_not_be_written_can_still_be_read),
        TEST(every_read_is_checked),
        TEST(a_wrong_place_is_damage_not_a_crash),
        TEST(a_sector_that_cannot_be_read_harms_only_its_own_record),
        TEST(a_walk_in_steps_visits_each_record_once),
        TEST(a_walk_goes_on_behind_what_is_damaged_or_cannot_be_read),
        TEST(figures_count_the_syncs),
        TEST(the_log_works_on_real_files_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
