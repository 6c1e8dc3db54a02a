/* SPDX-License-Identifier: Apache-2.0 */
/* CRC16 in the variant called XMODEM: polynomial 0x1021, starts at 0, high bits first. */
#include "redis/slot.h"

#include <string.h>

/* Half a byte a step: a tag is short, and the table stays in the cache. */
static const uint16_t steps[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef,
};

static uint16_t crc16(struct mr_slice bytes)
{
    const unsigned char *at = bytes.data;
    uint16_t crc = 0;
    for (size_t i = 0; i < bytes.len; i++) {
        crc = (uint16_t)(crc << 4 ^ steps[crc >> 12 ^ at[i] >> 4]);
        crc = (uint16_t)(crc << 4 ^ steps[crc >> 12 ^ (at[i] & 15)]);
    }
    return crc;
}

static struct mr_slice tag_of(struct mr_slice key)
{
    const char *text = key.data;
    const char *open = key.len > 0 ? memchr(text, '{', key.len) : NULL;
    if (open == NULL)
        return key;
    const char *tag = open + 1;
    const char *close = memchr(tag, '}', key.len - (size_t)(tag - text));
    if (close == NULL || close == tag)
        return key;
    return (struct mr_slice){tag, (size_t)(close - tag)};
}

uint16_t redis_slot(struct mr_slice key)
{
    return crc16(tag_of(key)) % REDIS_SLOTS;
}
