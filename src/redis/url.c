/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a URL says. The forms:
 *
 *   redis://[USER:PASSWORD@]HOST[:PORT][/DB]         rediss:// with TLS
 *   redis+unix:PATH[?db=DB]                          redis+unix://[USER:PASSWORD@]/PATH
 *   redis+sentinel://[USER:PASSWORD@]H1:P1,H2:P2/NAME[/DB]
 *   redis+cluster://[USER:PASSWORD@]H1:P1,H2:P2      both with rediss+... for TLS
 *
 * USER and PASSWORD are percent-encoded. No message repeats anything of the URL but its scheme: a
 * password that was not encoded may stand anywhere in it.
 */
#include <stdlib.h>

#include "base/text.h"
#include "redis/internal.h"

enum { PORT = 6379, SENTINEL_PORT = 26379, DB_MAX = 1 << 20 };

struct scheme {
    const char *prefix;
    enum mr_redis_kind kind;
    bool tls, is_unix;
    uint16_t port;
};

static const struct scheme schemes[] = {
    {"redis://", MR_REDIS_SINGLE, false, false, PORT},
    {"rediss://", MR_REDIS_SINGLE, true, false, PORT},
    {"redis+unix:", MR_REDIS_SINGLE, false, true, 0},
    {"redis+sentinel://", MR_REDIS_SENTINEL, false, false, SENTINEL_PORT},
    {"rediss+sentinel://", MR_REDIS_SENTINEL, true, false, SENTINEL_PORT},
    {"redis+cluster://", MR_REDIS_CLUSTER, false, false, PORT},
    {"rediss+cluster://", MR_REDIS_CLUSTER, true, false, PORT},
};

static enum mr_err wrong(struct mr_detail *detail, const char *what)
{
    mr_detail_set(detail, "the URL of the Redis: %s", what);
    return MR_INVALID;
}

static char *copy(struct mr_slice text)
{
    return strndup(text.data, text.len);
}

/* ---- user and password ---------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum mr_err decode(struct mr_slice text, char **ret_text, struct mr_detail *detail)
{
    const char *in = text.data;
    char *out = malloc(text.len + 1);
    if (out == NULL)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        out[n++] = in[i];
        if (in[i] != '%')
            continue;
        int high = text.len - i > 2 ? hex_digit(in[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(in[i + 2]) : -1;
        if (low < 0 || high * 16 + low == 0) {
            free(out);
            return wrong(detail, "a '%' in user or password is not followed by two hex digits");
        }
        out[n - 1] = (char)(high * 16 + low);
        i += 2;
    }
    out[n] = '\0';
    *ret_text = out;
    return MR_OK;
}

static enum mr_err read_user(struct mr_slice text, struct redis_url *url, struct mr_detail *detail)
{
    const char *colon = memchr(text.data, ':', text.len);
    if (colon == NULL)
        return wrong(detail, "what is before '@' must be USER:PASSWORD or :PASSWORD");
    size_t user_len = (size_t)(colon - (const char *)text.data);
    if (user_len > 0)
        MR_TRY(decode(mr_slice_make(text.data, user_len), &url->user, detail));
    return decode(mr_slice_make(colon + 1, text.len - user_len - 1), &url->password, detail);
}

/* ---- hosts ---------------------------------------------------------------------------------- */

static enum mr_err read_host(struct mr_slice text, uint16_t port, struct redis_host *host,
                             struct mr_detail *detail)
{
    char full[MR_HOST_MAX + 16];
    if (text.len == 0)
        return wrong(detail, "a host is missing");
    if (text.len > MR_HOST_MAX)
        return wrong(detail, "a host is too long");
    const char *start = text.data;
    const char *bracket = memchr(start, ']', text.len);
    const char *from = bracket != NULL ? bracket : start;
    bool has_port = memchr(from, ':', text.len - (size_t)(from - start)) != NULL;
    int len = has_port ? snprintf(full, sizeof full, "%.*s", (int)text.len, start)
                       : snprintf(full, sizeof full, "%.*s:%u", (int)text.len, start, port);
    if (len < 0 || memchr(start, '\0', text.len) != NULL)
        return wrong(detail, "a host is not HOST:PORT");
    if (mr_host_parse(full, host->name, &host->port) != MR_OK || host->port == 0 ||
        host->name[0] == '\0')
        return wrong(detail, "a host must be HOST:PORT, [IPv6]:PORT or HOST");
    return MR_OK;
}

static enum mr_err read_hosts(struct mr_slice text, const struct scheme *scheme,
                              struct redis_url *url, struct mr_detail *detail)
{
    const char *at = text.data, *end = at + text.len;
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        if (url->hosts_n == REDIS_HOSTS_MAX)
            return wrong(detail, "it names too many hosts");
        MR_TRY(read_host(mr_slice_make(at, (size_t)(stop - at)), scheme->port,
                         &url->hosts[url->hosts_n++], detail));
        if (comma == NULL)
            break;
        at = comma + 1;
    }
    if (url->kind == MR_REDIS_SINGLE && url->hosts_n > 1)
        return wrong(detail, "several hosts need redis+sentinel:// or redis+cluster://");
    return MR_OK;
}

static enum mr_err read_db(struct mr_slice text, struct redis_url *url, struct mr_detail *detail)
{
    char number[16];
    if (text.len == 0)
        return MR_OK;
    int len = snprintf(number, sizeof number, "%.*s", (int)text.len, (const char *)text.data);
    if (len >= (int)sizeof number || mr_parse_int64(number, &url->db) != MR_OK || url->db < 0 ||
        url->db > DB_MAX)
        return wrong(detail, "the database must be a number");
    return MR_OK;
}

/* ---- the forms ------------------------------------------------------------------------------ */

/* What is behind the hosts: path has no '/' at its begin. */
static enum mr_err read_path(struct mr_slice path, struct redis_url *url, struct mr_detail *detail)
{
    if (url->kind == MR_REDIS_SINGLE)
        return read_db(path, url, detail);
    if (url->kind == MR_REDIS_CLUSTER)
        return path.len == 0 ? MR_OK : wrong(detail, "a Cluster has no databases");
    const char *slash = memchr(path.data, '/', path.len);
    size_t len = slash != NULL ? (size_t)(slash - (const char *)path.data) : path.len;
    if (len == 0)
        return wrong(detail, "behind the Sentinels, '/' and the name of the deployment must stand");
    url->service = copy(mr_slice_make(path.data, len));
    if (url->service == NULL)
        return MR_NOMEM;
    return slash != NULL ? read_db(mr_slice_make(slash + 1, path.len - len - 1), url, detail)
                         : MR_OK;
}

/* [USER:PASSWORD@] off the front of what is up to the first '/'; *ret_rest: the hosts. */
static enum mr_err read_authority(struct mr_slice text, struct redis_url *url,
                                  struct mr_slice *ret_rest, struct mr_detail *detail)
{
    const char *at = memrchr(text.data, '@', text.len);
    *ret_rest = text;
    if (at == NULL)
        return MR_OK;
    size_t len = (size_t)(at - (const char *)text.data);
    *ret_rest = mr_slice_make(at + 1, text.len - len - 1);
    return read_user(mr_slice_make(text.data, len), url, detail);
}

static enum mr_err read_tcp(const char *text, const struct scheme *scheme, struct redis_url *url,
                            struct mr_detail *detail)
{
    size_t len = strcspn(text, "/?#");
    struct mr_slice hosts;
    if (strchr(text + len, '@') != NULL)
        return wrong(detail, "'/', '?', '#', '@', ':' and '%' in a user or a password are written "
                             "%2F, %3F, %23, %40, %3A and %25");
    MR_TRY(read_authority(mr_slice_make(text, len), url, &hosts, detail));
    MR_TRY(read_hosts(hosts, scheme, url, detail));
    const char *path = text + len;
    if (*path != '\0' && *path != '/')
        return wrong(detail, "there is something behind the hosts that is not '/...'");
    return read_path(mr_slice_str(*path == '/' ? path + 1 : path), url, detail);
}

static enum mr_err read_unix(const char *text, struct redis_url *url, struct mr_detail *detail)
{
    if (strncmp(text, "//", 2) == 0) {
        size_t len = strcspn(text + 2, "/");
        struct mr_slice rest;
        MR_TRY(read_authority(mr_slice_make(text + 2, len), url, &rest, detail));
        if (rest.len > 0)
            return wrong(detail, "a unix socket is redis+unix:PATH");
        text += 2 + len;
    }
    const char *query = strstr(text, "?db=");
    size_t len = query != NULL ? (size_t)(query - text) : strlen(text);
    struct mr_addr addr;
    if (len == 0)
        return wrong(detail, "the path of the unix socket is missing");
    url->path = copy(mr_slice_make(text, len));
    if (url->path == NULL)
        return MR_NOMEM;
    if (mr_addr_unix(url->path, &addr) != MR_OK)
        return wrong(detail, "the path of the unix socket is too long");
    url->hosts_n = 1; /* without a name */
    return query != NULL ? read_db(mr_slice_str(query + strlen("?db=")), url, detail) : MR_OK;
}

static enum mr_err read_as(const char *text, const struct scheme *scheme, struct redis_url *url,
                           struct mr_detail *detail)
{
    url->kind = scheme->kind;
    url->tls = scheme->tls;
    text += strlen(scheme->prefix);
    return scheme->is_unix ? read_unix(text, url, detail) : read_tcp(text, scheme, url, detail);
}

enum mr_err redis_url_parse(const char *text, struct redis_url *ret_url, struct mr_detail *detail)
{
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (strncmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
            continue;
        struct redis_url url = {0};
        enum mr_err err = read_as(text, &schemes[i], &url, detail);
        if (err == MR_OK)
            *ret_url = url;
        else
            redis_url_done(&url);
        return err;
    }
    return wrong(detail, "it begins with none of redis://, rediss://, redis+unix:, "
                         "redis+sentinel://, redis+cluster://");
}

void redis_url_done(struct redis_url *url)
{
    free(url->user);
    free(url->password);
    free(url->path);
    free(url->service);
    *url = (struct redis_url){0};
}

enum mr_err mr_redis_url_check(const char *text, enum mr_redis_kind *ret_kind,
                               struct mr_detail *detail)
{
    struct redis_url url;
    MR_TRY(redis_url_parse(text, &url, detail));
    *ret_kind = url.kind;
    redis_url_done(&url);
    return MR_OK;
}
