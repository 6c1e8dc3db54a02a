/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the forgetful file system. See simfs.h for what it promises. */
#include "sim/simfs.h"

#include <stdlib.h>
#include <string.h>

#include "sim/simfs_int.h"

struct handle {
    struct mr_file file;
    struct mr_link link; /* in the file system's handles */
    uint32_t inode;
    uint64_t life;
    bool writable, lock;
};

static struct simfs *from_fs(struct mr_fs *fs)
{
    return (struct simfs *)fs; /* fs is the first member */
}

static struct inode *inode_of(struct mr_file *file)
{
    struct handle *handle = (struct handle *)file;
    struct simfs *fs = from_fs(file->fs);
    if (fs->crashed || handle->life != fs->life)
        return NULL;
    return &fs->inodes[handle->inode];
}

/* Keeps the mapped memory as it was at the moment of death: the dead may scribble on. */
static void freeze(struct simfs *fs)
{
    fs->crashed = true;
    for (size_t i = 0; i < fs->inodes_n; i++) {
        struct inode *inode = &fs->inodes[i];
        if (inode->map && !inode->map_last) {
            inode->map_last = sim_alloc(inode->map_len);
            memcpy(inode->map_last, inode->map, inode->map_len);
        }
    }
}

static void age_maps(struct simfs *fs)
{
    if (fs->points % MAP_OLD_EVERY != 0)
        return;
    for (size_t i = 0; i < fs->inodes_n; i++)
        if (fs->inodes[i].map)
            memcpy(fs->inodes[i].map_old, fs->inodes[i].map, fs->inodes[i].map_len);
}

static enum mr_err injected(struct simfs *fs, enum simfs_op op)
{
    for (size_t i = 0; i < fs->faults_n; i++) {
        struct fault *fault = &fs->faults[i];
        if (fault->op != op || fault->times == 0)
            continue;
        if (fault->after > 0) {
            fault->after--;
            continue;
        }
        if (fault->times != SIMFS_FOR_EVER)
            fault->times--;
        return fault->err;
    }
    return MR_OK;
}

/* At the head of every call: counts it, dies at a crash point, fails on demand. */
static enum mr_err enter(struct simfs *fs, enum simfs_op op)
{
    if (fs->crashed)
        return MR_IO;
    if (op <= SIMFS_POINT_LAST) {
        if (fs->hook)
            fs->hook(fs, op, fs->hook_arg);
        fs->points++;
        age_maps(fs);
        if (fs->stop_at && fs->points == fs->stop_at) {
            freeze(fs);
            return MR_IO;
        }
    }
    fs->counts[op]++;
    return injected(fs, op);
}

static enum mr_err sim_dir_make(struct mr_fs *mr_fs, const char *path)
{
    struct simfs *fs = from_fs(mr_fs);
    if (fs->crashed)
        return MR_IO;
    for (size_t i = 0; i < fs->dirs_n; i++)
        if (strcmp(fs->dirs[i], path) == 0)
            return MR_OK;
    mr_assert(fs->dirs_n < DIRS_MAX);
    fs->dirs[fs->dirs_n++] = sim_strdup(path);
    return MR_OK;
}

static bool is_in_dir(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return strncmp(path, dir, len) == 0 && path[len] == '/' && !strchr(path + len + 1, '/');
}

static bool dir_exists(const struct simfs *fs, const char *path)
{
    for (size_t i = 0; i < fs->dirs_n; i++)
        if (strcmp(fs->dirs[i], path) == 0)
            return true;
    return false;
}

static enum mr_err sim_dir_list(struct mr_fs *mr_fs, const char *path, mr_fs_entry *entry,
                                void *arg)
{
    struct simfs *fs = from_fs(mr_fs);
    if (fs->crashed)
        return MR_IO;
    if (!dir_exists(fs, path))
        return MR_NOT_FOUND;
    /* From a copy: the callback may open and remove. */
    struct names copy = {0};
    names_copy(&copy, &fs->now);
    for (size_t i = 0; i < copy.n; i++)
        if (is_in_dir(copy.items[i].path, path))
            entry(copy.items[i].path + strlen(path) + 1, arg);
    names_clear(&copy);
    return MR_OK;
}

static enum mr_err sim_dir_sync(struct mr_fs *mr_fs, const char *path)
{
    struct simfs *fs = from_fs(mr_fs);
    MR_TRY(enter(fs, SIMFS_DIR_SYNC));
    if (!dir_exists(fs, path))
        return MR_NOT_FOUND;
    size_t kept = 0;
    for (size_t i = 0; i < fs->ops_n; i++) {
        struct name_op *op = &fs->ops[i];
        if (is_in_dir(op->from, path) || (op->to && is_in_dir(op->to, path))) {
            name_op_apply(op, &fs->durable);
            name_op_done(op);
        } else {
            fs->ops[kept++] = *op;
        }
    }
    fs->ops_n = kept;
    simfs_collect(fs);
    return MR_OK;
}

static void add_name_op(struct simfs *fs, enum name_op_kind kind, const char *from, const char *to,
                        uint32_t inode)
{
    fs->ops = sim_grow(fs->ops, fs->ops_n, &fs->ops_cap, sizeof *fs->ops);
    fs->ops[fs->ops_n++] =
        (struct name_op){kind, sim_strdup(from), to ? sim_strdup(to) : NULL, inode, 0};
    name_op_apply(&fs->ops[fs->ops_n - 1], &fs->now);
}

static enum mr_err sim_rename(struct mr_fs *mr_fs, const char *from, const char *to)
{
    struct simfs *fs = from_fs(mr_fs);
    MR_TRY(enter(fs, SIMFS_RENAME));
    if (!names_find(&fs->now, from))
        return MR_NOT_FOUND;
    add_name_op(fs, NAME_RENAME, from, to, 0);
    return MR_OK;
}

static enum mr_err sim_remove(struct mr_fs *mr_fs, const char *path)
{
    struct simfs *fs = from_fs(mr_fs);
    MR_TRY(enter(fs, SIMFS_REMOVE));
    if (!names_find(&fs->now, path))
        return MR_NOT_FOUND;
    add_name_op(fs, NAME_REMOVE, path, NULL, 0);
    return MR_OK;
}

static enum mr_err sim_space(struct mr_fs *mr_fs, const char *path, uint64_t *ret_free_bytes)
{
    struct simfs *fs = from_fs(mr_fs);
    (void)path;
    if (fs->crashed)
        return MR_IO;
    uint64_t used = simfs_used(fs);
    *ret_free_bytes = used < fs->capacity ? fs->capacity - used : 0;
    return MR_OK;
}

static struct mr_file *new_handle(struct simfs *fs, uint32_t inode, bool writable)
{
    struct handle *handle = sim_alloc(sizeof *handle);
    *handle =
        (struct handle){.file = {&fs->fs}, .inode = inode, .life = fs->life, .writable = writable};
    mr_list_push_back(&fs->handles, &handle->link);
    fs->inodes[inode].handles++;
    return &handle->file;
}

static bool inode_free(const struct simfs *fs, uint32_t index)
{
    if (fs->inodes[index].handles)
        return false;
    for (size_t i = 0; i < fs->now.n; i++)
        if (fs->now.items[i].inode == index)
            return false;
    for (size_t i = 0; i < fs->durable.n; i++)
        if (fs->durable.items[i].inode == index)
            return false;
    for (size_t i = 0; i < fs->ops_n; i++)
        if (fs->ops[i].kind == NAME_CREATE && fs->ops[i].inode == index)
            return false;
    return true;
}

static uint32_t new_inode(struct simfs *fs)
{
    for (uint32_t i = 0; i < fs->inodes_n; i++)
        if (inode_free(fs, i))
            return i;
    fs->inodes = sim_grow(fs->inodes, fs->inodes_n, &fs->inodes_cap, sizeof *fs->inodes);
    memset(&fs->inodes[fs->inodes_n], 0, sizeof *fs->inodes);
    return (uint32_t)fs->inodes_n++;
}

static void parent_of(const char *path, char dir[MR_PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    mr_assert(len < MR_PATH_MAX);
    memcpy(dir, path, len);
    dir[len] = 0;
}

static enum mr_err create(struct simfs *fs, const char *path, uint32_t *ret_inode)
{
    char dir[MR_PATH_MAX];
    parent_of(path, dir);
    if (!dir_exists(fs, dir))
        return MR_NOT_FOUND;
    uint32_t inode = new_inode(fs);
    add_name_op(fs, NAME_CREATE, path, NULL, inode);
    *ret_inode = inode;
    return MR_OK;
}

static enum mr_err sim_open(struct mr_fs *mr_fs, const char *path, enum mr_open_mode mode,
                            struct mr_file **ret_file)
{
    struct simfs *fs = from_fs(mr_fs);
    bool creates = mode == MR_OPEN_CREATE || mode == MR_OPEN_CREATE_SECRET;
    MR_TRY(enter(fs, creates ? SIMFS_CREATE : SIMFS_OPEN));
    struct name *name = names_find(&fs->now, path);
    uint32_t inode;
    if (creates) {
        if (name)
            return MR_CONFLICT;
        MR_TRY(create(fs, path, &inode));
    } else {
        if (!name)
            return MR_NOT_FOUND;
        inode = name->inode;
    }
    *ret_file = new_handle(fs, inode, mode != MR_OPEN_READ);
    return MR_OK;
}

static enum mr_err sim_lock(struct mr_fs *mr_fs, const char *path, struct mr_file **ret_file,
                            long *ret_pid)
{
    struct simfs *fs = from_fs(mr_fs);
    MR_TRY(enter(fs, SIMFS_LOCK));
    struct name *name = names_find(&fs->now, path);
    uint32_t inode;
    if (name)
        inode = name->inode;
    else
        MR_TRY(create(fs, path, &inode));
    if (fs->inodes[inode].locked) {
        *ret_pid = 4242;
        return MR_IN_USE;
    }
    fs->inodes[inode].locked = true;
    *ret_file = new_handle(fs, inode, true);
    ((struct handle *)*ret_file)->lock = true;
    return MR_OK;
}

static void sim_close(struct mr_file *file)
{
    struct handle *handle = (struct handle *)file;
    struct simfs *fs = from_fs(file->fs);
    if (handle->life == fs->life) {
        struct inode *inode = &fs->inodes[handle->inode];
        mr_assert(inode->handles > 0);
        inode->handles--;
        if (handle->lock)
            inode->locked = false;
        if (!fs->crashed && inode->handles == 0 && inode->map) {
            /* Unmapped pages stay dirty in the cache. */
            change_add(inode, 0, inode->map, inode->map_len);
            map_drop(inode);
        }
        if (!fs->crashed)
            simfs_collect(fs);
    }
    mr_list_remove(&handle->link);
    free(handle);
}

/* Mapped memory and reads see the same bytes. */
static void fold_map(struct inode *inode)
{
    if (inode->map && memcmp(inode->map, inode->now.data, inode->map_len) != 0)
        change_add(inode, 0, inode->map, inode->map_len);
}

static enum mr_err sim_pread(struct mr_file *file, void *data, size_t len, uint64_t offset)
{
    struct simfs *fs = from_fs(file->fs);
    MR_TRY(enter(fs, SIMFS_READ));
    struct inode *inode = inode_of(file);
    if (!inode)
        return MR_IO;
    fold_map(inode);
    if (offset > inode->now.len || len > inode->now.len - offset)
        return MR_DAMAGED;
    if (offset < inode->bad_to && offset + len > inode->bad_from)
        return MR_IO;
    if (len)
        memcpy(data, inode->now.data + offset, len);
    return MR_OK;
}

static void write_through(struct inode *inode, const void *data, size_t len, uint64_t offset)
{
    if (len == 0)
        return;
    change_add(inode, offset, data, len);
    if (offset <= inode->bad_from && offset + len >= inode->bad_to)
        inode->bad_from = inode->bad_to = 0; /* the disk took other sectors */
    if (inode->map && offset < inode->map_len) {
        size_t part = inode->map_len - offset < len ? inode->map_len - (size_t)offset : len;
        memcpy(inode->map + offset, data, part);
    }
}

static enum mr_err sim_pwrite(struct mr_file *file, const void *data, size_t len, uint64_t offset)
{
    struct simfs *fs = from_fs(file->fs);
    enum mr_err err = enter(fs, SIMFS_WRITE);
    struct inode *inode = inode_of(file);
    if (!inode || !((struct handle *)file)->writable)
        return MR_IO;
    fold_map(inode);
    uint64_t end = offset + len;
    uint64_t more = end > inode->now.len ? end - inode->now.len : 0;
    if (err == MR_OK && more && simfs_used(fs) + more > fs->capacity)
        err = MR_DISK_FULL;
    if (err != MR_OK) {
        /* A failed write may have written its beginning, as far as that fits. */
        if (len && more == 0 && mr_rand_one_in(&fs->rand, 2))
            write_through(inode, data, (size_t)mr_rand_below(&fs->rand, len), offset);
        return err;
    }
    write_through(inode, data, len, offset);
    return MR_OK;
}

/* What was written over a write in limbo, or cut off, and synced, does not give way to it again. Of
 * a write that is overwritten in its middle the end is forgotten too. */
static void outlive(const struct change *change, struct change *limbo)
{
    uint64_t end = change->bytes ? change->offset + change->len : UINT64_MAX;
    uint64_t limbo_end = limbo->offset + limbo->len;
    if (change->offset >= limbo_end || end <= limbo->offset)
        return;
    if (change->offset > limbo->offset) {
        limbo->len = (size_t)(change->offset - limbo->offset);
        return;
    }
    uint64_t from = end < limbo_end ? end : limbo_end;
    memmove(limbo->bytes, limbo->bytes + (from - limbo->offset), (size_t)(limbo_end - from));
    limbo->len = (size_t)(limbo_end - from);
    limbo->offset = from;
}

/* A sync that succeeds also makes the size of the file durable, whatever failed before. */
static enum mr_err sim_sync(struct mr_file *file)
{
    struct simfs *fs = from_fs(file->fs);
    enum mr_err err = enter(fs, SIMFS_SYNC);
    struct inode *inode = inode_of(file);
    if (!inode)
        return MR_IO;
    fold_map(inode);
    if (err != MR_OK) {
        for (size_t i = 0; i < inode->changes_n; i++)
            inode->changes[i].limbo = true;
        return err;
    }
    size_t kept = 0;
    for (size_t i = 0; i < inode->changes_n; i++) {
        struct change *change = &inode->changes[i];
        if (change->limbo && change->bytes) {
            inode->changes[kept++] = *change;
            continue;
        }
        for (size_t k = 0; k < kept; k++)
            outlive(change, &inode->changes[k]);
        change_apply(change, &inode->durable);
        free(change->bytes);
    }
    inode->changes_n = 0;
    for (size_t k = 0; k < kept; k++)
        if (inode->changes[k].len > 0)
            inode->changes[inode->changes_n++] = inode->changes[k];
        else
            free(inode->changes[k].bytes);
    return MR_OK;
}

/* Any of what is not synced may reach the disk by itself already. */
static void sim_sync_ahead(struct mr_file *file, uint64_t offset, uint64_t len)
{
    (void)file;
    (void)offset;
    (void)len;
}

static enum mr_err sim_size(struct mr_file *file, uint64_t *ret_size)
{
    struct inode *inode = inode_of(file);
    if (!inode)
        return MR_IO;
    *ret_size = inode->now.len;
    return MR_OK;
}

static enum mr_err sim_truncate(struct mr_file *file, uint64_t size)
{
    struct simfs *fs = from_fs(file->fs);
    MR_TRY(enter(fs, SIMFS_TRUNCATE));
    struct inode *inode = inode_of(file);
    if (!inode || !((struct handle *)file)->writable)
        return MR_IO;
    if (size > inode->now.len && simfs_used(fs) + size - inode->now.len > fs->capacity)
        return MR_DISK_FULL;
    change_add(inode, size, NULL, 0);
    return MR_OK;
}

static enum mr_err sim_map(struct mr_file *file, size_t len, void **ret_memory)
{
    struct simfs *fs = from_fs(file->fs);
    MR_TRY(enter(fs, SIMFS_MAP));
    struct inode *inode = inode_of(file);
    if (!inode)
        return MR_IO;
    if (inode->now.len < len)
        return MR_INVALID;
    if (!inode->map) {
        inode->map = sim_alloc(len);
        inode->map_old = sim_alloc(len);
        inode->map_len = len;
        memcpy(inode->map, inode->now.data, len);
        memcpy(inode->map_old, inode->now.data, len);
    }
    mr_assert(inode->map_len == len);
    *ret_memory = inode->map;
    return MR_OK;
}

static enum mr_err sim_real(struct mr_fs *fs, const char *path, char ret_real[MR_PATH_MAX])
{
    (void)fs; /* no links */
    return snprintf(ret_real, MR_PATH_MAX, "%s", path) < MR_PATH_MAX ? MR_OK : MR_TOO_BIG;
}

static enum mr_err sim_boot(struct mr_fs *mr_fs, struct mr_uuid *ret_id)
{
    *ret_id = (struct mr_uuid){{'b', 'o', 'o', 't'}};
    mr_store64(ret_id->bytes + 8, from_fs(mr_fs)->boot);
    return MR_OK;
}

static const struct mr_fs_ops sim_ops = {
    .dir_make = sim_dir_make,
    .dir_list = sim_dir_list,
    .dir_sync = sim_dir_sync,
    .rename = sim_rename,
    .remove = sim_remove,
    .space = sim_space,
    .open = sim_open,
    .lock = sim_lock,
    .close = sim_close,
    .pread = sim_pread,
    .pwrite = sim_pwrite,
    .sync = sim_sync,
    .sync_ahead = sim_sync_ahead,
    .size = sim_size,
    .truncate = sim_truncate,
    .map = sim_map,
    .boot = sim_boot,
    .real = sim_real,
};

struct simfs *simfs_new(uint64_t seed)
{
    struct simfs *fs = sim_alloc(sizeof *fs);
    memset(fs, 0, sizeof *fs);
    fs->fs.ops = &sim_ops;
    fs->capacity = UINT64_MAX / 2;
    mr_rand_seed(&fs->rand, seed);
    mr_list_init(&fs->handles);
    return fs;
}

void simfs_free_handles(struct simfs *fs)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&fs->handles)) != NULL)
        free(mr_container(link, struct handle, link));
}

struct mr_fs *simfs_fs(struct simfs *fs)
{
    return &fs->fs;
}

uint64_t simfs_count(const struct simfs *fs, enum simfs_op op)
{
    return fs->counts[op];
}

uint64_t simfs_points(const struct simfs *fs)
{
    return fs->points;
}

void simfs_stop_at(struct simfs *fs, uint64_t n)
{
    fs->stop_at = n ? fs->points + n : 0;
}

void simfs_stop(struct simfs *fs)
{
    freeze(fs);
}

bool simfs_crashed(const struct simfs *fs)
{
    return fs->crashed;
}

void simfs_set_hook(struct simfs *fs, simfs_hook *hook, void *arg)
{
    fs->hook = hook;
    fs->hook_arg = arg;
}

void simfs_fail(struct simfs *fs, enum simfs_op op, uint64_t after, uint64_t times, enum mr_err err)
{
    size_t at = 0; /* an exhausted place, if any */
    while (at < fs->faults_n && fs->faults[at].times > 0)
        at++;
    mr_assert(at < FAULTS_MAX);
    fs->faults[at] = (struct fault){op, err, after, times};
    if (at == fs->faults_n)
        fs->faults_n++;
}

void simfs_heal(struct simfs *fs)
{
    fs->faults_n = 0;
    fs->capacity = UINT64_MAX / 2;
    fs->stop_at = 0;
}

void simfs_set_capacity(struct simfs *fs, uint64_t bytes)
{
    fs->capacity = bytes;
}

uint64_t simfs_used(const struct simfs *fs)
{
    uint64_t used = 0;
    for (size_t i = 0; i < fs->inodes_n; i++)
        used += fs->inodes[i].now.len;
    return used;
}
