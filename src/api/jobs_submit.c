/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs.Submit: parts go from the stream into a load of the service, as fast as the store takes them; while it does not,
 * nothing is read. The end of the client's side is the commit.
 */
#include <stdlib.h>

#include "api/internal.h"
#include "api/jobs.h"
#include "job/def.h"

enum { DEFINITION = 1, PARTS = 2 }; /* of JobSubmitRequest */
enum { MESSAGE_PARTS_MAX = 10 * MR_BATCH_MAX };

struct submit {
    struct stream head;
    struct valve valve;
    struct conn *conn;
    struct mr_job_load *load;      /* NULL: no definition came yet */
    struct errand errand;          /* the commit, while it is under way */
    uint64_t spent;                /* of the token's quota */
    bool committing, closed, over; /* over: how it ends is said */
    bool half_closed;
    char peer[64];
    /* Parts that the load did not take yet, in their message. */
    struct mr_arena arena;
    struct mr_slice *parts;
    size_t parts_n;
    /* The load has room: said by the service's thread, once after each time it had none. */
    struct mr_msg room;
    _Atomic bool waits, posted;
    /* What the commit answered. */
    enum mr_err err;
    struct mr_detail detail;
    struct mr_buf answer;
};

static void submit_try_free(struct submit *submit)
{
    if (!submit->closed || submit->committing || atomic_load(&submit->posted))
        return;
    mr_job_load_free(submit->load);
    conn_unref(submit->head.api, submit->conn);
    mr_arena_done(&submit->arena);
    mr_buf_done(&submit->answer);
    free(submit);
}

/* A person, or a program in the name of one, has done it. */
static void submit_audit(const struct submit *submit, enum mr_err err)
{
    const struct mr_api_options *options = &submit->head.api->options;
    const char *id = submit->load != NULL ? mr_job_load_id(submit->load) : "";
    struct mr_audit line = {.token = submit->head.token.id,
                            .peer = submit->peer,
                            .method = "Jobs/Submit",
                            .about = mr_slice_str(id),
                            .err = err};
    if (options->audit != NULL)
        options->audit(&line, options->audit_arg);
}

static void submit_fail(struct submit *submit, enum mr_err err, const struct mr_detail *detail)
{
    if (submit->over)
        return;
    submit->over = true;
    valve_hold(&submit->valve);
    submit_audit(submit, err);
    if (!submit->closed)
        call_end(submit->head.call, err, mr_slice_str(detail->text));
}

/* ---- the commit ----------------------------------------------------------------------------- */

static void commit_back(struct errand *errand)
{
    struct submit *submit = mr_container(errand, struct submit, errand);
    struct mr_api *api = submit->head.api;
    uint8_t *room;
    submit->committing = false;
    if (submit->spent > 0 && !mr_job_load_may_be_kept(submit->load, submit->err))
        mr_tokens_give_back(api->options.access.tokens, submit->head.token.id, submit->spent);
    if (submit->err != MR_OK) {
        submit_fail(submit, submit->err, &submit->detail);
    } else {
        submit->over = true;
        submit_audit(submit, MR_OK);
        if (!submit->closed && mr_call_room(submit->head.call, submit->answer.len, &room) == MR_OK)
            memcpy(room, submit->answer.data, submit->answer.len);
        if (!submit->closed)
            call_end(submit->head.call, MR_OK, (struct mr_slice){0});
    }
    submit_try_free(submit);
}

/* Thread: the service's. */
static void on_done(struct mr_job_load *load, enum mr_err err, const struct mr_job_shown *job,
                    const struct mr_detail *detail, void *arg)
{
    (void)load;
    struct submit *submit = arg;
    submit->err = err;
    if (detail != NULL)
        submit->detail = *detail;
    if (err == MR_OK)
        submit->err = mr_job_info_encode(&job->info, job->definition, &submit->answer);
    errand_return(&submit->errand);
}

static enum mr_err spend(struct submit *submit, struct mr_detail *detail)
{
    struct mr_tokens *tokens = submit->head.api->options.access.tokens;
    const struct mr_token *token = &submit->head.token;
    uint64_t n = mr_job_load_count(submit->load);
    if (token->quota == 0)
        return MR_OK;
    MR_TRY(mr_tokens_spend(tokens, token->id, n, detail));
    submit->spent = n;
    return MR_OK;
}

static void commit(struct submit *submit)
{
    struct mr_detail detail = {.text = ""};
    if (submit->load == NULL) {
        mr_detail_set(&detail, "no definition came");
        submit_fail(submit, MR_INVALID, &detail);
        return;
    }
    enum mr_err err = spend(submit, &detail);
    if (err != MR_OK) {
        submit_fail(submit, err, &detail);
        return;
    }
    submit->committing = true;
    errand_leave(&submit->errand, submit->head.api, commit_back);
    mr_job_load_commit(submit->load);
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* Gives the load what there is; when it has no room, the stream waits for it. */
static void add_parts(struct submit *submit)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = MR_OK;
    if (submit->parts_n > 0)
        err = jobs_check_quota(&submit->head.token,
                               mr_job_load_count(submit->load) + submit->parts_n, &detail);
    if (submit->parts_n > 0 && err == MR_OK) {
        atomic_store(&submit->waits, true);
        err = mr_job_load_add(submit->load, submit->parts, submit->parts_n, &detail);
    }
    if (err == MR_BUSY) {
        valve_hold(&submit->valve);
        return;
    }
    atomic_store(&submit->waits, false);
    submit->parts_n = 0;
    mr_arena_done(&submit->arena);
    submit->arena = (struct mr_arena){0};
    if (err != MR_OK)
        submit_fail(submit, err, &detail);
    else if (submit->half_closed)
        commit(submit);
    else
        valve_release(&submit->valve);
}

static void room_delivered(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct submit *submit = mr_container(msg, struct submit, room);
    atomic_store(&submit->posted, false);
    if (!submit->closed && !submit->over && submit->parts_n > 0)
        add_parts(submit);
    submit_try_free(submit);
}

/* Thread: the service's. */
static void on_room(struct mr_job_load *load, void *arg)
{
    (void)load;
    struct submit *submit = arg;
    if (!atomic_exchange(&submit->waits, false))
        return;
    atomic_store(&submit->posted, true);
    submit->room.deliver = room_delivered;
    mr_rpc_post(submit->head.api->options.rpc, &submit->room);
}

/* ---- messages ------------------------------------------------------------------------------- */

static enum mr_err define(struct submit *submit, struct mr_slice bytes, struct mr_detail *detail)
{
    struct mr_api *api = submit->head.api;
    struct mr_job_options job;
    struct mr_buf definition = {0};
    if (submit->load != NULL) {
        mr_detail_set(detail, "one definition is asked for, not more");
        return MR_INVALID;
    }
    /* A call is one; how fast parts come is up to the store. */
    MR_TRY(conn_pay(api, submit->conn, 1, detail));
    mr_detail_set(detail, "definition: cannot be read");
    MR_TRY(mr_job_decode(bytes, &submit->arena, &job));
    MR_TRY(jobs_admit(&submit->head.token, &job, detail));
    enum mr_err err = mr_job_encode(&job, &definition);
    struct mr_job_load_options options = {
        .definition = mr_buf_slice(&definition), .room = on_room, .done = on_done, .arg = submit};
    if (err == MR_OK)
        err = mr_job_load_new(api->options.jobs, &options, &submit->load, detail);
    mr_buf_done(&definition);
    return err;
}

static enum mr_err read_message(struct submit *submit, struct mr_slice bytes,
                                struct mr_detail *detail)
{
    size_t n = 0;
    struct mr_slice copy;
    mr_detail_set(detail, "the message cannot be read");
    MR_TRY(mr_flat_count(bytes, PARTS, &n));
    if (n > MESSAGE_PARTS_MAX) {
        mr_detail_set(detail, "%zu parts in one message, the limit is %d", n, MESSAGE_PARTS_MAX);
        return MR_TOO_BIG;
    }
    MR_TRY(mr_arena_copy(&submit->arena, bytes, &copy));
    submit->parts = mr_arena_calloc(&submit->arena, n + 1, sizeof *submit->parts);
    if (submit->parts == NULL)
        return MR_NOMEM;
    while (copy.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&copy, &item));
        if (item.number == DEFINITION && item.type == MR_FLAT_BYTES)
            MR_TRY(define(submit, item.bytes, detail));
        else if (item.number == PARTS && item.type == MR_FLAT_BYTES)
            submit->parts[submit->parts_n++] = item.bytes;
    }
    if (submit->load == NULL) {
        mr_detail_set(detail, "the first message must have the definition");
        return MR_INVALID;
    }
    return MR_OK;
}

static void submit_message(struct mr_call *call, struct mr_slice bytes)
{
    struct submit *submit = mr_call_data(call);
    struct mr_detail detail;
    if (submit->over)
        return;
    enum mr_err err = read_message(submit, bytes, &detail);
    if (err != MR_OK)
        submit_fail(submit, err, &detail);
    else
        add_parts(submit);
}

static void submit_half_closed(struct mr_call *call)
{
    struct submit *submit = mr_call_data(call);
    submit->half_closed = true;
    if (!submit->over && submit->parts_n == 0)
        commit(submit);
}

/* A load that is not committed is abandoned: nothing is left of it. */
static void submit_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct submit *submit = mr_call_data(call);
    (void)status, (void)text;
    valve_close(&submit->valve);
    stream_close(&submit->head);
    submit->closed = true;
    if (!submit->committing) {
        mr_job_load_free(submit->load);
        submit->load = NULL;
    }
    submit_try_free(submit);
}

static const struct mr_call_ops submit_ops = {
    .message = submit_message,
    .half_closed = submit_half_closed,
    .closed = submit_closed,
};

/* What is being committed is answered first. */
static void submit_end(struct stream *head, enum stream_end why)
{
    struct submit *submit = mr_container(head, struct submit, head);
    if (submit->over || submit->committing)
        return;
    submit->over = true;
    stream_end_now(head, why);
}

void jobs_submit_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct submit *submit = NULL;
    struct conn *conn = NULL;
    if (api->options.jobs == NULL) {
        call_end(call, MR_UNSUPPORTED, MR_SLICE_LIT("this server has no jobs"));
        return;
    }
    submit = calloc(1, sizeof *submit);
    conn = submit != NULL ? conn_get(api, call) : NULL;
    if (conn == NULL) {
        free(submit);
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    submit->conn = conn;
    (void)snprintf(submit->peer, sizeof submit->peer, "%s", mr_call_peer(call));
    mr_call_set(call, &submit_ops, submit);
    valve_open(&submit->valve, &conn->budget, call);
    stream_open(&submit->head, api, call, token, submit_end);
}
