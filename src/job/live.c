/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live jobs of queues that are ours, as they were last read. What changes by our own requests is known at once, what
 * others write is found by the next walk. Where nothing is in hand, submitting goes on from the row's cursors,
 * whatever was thought before.
 */
#include <stdlib.h>

#include "job/internal.h"

/* ---- the map --------------------------------------------------------------------------------- */

static uint64_t hash_of(uint32_t handle, void *arg)
{
    struct mr_job_service *s = arg;
    return mr_uuid_hash(&s->lives[handle]->uid);
}

static bool is_equal(uint32_t handle, const void *key, void *arg)
{
    struct mr_job_service *s = arg;
    return memcmp(&s->lives[handle]->uid, key, sizeof(struct mr_uuid)) == 0;
}

enum mr_err job_lives_init(struct mr_job_service *s)
{
    static const struct mr_map_ops ops = {.hash = hash_of, .equal = is_equal};
    return mr_map_new(&ops, s, &s->map);
}

void job_lives_done(struct mr_job_service *s)
{
    mr_assert(s->map == NULL || mr_map_count(s->map) == 0);
    mr_map_free(s->map);
    free(s->lives);
}

struct live *job_live_find(struct mr_job_service *s, const struct mr_uuid *uid)
{
    uint32_t handle = mr_map_find(s->map, mr_uuid_hash(uid), uid);
    return handle != MR_MAP_NONE ? s->lives[handle] : NULL;
}

/* A free place among the lives; they are as many as there are jobs at once. */
static enum mr_err place(struct mr_job_service *s, uint32_t *ret_handle)
{
    for (uint32_t i = 0; i < s->lives_n; i++) {
        uint32_t handle = (s->free_handle + i) % s->lives_n;
        if (s->lives[handle] != NULL)
            continue;
        *ret_handle = handle;
        s->free_handle = handle + 1;
        return MR_OK;
    }
    if (s->lives_n == s->lives_cap) {
        uint32_t cap = s->lives_cap * 2 + 16;
        struct live **lives = realloc(s->lives, cap * sizeof(*lives));
        if (lives == NULL)
            return MR_NOMEM;
        s->lives = lives;
        s->lives_cap = cap;
    }
    *ret_handle = s->lives_n++;
    s->free_handle = s->lives_n;
    s->lives[*ret_handle] = NULL;
    return MR_OK;
}

/* ---- one job --------------------------------------------------------------------------------- */

struct live *job_live_ref(struct live *live)
{
    live->refs++;
    return live;
}

void job_live_unref(struct live *live)
{
    if (--live->refs > 0)
        return;
    mr_assert(live->queue == NULL && mr_list_empty(&live->batches));
    mr_arena_done(&live->arena);
    free(live);
}

uint64_t job_live_outstanding(const struct live *live)
{
    uint64_t open = 0;
    for (size_t i = 0; i < live->stages_n; i++)
        open += mr_store_stage_open(&live->stages[i]);
    return live->in_hand + (open > live->uncounted ? open - live->uncounted : 0);
}

static uint64_t ended_of(const struct live *live)
{
    uint64_t n = 0;
    for (size_t i = 0; i < live->stages_n; i++)
        n += live->stages[i].done + live->stages[i].failed;
    return n;
}

/* What others than the request at hand have ended since the row before may be what is in our hands. */
static void count_others(struct live *live, uint64_t ended_before)
{
    uint64_t ended = ended_of(live), before = ended_before + live->written;
    uint64_t others = ended > before ? ended - before : 0;
    live->uncounted -= others < live->uncounted ? others : live->uncounted;
    live->written = 0;
}

static void copy_row(struct live *live, const struct mr_store_job *row)
{
    live->state = row->state;
    live->round = row->round;
    live->version = row->version;
    live->stages_n = row->stages_n;
    memcpy(live->stages, row->stages, row->stages_n * sizeof *row->stages);
    live->ready_last = row->ready_last;
    live->retrying = mr_store_job_retrying(row);
    if (!mr_list_empty(&live->batches))
        return;
    for (size_t i = 0; i < row->stages_n; i++)
        live->next[i] = row->stages[i].cursor;
    live->ready_next = row->ready_cursor;
}

void job_live_restart(struct live *live)
{
    live->generation++;
    job_pump_drop(live);
    job_reduce_forget(live);
    live->reduce_wait_ms = 0;
    live->reduce_again = (mr_mono){0};
    live->reading = live->walking = live->stepping = false;
    live->version = 0; /* the next row that comes is looked at, whichever it is */
}

static void job_live_drop(struct live *live)
{
    struct queue *queue = live->queue;
    struct mr_job_service *s = queue->s;
    live->generation++;
    job_pump_drop(live);
    job_reduce_forget(live);
    job_seconds_free(live);
    mr_map_remove(s->map, mr_uuid_hash(&live->uid), live->handle);
    s->lives[live->handle] = NULL;
    mr_list_remove(&live->link);
    live->queue = NULL;
    job_live_unref(live);
}

void job_lives_drop(struct queue *queue)
{
    while (!mr_list_empty(&queue->jobs))
        job_live_drop(mr_container(queue->jobs.next, struct live, link));
}

void job_live_update(struct live *live, const struct mr_store_job *row)
{
    struct mr_job_service *s = live->queue->s;
    if (row->version < live->version || row->stages_n > MR_JOB_STAGES_MAX)
        return;
    if (row->version > live->version) {
        live->moved = live->queue->heard = mr_mono_now(s->desk.clock);
    }
    if (row->round != live->round)
        job_live_restart(live);
    uint64_t ended_before = ended_of(live);
    copy_row(live, row);
    count_others(live, ended_before);
    if (live->retrying)
        job_retry_go_on(live);
    if (row->state == MR_JOBROW_REDUCING)
        job_reduce(live);
    if (mr_jobrow_is_live(row->state))
        return;
    if (row->state == MR_JOBROW_FAILED || row->state == MR_JOBROW_CANCELLED)
        job_sweep(s, &row->uid, row->round);
    if (mr_jobrow_is_ended(row->state))
        JOB_COUNT(s, ended, 1);
    job_live_drop(live);
}

static void insert(struct queue *queue, struct live *live)
{
    struct mr_link *at = queue->jobs.prev;
    while (at != &queue->jobs) {
        const struct live *other = mr_container(at, struct live, link);
        if (other->order_ms < live->order_ms ||
            (other->order_ms == live->order_ms && other->no < live->no))
            break;
        at = at->prev;
    }
    mr_list_insert_before(at->next, &live->link);
}

static enum mr_err open_definition(struct live *live, struct mr_slice bytes)
{
    struct mr_slice copy;
    MR_TRY(mr_arena_copy(&live->arena, bytes, &copy));
    return mr_job_decode(copy, &live->arena, &live->options);
}

static enum mr_err live_new(struct queue *queue, const struct mr_store_job *row,
                            struct live **ret_live)
{
    struct mr_job_service *s = queue->s;
    struct live *live = calloc(1, sizeof *live);
    if (live == NULL)
        return MR_NOMEM;
    live->refs = 1;
    mr_list_init(&live->link);
    mr_list_init(&live->batches);
    mr_list_init(&live->seconds);
    live->uid = row->uid;
    mr_uuid_format(&live->uid, live->id);
    live->no = row->no;
    live->total = row->total;
    live->order_ms = row->order_ms;
    live->pipeline = row->pipeline;
    live->round = row->round;
    live->moved = mr_mono_now(s->desk.clock);
    enum mr_err err = open_definition(live, row->definition);
    if (err == MR_OK && live->options.stages_n != row->stages_n)
        err = MR_DAMAGED;
    if (err == MR_OK)
        err = place(s, &live->handle);
    if (err == MR_OK) {
        s->lives[live->handle] = live;
        err = mr_map_insert(s->map, mr_uuid_hash(&live->uid), live->handle);
        if (err != MR_OK)
            s->lives[live->handle] = NULL;
    }
    if (err != MR_OK) {
        job_live_unref(live);
        return err;
    }
    live->queue = queue;
    insert(queue, live);
    *ret_live = live;
    return MR_OK;
}

/* ---- the walk -------------------------------------------------------------------------------- */

struct walk {
    struct mr_errand errand;
    struct queue *queue;
    uint64_t generation;
    struct mr_store_job_live req;
    struct mr_store_job_get
        get; /* new ones, with their definitions; or those that are live no more */
    struct mr_uuid *uids;
    size_t uids_n, uids_cap;
};

static void walk_free(struct walk *w)
{
    mr_store_req_done(&w->req.req);
    mr_store_req_done(&w->get.req);
    free(w->uids);
    free(w);
}

static bool is_current(const struct walk *w)
{
    return w->queue->owned && w->queue->generation == w->generation &&
           !job_of(&w->errand)->desk.stopping;
}

static void walk_end(struct walk *w, enum mr_err err)
{
    struct queue *queue = w->queue;
    bool current = is_current(w);
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "job.walk", "queue=%s error=%s", queue->name, mr_err_name(err));
    walk_free(w);
    if (!current)
        return;
    queue->walking = false;
    if (queue->walk_again) {
        queue->walk_again = false;
        job_live_walk(queue);
    }
}

static enum mr_err note(struct walk *w, const struct mr_uuid *uid)
{
    if (w->uids_n == w->uids_cap) {
        size_t cap = w->uids_cap * 2 + 16;
        struct mr_uuid *uids = realloc(w->uids, cap * sizeof *uids);
        if (uids == NULL)
            return MR_NOMEM;
        w->uids = uids;
        w->uids_cap = cap;
    }
    w->uids[w->uids_n++] = *uid;
    return MR_OK;
}

static void send_get(struct walk *w, bool brief, void (*done)(struct mr_errand *errand))
{
    size_t n = w->uids_n < PAGE_MAX ? w->uids_n : PAGE_MAX;
    mr_store_req_done(&w->get.req);
    w->get = (struct mr_store_job_get){
        .req.op = MR_STORE_JOB_GET, .uids = w->uids + w->uids_n - n, .n = n, .brief = brief};
    w->errand.done = done;
    mr_errand_store(&w->errand, &w->get.req);
}

static void gone_known(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    enum mr_err err = w->get.req.err;
    for (size_t i = 0; err == MR_OK && is_current(w) && i < w->get.n; i++) {
        struct live *live = job_live_find(job_of(errand), &w->get.uids[i]);
        if (live == NULL || live->queue != w->queue)
            continue;
        if (w->get.jobs[i].state == MR_JOBROW_NONE)
            job_live_drop(live);
        else
            job_live_update(live, &w->get.jobs[i]);
    }
    w->uids_n -= w->get.n;
    if (err == MR_OK && is_current(w) && w->uids_n > 0)
        send_get(w, true, gone_known);
    else
        walk_end(w, err);
}

/* All that are live were seen: what becomes of the others? */
static void find_gone(struct walk *w)
{
    enum mr_err err = MR_OK;
    w->uids_n = 0;
    for (struct mr_link *at = w->queue->jobs.next; err == MR_OK && at != &w->queue->jobs;
         at = at->next) {
        struct live *live = mr_container(at, struct live, link);
        if (!live->seen)
            err = note(w, &live->uid);
    }
    if (err == MR_OK && w->uids_n > 0)
        send_get(w, true, gone_known);
    else
        walk_end(w, err);
}

static void new_known(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    enum mr_err err = w->get.req.err;
    for (size_t i = 0; err == MR_OK && is_current(w) && i < w->get.n; i++) {
        const struct mr_store_job *row = &w->get.jobs[i];
        struct live *live;
        if (!mr_jobrow_is_live(row->state) || job_live_find(job_of(errand), &row->uid) != NULL)
            continue;
        enum mr_err new_err = live_new(w->queue, row, &live);
        if (new_err == MR_OK) {
            live->seen = true;
            job_live_update(live, row);
        } else {
            mr_diag(MR_DIAG_ERROR, "job.walk", "queue=%s error=%s ignoring=the-job", w->queue->name,
                    mr_err_name(new_err));
        }
    }
    w->uids_n -= w->get.n;
    if (err != MR_OK || !is_current(w))
        walk_end(w, err);
    else if (w->uids_n > 0)
        send_get(w, false, new_known);
    else
        find_gone(w);
}

static void read_page(struct walk *w);

static void page_known(struct mr_errand *errand)
{
    struct walk *w = mr_container(errand, struct walk, errand);
    enum mr_err err = w->req.req.err;
    if (err != MR_OK || !is_current(w)) {
        walk_end(w, err);
        return;
    }
    for (size_t i = 0; err == MR_OK && i < w->req.n; i++) {
        const struct mr_store_job *row = &w->req.jobs[i];
        struct live *live = job_live_find(job_of(errand), &row->uid);
        w->req.after_ms = row->order_ms;
        w->req.after_no = row->no;
        if (live == NULL) {
            err = note(w, &row->uid);
            continue;
        }
        live->seen = true;
        job_live_update(live, row);
    }
    if (err != MR_OK)
        walk_end(w, err);
    else if (w->req.more && w->req.n > 0)
        read_page(w);
    else if (w->uids_n > 0)
        send_get(w, false, new_known);
    else
        find_gone(w);
}

static void read_page(struct walk *w)
{
    int64_t after_ms = w->req.after_ms;
    uint64_t after_no = w->req.after_no;
    mr_store_req_done(&w->req.req);
    w->req = (struct mr_store_job_live){.req.op = MR_STORE_JOB_LIVE,
                                        .queue = mr_slice_str(w->queue->name),
                                        .after_ms = after_ms,
                                        .after_no = after_no,
                                        .max = PAGE_MAX,
                                        .brief = true};
    w->errand.done = page_known;
    mr_errand_store(&w->errand, &w->req.req);
}

void job_live_walk(struct queue *queue)
{
    if (queue->walking) {
        queue->walk_again = true;
        return;
    }
    struct walk *w = calloc(1, sizeof *w);
    if (w == NULL)
        return;
    w->errand.desk = &queue->s->desk;
    w->queue = queue;
    w->generation = queue->generation;
    queue->walking = true;
    for (struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next)
        mr_container(at, struct live, link)->seen = false;
    read_page(w);
}
