/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a store that is in use: SQLite makes it, as of one moment. */
#include <sqlite3.h>
#include <string.h>

#include "base/fs.h"
#include "store/store.h"

enum { BUSY_MS = 10 * 1000 };

static enum mr_err vacuum_into(sqlite3 *handle, const char *path)
{
    sqlite3_stmt *stmt = NULL;
    int code = sqlite3_prepare_v2(handle, "VACUUM INTO ?", -1, &stmt, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_bind_text(stmt, 1, path, -1, SQLITE_STATIC);
    if (code == SQLITE_OK)
        code = sqlite3_step(stmt);
    (void)sqlite3_finalize(stmt);
    return code == SQLITE_DONE            ? MR_OK
           : (code & 0xff) == SQLITE_FULL ? MR_DISK_FULL
           : (code & 0xff) == SQLITE_BUSY ? MR_BUSY
                                          : MR_IO;
}

static enum mr_err copy(const char *from, const char *path, struct mr_detail *detail)
{
    sqlite3 *handle = NULL;
    int code = sqlite3_open_v2(from, &handle, SQLITE_OPEN_READWRITE, NULL);
    enum mr_err err = code == SQLITE_CANTOPEN ? MR_NOT_FOUND : MR_IO;
    if (code == SQLITE_OK) {
        (void)sqlite3_busy_timeout(handle, BUSY_MS);
        err = vacuum_into(handle, path);
    }
    if (err != MR_OK)
        mr_detail_set(detail, "%s: %s", from,
                      handle != NULL ? sqlite3_errmsg(handle) : mr_err_text(MR_NOMEM));
    (void)sqlite3_close(handle);
    return err;
}

enum mr_err mr_store_copy(const char *url, const char *dir, struct mr_detail *detail)
{
    static const char scheme[] = "sqlite:";
    struct mr_fs *fs = mr_fs_system();
    struct mr_file *file = NULL;
    char path[MR_PATH_MAX];
    if (strncmp(url, scheme, strlen(scheme)) != 0)
        return MR_UNSUPPORTED;
    enum mr_err err = mr_path_join(path, dir, MR_STORE_FILE);
    if (err == MR_OK) /* with its rights; SQLite takes a file that is empty */
        err = mr_fs_open(fs, path, MR_OPEN_CREATE, &file);
    if (err ==
        MR_OK) /* the store itself is left to SQLite: whoever closes it would give up its locks */
        err = copy(url + strlen(scheme), path, detail);
    if (err == MR_OK)
        err = mr_file_sync(file);
    bool made = file != NULL;
    mr_file_close(file);
    if (err == MR_OK)
        return fs->ops->dir_sync(fs, dir);
    if (made)
        (void)!fs->ops->remove(fs, path);
    return err;
}
