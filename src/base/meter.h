/* SPDX-License-Identifier: Apache-2.0 */
/* How often a size fell between which edges, since the start: for figures that others add up. Thread: the owner. */
#ifndef MR_BASE_METER_H
#define MR_BASE_METER_H

#include <stdint.h>

enum { MR_METER_EDGES = 20 };

/* Zero-initialised is empty. */
struct mr_meter {
    uint64_t counts[MR_METER_EDGES + 1]; /* to this edge, above the one before; last: above all */
    uint64_t sum;
};

/* Edges, in rising order: of times, 100 us to an hour, and of how many, by powers of two. */
extern const uint64_t mr_meter_us[MR_METER_EDGES];
extern const uint64_t mr_meter_many[MR_METER_EDGES];

/* Less than nothing counts as nothing. */
void mr_meter_add(struct mr_meter *meter, const uint64_t edges[MR_METER_EDGES], int64_t size);
uint64_t mr_meter_count(const struct mr_meter *meter);

#endif
