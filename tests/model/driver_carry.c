/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with tasks that change brokers: see driver.h. */
#include <stdio.h>

#include "model/driver.h"

static struct mr_enqueue_result carry(struct driver *d, const struct mr_task *task)
{
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_task_options options = mr_carried_options(task);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = task, .n = 1, .results = &result};
    if (driver_call(d, &req.req) != MR_OK)
        driver_fail(d, "%s", mr_err_name(req.req.err));
    mr_req_done(&req.req);
    return result;
}

/* What leads a carried task to its partition is what its options say; a unique key leads where only the
 * engine knows. */
static void compare_part(struct driver *d, const struct mr_task *carried)
{
    struct model_task *task = &d->model.tasks[d->model.tasks_n - 1];
    struct mr_task_options options = mr_carried_options(carried);
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = carried->id};
    bool in_turns = false;
    if (driver_call(d, &req.req) != MR_OK)
        driver_fail(d, "'%s': %s", task->id, mr_err_name(req.req.err));
    if (options.unique_ms > 0 && options.key.len == 0)
        task->part = req.task.partition - 1;
    else
        (void)model_choose(&d->model, task, &in_turns);
    if (in_turns)
        d->model.queues[task->queue].turn = task->part + 1;
    if (task->part + 1 != req.task.partition || task->part >= model_parts(&d->model, task->queue))
        driver_fail(d, "'%s' is in partition %u", task->id, req.task.partition);
    mr_req_done(&req.req);
}

/* Away and back again: the broker is the other one, too. Before it is gone, its id is taken. */
void driver_carry(struct driver *d)
{
    char text[MODEL_TEXT_MAX];
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = driver_some_id(d, text)};
    struct model_task *task = model_find(&d->model, req.id);
    if (task == NULL || task->state == MR_ACTIVE || task->set != 0 || task->held || task->moved)
        return;
    if (driver_call(d, &req.req) != MR_OK)
        driver_fail(d, "'%s': %s", text, mr_err_name(req.req.err));
    struct mr_enqueue_result got = carry(d, &req.task);
    if (got.err != MR_CONFLICT || got.state != task->state)
        driver_fail(d, "'%s': %s, expected a conflict", text, mr_err_name(got.err));
    struct mr_control item = {.verb = MR_VERB_DELETE, .id = req.id};
    enum mr_err err = MR_FAILED;
    struct mr_req_control away = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    if (driver_call(d, &away.req) != MR_OK || err != MR_OK)
        driver_fail(d, "'%s' cannot be deleted: %s", text, mr_err_name(err));
    mr_req_done(&away.req);
    d->model.deleted++;
    got = carry(d, &req.task);
    driver_trace(d, "%s (%s) -> %s", text, mr_state_name(task->state), mr_err_name(got.err));
    if (got.err != MR_OK || got.state != task->state)
        driver_fail(d, "'%s': %s", text, mr_err_name(got.err));
    model_carried(&d->model, task);
    compare_part(d, &req.task);
    mr_req_done(&req.req);
}
