/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EnqueueRequest and EnqueueResponse. Requests are read straight from their bytes into the options the
 * broker wants, and answers written straight from its results: this is the way that hundreds of
 * thousands of tasks a second take. What a token may not enqueue is left out on the way in, and stands
 * at its place in the answer.
 */
#ifndef MR_API_BATCH_H
#define MR_API_BATCH_H

#include "api/internal.h"

/* A task that its token may not enqueue. */
struct refusal {
    struct mr_enqueue_result result; /* err MR_OK: it may */
    struct mr_slice text;
};

/* A request as it came: the broker gets what is left of it. */
struct batch {
    size_t n;
    struct mr_task_options *tasks; /* those of the request */
    struct refusal *refusals;      /* n; NULL: none */
    struct refusal *first;
};

/* The bytes, in the request's arena, as a request of the broker. What is not MR_OK holds for the whole;
 * detail says why. */
MR_MUST_USE enum mr_err batch_read(struct mr_api *api, const struct mr_token *token,
                                   struct mr_slice bytes, struct mr_req_enqueue *req,
                                   struct batch *batch, struct mr_detail *detail);
/* Gives the token what the broker did not accept. */
void batch_settle(struct mr_api *api, const struct mr_token *token,
                  const struct mr_req_enqueue *req, enum mr_err err);

struct answer {
    const struct mr_enqueue_result *results;
    struct mr_slice *texts; /* NULL: none was refused */
    size_t *sizes;
    size_t n, size;
};

/* In the request's arena. */
MR_MUST_USE enum mr_err answer_measure(struct mr_api *api, struct mr_req_enqueue *req,
                                       const struct batch *batch, struct answer *answer);
/* Writes answer->size bytes. */
void answer_write(const struct answer *answer, uint8_t *at);
/* Answers a single call, none of whose tasks was refused at the door. */
void answer_unary(struct unary *u);

/* The answer to a request that was refused as a whole. */
size_t refusal_size(enum mr_err err, struct mr_slice text);
void refusal_write(enum mr_err err, struct mr_slice text, uint8_t *at);

#endif
