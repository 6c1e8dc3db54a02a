/* SPDX-License-Identifier: Apache-2.0 */
/* The deployment that is one server: one node, which has every slot. */
#include "redis/internal.h"

static void opened(struct redis_line *line)
{
    redis_is_up(line->redis);
    redis_route_all(line->redis);
}

static void lost(struct redis_line *line)
{
    redis_is_down(line->redis, line->err, line->why);
}

static const struct redis_line_ops line_ops = {
    .hello = REDIS_HELLO_ALL,
    .opened = opened,
    .lost = lost,
};

static enum mr_err start(struct mr_redis *redis)
{
    struct redis_node *node;
    MR_TRY(redis_node_new(redis, &redis->url.hosts[0], &line_ops, &node));
    node->primary = true;
    return MR_OK;
}

static struct redis_node *route(struct mr_redis *redis, uint16_t slot)
{
    (void)slot;
    if (mr_list_empty(&redis->nodes))
        return NULL;
    return mr_container(redis->nodes.next, struct redis_node, link);
}

static void stop(struct mr_redis *redis)
{
    struct redis_node *node = route(redis, REDIS_SLOT_ANY);
    if (node != NULL)
        redis_node_retire(node);
}

const struct redis_kind redis_single = {
    .name = "standalone",
    .start = start,
    .stop = stop,
    .route = route,
};
