/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's clocks. */
#include "base/clock.h"

#include <time.h>

#include "base/err.h"

static struct timespec read_clock(clockid_t id)
{
    struct timespec now;
    /* Both clocks exist on every Linux; failing would mean a bad pointer. */
    int failed = clock_gettime(id, &now);
    mr_assert(!failed);
    return now;
}

static mr_mono system_mono(struct mr_clock *clock)
{
    (void)clock;
    struct timespec now = read_clock(CLOCK_MONOTONIC);
    return (mr_mono){now.tv_sec * MR_NS_PER_S + now.tv_nsec};
}

static mr_wall system_wall(struct mr_clock *clock)
{
    (void)clock;
    struct timespec now = read_clock(CLOCK_REALTIME);
    return (mr_wall){now.tv_sec * (MR_NS_PER_S / MR_NS_PER_US) + now.tv_nsec / MR_NS_PER_US};
}

struct mr_clock *mr_clock_system(void)
{
    static struct mr_clock clock = {.mono = system_mono, .wall = system_wall};
    return &clock;
}
