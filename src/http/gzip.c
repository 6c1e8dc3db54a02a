/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that are packed for those who can unpack them. */
#include <limits.h>
#include <stdlib.h>
#include <strings.h>
#include <zlib.h>

#include "http/internal.h"

enum { GZIP_WINDOW_BITS = 15 + 16, MEMORY_LEVEL = 8 };

/* Whether a weight, as in "gzip;q=0", lets it be. */
static bool has_weight(const char *at, const char *end)
{
    const char *q = strchr(at, '=');
    return !q || q > end || strtod(q + 1, NULL) > 0;
}

bool gzip_is_taken(const char *accepted)
{
    for (const char *at = accepted; *at;) {
        at += strspn(at, " \t,");
        size_t name = strcspn(at, " \t,;"), whole = strcspn(at, ",");
        bool is_it = (name == 4 && strncasecmp(at, "gzip", name) == 0) || (name == 1 && *at == '*');
        if (is_it)
            return has_weight(at, at + whole);
        at += whole;
    }
    return false;
}

enum mr_err gzip_pack(struct mr_slice bytes, struct mr_buf *packed)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)bytes.data, .avail_in = (uInt)bytes.len};
    if (bytes.len > UINT_MAX)
        return MR_TOO_BIG;
    if (deflateInit2(&z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK)
        return MR_NOMEM;
    uLong bound = deflateBound(&z, (uLong)bytes.len);
    enum mr_err err = mr_buf_reserve(packed, bound);
    if (err == MR_OK) {
        z.next_out = packed->data;
        z.avail_out = (uInt)bound;
        err = deflate(&z, Z_FINISH) == Z_STREAM_END ? MR_OK : MR_FAILED;
        packed->len = bound - z.avail_out;
    }
    deflateEnd(&z);
    return err;
}
