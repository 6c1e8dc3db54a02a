/* SPDX-License-Identifier: Apache-2.0 */
/* What service.c, peer.c and calls.c share. Thread: the loop. */
#ifndef MR_NAMES_SERVICE_INTERNAL_H
#define MR_NAMES_SERVICE_INTERNAL_H

#include "base/list.h"
#include "names/service.h"
#include "names/wire.h"

#define NAMES_EXCHANGE "/millrace.v1.Names/Exchange"
#define NAMES_REGISTER "/millrace.v1.Names/Register"
#define NAMES_LIST     "/millrace.v1.Names/List"
#define NAMES_LOOK     "/millrace.v1.Names/Look"

/* Another nameserver, as we call it. */
struct peer {
    struct mr_names *names;
    struct mr_channel *channel;
    struct mr_call *call; /* NULL: none */
    bool is_up;
    char *address;
};

struct mr_names {
    struct mr_names_options options;
    struct mr_registry *registry;
    uint64_t id; /* whose the numbers of lists are */
    struct peer peers[MR_NAMES_PEERS_MAX];
    size_t peers_n;
    struct mr_link waits; /* of struct call in calls.c, that wait for a change */
    size_t waits_n;
    uint64_t looked; /* the number of changes when they were last looked at */
    struct mr_timer timer;
    mr_mono digest; /* the next one */
    struct mr_buf buf;
    bool stopped;
};

/* service.c: a message from another nameserver; the answers go by the same call. MR_INVALID: it is none. */
MR_MUST_USE enum mr_err names_hear(struct mr_names *names, struct mr_call *call,
                                   struct mr_slice bytes);
/* Encodes and sends. */
MR_MUST_USE enum mr_err names_say(struct mr_names *names, struct mr_call *call,
                                  const struct mr_names_msg *msg);

/* peer.c */
MR_MUST_USE enum mr_err peer_open(struct peer *peer, struct mr_names *names, const char *address,
                                  struct mr_detail *detail);
/* A stream, where there is none and can be one. */
void peer_look(struct peer *peer);
void peer_close(struct peer *peer);

/* calls.c: answers those whose list has changed, or whose time is over. */
void calls_look(struct mr_names *names, mr_mono now);

#endif
