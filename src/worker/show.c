/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What slots do, for everybody to see: the beats say it to the broker, mr_worker_figures to the caller, and
 * the caller's watch hears of each step.
 *
 * A slot passes through its states by itself, without the lock. Only that it waits or polls is not its
 * own doing: one take is for all slots of a machine, so an idle slot polls while that is under way.
 * The watch is told under the lock, the states on the way included: a slot that takes its next
 * task from the hand has waited and polled for no time.
 */
#include "worker/internal.h"

/* From here to there in as many steps as it takes: the one before the last, by the state to come to. */
static enum mr_slot_state step_to(enum mr_slot_state from, enum mr_slot_state to)
{
    bool ended = from == MR_SLOT_REPORTING || from == MR_SLOT_ERROR;
    if (ended && (to == MR_SLOT_WORKING || to == MR_SLOT_POLLING || to == MR_SLOT_STOPPING))
        return MR_SLOT_PENDING;
    if (from == MR_SLOT_PENDING && to == MR_SLOT_WORKING)
        return MR_SLOT_POLLING;
    return to;
}

static void tell(struct mr_slot *slot, enum mr_slot_state to, int64_t pause_us)
{
    struct mr_worker *w = slot->worker;
    while (w->options.watch && slot->told != (int)to) {
        struct mr_slot_change change = {.slot = slot->index,
                                        .from = (enum mr_slot_state)slot->told,
                                        .to = step_to((enum mr_slot_state)slot->told, to)};
        change.pause_us = change.to == to ? pause_us : 0;
        slot->told = change.to;
        w->options.watch(&change, w->options.watch_arg);
    }
}

static void set(struct mr_slot *slot, enum mr_slot_state state, mr_mono now)
{
    atomic_store_explicit(&slot->since_ns, now.ns, memory_order_relaxed);
    atomic_store_explicit(&slot->state, state, memory_order_relaxed);
}

void mr_slot_show_locked(struct mr_slot *slot, enum mr_slot_state state, mr_mono now)
{
    set(slot, state, now);
    tell(slot, state, 0);
    if (state == MR_SLOT_PENDING && slot->machine->take_busy)
        tell(slot, MR_SLOT_POLLING, 0);
}

void mr_slot_show(struct mr_slot *slot, enum mr_slot_state state, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    if (!w->options.watch) {
        set(slot, state, now);
        return;
    }
    mr_lock_enter(&w->lock);
    mr_slot_show_locked(slot, state, now);
    mr_lock_leave(&w->lock);
}

void mr_slot_rest(struct mr_slot *slot, mr_mono now)
{
    atomic_store(&slot->resting, true);
    if (atomic_load(&slot->out) == 0) /* else whoever takes the last one away sees that it rests */
        mr_slot_show_locked(slot, MR_SLOT_PENDING, now);
    else
        atomic_store_explicit(&slot->since_ns, now.ns, memory_order_relaxed);
}

void mr_slot_reported(struct mr_slot *slot)
{
    struct mr_worker *w = slot->worker;
    if (atomic_fetch_sub(&slot->out, 1) != 1 || !atomic_load(&slot->resting))
        return;
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    int state = atomic_load(&slot->state);
    if (atomic_load(&slot->resting) && atomic_load(&slot->out) == 0 &&
        (state == MR_SLOT_REPORTING || state == MR_SLOT_ERROR))
        mr_slot_show_locked(slot, MR_SLOT_PENDING, now);
    mr_lock_leave(&w->lock);
}

void mr_machine_tell(struct machine *m, enum mr_slot_state state, int64_t pause_us)
{
    const int from = state == MR_SLOT_POLLING ? MR_SLOT_PENDING : MR_SLOT_POLLING;
    for (struct mr_slot *slot = m->worker->options.watch ? m->idle : NULL; slot; slot = slot->next)
        if (slot->told == from)
            tell(slot, state, pause_us);
}

/* ---- which task ----------------------------------------------------------------------------- */

void mr_slot_label(struct mr_slot *slot, const struct mr_task *task)
{
    struct slot_label *label = &slot->label;
    uint64_t words[LABEL_WORDS];
    size_t id_len = task->id.len < MR_ID_MAX ? task->id.len : MR_ID_MAX;
    size_t type_len = task->type.len < MR_NAME_MAX ? task->type.len : MR_NAME_MAX;
    size_t n = (id_len + type_len + 7) / 8;
    if (n > 0)
        words[n - 1] = 0;
    memcpy(words, task->id.data, id_len);
    if (type_len > 0)
        memcpy((char *)words + id_len, task->type.data, type_len);
    uint32_t number = atomic_load_explicit(&label->number, memory_order_relaxed);
    atomic_store_explicit(&label->number, number + 1, memory_order_relaxed);
    atomic_store_explicit(&label->lens, (uint32_t)(id_len | type_len << 16), memory_order_release);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&label->words[i], words[i], memory_order_release);
    atomic_store_explicit(&label->number, number + 2, memory_order_release);
}

/* Without memory, or where it is just being written, it is not said. */
static void read_label(struct mr_slot *slot, struct mr_arena *arena, struct mr_slot_info *info)
{
    struct slot_label *label = &slot->label;
    uint64_t words[LABEL_WORDS];
    uint32_t number = atomic_load_explicit(&label->number, memory_order_acquire);
    uint32_t lens = atomic_load_explicit(&label->lens, memory_order_acquire);
    size_t id_len = lens & 0xffff, type_len = lens >> 16, len = id_len + type_len;
    if (number % 2 != 0 || len == 0 || len > sizeof words)
        return;
    for (size_t i = 0; i < (len + 7) / 8; i++)
        words[i] = atomic_load_explicit(&label->words[i], memory_order_acquire);
    if (atomic_load_explicit(&label->number, memory_order_acquire) != number)
        return;
    struct mr_slice text;
    if (mr_arena_copy(arena, mr_slice_make(words, len), &text) != MR_OK)
        return;
    info->id = mr_slice_make(text.data, id_len);
    info->type = mr_slice_make((const char *)text.data + id_len, type_len);
}

/* ---- looking -------------------------------------------------------------------------------- */

enum mr_slot_state mr_slot_state(const struct mr_slot *slot)
{
    int state = atomic_load(&slot->state);
    bool polls = state == MR_SLOT_PENDING && slot->machine->take_busy;
    return polls ? MR_SLOT_POLLING : (enum mr_slot_state)state;
}

uint64_t mr_slots_sum(const struct mr_worker *w)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < w->slots_n && i < MR_SLOTS_SHOWN; i++) {
        const struct mr_slot *slot = &w->slots[i];
        uint64_t state = (uint64_t)atomic_load(&slot->state);
        sum = (sum ^ (slot->running ? slot->epoch : 0) ^ state << 56) * 0x9e3779b97f4a7c15u;
    }
    return sum;
}

static struct mr_slot_info look(struct mr_slot *slot, struct mr_arena *arena, mr_mono now)
{
    struct mr_slot_info info = {
        .state = mr_slot_state(slot),
        .machine = (uint32_t)(slot->machine - slot->worker->machines),
    };
    int64_t since_ns = atomic_load(&slot->since_ns);
    if (info.state == MR_SLOT_POLLING && slot->machine->take_sent.ns > since_ns)
        since_ns = slot->machine->take_sent.ns;
    info.since_ms = since_ns != 0 && now.ns > since_ns ? (now.ns - since_ns) / MR_NS_PER_MS : 0;
    if (info.state == MR_SLOT_WORKING || info.state == MR_SLOT_REPORTING ||
        info.state == MR_SLOT_ERROR)
        read_label(slot, arena, &info);
    return info;
}

size_t mr_slots_look(struct mr_worker *w, struct mr_arena *arena, struct mr_slot_info **ret_infos)
{
    mr_mono now = mr_mono_now(w->clock);
    size_t n = w->slots_n < MR_SLOTS_SHOWN ? w->slots_n : MR_SLOTS_SHOWN;
    struct mr_slot_info *infos = mr_arena_calloc(arena, n, sizeof *infos);
    if (!infos)
        return 0;
    for (size_t i = 0; i < n; i++)
        infos[i] = look(&w->slots[i], arena, now);
    *ret_infos = infos;
    return n;
}
