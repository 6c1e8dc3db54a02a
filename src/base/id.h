/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids. Tasks have a UUID (version 7) unless the caller chose an id. Every id is reduced to a
 * 16-byte key: the UUID's own bytes when the text is a canonical lower-case UUID, otherwise a keyed
 * 128-bit hash. For what is small and has an order there are 64-bit ids: 42 bits of milliseconds, 10
 * bits of node, 12 bits of counter; they go on rising when the clock is set back.
 */
#ifndef MR_BASE_ID_H
#define MR_BASE_ID_H

#include "base/clock.h"
#include "base/rand.h"
#include "base/slice.h"

enum { MR_UUID_TEXT_LEN = 36 };

struct mr_uuid {
    uint8_t bytes[16];
};

/* Version 7: 48 bits of now, the rest random. */
void mr_uuid_make(struct mr_uuid *uuid, mr_wall now, struct mr_rand *rand);
/* Writes 36 characters and a NUL. */
void mr_uuid_format(const struct mr_uuid *uuid, char text[MR_UUID_TEXT_LEN + 1]);
/* False unless text is a canonical lower-case UUID. */
bool mr_uuid_parse(struct mr_slice text, struct mr_uuid *ret_uuid);

/* SipHash-2-4 with 128 bits of output. */
struct mr_hash_key {
    uint64_t k0, k1;
};
struct mr_uuid mr_hash128(struct mr_hash_key key, struct mr_slice bytes);
/* A quick mix of 16 well spread bytes into a table hash. */
static inline uint64_t mr_uuid_hash(const struct mr_uuid *uuid)
{
    uint64_t x = mr_load64(uuid->bytes) ^ mr_load64(uuid->bytes + 8) * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ULL;
    return x ^ x >> 32;
}

/* Source of 64-bit ids for one node. */
struct mr_id_source {
    uint64_t last;
    uint16_t node; /* 0..1023 */
};
uint64_t mr_id_next(struct mr_id_source *source, mr_wall now);

#endif
