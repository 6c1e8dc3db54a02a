/* SPDX-License-Identifier: Apache-2.0 */
/* GET /servers: as Nodes.Servers of gRPC. The store is asked on a thread beside, since it may be away: HTTP does not wait for it. */
#include <stdlib.h>

#include "api/http_internal.h"
#include "api/servers.h"

struct looking {
    struct mr_chore chore;
    struct http_call *call;
    struct mr_store *store;
    struct mr_plan_look look;
    struct mr_arena arena; /* of the answer */
    enum mr_err err;
};

static void freed(struct http_call *call)
{
    struct looking *looking = call->data;
    mr_plan_look_done(&looking->look);
    mr_arena_done(&looking->arena);
    free(looking);
}

/* Thread: beside HTTP. */
static void run_look(struct mr_chore *chore)
{
    struct looking *looking = mr_container(chore, struct looking, chore);
    looking->err = mr_plan_look(looking->store, &looking->look);
}

static void looked(struct mr_chore *chore)
{
    http_call_return(mr_container(chore, struct looking, chore)->call);
}

static void back(struct http_call *call)
{
    struct looking *looking = call->data;
    Millrace__V1__ServersResponse answer;
    struct jw jw = {0};
    enum mr_err err = looking->err;
    if (err == MR_OK)
        err = servers_answer(&(struct servers_asked){.arena = &looking->arena,
                                                     .token = &call->token,
                                                     .look = &looking->look,
                                                     .view = call->api->options.view,
                                                     .view_arg = atomic_load(&call->api->view_arg)},
                             &answer);
    if (err != MR_OK) {
        http_call_fail(call, err, "the store of timers and jobs: %s", mr_err_text(err));
        return;
    }
    jw_object_begin(&jw, NULL);
    servers_list_json(&jw, &answer);
    servers_apps_json(&jw, &answer);
    servers_plan_json(&jw, &answer);
    jw_object_end(&jw);
    http_call_reply(call, &jw);
}

static enum mr_err ensure_thread(struct mr_http_api *api)
{
    if (api->looks != NULL)
        return MR_OK;
    return mr_exec_thread_new("mr-http-looks", false, mr_http_inbox(api->http), &api->looks);
}

void http_servers(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct http_call *call = http_call_new(api, request);
    if (call == NULL)
        return;
    struct mr_store *store = atomic_load(&api->store);
    struct looking *looking = store != NULL ? calloc(1, sizeof *looking) : NULL;
    if (store == NULL) {
        http_call_fail(call, MR_UNSUPPORTED, "there are no timers here, so no apps are shared");
        return;
    }
    call->data = looking;
    call->freed = looking != NULL ? freed : NULL;
    if (looking == NULL || ensure_thread(api) != MR_OK) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    mr_chore_init(&looking->chore, run_look, looked);
    looking->call = call;
    looking->store = store;
    http_call_leave(call, back);
    struct mr_exec *exec = mr_exec_thread_exec(api->looks);
    exec->submit(exec, &looking->chore);
}
