/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can happen to a store of SQLite and to no other: a disk that is full (a small one of our own), a
 * sync that fails (under SQLite's interface to files), a damaged file, a clock that is set back.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/store.h"

enum { DISK_MIB = 8, FILLER_MIB = 4, BIG = 64 * 1024, TRIES = 1000 };

static char disk[64]; /* a file system of our own */

/* ---- requests ------------------------------------------------------------------------------- */

struct fixture {
    struct mr_store *store;
    char path[128], url[160];
    unsigned stopped; /* how often that was told */
    enum mr_err stopped_by;
};

static void told(enum mr_err err, const char *text, void *arg)
{
    struct fixture *f = arg;
    assert_true(text[0] != '\0');
    f->stopped_by = err;
    f->stopped++;
}

static enum mr_err open_with(struct fixture *f, struct mr_clock *clock)
{
    struct mr_detail detail = {.text = ""};
    struct mr_store_options options = {
        .url = f->url, .clock = clock, .away_ms = 1000, .stopped = told, .arg = f};
    return mr_store_open(&options, &f->store, &detail);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (f == NULL)
        return -1;
    (void)snprintf(f->path, sizeof f->path, "%s/store.db", disk);
    (void)snprintf(f->url, sizeof f->url, "sqlite:%s", f->path);
    *state = f;
    return open_with(f, NULL) == MR_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    static const char *const ends[] = {"", "-wal", "-shm"};
    mr_store_close(f->store);
    for (size_t i = 0; i < 3; i++) {
        char path[160];
        (void)snprintf(path, sizeof path, "%s%s", f->path, ends[i]);
        (void)unlink(path);
    }
    free(f);
    return 0;
}

/* A timer of its own number with so many bytes. */
static enum mr_err put(struct fixture *f, unsigned number, size_t bytes)
{
    static char definition[BIG];
    char name[16];
    int len = snprintf(name, sizeof name, "n%u", number);
    struct mr_store_apply item = {.app = MR_SLICE_LIT("a"),
                                  .name = mr_slice_make(name, (size_t)len),
                                  .uid = {{1, 2, 3, (uint8_t)(number >> 8), (uint8_t)number}},
                                  .version = 1,
                                  .state = MR_ROW_ACTIVE,
                                  .definition = mr_slice_make(definition, bytes)};
    struct mr_store_applied result;
    struct mr_store_timers_apply apply = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = &item, .n = 1, .results = &result};
    enum mr_err err = mr_store_call(f->store, &apply.req);
    mr_store_req_done(&apply.req);
    assert_int_equal(result.err, err);
    return err;
}

static enum mr_err list(struct fixture *f, size_t *ret_n)
{
    struct mr_store_timer_list list = {.req.op = MR_STORE_TIMER_LIST, .max = TRIES};
    enum mr_err err = mr_store_call(f->store, &list.req);
    *ret_n = list.n;
    mr_store_req_done(&list.req);
    return err;
}

/* ---- the disk ------------------------------------------------------------------------------- */

static void fill(size_t mib, const char *path)
{
    static char block[1024 * 1024];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t i = 0; i < mib; i++)
        assert_int_equal(write(fd, block, sizeof block), sizeof block);
    (void)close(fd);
}

static void a_full_disk_refuses_writes_lets_people_look_and_goes_on_with_space(void **state)
{
    struct fixture *f = *state;
    struct mr_detail line;
    char filler[96];
    size_t n = 0;
    (void)snprintf(filler, sizeof filler, "%s/filler", disk);
    fill(FILLER_MIB, filler);
    unsigned put_n = 0;
    enum mr_err err = MR_OK;
    while (put_n < TRIES && (err = put(f, put_n, BIG)) == MR_OK)
        put_n++;
    assert_int_equal(err, MR_DISK_FULL);
    assert_true(put_n > 0);
    assert_int_equal(mr_store_problem(f->store, &line), MR_DISK_FULL);
    assert_int_equal(list(f, &n), MR_OK);
    assert_int_equal(n, put_n);
    assert_int_equal(put(f, put_n, BIG), MR_DISK_FULL);
    assert_int_equal(unlink(filler), 0);
    assert_int_equal(put(f, put_n, BIG), MR_OK); /* without being opened again */
    assert_int_equal(mr_store_problem(f->store, &line), MR_OK);
    assert_int_equal(list(f, &n), MR_OK);
    assert_int_equal(n, put_n + 1);
    assert_int_equal(f->stopped, 0);
}

/* ---- files that fail ------------------------------------------------------------------------ */

enum { KINDS = 4 };

/* Files come in a few kinds, and ours are those with one function replaced. */
static struct kind {
    sqlite3_io_methods methods; /* the first, so that a file leads here */
    const sqlite3_io_methods *real;
} kinds[KINDS];
static sqlite3_vfs vfs, *real_vfs;
static _Atomic int syncs_to_fail;

static int failing_sync(sqlite3_file *file, int flags)
{
    if (syncs_to_fail > 0) {
        syncs_to_fail--;
        return SQLITE_IOERR_FSYNC;
    }
    return ((const struct kind *)file->pMethods)->real->xSync(file, flags);
}

static int open_file(sqlite3_vfs *ours, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)ours;
    int code = real_vfs->xOpen(real_vfs, name, file, flags, out);
    if (code != SQLITE_OK || file->pMethods == NULL)
        return code;
    size_t i = 0;
    while (kinds[i].real != NULL && kinds[i].real != file->pMethods)
        i++;
    mr_assert(i + 1 < KINDS);
    kinds[i].real = file->pMethods;
    kinds[i].methods = *file->pMethods;
    kinds[i].methods.xSync = failing_sync;
    file->pMethods = &kinds[i].methods;
    return code;
}

static void install_files(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs;
    vfs.zName = "failing";
    vfs.xOpen = open_file;
    if (sqlite3_vfs_register(&vfs, 1) != SQLITE_OK)
        abort();
}

static void a_sync_that_fails_stops_the_store_and_is_told_once(void **state)
{
    struct fixture *f = *state;
    struct mr_detail line;
    size_t n = 0;
    assert_int_equal(put(f, 1, 10), MR_OK);
    syncs_to_fail = 1;
    assert_int_equal(put(f, 2, 10), MR_IO);
    assert_int_equal(syncs_to_fail, 0);
    assert_int_equal(put(f, 3, 10), MR_IO); /* although that sync would not fail */
    assert_int_equal(list(f, &n), MR_IO);
    assert_int_equal(f->stopped, 1);
    assert_int_equal(f->stopped_by, MR_IO);
    assert_int_equal(mr_store_problem(f->store, &line), MR_IO);
    mr_store_close(f->store);
    f->store = NULL;
    assert_int_equal(open_with(f, NULL), MR_OK);
    assert_int_equal(list(f, &n), MR_OK);
    assert_true(n >= 1);
    assert_int_equal(put(f, 1, 10), MR_OK); /* what was answered is there */
}

static void a_damaged_file_is_refused_or_stops_the_store(void **state)
{
    struct fixture *f = *state;
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(put(f, i, 1000), MR_OK);
    mr_store_close(f->store);
    f->store = NULL;
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    static char noise[64 * 1024];
    memset(noise, 0xa5, sizeof noise);
    assert_int_equal(lseek(fd, 8192, SEEK_SET), 8192);
    assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
    (void)close(fd);
    size_t n = 0;
    enum mr_err err = open_with(f, NULL);
    if (err == MR_OK)
        err = list(f, &n);
    assert_int_equal(err, MR_DAMAGED);
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    struct fixture *f = *state;
    mr_store_close(f->store);
    f->store = NULL;
    (void)unlink(f->path);
    fill(1, f->path);
    int fd = open(f->path, O_RDWR | O_CLOEXEC);
    assert_int_equal(write(fd, "not a database", 14), 14);
    (void)close(fd);
    assert_int_equal(open_with(f, NULL), MR_NOT_A_STORE);
}

static void a_folder_that_is_not_there_is_told(void **state)
{
    struct fixture *f = *state;
    struct mr_store *store = NULL;
    struct mr_detail detail = {.text = ""};
    (void)f;
    struct mr_store_options options = {.url = "sqlite:/nowhere/at/all/store.db"};
    assert_int_equal(mr_store_open(&options, &store, &detail), MR_NOT_FOUND);
    assert_non_null(strstr(detail.text, "/nowhere/at/all/store.db"));
}

/* ---- the clock ------------------------------------------------------------------------------ */

struct set_clock {
    struct mr_clock clock;
    _Atomic int64_t wall_ms;
};

static mr_mono mono_of_system(struct mr_clock *clock)
{
    (void)clock;
    return mr_mono_now(mr_clock_system());
}

static mr_wall wall_as_set(struct mr_clock *clock)
{
    return (mr_wall){((struct set_clock *)clock)->wall_ms * MR_US_PER_MS};
}

static struct mr_store_lease_result acquire(struct fixture *f, const char *owner, int64_t ttl_ms)
{
    struct mr_store_lease_item item = {
        .name = MR_SLICE_LIT("app:a"), .owner = mr_slice_str(owner), .ttl_ms = ttl_ms};
    struct mr_store_lease_result result;
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
    assert_int_equal(mr_store_call(f->store, &lease.req), MR_OK);
    return result;
}

static void leases_go_by_the_clock_that_was_given_also_when_it_is_set_back(void **state)
{
    struct fixture *f = *state;
    struct set_clock clock = {{mono_of_system, wall_as_set}, 5000000};
    mr_store_close(f->store);
    f->store = NULL;
    assert_int_equal(open_with(f, &clock.clock), MR_OK);
    uint64_t token = acquire(f, "one", 10000).token;
    clock.wall_ms += 9999;
    assert_int_equal(acquire(f, "two", 10000).err, MR_IN_USE);
    clock.wall_ms += 1;
    assert_int_equal(acquire(f, "two", 10000).err, MR_OK);
    clock.wall_ms -= 3600 * 1000; /* the holder is dead: nobody waits an hour for it */
    struct mr_store_lease_result back = acquire(f, "three", 10000);
    assert_int_equal(back.err, MR_OK);
    assert_int_equal(back.token, token + 2);
    mr_store_close(f->store);
    f->store = NULL;
}

/* ---- running -------------------------------------------------------------------------------- */

static bool say(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool said = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    (void)close(fd);
    return said;
}

/* Who is not root becomes root in a namespace of users of its own. */
static bool leave_for_own_namespace(void)
{
    unsigned uid = geteuid(), gid = getegid();
    char users[32], groups[32];
    (void)snprintf(users, sizeof users, "0 %u 1", uid);
    (void)snprintf(groups, sizeof groups, "0 %u 1", gid);
    if (uid == 0)
        return unshare(CLONE_NEWNS) == 0;
    return unshare(CLONE_NEWNS | CLONE_NEWUSER) == 0 && say("/proc/self/setgroups", "deny") &&
           say("/proc/self/uid_map", users) && say("/proc/self/gid_map", groups);
}

/* Nobody else sees the disk, and it goes with us. */
static void make_disk(void)
{
    char options[32];
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(disk, sizeof disk, "%s/millrace-disk-XXXXXX", tmp != NULL ? tmp : "/tmp");
    (void)snprintf(options, sizeof options, "size=%dm", DISK_MIB);
    if (mkdtemp(disk) == NULL || !leave_for_own_namespace() ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", disk, "tmpfs", 0, options) != 0) {
        (void)fprintf(stderr, "%s: %s\n", disk, strerror(errno));
        exit(EXIT_FAILURE);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    make_disk();
    install_files();
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_refuses_writes_lets_people_look_and_goes_on_with_space),
        TEST(a_sync_that_fails_stops_the_store_and_is_told_once),
        TEST(a_damaged_file_is_refused_or_stops_the_store),
        TEST(a_file_that_is_no_database_is_refused),
        TEST(a_folder_that_is_not_there_is_told),
        TEST(leases_go_by_the_clock_that_was_given_also_when_it_is_set_back),
    };
    int failed = cmocka_run_group_tests_name("store on sqlite", tests, NULL, NULL);
    (void)umount2(disk, MNT_DETACH);
    (void)rmdir(disk);
    return failed;
}
