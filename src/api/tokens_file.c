/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DIR/tokens, readable by its owner alone:
 *
 *   millrace-tokens 1
 *   ID ROLE SHA256 CREATED_MS REVOKED_MS PRIORITY_MAX|- QUOTA USED QUEUE
 *
 * Fields are separated by one space; the queue's pattern comes last, since it may hold spaces. A
 * line that cannot be read is an error that names it: a token must not vanish or change its rights
 * in silence.
 */
#include "api/tokens_file.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/text.h"

#define FILE_NAME "tokens"
#define TMP_NAME  "tmp-tokens"
#define HEAD      "millrace-tokens "
#define VERSION   "1"

enum { LINE_MAX_BYTES = 512, FILE_BYTES_MAX = (MR_TOKENS_MAX + 1) * LINE_MAX_BYTES };

/* ---- reading -------------------------------------------------------------------------------- */

/* Cuts the text before the next `until`; false when there is none. */
static bool next_part(struct mr_slice *rest, char until, struct mr_slice *ret_part)
{
    const char *begin = rest->data;
    const char *end = rest->len > 0 ? memchr(begin, until, rest->len) : NULL;
    if (!end)
        return false;
    *ret_part = mr_slice_make(begin, (size_t)(end - begin));
    *rest = mr_slice_make(end + 1, rest->len - ret_part->len - 1);
    return true;
}

static bool copy_text(struct mr_slice part, char *text, size_t cap)
{
    if (part.len == 0 || part.len >= cap)
        return false;
    memcpy(text, part.data, part.len);
    text[part.len] = '\0';
    return true;
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static bool read_hash(struct mr_slice part, uint8_t hash[MR_TOKEN_HASH_LEN])
{
    const char *text = part.data;
    if (part.len != 2 * MR_TOKEN_HASH_LEN)
        return false;
    for (size_t i = 0; i < MR_TOKEN_HASH_LEN; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        hash[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool read_id(struct mr_slice part, char id[MR_TOKEN_ID_LEN + 1])
{
    if (part.len != MR_TOKEN_ID_LEN || !copy_text(part, id, MR_TOKEN_ID_LEN + 1))
        return false;
    return strspn(id, "0123456789abcdef") == MR_TOKEN_ID_LEN;
}

static bool read_number(struct mr_slice part, int64_t *ret_number)
{
    char text[32];
    return copy_text(part, text, sizeof text) && mr_parse_int64(text, ret_number) == MR_OK &&
           *ret_number >= 0;
}

static bool read_priority(struct mr_slice part, struct mr_token *token)
{
    char text[64];
    if (!copy_text(part, text, sizeof text))
        return false;
    token->priority_limited = strcmp(text, "-") != 0;
    return !token->priority_limited || mr_parse_double(text, &token->priority_max_s) == MR_OK;
}

static bool read_line(struct mr_slice line, struct mr_token *token)
{
    enum { ID, ROLE, HASH, CREATED, REVOKED, PRIORITY, QUOTA, USED, PARTS };
    struct mr_slice parts[PARTS];
    for (size_t i = 0; i < PARTS; i++)
        if (!next_part(&line, ' ', &parts[i]))
            return false;
    int64_t quota, used;
    *token = (struct mr_token){.role = mr_role_parse(parts[ROLE])};
    bool good =
        read_id(parts[ID], token->id) && token->role != MR_ROLE_NONE &&
        read_hash(parts[HASH], token->hash) && read_number(parts[CREATED], &token->created_ms) &&
        read_number(parts[REVOKED], &token->revoked_ms) && read_priority(parts[PRIORITY], token) &&
        read_number(parts[QUOTA], &quota) && read_number(parts[USED], &used) &&
        mr_name_check(line) == MR_OK && copy_text(line, token->queue, sizeof token->queue);
    if (!good)
        return false;
    token->quota = (uint64_t)quota;
    token->used = (uint64_t)used;
    return true;
}

static enum mr_err read_head(struct mr_slice line, const char *path, struct mr_detail *detail)
{
    if (!mr_slice_starts_with(line, MR_SLICE_LIT(HEAD))) {
        mr_detail_set(detail, "%s: not a file of tokens", path);
        return MR_DAMAGED;
    }
    if (!mr_slice_equal(line, MR_SLICE_LIT(HEAD VERSION))) {
        mr_detail_set(detail, "%s: written by a newer version (%.*s)", path, (int)line.len,
                      (const char *)line.data);
        return MR_VERSION;
    }
    return MR_OK;
}

static enum mr_err parse(struct mr_slice text, const char *path, struct mr_token **ret_list,
                         size_t *ret_n, struct mr_detail *detail)
{
    struct mr_slice line = {0};
    size_t n = 0, lines = 0;
    for (size_t i = 0; i < text.len; i++)
        lines += ((const char *)text.data)[i] == '\n';
    if (!next_part(&text, '\n', &line))
        line = (struct mr_slice){0};
    MR_TRY(read_head(line, path, detail));
    struct mr_token *list = calloc(lines, sizeof *list);
    if (!list)
        return MR_NOMEM;
    while (text.len > 0) {
        bool whole = next_part(&text, '\n', &line);
        if (!whole || n == MR_TOKENS_MAX || !read_line(line, &list[n])) {
            mr_detail_set(detail, "%s: line %zu cannot be read", path, n + 2);
            free(list);
            return MR_DAMAGED;
        }
        n++;
    }
    *ret_list = list;
    *ret_n = n;
    return MR_OK;
}

static enum mr_err read_whole(struct mr_fs *fs, const char *path, struct mr_buf *buf)
{
    struct mr_file *file;
    uint64_t size;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_READ, &file));
    enum mr_err err = mr_file_size(file, &size);
    if (err == MR_OK && size > FILE_BYTES_MAX)
        err = MR_DAMAGED;
    if (err == MR_OK)
        err = mr_buf_reserve(buf, size);
    if (err == MR_OK && size > 0)
        err = mr_file_pread(file, buf->data, size, 0);
    if (err == MR_OK)
        buf->len = size;
    mr_file_close(file);
    return err;
}

enum mr_err tokens_file_read(struct mr_fs *fs, const char *dir, struct mr_token **ret_list,
                             size_t *ret_n, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    struct mr_buf buf = {0};
    MR_TRY(mr_path_join(path, dir, FILE_NAME));
    mr_detail_set(detail, "%s", ""); /* set by whoever knows more than the error says */
    enum mr_err err = read_whole(fs, path, &buf);
    if (err == MR_NOT_FOUND) {
        *ret_list = NULL;
        *ret_n = 0;
        return MR_OK;
    }
    if (err == MR_OK)
        err = parse(mr_buf_slice(&buf), path, ret_list, ret_n, detail);
    else
        mr_detail_set(detail, "%s: %s", path, mr_err_text(err));
    mr_buf_done(&buf);
    return err;
}

/* ---- writing -------------------------------------------------------------------------------- */

static enum mr_err print_token(struct mr_buf *buf, const struct mr_token *token)
{
    MR_TRY(mr_buf_printf(buf, "%s %s ", token->id, mr_role_name(token->role)));
    for (size_t i = 0; i < MR_TOKEN_HASH_LEN; i++)
        MR_TRY(mr_buf_printf(buf, "%02x", token->hash[i]));
    MR_TRY(mr_buf_printf(buf, " %lld %lld ", (long long)token->created_ms,
                         (long long)token->revoked_ms));
    if (token->priority_limited)
        MR_TRY(mr_buf_printf(buf, "%.17g", token->priority_max_s));
    else
        MR_TRY(mr_buf_append(buf, "-", 1));
    return mr_buf_printf(buf, " %llu %llu %s\n", (unsigned long long)token->quota,
                         (unsigned long long)token->used, token->queue);
}

static enum mr_err write_synced(struct mr_fs *fs, const char *path, struct mr_slice bytes)
{
    struct mr_file *file;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_CREATE_SECRET, &file));
    enum mr_err err = mr_file_pwrite(file, bytes.data, bytes.len, 0);
    if (err == MR_OK)
        err = mr_file_sync(file);
    mr_file_close(file);
    return err;
}

static enum mr_err replace(struct mr_fs *fs, const char *dir, struct mr_slice bytes)
{
    char tmp[MR_PATH_MAX], path[MR_PATH_MAX];
    MR_TRY(mr_path_join(tmp, dir, TMP_NAME));
    MR_TRY(mr_path_join(path, dir, FILE_NAME));
    enum mr_err err = fs->ops->remove(fs, tmp); /* left by an attempt that was killed */
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    MR_TRY(write_synced(fs, tmp, bytes));
    MR_TRY(fs->ops->rename(fs, tmp, path));
    return fs->ops->dir_sync(fs, dir);
}

enum mr_err tokens_file_write(struct mr_fs *fs, const char *dir, const struct mr_token *list,
                              size_t n, struct mr_detail *detail)
{
    struct mr_buf buf = {0};
    enum mr_err err = mr_buf_printf(&buf, "%s\n", HEAD VERSION);
    for (size_t i = 0; err == MR_OK && i < n; i++)
        err = print_token(&buf, &list[i]);
    if (err == MR_OK)
        err = fs->ops->dir_make(fs, dir);
    if (err == MR_OK)
        err = replace(fs, dir, mr_buf_slice(&buf));
    if (err != MR_OK)
        mr_detail_set(detail, "%s/%s: cannot be written: %s", dir, FILE_NAME, mr_err_text(err));
    mr_buf_done(&buf);
    return err;
}
