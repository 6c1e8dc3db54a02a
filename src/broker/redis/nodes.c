/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All nodes: those of this process as they are, those of others as they said last, and servers of other
 * programs that are not ours, by what Asynq says about them.
 */
#include <stdlib.h>

#include "broker/redis/look.h"
#include "wire/node.h"

enum { NODES, SERVERS, SETS };
enum { REPEATS_MAX = 16 }; /* of a look at partitions that come and go all the time */
static const char *const set_names[SETS] = {"mr:nodes", "servers"};

struct survey {
    struct ticket *ticket;
    struct mr_redis_call calls[SETS], hash, parts;
    struct cluster cluster; /* who leads, who lives, what is assigned */
    struct mr_slice sets[SETS];
    struct mr_slice *keys[SETS]; /* of what was said */
    size_t keys_n[SETS];
    struct question *questions;
    size_t left; /* calls under way */
    size_t room; /* in the answer */
    bool begun;  /* the table of partitions has come once */
    unsigned repeats;
    enum mr_err err;
};

/* One of those keys. */
struct question {
    struct mr_redis_call call;
    struct survey *survey;
    bool ours;
};

static struct mr_req_node_list *req_of(const struct survey *survey)
{
    return mr_container(survey->ticket->req, struct mr_req_node_list, req);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static int by_age(const void *a, const void *b)
{
    const struct mr_node_info *x = a, *y = b;
    if (x->started_ms != y->started_ms)
        return x->started_ms < y->started_ms ? -1 : 1;
    return x->incarnation < y->incarnation ? -1 : x->incarnation > y->incarnation;
}

static int by_queue(const void *a, const void *b)
{
    const struct mr_assignment *x = a, *y = b;
    return mr_slice_compare(x->queue, y->queue);
}

/* Whose partitions are whose, by queue. Right when that has come: a table that is read later may have more
 * partitions than had an owner then. */
static enum mr_err add_assignments(struct survey *survey, bool *ret_holes)
{
    struct mr_req_node_list *req = req_of(survey);
    struct mr_arena *arena = &req->req.arena;
    struct engine *engine = survey->ticket->engine;
    req->assignments_n = 0;
    req->assignments = mr_arena_calloc(arena, engine->queues_n + 1, sizeof *req->assignments);
    if (req->assignments == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < engine->queues_n; i++) {
        const struct rqueue *queue = engine->queues[i];
        if (queue->part_of != NULL || queue->partitions == 1)
            continue;
        struct mr_assignment *assignment = &req->assignments[req->assignments_n++];
        MR_TRY(cluster_assignment(&survey->cluster, queue, arena, assignment));
        *ret_holes |= assignment->version != 0 && assignment->owners_n == 0;
    }
    qsort(req->assignments, req->assignments_n, sizeof *req->assignments, by_queue);
    return MR_OK;
}

static void finish(struct survey *survey)
{
    struct mr_req_node_list *req = req_of(survey);
    if (survey->err == MR_OK)
        survey->err = cluster_leader(&survey->cluster, &req->req.arena, &req->leader);
    if (survey->err == MR_OK && req->n > 0)
        qsort(req->nodes, req->n, sizeof *req->nodes, by_age);
    else if (survey->err != MR_OK)
        req->n = 0;
    ticket_done(survey->ticket, survey->err);
}

/* Moves what it points at into the arena. */
static enum mr_err keep(struct mr_node_info *info, struct mr_arena *arena)
{
    struct mr_worker_queue *queues = mr_arena_calloc(arena, info->queues_n + 1, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(arena, info->types_n + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < info->queues_n; i++) {
        queues[i].weight = info->queues[i].weight;
        MR_TRY(mr_arena_copy(arena, info->queues[i].name, &queues[i].name));
    }
    for (size_t i = 0; i < info->types_n; i++)
        MR_TRY(mr_arena_copy(arena, info->types[i], &types[i]));
    info->queues = queues;
    info->types = types;
    struct mr_slot_info *slots = mr_arena_calloc(arena, info->slot_infos_n + 1, sizeof *slots);
    if (slots == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < info->slot_infos_n; i++) {
        slots[i] = info->slot_infos[i];
        MR_TRY(mr_arena_copy(arena, slots[i].id, &slots[i].id));
        MR_TRY(mr_arena_copy(arena, slots[i].type, &slots[i].type));
    }
    info->slot_infos = slots;
    return mr_arena_copy(arena, info->name, &info->name);
}

static enum mr_err add(struct survey *survey, struct mr_node_info *info)
{
    struct mr_req_node_list *req = req_of(survey);
    if (req->n == survey->room)
        return MR_OK;
    MR_TRY(keep(info, &req->req.arena));
    req->nodes[req->n++] = *info;
    return MR_OK;
}

static enum mr_err add_local(struct survey *survey)
{
    struct engine *engine = survey->ticket->engine;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        struct mr_node_info info;
        if (node->leaving || node->inner)
            continue;
        node_info(node, &info);
        MR_TRY(add(survey, &info));
    }
    return MR_OK;
}

/* ---- what others said ----------------------------------------------------------------------- */

static enum mr_err add_node(struct survey *survey, struct mr_slice bytes)
{
    struct mr_node_info info;
    struct cluster_node known;
    if (mr_node_read(bytes, &req_of(survey)->req.arena, &info) != MR_OK)
        return MR_OK; /* of a newer version, say */
    if (cluster_node(&survey->cluster, info.incarnation, &known)) {
        info.state = known.state;
        info.last_beat_ms = known.beat_ms;
    }
    return add(survey, &info);
}

static enum mr_err add_server(struct survey *survey, struct mr_slice bytes)
{
    struct mr_arena *arena = &req_of(survey)->req.arena;
    struct mr_asynq_server server;
    struct mr_buf name = {0};
    if (mr_asynq_server_decode(bytes, arena, &server) != MR_OK)
        return MR_OK;
    enum mr_err err = mr_buf_printf(&name, "%.*s:%d", (int)server.host.len,
                                    (const char *)server.host.data, (int)server.pid);
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){0, 0}, server.id);
    int64_t started_ms =
        server.started.seconds * MR_MS_PER_S + server.started.nanos / (int32_t)MR_NS_PER_MS;
    struct mr_node_info info = {
        .name = mr_buf_slice(&name),
        .incarnation = mr_uuid_hash(&hash) >> 1,
        .state = MR_NODE_LIVE,
        .started_ms = started_ms,
        .last_beat_ms = started_ms,
        .in_hand = server.active > 0 ? (uint64_t)server.active : 0,
        .slots = server.concurrency > 0 ? (uint32_t)server.concurrency : 0,
        .busy = server.active > 0 ? (uint32_t)server.active : 0,
        .queues = server.queues,
        .queues_n = server.queues_n,
    };
    if (err == MR_OK)
        err = add(survey, &info);
    mr_buf_done(&name);
    return err;
}

static void said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct question *question = call->arg;
    struct survey *survey = question->survey;
    if (err ==
        MR_FAILED) /* somebody made something else of it: the others can be seen all the same */
        err = MR_OK;
    else if (err != MR_OK)
        err = engine_refused(survey->ticket->engine, err, reply);
    else if (reply->kind == MR_REPLY_TEXT) /* else it is gone */
        err = question->ours ? add_node(survey, reply->text) : add_server(survey, reply->text);
    if (survey->err == MR_OK)
        survey->err = err;
    if (--survey->left == 0)
        finish(survey);
}

/* ---- who there is --------------------------------------------------------------------------- */

/* "{host:pid:uuid}" */
static struct mr_slice member_of(struct mr_slice key)
{
    const char *open = key.len > 0 ? memchr(key.data, '{', key.len) : NULL;
    return open != NULL ? mr_slice_make(open, key.len - (size_t)(open - (const char *)key.data))
                        : (struct mr_slice){0};
}

static bool is_local(const struct engine *engine, struct mr_slice member)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct mr_slice own = mr_container(link, struct node, link)->member;
        if (member.len == own.len + 2 &&
            memcmp((const char *)member.data + 1, own.data, own.len) == 0)
            return true;
    }
    return false;
}

/* A server that is one of our nodes is shown as that. */
static bool is_node(const struct survey *survey, struct mr_slice member)
{
    for (size_t i = 0; i < survey->keys_n[NODES]; i++)
        if (mr_slice_equal(member_of(survey->keys[NODES][i]), member))
            return true;
    return false;
}

static void ask_all(struct survey *survey)
{
    struct engine *engine = survey->ticket->engine;
    size_t most = survey->keys_n[NODES] + survey->keys_n[SERVERS], n = 0;
    for (int set = NODES; set < SETS; set++) {
        for (size_t i = 0; i < survey->keys_n[set]; i++) {
            struct mr_slice key = survey->keys[set][i], member = member_of(key);
            if (is_local(engine, member) || (set == SERVERS && is_node(survey, member)))
                continue;
            mr_assert(n < most);
            struct question *question = &survey->questions[n++];
            *question = (struct question){
                .call = {.answered = said, .arg = question, .repeatable = true, .urgent = true},
                .survey = survey,
                .ours = set == NODES};
            const struct mr_slice args[] = {MR_SLICE_LIT("GET"), key};
            survey->left++;
            mr_redis_send(engine->redis, &question->call, key, args, 2);
        }
    }
}

/* All names are known. */
static void names_known(struct survey *survey)
{
    struct mr_req_node_list *req = req_of(survey);
    struct mr_arena *arena = &req->req.arena;
    struct engine *engine = survey->ticket->engine;
    size_t others = survey->keys_n[NODES] + survey->keys_n[SERVERS];
    survey->room = others;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        survey->room++;
    req->nodes = mr_arena_calloc(arena, survey->room + 1, sizeof *req->nodes);
    survey->questions = mr_arena_calloc(arena, others + 1, sizeof *survey->questions);
    if (survey->err == MR_OK)
        survey->err =
            req->nodes != NULL && survey->questions != NULL ? add_local(survey) : MR_NOMEM;
    if (survey->err == MR_OK)
        ask_all(survey);
    if (survey->left == 0)
        finish(survey);
}

static enum mr_err read_names(struct survey *survey, size_t set, const struct mr_reply *reply)
{
    struct mr_arena *arena = &req_of(survey)->req.arena;
    survey->keys[set] = mr_arena_calloc(arena, reply->n + 1, sizeof(struct mr_slice));
    if (survey->keys[set] == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < reply->n; i++)
        MR_TRY(mr_arena_copy(arena, mr_reply_at(reply, i)->text, &survey->keys[set][i]));
    survey->keys_n[set] = reply->n;
    return MR_OK;
}

static void one_came(struct survey *survey, enum mr_err err)
{
    if (survey->err == MR_OK)
        survey->err = err;
    if (--survey->left == 0)
        names_known(survey);
}

static void named(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct survey *survey = call->arg;
    err = look_array(survey->ticket->engine, err, reply);
    if (err == MR_OK)
        err = read_names(survey, (size_t)(call - survey->calls), reply);
    one_came(survey, err);
}

static void ask_table(struct survey *survey);

/* The table and the owners are two keys, in a Cluster of two servers: who reads one after the other while partitions
 * go, and those that went have no owner any more, sees a hole that never was. A leader fills those that are. */
static void hash_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct survey *survey = call->arg;
    bool holes = false;
    err = cluster_read(survey->ticket->engine, err, reply, &survey->cluster);
    if (err == MR_OK)
        err = cluster_keep(&survey->cluster, &req_of(survey)->req.arena);
    if (err == MR_OK)
        err = add_assignments(survey, &holes);
    if (holes && !req_of(survey)->for_assignments && survey->repeats++ < REPEATS_MAX)
        ask_table(survey);
    else
        one_came(survey, err);
}

static bool any_shared(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->queues_n; i++)
        if (engine->queues[i]->part_of == NULL && engine->queues[i]->partitions > 1)
            return true;
    return false;
}

static void ask_hash(struct survey *survey)
{
    survey->hash = (struct mr_redis_call){
        .answered = hash_came, .arg = survey, .repeatable = true, .urgent = true};
    cluster_ask(survey->ticket->engine, &survey->hash);
}

static void ask_names(struct survey *survey)
{
    struct mr_redis *redis = survey->ticket->engine->redis;
    survey->begun = true;
    ask_hash(survey);
    for (size_t i = 0; i < SETS; i++) {
        survey->calls[i] = (struct mr_redis_call){
            .answered = named, .arg = survey, .repeatable = true, .urgent = true};
        const struct mr_slice args[] = {MR_SLICE_LIT("ZRANGE"), survey->sets[i], MR_SLICE_LIT("0"),
                                        MR_SLICE_LIT("-1")};
        mr_redis_send(redis, &survey->calls[i], survey->sets[i], args, 4);
    }
}

static void table_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct survey *survey = call->arg;
    struct engine *engine = survey->ticket->engine;
    err = parts_answered(engine, err, reply);
    if (survey->begun && err == MR_OK)
        ask_hash(survey);
    else if (survey->begun)
        one_came(survey, err);
    else if (err == MR_OK && (!req_of(survey)->for_assignments || any_shared(engine)))
        ask_names(survey);
    else
        ticket_done(survey->ticket, err);
}

static void ask_table(struct survey *survey)
{
    survey->parts = (struct mr_redis_call){
        .answered = table_came, .arg = survey, .repeatable = true, .urgent = true};
    parts_send(survey->ticket->engine, &survey->parts);
}

/* A leader asks with every beat: where nothing is assigned, the table of partitions is all that it costs. */
void node_list_begin(struct ticket *ticket)
{
    struct mr_req_node_list *req = mr_container(ticket->req, struct mr_req_node_list, req);
    struct mr_arena *arena = &req->req.arena;
    struct survey *survey = mr_arena_calloc(arena, 1, sizeof *survey);
    req->n = req->assignments_n = 0;
    bool room = survey != NULL;
    for (size_t i = 0; room && i < SETS; i++) {
        survey->sets[i] = global_key(ticket->engine, set_names[i], arena);
        room = survey->sets[i].len > 0;
    }
    if (!room) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    survey->ticket = ticket;
    survey->left = SETS + 1;
    ask_table(survey);
}
