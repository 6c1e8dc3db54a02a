/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/serve_names.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/diag.h"
#include "base/rand.h"
#include "cli/names.h"
#include "cli/serve.h"
#include "cli/server.h"
#include "names/balance.h"
#include "names/subapp.h"
#include "timer/service.h"

enum { FRESH_MIN_MS = 200, FRESH_MAX_MS = 5000, ADDRESS_MAX = MR_HOST_MAX + 16 };

struct serve_names {
    const struct settings *settings;
    struct serve_names_options options;
    struct cli_names names;
    struct mr_names_client *client; /* NULL: it has left */
    char node[SERVE_NODE_MAX], address[ADDRESS_MAX];
    /* Tasks that workers have got in the last minute, whatever made them. Loop thread. */
    struct mr_balance_window taken;
    uint64_t taken_all; /* of which so many are counted */
    /* What was last heard; the arena's. */
    struct mr_lock lock;
    struct mr_arena arena;
    struct mr_view view;
    bool has_view;
};

/* ---- settings --------------------------------------------------------------------------------- */

static int read_names(const struct cli *cli, const struct settings *settings,
                      struct cli_names *names)
{
    char name[SETTINGS_NAME_MAX];
    int code = cli_names_read(cli, settings_name(settings, &settings->nameserver, name),
                              settings->nameserver.text, names);
    if (code != CLI_OK || !names->is_secure)
        return code;
    names->tls = (struct mr_rpc_tls){
        .ca_file = settings->nameserver_ca.given ? settings->nameserver_ca.text : NULL,
        .cert_file = settings->tls_cert.given ? settings->tls_cert.text : NULL,
        .key_file = settings->tls_key.given ? settings->tls_key.text : NULL};
    return CLI_OK;
}

int serve_names_plan(const struct cli *cli, const struct settings *settings)
{
    struct cli_names names = {0};
    char name[SETTINGS_NAME_MAX];
    const struct cli_value *const files[] = {&settings->nameserver_ca,
                                             &settings->nameserver_token_file};
    int code = CLI_OK;
    if (settings->nameserver.given)
        code = read_names(cli, settings, &names);
    for (size_t i = 0; code == CLI_OK && i < CLI_LEN(files); i++) {
        settings_name(settings, files[i], name);
        if (files[i]->given && !settings->nameserver.given)
            code = cli_usage(cli, "%s needs --nameserver beside it", name);
        else if (files[i]->given)
            code = cli_look_at_file(name, files[i]->text);
    }
    if (code == CLI_OK && settings->nameserver_ca.given && !names.is_secure)
        code = cli_usage(cli, "%s is for nameservers with TLS: --nameserver millraces://H:P,...",
                         settings_name(settings, &settings->nameserver_ca, name));
    cli_names_done(&names);
    return code;
}

static int read_token(const struct settings *settings, struct cli_names *names)
{
    struct mr_buf token = {0};
    int code = CLI_OK;
    if (settings->nameserver_token_file.given) {
        code = cli_token_read(settings->nameserver_token_file.text, &token);
        if (code == CLI_OK)
            names->authorization = cli_names_bearer(names, (const char *)token.data);
    }
    mr_buf_done(&token);
    return code;
}

/* Where others reach it: as it was told, else as it listens; a listener for all addresses is reached by the name of the machine. */
static void make_address(struct serve_names *n)
{
    const struct settings *settings = n->settings;
    char text[MR_ADDR_TEXT_MAX], host[MR_HOST_MAX + 1] = "";
    mr_addr_text(&n->options.grpc, text);
    bool is_any = strncmp(text, "0.0.0.0:", 8) == 0 || strncmp(text, "[::]:", 5) == 0;
    if (settings->advertise.given)
        snprintf(n->address, sizeof n->address, "%s", settings->advertise.text);
    else if (is_any && gethostname(host, sizeof host - 1) == 0)
        snprintf(n->address, sizeof n->address, "%s:%u", host, mr_addr_port(&n->options.grpc));
    else
        snprintf(n->address, sizeof n->address, "%s", text);
}

/* ---- what it says ----------------------------------------------------------------------------- */

static void count_taken(struct serve_names *n)
{
    uint64_t all = atomic_load(n->options.handed);
    mr_balance_count(&n->taken, mr_mono_now(mr_clock_system()), all - n->taken_all);
    n->taken_all = all;
}

/* Firings are counted where they are dispatched; what workers got beyond them are plain tasks and parts of jobs. */
static int64_t load_of(struct serve_names *n, const struct mr_loads *loads)
{
    count_taken(n);
    int64_t taken = mr_balance_load(&n->taken, mr_mono_now(mr_clock_system()));
    return taken > loads->all ? taken : loads->all;
}

static enum mr_err encode_body(struct serve_names *n, const struct mr_loads *loads,
                               struct mr_buf *buf)
{
    struct mr_timer_health health;
    mr_timer_service_health(n->options.timers, &health);
    struct mr_names_load *rows = calloc(loads->n + 1, sizeof *rows);
    if (rows == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < loads->n; i++)
        rows[i] = (struct mr_names_load){
            .app = loads->loads[i].app, .part = loads->loads[i].part, .load = loads->loads[i].load};
    struct mr_names_server_body body = {
        .load = load_of(n, loads),
        .weight = (uint32_t)n->settings->weight.number,
        .owns = health.apps_owned,
        .server = loads->server,
        .is_secure = n->options.is_secure,
        .balance = loads->balance,
        .loads = rows,
        .loads_n = loads->n,
    };
    enum mr_err err = mr_names_server_body_encode(&body, buf);
    free(rows);
    return err;
}

/* Thread: the loop. */
static enum mr_err say_body(struct mr_buf *buf, void *arg)
{
    struct serve_names *n = arg;
    struct mr_loads loads = {0};
    enum mr_err err = mr_timer_service_loads(n->options.timers, &loads);
    if (err == MR_OK)
        err = encode_body(n, &loads, buf);
    mr_loads_done(&loads);
    return err;
}

/* ---- what it hears ---------------------------------------------------------------------------- */

/* A body may say anything. */
static int64_t within(int64_t load)
{
    return load < 0 ? 0 : load < MR_LOAD_MAX ? load : MR_LOAD_MAX;
}

static enum mr_err read_server(struct mr_arena *arena, const struct mr_names_entry *entry,
                               struct mr_view_server *to)
{
    struct mr_names_server_body body;
    MR_TRY(mr_names_server_body_decode(entry->body, arena, &body));
    struct mr_view_load *loads = mr_arena_calloc(arena, body.loads_n + 1, sizeof *loads);
    if (loads == NULL)
        return MR_NOMEM;
    int64_t told = 0;
    for (size_t i = 0; i < body.loads_n; i++) {
        MR_TRY(mr_arena_copy(arena, body.loads[i].app, &loads[i].app));
        loads[i].part = body.loads[i].part;
        loads[i].load = within(body.loads[i].load);
        told += loads[i].load;
    }
    *to =
        (struct mr_view_server){.weight = body.weight < MR_WEIGHT_MAX ? body.weight : MR_WEIGHT_MAX,
                                .other = within(within(body.load) - told),
                                .loads = loads,
                                .loads_n = body.loads_n};
    MR_TRY(mr_arena_copy(arena, body.balance, &to->balance));
    return mr_arena_copy(arena, body.server, &to->server);
}

/* One whose body cannot be read, or that fires nothing, is left out: nothing can be given to it. */
static enum mr_err read_servers(struct mr_names_client *client, struct mr_arena *arena,
                                struct mr_view *view)
{
    size_t n, kept = 0;
    const struct mr_names_entry *entries = mr_names_client_list(client, MR_NAMES_SERVER, &n);
    struct mr_view_server *servers = mr_arena_calloc(arena, n + 1, sizeof *servers);
    if (servers == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        enum mr_err err = read_server(arena, &entries[i], &servers[kept]);
        if (err == MR_NOMEM)
            return err;
        kept += err == MR_OK && servers[kept].server.len > 0;
    }
    view->servers = servers;
    view->servers_n = kept;
    return MR_OK;
}

static enum mr_err read_apps(const struct mr_names_look *look, struct mr_arena *arena,
                             struct mr_view *view)
{
    struct mr_view_app *apps = mr_arena_calloc(arena, look->apps_n + 1, sizeof *apps);
    if (apps == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < look->apps_n; i++) {
        MR_TRY(mr_arena_copy(arena, look->apps[i].name, &apps[i].app));
        apps[i].workers_n = look->apps[i].workers;
    }
    view->apps = apps;
    view->apps_n = look->apps_n;
    return MR_OK;
}

static void pass_on(struct serve_names *n)
{
    enum mr_err err = mr_timer_service_set_view(n->options.timers, &n->view);
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "names.view", "error=%s ignoring=it", mr_err_name(err));
}

/* While no nameserver answers, what was heard stays, and nothing follows from what is missing in it. */
static void hear_nothing(struct serve_names *n)
{
    if (!n->has_view || !n->view.complete)
        return;
    mr_diag(MR_DIAG_WARN, "names.silent", "nameservers=%zu", n->names.n);
    mr_lock_enter(&n->lock);
    n->view.complete = false;
    mr_lock_leave(&n->lock);
    pass_on(n);
}

/* Thread: the loop. */
static void hear(struct mr_names_client *client, const struct mr_names_look *look, void *arg)
{
    struct serve_names *n = arg;
    struct mr_arena arena = {0};
    struct mr_view view = {.threshold = (uint32_t)n->settings->subapp_workers.number};
    count_taken(n);
    if (look == NULL) {
        hear_nothing(n);
        return;
    }
    view.complete =
        look->complete && !look->more && mr_names_client_complete(client, MR_NAMES_SERVER);
    enum mr_err err = read_servers(client, &arena, &view);
    if (err == MR_OK)
        err = read_apps(look, &arena, &view);
    if (err != MR_OK) { /* the last one stays */
        mr_arena_done(&arena);
        return;
    }
    mr_lock_enter(&n->lock);
    mr_arena_done(&n->arena);
    n->arena = arena;
    n->view = view;
    n->has_view = true;
    mr_lock_leave(&n->lock);
    pass_on(n);
}

/* The other servers keep copies of the operations on timers, unless it was said who does. Thread: the loop. */
static void hear_servers(struct mr_names_client *client, enum mr_names_kind kind, void *arg)
{
    struct serve_names *n = arg;
    const struct settings *settings = n->settings;
    size_t servers_n, kept = 0;
    if (kind != MR_NAMES_SERVER || settings->replicas.number == 0 || settings->replica_peer.given)
        return;
    const struct mr_names_entry *servers = mr_names_client_list(client, kind, &servers_n);
    const char *addresses[MR_REPLICA_PEERS_MAX];
    for (size_t i = 0; i < servers_n && kept < MR_REPLICA_PEERS_MAX; i++)
        addresses[kept++] = servers[i].address.data; /* a NUL follows */
    serve_replica_peers(n->options.timers, n->address, addresses, kept);
}

/* ---- for who asks ----------------------------------------------------------------------------- */

static enum mr_err copy_server(struct mr_arena *arena, const struct mr_view_server *from,
                               struct mr_view_server *to)
{
    struct mr_view_load *loads = mr_arena_calloc(arena, from->loads_n + 1, sizeof *loads);
    if (loads == NULL)
        return MR_NOMEM;
    *to = *from;
    for (size_t i = 0; i < from->loads_n; i++) {
        loads[i] = from->loads[i];
        MR_TRY(mr_arena_copy(arena, from->loads[i].app, &loads[i].app));
    }
    to->loads = loads;
    MR_TRY(mr_arena_copy(arena, from->balance, &to->balance));
    return mr_arena_copy(arena, from->server, &to->server);
}

static enum mr_err copy_view(struct mr_arena *arena, const struct mr_view *from, struct mr_view *to)
{
    struct mr_view_server *servers = mr_arena_calloc(arena, from->servers_n + 1, sizeof *servers);
    struct mr_view_app *apps = mr_arena_calloc(arena, from->apps_n + 1, sizeof *apps);
    if (servers == NULL || apps == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < from->servers_n; i++)
        MR_TRY(copy_server(arena, &from->servers[i], &servers[i]));
    for (size_t i = 0; i < from->apps_n; i++) {
        apps[i] = from->apps[i];
        MR_TRY(mr_arena_copy(arena, from->apps[i].app, &apps[i].app));
    }
    *to = *from;
    to->servers = servers;
    to->apps = apps;
    return MR_OK;
}

enum mr_err serve_names_view(struct mr_arena *arena, struct mr_view *ret_view, void *arg)
{
    struct serve_names *n = arg;
    if (n == NULL)
        return MR_NOT_FOUND;
    mr_lock_enter(&n->lock);
    enum mr_err err = n->has_view ? copy_view(arena, &n->view, ret_view) : MR_NOT_FOUND;
    mr_lock_leave(&n->lock);
    return err;
}

/* ---- life ------------------------------------------------------------------------------------- */

static int64_t fresh_ms(int64_t register_ms)
{
    int64_t half = register_ms / 2;
    return half < FRESH_MIN_MS ? FRESH_MIN_MS : half > FRESH_MAX_MS ? FRESH_MAX_MS : half;
}

static enum mr_err register_it(struct serve_names *n, struct mr_detail *detail)
{
    const struct settings *settings = n->settings;
    int64_t every =
        settings->register_every.given ? settings->register_every.number : MR_NAMES_SERVER_MS;
    struct mr_names_client_options options = {
        .rpc = n->options.rpc,
        .nameservers = n->names.addresses,
        .nameservers_n = n->names.n,
        .tls = cli_names_tls(&n->names),
        .authorization = n->names.authorization,
        .entry = {.kind = MR_NAMES_SERVER,
                  .name = mr_slice_str(n->node),
                  .address = mr_slice_str(n->address),
                  .incarnation = mr_rand_next(mr_rand_of_thread()) | 1},
        .register_ms = every,
        .fresh_ms = fresh_ms(every),
        .body = say_body,
        .changed = hear_servers,
        .looked = hear,
        .arg = n,
    };
    return mr_names_client_new(&options, &n->client, detail);
}

int serve_names_new(const struct cli *cli, const struct settings *settings,
                    struct serve_names **ret_names)
{
    if (!settings->nameserver.given)
        return CLI_OK;
    struct serve_names *n = cli_alloc(1, sizeof *n);
    n->settings = settings;
    mr_lock_init(&n->lock);
    serve_node(n->node);
    if (strlen(n->node) > MR_NAME_MAX) /* the end of it says which process it is */
        memmove(n->node, n->node + strlen(n->node) - MR_NAME_MAX, MR_NAME_MAX + 1);
    *ret_names = n;
    int code = read_names(cli, settings, &n->names);
    return code == CLI_OK ? read_token(settings, &n->names) : code;
}

int serve_names_open(struct serve_names *names, const struct serve_names_options *options)
{
    struct mr_detail detail = {0};
    if (names == NULL)
        return CLI_OK;
    names->options = *options;
    make_address(names);
    enum mr_err err = register_it(names, &detail);
    return err == MR_OK ? CLI_OK
                        : cli_fail_detail(err, "cannot use the nameservers",
                                          names->settings->nameserver.text, &detail);
}

void serve_names_leave(struct serve_names *names)
{
    if (names == NULL)
        return;
    mr_names_client_free(names->client);
    names->client = NULL;
}

void serve_names_free(struct serve_names *names)
{
    if (names == NULL)
        return;
    mr_assert(names->client == NULL);
    cli_names_done(&names->names);
    mr_arena_done(&names->arena);
    mr_lock_done(&names->lock);
    free(names);
}
