/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers out of bytes: hiredis reads, and calls back for each part of a reply, which is put down in
 * the arena. What a server may make us keep is limited before it is kept: hiredis itself waits for
 * whatever length was announced, so the part it stands at is looked at while it waits (check_part).
 */
#include <hiredis.h>
#include <stdlib.h>

#include "base/text.h"
#include "redis/internal.h"

enum {
    FEED_MAX = 16 * 1024,
    HEAD_MAX = 32,      /* of a text: its length */
    KEEP_MAX = 1 << 20, /* larger memory is not kept when nothing is in it */
};

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
    if (reply->kind != MR_REPLY_TEXT || reply->text.len == 0 || reply->text.len >= sizeof text)
        return otherwise;
    memcpy(text, reply->text.data, reply->text.len);
    text[reply->text.len] = '\0';
    return strlen(text) == reply->text.len && mr_parse_int64(text, &value) == MR_OK ? value
                                                                                    : otherwise;
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* NULL: it would be too big, or out of memory; hiredis gives up then. */
static struct mr_reply *new_part(const redisReadTask *task, enum mr_reply_kind kind)
{
    struct redis_reader *reader = task->privdata;
    struct mr_reply *part;
    if (task->parent != NULL) {
        struct mr_reply *parent = task->parent->obj;
        part = (struct mr_reply *)&parent->items[task->idx];
    } else {
        part = mr_arena_calloc(&reader->arena, 1, sizeof *part);
    }
    if (part != NULL)
        part->kind = kind;
    return part;
}

static bool has_room(struct redis_reader *reader, size_t more)
{
    if (reader->arena.bytes - reader->arena_start + more <= REDIS_REPLY_MAX)
        return true;
    reader->why = "a reply is too big";
    return false;
}

static void *new_text(const redisReadTask *task, char *bytes, size_t len)
{
    struct redis_reader *reader = task->privdata;
    struct mr_reply *part =
        new_part(task, task->type == REDIS_REPLY_ERROR ? MR_REPLY_ERROR : MR_REPLY_TEXT);
    if (part == NULL || !has_room(reader, len) ||
        mr_arena_copy(&reader->arena, mr_slice_make(bytes, len), &part->text) != MR_OK)
        return NULL;
    return part;
}

static void *new_array(const redisReadTask *task, int n)
{
    struct redis_reader *reader = task->privdata;
    if (n > REDIS_ITEMS_MAX) {
        reader->why = "a reply has too many items";
        return NULL;
    }
    struct mr_reply *part = new_part(task, MR_REPLY_ARRAY);
    if (part == NULL || !has_room(reader, (size_t)n * sizeof *part))
        return NULL;
    part->n = (size_t)n;
    part->items = mr_arena_calloc(&reader->arena, (size_t)n, sizeof *part);
    return n == 0 || part->items != NULL ? part : NULL;
}

static void *new_integer(const redisReadTask *task, long long value)
{
    struct mr_reply *part = new_part(task, MR_REPLY_INTEGER);
    if (part != NULL)
        part->integer = value;
    return part;
}

static void *new_nil(const redisReadTask *task)
{
    return new_part(task, MR_REPLY_NIL);
}

static void keep(void *part)
{
    (void)part; /* the arena has it */
}

static redisReplyObjectFunctions functions = {new_text, new_array, new_integer, new_nil, keep};

/* ---- reading -------------------------------------------------------------------------------- */

/* Another one of hiredis, with a small buffer. False: out of memory, and nothing changed. */
static bool renew(struct redis_reader *reader)
{
    redisReader *fresh = redisReaderCreateWithFunctions(&functions);
    if (fresh == NULL)
        return false;
    if (reader->reader != NULL)
        redisReaderFree(reader->reader);
    fresh->maxbuf = 0; /* it would give its buffer up by itself, and abort when it gets no other */
    fresh->privdata = reader;
    reader->reader = fresh;
    reader->peak = 0;
    return true;
}

enum mr_err redis_reader_init(struct redis_reader *reader)
{
    *reader = (struct redis_reader){0};
    return renew(reader) ? MR_OK : MR_NOMEM;
}

void redis_reader_done(struct redis_reader *reader)
{
    if (reader->reader != NULL)
        redisReaderFree(reader->reader);
    mr_arena_done(&reader->arena);
    *reader = (struct redis_reader){0};
}

enum mr_err redis_reader_feed(struct redis_reader *reader, const void *data, size_t len)
{
    mr_assert(len <= FEED_MAX);
    reader->why = "out of memory";
    if (redisReaderFeed(reader->reader, data, len) != REDIS_OK)
        return MR_NOMEM;
    if (reader->reader->len > reader->peak)
        reader->peak = reader->reader->len;
    return MR_OK;
}

/* Of the part that is not whole yet; hiredis has read what it is, and stands behind that. */
static enum mr_err check_part(struct redis_reader *reader)
{
    const redisReader *in = reader->reader;
    size_t len = in->len - in->pos;
    if (in->ridx < 0 || len == 0)
        return MR_EMPTY;
    if (in->rstack[in->ridx].type != REDIS_REPLY_STRING) {
        reader->why = "a line of a reply is too long";
        return len <= REDIS_LINE_MAX ? MR_EMPTY : MR_TOO_BIG;
    }
    char head[HEAD_MAX] = {0};
    memcpy(head, in->buf + in->pos, len < HEAD_MAX ? len : HEAD_MAX);
    char *end = memchr(head, '\r', HEAD_MAX);
    int64_t size;
    reader->why = "the length of a text is no number";
    if (end == NULL)
        return len < HEAD_MAX ? MR_EMPTY : MR_DAMAGED;
    *end = '\0';
    if (mr_parse_int64(head, &size) != MR_OK)
        return MR_DAMAGED;
    reader->why = "a text of a reply is too long";
    return size <= REDIS_BULK_MAX ? MR_EMPTY : MR_TOO_BIG;
}

enum mr_err redis_reader_next(struct redis_reader *reader, const struct mr_reply **ret_reply)
{
    void *reply = NULL;
    reader->why = NULL;
    if (redisReaderGetReply(reader->reader, &reply) != REDIS_OK) {
        if (reader->why != NULL)
            return MR_TOO_BIG;
        if (reader->reader->err == REDIS_ERR_OOM) {
            reader->why = reader->reader->errstr;
            return MR_NOMEM;
        }
        reader->why = "what it sends is no reply of a Redis; is it one?";
        return MR_DAMAGED;
    }
    if (reply == NULL)
        return check_part(reader);
    reader->arena_start = reader->arena.bytes;
    *ret_reply = reply;
    return MR_OK;
}

void redis_reader_reset(struct redis_reader *reader)
{
    const redisReader *in = reader->reader;
    if (in->ridx >= 0)
        return; /* parts of the next reply stand there already */
    if (reader->peak > KEEP_MAX && in->pos == in->len)
        (void)renew(reader);
    if (reader->arena.bytes <= KEEP_MAX)
        mr_arena_reset(&reader->arena);
    else
        mr_arena_done(&reader->arena);
    reader->arena_start = 0;
}
