/* SPDX-License-Identifier: Apache-2.0 */
/* Local time by the C library. */
#include "timer/libc.h"

#include <stdlib.h>
#include <time.h>

#include "base/err.h"

#define FIRST_S -40000000LL  /* 1968 */
#define LAST_S  7290000000LL /* 2201 */
#define PROBE_S (5 * 3600LL) /* two changes are never nearer than that */
#define NEAR_S  (3 * 86400LL)

void libc_use(const char *name)
{
    mr_assert(setenv("TZ", name, 1) == 0);
    tzset();
}

int libc_offset(int64_t unix_s)
{
    time_t at = (time_t)unix_s;
    struct tm tm;
    mr_assert(localtime_r(&at, &tm) != NULL);
    return (int)tm.tm_gmtoff;
}

/* The first moment in (low, high] with another offset than at low. */
static int64_t find_change(int64_t low, int64_t high)
{
    int before = libc_offset(low);
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (libc_offset(middle) == before)
            low = middle;
        else
            high = middle;
    }
    return high;
}

void libc_find(struct libc_zone *zone, const char *name)
{
    libc_use(name);
    zone->name = name;
    zone->count = 1;
    zone->seen = 0;
    zone->spans[0] = (struct libc_span){INT64_MIN, INT64_MAX, libc_offset(FIRST_S)};
    for (int64_t at = FIRST_S; at < LAST_S; at += PROBE_S) {
        struct libc_span *span = &zone->spans[zone->count - 1];
        if (libc_offset(at + PROBE_S) == span->offset)
            continue;
        mr_assert(zone->count < LIBC_CHANGES_MAX);
        span->end = find_change(at, at + PROBE_S);
        zone->spans[zone->count++] =
            (struct libc_span){span->end, INT64_MAX, libc_offset(span->end)};
    }
}

size_t libc_span_at(struct libc_zone *zone, int64_t unix_s)
{
    const struct libc_span *seen = &zone->spans[zone->seen];
    if (unix_s >= seen->begin && unix_s < seen->end)
        return zone->seen;
    size_t low = 0, high = zone->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (zone->spans[middle].begin <= unix_s)
            low = middle;
        else
            high = middle;
    }
    return zone->seen = low;
}

int64_t libc_firing(struct libc_zone *zone, int64_t local_s)
{
    size_t first = libc_span_at(zone, local_s - NEAR_S);
    for (size_t i = first; i < zone->count && zone->spans[i].begin < local_s + NEAR_S; i++) {
        int64_t at = local_s - zone->spans[i].offset;
        if (at >= zone->spans[i].begin && at < zone->spans[i].end)
            return at;
    }
    for (size_t i = first; i + 1 < zone->count; i++) {
        int64_t gap_begin = zone->spans[i].end + zone->spans[i].offset;
        int64_t gap_end = zone->spans[i].end + zone->spans[i + 1].offset;
        if (local_s >= gap_begin && local_s < gap_end)
            return zone->spans[i].end;
    }
    mr_assert(!"a local time is shown, or in a gap");
    return 0;
}
