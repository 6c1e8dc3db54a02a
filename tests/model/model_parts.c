/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions in the model: see model.h. They are counted from 0 here. */
#include <stdio.h>

#include "broker/partition.h"
#include "model/model.h"

unsigned model_parts(const struct model *model, unsigned queue)
{
    return 1 + model->queues[queue].more_parts;
}

uint64_t model_waiting(const struct model *model, unsigned queue, unsigned part)
{
    uint64_t n = 0;
    for (size_t i = 0; i < model->tasks_n; i++) {
        const struct model_task *task = &model->tasks[i];
        n += task->queue == queue && task->part == part &&
             (task->state == MR_PENDING || task->state == MR_SCHEDULED || task->state == MR_RETRY ||
              task->state == MR_AGGREGATING);
    }
    return n;
}

bool model_full(const struct model *model, unsigned queue, unsigned part)
{
    uint64_t max = model->queues[queue].max_length;
    return max != 0 && model_waiting(model, queue, part) >= max;
}

unsigned model_in_turn(struct model *model, unsigned queue)
{
    unsigned n = model_parts(model, queue), turn = model->queues[queue].turn;
    for (unsigned i = 0; i < n; i++)
        if (!model_full(model, queue, (turn + i) % n))
            return (turn + i) % n;
    return turn % n;
}

void model_parts_restarted(struct model *model, unsigned queue)
{
    uint64_t came = model->queues[queue].processed - model->queues[queue].failed;
    for (size_t i = 0; i < model->tasks_n; i++)
        came += model->tasks[i].queue == queue && model->tasks[i].state != MR_COMPLETED;
    model->queues[queue].turn = (unsigned)(came % model_parts(model, queue));
}

bool model_choose(struct model *model, struct model_task *task, bool *ret_in_turns)
{
    unsigned n = model_parts(model, task->queue);
    char text[24] = "";
    *ret_in_turns = false;
    if (task->partition > n)
        return false;
    if (task->part_key != 0)
        (void)snprintf(text, sizeof text, "part-%u", task->part_key);
    else if (task->group != 0)
        (void)snprintf(text, sizeof text, "group-%u", task->group);
    if (task->partition > 0) {
        task->part = task->partition - 1;
    } else if (n > 1 && text[0] != '\0') {
        task->part = mr_partition_of(mr_slice_str(text), n);
    } else {
        *ret_in_turns = n > 1;
        task->part = n > 1 ? model_in_turn(model, task->queue) : 0;
    }
    return true;
}

void model_set_parts(struct model *model, unsigned queue, unsigned n)
{
    model->queues[queue].more_parts = n - 1;
    for (size_t i = 0; i < model->tasks_n; i++)
        if (model->tasks[i].queue == queue)
            model->tasks[i].part %= n;
}
