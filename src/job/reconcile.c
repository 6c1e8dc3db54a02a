/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs that do not move. Their parts that were submitted and have no outcome are held against the broker's tasks: one whose
 * task is gone is submitted again, one whose task has ended gets its outcome from it (no result told of it: one
 * that does not know of results has finished it, or they were lost). The rest runs, and is left alone.
 *
 * Stragglers: when a job asks for it and all that can be submitted is, those that are left for so long get a second task
 * each. What is done first counts, and the other one is not wanted any more. A second task that fails leaves it to the
 * first: no part is worse off for having had one.
 */
#include <stdlib.h>

#include "job/internal.h"

/* ---- second tasks ---------------------------------------------------------------------------- */

/* A part with two tasks: of its round, and of the one behind it. */
struct second {
    struct mr_link link; /* in its job's seconds */
    struct mr_part_id part;
};

static void sweep_both(struct mr_job_service *s, const struct mr_part_id *part)
{
    char texts[2][MR_PART_ID_MAX + 1];
    struct mr_slice ids[2];
    struct mr_part_id id = *part;
    for (uint32_t i = 0; i < 2; i++) {
        id.round = (part->round & ~1u) + i;
        ids[i] = mr_slice_make(texts[i], mr_part_id_format(&id, texts[i]));
    }
    job_sweep_tasks(s, ids, 2);
}

void job_seconds_end(struct live *live, const struct mr_part_id *part)
{
    for (struct mr_link *at = live->seconds.next; at != &live->seconds; at = at->next) {
        struct second *second = mr_container(at, struct second, link);
        if (second->part.index != part->index || second->part.stage != part->stage)
            continue;
        sweep_both(live->queue->s, &second->part);
        mr_list_remove(&second->link);
        free(second);
        return;
    }
}

void job_seconds_free(struct live *live)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&live->seconds)) != NULL) {
        struct second *second = mr_container(link, struct second, link);
        if (mr_jobrow_is_ended(live->state))
            sweep_both(live->queue->s, &second->part);
        free(second);
    }
}

static void note_second(struct live *live, const struct mr_part_id *part)
{
    struct second *second = calloc(1, sizeof *second);
    if (second == NULL)
        return; /* it runs to its end, for nothing */
    second->part = *part;
    mr_list_push_back(&live->seconds, &second->link);
}

/* ---- a walk through what is open ------------------------------------------------------------- */

struct walk;

struct look_up {
    struct mr_errand errand;
    struct walk *walk;
    struct mr_req_get get;
    char id[MR_PART_ID_MAX + 1];
};

struct walk {
    struct mr_errand errand;
    struct live *live; /* a reference */
    uint32_t generation;
    enum mr_again_kind kind; /* MR_AGAIN_SECOND: stragglers */
    struct mr_store_parts_list list;
    struct look_up *look_ups; /* two for each part */
    size_t pending;
    struct mr_store_parts_again again;
    struct mr_store_again *items;
    enum mr_err *results;
    uint64_t from;
};

static void walk_free(struct walk *w)
{
    if (w->live->generation == w->generation)
        w->live->walking = false;
    for (size_t i = 0; w->look_ups != NULL && i < w->list.n * 2; i++)
        mr_req_done(&w->look_ups[i].get.req);
    mr_store_req_done(&w->list.req);
    mr_store_req_done(&w->again.req);
    free(w->look_ups);
    free(w->items);
    free(w->results);
    job_live_unref(w->live);
    free(w);
}

static bool is_current(const struct walk *w)
{
    return w->live->queue != NULL && w->live->generation == w->generation &&
           !job_of(&w->errand)->desk.stopping;
}

static void read_page(struct walk *w);

static void page_end(struct walk *w)
{
    uint64_t next = w->list.next;
    if (!is_current(w) || next <= w->from || next >= w->live->total) {
        walk_free(w);
        return;
    }
    for (size_t i = 0; w->look_ups != NULL && i < w->list.n * 2; i++)
        mr_req_done(&w->look_ups[i].get.req);
    free(w->look_ups);
    w->look_ups = NULL;
    w->from = next;
    read_page(w);
}

static void put_back(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    struct mr_job_service *s = job_of(errand);
    uint64_t n = 0;
    for (size_t i = 0; w->again.req.err == MR_OK && i < w->again.n; i++) {
        const struct mr_store_again *item = &w->items[i];
        struct mr_part_id part = {w->live->uid, item->segment, item->index, item->stage,
                                  w->again.round};
        n += w->results[i] == MR_OK;
        if (w->results[i] == MR_OK && w->kind == MR_AGAIN_SECOND && is_current(w))
            note_second(w->live, &part);
    }
    if (w->kind == MR_AGAIN_SECOND)
        JOB_COUNT(s, speculated, n);
    else
        JOB_COUNT(s, resubmitted, n);
    if (w->again.req.err == MR_OK)
        job_changed(s, &w->again.changed);
    else
        mr_diag(MR_DIAG_WARN, "job.reconcile", "job=%s error=%s", w->live->id,
                mr_err_name(w->again.req.err));
    mr_store_req_done(&w->again.req);
    w->again.n = 0;
    page_end(w);
}

/* They come into the ready list, and are submitted from there. */
static void send_again(struct walk *w)
{
    size_t n = w->again.n;
    if (n == 0 || !is_current(w)) {
        page_end(w);
        return;
    }
    w->again = (struct mr_store_parts_again){.req.op = MR_STORE_PARTS_AGAIN,
                                             .fence = job_fence(w->live->queue),
                                             .uid = w->live->uid,
                                             .round = w->live->round,
                                             .items = w->items,
                                             .n = n,
                                             .results = w->results};
    w->errand.done = put_back;
    mr_errand_store(&w->errand, &w->again.req);
}

static void add_again(struct walk *w, const struct mr_store_part *part)
{
    w->items[w->again.n++] = (struct mr_store_again){
        .index = part->index, .segment = part->segment, .stage = part->stage, .kind = w->kind};
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static bool is_moved(const struct mr_task *task)
{
    static const char prefix[] = MR_MOVED_PREFIX;
    return task->state == MR_COMPLETED &&
           mr_slice_starts_with(task->last_error, mr_slice_make(prefix, sizeof prefix - 1));
}

/* What the task says of its end; false: it has not ended, or goes on elsewhere. */
static bool end_of(const struct mr_task *task, struct mr_store_end *end)
{
    if ((task->state != MR_COMPLETED && task->state != MR_ARCHIVED) || is_moved(task))
        return false;
    end->failed = task->state == MR_ARCHIVED;
    end->bytes = end->failed ? task->last_error : task->result;
    end->finished_ms = task->finished_ms;
    return true;
}

/* What the tasks of a part say: it has ended so, it is to be submitted again, or neither. */
enum verdict { GOES_ON, HAS_ENDED, IS_GONE };

static enum verdict judge_part(const struct look_up *ups, bool two, struct mr_store_end *end)
{
    size_t gone = 0, tasks = two ? 2 : 1;
    for (size_t k = 0; k < tasks; k++) {
        bool there = ups[k].get.req.err == MR_OK;
        if (there && end_of(&ups[k].get.task, end)) {
            if (k == 0 || !end->failed)
                return HAS_ENDED;
            gone++; /* of no use */
        }
        gone += ups[k].get.req.err == MR_NOT_FOUND;
    }
    return gone == tasks ? IS_GONE : GOES_ON;
}

/* All tasks of the page are known. */
static void judge(struct walk *w)
{
    struct mr_job_service *s = job_of(&w->errand);
    struct mr_store_end *ends = calloc(w->list.n + 1, sizeof *ends);
    size_t n = 0;
    for (size_t i = 0; ends != NULL && i < w->list.n; i++) {
        const struct mr_store_part *part = &w->list.parts[i];
        struct mr_store_end end = {.uid = w->live->uid,
                                   .index = part->index,
                                   .segment = part->segment,
                                   .stage = part->stage,
                                   .round = part->round};
        enum verdict verdict = judge_part(&w->look_ups[i * 2], part->again, &end);
        if (verdict == HAS_ENDED)
            ends[n++] = end;
        else if (verdict == IS_GONE)
            add_again(w, part);
    }
    if (n > 0) {
        JOB_COUNT(s, reconciled, n);
        job_ends_write(s, ends, n, NULL, NULL);
    }
    free(ends);
    send_again(w);
}

static void looked_up(struct mr_errand *errand)
{
    struct look_up *up = mr_container(errand, struct look_up, errand);
    struct walk *w = up->walk;
    if (--w->pending > 0)
        return;
    if (is_current(w))
        judge(w);
    else
        walk_free(w);
}

static void look_up_tasks(struct walk *w)
{
    w->look_ups = calloc(w->list.n * 2, sizeof *w->look_ups);
    if (w->look_ups == NULL) {
        walk_free(w);
        return;
    }
    w->pending = 1; /* until all are asked for */
    for (size_t i = 0; i < w->list.n * 2; i++) {
        const struct mr_store_part *part = &w->list.parts[i / 2];
        struct mr_part_id id = {w->live->uid, part->segment, part->index, part->stage,
                                i % 2 == 0 ? part->round : part->round ^ 1};
        struct look_up *up = &w->look_ups[i];
        if (i % 2 == 1 && !part->again)
            continue;
        up->walk = w;
        up->errand = (struct mr_errand){.desk = w->errand.desk, .done = looked_up};
        up->get = (struct mr_req_get){.req.op = MR_OP_GET,
                                      .id = mr_slice_make(up->id, mr_part_id_format(&id, up->id))};
        w->pending++;
        mr_errand_broker(&up->errand, &up->get.req);
    }
    w->pending--; /* answers come by messages: none is here yet */
}

/* ---- the store ------------------------------------------------------------------------------- */

static void listed(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    enum mr_err err = w->list.req.err;
    w->again.n = 0;
    if (err != MR_OK || !is_current(w)) {
        walk_free(w);
        return;
    }
    if (w->list.n == 0) {
        page_end(w);
        return;
    }
    free(w->items);
    free(w->results);
    w->items = calloc(w->list.n, sizeof *w->items);
    w->results = calloc(w->list.n, sizeof *w->results);
    if (w->items == NULL || w->results == NULL) {
        walk_free(w);
        return;
    }
    if (w->kind == MR_AGAIN_SAME) {
        look_up_tasks(w);
        return;
    }
    for (size_t i = 0; i < w->list.n; i++) {
        if (!w->list.parts[i].again)
            add_again(w, &w->list.parts[i]);
    }
    send_again(w);
}

static void read_page(struct walk *w)
{
    mr_store_req_done(&w->list.req);
    w->list = (struct mr_store_parts_list){.req.op = MR_STORE_PARTS_LIST,
                                           .uid = w->live->uid,
                                           .states = 1u << MR_PART_SUBMITTED,
                                           .from = w->from,
                                           .max = PAGE_MAX};
    w->errand.done = listed;
    mr_errand_store(&w->errand, &w->list.req);
}

static void walk_begin(struct live *live, enum mr_again_kind kind)
{
    struct walk *w = calloc(1, sizeof *w);
    if (w == NULL)
        return;
    w->errand.desk = &live->queue->s->desk;
    w->live = job_live_ref(live);
    w->generation = live->generation;
    w->kind = kind;
    live->walking = true;
    read_page(w);
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool is_stalled(const struct live *live)
{
    const struct mr_job_service *s = live->queue->s;
    mr_mono since = live->stalled.ns > live->moved.ns ? live->stalled : live->moved;
    return job_since_ms(s, since) >= s->settings.reconcile_ms;
}

/* The first stage with open parts, when all that can be submitted is, for long enough; else stages_n. */
static size_t straggling_stage(const struct live *live)
{
    int64_t now_ms = mr_wall_ms(mr_wall_now(live->queue->s->desk.clock));
    if (live->options.speculate_ms == 0 || live->state != MR_JOBROW_RUNNING ||
        !mr_list_empty(&live->batches) || job_pump_has_more(live))
        return live->stages_n;
    for (size_t i = 0; i < live->stages_n; i++) {
        const struct mr_store_stage *stage = &live->stages[i];
        if (mr_store_stage_open(stage) == 0)
            continue;
        return now_ms - stage->sent_ms >= live->options.speculate_ms ? i : live->stages_n;
    }
    return live->stages_n;
}

void job_reconcile_look(struct queue *queue)
{
    for (struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next) {
        struct live *live = mr_container(at, struct live, link);
        uint64_t open = job_live_outstanding(live) - live->in_hand;
        size_t stage = straggling_stage(live);
        uint64_t sped = (uint64_t)live->round * MR_JOB_STAGES_MAX + stage + 1;
        if (live->walking || open == 0)
            continue;
        if (is_stalled(live)) {
            live->stalled = mr_mono_now(queue->s->desk.clock);
            walk_begin(live, MR_AGAIN_SAME);
        } else if (stage < live->stages_n && live->sped != sped) {
            live->sped = sped;
            walk_begin(live, MR_AGAIN_SECOND);
        }
    }
}
