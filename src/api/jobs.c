/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs: looking at them, and cancelling and retrying them. jobs_submit.c and jobs_watch.c have the streams. */
#include "api/jobs.h"

#include "api/internal.h"
#include "millrace/v1/jobs.pb-c.h"
#include "wire/job.h"

enum { LIST_ITEMS = 1, LIST_NEXT = 2 }; /* of JobListResponse and PartListResponse */

struct asking {
    struct jobs_asking head;
    struct unary *u;
};

/* ---- answers -------------------------------------------------------------------------------- */

static enum mr_err put_field(struct mr_buf *buf, unsigned number, struct mr_slice bytes)
{
    uint8_t head[16];
    size_t len = (size_t)(mr_flat_put_head(head, number, bytes.len) - head);
    MR_TRY(mr_buf_append(buf, head, len));
    return mr_buf_append_slice(buf, bytes);
}

static enum mr_err put_jobs(const struct mr_job_ask *ask, struct mr_buf *buf)
{
    struct mr_buf one = {0};
    enum mr_err err = MR_OK;
    for (size_t i = 0; err == MR_OK && i < ask->jobs_n; i++) {
        mr_buf_clear(&one);
        err = mr_job_info_encode(&ask->jobs[i].info, ask->jobs[i].definition, &one);
        if (err == MR_OK)
            err = put_field(buf, LIST_ITEMS, mr_buf_slice(&one));
    }
    mr_buf_done(&one);
    return err;
}

static enum mr_err put_parts(const struct mr_job_ask *ask, struct mr_buf *buf)
{
    for (size_t i = 0; i < ask->parts_n; i++) {
        uint8_t head[16];
        size_t size = mr_flat_size(&mr_flat_part, &ask->parts[i]);
        size_t len = (size_t)(mr_flat_put_head(head, LIST_ITEMS, size) - head);
        MR_TRY(mr_buf_append(buf, head, len));
        MR_TRY(mr_flat_append(&mr_flat_part, &ask->parts[i], buf));
    }
    return MR_OK;
}

static enum mr_err put_answer(const struct mr_job_ask *ask, struct mr_buf *buf)
{
    if (ask->kind == MR_JOB_LIST)
        MR_TRY(put_jobs(ask, buf));
    else if (ask->kind == MR_JOB_PARTS)
        MR_TRY(put_parts(ask, buf));
    else
        return mr_job_info_encode(&ask->jobs[0].info, ask->jobs[0].definition, buf);
    return ask->next[0] != '\0' ? put_field(buf, LIST_NEXT, mr_slice_str(ask->next)) : MR_OK;
}

static void answer(struct unary *u, const struct mr_job_ask *ask)
{
    struct mr_buf buf = {0};
    uint8_t *room = NULL;
    enum mr_err err = put_answer(ask, &buf);
    if (err != MR_OK)
        unary_fail(u, err, NULL);
    else
        room = unary_room(u, buf.len);
    if (room != NULL) {
        if (buf.len > 0)
            memcpy(room, buf.data, buf.len);
        unary_sent(u);
    }
    mr_buf_done(&buf);
}

static void ask_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct asking *asking = u->data;
    struct mr_job_ask *ask = &asking->head.ask;
    struct mr_detail text;
    if (ask->err == MR_OK) {
        answer(u, ask);
    } else {
        jobs_why(ask, &text);
        unary_fail(u, ask->err, "%s", text.text);
    }
    mr_job_ask_done(ask);
    unary_idle(u);
}

/* Thread: the service's. */
static void ask_done(struct jobs_asking *head)
{
    struct asking *asking = mr_container(head, struct asking, head);
    errand_return(&asking->u->errand);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void ask_start(struct unary *u, const struct mr_job_ask *ask)
{
    struct mr_job_service *service = u->api->options.jobs;
    struct asking *asking = mr_arena_calloc(unary_arena(u), 1, sizeof *asking);
    if (service == NULL) {
        unary_fail(u, MR_UNSUPPORTED, "this server has no jobs");
        return;
    }
    if (asking == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    asking->u = u;
    asking->head =
        (struct jobs_asking){.ask = *ask, .service = service, .token = &u->token, .done = ask_done};
    u->data = asking;
    u->busy = true;
    u->errand.expected = ask->kind == MR_JOB_LIST || ask->kind == MR_JOB_PARTS ? ANSWER_BYTES : 0;
    errand_leave(&u->errand, u->api, ask_back);
    jobs_ask(&asking->head);
}

static void ask_one(struct unary *u, enum mr_job_ask_kind kind)
{
    const Millrace__V1__JobRequest *in = (const void *)u->message;
    ask_start(u, &(struct mr_job_ask){.kind = kind, .id = mr_pb_text(in->id)});
}

void jobs_get(struct unary *u)
{
    ask_one(u, MR_JOB_GET);
}

void jobs_cancel(struct unary *u)
{
    ask_one(u, MR_JOB_CANCEL);
}

void jobs_retry(struct unary *u)
{
    ask_one(u, MR_JOB_RETRY);
}

struct mr_slice jobs_about(struct unary *u)
{
    return mr_pb_text(((const Millrace__V1__JobRequest *)(const void *)u->message)->id);
}

void jobs_list(struct unary *u)
{
    const Millrace__V1__JobListRequest *in = (const void *)u->message;
    struct mr_job_ask ask = {.kind = MR_JOB_LIST,
                             .queue = mr_pb_text(in->queue),
                             .cursor = mr_pb_text(in->cursor),
                             .limit = in->limit};
    for (size_t i = 0; i < in->n_states; i++)
        if (in->states[i] > 0 && in->states[i] < (int)MR_JOB_STATE_COUNT)
            ask.states |= 1u << in->states[i];
    if (in->n_states > 0 && ask.states == 0)
        unary_fail(u, MR_INVALID, "states: none of them is one");
    else if (ask.queue.len == 0 || unary_may_touch(u, ask.queue))
        ask_start(u, &ask);
}

void jobs_parts(struct unary *u)
{
    const Millrace__V1__PartListRequest *in = (const void *)u->message;
    struct mr_job_ask ask = {.kind = MR_JOB_PARTS,
                             .id = mr_pb_text(in->id),
                             .cursor = mr_pb_text(in->cursor),
                             .limit = in->limit};
    for (size_t i = 0; i < in->n_states; i++)
        if (in->states[i] >= 0 && in->states[i] < (int)MR_PART_STATE_COUNT)
            ask.states |= 1u << in->states[i];
    if (in->n_states > 0 && ask.states == 0)
        unary_fail(u, MR_INVALID, "states: none of them is one");
    else
        ask_start(u, &ask);
}
