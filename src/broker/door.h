/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How another thread opens and closes an engine that talks to a server: it waits here for the loop of the
 * engine, for the first connection and until nothing is under way any more.
 */
#ifndef MR_BROKER_DOOR_H
#define MR_BROKER_DOOR_H

#include "base/chan.h"

enum {
    MR_DOOR_OPEN_MS = 3000,  /* open waits so long for the first connection */
    MR_DOOR_CLOSE_MS = 5000, /* close waits so long for answers */
};

struct mr_door {
    struct mr_event quiet; /* closing may go on */
    struct mr_lock lock;   /* of what follows */
    bool was_up;
    enum mr_err err; /* of the last attempt */
    struct mr_detail why;
};

void mr_door_init(struct mr_door *door);
void mr_door_done(struct mr_door *door);

/* There is a connection, or there is none, because. Loop thread. */
void mr_door_changed(struct mr_door *door, bool up, enum mr_err err, const char *why);
/* Waits for the first one, MR_DOOR_OPEN_MS if ms is 0, and says why there is none. Does not wait where the
 * error is one that does not pass by itself. */
MR_MUST_USE enum mr_err mr_door_await_up(struct mr_door *door, int64_t ms,
                                         struct mr_detail *ret_why);

/* Nothing is under way, or it takes too long; also more than once. Loop thread. */
void mr_door_quiet(struct mr_door *door);
void mr_door_await_quiet(struct mr_door *door);

#endif
