/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler at its desk: in every turn, what is due. Planned times are of the wall clock, and are waited for by the monotonic one; once a second at least both are held against each other, and when the wall clock
 * has been set, everything is put into the wheel anew. Nothing happens before the wall clock says so.
 */
#include <stdio.h>
#include <stdlib.h>

#include "timer/sched/internal.h"

enum {
    STEP_US = 10000,    /* less than this is no step of the clock */
    RETAIN_MS = 60000,  /* how often what is old is removed */
    RETAIN_MAX = 1000,  /* rows at a time */
    RETAIN_PAUSE = 100, /* ms until the next of them */
};

static const struct mr_timer_settings defaults = {
    .lease_ms = MR_TIMER_LEASE_MS,
    .window_ms = 10 * 1000,
    .misfire_ms = MR_TIMER_MISFIRE_MS,
    .catch_up_ms = MR_TIMER_CATCH_UP_MS,
    .catch_up_max = 1000,
    .backlog_max = 20000,
    .history_ms = MR_TIMER_HISTORY_MS,
    .reconcile_ms = 60 * 1000,
    .give_ms = 5 * 1000,
    .merge_ms = MR_SUBAPP_MERGE_MS,
    .cool_ms = MR_BALANCE_COOL_MS,
    .stay_ms = MR_BALANCE_STAY_MS,
    .balance_floor = MR_BALANCE_FLOOR,
};

/* ---- errands --------------------------------------------------------------------------------- */

static void note_generation(struct mr_errand *errand)
{
    struct app *app = sched_app_of(errand);
    errand->generation = app != NULL ? app->generation : 0;
}

void sched_errand_store(struct mr_errand *errand, struct mr_store_req *req)
{
    note_generation(errand);
    mr_errand_store(errand, req);
}

void sched_errand_broker(struct mr_errand *errand, struct mr_req *req)
{
    note_generation(errand);
    mr_errand_broker(errand, req);
}

bool sched_errand_current(const struct mr_errand *errand)
{
    return sched_app_of(errand)->owned && sched_app_of(errand)->generation == errand->generation;
}

/* ---- time ------------------------------------------------------------------------------------ */

int64_t sched_now_ms(const struct mr_scheduler *s)
{
    return mr_wall_ms(mr_wall_now(s->desk.clock));
}

void sched_at(struct mr_scheduler *s, struct mr_timer *timer, int64_t wall_ms)
{
    /* The monotonic one first: who is held up between the two looks too early, and once more, instead of too late. */
    int64_t now_ns = mr_mono_now(s->desk.clock).ns;
    int64_t left_us = wall_ms * MR_US_PER_MS - mr_wall_now(s->desk.clock).us;
    /* Who waits so long is looked at on the way. */
    if (left_us > MR_MS_PER_DAY * MR_US_PER_MS)
        left_us = MR_MS_PER_DAY * MR_US_PER_MS;
    mr_desk_at(&s->desk, timer, (mr_mono){now_ns + (left_us > 0 ? left_us * MR_NS_PER_US : 0)});
}

/* From the monotonic to the wall clock; read closely together. */
static int64_t clock_offset_us(const struct mr_scheduler *s)
{
    int64_t offset_us = 0;
    for (int i = 0; i < 3; i++) {
        int64_t before_us = mr_mono_now(s->desk.clock).ns / MR_NS_PER_US;
        int64_t wall_us = mr_wall_now(s->desk.clock).us;
        int64_t after_us = mr_mono_now(s->desk.clock).ns / MR_NS_PER_US;
        offset_us = wall_us - after_us;
        if (after_us - before_us < STEP_US / 10)
            break;
    }
    return offset_us;
}

static void watch_clock(struct mr_scheduler *s)
{
    int64_t offset_us = clock_offset_us(s), step_us = offset_us - s->offset_us;
    if (step_us > -STEP_US && step_us < STEP_US)
        return;
    s->offset_us = offset_us;
    SCHED_COUNT(s, clock_steps, 1);
    mr_diag(MR_DIAG_WARN, "timer.clock", "step_ms=%lld", (long long)(step_us / MR_US_PER_MS));
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next)
        sched_window_rewind(mr_container(at, struct app, link));
}

/* ---- apps ------------------------------------------------------------------------------------ */

struct app *sched_app_find(struct mr_scheduler *s, struct mr_slice name)
{
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        if (app->part == 0 && mr_slice_equal(mr_slice_str(app->name), name))
            return app;
    }
    return NULL;
}

/* Of a base that is NULL: the base itself. */
static struct app *app_new(struct mr_scheduler *s, struct mr_slice name, struct app *base,
                           uint32_t part)
{
    struct app *app = name.len <= MR_NAME_MAX ? calloc(1, sizeof *app) : NULL;
    if (app == NULL)
        return NULL;
    app->s = s;
    app->base = base != NULL ? base : app;
    app->part = part;
    mr_list_init(&app->parts);
    mr_list_init(&app->of_base);
    mr_list_init(&app->broadcasts);
    mr_list_init(&app->expiries);
    snprintf(app->name, sizeof app->name, "%.*s", (int)name.len, (const char *)name.data);
    mr_firing_topic(name, app->topic);
    if (sched_window_init(app) != MR_OK) {
        free(app);
        return NULL;
    }
    sched_fire_init(app);
    sched_dispatch_init(app);
    sched_results_init(app);
    sched_recover_init(app);
    mr_lock_enter(&s->lock); /* others look through the list for loads */
    mr_list_push_back(&s->apps, &app->link);
    mr_lock_leave(&s->lock);
    return app;
}

struct app *sched_app(struct mr_scheduler *s, struct mr_slice name)
{
    struct app *app = sched_app_find(s, name);
    if (app != NULL)
        return app;
    app = app_new(s, name, NULL, 0);
    if (app == NULL)
        return NULL;
    app->wanted = s->all_apps;
    snprintf(app->lease, sizeof app->lease, MR_APP_LEASE_PREFIX "%s", app->name);
    SCHED_COUNT(s, apps, 1);
    return app;
}

struct app *sched_part(struct app *base, uint32_t part)
{
    for (struct mr_link *at = base->parts.next; at != &base->parts; at = at->next) {
        struct app *app = mr_container(at, struct app, of_base);
        if (app->part == part)
            return app;
    }
    struct app *app = app_new(base->s, mr_slice_str(base->name), base, part);
    if (app == NULL)
        return NULL;
    snprintf(app->lease, sizeof app->lease, MR_SUBAPP_LEASE_PREFIX "%s/%u", app->name, part);
    mr_list_push_back(&base->parts, &app->of_base);
    return app;
}

struct app *sched_app_for(struct app *app, const struct mr_uuid *uid)
{
    struct app *base = app->base;
    for (struct mr_link *at = base->parts.next; !base->owned && at != &base->parts; at = at->next) {
        struct app *part = mr_container(at, struct app, of_base);
        if (part->owned && (part->slots >> mr_store_slot(uid) & 1) != 0)
            return part;
    }
    return base;
}

bool sched_is_any_firing(const struct app *base)
{
    bool is_firing = sched_is_firing(base);
    for (struct mr_link *at = base->parts.next; !is_firing && at != &base->parts; at = at->next) {
        const struct app *part = mr_container(at, struct app, of_base);
        is_firing = part->owned && sched_is_firing(part);
    }
    return is_firing;
}

enum home sched_home(const struct mr_scheduler *s, struct mr_slice home)
{
    if (home.len == 0 || s->home[0] == '\0' || mr_slice_equal(home, mr_slice_str(s->home)))
        return HOME_OURS;
    for (size_t i = 0; i < s->homes_n; i++) {
        if (mr_slice_equal(s->homes[i], home))
            return HOME_OTHERS;
    }
    return s->homes_known ? HOME_GONE : HOME_OTHERS;
}

static void app_free(struct app *app)
{
    mr_assert(!app->owned);
    sched_window_done(app);
    mr_list_remove(&app->link);
    mr_list_remove(&app->of_base);
    free(app);
}

/* ---- once a second --------------------------------------------------------------------------- */

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_scheduler *s = arg;
    if (s->desk.stopping)
        return;
    mr_desk_after(&s->desk, timer, LOOK_MS);
    if (s->nodes_wanted)
        (void)sched_nodes_ready(s);
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        if (app->owned)
            sched_window_read(app);
    }
}

struct retaining {
    struct mr_errand errand;
    struct mr_store_retain req;
};

static void retained(struct mr_errand *errand)
{
    struct retaining *r = mr_container(errand, struct retaining, errand);
    struct mr_scheduler *s = sched_of(errand);
    enum mr_err err = r->req.req.err;
    bool more = err == MR_OK && (r->req.firings == RETAIN_MAX || r->req.tombstones == RETAIN_MAX);
    if (err == MR_OK)
        SCHED_COUNT(s, retained, r->req.firings + r->req.tombstones);
    else
        mr_diag(MR_DIAG_WARN, "timer.retain", "error=%s", mr_err_name(err));
    if (!s->desk.stopping)
        mr_desk_after(&s->desk, &s->retain, more ? RETAIN_PAUSE : RETAIN_MS);
    mr_store_req_done(&r->req.req);
    free(r);
}

/* Every server does it; that several do is no harm. */
static void retain(struct mr_timer *timer, void *arg)
{
    struct mr_scheduler *s = arg;
    struct retaining *r = s->desk.stopping ? NULL : calloc(1, sizeof *r);
    if (r == NULL) {
        mr_desk_after(&s->desk, timer, RETAIN_MS);
        return;
    }
    r->errand = (struct mr_errand){.desk = &s->desk, .done = retained};
    r->req = (struct mr_store_retain){.req.op = MR_STORE_RETAIN,
                                      .firings_ms = s->settings.history_ms,
                                      .tombstones_ms = MR_TIMER_BURIED_MS,
                                      .max = RETAIN_MAX};
    sched_errand_store(&r->errand, &r->req.req);
}

void sched_alarm(struct mr_scheduler *s, const struct mr_scheduler_alarm *alarm)
{
    if (s->alarm != NULL)
        s->alarm(alarm, s->alarm_arg);
}

/* ---- at the desk ----------------------------------------------------------------------------- */

static int64_t rest_ns(const void *service)
{
    (void)service;
    return LOOK_MS * MR_NS_PER_MS;
}

static void heard(void *service)
{
    watch_clock(service);
}

static void turn(void *service)
{
    struct mr_scheduler *s = service;
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        sched_fire_due(app);
        sched_window_go_on(app);
        sched_lease_leave(app);
        if (app->owned && !sched_is_firing(app))
            sched_dispatch_flush(app);
        if (app->part == 0 && app->results.on && !sched_is_any_firing(app))
            sched_results_flush(app);
    }
}

static void stop(void *service)
{
    struct mr_scheduler *s = service;
    sched_share_end(s);
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next)
        sched_results_end(mr_container(at, struct app, link));
}

/* ---- life ------------------------------------------------------------------------------------ */

#define DEFAULT(settings, field)                                                                   \
    do {                                                                                           \
        if ((settings)->field == 0)                                                                \
            (settings)->field = defaults.field;                                                    \
    } while (0)

static void set_settings(struct mr_timer_settings *to, const struct mr_timer_settings *from)
{
    if (from != NULL)
        *to = *from;
    DEFAULT(to, lease_ms);
    if (to->renew_ms == 0)
        to->renew_ms = to->lease_ms * 3 / 10;
    DEFAULT(to, window_ms);
    DEFAULT(to, misfire_ms);
    DEFAULT(to, catch_up_ms);
    DEFAULT(to, catch_up_max);
    DEFAULT(to, backlog_max);
    DEFAULT(to, history_ms);
    DEFAULT(to, reconcile_ms);
    DEFAULT(to, give_ms);
    DEFAULT(to, merge_ms);
    DEFAULT(to, cool_ms);
    DEFAULT(to, stay_ms);
    DEFAULT(to, balance_floor);
}

static enum mr_err name_apps(struct mr_scheduler *s, const struct mr_scheduler_options *o)
{
    size_t len = 0;
    for (size_t i = 0; i < o->apps_n; i++)
        len += strlen(o->apps[i]) + 1;
    if (len > MR_STORE_APPS_MAX)
        return MR_TOO_BIG;
    s->apps_text = calloc(1, len + 1);
    char *at = s->apps_text;
    for (size_t i = 0; at != NULL && i < o->apps_n; i++) {
        MR_TRY(mr_name_check(mr_slice_str(o->apps[i])));
        struct app *app = sched_app(s, mr_slice_str(o->apps[i]));
        if (app == NULL)
            return MR_NOMEM;
        app->wanted = true;
        at += snprintf(at, MR_NAME_MAX + 2, "%s%s", i > 0 ? "\n" : "", app->name);
    }
    return at != NULL ? MR_OK : MR_NOMEM;
}

static enum mr_err begin(struct mr_scheduler *s, const struct mr_scheduler_options *o)
{
    MR_TRY(mr_desk_init(&s->desk, &(struct mr_desk_options){.broker = o->broker,
                                                            .store = o->store,
                                                            .clock = o->clock,
                                                            .node = o->node,
                                                            .thread = "mr-timers",
                                                            .service = s,
                                                            .heard = heard,
                                                            .turn = turn,
                                                            .rest_ns = rest_ns,
                                                            .stop = stop}));
    s->id = sched_server_id(mr_slice_str(s->desk.owner));
    s->offset_us = clock_offset_us(s);
    MR_TRY(mr_zones_new(mr_fs_system(), NULL, &s->zones));
    MR_TRY(name_apps(s, o));
    sched_share_init(s);
    sched_sweep_init(s);
    sched_keep_init(s);
    s->sweep_due = true;
    mr_timer_init(&s->look, look);
    mr_timer_init(&s->retain, retain);
    mr_desk_after(&s->desk, &s->look, 0);
    mr_desk_after(&s->desk, &s->retain, RETAIN_MS);
    return mr_desk_start(&s->desk);
}

static void scheduler_free(struct mr_scheduler *s)
{
    while (!mr_list_empty(&s->apps)) /* subApps before their bases */
        app_free(mr_container(s->apps.prev, struct app, link));
    sched_nodes_free(s->nodes);
    sched_view_free(s->view);
    sched_planner_done(s);
    mr_arena_done(&s->homes_arena);
    free(s->apps_text);
    mr_desk_done(&s->desk);
    mr_zones_free(s->zones);
    mr_lock_done(&s->lock);
    free(s);
}

enum mr_err mr_scheduler_start(const struct mr_scheduler_options *options,
                               struct mr_scheduler **ret_scheduler)
{
    struct mr_scheduler *s = calloc(1, sizeof *s);
    if (s == NULL)
        return MR_NOMEM;
    s->alarm = options->alarm;
    s->alarm_arg = options->arg;
    s->all_apps = options->apps_n == 0;
    mr_list_init(&s->apps);
    mr_list_init(&s->finds);
    mr_list_init(&s->planner.moves);
    mr_list_init(&s->planner.names);
    mr_lock_init(&s->lock);
    set_settings(&s->settings, options->settings);
    if (options->home != NULL)
        snprintf(s->home, sizeof s->home, "%s", options->home);
    s->gate = s->home[0] != '\0' ? options->gate : NULL;
    enum mr_err err = begin(s, options);
    if (err != MR_OK) {
        scheduler_free(s);
        return err;
    }
    *ret_scheduler = s;
    return MR_OK;
}

void mr_scheduler_stop(struct mr_scheduler *scheduler)
{
    struct mr_scheduler *s = scheduler;
    if (s == NULL)
        return;
    mr_desk_stop(&s->desk);
    scheduler_free(s);
}

/* ---- told by others -------------------------------------------------------------------------- */

struct change {
    struct mr_msg msg;
    size_t len;
    char app[];
};

static void read_parts(struct app *base)
{
    for (struct mr_link *at = base->parts.next; at != &base->parts; at = at->next) {
        struct app *part = mr_container(at, struct app, of_base);
        if (part->owned)
            sched_window_read(part);
    }
}

static void change_deliver(struct mr_msg *msg, void *receiver)
{
    struct change *c = mr_container(msg, struct change, msg);
    struct mr_scheduler *s = receiver;
    struct mr_slice name = {c->app, c->len};
    struct app *app = sched_app_find(s, name);
    if (app != NULL && app->owned)
        sched_window_read(app);
    else if (app != NULL && app->cut)
        read_parts(app);
    else if (app == NULL && s->all_apps && sched_app(s, name) != NULL)
        sched_share_look(s); /* it is a new one: whoever is to have it is soon to know */
    free(c);
}

void mr_scheduler_changed(struct mr_scheduler *scheduler, struct mr_slice app)
{
    struct change *c = malloc(sizeof *c + app.len);
    if (c == NULL)
        return; /* it looks within a second anyway */
    c->msg.deliver = change_deliver;
    c->len = app.len;
    memcpy(c->app, app.data, app.len);
    mr_chan_send(&scheduler->desk.inbox, &c->msg);
}

const char *mr_scheduler_owner(const struct mr_scheduler *scheduler)
{
    return scheduler->desk.owner;
}

void mr_scheduler_figures(struct mr_scheduler *scheduler, struct mr_scheduler_figures *ret_figures)
{
    mr_lock_enter(&scheduler->lock);
    *ret_figures = scheduler->figures;
    mr_lock_leave(&scheduler->lock);
}
