/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open rows of the ledger, walked through page by page: of a whole app when it has become ours, before anything else
 * is fired; of a timer whose next run waits for an end; and every now and then, held against the tasks that they
 * have become. Rows that wait are dispatched, which does no harm where somebody has done so before.
 *
 * Where each server has its own broker, a task is looked for only where it was made. If that server does not live, it is
 * made anew; else its server tells of the end, also of tasks of subApps that have gone to another (WALK_LEFT).
 */
#include <stdlib.h>

#include "timer/sched/internal.h"
#include "timer/strategy.h"

enum walk_kind { WALK_RECOVERS, WALK_RELEASES, WALK_RECONCILES, WALK_LEFT };

enum {
    FRESH_MS = 5000,  /* younger rows are under way: there is nothing to mend */
    CLAIM_MS = 15000, /* so long a row waits for its home, if that lives, to make a task of it */
};

struct look_up {
    struct mr_errand errand;
    struct walk *walk;
    struct mr_req_get get;
    const struct mr_store_firing *row;
    char id[MR_FIRING_ID_MAX + 1];
};

struct walk {
    struct mr_errand errand;
    enum walk_kind kind;
    struct mr_store_firing_open open;
    struct mr_store_timer_get get;
    struct mr_store_timer_key *keys; /* of the page, as open.firings */
    int64_t after_ms;
    struct mr_uuid after_uid;
    struct mr_uuid only; /* zero: all */
    size_t seen;         /* rows, on all pages */
    struct look_up *look_ups;
    size_t look_ups_n, pending;
};

/* Rows of before this time. */
static int64_t fresh_since(const struct mr_scheduler *s)
{
    int64_t fresh_ms = s->settings.reconcile_ms < FRESH_MS ? s->settings.reconcile_ms : FRESH_MS;
    return sched_now_ms(s) - fresh_ms;
}

static void page_next(struct walk *w);
static void page_end(struct walk *w);

static bool is_current(const struct walk *w)
{
    const struct app *app = sched_app_of(&w->errand);
    return w->kind == WALK_LEFT ? app->cut && !app->s->desk.stopping
                                : sched_errand_current(&w->errand);
}

/* Piece by piece, as time goes by. */
static bool is_slow(const struct walk *w)
{
    return w->kind == WALK_RECONCILES || w->kind == WALK_LEFT;
}

static void page_free(struct walk *w)
{
    for (size_t i = 0; i < w->look_ups_n; i++)
        mr_req_done(&w->look_ups[i].get.req);
    free(w->look_ups);
    free(w->keys);
    mr_store_req_done(&w->open.req);
    mr_store_req_done(&w->get.req);
    w->look_ups = NULL;
    w->keys = NULL;
    w->look_ups_n = 0;
}

static void walk_end(struct walk *w, enum mr_err err)
{
    struct app *app = sched_app_of(&w->errand);
    bool current = is_current(w);
    enum walk_kind kind = w->kind;
    page_free(w);
    free(w);
    if (!current || kind == WALK_RELEASES)
        return;
    if (kind == WALK_RECOVERS && err == MR_OK) {
        app->recovering = false;
        sched_window_read(app);
        sched_results_begin(app); /* an end is written when it is known what else is open */
    }
    mr_desk_after(&app->s->desk, &app->reconcile,
                  app->recovering ? AGAIN_MS : app->s->settings.reconcile_ms);
}

/* ---- what a task says ------------------------------------------------------------------------ */

static bool was_cancelled(const struct mr_task *task)
{
    return task->cancel_requested || mr_slice_equal(task->last_error, MR_SLICE_LIT("cancelled"));
}

bool sched_end_of_task(const struct mr_task *task, struct end *ret_end)
{
    struct mr_slice part_of = mr_broadcast_firing(task->id);
    if ((task->state != MR_COMPLETED && task->state != MR_ARCHIVED) ||
        !mr_firing_id_parse(part_of.len > 0 ? part_of : task->id, &ret_end->uid,
                            &ret_end->planned_ms, &ret_end->run))
        return false;
    bool done = task->state == MR_COMPLETED;
    ret_end->final = true;
    ret_end->state = done                    ? MR_LEDGER_SUCCEEDED
                     : !was_cancelled(task)  ? MR_LEDGER_FAILED
                     : task->started_ms == 0 ? MR_LEDGER_CANCELLED
                                             : MR_LEDGER_STOPPED;
    ret_end->attempt = task->attempt;
    ret_end->started_ms = task->started_ms;
    ret_end->finished_ms = task->finished_ms > 0 ? task->finished_ms : task->last_failed_ms;
    ret_end->reason = done ? (struct mr_slice){0} : task->last_error;
    return true;
}

static bool end_of_look_up(struct app *app, const struct look_up *up, struct end *ret_end)
{
    if (up->get.req.err == MR_OK)
        return sched_end_of_task(&up->get.task, ret_end);
    if (up->get.req.err != MR_NOT_FOUND)
        return false;
    *ret_end = (struct end){.uid = up->row->uid,
                            .planned_ms = up->row->planned_ms,
                            .run = up->row->run,
                            .final = true,
                            .state = MR_LEDGER_FAILED,
                            .finished_ms = sched_now_ms(app->s),
                            .reason = MR_SLICE_LIT("its task is gone")};
    return true;
}

static void looked_up_all(struct walk *w)
{
    struct app *app = sched_app_of(&w->errand);
    struct end *ends = calloc(w->look_ups_n, sizeof *ends);
    size_t n = 0;
    for (size_t i = 0; ends != NULL && i < w->look_ups_n; i++) {
        if (end_of_look_up(app, &w->look_ups[i], &ends[n])) {
            if (ends[n].finished_ms == 0)
                ends[n].finished_ms = sched_now_ms(app->s);
            n++;
        }
    }
    if (n > 0 && is_current(w)) {
        SCHED_COUNT(app->s, reconciled, n);
        if (w->kind == WALK_LEFT)
            sched_ends_late(app, ends, n, NULL, NULL);
        else
            sched_ends_write(app, ends, n, NULL, NULL);
    }
    free(ends);
    page_end(w);
}

static void looked_up(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct look_up, errand)->walk;
    if (--w->pending == 0)
        looked_up_all(w);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Its runs matter: it is in memory as long as there are any. */
static struct entry *watch(struct app *app, const struct mr_store_timer *timer)
{
    struct entry *entry = sched_entry_find(app, &timer->uid);
    return entry != NULL ? entry : sched_entry_rest(app, timer);
}

static bool is_waiting(const struct mr_store_firing *row)
{
    return row->state == MR_LEDGER_WAITING;
}

/* A server that stood still leaves the row to the owner, well before that takes it. */
bool sched_claim_holds(const struct mr_scheduler *s, int64_t fired_ms)
{
    return s->home[0] == '\0' || sched_now_ms(s) - fired_ms < CLAIM_MS / 2;
}

/* It is to become a task, or has been one that is not there any more. */
static bool is_loose(const struct walk *w, const struct mr_store_firing *row)
{
    enum home home = sched_home(sched_of(&w->errand), row->home);
    if (is_waiting(row) && home == HOME_OTHERS) /* a person asked for it there */
        return sched_now_ms(sched_of(&w->errand)) - row->fired_ms > CLAIM_MS;
    return is_waiting(row) || home == HOME_GONE;
}

static void row_waits(struct walk *w, const struct mr_store_firing *row,
                      const struct mr_store_timer *timer, struct entry *entry,
                      struct mr_link *shots)
{
    struct app *app = sched_app_of(&w->errand);
    struct def *def = entry != NULL ? sched_def_ref(entry->def) : NULL;
    if (timer->state == MR_ROW_NONE) {
        sched_stop_task(app, &row->uid, row->planned_ms, row->run, "its timer was deleted");
        return;
    }
    if (def == NULL && sched_def_new(app->s, timer, &def) != MR_OK)
        return; /* the next walk comes by again */
    bool held = entry != NULL && is_waiting(row) && def->options.overlap == MR_OVERLAP_QUEUE &&
                sched_entry_running_without(entry, row->planned_ms) >= def->limit;
    if (entry != NULL)
        sched_entry_maybe_opened(entry, row->planned_ms, row->run, held);
    struct shot *shot =
        held ? NULL : sched_shot_new(def, &row->uid, row->planned_ms, row->run, row->target);
    if (shot != NULL) {
        shot->adopts = !is_waiting(row);
        mr_list_push_back(shots, &shot->link);
        mr_list_push_back(&app->s->finds, &shot->among_found);
        app->s->found++;
        if (w->kind != WALK_RELEASES) /* else its turn has come, as it was to */
            SCHED_COUNT(app->s, recovered, 1);
    }
    sched_def_unref(def);
}

static void row_runs(struct walk *w, const struct mr_store_firing *row, struct entry *entry)
{
    sched_entry_maybe_opened(entry, row->planned_ms, row->run, false);
    if (w->kind == WALK_RECOVERS && !sched_is_broadcast(row->target) &&
        sched_home(sched_of(&w->errand), row->home) == HOME_OURS)
        sched_expire(sched_app_of(&w->errand), entry->def, &row->uid, row->planned_ms, row->run);
}

/* First what runs, then what waits for that. */
static void rows_known(struct walk *w)
{
    struct app *app = sched_app_of(&w->errand);
    struct mr_link shots;
    int64_t fresh_ms = fresh_since(app->s);
    mr_list_init(&shots);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < w->open.n; i++) {
            const struct mr_store_firing *row = &w->open.firings[i];
            const struct mr_store_timer *timer = &w->get.timers[i];
            if (is_loose(w, row) != (pass == 1) ||
                (w->kind == WALK_RECONCILES && row->fired_ms > fresh_ms))
                continue;
            struct entry *entry = timer->state != MR_ROW_NONE ? watch(app, timer) : NULL;
            if (pass == 1)
                row_waits(w, row, timer, entry, &shots);
            else if (entry != NULL)
                row_runs(w, row, entry);
        }
    }
    sched_dispatch(app, &shots);
    for (size_t i = 0; i < w->open.n; i++) { /* these rows were read before their timers */
        struct entry *entry = sched_entry_find(app, &w->open.firings[i].uid);
        if (entry != NULL)
            sched_entry_make_sure(entry);
    }
}

static void look_up(struct walk *w, const struct mr_store_firing *row)
{
    struct look_up *up = &w->look_ups[w->look_ups_n++];
    up->walk = w;
    up->row = row;
    up->errand = (struct mr_errand){
        .desk = w->errand.desk, .of = sched_app_of(&w->errand), .done = looked_up};
    mr_firing_id(&row->uid, row->planned_ms, row->run, up->id);
    up->get = (struct mr_req_get){.req.op = MR_OP_GET, .id = mr_slice_str(up->id)};
    w->pending++;
}

/* Whether there is anything to be waited for. */
static bool look_up_tasks(struct walk *w)
{
    int64_t fresh_ms = fresh_since(sched_of(&w->errand));
    w->look_ups = calloc(w->open.n, sizeof *w->look_ups);
    for (size_t i = 0; w->look_ups != NULL && i < w->open.n; i++) {
        const struct mr_store_firing *row = &w->open.firings[i];
        if (is_waiting(row) || row->fired_ms > fresh_ms ||
            sched_home(sched_of(&w->errand), row->home) != HOME_OURS)
            continue;
        if (sched_is_broadcast(row->target))
            sched_broadcast_look(sched_app_of(&w->errand), &row->uid, row->planned_ms);
        else
            look_up(w, row);
    }
    for (size_t i = 0; i < w->look_ups_n; i++)
        sched_errand_broker(&w->look_ups[i].errand, &w->look_ups[i].get.req);
    return w->look_ups_n > 0;
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void timers_known(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    if (!is_current(w) || w->get.req.err != MR_OK) {
        walk_end(w, w->get.req.err != MR_OK ? w->get.req.err : MR_STALE);
        return;
    }
    if (w->kind != WALK_LEFT)
        rows_known(w);
    if (!is_slow(w) || !look_up_tasks(w))
        page_end(w);
}

/* The open rows of a timer, if they are one page: others may have ended some of those that are in memory. */
static void all_of_timer(struct walk *w)
{
    struct app *app = sched_app_of(&w->errand);
    struct entry *entry = sched_errand_current(&w->errand) ? sched_entry_find(app, &w->only) : NULL;
    if (entry == NULL || w->open.req.err != MR_OK || w->open.more || w->seen > 0)
        return;
    sched_entry_open_are(entry, w->open.firings, w->open.n);
    if (entry->state == ENTRY_RESTS)
        sched_entry_settle(entry);
}

static void page_known(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    if (w->kind == WALK_RELEASES)
        all_of_timer(w);
    if (!is_current(w) || w->open.req.err != MR_OK || w->open.n == 0) {
        if (is_slow(w) && w->open.req.err == MR_OK && w->open.n == 0 && is_current(w)) {
            sched_app_of(&w->errand)->walk_ms = 0; /* it was the last page */
            sched_app_of(&w->errand)->walk_uid = (struct mr_uuid){0};
        }
        walk_end(w, w->open.req.err);
        return;
    }
    w->keys = calloc(w->open.n, sizeof *w->keys);
    if (w->keys == NULL) {
        walk_end(w, MR_NOMEM);
        return;
    }
    for (size_t i = 0; i < w->open.n; i++)
        w->keys[i].uid = w->open.firings[i].uid;
    w->get =
        (struct mr_store_timer_get){.req.op = MR_STORE_TIMER_GET, .keys = w->keys, .n = w->open.n};
    w->errand.done = timers_known;
    sched_errand_store(&w->errand, &w->get.req);
}

static void page_end(struct walk *w)
{
    struct app *app = sched_app_of(&w->errand);
    const struct mr_store_firing *last = &w->open.firings[w->open.n - 1];
    bool more = w->open.more && is_current(w);
    w->after_ms = last->planned_ms;
    w->after_uid = last->uid;
    w->seen += w->open.n;
    if (is_slow(w)) { /* a long walk goes on with the next one */
        app->walk_ms = more ? w->after_ms : 0;
        app->walk_uid = more ? w->after_uid : (struct mr_uuid){0};
        more = more && w->seen < RECONCILE_MAX;
    }
    if (!more) {
        walk_end(w, MR_OK);
        return;
    }
    page_free(w);
    page_next(w);
}

/* Of subApps that are others'. */
static uint64_t slots_left(const struct app *base)
{
    uint64_t slots = 0;
    for (struct mr_link *at = base->parts.next; at != &base->parts; at = at->next) {
        const struct app *part = mr_container(at, struct app, of_base);
        slots |= part->owned ? part->slots : 0;
    }
    return ~slots;
}

static void page_next(struct walk *w)
{
    struct app *app = sched_app_of(&w->errand);
    bool left = w->kind == WALK_LEFT;
    w->open = (struct mr_store_firing_open){.req.op = MR_STORE_FIRING_OPEN,
                                            .app = mr_slice_str(app->name),
                                            .uid = w->only,
                                            .slots = left ? slots_left(app) : app->slots,
                                            .after_ms = w->after_ms,
                                            .after_uid = w->after_uid,
                                            .max = is_slow(w) ? 100 : PAGE_MAX};
    if (left)
        w->open.home = mr_slice_str(app->s->home);
    w->errand.done = page_known;
    sched_errand_store(&w->errand, &w->open.req);
}

static struct walk *walk_new(struct app *app, enum walk_kind kind)
{
    struct walk *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->kind = kind;
    w->errand = (struct mr_errand){.desk = &app->s->desk, .of = app};
    return w;
}

static void reconcile(struct mr_timer *timer, void *arg)
{
    struct app *app = mr_container(timer, struct app, reconcile);
    (void)arg;
    if (app->s->desk.stopping || !(app->owned || app->cut))
        return;
    if (app->cut && slots_left(app) == 0) { /* all are ours: each walks through its own */
        mr_desk_after(&app->s->desk, timer, app->s->settings.reconcile_ms);
        return;
    }
    struct walk *w = walk_new(app, app->cut          ? WALK_LEFT
                                   : app->recovering ? WALK_RECOVERS
                                                     : WALK_RECONCILES);
    if (w == NULL) {
        mr_desk_after(&app->s->desk, timer, AGAIN_MS);
        return;
    }
    if (is_slow(w)) {
        w->after_ms = app->walk_ms;
        w->after_uid = app->walk_uid;
    }
    page_next(w);
}

void sched_recover_init(struct app *app)
{
    mr_timer_init(&app->reconcile, reconcile);
}

void sched_recover_begin(struct app *app)
{
    app->recovering = true;
    reconcile(&app->reconcile, NULL);
}

void sched_recover_left(struct app *base)
{
    if (base->s->home[0] != '\0')
        mr_desk_after(&base->s->desk, &base->reconcile, base->s->settings.reconcile_ms);
}

void sched_recover_drop(struct app *app)
{
    app->recovering = false;
    app->walk_ms = 0;
    app->walk_uid = (struct mr_uuid){0};
    mr_desk_cancel(&app->s->desk, &app->reconcile);
}

void sched_recover_timer(struct app *app, const struct mr_uuid *uid)
{
    struct walk *w = walk_new(app, WALK_RELEASES);
    if (w == NULL)
        return; /* the next walk through all of them finds it */
    w->only = *uid;
    page_next(w);
}
