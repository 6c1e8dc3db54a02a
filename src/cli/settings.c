/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the settings, and where their values come from. */
#include "cli/settings.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

#define ROW(name_, field, kind_, value_, help_)                                                    \
    .name = name_, .kind = kind_, .offset = offsetof(struct settings, field), .value = value_,     \
    .help = help_

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};

enum {
    CALLS_MAX = 100 * 1000,
    JOB_WINDOW_MAX = 100 * 1000,
    TIMER_LEASE_MIN_MS = 100,
    TIMER_LEASE_MAX_MS = 3600 * 1000,
    REGISTER_MIN_MS = 100,
    REGISTER_MAX_MS = 3600 * 1000,
    WEIGHT_MAX = 1000,
    SUBAPP_WORKERS_MAX = 1000 * 1000,
};

const struct cli_option settings_table[] = {
    {ROW("effective", effective, CLI_FLAG, NULL, "every setting, not only those that were set")},
    {ROW("config", config, CLI_TEXT, "FILE", "YAML file of settings: lines NAME: VALUE")},
    {ROW("data", data, CLI_TEXT, "DIR", "folder of the embedded engine"),
     .fallback = "./millrace-data"},
    {ROW("listen", listen, CLI_ADDRESS, "H:P", "address for HTTP"), .fallback = "127.0.0.1:7400"},
    {ROW("http-prefix", http_prefix, CLI_TEXT, "PATH",
         "all of HTTP is below this path, /mill, as a proxy passes it on")},
    {ROW("grpc", grpc, CLI_ADDRESS, "H:P", "address for gRPC"), .fallback = "127.0.0.1:7401"},
    {ROW("tls-cert", tls_cert, CLI_TEXT, "FILE", "certificate of both ports, PEM")},
    {ROW("tls-key", tls_key, CLI_TEXT, "FILE", "its private key, PEM")},
    {ROW("tls-ca", tls_ca, CLI_TEXT, "FILE", "clients must show a certificate signed by these")},
    {ROW("insecure", insecure, CLI_FLAG, NULL,
         "other machines need neither TLS nor a token; for networks you trust")},
    {ROW("require-token", require_token, CLI_FLAG, NULL,
         "everybody needs a token, also on this machine")},
    {ROW("grace", grace, CLI_DURATION, "D",
         "a worker whose connection broke has so long to return"),
     .fallback = "5s"},
    {ROW("drain-timeout", drain_timeout, CLI_DURATION, "D",
         "wait so long for calls and workers when stopped"),
     .fallback = "30s"},
    {ROW("payload-max", payload_max, CLI_SIZE, "SIZE", "of one task"), .fallback = "1MiB", .min = 1,
     .max = MR_PAYLOAD_HARD_MAX},
    {CLI_LOG_SEGMENT_ROW, .offset = offsetof(struct settings, log_segment), .fallback = "64MiB"},
    {ROW("calls-max", calls_max, CLI_COUNT, "N", "calls under way on one connection of gRPC"),
     .fallback = "1000", .min = 1, .max = CALLS_MAX},
    {ROW("rate", rate, CLI_COUNT, "N",
         "tasks and calls a second on one connection of gRPC, or of one caller by HTTP; 0: no "
         "limit"),
     .fallback = "0", .max = UINT32_MAX},
    {ROW("audit-file", audit_file, CLI_TEXT, "FILE",
         "append a line for every change by a person; else they go to standard error")},
    {ROW("log-level", log_level, CLI_CHOICE, "LEVEL", "debug, info, warn or error"),
     .choices = log_levels, .fallback = "info"},
    {ROW("broker-tls-ca", broker_tls_ca, CLI_TEXT, "FILE",
         "for --broker rediss://: trust these, PEM; else the system's")},
    {ROW("broker-tls-cert", broker_tls_cert, CLI_TEXT, "FILE",
         "for --broker rediss://: our own certificate, PEM")},
    {ROW("broker-tls-key", broker_tls_key, CLI_TEXT, "FILE", "its private key, PEM")},
    {CLI_ARCHIVE_MAX_ROW, .offset = offsetof(struct settings, archive_max)},
    {CLI_ARCHIVE_FOR_ROW, .offset = offsetof(struct settings, archive_for)},
    {ROW("store", store, CLI_TEXT, "URL",
         "where timers and jobs are: sqlite:FILE or postgres://..."),
     .otherwise = "sqlite in the folder"},
    {ROW("app", app, CLI_NAME, "APP",
         "fire the timers of this app; outside the command line A,B,..."),
     .otherwise = "all", .note = CLI_REPEATS},
    {ROW("timer-history", timer_history, CLI_DURATION, "D", "keep firings so long after their end"),
     .fallback = "30d", .min = 1},
    {ROW("timer-misfire", timer_misfire, CLI_DURATION, "D",
         "a firing that is later than this is a misfire"),
     .fallback = "1s", .min = 1},
    {ROW("timer-catch-up", timer_catch_up, CLI_DURATION, "D",
         "misfires older than this are not made up for"),
     .fallback = "1d", .min = 1},
    {ROW("timer-lease", timer_lease, CLI_DURATION, "D",
         "another server fires an app's timers when its own was silent so long"),
     .fallback = "10s", .min = TIMER_LEASE_MIN_MS, .max = TIMER_LEASE_MAX_MS},
    {ROW("timer-levels", timer_levels, CLI_TEXT, "D,D,...",
         "an operation on a timer that could not be applied is tried again after these"),
     .fallback = "5s,10s"},
    {ROW("alarm", alarm, CLI_TEXT, "CMD|URL",
         "told of failed firings, misfires and dead operations, as JSON: a command, or an http "
         "URL")},
    {ROW("alarm-secret-file", alarm_secret_file, CLI_TEXT, "FILE",
         "signs what goes to an http URL: HMAC-SHA256")},
    {ROW("job-window", job_window, CLI_COUNT, "N",
         "of a job's parts so many are tasks for each slot of a worker"),
     .fallback = "64", .min = 1, .max = JOB_WINDOW_MAX},
    {ROW("job-segment", job_segment, CLI_COUNT, "N",
         "parts in one segment of the store; then the next begins"),
     .fallback = "100000", .min = 1, .max = UINT32_MAX},
    {ROW("job-retention", job_retention, CLI_DURATION, "D",
         "keep jobs so long after their end, where they say nothing themselves"),
     .fallback = "7d", .min = 1},
    {ROW("job-commands", job_commands, CLI_FLAG, NULL,
         "who may submit a job may have a command run here: --reduce command:CMD")},
    {ROW("nameserver", nameserver, CLI_TEXT, "H:P,...",
         "nameservers, of which one must live; with TLS millraces://H:P,...")},
    {ROW("nameserver-ca", nameserver_ca, CLI_TEXT, "FILE",
         "trust these of nameservers with TLS, PEM; else the system's")},
    {ROW("nameserver-token-file", nameserver_token_file, CLI_TEXT, "FILE",
         "token of an admin, for nameservers")},
    {ROW("advertise", advertise, CLI_ADDRESS, "H:P",
         "where others reach gRPC, as nameservers tell it"),
     .otherwise = "as --grpc"},
    {ROW("register-every", register_every, CLI_DURATION, "D",
         "tell a nameserver so often that it lives"),
     .fallback = "10s", .min = REGISTER_MIN_MS, .max = REGISTER_MAX_MS},
    {ROW("weight", weight, CLI_COUNT, "N",
         "with nameservers: its share of the load beside others of 100"),
     .fallback = "100", .min = 1, .max = WEIGHT_MAX},
    {ROW("subapp-workers", subapp_workers, CLI_COUNT, "N",
         "with nameservers: an app with more workers than this for each of its parts is cut"),
     .fallback = "2", .min = 1, .max = SUBAPP_WORKERS_MAX},
    {ROW("subapp-merge-after", subapp_merge_after, CLI_DURATION, "D",
         "with nameservers: its parts are joined when it had too few workers for so long"),
     .fallback = "30s", .min = 1, .max = TIMER_LEASE_MAX_MS},
    {ROW("replicas", replicas, CLI_COUNT, "N",
         "1: another server has each operation on a timer on its disk before it is accepted"),
     .fallback = "0", .max = 1},
    {ROW("replica-peer", replica_peer, CLI_TEXT, "H:P,...",
         "for --replicas 1: the other servers; else those of the nameservers")},
    {ROW("replica-ca", replica_ca, CLI_TEXT, "FILE",
         "trust these of other servers with TLS, PEM; else the system's")},
    {ROW("broker", broker, CLI_TEXT, "URL",
         "where tasks live: file:DIR, the same as --data DIR, or a Redis"),
     .otherwise = "the folder of --data"},
    {ROW("namespace", namespace_, CLI_NAME, "NAME",
         "a store of its own inside the folder, or keys of its own in the Redis")},
    {ROW("wait-replicas", wait_replicas, CLI_COUNT, "N",
         "on a Redis: acknowledge what so many replicas have"),
     .fallback = "0", .max = CLI_WAIT_REPLICAS_MAX},
};

static_assert(CLI_LEN(settings_table) == 1 + SETTINGS_N, "the header says how many");

enum { FIRST_KEY = 1 }; /* the name of the file is no key of it */

static struct cli_value *value_of(struct settings *settings, size_t row)
{
    return (struct cli_value *)((char *)settings + SETTINGS_ROWS[row].offset);
}

const struct cli_value *settings_value(const struct settings *settings, size_t row)
{
    return (const struct cli_value *)((const char *)settings + SETTINGS_ROWS[row].offset);
}

static size_t row_of(const struct settings *settings, const struct cli_value *value)
{
    size_t row = 0;
    while (row < SETTINGS_N && settings_value(settings, row) != value)
        row++;
    mr_assert(row < SETTINGS_N);
    return row;
}

enum settings_source settings_source(const struct settings *settings, const struct cli_value *value)
{
    return settings->origins[row_of(settings, value)].source;
}

const char *settings_name(const struct settings *settings, const struct cli_value *value,
                          char name[SETTINGS_NAME_MAX])
{
    size_t row = row_of(settings, value);
    const struct settings_origin *origin = &settings->origins[row];
    if (origin->source == SETTINGS_ENVIRONMENT)
        settings_variable(&SETTINGS_ROWS[row], name);
    else if (origin->source == SETTINGS_FILE)
        snprintf(name, SETTINGS_NAME_MAX, "%.*s:%u: %s", MR_PATH_MAX, settings->config.text,
                 origin->line, SETTINGS_ROWS[row].name);
    else
        snprintf(name, SETTINGS_NAME_MAX, "--%s", SETTINGS_ROWS[row].name);
    return name;
}

void settings_variable(const struct cli_option *row, char name[64])
{
    size_t n = (size_t)snprintf(name, 64, "MILLRACE_%s", row->name);
    for (size_t i = 0; i < n; i++)
        name[i] = name[i] == '-' ? '_' : (char)toupper((unsigned char)name[i]);
}

/* ---- values --------------------------------------------------------------------------------- */

/* A flag outside the command line says yes or no. */
static enum mr_err parse_switch(struct cli_value *value, struct mr_detail *why)
{
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < CLI_LEN(yes); i++) {
        value->given = strcmp(value->text, yes[i]) == 0;
        if (value->given || strcmp(value->text, no[i]) == 0)
            return MR_OK;
    }
    mr_detail_set(why, "is neither true nor false");
    return MR_INVALID;
}

static enum mr_err set_value(struct settings *settings, size_t row, const char *text,
                             struct settings_origin origin, struct mr_detail *why)
{
    const struct cli_option *option = &SETTINGS_ROWS[row];
    struct cli_value value = {.given = true, .text = text};
    if (option->note == CLI_NOT_HERE) {
        mr_detail_set(why, "is %s", option->help);
        return MR_UNSUPPORTED;
    }
    MR_TRY(option->kind == CLI_FLAG ? parse_switch(&value, why)
                                    : cli_value_parse(option, &value, why));
    *value_of(settings, row) = value;
    settings->origins[row] = origin;
    return MR_OK;
}

/* ---- sources -------------------------------------------------------------------------------- */

static void load_flags(const struct cli *cli, struct settings *settings)
{
    settings->broker = cli->globals.broker;
    settings->namespace_ = cli->globals.namespace_;
    settings->wait_replicas = cli->globals.wait_replicas;
    for (size_t i = 0; i < SETTINGS_N; i++)
        if (value_of(settings, i)->given)
            settings->origins[i].source = SETTINGS_FLAG;
}

/* MILLRACE_BROKER tells every other command where the server is: not a word to the server. */
static bool is_for_clients(const struct cli_option *row, const char *text)
{
    struct mr_slice url = mr_slice_str(text);
    return strcmp(row->name, "broker") == 0 &&
           (mr_slice_starts_with(url, MR_SLICE_LIT("millrace://")) ||
            mr_slice_starts_with(url, MR_SLICE_LIT("millraces://")));
}

static int load_variable(struct settings *settings, size_t row)
{
    char name[64];
    struct mr_detail why = {0};
    if (settings->origins[row].source != SETTINGS_NONE)
        return CLI_OK;
    settings_variable(&SETTINGS_ROWS[row], name);
    const char *text = getenv(name);
    if (!text || !*text || is_for_clients(&SETTINGS_ROWS[row], text))
        return CLI_OK;
    struct settings_origin origin = {.source = SETTINGS_ENVIRONMENT};
    if (set_value(settings, row, text, origin, &why) == MR_OK)
        return CLI_OK;
    return cli_fail(CLI_USAGE, "%s: \"%.200s\" %s", name, text, why.text);
}

/* What the file is read into: a value that is set already was set by a flag or the environment, or
 * by an earlier line. */
struct load {
    struct settings *settings;
    unsigned lines[SETTINGS_N];
};

static int fail_unknown_key(const char *path, unsigned line, const char *key)
{
    const char *words[SETTINGS_N + 1] = {0};
    size_t n = 0;
    for (size_t i = FIRST_KEY; i < SETTINGS_N; i++)
        if (SETTINGS_ROWS[i].note != CLI_NOT_HERE)
            words[n++] = SETTINGS_ROWS[i].name;
    const char *nearest = cli_nearest(key, words);
    if (nearest)
        return cli_fail(CLI_USAGE, "%s:%u: unknown key %.100s; did you mean %s?", path, line, key,
                        nearest);
    return cli_fail(CLI_USAGE, "%s:%u: unknown key %.100s; millrace serve --help lists them", path,
                    line, key);
}

static int load_pair(const char *key, const char *text, unsigned line, void *arg)
{
    struct load *load = arg;
    struct settings *settings = load->settings;
    const char *path = settings->config.text;
    size_t row = FIRST_KEY;
    while (row < SETTINGS_N && strcmp(SETTINGS_ROWS[row].name, key) != 0)
        row++;
    if (row == SETTINGS_N)
        return fail_unknown_key(path, line, key);
    if (load->lines[row])
        return cli_fail(CLI_USAGE, "%s:%u: %s: set before, in line %u", path, line, key,
                        load->lines[row]);
    load->lines[row] = line;
    struct mr_slice copy;
    cli_must(mr_arena_copy(&settings->arena, mr_slice_make(text, strlen(text) + 1), &copy));
    /* Also what something else overrides must be right. */
    struct settings_origin origin = {.source = SETTINGS_FILE, .line = line};
    struct cli_value before = *value_of(settings, row);
    struct settings_origin before_origin = settings->origins[row];
    struct mr_detail why = {0};
    if (set_value(settings, row, copy.data, origin, &why) != MR_OK)
        return cli_fail(CLI_USAGE, "%s:%u: %s: \"%.200s\" %s", path, line, key, text, why.text);
    if (before_origin.source != SETTINGS_NONE) {
        *value_of(settings, row) = before;
        settings->origins[row] = before_origin;
    }
    return CLI_OK;
}

static void load_default(struct settings *settings, size_t row)
{
    const char *text = SETTINGS_ROWS[row].fallback;
    struct settings_origin origin = {.source = SETTINGS_DEFAULT};
    if (settings->origins[row].source == SETTINGS_NONE && text)
        cli_must(set_value(settings, row, text, origin, NULL));
}

int settings_load(const struct cli *cli, struct settings *settings)
{
    load_flags(cli, settings);
    for (size_t i = 0; i < SETTINGS_N; i++) {
        int code = load_variable(settings, i);
        if (code != CLI_OK)
            return code;
    }
    if (settings->config.given) {
        struct load load = {.settings = settings};
        int code = settings_file(cli, settings->config.text, load_pair, &load);
        if (code != CLI_OK)
            return code;
    }
    for (size_t i = 0; i < SETTINGS_N; i++)
        load_default(settings, i);
    return CLI_OK;
}

void settings_done(struct settings *settings)
{
    mr_arena_done(&settings->arena);
}
