/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner: how apps are to be cut, and whose each subApp is to be (docs/nameserver.md). It is done by the server that holds a
 * lease, with each of its looks at the store, and by pure functions of what it has seen there and of the view of the registry
 * (names/subapp.h, names/balance.h). That two do it at a time does no harm: what is written names the version that was read.
 *
 * What has lost its owner is given to another at once, whatever else there is to do. What is to be taken from one who lives is
 * wished for first. Without a view nothing is cut or moved; but what is cut is given to those who live.
 */
#include <stdio.h>
#include <stdlib.h>

#include "timer/sched/internal.h"

enum { MOVES_MAX = 100 }; /* that are remembered */

/* ---- who plans -------------------------------------------------------------------------------- */

struct leading {
    struct mr_errand errand;
    struct mr_store_lease req;
    struct mr_store_lease_item item;
    struct mr_store_lease_result result;
    mr_mono at;
};

static void led(struct mr_errand *errand)
{
    struct leading *l = mr_container(errand, struct leading, errand);
    struct mr_scheduler *s = sched_of(errand);
    struct planner *p = &s->planner;
    int64_t again_ms = s->settings.renew_ms;
    bool is_ours = l->req.req.err == MR_OK && l->result.err == MR_OK;
    p->asking = false;
    if (is_ours && p->token != l->result.token) {
        mr_diag(MR_DIAG_INFO, "timer.planner", "token=%llu", (unsigned long long)l->result.token);
        p->has_moved = true; /* what others have moved lately is not known: it rests first */
        p->moved = l->at;
    }
    p->token = is_ours ? l->result.token : 0;
    if (is_ours)
        p->until = mr_mono_add_ms(l->at, s->settings.lease_ms);
    /* Who has it may die: then it is asked for as soon as it is over. */
    if (!is_ours && l->req.req.err == MR_OK && l->result.until_ms - l->req.now_ms < again_ms)
        again_ms = l->result.until_ms - l->req.now_ms + 1;
    p->again = mr_mono_add_ms(l->at, again_ms > SHARE_MS ? again_ms : SHARE_MS);
    mr_store_req_done(&l->req.req);
    free(l);
    if (is_ours && (s->desk.stopping || !s->present))
        sched_plan_end(s);
}

/* False: for want of memory; with the next look. */
static bool ask(struct mr_scheduler *s, enum mr_lease_verb verb,
                void (*done)(struct mr_errand *errand))
{
    struct leading *l = calloc(1, sizeof *l);
    if (l == NULL)
        return false;
    l->at = mr_mono_now(s->desk.clock);
    l->errand = (struct mr_errand){.desk = &s->desk, .done = done};
    l->item = (struct mr_store_lease_item){.verb = verb,
                                           .name = MR_SLICE_LIT(PLAN_LEASE),
                                           .owner = mr_slice_str(s->desk.owner),
                                           .token = s->planner.token,
                                           .ttl_ms = s->settings.lease_ms};
    l->req = (struct mr_store_lease){
        .req.op = MR_STORE_LEASE, .items = &l->item, .n = 1, .results = &l->result};
    sched_errand_store(&l->errand, &l->req.req);
    return true;
}

static bool leads(struct mr_scheduler *s)
{
    struct planner *p = &s->planner;
    mr_mono now = mr_mono_now(s->desk.clock);
    if (!p->asking && now.ns >= p->again.ns)
        p->asking = ask(s, MR_LEASE_ACQUIRE, led);
    return p->token != 0 && now.ns < p->until.ns;
}

static void left(struct mr_errand *errand)
{
    struct leading *l = mr_container(errand, struct leading, errand);
    mr_store_req_done(&l->req.req);
    free(l);
}

void sched_plan_end(struct mr_scheduler *s)
{
    if (s->planner.token != 0)
        (void)ask(s, MR_LEASE_RELEASE, left); /* without it the lease ends by itself */
    s->planner.token = 0;
}

/* ---- what is seen ------------------------------------------------------------------------------ */

struct work {
    struct mr_scheduler *s;
    const struct sight *sight;
    struct mr_subapp_server *servers; /* as sight has them */
    struct mr_subapp_plan plan;
    int64_t loads[MR_SUBAPPS_MAX]; /* of the table at hand */
    bool changes, wishes;
};

static size_t server_at(const struct sight *sight, uint64_t id)
{
    for (size_t i = 0; id != 0 && i < sight->servers_n; i++) {
        if (sched_server_id(sight->servers[i].name) == id)
            return i;
    }
    return MR_SHARE_NOBODY;
}

bool sched_server_lives(const struct sight *sight, uint64_t server)
{
    return server_at(sight, server) != MR_SHARE_NOBODY;
}

/* What they dispatch of subApps counts for who has them now. */
static void see_servers(struct work *w)
{
    for (size_t i = 0; i < w->sight->servers_n; i++) {
        struct mr_subapp_server *server = &w->servers[i];
        server->id = sched_server_id(w->sight->servers[i].name);
        sched_view_of_server(w->s, w->sight->servers[i].name, &server->weight, &server->load);
    }
    for (size_t i = 0; i < w->sight->cuts_n; i++) {
        const struct cut *cut = &w->sight->cuts[i];
        for (size_t k = 0; k < cut->now.n; k++) {
            size_t at = server_at(w->sight, cut->now.parts[k].owner);
            if (at == MR_SHARE_NOBODY)
                continue;
            w->servers[at].load += sched_view_load(w->s, cut->app, cut->now.parts[k].id);
            w->servers[at].owns++;
        }
    }
}

static void see_app(struct work *w, struct mr_slice app, const struct mr_subapps *table)
{
    for (size_t i = 0; i < w->sight->servers_n; i++)
        w->servers[i].may = mr_share_may(&w->sight->servers[i], app);
    for (size_t i = 0; i < table->n; i++)
        w->loads[i] = sched_view_load(w->s, app, table->parts[i].id);
}

/* For so long there have been fewer workers than its subApps need, as far as the registry knows all. */
static int64_t few_ms(struct work *w, struct mr_slice app, size_t workers_n, size_t parts_n)
{
    struct app *base = sched_app(w->s, app);
    mr_mono now = mr_mono_now(w->s->desk.clock);
    if (base == NULL)
        return 0;
    bool few = sched_view_complete(w->s) &&
               mr_subapps_wanted(workers_n, sched_view_threshold(w->s)) < parts_n;
    if (few && !base->few)
        base->few_since = now;
    base->few = few;
    return few ? (now.ns - base->few_since.ns) / MR_NS_PER_MS : 0;
}

/* ---- apps ---------------------------------------------------------------------------------------- */

/* Some of what changes is one's who lives, and can give it. */
static bool is_given(const struct work *w, const struct mr_subapps *old)
{
    for (size_t i = 0; i < old->n; i++) {
        if (!sched_is_same_part(&w->plan.table, &old->parts[i]) &&
            sched_server_lives(w->sight, old->parts[i].owner))
            return true;
    }
    return false;
}

static void write_plan(struct work *w, const struct cut *cut, const char *why)
{
    bool wishes = is_given(w, &cut->now);
    sched_plan_write(w->s, &(struct plan_change){.app = cut->app,
                                                 .version = cut->version,
                                                 .old = &cut->now,
                                                 .now = wishes ? NULL : &w->plan.table,
                                                 .wish = wishes ? &w->plan.table : NULL,
                                                 .changes = w->plan.changes,
                                                 .changes_n = w->plan.n,
                                                 .why = why});
    w->changes = true;
}

/* Owners that are gone first; then how many subApps there are to be. */
static void plan_cut(struct work *w, const struct cut *cut)
{
    struct mr_scheduler *s = w->s;
    struct mr_subapp_seen seen = {.servers = w->servers,
                                  .servers_n = w->sight->servers_n,
                                  .loads = w->loads,
                                  .few_load = s->settings.balance_floor};
    if (cut->has_wish) {
        w->wishes = true;
        sched_plan_carry_out(s, w->sight, cut);
        return;
    }
    see_app(w, cut->app, &cut->now);
    mr_subapps_plan(&cut->now, &seen, &w->plan);
    if (w->plan.n == 0 && s->view != NULL) {
        seen.workers_n = sched_view_workers(s, cut->app);
        seen.complete = sched_view_complete(s);
        seen.threshold = sched_view_threshold(s);
        seen.few_ms = few_ms(w, cut->app, seen.workers_n, cut->now.n);
        seen.merge_after_ms = s->settings.merge_ms;
        mr_subapps_plan(&cut->now, &seen, &w->plan);
    }
    if (w->plan.n > 0)
        write_plan(w, cut, NULL);
}

/* Its first table: one subApp, of who has the app. */
static void plan_new(struct work *w, const struct mr_share_app *app)
{
    struct mr_subapps table;
    struct mr_subapp_seen seen = {.servers = w->servers,
                                  .servers_n = w->sight->servers_n,
                                  .few_load = w->s->settings.balance_floor};
    mr_subapps_init(&table);
    see_app(w, app->name, &table);
    if (app->owner != MR_SHARE_NOBODY && w->servers[app->owner].may) {
        w->plan.table = table;
        w->plan.changes[0] = (struct mr_subapp_change){
            .reason = MR_SUBAPP_FIRST, .part = table.parts[0].id, .to = w->servers[app->owner].id};
        w->plan.n = mr_subapps_move(&w->plan.table, table.parts[0].id, w->servers[app->owner].id);
    } else {
        mr_subapps_plan(&table, &seen, &w->plan);
    }
    if (w->plan.n == 0)
        return; /* nobody may have it */
    sched_plan_write(w->s, &(struct plan_change){.app = app->name,
                                                 .now = &w->plan.table,
                                                 .changes = w->plan.changes,
                                                 .changes_n = w->plan.n});
    w->changes = true;
}

/* ---- balance --------------------------------------------------------------------------------------- */

struct move {
    struct mr_link link;
    mr_mono at;
    uint32_t part;
    char app[MR_NAME_MAX + 1];
};

static void note_move(struct mr_scheduler *s, struct mr_slice app, uint32_t part)
{
    struct planner *p = &s->planner;
    struct move *move = calloc(1, sizeof *move);
    p->has_moved = true;
    p->moved = mr_mono_now(s->desk.clock);
    if (move == NULL)
        return;
    move->at = p->moved;
    move->part = part;
    snprintf(move->app, sizeof move->app, "%.*s", (int)app.len, (const char *)app.data);
    mr_list_push_back(&p->moves, &move->link);
    if (++p->moves_n > MOVES_MAX) {
        free(mr_container(mr_list_pop_front(&p->moves), struct move, link));
        p->moves_n--;
    }
}

static void see_move(const struct planner *p, const struct cut *cut, uint32_t id,
                     struct mr_balance_part *part)
{
    for (const struct mr_link *at = p->moves.prev; at != &p->moves; at = at->prev) {
        const struct move *move = mr_container(at, struct move, link);
        if (move->part != id || !mr_slice_equal(mr_slice_str(move->app), cut->app))
            continue;
        part->has_moved = true;
        part->moved = move->at;
        return;
    }
}

struct balancing {
    struct work *work;
    struct mr_balance_server *servers;
    struct mr_balance_part *parts;
    const struct cut **of_part;
    uint32_t *ids;
    size_t n;
};

static bool may(size_t server, size_t part, void *arg)
{
    const struct balancing *b = arg;
    return mr_share_may(&b->work->sight->servers[server], b->of_part[part]->app);
}

static enum mr_err gather(struct balancing *b)
{
    const struct work *w = b->work;
    const struct sight *sight = w->sight;
    for (size_t i = 0; i < sight->cuts_n; i++)
        b->n += sight->cuts[i].now.n;
    b->servers = calloc(sight->servers_n + 1, sizeof *b->servers);
    b->parts = calloc(b->n + 1, sizeof *b->parts);
    b->of_part = calloc(b->n + 1, sizeof(*b->of_part));
    b->ids = calloc(b->n + 1, sizeof *b->ids);
    if (b->servers == NULL || b->parts == NULL || b->of_part == NULL || b->ids == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < sight->servers_n; i++) {
        b->servers[i].id = w->servers[i].id;
        sched_view_of_server(w->s, sight->servers[i].name, &b->servers[i].weight,
                             &b->servers[i].other);
    }
    size_t n = 0;
    for (size_t i = 0; i < sight->cuts_n; i++) {
        const struct cut *cut = &sight->cuts[i];
        for (size_t k = 0; k < cut->now.n; k++, n++) {
            size_t owner = server_at(sight, cut->now.parts[k].owner);
            b->of_part[n] = cut;
            b->ids[n] = cut->now.parts[k].id;
            b->parts[n].owner = owner != MR_SHARE_NOBODY ? owner : MR_BALANCE_NOBODY;
            b->parts[n].load = sched_view_load(w->s, cut->app, b->ids[n]);
            see_move(&w->s->planner, cut, b->ids[n], &b->parts[n]);
        }
    }
    return MR_OK;
}

static void carry(struct balancing *b, const struct mr_balance_move *move)
{
    struct work *w = b->work;
    const struct cut *cut = b->of_part[move->part];
    uint32_t id = b->ids[move->part];
    uint64_t from = b->servers[move->from].id, to = b->servers[move->to].id;
    char why[128];
    w->plan.table = cut->now;
    if (!mr_subapps_move(&w->plan.table, id, to))
        return;
    w->plan.n = 1;
    w->plan.changes[0] =
        (struct mr_subapp_change){.reason = MR_SUBAPP_MOVED, .part = id, .from = from, .to = to};
    snprintf(why, sizeof why, "moved: load %lld against %lld, its own %lld",
             (long long)move->from_load, (long long)move->to_load, (long long)move->load);
    note_move(w->s, cut->app, id);
    write_plan(w, cut, why);
}

static void note_verdict(struct mr_scheduler *s, const char *verdict)
{
    mr_lock_enter(&s->lock);
    s->planner.verdict = verdict;
    mr_lock_leave(&s->lock);
}

static void balance(struct work *w)
{
    struct mr_scheduler *s = w->s;
    struct balancing b = {.work = w};
    struct mr_balance_options options = {.floor = s->settings.balance_floor,
                                         .cool_ms = s->settings.cool_ms,
                                         .stay_ms = s->settings.stay_ms};
    struct mr_balance_move move;
    if (gather(&b) == MR_OK) {
        struct mr_balance_seen seen = {.options = &options,
                                       .servers = b.servers,
                                       .servers_n = w->sight->servers_n,
                                       .parts = b.parts,
                                       .parts_n = b.n,
                                       .complete = sched_view_complete(s),
                                       .is_moving = w->wishes,
                                       .has_moved = s->planner.has_moved,
                                       .moved = s->planner.moved,
                                       .may = may,
                                       .arg = &b};
        enum mr_balance_verdict verdict = mr_balance(&seen, mr_mono_now(s->desk.clock), &move);
        note_verdict(s, mr_balance_verdict_name(verdict));
        if (verdict == MR_BALANCE_MOVE)
            carry(&b, &move);
    }
    free(b.servers);
    free(b.parts);
    free(b.of_part);
    free(b.ids);
}

/* ---- a look ---------------------------------------------------------------------------------------- */

void sched_plan(struct mr_scheduler *s, const struct sight *sight)
{
    if (s->view == NULL || !leads(s))
        note_verdict(s, NULL);
    if ((s->view == NULL && sight->cuts_n == 0) || !leads(s) || s->planner.writing > 0)
        return;
    struct work *w = calloc(1, sizeof *w);
    if (w == NULL)
        return;
    w->s = s;
    w->sight = sight;
    w->servers = calloc(sight->servers_n + 1, sizeof *w->servers);
    if (w->servers != NULL) {
        sched_names_note(s, sight);
        see_servers(w);
        for (size_t i = 0; i < sight->cuts_n; i++)
            plan_cut(w, &sight->cuts[i]);
        for (size_t i = 0; s->view != NULL && i < sight->apps_n; i++)
            plan_new(w, &sight->apps[i]);
        if (s->view != NULL && !w->changes)
            balance(w);
        else if (w->changes && s->view != NULL)
            note_verdict(s, mr_balance_verdict_name(MR_BALANCE_MOVING));
    }
    free(w->servers);
    free(w);
}

void sched_planner_done(struct mr_scheduler *s)
{
    while (!mr_list_empty(&s->planner.moves))
        free(mr_container(mr_list_pop_front(&s->planner.moves), struct move, link));
    sched_names_free(s);
}
