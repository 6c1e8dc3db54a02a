/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deployment whose primary Sentinels name. One Sentinel is asked for its address and then tells
 * when another server becomes primary. The one node goes there; what it says at first makes sure that
 * it is a primary. As long as it is not open, the Sentinels are asked in turn: one of them may be cut
 * off and know old things only.
 */
#include <stdlib.h>

#include "base/text.h"
#include "redis/scout.h"

static const struct mr_slice switched = {"+switch-master", 14};

struct sentinel {
    struct redis_scout scout;
    struct redis_node *node; /* NULL: no Sentinel has named one yet */
};

static struct sentinel *sentinel_of(struct redis_scout *scout)
{
    return mr_container(scout, struct sentinel, scout);
}

/* ---- the primary ---------------------------------------------------------------------------- */

static void node_opened(struct redis_line *line)
{
    redis_is_up(line->redis);
    redis_route_all(line->redis);
}

static void node_lost(struct redis_line *line)
{
    struct sentinel *sentinel = line->redis->of_kind;
    redis_is_down(line->redis, line->err, line->why);
    if (sentinel != NULL && !line->aimed)
        redis_scout_look(&sentinel->scout, REDIS_ELSEWHERE);
}

static const struct redis_line_ops node_ops = {
    .hello = REDIS_HELLO_ALL,
    .opened = node_opened,
    .lost = node_lost,
};

static void go_to(struct sentinel *sentinel, const struct redis_host *host)
{
    struct mr_redis *redis = sentinel->scout.line.redis;
    if (sentinel->node != NULL) {
        redis_line_aim(&sentinel->node->line, host);
    } else {
        enum mr_err err = redis_node_new(redis, host, &node_ops, &sentinel->node);
        if (err != MR_OK) {
            sentinel->node = NULL;
            redis_is_down(redis, err, mr_err_text(err));
            return;
        }
        sentinel->node->primary = true;
    }
    redis_route_all(redis);
}

/* ---- what Sentinels say --------------------------------------------------------------------- */

static enum mr_err ask(struct redis_scout *scout)
{
    struct redis_line *line = &scout->line;
    const struct mr_slice leave[] = {MR_SLICE_LIT("UNSUBSCRIBE")};
    const struct mr_slice where[] = {MR_SLICE_LIT("SENTINEL"),
                                     MR_SLICE_LIT("get-master-addr-by-name"),
                                     mr_slice_str(line->redis->url.service)};
    const struct mr_slice listen[] = {MR_SLICE_LIT("SUBSCRIBE"), switched};
    /* Together, so that nothing happens between the answer and the subscription. */
    MR_TRY(redis_line_say(line, leave, 1));
    MR_TRY(redis_line_say(line, where, 3));
    return redis_line_say(line, listen, 2);
}

static bool read_host(struct mr_slice name, struct mr_slice port, struct redis_host *ret_host)
{
    char text[8];
    int64_t number;
    if (name.len == 0 || name.len > MR_HOST_MAX || port.len >= sizeof text)
        return false;
    memcpy(text, port.data, port.len);
    text[port.len] = '\0';
    if (mr_parse_int64(text, &number) != MR_OK || number < 1 || number > UINT16_MAX)
        return false;
    memcpy(ret_host->name, name.data, name.len);
    ret_host->name[name.len] = '\0';
    ret_host->port = (uint16_t)number;
    return true;
}

/* Word i of a text with blanks between; empty: there is none. */
static struct mr_slice word(struct mr_slice text, int i)
{
    const char *at = text.data, *end = at + text.len;
    for (;; i--) {
        const char *blank = at < end ? memchr(at, ' ', (size_t)(end - at)) : NULL;
        if (i == 0)
            return mr_slice_make(at, (size_t)((blank != NULL ? blank : end) - at));
        if (blank == NULL)
            return mr_slice_make("", 0);
        at = blank + 1;
    }
}

/* "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT". */
static void hear_switch(struct sentinel *sentinel, struct mr_slice text)
{
    struct redis_host host;
    const char *service = sentinel->scout.line.redis->url.service;
    if (mr_slice_equal(word(text, 0), mr_slice_str(service)) &&
        read_host(word(text, 3), word(text, 4), &host))
        go_to(sentinel, &host);
}

static void refuse(struct redis_scout *scout, enum mr_err err, struct mr_slice why)
{
    struct redis_line *line = &scout->line;
    char host[MR_HOST_MAX + 16];
    redis_line_doom(line, err, "Sentinel at %s, asked for %s: %.*s",
                    redis_host_text(line->redis, &line->host, host), line->redis->url.service,
                    (int)why.len, (const char *)why.data);
}

static bool is_no_sentinel(const struct mr_reply *reply)
{
    return reply->kind == MR_REPLY_ERROR &&
           mr_slice_starts_with(reply->text, MR_SLICE_LIT("ERR unknown command"));
}

static void hear_where(struct sentinel *sentinel, const struct mr_reply *reply)
{
    struct redis_scout *scout = &sentinel->scout;
    struct redis_host host;
    if (reply->kind == MR_REPLY_NIL)
        refuse(scout, MR_UNAVAILABLE, MR_SLICE_LIT("it knows no primary by this name"));
    else if (is_no_sentinel(reply))
        refuse(scout, MR_UNSUPPORTED, MR_SLICE_LIT("it is no Sentinel: use redis://"));
    else if (reply->kind == MR_REPLY_ERROR)
        refuse(scout,
               mr_slice_starts_with(reply->text, MR_SLICE_LIT("NOAUTH")) ? MR_DENIED
                                                                         : MR_UNAVAILABLE,
               reply->text);
    else if (!read_host(mr_reply_at(reply, 0)->text, mr_reply_at(reply, 1)->text, &host))
        refuse(scout, MR_UNAVAILABLE, MR_SLICE_LIT("its answer could not be read"));
    else {
        redis_scout_answered(scout);
        go_to(sentinel, &host);
    }
}

/* Messages and what surrounds them are arrays of three; the answer is one of two, or nil. */
static void heard(struct redis_scout *scout, const struct mr_reply *reply)
{
    struct sentinel *sentinel = sentinel_of(scout);
    if (reply->kind != MR_REPLY_ARRAY || reply->n != 3)
        hear_where(sentinel, reply);
    else if (mr_slice_equal(reply->items[0].text, MR_SLICE_LIT("message")))
        hear_switch(sentinel, reply->items[2].text);
}

static void failed(struct redis_scout *scout)
{
    struct sentinel *sentinel = sentinel_of(scout);
    if (sentinel->node == NULL || !redis_line_is_open(&sentinel->node->line))
        redis_is_down(scout->line.redis, scout->line.err, scout->line.why);
}

static void stopped(struct redis_scout *scout)
{
    free(sentinel_of(scout));
}

static const struct redis_scout_ops scout_ops = {
    .line = REDIS_SCOUT_LINE_OPS(REDIS_HELLO_AUTH_IF_WANTED),
    .ask = ask,
    .heard = heard,
    .failed = failed,
    .stopped = stopped,
};

/* ---- the deployment ------------------------------------------------------------------------- */

static enum mr_err start(struct mr_redis *redis)
{
    struct sentinel *sentinel = calloc(1, sizeof *sentinel);
    if (sentinel == NULL)
        return MR_NOMEM;
    redis->of_kind = sentinel;
    enum mr_err err = redis_scout_start(&sentinel->scout, redis, &scout_ops);
    if (err != MR_OK) {
        redis->of_kind = NULL;
        free(sentinel);
    }
    return err;
}

static void stop(struct mr_redis *redis)
{
    struct sentinel *sentinel = redis->of_kind;
    if (sentinel == NULL)
        return;
    if (sentinel->node != NULL)
        redis_node_retire(sentinel->node);
    redis->of_kind = NULL;
    redis_scout_stop(&sentinel->scout);
}

static struct redis_node *route(struct mr_redis *redis, uint16_t slot)
{
    (void)slot;
    struct sentinel *sentinel = redis->of_kind;
    return sentinel != NULL ? sentinel->node : NULL;
}

const struct redis_kind redis_sentinel = {
    .name = "standalone",
    .start = start,
    .stop = stop,
    .route = route,
};
