/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the servers of a rig belong together. Sentinels and the nodes of a Cluster find each other within
 * seconds; here each one is told by its files what it would find out, so that they are ready at
 * once.
 */
#include <stdlib.h>

#include "support/redis_rig_own.h"

enum {
    DOWN_AFTER_MS = 1500, /* longer than a busy machine stands still */
    TAKE_OVER_MS = 6000,  /* Redis gives a gentle failover 5 s */
    FAILOVER_MS = 3000,   /* of a Sentinel; it waits twice as long before it tries again */
    KEYS_A_MOVE = 20,
};

static const char *const master_name = "mymaster";

bool rig_is_sentinel(const struct redis_rig_server *server)
{
    return server->rig->kind == RIG_SENTINEL &&
           server >= server->rig->servers + 1 + REDIS_RIG_REPLICAS;
}

struct redis_rig_server *rig_by_port(struct redis_rig *rig, unsigned port)
{
    for (size_t i = 0; i < rig->n; i++)
        if (rig->servers[i].port == port)
            return &rig->servers[i];
    return NULL;
}

/* ---- URLs ----------------------------------------------------------------------------------- */

static void print_urls(struct redis_rig *rig, const char *scheme, size_t first, size_t n,
                       const char *path)
{
    const struct redis_rig_options *o = &rig->options;
    char hosts[256] = "", who[128] = "";
    for (size_t i = first, len = 0; i < first + n; i++, len = strlen(hosts))
        rig_print(hosts + len, sizeof hosts - len, "%s127.0.0.1:%u", i > first ? "," : "",
                  rig->servers[i].port);
    if (o->password != NULL)
        RIG_PRINT(who, "%s:%s@", o->user != NULL ? o->user : "", o->password);
    RIG_PRINT(rig->url, "%s://%s%s%s", scheme, who, hosts, path);
    RIG_PRINT(rig->unix_url, "redis+unix:%s", rig->servers[0].socket);
}

/* ---- one server ----------------------------------------------------------------------------- */

struct redis_rig *redis_rig_standalone(const struct redis_rig_options *options)
{
    struct redis_rig *rig = rig_new(RIG_STANDALONE, options, 1);
    (void)fclose(rig_server_config(&rig->servers[0]));
    rig_launch(&rig->servers[0], NULL);
    rig_await_ping(&rig->servers[0]);
    print_urls(rig, rig->options.tls ? "rediss" : "redis", 0, 1, "");
    return rig;
}

bool rig_in_step(struct redis_rig_server *replica, const struct redis_rig_server *primary)
{
    char role[64], port[64], state[64];
    const char *answer = RIG(replica, "ROLE");
    rig_line(answer, 0, role, sizeof role);
    rig_line(answer, 2, port, sizeof port);
    rig_line(answer, 3, state, sizeof state);
    return strcmp(role, "slave") == 0 && strcmp(state, "connected") == 0 &&
           strtoul(port, NULL, 10) == primary->port;
}

static int down_after_ms(const struct redis_rig *rig)
{
    return rig->options.down_after_ms > 0 ? rig->options.down_after_ms : DOWN_AFTER_MS;
}

/* ---- Sentinels ------------------------------------------------------------------------------ */

static void write_sentinel(struct redis_rig_server *server)
{
    struct redis_rig *rig = server->rig;
    const struct redis_rig_options *o = &rig->options;
    FILE *file = rig_config(server);
    (void)fprintf(file,
                  "sentinel myid %s\nsentinel monitor %s 127.0.0.1 %u 2\n"
                  "sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s %d\n"
                  "sentinel parallel-syncs %s 2\n",
                  server->id, master_name, rig->servers[0].port, master_name, down_after_ms(rig),
                  master_name, FAILOVER_MS, master_name);
    if (o->user != NULL && o->password != NULL)
        (void)fprintf(file, "sentinel auth-user %s %s\n", master_name, o->user);
    if (o->password != NULL)
        (void)fprintf(file, "sentinel auth-pass %s %s\n", master_name, o->password);
    if (o->sentinel_password != NULL)
        (void)fprintf(file, "requirepass %s\n", o->sentinel_password);
    for (size_t i = 1; i < rig->n; i++) {
        const struct redis_rig_server *other = &rig->servers[i];
        if (!rig_is_sentinel(other))
            (void)fprintf(file, "sentinel known-replica %s 127.0.0.1 %u\n", master_name,
                          other->port);
        else if (other != server)
            (void)fprintf(file, "sentinel known-sentinel %s 127.0.0.1 %u %s\n", master_name,
                          other->port, other->id);
    }
    (void)fclose(file);
}

/* They look more often, and a machine that stands still for seconds does not make them idle. */
static void hurry(struct redis_rig_server *sentinel)
{
    (void)RIG(sentinel, "SENTINEL", "DEBUG", "info-period", "500", "publish-period", "300",
              "tilt-trigger", "20000", "tilt-period", "1000");
}

struct redis_rig *redis_rig_sentinel(const struct redis_rig_options *options)
{
    size_t servers = 1 + REDIS_RIG_REPLICAS;
    struct redis_rig *rig = rig_new(RIG_SENTINEL, options, servers + REDIS_RIG_SENTINELS);
    for (size_t i = 0; i < servers; i++) {
        FILE *file = rig_server_config(&rig->servers[i]);
        if (i > 0)
            (void)fprintf(file, "replicaof 127.0.0.1 %u\n", rig->servers[0].port);
        (void)fclose(file);
    }
    for (size_t i = servers; i < rig->n; i++)
        write_sentinel(&rig->servers[i]);
    for (size_t i = 0; i < rig->n; i++) {
        rig_launch(&rig->servers[i], NULL);
        if (i == 0)
            rig_await_ping(&rig->servers[i]); /* a replica that comes too early waits a second */
    }
    for (size_t i = 1; i < rig->n; i++)
        rig_await_ping(&rig->servers[i]);
    for (size_t i = servers; i < rig->n; i++)
        hurry(&rig->servers[i]);
    char path[64];
    RIG_PRINT(path, "/%s", master_name);
    print_urls(rig, "redis+sentinel", servers, REDIS_RIG_SENTINELS, path);
    redis_rig_wait_healthy(rig);
    return rig;
}

/* By this Sentinel. */
static struct redis_rig_server *named_by(struct redis_rig_server *sentinel)
{
    char port[64];
    rig_line(RIG(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", master_name), 1, port,
             sizeof port);
    return rig_by_port(sentinel->rig, (unsigned)strtoul(port, NULL, 10));
}

struct redis_rig_server *rig_named_primary(struct redis_rig *rig)
{
    for (size_t i = 0; i < rig->n; i++)
        if (rig_is_sentinel(&rig->servers[i]) && rig->servers[i].pid != 0)
            return named_by(&rig->servers[i]);
    return NULL;
}

struct redis_rig_server *redis_rig_primary(struct redis_rig *rig)
{
    struct redis_rig_server *named =
        rig->kind == RIG_STANDALONE ? &rig->servers[0] : rig_named_primary(rig);
    return named != NULL && named->pid != 0 && RIG_SAYS(named, "master", "ROLE") ? named : NULL;
}

static bool sentinels_agree(struct redis_rig *rig, const struct redis_rig_server *primary)
{
    for (size_t i = 1 + REDIS_RIG_REPLICAS; i < rig->n; i++)
        if (rig->servers[i].pid != 0 && named_by(&rig->servers[i]) != primary)
            return false;
    return true;
}

/* A Sentinel names the new primary before its failover is over; a second one meanwhile would confuse
 * it. */
static bool is_at_rest(struct redis_rig_server *sentinel, const struct redis_rig_server *primary)
{
    char port[64];
    const char *answer = RIG(sentinel, "SENTINEL", "MASTER", master_name);
    rig_line(answer, 5, port, sizeof port);
    return strtoul(port, NULL, 10) == primary->port &&
           strstr(answer, "\nflags\nmaster\n") != NULL &&
           RIG_SAYS(sentinel, "OK ", "SENTINEL", "CKQUORUM", master_name);
}

static bool sentinel_is_healthy(struct redis_rig *rig)
{
    struct redis_rig_server *primary = redis_rig_primary(rig);
    if (primary == NULL || !sentinels_agree(rig, primary))
        return false;
    for (size_t i = 0; i < 1 + REDIS_RIG_REPLICAS; i++)
        if (&rig->servers[i] != primary && !rig_in_step(&rig->servers[i], primary))
            return false;
    for (size_t i = 1 + REDIS_RIG_REPLICAS; i < rig->n; i++)
        if (rig->servers[i].pid != 0 && !is_at_rest(&rig->servers[i], primary))
            return false;
    return true;
}

/* Again and again: one that a busy machine made too slow is given up, and nobody begins another. While one is
 * under way this is refused. */
static bool asked_to_leave(struct redis_rig_server *sentinel, struct redis_rig_server *primary)
{
    if (sentinels_agree(primary->rig, primary))
        (void)RIG(sentinel, "SENTINEL", "FAILOVER", master_name);
    return true;
}

static void sentinel_failover(struct redis_rig_server *primary, enum redis_rig_how how)
{
    struct redis_rig *rig = primary->rig;
    struct redis_rig_server *sentinel = &rig->servers[1 + REDIS_RIG_REPLICAS];
    if (how == REDIS_RIG_BY_KILL)
        redis_rig_kill(primary);
    struct redis_rig_server *now = NULL;
    RIG_UNTIL((how == REDIS_RIG_BY_KILL || asked_to_leave(sentinel, primary)) &&
              (now = redis_rig_primary(rig)) != NULL && now != primary &&
              sentinels_agree(rig, now));
}

/* ---- Cluster -------------------------------------------------------------------------------- */

static unsigned first_slot(size_t primary)
{
    return (unsigned)(primary * REDIS_RIG_SLOTS / REDIS_RIG_PRIMARIES);
}

/* What a node writes down about itself and all others. */
static void write_nodes(const struct redis_rig_server *server)
{
    const struct redis_rig *rig = server->rig;
    char path[REDIS_RIG_PATH_MAX + 16];
    RIG_PRINT(path, "%s/nodes.conf", server->dir);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        rig_die("%s cannot be written", path);
    for (size_t i = 0; i < rig->n; i++) {
        const struct redis_rig_server *node = &rig->servers[i];
        bool is_primary = i < REDIS_RIG_PRIMARIES;
        size_t primary = i % REDIS_RIG_PRIMARIES;
        (void)fprintf(file, "%s 127.0.0.1:%u@%u %s%s %s 0 0 %zu connected", node->id, node->port,
                      node->bus_port, node == server ? "myself," : "",
                      is_primary ? "master" : "slave", is_primary ? "-" : rig->servers[primary].id,
                      primary + 1);
        if (is_primary)
            (void)fprintf(file, " %u-%u", first_slot(i), first_slot(i + 1) - 1);
        (void)fputc('\n', file);
    }
    (void)fprintf(file, "vars currentEpoch %d lastVoteEpoch 0\n", REDIS_RIG_PRIMARIES);
    (void)fclose(file);
}

struct redis_rig *redis_rig_cluster(const struct redis_rig_options *options)
{
    size_t n = (size_t)2 * REDIS_RIG_PRIMARIES;
    struct redis_rig *rig = rig_new(RIG_CLUSTER, options, n);
    for (size_t i = 0; i < n; i++) {
        struct redis_rig_server *server = &rig->servers[i];
        FILE *file = rig_server_config(server);
        (void)fprintf(file,
                      "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port %u\n"
                      "cluster-node-timeout %d\ncluster-replica-validity-factor 0\n"
                      "cluster-allow-replica-migration no\n%s",
                      server->bus_port, down_after_ms(rig),
                      rig->options.tls ? "tls-cluster yes\n" : "");
        (void)fclose(file);
        write_nodes(server);
        rig_launch(server, NULL);
    }
    for (size_t i = 0; i < n; i++)
        rig_await_ping(&rig->servers[i]);
    print_urls(rig, "redis+cluster", 0, REDIS_RIG_PRIMARIES, "");
    redis_rig_wait_healthy(rig);
    return rig;
}

/* The words of the line in which a node speaks of itself; false: it does not answer. */
static bool own_line(struct redis_rig_server *node, char *to, size_t size)
{
    const char *answer = node->pid != 0 ? RIG(node, "CLUSTER", "NODES") : "";
    const char *at = strstr(answer, "myself");
    if (at == NULL)
        return false;
    rig_line(at, 0, to, size);
    return true;
}

static bool in_ranges(const char *words, unsigned slot)
{
    /* flags, primary, ping, pong, epoch, link; then the ranges. */
    for (int i = 0; i < 6 && words != NULL; i++) {
        words = strchr(words, ' ');
        words = words != NULL ? words + 1 : NULL;
    }
    while (words != NULL && *words != '\0' && *words != '[') {
        char *end = NULL;
        unsigned long first = strtoul(words, &end, 10);
        unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        if (first <= slot && slot <= last)
            return true;
        words = *end == ' ' ? end + 1 : NULL;
    }
    return false;
}

struct redis_rig_server *redis_rig_owner(struct redis_rig *rig, unsigned slot)
{
    for (size_t i = 0; i < rig->n; i++) {
        char line[1024];
        if (own_line(&rig->servers[i], line, sizeof line) &&
            strncmp(line, "myself,master", 13) == 0 && in_ranges(line, slot))
            return &rig->servers[i];
    }
    return NULL;
}

/* A replica of a primary that may be dead. */
static struct redis_rig_server *replica_of(struct redis_rig_server *primary)
{
    struct redis_rig *rig = primary->rig;
    for (size_t i = 0; i < rig->n; i++) {
        struct redis_rig_server *node = &rig->servers[i];
        char line[1024];
        if (node != primary && own_line(node, line, sizeof line) &&
            strstr(line, primary->id) != NULL)
            return node;
    }
    return NULL;
}

static bool all_say_ok(struct redis_rig *rig)
{
    for (size_t i = 0; i < rig->n; i++)
        if (rig->servers[i].pid != 0 &&
            !RIG_SAYS(&rig->servers[i], "cluster_state:ok", "CLUSTER", "INFO"))
            return false;
    return true;
}

static bool cluster_is_healthy(struct redis_rig *rig)
{
    size_t primaries = 0, in_step = 0;
    for (size_t i = 0; i < rig->n; i++) {
        struct redis_rig_server *node = &rig->servers[i];
        if (node->pid == 0 || RIG_SAYS(node, "fail", "CLUSTER", "NODES"))
            return false;
        struct redis_rig_server *replica =
            RIG_SAYS(node, "master", "ROLE") ? replica_of(node) : NULL;
        primaries += replica != NULL;
        in_step += replica != NULL && rig_in_step(replica, node);
    }
    return primaries == REDIS_RIG_PRIMARIES && in_step == primaries && all_say_ok(rig);
}

/* Asks a replica to take over, and again when it cannot have come to that any more: a busy machine may be too slow for the time
 * that Redis gives such a failover. */
static bool is_taking_over(struct redis_rig_server *replica, mr_mono *asked)
{
    mr_mono now = mr_mono_now(mr_clock_system());
    bool is_due = asked->ns == 0 || now.ns - asked->ns > TAKE_OVER_MS * MR_NS_PER_MS;
    if (is_due && !RIG_SAYS(replica, "master", "ROLE") &&
        RIG_SAYS(replica, "OK", "CLUSTER", "FAILOVER"))
        *asked = now;
    return asked->ns != 0;
}

static void cluster_failover(struct redis_rig_server *primary, enum redis_rig_how how)
{
    struct redis_rig_server *replica = replica_of(primary);
    if (replica == NULL)
        rig_die("no replica of %s", primary->dir);
    if (how == REDIS_RIG_BY_KILL)
        redis_rig_kill(primary);
    mr_mono asked = {0};
    RIG_UNTIL((how == REDIS_RIG_BY_KILL || is_taking_over(replica, &asked)) &&
              RIG_SAYS(replica, "master", "ROLE") && !RIG_SAYS(primary, "master", "ROLE") &&
              all_say_ok(primary->rig));
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void set_slot(struct redis_rig_server *at, unsigned slot, const char *how, const char *id)
{
    char number[16];
    RIG_PRINT(number, "%u", slot);
    const char *answer = RIG(at, "CLUSTER", "SETSLOT", number, how, id);
    if (strcmp(answer, "OK") != 0)
        rig_die("CLUSTER SETSLOT %u %s: %s", slot, how, answer);
}

static struct redis_rig_server *owner_of(struct redis_rig *rig, unsigned slot)
{
    struct redis_rig_server *owner = redis_rig_owner(rig, slot);
    if (owner == NULL)
        rig_die("slot %u has no owner", slot);
    return owner;
}

void redis_rig_open_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to)
{
    struct redis_rig_server *from = owner_of(rig, slot);
    set_slot(to, slot, "IMPORTING", from->id);
    set_slot(from, slot, "MIGRATING", to->id);
}

size_t redis_rig_move_keys(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to,
                           size_t n)
{
    const struct redis_rig_options *o = &rig->options;
    struct redis_rig_server *from = owner_of(rig, slot);
    char number[16], port[16], key[1024];
    size_t moved = 0;
    RIG_PRINT(number, "%u", slot);
    RIG_PRINT(port, "%u", to->port);
    for (; moved < n; moved++) {
        rig_line(RIG(from, "CLUSTER", "GETKEYSINSLOT", number, "1"), 0, key, sizeof key);
        if (key[0] == '\0')
            break;
        const char *answer = o->password == NULL
                                 ? RIG(from, "MIGRATE", "127.0.0.1", port, key, "0", "5000")
                                 : RIG(from, "MIGRATE", "127.0.0.1", port, key, "0", "5000",
                                       "AUTH2", o->user != NULL ? o->user : "default", o->password);
        if (strcmp(answer, "OK") != 0 && strcmp(answer, "NOKEY") != 0)
            rig_die("MIGRATE: %s", answer);
    }
    return moved;
}

void redis_rig_close_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to)
{
    struct redis_rig_server *from = owner_of(rig, slot);
    /* The new owner first: the slot must not be without one. */
    set_slot(to, slot, "NODE", to->id);
    set_slot(from, slot, "NODE", to->id);
    RIG_UNTIL(redis_rig_owner(rig, slot) == to);
}

void redis_rig_move_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to)
{
    if (redis_rig_owner(rig, slot) == to)
        return;
    redis_rig_open_slot(rig, slot, to);
    while (redis_rig_move_keys(rig, slot, to, KEYS_A_MOVE) > 0)
        continue;
    redis_rig_close_slot(rig, slot, to);
}

/* ---- all ------------------------------------------------------------------------------------ */

void redis_rig_wait_healthy(struct redis_rig *rig)
{
    if (rig->kind == RIG_SENTINEL)
        RIG_UNTIL(sentinel_is_healthy(rig));
    if (rig->kind == RIG_CLUSTER)
        RIG_UNTIL(cluster_is_healthy(rig));
}

void redis_rig_failover(struct redis_rig_server *primary, enum redis_rig_how how)
{
    if (primary->rig->kind == RIG_SENTINEL)
        sentinel_failover(primary, how);
    else
        cluster_failover(primary, how);
}
