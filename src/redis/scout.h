/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line that asks where things are, for deployments that must find that out. It has a list of hosts and
 * goes to the next one when a host does not answer. Thread: the loop.
 */
#ifndef MR_REDIS_SCOUT_H
#define MR_REDIS_SCOUT_H

#include "redis/internal.h"

struct redis_scout;

struct redis_scout_ops {
    struct redis_line_ops line; /* REDIS_SCOUT_LINE_OPS of its hello */
    /* Says the questions on the line, which is open. */
    MR_MUST_USE enum mr_err (*ask)(struct redis_scout *scout);
    /* Something came. What answers the question calls redis_scout_answered. */
    void (*heard)(struct redis_scout *scout, const struct mr_reply *reply);
    /* This host cannot be asked now; scout->line.err and why. May be NULL. */
    void (*failed)(struct redis_scout *scout);
    /* After redis_scout_stop: its memory is the owner's again. */
    void (*stopped)(struct redis_scout *scout);
};

struct redis_scout {
    struct redis_line line;
    const struct redis_scout_ops *ops;
    struct redis_host hosts[REDIS_HOSTS_MAX];
    size_t hosts_n, at;
    struct mr_timer timer; /* the next question, or the end of patience */
    bool asked;            /* and not answered yet */
    bool again;            /* asked for meanwhile */
    bool elsewhere;        /* ... and better from another host */
    mr_mono answered_at;
};

void redis_scout_opened(struct redis_line *line);
void redis_scout_lost(struct redis_line *line);
void redis_scout_heard(struct redis_line *line, const struct mr_reply *reply);
void redis_scout_retired(struct redis_line *line);
/* The line of a scout, by what it says at first. */
#define REDIS_SCOUT_LINE_OPS(hello_)                                                               \
    {                                                                                              \
        .hello = (hello_), .listens = true, .opened = redis_scout_opened,                          \
        .lost = redis_scout_lost, .heard = redis_scout_heard, .retired = redis_scout_retired,      \
    }

/* Sets out for the hosts of the URL. */
MR_MUST_USE enum mr_err redis_scout_start(struct redis_scout *scout, struct mr_redis *redis,
                                          const struct redis_scout_ops *ops);
void redis_scout_stop(struct redis_scout *scout);
/* Adds a host to the list, if it is not there and there is room. */
void redis_scout_learn(struct redis_scout *scout, const struct redis_host *host);
/* Asks again soon: the same host, or another one because what this one said did not hold. */
enum redis_where { REDIS_HERE, REDIS_ELSEWHERE };
void redis_scout_look(struct redis_scout *scout, enum redis_where where);
void redis_scout_answered(struct redis_scout *scout);

#endif
