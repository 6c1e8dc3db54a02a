/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids: UUID version 7 (RFC 9562) and its text, SipHash-2-4 with 128 bits of output (Aumasson and
 * Bernstein), and 64-bit ids that rise. Format and parse run for every task, so they are plain
 * loops over tables.
 */
#include "base/id.h"

enum {
    ID_COUNTER_BITS = 12,
    ID_NODE_BITS = 10,
    ID_MS_SHIFT = ID_COUNTER_BITS + ID_NODE_BITS,
    ID_NODE_MAX = (1 << ID_NODE_BITS) - 1,
    ID_COUNTER_MAX = (1 << ID_COUNTER_BITS) - 1,
};
#define ID_MS_MAX ((1ULL << 42) - 1)
_Static_assert(ID_MS_SHIFT + 42 == 64, "milliseconds, node and counter fill the id");

/* ---- UUID ----------------------------------------------------------------------------------- */

void mr_uuid_make(struct mr_uuid *uuid, mr_wall now, struct mr_rand *rand)
{
    int64_t ms = mr_wall_ms(now);
    uint64_t time_bits = ms > 0 ? (uint64_t)ms & 0xffffffffffffULL : 0;
    uint64_t high = time_bits << 16 | 0x7000 | (mr_rand_next(rand) & 0xfff);
    uint64_t low = 2ULL << 62 | mr_rand_next(rand) >> 2;
    mr_store64(uuid->bytes, __builtin_bswap64(high));
    mr_store64(uuid->bytes + 8, __builtin_bswap64(low));
}

/* Where the two digits of each byte stand in the text. */
static const uint8_t uuid_digit_at[16] = {0,  2,  4,  6,  9,  11, 14, 16,
                                          19, 21, 24, 26, 28, 30, 32, 34};
static const uint8_t uuid_dash_at[4] = {8, 13, 18, 23};

void mr_uuid_format(const struct mr_uuid *uuid, char text[MR_UUID_TEXT_LEN + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 16; i++) {
        text[uuid_digit_at[i]] = digits[uuid->bytes[i] >> 4];
        text[uuid_digit_at[i] + 1] = digits[uuid->bytes[i] & 15];
    }
    for (size_t i = 0; i < 4; i++)
        text[uuid_dash_at[i]] = '-';
    text[MR_UUID_TEXT_LEN] = '\0';
}

/* Value of a lower-case hexadecimal digit with DIGIT set; 0 for any other byte. */
enum { DIGIT = 0x80 };
static const uint8_t hex_values[256] = {
    ['0'] = DIGIT | 0,  ['1'] = DIGIT | 1,  ['2'] = DIGIT | 2,  ['3'] = DIGIT | 3,
    ['4'] = DIGIT | 4,  ['5'] = DIGIT | 5,  ['6'] = DIGIT | 6,  ['7'] = DIGIT | 7,
    ['8'] = DIGIT | 8,  ['9'] = DIGIT | 9,  ['a'] = DIGIT | 10, ['b'] = DIGIT | 11,
    ['c'] = DIGIT | 12, ['d'] = DIGIT | 13, ['e'] = DIGIT | 14, ['f'] = DIGIT | 15,
};

bool mr_uuid_parse(struct mr_slice text, struct mr_uuid *ret_uuid)
{
    if (text.len != MR_UUID_TEXT_LEN)
        return false;
    const uint8_t *p = text.data;
    for (size_t i = 0; i < 4; i++) {
        if (p[uuid_dash_at[i]] != '-')
            return false;
    }
    struct mr_uuid uuid;
    uint8_t all = DIGIT;
    for (size_t i = 0; i < 16; i++) {
        uint8_t high = hex_values[p[uuid_digit_at[i]]];
        uint8_t low = hex_values[p[uuid_digit_at[i] + 1]];
        all &= high & low;
        uuid.bytes[i] = (uint8_t)(high << 4 | (low & 15));
    }
    if ((all & DIGIT) == 0)
        return false;
    *ret_uuid = uuid;
    return true;
}

/* ---- SipHash -------------------------------------------------------------------------------- */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static inline void sip_rounds(struct sip *sip, int n)
{
    for (int i = 0; i < n; i++) {
        sip->v0 += sip->v1;
        sip->v2 += sip->v3;
        sip->v1 = rotl(sip->v1, 13) ^ sip->v0;
        sip->v3 = rotl(sip->v3, 16) ^ sip->v2;
        sip->v0 = rotl(sip->v0, 32) + sip->v3;
        sip->v2 += sip->v1;
        sip->v1 = rotl(sip->v1, 17) ^ sip->v2;
        sip->v3 = rotl(sip->v3, 21) ^ sip->v0;
        sip->v2 = rotl(sip->v2, 32);
    }
}

static inline void sip_word(struct sip *sip, uint64_t word)
{
    sip->v3 ^= word;
    sip_rounds(sip, 2);
    sip->v0 ^= word;
}

struct mr_uuid mr_hash128(struct mr_hash_key key, struct mr_slice bytes)
{
    struct sip sip = {
        .v0 = key.k0 ^ 0x736f6d6570736575ULL,
        .v1 = key.k1 ^ 0x646f72616e646f6dULL ^ 0xee, /* 0xee marks the 128-bit variant */
        .v2 = key.k0 ^ 0x6c7967656e657261ULL,
        .v3 = key.k1 ^ 0x7465646279746573ULL,
    };
    const uint8_t *p = bytes.data;
    size_t left = bytes.len;
    for (; left >= 8; left -= 8, p += 8)
        sip_word(&sip, mr_load64(p));
    uint64_t last = (uint64_t)bytes.len << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)p[i] << (8 * i);
    sip_word(&sip, last);

    struct mr_uuid hash;
    sip.v2 ^= 0xee;
    sip_rounds(&sip, 4);
    mr_store64(hash.bytes, sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3);
    sip.v1 ^= 0xdd;
    sip_rounds(&sip, 4);
    mr_store64(hash.bytes + 8, sip.v0 ^ sip.v1 ^ sip.v2 ^ sip.v3);
    return hash;
}

/* ---- 64-bit ids ------------------------------------------------------------------------------ */

static uint64_t id_make(uint64_t ms, uint16_t node, uint64_t counter)
{
    return ms << ID_MS_SHIFT | (uint64_t)node << ID_COUNTER_BITS | counter;
}

/* When the clock stands still, was set back or the counter is used up, ids run ahead of the clock.
 */
uint64_t mr_id_next(struct mr_id_source *source, mr_wall now)
{
    mr_assert(source->node <= ID_NODE_MAX);
    int64_t ms = mr_wall_ms(now);
    uint64_t now_ms = ms < 0 ? 0 : (uint64_t)ms > ID_MS_MAX ? ID_MS_MAX : (uint64_t)ms;
    uint64_t last_ms = source->last >> ID_MS_SHIFT;
    uint64_t counter = source->last & ID_COUNTER_MAX;
    uint64_t id = 0;
    if (now_ms > last_ms)
        id = id_make(now_ms, source->node, 0);
    else if (counter < ID_COUNTER_MAX)
        id = id_make(last_ms, source->node, counter + 1);
    /* The counter is used up, or the last id came from a node with a higher number. */
    if (id <= source->last) {
        mr_assert(last_ms < ID_MS_MAX);
        id = id_make(last_ms + 1, source->node, 0);
    }
    source->last = id;
    return id;
}
