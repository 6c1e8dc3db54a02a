/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at tasks and acting on them. */
#include <stdio.h>
#include <stdlib.h>

#include "api/internal.h"
#include "base/text.h"

enum { LIST_TASKS = 1, LIST_NEXT = 2 }; /* numbers of ListResponse */

/* ---- one ------------------------------------------------------------------------------------ */

static void get_reply(struct unary *u)
{
    const struct mr_task *task = &u->errand.req.get.task;
    if (unary_may_touch(u, task->queue))
        unary_send_task(u, task);
}

void tasks_get(struct unary *u)
{
    const Millrace__V1__GetRequest *in = (const void *)u->message;
    u->errand.req.get.id = mr_pb_text(in->id);
    mr_detail_set(&u->detail, "task %.*s", MR_ID_MAX, in->id);
    unary_submit(u, MR_OP_GET, get_reply);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* What the token may see of the page. */
static size_t list_filter(const struct unary *u, struct mr_req_list *req)
{
    size_t n = 0;
    for (size_t i = 0; i < req->n; i++)
        if (mr_access_queue(&u->token, req->tasks[i].queue))
            req->tasks[n++] = req->tasks[i];
    return n;
}

static void list_reply(struct unary *u)
{
    struct mr_req_list *req = &u->errand.req.list;
    size_t n = list_filter(u, req), next = strlen(req->next), size = 0;
    size_t *sizes = mr_arena_alloc(unary_arena(u), (n + 1) * sizeof *sizes);
    if (sizes == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        sizes[i] = mr_flat_size(&mr_flat_task, &req->tasks[i]);
        size += mr_flat_head_size(sizes[i]) + sizes[i];
    }
    uint8_t *at = unary_room(u, size + (next > 0 ? mr_flat_head_size(next) + next : 0));
    if (at == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        at = mr_flat_put_head(at, LIST_TASKS, sizes[i]);
        at = mr_flat_write(&mr_flat_task, &req->tasks[i], at);
    }
    if (next > 0)
        memcpy(mr_flat_put_head(at, LIST_NEXT, next), req->next, next);
    unary_sent(u);
}

/* Of what the broker refuses, the fields that can be looked at here; when it is so, the call is
 * ended. What is left to it is named for its answer: the queue may be missing, the cursor nonsense.
 */
static bool list_is_good(struct unary *u, const Millrace__V1__ListRequest *in)
{
    struct mr_detail detail;
    if (in->limit > MR_BATCH_MAX) {
        unary_fail(u, MR_INVALID, "limit: %u, the most is %d", in->limit, MR_BATCH_MAX);
        return false;
    }
    if (words_check(&words_state_numbers, "state", (int)in->state, &detail) != MR_OK) {
        unary_fail(u, MR_INVALID, "%s", detail.text);
        return false;
    }
    bool queue = in->queue[0] != '\0', cursor = in->cursor[0] != '\0';
    mr_detail_set(&u->detail, "%s%.*s%s%s%.*s", queue ? "queue " : "", MR_NAME_MAX, in->queue,
                  queue && cursor ? ", " : "", cursor ? "cursor " : "", MR_CURSOR_MAX, in->cursor);
    return true;
}

void tasks_list(struct unary *u)
{
    const Millrace__V1__ListRequest *in = (const void *)u->message;
    struct mr_req_list *req = &u->errand.req.list;
    if (!list_is_good(u, in))
        return;
    if (in->queue[0] != '\0' && !unary_may_touch(u, mr_pb_text(in->queue)))
        return;
    req->options = (struct mr_list_options){
        .queue = mr_pb_text(in->queue),
        .state = (enum mr_state)in->state,
        .type = mr_pb_text(in->type),
        .cursor = in->cursor,
        .limit = in->limit,
        .with_payload = in->with_payload,
        .held = in->held,
    };
    u->errand.expected = in->with_payload ? ANSWER_BYTES : 0;
    if (u->api->expected + u->errand.expected > u->api->options.limits.bytes_total / 4)
        unary_fail(u, MR_BUSY, "too many lists with payloads are under way");
    else
        unary_submit(u, MR_OP_LIST, list_reply);
}

/* ---- acting --------------------------------------------------------------------------------- */

static void control_reply(struct unary *u)
{
    const struct mr_req_control *req = &u->errand.req.control;
    Millrace__V1__ControlResponse out = MILLRACE__V1__CONTROL_RESPONSE__INIT;
    out.codes = mr_arena_calloc(unary_arena(u), req->n + 1, sizeof *out.codes);
    if (out.codes == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    for (size_t i = 0; i < req->n; i++)
        out.codes[i] = (Millrace__V1__Code)req->errs[i];
    out.n_codes = req->n;
    unary_send(u, &out.base);
}

/* A token for some queues: where each task stands is looked up before anything is done. */
struct look {
    struct errand errand;
    struct unary *u;
    size_t at; /* item that is looked up */
};

static void look_back(struct errand *errand);

static void look_next(struct look *look)
{
    const struct mr_req_control *req = &look->u->errand.req.control;
    look->errand.req.get.id = req->items[look->at].id;
    errand_submit(&look->errand, look->u->api, MR_OP_GET, look_back);
}

static void look_end(struct look *look)
{
    errand_clear(&look->errand);
    free(look);
}

static void look_back(struct errand *errand)
{
    struct look *look = mr_container(errand, struct look, errand);
    struct unary *u = look->u;
    enum mr_err err = errand->req.head.err;
    bool fine = err == MR_NOT_FOUND; /* said once more when it is acted on */
    if (err == MR_OK)
        fine = unary_may_touch(u, errand->req.get.task.queue);
    else if (!fine)
        unary_fail(u, err, NULL);
    errand_clear(errand);
    if (fine && ++look->at < u->errand.req.control.n) {
        look_next(look);
        return;
    }
    look_end(look);
    if (fine)
        unary_submit(u, MR_OP_CONTROL, control_reply);
    else
        unary_idle(u);
}

static void look_begin(struct unary *u)
{
    struct look *look = calloc(1, sizeof *look);
    if (look == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    look->u = u;
    u->busy = true;
    look_next(look);
}

static enum mr_err control_fill(struct unary *u)
{
    const Millrace__V1__ControlRequest *in = (const void *)u->message;
    struct mr_req_control *req = &u->errand.req.control;
    struct mr_control *items = mr_arena_calloc(unary_arena(u), in->n_items + 1, sizeof *items);
    req->errs = mr_arena_calloc(unary_arena(u), in->n_items + 1, sizeof *req->errs);
    if (items == NULL || req->errs == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < in->n_items; i++)
        items[i] = (struct mr_control){
            .verb = (enum mr_verb)in->items[i]->verb,
            .id = mr_pb_text(in->items[i]->id),
            .value = in->items[i]->value,
            .text = mr_slice_make(in->items[i]->text.data, in->items[i]->text.len)};
    req->items = items;
    req->n = in->n_items;
    return MR_OK;
}

/* One task by its id, more by their number. */
struct mr_slice tasks_about(struct unary *u)
{
    const Millrace__V1__ControlRequest *in = (const void *)u->message;
    enum { ROOM = 32 };
    if (in->n_items == 1)
        return mr_pb_text(in->items[0]->id);
    char *text = mr_arena_alloc(unary_arena(u), ROOM);
    if (text == NULL)
        return (struct mr_slice){0};
    return mr_slice_make(
        text, (size_t)snprintf(text, ROOM, "%zu task%s", in->n_items, mr_plural(in->n_items)));
}

void tasks_control(struct unary *u)
{
    const Millrace__V1__ControlRequest *in = (const void *)u->message;
    if (in->n_items > MR_BATCH_MAX) {
        unary_fail(u, MR_TOO_BIG, "%zu items in one call, the limit is %d", in->n_items,
                   MR_BATCH_MAX);
        return;
    }
    if (control_fill(u) != MR_OK) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    if (in->n_items > 0 && !mr_access_all_queues(&u->token))
        look_begin(u);
    else
        unary_submit(u, MR_OP_CONTROL, control_reply);
}
