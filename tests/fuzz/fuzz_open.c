/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole store: the input is a list of things done to the files of a good one (overwritten, cut,
 * lost, swapped), with checksums of records made right again or not. Then it is opened, looked at
 * and worked on.
 */
#include "broker/embedded/embedded.h"
#include "fuzz/store_image.h"
#include "sim/rig.h"

enum { EDITS_MAX = 32 };

enum edit { EDIT_WRITE, EDIT_FLIP, EDIT_CUT, EDIT_LOSE, EDIT_RESEAL, EDIT_COPY, EDIT_COUNT };

static void copy_bytes(struct simfs *fs, size_t from, size_t to, uint64_t offset)
{
    uint8_t bytes[SIMFS_SECTOR];
    if (offset + sizeof bytes > simfs_file_size(fs, from) ||
        offset + sizeof bytes > simfs_file_size(fs, to))
        return;
    memcpy(bytes, simfs_file_data(fs, from) + offset, sizeof bytes);
    simfs_overwrite(fs, to, offset, bytes, sizeof bytes);
}

static void reseal_all(struct simfs *fs, uint32_t salt)
{
    for (size_t i = 0; i < simfs_file_count(fs); i++)
        if (strstr(simfs_file_path(fs, i), "snap-") == NULL)
            image_reseal_segment(fs, i, salt);
}

static void edit_once(struct simfs *fs, struct fuzz_in *in, uint32_t salt)
{
    enum edit edit = (enum edit)(fuzz_u8(in) % EDIT_COUNT);
    size_t file = fuzz_u8(in) % simfs_file_count(fs);
    uint64_t size = simfs_file_size(fs, file);
    uint64_t offset = fuzz_u8(in);
    offset = offset << 8 | fuzz_u8(in);
    struct mr_slice bytes = fuzz_bytes(in, edit == EDIT_WRITE ? fuzz_u8(in) % 64 : 0);
    if (edit == EDIT_WRITE && bytes.len > 0 && offset + bytes.len <= size)
        simfs_overwrite(fs, file, offset, bytes.data, bytes.len);
    else if (edit == EDIT_FLIP && offset < size)
        simfs_flip_bit(fs, file, offset * 8 + fuzz_u8(in) % 8);
    else if (edit == EDIT_CUT && offset < size)
        simfs_cut(fs, file, offset);
    else if (edit == EDIT_LOSE && simfs_file_count(fs) > 1)
        simfs_lose(fs, file);
    else if (edit == EDIT_COPY)
        copy_bytes(fs, file, fuzz_u8(in) % simfs_file_count(fs), offset & ~(uint64_t)511);
    else if (edit == EDIT_RESEAL)
        reseal_all(fs, salt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct simfs *fs = simfs_clone(image_template());
    uint32_t salt = image_salt(fs);
    uint8_t choice = fuzz_u8(&in);
    for (int i = 0; i < EDITS_MAX && in.left > 0; i++)
        edit_once(fs, &in, salt);
    if (choice & 2)
        reseal_all(fs, salt);
    image_open(fs, choice & 1);
    simfs_free(fs);
    return 0;
}
