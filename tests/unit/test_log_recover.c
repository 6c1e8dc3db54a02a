/* SPDX-License-Identifier: Apache-2.0 */
/* At a start: a torn tail is cut, damage is refused by name of its place or set aside, and nothing
 * that was cut ever comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc.h"
#include "log/log.h"
#include "sim/simfs.h"
#include "unit/log_rig.h"

enum { LEN = 96, SIZE = MR_RECORD_HEADER + LEN };

static int begin(void **state)
{
    struct log_rig *rig = malloc(sizeof *rig);
    assert_non_null(rig);
    log_rig_begin(rig);
    log_open(rig);
    *state = rig;
    return 0;
}

static int end(void **state)
{
    struct log_rig *rig = *state;
    log_rig_end(rig);
    free(rig);
    return 0;
}

/* Where the n-th record of this length stands in a log with nothing else. */
static uint64_t place(uint64_t seq)
{
    return MR_SEGMENT_HEADER + (seq - 1) * SIZE;
}

static void damage(struct log_rig *rig, const char *name, uint64_t offset)
{
    simfs_flip_bit(rig->sim, log_file(rig, name), 8 * offset + 3);
}

/* A mark: everything before it was durable. */
static void put_mark(struct log_rig *rig)
{
    assert_int_equal(mr_log_room(rig->log, 0, MR_LOG_ONGOING), MR_OK);
    assert_non_null(mr_log_begin(rig->log, 0));
    mr_log_append(rig->log, MR_RECORD_MARK, MR_LOG_DURABLE, NULL);
    log_flush(rig);
}

static bool found_seq(const struct log_rig *rig, uint64_t seq)
{
    for (size_t i = 0; i < rig->found_n; i++)
        if (rig->found[i].seq == seq && rig->found[i].type != MR_RECORD_SKIP)
            return true;
    return false;
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, text);
    assert_non_null(strstr(text, part));
}

/* All files of the disk as one number. */
static uint32_t digest(const struct log_rig *rig)
{
    uint32_t crc = 0;
    for (size_t i = 0; i < simfs_file_count(rig->sim); i++) {
        const char *path = simfs_file_path(rig->sim, i);
        crc = mr_crc32c(crc, path, strlen(path));
        crc = mr_crc32c(crc, simfs_file_data(rig->sim, i), simfs_file_size(rig->sim, i));
    }
    return crc;
}

/* Refused with this in the detail, and not a byte changed. */
static void assert_refused(struct log_rig *rig, enum mr_err err, const char *part)
{
    log_drop(rig);
    uint32_t before = digest(rig);
    assert_int_equal(log_recover(rig), err);
    assert_says(rig->detail.text, part);
    log_drop(rig);
    assert_int_equal(digest(rig), before);
}

/* Repairs; then a plain open finds the same, and the log can be written on. */
static void repair_holds(struct log_rig *rig)
{
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_true(rig->recovery.damaged > 0);
    size_t found = 0, again = 0;
    for (size_t i = 0; i < rig->found_n; i++)
        found += rig->found[i].type != MR_RECORD_SKIP;
    rig->recovery.mode = MR_FSCK_CHECK;
    for (int round = 0; round < 3; round++) {
        log_open(rig);
        assert_int_equal(rig->recovery.damaged, 0);
        again = 0;
        for (size_t i = 0; i < rig->found_n; i++)
            again += rig->found[i].type != MR_RECORD_SKIP;
        assert_int_equal(again, found);
        log_put_durable(rig, 2, LEN);
        found += 2;
    }
}

/* ---- nothing wrong -------------------------------------------------------------------------- */

static void everything_durable_is_found_in_order_over_many_segments(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 700, LEN);
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
    log_put_durable(rig, 300, LEN);
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
        log_put_durable(rig, 1, LEN);
        log_open(rig);
        assert_int_equal(mr_log_last_term(rig->log), term);
    }
}

static void what_is_found_is_synced_before_it_counts(void **state)
{
    struct log_rig *rig = *state;
    for (int i = 0; i < 5; i++)
        log_put(rig, LEN, MR_LOG_DURABLE, NULL);
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
    log_put_durable(rig, 5, LEN);
    rig->recovery.visit = refuse_third;
    assert_int_equal(log_recover(rig), MR_VERSION);
}

static void reading_only_changes_nothing(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(10) + 40);
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
    log_put_durable(rig, 300, LEN);
    for (uint64_t n = 0; n < 6; n++) {
        simfs_fail(rig->sim, SIMFS_READ, n, 1, MR_IO);
        enum mr_err err = log_recover(rig);
        assert_true(err == MR_IO || (err == MR_OK && rig->found_n == 300));
        assert_true(n > 0 || err == MR_IO);
        simfs_heal(rig->sim);
    }
}

static void a_sync_that_fails_at_the_start_is_told(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LEN);
    simfs_fail(rig->sim, SIMFS_SYNC, 0, 1, MR_IO);
    assert_int_equal(log_recover(rig), MR_IO);
    log_open(rig);
    assert_int_equal(rig->found_n, 3);
}

static void a_log_shorter_than_its_snapshot_is_refused(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 10, LEN);
    rig->recovery.after_seq = 11;
    assert_refused(rig, MR_DAMAGED, "damaged record 11");
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    assert_refused(rig, MR_DAMAGED, "the log is missing");
}

/* ---- torn tails ----------------------------------------------------------------------------- */

static void a_record_torn_at_any_byte_is_cut_and_reported(void **state)
{
    static const uint8_t zeroes[SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 6, LEN);
    log_drop(rig);
    struct simfs *whole = simfs_clone(rig->sim);
    for (size_t cut = 0; cut < SIZE; cut++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(whole);
        rig->fs = simfs_fs(rig->sim);
        simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), place(6) + cut, zeroes,
                        SIZE - cut);
        log_open(rig);
        assert_int_equal(rig->found_n, 5);
        assert_int_equal(rig->recovery.damaged, 0);
        if (cut >= MR_RECORD_HEADER)
            assert_int_equal(rig->recovery.torn_bytes, SIZE);
        log_put_durable(rig, 2, LEN);
        log_open(rig);
        assert_int_equal(rig->found_n, 7);
        assert_int_equal(rig->recovery.torn_bytes, 0);
        log_drop(rig);
    }
    simfs_free(whole);
}

static void a_hole_in_what_was_never_durable_is_a_torn_tail(void **state)
{
    static const uint8_t zeroes[SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LEN);
    for (int i = 0; i < 3; i++)
        log_put(rig, LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), place(6), zeroes, SIZE);
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
    assert_int_equal(rig->recovery.torn_bytes, SIZE);
    assert_int_equal(rig->recovery.damaged, 0);
}

static void the_remains_of_a_torn_tail_never_come_back(void **state)
{
    static const uint8_t zeroes[SIZE];
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LEN);
    for (int i = 0; i < 3; i++)
        log_put(rig, LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    simfs_overwrite(rig->sim, log_file(rig, "log-00000001"), place(6), zeroes, SIZE);
    log_open(rig);
    /* The new sixth record ends exactly where the old seventh stands, whole. */
    log_put_durable(rig, 1, LEN);
    for (int round = 0; round < 3; round++) {
        log_open(rig);
        assert_int_equal(rig->found_n, 6 + round);
        assert_int_equal(rig->recovery.damaged, 0);
        log_put_durable(rig, 1, LEN);
    }
}

static void the_remains_in_a_segment_ahead_never_come_back(void **state)
{
    struct log_rig *rig = *state;
    while (mr_log_segments(rig->log) < 2)
        log_put_durable(rig, 1, LEN);
    uint64_t last = mr_log_last_seq(rig->log);
    for (int i = 0; i < 10; i++)
        log_put(rig, LEN, MR_LOG_DURABLE, NULL);
    assert_int_equal(mr_log_write(rig->log), MR_OK);
    log_crash(rig, SIMFS_KEEP_ALL);
    static const uint8_t zeroes[SIZE];
    size_t i = log_file(rig, "log-00000002");
    simfs_overwrite(rig->sim, i, MR_SEGMENT_HEADER + SIZE, zeroes, SIZE);
    for (uint64_t round = 0; round < 10; round++) {
        log_open(rig);
        assert_int_equal(rig->found_n, last + round);
        assert_int_equal(rig->recovery.damaged, 0);
        log_put_durable(rig, 1, LEN);
    }
}

static void unfinished_files_are_no_part_of_the_log(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LEN);
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

/* ---- damage --------------------------------------------------------------------------------- */

static void damage_in_the_middle_is_refused_with_file_and_offset(void **state)
{
    struct log_rig *rig = *state;
    char where[64];
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(9) + 50);
    snprintf(where, sizeof where, "store/log-00000001 at offset %llu",
             (unsigned long long)place(9));
    assert_refused(rig, MR_DAMAGED, where);
    assert_says(rig->said, "record 9");
}

static void every_bit_of_a_durable_record_is_guarded(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 5, LEN);
    log_drop(rig);
    for (uint64_t bit = 0; bit < 8 * SIZE; bit++) {
        size_t i = log_file(rig, "log-00000001");
        simfs_flip_bit(rig->sim, i, 8 * place(3) + bit);
        assert_int_equal(log_recover(rig), MR_DAMAGED);
        log_drop(rig);
        simfs_flip_bit(rig->sim, i, 8 * place(3) + bit);
    }
    log_open(rig);
    assert_int_equal(rig->found_n, 5);
}

static void repair_sets_the_damaged_bytes_aside_and_serves_the_rest(void **state)
{
    struct log_rig *rig = *state;
    uint8_t damaged[SIZE];
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(9) + 50);
    memcpy(damaged, simfs_file_data(rig->sim, log_file(rig, "log-00000001")) + place(9), SIZE);
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_int_equal(rig->recovery.damaged, 1);
    assert_int_equal(rig->recovery.bytes_aside, SIZE);
    for (uint64_t seq = 1; seq <= 20; seq++)
        assert_int_equal(found_seq(rig, seq), seq != 9);
    char name[64];
    snprintf(name, sizeof name, "quarantine/log-00000001-%08llx", (unsigned long long)place(9));
    size_t i = log_file(rig, name);
    assert_int_not_equal(i, SIZE_MAX);
    assert_int_equal(simfs_file_size(rig->sim, i), SIZE);
    assert_memory_equal(simfs_file_data(rig->sim, i), damaged, SIZE);
}

static void a_repair_is_remembered(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(9) + 50);
    repair_holds(rig);
    for (uint64_t seq = 1; seq <= 20; seq++)
        assert_int_equal(found_seq(rig, seq), seq != 9);
}

static void a_repair_of_many_places_and_of_neighbours_is_remembered(void **state)
{
    struct log_rig *rig = *state;
    static const uint64_t victims[] = {1, 2, 7, 9, 10, 11, 15};
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
        damage(rig, "log-00000001", place(victims[i]) + 8 * i);
    repair_holds(rig);
    for (uint64_t seq = 1; seq <= 20; seq++) {
        bool victim = false;
        for (size_t i = 0; i < sizeof victims / sizeof *victims; i++)
            victim |= victims[i] == seq;
        assert_int_equal(found_seq(rig, seq), !victim);
    }
}

static void the_smallest_record_can_be_repaired_too(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 3, LEN);
    put_mark(rig);
    log_put_durable(rig, 3, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(4) + 20);
    assert_refused(rig, MR_DAMAGED, "at offset 896");
    repair_holds(rig);
    assert_true(found_seq(rig, 7));
}

static void a_repair_cut_off_at_any_point_can_be_repeated(void **state)
{
    struct log_rig *rig = *state;
    log_put_durable(rig, 20, LEN);
    log_drop(rig);
    damage(rig, "log-00000001", place(9) + 50);
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
            assert_int_equal(found_seq(rig, seq), seq != 9);
        log_drop(rig);
    }
    simfs_free(damaged);
}

static void the_last_record_is_guarded_once_a_mark_stands_behind_it(void **state)
{
    struct log_rig *rig = *state;
    char where[64];
    log_put_durable(rig, 5, LEN);
    put_mark(rig);
    log_drop(rig);
    damage(rig, "log-00000001", place(5) + 50);
    snprintf(where, sizeof where, "log-00000001 at offset %llu", (unsigned long long)place(5));
    assert_refused(rig, MR_DAMAGED, where);
    repair_holds(rig);
}

/* ---- segments ------------------------------------------------------------------------------- */

/* Three segments with something in each. */
static void three_segments(struct log_rig *rig)
{
    while (mr_log_segments(rig->log) < 3)
        log_put_durable(rig, 1, LEN);
    log_put_durable(rig, 5, LEN);
    log_run_jobs(rig);
}

static void a_segment_cut_short_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    static const uint64_t sizes[] = {0, 100, 512, 600, 5000, LOG_SEGMENT - 1};
    three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    struct simfs *whole = simfs_clone(rig->sim);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        simfs_free(rig->sim);
        rig->sim = simfs_clone(whole);
        rig->fs = simfs_fs(rig->sim);
        simfs_cut(rig->sim, log_file(rig, "log-00000002"), sizes[i]);
        assert_refused(rig, MR_DAMAGED, "log-00000002");
        repair_holds(rig);
        assert_true(found_seq(rig, 1) && found_seq(rig, last));
        log_drop(rig);
    }
    simfs_free(whole);
}

static void the_segment_in_use_cut_short_is_refused_too(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    log_drop(rig);
    simfs_cut(rig->sim, log_file(rig, "log-00000003"), MR_SEGMENT_HEADER + 2 * SIZE);
    assert_refused(rig, MR_DAMAGED, "log-00000003 at offset");
    rig->recovery.mode = MR_FSCK_REPAIR;
    log_open(rig);
    assert_true(rig->recovery.damaged > 0);
}

static void a_lost_segment_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    struct mr_segment_info second;
    mr_log_segment_at(rig->log, 1, &second);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000002"));
    assert_refused(rig, MR_DAMAGED, "damaged record");
    repair_holds(rig);
    assert_true(found_seq(rig, 1) && found_seq(rig, last));
    assert_false(found_seq(rig, second.last_seq));
}

static void a_lost_first_segment_is_refused_and_repaired(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000001"));
    assert_refused(rig, MR_DAMAGED, "log-00000002 at offset 512");
    repair_holds(rig);
    assert_false(found_seq(rig, 1));
    assert_true(found_seq(rig, last));
}

static void the_segment_in_use_lost_as_a_file_is_noticed_by_its_successor(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    while (!log_has_file(rig, "log-00000004"))
        log_put_durable(rig, 1, LEN);
    log_drop(rig);
    simfs_lose(rig->sim, log_file(rig, "log-00000003"));
    assert_refused(rig, MR_DAMAGED, "log-00000002");
    repair_holds(rig);
    assert_true(found_seq(rig, 1));
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
    three_segments(rig);
    log_drop(rig);
    set_header(rig, "log-00000002", 8, MR_SEGMENT_VERSION + 1);
    assert_refused(rig, MR_VERSION, "log-00000002: format version 2 is newer");
    rig->recovery.mode = MR_FSCK_REPAIR;
    assert_refused(rig, MR_VERSION, "log-00000002: format version 2 is newer");
}

static void a_segment_of_another_store_or_place_is_refused(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    log_drop(rig);
    set_header(rig, "log-00000002", 16, 0x12345678);
    assert_refused(rig, MR_DAMAGED, "belongs to another place or store");
    rig->recovery.mode = MR_FSCK_CHECK;
    set_header(rig, "log-00000002", 16, 0x726f7473);
    set_header(rig, "log-00000002", 12, 7);
    assert_refused(rig, MR_DAMAGED, "belongs to another place or store");
}

static void a_damaged_segment_header_is_refused_and_hides_nothing_from_repair(void **state)
{
    struct log_rig *rig = *state;
    three_segments(rig);
    uint64_t last = mr_log_last_seq(rig->log);
    log_drop(rig);
    damage(rig, "log-00000002", 20);
    assert_refused(rig, MR_DAMAGED, "log-00000002 at offset 0");
    repair_holds(rig);
    for (uint64_t seq = 1; seq <= last; seq++)
        assert_true(found_seq(rig, seq));
}

static void the_label_is_read_from_any_segment_that_is_whole(void **state)
{
    struct log_rig *rig = *state;
    uint8_t label[MR_SEGMENT_LABEL];
    three_segments(rig);
    log_drop(rig);
    damage(rig, "log-00000001", 70);
    assert_int_equal(mr_log_label(rig->fs, LOG_DIR, label), MR_OK);
    assert_memory_equal(label, "label\0", 6);
    simfs_lose(rig->sim, log_file(rig, "log-00000002"));
    simfs_lose(rig->sim, log_file(rig, "log-00000003"));
    while (log_has_file(rig, "log-00000004"))
        simfs_lose(rig->sim, log_file(rig, "log-00000004"));
    assert_int_equal(mr_log_label(rig->fs, LOG_DIR, label), MR_NOT_FOUND);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(everything_durable_is_found_in_order_over_many_segments),
        TEST(only_what_the_snapshot_does_not_cover_is_visited),
        TEST(each_opening_has_a_higher_term),
        TEST(what_is_found_is_synced_before_it_counts),
        TEST(an_error_of_the_visitor_ends_the_recovery),
        TEST(reading_only_changes_nothing),
        TEST(a_disk_that_cannot_read_is_not_taken_for_the_end),
        TEST(a_sync_that_fails_at_the_start_is_told),
        TEST(a_log_shorter_than_its_snapshot_is_refused),
        TEST(a_record_torn_at_any_byte_is_cut_and_reported),
        TEST(a_hole_in_what_was_never_durable_is_a_torn_tail),
        TEST(the_remains_of_a_torn_tail_never_come_back),
        TEST(the_remains_in_a_segment_ahead_never_come_back),
        TEST(unfinished_files_are_no_part_of_the_log),
        TEST(damage_in_the_middle_is_refused_with_file_and_offset),
        TEST(every_bit_of_a_durable_record_is_guarded),
        TEST(repair_sets_the_damaged_bytes_aside_and_serves_the_rest),
        TEST(a_repair_is_remembered),
        TEST(a_repair_of_many_places_and_of_neighbours_is_remembered),
        TEST(the_smallest_record_can_be_repaired_too),
        TEST(a_repair_cut_off_at_any_point_can_be_repeated),
        TEST(the_last_record_is_guarded_once_a_mark_stands_behind_it),
        TEST(a_segment_cut_short_is_refused_and_repaired),
        TEST(the_segment_in_use_cut_short_is_refused_too),
        TEST(a_lost_segment_is_refused_and_repaired),
        TEST(a_lost_first_segment_is_refused_and_repaired),
        TEST(the_segment_in_use_lost_as_a_file_is_noticed_by_its_successor),
        TEST(a_segment_of_a_newer_version_is_refused_even_by_repair),
        TEST(a_segment_of_another_store_or_place_is_refused),
        TEST(a_damaged_segment_header_is_refused_and_hides_nothing_from_repair),
        TEST(the_label_is_read_from_any_segment_that_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
