/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and answers of a simple protocol on some connections at once, by one thread: all that came
 * with one read is answered with one write. Nobody's client is faster than that.
 */
#ifndef PEERS_PIPELINE_H
#define PEERS_PIPELINE_H

#include "client.h"

struct pipeline;

/* What to say next is put into it; it is sent at the end of the turn. */
struct connection;

struct pipeline_ops {
    /* Puts the first requests of a connection. */
    void (*begin)(struct pipeline *pipeline, struct connection *connection);
    /* Deals with the answer at the front of bytes: how long it is, 0 when it is not whole yet. */
    size_t (*answer)(struct pipeline *pipeline, struct connection *connection, const char *bytes,
                     size_t n);
    unsigned connections;
    unsigned depth; /* requests in flight on each */
};

struct pipeline {
    const struct pipeline_ops *ops;
    const struct peer_phase *phase;
    uint64_t begun;   /* tasks that were asked for, or sent */
    uint64_t done;    /* tasks that count */
    unsigned waiting; /* answers that are to come */
    bool over;        /* nothing new is begun; set by time, or by an answer */
};

/* Bytes of a request; expects: so many answers come of it. */
void connection_put(struct pipeline *pipeline, struct connection *connection, const void *bytes,
                    size_t n, unsigned expects);

/* How each phase is done with this protocol. */
struct pipeline_phases {
    const struct pipeline_ops *single, *batch, *work;
};

/* A client of nothing but pipelines. */
int pipeline_main(int argc, char **argv, const struct pipeline_phases *phases);

#endif
