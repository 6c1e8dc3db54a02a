/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xoshiro256** (Blackman and Vigna), seeded through splitmix64 so that similar seeds give unrelated
 * streams. Invariant: the state is never all zero.
 */
#include "base/rand.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

void mr_rand_seed(struct mr_rand *rand, uint64_t seed)
{
    for (size_t i = 0; i < 4; i++)
        rand->s[i] = splitmix64(&seed);
}

/* Without getrandom (an old kernel, a strict sandbox) time, process and address must do: nothing
 * here is secret, two processes must only differ. */
static uint64_t seed_of_last_resort(const void *address)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t mix = (uint64_t)now.tv_sec * 1000000007ULL + (uint64_t)now.tv_nsec;
    mix = splitmix64(&mix) ^ (uint64_t)getpid();
    return splitmix64(&mix) ^ (uint64_t)(uintptr_t)address;
}

void mr_rand_seed_system(struct mr_rand *rand)
{
    /* 32 bytes come whole or not at all once the kernel's pool is ready. */
    ssize_t got = getrandom(rand->s, sizeof rand->s, 0);
    if (got != sizeof rand->s || (rand->s[0] | rand->s[1] | rand->s[2] | rand->s[3]) == 0)
        mr_rand_seed(rand, seed_of_last_resort(rand));
}

struct mr_rand *mr_rand_of_thread(void)
{
    static _Thread_local struct mr_rand rand;
    static _Thread_local bool seeded;
    if (!seeded)
        mr_rand_seed_system(&rand);
    seeded = true;
    return &rand;
}

uint64_t mr_rand_next(struct mr_rand *rand)
{
    uint64_t *s = rand->s;
    uint64_t result = rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return result;
}

/* The high half of a 128-bit product is even once the few low halves that would favour some results
 * are drawn again (Lemire). */
uint64_t mr_rand_below(struct mr_rand *rand, uint64_t n)
{
    mr_assert(n > 0);
    unsigned __int128 product = (unsigned __int128)mr_rand_next(rand) * n;
    if ((uint64_t)product < n) {
        uint64_t unfair = -n % n;
        while ((uint64_t)product < unfair)
            product = (unsigned __int128)mr_rand_next(rand) * n;
    }
    return (uint64_t)(product >> 64);
}

void mr_rand_bytes(struct mr_rand *rand, void *bytes, size_t len)
{
    uint8_t *p = bytes;
    while (len > 0) {
        uint64_t chunk = mr_rand_next(rand);
        size_t n = len < sizeof chunk ? len : sizeof chunk;
        memcpy(p, &chunk, n);
        p += n;
        len -= n;
    }
}
