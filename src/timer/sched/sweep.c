/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of firings that go on elsewhere. Where each server has its own broker, whoever has a subApp next makes the tasks of a
 * server that is gone anew in its own. When that server comes back, or was only cut off, those of its tasks that have not begun would run
 * for nothing: they are held against their rows, and deleted where the row says that the task is in another broker. One that
 * has begun goes on to its end; the first end counts.
 *
 * A task is put into the archive first, which is refused for one that has begun meanwhile; only then it is deleted, so that its id is
 * free should the row come back to us. If rows were dispatched here between a question and what follows from its answer,
 * it may have come back already: then it is asked again. What we have made anew ourselves is let alone, also while its row does
 * not say so yet.
 *
 * Others make tasks anew as long as they have not seen that we are back; so it is done three times. That nobody else is seen now does
 * not tell that nobody was: what was seen may be from before we stood still, and who made tasks anew may be gone since. So
 * where others can have the store (there is a gate), it is done whoever is seen.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"
#include "timer/strategy.h"

enum { TRIES_MAX = 20 }; /* of a page; then with the next sweep */

static const enum mr_state states[] = {MR_SCHEDULED, MR_PENDING, MR_RETRY};
static const int64_t pauses_ms[] = {0, 2000, 10000};

enum { STATES_N = sizeof states / sizeof *states, ROUNDS = sizeof pauses_ms / sizeof *pauses_ms };

struct sweep {
    struct mr_errand errand;
    uint64_t life; /* of our row, when it was begun */
    size_t state;  /* of states */
    char cursor[MR_CURSOR_MAX];
    struct mr_req_list list;
    struct mr_store_firing_get get;
    size_t n; /* tasks of the page that are of firings: */
    const struct mr_task *tasks[MR_BATCH_MAX];
    struct mr_store_firing_key keys[MR_BATCH_MAX];
    uint64_t found; /* s->found when they were asked for */
    unsigned tries;
    struct mr_req_control control;
    struct mr_control items[MR_BATCH_MAX];
    enum mr_err errs[MR_BATCH_MAX];
    size_t dropped; /* in all */
};

static void list_page(struct sweep *sw);
static void ask_rows(struct sweep *sw);

static void page_free(struct sweep *sw)
{
    mr_req_done(&sw->list.req);
    mr_store_req_done(&sw->get.req);
    mr_req_done(&sw->control.req);
    sw->n = 0;
}

static void sweep_end(struct sweep *sw, enum mr_err err)
{
    struct mr_scheduler *s = sched_of(&sw->errand);
    if (sw->dropped > 0)
        mr_diag(MR_DIAG_INFO, "timer.moved", "deleted=%zu go on elsewhere", sw->dropped);
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "timer.moved", "error=%s trying again", mr_err_name(err));
    SCHED_COUNT(s, moved, sw->dropped);
    if (err == MR_OK && !s->desk.stopping)
        sched_keep_swept(s, sw->life);
    page_free(sw);
    free(sw);
    s->sweeping = false;
    s->sweep_ended = mr_mono_now(s->desk.clock);
    if (err == MR_OK)
        mr_event_set(&s->swept);
    s->sweep_round += err == MR_OK;
    if (s->sweep_round < ROUNDS && !s->desk.stopping)
        mr_desk_after(&s->desk, &s->sweep, err == MR_OK ? pauses_ms[s->sweep_round] : AGAIN_MS);
}

static void page_end(struct sweep *sw)
{
    memcpy(sw->cursor, sw->list.next, sizeof sw->cursor);
    page_free(sw);
    sw->state += sw->cursor[0] == '\0';
    if (sw->state == STATES_N || sched_of(&sw->errand)->desk.stopping)
        sweep_end(sw, MR_OK);
    else
        list_page(sw);
}

/* ---- deleting --------------------------------------------------------------------------------- */

static void control(struct sweep *sw, size_t n, void (*done)(struct mr_errand *errand))
{
    mr_req_done(&sw->control.req);
    sw->control = (struct mr_req_control){
        .req.op = MR_OP_CONTROL, .items = sw->items, .n = n, .errs = sw->errs};
    sw->errand.done = done;
    sched_errand_broker(&sw->errand, &sw->control.req);
}

static void controlled(struct mr_errand *errand)
{
    struct sweep *sw = mr_container(errand, struct sweep, errand);
    enum mr_err err = sw->control.req.err;
    for (size_t i = 0; err == MR_OK && i < sw->control.n; i++)
        sw->dropped += sw->items[i].verb == MR_VERB_DELETE && sw->errs[i] == MR_OK;
    if (err != MR_OK)
        sweep_end(sw, err);
    else
        page_end(sw);
}

/* Those that have not begun. What may have come back to us takes its place again. */
static void archived(struct mr_errand *errand)
{
    struct sweep *sw = mr_container(errand, struct sweep, errand);
    enum mr_verb verb = sw->found == sched_of(errand)->found ? MR_VERB_DELETE : MR_VERB_RUN;
    size_t n = 0;
    if (sw->control.req.err != MR_OK) {
        sweep_end(sw, sw->control.req.err);
        return;
    }
    for (size_t i = 0; i < sw->control.n; i++) {
        if (sw->errs[i] == MR_OK)
            sw->items[n++] = (struct mr_control){.verb = verb, .id = sw->items[i].id};
    }
    if (n > 0)
        control(sw, n, controlled);
    else
        page_end(sw);
}

/* ---- rows ------------------------------------------------------------------------------------- */

/* It goes on here: its task is made, and the row will say so. */
static bool is_found(const struct mr_scheduler *s, const struct mr_store_firing *row)
{
    for (const struct mr_link *at = s->finds.next; at != &s->finds; at = at->next) {
        const struct shot *shot = mr_container(at, const struct shot, among_found);
        if (shot->planned_ms == row->planned_ms &&
            memcmp(&shot->uid, &row->uid, sizeof row->uid) == 0)
            return true;
    }
    return false;
}

/* The row of this very task, and its task is in another broker. */
static bool is_elsewhere(const struct mr_scheduler *s, const struct mr_task *task,
                         const struct mr_store_firing *row)
{
    char topic[MR_TOPIC_MAX + 1];
    return row->state != MR_LEDGER_NONE && row->home.len > 0 &&
           !mr_slice_equal(row->home, mr_slice_str(s->home)) &&
           mr_slice_equal(task->topic, mr_firing_topic(row->app, topic)) && !is_found(s, row);
}

static void rows_known(struct mr_errand *errand)
{
    struct sweep *sw = mr_container(errand, struct sweep, errand);
    size_t n = 0;
    if (sw->get.req.err != MR_OK) {
        sweep_end(sw, sw->get.req.err);
        return;
    }
    if (sw->found != sched_of(errand)->found) {
        if (sw->tries++ < TRIES_MAX)
            ask_rows(sw);
        else
            page_end(sw);
        return;
    }
    for (size_t i = 0; i < sw->n; i++) {
        if (is_elsewhere(sched_of(errand), sw->tasks[i], &sw->get.firings[i]))
            sw->items[n++] = (struct mr_control){.verb = MR_VERB_ARCHIVE, .id = sw->tasks[i]->id};
    }
    if (n > 0)
        control(sw, n, archived);
    else
        page_end(sw);
}

static void ask_rows(struct sweep *sw)
{
    mr_store_req_done(&sw->get.req);
    sw->found = sched_of(&sw->errand)->found;
    sw->get =
        (struct mr_store_firing_get){.req.op = MR_STORE_FIRING_GET, .keys = sw->keys, .n = sw->n};
    sw->errand.done = rows_known;
    sched_errand_store(&sw->errand, &sw->get.req);
}

/* ---- tasks ------------------------------------------------------------------------------------ */

static void page_known(struct mr_errand *errand)
{
    struct sweep *sw = mr_container(errand, struct sweep, errand);
    if (sw->list.req.err != MR_OK) {
        sweep_end(sw, sw->list.req.err);
        return;
    }
    for (size_t i = 0; i < sw->list.n; i++) {
        const struct mr_task *task = &sw->list.tasks[i];
        struct mr_slice part_of = mr_broadcast_firing(task->id);
        struct mr_store_firing_key *key = &sw->keys[sw->n];
        uint32_t run;
        if (!mr_firing_id_parse(part_of.len > 0 ? part_of : task->id, &key->uid, &key->planned_ms,
                                &run))
            continue;
        sw->tasks[sw->n++] = task;
    }
    sw->tries = 0;
    if (sw->n > 0)
        ask_rows(sw);
    else
        page_end(sw);
}

static void list_page(struct sweep *sw)
{
    sw->list = (struct mr_req_list){
        .req.op = MR_OP_LIST,
        .options = {.state = states[sw->state],
                    .cursor = sw->cursor[0] != '\0' ? sw->cursor : NULL,
                    .limit = MR_BATCH_MAX},
    };
    sw->errand.done = page_known;
    sched_errand_broker(&sw->errand, &sw->list.req);
}

/* ---- when ------------------------------------------------------------------------------------- */

static void begin(struct mr_timer *timer, void *arg)
{
    struct mr_scheduler *s = arg;
    struct sweep *sw = s->sweeping || s->desk.stopping ? NULL : calloc(1, sizeof *sw);
    if (s->desk.stopping)
        return;
    if (sw == NULL) {
        mr_desk_after(&s->desk, timer, AGAIN_MS);
        return;
    }
    s->sweeping = true;
    sw->errand.desk = &s->desk;
    sw->life = s->row_life;
    list_page(sw);
}

void sched_sweep_init(struct mr_scheduler *s)
{
    mr_event_init(&s->swept);
    mr_timer_init(&s->sweep, begin);
}

void sched_sweep_look(struct mr_scheduler *s, bool is_shared)
{
    if (s->home[0] == '\0' || (s->gate == NULL && !is_shared)) {
        mr_event_set(&s->swept); /* nobody else can have made anything anew */
        return;
    }
    if (!s->sweep_due)
        return;
    bool is_soon = s->sweep_ended.ns != 0 &&
                   mr_mono_now(s->desk.clock).ns < mr_mono_add_ms(s->sweep_ended, AGAIN_MS).ns;
    s->sweep_due = false;
    s->sweep_round = 0;
    mr_desk_after(&s->desk, &s->sweep, is_soon ? AGAIN_MS : 0);
}

bool mr_scheduler_await_swept(struct mr_scheduler *scheduler, int64_t max_ms)
{
    return mr_event_wait(&scheduler->swept, max_ms * MR_NS_PER_MS);
}
