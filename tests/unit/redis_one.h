/* SPDX-License-Identifier: Apache-2.0 */
/* One Redis, or a Cluster, for a test program, and a new broker on it, empty, for each of its tests. */
#ifndef MR_TESTS_REDIS_ONE_H
#define MR_TESTS_REDIS_ONE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/redis/redis.h"
#include "redis/slot.h"
#include "support/redis_rig.h"

static struct redis_rig *rig;

static inline bool is_cluster(void)
{
    const char *deployment = getenv("MR_DEPLOYMENT");
    return deployment != NULL && strcmp(deployment, "cluster") == 0;
}

/* In a Cluster the one that has the queue `default`. */
static inline struct redis_rig_server *server(void)
{
    return is_cluster() ? redis_rig_owner(rig, redis_slot(MR_SLICE_LIT("{default}")))
                        : redis_rig_server(rig, 0);
}

static inline int setup(void **state)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    RIG_ALL(rig, "FLUSHALL");
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    *state = broker;
    return 0;
}

static inline int teardown(void **state)
{
    mr_broker_close(*state);
    return 0;
}

#endif
