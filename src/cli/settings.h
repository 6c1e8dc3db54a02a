/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of the server: one row each, from which flags, environment, file, help and `config`
 * follow. A value comes from the flag --NAME, else from the variable MILLRACE_NAME, else from the
 * key NAME of the YAML file, else it is the default.
 */
#ifndef MR_CLI_SETTINGS_H
#define MR_CLI_SETTINGS_H

#include "base/arena.h"
#include "base/fs.h"
#include "cli/cli.h"

enum settings_source {
    SETTINGS_NONE, /* not set, and there is no default */
    SETTINGS_DEFAULT,
    SETTINGS_FILE,
    SETTINGS_ENVIRONMENT,
    SETTINGS_FLAG,
};

struct settings_origin {
    enum settings_source source;
    unsigned line; /* SETTINGS_FILE */
};

/* Settings, and those of them that are options of a verb: the last three are options of every command
 * already. */
enum { SETTINGS_N = 50, SETTINGS_FLAGS_N = SETTINGS_N - 3 };

/* The rows; before the first one stands --effective, for `config show`. */
extern const struct cli_option settings_table[1 + SETTINGS_N];
#define SETTINGS_ROWS (settings_table + 1)

/* The arguments of `serve`, and of the verbs of `config`. */
struct settings {
    struct cli_value effective; /* config show: also what nobody set */
    struct cli_value config, data, listen, http_prefix, grpc, tls_cert, tls_key, tls_ca, insecure,
        require_token, grace, drain_timeout, payload_max, log_segment, calls_max, rate, audit_file,
        log_level, broker_tls_ca, broker_tls_cert, broker_tls_key, archive_max, archive_for;
    struct cli_value store, app, timer_history, timer_misfire, timer_catch_up, timer_lease,
        timer_levels, alarm, alarm_secret_file;
    struct cli_value job_window, job_segment, job_retention, job_commands;
    struct cli_value replicas, replica_peer, replica_ca;
    struct cli_value nameserver, nameserver_ca, nameserver_token_file, advertise, register_every,
        weight, subapp_workers, subapp_merge_after;
    struct cli_value broker, namespace_,
        wait_replicas;                          /* options of every command, settings here */
    struct settings_origin origins[SETTINGS_N]; /* in the order of the rows */
    struct mr_arena arena;                      /* texts of the file */
};

/* Fills in what the flags left open. 0, or an exit code after one line that names the flag, the
 * variable, or file, line and nearest known key. */
int settings_load(const struct cli *cli, struct settings *settings);
void settings_done(struct settings *settings);

const struct cli_value *settings_value(const struct settings *settings, size_t row);
/* Where this value of settings comes from. */
enum settings_source settings_source(const struct settings *settings,
                                     const struct cli_value *value);
/* What whoever set this value calls it: "--listen", "MILLRACE_LISTEN" or "FILE:3: listen". */
enum { SETTINGS_NAME_MAX = MR_PATH_MAX + 80 };
const char *settings_name(const struct settings *settings, const struct cli_value *value,
                          char name[SETTINGS_NAME_MAX]);
/* MILLRACE_TLS_CERT of tls-cert. */
void settings_variable(const struct cli_option *row, char name[64]);

/* ---- settings_file.c ------------------------------------------------------------------------ */

/* Called for every key with its scalar value, in the order of the file; anything but 0 ends it. */
typedef int settings_pair(const char *key, const char *value, unsigned line, void *arg);
/* The pairs of a YAML file: one mapping of plain values. 0, or the exit code. */
int settings_file(const struct cli *cli, const char *path, settings_pair *pair, void *arg);

#endif
