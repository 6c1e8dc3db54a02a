/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beats: they renew the leases of all that a node holds, with one script call for each queue.
 *
 * A lease that has ended is still ours until somebody takes the task, and nobody can while Redis does not
 * run, is loading or takes no writes: then a beat is answered as if it had been heard, and the runs go on
 * however long that takes. When Redis is back, every engine says at once that its nodes live, and those
 * who look for leases that ended give them the time for it (recover.c). A Redis that is only silent may
 * answer others: then the beat fails, and when the lease is over the worker stops its runs.
 *
 * Their answers also say which runs are to be cancelled: the message that said so may have been missed.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/internal.h"

/* The leases of one queue that a beat renews. */
struct beat {
    struct mr_redis_call call;
    struct mr_arena memory; /* of what follows */
    struct ticket *ticket;  /* NULL: the engine's own */
    struct node *node;
    struct rqueue *queue;
    struct mr_slice *args;
    uint64_t *epochs;
    size_t n, args_n;
};

enum { BEAT_ARGS = 3 }; /* of one lease */

/* ---- answers -------------------------------------------------------------------------------- */

void beat_over(struct ticket *ticket)
{
    if (ticket != NULL && --ticket->calls == 0)
        ticket_done(ticket, ticket->err);
}

/* One of them is lost, or, below 0, is to be cancelled. */
static void told_of(struct beat *beat, int64_t number)
{
    struct node *node = beat->node;
    bool lost = number > 0;
    uint64_t at = lost ? (uint64_t)number : -(uint64_t)number;
    struct hold *hold = at - 1 < beat->n ? hold_of_epoch(node, beat->epochs[at - 1]) : NULL;
    if (hold == NULL || hold->ending)
        return;
    if (lost)
        hold_lost(node, hold);
    else
        hold_cancelled(node, hold);
}

static void renewed(struct beat *beat, const struct mr_reply *answer)
{
    beat->queue->beat_refused = false;
    for (size_t i = 0; i < answer->n; i++)
        told_of(beat, mr_reply_int(&answer->items[i], 0));
}

/* What Redis refuses is said once; it concerns this queue, and is no reason to end anything. */
static void refused(struct rqueue *queue, enum mr_err err, const struct mr_reply *reply)
{
    if (!queue->beat_refused)
        (void)rqueue_refused(queue, err, reply);
    queue->beat_refused = true;
}

static void beat_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct beat *beat = call->arg;
    struct node *node = beat->node;
    struct ticket *ticket = beat->ticket;
    bool odd = err == MR_OK && reply->kind != MR_REPLY_ARRAY;
    if (err == MR_OK && !odd)
        renewed(beat, reply);
    else if (odd || err == MR_FAILED || err == MR_DENIED || err == MR_DISK_FULL)
        refused(beat->queue, err, reply);
    else if (ticket != NULL && !(err == MR_UNAVAILABLE && call->gone))
        ticket->err = err;
    mr_arena_done(&beat->memory);
    free(beat);
    beat_over(ticket);
    node_call_done(node);
}

/* ---- sending -------------------------------------------------------------------------------- */

/* "PERCENT TEXT" of what is said about this lease; empty: nothing. */
static enum mr_err progress_text(const struct ticket *ticket, uint64_t epoch,
                                 struct mr_arena *arena, struct mr_slice *ret_text)
{
    char text[MR_PROGRESS_TEXT_MAX + 32];
    *ret_text = (struct mr_slice){0};
    if (ticket == NULL)
        return MR_OK;
    const struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    for (size_t i = 0; i < req->progress_n; i++) {
        const struct mr_progress *progress = &req->progress[i];
        if (progress->epoch != epoch)
            continue;
        int len = (int)mr_utf8_cut(progress->text, MR_PROGRESS_TEXT_MAX);
        int n = snprintf(text, sizeof text, len > 0 ? "%d %.*s" : "%d", progress->percent, len,
                         (const char *)progress->text.data);
        MR_TRY(mr_arena_copy(arena, mr_slice_make(text, (size_t)n), ret_text));
    }
    return MR_OK;
}

/* As many of the queue's as fit and have no part in this beat yet. */
static enum mr_err beat_fill(struct beat *beat, uint64_t number)
{
    struct node *node = beat->node;
    struct mr_arena *arena = &beat->memory;
    char text[NUMBER_MAX];
    beat->args = mr_arena_calloc(arena, BEAT_ARGS * (size_t)node->in_hand + 1, sizeof *beat->args);
    beat->epochs = mr_arena_calloc(arena, node->in_hand, sizeof *beat->epochs);
    if (beat->args == NULL || beat->epochs == NULL)
        return MR_NOMEM;
    MR_TRY(mr_arena_copy(arena, number_arg(node->lease_ms, text), &beat->args[beat->args_n++]));
    for (uint32_t i = 0; i < node->holds_n && beat->n < MR_BATCH_MAX; i++) {
        struct hold *hold = &node->holds[i];
        if (hold->epoch == 0 || hold->queue != beat->queue || hold->beaten == number)
            continue;
        struct mr_slice *args = &beat->args[beat->args_n];
        hold->beaten = number;
        beat->epochs[beat->n++] = hold->epoch;
        beat->args_n += BEAT_ARGS;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(hold->id, hold->id_len), &args[0]));
        MR_TRY(mr_arena_copy(arena, number_arg((int64_t)hold->epoch, text), &args[1]));
        MR_TRY(progress_text(beat->ticket, hold->epoch, arena, &args[2]));
    }
    return MR_OK;
}

static enum mr_err beat_queue(struct node *node, struct rqueue *queue, struct ticket *ticket,
                              uint64_t number)
{
    struct beat *beat = calloc(1, sizeof *beat);
    if (beat == NULL)
        return MR_NOMEM;
    beat->ticket = ticket;
    beat->node = node;
    beat->queue = queue;
    beat->call = (struct mr_redis_call){
        .answered = beat_answered, .arg = beat, .repeatable = true, .urgent = true};
    enum mr_err err = beat_fill(beat, number);
    if (err != MR_OK) {
        mr_arena_done(&beat->memory);
        free(beat);
        return err;
    }
    if (ticket != NULL)
        ticket->calls++;
    node->calls++;
    rqueue_eval(queue, &beat->call, SCRIPT_BEAT, beat->args, beat->args_n);
    recover_in(queue, node->lease_ms + 1);
    return MR_OK;
}

static enum mr_err beat_node(struct node *node, struct ticket *ticket)
{
    uint64_t number = ++node->engine->beats;
    for (uint32_t i = 0; i < node->holds_n; i++) {
        struct hold *hold = &node->holds[i];
        if (hold->epoch != 0 && hold->beaten != number)
            MR_TRY(beat_queue(node, hold->queue, ticket, number));
    }
    return MR_OK;
}

void node_beat_begin(struct ticket *ticket)
{
    struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    struct node *node = node_get(ticket->engine, req->node);
    req->term = 0;
    req->leader_ms = 0;
    if (node == NULL) {
        ticket_done(ticket, MR_NOT_FOUND);
        return;
    }
    node_heard(node);
    node_say_slots(node, req);
    ticket->calls = 1;
    leader_vote(node, ticket);
    enum mr_err err = beat_node(node, ticket);
    if (err != MR_OK)
        ticket->err = err;
    beat_over(ticket);
}

/* Without memory the next beat of the worker's does it. */
static void beat_all(struct engine *engine)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        if (!node->leaving)
            (void)beat_node(node, NULL);
    }
}

static void beat_again(struct mr_timer *timer, void *arg)
{
    struct engine *engine = mr_container(timer, struct engine, beat_timer);
    (void)arg;
    if (engine->beat_asked && !engine->closing)
        nodes_beat(engine);
}

/* A Cluster that finds its order says so many times a second: those who live then say it now and then. */
void nodes_beat(struct engine *engine)
{
    if (mr_list_empty(&engine->nodes)) /* also at the first connection, when opening is not over */
        return;
    engine->beat_asked = mr_timer_running(&engine->beat_timer);
    if (engine->beat_asked)
        return;
    beat_all(engine);
    mr_redis_timer_start(engine->redis, &engine->beat_timer,
                         mr_mono_add_ms(mr_redis_now(engine->redis), AGAIN_MS));
}

void beat_init(struct engine *engine)
{
    mr_timer_init(&engine->beat_timer, beat_again);
}
