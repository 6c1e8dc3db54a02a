/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/names.h"

#include <stdlib.h>

#include "base/net.h"
#include "cli/server.h"

static int add_address(const struct cli *cli, const char *name, struct mr_slice text,
                       struct cli_names *names)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    struct mr_slice copy;
    cli_must(mr_arena_copy(&names->arena, text, &copy));
    if (mr_host_parse(copy.data, host, &port) != MR_OK || port == 0)
        return cli_usage(cli, "%s: \"%.200s\" is not an address such as " NAMES_DEFAULT, name,
                         (const char *)copy.data);
    if (names->n == MR_NAMESERVERS_MAX)
        return cli_usage(cli, "%s: there are at most %d", name, MR_NAMESERVERS_MAX);
    names->addresses[names->n++] = copy.data;
    return CLI_OK;
}

int cli_names_read(const struct cli *cli, const char *name, const char *text,
                   struct cli_names *names)
{
    static const char *const schemes[] = {"names://", "millrace://", "namess://", "millraces://"};
    *names = (struct cli_names){0};
    for (size_t i = 0; i < CLI_LEN(schemes); i++) {
        if (strncmp(text, schemes[i], strlen(schemes[i])) != 0)
            continue;
        names->is_secure = i >= CLI_LEN(schemes) / 2;
        text += strlen(schemes[i]);
        break;
    }
    for (;;) {
        size_t len = strcspn(text, ",");
        int code = add_address(cli, name, mr_slice_make(text, len), names);
        if (code != CLI_OK || text[len] == '\0')
            return code;
        text += len + 1;
    }
}

const char *cli_names_bearer(struct cli_names *names, const char *token)
{
    if (token == NULL || token[0] == '\0')
        return NULL;
    struct mr_buf text = {0};
    struct mr_slice copy;
    cli_must(mr_buf_printf(&text, "Bearer %s", token));
    cli_must(mr_arena_copy(&names->arena, mr_buf_slice(&text), &copy));
    mr_buf_done(&text);
    return copy.data;
}

static const char *file_of(const struct cli_value *flag, const char *variable)
{
    const char *text = getenv(variable);
    return flag->given ? flag->text : text && *text ? text : NULL;
}

int cli_names_identify(const struct cli *cli, struct cli_names *names)
{
    const struct cli_globals *globals = &cli->globals;
    const struct {
        const char *flag, *variable;
        const struct cli_value *given;
        const char **ret;
    } rows[] = {
        {"--tls-ca", "MILLRACE_TLS_CA", &globals->tls_ca, &names->tls.ca_file},
        {"--tls-cert", "MILLRACE_TLS_CERT", &globals->tls_cert, &names->tls.cert_file},
        {"--tls-key", "MILLRACE_TLS_KEY", &globals->tls_key, &names->tls.key_file},
    };
    struct mr_buf token = {0};
    int code = cli_token_text(cli, &token);
    if (code == CLI_OK)
        names->authorization = cli_names_bearer(names, (const char *)token.data);
    mr_buf_done(&token);
    for (size_t i = 0; names->is_secure && code == CLI_OK && i < CLI_LEN(rows); i++) {
        *rows[i].ret = file_of(rows[i].given, rows[i].variable);
        if (*rows[i].ret)
            code = cli_look_at_file(rows[i].flag, *rows[i].ret);
    }
    if (code == CLI_OK && !names->tls.cert_file != !names->tls.key_file)
        code = cli_usage(cli, "--tls-cert and --tls-key go together");
    return code;
}

void cli_names_url(const struct cli_names *names, struct mr_buf *url)
{
    cli_must(mr_buf_printf(url, "%s", names->is_secure ? "namess://" : "names://"));
    for (size_t i = 0; i < names->n; i++)
        cli_must(mr_buf_printf(url, "%s%s", i ? "," : "", names->addresses[i]));
    cli_must(mr_buf_append(url, "", 1));
}

void cli_names_done(struct cli_names *names)
{
    mr_arena_done(&names->arena);
}

const struct mr_rpc_tls *cli_names_tls(const struct cli_names *names)
{
    return names->is_secure ? &names->tls : NULL;
}

const char *cli_names_given(const struct cli_value *flag, const char **ret_name)
{
    const char *text = getenv("MILLRACE_NAMESERVER");
    *ret_name = flag->given ? "--nameserver" : "MILLRACE_NAMESERVER";
    return flag->given ? flag->text : text && *text ? text : NULL;
}
