/* SPDX-License-Identifier: Apache-2.0 */
/* The timers of a server: from settings to a store that is open. */
#include <stdlib.h>

#include "base/diag.h"
#include "base/text.h"
#include "broker/embedded/embedded.h"
#include "cli/serve.h"

enum { LEVEL_TEXT_MAX = 32, APPS_MAX = 1024, RENEWALS = 3, SWEPT_MS = 5000 };

#define STORE_FILE "store.db"

/* ---- the plan -------------------------------------------------------------------------------- */

static int plan_store(const struct cli *cli, const struct settings *settings,
                      struct serve_plan *plan)
{
    static const char *const schemes[] = {"sqlite:", "postgres://", "postgresql://"};
    char name[SETTINGS_NAME_MAX], shown[MR_URL_SHOWN_MAX];
    const char *url = settings->store.text;
    size_t len = settings->store.given ? strlen(url) : 0;
    if (!settings->store.given) {
        int n = snprintf(plan->store, sizeof plan->store, "sqlite:%s/%s", plan->dir, STORE_FILE);
        mr_assert(n > 0 && (size_t)n < sizeof plan->store);
        return CLI_OK;
    }
    settings_name(settings, &settings->store, name);
    for (size_t i = 0; i < CLI_LEN(schemes) && len < sizeof plan->store; i++) {
        size_t scheme = strlen(schemes[i]);
        if (strncmp(url, schemes[i], scheme) != 0 || len == scheme)
            continue;
        memcpy(plan->store, url, len + 1);
        return CLI_OK;
    }
    return cli_usage(cli, "%s: \"%.200s\" is no URL of a store; give sqlite:FILE or postgres://...",
                     name, len < sizeof shown ? mr_url_shown(url, shown) : "(too long)");
}

/* "5s,10s": 1 to so many. */
static int plan_levels(const struct cli *cli, const struct settings *settings,
                       struct mr_timer_settings *timers)
{
    char name[SETTINGS_NAME_MAX], text[LEVEL_TEXT_MAX];
    const char *at = settings->timer_levels.text;
    settings_name(settings, &settings->timer_levels, name);
    for (;;) {
        size_t len = strcspn(at, ",");
        if (timers->levels_n == MR_TIMER_LEVELS_MAX)
            return cli_usage(cli, "%s: there are at most %d", name, MR_TIMER_LEVELS_MAX);
        bool fits = len < sizeof text;
        memcpy(text, at, fits ? len : 0);
        text[fits ? len : 0] = '\0';
        if (mr_parse_duration_ms(text, &timers->levels_ms[timers->levels_n]) != MR_OK ||
            timers->levels_ms[timers->levels_n] == 0)
            return cli_usage(cli, "%s: \"%.*s\" is not a duration such as 5s", name, (int)len, at);
        timers->levels_n++;
        if (at[len] == '\0')
            return CLI_OK;
        at += len + 1;
    }
}

static int plan_alarm(const struct cli *cli, const struct settings *settings)
{
    char name[SETTINGS_NAME_MAX];
    if (settings->alarm.given && !*settings->alarm.text)
        return cli_usage(cli, "%s: \"\" is empty; give a command or a URL",
                         settings_name(settings, &settings->alarm, name));
    const char *text = settings->alarm.given ? settings->alarm.text : "";
    size_t scheme = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    bool is_url = scheme > 0 && strncmp(text + scheme, "://", 3) == 0;
    if (is_url && strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0)
        return cli_usage(cli, "%s: \"%.200s\" is neither a command nor an http:// or https:// URL",
                         settings_name(settings, &settings->alarm, name), text);
    if (settings->alarm_secret_file.given && !settings->alarm.given)
        return cli_usage(cli, "%s needs --alarm http://... beside it",
                         settings_name(settings, &settings->alarm_secret_file, name));
    return CLI_OK;
}

int serve_timers_plan(const struct cli *cli, const struct settings *settings,
                      struct serve_plan *plan)
{
    struct mr_timer_settings *timers = &plan->timers;
    timers->history_ms = settings->timer_history.number;
    timers->misfire_ms = settings->timer_misfire.number;
    timers->catch_up_ms = settings->timer_catch_up.number;
    timers->lease_ms = settings->timer_lease.number;
    timers->renew_ms = timers->lease_ms / RENEWALS;
    timers->merge_ms = settings->subapp_merge_after.number;
    int code = plan_store(cli, settings, plan);
    if (code == CLI_OK)
        code = plan_levels(cli, settings, timers);
    return code == CLI_OK ? plan_alarm(cli, settings) : code;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* All that were given, cut at commas. */
struct apps {
    const char *names[APPS_MAX];
    size_t n;
    struct mr_arena arena;
};

static int add_apps(const struct cli *cli, struct apps *apps, const char *text)
{
    for (;;) {
        size_t len = strcspn(text, ",");
        struct mr_slice copy;
        cli_must(mr_arena_copy(&apps->arena, mr_slice_make(text, len), &copy));
        const char *problem = cli_name_problem(copy.data);
        if (problem)
            return cli_usage(cli, "--app: \"%.200s\" %s", (const char *)copy.data, problem);
        if (apps->n == APPS_MAX)
            return cli_usage(cli, "--app: there are at most %d", APPS_MAX);
        apps->names[apps->n++] = copy.data;
        if (text[len] == '\0')
            return CLI_OK;
        text += len + 1;
    }
}

static int read_apps(const struct cli *cli, const struct cli_value *value, struct apps *apps)
{
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < value->items_n; i++)
        code = add_apps(cli, apps, value->items[i]);
    if (value->given && value->items_n == 0) /* not from the command line */
        code = add_apps(cli, apps, value->text);
    return code;
}

/* The secret of the file, without the end of its line. */
static int read_secret(const struct settings *settings, struct mr_buf *secret)
{
    enum { SECRET_MAX = 4096 };
    struct mr_fs *fs = mr_fs_system();
    const char *path = settings->alarm_secret_file.text;
    struct mr_file *file = NULL;
    uint64_t size = 0;
    if (!settings->alarm_secret_file.given)
        return CLI_OK;
    enum mr_err err = mr_fs_open(fs, path, MR_OPEN_READ, &file);
    if (err == MR_OK)
        err = mr_file_size(file, &size);
    if (err == MR_OK && (size == 0 || size > SECRET_MAX))
        err = size == 0 ? MR_EMPTY : MR_TOO_BIG;
    if (err == MR_OK) {
        cli_must(mr_buf_reserve(secret, size + 1));
        err = mr_file_pread(file, secret->data, size, 0);
    }
    mr_file_close(file);
    if (err == MR_OK) {
        secret->data[size] = '\0';
        secret->len = strcspn((const char *)secret->data, "\r\n");
        err = secret->len > 0 ? MR_OK : MR_EMPTY; /* what anybody can sign is signed by nobody */
    }
    if (err == MR_EMPTY)
        return cli_fail(mr_err_exit_code(MR_INVALID), "the secret in %s is empty", path);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot use the secret in %s", path);
    cli_must(mr_buf_append(secret, "", 1));
    return CLI_OK;
}

/* Of a Redis, or of several servers, each would have timers of its own. */
static void tell_store(const struct cli *cli, const struct settings *settings,
                       const struct serve_plan *plan)
{
    if (plan->redis && !settings->store.given)
        cli_note(cli,
                 "timers and jobs are kept in %s, which no other server on this Redis sees; "
                 "several servers "
                 "need --store postgres://...",
                 plan->store);
    else if (settings->nameserver.given && !settings->store.given)
        cli_note(cli,
                 "timers and jobs are kept in %s, which no other server sees; several servers "
                 "need --store postgres://...",
                 plan->store);
    if (settings->namespace_.given && settings->store.given)
        cli_note(cli, "the timers of --store are those of every server that has it, of whichever "
                      "namespace; each namespace needs a database of its own");
}

int serve_store_open(const struct cli *cli, const struct settings *settings,
                     const struct serve_plan *plan, struct mr_store **ret_store)
{
    struct mr_fs *fs = mr_fs_system();
    struct mr_detail detail = {0};
    char shown[MR_URL_SHOWN_MAX];
    enum mr_err err = settings->store.given ? MR_OK : fs->ops->dir_make(fs, plan->dir);
    if (err != MR_OK && err != MR_CONFLICT)
        return cli_fail_err(err, "cannot make %s", plan->dir);
    err = mr_store_open_told(plan->store, ret_store, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot open", mr_url_shown(plan->store, shown), &detail);
    tell_store(cli, settings, plan);
    return CLI_OK;
}

static int open_service(const struct settings *settings, const struct serve_plan *plan,
                        struct mr_timer_service_options *options,
                        struct mr_timer_service **ret_service)
{
    struct mr_detail detail = {0};
    struct mr_buf secret = {0};
    char node[SERVE_NODE_MAX], home[MR_UUID_TEXT_LEN + 1];
    int code = read_secret(settings, &secret);
    if (code != CLI_OK) {
        mr_buf_done(&secret);
        return code;
    }
    serve_node(node);
    options->node = node;
    options->home = mr_embedded_home(options->broker, home) ? home : NULL;
    options->gate = plan->keeps_copies ? mr_embedded_gate(options->broker) : NULL;
    options->settings = plan->timers;
    options->settings.alarm = settings->alarm.given ? settings->alarm.text : NULL;
    options->settings.alarm_secret = secret.len > 0 ? (const char *)secret.data : NULL;
    enum mr_err err = mr_timer_service_open(options, ret_service, &detail);
    mr_buf_done(&secret);
    return err == MR_OK ? CLI_OK : cli_fail_detail(err, "cannot start", "the timers", &detail);
}

int serve_timers_open(const struct cli *cli, const struct settings *settings,
                      const struct serve_plan *plan, struct mr_broker *broker,
                      struct mr_store *store, struct mr_timer_service **ret_service)
{
    struct apps *apps = cli_alloc(1, sizeof *apps);
    int code = read_apps(cli, &settings->app, apps);
    struct mr_timer_service_options options = {
        .broker = broker,
        .store = store,
        .apps = apps->names,
        .apps_n = apps->n,
        .payload_max = (size_t)settings->payload_max.number,
        .keeps_copies = plan->keeps_copies,
        .replica = plan->is_replicated ? &plan->replica : NULL,
    };
    if (code == CLI_OK)
        code = open_service(settings, plan, &options, ret_service);
    if (code == CLI_OK)
        serve_replica_start(settings, *ret_service);
    /* Before workers come: what others have made anew while we were away is not for them. */
    if (code == CLI_OK && plan->keeps_copies &&
        !mr_timer_service_await_swept(*ret_service, SWEPT_MS))
        mr_diag(MR_DIAG_WARN, "timer.moved", "not looked through after_ms=%d going on", SWEPT_MS);
    mr_arena_done(&apps->arena);
    free(apps);
    return code;
}
