/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to a server that are no business of the broker's contract: one connection for one call. The
 * main thread waits; everything else happens on the loop of the rpc.
 */
#include "cli/server.h"

#include <errno.h>
#include <stdlib.h>

#include "client/client.h"
#include "rpc/rpc.h"

#define PLAIN_SCHEME "millrace://"
#define TLS_SCHEME   "millraces://"

enum { CALL_MS = 15 * 1000, TOKEN_FILE_MAX = 4096 };

/* ---- the token ------------------------------------------------------------------------------ */

static int read_token(const char *path, struct mr_buf *buf)
{
    char text[TOKEN_FILE_MAX + 1];
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_fail_err(mr_err_from_errno(errno), "cannot read the token in %s", path);
    size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    size_t begin = 0, end = n;
    while (begin < end && strchr(" \t\r\n", text[begin]))
        begin++;
    while (end > begin && strchr(" \t\r\n", text[end - 1]))
        end--;
    if (begin == end || n > TOKEN_FILE_MAX || memchr(text + begin, '\n', end - begin))
        return cli_fail(CLI_USAGE, "%s: not a file with a token", path);
    cli_must(mr_buf_append(buf, text + begin, end - begin));
    return CLI_OK;
}

int cli_token_read(const char *path, struct mr_buf *buf)
{
    int code = read_token(path, buf);
    cli_must(mr_buf_append(buf, "", 1));
    buf->len--;
    return code;
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

int cli_token_text(const struct cli *cli, struct mr_buf *buf)
{
    const char *text = variable("MILLRACE_TOKEN"), *path = variable("MILLRACE_TOKEN_FILE");
    int code = CLI_OK;
    if (cli->globals.token_file.given)
        code = read_token(cli->globals.token_file.text, buf);
    else if (text)
        cli_must(mr_buf_append(buf, text, strlen(text)));
    else if (path)
        code = read_token(path, buf);
    cli_must(mr_buf_append(buf, "", 1));
    buf->len--;
    return code;
}

/* ---- the address, and TLS ------------------------------------------------------------------- */

static bool has_scheme(const char *url, const char *scheme)
{
    return mr_slice_starts_with(mr_slice_str(url), mr_slice_str(scheme));
}

bool cli_is_redis(const char *url)
{
    return mr_url_is_redis(url);
}

bool cli_is_names(const char *url)
{
    return has_scheme(url, MR_NAMES_SCHEME) || has_scheme(url, MR_NAMES_TLS_SCHEME);
}

static bool is_secure(const char *url)
{
    return has_scheme(url, TLS_SCHEME) || has_scheme(url, MR_NAMES_TLS_SCHEME) ||
           (cli_is_redis(url) && has_scheme(url, "rediss"));
}

bool cli_is_server(const char *url)
{
    return has_scheme(url, TLS_SCHEME) || has_scheme(url, PLAIN_SCHEME);
}

int cli_look_at_file(const char *name, const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return cli_fail_err(mr_err_from_errno(errno), "%s: cannot read %s", name, path);
    fclose(file);
    return CLI_OK;
}

int cli_tls(const struct cli *cli, struct cli_tls *ret_tls)
{
    const struct {
        const char *flag, *variable;
        const struct cli_value *given;
        const char **ret;
    } rows[] = {
        {"--tls-ca", "MILLRACE_TLS_CA", &cli->globals.tls_ca, &ret_tls->ca},
        {"--tls-cert", "MILLRACE_TLS_CERT", &cli->globals.tls_cert, &ret_tls->cert},
        {"--tls-key", "MILLRACE_TLS_KEY", &cli->globals.tls_key, &ret_tls->key},
    };
    *ret_tls = (struct cli_tls){0};
    for (size_t i = 0; i < CLI_LEN(rows); i++) {
        if (rows[i].given->given && !is_secure(cli->broker))
            return cli_usage(cli,
                             "%s is for a broker with TLS, " TLS_SCHEME
                             "HOST:PORT or rediss://HOST:PORT, not %.200s",
                             rows[i].flag, cli->shown);
        if (!is_secure(cli->broker))
            continue;
        *rows[i].ret = rows[i].given->given ? rows[i].given->text : variable(rows[i].variable);
        int code = *rows[i].ret ? cli_look_at_file(rows[i].flag, *rows[i].ret) : CLI_OK;
        if (code != CLI_OK)
            return code;
    }
    if (!ret_tls->cert != !ret_tls->key)
        return cli_usage(cli, "--tls-%s needs --tls-%s beside it", ret_tls->cert ? "cert" : "key",
                         ret_tls->cert ? "key" : "cert");
    return CLI_OK;
}

/* ---- one call ------------------------------------------------------------------------------- */

struct one_call {
    const char *path;
    int64_t ms; /* at most */
    struct mr_slice request;
    struct mr_buf *answer;
    bool begun;
    enum mr_err err; /* until ended is set, the loop's */
    struct mr_detail why;
    struct mr_event ended;
};

static void end(struct one_call *one, enum mr_err err, struct mr_slice why)
{
    if (mr_event_is_set(&one->ended))
        return;
    one->err = err;
    mr_detail_set(&one->why, "%.*s", (int)why.len, (const char *)why.data);
    mr_event_set(&one->ended);
}

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct one_call *one = mr_call_data(call);
    cli_must(mr_buf_append_slice(one->answer, bytes));
}

/* The server's own word for how it ended, or what the transport says. */
static enum mr_err err_of(const struct mr_call *call, int status)
{
    static const enum mr_err by_status[] = {
        [MR_RPC_INVALID] = MR_INVALID,         [MR_RPC_DEADLINE] = MR_TIMEOUT,
        [MR_RPC_DENIED] = MR_DENIED,           [MR_RPC_UNIMPLEMENTED] = MR_UNSUPPORTED,
        [MR_RPC_UNAVAILABLE] = MR_UNAVAILABLE, [MR_RPC_UNAUTHENTICATED] = MR_DENIED,
    };
    if (status == MR_RPC_OK)
        return MR_OK;
    struct mr_slice name = mr_call_metadata(call, "millrace-code");
    for (enum mr_err err = MR_FAILED; err < MR_ERR_COUNT; err++)
        if (mr_slice_equal(name, mr_slice_str(mr_err_name(err))))
            return err;
    bool known = status > 0 && (size_t)status < CLI_LEN(by_status) && by_status[status] != MR_OK;
    return known ? by_status[status] : MR_FAILED;
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    end(mr_call_data(call), err_of(call, status), text);
}

static const struct mr_call_ops ops = {.message = on_message, .closed = on_closed};

static void on_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct one_call *one = arg;
    struct mr_call *call;
    if (!up) {
        end(one, MR_UNAVAILABLE, mr_slice_str(why ? why : ""));
        return;
    }
    if (one->begun)
        return;
    one->begun = true;
    enum mr_err err = mr_channel_call(channel, one->path, one->ms, &ops, one, &call);
    if (err == MR_OK)
        err = mr_call_send(call, one->request);
    if (err == MR_OK)
        mr_call_half_close(call);
    else
        end(one, err, mr_slice_str(mr_err_text(err)));
}

static enum mr_err call_address(const struct cli_address *at, struct one_call *one)
{
    struct mr_rpc *rpc;
    struct mr_channel *channel = NULL;
    struct mr_channel_options options = {
        .address = at->address,
        .tls = at->tls,
        .authorization = at->authorization,
        .changed = on_changed,
        .arg = one,
    };
    MR_TRY(mr_rpc_new("mr-call", NULL, &rpc));
    enum mr_err err = mr_channel_new(rpc, &options, &channel, &one->why);
    if (err == MR_OK && !mr_event_wait(&one->ended, one->ms * MR_NS_PER_MS))
        err = MR_TIMEOUT;
    mr_channel_free(channel); /* from here on the loop leaves `one` alone */
    mr_rpc_free(rpc);
    return err == MR_OK ? one->err : err;
}

enum mr_err cli_call_address(const struct cli_address *at, const char *path,
                             struct mr_slice request, struct mr_buf *ret_answer,
                             struct mr_detail *why)
{
    struct one_call one = {.path = path, .ms = at->ms, .request = request, .answer = ret_answer};
    mr_event_init(&one.ended);
    enum mr_err err = call_address(at, &one);
    *why = one.why;
    if (!why->text[0])
        mr_detail_set(why, "%s: %s", at->address, mr_err_text(err));
    return err;
}

static enum mr_err call_at(const char *url, const struct cli_tls *chosen, const char *authorization,
                           struct one_call *one)
{
    struct mr_rpc_tls tls = {
        .ca_file = chosen->ca, .cert_file = chosen->cert, .key_file = chosen->key};
    bool secure = is_secure(url);
    const char *rest = url + strlen(secure ? TLS_SCHEME : PLAIN_SCHEME);
    char address[MR_SERVER_MAX];
    MR_TRY(mr_url_server(url, rest, address, &one->why));
    struct cli_address at = {
        .address = address, .tls = secure ? &tls : NULL, .authorization = authorization};
    return call_address(&at, one);
}

/* One server after the other, until one is there. */
static enum mr_err call_list(const char *url, const struct cli_tls *tls, const char *authorization,
                             struct one_call *one)
{
    const char *at = url + strlen(is_secure(url) ? TLS_SCHEME : PLAIN_SCHEME);
    int scheme = (int)(at - url);
    for (;;) {
        int len = (int)strcspn(at, ",");
        char each[MR_SERVER_MAX + sizeof TLS_SCHEME];
        (void)snprintf(each, sizeof each, "%.*s%.*s", scheme, url, len, at);
        enum mr_err err = call_at(each, tls, authorization, one);
        if ((err != MR_UNAVAILABLE && err != MR_TIMEOUT) || at[len] == '\0')
            return err;
        at += len + 1;
        mr_buf_clear(one->answer);
        *one = (struct one_call){
            .path = one->path, .ms = one->ms, .request = one->request, .answer = one->answer};
        mr_event_init(&one->ended);
    }
}

typedef enum mr_err call_way(const char *url, const struct cli_tls *tls, const char *authorization,
                             struct one_call *one);

static int call_by(call_way *way, const struct cli *cli, const char *what, const char *path,
                   struct mr_slice request, struct mr_buf *ret_answer)
{
    struct one_call one = {.path = path, .ms = CALL_MS, .request = request, .answer = ret_answer};
    struct mr_buf token = {0}, authorization = {0};
    mr_event_init(&one.ended);
    struct cli_tls tls = {0};
    int code = cli_token_text(cli, &token);
    if (code == CLI_OK)
        code = cli_tls(cli, &tls);
    if (code == CLI_OK) {
        cli_must(mr_buf_printf(&authorization, "Bearer %s", (const char *)token.data));
        cli_must(mr_buf_append(&authorization, "", 1));
        enum mr_err err =
            way(cli->broker, &tls, token.len > 0 ? (const char *)authorization.data : NULL, &one);
        if (err != MR_OK)
            code = cli_fail_detail(err, what, cli->shown, &one.why);
    }
    mr_buf_done(&token);
    mr_buf_done(&authorization);
    return code;
}

int cli_call(const struct cli *cli, const char *what, const char *path, struct mr_slice request,
             struct mr_buf *ret_answer)
{
    return call_by(call_at, cli, what, path, request, ret_answer);
}

int cli_call_any(const struct cli *cli, const char *what, const char *path, struct mr_slice request,
                 struct mr_buf *ret_answer)
{
    return call_by(call_list, cli, what, path, request, ret_answer);
}
