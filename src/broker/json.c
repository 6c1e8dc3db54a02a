/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/json.h"

#include "broker/hidden.h"
#include "wire/timer.h"

void jw_error(struct jw *jw, enum mr_err err, const char *message, enum mr_state state)
{
    jw_object_begin(jw, "error");
    jw_text(jw, "code", mr_err_name(err));
    jw_text(jw, "message", message);
    if (state != MR_STATE_NONE)
        jw_text(jw, "state", mr_state_name(state));
    jw_object_end(jw);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

bool jw_operation_of(const struct mr_task *task, struct mr_timer_operation *ret_op)
{
    *ret_op = (struct mr_timer_operation){0};
    return mr_queue_is_inner(task->queue) &&
           mr_flat_read(&mr_flat_timer_operation, task->payload, NULL, ret_op) == MR_OK;
}

static void operation_json(struct jw *jw, const struct mr_task *task)
{
    struct mr_timer_operation op;
    if (!jw_operation_of(task, &op))
        return;
    jw_object_begin(jw, "operation");
    jw_text(jw, "verb", mr_timer_verb_name(op.verb));
    jw_bytes(jw, "app", op.app);
    jw_bytes(jw, "timer", op.name);
    jw_uint(jw, "version", op.version);
    jw_object_end(jw);
}

/* Fields that are not set are 0 or empty. */
void jw_task(struct jw *jw, const struct mr_task *task)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "id", task->id);
    jw_bytes(jw, "queue", mr_queue_shown(task->queue));
    operation_json(jw, task);
    jw_uint(jw, "partition", task->partition);
    jw_bytes(jw, "type", task->type);
    jw_text(jw, "state", mr_state_name(task->state));
    jw_bytes(jw, "payload", task->payload);
    jw_headers(jw, task->headers, task->headers_n);
    jw_real(jw, "priority", task->priority_s);
    jw_int(jw, "order_time_ms", task->order_time_ms);
    jw_uint(jw, "attempt", task->attempt);
    jw_uint(jw, "retried", task->retried);
    jw_uint(jw, "max_retry", task->max_retry);
    jw_uint(jw, "crashes", task->crashes);
    jw_uint(jw, "epoch", task->epoch);
    jw_int(jw, "timeout_ms", task->timeout_ms);
    jw_int(jw, "deadline_ms", task->deadline_ms);
    jw_bytes(jw, "unique_key", task->unique_key);
    jw_bytes(jw, "group", task->group);
    jw_bytes(jw, "topic", task->topic);
    jw_bytes(jw, "key", task->key);
    jw_int(jw, "retention_ms", task->retention_ms);
    jw_int(jw, "created_ms", task->created_ms);
    jw_int(jw, "due_ms", task->due_ms);
    jw_int(jw, "started_ms", task->started_ms);
    jw_int(jw, "finished_ms", task->finished_ms);
    jw_bytes(jw, "node", task->node);
    jw_bytes(jw, "progress", task->progress);
    jw_bytes(jw, "last_error", task->last_error);
    jw_int(jw, "last_failed_ms", task->last_failed_ms);
    jw_bytes(jw, "result", task->result);
    jw_object_end(jw);
}

/* ---- queues --------------------------------------------------------------------------------- */

void jw_queue_open(struct jw *jw, const struct mr_queue_info *info)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "queue", info->name);
    jw_uint(jw, "partitions", info->partitions);
    jw_text(jw, "assign", mr_assign_name(info->assign));
    jw_uint(jw, "pending", info->counts[MR_PENDING]);
    jw_uint(jw, "active", info->counts[MR_ACTIVE]);
    jw_uint(jw, "scheduled", info->counts[MR_SCHEDULED]);
    jw_uint(jw, "retry", info->counts[MR_RETRY]);
    jw_uint(jw, "archived", info->counts[MR_ARCHIVED]);
    jw_uint(jw, "completed", info->counts[MR_COMPLETED]);
    jw_uint(jw, "aggregating", info->counts[MR_AGGREGATING]);
    jw_bool(jw, "paused", info->paused);
    jw_int(jw, "oldest_pending_ms", info->oldest_pending_ms);
    jw_uint(jw, "processed_total", info->processed_total);
    jw_uint(jw, "failed_total", info->failed_total);
    jw_uint(jw, "processed_today", info->processed_today);
    jw_uint(jw, "failed_today", info->failed_today);
    jw_uint(jw, "max_length", info->max_length);
    jw_text(jw, "retry_mode", mr_retry_mode_name(info->retry_mode));
    jw_int(jw, "retry_wait_ms", info->retry_wait_ms);
    jw_uint(jw, "rate", info->rate);
    jw_int(jw, "rate_ms", info->rate_ms);
    jw_uint(jw, "concurrency", info->concurrency);
    jw_uint(jw, "limits", info->limits);
    jw_uint(jw, "wait_p50_us", info->wait_p50_us);
    jw_uint(jw, "wait_p99_us", info->wait_p99_us);
    jw_uint(jw, "run_p50_us", info->run_p50_us);
    jw_uint(jw, "run_p99_us", info->run_p99_us);
    jw_uint(jw, "trimmed", info->trimmed);
    jw_uint(jw, "quarantined", info->quarantined);
}

void jw_queue(struct jw *jw, const struct mr_queue_info *info)
{
    jw_queue_open(jw, info);
    jw_object_end(jw);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

bool jw_node_leads(const struct jw_crew *crew, const struct mr_node_info *node)
{
    return crew->leader != NULL && crew->leader->incarnation == node->incarnation;
}

uint64_t jw_node_owns(const struct jw_crew *crew, const struct mr_node_info *node,
                      struct mr_slice queue)
{
    for (size_t i = 0; node->role == MR_NODE_WORKER && i < crew->assignments_n; i++) {
        const struct mr_assignment *assignment = &crew->assignments[i];
        if (!mr_slice_equal(assignment->queue, queue))
            continue;
        for (size_t k = 0; k < assignment->owners_n; k++)
            if (assignment->owners[k].incarnation == node->incarnation)
                return assignment->owners[k].owned;
    }
    return 0;
}

/* Of those that it has not told of it is only known how many are busy. */
static void slots_json(struct jw *jw, const struct mr_node_info *node)
{
    size_t working = 0;
    jw_array_begin(jw, "slots");
    for (uint32_t i = 0; i < node->slots && i < MR_SLOTS_MAX; i++) {
        enum mr_slot_state state = working < node->busy ? MR_SLOT_WORKING : MR_SLOT_PENDING;
        if (i < node->slot_infos_n)
            state = node->slot_infos[i].state;
        working += state == MR_SLOT_WORKING;
        jw_text(jw, NULL, mr_slot_state_name(state));
    }
    jw_array_end(jw);
}

static void doing_json(struct jw *jw, const struct mr_node_info *node)
{
    jw_array_begin(jw, "doing");
    for (size_t i = 0; i < node->slot_infos_n; i++) {
        const struct mr_slot_info *slot = &node->slot_infos[i];
        if (slot->id.len == 0)
            continue;
        jw_object_begin(jw, NULL);
        jw_uint(jw, "slot", i);
        jw_uint(jw, "machine", slot->machine);
        jw_text(jw, "state", mr_slot_state_name(slot->state));
        jw_int(jw, "since_ms", slot->since_ms);
        jw_bytes(jw, "task_id", slot->id);
        jw_bytes(jw, "type", slot->type);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}

static void partitions_json(struct jw *jw, const struct jw_crew *crew,
                            const struct mr_node_info *node)
{
    jw_array_begin(jw, "partitions");
    for (size_t i = 0; i < node->queues_n; i++) {
        uint64_t bits = jw_node_owns(crew, node, node->queues[i].name);
        if (bits == 0)
            continue;
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "queue", node->queues[i].name);
        jw_array_begin(jw, "partitions");
        for (unsigned part = 1; bits != 0; part++, bits >>= 1)
            if (bits & 1)
                jw_uint(jw, NULL, part);
        jw_array_end(jw);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}

static void tags_json(struct jw *jw, const struct mr_node_info *node)
{
    struct mr_slice tags[MR_TAKE_QUEUES_MAX];
    size_t n = mr_node_tags(node, tags, MR_TAKE_QUEUES_MAX);
    jw_array_begin(jw, "tags");
    for (size_t i = 0; i < n; i++)
        jw_bytes(jw, NULL, tags[i]);
    jw_array_end(jw);
}

bool jw_node_drains(const struct mr_node_info *node)
{
    bool stops = false;
    for (size_t i = 0; i < node->slot_infos_n; i++)
        stops |= node->slot_infos[i].state == MR_SLOT_STOPPING;
    return stops && node->state == MR_NODE_LIVE;
}

const char *jw_node_state(const struct mr_node_info *node)
{
    return jw_node_drains(node) ? "draining" : mr_node_state_name(node->state);
}

void jw_node(struct jw *jw, const struct jw_crew *crew, const struct mr_node_info *node)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "node", node->name);
    jw_text(jw, "role", mr_node_role_name(node->role));
    jw_text(jw, "state", jw_node_state(node));
    jw_uint(jw, "incarnation", node->incarnation);
    jw_int(jw, "started_ms", node->started_ms);
    jw_int(jw, "last_beat_ms", node->last_beat_ms);
    jw_uint(jw, "in_hand", node->in_hand);
    jw_uint(jw, "concurrency", node->slots);
    slots_json(jw, node);
    doing_json(jw, node);
    jw_array_begin(jw, "queues");
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_node_serves(node, i))
            jw_bytes(jw, NULL, node->queues[i].name);
    jw_array_end(jw);
    jw_array_begin(jw, "types");
    for (size_t i = 0; i < node->types_n; i++)
        jw_bytes(jw, NULL, node->types[i]);
    jw_array_end(jw);
    partitions_json(jw, crew, node);
    tags_json(jw, node);
    jw_bool(jw, "leader", jw_node_leads(crew, node));
    jw_object_end(jw);
}

void jw_leader(struct jw *jw, const struct mr_leader *leader)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "node", leader->node);
    jw_uint(jw, "incarnation", leader->incarnation);
    jw_uint(jw, "term", leader->term);
    jw_int(jw, "since_ms", leader->since_ms);
    jw_int(jw, "leaderless_ms", leader->leaderless_ms);
    jw_object_end(jw);
}
