/* SPDX-License-Identifier: Apache-2.0 */
/* Judging what a store shows as a whole. See oracle.h. */
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"
#include "sim/simfs_int.h"

uint8_t fate_of(enum mr_state state)
{
    static const uint8_t fates[MR_STATE_COUNT] = {
        [MR_STATE_NONE] = GONE,     [MR_SCHEDULED] = LIVE,   [MR_PENDING] = LIVE,
        [MR_ACTIVE] = LIVE,         [MR_RETRY] = LIVE,       [MR_ARCHIVED] = ARCHIVED,
        [MR_COMPLETED] = COMPLETED, [MR_AGGREGATING] = LIVE,
    };
    return state < MR_STATE_COUNT ? fates[state] : 0;
}

/* What was shown is durable: other fates are no longer possible. */
static void narrow(struct fact *fact, const struct mr_task *task)
{
    if (fact_busy(fact) || fact->open)
        return;
    if (fact->sure != fate_of(task->state))
        fact->version++; /* its deadline has passed, say: a copy begun before shows it otherwise */
    fact->sure = fate_of(task->state);
    fact->in_doubt = false;
    fact->completed = fact->completed || task->state == MR_COMPLETED;
    fact->retried = (struct range){task->retried, task->retried};
    fact->crashes = (struct range){task->crashes, task->crashes};
    fact->unseen = 0;
}

static bool is_damaged(const struct mr_task *task)
{
    return task->type.len == 0;
}

/* It expired, its record went with the segment since the disk was full, and by a clock that was set back it is there once
 * more. */
static bool is_leftover(const struct oracle *oracle, const struct mr_task *task)
{
    return is_damaged(task) && task->state == MR_COMPLETED && oracle->short_of_space &&
           oracle->era > 0;
}

static bool is_excused(const struct oracle *oracle, const struct mr_task *task)
{
    return is_leftover(oracle, task) || (is_damaged(task) && oracle->reads_failed > 0);
}

/* In the archive, and only a failed read can explain that. */
static void count_quarantined(struct oracle *oracle, struct fact *fact)
{
    uint32_t reads_failed = oracle->reads_failed;
    oracle->reads_failed = 0;
    bool explained = may(oracle, fact) & ARCHIVED;
    oracle->reads_failed = reads_failed;
    if (explained || fact->quarantined)
        return;
    fact->quarantined = true;
    if (++oracle->quarantined > reads_failed)
        oracle_fail(oracle, "%u tasks went to the archive by themselves, %u reads failed",
                    oracle->quarantined, reads_failed);
}

static void check_shown(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    uint8_t fate = fate_of(task->state), fates = may(oracle, fact);
    if (!(fate & fates))
        oracle_fail(oracle, "%s: task %u (%s) is %s, which it cannot be (fates %x)",
                    fates == GONE ? "ghost" : "state", token, fact->id, mr_state_name(task->state),
                    fates);
    if (fate == ARCHIVED && oracle->reads_failed)
        count_quarantined(oracle, fact);
    check_body(oracle, token, task);
    check_note(oracle, token, task);
    check_counts(oracle, token, task);
    check_part(oracle, token, task);
    if (fate == LIVE && task->crashes >= MR_CRASHES_MAX)
        oracle_fail(oracle, "task %u lost its worker %u times and is not quarantined", token,
                    task->crashes);
    narrow(fact, task);
}

void oracle_saw(struct oracle *oracle, uint32_t token, uint32_t version, enum mr_err err,
                const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    if (err == MR_OK && is_excused(oracle, task))
        return;
    if (fact->version != version) {
        if (err == MR_OK && token_of(oracle, task) == token)
            check_body(oracle, token, task);
        return;
    }
    if (err == MR_NOT_FOUND) {
        if (!(may(oracle, fact) & GONE) && !oracle->allow_loss)
            oracle_fail(oracle, "lost: task %u (%s) not found", token, fact->id);
        else if (!fact_busy(fact) && !fact->open)
            fact->sure = GONE;
    } else if (err == MR_OK) {
        if (token_of(oracle, task) != token)
            oracle_fail(oracle, "asked for task %u (%s), shown another", token, fact->id);
        else
            check_shown(oracle, token, task);
    }
}

void oracle_awaited(struct oracle *oracle, uint32_t token, uint32_t version, enum mr_err err,
                    const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    bool shown = err == MR_OK && !is_excused(oracle, task);
    if (!shown || token_of(oracle, task) != token) {
        oracle_saw(oracle, token, version, err, task);
        return;
    }
    check_body(oracle, token, task);
    /* Done, and whether it is kept is not said. */
    uint8_t ends = task->state == MR_COMPLETED  ? COMPLETED | GONE
                   : task->state == MR_ARCHIVED ? ARCHIVED
                                                : 0;
    if (ends == 0)
        oracle_fail(oracle, "task %u is told to have ended as %s", token,
                    mr_state_name(task->state));
    if (task->epoch != fact->epoch)
        return; /* handed out again since, which is heard at once */
    uint8_t fates = may(oracle, fact);
    if (!(fates & ends))
        oracle_fail(oracle, "task %u is told to have ended as %s, which it cannot (fates %x)",
                    token, mr_state_name(task->state), fates);
    if (ends == ARCHIVED && oracle->reads_failed)
        count_quarantined(oracle, fact);
    check_note(oracle, token, task);
    check_counts(oracle, token, task);
    fact->sure = fates & ends;
    fact->version++;
}

/* Answers how many are shown as damaged. */
static size_t check_listed(struct oracle *oracle, const struct oracle_view *view)
{
    size_t damaged = 0;
    for (size_t i = 0; i < view->tasks_n; i++) {
        const struct mr_task *task = &view->tasks[i];
        uint32_t token = token_of(oracle, task);
        if (is_excused(oracle, task) || (oracle->allow_loss && is_damaged(task))) {
            damaged += !is_leftover(oracle, task);
            continue;
        }
        if (token == UINT32_MAX) {
            oracle_fail(oracle, "ghost: id %.*s listed, nobody asked for it", (int)task->id.len,
                        (const char *)task->id.data);
            continue;
        }
        struct fact *fact = fact_at(oracle, token);
        if (fact->seen)
            oracle_fail(oracle, "task %u (%s) is listed twice", token, fact->id);
        fact->seen = true;
        check_shown(oracle, token, task);
    }
    if (damaged > oracle->reads_failed && !oracle->allow_loss)
        oracle_fail(oracle, "%zu tasks are shown as damaged, %u reads failed", damaged,
                    oracle->reads_failed);
    return damaged;
}

void oracle_check_task_body(struct oracle *oracle, const struct mr_task *task)
{
    uint32_t token = token_of(oracle, task);
    if (token == UINT32_MAX)
        oracle_fail(oracle, "ghost: id %.*s listed, nobody asked for it", (int)task->id.len,
                    (const char *)task->id.data);
    else
        check_body(oracle, token, task);
}

/* As many may be missing as are shown without their names. */
static void check_missing(struct oracle *oracle, size_t damaged)
{
    size_t missing = 0;
    for (uint32_t i = 0; i < oracle->n; i++) {
        struct fact *fact = &oracle->facts[i];
        if (fact->seen)
            continue;
        missing += !(may(oracle, fact) & GONE);
        if (missing > damaged && !oracle->allow_loss)
            oracle_fail(oracle, "lost: task %u (%s) is not there (fates %x)", i, fact->id,
                        may(oracle, fact));
        if (!fact_busy(fact) && !fact->open && damaged == 0)
            fact->sure = GONE;
    }
}

/* Every counter of every queue equals a recount. */
static void check_queues(struct oracle *oracle, const struct oracle_view *view)
{
    size_t listed = 0;
    for (size_t q = 0; q < view->queues_n; q++) {
        const struct mr_queue_info *info = &view->queues[q];
        uint64_t counts[MR_STATE_COUNT] = {0};
        for (size_t i = 0; i < view->tasks_n; i++)
            if (mr_slice_equal(view->tasks[i].queue, mr_slice_str(info->name)))
                counts[view->tasks[i].state]++;
        for (enum mr_state s = MR_SCHEDULED; s < MR_STATE_COUNT; s++) {
            listed += counts[s];
            if (counts[s] != info->counts[s])
                oracle_fail(oracle, "queue %s counts %llu tasks %s, %llu are listed", info->name,
                            (unsigned long long)info->counts[s], mr_state_name(s),
                            (unsigned long long)counts[s]);
        }
        if (strlen(info->name) >= sizeof oracle->queues[0].name)
            continue;
        struct queue_fact *fact = queue_at(oracle, info->name);
        if ((fact->paused && !info->paused) || (fact->running && info->paused))
            oracle_fail(oracle, "queue %s is %s", info->name, info->paused ? "paused" : "running");
        fact->paused = info->paused;
        fact->running = !info->paused;
        check_parts(oracle, fact, info->partitions);
        check_mode(oracle, fact, info->retry_mode);
        fact->seen = true;
    }
    for (size_t q = 0; q < oracle->queues_n; q++) { /* one that is made again has no settings */
        struct queue_fact *fact = &oracle->queues[q];
        if (!fact->seen && fact->splits == 0)
            fact->parts = 1;
        if (!fact->seen)
            check_mode(oracle, fact, MR_RETRY_GATE);
        fact->seen = false;
    }
    if (listed != view->tasks_n)
        oracle_fail(oracle, "%zu tasks are in queues that are not listed", view->tasks_n - listed);
    if (view->stats && view->stats->tasks != view->tasks_n)
        oracle_fail(oracle, "the store counts %llu tasks, %zu are listed",
                    (unsigned long long)view->stats->tasks, view->tasks_n);
}

static void check_keys(struct oracle *oracle, const struct oracle_view *view)
{
    for (size_t i = 0; i < view->tasks_n; i++) {
        uint32_t a = token_of(oracle, &view->tasks[i]);
        if (a == UINT32_MAX || fate_of(view->tasks[i].state) != LIVE)
            continue;
        const struct oracle_spec *spec = oracle_spec(oracle, a);
        for (size_t j = 0; spec->unique && spec->unique_forever && j < i; j++) {
            uint32_t b = token_of(oracle, &view->tasks[j]);
            if (b == UINT32_MAX || fate_of(view->tasks[j].state) != LIVE)
                continue;
            if (same_key(oracle_spec(oracle, b), spec) && !fact_at(oracle, a)->keyless &&
                !fact_at(oracle, b)->keyless)
                oracle_fail(oracle, "unique: tasks %u and %u both hold key-%u", b, a, spec->unique);
        }
    }
}

void oracle_check(struct oracle *oracle, const struct oracle_view *view)
{
    for (size_t i = 0; i < oracle->n; i++)
        oracle->facts[i].seen = false;
    size_t damaged = check_listed(oracle, view);
    check_missing(oracle, damaged);
    check_gathered(oracle);
    check_queues(oracle, view);
    check_keys(oracle, view);
}

void oracle_check_stopped(struct oracle *oracle, const struct oracle_view *view)
{
    for (size_t i = 0; i < oracle->n; i++)
        oracle->facts[i].seen = false;
    size_t damaged = 0;
    for (size_t i = 0; i < view->tasks_n; i++) {
        const struct mr_task *task = &view->tasks[i];
        uint32_t token = token_of(oracle, task);
        if (is_excused(oracle, task)) {
            damaged++;
            continue;
        }
        oracle_check_task_body(oracle, task);
        if (token != UINT32_MAX)
            oracle->facts[token].seen = true;
    }
    for (uint32_t i = 0; i < oracle->n && damaged == 0; i++)
        if (!oracle->facts[i].seen && oracle_is_settled(oracle, i))
            oracle_fail(oracle, "task %u (%s) is not shown after a failed write or sync", i,
                        oracle->facts[i].id);
}

void oracle_check_idle(struct oracle *oracle, const struct oracle_view *view)
{
    oracle_check(oracle, view);
    for (size_t i = 0; i < view->tasks_n; i++)
        if (fate_of(view->tasks[i].state) == LIVE)
            oracle_fail(oracle, "stuck: task %u (%.*s) is still %s",
                        token_of(oracle, &view->tasks[i]), (int)view->tasks[i].id.len,
                        (const char *)view->tasks[i].id.data, mr_state_name(view->tasks[i].state));
}

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 29;
}

/* The sum over the tasks does not depend on the order of the list. */
uint64_t oracle_digest(const struct oracle_view *view)
{
    uint64_t sum = view->tasks_n;
    for (size_t i = 0; i < view->tasks_n; i++) {
        const struct mr_task *task = &view->tasks[i];
        uint64_t hash = mix(0xcbf29ce484222325ULL, task->id.data, task->id.len);
        hash = mix(hash, task->queue.data, task->queue.len);
        hash = mix(hash, task->payload.data, task->payload.len);
        hash = mix(hash, task->unique_key.data, task->unique_key.len);
        hash = mix(hash, task->result.data, task->result.len);
        hash = mix(hash, task->last_error.data, task->last_error.len);
        for (size_t h = 0; h < task->headers_n; h++)
            hash = mix(hash, task->headers[h].value.data, task->headers[h].value.len);
        int64_t numbers[] = {(int64_t)task->state, (int64_t)task->retried, (int64_t)task->crashes,
                             task->order_time_ms,  task->created_ms,       task->retention_ms,
                             task->partition};
        sum += mix(hash, numbers, sizeof numbers);
    }
    return sum;
}
