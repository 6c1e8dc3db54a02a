/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Firings that go to every worker. Each has one row and several tasks, which the target of the row names. Whenever one
 * of them has ended, all are asked for: when none is left, the firing has ended. Nothing is counted in memory.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"
#include "timer/strategy.h"

struct part {
    struct mr_errand errand;
    struct broadcast *broadcast;
    struct mr_req_get get;
    char id[MR_BROADCAST_ID_MAX];
};

struct broadcast {
    struct mr_errand errand;
    struct mr_link link; /* in app->broadcasts */
    struct app *app;
    struct mr_store_firing_key key;
    struct mr_store_firing_get row;
    struct mr_arena arena;
    struct part *parts;
    size_t n, pending;
    bool again; /* another one has ended meanwhile */
};

bool sched_is_broadcast(struct mr_slice target)
{
    return target.len > 0 && memchr(target.data, '\n', target.len) != NULL;
}

static void look(struct broadcast *b);

static void release(struct broadcast *b)
{
    for (size_t i = 0; i < b->n; i++)
        mr_req_done(&b->parts[i].get.req);
    free(b->parts);
    mr_store_req_done(&b->row.req);
    mr_arena_done(&b->arena);
    b->parts = NULL;
    b->n = 0;
}

static void finish(struct broadcast *b)
{
    bool again = b->again && !b->app->s->desk.stopping;
    release(b);
    if (again) {
        b->again = false;
        look(b);
        return;
    }
    mr_list_remove(&b->link);
    free(b);
}

/* False: some go on. The first that did not succeed says why. */
static bool end_of_all(const struct broadcast *b, struct end *ret_end)
{
    const struct mr_store_firing *row = &b->row.firings[0];
    *ret_end = (struct end){.uid = row->uid,
                            .planned_ms = row->planned_ms,
                            .run = row->run,
                            .final = true,
                            .state = MR_LEDGER_SUCCEEDED};
    for (size_t i = 0; i < b->n; i++) {
        const struct mr_req_get *get = &b->parts[i].get;
        struct end one = {.state = MR_LEDGER_FAILED,
                          .reason = MR_SLICE_LIT("a task of it is gone")};
        if (get->req.err != MR_NOT_FOUND &&
            (get->req.err != MR_OK || !sched_end_of_task(&get->task, &one)))
            return false;
        if (ret_end->state == MR_LEDGER_SUCCEEDED && one.state != MR_LEDGER_SUCCEEDED) {
            ret_end->state = one.state;
            ret_end->reason = one.reason;
        }
        if (one.finished_ms > ret_end->finished_ms)
            ret_end->finished_ms = one.finished_ms;
        if (one.attempt > ret_end->attempt)
            ret_end->attempt = one.attempt;
    }
    if (ret_end->finished_ms == 0)
        ret_end->finished_ms = sched_now_ms(b->app->s);
    return true;
}

static void part_known(struct mr_errand *errand)
{
    struct broadcast *b = mr_container(errand, struct part, errand)->broadcast;
    struct end end;
    if (--b->pending > 0)
        return;
    if (end_of_all(b, &end))
        sched_end_write(b->app, &end);
    finish(b);
}

static enum mr_err ask_parts(struct broadcast *b)
{
    const struct mr_store_firing *row = &b->row.firings[0];
    struct mr_target *targets;
    char id[MR_FIRING_ID_MAX + 1];
    size_t n;
    mr_firing_id(&row->uid, row->planned_ms, row->run, id);
    MR_TRY(mr_targets_read(row->target, mr_slice_str(b->app->name), &b->arena, &targets, &n));
    b->parts = calloc(n, sizeof *b->parts);
    if (b->parts == NULL)
        return MR_NOMEM;
    b->n = b->pending = n;
    for (size_t i = 0; i < n; i++) {
        struct part *part = &b->parts[i];
        part->broadcast = b;
        part->errand =
            (struct mr_errand){.desk = &b->app->s->desk, .of = b->app, .done = part_known};
        mr_broadcast_id(mr_slice_str(id), targets[i].incarnation, part->id);
        part->get = (struct mr_req_get){.req.op = MR_OP_GET, .id = mr_slice_str(part->id)};
    }
    for (size_t i = 0; i < n; i++)
        sched_errand_broker(&b->parts[i].errand, &b->parts[i].get.req);
    return MR_OK;
}

static void row_known(struct mr_errand *errand)
{
    struct broadcast *b = mr_container(errand, struct broadcast, errand);
    bool open = b->row.req.err == MR_OK && mr_ledger_is_open(b->row.firings[0].state) &&
                sched_is_broadcast(b->row.firings[0].target);
    if (!open || ask_parts(b) != MR_OK)
        finish(b);
}

static void look(struct broadcast *b)
{
    b->errand = (struct mr_errand){.desk = &b->app->s->desk, .of = b->app, .done = row_known};
    b->row = (struct mr_store_firing_get){.req.op = MR_STORE_FIRING_GET, .keys = &b->key, .n = 1};
    sched_errand_store(&b->errand, &b->row.req);
}

void sched_broadcast_look(struct app *app, const struct mr_uuid *uid, int64_t planned_ms)
{
    app = app->base; /* as long as it lasts the subApp may go to another */
    for (struct mr_link *at = app->broadcasts.next; at != &app->broadcasts; at = at->next) {
        struct broadcast *b = mr_container(at, struct broadcast, link);
        if (memcmp(&b->key.uid, uid, sizeof *uid) == 0 && b->key.planned_ms == planned_ms) {
            b->again = true;
            return;
        }
    }
    struct broadcast *b = calloc(1, sizeof *b);
    if (b == NULL)
        return; /* it is looked at every now and then */
    b->app = app;
    b->key = (struct mr_store_firing_key){*uid, planned_ms};
    mr_list_push_back(&app->broadcasts, &b->link);
    look(b);
}
