/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board: which run is in which slot, in memory that outlives the process. Only the death of the
 * process can be a task's fault; but the kernel writes the file back now and then, so that it may
 * also be found after a power cut. So it names the run of the machine it belongs to, and is believed
 * in no other. Where the nodes are processes of their own, what they run does not end with this
 * one: then the file stays empty and the slots are in memory that goes with the process.
 *
 *   0  "MRBOARD1"
 *   8  u32 version
 *   12 zero
 *   16 boot id (16); zero where the system has none
 *   32 zero
 *   64 u64 epoch of the run in each slot, 0: none
 */
#include "broker/embedded/store.h"

#include <stdlib.h>

enum {
    BOARD_VERSION = 1,
    BOARD_HEAD = 64,
    BOARD_BYTES = BOARD_HEAD + BOARD_SLOTS * 8,
    AT_VERSION = 8,
    AT_BOOT = 16,
};

static const char magic[8] = {'M', 'R', 'B', 'O', 'A', 'R', 'D', '1'};

/* Every byte must be readable before it is mapped: where a read fails, a look at mapped memory
 * kills. Zeroes are written to its end, since a hole has the same effect on a full disk. */
static enum mr_err make_whole(struct mr_file *file)
{
    uint8_t bytes[4096];
    uint64_t size;
    MR_TRY(mr_file_size(file, &size));
    for (uint64_t at = 0; at < BOARD_BYTES;) {
        size_t len = BOARD_BYTES - at < sizeof bytes ? (size_t)(BOARD_BYTES - at) : sizeof bytes;
        if (at >= size) {
            memset(bytes, 0, len);
            MR_TRY(mr_file_pwrite(file, bytes, len, at));
        } else {
            len = size - at < len ? (size_t)(size - at) : len;
            MR_TRY(mr_file_pread(file, bytes, len, at));
        }
        at += len;
    }
    return MR_OK;
}

static enum mr_err open_file(struct mr_engine *engine, const char *path)
{
    struct mr_fs *fs = engine->fs;
    enum mr_err err = mr_fs_open(fs, path, MR_OPEN_WRITE, &engine->board_file);
    if (err == MR_OK) {
        err = make_whole(engine->board_file);
        if (err != MR_IO)
            return err;
        /* What cannot be read names nobody. */
        mr_file_close(engine->board_file);
        engine->board_file = NULL;
        MR_TRY(fs->ops->remove(fs, path));
        err = MR_NOT_FOUND;
    }
    if (err != MR_NOT_FOUND)
        return err;
    MR_TRY(mr_fs_open(fs, path, MR_OPEN_CREATE, &engine->board_file));
    return make_whole(engine->board_file);
}

static void board_clear(struct mr_engine *engine)
{
    for (uint32_t i = 0; i < BOARD_SLOTS; i++)
        atomic_store_explicit(&engine->board[i], 0, memory_order_relaxed);
}

static bool is_board(const uint8_t *head)
{
    return memcmp(head, magic, sizeof magic) == 0;
}

static enum mr_err check_version(const uint8_t *head, const char *path, struct mr_detail *detail)
{
    uint32_t version = mr_load32(head + AT_VERSION);
    if (!is_board(head) || version <= BOARD_VERSION)
        return MR_OK;
    mr_detail_set(detail,
                  "%s: format version %u is newer than this program knows (%d); use a newer one",
                  path, version, BOARD_VERSION);
    return MR_VERSION;
}

/* One that is not there, too short, or cannot be read names nobody: opening makes another. */
enum mr_err board_check(struct mr_fs *fs, const char *dir, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    uint8_t head[BOARD_HEAD];
    struct mr_file *file;
    MR_TRY(mr_path_join(path, dir, "board"));
    if (mr_fs_open(fs, path, MR_OPEN_READ, &file) != MR_OK)
        return MR_OK;
    enum mr_err err = mr_file_pread(file, head, sizeof head, 0);
    mr_file_close(file);
    return err == MR_OK ? check_version(head, path, detail) : MR_OK;
}

enum mr_err board_open(struct mr_engine *engine, struct mr_detail *detail)
{
    char path[MR_PATH_MAX];
    void *memory;
    struct mr_uuid boot = {{0}};
    (void)engine->fs->ops->boot(engine->fs, &boot); /* without one every board is believed */
    MR_TRY(mr_path_join(path, engine->dir, "board"));
    MR_TRY(open_file(engine, path));
    MR_TRY(engine->fs->ops->map(engine->board_file, BOARD_BYTES, &memory));
    uint8_t *head = memory;
    engine->board = (_Atomic uint64_t *)(head + BOARD_HEAD);
    MR_TRY(check_version(head, path, detail));
    if (is_board(head) && memcmp(head + AT_BOOT, boot.bytes, sizeof boot.bytes) == 0)
        return MR_OK;
    engine->other_boot = true;
    board_clear(engine); /* before the head: a board that is believed was written in this boot */
    memset(head, 0, BOARD_HEAD);
    memcpy(head, magic, sizeof magic);
    mr_store32(head + AT_VERSION, BOARD_VERSION);
    memcpy(head + AT_BOOT, boot.bytes, sizeof boot.bytes);
    return MR_OK;
}

enum mr_err board_begin(struct mr_engine *engine)
{
    board_clear(engine);
    if (!engine->options.base.nodes_elsewhere)
        return MR_OK;
    engine->own_board = calloc(BOARD_SLOTS, sizeof *engine->own_board);
    if (engine->own_board == NULL)
        return MR_NOMEM;
    engine->board = engine->own_board;
    return MR_OK;
}
