/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler behind Events.Watch: what is there, and when it last changed. See events.h. */
#include <stdlib.h>

#include "api/events.h"
#include "wire/node.h"

/* ---- things --------------------------------------------------------------------------------- */

static void touch(struct events *events, struct thing *thing)
{
    thing->id = ++events->api->events_id;
    thing->time_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    mr_list_remove(&thing->change);
    mr_list_push_back(&events->changes, &thing->change);
}

static struct thing *thing_new(struct events *events, enum thing_kind kind, struct mr_link *before)
{
    struct thing *thing = calloc(1, sizeof *thing);
    if (thing == NULL)
        return NULL;
    thing->kind = kind;
    mr_list_init(&thing->change);
    mr_list_insert_before(before, &thing->place);
    touch(events, thing);
    return thing;
}

static void thing_free(struct thing *thing)
{
    mr_list_remove(&thing->change);
    mr_list_remove(&thing->place);
    mr_arena_done(&thing->memory);
    free(thing);
}

void sample_forget(struct events *events, uint64_t id)
{
    while (!mr_list_empty(&events->gone)) {
        struct thing *thing = mr_container(events->gone.next, struct thing, place);
        if (thing->id > id)
            return;
        thing_free(thing);
        events->gone_n--;
    }
}

static void thing_gone(struct events *events, struct thing *thing)
{
    thing->gone = true;
    touch(events, thing);
    mr_list_remove(&thing->place);
    mr_list_push_back(&events->gone, &thing->place);
    if (++events->gone_n <= GONE_MAX)
        return;
    events->forgotten = mr_container(events->gone.next, struct thing, place)->id;
    sample_forget(events, events->forgotten);
}

void things_free(struct events *events)
{
    while (!mr_list_empty(&events->changes))
        thing_free(mr_container(events->changes.next, struct thing, change));
}

/* ---- against what is known ------------------------------------------------------------------ */

/* What is known and what is found are in the same order, so both are walked once. */
static struct thing *known_at(const struct events *events, enum thing_kind kind)
{
    return events->at == &events->known[kind] ? NULL
                                              : mr_container(events->at, struct thing, place);
}

/* How a node went: somebody who may still come back, or does not know yet, has not left by itself. */
static void node_went(struct events *events, struct thing *thing)
{
    bool lost = thing->node.state != MR_NODE_LIVE ||
                nodes_has_session(events->api, thing->node.incarnation);
    thing->node.state = lost ? MR_NODE_DEAD : (enum mr_node_state)NODE_CLOSED;
    thing->node.in_hand = thing->node.busy = 0;
}

static void pass_gone(struct events *events, struct thing *thing)
{
    events->at = events->at->next;
    if (thing->kind == THING_NODE)
        node_went(events, thing);
    thing_gone(events, thing);
}

static void pass_rest(struct events *events, enum thing_kind kind)
{
    struct thing *thing;
    while ((thing = known_at(events, kind)) != NULL)
        pass_gone(events, thing);
}

/* Waiting grows by itself, as anybody can see from the time. */
static bool queue_changed(const struct mr_queue_info *before, const struct mr_queue_info *now)
{
    return memcmp(before->counts, now->counts, sizeof now->counts) != 0 ||
           before->paused != now->paused || before->max_length != now->max_length ||
           before->partitions != now->partitions || before->retry_mode != now->retry_mode ||
           before->retry_wait_ms != now->retry_wait_ms || before->rate != now->rate ||
           before->rate_ms != now->rate_ms || before->concurrency != now->concurrency ||
           before->limits != now->limits || before->processed_total != now->processed_total ||
           before->failed_total != now->failed_total ||
           before->processed_today != now->processed_today ||
           before->failed_today != now->failed_today || before->wait_p50_us != now->wait_p50_us ||
           before->wait_p99_us != now->wait_p99_us || before->run_p50_us != now->run_p50_us ||
           before->run_p99_us != now->run_p99_us || before->trimmed != now->trimmed ||
           before->quarantined != now->quarantined;
}

static void pass_queue(struct events *events, const struct mr_queue_info *info)
{
    struct thing *thing;
    while ((thing = known_at(events, THING_QUEUE)) != NULL &&
           strcmp(thing->queue.name, info->name) < 0)
        pass_gone(events, thing);
    if (thing == NULL || strcmp(thing->queue.name, info->name) != 0) {
        thing = thing_new(events, THING_QUEUE, events->at);
        if (thing != NULL)
            thing->queue = *info;
        return;
    }
    events->at = events->at->next;
    if (queue_changed(&thing->queue, info))
        touch(events, thing);
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

static void pass_node(struct events *events, const struct mr_node_info *node)
{
    struct thing *thing;
    while ((thing = known_at(events, THING_NODE)) != NULL &&
           thing->node.incarnation < node->incarnation)
        pass_gone(events, thing);
    if (thing == NULL || thing->node.incarnation != node->incarnation) {
        thing = thing_new(events, THING_NODE, events->at);
        if (thing != NULL && node_copy(thing, node) != MR_OK)
            thing_free(thing); /* the next look finds it again */
        return;
    }
    events->at = events->at->next;
    if (thing->node.state != node->state)
        touch(events, thing);
    thing->node.state = node->state;
    thing->node.last_beat_ms = node->last_beat_ms;
    thing->node.in_hand = node->in_hand;
    thing->node.busy = node->busy;
}

static void pass_server(struct events *events, struct server_state now)
{
    struct thing *thing = known_at(events, THING_SERVER);
    if (thing == NULL)
        thing = thing_new(events, THING_SERVER, events->at);
    else if (memcmp(&thing->server, &now, sizeof now) != 0)
        touch(events, thing);
    if (thing != NULL)
        thing->server = now;
}

/* How long nobody leads anybody can see from the time. */
static void pass_leader(struct events *events, const struct mr_leader *now)
{
    events->at = events->known[THING_LEADER].next;
    struct thing *thing = known_at(events, THING_LEADER);
    if (thing == NULL)
        thing = thing_new(events, THING_LEADER, events->at);
    else if (thing->leader.incarnation != now->incarnation || thing->leader.term != now->term)
        touch(events, thing);
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
static void ask(struct events *events, enum thing_kind kind);

static void looked(struct events *events, enum thing_kind kind)
{
    bool goes_on = kind < THING_SERVER && !mr_list_empty(&events->watchers);
    job_clear(&events->job);
    if (goes_on) {
        ask(events, kind + 1);
        return;
    }
    events->looks = false;
    events_looked(events);
}

static void ask_queues(struct events *events, struct mr_slice after);

static void queues_back(struct job *job)
{
    struct events *events = mr_container(job, struct events, job);
    const struct mr_req_queue_list *req = &job->req.queue_list;
    bool more = req->req.err == MR_OK && req->n == req->max;
    char last[MR_NAME_MAX + 1];
    for (size_t i = 0; req->req.err == MR_OK && i < req->n; i++)
        pass_queue(events, &req->infos[i]);
    if (more && !mr_list_empty(&events->watchers)) {
        memcpy(last, req->infos[req->n - 1].name, sizeof last);
        job_clear(job);
        ask_queues(events, mr_slice_str(last));
        return;
    }
    if (req->req.err == MR_OK && !more)
        pass_rest(events, THING_QUEUE);
    looked(events, THING_QUEUE);
}

static void ask_queues(struct events *events, struct mr_slice after)
{
    struct mr_req_queue_list *req = &events->job.req.queue_list;
    if (after.len > 0 && mr_arena_copy(&req->req.arena, after, &req->after) != MR_OK) {
        looked(events, THING_QUEUE);
        return;
    }
    req->infos = events->page;
    req->max = QUEUES_PAGE;
    job_submit(&events->job, events->api, MR_OP_QUEUE_LIST, queues_back);
}

static int compare_nodes(const void *a, const void *b)
{
    const struct mr_node_info *x = a, *y = b;
    return (x->incarnation > y->incarnation) - (x->incarnation < y->incarnation);
}

static void nodes_back(struct job *job)
{
    struct events *events = mr_container(job, struct events, job);
    struct mr_req_node_list *req = &job->req.node_list;
    if (req->req.err == MR_OK) {
        nodes_mark(events->api, req->nodes, req->n);
        if (req->n > 0)
            qsort(req->nodes, req->n, sizeof *req->nodes, compare_nodes);
        for (size_t i = 0; i < req->n; i++)
            pass_node(events, &req->nodes[i]);
        pass_rest(events, THING_NODE);
        pass_leader(events, &req->leader);
    }
    looked(events, THING_NODE);
}

static void stats_back(struct job *job)
{
    struct events *events = mr_container(job, struct events, job);
    const struct mr_req_stats *req = &job->req.stats;
    struct server_state now = {.failed = true};
    if (req->req.err == MR_OK)
        now = (struct server_state){
            .disk_full = req->stats.disk_full,
            .failed = req->stats.failed,
            .upkeep = req->stats.upkeep,
        };
    pass_server(events, now);
    looked(events, THING_SERVER);
}

static void ask(struct events *events, enum thing_kind kind)
{
    events->at = events->known[kind].next;
    if (kind == THING_QUEUE)
        ask_queues(events, (struct mr_slice){0});
    else if (kind == THING_NODE)
        job_submit(&events->job, events->api, MR_OP_NODE_LIST, nodes_back);
    else
        job_submit(&events->job, events->api, MR_OP_STATS, stats_back);
}

void sample_begin(struct events *events)
{
    if (events->looks)
        return;
    events->looks = true;
    events->began = mr_rpc_now(events->api->options.rpc);
    ask(events, THING_QUEUE);
}
