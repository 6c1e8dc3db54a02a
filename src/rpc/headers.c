/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of gRPC: one row for each that means something here, and the codings of their values.
 * All others are metadata for the owner of the call, kept one behind the other as two lengths of 16
 * bits, name and value.
 */
#include <assert.h>

#include "rpc/internal.h"

enum {
    META_HEAD_LEN = 4,
    HEADER_OVERHEAD = 32, /* what HTTP/2 adds to name and value for the size of a list */
    TIMEOUT_DIGITS_MAX = 8,
    STATUS_DIGITS_MAX = 4,
};

static_assert(RPC_HEADER_LIST_MAX <= UINT16_MAX, "lengths of metadata are 16 bits");

/* ---- values --------------------------------------------------------------------------------- */

struct timeout_unit {
    char letter;
    int64_t ns;
};

/* Finest first. */
static const struct timeout_unit timeout_units[] = {
    {'n', 1},           {'u', MR_NS_PER_US},     {'m', MR_NS_PER_MS},
    {'S', MR_NS_PER_S}, {'M', 60 * MR_NS_PER_S}, {'H', 3600 * MR_NS_PER_S},
};
enum { TIMEOUT_UNITS = sizeof timeout_units / sizeof timeout_units[0] };

/* Longer ones are cut to this: it is three years, and sums with the clock stay in range. */
static const int64_t timeout_max_ns = 100000000 * MR_NS_PER_S;

static bool parse_digits(struct mr_slice text, size_t digits_max, int64_t *ret_value)
{
    const char *p = text.data;
    int64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (p[i] < '0' || p[i] > '9')
            return false;
        value = value * 10 + (p[i] - '0');
    }
    *ret_value = value;
    return text.len > 0 && text.len <= digits_max;
}

/* "100m" and the like. */
static enum mr_err rpc_timeout_parse(struct mr_slice text, int64_t *ret_ns)
{
    int64_t value;
    if (text.len < 2 || text.len > TIMEOUT_DIGITS_MAX + 1 ||
        !parse_digits(mr_slice_make(text.data, text.len - 1), TIMEOUT_DIGITS_MAX, &value))
        return MR_INVALID;
    char letter = ((const char *)text.data)[text.len - 1];
    for (size_t i = 0; i < TIMEOUT_UNITS; i++) {
        if (timeout_units[i].letter != letter)
            continue;
        bool fits = value <= timeout_max_ns / timeout_units[i].ns;
        *ret_ns = fits ? value * timeout_units[i].ns : timeout_max_ns;
        return MR_OK;
    }
    return MR_INVALID;
}

void rpc_timeout_format(int64_t ns, char text[RPC_TIMEOUT_TEXT_MAX])
{
    /* Rounded up: the server should not give up before the client does. */
    size_t i = 0;
    int64_t value = ns;
    while (value > 99999999 && i + 1 < TIMEOUT_UNITS) {
        int64_t unit = timeout_units[++i].ns;
        value = (ns - 1) / unit + 1;
    }
    snprintf(text, RPC_TIMEOUT_TEXT_MAX, "%lld%c", (long long)value, timeout_units[i].letter);
}

static bool plain(uint8_t c)
{
    return c >= 0x20 && c <= 0x7e && c != '%';
}

enum mr_err mr_rpc_percent_encode(struct mr_slice text, struct mr_buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    const uint8_t *p = text.data;
    MR_TRY(mr_buf_reserve(out, 3 * text.len));
    for (size_t i = 0; i < text.len; i++) {
        /* A space at either end makes a header invalid. */
        bool at_end = i == 0 || i + 1 == text.len;
        if (plain(p[i]) && !(p[i] == ' ' && at_end)) {
            out->data[out->len++] = p[i];
            continue;
        }
        out->data[out->len++] = '%';
        out->data[out->len++] = (uint8_t)digits[p[i] >> 4];
        out->data[out->len++] = (uint8_t)digits[p[i] & 15];
    }
    return MR_OK;
}

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What is no escape stays as it is: a text that cannot be read right is better than none. */
static enum mr_err rpc_percent_decode(struct mr_slice text, struct mr_buf *out)
{
    const uint8_t *p = text.data;
    MR_TRY(mr_buf_reserve(out, text.len));
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = p[i];
        if (c == '%' && text.len - i > 2 && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0) {
            c = (uint8_t)(hex(p[i + 1]) << 4 | hex(p[i + 2]));
            i += 2;
        }
        out->data[out->len++] = c;
    }
    return MR_OK;
}

/* The tables of the gRPC specification, "HTTP to gRPC status code mapping" and the mapping of
 * HTTP/2 errors. */
int rpc_status_of_http(int http_status)
{
    static const struct {
        int http, status;
    } rows[] = {
        {400, MR_RPC_INTERNAL},      {401, MR_RPC_UNAUTHENTICATED}, {403, MR_RPC_DENIED},
        {404, MR_RPC_UNIMPLEMENTED}, {429, MR_RPC_UNAVAILABLE},     {502, MR_RPC_UNAVAILABLE},
        {503, MR_RPC_UNAVAILABLE},   {504, MR_RPC_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].http == http_status)
            return rows[i].status;
    }
    return MR_RPC_UNKNOWN;
}

int rpc_status_of_reset(uint32_t code)
{
    static const struct {
        uint32_t code;
        int status;
    } rows[] = {
        {NGHTTP2_REFUSED_STREAM, MR_RPC_UNAVAILABLE},
        {NGHTTP2_CANCEL, MR_RPC_CANCELLED},
        {NGHTTP2_ENHANCE_YOUR_CALM, MR_RPC_EXHAUSTED},
        {NGHTTP2_INADEQUATE_SECURITY, MR_RPC_DENIED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].code == code)
            return rows[i].status;
    }
    return MR_RPC_INTERNAL;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static enum mr_err take_path(struct mr_call *call, struct mr_slice value)
{
    call->method = rpc_server_find(call->conn, value);
    return MR_OK;
}

static enum mr_err take_method(struct mr_call *call, struct mr_slice value)
{
    call->is_post = mr_slice_equal(value, MR_SLICE_LIT("POST"));
    return MR_OK;
}

/* "application/grpc", also with "+proto" or parameters; but not "application/grpc-web". */
static enum mr_err take_content_type(struct mr_call *call, struct mr_slice value)
{
    static const struct mr_slice type = {"application/grpc", 16};
    const char *p = value.data;
    call->is_grpc = mr_slice_starts_with(value, type) &&
                    (value.len == type.len || p[type.len] == '+' || p[type.len] == ';');
    return MR_OK;
}

static enum mr_err take_timeout(struct mr_call *call, struct mr_slice value)
{
    call->timeout_bad = rpc_timeout_parse(value, &call->timeout_ns) != MR_OK;
    return MR_OK;
}

static enum mr_err take_encoding(struct mr_call *call, struct mr_slice value)
{
    if (mr_slice_equal(value, MR_SLICE_LIT("identity")))
        call->encoding = RPC_IDENTITY;
    else if (mr_slice_equal(value, MR_SLICE_LIT("gzip")))
        call->encoding = RPC_GZIP;
    else
        call->encoding = RPC_ENCODING_UNKNOWN;
    return MR_OK;
}

static enum mr_err take_http_status(struct mr_call *call, struct mr_slice value)
{
    int64_t status;
    call->http_status = parse_digits(value, STATUS_DIGITS_MAX, &status) ? (int)status : 0;
    return MR_OK;
}

static enum mr_err take_status(struct mr_call *call, struct mr_slice value)
{
    int64_t status;
    bool good = parse_digits(value, STATUS_DIGITS_MAX, &status);
    if (!call->is_over)
        call->status = good ? (int)status : MR_RPC_UNKNOWN;
    return MR_OK;
}

static enum mr_err take_message(struct mr_call *call, struct mr_slice value)
{
    if (call->is_over)
        return MR_OK;
    mr_buf_clear(&call->text);
    return rpc_percent_decode(value, &call->text);
}

static enum mr_err ignore(struct mr_call *call, struct mr_slice value)
{
    (void)call;
    (void)value;
    return MR_OK;
}

struct header_row {
    struct mr_slice name;
    enum mr_err (*of_client)(struct mr_call *call, struct mr_slice value); /* in a request */
    enum mr_err (*of_server)(struct mr_call *call, struct mr_slice value); /* in an answer */
};

#define ROW(name, of_client, of_server)                                                            \
    {                                                                                              \
        {name, sizeof(name) - 1}, of_client, of_server                                             \
    }

static const struct header_row header_rows[] = {
    ROW(":method", take_method, ignore),
    ROW(":scheme", ignore, ignore),
    ROW(":path", take_path, ignore),
    ROW(":authority", ignore, ignore),
    ROW(":status", ignore, take_http_status),
    ROW("te", ignore, ignore),
    ROW("user-agent", ignore, ignore),
    ROW("content-type", take_content_type, take_content_type),
    ROW("grpc-timeout", take_timeout, ignore),
    ROW("grpc-encoding", take_encoding, take_encoding),
    ROW("grpc-accept-encoding", ignore, ignore),
    ROW("accept-encoding", ignore, ignore),
    ROW("grpc-status", ignore, take_status),
    ROW("grpc-message", ignore, take_message),
};

/* ---- metadata ------------------------------------------------------------------------------- */

static bool is_binary(struct mr_slice name)
{
    static const char ending[] = "-bin";
    size_t len = sizeof ending - 1;
    return name.len >= len && memcmp((const char *)name.data + name.len - len, ending, len) == 0;
}

static enum mr_err keep(struct mr_buf *meta, struct mr_slice name, struct mr_slice value)
{
    uint8_t head[META_HEAD_LEN];
    mr_store16(head, (uint16_t)name.len);
    mr_store16(head + 2, (uint16_t)value.len);
    MR_TRY(mr_buf_append(meta, head, sizeof head));
    MR_TRY(mr_buf_append_slice(meta, name));
    return mr_buf_append_slice(meta, value);
}

enum mr_err rpc_header_take(struct mr_call *call, struct mr_slice name, struct mr_slice value)
{
    call->header_bytes += name.len + value.len + HEADER_OVERHEAD;
    if (call->header_bytes > RPC_HEADER_LIST_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < sizeof header_rows / sizeof header_rows[0]; i++) {
        const struct header_row *row = &header_rows[i];
        if (mr_slice_equal(row->name, name))
            return call->channel == NULL ? row->of_client(call, value)
                                         : row->of_server(call, value);
    }
    if (is_binary(name))
        return MR_OK;
    if (call->channel == NULL && !rpc_call_charge(call, META_HEAD_LEN + name.len + value.len))
        return MR_TOO_BIG;
    return keep(&call->meta, name, value);
}

struct mr_slice mr_call_metadata(const struct mr_call *call, const char *name)
{
    struct mr_slice wanted = mr_slice_str(name);
    for (size_t at = 0; at < call->meta.len;) {
        const uint8_t *p = call->meta.data + at;
        struct mr_slice found = mr_slice_make(p + META_HEAD_LEN, mr_load16(p));
        struct mr_slice value =
            mr_slice_make((const uint8_t *)found.data + found.len, mr_load16(p + 2));
        if (mr_slice_equal(found, wanted))
            return value;
        at += META_HEAD_LEN + found.len + value.len;
    }
    return (struct mr_slice){0};
}
