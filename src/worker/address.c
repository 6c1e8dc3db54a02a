/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: what is in the queue Q@NAME is for the worker of Q with that name, or for those with that tag. They
 * are further queues of the worker, so brokers need to know nothing of them but when what is in others' addresses
 * falls to it.
 */
#include <stdio.h>

#include "wire/node.h"
#include "wire/task.h"
#include "worker/internal.h"

enum { FALL_MS = 60 * 1000 };

static const struct mr_worker_queue only = {MR_SLICE_LIT(MR_DEFAULT_QUEUE), 1};

enum mr_err mr_addresses_check(const struct mr_worker_options *o)
{
    size_t queues_n = o->queues_n > 0 ? o->queues_n : 1;
    if ((o->tags_n > 0 && !o->tags) || o->fall_ms < MR_NO_FALL || o->fall_ms > MR_DELAY_MAX_MS)
        return MR_INVALID;
    if (o->tags_n >= MR_TAKE_QUEUES_MAX || queues_n * (o->tags_n + 1) > MR_TAKE_QUEUES_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < o->tags_n; i++) {
        MR_TRY(mr_name_check(o->tags[i]));
        for (size_t k = 0; k < queues_n; k++) {
            size_t queue_len = o->queues_n > 0 ? o->queues[k].name.len : only.name.len;
            if (queue_len + 1 + o->tags[i].len > MR_NAME_MAX)
                return MR_TOO_BIG;
        }
    }
    return MR_OK;
}

/* The queues of a worker in the making. */
struct list {
    struct mr_worker_queue queues[MR_TAKE_QUEUES_MAX];
    size_t n;
};

/* One that is there already, by its own name or twice by a tag, is there once. */
static enum mr_err add(struct mr_worker *w, struct list *list, struct mr_worker_queue queue)
{
    for (size_t i = 0; i < list->n; i++)
        if (mr_slice_equal(list->queues[i].name, queue.name))
            return MR_OK;
    mr_assert(list->n < MR_TAKE_QUEUES_MAX);
    struct mr_worker_queue *copy = &list->queues[list->n++];
    copy->weight = queue.weight > 0 ? queue.weight : 1;
    return mr_arena_copy(&w->memory, queue.name, &copy->name);
}

static enum mr_err add_address(struct mr_worker *w, struct list *list, struct mr_worker_queue queue,
                               struct mr_slice name)
{
    char text[MR_NAME_MAX + 1];
    if (queue.name.len + 1 + name.len > MR_NAME_MAX)
        return MR_OK;
    int len = snprintf(text, sizeof text, "%.*s@%.*s", (int)queue.name.len,
                       (const char *)queue.name.data, (int)name.len, (const char *)name.data);
    queue.name = mr_slice_make(text, (size_t)len);
    return add(w, list, queue);
}

/* Behind each other: of each queue its addresses, then itself. */
static enum mr_err fill(struct mr_worker *w, struct list *list)
{
    const struct mr_worker_options *o = &w->options;
    const struct mr_worker_queue *queues = o->queues_n > 0 ? o->queues : &only;
    size_t n = o->queues_n > 0 ? o->queues_n : 1;
    bool by_name = n * (o->tags_n + 2) <= MR_TAKE_QUEUES_MAX;
    for (size_t i = 0; i < n; i++) {
        if (by_name)
            MR_TRY(add_address(w, list, queues[i], o->node));
        for (size_t k = 0; k < o->tags_n; k++)
            MR_TRY(add_address(w, list, queues[i], o->tags[k]));
        MR_TRY(add(w, list, queues[i]));
    }
    return MR_OK;
}

enum mr_err mr_addresses_make(struct mr_worker *w)
{
    struct mr_worker_options *o = &w->options;
    struct list list = {.n = 0};
    MR_TRY(fill(w, &list));
    struct mr_worker_queue *queues = mr_arena_calloc(&w->memory, list.n, sizeof *queues);
    if (!queues)
        return MR_NOMEM;
    memcpy(queues, list.queues, list.n * sizeof *queues);
    o->queues = queues;
    o->queues_n = list.n;
    o->tags = NULL; /* they are the caller's */
    o->tags_n = 0;
    o->fall_ms = o->fall_ms == 0 ? FALL_MS : o->fall_ms == MR_NO_FALL ? 0 : o->fall_ms;
    return MR_OK;
}

/* A machine that names a queue serves its addresses as well. */
uint64_t mr_addresses_queues(const struct mr_worker_options *o, const struct mr_machine *machine)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < o->queues_n; i++) {
        size_t base = mr_address_base(o->queues, o->queues_n, i);
        for (size_t j = 0; j < machine->queues_n; j++)
            if (mr_slice_equal(o->queues[i].name, machine->queues[j]) ||
                mr_slice_equal(o->queues[base].name, machine->queues[j]))
                bits |= (uint64_t)1 << i;
    }
    return bits;
}
