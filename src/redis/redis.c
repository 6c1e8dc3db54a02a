/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread, its turns, and how others reach it. */
#include "redis/redis.h"

#include "base/text.h"

static const struct mr_reply nothing = {.kind = MR_REPLY_NIL};

const struct mr_reply *mr_reply_at(const struct mr_reply *reply, size_t i)
{
    return reply->kind == MR_REPLY_ARRAY && i < reply->n ? &reply->items[i] : &nothing;
}

int64_t mr_reply_int(const struct mr_reply *reply, int64_t otherwise)
{
    char text[24];
    int64_t value;
    if (reply->kind == MR_REPLY_INTEGER)
        return reply->integer;
    if (reply->kind != MR_REPLY_TEXT || reply->text.len >= sizeof text)
        return otherwise;
    memcpy(text, reply->text.data, reply->text.len);
    text[reply->text.len] = '\0';
    return mr_parse_int64(text, &value) == MR_OK ? value : otherwise;
}
