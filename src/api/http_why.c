/* SPDX-License-Identifier: Apache-2.0 */
/* GET /tasks/ID/why: the task, its queue, the limits that hold for it and the nodes are asked for, one behind the other;
 * what follows from them is said by client/why.h. */
#include <stdlib.h>

#include "api/doubts.h"
#include "api/http_internal.h"
#include "client/why.h"

struct asking {
    union any_req got; /* the request that the task came with, which its slices live in */
    struct mr_queue_info queue;
    struct mr_limit limits[MR_LIMITS_MAX];
    size_t limits_n;
    struct mr_why why;
};

static void freed(struct http_call *call)
{
    struct asking *asking = call->data;
    mr_req_done(&asking->got.head);
    free(asking);
}

static void write_why(struct jw *jw, const struct asking *asking)
{
    const struct mr_task *task = &asking->got.get.task;
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "id", task->id);
    jw_text(jw, "state", mr_state_name(task->state));
    jw_array_begin(jw, "reasons");
    for (size_t i = 0; i < asking->why.n; i++) {
        jw_object_begin(jw, NULL);
        jw_text(jw, "reason", mr_why_word(asking->why.reasons[i].reason));
        jw_text(jw, "text", asking->why.reasons[i].text);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    jw_object_end(jw);
}

static void got_nodes(struct http_call *call)
{
    struct asking *asking = call->data;
    const struct mr_req_node_list *req = &call->req.node_list;
    struct jw jw = {0};
    mr_doubts_mark(call->api->options.doubts, req->nodes, req->n);
    struct mr_why_facts facts = {
        .task = &asking->got.get.task,
        .queue = &asking->queue,
        .nodes = req->nodes,
        .nodes_n = req->n,
        .limits = asking->limits,
        .limits_n = asking->limits_n,
        .now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())),
    };
    mr_why(&facts, &asking->why);
    write_why(&jw, asking);
    http_call_reply(call, &jw);
}

static void ask_nodes(struct http_call *call)
{
    http_call_clear(call);
    http_call_submit(call, MR_OP_NODE_LIST, got_nodes);
}

static void got_limits(struct http_call *call)
{
    struct asking *asking = call->data;
    asking->limits_n = call->req.queue_limits.n;
    ask_nodes(call);
}

static void got_queue(struct http_call *call)
{
    struct asking *asking = call->data;
    const struct mr_task *task = &asking->got.get.task;
    if (asking->queue.rate == 0 && asking->queue.concurrency == 0 && asking->queue.limits == 0) {
        ask_nodes(call);
        return;
    }
    http_call_clear(call);
    call->req.queue_limits.queue = task->queue;
    call->req.queue_limits.id = task->id;
    call->req.queue_limits.limits = asking->limits;
    http_call_submit(call, MR_OP_QUEUE_LIMITS, got_limits);
}

static void got_task(struct http_call *call)
{
    struct asking *asking = call->data;
    if (!http_may_touch(call, call->req.get.task.queue))
        return;
    asking->got = call->req;
    memset(&call->req, 0, sizeof call->req);
    call->req.queue_list.only = asking->got.get.task.queue;
    call->req.queue_list.infos = &asking->queue;
    call->req.queue_list.max = 1;
    http_call_submit(call, MR_OP_QUEUE_LIST, got_queue);
}

void http_task_why(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new(arg, request);
    if (call == NULL)
        return;
    call->data = calloc(1, sizeof(struct asking));
    if (call->data == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    call->freed = freed;
    call->req.get.id = call->about;
    mr_detail_set(&call->detail, "task %.*s", (int)call->about.len, (const char *)call->about.data);
    http_call_submit(call, MR_OP_GET, got_task);
}
