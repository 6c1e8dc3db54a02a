/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes. One is under way at a time; whoever changes what it depends on (a slot that pops, the
 * answer of the last one, an acknowledged finish) asks whether the next is due. It is when the hand
 * has fallen to half of what it should hold: a lease for each free slot, and ahead of that as many
 * as the slots get through in a millisecond. So a short handler never waits for the broker, and a
 * long one holds nothing that another worker could run.
 */
#include "base/diag.h"
#include "worker/internal.h"

size_t mr_worker_free_slots(const struct mr_worker *w)
{
    return w->slots_n - w->busy - w->stuck;
}

static bool is_idle(struct mr_worker *w)
{
    return w->busy == 0 && w->hand.n == 0 && w->reported == atomic_load(&w->acked);
}

struct mr_slot *mr_slots_unlist(struct mr_worker *w, size_t n)
{
    struct mr_slot *woken = NULL;
    for (; n > 0 && w->idle; n--) {
        struct mr_slot *slot = w->idle;
        w->idle = slot->next;
        slot->next = woken;
        woken = slot;
    }
    return woken;
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
static size_t ahead(const struct mr_worker *w, mr_mono now)
{
    if (w->run_ns <= 0 || now.ns < w->ahead_after.ns)
        return 0;
    size_t n = (size_t)(AHEAD_NS * (int64_t)w->slots_n / w->run_ns);
    return n < AHEAD_MAX ? n : AHEAD_MAX;
}

/* How many to take now, 0 for none. */
static size_t wanted_now(struct mr_worker *w, mr_mono now)
{
    size_t target = mr_worker_free_slots(w) + ahead(w, now);
    if (w->hand.n * 2 > target || w->hand.n == target)
        return 0;
    int64_t room = REPORTS_MAX - (int64_t)(w->reported - atomic_load(&w->acked));
    if (room <= 0) {
        atomic_store(&w->ack_awaited, true);
        return 0;
    }
    size_t want = target - w->hand.n;
    if (want > (size_t)room)
        want = (size_t)room;
    return want < MR_BATCH_MAX ? want : MR_BATCH_MAX;
}

/* A take ended without a lease. Under the lock. */
static void note_failure(struct mr_worker *w, enum mr_err err, mr_mono now)
{
    if (err == MR_EMPTY) {
        w->take_said = MR_OK;
        if (w->options.burst && w->take_idle && is_idle(w)) {
            w->burst_over = true;
            mr_lock_notify_all(&w->lock);
        }
    } else if (err == MR_CLOSED || err == MR_NOT_FOUND) {
        if (w->take.node == w->node && w->life == WORKER_RUNNING) {
            w->node_open = false;
            mr_monitor_by(w, now);
        }
    } else if (!mr_worker_fails(w, err)) {
        if (w->take_said != err) /* once, while nothing changes */
            mr_diag(MR_DIAG_WARN, "take.failed", "error=%s", mr_err_name(err));
        w->take_said = err;
        w->take_after = mr_mono_add_ms(now, RETRY_MS);
        mr_monitor_by(w, w->take_after);
    }
}

/* Takes the leases out of the hand whose stop came first; answers the cancelled ones. Under the
 * lock. */
static struct mr_lease *obey_early(struct mr_worker *w)
{
    struct mr_lease *cancelled = NULL;
    for (size_t i = 0; i < w->early_n; i++) {
        struct mr_lease *lease = mr_hand_remove(&w->hand, w->early[i].epoch);
        if (lease && w->early[i].reason == MR_STOP_CANCEL) {
            lease->next = cancelled;
            cancelled = lease;
        } else {
            mr_lease_free(lease);
        }
    }
    w->early_n = 0;
    return cancelled;
}

/* Puts the answer into the hand. Under the lock. */
static void accept(struct mr_worker *w, mr_mono now)
{
    mr_hand_push(&w->hand, w->take.leases, w->take.n);
    w->take_said = MR_OK;
    w->taken_epoch = w->hand.last->epoch;
    if (w->hand.n <= mr_worker_free_slots(w) || w->recall_at.ns != INT64_MAX)
        return;
    w->recall_popped = w->popped;
    w->recall_at = mr_mono_add_ms(now, RECALL_MS);
    mr_monitor_by(w, w->recall_at);
}

/* The answer came too late: all of it goes back. The count of reports that take_done raised holds
 * the worker until here. */
static void refuse(struct mr_worker *w, struct mr_lease *leases)
{
    mr_leases_finish(w, leases, MR_HAND_BACK, (struct mr_slice){0});
    mr_lock_enter(&w->lock);
    w->reported--;
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
}

/* Broker's thread. A stopping worker may be gone once the lock is left, unless leases are refused.
 */
static void take_done(struct mr_req *req)
{
    struct mr_worker *w = req->arg;
    struct mr_lease *refused = NULL;
    mr_mono now = mr_mono_now(w->clock);
    mr_req_done(req);
    mr_lock_enter(&w->lock);
    w->take_busy = false;
    if (req->err != MR_OK)
        note_failure(w, req->err, now);
    else if (w->life != WORKER_RUNNING || !w->node_open || w->take.node != w->node)
        refused = w->take.leases;
    else
        accept(w, now);
    struct mr_lease *cancelled = obey_early(w);
    struct mr_slot *woken = mr_slots_unlist(w, w->hand.n);
    bool again = mr_pump_prepare(w, now);
    w->reported += refused != NULL;
    if (w->life == WORKER_STOPPING)
        mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
    mr_slots_wake(woken);
    if (again)
        mr_pump_submit(w);
    if (cancelled)
        mr_leases_finish(w, cancelled, MR_FAIL_FOR_GOOD, MR_SLICE_LIT("cancelled"));
    if (refused)
        refuse(w, refused);
}

bool mr_pump_prepare(struct mr_worker *w, mr_mono now)
{
    if (w->take_busy || !w->node_open || !mr_worker_works(w) || w->burst_over ||
        now.ns < w->take_after.ns)
        return false;
    size_t want = wanted_now(w, now);
    if (want == 0)
        return false;
    w->take_busy = true;
    w->take_idle = is_idle(w);
    int64_t burst_wait_ms = w->take_idle ? 0 : BURST_WAIT_MS;
    w->take = (struct mr_req_take){
        .req = {.op = MR_OP_TAKE, .done = take_done, .arg = w},
        .node = w->node,
        .max = want,
        .wait_ms = w->options.burst ? burst_wait_ms : TAKE_WAIT_MS,
    };
    return true;
}

void mr_pump_submit(struct mr_worker *w)
{
    mr_broker_submit(w->broker, &w->take.req);
}
