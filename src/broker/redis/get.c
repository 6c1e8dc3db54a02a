/* SPDX-License-Identifier: Apache-2.0 */
/* One task by its id, in whichever queue it is. */
#include "broker/redis/look.h"

static enum mr_err said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct mr_req_get *req = mr_container(fan->ticket->req, struct mr_req_get, req);
    if (reply->n == 0 || req->task.state != MR_STATE_NONE)
        return MR_OK;
    return view_read(queue, mr_reply_at(reply, 0), &req->req.arena, &req->task);
}

static void done(struct fan *fan, enum mr_err err)
{
    struct mr_req_get *req = mr_container(fan->ticket->req, struct mr_req_get, req);
    if (req->task.state != MR_STATE_NONE)
        err = MR_OK;
    else if (err == MR_OK)
        err = MR_NOT_FOUND;
    ticket_done(fan->ticket, err);
}

void get_begin(struct ticket *ticket)
{
    struct mr_req_get *req = mr_container(ticket->req, struct mr_req_get, req);
    struct fan *fan = mr_arena_calloc(&req->req.arena, 1, sizeof *fan);
    req->task = (struct mr_task){0};
    if (fan == NULL || req->id.len == 0 || req->id.len > MR_ID_MAX) {
        ticket_done(ticket, fan == NULL ? MR_NOMEM : MR_NOT_FOUND);
        return;
    }
    *fan = (struct fan){.ticket = ticket,
                        .script = SCRIPT_GET,
                        .args = &req->id,
                        .args_n = 1,
                        .said = said,
                        .done = done};
    fan_out(fan);
}
