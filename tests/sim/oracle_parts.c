/* SPDX-License-Identifier: Apache-2.0 */
/* Partitions, as the oracle hears of them: how many a queue has, and which of them a task is in. See
 * oracle.h. */
#include <string.h>

#include "sim/oracle_int.h"

/* What is asked of the queue from now on sees it as it is known; and what was sent when this was had been
 * sent by then. */
static bool is_stable(const struct queue_fact *queue, uint64_t sent_seq)
{
    return queue->parts != 0 && queue->splits == 0 && sent_seq > queue->parts_seq;
}

void parts_unsettled(struct oracle *oracle, const char *name)
{
    struct queue_fact *queue = queue_at(oracle, name);
    queue->parts = 0;
    queue->splits++;
    for (size_t i = 0; i < oracle->n; i++) {
        struct fact *fact = &oracle->facts[i];
        if (strcmp(fact->spec.queue, name) != 0)
            continue;
        fact->version++;
        fact->plain = false;
        fact->part = 0;
    }
}

void parts_settled(struct oracle *oracle, const char *name, uint32_t n, enum mr_err err)
{
    struct queue_fact *queue = queue_at(oracle, name);
    if (is_doubt(err))
        return;
    bool last = --queue->splits == 0;
    queue->parts = last && err == MR_OK ? n : 0;
    queue->parts_seq = oracle->seq;
}

void oracle_split_sent(struct oracle *oracle, const char *name)
{
    parts_unsettled(oracle, name);
}

void oracle_split_answered(struct oracle *oracle, const char *name, uint32_t n, enum mr_err err)
{
    parts_settled(oracle, name, n, err);
}

void parts_crashed(struct oracle *oracle)
{
    for (size_t i = 0; i < oracle->queues_n; i++) {
        struct queue_fact *queue = &oracle->queues[i];
        if (queue->splits > 0)
            queue->parts = 0;
        queue->splits = 0;
        queue->parts_seq = oracle->seq;
    }
}

/* ---- tasks ---------------------------------------------------------------------------------- */

bool part_begins(struct oracle *oracle, struct fact *fact)
{
    const struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    bool stable = is_stable(queue, fact->sent_seq);
    fact->part = 0;
    if (!stable)
        return false;
    if (fact->spec.partition > queue->parts)
        oracle_fail(oracle, "task %s accepted into partition %u of %u", fact->id,
                    fact->spec.partition, queue->parts);
    fact->part = queue->parts == 1 ? 1 : fact->spec.partition;
    return true;
}

void part_refused(struct oracle *oracle, const struct oracle_op *op)
{
    const struct fact *fact = fact_at(oracle, op->token);
    const struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    if (fact->spec.partition == 0 ||
        (is_stable(queue, op->seq) && fact->spec.partition <= queue->parts))
        oracle_fail(oracle, "task %u refused, though queue %s has %u partitions", op->token,
                    queue->name, queue->parts);
}

void check_part(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    const struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    if (oracle->allow_loss) /* the partitions of its queue may be lost, and it is in another then */
        return;
    if (task->partition == 0 || (queue->parts != 0 && task->partition > queue->parts))
        oracle_fail(oracle, "task %u is in partition %u of %u", token, task->partition,
                    queue->parts);
    if (fact->part != 0 && task->partition != fact->part)
        oracle_fail(oracle, "task %u is in partition %u, and was in %u", token, task->partition,
                    fact->part);
    if (queue->splits == 0 && fact->enqueues == 0)
        fact->part = task->partition;
}

/* ---- views ---------------------------------------------------------------------------------- */

void check_parts(struct oracle *oracle, struct queue_fact *queue, uint32_t shown)
{
    if (queue->parts != 0 && shown != queue->parts && !oracle->allow_loss)
        oracle_fail(oracle, "queue %s has %u partitions, %u were set", queue->name, shown,
                    queue->parts);
    if (queue->splits == 0)
        queue->parts = shown;
}
