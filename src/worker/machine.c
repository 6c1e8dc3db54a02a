/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines: the slots of a worker by what they run. A worker without any has one for everything. What
 * a take brings is for the machine that sent it, unless it is of a type that only another one has.
 */
#include <stdlib.h>

#include "wire/task.h"
#include "worker/internal.h"

/* ---- making --------------------------------------------------------------------------------- */

static enum mr_err check_one(const struct mr_worker_options *o, const struct mr_machine *machine)
{
    static const struct mr_slice fallback = MR_SLICE_LIT(MR_DEFAULT_QUEUE);
    if ((machine->types_n > 0 && !machine->types) || (machine->queues_n > 0 && !machine->queues))
        return MR_INVALID;
    if (machine->types_n > MR_NODE_TYPES_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < machine->types_n; i++)
        MR_TRY(mr_name_check(machine->types[i]));
    for (size_t i = 0; i < machine->queues_n; i++) {
        bool known = o->queues_n == 0 && mr_slice_equal(machine->queues[i], fallback);
        for (size_t j = 0; j < o->queues_n; j++)
            known = known || mr_slice_equal(machine->queues[i], o->queues[j].name);
        if (!known)
            return MR_INVALID;
    }
    return MR_OK;
}

enum mr_err mr_machines_check(const struct mr_worker_options *o)
{
    uint64_t slots = 0;
    if (o->machines_n > MR_MACHINES_MAX)
        return MR_TOO_BIG;
    if (o->machines_n > 0 && (!o->machines || o->slots > 0))
        return MR_INVALID;
    for (size_t i = 0; i < o->machines_n; i++) {
        MR_TRY(check_one(o, &o->machines[i]));
        slots += o->machines[i].slots > 0 ? o->machines[i].slots : 1;
    }
    return slots > MR_SLOTS_MAX ? MR_TOO_BIG : MR_OK;
}

static enum mr_err make(struct mr_worker *w, struct machine *m, const struct mr_machine *from)
{
    m->slots_n = from->slots > 0 ? from->slots : 1;
    m->queues = mr_addresses_queues(&w->options, from);
    if (from->types_n == 0)
        return MR_OK;
    m->types = mr_arena_calloc(&w->memory, from->types_n, sizeof *m->types);
    if (!m->types)
        return MR_NOMEM;
    m->types_n = from->types_n;
    for (size_t i = 0; i < m->types_n; i++)
        MR_TRY(mr_arena_copy(&w->memory, from->types[i], &m->types[i]));
    return MR_OK;
}

enum mr_err mr_machines_make(struct mr_worker *w)
{
    const struct mr_machine only = {.slots = w->options.slots};
    const struct mr_machine *from = w->options.machines_n > 0 ? w->options.machines : &only;
    size_t n = w->options.machines_n > 0 ? w->options.machines_n : 1;
    w->machines = mr_arena_calloc(&w->memory, n, sizeof *w->machines);
    if (!w->machines)
        return MR_NOMEM;
    w->machines_n = n;
    w->slots_n = 0;
    for (size_t i = 0; i < n; i++) {
        struct machine *m = &w->machines[i];
        m->worker = w;
        m->recall_at = MR_MONO_NEVER;
        MR_TRY(make(w, m, &from[i]));
        w->slots_n += m->slots_n;
    }
    return MR_OK;
}

void mr_machines_share(struct mr_worker *w)
{
    struct mr_slot *slot = w->slots;
    for (size_t i = 0; i < w->machines_n; i++) {
        struct machine *m = &w->machines[i];
        m->slots = slot;
        for (uint32_t j = 0; j < m->slots_n; j++, slot++)
            slot->machine = m;
    }
}

/* ---- looking, under the lock ---------------------------------------------------------------- */

size_t mr_machine_free_slots(const struct machine *m)
{
    return m->slots_n - m->busy - m->stuck;
}

bool mr_machine_takes(const struct machine *m, struct mr_slice type)
{
    for (size_t i = 0; i < m->types_n; i++) {
        struct mr_slice pattern = m->types[i];
        const char *text = pattern.data;
        if (text[pattern.len - 1] != '*'
                ? mr_slice_equal(pattern, type)
                : mr_slice_starts_with(type, mr_slice_make(text, pattern.len - 1)))
            return true;
    }
    return m->types_n == 0;
}

size_t mr_worker_busy(const struct mr_worker *w)
{
    size_t busy = 0;
    for (size_t i = 0; i < w->machines_n; i++)
        busy += w->machines[i].busy;
    return busy;
}

bool mr_worker_idle(const struct mr_worker *w)
{
    for (size_t i = 0; i < w->machines_n; i++)
        if (w->machines[i].busy > 0 || w->machines[i].hand.n > 0)
            return false;
    return w->reported == atomic_load(&w->acked);
}

bool mr_worker_expects(const struct mr_worker *w, uint64_t epoch)
{
    for (size_t i = 0; i < w->machines_n; i++)
        if (w->machines[i].take_busy && epoch > w->machines[i].taken_epoch)
            return true;
    return false;
}

struct mr_lease *mr_worker_remove(struct mr_worker *w, uint64_t epoch, struct machine **ret_machine)
{
    struct mr_lease *lease = NULL;
    for (size_t i = 0; i < w->machines_n && !lease; i++) {
        *ret_machine = &w->machines[i];
        lease = mr_hand_remove(&w->machines[i].hand, epoch);
    }
    return lease;
}

/* ---- sharing out ---------------------------------------------------------------------------- */

/* Whose it is: of m, who asked for it, also when it is nobody's. */
static struct machine *find_machine(struct machine *m, struct mr_lease *lease)
{
    struct mr_worker *w = m->worker;
    if (mr_broker_lease_open(w->broker, lease) != MR_OK || mr_machine_takes(m, lease->task.type))
        return m;
    for (size_t i = 0; i < w->machines_n; i++)
        if (mr_machine_takes(&w->machines[i], lease->task.type))
            return &w->machines[i];
    return m;
}

struct mr_lease *mr_machine_accept(struct machine *m, struct mr_lease *leases, mr_mono now)
{
    struct mr_lease *passed = NULL, **tail = &passed;
    size_t n = 0;
    if (m->worker->machines_n == 1) {
        mr_hand_push(&m->hand, leases, m->take.n);
        return NULL;
    }
    while (leases) {
        struct mr_lease *lease = leases;
        leases = lease->next;
        lease->next = NULL;
        struct machine *to = find_machine(m, lease);
        if (to == m || to->hand.n < mr_pump_target(to, now)) {
            mr_hand_push(&to->hand, lease, 1);
        } else {
            *tail = lease;
            tail = &lease->next;
            n++;
        }
    }
    m->passed = n > 0 ? m->passed + n : 0;
    return passed;
}
