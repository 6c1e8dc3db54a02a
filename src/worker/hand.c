/* SPDX-License-Identifier: Apache-2.0 */
/* The hand: a plain queue of leases. What is handed back leaves it from the back. And the stops for
 * leases that have not come into it yet. */
#include "worker/internal.h"

void mr_hand_push(struct mr_hand *hand, struct mr_lease *leases, size_t n)
{
    if (!leases)
        return;
    struct mr_lease *last = leases;
    while (last->next)
        last = last->next;
    if (hand->last)
        hand->last->next = leases;
    else
        hand->first = leases;
    hand->last = last;
    hand->n += n;
}

struct mr_lease *mr_hand_pop(struct mr_hand *hand)
{
    struct mr_lease *lease = hand->first;
    if (!lease)
        return NULL;
    hand->first = lease->next;
    if (!hand->first)
        hand->last = NULL;
    hand->n--;
    lease->next = NULL;
    return lease;
}

struct mr_lease *mr_hand_cut(struct mr_hand *hand, size_t keep, size_t *ret_n)
{
    if (keep >= hand->n) {
        *ret_n = 0;
        return NULL;
    }
    struct mr_lease *last = NULL;
    struct mr_lease **at = &hand->first;
    for (size_t i = 0; i < keep; i++) {
        last = *at;
        at = &last->next;
    }
    struct mr_lease *rest = *at;
    *at = NULL;
    hand->last = last;
    *ret_n = hand->n - keep;
    hand->n = keep;
    return rest;
}

struct mr_lease *mr_hand_remove(struct mr_hand *hand, uint64_t epoch)
{
    struct mr_lease *before = NULL;
    for (struct mr_lease *lease = hand->first; lease; before = lease, lease = lease->next) {
        if (lease->epoch != epoch)
            continue;
        *(before ? &before->next : &hand->first) = lease->next;
        if (hand->last == lease)
            hand->last = before;
        hand->n--;
        lease->next = NULL;
        return lease;
    }
    return NULL;
}

void mr_leases_free(struct mr_lease *leases)
{
    while (leases) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

static struct early_stop *early_find(struct mr_worker *w, uint64_t epoch)
{
    for (size_t i = 0; i < w->early_n; i++)
        if (w->early[i].epoch == epoch)
            return &w->early[i];
    return NULL;
}

void mr_early_note(struct mr_worker *w, uint64_t epoch, enum mr_stop_reason reason)
{
    struct early_stop *stop = early_find(w, epoch);
    if (stop && reason == MR_STOP_LOST)
        stop->reason = reason;
    else if (!stop && w->early_n < EARLY_MAX)
        w->early[w->early_n++] = (struct early_stop){epoch, reason};
}

bool mr_early_take(struct mr_worker *w, uint64_t epoch, enum mr_stop_reason *ret_reason)
{
    struct early_stop *stop = early_find(w, epoch);
    if (!stop)
        return false;
    *ret_reason = stop->reason;
    *stop = w->early[--w->early_n];
    return true;
}
