/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends that are written when it has been read how their timer stands: by the owner, when the timer was changed while it
 * ran; by another server, which has no timers in memory. What the timer does next goes with the end, in one step; if
 * the timer is changed again before that, all of it is repeated.
 */
#include <stdlib.h>

#include "timer/sched/internal.h"

enum { TRIES_MAX = 20 }; /* then the walk through the open rows finds it */

struct late {
    struct job job;
    struct end end;
    struct mr_arena arena; /* of the reason */
    struct mr_store_timer_key key;
    struct mr_store_timer_get get;
    struct mr_store_firing_set set;
    struct mr_store_set item;
    struct mr_store_set_result result;
    unsigned tries;
    bool told;
};

static void late_free(struct late *l)
{
    mr_store_req_done(&l->get.req);
    mr_store_req_done(&l->set.req);
    mr_arena_done(&l->arena);
    free(l);
}

static void look(struct late *l);

static void written(struct job *job)
{
    struct late *l = mr_container(job, struct late, job);
    if (l->set.req.err == MR_OK && l->result.err == MR_CONFLICT && l->tries++ < TRIES_MAX) {
        look(l);
        return;
    }
    if (l->set.req.err == MR_OK && l->result.err == MR_OK && !l->told)
        sched_end_told(job->app, &l->end);
    late_free(l);
}

/* Without the lease: whoever has it is told by the store that something was changed. */
static void write_it(struct late *l)
{
    const struct mr_store_timer *timer = &l->get.timers[0];
    const struct end *end = &l->end;
    struct def *def = timer->state != MR_ROW_NONE ? sched_def_new(l->job.s, timer) : NULL;
    l->item = (struct mr_store_set){.uid = end->uid,
                                    .planned_ms = end->planned_ms,
                                    .run = end->run,
                                    .from = MR_LEDGER_OPEN,
                                    .to = end->state,
                                    .reason = end->reason,
                                    .attempt = end->attempt,
                                    .started_ms = end->started_ms,
                                    .finished_ms = end->finished_ms};
    if (def != NULL)
        l->item.move = sched_end_move(def->rule, timer, end->finished_ms);
    sched_def_unref(def);
    l->set = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                          .app = mr_slice_str(l->job.app->name),
                                          .items = &l->item,
                                          .n = 1,
                                          .results = &l->result};
    l->job.done = written;
    sched_job_store(&l->job, &l->set.req);
}

static void known(struct job *job)
{
    struct late *l = mr_container(job, struct late, job);
    struct app *app = job->app;
    if (l->get.req.err != MR_OK) {
        late_free(l); /* found as an open row later */
        return;
    }
    if (app->owned && sched_entry_find(app, &l->end.uid) != NULL)
        (void)sched_entry_load(app, &l->get.timers[0]);
    if (app->owned && !l->told && sched_entry_find(app, &l->end.uid) != NULL) {
        sched_ends_write(app, &l->end, 1, NULL, NULL);
        late_free(l);
    } else {
        write_it(l);
    }
}

static void look(struct late *l)
{
    mr_store_req_done(&l->get.req);
    mr_store_req_done(&l->set.req);
    l->get = (struct mr_store_timer_get){.req.op = MR_STORE_TIMER_GET, .keys = &l->key, .n = 1};
    l->job.done = known;
    sched_job_store(&l->job, &l->get.req);
}

void sched_end_late(struct app *app, const struct end *end, bool told)
{
    struct late *l = calloc(1, sizeof *l);
    if (l == NULL)
        return;
    l->job = (struct job){.s = app->s, .app = app};
    l->end = *end;
    l->told = told;
    l->key.uid = end->uid;
    if (mr_arena_copy(&l->arena, end->reason, &l->end.reason) != MR_OK)
        late_free(l);
    else
        look(l);
}
