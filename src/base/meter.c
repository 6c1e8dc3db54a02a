/* SPDX-License-Identifier: Apache-2.0 */
#include "base/meter.h"

#include <stddef.h>

const uint64_t mr_meter_us[MR_METER_EDGES] = {
    100,    250,    500,     1000,    2500,    5000,     10000,    25000,    50000,     100000,
    250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000, 3600000000,
};

const uint64_t mr_meter_many[MR_METER_EDGES] = {
    1,    2,    4,    8,    16,    32,    64,    128,    256,    512,
    1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288,
};

void mr_meter_add(struct mr_meter *meter, const uint64_t edges[MR_METER_EDGES], int64_t size)
{
    uint64_t n = size > 0 ? (uint64_t)size : 0;
    size_t low = 0, high = MR_METER_EDGES; /* the first edge that is not below n */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (edges[middle] < n)
            low = middle + 1;
        else
            high = middle;
    }
    meter->counts[low]++;
    meter->sum += n;
}

uint64_t mr_meter_count(const struct mr_meter *meter)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= MR_METER_EDGES; i++)
        n += meter->counts[i];
    return n;
}
