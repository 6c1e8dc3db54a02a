/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a worker: options, start, stop. Stopping is a drain with an end: nothing new is
 * taken, what did not begin is handed back at once, runs get drain_ms to end by themselves, then
 * they are told to stop, and the monitor gives up those that do not return. When no run is left and
 * every report is answered, or drain_ms are over, the node is closed; reports that a broker out of reach
 * has kept are given up then, and are in doubt. A second stop ends both waits.
 */
#include "worker/worker.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "worker/internal.h"

#define DRAIN_MS (30 * MR_MS_PER_S)
#define GRACE_MS (5 * MR_MS_PER_S)

enum {
    LEVELS_MAX = 1000,
    HOST_MAX = 64,
    REPORTS_MS = 500, /* reports get so long in any case */
};

/* ---- options -------------------------------------------------------------------------------- */

/* With one beat in a lease, a beat on its way would be the worker's end. */
static enum mr_err check_options(const struct mr_worker_options *o)
{
    if (o->slots > MR_SLOTS_MAX || o->queues_n > MR_TAKE_QUEUES_MAX ||
        o->retry_levels_n > LEVELS_MAX)
        return MR_TOO_BIG;
    if (o->drain_ms < 0 || o->grace_ms < 0 || o->beat_ms < 0 || o->retry_max_ms < 0 ||
        o->drain_ms > MR_MS_PER_DAY || o->grace_ms > MR_MS_PER_DAY || o->beat_ms > MR_MS_PER_DAY ||
        o->poll_ms < MR_NO_WAIT || o->poll_ms > MR_MS_PER_DAY || o->pause_min_us < 0 ||
        o->pause_min_us > o->pause_max_us || o->pause_max_us > MR_MS_PER_DAY * MR_US_PER_MS ||
        o->beats_missed == 1 || o->beats_missed > 1000 || o->order > MR_QUEUES_STRICT ||
        !mr_leader_ms_fits(o->leader_ms, o->beat_ms))
        return MR_INVALID;
    if ((o->queues_n > 0 && !o->queues) || (o->retry_levels_n > 0 && !o->retry_levels_ms))
        return MR_INVALID;
    for (size_t i = 0; i < o->queues_n; i++)
        MR_TRY(mr_name_check(o->queues[i].name));
    MR_TRY(mr_addresses_check(o));
    for (size_t i = 0; i < o->retry_levels_n; i++)
        if (o->retry_levels_ms[i] < 0)
            return MR_INVALID;
    MR_TRY(mr_machines_check(o));
    return o->node.len > 0 ? mr_name_check(o->node) : MR_OK;
}

bool mr_leader_ms_fits(int64_t leader_ms, int64_t beat_ms)
{
    return leader_ms == 0 ||
           (leader_ms >= 2 * (beat_ms ? beat_ms : BEAT_MS) && leader_ms <= MR_MS_PER_DAY);
}

struct mr_slice mr_node_name(struct mr_slice given, char name[MR_NAME_MAX + 1])
{
    char host[HOST_MAX + 1] = "localhost";
    if (given.len > 0)
        return given;
    if (gethostname(host, sizeof host - 1) != 0 || mr_name_check(mr_slice_str(host)) != MR_OK)
        memcpy(host, "localhost", sizeof "localhost");
    snprintf(name, MR_NAME_MAX + 1, "%s:%ld", host, (long)getpid());
    return mr_slice_str(name);
}

static enum mr_err copy_node(struct mr_worker *w)
{
    char name[MR_NAME_MAX + 1];
    return mr_arena_copy(&w->memory, mr_node_name(w->options.node, name), &w->options.node);
}

static enum mr_err copy_levels(struct mr_worker *w)
{
    size_t n = w->options.retry_levels_n;
    if (n == 0)
        return MR_OK;
    int64_t *copy = mr_arena_calloc(&w->memory, n, sizeof *copy);
    if (!copy)
        return MR_NOMEM;
    memcpy(copy, w->options.retry_levels_ms, n * sizeof *copy);
    w->options.retry_levels_ms = copy;
    return MR_OK;
}

static uint32_t default_slots(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1)
        return 1;
    return cores < MR_SLOTS_MAX ? (uint32_t)cores : MR_SLOTS_MAX;
}

/* Copies what the caller may free, and fills in the defaults. */
static enum mr_err set_options(struct mr_worker *w, const struct mr_worker_options *options)
{
    struct mr_worker_options *o = &w->options;
    *o = *options;
    MR_TRY(copy_node(w));
    MR_TRY(mr_addresses_make(w));
    MR_TRY(copy_levels(w));
    o->slots = o->slots ? o->slots : default_slots();
    o->drain_ms = o->drain_ms ? o->drain_ms : DRAIN_MS;
    o->grace_ms = o->grace_ms ? o->grace_ms : GRACE_MS;
    o->beat_ms = o->beat_ms ? o->beat_ms : BEAT_MS;
    o->beats_missed = o->beats_missed ? o->beats_missed : BEATS_MISSED;
    o->retry_max_ms = o->retry_max_ms ? o->retry_max_ms : MR_MS_PER_DAY;
    MR_TRY(mr_groups_options(o));
    if (o->poll_ms == MR_NO_WAIT && o->pause_max_us == 0) {
        o->pause_min_us = RETRY_MS * MR_US_PER_MS;
        o->pause_max_us = 2 * o->pause_min_us;
    }
    o->poll_ms = o->poll_ms == MR_NO_WAIT ? 0 : o->poll_ms ? o->poll_ms : TAKE_WAIT_MS;
    MR_TRY(mr_machines_make(w));
    o->machines = NULL; /* the caller's */
    w->lease_ms = o->beat_ms * o->beats_missed;
    o->leader_ms = o->leader_ms ? o->leader_ms : w->lease_ms;
    w->retry = (struct mr_retry){
        .delay = o->retry_delay,
        .arg = o->arg,
        .levels_ms = o->retry_levels_ms,
        .levels_n = o->retry_levels_n,
        .max_ms = o->retry_max_ms,
    };
    return MR_OK;
}

/* ---- making --------------------------------------------------------------------------------- */

static enum mr_err make_slots(struct mr_worker *w)
{
    w->slots = calloc(w->slots_n, sizeof *w->slots);
    if (!w->slots)
        return MR_NOMEM;
    for (uint32_t i = 0; i < w->slots_n; i++) {
        struct mr_slot *slot = &w->slots[i];
        slot->worker = w;
        slot->index = i;
        mr_rand_seed_system(&slot->rand);
        mr_event_init(&slot->wake);
        mr_event_init(&slot->run.stopping);
        mr_timer_init(&slot->timer, mr_monitor_fire);
        atomic_init(&slot->due_ns, INT64_MAX);
        slot->spare = calloc(1, sizeof *slot->spare);
        if (!slot->spare)
            return MR_NOMEM;
    }
    return MR_OK;
}

static void slot_done(struct mr_slot *slot)
{
    mr_reports_free(slot->spare);
    mr_reports_free(atomic_load(&slot->returned));
    mr_buf_done(&slot->run.result);
    mr_buf_done(&slot->run.error);
}

enum mr_err mr_worker_new_on(struct mr_broker *broker, const struct mr_worker_options *options,
                             struct mr_worker **ret_worker)
{
    static const struct mr_worker_options defaults;
    options = options ? options : &defaults;
    MR_TRY(check_options(options));
    struct mr_worker *w = calloc(1, sizeof *w);
    if (!w)
        return MR_NOMEM;
    w->broker = broker;
    w->clock = mr_clock_system();
    w->show_at = MR_MONO_NEVER;
    mr_lock_init(&w->lock);
    mr_rand_seed_system(&w->rand);
    mr_rand_seed_system(&w->pump_rand);
    w->back_key = (struct mr_hash_key){mr_rand_next(&w->rand), mr_rand_next(&w->rand)};
    enum mr_err err = set_options(w, options);
    if (err == MR_OK)
        err = make_slots(w);
    if (err == MR_OK)
        mr_machines_share(w);
    if (err == MR_OK)
        err = mr_wheel_new(0, &w->wheel);
    if (err != MR_OK) {
        mr_worker_free(w);
        return err;
    }
    *ret_worker = w;
    return MR_OK;
}

void mr_worker_leading(struct mr_worker *worker, const struct mr_leading *leading)
{
    worker->leading = *leading;
}

void mr_worker_more(struct mr_worker *worker, const struct mr_more *more)
{
    worker->more = *more;
}

bool mr_worker_handles(const struct mr_worker *worker, struct mr_slice type)
{
    return mr_handlers_find(&worker->handlers, type) != NULL;
}

enum mr_err mr_worker_handle(struct mr_worker *worker, const char *pattern, mr_handler *handler,
                             void *arg)
{
    mr_lock_enter(&worker->lock);
    enum mr_err err = MR_WRONG_STATE;
    if (worker->life == WORKER_NEW)
        err = mr_handlers_add(&worker->handlers, pattern, handler, arg);
    mr_lock_leave(&worker->lock);
    return err;
}

/* ---- starting ------------------------------------------------------------------------------- */

static enum mr_err start_threads(struct mr_worker *w)
{
    MR_TRY(mr_thread_start(&w->monitor, "mr-monitor", mr_monitor_main, w));
    w->monitor_there = true;
    for (uint32_t i = 0; i < w->slots_n; i++) {
        struct mr_slot *slot = &w->slots[i];
        MR_TRY(mr_thread_start(&slot->thread, "mr-slot", mr_slot_main, slot));
        slot->thread_there = true;
    }
    return mr_groups_start(w);
}

enum mr_err mr_worker_start(struct mr_worker *worker)
{
    struct mr_worker *w = worker;
    mr_lock_enter(&w->lock);
    bool fresh = w->life == WORKER_NEW;
    if (fresh) {
        w->life = WORKER_RUNNING;
        w->starting = true;
    }
    mr_lock_leave(&w->lock);
    if (!fresh)
        return MR_WRONG_STATE;
    w->start = w->monitor_wakes = mr_mono_now(w->clock);
    atomic_store(&w->scan_ns, mr_mono_add_ms(w->start, w->options.beat_ms).ns);
    enum mr_err err = mr_node_open(w);
    if (err == MR_OK)
        err = start_threads(w);
    mr_lock_enter(&w->lock);
    w->starting = false;
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
    if (err != MR_OK)
        mr_worker_stop(w);
    return err;
}

/* ---- failing -------------------------------------------------------------------------------- */

bool mr_worker_fails(struct mr_worker *w, enum mr_err err)
{
    bool for_good = err == MR_IO || err == MR_FAILED || err == MR_DENIED;
    if (!for_good)
        return false;
    if (w->failure == MR_OK) {
        mr_diag(w->awaited ? MR_DIAG_DEBUG : MR_DIAG_ERROR, "broker.failed", "error=%s",
                mr_err_name(err));
        w->failure = err;
        mr_lock_notify_all(&w->lock);
    }
    return true;
}

bool mr_worker_works(const struct mr_worker *w)
{
    return w->life == WORKER_RUNNING && w->failure == MR_OK;
}

/* ---- stopping ------------------------------------------------------------------------------- */

static bool all_reported(struct mr_worker *w)
{
    return w->reported == atomic_load(&w->acked);
}

/* Waits for the runs to end. With the lock. */
static void await_runs(struct mr_worker *w, mr_mono end)
{
    mr_mono now = mr_mono_now(w->clock);
    while (mr_worker_busy(w) > 0 && now.ns < end.ns && !w->hurried) {
        mr_lock_wait(&w->lock, end.ns - now.ns);
        now = mr_mono_now(w->clock);
    }
}

/* Waits for the answers of the reports. With the lock. */
static void await_reports(struct mr_worker *w, mr_mono end)
{
    mr_mono now = mr_mono_now(w->clock), soon = mr_mono_add_ms(now, REPORTS_MS);
    while (!all_reported(w) && (now.ns < soon.ns || (now.ns < end.ns && !w->hurried))) {
        mr_lock_wait(&w->lock, (now.ns < soon.ns ? soon.ns : end.ns) - now.ns);
        now = mr_mono_now(w->clock);
    }
}

/* Nothing begins any more. */
static void hold(struct mr_worker *w)
{
    struct mr_lease *rest[MR_MACHINES_MAX];
    struct mr_slot *woken[MR_MACHINES_MAX];
    size_t n;
    mr_lock_enter(&w->lock);
    for (size_t i = 0; i < w->machines_n; i++) {
        rest[i] = mr_hand_cut(&w->machines[i].hand, 0, &n);
        woken[i] = mr_slots_unlist(&w->machines[i], w->slots_n);
    }
    /* What waited to be sent again is lost; the node's end brings the tasks back. */
    struct mr_report *again = w->again;
    for (struct mr_report *report = again; report; report = report->next)
        w->reported--;
    w->again = NULL;
    mr_lock_leave(&w->lock);
    for (size_t i = 0; i < w->machines_n; i++) {
        mr_slots_wake(woken[i]);
        mr_leases_finish(&w->machines[i], rest[i], UNRUN_BACK);
    }
    mr_reports_give_up(again);
}

/* Ends the runs, one way or the other; all of them are reported afterwards. */
static void drain(struct mr_worker *w)
{
    mr_mono end = mr_mono_add_ms(mr_mono_now(w->clock), w->options.drain_ms);
    mr_lock_enter(&w->lock);
    await_runs(w, end);
    mr_mono now = mr_mono_now(w->clock);
    for (uint32_t i = 0; i < w->slots_n; i++)
        mr_run_stop(&w->slots[i], RUN_WORKER_STOPS, now);
    while (mr_worker_busy(w) > 0) /* the monitor gives up those that do not return */
        mr_lock_wait(&w->lock, INT64_MAX);
    atomic_store(&w->ack_awaited, true);
    await_reports(w, end);
    w->monitor_ends = true;
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
    if (w->monitor_there)
        mr_thread_join(w->monitor);
}

static bool takes_busy(const struct mr_worker *w)
{
    for (size_t i = 0; i < w->machines_n; i++)
        if (w->machines[i].take_busy)
            return true;
    return false;
}

/* No request of ours is at the broker afterwards. */
static void leave_broker(struct mr_worker *w)
{
    mr_lock_enter(&w->lock);
    bool node = w->node != 0;
    w->node_open = false;
    mr_lock_leave(&w->lock);
    if (node)
        mr_node_close(w);
    mr_lock_enter(&w->lock);
    while (takes_busy(w) || w->beat_busy || !all_reported(w))
        mr_lock_wait(&w->lock, INT64_MAX);
    w->life = WORKER_STOPPED;
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
}

/* Nothing is waited for any more. Under the lock. */
static void hurry(struct mr_worker *w)
{
    mr_mono now = mr_mono_now(w->clock);
    w->hurried = true;
    for (uint32_t i = 0; i < w->slots_n; i++)
        mr_run_hurry(&w->slots[i], now);
}

enum stop_again { STOP_WAITS, STOP_HURRIES };

/* Stops the worker, or waits for the one who does. */
static void stop(struct mr_worker *w, enum stop_again again)
{
    mr_lock_enter(&w->lock);
    while (w->starting)
        mr_lock_wait(&w->lock, INT64_MAX);
    bool first = w->life == WORKER_RUNNING;
    if (first)
        w->life = WORKER_STOPPING;
    else if (w->life == WORKER_NEW)
        w->life = WORKER_STOPPED;
    else if (w->life == WORKER_STOPPING && again == STOP_HURRIES)
        hurry(w);
    mr_lock_notify_all(&w->lock);
    while (!first && w->life != WORKER_STOPPED)
        mr_lock_wait(&w->lock, INT64_MAX);
    mr_lock_leave(&w->lock);
    if (!first)
        return;
    hold(w);
    mr_groups_stop(w);
    drain(w);
    leave_broker(w);
}

void mr_worker_stop(struct mr_worker *worker)
{
    stop(worker, STOP_HURRIES);
}

/* The queues are empty. With the lock, which is left while somebody is asked. */
static void ask_for_more(struct mr_worker *w)
{
    mr_lock_leave(&w->lock);
    bool comes = w->more.comes(w, w->more.arg);
    mr_lock_enter(&w->lock);
    if (w->burst != BURST_ASKS)
        return; /* a take that was on its way has brought something */
    w->burst = comes ? BURST_WAITS : BURST_LAST;
    for (size_t i = 0; i < w->machines_n; i++)
        w->machines[i].empty = w->machines[i].take_idle =
            false; /* takes from before do not count */
    mr_monitor_by(w, mr_mono_now(w->clock));
}

enum mr_err mr_worker_run(struct mr_worker *worker)
{
    struct mr_worker *w = worker;
    MR_TRY(mr_worker_start(w));
    mr_lock_enter(&w->lock);
    w->awaited = true;
    while (mr_worker_works(w) && w->burst != BURST_OVER)
        if (w->burst == BURST_ASKS)
            ask_for_more(w);
        else
            mr_lock_wait(&w->lock, INT64_MAX);
    mr_lock_leave(&w->lock);
    stop(w, STOP_WAITS);
    return w->failure; /* also when the last reports were refused */
}

void mr_worker_free(struct mr_worker *worker)
{
    struct mr_worker *w = worker;
    if (!w)
        return;
    stop(w, STOP_WAITS);
    if (w->leading.free)
        w->leading.free(w->leading.arg);
    if (w->more.free)
        w->more.free(w->more.arg);
    for (uint32_t i = 0; w->slots && i < w->slots_n; i++) {
        if (w->slots[i].thread_there)
            mr_thread_join(w->slots[i].thread);
        slot_done(&w->slots[i]);
    }
    mr_arena_done(&w->beat_memory);
    mr_wheel_free(w->wheel);
    mr_handlers_done(&w->handlers);
    mr_lock_done(&w->lock);
    mr_arena_done(&w->memory);
    free(w->slots);
    free(w);
}

/* ---- looking at it -------------------------------------------------------------------------- */

void mr_worker_figures(struct mr_worker *worker, struct mr_worker_figures *ret_figures)
{
    _Atomic uint64_t *f = worker->figures;
    *ret_figures = (struct mr_worker_figures){
        .done = f[FIGURE_DONE],
        .failed = f[FIGURE_FAILED],
        .handed_back = f[FIGURE_HANDED_BACK],
        .later = f[FIGURE_LATER],
        .dropped = f[FIGURE_DROPPED],
        .unhandled = f[FIGURE_UNHANDLED],
        .stale = f[FIGURE_STALE],
        .in_doubt = f[FIGURE_IN_DOUBT],
        .aggregated = f[FIGURE_AGGREGATED],
        .not_aggregated = f[FIGURE_NOT_AGGREGATED],
    };
    mr_lock_enter(&worker->lock);
    for (uint32_t i = 0; i < worker->slots_n; i++)
        ret_figures->slots[mr_slot_state(&worker->slots[i])]++;
    mr_lock_leave(&worker->lock);
}
