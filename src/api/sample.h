/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to see at a broker: while anybody watches, one sampler looks and keeps how every thing is, in the order in
 * which the things last changed. Who watches is a place in that order: what stands behind it is what it has not been told. So
 * whoever reads slowly gets the newest, costs nothing meanwhile, and holds nobody up.
 *
 * Things that went stay in the order until they are forgotten: by the sampler's owner, when all have been told, or when they
 * are too many; who has not been told by then begins anew.
 *
 * Events.Watch (events.c) has one on the loop of the rpc, /events (http_events.c) one on the thread of HTTP. Thread: its
 * owner's.
 */
#ifndef MR_API_SAMPLE_H
#define MR_API_SAMPLE_H

#include "api/internal.h"

enum {
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
    struct mr_link change; /* in the sampler's changes */
    struct mr_link place;  /* among those of its kind, by name or number; or among the gone */
    enum thing_kind kind;
    bool gone;
    uint64_t id; /* of its last change */
    int64_t time_ms;
    struct mr_queue_info queue;
    struct mr_node_info node;
    struct mr_arena memory; /* of the node's slices */
    bool drains;            /* the node ends, as its slots say */
    struct server_state server;
    struct mr_leader leader;
    char leader_name[MR_NAME_MAX + 1]; /* behind it */
    struct mr_buf text;                /* what the owner has made of it, freed with it */
    uint64_t text_id;                  /* of the change that is told by it */
};

struct sampler;

struct sampler_ops {
    /* Asks the broker what stands in req; sample_back is called with the answer. */
    void (*submit)(struct sampler *sampler, enum mr_op op);
    /* Whether anybody watches. */
    bool (*wanted)(const struct sampler *sampler);
    /* The look is over. */
    void (*looked)(struct sampler *sampler);
    /* What the owner knows of nodes beyond the broker: who is not heard of, and whether one that the broker does not have any
     * more was lost. NULL: nothing. */
    void (*mark)(const struct sampler *sampler, struct mr_node_info *nodes, size_t n);
    bool (*is_lost)(const struct sampler *sampler, uint64_t incarnation);
};

struct sampler {
    const struct sampler_ops *ops;
    union any_req *req; /* the owner's, zeroed between two of them */
    uint64_t
        *last_id; /* of all changes; outlives the sampler, so that they rise from one to the next */
    struct mr_link changes;            /* of all things, by id */
    struct mr_link known[THING_COUNT]; /* those that are there */
    struct mr_link gone;               /* by id */
    size_t gone_n;
    uint64_t forgotten; /* highest id of what is not remembered any more */
    /* The look that is under way. */
    bool looks;
    void (*back)(struct sampler *sampler);
    struct mr_link *at; /* among the known: what stands before it was there */
    struct mr_queue_info page[QUEUES_PAGE];
};

/* Zeroed memory becomes one. last_id is set if it is 0. */
void sample_init(struct sampler *sampler, const struct sampler_ops *ops, union any_req *req,
                 uint64_t *last_id);
/* Looks at the broker, unless a look is under way. */
void sample_begin(struct sampler *sampler);
void sample_back(struct sampler *sampler);
/* The first thing that changed behind this id, as a link of changes. */
struct mr_link *sample_behind(struct sampler *sampler, uint64_t id);
/* Forgets things that went up to this id. */
void sample_forget(struct sampler *sampler, uint64_t id);
void sample_done(struct sampler *sampler);

#endif
