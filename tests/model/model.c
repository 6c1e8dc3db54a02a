/* SPDX-License-Identifier: Apache-2.0 */
/* The naive model: see model.h. Every loop here goes over everything; nothing is kept twice. */
#include "model/model.h"

#include <stdio.h>

const char *const model_queue_names[MODEL_QUEUES] = {"default", "mail", "slow", "\xc3\xbc\x62rig"};
const char *const model_type_names[MODEL_TYPES] = {"task", "mail:send"};

/* ---- small things --------------------------------------------------------------------------- */

void model_remove(struct model *model, struct model_task *task)
{
    size_t at = (size_t)(task - model->tasks);
    memmove(task, task + 1, (--model->tasks_n - at) * sizeof *task);
}

struct model_task *model_find(struct model *model, struct mr_slice id)
{
    for (size_t i = 0; i < model->tasks_n; i++)
        if (mr_slice_equal(mr_slice_str(model->tasks[i].id), id))
            return &model->tasks[i];
    return NULL;
}

struct model_task *model_holder(struct model *model, unsigned queue, unsigned unique)
{
    for (size_t i = 0; i < model->tasks_n; i++)
        if (unique != 0 && model->tasks[i].unique == unique && model->tasks[i].queue == queue &&
            model->tasks[i].unique_until_ms > model->now_ms)
            return &model->tasks[i];
    return NULL;
}

uint64_t model_count(const struct model *model, unsigned queue, enum mr_state state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < model->tasks_n; i++)
        n += model->tasks[i].queue == queue && model->tasks[i].state == state;
    return n;
}

uint64_t model_held(const struct model *model, unsigned queue, enum mr_state state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < model->tasks_n; i++)
        n += model->tasks[i].queue == queue && model->tasks[i].held &&
             (state == MR_STATE_NONE || model->tasks[i].state == state);
    return n;
}

void model_carried(struct model *model, struct model_task *task)
{
    struct model_task carried = *task;
    bool over = carried.unique_until_ms <= model->now_ms;
    model_remove(model, task);
    carried.seq = ++model->last_seq;
    carried.held = true;
    carried.part = MODEL_PARTS; /* nowhere yet */
    carried.partition = 0;
    if (over) /* nobody can say which key it had */
        carried.unique = carried.unique_said = 0;
    model->tasks[model->tasks_n++] = carried;
}

static bool is_waiting(const struct model_task *task)
{
    return task->state == MR_SCHEDULED || task->state == MR_PENDING || task->state == MR_RETRY;
}

static void count_run(struct model *model, unsigned queue, bool failed)
{
    struct model_queue *q = &model->queues[queue];
    int64_t day = model->now_ms / MR_MS_PER_DAY;
    if (q->day != day) {
        q->day = day;
        q->processed_day = q->failed_day = 0;
    }
    q->processed++;
    q->processed_day++;
    q->failed += failed;
    q->failed_day += failed;
}

/* why: what is kept as the reason; NULL leaves what is there. */
static void archive(struct model *model, struct model_task *task, const char *why)
{
    if (why != NULL)
        (void)snprintf(task->last_error, sizeof task->last_error, "%s", why);
    task->state = MR_ARCHIVED;
    task->finished_ms = model->now_ms;
    task->unique = 0;
}

static void wait_until(struct model_task *task, enum mr_state state, int64_t due_ms,
                       int64_t order_ms)
{
    task->state = state;
    task->due_ms = due_ms;
    task->order_ms = order_ms;
}

void model_payload(uint32_t seed, uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

/* ---- time and nodes ------------------------------------------------------------------------- */

/* attempt: of the run; the task is as the run has left it, or NULL: gone. */
static void leave(struct model *model, const struct model_task *before,
                  const struct model_task *after, enum mr_result_outcome outcome, const char *text)
{
    mr_assert(model->results_n < MODEL_RESULTS_MAX);
    struct model_result *result = &model->results[model->results_n++];
    *result = (struct model_result){
        .outcome = outcome,
        .attempt = 1 + before->retried + before->crashes,
        .final = after == NULL || after->state == MR_ARCHIVED || after->state == MR_COMPLETED,
        .cancel = before->cancel,
    };
    memcpy(result->id, before->id, sizeof result->id);
    (void)snprintf(result->text, sizeof result->text, "%s", text);
}

static bool same_result(const struct model_result *want, const struct mr_result *got)
{
    struct mr_slice text = got->outcome == MR_RESULT_OK ? got->result : got->error;
    return mr_slice_equal(got->task_id, mr_slice_str(want->id)) && got->attempt == want->attempt &&
           got->outcome == want->outcome && got->final == want->final &&
           got->cancel_requested == want->cancel &&
           (want->text[0] == '\0' || mr_slice_equal(text, mr_slice_str(want->text)));
}

struct model_result *model_result(struct model *model, const struct mr_result *got)
{
    for (size_t i = 0; i < model->results_n; i++)
        if (same_result(&model->results[i], got))
            return &model->results[i];
    return NULL;
}

void model_commit(struct model *model, struct model_result *result)
{
    *result = model->results[--model->results_n];
}

/* The lease of an active task ended without a finish. */
static void lease_lost(struct model *model, struct model_task *task, bool begun)
{
    const struct model_task before = *task;
    task->state = MR_PENDING;
    task->crashes += begun;
    if (begun && task->crashes >= MR_CRASHES_MAX)
        archive(model, task, "quarantined: its worker was lost 3 times while running it");
    else if (task->cancel)
        archive(model, task, "cancelled");
    if (task->topic && (begun || task->state == MR_ARCHIVED))
        leave(model, &before, task, begun ? MR_RESULT_LOST : MR_RESULT_CANCELLED, "");
}

static bool has_begun(const struct model *model, const struct model_task *task)
{
    bool begun = false;
    for (size_t s = 0; task->state == MR_ACTIVE && s < MODEL_SLOTS; s++)
        begun |= model->nodes[task->node].slots[s] == task->epoch;
    return begun;
}

void model_node_lost(struct model *model, int index)
{
    for (size_t i = 0; i < model->tasks_n; i++) {
        struct model_task *task = &model->tasks[i];
        if (task->state == MR_ACTIVE && task->node == index)
            lease_lost(model, task, has_begun(model, task));
    }
    model->nodes[index].open = false;
}

void model_crashed(struct model *model, struct model_task *task)
{
    lease_lost(model, task, true);
}

void model_restarted(struct model *model, enum model_death death)
{
    for (int i = 0; i < MODEL_NODES; i++) {
        if (death == MODEL_POWER_CUT)
            memset(model->nodes[i].slots, 0, sizeof model->nodes[i].slots);
        if (model->nodes[i].open)
            model_node_lost(model, i);
    }
    for (size_t i = 0; i < model->tasks_n; i++)
        model->tasks[i].set = 0;
    for (unsigned i = 0; i < MODEL_QUEUES; i++) {
        model_parts_restarted(model, i);
        model_limits_restarted(model, i, death);
    }
    model->stale = 0;
}

/* Whether it becomes pending by the passing of time. */
static bool waits_for_time(const struct model *model, const struct model_task *task)
{
    const struct model_queue *queue = &model->queues[task->queue];
    bool class = queue->retry_mode == MR_RETRY_CLASS && task->due_ms > queue->class_since_ms;
    return task->state == MR_SCHEDULED || (task->state == MR_RETRY && !class);
}

/* When the next thing falls due; INT64_MAX for never. */
static int64_t next_due(const struct model *model)
{
    int64_t next = INT64_MAX;
    for (size_t i = 0; i < model->tasks_n; i++) {
        const struct model_task *task = &model->tasks[i];
        int64_t due = task->held                    ? INT64_MAX
                      : task->set != 0              ? task->set_until_ms
                      : waits_for_time(model, task) ? task->due_ms
                      : task->state == MR_COMPLETED ? task->expires_ms
                                                    : INT64_MAX;
        next = due < next ? due : next;
    }
    for (size_t i = 0; i < MODEL_NODES; i++)
        if (model->nodes[i].open && model->nodes[i].dead_at_ms < next)
            next = model->nodes[i].dead_at_ms;
    return next;
}

static void happen(struct model *model)
{
    for (int i = 0; i < MODEL_NODES; i++)
        if (model->nodes[i].open && model->nodes[i].dead_at_ms <= model->now_ms)
            model_node_lost(model, i);
    for (size_t i = model->tasks_n; i-- > 0;) {
        struct model_task *task = &model->tasks[i];
        bool waits = waits_for_time(model, task);
        if (task->held)
            continue;
        if (task->set != 0 && task->set_until_ms <= model->now_ms)
            task->set = 0;
        if (waits && task->due_ms <= model->now_ms)
            task->state = MR_PENDING;
        if (task->state == MR_COMPLETED && task->expires_ms <= model->now_ms) {
            model->expired++;
            model_remove(model, task);
        }
    }
}

void model_advance(struct model *model, int64_t now_ms)
{
    for (int64_t due; (due = next_due(model)) <= now_ms;) {
        model->now_ms = due;
        happen(model);
    }
    model->now_ms = now_ms;
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static struct mr_enqueue_result answer(enum mr_err err, const struct model_task *task)
{
    struct mr_enqueue_result result = {.err = err};
    if (task != NULL) {
        result.state = task->state;
        (void)snprintf(result.id, sizeof result.id, "%s", task->id);
    }
    return result;
}

/* Where a task that is enqueued now stands. */
static void place(const struct model *model, struct model_task *task, int64_t priority_ms,
                  int64_t delay_ms)
{
    int64_t due_ms = model->now_ms + delay_ms;
    task->priority_ms = priority_ms;
    if (task->group != 0 && delay_ms == 0)
        wait_until(task, MR_AGGREGATING, due_ms, due_ms);
    else
        wait_until(task, delay_ms > 0 ? MR_SCHEDULED : MR_PENDING, due_ms, due_ms - priority_ms);
}

/* A member that went its own way has no group any more. */
static void move(const struct model *model, struct model_task *task, int64_t priority_ms,
                 int64_t delay_ms)
{
    unsigned group = task->group;
    task->group = 0;
    place(model, task, priority_ms, delay_ms);
    task->group = group;
}

static struct mr_enqueue_result duplicate(struct model *model, struct model_task *holder,
                                          const struct model_task *wish, int64_t delay_ms,
                                          enum mr_on_duplicate on_duplicate)
{
    if (on_duplicate == MR_DUPLICATE_IGNORE)
        return answer(MR_OK, holder);
    if (on_duplicate == MR_DUPLICATE_REJECT)
        return answer(MR_DUPLICATE, holder);
    if (holder->held)
        return answer(MR_RUNNING, holder);
    if (holder->state == MR_AGGREGATING)
        return answer(MR_OK, holder);
    if (!is_waiting(holder))
        return answer(MR_RUNNING, holder);
    move(model, holder, wish->priority_ms, delay_ms);
    return answer(MR_OK, holder);
}

struct mr_enqueue_result model_put(struct model *model, const struct model_task *wish,
                                   int64_t delay_ms, int64_t unique_ms,
                                   enum mr_on_duplicate on_duplicate)
{
    struct model_task *same =
        wish->id[0] != '\0' ? model_find(model, mr_slice_str(wish->id)) : NULL;
    if (same != NULL)
        return answer(MR_CONFLICT, same);
    struct model_task *holder = model_holder(model, wish->queue, wish->unique);
    if (holder != NULL)
        return duplicate(model, holder, wish, delay_ms, on_duplicate);
    struct model_queue *queue = &model->queues[wish->queue];
    struct model_task task = *wish;
    bool in_turns;
    if (!model_choose(model, &task, &in_turns))
        return answer(MR_INVALID, NULL);
    if (model_full(model, task.queue, task.part))
        return answer(MR_QUEUE_FULL, NULL);
    queue->exists = true;
    if (in_turns)
        queue->turn = task.part + 1;
    return answer(MR_OK, model_add(model, &task, delay_ms, unique_ms));
}

struct model_task *model_add(struct model *model, const struct model_task *wish, int64_t delay_ms,
                             int64_t unique_ms)
{
    mr_assert(model->tasks_n < MODEL_TASKS_MAX);
    /* A key whose time is over changes hands. */
    for (size_t i = 0; i < model->tasks_n; i++)
        if (wish->unique != 0 && model->tasks[i].unique == wish->unique &&
            model->tasks[i].queue == wish->queue)
            model->tasks[i].unique = 0;
    struct model_task *task = &model->tasks[model->tasks_n++];
    *task = *wish;
    task->seq = ++model->last_seq;
    task->created_ms = model->now_ms;
    task->unique_until_ms = model->now_ms + unique_ms;
    task->unique_said = wish->unique;
    place(model, task, wish->priority_ms, delay_ms);
    return task;
}

/* ---- take ----------------------------------------------------------------------------------- */

/* The first of a partition, or NULL. */
static struct model_task *first_of(struct model *model, unsigned queue, unsigned part)
{
    struct model_task *first = NULL;
    for (size_t i = 0; i < model->tasks_n; i++) {
        struct model_task *task = &model->tasks[i];
        if (task->queue == queue && task->part == part && task->state == MR_PENDING &&
            !task->held && (first == NULL || task->order_ms < first->order_ms) &&
            model_may_go(model, task))
            first = task; /* equal order times: the older stands first in tasks */
    }
    return model->queues[queue].paused ? NULL : first;
}

static bool has_pending(struct model *model, unsigned queue)
{
    bool some = false;
    for (unsigned part = 0; part < model_parts(model, queue); part++)
        some |= first_of(model, queue, part) != NULL;
    return some;
}

/* The first of the retries that are due and a class of their own; NULL: none. */
static struct model_task *due_retry(struct model *model, unsigned queue)
{
    struct model_task *first = NULL;
    if (model->queues[queue].retry_mode != MR_RETRY_CLASS || model->queues[queue].paused)
        return NULL;
    for (size_t i = 0; i < model->tasks_n; i++) {
        struct model_task *task = &model->tasks[i];
        if (task->queue == queue && task->state == MR_RETRY && !task->held &&
            task->due_ms > model->queues[queue].class_since_ms && task->due_ms <= model->now_ms &&
            (first == NULL || task->due_ms < first->due_ms))
            first = task;
    }
    return first;
}

/* The one that must be taken before all that are pending, or because nothing is; NULL: none. */
static struct model_task *retry_in_turn(struct model *model, unsigned queue)
{
    struct model_task *retry = due_retry(model, queue);
    int64_t wait_ms = model->queues[queue].retry_wait_ms;
    if (retry == NULL)
        return NULL;
    bool late = model->now_ms - retry->due_ms >= (wait_ms > 0 ? wait_ms : MR_RETRY_WAIT_MS);
    return late || !has_pending(model, queue) ? retry : NULL;
}

/* Of a queue with limits a node holds nothing ahead of its slots. */
static bool has_slot(const struct model *model, int node, unsigned queue)
{
    size_t in_hand = 0;
    for (size_t i = 0; i < model->tasks_n; i++)
        in_hand += model->tasks[i].state == MR_ACTIVE && model->tasks[i].node == node;
    return in_hand < MODEL_SLOTS || !model_is_limited(model, queue);
}

static bool has_something(struct model *model, int node, unsigned queue)
{
    return has_slot(model, node, queue) &&
           (has_pending(model, queue) || due_retry(model, queue) != NULL);
}

bool model_nothing_for(struct model *model, int node)
{
    for (size_t i = 0; i < model->nodes[node].queues_n; i++)
        if (has_something(model, node, model->nodes[node].queues[i]))
            return false;
    return true;
}

const char *model_take(struct model *model, int index, struct mr_slice id, uint64_t epoch)
{
    struct model_node *node = &model->nodes[index];
    struct model_task *task = model_find(model, id);
    if (task == NULL)
        return "a task that is not there";
    struct model_task *retry = retry_in_turn(model, task->queue);
    if (task->state != MR_PENDING && task != retry)
        return "a task that is not pending";
    bool listens = false;
    for (size_t i = 0; i < node->queues_n && !listens; i++) {
        listens = node->queues[i] == task->queue;
        if (!listens && node->order == MR_QUEUES_STRICT &&
            has_something(model, index, node->queues[i]))
            return "strict: an earlier queue has something";
    }
    if (!listens)
        return "not a queue of this node";
    if (model->queues[task->queue].paused)
        return "its queue is paused";
    if (!has_slot(model, index, task->queue))
        return "its queue has limits, and the node no free slot";
    if (!model_may_go(model, task))
        return "a limit keeps it back";
    if (retry != NULL && task != retry)
        return "a retry has waited for too long";
    if (retry == NULL && first_of(model, task->queue, task->part) != task)
        return "not the first of its partition";
    if (epoch <= model->last_epoch)
        return "its epoch does not rise";
    model->last_epoch = epoch;
    task->was_retry = task->state == MR_RETRY;
    task->state = MR_ACTIVE;
    task->node = index;
    task->epoch = epoch;
    task->started_ms = model->now_ms;
    model_limits_took(model, task);
    return NULL;
}

/* ---- finish --------------------------------------------------------------------------------- */

static void set_text(char text[MODEL_TEXT_MAX], struct mr_slice from)
{
    (void)snprintf(text, MODEL_TEXT_MAX, "%.*s", (int)from.len, (const char *)from.data);
}

static void finish_failed(struct model *model, struct model_task *task,
                          const struct mr_finish *item)
{
    count_run(model, task->queue, true);
    set_text(task->last_error, item->error);
    task->failed_ms = model->now_ms;
    if (item->outcome == MR_FAIL_FOR_GOOD || task->retried >= task->max_retry || task->cancel) {
        archive(model, task, NULL);
        return;
    }
    task->retried++;
    int64_t due_ms = model->now_ms + item->delay_ms;
    bool order = model->queues[task->queue].retry_mode == MR_RETRY_ORDER;
    wait_until(task, order ? MR_PENDING : MR_RETRY, due_ms, due_ms);
}

static void finish_done(struct model *model, struct model_task *task, const struct mr_finish *item)
{
    count_run(model, task->queue, false);
    if (item->outcome == MR_DROP || task->retention_ms == 0) {
        model_remove(model, task);
        return;
    }
    task->state = MR_COMPLETED;
    task->unique = 0;
    task->finished_ms = model->now_ms;
    task->expires_ms = model->now_ms + task->retention_ms;
    set_text(task->result, item->result);
}

static void finish(struct model *model, struct model_task *task, const struct mr_finish *item)
{
    int64_t due_ms = model->now_ms + item->delay_ms;
    bool returns = item->outcome == MR_HAND_BACK || item->outcome == MR_LATER;
    if (returns && task->cancel) {
        archive(model, task, "cancelled");
        return;
    }
    switch (item->outcome) {
    case MR_DONE:
    case MR_DROP:
        finish_done(model, task, item);
        break;
    case MR_FAIL:
    case MR_FAIL_FOR_GOOD:
        finish_failed(model, task, item);
        break;
    case MR_HAND_BACK:
        if (item->delay_ms > 0)
            wait_until(task, MR_SCHEDULED, due_ms, task->order_ms);
        else
            task->state = MR_PENDING;
        break;
    case MR_LATER:
        wait_until(task, MR_RETRY, due_ms, due_ms);
        break;
    }
}

enum mr_err model_finish(struct model *model, const struct mr_finish *item)
{
    struct model_task *task = model_find(model, item->id);
    if (task == NULL)
        return MR_NOT_FOUND;
    if (task->state != MR_ACTIVE || task->epoch != item->epoch) {
        model->stale++;
        return MR_STALE;
    }
    const struct model_task before = *task;
    char text[MODEL_TEXT_MAX];
    finish(model, task, item);
    task = model_find(model, mr_slice_str(before.id));
    bool returns = item->outcome == MR_HAND_BACK || item->outcome == MR_LATER;
    bool good = item->outcome == MR_DONE || item->outcome == MR_DROP;
    set_text(text, item->outcome == MR_DONE ? item->result : item->error);
    if (before.topic && (!returns || task->state == MR_ARCHIVED))
        leave(model, &before, task,
              returns ? MR_RESULT_CANCELLED
              : good  ? MR_RESULT_OK
                      : MR_RESULT_ERROR,
              returns || item->outcome == MR_DROP ? "" : text);
    return MR_OK;
}

/* ---- control -------------------------------------------------------------------------------- */

static enum mr_err act_on_active(struct model_task *task, enum mr_verb verb)
{
    if (verb == MR_VERB_CANCEL || verb == MR_VERB_DELETE)
        task->cancel = true;
    return verb == MR_VERB_CANCEL ? MR_OK : MR_RUNNING;
}

static enum mr_err run_now(struct model *model, struct model_task *task)
{
    if (!is_waiting(task) && task->state != MR_ARCHIVED && task->state != MR_AGGREGATING)
        return MR_WRONG_STATE;
    if (task->state == MR_PENDING)
        return MR_WRONG_STATE;
    if (task->state == MR_ARCHIVED) {
        bool locked = task->unique_said != 0 && task->unique_until_ms > model->now_ms;
        if (locked && model_holder(model, task->queue, task->unique_said) != NULL)
            return MR_DUPLICATE;
        task->unique = locked ? task->unique_said : 0;
        task->retried = task->crashes = 0;
        task->cancel = false;
    }
    task->state = MR_PENDING;
    task->order_ms = model->now_ms - task->priority_ms;
    return MR_OK;
}

/* As if it had been enqueued with this priority. */
static void prioritise(struct model_task *task, double seconds)
{
    task->priority_ms = (int64_t)(seconds * 1000);
    int64_t base_ms = task->state == MR_PENDING ? task->created_ms : task->due_ms;
    task->order_ms = base_ms - task->priority_ms;
}

static enum mr_err release(struct model *model, struct model_task *task, enum mr_verb verb)
{
    if (!task->held || verb != MR_VERB_RELEASE)
        return MR_WRONG_STATE;
    task->held = false;
    happen(model); /* its time may have come meanwhile */
    return MR_OK;
}

/* Only a trace of it stays. */
static void go_elsewhere(struct model *model, struct model_task *task)
{
    task->state = MR_COMPLETED;
    task->moved = true;
    task->unique = 0;
    task->cancel = false;
    task->finished_ms = model->now_ms;
    task->expires_ms = model->now_ms + MR_MOVED_KEPT_MS;
    task->result[0] = '\0';
    (void)snprintf(task->last_error, sizeof task->last_error, "moved to there");
}

enum mr_err model_act(struct model *model, const struct mr_control *item)
{
    struct model_task *task = model_find(model, item->id);
    if (task == NULL)
        return MR_NOT_FOUND;
    if (task->state == MR_ACTIVE)
        return item->verb == MR_VERB_RELEASE ? MR_WRONG_STATE : act_on_active(task, item->verb);
    if (task->set != 0)
        return MR_RUNNING;
    if (item->verb == MR_VERB_RELEASE || (task->held && item->verb != MR_VERB_DELETE))
        return release(model, task, item->verb);
    if (item->verb == MR_VERB_DELETE) {
        model->deleted++;
        model_remove(model, task);
        return MR_OK;
    }
    if (item->verb == MR_VERB_MOVED) {
        go_elsewhere(model, task);
        return MR_OK;
    }
    if (item->verb == MR_VERB_RUN)
        return run_now(model, task);
    bool ordered = is_waiting(task);
    if (!ordered && (task->state != MR_AGGREGATING || item->verb == MR_VERB_PRIORITISE))
        return MR_WRONG_STATE;
    if (item->verb == MR_VERB_PRIORITISE)
        prioritise(task, item->value);
    else
        archive(model, task, item->verb == MR_VERB_CANCEL ? "cancelled" : "archived by request");
    return MR_OK;
}

/* ---- queues --------------------------------------------------------------------------------- */

enum mr_err model_queue_set(struct model *model, unsigned index, enum mr_queue_setting setting,
                            uint64_t value)
{
    struct model_queue *queue = &model->queues[index];
    if (setting == MR_QUEUE_PAUSED) {
        if (!queue->exists)
            return MR_NOT_FOUND;
        queue->paused = value != 0;
        return MR_OK;
    }
    queue->exists = true;
    if (setting == MR_QUEUE_MAX_LENGTH)
        queue->max_length = value;
    else if (setting == MR_QUEUE_ASSIGN)
        queue->assign = (enum mr_assign)value;
    else if (setting == MR_QUEUE_RETRY_MODE) {
        if (queue->retry_mode != MR_RETRY_CLASS)
            queue->class_since_ms = model->now_ms;
        queue->retry_mode = (enum mr_retry_mode)value;
    } else if (setting == MR_QUEUE_RETRY_WAIT)
        queue->retry_wait_ms = (int64_t)value;
    else
        model_set_parts(model, index, (unsigned)value);
    return MR_OK;
}

enum mr_err model_queue_remove(struct model *model, unsigned index, enum mr_queue_remove_mode mode)
{
    if (!model->queues[index].exists)
        return MR_NOT_FOUND;
    uint64_t all = 0;
    for (int s = 1; s < MR_STATE_COUNT; s++)
        all += model_count(model, index, (enum mr_state)s);
    if (mode == MR_QUEUE_REMOVE_EMPTY && all > 0)
        return MR_WRONG_STATE;
    if (model_count(model, index, MR_ACTIVE) > 0)
        return MR_RUNNING;
    for (size_t i = model->tasks_n; i-- > 0;)
        if (model->tasks[i].queue == index)
            model_remove(model, &model->tasks[i]);
    model->deleted += all;
    model->queues[index] = (struct model_queue){.exists = false};
    return MR_OK;
}
