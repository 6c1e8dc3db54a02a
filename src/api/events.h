/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events.Watch: a watcher is a place in the order in which things last changed (sample.h).
 */
#ifndef MR_API_EVENTS_H
#define MR_API_EVENTS_H

#include "api/sample.h"

enum { INTERVAL_MS = 1000, INTERVAL_MIN_MS = 100, WATCHERS_MAX = 1000 };

struct events {
    struct mr_api *api;
    struct mr_link watchers;
    size_t watchers_n;
    struct sampler sampler;
    struct errand errand; /* of its looks */
    mr_mono began;
    int64_t took_ns;       /* the last one */
    struct mr_timer timer; /* the next one */
};

struct watcher {
    struct stream head;
    struct mr_link link; /* in the events', once it has asked */
    struct valve valve;  /* nothing is read behind its question */
    struct events *events;
    char pattern[MR_NAME_MAX + 1];
    unsigned kinds; /* bits */
    int64_t interval_ms;
    mr_mono due;         /* not before this */
    bool started;        /* was told to begin */
    bool behind;         /* was too slow for all of it */
    uint64_t started_id; /* what went before this is none of its business */
    uint64_t told;       /* all up to this id */
};

#endif
