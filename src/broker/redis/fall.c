/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is addressed to others. A queue Q@NAME is for the workers of Q that listen to it; to our nodes of Q falls what
 * has been ready there for their fall_ms, handed out by the script of any take from where it stands: nothing moves, in
 * a Cluster neither. Which such queues there are is in the set of all names, which is asked for now and then, since what
 * is in one that is new cannot fall before that time has passed. A look that finds nothing old enough tells when the first
 * is, and before that, or where there was nothing before fall_ms have passed, nothing can be: so an address costs one look
 * in that time, however much goes through it.
 *
 * Workers come and go, and most have a new name each time: so a queue that is an address of one that is gone, and holds
 * nothing any more, is removed some time after its last run.
 */
#include "broker/redis/internal.h"
#include "wire/node.h"

enum {
    NAMES_MIN_MS = 50,
    NAMES_MAX_MS = 15 * 1000,
    NAMES_PART = 4,   /* of the shortest time after which something falls */
    SWEEP_FALLS = 10, /* after so many of those times ... */
    SWEEP_MIN_MS = 1000,
    SWEEP_MAX_MS = 10 * 60 * 1000,
};

static bool catches(const struct node *node)
{
    return node->fall_ms > 0 && !node->leaving;
}

/* 0: there is no such node. */
static int64_t shortest_ms(const struct engine *engine)
{
    int64_t ms = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        if (catches(node) && (ms == 0 || node->fall_ms < ms))
            ms = node->fall_ms;
    }
    return ms;
}

static int64_t names_ms(const struct engine *engine)
{
    int64_t ms = shortest_ms(engine) / NAMES_PART;
    return ms < NAMES_MIN_MS ? NAMES_MIN_MS : ms > NAMES_MAX_MS ? NAMES_MAX_MS : ms;
}

/* The first time at which a node may take something that has fallen, or the names are asked for. */
static mr_mono next_at(const struct engine *engine, mr_mono now)
{
    const struct falls *falls = &engine->falls;
    mr_mono at = falls->names_at.ns < falls->sweep_at.ns ? falls->names_at : falls->sweep_at;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        for (size_t i = 0; catches(node) && i < node->listens_n; i++) {
            const struct listen *listen = node->listens[i];
            if (listen->fallen && listen->falls_at.ns > now.ns && listen->falls_at.ns < at.ns)
                at = listen->falls_at;
        }
    }
    return at;
}

void falls_watch(struct engine *engine)
{
    mr_mono now = mr_redis_now(engine->redis);
    if (engine->closing || shortest_ms(engine) == 0)
        return;
    mr_mono soonest = mr_mono_add_ms(now, 1), at = next_at(engine, now);
    mr_redis_timer_stop(engine->redis, &engine->falls.timer);
    if (at.ns != MR_MONO_NEVER.ns)
        mr_redis_timer_start(engine->redis, &engine->falls.timer,
                             at.ns > soonest.ns ? at : soonest);
}

void falls_joined(struct engine *engine)
{
    struct falls *falls = &engine->falls;
    if (!falls->asking && !falls->denied)
        falls->names_at = mr_redis_now(engine->redis);
    falls_watch(engine);
}

/* Whose address it is, of those that the node serves; NULL: it is none of its business. */
static struct served *base_of(struct node *node, const struct rqueue *queue)
{
    struct served *base = NULL;
    for (size_t i = 0; i < node->queues_n; i++) {
        struct served *served = &node->served[i];
        if (mr_is_address(queue->name, served->queue->name) &&
            (base == NULL || served->queue->name.len > base->queue->name.len))
            base = served;
    }
    return base;
}

static void names_came(struct queues_ask *ask, enum mr_err err)
{
    struct engine *engine = ask->engine;
    engine->falls.asking = false;
    engine->falls.denied = err == MR_DENIED;
    engine->falls.names_at = engine->falls.denied
                                 ? MR_MONO_NEVER
                                 : mr_mono_add_ms(mr_redis_now(engine->redis), names_ms(engine));
    for (uint32_t i = 0; err == MR_OK && !engine->closing && i < engine->queues_n; i++) {
        struct rqueue *queue = engine->queues[i];
        if (!queue->known || queue->topic.len > 0)
            continue;
        for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
            struct node *node = mr_container(link, struct node, link);
            struct served *base = catches(node) ? base_of(node, queue) : NULL;
            if (base != NULL)
                node_catches(node, queue, base);
        }
    }
    falls_watch(engine);
    if (!engine->closing)
        takes_serve(engine);
}

/* ---- those that nobody needs any more -------------------------------------------------------- */

static mr_mono next_sweep(const struct engine *engine)
{
    int64_t ms = SWEEP_FALLS * shortest_ms(engine);
    ms = ms < SWEEP_MIN_MS ? SWEEP_MIN_MS : ms > SWEEP_MAX_MS ? SWEEP_MAX_MS : ms;
    return mr_mono_add_ms(mr_redis_now(engine->redis), ms);
}

static bool is_listened_to(const struct mr_req_node_list *list, struct mr_slice queue)
{
    for (size_t i = 0; i < list->n; i++)
        for (size_t k = 0; k < list->nodes[i].queues_n; k++)
            if (mr_slice_equal(list->nodes[i].queues[k].name, queue))
                return true;
    return false;
}

/* It holds nothing, is as it was made, and nothing has run there today. */
static bool is_left(const struct mr_queue_info *info)
{
    bool left = !info->paused && info->max_length == 0 && info->partitions == 1 &&
                info->rate == 0 && info->concurrency == 0 && info->limits == 0 &&
                info->retry_mode == MR_RETRY_GATE && info->processed_today == 0;
    for (size_t s = 0; s < MR_STATE_COUNT; s++)
        left = left && info->counts[s] == 0;
    return left;
}

static void sweep_on(struct engine *engine);

static void sweep_removed(struct mr_req *req)
{
    struct engine *engine = req->arg;
    mr_req_done(req);
    sweep_on(engine);
}

static void sweep_looked(struct mr_req *req)
{
    struct engine *engine = req->arg;
    struct falls *falls = &engine->falls;
    bool left = req->err == MR_OK && falls->sweep_look.n == 1 && is_left(&falls->sweep_info);
    mr_req_done(req);
    if (!left || engine->closing) {
        sweep_on(engine);
        return;
    }
    falls->sweep_remove = (struct mr_req_queue_remove){
        .req = {.op = MR_OP_QUEUE_REMOVE, .done = sweep_removed, .arg = engine},
        .queue = mr_slice_str(falls->sweep_info.name),
        .mode = MR_QUEUE_REMOVE_EMPTY};
    mr_broker_submit(&engine->broker, &falls->sweep_remove.req);
}

/* The next one that is only listened to for what falls, and by nobody elsewhere as its own. */
static void sweep_on(struct engine *engine)
{
    struct falls *falls = &engine->falls;
    while (!engine->closing && falls->sweep_next < engine->queues_n) {
        const struct rqueue *queue = engine->queues[falls->sweep_next++];
        if (!queue->known || queue->listeners == 0 || queue->takers > 0 || queue->part_of != NULL ||
            is_listened_to(&falls->sweep_nodes, queue->name))
            continue;
        falls->sweep_look = (struct mr_req_queue_list){
            .req = {.op = MR_OP_QUEUE_LIST, .done = sweep_looked, .arg = engine},
            .only = queue->name,
            .infos = &falls->sweep_info,
            .max = 1};
        mr_broker_submit(&engine->broker, &falls->sweep_look.req);
        return;
    }
    mr_req_done(&falls->sweep_nodes.req);
    falls->sweeping = false;
    falls->sweep_at = next_sweep(engine);
    falls_watch(engine);
}

static void sweep_begun(struct mr_req *req)
{
    struct engine *engine = req->arg;
    engine->falls.sweep_next = req->err == MR_OK ? 0 : UINT32_MAX;
    sweep_on(engine);
}

static void sweep(struct engine *engine)
{
    struct falls *falls = &engine->falls;
    falls->sweeping = true;
    falls->sweep_at = MR_MONO_NEVER;
    falls->sweep_nodes = (struct mr_req_node_list){
        .req = {.op = MR_OP_NODE_LIST, .done = sweep_begun, .arg = engine}};
    mr_broker_submit(&engine->broker, &falls->sweep_nodes.req);
}

static void fire(struct mr_timer *timer, void *arg)
{
    struct engine *engine = mr_container(timer, struct engine, falls.timer);
    struct falls *falls = &engine->falls;
    mr_mono now = mr_redis_now(engine->redis);
    (void)arg;
    if (engine->closing || shortest_ms(engine) == 0)
        return;
    if (!falls->asking && !falls->denied && now.ns >= falls->names_at.ns) {
        falls->asking = true;
        falls->names_at = MR_MONO_NEVER;
        falls->names = (struct queues_ask){.then = names_came, .fresh = true};
        queues_ask(engine, &falls->names);
    }
    if (falls->sweep_at.ns == 0)
        falls->sweep_at = next_sweep(engine);
    else if (!falls->sweeping && now.ns >= falls->sweep_at.ns)
        sweep(engine);
    falls_watch(engine);
    takes_serve(engine);
}

void falls_init(struct engine *engine)
{
    mr_timer_init(&engine->falls.timer, fire);
}
