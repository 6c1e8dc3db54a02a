/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results of tasks become outcomes of parts. Every service takes them, as a master does: they are in its hands until the
 * store has them, then they are committed. Who dies between leaves them to the next one, which finds that the store
 * has them already. Several batches are under way at once; one transaction each.
 */
#include <stdlib.h>

#include "broker/result.h"
#include "job/internal.h"

enum {
    WRITING_MAX = 4,       /* batches in hand */
    LINGER_MS = 60 * 1000, /* after the last live job */
};

/* ---- outcomes -------------------------------------------------------------------------------- */

/* What became of them, for the figures and for what is run twice. */
static void count_ends(struct mr_job_service *s, const struct mr_store_end *ends,
                       const enum mr_err *errs, size_t n)
{
    uint64_t done = 0, failed = 0, late = 0;
    for (size_t i = 0; i < n; i++) {
        struct live *live = errs[i] == MR_OK ? job_live_find(s, &ends[i].uid) : NULL;
        done += errs[i] == MR_OK && !ends[i].failed;
        failed += errs[i] == MR_OK && ends[i].failed;
        late += errs[i] != MR_OK;
        if (live != NULL && !mr_list_empty(&live->seconds)) {
            struct mr_part_id part = {ends[i].uid, ends[i].segment, ends[i].index, ends[i].stage,
                                      ends[i].round};
            job_seconds_end(live, &part);
        }
    }
    mr_lock_enter(&s->lock);
    s->figures.parts_done += done;
    s->figures.parts_failed += failed;
    s->figures.late += late;
    mr_lock_leave(&s->lock);
}

struct ending {
    struct errand errand;
    struct mr_store_parts_end req;
    struct mr_arena arena;
    ends_done *done;
    void *arg;
};

static void ending_free(struct ending *e)
{
    mr_store_req_done(&e->req.req);
    mr_arena_done(&e->arena);
    free(e);
}

static void ended(struct errand *errand)
{
    struct ending *e = mr_container(errand, struct ending, errand);
    struct mr_job_service *s = errand->s;
    enum mr_err err = e->req.req.err;
    if (err == MR_OK) {
        count_ends(s, e->req.items, e->req.results, e->req.n);
        job_changed(s, &e->req.changed);
    } else {
        mr_diag(MR_DIAG_WARN, "job.ends", "error=%s", mr_err_name(err));
    }
    if (e->done != NULL)
        e->done(s, err, e->arg);
    ending_free(e);
}

static enum mr_err ending_fill(struct ending *e, const struct mr_store_end *ends, size_t n)
{
    struct mr_store_end *items = mr_arena_calloc(&e->arena, n, sizeof *items);
    enum mr_err *results = mr_arena_calloc(&e->arena, n, sizeof *results);
    if (items == NULL || results == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        items[i] = ends[i];
        MR_TRY(mr_arena_copy(&e->arena, ends[i].bytes, &items[i].bytes));
    }
    e->req = (struct mr_store_parts_end){
        .req.op = MR_STORE_PARTS_END, .items = items, .n = n, .results = results};
    return MR_OK;
}

void job_ends_write(struct mr_job_service *s, const struct mr_store_end *ends, size_t n,
                    ends_done *done, void *arg)
{
    struct ending *e = calloc(1, sizeof *e);
    enum mr_err err = e != NULL ? ending_fill(e, ends, n) : MR_NOMEM;
    if (err != MR_OK) {
        if (e != NULL)
            ending_free(e);
        if (done != NULL)
            done(s, err, arg);
        return;
    }
    e->errand = (struct errand){.s = s, .done = ended};
    e->done = done;
    e->arg = arg;
    job_errand_store(&e->errand, &e->req.req);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Some results in hand, until the store has them. */
struct taken {
    struct errand errand;
    struct mr_req_take take;
    struct mr_req_finish commit;
    struct mr_store_parts_end write;
    size_t n;
    struct mr_finish *items;
    enum mr_err *errs;
    struct mr_store_end *ends;
    enum mr_err *end_errs;
    size_t ends_n;
    uint64_t node;
    struct mr_link link; /* in results.written */
    struct mr_timer again;
};

static void take(struct mr_job_service *s);
static void node_close(struct mr_job_service *s, uint64_t node);

static void taken_free(struct taken *t)
{
    struct mr_job_service *s = t->errand.s;
    while (t->take.leases != NULL) {
        struct mr_lease *lease = t->take.leases;
        t->take.leases = lease->next;
        mr_lease_free(lease);
    }
    mr_req_done(&t->take.req);
    mr_req_done(&t->commit.req);
    mr_store_req_done(&t->write.req);
    mr_wheel_stop(s->wheel, &t->again);
    if (!mr_list_empty(&t->link)) {
        mr_list_remove(&t->link);
        s->results.writing--;
    }
    free(t->items);
    free(t->errs);
    free(t->ends);
    free(t->end_errs);
    free(t);
}

/* It is gone, or of no use; what it holds goes back, and comes to the next one. */
static void node_lost(struct mr_job_service *s, uint64_t node, enum mr_err err)
{
    if (s->results.node != node || node == 0)
        return;
    mr_diag(MR_DIAG_WARN, "job.results", "error=%s", mr_err_name(err));
    s->results.node = 0;
    s->results.taking = false;
    node_close(s, node);
    job_after(s, &s->results.again, AGAIN_MS);
}

/* Results in hand: their tasks are over, and leave room, before the store knows; then it does, or they go back. */
enum count { COUNT_TAKEN, COUNT_WRITTEN, COUNT_TOLD };

static void count_one(struct live *live, enum count what)
{
    if (what == COUNT_TAKEN) {
        live->in_results++;
        live->uncounted++;
    } else if (what == COUNT_WRITTEN && live->in_results > 0) {
        live->in_results--;
        live->written++;
        if (live->uncounted > live->in_results)
            live->uncounted = live->in_results;
    } else if (what == COUNT_TOLD) {
        live->written = 0;
    }
}

static void count_in_hand(struct taken *t, enum count what)
{
    struct live *live = NULL;
    for (size_t i = 0; i < t->ends_n; i++) {
        const struct mr_uuid *uid = &t->ends[i].uid;
        if (live == NULL || memcmp(&live->uid, uid, sizeof *uid) != 0)
            live = job_live_find(t->errand.s, uid);
        if (live != NULL)
            count_one(live, what);
    }
}

/* It is done with; if too many were not, the next ones were not asked for. */
static void taken_end(struct taken *t)
{
    struct mr_job_service *s = t->errand.s;
    taken_free(t);
    if (s->results.node != 0 && !s->results.taking && !s->stopping)
        take(s);
}

static void committed(struct errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    job_step(errand->s, MR_JOB_STEP_SETTLED);
    if (t->commit.req.err != MR_OK)
        node_lost(errand->s, t->node, t->commit.req.err);
    taken_end(t);
}

static void commit(struct taken *t)
{
    t->commit = (struct mr_req_finish){.req.op = MR_OP_FINISH,
                                       .items = t->items,
                                       .n = t->n,
                                       .errs = t->errs,
                                       .only_results = true};
    t->errand.done = committed;
    job_errand_broker(&t->errand, &t->commit.req);
}

static void written(struct errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct mr_job_service *s = errand->s;
    enum mr_err err = t->write.req.err;
    count_in_hand(t, COUNT_WRITTEN);
    if (err == MR_OK) {
        job_step(s, MR_JOB_STEP_ENDED);
        commit(t);
        count_ends(s, t->ends, t->end_errs, t->ends_n);
        job_changed(s, &t->write.changed);
        count_in_hand(t, COUNT_TOLD);
    } else if (s->stopping || s->results.node != t->node) {
        taken_end(t); /* with the node they go back, and come to the next one */
    } else {
        mr_diag(MR_DIAG_WARN, "job.results", "error=%s", mr_err_name(err));
        count_in_hand(t, COUNT_TOLD);
        job_after(s, &t->again, AGAIN_MS);
    }
}

static void write_ends(struct taken *t)
{
    mr_wheel_stop(t->errand.s->wheel, &t->again);
    if (t->errand.s->results.node != t->node) {
        taken_end(t);
        return;
    }
    job_step(t->errand.s, MR_JOB_STEP_TAKEN);
    mr_store_req_done(&t->write.req);
    t->write = (struct mr_store_parts_end){
        .req.op = MR_STORE_PARTS_END, .items = t->ends, .n = t->ends_n, .results = t->end_errs};
    t->errand.done = written;
    count_in_hand(t, COUNT_TAKEN);
    job_errand_store(&t->errand, &t->write.req);
}

static void write_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    write_ends(mr_container(timer, struct taken, again));
}

/* One result; what is none of ours, and what another run follows, is committed unseen. */
static void read_result(struct taken *t, struct mr_lease *lease)
{
    struct mr_result result;
    struct mr_part_id part;
    t->items[t->n++] = (struct mr_finish){
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    if (mr_result_decode(lease->task.payload, &result) != MR_OK || !result.final ||
        !mr_part_id_parse(result.task_id, &part))
        return;
    bool ok = result.outcome == MR_RESULT_OK;
    t->ends[t->ends_n++] = (struct mr_store_end){.uid = part.job,
                                                 .index = part.index,
                                                 .segment = part.segment,
                                                 .stage = part.stage,
                                                 .round = part.round,
                                                 .failed = !ok,
                                                 .bytes = ok ? result.result : result.error,
                                                 .finished_ms = result.finished_ms};
}

static enum mr_err open_leases(struct taken *t)
{
    size_t n = t->take.n;
    t->items = calloc(n, sizeof *t->items);
    t->errs = calloc(n, sizeof *t->errs);
    t->ends = calloc(n, sizeof *t->ends);
    t->end_errs = calloc(n, sizeof *t->end_errs);
    if (t->items == NULL || t->errs == NULL || t->ends == NULL || t->end_errs == NULL)
        return MR_NOMEM;
    for (struct mr_lease *lease = t->take.leases; lease != NULL && t->n < n; lease = lease->next) {
        MR_TRY(mr_broker_lease_open(t->errand.s->broker, lease));
        read_result(t, lease);
    }
    return MR_OK;
}

static void took(struct errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct mr_job_service *s = errand->s;
    enum mr_err err = t->take.req.err;
    bool ours = s->results.node == t->node && !s->stopping;
    if (ours)
        s->results.taking = false;
    if (ours && err == MR_OK)
        err = open_leases(t);
    if (!ours || err != MR_OK) {
        if (ours && err != MR_EMPTY)
            node_lost(s, t->node, err);
        else if (ours)
            take(s);
        taken_free(t);
        return;
    }
    mr_list_push_back(&s->results.written, &t->link);
    if (++s->results.writing < WRITING_MAX)
        take(s);
    if (t->ends_n > 0)
        write_ends(t);
    else
        commit(t);
}

static void take(struct mr_job_service *s)
{
    struct taken *t = calloc(1, sizeof *t);
    if (t == NULL) {
        node_lost(s, s->results.node, MR_NOMEM);
        return;
    }
    t->errand = (struct errand){.s = s, .done = took};
    t->node = s->results.node;
    mr_list_init(&t->link);
    mr_timer_init(&t->again, write_again);
    t->take = (struct mr_req_take){.req.op = MR_OP_TAKE,
                                   .node = t->node,
                                   .max = MR_BATCH_MAX,
                                   .bytes_max = MR_TAKE_BYTES,
                                   .wait_ms = RESULTS_WAIT_MS};
    s->results.taking = true;
    job_errand_broker(&t->errand, &t->take.req);
}

/* ---- the node -------------------------------------------------------------------------------- */

struct beating {
    struct errand errand;
    struct mr_req_node_open open;
    struct mr_req_beat beat;
    struct mr_req_node_close close;
    struct mr_worker_queue queue;
    char queue_name[MR_NAME_MAX + 1];
};

static void beating_free(struct beating *b)
{
    mr_req_done(&b->open.req);
    mr_req_done(&b->beat.req);
    mr_req_done(&b->close.req);
    free(b);
}

static void closed(struct errand *errand)
{
    beating_free(mr_container(errand, struct beating, errand));
}

/* What it holds goes back. */
static void node_close(struct mr_job_service *s, uint64_t node)
{
    struct beating *b = calloc(1, sizeof *b);
    if (b == NULL)
        return; /* it does not beat any more */
    b->errand = (struct errand){.s = s, .done = closed};
    b->close = (struct mr_req_node_close){.req.op = MR_OP_NODE_CLOSE, .node = node};
    job_errand_broker(&b->errand, &b->close.req);
}

static void opened(struct errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct mr_job_service *s = errand->s;
    enum mr_err err = b->open.req.err;
    s->results.opening = false;
    if (err == MR_OK && !s->results.wanted) {
        node_close(s, b->open.node);
    } else if (err == MR_OK) {
        s->results.node = b->open.node;
        job_after(s, &s->results.beat, s->settings.master_ms / NODE_BEATS);
        take(s);
    } else if (s->results.wanted) {
        mr_diag(MR_DIAG_WARN, "job.results", "error=%s", mr_err_name(err));
        job_after(s, &s->results.again, AGAIN_MS);
    }
    beating_free(b);
}

/* Of a node that goes there is nothing to tell: what it holds is found out by who commits it. */
static void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void node_open(struct mr_job_service *s)
{
    struct beating *b = s->results.opening ? NULL : calloc(1, sizeof *b);
    if (b == NULL) {
        job_after(s, &s->results.again, AGAIN_MS);
        return;
    }
    b->errand = (struct errand){.s = s, .done = opened};
    b->queue.name = mr_result_queue(MR_SLICE_LIT(MR_JOB_TOPIC), b->queue_name);
    b->open = (struct mr_req_node_open){.req.op = MR_OP_NODE_OPEN,
                                        .role = MR_NODE_MASTER,
                                        .name = MR_SLICE_LIT(MR_JOB_TOPIC),
                                        .queues = &b->queue,
                                        .queues_n = 1,
                                        .lease_ms = s->settings.master_ms,
                                        .events = {.stop = event_stop}};
    s->results.opening = true;
    job_errand_broker(&b->errand, &b->open.req);
}

static void beat_done(struct errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct mr_job_service *s = errand->s;
    bool gone = b->beat.req.err == MR_NOT_FOUND || b->beat.req.err == MR_CLOSED;
    if (s->results.node == b->beat.node && !s->stopping) {
        if (gone)
            node_lost(s, b->beat.node, b->beat.req.err);
        else
            job_after(s, &s->results.beat, s->settings.master_ms / NODE_BEATS);
    }
    beating_free(b);
}

static void beat(struct mr_timer *timer, void *arg)
{
    struct mr_job_service *s = arg;
    struct beating *b = s->results.node != 0 ? calloc(1, sizeof *b) : NULL;
    (void)timer;
    if (b == NULL)
        return;
    b->errand = (struct errand){.s = s, .done = beat_done};
    b->beat = (struct mr_req_beat){.req.op = MR_OP_BEAT, .node = s->results.node};
    job_errand_broker(&b->errand, &b->beat.req);
}

static void open_again(struct mr_timer *timer, void *arg)
{
    struct mr_job_service *s = arg;
    (void)timer;
    if (s->results.node == 0 && s->results.wanted && !s->stopping)
        node_open(s);
}

void job_results_init(struct mr_job_service *s)
{
    mr_list_init(&s->results.written);
    mr_timer_init(&s->results.beat, beat);
    mr_timer_init(&s->results.again, open_again);
}

void job_results_want(struct mr_job_service *s)
{
    s->results.live_at = mr_mono_now(s->clock);
    if (s->results.wanted)
        return;
    s->results.wanted = true;
    node_open(s);
}

/* A server without jobs has no node, and asks its broker for nothing. Tasks of a job that was cancelled may end
 * later than it: so the node stays a while. */
void job_results_linger(struct mr_job_service *s)
{
    int64_t for_ns = mr_mono_now(s->clock).ns - s->results.live_at.ns;
    if (s->results.wanted && s->results.writing == 0 && for_ns > LINGER_MS * MR_NS_PER_MS)
        job_results_end(s);
}

void job_results_end(struct mr_job_service *s)
{
    s->results.wanted = false;
    mr_wheel_stop(s->wheel, &s->results.beat);
    mr_wheel_stop(s->wheel, &s->results.again);
    if (s->results.node != 0)
        node_close(s, s->results.node);
    s->results.node = 0;
    s->results.taking = false;
    /* Those that wait to be tried again; the others are under way, and find the node gone. */
    for (struct mr_link *at = s->results.written.next, *next; at != &s->results.written;
         at = next) {
        struct taken *t = mr_container(at, struct taken, link);
        next = at->next;
        if (mr_timer_running(&t->again))
            taken_free(t);
    }
}
