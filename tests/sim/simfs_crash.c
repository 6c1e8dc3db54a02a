/* SPDX-License-Identifier: Apache-2.0 */
/* What is left of a forgetful file system after a crash; copies; damage; and its containers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/simfs_int.h"

void *sim_alloc(size_t size)
{
    void *memory = malloc(size ? size : 1);
    mr_assert(memory);
    return memory;
}

void *sim_grow(void *items, size_t n, size_t *cap, size_t item_size)
{
    if (n < *cap)
        return items;
    *cap = *cap ? *cap * 2 : 8;
    items = realloc(items, *cap * item_size);
    mr_assert(items);
    return items;
}

char *sim_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(sim_alloc(size), text, size);
}

const char *simfs_op_name(enum simfs_op op)
{
    static const char *const names[SIMFS_OP_COUNT] = {"write",  "sync",   "dir_sync", "rename",
                                                      "remove", "create", "truncate", "open",
                                                      "read",   "lock",   "map"};
    return names[op];
}

const char *simfs_policy_name(enum simfs_policy policy)
{
    static const char *const names[SIMFS_POLICY_COUNT] = {"keep-all", "drop-all", "keep-some",
                                                          "tear", "scramble"};
    return names[policy];
}

void content_resize(struct content *content, size_t len)
{
    if (len > content->cap) {
        content->cap = len + len / 4;
        content->data = realloc(content->data, content->cap);
        mr_assert(content->data);
    }
    if (len > content->len)
        memset(content->data + content->len, 0, len - content->len);
    content->len = len;
}

void content_write(struct content *content, uint64_t offset, const void *data, size_t len)
{
    if (offset + len > content->len)
        content_resize(content, offset + len);
    memcpy(content->data + offset, data, len);
}

void content_copy(struct content *to, const struct content *from)
{
    to->len = 0;
    content_resize(to, from->len);
    if (from->len)
        memcpy(to->data, from->data, from->len);
}

static void content_done(struct content *content)
{
    free(content->data);
    *content = (struct content){0};
}

void change_apply(const struct change *change, struct content *content)
{
    if (change->bytes)
        content_write(content, change->offset, change->bytes, change->len);
    else
        content_resize(content, change->offset);
}

void changes_clear(struct inode *inode)
{
    for (size_t i = 0; i < inode->changes_n; i++)
        free(inode->changes[i].bytes);
    inode->changes_n = 0;
}

void change_add(struct inode *inode, uint64_t offset, const void *data, size_t len)
{
    inode->changes =
        sim_grow(inode->changes, inode->changes_n, &inode->changes_cap, sizeof *inode->changes);
    struct change *change = &inode->changes[inode->changes_n++];
    *change = (struct change){offset, len, NULL, false};
    if (data)
        change->bytes = memcpy(sim_alloc(len), data, len);
    change_apply(change, &inode->now);
}

void map_drop(struct inode *inode)
{
    free(inode->map);
    free(inode->map_old);
    free(inode->map_last);
    inode->map = inode->map_old = inode->map_last = NULL;
    inode->map_len = 0;
}

static void inode_done(struct inode *inode)
{
    changes_clear(inode);
    free(inode->changes);
    map_drop(inode);
    content_done(&inode->now);
    content_done(&inode->durable);
    memset(inode, 0, sizeof *inode);
}

struct name *names_find(const struct names *names, const char *path)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->items[i].path, path) == 0)
            return &names->items[i];
    return NULL;
}

void names_add(struct names *names, const char *path, uint32_t inode)
{
    names->items = sim_grow(names->items, names->n, &names->cap, sizeof *names->items);
    names->items[names->n++] = (struct name){sim_strdup(path), inode};
}

void names_remove(struct names *names, const char *path)
{
    struct name *name = names_find(names, path);
    if (!name)
        return;
    free(name->path);
    *name = names->items[--names->n];
}

void names_clear(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        free(names->items[i].path);
    free(names->items);
    *names = (struct names){0};
}

void names_copy(struct names *to, const struct names *from)
{
    for (size_t i = 0; i < from->n; i++)
        names_add(to, from->items[i].path, from->items[i].inode);
}

void name_op_apply(const struct name_op *op, struct names *names)
{
    struct name *from = names_find(names, op->from);
    if (op->kind == NAME_CREATE && !from)
        names_add(names, op->from, op->inode);
    if (op->kind == NAME_REMOVE)
        names_remove(names, op->from);
    if (op->kind == NAME_RENAME && from) {
        uint32_t inode = from->inode;
        names_remove(names, op->from);
        names_remove(names, op->to);
        names_add(names, op->to, inode);
    }
}

void name_op_done(struct name_op *op)
{
    free(op->from);
    free(op->to);
}

void simfs_collect(struct simfs *fs)
{
    for (uint32_t i = 0; i < fs->inodes_n; i++) {
        bool used = fs->inodes[i].handles > 0;
        for (size_t j = 0; j < fs->now.n && !used; j++)
            used = fs->now.items[j].inode == i;
        for (size_t j = 0; j < fs->durable.n && !used; j++)
            used = fs->durable.items[j].inode == i;
        for (size_t j = 0; j < fs->ops_n && !used; j++)
            used = fs->ops[j].kind == NAME_CREATE && fs->ops[j].inode == i;
        if (!used)
            inode_done(&fs->inodes[i]);
    }
}

/* ---- what is left of a file ----------------------------------------------------------------- */

static uint64_t sector_end(uint64_t offset)
{
    return (offset / SIMFS_SECTOR + 1) * SIMFS_SECTOR;
}

/* Cuts at a sector boundary of the file, so the rest never arrived. */
static void keep_prefix(const struct change *change, struct mr_rand *rand, struct content *image)
{
    uint64_t end = change->offset + change->len;
    uint64_t sectors = (end + SIMFS_SECTOR - 1) / SIMFS_SECTOR - change->offset / SIMFS_SECTOR;
    uint64_t cut = (change->offset / SIMFS_SECTOR + mr_rand_below(rand, sectors)) * SIMFS_SECTOR;
    if (cut > change->offset)
        content_write(image, change->offset, change->bytes, cut - change->offset);
}

static void keep_sectors(const struct change *change, struct mr_rand *rand, struct content *image,
                         bool garbage)
{
    uint64_t end = change->offset + change->len;
    for (uint64_t at = change->offset; at < end;) {
        uint64_t next = sector_end(at) < end ? sector_end(at) : end;
        uint64_t choice = mr_rand_below(rand, garbage ? 3 : 2);
        if (choice == 1)
            content_write(image, at, change->bytes + (at - change->offset), next - at);
        if (choice == 2) {
            uint8_t noise[SIMFS_SECTOR];
            mr_rand_bytes(rand, noise, next - at);
            content_write(image, at, noise, next - at);
        }
        at = next;
    }
}

/* The file grew but the bytes did not arrive. */
static void keep_size(const struct change *change, struct content *image)
{
    if (change->offset + change->len > image->len)
        content_resize(image, change->offset + change->len);
}

static void damage(const struct change *change, struct mr_rand *rand, enum simfs_policy policy,
                   struct content *image)
{
    uint64_t choice = mr_rand_below(rand, 4);
    if (policy == SIMFS_DROP_ALL || (policy == SIMFS_KEEP_ALL && choice < 2) || choice == 0)
        return;
    if (choice == 1 && change->bytes && policy != SIMFS_KEEP_SOME) {
        keep_size(change, image);
        return;
    }
    if (choice == 2 || policy == SIMFS_KEEP_ALL || policy == SIMFS_KEEP_SOME || !change->bytes)
        change_apply(change, image);
    else if (policy == SIMFS_SCRAMBLE)
        keep_sectors(change, rand, image, true);
    else if (mr_rand_one_in(rand, 2))
        keep_prefix(change, rand, image);
    else
        keep_sectors(change, rand, image, false);
}

/* Each sector of mapped memory reached the disk at some time, or never. */
static void crash_map(struct inode *inode, struct mr_rand *rand, struct content *image)
{
    const uint8_t *last = inode->map_last ? inode->map_last : inode->map;
    uint64_t all = mr_rand_below(rand, 5); /* 0..3: the same fate for all, 4: mixed */
    for (size_t at = 0; at < inode->map_len; at += SIMFS_SECTOR) {
        static const uint8_t zeros[SIMFS_SECTOR];
        size_t left = inode->map_len - at;
        size_t len = left < SIMFS_SECTOR ? left : SIMFS_SECTOR;
        uint64_t fate = all < 4 ? all : mr_rand_below(rand, 4);
        if (fate == 0)
            content_write(image, at, last + at, len);
        if (fate == 1)
            content_write(image, at, inode->map_old + at, len);
        if (fate == 2)
            content_write(image, at, zeros, len);
    }
}

/* The writes nobody will report again are settled; the rest is in the cache of a kernel that lives
 * on. */
static void survive(struct inode *inode, struct mr_rand *rand)
{
    const uint8_t *last = inode->map_last ? inode->map_last : inode->map;
    if (last && memcmp(last, inode->now.data, inode->map_len) != 0)
        change_add(inode, 0, last, inode->map_len);
    bool limbo = false;
    for (size_t i = 0; i < inode->changes_n; i++)
        limbo = limbo || inode->changes[i].limbo;
    if (limbo) {
        size_t kept = 0;
        for (size_t i = 0; i < inode->changes_n; i++) {
            if (!inode->changes[i].limbo) {
                inode->changes[kept++] = inode->changes[i];
                continue;
            }
            damage(&inode->changes[i], rand, SIMFS_KEEP_ALL, &inode->durable);
            free(inode->changes[i].bytes);
        }
        inode->changes_n = kept;
        content_copy(&inode->now, &inode->durable);
        for (size_t i = 0; i < inode->changes_n; i++)
            change_apply(&inode->changes[i], &inode->now);
    }
}

static void crash_inode(struct inode *inode, struct mr_rand *rand, enum simfs_policy policy)
{
    if (policy == SIMFS_KEEP_ALL) {
        survive(inode, rand);
    } else {
        for (size_t i = 0; i < inode->changes_n; i++)
            damage(&inode->changes[i], rand, policy, &inode->durable);
        if (inode->map && policy != SIMFS_DROP_ALL)
            crash_map(inode, rand, &inode->durable);
        changes_clear(inode);
        content_copy(&inode->now, &inode->durable);
    }
    map_drop(inode);
    inode->handles = 0;
    inode->locked = false;
}

/* ---- what is left of the folders ------------------------------------------------------------ */

static bool share_name(const struct name_op *a, const struct name_op *b)
{
    const char *names_a[2] = {a->from, a->to}, *names_b[2] = {b->from, b->to};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            if (names_a[i] && names_b[j] && strcmp(names_a[i], names_b[j]) == 0)
                return true;
    return false;
}

/* Changes that touch the same name keep their order; others are independent. */
static void group_ops(struct simfs *fs)
{
    for (uint32_t i = 0; i < fs->ops_n; i++) {
        fs->ops[i].group = i;
        for (uint32_t j = 0; j < i; j++) {
            if (!share_name(&fs->ops[i], &fs->ops[j]))
                continue;
            uint32_t old = fs->ops[i].group, group = fs->ops[j].group;
            for (uint32_t k = 0; k <= i; k++)
                if (fs->ops[k].group == old)
                    fs->ops[k].group = group;
        }
    }
}

static void crash_names(struct simfs *fs, struct mr_rand *rand, enum simfs_policy policy)
{
    bool in_order = mr_rand_one_in(rand, 2);
    if (in_order)
        for (size_t i = 0; i < fs->ops_n; i++)
            fs->ops[i].group = 0;
    else
        group_ops(fs);
    bool *cut = sim_alloc(fs->ops_n * sizeof *cut); /* by group: nothing of it follows */
    memset(cut, 0, fs->ops_n * sizeof *cut);
    for (size_t i = 0; i < fs->ops_n; i++) {
        struct name_op *op = &fs->ops[i];
        if (policy == SIMFS_DROP_ALL || mr_rand_one_in(rand, 3))
            cut[op->group] = true;
        if (!cut[op->group])
            name_op_apply(op, &fs->durable);
        name_op_done(op);
    }
    free(cut);
    fs->ops_n = 0;
    names_clear(&fs->now);
    names_copy(&fs->now, &fs->durable);
}

void simfs_crash(struct simfs *fs, struct mr_rand *rand, enum simfs_policy policy)
{
    if (policy != SIMFS_KEEP_ALL) {
        crash_names(fs, rand, policy);
        fs->boot++;
    }
    for (size_t i = 0; i < fs->inodes_n; i++)
        crash_inode(&fs->inodes[i], rand, policy);
    fs->life++;
    fs->crashed = false;
    fs->stop_at = 0;
    simfs_collect(fs);
}

/* ---- copies and damage ---------------------------------------------------------------------- */

static uint8_t *copy_bytes(const uint8_t *bytes, size_t len)
{
    return bytes ? memcpy(sim_alloc(len), bytes, len) : NULL;
}

static void clone_inode(struct inode *to, const struct inode *from)
{
    memset(to, 0, sizeof *to);
    content_copy(&to->now, &from->now);
    content_copy(&to->durable, &from->durable);
    for (size_t i = 0; i < from->changes_n; i++) {
        to->changes = sim_grow(to->changes, i, &to->changes_cap, sizeof *to->changes);
        to->changes[i] = from->changes[i];
        to->changes[i].bytes = copy_bytes(from->changes[i].bytes, from->changes[i].len);
    }
    to->changes_n = from->changes_n;
    to->map = copy_bytes(from->map_last ? from->map_last : from->map, from->map_len);
    to->map_old = copy_bytes(from->map_old, from->map_len);
    to->map_len = from->map_len;
    to->bad_from = from->bad_from;
    to->bad_to = from->bad_to;
}

struct simfs *simfs_clone(const struct simfs *from)
{
    struct simfs *fs = simfs_new(0);
    fs->rand = from->rand;
    fs->capacity = from->capacity;
    fs->inodes = sim_alloc(from->inodes_n * sizeof *fs->inodes);
    fs->inodes_n = fs->inodes_cap = from->inodes_n;
    for (size_t i = 0; i < from->inodes_n; i++)
        clone_inode(&fs->inodes[i], &from->inodes[i]);
    names_copy(&fs->now, &from->now);
    names_copy(&fs->durable, &from->durable);
    for (size_t i = 0; i < from->ops_n; i++) {
        fs->ops = sim_grow(fs->ops, i, &fs->ops_cap, sizeof *fs->ops);
        fs->ops[i] = from->ops[i];
        fs->ops[i].from = sim_strdup(from->ops[i].from);
        fs->ops[i].to = from->ops[i].to ? sim_strdup(from->ops[i].to) : NULL;
    }
    fs->ops_n = from->ops_n;
    for (; fs->dirs_n < from->dirs_n; fs->dirs_n++)
        fs->dirs[fs->dirs_n] = sim_strdup(from->dirs[fs->dirs_n]);
    fs->life = from->life + 1;
    fs->boot = from->boot;
    return fs;
}

void simfs_free(struct simfs *fs)
{
    if (!fs)
        return;
    for (size_t i = 0; i < fs->inodes_n; i++)
        inode_done(&fs->inodes[i]);
    free(fs->inodes);
    simfs_free_handles(fs);
    names_clear(&fs->now);
    names_clear(&fs->durable);
    for (size_t i = 0; i < fs->ops_n; i++)
        name_op_done(&fs->ops[i]);
    free(fs->ops);
    for (size_t i = 0; i < fs->dirs_n; i++)
        free(fs->dirs[i]);
    free(fs);
}

size_t simfs_file_count(const struct simfs *fs)
{
    return fs->now.n;
}

const char *simfs_file_path(const struct simfs *fs, size_t i)
{
    return fs->now.items[i].path;
}

static struct inode *file_inode(const struct simfs *fs, size_t i)
{
    mr_assert(i < fs->now.n);
    return &fs->inodes[fs->now.items[i].inode];
}

uint64_t simfs_file_size(const struct simfs *fs, size_t i)
{
    return file_inode(fs, i)->now.len;
}

const uint8_t *simfs_file_data(const struct simfs *fs, size_t i)
{
    return file_inode(fs, i)->now.data;
}

void simfs_flip_bit(struct simfs *fs, size_t i, uint64_t bit)
{
    struct inode *inode = file_inode(fs, i);
    mr_assert(bit / 8 < inode->now.len);
    inode->now.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    if (bit / 8 < inode->durable.len)
        inode->durable.data[bit / 8] = inode->now.data[bit / 8];
}

void simfs_overwrite(struct simfs *fs, size_t i, uint64_t offset, const void *data, size_t len)
{
    struct inode *inode = file_inode(fs, i);
    content_write(&inode->now, offset, data, len);
    content_write(&inode->durable, offset, data, len);
}

void simfs_cut(struct simfs *fs, size_t i, uint64_t size)
{
    struct inode *inode = file_inode(fs, i);
    content_resize(&inode->now, size);
    content_resize(&inode->durable, size);
}

void simfs_lose(struct simfs *fs, size_t i)
{
    char *path = sim_strdup(simfs_file_path(fs, i));
    names_remove(&fs->now, path);
    names_remove(&fs->durable, path);
    free(path);
    simfs_collect(fs);
}

void simfs_unreadable(struct simfs *fs, size_t i, uint64_t offset, uint64_t len)
{
    struct inode *inode = file_inode(fs, i);
    inode->bad_from = offset;
    inode->bad_to = offset + len;
}
