/* SPDX-License-Identifier: Apache-2.0 */
/* How long answers took, by route and status. There are few pairs of them; the last one is mostly the next, too. */
#include <stdlib.h>

#include "api/http_internal.h"

static bool is_for(const struct http_timing *timing, const struct mr_http_route *route, int status)
{
    return timing->route == route && timing->status == status;
}

static struct http_timing *find(struct http_timings *timings, const struct mr_http_route *route,
                                int status)
{
    if (timings->recent < timings->n && is_for(&timings->at[timings->recent], route, status))
        return &timings->at[timings->recent];
    for (size_t i = 0; i < timings->n; i++)
        if (is_for(&timings->at[i], route, status)) {
            timings->recent = i;
            return &timings->at[i];
        }
    return NULL;
}

/* NULL: there are enough, or no memory for another. */
static struct http_timing *add(struct http_timings *timings, const struct mr_http_route *route,
                               int status)
{
    if (timings->n == timings->cap) {
        size_t cap = timings->cap > 0 ? 2 * timings->cap : 16;
        struct http_timing *grown =
            cap <= HTTP_TIMINGS_MAX ? realloc(timings->at, cap * sizeof *grown) : NULL;
        if (grown == NULL)
            return NULL;
        timings->at = grown;
        timings->cap = cap;
    }
    timings->at[timings->n] = (struct http_timing){.route = route, .status = status};
    return &timings->at[timings->n++];
}

void mr_http_api_observe(const struct mr_http_route *route, int status, int64_t us, void *arg)
{
    struct mr_http_api *api = arg;
    struct http_timing *timing = find(&api->timings, route, status);
    if (timing == NULL)
        timing = add(&api->timings, route, status);
    if (timing != NULL)
        mr_meter_add(&timing->us, mr_meter_us, us);
}
