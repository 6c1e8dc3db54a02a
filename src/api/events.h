/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events.Watch. While anybody watches, one sampler (sample.c) looks at the broker and keeps how every
 * thing is, in the order in which the things last changed. A watcher (events.c) is a place in that
 * order: what stands behind it is what it has not been told. So whoever reads slowly gets the newest,
 * costs nothing meanwhile, and holds nobody up.
 *
 * Things that went stay in the order until all have been told. When they are too many the oldest are
 * forgotten, and who has not been told begins anew.
 */
#ifndef MR_API_EVENTS_H
#define MR_API_EVENTS_H

#include "api/internal.h"

enum {
    INTERVAL_MS = 1000,
    INTERVAL_MIN_MS = 100,
    WATCHERS_MAX = 1000,
    GONE_MAX = 4096,
    QUEUES_PAGE = 1000,
    SAMPLE_SHARE = 10, /* a look takes at most one part in so many of the time */
};

/* The leader comes with the nodes. */
enum thing_kind { THING_QUEUE, THING_NODE, THING_SERVER, THING_LEADER, THING_COUNT };
enum { NODE_CLOSED = MR_NODE_STATE_COUNT }; /* the state of a node that has left */

struct server_state {
    bool disk_full, failed, upkeep;
};

struct thing {
    struct mr_link change; /* in the events' changes */
    struct mr_link place;  /* among those of its kind, by name or number; or among the gone */
    enum thing_kind kind;
    bool gone;
    uint64_t id; /* of its last change */
    int64_t time_ms;
    struct mr_queue_info queue;
    struct mr_node_info node;
    struct mr_arena memory; /* of the node's slices */
    struct server_state server;
    struct mr_leader leader;
    char leader_name[MR_NAME_MAX + 1]; /* behind it */
};

struct events {
    struct mr_api *api;
    struct mr_link watchers;
    size_t watchers_n;
    struct mr_link changes;            /* of all things, by id */
    struct mr_link known[THING_COUNT]; /* those that are there */
    struct mr_link gone;               /* by id */
    size_t gone_n;
    uint64_t forgotten; /* highest id of what is not remembered any more */
    /* The look at the broker that is under way. */
    struct job job;
    bool looks;
    mr_mono began;
    int64_t took_ns;    /* the last one */
    struct mr_link *at; /* among the known: what stands before it was there */
    struct mr_queue_info page[QUEUES_PAGE];
    struct mr_timer timer; /* the next one */
};

struct watcher {
    struct stream head;
    struct mr_link link; /* in the events', once it has asked */
    struct gate gate;    /* nothing is read behind its question */
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

/* ---- sample.c ------------------------------------------------------------------------------- */

/* Looks at the broker, unless a look is under way; events_looked is called behind it. */
void sample_begin(struct events *events);
/* Forgets things that went up to this id. */
void sample_forget(struct events *events, uint64_t id);
void things_free(struct events *events);

/* ---- events.c ------------------------------------------------------------------------------- */

/* Tells everybody who is due, and sees to the next look; or ends it all when nobody watches. */
void events_looked(struct events *events);

#endif
