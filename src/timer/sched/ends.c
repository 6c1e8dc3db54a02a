/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ends of firings. Their tasks name a topic of the app, where a node of ours takes the results; they are
 * committed when the ledger has them. An end may come twice, or by other ways than this: the row is written once.
 *
 * Those of timers that are ours are written under the lease of the app or the subApp; of others, whose tasks are in our broker
 * because they were made there, without one: who fires them is told by the store.
 */
#include <stdlib.h>

#include "broker/result.h"
#include "timer/sched/internal.h"
#include "timer/strategy.h"

enum {
    WRITING_MAX = 4, /* batches of results that are not committed yet */
    RECOVER_MS = 50, /* those of a subApp that is being recovered wait so long */
};

/* ---- ends become rows ------------------------------------------------------------------------ */

struct ending {
    struct errand errand;
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

static void written(struct errand *errand)
{
    struct ending *e = mr_container(errand, struct ending, errand);
    struct app *app = errand->app;
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
    e->errand = (struct errand){.s = app->s, .app = app, .done = written};
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

/* Some results in hand, until the ledger has them. */
struct taken {
    struct errand errand;
    struct app *app;
    struct mr_req_take take;
    struct mr_req_finish commit;
    size_t n;
    struct mr_finish *items;
    enum mr_err *errs;
    struct end *ends;
    size_t ends_n;
    size_t pending; /* requests that write them */
    enum mr_err err;
    uint64_t node, round;
    struct mr_link link; /* in results.writing */
    struct mr_timer again;
    bool put_off; /* until nothing is fired */
};

struct beating {
    struct errand errand;
    struct mr_req_node_open open;
    struct mr_req_beat beat;
    struct mr_req_node_close close;
    struct mr_worker_queue queue;
    char queue_name[MR_NAME_MAX + 1];
    uint64_t round;
};

static void take(struct app *app);
static void node_close(struct app *app, uint64_t node);

/* Results of the base are taken, as when that was begun. */
static bool is_on(const struct app *base, uint64_t round)
{
    return base->results.on && base->results.round == round;
}

static void taken_free(struct taken *t)
{
    while (t->take.leases != NULL) {
        struct mr_lease *lease = t->take.leases;
        t->take.leases = lease->next;
        mr_lease_free(lease);
    }
    mr_req_done(&t->take.req);
    mr_req_done(&t->commit.req);
    mr_wheel_stop(t->app->s->wheel, &t->again);
    if (!mr_list_empty(&t->link)) {
        mr_list_remove(&t->link);
        t->app->results.writing--;
    }
    free(t->items);
    free(t->errs);
    free(t->ends);
    free(t);
}

/* It is gone, or of no use; what it holds goes back, and comes to the next one. */
static void node_lost(struct app *app, uint64_t node, enum mr_err err)
{
    if (app->results.node != node || node == 0)
        return;
    mr_diag(MR_DIAG_WARN, "timer.results", "app=%s error=%s", app->name, mr_err_name(err));
    app->results.node = 0;
    node_close(app, node);
    sched_after(app->s, &app->results.again, AGAIN_MS);
}

static enum mr_ledger_state state_of(const struct mr_result *result)
{
    return result->outcome == MR_RESULT_OK          ? MR_LEDGER_SUCCEEDED
           : result->outcome == MR_RESULT_CANCELLED ? MR_LEDGER_STOPPED
                                                    : MR_LEDGER_FAILED;
}

/* One result; what is none of ours is committed unseen. */
static void read_result(struct taken *t, struct mr_lease *lease)
{
    struct mr_result result;
    struct end *end = &t->ends[t->ends_n];
    t->items[t->n++] = (struct mr_finish){
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    if (mr_result_decode(lease->task.payload, &result) != MR_OK)
        return;
    struct mr_slice part_of = mr_broadcast_firing(result.task_id);
    if (!mr_firing_id_parse(part_of.len > 0 ? part_of : result.task_id, &end->uid, &end->planned_ms,
                            &end->run))
        return;
    if (part_of.len > 0) { /* perhaps the last one of them */
        if (result.final)
            sched_broadcast_look(t->app, &end->uid, end->planned_ms);
        return;
    }
    end->final = result.final;
    end->state = state_of(&result);
    end->attempt = result.attempt;
    end->finished_ms = result.finished_ms;
    end->reason = result.error;
    t->ends_n++;
}

/* It is done with; if too many were not, the next ones were not asked for. */
static void taken_end(struct taken *t)
{
    struct app *app = t->app;
    taken_free(t);
    if (app->results.on && app->results.node != 0 && !app->results.taking)
        take(app);
}

static void committed(struct errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    if (t->commit.req.err != MR_OK && is_on(t->app, t->round))
        node_lost(t->app, t->node, t->commit.req.err);
    taken_end(t);
}

static void commit(struct taken *t)
{
    t->commit = (struct mr_req_finish){.req.op = MR_OP_FINISH,
                                       .items = t->items,
                                       .n = t->n,
                                       .errs = t->errs,
                                       .only_results = true};
    t->errand.done = committed;
    sched_errand_broker(&t->errand, &t->commit.req);
}

/* All of them, or once more. */
static void ends_written(struct app *app, enum mr_err err, void *arg)
{
    struct taken *t = arg;
    struct app *base = t->app;
    (void)app;
    if (err != MR_OK)
        t->err = err;
    if (--t->pending > 0)
        return;
    if (t->err == MR_OK) {
        commit(t);
    } else if (base->results.node != t->node) {
        taken_end(t); /* with the node they go back, to whoever has the app now */
    } else {
        mr_diag(MR_DIAG_WARN, "timer.results", "app=%s error=%s", base->name, mr_err_name(t->err));
        sched_after(base->s, &t->again, t->err == MR_STALE ? RECOVER_MS : AGAIN_MS);
    }
}

/* It must be known what else is open before an end is written. */
static bool must_wait(const struct taken *t)
{
    for (size_t i = 0; i < t->ends_n; i++) {
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
    size_t left_n = t->ends_n;
    struct end *left = calloc(2 * left_n, sizeof *left);
    t->err = left != NULL ? MR_OK : MR_NOMEM;
    t->pending = 1; /* until all are on their way */
    if (left != NULL)
        memcpy(left, t->ends, left_n * sizeof *left);
    while (left != NULL && left_n > 0)
        write_some(t, left, &left_n, left + t->ends_n);
    free(left);
    ends_written(t->app, t->err, t);
}

static void write_now(struct taken *t)
{
    mr_wheel_stop(t->app->s->wheel, &t->again);
    t->put_off = false;
    if (t->app->results.node != t->node)
        taken_end(t);
    else if (must_wait(t))
        sched_after(t->app->s, &t->again, RECOVER_MS);
    else
        write_all(t);
}

static void write_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    write_now(mr_container(timer, struct taken, again));
}

/* Ends are in no hurry either. */
static void write_soon(struct taken *t)
{
    t->put_off = sched_is_any_firing(t->app);
    if (t->put_off)
        sched_after(t->app->s, &t->again, LATER_MS);
    else
        write_now(t);
}

void sched_results_flush(struct app *base)
{
    for (struct mr_link *at = base->results.written.next, *next; at != &base->results.written;
         at = next) {
        struct taken *t = mr_container(at, struct taken, link);
        next = at->next;
        if (t->put_off)
            write_now(t);
    }
}

static enum mr_err open_leases(struct taken *t)
{
    size_t n = t->take.n;
    t->items = calloc(n, sizeof *t->items);
    t->errs = calloc(n, sizeof *t->errs);
    t->ends = calloc(n, sizeof *t->ends);
    if (t->items == NULL || t->errs == NULL || t->ends == NULL)
        return MR_NOMEM;
    for (struct mr_lease *lease = t->take.leases; lease != NULL && t->n < n; lease = lease->next) {
        MR_TRY(mr_broker_lease_open(t->errand.s->broker, lease));
        read_result(t, lease);
    }
    return MR_OK;
}

static void took(struct errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct app *app = t->app;
    enum mr_err err = t->take.req.err;
    bool ours = is_on(app, t->round) && app->results.node == t->node;
    if (ours)
        app->results.taking = false;
    if (ours && err == MR_OK)
        err = open_leases(t);
    if (!ours || err != MR_OK) {
        if (ours && err != MR_EMPTY)
            node_lost(app, t->node, err);
        else if (ours)
            take(app);
        taken_free(t);
        return;
    }
    mr_list_push_back(&app->results.written, &t->link);
    if (++app->results.writing < WRITING_MAX)
        take(app);
    if (t->ends_n > 0)
        write_soon(t);
    else
        commit(t);
}

static void take(struct app *app)
{
    struct taken *t = calloc(1, sizeof *t);
    if (t == NULL) {
        node_lost(app, app->results.node, MR_NOMEM);
        return;
    }
    t->app = app;
    t->errand = (struct errand){.s = app->s, .app = app, .done = took};
    t->node = app->results.node;
    t->round = app->results.round;
    mr_list_init(&t->link);
    mr_timer_init(&t->again, write_again);
    t->take = (struct mr_req_take){.req.op = MR_OP_TAKE,
                                   .node = t->node,
                                   .max = MR_BATCH_MAX,
                                   .bytes_max = MR_TAKE_BYTES,
                                   .wait_ms = RESULTS_WAIT_MS};
    app->results.taking = true;
    sched_errand_broker(&t->errand, &t->take.req);
}

/* ---- the node -------------------------------------------------------------------------------- */

static void beating_free(struct beating *b)
{
    mr_req_done(&b->open.req);
    mr_req_done(&b->beat.req);
    mr_req_done(&b->close.req);
    free(b);
}

static void closed(struct errand *errand)
{
    beating_free(mr_container(errand, struct beating, errand));
}

/* What it holds goes back. */
static void node_close(struct app *app, uint64_t node)
{
    struct beating *b = calloc(1, sizeof *b);
    if (b == NULL)
        return; /* it does not beat any more */
    b->errand = (struct errand){.s = app->s, .app = app, .done = closed};
    b->close = (struct mr_req_node_close){.req.op = MR_OP_NODE_CLOSE, .node = node};
    sched_errand_broker(&b->errand, &b->close.req);
}

static void opened(struct errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct app *app = errand->app;
    enum mr_err err = b->open.req.err;
    if (err == MR_OK && !is_on(app, b->round)) {
        node_close(app, b->open.node);
    } else if (err == MR_OK) {
        app->results.node = b->open.node;
        sched_after(app->s, &app->results.beat, NODE_BEAT_MS);
        take(app);
    } else if (is_on(app, b->round)) {
        mr_diag(MR_DIAG_WARN, "timer.results", "app=%s error=%s", app->name, mr_err_name(err));
        sched_after(app->s, &app->results.again, AGAIN_MS);
    }
    beating_free(b);
}

/* Of a node that goes there is nothing to tell: what it holds is found out by who commits it. */
static void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void node_open(struct app *app)
{
    struct beating *b = calloc(1, sizeof *b);
    if (b == NULL) {
        sched_after(app->s, &app->results.again, AGAIN_MS);
        return;
    }
    b->errand = (struct errand){.s = app->s, .app = app, .done = opened};
    b->round = app->results.round;
    b->queue.name = mr_result_queue(mr_slice_str(app->topic), b->queue_name);
    b->open = (struct mr_req_node_open){.req.op = MR_OP_NODE_OPEN,
                                        .role = MR_NODE_MASTER,
                                        .name = mr_slice_str(app->topic),
                                        .queues = &b->queue,
                                        .queues_n = 1,
                                        .lease_ms = NODE_LEASE_MS,
                                        .events = {.stop = event_stop}};
    sched_errand_broker(&b->errand, &b->open.req);
}

static void beat_done(struct errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct app *app = errand->app;
    bool gone = b->beat.req.err == MR_NOT_FOUND || b->beat.req.err == MR_CLOSED;
    if (app->results.on && app->results.node == b->beat.node) {
        if (gone)
            node_lost(app, b->beat.node, b->beat.req.err);
        else
            sched_after(app->s, &app->results.beat, NODE_BEAT_MS);
    }
    beating_free(b);
}

static void beat(struct mr_timer *timer, void *arg)
{
    struct app *app = mr_container(timer, struct app, results.beat);
    struct beating *b = app->results.node != 0 ? calloc(1, sizeof *b) : NULL;
    (void)arg;
    if (b == NULL)
        return;
    b->errand = (struct errand){.s = app->s, .app = app, .done = beat_done};
    b->beat = (struct mr_req_beat){.req.op = MR_OP_BEAT, .node = app->results.node};
    sched_errand_broker(&b->errand, &b->beat.req);
}

static void open_again(struct mr_timer *timer, void *arg)
{
    struct app *app = mr_container(timer, struct app, results.again);
    (void)arg;
    if (app->results.on && app->results.node == 0)
        node_open(app);
}

void sched_results_init(struct app *base)
{
    mr_list_init(&base->results.written);
    mr_timer_init(&base->results.beat, beat);
    mr_timer_init(&base->results.again, open_again);
}

void sched_results_begin(struct app *app)
{
    struct app *base = app->base;
    if (base->results.on)
        return;
    base->results.on = true;
    base->results.round++;
    node_open(base);
}

/* Our own broker may have tasks of subApps that are others' by now. */
static bool is_needed(const struct app *base)
{
    bool needed = base->owned || base->s->home[0] != '\0';
    for (struct mr_link *at = base->parts.next; !needed && at != &base->parts; at = at->next)
        needed = mr_container(at, struct app, of_base)->owned;
    return needed && !base->s->stopping;
}

void sched_results_end(struct app *app)
{
    struct app *base = app->base;
    struct results *results = &base->results;
    if (!results->on || is_needed(base))
        return;
    mr_wheel_stop(base->s->wheel, &results->beat);
    mr_wheel_stop(base->s->wheel, &results->again);
    if (results->node != 0)
        node_close(base, results->node);
    results->on = results->taking = false;
    results->round++;
    results->node = 0;
    /* Those that wait to be tried again; the others are under way, and find their app lost. */
    for (struct mr_link *at = results->written.next, *next; at != &results->written; at = next) {
        struct taken *t = mr_container(at, struct taken, link);
        next = at->next;
        if (mr_timer_running(&t->again))
            taken_free(t);
    }
}
