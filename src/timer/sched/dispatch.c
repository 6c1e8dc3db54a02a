/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of the ledger become tasks of the broker. The id of a task follows from its row, and the broker keeps it for a
 * day after its end: one that is there already was made by whoever was here before. What the broker does not take
 * for a passing reason stays waiting, and is tried again.
 */
#include <stdlib.h>

#include "timer/def.h"
#include "timer/sched/internal.h"
#include "timer/strategy.h"

struct dispatching {
    struct mr_errand errand;
    struct mr_req_enqueue enqueue;
    struct mr_store_firing_set set;
    struct mr_link shots;
    struct mr_arena arena; /* targets and ids */
    size_t shots_n, n;
    struct mr_task_options tasks[MR_BATCH_MAX];
    struct mr_enqueue_result results[MR_BATCH_MAX];
    struct mr_store_set *sets;
    struct mr_store_set_result *set_results;
    struct shot **of_set; /* whose the sets are */
    size_t sets_n;
    bool fenced;         /* the app is ours */
    struct mr_link link; /* in app->dispatched, while it waits */
    struct mr_timer later;
};

struct shot *sched_shot_new(struct def *def, const struct mr_uuid *uid, int64_t planned_ms,
                            uint32_t run, struct mr_slice target)
{
    struct shot *shot = calloc(1, sizeof *shot);
    if (shot == NULL)
        return NULL;
    shot->target = malloc(target.len + 1);
    if (shot->target == NULL) {
        free(shot);
        return NULL;
    }
    if (target.len > 0)
        memcpy(shot->target, target.data, target.len);
    shot->target_len = target.len;
    shot->def = sched_def_ref(def);
    shot->uid = *uid;
    shot->planned_ms = planned_ms;
    shot->run = run;
    mr_list_init(&shot->link);
    mr_list_init(&shot->among_found);
    mr_firing_id(uid, planned_ms, run, shot->id);
    return shot;
}

static void sched_shot_free(struct shot *shot)
{
    mr_list_remove(&shot->link);
    mr_list_remove(&shot->among_found);
    sched_def_unref(shot->def);
    free(shot->target);
    free(shot);
}

static void sched_shots_free(struct mr_link *shots)
{
    while (!mr_list_empty(shots))
        sched_shot_free(mr_container(shots->next, struct shot, link));
}

static void dispatching_free(struct dispatching *d)
{
    sched_shots_free(&d->shots);
    mr_req_done(&d->enqueue.req);
    mr_store_req_done(&d->set.req);
    mr_arena_done(&d->arena);
    mr_desk_cancel(d->errand.desk, &d->later);
    mr_list_remove(&d->link);
    sched_app_of(&d->errand)->dispatching -= d->fenced;
    free(d->sets);
    free(d->set_results);
    free(d->of_set);
    free(d);
}

/* ---- the rows say so ------------------------------------------------------------------------- */

/* Somebody has cancelled the firing while its task was made. */
static void take_back(struct app *app, const struct shot *shot)
{
    sched_stop_task(app, &shot->uid, shot->planned_ms, shot->run, "");
}

static void set_done(struct mr_errand *errand)
{
    struct dispatching *d = mr_container(errand, struct dispatching, errand);
    struct app *app = sched_app_of(errand);
    for (size_t i = 0; d->set.req.err == MR_OK && i < d->sets_n; i++) {
        if (d->set_results[i].err != MR_WRONG_STATE)
            continue;
        if (d->set_results[i].state == MR_LEDGER_CANCELLED)
            take_back(app, d->of_set[i]);
        else
            sched_of(errand)->sweep_due = true; /* another one was first */
    }
    if (!d->fenced) /* likewise, perhaps */
        sched_of(errand)->sweep_due = true;
    if (d->set.req.err == MR_STALE && sched_errand_current(errand))
        sched_lease_lost(app, MR_STALE);
    else if (d->set.req.err != MR_OK) /* found as an open row later */
        mr_diag(MR_DIAG_WARN, "timer.dispatch", "app=%s error=%s", app->name,
                mr_err_name(d->set.req.err));
    dispatching_free(d);
}

static void note_lateness(struct mr_scheduler *s, const struct shot *shot)
{
    if (shot->due_ms == 0)
        return;
    int64_t late_us = mr_wall_now(s->desk.clock).us - shot->due_ms * MR_US_PER_MS;
    mr_lock_enter(&s->lock);
    mr_hist_add(&s->figures.lateness, late_us > 0 ? late_us : 0);
    mr_meter_add(&s->figures.lateness_us, mr_meter_us, late_us);
    mr_lock_leave(&s->lock);
}

static void add_set(struct dispatching *d, struct shot *shot)
{
    d->of_set[d->sets_n] = shot;
    d->sets[d->sets_n++] = (struct mr_store_set){
        .uid = shot->uid,
        .planned_ms = shot->planned_ms,
        .run = shot->run,
        .from = shot->adopts ? MR_LEDGER_OPEN : MR_LEDGER_BIT(MR_LEDGER_WAITING),
        .to = MR_LEDGER_DISPATCHED,
        .home = mr_slice_str(sched_of(&d->errand)->home)};
}

static void write_sets(struct dispatching *d)
{
    struct app *app = sched_app_of(&d->errand);
    d->set = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                          .app = mr_slice_str(app->name),
                                          .items = d->sets,
                                          .n = d->sets_n,
                                          .results = d->set_results};
    if (d->fenced)
        d->set.fence = (struct mr_store_fence){mr_slice_str(app->lease), app->token};
    d->errand.done = set_done;
    sched_errand_store(&d->errand, &d->set.req);
}

static void write_now(struct dispatching *d)
{
    mr_desk_cancel(d->errand.desk, &d->later);
    mr_list_remove(&d->link);
    write_sets(d);
}

static void later(struct mr_timer *timer, void *arg)
{
    (void)arg;
    write_now(mr_container(timer, struct dispatching, later));
}

/* That the rows say so is in no hurry: what is found to be waiting is dispatched once more at worst. */
static void write_soon(struct dispatching *d)
{
    struct app *app = sched_app_of(&d->errand);
    if (!d->fenced || !sched_is_firing(app)) {
        write_sets(d);
        return;
    }
    mr_list_push_back(&app->dispatched, &d->link);
    mr_desk_after(&app->s->desk, &d->later, LATER_MS);
}

void sched_dispatch_flush(struct app *app)
{
    while (!mr_list_empty(&app->dispatched))
        write_now(mr_container(app->dispatched.next, struct dispatching, link));
}

/* ---- the tasks ------------------------------------------------------------------------------- */

/* The task is refused for good: the firing has failed. */
static void refused(struct app *app, struct shot *shot, enum mr_err err)
{
    struct end end = {.uid = shot->uid,
                      .planned_ms = shot->planned_ms,
                      .run = shot->run,
                      .final = true,
                      .state = MR_LEDGER_FAILED,
                      .finished_ms = sched_now_ms(app->s),
                      .reason = mr_slice_str(mr_err_text(err))};
    sched_end_write(app, &end);
}

/* It stays waiting; if nobody here tries again, who has the app finds it. */
static void try_again(struct dispatching *d, struct shot *shot, enum mr_err err)
{
    struct app *app = sched_app_of(&d->errand);
    mr_diag(MR_DIAG_WARN, "timer.dispatch", "id=%s error=%s", shot->id, mr_err_name(err));
    if (!d->fenced)
        return;
    mr_list_remove(&shot->link);
    mr_list_push_back(&app->shots, &shot->link);
    if (!mr_timer_running(&app->dispatch_again))
        mr_desk_after(&app->s->desk, &app->dispatch_again, AGAIN_MS);
}

/* All of its tasks are there, or what is wrong with the first that is not. */
static enum mr_err outcome(const struct mr_enqueue_result *results, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (results[i].err != MR_OK && results[i].err != MR_CONFLICT)
            return results[i].err;
    }
    return MR_OK;
}

/* Tasks that were made now, not those that were found. */
static void count_load(struct app *app, const struct mr_enqueue_result *results, size_t n)
{
    uint64_t made = 0;
    for (size_t i = 0; i < n; i++)
        made += results[i].err == MR_OK;
    mr_lock_enter(&app->s->lock);
    mr_balance_count(&app->load, mr_mono_now(app->s->desk.clock), made);
    mr_lock_leave(&app->s->lock);
}

static void enqueued(struct mr_errand *errand)
{
    struct dispatching *d = mr_container(errand, struct dispatching, errand);
    size_t i = 0;
    if (d->fenced && !sched_errand_current(errand)) {
        if (sched_of(errand)->home[0] == '\0') {
            dispatching_free(d);
            return;
        }
        d->fenced = false; /* its tasks are in our own broker: whose the app is now is told so */
        sched_app_of(errand)->dispatching--;
    }
    /* The broker is away for longer than it takes to come back: what is written waits for one who reaches it. */
    if (d->fenced && d->enqueue.req.err == MR_UNAVAILABLE) {
        sched_share_give_up(sched_of(errand), MR_UNAVAILABLE);
        dispatching_free(d);
        return;
    }
    count_load(sched_app_of(errand), d->results, d->n);
    for (struct mr_link *at = d->shots.next, *next; at != &d->shots; at = next) {
        struct shot *shot = mr_container(at, struct shot, link);
        enum mr_err err = outcome(d->results + i, shot->tasks_n);
        next = at->next;
        i += shot->tasks_n;
        if (err == MR_OK) {
            note_lateness(sched_of(errand), shot);
            if (d->fenced && shot->tasks_n == 1)
                sched_expire(sched_app_of(errand), shot->def, &shot->uid, shot->planned_ms,
                             shot->run);
            add_set(d, shot);
        } else if (mr_err_retriable(err) || err == MR_CLOSED || err == MR_IO) {
            try_again(d, shot, err);
        } else {
            refused(sched_app_of(errand), shot, err);
        }
    }
    if (d->sets_n > 0)
        write_soon(d);
    else
        dispatching_free(d);
}

static struct dispatching *dispatching_new(struct app *app)
{
    struct dispatching *d = calloc(1, sizeof *d);
    if (d == NULL)
        return NULL;
    d->errand.desk = &app->s->desk;
    mr_list_init(&d->shots);
    mr_list_init(&d->link);
    mr_timer_init(&d->later, later);
    d->errand = (struct mr_errand){.desk = &app->s->desk, .of = app, .done = enqueued};
    d->fenced = app->owned;
    app->dispatching += d->fenced;
    return d;
}

static struct mr_task_options task_of(struct app *app, const struct shot *shot)
{
    struct mr_task_options task = mr_timer_task(&shot->def->options);
    task.topic = mr_slice_str(app->topic);
    task.retention_ms = MR_FIRING_KEPT_MS;
    task.id = mr_slice_str(shot->id);
    return task;
}

/* The tasks of a firing: one, or one for each worker of a broadcast. MR_TOO_BIG: they do not fit any more. */
static enum mr_err add_tasks(struct dispatching *d, struct shot *shot)
{
    struct app *app = sched_app_of(&d->errand);
    struct mr_slice text = {shot->target, shot->target_len};
    struct mr_target *targets;
    size_t n;
    MR_TRY(mr_targets_read(text, mr_slice_str(app->name), &d->arena, &targets, &n));
    if (d->n + n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < n; i++) {
        struct mr_task_options task = task_of(app, shot);
        char id[MR_BROADCAST_ID_MAX];
        task.queue = targets[i].queue;
        if (n > 1) {
            mr_broadcast_id(task.id, targets[i].incarnation, id);
            MR_TRY(mr_arena_copy(&d->arena, mr_slice_str(id), &task.id));
        }
        d->tasks[d->n + i] = task;
    }
    shot->tasks_n = n;
    d->n += n;
    d->shots_n++;
    mr_list_remove(&shot->link);
    mr_list_push_back(&d->shots, &shot->link);
    return MR_OK;
}

static enum mr_err fill(struct dispatching *d, struct mr_link *shots)
{
    while (!mr_list_empty(shots)) {
        struct shot *shot = mr_container(shots->next, struct shot, link);
        enum mr_err err = add_tasks(d, shot);
        if (err == MR_TOO_BIG && d->n > 0)
            break; /* with the next request */
        if (err != MR_OK && err != MR_NOMEM) {
            refused(sched_app_of(&d->errand), shot, err);
            sched_shot_free(shot);
        } else if (err != MR_OK) {
            return err;
        }
    }
    d->sets = calloc(d->shots_n + 1, sizeof *d->sets);
    d->set_results = calloc(d->shots_n + 1, sizeof *d->set_results);
    d->of_set = calloc(d->shots_n + 1, sizeof(*d->of_set));
    return d->sets != NULL && d->set_results != NULL && d->of_set != NULL ? MR_OK : MR_NOMEM;
}

void sched_dispatch(struct app *app, struct mr_link *shots)
{
    /* We stood still: whoever has it now finds the rows, and makes tasks of them. */
    if (!mr_list_empty(shots) && app->owned &&
        mr_mono_now(app->s->desk.clock).ns >= app->until.ns) {
        sched_shots_free(shots);
        sched_lease_lost(app, MR_TIMEOUT);
    }
    while (!mr_list_empty(shots)) {
        struct dispatching *d = dispatching_new(app);
        enum mr_err err = d != NULL ? fill(d, shots) : MR_NOMEM;
        if (err != MR_OK || d->n == 0) {
            if (d != NULL)
                dispatching_free(d);
            if (err != MR_OK)
                sched_shots_free(shots); /* found as open rows later */
            continue;
        }
        d->enqueue = (struct mr_req_enqueue){
            .req.op = MR_OP_ENQUEUE, .tasks = d->tasks, .n = d->n, .results = d->results};
        if (app->s->home[0] != '\0')
            sched_results_begin(app); /* also of what others fire */
        sched_errand_broker(&d->errand, &d->enqueue.req);
    }
}

static void again(struct mr_timer *timer, void *arg)
{
    struct app *app = mr_container(timer, struct app, dispatch_again);
    (void)arg;
    app->s->found++; /* some may be of others' making */
    if (app->owned)
        sched_dispatch(app, &app->shots);
}

void sched_dispatch_init(struct app *app)
{
    mr_list_init(&app->shots);
    mr_list_init(&app->dispatched);
    mr_timer_init(&app->dispatch_again, again);
}

/* Nobody else can see that its tasks are there. */
static void write_unfenced(struct dispatching *d)
{
    sched_app_of(&d->errand)->dispatching -= d->fenced;
    d->fenced = false;
    write_now(d);
}

void sched_dispatch_drop(struct app *app)
{
    sched_shots_free(&app->shots);
    while (!mr_list_empty(&app->dispatched)) {
        struct dispatching *d = mr_container(app->dispatched.next, struct dispatching, link);
        if (app->s->home[0] == '\0')
            dispatching_free(d);
        else
            write_unfenced(d);
    }
}
