/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two clocks that cannot be mixed up. Monotonic time measures how long (leases, timeouts, waits);
 * wall time says when (due times, what people read) and may jump. Both come in through struct
 * mr_clock.
 */
#ifndef MR_BASE_CLOCK_H
#define MR_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some moment; never goes back. */
typedef struct {
    int64_t ns;
} mr_mono;

/* Microseconds since the Unix epoch; may jump. */
typedef struct {
    int64_t us;
} mr_wall;

#define MR_NS_PER_US  1000LL
#define MR_NS_PER_MS  1000000LL
#define MR_NS_PER_S   1000000000LL
#define MR_US_PER_MS  1000LL
#define MR_MS_PER_S   1000LL
#define MR_MS_PER_DAY 86400000LL

struct mr_clock {
    mr_mono (*mono)(struct mr_clock *clock);
    mr_wall (*wall)(struct mr_clock *clock);
};

/* The machine's clocks. Thread: any. */
struct mr_clock *mr_clock_system(void);

static inline mr_mono mr_mono_now(struct mr_clock *clock)
{
    return clock->mono(clock);
}
static inline mr_wall mr_wall_now(struct mr_clock *clock)
{
    return clock->wall(clock);
}
/* Rounds down. */
static inline int64_t mr_wall_ms(mr_wall wall)
{
    return wall.us >= 0 ? wall.us / MR_US_PER_MS : -((-wall.us + MR_US_PER_MS - 1) / MR_US_PER_MS);
}
#define MR_MONO_NEVER ((mr_mono){INT64_MAX})
/* What no clock will ever show is never: how long may have been said by others. */
static inline mr_mono mr_mono_add_ms(mr_mono at, int64_t ms)
{
    int64_t ns;
    if (__builtin_mul_overflow(ms, MR_NS_PER_MS, &ns) || __builtin_add_overflow(at.ns, ns, &ns))
        return ms > 0 ? MR_MONO_NEVER : (mr_mono){INT64_MIN};
    return (mr_mono){ns};
}

#endif
