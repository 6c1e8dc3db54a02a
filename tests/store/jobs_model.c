/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests about jobs to a store, several at once, and to a naive model of the contract:
 * every answer must be the same, and so must all that can be looked at. Rows of counters are
 * deleted on the way. MR_STEPS rounds with each of MR_SEEDS seeds; MR_SEED for one.
 */
#include <stdio.h>

#include "base/rand.h"
#include "store/job_kit.h"

enum {
    JOBS_MAX = 400,
    LATEST = 4, /* jobs that most requests are about */
    PARTS_MAX = 14,
    STAGES_MAX = 3,
    READY_MAX = 2000,
    SEGMENT = 5,
    BATCH = 6,
    TOGETHER = 4, /* requests that may share a transaction */
    LOOK_EVERY = 8,
    RETAIN_EVERY = 40,
};

enum outcome { NONE, SUCCESS, FAILURE };

struct model_part {
    uint64_t segment;
    enum outcome outcomes[STAGES_MAX];
};

struct model_ready {
    uint32_t stage, round;
    uint64_t index;
};

struct model_job {
    unsigned uid;
    enum mr_jobrow_state state;
    enum mr_job_policy policy;
    bool pipeline, removed;
    size_t stages;
    uint32_t round;
    uint64_t total;
    struct model_part parts[PARTS_MAX];
    uint64_t cursor[STAGES_MAX], sent[STAGES_MAX];
    struct model_ready ready[READY_MAX]; /* what is not submitted yet */
    size_t ready_n;
    bool second[STAGES_MAX][PARTS_MAX]; /* in this round */
    unsigned chunks;
    unsigned result_chunks;
    bool halfway; /* cancelled while it was retried: the ready list has a part of what it should */
};

struct model {
    struct suite *t;
    struct mr_rand rand;
    struct model_job *jobs;
    unsigned jobs_n;
    uint64_t end, filled; /* the last segment, and how full it is */
    uint64_t dropped;     /* segments up to this one are gone */
};

static uint64_t below(struct model *m, uint64_t n)
{
    return mr_rand_below(&m->rand, n);
}

static bool one_in(struct model *m, uint64_t n)
{
    return mr_rand_one_in(&m->rand, n);
}

static bool is_seen(const struct model_job *job)
{
    return job->state > MR_JOBROW_LOADING && job->state < MR_JOBROW_DROPPED;
}

static uint64_t count(const struct model_job *job, size_t stage, enum outcome outcome)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < job->total; i++)
        n += job->parts[i].outcomes[stage] == outcome ? 1 : 0;
    return n;
}

static uint64_t total_of(const struct model_job *job, size_t stage)
{
    uint64_t total = job->total;
    for (size_t i = 0; i < stage; i++)
        total -= count(job, i, FAILURE);
    return total;
}

static bool has_input(const struct model_job *job, size_t stage, uint64_t index)
{
    return stage == 0 || job->parts[index].outcomes[stage - 1] == SUCCESS;
}

static bool is_through(const struct model_job *job, uint64_t index)
{
    for (size_t i = 0; i < job->stages; i++)
        if (job->parts[index].outcomes[i] == FAILURE)
            return true;
    return job->parts[index].outcomes[job->stages - 1] == SUCCESS;
}

static void settle(struct model_job *job)
{
    bool all = true;
    for (uint64_t i = 0; i < job->total; i++)
        all = all && is_through(job, i);
    if (job->state == MR_JOBROW_RUNNING && all)
        job->state = MR_JOBROW_REDUCING;
}

static void push_ready(struct model_job *job, uint32_t stage, uint64_t index, uint32_t round)
{
    assert_true(job->ready_n < READY_MAX);
    job->ready[job->ready_n++] =
        (struct model_ready){.stage = stage, .round = round, .index = index};
}

static bool waits(const struct model_job *job, uint32_t stage, uint64_t index, uint32_t round)
{
    for (size_t i = 0; i < job->ready_n; i++)
        if (job->ready[i].stage == stage && job->ready[i].index == index &&
            job->ready[i].round == round)
            return true;
    return false;
}

static void refill(struct model_job *job)
{
    job->ready_n = 0;
    memset(job->second, 0, sizeof job->second);
    for (uint32_t k = 0; k < job->stages; k++) {
        uint64_t behind = job->pipeline && k > 0 ? job->total : job->cursor[k];
        for (uint64_t i = 0; i < behind; i++)
            if (has_input(job, k, i) && job->parts[i].outcomes[k] == NONE)
                push_ready(job, k, i, job->round);
        job->sent[k] = count(job, k, SUCCESS) + count(job, k, FAILURE);
    }
    settle(job);
}

/* ---- requests -------------------------------------------------------------------------------- */

struct step {
    void (*check)(struct model *m, struct step *step);
    struct mr_event answered;
    struct model_job *job;
    union {
        struct mr_store_req head;
        struct mr_store_job_begin begin;
        struct mr_store_parts_add add;
        struct mr_store_job_act act;
        struct mr_store_job_advance advance;
        struct mr_store_parts_end end;
        struct mr_store_parts_again again;
        struct mr_store_result_add chunk;
    } req;
    union {
        struct mr_slice inputs[PARTS_MAX];
        struct mr_store_advance advance;
        struct mr_store_end end[BATCH];
        struct mr_store_again again[BATCH];
    } items;
    enum mr_err results[BATCH];
    struct model_job *jobs[BATCH]; /* of outcomes */
};

static struct model_job *some_job(struct model *m)
{
    unsigned latest = m->jobs_n < LATEST || one_in(m, 10) ? m->jobs_n : LATEST;
    return &m->jobs[m->jobs_n - 1 - below(m, latest)];
}

static void begin_job(struct model *m)
{
    struct model_job *job = &m->jobs[m->jobs_n++];
    *job = (struct model_job){.uid = m->jobs_n,
                              .state = MR_JOBROW_LOADING,
                              .policy = one_in(m, 3) ? MR_JOB_FAIL_FAST : MR_JOB_FINISH,
                              .pipeline = one_in(m, 2),
                              .stages = 1 + below(m, STAGES_MAX)};
    struct kit_job kit = {
        .uid = job->uid, .stages = job->stages, .policy = job->policy, .pipeline = job->pipeline};
    assert_err(kit_begin(m->t, kit), MR_OK);
}

/* -- parts -- */

static void check_add(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    const struct mr_store_parts_add *add = &step->req.add;
    enum mr_err expected = MR_OK;
    if (job->removed || job->state == MR_JOBROW_DROPPED)
        expected = MR_NOT_FOUND;
    else if (add->first > job->total)
        expected = MR_INVALID;
    else if (add->first + add->n > job->total && job->state != MR_JOBROW_LOADING)
        expected = MR_WRONG_STATE;
    assert_err(add->req.err, expected);
    while (expected == MR_OK && job->total < add->first + add->n) {
        job->parts[job->total++].segment = m->end;
        if (++m->filled == SEGMENT) {
            m->end++;
            m->filled = 0;
        }
    }
    if (expected == MR_OK)
        assert_int_equal(add->total, job->total);
}

static void make_add(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    uint64_t first =
        job->total + below(m, 3) > 0 ? job->total - (one_in(m, 4) && job->total > 0) : one_in(m, 8);
    size_t room = first < PARTS_MAX ? (size_t)(PARTS_MAX - first) : 0;
    size_t n = room > 0 ? 1 + below(m, room) : 1;
    if (room == 0)
        first = 0;
    for (size_t i = 0; i < n; i++)
        step->items.inputs[i] = MR_SLICE_LIT("input");
    step->req.add = (struct mr_store_parts_add){.req.op = MR_STORE_PARTS_ADD,
                                                .uid = suite_uid(job->uid),
                                                .first = first,
                                                .inputs = step->items.inputs,
                                                .n = n,
                                                .segment_parts = SEGMENT};
    step->check = check_add;
}

/* -- acts -- */

static enum mr_err model_commit(struct model_job *job, const struct mr_store_job_act *act)
{
    if (job->total == 0 || job->total != act->total)
        return MR_INVALID;
    if (job->state == MR_JOBROW_LOADING)
        job->state = MR_JOBROW_CREATED;
    return MR_OK;
}

static enum mr_err model_cancel(struct model_job *job)
{
    if (mr_jobrow_is_live(job->state))
        job->state = MR_JOBROW_CANCELLED;
    return job->state == MR_JOBROW_CANCELLED ? MR_OK : MR_WRONG_STATE;
}

static enum mr_err model_retry(struct model *m, struct model_job *job,
                               const struct mr_store_job_act *act)
{
    uint64_t failed = 0;
    for (size_t k = 0; k < job->stages; k++)
        failed += count(job, k, FAILURE);
    if (job->round == act->round + 2)
        return MR_OK;
    if (job->round != act->round)
        return MR_STALE;
    if (!mr_jobrow_is_ended(job->state) || (job->state == MR_JOBROW_SUCCEEDED && failed == 0))
        return MR_WRONG_STATE;
    if (job->parts[0].segment <= m->dropped)
        return MR_EMPTY;
    for (uint64_t i = 0; i < job->total; i++)
        for (size_t k = 0; k < job->stages; k++)
            if (job->parts[i].outcomes[k] == FAILURE)
                job->parts[i].outcomes[k] = NONE;
    job->round += 2;
    job->state = MR_JOBROW_RUNNING;
    job->chunks = job->result_chunks = 0;
    job->halfway = false;
    refill(job);
    return MR_OK;
}

static enum mr_err model_finish(struct model_job *job, const struct mr_store_job_act *act)
{
    if (job->round == act->round && job->state == act->state)
        return MR_OK;
    if (job->round != act->round)
        return MR_STALE;
    bool fits = act->state == MR_JOBROW_FAILED ? mr_jobrow_is_live(job->state)
                                               : job->state == MR_JOBROW_REDUCING;
    if (!fits)
        return MR_WRONG_STATE;
    job->state = act->state;
    job->result_chunks = act->state == MR_JOBROW_SUCCEEDED ? act->chunks : 0;
    job->chunks = job->result_chunks < job->chunks ? job->result_chunks : job->chunks;
    return MR_OK;
}

static void check_act(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    const struct mr_store_job_act *act = &step->req.act;
    enum mr_err expected = MR_NOT_FOUND;
    if (act->req.op == MR_STORE_JOB_ABORT && !job->removed) {
        expected = job->state == MR_JOBROW_LOADING || job->state == MR_JOBROW_DROPPED
                       ? MR_OK
                       : MR_WRONG_STATE;
        job->state = expected == MR_OK ? MR_JOBROW_DROPPED : job->state;
    } else if (act->req.op == MR_STORE_JOB_COMMIT && !job->removed &&
               job->state != MR_JOBROW_DROPPED)
        expected = model_commit(job, act);
    else if (is_seen(job) && act->req.op == MR_STORE_JOB_CANCEL)
        expected = model_cancel(job);
    else if (is_seen(job) && act->req.op == MR_STORE_JOB_RETRY)
        expected = model_retry(m, job, act);
    else if (is_seen(job) && act->req.op == MR_STORE_JOB_END)
        expected = model_finish(job, act);
    assert_err(act->req.err, expected);
}

static void make_act(struct model *m, struct step *step)
{
    static const enum mr_store_op common[] = {MR_STORE_JOB_COMMIT, MR_STORE_JOB_COMMIT,
                                              MR_STORE_JOB_END, MR_STORE_JOB_END,
                                              MR_STORE_JOB_RETRY};
    struct model_job *job = step->job;
    enum mr_store_op op = common[below(m, 5)];
    if (one_in(m, 10))
        op = one_in(m, 3) ? MR_STORE_JOB_ABORT : MR_STORE_JOB_CANCEL;
    step->req.act = (struct mr_store_job_act){
        .req.op = op,
        .uid = suite_uid(job->uid),
        .total = one_in(m, 10) ? job->total + 1 : job->total,
        .round = job->round + (one_in(m, 10) ? 2 : 0) - (one_in(m, 10) && job->round > 0 ? 2 : 0),
        .state = one_in(m, 6) ? MR_JOBROW_FAILED : MR_JOBROW_SUCCEEDED,
        .chunks = job->chunks,
    };
    step->check = check_act;
}

/* -- cursors -- */

static void check_advance(struct model *m, struct step *step)
{
    (void)m;
    struct model_job *job = step->job;
    const struct mr_store_advance *item = &step->items.advance;
    enum mr_err expected = MR_OK;
    assert_err(step->req.head.err, MR_OK);
    if (!is_seen(job))
        expected = MR_NOT_FOUND;
    else if (item->stage >= job->stages || item->to < item->from || item->to > job->total ||
             item->parts > item->to - item->from)
        expected = MR_INVALID;
    else if (job->round != item->round || !mr_jobrow_is_live(job->state) ||
             (job->cursor[item->stage] != item->from && job->cursor[item->stage] < item->to))
        expected = MR_STALE;
    assert_err(step->results[0], expected);
    if (expected != MR_OK || job->cursor[item->stage] >= item->to)
        return;
    job->cursor[item->stage] = item->to;
    job->sent[item->stage] += item->parts;
    if (job->state == MR_JOBROW_CREATED)
        job->state = MR_JOBROW_RUNNING;
}

/* A stage behind the first is begun when the one before it is complete, and never in a pipeline. */
static void make_advance(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    uint32_t stage = 0;
    while (!job->pipeline && stage + 1 < job->stages && job->total > 0 &&
           count(job, stage, SUCCESS) + count(job, stage, FAILURE) == total_of(job, stage))
        stage++;
    uint64_t from = job->cursor[stage];
    uint64_t to = from + (job->total > from ? 1 + below(m, job->total - from) : 0);
    uint64_t parts = 0;
    for (uint64_t i = from; i < to; i++)
        parts += has_input(job, stage, i) ? 1 : 0;
    step->items.advance = (struct mr_store_advance){
        .uid = suite_uid(job->uid),
        .round = job->round + (one_in(m, 12) ? 2 : 0),
        .stage = one_in(m, 30) ? STAGES_MAX : stage,
        .from = from + (one_in(m, 12) && to > from ? 1 : 0),
        .to = to,
        .parts = parts,
    };
    step->req.advance = (struct mr_store_job_advance){.req.op = MR_STORE_JOB_ADVANCE,
                                                      .items = &step->items.advance,
                                                      .n = 1,
                                                      .results = step->results};
    step->check = check_advance;
}

/* -- outcomes -- */

static enum mr_err judge_end(struct model *m, const struct model_job *job,
                             const struct mr_store_end *item)
{
    if (!is_seen(job) || item->stage >= job->stages)
        return MR_NOT_FOUND;
    if (!mr_jobrow_is_live(job->state) ||
        (item->failed && (item->round < job->round || item->round % 2 != 0)))
        return MR_STALE;
    if (item->index >= job->total || job->parts[item->index].segment != item->segment ||
        item->segment <= m->dropped || !has_input(job, item->stage, item->index))
        return MR_NOT_FOUND;
    return job->parts[item->index].outcomes[item->stage] != NONE ? MR_CONFLICT : MR_OK;
}

static bool same_part(const struct mr_store_end *a, const struct mr_store_end *b)
{
    return memcmp(&a->uid, &b->uid, sizeof a->uid) == 0 && a->index == b->index &&
           a->segment == b->segment && a->stage == b->stage;
}

/* What is in the request is judged by what was there before it. */
static void judge_ends(struct model *m, const struct step *step, enum mr_err *expected)
{
    const struct mr_store_end *items = step->items.end;
    for (size_t i = 0; i < step->req.end.n; i++) {
        expected[i] = judge_end(m, step->jobs[i], &items[i]);
        for (size_t j = 0; j < i; j++)
            if (expected[i] == MR_OK && expected[j] == MR_OK && same_part(&items[i], &items[j]))
                expected[i] = MR_CONFLICT;
    }
}

static bool goes_on(const struct model_job *job, const struct step *step,
                    const enum mr_err *expected, uint32_t stage, uint64_t index)
{
    for (size_t i = 0; i < step->req.end.n; i++) {
        const struct mr_store_end *item = &step->items.end[i];
        if (step->jobs[i] == job && expected[i] == MR_OK && !item->failed && item->stage == stage &&
            item->index == index)
            return job->pipeline || index < job->cursor[stage + 1];
    }
    return false;
}

/* Ready rows come in the order of segment, stage and index. */
static void push_next_stages(struct model_job *job, const struct step *step,
                             const enum mr_err *expected)
{
    for (uint64_t first = 0, behind; first < job->total; first = behind) {
        for (behind = first;
             behind < job->total && job->parts[behind].segment == job->parts[first].segment;)
            behind++;
        for (uint32_t k = 0; k + 1 < job->stages; k++)
            for (uint64_t i = first; i < behind; i++)
                if (goes_on(job, step, expected, k, i))
                    push_ready(job, k + 1, i, job->round);
    }
}

static void check_end(struct model *m, struct step *step)
{
    enum mr_err expected[BATCH];
    assert_err(step->req.head.err, MR_OK);
    judge_ends(m, step, expected);
    for (size_t i = 0; i < step->req.end.n; i++) {
        const struct mr_store_end *item = &step->items.end[i];
        struct model_job *job = step->jobs[i];
        assert_err(step->results[i], expected[i]);
        if (expected[i] != MR_OK)
            continue;
        job->parts[item->index].outcomes[item->stage] = item->failed ? FAILURE : SUCCESS;
        if (job->state == MR_JOBROW_CREATED)
            job->state = MR_JOBROW_RUNNING;
    }
    for (size_t i = 0; i < step->req.end.n; i++) {
        struct model_job *job = step->jobs[i];
        bool first = true;
        for (size_t j = 0; j < i; j++)
            first = first && step->jobs[j] != job;
        if (first)
            push_next_stages(job, step, expected);
    }
    for (size_t i = 0; i < step->req.end.n; i++)
        if (expected[i] == MR_OK && step->items.end[i].failed &&
            step->jobs[i]->policy == MR_JOB_FAIL_FAST && mr_jobrow_is_live(step->jobs[i]->state))
            step->jobs[i]->state = MR_JOBROW_FAILED;
    for (size_t i = 0; i < step->req.end.n; i++)
        if (expected[i] == MR_OK)
            settle(step->jobs[i]);
}

static void make_end(struct model *m, struct step *step)
{
    size_t n = 1 + below(m, BATCH);
    for (size_t i = 0; i < n; i++) {
        struct model_job *job = one_in(m, 4) ? some_job(m) : step->job;
        uint64_t index = job->total > 0 && !one_in(m, 20) ? below(m, job->total) : job->total;
        uint32_t stage = 0;
        if (index < job->total)
            while (stage + 1 < job->stages && job->parts[index].outcomes[stage] == SUCCESS)
                stage++;
        uint64_t segment = index < job->total ? job->parts[index].segment : m->end;
        step->jobs[i] = job;
        step->items.end[i] = (struct mr_store_end){
            .uid = suite_uid(job->uid),
            .index = index,
            .segment = segment + (one_in(m, 20) ? 1 : 0),
            .stage = one_in(m, 12) ? (uint32_t)below(m, STAGES_MAX + 1) : stage,
            .round = one_in(m, 6) && job->round > 0 ? job->round - 2 : job->round,
            .failed = one_in(m, 8),
            .bytes = MR_SLICE_LIT("outcome"),
        };
    }
    step->req.end = (struct mr_store_parts_end){
        .req.op = MR_STORE_PARTS_END, .items = step->items.end, .n = n, .results = step->results};
    step->check = check_end;
}

/* -- again -- */

static enum mr_err judge_again(const struct model_job *job, uint32_t round,
                               const struct mr_store_again *item, bool *ret_adds)
{
    *ret_adds = false;
    if (!is_seen(job) || item->stage >= job->stages)
        return MR_NOT_FOUND;
    bool passed = (job->pipeline && item->stage > 0) || item->index < job->cursor[item->stage];
    if (job->state != MR_JOBROW_RUNNING || job->round != round || !passed)
        return MR_STALE;
    if (item->index >= job->total || job->parts[item->index].segment != item->segment ||
        !has_input(job, item->stage, item->index))
        return MR_NOT_FOUND;
    if (job->parts[item->index].outcomes[item->stage] != NONE)
        return MR_STALE;
    bool same = waits(job, item->stage, item->index, job->round);
    if (item->kind == MR_AGAIN_SAME) {
        *ret_adds = !same;
        return MR_OK;
    }
    if (job->second[item->stage][item->index])
        return waits(job, item->stage, item->index, job->round + 1) ? MR_OK : MR_CONFLICT;
    *ret_adds = !same;
    return same ? MR_STALE : MR_OK;
}

static void check_again(struct model *m, struct step *step)
{
    (void)m;
    struct model_job *job = step->job;
    const struct mr_store_again *item = &step->items.again[0];
    bool adds = false;
    assert_err(step->req.head.err, MR_OK);
    assert_err(step->results[0], judge_again(job, step->req.again.round, item, &adds));
    if (!adds)
        return;
    bool second = item->kind == MR_AGAIN_SECOND;
    push_ready(job, item->stage, item->index, job->round + (second ? 1 : 0));
    if (second)
        job->second[item->stage][item->index] = true;
    else if (job->sent[item->stage] > 0)
        job->sent[item->stage]--;
}

static void make_again(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    uint64_t index = job->total > 0 ? below(m, job->total) : 0;
    uint32_t stage = 0;
    while (stage + 1 < job->stages && job->parts[index].outcomes[stage] == SUCCESS)
        stage++;
    step->items.again[0] = (struct mr_store_again){
        .index = index,
        .segment = job->parts[index].segment,
        .stage = stage,
        .kind = one_in(m, 2) ? MR_AGAIN_SECOND : MR_AGAIN_SAME,
    };
    step->req.again = (struct mr_store_parts_again){.req.op = MR_STORE_PARTS_AGAIN,
                                                    .uid = suite_uid(job->uid),
                                                    .round = job->round,
                                                    .items = step->items.again,
                                                    .n = 1,
                                                    .results = step->results};
    step->check = check_again;
}

/* -- chunks -- */

static void check_chunk(struct model *m, struct step *step)
{
    (void)m;
    struct model_job *job = step->job;
    const struct mr_store_result_add *add = &step->req.chunk;
    enum mr_err expected = MR_OK;
    if (!is_seen(job))
        expected = MR_NOT_FOUND;
    else if (job->state != MR_JOBROW_REDUCING || job->round != add->round)
        expected = MR_STALE;
    assert_err(add->req.err, expected);
    if (expected == MR_OK && add->seq == job->chunks)
        job->chunks++;
}

static void make_chunk(struct model *m, struct step *step)
{
    struct model_job *job = step->job;
    step->req.chunk = (struct mr_store_result_add){.req.op = MR_STORE_RESULT_ADD,
                                                   .uid = suite_uid(job->uid),
                                                   .round = job->round,
                                                   .seq = one_in(m, 3) ? 0 : job->chunks,
                                                   .bytes = MR_SLICE_LIT("chunk")};
    if (step->req.chunk.seq > job->chunks)
        step->req.chunk.seq = 0;
    step->check = check_chunk;
}

/* ---- the ready list -------------------------------------------------------------------------- */

/* A page of it is read and submitted. */
static void submit_ready(struct model *m)
{
    struct model_job *job = some_job(m);
    if (!is_seen(job) || job->halfway)
        return;
    const struct mr_store_job *row = kit_get(m->t, job->uid);
    size_t max = 1 + below(m, 8), looked = job->ready_n < max ? job->ready_n : max, n = 0;
    struct mr_store_ready_read *read =
        kit_ready(m->t, (struct mr_store_ready_read){
                            .uid = suite_uid(job->uid), .after = row->ready_cursor, .max = max});
    for (size_t i = 0; i < looked; i++) {
        const struct model_ready *ready = &job->ready[i];
        if (job->parts[ready->index].outcomes[ready->stage] != NONE ||
            job->parts[ready->index].segment <= m->dropped)
            continue;
        assert_true(n < read->n);
        assert_int_equal(read->parts[n].index, ready->index);
        assert_int_equal(read->parts[n].stage, ready->stage);
        assert_int_equal(read->parts[n].round, ready->round);
        assert_slice(read->parts[n].bytes, ready->stage == 0 ? "input" : "outcome");
        n++;
    }
    assert_int_equal(read->n, n);
    struct mr_store_advance item = {.uid = suite_uid(job->uid),
                                    .round = job->round,
                                    .stage = MR_STORE_STAGE_READY,
                                    .from = row->ready_cursor,
                                    .to = read->next};
    enum mr_err err = kit_advance(m->t, (struct mr_store_fence){0}, item);
    assert_err(err, mr_jobrow_is_live(job->state) ? MR_OK : MR_STALE);
    if (err != MR_OK || item.from == item.to)
        return;
    if (job->state == MR_JOBROW_CREATED)
        job->state = MR_JOBROW_RUNNING;
    for (size_t i = 0; i < looked; i++)
        job->sent[job->ready[i].stage] += job->ready[i].round % 2 == 0 ? 1 : 0;
    memmove(job->ready, job->ready + looked, (job->ready_n - looked) * sizeof *job->ready);
    job->ready_n -= looked;
}

/* ---- what people do -------------------------------------------------------------------------- */

/* Rows of counters are gone; the next request that changes the job makes them anew. */
static void lose_counters(struct model *m, struct model_job *job)
{
    if (!is_seen(job) || job->parts[0].segment <= m->dropped)
        return;
    uint32_t stage = (uint32_t)below(m, job->stages);
    char text[128];
    (void)snprintf(text, sizeof text, "DELETE FROM job_stage WHERE stage = %u AND job = %llu",
                   stage, (unsigned long long)kit_get(m->t, job->uid)->no);
    m->t->engine->sql(m->t->engine->arg, text);
    job->cursor[stage] = 0;
    for (uint64_t i = 0; i < job->total; i++)
        if (job->parts[i].outcomes[stage] != NONE)
            job->cursor[stage] = i + 1;
    refill(job);
    /* Something that changes nothing else. */
    assert_err(kit_again(m->t, job->uid, job->round + 2, (struct mr_store_again){.segment = 1}),
               MR_STALE);
}

static bool is_open(const struct model_job *job, uint64_t segment)
{
    bool ended = mr_jobrow_is_ended(job->state) || job->removed;
    for (uint64_t i = 0; !ended && i < job->total; i++)
        if (job->parts[i].segment == segment &&
            (job->state == MR_JOBROW_LOADING || job->state == MR_JOBROW_DROPPED ||
             !is_through(job, i)))
            return true;
    return false;
}

static bool is_in_use(const struct model *m, uint64_t segment)
{
    for (unsigned j = 0; j < m->jobs_n; j++) {
        const struct model_job *job = &m->jobs[j];
        for (uint64_t i = 0; job->state <= MR_JOBROW_REDUCING && i < job->total; i++)
            if (job->parts[i].segment == segment)
                return true;
    }
    return false;
}

static uint64_t begin_of(const struct model *m)
{
    for (uint64_t segment = m->dropped + 1; segment < m->end; segment++)
        for (unsigned j = 0; j < m->jobs_n; j++)
            if (is_open(&m->jobs[j], segment))
                return segment;
    return m->end;
}

static void retain(struct model *m)
{
    size_t max = 1 + below(m, 20);
    while (kit_job_retain(m->t, (struct mr_store_job_retain){.max = max})->more)
        ;
    for (unsigned j = 0; j < m->jobs_n; j++) {
        if (m->jobs[j].state == MR_JOBROW_DROPPED)
            m->jobs[j].removed = true;
    }
    while (kit_segment_retain(m->t, 0, max)->more)
        ;
    uint64_t begin = begin_of(m);
    while (m->dropped + 1 < begin && !is_in_use(m, m->dropped + 1))
        m->dropped++;
}

/* ---- looking --------------------------------------------------------------------------------- */

static void look_at_parts(struct model *m, const struct model_job *job)
{
    struct mr_store_parts_list *list =
        kit_parts(m->t, (struct mr_store_parts_list){.uid = suite_uid(job->uid), .max = PARTS_MAX});
    size_t n = 0;
    for (uint64_t i = 0; i < job->total; i++) {
        if (job->parts[i].segment <= m->dropped)
            continue;
        assert_true(n < list->n);
        const struct mr_store_part *part = &list->parts[n++];
        uint32_t stage = 0;
        while (stage + 1 < job->stages && job->parts[i].outcomes[stage] == SUCCESS)
            stage++;
        enum outcome outcome = job->parts[i].outcomes[stage];
        bool passed = (job->pipeline && stage > 0) || i < job->cursor[stage];
        enum mr_part_state expected = outcome == SUCCESS   ? MR_PART_DONE
                                      : outcome == FAILURE ? MR_PART_FAILED
                                      : passed && !waits(job, stage, i, job->round)
                                          ? MR_PART_SUBMITTED
                                          : MR_PART_WAITING;
        assert_int_equal(part->index, i);
        assert_int_equal(part->segment, job->parts[i].segment);
        assert_int_equal(part->stage, stage);
        assert_int_equal(part->state, expected);
        if (outcome == NONE)
            assert_int_equal(part->again, job->second[stage][i]);
    }
    assert_int_equal(list->n, n);
    assert_int_equal(list->next, job->total);
}

static void look_at(struct model *m, const struct model_job *job)
{
    const struct mr_store_job *row = kit_get(m->t, job->uid);
    assert_int_equal(row->state, is_seen(job) ? job->state : MR_JOBROW_NONE);
    if (!is_seen(job))
        return;
    assert_int_equal(row->total, job->total);
    assert_int_equal(row->round, job->round);
    for (size_t k = 0; k < job->stages; k++) {
        assert_int_equal(row->stages[k].done, count(job, k, SUCCESS));
        assert_int_equal(row->stages[k].failed, count(job, k, FAILURE));
        assert_int_equal(row->stages[k].total, total_of(job, k));
        assert_int_equal(row->stages[k].cursor, job->cursor[k]);
        assert_int_equal(row->stages[k].sent, job->sent[k]);
    }
    look_at_parts(m, job);
    if (job->state == MR_JOBROW_SUCCEEDED)
        assert_int_equal(kit_result(m->t, job->uid, 0, 1000)->n, job->result_chunks);
}

static void look_at_all(struct model *m, unsigned jobs)
{
    for (unsigned j = m->jobs_n < jobs ? 0 : m->jobs_n - jobs; j < m->jobs_n; j++)
        look_at(m, &m->jobs[j]);
    struct mr_store_segments *segments = kit_segments(m->t);
    assert_int_equal(segments->begin, begin_of(m));
    assert_int_equal(segments->end, m->end);
    assert_int_equal(segments->n, m->end - m->dropped);
    suite_forget(m->t);
}

/* ---- retries --------------------------------------------------------------------------------- */

/* A few parts at a time. Meanwhile it is as it will be, but for the reduce; counters are lost, or it is cancelled. */
static void retry_slowly(struct model *m)
{
    struct model_job *job = some_job(m);
    struct mr_store_job_act act = {.uid = suite_uid(job->uid), .round = job->round};
    enum mr_err expected = is_seen(job) ? model_retry(m, job, &act) : MR_NOT_FOUND;
    for (bool more = true; more;) {
        struct mr_store_job_act step = act;
        step.req.op = MR_STORE_JOB_RETRY;
        step.max = 1 + below(m, 5);
        assert_err(mr_store_call(m->t->store, &step.req), expected);
        more = expected == MR_OK && mr_store_job_retrying(&step.job);
        mr_store_req_done(&step.req);
        if (!more)
            break;
        job->state = MR_JOBROW_RUNNING;
        if (one_in(m, 8))
            lose_counters(m, job);
        job->state = MR_JOBROW_RUNNING;
        if (one_in(m, 3))
            look_at(m, job);
        job->halfway = one_in(m, 12);
        if (job->halfway) {
            assert_err(ACT(m->t, MR_STORE_JOB_CANCEL, job->uid), MR_OK);
            (void)model_cancel(job);
            return;
        }
    }
    if (expected == MR_OK)
        settle(job);
}

/* ---- running --------------------------------------------------------------------------------- */

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void make_step(struct model *m, struct step *step)
{
    static void (*const makes[])(struct model *, struct step *) = {
        make_add, make_act, make_act, make_advance, make_advance, make_end,
        make_end, make_end, make_end, make_again,   make_chunk,
    };
    memset(step, 0, sizeof *step);
    step->job = some_job(m);
    if (step->job->state == MR_JOBROW_LOADING)
        (one_in(m, 2) ? make_add : make_act)(m, step);
    else
        makes[below(m, sizeof makes / sizeof *makes)](m, step);
}

/* Several at once; their answers are those of one after the other. */
static void do_some(struct model *m)
{
    struct step *steps = calloc(TOGETHER, sizeof *steps);
    size_t n = 1 + below(m, TOGETHER);
    assert_non_null(steps);
    for (size_t i = 0; i < n; i++) {
        make_step(m, &steps[i]);
        mr_event_init(&steps[i].answered);
        steps[i].req.head.done = set_event;
        steps[i].req.head.arg = &steps[i].answered;
    }
    for (size_t i = 0; i < n; i++)
        mr_store_submit(m->t->store, &steps[i].req.head);
    for (size_t i = 0; i < n; i++)
        assert_true(mr_event_wait(&steps[i].answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    for (size_t i = 0; i < n; i++) {
        steps[i].check(m, &steps[i]);
        mr_store_req_done(&steps[i].req.head);
    }
    free(steps);
}

static void run_seed(struct model *m, uint64_t rounds)
{
    m->end = 1;
    for (uint64_t round = 0; round < rounds; round++) {
        if (m->jobs_n < 2 || (one_in(m, 25) && m->jobs_n < JOBS_MAX))
            begin_job(m);
        do_some(m);
        if (one_in(m, 2))
            submit_ready(m);
        if (one_in(m, 30))
            lose_counters(m, some_job(m));
        if (one_in(m, 10))
            retry_slowly(m);
        if (one_in(m, RETAIN_EVERY))
            retain(m);
        if (one_in(m, LOOK_EVERY))
            look_at_all(m, LATEST);
    }
    look_at_all(m, JOBS_MAX);
}

static void test_jobs_of_a_store_are_what_the_model_says(void **state)
{
    struct suite *t = *state;
    uint64_t rounds = suite_size("MR_STEPS", 300), seeds = suite_size("MR_SEEDS", 2);
    uint64_t first = suite_size("MR_SEED", 0);
    for (uint64_t i = 0; i < (first != 0 ? 1 : seeds); i++) {
        struct model m = {.t = t, .jobs = calloc(JOBS_MAX, sizeof *m.jobs)};
        assert_non_null(m.jobs);
        uint64_t seed = first != 0 ? first : mr_rand_next(mr_rand_of_thread());
        print_message("seed %llu\n", (unsigned long long)seed);
        mr_rand_seed(&m.rand, seed);
        run_seed(&m, rounds);
        free(m.jobs);
        suite_close(t);
        t->engine->remove(t->engine->arg);
        t->engine->make(t->engine->arg, t->url);
        suite_open(t, NULL);
    }
}

int suite_jobs_model(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_jobs_of_a_store_are_what_the_model_says),
    };
    return SUITE_RUN(engine, "model of jobs", tests);
}
