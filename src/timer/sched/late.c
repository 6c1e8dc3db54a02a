/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends that are written when it has been read how their timers stand: by the owner, when a timer was changed while it
 * ran; by another server, which has no timers in memory. What a timer does next goes with the end, in one step; if
 * it is changed again before that, all of it is repeated.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

enum { TRIES_MAX = 20 }; /* then the walk through the open rows finds it */

struct late {
    struct mr_errand errand;
    struct mr_arena arena; /* of all that follows */
    size_t n;
    struct end *ends;
    struct mr_store_timer_key *keys;
    struct mr_store_timer_get get;
    struct mr_store_firing_set set;
    struct mr_store_set *items;
    struct mr_store_set_result *results;
    unsigned tries;
    ends_done *done; /* or NULL */
    void *arg;
};

static void late_free(struct late *l)
{
    mr_store_req_done(&l->get.req);
    mr_store_req_done(&l->set.req);
    mr_arena_done(&l->arena);
    free(l);
}

static void late_end(struct late *l, enum mr_err err)
{
    if (l->done != NULL)
        l->done(sched_app_of(&l->errand), err, l->arg);
    late_free(l);
}

static void look(struct late *l);

static bool was_changed(const struct late *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->results[i].err == MR_CONFLICT)
            return true;
    }
    return false;
}

static void written(struct mr_errand *errand)
{
    struct late *l = mr_container(errand, struct late, errand);
    enum mr_err err = l->set.req.err;
    if (err == MR_OK && was_changed(l) && l->tries++ < TRIES_MAX) {
        look(l);
        return;
    }
    for (size_t i = 0; err == MR_OK && i < l->n; i++) {
        if (l->results[i].err == MR_OK && l->ends[i].final)
            sched_end_told(sched_app_of(errand), &l->ends[i]);
    }
    late_end(l, err);
}

static enum mr_err fill_item(struct late *l, size_t i)
{
    const struct mr_store_timer *timer = &l->get.timers[i];
    const struct end *end = &l->ends[i];
    struct def *def = NULL;
    enum mr_err err = MR_OK;
    if (end->final && timer->state != MR_ROW_NONE)
        err = sched_def_new(sched_of(&l->errand), timer, &def);
    l->items[i] = sched_end_set(end);
    if (def != NULL)
        l->items[i].move = sched_end_move(def->rule, timer, end->finished_ms);
    sched_def_unref(def);
    return err == MR_NOMEM ? err : MR_OK; /* one that is damaged moves no more */
}

/* Without the lease: whoever has it is told by the store that something was changed. */
static void write_all(struct late *l)
{
    enum mr_err err = MR_OK;
    for (size_t i = 0; i < l->n && err == MR_OK; i++)
        err = fill_item(l, i);
    if (err != MR_OK) { /* found as an open row later */
        late_end(l, err);
        return;
    }
    l->set = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                          .app = mr_slice_str(sched_app_of(&l->errand)->name),
                                          .items = l->items,
                                          .n = l->n,
                                          .results = l->results};
    l->errand.done = written;
    sched_errand_store(&l->errand, &l->set.req);
}

/* Of the owner, for one of its own timers. */
static bool write_ours(struct late *l)
{
    struct app *app = sched_app_of(&l->errand);
    if (!app->owned || l->n > 1 || sched_entry_find(app, &l->ends[0].uid) == NULL)
        return false;
    (void)sched_entry_load(app, &l->get.timers[0]);
    if (sched_entry_find(app, &l->ends[0].uid) == NULL)
        return false;
    sched_ends_write(app, l->ends, 1, l->done, l->arg);
    late_free(l);
    return true;
}

static void known(struct mr_errand *errand)
{
    struct late *l = mr_container(errand, struct late, errand);
    if (l->get.req.err != MR_OK)
        late_end(l, l->get.req.err); /* found as an open row later */
    else if (!write_ours(l))
        write_all(l);
}

static void look(struct late *l)
{
    mr_store_req_done(&l->get.req);
    mr_store_req_done(&l->set.req);
    l->get = (struct mr_store_timer_get){.req.op = MR_STORE_TIMER_GET, .keys = l->keys, .n = l->n};
    l->errand.done = known;
    sched_errand_store(&l->errand, &l->get.req);
}

static enum mr_err fill(struct late *l, const struct end *ends, size_t n)
{
    l->ends = mr_arena_calloc(&l->arena, n, sizeof *l->ends);
    l->keys = mr_arena_calloc(&l->arena, n, sizeof *l->keys);
    l->items = mr_arena_calloc(&l->arena, n, sizeof *l->items);
    l->results = mr_arena_calloc(&l->arena, n, sizeof *l->results);
    if (l->ends == NULL || l->keys == NULL || l->items == NULL || l->results == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        l->ends[i] = ends[i];
        l->keys[i].uid = ends[i].uid;
        MR_TRY(mr_arena_copy(&l->arena, ends[i].reason, &l->ends[i].reason));
    }
    l->n = n;
    return MR_OK;
}

static void begin(struct app *app, const struct end *ends, size_t n, struct late with)
{
    struct late *l = calloc(1, sizeof *l);
    enum mr_err err = MR_NOMEM;
    if (l != NULL) {
        *l = with;
        l->errand = (struct mr_errand){.desk = &app->s->desk, .of = app};
        err = fill(l, ends, n);
    }
    if (err == MR_OK) {
        look(l);
        return;
    }
    if (with.done != NULL)
        with.done(app, err, with.arg);
    if (l != NULL)
        late_free(l);
}

void sched_end_late(struct app *app, const struct end *end)
{
    begin(app, end, 1, (struct late){0});
}

void sched_ends_late(struct app *app, const struct end *ends, size_t n, ends_done *done, void *arg)
{
    begin(app, ends, n, (struct late){.done = done, .arg = arg});
}
