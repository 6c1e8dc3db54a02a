/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes. One of each machine is under way at a time; whoever changes what it depends on (a slot that
 * pops, the answer of the last one, an acknowledged finish) asks whether the next is due. It is when the
 * hand has fallen to half of what it should hold: a lease for each free slot, and ahead of that as many
 * as the slots get through in AHEAD_NS. So a short handler never waits for the broker, and a
 * long one holds nothing that another worker could run.
 *
 * A take waits at the broker. Behind one that brought nothing there may be a pause, drawn by lot, so that
 * workers that began together do not ask together for ever.
 */
#include "base/diag.h"
#include "worker/internal.h"

struct mr_slot *mr_slots_unlist(struct machine *m, size_t n)
{
    struct mr_slot *woken = NULL;
    for (; n > 0 && m->idle; n--) {
        struct mr_slot *slot = m->idle;
        m->idle = slot->next;
        slot->next = woken;
        woken = slot;
    }
    return woken;
}

/* As many as there are leases in the hand, of all machines. */
static struct mr_slot *mr_slots_unlist_all(struct mr_worker *w)
{
    struct mr_slot *all = NULL;
    for (size_t i = 0; i < w->machines_n; i++) {
        struct machine *m = &w->machines[i];
        struct mr_slot *woken = mr_slots_unlist(m, m->hand.n);
        while (woken) {
            struct mr_slot *next = woken->next;
            woken->next = all;
            all = woken;
            woken = next;
        }
    }
    return all;
}

void mr_slots_wake(struct mr_slot *slots)
{
    while (slots) {
        struct mr_slot *next = slots->next; /* the slot's own again once it is awake */
        mr_event_set(&slots->wake);
        slots = next;
    }
}

/* How many leases to hold beyond the free slots. */
static size_t ahead(const struct machine *m, mr_mono now)
{
    if (m->run_ns <= 0 || now.ns < m->worker->ahead_after.ns)
        return 0;
    size_t n = (size_t)(AHEAD_NS * (int64_t)m->slots_n / m->run_ns);
    return n < AHEAD_MAX ? n : AHEAD_MAX;
}

size_t mr_pump_target(const struct machine *m, mr_mono now)
{
    return mr_machine_free_slots(m) + ahead(m, now);
}

/* How many to take now, 0 for none. Where the last ones were for others, more: to get past them. */
static size_t wanted_now(struct machine *m, mr_mono now)
{
    struct mr_worker *w = m->worker;
    size_t target = mr_pump_target(m, now);
    if (m->hand.n * 2 > target || m->hand.n == target)
        return 0;
    int64_t room = REPORTS_MAX - (int64_t)(w->reported - atomic_load(&w->acked));
    if (room <= 0) {
        atomic_store(&w->ack_awaited, true);
        return 0;
    }
    size_t want = target - m->hand.n + m->passed;
    if (want > (size_t)room)
        want = (size_t)room;
    return want < MR_BATCH_MAX ? want : MR_BATCH_MAX;
}

/* Until the next take behind one that brought nothing. */
static int64_t pause_us(struct mr_worker *w, enum mr_err err)
{
    int64_t low = w->options.pause_min_us, high = w->options.pause_max_us;
    if (high == 0 && err != MR_EMPTY) {
        low = RETRY_MS * MR_US_PER_MS / 2;
        high = 3 * low;
    }
    return low + (int64_t)mr_rand_below(&w->pump_rand, (uint64_t)(high - low) + 1);
}

/* With burst: the queues have nothing for any of the machines. Whether limits keep something back, a take knows
 * that does not wait, so each that waits for it is followed by such a one. Under the lock. */
static void note_empty(struct machine *m)
{
    struct mr_worker *w = m->worker;
    m->empty = m->take_idle && mr_worker_idle(w) && !m->take.held_back;
    m->held_back = m->take.held_back && m->take.wait_ms == 0;
    bool all = w->options.burst && w->burst != BURST_OVER;
    for (size_t i = 0; i < w->machines_n; i++)
        all = all && w->machines[i].empty;
    if (!all)
        return;
    w->burst = w->burst == BURST_LAST || w->more.comes == NULL ? BURST_OVER : BURST_ASKS;
    mr_lock_notify_all(&w->lock);
}

/* A take ended without a lease; answers the pause until the next. Under the lock. */
static int64_t note_failure(struct machine *m, enum mr_err err, mr_mono now)
{
    struct mr_worker *w = m->worker;
    if (err == MR_CLOSED || err == MR_NOT_FOUND) {
        if (m->take.node == w->node && w->life == WORKER_RUNNING) {
            w->node_open = false;
            mr_monitor_by(w, now);
        }
        return 0;
    }
    if (err == MR_EMPTY)
        note_empty(m);
    else if (mr_worker_fails(w, err))
        return 0;
    else if (m->take_said != err) /* once, while nothing changes */
        mr_diag(MR_DIAG_WARN, "take.failed", "error=%s", mr_err_name(err));
    m->take_said = err == MR_EMPTY ? MR_OK : err;
    m->passed = 0;
    int64_t pause = pause_us(w, err);
    if (pause > 0) {
        m->take_after.ns = now.ns + pause * MR_NS_PER_US;
        mr_monitor_by(w, m->take_after);
    }
    return pause;
}

/* Takes the leases out of the hands whose stop came first; answers the cancelled ones. A stop that is for
 * another take, which is still under way, stays. Under the lock. */
static struct mr_lease *obey_early(struct mr_worker *w)
{
    struct mr_lease *cancelled = NULL;
    size_t left = 0;
    for (size_t i = 0; i < w->early_n; i++) {
        struct machine *m;
        struct mr_lease *lease = mr_worker_remove(w, w->early[i].epoch, &m);
        if (lease && w->early[i].reason == MR_STOP_CANCEL) {
            lease->next = cancelled;
            cancelled = lease;
        } else if (lease) {
            mr_lease_free(lease);
        } else if (mr_worker_expects(w, w->early[i].epoch)) {
            w->early[left++] = w->early[i];
        }
    }
    w->early_n = left;
    return cancelled;
}

/* Puts the answer into the hands; answers what there is no room for. Under the lock. */
static struct mr_lease *accept(struct machine *m, mr_mono now)
{
    struct mr_worker *w = m->worker;
    m->take_said = MR_OK;
    if (w->burst != BURST_OVER)
        w->burst = BURST_TAKES;
    for (struct mr_lease *lease = m->take.leases; lease; lease = lease->next)
        m->taken_epoch = lease->epoch;
    struct mr_lease *passed = mr_machine_accept(m, m->take.leases, now);
    for (size_t i = 0; i < w->machines_n; i++) {
        struct machine *one = &w->machines[i];
        one->empty = false;
        if (one->hand.n <= mr_machine_free_slots(one) || one->recall_at.ns != INT64_MAX)
            continue;
        one->recall_popped = one->popped;
        one->recall_at = mr_mono_add_ms(now, RECALL_MS);
        mr_monitor_by(w, one->recall_at);
    }
    return passed;
}

/* The answer came too late: all of it goes back. The count of reports that take_done raised holds
 * the worker until here. */
static void refuse(struct machine *m, struct mr_lease *leases)
{
    struct mr_worker *w = m->worker;
    mr_leases_finish(m, leases, UNRUN_BACK);
    mr_lock_enter(&w->lock);
    w->reported--;
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
}

/* Leases that leave again at once. */
struct unkept {
    struct mr_lease *refused, *cancelled, *passed;
};

/* Under the lock. */
static struct unkept take_in(struct machine *m, enum mr_err err, mr_mono now)
{
    struct mr_worker *w = m->worker;
    struct unkept unkept = {0};
    int64_t pause = 0;
    m->take_busy = false;
    if (err != MR_OK)
        pause = note_failure(m, err, now);
    else if (w->life != WORKER_RUNNING || !w->node_open || m->take.node != w->node)
        unkept.refused = m->take.leases;
    else
        unkept.passed = accept(m, now);
    unkept.cancelled = obey_early(w);
    w->reported += unkept.refused != NULL;
    if (w->options.watch && err != MR_OK)
        mr_machine_tell(m, MR_SLOT_PENDING, pause);
    if (w->life == WORKER_STOPPING)
        mr_lock_notify_all(&w->lock);
    return unkept;
}

/* Broker's thread. A stopping worker may be gone once the lock is left, unless leases are refused.
 */
static void take_done(struct mr_req *req)
{
    struct machine *m = req->arg;
    struct mr_worker *w = m->worker;
    mr_mono now = mr_mono_now(w->clock);
    mr_req_done(req);
    mr_lock_enter(&w->lock);
    struct unkept unkept = take_in(m, req->err, now);
    struct mr_slot *woken = mr_slots_unlist_all(w);
    if (req->err == MR_OK)
        mr_machine_tell(m, MR_SLOT_PENDING, 0); /* those that got none */
    bool again = mr_pump_prepare(m, now);
    int64_t spread_ms = unkept.passed ? (int64_t)mr_rand_below(&w->pump_rand, UNHANDLED_MS) : 0;
    mr_lock_leave(&w->lock);
    mr_slots_wake(woken);
    if (again)
        mr_pump_submit(m);
    if (unkept.cancelled)
        mr_leases_finish(m, unkept.cancelled, UNRUN_CANCELLED);
    if (unkept.passed)
        mr_leases_finish(m, unkept.passed,
                         (struct unrun){MR_HAND_BACK, UNHANDLED_MS + spread_ms, ""});
    if (unkept.refused)
        refuse(m, unkept.refused);
}

static int64_t wait_ms(const struct machine *m)
{
    const struct mr_worker *w = m->worker;
    if (!w->options.burst)
        return w->options.poll_ms;
    if (!m->take_idle)
        return BURST_WAIT_MS;
    return m->held_back ? HELD_WAIT_MS : w->burst == BURST_WAITS ? MORE_WAIT_MS : 0;
}

bool mr_pump_prepare(struct machine *m, mr_mono now)
{
    struct mr_worker *w = m->worker;
    bool rests = w->burst == BURST_ASKS || w->burst == BURST_OVER;
    if (m->take_busy || !w->node_open || !mr_worker_works(w) || rests || now.ns < m->take_after.ns)
        return false;
    size_t want = wanted_now(m, now);
    if (want == 0)
        return false;
    m->take_busy = true;
    m->take_sent = now;
    m->take_idle = mr_worker_idle(w);
    m->take = (struct mr_req_take){
        .req = {.op = MR_OP_TAKE, .done = take_done, .arg = m},
        .node = w->node,
        .max = want,
        .wait_ms = wait_ms(m),
        .bytes_max = MR_TAKE_BYTES,
        .queues = m->queues,
    };
    mr_machine_tell(m, MR_SLOT_POLLING, 0);
    return true;
}

void mr_pump_submit(struct machine *m)
{
    mr_broker_submit(m->worker->broker, &m->take.req);
}

uint64_t mr_pumps_prepare(struct mr_worker *w, mr_mono now)
{
    uint64_t machines = 0;
    for (size_t i = 0; i < w->machines_n; i++)
        if (mr_pump_prepare(&w->machines[i], now))
            machines |= (uint64_t)1 << i;
    return machines;
}

void mr_pumps_submit(struct mr_worker *w, uint64_t machines)
{
    for (size_t i = 0; machines >> i != 0; i++)
        if (machines >> i & 1)
            mr_pump_submit(&w->machines[i]);
}
