/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deployment that is a Cluster: 16384 slots, each with one primary; a node, with its line, for each
 * primary. The map comes from any node of the Cluster (CLUSTER SLOTS) and is asked for again when it
 * proved wrong: a node is lost, or an answer says MOVED. Until the new map is there the answer itself
 * corrects the slot.
 *
 * ASK does not change the map: the slot is on its way to another node, and this one call goes there
 * with ASKING before it. The node that it names may have no slot at all yet, so nodes are kept for a
 * while though the map does not name them.
 */
#include <stdlib.h>

#include "base/text.h"
#include "redis/scout.h"
#include "redis/slot.h"

enum { KEEP_MS = 60000 };

struct cluster {
    struct redis_scout scout;
    bool known; /* there was a map */
    /* Who has a slot; NULL: nobody that we know. */
    struct redis_node *owners[REDIS_SLOTS];
};

static struct cluster *cluster_of(struct redis_scout *scout)
{
    return mr_container(scout, struct cluster, scout);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/* NULL: there is none. */
static struct redis_node *node_after(struct mr_redis *redis, const struct mr_link *link)
{
    return link->next != &redis->nodes ? mr_container(link->next, struct redis_node, link) : NULL;
}

static struct redis_node *first_node(struct mr_redis *redis)
{
    return node_after(redis, &redis->nodes);
}

/* Not open yet, and no attempt has failed. */
static bool is_fresh(const struct redis_node *node)
{
    return !redis_line_is_open(&node->line) && node->line.err == MR_OK;
}

/* It is up when one node is open and all others have had their chance, so that whoever sends now is
 * not refused because of a connection that is about to be there. */
static void tell(struct mr_redis *redis, const struct redis_line *lost)
{
    bool open = false;
    for (struct redis_node *node = first_node(redis); node != NULL;
         node = node_after(redis, &node->link)) {
        if (is_fresh(node))
            return;
        open = open || redis_line_is_open(&node->line);
    }
    if (open)
        redis_is_up(redis);
    else if (lost != NULL)
        redis_is_down(redis, lost->err, lost->why);
}

static void node_opened(struct redis_line *line)
{
    tell(line->redis, NULL);
    redis_route_all(line->redis);
}

static void node_lost(struct redis_line *line)
{
    struct cluster *cluster = line->redis->of_kind;
    tell(line->redis, line);
    if (cluster != NULL)
        redis_scout_look(&cluster->scout, REDIS_ELSEWHERE);
}

static const struct redis_line_ops node_ops = {
    .hello = REDIS_HELLO_ALL,
    .opened = node_opened,
    .lost = node_lost,
};

/* The node there, made if need be; NULL: no memory. */
static struct redis_node *node_at(struct mr_redis *redis, const struct redis_host *host)
{
    struct cluster *cluster = redis->of_kind;
    struct redis_node *node = first_node(redis);
    while (node != NULL && !redis_host_equal(&node->line.host, host))
        node = node_after(redis, &node->link);
    if (node != NULL)
        return node;
    if (redis_node_new(redis, host, &node_ops, &node) != MR_OK)
        return NULL;
    node->primary = true;
    redis_scout_learn(&cluster->scout, host);
    return node;
}

/* ---- the map -------------------------------------------------------------------------------- */

static enum mr_err ask(struct redis_scout *scout)
{
    const struct mr_slice slots[] = {MR_SLICE_LIT("CLUSTER"), MR_SLICE_LIT("SLOTS")};
    return redis_line_say(&scout->line, slots, 2);
}

/* An empty name stands for the host that was asked. */
static bool set_host(struct redis_host *host, const struct redis_line *asked, struct mr_slice name,
                     int64_t port)
{
    if (name.len > MR_HOST_MAX || port < 1 || port > UINT16_MAX)
        return false;
    *host = asked->host;
    if (name.len > 0 && !mr_slice_equal(name, MR_SLICE_LIT("?"))) {
        memcpy(host->name, name.data, name.len);
        host->name[name.len] = '\0';
    }
    host->port = (uint16_t)port;
    return true;
}

/* [first, last, [host, port, ...], replicas...] */
static bool read_range(struct cluster *cluster, const struct mr_reply *range)
{
    struct redis_line *line = &cluster->scout.line;
    const struct mr_reply *primary = mr_reply_at(range, 2);
    int64_t first = mr_reply_int(mr_reply_at(range, 0), -1);
    int64_t last = mr_reply_int(mr_reply_at(range, 1), -1);
    struct redis_host host;
    if (first < 0 || last < first || last >= REDIS_SLOTS ||
        !set_host(&host, line, mr_reply_at(primary, 0)->text,
                  mr_reply_int(mr_reply_at(primary, 1), 0)))
        return false;
    struct redis_node *node = node_at(line->redis, &host);
    for (int64_t slot = first; slot <= last; slot++)
        cluster->owners[slot] = node;
    if (node != NULL)
        node->keep_until = mr_mono_add_ms(line->redis->now, KEEP_MS);
    return true;
}

static bool has_slot(const struct cluster *cluster, const struct redis_node *node)
{
    for (size_t slot = 0; slot < REDIS_SLOTS; slot++)
        if (cluster->owners[slot] == node)
            return true;
    return false;
}

/* A node without slots is not missed: a replica now, or gone. One that a call is on its way to, because
 * an answer said so, is kept for a while. */
static void retire_unused(struct cluster *cluster)
{
    struct mr_redis *redis = cluster->scout.line.redis;
    for (struct redis_node *node = first_node(redis), *next; node != NULL; node = next) {
        next = node_after(redis, &node->link);
        bool kept = node->keep_until.ns > redis->now.ns && redis_line_is_open(&node->line);
        if (!kept && !has_slot(cluster, node))
            redis_node_retire(node);
    }
}

static void hear_map(struct cluster *cluster, const struct mr_reply *reply)
{
    struct redis_line *line = &cluster->scout.line;
    memset(cluster->owners, 0, sizeof cluster->owners);
    for (size_t i = 0; i < reply->n; i++)
        if (!read_range(cluster, &reply->items[i])) {
            redis_line_doom(line, MR_DAMAGED, "the map of the Cluster could not be read");
            return;
        }
    cluster->known = true;
    redis_scout_answered(&cluster->scout);
    retire_unused(cluster);
    tell(line->redis, NULL);
    redis_route_all(line->redis);
}

static void heard(struct redis_scout *scout, const struct mr_reply *reply)
{
    if (reply->kind == MR_REPLY_ARRAY && reply->n > 0)
        hear_map(cluster_of(scout), reply);
    else if (reply->kind == MR_REPLY_ERROR)
        redis_line_doom(&scout->line, MR_UNAVAILABLE, "%.*s", (int)reply->text.len,
                        (const char *)reply->text.data);
    else
        redis_line_doom(&scout->line, MR_UNAVAILABLE, "the Cluster has no slots");
}

static void failed(struct redis_scout *scout)
{
    if (!cluster_of(scout)->known)
        redis_is_down(scout->line.redis, scout->line.err, scout->line.why);
}

static void stopped(struct redis_scout *scout)
{
    free(cluster_of(scout));
}

static const struct redis_scout_ops scout_ops = {
    .line = REDIS_SCOUT_LINE_OPS(REDIS_HELLO_AUTH | REDIS_HELLO_VERSION),
    .ask = ask,
    .heard = heard,
    .failed = failed,
    .stopped = stopped,
};

/* ---- refusals ------------------------------------------------------------------------------- */

/* The node of "MOVED SLOT HOST:PORT" or "ASK SLOT HOST:PORT"; NULL: it cannot be read. */
static struct redis_node *named_node(struct redis_line *line, struct mr_slice error,
                                     uint16_t *ret_slot)
{
    char text[MR_HOST_MAX + 32];
    struct redis_host host;
    int64_t slot, port;
    if (error.len >= sizeof text)
        return NULL;
    memcpy(text, error.data, error.len);
    text[error.len] = '\0';
    char *number = strchr(text, ' ');
    char *name = number != NULL ? strchr(number + 1, ' ') : NULL;
    char *colon = name != NULL ? strrchr(name, ':') : NULL;
    if (colon == NULL)
        return NULL;
    *name++ = *colon++ = '\0';
    if (mr_parse_int64(number + 1, &slot) != MR_OK || slot < 0 || slot >= REDIS_SLOTS ||
        mr_parse_int64(colon, &port) != MR_OK || !set_host(&host, line, mr_slice_str(name), port))
        return NULL;
    *ret_slot = (uint16_t)slot;
    struct redis_node *node = node_at(line->redis, &host);
    if (node != NULL)
        node->keep_until = mr_mono_add_ms(line->redis->now, KEEP_MS);
    return node;
}

static enum redis_verdict moved(struct redis_line *line, struct mr_redis_call *call,
                                struct mr_slice error)
{
    (void)call;
    struct cluster *cluster = line->redis->of_kind;
    uint16_t slot = 0;
    struct redis_node *node = named_node(line, error, &slot);
    redis_scout_look(&cluster->scout, REDIS_HERE);
    if (node == NULL)
        return REDIS_AGAIN_LATER;
    if (cluster->owners[slot] != node) {
        cluster->owners[slot] = node;
        redis_lanes_follow(line->redis);
    }
    return REDIS_AGAIN;
}

/* The call of a lane may block, so it must not go to the line that all share: it waits until the slot
 * has moved. */
static enum redis_verdict asked(struct redis_line *line, struct mr_redis_call *call,
                                struct mr_slice error)
{
    uint16_t slot = 0;
    struct redis_node *node = named_node(line, error, &slot);
    if (call->own.line != NULL || node == NULL || !redis_line_is_open(&node->line))
        return REDIS_AGAIN_LATER;
    call->own.asking = true;
    redis_line_push(&node->line, call);
    return REDIS_TAKEN;
}

/* Some of its keys are here and some there: soon they are all there. */
static enum redis_verdict try_again(struct redis_line *line, struct mr_redis_call *call,
                                    struct mr_slice error)
{
    (void)line, (void)call, (void)error;
    return REDIS_AGAIN_LATER;
}

static enum redis_verdict cluster_down(struct redis_line *line, struct mr_redis_call *call,
                                       struct mr_slice error)
{
    (void)call, (void)error;
    struct cluster *cluster = line->redis->of_kind;
    redis_scout_look(&cluster->scout, REDIS_HERE);
    return REDIS_AGAIN_LATER;
}

static enum redis_verdict refused(struct redis_line *line, struct mr_redis_call *call,
                                  struct mr_slice error)
{
    static const struct {
        struct mr_slice begins;
        enum redis_verdict (*verdict)(struct redis_line *line, struct mr_redis_call *call,
                                      struct mr_slice error);
    } rows[] = {
        {{"MOVED ", 6}, moved},
        {{"ASK ", 4}, asked},
        {{"TRYAGAIN", 8}, try_again},
        {{"CLUSTERDOWN", 11}, cluster_down},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (mr_slice_starts_with(error, rows[i].begins))
            return rows[i].verdict(line, call, error);
    return REDIS_TELL;
}

/* ---- the deployment ------------------------------------------------------------------------- */

static enum mr_err start(struct mr_redis *redis)
{
    struct cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL)
        return MR_NOMEM;
    redis->of_kind = cluster;
    enum mr_err err = redis_scout_start(&cluster->scout, redis, &scout_ops);
    if (err != MR_OK) {
        redis->of_kind = NULL;
        free(cluster);
    }
    return err;
}

static void stop(struct mr_redis *redis)
{
    struct cluster *cluster = redis->of_kind;
    if (cluster == NULL)
        return;
    redis->of_kind = NULL;
    for (struct redis_node *node; (node = first_node(redis)) != NULL;)
        redis_node_retire(node);
    redis_scout_stop(&cluster->scout);
}

static struct redis_node *route(struct mr_redis *redis, uint16_t slot)
{
    struct cluster *cluster = redis->of_kind;
    if (cluster == NULL)
        return NULL;
    if (slot != REDIS_SLOT_ANY)
        return cluster->owners[slot];
    struct redis_node *node = first_node(redis);
    while (node != NULL && !redis_line_is_open(&node->line))
        node = node_after(redis, &node->link);
    return node;
}

const struct redis_kind redis_cluster = {
    .name = "cluster",
    .start = start,
    .stop = stop,
    .slot = redis_slot,
    .route = route,
    .refused = refused,
};
