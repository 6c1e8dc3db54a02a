/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot: takes the next lease from the hand, runs its handler, sends the report and goes on. The
 * end of one run and the start of the next share one section of the lock.
 *
 * The lease belongs to the slot until the report is sent, then to the report. A run that was given
 * up (by the monitor) or lost is not reported here; its lease is freed when the monitor lets go of
 * it.
 */
#include <stdlib.h>

#include "base/diag.h"
#include "worker/internal.h"

enum { AVERAGE_OF = 8 }; /* runs the moving average remembers, about */

/* ---- between two runs, under the lock ------------------------------------------------------- */

/* Ends the run that is over, if there was one; answers its lease when it was not reported. */
static struct mr_lease *end_run(struct mr_slot *slot, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    struct machine *m = slot->machine;
    struct mr_run *run = &slot->run;
    if (!slot->running)
        return NULL;
    while (run->pinned)
        mr_lock_wait(&w->lock, INT64_MAX);
    slot->running = false;
    run->watch = NULL;
    mr_wheel_stop(w->wheel, &slot->timer);
    if (atomic_load(&run->owner) == RUN_ABANDONED)
        m->stuck--;
    else
        m->busy--;
    int64_t lasted_ns = now.ns - run->started.ns;
    m->run_ns += (lasted_ns - m->run_ns) / AVERAGE_OF;
    if (m->run_ns <= 0)
        m->run_ns = 1;
    if (!run->lease)
        w->reported++;
    if (w->life == WORKER_STOPPING)
        mr_lock_notify_all(&w->lock);
    return run->lease;
}

static void begin_run(struct mr_slot *slot, struct mr_lease *lease, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    struct mr_run *run = &slot->run;
    slot->machine->popped++;
    slot->machine->busy++;
    slot->running = true;
    slot->epoch = lease->epoch;
    slot->ref = lease->ref;
    slot->broker_slot = w->first_slot + slot->index;
    run->lease = lease;
    run->started = now;
    if (atomic_load_explicit(&run->stop, memory_order_relaxed) != RUN_GOES_ON) {
        atomic_store(&run->stop, RUN_GOES_ON);
        mr_event_init(&run->stopping);
    }
    atomic_store_explicit(&run->owner, RUN_OPEN, memory_order_relaxed);
    atomic_store_explicit(&slot->due_ns, INT64_MAX, memory_order_relaxed);
    run->retry_after_ms = -1;
    run->progress_new = false;
    mr_slot_show_locked(slot, MR_SLOT_WORKING, now);
    if (w->show_at.ns == INT64_MAX) {
        w->show_at = mr_mono_add_ms(now, SHOW_MS);
        mr_monitor_by(w, w->show_at);
    }
}

/* Sleeps until somebody takes this slot out of the idle list. Enters and leaves with the lock. */
static void sleep_idle(struct mr_slot *slot, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    struct machine *m = slot->machine;
    mr_slot_rest(slot, now);
    slot->next = m->idle;
    m->idle = slot;
    if (w->node_open)
        mr_broker_begun(w->broker, w->first_slot + slot->index, 0);
    bool take = mr_pump_prepare(m, now);
    mr_lock_leave(&w->lock);
    if (take)
        mr_pump_submit(m);
    mr_event_wait(&slot->wake, INT64_MAX);
    mr_event_reset(&slot->wake);
    mr_lock_enter(&w->lock);
    atomic_store(&slot->resting, false);
}

/* Ends the last run and begins the next; false when the worker stops. */
static bool next_run(struct mr_slot *slot)
{
    struct mr_worker *w = slot->worker;
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    struct mr_lease *unreported = end_run(slot, now);
    struct mr_lease *lease;
    while (!(lease = mr_hand_pop(&slot->machine->hand)) && w->life == WORKER_RUNNING) {
        sleep_idle(slot, now);
        now = mr_mono_now(w->clock);
    }
    enum mr_stop_reason reason;
    if (lease)
        begin_run(slot, lease, now);
    else if (w->node_open)
        mr_broker_begun(w->broker, w->first_slot + slot->index, 0);
    if (!lease)
        mr_slot_show_locked(slot, MR_SLOT_STOPPING, now);
    if (lease && w->early_n > 0 && mr_early_take(w, lease->epoch, &reason))
        mr_run_stop(slot, reason == MR_STOP_LOST ? RUN_LOST : RUN_CANCELLED, now);
    bool take = mr_pump_prepare(slot->machine, now);
    mr_lock_leave(&w->lock);
    if (take)
        mr_pump_submit(slot->machine);
    mr_lease_free(unreported);
    return lease != NULL;
}

/* ---- one run -------------------------------------------------------------------------------- */

/* When the run must be over, from the timeout and the deadline of its task. */
static void set_due(struct mr_slot *slot, const struct mr_task *task, int64_t until_deadline_ms)
{
    struct mr_worker *w = slot->worker;
    int64_t left_ms = task->timeout_ms > 0 ? task->timeout_ms : INT64_MAX;
    slot->run.by_deadline = until_deadline_ms < left_ms;
    if (slot->run.by_deadline)
        left_ms = until_deadline_ms;
    if (left_ms >= INT64_MAX / MR_NS_PER_MS - slot->run.started.ns / MR_NS_PER_MS)
        return;
    int64_t due_ns = mr_mono_add_ms(slot->run.started, left_ms).ns;
    /* Either this sees the monitor's new scan time, or the monitor's scan sees the due time. */
    atomic_store(&slot->due_ns, due_ns);
    if (due_ns >= atomic_load(&w->scan_ns))
        return;
    mr_lock_enter(&w->lock);
    if (atomic_load(&slot->run.stop) == RUN_GOES_ON) {
        mr_wheel_start(w->wheel, &slot->timer, mr_worker_tick_up(w, due_ns));
        mr_monitor_by(w, (mr_mono){due_ns});
    }
    mr_lock_leave(&w->lock);
}

static int64_t deadline_left_ms(struct mr_worker *w, const struct mr_task *task)
{
    if (task->deadline_ms <= 0)
        return INT64_MAX;
    return task->deadline_ms - mr_wall_ms(mr_wall_now(w->clock));
}

static struct run_answer answer_of(struct mr_run *run, enum mr_outcome outcome)
{
    bool known = outcome >= MR_DONE && outcome <= MR_LATER;
    if (!known)
        mr_run_error(run, "the handler answered %d, which is no outcome", (int)outcome);
    return (struct run_answer){
        .outcome = known ? outcome : MR_FAIL_FOR_GOOD,
        .error = run->error.len > 0 ? (const char *)run->error.data : "",
        .retry_after_ms = run->retry_after_ms,
    };
}

/* Without memory for it for the moment it comes back as it was. */
static struct run_answer unreadable(enum mr_err err)
{
    if (err == MR_NOMEM)
        return (struct run_answer){MR_HAND_BACK, "", UNHANDLED_MS};
    return (struct run_answer){MR_FAIL_FOR_GOOD, "the task could not be read", -1};
}

/* Runs the handler, or says why it is not run. */
static struct run_answer perform(struct mr_slot *slot, struct mr_report *report)
{
    struct mr_worker *w = slot->worker;
    struct mr_run *run = &slot->run;
    struct mr_lease *lease = run->lease;
    mr_buf_clear(&run->error);
    enum mr_err err = mr_broker_lease_open(w->broker, lease);
    if (err != MR_OK)
        return unreadable(err);
    mr_slot_label(slot, &lease->task);
    const struct mr_handler_row *row = mr_handlers_find(&w->handlers, lease->task.type);
    if (!row || !mr_machine_takes(slot->machine, lease->task.type)) {
        report->unhandled = true;
        int64_t spread_ms = (int64_t)mr_rand_below(&slot->rand, UNHANDLED_MS);
        return (struct run_answer){MR_HAND_BACK, "", UNHANDLED_MS + spread_ms};
    }
    int64_t left_ms = deadline_left_ms(w, &lease->task);
    int goes_on = RUN_GOES_ON;
    if (left_ms <= 0)
        (void)atomic_compare_exchange_strong(&run->stop, &goes_on, RUN_DEADLINE);
    set_due(slot, &lease->task, left_ms);
    if (mr_run_cancelled(run))
        return (struct run_answer){MR_FAIL, "", -1};
    mr_broker_begun(w->broker, slot->broker_slot, lease->epoch);
    return answer_of(run, row->handler(run, row->arg));
}

/* Gives a report that is not needed back to the slot. */
static void put_back(struct mr_slot *slot, struct mr_report *report)
{
    report->next = slot->spare;
    slot->spare = report;
}

static void run_one(struct mr_slot *slot)
{
    struct mr_run *run = &slot->run;
    struct mr_report *report = mr_report_get(slot);
    struct run_answer answer = perform(slot, report);
    int owner = RUN_OPEN;
    bool ours = atomic_compare_exchange_strong(&run->owner, &owner, RUN_RETURNED);
    if (!ours || atomic_load(&run->stop) == RUN_LOST) {
        if (ours) /* else the monitor has said so */
            mr_slot_show(slot, MR_SLOT_ERROR, mr_mono_now(slot->worker->clock));
        mr_buf_done(&run->result);
        put_back(slot, report);
        return;
    }
    mr_run_judge(run, answer, &slot->rand, report);
    bool failed = report->item.outcome == MR_FAIL || report->item.outcome == MR_FAIL_FOR_GOOD;
    atomic_fetch_add(&slot->out, 1);
    mr_slot_show(slot, failed ? MR_SLOT_ERROR : MR_SLOT_REPORTING, JUST_NOW);
    report->item.id = run->lease->task.id;
    report->item.epoch = run->lease->epoch;
    report->item.ref = run->lease->ref;
    report->lease = run->lease;
    report->result = run->result;
    if (report->item.outcome == MR_DONE)
        report->item.result = mr_buf_slice(&report->result);
    run->result = (struct mr_buf){0};
    run->lease = NULL;
    mr_report_send(report);
}

void *mr_slot_main(void *arg)
{
    struct mr_slot *slot = arg;
    while (next_run(slot))
        run_one(slot);
    return NULL;
}
