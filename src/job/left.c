/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of parts that are another server's. Where each server has a broker of its own, the parts of a queue's jobs are handed out by
 * who holds the queue's lease, until that ends (broker/gate.h). Who has the queue next does not see the tasks in our broker, and submits
 * those parts again that have no outcome. So what waits in our broker of a queue that others have, or that has no live
 * jobs any more, is deleted; what has begun goes on to its end, and the first outcome counts.
 *
 * A queue is another's when that one has kept us from it for longer than a lease: one that is not renewed, such as that of our own
 * last life, would have ended by then. A task is put into the archive first, which is refused for one that has begun
 * meanwhile; should the queue become ours in between, it takes its place again.
 */
#include <stdlib.h>

#include "job/internal.h"

enum { ROUNDS = 2 }; /* without a find: what was on its way to the broker is there by then */

static const enum mr_state states[] = {MR_SCHEDULED, MR_PENDING, MR_RETRY};
enum { STATES_N = sizeof states / sizeof *states };

struct leaving {
    struct mr_errand errand;
    size_t state; /* of states */
    char cursor[MR_CURSOR_MAX];
    struct mr_req_list list;
    struct mr_req_control control;
    struct mr_control items[MR_BATCH_MAX];
    enum mr_err errs[MR_BATCH_MAX];
    const struct mr_task *tasks[MR_BATCH_MAX]; /* of the items */
    size_t dropped;                            /* in all */
    bool again; /* there is something of which it is not known yet whose it is */
};

static void list_page(struct leaving *l);

static void leaving_end(struct leaving *l, enum mr_err err)
{
    struct mr_job_service *s = job_of(&l->errand);
    if (l->dropped > 0)
        mr_diag(MR_DIAG_INFO, "job.moved", "deleted=%zu go on elsewhere", l->dropped);
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "job.moved", "error=%s trying again", mr_err_name(err));
    JOB_COUNT(s, moved, l->dropped);
    bool is_clean = err == MR_OK && l->dropped == 0 && !l->again;
    s->left_rounds -= is_clean && s->left_rounds > 0;
    s->leaving = false;
    mr_req_done(&l->list.req);
    mr_req_done(&l->control.req);
    free(l);
}

static void page_end(struct leaving *l)
{
    memcpy(l->cursor, l->list.next, sizeof l->cursor);
    mr_req_done(&l->list.req);
    mr_req_done(&l->control.req);
    l->control = (struct mr_req_control){.n = 0};
    l->state += l->cursor[0] == '\0';
    if (l->state == STATES_N || job_of(&l->errand)->desk.stopping)
        leaving_end(l, MR_OK);
    else
        list_page(l);
}

/* ---- whose they are --------------------------------------------------------------------------- */

static bool is_part(const struct mr_task *task)
{
    struct mr_part_id id;
    return mr_slice_equal(task->topic, MR_SLICE_LIT(MR_JOB_TOPIC)) &&
           mr_part_id_parse(task->id, &id);
}

enum whose { OURS, ANOTHERS, NOT_KNOWN };

static enum whose whose_is(const struct mr_job_service *s, struct mr_slice name)
{
    const struct queue *queue = job_queue_find(s, name);
    if (queue != NULL && queue->owned)
        return OURS;
    if (s->listing || !s->listed)
        return NOT_KNOWN;
    if (queue == NULL || !queue->wanted)
        return ANOTHERS; /* it has no live jobs */
    bool is_kept = queue->refused.ns != 0 &&
                   job_since_ms(s, queue->refused) > s->settings.lease_ms + s->settings.renew_ms;
    return is_kept ? ANOTHERS : NOT_KNOWN;
}

/* ---- deleting --------------------------------------------------------------------------------- */

static void control(struct leaving *l, size_t n, void (*done)(struct mr_errand *errand))
{
    mr_req_done(&l->control.req);
    l->control = (struct mr_req_control){
        .req.op = MR_OP_CONTROL, .items = l->items, .n = n, .errs = l->errs};
    l->errand.done = done;
    mr_errand_broker(&l->errand, &l->control.req);
}

static void controlled(struct mr_errand *errand)
{
    struct leaving *l = mr_container(errand, struct leaving, errand);
    enum mr_err err = l->control.req.err;
    for (size_t i = 0; err == MR_OK && i < l->control.n; i++)
        l->dropped += l->items[i].verb == MR_VERB_DELETE && l->errs[i] == MR_OK;
    if (err != MR_OK)
        leaving_end(l, err);
    else
        page_end(l);
}

/* Those that have not begun. */
static void archived(struct mr_errand *errand)
{
    struct leaving *l = mr_container(errand, struct leaving, errand);
    size_t n = 0;
    if (l->control.req.err != MR_OK) {
        leaving_end(l, l->control.req.err);
        return;
    }
    for (size_t i = 0; i < l->control.n; i++) {
        bool is_ours = whose_is(job_of(errand), l->tasks[i]->queue) == OURS;
        if (l->errs[i] == MR_OK)
            l->items[n++] = (struct mr_control){.verb = is_ours ? MR_VERB_RUN : MR_VERB_DELETE,
                                                .id = l->items[i].id};
    }
    if (n > 0)
        control(l, n, controlled);
    else
        page_end(l);
}

static void page_known(struct mr_errand *errand)
{
    struct leaving *l = mr_container(errand, struct leaving, errand);
    size_t n = 0;
    if (l->list.req.err != MR_OK) {
        leaving_end(l, l->list.req.err);
        return;
    }
    for (size_t i = 0; i < l->list.n; i++) {
        const struct mr_task *task = &l->list.tasks[i];
        enum whose whose = is_part(task) ? whose_is(job_of(errand), task->queue) : OURS;
        l->again = l->again || whose == NOT_KNOWN;
        if (whose != ANOTHERS)
            continue;
        l->tasks[n] = task;
        l->items[n++] = (struct mr_control){.verb = MR_VERB_ARCHIVE, .id = task->id};
    }
    if (n > 0)
        control(l, n, archived);
    else
        page_end(l);
}

static void list_page(struct leaving *l)
{
    l->list = (struct mr_req_list){
        .req.op = MR_OP_LIST,
        .options = {.state = states[l->state],
                    .cursor = l->cursor[0] != '\0' ? l->cursor : NULL,
                    .limit = MR_BATCH_MAX},
    };
    l->errand.done = page_known;
    mr_errand_broker(&l->errand, &l->list.req);
}

/* ---- when ------------------------------------------------------------------------------------- */

void job_left_note(struct mr_job_service *s)
{
    s->left_rounds = ROUNDS;
}

void job_left_look(struct mr_job_service *s)
{
    bool is_due =
        s->gate != NULL && s->left_rounds > 0 && s->listed && !s->leaving && !s->desk.stopping;
    struct leaving *l = is_due ? calloc(1, sizeof *l) : NULL;
    if (l == NULL)
        return;
    s->leaving = true;
    l->errand.desk = &s->desk;
    list_page(l);
}
