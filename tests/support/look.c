/* SPDX-License-Identifier: Apache-2.0 */
#include "support/look.h"

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>

enum { LOOK_MIN_MS = 1, LOOK_MAX_MS = 16, LOOK_SHARE = 16 }; /* of what has been waited */

int64_t look_waited_ms(mr_mono since)
{
    return (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
}

int64_t look_most_ms(int64_t ms)
{
    const char *times = getenv("MR_PATIENCE");
    return ms * (times != NULL ? strtol(times, NULL, 10) : 1);
}

bool look_again(mr_mono since, int64_t most_ms)
{
    int64_t waited_ms = look_waited_ms(since), ms = waited_ms / LOOK_SHARE;
    if (waited_ms > look_most_ms(most_ms))
        return false;
    ms = ms < LOOK_MIN_MS ? LOOK_MIN_MS : ms > LOOK_MAX_MS ? LOOK_MAX_MS : ms;
    (void)poll(NULL, 0, (int)ms);
    return true;
}
