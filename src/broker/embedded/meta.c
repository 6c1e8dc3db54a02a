/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meta file says what a store is. It holds the same 80 bytes twice, at 0 and at 4096, since
 * nothing can be read without them; and every segment of the log has them as its label:
 *
 *   0  "MRSTORE1"
 *   8  u32 version
 *   12 u32 salt
 *   16 id (16)
 *   32 hash key (16)
 *   48 u64 segment bytes
 *   56 zero
 *   76 u32 CRC32C of bytes 0..75
 *
 * A newer version may change all but the magic and where the version stands. One copy of it whose checksum is good
 * is enough to refuse the store; without that it may be a flipped bit, if the other copy is as we know it.
 *
 * A new store gets its first segment before its meta file, each durable before the next: so a meta
 * file without a log is damage, and a log without a meta file is either damage or, when nothing was
 * ever written to it, a store that died while it was made.
 */
#include "base/crc.h"
#include "broker/embedded/store.h"

enum { META_COPY_AT = 4096, META_VERSION = 1 };

static const char magic[8] = {'M', 'R', 'S', 'T', 'O', 'R', 'E', '1'};

void meta_encode(const struct meta *meta, uint8_t bytes[META_SIZE])
{
    memset(bytes, 0, META_SIZE);
    memcpy(bytes, magic, sizeof magic);
    mr_store32(bytes + 8, META_VERSION);
    mr_store32(bytes + 12, meta->salt);
    memcpy(bytes + 16, meta->store_id.bytes, 16);
    mr_store64(bytes + 32, meta->hash_key.k0);
    mr_store64(bytes + 40, meta->hash_key.k1);
    mr_store64(bytes + 48, meta->segment_bytes);
    mr_store32(bytes + 76, mr_crc32c(0, bytes, 76));
}

static bool is_whole(const uint8_t bytes[META_SIZE])
{
    return mr_load32(bytes + 76) == mr_crc32c(0, bytes, 76);
}

/* path: for the detail. */
static enum mr_err meta_decode(const uint8_t bytes[META_SIZE], const char *path,
                               struct meta *ret_meta, struct mr_detail *detail)
{
    if (memcmp(bytes, magic, sizeof magic) != 0) {
        mr_detail_set(detail, "%s: not a Millrace store; choose another folder", path);
        return MR_NOT_A_STORE;
    }
    if (mr_load32(bytes + 8) > META_VERSION) {
        mr_detail_set(
            detail, "%s: format version %u is newer than this program knows (%d); use a newer one",
            path, mr_load32(bytes + 8), META_VERSION);
        return MR_VERSION;
    }
    uint64_t segment_bytes = mr_load64(bytes + 48);
    if (!is_whole(bytes) || segment_bytes < MR_SEGMENT_BYTES_MIN || segment_bytes > UINT32_MAX) {
        mr_detail_set(detail, "%s at offset 0: damaged; restore this file from a backup", path);
        return MR_DAMAGED;
    }
    ret_meta->salt = mr_load32(bytes + 12);
    memcpy(ret_meta->store_id.bytes, bytes + 16, 16);
    ret_meta->hash_key = (struct mr_hash_key){mr_load64(bytes + 32), mr_load64(bytes + 40)};
    ret_meta->segment_bytes = (size_t)segment_bytes;
    return MR_OK;
}

struct copy {
    struct meta meta;
    enum mr_err err;
    bool whole;
    struct mr_detail why;
};

static enum mr_err copy_read(struct copy *copy, struct mr_file *file, uint64_t at, const char *path)
{
    uint8_t bytes[META_SIZE] = {0};
    uint64_t size;
    MR_TRY(mr_file_size(file, &size));
    size_t len = size > at + META_SIZE ? META_SIZE : size > at ? (size_t)(size - at) : 0;
    enum mr_err err = len > 0 ? mr_file_pread(file, bytes, len, at) : MR_OK;
    if (err == MR_IO) {
        mr_detail_set(&copy->why,
                      "%s at offset %llu: cannot be read; restore this file from a backup", path,
                      (unsigned long long)at);
        return MR_DAMAGED;
    }
    MR_TRY(err);
    copy->whole = is_whole(bytes);
    return meta_decode(bytes, path, &copy->meta, &copy->why);
}

/* The one that says more is believed. */
static int weight(const struct copy *copy)
{
    if (copy->err == MR_VERSION)
        return copy->whole ? 3 : 1;
    return copy->err == MR_OK ? 2 : 0;
}

enum mr_err meta_read(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                      struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    struct mr_file *file;
    struct copy copies[2] = {0};
    MR_TRY(mr_path_join(path, dir, "meta"));
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_READ, &file));
    for (size_t i = 0; i < 2; i++)
        copies[i].err = copy_read(&copies[i], file, i * META_COPY_AT, path);
    mr_file_close(file);
    size_t i = weight(&copies[1]) > weight(&copies[0]);
    if (copies[i].err != MR_OK) {
        mr_detail_set(detail, "%s", copies[i].why.text);
        return copies[i].err;
    }
    *ret_meta = copies[i].meta;
    ret_meta->half_damaged = copies[1 - i].err != MR_OK;
    return MR_OK;
}

enum mr_err meta_from_log(struct mr_fs *fs, const char *dir, struct meta *ret_meta,
                          struct mr_detail *detail)
{
    uint8_t label[MR_SEGMENT_LABEL];
    MR_TRY(mr_log_label(fs, dir, label));
    *ret_meta = (struct meta){0};
    return meta_decode(label, dir, ret_meta, detail);
}

static enum mr_err write_file(struct mr_fs *fs, const char *path, const void *bytes, size_t len)
{
    struct mr_file *file;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_CREATE, &file));
    enum mr_err err = mr_file_pwrite(file, bytes, len, 0);
    if (err == MR_OK)
        err = mr_file_sync(file);
    mr_file_close(file);
    return err;
}

enum mr_err meta_write(struct mr_fs *fs, const char *dir, const struct meta *meta)
{
    uint8_t bytes[META_COPY_AT + META_SIZE] = {0};
    char tmp[MR_PATH_MAX], path[MR_PATH_MAX];
    meta_encode(meta, bytes);
    meta_encode(meta, bytes + META_COPY_AT);
    MR_TRY(mr_path_join(tmp, dir, "tmp-meta"));
    MR_TRY(mr_path_join(path, dir, "meta"));
    enum mr_err err = fs->ops->remove(fs, tmp); /* left by an attempt that was killed */
    if (err != MR_OK && err != MR_NOT_FOUND)
        return err;
    MR_TRY(write_file(fs, tmp, bytes, sizeof bytes));
    MR_TRY(fs->ops->rename(fs, tmp, path));
    return fs->ops->dir_sync(fs, dir);
}

enum mr_err meta_create(struct mr_engine *engine, struct meta *meta)
{
    size_t segment_bytes = engine->options.base.segment_bytes;
    meta->segment_bytes = segment_bytes ? segment_bytes : MR_SEGMENT_BYTES_DEFAULT;
    meta->salt = (uint32_t)mr_rand_next(&engine->rand);
    meta->hash_key = (struct mr_hash_key){mr_rand_next(&engine->rand), mr_rand_next(&engine->rand)};
    mr_rand_bytes(&engine->rand, meta->store_id.bytes, sizeof meta->store_id.bytes);
    uint8_t label[META_SIZE];
    struct mr_log_options options = store_log_options(engine, meta, label);
    MR_TRY(mr_log_create(&options));
    return meta_write(engine->fs, engine->dir, meta);
}
