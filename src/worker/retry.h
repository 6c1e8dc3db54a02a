/* SPDX-License-Identifier: Apache-2.0 */
/* How long a failed task waits for its next run. */
#ifndef MR_WORKER_RETRY_H
#define MR_WORKER_RETRY_H

#include "base/rand.h"

/* The first of these that is set decides: the caller's function, the levels, the exponential
 * default. */
struct mr_retry {
    mr_retry_delay *delay;
    void *arg;
    const int64_t *levels_ms;
    size_t levels_n;
    int64_t max_ms; /* of the default */
};

/* Delay in ms after the n-th failure (1, 2, ...) of task; never negative. */
int64_t mr_retry_delay_ms(const struct mr_retry *retry, const struct mr_task *task, uint32_t n,
                          struct mr_rand *rand);

#endif
