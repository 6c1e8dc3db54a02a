/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's files behind the file interface: bytes, folders, locks, shared memory, errors. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"

static char root[MR_PATH_MAX];
static struct mr_fs *fs;

static int setup(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.900s/millrace-fs-XXXXXX", tmp != NULL ? tmp : P_tmpdir);
    fs = mr_fs_system();
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    char command[MR_PATH_MAX + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* A path in the test's folder; valid until eight more were made. */
static const char *in_root(const char *name)
{
    static char paths[8][MR_PATH_MAX];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    assert_int_equal(mr_path_join(path, root, name), MR_OK);
    return path;
}

static struct mr_file *open_file(const char *name, enum mr_open_mode mode)
{
    struct mr_file *file;
    assert_int_equal(mr_fs_open(fs, in_root(name), mode, &file), MR_OK);
    return file;
}

static void make_file(const char *name)
{
    mr_file_close(open_file(name, MR_OPEN_CREATE));
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(in_root(name), &st) == 0;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void what_was_written_is_read_back(void **state)
{
    (void)state;
    enum { LEN = 5 * 1000 * 1000 };
    uint8_t *data = malloc(LEN), *back = malloc(LEN);
    assert_non_null(data);
    assert_non_null(back);
    for (size_t i = 0; i < LEN; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    struct mr_file *file = open_file("f", MR_OPEN_CREATE);
    uint64_t size;
    assert_int_equal(mr_file_size(file, &size), MR_OK);
    assert_int_equal(size, 0);
    assert_int_equal(mr_file_pwrite(file, data, LEN, 100), MR_OK);
    assert_int_equal(mr_file_pwrite(file, data, 0, 0), MR_OK);
    assert_int_equal(mr_file_sync(file), MR_OK);
    assert_int_equal(mr_file_size(file, &size), MR_OK);
    assert_int_equal(size, LEN + 100);
    mr_file_close(file);

    file = open_file("f", MR_OPEN_READ);
    assert_int_equal(mr_file_pread(file, back, LEN, 100), MR_OK);
    assert_memory_equal(data, back, LEN);
    assert_int_equal(mr_file_pread(file, back, 100, 0), MR_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(back[i], 0);
    assert_int_equal(mr_file_pwrite(file, data, 1, 0), MR_IO); /* opened for reading */
    mr_file_close(file);
    free(data);
    free(back);
}

static void reading_past_the_end_is_damage(void **state)
{
    (void)state;
    char byte[8];
    struct mr_file *file = open_file("f", MR_OPEN_CREATE);
    assert_int_equal(mr_file_pwrite(file, "1234", 4, 0), MR_OK);
    assert_int_equal(mr_file_pread(file, byte, 4, 0), MR_OK);
    assert_int_equal(mr_file_pread(file, byte, 5, 0), MR_DAMAGED);
    assert_int_equal(mr_file_pread(file, byte, 1, 4), MR_DAMAGED);
    assert_int_equal(mr_file_pread(file, byte, 1, UINT64_C(1) << 40), MR_DAMAGED);
    assert_int_equal(mr_file_pread(file, byte, 0, 100), MR_OK);
    mr_file_close(file);
}

static void truncate_cuts_and_extends_with_zeros(void **state)
{
    (void)state;
    char back[4];
    uint64_t size;
    struct mr_file *file = open_file("f", MR_OPEN_CREATE);
    assert_int_equal(mr_file_pwrite(file, "1234", 4, 0), MR_OK);
    assert_int_equal(fs->ops->truncate(file, 2), MR_OK);
    assert_int_equal(fs->ops->truncate(file, 4), MR_OK);
    assert_int_equal(mr_file_size(file, &size), MR_OK);
    assert_int_equal(size, 4);
    assert_int_equal(mr_file_pread(file, back, 4, 0), MR_OK);
    assert_memory_equal(back, "12\0\0", 4);
    mr_file_close(file);
}

static void growing_by_truncate_takes_the_space_at_once(void **state)
{
    (void)state;
    struct stat st;
    struct mr_file *file = open_file("f", MR_OPEN_CREATE);
    assert_int_equal(fs->ops->truncate(file, 1024 * 1024), MR_OK);
    assert_int_equal(stat(in_root("f"), &st), 0);
    assert_int_equal(st.st_size, 1024 * 1024);
    assert_true(st.st_blocks * 512 >= 1024 * 1024);
    mr_file_close(file);
}

static void a_short_write_is_continued_until_the_cause_shows(void **state)
{
    (void)state;
    struct rlimit before, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    struct mr_file *file = open_file("f", MR_OPEN_CREATE);
    static const char data[10000] = "x";
    uint64_t size;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum mr_err err = mr_file_pwrite(file, data, sizeof data, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(err, MR_DISK_FULL);
    assert_int_equal(mr_file_size(file, &size), MR_OK);
    assert_int_equal(size, 4096); /* the kernel wrote this much before it refused */
    mr_file_close(file);
}

static void a_full_disk_has_its_own_error(void **state)
{
    (void)state;
    struct mr_file *file;
    assert_int_equal(mr_fs_open(fs, "/dev/full", MR_OPEN_WRITE, &file), MR_OK);
    assert_int_equal(mr_file_pwrite(file, "x", 1, 0), MR_DISK_FULL);
    mr_file_close(file);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void open_modes_say_whether_the_file_must_exist(void **state)
{
    (void)state;
    struct mr_file *untouched = (struct mr_file *)&root, *file = untouched;
    assert_int_equal(mr_fs_open(fs, in_root("f"), MR_OPEN_READ, &file), MR_NOT_FOUND);
    assert_int_equal(mr_fs_open(fs, in_root("f"), MR_OPEN_WRITE, &file), MR_NOT_FOUND);
    assert_int_equal(mr_fs_open(fs, in_root("no/f"), MR_OPEN_CREATE, &file), MR_NOT_FOUND);
    assert_ptr_equal(file, untouched);
    make_file("f");
    assert_int_equal(mr_fs_open(fs, in_root("f"), MR_OPEN_CREATE, &file), MR_CONFLICT);
    assert_ptr_equal(file, untouched);
    mr_file_close(NULL);
}

static void what_is_not_allowed_is_denied(void **state)
{
    (void)state;
    struct mr_file *file;
    make_file("f");
    assert_int_equal(chmod(in_root("f"), 0), 0);
    assert_int_equal(chmod(root, 0555), 0);
    bool super = geteuid() == 0; /* for whom everything is allowed */
    if (super)
        assert_int_equal(seteuid(65534), 0);
    enum mr_err read_err = mr_fs_open(fs, in_root("f"), MR_OPEN_READ, &file);
    enum mr_err create_err = mr_fs_open(fs, in_root("g"), MR_OPEN_CREATE, &file);
    enum mr_err make_err = fs->ops->dir_make(fs, in_root("d"));
    enum mr_err remove_err = fs->ops->remove(fs, in_root("f"));
    if (super)
        assert_int_equal(seteuid(0), 0);
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(read_err, MR_DENIED);
    assert_int_equal(create_err, MR_DENIED);
    assert_int_equal(make_err, MR_DENIED);
    assert_int_equal(remove_err, MR_DENIED);
}

/* ---- folders -------------------------------------------------------------------------------- */

static void folders_are_made_with_their_parents(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(fs->ops->dir_make(fs, in_root("a/b//c/")), MR_OK);
    assert_int_equal(stat(in_root("a/b/c"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(fs->ops->dir_make(fs, in_root("a/b/c")), MR_OK);
    assert_int_equal(fs->ops->dir_make(fs, "/"), MR_OK);
    assert_int_equal(fs->ops->dir_make(fs, "."), MR_OK);
    assert_int_equal(fs->ops->dir_make(fs, ""), MR_NOT_FOUND);
    assert_int_equal(fs->ops->dir_make(fs, "/proc/millrace"),
                     MR_DENIED); /* it is there, and takes none */
    make_file("f");
    assert_int_equal(fs->ops->dir_make(fs, in_root("f")), MR_CONFLICT);
    assert_int_not_equal(fs->ops->dir_make(fs, in_root("f/g")), MR_OK);
    assert_int_equal(fs->ops->dir_sync(fs, in_root("a")), MR_OK);
    assert_int_equal(fs->ops->dir_sync(fs, in_root("no")), MR_NOT_FOUND);
}

static void a_folder_may_be_made_relative_to_the_current_one(void **state)
{
    (void)state;
    char before[MR_PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(root), 0);
    enum mr_err err = fs->ops->dir_make(fs, "x/y");
    assert_int_equal(chdir(before), 0);
    assert_int_equal(err, MR_OK);
    assert_true(exists("x/y"));
}

struct listing {
    char names[8][64];
    size_t n;
};

static void add_name(const char *name, void *arg)
{
    struct listing *listing = arg;
    assert_true(listing->n < 8);
    snprintf(listing->names[listing->n++], 64, "%s", name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void a_listing_has_plain_files_only(void **state)
{
    (void)state;
    struct listing listing = {.n = 0};
    make_file("one");
    make_file("two");
    make_file(".hidden");
    assert_int_equal(fs->ops->dir_make(fs, in_root("folder")), MR_OK);
    assert_int_equal(symlink("one", in_root("link")), 0);
    assert_int_equal(mkfifo(in_root("fifo"), 0600), 0);
    assert_int_equal(fs->ops->dir_list(fs, root, add_name, &listing), MR_OK);
    assert_int_equal(listing.n, 3);
    qsort(listing.names, listing.n, sizeof listing.names[0], by_name);
    assert_string_equal(listing.names[0], ".hidden");
    assert_string_equal(listing.names[1], "one");
    assert_string_equal(listing.names[2], "two");
    assert_int_equal(fs->ops->dir_list(fs, in_root("no"), add_name, &listing), MR_NOT_FOUND);
}

static void rename_replaces_and_remove_removes(void **state)
{
    (void)state;
    char back[3];
    struct mr_file *file = open_file("new", MR_OPEN_CREATE);
    assert_int_equal(mr_file_pwrite(file, "new", 3, 0), MR_OK);
    mr_file_close(file);
    make_file("old");
    assert_int_equal(fs->ops->rename(fs, in_root("new"), in_root("old")), MR_OK);
    assert_false(exists("new"));
    file = open_file("old", MR_OPEN_WRITE);
    assert_int_equal(mr_file_pread(file, back, 3, 0), MR_OK);
    assert_memory_equal(back, "new", 3);
    mr_file_close(file);
    assert_int_equal(fs->ops->remove(fs, in_root("old")), MR_OK);
    assert_false(exists("old"));
    assert_int_equal(fs->ops->remove(fs, in_root("old")), MR_NOT_FOUND);
    assert_int_equal(fs->ops->rename(fs, in_root("old"), in_root("x")), MR_NOT_FOUND);
}

static void free_space_is_known(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_int_equal(fs->ops->space(fs, root, &bytes), MR_OK);
    assert_true(bytes > 0);
    assert_int_equal(fs->ops->space(fs, in_root("no"), &bytes), MR_NOT_FOUND);
}

static void a_path_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char path[MR_PATH_MAX], name[MR_PATH_MAX];
    assert_int_equal(mr_path_join(path, "dir", "name"), MR_OK);
    assert_string_equal(path, "dir/name");
    memset(name, 'n', sizeof name);
    name[MR_PATH_MAX - 3] = '\0'; /* with "dd/" and the NUL one too many */
    assert_int_equal(mr_path_join(path, "dd", name), MR_TOO_BIG);
    name[MR_PATH_MAX - 4] = '\0';
    assert_int_equal(mr_path_join(path, "dd", name), MR_OK);
    assert_int_equal(strlen(path), MR_PATH_MAX - 1);
    char long_dir[2 * MR_PATH_MAX];
    memset(long_dir, '/', sizeof long_dir);
    long_dir[sizeof long_dir - 1] = '\0';
    assert_int_equal(fs->ops->dir_make(fs, long_dir), MR_TOO_BIG);
}

/* ---- locks ---------------------------------------------------------------------------------- */

static void a_second_opener_in_the_same_process_is_refused(void **state)
{
    (void)state;
    struct mr_file *first, *second = NULL;
    long pid = -1;
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &first, &pid), MR_OK);
    assert_int_equal(pid, -1);
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &second, &pid), MR_IN_USE);
    assert_null(second);
    assert_int_equal(pid, getpid());
    /* Closing another handle of the file, as the refused opening just did, drops nothing. */
    mr_file_close(open_file("lock", MR_OPEN_READ));
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &second, NULL), MR_IN_USE);
    mr_file_close(first);
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &second, &pid), MR_OK);
    mr_file_close(second);
}

static void a_damaged_lock_file_names_nobody(void **state)
{
    (void)state;
    static const char *const texts[] = {"",   "rubbish\n",   "-5\n", "999999999999999999999\n",
                                        "12", "2147483647\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mr_file *lock, *second;
        long pid = -1;
        assert_int_equal(fs->ops->lock(fs, in_root("lock"), &lock, &pid), MR_OK);
        struct mr_file *file = open_file("lock", MR_OPEN_WRITE);
        assert_int_equal(fs->ops->truncate(file, 0), MR_OK);
        assert_int_equal(mr_file_pwrite(file, texts[i], strlen(texts[i]), 0), MR_OK);
        mr_file_close(file);
        assert_int_equal(fs->ops->lock(fs, in_root("lock"), &second, &pid), MR_IN_USE);
        assert_int_equal(pid, 0);
        mr_file_close(lock);
    }
}

/* Starts a process that runs body and then waits to be killed; returns when body has run. */
static pid_t start_child(void (*body)(void))
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        body();
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    char byte;
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static void kill_child(pid_t child)
{
    int status;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void child_locks(void)
{
    struct mr_file *file;
    if (fs->ops->lock(fs, in_root("lock"), &file, NULL) != MR_OK)
        _exit(1);
}

static void a_second_process_is_told_who_holds_the_lock_until_it_dies(void **state)
{
    (void)state;
    pid_t child = start_child(child_locks);
    struct mr_file *file = NULL;
    long pid = 0;
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &file, &pid), MR_IN_USE);
    assert_int_equal(pid, child);
    kill_child(child);
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &file, &pid), MR_OK);
    mr_file_close(file);
}

static void a_program_started_by_the_holder_does_not_keep_the_lock(void **state)
{
    (void)state;
    struct mr_file *file;
    int ends[2];
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &file, NULL), MR_OK);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execlp("sleep", "sleep", "600", (char *)NULL);
        _exit(127);
    }
    char byte;
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1),
                     0); /* the end of file: exec has closed the other end */
    close(ends[0]);
    mr_file_close(file);
    assert_int_equal(fs->ops->lock(fs, in_root("lock"), &file, NULL), MR_OK);
    mr_file_close(file);
    kill_child(child);
}

/* ---- shared memory -------------------------------------------------------------------------- */

enum { MAP_LEN = 8192 };

static void child_maps(void)
{
    struct mr_file *file;
    void *memory;
    if (mr_fs_open(fs, in_root("map"), MR_OPEN_WRITE, &file) != MR_OK ||
        fs->ops->map(file, MAP_LEN, &memory) != MR_OK)
        _exit(1);
    memcpy((char *)memory + 5000, "still here", 10);
}

static void mapped_memory_survives_the_death_of_the_process(void **state)
{
    (void)state;
    char back[10];
    struct mr_file *file = open_file("map", MR_OPEN_CREATE);
    assert_int_equal(fs->ops->truncate(file, MAP_LEN), MR_OK);
    kill_child(start_child(child_maps));
    assert_int_equal(mr_file_pread(file, back, 10, 5000), MR_OK);
    assert_memory_equal(back, "still here", 10);

    void *memory;
    assert_int_equal(fs->ops->map(file, MAP_LEN, &memory), MR_OK);
    assert_memory_equal((char *)memory + 5000, "still here", 10);
    memcpy(memory, "both ways", 9);
    assert_int_equal(mr_file_pread(file, back, 9, 0), MR_OK);
    assert_memory_equal(back, "both ways", 9);
    mr_file_close(file);
}

static void a_map_beyond_the_end_is_refused(void **state)
{
    (void)state;
    void *memory;
    struct mr_file *file = open_file("map", MR_OPEN_CREATE);
    assert_int_equal(fs->ops->truncate(file, MAP_LEN - 1), MR_OK);
    assert_int_equal(fs->ops->map(file, MAP_LEN, &memory), MR_INVALID);
    assert_int_equal(fs->ops->map(file, 0, &memory), MR_INVALID);
    mr_file_close(file);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_read_back),
        TEST(reading_past_the_end_is_damage),
        TEST(truncate_cuts_and_extends_with_zeros),
        TEST(growing_by_truncate_takes_the_space_at_once),
        TEST(a_short_write_is_continued_until_the_cause_shows),
        TEST(a_full_disk_has_its_own_error),
        TEST(open_modes_say_whether_the_file_must_exist),
        TEST(what_is_not_allowed_is_denied),
        TEST(folders_are_made_with_their_parents),
        TEST(a_folder_may_be_made_relative_to_the_current_one),
        TEST(a_listing_has_plain_files_only),
        TEST(rename_replaces_and_remove_removes),
        TEST(free_space_is_known),
        TEST(a_path_that_does_not_fit_is_refused),
        TEST(a_second_opener_in_the_same_process_is_refused),
        TEST(a_damaged_lock_file_names_nobody),
        TEST(a_second_process_is_told_who_holds_the_lock_until_it_dies),
        TEST(a_program_started_by_the_holder_does_not_keep_the_lock),
        TEST(mapped_memory_survives_the_death_of_the_process),
        TEST(a_map_beyond_the_end_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
