/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acting on timers: what is said is one operation for the door of the service (timer/door.h), and the answer comes when it is
 * applied. An operation has the whole definition, so who changes a timer that is there looks at it first, and puts it as it
 * was then or not at all; when somebody else was faster it begins again.
 */
#include <stdlib.h>

#include "api/http_internal.h"
#include "api/task_json.h"
#include "timer/def.h"
#include "timer/door.h"
#include "timer/look.h"
#include "wire/timer_json.h"

enum { TRIES = 8 };

enum change { CHANGE_CREATE, CHANGE_PUT, CHANGE_PAUSE, CHANGE_RESUME, CHANGE_RUN, CHANGE_DELETE };

static const struct {
    enum mr_timer_verb verb;
    bool looks; /* at what is there, before it */
    bool may_be_new;
    bool shows; /* the timer, behind it */
} changes[] = {
    [CHANGE_CREATE] = {MR_TIMER_PUT, false, true, true},
    [CHANGE_PUT] = {MR_TIMER_PUT, true, true, true},
    [CHANGE_PAUSE] = {MR_TIMER_PUT, true, false, true},
    [CHANGE_RESUME] = {MR_TIMER_PUT, true, false, true},
    [CHANGE_RUN] = {MR_TIMER_RUN, false, false, true},
    [CHANGE_DELETE] = {MR_TIMER_DELETE, false, false, false},
};

struct changing {
    enum change change;
    struct mr_timer_service *service;
    struct mr_slice app, name;
    /* What the body says. */
    struct mr_timer_options given;
    struct mr_slice state; /* "paused", "active" */
    uint64_t if_version;   /* 0: nothing is said */
    struct mr_arena arena;
    /* Under way. */
    struct mr_timer_look look;
    struct mr_timer_operation op;
    struct mr_timer_sending sending;
    struct mr_timer_result result;
    struct mr_buf definition;
    unsigned tries;
};

static void freed(struct http_call *call)
{
    struct changing *changing = call->data;
    mr_timer_look_done(&changing->look);
    mr_buf_done(&changing->definition);
    mr_arena_done(&changing->arena);
    free(changing);
}

static void fail_oom(struct http_call *call)
{
    http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
}

/* ---- the body ------------------------------------------------------------------------------- */

/* Words of the body. */
struct said {
    struct mr_slice kind, misfire, overlap, strategy;
};

static enum mr_err take_words(struct changing *changing, const struct said *said,
                              struct mr_detail *detail)
{
    struct mr_timer_options *timer = &changing->given;
    int kind = -1, misfire = (int)timer->misfire, overlap = (int)timer->overlap;
    const char *wrong = NULL;
    MR_TRY(words_read(&words_timer_kinds, "kind", said->kind, &kind, detail));
    MR_TRY(words_read(&words_misfires, "misfire", said->misfire, &misfire, detail));
    MR_TRY(words_read(&words_overlaps, "overlap", said->overlap, &overlap, detail));
    if (kind < 0)
        wrong = "kind: missing; cron, every, after-done, at, delay, daily or manual";
    else if (said->strategy.len > 0 && !mr_timer_strategy_read(said->strategy, timer))
        wrong = "strategy: must be any, round-robin, healthiest, key:KEY, tag:TAG or broadcast";
    else if (changing->state.len > 0 && !mr_slice_equal(changing->state, MR_SLICE_LIT("paused")) &&
             !mr_slice_equal(changing->state, MR_SLICE_LIT("active")) &&
             !mr_slice_equal(changing->state, MR_SLICE_LIT("finished")))
        wrong = "state: must be active or paused";
    if (wrong != NULL) {
        mr_detail_set(detail, "%s", wrong);
        return MR_INVALID;
    }
    timer->kind = (enum mr_timer_kind)kind;
    timer->misfire = (enum mr_misfire)misfire;
    timer->overlap = (enum mr_overlap)overlap;
    return MR_OK;
}

/* What a firing's task is, in the words of a task: read by the one that reads those. */
static enum mr_err take_task(struct changing *changing, json_t *json, struct mr_detail *detail)
{
    static const char *const names[] = {"queue",   "type",     "payload",   "payload_base64",
                                        "headers", "priority", "max_retry", "timeout_ms"};
    struct mr_timer_options *timer = &changing->given;
    struct mr_task_options task = {0};
    json_t *part = json_object();
    enum mr_err err = part != NULL ? MR_OK : MR_NOMEM;
    for (size_t i = 0; err == MR_OK && i < sizeof names / sizeof *names; i++) {
        json_t *value = json_object_get(json, names[i]);
        if (value != NULL && json_object_set(part, names[i], value) != 0)
            err = MR_NOMEM;
    }
    if (err == MR_OK)
        err = mr_task_from_json(part, &changing->arena, &task, detail);
    json_decref(part); /* the values are in json, too */
    timer->queue = task.queue;
    timer->type = task.type;
    timer->payload = task.payload;
    timer->headers = task.headers;
    timer->headers_n = task.headers_n;
    timer->priority_s = task.priority_s;
    timer->max_retry = task.max_retry;
    timer->timeout_ms = task.timeout_ms;
    return err;
}

/* What the server says of a timer, and nobody else, is passed over: what came by GET may go back by PUT. */
static enum mr_err take_body(struct http_call *call, struct mr_detail *detail)
{
    struct changing *changing = call->data;
    struct mr_timer_options *timer = &changing->given;
    struct said said = {0};
    struct mr_slice name = {0}, app = {0};
    const json_t *passed = NULL;
    int64_t times = 0, max_running = 0, if_version = 0;
    const struct http_field fields[] = {
        {"name", HTTP_TEXT, &name},
        {"app", HTTP_TEXT, &app},
        {"kind", HTTP_TEXT, &said.kind},
        {"expression", HTTP_TEXT, &timer->expression},
        {"tz", HTTP_TEXT, &timer->tz},
        {"exclude", HTTP_TEXT, &timer->exclude},
        {"misfire", HTTP_TEXT, &said.misfire},
        {"overlap", HTTP_TEXT, &said.overlap},
        {"strategy", HTTP_TEXT, &said.strategy},
        {"state", HTTP_TEXT, &changing->state},
        {"start_ms", HTTP_NUMBER, &timer->start_ms},
        {"end_ms", HTTP_NUMBER, &timer->end_ms},
        {"jitter_ms", HTTP_NUMBER, &timer->jitter_ms},
        {"expire_ms", HTTP_NUMBER, &timer->expire_ms},
        {"times", HTTP_NUMBER, &times},
        {"max_running", HTTP_NUMBER, &max_running},
        {"if_version", HTTP_NUMBER, &if_version},
        {"queue", HTTP_ANY, &passed},
        {"type", HTTP_ANY, &passed},
        {"payload", HTTP_ANY, &passed},
        {"payload_base64", HTTP_ANY, &passed},
        {"headers", HTTP_ANY, &passed},
        {"priority", HTTP_ANY, &passed},
        {"max_retry", HTTP_ANY, &passed},
        {"timeout_ms", HTTP_ANY, &passed},
        {"id", HTTP_ANY, &passed},
        {"version", HTTP_ANY, &passed},
        {"next_ms", HTTP_ANY, &passed},
        {"last_ms", HTTP_ANY, &passed},
        {"firings_total", HTTP_ANY, &passed},
        {"created_ms", HTTP_ANY, &passed},
    };
    MR_TRY(http_read_object(call->json, fields, sizeof fields / sizeof *fields, detail));
    if (max_running > UINT32_MAX) {
        mr_detail_set(detail, "max_running: must be at most %u", UINT32_MAX);
        return MR_INVALID;
    }
    MR_TRY(take_task(changing, call->json, detail));
    MR_TRY(take_words(changing, &said, detail));
    timer->times = (uint64_t)times;
    timer->max_running = (uint32_t)max_running;
    changing->if_version = (uint64_t)if_version;
    if (changing->change == CHANGE_CREATE)
        changing->name = name;
    if (app.len > 0)
        changing->app = app;
    mr_detail_set(detail, "name: is %.*s in the path", (int)changing->name.len,
                  (const char *)changing->name.data);
    return name.len == 0 || mr_slice_equal(name, changing->name) ? MR_OK : MR_INVALID;
}

static bool read_body(struct http_call *call)
{
    static const struct http_bounds bounds = {
        .depth = 2, .containers = 2, .commas = MR_HEADERS_MAX + 64};
    struct mr_detail detail = {.text = ""};
    if (!http_read_json(call, &bounds))
        return false;
    enum mr_err err = take_body(call, &detail);
    if (err == MR_NOMEM)
        fail_oom(call);
    else if (err != MR_OK)
        http_call_fail(call, err, "%s", detail.text);
    return err == MR_OK;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void fail(struct http_call *call, enum mr_err err, const char *why)
{
    const struct changing *changing = call->data;
    bool exists = err == MR_CONFLICT && changing->change == CHANGE_CREATE;
    http_call_fail(call, err, "timer %.*s: %s", (int)changing->name.len,
                   (const char *)changing->name.data,
                   exists           ? "it is there already"
                   : why[0] != '\0' ? why
                                    : mr_err_text(err));
}

static void reply_timer(struct http_call *call)
{
    struct changing *changing = call->data;
    struct mr_timer_look *look = &changing->look;
    struct mr_timer_info info;
    struct jw jw = {0};
    jw.err = mr_timer_shown_open(&look->timers[0], &look->arena, &info);
    if (jw.err == MR_OK)
        jw_timer(&jw, &info);
    http_call_reply(call, &jw);
}

static void reply_name(struct http_call *call)
{
    const struct changing *changing = call->data;
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "name", changing->name);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

/* ---- looking -------------------------------------------------------------------------------- */

/* Thread: the store's, or another one. */
static void look_done(struct mr_timer_look *look)
{
    http_call_return(look->arg);
}

static void look(struct http_call *call, void (*back)(struct http_call *call))
{
    struct changing *changing = call->data;
    mr_timer_look_done(&changing->look);
    changing->look = (struct mr_timer_look){.kind = MR_LOOK_GET,
                                            .app = changing->app,
                                            .name = changing->name,
                                            .done = look_done,
                                            .arg = call};
    http_call_leave(call, back);
    mr_timer_service_look(changing->service, &changing->look);
}

/* Nobody may delete it before it is shown: then that is what is said. */
static void shown(struct http_call *call)
{
    const struct changing *changing = call->data;
    if (changing->look.err == MR_OK)
        reply_timer(call);
    else
        fail(call, changing->look.err, changing->look.detail.text);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void seen(struct http_call *call);
static void send_op(struct http_call *call);

static void sent(struct http_call *call)
{
    struct changing *changing = call->data;
    const struct mr_timer_result *result = &changing->result;
    enum mr_err err = changing->sending.err != MR_OK ? changing->sending.err : result->err;
    bool again = err == MR_CONFLICT || err == MR_STALE;
    bool looks = changes[changing->change].looks && changing->if_version == 0;
    if (again && looks && ++changing->tries < TRIES) {
        look(call, seen);
    } else if (err == MR_STALE && changing->change == CHANGE_DELETE && changing->tries++ == 0) {
        /* What is there may be of a producer whose clock is ahead of ours: this comes after it. */
        changing->op.if_version = result->version;
        send_op(call);
    } else if (err != MR_OK) {
        fail(call, err, result->why);
    } else if (changes[changing->change].shows) {
        look(call, shown);
    } else {
        reply_name(call);
    }
}

/* Thread: the broker's, the replica's, or ours. */
static void send_done(struct mr_timer_sending *sending)
{
    http_call_return(sending->arg);
}

static void send_op(struct http_call *call)
{
    struct changing *changing = call->data;
    struct mr_detail detail;
    enum mr_err err = timers_may(&call->token, &changing->op, &changing->arena, &detail);
    if (err != MR_OK) {
        http_call_fail(call, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
        return;
    }
    changing->result = (struct mr_timer_result){.err = MR_OK};
    changing->sending = (struct mr_timer_sending){.ops = &changing->op,
                                                  .n = 1,
                                                  .wait = MR_TIMER_APPLIED,
                                                  .results = &changing->result,
                                                  .done = send_done,
                                                  .arg = call};
    http_call_leave(call, sent);
    mr_timer_door_send(mr_timer_service_door(changing->service), &changing->sending);
}

/* info: of the timer that is there; NULL: none is. */
static void put(struct http_call *call, const struct mr_timer_info *info)
{
    struct changing *changing = call->data;
    bool gives = changing->change == CHANGE_CREATE || changing->change == CHANGE_PUT;
    struct mr_timer_options timer = gives ? changing->given : info->timer;
    timer.app = changing->app;
    timer.name = changing->name;
    if (!gives)
        timer.paused = changing->change == CHANGE_PAUSE;
    else if (changing->state.len > 0)
        timer.paused = mr_slice_equal(changing->state, MR_SLICE_LIT("paused"));
    else
        timer.paused = info != NULL && info->timer.paused;
    changing->op = (struct mr_timer_operation){.verb = MR_TIMER_PUT,
                                               .app = changing->app,
                                               .name = changing->name,
                                               .if_version = MR_TIMER_NEW};
    if (info != NULL) {
        changing->op.id = info->id;
        changing->op.created_ms = info->created_ms;
        changing->op.if_version = info->version;
    }
    if (changing->if_version != 0)
        changing->op.if_version = changing->if_version;
    changing->definition.len = 0;
    if (mr_timer_encode(&timer, &changing->definition) != MR_OK) {
        fail_oom(call);
        return;
    }
    changing->op.definition = mr_buf_slice(&changing->definition);
    send_op(call);
}

static void seen(struct http_call *call)
{
    struct changing *changing = call->data;
    struct mr_timer_look *look = &changing->look;
    struct mr_timer_info info;
    bool is_new = look->err == MR_NOT_FOUND && changes[changing->change].may_be_new;
    enum mr_err err = look->err;
    if (err == MR_OK)
        err = mr_timer_shown_open(&look->timers[0], &look->arena, &info);
    if (err == MR_OK)
        put(call, &info);
    else if (is_new)
        put(call, NULL);
    else
        fail(call, err, look->detail.text);
}

/* ---- routes --------------------------------------------------------------------------------- */

static bool read_names(struct http_call *call)
{
    struct changing *changing = call->data;
    call->about = changing->name;
    if (!http_read_name(call, "name", changing->name) ||
        !http_read_name(call, "app", changing->app))
        return false;
    return http_may_touch(call, changing->app);
}

static void begin(struct http_call *call)
{
    struct changing *changing = call->data;
    if (changes[changing->change].looks) {
        look(call, seen);
    } else if (changes[changing->change].verb == MR_TIMER_PUT) {
        put(call, NULL);
    } else {
        changing->op = (struct mr_timer_operation){
            .verb = changes[changing->change].verb, .app = changing->app, .name = changing->name};
        send_op(call);
    }
}

static void act(struct mr_http_request *request, struct mr_http_api *api, enum change change)
{
    struct http_call *call = http_call_new(api, request);
    if (call == NULL)
        return;
    struct changing *changing = calloc(1, sizeof *changing);
    if (changing == NULL) {
        fail_oom(call);
        return;
    }
    call->data = changing;
    call->freed = freed;
    changing->change = change;
    changing->service = atomic_load(&api->timers);
    changing->name = mr_http_parameter(request);
    changing->app = http_query(call, "app");
    if (changing->service == NULL) {
        http_call_fail(call, MR_UNAVAILABLE, "the server is starting or stopping");
        return;
    }
    bool has_body = change == CHANGE_CREATE || change == CHANGE_PUT;
    if (has_body && !read_body(call))
        return;
    if (changing->app.len == 0)
        changing->app = MR_SLICE_LIT(MR_TIMER_APP);
    if (read_names(call))
        begin(call);
}

void http_timer_create(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_CREATE);
}

void http_timer_put(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_PUT);
}

void http_timer_pause(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_PAUSE);
}

void http_timer_resume(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_RESUME);
}

void http_timer_run(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_RUN);
}

void http_timer_delete(struct mr_http_request *request, void *arg)
{
    act(request, arg, CHANGE_DELETE);
}
