/* SPDX-License-Identifier: Apache-2.0 */
/* Between enqueue.c and carry.c. */
#ifndef MR_EMBEDDED_CARRY_H
#define MR_EMBEDDED_CARRY_H

#include "broker/embedded/engine.h"

/* A task that comes, as the caller's thread has prepared it. */
struct item {
    struct mr_uuid id;
    struct mr_uuid unique;
    size_t at, len; /* of the message in bytes */
    struct mr_slice queue;
    int64_t priority_ms;
    uint16_t max_retry;
    uint8_t flags;
    bool generated; /* nobody else can have this id */
    enum mr_err err;
};

/* Who has its unique key, and may keep it; NO_HANDLE: nobody. */
uint32_t live_holder(const struct mr_engine *engine, const struct item *item);
/* A task of another broker comes as it stood there, and is held. */
MR_MUST_USE enum mr_err carry_one(struct mr_engine *engine, const struct mr_task *carried,
                                  const struct item *item, const uint8_t *message,
                                  struct mr_enqueue_result *result);

#endif
