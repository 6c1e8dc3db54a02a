/* SPDX-License-Identifier: Apache-2.0 */
/* From settings to what is to be done, and what must not be done: an address that other machines
 * reach needs tokens and TLS, or somebody who says that it is fine without. */
#include "cli/serve.h"
#include "client/client.h"

enum { ADDRESSES_MAX = 16 };

static bool has_scheme(const char *url, const char *scheme)
{
    return mr_slice_starts_with(mr_slice_str(url), mr_slice_str(scheme));
}

/* The folder in *ret_dir. */
static int choose_folder(const struct cli *cli, const struct settings *settings,
                         const char **ret_dir)
{
    const char *broker = settings->broker.given ? settings->broker.text : NULL;
    enum settings_source data_from = settings_source(settings, &settings->data);
    enum settings_source broker_from = settings_source(settings, &settings->broker);
    *ret_dir = settings->data.text;
    if (!broker || (data_from > SETTINGS_DEFAULT && data_from > broker_from))
        return CLI_OK; /* a flag goes before the environment, that before the file */
    if (has_scheme(broker, "millrace"))
        return cli_usage(cli, "--broker: %.200s is a server, and serve is one: give --data DIR",
                         broker);
    if (has_scheme(broker, "redis"))
        return cli_usage(cli,
                         "--broker: this version serves a folder, not a Redis: give --data DIR");
    *ret_dir = cli_file_dir(broker);
    if (!*ret_dir)
        return cli_usage(cli, "--broker: \"%.200s\" is no URL of a broker; give file:DIR", broker);
    if (data_from == broker_from && strcmp(*ret_dir, settings->data.text) != 0)
        return cli_usage(cli, "--data %s and --broker %s are two folders; give one",
                         settings->data.text, broker);
    return CLI_OK;
}

static int plan_dir(const struct cli *cli, const struct settings *settings, struct serve_plan *plan)
{
    const char *dir;
    int code = choose_folder(cli, settings, &dir);
    if (code != CLI_OK)
        return code;
    if (!*dir)
        return cli_usage(cli, "--data: \"\" is empty; give a folder");
    struct mr_buf url = {0};
    struct mr_detail detail = {0};
    struct mr_slice name =
        mr_slice_str(settings->namespace_.given ? settings->namespace_.text : "");
    cli_must(mr_buf_printf(&url, "file:%s", dir));
    cli_must(mr_buf_append(&url, "", 1));
    enum mr_err err = mr_url_dir((const char *)url.data, name, plan->dir, &detail);
    mr_buf_done(&url);
    return err == MR_OK ? CLI_OK : cli_fail_detail(err, "cannot use", dir, &detail);
}

static int plan_tls(const struct cli *cli, const struct settings *settings, struct serve_plan *plan)
{
    bool cert = settings->tls_cert.given, key = settings->tls_key.given;
    if (cert != key)
        return cli_usage(cli, "--tls-%s needs --tls-%s beside it", cert ? "cert" : "key",
                         cert ? "key" : "cert");
    if (settings->tls_ca.given && !cert)
        return cli_usage(cli, "--tls-ca needs --tls-cert and --tls-key beside it");
    plan->tls = cert;
    return CLI_OK;
}

/* ---- other machines ------------------------------------------------------------------------- */

static int look_at_address(const char *flag, const char *address, bool *ret_loopback)
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
        return cli_fail_detail(err, flag, address, &detail);
    *ret_loopback = true;
    for (size_t i = 0; i < n; i++)
        *ret_loopback = *ret_loopback && mr_addr_is_loopback(&addrs[i]);
    return CLI_OK;
}

static int count_tokens(const struct serve_plan *plan, size_t *ret_live)
{
    struct mr_tokens *tokens;
    struct mr_detail detail = {0};
    enum mr_err err = mr_tokens_open(plan->dir, NULL, &tokens, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot read the tokens in", plan->dir, &detail);
    *ret_live = mr_tokens_live(tokens);
    mr_tokens_free(tokens);
    return CLI_OK;
}

static int refuse_open(const struct cli *cli, const struct serve_plan *plan, const char *flag,
                       const char *address)
{
    size_t live = 0;
    int code = count_tokens(plan, &live);
    if (code != CLI_OK || (plan->tls && live > 0))
        return code;
    return cli_usage(cli, "%s %s is open to other machines: add %s%s%s%s%s or --insecure", flag,
                     address, plan->tls ? "" : "--tls-cert FILE --tls-key FILE",
                     plan->tls || live > 0 ? "" : " and ",
                     live > 0 ? "" : "a token (millrace token create --role admin --data ",
                     live > 0 ? "" : plan->dir, live > 0 ? "" : ")");
}

static int plan_access(const struct cli *cli, const struct settings *settings,
                       struct serve_plan *plan)
{
    const struct {
        const char *flag;
        const struct cli_value *address;
    } ports[] = {{"--listen", &settings->listen}, {"--grpc", &settings->grpc}};
    plan->access = settings->require_token.given ? MR_ACCESS_TOKENS
                   : settings->insecure.given    ? MR_ACCESS_OPEN
                                                 : MR_ACCESS_LOOPBACK;
    for (size_t i = 0; i < CLI_LEN(ports); i++) {
        bool loopback = false;
        int code = look_at_address(ports[i].flag, ports[i].address->text, &loopback);
        if (code == CLI_OK && !loopback && !settings->insecure.given)
            code = refuse_open(cli, plan, ports[i].flag, ports[i].address->text);
        if (code != CLI_OK)
            return code;
    }
    return CLI_OK;
}

int serve_plan(const struct cli *cli, const struct settings *settings, struct serve_plan *ret_plan)
{
    *ret_plan = (struct serve_plan){0};
    int code = plan_dir(cli, settings, ret_plan);
    if (code == CLI_OK)
        code = plan_tls(cli, settings, ret_plan);
    return code == CLI_OK ? plan_access(cli, settings, ret_plan) : code;
}
