/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a broker by URL: one row per scheme; several servers of one URL. Thread: any. */
#include <stdlib.h>

#include "broker/door.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "broker/remote/remote.h"
#include "client/client.h"

#define DEFAULT_PORT "7401"

enum { TOKEN_MAX = 512 };

/* What is opened. */
struct opening {
    const char *url;
    const char *rest; /* behind its scheme, or one of the servers there */
    const struct mr_client_options *options;
    bool later; /* the server need not be there yet */
};

typedef enum mr_err open_broker(const struct opening *opening, struct mr_broker **ret_broker,
                                struct mr_detail *detail);

static enum mr_err open_file(const struct opening *opening, struct mr_broker **ret_broker,
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
    return mr_embedded_open(&embedded, ret_broker, detail);
}

/* ---- servers -------------------------------------------------------------------------------- */

enum mr_err mr_url_server(const char *url, const char *rest, char address[MR_SERVER_MAX],
                          struct mr_detail *detail)
{
    size_t len = strcspn(rest, "/");
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    bool fits = len > 0 && len + sizeof ":" DEFAULT_PORT <= MR_SERVER_MAX;
    if (fits && strspn(rest + len, "/") == strlen(rest + len)) {
        (void)snprintf(address, MR_SERVER_MAX, "%.*s", (int)len, rest);
        if (mr_host_parse(address, host, &port) == MR_OK && port != 0)
            return MR_OK;
        (void)snprintf(address, MR_SERVER_MAX, "%.*s:" DEFAULT_PORT, (int)len, rest);
        if (mr_host_parse(address, host, &port) == MR_OK)
            return MR_OK;
    }
    mr_detail_set(detail, "%s: must be of the form millrace://HOST:PORT", url);
    return MR_INVALID;
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

static enum mr_err open_server(const struct opening *opening, const struct mr_rpc_tls *tls,
                               struct mr_broker **ret_broker, struct mr_detail *detail)
{
    const struct mr_client_options *options = opening->options;
    char address[MR_SERVER_MAX];
    MR_TRY(mr_url_server(opening->url, opening->rest, address, detail));
    MR_TRY(check_token(options->token, detail));
    struct mr_remote_options remote = {
        .address = address,
        .tls = tls,
        .token = options->token,
        .namespace_ = options->namespace_,
        .payload_max = options->payload_max,
        .open_ms = options->open_ms,
        .later = opening->later,
        .refused = options->refused,
        .refused_arg = options->refused_arg,
    };
    return mr_remote_open(&remote, ret_broker, detail);
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

static enum mr_err open_plain(const struct opening *opening, struct mr_broker **ret_broker,
                              struct mr_detail *detail)
{
    if (wants_tls(opening->options)) {
        mr_detail_set(detail, "%s: for TLS write millraces://", opening->url);
        return MR_INVALID;
    }
    return open_server(opening, NULL, ret_broker, detail);
}

static enum mr_err open_tls(const struct opening *opening, struct mr_broker **ret_broker,
                            struct mr_detail *detail)
{
    const struct mr_client_options *options = opening->options;
    MR_TRY(check_tls(options, detail));
    struct mr_rpc_tls tls = {
        .cert_file = options->tls_cert,
        .key_file = options->tls_key,
        .ca_file = options->tls_ca,
        .server_name = options->tls_name,
    };
    return open_server(opening, &tls, ret_broker, detail);
}

/* ---- Redis ---------------------------------------------------------------------------------- */

static enum mr_err open_redis(const struct opening *opening, struct mr_broker **ret_broker,
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
    return mr_redis_broker_open(&redis, ret_broker, detail);
}

/* ---- by scheme ------------------------------------------------------------------------------ */

static const struct {
    const char *scheme;
    open_broker *open;
} schemes[] = {
    {MR_FILE_SCHEME, open_file}, {"millrace://", open_plain}, {"millraces://", open_tls},
    {"redis:", open_redis},      {"rediss:", open_redis},     {"redis+", open_redis},
    {"rediss+", open_redis},
};

/* One of several servers must be there in time; it is the one that has tasks. */
static enum mr_err await_one(struct mr_client *client, const struct opening *opening,
                             struct mr_detail *detail)
{
    struct mr_clock *clock = mr_clock_system();
    int64_t open_ms = opening->options->open_ms;
    mr_mono end = mr_mono_add_ms(mr_mono_now(clock), open_ms > 0 ? open_ms : MR_DOOR_OPEN_MS);
    struct mr_event never;
    mr_event_init(&never);
    do {
        for (size_t i = 0; i < client->servers_n; i++) {
            if (!mr_remote_is_up(client->servers[i]))
                continue;
            client->broker = client->servers[i];
            return MR_OK;
        }
        (void)mr_event_wait(&never, 5 * MR_NS_PER_MS);
    } while (mr_mono_now(clock).ns < end.ns);
    mr_detail_set(detail, "%s: no server there", opening->url);
    return MR_UNAVAILABLE;
}

/* H1:P1,H2:P2: all of them, whether they are there or not. */
static enum mr_err open_servers(struct mr_client *client, open_broker *open, struct opening opening,
                                struct mr_detail *detail)
{
    const char *at = opening.rest;
    char one[MR_SERVER_MAX];
    opening.later = true;
    opening.rest = one;
    for (size_t len; *at != '\0'; at += len + (at[len] == ',')) {
        len = strcspn(at, ",");
        if (len == 0 || len >= sizeof one || client->servers_n == MR_SERVERS_MAX) {
            mr_detail_set(detail, "%s: must be millrace://H1:P1,H2:P2 with at most %d servers",
                          opening.url, MR_SERVERS_MAX);
            return MR_INVALID;
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)len, at);
        MR_TRY(open(&opening, &client->servers[client->servers_n], detail));
        client->servers_n++;
    }
    return await_one(client, &opening, detail);
}

static enum mr_err open_url(struct mr_client *client, const char *url,
                            const struct mr_client_options *options, struct mr_detail *detail)
{
    for (size_t i = 0; url && i < sizeof schemes / sizeof *schemes; i++) {
        size_t len = strlen(schemes[i].scheme);
        if (strncmp(url, schemes[i].scheme, len) != 0)
            continue;
        struct opening opening = {.url = url, .rest = url + len, .options = options};
        bool many = strchr(url + len, ',') != NULL && strncmp(url, "millrace", 8) == 0;
        return many ? open_servers(client, schemes[i].open, opening, detail)
                    : schemes[i].open(&opening, &client->broker, detail);
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
