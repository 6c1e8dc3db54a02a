/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share: the entry point, and reading choices off the front of the input. A
 * target fails by mr_assert; inputs are judged, never trusted. Thread: one.
 */
#ifndef MR_TESTS_FUZZ_H
#define MR_TESTS_FUZZ_H

#include "base/slice.h"

/* Called once per input, by libFuzzer or by replay_main.c. Always answers 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_in {
    const uint8_t *at;
    size_t left;
};

/* Up to len bytes off the front. */
static inline struct mr_slice fuzz_bytes(struct fuzz_in *in, size_t len)
{
    if (len > in->left)
        len = in->left;
    struct mr_slice bytes = mr_slice_make(in->at, len);
    in->at += len;
    in->left -= len;
    return bytes;
}

/* Numbers; missing bytes count as zero. */
static inline uint64_t fuzz_u64(struct fuzz_in *in)
{
    uint64_t value = 0;
    struct mr_slice bytes = fuzz_bytes(in, sizeof value);
    if (bytes.len > 0)
        memcpy(&value, bytes.data, bytes.len);
    return value;
}

static inline uint8_t fuzz_u8(struct fuzz_in *in)
{
    struct mr_slice bytes = fuzz_bytes(in, 1);
    return bytes.len > 0 ? *(const uint8_t *)bytes.data : 0;
}

/* Whether inner lies within outer. */
static inline bool fuzz_within(struct mr_slice inner, struct mr_slice outer)
{
    if (inner.len == 0)
        return true;
    const uint8_t *in = inner.data, *out = outer.data;
    return in >= out && in + inner.len <= out + outer.len;
}

#endif
