/* SPDX-License-Identifier: Apache-2.0 */
/* What the service consists of, for the files that answer for it. */
#ifndef MR_TIMER_SERVICE_INTERNAL_H
#define MR_TIMER_SERVICE_INTERNAL_H

#include "base/chan.h"
#include "timer/service.h"

struct mr_timer_service {
    struct mr_broker *broker; /* the caller's */
    struct mr_store *store;   /* likewise */
    struct mr_clock *clock;
    struct mr_timer_service_options options;
    struct mr_timer_settings settings;
    bool fires;
    _Atomic uint32_t asking; /* names of timers that an alarm waits for */
    struct mr_zones *zones;
    struct mr_exhibition *exhibition; /* NULL: the broker shows nothing */
    struct mr_alarm *alarm;           /* NULL: nobody is told */
    struct mr_timer_door *door;
    struct mr_copies *copies;   /* NULL: it keeps none */
    struct mr_replica *replica; /* NULL: it has none */
    struct mr_applier *applier;
    struct mr_scheduler *scheduler;
};

#endif
