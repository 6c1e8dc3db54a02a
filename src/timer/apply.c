/* SPDX-License-Identifier: Apache-2.0 */
#include "timer/apply.h"

#include <stdlib.h>

#include "base/diag.h"
#include "broker/hidden.h"
#include "timer/apply_internal.h"

enum {
    LEASE_MS = 30 * 1000,
    BEAT_MS = 5 * 1000,
    AGAIN_MS = 1000, /* the broker is asked again after an error */
    APART_MS =
        60 * 1000, /* clocks of servers may differ: what another one has accepted is not refused */
};
static const int64_t default_levels[] = {5000, 10000};

/* ---- the node ------------------------------------------------------------------------------- */

/* What it held is with somebody else, who does the same. */
static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static bool is_stopping(struct mr_applier *a)
{
    mr_lock_enter(&a->lock);
    bool stopping = a->stopping;
    mr_lock_leave(&a->lock);
    return stopping;
}

static void pause_for(struct mr_applier *a, int64_t ms)
{
    mr_lock_enter(&a->lock);
    if (!a->stopping)
        mr_lock_wait(&a->lock, ms * MR_NS_PER_MS);
    mr_lock_leave(&a->lock);
}

static bool node_open(struct mr_applier *a)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT(MR_TIMERS_QUEUE), .weight = 1};
    struct mr_req_node_open open = {
        .req = {.op = MR_OP_NODE_OPEN},
        .role = MR_NODE_WORKER,
        .name = mr_slice_str(a->name),
        .queues = &queue,
        .queues_n = 1,
        .slots = 1,
        .lease_ms = LEASE_MS,
        .inner = true,
        .events = {.stop = on_stop},
    };
    enum mr_err err = mr_broker_call(a->options.broker, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK) {
        mr_diag(MR_DIAG_WARN, "timer.applier", "error=%s trying again", mr_err_name(err));
        return false;
    }
    atomic_store(&a->node, open.node);
    a->beat_at = mr_mono_add_ms(mr_mono_now(mr_clock_system()), BEAT_MS);
    return true;
}

/* Its leases go back. */
static void node_close(struct mr_applier *a)
{
    uint64_t node = atomic_exchange(&a->node, 0);
    if (node == 0)
        return;
    struct mr_req_node_close close = {.req = {.op = MR_OP_NODE_CLOSE}, .node = node};
    enum mr_err err = mr_broker_call(a->options.broker, &close.req);
    mr_req_done(&close.req);
    if (err != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "timer.applier", "close=%s ignoring", mr_err_name(err));
}

/* Says that it lives, if it is time to. */
static void beat(struct mr_applier *a)
{
    mr_mono now = mr_mono_now(mr_clock_system());
    if (now.ns < a->beat_at.ns || a->node == 0)
        return;
    struct mr_req_beat req = {.req = {.op = MR_OP_BEAT}, .node = a->node};
    enum mr_err err = mr_broker_call(a->options.broker, &req.req);
    mr_req_done(&req.req);
    a->beat_at = mr_mono_add_ms(now, BEAT_MS);
    if (err != MR_OK) /* a take will say so as well */
        mr_diag(MR_DIAG_DEBUG, "timer.applier", "beat=%s ignoring", mr_err_name(err));
}

void applier_wait(struct mr_applier *a, struct mr_event *answered)
{
    while (!mr_event_wait(answered, BEAT_MS * MR_NS_PER_MS))
        beat(a);
}

static void store_answered(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

enum mr_err applier_store_call(struct mr_applier *a, struct mr_store_req *req)
{
    struct mr_event answered;
    mr_event_init(&answered);
    req->done = store_answered;
    req->arg = &answered;
    mr_store_submit(a->options.store, req);
    applier_wait(a, &answered);
    return req->err;
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* False: it is to stop. */
static bool taking(struct mr_applier *a, bool now)
{
    mr_lock_enter(&a->lock);
    a->taking = now;
    bool stopping = a->stopping;
    mr_lock_leave(&a->lock);
    return !stopping;
}

static void turn(struct mr_applier *a)
{
    struct mr_req_take take = {.req = {.op = MR_OP_TAKE},
                               .node = a->node,
                               .max = MR_BATCH_MAX,
                               .bytes_max = MR_TAKE_BYTES,
                               .wait_ms = BEAT_MS};
    if (!taking(a, true))
        return;
    enum mr_err err = mr_broker_call(a->options.broker, &take.req);
    (void)taking(a, false);
    if (err == MR_OK && !applier_work(a, take.leases))
        pause_for(a, AGAIN_MS);
    mr_req_done(&take.req);
    if (err == MR_CLOSED && !is_stopping(a))
        node_close(a); /* it was declared dead */
    else if (err != MR_OK && err != MR_EMPTY)
        pause_for(a, AGAIN_MS);
    beat(a);
}

static void *applier_main(void *arg)
{
    struct mr_applier *a = arg;
    while (!is_stopping(a)) {
        if (a->node != 0)
            turn(a);
        else if (!node_open(a))
            pause_for(a, AGAIN_MS);
    }
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void settle(struct mr_applier *a, const struct mr_timer_settings *settings)
{
    static const struct mr_timer_settings defaults;
    settings = settings ? settings : &defaults;
    a->clock = a->options.clock ? a->options.clock : mr_clock_system();
    a->payload_max = a->options.payload_max ? a->options.payload_max : MR_PAYLOAD_MAX;
    a->ahead_ms = (settings->ahead_ms ? settings->ahead_ms : MR_TIMER_AHEAD_MS) + APART_MS;
    a->levels_n = settings->levels_n;
    memcpy(a->levels_ms, settings->levels_ms, sizeof a->levels_ms);
    if (a->levels_n == 0) {
        a->levels_n = sizeof default_levels / sizeof *default_levels;
        memcpy(a->levels_ms, default_levels, sizeof default_levels);
    }
    (void)snprintf(a->name, sizeof a->name, "timers %.100s",
                   a->options.node ? a->options.node : "");
    a->options.settings = NULL;
    a->options.node = NULL;
}

enum mr_err mr_applier_start(const struct mr_applier_options *options,
                             struct mr_applier **ret_applier)
{
    struct mr_applier *a = calloc(1, sizeof *a);
    if (a == NULL)
        return MR_NOMEM;
    a->batch = calloc(1, sizeof *a->batch);
    a->options = *options;
    settle(a, options->settings);
    mr_lock_init(&a->lock);
    enum mr_err err =
        a->batch ? mr_thread_start(&a->thread, "mr-applier", applier_main, a) : MR_NOMEM;
    if (err != MR_OK) {
        mr_lock_done(&a->lock);
        free(a->batch);
        free(a);
        return err;
    }
    *ret_applier = a;
    return MR_OK;
}

void mr_applier_stop(struct mr_applier *applier)
{
    struct mr_applier *a = applier;
    if (a == NULL)
        return;
    mr_lock_enter(&a->lock);
    a->stopping = true;
    bool waits = a->taking;
    mr_lock_notify_all(&a->lock);
    mr_lock_leave(&a->lock);
    if (waits)
        node_close(a);
    mr_thread_join(a->thread);
    node_close(a);
    mr_lock_done(&a->lock);
    mr_arena_done(&a->batch->arena);
    free(a->batch);
    free(a);
}

void mr_applier_figures(struct mr_applier *applier, struct mr_applier_figures *ret_figures)
{
    *ret_figures = (struct mr_applier_figures){
        .applied = atomic_load(&applier->applied),
        .stale = atomic_load(&applier->stale),
        .retried = atomic_load(&applier->retried),
        .rejected = atomic_load(&applier->rejected),
        .dead = atomic_load(&applier->dead),
    };
}
