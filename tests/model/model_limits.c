/* SPDX-License-Identifier: Apache-2.0 */
/* Limits in the model: see model.h. A rule is looked up, and tasks in hand are counted, each time. */
#include "broker/limit.h"
#include "model/model.h"

/* The rule of this scope for one type or key; scope queue: 0. */
static struct model_rule *rule_of(struct model_limits *limits, enum mr_limit_scope scope,
                                  unsigned name)
{
    struct model_rule *named = &limits->rules[scope][name], *each = &limits->rules[scope][0];
    bool is = named->rate > 0 || named->concurrency > 0;
    return is || scope == MR_LIMIT_QUEUE ? named : each;
}

/* What a task is called for this scope; false: it has none. 0 stands for each. */
static bool name_of(const struct model_task *task, enum mr_limit_scope scope, unsigned *ret_name)
{
    *ret_name = scope == MR_LIMIT_QUEUE  ? 0
                : scope == MR_LIMIT_TYPE ? 1 + task->type
                                         : task->part_key;
    return scope != MR_LIMIT_KEY || task->part_key != 0;
}

static int64_t span_ms(const struct model_rule *rule)
{
    struct mr_limit limit = {.rate = rule->rate, .rate_ms = rule->rate_ms};
    return mr_limit_span_us(&limit) / MR_US_PER_MS;
}

static bool is_free(struct model *model, const struct model_task *task, enum mr_limit_scope scope)
{
    struct model_limits *limits = &model->queues[task->queue].limits;
    unsigned name, in_hand = 0, lately = 0;
    if (!name_of(task, scope, &name))
        return true;
    const struct model_rule *rule = rule_of(limits, scope, name);
    for (size_t i = 0; i < model->tasks_n; i++) {
        const struct model_task *other = &model->tasks[i];
        unsigned its;
        in_hand += other->queue == task->queue && other->state == MR_ACTIVE &&
                   name_of(other, scope, &its) && its == name;
    }
    if (rule->concurrency > 0 && in_hand >= rule->concurrency)
        return false;
    const struct model_times *times = &limits->times[scope][name];
    for (size_t i = 0; i < times->n; i++)
        lately += times->at_ms[i] + span_ms(rule) > model->now_ms;
    return rule->rate == 0 || (lately < rule->rate && rule->used_until_ms <= model->now_ms);
}

bool model_is_limited(const struct model *model, unsigned queue)
{
    const struct model_limits *limits = &model->queues[queue].limits;
    for (int scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++)
        for (size_t i = 0; i < MODEL_LIMIT_NAMES; i++)
            if (limits->rules[scope][i].rate > 0 || limits->rules[scope][i].concurrency > 0)
                return true;
    return false;
}

bool model_may_go(struct model *model, const struct model_task *task)
{
    for (int scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++)
        if (!is_free(model, task, (enum mr_limit_scope)scope))
            return false;
    return true;
}

void model_limits_took(struct model *model, const struct model_task *task)
{
    struct model_limits *limits = &model->queues[task->queue].limits;
    limits->taken_ms = model->now_ms;
    for (int scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++) {
        unsigned name;
        if (!name_of(task, (enum mr_limit_scope)scope, &name) ||
            rule_of(limits, (enum mr_limit_scope)scope, name)->rate == 0)
            continue;
        struct model_times *times = &limits->times[scope][name];
        if (times->n == MODEL_TIMES_MAX) { /* more than any rate that is set */
            memmove(times->at_ms, times->at_ms + 1, (MODEL_TIMES_MAX - 1) * sizeof *times->at_ms);
            times->n--;
        }
        times->at_ms[times->n++] = model->now_ms;
    }
}

/* What has no rate any more is forgotten. */
static void forget(struct model_limits *limits)
{
    for (int scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++)
        for (unsigned i = 0; i < MODEL_LIMIT_NAMES; i++) {
            if (rule_of(limits, (enum mr_limit_scope)scope, i)->rate == 0)
                limits->times[scope][i].n = 0;
        }
}

void model_limit_set(struct model *model, unsigned queue, const struct mr_req_queue_set *req,
                     unsigned name)
{
    struct model_limits *limits = &model->queues[queue].limits;
    struct model_rule *rule = &limits->rules[req->scope][name];
    model->queues[queue].exists = true;
    if (req->setting == MR_QUEUE_RATE) {
        rule->rate = (uint32_t)req->value;
        rule->rate_ms = req->rate_ms;
    } else {
        rule->concurrency = (uint32_t)req->value;
    }
    if (rule->rate == 0 && rule->concurrency == 0)
        *rule = (struct model_rule){0};
    forget(limits);
}

void model_limits_restarted(struct model *model, unsigned queue, enum model_death death)
{
    struct model_limits *limits = &model->queues[queue].limits;
    memset(limits->times, 0, sizeof limits->times);
    for (int scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++)
        for (unsigned i = 0; i < MODEL_LIMIT_NAMES; i++) {
            struct model_rule *rule = &limits->rules[scope][i];
            int64_t since_ms = death == MODEL_POWER_CUT ? model->now_ms : limits->taken_ms;
            bool is = rule->rate > 0 || rule->concurrency > 0;
            rule->used_until_ms = is && limits->taken_ms > 0 ? since_ms + span_ms(rule) + 1 : 0;
        }
}
