/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Firings that may not wait for a worker for ever. When their time is up, a task that nobody has begun goes to the
 * archive, and the firing has failed. One that has been begun goes on.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

struct expiry {
    struct mr_errand errand;
    struct mr_link link; /* in app->expiries */
    struct mr_timer timer;
    struct app *app;
    struct mr_uuid uid;
    int64_t planned_ms, at_ms;
    uint32_t run;
    struct mr_req_get get;
    struct mr_req_control control;
    struct mr_control item;
    enum mr_err err;
    char id[MR_FIRING_ID_MAX + 1];
};

static const struct mr_slice why = MR_SLICE_LIT("no worker took it in time");

static void expiry_free(struct expiry *e)
{
    mr_desk_cancel(&e->app->s->desk, &e->timer);
    mr_list_remove(&e->link);
    mr_req_done(&e->get.req);
    mr_req_done(&e->control.req);
    free(e);
}

static void archived(struct mr_errand *errand)
{
    struct expiry *e = mr_container(errand, struct expiry, errand);
    if (e->control.req.err == MR_OK && e->err == MR_OK && sched_errand_current(errand)) {
        struct end end = {.uid = e->uid,
                          .planned_ms = e->planned_ms,
                          .run = e->run,
                          .final = true,
                          .state = MR_LEDGER_FAILED,
                          .finished_ms = sched_now_ms(sched_of(errand)),
                          .reason = why,
                          .no_worker = true};
        sched_end_write(e->app, &end);
    }
    expiry_free(e);
}

/* A worker that takes it right now wins: what runs is not archived. */
static void looked(struct mr_errand *errand)
{
    struct expiry *e = mr_container(errand, struct expiry, errand);
    bool waits = e->get.req.err == MR_OK && e->get.task.started_ms == 0 &&
                 (e->get.task.state == MR_PENDING || e->get.task.state == MR_SCHEDULED);
    if (!waits || !sched_errand_current(errand)) {
        expiry_free(e);
        return;
    }
    e->item = (struct mr_control){.verb = MR_VERB_ARCHIVE, .id = mr_slice_str(e->id)};
    e->control = (struct mr_req_control){
        .req.op = MR_OP_CONTROL, .items = &e->item, .n = 1, .errs = &e->err};
    errand->done = archived;
    sched_errand_broker(errand, &e->control.req);
}

static void over(struct mr_timer *timer, void *arg)
{
    struct expiry *e = mr_container(timer, struct expiry, timer);
    (void)arg;
    if (sched_now_ms(e->app->s) < e->at_ms) {
        sched_at(e->app->s, timer, e->at_ms);
        return;
    }
    mr_list_remove(&e->link); /* under way: it finds out itself when the app is lost */
    e->errand = (struct mr_errand){.desk = &e->app->s->desk, .of = e->app, .done = looked};
    e->get = (struct mr_req_get){.req.op = MR_OP_GET, .id = mr_slice_str(e->id)};
    sched_errand_broker(&e->errand, &e->get.req);
}

void sched_expire(struct app *app, const struct def *def, const struct mr_uuid *uid,
                  int64_t planned_ms, uint32_t run)
{
    struct expiry *e = def->options.expire_ms > 0 ? calloc(1, sizeof *e) : NULL;
    if (e == NULL)
        return; /* without memory it waits longer */
    e->app = app;
    e->uid = *uid;
    e->planned_ms = planned_ms;
    e->at_ms = planned_ms + def->options.expire_ms;
    e->run = run;
    mr_firing_id(uid, planned_ms, run, e->id);
    mr_timer_init(&e->timer, over);
    mr_list_push_back(&app->expiries, &e->link);
    sched_at(app->s, &e->timer, e->at_ms);
}

void sched_expire_drop(struct app *app)
{
    while (!mr_list_empty(&app->expiries))
        expiry_free(mr_container(app->expiries.next, struct expiry, link));
}
