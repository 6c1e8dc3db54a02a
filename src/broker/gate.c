/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/gate.h"

#include <stdlib.h>
#include <string.h>

#include "base/chan.h"
#include "base/list.h"

/* A queue with a time of its own. */
struct place {
    struct mr_link link;
    mr_mono until;
    size_t len;
    char queue[];
};

struct guard {
    struct mr_slice topic;
    enum mr_gate_by by;
    mr_mono until;
    struct mr_link places;
};

struct mr_gate {
    struct mr_clock *clock;
    struct mr_lock lock; /* over what follows */
    struct guard guards[MR_GATE_GUARDS_MAX];
    size_t n;
};

enum mr_err mr_gate_new(struct mr_clock *clock, struct mr_gate **ret_gate)
{
    struct mr_gate *gate = calloc(1, sizeof *gate);
    if (gate == NULL)
        return MR_NOMEM;
    gate->clock = clock;
    mr_lock_init(&gate->lock);
    *ret_gate = gate;
    return MR_OK;
}

void mr_gate_free(struct mr_gate *gate)
{
    struct mr_link *link;
    if (gate == NULL)
        return;
    for (size_t i = 0; i < gate->n; i++)
        while ((link = mr_list_pop_front(&gate->guards[i].places)) != NULL)
            free(mr_container(link, struct place, link));
    mr_lock_done(&gate->lock);
    free(gate);
}

/* With the lock. NULL: such topics are not guarded. */
static struct guard *guard_of(struct mr_gate *gate, struct mr_slice topic)
{
    for (size_t i = 0; i < gate->n; i++)
        if (mr_slice_starts_with(topic, gate->guards[i].topic))
            return &gate->guards[i];
    return NULL;
}

static struct place *place_of(const struct guard *guard, struct mr_slice queue)
{
    for (struct mr_link *at = guard->places.next; at != &guard->places; at = at->next) {
        struct place *place = mr_container(at, struct place, link);
        if (mr_slice_equal(mr_slice_make(place->queue, place->len), queue))
            return place;
    }
    return NULL;
}

static void place_set(struct guard *guard, struct mr_slice queue, mr_mono until)
{
    struct place *place = place_of(guard, queue);
    if (place == NULL && until.ns > 0 && (place = malloc(sizeof *place + queue.len)) != NULL) {
        place->len = queue.len;
        memcpy(place->queue, queue.data, queue.len);
        mr_list_init(&place->link);
        mr_list_push_back(&guard->places, &place->link);
    }
    if (place == NULL)
        return;
    place->until = until;
    if (until.ns > 0)
        return;
    mr_list_remove(&place->link);
    free(place);
}

void mr_gate_guard(struct mr_gate *gate, const char *topic, enum mr_gate_by by)
{
    mr_lock_enter(&gate->lock);
    struct guard *guard = guard_of(gate, mr_slice_str(topic));
    if (guard == NULL) {
        mr_assert(gate->n < MR_GATE_GUARDS_MAX);
        guard = &gate->guards[gate->n++];
        *guard = (struct guard){.topic = mr_slice_str(topic), .by = by};
        mr_list_init(&guard->places);
    }
    mr_lock_leave(&gate->lock);
}

void mr_gate_until(struct mr_gate *gate, const char *topic, struct mr_slice queue, mr_mono until)
{
    mr_lock_enter(&gate->lock);
    struct guard *guard = guard_of(gate, mr_slice_str(topic));
    mr_assert(guard != NULL);
    if (guard->by == MR_GATE_BY_QUEUE)
        place_set(guard, queue, until);
    else
        guard->until = until;
    mr_lock_leave(&gate->lock);
}

bool mr_gate_lets(struct mr_gate *gate, struct mr_slice topic, struct mr_slice queue)
{
    mr_mono until = {INT64_MAX}; /* of what is not guarded */
    mr_lock_enter(&gate->lock);
    const struct guard *guard = guard_of(gate, topic);
    if (guard != NULL && guard->by == MR_GATE_BY_QUEUE) {
        const struct place *place = place_of(guard, queue);
        until = place != NULL ? place->until : (mr_mono){0};
    } else if (guard != NULL) {
        until = guard->until;
    }
    mr_lock_leave(&gate->lock);
    return mr_mono_now(gate->clock).ns < until.ns;
}
