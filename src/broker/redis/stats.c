/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the whole: those of all queues, what removed ones counted, and the memory of all servers. */
#include <stdlib.h>

#include "broker/redis/look.h"

enum { SERVERS_MAX = 256 };

struct figures {
    struct fan fan;
    struct mr_redis_call counts, cluster;
    size_t left; /* parts under way */
    enum mr_err err;
    struct mr_redis_call servers[SERVERS_MAX];
};

static struct mr_stats *stats_of(const struct figures *figures)
{
    return &mr_container(figures->fan.ticket->req, struct mr_req_stats, req)->stats;
}

static void part_done(struct figures *figures, enum mr_err err)
{
    if (figures->err == MR_OK)
        figures->err = err;
    if (--figures->left == 0)
        ticket_done(figures->fan.ticket, figures->err);
}

static uint64_t figure(const struct mr_reply *reply, enum figure which)
{
    return (uint64_t)mr_reply_int(mr_reply_at(reply, which), 0);
}

static enum mr_err queue_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct mr_stats *stats = stats_of(fan->arg);
    (void)queue;
    for (size_t i = FIGURE_SCHEDULED; i <= FIGURE_AGGREGATING; i++)
        stats->tasks += figure(reply, i);
    stats->deleted += figure(reply, FIGURE_DELETED);
    stats->expired += figure(reply, FIGURE_EXPIRED);
    stats->gathered += figure(reply, FIGURE_GATHERED);
    stats->carried += figure(reply, FIGURE_CARRIED);
    stats->moved += figure(reply, FIGURE_MOVED);
    stats->trimmed += figure(reply, FIGURE_TRIMMED);
    stats->quarantined += figure(reply, FIGURE_QUARANTINED);
    stats->results += figure(reply, FIGURE_RESULTS);
    return MR_OK;
}

static void queues_done(struct fan *fan, enum mr_err err)
{
    part_done(fan->arg, err);
}

/* What queues had counted that are gone. */
static void counts_said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct figures *figures = call->arg;
    struct mr_stats *stats = stats_of(figures);
    err = look_array(figures->fan.ticket->engine, err, reply);
    if (err == MR_OK) {
        stats->deleted += (uint64_t)mr_reply_int(mr_reply_at(reply, 0), 0);
        stats->expired += (uint64_t)mr_reply_int(mr_reply_at(reply, 1), 0);
        stats->gathered += (uint64_t)mr_reply_int(mr_reply_at(reply, 2), 0);
        stats->carried += (uint64_t)mr_reply_int(mr_reply_at(reply, 3), 0);
        stats->moved += (uint64_t)mr_reply_int(mr_reply_at(reply, 4), 0);
        stats->trimmed += (uint64_t)mr_reply_int(mr_reply_at(reply, 5), 0);
        stats->quarantined += (uint64_t)mr_reply_int(mr_reply_at(reply, 6), 0);
    }
    part_done(figures, err);
}

static void cluster_said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct figures *figures = call->arg;
    struct ticket *ticket = figures->fan.ticket;
    struct cluster cluster;
    struct mr_leader leader;
    err = cluster_read(ticket->engine, err, reply, &cluster);
    if (err == MR_OK)
        err = cluster_leader(&cluster, &ticket->req->arena, &leader);
    if (err == MR_OK)
        stats_of(figures)->leaderless_ms = leader.leaderless_ms;
    part_done(figures, err);
}

/* A number of INFO: "NAME:123". */
static uint64_t info_number(struct mr_slice text, const char *name)
{
    size_t len = strlen(name);
    const char *at = text.data, *end = at + text.len;
    while (at != NULL && (size_t)(end - at) > len) {
        if (memcmp(at, name, len) == 0 && at[len] == ':')
            return strtoull(at + len + 1, NULL, 10);
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line != NULL ? line + 1 : NULL;
    }
    return 0;
}

static void server_said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct figures *figures = call->arg;
    struct mr_stats *stats = stats_of(figures);
    if (err == MR_OK && reply->kind == MR_REPLY_TEXT) {
        uint64_t used = info_number(reply->text, "used_memory");
        uint64_t most = info_number(reply->text, "maxmemory");
        stats->memory_bytes += used;
        stats->disk_full |= most > 0 && used >= most;
    }
    part_done(figures, MR_OK); /* a user may be allowed to work and not to see this */
}

void stats_begin(struct ticket *ticket)
{
    struct mr_req_stats *req = mr_container(ticket->req, struct mr_req_stats, req);
    struct mr_arena *arena = &req->req.arena;
    struct figures *figures = mr_arena_calloc(arena, 1, sizeof *figures);
    struct mr_slice counts = global_key(ticket->engine, "mr:counts", arena);
    req->stats = (struct mr_stats){.stale_refused = ticket->engine->stale_refused};
    if (figures == NULL || counts.len == 0) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    figures->fan = (struct fan){.ticket = ticket,
                                .script = SCRIPT_QUEUE,
                                .whom = FAN_BOTH,
                                .said = queue_said,
                                .done = queues_done,
                                .arg = figures};
    figures->left = 3;
    fan_out(&figures->fan);
    figures->cluster = (struct mr_redis_call){
        .answered = cluster_said, .arg = figures, .repeatable = true, .urgent = true};
    cluster_ask(ticket->engine, &figures->cluster);
    figures->counts = (struct mr_redis_call){
        .answered = counts_said, .arg = figures, .repeatable = true, .urgent = true};
    const struct mr_slice ask[] = {MR_SLICE_LIT("HMGET"),      counts,
                                   MR_SLICE_LIT("deleted"),    MR_SLICE_LIT("expired"),
                                   MR_SLICE_LIT("gathered"),   MR_SLICE_LIT("carried"),
                                   MR_SLICE_LIT("moved"),      MR_SLICE_LIT("trimmed"),
                                   MR_SLICE_LIT("quarantined")};
    mr_redis_send(ticket->engine->redis, &figures->counts, counts, ask, sizeof ask / sizeof *ask);
    for (size_t i = 0; i < SERVERS_MAX; i++)
        figures->servers[i] = (struct mr_redis_call){
            .answered = server_said, .arg = figures, .repeatable = true, .urgent = true};
    const struct mr_slice info[] = {MR_SLICE_LIT("INFO"), MR_SLICE_LIT("memory")};
    figures->left +=
        mr_redis_send_to_all(ticket->engine->redis, figures->servers, SERVERS_MAX, info, 2);
}
