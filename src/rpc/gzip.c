/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks a gzip message. Memory grows with what comes out and stops at the limit, whatever the
 * packed bytes say. */
#include <limits.h>
#include <zlib.h>

#include "rpc/internal.h"

enum { GZIP_WINDOW_BITS = 15 + 16, PIECE = 16 * 1024 };

/* Everything until the end of the stream. A byte more than max is asked for, so that exactly max
 * passes. */
static enum mr_err inflate_all(z_stream *z, size_t max, struct mr_buf *out)
{
    for (;;) {
        size_t room = max + 1 - out->len;
        if (room > PIECE)
            room = PIECE;
        MR_TRY(mr_buf_reserve(out, room));
        z->next_out = out->data + out->len;
        z->avail_out = (uInt)room;
        int rc = inflate(z, Z_NO_FLUSH);
        out->len += room - z->avail_out;
        if (rc == Z_MEM_ERROR)
            return MR_NOMEM;
        if (out->len > max)
            return MR_TOO_BIG;
        if (rc == Z_STREAM_END)
            return z->avail_in == 0 ? MR_OK : MR_DAMAGED;
        /* Z_BUF_ERROR: the packed bytes end too early. */
        if (rc != Z_OK)
            return MR_DAMAGED;
    }
}

enum mr_err rpc_gunzip(struct mr_slice packed, size_t max, struct mr_buf *out)
{
    if (packed.len > UINT_MAX)
        return MR_TOO_BIG;
    z_stream z = {.next_in = (Bytef *)packed.data, .avail_in = (uInt)packed.len};
    if (inflateInit2(&z, GZIP_WINDOW_BITS) != Z_OK)
        return MR_NOMEM;
    mr_buf_clear(out);
    enum mr_err err = inflate_all(&z, max, out);
    inflateEnd(&z);
    return err;
}
