/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server fires which app, when several share a store. It is worked out by each of them from what stands there:
 * who is there, and whose each app is. Nobody leads, and nothing is agreed on; who sees the same comes to the same
 * answer, and who sees something old is stopped by the leases.
 *
 * An app stays where it is. One that nobody has goes to the server that has least, and one moves only when its owner
 * has at least two more than another one that may have it: so of servers that may have all apps none has more than
 * one more than another, and no app moves that need not.
 */
#ifndef MR_TIMER_SHARE_H
#define MR_TIMER_SHARE_H

#include <stdbool.h>

#include "base/slice.h"

struct mr_share_server {
    struct mr_slice name;
    struct mr_slice apps; /* that it fires, a line each; empty: all */
    size_t n;             /* answer: so many are to be its own */
};

#define MR_SHARE_NOBODY SIZE_MAX

struct mr_share_app {
    struct mr_slice name;
    size_t owner; /* a server; answer: whose it is to be. MR_SHARE_NOBODY: nobody's */
    bool held;    /* the caller's: somebody has its lease */
};

/* Whether the server may have the app at all. */
bool mr_share_may(const struct mr_share_server *server, struct mr_slice app);

/* Both are in the order of their names, so that all see them alike. Thread: any. */
void mr_share(struct mr_share_server *servers, size_t servers_n, struct mr_share_app *apps,
              size_t apps_n);

#endif
