/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions. Partition 1 of a queue Q is the Redis queue Q, partition i is Q~i: each has a hash tag of its
 * own, so that a Cluster spreads them, and each is a whole queue for Asynq's tools.
 *
 * The hash asynq:mr:parts says of each queue with more than one: how many its tasks go into, the most it
 * ever had (they may still hold tasks, so they are still worked off, and shown), and how they are
 * assigned. It is one for all queues, since a producer must know it before its first task: so it costs one
 * small question now and then. Somebody who does not know yet that the number has changed does no harm:
 * every partition that ever was is worked off, also after the queue was removed.
 *
 * Each partition has a mark that says the same (mr:part), for the day when that one key is lost: fsck.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/partition.h"
#include "broker/redis/look.h"
#include "broker/redis/row.h"

enum {
    FRESH_MS = 4000, /* the table is asked for again after this */
    NAME_ROOM = MR_NAME_MAX + sizeof "~64",
    MARK_ROOM = PARTS_ROW_MAX + 1 + MR_NAME_MAX,
};

/* ---- the table ------------------------------------------------------------------------------ */

struct rqueue *rqueue_whole(struct rqueue *queue)
{
    return queue->part_of != NULL ? queue->part_of : queue;
}

struct rqueue *rqueue_part(struct rqueue *queue, uint32_t number)
{
    return number <= 1 || queue->parts == NULL ? queue : queue->parts[number - 1];
}

static void parts_forget(struct rqueue *queue)
{
    for (uint32_t i = 1; i < queue->widest; i++) {
        queue->parts[i]->part_of = NULL;
        queue->parts[i]->number = 1;
    }
    queue->partitions = queue->widest = 1;
}

/* The rest of the names is made; nothing is changed without memory. */
static enum mr_err parts_fill(struct rqueue *queue, uint32_t widest)
{
    if (queue->parts == NULL)
        queue->parts = calloc(MR_PARTITIONS_MAX, sizeof(struct rqueue *));
    if (queue->parts == NULL)
        return MR_NOMEM;
    queue->parts[0] = queue;
    for (uint32_t i = 1; i < widest; i++) {
        char name[NAME_ROOM];
        int len = snprintf(name, sizeof name, "%s~%u", (const char *)queue->name.data, i + 1);
        if (queue->parts[i] == NULL)
            queue->parts[i] = rqueue_get(queue->engine, mr_slice_make(name, (size_t)len));
        if (queue->parts[i] == NULL)
            return MR_NOMEM;
    }
    return MR_OK;
}

static enum mr_err parts_set(struct rqueue *queue, uint32_t n, uint32_t widest,
                             enum mr_assign assign)
{
    bool wider = widest != queue->widest, other = wider || n != queue->partitions;
    if (wider && widest > 1)
        MR_TRY(parts_fill(queue, widest));
    if (wider)
        parts_forget(queue);
    for (uint32_t i = 1; i < widest; i++) {
        queue->parts[i]->part_of = queue;
        queue->parts[i]->number = i + 1;
    }
    if (queue->turn == 0) /* many programs that each enqueue one task spread them, too */
        queue->turn = (uint32_t)(mr_rand_next(&queue->engine->rand) % MR_PARTITIONS_MAX) + 1;
    queue->partitions = n;
    queue->widest = widest;
    queue->assign = assign;
    queue->engine->parts_other |= other;
    return MR_OK;
}

/* One row. What makes no sense is none. */
static enum mr_err row_read(struct engine *engine, struct mr_slice name, struct mr_slice text)
{
    struct parts_row row;
    if (mr_name_check(name) != MR_OK || !parts_row_read(text, &row, NULL))
        return MR_OK;
    struct rqueue *queue = rqueue_get(engine, name);
    if (queue == NULL)
        return MR_NOMEM;
    if (queue->part_of != NULL && !queue->part_of->in_table)
        parts_forget(queue->part_of); /* no longer */
    if (queue->part_of != NULL)       /* partitions have none */
        return MR_OK;
    queue->in_table = true;
    return parts_set(queue, row.partitions, row.widest, row.assign);
}

static int by_length(const void *a, const void *b)
{
    const struct mr_reply *const *x = a, *const *y = b;
    return (*x)->text.len < (*y)->text.len ? -1 : (*x)->text.len > (*y)->text.len;
}

/* Short names first: so a queue comes before its partitions, whose rows do not count. */
static enum mr_err rows_read(struct engine *engine, const struct mr_reply *reply)
{
    size_t n = reply->n / 2;
    enum mr_err err = MR_OK;
    const struct mr_reply **names = calloc(n + 1, sizeof *names);
    if (names == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++)
        names[i] = &reply->items[2 * i];
    qsort(names, n, sizeof *names, by_length);
    for (size_t i = 0; i < n && err == MR_OK; i++)
        err = row_read(engine, names[i]->text, names[i][1].text);
    free(names);
    return err;
}

static enum mr_err parts_read(struct engine *engine, const struct mr_reply *reply)
{
    if (reply->kind != MR_REPLY_ARRAY)
        return MR_FAILED;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        engine->queues[i]->in_table = false;
    enum mr_err err = rows_read(engine, reply);
    for (uint32_t i = 0; i < engine->queues_n && err == MR_OK; i++)
        if (!engine->queues[i]->in_table && engine->queues[i]->widest > 1)
            parts_forget(engine->queues[i]);
    if (err == MR_OK)
        engine->parts_at = mr_redis_now(engine->redis);
    if (engine->parts_other) {
        engine->parts_other = false;
        nodes_widen(engine);
        parts_survey(engine);
    }
    return err;
}

/* A user that may not read the table knows of one partition per queue. */
enum mr_err parts_answered(struct engine *engine, enum mr_err err, const struct mr_reply *reply)
{
    if (err == MR_DENIED)
        engine->parts_at = mr_redis_now(engine->redis);
    else if (err == MR_OK)
        err = parts_read(engine, reply);
    return err == MR_OK || err == MR_DENIED ? MR_OK : engine_refused(engine, err, reply);
}

void parts_send(struct engine *engine, struct mr_redis_call *call)
{
    struct mr_arena arena = {0};
    struct mr_slice key = global_key(engine, "mr:parts", &arena);
    struct mr_slice args[] = {MR_SLICE_LIT("HGETALL"), key};
    mr_redis_send(engine->redis, call, key, args, key.len > 0 ? 2 : 0);
    mr_arena_done(&arena);
}

bool parts_known(const struct engine *engine)
{
    return engine->parts_at.ns != 0;
}

static void came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct engine *engine = call->arg;
    engine->parts_asked = false;
    (void)(parts_answered(engine, err, reply) == MR_OK); /* else what was known holds */
    if (engine->parts_again)
        parts_changed(engine);
}

void parts_refresh(struct engine *engine)
{
    int64_t age_ns = mr_redis_now(engine->redis).ns - engine->parts_at.ns;
    if (engine->parts_asked || age_ns < FRESH_MS * MR_NS_PER_MS || engine->closing)
        return;
    engine->parts_asked = true;
    engine->parts_call =
        (struct mr_redis_call){.answered = came, .arg = engine, .repeatable = true};
    parts_send(engine, &engine->parts_call);
}

void parts_changed(struct engine *engine)
{
    engine->parts_again = engine->parts_asked; /* that answer may be older */
    engine->parts_at.ns -= FRESH_MS * MR_NS_PER_MS;
    parts_refresh(engine);
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* What leads to its partition; empty: nothing, any will do. Its lock must be where another one with the same
 * would look for it; a group is gathered in one place. */
static struct mr_slice leads(const struct mr_task_options *options, const struct new_task *task)
{
    return options->key.len > 0     ? options->key
           : task->lock.len > 0     ? task->lock
           : options->group.len > 0 ? options->group
                                    : options->id;
}

struct rqueue *parts_choose(struct rqueue *queue, const struct mr_task_options *options,
                            const struct new_task *task)
{
    uint32_t n = queue->partitions;
    if (options->partition > n)
        return NULL;
    if (options->partition > 0 || n == 1)
        return rqueue_part(queue, options->partition);
    struct mr_slice lead = leads(options, task);
    if (lead.len > 0)
        return rqueue_part(queue, mr_partition_of(lead, n) + 1);
    queue->turn = queue->turn % n + 1;
    return rqueue_part(queue, queue->turn);
}

/* ---- setting -------------------------------------------------------------------------------- */

/* How a queue comes to its partitions: what the first one has is looked at, those that come get an owner, if the
 * others have one, the table is written, those that went have no owner any more, the table is read, then
 * each gets what the first one has. Whoever reads the table first and the owners then sees no hole where some
 * come; where some go, see nodes.c. */
struct setting {
    struct ticket *ticket;
    struct rqueue *queue;
    struct mr_redis_call call;
    struct fan fan;
    struct mr_slice table, row[3]; /* of parts.lua */
    struct mr_slice args[7];       /* of set.lua */
    char value[NUMBER_MAX], number[NUMBER_MAX], mode[NUMBER_MAX], wait[NUMBER_MAX], mark[MARK_ROOM];
};

static void setting_done(struct fan *fan, enum mr_err err)
{
    struct setting *setting = fan->arg;
    ticket_done(setting->ticket, err);
}

static enum mr_err part_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    (void)fan, (void)queue, (void)reply;
    return MR_OK;
}

static void table_read(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct setting *setting = call->arg;
    struct engine *engine = setting->queue->engine;
    err = parts_answered(engine, err, reply);
    if (err != MR_OK) {
        ticket_done(setting->ticket, err);
        return;
    }
    for (uint32_t i = 1; i <= setting->queue->widest; i++)
        rqueue_used(rqueue_part(setting->queue, i));
    setting->fan = (struct fan){.ticket = setting->ticket,
                                .script = SCRIPT_SET,
                                .args = setting->args,
                                .args_n = sizeof setting->args / sizeof *setting->args,
                                .said = part_said,
                                .done = setting_done,
                                .arg = setting,
                                .acts = true};
    fan_parts(&setting->fan, setting->queue);
}

/* parts.lua refuses: see there. */
enum { IS_PARTITION = 1 };

static enum mr_err row_said(struct setting *setting, const struct mr_reply *reply,
                            uint32_t *ret_partitions)
{
    struct parts_row row;
    if (reply->kind == MR_REPLY_INTEGER)
        return reply->integer == IS_PARTITION ? MR_INVALID : MR_WRONG_STATE;
    if (reply->kind != MR_REPLY_TEXT || !parts_row_read(reply->text, &row, NULL))
        return engine_refused(setting->queue->engine, MR_FAILED, reply);
    int len = snprintf(setting->mark, sizeof setting->mark, "%.*s %s", (int)reply->text.len,
                       (const char *)reply->text.data, (const char *)setting->queue->name.data);
    if (row.widest > 1)
        setting->args[2] = mr_slice_make(setting->mark, (size_t)len);
    *ret_partitions = row.partitions;
    return MR_OK;
}

static struct mr_redis_call setting_call(struct setting *setting,
                                         void (*answered)(struct mr_redis_call *, enum mr_err,
                                                          const struct mr_reply *))
{
    return (struct mr_redis_call){
        .answered = answered, .arg = setting, .repeatable = true, .urgent = true, .durable = true};
}

static void owners_cut(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct setting *setting = call->arg;
    err = cluster_fitted(setting->queue->engine, err, reply);
    if (err != MR_OK) {
        ticket_done(setting->ticket, err);
        return;
    }
    setting->call = setting_call(setting, table_read);
    setting->call.durable = false;
    parts_send(setting->queue->engine, &setting->call);
}

static void table_written(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct setting *setting = call->arg;
    uint32_t partitions = 1;
    err = err == MR_OK ? row_said(setting, reply, &partitions)
                       : engine_refused(setting->queue->engine, err, reply);
    if (err != MR_OK) {
        ticket_done(setting->ticket, err);
        return;
    }
    setting->call = setting_call(setting, owners_cut);
    cluster_fit(setting->queue, &setting->call, partitions, true);
}

static void owners_added(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct setting *setting = call->arg;
    struct engine *engine = setting->queue->engine;
    err = cluster_fitted(engine, err, reply);
    if (err != MR_OK) {
        ticket_done(setting->ticket, err);
        return;
    }
    setting->call = setting_call(setting, table_written);
    parts_write(engine, &setting->call, setting->table, setting->row);
}

void parts_write(struct engine *engine, struct mr_redis_call *call, struct mr_slice table,
                 const struct mr_slice row[3])
{
    mr_redis_eval(engine->redis, call, SCRIPT_PARTS, &table, 1, row, 3);
}

static void first_said(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct setting *setting = call->arg;
    const struct mr_req_queue_set *req =
        mr_container(setting->ticket->req, struct mr_req_queue_set, req);
    struct engine *engine = setting->queue->engine;
    err = look_array(engine, err, reply);
    if (err != MR_OK) {
        ticket_done(setting->ticket, err);
        return;
    }
    const struct mr_reply *limits = mr_reply_at(reply, FIGURE_LIMITS);
    bool limited = limits != NULL && limits->n > 0;
    if (limited && req->setting == MR_QUEUE_PARTITIONS && req->value > 1 &&
        mr_redis_kind(engine->redis) == MR_REDIS_CLUSTER) { /* see limits.c */
        ticket_done(setting->ticket, MR_UNSUPPORTED);
        return;
    }
    bool paused = mr_reply_int(mr_reply_at(reply, FIGURE_PAUSED), 0) != 0;
    int64_t max = mr_reply_int(mr_reply_at(reply, FIGURE_MAX), 0);
    struct mr_slice value = number_arg((int64_t)req->value, setting->value), none = {"", 0};
    bool count = req->setting == MR_QUEUE_PARTITIONS;
    setting->row[0] = setting->queue->name;
    setting->row[1] = count ? value : none;
    setting->row[2] = count ? none : value;
    setting->args[0] = paused ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    setting->args[1] = number_arg(max, setting->number);
    setting->args[3] = MR_SLICE_LIT("retry");
    setting->args[4] =
        number_arg(mr_reply_int(mr_reply_at(reply, FIGURE_RETRY_MODE), 0), setting->mode);
    setting->args[5] = MR_SLICE_LIT("wait");
    setting->args[6] =
        number_arg(mr_reply_int(mr_reply_at(reply, FIGURE_RETRY_WAIT), 0), setting->wait);
    setting->call = setting_call(setting, owners_added);
    cluster_fit(setting->queue, &setting->call, count ? (uint32_t)req->value : 1, false);
}

void parts_set_begin(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    struct mr_arena *arena = &ticket->req->arena;
    struct setting *setting = mr_arena_calloc(arena, 1, sizeof *setting);
    struct rqueue *queue = rqueue_of(ticket->engine, req->queue);
    struct mr_slice table = global_key(ticket->engine, "mr:parts", arena);
    if (setting == NULL || queue == NULL || table.len == 0) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    if (queue->name.len + strlen("~64") > MR_NAME_MAX) {
        ticket_done(ticket, MR_TOO_BIG);
        return;
    }
    *setting = (struct setting){.ticket = ticket, .queue = queue, .table = table};
    setting->call = (struct mr_redis_call){
        .answered = first_said, .arg = setting, .repeatable = true, .urgent = true};
    rqueue_eval(queue, &setting->call, SCRIPT_QUEUE, NULL, 0);
}

/* ---- whose they are ------------------------------------------------------------------------- */

static bool serves(const struct mr_node_info *info, const struct rqueue *queue)
{
    for (size_t i = 0; i < info->queues_n && info->role == MR_NODE_WORKER; i++)
        if (mr_slice_equal(info->queues[i].name, queue->name))
            return true;
    return false;
}

/* Our own nodes know what they prefer. One that is not among the owners yet prefers nothing. */
static void tell_nodes(struct rqueue *queue, const struct mr_owner *owners, size_t n)
{
    struct engine *engine = queue->engine;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        uint64_t owned = UINT64_MAX;
        for (size_t i = 0; i < n; i++)
            if (owners[i].incarnation == node->incarnation)
                owned = owners[i].owned;
        for (size_t i = 0; i < node->queues_n; i++)
            if (node->served[i].queue == queue)
                node->served[i].owned = owned;
    }
}

/* Without a leader: from what is written of the nodes and nothing else, so that all programs that see the
 * same nodes agree, whenever each of them came. Without memory for it they go on as before. */
static void share(const struct mr_req_node_list *list, struct rqueue *queue)
{
    struct mr_sharer *sharers = calloc(list->n + 1, sizeof *sharers);
    struct mr_owner *owners = calloc(list->n + 1, sizeof *owners);
    size_t n = 0;
    for (size_t i = 0; sharers != NULL && i < list->n; i++) {
        const struct mr_node_info *info = &list->nodes[i];
        if (info->state != MR_NODE_DEAD && info->role == MR_NODE_WORKER && serves(info, queue))
            sharers[n++] = (struct mr_sharer){info->name, info->incarnation, info->started_ms, 0};
    }
    if (owners != NULL &&
        mr_partitions_share(queue->assign, queue->partitions, sharers, n) == MR_OK) {
        for (size_t i = 0; i < n; i++)
            owners[i] =
                (struct mr_owner){sharers[i].name, sharers[i].incarnation, sharers[i].owned};
        tell_nodes(queue, owners, n);
    }
    free(sharers);
    free(owners);
}

static bool is_shared(const struct rqueue *queue)
{
    return queue->widest > 1 && queue->listeners > 0;
}

static void survey_over(struct engine *engine)
{
    engine->surveying = false;
    if (engine->survey_again)
        parts_survey(engine);
}

static void surveyed(struct mr_req *req)
{
    struct mr_req_node_list *list = mr_container(req, struct mr_req_node_list, req);
    struct engine *engine = mr_container(list, struct engine, survey);
    for (uint32_t i = 0; req->err == MR_OK && i < engine->queues_n; i++)
        if (is_shared(engine->queues[i]) && !engine->queues[i]->assigned)
            share(list, engine->queues[i]);
    mr_req_done(req);
    survey_over(engine);
}

/* As a leader has written it. False: none has, or memory ran out. */
static bool obey(const struct cluster *cluster, struct rqueue *queue)
{
    struct mr_assignment assignment;
    struct mr_arena *arena = &queue->engine->scratch;
    mr_arena_reset(arena);
    if (cluster_assignment(cluster, queue, arena, &assignment) != MR_OK || assignment.owners_n == 0)
        return false;
    tell_nodes(queue, assignment.owners, assignment.owners_n);
    return true;
}

/* Who else is there needs to be known only where no leader has written anything. */
static void hash_came(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct engine *engine = call->arg;
    struct cluster cluster;
    bool missing = false;
    err = cluster_read(engine, err, reply, &cluster);
    for (uint32_t i = 0; err == MR_OK && i < engine->queues_n; i++) {
        struct rqueue *queue = engine->queues[i];
        queue->assigned = is_shared(queue) && obey(&cluster, queue);
        missing |= is_shared(queue) && !queue->assigned;
    }
    if (!missing || engine->closing) {
        survey_over(engine);
        return;
    }
    engine->survey = (struct mr_req_node_list){.req = {.op = MR_OP_NODE_LIST, .done = surveyed}};
    mr_broker_submit(&engine->broker, &engine->survey.req);
}

void parts_survey(struct engine *engine)
{
    bool wanted = false;
    for (uint32_t i = 0; i < engine->queues_n; i++)
        wanted |= is_shared(engine->queues[i]);
    engine->survey_again = engine->surveying; /* what comes may be older */
    if (!wanted || engine->surveying || engine->closing)
        return;
    engine->surveying = true;
    engine->survey_call = (struct mr_redis_call){
        .answered = hash_came, .arg = engine, .repeatable = true, .urgent = true};
    cluster_ask(engine, &engine->survey_call);
}
