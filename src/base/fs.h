/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file system as an interface, so that the same code runs on the kernel's files and on the
 * lossy disks of the tests. Paths are plain strings. All calls block; errors are translated errno
 * values. Thread: any, but one file's position-less reads and writes are ordered by their caller.
 */
#ifndef MR_BASE_FS_H
#define MR_BASE_FS_H

#include "base/id.h"

struct mr_fs;
struct mr_file;

enum { MR_PATH_MAX = 1024 };

enum mr_open_mode {
    MR_OPEN_READ,          /* must exist */
    MR_OPEN_WRITE,         /* must exist; reads and writes */
    MR_OPEN_CREATE,        /* must not exist (MR_CONFLICT); reads and writes */
    MR_OPEN_CREATE_SECRET, /* the same, for the eyes of its owner alone */
};

/* Called per entry of a folder, plain files only; name is valid during the call. */
typedef void mr_fs_entry(const char *name, void *arg);

struct mr_fs_ops {
    /* Creates the folder and its missing parents; fine when it exists. */
    enum mr_err (*dir_make)(struct mr_fs *fs, const char *path);
    enum mr_err (*dir_list)(struct mr_fs *fs, const char *path, mr_fs_entry *entry, void *arg);
    /* Makes creations, renames and removals in the folder durable. */
    enum mr_err (*dir_sync)(struct mr_fs *fs, const char *path);
    enum mr_err (*rename)(struct mr_fs *fs, const char *from, const char *to);
    enum mr_err (*remove)(struct mr_fs *fs, const char *path);
    /* Where a path leads: absolute and without links. Of what is not there, its nearest parent. */
    enum mr_err (*real)(struct mr_fs *fs, const char *path, char ret_real[MR_PATH_MAX]);
    enum mr_err (*space)(struct mr_fs *fs, const char *path, uint64_t *ret_free_bytes);
    enum mr_err (*open)(struct mr_fs *fs, const char *path, enum mr_open_mode mode,
                        struct mr_file **ret_file);
    /* Exclusive lock on a file for the life of the handle, created if missing. MR_IN_USE with the
     * holder's process id in ret_pid (0 when unknown). */
    enum mr_err (*lock)(struct mr_fs *fs, const char *path, struct mr_file **ret_file,
                        long *ret_pid);
    void (*close)(struct mr_file *file);
    /* All of len, or an error; reading past the end is MR_DAMAGED. */
    enum mr_err (*pread)(struct mr_file *file, void *data, size_t len, uint64_t offset);
    enum mr_err (*pwrite)(struct mr_file *file, const void *data, size_t len, uint64_t offset);
    /* fdatasync. After a failure nothing is known of what was written since the last success. */
    enum mr_err (*sync)(struct mr_file *file);
    /* The disk may begin with what was written there, so that a later sync has little left to do.
     * Promises nothing; an error shows in the sync. */
    void (*sync_ahead)(struct mr_file *file, uint64_t offset, uint64_t len);
    enum mr_err (*size)(struct mr_file *file, uint64_t *ret_size);
    /* Growing takes the space on disk at once: writing up to size needs none any more. What could
     * not be had of it may be left: MR_DISK_FULL. */
    enum mr_err (*truncate)(struct mr_file *file, uint64_t size);
    /* Memory that survives the death of the process but not a power cut: len bytes of the file,
     * shared. The file has at least that size. Unmapped by close. */
    enum mr_err (*map)(struct mr_file *file, size_t len, void **ret_memory);
    /* Which run of the machine this is: another one after every reboot or power cut. */
    enum mr_err (*boot)(struct mr_fs *fs, struct mr_uuid *ret_id);
};

struct mr_fs {
    const struct mr_fs_ops *ops;
};

struct mr_file {
    struct mr_fs *fs;
};

/* The kernel's. Thread: any. */
struct mr_fs *mr_fs_system(void);

/* Short forms. */
MR_MUST_USE enum mr_err mr_fs_open(struct mr_fs *fs, const char *path, enum mr_open_mode mode,
                                   struct mr_file **ret_file);
void mr_file_close(struct mr_file *file); /* NULL is fine */
MR_MUST_USE enum mr_err mr_file_pread(struct mr_file *file, void *data, size_t len,
                                      uint64_t offset);
MR_MUST_USE enum mr_err mr_file_pwrite(struct mr_file *file, const void *data, size_t len,
                                       uint64_t offset);
MR_MUST_USE enum mr_err mr_file_sync(struct mr_file *file);
void mr_file_sync_ahead(struct mr_file *file, uint64_t offset, uint64_t len);
MR_MUST_USE enum mr_err mr_file_size(struct mr_file *file, uint64_t *ret_size);

/* "dir/name"; MR_TOO_BIG when it does not fit. */
MR_MUST_USE enum mr_err mr_path_join(char path[MR_PATH_MAX], const char *dir, const char *name);

#endif
