/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tokens: refused, or read; and what was read reads the same when written again. */
#include <stdlib.h>

#include "api/tokens_file.h"
#include "fuzz/fuzz.h"
#include "sim/simfs.h"

static void put_file(struct mr_fs *fs, struct mr_slice bytes)
{
    struct mr_file *file;
    mr_assert(fs->ops->dir_make(fs, "in") == MR_OK);
    mr_assert(mr_fs_open(fs, "in/tokens", MR_OPEN_CREATE, &file) == MR_OK);
    if (bytes.len > 0)
        mr_assert(mr_file_pwrite(file, bytes.data, bytes.len, 0) == MR_OK);
    mr_file_close(file);
}

static void check_same(const struct mr_token *a, const struct mr_token *b)
{
    mr_assert(strcmp(a->id, b->id) == 0 && strcmp(a->queue, b->queue) == 0);
    mr_assert(a->role == b->role && a->quota == b->quota && a->used == b->used);
    mr_assert(a->created_ms == b->created_ms && a->revoked_ms == b->revoked_ms);
    mr_assert(a->priority_limited == b->priority_limited);
    mr_assert(memcmp(&a->priority_max_s, &b->priority_max_s, sizeof a->priority_max_s) == 0);
    mr_assert(memcmp(a->hash, b->hash, sizeof a->hash) == 0);
}

static void check_again(struct mr_fs *fs, const struct mr_token *list, size_t n)
{
    struct mr_token *again;
    size_t again_n;
    mr_assert(tokens_file_write(fs, "out", list, n, NULL) == MR_OK);
    mr_assert(tokens_file_read(fs, "out", &again, &again_n, NULL) == MR_OK);
    mr_assert(again_n == n);
    for (size_t i = 0; i < n; i++)
        check_same(&list[i], &again[i]);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct simfs *sim = simfs_new(1);
    struct mr_fs *fs = simfs_fs(sim);
    struct mr_token *list;
    struct mr_detail detail = {.text = ""};
    size_t n;
    put_file(fs, mr_slice_make(data, size));
    enum mr_err err = tokens_file_read(fs, "in", &list, &n, &detail);
    if (err == MR_OK) {
        check_again(fs, list, n);
        free(list);
    } else {
        mr_assert(err == MR_DAMAGED || err == MR_VERSION);
        mr_assert(detail.text[0] != '\0');
    }
    simfs_free(sim);
    return 0;
}
