/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a zone's offset, for tests that go through all of them. */
#ifndef MR_TESTS_ZONE_CHANGES_H
#define MR_TESTS_ZONE_CHANGES_H

#include "timer/internal.h"

/* The first change after unix_s; INT64_MAX when there is none any more. */
static inline int64_t zone_next_change(const struct mr_zone *zone, int64_t unix_s)
{
    size_t i = 1; /* the first one has been in force always */
    while (i < zone->count && zone->changes[i].at <= unix_s)
        i++;
    return i < zone->count ? zone->changes[i].at : INT64_MAX;
}

#endif
