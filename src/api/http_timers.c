/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at timers. A token for some queues is for the apps of the same names. */
#include <stdlib.h>

#include "api/http_internal.h"
#include "base/text.h"
#include "timer/look.h"
#include "wire/timer_json.h"

static void freed(struct http_call *call)
{
    struct mr_timer_look *look = call->data;
    mr_timer_look_done(look);
    free(look);
}

static void write_timer(struct jw *jw, struct mr_timer_look *look, size_t i)
{
    struct mr_timer_info info;
    if (jw->err == MR_OK)
        jw->err = mr_timer_shown_open(&look->timers[i], &look->arena, &info);
    if (jw->err == MR_OK)
        jw_timer(jw, &info);
}

static void write_page(const struct http_call *call, struct mr_timer_look *look, struct jw *jw)
{
    http_page_begin(jw);
    for (size_t i = 0; i < look->timers_n; i++)
        if (look->kind == MR_LOOK_LIST && mr_access_queue(&call->token, look->apps[i]))
            write_timer(jw, look, i);
    for (size_t i = 0; look->kind == MR_LOOK_HISTORY && i < look->firings_n; i++)
        jw_firing(jw, &look->firings[i]);
    for (size_t i = 0; look->kind == MR_LOOK_NEXT && i < look->times_n; i++)
        jw_int(jw, NULL, look->times_ms[i]);
    http_page_end(jw, look->next);
}

static void back(struct http_call *call)
{
    struct mr_timer_look *look = call->data;
    struct jw jw = {0};
    if (look->err != MR_OK && look->detail.text[0] != '\0') {
        http_call_fail(call, look->err, "%s", look->detail.text);
        return;
    }
    if (look->err != MR_OK) {
        http_call_fail(call, look->err, "timer %.*s: %s", (int)call->about.len,
                       call->about.len > 0 ? (const char *)call->about.data : "",
                       mr_err_text(look->err));
        return;
    }
    if (look->kind == MR_LOOK_GET)
        write_timer(&jw, look, 0);
    else
        write_page(call, look, &jw);
    http_call_reply(call, &jw);
}

/* Thread: the store's, or another one. */
static void on_done(struct mr_timer_look *look)
{
    http_call_return(look->arg);
}

static bool read_look(struct http_call *call, struct mr_timer_look *look)
{
    size_t limit = 0;
    bool lists = look->kind == MR_LOOK_LIST;
    look->app = http_query(call, "app");
    look->cursor = http_query(call, "cursor");
    look->name = lists ? (struct mr_slice){0} : mr_http_parameter(call->request);
    if (look->app.len > 0 && !http_read_name(call, "app", look->app))
        return false;
    if (!lists && !http_read_name(call, "name", look->name))
        return false;
    if ((!lists || look->app.len > 0) && !http_may_touch(call, look->app))
        return false;
    int state = MR_TIMER_STATE_NONE;
    if (lists && !http_read_word(call, &words_timer_states, "state", &state))
        return false;
    look->state = (enum mr_timer_state)state;
    if (!http_read_limit(call, MR_BATCH_MAX, &limit))
        return false;
    look->limit = (uint32_t)limit;
    return true;
}

static void look_at(struct mr_http_request *request, struct mr_http_api *api,
                    enum mr_look_kind kind)
{
    struct http_call *call = http_call_new(api, request);
    if (call == NULL)
        return;
    struct mr_timer_service *service = atomic_load(&api->timers);
    struct mr_timer_look *look = calloc(1, sizeof *look);
    call->data = look;
    call->freed = look != NULL ? freed : NULL;
    if (service == NULL || look == NULL) {
        enum mr_err err = service == NULL ? MR_UNAVAILABLE : MR_NOMEM;
        http_call_fail(call, err, "%s", mr_err_text(err));
        return;
    }
    look->kind = kind;
    if (!read_look(call, look))
        return;
    look->done = on_done;
    look->arg = call;
    http_call_leave(call, back);
    mr_timer_service_look(service, look);
}

void http_timers(struct mr_http_request *request, void *arg)
{
    look_at(request, arg, MR_LOOK_LIST);
}

void http_timer(struct mr_http_request *request, void *arg)
{
    look_at(request, arg, MR_LOOK_GET);
}

void http_timer_next(struct mr_http_request *request, void *arg)
{
    look_at(request, arg, MR_LOOK_NEXT);
}

void http_timer_history(struct mr_http_request *request, void *arg)
{
    look_at(request, arg, MR_LOOK_HISTORY);
}
