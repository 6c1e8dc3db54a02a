/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people do to tasks. All queues get all items, each acts on those it has: so nothing is looked up
 * before, and nothing can move between looking and acting. Where an id is in two queues, which only other
 * programs bring about, both act; but none is moved then, since only one of the two was carried elsewhere.
 */
#include "broker/redis/look.h"
#include "wire/task.h"

enum { ITEM_ARGS = 3, HEAD_ARGS = 1 };

/* By what control.lua answers; 0: not in this queue. */
static const enum mr_err codes[] = {MR_NOT_FOUND, MR_OK, MR_RUNNING, MR_WRONG_STATE, MR_DUPLICATE};
enum { CODES = sizeof codes / sizeof *codes };

struct act {
    struct fan fan;
    size_t n;       /* items that are sent */
    size_t *places; /* of them, in the request */
    bool moves;     /* some of them are moved: so ids are looked for first, and */
    uint32_t *seen; /* ... so many queues have each */
    struct mr_slice *ids;
    struct mr_slice args[];
};

static enum mr_err item_check(const struct mr_control *item)
{
    MR_TRY(mr_control_check(item));
    return MR_NOT_FOUND; /* until some queue has it */
}

static enum mr_err add_item(struct act *act, const struct mr_control *item, struct mr_arena *arena)
{
    static const char verbs[] = "0123456";
    struct mr_slice *args = &act->args[HEAD_ARGS + ITEM_ARGS * act->n];
    char *number = mr_arena_alloc(arena, NUMBER_MAX);
    if (number == NULL)
        return MR_NOMEM;
    args[0] = mr_slice_make(&verbs[item->verb], 1);
    args[1] = item->id;
    args[2] =
        number_arg(item->verb == MR_VERB_PRIORITISE ? mr_priority_ms(item->value) : 0, number);
    if (item->verb == MR_VERB_MOVED)
        args[2] = item->text;
    act->moves |= item->verb == MR_VERB_MOVED;
    act->ids[act->n++] = item->id;
    return MR_OK;
}

enum mr_err control_prepare(struct ticket *ticket)
{
    struct mr_req_control *req = mr_container(ticket->req, struct mr_req_control, req);
    struct mr_arena *arena = &req->req.arena;
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct act *act = mr_arena_calloc(
        arena, 1, sizeof *act + (HEAD_ARGS + ITEM_ARGS * req->n) * sizeof *act->args);
    if (act == NULL || (act->places = mr_arena_calloc(arena, req->n + 1, sizeof(size_t))) == NULL ||
        (act->ids = mr_arena_calloc(arena, req->n + 1, sizeof *act->ids)) == NULL ||
        (act->seen = mr_arena_calloc(arena, req->n + 1, sizeof *act->seen)) == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        req->errs[i] = item_check(&req->items[i]);
        if (req->errs[i] != MR_NOT_FOUND)
            continue;
        act->places[act->n] = i;
        MR_TRY(add_item(act, &req->items[i], arena));
    }
    ticket->own = act;
    return MR_OK;
}

static enum mr_err said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    const struct act *act = fan->arg;
    struct mr_req_control *req = mr_container(fan->ticket->req, struct mr_req_control, req);
    for (size_t i = 0; i < act->n; i++) {
        int64_t code = mr_reply_int(mr_reply_at(reply, i), -1);
        if (code < 0 || code >= CODES)
            return engine_refused(queue->engine, MR_FAILED, NULL);
        if (code != 0 && req->errs[act->places[i]] != MR_OK)
            req->errs[act->places[i]] = codes[code];
    }
    return MR_OK;
}

/* What some queue acted on is answered, whatever the others have; what no queue had may be in one that did
 * not answer. */
static void done(struct fan *fan, enum mr_err err)
{
    const struct act *act = fan->arg;
    struct mr_req_control *req = mr_container(fan->ticket->req, struct mr_req_control, req);
    size_t open = 0;
    for (size_t i = 0; err != MR_OK && i < act->n; i++) {
        enum mr_err *item = &req->errs[act->places[i]];
        open += *item == MR_NOT_FOUND;
        *item = *item == MR_NOT_FOUND ? err : *item;
    }
    ticket_done(fan->ticket, open == req->n ? err : MR_OK);
}

static void act_on_all(struct act *act)
{
    act->fan.script = SCRIPT_CONTROL;
    act->fan.args = act->args;
    act->fan.args_n = HEAD_ARGS + ITEM_ARGS * act->n;
    act->fan.said = said;
    act->fan.done = done;
    act->fan.acts = true;
    if (act->n == 0)
        ticket_done(act->fan.ticket, MR_OK);
    else
        fan_out(&act->fan);
}

/* ---- before some are moved ------------------------------------------------------------------- */

static enum mr_err seen(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    const struct act *act = fan->arg;
    (void)queue;
    for (size_t i = 0; i < act->n; i++)
        act->seen[i] += mr_reply_at(reply, i)->text.len > 0;
    return MR_OK;
}

static bool is_moved_twice(const struct act *act, size_t i)
{
    const struct mr_req_control *req =
        mr_container(act->fan.ticket->req, struct mr_req_control, req);
    return act->seen[i] > 1 && req->items[act->places[i]].verb == MR_VERB_MOVED;
}

/* A queue that may not be looked at may not be changed either. */
static void looked_for(struct fan *fan, enum mr_err err)
{
    struct act *act = fan->arg;
    struct mr_req_control *req = mr_container(fan->ticket->req, struct mr_req_control, req);
    size_t n = 0;
    if (err != MR_OK && err != MR_DENIED) {
        ticket_done(fan->ticket, err);
        return;
    }
    for (size_t i = 0; i < act->n; i++) {
        if (is_moved_twice(act, i)) {
            req->errs[act->places[i]] = MR_CONFLICT;
            continue;
        }
        memmove(&act->args[HEAD_ARGS + ITEM_ARGS * n], &act->args[HEAD_ARGS + ITEM_ARGS * i],
                ITEM_ARGS * sizeof *act->args);
        act->places[n++] = act->places[i];
    }
    act->n = n;
    act_on_all(act);
}

void control_begin(struct ticket *ticket)
{
    struct act *act = ticket->own;
    act->args[0] = global_key(ticket->engine, "cancel", &ticket->req->arena);
    act->fan = (struct fan){.ticket = ticket,
                            .script = SCRIPT_FIND,
                            .args = act->ids,
                            .args_n = act->n,
                            .said = seen,
                            .done = looked_for,
                            .arg = act};
    if (act->args[0].len == 0)
        ticket_done(ticket, MR_NOMEM);
    else if (act->moves)
        fan_out(&act->fan);
    else
        act_on_all(act);
}
