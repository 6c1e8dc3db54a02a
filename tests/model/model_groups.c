/* SPDX-License-Identifier: Apache-2.0 */
/* Groups in the model: see model.h. Members stand in tasks in the order in which they joined. */
#include <stdio.h>

#include "model/model.h"

static bool is_member(const struct model_task *task, unsigned queue, unsigned group)
{
    return task->state == MR_AGGREGATING && task->queue == queue && task->group == group &&
           task->set == 0 && !task->held;
}

static bool is_ripe(const struct model *model, unsigned queue, unsigned group,
                    const struct mr_req_gather *rule)
{
    int64_t oldest = INT64_MAX, newest = INT64_MIN;
    uint32_t n = 0;
    for (size_t i = 0; i < model->tasks_n; i++) {
        const struct model_task *task = &model->tasks[i];
        if (!is_member(task, queue, group))
            continue;
        oldest = task->order_ms < oldest ? task->order_ms : oldest;
        newest = task->order_ms > newest ? task->order_ms : newest;
        n++;
    }
    if (n == 0)
        return false;
    return (rule->max_size != 0 && n >= rule->max_size) ||
           (rule->max_delay_ms != 0 && oldest + rule->max_delay_ms <= model->now_ms) ||
           newest + rule->grace_ms <= model->now_ms;
}

/* The oldest that is in no set yet. */
static struct model_task *next_member(struct model *model, unsigned queue, unsigned group)
{
    struct model_task *first = NULL;
    for (size_t i = 0; i < model->tasks_n; i++) {
        struct model_task *task = &model->tasks[i];
        if (is_member(task, queue, group) && (first == NULL || task->order_ms < first->order_ms))
            first = task;
    }
    return first;
}

const char *model_gather(struct model *model, unsigned queue, const struct mr_req_gather *got)
{
    unsigned ripe = 0, group = 0;
    for (unsigned g = 1; g <= MODEL_GROUPS; g++) {
        char name[24];
        (void)snprintf(name, sizeof name, "group-%u", g);
        bool is = is_ripe(model, queue, g, got);
        ripe += is;
        if (got->req.err == MR_OK && strcmp(got->group, name) == 0)
            group = is ? g : 0;
    }
    if (got->req.err == MR_EMPTY)
        return ripe > 0 ? "empty, and a group is ripe" : NULL;
    if (got->req.err != MR_OK)
        return mr_err_name(got->req.err);
    if (group == 0)
        return "of a group that is not ripe";
    uint64_t set = ++model->last_set;
    size_t n = 0;
    for (struct model_task *task; (got->max_size == 0 || n < got->max_size) &&
                                  (task = next_member(model, queue, group)) != NULL;
         n++) {
        if (n >= got->n)
            return "with fewer members than there are";
        const char *what = model_differs(task, &got->tasks[n], true);
        if (what != NULL)
            return what;
        task->set = set;
        task->set_until_ms = model->now_ms + got->set_ms;
    }
    return n < got->n ? "with more members than there are" : NULL;
}

static size_t count_set(const struct model *model, uint64_t set)
{
    size_t n = 0;
    for (size_t i = 0; i < model->tasks_n; i++)
        n += model->tasks[i].set == set;
    return n;
}

void model_set_back(struct model *model, uint64_t set)
{
    for (size_t i = 0; i < model->tasks_n; i++)
        if (model->tasks[i].set == set)
            model->tasks[i].set = 0;
}

/* The oldest of them. */
static const struct model_task *first_in_set(const struct model *model, uint64_t set)
{
    const struct model_task *first = NULL;
    for (size_t i = 0; i < model->tasks_n; i++)
        if (model->tasks[i].set == set &&
            (first == NULL || model->tasks[i].order_ms < first->order_ms))
            first = &model->tasks[i];
    return first;
}

static struct mr_enqueue_result refused(enum mr_err err, const struct model_task *task)
{
    struct mr_enqueue_result result = {.err = err, .state = task->state};
    (void)snprintf(result.id, sizeof result.id, "%s", task->id);
    return result;
}

struct mr_enqueue_result model_gathered(struct model *model, uint64_t set,
                                        const struct model_task *wish, int64_t delay_ms,
                                        int64_t unique_ms, enum mr_err *ret_err)
{
    struct mr_enqueue_result result = {.err = MR_OK};
    *ret_err = count_set(model, set) > 0 ? MR_OK : MR_STALE;
    model->stale += *ret_err == MR_STALE;
    if (*ret_err != MR_OK)
        return result;
    if (wish == NULL) {
        model_set_back(model, set);
        return result;
    }
    const struct model_task *same =
        wish->id[0] != '\0' ? model_find(model, mr_slice_str(wish->id)) : NULL;
    if (same != NULL)
        return refused(MR_CONFLICT, same);
    const struct model_task *holder = model_holder(model, wish->queue, wish->unique);
    if (holder != NULL && holder->set != set)
        return refused(MR_DUPLICATE, holder);
    struct model_task chosen = *wish;
    chosen.part = first_in_set(model, set)->part;
    for (size_t i = model->tasks_n; i-- > 0;)
        if (model->tasks[i].set == set) {
            model->gathered++;
            model_remove(model, &model->tasks[i]);
        }
    const struct model_task *task = model_add(model, &chosen, delay_ms, unique_ms);
    result.state = task->state;
    (void)snprintf(result.id, sizeof result.id, "%s", task->id);
    return result;
}
