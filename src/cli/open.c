/* SPDX-License-Identifier: Apache-2.0 */
/* Getting at the broker and at standard input. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "client/client.h"

#define DEFAULT_BROKER "millrace://127.0.0.1:7401"

/* Flag, then environment, then default; an empty variable counts as none. */
static const char *setting(const struct cli_value *flag, const char *variable, const char *fallback)
{
    const char *from_env = getenv(variable);
    if (flag->given)
        return flag->text;
    return from_env && *from_env ? from_env : fallback;
}

/* Who has nameservers and no other broker uses the servers that they know. */
static const char *default_broker(const struct cli *cli)
{
    static char url[MR_PATH_MAX];
    const char *list = getenv("MILLRACE_NAMESERVER"), *ca = getenv("MILLRACE_TLS_CA");
    bool secure = cli->globals.tls_ca.given || (ca && *ca);
    if (!list || !*list)
        return DEFAULT_BROKER;
    const char *rest = strstr(list, "://"); /* it may say itself whether there is TLS */
    if (rest) {
        secure = rest > list && rest[-1] == 's' && strncmp(list, "names://", 8) != 0;
        list = rest + 3;
    }
    snprintf(url, sizeof url, "%s%s", secure ? MR_NAMES_TLS_SCHEME : MR_NAMES_SCHEME, list);
    return url;
}

void cli_settle(struct cli *cli)
{
    cli->broker = setting(&cli->globals.broker, "MILLRACE_BROKER", default_broker(cli));
    (void)mr_url_shown(cli->broker, cli->shown);
    cli->namespace_ = setting(&cli->globals.namespace_, "MILLRACE_NAMESPACE", "");
    cli->json = cli->globals.json.given;
    cli->quiet = cli->globals.quiet.given;
}

const char *cli_file_dir(const char *url)
{
    static const char scheme[] = "file:";
    return strncmp(url, scheme, strlen(scheme)) == 0 ? url + strlen(scheme) : NULL;
}

/* What to do about a server that does not answer, by what was heard of it. */
static const char *advice(const char *why)
{
    static const struct {
        const char *heard, *advice;
    } rows[] = {
        {"cannot find the host", "is its name spelt right?"},
        {"no nameserver", "start one with `millrace nameserver`, or give the address of one"},
        {"nobody listens", "start one with `millrace serve`, or give the address of one"},
        {"closed the connection", "it may want TLS: millraces://HOST:PORT"},
        {"wrong version number", "it may have no TLS: millrace://HOST:PORT"},
        {"mismatch", "the certificate must have the name or address that --broker gives"},
        {"certificate of the peer", "--tls-ca FILE names whom to trust"},
        {"certificate required", "--tls-cert and --tls-key show one"},
        {"alert unknown ca", "the server does not trust the certificate of --tls-cert"},
        {"the connection ended",
         "is it a Millrace server, and its port for gRPC? That is 7401 unless "
         "it was told otherwise; 7400 is for HTTP"},
        {"the connection broke", "a server with TLS may want a certificate: --tls-cert, --tls-key"},
    };
    for (size_t i = 0; i < CLI_LEN(rows); i++)
        if (strstr(why, rows[i].heard))
            return rows[i].advice;
    return "is it a Millrace server?";
}

int cli_fail_open(const struct cli *cli, enum mr_err err, const struct mr_detail *detail)
{
    if (cli_is_redis(cli->broker) && detail->text[0]) /* it says what to do */
        return cli_fail_detail(err, "cannot use", cli->shown, detail);
    if (err == MR_UNSUPPORTED)
        return cli_usage(cli,
                         "--broker: \"%.200s\" is no URL of a broker; give millrace://HOST:PORT, "
                         "redis://HOST:PORT or file:DIR",
                         cli->shown);
    if (err == MR_UNAVAILABLE && detail->text[0]) /* it names the address */
        return cli_fail(mr_err_exit_code(err), "%s; %s", detail->text, advice(detail->text));
    if (err == MR_IN_USE && detail->text[0]) /* mostly it is the server that one has just started */
        return cli_fail(mr_err_exit_code(err),
                        "cannot open %s: %s; if that one is a server, use it: "
                        "--broker millrace://127.0.0.1:7401",
                        cli->shown, detail->text);
    return cli_fail_detail(err, "cannot open", cli->shown, detail);
}

static void ignore(const char *name, void *arg)
{
    (void)name;
    (void)arg;
}

enum mr_err cli_look_at_folder(const char *dir)
{
    struct mr_fs *fs = mr_fs_system();
    return fs->ops->dir_list(fs, dir, ignore, NULL);
}

static void look_at(const char *name, void *arg)
{
    if (strcmp(name, "meta") == 0 || strncmp(name, "log-", 4) == 0)
        *(bool *)arg = true;
}

bool cli_store_missing(const struct cli *cli)
{
    char dir[MR_PATH_MAX];
    bool found = false;
    struct mr_fs *fs = mr_fs_system();
    enum mr_err err = mr_url_dir(cli->broker, mr_slice_str(cli->namespace_), dir, NULL);
    if (err == MR_OK)
        err = fs->ops->dir_list(fs, dir, look_at, &found);
    return !found && (err == MR_OK || err == MR_NOT_FOUND);
}

/* Looking into a folder where no store is must not leave an empty one behind. */
static int check_exists(const struct cli *cli)
{
    if (!cli_store_missing(cli))
        return CLI_OK; /* opening tells what is wrong, if anything is */
    if (*cli->namespace_)
        return cli_fail(CLI_NOT_FOUND, "no namespace %s at %s; millrace enqueue makes one",
                        cli->namespace_, cli->shown);
    return cli_fail(CLI_NOT_FOUND, "no store at %s; millrace enqueue makes one", cli->shown);
}

/* Of the flag, else of the variable of its name, else 0. */
static int number_of(const struct cli_option *option, const struct cli_value *flag,
                     int64_t *ret_number)
{
    char variable[64];
    settings_variable(option, variable);
    const char *text = setting(flag, variable, NULL);
    struct cli_value value = {.text = text};
    struct mr_detail why = {0};
    if (text != NULL && cli_value_parse(option, &value, &why) != MR_OK)
        return cli_fail(CLI_USAGE, "%s: \"%.200s\" %s", variable, text, why.text);
    *ret_number = text != NULL ? value.number : 0;
    return CLI_OK;
}

/* A number for a Redis, 0 for others. */
static int redis_number(const struct cli *cli, const struct cli_option *option,
                        const struct cli_value *flag, int64_t *ret_number)
{
    *ret_number = 0;
    if (cli_is_redis(cli->broker))
        return number_of(option, flag, ret_number);
    if (flag->given)
        return cli_usage(cli, "--%s is for a Redis, redis://HOST:PORT, not %.200s", option->name,
                         cli->shown);
    return CLI_OK;
}

/* Of a folder that may be new. */
static int log_segment(const struct cli *cli, struct mr_client_options *options)
{
    static const struct cli_option option = {CLI_LOG_SEGMENT_ROW};
    static const struct cli_value no_flag;
    bool far = cli_is_server(cli->broker) || cli_is_names(cli->broker) || cli_is_redis(cli->broker);
    int64_t bytes = 0;
    int code = far ? CLI_OK : number_of(&option, &no_flag, &bytes);
    options->segment_bytes = (size_t)bytes;
    return code;
}

/* What --wait-replicas says, or MILLRACE_WAIT_REPLICAS; for a Redis only. 0, or the exit code after
 * saying what is wrong. */
static int cli_wait_replicas(const struct cli *cli, uint32_t *ret_n)
{
    static const struct cli_option option = {
        .name = "wait-replicas", .kind = CLI_COUNT, .max = CLI_WAIT_REPLICAS_MAX};
    int64_t n;
    int code = redis_number(cli, &option, &cli->globals.wait_replicas, &n);
    *ret_n = (uint32_t)n;
    return code;
}

int cli_archive_limits(const struct cli *cli, const struct cli_value *max,
                       const struct cli_value *keep, struct mr_client_options *options)
{
    static const struct cli_option max_option = {CLI_ARCHIVE_MAX_ROW},
                                   keep_option = {CLI_ARCHIVE_FOR_ROW};
    int64_t most = 0;
    int code = redis_number(cli, &max_option, max, &most);
    options->archive_max = (uint32_t)most;
    return code == CLI_OK ? redis_number(cli, &keep_option, keep, &options->archive_ms) : code;
}

void cli_note_risk(const struct cli *cli)
{
    struct mr_detail line = {0};
    if (!cli->quiet && !cli->json && mr_client_risk(cli->client, &line) == MR_OK && line.text[0])
        cli_note(cli, "%s", line.text);
}

int cli_open(struct cli *cli, const struct mr_client_options *options, enum cli_store store)
{
    if (!*cli->broker)
        return cli_usage(cli, "--broker: \"\" is empty; give file:DIR");
    struct cli_tls tls = {0};
    uint32_t wait_replicas = 0;
    int code = cli_tls(cli, &tls);
    if (code == CLI_OK)
        code = cli_wait_replicas(cli, &wait_replicas);
    if (code == CLI_OK && store == CLI_STORE_MUST_EXIST)
        code = check_exists(cli);
    if (code != CLI_OK)
        return code;
    struct mr_client_options chosen = {0};
    if (options)
        chosen = *options;
    code = log_segment(cli, &chosen);
    if (code != CLI_OK)
        return code;
    chosen.namespace_ = mr_slice_str(cli->namespace_);
    chosen.wait_replicas = wait_replicas;
    chosen.refused = cli_refusals();
    struct mr_buf token = {0};
    struct mr_detail detail = {0};
    if (cli_is_server(cli->broker) || cli_is_names(cli->broker))
        code = cli_token_text(cli, &token);
    chosen.tls_ca = tls.ca;
    chosen.tls_cert = tls.cert;
    chosen.tls_key = tls.key;
    chosen.token = token.len > 0 ? (const char *)token.data : NULL;
    enum mr_err err = MR_OK;
    if (code == CLI_OK)
        err = mr_client_open(cli->broker, &chosen, &cli->client, &detail);
    mr_buf_done(&token);
    if (err != MR_OK)
        return cli_fail_open(cli, err, &detail);
    return code;
}

enum mr_err cli_read_stdin(struct mr_buf *buf, size_t max)
{
    enum { CHUNK = 64 * 1024 };
    for (;;) {
        MR_TRY(mr_buf_reserve(buf, CHUNK));
        ssize_t n = read(STDIN_FILENO, buf->data + buf->len, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return mr_err_from_errno(errno);
        if (n == 0)
            return MR_OK;
        buf->len += (size_t)n;
        if (buf->len > max)
            return MR_TOO_BIG;
    }
}
