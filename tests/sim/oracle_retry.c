/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of retries, as the oracle hears of it: where a delay is surely a gate, nothing comes before its end. See
 * oracle.h. */
#include "sim/oracle_int.h"

void mode_unsettled(struct oracle *oracle, const char *name)
{
    struct queue_fact *queue = queue_at(oracle, name);
    queue->mode_doubt = true;
    queue->modes++;
}

void mode_settled(struct oracle *oracle, const char *name, enum mr_err err, enum mr_retry_mode mode)
{
    struct queue_fact *queue = queue_at(oracle, name);
    if (is_doubt(err))
        return;
    bool last = --queue->modes == 0;
    queue->mode = mode;
    queue->mode_doubt = !last || err != MR_OK;
}

void oracle_mode_sent(struct oracle *oracle, const char *name)
{
    mode_unsettled(oracle, name);
}

void oracle_mode_answered(struct oracle *oracle, const char *name, enum mr_retry_mode mode,
                          enum mr_err err)
{
    mode_settled(oracle, name, err, mode);
}

void modes_crashed(struct oracle *oracle)
{
    for (size_t i = 0; i < oracle->queues_n; i++) {
        struct queue_fact *queue = &oracle->queues[i];
        queue->mode_doubt |= queue->modes > 0 || oracle->allow_loss;
        queue->modes = 0;
    }
}

bool retries_wait(struct oracle *oracle, const char *name)
{
    const struct queue_fact *queue = queue_at(oracle, name);
    return !queue->mode_doubt && queue->mode != MR_RETRY_ORDER;
}

void check_mode(struct oracle *oracle, struct queue_fact *queue, enum mr_retry_mode shown)
{
    if (!queue->mode_doubt && shown != queue->mode)
        oracle_fail(oracle, "queue %s has retries by %s, %s was set", queue->name,
                    mr_retry_mode_name(shown), mr_retry_mode_name(queue->mode));
    if (queue->modes > 0)
        return;
    queue->mode = shown;
    queue->mode_doubt = false;
}
