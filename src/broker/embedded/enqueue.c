/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enqueue. The caller's own thread checks every task and encodes its message (prepare); the
 * engine's thread only looks up ids and keys, puts a 40-byte head before the message and copies
 * both into the log.
 */
#include <stdlib.h>

#include "broker/embedded/carry.h"
#include "wire/task.h"

enum { PREFETCH_AHEAD = 8 }; /* items of a batch whose place in the id map is fetched ahead */

struct prepared {
    bool inner; /* they go into inner queues */
    mr_wall now;
    struct mr_buf bytes;
    struct item items[];
};

/* ---- on the caller's thread ----------------------------------------------------------------- */

/* Every producer thread has its own chance; the simulator's comes from its seed. */
static struct mr_rand *id_rand(struct mr_engine *engine)
{
    return engine->threaded ? mr_rand_of_thread() : &engine->rand;
}

static void choose_id(struct mr_engine *engine, const struct mr_task_options *options, mr_wall now,
                      struct item *item, char text[MR_ID_MAX + 1])
{
    bool is_uuid = true;
    item->generated = options->id.len == 0;
    if (item->generated) {
        mr_uuid_make(&item->id, now, id_rand(engine));
        mr_uuid_format(&item->id, text);
    } else {
        item->id = id_key(&engine->state, options->id, &is_uuid);
        memcpy(text, options->id.data, options->id.len);
        text[options->id.len] = '\0';
    }
    item->flags = is_uuid ? MR_TASK_UUID : 0;
}

static enum mr_err prepare_one(struct mr_engine *engine, const struct mr_task_options *options,
                               struct prepared *prepared, struct item *item,
                               char text[MR_ID_MAX + 1])
{
    MR_TRY(prepared->inner ? mr_inner_task_check(options, engine->payload_max)
                           : mr_task_options_check(options, engine->payload_max, NULL));
    choose_id(engine, options, prepared->now, item, text);
    item->queue = mr_queue_or_default(options->queue);
    item->priority_ms = mr_priority_ms(options->priority_s);
    int32_t retry = options->max_retry == 0 ? MR_DEFAULT_MAX_RETRY : options->max_retry;
    item->max_retry = (uint16_t)(retry < 0 ? 0 : retry);
    item->flags |= options->retention_ms > 0 ? MR_TASK_RETAIN : 0;
    item->flags |= item->priority_ms != 0 ? MR_TASK_PRIORITY : 0;
    item->flags |= options->unique_ms > 0 ? MR_TASK_UNIQUE : 0;
    item->flags |= options->topic.len > 0 ? MR_TASK_TOPIC : 0;
    item->at = prepared->bytes.len;
    struct mr_slice id = item->flags & MR_TASK_UUID ? mr_slice_make(NULL, 0) : options->id;
    MR_TRY(mr_task_msg_encode(options, id, &prepared->bytes));
    item->len = prepared->bytes.len - item->at;
    if (item->flags & MR_TASK_UNIQUE) {
        struct mr_task_msg msg;
        MR_TRY(mr_task_msg_decode(mr_slice_make(prepared->bytes.data + item->at, item->len), &msg));
        item->unique = message_unique_key(engine->state.hash_key, &msg);
    }
    return MR_OK;
}

/* NULL: out of memory. */
static struct prepared *prepare(struct mr_engine *engine, const struct mr_task_options *tasks,
                                size_t n, struct mr_enqueue_result *results, bool inner)
{
    for (size_t i = 0; i < n; i++)
        results[i] = (struct mr_enqueue_result){.err = MR_OK};
    struct prepared *prepared = calloc(1, sizeof *prepared + n * sizeof *prepared->items);
    size_t bound = 0;
    for (size_t i = 0; i < n; i++)
        bound += (tasks[i].payload.len <= engine->payload_max ? tasks[i].payload.len : 0) + 64;
    if (prepared == NULL || mr_buf_reserve(&prepared->bytes, bound) != MR_OK) {
        free(prepared);
        return NULL;
    }
    prepared->now = mr_wall_now(engine->clock);
    prepared->inner = inner;
    for (size_t i = 0; i < n; i++)
        prepared->items[i].err =
            prepare_one(engine, &tasks[i], prepared, &prepared->items[i], results[i].id);
    return prepared;
}

static void prepare_enqueue(struct mr_engine *engine, struct mr_req_enqueue *req)
{
    /* More are answered with MR_TOO_BIG. */
    req->prepared = req->n <= MR_BATCH_MAX
                        ? prepare(engine, req->tasks, req->n, req->results, req->inner)
                        : NULL;
}

static void prepare_gathered(struct mr_engine *engine, struct mr_req_gathered *req)
{
    req->prepared = NULL;
    req->result = (struct mr_enqueue_result){.err = MR_OK};
    if (req->task == NULL || mr_gathered_check(req) != MR_OK)
        return;
    struct mr_task_options task = *req->task;
    task.queue = req->queue;
    struct prepared *prepared = prepare(engine, &task, 1, &req->result, false);
    if (prepared != NULL && prepared->items[0].err == MR_OK)
        prepared->items[0].err = mr_gathered_task_check(req);
    req->prepared = prepared;
}

void prepare_request(struct mr_engine *engine, struct mr_req *base)
{
    if (base->op == MR_OP_ENQUEUE)
        prepare_enqueue(engine, mr_container(base, struct mr_req_enqueue, req));
    if (base->op == MR_OP_GATHERED)
        prepare_gathered(engine, mr_container(base, struct mr_req_gathered, req));
}

void unprepare_request(struct mr_req *base)
{
    void **at =
        base->op == MR_OP_ENQUEUE    ? &mr_container(base, struct mr_req_enqueue, req)->prepared
        : base->op == MR_OP_GATHERED ? &mr_container(base, struct mr_req_gathered, req)->prepared
                                     : NULL;
    struct prepared *prepared = at != NULL ? *at : NULL;
    if (prepared == NULL)
        return;
    *at = NULL;
    mr_buf_done(&prepared->bytes);
    free(prepared);
}

/* ---- queues --------------------------------------------------------------------------------- */

enum mr_err log_queue(struct mr_engine *engine, const struct mr_event_queue *event,
                      struct queue **ret_queue)
{
    size_t len = MR_EVENT_QUEUE_SIZE + event->name.len + event->settings.len;
    MR_TRY(log_room(engine, len, MR_LOG_ONGOING));
    uint8_t *body = malloc(len);
    if (body == NULL)
        return MR_NOMEM;
    mr_event_queue_encode(event, body);
    uint64_t seq = log_bytes(engine, MR_RECORD_QUEUE, MR_LOG_DURABLE, body, len, NULL);
    free(body);
    if (seq == 0)
        return MR_NOMEM;
    enum mr_err err = queue_put(&engine->state, event, ret_queue);
    if (err != MR_OK)
        engine_fail(engine, err);
    return err;
}

enum mr_err ensure_queue(struct mr_engine *engine, struct mr_slice name, struct queue **ret_queue)
{
    struct queue *queue = find_queue(&engine->state, name);
    if (queue == NULL) {
        if (mr_map_count(engine->state.by_name) >= QUEUES_MAX)
            return MR_TOO_BIG;
        struct mr_event_queue event = {.number = queue_free_number(&engine->state), .name = name};
        MR_TRY(log_queue(engine, &event, &queue));
        node_listen_again(engine, queue);
        gather_again(engine, queue);
    }
    *ret_queue = queue;
    return MR_OK;
}

/* ---- on the engine's thread ----------------------------------------------------------------- */

static enum mr_err id_text(struct mr_engine *engine, uint32_t handle, char text[MR_ID_MAX + 1])
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_task_msg msg;
    int64_t created_ms;
    text[0] = '\0';
    if (task->flags & MR_TASK_UUID) {
        mr_uuid_format(&task->id, text);
        return MR_OK;
    }
    MR_TRY(read_message(engine, task, &created_ms, &msg, NULL));
    memcpy(text, msg.id.data, msg.id.len);
    text[msg.id.len] = '\0';
    return MR_OK;
}

/* Moves the waiting holder of a unique key to where the new task would have stood. */
static enum mr_err replace_holder(struct mr_engine *engine, uint32_t holder, int64_t priority_ms,
                                  int64_t due_ms)
{
    int64_t order_ms = due_ms - priority_ms;
    const struct task *task = task_at(&engine->state, holder);
    if (task->state == MR_ACTIVE || (task->flags & MR_TASK_HELD))
        return MR_RUNNING;
    if (task->state == MR_AGGREGATING)
        return MR_OK; /* it has no place in the order */
    struct mr_event_change change = change_of(engine, holder);
    change.state = due_ms > engine->now_ms ? MR_SCHEDULED : MR_PENDING;
    change.key = change.state == MR_SCHEDULED ? due_ms : order_ms;
    change.order_ms = order_ms;
    change.flags |= MR_TASK_REORDERED;
    change.epoch = (uint64_t)priority_ms;
    change.outcome = MR_VERB_PRIORITISE;
    return change_task(engine, MR_RECORD_MOVE, holder, &change);
}

static enum mr_err on_duplicate(struct mr_engine *engine, const struct mr_task_options *options,
                                uint32_t holder, int64_t priority_ms, int64_t due_ms,
                                struct mr_enqueue_result *result)
{
    MR_TRY(id_text(engine, holder, result->id));
    enum mr_err err = MR_DUPLICATE;
    if (options->on_duplicate == MR_DUPLICATE_IGNORE)
        err = MR_OK;
    if (options->on_duplicate == MR_DUPLICATE_REPLACE)
        err = replace_holder(engine, holder, priority_ms, due_ms);
    result->state = task_at(&engine->state, holder)->state;
    return err;
}

uint32_t live_holder(const struct mr_engine *engine, const struct item *item)
{
    if (!(item->flags & MR_TASK_UNIQUE))
        return NO_HANDLE;
    uint32_t holder = find_unique(&engine->state, &item->unique);
    if (holder == NO_HANDLE)
        return NO_HANDLE;
    const struct more *more = more_of(&engine->state, task_at(&engine->state, holder));
    return more->unique_until_ms > engine->now_ms ? holder : NO_HANDLE;
}

static enum mr_err append_task(struct mr_engine *engine, const struct item *item,
                               const uint8_t *message, const struct mr_event_task *event)
{
    size_t len = MR_EVENT_TASK_SIZE + item->len;
    uint8_t *at = mr_log_begin(engine->log, len);
    if (at == NULL)
        return MR_NOMEM;
    mr_event_task_encode(event, at);
    memcpy(at + MR_EVENT_TASK_SIZE, message, item->len);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    uint64_t seq = mr_log_append(engine->log, MR_RECORD_TASK, MR_LOG_DURABLE, &pos);
    struct mr_record record = {.seq = seq, .type = MR_RECORD_TASK, .body = mr_slice_make(at, len)};
    enum mr_err err = apply_task(&engine->state, &record, pos);
    if (err != MR_OK)
        engine_fail(engine, err);
    return err;
}

/* One record, so that the members are gone when the task is there, and not before. */
static enum mr_err append_gathered(struct mr_engine *engine, const struct prepared *prepared,
                                   const struct mr_event_task *event, const uint32_t *members,
                                   size_t n)
{
    const struct item *item = prepared->items;
    size_t ids = n * sizeof(struct mr_uuid);
    size_t len = MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD + ids + item->len;
    uint8_t *body = mr_log_begin(engine->log, len);
    if (body == NULL)
        return MR_NOMEM;
    mr_event_gathered_encode(event, n, body);
    uint8_t *at = body + MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD;
    for (size_t i = 0; i < n; i++, at += sizeof(struct mr_uuid))
        memcpy(at, &task_at(&engine->state, members[i])->id, sizeof(struct mr_uuid));
    memcpy(at, prepared->bytes.data + item->at, item->len);
    struct mr_log_pos pos;
    engine->appended_bytes += mr_record_size(len);
    uint64_t seq = mr_log_append(engine->log, MR_RECORD_GATHERED, MR_LOG_DURABLE, &pos);
    struct mr_record record = {
        .seq = seq, .type = MR_RECORD_GATHERED, .body = mr_slice_make(body, len)};
    for (size_t i = 0; i < n; i++)
        await_end(engine, members[i], TASK_END_GONE, (struct mr_slice){0});
    enum mr_err err = apply_gathered(&engine->state, &record, pos);
    if (err != MR_OK)
        engine_fail(engine, err);
    return err;
}

/* When it may run, and where it stands in the order. */
static void place(const struct mr_engine *engine, const struct mr_task_options *options,
                  const struct item *item, struct mr_event_task *event, int64_t *ret_due_ms)
{
    int64_t due = options->at_ms != 0 ? options->at_ms : engine->now_up_ms + options->delay_ms;
    bool later = (options->at_ms != 0 || options->delay_ms > 0) && due > engine->now_ms;
    *ret_due_ms = later ? due : engine->now_ms;
    bool joins = !later && options->group.len > 0;
    event->state = later ? MR_SCHEDULED : joins ? MR_AGGREGATING : MR_PENDING;
    event->key = later ? due : joins ? engine->now_ms : engine->now_ms - item->priority_ms;
}

static enum mr_err enqueue_one(struct mr_engine *engine, const struct mr_task_options *options,
                               const struct item *item, const uint8_t *message,
                               struct mr_enqueue_result *result)
{
    struct queue *queue;
    MR_TRY(item->err);
    uint32_t same = item->generated ? NO_HANDLE : find_task(&engine->state, &item->id);
#ifdef MR_PLANT_DUPLICATE_ID_ACCEPTED
    if (same != NO_HANDLE && task_at(&engine->state, same)->state == MR_PENDING)
        return MR_OK;
#endif
    if (same != NO_HANDLE) {
        result->state = task_at(&engine->state, same)->state;
        return MR_CONFLICT;
    }
    MR_TRY(log_room(engine, MR_EVENT_TASK_SIZE + item->len, MR_LOG_NEW_WORK));
    struct mr_event_task event = {.id = item->id,
                                  .created_ms = engine->now_ms,
                                  .max_retry = item->max_retry,
                                  .flags = item->flags};
    int64_t due_ms;
    place(engine, options, item, &event, &due_ms);
    uint32_t holder = live_holder(engine, item);
    if (holder != NO_HANDLE)
        return on_duplicate(engine, options, holder, item->priority_ms, due_ms, result);
    if (options->partition > 1 && find_queue(&engine->state, item->queue) == NULL)
        return MR_INVALID; /* it would have one */
    MR_TRY(ensure_queue(engine, item->queue, &queue));
    struct part_choice choice = {.part = 0};
    if (queue->parts_n > 1 || queue->max_length > 0 || options->partition > 1)
        MR_TRY(part_choose(queue, options, item, &choice));
    if (choice.full)
        return MR_QUEUE_FULL;
    MR_TRY(ensure_results(engine, options->topic));
    /* Again: the record of a new queue may have taken the room. */
    MR_TRY(log_room(engine, MR_EVENT_TASK_SIZE + item->len, MR_LOG_NEW_WORK));
    event.queue = queue->number;
    event.part = choice.part;
    part_chosen(queue, choice);
    result->state = event.state;
    MR_TRY(append_task(engine, item, message, &event));
    tally_enqueued(engine, queue, options->type);
    return MR_OK;
}

enum handled handle_enqueue(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_enqueue *req = mr_container(base, struct mr_req_enqueue, req);
    struct prepared *prepared = req->prepared;
    if (prepared == NULL) {
        mr_req_answer(base, req->n > MR_BATCH_MAX ? MR_TOO_BIG : MR_NOMEM);
        return HANDLED;
    }
    for (size_t i = base->next_item; i < req->n; i++) {
        const struct item *item = &prepared->items[i];
        if (i + PREFETCH_AHEAD < req->n)
            mr_map_prefetch(engine->state.by_id, mr_uuid_hash(&item[PREFETCH_AHEAD].id));
        const uint8_t *message = prepared->bytes.data + item->at;
        enum mr_err err =
            req->carried != NULL
                ? carry_one(engine, &req->carried[i], item, message, &req->results[i])
                : enqueue_one(engine, &req->tasks[i], item, message, &req->results[i]);
        if (err == MR_BUSY) {
            base->next_item = i;
            return STALLED;
        }
        req->results[i].err = err;
    }
    unprepare_request(base);
    answer(engine, base, MR_OK);
    return HANDLED;
}

enum mr_err enqueue_gathered(struct mr_engine *engine, struct mr_req_gathered *req,
                             struct queue *queue, const uint32_t *members, size_t n)
{
    const struct prepared *prepared = req->prepared;
    if (prepared == NULL)
        return MR_NOMEM;
    const struct item *item = prepared->items;
    size_t len = MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD + n * sizeof item->id + item->len;
    MR_TRY(item->err);
    MR_TRY(log_room_beside(engine, len, engine->in_hand));
    uint32_t same = item->generated ? NO_HANDLE : find_task(&engine->state, &item->id);
    if (same != NO_HANDLE) {
        req->result.state = task_at(&engine->state, same)->state;
        return MR_CONFLICT;
    }
    uint32_t holder = live_holder(engine, item);
    bool own = false; /* the key goes with a member */
    for (size_t i = 0; i < n && holder != NO_HANDLE; i++)
        own = own || members[i] == holder;
    if (holder != NO_HANDLE && !own) {
        MR_TRY(id_text(engine, holder, req->result.id));
        req->result.state = task_at(&engine->state, holder)->state;
        return MR_DUPLICATE;
    }
    MR_TRY(ensure_results(engine, req->task->topic));
    MR_TRY(log_room_beside(engine, len, engine->in_hand));
    struct mr_event_task event = {.id = item->id,
                                  .created_ms = engine->now_ms,
                                  .queue = queue->number,
                                  .part = task_at(&engine->state, members[0])->part,
                                  .max_retry = item->max_retry,
                                  .flags = item->flags};
    int64_t due_ms;
    place(engine, req->task, item, &event, &due_ms);
    req->result.state = event.state;
    MR_TRY(append_gathered(engine, prepared, &event, members, n));
    tally_enqueued(engine, queue, req->task->type);
    return MR_OK;
}
