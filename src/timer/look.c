/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks, answered by the store. A look is a chain of questions: each answer
 * comes on the thread of the store or of the broker, which asks the next one. A
 * firing that is a task is as its task is: that one is asked for at the broker.
 */
#include "timer/look.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "broker/broker.h"
#include "store/store.h"
#include "timer/def.h"
#include "timer/scheduler.h"
#include "timer/service_internal.h"

enum {
    CHUNK = 100,                 /* timers that are asked for at once: each may have a payload of
                  the biggest size */
    BYTES_MAX = 2 * 1024 * 1024, /* a page ends at about so many */
    TASKS_MAX = 50,              /* that are asked for at the broker, for one page */
};

static_assert((int)MR_ROW_FINISHED == (int)MR_TIMER_FINISHED, "states of rows are those shown");
static_assert((int)MR_LEDGER_MISFIRED == (int)MR_FIRING_MISFIRED, "and those of firings");
static_assert((int)MR_LEDGER_CAUGHT_UP == (int)MR_FIRING_CAUGHT_UP, "and their causes");

struct work {
    struct mr_timer_service *service;
    struct mr_timer_look *look;
    struct mr_store_timer_key key;
    union {
        struct mr_store_req head;
        struct mr_store_timer_get get;
        struct mr_store_timer_list list;
        struct mr_store_firing_list firings;
    } req;
    struct mr_req_get task;
    size_t at, asked; /* of firings: that is asked for, and how many were */
    struct mr_uuid uid;
    struct mr_slice after_app, after_name; /* of lists */
    size_t bytes;
};

void mr_timer_look_done(struct mr_timer_look *look)
{
    mr_arena_done(&look->arena);
    look->timers_n = look->firings_n = look->times_n = 0;
}

static void end(struct work *work, enum mr_err err)
{
    struct mr_timer_look *look = work->look;
    free(work);
    look->work = NULL;
    look->err = err;
    look->done(look);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static enum mr_err copy_id(struct mr_arena *arena, const struct mr_uuid *uid,
                           struct mr_slice *ret_id)
{
    char text[MR_UUID_TEXT_LEN + 1];
    mr_uuid_format(uid, text);
    return mr_arena_copy(arena, mr_slice_str(text), ret_id);
}

static enum mr_err show_row(struct mr_timer_look *look, const struct mr_store_timer *row)
{
    size_t i = look->timers_n;
    struct mr_timer_shown shown = {
        .version = row->version,
        .state = (enum mr_timer_state)row->state,
        .created_ms = row->created_ms,
        .last_ms = row->last_ms,
        .firings_total = row->fired,
    };
    if (row->state == MR_ROW_ACTIVE && row->next_ms != MR_STORE_NEVER_MS)
        shown.next_ms = row->next_ms;
    MR_TRY(copy_id(&look->arena, &row->uid, &shown.id));
    MR_TRY(mr_arena_copy(&look->arena, row->definition, &shown.definition));
    MR_TRY(mr_arena_copy(&look->arena, row->app, &look->apps[i]));
    look->timers[i] = shown;
    look->timers_n++;
    return MR_OK;
}

static enum mr_err make_room(struct mr_timer_look *look, size_t n)
{
    look->timers = mr_arena_calloc(&look->arena, n, sizeof *look->timers);
    look->apps = mr_arena_calloc(&look->arena, n, sizeof *look->apps);
    return look->timers != NULL && look->apps != NULL ? MR_OK : MR_NOMEM;
}

/* ---- when it fires next ---------------------------------------------------------------------- */

/* The planned times of a rule behind after_ms; `first` goes before them, unless
 * it is MR_NEVER_MS. */
static void plan_times(struct mr_timer_look *look, const struct mr_rule *rule, uint64_t fired,
                       int64_t first_ms, int64_t after_ms)
{
    int64_t at_ms = after_ms;
    if (first_ms != MR_NEVER_MS) {
        look->times_ms[look->times_n++] = at_ms = first_ms;
        fired++;
    }
    /* What follows the end of a run is not known before that. */
    if (mr_rule_kind_of(rule) == MR_TIMER_AFTER_DONE && look->times_n > 0)
        return;
    while (look->times_n < look->limit &&
           (at_ms = mr_rule_next(rule, fired, at_ms)) != MR_NEVER_MS) {
        look->times_ms[look->times_n++] = at_ms;
        fired++;
        if (mr_rule_kind_of(rule) == MR_TIMER_AFTER_DONE)
            return;
    }
}

static enum mr_err times_room(struct mr_timer_look *look)
{
    look->times_ms = mr_arena_calloc(&look->arena, look->limit + 1, sizeof *look->times_ms);
    return look->times_ms != NULL ? MR_OK : MR_NOMEM;
}

static int64_t now_of(const struct work *work)
{
    return mr_wall_ms(mr_wall_now(work->service->clock));
}

static enum mr_err next_of_row(struct work *work, const struct mr_store_timer *row)
{
    struct mr_timer_look *look = work->look;
    struct mr_timer_options timer;
    struct mr_rule *rule;
    int64_t now_ms = now_of(work), after_ms = look->after_ms > 0 ? look->after_ms : now_ms;
    MR_TRY(times_room(look));
    MR_TRY(mr_timer_decode(row->definition, &look->arena, &timer));
    if (row->state == MR_ROW_FINISHED || timer.kind == MR_TIMER_MANUAL)
        return MR_OK;
    MR_TRY(mr_timer_rule(work->service->zones, &timer, row->created_ms, &rule, &look->detail));
    int64_t first_ms = MR_NEVER_MS;
    bool planned = row->state == MR_ROW_ACTIVE && row->next_ms != MR_STORE_NEVER_MS;
    if (planned && row->next_ms > after_ms)
        first_ms = row->next_ms;
    if (planned || timer.kind != MR_TIMER_AFTER_DONE)
        plan_times(look, rule, row->fired, first_ms, after_ms);
    mr_rule_free(rule);
    return MR_OK;
}

static enum mr_err next_of_definition(struct work *work)
{
    struct mr_timer_look *look = work->look;
    struct mr_timer_options given;
    struct mr_rule *rule;
    int64_t now_ms = now_of(work), after_ms = look->after_ms > 0 ? look->after_ms : now_ms;
    MR_TRY(times_room(look));
    MR_TRY(mr_timer_read(look->definition, &look->arena, &given, &look->detail));
    MR_TRY(mr_timer_rule(work->service->zones, &given, now_ms, &rule, &look->detail));
    plan_times(look, rule, 0, MR_NEVER_MS, after_ms);
    mr_rule_free(rule);
    return MR_OK;
}

/* ---- history --------------------------------------------------------------------------------- */

static void on_task(struct mr_req *req);

/* What its task knows better: whether it runs, and since when. The result of a run does not say the latter. */
static bool asks_task(const struct mr_firing_info *firing)
{
    return firing->task_id.len > 0 &&
           (firing->state == MR_FIRING_DISPATCHED || firing->started_ms == 0);
}

static void ask_tasks(struct work *work)
{
    struct mr_timer_look *look = work->look;
    while (work->at < look->firings_n && !asks_task(&look->firings[work->at]))
        work->at++;
    if (work->at == look->firings_n || work->asked == TASKS_MAX) {
        end(work, MR_OK);
        return;
    }
    work->asked++;
    work->task = (struct mr_req_get){.req = {.op = MR_OP_GET, .done = on_task, .arg = work},
                                     .id = look->firings[work->at].task_id};
    mr_broker_submit(work->service->broker, &work->task.req);
}

static void on_task(struct mr_req *req)
{
    struct work *work = req->arg;
    struct mr_firing_info *firing = &work->look->firings[work->at++];
    const struct mr_task *task = &work->task.task;
    if (req->err == MR_OK) {
        bool open = firing->state == MR_FIRING_DISPATCHED;
        firing->attempt = open ? task->attempt : firing->attempt;
        if (!open || task->state == MR_ACTIVE)
            firing->started_ms = task->started_ms;
        if (open && task->state == MR_ACTIVE)
            firing->state = MR_FIRING_RUNNING;
    }
    mr_req_done(req);
    ask_tasks(work);
}

static bool has_task(enum mr_ledger_state state)
{
    return state == MR_LEDGER_DISPATCHED || state == MR_LEDGER_RUNNING ||
           state == MR_LEDGER_FAILED || state == MR_LEDGER_SUCCEEDED || state == MR_LEDGER_STOPPED;
}

static enum mr_err show_firing(struct work *work, const struct mr_store_firing *row)
{
    struct mr_timer_look *look = work->look;
    struct mr_firing_info info = {
        .app = look->apps[0],
        .timer = look->name,
        .planned_ms = row->planned_ms,
        .until_ms = row->until_ms,
        .run = row->run,
        .state = (enum mr_firing_state)row->state,
        .cause = (enum mr_firing_cause)row->kind,
        .attempt = row->attempt,
        .fired_ms = row->fired_ms,
        .started_ms = row->started_ms,
        .finished_ms = row->finished_ms,
    };
    char id[MR_FIRING_ID_MAX + 1];
    size_t len = mr_firing_id(&row->uid, row->planned_ms, row->run, id);
    MR_TRY(copy_id(&look->arena, &row->uid, &info.timer_id));
    MR_TRY(mr_arena_copy(&look->arena, row->reason, &info.reason));
    if (has_task(row->state))
        MR_TRY(mr_arena_copy(&look->arena, mr_slice_make(id, len), &info.task_id));
    look->firings[look->firings_n++] = info;
    return MR_OK;
}

static enum mr_err show_firings(struct work *work)
{
    struct mr_timer_look *look = work->look;
    const struct mr_store_firing_list *req = &work->req.firings;
    look->firings = mr_arena_calloc(&look->arena, req->n + 1, sizeof *look->firings);
    if (look->firings == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++)
        MR_TRY(show_firing(work, &req->firings[i]));
    if (req->more && req->n > 0)
        (void)snprintf(look->next, sizeof look->next, "%" PRId64,
                       req->firings[req->n - 1].planned_ms);
    return MR_OK;
}

static void on_firings(struct mr_store_req *req)
{
    struct work *work = req->arg;
    enum mr_err err = req->err;
    if (err == MR_OK)
        err = show_firings(work);
    mr_store_req_done(req);
    if (err == MR_OK)
        ask_tasks(work);
    else
        end(work, err);
}

static bool parse_place(struct mr_slice cursor, int64_t *ret_ms)
{
    char text[24], *stop;
    if (cursor.len == 0 || cursor.len >= sizeof text)
        return cursor.len == 0;
    memcpy(text, cursor.data, cursor.len);
    text[cursor.len] = '\0';
    *ret_ms = strtoll(text, &stop, 10);
    return *stop == '\0' && *ret_ms > 0;
}

static void ask_firings(struct work *work, const struct mr_uuid *uid)
{
    const struct mr_timer_look *look = work->look;
    struct mr_store_firing_list req = {
        .req = {.op = MR_STORE_FIRING_LIST, .done = on_firings, .arg = work},
        .uid = *uid,
        .max = look->limit,
    };
    if (!parse_place(look->cursor, &req.before_ms)) {
        mr_detail_set(&work->look->detail, "cursor: not one of a history");
        end(work, MR_INVALID);
        return;
    }
    work->req.firings = req;
    mr_store_submit(work->service->store, &work->req.head);
}

/* ---- one timer ------------------------------------------------------------------------------- */

/* Whether there is something to be seen. */
static bool is_there(const struct mr_timer_look *look, enum mr_row_state state)
{
    return (MR_ROW_BIT(state) & MR_ROW_LIVE) != 0 ||
           (look->kind == MR_LOOK_HISTORY && state == MR_ROW_DELETED);
}

/* Firings name their timer, and may live longer than the question. */
static enum mr_err keep_names(struct mr_timer_look *look)
{
    MR_TRY(mr_arena_copy(&look->arena, look->app, &look->apps[0]));
    return mr_arena_copy(&look->arena, look->name, &look->name);
}

static void on_timer(struct mr_store_req *req)
{
    struct work *work = req->arg;
    struct mr_timer_look *look = work->look;
    const struct mr_store_timer *row = work->req.get.timers;
    enum mr_err err = req->err;
    struct mr_uuid uid = {0};
    if (err == MR_OK && !is_there(look, row->state))
        err = MR_NOT_FOUND;
    if (err == MR_OK) {
        uid = row->uid;
        err = make_room(look, 1);
    }
    if (err == MR_OK && look->kind == MR_LOOK_NEXT)
        err = next_of_row(work, row);
    else if (err == MR_OK && look->kind == MR_LOOK_GET)
        err = show_row(look, row);
    else if (err == MR_OK)
        err = keep_names(look);
    mr_store_req_done(req);
    if (err == MR_OK && look->kind == MR_LOOK_HISTORY)
        ask_firings(work, &uid);
    else
        end(work, err);
}

static void ask_timer(struct work *work)
{
    const struct mr_timer_look *look = work->look;
    if (mr_name_check(look->app) != MR_OK || mr_name_check(look->name) != MR_OK) {
        end(work, MR_NOT_FOUND); /* no timer can have such a name */
        return;
    }
    work->key = (struct mr_store_timer_key){.app = look->app, .name = look->name};
    work->req.get = (struct mr_store_timer_get){
        .req = {.op = MR_STORE_TIMER_GET, .done = on_timer, .arg = work},
        .keys = &work->key,
        .n = 1,
    };
    mr_store_submit(work->service->store, &work->req.head);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void ask_list(struct work *work);

/* "LENGTH:APPNAME": where the page ended. */
static void put_place(struct mr_timer_look *look, const struct mr_store_timer *row)
{
    (void)snprintf(look->next, sizeof look->next, "%zu:%.*s%.*s", row->app.len, (int)row->app.len,
                   (const char *)row->app.data, (int)row->name.len, (const char *)row->name.data);
}

static bool read_place(struct work *work)
{
    struct mr_slice cursor = work->look->cursor;
    if (cursor.len == 0)
        return true;
    const char *text = cursor.data, *colon = memchr(text, ':', cursor.len);
    size_t len = 0;
    if (colon == NULL || colon == text || colon - text > 3)
        return false;
    for (const char *at = text; at < colon; at++) {
        if (*at < '0' || *at > '9')
            return false;
        len = len * 10 + (size_t)(*at - '0');
    }
    size_t rest = cursor.len - (size_t)(colon + 1 - text);
    if (len == 0 || len >= rest)
        return false;
    work->after_app = mr_slice_make(colon + 1, len);
    work->after_name = mr_slice_make(colon + 1 + len, rest - len);
    return mr_name_check(work->after_app) == MR_OK && mr_name_check(work->after_name) == MR_OK;
}

/* Takes what came; *ret_full when the page ends with it. */
static enum mr_err show_rows(struct work *work, bool *ret_full)
{
    struct mr_timer_look *look = work->look;
    const struct mr_store_timer_list *req = &work->req.list;
    *ret_full = !req->more;
    for (size_t i = 0; i < req->n; i++) {
        const struct mr_store_timer *row = &req->timers[i];
        MR_TRY(show_row(look, row));
        work->bytes += row->definition.len;
        bool last = i + 1 == req->n && !req->more;
        if (!last && (look->timers_n == look->limit || work->bytes >= BYTES_MAX)) {
            put_place(look, row);
            *ret_full = true;
            return MR_OK;
        }
    }
    if (*ret_full)
        return MR_OK;
    MR_TRY(mr_arena_copy(&look->arena, req->place_app, &work->after_app));
    return mr_arena_copy(&look->arena, req->place_name, &work->after_name);
}

static void on_list(struct mr_store_req *req)
{
    struct work *work = req->arg;
    bool full = true;
    enum mr_err err = req->err;
    if (err == MR_OK)
        err = show_rows(work, &full);
    mr_store_req_done(req);
    if (err == MR_OK && !full)
        ask_list(work);
    else
        end(work, err);
}

static void ask_list(struct work *work)
{
    const struct mr_timer_look *look = work->look;
    size_t wanted = look->limit - look->timers_n;
    work->req.list = (struct mr_store_timer_list){
        .req = {.op = MR_STORE_TIMER_LIST, .done = on_list, .arg = work},
        .app = look->app,
        .states = look->state == MR_TIMER_STATE_NONE ? MR_ROW_LIVE : MR_ROW_BIT(look->state),
        .after_app = work->after_app,
        .after_name = work->after_name,
        .max = wanted < CHUNK ? wanted : CHUNK,
    };
    mr_store_submit(work->service->store, &work->req.head);
}

static void begin_list(struct work *work)
{
    struct mr_timer_look *look = work->look;
    enum mr_err err = make_room(look, look->limit);
    if (err == MR_OK && !read_place(work)) {
        mr_detail_set(&look->detail, "cursor: not one of a list of timers");
        err = MR_INVALID;
    }
    if (err == MR_OK && look->app.len > 0 && mr_name_check(look->app) != MR_OK) {
        end(work, MR_OK); /* no timer can have such an app */
        return;
    }
    if (err == MR_OK)
        ask_list(work);
    else
        end(work, err);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static enum mr_err check(struct mr_timer_look *look)
{
    bool next = look->kind == MR_LOOK_NEXT;
    if (look->limit > MR_BATCH_MAX) {
        mr_detail_set(&look->detail, "limit: %u, the most is %d", look->limit, MR_BATCH_MAX);
        return MR_INVALID;
    }
    if (look->limit == 0)
        look->limit = next ? MR_LOOK_NEXT_LIMIT : MR_LOOK_LIMIT;
    if (look->app.len == 0 && look->kind != MR_LOOK_LIST)
        look->app = MR_SLICE_LIT(MR_TIMER_APP);
    return MR_OK;
}

void mr_timer_service_look(struct mr_timer_service *service, struct mr_timer_look *look)
{
    if (look->kind == MR_LOOK_STATUS) {
        mr_timer_service_status(service, look);
        return;
    }
    struct work *work = calloc(1, sizeof *work);
    look->err = work != NULL ? check(look) : MR_NOMEM;
    if (look->err != MR_OK) {
        free(work);
        look->done(look);
        return;
    }
    work->service = service;
    work->look = look;
    look->work = work;
    if (look->kind == MR_LOOK_LIST)
        begin_list(work);
    else if (look->kind == MR_LOOK_NEXT && look->name.len == 0)
        end(work, next_of_definition(work));
    else
        ask_timer(work);
}

static void wake(struct mr_timer_look *look)
{
    mr_event_set(look->arg);
}

enum mr_err mr_timer_service_look_wait(struct mr_timer_service *service, struct mr_timer_look *look)
{
    struct mr_event answered;
    mr_event_init(&answered);
    look->done = wake;
    look->arg = &answered;
    mr_timer_service_look(service, look);
    mr_event_wait(&answered, INT64_MAX);
    return look->err;
}
