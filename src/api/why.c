/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks.Why: the task, its queue, the limits that hold for it and the nodes are asked for, one behind the
 * other; what follows from them is said by client/why.h. */
#include "client/why.h"

#include <stdlib.h>

#include "api/internal.h"

struct asking {
    struct unary *u; /* whose errand gets the task */
    struct errand queue, limits, nodes;
    struct mr_queue_info info;
    struct mr_limit limited[MR_LIMITS_MAX];
    struct mr_why why;
};

static void asking_end(struct asking *asking)
{
    struct unary *u = asking->u;
    errand_clear(&asking->queue);
    errand_clear(&asking->limits);
    errand_clear(&asking->nodes);
    free(asking);
    unary_idle(u);
}

static void asking_fail(struct asking *asking, enum mr_err err)
{
    unary_fail(asking->u, err, "%s: %s", asking->u->detail.text, mr_err_text(err));
    asking_end(asking);
}

static void say(struct asking *asking)
{
    const struct mr_why *why = &asking->why;
    Millrace__V1__WhyReason rows[MR_WHY_MAX], *list[MR_WHY_MAX];
    Millrace__V1__WhyResponse out = MILLRACE__V1__WHY_RESPONSE__INIT;
    for (; out.n_reasons < why->n; out.n_reasons++) {
        Millrace__V1__WhyReason *row = &rows[out.n_reasons];
        millrace__v1__why_reason__init(row);
        row->reason = (char *)(uintptr_t)mr_why_word(why->reasons[out.n_reasons].reason);
        row->text = (char *)(uintptr_t)why->reasons[out.n_reasons].text;
        list[out.n_reasons] = row;
    }
    out.reasons = list;
    unary_send(asking->u, &out.base);
}

static void got_nodes(struct errand *errand)
{
    struct asking *asking = mr_container(errand, struct asking, nodes);
    struct mr_req_node_list *req = &errand->req.node_list;
    if (req->req.err != MR_OK) {
        asking_fail(asking, req->req.err);
        return;
    }
    nodes_mark(asking->u->api, req->nodes, req->n);
    struct mr_why_facts facts = {
        .task = &asking->u->errand.req.get.task,
        .queue = &asking->info,
        .nodes = req->nodes,
        .nodes_n = req->n,
        .limits = asking->limited,
        .limits_n = asking->limits.req.queue_limits.n,
        .now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())),
    };
    mr_why(&facts, &asking->why);
    say(asking);
    asking_end(asking);
}

static void got_limits(struct errand *errand)
{
    struct asking *asking = mr_container(errand, struct asking, limits);
    if (errand->req.head.err != MR_OK)
        asking_fail(asking, errand->req.head.err);
    else
        errand_submit(&asking->nodes, asking->u->api, MR_OP_NODE_LIST, got_nodes);
}

static void got_queue(struct errand *errand)
{
    struct asking *asking = mr_container(errand, struct asking, queue);
    const struct mr_queue_info *info = &asking->info;
    struct mr_req_queue_limits *req = &asking->limits.req.queue_limits;
    bool limited = info->rate > 0 || info->concurrency > 0 || info->limits > 0;
    req->queue = asking->u->errand.req.get.task.queue;
    req->id = asking->u->errand.req.get.task.id;
    req->limits = asking->limited;
    if (errand->req.head.err != MR_OK)
        asking_fail(asking, errand->req.head.err);
    else if (limited)
        errand_submit(&asking->limits, asking->u->api, MR_OP_QUEUE_LIMITS, got_limits);
    else
        errand_submit(&asking->nodes, asking->u->api, MR_OP_NODE_LIST, got_nodes);
}

static void got_task(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct asking *asking = u->data;
    struct mr_req_queue_list *req = &asking->queue.req.queue_list;
    if (errand->req.head.err != MR_OK) {
        asking_fail(asking, errand->req.head.err);
    } else if (!unary_may_touch(u, errand->req.get.task.queue)) {
        asking_end(asking);
    } else {
        req->only = errand->req.get.task.queue;
        req->infos = &asking->info;
        req->max = 1;
        errand_submit(&asking->queue, u->api, MR_OP_QUEUE_LIST, got_queue);
    }
}

void tasks_why(struct unary *u)
{
    const Millrace__V1__GetRequest *in = (const void *)u->message;
    struct asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    asking->u = u;
    u->data = asking;
    u->busy = true;
    u->errand.req.get.id = mr_pb_text(in->id);
    mr_detail_set(&u->detail, "task %.*s", MR_ID_MAX, in->id);
    errand_submit(&u->errand, u->api, MR_OP_GET, got_task);
}
