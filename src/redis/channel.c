/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subscriptions: one line that listens, at any node. After each beginning of a connection everything is
 * subscribed anew; Redis confirms each channel, and so its subscribers learn that they may have missed
 * something.
 */
#include <stdlib.h>

#include "redis/internal.h"

static struct mr_redis_channel *channel_of(struct mr_link *link)
{
    return mr_container(link, struct mr_redis_channel, link);
}

static void say(struct mr_redis *redis, const char *command, struct mr_slice name)
{
    struct mr_slice args[2] = {mr_slice_str(command), name};
    if (redis_line_say(&redis->channel_line, args, 2) != MR_OK)
        redis_line_doom(&redis->channel_line, MR_NOMEM, "out of memory");
}

static void opened(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    for (struct mr_link *at = redis->channels.next; at != &redis->channels; at = at->next)
        say(redis, "SUBSCRIBE", channel_of(at)->name);
}

/* Whoever is told may subscribe and unsubscribe anything. */
static void tell(struct mr_redis *redis, struct mr_slice name, struct mr_slice bytes)
{
    struct mr_link *link = redis->channels.next;
    while (link != &redis->channels) {
        redis->channel_next = link->next;
        struct mr_redis_channel *channel = channel_of(link);
        if (mr_slice_equal(channel->name, name))
            channel->message(channel, bytes);
        link = redis->channel_next;
    }
    redis->channel_next = NULL;
}

static void heard(struct redis_line *line, const struct mr_reply *reply)
{
    struct mr_slice what = mr_reply_at(reply, 0)->text;
    struct mr_slice name = mr_reply_at(reply, 1)->text;
    const struct mr_reply *bytes = mr_reply_at(reply, 2);
    struct mr_redis *redis = line->redis;
    bool denied =
        reply->kind == MR_REPLY_ERROR && mr_slice_starts_with(reply->text, MR_SLICE_LIT("NOPERM"));
    if (denied && redis->options.unheard != NULL)
        redis->options.unheard(redis, reply, redis->options.arg);
    else if (reply->kind == MR_REPLY_ERROR && !denied)
        redis_line_doom(line, MR_FAILED, "SUBSCRIBE: %.*s", (int)reply->text.len,
                        (const char *)reply->text.data);
    else if (mr_slice_equal(what, MR_SLICE_LIT("message")) && bytes->kind == MR_REPLY_TEXT)
        tell(line->redis, name, bytes->text);
    else if (mr_slice_equal(what, MR_SLICE_LIT("subscribe")))
        tell(line->redis, name, (struct mr_slice){0});
}

static void lost(struct redis_line *line)
{
    redis_channels_follow(line->redis);
}

static const struct redis_line_ops ops = {
    .hello = REDIS_HELLO_AUTH | REDIS_HELLO_NAME,
    .listens = true,
    .opened = opened,
    .lost = lost,
    .heard = heard,
};

static bool is_node(struct mr_redis *redis, const struct redis_host *host)
{
    for (struct mr_link *link = redis->nodes.next; link != &redis->nodes; link = link->next)
        if (redis_host_equal(&mr_container(link, struct redis_node, link)->line.host, host))
            return true;
    return false;
}

void redis_channels_follow(struct mr_redis *redis)
{
    struct redis_line *line = &redis->channel_line;
    if (!redis->channel_begun || redis->stopping)
        return;
    if (redis_line_is_open(line) && is_node(redis, &line->host))
        return;
    struct redis_node *node = redis->kind->route(redis, REDIS_SLOT_ANY);
    if (node != NULL)
        redis_line_aim(line, &node->line.host);
}

void mr_redis_subscribe(struct mr_redis *redis, struct mr_redis_channel *channel)
{
    mr_assert(redis_is_loop(redis));
    mr_list_push_back(&redis->channels, &channel->link);
    if (redis->stopping)
        return;
    if (!redis->channel_begun) {
        redis->channel_begun = true;
        redis_line_init(&redis->channel_line, redis, &ops, NULL);
        redis_channels_follow(redis);
    } else if (redis_line_is_open(&redis->channel_line)) {
        say(redis, "SUBSCRIBE", channel->name);
    }
}

static bool is_subscribed(struct mr_redis *redis, struct mr_slice name)
{
    for (struct mr_link *at = redis->channels.next; at != &redis->channels; at = at->next)
        if (mr_slice_equal(channel_of(at)->name, name))
            return true;
    return false;
}

void mr_redis_unsubscribe(struct mr_redis *redis, struct mr_redis_channel *channel)
{
    mr_assert(redis_is_loop(redis));
    if (redis->channel_next == &channel->link)
        redis->channel_next = channel->link.next;
    mr_list_remove(&channel->link);
    if (redis->channel_begun && redis_line_is_open(&redis->channel_line) &&
        !is_subscribed(redis, channel->name))
        say(redis, "UNSUBSCRIBE", channel->name);
}
