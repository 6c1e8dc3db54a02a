/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions: into which of them a task goes, from which a node takes, and who prefers which. A queue of
 * one partition passes here without a look at any of that.
 */
#include "broker/partition.h"

#include <stdlib.h>

#include "broker/embedded/carry.h"

enum { FAIR_EVERY = 8 }; /* takes of a node from a queue: one of them is from any partition */

/* ---- where a task goes ---------------------------------------------------------------------- */

static bool is_full(const struct queue *queue, uint32_t part)
{
    return queue->max_length > 0 && queue->parts[part].waiting >= queue->max_length;
}

/* What leads to its partition; empty: nothing, any will do. As on Redis, but for an id: here it is found
 * wherever the task is, and those of producers at a server are made by them, never by the engine. */
static struct mr_slice leads(const struct mr_task_options *options, const struct item *item)
{
    return options->key.len > 0             ? options->key
           : (item->flags & MR_TASK_UNIQUE) ? mr_slice_make(&item->unique, sizeof item->unique)
                                            : options->group;
}

/* The next one in turn that is not full; where all are, that whose turn it is. */
static uint32_t in_turn(const struct queue *queue)
{
    for (uint32_t i = 0; i < queue->parts_n; i++) {
        uint32_t part = (queue->turn + i) % queue->parts_n;
        if (!is_full(queue, part))
            return part;
    }
    return queue->turn % queue->parts_n;
}

enum mr_err part_choose(const struct queue *queue, const struct mr_task_options *options,
                        const struct item *item, struct part_choice *ret_choice)
{
    uint32_t n = queue->parts_n, part = 0;
    bool in_turns = false;
    if (options->partition > n)
        return MR_INVALID;
    if (options->partition > 0) {
        part = options->partition - 1;
    } else if (n > 1) {
        struct mr_slice lead = leads(options, item);
        in_turns = lead.len == 0;
        part = in_turns ? in_turn(queue) : mr_partition_of(lead, n);
    }
    *ret_choice = (struct part_choice){.part = (uint8_t)part, .in_turns = in_turns};
    ret_choice->full = is_full(queue, part);
    return MR_OK;
}

/* How many tasks came into the queue, as far as its figures still say so: those that are there and those that are done.
 * What is kept of the latter is not counted again: when it goes depends on the time. */
static uint64_t came(const struct queue *queue)
{
    uint64_t n = queue->processed - queue->failed;
    for (unsigned s = 0; s < MR_STATE_COUNT; s++)
        n += s != MR_COMPLETED ? queue->counts[s] : 0;
    return n;
}

/* Nothing of whose turn it was is in the log: it follows from what came. So programs that each open the store to enqueue
 * one task spread theirs as one does that enqueues them all. */
void parts_begin(const struct state *state)
{
    for (uint32_t i = 0; i < state->queues_n; i++) {
        struct queue *queue = state->queues[i];
        if (queue != NULL)
            queue->turn = (uint8_t)(came(queue) % queue->parts_n);
    }
}

void part_chosen(struct queue *queue, struct part_choice choice)
{
    if (choice.in_turns)
        queue->turn = (uint8_t)(choice.part + 1);
}

/* ---- from where a node takes ---------------------------------------------------------------- */

/* The first bit at or behind *turn, around the end; there is one. */
static unsigned next_part(uint64_t which, uint8_t *turn)
{
    uint64_t behind = *turn < MR_PARTITIONS_MAX ? which >> *turn << *turn : 0;
    unsigned part = (unsigned)__builtin_ctzll(behind != 0 ? behind : which);
    *turn = (uint8_t)(part + 1);
    return part;
}

/* In turn those that the node prefers, and where they have nothing, any. Now and then any of them in turn:
 * who prefers the others may be busy for long, and a preference is no reason to let tasks wait for
 * ever. */
unsigned part_to_take(struct listen *listen)
{
    const struct queue *queue = listen->queue;
    if (++listen->takes % FAIR_EVERY == 0)
        return next_part(queue->filled, &listen->fair_turn);
    uint64_t own = queue->filled & listen->owned;
    return next_part(own != 0 ? own : queue->filled, &listen->turn);
}

/* ---- who prefers which ---------------------------------------------------------------------- */

/* NULL: it does not serve the queue. */
static struct listen *listen_to(struct node *node, const struct queue *queue)
{
    for (size_t i = 0; !node->dying && i < node->listens_n; i++)
        if (node->listens[i].queue == queue)
            return &node->listens[i];
    return NULL;
}

/* No leader has written whose they are: they are shared among those who are there. What each owned before
 * counts, so that only what must move moves. */
static void share(struct mr_engine *engine, const struct queue *queue, struct mr_sharer *sharers)
{
    size_t n = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        const struct listen *listen = listen_to(node, queue);
        if (listen != NULL)
            sharers[n++] = (struct mr_sharer){.name = mr_slice_str(node->name),
                                              .incarnation = node->number,
                                              .started_ms = node->started_ms,
                                              .owned = listen->owned};
    }
    if (mr_partitions_share((enum mr_assign)queue->assign, queue->parts_n, sharers, n) != MR_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        struct node *node = engine->nodes_by_number[sharers[i].incarnation];
        listen_to(node, queue)->owned = sharers[i].owned;
    }
}

/* As a leader has written it. */
static bool obey(struct mr_engine *engine, const struct queue *queue)
{
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        struct listen *listen = listen_to(node, queue);
        if (listen != NULL && !assignment_owned(engine, queue, node, &listen->owned))
            return false;
    }
    return true;
}

void parts_assign(struct mr_engine *engine, const struct queue *queue)
{
    size_t n = 0;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next)
        n++;
    if (obey(engine, queue))
        return;
    struct mr_sharer *sharers = calloc(n, sizeof *sharers);
    if (sharers != NULL) /* else what was holds: it is a preference only */
        share(engine, queue, sharers);
    free(sharers);
}

void node_parts_assign(struct mr_engine *engine, const struct node *node)
{
    for (size_t i = 0; i < node->listens_n; i++) {
        const struct queue *queue = node->listens[i].queue;
        if (queue != NULL && queue->parts_n > 1)
            parts_assign(engine, queue);
    }
}
