/* SPDX-License-Identifier: Apache-2.0 */
/* What was asked and answered, and which fates that leaves to each task. See oracle.h. */
#include "sim/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"
#include "sim/simfs_int.h"

struct oracle *oracle_new(void)
{
    struct oracle *oracle = sim_alloc(sizeof *oracle);
    memset(oracle, 0, sizeof *oracle);
    return oracle;
}

struct oracle *oracle_clone(const struct oracle *from)
{
    struct oracle *oracle = sim_alloc(sizeof *oracle);
    *oracle = *from;
    oracle->facts = sim_alloc(from->n * sizeof *from->facts);
    oracle->cap = from->n;
    if (from->n)
        memcpy(oracle->facts, from->facts, from->n * sizeof *from->facts);
    oracle->results = sim_alloc(from->results_n * sizeof *from->results);
    oracle->results_cap = from->results_n;
    if (from->results_n)
        memcpy(oracle->results, from->results, from->results_n * sizeof *from->results);
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    if (oracle) {
        free(oracle->facts);
        free(oracle->results);
    }
    free(oracle);
}

const char *oracle_error(const struct oracle *oracle)
{
    return oracle->failed ? oracle->error : NULL;
}

void oracle_fail(struct oracle *oracle, const char *fmt, ...)
{
    if (oracle->failed)
        return;
    oracle->failed = true;
    va_list args;
    va_start(args, fmt);
    vsnprintf(oracle->error, sizeof oracle->error, fmt, args);
    va_end(args);
}

void oracle_time(struct oracle *oracle, int64_t wall_ms)
{
    oracle->now_ms = wall_ms;
    if (wall_ms > oracle->wall_max_ms)
        oracle->wall_max_ms = wall_ms;
}

void oracle_clock_jumped(struct oracle *oracle)
{
    oracle->era++;
    /* Whether what is under way ends by the old clock or the new one is not known. */
    for (size_t i = 0; i < oracle->n; i++)
        if (oracle->facts[i].adds[3])
            oracle->facts[i].ended_ms = INT64_MIN / 2;
}

void oracle_ignore_order(struct oracle *oracle)
{
    oracle->unordered = true;
}

void oracle_reads_fail(struct oracle *oracle, uint32_t n)
{
    oracle->reads_failed += n;
}

void oracle_short_of_space(struct oracle *oracle)
{
    oracle->short_of_space = true;
}

void oracle_allow_loss(struct oracle *oracle)
{
    oracle->allow_loss = true;
}

/* ---- facts ---------------------------------------------------------------------------------- */

struct fact *fact_at(struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return &oracle->facts[token];
}

uint32_t oracle_count(const struct oracle *oracle)
{
    return (uint32_t)oracle->n;
}

const struct oracle_spec *oracle_spec(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return &oracle->facts[token].spec;
}

const char *oracle_id(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return oracle->facts[token].id;
}

uint32_t token_of(const struct oracle *oracle, const struct mr_task *task)
{
    uint32_t token = UINT32_MAX;
    if (task->id.len > 2 && memcmp(task->id.data, "t-", 2) == 0) {
        char text[16] = {0};
        size_t len = task->id.len - 2 < 15 ? task->id.len - 2 : 15;
        memcpy(text, (const char *)task->id.data + 2, len);
        token = (uint32_t)strtoul(text, NULL, 10);
    } else if (task->payload.len >= 8) {
        token = mr_load32(task->payload.data);
    }
    return token < oracle->n ? token : UINT32_MAX;
}

uint32_t oracle_token(const struct oracle *oracle, const struct mr_task *task)
{
    return token_of(oracle, task);
}

uint8_t may(const struct oracle *oracle, const struct fact *fact)
{
    uint8_t fates = fact->sure;
    for (unsigned i = 0; i < FATES; i++)
        if (fact->adds[i])
            fates |= (uint8_t)(1u << i);
    if (fates & LIVE) {
        bool late = fact->spec.deadline_ms && oracle->wall_max_ms >= fact->spec.deadline_ms;
        if (fact->cancelled || late ||
            fact->crashes.max + (fact->open && fact->begun) >= MR_CRASHES_MAX)
            fates |= ARCHIVED;
        if (fact->doomed)
            fates |= GONE;
    }
    /* A task that cannot be read goes to the archive; one that ended then cannot say how long to
     * keep it. */
    if (oracle->reads_failed > 0 && fates & LIVE)
        fates |= ARCHIVED;
    if (oracle->reads_failed > 0 && fates & COMPLETED)
        fates |= GONE;
    bool kept = fact->spec.retention_ms > 0 && !oracle->unordered &&
                oracle->wall_max_ms < fact->ended_ms + fact->spec.retention_ms;
    if ((fates & COMPLETED) && !kept)
        fates |= GONE;
    /* What has expired by a clock that was set back since may show again. */
    if ((fates & GONE) && fact->completed && (oracle->era || oracle->unordered))
        fates |= COMPLETED;
    return fates;
}

bool oracle_may_live(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return may(oracle, &oracle->facts[token]) & LIVE;
}

bool oracle_may_be_gone(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return may(oracle, &oracle->facts[token]) & GONE;
}

bool fact_busy(const struct fact *fact)
{
    for (unsigned i = 0; i < FATES; i++)
        if (fact->adds[i])
            return true;
    return false;
}

uint32_t oracle_version(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    return oracle->facts[token].version;
}

bool oracle_is_settled(const struct oracle *oracle, uint32_t token)
{
    mr_assert(token < oracle->n);
    const struct fact *fact = &oracle->facts[token];
    uint8_t fates = may(oracle, fact);
    bool one = (fates & (fates - 1)) == 0;
    return one && fates != GONE && !fact_busy(fact) && !fact->in_doubt && !fact->open;
}

struct queue_fact *queue_at(struct oracle *oracle, const char *name)
{
    for (size_t i = 0; i < oracle->queues_n; i++)
        if (strcmp(oracle->queues[i].name, name) == 0)
            return &oracle->queues[i];
    mr_assert(oracle->queues_n < ORACLE_QUEUES_MAX);
    struct queue_fact *queue = &oracle->queues[oracle->queues_n++];
    memset(queue, 0, sizeof *queue);
    snprintf(queue->name, sizeof queue->name, "%s", name);
    queue->running = true;
    queue->parts = 1;
    return queue;
}

void fact_add(struct fact *fact, uint8_t fates, int by)
{
    for (unsigned i = 0; i < FATES; i++)
        if (fates & 1u << i)
            fact->adds[i] = (uint8_t)(fact->adds[i] + by);
}

/* ---- producing ------------------------------------------------------------------------------ */

uint32_t oracle_add(struct oracle *oracle, const struct oracle_spec *spec)
{
    oracle->facts = sim_grow(oracle->facts, oracle->n, &oracle->cap, sizeof *oracle->facts);
    struct fact *fact = &oracle->facts[oracle->n];
    memset(fact, 0, sizeof *fact);
    fact->spec = *spec;
    fact->sure = GONE;
    memcpy(fact->id, spec->id, sizeof spec->id);
    return (uint32_t)oracle->n++;
}

void oracle_enqueue_sent(struct oracle *oracle, uint32_t token, struct oracle_op *ret_op)
{
    struct fact *fact = fact_at(oracle, token);
    fact->version++;
    results_touched(oracle, token);
    if (may(oracle, fact) & GONE)
        fact->not_before_ms = 0; /* that was of a life before this one */
    *ret_op = (struct oracle_op){
        .token = token,
        .adds = LIVE,
        .epoch = fact->epoch,
        .seq = ++oracle->seq,
        .sent_ms = oracle->now_ms,
        .era = oracle->era,
    };
    fact->part = 0;
    if (fact->enqueues++ == 0) {
        fact->sent_seq = ret_op->seq;
        fact->sent_ms = ret_op->sent_ms;
        fact->sent_era = ret_op->era;
    }
    fact_add(fact, LIVE, 1);
}

/* Unique keys are kept per queue. */
bool same_key(const struct oracle_spec *a, const struct oracle_spec *b)
{
    return a->unique == b->unique && strcmp(a->queue, b->queue) == 0;
}

enum holder { MAY_HOLD, SURELY_HOLDS };

/* Another task than this one that holds its unique key; UINT32_MAX when there is none. */
static uint32_t key_holder(const struct oracle *oracle, uint32_t token, enum holder how)
{
    for (uint32_t i = 0; i < oracle->n; i++) {
        const struct fact *fact = &oracle->facts[i];
        if (i == token || !same_key(&fact->spec, &oracle->facts[token].spec))
            continue;
        uint8_t fates = may(oracle, fact);
        /* While its own enqueue is under way it is not known which of the two came first. */
        bool surely = fates == LIVE && !fact->keyless && fact->enqueues == 0;
        bool locked =
            fact->spec.unique_forever || (!oracle->era && !oracle->unordered &&
                                          fact->born_ms + ORACLE_UNIQUE_SHORT_MS > oracle->now_ms);
        if (how == SURELY_HOLDS ? surely && locked : fates & LIVE)
            return i;
    }
    return UINT32_MAX;
}

static void check_new_key(struct oracle *oracle, uint32_t token)
{
    struct fact *fact = fact_at(oracle, token);
    if (!fact->spec.unique)
        return;
    uint32_t holder = key_holder(oracle, token, SURELY_HOLDS);
    if (holder != UINT32_MAX)
        oracle_fail(oracle, "unique: task %u accepted while task %u holds key-%u", token, holder,
                    fact->spec.unique);
}

void fact_begin(struct oracle *oracle, struct fact *fact)
{
    const struct oracle_spec *spec = &fact->spec;
    /* What was sent while the enqueue was under way is about this life. */
    bool touched = fact->controls > 0;
    fact->sure = LIVE;
    fact->in_doubt = false;
    fact->cancelled = fact->cancelled && touched;
    fact->doomed = fact->doomed && touched;
    fact->keyless = fact->keyless && touched;
    fact->completed = false;
    fact->open = fact->begun = fact->finish_under_way = false;
    fact->retried = fact->crashes = (struct range){0, 0};
    fact->unseen = 0;
    fact->seq = fact->sent_seq;
    fact->born_ms = fact->sent_ms;
    fact->era = oracle->era;
    fact->order_min_ms = fact->sent_ms;
    fact->order_max_ms = oracle->now_ms;
    fact->reordered = fact->reordered && touched;
    fact->note.known = false;
    /* A task with a unique key may be moved by the enqueue of another. */
    bool known = !touched && !spec->unique && fact->sent_era == oracle->era;
    bool stays = part_begins(oracle, fact);
    fact->plain = known && stays && spec->delay_ms == 0 && spec->group == 0;
    fact->grouped = known && spec->delay_ms == 0 && spec->group != 0;
    fact->not_before_ms = known && spec->delay_ms ? fact->sent_ms + spec->delay_ms : 0;
}

static uint32_t token_by_id(const struct oracle *oracle, const char *id)
{
    for (uint32_t i = 0; i < oracle->n; i++)
        if (strcmp(oracle->facts[i].id, id) == 0)
            return i;
    return UINT32_MAX;
}

/* The holder of its key may be one of which we have heard nothing yet: answers may come in another order than what was done. */
static bool holder_is_under_way(const struct oracle *oracle, uint32_t token)
{
    for (uint32_t i = 0; i < oracle->n; i++)
        if (i != token && oracle->facts[i].enqueues > 0 &&
            same_key(&oracle->facts[i].spec, &oracle->facts[token].spec))
            return true;
    return false;
}

static void accepted(struct oracle *oracle, const struct oracle_op *op,
                     const struct mr_enqueue_result *result)
{
    struct fact *fact = fact_at(oracle, op->token);
    bool may_join = fact->spec.unique && fact->spec.on_duplicate != MR_DUPLICATE_REJECT;
    uint32_t other = may_join ? token_by_id(oracle, result->id) : UINT32_MAX;
    bool joins_unheard = may_join && holder_is_under_way(oracle, op->token);
    if (other != UINT32_MAX && other != op->token) {
        struct fact *holder = fact_at(oracle, other);
        if (!same_key(&holder->spec, &fact->spec))
            oracle_fail(oracle, "unique: task %u joined task %u of another key", op->token, other);
        if (!(may(oracle, holder) & LIVE))
            oracle_fail(oracle, "unique: task %u joined task %u that has ended", op->token, other);
        holder->plain = false;
        holder->not_before_ms = 0;
        return;
    }
    if (fact->announced)
        return;
    if (!(may(oracle, fact) & GONE))
        oracle_fail(oracle, "enqueue of id %s accepted although the task exists", fact->id);
    /* A generated id is new each time. */
    bool is_another = fact->spec.id[0] && strcmp(fact->id, result->id) != 0;
    if (is_another && joins_unheard)
        return;
    if (is_another)
        oracle_fail(oracle, "task %u asked for id %s, got %s", op->token, fact->id, result->id);
    snprintf(fact->id, sizeof fact->id, "%s", result->id);
    fact->sent_seq = op->seq;
    fact->sent_ms = op->sent_ms;
    fact->sent_era = op->era;
    fact_begin(oracle, fact);
    if (joins_unheard && !fact->spec.id[0]) { /* or not: a generated id does not tell */
        fact->sure |= GONE;
        fact->plain = fact->grouped = false;
        fact->not_before_ms = 0;
    }
    check_new_key(oracle, op->token);
}

/* Perhaps a new life began. */
void fact_forget_counts(struct fact *fact)
{
    fact->retried.min = fact->crashes.min = fact->unseen = 0;
}

/* An enqueue may have moved the holder of its unique key instead. */
static void doubt_holders(struct oracle *oracle, uint32_t token)
{
    const struct oracle_spec *spec = &oracle->facts[token].spec;
    for (size_t i = 0; spec->unique && i < oracle->n; i++)
        if (same_key(&oracle->facts[i].spec, spec))
            oracle->facts[i].in_doubt = true;
}

static bool is_refusal(enum mr_err err)
{
    return err == MR_QUEUE_FULL || err == MR_DISK_FULL || err == MR_INVALID || err == MR_TOO_BIG ||
           err == MR_BUSY || err == MR_RUNNING || err == MR_DAMAGED || err == MR_STALE;
}

void oracle_enqueue_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err,
                             const struct mr_enqueue_result *result)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    fact_add(fact, op->adds, -1);
    fact->enqueues--;
    if (err == MR_OK)
        err = result->err;
    uint8_t fates = may(oracle, fact);
    if (err == MR_OK) {
        accepted(oracle, op, result);
    } else if (err == MR_CONFLICT) {
        if (!(fates & ~GONE))
            oracle_fail(oracle, "enqueue of id %s: conflict with a task that is gone", fact->id);
        else if (!(fate_of(result->state) & fates) &&
                 fact->epoch == op->epoch) /* not handed out since */
            oracle_fail(oracle, "conflict of id %s names state %s", fact->id,
                        mr_state_name(result->state));
    } else if (err == MR_DUPLICATE) {
        if (!fact->spec.unique || key_holder(oracle, op->token, MAY_HOLD) == UINT32_MAX)
            oracle_fail(oracle, "unique: task %u refused, but nobody can hold its key", op->token);
    } else if (err == MR_INVALID) {
        part_refused(oracle, op);
    } else if (!is_refusal(err)) {
        fact->sure |= LIVE;
        fact->in_doubt = true;
        fact->plain = false;
        fact_forget_counts(fact);
        doubt_holders(oracle, op->token);
    }
    /* Of several under way nobody knows which one was announced. */
    if (fact->enqueues == 0)
        fact->announced = false;
}
