/* SPDX-License-Identifier: Apache-2.0 */
/* Damage to the log is refused by name of its place, or set aside: whole, once, and for good. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc.h"
#include "log/log.h"
#include "sim/simfs.h"
#include "unit/log_rig.h"

/* ---- damage --------------------------------------------------------------------------------- */

static void damage_in_the_middle_is_refused_with_file_and_offset(void **state)
{
    struct log_rig *rig = *state;
    char where[64];
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    snprintf(where, sizeof where, "store/log-00000001 at offset %llu",
             (unsigned long long)log_place(9));
    log_assert_refused(rig, MR_DAMAGED, where);
    log_assert_says(rig->said, "record 9");
}

static void every_bit_of_a_durable_record_is_guarded(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LOG_LEN);
    log_drop(rig);
    for (uint64_t bit = 0; bit < 8 * LOG_SIZE; bit++) {
        size_t i = log_file(rig, "log-00000001");
        simfs_flip_bit(rig->sim, i, 8 * log_place(3) + bit);
        assert_int_equal(log_recover(rig), MR_DAMAGED);
        log_drop(rig);
        simfs_flip_bit(rig->sim, i, 8 * log_place(3) + bit);
    }
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
}

static void repair_sets_the_damaged_bytes_aside_and_serves_the_rest(void **state)
{
    struct log_rig *rig = *state;
    uint8_t damaged[LOG_SIZE];
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    memcpy(damaged, simfs_file_data(rig->sim, log_file(rig, "log-00000001")) + log_place(9),
           LOG_SIZE);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 1);
    assert_int_equal(rig->recovery.bytes_aside, LOG_SIZE);
    for (uint64_t seq = 1; seq <= 20; seq++)
        assert_int_equal(log_found_seq(rig, seq), seq != 9);
    char name[64];
    snprintf(name, sizeof name, "quarantine/log-00000001-%08llx", (unsigned long long)log_place(9));
    size_t i = log_file(rig, name);
    assert_int_not_equal(i, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, i), LOG_SIZE);
    assert_memory_equal(simfs_file_data(rig->sim, i), damaged, LOG_SIZE);
}

static void a_repair_is_remembered(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= 20; seq++)
        assert_int_equal(log_found_seq(rig, seq), seq != 9);
}

static void a_repair_of_many_places_and_of_neighbours_is_remembered(void **state)
{
    struct log_rig *rig = *state;
    static const uint64_t victims[] = {1, 2, 7, 9, 10, 11, 15};
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
        log_damage(rig, "log-00000001", log_place(victims[i]) + 8 * i);
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= 20; seq++) {
        bool victim = false;
        for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
            victim |= victims[i] == seq;
        assert_int_equal(log_found_seq(rig, seq), !victim);
    }
}

static void the_smallest_record_can_be_repaired_too(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LOG_LEN);
    log_put_mark(rig);
    log_put_durable(rig, 3, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(4) + 20);
    log_assert_refused(rig, MR_DAMAGED, "at offset 896");
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, 7));
}

/* Records 2 and 3 fill the second sector, record 4 the third and 24 bytes: swapped, 3 ends so close
 * before 5 that no skip record fits between them, and 4 is missing. */
static void put_swapped(struct log_rig *rig, size_t behind)
{
    enum { SECTOR = 512 };
    static const size_t sizes[] = {SECTOR, SECTOR / 2, SECTOR / 2, SECTOR + 24};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        log_put_durable(rig, 1, sizes[i] - MR_RECORD_HEADER);
    for (size_t i = 0; i < behind; i++)
        log_put_durable(rig, 1, 64 - MR_RECORD_HEADER);
    log_drop(rig);
    size_t file = log_file(rig, "log-00000001");
    uint8_t second[SECTOR], third[SECTOR];
    memcpy(second, simfs_file_data(rig->sim, file) + 2 * SECTOR, SECTOR);
    memcpy(third, simfs_file_data(rig->sim, file) + 3 * SECTOR, SECTOR);
    simfs_overwrite(rig->sim, file, 2 * SECTOR, third, SECTOR);
    simfs_overwrite(rig->sim, file, 3 * SECTOR, second, SECTOR);
}

static void swapped_sectors_that_leave_no_room_for_a_skip_can_be_repaired(void **state)
{
    struct log_rig *rig = *state;
    put_swapped(rig, 3);
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, 1));
    assert_true(log_found_seq(rig, 6));
    assert_true(log_found_seq(rig, 7));
}

/* Then 5, which goes as well, is the last one: the log goes on behind it, and not over what says so. */
static void what_is_set_aside_at_the_end_is_not_written_over(void **state)
{
    struct log_rig *rig = *state;
    put_swapped(rig, 1);
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, 1));
    assert_true(log_found_seq(rig, 6));
}

/* The last snapshot may end right before what was set aside at the end of a segment, where the skip record stands. */
static void a_segment_does_not_go_before_what_says_that_its_end_is_missing(void **state)
{
    struct log_rig *rig = *state;
    struct mr_segment_info first;
    while (mr_log_segments(rig->log) < 2)
        log_put_durable(rig, 1, LOG_LEN);
    log_put_durable(rig, 5, LOG_LEN);
    mr_log_segment_at(rig->log, 0, &first);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(first.last_seq) + 50);
    rig->recovery.after_seq = first.last_seq - 1;
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    mr_log_trim(rig->log, first.last_seq - 1);
    log_run_chores(rig);
    rig->recovery.mode = MR_FSCK_CHECK;
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 0);
    mr_log_trim(rig->log, first.last_seq);
    log_run_chores(rig);
    assert_false(mr_log_has_segment(rig->log, 1));
}

/* What a power cut left of writes nobody was told of has a lower term than what was written over its beginning,
 * though perhaps a lower number than the first of that which is whole. */
static void the_remains_of_a_torn_tail_are_not_where_the_log_goes_on(void **state)
{
    enum { SHORT = 16, BEFORE = 10, LOST = 4, AGAIN = 8 };
    static const uint8_t zeroes[LOG_SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, BEFORE, LOG_LEN);
    for (int i = 0; i < 10; i++)
        log_put(rig, LOG_LEN, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_drop(rig);
    size_t file = log_file(rig, "log-00000001");
    simfs_overwrite(rig->sim, file, log_place(BEFORE + 1), zeroes, sizeof zeroes);
    log_open(rig);
    assert_int_equal(mr_log_last_seq(rig->log), BEFORE);
    log_put_durable(rig, AGAIN, SHORT);
    log_drop(rig);
    for (uint64_t i = 0; i < LOST; i++)
        log_damage(rig, "log-00000001", log_place(BEFORE + 1) + i * (MR_RECORD_HEADER + SHORT));
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(mr_log_last_seq(rig->log), BEFORE + AGAIN);
    for (size_t i = 0; i < rig->found_n; i++)
        assert_true(rig->found[i].type == MR_RECORD_SKIP ||
                    rig->found[i].len == (rig->found[i].seq <= BEFORE ? LOG_LEN : SHORT));
    for (uint64_t seq = BEFORE + LOST + 1; seq <= BEFORE + AGAIN; seq++)
        assert_true(log_found_seq(rig, seq));
}

/* So do those in the end of a segment that a bigger record did not fit, though all before them is damaged. */
static void nor_are_those_in_the_unused_end_of_a_segment(void **state)
{
    enum { BEFORE = 115, BIG = 1500 };
    static const uint8_t zeroes[LOG_SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, BEFORE, LOG_LEN);
    for (int i = 0; i < 8; i++)
        log_put(rig, LOG_LEN, MR_LOG_LAZY, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_drop(rig);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), log_place(BEFORE + 1), zeroes,
                    sizeof zeroes);
    log_open(rig);
    log_put_durable(rig, 3, BIG);
    assert_true(mr_log_has_segment(rig->log, 2));
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(BEFORE));
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(mr_log_last_seq(rig->log), BEFORE + 3);
    assert_int_equal(rig->found_n, BEFORE - 1 + 3);
    for (size_t i = 0; i < rig->found_n; i++)
        assert_int_equal(rig->found[i].len, rig->found[i].seq < BEFORE ? LOG_LEN : BIG);
}

/* Damage before the end of the snapshot is no reason to give up what stands right behind it. */
static void damage_that_the_snapshot_covers_takes_nothing_behind_it(void **state)
{
    enum { ALL = 20 };
    struct log_rig *rig = *state;
    log_put_durable(rig, ALL, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(1));
    struct simfs *damaged = simfs_clone(rig->sim);
    static const uint64_t ends[] = {
        10, ALL - 1}; /* of the last record nobody knew that it was durable */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(damaged);
        rig->fs = simfs_fs(rig->sim);
        rig->recovery.after_seq = ends[i];
        rig->recovery.after_term = 1;
        log_assert_refused(rig, MR_DAMAGED, "log-00000001 at offset 512: damaged record 1; ");
        log_repair_holds(rig);
        for (uint64_t seq = ends[i] + 1; seq <= ALL; seq++)
            assert_true(log_found_seq(rig, seq));
        log_drop(rig);
    }
    simfs_free(damaged);
}

/* The very first record stands behind the second: nothing was before it. */
static void a_log_whose_first_two_sectors_are_swapped_can_be_repaired(void **state)
{
    enum { SECTOR = 512 };
    struct log_rig *rig = *state;
    uint8_t first[SECTOR];
    for (int i = 0; i < 4; i++)
        log_put_durable(rig, 1, SECTOR - MR_RECORD_HEADER);
    log_drop(rig);
    size_t file = log_file(rig, "log-00000001");
    memcpy(first, simfs_file_data(rig->sim, file) + SECTOR, SECTOR);
    simfs_overwrite(rig->sim, file, SECTOR, simfs_file_data(rig->sim, file) + 2 * SECTOR, SECTOR);
    simfs_overwrite(rig->sim, file, 2 * SECTOR, first, SECTOR);
    log_repair_holds(rig);
    for (uint64_t seq = 3; seq <= 4; seq++)
        assert_true(log_found_seq(rig, seq));
}

/* The skip record over the beginning of the second segment has no number of its own. */
static void what_stands_behind_a_repair_that_is_damaged_in_its_turn_is_kept(void **state)
{
    struct log_rig *rig = *state;
    struct mr_segment_info first;
    log_put_durable(rig, 1, LOG_LEN / 2); /* so that the first segment has room at its end */
    log_three_segments(rig);
    mr_log_segment_at(rig->log, 0, &first);
    uint64_t last = mr_log_last_seq(rig->log);
    for (int round = 0; round < 2; round++) {
        log_drop(rig);
        log_damage(rig, "log-00000002", MR_SEGMENT_HEADER + 4);
        log_repair_holds(rig);
        for (uint64_t seq = 1; seq <= last; seq++)
            assert_int_equal(log_found_seq(rig, seq), seq != first.last_seq + 1);
    }
}

/* The first segment is full to its last byte. The first record of the second fills its first sector
 * and 24 bytes: swapped with the next one, it is missing, and what follows it stands too close behind
 * the header. */
static void the_start_of_a_segment_without_room_for_a_skip_can_be_repaired(void **state)
{
    enum { SECTOR = 512 };
    struct log_rig *rig = *state;
    uint64_t n = 0;
    for (size_t left = LOG_SEGMENT - MR_SEGMENT_HEADER; left > 0; n++) {
        size_t size = left >= 2 * SECTOR ? SECTOR : left;
        log_put_durable(rig, 1, size - MR_RECORD_HEADER);
        left -= size;
    }
    log_put_durable(rig, 1, SECTOR + 24 - MR_RECORD_HEADER);
    log_put_durable(rig, 8, 64 - MR_RECORD_HEADER);
    log_drop(rig);
    size_t file = log_file(rig, "log-00000002");
    uint8_t first[SECTOR], second[SECTOR];
    memcpy(first, simfs_file_data(rig->sim, file) + MR_SEGMENT_HEADER, SECTOR);
    memcpy(second, simfs_file_data(rig->sim, file) + MR_SEGMENT_HEADER + SECTOR, SECTOR);
    simfs_overwrite(rig->sim, file, MR_SEGMENT_HEADER, second, SECTOR);
    simfs_overwrite(rig->sim, file, MR_SEGMENT_HEADER + SECTOR, first, SECTOR);
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, n));
    assert_false(log_found_seq(rig, n + 1));
    assert_true(log_found_seq(rig, n + 4));
}

static void a_repair_cut_off_at_any_point_can_be_repeated(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    struct simfs *damaged = simfs_clone(rig->sim);
    bool whole = false;
    for (uint64_t n = 1; !whole; n++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(damaged);
        rig->fs = simfs_fs(rig->sim);
        rig->recovery.mode = MR_FSCK_REPAIR;
        simfs_stop_at(rig->sim, n);
        whole = log_recover(rig) == MR_OK && !simfs_crashed(rig->sim);
        log_crash(rig, n % 2 ? SIMFS_DROP_ALL : SIMFS_TEAR);
        log_open(rig);
        assert_int_equal(rig->found_n - (rig->found_n == 20), 19);
        rig->recovery.mode = MR_FSCK_CHECK;
        log_open(rig);
        for (uint64_t seq = 1; seq <= 20; seq++)
            assert_int_equal(log_found_seq(rig, seq), seq != 9);
        log_drop(rig);
    }
    simfs_free(damaged);
}

static void the_last_record_is_guarded_once_a_mark_stands_behind_it(void **state)
{
    struct log_rig *rig = *state;
    char where[64];
    log_put_durable(rig, 5, LOG_LEN);
    log_put_mark(rig);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(5) + 50);
    snprintf(where, sizeof where, "log-00000001 at offset %llu", (unsigned long long)log_place(5));
    log_assert_refused(rig, MR_DAMAGED, where);
    log_repair_holds(rig);
}

/* ---- segments ------------------------------------------------------------------------------- */

static void a_segment_cut_short_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    static const uint64_t sizes[] = {0, 100, 512, 600, 5000, LOG_SEGMENT - 1};
    log_three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    struct simfs *whole = simfs_clone(rig->sim);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(whole);
        rig->fs = simfs_fs(rig->sim);
        simfs_cut(rig->sim, log_file(rig, "log-00000002"), sizes[i]);
        log_assert_refused(rig, MR_DAMAGED, "log-00000002");
        log_repair_holds(rig);
        assert_true(log_found_seq(rig, 1) && log_found_seq(rig, last));
        log_drop(rig);
    }
    simfs_free(whole);
}

static void the_segment_in_use_cut_short_is_refused_too(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    log_drop(rig);
    simfs_cut(rig->sim, log_file(rig, "log-00000003"), MR_SEGMENT_HEADER + 2 * LOG_SIZE);
    log_assert_refused(rig, MR_DAMAGED, "log-00000003 at offset");
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_true(rig->recovery.damaged > 0);
}

static void a_lost_segment_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    struct mr_segment_info second;
    mr_log_segment_at(rig->log, 1, &second);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000002"));
    log_assert_refused(rig, MR_DAMAGED, "; log-00000002, or a snapshot, is missing; ");
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, 1) && log_found_seq(rig, last));
    assert_false(log_found_seq(rig, second.last_seq));
}

static void a_lost_first_segment_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    struct mr_segment_info first;
    log_three_segments(rig);
    mr_log_segment_at(rig->log, 0, &first);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    log_assert_refused(rig, MR_DAMAGED,
                       "log-00000002 at offset 512: damaged record 1; log-00000001, or a snapshot, "
                       "is missing; ");
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= last; seq++)
        assert_int_equal(log_found_seq(rig, seq), seq > first.last_seq);
}

static void the_only_segment_with_records_lost_is_noticed_by_its_successor(void **state)
{
    struct log_rig *rig = *state;
    log_open(rig);
    while (!log_has_file(rig, "log-00000002"))
        log_put_durable(rig, 1, LOG_LEN);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    log_assert_refused(rig, MR_DAMAGED, "log-00000002 at offset 512");
    log_repair_holds(rig);
}

/* What one repair found missing is no excuse for anything else that is. */
static void a_repair_hides_no_damage_that_comes_after_it(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    struct simfs *whole = simfs_clone(rig->sim);
    for (int lost = 1; lost <= 2; lost++) {
        char name[32], where[64];
        simfs_free(rig->sim);
        rig->sim = simfs_clone(whole);
        rig->fs = simfs_fs(rig->sim);
        mr_segment_name(name, (uint32_t)lost);
        simfs_lose(rig->sim, log_file(rig, name));
        log_repair_holds(rig);
        log_drop(rig);
        mr_segment_name(name, (uint32_t)(3 - lost));
        log_damage(rig, name, log_place(9) + 50);
        snprintf(where, sizeof where, "%s at offset %llu", name, (unsigned long long)log_place(9));
        log_assert_refused(rig, MR_DAMAGED, where);
        log_repair_holds(rig);
        assert_true(log_found_seq(rig, last));
        size_t found = rig->found_n;
        rig->recovery.mode = MR_FSCK_REPAIR;
        log_open(rig);
        assert_int_equal(rig->recovery.damaged, 0);
        assert_true(rig->found_n >= found);
        rig->recovery.mode = MR_FSCK_CHECK;
        log_drop(rig);
    }
    simfs_free(whole);
}

static void the_segment_in_use_lost_as_a_file_is_noticed_by_its_successor(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    while (!log_has_file(rig, "log-00000004"))
        log_put_durable(rig, 1, LOG_LEN);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000003"));
    log_assert_refused(rig, MR_DAMAGED, "; log-00000003, or a snapshot, is missing; ");
    log_repair_holds(rig);
    assert_true(log_found_seq(rig, 1));
}

/* The one before it is full to its last byte. */
static void a_lost_segment_that_a_snapshot_half_covers_is_repaired(void **state)
{
    struct log_rig *rig = *state;
    struct mr_segment_info second;
    log_three_segments(rig);
    while (!log_has_file(rig, "log-00000004"))
        log_put_durable(rig, 1, LOG_LEN);
    mr_log_segment_at(rig->log, 1, &second);
    rig->recovery.after_seq = second.last_seq + 2;
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000003"));
    log_assert_refused(rig, MR_DAMAGED, "log-00000002");
    log_repair_holds(rig);
}

/* So whoever replays the log knows that something is missing behind its snapshot. */
static void a_gap_that_begins_before_the_end_of_a_snapshot_is_told(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    for (uint64_t seq = 9; seq <= 11; seq++)
        log_damage(rig, "log-00000001", log_place(seq) + 8);
    log_repair_holds(rig);
    log_drop(rig);
    rig->recovery.after_seq = 10;
    log_open(rig);
    assert_int_equal(rig->found[0].type, MR_RECORD_SKIP);
    assert_int_equal(rig->found[1].seq, 12);
}

/* A field of a segment's header, with the right checksum. */
static void set_header(struct log_rig *rig, const char *name, size_t at, uint32_t value)
{
    size_t i = log_file(rig, name);
    uint8_t header[MR_SEGMENT_HEADER];
    memcpy(header, simfs_file_data(rig->sim, i), sizeof header);
    mr_store32(header + at, value);
    mr_store32(header + 508, mr_crc32c(0, header, 508));
    simfs_overwrite(rig->sim, i, 0, header, sizeof header);
}

static void a_segment_of_a_newer_version_is_refused_even_by_repair(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    log_drop(rig);
    set_header(rig, "log-00000002", 8, MR_SEGMENT_VERSION + 1);
    log_assert_refused(rig, MR_VERSION, "log-00000002: format version 2 is newer");
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_assert_refused(rig, MR_VERSION, "log-00000002: format version 2 is newer");
}

static void a_segment_of_another_store_or_place_is_refused(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    log_drop(rig);
    set_header(rig, "log-00000002", 16, 0x12345678);
    log_assert_refused(rig, MR_DAMAGED, "belongs to another place or store");
    rig->recovery.mode = MR_FSCK_CHECK;
    set_header(rig, "log-00000002", 16, 0x726f7473);
    set_header(rig, "log-00000002", 12, 7);
    log_assert_refused(rig, MR_DAMAGED, "belongs to another place or store");
}

static void a_damaged_segment_header_is_refused_and_hides_nothing_from_repair(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    log_damage(rig, "log-00000002", 20);
    log_assert_refused(rig, MR_DAMAGED, "log-00000002 at offset 0");
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= last; seq++)
        assert_true(log_found_seq(rig, seq));
}

static void the_label_is_read_from_any_segment_that_is_whole(void **state)
{
    struct log_rig *rig = *state;
    uint8_t label[MR_SEGMENT_LABEL];
    log_three_segments(rig);
    log_drop(rig);
    log_damage(rig, "log-00000001", 70);
    assert_int_equal(mr_log_label(rig->fs, LOG_DIR, label), MR_OK);
    assert_memory_equal(label, "label\0", 6);
    simfs_lose(rig->sim, log_file(rig, "log-00000002"));
    simfs_lose(rig->sim, log_file(rig, "log-00000003"));
    while (log_has_file(rig, "log-00000004"))
        simfs_lose(rig->sim, log_file(rig, "log-00000004"));
    assert_int_equal(mr_log_label(rig->fs, LOG_DIR, label), MR_NOT_FOUND);
}

/* ---- sectors that cannot be read ------------------------------------------------------------ */

static size_t lines_said(const struct log_rig *rig)
{
    size_t n = 0;
    for (const char *at = rig->said; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    return n;
}

/* Looks only, as a check does; answers how many findings there were. */
static uint64_t check_only(struct log_rig *rig)
{
    rig->recovery.mode = MR_FSCK_CHECK;
    rig->recovery.read_only = true;
    assert_int_equal(log_recover(rig), MR_OK);
    rig->recovery.read_only = false;
    assert_int_equal(lines_said(rig), rig->recovery.damaged);
    return rig->recovery.damaged;
}

static void a_sector_that_cannot_be_read_is_named_and_stops_the_start(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 30, LOG_LEN);
    log_drop(rig);
    simfs_unreadable(rig->sim, log_file(rig, "log-00000001"), 1536, 512);
    log_assert_refused(rig, MR_DAMAGED,
                       "store/log-00000001 at offset 1536: 512 bytes cannot be read");
    log_assert_says(rig->detail.text, "millrace fsck --repair file:store");
}

static void a_first_record_that_cannot_be_read_is_named_as_such(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    assert_false(log_has_file(rig, "log-00000002"));
    simfs_unreadable(rig->sim, log_file(rig, "log-00000001"), 512, 512);
    log_assert_refused(rig, MR_DAMAGED, "log-00000001 at offset 512: 512 bytes cannot be read");
}

static void repair_keeps_what_can_be_read_around_a_lost_sector(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 30, LOG_LEN);
    log_drop(rig);
    size_t i = log_file(rig, "log-00000001");
    simfs_unreadable(rig->sim, i, 1536 + 64, 512); /* records 9 to 13, the last one in part */
    assert_int_equal(check_only(rig), 2);          /* the sectors, and the records in them */
    log_assert_says(rig->said, "log-00000001 at offset 1536: 1024 bytes cannot be read\n");
    log_assert_says(rig->said, "log-00000001 at offset 1536: damaged record 9\n");
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    log_assert_says(rig->said, "1024 bytes cannot be read and are zeroes now\n");
    for (uint64_t seq = 1; seq <= 30; seq++)
        assert_int_equal(log_found_seq(rig, seq), seq < 9 || seq > 16);
    size_t copy = log_file(rig, "quarantine/log-00000001-00000600");
    assert_int_not_equal(copy, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, copy), 8 * LOG_SIZE);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(check_only(rig), 0);
        log_open(rig);
        log_put_durable(rig, 1, LOG_LEN);
    }
}

static void a_lost_page_in_space_not_used_yet_stops_the_start_until_it_is_repaired(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LOG_LEN);
    log_drop(rig);
    simfs_unreadable(rig->sim, log_file(rig, "log-00000001"), 8192, 4096);
    log_assert_refused(rig, MR_DAMAGED, "log-00000001 at offset 8192: 4096 bytes cannot be read");
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= 5; seq++)
        assert_true(log_found_seq(rig, seq));
}

static void a_segment_header_that_cannot_be_read_hides_nothing_from_repair(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    simfs_unreadable(rig->sim, log_file(rig, "log-00000002"), 0, 512);
    log_assert_refused(rig, MR_DAMAGED,
                       "log-00000002 at offset 0: the segment header cannot be read");
    log_repair_holds(rig);
    for (uint64_t seq = 1; seq <= last; seq++)
        assert_true(log_found_seq(rig, seq));
}

static void a_sector_that_can_neither_be_read_nor_written_is_told(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 30, LOG_LEN);
    log_drop(rig);
    simfs_unreadable(rig->sim, log_file(rig, "log-00000001"), 1536, 512);
    simfs_fail(rig->sim, SIMFS_WRITE, 0, SIMFS_FOR_EVER, MR_IO);
    rig->recovery.mode = MR_FSCK_REPAIR;
    assert_int_equal(log_recover(rig), MR_IO);
    log_assert_says(rig->detail.text, "log-00000001 at offset 1536: 512 bytes cannot be read");
    log_assert_says(rig->detail.text, "copy the store to another disk");
}

/* ---- segments that the snapshot covers ------------------------------------------------------ */

/* Four segments, of which the second is gone as after a trim; a snapshot covers all but the last.
 */
static void segments_with_a_gap(struct log_rig *rig)
{
    while (mr_log_segments(rig->log) < 4)
        log_put_durable(rig, 1, LOG_LEN);
    log_put_durable(rig, 5, LOG_LEN);
    log_run_chores(rig);
    struct mr_segment_info third;
    mr_log_segment_at(rig->log, 2, &third);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000002"));
    rig->recovery.after_seq = third.last_seq;
    rig->recovery.after_term = 1;
}

static void the_unused_end_of_a_segment_before_a_gap_is_no_damage(void **state)
{
    struct log_rig *rig = *state;
    segments_with_a_gap(rig);
    /* What an earlier life of the file left there is none either. */
    static const char remains[] = "remains";
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), LOG_SEGMENT - 24, remains,
                    sizeof remains);
    assert_int_equal(check_only(rig), 0);
    log_open(rig);
    assert_int_equal(check_only(rig), 0);
}

static void damage_that_the_snapshot_covers_is_found_by_a_check_and_cleared_by_repair(void **state)
{
    struct log_rig *rig = *state;
    segments_with_a_gap(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    log_damage(rig, "log-00000003", MR_SEGMENT_HEADER + 5); /* its first record */
    simfs_unreadable(rig->sim, log_file(rig, "log-00000003"), 8192, 512);
    log_open(rig); /* nothing of it is needed for the start */
    log_drop(rig);
    assert_int_equal(check_only(rig), 4);
    log_assert_says(rig->said, "log-00000001 at offset 1536: damaged record 9\n");
    log_assert_says(rig->said, "log-00000003 at offset 512: damaged record");
    log_assert_says(rig->said, "log-00000003 at offset 8192: 512 bytes cannot be read\n");
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 4);
    assert_true(log_has_file(rig, "quarantine/log-00000001-00000600"));
    assert_int_equal(check_only(rig), 0);
}

static void a_covered_segment_whose_start_cannot_be_read_does_not_stop_the_start(void **state)
{
    struct log_rig *rig = *state;
    segments_with_a_gap(rig);
    simfs_unreadable(rig->sim, log_file(rig, "log-00000003"), 512, 512);
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 0);
    assert_int_equal(check_only(rig), 2); /* the sector, and the records in it */
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(check_only(rig), 0);
}

static void the_last_records_of_a_covered_segment_are_missed_when_the_next_one_tells(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    struct mr_segment_info second;
    mr_log_segment_at(rig->log, 1, &second);
    uint64_t last_at = log_place((LOG_SEGMENT - MR_SEGMENT_HEADER) / LOG_SIZE);
    log_drop(rig);
    rig->recovery.after_seq = second.last_seq;
    rig->recovery.after_term = 1;
    log_damage(rig, "log-00000001", last_at + 50);
    assert_int_equal(check_only(rig), 1);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(check_only(rig), 0);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void a_damaged_header_is_set_aside_before_it_is_written_again(void **state)
{
    struct log_rig *rig = *state;
    uint8_t damaged[MR_SEGMENT_HEADER];
    log_three_segments(rig);
    log_drop(rig);
    log_damage(rig, "log-00000002", 20);
    memcpy(damaged, simfs_file_data(rig->sim, log_file(rig, "log-00000002")), sizeof damaged);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    size_t copy = log_file(rig, "quarantine/log-00000002-00000000");
    assert_int_not_equal(copy, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, copy), sizeof damaged);
    assert_memory_equal(simfs_file_data(rig->sim, copy), damaged, sizeof damaged);
    assert_int_equal(rig->recovery.bytes_aside, sizeof damaged);
}

static void a_segment_cut_short_keeps_what_a_repair_wrote_into_its_header(void **state)
{
    struct log_rig *rig = *state;
    log_three_segments(rig);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    log_repair_holds(rig); /* the log now begins with the second segment, by its header */
    log_drop(rig);
    simfs_cut(rig->sim, log_file(rig, "log-00000002"), LOG_SEGMENT - 1);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 2); /* the cut, and the record that ended there */
    assert_int_equal(check_only(rig), 0);
}

static void assert_copy(const struct log_rig *rig, const uint8_t damaged[LOG_SIZE])
{
    bool found = false;
    for (size_t i = 0; i < simfs_file_count(rig->sim); i++) {
        if (strstr(simfs_file_path(rig->sim, i), "quarantine/log-") == NULL)
            continue;
        assert_int_equal(simfs_file_size(rig->sim, i), LOG_SIZE);
        found |= memcmp(simfs_file_data(rig->sim, i), damaged, LOG_SIZE) == 0;
    }
    assert_true(found);
}

/* A repair stopped anywhere, and repeated: the damaged bytes stand in the quarantine, and no copy
 * is a part of them. */
static void a_repair_that_was_killed_leaves_no_half_copy(void **state)
{
    enum { CRASHES = 8 * SIMFS_POLICY_COUNT };
    struct log_rig *rig = *state;
    uint8_t damaged[LOG_SIZE];
    log_put_durable(rig, 20, LOG_LEN);
    log_drop(rig);
    log_damage(rig, "log-00000001", log_place(9) + 50);
    memcpy(damaged, simfs_file_data(rig->sim, log_file(rig, "log-00000001")) + log_place(9),
           LOG_SIZE);
    struct simfs *before = simfs_clone(rig->sim);
    bool whole = false;
    rig->recovery.mode = MR_FSCK_REPAIR;
    for (uint64_t n = 0; !whole || n % CRASHES != 0; n++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(before);
        rig->fs = simfs_fs(rig->sim);
        simfs_stop_at(rig->sim, n / CRASHES + 1);
        whole = log_recover(rig) == MR_OK && !simfs_crashed(rig->sim);
        struct mr_rand rand;
        mr_rand_seed(&rand, n);
        simfs_stop(rig->sim);
        log_drop(rig);
        simfs_crash(rig->sim, &rand, (enum simfs_policy)(n % SIMFS_POLICY_COUNT));
        log_open(rig);
        assert_copy(rig, damaged);
        log_drop(rig);
    }
    simfs_free(before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, log_begin, log_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(damage_in_the_middle_is_refused_with_file_and_offset),
        TEST(every_bit_of_a_durable_record_is_guarded),
        TEST(repair_sets_the_damaged_bytes_aside_and_serves_the_rest),
        TEST(a_repair_is_remembered),
        TEST(a_repair_of_many_places_and_of_neighbours_is_remembered),
        TEST(the_smallest_record_can_be_repaired_too),
        TEST(swapped_sectors_that_leave_no_room_for_a_skip_can_be_repaired),
        TEST(what_is_set_aside_at_the_end_is_not_written_over),
        TEST(a_segment_does_not_go_before_what_says_that_its_end_is_missing),
        TEST(the_remains_of_a_torn_tail_are_not_where_the_log_goes_on),
        TEST(nor_are_those_in_the_unused_end_of_a_segment),
        TEST(damage_that_the_snapshot_covers_takes_nothing_behind_it),
        TEST(a_log_whose_first_two_sectors_are_swapped_can_be_repaired),
        TEST(what_stands_behind_a_repair_that_is_damaged_in_its_turn_is_kept),
        TEST(the_start_of_a_segment_without_room_for_a_skip_can_be_repaired),
        TEST(a_repair_cut_off_at_any_point_can_be_repeated),
        TEST(the_last_record_is_guarded_once_a_mark_stands_behind_it),
        TEST(a_segment_cut_short_is_refused_and_repaired),
        TEST(the_segment_in_use_cut_short_is_refused_too),
        TEST(a_lost_segment_is_refused_and_repaired),
        TEST(a_lost_first_segment_is_refused_and_repaired),
        TEST(the_only_segment_with_records_lost_is_noticed_by_its_successor),
        TEST(a_repair_hides_no_damage_that_comes_after_it),
        TEST(the_segment_in_use_lost_as_a_file_is_noticed_by_its_successor),
        TEST(a_lost_segment_that_a_snapshot_half_covers_is_repaired),
        TEST(a_gap_that_begins_before_the_end_of_a_snapshot_is_told),
        TEST(a_segment_of_a_newer_version_is_refused_even_by_repair),
        TEST(a_segment_of_another_store_or_place_is_refused),
        TEST(a_damaged_segment_header_is_refused_and_hides_nothing_from_repair),
        TEST(the_label_is_read_from_any_segment_that_is_whole),
        TEST(a_sector_that_cannot_be_read_is_named_and_stops_the_start),
        TEST(a_first_record_that_cannot_be_read_is_named_as_such),
        TEST(repair_keeps_what_can_be_read_around_a_lost_sector),
        TEST(a_lost_page_in_space_not_used_yet_stops_the_start_until_it_is_repaired),
        TEST(a_segment_header_that_cannot_be_read_hides_nothing_from_repair),
        TEST(a_sector_that_can_neither_be_read_nor_written_is_told),
        TEST(the_unused_end_of_a_segment_before_a_gap_is_no_damage),
        TEST(damage_that_the_snapshot_covers_is_found_by_a_check_and_cleared_by_repair),
        TEST(a_covered_segment_whose_start_cannot_be_read_does_not_stop_the_start),
        TEST(the_last_records_of_a_covered_segment_are_missed_when_the_next_one_tells),
        TEST(a_damaged_header_is_set_aside_before_it_is_written_again),
        TEST(a_segment_cut_short_keeps_what_a_repair_wrote_into_its_header),
        TEST(a_repair_that_was_killed_leaves_no_half_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
