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
        connection_resume(request->http, request->connection);
    }
}

/* Takes the bytes. NULL: there was no memory. */
static struct MHD_Response *response_of(struct mr_buf *take_bytes, const char *type, bool packed)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback(take_bytes->len, take_bytes->data, free);
    if (!response)
        return NULL;
    *take_bytes = (struct mr_buf){0};
    bool good = response_head(response, type) &&
                MHD_add_response_header(response, "Vary", "Accept-Encoding") == MHD_YES;
    if (good && packed)
        good = MHD_add_response_header(response, "Content-Encoding", "gzip") == MHD_YES;
    if (good)
        return response;
    MHD_destroy_response(response);
    return NULL;
}

static enum mr_err answer_init(struct mr_http_answer *answer, const char *type,
                               struct mr_buf *take_body)
{
    *answer = (struct mr_http_answer){.type = type, .body = mr_buf_slice(take_body)};
    answer->plain = response_of(take_body, type, false);
    mr_buf_done(take_body);
    return answer->plain ? MR_OK : MR_NOMEM;
}

static void answer_done(struct mr_http_answer *answer)
{
    if (answer->plain)
        MHD_destroy_response(answer->plain);
    if (answer->packed)
        MHD_destroy_response(answer->packed);
}

static void make_packed(struct mr_http_answer *answer)
{
    struct mr_buf packed = {0};
    answer->tried = true;
    bool smaller = gzip_pack(answer->body, &packed) == MR_OK && packed.len < answer->body.len;
    answer->packed_n = packed.len;
    if (smaller)
        answer->packed = response_of(&packed, answer->type, true);
    mr_buf_done(&packed);
}

/* As this client takes it: packed, if it can unpack it and that makes it smaller. */
static struct MHD_Response *form_of(struct mr_http_answer *answer,
                                    const struct mr_http_request *request)
{
    const char *takes = mr_http_header(request, "Accept-Encoding");
    bool pack = answer->body.len >= PACK_MIN && takes && gzip_is_taken(takes);
    if (pack && !answer->tried)
        make_packed(answer);
    return pack && answer->packed ? answer->packed : answer->plain;
}

/* A header that only some answers have; name is NULL: none. */
struct extra {
    const char *name, *value;
};

static void reply_with(struct mr_http_request *request, int status, const char *type,
                       struct mr_slice body, struct extra extra)
{
    struct mr_buf copy = {0};
    struct mr_http_answer answer = {0};
    bool good =
        mr_buf_append_slice(&copy, body) == MR_OK && answer_init(&answer, type, &copy) == MR_OK;
    struct MHD_Response *response = good ? form_of(&answer, request) : NULL;
    if (good && extra.name)
        good = MHD_add_response_header(response, extra.name, extra.value) == MHD_YES;
    struct client *client = client_of(request->connection);
    if (good && client)
        client_owes(request->http, client,
                    response == answer.plain ? answer.body.len : answer.packed_n);
    request_queue(request, status, good ? response : NULL);
    answer_done(&answer);
}

void mr_http_reply(struct mr_http_request *request, int status, const char *type,
                   struct mr_slice body)
{
    reply_with(request, status, type, body, (struct extra){0});
}

enum mr_err mr_http_answer_new(const char *type, struct mr_buf *take_body,
                               struct mr_http_answer **ret_answer)
{
    struct mr_http_answer *answer = calloc(1, sizeof *answer);
    enum mr_err err = answer ? answer_init(answer, type, take_body) : MR_NOMEM;
    if (err == MR_OK)
        *ret_answer = answer;
    else
        free(answer);
    mr_buf_done(take_body);
    return err;
}

void mr_http_answer_free(struct mr_http_answer *answer)
{
    if (!answer)
        return;
    answer_done(answer);
    free(answer);
}

void mr_http_reply_answer(struct mr_http_request *request, int status,
                          struct mr_http_answer *answer)
{
    request_queue(request, status, form_of(answer, request));
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
                      const char *text, struct extra extra)
{
    char body[TEXT_MAX + 128], plain[TEXT_MAX + 1];
    plain_text(text, plain);
    int len = snprintf(body, sizeof body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}\n",
                       mr_err_name(err), plain);
    reply_with(request, status, "application/json", mr_slice_make(body, (size_t)len), extra);
}

void mr_http_retry_after(struct mr_http_request *request, int64_t s)
{
    request->retry_after_s = s;
}

void mr_http_refuse(struct mr_http_request *request, int status, enum mr_err err, const char *text)
{
    char later[24];
    (void)snprintf(later, sizeof later, "%lld",
                   (long long)(request->retry_after_s > 0 ? request->retry_after_s : 1));
    /* What a client is to do: show who it is, or come back. */
    const struct {
        int status;
        struct extra extra;
    } rows[] = {
        {MHD_HTTP_UNAUTHORIZED, {"WWW-Authenticate", "Bearer"}},
        {MHD_HTTP_TOO_MANY_REQUESTS, {"Retry-After", later}},
        {MHD_HTTP_SERVICE_UNAVAILABLE, {"Retry-After", later}},
    };
    struct extra extra = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            extra = rows[i].extra;
    fail_with(request, status, err, text, extra);
}

void mr_http_fail(struct mr_http_request *request, enum mr_err err, const char *text)
{
    mr_http_refuse(request, mr_err_http_status(err), err, text);
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
            if (!path_fits(route->path, request->below, &parameter))
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
    reply_with(request, STATUS_PERMANENT_REDIRECT, "text/plain", (struct mr_slice){0},
               (struct extra){"Location", to});
}

/* Of a body so much is read. */
static size_t body_max(const struct mr_http_request *request)
{
    size_t max = request->route ? request->route->body_max : 0;
    return max > 0 ? max : request->http->options.limits.body_bytes;
}

static void refuse_body(struct mr_http_request *request, enum mr_err err, uint64_t bytes)
{
    char text[80];
    snprintf(text, sizeof text, "the body has %llu bytes, the limit is %zu",
             (unsigned long long)bytes, body_max(request));
    mr_http_fail(request, err,
                 err == MR_TOO_BIG ? text : "too much is being sent at once: try again");
}

static void answer(struct mr_http_request *request, const char *method)
{
    char allowed[ALLOW_MAX];
    if (!is_certified(request)) {
        mr_http_fail(request, MR_DENIED, NO_CERTIFICATE);
    } else if (request->passed != MR_OK) {
        refuse_body(request, request->passed, request->body_bytes);
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
                      (struct extra){"Allow", allowed});
        else
            mr_http_fail(request, MR_NOT_FOUND, "no such path");
    }
}

/* ---- its way -------------------------------------------------------------------------------- */

void *request_begin(void *arg, const char *uri, struct MHD_Connection *connection)
{
    struct mr_http_request *request = calloc(1, sizeof *request);
    if (!request)
        return NULL;
    *request = (struct mr_http_request){.http = arg, .connection = connection};
    enum mr_err err = path_read(uri, &request->path);
    request->garbled = err != MR_OK;
    if (err != MR_NOMEM)
        return request;
    free(request);
    return NULL;
}

/* What came of it is not kept. */
static void pass_body(struct mr_http_request *request, enum mr_err err)
{
    request->passed = err;
    request->http->bodies_bytes -= request->body.len;
    mr_buf_done(&request->body);
    request->body = (struct mr_buf){0};
}

/* A piece of the body: kept for a route that reads it, else passed over. One that is too big is so, too, that its sender can
 * be told when it is there as a whole; but not for ever. */
static enum MHD_Result take_body(struct mr_http_request *request, const char *bytes, size_t n)
{
    struct mr_http *http = request->http;
    size_t max = body_max(request);
    bool kept = request->route && request->route->body_max > 0;
    request->body_bytes += n;
    if (request->body_bytes > max)
        pass_body(request, MR_TOO_BIG);
    else if (kept && http->bodies_bytes + n > http->options.limits.bodies_bytes)
        pass_body(request, MR_BUSY);
    if (!kept || request->passed != MR_OK)
        return request->body_bytes <= 2 * max ? MHD_YES : MHD_NO;
    if (mr_buf_append(&request->body, bytes, n) != MR_OK)
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

/* Who may not send a body, or sends one that is too big, is told so before it is read. */
static bool is_body_refused(struct mr_http_request *request)
{
    const struct mr_http_route *route = request->route;
    const struct mr_http *http = request->http;
    uint64_t bytes = announced(request);
    bool kept = route && route->body_max > 0;
    if (kept && !is_certified(request))
        mr_http_fail(request, MR_DENIED, NO_CERTIFICATE);
    else if (bytes > body_max(request))
        refuse_body(request, MR_TOO_BIG, bytes);
    else if (!kept || (route->admit && !route->admit(request, request->arg)))
        ; /* nothing is read, or it is answered */
    else if (http->bodies_bytes + bytes > http->options.limits.bodies_bytes)
        refuse_body(request, MR_BUSY, bytes);
    return request->replied;
}

/* The headers are there. */
static enum MHD_Result begin(struct mr_http_request *request, const char *method,
                             const char *version)
{
    char allowed[ALLOW_MAX];
    const char *prefix = request->http->options.prefix;
    request->begun = true;
    request->is_head = strcmp(method, "HEAD") == 0;
    request->since = mr_mono_now(mr_clock_system());
    request->result = MHD_YES;
    const char *wrong = request->garbled ? "the path has a zero byte in it"
                                         : head_wrong(request->connection, version);
    if (wrong) {
        fail_with(request, mr_err_http_status(MR_INVALID), MR_INVALID, wrong,
                  (struct extra){"Connection", "close"});
        request->asked = true;
        return request->result;
    }
    request->below = path_below(mr_buf_slice(&request->path), prefix);
    request->at_prefix =
        prefix && prefix[0] != '\0' && request->below.data && request->below.len == 0;
    find_route(request, method, allowed);
    request->asked = is_body_refused(request);
    return request->result;
}

/* Called with the headers, then for each piece of the body, then at its end; and once more when it goes on after
 * its answer came later. */
enum MHD_Result request_on(void *arg, struct MHD_Connection *connection, const char *path,
                           const char *method, const char *version, const char *bytes,
                           size_t *bytes_n, void **state)
{
    (void)path; /* escapes in it are gone already, and so is what they stood for */
    struct mr_http *http = arg;
    struct mr_http_request *request = *state;
    if (!request)
        return MHD_NO;
    if (!request->begun)
        return begin(request, method, version);
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
        mr_buf_done(&request->path);
        free(request);
    }
    if (client) {
        client_owes(http, client, 0);
        client_move(client, &http->waiting);
    }
}
