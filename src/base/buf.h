/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer with one owner. Zero-initialised is empty. */
#ifndef MR_BASE_BUF_H
#define MR_BASE_BUF_H

#include "base/slice.h"

struct mr_buf {
    uint8_t *data;
    size_t len, cap;
};

void mr_buf_done(struct mr_buf *buf);
static inline void mr_buf_clear(struct mr_buf *buf)
{
    buf->len = 0;
}
/* Room for more bytes beyond len; afterwards data may have moved. */
MR_MUST_USE enum mr_err mr_buf_reserve(struct mr_buf *buf, size_t more);
MR_MUST_USE enum mr_err mr_buf_append(struct mr_buf *buf, const void *data, size_t len);
MR_MUST_USE enum mr_err mr_buf_append_slice(struct mr_buf *buf, struct mr_slice slice);
MR_MUST_USE enum mr_err mr_buf_printf(struct mr_buf *buf, const char *fmt, ...) MR_PRINTF(2, 3);

static inline struct mr_slice mr_buf_slice(const struct mr_buf *buf)
{
    return mr_slice_make(buf->data, buf->len);
}

#endif
