/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people do to a firing: run, stop, run again. Carried out by whichever server is asked, step by step: each is
 * conditional on what the ledger says, so that it agrees with what the owner of the app does meanwhile. The answer
 * is given when the ledger has it; what follows from it, a task that is made or told to stop, comes by itself.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

struct acting {
    struct mr_errand errand;
    struct mr_firing_act *act;
    struct def *def;
    struct mr_store_timer_key key;
    struct mr_store_timer_get get;
    struct mr_store_firing_open open;
    struct mr_store_firing_key firing_key;
    struct mr_store_firing_get firing;
    struct mr_store_fire_batch fire;
    struct mr_store_fire item;
    struct mr_store_fired fired;
    struct mr_store_firing_set set;
    struct mr_store_set change;
    struct mr_store_set_result changed;
    bool held;
    struct mr_arena arena; /* of the target */
    unsigned looks;
};

enum {
    LOOKS_MAX = 100
}; /* until the workers are known, and nobody else acts; each takes a way to the store */

static void look(struct acting *a);

static void answer(struct acting *a, enum mr_err err)
{
    struct mr_firing_act *act = a->act;
    sched_def_unref(a->def);
    mr_store_req_done(&a->get.req);
    mr_store_req_done(&a->open.req);
    mr_store_req_done(&a->firing.req);
    mr_store_req_done(&a->fire.req);
    mr_store_req_done(&a->set.req);
    mr_arena_done(&a->arena);
    free(a);
    act->err = err;
    act->done(act);
}

static const struct mr_store_timer *timer_of(const struct acting *a)
{
    return &a->get.timers[0];
}

static void step(struct acting *a, struct mr_store_req *req, void (*done)(struct mr_errand *errand))
{
    a->errand.done = done;
    sched_errand_store(&a->errand, req);
}

static void fire(struct acting *a, void (*done)(struct mr_errand *errand))
{
    a->fire = (struct mr_store_fire_batch){.req.op = MR_STORE_FIRE,
                                           .app = mr_slice_str(sched_app_of(&a->errand)->name),
                                           .items = &a->item,
                                           .n = 1,
                                           .results = &a->fired};
    step(a, &a->fire.req, done);
}

static void change(struct acting *a, void (*done)(struct mr_errand *errand))
{
    a->set = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                          .app = mr_slice_str(sched_app_of(&a->errand)->name),
                                          .items = &a->change,
                                          .n = 1,
                                          .results = &a->changed};
    step(a, &a->set.req, done);
}

static void dispatch_one(struct acting *a, int64_t planned_ms, uint32_t run, struct mr_slice target)
{
    struct app *app = sched_app_of(&a->errand);
    struct mr_uuid uid = a->act->uid;
    struct entry *entry = app->owned ? sched_entry_find(app, &uid) : NULL;
    struct shot *shot = a->held ? NULL : sched_shot_new(a->def, &uid, planned_ms, run, target);
    struct mr_link shots;
    mr_list_init(&shots);
    if (entry == NULL && app->owned)
        entry = sched_entry_rest(app, timer_of(a));
    if (entry != NULL)
        sched_entry_opened(entry, planned_ms, run, a->held);
    if (shot != NULL)
        mr_list_push_back(&shots, &shot->link);
    sched_dispatch(app, &shots);
}

/* ---- run ------------------------------------------------------------------------------------- */

/* A broadcast to nobody. */
static void tell_nobody(const struct acting *a)
{
    struct mr_scheduler_alarm alarm = {.kind = MR_ALARM_NO_WORKER,
                                       .app = mr_slice_str(sched_app_of(&a->errand)->name),
                                       .name = a->def->options.name,
                                       .uid = a->act->uid,
                                       .planned_ms = a->item.planned_ms,
                                       .reason = a->item.reason};
    sched_alarm(sched_of(&a->errand), &alarm);
}

static void run_fired(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    enum mr_err err = a->fire.req.err != MR_OK ? a->fire.req.err : a->fired.err;
    if (err == MR_RUNNING && a->looks++ < LOOKS_MAX) { /* another one has begun meanwhile */
        look(a);
        return;
    }
    if (err == MR_OK && a->fired.existed && sched_app_of(errand)->owned)
        sched_recover_timer(sched_app_of(errand),
                            &a->act->uid); /* where it goes was decided before */
    else if (err == MR_OK && !a->fired.existed && a->fired.state == MR_LEDGER_WAITING &&
             sched_claim_holds(sched_of(errand), a->item.fired_ms))
        dispatch_one(a, a->item.planned_ms, a->fired.run, a->item.target);
    else if (err == MR_OK && !a->fired.existed && a->fired.state == MR_LEDGER_FAILED)
        tell_nobody(a);
    answer(a, err);
}

static void run_row(struct acting *a, uint32_t running, uint32_t held)
{
    int64_t now_ms = sched_now_ms(sched_of(&a->errand));
    a->item = (struct mr_store_fire){.uid = a->act->uid,
                                     .planned_ms = a->act->planned_ms,
                                     .kind = MR_LEDGER_MANUAL,
                                     .fired_ms = now_ms};
    a->item.state = sched_fire_state(a->def, running, held, &a->held);
    a->item.limit = sched_fire_limit(a->def, a->item.state, a->held);
    if (a->held || a->item.state == MR_LEDGER_SKIPPED)
        a->item.reason = a->held ? sched_why_held : sched_why_skipped;
    enum mr_err err = sched_target(sched_app_of(&a->errand), a->def, timer_of(a)->fired, &a->arena,
                                   &a->item.target);
    if (err != MR_OK && a->item.state == MR_LEDGER_WAITING) {
        a->item.state = MR_LEDGER_FAILED;
        a->item.reason = sched_why_nowhere(err);
    }
    /* Whoever owns the app must not make a second task of it. */
    if (a->item.state == MR_LEDGER_WAITING && !a->held)
        a->item.home = mr_slice_str(sched_of(&a->errand)->home);
    fire(a, run_fired);
}

/* The policy for overlaps is of people's runs as well. */
static void run_open(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    const struct mr_store_firing *oldest = NULL;
    uint32_t running = 0, held = 0;
    if (a->open.req.err != MR_OK) {
        answer(a, a->open.req.err);
        return;
    }
    for (size_t i = 0; i < a->open.n; i++) {
        const struct mr_store_firing *row = &a->open.firings[i];
        bool waits = row->state == MR_LEDGER_WAITING && row->reason.len > 0;
        if (row->planned_ms == a->act->planned_ms)
            continue; /* this very one */
        held += waits;
        running += !waits;
        if (!waits && oldest == NULL)
            oldest = row;
    }
    if (running >= a->def->limit && a->def->options.overlap == MR_OVERLAP_CANCEL)
        sched_stop_task(sched_app_of(errand), &oldest->uid, oldest->planned_ms, oldest->run,
                        "the next firing takes its place");
    run_row(a, running, held);
}

static void run_begin(struct acting *a)
{
    if (!a->def->watched) {
        run_row(a, 0, 0);
        return;
    }
    a->open = (struct mr_store_firing_open){.req.op = MR_STORE_FIRING_OPEN,
                                            .app = mr_slice_str(sched_app_of(&a->errand)->name),
                                            .uid = a->act->uid,
                                            .max = PAGE_MAX};
    step(a, &a->open.req, run_open);
}

/* ---- stop ------------------------------------------------------------------------------------ */

static void stop_next_done(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    enum mr_err err = a->fire.req.err != MR_OK ? a->fire.req.err : a->fired.err;
    if (err == MR_OK)
        sched_window_moved(sched_app_of(errand), &a->act->uid);
    if (err == MR_STALE || (err == MR_OK && a->fired.state != MR_LEDGER_CANCELLED))
        err = MR_WRONG_STATE; /* its time has come meanwhile */
    answer(a, err);
}

/* One that has not come yet. */
static void stop_next(struct acting *a)
{
    const struct mr_store_timer *timer = timer_of(a);
    int64_t next_ms = mr_rule_next(a->def->rule, timer->fired, timer->next_ms), now_ms;
    now_ms = sched_now_ms(sched_of(&a->errand));
    if (mr_rule_kind_of(a->def->rule) == MR_TIMER_AFTER_DONE)
        next_ms = mr_rule_next(a->def->rule, timer->fired, now_ms);
    a->item = (struct mr_store_fire){
        .uid = timer->uid,
        .planned_ms = timer->next_ms,
        .state = MR_LEDGER_CANCELLED,
        .fired_ms = now_ms,
        .reason = MR_SLICE_LIT("cancelled before its time"),
        .move = {.moves = true,
                 .version = timer->version,
                 .from_ms = timer->next_ms,
                 .to_ms = next_ms,
                 .state = next_ms == MR_NEVER_MS ? MR_ROW_FINISHED : MR_ROW_ACTIVE}};
    fire(a, stop_next_done);
}

static void stop_waiting_done(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    enum mr_err err = a->set.req.err != MR_OK ? a->set.req.err : a->changed.err;
    if (err == MR_WRONG_STATE && mr_ledger_is_open(a->changed.state)) {
        sched_stop_task(sched_app_of(errand), &a->change.uid, a->change.planned_ms, a->change.run,
                        "stopped");
        err = MR_OK; /* it has become a task meanwhile */
    }
    if (err == MR_CONFLICT && a->looks++ < LOOKS_MAX) { /* the timer was changed */
        look(a);
        return;
    }
    if (err == MR_OK && sched_app_of(errand)->owned) {
        sched_window_moved(sched_app_of(errand), &a->act->uid);
        sched_recover_timer(sched_app_of(errand), &a->act->uid);
    }
    answer(a, err);
}

static void stop_row(struct acting *a, const struct mr_store_firing *row)
{
    const struct mr_store_timer *timer = timer_of(a);
    if (row->state == MR_LEDGER_NONE && timer->state == MR_ROW_ACTIVE &&
        timer->next_ms == a->act->planned_ms) {
        stop_next(a);
    } else if (row->state == MR_LEDGER_WAITING) {
        a->change = (struct mr_store_set){.uid = row->uid,
                                          .planned_ms = row->planned_ms,
                                          .run = row->run,
                                          .from = MR_LEDGER_BIT(MR_LEDGER_WAITING),
                                          .to = MR_LEDGER_CANCELLED,
                                          .reason = MR_SLICE_LIT("cancelled"),
                                          .finished_ms = sched_now_ms(sched_of(&a->errand))};
        a->change.move = sched_end_move(a->def->rule, timer, a->change.finished_ms);
        change(a, stop_waiting_done);
    } else if (mr_ledger_is_open(row->state)) {
        sched_stop_task(sched_app_of(&a->errand), &row->uid, row->planned_ms, row->run, "stopped");
        answer(a, MR_OK);
    } else {
        answer(a, row->state == MR_LEDGER_NONE ? MR_NOT_FOUND : MR_WRONG_STATE);
    }
}

/* ---- again ----------------------------------------------------------------------------------- */

static void rerun_done(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    enum mr_err err = a->set.req.err != MR_OK ? a->set.req.err : a->changed.err;
    if (err == MR_OK && a->changed.state == MR_LEDGER_WAITING)
        dispatch_one(a, a->change.planned_ms, a->changed.run, a->change.target);
    answer(a, err == MR_STALE ? MR_WRONG_STATE : err);
}

static void rerun_row(struct acting *a, const struct mr_store_firing *row)
{
    if (row->state == MR_LEDGER_NONE || row->until_ms != 0) {
        answer(a, row->state == MR_LEDGER_NONE ? MR_NOT_FOUND : MR_WRONG_STATE);
        return;
    }
    a->change = (struct mr_store_set){.uid = row->uid,
                                      .planned_ms = row->planned_ms,
                                      .run = row->run + 1,
                                      .again = true,
                                      .from = MR_LEDGER_BIT(MR_LEDGER_FAILED) |
                                              MR_LEDGER_BIT(MR_LEDGER_STOPPED) |
                                              MR_LEDGER_BIT(MR_LEDGER_CANCELLED),
                                      .to = MR_LEDGER_WAITING};
    if (sched_target(sched_app_of(&a->errand), a->def, timer_of(a)->fired, &a->arena,
                     &a->change.target) != MR_OK)
        a->change.target = sched_queue_of(sched_app_of(&a->errand), a->def); /* whoever comes */
    change(a, rerun_done);
}

/* ---- what is meant --------------------------------------------------------------------------- */

static void firing_known(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    if (a->firing.req.err != MR_OK)
        answer(a, a->firing.req.err);
    else if (a->act->verb == MR_TIMER_STOP)
        stop_row(a, &a->firing.firings[0]);
    else
        rerun_row(a, &a->firing.firings[0]);
}

/* Who the workers are must be known, where it matters. */
static bool look_again(struct acting *a)
{
    if (a->act->verb == MR_TIMER_STOP || !sched_needs_nodes(&a->def->options) ||
        sched_nodes_ready(sched_of(&a->errand)) || a->looks++ == LOOKS_MAX)
        return false;
    look(a);
    return true;
}

static void timer_known(struct mr_errand *errand)
{
    struct acting *a = mr_container(errand, struct acting, errand);
    const struct mr_store_timer *timer = a->get.req.err == MR_OK ? timer_of(a) : NULL;
    if (timer == NULL || (MR_ROW_BIT(timer->state) & MR_ROW_LIVE) == 0) {
        answer(a, timer == NULL ? a->get.req.err : MR_NOT_FOUND);
        return;
    }
    /* Only now: for a name that nobody has made a timer of nothing is kept. */
    struct app *app = sched_app(sched_of(errand), a->act->app);
    if (app == NULL) {
        answer(a, MR_NOMEM);
        return;
    }
    a->act->uid = timer->uid;
    errand->of = sched_app_for(app, &timer->uid);
    enum mr_err err = sched_def_new(sched_of(errand), timer, &a->def);
    if (err != MR_OK) {
        answer(a, err == MR_NOMEM ? err : MR_DAMAGED);
    } else if (look_again(a)) {
        return;
    } else if (a->act->verb == MR_TIMER_RUN) {
        run_begin(a);
    } else if (a->act->planned_ms == 0 && a->act->verb == MR_TIMER_STOP) {
        if (timer->state == MR_ROW_ACTIVE && timer->next_ms != MR_STORE_NEVER_MS)
            stop_next(a);
        else
            answer(a, MR_WRONG_STATE);
    } else {
        a->firing_key = (struct mr_store_firing_key){timer->uid, a->act->planned_ms};
        a->firing = (struct mr_store_firing_get){
            .req.op = MR_STORE_FIRING_GET, .keys = &a->firing_key, .n = 1};
        step(a, &a->firing.req, firing_known);
    }
}

/* From the beginning. */
static void look(struct acting *a)
{
    sched_def_unref(a->def);
    a->def = NULL;
    mr_store_req_done(&a->get.req);
    mr_store_req_done(&a->open.req);
    mr_store_req_done(&a->firing.req);
    mr_store_req_done(&a->fire.req);
    mr_store_req_done(&a->set.req);
    mr_arena_reset(&a->arena);
    a->get = (struct mr_store_timer_get){.req.op = MR_STORE_TIMER_GET, .keys = &a->key, .n = 1};
    step(a, &a->get.req, timer_known);
}

static void sched_act_receive(struct mr_msg *msg, void *receiver)
{
    struct mr_firing_act *act = mr_container(msg, struct mr_firing_act, msg);
    struct mr_scheduler *s = receiver;
    struct acting *a = s->desk.stopping ? NULL : calloc(1, sizeof *a);
    if (a == NULL) {
        act->err = s->desk.stopping ? MR_CLOSED : MR_NOMEM;
        act->done(act);
        return;
    }
    a->act = act;
    a->errand.desk = &s->desk;
    a->key = (struct mr_store_timer_key){.app = act->app, .name = act->name};
    look(a);
}

void mr_scheduler_act(struct mr_scheduler *scheduler, struct mr_firing_act *act)
{
    act->msg.deliver = sched_act_receive;
    mr_chan_send(&scheduler->desk.inbox, &act->msg);
}
