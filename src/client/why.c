/* SPDX-License-Identifier: Apache-2.0 */
#include "client/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/text.h"
#include "wire/node.h"

#define TEXT(slice) (int)(slice).len, (const char *)(slice).data

const char *mr_why_word(enum mr_why_reason reason)
{
    static const char *const words[] = {
#define MR_WHY_WORD(name, word) word,
        MR_WHY_MAP(MR_WHY_WORD)
#undef MR_WHY_WORD
    };
    mr_assert((unsigned)reason < MR_WHY_COUNT);
    return words[reason];
}

/* ---- sentences ------------------------------------------------------------------------------ */

/* Names have been checked; an error is whatever a worker wrote. */
static void make_plain(char *text)
{
    bool utf8 = mr_utf8_valid(mr_slice_str(text));
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7f || (*c > 0x7f && !utf8))
            *c = ' ';
}

MR_PRINTF(3, 4)
static void because(struct mr_why *why, enum mr_why_reason reason, const char *fmt, ...)
{
    mr_assert(why->n < MR_WHY_MAX);
    char *text = why->reasons[why->n].text;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, MR_WHY_TEXT_MAX, fmt, ap);
    va_end(ap);
    make_plain(text);
    why->reasons[why->n++].reason = reason;
}

/* "5m30s": nobody needs the milliseconds of a minute. */
static const char *span(int64_t ms, char text[32])
{
    ms = llabs(ms);
    mr_format_duration_ms(ms < MR_MS_PER_S ? ms : ms - ms % MR_MS_PER_S, text);
    return text;
}

static const char *when(const struct mr_why_facts *facts, int64_t ms, char text[96])
{
    char at[32], about[32];
    mr_format_time_ms(ms, at);
    span(ms - facts->now_ms, about);
    snprintf(text, 96, ms <= facts->now_ms ? "%s (%s ago)" : "%s (in %s)", at, about);
    return text;
}

static void last_error(const struct mr_why_facts *facts, struct mr_why *why)
{
    enum { SHOWN = 500 };
    struct mr_slice error = facts->task->last_error;
    error.len = mr_utf8_cut(error, SHOWN);
    if (error.len > 0)
        because(why, MR_WHY_LAST_ERROR, "the last error: %.*s", TEXT(error));
}

/* ---- who could run it ----------------------------------------------------------------------- */

struct workers {
    size_t of_queue; /* nodes that take from its queue */
    size_t of_type;  /* and handle its type */
    size_t slots, free_slots;
    size_t catchers; /* nodes to which it falls, if it is addressed to others */
};

static bool takes_from(const struct mr_node_info *node, struct mr_slice queue)
{
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_slice_equal(node->queues[i].name, queue))
            return true;
    return false;
}

/* It serves a queue that this one is an address of. */
static bool may_catch(const struct mr_node_info *node, struct mr_slice queue)
{
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_is_address(queue, node->queues[i].name))
            return true;
    return false;
}

static struct workers count_workers(const struct mr_why_facts *facts)
{
    struct workers workers = {0};
    for (size_t i = 0; i < facts->nodes_n; i++) {
        const struct mr_node_info *node = &facts->nodes[i];
        bool takes = takes_from(node, facts->task->queue);
        if (node->state == MR_NODE_DEAD)
            continue;
        workers.catchers += !takes && may_catch(node, facts->task->queue);
        if (!takes)
            continue;
        workers.of_queue++;
        if (!mr_node_handles(node, facts->task->type))
            continue;
        uint64_t taken = node->in_hand > node->busy ? node->in_hand : node->busy;
        workers.of_type++;
        workers.slots += node->slots;
        workers.free_slots += taken < node->slots ? (size_t)(node->slots - taken) : 0;
    }
    return workers;
}

static void nobody_runs_it(const struct mr_why_facts *facts, const struct workers *workers,
                           struct mr_why *why)
{
    const struct mr_task *task = facts->task;
    if (workers->of_queue == 0 && workers->catchers > 0)
        because(why, MR_WHY_NO_WORKER,
                "nobody is there whom its queue %.*s is for; it falls to one of %zu others when it "
                "has waited as long as they leave it",
                TEXT(task->queue), workers->catchers);
    else if (workers->of_queue == 0)
        because(why, MR_WHY_NO_WORKER, "no worker takes from its queue %.*s", TEXT(task->queue));
    else if (workers->of_type == 0)
        because(why, MR_WHY_NO_HANDLER,
                "none of the %zu workers of queue %.*s handles its type %.*s", workers->of_queue,
                TEXT(task->queue), TEXT(task->type));
}

static void limited_by(const struct mr_why_facts *facts, const struct mr_limit *limit,
                       struct mr_why *why)
{
    char what[2 * MR_NAME_MAX + 32], every[32], text[96];
    const struct mr_task *task = facts->task;
    struct mr_slice name = limit->scope == MR_LIMIT_TYPE ? task->type : task->key;
    bool whole = limit->scope == MR_LIMIT_QUEUE;
    snprintf(what, sizeof what, "%s %.*s", whole ? "its" : mr_limit_scope_name(limit->scope),
             whole ? 5 : (int)name.len, whole ? "queue" : (const char *)name.data);
    mr_format_duration_ms(limit->rate_ms, every);
    if (limit->concurrency > 0 && limit->active >= limit->concurrency)
        because(why, MR_WHY_LIMIT, "%s may have %u task%s in hand at once, and has %u", what,
                limit->concurrency, limit->concurrency == 1 ? "" : "s", limit->active);
    if (limit->rate > 0 && limit->rate_until_ms > facts->now_ms)
        because(why, MR_WHY_LIMIT, "%s may begin %u task%s every %s; the next may begin at %s",
                what, limit->rate, limit->rate == 1 ? "" : "s", every,
                when(facts, limit->rate_until_ms, text));
}

/* What keeps it from running once it is pending. */
static bool held_up(const struct mr_why_facts *facts, const struct workers *workers,
                    struct mr_why *why)
{
    size_t before = why->n;
    if (facts->queue->paused)
        because(why, MR_WHY_PAUSED, "its queue %s is paused", facts->queue->name);
    nobody_runs_it(facts, workers, why);
    return why->n > before;
}

/* ---- by state ------------------------------------------------------------------------------- */

static void why_scheduled(const struct mr_why_facts *facts, struct mr_why *why)
{
    char text[96];
    struct workers workers = count_workers(facts);
    because(why, MR_WHY_DUE, "it is due at %s", when(facts, facts->task->due_ms, text));
    (void)held_up(facts, &workers, why);
}

static void why_pending(const struct mr_why_facts *facts, struct mr_why *why)
{
    struct workers workers = count_workers(facts);
    uint64_t pending = facts->queue->counts[MR_PENDING];
    unsigned long long others = pending > 0 ? pending - 1 : 0;
    bool held = held_up(facts, &workers, why);
    size_t before = why->n;
    for (size_t i = 0; i < facts->limits_n && why->n + 1 < MR_WHY_MAX; i++)
        limited_by(facts, &facts->limits[i], why);
    if (held || why->n > before)
        return;
    if (workers.free_slots == 0)
        because(why, MR_WHY_SLOTS_FULL,
                "all %zu slots of the workers that could run it are taken; %llu other tasks wait "
                "in queue %s",
                workers.slots, others, facts->queue->name);
    else
        because(why, MR_WHY_NEXT,
                "nothing holds it up: %zu of %zu slots are free; %llu other tasks wait in queue %s",
                workers.free_slots, workers.slots, others, facts->queue->name);
}

static const struct mr_node_info *find_node(const struct mr_why_facts *facts, struct mr_slice name)
{
    for (size_t i = 0; i < facts->nodes_n; i++)
        if (mr_slice_equal(facts->nodes[i].name, name))
            return &facts->nodes[i];
    return NULL;
}

static void why_active(const struct mr_why_facts *facts, struct mr_why *why)
{
    char text[96], beat[96];
    const struct mr_task *task = facts->task;
    const struct mr_node_info *node = find_node(facts, task->node);
    if (task->cancel_requested)
        because(why, MR_WHY_CANCELLING,
                "it has been told to stop, and its worker has not answered");
    because(why, MR_WHY_RUNNING, "node %.*s has it in hand as attempt %u since %s",
            TEXT(task->node), task->attempt, when(facts, task->started_ms, text));
    if (node != NULL && node->state != MR_NODE_LIVE)
        because(why, MR_WHY_NODE_SILENT, "this node is %s: its last beat was at %s",
                mr_node_state_name(node->state), when(facts, node->last_beat_ms, beat));
}

static void why_retry(const struct mr_why_facts *facts, struct mr_why *why)
{
    char text[96], failed[64] = "it has not failed"; /* it asked for another time */
    const struct mr_task *task = facts->task;
    struct workers workers = count_workers(facts);
    bool waits = facts->queue->retry_mode == MR_RETRY_CLASS && task->due_ms <= facts->now_ms &&
                 task->due_ms > 0;
    int64_t at_ms = task->due_ms + (waits ? facts->queue->retry_wait_ms : 0);
    if (task->retried > 0)
        snprintf(failed, sizeof failed, "it failed %u time%s, of %u allowed", task->retried,
                 task->retried == 1 ? "" : "s", task->max_retry);
    because(why, MR_WHY_RETRY,
            waits ? "%s, and is tried again when nothing else is ready, at the latest at %s"
                  : "%s, and is tried again at %s",
            failed, when(facts, at_ms, text));
    last_error(facts, why);
    (void)held_up(facts, &workers, why);
}

static void why_archived(const struct mr_why_facts *facts, struct mr_why *why)
{
    char text[96];
    const struct mr_task *task = facts->task;
    bool failed = task->retried >= task->max_retry && task->last_failed_ms == task->finished_ms;
    if (task->crashes >= MR_CRASHES_MAX)
        because(why, MR_WHY_CRASHED, "it lost its worker %u times and was set aside",
                task->crashes);
    else if (failed)
        because(why, MR_WHY_FAILED, "it failed for the last time at %s: %u %s allowed",
                when(facts, task->finished_ms, text), task->max_retry,
                task->max_retry == 1 ? "retry was" : "retries were");
    else
        because(why, MR_WHY_ARCHIVED, "it was archived at %s",
                when(facts, task->finished_ms, text));
    last_error(facts, why);
}

static void why_completed(const struct mr_why_facts *facts, struct mr_why *why)
{
    enum { SHOWN = 500 };
    char text[96];
    struct mr_slice how = facts->task->last_error;
    if (mr_slice_starts_with(how, MR_SLICE_LIT(MR_MOVED_PREFIX))) /* it ends there */
        how.len = mr_utf8_cut(how, SHOWN);
    else
        how = MR_SLICE_LIT("it succeeded");
    because(why, MR_WHY_COMPLETED, "%.*s at %s", TEXT(how),
            when(facts, facts->task->finished_ms, text));
}

static void why_aggregating(const struct mr_why_facts *facts, struct mr_why *why)
{
    char text[96];
    because(
        why, MR_WHY_GROUP,
        "it waits in group %.*s since %s; a worker with a function for groups makes one task of "
        "them",
        TEXT(facts->task->group), when(facts, facts->task->created_ms, text));
}

void mr_why(const struct mr_why_facts *facts, struct mr_why *ret_why)
{
    static void (*const explain[MR_STATE_COUNT])(const struct mr_why_facts *, struct mr_why *) = {
        [MR_SCHEDULED] = why_scheduled,     [MR_PENDING] = why_pending,
        [MR_ACTIVE] = why_active,           [MR_RETRY] = why_retry,
        [MR_ARCHIVED] = why_archived,       [MR_COMPLETED] = why_completed,
        [MR_AGGREGATING] = why_aggregating,
    };
    ret_why->n = 0;
    if ((unsigned)facts->task->state < MR_STATE_COUNT && explain[facts->task->state])
        explain[facts->task->state](facts, ret_why);
}
