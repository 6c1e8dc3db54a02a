/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version of what we keep on a Redis beside Asynq's keys and fields. Where nothing is said it is 1, so the first one
 * costs nothing. A version that this program could not read would say so in one key; who finds there more than it knows stays away.
 */
#ifndef MR_BROKER_REDIS_FORMAT_H
#define MR_BROKER_REDIS_FORMAT_H

#include "redis/redis.h"

/* Whether this program can read what is there; head: of the keys that are no queue's, "NAMESPACE:asynq:". MR_VERSION, MR_NOMEM.
 * Thread: any but the loop. */
MR_MUST_USE enum mr_err redis_format_check(struct mr_redis *redis, struct mr_slice head,
                                           struct mr_detail *detail);

#endif
