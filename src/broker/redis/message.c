/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task as Redis has it: Asynq's TaskMessage, and fields of ours for what that cannot hold. Asynq counts
 * in whole seconds: times are rounded up there, and the ms stand in a field of ours.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"
#include "wire/task.h"

/* Asynq knows no task without a limit; for its programs this is one. */
#define FOR_EVER_S (10 * 366 * 86400LL)
#define NS_PER_MS  1000000LL
/* A task with a topic is kept by Asynq's programs that ended it so long at least: until a master has looked
 * (topics.lua). Its own retention is in mr:r. */
#define TOPIC_KEPT_S (30 * 86400LL)

static const char own_lock[] =
    "mr:u:"; /* in the key of a lock: the caller chose the name behind it */

static int64_t up_s(int64_t ms)
{
    return ms / MR_MS_PER_S + (ms % MR_MS_PER_S > 0);
}

/* ---- what a producer said ------------------------------------------------------------------- */

static enum mr_err add_field(struct new_task *task, const char *name, struct mr_slice value)
{
    mr_assert(task->fields_n + 2 <= sizeof task->fields / sizeof task->fields[0]);
    task->fields[task->fields_n++] = mr_slice_str(name);
    task->fields[task->fields_n++] = value;
    return MR_OK;
}

static enum mr_err add_number(struct new_task *task, const char *name, int64_t number,
                              struct mr_arena *arena)
{
    char text[NUMBER_MAX];
    struct mr_slice value;
    MR_TRY(mr_arena_copy(arena, number_arg(number, text), &value));
    return add_field(task, name, value);
}

/* Seconds for Asynq, and the ms where they are lost with that. */
static enum mr_err add_ms(struct new_task *task, const char *name, int64_t ms, int64_t *ret_s,
                          struct mr_arena *arena)
{
    *ret_s = up_s(ms);
    return ms % MR_MS_PER_S != 0 ? add_number(task, name, ms, arena) : MR_OK;
}

static enum mr_err add_timeout(struct new_task *task, int64_t timeout_ms, int64_t *ret_s,
                               struct mr_arena *arena)
{
    if (timeout_ms != MR_NO_TIMEOUT)
        return add_ms(task, "mr:m", timeout_ms == 0 ? MR_DEFAULT_TIMEOUT_MS : timeout_ms, ret_s,
                      arena);
    *ret_s = FOR_EVER_S;
    return add_number(task, "mr:m", 0, arena);
}

/* With its retention: see TOPIC_KEPT_S. */
static enum mr_err add_topic(struct new_task *task, const struct mr_task_options *options,
                             int64_t *ret_retention_s, struct mr_arena *arena)
{
    int64_t own_s = up_s(options->retention_ms);
    *ret_retention_s = own_s > TOPIC_KEPT_S ? own_s : TOPIC_KEPT_S;
    MR_TRY(add_number(task, "mr:r", options->retention_ms, arena));
    return add_field(task, "mr:k", options->topic);
}

static enum mr_err make_lock(const struct engine *engine, const struct mr_task_options *options,
                             struct mr_slice queue, struct mr_slice type, struct mr_arena *arena,
                             struct mr_slice *ret_lock)
{
    struct mr_buf key = {0};
    enum mr_err err;
    if (options->unique_key.len > 0)
        err = mr_buf_printf(&key, "%.*sasynq:{%.*s}:%s%.*s", (int)engine->prefix.len,
                            (const char *)engine->prefix.data, (int)queue.len,
                            (const char *)queue.data, own_lock, (int)options->unique_key.len,
                            (const char *)options->unique_key.data);
    else
        err = mr_asynq_unique_key(engine->prefix, queue, type, options->payload, &key);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&key), ret_lock);
    mr_buf_done(&key);
    return err;
}

static enum mr_err encode(const struct mr_asynq_task *message, struct mr_arena *arena,
                          struct mr_slice *ret_bytes)
{
    struct mr_buf bytes = {0};
    enum mr_err err = mr_asynq_task_encode(message, &bytes);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&bytes), ret_bytes);
    mr_buf_done(&bytes);
    return err;
}

/* How it went so far. */
static void add_past(struct mr_asynq_task *message, const struct mr_task *carried)
{
    message->retried = (int32_t)carried->retried;
    message->error = carried->last_error;
    message->last_failed_s = carried->last_failed_ms / MR_MS_PER_S;
    if (carried->state == MR_COMPLETED)
        message->completed_s = carried->finished_ms / MR_MS_PER_S;
}

/* carried: NULL for a new one. */
static enum mr_err make(const struct engine *engine, const struct mr_task_options *options,
                        const struct mr_task *carried, struct mr_slice id, struct mr_arena *arena,
                        struct new_task *ret_task)
{
    struct new_task task = {.id = id, .priority_ms = mr_priority_ms(options->priority_s)};
    int32_t retry = options->max_retry == 0 ? MR_DEFAULT_MAX_RETRY : options->max_retry;
    struct mr_asynq_task message = {
        .type = options->type.len > 0 ? options->type : MR_SLICE_LIT(MR_DEFAULT_TYPE),
        .payload = options->payload,
        .id = id,
        .queue = mr_queue_or_default(options->queue),
        .retry = retry < 0 ? 0 : retry,
        .group = options->group,
        .headers = options->headers,
        .headers_n = options->headers_n,
    };
    MR_TRY(add_timeout(&task, options->timeout_ms, &message.timeout_s, arena));
    MR_TRY(add_ms(&task, "mr:d", options->deadline_ms, &message.deadline_s, arena));
    if (options->topic.len > 0)
        MR_TRY(add_topic(&task, options, &message.retention_s, arena));
    else
        MR_TRY(add_ms(&task, "mr:r", options->retention_ms, &message.retention_s, arena));
    if (task.priority_ms != 0)
        MR_TRY(add_number(&task, "mr:p", task.priority_ms, arena));
    if (options->key.len > 0)
        MR_TRY(add_field(&task, "mr:y", options->key));
    if (options->unique_ms > 0) {
        MR_TRY(make_lock(engine, options, message.queue, message.type, arena, &task.lock));
        message.unique_key = task.lock;
    }
    if (carried != NULL)
        add_past(&message, carried);
    MR_TRY(encode(&message, arena, &task.message));
    task.plain = task.fields_n == 0 && task.lock.len == 0 && options->group.len == 0 &&
                 options->delay_ms == 0 && options->at_ms == 0;
    *ret_task = task;
    return MR_OK;
}

enum mr_err message_make(const struct engine *engine, const struct mr_task_options *options,
                         struct mr_slice id, struct mr_arena *arena, struct new_task *ret_task)
{
    return make(engine, options, NULL, id, arena, ret_task);
}

enum mr_err message_make_carried(const struct engine *engine, const struct mr_task_options *options,
                                 const struct mr_task *carried, struct mr_arena *arena,
                                 struct new_task *ret_task)
{
    return make(engine, options, carried, options->id, arena, ret_task);
}

/* ---- what Redis has ------------------------------------------------------------------------- */

enum mr_state message_state(struct mr_slice name)
{
    return mr_state_parse(name);
}

const struct mr_reply *message_field(const struct mr_reply *fields, const char *name)
{
    struct mr_slice wanted = mr_slice_str(name);
    for (size_t i = 0; i + 1 < fields->n; i += 2)
        if (mr_slice_equal(fields->items[i].text, wanted))
            return &fields->items[i + 1];
    return NULL;
}

/* Fields of ours that are one number or one text. */
struct own_fields {
    int64_t created_ns, order_ns, since_ns, priority_ms, epoch, crashes, cancel, finished_ms,
        failed_ms, timeout_ms, deadline_ms, retention_ms, unique_until_ms, started_ms;
    struct mr_slice hold, run, held, node, progress, topic, key, result, group, state, message,
        past;
};

static const struct {
    const char *name;
    size_t number, text; /* where it goes; one of them */
} own_rows[] = {
#define NUMBER(name, member)                                                                       \
    {                                                                                              \
        name, offsetof(struct own_fields, member), SIZE_MAX                                        \
    }
#define TEXT(name, member)                                                                         \
    {                                                                                              \
        name, SIZE_MAX, offsetof(struct own_fields, member)                                        \
    }
    TEXT("msg", message),
    TEXT("state", state),
    NUMBER("pending_since", since_ns),
    TEXT("result", result),
    TEXT("group", group),
    NUMBER("mr:t", created_ns),
    NUMBER("mr:o", order_ns),
    NUMBER("mr:p", priority_ms),
    NUMBER("mr:e", epoch),
    TEXT("mr:i", hold),
    TEXT("mr:s", run),
    TEXT("mr:n", node), /* of an older Millrace */
    NUMBER("mr:c", crashes),
    NUMBER("mr:x", cancel),
    TEXT("mr:g", progress),
    NUMBER("mr:f", finished_ms),
    NUMBER("mr:l", failed_ms),
    TEXT("mr:k", topic),
    TEXT("mr:y", key),
    NUMBER("mr:m", timeout_ms),
    NUMBER("mr:d", deadline_ms),
    NUMBER("mr:r", retention_ms),
    NUMBER("mr:q", unique_until_ms),
    TEXT("mr:h", held),
    TEXT("mr:a", past),
#undef NUMBER
#undef TEXT
};

static const struct own_fields no_fields = {
    .timeout_ms = -1, .deadline_ms = -1, .retention_ms = -1};

/* The number before the first space, which goes with it. */
static bool take_number(struct mr_slice *rest, int64_t *ret_number)
{
    const char *end = rest->len > 0 ? memchr(rest->data, ' ', rest->len) : NULL;
    if (end == NULL)
        return false;
    size_t len = (size_t)(end - (const char *)rest->data);
    struct mr_reply number = {.kind = MR_REPLY_TEXT, .text = mr_slice_make(rest->data, len)};
    *ret_number = mr_reply_int(&number, 0);
    *rest = mr_slice_make(end + 1, rest->len - len - 1);
    return true;
}

/* "EPOCH END_MS HOLDER" of a task in hand. */
static void read_hold(struct own_fields *own)
{
    struct mr_slice rest = own->hold;
    int64_t end_ms;
    if (take_number(&rest, &own->epoch) && take_number(&rest, &end_ms))
        own->node = rest;
}

/* The last run: an epoch is the time of a hand-out unless mr:s says otherwise. While a task is held, mr:e is
 * since when. */
static void read_run(struct own_fields *own)
{
    struct mr_reply started = {.kind = MR_REPLY_TEXT, .text = own->run};
    bool held = own->held.len > 0;
    int64_t epoch = 0;
    bool known = take_number(&started.text, &epoch);
    own->started_ms = own->epoch / MR_US_PER_MS;
    if (known && !held && epoch >= own->epoch)
        own->started_ms = mr_reply_int(&started, 0);
    if (held || (known && epoch > own->epoch))
        own->epoch = epoch;
}

static struct own_fields read_fields(const struct mr_reply *reply)
{
    struct own_fields own = no_fields;
    for (size_t i = 0; i + 1 < reply->n; i += 2) {
        for (size_t row = 0; row < sizeof own_rows / sizeof own_rows[0]; row++) {
            if (!mr_slice_equal(reply->items[i].text, mr_slice_str(own_rows[row].name)))
                continue;
            const struct mr_reply *value = &reply->items[i + 1];
            if (own_rows[row].text != SIZE_MAX)
                memcpy((char *)&own + own_rows[row].text, &value->text, sizeof value->text);
            else
                *(int64_t *)(void *)((char *)&own + own_rows[row].number) = mr_reply_int(value, 0);
            break;
        }
    }
    read_hold(&own);
    read_run(&own);
    return own;
}

static struct mr_slice unique_name(struct mr_slice lock)
{
    const char *end = lock.len > 0 ? memchr(lock.data, '}', lock.len) : NULL;
    size_t skip = strlen("}:") + strlen(own_lock);
    if (end == NULL)
        return (struct mr_slice){0};
    size_t left = lock.len - (size_t)(end - (const char *)lock.data);
    if (left <= skip || memcmp(end + 2, own_lock, strlen(own_lock)) != 0)
        return (struct mr_slice){0};
    return mr_slice_make(end + skip, left - skip);
}

static int64_t or_s(int64_t ms, int64_t s)
{
    return ms >= 0 ? ms : s * MR_MS_PER_S;
}

/* What the message says. */
static void from_message(const struct mr_asynq_task *message, const struct own_fields *own,
                         struct mr_task *task)
{
    bool limited = message->timeout_s > 0 || message->deadline_s > 0;
    task->id = message->id;
    task->queue = message->queue;
    task->type = message->type;
    task->payload = message->payload;
    task->unique_key = unique_name(message->unique_key);
    task->group = message->group;
    task->last_error = message->error;
    task->headers = message->headers;
    task->headers_n = message->headers_n;
    task->max_retry = (uint32_t)(message->retry < 0 ? 0 : message->retry);
    task->retried = (uint32_t)(message->retried < 0 ? 0 : message->retried);
    task->timeout_ms = or_s(own->timeout_ms, message->timeout_s);
    if (!limited) /* as Asynq does with what others wrote */
        task->timeout_ms = MR_DEFAULT_TIMEOUT_MS;
    task->deadline_ms = or_s(own->deadline_ms, message->deadline_s);
    task->retention_ms = or_s(own->retention_ms, message->retention_s);
    bool same_s = own->failed_ms / MR_MS_PER_S == message->last_failed_s;
    task->last_failed_ms = same_s ? own->failed_ms : message->last_failed_s * MR_MS_PER_S;
    if (task->finished_ms == 0)
        task->finished_ms = message->completed_s * MR_MS_PER_S;
    if (task->finished_ms == 0 && task->state == MR_ARCHIVED) /* by Go */
        task->finished_ms = task->last_failed_ms;
}

static int64_t order_ms(const struct own_fields *own, const struct standing *standing,
                        enum mr_state state)
{
    if (standing->order_ms != 0)
        return (int64_t)standing->order_ms;
    if (state == MR_PENDING && own->since_ns != 0)
        return own->since_ns / NS_PER_MS;
    if ((state == MR_SCHEDULED || state == MR_RETRY) && standing->due_ms != 0)
        return standing->due_ms - own->priority_ms;
    return (own->order_ns != 0 ? own->order_ns : own->created_ns) / NS_PER_MS;
}

static struct mr_slice name_of_holder(struct mr_slice holder)
{
    const void *mark = holder.len > 0 ? memchr(holder.data, HOLDER_MARK, holder.len) : NULL;
    size_t len =
        mark != NULL ? (size_t)((const char *)mark - (const char *)holder.data) : holder.len;
    return mr_slice_make(holder.data, len);
}

/* What the fields say. */
static void from_fields(const struct own_fields *own, const struct standing *standing,
                        struct mr_task *task)
{
    enum mr_state state = standing->state;
    if (state == MR_STATE_NONE)
        state = standing->order_ms != 0 ? MR_PENDING : message_state(own->state);
    bool ended = state == MR_ARCHIVED || state == MR_COMPLETED, held = own->held.len > 0;
    task->state = state;
    task->topic = own->topic;
    task->key = own->key;
    task->result = own->result;
    task->priority_s = (double)own->priority_ms / 1000;
    task->order_time_ms = order_ms(own, standing, state);
    task->crashes = (uint32_t)own->crashes;
    task->epoch = (uint64_t)own->epoch;
    task->created_ms = (own->created_ns != 0 ? own->created_ns : own->since_ns) / NS_PER_MS;
    task->due_ms = standing->due_ms;
    task->started_ms = ended || held || state == MR_ACTIVE ? own->started_ms : 0;
    task->finished_ms = ended ? own->finished_ms : 0;
    task->cancel_requested = own->cancel != 0;
    task->held = held;
    task->past = own->past;
    if (own->unique_until_ms > mr_wall_ms(mr_wall_now(mr_clock_system())))
        task->unique_until_ms = own->unique_until_ms;
    if (state == MR_ACTIVE) {
        task->node = name_of_holder(own->node);
        task->progress = own->progress;
    }
}

enum mr_err message_read(const struct engine *engine, const struct mr_reply *fields,
                         const struct standing *standing, struct mr_arena *arena,
                         struct mr_task *ret_task)
{
    (void)engine;
    struct mr_asynq_task message = {0};
    if (fields->kind != MR_REPLY_ARRAY || fields->n == 0)
        return MR_NOT_FOUND;
    struct own_fields own = read_fields(fields);
    *ret_task = (struct mr_task){0};
    from_fields(&own, standing, ret_task);
    MR_TRY(mr_asynq_task_decode(own.message, arena, &message));
    from_message(&message, &own, ret_task);
    if (own.group.len > 0)
        ret_task->group = own.group;
    ret_task->attempt = 1 + ret_task->retried + ret_task->crashes;
    return ret_task->id.len > 0 ? MR_OK : MR_DAMAGED;
}

/* The hash is as it was before it was taken: plain ones have no creation time of their own yet. */
enum mr_err message_taken(const struct mr_reply *hash, const struct mr_reply *order,
                          struct mr_arena *arena, struct taken *ret_taken)
{
    struct mr_asynq_task message = {0};
    struct standing standing = {.state = MR_PENDING};
    struct own_fields own = no_fields;
    if (hash->kind == MR_REPLY_ARRAY) {
        own = read_fields(hash);
        standing.order_ms = (double)mr_reply_int(order, 0);
    } else {
        own.since_ns = mr_reply_int(order, 0);
        own.message = hash->text;
    }
    struct taken taken = {.message = own.message};
    from_fields(&own, &standing, &taken.task);
    MR_TRY(mr_asynq_task_decode(own.message, arena, &message));
    from_message(&message, &own, &taken.task);
    if (taken.task.id.len == 0 || taken.task.id.len > MR_ID_MAX)
        return MR_DAMAGED;
    taken.ready_us = (own.since_ns != 0 ? own.since_ns : own.created_ns) / MR_NS_PER_US;
    taken.plain =
        taken.task.retention_ms == 0 && message.unique_key.len == 0 && taken.task.topic.len == 0;
    *ret_taken = taken;
    return MR_OK;
}

enum mr_err message_keep(struct mr_task *task, struct mr_arena *arena)
{
    struct mr_slice *slices[] = {&task->id,         &task->queue,  &task->type,     &task->payload,
                                 &task->unique_key, &task->group,  &task->topic,    &task->node,
                                 &task->last_error, &task->result, &task->progress, &task->key,
                                 &task->past};
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++)
        MR_TRY(mr_arena_copy(arena, *slices[i], slices[i]));
    struct mr_header *headers = mr_arena_calloc(arena, task->headers_n, sizeof *headers);
    if (headers == NULL && task->headers_n > 0)
        return MR_NOMEM;
    for (size_t i = 0; i < task->headers_n; i++) {
        MR_TRY(mr_arena_copy(arena, task->headers[i].name, &headers[i].name));
        MR_TRY(mr_arena_copy(arena, task->headers[i].value, &headers[i].value));
    }
    task->headers = headers;
    return MR_OK;
}

/* ---- leases --------------------------------------------------------------------------------- */

/* Before the topic, the key and the message in the body of a lease. Never leaves the process. */
struct lease_head {
    int64_t created_ms, order_ms, due_ms, started_ms, timeout_ms, deadline_ms, retention_ms,
        failed_ms;
    double priority_s;
    uint32_t crashes, topic_len, key_len, partition;
    bool cancel;
};

enum mr_err message_lease(const struct mr_task *task, struct mr_slice message,
                          struct mr_lease **ret_lease)
{
    struct lease_head head = {
        .created_ms = task->created_ms,
        .order_ms = task->order_time_ms,
        .due_ms = task->due_ms,
        .started_ms = task->started_ms,
        .timeout_ms = task->timeout_ms,
        .deadline_ms = task->deadline_ms,
        .retention_ms = task->retention_ms,
        .failed_ms = task->last_failed_ms,
        .priority_s = task->priority_s,
        .crashes = task->crashes,
        .topic_len = (uint32_t)task->topic.len,
        .key_len = (uint32_t)task->key.len,
        .cancel = task->cancel_requested,
        .partition = task->partition,
    };
    size_t len = sizeof head + task->topic.len + task->key.len + message.len;
    struct mr_lease *lease = malloc(sizeof *lease + len);
    if (lease == NULL)
        return MR_NOMEM;
    *lease = (struct mr_lease){.epoch = task->epoch, .body_len = len};
    memcpy(lease->body, &head, sizeof head);
    if (task->topic.len > 0)
        memcpy(lease->body + sizeof head, task->topic.data, task->topic.len);
    uint8_t *key = lease->body + sizeof head + task->topic.len;
    if (task->key.len > 0)
        memcpy(key, task->key.data, task->key.len);
    memcpy(key + task->key.len, message.data, message.len);
    *ret_lease = lease;
    return MR_OK;
}

static enum mr_err keep_headers(struct mr_lease *lease, const struct mr_asynq_task *message)
{
    if (message->headers_n == 0)
        return MR_OK;
    lease->headers = calloc(message->headers_n, sizeof *lease->headers);
    if (lease->headers == NULL)
        return MR_NOMEM;
    memcpy(lease->headers, message->headers, message->headers_n * sizeof *lease->headers);
    return MR_OK;
}

/* Bytes of its name that say which partition a queue is. */
static size_t partition_len(struct mr_slice queue)
{
    const char *name = queue.data, *mark = queue.len > 0 ? memrchr(name, '~', queue.len) : NULL;
    return mark != NULL ? queue.len - (size_t)(mark - name) : 0;
}

enum mr_err message_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    struct lease_head head;
    struct mr_asynq_task message;
    struct mr_arena arena = {0};
    (void)broker;
    memcpy(&head, lease->body, sizeof head);
    const uint8_t *topic = lease->body + sizeof head;
    size_t names_len = (size_t)head.topic_len + head.key_len;
    struct mr_slice bytes =
        mr_slice_make(topic + names_len, lease->body_len - sizeof head - names_len);
    enum mr_err err = mr_asynq_task_decode(bytes, &arena, &message);
    if (err == MR_OK)
        err = keep_headers(lease, &message);
    struct own_fields own = {.timeout_ms = head.timeout_ms,
                             .deadline_ms = head.deadline_ms,
                             .retention_ms = head.retention_ms,
                             .failed_ms = head.failed_ms};
    struct mr_task task = {0};
    if (err == MR_OK) {
        from_message(&message, &own, &task);
        task.timeout_ms = head.timeout_ms;
        task.finished_ms = 0;
        task.headers = lease->headers;
        task.topic = mr_slice_make(topic, head.topic_len);
        task.key = mr_slice_make(topic + head.topic_len, head.key_len);
        task.state = MR_ACTIVE;
        task.priority_s = head.priority_s;
        task.order_time_ms = head.order_ms;
        task.created_ms = head.created_ms;
        task.due_ms = head.due_ms;
        task.started_ms = head.started_ms;
        task.crashes = head.crashes;
        task.attempt = 1 + task.retried + task.crashes;
        task.epoch = lease->epoch;
        task.cancel_requested = head.cancel;
        task.partition = head.partition;
        if (head.partition > 1) /* "Q~2" */
            task.queue.len -= partition_len(task.queue);
        lease->task = task;
    } else if (err == MR_NOMEM) {
        lease->task = (struct mr_task){.id = message.id};
    }
    mr_arena_done(&arena);
    return err;
}
