/* SPDX-License-Identifier: Apache-2.0 */
/* What the segments of a folder say before their log is opened. */
#include <stdlib.h>

#include "base/text.h"
#include "log/internal.h"

static void list_segment(const char *name, void *arg)
{
    struct numbers *listing = arg;
    uint64_t number;
    if (!mr_parse_hex_name(name, "log-", 8, &number))
        return;
    if (listing->n == listing->cap) {
        size_t cap = listing->cap ? 2 * listing->cap : 64;
        uint32_t *grown = realloc(listing->numbers, cap * sizeof *grown);
        if (grown == NULL) {
            listing->err = MR_NOMEM;
            return;
        }
        listing->numbers = grown;
        listing->cap = cap;
    }
    listing->numbers[listing->n++] = (uint32_t)number;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

enum mr_err segment_numbers(struct mr_fs *fs, const char *dir, struct numbers *ret_numbers)
{
    struct numbers list = {0};
    enum mr_err err = fs->ops->dir_list(fs, dir, list_segment, &list);
    if (err == MR_OK)
        err = list.err;
    if (err != MR_OK) {
        free(list.numbers);
        return err;
    }
    if (list.n > 1)
        qsort(list.numbers, list.n, sizeof *list.numbers, by_number);
    *ret_numbers = list;
    return MR_OK;
}

static enum mr_err open_read(struct mr_fs *fs, const char *dir, uint32_t number,
                             struct mr_file **ret_file)
{
    char name[32], path[MR_PATH_MAX];
    mr_segment_name(name, number);
    MR_TRY(mr_path_join(path, dir, name));
    return mr_fs_open(fs, path, MR_OPEN_READ, ret_file);
}

enum mr_err mr_log_label(struct mr_fs *fs, const char *dir, uint8_t ret_label[MR_SEGMENT_LABEL])
{
    struct numbers list;
    MR_TRY(segment_numbers(fs, dir, &list));
    enum mr_err err = MR_NOT_FOUND;
    for (size_t i = 0; i < list.n && err != MR_OK; i++) {
        uint8_t header[MR_SEGMENT_HEADER];
        struct mr_file *file;
        if (open_read(fs, dir, list.numbers[i], &file) != MR_OK)
            continue;
        bool whole = mr_file_pread(file, header, sizeof header, 0) == MR_OK;
        const uint8_t *label = whole ? segment_label(header) : NULL;
        mr_file_close(file);
        if (label != NULL) {
            memcpy(ret_label, label, MR_SEGMENT_LABEL);
            err = MR_OK;
        }
    }
    free(list.numbers);
    return err;
}

static enum mr_err is_zero(struct mr_file *file, uint64_t from, bool *ret_zero)
{
    uint8_t bytes[4096];
    uint64_t size;
    MR_TRY(mr_file_size(file, &size));
    *ret_zero = true;
    for (uint64_t at = from; at < size && *ret_zero; at += sizeof bytes) {
        size_t len = size - at < sizeof bytes ? (size_t)(size - at) : sizeof bytes;
        MR_TRY(mr_file_pread(file, bytes, len, at));
        for (size_t i = 0; i < len && *ret_zero; i++)
            *ret_zero = bytes[i] == 0;
    }
    return MR_OK;
}

enum mr_err mr_log_unused(struct mr_fs *fs, const char *dir, bool *ret_unused)
{
    struct numbers list;
    MR_TRY(segment_numbers(fs, dir, &list));
    bool lone = list.n == 1 && list.numbers[0] == FIRST_SEGMENT;
    free(list.numbers);
    *ret_unused = false;
    if (!lone)
        return MR_OK;
    struct mr_file *file;
    MR_TRY(open_read(fs, dir, FIRST_SEGMENT, &file));
    enum mr_err err = is_zero(file, MR_SEGMENT_HEADER, ret_unused);
    mr_file_close(file);
    return err;
}
