/* SPDX-License-Identifier: Apache-2.0 */
/* How the answers of several servers become one. */
#include <stdlib.h>

#include "broker/many/internal.h"

#define OUTER(fan, type)  mr_container((fan)->outer, struct type, req)
#define INNER(part, type) mr_container((part)->req, struct type, req)

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What counts when no answer is MR_OK, or all must be: any error goes before MR_NOT_FOUND. */
static enum mr_err fan_worst(const struct fan *fan)
{
    enum mr_err worst = MR_NOT_FOUND;
    for (size_t i = 0; i < fan->n; i++) {
        enum mr_err err = part_err(&fan->parts[i]);
        if (err != MR_OK && err != MR_NOT_FOUND && (worst == MR_NOT_FOUND || err != MR_UNAVAILABLE))
            worst = err;
    }
    return worst;
}

static const struct part *first_ok(const struct fan *fan)
{
    for (size_t i = 0; i < fan->n; i++)
        if (part_err(&fan->parts[i]) == MR_OK)
            return &fan->parts[i];
    return NULL;
}

/* What nobody has may be at a server that is not there. */
static enum mr_err missing(const struct fan *fan)
{
    enum mr_err err = fan_worst(fan);
    return err == MR_NOT_FOUND && fan->has_gaps ? MR_UNAVAILABLE : err;
}

/* The first that was carried out; what it answered is the request's. */
static enum mr_err take_over(struct fan *fan, const struct part *part)
{
    mr_arena_join(&fan->outer->arena, &part->req->arena);
    return MR_OK;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static bool is_ok(const struct part *part)
{
    return part->req->err == MR_OK;
}

static struct mr_task shown_task(const struct part *part, const struct mr_task *task)
{
    struct mr_task shown = *task;
    shown.epoch = shown_epoch(part->origin, task->epoch);
    return shown;
}

static enum mr_err merge_get(struct fan *fan)
{
    const struct part *part = first_ok(fan);
    if (part == NULL)
        return missing(fan);
    OUTER(fan, mr_req_get)->task = shown_task(part, &INNER(part, mr_req_get)->task);
    return take_over(fan, part);
}

/* It is asked for again when a connection was broken. */
static enum mr_err fill_await(struct fan *fan, struct mr_req *req)
{
    struct mr_req_await *await = mr_container(req, struct mr_req_await, req);
    await->wait = NULL;
    return await->id.data == NULL ? MR_OK : mr_arena_copy(&fan->memory, await->id, &await->id);
}

/* A server that says that the time is over has it; the others do not. */
static enum mr_err merge_await(struct fan *fan)
{
    const struct part *part = first_ok(fan);
    if (part != NULL) {
        OUTER(fan, mr_req_await)->task = shown_task(part, &INNER(part, mr_req_await)->task);
        return take_over(fan, part);
    }
    for (size_t i = 0; i < fan->n; i++)
        if (part_err(&fan->parts[i]) == MR_TIMEOUT)
            return MR_TIMEOUT;
    return missing(fan);
}

static enum mr_err fill_control(struct fan *fan, struct mr_req *req)
{
    struct mr_req_control *control = mr_container(req, struct mr_req_control, req);
    if (control->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    control->errs = mr_arena_calloc(&fan->memory, control->n, sizeof *control->errs);
    return control->errs != NULL ? MR_OK : MR_NOMEM;
}

/* Of one item: whoever has the task decides. */
static enum mr_err control_err(const struct fan *fan, size_t item)
{
    enum mr_err err = MR_NOT_FOUND;
    for (size_t i = 0; i < fan->n; i++) {
        enum mr_err whole = part_err(&fan->parts[i]);
        enum mr_err one =
            whole != MR_OK ? whole : INNER(&fan->parts[i], mr_req_control)->errs[item];
        if (one == MR_OK)
            return MR_OK;
        if (one != MR_NOT_FOUND && (err == MR_NOT_FOUND || err == MR_UNAVAILABLE))
            err = one;
    }
    return err == MR_NOT_FOUND && fan->has_gaps ? MR_UNAVAILABLE : err;
}

static enum mr_err merge_control(struct fan *fan)
{
    const struct mr_req_control *outer = OUTER(fan, mr_req_control);
    if (first_ok(fan) == NULL)
        return fan_worst(fan);
    for (size_t i = 0; i < outer->n; i++)
        outer->errs[i] = control_err(fan, i);
    return MR_OK;
}

/* ---- queues --------------------------------------------------------------------------------- */

static enum mr_err fill_queue_list(struct fan *fan, struct mr_req *req)
{
    struct mr_req_queue_list *list = mr_container(req, struct mr_req_queue_list, req);
    list->n = 0;
    list->infos = mr_arena_calloc(&fan->memory, list->max, sizeof *list->infos);
    return list->infos != NULL ? MR_OK : MR_NOMEM;
}

static void add_info(struct mr_queue_info *to, const struct mr_queue_info *from)
{
    for (size_t i = 0; i < MR_STATE_COUNT; i++)
        to->counts[i] += from->counts[i];
    to->paused |= from->paused;
    to->oldest_pending_ms = from->oldest_pending_ms > to->oldest_pending_ms
                                ? from->oldest_pending_ms
                                : to->oldest_pending_ms;
    to->processed_total += from->processed_total;
    to->failed_total += from->failed_total;
    to->processed_today += from->processed_today;
    to->failed_today += from->failed_today;
    to->wait_p50_us = max64(to->wait_p50_us, from->wait_p50_us);
    to->wait_p99_us = max64(to->wait_p99_us, from->wait_p99_us);
    to->run_p50_us = max64(to->run_p50_us, from->run_p50_us);
    to->run_p99_us = max64(to->run_p99_us, from->run_p99_us);
    to->trimmed += from->trimmed;
    to->quarantined += from->quarantined;
}

/* The first by name of what is left of all lists, whose heads are at[]; NULL: nothing is. */
static const struct mr_queue_info *least(const struct fan *fan, const size_t *at)
{
    const struct mr_queue_info *first = NULL;
    for (size_t i = 0; i < fan->n; i++) {
        const struct mr_req_queue_list *list = INNER(&fan->parts[i], mr_req_queue_list);
        if (part_err(&fan->parts[i]) != MR_OK || at[i] == list->n)
            continue;
        if (first == NULL || strcmp(list->infos[at[i]].name, first->name) < 0)
            first = &list->infos[at[i]];
    }
    return first;
}

/* Each list has the first names that its server knows, so all of them have the first of all. */
static enum mr_err merge_queue_list(struct fan *fan)
{
    struct mr_req_queue_list *outer = OUTER(fan, mr_req_queue_list);
    size_t at[ORIGINS_MAX] = {0};
    const struct mr_queue_info *next;
    outer->n = 0;
    if (first_ok(fan) == NULL)
        return outer->only.len > 0 ? missing(fan) : fan_worst(fan);
    while (outer->n < outer->max && (next = least(fan, at)) != NULL) {
        char name[sizeof next->name];
        struct mr_queue_info *to = &outer->infos[outer->n++];
        bool first = true;
        memcpy(name, next->name, sizeof name);
        for (size_t i = 0; i < fan->n; i++) {
            const struct mr_req_queue_list *list = INNER(&fan->parts[i], mr_req_queue_list);
            if (part_err(&fan->parts[i]) != MR_OK || at[i] == list->n ||
                strcmp(list->infos[at[i]].name, name) != 0)
                continue;
            const struct mr_queue_info *from = &list->infos[at[i]++];
            if (first)
                *to = *from;
            else
                add_info(to, from);
            first = false;
        }
    }
    return MR_OK;
}

static enum mr_err fill_history(struct fan *fan, struct mr_req *req)
{
    struct mr_req_queue_history *history = mr_container(req, struct mr_req_queue_history, req);
    history->n = 0;
    history->days = mr_arena_calloc(&fan->memory, history->max, sizeof *history->days);
    return history->days != NULL ? MR_OK : MR_NOMEM;
}

static int by_day(const void *a, const void *b)
{
    const struct mr_queue_day *x = a, *y = b;
    return (x->start_ms < y->start_ms) - (x->start_ms > y->start_ms);
}

static enum mr_err merge_history(struct fan *fan)
{
    struct mr_req_queue_history *outer = OUTER(fan, mr_req_queue_history);
    size_t n = 0, all = 0;
    if (first_ok(fan) == NULL)
        return missing(fan);
    for (size_t i = 0; i < fan->n; i++)
        all += INNER(&fan->parts[i], mr_req_queue_history)->n;
    struct mr_queue_day *days = mr_arena_calloc(&fan->memory, all + 1, sizeof *days);
    if (days == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < fan->n; i++) {
        const struct mr_req_queue_history *part = INNER(&fan->parts[i], mr_req_queue_history);
        for (size_t j = 0; part_err(&fan->parts[i]) == MR_OK && j < part->n; j++)
            days[n++] = part->days[j];
    }
    qsort(days, n, sizeof *days, by_day);
    outer->n = 0;
    for (size_t i = 0; i < n; i++) {
        struct mr_queue_day *last = outer->n > 0 ? &outer->days[outer->n - 1] : NULL;
        if (last != NULL && last->start_ms == days[i].start_ms) {
            last->processed += days[i].processed;
            last->failed += days[i].failed;
        } else if (outer->n < outer->max) {
            outer->days[outer->n++] = days[i];
        } else {
            break;
        }
    }
    return MR_OK;
}

/* Carried out where there is something to do: a queue need not be everywhere. */
static enum mr_err merge_change(struct fan *fan)
{
    enum mr_err err = fan_worst(fan);
    return err == MR_NOT_FOUND && first_ok(fan) != NULL ? MR_OK : err;
}

static enum mr_err fill_limits(struct fan *fan, struct mr_req *req)
{
    struct mr_req_queue_limits *limits = mr_container(req, struct mr_req_queue_limits, req);
    limits->n = 0;
    limits->limits = mr_arena_calloc(&fan->memory, MR_LIMITS_MAX, sizeof *limits->limits);
    return limits->limits != NULL ? MR_OK : MR_NOMEM;
}

static enum mr_err merge_limits(struct fan *fan)
{
    struct mr_req_queue_limits *outer = OUTER(fan, mr_req_queue_limits);
    const struct part *part = first_ok(fan);
    outer->n = 0;
    if (part == NULL)
        return missing(fan);
    const struct mr_req_queue_limits *found = INNER(part, mr_req_queue_limits);
    memcpy(outer->limits, found->limits, found->n * sizeof *found->limits);
    outer->n = found->n;
    return take_over(fan, part);
}

/* ---- nodes and figures ---------------------------------------------------------------------- */

/* A node that is attached to several servers is one; two of one name at the same server are two. */
static struct mr_node_info *find_node(struct mr_req_node_list *list, size_t before,
                                      const struct mr_node_info *node)
{
    for (size_t i = 0; i < before; i++)
        if (list->nodes[i].role == node->role && mr_slice_equal(list->nodes[i].name, node->name) &&
            list->nodes[i].slots == node->slots)
            return &list->nodes[i];
    return NULL;
}

static void add_nodes(struct mr_req_node_list *outer, const struct mr_req_node_list *from)
{
    size_t before = outer->n;
    for (size_t i = 0; i < from->n; i++) {
        struct mr_node_info *known = find_node(outer, before, &from->nodes[i]);
        if (known == NULL) {
            outer->nodes[outer->n++] = from->nodes[i];
            continue;
        }
        known->in_hand += from->nodes[i].in_hand;
        known->busy += from->nodes[i].busy;
        if (from->nodes[i].last_beat_ms > known->last_beat_ms)
            known->last_beat_ms = from->nodes[i].last_beat_ms;
    }
}

static void show_terms(struct mr_req_node_list *list, const struct origin *origin)
{
    list->leader.term = shown_epoch(origin, list->leader.term);
    for (size_t i = 0; i < list->assignments_n; i++)
        list->assignments[i].term = shown_epoch(origin, list->assignments[i].term);
}

/* Who leads and what is assigned is said by the first of them, or by the one where we lead. */
static enum mr_err merge_nodes(struct fan *fan)
{
    struct mr_req_node_list *outer = OUTER(fan, mr_req_node_list);
    size_t all = 0;
    bool first = true;
    if (first_ok(fan) == NULL)
        return fan_worst(fan);
    for (size_t i = 0; i < fan->n; i++)
        all += INNER(&fan->parts[i], mr_req_node_list)->n;
    outer->n = 0;
    outer->nodes = mr_arena_calloc(&fan->outer->arena, all + 1, sizeof *outer->nodes);
    if (outer->nodes == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < fan->n; i++) {
        struct part *part = &fan->parts[i];
        struct mr_req_node_list *inner = INNER(part, mr_req_node_list);
        if (part_err(part) != MR_OK)
            continue;
        show_terms(inner, part->origin);
        if (first || (inner->assignments_n > 0 && outer->assignments_n == 0)) {
            outer->leader = inner->leader;
            outer->assignments = inner->assignments;
            outer->assignments_n = inner->assignments_n;
        }
        first = false;
        add_nodes(outer, inner);
        (void)take_over(fan, part);
    }
    return MR_OK;
}

static void add_stats(struct mr_stats *to, const struct mr_stats *from)
{
    static const size_t sums[] = {
        offsetof(struct mr_stats, tasks),           offsetof(struct mr_stats, memory_bytes),
        offsetof(struct mr_stats, disk_bytes),      offsetof(struct mr_stats, live_bytes),
        offsetof(struct mr_stats, segments),        offsetof(struct mr_stats, syncs),
        offsetof(struct mr_stats, records_damaged), offsetof(struct mr_stats, stale_refused),
        offsetof(struct mr_stats, deleted),         offsetof(struct mr_stats, expired),
        offsetof(struct mr_stats, gathered),        offsetof(struct mr_stats, carried),
        offsetof(struct mr_stats, moved),           offsetof(struct mr_stats, snapshots),
        offsetof(struct mr_stats, texts_dropped),   offsetof(struct mr_stats, results),
        offsetof(struct mr_stats, trimmed),         offsetof(struct mr_stats, quarantined),
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *(uint64_t *)((char *)to + sums[i]) += *(const uint64_t *)((const char *)from + sums[i]);
    to->sync_p50_us = max64(to->sync_p50_us, from->sync_p50_us);
    to->sync_p99_us = max64(to->sync_p99_us, from->sync_p99_us);
    to->disk_full |= from->disk_full;
    to->failed |= from->failed;
    to->upkeep |= from->upkeep;
    if (from->leaderless_ms > to->leaderless_ms)
        to->leaderless_ms = from->leaderless_ms;
}

static enum mr_err merge_stats(struct fan *fan)
{
    struct mr_stats *stats = &OUTER(fan, mr_req_stats)->stats;
    if (first_ok(fan) == NULL)
        return fan_worst(fan);
    *stats = (struct mr_stats){0};
    for (size_t i = 0; i < fan->n; i++)
        if (part_err(&fan->parts[i]) == MR_OK)
            add_stats(stats, &INNER(&fan->parts[i], mr_req_stats)->stats);
    return MR_OK;
}

/* ---- the table ------------------------------------------------------------------------------ */

const struct fan_kind fan_kinds[MR_OP_COUNT] = {
    [MR_OP_GET] = {sizeof(struct mr_req_get), is_ok, NULL, merge_get, true, false},
    [MR_OP_AWAIT] = {sizeof(struct mr_req_await), is_ok, fill_await, merge_await, true, true},
    [MR_OP_CONTROL] = {sizeof(struct mr_req_control), NULL, fill_control, merge_control, true,
                       false},
    [MR_OP_QUEUE_LIST] = {sizeof(struct mr_req_queue_list), NULL, fill_queue_list, merge_queue_list,
                          false, false},
    [MR_OP_QUEUE_HISTORY] = {sizeof(struct mr_req_queue_history), NULL, fill_history, merge_history,
                             false, false},
    [MR_OP_QUEUE_SET] = {sizeof(struct mr_req_queue_set), NULL, NULL, merge_change, false, false},
    [MR_OP_QUEUE_REMOVE] = {sizeof(struct mr_req_queue_remove), NULL, NULL, merge_change, false,
                            false},
    [MR_OP_QUEUE_LIMITS] = {sizeof(struct mr_req_queue_limits), NULL, fill_limits, merge_limits,
                            true, false},
    [MR_OP_NODE_LIST] = {sizeof(struct mr_req_node_list), NULL, NULL, merge_nodes, false, false},
    [MR_OP_STATS] = {sizeof(struct mr_req_stats), NULL, NULL, merge_stats, false, false},
};
