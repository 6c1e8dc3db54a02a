/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks of another broker: one call. An answer that was lost does no harm, since who asks again is told
 * of a conflict and finds them held.
 */
#include "broker/remote/internal.h"

enum { FIELD_TASKS = 1, FIELD_RESULTS = 1, FIELD_MESSAGE = 4 };

static struct mr_req_enqueue *enqueue_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_enqueue, req);
}

static void begin(struct ticket *ticket)
{
    if (ticket->path == NULL)
        ticket_answer(ticket, MR_OK); /* all of them were refused here */
    else
        unary_wait(ticket);
}

/* The next one that was sent. */
static enum mr_err read_result(struct ticket *ticket, struct mr_slice bytes, size_t *at)
{
    struct mr_req_enqueue *req = enqueue_of(ticket);
    struct mr_enqueue_result result;
    struct fields fields;
    while (*at < req->n && req->results[*at].err != MR_OK)
        ++*at;
    if (*at == req->n)
        return MR_INVALID;
    MR_TRY(mr_flat_read(&mr_flat_enqueue_result, bytes, NULL, &result));
    MR_TRY(fields_read(bytes, &fields));
    if (result.err != MR_OK)
        remote_refused(ticket->remote, result.err, fields.bytes[FIELD_MESSAGE]);
    if (result.id[0] == '\0')
        memcpy(result.id, req->results[*at].id, sizeof result.id);
    req->results[(*at)++] = result;
    return MR_OK;
}

/* How many are sent, or were. */
static size_t count(const struct mr_req_enqueue *req)
{
    size_t n = 0;
    for (size_t i = 0; i < req->n; i++)
        n += req->results[i].err == MR_OK;
    return n;
}

static enum mr_err read(struct ticket *ticket, struct mr_slice bytes)
{
    size_t n, at = 0;
    MR_TRY(mr_flat_count(bytes, FIELD_RESULTS, &n));
    if (n != count(enqueue_of(ticket)))
        return MR_INVALID;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FIELD_RESULTS && item.type == MR_FLAT_BYTES)
            MR_TRY(read_result(ticket, item.bytes, &at));
    }
    return MR_OK;
}

static enum mr_err check(const struct ticket *ticket, size_t i)
{
    struct mr_req_enqueue *req = enqueue_of(ticket);
    req->results[i] = (struct mr_enqueue_result){.err = MR_OK};
    MR_TRY(mr_carried_check(&req->carried[i]));
    MR_TRY(mr_task_options_check(&req->tasks[i], ticket->remote->payload_max, NULL));
    memcpy(req->results[i].id, req->carried[i].id.data, req->carried[i].id.len);
    return MR_OK;
}

static enum mr_err encode(struct ticket *ticket)
{
    const struct mr_req_enqueue *req = enqueue_of(ticket);
    size_t size = 0;
    for (size_t i = 0; i < req->n; i++) {
        size_t len =
            req->results[i].err == MR_OK ? mr_flat_size(&mr_flat_task, &req->carried[i]) : 0;
        size += req->results[i].err == MR_OK ? mr_flat_head_size(len) + len : 0;
    }
    uint8_t *room = mr_arena_alloc(&ticket->req->arena, size), *at = room;
    if (room == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        if (req->results[i].err != MR_OK)
            continue;
        at = mr_flat_put_head(at, FIELD_TASKS, mr_flat_size(&mr_flat_task, &req->carried[i]));
        at = mr_flat_write(&mr_flat_task, &req->carried[i], at);
    }
    ticket->path = "/millrace.v1.Tasks/Carry";
    ticket->body = mr_slice_make(room, size);
    return MR_OK;
}

enum mr_err remote_prepare_carry(struct ticket *ticket)
{
    static const struct op op = {.begin = begin, .read = read};
    struct mr_req_enqueue *req = enqueue_of(ticket);
    ticket->op = &op;
    for (size_t i = 0; i < req->n; i++)
        req->results[i].err = check(ticket, i);
    return count(req) > 0 ? encode(ticket) : MR_OK;
}
