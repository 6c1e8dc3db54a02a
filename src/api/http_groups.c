/* SPDX-License-Identifier: Apache-2.0 */
/* GET /dead/groups: the archive by what was wrong, so that a thousand tasks with one error are one line. */
#include <stdlib.h>

#include "api/http_scan.h"

enum {
    GROUPS_MAX = 200,
    SEEN_MAX = 20 * 1000, /* archived tasks that are looked at */
};

struct group {
    struct mr_slice error, queue, type, sample; /* in the arena */
    size_t count;
    int64_t first_ms, last_ms;
};

struct grouping {
    struct http_scan scan;
    struct mr_arena arena;
    struct group groups[GROUPS_MAX];
    size_t n;
    bool left_out; /* there are more groups than fit */
    enum mr_err err;
};

static void freed(struct http_call *call)
{
    struct grouping *grouping = call->data;
    mr_arena_done(&grouping->arena);
    free(grouping);
}

static int64_t ended_ms(const struct mr_task *task)
{
    return task->finished_ms > 0 ? task->finished_ms : task->last_failed_ms;
}

static struct group *group_of(struct grouping *grouping, const struct mr_task *task)
{
    struct mr_slice error = http_error_line(task);
    for (size_t i = 0; i < grouping->n; i++) {
        struct group *group = &grouping->groups[i];
        if (mr_slice_equal(group->error, error) && mr_slice_equal(group->queue, task->queue) &&
            mr_slice_equal(group->type, task->type))
            return group;
    }
    if (grouping->n == GROUPS_MAX)
        return NULL;
    struct group group = {.first_ms = ended_ms(task)};
    enum mr_err err = mr_arena_copy(&grouping->arena, error, &group.error);
    if (err == MR_OK)
        err = mr_arena_copy(&grouping->arena, task->queue, &group.queue);
    if (err == MR_OK)
        err = mr_arena_copy(&grouping->arena, task->type, &group.type);
    if (err == MR_OK)
        err = mr_arena_copy(&grouping->arena, task->id, &group.sample);
    grouping->err = err;
    if (err != MR_OK)
        return NULL;
    grouping->groups[grouping->n] = group;
    return &grouping->groups[grouping->n++];
}

static bool found(struct http_call *call, const struct mr_task *task)
{
    struct grouping *grouping = call->data;
    struct group *group = group_of(grouping, task);
    int64_t ms = ended_ms(task);
    grouping->left_out = grouping->left_out || group == NULL;
    if (group == NULL)
        return grouping->err == MR_OK;
    group->count++;
    group->first_ms = ms < group->first_ms ? ms : group->first_ms;
    group->last_ms = ms > group->last_ms ? ms : group->last_ms;
    return true;
}

/* The largest first, of the same size the newest. */
static int compare(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return (x->last_ms < y->last_ms) - (x->last_ms > y->last_ms);
}

static void over(struct http_call *call)
{
    struct grouping *grouping = call->data;
    struct jw jw = {0};
    if (grouping->err != MR_OK) {
        http_call_fail(call, grouping->err, "%s", mr_err_text(grouping->err));
        return;
    }
    qsort(grouping->groups, grouping->n, sizeof *grouping->groups, compare);
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "items");
    for (size_t i = 0; i < grouping->n; i++) {
        const struct group *group = &grouping->groups[i];
        jw_object_begin(&jw, NULL);
        jw_bytes(&jw, "error", group->error);
        jw_bytes(&jw, "queue", group->queue);
        jw_bytes(&jw, "type", group->type);
        jw_uint(&jw, "count", group->count);
        jw_int(&jw, "first_ms", group->first_ms);
        jw_int(&jw, "last_ms", group->last_ms);
        jw_bytes(&jw, "sample_id", group->sample);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    jw_null(&jw, "next");
    jw_bool(&jw, "more", grouping->scan.more || grouping->left_out);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

void http_dead_groups(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    if (call == NULL)
        return;
    struct grouping *grouping = calloc(1, sizeof *grouping);
    if (grouping == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    call->data = grouping;
    call->freed = freed;
    struct mr_slice queue = http_query(call, "queue");
    if (queue.len > 0 && (!http_read_name(call, "queue", queue) || !http_may_touch(call, queue)))
        return;
    grouping->scan.options.queue = queue;
    grouping->scan.options.state = MR_ARCHIVED;
    grouping->scan.seen_max = SEEN_MAX;
    grouping->scan.found = found;
    grouping->scan.over = over;
    http_scan(call, &grouping->scan);
}
