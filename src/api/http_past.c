/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /tasks/ID/events: what became of a task, in the order of time. What its own fields say (it came, it is due, the run it is in or
 * ended with, its end), and what the broker remembers of it (broker/past.h): earlier runs and what people did. How many runs there
 * were the task counts itself, so what is missing among them is known, and told.
 */
#include <stdlib.h>

#include "api/http_internal.h"
#include "broker/past.h"

enum { EVENTS_MAX = 2 * MR_PAST_MAX + 8 };

/* Times that are equal stay in the order in which they were added. */
struct event {
    int64_t ms;
    size_t number;
    struct mr_slice what, node, text;
    uint32_t attempt; /* 0: it is about no run */
};

struct events {
    struct event at[EVENTS_MAX];
    size_t n;
};

static void add(struct events *events, struct event event)
{
    mr_assert(events->n < EVENTS_MAX);
    event.number = events->n;
    events->at[events->n++] = event;
}

static int compare(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    if (x->ms != y->ms)
        return x->ms < y->ms ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Runs that are told of. */
struct runs {
    uint32_t last;
    uint32_t known; /* of those since the counts began anew, each once */
};

/* A number that is smaller than the one before is of runs that were counted anew. One that was put off keeps its number. */
static void count(struct runs *runs, const struct mr_past *past)
{
    if (past->attempt == 0 || mr_slice_equal(past->what, MR_SLICE_LIT("later")))
        return;
    bool anew = past->attempt <= runs->last;
    runs->known = anew ? 1 : runs->known + 1;
    runs->last = past->attempt;
}

static void add_run(struct events *events, const struct mr_past *past)
{
    if (past->started_ms > 0)
        add(events, (struct event){.ms = past->started_ms,
                                   .what = MR_SLICE_LIT("started"),
                                   .attempt = past->attempt,
                                   .node = past->node});
    add(events, (struct event){.ms = past->ms,
                               .what = past->what,
                               .attempt = past->attempt,
                               .node = past->node,
                               .text = past->text});
}

/* What the task itself says of its last failure, where the broker remembers none of that time (a Go worker's is in seconds). */
static void add_own_failure(struct events *events, const struct mr_task *task, int64_t failed_ms,
                            struct runs *runs)
{
    struct mr_past past = {.ms = task->last_failed_ms,
                           .attempt = task->attempt - (task->state != MR_ARCHIVED),
                           .what = MR_SLICE_LIT("error"),
                           .text = task->last_error};
    if (past.ms / MR_MS_PER_S <= failed_ms / MR_MS_PER_S || past.attempt == 0)
        return;
    past.text.len = mr_utf8_cut(past.text, MR_PAST_TEXT_MAX);
    count(runs, &past);
    add_run(events, &past);
}

/* Answers how many of its runs nobody knows of. */
static uint32_t add_past(struct events *events, const struct mr_task *task, int64_t *ret_started_ms)
{
    struct mr_slice rest = task->past;
    struct mr_past past;
    struct runs runs = {0};
    int64_t failed_ms = 0;
    for (size_t i = 0; i < MR_PAST_MAX && mr_past_next(&rest, &past); i++) {
        add_run(events, &past);
        count(&runs, &past);
        *ret_started_ms = past.started_ms > 0 ? past.started_ms : *ret_started_ms;
        failed_ms = past.attempt > 0 ? past.ms : failed_ms;
    }
    add_own_failure(events, task, failed_ms, &runs);
    uint32_t before = task->attempt - 1; /* runs that ended, and were tried again */
    if (runs.last > before)
        runs.known -=
            runs.known > 0; /* the last one, which was its end; or of counts before these */
    return runs.known < before ? before - runs.known : 0;
}

static uint32_t gather(struct events *events, const struct mr_task *task)
{
    bool ended = task->state == MR_COMPLETED || task->state == MR_ARCHIVED;
    int64_t started_ms = 0;
    add(events, (struct event){
                    .ms = task->created_ms, .what = MR_SLICE_LIT("enqueued"), .text = task->queue});
    uint32_t missing = add_past(events, task, &started_ms);
    if (task->due_ms > 0)
        add(events, (struct event){.ms = task->due_ms, .what = MR_SLICE_LIT("due")});
    if (task->started_ms > started_ms && (ended || task->state == MR_ACTIVE) && !task->held)
        add(events, (struct event){.ms = task->started_ms,
                                   .what = MR_SLICE_LIT("started"),
                                   .attempt = task->attempt,
                                   .node = task->node});
    if (ended)
        add(events, (struct event){.ms = task->finished_ms,
                                   .what = mr_slice_str(mr_state_name(task->state))});
    qsort(events->at, events->n, sizeof *events->at, compare);
    return missing;
}

static void write_event(struct jw *jw, const struct event *event)
{
    jw_object_begin(jw, NULL);
    jw_int(jw, "ms", event->ms);
    jw_bytes(jw, "event", event->what);
    if (event->attempt > 0)
        jw_uint(jw, "attempt", event->attempt);
    if (event->node.len > 0)
        jw_bytes(jw, "node", event->node);
    if (event->text.len > 0)
        jw_bytes(jw, "text", event->text);
    jw_object_end(jw);
}

static void back(struct http_call *call)
{
    const struct mr_task *task = &call->req.get.task;
    struct events events = {.n = 0};
    struct jw jw = {0};
    if (!http_may_touch(call, task->queue))
        return;
    uint32_t missing = gather(&events, task);
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "items");
    for (size_t i = 0; i < events.n; i++)
        write_event(&jw, &events.at[i]);
    jw_array_end(&jw);
    jw_null(&jw, "next");
    jw_uint(&jw, "missing", missing);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

void http_task_events(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    if (call == NULL)
        return;
    call->req.get.id = call->about;
    mr_detail_set(&call->detail, "task %.*s", (int)call->about.len, (const char *)call->about.data);
    http_call_submit(call, MR_OP_GET, back);
}
