/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The default doubles from 2 s on and is spread by half of itself to both sides, so that tasks
 * which failed together do not come back together. The spread never leaves the limit: at it, the
 * delays are even between half of it and itself instead of all being the same.
 */
#include "worker/retry.h"

#include "base/clock.h"

enum { SHIFT_MAX = 40 }; /* 2^40 s is beyond every limit and far from overflow in ms */

static int64_t exponential(int64_t max_ms, uint32_t n, struct mr_rand *rand)
{
    int64_t middle = (1LL << (n < SHIFT_MAX ? n : SHIFT_MAX)) * MR_MS_PER_S;
    if (middle > max_ms)
        middle = max_ms;
    int64_t low = middle / 2;
    int64_t high = middle + middle / 2;
    if (high > max_ms)
        high = max_ms;
    return low + (int64_t)mr_rand_below(rand, (uint64_t)(high - low) + 1);
}

int64_t mr_retry_delay_ms(const struct mr_retry *retry, const struct mr_task *task, uint32_t n,
                          struct mr_rand *rand)
{
    mr_assert(n > 0);
    if (retry->delay) {
        int64_t delay = retry->delay(task, n, retry->arg);
        return delay > 0 ? delay : 0;
    }
    if (retry->levels_n > 0)
        return retry->levels_ms[n < retry->levels_n ? n - 1 : retry->levels_n - 1];
    return exponential(retry->max_ms, n, rand);
}
