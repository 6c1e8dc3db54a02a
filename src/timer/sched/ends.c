/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of firings. Their tasks name a topic of the app, where a node of ours takes the results; they are
 * committed when the ledger has them. An end may come twice, or by other ways than this: the row is written once.
 *
 * Those of timers that are ours are written under the lease of the app or the subApp; of others, whose tasks are in our broker
 * because they were made there, without one: who fires them is told by the store.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"
#include "timer/strategy.h"

enum {
    RECOVER_MS = 50, /* those of a subApp that is being recovered wait so long */
};

/* ---- ends become rows ------------------------------------------------------------------------ */

struct ending {
    struct mr_errand errand;
    struct mr_store_firing_set req;
    struct mr_arena arena;
    size_t n;
    struct end *ends;
    struct mr_store_set *items;
    struct mr_store_set_result *results;
    bool fenced;
    ends_done *done;
    void *arg;
};

static void ending_free(struct ending *e)
{
    mr_store_req_done(&e->req.req);
    mr_arena_done(&e->arena);
    free(e);
}

static void tell_failure(struct app *app, const struct end *end)
{
    struct entry *entry = sched_entry_find(app, &end->uid);
    char id[MR_FIRING_ID_MAX + 1];
    mr_firing_id(&end->uid, end->planned_ms, end->run, id);
    sched_alarm(app->s, &(struct mr_scheduler_alarm){
                            .kind = end->no_worker ? MR_ALARM_NO_WORKER : MR_ALARM_FAILED,
                            .app = mr_slice_str(app->name),
                            .name = entry != NULL ? entry->def->options.name : (struct mr_slice){0},
                            .uid = end->uid,
                            .planned_ms = end->planned_ms,
                            .task_id = mr_slice_str(id),
                            .reason = end->reason});
}

/* What its timer does next, where that waits for ends. */
static void entry_ended(struct app *app, const struct ending *e, size_t i)
{
    const struct end *end = &e->ends[i];
    const struct mr_store_set *item = &e->items[i];
    struct entry *entry = app->owned ? sched_entry_find(app, &end->uid) : NULL;
    if (entry == NULL)
        return;
    bool queues = entry->def->options.overlap == MR_OVERLAP_QUEUE;
    bool ask = item->move.moves && !e->results[i].moved;
    struct mr_uuid uid = entry->uid;
    if (item->move.moves && e->results[i].moved) {
        entry->plan.next_ms = item->move.to_ms;
        entry->plan.admitted_ms = 0;
    }
    /* Another run is open, perhaps one that we were not told of: before this one is closed, with which the entry may go. */
    entry->unsure |= ask;
    if (ask && entry->state == ENTRY_FIRING)
        entry->changed = true;
    else if (ask)
        sched_entry_ask(entry);
    entry = sched_entry_find(app, &uid);
    if (entry != NULL)
        sched_entry_closed(entry, end->planned_ms);
    entry = sched_entry_find(app, &uid);
    if (entry != NULL && !ask)
        sched_entry_settle(entry);
    if (queues)
        sched_recover_timer(app, &uid);
}

static void count_end(struct mr_scheduler *s, enum mr_ledger_state state)
{
    mr_lock_enter(&s->lock);
    s->figures.succeeded += state == MR_LEDGER_SUCCEEDED;
    s->figures.failed += state == MR_LEDGER_FAILED;
    s->figures.cancelled += state == MR_LEDGER_CANCELLED || state == MR_LEDGER_STOPPED;
    mr_lock_leave(&s->lock);
}

void sched_end_told(struct app *app, const struct end *end)
{
    count_end(app->s, end->state);
    if (end->state == MR_LEDGER_FAILED)
        tell_failure(app, end);
}

static void written(struct mr_errand *errand)
{
    struct ending *e = mr_container(errand, struct ending, errand);
    struct app *app = sched_app_of(errand);
    enum mr_err err = e->req.req.err;
    bool current = !e->fenced || sched_errand_current(errand);
    for (size_t i = 0; err == MR_OK && current && i < e->n; i++) {
        if (!e->ends[i].final)
            continue;
        if (e->results[i].err == MR_OK)
            sched_end_told(app, &e->ends[i]);
        if (e->results[i].err == MR_CONFLICT) /* its timer was changed */
            sched_end_late(app, &e->ends[i]);
        else if (e->results[i].err != MR_STALE)
            entry_ended(app, e, i);
    }
    if (err == MR_STALE && current)
        sched_lease_lost(app, MR_STALE);
    if (e->done != NULL)
        e->done(app, current ? err : MR_STALE, e->arg);
    ending_free(e);
}

/* After-done: with the end of its last run the next time is known, in the same step. */
static void add_move(struct app *app, const struct end *end, struct mr_store_set *item)
{
    struct entry *entry = app->owned ? sched_entry_find(app, &end->uid) : NULL;
    if (entry == NULL)
        return;
    struct mr_store_timer timer = {
        .state = MR_ROW_ACTIVE, .version = entry->version, .fired = entry->plan.fired};
    item->move = sched_end_move(entry->def->rule, &timer, end->finished_ms);
}

/* Whether the timer waits for an end, and other runs of it are open, only the store can tell: what is in memory may be older than
 * what another server has just written. */
struct mr_store_move sched_end_move(const struct mr_rule *rule, const struct mr_store_timer *timer,
                                    int64_t finished_ms)
{
    if (mr_rule_kind_of(rule) != MR_TIMER_AFTER_DONE || timer->state != MR_ROW_ACTIVE)
        return (struct mr_store_move){.moves = false};
    int64_t next_ms = mr_plan_after_end(rule, timer->fired, finished_ms, MR_NEVER_MS);
    return (struct mr_store_move){.moves = true,
                                  .when = MR_STORE_WHEN_NONE_OPEN,
                                  .version = timer->version,
                                  .from_ms = MR_STORE_NEVER_MS,
                                  .to_ms = next_ms,
                                  .state =
                                      next_ms == MR_NEVER_MS ? MR_ROW_FINISHED : MR_ROW_ACTIVE};
}

struct mr_store_set sched_end_set(const struct end *end)
{
    return (struct mr_store_set){.uid = end->uid,
                                 .planned_ms = end->planned_ms,
                                 .run = end->run,
                                 .from = MR_LEDGER_OPEN,
                                 .to = end->final ? end->state : MR_LEDGER_DISPATCHED,
                                 .reason = end->reason,
                                 .attempt = end->attempt,
                                 .started_ms = end->started_ms,
                                 .finished_ms = end->final ? end->finished_ms : 0};
}

static enum mr_err ending_fill(struct app *app, struct ending *e, const struct end *ends, size_t n)
{
    e->ends = mr_arena_calloc(&e->arena, n, sizeof *e->ends);
    e->items = mr_arena_calloc(&e->arena, n, sizeof *e->items);
    e->results = mr_arena_calloc(&e->arena, n, sizeof *e->results);
    if (e->ends == NULL || e->items == NULL || e->results == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        struct end *end = &e->ends[i];
        *end = ends[i];
        end->reason.len = mr_utf8_cut(end->reason, MR_STORE_REASON_MAX);
        MR_TRY(mr_arena_copy(&e->arena, end->reason, &end->reason));
        e->items[i] = sched_end_set(end);
        if (end->final)
            add_move(app, end, &e->items[i]);
    }
    e->n = n;
    return MR_OK;
}

void sched_ends_write(struct app *app, const struct end *ends, size_t n, ends_done *done, void *arg)
{
    struct ending *e = calloc(1, sizeof *e);
    enum mr_err err = e != NULL ? ending_fill(app, e, ends, n) : MR_NOMEM;
    if (err != MR_OK) {
        if (e != NULL)
            ending_free(e);
        if (done != NULL)
            done(app, err, arg);
        return;
    }
    e->errand = (struct mr_errand){.desk = &app->s->desk, .of = app, .done = written};
    e->done = done;
    e->arg = arg;
    e->fenced = app->owned;
    e->req = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                          .app = mr_slice_str(app->name),
                                          .items = e->items,
                                          .n = n,
                                          .results = e->results};
    if (e->fenced)
        e->req.fence = (struct mr_store_fence){mr_slice_str(app->lease), app->token};
    sched_errand_store(&e->errand, &e->req.req);
}

void sched_end_write(struct app *app, const struct end *end)
{
    app = sched_app_for(app, &end->uid);
    if (app->owned)
        sched_ends_write(app, end, 1, NULL, NULL);
    else
        sched_end_late(app, end);
}

/* ---- results --------------------------------------------------------------------------------- */

enum stage { STAGE_NEW, STAGE_PUT_OFF /* until nothing is fired */, STAGE_BEGUN };

/* Some results in hand, until the ledger has them. */
struct taken {
    struct mr_intake_batch *batch;
    struct app *app;
    struct end *ends;
    size_t n;
    enum stage stage;
    size_t pending; /* requests that write them */
    enum mr_err err;
};

static enum mr_ledger_state state_of(const struct mr_result *result)
{
    return result->outcome == MR_RESULT_OK          ? MR_LEDGER_SUCCEEDED
           : result->outcome == MR_RESULT_CANCELLED ? MR_LEDGER_STOPPED
                                                    : MR_LEDGER_FAILED;
}

/* What is none of ours is passed over. */
static void read_result(struct mr_intake_batch *batch, const struct mr_result *result)
{
    struct taken *t = batch->of;
    struct end *end = &t->ends[t->n];
    struct mr_slice part_of = mr_broadcast_firing(result->task_id);
    if (!mr_firing_id_parse(part_of.len > 0 ? part_of : result->task_id, &end->uid,
                            &end->planned_ms, &end->run))
        return;
    if (part_of.len > 0) { /* perhaps the last one of them */
        if (result->final)
            sched_broadcast_look(t->app, &end->uid, end->planned_ms);
        return;
    }
    end->final = result->final;
    end->state = state_of(result);
    end->attempt = result->attempt;
    end->finished_ms = result->finished_ms;
    end->reason = result->error;
    t->n++;
}

static enum mr_err begin_results(struct mr_intake_batch *batch, size_t n)
{
    struct taken *t = batch->of = calloc(1, sizeof *t);
    if (t == NULL)
        return MR_NOMEM;
    t->batch = batch;
    t->app = batch->intake->of;
    t->ends = calloc(n, sizeof *t->ends);
    return t->ends != NULL ? MR_OK : MR_NOMEM;
}

static void end_results(struct mr_intake_batch *batch)
{
    struct taken *t = batch->of;
    if (t == NULL)
        return;
    free(t->ends);
    free(t);
}

/* All of them, or once more. */
static void ends_written(struct app *app, enum mr_err err, void *arg)
{
    struct taken *t = arg;
    (void)app;
    if (err != MR_OK)
        t->err = err;
    if (--t->pending == 0)
        mr_intake_written(t->batch, t->err, t->err == MR_STALE ? RECOVER_MS : AGAIN_MS);
}

/* It must be known what else is open before an end is written. */
static bool must_wait(const struct taken *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct app *app = sched_app_for(t->app, &t->ends[i].uid);
        if (app->owned && app->recovering)
            return true;
    }
    return false;
}

/* Those that are written together with one end: they are of the same subApp. Takes them out of the list. */
static void write_some(struct taken *t, struct end *left, size_t *left_n, struct end *some)
{
    struct app *app = sched_app_for(t->app, &left[0].uid);
    size_t n = 0, rest = 0;
    for (size_t i = 0; i < *left_n; i++) {
        if (sched_app_for(t->app, &left[i].uid) == app)
            some[n++] = left[i];
        else
            left[rest++] = left[i];
    }
    *left_n = rest;
    t->pending++;
    if (app->owned)
        sched_ends_write(app, some, n, ends_written, t);
    else
        sched_ends_late(app, some, n, ends_written, t);
}

static void write_all(struct taken *t)
{
    size_t left_n = t->n;
    struct end *left = left_n > 0 ? calloc(2 * left_n, sizeof *left) : NULL;
    t->err = left != NULL || left_n == 0 ? MR_OK : MR_NOMEM;
    t->pending = 1; /* until all are on their way */
    if (left != NULL)
        memcpy(left, t->ends, left_n * sizeof *left);
    while (left != NULL && left_n > 0)
        write_some(t, left, &left_n, left + t->n);
    free(left);
    ends_written(t->app, t->err, t);
}

/* Ends are in no hurry: what is due goes first, for a while. */
static void write_results(struct mr_intake_batch *batch)
{
    struct taken *t = batch->of;
    if (t->stage == STAGE_NEW && t->n > 0 && sched_is_any_firing(t->app)) {
        t->stage = STAGE_PUT_OFF;
        mr_intake_later(batch, LATER_MS);
        return;
    }
    t->stage = STAGE_BEGUN;
    if (must_wait(t))
        mr_intake_later(batch, RECOVER_MS);
    else
        write_all(t);
}

static void tell_trouble(struct mr_intake *intake, enum mr_err err)
{
    const struct app *base = intake->of;
    mr_diag(MR_DIAG_WARN, "timer.results", "app=%s error=%s", base->name, mr_err_name(err));
}

static const struct mr_intake_calls results_calls = {
    .begin = begin_results,
    .read = read_result,
    .write = write_results,
    .end = end_results,
    .trouble = tell_trouble,
};

void sched_results_flush(struct app *base)
{
    for (struct mr_link *at = base->results.batches.next, *next; at != &base->results.batches;
         at = next) {
        struct mr_intake_batch *batch = mr_container(at, struct mr_intake_batch, link);
        const struct taken *t = batch->of;
        next = at->next;
        if (t->stage == STAGE_PUT_OFF)
            mr_intake_now(batch);
    }
}

void sched_results_init(struct app *base)
{
    mr_intake_init(&base->results, &base->s->desk, &results_calls, base);
}

void sched_results_begin(struct app *app)
{
    mr_intake_begin(&app->base->results, app->base->topic, NODE_LEASE_MS);
}

/* Our own broker may have tasks of subApps that are others' by now. */
static bool is_needed(const struct app *base)
{
    bool needed = base->owned || base->s->home[0] != '\0';
    for (struct mr_link *at = base->parts.next; !needed && at != &base->parts; at = at->next)
        needed = mr_container(at, struct app, of_base)->owned;
    return needed && !base->s->desk.stopping;
}

void sched_results_end(struct app *app)
{
    if (!is_needed(app->base))
        mr_intake_end(&app->base->results);
}
