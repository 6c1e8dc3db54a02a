/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Apps that are cut. Which subApps are ours stands in the table of the app, and their leases were given to us with it: they have
 * the epoch as their token, so whoever holds one knows which slots are its own. A wish beside the table says what is to
 * become of it: what is to go we leave, as an app is left, and the planner writes the table when it is free.
 */
#include <stdlib.h>

#include "names/wire.h"
#include "timer/sched/internal.h"

uint64_t sched_server_id(struct mr_slice server)
{
    static const struct mr_hash_key key = {0x6d696c6c72616365ULL, 0x7365727665722d69ULL};
    struct mr_uuid hash = mr_hash128(key, server);
    uint64_t id = mr_load64(hash.bytes);
    return id != 0 ? id : 1; /* 0 is nobody */
}

/* ---- tables ----------------------------------------------------------------------------------- */

static enum mr_err cut_fill(struct sight *sight, const struct mr_store_subapps_row *row,
                            struct cut *cut)
{
    *cut = (struct cut){
        .version = row->version, .wish_ms = row->wish_ms, .has_wish = row->wish.len > 0};
    MR_TRY(mr_arena_copy(&sight->arena, row->app, &cut->app));
    MR_TRY(mr_subapps_decode(row->table, &cut->now));
    return cut->has_wish ? mr_subapps_decode(row->wish, &cut->wish) : MR_OK;
}

/* With a table that cannot be read nobody does anything: who fires its app goes on, as long as it lives. */
enum mr_err sched_cuts_add(struct sight *sight, const struct mr_store_subapps_list *page)
{
    if (sight->cuts_n + page->n > sight->cuts_cap) {
        size_t cap = 2 * (sight->cuts_n + page->n);
        struct cut *grown = realloc(sight->cuts, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        sight->cuts = grown;
        sight->cuts_cap = cap;
    }
    for (size_t i = 0; i < page->n; i++) {
        enum mr_err err = cut_fill(sight, &page->rows[i], &sight->cuts[sight->cuts_n]);
        if (err != MR_OK) {
            mr_diag(MR_DIAG_ERROR, "timer.subapps", "app=%.*s error=%s", (int)page->rows[i].app.len,
                    (const char *)page->rows[i].app.data, mr_err_name(err));
            return err;
        }
        sight->cuts_n++;
    }
    return MR_OK;
}

static int compare_to_cut(const void *app, const void *cut)
{
    return mr_slice_compare(*(const struct mr_slice *)app, ((const struct cut *)cut)->app);
}

struct cut *sched_cut_find(const struct sight *sight, struct mr_slice app)
{
    if (sight->cuts_n == 0)
        return NULL;
    return bsearch(&app, sight->cuts, sight->cuts_n, sizeof *sight->cuts, compare_to_cut);
}

bool sched_is_same_part(const struct mr_subapps *table, const struct mr_subapp *part)
{
    size_t at = mr_subapps_find(table, part->id);
    return at != SIZE_MAX && table->parts[at].epoch == part->epoch &&
           table->parts[at].slots == part->slots && table->parts[at].owner == part->owner;
}

/* ---- what is ours ------------------------------------------------------------------------------- */

static void follow_part(struct app *base, const struct cut *cut, const struct mr_subapp *part)
{
    struct app *app = sched_part(base, part->id);
    bool stays = !cut->has_wish || sched_is_same_part(&cut->wish, part);
    if (app == NULL)
        return; /* with the next look */
    app->seen = true;
    if (app->owned && app->token != part->epoch)
        sched_lease_drop(app); /* under other slots */
    if (app->owned && app->share && !stays)
        app->leave = mr_mono_add_ms(mr_mono_now(app->s->desk.clock), LEAVE_MS);
    if (!app->owned) {
        app->slots = part->slots;
        app->lease_token = part->epoch;
    }
    app->share = app->free = stays;
    if (!stays)
        sched_lease_decline(app); /* else the planner would wait for us */
}

/* From when it is cut on the app as a whole is nobody's. */
static void base_cut(struct app *base)
{
    if (base->cut)
        return;
    sched_lease_drop(base);
    base->cut = true;
    base->share = base->free = false;
    sched_recover_left(base);
    if (base->s->home[0] != '\0') /* there may be tasks of it in our broker, whoever fires it */
        sched_results_begin(base);
}

static void follow(struct mr_scheduler *s, const struct cut *cut)
{
    struct app *base = sched_app(s, cut->app);
    if (base == NULL)
        return;
    base_cut(base);
    for (struct mr_link *at = base->parts.next; at != &base->parts; at = at->next)
        mr_container(at, struct app, of_base)->seen = false;
    for (size_t i = 0; i < cut->now.n; i++) {
        if (cut->now.parts[i].owner == s->id)
            follow_part(base, cut, &cut->now.parts[i]);
    }
    for (struct mr_link *at = base->parts.next; at != &base->parts; at = at->next) {
        struct app *app = mr_container(at, struct app, of_base);
        if (app->seen)
            continue;
        app->share = app->free = false;
        sched_lease_drop(app);
    }
}

void sched_cuts_follow(struct mr_scheduler *s, const struct sight *sight)
{
    for (size_t i = 0; i < sight->cuts_n; i++)
        follow(s, &sight->cuts[i]);
}
