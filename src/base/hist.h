/* SPDX-License-Identifier: Apache-2.0 */
/* Times by size: four buckets to a factor of two, from 4 microseconds to days. Thread: the owner. */
#ifndef MR_BASE_HIST_H
#define MR_BASE_HIST_H

#include <stdint.h>

enum { MR_HIST_BUCKETS = 160 }; /* the last one is for everything above 9 days */

/* Zero-initialised is empty. */
struct mr_hist {
    uint32_t counts[MR_HIST_BUCKETS]; /* stop at their maximum */
};

void mr_hist_add(struct mr_hist *hist, int64_t us);
/* So many percent took no longer than this: the upper edge of a bucket, 0 when nothing is there. also
 * is counted in; may be NULL. */
uint64_t mr_hist_percentile_us(const struct mr_hist *hist, const struct mr_hist *also,
                               unsigned percent);

#endif
