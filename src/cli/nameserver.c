/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace nameserver: who is there, and how loaded (docs/nameserver.md). Everything it knows is said again by those it is
 * about, so it keeps nothing on disk but the tokens of those who may call.
 *
 * The main thread starts everything and waits for signals: SIGTERM and SIGINT stop it, a second one ends the process at once, SIGHUP
 * reads the tokens again.
 */
#include "cli/nameserver.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/names.h"
#include "base/diag.h"
#include "base/notify.h"
#include "cli/names.h"
#include "cli/serve.h"
#include "cli/server.h"
#include "cli/watch.h"

enum { STOP_MS = 1000 /* for calls under way */, TTL_MAX_MS = 3600 * 1000, TTL_MIN_MS = 100 };

struct names_args {
    struct cli_value listen, peer, data, tls_cert, tls_key, tls_ca, peer_ca, insecure,
        require_token, health, interval, server_ttl, worker_ttl, hold, log_level;
};

struct nameserver {
    struct cli *cli;
    const struct names_args *args;
    const char *listen, *dir;
    struct names_health health;
    struct mr_tokens *tokens;
    struct mr_access access;
    struct mr_rpc_tls tls; /* to the others */
    struct mr_buf token;
    struct mr_buf authorization; /* what it shows to the others */
    struct mr_rpc *rpc;
    struct mr_names *names;
    struct mr_http *http;
    struct mr_addr http_addr, grpc_addr;
};

/* ---- what is asked of it ---------------------------------------------------------------------- */

static const char *text_of(const struct cli_value *value)
{
    return value->given ? value->text : NULL;
}

static int check_tls(struct nameserver *ns)
{
    const struct names_args *args = ns->args;
    const struct {
        const char *name;
        const struct cli_value *value;
    } files[] = {{"--tls-cert", &args->tls_cert},
                 {"--tls-key", &args->tls_key},
                 {"--tls-ca", &args->tls_ca},
                 {"--peer-ca", &args->peer_ca}};
    if (args->tls_cert.given != args->tls_key.given)
        return cli_usage(ns->cli, "--tls-cert and --tls-key go together");
    for (size_t i = 0; i < CLI_LEN(files); i++) {
        if (files[i].value->given && !args->tls_cert.given)
            return cli_usage(ns->cli, "%s needs --tls-cert and --tls-key beside it", files[i].name);
        int code =
            files[i].value->given ? cli_look_at_file(files[i].name, files[i].value->text) : CLI_OK;
        if (code != CLI_OK)
            return code;
    }
    struct mr_rpc_tls tls = {.cert_file = text_of(&args->tls_cert),
                             .key_file = text_of(&args->tls_key),
                             .ca_file = text_of(&args->tls_ca)};
    struct mr_detail detail = {0};
    enum mr_err err = args->tls_cert.given ? mr_rpc_tls_check(&tls, &detail) : MR_OK;
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot use", args->tls_cert.text, &detail);
    if (detail.text[0])
        cli_note(ns->cli, "%s", detail.text);
    return CLI_OK;
}

static int check_doors(struct nameserver *ns)
{
    const struct names_args *args = ns->args;
    struct serve_door door = {.name = "--listen",
                              .address = ns->listen,
                              .dir = ns->dir,
                              .tls = args->tls_cert.given,
                              .insecure = args->insecure.given};
    int code = serve_door_check(ns->cli, &door);
    door.name = "--health";
    door.address = text_of(&args->health);
    if (code == CLI_OK && door.address)
        code = serve_door_check(ns->cli, &door);
    if (code == CLI_OK && args->peer.items_n > MR_NAMES_PEERS_MAX)
        code = cli_usage(ns->cli, "--peer: there are at most %d", MR_NAMES_PEERS_MAX);
    return code;
}

static int check(struct nameserver *ns)
{
    const struct names_args *args = ns->args;
    ns->listen = args->listen.given ? args->listen.text : NAMES_DEFAULT;
    ns->dir = args->data.given ? args->data.text : "./millrace-data";
    int code = check_tls(ns);
    return code == CLI_OK ? check_doors(ns) : code;
}

/* ---- start ------------------------------------------------------------------------------------ */

/* The others are like this one: they have TLS if it has, and know its token. */
static int identify(struct nameserver *ns)
{
    const struct names_args *args = ns->args;
    int code = cli_token_text(ns->cli, &ns->token);
    if (code == CLI_OK && ns->token.len > 0) {
        cli_must(mr_buf_printf(&ns->authorization, "Bearer %s", (const char *)ns->token.data));
        cli_must(mr_buf_append(&ns->authorization, "", 1));
    }
    ns->tls = (struct mr_rpc_tls){
        .cert_file = text_of(&args->tls_cert),
        .key_file = text_of(&args->tls_key),
        .ca_file = text_of(args->peer_ca.given ? &args->peer_ca : &args->tls_ca)};
    return code;
}

static int open_tokens(struct nameserver *ns)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_open(ns->dir, NULL, &ns->tokens, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot read the tokens in", ns->dir, &detail);
    ns->access.tokens = ns->tokens;
    ns->access.mode = ns->args->require_token.given ? MR_ACCESS_TOKENS
                      : ns->args->insecure.given    ? MR_ACCESS_OPEN
                                                    : MR_ACCESS_LOOPBACK;
    return CLI_OK;
}

static int start_http(struct nameserver *ns)
{
    const struct names_args *args = ns->args;
    if (!args->health.given)
        return CLI_OK;
    struct mr_http_tls tls = {.cert_file = text_of(&args->tls_cert),
                              .key_file = text_of(&args->tls_key),
                              .ca_file = text_of(&args->tls_ca)};
    const struct mr_http_table table = {
        .routes = names_routes, .routes_n = names_routes_n, .arg = &ns->health};
    struct mr_http_options options = {.address = args->health.text,
                                      .tls = args->tls_cert.given ? &tls : NULL,
                                      .tables = &table,
                                      .tables_n = 1};
    struct mr_detail detail = {0};
    enum mr_err err = mr_http_start(&options, &ns->http, &ns->http_addr, &detail);
    return err == MR_OK ? CLI_OK
                        : cli_fail_detail(err, "cannot serve HTTP on", options.address, &detail);
}

static enum mr_err make_names(struct nameserver *ns, struct mr_detail *detail)
{
    const struct names_args *args = ns->args;
    MR_TRY(mr_rpc_new("mr-names", NULL, &ns->rpc));
    struct mr_names_options options = {
        .rpc = ns->rpc,
        .registry = {.ttl_ms = {[MR_NAMES_SERVER] = args->server_ttl.number,
                                [MR_NAMES_WORKER] = args->worker_ttl.number},
                     .hold_ms = args->hold.number},
        .peers = args->peer.items,
        .peers_n = args->peer.items_n,
        .tls = args->tls_cert.given ? &ns->tls : NULL,
        .authorization = ns->authorization.len > 0 ? (const char *)ns->authorization.data : NULL,
        .interval_ms = args->interval.number,
        .may = mr_names_access,
        .arg = &ns->access,
    };
    return mr_names_new(&options, &ns->names, detail);
}

static enum mr_err listen_grpc(struct nameserver *ns, struct mr_detail *detail)
{
    const struct names_args *args = ns->args;
    struct mr_rpc_tls tls = {.cert_file = text_of(&args->tls_cert),
                             .key_file = text_of(&args->tls_key),
                             .ca_file = text_of(&args->tls_ca)};
    struct mr_rpc_service service = {
        .address = ns->listen, .tls = args->tls_cert.given ? &tls : NULL, .arg = ns->names};
    char host[MR_HOST_MAX + 1];
    uint16_t port, asked;
    size_t n;
    service.methods = names_methods(&service.methods_n);
    MR_TRY(mr_rpc_listen(ns->rpc, &service, &port, detail));
    MR_TRY(mr_host_parse(ns->listen, host, &asked));
    return mr_host_resolve(host, port, MR_RESOLVE_NAMES, &ns->grpc_addr, 1, &n, detail);
}

static int start_grpc(struct nameserver *ns)
{
    struct mr_detail detail = {0};
    enum mr_err err = make_names(ns, &detail);
    if (err == MR_OK)
        err = listen_grpc(ns, &detail);
    return err == MR_OK ? CLI_OK
                        : cli_fail_detail(err, "cannot serve gRPC on", ns->listen, &detail);
}

static int start(struct nameserver *ns)
{
    static int (*const steps[])(struct nameserver * ns) = {identify, open_tokens, start_http,
                                                           start_grpc};
    int code = CLI_OK;
    mr_diag_set_level(ns->args->log_level.given ? (enum mr_diag_level)ns->args->log_level.number
                                                : MR_DIAG_INFO);
    mr_net_allow_many();
    for (size_t i = 0; code == CLI_OK && i < CLI_LEN(steps); i++)
        code = steps[i](ns);
    return code;
}

static void tell_ready(struct nameserver *ns)
{
    char grpc[MR_ADDR_TEXT_MAX], http[MR_ADDR_TEXT_MAX] = "";
    mr_addr_text(&ns->grpc_addr, grpc);
    if (ns->http)
        mr_addr_text(&ns->http_addr, http);
    atomic_store(&ns->health.is_ready, true);
    fprintf(stderr, "ready%s%s grpc=%s\n", ns->http ? " http=" : "", http, grpc);
    mr_notify("READY=1");
}

/* ---- life ------------------------------------------------------------------------------------- */

static void reload(struct nameserver *ns)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_reload(ns->tokens, &detail);
    if (err != MR_OK)
        mr_diag(MR_DIAG_ERROR, "tokens.reload", "error=\"%s\" ignoring=the-file",
                *detail.text ? detail.text : mr_err_text(err));
    else
        mr_diag(MR_DIAG_INFO, "tokens.reload", "live=%zu", mr_tokens_live(ns->tokens));
}

static void end_now(int number)
{
    _exit(CLI_SIGNAL_BASE + number);
}

static void our_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

/* There is nothing that a second signal could spoil. */
static void second_ends(const sigset_t *signals)
{
    struct sigaction action = {.sa_handler = end_now};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
}

static void live(struct nameserver *ns, const sigset_t *signals)
{
    for (;;) {
        int number = sigwaitinfo(signals, NULL);
        if (number == SIGHUP)
            reload(ns);
        if (number == SIGTERM || number == SIGINT)
            return;
    }
}

/* Any part may be missing. */
static void tear_down(struct nameserver *ns)
{
    atomic_store(&ns->health.is_ready, false);
    if (ns->names) {
        mr_names_stop(ns->names);
        mr_rpc_drain(ns->rpc, STOP_MS);
    }
    mr_http_stop(ns->http);
    mr_rpc_free(ns->rpc);
    mr_names_free(ns->names);
    mr_tokens_free(ns->tokens);
    mr_buf_done(&ns->token);
    mr_buf_done(&ns->authorization);
}

static int run(struct cli *cli, void *args)
{
    struct nameserver *ns = cli_alloc(1, sizeof *ns);
    sigset_t signals;
    ns->cli = cli;
    ns->args = args;
    our_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* threads that others make inherit it */
    int code = check(ns);
    if (code == CLI_OK)
        code = start(ns);
    if (code == CLI_OK) {
        tell_ready(ns);
        live(ns, &signals);
        second_ends(&signals);
        mr_notify("STOPPING=1");
    }
    tear_down(ns);
    free(ns);
    return code;
}

/* ---- rows ------------------------------------------------------------------------------------- */

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct names_args, field), .value = value_, .help = help_
#define TIMES .min = TTL_MIN_MS, .max = TTL_MAX_MS

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

static const struct cli_option options[] = {
    {.name = "listen",
     OPT(listen, CLI_ADDRESS, "H:P", "address for gRPC"),
     .fallback = NAMES_DEFAULT},
    {.name = "peer",
     .note = CLI_REPEATS,
     OPT(peer, CLI_ADDRESS, "H:P", "another nameserver; its own address among them does no harm")},
    {.name = "data",
     OPT(data, CLI_TEXT, "DIR", "folder with the tokens of those who may call"),
     .fallback = "./millrace-data"},
    {.name = "tls-cert",
     OPT(tls_cert, CLI_TEXT, "FILE", "certificate, PEM; the others have TLS, too")},
    {.name = "tls-key", OPT(tls_key, CLI_TEXT, "FILE", "its private key, PEM")},
    {.name = "tls-ca",
     OPT(tls_ca, CLI_TEXT, "FILE", "clients must show a certificate signed by these")},
    {.name = "peer-ca",
     OPT(peer_ca, CLI_TEXT, "FILE",
         "trust these of the other nameservers, PEM; else those of --tls-ca, else the system's")},
    {.name = "insecure",
     OPT(insecure, CLI_FLAG, NULL,
         "other machines need neither TLS nor a token; for networks you trust")},
    {.name = "require-token",
     OPT(require_token, CLI_FLAG, NULL, "everybody needs a token, also on this machine")},
    {.name = "health",
     OPT(health, CLI_ADDRESS, "H:P", "answers /livez and /readyz there, over HTTP")},
    {.name = "interval",
     OPT(interval, CLI_DURATION, "D", "between two digests to another nameserver"),
     TIMES,
     .fallback = "2s"},
    {.name = "server-ttl",
     OPT(server_ttl, CLI_DURATION, "D", "a server that was not heard of for so long is gone"),
     TIMES,
     .fallback = "30s"},
    {.name = "worker-ttl",
     OPT(worker_ttl, CLI_DURATION, "D", "the same for a worker"),
     TIMES,
     .fallback = "1m"},
    {.name = "hold",
     OPT(hold, CLI_DURATION, "D", "after its start it takes nobody for gone for so long"),
     TIMES,
     .fallback = "20s"},
    {.name = "log-level",
     OPT(log_level, CLI_CHOICE, "LEVEL", "debug, info, warn or error"),
     .choices = log_levels,
     .fallback = "info"},
};

static const struct cli_option status_options[] = {
    {.name = "nameserver",
     .kind = CLI_TEXT,
     .offset = offsetof(struct names_status_args, nameserver),
     .value = "H:P,...",
     .help = "nameservers, all of which are asked; else MILLRACE_NAMESERVER",
     .fallback = NAMES_DEFAULT},
    {.name = "workers",
     .kind = CLI_FLAG,
     .offset = offsetof(struct names_status_args, workers),
     .help = "a line for each worker, too"},
    WATCH_OPTION(struct names_status_args, watch),
};

static const struct cli_verb verbs[] = {
    {.synopsis = "",
     .about =
         "Knows which servers and workers there are, and tells all who ask. Several of them keep "
         "each\n"
         "other in step. Nothing is lost when one dies: whoever is on its list goes on with "
         "another.\n"
         "Prints one line when it is ready. SIGTERM stops it; SIGHUP reads the tokens again. To\n"
         "the others it shows the token of --token-file, which must be an admin's.",
     .examples = CLI_EXAMPLES("millrace nameserver",
                              "millrace nameserver --listen 127.0.0.1:7411 --peer 127.0.0.1:7410"),
     CLI_OPTIONS(options, struct names_args),
     .run = run},
    {.name = "status",
     .synopsis = "",
     .about =
         "Shows nameservers, servers with their loads, subApps with their owners, and what moved.",
     .examples = CLI_EXAMPLES("millrace nameserver status",
                              "millrace nameserver status --nameserver 10.0.0.1:7410,10.0.0.2:7410",
                              "millrace nameserver status --workers --json"),
     CLI_OPTIONS(status_options, struct names_status_args),
     .run = names_status},
};

const struct cli_command cli_nameserver = {
    .name = "nameserver",
    .about = "the registry of servers and workers",
    .verbs = verbs,
    .verbs_n = CLI_LEN(verbs),
};
