/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/latency.h"

#include <stdlib.h>

#define WINDOW_NS (30 * MR_MS_PER_S * MR_NS_PER_MS)

struct latency {
    mr_mono since; /* the current window began */
    unsigned current;
    struct mr_hist windows[2][LATENCY_KINDS];
    struct mr_meter all[LATENCY_KINDS];
};

/* The older window goes when the newer one is full; both when nobody looked for so long. */
static void turn(struct latency *latency, mr_mono now)
{
    int64_t age_ns = now.ns - latency->since.ns;
    if (age_ns < WINDOW_NS)
        return;
    for (int i = 0; i < (age_ns < 2 * WINDOW_NS ? 1 : 2); i++) {
        latency->current ^= 1;
        for (int kind = 0; kind < LATENCY_KINDS; kind++)
            latency->windows[latency->current][kind] = (struct mr_hist){0};
    }
    latency->since = now;
}

void latency_note(struct latency **latency, enum latency_kind kind, mr_mono now, int64_t us)
{
    if (*latency == NULL) {
        *latency = calloc(1, sizeof **latency);
        if (*latency == NULL)
            return;
        (*latency)->since = now;
    }
    turn(*latency, now);
    mr_hist_add(&(*latency)->windows[(*latency)->current][kind], us);
    mr_meter_add(&(*latency)->all[kind], mr_meter_us, us);
}

void latency_meters(const struct latency *latency, struct mr_queue_meters *meters)
{
    if (latency == NULL)
        return;
    meters->wait_us = latency->all[LATENCY_WAIT];
    meters->run_us = latency->all[LATENCY_RUN];
}

static const struct {
    size_t offset;
    enum latency_kind kind;
    unsigned percent;
} shown[] = {
    {offsetof(struct mr_queue_info, wait_p50_us), LATENCY_WAIT, 50},
    {offsetof(struct mr_queue_info, wait_p99_us), LATENCY_WAIT, 99},
    {offsetof(struct mr_queue_info, run_p50_us), LATENCY_RUN, 50},
    {offsetof(struct mr_queue_info, run_p99_us), LATENCY_RUN, 99},
};

void latency_show(struct latency *latency, mr_mono now, struct mr_queue_info *info)
{
    if (latency == NULL)
        return;
    turn(latency, now);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        *(uint64_t *)(void *)((char *)info + shown[i].offset) =
            mr_hist_percentile_us(&latency->windows[0][shown[i].kind],
                                  &latency->windows[1][shown[i].kind], shown[i].percent);
}

void latency_free(struct latency *latency)
{
    free(latency);
}
