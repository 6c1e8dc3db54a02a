/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot reader: the input is a list of edits (u16 offset, u8 length, bytes) of the newest
 * snapshot of a good store, whose checksums are made right again unless the first bit of the input
 * says not to.
 */
#include "fuzz/store_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    struct simfs *fs = simfs_clone(image_template());
    size_t file = image_file(fs, "snap-");
    mr_assert(file != SIZE_MAX);
    uint8_t choice = fuzz_u8(&in);
    uint32_t salt = image_salt(fs);
    while (in.left > 3) {
        uint64_t offset = fuzz_u8(&in);
        offset = (offset << 8 | fuzz_u8(&in)) % simfs_file_size(fs, file);
        struct mr_slice bytes = fuzz_bytes(&in, fuzz_u8(&in) % 32);
        if (offset + bytes.len <= simfs_file_size(fs, file))
            simfs_overwrite(fs, file, offset, bytes.data, bytes.len);
    }
    if ((choice & 1) == 0)
        image_reseal_snapshot(fs, file, salt);
    image_open(fs, choice & 2);
    simfs_free(fs);
    return 0;
}
