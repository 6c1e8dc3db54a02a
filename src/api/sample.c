/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler behind Events.Watch and /events. See sample.h. */
#include "api/sample.h"

#include <stdlib.h>

#include "broker/json.h"
#include "wire/node.h"

/* ---- things --------------------------------------------------------------------------------- */

static void touch(struct sampler *sampler, struct thing *thing)
{
    thing->id = ++*sampler->last_id;
    thing->time_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    mr_list_remove(&thing->change);
    mr_list_push_back(&sampler->changes, &thing->change);
}

static struct thing *thing_new(struct sampler *sampler, enum thing_kind kind,
                               struct mr_link *before)
{
    struct thing *thing = calloc(1, sizeof *thing);
    if (thing == NULL)
        return NULL;
    thing->kind = kind;
    mr_list_init(&thing->change);
    mr_list_insert_before(before, &thing->place);
    touch(sampler, thing);
    return thing;
}

static void thing_free(struct thing *thing)
{
    mr_list_remove(&thing->change);
    mr_list_remove(&thing->place);
    mr_arena_done(&thing->memory);
    mr_buf_done(&thing->text);
    free(thing);
}

void sample_forget(struct sampler *sampler, uint64_t id)
{
    while (!mr_list_empty(&sampler->gone)) {
        struct thing *thing = mr_container(sampler->gone.next, struct thing, place);
        if (thing->id > id)
            return;
        thing_free(thing);
        sampler->gone_n--;
    }
}

static void thing_gone(struct sampler *sampler, struct thing *thing)
{
    thing->gone = true;
    touch(sampler, thing);
    mr_list_remove(&thing->place);
    mr_list_push_back(&sampler->gone, &thing->place);
    if (++sampler->gone_n <= GONE_MAX)
        return;
    sampler->forgotten = mr_container(sampler->gone.next, struct thing, place)->id;
    sample_forget(sampler, sampler->forgotten);
}

void sample_done(struct sampler *sampler)
{
    while (!mr_list_empty(&sampler->changes))
        thing_free(mr_container(sampler->changes.next, struct thing, change));
}

/* ---- against what is known ------------------------------------------------------------------ */

/* What is known and what is found are in the same order, so both are walked once. */
static struct thing *known_at(const struct sampler *sampler, enum thing_kind kind)
{
    return sampler->at == &sampler->known[kind] ? NULL
                                                : mr_container(sampler->at, struct thing, place);
}

/* How a node went: somebody who may still come back, or does not know yet, has not left by itself. */
static void node_went(struct sampler *sampler, struct thing *thing)
{
    bool lost =
        thing->node.state != MR_NODE_LIVE ||
        (sampler->ops->is_lost != NULL && sampler->ops->is_lost(sampler, thing->node.incarnation));
    thing->node.state = lost ? MR_NODE_DEAD : (enum mr_node_state)NODE_CLOSED;
    thing->node.in_hand = thing->node.busy = 0;
}

static void pass_gone(struct sampler *sampler, struct thing *thing)
{
    sampler->at = sampler->at->next;
    if (thing->kind == THING_NODE)
        node_went(sampler, thing);
    thing_gone(sampler, thing);
}

static void pass_rest(struct sampler *sampler, enum thing_kind kind)
{
    struct thing *thing;
    while ((thing = known_at(sampler, kind)) != NULL)
        pass_gone(sampler, thing);
}

/* Waiting grows by itself, as anybody can see from the time. */
static bool queue_changed(const struct mr_queue_info *before, const struct mr_queue_info *now)
{
    return memcmp(before->counts, now->counts, sizeof now->counts) != 0 ||
           before->paused != now->paused || before->max_length != now->max_length ||
           before->partitions != now->partitions || before->assign != now->assign ||
           before->retry_mode != now->retry_mode || before->retry_wait_ms != now->retry_wait_ms ||
           before->rate != now->rate || before->rate_ms != now->rate_ms ||
           before->concurrency != now->concurrency || before->limits != now->limits ||
           before->processed_total != now->processed_total ||
           before->failed_total != now->failed_total ||
           before->processed_today != now->processed_today ||
           before->failed_today != now->failed_today || before->wait_p50_us != now->wait_p50_us ||
           before->wait_p99_us != now->wait_p99_us || before->run_p50_us != now->run_p50_us ||
           before->run_p99_us != now->run_p99_us || before->trimmed != now->trimmed ||
           before->quarantined != now->quarantined;
}

static void pass_queue(struct sampler *sampler, const struct mr_queue_info *info)
{
    struct thing *thing;
    while ((thing = known_at(sampler, THING_QUEUE)) != NULL &&
           strcmp(thing->queue.name, info->name) < 0)
        pass_gone(sampler, thing);
    if (thing == NULL || strcmp(thing->queue.name, info->name) != 0) {
        thing = thing_new(sampler, THING_QUEUE, sampler->at);
        if (thing != NULL)
            thing->queue = *info;
        return;
    }
    sampler->at = sampler->at->next;
    if (queue_changed(&thing->queue, info))
        touch(sampler, thing);
    thing->queue = *info;
}

/* A copy of its own: as bytes, and read again from them. */
static enum mr_err node_copy(struct thing *thing, const struct mr_node_info *node)
{
    size_t size = mr_node_size(node);
    uint8_t *bytes = mr_arena_alloc(&thing->memory, size);
    if (bytes == NULL)
        return MR_NOMEM;
    mr_node_write(node, bytes);
    return mr_node_read(mr_slice_make(bytes, size), &thing->memory, &thing->node);
}

static void pass_node(struct sampler *sampler, const struct mr_node_info *node)
{
    struct thing *thing;
    while ((thing = known_at(sampler, THING_NODE)) != NULL &&
           thing->node.incarnation < node->incarnation)
        pass_gone(sampler, thing);
    if (thing == NULL || thing->node.incarnation != node->incarnation) {
        thing = thing_new(sampler, THING_NODE, sampler->at);
        if (thing != NULL)
            thing->drains = jw_node_drains(node);
        if (thing != NULL && node_copy(thing, node) != MR_OK)
            thing_free(thing); /* the next look finds it again */
        return;
    }
    sampler->at = sampler->at->next;
    if (thing->node.state != node->state || thing->drains != jw_node_drains(node))
        touch(sampler, thing);
    thing->drains = jw_node_drains(node);
    thing->node.state = node->state;
    thing->node.last_beat_ms = node->last_beat_ms;
    thing->node.in_hand = node->in_hand;
    thing->node.busy = node->busy;
}

static void pass_server(struct sampler *sampler, struct server_state now)
{
    struct thing *thing = known_at(sampler, THING_SERVER);
    if (thing == NULL)
        thing = thing_new(sampler, THING_SERVER, sampler->at);
    else if (memcmp(&thing->server, &now, sizeof now) != 0)
        touch(sampler, thing);
    if (thing != NULL)
        thing->server = now;
}

/* How long nobody leads anybody can see from the time. */
static void pass_leader(struct sampler *sampler, const struct mr_leader *now)
{
    sampler->at = sampler->known[THING_LEADER].next;
    struct thing *thing = known_at(sampler, THING_LEADER);
    if (thing == NULL)
        thing = thing_new(sampler, THING_LEADER, sampler->at);
    else if (thing->leader.incarnation != now->incarnation || thing->leader.term != now->term)
        touch(sampler, thing);
    else
        return;
    if (thing == NULL)
        return;
    size_t len = now->node.len <= MR_NAME_MAX ? now->node.len : 0;
    thing->leader = *now;
    thing->leader.node = mr_slice_make(thing->leader_name, len);
    if (len > 0)
        memcpy(thing->leader_name, now->node.data, len);
}

/* ---- a look --------------------------------------------------------------------------------- */

/* Queues, nodes and the server, one behind the other. */
static void ask(struct sampler *sampler, enum thing_kind kind);

static void submit(struct sampler *sampler, enum mr_op op, void (*back)(struct sampler *sampler))
{
    sampler->back = back;
    sampler->ops->submit(sampler, op);
}

static void clear(struct sampler *sampler)
{
    mr_req_done(&sampler->req->head);
    *sampler->req = (union any_req){0};
}

static void looked(struct sampler *sampler, enum thing_kind kind)
{
    bool goes_on = kind < THING_SERVER && sampler->ops->wanted(sampler);
    clear(sampler);
    if (goes_on) {
        ask(sampler, kind + 1);
        return;
    }
    sampler->looks = false;
    sampler->ops->looked(sampler);
}

static void ask_queues(struct sampler *sampler, struct mr_slice after);

static void queues_back(struct sampler *sampler)
{
    const struct mr_req_queue_list *req = &sampler->req->queue_list;
    bool more = req->req.err == MR_OK && req->n == req->max;
    char last[MR_NAME_MAX + 1];
    for (size_t i = 0; req->req.err == MR_OK && i < req->n; i++)
        pass_queue(sampler, &req->infos[i]);
    if (more && sampler->ops->wanted(sampler)) {
        memcpy(last, req->infos[req->n - 1].name, sizeof last);
        clear(sampler);
        ask_queues(sampler, mr_slice_str(last));
        return;
    }
    if (req->req.err == MR_OK && !more)
        pass_rest(sampler, THING_QUEUE);
    looked(sampler, THING_QUEUE);
}

static void ask_queues(struct sampler *sampler, struct mr_slice after)
{
    struct mr_req_queue_list *req = &sampler->req->queue_list;
    if (after.len > 0 && mr_arena_copy(&req->req.arena, after, &req->after) != MR_OK) {
        looked(sampler, THING_QUEUE);
        return;
    }
    req->infos = sampler->page;
    req->max = QUEUES_PAGE;
    submit(sampler, MR_OP_QUEUE_LIST, queues_back);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct mr_node_info *x = a, *y = b;
    return (x->incarnation > y->incarnation) - (x->incarnation < y->incarnation);
}

static void nodes_back(struct sampler *sampler)
{
    struct mr_req_node_list *req = &sampler->req->node_list;
    if (req->req.err == MR_OK) {
        if (sampler->ops->mark != NULL)
            sampler->ops->mark(sampler, req->nodes, req->n);
        if (req->n > 0)
            qsort(req->nodes, req->n, sizeof *req->nodes, compare_nodes);
        for (size_t i = 0; i < req->n; i++)
            pass_node(sampler, &req->nodes[i]);
        pass_rest(sampler, THING_NODE);
        pass_leader(sampler, &req->leader);
    }
    looked(sampler, THING_NODE);
}

static void stats_back(struct sampler *sampler)
{
    const struct mr_req_stats *req = &sampler->req->stats;
    struct server_state now = {.failed = true};
    if (req->req.err == MR_OK)
        now = (struct server_state){
            .disk_full = req->stats.disk_full,
            .failed = req->stats.failed,
            .upkeep = req->stats.upkeep,
        };
    pass_server(sampler, now);
    looked(sampler, THING_SERVER);
}

static void ask(struct sampler *sampler, enum thing_kind kind)
{
    sampler->at = sampler->known[kind].next;
    if (kind == THING_QUEUE)
        ask_queues(sampler, (struct mr_slice){0});
    else if (kind == THING_NODE)
        submit(sampler, MR_OP_NODE_LIST, nodes_back);
    else
        submit(sampler, MR_OP_STATS, stats_back);
}

void sample_begin(struct sampler *sampler)
{
    if (sampler->looks)
        return;
    sampler->looks = true;
    ask(sampler, THING_QUEUE);
}

void sample_back(struct sampler *sampler)
{
    sampler->back(sampler);
}

void sample_init(struct sampler *sampler, const struct sampler_ops *ops, union any_req *req,
                 uint64_t *last_id)
{
    sampler->ops = ops;
    sampler->req = req;
    sampler->last_id = last_id;
    mr_list_init(&sampler->changes);
    mr_list_init(&sampler->gone);
    for (size_t i = 0; i < THING_COUNT; i++)
        mr_list_init(&sampler->known[i]);
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    if (*last_id == 0) /* so that they also rise from one server to the next */
        *last_id = (uint64_t)now_ms * 1000;
}

struct mr_link *sample_behind(struct sampler *sampler, uint64_t id)
{
    struct mr_link *changes = &sampler->changes, *link = changes;
    while (link->prev != changes && mr_container(link->prev, struct thing, change)->id > id)
        link = link->prev;
    return link;
}
