/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work.Gather and Work.Gathered. A gather waits at the broker for a second at most, so one whose caller
 * is gone, or that a stopping server waits for, is soon over; a set that nobody can be told of goes back
 * at once.
 */
#include <stdlib.h>

#include "api/internal.h"

enum { WAIT_MAX_MS = 1000 };

/* Numbers of the .proto. */
enum { GATHER_GROUP = 1, GATHER_SET = 2, GATHER_TASKS = 3 };
enum { GATHERED_QUEUE = 1, GATHERED_SET = 2, GATHERED_TASK = 3, GATHERED_RESULT = 1 };
enum { RESULT_MESSAGE = 4 };

static size_t field_size(size_t len)
{
    return mr_flat_head_size(len) + len;
}

static uint8_t *put_text(uint8_t *at, unsigned number, const char *text, size_t len)
{
    at = mr_flat_put_head(at, number, len);
    memcpy(at, text, len);
    return at + len;
}

/* ---- gathering ------------------------------------------------------------------------------ */

struct giving_back {
    struct errand errand;
    char queue[MR_NAME_MAX + 1], set[MR_SET_MAX];
};

static void given_back(struct errand *errand)
{
    errand_clear(errand);
    free(mr_container(errand, struct giving_back, errand));
}

/* Without memory its time ends it. */
static void give_back(struct mr_api *api, const struct mr_req_gather *gather)
{
    struct giving_back *giving = calloc(1, sizeof *giving);
    if (giving == NULL)
        return;
    memcpy(giving->queue, gather->queue.data, gather->queue.len);
    memcpy(giving->set, gather->set, sizeof giving->set);
    giving->errand.req.gathered.queue = mr_slice_str(giving->queue);
    giving->errand.req.gathered.set = mr_slice_str(giving->set);
    errand_submit(&giving->errand, api, MR_OP_GATHERED, given_back);
}

static bool send_set(struct unary *u, const struct mr_req_gather *req)
{
    size_t group = strlen(req->group), set = strlen(req->set);
    size_t size = field_size(group) + field_size(set);
    size_t *sizes = mr_arena_alloc(unary_arena(u), (req->n + 1) * sizeof *sizes);
    if (sizes == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return false;
    }
    for (size_t i = 0; i < req->n; i++) {
        sizes[i] = mr_flat_size(&mr_flat_task, &req->tasks[i]);
        size += field_size(sizes[i]);
    }
    uint8_t *at = unary_room(u, size);
    if (at == NULL)
        return false;
    at = put_text(at, GATHER_GROUP, req->group, group);
    at = put_text(at, GATHER_SET, req->set, set);
    for (size_t i = 0; i < req->n; i++) {
        at = mr_flat_put_head(at, GATHER_TASKS, sizes[i]);
        at = mr_flat_write(&mr_flat_task, &req->tasks[i], at);
    }
    unary_sent(u);
    return true;
}

static void gather_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct mr_req_gather *req = &errand->req.gather;
    enum mr_err err = req->req.err;
    bool told = false;
    if (u->call != NULL && (err == MR_OK || err == MR_EMPTY))
        told = send_set(u, req);
    else if (u->call != NULL)
        unary_fail(u, err, "queue %.*s: %s", (int)req->queue.len, (const char *)req->queue.data,
                   mr_err_text(err));
    if (err == MR_OK && !told)
        give_back(u->api, req);
    unary_idle(u);
}

void groups_gather(struct unary *u)
{
    const Millrace__V1__GatherRequest *in = (const void *)u->message;
    struct mr_req_gather *req = &u->errand.req.gather;
    req->queue = mr_pb_text(in->queue);
    req->max_size = in->max_size;
    req->max_delay_ms = in->max_delay_ms;
    req->grace_ms = in->grace_ms;
    req->wait_ms = in->wait_ms < WAIT_MAX_MS ? in->wait_ms : WAIT_MAX_MS;
    req->set_ms = in->set_ms;
    u->busy = true;
    errand_submit(&u->errand, u->api, MR_OP_GATHER, gather_back);
}

/* ---- gathered ------------------------------------------------------------------------------- */

static void gathered_reply(struct unary *u)
{
    const struct mr_req_gathered *req = &u->errand.req.gathered;
    struct mr_slice text = mr_slice_str(mr_err_text(req->result.err));
    struct mr_detail detail = {.text = ""};
    size_t len = mr_flat_size(&mr_flat_enqueue_result, &req->result);
    bool refused = req->result.err != MR_OK;
    if (refused && req->task != NULL && mr_gathered_task_check(req) != MR_OK)
        text = MR_SLICE_LIT("a task of another queue, or of a group");
    else if (refused &&
             mr_task_options_check(req->task, u->api->options.limits.payload_max, &detail) != MR_OK)
        text = mr_slice_str(detail.text);
    size_t all = len + (refused ? field_size(text.len) : 0);
    uint8_t *at = unary_room(u, field_size(all));
    if (at == NULL)
        return;
    at = mr_flat_put_head(at, GATHERED_RESULT, all);
    at = mr_flat_write(&mr_flat_enqueue_result, &req->result, at);
    if (refused)
        (void)put_text(at, RESULT_MESSAGE, text.data, text.len);
    unary_sent(u);
}

static enum mr_err read_gathered(struct unary *u)
{
    struct mr_req_gathered *req = &u->errand.req.gathered;
    struct mr_slice bytes = u->bytes;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.type != MR_FLAT_BYTES)
            continue;
        if (item.number == GATHERED_QUEUE)
            req->queue = item.bytes;
        if (item.number == GATHERED_SET)
            req->set = item.bytes;
        if (item.number != GATHERED_TASK)
            continue;
        struct mr_task_options *task = mr_arena_calloc(unary_arena(u), 1, sizeof *task);
        if (task == NULL)
            return MR_NOMEM;
        MR_TRY(mr_flat_read(&mr_flat_new_task, item.bytes, unary_arena(u), task));
        req->task = task;
    }
    return MR_OK;
}

/* Not counted in a quota: whoever enqueued the members has paid for them. */
void groups_gathered(struct unary *u)
{
    const struct mr_req_gathered *req = &u->errand.req.gathered;
    enum mr_err err = read_gathered(u);
    if (err != MR_OK) {
        unary_fail(u, err, err == MR_NOMEM ? NULL : "the message cannot be read");
        return;
    }
    if (!unary_may_touch(u, req->queue))
        return;
    struct mr_detail detail = {.text = ""};
    if (req->task != NULL && mr_access_topic(req->task->topic, &detail) != MR_OK) {
        unary_fail(u, MR_DENIED, "%s", detail.text);
        return;
    }
    const struct mr_token *token = &u->token;
    if (token->priority_limited && req->task != NULL &&
        req->task->priority_s > token->priority_max_s) {
        unary_fail(u, MR_DENIED, "token %s may ask for a priority of at most %g s, not %g",
                   token->id, token->priority_max_s, req->task->priority_s);
        return;
    }
    mr_detail_set(&u->detail, "set %.*s", (int)(req->set.len < MR_SET_MAX ? req->set.len : 0),
                  req->set.len > 0 ? (const char *)req->set.data : "");
    unary_submit(u, MR_OP_GATHERED, gathered_reply);
}
