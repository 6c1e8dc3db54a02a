/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/limit.h"

#include <stdlib.h>

#include "wire/flat.h"

/* ---- the door ------------------------------------------------------------------------------- */

enum mr_err mr_limit_check(const struct mr_req_queue_set *req)
{
    if ((unsigned)req->scope >= MR_LIMIT_SCOPE_COUNT)
        return MR_INVALID;
    if (req->scope == MR_LIMIT_QUEUE && req->name.len > 0)
        return MR_INVALID;
    if (req->scope != MR_LIMIT_QUEUE)
        MR_TRY(mr_name_check(req->name));
    if (req->setting == MR_QUEUE_CONCURRENCY)
        return req->value <= UINT32_MAX ? MR_OK : MR_INVALID;
    bool lifted = req->value == 0;
    bool span = req->rate_ms >= 1 && req->rate_ms <= MR_LIMIT_MS_MAX;
    return lifted || (span && req->value <= MR_LIMIT_RATE_MAX) ? MR_OK : MR_INVALID;
}

/* ---- the list ------------------------------------------------------------------------------- */

void mr_limits_done(struct mr_limits *limits)
{
    free(limits->at);
    *limits = (struct mr_limits){0};
}

static int compare(const struct mr_limit *limit, enum mr_limit_scope scope, struct mr_slice name)
{
    if (limit->scope != scope)
        return limit->scope < scope ? -1 : 1;
    return mr_slice_compare(mr_slice_str(limit->name), name);
}

/* Where it is, or would be. */
static size_t seek(const struct mr_limits *limits, enum mr_limit_scope scope, struct mr_slice name,
                   bool *ret_there)
{
    size_t i = 0;
    while (i < limits->n && compare(&limits->at[i], scope, name) < 0)
        i++;
    *ret_there = i < limits->n && compare(&limits->at[i], scope, name) == 0;
    return i;
}

static enum mr_err insert(struct mr_limits *limits, size_t at, const struct mr_limit *limit)
{
    if (limits->n == MR_LIMITS_MAX)
        return MR_TOO_BIG;
    struct mr_limit *grown = realloc(limits->at, (limits->n + 1) * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    limits->at = grown;
    memmove(grown + at + 1, grown + at, (limits->n - at) * sizeof *grown);
    grown[at] = *limit;
    limits->n++;
    return MR_OK;
}

static void drop(struct mr_limits *limits, size_t at)
{
    limits->n--;
    memmove(limits->at + at, limits->at + at + 1, (limits->n - at) * sizeof *limits->at);
}

enum mr_err mr_limits_change(struct mr_limits *limits, const struct mr_req_queue_set *req)
{
    bool there;
    size_t at = seek(limits, req->scope, req->name, &there);
    struct mr_limit limit = {.scope = req->scope};
    if (there)
        limit = limits->at[at];
    else if (req->name.len > 0)
        memcpy(limit.name, req->name.data, req->name.len);
    if (req->setting == MR_QUEUE_RATE) {
        limit.rate = (uint32_t)req->value;
        limit.rate_ms = limit.rate > 0 ? req->rate_ms : 0;
    } else {
        limit.concurrency = (uint32_t)req->value;
    }
    bool empty = limit.rate == 0 && limit.concurrency == 0;
    if (there && empty)
        drop(limits, at);
    else if (there)
        limits->at[at] = limit;
    else if (!empty)
        return insert(limits, at, &limit);
    return MR_OK;
}

const struct mr_limit *mr_limits_find(const struct mr_limits *limits, enum mr_limit_scope scope,
                                      struct mr_slice name)
{
    bool there;
    if (scope != MR_LIMIT_QUEUE && name.len == 0)
        return NULL;
    size_t at = seek(limits, scope, name, &there);
    if (!there && scope != MR_LIMIT_QUEUE)
        at = seek(limits, scope, MR_SLICE_LIT(MR_LIMIT_EACH), &there);
    return there ? &limits->at[at] : NULL;
}

void mr_limits_keep(struct mr_limits *limits, const struct mr_limits *before)
{
    for (size_t i = 0; i < limits->n; i++) {
        struct mr_limit *limit = &limits->at[i];
        bool there;
        size_t at = seek(before, limit->scope, mr_slice_str(limit->name), &there);
        if (there)
            limit->rate_until_ms = before->at[at].rate_until_ms;
    }
}

bool mr_limits_split(const struct mr_limits *limits)
{
    return limits->n > 0 && limits->at[limits->n - 1].scope != MR_LIMIT_QUEUE;
}

void mr_limits_show(const struct mr_limits *limits, struct mr_queue_info *info)
{
    const struct mr_limit *whole = mr_limits_find(limits, MR_LIMIT_QUEUE, (struct mr_slice){0});
    info->rate = whole != NULL ? whole->rate : 0;
    info->rate_ms = whole != NULL ? whole->rate_ms : 0;
    info->concurrency = whole != NULL ? whole->concurrency : 0;
    info->limits = (uint32_t)(limits->n - (whole != NULL));
}

int64_t mr_limit_span_us(const struct mr_limit *limit)
{
    enum { PART = 100, MOST_US = 50000 };
    int64_t us = limit->rate_ms * MR_US_PER_MS, more = us / PART;
    return us + (more < MOST_US ? more : MOST_US);
}

/* ---- encoding ------------------------------------------------------------------------------- */

#define FIELD(kind, member, more)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_limit, member), more                                    \
    }
static const struct mr_flat_field limit_fields[] = {
    FIELD(ENUM, scope, MR_LIMIT_SCOPE_COUNT - 1),
    FIELD(CHARS, name, MR_NAME_MAX + 1),
    FIELD(U32, rate, 0),
    FIELD(64, rate_ms, 0),
    FIELD(U32, concurrency, 0),
    FIELD(U32, active, 0),
    FIELD(64, rate_until_ms, 0),
};
MR_FLAT(struct mr_limit, mr_flat_limit, limit_fields);

enum { FIELD_LIMITS = 1 };

enum mr_err mr_limits_encode(const struct mr_limits *limits, struct mr_buf *buf)
{
    for (size_t i = 0; i < limits->n; i++) {
        size_t len = mr_flat_size(&mr_flat_limit, &limits->at[i]);
        MR_TRY(mr_buf_reserve(buf, mr_flat_head_size(len) + len));
        uint8_t *at = mr_flat_put_head(buf->data + buf->len, FIELD_LIMITS, len);
        mr_flat_write(&mr_flat_limit, &limits->at[i], at);
        buf->len += mr_flat_head_size(len) + len;
    }
    return MR_OK;
}

static enum mr_err decode_one(struct mr_slice bytes, struct mr_limits *limits)
{
    struct mr_limit limit = {0};
    enum mr_err err = mr_flat_read(&mr_flat_limit, bytes, NULL, &limit);
    if (err != MR_OK)
        return err == MR_INVALID ? MR_DAMAGED : err;
    struct mr_req_queue_set rate = {.setting = MR_QUEUE_RATE,
                                    .value = limit.rate,
                                    .rate_ms = limit.rate_ms,
                                    .scope = limit.scope,
                                    .name = mr_slice_str(limit.name)};
    struct mr_req_queue_set concurrency = rate;
    concurrency.setting = MR_QUEUE_CONCURRENCY;
    concurrency.value = limit.concurrency;
    if (mr_limit_check(&rate) != MR_OK || mr_limit_check(&concurrency) != MR_OK)
        return MR_DAMAGED;
    err = mr_limits_change(limits, &rate);
    if (err == MR_OK)
        err = mr_limits_change(limits, &concurrency);
    return err == MR_TOO_BIG ? MR_DAMAGED : err;
}

enum mr_err mr_limits_decode(struct mr_slice bytes, struct mr_limits *limits)
{
    enum mr_err err = MR_OK;
    while (bytes.len > 0 && err == MR_OK) {
        struct mr_flat_item item;
        err = mr_flat_next(&bytes, &item) == MR_OK ? MR_OK : MR_DAMAGED;
        bool known = err == MR_OK && item.number == FIELD_LIMITS && item.type == MR_FLAT_BYTES;
        if (err == MR_OK)
            err = known ? decode_one(item.bytes, limits) : MR_DAMAGED;
    }
    if (err != MR_OK)
        mr_limits_done(limits);
    return err;
}
