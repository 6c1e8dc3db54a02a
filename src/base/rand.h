/* SPDX-License-Identifier: Apache-2.0 */
/* Chance, passed in where it is needed: xoshiro256**, seeded by the system or by a test. Not for
 * secrets. */
#ifndef MR_BASE_RAND_H
#define MR_BASE_RAND_H

#include "base/err.h"

struct mr_rand {
    uint64_t s[4];
};

void mr_rand_seed(struct mr_rand *rand, uint64_t seed);
/* From the operating system. */
void mr_rand_seed_system(struct mr_rand *rand);
/* One that every thread has for itself, seeded so. */
struct mr_rand *mr_rand_of_thread(void);
uint64_t mr_rand_next(struct mr_rand *rand);
/* Even in 0 .. n-1; n > 0. */
uint64_t mr_rand_below(struct mr_rand *rand, uint64_t n);
/* True in one of n cases. */
static inline bool mr_rand_one_in(struct mr_rand *rand, uint64_t n)
{
    return mr_rand_below(rand, n) == 0;
}
void mr_rand_bytes(struct mr_rand *rand, void *bytes, size_t len);

#endif
