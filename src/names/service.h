/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A nameserver: a registry on the loop of an rpc, what others ask it (Names.Register, Names.List), and its talk with the other
 * nameservers (Names.Exchange). See docs/nameserver.md.
 *
 * To each of the others it keeps one stream, on which it says its digest and what has registered; answers come on the stream that
 * the question came on. A stream that breaks is made again, and the first thing it carries is a digest: so what was
 * missed meanwhile is made up for at once.
 *
 * Who may call is the owner's matter. Everything but new, stop and free is on the loop.
 */
#ifndef MR_NAMES_SERVICE_H
#define MR_NAMES_SERVICE_H

#include "names/registry.h"
#include "rpc/rpc.h"

struct mr_names;

enum {
    MR_NAMES_PEERS_MAX = 16,
    MR_NAMES_INTERVAL_MS = 2000, /* between digests */
    MR_NAMES_PUSH_MS = 100,      /* what registers waits so long for more */
    MR_NAMES_WAIT_MAX_MS = 30 * 1000,
    MR_NAMES_WAITS_MAX = 50 * 1000, /* questions that wait for a change */
};

/* What a call wants to do. */
enum mr_names_right {
    MR_NAMES_LOOK,     /* lists: servers, or workers of the app */
    MR_NAMES_LOOK_ALL, /* the workers of all apps */
    MR_NAMES_WORK,     /* register a worker of the app */
    MR_NAMES_SERVE,    /* register a server, or be another nameserver */
};

/* Zero means default, but for the rpc. */
struct mr_names_options {
    struct mr_rpc *rpc;
    struct mr_registry_options registry;
    const char *const *peers; /* addresses; its own among them does no harm */
    size_t peers_n;
    const struct mr_rpc_tls *tls; /* to them */
    const char *authorization;    /* likewise; NULL: none */
    int64_t interval_ms, push_ms;
    /* Whether a call may; if not, it has ended it. Asked before anything is read, with MR_NAMES_LOOK or MR_NAMES_SERVE and no
     * app, and again with what is read. NULL: all may. */
    bool (*may)(struct mr_call *call, enum mr_names_right right, struct mr_slice app, void *arg);
    void *arg;
};

/* What options point to outlives it, but for the list of peers. MR_INVALID: too many peers, or no addresses. Thread: any but the loop. */
MR_MUST_USE enum mr_err mr_names_new(const struct mr_names_options *options,
                                     struct mr_names **ret_names, struct mr_detail *detail);
/* For mr_rpc_listen, with the names as arg. */
const struct mr_rpc_method *mr_names_methods(size_t *ret_n);
/* It says no more to anybody; questions that wait are answered. Before the rpc is freed. Thread: any but the loop. */
void mr_names_stop(struct mr_names *names);
/* After the rpc was freed. NULL is fine. */
void mr_names_free(struct mr_names *names);

/* For tests. Loop thread. */
struct mr_registry *mr_names_registry(struct mr_names *names);

#endif
