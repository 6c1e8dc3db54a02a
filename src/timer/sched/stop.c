/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stopping the task of a firing. One that runs is told to, and its end comes as a result. One that has not begun
 * is put into the archive, of which no result tells; nor is there any of one that is not there.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"
#include "timer/strategy.h"

struct stopping {
    struct mr_errand errand;
    struct mr_store_firing_key key;
    struct mr_store_firing_get row;
    struct mr_arena arena;
    struct mr_req_control control;
    struct mr_control *items;
    enum mr_err *errs;
    size_t n;
    struct mr_req_get get;
    uint32_t run;
    const char *why;
    char id[MR_FIRING_ID_MAX + 1];
};

static void stopping_free(struct stopping *st)
{
    mr_store_req_done(&st->row.req);
    mr_req_done(&st->control.req);
    mr_req_done(&st->get.req);
    mr_arena_done(&st->arena);
    free(st);
}

static void looked(struct mr_errand *errand)
{
    struct stopping *st = mr_container(errand, struct stopping, errand);
    struct end end = {.uid = st->key.uid,
                      .planned_ms = st->key.planned_ms,
                      .run = st->run,
                      .final = true,
                      .state = MR_LEDGER_CANCELLED};
    bool ended = st->get.req.err == MR_NOT_FOUND ||
                 (st->get.req.err == MR_OK && sched_end_of_task(&st->get.task, &end));
    if (end.finished_ms == 0)
        end.finished_ms = sched_now_ms(sched_of(errand));
    if (st->why[0] != '\0' && (end.state == MR_LEDGER_CANCELLED || end.state == MR_LEDGER_STOPPED))
        end.reason = mr_slice_str(st->why);
    if (ended)
        sched_end_write(sched_app_of(errand), &end);
    stopping_free(st);
}

static void controlled(struct mr_errand *errand)
{
    struct stopping *st = mr_container(errand, struct stopping, errand);
    if (st->n > 1) {
        sched_broadcast_look(sched_app_of(errand), &st->key.uid, st->key.planned_ms);
        stopping_free(st);
        return;
    }
    st->get = (struct mr_req_get){.req.op = MR_OP_GET, .id = mr_slice_str(st->id)};
    errand->done = looked;
    sched_errand_broker(errand, &st->get.req);
}

/* The tasks that the row has become. */
static enum mr_err name_tasks(struct stopping *st)
{
    struct mr_target *targets;
    size_t n;
    MR_TRY(mr_targets_read(st->row.firings[0].target, mr_slice_str(sched_app_of(&st->errand)->name),
                           &st->arena, &targets, &n));
    st->n = n < MR_BATCH_MAX ? n : MR_BATCH_MAX;
    st->items = mr_arena_calloc(&st->arena, st->n, sizeof *st->items);
    st->errs = mr_arena_calloc(&st->arena, st->n, sizeof *st->errs);
    if (st->items == NULL || st->errs == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < st->n; i++) {
        char id[MR_BROADCAST_ID_MAX];
        st->items[i] = (struct mr_control){.verb = MR_VERB_CANCEL, .id = mr_slice_str(st->id)};
        if (n == 1)
            break;
        mr_broadcast_id(mr_slice_str(st->id), targets[i].incarnation, id);
        MR_TRY(mr_arena_copy(&st->arena, mr_slice_str(id), &st->items[i].id));
    }
    return MR_OK;
}

static void row_known(struct mr_errand *errand)
{
    struct stopping *st = mr_container(errand, struct stopping, errand);
    if (st->row.req.err != MR_OK || st->row.firings[0].state == MR_LEDGER_NONE ||
        name_tasks(st) != MR_OK) {
        stopping_free(st);
        return;
    }
    st->control = (struct mr_req_control){
        .req.op = MR_OP_CONTROL, .items = st->items, .n = st->n, .errs = st->errs};
    errand->done = controlled;
    sched_errand_broker(errand, &st->control.req);
}

void sched_stop_task(struct app *app, const struct mr_uuid *uid, int64_t planned_ms, uint32_t run,
                     const char *why)
{
    struct stopping *st = calloc(1, sizeof *st);
    if (st == NULL)
        return;
    st->key = (struct mr_store_firing_key){*uid, planned_ms};
    st->run = run;
    st->why = why;
    mr_firing_id(uid, planned_ms, run, st->id);
    st->errand = (struct mr_errand){.desk = &app->s->desk, .of = app, .done = row_known};
    st->row = (struct mr_store_firing_get){.req.op = MR_STORE_FIRING_GET, .keys = &st->key, .n = 1};
    sched_errand_store(&st->errand, &st->row.req);
}
