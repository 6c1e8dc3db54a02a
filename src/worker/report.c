/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishes on their way. A slot does not wait for its own: it goes on with the next task while the
 * broker makes the last one durable. The answer comes on the broker's thread, which counts it,
 * frees the lease where it was made, and gives the report back to its slot.
 *
 * A finish that failed for a passing reason must be sent again: the node's beats would keep the
 * lease of a task that nobody runs any more for ever.
 */
#include <stdlib.h>

#include "base/diag.h"
#include "worker/internal.h"

/* What an accepted outcome counts as. */
static const enum figure outcome_figures[] = {
    [MR_DONE] = FIGURE_DONE,
    [MR_FAIL] = FIGURE_FAILED,
    [MR_FAIL_FOR_GOOD] = FIGURE_FAILED,
    [MR_HAND_BACK] = FIGURE_HANDED_BACK,
    [MR_DROP] = FIGURE_DROPPED,
    [MR_LATER] = FIGURE_LATER,
};

/* Counts one answered finish; FIGURE_COUNT: nothing unless it was stale. */
static void count(struct mr_worker *w, const struct mr_finish *item, enum mr_err err,
                  enum figure figure)
{
    if (err != MR_OK) {
        mr_lock_enter(&w->lock);
        bool fails = mr_worker_fails(w, err);
        mr_lock_leave(&w->lock);
        if (fails)
            return; /* the task is as it was */
        bool doubt = err == MR_UNAVAILABLE || err == MR_TIMEOUT;
        char id[MR_ID_MAX * 4 + 1];
        mr_diag(MR_DIAG_WARN, doubt ? "finish.in_doubt" : "finish.refused", "id=%s error=%s",
                mr_diag_escape(item->id, id, sizeof id), mr_err_name(err));
        if (!doubt && err != MR_STALE && err != MR_NOT_FOUND)
            return;
        figure = doubt ? FIGURE_IN_DOUBT : FIGURE_STALE;
    }
    if (figure < FIGURE_COUNT)
        atomic_fetch_add_explicit(&w->figures[figure], 1, memory_order_relaxed);
}

/* One more finish request answered. Wakes whoever waits for that. */
static void acknowledge(struct mr_worker *w)
{
    atomic_fetch_add(&w->acked, 1);
    if (!atomic_load(&w->ack_awaited))
        return;
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    if (w->life == WORKER_RUNNING && w->reported - atomic_load(&w->acked) < REPORTS_MAX / 2)
        atomic_store(&w->ack_awaited, false);
    uint64_t takes = mr_pumps_prepare(w, now);
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
    mr_pumps_submit(w, takes);
}

/* Whether the request should be sent again later; then it is listed for that. */
static bool send_again(struct mr_report *report)
{
    struct mr_worker *w = report->worker;
    if (!mr_err_retriable(report->err))
        return false;
    mr_mono at = mr_mono_add_ms(mr_mono_now(w->clock), RETRY_MS);
    mr_lock_enter(&w->lock);
    bool again = w->life == WORKER_RUNNING;
    if (again) {
        mr_req_done(&report->finish.req); /* the next one has a request of its own */
        report->next = w->again;
        w->again = report;
        w->again_at = at;
        mr_monitor_by(w, at);
    }
    mr_lock_leave(&w->lock);
    return again;
}

static void report_done(struct mr_report *report)
{
    mr_req_done(&report->finish.req);
    mr_lease_free(report->lease);
    mr_buf_done(&report->result);
    mr_buf_done(&report->error);
    report->lease = NULL;
}

static void report_free(struct mr_report *report)
{
    report_done(report);
    free(report);
}

static void give_home(struct mr_report *report)
{
    report_done(report);
    struct mr_slot *home = report->home;
    struct mr_report *first = atomic_load_explicit(&home->returned, memory_order_relaxed);
    do
        report->next = first;
    while (!atomic_compare_exchange_weak_explicit(&home->returned, &first, report,
                                                  memory_order_release, memory_order_relaxed));
}

static void report_answered(struct mr_req *req)
{
    struct mr_report *report = req->arg;
    struct mr_worker *w = report->worker;
    if (req->err != MR_OK)
        report->err = req->err;
    if (send_again(report))
        return;
    count(w, &report->item, report->err,
          report->unhandled ? FIGURE_UNHANDLED : outcome_figures[report->item.outcome]);
    struct mr_slot *home = report->home;
    if (home)
        give_home(report);
    else
        report_free(report);
    if (home)
        mr_slot_reported(home);
    acknowledge(w);
}

void mr_report_send(struct mr_report *report)
{
    report->finish = (struct mr_req_finish){
        .req = {.op = MR_OP_FINISH, .done = report_answered, .arg = report},
        .items = &report->item,
        .n = 1,
        .errs = &report->err,
    };
    mr_broker_submit(report->worker->broker, &report->finish.req);
}

static struct mr_report *report_alloc(struct mr_slot *slot)
{
    struct mr_report *report = slot->spare;
    if (!report)
        report = atomic_exchange_explicit(&slot->returned, NULL, memory_order_acquire);
    if (report) {
        slot->spare = report->next;
        return report;
    }
    return malloc(sizeof *report);
}

struct mr_report *mr_report_get(struct mr_slot *slot)
{
    struct mr_report *report;
    while (!(report = report_alloc(slot))) {
        /* Each slot has a first report from the start, so one is on its way back. */
        struct mr_event never;
        mr_event_init(&never);
        mr_event_wait(&never, MR_NS_PER_MS);
    }
    *report = (struct mr_report){.worker = slot->worker, .home = slot};
    return report;
}

struct mr_report *mr_report_new(struct mr_worker *w)
{
    struct mr_report *report = calloc(1, sizeof *report);
    if (!report)
        return NULL;
    report->worker = w;
    if (mr_buf_reserve(&report->result, MR_ID_MAX) != MR_OK) {
        report_free(report);
        return NULL;
    }
    return report;
}

void mr_report_set_id(struct mr_report *report, struct mr_slice id)
{
    mr_assert(id.len <= MR_ID_MAX && report->result.len == 0);
    memcpy(report->result.data, id.data, id.len);
    report->result.len = id.len;
    report->item.id = mr_buf_slice(&report->result);
}

void mr_reports_free(struct mr_report *reports)
{
    while (reports) {
        struct mr_report *next = reports->next;
        report_free(reports);
        reports = next;
    }
}

void mr_reports_give_up(struct mr_report *reports)
{
    for (struct mr_report *report = reports; report; report = report->next)
        count(report->worker, &report->item, report->err, FIGURE_COUNT);
    mr_reports_free(reports);
}

/* ---- leases that did not run: handed back, or cancelled ------------------------------------- */

struct bundle {
    struct mr_req_finish finish;
    struct machine *machine;
    struct mr_lease *leases;
    struct mr_finish items[MR_BATCH_MAX];
    enum mr_err errs[MR_BATCH_MAX];
};

/* The broker could not be told. What was cancelled is not run because of that. */
static void keep(struct machine *m, struct mr_lease *leases, enum mr_outcome outcome)
{
    struct mr_worker *w = m->worker;
    if (!leases)
        return;
    size_t n = 0;
    mr_lock_enter(&w->lock);
    for (struct mr_lease *lease = leases; lease; lease = lease->next, n++)
        if (outcome != MR_HAND_BACK)
            mr_early_note(w, lease->epoch, MR_STOP_CANCEL);
    if (w->life == WORKER_RUNNING) {
        mr_hand_push(&m->hand, leases, n);
        leases = NULL;
    }
    struct mr_slot *woken = mr_slots_unlist(m, m->hand.n);
    mr_lock_leave(&w->lock);
    mr_slots_wake(woken);
    mr_leases_free(leases);
}

static void bundle_done(struct mr_req *req)
{
    struct bundle *bundle = req->arg;
    struct machine *m = bundle->machine;
    struct mr_worker *w = m->worker;
    struct mr_lease *kept = NULL;
    enum mr_outcome outcome = bundle->items[0].outcome; /* of all */
    for (size_t i = 0; i < bundle->finish.n; i++) {
        struct mr_lease *lease = bundle->leases;
        bundle->leases = lease->next;
        lease->next = NULL;
        enum mr_err err = req->err != MR_OK ? req->err : bundle->errs[i];
        if (mr_err_retriable(err)) {
            lease->next = kept;
            kept = lease;
            continue;
        }
        /* What was only held and never ran is nobody's figure when it goes back. */
        count(w, &bundle->items[i], err,
              outcome == MR_HAND_BACK ? FIGURE_COUNT : outcome_figures[outcome]);
        mr_lease_free(lease);
    }
    keep(m, kept, outcome);
    mr_req_done(req);
    free(bundle);
    acknowledge(w);
}

/* Moves as many leases as fit into a new request; the rest of the list. */
static struct mr_lease *bundle_send(struct machine *m, struct mr_lease *leases, struct unrun how)
{
    struct mr_worker *w = m->worker;
    struct bundle *bundle = malloc(sizeof *bundle);
    if (!bundle) {
        keep(m, leases, how.outcome);
        return NULL;
    }
    size_t n = 0;
    struct mr_lease **at = &leases;
    for (; *at && n < MR_BATCH_MAX; at = &(*at)->next) {
        struct mr_lease *lease = *at;
        bundle->items[n++] = (struct mr_finish){
            .id = mr_broker_lease_id(w->broker, lease),
            .epoch = lease->epoch,
            .ref = lease->ref,
            .outcome = how.outcome,
            .delay_ms = how.delay_ms,
            .error = mr_slice_str(how.error),
            .reason = how.outcome == MR_HAND_BACK ? MR_REASON_NONE : MR_REASON_CANCELLED,
        };
    }
    struct mr_lease *rest = *at;
    *at = NULL;
    bundle->machine = m;
    bundle->leases = leases;
    bundle->finish = (struct mr_req_finish){
        .req = {.op = MR_OP_FINISH, .done = bundle_done, .arg = bundle},
        .items = bundle->items,
        .n = n,
        .errs = bundle->errs,
    };
    mr_lock_enter(&w->lock);
    w->reported++;
    mr_lock_leave(&w->lock);
    mr_broker_submit(w->broker, &bundle->finish.req);
    return rest;
}

void mr_leases_finish(struct machine *m, struct mr_lease *leases, struct unrun how)
{
    while (leases)
        leases = bundle_send(m, leases, how);
}
