/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the planner is told of the registry (timer/plan_view.h), as a copy that belongs to the scheduler's thread; and what this server tells
 * of its own loads, for others to hear by the registry.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

struct view {
    struct mr_msg msg;
    struct mr_arena arena;
    bool is_none;
    bool complete;
    uint32_t threshold;
    struct mr_view_server *servers; /* without their loads */
    size_t servers_n;
    struct mr_view_load *loads; /* of all servers together, by app and part */
    size_t loads_n;
    struct mr_view_app *apps; /* by name */
    size_t apps_n;
};

void sched_view_free(struct view *view)
{
    if (view == NULL)
        return;
    mr_arena_done(&view->arena);
    free(view);
}

/* ---- a copy -------------------------------------------------------------------------------------- */

static int compare_loads(const void *a, const void *b)
{
    const struct mr_view_load *x = a, *y = b;
    int order = mr_slice_compare(x->app, y->app);
    return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

static int compare_apps(const void *a, const void *b)
{
    return mr_slice_compare(((const struct mr_view_app *)a)->app,
                            ((const struct mr_view_app *)b)->app);
}

static int64_t limited(int64_t load)
{
    return load < 0 ? 0 : load < MR_LOAD_MAX ? load : MR_LOAD_MAX;
}

/* Loads of the same subApp are one: its last owner's count for the one of now. */
static void add_up(struct view *view)
{
    size_t n = 0;
    qsort(view->loads, view->loads_n, sizeof *view->loads, compare_loads);
    for (size_t i = 0; i < view->loads_n; i++) {
        if (n > 0 && compare_loads(&view->loads[n - 1], &view->loads[i]) == 0)
            view->loads[n - 1].load = limited(view->loads[n - 1].load + view->loads[i].load);
        else
            view->loads[n++] = view->loads[i];
    }
    view->loads_n = n;
}

/* What an app as a whole dispatches can move only as a whole: it is no subApp. */
static enum mr_err copy_loads(struct view *view, const struct mr_view_server *from,
                              struct mr_view_server *to)
{
    for (size_t i = 0; i < from->loads_n; i++) {
        const struct mr_view_load *load = &from->loads[i];
        if (load->part == 0) {
            to->other = limited(to->other + limited(load->load));
            continue;
        }
        struct mr_view_load *copy = &view->loads[view->loads_n++];
        *copy = (struct mr_view_load){.part = load->part, .load = limited(load->load)};
        MR_TRY(mr_arena_copy(&view->arena, load->app, &copy->app));
    }
    return MR_OK;
}

static enum mr_err copy_servers(struct view *view, const struct mr_view *from)
{
    size_t loads_n = 0;
    for (size_t i = 0; i < from->servers_n; i++)
        loads_n += from->servers[i].loads_n;
    view->servers = mr_arena_calloc(&view->arena, from->servers_n + 1, sizeof *view->servers);
    view->loads = mr_arena_calloc(&view->arena, loads_n + 1, sizeof *view->loads);
    if (view->servers == NULL || view->loads == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < from->servers_n; i++) {
        struct mr_view_server *to = &view->servers[view->servers_n++];
        *to = (struct mr_view_server){.weight = from->servers[i].weight,
                                      .other = limited(from->servers[i].other)};
        MR_TRY(mr_arena_copy(&view->arena, from->servers[i].server, &to->server));
        MR_TRY(copy_loads(view, &from->servers[i], to));
    }
    add_up(view);
    return MR_OK;
}

static enum mr_err copy_apps(struct view *view, const struct mr_view *from)
{
    view->apps = mr_arena_calloc(&view->arena, from->apps_n + 1, sizeof *view->apps);
    if (view->apps == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < from->apps_n; i++) {
        view->apps[i] = from->apps[i];
        MR_TRY(mr_arena_copy(&view->arena, from->apps[i].app, &view->apps[i].app));
    }
    view->apps_n = from->apps_n;
    qsort(view->apps, view->apps_n, sizeof *view->apps, compare_apps);
    return MR_OK;
}

static void deliver(struct mr_msg *msg, void *receiver)
{
    struct view *view = mr_container(msg, struct view, msg);
    struct mr_scheduler *s = receiver;
    sched_view_free(s->view);
    s->view = view->is_none ? NULL : view;
    if (view->is_none)
        sched_view_free(view);
}

enum mr_err mr_scheduler_set_view(struct mr_scheduler *scheduler, const struct mr_view *view)
{
    struct view *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return MR_NOMEM;
    copy->msg.deliver = deliver;
    copy->is_none = view == NULL;
    enum mr_err err = MR_OK;
    if (view != NULL) {
        copy->complete = view->complete;
        copy->threshold = view->threshold;
        err = copy_servers(copy, view);
    }
    if (view != NULL && err == MR_OK)
        err = copy_apps(copy, view);
    if (err != MR_OK) {
        sched_view_free(copy);
        return err;
    }
    mr_chan_send(&scheduler->desk.inbox, &copy->msg);
    return MR_OK;
}

/* ---- what it says -------------------------------------------------------------------------------- */

void sched_view_of_server(const struct mr_scheduler *s, struct mr_slice server,
                          uint32_t *ret_weight, int64_t *ret_other)
{
    *ret_weight = 0;
    *ret_other = 0;
    for (size_t i = 0; s->view != NULL && i < s->view->servers_n; i++) {
        if (!mr_slice_equal(s->view->servers[i].server, server))
            continue;
        *ret_weight = s->view->servers[i].weight;
        *ret_other = s->view->servers[i].other;
        return;
    }
}

int64_t sched_view_load(const struct mr_scheduler *s, struct mr_slice app, uint32_t part)
{
    struct mr_view_load key = {.app = app, .part = part};
    if (s->view == NULL || s->view->loads_n == 0)
        return 0;
    const struct mr_view_load *found =
        bsearch(&key, s->view->loads, s->view->loads_n, sizeof key, compare_loads);
    return found != NULL ? found->load : 0;
}

size_t sched_view_workers(const struct mr_scheduler *s, struct mr_slice app)
{
    struct mr_view_app key = {.app = app};
    if (s->view == NULL || s->view->apps_n == 0)
        return 0;
    const struct mr_view_app *found =
        bsearch(&key, s->view->apps, s->view->apps_n, sizeof key, compare_apps);
    return found != NULL ? found->workers_n : 0;
}

bool sched_view_complete(const struct mr_scheduler *s)
{
    return s->view != NULL && s->view->complete;
}

uint32_t sched_view_threshold(const struct mr_scheduler *s)
{
    return s->view != NULL ? s->view->threshold : 0;
}

/* ---- our own loads ------------------------------------------------------------------------------- */

static int compare_greatest(const void *a, const void *b)
{
    const struct mr_view_load *x = a, *y = b;
    return (x->load < y->load) - (x->load > y->load);
}

static enum mr_err fill_loads(struct mr_scheduler *s, struct mr_loads *loads)
{
    mr_mono now = mr_mono_now(s->desk.clock);
    size_t n = 0;
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next)
        n++;
    loads->loads = mr_arena_calloc(&loads->arena, n + 1, sizeof *loads->loads);
    if (loads->loads == NULL)
        return MR_NOMEM;
    for (struct mr_link *at = s->apps.next; at != &s->apps; at = at->next) {
        const struct app *app = mr_container(at, struct app, link);
        int64_t load = mr_balance_load(&app->load, now);
        if (load == 0)
            continue;
        struct mr_view_load *to = &loads->loads[loads->n++];
        *to = (struct mr_view_load){.part = app->part, .load = load};
        loads->all = limited(loads->all + load);
        MR_TRY(mr_arena_copy(&loads->arena, mr_slice_str(app->name), &to->app));
    }
    qsort(loads->loads, loads->n, sizeof *loads->loads, compare_greatest);
    loads->balance = mr_slice_str(s->planner.verdict != NULL ? s->planner.verdict : "");
    return mr_arena_copy(&loads->arena, mr_slice_str(s->desk.owner), &loads->server);
}

/* Apps are only added, and under the lock; they stay until the scheduler is stopped. */
enum mr_err mr_scheduler_loads(struct mr_scheduler *scheduler, struct mr_loads *loads)
{
    mr_lock_enter(&scheduler->lock);
    enum mr_err err = fill_loads(scheduler, loads);
    mr_lock_leave(&scheduler->lock);
    return err;
}

void mr_loads_done(struct mr_loads *loads)
{
    mr_arena_done(&loads->arena);
}
