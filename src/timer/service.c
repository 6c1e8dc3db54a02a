/* SPDX-License-Identifier: Apache-2.0 */
/* See service.h. */
#include "timer/service.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"
#include "broker/broker.h"
#include "store/store.h"
#include "timer/alarm.h"
#include "timer/apply.h"
#include "timer/copies.h"
#include "timer/door.h"
#include "timer/exhibit.h"
#include "timer/plan_view.h"
#include "timer/replica.h"
#include "timer/scheduler.h"
#include "timer/service_internal.h"

/* ---- what the parts tell each other ---------------------------------------------------------- */

/* Thread: the applier's, as of those that follow. */
static void on_changed(struct mr_slice app, void *arg)
{
    struct mr_timer_service *service = arg;
    mr_scheduler_changed(service->scheduler, app);
    mr_exhibition_changed(service->exhibition);
}

static void on_act(struct mr_firing_act *act, void *arg)
{
    struct mr_timer_service *service = arg;
    mr_scheduler_act(service->scheduler, act);
}

static void on_dead(const struct mr_timer_dead *dead, void *arg)
{
    struct mr_timer_service *service = arg;
    struct mr_alarm_event event = {
        .kind = "dead",
        .app = dead->app,
        .timer = dead->name,
        .operation = dead->operation,
        .verb = mr_timer_verb_name(dead->verb),
        .reason = dead->reason,
    };
    mr_alarm_tell(service->alarm, &event);
}

/* The other server need not keep its copy. */
static void on_ended(const struct mr_task *task, void *arg)
{
    struct mr_timer_service *service = arg;
    for (size_t i = 0; i < task->headers_n; i++)
        if (mr_slice_equal(task->headers[i].name, MR_SLICE_LIT(MR_TIMER_COPY_HEADER)))
            mr_replica_drop(service->replica, task->headers[i].value, task->id);
}

/* An alarm whose timer is asked for, since only its id is known. */
struct asked {
    struct mr_store_timer_get get;
    struct mr_store_timer_key key;
    struct mr_timer_service *service;
    struct mr_alarm_event event; /* what it points to is in the arena */
    struct mr_arena arena;
};

static void asked_free(struct asked *asked)
{
    mr_arena_done(&asked->arena);
    free(asked);
}

/* Thread: the store's. */
static void on_asked(struct mr_store_req *req)
{
    struct asked *asked = req->arg;
    if (req->err == MR_OK && asked->get.timers->state != MR_ROW_NONE)
        asked->event.timer = asked->get.timers->name;
    struct mr_timer_service *service = asked->service;
    mr_alarm_tell(service->alarm, &asked->event);
    mr_store_req_done(req);
    asked_free(asked);
    atomic_fetch_sub(&service->asking, 1);
}

static enum mr_err keep_event(struct asked *asked, const struct mr_alarm_event *event)
{
    struct mr_alarm_event *copy = &asked->event;
    *copy = *event;
    MR_TRY(mr_arena_copy(&asked->arena, event->app, &copy->app));
    MR_TRY(mr_arena_copy(&asked->arena, event->task_id, &copy->task_id));
    return mr_arena_copy(&asked->arena, event->reason, &copy->reason);
}

static void ask_and_tell(struct mr_timer_service *service, const struct mr_alarm_event *event,
                         const struct mr_uuid *uid)
{
    struct asked *asked = calloc(1, sizeof *asked);
    if (asked == NULL || keep_event(asked, event) != MR_OK) {
        if (asked != NULL)
            asked_free(asked);
        mr_alarm_tell(service->alarm, event);
        return;
    }
    asked->service = service;
    asked->key.uid = *uid;
    asked->get = (struct mr_store_timer_get){
        .req = {.op = MR_STORE_TIMER_GET, .done = on_asked, .arg = asked},
        .keys = &asked->key,
        .n = 1,
    };
    atomic_fetch_add(&service->asking, 1);
    mr_store_submit(service->store, &asked->get.req);
}

/* Thread: the scheduler's. */
static void on_alarm(const struct mr_scheduler_alarm *alarm, void *arg)
{
    static const char *const kinds[MR_ALARM_KIND_COUNT] = {
        [MR_ALARM_FAILED] = "failed",
        [MR_ALARM_MISFIRED] = "misfired",
        [MR_ALARM_NO_WORKER] = "no_worker",
    };
    struct mr_timer_service *service = arg;
    struct mr_alarm_event event = {
        .kind = kinds[alarm->kind],
        .app = alarm->app,
        .timer = alarm->name,
        .planned_ms = alarm->planned_ms,
        .until_ms = alarm->until_ms,
        .task_id = alarm->task_id,
        .reason = alarm->reason,
    };
    if (alarm->name.len > 0)
        mr_alarm_tell(service->alarm, &event);
    else
        ask_and_tell(service, &event, &alarm->uid);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum mr_err start_scheduler(struct mr_timer_service *service,
                                   const struct mr_timer_service_options *options)
{
    struct mr_scheduler_options scheduler = {
        .broker = options->broker,
        .store = service->store,
        .clock = options->clock,
        .apps = options->apps,
        .apps_n = options->apps_n,
        .node = options->node,
        .home = options->home,
        .gate = options->gate,
        .settings = &service->settings,
        .alarm = service->alarm != NULL ? on_alarm : NULL,
        .arg = service,
    };
    return mr_scheduler_start(&scheduler, &service->scheduler);
}

static enum mr_err start_applier(struct mr_timer_service *service,
                                 const struct mr_timer_service_options *options)
{
    struct mr_applier_options applier = {
        .broker = options->broker,
        .store = service->store,
        .zones = service->zones,
        .clock = options->clock,
        .payload_max = options->payload_max,
        .node = options->node,
        .settings = &service->settings,
        .changed = on_changed,
        .act = on_act,
        .dead = service->alarm != NULL ? on_dead : NULL,
        .ended = service->replica != NULL ? on_ended : NULL,
        .arg = service,
    };
    return mr_applier_start(&applier, &service->applier);
}

static enum mr_err open_door(struct mr_timer_service *service,
                             const struct mr_timer_service_options *options)
{
    struct mr_timer_door_options door = {
        .broker = options->broker,
        .zones = service->zones,
        .clock = options->clock,
        .payload_max = options->payload_max,
        .ahead_ms = options->settings.ahead_ms,
        .replica = service->replica,
    };
    return mr_timer_door_new(&door, &service->door);
}

static enum mr_err start_copies(struct mr_timer_service *service,
                                const struct mr_timer_service_options *options)
{
    struct mr_copies_options copies = {.broker = options->broker,
                                       .store = service->store,
                                       .own = mr_scheduler_owner(service->scheduler),
                                       .lease_ms = options->settings.lease_ms};
    if (options->keeps_copies)
        MR_TRY(mr_copies_start(&copies, &service->copies));
    if (options->replica == NULL)
        return MR_OK;
    struct mr_replica_options replica = *options->replica;
    replica.origin = mr_scheduler_owner(service->scheduler);
    return mr_replica_new(&replica, &service->replica);
}

static enum mr_err start_parts(struct mr_timer_service *service, struct mr_detail *detail)
{
    const struct mr_timer_service_options *options = &service->options;
    if (options->settings.alarm != NULL && service->alarm == NULL)
        MR_TRY(mr_alarm_start(options->settings.alarm, options->settings.alarm_secret,
                              &service->alarm, detail));
    MR_TRY(start_scheduler(service, options));
    if (options->broker->ops->exhibits && options->node != NULL && options->node[0] != '\0')
        MR_TRY(mr_exhibition_start(options->broker, service->store, options->node,
                                   &service->exhibition));
    MR_TRY(start_copies(service, options));
    MR_TRY(start_applier(service, options));
    return open_door(service, options);
}

static void stop_parts(struct mr_timer_service *service)
{
    mr_timer_door_free(service->door);
    mr_applier_stop(service->applier);
    mr_replica_free(service->replica);
    mr_copies_stop(service->copies);
    mr_exhibition_stop(service->exhibition);
    mr_scheduler_stop(service->scheduler);
    service->door = NULL;
    service->applier = NULL;
    service->replica = NULL;
    service->copies = NULL;
    service->exhibition = NULL;
    service->scheduler = NULL;
}

enum mr_err mr_timer_service_fire(struct mr_timer_service *service, struct mr_detail *detail)
{
    if (service->fires)
        return MR_OK;
    enum mr_err err = start_parts(service, detail);
    if (err != MR_OK)
        stop_parts(service);
    service->fires = err == MR_OK;
    return err;
}

static enum mr_err open_parts(struct mr_timer_service *service, struct mr_detail *detail)
{
    MR_TRY(mr_zones_new(mr_fs_system(), NULL, &service->zones));
    return service->options.looks ? MR_OK : mr_timer_service_fire(service, detail);
}

enum mr_err mr_timer_service_open(const struct mr_timer_service_options *options,
                                  struct mr_timer_service **ret_service, struct mr_detail *detail)
{
    struct mr_timer_service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return MR_NOMEM;
    service->broker = options->broker;
    service->store = options->store;
    service->clock = options->clock != NULL ? options->clock : mr_clock_system();
    service->options = *options;
    service->settings = options->settings;
    enum mr_err err = open_parts(service, detail);
    if (err != MR_OK) {
        mr_timer_service_close(service);
        return err;
    }
    *ret_service = service;
    return MR_OK;
}

/* The store answers them with or without success. */
static void await_asked(struct mr_timer_service *service)
{
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(&service->asking) > 0)
        (void)mr_event_wait(&never, MR_NS_PER_MS);
}

void mr_timer_service_close(struct mr_timer_service *service)
{
    if (service == NULL)
        return;
    stop_parts(service);
    await_asked(service);
    mr_alarm_stop(service->alarm);
    mr_zones_free(service->zones);
    free(service);
}

struct mr_timer_door *mr_timer_service_door(struct mr_timer_service *service)
{
    return service->door;
}

void mr_timer_service_set_peers(struct mr_timer_service *service, const char *const *addresses,
                                size_t n)
{
    if (service->replica != NULL)
        mr_replica_set_peers(service->replica, addresses, n);
}

bool mr_timer_service_await_swept(struct mr_timer_service *service, int64_t max_ms)
{
    return !service->fires || mr_scheduler_await_swept(service->scheduler, max_ms);
}

struct mr_copies *mr_timer_service_copies(struct mr_timer_service *service)
{
    return service->copies;
}

enum mr_err mr_timer_service_set_view(struct mr_timer_service *service, const struct mr_view *view)
{
    return service->fires ? mr_scheduler_set_view(service->scheduler, view) : MR_OK;
}

enum mr_err mr_timer_service_loads(struct mr_timer_service *service, struct mr_loads *loads)
{
    return service->fires ? mr_scheduler_loads(service->scheduler, loads) : MR_OK;
}

/* ---- how it is ------------------------------------------------------------------------------- */

void mr_timer_service_health(struct mr_timer_service *service, struct mr_timer_health *ret_health)
{
    struct mr_detail line = {.text = ""};
    struct mr_scheduler_figures fired = {0};
    struct mr_applier_figures applied = {0};
    enum mr_err problem = mr_store_problem(service->store, &line);
    if (service->fires) {
        mr_scheduler_figures(service->scheduler, &fired);
        mr_applier_figures(service->applier, &applied);
    }
    *ret_health = (struct mr_timer_health){
        .store = problem,
        .apps_owned = fired.apps_owned,
        .ownership_taken = fired.owned,
        .ownership_lost = fired.lost,
        .fired = fired.fired,
        .caught_up = fired.caught_up,
        .skipped = fired.skipped,
        .misfired = fired.misfired,
        .succeeded = fired.succeeded,
        .failed = fired.failed,
        .cancelled = fired.cancelled,
        .retained = fired.retained,
        .applied = applied.applied,
        .stale = applied.stale,
        .retried = applied.retried,
        .rejected = applied.rejected,
        .dead_letters = applied.dead,
        .recovered = fired.recovered,
        .reconciled = fired.reconciled,
        .moved = fired.moved,
        .clock_steps = fired.clock_steps,
        .in_memory = fired.in_memory,
        .lateness_p50_us = mr_hist_percentile_us(&fired.lateness, NULL, 50),
        .lateness_p99_us = mr_hist_percentile_us(&fired.lateness, NULL, 99),
        .lateness_us = fired.lateness_us,
    };
    if (problem != MR_OK)
        (void)snprintf(ret_health->store_text, sizeof ret_health->store_text, "%.*s",
                       (int)sizeof ret_health->store_text - 1, line.text);
}
