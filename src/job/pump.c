/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts become tasks. A batch is read from the store, enqueued, and then the cursor moves over it, in this order: who dies
 * on the way leaves the cursor where it was, and the next one submits the same ids again, which the broker knows. Of one
 * job one batch at a time is read; the ones before it are on their way meanwhile. Cursors are moved in the order of the
 * batches, those of all jobs of a queue together.
 *
 * There are never more tasks in the broker, or on their way, than the window: so many for each slot of a worker. What fits it
 * next is read ahead, and waits for the room that results make.
 */
#include <stdio.h>
#include <stdlib.h>

#include "job/internal.h"

enum {
    ADVANCES_MAX = 256, /* cursors that are moved at once */
    AHEAD_PARTS = 4,    /* such a part of the window is read at least, and ahead */
    HEADERS = 2,
    INDEX_MAX = 20, /* digits */
};

enum batch_state {
    BATCH_READING,
    BATCH_READ,  /* until there is room */
    BATCH_WAITS, /* the broker did not take it */
    BATCH_ENQUEUEING,
    BATCH_ENQUEUED,
    BATCH_ADVANCING
};

struct batch {
    struct mr_errand errand;
    struct mr_link link; /* in its job's batches */
    struct live *live;
    uint32_t generation; /* of the job, when it was begun */
    enum batch_state state;
    uint32_t stage; /* or MR_STORE_STAGE_READY */
    uint32_t round;
    uint64_t from, to;
    uint64_t planned; /* parts, as counted in the job's in_hand or ahead */
    size_t n;         /* tasks */
    struct mr_store_parts_read read;
    struct mr_store_ready_read ready;
    struct mr_req_enqueue enqueue;
    struct mr_arena arena; /* of what follows */
    struct mr_task_options *tasks;
    struct mr_enqueue_result *results;
    struct mr_part_id *parts;
};

/* ---- batches --------------------------------------------------------------------------------- */

static void batch_free(struct batch *b)
{
    struct live *live = b->live;
    mr_store_req_done(&b->read.req);
    mr_store_req_done(&b->ready.req);
    mr_req_done(&b->enqueue.req);
    mr_arena_done(&b->arena);
    mr_list_remove(&b->link);
    free(b);
    job_live_unref(live);
}

/* It is of use no more: what is there of it, if the job is over, is taken back. */
static void batch_discard(struct batch *b)
{
    struct live *live = b->live;
    bool unwanted = live->state == MR_JOBROW_FAILED || live->state == MR_JOBROW_CANCELLED;
    struct mr_slice *ids = unwanted && b->n > 0 ? calloc(b->n, sizeof *ids) : NULL;
    for (size_t i = 0; ids != NULL && i < b->n; i++)
        ids[i] = b->tasks[i].id;
    if (ids != NULL)
        job_sweep_tasks(job_of(&b->errand), ids, b->n);
    free(ids);
    batch_free(b);
}

void job_pump_drop(struct live *live)
{
    while (!mr_list_empty(&live->batches)) {
        struct batch *b = mr_container(live->batches.next, struct batch, link);
        mr_list_remove(&b->link);
        if (b->state == BATCH_READ)
            batch_free(b);
        else if (b->state == BATCH_WAITS || b->state == BATCH_ENQUEUED)
            batch_discard(b); /* the others come back, and find themselves too old */
    }
    live->in_hand = live->ahead = 0;
}

static bool is_current(const struct batch *b)
{
    return b->generation == b->live->generation && b->live->queue != NULL;
}

/* Nothing is submitted for a while. */
static void pause_pump(struct queue *queue, const char *what, enum mr_err err)
{
    if (queue->paused)
        return;
    mr_diag(MR_DIAG_WARN, "job.pump", "queue=%s step=%s error=%s", queue->name, what,
            mr_err_name(err));
    queue->paused = true;
    mr_desk_after(&queue->s->desk, &queue->again, AGAIN_MS);
}

/* The row is not as it was thought: it is read again. */
static void start_over(struct live *live)
{
    job_live_restart(live);
    job_live_walk(live->queue);
}

/* ---- the tasks ------------------------------------------------------------------------------- */

/* What is wrong with the task itself. All else is wrong with the broker, and passes, if only by somebody's hand: no
 * part fails by it. */
static bool is_refusal(enum mr_err err)
{
    return err == MR_INVALID || err == MR_TOO_BIG || err == MR_UNSUPPORTED;
}

/* What the broker will never take: these parts have failed. The cursor passes them first. */
static void end_refused(struct batch *b)
{
    struct mr_job_service *s = job_of(&b->errand);
    for (size_t i = 0; i < b->n; i++) {
        enum mr_err err = b->results[i].err;
        if (!is_refusal(err))
            continue;
        const struct mr_part_id *part = &b->parts[i];
        struct mr_store_end end = {.uid = part->job,
                                   .index = part->index,
                                   .segment = part->segment,
                                   .stage = part->stage,
                                   .round = part->round,
                                   .failed = true,
                                   .bytes = mr_slice_str(mr_err_text(err))};
        job_ends_write(s, &end, 1, NULL, NULL);
    }
}

/* What failed as a whole failed in each of its items. */
static enum mr_err first_passing(const struct batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        enum mr_err err = b->results[i].err;
        if (err != MR_OK && err != MR_CONFLICT && !is_refusal(err))
            return err;
    }
    return MR_OK;
}

static void enqueued(struct mr_errand *errand)
{
    struct batch *b = mr_container(errand, struct batch, errand);
    if (!is_current(b)) {
        batch_discard(b);
        return;
    }
    struct queue *queue = b->live->queue;
    enum mr_err err = first_passing(b);
    if (err != MR_OK) {
        b->state = BATCH_WAITS;
        if (err == MR_UNAVAILABLE) /* the broker is away for longer than it takes to come back */
            job_queue_give_up(queue, err);
        else
            pause_pump(queue, "enqueue", err);
        return;
    }
    job_step(job_of(errand), MR_JOB_STEP_SUBMITTED);
    b->state = BATCH_ENQUEUED;
    JOB_COUNT(job_of(errand), submitted, b->n);
    mr_store_req_done(&b->read.req); /* the payloads are of no use any more */
    mr_store_req_done(&b->ready.req);
}

static void enqueue(struct batch *b)
{
    mr_req_done(&b->enqueue.req);
    if (b->n == 0) { /* no part comes to this stage here: there is just the cursor to move */
        b->state = BATCH_ENQUEUED;
        return;
    }
    job_step(job_of(&b->errand), MR_JOB_STEP_SUBMIT);
    b->state = BATCH_ENQUEUEING;
    b->errand.done = enqueued;
    b->enqueue = (struct mr_req_enqueue){
        .req.op = MR_OP_ENQUEUE, .tasks = b->tasks, .n = b->n, .results = b->results};
    mr_errand_broker(&b->errand, &b->enqueue.req);
}

static enum mr_err make_task(struct batch *b, const struct mr_part_id *part, struct mr_slice bytes)
{
    struct live *live = b->live;
    struct mr_task_options *task = &b->tasks[b->n];
    struct mr_header *headers = mr_arena_calloc(&b->arena, HEADERS, sizeof *headers);
    char text[MR_PART_ID_MAX + 1], index[INDEX_MAX + 1];
    if (headers == NULL)
        return MR_NOMEM;
    *task = mr_job_task(&live->options, part->stage);
    MR_TRY(mr_arena_copy(&b->arena, mr_slice_make(text, mr_part_id_format(part, text)), &task->id));
    headers[0] = (struct mr_header){MR_SLICE_LIT("job"), mr_slice_str(live->id)};
    headers[1].name = MR_SLICE_LIT("index");
    snprintf(index, sizeof index, "%llu", (unsigned long long)part->index);
    MR_TRY(mr_arena_copy(&b->arena, mr_slice_str(index), &headers[1].value));
    task->payload = bytes;
    task->headers = headers;
    task->headers_n = HEADERS;
    b->parts[b->n++] = *part;
    return MR_OK;
}

static enum mr_err make_room(struct batch *b, size_t n)
{
    b->tasks = mr_arena_calloc(&b->arena, n + 1, sizeof *b->tasks);
    b->results = mr_arena_calloc(&b->arena, n + 1, sizeof *b->results);
    b->parts = mr_arena_calloc(&b->arena, n + 1, sizeof *b->parts);
    return b->tasks != NULL && b->results != NULL && b->parts != NULL ? MR_OK : MR_NOMEM;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum mr_err make_tasks_of_parts(struct batch *b)
{
    MR_TRY(make_room(b, b->read.n));
    for (size_t i = 0; i < b->read.n; i++) {
        const struct mr_store_payload *payload = &b->read.parts[i];
        struct mr_part_id part = {.job = b->live->uid,
                                  .segment = payload->segment,
                                  .index = payload->index,
                                  .stage = b->stage,
                                  .round = b->round};
        MR_TRY(make_task(b, &part, payload->bytes));
    }
    return MR_OK;
}

static enum mr_err make_tasks_of_ready(struct batch *b)
{
    MR_TRY(make_room(b, b->ready.n));
    for (size_t i = 0; i < b->ready.n; i++) {
        const struct mr_store_ready *row = &b->ready.parts[i];
        struct mr_part_id part = {.job = b->live->uid,
                                  .segment = row->segment,
                                  .index = row->index,
                                  .stage = row->stage,
                                  .round = row->round};
        MR_TRY(make_task(b, &part, row->bytes));
    }
    return MR_OK;
}

/* What was read, of either kind. */
static enum mr_err look_at_read(struct batch *b)
{
    struct live *live = b->live;
    bool ready = b->stage == MR_STORE_STAGE_READY;
    MR_TRY(ready ? b->ready.req.err : b->read.req.err);
    if ((ready ? b->ready.round : b->read.round) != live->round)
        return MR_STALE;
    b->round = live->round;
    b->to = ready ? b->ready.next : b->read.next;
    if (b->to <= b->from && !ready)
        return MR_STALE;
    if (b->to <= b->from) { /* the list is shorter than was thought */
        live->ready_next = live->ready_last;
        return MR_EMPTY;
    }
    if (ready)
        live->ready_next = b->to;
    else
        live->next[b->stage] = b->to;
    MR_TRY(ready ? make_tasks_of_ready(b) : make_tasks_of_parts(b));
    live->ahead = live->ahead - b->planned + b->n;
    b->planned = b->n;
    b->state = BATCH_READ;
    return MR_OK;
}

static void read_done(struct mr_errand *errand)
{
    struct batch *b = mr_container(errand, struct batch, errand);
    struct live *live = b->live;
    if (!is_current(b)) {
        batch_free(b);
        return;
    }
    live->reading = false;
    enum mr_err err = look_at_read(b);
    if (err == MR_OK)
        return; /* the turn goes on with it */
    live->ahead -= b->planned;
    struct queue *queue = live->queue;
    mr_list_remove(&b->link);
    if (err == MR_STALE || err == MR_NOT_FOUND)
        start_over(live);
    else if (err == MR_EMPTY && b->stage != MR_STORE_STAGE_READY)
        job_fail(live, "its parts are not kept any more");
    else if (err != MR_EMPTY)
        pause_pump(queue, "read", err);
    batch_free(b);
}

static void read_batch(struct live *live, uint32_t stage, uint64_t n)
{
    struct batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return;
    b->errand = (struct mr_errand){.desk = &live->queue->s->desk, .done = read_done};
    b->live = job_live_ref(live);
    b->generation = live->generation;
    b->stage = stage;
    b->planned = n;
    b->state = BATCH_READING;
    mr_list_push_back(&live->batches, &b->link);
    live->ahead += n;
    live->reading = true;
    if (stage == MR_STORE_STAGE_READY) {
        b->from = live->ready_next;
        b->ready = (struct mr_store_ready_read){.req.op = MR_STORE_READY_READ,
                                                .uid = live->uid,
                                                .after = live->ready_next,
                                                .max = (size_t)n};
        mr_errand_store(&b->errand, &b->ready.req);
    } else {
        b->from = live->next[stage];
        b->read = (struct mr_store_parts_read){.req.op = MR_STORE_PARTS_READ,
                                               .uid = live->uid,
                                               .stage = stage,
                                               .from = live->next[stage],
                                               .max = (size_t)n};
        mr_errand_store(&b->errand, &b->read.req);
    }
}

/* ---- how much -------------------------------------------------------------------------------- */

/* What of the job can be submitted now, at most so many: where it is. 0: nothing. */
static uint64_t waiting_in(const struct live *live, uint32_t *ret_stage)
{
    if ((live->state != MR_JOBROW_CREATED && live->state != MR_JOBROW_RUNNING) || live->retrying)
        return 0;
    if (live->ready_next < live->ready_last) {
        *ret_stage = MR_STORE_STAGE_READY;
        return live->ready_last - live->ready_next;
    }
    for (uint32_t i = 0; i < live->stages_n; i++) {
        if (live->next[i] < live->total) {
            *ret_stage = i;
            return live->total - live->next[i];
        }
        if (live->pipeline || !mr_store_stage_complete(&live->stages[i]))
            return 0; /* the next one is not on yet, or is fed by the ready list */
    }
    return 0;
}

static uint64_t window_of(const struct queue *queue)
{
    return queue->slots * queue->s->settings.window;
}

static uint64_t room_of(const struct queue *queue)
{
    uint64_t window = window_of(queue), used = 0;
    for (const struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next)
        used += job_live_outstanding(mr_container(at, struct live, link));
    return window > used ? window - used : 0;
}

bool job_pump_has_more(const struct live *live)
{
    uint32_t stage;
    return live->ahead > 0 || waiting_in(live, &stage) > 0;
}

bool job_pump_waits(const struct queue *queue)
{
    if (!queue->owned || queue->slots == 0)
        return false;
    for (const struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next) {
        if (job_pump_has_more(mr_container(at, struct live, link)))
            return true;
    }
    return false;
}

/* What is read more than fits a window that has become smaller is left for later. */
static void put_back(struct live *live, uint64_t window)
{
    while (!mr_list_empty(&live->batches) && !live->reading) {
        struct batch *b = mr_container(live->batches.prev, struct batch, link);
        if (b->state != BATCH_READ || b->n <= window)
            return;
        if (b->stage == MR_STORE_STAGE_READY)
            live->ready_next = b->from;
        else
            live->next[b->stage] = b->from;
        live->ahead -= b->planned;
        batch_free(b);
    }
}

/* What is read goes to the broker, as far as there is room; what that did not take, once more. */
static void send_read(struct live *live, uint64_t *room)
{
    for (struct mr_link *at = live->batches.next; at != &live->batches; at = at->next) {
        struct batch *b = mr_container(at, struct batch, link);
        if (b->state == BATCH_WAITS)
            enqueue(b);
        if (b->state != BATCH_READ)
            continue;
        if (b->n > *room)
            return;
        *room -= b->n;
        live->ahead -= b->planned;
        live->in_hand += b->planned;
        enqueue(b);
    }
}

/* So many are read next, of so many that wait: what fits, or a part of the window ahead of it. 0: none, for now. */
static uint64_t read_size(const struct live *live, uint64_t waiting, uint64_t room, uint64_t window)
{
    uint64_t least = window / AHEAD_PARTS > 0 ? window / AHEAD_PARTS : 1;
    uint64_t n = room > live->ahead ? room - live->ahead : 0;
    if (live->reading || live->ahead >= room + least)
        return 0;
    n = n > least ? n : least;
    n = n < waiting ? n : waiting;
    return n < MR_BATCH_MAX ? n : MR_BATCH_MAX;
}

void job_pump(struct queue *queue)
{
    uint64_t window = window_of(queue);
    if (queue->paused || window == 0)
        return;
    uint64_t room = room_of(queue);
    for (struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next) {
        struct live *live = mr_container(at, struct live, link);
        uint32_t stage;
        put_back(live, window);
        send_read(live, &room);
        uint64_t waiting = waiting_in(live, &stage);
        uint64_t n = waiting > 0 ? read_size(live, waiting, room, window) : 0;
        if (n > 0)
            read_batch(live, stage, n);
        if (waiting > 0 || live->ahead > 0)
            return; /* what is behind it waits, too */
    }
}

/* ---- the cursors ----------------------------------------------------------------------------- */

struct advancing {
    struct mr_errand errand;
    struct queue *queue;
    uint64_t generation;
    struct mr_store_job_advance req;
    size_t n;
    struct batch *batches[ADVANCES_MAX];
    struct mr_store_advance items[ADVANCES_MAX];
    enum mr_err results[ADVANCES_MAX];
};

/* Tasks that the cursor did not pass: whether they are wanted. */
struct doubt {
    struct mr_errand errand;
    struct mr_store_job_get get;
    struct mr_uuid uid;
    struct batch *batch;
};

static void doubt_known(struct mr_errand *errand)
{
    struct doubt *d = mr_container(errand, struct doubt, errand);
    if (d->get.req.err == MR_OK) {
        d->batch->live->state = d->get.jobs[0].state;
        if (d->get.jobs[0].state == MR_JOBROW_NONE)
            d->batch->live->state = MR_JOBROW_CANCELLED;
    }
    batch_discard(d->batch);
    mr_store_req_done(&d->get.req);
    free(d);
}

/* The job is not as it was: is it over? */
static void look_at_job(struct batch *b)
{
    struct doubt *d = calloc(1, sizeof *d);
    if (d == NULL) {
        batch_discard(b);
        return;
    }
    d->batch = b;
    d->uid = b->live->uid;
    d->errand = (struct mr_errand){.desk = b->errand.desk, .done = doubt_known};
    d->get = (struct mr_store_job_get){
        .req.op = MR_STORE_JOB_GET, .uids = &d->uid, .n = 1, .brief = true};
    mr_errand_store(&d->errand, &d->get.req);
}

static void advanced_one(struct batch *b, enum mr_err err)
{
    struct live *live = b->live;
    bool current = is_current(b);
    mr_list_remove(&b->link);
    if (current)
        live->in_hand -= b->planned;
    if (err == MR_OK) {
        end_refused(b);
        batch_free(b);
        return;
    }
    if (current)
        start_over(live);
    look_at_job(b);
}

/* The request did not come through: once more, if the queue is still ours. */
static void advance_failed(struct advancing *a, enum mr_err err)
{
    for (size_t i = 0; i < a->n; i++) {
        if (is_current(a->batches[i]))
            a->batches[i]->state = BATCH_ENQUEUED;
        else
            batch_discard(a->batches[i]);
    }
    if (!a->queue->owned || a->queue->generation != a->generation)
        return;
    if (err == MR_STALE)
        job_queue_lost(a->queue, err);
    else
        pause_pump(a->queue, "advance", err);
}

static void advanced(struct mr_errand *errand)
{
    struct advancing *a = mr_container(errand, struct advancing, errand);
    enum mr_err err = a->req.req.err;
    if (a->queue->generation == a->generation)
        a->queue->advancing = false;
    if (err != MR_OK) {
        advance_failed(a, err);
    } else {
        job_step(job_of(errand), MR_JOB_STEP_ADVANCED);
        for (size_t i = 0; i < a->n; i++)
            advanced_one(a->batches[i], a->results[i]);
        job_changed(job_of(errand), &a->req.changed);
    }
    mr_store_req_done(&a->req.req);
    free(a);
}

static void collect(struct advancing *a, struct live *live)
{
    for (struct mr_link *at = live->batches.next; at != &live->batches && a->n < ADVANCES_MAX;
         at = at->next) {
        struct batch *b = mr_container(at, struct batch, link);
        if (b->state != BATCH_ENQUEUED)
            break;
        b->state = BATCH_ADVANCING;
        a->items[a->n] = (struct mr_store_advance){.uid = live->uid,
                                                   .round = b->round,
                                                   .stage = b->stage,
                                                   .from = b->from,
                                                   .to = b->to,
                                                   .parts = b->n};
        a->batches[a->n++] = b;
    }
}

static bool has_enqueued(const struct queue *queue)
{
    for (const struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next) {
        const struct live *live = mr_container(at, struct live, link);
        if (!mr_list_empty(&live->batches) &&
            mr_container(live->batches.next, struct batch, link)->state == BATCH_ENQUEUED)
            return true;
    }
    return false;
}

void job_advance(struct queue *queue)
{
    struct advancing *a =
        queue->advancing || queue->paused || !has_enqueued(queue) ? NULL : calloc(1, sizeof *a);
    if (a == NULL)
        return;
    for (struct mr_link *at = queue->jobs.next; at != &queue->jobs; at = at->next)
        collect(a, mr_container(at, struct live, link));
    a->errand = (struct mr_errand){.desk = &queue->s->desk, .done = advanced};
    a->queue = queue;
    a->generation = queue->generation;
    a->req = (struct mr_store_job_advance){.req.op = MR_STORE_JOB_ADVANCE,
                                           .fence = job_fence(queue),
                                           .items = a->items,
                                           .n = a->n,
                                           .results = a->results};
    queue->advancing = true;
    mr_errand_store(&a->errand, &a->req.req);
}
