/* SPDX-License-Identifier: Apache-2.0 */
/* Answers with files that are part of the program. */
#include "http/file.h"

#include <zlib.h>

#include "http/internal.h"

enum { STATUS_OK = 200, STATUS_NOT_MODIFIED = 304, GZIP_WINDOW_BITS = 15 + 16 };

/* What a page may do: talk to where it came from, and show what came from there. */
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

static const char *const rules[][2] = {
    {"Content-Security-Policy", POLICY},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Vary", "Accept-Encoding"},
};

static bool add(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

static bool add_head(struct MHD_Response *response, const struct mr_http_file *file, bool packed)
{
    bool good = add(response, "Content-Type", file->type) && add(response, "ETag", file->etag) &&
                add(response, "Cache-Control",
                    file->fixed ? "public, max-age=31536000, immutable" : "no-cache") &&
                (!packed || add(response, "Content-Encoding", "gzip"));
    for (size_t i = 0; good && i < sizeof rules / sizeof *rules; i++)
        good = add(response, rules[i][0], rules[i][1]);
    return good;
}

static enum mr_err unpack(const struct mr_http_file *file, struct mr_buf *plain)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)file->packed, .avail_in = (uInt)file->packed_n};
    MR_TRY(mr_buf_reserve(plain, file->plain_n));
    if (inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK)
        return MR_NOMEM;
    z.next_out = plain->data;
    z.avail_out = (uInt)file->plain_n;
    bool whole = inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    plain->len = whole ? file->plain_n : 0;
    return whole ? MR_OK : MR_FAILED;
}

/* NULL: there was no memory. */
static struct MHD_Response *body_of(const struct mr_http_file *file, bool packed)
{
    struct mr_buf plain = {0};
    struct MHD_Response *response = NULL;
    if (packed)
        return MHD_create_response_from_buffer(file->packed_n, (void *)(uintptr_t)file->packed,
                                               MHD_RESPMEM_PERSISTENT);
    if (unpack(file, &plain) == MR_OK)
        response = MHD_create_response_from_buffer(plain.len, plain.data, MHD_RESPMEM_MUST_COPY);
    mr_buf_done(&plain);
    return response;
}

/* Whether the client says that it has just this one; one that says * has any. */
static bool is_known(const struct mr_http_request *request, const struct mr_http_file *file)
{
    const char *known = mr_http_header(request, "If-None-Match");
    return known && (strstr(known, file->etag) || strcmp(known, "*") == 0);
}

void mr_http_reply_file(struct mr_http_request *request, const struct mr_http_file *file)
{
    const char *takes = mr_http_header(request, "Accept-Encoding");
    bool known = is_known(request, file), packed = !known && takes && gzip_is_taken(takes);
    struct MHD_Response *response =
        known ? MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT)
              : body_of(file, packed);
    bool good = response && add_head(response, file, packed);
    request_queue(request, known ? STATUS_NOT_MODIFIED : STATUS_OK, good ? response : NULL);
    if (response)
        MHD_destroy_response(response);
}
