/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is due becomes rows of the ledger, in one transaction for up to FIRE_MAX timers, fenced by the lease. Of one
 * timer there is one row at a time; what is to be made up for comes with the next transactions.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

const struct mr_slice sched_why_skipped = MR_SLICE_LIT("the last run is not over");
const struct mr_slice sched_why_held = MR_SLICE_LIT("waits for the end of the last run");
static const struct mr_slice why_misfired = MR_SLICE_LIT("nobody was there at its time");

enum { NODES_SOON_MS = 20 }; /* the list of workers is asked for, and comes so soon */

struct firing {
    struct mr_errand errand;
    struct mr_store_fire_batch req;
    size_t n;
    struct entry *entries[FIRE_MAX];
    struct mr_plan_step steps[FIRE_MAX];
    bool held[FIRE_MAX], cancels[FIRE_MAX];
    struct mr_arena arena; /* of targets */
    struct mr_store_fire items[FIRE_MAX];
    struct mr_store_fired results[FIRE_MAX];
};

enum mr_ledger_state sched_fire_state(const struct def *def, uint32_t running, uint32_t held,
                                      bool *ret_held)
{
    *ret_held = false;
    if (running < def->limit || def->options.overlap == MR_OVERLAP_CANCEL)
        return MR_LEDGER_WAITING;
    *ret_held = def->options.overlap == MR_OVERLAP_QUEUE && held == 0;
    return *ret_held ? MR_LEDGER_WAITING : MR_LEDGER_SKIPPED;
}

uint32_t sched_fire_limit(const struct def *def, enum mr_ledger_state state, bool held)
{
    bool any = def->limit == UINT32_MAX || def->options.overlap == MR_OVERLAP_CANCEL;
    return any || held || state != MR_LEDGER_WAITING ? 0 : def->limit;
}

/* ---- before ---------------------------------------------------------------------------------- */

static bool counts_from_ends(const struct entry *entry)
{
    return mr_rule_kind_of(entry->def->rule) == MR_TIMER_AFTER_DONE;
}

/* What the policy for overlaps and the strategy say of it. MR_EMPTY: not now. */
static enum mr_err row_state(struct firing *f, struct entry *entry, struct mr_plan_step *step,
                             struct mr_store_fire *item)
{
    size_t i = f->n;
    uint32_t running = sched_entry_running(entry);
    bool held;
    item->kind = step->kind == MR_PLAN_CATCH_UP ? MR_LEDGER_CAUGHT_UP : MR_LEDGER_PLANNED;
    item->state = sched_fire_state(entry->def, running, sched_entry_held(entry), &held);
    item->reason = held ? sched_why_held : (struct mr_slice){0};
    f->held[i] = held;
    f->cancels[i] = running >= entry->def->limit && item->state == MR_LEDGER_WAITING && !held;
    if (item->state == MR_LEDGER_SKIPPED) {
        item->reason = sched_why_skipped;
        mr_plan_skip(entry->def->rule, &entry->plan, step);
        return MR_OK;
    }
    enum mr_err err =
        sched_target(entry->app, entry->def, entry->plan.fired, &f->arena, &item->target);
    bool nowhere = err == MR_NOT_FOUND || err == MR_TOO_BIG;
    if (nowhere) {
        item->state = MR_LEDGER_FAILED;
        item->reason = sched_why_nowhere(err);
        f->held[i] = f->cancels[i] = false;
        mr_plan_ended(entry->def->rule, item->fired_ms, step);
    }
    item->limit = sched_fire_limit(entry->def, item->state, f->held[i]);
    /* Of a policy by which others are told to stop it must be known who runs. */
    if (item->state == MR_LEDGER_WAITING && !f->cancels[i] &&
        entry->def->options.overlap == MR_OVERLAP_CANCEL)
        item->limit = entry->def->limit;
    if (item->state == MR_LEDGER_WAITING && counts_from_ends(entry))
        item->limit = 1;
    return nowhere ? MR_OK : err;
}

static void add_row(struct firing *f, struct entry *entry, struct mr_plan_step *step,
                    int64_t now_ms)
{
    size_t i = f->n;
    struct mr_store_fire *item = &f->items[i];
    f->held[i] = f->cancels[i] = false;
    *item = (struct mr_store_fire){.uid = entry->uid,
                                   .planned_ms = step->planned_ms,
                                   .fired_ms = now_ms,
                                   .state = MR_LEDGER_MISFIRED,
                                   .reason = why_misfired};
    bool waits = counts_from_ends(entry) && entry->open_n > 0;
    if (waits) {
        item->state = MR_LEDGER_NONE;
        mr_plan_wait(&entry->plan, step);
    } else if (step->kind == MR_PLAN_GAP) {
        item->until_ms = step->until_ms > step->planned_ms ? step->until_ms : 0;
    } else if (row_state(f, entry, step, item) != MR_OK) { /* the workers are not known yet */
        entry->state = ENTRY_WAITS;
        mr_desk_after(&entry->app->s->desk, &entry->timer, NODES_SOON_MS);
        return;
    }
    item->move = (struct mr_store_move){
        .moves = true,
        .when = waits ? MR_STORE_WHILE_OPEN : MR_STORE_ALWAYS, /* that end may have been written */
        .version = entry->version,
        .from_ms = entry->plan.next_ms,
        .to_ms = step->after.next_ms,
        .state = step->finished ? MR_ROW_FINISHED : MR_ROW_ACTIVE,
        .counts = (uint32_t)(step->after.fired - entry->plan.fired),
        .last_ms = step->after.fired > entry->plan.fired ? step->planned_ms : 0};
    f->steps[i] = *step;
    f->entries[i] = entry;
    f->n++;
    entry->state = ENTRY_FIRING;
}

/* Fills a batch with what is due; answers whether there is any. */
static bool fill(struct app *app, struct firing *f)
{
    const struct mr_timer_settings *set = &app->s->settings;
    int64_t now_ms = sched_now_ms(app->s);
    while (f->n < FIRE_MAX && !mr_list_empty(&app->due)) {
        struct entry *entry = mr_container(mr_list_pop_front(&app->due), struct entry, link);
        struct mr_plan_policy policy = {.misfire = entry->def->options.misfire,
                                        .misfire_ms = set->misfire_ms,
                                        .catch_up_ms = set->catch_up_ms,
                                        .catch_up_max = set->catch_up_max};
        struct mr_plan_step step =
            mr_plan(entry->def->rule, &entry->uid, &policy, &entry->plan, now_ms);
        if (step.kind == MR_PLAN_NONE)
            sched_entry_settle(entry);
        else
            add_row(f, entry, &step, now_ms);
    }
    return f->n > 0;
}

/* ---- after ----------------------------------------------------------------------------------- */

static void tell(struct app *app, const struct entry *entry, const struct mr_store_fire *item)
{
    bool misfired = item->state == MR_LEDGER_MISFIRED;
    sched_alarm(app->s, &(struct mr_scheduler_alarm){.kind = misfired ? MR_ALARM_MISFIRED
                                                                      : MR_ALARM_NO_WORKER,
                                                     .app = mr_slice_str(app->name),
                                                     .name = entry->def->options.name,
                                                     .uid = entry->uid,
                                                     .planned_ms = item->planned_ms,
                                                     .until_ms = item->until_ms,
                                                     .reason = item->reason});
}

/* The oldest one that is not told to stop yet makes room. */
static void cancel_oldest(struct entry *entry, int64_t except_ms)
{
    struct open_run *oldest = NULL;
    for (uint32_t i = 0; i < entry->open_n; i++) {
        struct open_run *open = &entry->open[i];
        if (open->planned_ms != except_ms && !open->held &&
            (oldest == NULL || open->planned_ms < oldest->planned_ms))
            oldest = open;
    }
    if (oldest != NULL)
        sched_stop_task(entry->app, &entry->uid, oldest->planned_ms, oldest->run,
                        "the next firing takes its place");
}

static void count_row(struct mr_scheduler *s, const struct mr_store_fire *item)
{
    mr_lock_enter(&s->lock);
    s->figures.skipped += item->state == MR_LEDGER_SKIPPED;
    s->figures.misfired += item->state == MR_LEDGER_MISFIRED;
    s->figures.fired += item->state == MR_LEDGER_WAITING;
    s->figures.failed += item->state == MR_LEDGER_FAILED;
    s->figures.caught_up += item->state == MR_LEDGER_WAITING && item->kind == MR_LEDGER_CAUGHT_UP;
    mr_lock_leave(&s->lock);
}

static void row_written(struct app *app, struct firing *f, size_t i, struct mr_link *shots)
{
    struct entry *entry = f->entries[i];
    const struct mr_store_fire *item = &f->items[i];
    const struct mr_store_fired *result = &f->results[i];
    if (!result->existed)
        count_row(app->s, item);
    if (!result->existed && (item->state == MR_LEDGER_MISFIRED || item->state == MR_LEDGER_FAILED))
        tell(app, entry, item);
    if (mr_ledger_is_open(result->state))
        sched_entry_opened(entry, item->planned_ms, result->run, f->held[i]);
    if (result->state == MR_LEDGER_WAITING && result->existed) {
        sched_recover_timer(app, &entry->uid); /* where it goes was decided then */
    } else if (result->state == MR_LEDGER_WAITING && !f->held[i]) {
        struct shot *shot =
            sched_shot_new(entry->def, &entry->uid, item->planned_ms, result->run, item->target);
        if (shot != NULL) {
            if (f->steps[i].kind == MR_PLAN_FIRE)
                shot->due_ms = mr_plan_due_ms(entry->def->rule, &entry->uid, item->planned_ms);
            mr_list_push_back(shots, &shot->link);
        }
    }
    if (f->cancels[i])
        cancel_oldest(entry, item->planned_ms);
    entry->plan = f->steps[i].after;
}

static void one_fired(struct app *app, struct firing *f, size_t i, struct mr_link *shots)
{
    struct entry *entry = f->entries[i];
    enum mr_err err = f->results[i].err;
    entry->state = ENTRY_RESTS;
    if (err == MR_OK) {
        row_written(app, f, i, shots);
    } else if (err != MR_STALE && err != MR_RUNNING && err != MR_WRONG_STATE) {
        char name[MR_NAME_MAX * 4];
        /* A timer that was deleted is no news. */
        mr_diag(err == MR_NOT_FOUND ? MR_DIAG_DEBUG : MR_DIAG_WARN, "timer.fire",
                "timer=\"%s\" error=%s ignoring",
                mr_diag_escape(entry->def->options.name, name, sizeof name), mr_err_name(err));
        entry->plan.next_ms = MR_NEVER_MS;
    }
    /* A row that was there already may be of others, and its timer elsewhere than we think. */
    if (err == MR_STALE || entry->changed || f->results[i].existed)
        sched_entry_ask(entry);
    else if (err == MR_RUNNING || err == MR_WRONG_STATE) /* what is open is not what we think */
        sched_entry_ask_open(entry);
    else
        sched_entry_settle(entry);
}

/* Nothing was done, or it is not known: all of it once more. */
static void not_fired(struct app *app, struct firing *f, enum mr_err err)
{
    mr_diag(MR_DIAG_WARN, "timer.fire", "app=%s error=%s", app->name, mr_err_name(err));
    for (size_t i = f->n; i-- > 0;) {
        struct entry *entry = f->entries[i];
        entry->state = ENTRY_DUE;
        entry->plan.admitted_ms =
            0; /* how long that lasts is not known: what is late then is a misfire */
        mr_list_push_front(&app->due, &entry->link);
    }
    app->fires_paused = true;
    mr_desk_after(&app->s->desk, &app->fire_again, AGAIN_MS);
}

static void fired(struct mr_errand *errand)
{
    struct firing *f = mr_container(errand, struct firing, errand);
    struct app *app = sched_app_of(errand);
    struct mr_link shots;
    mr_list_init(&shots);
    if (sched_errand_current(errand)) {
        app->fires--;
        if (f->req.req.err == MR_STALE) {
            sched_lease_lost(app, MR_STALE);
        } else if (f->req.req.err != MR_OK) {
            not_fired(app, f, f->req.req.err);
        } else {
            for (size_t i = 0; i < f->n; i++)
                one_fired(app, f, i, &shots);
            sched_dispatch(app, &shots);
        }
    }
    mr_store_req_done(&f->req.req);
    mr_arena_done(&f->arena);
    free(f);
}

bool sched_is_firing(const struct app *app)
{
    return app->fires > 0 || (app->share && !mr_list_empty(&app->due));
}

void sched_fire_due(struct app *app)
{
    while (app->owned && app->share && !app->recovering && !app->fires_paused &&
           app->fires < FIRES_MAX && !mr_list_empty(&app->due)) {
        struct firing *f = calloc(1, sizeof *f);
        if (f == NULL || !fill(app, f)) {
            if (f != NULL)
                mr_arena_done(&f->arena);
            free(f);
            return;
        }
        f->errand = (struct mr_errand){.desk = &app->s->desk, .of = app, .done = fired};
        f->req = (struct mr_store_fire_batch){.req.op = MR_STORE_FIRE,
                                              .fence = {mr_slice_str(app->lease), app->token},
                                              .app = mr_slice_str(app->name),
                                              .items = f->items,
                                              .n = f->n,
                                              .results = f->results};
        app->fires++;
        sched_errand_store(&f->errand, &f->req.req);
    }
}

static void fire_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_container(timer, struct app, fire_again)->fires_paused = false;
}

void sched_fire_init(struct app *app)
{
    mr_timer_init(&app->fire_again, fire_again);
}
