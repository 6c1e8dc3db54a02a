/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's files. Interrupted calls are repeated, short reads and writes are continued, and
 * errno is translated here and nowhere above. Handles are closed on exec, so that the processes a
 * worker starts hold neither files nor locks of ours.
 */
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

/* Payloads are the business of the owner and of whom the group's rights admit. */
enum { FILE_RIGHTS = 0640, SECRET_RIGHTS = 0600, DIR_RIGHTS = 0750 };

enum { PID_TEXT_MAX = 24 };

struct sys_file {
    struct mr_file file;
    int fd;
    void *memory; /* mapping, or NULL */
    size_t memory_len;
};

static struct sys_file *sys_file_of(struct mr_file *file)
{
    return mr_container(file, struct sys_file, file);
}

static enum mr_err last_error(void)
{
    return mr_err_from_errno(errno);
}

static int open_with(const char *path, int flags, mode_t rights)
{
    int fd;
    do {
        fd = open(path, flags | O_CLOEXEC, rights);
    } while (fd < 0 && errno == EINTR);
    return mr_fd_apart(fd);
}

static int open_retrying(const char *path, int flags)
{
    return open_with(path, flags, FILE_RIGHTS);
}

/* ---- folders -------------------------------------------------------------------------------- */

static enum mr_err sys_dir_sync(struct mr_fs *fs, const char *path)
{
    (void)fs;
    int fd = open_retrying(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return last_error();
    int rc;
    do {
        rc = fsync(fd);
    } while (rc != 0 && errno == EINTR);
    /* EINVAL: this file system has no sync of folders, and there is no other way to ask for it. */
    enum mr_err err = rc == 0 || errno == EINVAL ? MR_OK : last_error();
    close(fd);
    return err;
}

static enum mr_err sync_parent(struct mr_fs *fs, const char *path)
{
    char parent[MR_PATH_MAX];
    memcpy(parent, path, strlen(path) + 1); /* fits: see sys_dir_make */
    char *cut = strrchr(parent, '/');
    if (cut == NULL)
        return sys_dir_sync(fs, ".");
    cut[cut == parent ? 1 : 0] = '\0';
    return sys_dir_sync(fs, parent);
}

static enum mr_err make_one(struct mr_fs *fs, const char *path)
{
    struct stat st;
    if (mkdir(path, DIR_RIGHTS) == 0)
        return sync_parent(fs, path);
    int failed = errno;
    /* Whatever mkdir has against it (a read-only parent, say), a folder that is there is fine. */
    if (stat(path, &st) == 0)
        return S_ISDIR(st.st_mode) ? MR_OK : MR_CONFLICT;
    /* What is around it is there: it takes no folders, as /proc, which says so. */
    return failed == ENOENT ? MR_DENIED : mr_err_from_errno(failed);
}

static enum mr_err sys_dir_make(struct mr_fs *fs, const char *path)
{
    char part[MR_PATH_MAX];
    size_t len = strlen(path);
    if (len == 0)
        return MR_NOT_FOUND;
    if (len >= sizeof part)
        return MR_TOO_BIG;
    while (len > 1 && path[len - 1] == '/')
        len--;
    memcpy(part, path, len);
    part[len] = '\0';
    for (size_t end = 1; end <= len; end++) {
        bool boundary = part[end] == '\0' || (part[end] == '/' && part[end - 1] != '/');
        if (!boundary)
            continue;
        char saved = part[end];
        part[end] = '\0';
        enum mr_err err = make_one(fs, part);
        part[end] = saved;
        MR_TRY(err);
    }
    /* The folder may be left over from a process that died between making it and syncing its
     * parent. Not being allowed to read the parent is no obstacle to using the folder. */
    enum mr_err err = sync_parent(fs, part);
    return err == MR_DENIED ? MR_OK : err;
}

static bool is_plain_file(DIR *dir, const struct dirent *entry)
{
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_REG;
    struct stat st;
    return fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

static enum mr_err sys_dir_list(struct mr_fs *fs, const char *path, mr_fs_entry *entry, void *arg)
{
    (void)fs;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return last_error();
    struct dirent *found;
    while (errno = 0, (found = readdir(dir)) != NULL) {
        if (is_plain_file(dir, found))
            entry(found->d_name, arg);
    }
    enum mr_err err = errno == 0 ? MR_OK : last_error();
    closedir(dir);
    return err;
}

static enum mr_err sys_rename(struct mr_fs *fs, const char *from, const char *to)
{
    (void)fs;
    return rename(from, to) == 0 ? MR_OK : last_error();
}

static enum mr_err sys_remove(struct mr_fs *fs, const char *path)
{
    (void)fs;
    return unlink(path) == 0 ? MR_OK : last_error();
}

static enum mr_err sys_space(struct mr_fs *fs, const char *path, uint64_t *ret_free_bytes)
{
    (void)fs;
    struct statvfs st;
    int rc;
    do {
        rc = statvfs(path, &st);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return last_error();
    *ret_free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return MR_OK;
}

/* ---- opening, locking ----------------------------------------------------------------------- */

/* Takes fd, also on failure. */
static enum mr_err give_fd(struct mr_fs *fs, int fd, struct mr_file **ret_file)
{
    struct sys_file *file = malloc(sizeof *file);
    if (file == NULL) {
        close(fd);
        return MR_NOMEM;
    }
    *file = (struct sys_file){.file.fs = fs, .fd = fd};
    *ret_file = &file->file;
    return MR_OK;
}

static enum mr_err sys_open(struct mr_fs *fs, const char *path, enum mr_open_mode mode,
                            struct mr_file **ret_file)
{
    static const int flags[] = {
        [MR_OPEN_READ] = O_RDONLY,
        [MR_OPEN_WRITE] = O_RDWR,
        [MR_OPEN_CREATE] = O_RDWR | O_CREAT | O_EXCL,
        [MR_OPEN_CREATE_SECRET] = O_RDWR | O_CREAT | O_EXCL,
    };
    mr_assert((size_t)mode < sizeof flags / sizeof flags[0]);
    int fd =
        open_with(path, flags[mode], mode == MR_OPEN_CREATE_SECRET ? SECRET_RIGHTS : FILE_RIGHTS);
    if (fd < 0)
        return last_error();
    return give_fd(fs, fd, ret_file);
}

/* The process named in a lock file, 0 when there is none or it does not live where we can see it.
 */
static long read_holder(int fd)
{
    char text[PID_TEXT_MAX];
    ssize_t len = pread(fd, text, sizeof text - 1, 0);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    char *end;
    long pid = strtol(text, &end, 10);
    if (end == text || *end != '\n' || pid <= 0 || pid > INT32_MAX)
        return 0;
    return kill((pid_t)pid, 0) == 0 || errno == EPERM ? pid : 0;
}

/* The name is a help for people; a full disk must not keep anybody from opening the store. */
static void write_holder(int fd)
{
    char text[PID_TEXT_MAX];
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)len, 0) == len)
        return;
}

/*
 * A lock of the open file description, not of the process: a second opening in the same process is
 * refused too, and closing another handle of the file does not drop it. The kernel releases it
 * however we die.
 */
static enum mr_err sys_lock(struct mr_fs *fs, const char *path, struct mr_file **ret_file,
                            long *ret_pid)
{
    int fd = open_retrying(path, O_RDWR | O_CREAT);
    if (fd < 0)
        return last_error();
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;
    do {
        rc = fcntl(fd, F_OFD_SETLK, &whole);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        bool held = errno == EAGAIN || errno == EACCES;
        enum mr_err err = held ? MR_IN_USE : last_error();
        if (held && ret_pid != NULL)
            *ret_pid = read_holder(fd);
        close(fd);
        return err;
    }
    write_holder(fd);
    return give_fd(fs, fd, ret_file);
}

static void sys_close(struct mr_file *base)
{
    struct sys_file *file = sys_file_of(base);
    if (file->memory != NULL)
        munmap(file->memory, file->memory_len);
    close(file->fd); /* not repeated: after EINTR the descriptor is gone all the same */
    free(file);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static enum mr_err sys_pread(struct mr_file *file, void *data, size_t len, uint64_t offset)
{
    uint8_t *at = data;
    while (len > 0) {
        ssize_t n = pread(sys_file_of(file)->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return last_error();
        if (n == 0)
            return MR_DAMAGED;
        at += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return MR_OK;
}

static enum mr_err sys_pwrite(struct mr_file *file, const void *data, size_t len, uint64_t offset)
{
    const uint8_t *at = data;
    while (len > 0) {
        ssize_t n = pwrite(sys_file_of(file)->fd, at, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return last_error();
        if (n == 0)
            return MR_IO; /* no progress and no reason: do not spin */
        at += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return MR_OK;
}

static enum mr_err sys_sync(struct mr_file *file)
{
    /* EINTR says that the sync was not carried out; it is the one failure after which asking again
     * is honest. After any other the kernel may have dropped what it could not write. */
    int rc;
    do {
        rc = fdatasync(sys_file_of(file)->fd);
    } while (rc != 0 && errno == EINTR);
    return rc == 0 ? MR_OK : last_error();
}

static void sys_sync_ahead(struct mr_file *file, uint64_t offset, uint64_t len)
{
    (void)sync_file_range(sys_file_of(file)->fd, (off_t)offset, (off_t)len, SYNC_FILE_RANGE_WRITE);
}

static enum mr_err sys_size(struct mr_file *file, uint64_t *ret_size)
{
    struct stat st;
    if (fstat(sys_file_of(file)->fd, &st) != 0)
        return last_error();
    *ret_size = (uint64_t)st.st_size;
    return MR_OK;
}

static enum mr_err sys_truncate(struct mr_file *file, uint64_t size)
{
    uint64_t now = 0;
    int fd = sys_file_of(file)->fd;
    MR_TRY(sys_size(file, &now));
    do {
        errno = 0;
        if (size > now)
            errno = posix_fallocate(fd, (off_t)now, (off_t)(size - now));
        else
            (void)!ftruncate(fd, (off_t)size);
    } while (errno == EINTR);
    return errno == 0 ? MR_OK : last_error();
}

static enum mr_err sys_map(struct mr_file *base, size_t len, void **ret_memory)
{
    struct sys_file *file = sys_file_of(base);
    mr_assert(file->memory == NULL);
    uint64_t size = 0;
    MR_TRY(sys_size(base, &size));
    if (len == 0 || size < len)
        return MR_INVALID; /* touching memory beyond the end would be a signal */
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (memory == MAP_FAILED)
        return last_error();
    file->memory = memory;
    file->memory_len = len;
    *ret_memory = memory;
    return MR_OK;
}

static enum mr_err sys_real(struct mr_fs *fs, const char *path, char ret_real[MR_PATH_MAX])
{
    (void)fs;
    char at[MR_PATH_MAX], *found;
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at)
        return MR_TOO_BIG;
    while ((found = realpath(at, NULL)) == NULL && errno == ENOENT) {
        char *slash = strrchr(at, '/');
        if (slash != NULL)
            slash[slash == at] = '\0'; /* the root stays */
        else
            memcpy(at, ".", sizeof ".");
    }
    if (found == NULL)
        return last_error();
    size_t len = strlen(found);
    if (len < MR_PATH_MAX)
        memcpy(ret_real, found, len + 1);
    free(found);
    return len < MR_PATH_MAX ? MR_OK : MR_TOO_BIG;
}

static enum mr_err sys_boot(struct mr_fs *fs, struct mr_uuid *ret_id)
{
    (void)fs;
    char text[MR_UUID_TEXT_LEN];
    int fd = open_retrying("/proc/sys/kernel/random/boot_id", O_RDONLY);
    if (fd < 0)
        return last_error();
    ssize_t len = pread(fd, text, sizeof text, 0);
    close(fd);
    bool read =
        len == (ssize_t)sizeof text && mr_uuid_parse(mr_slice_make(text, sizeof text), ret_id);
    return read ? MR_OK : MR_UNAVAILABLE;
}

static const struct mr_fs_ops sys_ops = {
    .dir_make = sys_dir_make,
    .dir_list = sys_dir_list,
    .dir_sync = sys_dir_sync,
    .rename = sys_rename,
    .remove = sys_remove,
    .space = sys_space,
    .open = sys_open,
    .lock = sys_lock,
    .close = sys_close,
    .pread = sys_pread,
    .pwrite = sys_pwrite,
    .sync = sys_sync,
    .sync_ahead = sys_sync_ahead,
    .size = sys_size,
    .truncate = sys_truncate,
    .map = sys_map,
    .boot = sys_boot,
    .real = sys_real,
};

struct mr_fs *mr_fs_system(void)
{
    static struct mr_fs fs = {&sys_ops};
    return &fs;
}

enum mr_err mr_fs_open(struct mr_fs *fs, const char *path, enum mr_open_mode mode,
                       struct mr_file **ret_file)
{
    return fs->ops->open(fs, path, mode, ret_file);
}

void mr_file_close(struct mr_file *file)
{
    if (file != NULL)
        file->fs->ops->close(file);
}

enum mr_err mr_file_pread(struct mr_file *file, void *data, size_t len, uint64_t offset)
{
    return file->fs->ops->pread(file, data, len, offset);
}

enum mr_err mr_file_pwrite(struct mr_file *file, const void *data, size_t len, uint64_t offset)
{
    return file->fs->ops->pwrite(file, data, len, offset);
}

enum mr_err mr_file_sync(struct mr_file *file)
{
    return file->fs->ops->sync(file);
}

void mr_file_sync_ahead(struct mr_file *file, uint64_t offset, uint64_t len)
{
    file->fs->ops->sync_ahead(file, offset, len);
}

enum mr_err mr_file_size(struct mr_file *file, uint64_t *ret_size)
{
    return file->fs->ops->size(file, ret_size);
}

enum mr_err mr_path_join(char path[MR_PATH_MAX], const char *dir, const char *name)
{
    size_t dir_len = strlen(dir), name_len = strlen(name);
    if (dir_len + 1 + name_len + 1 > MR_PATH_MAX)
        return MR_TOO_BIG;
    memcpy(path, dir, dir_len);
    path[dir_len] = '/';
    memcpy(path + dir_len + 1, name, name_len + 1);
    return MR_OK;
}
