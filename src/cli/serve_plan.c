/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to what is to be done, and what must not be done: an address that other machines
 * reach needs tokens and TLS, or somebody who says that it is fine without. */
#include <ctype.h>

#include "cli/serve.h"
#include "cli/serve_names.h"
#include "cli/server.h"
#include "client/client.h"
#include "redis/redis.h"
#include "rpc/rpc.h"

enum { ADDRESSES_MAX = 16, PREFIX_MAX = 128 };

static bool has_scheme(const char *url, const char *scheme)
{
    return mr_slice_starts_with(mr_slice_str(url), mr_slice_str(scheme));
}

/* The tasks are in a Redis, whatever the folder is. */
static int plan_redis(const struct settings *settings, const char *name, struct serve_plan *plan)
{
    enum mr_redis_kind kind;
    struct mr_detail detail = {0};
    plan->redis = settings->broker.text;
    (void)mr_url_shown(plan->redis, plan->shown);
    enum mr_err err = mr_redis_url_check(plan->redis, &kind, &detail);
    if (err != MR_OK)
        return cli_fail(mr_err_exit_code(err), "%s: %s", name,
                        detail.text[0] ? detail.text : mr_err_text(err));
    return CLI_OK;
}

/* The folder in *ret_dir. */
static int choose_folder(const struct cli *cli, const struct settings *settings,
                         struct serve_plan *plan, const char **ret_dir)
{
    const char *broker = settings->broker.given ? settings->broker.text : NULL;
    char name[SETTINGS_NAME_MAX], data_name[SETTINGS_NAME_MAX];
    enum settings_source data_from = settings_source(settings, &settings->data);
    enum settings_source broker_from = settings_source(settings, &settings->broker);
    *ret_dir = settings->data.text;
    if (broker && cli_is_redis(broker))
        return plan_redis(settings, settings_name(settings, &settings->broker, name), plan);
    if (!broker || (data_from > SETTINGS_DEFAULT && data_from > broker_from))
        return CLI_OK; /* a flag goes before the environment, that before the file */
    settings_name(settings, &settings->broker, name);
    if (has_scheme(broker, "millrace"))
        return cli_usage(cli, "%s: %.200s is a server, and serve is one: give --data DIR", name,
                         broker);
    *ret_dir = cli_file_dir(broker);
    if (!*ret_dir)
        return cli_usage(cli,
                         "%s: \"%.200s\" is no URL of a broker; give file:DIR or redis://HOST:PORT",
                         name, broker);
    if (data_from == broker_from && strcmp(*ret_dir, settings->data.text) != 0)
        return cli_usage(cli, "%s %s and %s %s are two folders; give one",
                         settings_name(settings, &settings->data, data_name), settings->data.text,
                         name, broker);
    return CLI_OK;
}

static int plan_dir(const struct cli *cli, const struct settings *settings, struct serve_plan *plan)
{
    const char *dir;
    char name[SETTINGS_NAME_MAX];
    int code = choose_folder(cli, settings, plan, &dir);
    if (code != CLI_OK)
        return code;
    settings_name(settings, dir == settings->data.text ? &settings->data : &settings->broker, name);
    if (!*dir)
        return cli_usage(cli, "%s: \"\" is empty; give a folder", name);
    struct mr_buf url = {0};
    struct mr_detail detail = {0};
    struct mr_slice namespace_ =
        mr_slice_str(settings->namespace_.given ? settings->namespace_.text : "");
    cli_must(mr_buf_printf(&url, "file:%s", dir));
    cli_must(mr_buf_append(&url, "", 1));
    enum mr_err err = mr_url_dir((const char *)url.data, namespace_, plan->dir, &detail);
    mr_buf_done(&url);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot use", dir, &detail);
    if (cli_look_at_folder(plan->dir) == MR_INVALID)
        return cli_usage(cli, "%s: %.200s is not a folder", name, plan->dir);
    return CLI_OK;
}

static int plan_tls(const struct cli *cli, const struct settings *settings, struct serve_plan *plan)
{
    bool cert = settings->tls_cert.given, key = settings->tls_key.given;
    char name[SETTINGS_NAME_MAX];
    if (cert != key)
        return cli_usage(
            cli, "%s needs --tls-%s beside it",
            settings_name(settings, cert ? &settings->tls_cert : &settings->tls_key, name),
            cert ? "key" : "cert");
    if (settings->tls_ca.given && !cert)
        return cli_usage(cli, "%s needs --tls-cert and --tls-key beside it",
                         settings_name(settings, &settings->tls_ca, name));
    plan->tls = cert;
    return CLI_OK;
}

/* What is said about a Redis must go together, and be about one. */
static int plan_broker(const struct cli *cli, const struct settings *settings,
                       const struct serve_plan *plan)
{
    const struct cli_value *files[] = {&settings->broker_tls_ca, &settings->broker_tls_cert,
                                       &settings->broker_tls_key};
    bool secure = plan->redis && has_scheme(plan->redis, "rediss");
    bool cert = settings->broker_tls_cert.given, key = settings->broker_tls_key.given;
    char name[SETTINGS_NAME_MAX];
    for (size_t i = 0; i < CLI_LEN(files); i++) {
        int code = CLI_OK;
        settings_name(settings, files[i], name);
        if (files[i]->given && !secure)
            return cli_usage(cli, "%s is for a Redis with TLS: --broker rediss://HOST:PORT", name);
        if (files[i]->given)
            code = cli_look_at_file(name, files[i]->text);
        if (code != CLI_OK)
            return code;
    }
    if (cert != key)
        return cli_usage(
            cli, "%s needs --broker-tls-%s beside it",
            settings_name(settings, cert ? &settings->broker_tls_cert : &settings->broker_tls_key,
                          name),
            cert ? "key" : "cert");
    const struct cli_value *const numbers[] = {&settings->wait_replicas, &settings->archive_max,
                                               &settings->archive_for};
    for (size_t i = 0; i < CLI_LEN(numbers); i++)
        if (numbers[i]->number > 0 && !plan->redis)
            return cli_usage(cli, "%s is for a Redis: --broker redis://HOST:PORT",
                             settings_name(settings, numbers[i], name));
    return CLI_OK;
}

/* Whether both ports could serve with these files: `config check` must not find right what `serve`
 * refuses. */
static int look_at_tls(const struct cli *cli, const struct settings *settings)
{
    const struct cli_value *files[] = {&settings->tls_cert, &settings->tls_key, &settings->tls_ca};
    struct mr_rpc_tls tls = {.cert_file = settings->tls_cert.text,
                             .key_file = settings->tls_key.text,
                             .ca_file = settings->tls_ca.given ? settings->tls_ca.text : NULL};
    char name[SETTINGS_NAME_MAX];
    for (size_t i = 0; i < CLI_LEN(files); i++) {
        int code = CLI_OK;
        if (files[i]->given)
            code = cli_look_at_file(settings_name(settings, files[i], name), files[i]->text);
        if (code != CLI_OK)
            return code;
    }
    struct mr_detail detail = {0};
    enum mr_err err = mr_rpc_tls_check(&tls, &detail);
    size_t about = 0; /* it names the file */
    for (size_t i = 0; err != MR_OK && i < CLI_LEN(files); i++)
        if (files[i]->given && strstr(detail.text, files[i]->text))
            about = i;
    if (err != MR_OK)
        return cli_fail(mr_err_exit_code(err), "%s: %s",
                        settings_name(settings, files[about], name),
                        detail.text[0] ? detail.text : mr_err_text(err));
    if (detail.text[0])
        cli_note(cli, "%s", detail.text);
    return CLI_OK;
}

/* ---- other machines ------------------------------------------------------------------------- */

static int look_at_address(const char *name, const char *address, bool *ret_loopback)
{
    struct mr_addr addrs[ADDRESSES_MAX];
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    size_t n = 0;
    struct mr_detail detail = {0};
    enum mr_err err = mr_host_parse(address, host, &port);
    if (err == MR_OK)
        err = mr_host_resolve(host, port, MR_RESOLVE_NAMES, addrs, ADDRESSES_MAX, &n, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, name, address, &detail);
    *ret_loopback = true;
    for (size_t i = 0; i < n; i++)
        *ret_loopback = *ret_loopback && mr_addr_is_loopback(&addrs[i]);
    return CLI_OK;
}

static int count_tokens(const char *dir, size_t *ret_live)
{
    struct mr_tokens *tokens;
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_open(dir, NULL, &tokens, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot read the tokens in", dir, &detail);
    *ret_live = mr_tokens_live(tokens);
    mr_tokens_free(tokens);
    return CLI_OK;
}

static int refuse_open(const struct cli *cli, const struct serve_door *door)
{
    size_t live = 0;
    int code = count_tokens(door->dir, &live);
    if (code != CLI_OK || (door->tls && live > 0))
        return code;
    return cli_usage(cli, "%s %s is open to other machines: add %s%s%s%s%s or --insecure",
                     door->name, door->address, door->tls ? "" : "--tls-cert FILE --tls-key FILE",
                     door->tls || live > 0 ? "" : " and ",
                     live > 0 ? "" : "a token (millrace token create --role admin --data ",
                     live > 0 ? "" : door->dir, live > 0 ? "" : ")");
}

int serve_door_check(const struct cli *cli, const struct serve_door *door)
{
    bool loopback = false;
    int code = look_at_address(door->name, door->address, &loopback);
    if (code == CLI_OK && !loopback && !door->insecure)
        code = refuse_open(cli, door);
    return code;
}

static int plan_access(const struct cli *cli, const struct settings *settings,
                       struct serve_plan *plan)
{
    const struct cli_value *ports[] = {&settings->listen, &settings->grpc};
    char name[SETTINGS_NAME_MAX];
    plan->access = settings->require_token.given ? MR_ACCESS_TOKENS
                   : settings->insecure.given    ? MR_ACCESS_OPEN
                                                 : MR_ACCESS_LOOPBACK;
    for (size_t i = 0; i < CLI_LEN(ports); i++) {
        struct serve_door door = {.name = settings_name(settings, ports[i], name),
                                  .address = ports[i]->text,
                                  .dir = plan->dir,
                                  .tls = plan->tls,
                                  .insecure = settings->insecure.given};
        int code = serve_door_check(cli, &door);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

/* As it stands in a request, with nothing that would be read as something else there. */
static bool is_prefix(const char *text)
{
    size_t len = strlen(text);
    if (len < 2 || len > PREFIX_MAX || text[0] != '/' || text[len - 1] == '/')
        return false;
    for (size_t i = 0; i < len; i++) {
        bool doubled = text[i] == '/' && (text[i + 1] == '/' || text[i + 1] == '.');
        if (doubled || (!isalnum((unsigned char)text[i]) && strchr("/-_.~", text[i]) == NULL))
            return false;
    }
    return true;
}

static int plan_prefix(const struct cli *cli, const struct settings *settings)
{
    char name[SETTINGS_NAME_MAX];
    const struct cli_value *prefix = &settings->http_prefix;
    if (!prefix->given || is_prefix(prefix->text))
        return CLI_OK;
    return cli_usage(cli, "%s: \"%.200s\" is no path such as /mill",
                     settings_name(settings, prefix, name), prefix->text);
}

int serve_plan(const struct cli *cli, const struct settings *settings, struct serve_plan *ret_plan)
{
    *ret_plan = (struct serve_plan){0};
    int code = plan_dir(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = plan_broker(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = serve_timers_plan(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = serve_replica_plan(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = plan_tls(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = serve_names_plan(cli, settings);
    if (code == CLI_OK)
        code = plan_prefix(cli, settings);
    if (code == CLI_OK)
        code = plan_access(cli, settings, ret_plan);
    return code == CLI_OK && ret_plan->tls ? look_at_tls(cli, settings) : code;
}
