/* SPDX-License-Identifier: Apache-2.0 */
/* Results of tasks become outcomes of parts. Every service takes them; one transaction for each batch of the intake. */
#include <stdlib.h>

#include "job/internal.h"

enum {
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
    struct mr_errand errand;
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

static void ended(struct mr_errand *errand)
{
    struct ending *e = mr_container(errand, struct ending, errand);
    struct mr_job_service *s = job_of(errand);
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
    e->errand = (struct mr_errand){.desk = &s->desk, .done = ended};
    e->done = done;
    e->arg = arg;
    mr_errand_store(&e->errand, &e->req.req);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Some results in hand, until the store has them. */
struct taken {
    struct mr_errand errand;
    struct mr_store_parts_end write;
    struct mr_intake_batch *batch;
    struct mr_store_end *ends;
    enum mr_err *errs;
    size_t n;
};

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
    for (size_t i = 0; i < t->n; i++) {
        const struct mr_uuid *uid = &t->ends[i].uid;
        if (live == NULL || memcmp(&live->uid, uid, sizeof *uid) != 0)
            live = job_live_find(job_of(&t->errand), uid);
        if (live != NULL)
            count_one(live, what);
    }
}

static void written(struct mr_errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct mr_job_service *s = job_of(errand);
    enum mr_err err = t->write.req.err;
    count_in_hand(t, COUNT_WRITTEN);
    if (err == MR_OK) {
        job_step(s, MR_JOB_STEP_ENDED);
        count_ends(s, t->ends, t->errs, t->n);
        job_changed(s, &t->write.changed);
    }
    count_in_hand(t, COUNT_TOLD);
    mr_intake_written(t->batch, err, AGAIN_MS);
}

static void write_results(struct mr_intake_batch *batch)
{
    struct taken *t = batch->of;
    if (t->n == 0) {
        mr_intake_written(batch, MR_OK, 0);
        return;
    }
    job_step(job_of(&t->errand), MR_JOB_STEP_TAKEN);
    mr_store_req_done(&t->write.req);
    t->write = (struct mr_store_parts_end){
        .req.op = MR_STORE_PARTS_END, .items = t->ends, .n = t->n, .results = t->errs};
    count_in_hand(t, COUNT_TAKEN);
    mr_errand_store(&t->errand, &t->write.req);
}

/* What is none of ours, and what another run follows, is passed over. */
static void read_result(struct mr_intake_batch *batch, const struct mr_result *result)
{
    struct taken *t = batch->of;
    struct mr_part_id part;
    if (!result->final || !mr_part_id_parse(result->task_id, &part))
        return;
    bool ok = result->outcome == MR_RESULT_OK;
    t->ends[t->n++] = (struct mr_store_end){.uid = part.job,
                                            .index = part.index,
                                            .segment = part.segment,
                                            .stage = part.stage,
                                            .round = part.round,
                                            .failed = !ok,
                                            .bytes = ok ? result->result : result->error,
                                            .finished_ms = result->finished_ms};
}

static enum mr_err begin_results(struct mr_intake_batch *batch, size_t n)
{
    struct taken *t = batch->of = calloc(1, sizeof *t);
    if (t == NULL)
        return MR_NOMEM;
    t->errand = (struct mr_errand){.desk = batch->intake->desk, .done = written};
    t->batch = batch;
    t->ends = calloc(n, sizeof *t->ends);
    t->errs = calloc(n, sizeof *t->errs);
    return t->ends != NULL && t->errs != NULL ? MR_OK : MR_NOMEM;
}

static void end_results(struct mr_intake_batch *batch)
{
    struct taken *t = batch->of;
    if (t == NULL)
        return;
    mr_store_req_done(&t->write.req);
    free(t->ends);
    free(t->errs);
    free(t);
}

static void results_committed(struct mr_intake_batch *batch)
{
    job_step(batch->intake->of, MR_JOB_STEP_SETTLED);
}

static void tell_trouble(struct mr_intake *intake, enum mr_err err)
{
    (void)intake;
    mr_diag(MR_DIAG_WARN, "job.results", "error=%s", mr_err_name(err));
}

static const struct mr_intake_calls results_calls = {
    .begin = begin_results,
    .read = read_result,
    .write = write_results,
    .committed = results_committed,
    .end = end_results,
    .trouble = tell_trouble,
};

void job_results_init(struct mr_job_service *s)
{
    mr_intake_init(&s->results, &s->desk, &results_calls, s);
}

void job_results_want(struct mr_job_service *s)
{
    s->live_at = mr_mono_now(s->desk.clock);
    mr_intake_begin(&s->results, MR_JOB_TOPIC, s->settings.master_ms);
}

/* A server without jobs has no node, and asks its broker for nothing. Tasks of a job that was cancelled may end
 * later than it: so the node stays a while. */
void job_results_linger(struct mr_job_service *s)
{
    if (s->results.batches_n == 0 && job_since_ms(s, s->live_at) > LINGER_MS)
        mr_intake_end(&s->results);
}
