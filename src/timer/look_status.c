/* SPDX-License-Identifier: Apache-2.0 */
/* How the timers are: four questions, one behind the other, and what the parts of the service count. */
#include <stdlib.h>

#include "broker/hidden.h"
#include "store/store.h"
#include "timer/look.h"
#include "timer/scheduler.h"
#include "timer/service_internal.h"

struct work {
    struct mr_timer_service *service;
    struct mr_timer_look *look;
    struct mr_store_stats stats;
    struct mr_store_lease_list leases;
    bool parts; /* of subApps */
    struct mr_req_queue_list queue;
    struct mr_queue_info info;
};

static void end(struct work *work, enum mr_err err)
{
    struct mr_timer_look *look = work->look;
    free(work);
    look->err = err;
    look->done(look);
}

/* ---- operations ------------------------------------------------------------------------------ */

static void on_queue(struct mr_req *req)
{
    struct work *work = req->arg;
    struct mr_timer_status *status = &work->look->status;
    const struct mr_queue_info *info = &work->info;
    enum mr_err err = req->err;
    if (err == MR_OK && work->queue.n == 1) {
        status->waiting = info->counts[MR_PENDING] + info->counts[MR_ACTIVE];
        status->retrying = info->counts[MR_RETRY] + info->counts[MR_SCHEDULED];
        status->dead = info->counts[MR_ARCHIVED];
        status->oldest_ms = info->oldest_pending_ms;
        status->wait_p50_us = info->wait_p50_us;
        status->wait_p99_us = info->wait_p99_us;
    }
    mr_req_done(req);
    end(work, err == MR_NOT_FOUND ? MR_OK : err); /* nobody has made a timer here yet */
}

static void ask_queue(struct work *work)
{
    work->queue = (struct mr_req_queue_list){
        .req = {.op = MR_OP_QUEUE_LIST, .done = on_queue, .arg = work},
        .only = mr_slice_str(MR_TIMERS_QUEUE),
        .infos = &work->info,
        .max = 1,
    };
    mr_broker_submit(work->service->broker, &work->queue.req);
}

/* ---- who fires what -------------------------------------------------------------------------- */

static enum mr_err add_app(struct mr_timer_look *look, const struct mr_store_lease_row *row,
                           int64_t now_ms)
{
    struct mr_timer_app *app = &look->status.apps[look->status.apps_n];
    size_t prefix = strlen(MR_APP_LEASE_PREFIX); /* that of subApps has the same length */
    *app = (struct mr_timer_app){.token = row->token, .until_ms = row->until_ms};
    MR_TRY(mr_arena_copy(
        &look->arena, mr_slice_make((const char *)row->name.data + prefix, row->name.len - prefix),
        &app->app));
    if (row->until_ms > now_ms)
        MR_TRY(mr_arena_copy(&look->arena, row->owner, &app->owner));
    look->status.apps_n++;
    return MR_OK;
}

/* An app that is cut is nobody's as a whole; of a subApp it is told while somebody has it. */
static bool is_shown(const struct work *work, const struct mr_store_lease_row *row, int64_t now_ms)
{
    return work->parts ? row->until_ms > now_ms
                       : !mr_slice_equal(row->owner, mr_slice_str(MR_SUBAPPS_OWNER));
}

static enum mr_err add_apps(struct work *work)
{
    struct mr_timer_look *look = work->look;
    const struct mr_store_lease_list *leases = &work->leases;
    size_t n = look->status.apps_n;
    struct mr_timer_app *apps = mr_arena_calloc(&look->arena, n + leases->n + 1, sizeof *apps);
    if (apps == NULL)
        return MR_NOMEM;
    if (n > 0)
        memcpy(apps, look->status.apps, n * sizeof *apps);
    look->status.apps = apps;
    for (size_t i = 0; i < leases->n; i++) {
        if (is_shown(work, &leases->leases[i], leases->now_ms))
            MR_TRY(add_app(look, &leases->leases[i], leases->now_ms));
    }
    return MR_OK;
}

static void ask_leases(struct work *work, const char *prefix);

static void on_leases(struct mr_store_req *req)
{
    struct work *work = req->arg;
    enum mr_err err = req->err == MR_OK ? add_apps(work) : req->err;
    mr_store_req_done(req);
    if (err != MR_OK) {
        end(work, err);
    } else if (!work->parts) {
        work->parts = true;
        ask_leases(work, MR_SUBAPP_LEASE_PREFIX);
    } else {
        ask_queue(work);
    }
}

static void ask_leases(struct work *work, const char *prefix)
{
    work->leases = (struct mr_store_lease_list){
        .req = {.op = MR_STORE_LEASE_LIST, .done = on_leases, .arg = work},
        .prefix = mr_slice_str(prefix),
        .max = MR_BATCH_MAX,
    };
    mr_store_submit(work->service->store, &work->leases.req);
}

/* ---- the store ------------------------------------------------------------------------------- */

static void on_stats(struct mr_store_req *req)
{
    struct work *work = req->arg;
    struct mr_timer_look *look = work->look;
    const struct mr_store_stats *stats = &work->stats;
    enum mr_err err = req->err;
    if (err == MR_OK) {
        look->status.active = stats->timers[MR_ROW_ACTIVE];
        look->status.paused = stats->timers[MR_ROW_PAUSED];
        look->status.finished = stats->timers[MR_ROW_FINISHED];
        err = mr_arena_copy(&look->arena, mr_slice_str(stats->engine), &look->status.store);
    }
    mr_store_req_done(req);
    if (err == MR_UNAVAILABLE) { /* which is just what was asked */
        ask_queue(work);
        return;
    }
    if (err != MR_OK) {
        end(work, err);
        return;
    }
    ask_leases(work, MR_APP_LEASE_PREFIX);
}

static enum mr_err add_counts(struct mr_timer_service *service, struct mr_timer_look *look)
{
    struct mr_timer_health health;
    struct mr_timer_status *status = &look->status;
    mr_timer_service_health(service, &health);
    *status = (struct mr_timer_status){
        .fired = health.fired,
        .caught_up = health.caught_up,
        .skipped = health.skipped,
        .misfired = health.misfired,
        .succeeded = health.succeeded,
        .failed = health.failed,
        .applied = health.applied,
        .stale = health.stale,
        .retried = health.retried,
        .rejected = health.rejected,
        .ownership_taken = health.ownership_taken,
        .ownership_lost = health.ownership_lost,
        .lateness_p50_us = health.lateness_p50_us,
        .lateness_p99_us = health.lateness_p99_us,
    };
    return mr_arena_copy(&look->arena, mr_slice_str(health.store_text), &status->problem);
}

void mr_timer_service_status(struct mr_timer_service *service, struct mr_timer_look *look)
{
    struct work *work = calloc(1, sizeof *work);
    look->err = work != NULL ? add_counts(service, look) : MR_NOMEM;
    if (look->err != MR_OK) {
        free(work);
        look->done(look);
        return;
    }
    work->service = service;
    work->look = look;
    work->stats.req = (struct mr_store_req){.op = MR_STORE_STATS, .done = on_stats, .arg = work};
    mr_store_submit(service->store, &work->stats.req);
}
