/* SPDX-License-Identifier: Apache-2.0 */
/* The disk of the simulator forgets what a disk may forget, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/slice.h"
#include "sim/simfs.h"

static struct mr_fs *begin(struct simfs **ret_sim, uint64_t seed)
{
    *ret_sim = simfs_new(seed);
    struct mr_fs *fs = simfs_fs(*ret_sim);
    assert_int_equal(fs->ops->dir_make(fs, "d"), MR_OK);
    return fs;
}

static struct mr_file *create(struct mr_fs *fs, const char *path)
{
    struct mr_file *file = NULL;
    assert_int_equal(mr_fs_open(fs, path, MR_OPEN_CREATE, &file), MR_OK);
    return file;
}

static bool exists(struct mr_fs *fs, const char *path)
{
    struct mr_file *file;
    if (mr_fs_open(fs, path, MR_OPEN_READ, &file) != MR_OK)
        return false;
    mr_file_close(file);
    return true;
}

static void write_text(struct mr_file *file, const char *text, uint64_t offset)
{
    assert_int_equal(mr_file_pwrite(file, text, strlen(text), offset), MR_OK);
}

static void read_text(struct mr_fs *fs, const char *path, char *text, size_t len)
{
    struct mr_file *file = NULL;
    assert_int_equal(mr_fs_open(fs, path, MR_OPEN_READ, &file), MR_OK);
    assert_int_equal(mr_file_pread(file, text, len, 0), MR_OK);
    text[len] = 0;
    mr_file_close(file);
}

static void crash(struct simfs *sim, uint64_t seed, enum simfs_policy policy)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, seed);
    simfs_stop(sim);
    simfs_crash(sim, &rand, policy);
}

static void synced_bytes_survive_every_policy(void **state)
{
    (void)state;
    for (int policy = 0; policy < SIMFS_POLICY_COUNT; policy++) {
        for (uint64_t seed = 0; seed < 50; seed++) {
            struct simfs *sim;
            struct mr_fs *fs = begin(&sim, seed);
            struct mr_file *file = create(fs, "d/a");
            write_text(file, "hello", 0);
            assert_int_equal(mr_file_sync(file), MR_OK);
            assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
            write_text(file, "unsynced", 100);
            crash(sim, seed, (enum simfs_policy)policy);
            mr_file_close(file);
            char text[8];
            read_text(fs, "d/a", text, 5);
            assert_string_equal(text, "hello");
            simfs_free(sim);
        }
    }
}

static void unsynced_bytes_are_gone_when_all_is_dropped(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    write_text(file, "old!!", 0);
    assert_int_equal(mr_file_sync(file), MR_OK);
    assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
    write_text(file, "newer", 0);
    crash(sim, 1, SIMFS_DROP_ALL);
    mr_file_close(file);
    char text[8];
    read_text(fs, "d/a", text, 5);
    assert_string_equal(text, "old!!");
    simfs_free(sim);
}

static void a_process_kill_keeps_bytes_that_a_later_power_cut_may_take(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    write_text(file, "bytes", 0);
    crash(sim, 1, SIMFS_KEEP_ALL);
    mr_file_close(file);
    char text[8];
    read_text(fs, "d/a", text, 5);
    assert_string_equal(text, "bytes");
    crash(sim, 2, SIMFS_DROP_ALL);
    assert_false(exists(fs, "d/a"));
    simfs_free(sim);
}

static void a_synced_file_vanishes_without_a_folder_sync(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    write_text(file, "x", 0);
    assert_int_equal(mr_file_sync(file), MR_OK);
    crash(sim, 1, SIMFS_DROP_ALL);
    mr_file_close(file);
    assert_false(exists(fs, "d/a"));
    simfs_free(sim);
}

static void an_unsynced_rename_shows_one_of_the_two_names(void **state)
{
    (void)state;
    int old = 0, new = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct simfs *sim;
        struct mr_fs *fs = begin(&sim, seed);
        struct mr_file *file = create(fs, "d/a");
        assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
        assert_int_equal(fs->ops->rename(fs, "d/a", "d/b"), MR_OK);
        crash(sim, seed, SIMFS_KEEP_SOME);
        mr_file_close(file);
        assert_int_equal(exists(fs, "d/a") + exists(fs, "d/b"), 1);
        old += exists(fs, "d/a");
        new += exists(fs, "d/b");
        simfs_free(sim);
    }
    assert_true(old > 0 && new > 0);
}

static void an_unsynced_removal_may_come_back(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    mr_file_close(create(fs, "d/a"));
    assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
    assert_int_equal(fs->ops->remove(fs, "d/a"), MR_OK);
    assert_false(exists(fs, "d/a"));
    crash(sim, 1, SIMFS_DROP_ALL);
    assert_true(exists(fs, "d/a"));
    simfs_free(sim);
}

static void folder_changes_of_different_names_are_independent(void **state)
{
    (void)state;
    int second_alone = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct simfs *sim;
        struct mr_fs *fs = begin(&sim, seed);
        mr_file_close(create(fs, "d/a"));
        mr_file_close(create(fs, "d/b"));
        crash(sim, seed, SIMFS_KEEP_SOME);
        second_alone += !exists(fs, "d/a") && exists(fs, "d/b");
        simfs_free(sim);
    }
    assert_true(second_alone > 0);
}

/* Each sector is the old or the new one, or within the write anything when scrambled. */
static void tearing_respects_sectors(void **state)
{
    (void)state;
    enum { SIZE = 4 * SIMFS_SECTOR, FROM = 100, TO = SIZE - 100 };
    int torn = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct simfs *sim;
        struct mr_fs *fs = begin(&sim, seed);
        struct mr_file *file = create(fs, "d/a");
        uint8_t old[SIZE], new[SIZE], got[SIZE];
        memset(old, 'o', SIZE);
        memset(new, 'n', SIZE);
        assert_int_equal(mr_file_pwrite(file, old, SIZE, 0), MR_OK);
        assert_int_equal(mr_file_sync(file), MR_OK);
        assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
        assert_int_equal(mr_file_pwrite(file, new, TO - FROM, FROM), MR_OK);
        crash(sim, seed, seed % 2 ? SIMFS_TEAR : SIMFS_SCRAMBLE);
        mr_file_close(file);
        assert_int_equal(mr_fs_open(fs, "d/a", MR_OPEN_READ, &file), MR_OK);
        assert_int_equal(mr_file_pread(file, got, SIZE, 0), MR_OK);
        mr_file_close(file);
        for (size_t i = 0; i < SIZE; i++) {
            if (i < FROM || i >= TO)
                assert_int_equal(got[i], 'o');
            else if (seed % 2)
                assert_true(got[i] == 'o' || got[i] == 'n');
            bool inside = i % SIMFS_SECTOR && i > FROM && i < TO;
            if (inside && seed % 2)
                assert_int_equal(got[i], got[i - 1]);
        }
        torn += got[FROM] != got[TO - 1];
        simfs_free(sim);
    }
    assert_true(torn > 10);
}

static void a_failed_sync_is_told_once_and_its_bytes_stay_in_doubt(void **state)
{
    (void)state;
    int kept = 0, lost = 0;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct simfs *sim;
        struct mr_fs *fs = begin(&sim, seed);
        struct mr_file *file = create(fs, "d/a");
        write_text(file, "old", 0);
        assert_int_equal(mr_file_sync(file), MR_OK);
        assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
        simfs_fail(sim, SIMFS_SYNC, 0, 1, MR_IO);
        write_text(file, "new", 0);
        assert_int_equal(mr_file_sync(file), MR_IO);
        assert_int_equal(mr_file_sync(file), MR_OK);
        crash(sim, seed, SIMFS_KEEP_SOME);
        mr_file_close(file);
        char text[4];
        read_text(fs, "d/a", text, 3);
        kept += strcmp(text, "new") == 0;
        lost += strcmp(text, "old") == 0;
        simfs_free(sim);
    }
    assert_int_equal(kept + lost, 100);
    assert_true(kept > 10 && lost > 10);
}

static void what_was_synced_over_bytes_in_doubt_stays(void **state)
{
    (void)state;
    for (int policy = 0; policy < SIMFS_POLICY_COUNT; policy++) {
        for (uint64_t seed = 0; seed < 50; seed++) {
            struct simfs *sim;
            struct mr_fs *fs = begin(&sim, seed);
            struct mr_file *file = create(fs, "d/a");
            assert_int_equal(fs->ops->dir_sync(fs, "d"), MR_OK);
            simfs_fail(sim, SIMFS_SYNC, 0, 1, MR_IO);
            write_text(file, "in doubt", 0);
            assert_int_equal(mr_file_sync(file), MR_IO);
            write_text(file, "sure", 0);
            assert_int_equal(fs->ops->truncate(file, 4), MR_OK);
            assert_int_equal(mr_file_sync(file), MR_OK);
            crash(sim, seed, (enum simfs_policy)policy);
            mr_file_close(file);
            char text[8];
            read_text(fs, "d/a", text, 4);
            assert_string_equal(text, "sure");
            assert_int_equal(simfs_file_size(sim, 0), 4);
            simfs_free(sim);
        }
    }
}

static void a_full_disk_takes_overwrites_but_no_growth(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    simfs_set_capacity(sim, 8);
    write_text(file, "12345678", 0);
    assert_int_equal(mr_file_pwrite(file, "9", 1, 8), MR_DISK_FULL);
    write_text(file, "8765", 4);
    uint64_t free_bytes = 1;
    assert_int_equal(fs->ops->space(fs, "d", &free_bytes), MR_OK);
    assert_int_equal(free_bytes, 0);
    simfs_set_capacity(sim, 100);
    assert_int_equal(mr_file_pwrite(file, "9", 1, 8), MR_OK);
    mr_file_close(file);
    simfs_free(sim);
}

static void a_lock_is_held_until_closed_or_dead(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *lock = NULL, *second = NULL;
    long pid = 0;
    assert_int_equal(fs->ops->lock(fs, "d/lock", &lock, &pid), MR_OK);
    assert_int_equal(fs->ops->lock(fs, "d/lock", &second, &pid), MR_IN_USE);
    assert_true(pid > 0);
    mr_file_close(lock);
    assert_int_equal(fs->ops->lock(fs, "d/lock", &lock, &pid), MR_OK);
    crash(sim, 1, SIMFS_KEEP_ALL);
    mr_file_close(lock);
    assert_int_equal(fs->ops->lock(fs, "d/lock", &lock, &pid), MR_OK);
    mr_file_close(lock);
    simfs_free(sim);
}

static void mapped_memory_survives_the_process_as_it_was_at_its_death(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    write_text(file, "........", 0);
    void *memory = NULL;
    assert_int_equal(fs->ops->map(file, 8, &memory), MR_OK);
    memcpy(memory, "mapped", 6);
    char text[9] = {0};
    assert_int_equal(mr_file_pread(file, text, 8, 0), MR_OK);
    assert_string_equal(text, "mapped..");
    simfs_stop(sim);
    memcpy(memory, "zombie", 6);
    crash(sim, 1, SIMFS_KEEP_ALL);
    mr_file_close(file);
    read_text(fs, "d/a", text, 8);
    assert_string_equal(text, "mapped..");
    simfs_free(sim);
}

static void the_process_dies_before_the_chosen_point(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    assert_int_equal(simfs_points(sim), 1);
    simfs_stop_at(sim, 2);
    write_text(file, "one", 0);
    assert_int_equal(mr_file_pwrite(file, "two", 3, 0), MR_IO);
    assert_true(simfs_crashed(sim));
    assert_int_equal(mr_file_sync(file), MR_IO);
    assert_int_equal(mr_file_pread(file, (char[1]){0}, 1, 0), MR_IO);
    crash(sim, 1, SIMFS_KEEP_ALL);
    mr_file_close(file);
    char text[4];
    read_text(fs, "d/a", text, 3);
    assert_string_equal(text, "one");
    simfs_free(sim);
}

static void a_clone_lives_its_own_life(void **state)
{
    (void)state;
    struct simfs *sim;
    struct mr_fs *fs = begin(&sim, 1);
    struct mr_file *file = create(fs, "d/a");
    write_text(file, "one", 0);
    struct simfs *copy = simfs_clone(sim);
    write_text(file, "two", 0);
    assert_int_equal(mr_file_sync(file), MR_OK);
    char text[4];
    read_text(simfs_fs(copy), "d/a", text, 3);
    assert_string_equal(text, "one");
    crash(copy, 1, SIMFS_DROP_ALL);
    assert_false(exists(simfs_fs(copy), "d/a"));
    read_text(fs, "d/a", text, 3);
    assert_string_equal(text, "two");
    simfs_flip_bit(sim, 0, 0);
    read_text(fs, "d/a", text, 3);
    assert_int_equal(text[0], 't' ^ 1);
    mr_file_close(file);
    simfs_free(copy);
    simfs_free(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synced_bytes_survive_every_policy),
        cmocka_unit_test(unsynced_bytes_are_gone_when_all_is_dropped),
        cmocka_unit_test(a_process_kill_keeps_bytes_that_a_later_power_cut_may_take),
        cmocka_unit_test(a_synced_file_vanishes_without_a_folder_sync),
        cmocka_unit_test(an_unsynced_rename_shows_one_of_the_two_names),
        cmocka_unit_test(an_unsynced_removal_may_come_back),
        cmocka_unit_test(folder_changes_of_different_names_are_independent),
        cmocka_unit_test(tearing_respects_sectors),
        cmocka_unit_test(a_failed_sync_is_told_once_and_its_bytes_stay_in_doubt),
        cmocka_unit_test(what_was_synced_over_bytes_in_doubt_stays),
        cmocka_unit_test(a_full_disk_takes_overwrites_but_no_growth),
        cmocka_unit_test(a_lock_is_held_until_closed_or_dead),
        cmocka_unit_test(mapped_memory_survives_the_process_as_it_was_at_its_death),
        cmocka_unit_test(the_process_dies_before_the_chosen_point),
        cmocka_unit_test(a_clone_lives_its_own_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
