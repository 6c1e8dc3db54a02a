/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all engines share: the way into an engine's operations, waiting for an answer, and the
 * checks of a task's options at the door. No state. Thread: any.
 */
#include "broker/broker.h"

#include <math.h>
#include <stdlib.h>

#include "broker/result.h"
#include "wire/flat.h"

/* The end of the year 9999, the last time that can be written down in RFC 3339. */
#define TIME_MAX_MS 253402300799999LL

void mr_req_done(struct mr_req *req)
{
    mr_arena_done(&req->arena);
}

void mr_lease_free(struct mr_lease *lease)
{
    if (!lease)
        return;
    free(lease->headers);
    free(lease);
}

void mr_broker_submit(struct mr_broker *broker, struct mr_req *req)
{
    mr_assert(req->op < MR_OP_COUNT && req->done);
    broker->ops->submit(broker, req);
}

void mr_broker_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    broker->ops->begun(broker, slot, epoch);
}

enum mr_err mr_broker_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    if (lease->whole)
        return MR_OK;
    enum mr_err err = broker->ops->lease_open(broker, lease);
    lease->whole = err == MR_OK;
    return err;
}

struct mr_slice mr_broker_lease_id(struct mr_broker *broker, struct mr_lease *lease)
{
    enum mr_err err = mr_broker_lease_open(broker, lease);
    return err == MR_OK || err == MR_NOMEM ? lease->task.id : (struct mr_slice){0};
}

void mr_broker_close(struct mr_broker *broker)
{
    if (broker)
        broker->ops->close(broker);
}

const char *mr_attempt_name(enum mr_attempt attempt)
{
    static const char *const names[MR_ATTEMPT_COUNT] = {
        "ok", "error", "timeout", "cancelled", "crash", "lease_lost", "later",
    };
    return names[attempt];
}

const char *mr_task_end_name(enum mr_task_end end)
{
    static const char *const names[MR_TASK_END_COUNT] = {
        "completed",
        "dropped",
        "archived",
        "quarantined",
    };
    return names[end];
}

static void fail_each(enum mr_err *errs, size_t n, enum mr_err err)
{
    for (size_t i = 0; n <= MR_BATCH_MAX && i < n; i++)
        errs[i] = err;
}

/* What failed as a whole failed in each of its items. Batches over the limit are not looked into. */
static void fail_items(struct mr_req *req, enum mr_err err)
{
    struct mr_req_enqueue *enqueue = mr_container(req, struct mr_req_enqueue, req);
    struct mr_req_finish *finish = mr_container(req, struct mr_req_finish, req);
    struct mr_req_control *control = mr_container(req, struct mr_req_control, req);
    if (req->op == MR_OP_FINISH)
        fail_each(finish->errs, finish->n, err);
    else if (req->op == MR_OP_CONTROL)
        fail_each(control->errs, control->n, err);
    else if (req->op == MR_OP_ENQUEUE && enqueue->n <= MR_BATCH_MAX)
        for (size_t i = 0; i < enqueue->n; i++)
            enqueue->results[i].err = err; /* its id stays: whether it is there may show later */
}

void mr_req_answer(struct mr_req *req, enum mr_err err)
{
    if (err != MR_OK)
        fail_items(req, err);
    req->err = err;
    req->done(req);
}

static void call_done(struct mr_req *req)
{
    mr_event_set(req->arg);
}

enum mr_err mr_broker_call(struct mr_broker *broker, struct mr_req *req)
{
    struct mr_event answered;
    mr_event_init(&answered);
    req->done = call_done;
    req->arg = &answered;
    mr_broker_submit(broker, req);
    mr_event_wait(&answered, INT64_MAX);
    return req->err;
}

/* ---- the door ------------------------------------------------------------------------------- */

/* Optional names; empty stands for the default. */
static const struct {
    const char *what;
    size_t offset;
} name_fields[] = {
    {"queue", offsetof(struct mr_task_options, queue)},
    {"type", offsetof(struct mr_task_options, type)},
    {"unique key", offsetof(struct mr_task_options, unique_key)},
    {"group", offsetof(struct mr_task_options, group)},
    {"topic", offsetof(struct mr_task_options, topic)},
    {"key", offsetof(struct mr_task_options, key)},
};

/* Times and lengths of time in ms. least is the sentinel for "none" where there is one. */
static const struct {
    const char *what;
    size_t offset;
    int64_t least;
} time_fields[] = {
    {"delay", offsetof(struct mr_task_options, delay_ms), 0},
    {"time", offsetof(struct mr_task_options, at_ms), 0},
    {"timeout", offsetof(struct mr_task_options, timeout_ms), MR_NO_TIMEOUT},
    {"deadline", offsetof(struct mr_task_options, deadline_ms), 0},
    {"retention", offsetof(struct mr_task_options, retention_ms), 0},
    {"unique time", offsetof(struct mr_task_options, unique_ms), 0},
};

static enum mr_err check_names(const struct mr_task_options *task, struct mr_detail *detail)
{
    for (size_t i = 0; i < sizeof name_fields / sizeof *name_fields; i++) {
        struct mr_slice name;
        memcpy(&name, (const char *)task + name_fields[i].offset, sizeof name);
        if (name.len > 0)
            MR_TRY(mr_name_check_of(name_fields[i].what, name, detail));
    }
    return MR_OK;
}

/* An id is shown in lists and used in paths of URLs, so it is text; unlike names it may hold
 * braces. */
static enum mr_err check_id(struct mr_slice id, struct mr_detail *detail)
{
    if (id.len > MR_ID_MAX) {
        mr_detail_set(detail, "id: %zu bytes, the limit is %d", id.len, MR_ID_MAX);
        return MR_TOO_BIG;
    }
    const unsigned char *bytes = id.data;
    bool fine = id.len == 0 || (bytes && mr_utf8_valid(id));
    for (size_t i = 0; fine && i < id.len; i++)
        fine = bytes[i] >= 0x20 && bytes[i] != 0x7f;
    if (!fine)
        mr_detail_set(detail, "id: must be UTF-8 without control characters");
    return fine ? MR_OK : MR_INVALID;
}

static enum mr_err check_times(const struct mr_task_options *task, struct mr_detail *detail)
{
    for (size_t i = 0; i < sizeof time_fields / sizeof *time_fields; i++) {
        int64_t value;
        memcpy(&value, (const char *)task + time_fields[i].offset, sizeof value);
        if (value < time_fields[i].least) {
            mr_detail_set(detail, "%s: must not be negative", time_fields[i].what);
            return MR_INVALID;
        }
        if (value > TIME_MAX_MS) {
            mr_detail_set(detail, "%s: must not be after the year 9999", time_fields[i].what);
            return MR_INVALID;
        }
    }
    if (task->delay_ms > 0 && task->at_ms > 0) {
        mr_detail_set(detail, "delay and time: give one of them");
        return MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err check_numbers(const struct mr_task_options *task, struct mr_detail *detail)
{
    if (!(fabs(task->priority_s) <= MR_PRIORITY_MAX_S)) { /* also refuses NaN */
        mr_detail_set(detail, "priority: must be within 10 years");
        return MR_INVALID;
    }
    if (task->max_retry < MR_NO_RETRY || task->max_retry > MR_RETRY_MAX) {
        mr_detail_set(detail, "retry: must be within 0 and %d", MR_RETRY_MAX);
        return MR_INVALID;
    }
    if (task->on_duplicate > MR_DUPLICATE_REPLACE) {
        mr_detail_set(detail, "on duplicate: not one of reject, ignore, replace");
        return MR_INVALID;
    }
    if (task->unique_key.len > 0 && task->unique_ms == 0) {
        mr_detail_set(detail, "unique key: say how long it holds, too");
        return MR_INVALID;
    }
    if (task->partition > MR_PARTITIONS_MAX) {
        mr_detail_set(detail, "partition: must be within 1 and %d", MR_PARTITIONS_MAX);
        return MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err check_headers(const struct mr_task_options *task, struct mr_detail *detail)
{
    if (task->headers_n > MR_HEADERS_MAX) {
        mr_detail_set(detail, "headers: %zu, the limit is %d", task->headers_n, MR_HEADERS_MAX);
        return MR_TOO_BIG;
    }
    if (task->headers_n > 0 && !task->headers) {
        mr_detail_set(detail, "headers: missing");
        return MR_INVALID;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < task->headers_n; i++) {
        struct mr_header header = task->headers[i];
        MR_TRY(mr_name_check_of("header name", header.name, detail));
        if (header.value.len > 0 && !header.value.data) {
            mr_detail_set(detail, "headers: a value is missing");
            return MR_INVALID;
        }
        /* Cut, so that the sum cannot overflow. */
        size_t value_len = header.value.len;
        bytes += header.name.len;
        bytes += value_len > MR_HEADER_BYTES_MAX ? MR_HEADER_BYTES_MAX + 1 : value_len;
    }
    if (bytes > MR_HEADER_BYTES_MAX) {
        mr_detail_set(detail, "headers: over the limit of %d bytes in all", MR_HEADER_BYTES_MAX);
        return MR_TOO_BIG;
    }
    return MR_OK;
}

enum mr_err mr_task_options_check(const struct mr_task_options *task, size_t payload_max,
                                  struct mr_detail *detail)
{
    if (task->payload.len > payload_max) {
        mr_detail_set(detail, "payload: %zu bytes, the limit is %zu", task->payload.len,
                      payload_max);
        return MR_TOO_BIG;
    }
    if (task->payload.len > 0 && !task->payload.data) {
        mr_detail_set(detail, "payload: missing");
        return MR_INVALID;
    }
    MR_TRY(check_names(task, detail));
    if (task->topic.len > MR_TOPIC_MAX) {
        mr_detail_set(detail, "topic: %zu bytes, the limit is %d", task->topic.len, MR_TOPIC_MAX);
        return MR_TOO_BIG;
    }
    MR_TRY(check_id(task->id, detail));
    MR_TRY(check_times(task, detail));
    MR_TRY(check_numbers(task, detail));
    return check_headers(task, detail);
}

struct mr_task_options mr_carried_options(const struct mr_task *task)
{
    int64_t unique_ms = task->unique_until_ms - task->created_ms;
    bool unique = task->unique_until_ms > 0;
    return (struct mr_task_options){
        .queue = task->queue,
        .type = task->type,
        .payload = task->payload,
        .id = task->id,
        .priority_s = task->priority_s,
        .max_retry = task->max_retry == 0 ? MR_NO_RETRY : (int32_t)task->max_retry,
        .timeout_ms = task->timeout_ms == 0 ? MR_NO_TIMEOUT : task->timeout_ms,
        .deadline_ms = task->deadline_ms,
        .retention_ms = task->retention_ms,
        .unique_ms = !unique         ? 0
                     : unique_ms > 0 ? unique_ms
                                     : 1,
        .unique_key = unique ? task->unique_key : (struct mr_slice){0},
        .group = task->group,
        .topic = task->topic,
        .headers = task->headers,
        .headers_n = task->headers_n,
        .key = task->key,
    };
}

uint64_t mr_carried_epoch(const struct mr_task *task)
{
    return task->epoch & ((1ULL << MR_EPOCH_BITS) - 1);
}

enum mr_err mr_carried_check(const struct mr_task *task)
{
    const int64_t times[] = {task->created_ms,     task->due_ms,          task->finished_ms,
                             task->last_failed_ms, task->unique_until_ms, task->started_ms};
    bool fine = task->id.len > 0 && task->created_ms > 0 && task->state > MR_STATE_NONE &&
                task->state < MR_STATE_COUNT && task->state != MR_ACTIVE &&
                task->max_retry <= MR_RETRY_MAX && task->retried <= MR_RETRY_MAX;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        fine = fine && times[i] >= 0 && times[i] <= TIME_MAX_MS;
    bool timed = task->state == MR_SCHEDULED || task->state == MR_RETRY;
    fine = fine && (!timed || task->due_ms > 0);
    fine = fine && (task->state != MR_AGGREGATING || task->group.len > 0);
    fine = fine && mr_carried_epoch(task) <= MR_CARRIED_EPOCH_MAX;
    fine = fine && task->order_time_ms >= -TIME_MAX_MS && task->order_time_ms <= 2 * TIME_MAX_MS;
    if (!fine)
        return MR_INVALID;
    return task->last_error.len > MR_ERROR_TEXT_MAX || task->result.len > MR_RESULT_MAX ? MR_TOO_BIG
                                                                                        : MR_OK;
}

enum mr_err mr_control_check(const struct mr_control *item)
{
    if ((unsigned)item->verb > MR_VERB_RELEASE || item->id.len == 0 || item->id.len > MR_ID_MAX)
        return MR_INVALID;
    if (item->verb == MR_VERB_PRIORITISE && !(fabs(item->value) <= MR_PRIORITY_MAX_S))
        return MR_INVALID;
    bool says = item->text.len > 0 && item->text.data != NULL;
    if (item->verb == MR_VERB_MOVED && (!says || !mr_utf8_valid(item->text)))
        return MR_INVALID;
    return item->verb == MR_VERB_MOVED && item->text.len > MR_MOVED_TEXT_MAX ? MR_TOO_BIG : MR_OK;
}

enum mr_err mr_finish_check(const struct mr_finish *item)
{
    if ((unsigned)item->outcome > MR_LATER || (unsigned)item->reason > MR_REASON_CANCELLED ||
        item->delay_ms < 0 || item->delay_ms > MR_DELAY_MAX_MS)
        return MR_INVALID;
    if (item->id.len > MR_ID_MAX || item->result.len > MR_RESULT_MAX ||
        item->error.len > MR_ERROR_TEXT_MAX)
        return MR_TOO_BIG;
    return MR_OK;
}

enum mr_err mr_queue_set_check(const struct mr_req_queue_set *req)
{
    bool count = req->value >= 1 && req->value <= MR_PARTITIONS_MAX;
    if (req->setting == MR_QUEUE_PARTITIONS && !count)
        return MR_INVALID;
    if (req->setting == MR_QUEUE_ASSIGN && req->value >= MR_ASSIGN_COUNT)
        return MR_INVALID;
    if (req->setting == MR_QUEUE_RETRY_MODE && req->value >= MR_RETRY_MODE_COUNT)
        return MR_INVALID;
    if (req->setting == MR_QUEUE_RETRY_WAIT && req->value > (uint64_t)MR_DELAY_MAX_MS)
        return MR_INVALID;
    if (req->setting == MR_QUEUE_RATE || req->setting == MR_QUEUE_CONCURRENCY)
        MR_TRY(mr_limit_check(req));
    return mr_name_check(req->queue);
}

enum mr_err mr_node_open_check(const struct mr_req_node_open *req)
{
    bool master = req->role == MR_NODE_MASTER;
    if (req->queues_n == 0 || req->queues_n > MR_TAKE_QUEUES_MAX || (req->slots == 0) != master ||
        req->slots > MR_SLOTS_MAX || req->types_n > MR_NODE_TYPES_MAX || req->lease_ms <= 0 ||
        req->events.stop == NULL || (unsigned)req->role >= MR_NODE_ROLE_COUNT ||
        (req->leads && (req->leader_ms <= 0 || req->lasts)) || req->fall_ms < 0 ||
        req->fall_ms > MR_DELAY_MAX_MS || (master && req->fall_ms > 0))
        return MR_INVALID;
    if (req->name.len > 0)
        MR_TRY(mr_name_check(req->name));
    for (size_t i = 0; i < req->queues_n; i++) {
        struct mr_slice name = req->queues[i].name;
        if (req->inner && (req->leads || !mr_queue_is_inner(name)))
            return MR_INVALID;
        name = req->inner ? mr_queue_shown(name) : master ? mr_result_topic(name) : name;
        MR_TRY(mr_name_check(name));
    }
    for (size_t i = 0; i < req->types_n; i++)
        MR_TRY(mr_name_check(req->types[i]));
    return MR_OK;
}

uint64_t mr_owned_by_all(const struct mr_req_assign *req)
{
    uint64_t owned = 0;
    for (size_t i = 0; i < req->owners_n; i++)
        owned |= req->owners[i].owned;
    return owned;
}

enum mr_err mr_assign_check(const struct mr_req_assign *req)
{
    if (req->term == 0 || req->owners_n == 0)
        return MR_INVALID;
    if (req->owners_n > MR_OWNERS_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < req->owners_n; i++)
        if (req->owners[i].node.len > 0)
            MR_TRY(mr_name_check(req->owners[i].node));
    uint64_t owned = mr_owned_by_all(req);
    bool whole = owned != 0 && (owned & (owned + 1)) == 0; /* ones from the lowest bit on */
    return whole ? mr_name_check(req->queue) : MR_INVALID;
}

enum mr_err mr_gather_check(const struct mr_req_gather *req)
{
    if (req->max_delay_ms < 0 || req->grace_ms < 1 || req->wait_ms < 0 || req->set_ms < 0 ||
        req->set_ms > MR_MS_PER_DAY)
        return MR_INVALID;
    return mr_name_check(req->queue);
}

enum mr_err mr_gathered_check(const struct mr_req_gathered *req)
{
    if (req->set.len == 0 || req->set.len >= MR_SET_MAX)
        return MR_INVALID;
    return mr_name_check(req->queue);
}

enum mr_err mr_gathered_task_check(const struct mr_req_gathered *req)
{
    bool same = req->task->queue.len == 0 || mr_slice_equal(req->task->queue, req->queue);
    return same && req->task->group.len == 0 ? MR_OK : MR_INVALID;
}

uint32_t mr_gather_max(const struct mr_req_gather *req)
{
    return req->max_size == 0 || req->max_size > MR_BATCH_MAX ? MR_BATCH_MAX : req->max_size;
}

int64_t mr_gather_set_ms(const struct mr_req_gather *req)
{
    return req->set_ms == 0 ? MR_SET_MS : req->set_ms;
}

/* ---- over the wire -------------------------------------------------------------------------- */

static const struct mr_flat_field finish_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_finish, id), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_finish, epoch), 0},
    {MR_FLAT_ENUM, offsetof(struct mr_finish, outcome), MR_LATER},
    {MR_FLAT_64, offsetof(struct mr_finish, delay_ms), 0},
    {MR_FLAT_SLICE, offsetof(struct mr_finish, error), 0},
    {MR_FLAT_SLICE, offsetof(struct mr_finish, result), 0},
    {MR_FLAT_ENUM, offsetof(struct mr_finish, reason), MR_REASON_CANCELLED},
};
MR_FLAT(struct mr_finish, mr_flat_finish, finish_fields);
