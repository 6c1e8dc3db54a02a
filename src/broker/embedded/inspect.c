/* SPDX-License-Identifier: Apache-2.0 */
/* What people look at: tasks, pages of tasks, queues, figures. Answers are copies in the request's
 * arena. */
#include <stdio.h>
#include <stdlib.h>

#include "broker/embedded/engine.h"

enum {
    LIST_DEFAULT = 50,
    OLDEST_LOOK = 64, /* tasks at the head of a queue whose age is looked at */
    SCAN_MAX = 20000, /* tasks looked at for one page: a rare type does not stop the engine */
    PAGE_BYTES = 4 * 1024 * 1024, /* of a page, unless a single task is bigger */
};

/* ---- one task ------------------------------------------------------------------------------- */

/* The message and its headers as a copy; slices of the task point into it. */
static enum mr_err copy_message(struct mr_engine *engine, const struct task *task,
                                bool with_payload, struct mr_arena *arena, struct mr_task *out)
{
    struct mr_task_msg msg;
    struct mr_slice bytes, copy;
    char *text = mr_arena_alloc(arena, MR_UUID_TEXT_LEN + 1);
    if (text == NULL)
        return MR_NOMEM;
    MR_TRY(read_message(engine, task, &out->created_ms, &msg, &bytes));
    if (!with_payload)
        bytes.len -= msg.payload.len; /* it stands last */
    MR_TRY(mr_arena_copy(arena, bytes, &copy));
    ptrdiff_t moved = (const uint8_t *)copy.data - (const uint8_t *)bytes.data;
    struct mr_slice *slices[] = {&msg.queue,      &msg.type,  &msg.id,    &msg.payload,
                                 &msg.unique_key, &msg.group, &msg.topic, &msg.headers};
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
        if (slices[i]->len > 0)
            slices[i]->data = (const uint8_t *)slices[i]->data + moved;
    if (!with_payload)
        msg.payload = mr_slice_make(NULL, 0);
    if (msg.headers_n > 0) {
        struct mr_header *headers = mr_arena_calloc(arena, msg.headers_n, sizeof *headers);
        if (headers == NULL)
            return MR_NOMEM;
        mr_task_msg_headers(&msg, headers);
        out->headers = headers;
        out->headers_n = msg.headers_n;
    }
    return message_fill(&msg, &task->id, task->flags & MR_TASK_UUID, text, out);
}

/* The last result or error: the record says which. */
static enum mr_err copy_note(struct mr_engine *engine, const struct more *more,
                             struct mr_arena *arena, struct mr_task *out)
{
    if (more->note_size == 0)
        return MR_OK;
    struct mr_record record;
    struct mr_event_change change;
    enum mr_err err = mr_log_read(engine->log, more->note, more->note_size, &record);
    if (err == MR_OK)
        err = mr_event_change_decode(record.body, &change);
    if (err == MR_DAMAGED) {
        out->last_error = MR_SLICE_LIT("(the record of the last outcome is damaged)");
        return MR_OK;
    }
    MR_TRY(err);
    struct mr_slice text;
    MR_TRY(mr_arena_copy(arena, change.text, &text));
    if (change.state == MR_COMPLETED && !change.dropped)
        out->result = text;
    else
        out->last_error = text;
    return MR_OK;
}

static enum mr_err copy_more(struct mr_engine *engine, const struct task *task,
                             struct mr_arena *arena, struct mr_task *out)
{
    const struct more *more = more_of(&engine->state, task);
    if (more == NULL)
        return MR_OK;
    out->epoch = more->epoch;
    out->started_ms = task->state == MR_ACTIVE || more->finished_ms ? more->started_ms : 0;
    out->finished_ms = more->finished_ms;
    out->last_failed_ms = more->failed_ms;
    if (task->flags & MR_TASK_REORDERED)
        out->priority_s = (double)more->priority_ms / 1000.0;
    if (task->state != MR_PENDING && more->order_ms != 0)
        out->order_time_ms = more->order_ms;
    if (task->state == MR_ACTIVE && more->node != 0) {
        const char *name = engine->nodes_by_number[more->node]->name;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(name, strlen(name)), &out->node));
    }
    if (more->percent >= 0) {
        char text[8 + MR_PROGRESS_TEXT_MAX];
        int len = snprintf(text, sizeof text, "%d%s%s", (int)more->percent,
                           more->progress ? " " : "", more->progress ? more->progress : "");
        size_t used = (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(text, used), &out->progress));
    }
    return copy_note(engine, more, arena, out);
}

/* A task whose record is damaged is shown with what the index knows. */
static enum mr_err copy_damaged(struct mr_engine *engine, const struct task *task,
                                struct mr_arena *arena, struct mr_task *out)
{
    char text[2 * sizeof task->id.bytes + 1];
    if (task->flags & MR_TASK_UUID) {
        char uuid[MR_UUID_TEXT_LEN + 1];
        mr_uuid_format(&task->id, uuid);
        MR_TRY(mr_arena_copy(arena, mr_slice_make(uuid, MR_UUID_TEXT_LEN), &out->id));
    } else {
        for (size_t i = 0; i < sizeof task->id.bytes; i++)
            snprintf(text + 2 * i, 3, "%02x", task->id.bytes[i]);
        MR_TRY(mr_arena_copy(arena, mr_slice_make(text, sizeof text - 1), &out->id));
    }
    const struct queue *queue = queue_of(&engine->state, task);
    MR_TRY(mr_arena_copy(arena, mr_slice_make(queue->name, queue->name_len), &out->queue));
    out->max_retry = task->max_retry;
    return MR_OK;
}

static enum mr_err copy_task(struct mr_engine *engine, uint32_t handle, bool with_payload,
                             struct mr_arena *arena, struct mr_task *ret_task)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_task out = {.state = task->state};
    bool by_due = task->state == MR_SCHEDULED || task->state == MR_RETRY;
    out.order_time_ms = task->key;
    out.due_ms = by_due ? task->key : 0;
    out.retried = task->retried;
    out.crashes = task->crashes;
    out.attempt = 1u + task->retried + task->crashes;
    out.cancel_requested = task->flags & MR_TASK_CANCEL;
    enum mr_err err = copy_message(engine, task, with_payload, arena, &out);
    if (err == MR_DAMAGED)
        err = copy_damaged(engine, task, arena, &out);
    MR_TRY(err);
    MR_TRY(copy_more(engine, task, arena, &out));
    *ret_task = out;
    return MR_OK;
}

enum handled handle_get(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_get *req = mr_container(base, struct mr_req_get, req);
    bool is_uuid;
    struct mr_uuid id = id_key(&engine->state, req->id, &is_uuid);
    uint32_t handle = find_task(&engine->state, &id);
    enum mr_err err = MR_NOT_FOUND;
    bool undecided = handle != NO_HANDLE && mr_log_failure(engine->log) != MR_OK &&
                     (task_at(&engine->state, handle)->flags & TASK_LIMBO);
    if (undecided)
        err = MR_IO; /* its last change will never be durable here */
    else if (handle != NO_HANDLE)
        err = copy_task(engine, handle, true, &base->arena, &req->task);
    answer(engine, base, err);
    return HANDLED;
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* Where a page begins: a set, and a place in it. As text: queue.state.key.tie */
struct cursor {
    uint32_t queue;
    unsigned state;
    int64_t key;
    uint64_t tie;
};

static enum mr_err cursor_parse(const char *text, struct cursor *ret_cursor)
{
    *ret_cursor = (struct cursor){.state = 1, .key = INT64_MIN};
    if (text == NULL || text[0] == '\0')
        return MR_OK;
    int used = 0;
    unsigned queue, state;
    long long key;
    unsigned long long tie;
    if (strlen(text) >= MR_CURSOR_MAX ||
        sscanf(text, "%u.%u.%lld.%llu%n", &queue, &state, &key, &tie, &used) != 4 ||
        text[used] != '\0' || state == 0 || state > MR_STATE_COUNT)
        return MR_INVALID;
    *ret_cursor = (struct cursor){queue, state, key, tie};
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
    page->full = req->n > 0 && page->bytes + cost > PAGE_BYTES;
    if (page->full)
        return MR_OK;
    page->bytes += cost;
    MR_TRY(copy_task(page->engine, handle, req->options.with_payload, &req->req.arena,
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
    return (page->only == NULL || page->only == queue) && (only == MR_STATE_NONE || only == state);
}

static enum mr_err page_fill(struct page *page)
{
    const struct state *state = &page->engine->state;
    while (page->at.queue < state->queues_n) {
        const struct queue *queue = state->queues[page->at.queue];
        for (; queue != NULL && page->at.state < MR_STATE_COUNT; page->at.state++) {
            if (page_wants(page, queue, page->at.state))
                MR_TRY(page_set(page, &queue->sets[page->at.state]));
            if (page->full)
                return MR_OK;
            page->at.key = INT64_MIN;
            page->at.tie = 0;
        }
        page->at = (struct cursor){.queue = page->at.queue + 1, .state = 1, .key = INT64_MIN};
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
    if (options->queue.len > 0 && (page.only = find_queue(&engine->state, options->queue)) == NULL)
        return MR_NOT_FOUND;
    req->tasks = mr_arena_calloc(&req->req.arena, page.limit + 1, sizeof *req->tasks);
    if (req->tasks == NULL)
        return MR_NOMEM;
    MR_TRY(page_fill(&page));
    if (page.full)
        snprintf(req->next, sizeof req->next, "%u.%u.%lld.%llu", page.at.queue, page.at.state,
                 (long long)page.at.key, (unsigned long long)page.at.tie);
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

static void queue_info(struct mr_engine *engine, const struct queue *queue,
                       struct mr_queue_info *ret_info)
{
    const struct state *state = &engine->state;
    *ret_info = (struct mr_queue_info){
        .paused = queue->paused,
        .processed_total = queue->processed,
        .failed_total = queue->failed,
        .max_length = queue->max_length,
    };
    memcpy(ret_info->name, queue->name, queue->name_len + 1);
    memcpy(ret_info->counts, queue->counts, sizeof queue->counts);
    if (mr_log_failure(engine->log) != MR_OK) /* the changes under way will never be durable */
        for (size_t s = 0; s < MR_STATE_COUNT; s++)
            ret_info->counts[s] = queue->sets[s].count;
    const struct day *today = queue_day(queue, (int32_t)(engine->now_ms / MR_MS_PER_DAY));
    if (today != NULL) {
        ret_info->processed_today = today->processed;
        ret_info->failed_today = today->failed;
    }
    const struct order *pending = &queue->sets[MR_PENDING];
    struct order_at at = order_seek(pending, &state->tasks, INT64_MIN, 0);
    uint32_t handle;
    for (size_t i = 0; i < OLDEST_LOOK && (handle = order_next(pending, &at)) != NO_HANDLE; i++) {
        int64_t ms = waiting_ms(engine, task_at(state, handle));
        if (ms > ret_info->oldest_pending_ms)
            ret_info->oldest_pending_ms = ms;
    }
}

static int by_name(const void *a, const void *b)
{
    const struct queue *x = *(struct queue *const *)a, *y = *(struct queue *const *)b;
    return mr_slice_compare(mr_slice_make(x->name, x->name_len),
                            mr_slice_make(y->name, y->name_len));
}

static enum mr_err list_queues(struct mr_engine *engine, struct mr_req_queue_list *req)
{
    struct state *state = &engine->state;
    if (req->only.len > 0) {
        const struct queue *queue = find_queue(state, req->only);
        if (queue == NULL)
            return MR_NOT_FOUND;
        if (req->max == 0)
            return MR_INVALID;
        queue_info(engine, queue, &req->infos[0]);
        req->n = 1;
        return MR_OK;
    }
    size_t n = 0;
    const struct queue **sorted =
        mr_arena_calloc(&req->req.arena, (size_t)state->queues_n + 1, sizeof *sorted);
    if (sorted == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < state->queues_n; i++) {
        const struct queue *queue = state->queues[i];
        if (queue != NULL &&
            mr_slice_compare(mr_slice_make(queue->name, queue->name_len), req->after) > 0)
            sorted[n++] = queue;
    }
    qsort(sorted, n, sizeof *sorted, by_name);
    for (req->n = 0; req->n < n && req->n < req->max; req->n++)
        queue_info(engine, sorted[req->n], &req->infos[req->n]);
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
    const struct queue *queue = find_queue(&engine->state, req->queue);
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

/* ---- figures -------------------------------------------------------------------------------- */

/* Not here yet: answered like an engine that cannot do it. */
enum handled handle_await(struct mr_engine *engine, struct mr_req *base)
{
    (void)engine;
    answer_now(base, MR_UNSUPPORTED);
    return HANDLED;
}

enum handled handle_node_list(struct mr_engine *engine, struct mr_req *base)
{
    return handle_await(engine, base);
}

enum handled handle_stats(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_stats *req = mr_container(base, struct mr_req_stats, req);
    struct mr_log_figures log;
    mr_log_figures(engine->log, &log);
    req->stats = (struct mr_stats){
        .tasks = engine->state.tasks.count,
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
        .snapshots = engine->snapshots,
        .texts_dropped = engine->texts_dropped,
        .disk_full = mr_log_full(engine->log) != MR_OK || engine->spare.err != MR_OK,
        .failed = engine->failure != MR_OK || mr_log_failure(engine->log) != MR_OK,
        .upkeep = engine->snapshot != NULL || engine->compacting != 0,
    };
    answer_now(base, MR_OK);
    return HANDLED;
}
