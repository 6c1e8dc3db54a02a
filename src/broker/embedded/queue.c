/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: their numbers, settings and counters. A removed queue's number is used again only when
 * all are taken. */
#include <stdlib.h>

#include "broker/embedded/state_internal.h"
#include "broker/result.h"

void queue_free(struct queue *queue)
{
    if (queue == NULL)
        return;
    for (size_t s = 0; s < MR_STATE_COUNT; s++)
        order_done(&queue->sets[s]);
    for (size_t i = 0; i < queue->parts_n; i++)
        order_done(&queue->parts[i].pending);
    free(queue->parts);
    mr_list_remove(&queue->ready);
    mr_list_remove(&queue->riper);
    for (size_t by = 0; by < RIPE_BY; by++)
        mr_heap_done(&queue->ripe[by]);
    free(queue->days);
    mr_limits_done(&queue->limits);
    free(queue->limits_bytes);
    latency_free(queue->latency);
    free(queue);
}

static enum mr_err numbers_reserve(struct state *state, uint32_t number)
{
    if (number < state->queues_cap)
        return MR_OK;
    uint32_t cap = state->queues_cap ? state->queues_cap : 16;
    while (cap <= number)
        cap *= 2;
    struct queue **grown = realloc(state->queues, cap * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    memset(grown + state->queues_cap, 0, (cap - state->queues_cap) * sizeof *grown);
    state->queues = grown;
    state->queues_cap = cap;
    return MR_OK;
}

uint32_t queue_free_number(const struct state *state)
{
    uint32_t number = state->queues_n;
    for (uint32_t i = 0; number >= QUEUES_MAX && i < state->queues_n; i++)
        if (state->queues[i] == NULL)
            number = i;
    return number;
}

static void unsort(struct state *state)
{
    free(state->sorted);
    state->sorted = NULL;
}

/* ---- partitions ----------------------------------------------------------------------------- */

static enum mr_err parts_add(struct queue *queue, uint8_t n)
{
    struct partition *grown = realloc(queue->parts, n * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    memset(grown + queue->parts_n, 0, (size_t)(n - queue->parts_n) * sizeof *grown);
    queue->parts = grown;
    queue->parts_n = n;
    return MR_OK;
}

static enum mr_err task_move(struct state *state, uint32_t handle, uint8_t part)
{
    struct task *task = task_at(state, handle);
    bool in_line = task->state == MR_PENDING && !task->limbo && !(task->flags & MR_TASK_HELD);
    state->touch(handle, state->touch_arg);
    if (in_line)
        set_leave(state, handle);
    count_task(state, task, task->state, -1);
    task->part = part;
    count_task(state, task, task->state, 1);
    return in_line ? set_enter(state, handle) : MR_OK;
}

/* What is in those that go moves to those that stay: of one into the same, so that its order holds. */
static enum mr_err parts_remove(struct state *state, struct queue *queue, uint8_t n)
{
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        if (task->state != MR_STATE_NONE && task->queue == queue->number && task->part >= n)
            MR_TRY(task_move(state, i, task->part % n));
    }
    for (size_t i = n; i < queue->parts_n; i++)
        order_done(&queue->parts[i].pending);
    queue->parts_n = n;
    return MR_OK;
}

static enum mr_err parts_set(struct state *state, struct queue *queue, uint8_t n)
{
    if (n == queue->parts_n)
        return MR_OK;
    return n > queue->parts_n ? parts_add(queue, n) : parts_remove(state, queue, n);
}

/* ---- a queue comes -------------------------------------------------------------------------- */

static enum mr_err queue_new(struct state *state, const struct mr_event_queue *event,
                             struct queue **ret_queue)
{
    if (event->number >= QUEUES_MAX)
        return MR_DAMAGED;
    MR_TRY(numbers_reserve(state, event->number));
    struct queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return MR_NOMEM;
    queue->number = (uint16_t)event->number;
    queue->name_len = event->name.len;
    memcpy(queue->name, event->name.data, event->name.len);
    queue->results = mr_result_topic(event->name).len > 0;
    queue->inner = mr_queue_is_inner(event->name);
    mr_list_init(&queue->waiters);
    mr_list_init(&queue->ready);
    mr_list_init(&queue->gathers);
    mr_list_init(&queue->riper);
    mr_list_init(&queue->addressed);
    queue->due.index = SIZE_MAX;
    state->queues[event->number] = queue;
    enum mr_err err = parts_add(queue, 1);
    if (err == MR_OK)
        err = mr_map_insert(state->by_name, queue_name_hash(state, event->name), event->number);
    if (err != MR_OK) {
        state->queues[event->number] = NULL;
        queue_free(queue);
        return err;
    }
    if (event->number >= state->queues_n)
        state->queues_n = event->number + 1;
    if (!queue->results && memchr(queue->name, '@', queue->name_len) != NULL)
        mr_list_push_back(&state->addressed, &queue->addressed);
    unsort(state);
    *ret_queue = queue;
    return MR_OK;
}

static enum mr_err settings_put(struct state *state, struct queue *queue,
                                struct mr_queue_settings settings)
{
    struct mr_limits limits = {0};
    uint8_t *bytes = settings.limits.len > 0 ? malloc(settings.limits.len) : NULL;
    if (settings.limits.len > 0 && bytes == NULL)
        return MR_NOMEM;
    enum mr_err err = mr_limits_decode(settings.limits, &limits);
    if (err != MR_OK) {
        free(bytes);
        return err;
    }
    if (bytes != NULL)
        memcpy(bytes, settings.limits.data, settings.limits.len);
    mr_limits_keep(&limits, &queue->limits);
    if (settings.taken_ms < queue->settings.taken_ms)
        settings.taken_ms = queue->settings.taken_ms;
    settings.limits.data = bytes;
    state->limits_bytes += settings.limits.len;
    state->limits_bytes -= queue->settings.limits.len;
    mr_limits_done(&queue->limits);
    free(queue->limits_bytes);
    queue->limits = limits;
    queue->limits_bytes = bytes;
    queue->settings = settings;
    return MR_OK;
}

enum mr_err queue_put(struct state *state, const struct mr_event_queue *event,
                      struct queue **ret_queue)
{
    bool known = event->number < state->queues_n && state->queues[event->number] != NULL;
    struct queue *queue = known ? state->queues[event->number] : NULL;
    struct queue *same_name = find_queue(state, event->name);
    if (same_name != queue)
        return MR_DAMAGED;
    struct mr_queue_settings settings;
    MR_TRY(mr_queue_settings_decode(event->settings, &settings));
    if (queue == NULL)
        MR_TRY(queue_new(state, event, &queue));
    queue->paused = event->paused != 0;
    queue->max_length = event->max_length;
    queue->assign = event->assign;
    MR_TRY(parts_set(state, queue, (uint8_t)(event->more_parts + 1)));
    MR_TRY(settings_put(state, queue, settings));
    *ret_queue = queue;
    return MR_OK;
}

/* Its waiters have been moved off by the caller. Its tasks go with it, counted; what had expired by
 * then, and only a replay still has, as expired. */
void queue_drop(struct state *state, struct queue *queue, int64_t now_ms)
{
    for (uint32_t i = 0; i < state->tasks.used; i++) {
        const struct task *task = task_at(state, i);
        if (task->state == MR_STATE_NONE || task->queue != queue->number)
            continue;
        bool held = task->flags & MR_TASK_HELD; /* no time passes for it */
        if (task->state == MR_COMPLETED && !held && task->key <= now_ms)
            state->expired++;
        else
            state->deleted++;
        task_release(state, i);
    }
    struct mr_slice name = mr_slice_make(queue->name, queue->name_len);
    mr_map_remove(state->by_name, queue_name_hash(state, name), queue->number);
    state->queues[queue->number] = NULL;
    state->limits_bytes -= queue->settings.limits.len;
    unsort(state);
    if (queue->due.index != SIZE_MAX)
        mr_heap_remove(&state->due, &queue->due);
    mr_list_remove(&queue->addressed);
    queue_free(queue);
}

static int by_name(const void *a, const void *b)
{
    const struct queue *x = *(struct queue *const *)a, *y = *(struct queue *const *)b;
    return mr_slice_compare(mr_slice_make(x->name, x->name_len),
                            mr_slice_make(y->name, y->name_len));
}

static enum mr_err sort(struct state *state)
{
    if (state->sorted != NULL)
        return MR_OK;
    state->sorted = calloc((size_t)state->queues_n + 1, sizeof *state->sorted);
    if (state->sorted == NULL)
        return MR_NOMEM;
    state->sorted_n = 0;
    for (uint32_t i = 0; i < state->queues_n; i++)
        if (state->queues[i] != NULL && !state->queues[i]->results && !state->queues[i]->inner)
            state->sorted[state->sorted_n++] = state->queues[i];
    qsort(state->sorted, state->sorted_n, sizeof *state->sorted, by_name);
    return MR_OK;
}

enum mr_err queues_after(struct state *state, struct mr_slice name, size_t *ret_first)
{
    MR_TRY(sort(state));
    size_t low = 0, high = state->sorted_n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct queue *queue = state->sorted[middle];
        if (mr_slice_compare(mr_slice_make(queue->name, queue->name_len), name) > 0)
            high = middle;
        else
            low = middle + 1;
    }
    *ret_first = low;
    return MR_OK;
}

struct day *queue_day(const struct queue *queue, int32_t day)
{
    size_t i = queue->days_n;
    while (i > 0 && queue->days[i - 1].day > day)
        i--;
    return i > 0 && queue->days[i - 1].day == day ? &queue->days[i - 1] : NULL;
}

enum mr_err queue_add_day(struct queue *queue, const struct day *day)
{
    if (queue->days_n == DAYS_KEPT && day->day < queue->days[0].day)
        return MR_OK; /* longer ago than is kept */
    if (queue->days_n == DAYS_KEPT) {
        memmove(queue->days, queue->days + 1, (DAYS_KEPT - 1) * sizeof *queue->days);
        queue->days_n--;
    }
    if (queue->days_n == queue->days_cap) {
        size_t cap = queue->days_cap ? 2 * queue->days_cap : 4;
        struct day *grown = realloc(queue->days, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        queue->days = grown;
        queue->days_cap = cap;
    }
    size_t i = queue->days_n++;
    for (; i > 0 && queue->days[i - 1].day > day->day;
         i--) /* a clock was ahead, and was set back */
        queue->days[i] = queue->days[i - 1];
    queue->days[i] = *day;
    return MR_OK;
}

enum mr_err queue_count_run(struct queue *queue, int64_t ms, bool failed)
{
    int32_t today = (int32_t)(ms / MR_MS_PER_DAY);
    if (queue_day(queue, today) == NULL)
        MR_TRY(queue_add_day(queue, &(struct day){.day = today}));
    struct day *day = queue_day(queue, today);
    if (day != NULL) {
        day->processed++;
        day->failed += failed;
    }
    queue->processed++;
    queue->failed += failed;
    return MR_OK;
}
