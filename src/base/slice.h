/* SPDX-License-Identifier: Apache-2.0 */
/* Borrowed bytes: comparison, little-endian fields, UTF-8 and name checks. */
#ifndef MR_BASE_SLICE_H
#define MR_BASE_SLICE_H

#include <string.h>

#include "base/err.h"

#define MR_SLICE_LIT(text) ((struct mr_slice){(text), sizeof(text) - 1})

static inline struct mr_slice mr_slice_make(const void *data, size_t len)
{
    return (struct mr_slice){data, len};
}

static inline bool mr_slice_equal(struct mr_slice a, struct mr_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Negative, zero or positive, bytewise, a prefix before its extensions. */
int mr_slice_compare(struct mr_slice a, struct mr_slice b);
bool mr_slice_starts_with(struct mr_slice text, struct mr_slice prefix);

bool mr_utf8_valid(struct mr_slice text);
/* The length of text, at most max, that cuts no character of it in two. */
size_t mr_utf8_cut(struct mr_slice text, size_t max);
/* Puts a question mark over each byte that is no part of a character. */
void mr_utf8_clean(void *text, size_t len);
/* Names of queues, types and the like: 1..MR_NAME_MAX bytes of UTF-8 without control characters or
 * braces. MR_INVALID or MR_TOO_BIG. */
MR_MUST_USE enum mr_err mr_name_check(struct mr_slice name);
/* The same, and detail (may be NULL) says of what, "queue", why it is none. */
MR_MUST_USE enum mr_err mr_name_check_of(const char *what, struct mr_slice name,
                                         struct mr_detail *detail);

/* FNV-1a: for tables, and for what others must find alike. More bytes: with the hash so far as seed. */
#define MR_FNV64_SEED  0xcbf29ce484222325ULL
#define MR_FNV64_PRIME 0x100000001b3ULL
static inline uint64_t mr_fnv64(uint64_t seed, struct mr_slice bytes)
{
    const uint8_t *at = bytes.data;
    for (size_t i = 0; i < bytes.len; i++)
        seed = (seed ^ at[i]) * MR_FNV64_PRIME;
    return seed;
}

/* Little-endian loads and stores at any alignment. */
static inline uint16_t mr_load16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t mr_load32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t mr_load64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void mr_store16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void mr_store32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}
static inline void mr_store64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "formats are little-endian; add byte swaps here for this machine"
#endif

#endif
