/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: one thread that does what is due and sleeps until the next thing is.
 *
 *   beats      every beat_ms, sooner when a handler reports progress or one did not arrive. When
 *              a broker elsewhere has answered none for the length of a lease, the worker must
 *              assume that its tasks run elsewhere too: it tells all runs that they are lost,
 *              closes the node and opens a new one. A broker in this process (whose disk may
 *              stall) is asked, not guessed at.
 *   timeouts   every beat it looks at all runs and puts those that end before the next look on a
 *              wheel; a slot does so itself for a shorter run. So the many runs that end long
 *              before their timeout never touch the wheel.
 *   giving up  a run that was told to stop and has not returned by the end of its grace is
 *              reported in its stead; the slot is stuck until the handler returns, and then says
 *              nothing.
 *   recall     leases that slots do not get round to are handed back.
 */
#include "base/diag.h"
#include "worker/internal.h"

enum { BEAT_AGAIN_MS = 500 }; /* after one that did not reach the broker */

/* Tick of the wheel, rounded down. */
static uint64_t tick_of(const struct mr_worker *w, int64_t mono_ns)
{
    return mono_ns <= w->start.ns ? 0 : (uint64_t)(mono_ns - w->start.ns) / MR_NS_PER_MS;
}

uint64_t mr_worker_tick_up(const struct mr_worker *w, int64_t mono_ns)
{
    return tick_of(w, mono_ns + MR_NS_PER_MS - 1);
}

void mr_monitor_by(struct mr_worker *w, mr_mono at)
{
    if (at.ns >= w->monitor_wakes.ns)
        return;
    w->monitor_wakes = at;
    mr_lock_notify_all(&w->lock);
}

/* ---- the node ------------------------------------------------------------------------------- */

static struct mr_slot *slot_by_epoch(struct mr_worker *w, uint64_t epoch)
{
    for (uint32_t i = 0; i < w->slots_n; i++)
        if (w->slots[i].running && w->slots[i].epoch == epoch)
            return &w->slots[i];
    return NULL;
}

/* Broker's thread. */
static void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct mr_worker *w = arg;
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    struct machine *m;
    struct mr_lease *lease = mr_worker_remove(w, epoch, &m);
    struct mr_slot *slot = lease ? NULL : slot_by_epoch(w, epoch);
    if (slot)
        mr_run_stop(slot, reason == MR_STOP_LOST ? RUN_LOST : RUN_CANCELLED, now);
    else if (!lease && mr_worker_expects(w, epoch))
        mr_early_note(w, epoch, reason);
    mr_lock_leave(&w->lock);
    if (lease && reason == MR_STOP_CANCEL)
        mr_leases_finish(m, lease, UNRUN_CANCELLED);
    else
        mr_lease_free(lease);
}

/* Broker's thread. */
static void event_wanted(void *arg)
{
    struct mr_worker *w = arg;
    mr_mono now = mr_mono_now(w->clock);
    struct mr_lease *rest[MR_MACHINES_MAX];
    size_t n;
    mr_lock_enter(&w->lock);
    for (size_t i = 0; i < w->machines_n; i++)
        rest[i] = mr_hand_cut(&w->machines[i].hand, mr_machine_free_slots(&w->machines[i]), &n);
    w->ahead_after = mr_mono_add_ms(now, WANTED_MS);
    mr_lock_leave(&w->lock);
    for (size_t i = 0; i < w->machines_n; i++)
        mr_leases_finish(&w->machines[i], rest[i], UNRUN_BACK);
}

/* Its first beat comes at once then. */
static bool may_lead(const struct mr_worker *w)
{
    return w->leading.leads && !w->options.never_leads;
}

enum mr_err mr_node_open(struct mr_worker *w)
{
    mr_mono now = mr_mono_now(w->clock);
    struct mr_slice types[MR_NODE_TYPES_MAX];
    struct mr_req_node_open open = {
        .req = {.op = MR_OP_NODE_OPEN},
        .name = w->options.node,
        .queues = w->options.queues,
        .queues_n = w->options.queues_n,
        .order = w->options.order,
        .types = types,
        .types_n = mr_handlers_patterns(&w->handlers, types, MR_NODE_TYPES_MAX),
        .slots = w->slots_n,
        .lease_ms = w->lease_ms,
        .fall_ms = w->options.fall_ms,
        .leads = may_lead(w),
        .leader_ms = w->options.leader_ms,
        .events = {.stop = event_stop, .wanted = event_wanted, .arg = w},
    };
    enum mr_err err = mr_broker_call(w->broker, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK)
        return err;
    mr_lock_enter(&w->lock);
    w->node = open.node;
    w->first_slot = open.first_slot;
    w->node_open = true;
    w->beat_answered = now;
    w->beat_at = may_lead(w) ? now : mr_mono_add_ms(now, w->options.beat_ms);
    mr_lock_leave(&w->lock);
    return MR_OK;
}

void mr_node_close(struct mr_worker *w)
{
    struct mr_req_node_close close = {.req = {.op = MR_OP_NODE_CLOSE}, .node = w->node};
    enum mr_err err = mr_broker_call(w->broker, &close.req);
    mr_req_done(&close.req);
    if (err != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "node.close", "error=%s ignoring", mr_err_name(err));
}

/* Everything in hand may run elsewhere by now. What had begun is told to stop, by somebody who is
 * alive: it has crashed nobody, and should the broker hear of us again, it hears that first. Under
 * the lock. */
static void lose_all(struct mr_worker *w, mr_mono now)
{
    size_t n;
    for (size_t i = 0; i < w->machines_n; i++)
        mr_leases_free(mr_hand_cut(&w->machines[i].hand, 0, &n));
    for (uint32_t i = 0; i < w->slots_n; i++) {
        if (w->node_open)
            mr_broker_begun(w->broker, w->first_slot + i, 0);
        mr_run_stop(&w->slots[i], RUN_LOST, now);
    }
    w->node_open = false;
}

/* By the beat that was sent last. Not under the lock. */
static void tell_leading(struct mr_worker *w, uint64_t term)
{
    if (may_lead(w))
        w->leading.leads(w->leading.arg, term, mr_mono_add_ms(w->beat_sent, w->options.leader_ms));
}

/* A new node in place of the lost one. Closing the old one gives its tasks to others at once, in
 * case the broker still believes in it. Enters and leaves with the lock. */
static void reopen(struct mr_worker *w, mr_mono now)
{
    lose_all(w, now);
    mr_lock_leave(&w->lock);
    tell_leading(w, 0);
    mr_node_close(w);
    enum mr_err err = mr_node_open(w);
    mr_lock_enter(&w->lock);
    if (err == MR_OK || w->reopen_said != err) /* once, while nothing changes */
        mr_diag(MR_DIAG_WARN, "node.lost", "reopened=%s", mr_err_name(err));
    w->reopen_said = err;
    mr_worker_fails(w, err);
    w->reopen_after = err == MR_OK ? now : mr_mono_add_ms(now, RETRY_MS);
}

/* ---- beats ---------------------------------------------------------------------------------- */

mr_mono mr_leader_ends(const struct mr_req_beat *beat, mr_mono now)
{
    return beat->leader_ms > 0 ? mr_mono_add_ms(now, beat->leader_ms + 1) : MR_MONO_NEVER;
}

/* Under the lock. */
static void beat_by(struct mr_worker *w, mr_mono at)
{
    if (at.ns < w->beat_at.ns)
        w->beat_at = at;
    mr_monitor_by(w, at);
}

/* Broker's thread. */
static void beat_done(struct mr_req *req)
{
    struct mr_worker *w = req->arg;
    mr_mono now = mr_mono_now(w->clock);
    mr_req_done(req);
    if (req->err == MR_OK)
        tell_leading(w, w->beat.term);
    mr_lock_enter(&w->lock);
    if (req->err == MR_OK && may_lead(w))
        beat_by(w, mr_leader_ends(&w->beat, now));
    w->beat_busy = false;
    if (w->beat.node == w->node) {
        if (req->err == MR_OK && w->beat_sent.ns > w->beat_answered.ns)
            w->beat_answered = w->beat_sent;
        else if (req->err == MR_NOT_FOUND)
            w->node_open = false;
    }
    if (req->err == MR_UNAVAILABLE || req->err == MR_TIMEOUT)
        /* Soon: the broker may be back a moment before the leases must be given up. */
        beat_by(w, mr_mono_add_ms(now, BEAT_AGAIN_MS));
    else if (req->err != MR_OK)
        mr_monitor_by(w, now);
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
}

/* Copies new progress of the runs for the beat; without memory for it the beat goes alone. */
static size_t gather_progress(struct mr_worker *w, struct mr_progress **ret_progress)
{
    size_t n = 0;
    for (uint32_t i = 0; i < w->slots_n; i++)
        n += w->slots[i].running && w->slots[i].run.progress_new;
    mr_arena_reset(&w->beat_memory);
    struct mr_progress *list = n > 0 ? mr_arena_calloc(&w->beat_memory, n, sizeof *list) : NULL;
    if (!list)
        return 0;
    size_t filled = 0;
    for (uint32_t i = 0; i < w->slots_n; i++) {
        struct mr_slot *slot = &w->slots[i];
        struct mr_run *run = &slot->run;
        struct mr_slice text = mr_slice_make(run->progress, run->progress_len);
        if (!slot->running || !run->progress_new ||
            mr_arena_copy(&w->beat_memory, text, &text) != MR_OK)
            continue;
        run->progress_new = false;
        list[filled++] = (struct mr_progress){slot->epoch, slot->ref, run->percent, text};
    }
    *ret_progress = list;
    return filled;
}

/* Enters and leaves with the lock. */
static void send_beat(struct mr_worker *w, mr_mono now)
{
    w->beat_at = mr_mono_add_ms(now, w->options.beat_ms);
    if (w->beat_busy || !w->node_open)
        return;
    w->beat_busy = true;
    w->beat_sent = now;
    struct mr_progress *progress = NULL;
    size_t n = gather_progress(w, &progress);
    struct mr_slot_info *slots = NULL;
    size_t slots_n = mr_slots_look(w, &w->beat_memory, &slots);
    w->shown = mr_slots_sum(w);
    w->beat = (struct mr_req_beat){
        .req = {.op = MR_OP_BEAT, .done = beat_done, .arg = w},
        .node = w->node,
        .progress = progress,
        .progress_n = n,
        .slots = slots,
        .slots_n = slots_n,
    };
    mr_lock_leave(&w->lock);
    mr_broker_submit(w->broker, &w->beat.req);
    mr_lock_enter(&w->lock);
}

/* ---- timeouts ------------------------------------------------------------------------------- */

/* Puts the runs that end before the next look on the wheel. Under the lock. */
static void scan(struct mr_worker *w, mr_mono now)
{
    int64_t next_ns = mr_mono_add_ms(now, w->options.beat_ms).ns;
    atomic_store(&w->scan_ns, next_ns);
    for (uint32_t i = 0; i < w->slots_n; i++) {
        struct mr_slot *slot = &w->slots[i];
        int64_t due_ns = atomic_load(&slot->due_ns);
        if (slot->running && due_ns < next_ns && atomic_load(&slot->run.stop) == RUN_GOES_ON)
            mr_wheel_start(w->wheel, &slot->timer, mr_worker_tick_up(w, due_ns));
    }
}

/* Of the wheel: the end of a run's time, or of its grace. Under the lock. */
void mr_monitor_fire(struct mr_timer *timer, void *arg)
{
    struct mr_worker *w = arg;
    struct mr_slot *slot = mr_container(timer, struct mr_slot, timer);
    struct mr_run *run = &slot->run;
    if (!slot->running || atomic_load(&run->owner) != RUN_OPEN)
        return;
    if (atomic_load(&run->stop) != RUN_GOES_ON) {
        slot->overdue_next = w->overdue;
        w->overdue = slot;
        return;
    }
    mr_run_stop(slot, run->by_deadline ? RUN_DEADLINE : RUN_TIMEOUT, mr_mono_now(w->clock));
}

/* Reports the run of a stuck slot in its stead. Enters and leaves with the lock. */
static void give_up(struct mr_slot *slot, struct mr_report *report)
{
    struct mr_worker *w = slot->worker;
    struct mr_run *run = &slot->run;
    run->pinned = true;
    w->reported++;
    mr_lock_leave(&w->lock);
    mr_report_set_id(report, run->lease->task.id);
    report->item.epoch = run->lease->epoch;
    report->item.ref = run->lease->ref;
    mr_run_judge(run, (struct run_answer){MR_FAIL, "", -1}, &w->rand, report);
    mr_report_send(report);
    mr_lock_enter(&w->lock);
    run->pinned = false;
    mr_lock_notify_all(&w->lock);
}

/* Of a slot whose run has not returned by the end of its grace. Enters and leaves with the lock. */
static void abandon(struct mr_slot *slot, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    struct mr_run *run = &slot->run;
    struct mr_report *report = mr_report_new(w);
    if (!report) {
        mr_wheel_start(w->wheel, &slot->timer, tick_of(w, now.ns) + RETRY_MS);
        return;
    }
    int owner = RUN_OPEN;
    bool ours = slot->running && atomic_compare_exchange_strong(&run->owner, &owner, RUN_ABANDONED);
    if (ours) {
        slot->machine->busy--;
        slot->machine->stuck++;
        mr_slot_show_locked(slot, MR_SLOT_ERROR, now);
        mr_lock_notify_all(&w->lock);
    }
    if (ours && atomic_load(&run->stop) != RUN_LOST)
        give_up(slot, report);
    else
        mr_reports_free(report);
}

static void abandon_overdue(struct mr_worker *w, mr_mono now)
{
    while (w->overdue) {
        struct mr_slot *slot = w->overdue;
        w->overdue = slot->overdue_next;
        abandon(slot, now);
    }
}

/* ---- the rest ------------------------------------------------------------------------------- */

/* Hands back what the slots will not get round to soon, going by the last while. Enters and leaves
 * with the lock. */
static void recall(struct machine *m, mr_mono now)
{
    struct mr_worker *w = m->worker;
    size_t keep = mr_machine_free_slots(m);
    uint64_t popped = m->popped - m->recall_popped;
    if (popped > keep)
        keep = popped;
    size_t n;
    struct mr_lease *rest = mr_hand_cut(&m->hand, keep, &n);
    m->recall_popped = m->popped;
    m->recall_at = m->hand.n > 0 ? mr_mono_add_ms(now, RECALL_MS) : MR_MONO_NEVER;
    if (!rest)
        return;
    /* Runs last longer than was thought: until the average knows, nothing is held ahead. */
    if (m->run_ns < 2 * AHEAD_NS * (int64_t)m->slots_n)
        m->run_ns = 2 * AHEAD_NS * (int64_t)m->slots_n;
    mr_lock_leave(&w->lock);
    mr_leases_finish(m, rest, UNRUN_BACK);
    mr_lock_enter(&w->lock);
}

/* The broker knows what the slots do about as soon as it lasts. While nothing runs, and that is known, there
 * is nothing to look for. Enters and leaves with the lock. */
static void show_slots(struct mr_worker *w, mr_mono now)
{
    bool news = mr_slots_sum(w) != w->shown;
    w->show_at = news || mr_worker_busy(w) > 0 ? mr_mono_add_ms(now, SHOW_MS) : MR_MONO_NEVER;
    if (news && now.ns < w->beat_at.ns)
        w->beat_at = now;
}

/* Enters and leaves with the lock. */
static void send_again(struct mr_worker *w)
{
    struct mr_report *list = w->again;
    w->again = NULL;
    mr_lock_leave(&w->lock);
    while (list) {
        struct mr_report *next = list->next;
        mr_report_send(list);
        list = next;
    }
    mr_lock_enter(&w->lock);
}

/* When the leases must be given up unless a beat is answered. Under the lock. */
static int64_t fence_ns(const struct mr_worker *w)
{
    if (!w->node_open || w->broker->ops->in_process)
        return INT64_MAX;
    return mr_mono_add_ms(w->beat_answered, w->lease_ms).ns;
}

/* Does what is due. Enters and leaves with the lock. */
static void turn(struct mr_worker *w, mr_mono now)
{
    mr_wheel_advance(w->wheel, tick_of(w, now.ns), w);
    abandon_overdue(w, now);
    if (now.ns >= atomic_load(&w->scan_ns))
        scan(w, now);
    if (now.ns >= fence_ns(w))
        lose_all(w, now);
    if (!w->node_open && mr_worker_works(w) && now.ns >= w->reopen_after.ns)
        reopen(w, now);
    if (now.ns >= w->show_at.ns)
        show_slots(w, now);
    if (now.ns >= w->beat_at.ns)
        send_beat(w, now);
    for (size_t i = 0; i < w->machines_n; i++)
        if (now.ns >= w->machines[i].recall_at.ns)
            recall(&w->machines[i], now);
    if (w->again && now.ns >= w->again_at.ns)
        send_again(w);
}

static void earlier(mr_mono *at, int64_t ns)
{
    if (ns < at->ns)
        at->ns = ns;
}

/* When the next turn is due. Under the lock. */
static mr_mono next_turn(struct mr_worker *w, mr_mono now)
{
    mr_mono at = {atomic_load(&w->scan_ns)};
    earlier(&at, w->beat_at.ns);
    earlier(&at, w->show_at.ns);
    uint64_t tick = mr_wheel_next(w->wheel);
    if (tick != MR_TICK_NEVER)
        earlier(&at, w->start.ns + (int64_t)tick * MR_NS_PER_MS);
    earlier(&at, fence_ns(w));
    if (!w->node_open && mr_worker_works(w))
        earlier(&at, w->reopen_after.ns);
    if (w->again)
        earlier(&at, w->again_at.ns);
    for (size_t i = 0; i < w->machines_n; i++) {
        earlier(&at, w->machines[i].recall_at.ns);
        if (w->machines[i].take_after.ns > now.ns)
            earlier(&at, w->machines[i].take_after.ns);
    }
    return at;
}

void *mr_monitor_main(void *arg)
{
    struct mr_worker *w = arg;
    mr_lock_enter(&w->lock);
    while (!w->monitor_ends) {
        mr_mono now = mr_mono_now(w->clock);
        turn(w, now);
        uint64_t takes = mr_pumps_prepare(w, now);
        if (takes != 0) {
            mr_lock_leave(&w->lock);
            mr_pumps_submit(w, takes);
            mr_lock_enter(&w->lock);
            continue; /* what was answered meanwhile may be due already */
        }
        now = mr_mono_now(w->clock);
        w->monitor_wakes = next_turn(w, now);
        while (!w->monitor_ends && now.ns < w->monitor_wakes.ns) {
            mr_lock_wait(&w->lock, w->monitor_wakes.ns - now.ns);
            now = mr_mono_now(w->clock);
        }
    }
    mr_lock_leave(&w->lock);
    return NULL;
}
