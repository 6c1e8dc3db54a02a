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

enum { META_BYTES = 80, META_COPY = 4096, TASKS = 60 };

struct fixture {
    struct simfs *fs;
    struct rig rig;
};

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fs = simfs_new(1);
    rig_init(&f->rig, f->fs, 1);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    rig_done(&f->rig);
    simfs_free(f->fs);
    free(f);
    return 0;
}

static void open_store(struct fixture *f)
{
    enum mr_err err = rig_open(&f->rig);
    if (err != MR_OK)
        print_error("%s: %s\n", mr_err_name(err), f->rig.detail.text);
    assert_int_equal(err, MR_OK);
}

static void close_store(struct fixture *f)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + MR_NS_PER_MS);
    mr_engine_finish(f->rig.engine);
    rig_kill(&f->rig);
}

static void enqueue(struct fixture *f, const char *id)
{
    static char payload[600];
    struct mr_task_options task = {.id = mr_slice_str(id),
                                   .payload = mr_slice_make(payload, sizeof payload)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static struct mr_stats stats(struct fixture *f)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

/* A closed store with so many tasks that it has several segments. */
static void make_store(struct fixture *f)
{
    open_store(f);
    for (int i = 0; i < TASKS; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%d", i);
        enqueue(f, id);
    }
    close_store(f);
}

static size_t file_index(const struct fixture *f, const char *name)
{
    char path[MR_PATH_MAX];
    snprintf(path, sizeof path, RIG_DIR "/%s", name);
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strcmp(simfs_file_path(f->fs, i), path) == 0)
            return i;
    return SIZE_MAX;
}

static void put_file(struct fixture *f, const char *name, const char *text)
{
    struct mr_fs *fs = simfs_fs(f->fs);
    char path[MR_PATH_MAX];
    struct mr_file *file;
    assert_int_equal(fs->ops->dir_make(fs, RIG_DIR), MR_OK);
    assert_int_equal(mr_path_join(path, RIG_DIR, name), MR_OK);
    assert_int_equal(mr_fs_open(fs, path, MR_OPEN_CREATE, &file), MR_OK);
    assert_int_equal(mr_file_pwrite(file, text, strlen(text), 0), MR_OK);
    mr_file_close(file);
}

static void assert_refused(struct fixture *f, enum mr_err err, const char *part)
{
    assert_int_equal(rig_open(&f->rig), err);
    if (strstr(f->rig.detail.text, part) == NULL)
        print_error("\"%s\" is not in \"%s\"\n", part, f->rig.detail.text);
    assert_non_null(strstr(f->rig.detail.text, part));
    assert_null(strchr(f->rig.detail.text, '\n'));
}

/* ---- a store -------------------------------------------------------------------------------- */

static void a_new_folder_becomes_a_store(void **state)
{
    static const char *const names[] = {"lock", "meta", "board", "log-00000001"};
    struct fixture *f = *state;
    open_store(f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_not_equal(file_index(f, names[i]), SIZE_MAX);
    assert_int_equal(stats(f).tasks, 0);
}

static void an_empty_folder_becomes_a_store_too(void **state)
{
    struct fixture *f = *state;
    struct mr_fs *fs = simfs_fs(f->fs);
    assert_int_equal(fs->ops->dir_make(fs, RIG_DIR), MR_OK);
    open_store(f);
}

static void a_store_that_was_closed_opens_as_it_was(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    for (int round = 0; round < 3; round++) {
        open_store(f);
        assert_int_equal(stats(f).tasks, TASKS);
        assert_int_equal(stats(f).records_damaged, 0);
        mr_engine_validate(f->rig.engine);
        close_store(f);
    }
}

static void the_segment_size_is_the_one_it_was_made_with(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    f->rig.segment_bytes = 64 * 1024;
    open_store(f);
    for (int i = TASKS; i < 2 * TASKS; i++) {
        char id[32];
        snprintf(id, sizeof id, "task-%d", i);
        enqueue(f, id);
    }
    for (size_t i = 0; i < simfs_file_count(f->fs); i++)
        if (strstr(simfs_file_path(f->fs, i), "/log-") != NULL)
            assert_int_equal(simfs_file_size(f->fs, i), 16 * 1024);
}

static void what_a_crash_left_unfinished_is_removed(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    put_file(f, "tmp-00000009", "half a segment");
    put_file(f, "tmp-snap", "half a snapshot");
    open_store(f);
    assert_int_equal(file_index(f, "tmp-00000009"), SIZE_MAX);
    assert_int_equal(file_index(f, "tmp-snap"), SIZE_MAX);
    assert_int_equal(stats(f).tasks, TASKS);
}

/* ---- the description ------------------------------------------------------------------------ */

static void either_copy_of_the_description_is_enough_and_mends_the_other(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    for (uint64_t copy = 0; copy <= META_COPY; copy += META_COPY) {
        for (uint64_t byte = 0; byte < META_BYTES; byte += 7) {
            simfs_flip_bit(f->fs, file_index(f, "meta"), 8 * (copy + byte) + byte % 8);
            open_store(f);
            assert_int_equal(stats(f).tasks, TASKS);
            assert_int_equal(stats(f).records_damaged, 1);
            close_store(f);
            const uint8_t *meta = simfs_file_data(f->fs, file_index(f, "meta"));
            assert_memory_equal(meta, meta + META_COPY, META_BYTES);
        }
    }
}

static void without_its_description_a_store_is_refused_and_repair_restores_it(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    for (int how = 0; how < 3; how++) {
        size_t i = file_index(f, "meta");
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
        assert_refused(f, MR_DAMAGED, "store/meta");
        f->rig.repair = true;
        open_store(f);
        assert_int_equal(stats(f).tasks, TASKS);
        close_store(f);
        assert_memory_equal(simfs_file_data(f->fs, file_index(f, "meta")), before, META_BYTES);
    }
    f->rig.repair = false;
    open_store(f);
    assert_int_equal(stats(f).tasks, TASKS);
}

static void a_description_of_a_newer_version_is_refused(void **state)
{
    struct fixture *f = *state;
    make_store(f);
    size_t i = file_index(f, "meta");
    uint8_t meta[META_BYTES];
    memcpy(meta, simfs_file_data(f->fs, i), META_BYTES);
    mr_store32(meta + 8, 2);
    mr_store32(meta + 76, mr_crc32c(0, meta, 76));
    simfs_overwrite(f->fs, i, 0, meta, META_BYTES);
    simfs_overwrite(f->fs, i, META_COPY, meta, META_BYTES);
    for (int repair = 0; repair < 2; repair++) {
        f->rig.repair = repair;
        assert_refused(f, MR_VERSION, "store/meta: format version 2 is newer");
    }
}

/* ---- folders of somebody else --------------------------------------------------------------- */

static void a_folder_of_somebody_else_is_refused_and_left_as_it_was(void **state)
{
    struct fixture *f = *state;
    put_file(f, "letters.txt", "Dear Sir");
    assert_refused(f, MR_NOT_A_STORE, "not part of a Millrace store");
    assert_int_equal(simfs_file_count(f->fs), 1);
}

static void a_file_called_meta_does_not_make_a_store(void **state)
{
    struct fixture *f = *state;
    put_file(f, "meta",
             "these are notes about something else, long enough to be looked at, "
             "and even longer than that");
    assert_refused(f, MR_NOT_A_STORE, "store/meta: not a Millrace store");
}

static void a_second_opener_is_refused_and_told_who_has_it(void **state)
{
    struct fixture *f = *state;
    struct rig second;
    open_store(f);
    enqueue(f, "a");
    rig_init(&second, f->fs, 2);
    assert_int_equal(rig_open(&second), MR_IN_USE);
    assert_non_null(strstr(second.detail.text, "in use by process"));
    enqueue(f, "b"); /* the first goes on */
    close_store(f);
    assert_int_equal(rig_open(&second), MR_OK);
    mr_engine_finish(second.engine);
    rig_kill(&second);
    rig_done(&second);
    open_store(f);
    assert_int_equal(stats(f).tasks, 2);
}

static void a_folder_name_that_cannot_be_is_refused(void **state)
{
    struct fixture *f = *state;
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
    struct fixture *f = *state;
    make_store(f);
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
                open_store(f);
            }
            assert_int_equal(stats(f).tasks, TASKS);
            close_store(f);
        }
    }
    assert_true(refused >= 15);
}

static void a_disk_without_room_makes_no_store_and_one_with_room_does(void **state)
{
    struct fixture *f = *state;
    simfs_set_capacity(f->fs, 10000);
    assert_int_equal(rig_open(&f->rig), MR_DISK_FULL);
    simfs_heal(f->fs);
    open_store(f);
    enqueue(f, "a");
    assert_int_equal(stats(f).tasks, 1);
}

static void a_store_can_be_made_again_after_a_crash_at_any_point_of_making_it(void **state)
{
    (void)state;
    bool whole = false;
    for (uint64_t n = 1; !whole; n++) {
        struct fixture *f;
        begin((void **)&f);
        struct mr_rand rand;
        mr_rand_seed(&rand, n);
        simfs_stop_at(f->fs, n);
        whole = rig_open(&f->rig) == MR_OK && !simfs_crashed(f->fs);
        if (!simfs_crashed(f->fs))
            simfs_stop(f->fs);
        rig_kill(&f->rig);
        simfs_crash(f->fs, &rand, (enum simfs_policy)(n % SIMFS_POLICY_COUNT));
        open_store(f);
        enqueue(f, "a");
        close_store(f);
        open_store(f);
        assert_int_equal(stats(f).tasks, 1);
        end((void **)&f);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_folder_becomes_a_store),
        TEST(an_empty_folder_becomes_a_store_too),
        TEST(a_store_that_was_closed_opens_as_it_was),
        TEST(the_segment_size_is_the_one_it_was_made_with),
        TEST(what_a_crash_left_unfinished_is_removed),
        TEST(either_copy_of_the_description_is_enough_and_mends_the_other),
        TEST(without_its_description_a_store_is_refused_and_repair_restores_it),
        TEST(a_description_of_a_newer_version_is_refused),
        TEST(a_folder_of_somebody_else_is_refused_and_left_as_it_was),
        TEST(a_file_called_meta_does_not_make_a_store),
        TEST(a_second_opener_is_refused_and_told_who_has_it),
        TEST(a_folder_name_that_cannot_be_is_refused),
        TEST(any_failure_while_opening_is_told_and_does_no_harm),
        TEST(a_disk_without_room_makes_no_store_and_one_with_room_does),
        cmocka_unit_test(a_store_can_be_made_again_after_a_crash_at_any_point_of_making_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
