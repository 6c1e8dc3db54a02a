/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at jobs, cancelling and retrying them. An ask is one or more requests to the store, one behind the other, from
 * whichever thread; it is answered on the store's. What it changed the service's thread is told.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "job/internal.h"

enum {
    SCAN_MAX = MR_STORE_BATCH_MAX, /* parts that a request looks at, when only some are asked for */
};

struct work {
    struct mr_job_service *s;
    struct mr_job_ask *ask;
    struct mr_uuid uid;
    struct mr_store_job_get get;
    struct mr_store_job_list list;
    struct mr_store_parts_list parts;
    struct mr_store_result_read result;
    struct mr_store_job_act act;
    uint64_t from, total; /* of parts */
    size_t limit;
    bool begun; /* a retry, with steps behind the first */
};

static void work_free(struct work *w)
{
    mr_store_req_done(&w->get.req);
    mr_store_req_done(&w->list.req);
    mr_store_req_done(&w->parts.req);
    mr_store_req_done(&w->result.req);
    mr_store_req_done(&w->act.req);
    free(w);
}

static void answer(struct work *w, enum mr_err err)
{
    struct mr_job_ask *ask = w->ask;
    struct mr_job_service *s = w->s;
    ask->err = err;
    ask->work = NULL;
    work_free(w);
    ask->done(ask);
    atomic_fetch_sub(&s->asking, 1);
}

static void submit(struct work *w, struct mr_store_req *req, enum mr_store_op op,
                   void (*done)(struct mr_store_req *req))
{
    req->op = op;
    req->done = done;
    req->arg = w;
    mr_store_submit(w->s->desk.store, req);
}

static enum mr_err add_job(struct work *w, const struct mr_store_job *row,
                           struct mr_slice definition)
{
    struct mr_job_ask *ask = w->ask;
    int64_t now_ms = mr_wall_ms(mr_wall_now(w->s->desk.clock));
    return job_show(row, definition, now_ms, &ask->arena, &ask->jobs[ask->jobs_n++]);
}

static enum mr_err make_jobs(struct work *w, size_t n)
{
    w->ask->jobs = mr_arena_calloc(&w->ask->arena, n + 1, sizeof *w->ask->jobs);
    return w->ask->jobs != NULL ? MR_OK : MR_NOMEM;
}

/* ---- one job --------------------------------------------------------------------------------- */

static void get(struct work *w, bool brief, void (*done)(struct mr_store_req *req))
{
    mr_store_req_done(&w->get.req);
    w->get = (struct mr_store_job_get){.uids = &w->uid, .n = 1, .brief = brief};
    submit(w, &w->get.req, MR_STORE_JOB_GET, done);
}

/* It is there, or what is to be answered. */
static enum mr_err got_one(const struct work *w)
{
    MR_TRY(w->get.req.err);
    return w->get.jobs[0].state == MR_JOBROW_NONE ? MR_NOT_FOUND : MR_OK;
}

static void got_job(struct mr_store_req *req)
{
    struct work *w = req->arg;
    enum mr_err err = got_one(w);
    if (err == MR_OK)
        err = make_jobs(w, 1);
    if (err == MR_OK)
        err = add_job(w, &w->get.jobs[0], w->get.jobs[0].definition);
    answer(w, err);
}

static void begin_get(struct work *w)
{
    get(w, false, got_job);
}

/* ---- many ------------------------------------------------------------------------------------ */

static void listed(struct mr_store_req *req)
{
    struct work *w = req->arg;
    struct mr_job_ask *ask = w->ask;
    enum mr_err err = req->err;
    if (err == MR_OK)
        err = make_jobs(w, w->list.n);
    for (size_t i = 0; err == MR_OK && i < w->list.n; i++)
        err = add_job(w, &w->list.jobs[i], w->list.jobs[i].definition);
    if (err == MR_OK && w->list.more && w->list.n > 0)
        snprintf(ask->next, sizeof ask->next, "%llu",
                 (unsigned long long)w->list.jobs[w->list.n - 1].no);
    answer(w, err);
}

static unsigned row_states(unsigned states)
{
    static const unsigned rows[MR_JOB_STATE_COUNT] = {
        [MR_JOB_CREATED] = MR_JOBROW_BIT(MR_JOBROW_CREATED),
        [MR_JOB_RUNNING] = MR_JOBROW_BIT(MR_JOBROW_RUNNING) | MR_JOBROW_BIT(MR_JOBROW_REDUCING),
        [MR_JOB_SUCCEEDED] = MR_JOBROW_BIT(MR_JOBROW_SUCCEEDED),
        [MR_JOB_FAILED] = MR_JOBROW_BIT(MR_JOBROW_FAILED),
        [MR_JOB_CANCELLED] = MR_JOBROW_BIT(MR_JOBROW_CANCELLED),
    };
    unsigned bits = 0;
    for (unsigned i = 0; i < MR_JOB_STATE_COUNT; i++)
        bits |= (states >> i & 1) != 0 ? rows[i] : 0;
    return bits;
}

static void begin_list(struct work *w)
{
    w->list = (struct mr_store_job_list){.queue = w->ask->queue,
                                         .states = row_states(w->ask->states),
                                         .before = w->from,
                                         .max = w->limit};
    submit(w, &w->list.req, MR_STORE_JOB_LIST, listed);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static enum mr_err add_part(struct work *w, const struct mr_store_part *row)
{
    struct mr_job_ask *ask = w->ask;
    struct mr_part_id id = {w->uid, row->segment, row->index, row->stage, row->round};
    char text[MR_PART_ID_MAX + 1];
    struct mr_part_info part = {.job = ask->jobs[0].info.id,
                                .index = row->index,
                                .stage = row->stage,
                                .round = row->round,
                                .state = row->state,
                                .finished_ms = row->finished_ms,
                                .segment = row->segment};
    if (row->state != MR_PART_WAITING)
        MR_TRY(mr_arena_copy(&ask->arena, mr_slice_make(text, mr_part_id_format(&id, text)),
                             &part.task_id));
    MR_TRY(mr_arena_copy(&ask->arena, row->error, &part.error));
    ask->parts[ask->parts_n++] = part;
    return MR_OK;
}

static void read_parts(struct work *w);

static void parts_read(struct mr_store_req *req)
{
    struct work *w = req->arg;
    struct mr_job_ask *ask = w->ask;
    enum mr_err err = req->err;
    bool goes_on = err == MR_OK && w->parts.next > w->from;
    uint64_t next = w->parts.next;
    for (size_t i = 0; err == MR_OK && i < w->parts.n; i++) {
        if (ask->parts_n == w->limit) {
            next = w->parts.parts[i].index; /* the next page begins with it */
            goes_on = true;
            break;
        }
        err = add_part(w, &w->parts.parts[i]);
    }
    w->from = next;
    bool more = goes_on && next < w->total;
    if (err == MR_OK && more && ask->parts_n < w->limit) {
        read_parts(w);
        return;
    }
    if (err == MR_OK && more)
        snprintf(ask->next, sizeof ask->next, "%llu", (unsigned long long)next);
    answer(w, err);
}

static void read_parts(struct work *w)
{
    mr_store_req_done(&w->parts.req);
    w->parts = (struct mr_store_parts_list){.uid = w->uid,
                                            .states = w->ask->states,
                                            .from = w->from,
                                            .max = w->ask->states == 0 ? w->limit - w->ask->parts_n
                                                                       : SCAN_MAX};
    submit(w, &w->parts.req, MR_STORE_PARTS_LIST, parts_read);
}

static void got_for_parts(struct mr_store_req *req)
{
    struct work *w = req->arg;
    struct mr_job_ask *ask = w->ask;
    enum mr_err err = got_one(w);
    if (err == MR_OK)
        err = make_jobs(w, 1);
    if (err == MR_OK)
        err = add_job(w, &w->get.jobs[0], w->get.jobs[0].definition);
    if (err == MR_OK) {
        ask->parts = mr_arena_calloc(&ask->arena, w->limit, sizeof *ask->parts);
        err = ask->parts != NULL ? MR_OK : MR_NOMEM;
    }
    if (err != MR_OK) {
        answer(w, err);
        return;
    }
    w->total = w->get.jobs[0].total;
    read_parts(w);
}

static void begin_parts(struct work *w)
{
    get(w, false, got_for_parts);
}

/* ---- cancel and retry ------------------------------------------------------------------------ */

static void acted(struct mr_store_req *req);

/* A job that the store has changed. */
struct changed {
    struct mr_msg msg;
    struct mr_uuid uid;
    enum mr_jobrow_state state;
    uint32_t round;
};

static void changed_deliver(struct mr_msg *msg, void *receiver)
{
    struct changed *c = mr_container(msg, struct changed, msg);
    struct mr_job_service *s = receiver;
    if (c->state == MR_JOBROW_CANCELLED && !s->desk.stopping)
        job_sweep(s, &c->uid, c->round);
    free(c);
}

static void tell_changed(struct mr_job_service *s, const struct mr_store_job *row)
{
    struct changed *c = calloc(1, sizeof *c);
    job_stir(s, row->queue, &row->uid);
    if (c == NULL)
        return;
    c->msg.deliver = changed_deliver;
    c->uid = row->uid;
    c->state = row->state;
    c->round = row->round;
    mr_desk_send(&s->desk, &c->msg);
}

static void retry(struct work *w, uint32_t round)
{
    mr_store_req_done(&w->act.req);
    w->act =
        (struct mr_store_job_act){.uid = w->uid, .round = round, .max = w->s->settings.retry_parts};
    submit(w, &w->act.req, MR_STORE_JOB_RETRY, acted);
}

/* Step by step: what others want of the store comes between. With the first one it is accepted; should we fail on the way,
 * whoever has the queue goes on (retry.c). */
static bool goes_on(struct work *w)
{
    if (w->act.req.op != MR_STORE_JOB_RETRY || w->act.req.err != MR_OK ||
        !mr_store_job_retrying(&w->act.job))
        return false;
    w->begun = true;
    retry(w, w->act.round);
    return true;
}

static void acted(struct mr_store_req *req)
{
    struct work *w = req->arg;
    if (goes_on(w))
        return;
    if (req->err != MR_OK && w->begun) {
        get(w, false, got_job);
        return;
    }
    if (req->err != MR_OK) {
        if (req->err == MR_EMPTY)
            mr_detail_set(&w->ask->detail, "its parts are not kept any more");
        answer(w, req->err == MR_EMPTY ? MR_WRONG_STATE : req->err);
        return;
    }
    tell_changed(w->s, &w->act.job);
    get(w, false, got_job);
}

static void begin_cancel(struct work *w)
{
    w->act = (struct mr_store_job_act){.uid = w->uid, .reason = MR_SLICE_LIT("cancelled")};
    submit(w, &w->act.req, MR_STORE_JOB_CANCEL, acted);
}

static void got_for_retry(struct mr_store_req *req)
{
    struct work *w = req->arg;
    enum mr_err err = got_one(w);
    if (err != MR_OK) {
        answer(w, err);
        return;
    }
    retry(w, w->get.jobs[0].round);
}

static void begin_retry(struct work *w)
{
    get(w, true, got_for_retry);
}

/* ---- results --------------------------------------------------------------------------------- */

static void result_read(struct mr_store_req *req)
{
    struct work *w = req->arg;
    struct mr_job_ask *ask = w->ask;
    enum mr_err err = req->err;
    uint64_t stamp = (uint64_t)w->result.round + 1;
    if (err == MR_WRONG_STATE) {
        mr_detail_set(&ask->detail, "it has no result: it did not succeed (yet)");
    } else if (err == MR_OK && ask->stamp != 0 && ask->stamp != stamp) {
        mr_detail_set(&ask->detail, "it has another result by now: it was retried");
        err = MR_WRONG_STATE;
    }
    if (err == MR_OK && w->result.n > 0)
        err = mr_arena_copy(&ask->arena, w->result.chunks[0], &ask->bytes);
    if (err == MR_OK) {
        ask->more = w->result.more;
        ask->stamp = stamp;
    }
    answer(w, err);
}

static void begin_result(struct work *w)
{
    w->result = (struct mr_store_result_read){.uid = w->uid, .seq = w->ask->seq, .max = 1};
    submit(w, &w->result.req, MR_STORE_RESULT_READ, result_read);
}

/* ---- the door -------------------------------------------------------------------------------- */

static void (*const begins[MR_JOB_ASK_COUNT])(struct work *w) = {
    [MR_JOB_GET] = begin_get,       [MR_JOB_LIST] = begin_list,   [MR_JOB_PARTS] = begin_parts,
    [MR_JOB_CANCEL] = begin_cancel, [MR_JOB_RETRY] = begin_retry, [MR_JOB_RESULT] = begin_result,
};

static bool read_cursor(struct mr_slice cursor, uint64_t *ret_from)
{
    char text[MR_JOB_CURSOR_MAX];
    int64_t from = 0;
    if (cursor.len >= sizeof text)
        return false;
    memcpy(text, cursor.data, cursor.len);
    text[cursor.len] = '\0';
    if (mr_parse_int64(text, &from) != MR_OK || from < 0)
        return false;
    *ret_from = (uint64_t)from;
    return true;
}

static enum mr_err read_ask(struct work *w)
{
    struct mr_job_ask *ask = w->ask;
    bool lists = ask->kind == MR_JOB_LIST;
    if ((unsigned)ask->kind >= MR_JOB_ASK_COUNT || ask->limit > MR_BATCH_MAX)
        return MR_INVALID;
    w->limit = ask->limit != 0 ? ask->limit : MR_JOB_LIMIT;
    if (!lists && !mr_uuid_parse(ask->id, &w->uid))
        return MR_NOT_FOUND; /* no job has such an id */
    if (ask->cursor.len > 0 && !read_cursor(ask->cursor, &w->from)) {
        mr_detail_set(&ask->detail, "cursor: this is none that was given out");
        return MR_INVALID;
    }
    return MR_OK;
}

void mr_job_service_ask(struct mr_job_service *service, struct mr_job_ask *ask)
{
    struct work *w = calloc(1, sizeof *w);
    ask->err = MR_NOMEM;
    if (w == NULL) {
        ask->done(ask);
        return;
    }
    w->s = service;
    w->ask = ask;
    ask->work = w;
    atomic_fetch_add(&service->asking, 1);
    enum mr_err err = read_ask(w);
    if (err == MR_OK)
        begins[ask->kind](w);
    else
        answer(w, err);
}

static void set_event(struct mr_job_ask *ask)
{
    mr_event_set(ask->arg);
}

enum mr_err mr_job_service_ask_wait(struct mr_job_service *service, struct mr_job_ask *ask)
{
    struct mr_event event;
    mr_event_init(&event);
    ask->done = set_event;
    ask->arg = &event;
    mr_job_service_ask(service, ask);
    (void)mr_event_wait(&event, INT64_MAX);
    return ask->err;
}

void mr_job_ask_done(struct mr_job_ask *ask)
{
    mr_arena_done(&ask->arena);
    ask->jobs = NULL;
    ask->parts = NULL;
    ask->jobs_n = ask->parts_n = 0;
}
