/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks.Wait. It lives as long as a stream does, so it ends like one: when the server stops, when its
 * token is revoked; and when the call ends before its answer, the broker is told that nobody waits
 * any more.
 *
 * A token for some queues must not learn when a task of another queue ends. Where the task stands is
 * looked up behind the await, not before it: so a task that ends in between is not missed.
 */
#include <stdlib.h>

#include "api/internal.h"

struct waiting {
    struct stream head;
    struct unary *u;
    struct errand side; /* looks where the task is; then, that nobody waits any more */
    bool side_busy;
    bool answered; /* the await is back */
    bool left;     /* the call is over before that */
};

static void waiting_try_end(struct waiting *waiting)
{
    struct unary *u = waiting->u;
    if (!waiting->answered || waiting->side_busy)
        return;
    stream_close(&waiting->head);
    u->gone = NULL;
    errand_clear(&waiting->side);
    free(waiting);
    unary_idle(u);
}

/* ---- nobody waits --------------------------------------------------------------------------- */

static void unawaited(struct errand *errand)
{
    struct waiting *waiting = mr_container(errand, struct waiting, side);
    waiting->side_busy = false;
    waiting_try_end(waiting);
}

static void unawait(struct waiting *waiting)
{
    waiting->side_busy = true;
    errand_clear(&waiting->side);
    waiting->side.req.unawait.await = &waiting->u->errand.req.await;
    errand_submit(&waiting->side, waiting->head.api, MR_OP_UNAWAIT, unawaited);
}

static void on_gone(struct unary *u)
{
    struct waiting *waiting = u->data;
    stream_close(&waiting->head);
    waiting->left = true;
    if (!waiting->side_busy && !waiting->answered)
        unawait(waiting);
}

/* ---- answers -------------------------------------------------------------------------------- */

static void looked(struct errand *errand)
{
    struct waiting *waiting = mr_container(errand, struct waiting, side);
    struct unary *u = waiting->u;
    waiting->side_busy = false;
    if (errand->req.head.err == MR_OK && !waiting->answered && !waiting->left)
        (void)unary_may_touch(u, errand->req.get.task.queue); /* ends the call, if not */
    if (waiting->left && !waiting->answered)
        unawait(waiting);
    waiting_try_end(waiting);
}

static void awaited(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct waiting *waiting = u->data;
    enum mr_err err = errand->req.head.err;
    waiting->answered = true;
    if (err != MR_OK)
        unary_fail(u, err, "%s: %s", u->detail.text, mr_err_text(err));
    else if (unary_may_touch(u, errand->req.await.task.queue))
        unary_send_task(u, &errand->req.await.task);
    waiting_try_end(waiting);
}

void tasks_wait(struct unary *u)
{
    const Millrace__V1__WaitRequest *in = (const void *)u->message;
    struct mr_req_await *req = &u->errand.req.await;
    struct waiting *waiting = calloc(1, sizeof *waiting);
    if (waiting == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    waiting->u = u;
    u->data = waiting;
    u->gone = on_gone;
    u->busy = true;
    stream_open(&waiting->head, u->api, u->call, &u->token, stream_end_now);
    mr_detail_set(&u->detail, "task %.*s", MR_ID_MAX, in->id);
    req->id = mr_pb_text(in->id);
    req->wait_ms = in->timeout_ms < 0 ? 0 : in->timeout_ms;
    if (in->timeout_ms == 0 || in->timeout_ms > MR_DELAY_MAX_MS)
        req->wait_ms = MR_DELAY_MAX_MS;
    errand_submit(&u->errand, u->api, MR_OP_AWAIT, awaited);
    if (mr_access_all_queues(&u->token))
        return;
    waiting->side.req.get.id = req->id;
    waiting->side_busy = true;
    errand_submit(&waiting->side, u->api, MR_OP_GET, looked);
}
