/* SPDX-License-Identifier: Apache-2.0 */
/* What people look at: tasks, pages of tasks, queues, figures. Answers are copies in the request's
 * arena. */
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "wire/node.h"

enum {
    LIST_DEFAULT = 50,
    OLDEST_LOOK = 64, /* tasks at the head of a queue whose age is looked at */
    SCAN_MAX = 20000, /* tasks looked at for one page: a rare type does not stop the engine */
};

enum handled handle_get(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_get *req = mr_container(base, struct mr_req_get, req);
    bool is_uuid;
    struct mr_uuid id = id_key(&engine->state, req->id, &is_uuid);
    uint32_t handle = find_shown_task(&engine->state, &id);
    enum mr_err err = show_known_task(engine, handle, &base->arena, &req->task);
    if (err == MR_OK)
        err = diary_show(engine, &id, &base->arena, &req->task);
    answer(engine, base, err);
    return HANDLED;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Where a page begins: a set, and a place in it. As text: queue.state.partition.key.tie */
struct cursor {
    uint32_t queue;
    unsigned state, part;
    int64_t key;
    uint64_t tie;
};

static enum mr_err cursor_parse(const char *text, struct cursor *ret_cursor)
{
    *ret_cursor = (struct cursor){.key = INT64_MIN};
    if (text == NULL || text[0] == '\0')
        return MR_OK;
    int used = 0;
    unsigned queue, state, part;
    long long key;
    unsigned long long tie;
    if (strlen(text) >= MR_CURSOR_MAX ||
        sscanf(text, "%u.%u.%u.%lld.%llu%n", &queue, &state, &part, &key, &tie, &used) != 5 ||
        text[used] != '\0' || state > MR_STATE_COUNT)
        return MR_INVALID;
    *ret_cursor = (struct cursor){queue, state, part, key, tie};
    return MR_OK;
}

struct page {
    struct mr_engine *engine;
    struct mr_req_list *req;
    const struct queue *only; /* NULL: all queues */
    size_t limit, scanned, bytes;
    struct cursor at;
    bool full;
};

/* Looks at the record before anything of it is copied. One that cannot be read has no type. */
static bool page_skips(struct page *page, const struct task *task)
{
    struct mr_task_msg msg;
    int64_t created_ms;
    struct mr_slice type = page->req->options.type;
    return type.len > 0 && (read_message(page->engine, task, &created_ms, &msg, NULL) != MR_OK ||
                            !mr_slice_equal(msg.type, type));
}

/* About what it adds to the answer. */
static size_t page_cost(const struct page *page, const struct task *task)
{
    const struct more *more = more_of(&page->engine->state, task);
    return (page->req->options.with_payload ? task->size : 0) +
           (more != NULL ? more->note_size : 0);
}

/* The page is full when the task, of the type that is wanted, no longer fits. */
static enum mr_err page_consider(struct page *page, uint32_t handle)
{
    struct mr_req_list *req = page->req;
    const struct task *task = task_at(&page->engine->state, handle);
    page->full = req->n == page->limit || page->scanned == SCAN_MAX;
    if (page->full)
        return MR_OK;
    page->scanned++;
    if (page_skips(page, task))
        return MR_OK;
    size_t cost = page_cost(page, task);
    page->full = req->n > 0 && page->bytes + cost > MR_PAGE_BYTES;
    if (page->full)
        return MR_OK;
    page->bytes += cost;
    MR_TRY(show_task(page->engine, handle, req->options.with_payload, &req->req.arena,
                     &req->tasks[req->n]));
    req->n++;
    return MR_OK;
}

/* Goes on in one set from the cursor; stops when the page is full, leaving the cursor behind the
 * last one. */
static enum mr_err page_set(struct page *page, const struct order *set)
{
    const struct slab *tasks = &page->engine->state.tasks;
    struct order_at at = order_seek(set, tasks, page->at.key, page->at.tie);
    uint32_t handle;
    while ((handle = order_next(set, &at)) != NO_HANDLE) {
        const struct task *task = task_at(&page->engine->state, handle);
        page->at.key = task->key;
        page->at.tie = task->tie;
        MR_TRY(page_consider(page, handle));
        if (page->full)
            return MR_OK;
    }
    return MR_OK;
}

static bool page_wants(const struct page *page, const struct queue *queue, unsigned state)
{
    enum mr_state only = page->req->options.state;
    if (queue->results || (page->only != NULL ? page->only != queue : queue->inner))
        return false;
    if (page->req->options.held)
        return state == HELD_SET;
    return state != HELD_SET && (only == MR_STATE_NONE || only == state);
}

/* Goes on in the sets of one state; those of another are not looked at. */
static enum mr_err page_state(struct page *page, struct queue *queue)
{
    struct cursor *at = &page->at;
    for (; at->part < queue_sets(queue, at->state); at->part++) {
        if (page_wants(page, queue, at->state))
            MR_TRY(page_set(page, queue_set(queue, at->state, at->part)));
        if (page->full)
            return MR_OK;
#ifndef MR_PLANT_CURSOR_KEPT
        at->key = INT64_MIN;
        at->tie = 0;
#endif
    }
    at->part = 0;
    return MR_OK;
}

static enum mr_err page_fill(struct page *page)
{
    const struct state *state = &page->engine->state;
    while (page->at.queue < state->queues_n) {
        struct queue *queue = state->queues[page->at.queue];
        for (; queue != NULL && page->at.state < MR_STATE_COUNT; page->at.state++) {
            MR_TRY(page_state(page, queue));
            if (page->full)
                return MR_OK;
        }
        page->at = (struct cursor){.queue = page->at.queue + 1, .key = INT64_MIN};
    }
    return MR_OK;
}

static enum mr_err list_tasks(struct mr_engine *engine, struct mr_req_list *req)
{
    const struct mr_list_options *options = &req->options;
    struct page page = {.engine = engine, .req = req};
    page.limit = options->limit ? options->limit : LIST_DEFAULT;
    if (page.limit > MR_BATCH_MAX || (unsigned)options->state >= MR_STATE_COUNT)
        return MR_INVALID;
    MR_TRY(cursor_parse(options->cursor, &page.at));
    if (options->queue.len > 0)
        page.only = find_queue(&engine->state, options->queue);
    if (options->queue.len > 0 && (page.only == NULL || page.only->results))
        return MR_NOT_FOUND;
    size_t there = engine->state.tasks.count; /* a page of a thousand may find three */
    size_t room = there < page.limit ? there : page.limit;
    req->tasks = mr_arena_calloc(&req->req.arena, room + 1, sizeof *req->tasks);
    if (req->tasks == NULL)
        return MR_NOMEM;
    MR_TRY(page_fill(&page));
    if (page.full)
        snprintf(req->next, sizeof req->next, "%u.%u.%u.%lld.%llu", page.at.queue, page.at.state,
                 page.at.part, (long long)page.at.key, (unsigned long long)page.at.tie);
    return MR_OK;
}

enum handled handle_list(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_list *req = mr_container(base, struct mr_req_list, req);
    req->n = 0;
    req->next[0] = '\0';
    answer(engine, base, list_tasks(engine, req));
    return HANDLED;
}

/* ---- queues --------------------------------------------------------------------------------- */

/* How long a pending task has been ready to run: its order time, less what priority moved it ahead.
 */
static int64_t waiting_ms(struct mr_engine *engine, const struct task *task)
{
    struct mr_task_msg msg;
    int64_t since = task->key, created_ms;
    if (task->flags & (MR_TASK_PRIORITY | MR_TASK_REORDERED) &&
        read_message(engine, task, &created_ms, &msg, NULL) == MR_OK)
        since += task->flags & MR_TASK_REORDERED ? more_of(&engine->state, task)->priority_ms
                                                 : msg.priority_ms;
    return since < engine->now_ms ? engine->now_ms - since : 0;
}

/* By those at the heads of its partitions. */
static int64_t oldest_pending_ms(struct mr_engine *engine, const struct queue *queue)
{
    const struct state *state = &engine->state;
    int64_t oldest = 0;
    for (unsigned p = 0; p < queue->parts_n; p++) {
        const struct order *pending = &queue->parts[p].pending;
        struct order_at at = order_seek(pending, &state->tasks, INT64_MIN, 0);
        uint32_t handle;
        for (size_t i = 0; i < OLDEST_LOOK; i += queue->parts_n) {
            if ((handle = order_next(pending, &at)) == NO_HANDLE)
                break;
            int64_t ms = waiting_ms(engine, task_at(state, handle));
            oldest = ms > oldest ? ms : oldest;
        }
    }
    return oldest;
}

/* Those that are durable. */
static uint64_t count_durable(struct queue *queue, unsigned state)
{
    uint64_t n = 0;
    for (unsigned p = 0; p < queue_sets(queue, state); p++)
        n += queue_set(queue, state, p)->count;
    return n;
}

static void queue_info(struct mr_engine *engine, struct queue *queue,
                       struct mr_queue_info *ret_info)
{
    *ret_info = (struct mr_queue_info){
        .paused = queue->paused,
        .processed_total = queue->processed,
        .failed_total = queue->failed,
        .quarantined = queue->quarantined,
        .max_length = queue->max_length,
        .partitions = queue->parts_n,
        .assign = queue->assign,
    };
    mr_queue_settings_show(&queue->settings, ret_info);
    mr_limits_show(&queue->limits, ret_info);
    latency_show(queue->latency, engine->now, ret_info);
    struct mr_slice name = mr_queue_shown(mr_slice_make(queue->name, queue->name_len));
    memcpy(ret_info->name, name.data, name.len);
    ret_info->name[name.len] = '\0';
    memcpy(ret_info->counts, queue->counts, sizeof queue->counts);
    if (mr_log_failure(engine->log) != MR_OK) /* the changes under way will never be durable */
        for (unsigned s = 0; s < MR_STATE_COUNT; s++)
            ret_info->counts[s] = count_durable(queue, s);
    const struct day *today = queue_day(queue, (int32_t)(engine->now_ms / MR_MS_PER_DAY));
    if (today != NULL) {
        ret_info->processed_today = today->processed;
        ret_info->failed_today = today->failed;
    }
    ret_info->oldest_pending_ms = oldest_pending_ms(engine, queue);
}

/* The next entry of the answer. */
static enum mr_err add_queue(struct mr_engine *engine, struct queue *queue,
                             struct mr_req_queue_list *req)
{
    queue_info(engine, queue, &req->infos[req->n]);
    if (req->meters != NULL) {
        latency_meters(queue->latency, &req->meters[req->n]);
        MR_TRY(tally_show(engine, queue, &req->req.arena, &req->meters[req->n]));
    }
    req->n++;
    return MR_OK;
}

static enum mr_err list_queues(struct mr_engine *engine, struct mr_req_queue_list *req)
{
    struct state *state = &engine->state;
    if (req->only.len > 0) {
        struct queue *queue = find_queue(state, req->only);
        if (queue == NULL)
            return MR_NOT_FOUND;
        if (req->max == 0)
            return MR_INVALID;
        return add_queue(engine, queue, req);
    }
    size_t first;
    MR_TRY(queues_after(state, req->after, &first));
    for (size_t i = first; i < state->sorted_n && req->n < req->max; i++)
        MR_TRY(add_queue(engine, state->sorted[i], req));
    return MR_OK;
}

enum handled handle_queue_list(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_queue_list *req = mr_container(base, struct mr_req_queue_list, req);
    req->n = 0;
    answer(engine, base, list_queues(engine, req));
    return HANDLED;
}

enum handled handle_queue_history(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_queue_history *req = mr_container(base, struct mr_req_queue_history, req);
    const struct queue *queue = find_shown_queue(&engine->state, req->queue);
    req->n = 0;
    for (size_t i = queue != NULL ? queue->days_n : 0; i > 0 && req->n < req->max; i--) {
        const struct day *day = &queue->days[i - 1];
        req->days[req->n++] = (struct mr_queue_day){.start_ms = day->day * MR_MS_PER_DAY,
                                                    .processed = day->processed,
                                                    .failed = day->failed};
    }
    answer(engine, base, queue != NULL ? MR_OK : MR_NOT_FOUND);
    return HANDLED;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

/* Epochs rise: what stands on the board from before it came is of an earlier node. */
static uint32_t busy_slots(const struct mr_engine *engine, const struct node *node)
{
    uint32_t busy = 0;
    for (uint32_t i = node->first_slot; i < node->first_slot + node->slots; i++)
        busy += atomic_load_explicit(&engine->board[i], memory_order_relaxed) > node->first_epoch;
    return busy;
}

static enum mr_err copy_names(const struct node *node, struct mr_arena *arena,
                              struct mr_node_info *info)
{
    struct mr_worker_queue *queues = mr_arena_calloc(arena, node->listens_n, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(arena, node->types_n + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < node->listens_n; i++) {
        const struct listen *listen = &node->listens[i];
        struct mr_slice name = mr_slice_make(listen->name, listen->name_len);
        queues[i].weight = (uint32_t)listen->weight;
        if (node->role == MR_NODE_MASTER)
            name = mr_result_topic(name);
        MR_TRY(mr_arena_copy(arena, name, &queues[i].name));
    }
    for (size_t i = 0; i < node->types_n; i++)
        MR_TRY(mr_arena_copy(arena, node->types[i], &types[i]));
    info->queues = queues;
    info->queues_n = node->listens_n;
    info->types = types;
    info->types_n = node->types_n;
    struct mr_slice slots;
    MR_TRY(mr_arena_copy(arena, mr_buf_slice(&node->slots_said), &slots));
    MR_TRY(mr_slot_infos_read(slots, SLOTS_SAID, arena, &info->slot_infos, &info->slot_infos_n));
    return mr_arena_copy(arena, mr_slice_str(node->name), &info->name);
}

static enum mr_err copy_node(const struct mr_engine *engine, const struct node *node,
                             struct mr_arena *arena, struct mr_node_info *ret_info)
{
    *ret_info = (struct mr_node_info){
        .incarnation = node->id,
        .state = node->dying     ? MR_NODE_DEAD
                 : node->doubted ? MR_NODE_SUSPECT
                                 : MR_NODE_LIVE,
        .started_ms = node->started_ms,
        .last_beat_ms = node->last_beat_ms,
        .role = node->role,
        .in_hand = node->in_hand,
        .slots = node->slots,
        .busy = busy_slots(engine, node),
    };
    return copy_names(node, arena, ret_info);
}

static enum mr_err list_nodes(const struct mr_engine *engine, struct mr_req_node_list *req)
{
    size_t n = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        n++;
    req->nodes = mr_arena_calloc(&req->req.arena, n + 1, sizeof *req->nodes);
    if (req->nodes == NULL)
        return MR_NOMEM;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        const struct node *node = mr_container(link, struct node, link);
        if (node->inner)
            continue;
        MR_TRY(copy_node(engine, node, &req->req.arena, &req->nodes[req->n]));
        req->n++;
    }
    return MR_OK;
}

/* Nothing of a node is on disk, so there is nothing to wait for. */
enum handled handle_node_list(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_node_list *req = mr_container(base, struct mr_req_node_list, req);
    req->n = 0;
    enum mr_err err = list_nodes(engine, req);
    mr_req_answer(base, err == MR_OK ? leader_show(engine, req) : err);
    return HANDLED;
}

/* ---- figures -------------------------------------------------------------------------------- */

/* Of queues that people do not see. */
static uint64_t count_hidden(const struct state *state, uint64_t *ret_results)
{
    uint64_t inner = 0;
    *ret_results = 0;
    for (uint32_t i = 0; i < state->queues_n; i++) {
        const struct queue *queue = state->queues[i];
        if (queue == NULL || !(queue->results || queue->inner))
            continue;
        for (size_t s = 0; s < MR_STATE_COUNT; s++)
            *(queue->results ? ret_results : &inner) += queue->counts[s];
    }
    return *ret_results + inner;
}

static void show_meters(struct mr_engine *engine, const struct mr_log_figures *log,
                        struct mr_store_meters *meters)
{
    *meters = (struct mr_store_meters){.known = true, .sync_us = log->sync_us, .group = log->group};
    meters->free_known =
        engine->fs->ops->space(engine->fs, engine->dir, &meters->free_bytes) == MR_OK;
}

enum handled handle_stats(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_stats *req = mr_container(base, struct mr_req_stats, req);
    uint64_t results, hidden = count_hidden(&engine->state, &results);
    struct mr_log_figures log;
    mr_log_figures(engine->log, &log);
    req->stats = (struct mr_stats){
        .tasks = engine->state.tasks.count - hidden,
        .results = results,
        .memory_bytes = state_bytes(&engine->state),
        .disk_bytes =
            mr_log_disk_bytes(engine->log) + engine->snap_bytes + engine->spare.size.bytes,
        .live_bytes = engine->state.live_bytes,
        .segments = mr_log_segments(engine->log),
        .syncs = log.syncs,
        .sync_p50_us = log.sync_p50_us,
        .sync_p99_us = log.sync_p99_us,
        .records_damaged = engine->records_damaged,
        .stale_refused = engine->stale_refused,
        .deleted = engine->state.deleted,
        .expired = engine->state.expired,
        .gathered = engine->state.gathered,
        .carried = engine->carried,
        .moved = engine->moved,
        .snapshots = engine->snapshots,
        .texts_dropped = engine->texts_dropped,
        .quarantined = engine->quarantined,
        .leaderless_ms = leader_missing_ms(engine),
        .disk_full = mr_log_full(engine->log) != MR_OK || engine->spare.err != MR_OK,
        .failed = engine->failure != MR_OK || mr_log_failure(engine->log) != MR_OK,
        .upkeep = engine->snapshot != NULL || engine->compacting != 0,
    };
    if (req->meters_wanted)
        show_meters(engine, &log, &req->meters);
    mr_req_answer(base, MR_OK);
    return HANDLED;
}
