/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a broker by URL: one row per scheme; several servers of one URL. Thread: any. */
#include <stdlib.h>

#include "base/diag.h"
#include "broker/embedded/embedded.h"
#include "broker/many/many.h"
#include "broker/redis/redis.h"
#include "broker/remote/remote.h"
#include "client/client.h"
#include "names/client.h"

#define DEFAULT_PORT "7401"
#define NAMES_PORT   "7410"

enum { TOKEN_MAX = 512, ADDRESSES_MAX = 16 };

/* What is opened. */
struct opening {
    const char *url;
    const char *rest; /* behind its scheme */
    const struct mr_client_options *options;
};

typedef enum mr_err open_broker(struct mr_client *client, const struct opening *opening,
                                struct mr_detail *detail);

static enum mr_err open_file(struct mr_client *client, const struct opening *opening,
                             struct mr_detail *detail)
{
    const struct mr_client_options *options = opening->options;
    char dir[MR_PATH_MAX];
    MR_TRY(mr_url_dir(opening->url, options->namespace_, dir, detail));
    struct mr_embedded_options embedded = {
        .dir = dir,
        .payload_max = options->payload_max,
        .segment_bytes = options->segment_bytes,
        .repair = options->repair,
    };
    return mr_embedded_open(&embedded, &client->broker, detail);
}

/* ---- servers -------------------------------------------------------------------------------- */

/* Without a port it has this one. */
static enum mr_err read_address(const char *url, const char *rest, const char *default_port,
                                char address[MR_SERVER_MAX], struct mr_detail *detail)
{
    size_t len = strcspn(rest, "/");
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    bool fits = len > 0 && len + sizeof ":65535" <= MR_SERVER_MAX;
    if (fits && strspn(rest + len, "/") == strlen(rest + len)) {
        (void)snprintf(address, MR_SERVER_MAX, "%.*s", (int)len, rest);
        if (mr_host_parse(address, host, &port) == MR_OK && port != 0)
            return MR_OK;
        (void)snprintf(address, MR_SERVER_MAX, "%.*s:%s", (int)len, rest, default_port);
        if (mr_host_parse(address, host, &port) == MR_OK)
            return MR_OK;
    }
    mr_detail_set(detail, "%s: must be of the form %s://HOST:PORT", url,
                  url[0] == 'n' ? "names" : "millrace");
    return MR_INVALID;
}

enum mr_err mr_url_server(const char *url, const char *rest, char address[MR_SERVER_MAX],
                          struct mr_detail *detail)
{
    return read_address(url, rest, DEFAULT_PORT, address, detail);
}

/* It goes into a header, so it must not be able to end one; and it is never shown. */
static enum mr_err check_token(const char *token, struct mr_detail *detail)
{
    size_t len = token != NULL ? strlen(token) : 0;
    bool fine = len <= TOKEN_MAX;
    for (size_t i = 0; fine && i < len; i++)
        fine = token[i] > 0x20 && token[i] < 0x7f;
    if (!fine)
        mr_detail_set(detail, "token: must be one word of at most %d characters", TOKEN_MAX);
    return fine ? MR_OK : MR_INVALID;
}

static enum mr_err check_tls(const struct mr_client_options *options, struct mr_detail *detail)
{
    if (!options->tls_cert == !options->tls_key)
        return MR_OK;
    mr_detail_set(detail, "TLS: a certificate of our own needs its key, and the other way");
    return MR_INVALID;
}

static bool wants_tls(const struct mr_client_options *options)
{
    return options->tls_ca || options->tls_cert || options->tls_key || options->tls_name;
}

/* What holds for each server; ret_tls is for a scheme with TLS, and lives as long as ret_remote. */
static enum mr_err server_options(const struct opening *opening, struct mr_rpc_tls *ret_tls,
                                  struct mr_remote_options *ret_remote, struct mr_detail *detail)
{
    const struct mr_client_options *options = opening->options;
    bool secure = strncmp(opening->url, "millraces", strlen("millraces")) == 0 ||
                  strncmp(opening->url, "namess", strlen("namess")) == 0;
    if (!secure && wants_tls(options)) {
        mr_detail_set(detail, "%s: for TLS write %s", opening->url,
                      opening->url[0] == 'm' ? "millraces://" : MR_NAMES_TLS_SCHEME);
        return MR_INVALID;
    }
    MR_TRY(check_tls(options, detail));
    MR_TRY(check_token(options->token, detail));
    *ret_tls = (struct mr_rpc_tls){
        .cert_file = options->tls_cert,
        .key_file = options->tls_key,
        .ca_file = options->tls_ca,
        .server_name = options->tls_name,
    };
    *ret_remote = (struct mr_remote_options){
        .tls = secure ? ret_tls : NULL,
        .token = options->token,
        .namespace_ = options->namespace_,
        .payload_max = options->payload_max,
        .open_ms = options->open_ms,
        .refused = options->refused,
        .refused_arg = options->refused_arg,
    };
    return MR_OK;
}

/* ---- several servers ------------------------------------------------------------------------ */

/* The addresses of H1:P1,H2:P2. */
struct addresses {
    char text[ADDRESSES_MAX][MR_SERVER_MAX];
    const char *list[ADDRESSES_MAX];
    size_t n;
};

static enum mr_err read_addresses(const struct opening *opening, const char *port,
                                  struct addresses *ret_addresses, struct mr_detail *detail)
{
    struct addresses *a = ret_addresses;
    const char *at = opening->rest;
    a->n = 0;
    for (size_t len; *at != '\0'; at += len + (at[len] == ',')) {
        char one[MR_SERVER_MAX];
        len = strcspn(at, ",");
        if (len == 0 || len >= sizeof one || a->n == ADDRESSES_MAX) {
            mr_detail_set(detail, "%s: must be %.*sH1:P1,H2:P2 with at most %d of them",
                          opening->url, (int)(opening->rest - opening->url), opening->url,
                          ADDRESSES_MAX);
            return MR_INVALID;
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)len, at);
        MR_TRY(read_address(opening->url, one, port, a->text[a->n], detail));
        a->list[a->n] = a->text[a->n];
        a->n++;
    }
    return a->n > 0 ? MR_OK : read_address(opening->url, "", port, a->text[0], detail);
}

/* One of them must be there in time. */
static enum mr_err open_many(struct mr_client *client, const struct opening *opening,
                             const struct addresses *servers, struct mr_detail *detail)
{
    struct mr_rpc_tls tls;
    struct mr_many_options many = {.servers = servers != NULL ? servers->list : NULL,
                                   .servers_n = servers != NULL ? servers->n : 0};
    MR_TRY(server_options(opening, &tls, &many.server, detail));
    MR_TRY(mr_many_open(&many, &client->broker, detail));
    client->is_many = true;
    if (servers == NULL)
        return MR_OK;
    enum mr_err err = mr_many_await_up(client->broker, opening->options->open_ms);
    if (err != MR_OK)
        mr_detail_set(detail, "%s: no server there", opening->url);
    return err;
}

/* On the loop of the broker. */
static void servers_changed(struct mr_names_client *names, enum mr_names_kind kind, void *arg)
{
    const struct mr_client *client = arg;
    const char *addresses[MR_MANY_SERVERS_MAX];
    size_t n, known = 0;
    if (kind != MR_NAMES_SERVER)
        return;
    const struct mr_names_entry *entries = mr_names_client_list(names, kind, &n);
    for (size_t i = 0; i < n && known < MR_MANY_SERVERS_MAX; i++)
        if (entries[i].address.len > 0)
            addresses[known++] = entries[i].address.data; /* the list ends each with a NUL */
    enum mr_err err = mr_many_set_servers(client->broker, addresses, known);
    if (err != MR_OK)
        mr_diag(MR_DIAG_WARN, "servers.list", "error=%s ignoring", mr_err_name(err));
}

static enum mr_err set_authorization(struct mr_client *client, const char *token)
{
    if (token == NULL || token[0] == '\0')
        return MR_OK;
    if (asprintf(&client->authorization, "Bearer %s", token) < 0)
        client->authorization = NULL;
    return client->authorization != NULL ? MR_OK : MR_NOMEM;
}

/* names://H1:P1,H2:P2: the servers that one of these nameservers knows. */
static enum mr_err open_names(struct mr_client *client, const struct opening *opening,
                              struct mr_detail *detail)
{
    struct addresses nameservers;
    struct mr_rpc_tls tls;
    struct mr_remote_options server;
    MR_TRY(read_addresses(opening, NAMES_PORT, &nameservers, detail));
    MR_TRY(server_options(opening, &tls, &server, detail));
    MR_TRY(set_authorization(client, opening->options->token));
    MR_TRY(open_many(client, opening, NULL, detail));
    struct mr_names_client_options names = {
        .rpc = mr_many_rpc(client->broker),
        .nameservers = nameservers.list,
        .nameservers_n = nameservers.n,
        .tls = server.tls,
        .authorization = client->authorization,
        .changed = servers_changed,
        .arg = client,
    };
    MR_TRY(mr_names_client_new(&names, &client->names, detail));
    enum mr_err err = mr_many_await_up(client->broker, opening->options->open_ms);
    if (err == MR_OK)
        return MR_OK;
    enum mr_err trouble = mr_names_client_trouble(client->names, detail);
    if (trouble != MR_DENIED)
        mr_detail_set(detail, "%s: no nameserver there %s", opening->url,
                      trouble == MR_OK ? "knows a server that answers" : "answers");
    return trouble == MR_DENIED ? MR_DENIED : err;
}

static enum mr_err open_servers(struct mr_client *client, const struct opening *opening,
                                struct mr_detail *detail)
{
    struct mr_rpc_tls tls;
    struct mr_remote_options remote;
    struct addresses servers;
    char address[MR_SERVER_MAX];
    if (strchr(opening->rest, ',') != NULL) {
        MR_TRY(read_addresses(opening, DEFAULT_PORT, &servers, detail));
        return open_many(client, opening, &servers, detail);
    }
    MR_TRY(server_options(opening, &tls, &remote, detail));
    MR_TRY(mr_url_server(opening->url, opening->rest, address, detail));
    remote.address = address;
    return mr_remote_open(&remote, &client->broker, detail);
}

struct mr_broker *mr_client_server(struct mr_client *client)
{
    return client->is_many ? mr_many_pick(client->broker) : client->broker;
}

/* ---- Redis ---------------------------------------------------------------------------------- */

static enum mr_err open_redis(struct mr_client *client, const struct opening *opening,
                              struct mr_detail *detail)
{
    const struct mr_client_options *options = opening->options;
    const char *url = opening->url;
    if (wants_tls(options) && strncmp(url, "rediss", strlen("rediss")) != 0) {
        mr_detail_set(detail, "for TLS write rediss:// instead of redis://");
        return MR_INVALID;
    }
    MR_TRY(check_tls(options, detail));
    if (options->namespace_.len > 0 && mr_name_check(options->namespace_) != MR_OK) {
        mr_detail_set(detail,
                      "namespace: must be 1 to %d bytes of UTF-8 without control characters or "
                      "braces",
                      MR_NAME_MAX);
        return MR_INVALID;
    }
    struct mr_redis_broker_options redis = {
        .url = url,
        .tls_ca = options->tls_ca,
        .tls_cert = options->tls_cert,
        .tls_key = options->tls_key,
        .tls_name = options->tls_name,
        .namespace_ = options->namespace_,
        .payload_max = options->payload_max,
        .wait_replicas = options->wait_replicas,
        .archive_max = options->archive_max,
        .archive_ms = options->archive_ms,
        .open_ms = options->open_ms,
        .refused = options->refused,
        .refused_arg = options->refused_arg,
    };
    return mr_redis_broker_open(&redis, &client->broker, detail);
}

/* ---- by scheme ------------------------------------------------------------------------------ */

static const struct {
    const char *scheme;
    open_broker *open;
} schemes[] = {
    {MR_FILE_SCHEME, open_file},       {"millrace://", open_servers},
    {"millraces://", open_servers},    {MR_NAMES_SCHEME, open_names},
    {MR_NAMES_TLS_SCHEME, open_names}, {"redis:", open_redis},
    {"rediss:", open_redis},           {"redis+", open_redis},
    {"rediss+", open_redis},
};

static enum mr_err open_url(struct mr_client *client, const char *url,
                            const struct mr_client_options *options, struct mr_detail *detail)
{
    for (size_t i = 0; url && i < sizeof schemes / sizeof *schemes; i++) {
        size_t len = strlen(schemes[i].scheme);
        if (strncmp(url, schemes[i].scheme, len) != 0)
            continue;
        struct opening opening = {.url = url, .rest = url + len, .options = options};
        return schemes[i].open(client, &opening, detail);
    }
    char shown[MR_URL_SHOWN_MAX];
    mr_detail_set(detail, "%s: must be file:DIR, millrace://HOST:PORT or redis://HOST:PORT",
                  url ? mr_url_shown(url, shown) : "(no URL)");
    return url && strchr(url, ':') ? MR_UNSUPPORTED : MR_INVALID;
}

/* Timers and jobs of a folder are kept in it, unless they are to be elsewhere. */
static enum mr_err set_store(struct mr_client *client, const char *url,
                             const struct mr_client_options *options)
{
    char dir[MR_PATH_MAX];
    client->payload_max = options->payload_max;
    client->answer_ms = options->answer_ms;
    client->timers_max = options->timers_max;
    client->affinity = options->affinity;
    client->is_redis = mr_url_is_redis(url);
    bool is_file = strncmp(url, MR_FILE_SCHEME, strlen(MR_FILE_SCHEME)) == 0;
    if (!is_file && (!client->is_redis || options->store == NULL))
        return MR_OK;
    if (is_file)
        MR_TRY(mr_url_dir(url, options->namespace_, dir, NULL));
    if (options->store != NULL)
        client->store_url = strdup(options->store);
    else if (asprintf(&client->store_url, "sqlite:%s/store.db", dir) < 0)
        client->store_url = NULL;
    return client->store_url != NULL ? MR_OK : MR_NOMEM;
}

enum mr_err mr_client_open(const char *url, const struct mr_client_options *options,
                           struct mr_client **ret_client, struct mr_detail *detail)
{
    static const struct mr_client_options defaults;
    options = options ? options : &defaults;
    if (options->payload_max > MR_PAYLOAD_HARD_MAX) {
        mr_detail_set(detail, "payload limit: %zu bytes, at most %d", options->payload_max,
                      MR_PAYLOAD_HARD_MAX);
        return MR_INVALID;
    }
    struct mr_client *client = calloc(1, sizeof *client);
    if (!client)
        return MR_NOMEM;
    mr_lock_init(&client->timers_lock);
    enum mr_err err = open_url(client, url, options, detail);
    if (err == MR_OK)
        err = set_store(client, url, options);
    if (err != MR_OK) {
        mr_client_close(client);
        return err;
    }
    *ret_client = client;
    return MR_OK;
}
