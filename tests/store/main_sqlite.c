/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the suite of stores on SQLite; with MR_DURABLE on a disk. */
#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "store/suite.h"

struct place {
    char dir[MR_PATH_MAX];
    char file[MR_PATH_MAX];
    sqlite3 *holder;
};

static void make(void *arg, char url[SUITE_URL_MAX])
{
    struct place *place = arg;
    /* In memory where that can be had: nothing here is about the death of the kernel. */
    bool in_memory = getenv("MR_DURABLE") == NULL && access("/dev/shm", W_OK) == 0;
    const char *tmp = in_memory ? "/dev/shm" : getenv("TMPDIR");
    (void)snprintf(place->dir, sizeof place->dir, "%s/millrace-store-XXXXXX",
                   tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(place->dir));
    assert_int_equal(mr_path_join(place->file, place->dir, "store.db"), MR_OK);
    (void)snprintf(url, SUITE_URL_MAX, "sqlite:%s", place->file);
}

static void remove_all(void *arg)
{
    struct place *place = arg;
    DIR *dir = opendir(place->dir);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[MR_PATH_MAX];
        if (entry->d_name[0] != '.' && mr_path_join(path, place->dir, entry->d_name) == MR_OK)
            (void)unlink(path);
    }
    if (dir != NULL)
        (void)closedir(dir);
    (void)rmdir(place->dir);
}

static sqlite3 *connect_to(struct place *place)
{
    sqlite3 *handle = NULL;
    assert_int_equal(sqlite3_open(place->file, &handle), SQLITE_OK);
    sqlite3_busy_timeout(handle, SUITE_WAIT_MS);
    return handle;
}

static void exec(sqlite3 *handle, const char *text)
{
    char *message = NULL;
    if (sqlite3_exec(handle, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
}

static void sql(void *arg, const char *text)
{
    sqlite3 *handle = connect_to(arg);
    exec(handle, text);
    sqlite3_close(handle);
}

static void check(void *arg, const char *text, uint64_t expected)
{
    sqlite3 *handle = connect_to(arg);
    sqlite3_stmt *statement = NULL;
    assert_int_equal(sqlite3_prepare_v2(handle, text, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    uint64_t answer = (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(handle);
    if (answer != expected)
        fail_msg("%s: %llu, not %llu", text, (unsigned long long)answer,
                 (unsigned long long)expected);
}

static double bare_insert(void *arg, uint64_t rows, struct mr_slice input, size_t batch)
{
    struct place *place = arg;
    char path[MR_PATH_MAX];
    sqlite3 *handle = NULL;
    sqlite3_stmt *insert = NULL;
    assert_int_equal(mr_path_join(path, place->dir, "bare.db"), MR_OK);
    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    exec(handle, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -32768;"
                 " PRAGMA journal_size_limit = 67108864; DROP TABLE IF EXISTS part;"
                 " CREATE TABLE part (segment INTEGER NOT NULL, job INTEGER NOT NULL,"
                 " idx INTEGER NOT NULL, input BLOB NOT NULL,"
                 " PRIMARY KEY (segment, job, idx)) WITHOUT ROWID");
    assert_int_equal(
        sqlite3_prepare_v2(handle, "INSERT INTO part VALUES (?1, ?2, ?3, ?4)", -1, &insert, NULL),
        SQLITE_OK);
    mr_mono since = suite_mono();
    for (uint64_t i = 0; i < rows;) {
        exec(handle, "BEGIN IMMEDIATE");
        for (size_t j = 0; j < batch && i < rows; j++, i++) {
            sqlite3_bind_int64(insert, 1, 1);
            sqlite3_bind_int64(insert, 2, 1);
            sqlite3_bind_int64(insert, 3, (sqlite3_int64)i);
            sqlite3_bind_blob(insert, 4, input.data, (int)input.len, SQLITE_STATIC);
            assert_int_equal(sqlite3_step(insert), SQLITE_DONE);
            sqlite3_reset(insert);
        }
        exec(handle, "COMMIT");
    }
    double seconds = (double)(suite_mono().ns - since.ns) / 1e9;
    sqlite3_finalize(insert);
    sqlite3_close(handle);
    return seconds;
}

static void make_other(void *arg)
{
    sql(arg, "CREATE TABLE other (x INTEGER)");
}

static void hold(void *arg)
{
    struct place *place = arg;
    place->holder = connect_to(place);
    exec(place->holder, "BEGIN IMMEDIATE");
}

static void let_go(void *arg)
{
    struct place *place = arg;
    exec(place->holder, "ROLLBACK");
    sqlite3_close(place->holder);
    place->holder = NULL;
}

int main(int argc, char **argv)
{
    static struct place place;
    static const struct suite_engine engine = {
        .name = "sqlite",
        .arg = &place,
        .make = make,
        .remove = remove_all,
        .sql = sql,
        .check = check,
        .bare_insert = bare_insert,
        .make_other = make_other,
        .hold = hold,
        .let_go = let_go,
    };
    return suite_main(&engine, argc, argv);
}
