/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is planned is written: a table, or a wish beside it; with a table the leases of the subApps that it changes. What was wished
 * becomes the table when those who have to give have left their leases, or after a time: then what they have under way is refused.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "names/wire.h"
#include "timer/sched/internal.h"

enum {
    NAMES_MAX = 256, /* servers whose names are remembered */
    LEASE_NAME_MAX = MR_NAME_MAX + 32,
};
#define FOR_GOOD_MS (100LL * 365 * MR_MS_PER_DAY)

/* ---- names of servers -------------------------------------------------------------------------- */

struct name {
    struct mr_link link;
    uint64_t id;
    char name[MR_STORE_OWNER_MAX + 1];
};

static struct mr_slice sched_name_of(const struct mr_scheduler *s, uint64_t server)
{
    for (const struct mr_link *at = s->planner.names.prev; at != &s->planner.names; at = at->prev) {
        const struct name *name = mr_container(at, struct name, link);
        if (name->id == server)
            return mr_slice_str(name->name);
    }
    return (struct mr_slice){0};
}

/* Those of the dead, too: of whom it was taken is told in the moves. */
void sched_names_note(struct mr_scheduler *s, const struct sight *sight)
{
    size_t n = 0;
    for (size_t i = 0; i < sight->servers_n; i++) {
        struct mr_slice text = sight->servers[i].name;
        uint64_t id = sched_server_id(text);
        struct name *name = sched_name_of(s, id).len == 0 ? calloc(1, sizeof *name) : NULL;
        if (name == NULL)
            continue;
        name->id = id;
        snprintf(name->name, sizeof name->name, "%.*s", (int)text.len, (const char *)text.data);
        mr_list_push_back(&s->planner.names, &name->link);
    }
    for (const struct mr_link *at = s->planner.names.next; at != &s->planner.names; at = at->next)
        n++;
    for (; n > NAMES_MAX + sight->servers_n; n--)
        free(mr_container(mr_list_pop_front(&s->planner.names), struct name, link));
}

void sched_names_free(struct mr_scheduler *s)
{
    while (!mr_list_empty(&s->planner.names))
        free(mr_container(mr_list_pop_front(&s->planner.names), struct name, link));
}

/* ---- writing ------------------------------------------------------------------------------------- */

struct writing {
    struct mr_errand errand;
    struct mr_store_subapps_set req;
    struct mr_buf table, wish;
    struct mr_arena arena; /* of what follows */
    struct mr_store_subapp_lease *leases;
    struct mr_store_subapp_move *moves;
};

static void writing_free(struct writing *w)
{
    sched_of(&w->errand)->planner.writing--;
    mr_store_req_done(&w->req.req);
    mr_buf_done(&w->table);
    mr_buf_done(&w->wish);
    mr_arena_done(&w->arena);
    free(w);
}

static void written(struct mr_errand *errand)
{
    struct writing *w = mr_container(errand, struct writing, errand);
    struct mr_scheduler *s = sched_of(errand);
    enum mr_err err = w->req.req.err;
    mr_diag(err == MR_OK ? MR_DIAG_INFO : MR_DIAG_WARN, "timer.plan",
            "app=%.*s version=%llu wish=%s error=%s", (int)w->req.app.len,
            (const char *)w->req.app.data, (unsigned long long)w->req.version + 1,
            w->req.wish.len > 0 ? "yes" : "no", mr_err_name(err));
    writing_free(w);
    if (err == MR_OK && !s->desk.stopping)
        sched_share_look(s);
}

static struct writing *writing_new(struct mr_scheduler *s)
{
    struct writing *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->errand = (struct mr_errand){.desk = &s->desk, .done = written};
    s->planner.writing++;
    return w;
}

static enum mr_err lease_name(struct writing *w, struct mr_slice app, uint32_t part,
                              struct mr_slice *ret_name)
{
    char text[LEASE_NAME_MAX + sizeof MR_SUBAPP_LEASE_PREFIX];
    snprintf(text, sizeof text, MR_SUBAPP_LEASE_PREFIX "%.*s/%u", (int)app.len,
             (const char *)app.data, part);
    return mr_arena_copy(&w->arena, mr_slice_str(text), ret_name);
}

static enum mr_err add_lease(struct writing *w, struct mr_slice app, uint32_t part, uint64_t owner,
                             uint64_t token)
{
    struct mr_scheduler *s = sched_of(&w->errand);
    struct mr_store_subapp_lease *lease = &w->leases[w->req.leases_n++];
    *lease = (struct mr_store_subapp_lease){.token = token, .ttl_ms = s->settings.lease_ms};
    MR_TRY(mr_arena_copy(&w->arena, sched_name_of(s, owner), &lease->owner));
    return lease_name(w, app, part, &lease->name);
}

/* Of an app that becomes cut, too: nobody is to take it as a whole. */
static enum mr_err add_whole(struct writing *w, struct mr_slice app)
{
    struct mr_store_subapp_lease *lease = &w->leases[w->req.leases_n++];
    char text[LEASE_NAME_MAX + sizeof MR_APP_LEASE_PREFIX];
    *lease = (struct mr_store_subapp_lease){.owner = MR_SLICE_LIT(MR_SUBAPPS_OWNER),
                                            .ttl_ms = FOR_GOOD_MS};
    snprintf(text, sizeof text, MR_APP_LEASE_PREFIX "%.*s", (int)app.len, (const char *)app.data);
    return mr_arena_copy(&w->arena, mr_slice_str(text), &lease->name);
}

/* Of subApps that are other ones than before, and of those that are no more. */
static enum mr_err add_leases(struct writing *w, struct mr_slice app, const struct mr_subapps *old,
                              const struct mr_subapps *now)
{
    w->leases = mr_arena_calloc(&w->arena, 2 * MR_SUBAPPS_MAX + 1, sizeof *w->leases);
    if (w->leases == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < now->n; i++) {
        const struct mr_subapp *part = &now->parts[i];
        if (old == NULL || !sched_is_same_part(old, part))
            MR_TRY(add_lease(w, app, part->id, part->owner, part->epoch));
    }
    for (size_t i = 0; old != NULL && i < old->n; i++) {
        if (mr_subapps_find(now, old->parts[i].id) == SIZE_MAX)
            MR_TRY(add_lease(w, app, old->parts[i].id, 0, now->epoch));
    }
    return old == NULL ? add_whole(w, app) : MR_OK;
}

static enum mr_err add_moves(struct writing *w, const struct plan_change *change)
{
    struct mr_scheduler *s = sched_of(&w->errand);
    w->moves = mr_arena_calloc(&w->arena, change->changes_n + 1, sizeof *w->moves);
    if (w->moves == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < change->changes_n; i++) {
        const struct mr_subapp_change *from = &change->changes[i];
        struct mr_store_subapp_move *move = &w->moves[w->req.moves_n++];
        const char *why = change->why != NULL ? change->why : mr_subapp_reason_name(from->reason);
        *move = (struct mr_store_subapp_move){.part = from->part};
        MR_TRY(mr_arena_copy(&w->arena, sched_name_of(s, from->from), &move->from));
        MR_TRY(mr_arena_copy(&w->arena, sched_name_of(s, from->to), &move->to));
        MR_TRY(mr_arena_copy(&w->arena, mr_slice_str(why), &move->reason));
    }
    return MR_OK;
}

static enum mr_err fill(struct writing *w, const struct plan_change *change)
{
    w->req =
        (struct mr_store_subapps_set){.req.op = MR_STORE_SUBAPPS_SET, .version = change->version};
    MR_TRY(mr_arena_copy(&w->arena, change->app, &w->req.app));
    MR_TRY(mr_subapps_encode(change->now != NULL ? change->now : change->old, &w->table));
    if (change->wish != NULL)
        MR_TRY(mr_subapps_encode(change->wish, &w->wish));
    if (change->now != NULL)
        MR_TRY(add_leases(w, change->app, change->old, change->now));
    MR_TRY(add_moves(w, change));
    w->req.table = mr_buf_slice(&w->table);
    w->req.wish = mr_buf_slice(&w->wish);
    w->req.leases = w->leases;
    w->req.moves = w->moves;
    return MR_OK;
}

void sched_plan_write(struct mr_scheduler *s, const struct plan_change *change)
{
    struct writing *w = writing_new(s);
    if (w == NULL)
        return;
    if (fill(w, change) == MR_OK)
        sched_errand_store(&w->errand, &w->req.req);
    else
        writing_free(w);
}

/* ---- what was wished ----------------------------------------------------------------------------- */

struct carrying {
    struct mr_errand errand;
    struct mr_store_lease_list list;
    struct mr_arena arena;
    struct cut cut;
    char prefix[LEASE_NAME_MAX + sizeof MR_SUBAPP_LEASE_PREFIX];
    uint32_t waits_for[MR_SUBAPPS_MAX]; /* subApps whose owners live */
    size_t waits_n;
};

static void carry_out(struct mr_scheduler *s, const struct cut *cut)
{
    sched_plan_write(
        s, &(struct plan_change){
               .app = cut->app, .version = cut->version, .old = &cut->now, .now = &cut->wish});
}

static bool is_held(const struct carrying *c, uint32_t part)
{
    char name[sizeof c->prefix + 16];
    snprintf(name, sizeof name, "%s%u", c->prefix, part);
    for (size_t i = 0; i < c->list.n; i++) {
        const struct mr_store_lease_row *row = &c->list.leases[i];
        if (mr_slice_equal(row->name, mr_slice_str(name)))
            return row->until_ms > c->list.now_ms;
    }
    return false;
}

static void leases_known(struct mr_errand *errand)
{
    struct carrying *c = mr_container(errand, struct carrying, errand);
    struct mr_scheduler *s = sched_of(errand);
    bool is_free = c->list.req.err == MR_OK && !c->list.more;
    for (size_t i = 0; is_free && i < c->waits_n; i++)
        is_free = !is_held(c, c->waits_for[i]);
    s->planner.writing--;
    if (is_free && !s->desk.stopping)
        carry_out(s, &c->cut);
    mr_store_req_done(&c->list.req);
    mr_arena_done(&c->arena);
    free(c);
}

void sched_plan_carry_out(struct mr_scheduler *s, const struct sight *sight, const struct cut *cut)
{
    struct carrying *c = calloc(1, sizeof *c);
    if (c == NULL)
        return;
    c->cut = *cut;
    for (size_t i = 0; i < cut->now.n; i++) {
        const struct mr_subapp *part = &cut->now.parts[i];
        if (!sched_is_same_part(&cut->wish, part) && sched_server_lives(sight, part->owner))
            c->waits_for[c->waits_n++] = part->id;
    }
    if (c->waits_n == 0 || cut->wish_ms >= s->settings.give_ms ||
        mr_arena_copy(&c->arena, cut->app, &c->cut.app) != MR_OK) {
        carry_out(s, cut);
        mr_arena_done(&c->arena);
        free(c);
        return;
    }
    snprintf(c->prefix, sizeof c->prefix, MR_SUBAPP_LEASE_PREFIX "%.*s/", (int)cut->app.len,
             (const char *)cut->app.data);
    c->errand = (struct mr_errand){.desk = &s->desk, .done = leases_known};
    c->list = (struct mr_store_lease_list){
        .req.op = MR_STORE_LEASE_LIST, .prefix = mr_slice_str(c->prefix), .max = PAGE_MAX};
    s->planner.writing++;
    sched_errand_store(&c->errand, &c->list.req);
}
