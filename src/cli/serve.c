/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace serve: the embedded engine, or a Redis, as a service. The one place that knows every module.
 *
 * The main thread starts everything, then waits for signals and looks after the engine's health.
 * SIGTERM and SIGINT stop with grace on a thread of their own, the second one ends the process at
 * once, as does one before the server is ready: underneath everything is made to be killed. SIGHUP reads the tokens again and opens the
 * audit file anew. A store that failed ends the server: its next start recovers what is on disk.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api.h"
#include "api/doubts.h"
#include "api/http_api.h"
#include "api/http_web.h"
#include "base/diag.h"
#include "base/notify.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "cli/serve.h"
#include "cli/serve_names.h"

enum {
    BEAT_MS = 1000,                /* between two looks at the engine */
    MESSAGE_MIN = 4 * 1024 * 1024, /* what gRPC takes anywhere */
    MESSAGE_AROUND = 1024 * 1024,  /* more than the largest payload */
};

/* Tells the main thread that the stop is done; blocked everywhere, waited for there. */
#define SIGNAL_STOPPED SIGUSR1

struct serve {
    struct cli *cli;
    const struct settings *settings;
    struct serve_plan plan;
    struct serve_health health;
    struct serve_audit *audit;
    struct mr_tokens *tokens;
    struct mr_http *http;
    struct mr_broker *broker;
    struct mr_store *store;
    struct mr_timer_service *timers;
    struct mr_job_service *jobs;
    struct mr_access access;
    struct mr_http_api *http_api;
    struct mr_rpc *rpc;
    struct mr_api *api;
    struct serve_names *names; /* NULL: it has no nameservers */
    _Atomic uint64_t handed;   /* tasks that workers have got */
    struct mr_doubts doubts;   /* nodes whose stream broke */
    struct mr_addr http_addr, grpc_addr;
    int64_t watchdog_ms, watched_ns; /* 0: nobody watches; when it was told last */
    pthread_t stop_thread;
    int64_t drain_ms;
    bool stopping;
    _Atomic bool stopped;
    int code;
};

/* ---- start ---------------------------------------------------------------------------------- */

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

static void our_signals(sigset_t *set)
{
    stop_signals(set);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGNAL_STOPPED);
}

static void end_now(int number)
{
    _exit(CLI_SIGNAL_BASE + number);
}

/* Before work is accepted, and when no more is under way, there is nothing to end with grace: while
 * a large store opens or closes a signal ends the process. By a handler of ours, since the first
 * process of a container has no default one. */
static void set_at_once(bool at_once)
{
    sigset_t stops;
    struct sigaction action = {.sa_handler = end_now};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    stop_signals(&stops);
    sigprocmask(at_once ? SIG_UNBLOCK : SIG_BLOCK, &stops, NULL);
}

/* The text, or NULL where nothing is set. */
static const char *text_of(const struct cli_value *value)
{
    return value->given ? value->text : NULL;
}

static int port_refused(enum mr_err err, const char *what, const char *option, const char *address,
                        const struct mr_detail *detail)
{
    char subject[32];
    if (err == MR_IN_USE)
        return cli_fail(mr_err_exit_code(err),
                        "cannot serve %s on %s: the port is in use by another process; stop that, "
                        "or give %s another one",
                        what, address, option);
    snprintf(subject, sizeof subject, "cannot serve %s on", what);
    return cli_fail_detail(err, subject, address, detail);
}

static int start_http(struct serve *serve)
{
    const struct settings *settings = serve->settings;
    struct mr_http_tls tls = {.cert_file = settings->tls_cert.text,
                              .key_file = settings->tls_key.text,
                              .ca_file = text_of(&settings->tls_ca)};
    struct mr_http_table tables[2 + MR_HTTP_API_TABLES] = {
        {.routes = serve_routes, .routes_n = serve_routes_n, .arg = &serve->health},
    };
    mr_http_web_table(&tables[1]);
    mr_http_api_tables(serve->http_api, tables + 2);
    struct mr_http_options options = {
        .address = settings->listen.text,
        .tls = serve->plan.tls ? &tls : NULL,
        .prefix = text_of(&settings->http_prefix),
        .tables = tables,
        .tables_n = CLI_LEN(tables),
        .observe = mr_http_api_observe,
        .observe_arg = serve->http_api,
    };
    struct mr_detail detail = {0};
    enum mr_err err = mr_http_start(&options, &serve->http, &serve->http_addr, &detail);
    if (err != MR_OK)
        return port_refused(err, "HTTP", "--listen", options.address, &detail);
    return CLI_OK;
}

/* Thread: the engine's, while it opens. */
static void tell_damage(const char *text, void *arg)
{
    (void)arg;
    mr_diag(MR_DIAG_WARN, "store.damage", "%s", text);
}

/* May take long with a large store. */
static int open_store(struct serve *serve)
{
    struct mr_embedded_options options = {
        .dir = serve->plan.dir,
        .payload_max = (size_t)serve->settings->payload_max.number,
        .segment_bytes = (size_t)serve->settings->log_segment.number,
        .line = tell_damage,
        .nodes_elsewhere = true,
    };
    struct mr_detail detail = {0};
    enum mr_err err = mr_embedded_open(&options, &serve->broker, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot open", serve->plan.dir, &detail);
    return CLI_OK;
}

/* What a Redis refuses, a call is refused with; the text of it is for the log. */
static void tell_refusal(enum mr_err err, const char *text, void *arg)
{
    (void)arg;
    cli_refusal_tell(err, text);
}

static void tell_risk(struct serve *serve)
{
    struct mr_detail line;
    enum mr_err err = serve->broker->ops->risk(serve->broker, &line);
    if (err == MR_OK)
        cli_note(serve->cli, "%s", line.text);
}

static int open_redis(struct serve *serve)
{
    const struct settings *settings = serve->settings;
    struct mr_redis_broker_options options = {
        .url = serve->plan.redis,
        .tls_ca = text_of(&settings->broker_tls_ca),
        .tls_cert = text_of(&settings->broker_tls_cert),
        .tls_key = text_of(&settings->broker_tls_key),
        .namespace_ = mr_slice_str(settings->namespace_.given ? settings->namespace_.text : ""),
        .payload_max = (size_t)settings->payload_max.number,
        .wait_replicas = (uint32_t)settings->wait_replicas.number,
        .archive_max = (uint32_t)settings->archive_max.number,
        .archive_ms = settings->archive_for.number,
        .refused = tell_refusal,
    };
    struct mr_detail detail = {0};
    enum mr_err err = mr_redis_broker_open(&options, &serve->broker, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot use", serve->plan.shown, &detail);
    tell_risk(serve);
    return CLI_OK;
}

static int open_broker(struct serve *serve)
{
    int code = serve->plan.redis ? open_redis(serve) : open_store(serve);
    if (code == CLI_OK)
        serve_health_open(&serve->health, serve->broker);
    return code;
}

static int open_timers(struct serve *serve)
{
    int code = serve_store_open(serve->cli, serve->settings, &serve->plan, &serve->store);
    if (code == CLI_OK)
        code = serve_timers_open(serve->cli, serve->settings, &serve->plan, serve->broker,
                                 serve->store, &serve->timers);
    atomic_store(&serve->health.timers, serve->timers);
    return code;
}

static int open_jobs(struct serve *serve)
{
    int code =
        serve_jobs_open(serve->settings, &serve->plan, serve->broker, serve->store, &serve->jobs);
    mr_http_api_set(serve->http_api, &(struct mr_http_parts){.broker = serve->broker,
                                                             .timers = serve->timers,
                                                             .jobs = serve->jobs,
                                                             .store = serve->store,
                                                             .view_arg = serve->names});
    return code;
}

/* Before there are jobs, it says so. */
static enum mr_err make_http_api(struct serve *serve)
{
    serve->access = (struct mr_access){.mode = serve->plan.access, .tokens = serve->tokens};
    struct mr_http_api_options options = {
        .door = {.access = &serve->access, .audit = serve_audit_line, .audit_arg = serve->audit},
        .payload_max = (size_t)serve->settings->payload_max.number,
        .rate = (uint32_t)serve->settings->rate.number,
        .handed = &serve->handed,
        .doubts = &serve->doubts,
        .view = serve_names_view,
    };
    return mr_http_api_new(&options, &serve->http_api);
}

static int open_files(struct serve *serve)
{
    struct mr_detail detail = {0};
    const char *audit_path = text_of(&serve->settings->audit_file);
    enum mr_err err = serve_audit_open(audit_path, &serve->audit, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot write the audit to", audit_path, &detail);
    err = mr_tokens_open(serve->plan.dir, NULL, &serve->tokens, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot read the tokens in", serve->plan.dir, &detail);
    cli_must(make_http_api(serve));
    return serve_names_new(serve->cli, serve->settings, &serve->names);
}

static enum mr_err make_api(struct serve *serve)
{
    const struct settings *settings = serve->settings;
    size_t payload_max = (size_t)settings->payload_max.number;
    size_t message_max = payload_max + MESSAGE_AROUND;
    struct mr_rpc_limits limits = {
        .message_max = message_max > MESSAGE_MIN ? message_max : MESSAGE_MIN,
        .calls_max = (uint32_t)settings->calls_max.number,
    };
    MR_TRY(mr_rpc_new("mr-rpc", &limits, &serve->rpc));
    struct mr_api_options options = {
        .broker = serve->broker,
        .timers = serve->timers,
        .jobs = serve->jobs,
        .store_url = serve->plan.store,
        .store = serve->store,
        .view = serve_names_view,
        .handed = &serve->handed,
        .doubts = &serve->doubts,
        .view_arg = serve->names,
        .rpc = serve->rpc,
        .access = serve->access,
        .limits = {.rate = (uint32_t)settings->rate.number, .payload_max = payload_max},
        .namespace_ = text_of(&settings->namespace_),
        .grace_ms = settings->grace.number,
        .audit = serve_audit_line,
        .audit_arg = serve->audit,
    };
    return mr_api_new(&options, &serve->api);
}

static enum mr_err listen_grpc(struct serve *serve, struct mr_detail *detail)
{
    const struct settings *settings = serve->settings;
    struct mr_rpc_tls tls = {.cert_file = settings->tls_cert.text,
                             .key_file = settings->tls_key.text,
                             .ca_file = text_of(&settings->tls_ca)};
    struct mr_rpc_service service = {
        .address = settings->grpc.text, .tls = serve->plan.tls ? &tls : NULL, .arg = serve->api};
    service.methods = mr_api_methods(&service.methods_n);
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    size_t n;
    MR_TRY(mr_rpc_listen(serve->rpc, &service, &port, detail));
    uint16_t asked;
    MR_TRY(mr_host_parse(service.address, host, &asked));
    return mr_host_resolve(host, port, MR_RESOLVE_NAMES, &serve->grpc_addr, 1, &n, detail);
}

static int start_grpc(struct serve *serve)
{
    struct mr_detail detail = {0};
    enum mr_err err = make_api(serve);
    if (err == MR_OK)
        err = listen_grpc(serve, &detail);
    if (err != MR_OK)
        return port_refused(err, "gRPC", "--grpc", serve->settings->grpc.text, &detail);
    return CLI_OK;
}

static int open_names(struct serve *serve)
{
    struct serve_names_options options = {
        .rpc = serve->rpc,
        .timers = serve->timers,
        .grpc = serve->grpc_addr,
        .is_secure = serve->plan.tls,
        .handed = &serve->handed,
    };
    return serve_names_open(serve->names, &options);
}

static int start(struct serve *serve)
{
    static int (*const steps[])(struct serve * serve) = {
        open_files,  start_http, /* says that it is live while a large store opens */
        open_broker, open_timers, open_jobs, start_grpc, open_names,
    };
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < CLI_LEN(steps); i++)
        code = steps[i](serve);
    return code;
}

static void tell_ready(struct serve *serve)
{
    char http[MR_ADDR_TEXT_MAX], grpc[MR_ADDR_TEXT_MAX];
    serve_health_set_ready(&serve->health, true);
    mr_addr_text(&serve->http_addr, http);
    mr_addr_text(&serve->grpc_addr, grpc);
    fprintf(stderr, "ready http=%s grpc=%s\n", http, grpc);
    mr_notify("READY=1");
}

/* ---- stop ----------------------------------------------------------------------------------- */

static void *stop_main(void *arg)
{
    struct serve *serve = arg;
    serve_names_leave(serve->names); /* first: so nobody new comes while it ends */
    mr_api_stop(serve->api, serve->drain_ms);
    atomic_store(&serve->stopped, true);
    kill(getpid(), SIGNAL_STOPPED);
    return NULL;
}

static void begin_stop(struct serve *serve, int64_t drain_ms, int code)
{
    serve->stopping = true;
    serve->drain_ms = drain_ms;
    serve->code = code;
    serve_health_set_ready(&serve->health, false);
    atomic_store(&serve->health.timers, NULL);
    mr_notify("STOPPING=1");
    cli_must(mr_thread_start(&serve->stop_thread, "mr-stop", stop_main, serve));
}

static void on_stop_signal(struct serve *serve, int number)
{
    if (serve->stopping)
        _exit(CLI_SIGNAL_BASE + number);
    cli_note(serve->cli, "stopping; again to end at once");
    begin_stop(serve, serve->settings->drain_timeout.number, CLI_OK);
}

/* In the reverse order of the start; any part may be missing. */
static void tear_down(struct serve *serve)
{
    mr_http_api_stop(serve->http_api, serve->http);
    mr_http_stop(serve->http);
    mr_http_api_free(serve->http_api);
    serve_names_leave(serve->names);
    mr_rpc_free(serve->rpc);
    mr_api_free(serve->api);
    serve_names_free(serve->names);
    mr_job_service_close(serve->jobs);
    mr_timer_service_close(serve->timers);
    mr_store_close(serve->store);
    if (serve->broker)
        mr_broker_close(serve->broker);
    mr_tokens_free(serve->tokens);
    serve_audit_close(serve->audit);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void reload(struct serve *serve)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_reload(serve->tokens, &detail);
    if (err != MR_OK)
        mr_diag(MR_DIAG_ERROR, "tokens.reload", "error=\"%s\" ignoring=the-file",
                *detail.text ? detail.text : mr_err_text(err));
    else
        mr_diag(MR_DIAG_INFO, "tokens.reload", "live=%zu", mr_tokens_live(serve->tokens));
    err = serve_audit_reopen(serve->audit);
    if (err != MR_OK)
        mr_diag(MR_DIAG_ERROR, "audit.reopen", "error=\"%s\" ignoring=the-new-file",
                mr_err_text(err));
}

static void feed_watchdog(struct serve *serve)
{
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    bool due = now_ns - serve->watched_ns >= serve->watchdog_ms * MR_NS_PER_MS / 2;
    if (serve->watchdog_ms == 0 || !due ||
        !serve_health_answers(&serve->health, serve->watchdog_ms))
        return;
    serve->watched_ns = now_ns;
    mr_notify("WATCHDOG=1");
}

/* A store of timers that has stopped does nothing more until it is opened again; one that is away comes back. */
static void look_at_timers(struct serve *serve)
{
    struct mr_timer_health health;
    mr_timer_service_health(serve->timers, &health);
    if (health.store == MR_OK || health.store == MR_UNAVAILABLE || health.store == MR_DISK_FULL)
        return;
    begin_stop(serve, 0,
               cli_fail(CLI_FAILED,
                        "the store of timers and jobs failed: %s; the next start goes on from "
                        "what is on disk",
                        health.store_text));
}

static void beat(struct serve *serve)
{
    serve_health_beat(&serve->health);
    feed_watchdog(serve);
    enum mr_err err = mr_tokens_flush(serve->tokens);
    if (err != MR_OK)
        mr_diag(MR_DIAG_ERROR, "tokens.flush", "error=\"%s\"", mr_err_text(err));
    if (serve_health_failed(&serve->health) && !serve->stopping)
        begin_stop(serve, 0,
                   cli_fail(CLI_FAILED,
                            "the store in %s failed: a write or sync did not succeed; "
                            "the next start goes on from what is on disk",
                            serve->plan.dir));
    if (!serve->stopping)
        look_at_timers(serve);
}

static int64_t beat_ms(const struct serve *serve)
{
    int64_t half = serve->watchdog_ms / 2;
    return half > 0 && half < BEAT_MS ? half : BEAT_MS;
}

/* Until the stop is done. */
static void live(struct serve *serve)
{
    int64_t ms = beat_ms(serve);
    struct timespec tick = {.tv_sec = ms / MR_MS_PER_S, .tv_nsec = ms % MR_MS_PER_S * MR_NS_PER_MS};
    sigset_t signals;
    our_signals(&signals);
    for (;;) {
        int number = sigtimedwait(&signals, NULL, &tick);
        if (number == SIGNAL_STOPPED && atomic_load(&serve->stopped))
            break;
        if (number == SIGHUP)
            reload(serve);
        if (number == SIGTERM || number == SIGINT)
            on_stop_signal(serve, number);
        beat(serve);
    }
    mr_thread_join(serve->stop_thread);
}

static int run(struct cli *cli, void *args)
{
    struct settings *settings = args;
    struct serve *serve = cli_alloc(1, sizeof *serve);
    sigset_t signals;
    serve->cli = cli;
    serve->settings = settings;
    our_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* threads that others make inherit it */
    set_at_once(true);
    int code = settings_load(cli, settings);
    if (code == CLI_OK)
        code = serve_plan(cli, settings, &serve->plan);
    if (code == CLI_OK) {
        mr_diag_set_level((enum mr_diag_level)settings->log_level.number);
        mr_net_allow_many();
        serve->watchdog_ms = mr_notify_watchdog_ms();
        code = start(serve);
    }
    set_at_once(false);
    if (code == CLI_OK) {
        tell_ready(serve);
        live(serve);
        code = serve->code;
    }
    set_at_once(true);
    tear_down(serve);
    settings_done(settings);
    free(serve);
    return code;
}

/* ---- row ------------------------------------------------------------------------------------ */

static const struct cli_verb verb = {
    .synopsis = "",
    .about =
        "Serves a folder of tasks, or a Redis, to many processes: gRPC for producers and workers,\n"
        "HTTP for the dashboard (http://127.0.0.1:7400/), programs, health and figures. Each "
        "option\n"
        "is also a variable (MILLRACE_LISTEN for --listen) and a key of the file named by "
        "--config.\n"
        "Prints one line when it is ready. SIGTERM stops it with grace, a second one at once; "
        "SIGHUP\n"
        "reads the tokens again.",
    .examples = CLI_EXAMPLES("millrace serve", "millrace serve --data /var/lib/millrace",
                             "millrace serve --broker redis://127.0.0.1:6379",
                             "millrace serve --store postgres://millrace@db/millrace",
                             "millrace serve --config millrace.yaml"),
    .options = SETTINGS_ROWS,
    .options_n = SETTINGS_FLAGS_N,
    .args_size = sizeof(struct settings),
    .run = run,
};

const struct cli_command cli_serve = {
    .name = "serve", .about = "run the server", .verbs = &verb, .verbs_n = 1};
