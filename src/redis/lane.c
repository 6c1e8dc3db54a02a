/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of their own, for commands that block. */
#include <stdlib.h>

#include "redis/internal.h"

struct mr_redis_lane {
    struct redis_line line;
    struct mr_link link; /* in redis->lanes */
    uint16_t slot;
};

static void opened(struct redis_line *line)
{
    redis_route_all(line->redis);
}

static const struct redis_line_ops ops = {
    .hello = REDIS_HELLO_ALL & ~(unsigned)REDIS_HELLO_SCRIPTS,
    .blocks = true,
    .opened = opened,
};

static void follow(struct mr_redis_lane *lane)
{
    struct mr_redis *redis = lane->line.redis;
    struct redis_node *node = redis->kind->route(redis, lane->slot);
    if (node != NULL)
        redis_line_aim(&lane->line, &node->line.host);
}

void redis_lanes_follow(struct mr_redis *redis)
{
    for (struct mr_link *link = redis->lanes.next; link != &redis->lanes; link = link->next)
        follow(mr_container(link, struct mr_redis_lane, link));
}

static void retire(struct mr_redis_lane *lane, enum mr_err err)
{
    mr_list_remove(&lane->link);
    redis_waiting_end(lane->line.redis, &lane->line, err);
    redis_line_retire(&lane->line, err);
}

void redis_lanes_end(struct mr_redis *redis)
{
    while (!mr_list_empty(&redis->lanes))
        retire(mr_container(redis->lanes.next, struct mr_redis_lane, link), MR_CLOSED);
}

enum mr_err mr_redis_lane_new(struct mr_redis *redis, struct mr_slice key,
                              struct mr_redis_lane **ret_lane)
{
    mr_assert(redis_is_loop(redis));
    if (redis->stopping)
        return MR_CLOSED;
    struct mr_redis_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return MR_NOMEM;
    lane->slot = redis_slot_of(redis, key);
    redis_line_init(&lane->line, redis, &ops, lane);
    mr_list_push_back(&redis->lanes, &lane->link);
    follow(lane);
    *ret_lane = lane;
    return MR_OK;
}

void mr_redis_lane_free(struct mr_redis_lane *lane)
{
    if (lane == NULL)
        return;
    mr_assert(redis_is_loop(lane->line.redis));
    retire(lane, MR_CANCELLED);
}

void mr_redis_lane_send(struct mr_redis_lane *lane, struct mr_redis_call *call,
                        const struct mr_slice *args, size_t n)
{
    redis_call_send(lane->line.redis, call, &lane->line, lane->slot, args, n);
}
