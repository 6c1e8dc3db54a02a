/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: one call each. The server lets a gather wait for a moment only; it is asked again until the
 * time is over.
 */
#include "broker/remote/internal.h"

struct gather_wait {
    mr_mono end;
};

static struct mr_req_gather *gather_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_gather, req);
}

static struct mr_req_gathered *gathered_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_gathered, req);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static const struct mr_flat_field gather_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_req_gather, queue), 0},
    {MR_FLAT_U32, offsetof(struct mr_req_gather, max_size), 0},
    {MR_FLAT_64, offsetof(struct mr_req_gather, max_delay_ms), 0},
    {MR_FLAT_64, offsetof(struct mr_req_gather, grace_ms), 0},
    {MR_FLAT_64, offsetof(struct mr_req_gather, wait_ms), 0},
    {MR_FLAT_64, offsetof(struct mr_req_gather, set_ms), 0},
};
static MR_FLAT(struct mr_req_gather, gather_flat, gather_fields);

static enum mr_err encode_gather(struct ticket *ticket, int64_t wait_ms)
{
    struct mr_req_gather sent = *gather_of(ticket);
    sent.wait_ms = wait_ms;
    return unary_encode(ticket, "/millrace.v1.Work/Gather", &gather_flat, &sent);
}

enum mr_err remote_prepare_gather(struct ticket *ticket)
{
    struct mr_req_gather *req = gather_of(ticket);
    req->n = 0;
    req->group[0] = req->set[0] = '\0';
    MR_TRY(mr_gather_check(req));
    int64_t wait_ms = req->wait_ms < MR_MS_PER_DAY ? req->wait_ms : MR_MS_PER_DAY;
    struct gather_wait *wait = mr_arena_alloc(&req->req.arena, sizeof *wait);
    if (wait == NULL)
        return MR_NOMEM;
    wait->end = mr_mono_add_ms(mr_mono_now(mr_clock_system()), wait_ms);
    req->wait = wait;
    return encode_gather(ticket, wait_ms);
}

enum { FIELD_GROUP = 1, FIELD_SET = 2, FIELD_TASKS = 3 };

static enum mr_err read_tasks(struct mr_req_gather *req, struct mr_slice bytes, size_t n)
{
    req->tasks = mr_arena_calloc(&req->req.arena, n, sizeof *req->tasks);
    if (req->tasks == NULL)
        return MR_NOMEM;
    for (size_t i = 0; bytes.len > 0;) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FIELD_TASKS && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&mr_flat_task, item.bytes, &req->req.arena, &req->tasks[i++]));
    }
    req->n = n;
    return MR_OK;
}

enum mr_err remote_read_gather(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_gather *req = gather_of(ticket);
    struct fields fields;
    size_t n;
    MR_TRY(mr_flat_count(bytes, FIELD_TASKS, &n));
    MR_TRY(fields_read(bytes, &fields));
    struct mr_slice group = fields.bytes[FIELD_GROUP], set = fields.bytes[FIELD_SET];
    if (set.len == 0)
        return MR_EMPTY;
    if (n == 0 || n > mr_gather_max(req) || set.len >= sizeof req->set || group.len == 0 ||
        group.len >= sizeof req->group)
        return MR_INVALID;
    memcpy(req->group, group.data, group.len);
    req->group[group.len] = '\0';
    memcpy(req->set, set.data, set.len);
    req->set[set.len] = '\0';
    return read_tasks(req, bytes, n);
}

bool remote_more_gather(struct ticket *ticket)
{
    const struct mr_req_gather *req = gather_of(ticket);
    const struct gather_wait *wait = req->wait;
    int64_t left_ns = wait->end.ns - mr_rpc_now(ticket->remote->rpc).ns;
    if (req->n > 0 || left_ns <= 0)
        return false;
    return encode_gather(ticket, left_ns / MR_NS_PER_MS + 1) == MR_OK;
}

/* ---- gathered ------------------------------------------------------------------------------- */

enum { FIELD_QUEUE = 1, FIELD_TASK = 3, FIELD_RESULT = 1, FIELD_MESSAGE = 4 };

static enum mr_err encode_gathered(struct ticket *ticket)
{
    const struct mr_req_gathered *req = gathered_of(ticket);
    size_t task = req->task != NULL ? mr_flat_size(&mr_flat_new_task, req->task) : 0;
    size_t size = mr_flat_head_size(req->queue.len) + req->queue.len +
                  mr_flat_head_size(req->set.len) + req->set.len +
                  (req->task != NULL ? mr_flat_head_size(task) + task : 0);
    uint8_t *room = mr_arena_alloc(&ticket->req->arena, size), *at = room;
    if (room == NULL)
        return MR_NOMEM;
    at = mr_flat_put_head(at, FIELD_QUEUE, req->queue.len);
    memcpy(at, req->queue.data, req->queue.len);
    at = mr_flat_put_head(at + req->queue.len, FIELD_SET, req->set.len);
    memcpy(at, req->set.data, req->set.len);
    at += req->set.len;
    if (req->task != NULL)
        (void)mr_flat_write(&mr_flat_new_task, req->task, mr_flat_put_head(at, FIELD_TASK, task));
    ticket->path = "/millrace.v1.Work/Gathered";
    ticket->body = mr_slice_make(room, size);
    return MR_OK;
}

/* A task that is wrong is refused here: it could not be sent. */
enum mr_err remote_prepare_gathered(struct ticket *ticket)
{
    struct mr_req_gathered *req = gathered_of(ticket);
    req->result = (struct mr_enqueue_result){.err = MR_OK};
    MR_TRY(mr_gathered_check(req));
    if (!mr_utf8_valid(req->set))
        return MR_STALE;
    if (req->task != NULL)
        req->result.err = mr_gathered_task_check(req);
    if (req->task != NULL && req->result.err == MR_OK)
        req->result.err = mr_task_options_check(req->task, ticket->remote->payload_max, NULL);
    return req->result.err == MR_OK ? encode_gathered(ticket) : MR_OK;
}

void remote_begin_gathered(struct ticket *ticket)
{
    if (ticket->path == NULL)
        ticket_answer(ticket, MR_OK);
    else
        unary_wait(ticket);
}

enum mr_err remote_read_gathered(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_gathered *req = gathered_of(ticket);
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    if (req->task == NULL)
        return MR_OK;
    struct mr_slice result = fields.bytes[FIELD_RESULT];
    MR_TRY(mr_flat_read(&mr_flat_enqueue_result, result, NULL, &req->result));
    MR_TRY(fields_read(result, &fields));
    if (req->result.err != MR_OK)
        remote_refused(ticket->remote, req->result.err, fields.bytes[FIELD_MESSAGE]);
    return MR_OK;
}
