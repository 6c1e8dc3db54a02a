/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of simfs: shared by the calls (simfs.c) and the crash (simfs_crash.c). */
#ifndef MR_TESTS_SIMFS_INT_H
#define MR_TESTS_SIMFS_INT_H

#include "base/list.h"
#include "sim/simfs.h"

/* Bytes with a capacity; unlike mr_buf it fills gaps with zeros. */
struct content {
    uint8_t *data;
    size_t len, cap;
};

/* A write or truncation that was not synced. */
struct change {
    uint64_t offset; /* truncation: the new size */
    size_t len;
    uint8_t *bytes; /* NULL for a truncation */
    bool limbo;     /* a sync that covered it failed */
};

struct inode {
    struct content now, durable;
    struct change *changes;
    size_t changes_n, changes_cap;
    uint8_t *map;      /* shared memory handed out, NULL when not mapped */
    uint8_t *map_old;  /* what it held some time ago */
    uint8_t *map_last; /* what it held when the process died; NULL while it lives */
    size_t map_len;
    unsigned handles;
    bool locked;
    uint64_t bad_from, bad_to; /* cannot be read */
};

struct name {
    char *path;
    uint32_t inode;
};

struct names {
    struct name *items;
    size_t n, cap;
};

enum name_op_kind { NAME_CREATE, NAME_RENAME, NAME_REMOVE };

/* A change of a folder that was not synced. */
struct name_op {
    enum name_op_kind kind;
    char *from, *to; /* create and remove: only from */
    uint32_t inode;  /* create */
    uint32_t group;  /* used by the crash: entries that hang together */
};

struct fault {
    enum simfs_op op;
    enum mr_err err;
    uint64_t after, times;
};

enum { FAULTS_MAX = 64, DIRS_MAX = 16, MAP_OLD_EVERY = 16 };

struct simfs {
    struct mr_fs fs;
    struct mr_rand rand;
    struct inode *inodes; /* a free place has no names, handles or changes of names */
    size_t inodes_n, inodes_cap;
    struct names now, durable;
    struct name_op *ops;
    size_t ops_n, ops_cap;
    char *dirs[DIRS_MAX];
    size_t dirs_n;
    struct fault faults[FAULTS_MAX];
    size_t faults_n;
    uint64_t capacity;
    uint64_t counts[SIMFS_OP_COUNT];
    uint64_t points, stop_at;
    uint64_t life; /* handles of an earlier life are dead */
    uint64_t boot; /* power cuts so far */
    bool crashed;
    struct mr_link handles; /* open ones: a dead process leaves some behind */
    simfs_hook *hook;
    void *hook_arg;
};

/* Never NULL: a test that runs out of memory has nothing to say. */
void *sim_alloc(size_t size);
void *sim_grow(void *items, size_t n, size_t *cap, size_t item_size);
char *sim_strdup(const char *text);

void content_resize(struct content *content, size_t len);
void content_write(struct content *content, uint64_t offset, const void *data, size_t len);
void content_copy(struct content *to, const struct content *from);
void change_apply(const struct change *change, struct content *content);
void changes_clear(struct inode *inode);
void change_add(struct inode *inode, uint64_t offset, const void *data, size_t len);
void map_drop(struct inode *inode);

struct name *names_find(const struct names *names, const char *path);
void names_add(struct names *names, const char *path, uint32_t inode);
void names_remove(struct names *names, const char *path);
void names_clear(struct names *names);
void names_copy(struct names *to, const struct names *from);
void name_op_apply(const struct name_op *op, struct names *names);
void name_op_done(struct name_op *op);
void simfs_free_handles(struct simfs *fs);
/* Frees what no name, handle or unsynced folder change refers to. */
void simfs_collect(struct simfs *fs);

#endif
