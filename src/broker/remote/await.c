/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for the end of a task: one call, which lasts. When the connection breaks it is begun again on
 * the next one, for what is left of its time; the task is there, or it has ended. One that left
 * nothing behind meanwhile is not found then. It costs nothing to wait for a server that recovers a
 * large store, so it may be away for longer than with tasks that are to be sent.
 */
#include "broker/remote/internal.h"

enum { PATIENCE = 3 }; /* times as long */

struct await {
    struct ticket *ticket;
    mr_mono end;
    struct mr_timer timer; /* while there is no connection */
};

static struct mr_req_await *await_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_await, req);
}

/* ---- on the caller's thread ----------------------------------------------------------------- */

struct request {
    struct mr_slice id;
    int64_t timeout_ms; /* 0: as long as it takes; negative: not at all */
};
static const struct mr_flat_field request_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct request, id), 0},
    {MR_FLAT_64, offsetof(struct request, timeout_ms), 0},
};
static MR_FLAT(struct request, request_flat, request_fields);

static enum mr_err encode(struct ticket *ticket, int64_t wait_ms)
{
    struct request request = {await_of(ticket)->id, wait_ms > 0 ? wait_ms : -1};
    if (wait_ms >= MR_DELAY_MAX_MS)
        request.timeout_ms = 0;
    return unary_encode(ticket, "/millrace.v1.Tasks/Wait", &request_flat, &request);
}

static void gave_up(struct mr_timer *timer, void *arg)
{
    struct await *await = mr_container(timer, struct await, timer);
    bool late = mr_rpc_now(arg).ns >= await->end.ns;
    ticket_answer(await->ticket, late ? MR_TIMEOUT : MR_UNAVAILABLE);
}

enum mr_err remote_prepare_await(struct ticket *ticket)
{
    const struct mr_req_await *req = await_of(ticket);
    if (!unary_is_id(req->id))
        return MR_NOT_FOUND;
    int64_t wait_ms = req->wait_ms < MR_DELAY_MAX_MS ? req->wait_ms : MR_DELAY_MAX_MS;
    struct await *await = mr_arena_calloc(&ticket->req->arena, 1, sizeof *await);
    if (await == NULL)
        return MR_NOMEM;
    await->ticket = ticket;
    await->end = mr_mono_add_ms(mr_mono_now(mr_clock_system()), wait_ms);
    mr_timer_init(&await->timer, gave_up);
    ticket->wait = await;
    return encode(ticket, wait_ms);
}

/* Behind the tasks that were enqueued before, as all that looks at them. */
void remote_begin_await(struct ticket *ticket)
{
    struct remote *remote = ticket->remote;
    if (remote->awaits_n == AWAITS_MAX) {
        ticket_answer(ticket, MR_BUSY);
        return;
    }
    ticket->awaits = true;
    remote->awaits_n++;
    lane_wait(&remote->producer.lane, ticket);
}

/* ---- answers -------------------------------------------------------------------------------- */

enum mr_err remote_read_await(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_await *req = await_of(ticket);
    return mr_flat_read(&mr_flat_task, bytes, &req->req.arena, &req->task);
}

void remote_begin_unawait(struct ticket *ticket)
{
    struct remote *remote = ticket->remote;
    struct ticket *await =
        ticket_of(&mr_container(ticket->req, struct mr_req_unawait, req)->await->req);
    if (await != NULL && await->call != NULL) {
        mr_call_cancel(await->call);
    } else if (await != NULL && await->wait != NULL && mr_timer_running(&await->wait->timer)) {
        mr_rpc_timer_stop(remote->rpc, &await->wait->timer);
        ticket_answer(await, MR_CANCELLED);
    } else if (await != NULL) {
        await->unwanted = true;
    }
    ticket_answer(ticket, MR_OK);
}

/* ---- broken connections --------------------------------------------------------------------- */

bool await_away(struct ticket *ticket)
{
    struct remote *remote = ticket->remote;
    struct await *await = ticket->wait;
    mr_mono give_up = mr_mono_add_ms(mr_rpc_now(remote->rpc), PATIENCE * remote->away_ms);
    if (remote->closing)
        return false;
    mr_list_remove(&ticket->link);
    mr_list_push_back(&remote->awaits, &ticket->link);
    mr_rpc_timer_start(remote->rpc, &await->timer,
                       await->end.ns < give_up.ns ? await->end : give_up);
    return true;
}

void awaits_up(struct remote *remote)
{
    int64_t now_ns = mr_rpc_now(remote->rpc).ns;
    struct mr_link *link;
    while ((link = mr_list_pop_front(&remote->awaits)) != NULL) {
        struct ticket *ticket = mr_container(link, struct ticket, link);
        int64_t left_ms = (ticket->wait->end.ns - now_ns) / MR_NS_PER_MS;
        bool forever = await_of(ticket)->wait_ms >= MR_DELAY_MAX_MS;
        mr_rpc_timer_stop(remote->rpc, &ticket->wait->timer);
        enum mr_err err = encode(ticket, forever ? MR_DELAY_MAX_MS : left_ms);
        if (err == MR_OK)
            unary_begin(ticket);
        else
            ticket_answer(ticket, err);
    }
}

void awaits_leave(struct remote *remote)
{
    for (struct mr_link *link = remote->awaits.next; link != &remote->awaits; link = link->next)
        mr_rpc_timer_stop(remote->rpc, &mr_container(link, struct ticket, link)->wait->timer);
    tickets_answer(&remote->awaits, MR_CLOSED);
}
