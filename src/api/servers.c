/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes.Servers: who shares the store, how apps are cut, and what moved. The store is asked on a thread beside the loop, since it
 * may be away; tokens are not kept waiting by that. One such question at a time is under way: the others wait in the line of that thread.
 */
#include <stdlib.h>

#include "api/servers.h"

enum { PARTS_MAX = 20 * 1000, WAITING_MAX = 100 };

/* On its way to the store and back. */
struct looking {
    struct mr_chore chore;
    struct unary *u;
    struct mr_store *store;
    struct mr_plan_look look;
    enum mr_err err;
};

/* ---- what is answered ------------------------------------------------------------------------- */

/* Everything is in the arena of the call. */
struct answer {
    struct mr_arena *arena;
    const struct mr_token *token;
    const struct mr_plan_look *look;
    struct mr_view view;
    bool has_view;
    Millrace__V1__ServersResponse out;
};

static bool sees(const struct answer *a, struct mr_slice app)
{
    return mr_access_queue(a->token, app);
}

static const struct mr_view_server *find_server(const struct answer *a, struct mr_slice server)
{
    for (size_t i = 0; a->has_view && i < a->view.servers_n; i++)
        if (mr_slice_equal(a->view.servers[i].server, server))
            return &a->view.servers[i];
    return NULL;
}

static int64_t load_of(const struct mr_view_server *server)
{
    int64_t load = server->other;
    for (size_t i = 0; i < server->loads_n; i++)
        load += server->loads[i].load;
    return load;
}

/* Rows of one kind, and pointers to them as protobuf-c has lists. */
static enum mr_err make_rows(struct mr_arena *arena, size_t n, size_t size, void *ret_rows,
                             void *ret_list)
{
    uint8_t *rows = mr_arena_calloc(arena, n + 1, size);
    void **list = mr_arena_calloc(arena, n + 1, sizeof *list);
    if (rows == NULL || list == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++)
        list[i] = rows + i * size;
    *(void **)ret_rows = rows;
    *(void ***)ret_list = list;
    return MR_OK;
}

static enum mr_err text(const struct answer *a, struct mr_slice from, char **ret_text)
{
    *ret_text = mr_pb_of_text(a->arena, from);
    return *ret_text != NULL ? MR_OK : MR_NOMEM;
}

/* A line each. */
static enum mr_err add_server_apps(struct answer *a, struct mr_slice lines,
                                   Millrace__V1__ServerInfo *row)
{
    size_t n = 0;
    const char *at = lines.data;
    for (size_t i = 0; i < lines.len; i++)
        n += at[i] == '\n';
    row->apps = mr_arena_calloc(a->arena, n + 1, sizeof *row->apps);
    if (row->apps == NULL)
        return MR_NOMEM;
    while (lines.len > 0) {
        const char *end = memchr(lines.data, '\n', lines.len);
        size_t len = end != NULL ? (size_t)(end - (const char *)lines.data) : lines.len;
        struct mr_slice app = mr_slice_make(lines.data, len);
        size_t skip = len + (end != NULL);
        if (len > 0 && sees(a, app))
            MR_TRY(text(a, app, &row->apps[row->n_apps++]));
        lines = mr_slice_make((const char *)lines.data + skip, lines.len - skip);
    }
    return MR_OK;
}

static enum mr_err add_servers(struct answer *a)
{
    Millrace__V1__ServerInfo *rows;
    MR_TRY(make_rows(a->arena, a->look->servers_n, sizeof *rows, &rows, &a->out.servers));
    a->out.n_servers = a->look->servers_n;
    for (size_t i = 0; i < a->look->servers_n; i++) {
        const struct mr_plan_server *from = &a->look->servers[i];
        const struct mr_view_server *seen = find_server(a, from->server);
        millrace__v1__server_info__init(&rows[i]);
        MR_TRY(text(a, from->server, &rows[i].server));
        MR_TRY(add_server_apps(a, from->apps, &rows[i]));
        rows[i].is_registered = seen != NULL;
        rows[i].weight = seen != NULL ? seen->weight : 0;
        rows[i].load = seen != NULL ? load_of(seen) : 0;
    }
    return MR_OK;
}

static enum mr_err add_parts(struct answer *a)
{
    Millrace__V1__SubAppInfo *rows;
    size_t max = a->look->parts_n < PARTS_MAX ? a->look->parts_n : PARTS_MAX;
    MR_TRY(make_rows(a->arena, max, sizeof *rows, &rows, &a->out.parts));
    for (size_t i = 0; i < a->look->parts_n && a->out.n_parts < max; i++) {
        const struct mr_plan_part *from = &a->look->parts[i];
        if (!sees(a, from->app))
            continue;
        Millrace__V1__SubAppInfo *row = &rows[a->out.n_parts++];
        millrace__v1__sub_app_info__init(row);
        MR_TRY(text(a, from->app, &row->app));
        MR_TRY(text(a, from->owner, &row->owner));
        row->part = from->part;
        row->slots = from->slots;
        row->epoch = from->epoch;
        row->is_cut = from->is_cut;
    }
    return MR_OK;
}

static int compare_part(const void *key, const void *at)
{
    const struct mr_view_load *load = key;
    const Millrace__V1__SubAppInfo *row = *(Millrace__V1__SubAppInfo *const *)at;
    int order = mr_slice_compare(load->app, mr_slice_str(row->app));
    return order != 0 ? order : (load->part > row->part) - (load->part < row->part);
}

/* What all servers together have dispatched of each; the parts are in order. */
static void add_loads(struct answer *a)
{
    for (size_t i = 0; a->has_view && i < a->view.servers_n; i++) {
        const struct mr_view_server *server = &a->view.servers[i];
        for (size_t k = 0; a->out.n_parts > 0 && k < server->loads_n; k++) {
            Millrace__V1__SubAppInfo **row =
                bsearch(&server->loads[k], a->out.parts, a->out.n_parts, sizeof *a->out.parts,
                        compare_part);
            if (row != NULL)
                (*row)->load += server->loads[k].load;
        }
    }
}

static enum mr_err add_apps(struct answer *a)
{
    Millrace__V1__AppWorkers *rows;
    size_t n = a->has_view ? a->view.apps_n : 0;
    MR_TRY(make_rows(a->arena, n, sizeof *rows, &rows, &a->out.apps));
    for (size_t i = 0; i < n; i++) {
        if (!sees(a, a->view.apps[i].app))
            continue;
        Millrace__V1__AppWorkers *row = &rows[a->out.n_apps++];
        millrace__v1__app_workers__init(row);
        MR_TRY(text(a, a->view.apps[i].app, &row->app));
        row->workers = a->view.apps[i].workers_n;
    }
    return MR_OK;
}

static enum mr_err add_moves(struct answer *a)
{
    Millrace__V1__Move *rows;
    size_t n = a->look->moves_n < MR_PLAN_MOVES_MAX ? a->look->moves_n : MR_PLAN_MOVES_MAX;
    MR_TRY(make_rows(a->arena, n, sizeof *rows, &rows, &a->out.moves));
    for (size_t i = 0; i < n; i++) {
        const struct mr_plan_move *from = &a->look->moves[i];
        if (!sees(a, from->app))
            continue;
        Millrace__V1__Move *row = &rows[a->out.n_moves++];
        millrace__v1__move__init(row);
        row->number = from->number;
        row->at_ms = from->at_ms;
        row->part = from->part;
        MR_TRY(text(a, from->app, &row->app));
        MR_TRY(text(a, from->from, &row->from));
        MR_TRY(text(a, from->to, &row->to));
        MR_TRY(text(a, from->reason, &row->reason));
    }
    return MR_OK;
}

/* What the planner says of itself, if it is known here. */
static enum mr_err add_balance(struct answer *a)
{
    const struct mr_view_server *planner = find_server(a, a->look->planner);
    return text(a, planner != NULL ? planner->balance : (struct mr_slice){0}, &a->out.balance);
}

static enum mr_err look_at_view(const struct servers_asked *asked, struct answer *a)
{
    enum mr_err err =
        asked->view == NULL ? MR_NOT_FOUND : asked->view(a->arena, &a->view, asked->view_arg);
    a->has_view = err == MR_OK;
    a->out.has_view = a->has_view;
    a->out.is_complete = a->has_view && a->view.complete;
    return err == MR_NOT_FOUND ? MR_OK : err;
}

enum mr_err servers_answer(const struct servers_asked *asked,
                           Millrace__V1__ServersResponse *ret_answer)
{
    struct answer a = {.arena = asked->arena,
                       .token = asked->token,
                       .look = asked->look,
                       .out = MILLRACE__V1__SERVERS_RESPONSE__INIT};
    MR_TRY(look_at_view(asked, &a));
    MR_TRY(text(&a, asked->look->planner, &a.out.planner));
    MR_TRY(add_balance(&a));
    MR_TRY(add_servers(&a));
    MR_TRY(add_parts(&a));
    MR_TRY(add_apps(&a));
    add_loads(&a);
    MR_TRY(add_moves(&a));
    *ret_answer = a.out;
    return MR_OK;
}

static void reply(struct looking *looking)
{
    struct unary *u = looking->u;
    const struct mr_api_options *options = &u->api->options;
    Millrace__V1__ServersResponse out;
    enum mr_err err = servers_answer(&(struct servers_asked){.arena = unary_arena(u),
                                                             .token = &u->token,
                                                             .look = &looking->look,
                                                             .view = options->view,
                                                             .view_arg = options->view_arg},
                                     &out);
    if (err == MR_OK)
        unary_send(u, &out.base);
    else
        unary_fail(u, err, NULL);
}

/* ---- the question ----------------------------------------------------------------------------- */

/* Thread: beside the loop. */
static void run_look(struct mr_chore *chore)
{
    struct looking *looking = mr_container(chore, struct looking, chore);
    looking->err = mr_plan_look(looking->store, &looking->look);
}

static void looked(struct mr_chore *chore)
{
    struct looking *looking = mr_container(chore, struct looking, chore);
    struct unary *u = looking->u;
    struct mr_api *api = u->api;
    api->errands_n--;
    api->looks_n--;
    if (looking->err == MR_OK)
        reply(looking);
    else
        unary_fail(u, looking->err, "the store of timers and jobs: %s", mr_err_text(looking->err));
    mr_plan_look_done(&looking->look);
    unary_idle(u);
    api_look_quiet(api);
}

void nodes_servers(struct unary *u)
{
    struct mr_api *api = u->api;
    if (api->options.store == NULL) {
        unary_fail(u, MR_UNSUPPORTED, "there are no timers here, so no apps are shared");
        return;
    }
    if (api->looks_n >= WAITING_MAX) {
        unary_fail(u, MR_BUSY, "%d others ask for the servers", WAITING_MAX);
        return;
    }
    struct looking *looking = mr_arena_calloc(unary_arena(u), 1, sizeof *looking);
    if (looking == NULL ||
        (api->looks == NULL && mr_exec_thread_new("mr-looks", false, mr_rpc_inbox(api->options.rpc),
                                                  &api->looks) != MR_OK)) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    mr_chore_init(&looking->chore, run_look, looked);
    looking->u = u;
    looking->store = api->options.store;
    u->busy = true;
    api->errands_n++;
    api->looks_n++;
    struct mr_exec *exec = mr_exec_thread_exec(api->looks);
    exec->submit(exec, &looking->chore);
}
