/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of which nobody wants the result any more. One that waits is deleted, one that runs is told to stop. What is not
 * found is gone already; what escapes runs for nothing, and its result is discarded.
 */
#include <stdlib.h>

#include "job/internal.h"

/* ---- tasks ----------------------------------------------------------------------------------- */

struct tasks {
    struct mr_errand errand;
    struct mr_arena arena;
    struct mr_req_control control;
    struct mr_control *items;
    enum mr_err *errs;
    size_t n;
};

static void tasks_free(struct tasks *t)
{
    mr_req_done(&t->control.req);
    mr_arena_done(&t->arena);
    free(t);
}

static void send(struct tasks *t, void (*done)(struct mr_errand *errand))
{
    t->errand.done = done;
    t->control = (struct mr_req_control){
        .req.op = MR_OP_CONTROL, .items = t->items, .n = t->n, .errs = t->errs};
    mr_errand_broker(&t->errand, &t->control.req);
}

static void cancelled(struct mr_errand *errand)
{
    tasks_free(mr_container(errand, struct tasks, errand));
}

static void deleted(struct mr_errand *errand)
{
    struct tasks *t = mr_container(errand, struct tasks, errand);
    size_t n = 0;
    for (size_t i = 0; t->control.req.err == MR_OK && i < t->n; i++) {
        if (t->errs[i] != MR_RUNNING)
            continue;
        t->items[n] = t->items[i];
        t->items[n++].verb = MR_VERB_CANCEL;
    }
    if (t->control.req.err != MR_OK)
        mr_diag(MR_DIAG_WARN, "job.sweep", "error=%s ignoring=the-tasks",
                mr_err_name(t->control.req.err));
    t->n = n;
    if (n == 0) {
        tasks_free(t);
        return;
    }
    mr_req_done(&t->control.req);
    send(t, cancelled);
}

static enum mr_err fill(struct tasks *t, const struct mr_slice *ids, size_t n)
{
    t->items = mr_arena_calloc(&t->arena, n, sizeof *t->items);
    t->errs = mr_arena_calloc(&t->arena, n, sizeof *t->errs);
    if (t->items == NULL || t->errs == NULL)
        return MR_NOMEM;
    for (; t->n < n; t->n++) {
        t->items[t->n].verb = MR_VERB_DELETE;
        MR_TRY(mr_arena_copy(&t->arena, ids[t->n], &t->items[t->n].id));
    }
    return MR_OK;
}

void job_sweep_tasks(struct mr_job_service *s, const struct mr_slice *ids, size_t n)
{
    while (n > 0) {
        size_t some = n < MR_BATCH_MAX ? n : MR_BATCH_MAX;
        struct tasks *t = calloc(1, sizeof *t);
        if (t == NULL || fill(t, ids, some) != MR_OK) {
            if (t != NULL)
                tasks_free(t);
            return;
        }
        t->errand.desk = &s->desk;
        send(t, deleted);
        ids += some;
        n -= some;
    }
}

/* ---- all of a job ---------------------------------------------------------------------------- */

enum { SWEEPS_MAX = 64 }; /* at once */

struct sweep {
    struct mr_errand errand;
    struct mr_link link; /* in the service's sweeps while it waits */
    struct mr_store_parts_list list;
    struct mr_uuid uid;
    uint32_t round; /* in which it ended */
    uint64_t from;
};

static void sweep_page(struct sweep *w);

static void sweep_free(struct sweep *w)
{
    struct mr_job_service *s = job_of(&w->errand);
    struct mr_link *next = mr_list_pop_front(&s->sweeps);
    mr_store_req_done(&w->list.req);
    free(w);
    if (next != NULL)
        sweep_page(mr_container(next, struct sweep, link));
    else
        s->sweeping--;
}

void job_sweeps_end(struct mr_job_service *s)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&s->sweeps)) != NULL)
        free(mr_container(link, struct sweep, link));
}

/* It was retried: what is submitted from now on is wanted. */
static bool is_retried(const struct sweep *w)
{
    return w->list.n > 0 && w->list.parts[0].round != w->round;
}

/* The tasks of a page: of a part that was run once more there are two. */
static void sweep_parts(struct sweep *w)
{
    size_t n = 0, max = w->list.n * 2;
    char(*texts)[MR_PART_ID_MAX + 1] = max > 0 ? calloc(max, sizeof *texts) : NULL;
    struct mr_slice *ids = max > 0 ? calloc(max, sizeof *ids) : NULL;
    for (size_t i = 0; texts != NULL && ids != NULL && i < w->list.n; i++) {
        const struct mr_store_part *part = &w->list.parts[i];
        struct mr_part_id id = {w->uid, part->segment, part->index, part->stage, part->round};
        for (int twice = 0; twice < (part->again ? 2 : 1); twice++, n++) {
            id.round = twice == 0 ? part->round : part->round ^ 1;
            ids[n] = mr_slice_make(texts[n], mr_part_id_format(&id, texts[n]));
        }
    }
    if (n > 0)
        job_sweep_tasks(job_of(&w->errand), ids, n);
    free(texts);
    free(ids);
}

static void swept(struct mr_errand *errand)
{
    struct sweep *w = mr_container(errand, struct sweep, errand);
    bool fine = w->list.req.err == MR_OK && !is_retried(w);
    bool more = fine && w->list.next > w->from && !job_of(errand)->desk.stopping;
    if (fine)
        sweep_parts(w);
    w->from = w->list.next;
    if (more)
        sweep_page(w);
    else
        sweep_free(w);
}

static void sweep_page(struct sweep *w)
{
    mr_store_req_done(&w->list.req);
    w->list = (struct mr_store_parts_list){.req.op = MR_STORE_PARTS_LIST,
                                           .uid = w->uid,
                                           .states = 1u << MR_PART_SUBMITTED,
                                           .from = w->from,
                                           .max = MR_STORE_BATCH_MAX};
    w->errand.done = swept;
    mr_errand_store(&w->errand, &w->list.req);
}

void job_sweep(struct mr_job_service *s, const struct mr_uuid *uid, uint32_t round)
{
    struct sweep *w = !s->desk.stopping ? calloc(1, sizeof *w) : NULL;
    if (w == NULL)
        return;
    w->errand.desk = &s->desk;
    w->uid = *uid;
    w->round = round;
    if (s->sweeping == SWEEPS_MAX) {
        mr_list_push_back(&s->sweeps, &w->link);
        return;
    }
    s->sweeping++;
    sweep_page(w);
}
