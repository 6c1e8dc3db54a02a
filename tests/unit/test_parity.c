/* SPDX-License-Identifier: Apache-2.0 */
/* Any one damaged sector of a group is rebuilt; two are refused by name of their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "broker/embedded/parity.h"
#include "sim/simfs.h"

enum { GROUPS = 3, SALT = 4711, DATA = GROUPS * GROUP_DATA, SIZE = GROUPS * GROUP_BYTES };

struct fixture {
    struct simfs *sim;
    struct mr_file *file;
    uint8_t *data, *sectors, *found;
    struct parity_reader *reader;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->sim = simfs_new(1);
    f->data = malloc(DATA);
    f->sectors = malloc(SIZE);
    f->found = malloc(DATA);
    f->reader = calloc(1, sizeof *f->reader);
    assert_true(f->data && f->sectors && f->found && f->reader);
    struct mr_rand rand;
    mr_rand_seed(&rand, 5);
    mr_rand_bytes(&rand, f->data, DATA);
    parity_encode(f->data, GROUPS, SALT, f->sectors);
    struct mr_fs *fs = simfs_fs(f->sim);
    assert_int_equal(fs->ops->dir_make(fs, "d"), MR_OK);
    assert_int_equal(mr_fs_open(fs, "d/file", MR_OPEN_CREATE, &f->file), MR_OK);
    assert_int_equal(mr_file_pwrite(f->file, f->sectors, SIZE, 0), MR_OK);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    mr_file_close(f->file);
    simfs_free(f->sim);
    free(f->data);
    free(f->sectors);
    free(f->found);
    free(f->reader);
    free(f);
    return 0;
}

static enum mr_err read_all(struct fixture *f)
{
    memset(f->found, 0, DATA);
    assert_int_equal(parity_open(f->reader, f->file, SALT), MR_OK);
    return parity_read(f->reader, f->found, DATA);
}

static void write_at(struct fixture *f, uint64_t offset, const void *bytes, size_t len)
{
    assert_int_equal(mr_file_pwrite(f->file, bytes, len, offset), MR_OK);
}

static void undamaged_data_reads_back_in_pieces_of_any_size(void **state)
{
    struct fixture *f = *state;
    static const size_t pieces[] = {1, 13, SECTOR_DATA, 5000, GROUP_DATA, DATA};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        assert_int_equal(parity_open(f->reader, f->file, SALT), MR_OK);
        for (size_t at = 0; at < DATA;) {
            size_t len = DATA - at < pieces[i] ? DATA - at : pieces[i];
            assert_int_equal(parity_read(f->reader, f->found + at, len), MR_OK);
            at += len;
        }
        assert_memory_equal(f->found, f->data, DATA);
        assert_int_equal(f->reader->rebuilt, 0);
    }
}

static void reading_behind_the_end_is_damage(void **state)
{
    struct fixture *f = *state;
    uint8_t byte;
    assert_int_equal(read_all(f), MR_OK);
    assert_int_equal(parity_read(f->reader, &byte, 1), MR_DAMAGED);
}

static void an_empty_file_is_damage(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->file->fs->ops->truncate(f->file, 0), MR_OK);
    assert_int_equal(parity_open(f->reader, f->file, SALT), MR_DAMAGED);
}

static void any_one_sector_of_each_group_is_rebuilt(void **state)
{
    struct fixture *f = *state;
    static uint8_t junk[SECTOR];
    memset(junk, 0x5a, sizeof junk);
    for (size_t s = 0; s < GROUP_SECTORS; s++) {
        for (size_t g = 0; g < GROUPS; g++) /* another one in each group */
            write_at(f, g * GROUP_BYTES + (s + g) % GROUP_SECTORS * SECTOR, junk, SECTOR);
        assert_int_equal(read_all(f), MR_OK);
        assert_memory_equal(f->found, f->data, DATA);
        assert_int_equal(f->reader->rebuilt, GROUPS);
        write_at(f, 0, f->sectors, SIZE);
    }
}

static void a_single_flipped_bit_is_noticed_and_mended(void **state)
{
    struct fixture *f = *state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 6);
    for (int i = 0; i < 200; i++) {
        uint64_t at = mr_rand_below(&rand, SIZE);
        uint8_t byte = f->sectors[at] ^ (uint8_t)(1u << mr_rand_below(&rand, 8));
        write_at(f, at, &byte, 1);
        assert_int_equal(read_all(f), MR_OK);
        assert_memory_equal(f->found, f->data, DATA);
        assert_int_equal(f->reader->rebuilt, 1);
        assert_int_equal(f->reader->damage_at, at / SECTOR * SECTOR);
        write_at(f, at, f->sectors + at, 1);
    }
}

static void two_sectors_of_a_group_are_refused_with_their_place(void **state)
{
    struct fixture *f = *state;
    for (size_t a = 0; a < GROUP_SECTORS; a++) {
        size_t b = (a + 5) % GROUP_SECTORS, last = a > b ? a : b;
        uint64_t places[] = {GROUP_BYTES + a * SECTOR + 100, GROUP_BYTES + b * SECTOR + 4000};
        for (size_t i = 0; i < 2; i++) {
            uint8_t byte = f->sectors[places[i]] ^ 1;
            write_at(f, places[i], &byte, 1);
        }
        assert_int_equal(read_all(f), MR_DAMAGED);
        assert_int_equal(f->reader->damage_at, GROUP_BYTES + last * SECTOR);
        assert_memory_equal(f->found, f->data, GROUP_DATA);
        write_at(f, 0, f->sectors, SIZE);
    }
}

static void a_file_that_lost_its_last_sector_is_mended_and_two_are_too_much(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(f->file->fs->ops->truncate(f->file, SIZE - SECTOR / 2), MR_OK);
    assert_int_equal(read_all(f), MR_OK);
    assert_memory_equal(f->found, f->data, DATA);
    assert_int_equal(f->file->fs->ops->truncate(f->file, SIZE - 2 * SECTOR), MR_OK);
    assert_int_equal(read_all(f), MR_DAMAGED);
}

static void bytes_of_another_store_are_refused(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(parity_open(f->reader, f->file, SALT + 1), MR_OK);
    assert_int_equal(parity_read(f->reader, f->found, 1), MR_DAMAGED);
}

static void a_sector_that_cannot_be_read_is_rebuilt_and_two_are_refused(void **state)
{
    struct fixture *f = *state;
    f->reader->mend = PARITY_LOOK;
    simfs_fail(f->sim, SIMFS_READ, 0, 1, MR_IO); /* once: asked again, all of it is there */
    assert_int_equal(read_all(f), MR_OK);
    assert_int_equal(f->reader->rebuilt, 0);
    simfs_unreadable(f->sim, 0, GROUP_BYTES + 3 * SECTOR + 512, 512);
    for (int round = 0; round < 2; round++) { /* nothing is written */
        assert_int_equal(read_all(f), MR_OK);
        assert_memory_equal(f->found, f->data, DATA);
        assert_int_equal(f->reader->rebuilt, 1);
        assert_int_equal(f->reader->damage_at, GROUP_BYTES + 3 * SECTOR);
    }
    simfs_unreadable(f->sim, 0, GROUP_BYTES + 3 * SECTOR, SECTOR + 1);
    assert_int_equal(read_all(f), MR_DAMAGED);
}

static void what_was_rebuilt_is_written_back_where_that_is_wanted(void **state)
{
    struct fixture *f = *state;
    f->reader->mend = PARITY_WRITE_BACK;
    simfs_unreadable(f->sim, 0, GROUP_BYTES + 3 * SECTOR + 512, 512);
    assert_int_equal(read_all(f), MR_OK);
    assert_int_equal(f->reader->rebuilt, 1);
    assert_int_equal(read_all(f), MR_OK);
    assert_int_equal(f->reader->rebuilt, 0);
    assert_memory_equal(simfs_file_data(f->sim, 0), f->sectors, SIZE);
    simfs_flip_bit(f->sim, 0, 8 * 100);
    simfs_fail(f->sim, SIMFS_WRITE, 0, 1, MR_IO); /* what is read is right all the same */
    assert_int_equal(read_all(f), MR_OK);
    assert_memory_equal(f->found, f->data, DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(undamaged_data_reads_back_in_pieces_of_any_size, begin,
                                        end),
        cmocka_unit_test_setup_teardown(reading_behind_the_end_is_damage, begin, end),
        cmocka_unit_test_setup_teardown(an_empty_file_is_damage, begin, end),
        cmocka_unit_test_setup_teardown(any_one_sector_of_each_group_is_rebuilt, begin, end),
        cmocka_unit_test_setup_teardown(a_single_flipped_bit_is_noticed_and_mended, begin, end),
        cmocka_unit_test_setup_teardown(two_sectors_of_a_group_are_refused_with_their_place, begin,
                                        end),
        cmocka_unit_test_setup_teardown(
            a_file_that_lost_its_last_sector_is_mended_and_two_are_too_much, begin, end),
        cmocka_unit_test_setup_teardown(bytes_of_another_store_are_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_sector_that_cannot_be_read_is_rebuilt_and_two_are_refused,
                                        begin, end),
        cmocka_unit_test_setup_teardown(what_was_rebuilt_is_written_back_where_that_is_wanted,
                                        begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
