/* SPDX-License-Identifier: Apache-2.0 */
/* What people and crashes do to tasks and queues, as the oracle hears of it. See oracle.h. */
#include <string.h>

#include "sim/oracle_int.h"

void oracle_control_sent(struct oracle *oracle, uint32_t token, enum mr_verb verb,
                         struct oracle_op *ret_op)
{
    static const uint8_t fates[] = {
        [MR_VERB_CANCEL] = ARCHIVED,  [MR_VERB_DELETE] = GONE,  [MR_VERB_RUN] = LIVE,
        [MR_VERB_ARCHIVE] = ARCHIVED, [MR_VERB_PRIORITISE] = 0, [MR_VERB_MOVED] = COMPLETED,
    };
    struct fact *fact = fact_at(oracle, token);
    fact->version++;
    results_touched(oracle, token);
    *ret_op =
        (struct oracle_op){.token = token, .verb = verb, .adds = fates[verb], .epoch = fact->epoch};
    if (verb == MR_VERB_RUN && !(may(oracle, fact) & (LIVE | ARCHIVED)))
        ret_op->adds = 0;
    if (!(may(oracle, fact) & ~GONE))
        ret_op->adds = 0;
    fact_add(fact, ret_op->adds, 1);
    fact->controls++;
    fact->plain = fact->grouped = false;
    fact->note.known = false;
    fact->reordered = fact->reordered || verb == MR_VERB_PRIORITISE;
    fact->not_before_ms = 0;
    if (verb == MR_VERB_RUN && may(oracle, fact) & ARCHIVED) {
        fact->keyless = true;
        fact->crashes.max += fact->open && fact->begun;
        fact->begun = false;
        fact->retried.min = fact->crashes.min = fact->unseen = 0;
    }
    fact->completed = fact->completed || ret_op->adds & COMPLETED;
    if (verb == MR_VERB_CANCEL || verb == MR_VERB_DELETE)
        fact->cancelled = true;
    if (verb == MR_VERB_DELETE)
        fact->doomed = true;
}

static void controlled(struct oracle *oracle, const struct oracle_op *op)
{
    struct fact *fact = fact_at(oracle, op->token);
    if (fact->epoch != op->epoch && op->verb != MR_VERB_RUN) {
        /* Handed out since: in a life behind this, or before it, and the lease was given back. */
        fact->sure |= op->adds;
        return;
    }
    switch (op->verb) {
    case MR_VERB_CANCEL:
        fact->sure = fact->open ? fact->sure | ARCHIVED : ARCHIVED;
        return;
    case MR_VERB_DELETE:
        if (fact->sure == GONE)
            oracle_fail(oracle, "task %u deleted twice", op->token);
        fact->sure = GONE;
        fact->completed = false;
        return;
    case MR_VERB_RUN:
        if (!(may(oracle, fact) & (LIVE | ARCHIVED))) {
            if (!(op->adds & LIVE))
                oracle_fail(oracle, "task %u made to run after its end", op->token);
            return; /* it ended after that, by something sent beside it, and the end was heard first */
        }
        fact->sure = LIVE;
        if (fact->epoch == op->epoch) { /* not handed out since */
            fact->retried.min = fact->crashes.min = fact->unseen = 0;
            fact->open = fact->begun = false; /* it was not running */
        }
        fact->cancelled = fact->adds[2] > 0 || fact->adds[0] > 0; /* by what was sent behind it */
        return;
    case MR_VERB_ARCHIVE:
        fact->sure = ARCHIVED;
        return;
    case MR_VERB_MOVED: /* a trace stays */
        if (fact->sure == GONE)
            oracle_fail(oracle, "task %u moved when it was gone", op->token);
        fact->sure = COMPLETED;
        return;
    default:
        return;
    }
}

void oracle_control_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    fact_add(fact, op->adds, -1);
    fact->controls--;
    bool refused = err == MR_WRONG_STATE || err == MR_RUNNING || err == MR_NOT_FOUND ||
                   err == MR_DISK_FULL || err == MR_INVALID || err == MR_DUPLICATE;
    if (err == MR_OK)
        controlled(oracle, op);
    else if (err == MR_NOT_FOUND && fact->epoch == op->epoch && !(may(oracle, fact) & GONE) &&
             !oracle->allow_loss)
        oracle_fail(oracle, "lost: task %u (%s) not found", op->token, fact->id);
    else if (!refused)
        fact->sure |= op->adds, fact->in_doubt = true;
    /* Only a running task keeps the flag of an answered request. */
    if (op->verb == MR_VERB_DELETE && err != MR_RUNNING && refused)
        fact->doomed = false;
}

void oracle_remove_sent(struct oracle *oracle, const char *queue, struct oracle_op *ret_op)
{
    /* The tasks and the leases that were known by then. */
    *ret_op = (struct oracle_op){.seq = oracle->n, .epoch = oracle->epoch_max};
    oracle_pause_sent(oracle, queue); /* a queue made anew is not paused, and has one partition */
    parts_unsettled(oracle, queue);
    mode_unsettled(oracle, queue);
    for (size_t i = 0; i < oracle->n; i++) {
        struct fact *fact = &oracle->facts[i];
        if (strcmp(fact->spec.queue, queue) != 0)
            continue;
        fact->version++;
        fact->removals++;
        results_touched(oracle, (uint32_t)i);
        fact_add(fact, GONE, 1);
    }
}

void oracle_remove_answered(struct oracle *oracle, const char *queue, const struct oracle_op *op,
                            enum mr_err err)
{
    bool refused =
        err == MR_NOT_FOUND || err == MR_RUNNING || err == MR_WRONG_STATE || err == MR_DISK_FULL;
    for (size_t i = 0; i < op->seq; i++) {
        struct fact *fact = &oracle->facts[i];
        if (strcmp(fact->spec.queue, queue) != 0)
            continue;
        fact->version++;
        fact->removals--;
        fact_add(fact, GONE, -1);
        if (err == MR_OK && fact->epoch > op->epoch)
            fact->sure |= GONE; /* handed out since: before it went, or made anew behind that */
        else if (err == MR_OK)
            fact->sure = GONE, fact->completed = false;
        else if (!refused)
            fact->sure |= GONE, fact->in_doubt = true;
    }
    oracle_pause_answered(oracle, queue, false, refused ? MR_FAILED : err);
    parts_settled(oracle, queue, 0, err);
    mode_settled(oracle, queue, err, MR_RETRY_GATE);
}

void oracle_pause_sent(struct oracle *oracle, const char *queue)
{
    struct queue_fact *fact = queue_at(oracle, queue);
    fact->paused = fact->running = false;
    fact->pauses++;
}

void oracle_pause_answered(struct oracle *oracle, const char *queue, bool paused, enum mr_err err)
{
    struct queue_fact *fact = queue_at(oracle, queue);
    bool last = --fact->pauses == 0;
    fact->paused = last && err == MR_OK && paused;
    fact->running = last && err == MR_OK && !paused;
}

/* ---- crashes -------------------------------------------------------------------------------- */

void oracle_crashed(struct oracle *oracle, enum oracle_crash kind)
{
    oracle->epoch_floor = oracle->epoch_max;
    gathered_crashed(oracle);
    results_crashed(oracle);
    parts_crashed(oracle);
    modes_crashed(oracle);
    for (size_t i = 0; i < oracle->n; i++) {
        struct fact *fact = &oracle->facts[i];
        fact->sure = may(oracle, fact);
        fact->plain = fact->plain && !fact_busy(fact);
        fact->grouped = fact->grouped && !fact_busy(fact);
        fact->version++;
        if (fact->enqueues > 0)
            fact_forget_counts(fact), fact->part = 0;
        if (kind == ORACLE_POWER_CUT) {
            fact->crashes.min -= fact->unseen;
            fact->unseen = 0;
        }
        if (fact->finish_under_way)
            fact->retried.max++;
        if (fact->open && fact->begun) {
            fact->crashes.max++;
            bool counted = kind == ORACLE_KILLED && !fact->finish_under_way;
            fact->crashes.min += counted;
            fact->unseen += counted;
        } else if (kind == ORACLE_UNSEEN && fact->sure & LIVE) {
            fact->crashes.max++;
        }
        if (fact->crashes.max >= MR_CRASHES_MAX && fact->sure & LIVE)
            fact->sure |= ARCHIVED;
        memset(fact->adds, 0, sizeof fact->adds);
        fact->enqueues = fact->controls = fact->removals = 0;
        fact->open = fact->begun = fact->finish_under_way = fact->announced = false;
        /* It may have been in somebody's hands, and the next life takes it back. */
        fact->in_doubt = fact->sure & LIVE;
    }
    for (size_t i = 0; i < oracle->queues_n; i++)
        if (!oracle->queues[i].paused)
            oracle->queues[i].running = false; /* a pause under way may have happened */
    for (size_t i = 0; i < oracle->queues_n; i++)
        oracle->queues[i].pauses = 0;
}

/* ---- copies --------------------------------------------------------------------------------- */

static void fact_forget(struct fact *fact)
{
    fact->sure = GONE | LIVE | ARCHIVED | COMPLETED;
    fact->retried = fact->crashes = (struct range){0, UINT32_MAX / 2};
    fact->unseen = 0;
    fact->keyless = fact->reordered = true;
    fact->plain = fact->grouped = fact->note.known = false;
    fact->not_before_ms = 0;
    fact->part = 0;
}

void oracle_forget_since(struct oracle *oracle, const struct oracle *before)
{
    for (size_t i = 0; i < oracle->n; i++)
        if (i >= before->n || oracle->facts[i].version != before->facts[i].version)
            fact_forget(&oracle->facts[i]);
    for (size_t i = 0; i < oracle->queues_n; i++) {
        struct queue_fact *queue = &oracle->queues[i];
        queue->paused = queue->running = false;
        queue->parts = 0;
        queue->mode_doubt = true;
    }
}
