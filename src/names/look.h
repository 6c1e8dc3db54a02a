/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a nameserver shows of itself (Names.Look), and what servers and workers say in the bodies of their entries: messages of
 * proto/millrace/v1/names.proto, between their bytes and structs. Texts that were read point into the bytes. Thread: any.
 */
#ifndef MR_NAMES_LOOK_H
#define MR_NAMES_LOOK_H

#include "base/buf.h"
#include "names/registry.h"

enum {
    MR_NAMES_LOOK_APPS = 10 * 1000, /* apps of one answer */
    MR_NAMES_LOOK_PEERS = 64,
    MR_NAMES_LOADS_MAX = 512, /* subApps of a body that are read */
};

struct mr_names_look_peer {
    struct mr_slice address;
    bool is_up;
};

/* NameLook. */
struct mr_names_look {
    uint64_t from; /* another one each time a nameserver starts */
    bool complete;
    bool more; /* there are more apps than it says */
    uint64_t servers, workers, graves;
    uint64_t expired, left, refused, forgotten, stalls; /* since it began */
    uint64_t view; /* equal at two nameservers that know the same entries in the same versions */
    const struct mr_names_app *apps; /* by name */
    size_t apps_n;
    const struct mr_names_look_peer *peers;
    size_t peers_n;
};
/* Of the apps only so many as there may be: more is set by that. */
MR_MUST_USE enum mr_err mr_names_look_encode(struct mr_names_look *look, struct mr_buf *buf);
/* Lists are the arena's. MR_INVALID, MR_TOO_BIG, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_look_decode(struct mr_slice bytes, struct mr_arena *arena,
                                             struct mr_names_look *ret_look);

/* ---- bodies ----------------------------------------------------------------------------------- */

/* Dispatches of a subApp in the window. */
struct mr_names_load {
    struct mr_slice app;
    uint32_t part;
    int64_t load;
};

/* NameServerBody. */
struct mr_names_server_body {
    int64_t load; /* dispatches in the window, all of them */
    uint32_t weight;
    uint32_t owns;           /* subApps */
    struct mr_slice server;  /* its name in the store: one life of it; empty: it fires nothing */
    bool is_secure;          /* it is called with TLS */
    struct mr_slice balance; /* who plans: why nothing moves; others: empty */
    const struct mr_names_load *loads;
    size_t loads_n;
};
/* Of the loads only so many as a body has room for: the greatest first, then those that are left out are the smallest. */
MR_MUST_USE enum mr_err mr_names_server_body_encode(const struct mr_names_server_body *body,
                                                    struct mr_buf *buf);
/* A list is the arena's. MR_INVALID, MR_TOO_BIG, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_server_body_decode(struct mr_slice bytes, struct mr_arena *arena,
                                                    struct mr_names_server_body *ret_body);

/* NameWorkerBody. */
struct mr_names_worker_body {
    uint32_t slots, busy;
    uint64_t done;   /* tasks, since it began */
    int64_t in_hour; /* tasks that it would do in an hour, by the time since it last registered */
};
MR_MUST_USE enum mr_err mr_names_worker_body_encode(const struct mr_names_worker_body *body,
                                                    struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_names_worker_body_decode(struct mr_slice bytes,
                                                    struct mr_names_worker_body *ret_body);

#endif
