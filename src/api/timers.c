/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: operations go through the door of the service, looks to its store. A
 * token for some queues is for the apps of the same names.
 */
#include "api/internal.h"
#include "timer/def.h"
#include "timer/door.h"
#include "timer/look.h"

enum { REQUEST_OPERATIONS = 1, REQUEST_WAIT = 2, REQUEST_TIMEOUT = 3, RESPONSE_RESULTS = 1 };

static struct mr_timer_service *service_of(struct unary *u)
{
    if (u->api->options.timers == NULL)
        unary_fail(u, MR_UNSUPPORTED, "this server has no timers");
    return u->api->options.timers;
}

/* ---- looking --------------------------------------------------------------------------------- */

struct looking {
    struct mr_timer_look look;
    struct unary *u;
};

static void look_filter(const struct unary *u, struct mr_timer_look *look)
{
    size_t n = 0;
    for (size_t i = 0; i < look->timers_n; i++)
        if (mr_access_queue(&u->token, look->apps[i]))
            look->timers[n++] = look->timers[i];
    look->timers_n = n;
}

/* A token for some queues sees nothing that counts the timers of others. */
static void status_filter(const struct unary *u, struct mr_timer_status *status)
{
    struct mr_timer_status seen = {
        .store = status->store, .problem = status->problem, .apps = status->apps};
    for (size_t i = 0; i < status->apps_n; i++)
        if (mr_access_queue(&u->token, status->apps[i].app))
            seen.apps[seen.apps_n++] = status->apps[i];
    *status = seen;
}

static void look_send(struct unary *u, struct mr_timer_look *look)
{
    if (look->kind == MR_LOOK_STATUS && !mr_access_all_queues(&u->token))
        status_filter(u, &look->status);
    if (look->kind == MR_LOOK_LIST && !mr_access_all_queues(&u->token))
        look_filter(u, look);
    uint8_t *room = unary_room(u, mr_look_answer_size(look));
    if (room == NULL)
        return;
    (void)mr_look_answer_write(look, room);
    unary_sent(u);
}

static void look_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct looking *looking = u->data;
    struct mr_timer_look *look = &looking->look;
    if (look->err == MR_OK)
        look_send(u, look);
    else if (look->detail.text[0] != '\0')
        unary_fail(u, look->err, "%s", look->detail.text);
    else
        unary_fail(u, look->err, "timer %.*s: %s", (int)look->name.len,
                   look->name.len > 0 ? (const char *)look->name.data : "", mr_err_text(look->err));
    mr_timer_look_done(look);
    unary_idle(u);
}

/* The store's thread, or another one. */
static void look_done(struct mr_timer_look *look)
{
    struct looking *looking = look->arg;
    errand_return(&looking->u->errand);
}

static void look_start(struct unary *u, enum mr_look_kind kind)
{
    struct mr_timer_service *service = service_of(u);
    struct looking *looking = mr_arena_calloc(unary_arena(u), 1, sizeof *looking);
    if (service == NULL)
        return;
    if (looking == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    struct mr_timer_look *look = &looking->look;
    if (mr_look_read(kind, u->bytes, look) != MR_OK) {
        unary_fail(u, MR_INVALID, "the message cannot be read");
        return;
    }
    bool of_all = kind == MR_LOOK_LIST && look->app.len == 0;
    bool of_none = kind == MR_LOOK_STATUS || (kind == MR_LOOK_NEXT && look->name.len == 0);
    if (!of_all && !of_none && !unary_may_touch(u, look->app))
        return;
    looking->u = u;
    look->done = look_done;
    look->arg = looking;
    u->data = looking;
    u->busy = true;
    u->errand.expected = kind == MR_LOOK_LIST ? ANSWER_BYTES : 0;
    errand_leave(&u->errand, u->api, look_back);
    mr_timer_service_look(service, look);
}

void timers_get(struct unary *u)
{
    look_start(u, MR_LOOK_GET);
}

void timers_list(struct unary *u)
{
    look_start(u, MR_LOOK_LIST);
}

void timers_next(struct unary *u)
{
    look_start(u, MR_LOOK_NEXT);
}

void timers_status(struct unary *u)
{
    look_start(u, MR_LOOK_STATUS);
}

void timers_history(struct unary *u)
{
    look_start(u, MR_LOOK_HISTORY);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* A call under way, in its arena: those of its operations that the token
 * allows, and where they stood. */
struct sending {
    struct mr_timer_sending sending;
    struct unary *u;
    struct mr_timer_operation *ops;
    size_t *places;                  /* of ops: in results */
    struct mr_timer_result *results; /* of all */
    struct mr_timer_result *sent;    /* of ops */
    size_t n;
};

enum mr_err timers_may(const struct mr_token *token, const struct mr_timer_operation *op,
                       struct mr_arena *arena, struct mr_detail *detail)
{
    struct mr_timer_options timer = {.app = op->app};
    enum mr_err err = MR_OK;
    if (op->verb == MR_TIMER_PUT)
        err = mr_flat_read(&mr_flat_timer_definition, op->definition, arena, &timer);
    if (err != MR_OK) {
        mr_detail_set(detail, "definition: cannot be read");
        return err;
    }
    const struct mr_slice names[] = {timer.app, op->app.len > 0 ? op->app : timer.app,
                                     timer.queue.len > 0 ? timer.queue : timer.app};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct mr_slice name = names[i].len > 0 ? names[i] : MR_SLICE_LIT(MR_TIMER_APP);
        if (mr_access_queue(token, name))
            continue;
        mr_detail_set(detail, "token %s is for apps and queues %s, not for %.*s", token->id,
                      token->queue, (int)name.len, (const char *)name.data);
        return MR_DENIED;
    }
    if (token->priority_limited && timer.priority_s > token->priority_max_s) {
        mr_detail_set(detail, "token %s may ask for a priority of at most %g s, not %g", token->id,
                      token->priority_max_s, timer.priority_s);
        return MR_DENIED;
    }
    if (token->quota > 0) {
        mr_detail_set(detail, "token %s has a quota of tasks, and a timer makes any number",
                      token->id);
        return MR_DENIED;
    }
    return MR_OK;
}

static enum mr_err add_operation(struct sending *s, struct mr_slice bytes)
{
    struct unary *u = s->u;
    struct mr_timer_operation *op = &s->ops[s->sending.n];
    struct mr_timer_result *result = &s->results[s->n];
    struct mr_detail detail = {.text = "the operation cannot be read"};
    enum mr_err err = mr_flat_read(&mr_flat_timer_operation, bytes, unary_arena(u), op);
    if (err == MR_OK)
        err = timers_may(&u->token, op, unary_arena(u), &detail);
    if (err == MR_NOMEM)
        return err;
    result->err = err;
    if (err == MR_OK)
        s->places[s->sending.n++] = s->n;
    else
        (void)snprintf(result->why, sizeof result->why, "%.*s", MR_TIMER_WHY_MAX, detail.text);
    s->n++;
    return MR_OK;
}

static enum mr_err read_operations(struct sending *s, struct mr_slice bytes)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == REQUEST_OPERATIONS && item.type == MR_FLAT_BYTES)
            MR_TRY(add_operation(s, item.bytes));
        else if (item.number == REQUEST_WAIT)
            s->sending.wait = item.value == 0 ? MR_TIMER_APPLIED : MR_TIMER_DURABLE;
        else if (item.number == REQUEST_TIMEOUT)
            s->sending.wait_ms = (int64_t)item.value > 0 ? (int64_t)item.value : 0;
    }
    return MR_OK;
}

static void send_results(struct sending *s)
{
    struct unary *u = s->u;
    size_t size = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t len = mr_flat_size(&mr_flat_timer_result, &s->results[i]);
        size += mr_flat_head_size(len) + len;
    }
    u->outcome = s->n == 1 ? s->results[0].err : MR_OK;
    uint8_t *at = unary_room(u, size);
    if (at == NULL)
        return;
    for (size_t i = 0; i < s->n; i++) {
        const struct mr_timer_result *result = &s->results[i];
        at = mr_flat_put_head(at, RESPONSE_RESULTS, mr_flat_size(&mr_flat_timer_result, result));
        at = mr_flat_write(&mr_flat_timer_result, result, at);
    }
    unary_sent(u);
}

static void send_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct sending *s = u->data;
    for (size_t i = 0; i < s->sending.n; i++)
        s->results[s->places[i]] = s->sent[i];
    if (s->sending.err == MR_OK)
        send_results(s);
    else
        unary_fail(u, s->sending.err, NULL);
    unary_idle(u);
}

/* The broker's thread, or the loop's. */
static void send_done(struct mr_timer_sending *sending)
{
    struct sending *s = sending->arg;
    errand_return(&s->u->errand);
}

/* Of one operation "put default/nightly". What is waited for is a person's; a program that only wants to know that it
 * is durable sends thousands of them. */
struct mr_slice timers_about(struct unary *u)
{
    enum { ROOM = 2 * MR_NAME_MAX + 64 };
    struct mr_slice bytes = u->bytes;
    struct mr_timer_operation op = {0};
    struct mr_timer_options timer = {0};
    struct mr_flat_item item;
    size_t n = 0;
    int len;
    char *text = mr_arena_alloc(unary_arena(u), ROOM);
    while (bytes.len > 0 && mr_flat_next(&bytes, &item) == MR_OK) {
        if (item.number == REQUEST_WAIT)
            u->routine = item.value != 0;
        if (item.number == REQUEST_OPERATIONS && item.type == MR_FLAT_BYTES && n++ == 0)
            (void)!mr_flat_read(&mr_flat_timer_operation, item.bytes, unary_arena(u), &op);
    }
    if (text == NULL)
        return (struct mr_slice){0};
    if (op.verb == MR_TIMER_PUT && op.name.len == 0)
        (void)!mr_flat_read(&mr_flat_timer_definition, op.definition, unary_arena(u), &timer);
    struct mr_slice app = op.app.len > 0 ? op.app : timer.app;
    struct mr_slice name = op.name.len > 0 ? op.name : timer.name;
    if (n == 1)
        len = snprintf(text, ROOM, "%s %.*s/%.*s", mr_timer_verb_name(op.verb), (int)app.len,
                       app.len > 0 ? (const char *)app.data : "", (int)name.len,
                       name.len > 0 ? (const char *)name.data : "");
    else
        len = snprintf(text, ROOM, "%zu operations", n);
    return mr_slice_make(text, len < ROOM ? (size_t)len : ROOM - 1);
}

static struct sending *sending_new(struct unary *u, size_t n)
{
    struct mr_arena *arena = unary_arena(u);
    struct sending *s = mr_arena_calloc(arena, 1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->u = u;
    s->ops = mr_arena_calloc(arena, n + 1, sizeof *s->ops);
    s->places = mr_arena_calloc(arena, n + 1, sizeof *s->places);
    s->results = mr_arena_calloc(arena, n + 1, sizeof *s->results);
    s->sent = mr_arena_calloc(arena, n + 1, sizeof *s->sent);
    bool fine = s->ops != NULL && s->places != NULL && s->results != NULL && s->sent != NULL;
    return fine ? s : NULL;
}

static void send_on(struct sending *s, struct mr_timer_service *service)
{
    struct unary *u = s->u;
    s->sending.ops = s->ops;
    s->sending.results = s->sent;
    s->sending.done = send_done;
    s->sending.arg = s;
    u->data = s;
    u->busy = true;
    errand_leave(&u->errand, u->api, send_back);
    mr_timer_door_send(mr_timer_service_door(service), &s->sending);
}

void timers_send(struct unary *u)
{
    struct mr_timer_service *service = service_of(u);
    size_t n = 0;
    if (service == NULL)
        return;
    enum mr_err err = mr_flat_count(u->bytes, REQUEST_OPERATIONS, &n);
    if (err == MR_OK && n > MR_BATCH_MAX) {
        unary_fail(u, MR_TOO_BIG, "%zu operations in one call, the limit is %d", n, MR_BATCH_MAX);
        return;
    }
    struct sending *s = err == MR_OK ? sending_new(u, n) : NULL;
    if (err == MR_OK)
        err = s != NULL ? read_operations(s, u->bytes) : MR_NOMEM;
    if (err == MR_NOMEM)
        unary_fail(u, err, NULL);
    else if (err != MR_OK)
        unary_fail(u, MR_INVALID, "the message cannot be read");
    else if (s->sending.n == 0)
        send_results(s);
    else
        send_on(s, service);
}
