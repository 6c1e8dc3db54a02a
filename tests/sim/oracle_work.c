/* SPDX-License-Identifier: Apache-2.0 */
/* Leases and outcomes, as the oracle hears of them. See oracle.h. */
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"
#include "sim/simfs_int.h"

void check_counts(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    uint32_t retried_max = fact->retried.max + fact->finish_under_way;
    uint32_t crashes_max = fact->crashes.max + (fact->open && fact->begun);
    if (task->retried < fact->retried.min || task->retried > retried_max)
        oracle_fail(oracle, "task %u (%s): %u failures shown, %u..%u possible", token, fact->id,
                    task->retried, fact->retried.min, retried_max);
    if (task->crashes < fact->crashes.min || task->crashes > crashes_max)
        oracle_fail(oracle, "task %u (%s): %u crashes shown, %u..%u possible", token, fact->id,
                    task->crashes, fact->crashes.min, crashes_max);
}

/* The lease before this one ended without an answer: by its node's death, or by a finish under way.
 */
static void settle_lease(struct fact *fact)
{
    if (!fact->open)
        return;
    fact->open = false;
    if (fact->finish_under_way) {
        fact->retried.max++;
        fact->crashes.max += fact->begun;
    } else if (fact->begun) {
        fact->crashes.min++;
        fact->crashes.max++;
    }
    fact->begun = fact->finish_under_way = false;
}

static int64_t priority_ms(const struct fact *fact)
{
    return (int64_t)(fact->spec.priority_s * 1000);
}

/* NULL: there are too many. */
static struct last_out *last_out(struct queue_fact *queue, uint32_t part, double priority)
{
    size_t i = 0;
    while (i < queue->lasts_n &&
           (queue->lasts[i].part != part || queue->lasts[i].priority != priority))
        i++;
    if (i == sizeof queue->lasts / sizeof queue->lasts[0])
        return NULL;
    if (i == queue->lasts_n)
        queue->lasts[queue->lasts_n++] = (struct last_out){.part = part, .priority = priority};
    return &queue->lasts[i];
}

/* Of equal priority, by the same clock, in one partition: in the order of submission. */
static void check_fifo(struct oracle *oracle, uint32_t token, uint32_t part)
{
    struct fact *fact = fact_at(oracle, token);
    struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    struct last_out *last = last_out(queue, part, fact->spec.priority_s);
    if (last == NULL)
        return;
    if (last->era == fact->era && fact->seq < last->seq) {
        oracle_fail(oracle, "order: task %u of queue %s handed out behind the later %u", token,
                    queue->name, last->token);
        return;
    }
    last->seq = fact->seq;
    last->token = token;
    last->era = fact->era;
}

/* Whatever the clocks and priorities: by the order time, where it is known well enough. */
static void check_order_times(struct oracle *oracle, uint32_t token, uint32_t part)
{
    const struct fact *fact = fact_at(oracle, token);
    int64_t first_ms = fact->order_min_ms - priority_ms(fact);
    for (uint32_t i = 0; i < oracle->n; i++) {
        const struct fact *other = &oracle->facts[i];
        bool waits = other->plain && !other->open && may(oracle, other) == LIVE &&
                     !fact_busy(other) && other->part == part &&
                     strcmp(other->spec.queue, fact->spec.queue) == 0;
        if (i != token && waits && other->order_max_ms - priority_ms(other) < first_ms)
            oracle_fail(oracle, "order: task %u of queue %s handed out before %u, due earlier",
                        token, fact->spec.queue, i);
    }
}

static void check_order(struct oracle *oracle, uint32_t token, uint32_t part)
{
    struct fact *fact = fact_at(oracle, token);
    struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    if (queue->paused)
        oracle_fail(oracle, "task %u handed out from the paused queue %s", token, queue->name);
    /* A task that could not be read was passed over; a power cut may take back its quarantine. */
    if (!fact->plain || oracle->unordered || oracle->reads_failed)
        return;
    fact->plain = false;
    check_fifo(oracle, token, part);
    check_order_times(oracle, token, part);
}

static void check_times(struct oracle *oracle, uint32_t token)
{
    struct fact *fact = fact_at(oracle, token);
    /* Once due, a task stays so when the clock is set back. */
    int64_t latest_ms = oracle->era ? oracle->wall_max_ms : oracle->now_ms;
    if (latest_ms < fact->not_before_ms && !oracle->unordered)
        oracle_fail(oracle, "task %u handed out %lld ms early", token,
                    (long long)(fact->not_before_ms - latest_ms));
}

/* It is not known which life of the id this is: the one before, or that of an enqueue under way. So what
 * was done to the one before may have been done to this one. */
static void announce(struct oracle *oracle, struct fact *fact)
{
    bool surely_new = !(fact->sure & LIVE) && fact->enqueues == 1;
    struct fact before = *fact;
    fact_begin(oracle, fact);
    fact->announced = true;
    if (surely_new)
        return;
    fact->retried = (struct range){0, before.retried.max};
    fact->crashes = (struct range){0, before.crashes.max};
    fact->cancelled |= before.cancelled;
    fact->doomed |= before.doomed;
    fact->keyless |= before.keyless;
    fact->completed |= before.completed;
    fact->reordered |= before.reordered;
    fact->plain = fact->grouped = false;
    fact->part = 0;
    fact->not_before_ms = 0;
}

uint32_t oracle_leased(struct oracle *oracle, const struct mr_lease *lease)
{
    const struct mr_task *task = &lease->task;
    uint32_t token = token_of(oracle, task);
    if (token == UINT32_MAX) {
        oracle_fail(oracle, "ghost: id %.*s handed out, nobody asked for it", (int)task->id.len,
                    (const char *)task->id.data);
        return token;
    }
    struct fact *fact = fact_at(oracle, token);
    check_body(oracle, token, task);
    if (!(may(oracle, fact) & LIVE))
        oracle_fail(oracle, "ghost: task %u handed out after its end", token);
    if (lease->epoch <= fact->epoch || lease->epoch <= oracle->epoch_floor)
        oracle_fail(oracle, "task %u: epoch %llu is not above %llu (floor %llu)", token,
                    (unsigned long long)lease->epoch, (unsigned long long)fact->epoch,
                    (unsigned long long)oracle->epoch_floor);
    if (fact->grouped && fact->enqueues == 0)
        oracle_fail(oracle, "task %u handed out from its group", token);
    settle_lease(fact);
    if (fact->enqueues > 0 && may(oracle, fact) & GONE)
        announce(oracle, fact);
    check_counts(oracle, token, task);
    if (task->attempt != 1 + task->retried + task->crashes)
        oracle_fail(oracle, "task %u: attempt %u with %u failures and %u crashes", token,
                    task->attempt, task->retried, task->crashes);
    check_part(oracle, token, task);
    check_order(oracle, token, task->partition);
    check_times(oracle, token);
    fact->version++;
    fact->note.known = false;
    fact->sure = LIVE;
    fact->open = true;
    fact->begun = fact->finish_under_way = false;
    fact->epoch = lease->epoch;
    fact->retried = (struct range){task->retried, task->retried};
    fact->crashes = (struct range){task->crashes, task->crashes};
    fact->unseen = 0;
    if (lease->epoch > oracle->epoch_max)
        oracle->epoch_max = lease->epoch;
    results_leased(oracle, token, lease->epoch);
    return token;
}

void oracle_begun(struct oracle *oracle, uint32_t token, uint64_t epoch)
{
    struct fact *fact = fact_at(oracle, token);
    if (fact->epoch == epoch && fact->open)
        fact->begun = true;
}

static uint8_t fate_after(const struct fact *fact, enum mr_outcome outcome, uint32_t retried)
{
    switch (outcome) {
    case MR_DONE:
        return fact->spec.retention_ms > 0 ? COMPLETED : GONE;
    case MR_FAIL:
        return retried < retry_limit(&fact->spec) ? LIVE : ARCHIVED;
    case MR_FAIL_FOR_GOOD:
        return ARCHIVED;
    case MR_DROP:
        return GONE;
    case MR_HAND_BACK:
    case MR_LATER:
        return LIVE;
    }
    return LIVE;
}

void oracle_finish_sent(struct oracle *oracle, uint32_t token, const struct mr_finish *finish,
                        bool alive, struct oracle_op *ret_op)
{
    struct fact *fact = fact_at(oracle, token);
    fact->version++;
    bool old = finish->epoch < fact->epoch;
    bool waits = finish->delay_ms > 0 &&
                 (finish->outcome != MR_FAIL || retries_wait(oracle, fact->spec.queue));
    *ret_op = (struct oracle_op){
        .token = token,
        .old = old,
        .ended = !(may(oracle, fact) & LIVE),
        .must = alive && !old && fact->open && !fact->finish_under_way && !fact->doomed,
        .outcome = finish->outcome,
        .epoch = finish->epoch,
        .era = oracle->era,
        .retried = fact->retried.min,
        .retried_max = fact->retried.max,
        .note_len = (uint32_t)(finish->outcome == MR_DONE ? finish->result.len : finish->error.len),
        .not_before_ms = waits ? oracle->now_ms + finish->delay_ms : 0,
    };
    results_sent(oracle, ret_op);
    if (old || ret_op->ended)
        return;
    ret_op->adds = fate_after(fact, finish->outcome, fact->retried.min) |
                   fate_after(fact, finish->outcome, fact->retried.max);
    if (fact->cancelled && finish->outcome != MR_DONE)
        ret_op->adds |= ARCHIVED;
    if (ret_op->adds & COMPLETED && !(may(oracle, fact) & COMPLETED))
        fact->ended_ms = oracle->now_ms;
    fact_add(fact, ret_op->adds, 1);
    fact->completed = fact->completed || ret_op->adds & COMPLETED;
    fact->finish_under_way = true;
    fact->note.known = false;
}

static struct note note_of(const struct oracle_op *op)
{
    bool is_result = op->outcome == MR_DONE;
    bool failed = op->outcome == MR_FAIL || op->outcome == MR_FAIL_FOR_GOOD;
    bool known = is_result || (failed && op->note_len > 0);
    return (struct note){known, is_result, op->note_len, op->epoch};
}

static void finished(struct oracle *oracle, const struct oracle_op *op)
{
    struct fact *fact = fact_at(oracle, op->token);
    if (op->old)
        oracle_fail(oracle, "task %u: outcome of old epoch %llu accepted, %llu was handed out",
                    op->token, (unsigned long long)op->epoch, (unsigned long long)fact->epoch);
    if (op->ended)
        oracle_fail(oracle, "task %u: outcome accepted after its end", op->token);
    if (fact->accepted >= op->epoch)
        oracle_fail(oracle, "task %u: second outcome accepted for epoch %llu", op->token,
                    (unsigned long long)op->epoch);
    fact->accepted = op->epoch;
    if (fact->epoch != op->epoch)
        return; /* handed out again since: that lease told what became of it */
    fact->open = fact->begun = fact->finish_under_way = false;
    fact->sure = op->adds;
    fact->plain = false;
    if (fact->controls == 0)
        fact->note = note_of(op);
    if (op->outcome == MR_FAIL || op->outcome == MR_FAIL_FOR_GOOD) {
        bool counted = op->adds == LIVE;
        fact->retried = (struct range){op->retried + counted, op->retried_max + 1};
    }
    if (fact->controls > 0)
        fact_forget_counts(fact); /* made to run since, it counts from the start again */
    if (op->adds & LIVE && fact->controls == 0 && !fact->spec.unique)
        fact->not_before_ms = op->era == oracle->era ? op->not_before_ms : 0;
}

void oracle_lease_lost(struct oracle *oracle, uint64_t epoch)
{
    for (size_t i = 0; i < oracle->n; i++)
        if (oracle->facts[i].epoch == epoch)
            oracle->facts[i].lost = epoch;
}

void oracle_finish_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    fact_add(fact, op->adds, -1);
    if (err == MR_OK) {
        results_accepted(oracle, op);
        finished(oracle, op);
    } else if (err == MR_STALE || err == MR_NOT_FOUND) {
        /* It may have waited for the disk for longer than its node was heard. */
        if (op->must && fact->epoch == op->epoch && fact->lost != op->epoch)
            oracle_fail(oracle, "task %u: live lease %llu refused (%s)", op->token,
                        (unsigned long long)op->epoch, mr_err_name(err));
        if (fact->epoch == op->epoch && op->adds) {
            /* The run was over when the lease was lost; it may or may not have counted as begun. */
            fact->finish_under_way = false;
            fact->crashes.max += fact->open && fact->begun;
            fact->begun = false;
        }
    } else {
        fact->sure |= op->adds;
        fact->in_doubt = true;
        fact->retried.max += op->outcome == MR_FAIL || op->outcome == MR_FAIL_FOR_GOOD;
        fact->plain = false;
    }
}
