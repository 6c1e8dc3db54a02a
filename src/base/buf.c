/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer. Invariant: len <= cap, and data is NULL exactly when cap is 0. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdlib.h>

enum { BUF_CAP_MIN = 64 };

void mr_buf_done(struct mr_buf *buf)
{
    free(buf->data);
    *buf = (struct mr_buf){0};
}

enum mr_err mr_buf_reserve(struct mr_buf *buf, size_t more)
{
    mr_assert(buf->len <= buf->cap);
    if (more <= buf->cap - buf->len)
        return MR_OK;
    /* No object is larger than PTRDIFF_MAX. */
    if (more > PTRDIFF_MAX - buf->len)
        return MR_NOMEM;
    size_t need = buf->len + more;
    /* Doubling keeps appending O(1) amortised. */
    size_t cap = buf->cap <= PTRDIFF_MAX / 2 ? buf->cap * 2 : need;
    if (cap < need)
        cap = need;
    if (cap < BUF_CAP_MIN)
        cap = BUF_CAP_MIN;
    uint8_t *data = realloc(buf->data, cap);
    if (data == NULL)
        return MR_NOMEM;
    buf->data = data;
    buf->cap = cap;
    return MR_OK;
}

enum mr_err mr_buf_append(struct mr_buf *buf, const void *data, size_t len)
{
    if (len == 0)
        return MR_OK;
    MR_TRY(mr_buf_reserve(buf, len));
    memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    return MR_OK;
}

enum mr_err mr_buf_append_slice(struct mr_buf *buf, struct mr_slice slice)
{
    return mr_buf_append(buf, slice.data, slice.len);
}

/* The NUL that vsnprintf writes needs room but is not part of the text. */
enum mr_err mr_buf_printf(struct mr_buf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    size_t room = buf->cap - buf->len;
    int len = vsnprintf(room != 0 ? (char *)buf->data + buf->len : NULL, room, fmt, args);
    enum mr_err err = len < 0 ? MR_INVALID : MR_OK;
    if (err == MR_OK && (size_t)len >= room) {
        err = mr_buf_reserve(buf, (size_t)len + 1);
        if (err == MR_OK)
            vsnprintf((char *)buf->data + buf->len, (size_t)len + 1, fmt, again);
    }
    if (err == MR_OK)
        buf->len += (size_t)len;
    va_end(again);
    va_end(args);
    return err;
}
