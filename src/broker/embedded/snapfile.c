/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/embedded/snapfile.h"

#include <stdio.h>

#include "base/crc.h"

static const char magic[8] = {'M', 'R', 'S', 'N', 'A', 'P', '0', '1'};

void snap_head_make(uint8_t head[SNAP_FILE_HEAD])
{
    memset(head, 0, SNAP_FILE_HEAD);
    memcpy(head, magic, sizeof magic);
    mr_store32(head + 8, SNAP_VERSION);
}

enum mr_err snap_head_check(const uint8_t head[SNAP_FILE_HEAD])
{
    if (memcmp(head, magic, sizeof magic) != 0 || mr_load32(head + 12) != 0 ||
        mr_load32(head + 8) == 0)
        return MR_DAMAGED;
    return mr_load32(head + 8) > SNAP_VERSION ? MR_VERSION : MR_OK;
}

void snap_block_seal(uint8_t *block, size_t body_len, enum snap_block type, uint32_t salt)
{
    mr_assert(body_len <= SNAP_BLOCK_MAX);
    mr_store32(block + 4, (uint32_t)body_len);
    mr_store32(block + 8, type);
    mr_store32(block + 12, 0);
    mr_store32(block, mr_crc32c(salt, block + 4, SNAP_BLOCK_HEAD - 4 + body_len));
}

bool snap_block_ok(const uint8_t *block, size_t body_len, uint32_t salt)
{
    return mr_load32(block) == mr_crc32c(salt, block + 4, SNAP_BLOCK_HEAD - 4 + body_len);
}

enum mr_err snap_path(const char *dir, uint64_t seq, char path[MR_PATH_MAX])
{
    char name[40];
    snprintf(name, sizeof name, "snap-%016llx", (unsigned long long)seq);
    return mr_path_join(path, dir, name);
}
