/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to its route, and its answer, at once or later. */
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "http/internal.h"

enum {
    STATUS_PERMANENT_REDIRECT = 308,
    STATUS_METHOD_NOT_ALLOWED = 405,
    TEXT_MAX = 400,
    PACK_MIN = 1024,
    ALLOW_MAX = 64
};

enum { PREFIX_TEXT_MAX = 512 };

#define NO_CERTIFICATE "a client certificate is needed"

/* ---- answers -------------------------------------------------------------------------------- */

bool response_head(struct MHD_Response *response, const char *type)
{
    return MHD_add_response_header(response, "Content-Type", type) == MHD_YES &&
           MHD_add_response_header(response, "Cache-Control", "no-store") == MHD_YES &&
           MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES;
}

static void observe(const struct mr_http_request *request, int status)
{
    const struct mr_http_options *options = &request->http->options;
    int64_t ns = mr_mono_now(mr_clock_system()).ns - request->since.ns;
    if (options->observe)
        options->observe(request->route, status, ns / MR_NS_PER_US, options->observe_arg);
}

/* Without an answer the connection is closed. */
void request_queue(struct mr_http_request *request, int status, struct MHD_Response *response)
{
    mr_assert(!request->replied);
    request->replied = true;
    request->result = MHD_NO;
    observe(request, status);
    if (response)
        request->result = MHD_queue_response(request->connection, (unsigned int)status, response);
    if (request->later)
        mr_http_release(request->http);
    if (request->suspended) {
        struct client *client = client_of(request->connection);
        if (request->result == MHD_NO && client)
            client_cut(client);
        MHD_resume_connection(request->connection);
    }
}

/* What is sent of it: packed, if that is wanted and makes it smaller. */
static struct MHD_Response *response_of(struct mr_http_request *request, struct mr_slice body)
{
    struct mr_buf packed = {0};
    const char *takes = mr_http_header(request, "Accept-Encoding");
    bool pack = body.len >= PACK_MIN && takes && gzip_is_taken(takes) &&
                gzip_pack(body, &packed) == MR_OK && packed.len < body.len;
    struct mr_slice sent = pack ? mr_buf_slice(&packed) : body;
    /* The library copies, whatever the type of its argument says. */
    struct MHD_Response *response = MHD_create_response_from_buffer(
        sent.len, (void *)(uintptr_t)sent.data, MHD_RESPMEM_MUST_COPY);
    mr_buf_done(&packed);
    bool good = response && MHD_add_response_header(response, "Vary", "Accept-Encoding") == MHD_YES;
    if (good && pack)
        good = MHD_add_response_header(response, "Content-Encoding", "gzip") == MHD_YES;
    if (good || !response)
        return response;
    MHD_destroy_response(response);
    return NULL;
}

static void reply_with(struct mr_http_request *request, int status, const char *type,
                       struct mr_slice body, const char *header, const char *value)
{
    struct MHD_Response *response = response_of(request, body);
    bool good = response && response_head(response, type);
    if (good && value)
        good = MHD_add_response_header(response, header, value) == MHD_YES;
    request_queue(request, status, good ? response : NULL);
    if (response)
        MHD_destroy_response(response);
}

void mr_http_reply(struct mr_http_request *request, int status, const char *type,
                   struct mr_slice body)
{
    reply_with(request, status, type, body, NULL, NULL);
}

/* What cannot stand in a text of JSON becomes a space, or a question mark where it is not UTF-8, as what a client has sent may
 * be; a quote is one of another kind. */
static void plain_text(const char *text, char plain[TEXT_MAX + 1])
{
    size_t len = strnlen(text, TEXT_MAX + 1);
    if (len > TEXT_MAX)
        for (len = TEXT_MAX; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--; /* not in the middle of a character */
    bool valid = mr_utf8_valid(mr_slice_make(text, len));
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        plain[i] = c == '"' || c == '\\' ? '\'' : c < 0x20 || c == 0x7f ? ' ' : (char)c;
        if (c >= 0x80 && !valid)
            plain[i] = '?';
    }
    plain[len] = '\0';
}

static void fail_with(struct mr_http_request *request, int status, enum mr_err err,
                      const char *text, const char *allow)
{
    char body[TEXT_MAX + 128], plain[TEXT_MAX + 1];
    plain_text(text, plain);
    int len = snprintf(body, sizeof body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
                       mr_err_name(err), plain);
    reply_with(request, status, "application/json", mr_slice_make(body, (size_t)len), "Allow",
               allow);
}

void mr_http_refuse(struct mr_http_request *request, int status, enum mr_err err, const char *text)
{
    fail_with(request, status, err, text, NULL);
}

void mr_http_fail(struct mr_http_request *request, enum mr_err err, const char *text)
{
    fail_with(request, mr_err_http_status(err), err, text, NULL);
}

void mr_http_later(struct mr_http_request *request)
{
    mr_assert(!request->replied && !request->later);
    request->later = true;
    mr_http_hold(request->http);
}

/* ---- what it says --------------------------------------------------------------------------- */

struct mr_http *mr_http_of(const struct mr_http_request *request)
{
    return request->http;
}

const void *mr_http_route_data(const struct mr_http_request *request)
{
    return request->route ? request->route->data : NULL;
}

struct mr_slice mr_http_parameter(const struct mr_http_request *request)
{
    return request->parameter;
}

const char *mr_http_header(const struct mr_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *mr_http_query(const struct mr_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

struct mr_slice mr_http_body(const struct mr_http_request *request)
{
    return mr_buf_slice(&request->body);
}

static void peer_of(const struct mr_http_request *request, struct mr_addr *ret_addr)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    *ret_addr = (struct mr_addr){.len = 0};
    if (!info || !info->client_addr)
        return;
    ret_addr->len = info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                             : sizeof(struct sockaddr_in);
    memcpy(&ret_addr->storage, info->client_addr, ret_addr->len);
}

bool mr_http_is_loopback(const struct mr_http_request *request)
{
    struct mr_addr addr;
    peer_of(request, &addr);
    return addr.len > 0 && mr_addr_is_loopback(&addr);
}

bool mr_http_is_gone(const struct mr_http_request *request)
{
    const struct client *client = client_of(request->connection);
    return client && mr_net_is_ended(client->fd);
}

void mr_http_peer(const struct mr_http_request *request, char text[MR_ADDR_TEXT_MAX])
{
    struct mr_addr addr;
    peer_of(request, &addr);
    text[0] = '\0';
    if (addr.len > 0)
        mr_addr_text(&addr, text);
}

/* ---- routes --------------------------------------------------------------------------------- */

static bool method_fits(const struct mr_http_route *route, const char *method)
{
    bool head = strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0;
    return head || strcmp(route->method, method) == 0;
}

/* ret_parameter: what stands for "{id}", at least one byte. */
static bool path_fits(const char *pattern, const char *path, struct mr_slice *ret_parameter)
{
    const char *any = strchr(pattern, '{'), *behind = any ? strchr(any, '}') : NULL;
    if (!behind) {
        *ret_parameter = (struct mr_slice){0};
        return strcmp(pattern, path) == 0;
    }
    size_t before = (size_t)(any - pattern);
    if (strncmp(pattern, path, before) != 0)
        return false;
    size_t len = strcspn(path + before, "/");
    *ret_parameter = mr_slice_make(path + before, len);
    return len > 0 && strcmp(behind + 1, path + before + len) == 0;
}

/* "GET, PATCH" */
static void add_allowed(char allowed[ALLOW_MAX], const char *method)
{
    size_t len = strlen(allowed);
    (void)snprintf(allowed + len, ALLOW_MAX - len, "%s%s", len > 0 ? ", " : "", method);
}

/* The route that fits, or in allowed the methods that the path has. */
static void find_route(struct mr_http_request *request, const char *method, char allowed[ALLOW_MAX])
{
    const struct mr_http *http = request->http;
    allowed[0] = '\0';
    for (size_t t = 0; t < http->options.tables_n; t++) {
        const struct mr_http_table *table = &http->tables[t];
        for (size_t i = 0; i < table->routes_n; i++) {
            const struct mr_http_route *route = &table->routes[i];
            struct mr_slice parameter;
            if (!path_fits(route->path, request->path, &parameter))
                continue;
            if (!method_fits(route, method)) {
                add_allowed(allowed, route->method);
                continue;
            }
            request->parameter = parameter;
            request->route = route;
            request->arg = table->arg;
            return;
        }
    }
}

/* Whether the client has shown a certificate of ours, where it must. */
static bool is_certified(const struct mr_http_request *request)
{
    if (!request->http->certificates)
        return true;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    unsigned int status = 0;
    return info && gnutls_certificate_verify_peers2(info->tls_session, &status) == 0 && status == 0;
}

/* Links of a page at the prefix itself lead below it only with a slash behind it. */
static void redirect(struct mr_http_request *request)
{
    char to[PREFIX_TEXT_MAX];
    (void)snprintf(to, sizeof to, "%s/", request->http->options.prefix);
    reply_with(request, STATUS_PERMANENT_REDIRECT, "text/plain", (struct mr_slice){0}, "Location",
               to);
}

static void answer(struct mr_http_request *request, const char *method)
{
    char allowed[ALLOW_MAX];
    if (!is_certified(request)) {
        mr_http_fail(request, MR_DENIED, NO_CERTIFICATE);
    } else if (request->at_prefix) {
        redirect(request);
    } else if (request->route) {
        request->route->handle(request, request->arg);
        mr_assert(request->replied || request->later);
        request->suspended = !request->replied; /* not before: it may have been answered since */
        if (request->suspended)
            MHD_suspend_connection(request->connection);
    } else {
        find_route(request, method, allowed);
        if (allowed[0] != '\0')
            fail_with(request, STATUS_METHOD_NOT_ALLOWED, MR_INVALID, "this path has other methods",
                      allowed);
        else
            mr_http_fail(request, MR_NOT_FOUND, "no such path");
    }
}

/* ---- its way -------------------------------------------------------------------------------- */

/* What routes are held against: the path below the prefix; one that is not below it is none of theirs. */
static const char *path_below(struct mr_http_request *request, const char *path)
{
    const char *prefix = request->http->options.prefix;
    size_t len = prefix ? strlen(prefix) : 0;
    if (len == 0)
        return path;
    if (strncmp(path, prefix, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return "";
    request->at_prefix = path[len] == '\0';
    return path + len;
}

static struct mr_http_request *request_new(struct mr_http *http, struct MHD_Connection *connection,
                                           const char *path, const char *method)
{
    char allowed[ALLOW_MAX];
    struct mr_http_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    *request = (struct mr_http_request){.http = http, .connection = connection};
    request->is_head = strcmp(method, "HEAD") == 0;
    request->since = mr_mono_now(mr_clock_system());
    request->path = strdup(path_below(request, path));
    if (!request->path) {
        free(request);
        return NULL;
    }
    find_route(request, method, allowed);
    return request;
}

/* A piece of the body: kept for a route that reads it, else passed over, up to a limit. */
static enum MHD_Result take_body(struct mr_http_request *request, const char *bytes, size_t n)
{
    struct mr_http *http = request->http;
    size_t max = request->route ? request->route->body_max : 0;
    request->body_bytes += n;
    if (max == 0)
        return request->body_bytes <= http->options.limits.body_bytes ? MHD_YES : MHD_NO;
    if (request->body_bytes > max || http->bodies_bytes + n > http->options.limits.bodies_bytes ||
        mr_buf_append(&request->body, bytes, n) != MR_OK)
        return MHD_NO;
    http->bodies_bytes += n;
    return MHD_YES;
}

/* What the headers say of the length of the body; 0: nothing. */
static uint64_t announced(const struct mr_http_request *request)
{
    const char *text = mr_http_header(request, "Content-Length");
    int64_t number = 0;
    if (!text || mr_parse_int64(text, &number) != MR_OK)
        return 0;
    return number > 0 ? (uint64_t)number : 0;
}

/* The headers are there. Who may not send a body, or sends one that is too big, is told so before it is read. */
static enum MHD_Result begin_body(struct mr_http_request *request)
{
    const struct mr_http_route *route = request->route;
    const struct mr_http *http = request->http;
    char text[80];
    if (!route || route->body_max == 0)
        return MHD_YES;
    uint64_t bytes = announced(request);
    request->result = MHD_YES;
    if (!is_certified(request)) {
        mr_http_fail(request, MR_DENIED, NO_CERTIFICATE);
    } else if (bytes > route->body_max) {
        snprintf(text, sizeof text, "the body has %llu bytes, the limit is %zu",
                 (unsigned long long)bytes, route->body_max);
        mr_http_fail(request, MR_TOO_BIG, text);
    } else if (!route->admit || route->admit(request, request->arg)) {
        if (http->bodies_bytes + bytes <= http->options.limits.bodies_bytes)
            return MHD_YES;
        mr_http_fail(request, MR_BUSY, "too much is being sent at once: try again");
    }
    mr_assert(request->replied);
    request->asked = true;
    return request->result;
}

/* Called with the headers, then for each piece of the body, then at its end; and once more when it goes on after
 * its answer came later. */
enum MHD_Result request_on(void *arg, struct MHD_Connection *connection, const char *path,
                           const char *method, const char *version, const char *bytes,
                           size_t *bytes_n, void **state)
{
    (void)version;
    struct mr_http *http = arg;
    struct mr_http_request *request = *state;
    if (!request) {
        *state = request = request_new(http, connection, path, method);
        return request ? begin_body(request) : MHD_NO;
    }
    if (*bytes_n > 0) {
        size_t n = *bytes_n;
        *bytes_n = 0;
        return take_body(request, bytes, n);
    }
    if (request->asked)
        return request->later && !request->replied ? MHD_YES : request->result;
    request->asked = true;
    request->result = MHD_YES;
    request->since = mr_mono_now(mr_clock_system());
    struct client *client = client_of(connection);
    if (client)
        client_move(client, &http->answered);
    answer(request, method);
    return request->result;
}

void request_completed(void *arg, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode how)
{
    (void)how;
    struct mr_http *http = arg;
    struct client *client = client_of(connection);
    struct mr_http_request *request = *state;
    *state = NULL;
    if (request) {
        if (request->stream)
            stream_closed(request->stream);
        http->bodies_bytes -= request->body.len;
        mr_buf_done(&request->body);
        free(request->path);
        free(request);
    }
    if (client)
        client_move(client, &http->waiting);
}
