/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose an app is. The store decides, by its own clock; a lease that we take for ours a moment longer lets us fire
 * nothing, since each transaction is fenced by it.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

struct asking {
    struct mr_errand errand;
    struct mr_store_lease req;
    mr_mono at;
    size_t n;
    struct app **apps;
    struct mr_store_lease_item *items;
    struct mr_store_lease_result *results;
};

static void asking_free(struct asking *a)
{
    mr_store_req_done(&a->req.req);
    free(a->apps);
    free(a->items);
    free(a->results);
    free(a);
}

static struct asking *asking_new(struct mr_scheduler *s, size_t max)
{
    struct asking *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->apps = calloc(max, sizeof(*a->apps));
    a->items = calloc(max, sizeof *a->items);
    a->results = calloc(max, sizeof *a->results);
    if (a->apps == NULL || a->items == NULL || a->results == NULL) {
        asking_free(a);
        return NULL;
    }
    a->errand.desk = &s->desk;
    a->at = mr_mono_now(s->desk.clock);
    return a;
}

/* The lease of a subApp was given to us with the table, under its token. */
static void asking_add(struct asking *a, struct app *app, enum mr_lease_verb verb)
{
    struct mr_scheduler *s = app->s;
    bool resumes = app->part != 0 && verb == MR_LEASE_ACQUIRE;
    a->apps[a->n] = app;
    a->items[a->n++] =
        (struct mr_store_lease_item){.verb = resumes ? MR_LEASE_RESUME : verb,
                                     .name = mr_slice_str(app->lease),
                                     .owner = mr_slice_str(s->desk.owner),
                                     .token = resumes ? app->lease_token : app->token,
                                     .ttl_ms = s->settings.lease_ms};
}

static void asking_send(struct asking *a, void (*done)(struct mr_errand *errand))
{
    a->errand.done = done;
    a->req = (struct mr_store_lease){
        .req.op = MR_STORE_LEASE, .items = a->items, .n = a->n, .results = a->results};
    sched_errand_store(&a->errand, &a->req.req);
}

static size_t count_apps(const struct mr_scheduler *s)
{
    size_t n = 0;
    for (const struct mr_link *at = s->apps.next; at != &s->apps; at = at->next)
        n++;
    return n;
}

/* ---- gained and lost ------------------------------------------------------------------------- */

static void gained(struct app *app, uint64_t token)
{
    struct mr_scheduler *s = app->s;
    app->owned = true;
    app->token = token;
    app->generation++;
    SCHED_COUNT(s, owned, 1);
    SCHED_COUNT(s, apps_owned, 1);
    mr_diag(MR_DIAG_INFO, "timer.owned", "app=%s part=%u token=%llu", app->name, app->part,
            (unsigned long long)token);
    sched_recover_begin(app);
}

static void dropped(struct app *app)
{
    struct mr_scheduler *s = app->s;
    app->owned = app->free = false;
    app->generation++;
    mr_lock_enter(&s->lock);
    s->figures.apps_owned--;
    mr_lock_leave(&s->lock);
    sched_window_drop(app);
    sched_dispatch_drop(app);
    sched_recover_drop(app);
    sched_expire_drop(app);
    sched_results_end(app);
}

void sched_lease_lost(struct app *app, enum mr_err err)
{
    if (!app->owned)
        return;
    SCHED_COUNT(app->s, lost, 1);
    mr_diag(MR_DIAG_WARN, "timer.lost", "app=%s part=%u error=%s", app->name, app->part,
            mr_err_name(err));
    dropped(app);
    /* Perhaps nobody has it. If the store's clock has been set we are not there for it any more, either. */
    app->s->beat = (mr_mono){0};
    app->s->sweep_due = true;              /* and who has it may have taken us for dead */
    app->s->share_again = app->s->sharing; /* that look has not seen it */
    mr_desk_after(&app->s->desk, &app->s->share, 0);
}

void sched_lease_drop(struct app *app)
{
    if (!app->owned)
        return;
    mr_diag(MR_DIAG_INFO, "timer.gave", "app=%s part=%u token=%llu", app->name, app->part,
            (unsigned long long)app->token);
    dropped(app);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void answered_one(struct asking *a, size_t i)
{
    struct app *app = a->apps[i];
    const struct mr_store_lease_result *result = &a->results[i];
    bool renewed = a->items[i].verb == MR_LEASE_RENEW;
    if (renewed && (!app->owned || app->token != a->items[i].token))
        return; /* of a lease that was lost meanwhile */
    if (a->items[i].verb == MR_LEASE_RESUME && a->items[i].token != app->lease_token)
        return; /* of another table */
    if (result->err == MR_OK) {
        app->until = mr_mono_add_ms(a->at, app->s->settings.lease_ms);
        if (!app->owned)
            gained(app, result->token);
        else if (app->token != result->token)
            sched_lease_lost(app, MR_STALE);
    } else if (renewed) {
        sched_lease_lost(app, result->err);
    }
}

/* What was got after the scheduler was told to stop, or has given up. */
static void give_back(struct asking *a)
{
    for (size_t i = 0; i < a->n; i++) {
        struct app *app = a->apps[i];
        if (a->results[i].err != MR_OK || a->items[i].verb == MR_LEASE_RENEW || app->owned)
            continue;
        app->owned = true;
        app->token = a->results[i].token;
        SCHED_COUNT(app->s, apps_owned, 1);
    }
    sched_lease_release_all(sched_of(&a->errand));
}

static void answered(struct mr_errand *errand)
{
    struct asking *a = mr_container(errand, struct asking, errand);
    struct mr_scheduler *s = sched_of(errand);
    bool is_there = s->present && !s->desk.stopping;
    for (size_t i = 0; i < a->n; i++) {
        a->apps[i]->asking = false;
        if (a->req.req.err == MR_OK && is_there)
            answered_one(a, i);
    }
    if (a->req.req.err == MR_OK && !is_there)
        give_back(a);
    if (a->req.req.err != MR_OK) {
        mr_diag(MR_DIAG_WARN, "timer.lease", "error=%s", mr_err_name(a->req.req.err));
        s->beat = (mr_mono){0}; /* with the next look */
    }
    asking_free(a);
}

/* All that fits: those that are owned, to renew them, or those that are free, to have them. */
static void ask(struct mr_scheduler *s, enum mr_lease_verb verb)
{
    struct asking *a = asking_new(s, count_apps(s) + 1);
    for (struct mr_link *at = s->apps.next; a != NULL && at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        bool fits = verb == MR_LEASE_RENEW ? app->owned : !app->owned && app->share && app->free;
        if (!fits || app->asking)
            continue;
        app->asking = true;
        app->free = false;
        asking_add(a, app, verb);
    }
    if (a != NULL && a->n > 0)
        asking_send(a, answered);
    else if (a != NULL)
        asking_free(a);
}

void sched_lease_renew(struct mr_scheduler *s)
{
    ask(s, MR_LEASE_RENEW);
}

void sched_lease_take(struct mr_scheduler *s)
{
    ask(s, MR_LEASE_ACQUIRE);
}

void sched_lease_check(struct mr_scheduler *s)
{
    mr_mono now = mr_mono_now(s->desk.clock);
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        if (app->owned && now.ns >= app->until.ns)
            sched_lease_lost(app, MR_TIMEOUT);
    }
}

static void released(struct mr_errand *errand)
{
    asking_free(mr_container(errand, struct asking, errand));
}

/* What was submitted before goes before the release: who gets the app finds all of it. */
void sched_lease_leave(struct app *app)
{
    bool is_quiet = app->fires == 0 && app->dispatching == 0;
    if (!app->owned || app->share ||
        (!is_quiet && mr_mono_now(app->s->desk.clock).ns < app->leave.ns))
        return;
    struct asking *a = asking_new(app->s, 1);
    if (a == NULL)
        return;
    mr_diag(MR_DIAG_INFO, "timer.left", "app=%s part=%u token=%llu", app->name, app->part,
            (unsigned long long)app->token);
    asking_add(a, app, MR_LEASE_RELEASE);
    dropped(app);
    asking_send(a, released);
}

void sched_lease_decline(struct app *app)
{
    struct asking *a = NULL;
    if (!app->owned && !app->asking && app->declined != app->lease_token)
        a = asking_new(app->s, 1);
    if (a == NULL)
        return;
    asking_add(a, app, MR_LEASE_RELEASE);
    a->items[0].token = app->declined = app->lease_token;
    asking_send(a, released);
}

void sched_lease_release_all(struct mr_scheduler *s)
{
    struct asking *a = asking_new(s, count_apps(s) + 1);
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        struct app *app = mr_container(at, struct app, link);
        if (!app->owned)
            continue;
        if (a != NULL)
            asking_add(a, app, MR_LEASE_RELEASE);
        dropped(app);
    }
    if (a != NULL && a->n > 0)
        asking_send(a, released);
    else if (a != NULL)
        asking_free(a);
}
