/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks in the hands of workers that have nothing but HTTP. Thread: the server's. */
#ifndef MR_API_HTTP_TAKE_H
#define MR_API_HTTP_TAKE_H

#include "api/http_internal.h"

enum {
    HTTP_TAKE_MAX = 100,          /* tasks at a time */
    HTTP_WAIT_MAX_MS = 60 * 1000, /* for the first */
    HTTP_LEASE_MS = 30 * 1000,    /* where nothing is said */
    HTTP_LEASE_MIN_MS = 1000,
    HTTP_LEASE_MAX_MS = 3600 * 1000,
    HTTP_HANDS_MAX = 1024,
    HTTP_FALL_MS = 60 * 1000, /* as of other workers: what is addressed to one that does not come */
};

/* What was taken together. */
struct http_hand {
    struct mr_link link; /* in api->hands.list */
    struct mr_http_api *api;
    struct mr_broker *broker;
    char token[MR_TOKEN_ID_LEN + 1]; /* whose it is */
    size_t max;
    int64_t wait_ms;
    struct http_call *waiting; /* the call that the broker is to bring tasks for; NULL: none */
    uint64_t node;
    uint32_t first_slot;
    struct http_held *helds;
    struct mr_arena arena; /* of their ids */
    size_t n, left;        /* of them are not over */
    bool is_open, is_closing;
    uint64_t extended; /* the last call that did, by its number */
    enum mr_err extension;
    struct mr_msg msg;
    struct mr_req_node_close closing;
};

struct http_held {
    struct mr_link link; /* in its bucket */
    struct http_hand *hand;
    struct mr_slice id;
    uint64_t epoch, ref;
    uint32_t retried;
    bool over, cancelled;
};

/* NULL: nobody has it. */
struct http_held *http_held_find(struct http_hands *hands, uint64_t epoch);
/* Its run has ended, or is somebody else's. The hand may go with it. */
void http_held_over(struct http_held *held);

#endif
