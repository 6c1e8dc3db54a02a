/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leads, who lives, and what the leader writes. All of it stands in one hash, asynq:mr:cluster, so that each
 * script sees it whole, also in a Cluster:
 *
 *   leader   incarnation of the node that leads, '': nobody; name: its name
 *   until    it leads until then, ms, unless it beats; since: it has led since, ms
 *   term     of the last leader; free: since when nobody leads, ms
 *   version  the last one of an assignment
 *   swept    when those were removed that had been dead for long, ms
 *   n:INC    the last beat of a node, ms, and for how long it lives after one
 *   a:QUEUE  "VERSION TERM", then a line for each owner: "INC BITS NAME", numbers in hex
 *
 * Times are of Redis's clock. Terms and versions are max(last + 1, that clock in us): so they rise also when
 * the hash is lost. A user that may not touch the key works without a leader, and judges nodes by what they
 * say of themselves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/look.h"

/* ---- beats ---------------------------------------------------------------------------------- */

/* What a beat asks; it outlives its ticket where the node goes. */
struct vote {
    struct mr_redis_call call;
    struct node *node;
    struct ticket *ticket; /* NULL: nobody waits */
};

static void counted(struct engine *engine, struct ticket *ticket, const struct mr_reply *reply)
{
    int64_t version = mr_reply_int(mr_reply_at(reply, 2), 0);
    if (version != engine->assign_version)
        parts_survey(engine);
    engine->assign_version = version;
    if (ticket == NULL)
        return;
    struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    int64_t term = mr_reply_int(mr_reply_at(reply, 0), 0);
    req->term = term > 0 ? (uint64_t)term : 0;
    req->leader_ms = mr_reply_int(mr_reply_at(reply, 1), 0);
}

/* What Redis refuses is said once; it is no reason to end anything. */
static void voted(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct vote *vote = call->arg;
    struct node *node = vote->node;
    struct engine *engine = node->engine;
    struct ticket *ticket = vote->ticket;
    bool fine = err == MR_OK && reply->kind == MR_REPLY_ARRAY && reply->n == 3;
    bool refused = (err == MR_OK && !fine) || err == MR_FAILED || err == MR_DENIED;
    if (refused && !engine->vote_refused)
        (void)engine_refused(engine, err, reply);
    engine->vote_refused = refused;
    if (fine)
        counted(engine, ticket, reply);
    free(vote);
    if (ticket != NULL)
        beat_over(ticket);
    node_call_done(node);
}

void leader_vote(struct node *node, struct ticket *ticket)
{
    struct engine *engine = node->engine;
    char id[NUMBER_MAX], lease[NUMBER_MAX], leads[NUMBER_MAX];
    if (node->inner) /* nobody sees it, and it leads nobody */
        return;
    struct vote *vote = calloc(1, sizeof *vote);
    mr_arena_reset(&engine->scratch);
    struct mr_slice key = global_key(engine, "mr:cluster", &engine->scratch);
    if (vote == NULL || key.len == 0) { /* the next one comes */
        free(vote);
        return;
    }
    *vote = (struct vote){.node = node, .ticket = ticket};
    vote->call =
        (struct mr_redis_call){.answered = voted, .arg = vote, .repeatable = true, .urgent = true};
    struct mr_slice args[] = {number_arg((int64_t)node->incarnation, id),
                              number_arg(node->leaving ? 0 : node->lease_ms, lease),
                              number_arg(ticket != NULL ? node->leader_ms : 0, leads), node->name};
    node->calls++;
    if (ticket != NULL)
        ticket->calls++;
    mr_redis_eval(engine->redis, &vote->call, SCRIPT_LEAD, &key, 1, args, 4);
}

/* ---- writing -------------------------------------------------------------------------------- */

struct assign {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct mr_slice key, owners;
    char term[NUMBER_MAX], version[NUMBER_MAX];
};

static enum mr_err owners_text(const struct mr_req_assign *req, struct mr_arena *arena,
                               struct mr_slice *ret_text)
{
    struct mr_buf text = {0};
    enum mr_err err = MR_OK;
    for (size_t i = 0; err == MR_OK && i < req->owners_n; i++) {
        const struct mr_owner *owner = &req->owners[i];
        err = mr_buf_printf(&text, "%" PRIx64 " %" PRIx64 " ", owner->incarnation, owner->owned);
        if (err == MR_OK)
            err = mr_buf_append_slice(&text, owner->node);
        if (err == MR_OK)
            err = mr_buf_append(&text, "\n", 1);
    }
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), ret_text);
    mr_buf_done(&text);
    return err;
}

enum mr_err assign_prepare(struct ticket *ticket)
{
    const struct mr_req_assign *req = mr_container(ticket->req, struct mr_req_assign, req);
    struct mr_arena *arena = &ticket->req->arena;
    MR_TRY(mr_assign_check(req));
    if (req->term > INT64_MAX || req->version > INT64_MAX)
        return MR_STALE;
    struct assign *assign = mr_arena_calloc(arena, 1, sizeof *assign);
    ticket->own = assign;
    if (assign == NULL)
        return MR_NOMEM;
    assign->ticket = ticket;
    assign->key = global_key(ticket->engine, "mr:cluster", arena);
    return assign->key.len > 0 ? owners_text(req, arena, &assign->owners) : MR_NOMEM;
}

static void assigned(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct assign *assign = call->arg;
    struct ticket *ticket = assign->ticket;
    struct mr_req_assign *req = mr_container(ticket->req, struct mr_req_assign, req);
    int64_t version = err == MR_OK ? mr_reply_int(reply, -1) : -1;
    if (err != MR_OK || version < 0) {
        ticket_done(ticket, engine_refused(ticket->engine, err, reply));
        return;
    }
    if (version > 0)
        req->version = (uint64_t)version;
    ticket_done(ticket, version > 0 ? MR_OK : MR_STALE);
}

/* How many partitions there are is known: a leader has looked at them. */
void assign_begin(struct ticket *ticket)
{
    struct assign *assign = ticket->own;
    const struct mr_req_assign *req = mr_container(ticket->req, struct mr_req_assign, req);
    const struct rqueue *queue = rqueue_of(ticket->engine, req->queue);
    if (queue == NULL || queue->part_of != NULL || queue->partitions == 1) {
        ticket_done(ticket, queue == NULL ? MR_NOMEM : MR_NOT_FOUND);
        return;
    }
    if (mr_owned_by_all(req) != UINT64_MAX >> (64 - queue->partitions)) {
        ticket_done(ticket, MR_STALE);
        return;
    }
    struct mr_slice args[] = {number_arg((int64_t)req->term, assign->term), req->queue,
                              number_arg((int64_t)req->version, assign->version), assign->owners};
    assign->call = (struct mr_redis_call){.answered = assigned, .arg = assign, .urgent = true};
    mr_redis_eval(ticket->engine->redis, &assign->call, SCRIPT_ASSIGN, &assign->key, 1, args, 4);
}

void cluster_fit(const struct rqueue *queue, struct mr_redis_call *call, uint32_t partitions,
                 bool only)
{
    struct engine *engine = queue->engine;
    struct mr_arena arena = {0};
    char number[NUMBER_MAX];
    struct mr_slice key = global_key(engine, "mr:cluster", &arena);
    struct mr_slice args[] = {queue->name, number_arg(partitions, number),
                              only ? MR_SLICE_LIT("1") : MR_SLICE_LIT("")};
    mr_redis_eval(engine->redis, call, SCRIPT_FIT, &key, key.len > 0 ? 1 : 0, args, 3);
    mr_arena_done(&arena);
}

enum mr_err cluster_fitted(struct engine *engine, enum mr_err err, const struct mr_reply *reply)
{
    return err == MR_OK || err == MR_DENIED ? MR_OK : engine_refused(engine, err, reply);
}

/* ---- reading -------------------------------------------------------------------------------- */

void cluster_ask(struct engine *engine, struct mr_redis_call *call)
{
    struct mr_arena arena = {0};
    struct mr_slice key = global_key(engine, "mr:cluster", &arena);
    mr_redis_eval(engine->redis, call, SCRIPT_CLUSTER, &key, key.len > 0 ? 1 : 0, NULL, 0);
    mr_arena_done(&arena);
}

enum mr_err cluster_read(struct engine *engine, enum mr_err err, const struct mr_reply *reply,
                         struct cluster *ret_cluster)
{
    *ret_cluster = (struct cluster){0};
    if (err == MR_DENIED)
        return MR_OK;
    MR_TRY(look_array(engine, err, reply));
    if (reply->n != 2 || reply->items[1].kind != MR_REPLY_ARRAY)
        return engine_refused(engine, MR_FAILED, NULL);
    ret_cluster->now_ms = mr_reply_int(&reply->items[0], 0);
    ret_cluster->fields = &reply->items[1];
    return MR_OK;
}

enum mr_err cluster_keep(struct cluster *cluster, struct mr_arena *arena)
{
    if (cluster->fields == NULL)
        return MR_OK;
    struct mr_reply *items = mr_arena_calloc(arena, cluster->fields->n + 1, sizeof *items);
    struct mr_reply *fields = mr_arena_calloc(arena, 1, sizeof *fields);
    if (items == NULL || fields == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < cluster->fields->n; i++) {
        items[i].kind = MR_REPLY_TEXT;
        MR_TRY(mr_arena_copy(arena, cluster->fields->items[i].text, &items[i].text));
    }
    *fields = (struct mr_reply){.kind = MR_REPLY_ARRAY, .n = cluster->fields->n, .items = items};
    cluster->fields = fields;
    return MR_OK;
}

static const struct mr_reply *field(const struct cluster *cluster, const char *name)
{
    return cluster->fields != NULL ? message_field(cluster->fields, name) : NULL;
}

static int64_t number(const struct cluster *cluster, const char *name)
{
    const struct mr_reply *reply = field(cluster, name);
    return reply != NULL ? mr_reply_int(reply, 0) : 0;
}

bool cluster_node(const struct cluster *cluster, uint64_t incarnation,
                  struct cluster_node *ret_node)
{
    char name[NUMBER_MAX + 2], text[2 * NUMBER_MAX];
    (void)snprintf(name, sizeof name, "n:%" PRIu64, incarnation);
    const struct mr_reply *reply = field(cluster, name);
    if (reply == NULL || reply->text.len >= sizeof text)
        return false;
    memcpy(text, reply->text.data, reply->text.len);
    text[reply->text.len] = '\0';
    int64_t lease_ms;
    if (sscanf(text, "%" SCNd64 " %" SCNd64, &ret_node->beat_ms, &lease_ms) != 2)
        return false;
    int64_t age_ms = cluster->now_ms - ret_node->beat_ms;
    ret_node->dead_ms = ret_node->beat_ms + lease_ms;
    ret_node->state = age_ms >= lease_ms          ? MR_NODE_DEAD
                      : age_ms > lease_ms / 3 * 2 ? MR_NODE_SUSPECT
                                                  : MR_NODE_LIVE;
    return true;
}

enum mr_err cluster_leader(const struct cluster *cluster, struct mr_arena *arena,
                           struct mr_leader *ret_leader)
{
    const struct mr_reply *name = field(cluster, "name");
    int64_t id = number(cluster, "leader"), ends_ms = number(cluster, "until");
    struct cluster_node node = {.dead_ms = INT64_MAX};
    *ret_leader = (struct mr_leader){.term = (uint64_t)number(cluster, "term")};
    if (cluster->fields == NULL) /* it may not be seen */
        return MR_OK;
    if (id != 0 && !cluster_node(cluster, (uint64_t)id, &node))
        ends_ms = 0;
    ends_ms = ends_ms < node.dead_ms ? ends_ms : node.dead_ms;
    if (id == 0 || ends_ms <= cluster->now_ms) {
        int64_t free_ms = id != 0 ? ends_ms : number(cluster, "free");
        ret_leader->leaderless_ms = free_ms > 0 ? cluster->now_ms - free_ms + 1 : 1;
        return MR_OK;
    }
    ret_leader->incarnation = (uint64_t)id;
    ret_leader->since_ms = number(cluster, "since");
    return name != NULL ? mr_arena_copy(arena, name->text, &ret_leader->node) : MR_OK;
}

/* The next line of text; NULL: there is none. */
static bool next_line(struct mr_slice *text, char *line, size_t room)
{
    const char *from = text->data, *end = text->len > 0 ? memchr(from, '\n', text->len) : NULL;
    size_t len = end != NULL ? (size_t)(end - from) : 0;
    if (end == NULL || len >= room)
        return false;
    memcpy(line, from, len);
    line[len] = '\0';
    *text = mr_slice_make(end + 1, text->len - len - 1);
    return true;
}

static size_t lines_of(struct mr_slice text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((const char *)text.data)[i] == '\n';
    return n;
}

/* What makes no sense, or leaves out a partition, is as if nobody owned any; the leader writes it anew. */
enum mr_err cluster_assignment(const struct cluster *cluster, const struct rqueue *queue,
                               struct mr_arena *arena, struct mr_assignment *ret_assignment)
{
    char name[MR_NAME_MAX + 3], line[MR_NAME_MAX + 2 * NUMBER_MAX];
    *ret_assignment =
        (struct mr_assignment){.assign = queue->assign, .partitions = queue->partitions};
    uint64_t all = UINT64_MAX >> (64 - queue->partitions), owned = 0;
    MR_TRY(mr_arena_copy(arena, queue->name, &ret_assignment->queue));
    (void)snprintf(name, sizeof name, "a:%s", (const char *)queue->name.data);
    const struct mr_reply *reply = field(cluster, name);
    struct mr_slice text = reply != NULL ? reply->text : (struct mr_slice){0};
    uint64_t version, term;
    if (!next_line(&text, line, sizeof line) ||
        sscanf(line, "%" SCNu64 " %" SCNu64, &version, &term) != 2)
        return MR_OK;
    struct mr_owner *owners = mr_arena_calloc(arena, lines_of(text) + 1, sizeof *owners);
    size_t n = 0;
    if (owners == NULL)
        return MR_NOMEM;
    for (int used = 0; next_line(&text, line, sizeof line); n++, used = 0) {
        if (sscanf(line, "%" SCNx64 " %" SCNx64 "%n", &owners[n].incarnation, &owners[n].owned,
                   &used) != 2 ||
            line[used] != ' ')
            break;
        MR_TRY(mr_arena_copy(arena, mr_slice_str(line + used + 1), &owners[n].node));
        owned |= owners[n].owned &= all;
    }
    ret_assignment->version = version;
    ret_assignment->term = term;
    ret_assignment->owners = owners;
    ret_assignment->owners_n = owned == all ? n : 0;
    return MR_OK;
}
