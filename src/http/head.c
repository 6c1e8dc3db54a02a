/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be right with the first lines of a request before anything is done with it. The library forgives
 * much, and others before it, a proxy, may read the same bytes otherwise: where they do not agree how long a body is, the rest
 * of it is a request that only one of them sees. So whatever can be read in two ways is refused, and the connection
 * with it.
 */
#include <ctype.h>
#include <strings.h>

#include "http/internal.h"

#define LENGTH   "Content-Length"
#define ENCODING "Transfer-Encoding"

struct head {
    unsigned lengths, encodings, hosts;
    const char *wrong; /* NULL: nothing */
};

/* ---- headers -------------------------------------------------------------------------------- */

/* By RFC 9110, 5.6.2: what a name of a header is made of. */
static bool is_token(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("!#$%&'*+-.^_`|~", name[i]))
            return false;
    return len > 0;
}

/* The library puts a line that begins with a space behind the name of the header before it: so the length of a body has
 * another name. */
static bool hides(const char *name, const char *framing)
{
    size_t len = strlen(framing);
    return strncasecmp(name, framing, len) == 0 && name[len] != '\0';
}

static enum MHD_Result look_at_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                      size_t name_n, const char *value, size_t value_n)
{
    (void)kind;
    struct head *head = arg;
    bool encodes = strcasecmp(name, ENCODING) == 0;
    head->lengths += strcasecmp(name, LENGTH) == 0;
    head->encodings += encodes;
    head->hosts += strcasecmp(name, "Host") == 0;
    if (!is_token(name, name_n) || strlen(name) != name_n || hides(name, LENGTH) ||
        hides(name, ENCODING))
        head->wrong = "a header's name has something in it, or behind it, that no name has";
    else if (value && strlen(value) != value_n)
        head->wrong = "a header has a zero byte in it";
    else if (encodes && (!value || strcasecmp(value, "chunked") != 0))
        head->wrong = ENCODING ": may be nothing but chunked";
    return head->wrong ? MHD_NO : MHD_YES;
}

static enum MHD_Result look_at_argument(void *arg, enum MHD_ValueKind kind, const char *name,
                                        size_t name_n, const char *value, size_t value_n)
{
    (void)kind;
    struct head *head = arg;
    if (strlen(name) != name_n || (value && strlen(value) != value_n))
        head->wrong = "the query has a zero byte in it";
    return head->wrong ? MHD_NO : MHD_YES;
}

const char *head_wrong(struct MHD_Connection *connection, const char *version)
{
    struct head head = {.wrong = NULL};
    bool is_new = strcmp(version, MHD_HTTP_VERSION_1_0) != 0;
    (void)MHD_get_connection_values_n(connection, MHD_HEADER_KIND, look_at_header, &head);
    (void)MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, look_at_argument, &head);
    if (head.wrong)
        return head.wrong;
    if (head.lengths + head.encodings > 1)
        return "the length of the body is said twice";
    if (head.encodings > 0 && !is_new)
        return ENCODING ": not in HTTP/1.0";
    if (head.hosts > 1 || (head.hosts == 0 && is_new))
        return "Host: must be there, and once";
    return NULL;
}

/* ---- paths ---------------------------------------------------------------------------------- */

static int hex(char c)
{
    const char digits[] = "0123456789abcdef", *at = strchr(digits, tolower((unsigned char)c));
    return c != '\0' && at ? (int)(at - digits) : -1;
}

/* One byte of a path: at is moved behind it. */
static char unescape(const char **at)
{
    const char *from = *at;
    int high = from[0] == '%' ? hex(from[1]) : -1, low = high >= 0 ? hex(from[2]) : -1;
    *at += low >= 0 ? 3 : 1;
    return low >= 0 ? (char)(high * 16 + low) : from[0];
}

enum mr_err path_read(const char *uri, struct mr_buf *path)
{
    size_t len = strcspn(uri, "?");
    MR_TRY(mr_buf_reserve(path, len + 1));
    for (const char *at = uri; at < uri + len;) {
        bool separates = *at == '/';
        char c = unescape(&at);
        if (c == '\0')
            return MR_INVALID;
        path->data[path->len++] = separates ? '\0' : (unsigned char)c;
    }
    path->data[path->len] = '\0';
    return MR_OK;
}

struct mr_slice path_below(struct mr_slice path, const char *prefix)
{
    const char *bytes = path.data;
    size_t len = prefix ? strlen(prefix) : 0;
    if (path.len < len || (path.len > len && len > 0 && bytes[len] != '\0'))
        return (struct mr_slice){0};
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != (prefix[i] == '/' ? '\0' : prefix[i]))
            return (struct mr_slice){0};
    return mr_slice_make(bytes + len, path.len - len);
}

bool path_fits(const char *pattern, struct mr_slice path, struct mr_slice *ret_parameter)
{
    const char *at = path.data, *end = at + path.len;
    *ret_parameter = (struct mr_slice){0};
    while (*pattern == '/' && at < end && *at == '\0') {
        pattern++, at++;
        size_t want = strcspn(pattern, "/"), len = strnlen(at, (size_t)(end - at));
        if (*pattern == '{' && len > 0)
            *ret_parameter = mr_slice_make(at, len);
        else if (want != len || memcmp(pattern, at, len) != 0)
            return false;
        pattern += want;
        at += len;
    }
    return *pattern == '\0' && at == end && path.len > 0;
}
