/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a Redis: whatever comes, in whatever pieces, it is the same sequence of replies, and what
 * they hold can be read. */
#include <stdlib.h>

#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "redis/internal.h"

enum { PIECE_MAX = 16 * 1024 };

/* Puts down what a reply says. */
static void put(struct mr_buf *out, const struct mr_reply *reply)
{
    mr_assert(mr_buf_printf(out, "%d %lld %zu %lld ", reply->kind, (long long)reply->integer,
                            reply->n, (long long)mr_reply_int(reply, -1)) == MR_OK);
    mr_assert(mr_buf_append_slice(out, reply->text) == MR_OK);
    mr_assert(mr_reply_at(reply, reply->n)->kind == MR_REPLY_NIL);
    for (size_t i = 0; i < reply->n; i++)
        put(out, mr_reply_at(reply, i));
}

/* All replies; how it ended. */
static enum mr_err read_all(const uint8_t *data, size_t size, size_t piece, struct mr_buf *out)
{
    struct redis_reader reader;
    enum mr_err err = MR_EMPTY;
    mr_assert(redis_reader_init(&reader) == MR_OK);
    while (size > 0 && err == MR_EMPTY) {
        size_t len = size < piece ? size : piece;
        const struct mr_reply *reply;
        err = redis_reader_feed(&reader, data, len);
        data += len;
        size -= len;
        while (err == MR_OK && (err = redis_reader_next(&reader, &reply)) == MR_OK) {
            put(out, reply);
            redis_reader_reset(&reader);
        }
        mr_assert(err == MR_EMPTY || reader.why != NULL);
    }
    redis_reader_done(&reader);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {PIECE_MAX, 1, 7};
    struct mr_buf first = {0};
    enum mr_err err = read_all(data, size, pieces[0], &first);
    for (size_t i = 1; i < sizeof pieces / sizeof pieces[0] && size < PIECE_MAX; i++) {
        struct mr_buf other = {0};
        enum mr_err other_err = read_all(data, size, pieces[i], &other);
        mr_assert(mr_slice_equal(mr_buf_slice(&first), mr_buf_slice(&other)));
        /* What is too long may be found out before what is wrong, or after. */
        mr_assert((err == MR_EMPTY) == (other_err == MR_EMPTY));
        mr_buf_done(&other);
    }
    mr_buf_done(&first);
    return 0;
}
