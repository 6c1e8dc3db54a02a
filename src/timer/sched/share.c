/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which apps are to be ours. Every server says in the store that it is there, together with the renewal of its leases,
 * looks who else is there and whose each app is, and does its part of what follows from that (timer/share.h): it
 * leaves what is to be another's, and takes what is to be its own as soon as that is free. When a server dies its
 * leases end no earlier than its row does, so what becomes free goes to one who lives.
 *
 * Who does not reach the broker could fire nothing: it is not there for others until it does.
 */
#include <stdlib.h>

#include "broker/hidden.h"
#include "timer/sched/internal.h"
#include "timer/share.h"

enum {
    SHUN_LEASES = 2,  /* who gave up leaves all to others for so many leases at least */
    TABLES_MAX = 100, /* of a page */
};

/* ---- that it is there ------------------------------------------------------------------------- */

struct beating {
    struct mr_errand errand;
    struct mr_store_server_beat req;
    mr_mono at;
};

static void beaten(struct mr_errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    if (b->req.req.err != MR_OK) {
        mr_diag(MR_DIAG_WARN, "timer.beat", "error=%s", mr_err_name(b->req.req.err));
        sched_of(errand)->beat = (mr_mono){0}; /* with the next look */
    } else if (b->req.ttl_ms > 0 && sched_of(errand)->present) {
        sched_keep_beaten(sched_of(errand), b->at);
    }
    mr_store_req_done(&b->req.req);
    free(b);
}

static void say(struct mr_scheduler *s, int64_t ttl_ms)
{
    struct beating *b = calloc(1, sizeof *b);
    if (b == NULL)
        return;
    b->errand = (struct mr_errand){.desk = &s->desk, .done = beaten};
    b->at = mr_mono_now(s->desk.clock);
    b->req = (struct mr_store_server_beat){.req.op = MR_STORE_SERVER_BEAT,
                                           .server = mr_slice_str(s->desk.owner),
                                           .apps = mr_slice_str(s->apps_text),
                                           .home = mr_slice_str(s->home),
                                           .ttl_ms = ttl_ms};
    sched_errand_store(&b->errand, &b->req.req);
}

static void beat(struct mr_scheduler *s)
{
    mr_mono now = mr_mono_now(s->desk.clock);
    if (now.ns < s->beat.ns)
        return;
    s->beat = mr_mono_add_ms(now, s->settings.renew_ms);
    say(s, s->settings.lease_ms);
    sched_lease_renew(s);
}

/* ---- whether it can be ------------------------------------------------------------------------ */

struct probe {
    struct mr_errand errand;
    struct mr_req_queue_list req;
    struct mr_queue_info info;
};

static void probed(struct mr_errand *errand)
{
    struct probe *p = mr_container(errand, struct probe, errand);
    struct mr_scheduler *s = sched_of(errand);
    enum mr_err err = p->req.req.err;
    s->probing = false;
    mr_req_done(&p->req.req);
    free(p);
    if (s->desk.stopping || (err != MR_OK && err != MR_NOT_FOUND)) /* nobody has made a timer yet */
        return;
    s->present = true;
    s->beat = (mr_mono){0};
    sched_share_look(s);
}

static void probe(struct mr_scheduler *s)
{
    bool not_now = s->probing || mr_mono_now(s->desk.clock).ns < s->back.ns;
    struct probe *p = not_now ? NULL : calloc(1, sizeof *p);
    if (p == NULL)
        return;
    s->probing = true;
    p->errand = (struct mr_errand){.desk = &s->desk, .done = probed};
    p->req = (struct mr_req_queue_list){.req.op = MR_OP_QUEUE_LIST,
                                        .only = mr_slice_str(MR_TIMERS_QUEUE),
                                        .infos = &p->info,
                                        .max = 1};
    sched_errand_broker(&p->errand, &p->req.req);
}

/* ---- what is to be ours ----------------------------------------------------------------------- */

struct looking {
    struct mr_errand errand;
    struct mr_store_subapps_list tables;
    struct mr_store_server_list list;
    struct mr_store_app_list page;
    struct sight sight;
};

static void looking_free(struct looking *l)
{
    mr_store_req_done(&l->tables.req);
    mr_store_req_done(&l->list.req);
    mr_store_req_done(&l->page.req);
    mr_arena_done(&l->sight.arena);
    free(l->sight.servers);
    free(l->sight.apps);
    free(l->sight.cuts);
    free(l);
}

static size_t server_of(const struct sight *sight, struct mr_slice name)
{
    for (size_t i = 0; i < sight->servers_n; i++) {
        if (mr_slice_equal(sight->servers[i].name, name))
            return i;
    }
    return MR_SHARE_NOBODY;
}

/* Apps that are cut are shared by their tables. */
static enum mr_err add_app(struct sight *sight, struct mr_slice name, struct mr_slice owner)
{
    if (sched_cut_find(sight, name) != NULL)
        return MR_OK;
    if (sight->apps_n == sight->apps_cap) {
        size_t cap = sight->apps_cap > 0 ? 2 * sight->apps_cap : 16;
        struct mr_share_app *grown = realloc(sight->apps, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        sight->apps = grown;
        sight->apps_cap = cap;
    }
    struct mr_share_app *app = &sight->apps[sight->apps_n];
    *app = (struct mr_share_app){.owner = server_of(sight, owner), .held = owner.len > 0};
    MR_TRY(mr_arena_copy(&sight->arena, name, &app->name));
    sight->apps_n++;
    return MR_OK;
}

static int compare_apps(const void *a, const void *b)
{
    return mr_slice_compare(((const struct mr_share_app *)a)->name,
                            ((const struct mr_share_app *)b)->name);
}

/* Apps that we are here for, though the store does not know them yet. */
static enum mr_err add_named(struct mr_scheduler *s, struct sight *sight)
{
    size_t n = sight->apps_n;
    for (struct mr_link *at = s->apps.next; !s->all_apps && at != &s->apps; at = at->next) {
        const struct app *app = mr_container(at, struct app, link);
        struct mr_share_app key = {.name = mr_slice_str(app->name)};
        if (app->wanted &&
            (n == 0 || bsearch(&key, sight->apps, n, sizeof key, compare_apps) == NULL))
            MR_TRY(add_app(sight, key.name, (struct mr_slice){0}));
    }
    if (sight->apps_n > n)
        qsort(sight->apps, sight->apps_n, sizeof *sight->apps, compare_apps);
    return MR_OK;
}

static void decide_one(struct mr_scheduler *s, const struct mr_share_app *to, bool is_ours,
                       bool is_free)
{
    struct app *app = is_ours ? sched_app(s, to->name) : sched_app_find(s, to->name);
    if (app == NULL)
        return;
    if (app->share && !is_ours)
        app->leave = mr_mono_add_ms(mr_mono_now(s->desk.clock), LEAVE_MS);
    app->share = is_ours;
    app->free = is_free;
}

/* Our own broker may have tasks of an app that another one fires, from before. */
static void take_results(struct mr_scheduler *s, const struct mr_share_app *of, size_t us)
{
    struct app *app = s->home[0] != '\0' && of->owner != us ? sched_app(s, of->name) : NULL;
    if (app != NULL)
        sched_results_begin(app);
}

static enum mr_err copy_homes(struct mr_scheduler *s, const struct mr_store_server_list *list)
{
    mr_arena_reset(&s->homes_arena);
    s->homes_n = 0;
    s->homes = mr_arena_calloc(&s->homes_arena, list->n + 1, sizeof *s->homes);
    if (s->homes == NULL)
        return MR_NOMEM;
    for (; s->homes_n < list->n; s->homes_n++)
        MR_TRY(
            mr_arena_copy(&s->homes_arena, list->servers[s->homes_n].home, &s->homes[s->homes_n]));
    return MR_OK;
}

/* Where tasks may be, by the servers that live. One that is not noted would be taken for gone, and its tasks be made anew. */
static void note_homes(struct mr_scheduler *s, const struct mr_store_server_list *list)
{
    s->homes_known = copy_homes(s, list) == MR_OK;
}

/* Not when we are not seen ourselves: then the others do not count us, either. */
static void decide(struct looking *l)
{
    struct mr_scheduler *s = sched_of(&l->errand);
    struct sight *sight = &l->sight;
    size_t us = sight->us = server_of(sight, mr_slice_str(s->desk.owner));
    s->others = sight->servers_n - (us != MR_SHARE_NOBODY);
    s->wished = false;
    for (size_t i = 0; i < sight->cuts_n; i++)
        s->wished = s->wished || sight->cuts[i].has_wish;
    note_homes(s, &l->list);
    if (us == MR_SHARE_NOBODY) {
        s->beat = (mr_mono){0};
        s->sweep_due = true; /* for others we are not there */
    } else {
        sched_sweep_look(s, s->others > 0 || sight->cuts_n > 0);
    }
    if (us == MR_SHARE_NOBODY || add_named(s, sight) != MR_OK)
        return;
    sched_plan(s, sight);
    sched_cuts_follow(s, sight);
    for (size_t i = 0; i < sight->apps_n; i++) /* what we hold and know nothing of, too */
        sight->apps[i].held = sight->apps[i].held && sight->apps[i].owner != us;
    mr_share(sight->servers, sight->servers_n, sight->apps, sight->apps_n);
    for (size_t i = 0; i < sight->apps_n; i++) {
        decide_one(s, &sight->apps[i], sight->apps[i].owner == us, !sight->apps[i].held);
        take_results(s, &sight->apps[i], us);
    }
    sched_lease_take(s);
}

static void end_look(struct looking *l, enum mr_err err)
{
    struct mr_scheduler *s = sched_of(&l->errand);
    bool again = s->share_again;
    s->sharing = s->share_again = false;
    if (err == MR_OK && s->present && !s->desk.stopping)
        decide(l);
    looking_free(l);
    if (again)
        sched_share_look(s);
}

static void ask_apps(struct looking *l, struct mr_slice after);

static void apps_listed(struct mr_errand *errand)
{
    struct looking *l = mr_container(errand, struct looking, errand);
    enum mr_err err = l->page.req.err;
    struct mr_slice last = {0};
    for (size_t i = 0; err == MR_OK && i < l->page.n; i++)
        err = add_app(&l->sight, l->page.apps[i].name, l->page.apps[i].owner);
    bool more = err == MR_OK && l->page.more && l->page.n > 0 && !sched_of(errand)->desk.stopping;
    if (more)
        err = mr_arena_copy(&l->sight.arena, l->page.apps[l->page.n - 1].name, &last);
    mr_store_req_done(&l->page.req);
    if (more && err == MR_OK)
        ask_apps(l, last);
    else
        end_look(l, err);
}

static void ask_apps(struct looking *l, struct mr_slice after)
{
    l->errand.done = apps_listed;
    l->page =
        (struct mr_store_app_list){.req.op = MR_STORE_APP_LIST, .after = after, .max = PAGE_MAX};
    sched_errand_store(&l->errand, &l->page.req);
}

static void servers_listed(struct mr_errand *errand)
{
    struct looking *l = mr_container(errand, struct looking, errand);
    struct sight *sight = &l->sight;
    enum mr_err err = l->list.req.err;
    sight->servers = err == MR_OK ? calloc(l->list.n + 1, sizeof *sight->servers) : NULL;
    if (err == MR_OK && sight->servers == NULL)
        err = MR_NOMEM;
    if (err != MR_OK) {
        end_look(l, err);
        return;
    }
    for (size_t i = 0; i < l->list.n; i++)
        sight->servers[i] = (struct mr_share_server){.name = l->list.servers[i].server,
                                                     .apps = l->list.servers[i].apps};
    sight->servers_n = l->list.n;
    ask_apps(l, (struct mr_slice){0});
}

static void ask_tables(struct looking *l, struct mr_slice after);

/* Who lives is asked behind that: of whom a table takes a subApp, since it is dead, is not there any more, then. */
static void tables_listed(struct mr_errand *errand)
{
    struct looking *l = mr_container(errand, struct looking, errand);
    enum mr_err err = l->tables.req.err;
    if (err == MR_OK)
        err = sched_cuts_add(&l->sight, &l->tables);
    bool more = l->tables.more && l->tables.n > 0;
    mr_store_req_done(&l->tables.req);
    if (err != MR_OK || sched_of(errand)->desk.stopping) {
        end_look(l, err);
        return;
    }
    if (more) {
        ask_tables(l, l->sight.cuts[l->sight.cuts_n - 1].app);
        return;
    }
    l->errand.done = servers_listed;
    l->list = (struct mr_store_server_list){.req.op = MR_STORE_SERVER_LIST, .max = PAGE_MAX};
    sched_errand_store(&l->errand, &l->list.req);
}

static void ask_tables(struct looking *l, struct mr_slice after)
{
    l->errand.done = tables_listed;
    l->tables = (struct mr_store_subapps_list){
        .req.op = MR_STORE_SUBAPPS_LIST, .after = after, .max = TABLES_MAX};
    sched_errand_store(&l->errand, &l->tables.req);
}

static void list(struct mr_scheduler *s)
{
    struct looking *l = s->sharing ? NULL : calloc(1, sizeof *l);
    if (l == NULL)
        return;
    s->sharing = true;
    l->errand.desk = &s->desk;
    ask_tables(l, (struct mr_slice){0});
}

static void go(struct mr_scheduler *s)
{
    if (s->desk.stopping)
        return;
    if (!s->present) {
        probe(s);
        return;
    }
    sched_lease_check(s);
    beat(s);
    list(s);
}

void sched_share_look(struct mr_scheduler *s)
{
    s->share_again = s->sharing; /* which may be too early for what we are told of */
    go(s);
}

/* ---- now and then, and not any more ----------------------------------------------------------- */

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_scheduler *s = arg;
    int64_t ms = s->present && (s->others > 0 || s->wished) ? SHARE_MS : LOOK_MS;
    if (s->desk.stopping)
        return;
    mr_desk_after(&s->desk, timer, s->settings.renew_ms < ms ? s->settings.renew_ms : ms);
    go(s);
}

void sched_share_init(struct mr_scheduler *s)
{
    mr_timer_init(&s->share, look);
    mr_desk_after(&s->desk, &s->share, 0);
}

/* It is gone before its apps are free: so they go to others at once. */
void sched_share_end(struct mr_scheduler *s)
{
    sched_keep_end(s);
    if (s->present)
        say(s, 0);
    s->present = false;
    sched_lease_release_all(s);
    sched_plan_end(s);
}

void sched_share_give_up(struct mr_scheduler *s, enum mr_err err)
{
    mr_diag(MR_DIAG_WARN, "timer.given_up", "apps=%u error=%s", s->figures.apps_owned,
            mr_err_name(err));
    SCHED_COUNT(s, lost, s->figures.apps_owned);
    sched_share_end(s);
    s->back = mr_mono_add_ms(mr_mono_now(s->desk.clock), SHUN_LEASES * s->settings.lease_ms);
}
