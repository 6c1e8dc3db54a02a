/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot reader: the input is a list of edits (u16 offset, u8 length, bytes) of the newest
 * snapshot of a good store, made behind its sectors and parity. Checksums of its blocks are made
 * right again unless the first bit of the input says not to.
 */
#include "broker/embedded/embedded.h"
#include "fuzz/store_image.h"
#include "sim/rig.h"

static void edit(struct fuzz_in *in, struct mr_buf *snap)
{
    while (in->left > 3) {
        size_t offset = fuzz_u8(in);
        offset = offset << 8 | fuzz_u8(in);
        struct mr_slice bytes = fuzz_bytes(in, fuzz_u8(in) % 32);
        if (bytes.len > 0 && offset + bytes.len <= snap->len)
            memcpy(snap->data + offset, bytes.data, bytes.len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct simfs *fs = simfs_clone(image_template());
    struct mr_buf snap = {0};
    size_t file = image_file(fs, "snap-");
    mr_assert(file != SIZE_MAX);
    uint8_t choice = fuzz_u8(&in);
    uint32_t salt = image_salt(fs);
    image_read_snapshot(fs, file, salt, &snap);
    mr_assert(snap.len > 0);
    edit(&in, &snap);
    if ((choice & 1) == 0)
        image_reseal_blocks(&snap, salt);
    image_write_snapshot(fs, file, salt, &snap);
    image_open(fs, choice & 2);
    mr_buf_done(&snap);
    simfs_free(fs);
    return 0;
}
