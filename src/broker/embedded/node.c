/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes: who takes tasks, and what becomes of their tasks when they go. A node lives while it
 * beats; liveness is never judged by how long a task runs. The board holds the epoch of the run in
 * each slot, in memory that outlives the process: so a lost worker's tasks are told apart into
 * those that had begun (a crash) and those that were merely held.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"
#include "wire/node.h"

/* ---- tasks in hand -------------------------------------------------------------------------- */

/* It waits for tasks that it had no slot for: those of queues with limits. */
static void slot_is_free(struct mr_engine *engine, const struct node *node)
{
    for (size_t i = 0; i < node->listens_n; i++) {
        struct queue *queue = node->listens[i].queue;
        if (queue != NULL && queue->limiter != NULL && mr_list_empty(&queue->ready))
            mr_list_push_back(&engine->state.ready, &queue->ready);
    }
}

void node_lease_ended(uint32_t handle, void *arg)
{
    struct mr_engine *engine = arg;
    struct state *state = &engine->state;
    struct more *more = more_of(state, task_at(state, handle));
    struct queue *queue = queue_of(state, task_at(state, handle));
    free(more->progress);
    more->progress = NULL;
    if (queue->limiter != NULL)
        limiter_ended(queue->limiter, more);
    if (more->node == 0)
        return;
    struct node *node = engine->nodes_by_number[more->node];
    if (more->prev != NO_HANDLE)
        more_of(state, task_at(state, more->prev))->next = more->next;
    else
        node->first = more->next;
    if (more->next != NO_HANDLE)
        more_of(state, task_at(state, more->next))->prev = more->prev;
    else
        node->last = more->prev;
    more->node = 0;
    node->in_hand--;
    engine->in_hand--;
    if (!mr_list_empty(&node->takes))
        slot_is_free(engine, node);
    engine->in_hand_leaving -= (task_at(state, handle)->flags & MR_TASK_TOPIC) != 0;
}

bool board_has(const struct mr_engine *engine, uint32_t first, uint32_t n, uint64_t epoch)
{
    for (uint32_t i = first; i < first + n; i++)
        if (atomic_load_explicit(&engine->board[i], memory_order_acquire) == epoch)
            return true;
    return false;
}

enum { LOST_TEXT_MAX = 64 }; /* of what is said below */

/* A crash is counted only for a run that had begun; the third one sends the task to the archive. */
enum mr_err lose_lease(struct mr_engine *engine, uint32_t handle, bool begun)
{
    struct mr_event_change change = change_of(engine, handle);
    struct queue *queue = queue_of(&engine->state, task_at(&engine->state, handle));
    uint16_t tally = more_of(&engine->state, task_at(&engine->state, handle))->tally;
    struct diary_run run = diary_run(engine, handle);
    change.state = MR_PENDING;
    if (begun)
        change.crashes++;
#ifdef MR_PLANT_CRASH_EATS_RETRY
    change.retried += begun;
#endif
    bool poison = change.crashes >= MR_CRASHES_MAX && begun;
    if (poison) {
        change.state = MR_ARCHIVED;
        change.text = MR_SLICE_LIT("quarantined: its worker was lost 3 times while running it");
    } else if (change.flags & MR_TASK_CANCEL) {
        change.state = MR_ARCHIVED;
        change.text = MR_SLICE_LIT("cancelled");
    }
    if (change.state == MR_ARCHIVED)
        change_to_end(engine, &change, MR_ARCHIVED, engine->now_ms);
    bool leaves = (change.flags & MR_TASK_TOPIC) && (begun || change.state == MR_ARCHIVED);
    size_t room = MR_EVENT_CHANGE_SIZE + LOST_TEXT_MAX + (leaves ? RESULT_ROOM : 0);
    MR_TRY(log_room(engine, room, MR_LOG_ONGOING));
    struct mr_slice error = change.text.len > 0 ? change.text : MR_SLICE_LIT("its worker was lost");
    MR_TRY(leaves ? change_with_result(engine, MR_RECORD_LOST, handle, &change,
                                       begun ? MR_RESULT_LOST : MR_RESULT_CANCELLED, error)
                  : change_task(engine, MR_RECORD_LOST, handle, &change));
    tally_lost(engine, queue, tally, begun, &change);
    if (begun && !queue->results)
        diary_add(engine, &run, mr_attempt_name(MR_ATTEMPT_CRASH), error);
    queue->quarantined += poison;
    engine->quarantined += poison;
    return MR_OK;
}

/* ---- a node goes ---------------------------------------------------------------------------- */

static void node_free(struct mr_engine *engine, struct node *node)
{
    leader_left(engine, node);
    for (size_t i = 0; i < node->listens_n; i++)
        mr_list_remove(&node->listens[i].waiter);
    mr_wheel_stop(engine->wheel, &node->lease);
    /* The board keeps its epochs: they never come again, and until the losses are written they are
     * needed. */
    memset(engine->slot_use + node->first_slot, node->dying ? SLOT_RESTS : SLOT_FREE, node->slots);
    engine->nodes_by_number[node->number] = NULL;
    mr_list_remove(&node->link);
    if (!engine->closing)
        node_parts_assign(engine, node);
    free(node->types);
    mr_buf_done(&node->slots_said);
    free(node);
}

void nodes_free(struct mr_engine *engine)
{
    while (!mr_list_empty(&engine->nodes)) {
        struct node *node = mr_container(engine->nodes.next, struct node, link);
        node_free(engine, node);
    }
}

/* Gives back what it holds, oldest first. MR_BUSY and the like: some is left, try again. */
static enum mr_err node_release_tasks(struct mr_engine *engine, struct node *node, bool dead)
{
    while (node->first != NO_HANDLE) {
        uint32_t handle = node->first;
        uint64_t epoch = more_of(&engine->state, task_at(&engine->state, handle))->epoch;
        bool begun = board_has(engine, node->first_slot, node->slots, epoch);
        MR_TRY(lose_lease(engine, handle, begun));
        if (dead)
            node->events.stop(epoch, MR_STOP_LOST, node->events.arg);
    }
    return MR_OK;
}

static void renew(struct mr_engine *engine, struct node *node)
{
    node->doubted = false;
    mr_wheel_start(engine->wheel, &node->lease,
                   tick_of(engine, engine->now) + (uint64_t)node->lease_ms + 1);
}

static void heard(struct mr_engine *engine, struct node *node)
{
    node->last_beat_ms = engine->now_ms;
    renew(engine, node);
}

/* The lease of a node ran out: it is dead, whatever it thinks. Unless it was us who were away
 * (stopped, or starved): then nobody could have been heard, and it gets its time again. Where that
 * was too short to be noticed, a beat that was due is about to come: so it is asked for once
 * more. */
static void node_died(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    struct node *node = mr_container(timer, struct node, lease);
    if (!node->dying && tick_of(engine, engine->now) - timer->due > AWAY_MS) {
        renew(engine, node);
        return;
    }
    if (!node->dying && !node->doubted) {
        node->doubted = true;
        mr_wheel_start(engine->wheel, timer, tick_of(engine, engine->now) + AWAY_MS);
        return;
    }
    node->dying = true;
    take_cancel_waits(engine, node, MR_CLOSED);
    node_parts_assign(engine, node);
    if (node_release_tasks(engine, node, true) != MR_OK) {
        mr_wheel_start(engine->wheel, timer, tick_of(engine, engine->now) + RETRY_SPACE_MS);
        return;
    }
    node_free(engine, node);
}

struct node *find_node(const struct mr_engine *engine, uint64_t id)
{
    uint32_t number = (uint32_t)(id & (NODES_MAX - 1));
    struct node *node = engine->nodes_by_number[number];
    return node != NULL && node->id == id && !node->dying ? node : NULL;
}

static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Whatever happens: after the answer nobody is there to be told anything. */
enum handled handle_node_close(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_node_close *req = mr_container(base, struct mr_req_node_close, req);
    struct node *node = engine->nodes_by_number[req->node & (NODES_MAX - 1)];
    if (node == NULL || node->id != req->node) {
        answer(engine, base, MR_NOT_FOUND);
        return HANDLED;
    }
    take_cancel_waits(engine, node, MR_CLOSED);
    node->events = (struct mr_node_events){.stop = tell_nobody};
    enum mr_err err = node_release_tasks(engine, node, false);
    if (err == MR_BUSY)
        return STALLED;
    if (err == MR_OK) {
        node_free(engine, node);
    } else { /* what is left of it is tried again by its timer */
        node->dying = true;
        mr_wheel_start(engine->wheel, &node->lease, tick_of(engine, engine->now) + RETRY_SPACE_MS);
    }
    answer(engine, base, err);
    return HANDLED;
}

/* ---- a node comes --------------------------------------------------------------------------- */

static bool take_slots(struct mr_engine *engine, uint32_t n, uint32_t *ret_first)
{
    uint32_t run = 0;
    *ret_first = 0;
    if (n == 0)
        return true;
    for (uint32_t i = 0; i < BOARD_SLOTS; i++) {
        run = engine->slot_use[i] == SLOT_FREE ? run + 1 : 0;
        if (run == n) {
            *ret_first = i + 1 - n;
            memset(engine->slot_use + *ret_first, SLOT_USED, n);
            return true;
        }
    }
    return false;
}

static enum mr_err find_slots(struct mr_engine *engine, uint32_t n, uint32_t *ret_first)
{
    if (take_slots(engine, n, ret_first))
        return MR_OK;
    for (uint32_t i = 0; i < BOARD_SLOTS; i++)
        if (engine->slot_use[i] == SLOT_RESTS)
            engine->slot_use[i] = SLOT_FREE;
    return take_slots(engine, n, ret_first) ? MR_OK : MR_TOO_BIG;
}

/* A queue that is not there yet is listened to when it comes: to wait for one makes none, which
 * would last. */
static void listen_all(struct mr_engine *engine, struct node *node,
                       const struct mr_req_node_open *req)
{
    for (size_t i = 0; i < req->queues_n; i++) {
        struct listen *listen = &node->listens[i];
        mr_list_init(&listen->waiter);
        listen->node = node;
        listen->weight = req->queues[i].weight ? req->queues[i].weight : 1;
        listen->name_len = req->queues[i].name.len;
        memcpy(listen->name, req->queues[i].name.data, listen->name_len);
        listen->base = mr_address_base(req->queues, req->queues_n, i);
        listen->queue = find_queue(&engine->state, req->queues[i].name);
        node->listens_n++;
    }
}

static uint32_t free_number(struct mr_engine *engine)
{
    for (uint32_t tried = 1; tried < NODES_MAX; tried++) {
        uint32_t number = ++engine->node_numbers & (NODES_MAX - 1);
        if (number != 0 && engine->nodes_by_number[number] == NULL)
            return number;
    }
    return 0;
}

/* One block: the slices, then their bytes. */
static enum mr_err copy_types(struct node *node, const struct mr_req_node_open *req)
{
    size_t bytes = req->types_n * sizeof *req->types;
    for (size_t i = 0; i < req->types_n; i++)
        bytes += req->types[i].len;
    if (req->types_n == 0)
        return MR_OK;
    node->types = malloc(bytes);
    if (node->types == NULL)
        return MR_NOMEM;
    char *at = (char *)(node->types + req->types_n);
    for (size_t i = 0; i < req->types_n; i++) {
        node->types[i] = mr_slice_make(at, req->types[i].len);
        memcpy(at, req->types[i].data, req->types[i].len);
        at += req->types[i].len;
    }
    node->types_n = req->types_n;
    return MR_OK;
}

static enum mr_err node_new(struct mr_engine *engine, const struct mr_req_node_open *req,
                            struct node **ret_node)
{
    MR_TRY(mr_node_open_check(req));
    uint32_t number = free_number(engine);
    if (number == 0)
        return MR_TOO_BIG;
    struct node *node = calloc(1, sizeof *node + req->queues_n * sizeof *node->listens);
    if (node == NULL)
        return MR_NOMEM;
    uint32_t first_slot;
    enum mr_err err = find_slots(engine, req->slots, &first_slot);
    if (err != MR_OK) {
        free(node);
        return err;
    }
    *node = (struct node){.engine = engine,
                          .number = number,
                          .role = req->role,
                          .id = mr_rand_next(&engine->rand) * NODES_MAX + number,
                          .slots = req->slots,
                          .first_slot = first_slot,
                          .first_epoch = engine->last_epoch,
                          .started_ms = engine->now_ms,
                          .lease_ms = req->lease_ms,
                          .fall_ms = req->fall_ms,
                          .leads = req->leads,
                          .inner = req->inner,
                          .leader_ms = req->leader_ms,
                          .events = req->events,
                          .order = req->order,
                          .first = NO_HANDLE,
                          .last = NO_HANDLE};
    if (req->name.len > 0)
        memcpy(node->name, req->name.data, req->name.len);
    mr_list_init(&node->takes);
    mr_list_push_back(&engine->nodes, &node->link);
    engine->nodes_by_number[number] = node;
    mr_timer_init(&node->lease, node_died);
    *ret_node = node;
    return MR_OK;
}

enum handled handle_node_open(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_node_open *req = mr_container(base, struct mr_req_node_open, req);
    struct node *node = NULL;
    enum mr_err err = engine_failure(engine);
    if (err == MR_OK)
        err = node_new(engine, req, &node);
    if (err == MR_OK)
        err = copy_types(node, req);
    if (err != MR_OK) {
        if (node != NULL)
            node_free(engine, node);
        mr_req_answer(base, err);
        return HANDLED;
    }
    listen_all(engine, node, req);
    node_parts_assign(engine, node);
    heard(engine, node);
    req->node = node->id;
    req->first_slot = node->first_slot;
    answer(engine, base, MR_OK);
    return HANDLED;
}

void node_listen_again(struct mr_engine *engine, struct queue *queue)
{
    struct mr_slice name = mr_slice_make(queue->name, queue->name_len);
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        for (size_t i = 0; i < node->listens_n; i++) {
            struct listen *listen = &node->listens[i];
            if (listen->queue != NULL ||
                !mr_slice_equal(mr_slice_make(listen->name, listen->name_len), name))
                continue;
            listen->queue = queue;
            if (waiting_take(node, i) != NULL)
                mr_list_push_back(&queue->waiters, &listen->waiter);
        }
    }
}

void node_forget_queue(struct mr_engine *engine, struct queue *queue)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        for (size_t i = 0; i < node->listens_n; i++) {
            if (node->listens[i].queue != queue)
                continue;
            mr_list_remove(&node->listens[i].waiter);
            node->listens[i].queue = NULL;
        }
    }
}

/* ---- beats ---------------------------------------------------------------------------------- */

static void note_progress(struct mr_engine *engine, const struct node *node,
                          const struct mr_progress *progress)
{
    uint32_t handle = (uint32_t)(progress->ref - 1);
    struct state *state = &engine->state;
    if (progress->ref == 0 || handle >= state->tasks.used)
        return;
    const struct task *task = task_at(state, handle);
    struct more *more = task->state == MR_ACTIVE ? more_of(state, task) : NULL;
    if (more == NULL || more->epoch != progress->epoch || more->node != node->number)
        return;
    more->percent = (int16_t)(progress->percent < INT16_MAX ? progress->percent : INT16_MAX);
    free(more->progress);
    size_t len = mr_utf8_cut(progress->text, MR_PROGRESS_TEXT_MAX);
    more->progress = len ? strndup(progress->text.data, len) : NULL;
}

/* Without memory it is shown as it was before. */
static void note_slots(struct mr_engine *engine, struct node *node, const struct mr_req_beat *req)
{
    struct mr_slot_info infos[MR_SLOTS_SHOWN];
    size_t n = req->slots_n < MR_SLOTS_SHOWN ? req->slots_n : MR_SLOTS_SHOWN;
    for (size_t i = 0; i < n; i++) {
        infos[i] = req->slots[i];
        infos[i].since_ms = engine->now_ms - infos[i].since_ms;
    }
    size_t size = mr_slot_infos_size(infos, n);
    mr_buf_clear(&node->slots_said);
    if (mr_buf_reserve(&node->slots_said, size) != MR_OK)
        return;
    mr_slot_infos_write(infos, n, SLOTS_SAID, node->slots_said.data);
    node->slots_said.len = size;
}

enum handled handle_beat(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_beat *req = mr_container(base, struct mr_req_beat, req);
    struct node *node = find_node(engine, req->node);
    req->term = 0;
    req->leader_ms = 0;
    if (node == NULL) {
        mr_req_answer(base, MR_NOT_FOUND);
        return HANDLED;
    }
    heard(engine, node);
    for (size_t i = 0; i < req->progress_n; i++)
        note_progress(engine, node, &req->progress[i]);
    if (req->slots_n > 0)
        note_slots(engine, node, req);
    leader_beat(engine, node, req);
    mr_req_answer(base, MR_OK);
    return HANDLED;
}
