/* SPDX-License-Identifier: Apache-2.0 */
/* What was asked and answered, and which fates that leaves to each task. See oracle.h. */
#include "sim/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"
#include "sim/simfs_int.h"

enum { DEFAULT_RETRY = 25, UNIQUE_SHORT_MS = 5000 };

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
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    if (oracle)
        free(oracle->facts);
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
    oracle->jumping = true;
}

void oracle_allow_loss(struct oracle *oracle)
{
    oracle->allow_loss = true;
}

/* ---- facts
 * ---------------------------------------------------------------------------------------- */

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
    bool kept = fact->spec.retention_ms > 0 && !oracle->jumping &&
                oracle->wall_max_ms < fact->ended_ms + fact->spec.retention_ms;
    if ((fates & COMPLETED) && !kept)
        fates |= GONE;
    /* What has expired by a clock that was set back since may show again. */
    if ((fates & GONE) && fact->completed && oracle->jumping)
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

static bool requests_under_way(const struct fact *fact)
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
    return !requests_under_way(fact) && !(may(oracle, fact) & GONE);
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
    return queue;
}

static void add(struct fact *fact, uint8_t fates, int by)
{
    for (unsigned i = 0; i < FATES; i++)
        if (fates & 1u << i)
            fact->adds[i] = (uint8_t)(fact->adds[i] + by);
}

/* ---- producing
 * ------------------------------------------------------------------------------------ */

void payload_fill(uint32_t token, uint8_t *payload, size_t len)
{
    uint64_t x = token * 0x9e3779b97f4a7c15ULL + len;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        payload[i] = (uint8_t)x;
    }
    if (len >= 8) {
        mr_store32(payload, token);
        mr_store32(payload + 4, 0x51a51a51);
    }
}

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

void oracle_options(const struct oracle *oracle, uint32_t token, uint8_t *payload, char *key,
                    struct mr_task_options *ret_options)
{
    const struct oracle_spec *spec = oracle_spec(oracle, token);
    payload_fill(token, payload, spec->payload_len);
    *ret_options = (struct mr_task_options){
        .queue = mr_slice_str(spec->queue),
        .type = mr_slice_str(spec->type),
        .payload = mr_slice_make(payload, spec->payload_len),
        .id = mr_slice_str(spec->id),
        .priority_s = spec->priority_s,
        .delay_ms = spec->delay_ms,
        .max_retry = spec->max_retry,
        .retention_ms = spec->retention_ms,
        .deadline_ms = spec->deadline_ms,
        .on_duplicate = spec->on_duplicate,
    };
    if (spec->unique) {
        snprintf(key, 32, "key-%u", spec->unique);
        ret_options->unique_key = mr_slice_str(key);
        ret_options->unique_ms = spec->unique_forever ? 3650 * MR_MS_PER_DAY : UNIQUE_SHORT_MS;
    }
}

void oracle_enqueue_sent(struct oracle *oracle, uint32_t token, struct oracle_op *ret_op)
{
    struct fact *fact = fact_at(oracle, token);
    fact->version++;
    *ret_op = (struct oracle_op){
        .token = token, .adds = LIVE, .seq = ++oracle->seq, .sent_ms = oracle->now_ms};
    if (fact->enqueues++ == 0) {
        fact->sent_seq = ret_op->seq;
        fact->sent_ms = ret_op->sent_ms;
    }
    add(fact, LIVE, 1);
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
        bool locked = fact->spec.unique_forever ||
                      (!oracle->jumping && fact->born_ms + UNIQUE_SHORT_MS > oracle->now_ms);
        if (how == SURELY_HOLDS ? fates == LIVE && locked && !fact->keyless : fates & LIVE)
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

static void begin_life(struct fact *fact)
{
    const struct oracle_spec *spec = &fact->spec;
    /* What was sent while the enqueue was under way is about this life. */
    bool touched = fact->controls > 0;
    fact->sure = LIVE;
    fact->cancelled = fact->cancelled && touched;
    fact->doomed = fact->doomed && touched;
    fact->keyless = fact->keyless && touched;
    fact->completed = false;
    fact->open = fact->begun = fact->finish_under_way = false;
    fact->retried = fact->crashes = (struct range){0, 0};
    fact->unseen = 0;
    fact->seq = fact->sent_seq;
    fact->born_ms = fact->sent_ms;
    /* A task with a unique key may be moved by the enqueue of another. */
    bool known = !touched && !spec->unique;
    fact->plain = known && spec->delay_ms == 0;
    fact->not_before_ms = known && spec->delay_ms ? fact->sent_ms + spec->delay_ms : 0;
}

static uint32_t token_by_id(const struct oracle *oracle, const char *id)
{
    for (uint32_t i = 0; i < oracle->n; i++)
        if (strcmp(oracle->facts[i].id, id) == 0)
            return i;
    return UINT32_MAX;
}

static void accepted(struct oracle *oracle, const struct oracle_op *op,
                     const struct mr_enqueue_result *result)
{
    struct fact *fact = fact_at(oracle, op->token);
    bool may_join = fact->spec.unique && fact->spec.on_duplicate != MR_DUPLICATE_REJECT;
    uint32_t other = may_join ? token_by_id(oracle, result->id) : UINT32_MAX;
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
    if (fact->spec.id[0] && strcmp(fact->id, result->id) != 0)
        oracle_fail(oracle, "task %u asked for id %s, got %s", op->token, fact->id, result->id);
    snprintf(fact->id, sizeof fact->id, "%s", result->id);
    fact->sent_seq = op->seq;
    fact->sent_ms = op->sent_ms;
    begin_life(fact);
    check_new_key(oracle, op->token);
}

/* Perhaps a new life began. */
static void forget_counts(struct fact *fact)
{
    fact->retried.min = fact->crashes.min = fact->unseen = 0;
}

static bool is_refusal(enum mr_err err)
{
    return err == MR_QUEUE_FULL || err == MR_DISK_FULL || err == MR_INVALID || err == MR_TOO_BIG ||
           err == MR_BUSY || err == MR_RUNNING;
}

void oracle_enqueue_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err,
                             const struct mr_enqueue_result *result)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    add(fact, op->adds, -1);
    fact->enqueues--;
    if (err == MR_OK)
        err = result->err;
    uint8_t fates = may(oracle, fact);
    if (err == MR_OK) {
        accepted(oracle, op, result);
    } else if (err == MR_CONFLICT) {
        if (!(fates & ~GONE))
            oracle_fail(oracle, "enqueue of id %s: conflict with a task that is gone", fact->id);
        else if (!(fate_of(result->state) & fates))
            oracle_fail(oracle, "conflict of id %s names state %s", fact->id,
                        mr_state_name(result->state));
    } else if (err == MR_DUPLICATE) {
        if (!fact->spec.unique || key_holder(oracle, op->token, MAY_HOLD) == UINT32_MAX)
            oracle_fail(oracle, "unique: task %u refused, but nobody can hold its key", op->token);
    } else if (!is_refusal(err)) {
        fact->sure |= LIVE;
        fact->plain = false;
        forget_counts(fact);
    }
    fact->announced = false;
}

/* ---- working
 * -------------------------------------------------------------------------------------- */

void check_body(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    uint8_t *want = sim_alloc(fact->spec.payload_len);
    payload_fill(token, want, fact->spec.payload_len);
    if (!mr_slice_equal(task->payload, mr_slice_make(want, fact->spec.payload_len)))
        oracle_fail(oracle, "task %u: payload differs from what was sent", token);
    free(want);
    if (!mr_slice_equal(task->queue, mr_slice_str(fact->spec.queue)) ||
        !mr_slice_equal(task->type, mr_slice_str(fact->spec.type)))
        oracle_fail(oracle, "task %u: queue or type differs from what was sent", token);
    if (!fact->id[0] && task->id.len <= MR_ID_MAX)
        memcpy(fact->id, task->id.data, task->id.len);
    if (!mr_slice_equal(task->id, mr_slice_str(fact->id)))
        oracle_fail(oracle, "task %u: known as %s, shown as %.*s", token, fact->id,
                    (int)task->id.len, (const char *)task->id.data);
}

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

static void check_order(struct oracle *oracle, uint32_t token)
{
    struct fact *fact = fact_at(oracle, token);
    struct queue_fact *queue = queue_at(oracle, fact->spec.queue);
    if (queue->paused)
        oracle_fail(oracle, "task %u handed out from the paused queue %s", token, queue->name);
    if (!fact->plain || oracle->jumping)
        return;
    fact->plain = false;
    size_t i = 0;
    while (i < queue->priorities_n && queue->priorities[i] != fact->spec.priority_s)
        i++;
    if (i == queue->priorities_n) {
        if (i == sizeof queue->priorities / sizeof queue->priorities[0])
            return;
        queue->priorities[queue->priorities_n++] = fact->spec.priority_s;
        queue->last_seq[i] = 0;
    }
    if (fact->seq < queue->last_seq[i])
        oracle_fail(oracle, "order: task %u of queue %s handed out behind the later %u", token,
                    queue->name, queue->last_token[i]);
    else
        queue->last_seq[i] = fact->seq, queue->last_token[i] = token;
}

static void check_times(struct oracle *oracle, uint32_t token)
{
    struct fact *fact = fact_at(oracle, token);
    if (oracle->jumping)
        return;
    if (oracle->now_ms < fact->not_before_ms)
        oracle_fail(oracle, "task %u handed out %lld ms early", token,
                    (long long)(fact->not_before_ms - oracle->now_ms));
}

/* It is not known which life of the id this is: the one before, or that of the enqueue under way.
 */
static void announce(struct fact *fact)
{
    bool surely_new = !(fact->sure & LIVE);
    struct range retried = fact->retried, crashes = fact->crashes;
    begin_life(fact);
    fact->announced = true;
    if (surely_new)
        return;
    fact->retried = (struct range){0, retried.max};
    fact->crashes = (struct range){0, crashes.max};
    fact->plain = false;
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
    settle_lease(fact);
    if (fact->enqueues > 0 && may(oracle, fact) & GONE)
        announce(fact);
    check_counts(oracle, token, task);
    if (task->attempt != 1 + task->retried + task->crashes)
        oracle_fail(oracle, "task %u: attempt %u with %u failures and %u crashes", token,
                    task->attempt, task->retried, task->crashes);
    check_order(oracle, token);
    check_times(oracle, token);
    fact->version++;
    fact->sure = LIVE;
    fact->open = true;
    fact->begun = fact->finish_under_way = false;
    fact->epoch = lease->epoch;
    fact->retried = (struct range){task->retried, task->retried};
    fact->crashes = (struct range){task->crashes, task->crashes};
    fact->unseen = 0;
    if (lease->epoch > oracle->epoch_max)
        oracle->epoch_max = lease->epoch;
    return token;
}

void oracle_begun(struct oracle *oracle, uint32_t token, uint64_t epoch)
{
    struct fact *fact = fact_at(oracle, token);
    if (fact->epoch == epoch && fact->open)
        fact->begun = true;
}

static uint32_t retry_limit(const struct fact *fact)
{
    if (fact->spec.max_retry == 0)
        return DEFAULT_RETRY;
    return fact->spec.max_retry < 0 ? 0 : (uint32_t)fact->spec.max_retry;
}

static uint8_t fate_after(const struct fact *fact, enum mr_outcome outcome, uint32_t retried)
{
    switch (outcome) {
    case MR_DONE:
        return fact->spec.retention_ms > 0 ? COMPLETED : GONE;
    case MR_FAIL:
        return retried < retry_limit(fact) ? LIVE : ARCHIVED;
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
    *ret_op = (struct oracle_op){
        .token = token,
        .old = old,
        .ended = !(may(oracle, fact) & LIVE),
        .must = alive && !old && fact->open && !fact->finish_under_way && !fact->doomed,
        .outcome = finish->outcome,
        .epoch = finish->epoch,
        .retried = fact->retried.min,
        .not_before_ms = finish->delay_ms > 0 ? oracle->now_ms + finish->delay_ms : 0,
    };
    if (old || ret_op->ended)
        return;
    ret_op->adds = fate_after(fact, finish->outcome, fact->retried.min);
    if (fact->cancelled && finish->outcome != MR_DONE)
        ret_op->adds |= ARCHIVED;
    if (ret_op->adds & COMPLETED && !(may(oracle, fact) & COMPLETED))
        fact->ended_ms = oracle->now_ms;
    add(fact, ret_op->adds, 1);
    fact->completed = fact->completed || ret_op->adds & COMPLETED;
    fact->finish_under_way = true;
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
    if (op->outcome == MR_FAIL || op->outcome == MR_FAIL_FOR_GOOD) {
        bool counted = op->adds == LIVE;
        fact->retried = (struct range){op->retried + counted, op->retried + 1};
    }
    if (op->adds & LIVE && fact->controls == 0 && !fact->spec.unique)
        fact->not_before_ms = op->not_before_ms;
}

void oracle_finish_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    add(fact, op->adds, -1);
    if (err == MR_OK) {
        finished(oracle, op);
    } else if (err == MR_STALE || err == MR_NOT_FOUND) {
        if (op->must && fact->epoch == op->epoch)
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
        fact->retried.max += op->outcome == MR_FAIL || op->outcome == MR_FAIL_FOR_GOOD;
        fact->plain = false;
    }
}

/* ---- control
 * -------------------------------------------------------------------------------------- */

void oracle_control_sent(struct oracle *oracle, uint32_t token, enum mr_verb verb,
                         struct oracle_op *ret_op)
{
    static const uint8_t fates[] = {
        [MR_VERB_CANCEL] = ARCHIVED,  [MR_VERB_DELETE] = GONE,  [MR_VERB_RUN] = LIVE,
        [MR_VERB_ARCHIVE] = ARCHIVED, [MR_VERB_PRIORITISE] = 0,
    };
    struct fact *fact = fact_at(oracle, token);
    fact->version++;
    *ret_op =
        (struct oracle_op){.token = token, .verb = verb, .adds = fates[verb], .epoch = fact->epoch};
    if (verb == MR_VERB_RUN && !(may(oracle, fact) & (LIVE | ARCHIVED)))
        ret_op->adds = 0;
    if (!(may(oracle, fact) & ~GONE))
        ret_op->adds = 0;
    add(fact, ret_op->adds, 1);
    fact->controls++;
    fact->plain = false;
    fact->not_before_ms = 0;
    if (verb == MR_VERB_RUN && may(oracle, fact) & ARCHIVED) {
        fact->keyless = true;
        fact->crashes.max += fact->open && fact->begun;
        fact->begun = false;
        fact->retried.min = fact->crashes.min = fact->unseen = 0;
    }
    if (verb == MR_VERB_CANCEL || verb == MR_VERB_DELETE)
        fact->cancelled = true;
    if (verb == MR_VERB_DELETE)
        fact->doomed = true;
}

static void controlled(struct oracle *oracle, const struct oracle_op *op)
{
    struct fact *fact = fact_at(oracle, op->token);
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
        if (!(may(oracle, fact) & (LIVE | ARCHIVED)))
            oracle_fail(oracle, "task %u made to run after its end", op->token);
        fact->sure = LIVE;
        if (fact->epoch == op->epoch) { /* not handed out since */
            fact->retried.min = fact->crashes.min = fact->unseen = 0;
            fact->open = fact->begun = false; /* it was not running */
        }
        fact->cancelled = fact->adds[2] > 0;
        return;
    case MR_VERB_ARCHIVE:
        fact->sure = ARCHIVED;
        return;
    case MR_VERB_PRIORITISE:
        return;
    }
}

void oracle_control_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err)
{
    struct fact *fact = fact_at(oracle, op->token);
    fact->version++;
    add(fact, op->adds, -1);
    fact->controls--;
    bool refused = err == MR_WRONG_STATE || err == MR_RUNNING || err == MR_NOT_FOUND ||
                   err == MR_DISK_FULL || err == MR_INVALID;
    if (err == MR_OK)
        controlled(oracle, op);
    else if (err == MR_NOT_FOUND && !(may(oracle, fact) & GONE) && !oracle->allow_loss)
        oracle_fail(oracle, "lost: task %u (%s) not found", op->token, fact->id);
    else if (!refused)
        fact->sure |= op->adds;
    /* Only a running task keeps the flag of an answered request. */
    if (op->verb == MR_VERB_DELETE && err != MR_RUNNING && refused)
        fact->doomed = false;
}

void oracle_remove_sent(struct oracle *oracle, const char *queue, struct oracle_op *ret_op)
{
    *ret_op = (struct oracle_op){.seq = oracle->n}; /* tasks that were known by then */
    oracle_pause_sent(oracle, queue);               /* a queue made anew is not paused */
    for (size_t i = 0; i < oracle->n; i++)
        if (strcmp(oracle->facts[i].spec.queue, queue) == 0)
            add(&oracle->facts[i], GONE, 1);
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
        add(fact, GONE, -1);
        if (err == MR_OK)
            fact->sure = GONE, fact->completed = false;
        else if (!refused)
            fact->sure |= GONE;
    }
    oracle_pause_answered(oracle, queue, false, refused ? MR_FAILED : err);
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

/* ---- crashes
 * -------------------------------------------------------------------------------------- */

void oracle_crashed(struct oracle *oracle, enum oracle_crash kind)
{
    oracle->epoch_floor = oracle->epoch_max;
    for (size_t i = 0; i < oracle->n; i++) {
        struct fact *fact = &oracle->facts[i];
        fact->sure = may(oracle, fact);
        fact->plain = fact->plain && !requests_under_way(fact);
        fact->version++;
        if (fact->enqueues > 0)
            forget_counts(fact);
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
        fact->enqueues = fact->controls = 0;
        fact->open = fact->begun = fact->finish_under_way = fact->announced = false;
    }
    for (size_t i = 0; i < oracle->queues_n; i++)
        if (!oracle->queues[i].paused)
            oracle->queues[i].running = false; /* a pause under way may have happened */
    for (size_t i = 0; i < oracle->queues_n; i++)
        oracle->queues[i].pauses = 0;
}
