/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of a queue as every engine keeps them: a short list by scope and name, and its encoding.
 * No state of its own. Thread: any.
 */
#ifndef MR_BROKER_LIMIT_H
#define MR_BROKER_LIMIT_H

#include "base/buf.h"
#include "broker/broker.h"

struct mr_limits {
    struct mr_limit *at; /* heap; by scope, then by name */
    size_t n;            /* to MR_LIMITS_MAX; none is empty */
};

void mr_limits_done(struct mr_limits *limits);
/* What a checked MR_QUEUE_RATE or MR_QUEUE_CONCURRENCY says. MR_TOO_BIG, MR_NOMEM: nothing changed. */
MR_MUST_USE enum mr_err mr_limits_change(struct mr_limits *limits,
                                         const struct mr_req_queue_set *req);
/* The one for what has this name: by it, else the one for each. NULL: none. A name that is empty has none,
 * unless it is the queue's. */
const struct mr_limit *mr_limits_find(const struct mr_limits *limits, enum mr_limit_scope scope,
                                      struct mr_slice name);
/* How those stand that were there before. */
void mr_limits_keep(struct mr_limits *limits, const struct mr_limits *before);
/* There are some for types or keys. */
bool mr_limits_split(const struct mr_limits *limits);
/* Into what is shown of a queue. */
void mr_limits_show(const struct mr_limits *limits, struct mr_queue_info *info);

/* Appends the encoding: Limit of proto/, one behind the other as field 1. */
MR_MUST_USE enum mr_err mr_limits_encode(const struct mr_limits *limits, struct mr_buf *buf);
/* MR_DAMAGED: these are none. limits is empty before. */
MR_MUST_USE enum mr_err mr_limits_decode(struct mr_slice bytes, struct mr_limits *limits);

struct mr_flat;
extern const struct mr_flat mr_flat_limit; /* Limit of proto/ */

/*
 * How long a permit of a rate is taken, in µs: the span, and a little longer, since the way from a broker
 * to the run takes a time that differs: so the limit holds where the work is done, too. At most a
 * hundredth, which leaves 99 of 100 to be used.
 */
int64_t mr_limit_span_us(const struct mr_limit *limit);

#endif
