/* SPDX-License-Identifier: Apache-2.0 */
/* The turn: requests in, time, hand-outs, log, answers out. */
#include "broker/embedded/engine.h"

#include <stdlib.h>

/* ---- answers -------------------------------------------------------------------------------- */

/* Requests that only look. */
static bool is_reading(enum mr_op op)
{
    return op == MR_OP_GET || op == MR_OP_AWAIT || op == MR_OP_LIST || op == MR_OP_QUEUE_LIST ||
           op == MR_OP_QUEUE_HISTORY || op == MR_OP_QUEUE_LIMITS;
}

void answer(struct mr_engine *engine, struct mr_req *req, enum mr_err err)
{
    if (is_reading(req->op) && mr_log_failure(engine->log) != MR_OK) {
        /* The store has stopped, reading goes on; but what is missing may only be gone in memory.
         */
        mr_req_answer(req, err == MR_NOT_FOUND ? MR_IO : err);
        return;
    }
    req->wait_seq = mr_log_wanted(engine->log);
    req->err = err;
    if (req->wait_seq <= mr_log_durable(engine->log)) {
        req->done(req);
        return;
    }
    mr_list_push_back(&engine->waiting, &req->link);
}

static void answer_durable(struct mr_engine *engine)
{
    uint64_t durable = mr_log_durable(engine->log);
    while (!mr_list_empty(&engine->waiting)) {
        struct mr_req *req = mr_container(engine->waiting.next, struct mr_req, link);
        if (req->wait_seq > durable)
            return;
        mr_list_remove(&req->link);
        req->done(req);
    }
}

static void answer_failed(struct mr_engine *engine, enum mr_err err)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&engine->waiting)) != NULL ||
           (link = mr_list_pop_front(&engine->backups)) != NULL)
        mr_req_answer(mr_container(link, struct mr_req, link), err);
    while ((link = mr_list_pop_front(&engine->stalled)) != NULL) {
        struct mr_req *req = mr_container(link, struct mr_req, link);
        unprepare_request(req);
        mr_req_answer(req, err);
    }
    for (link = engine->nodes.next; link != &engine->nodes; link = link->next)
        take_cancel_waits(engine, mr_container(link, struct node, link), err);
    await_fail_all(engine, err);
    gather_fail_all(engine, err);
}

/* ---- logging -------------------------------------------------------------------------------- */

enum mr_err engine_failure(const struct mr_engine *engine)
{
    return engine->failure != MR_OK ? engine->failure : mr_log_failure(engine->log);
}

void engine_fail(struct mr_engine *engine, enum mr_err err)
{
    if (engine->failure == MR_OK) /* trying again does not help, whatever it was */
        engine->failure = mr_err_retriable(err) ? MR_FAILED : err;
}

uint64_t log_bytes(struct mr_engine *engine, enum mr_record_type type, enum mr_log_wait wait,
                   const void *body, size_t len, struct mr_log_pos *ret_pos)
{
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return 0;
    if (len > 0)
        memcpy(at, body, len);
    engine->appended_bytes += mr_record_size(len);
    return mr_log_append(engine->log, type, wait, ret_pos);
}

static void run_encode(const struct mr_engine *engine, const struct mr_event_run *run, uint8_t *at)
{
    mr_event_run_encode(run, at);
    mr_store64(at + MR_EVENT_RUN_SIZE, (uint64_t)engine->now_ms);
}

uint64_t log_run(struct mr_engine *engine, enum mr_record_type type, enum mr_log_wait wait,
                 const struct mr_event_run *run)
{
    bool same_time = engine->runs_ms == engine->now_ms;
    uint8_t *end = same_time ? mr_log_extend(engine->log, type, MR_EVENT_RUN_SIZE) : NULL;
    if (end != NULL) {
        run_encode(engine, run, end - MR_EVENT_RUNS_TIME); /* the time moves to the new end */
        engine->appended_bytes += MR_EVENT_RUN_SIZE;
        return mr_log_last_seq(engine->log);
    }
    uint8_t body[MR_EVENT_RUN_SIZE + MR_EVENT_RUNS_TIME];
    run_encode(engine, run, body);
    engine->runs_ms = engine->now_ms;
    return log_bytes(engine, type, wait, body, sizeof body, NULL);
}

struct mr_event_change change_of(const struct mr_engine *engine, uint32_t handle)
{
    const struct task *task = task_at(&engine->state, handle);
    const struct more *more = more_of(&engine->state, task);
    return (struct mr_event_change){
        .id = task->id,
        .epoch = task->state == MR_ACTIVE ? more->epoch : 0,
        .key = task->key,
        .ms = engine->now_ms,
        .retried = task->retried,
        .crashes = task->crashes,
        .state = task->state,
        .flags = task->flags,
    };
}

void change_to_end(const struct mr_engine *engine, struct mr_event_change *change,
                   enum mr_state state, int64_t key)
{
    const struct state *all = &engine->state;
    const struct task *task = task_at(all, find_task(all, &change->id));
    const struct more *more = more_of(all, task);
    bool at_once = task->state == MR_PENDING || task->state == MR_ACTIVE;
    change->order_ms = at_once || more == NULL || more->order_ms == 0 ? task->key : more->order_ms;
    change->state = (uint8_t)state;
    change->key = key;
}

enum mr_err change_task(struct mr_engine *engine, enum mr_record_type type, uint32_t handle,
                        const struct mr_event_change *change)
{
    size_t len = MR_EVENT_CHANGE_SIZE + change->text.len;
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    mr_event_change_encode(change, at);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    uint64_t seq = mr_log_append(engine->log, type, MR_LOG_DURABLE, &pos);
    struct mr_record record = {.seq = seq, .type = (uint8_t)type, .body = mr_slice_make(NULL, len)};
    if (change->state == MR_STATE_NONE)
        await_end(engine, handle, type == MR_RECORD_FINISH ? TASK_END_LEFT : TASK_END_GONE,
                  (struct mr_slice){0});
    enum mr_err err = apply_change(&engine->state, change, &record, pos, handle);
    if (err != MR_OK)
        engine_fail(engine, err);
    else if (change->state == MR_COMPLETED || change->state == MR_ARCHIVED)
        await_end(engine, handle, TASK_END_KEPT, (struct mr_slice){0});
    return err;
}

/* ---- records of tasks ----------------------------------------------------------------------- */

enum mr_err read_message(struct mr_engine *engine, const struct task *task, int64_t *ret_created_ms,
                         struct mr_task_msg *ret_msg, struct mr_slice *ret_bytes)
{
    struct mr_record record;
    struct mr_slice bytes;
    if (task_is_lost(task))
        return MR_DAMAGED;
    MR_TRY(mr_log_read(engine->log, task->pos, task->size, &record));
    MR_TRY(message_split(&record, &task->id, ret_created_ms, &bytes));
    MR_TRY(mr_task_msg_decode(bytes, ret_msg));
    if (ret_bytes != NULL)
        *ret_bytes = bytes;
    return MR_OK;
}

enum mr_err quarantine_task(struct mr_engine *engine, uint32_t handle)
{
    struct mr_event_change change = change_of(engine, handle);
    change_to_end(engine, &change, MR_ARCHIVED, engine->now_ms);
    change.text = MR_SLICE_LIT("quarantined: its record in the log is damaged or cannot be read");
    MR_TRY(log_room(engine, MR_EVENT_CHANGE_SIZE + change.text.len, MR_LOG_ONGOING));
    engine->records_damaged++;
    return change_task(engine, MR_RECORD_MOVE, handle, &change);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* There is no server here, and nobody else looks into the store. */
static enum handled handle_nothing(struct mr_engine *engine, struct mr_req *req)
{
    (void)engine;
    mr_req_answer(req, MR_UNSUPPORTED);
    return HANDLED;
}

static request_handler *const handlers[MR_OP_COUNT] = {
    [MR_OP_ENQUEUE] = handle_enqueue,
    [MR_OP_NODE_OPEN] = handle_node_open,
    [MR_OP_NODE_CLOSE] = handle_node_close,
    [MR_OP_TAKE] = handle_take,
    [MR_OP_BEAT] = handle_beat,
    [MR_OP_FINISH] = handle_finish,
    [MR_OP_CONTROL] = handle_control,
    [MR_OP_GET] = handle_get,
    [MR_OP_AWAIT] = handle_await,
    [MR_OP_UNAWAIT] = handle_unawait,
    [MR_OP_NODE_LIST] = handle_node_list,
    [MR_OP_LIST] = handle_list,
    [MR_OP_QUEUE_LIST] = handle_queue_list,
    [MR_OP_QUEUE_HISTORY] = handle_queue_history,
    [MR_OP_QUEUE_SET] = handle_queue_set,
    [MR_OP_QUEUE_REMOVE] = handle_queue_remove,
    [MR_OP_QUEUE_LIMITS] = handle_queue_limits,
    [MR_OP_STATS] = handle_stats,
    [MR_OP_BACKUP] = handle_backup,
    [MR_OP_GATHER] = handle_gather,
    [MR_OP_GATHERED] = handle_gathered,
    [MR_OP_ASSIGN] = handle_assign,
    [MR_OP_CALL] = handle_nothing,
    [MR_OP_EXHIBIT] = handle_nothing,
};

static void receive(struct mr_msg *msg, void *receiver)
{
    struct mr_engine *engine = receiver;
    struct mr_req *req = mr_container(msg, struct mr_req, msg);
    req->next_item = 0;
    /* A slow disk kills no node. */
    bool passes = req->op == MR_OP_BEAT || req->op == MR_OP_STATS || req->op == MR_OP_NODE_LIST;
    if ((!mr_list_empty(&engine->stalled) && !passes) || handlers[req->op](engine, req) == STALLED)
        mr_list_push_back(&engine->stalled, &req->link);
}

enum { LOOK_AHEAD = 8 };

/* Thousands of finishes come in one turn, each of another task: the memory of the next ones is
 * fetched before they are carried out, several at once, since they then wait together for memory
 * that is far away. With a big backlog these cache misses are a third of the engine's time. */
static void look_ahead(struct mr_engine *engine, const struct mr_msg *first)
{
    for (int distance = FINISH_FAR; distance <= FINISH_NEAR; distance++) {
        const struct mr_msg *msg = first;
        for (size_t i = 0; msg != NULL && i < LOOK_AHEAD; i++, msg = msg->next)
            if (msg->deliver == receive)
                finish_prefetch(engine, mr_container(msg, struct mr_req, msg), distance);
    }
}

static void resume_stalled(struct mr_engine *engine)
{
    while (!mr_list_empty(&engine->stalled)) {
        struct mr_req *req = mr_container(engine->stalled.next, struct mr_req, link);
        mr_list_remove(&req->link);
        if (handlers[req->op](engine, req) == STALLED) {
            mr_list_push_front(&engine->stalled, &req->link);
            return;
        }
    }
}

static void embedded_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_engine *engine = mr_container(broker, struct mr_engine, broker);
    mr_assert(req->op < MR_OP_COUNT && req->done != NULL);
    req->msg.deliver = receive;
    mr_list_init(&req->link);
    prepare_request(engine, req);
    mr_chan_send(engine->inbox, &req->msg);
}

static void embedded_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct mr_engine *engine = mr_container(broker, struct mr_engine, broker);
    mr_assert(slot < BOARD_SLOTS);
    atomic_store_explicit(&engine->board[slot], epoch, memory_order_release);
}

/* ---- the turn ------------------------------------------------------------------------------- */

uint64_t tick_of(const struct mr_engine *engine, mr_mono at)
{
    return at.ns <= engine->started.ns ? 0
                                       : (uint64_t)((at.ns - engine->started.ns) / MR_NS_PER_MS);
}

static void read_clocks(struct mr_engine *engine)
{
    engine->now = mr_mono_now(engine->clock);
    engine->now_us = mr_wall_now(engine->clock).us;
    engine->now_ms = mr_wall_ms((mr_wall){engine->now_us});
    engine->state.fraction = (uint8_t)(engine->now_us % MR_US_PER_MS / TASK_FRACTION_US);
    engine->now_up_ms = mr_wall_ms((mr_wall){engine->now_us + MR_US_PER_MS - 1});
}

/* Tasks become due. */
static void pass_time(struct mr_engine *engine)
{
    uint64_t expired = engine->state.expired;
    if (state_tick(&engine->state, engine->now_ms, TICK_BUDGET) != MR_OK)
        engine_fail(engine, MR_NOMEM);
    if (engine->state.expired != expired)
        engine->marked_seq = 0; /* a snapshot behind the mark gives their space back */
}

/* When all is durable and quiet, a mark makes the last acknowledged records provably so: see
 * record.h. */
static void mark_if_quiet(struct mr_engine *engine)
{
    uint64_t last = mr_log_last_seq(engine->log);
    bool full = mr_log_full(engine->log) != MR_OK; /* then all room is for finishing */
#ifdef MR_PLANT_MARKED_ONCE
    last = engine->marked_seq != 0 ? engine->marked_seq : last;
#endif
    if (engine->marked_seq == last || last == 0 || mr_log_durable(engine->log) != last || full ||
        log_room(engine, 0, MR_LOG_ONGOING) != MR_OK)
        return;
    engine->marked_seq = log_bytes(engine, MR_RECORD_MARK, MR_LOG_LAZY, NULL, 0, NULL);
    if (mr_log_write(engine->log) != MR_OK)
        engine_fail(engine, MR_IO);
}

static void write_log(struct mr_engine *engine)
{
    if (mr_log_write(engine->log) == MR_OK)
        mr_log_sync(engine->log);
}

/* Everything but the messages of the turn. */
static void work(struct mr_engine *engine)
{
    write_log(engine); /* first of all, so that the disk does not wait for us */
    /* After the beats that came meanwhile were heard. */
    mr_wheel_advance(engine->wheel, tick_of(engine, engine->now), engine);
    uint64_t durable = mr_log_durable(engine->log);
    if (state_durable(&engine->state, durable) != MR_OK)
        engine_fail(engine, MR_NOMEM);
    if (engine->ceiling_seq <= durable)
        engine->ceiling = engine->ceiling_asked;
    resume_stalled(engine);
    serve_ready(engine);
    serve_gathers(engine);
    maintain(engine);
    write_log(engine);
    answer_granted(engine);
    answer_durable(engine);
    if (engine_failure(engine) != MR_OK)
        answer_failed(engine, engine_failure(engine));
    mark_if_quiet(engine);
}

void mr_engine_turn(struct mr_engine *engine)
{
    struct mr_msg *msg = mr_chan_take_all(engine->inbox);
    read_clocks(engine); /* after the messages: no request came later than the time it is given */
    limits_turn(engine);
    pass_time(engine);
    for (size_t i = 0; msg != NULL; i++) {
        struct mr_msg *next = msg->next;
        if (i % LOOK_AHEAD == 0)
            look_ahead(engine, msg);
        msg->deliver(msg, engine);
        msg = next;
    }
    work(engine);
}

mr_mono mr_engine_next(struct mr_engine *engine)
{
    uint64_t tick = mr_wheel_next(engine->wheel);
    int64_t next =
        tick == MR_TICK_NEVER ? INT64_MAX : engine->started.ns + (int64_t)tick * MR_NS_PER_MS;
    int64_t due = state_next_ms(&engine->state);
    if (due != INT64_MAX) {
        int64_t wait_us = due * MR_US_PER_MS - engine->now_us;
        wait_us = wait_us < 0 ? 0 : wait_us;
        wait_us = wait_us > WALL_CHECK_MS * MR_US_PER_MS ? WALL_CHECK_MS * MR_US_PER_MS : wait_us;
        int64_t at = engine->now.ns + wait_us * MR_NS_PER_US;
        next = at < next ? at : next;
    }
    bool busy = (engine->compacting != 0 && !engine->compact_waits) ||
                (engine->snapshot != NULL && snapshot_idle(engine));
    busy = (busy || limits_looking(engine)) && engine_failure(engine) == MR_OK;
    return (mr_mono){busy ? engine->now.ns : next};
}

void mr_engine_validate(struct mr_engine *engine)
{
    state_validate(&engine->state);
    mr_wheel_validate(engine->wheel);
    size_t in_hand = 0, active = 0, leaving = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        in_hand += mr_container(link, struct node, link)->in_hand;
    for (uint32_t i = 0; i < engine->state.queues_n; i++)
        if (engine->state.queues[i] != NULL)
            active += engine->state.queues[i]->counts[MR_ACTIVE];
    for (uint32_t i = 0; i < engine->state.tasks.used; i++) {
        const struct task *task = task_at(&engine->state, i);
        leaving += task->state == MR_ACTIVE && (task->flags & MR_TASK_TOPIC);
    }
    mr_assert(in_hand == active && in_hand == engine->in_hand);
    mr_assert(leaving == engine->in_hand_leaving);
    await_validate(engine);
    gather_validate(engine);
}

struct mr_broker *mr_engine_broker(struct mr_engine *engine)
{
    return &engine->broker;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void space_again(struct mr_timer *timer, void *arg)
{
    (void)timer;
    struct mr_engine *engine = arg;
    mr_log_retry_space(engine->log);
    spare_retry(engine);
}

static void watch_over(struct mr_timer *timer, void *arg)
{
    (void)timer;
    struct mr_engine *engine = arg;
    engine->watched_enough = true;
}

static void ceiling_again(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    renew_ceiling(engine);
    mr_wheel_start(engine->wheel, timer, tick_of(engine, engine->now) + CEILING_AHEAD_US / 2000);
}

void mr_engine_finish(struct mr_engine *engine)
{
    if (engine->failure != MR_OK || mr_log_sync_now(engine->log) != MR_OK ||
        log_room(engine, MR_EVENT_CEILING_SIZE, MR_LOG_ONGOING) != MR_OK)
        return;
    /* A second sync for the mark: it is what tells damage to the last records from a torn tail. Nothing
     * is handed out any more, so epochs go on behind the last one. */
    uint8_t body[MR_EVENT_CEILING_SIZE];
    mr_store64(body, engine->last_epoch);
    (void)log_bytes(engine, MR_RECORD_MARK, MR_LOG_DURABLE, body, sizeof body, NULL);
    if (mr_log_sync_now(engine->log) != MR_OK)
        engine_fail(engine, MR_IO);
}

void mr_engine_abandon(struct mr_engine *engine)
{
    if (engine == NULL)
        return;
    if (engine->log != NULL)
        answer_failed(engine, MR_CLOSED);
    nodes_free(engine);
    assignments_free(engine);
    limits_free(engine);
    tallies_free(engine);
    diary_done(&engine->diary);
    sets_free(engine);
    snapshot_abandon(engine);
    backup_abandon(engine);
    state_done(&engine->state);
    mr_buf_done(&engine->result);
    mr_buf_done(&engine->result_message);
    mr_log_free(engine->log);
    mr_wheel_free(engine->wheel);
    store_close_files(engine);
    free(engine);
}

/* Without threads there is nobody to wait for: the caller closes by abandoning when it is idle. */
static void manual_close(struct mr_broker *broker)
{
    mr_engine_abandon(mr_container(broker, struct mr_engine, broker));
}

static const struct mr_broker_ops manual_ops = {
    .submit = embedded_submit,
    .begun = embedded_begun,
    .lease_open = embedded_lease_open,
    .close = manual_close,
    .in_process = true,
};

enum mr_err mr_engine_open(const struct mr_engine_options *options, struct mr_engine **ret_engine,
                           struct mr_detail *detail)
{
    struct mr_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return MR_NOMEM;
    engine->broker.ops = &manual_ops;
    engine->options = *options;
    engine->fs = options->base.fs;
    engine->clock = options->base.clock;
    engine->rand = options->rand;
    engine->payload_max = options->base.payload_max ? options->base.payload_max : MR_PAYLOAD_MAX;
    mr_chan_init(&engine->own_inbox);
    engine->inbox = options->inbox ? options->inbox : &engine->own_inbox;
    engine->threaded = options->threaded;
    mr_list_init(&engine->waiting);
    mr_list_init(&engine->stalled);
    mr_list_init(&engine->granted);
    mr_list_init(&engine->nodes);
    mr_list_init(&engine->assignments);
    diary_init(&engine->diary);
    mr_list_init(&engine->backups);
    for (size_t i = 0; i < AWAIT_BUCKETS; i++)
        mr_list_init(&engine->awaits[i]);
    mr_list_init(&engine->gathers);
    for (size_t i = 0; i < SET_BUCKETS; i++)
        mr_list_init(&engine->sets[i]);
    read_clocks(engine);
    engine->started = engine->leadership.free_since = engine->now;
    enum mr_err err = mr_wheel_new(0, &engine->wheel);
    if (err == MR_OK)
        err = limits_new(engine);
    if (err == MR_OK)
        err = store_open(engine, detail);
    if (err == MR_OK)
        err = limits_start(engine);
    if (err != MR_OK) {
        mr_engine_abandon(engine);
        return err;
    }
    mr_timer_init(&engine->space_timer, space_again);
    mr_timer_init(&engine->ceiling_timer, ceiling_again);
    mr_timer_init(&engine->watch_timer, watch_over);
    fall_init(engine);
    spare_begin(engine);
    mr_wheel_start(engine->wheel, &engine->ceiling_timer, CEILING_AHEAD_US / 2000);
    *ret_engine = engine;
    return MR_OK;
}
