/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hist.h"

#include <stddef.h>

enum { PER_OCTAVE = 4, LEAST_US = 4 };

static size_t bucket_of(int64_t time_us)
{
    uint64_t us = time_us < LEAST_US ? LEAST_US : (uint64_t)time_us;
    unsigned log2 = 63 - (unsigned)__builtin_clzll(us);
    size_t bucket = PER_OCTAVE * log2 + ((us >> (log2 - 2)) & (PER_OCTAVE - 1));
    return bucket < MR_HIST_BUCKETS ? bucket : MR_HIST_BUCKETS - 1;
}

static uint64_t upper_edge_us(size_t bucket)
{
    unsigned log2 = (unsigned)bucket / PER_OCTAVE;
    return ((uint64_t)1 << log2) + ((uint64_t)(bucket % PER_OCTAVE + 1) << log2) / PER_OCTAVE;
}

void mr_hist_add(struct mr_hist *hist, int64_t us)
{
    uint32_t *count = &hist->counts[bucket_of(us)];
    *count += *count != UINT32_MAX;
}

static uint64_t count_at(const struct mr_hist *hist, const struct mr_hist *also, size_t i)
{
    return (uint64_t)hist->counts[i] + (also != NULL ? also->counts[i] : 0);
}

uint64_t mr_hist_percentile_us(const struct mr_hist *hist, const struct mr_hist *also,
                               unsigned percent)
{
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < MR_HIST_BUCKETS; i++)
        total += count_at(hist, also, i);
    uint64_t rank = (total * percent + 99) / 100;
    for (size_t i = 0; i < MR_HIST_BUCKETS && rank > 0; i++) {
        seen += count_at(hist, also, i);
        if (seen >= rank)
            return upper_edge_us(i);
    }
    return 0;
}
