/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/flat.h"

enum { VARINT_MAX = 10 };

/* ---- varints -------------------------------------------------------------------------------- */

size_t mr_flat_varint_size(uint64_t value)
{
    return (size_t)(63 - __builtin_clzll(value | 1)) / 7 + 1;
}

static uint8_t *put(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static enum mr_err take(struct mr_slice *bytes, uint64_t *ret_value)
{
    const uint8_t *p = bytes->data;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes->len && i < VARINT_MAX; i++) {
        value |= (uint64_t)(p[i] & 0x7f) << (7 * i);
        if (p[i] < 0x80) {
            bytes->data = p + i + 1;
            bytes->len -= i + 1;
            *ret_value = value;
            return MR_OK;
        }
    }
    return MR_INVALID;
}

static uint8_t *put_tag(uint8_t *at, size_t number, enum mr_flat_type type)
{
    return put(at, number << 3 | type);
}

/* ---- by hand -------------------------------------------------------------------------------- */

static enum mr_err take_bytes(struct mr_slice *bytes, uint64_t len, struct mr_slice *ret_bytes)
{
    if (len > bytes->len)
        return MR_INVALID;
    *ret_bytes = mr_slice_make(bytes->data, len);
    bytes->data = (const uint8_t *)bytes->data + len;
    bytes->len -= len;
    return MR_OK;
}

enum mr_err mr_flat_next(struct mr_slice *bytes, struct mr_flat_item *ret_item)
{
    uint64_t tag;
    struct mr_slice fixed;
    MR_TRY(take(bytes, &tag));
    if (tag >> 3 == 0 || tag >> 32 != 0)
        return MR_INVALID;
    ret_item->number = (uint32_t)(tag >> 3);
    ret_item->type = (enum mr_flat_type)(tag & 7);
    if (ret_item->type == MR_FLAT_VARINT)
        return take(bytes, &ret_item->value);
    if (ret_item->type == MR_FLAT_BYTES) {
        MR_TRY(take(bytes, &ret_item->value));
        return take_bytes(bytes, ret_item->value, &ret_item->bytes);
    }
    if (ret_item->type == MR_FLAT_EIGHT) {
        MR_TRY(take_bytes(bytes, 8, &fixed));
        ret_item->value = mr_load64(fixed.data);
        return MR_OK;
    }
    if (ret_item->type == MR_FLAT_FOUR) {
        MR_TRY(take_bytes(bytes, 4, &fixed));
        ret_item->value = mr_load32(fixed.data);
        return MR_OK;
    }
    return MR_INVALID;
}

enum mr_err mr_flat_count(struct mr_slice bytes, uint32_t number, size_t *ret_n)
{
    size_t n = 0;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        n += item.number == number && item.type == MR_FLAT_BYTES;
    }
    *ret_n = n;
    return MR_OK;
}

size_t mr_flat_head_size(size_t len)
{
    return 1 + mr_flat_varint_size(len);
}

uint8_t *mr_flat_put_head(uint8_t *at, unsigned number, size_t len)
{
    return put(put_tag(at, number, MR_FLAT_BYTES), len);
}

uint8_t *mr_flat_put_varint(uint8_t *at, unsigned number, uint64_t value)
{
    return put(put_tag(at, number, MR_FLAT_VARINT), value);
}

/* ---- fields of a struct --------------------------------------------------------------------- */

/* A number as it stands on the wire: a negative one is sign-extended to 64 bits. */
static uint64_t number_at(const struct mr_flat_field *field, const uint8_t *at)
{
    int32_t small;
    uint64_t big;
    switch ((enum mr_flat_kind)field->kind) {
    case MR_FLAT_BOOL:
        return *at != 0;
    case MR_FLAT_32:
    case MR_FLAT_ENUM:
        memcpy(&small, at, sizeof small);
        return (uint64_t)(int64_t)small;
    case MR_FLAT_U32:
        return mr_load32(at);
    default:
        memcpy(&big, at, sizeof big);
        return big;
    }
}

static struct mr_slice bytes_at(const struct mr_flat_field *field, const uint8_t *at)
{
    struct mr_slice bytes;
    if (field->kind == MR_FLAT_CHARS)
        return mr_slice_make(at, strlen((const char *)at));
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

static const struct mr_header *headers_at(const struct mr_flat_field *field, const uint8_t *in,
                                          size_t *ret_n)
{
    const struct mr_header *headers;
    memcpy(&headers, in + field->offset, sizeof headers);
    memcpy(ret_n, in + field->more, sizeof *ret_n);
    return headers;
}

static size_t tag_size(size_t number)
{
    return number < 16 ? 1 : 2;
}

static size_t bytes_size(size_t number, size_t len)
{
    return len == 0 ? 0 : tag_size(number) + mr_flat_varint_size(len) + len;
}

static size_t header_size(const struct mr_header *header)
{
    return bytes_size(1, header->name.len) + bytes_size(2, header->value.len);
}

static size_t headers_size(const struct mr_flat_field *field, const uint8_t *in, size_t number)
{
    size_t n, size = 0;
    const struct mr_header *headers = headers_at(field, in, &n);
    for (size_t i = 0; i < n; i++) {
        size_t len = header_size(&headers[i]);
        size += tag_size(number) + mr_flat_varint_size(len) + len;
    }
    return size;
}

size_t mr_flat_size(const struct mr_flat *flat, const void *in)
{
    size_t size = 0;
    for (size_t i = 0; i < flat->n; i++) {
        const struct mr_flat_field *field = &flat->fields[i];
        const uint8_t *at = (const uint8_t *)in + field->offset;
        enum mr_flat_kind kind = field->kind;
        if (kind == MR_FLAT_NONE)
            continue;
        if (kind == MR_FLAT_SLICE || kind == MR_FLAT_CHARS) {
            size += bytes_size(i + 1, bytes_at(field, at).len);
        } else if (kind == MR_FLAT_HEADERS) {
            size += headers_size(field, in, i + 1);
        } else {
            uint64_t value = number_at(field, at);
            bool fixed = kind == MR_FLAT_FIXED64 || kind == MR_FLAT_DOUBLE;
            if (value != 0)
                size += tag_size(i + 1) + (fixed ? 8 : mr_flat_varint_size(value));
        }
    }
    return size;
}

static uint8_t *put_bytes(uint8_t *at, size_t number, struct mr_slice bytes)
{
    if (bytes.len == 0)
        return at;
    at = put(put_tag(at, number, MR_FLAT_BYTES), bytes.len);
    memcpy(at, bytes.data, bytes.len);
    return at + bytes.len;
}

static uint8_t *put_headers(uint8_t *at, size_t number, const struct mr_header *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        at = put(put_tag(at, number, MR_FLAT_BYTES), header_size(&headers[i]));
        at = put_bytes(at, 1, headers[i].name);
        at = put_bytes(at, 2, headers[i].value);
    }
    return at;
}

static uint8_t *put_number(uint8_t *at, size_t number, enum mr_flat_kind kind, uint64_t value)
{
    if (value == 0)
        return at;
    if (kind != MR_FLAT_FIXED64 && kind != MR_FLAT_DOUBLE)
        return put(put_tag(at, number, MR_FLAT_VARINT), value);
    at = put_tag(at, number, MR_FLAT_EIGHT);
    mr_store64(at, value);
    return at + sizeof value;
}

uint8_t *mr_flat_write(const struct mr_flat *flat, const void *in, uint8_t *at)
{
    for (size_t i = 0; i < flat->n; i++) {
        const struct mr_flat_field *field = &flat->fields[i];
        const uint8_t *from = (const uint8_t *)in + field->offset;
        enum mr_flat_kind kind = field->kind;
        if (kind == MR_FLAT_NONE)
            continue;
        if (kind == MR_FLAT_SLICE || kind == MR_FLAT_CHARS) {
            at = put_bytes(at, i + 1, bytes_at(field, from));
        } else if (kind == MR_FLAT_HEADERS) {
            size_t n;
            const struct mr_header *headers = headers_at(field, in, &n);
            at = put_headers(at, i + 1, headers, n);
        } else {
            at = put_number(at, i + 1, kind, number_at(field, from));
        }
    }
    return at;
}

/* One byte more, so that there is somewhere to point to when there is nothing to say. */
enum mr_err mr_flat_append(const struct mr_flat *flat, const void *in, struct mr_buf *buf)
{
    size_t size = mr_flat_size(flat, in);
    MR_TRY(mr_buf_reserve(buf, size + 1));
    mr_flat_write(flat, in, buf->data + buf->len);
    buf->len += size;
    return MR_OK;
}

enum mr_err mr_flat_make(const struct mr_flat *flat, const void *in, struct mr_arena *arena,
                         struct mr_slice *ret_bytes)
{
    size_t size = mr_flat_size(flat, in);
    uint8_t *bytes = mr_arena_alloc(arena, size + 1);
    if (bytes == NULL)
        return MR_NOMEM;
    mr_flat_write(flat, in, bytes);
    *ret_bytes = mr_slice_make(bytes, size);
    return MR_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

static enum mr_err read_header(struct mr_slice bytes, struct mr_header *header)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.type != MR_FLAT_BYTES && item.number <= 2)
            return MR_INVALID;
        if (item.number == 1)
            header->name = item.bytes;
        if (item.number == 2)
            header->value = item.bytes;
    }
    return MR_OK;
}

struct reading {
    struct mr_slice whole;
    struct mr_arena *arena;
    uint8_t *out;
    uint32_t number; /* of the field at hand */
};

/* The first of them makes room for all, up to one more than is allowed: millions of empty ones fit a
 * message. */
static enum mr_err add_header(const struct reading *reading, const struct mr_flat_field *field,
                              struct mr_slice bytes)
{
    size_t n, all;
    struct mr_header *headers = (struct mr_header *)(uintptr_t)headers_at(field, reading->out, &n);
    if (n > MR_HEADERS_MAX)
        return MR_OK;
    if (headers == NULL) {
        MR_TRY(mr_flat_count(reading->whole, reading->number, &all));
        all = all <= MR_HEADERS_MAX ? all : MR_HEADERS_MAX + 1;
        headers = mr_arena_calloc(reading->arena, all, sizeof *headers);
        if (headers == NULL)
            return MR_NOMEM;
        memcpy(reading->out + field->offset, &headers, sizeof headers);
    }
    MR_TRY(read_header(bytes, &headers[n]));
    n++;
    memcpy(reading->out + field->more, &n, sizeof n);
    return MR_OK;
}

static enum mr_err put_field_bytes(const struct reading *reading, const struct mr_flat_field *field,
                                   struct mr_slice bytes)
{
    uint8_t *to = reading->out + field->offset;
    if (field->kind == MR_FLAT_HEADERS)
        return add_header(reading, field, bytes);
    if (field->kind == MR_FLAT_SLICE) {
        memcpy(to, &bytes, sizeof bytes);
        return MR_OK;
    }
    size_t len = bytes.len < field->more ? bytes.len : field->more - 1u;
    if (len > 0)
        memcpy(to, bytes.data, len);
    to[len] = '\0';
    return MR_OK;
}

static enum mr_err put_field_number(uint8_t *to, const struct mr_flat_field *field, uint64_t value)
{
    uint32_t small = (uint32_t)value;
    switch ((enum mr_flat_kind)field->kind) {
    case MR_FLAT_BOOL:
        *to = value != 0;
        return MR_OK;
    case MR_FLAT_ENUM:
        if (value > field->more)
            return MR_INVALID;
        memcpy(to, &small, sizeof small);
        return MR_OK;
    case MR_FLAT_32:
    case MR_FLAT_U32:
        memcpy(to, &small, sizeof small);
        return MR_OK;
    default:
        memcpy(to, &value, sizeof value);
        return MR_OK;
    }
}

static const uint8_t types[] = {
    [MR_FLAT_SLICE] = MR_FLAT_BYTES,   [MR_FLAT_CHARS] = MR_FLAT_BYTES,
    [MR_FLAT_32] = MR_FLAT_VARINT,     [MR_FLAT_U32] = MR_FLAT_VARINT,
    [MR_FLAT_64] = MR_FLAT_VARINT,     [MR_FLAT_BOOL] = MR_FLAT_VARINT,
    [MR_FLAT_ENUM] = MR_FLAT_VARINT,   [MR_FLAT_DOUBLE] = MR_FLAT_EIGHT,
    [MR_FLAT_FIXED64] = MR_FLAT_EIGHT, [MR_FLAT_HEADERS] = MR_FLAT_BYTES,
};

enum mr_err mr_flat_read(const struct mr_flat *flat, struct mr_slice bytes, struct mr_arena *arena,
                         void *out)
{
    struct reading reading = {.whole = bytes, .arena = arena, .out = out};
    memset(out, 0, flat->size);
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number > flat->n || flat->fields[item.number - 1].kind == MR_FLAT_NONE)
            continue; /* of a later version */
        const struct mr_flat_field *field = &flat->fields[item.number - 1];
        if (item.type != types[field->kind])
            return MR_INVALID;
        reading.number = item.number;
        if (item.type == MR_FLAT_BYTES)
            MR_TRY(put_field_bytes(&reading, field, item.bytes));
        else
            MR_TRY(put_field_number(reading.out + field->offset, field, item.value));
    }
    return MR_OK;
}

/* ---- the tables: row i is field i + 1 of the .proto ----------------------------------------- */

#define FIELD(kind, type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(type, member), 0                                                  \
    }
#define FIELD_ENUM(type, member, most)                                                             \
    {                                                                                              \
        MR_FLAT_ENUM, offsetof(type, member), most                                                 \
    }
#define FIELD_CHARS(type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_CHARS, offsetof(type, member), sizeof(((type *)0)->member)                         \
    }
#define FIELD_HEADERS(type)                                                                        \
    {                                                                                              \
        MR_FLAT_HEADERS, offsetof(type, headers), offsetof(type, headers_n)                        \
    }

#define NEW(kind, member) FIELD(kind, struct mr_task_options, member)
static const struct mr_flat_field new_task_fields[] = {
    NEW(SLICE, queue),
    NEW(SLICE, type),
    NEW(SLICE, payload),
    NEW(SLICE, id),
    NEW(DOUBLE, priority_s),
    NEW(64, delay_ms),
    NEW(64, at_ms),
    NEW(32, max_retry),
    NEW(64, timeout_ms),
    NEW(64, deadline_ms),
    NEW(64, retention_ms),
    NEW(64, unique_ms),
    NEW(SLICE, unique_key),
    FIELD_ENUM(struct mr_task_options, on_duplicate, MR_DUPLICATE_REPLACE),
    NEW(SLICE, group),
    NEW(SLICE, topic),
    FIELD_HEADERS(struct mr_task_options),
    NEW(SLICE, key),
    NEW(U32, partition),
};
MR_FLAT(struct mr_task_options, mr_flat_new_task, new_task_fields);

#define TASK(kind, member) FIELD(kind, struct mr_task, member)
static const struct mr_flat_field task_fields[] = {
    TASK(SLICE, id),
    TASK(SLICE, queue),
    TASK(SLICE, type),
    TASK(SLICE, payload),
    FIELD_ENUM(struct mr_task, state, MR_STATE_COUNT - 1),
    FIELD_HEADERS(struct mr_task),
    TASK(DOUBLE, priority_s),
    TASK(64, order_time_ms),
    TASK(U32, attempt),
    TASK(U32, retried),
    TASK(U32, max_retry),
    TASK(U32, crashes),
    TASK(FIXED64, epoch),
    TASK(64, timeout_ms),
    TASK(64, deadline_ms),
    TASK(64, retention_ms),
    TASK(64, created_ms),
    TASK(64, due_ms),
    TASK(64, started_ms),
    TASK(64, finished_ms),
    TASK(64, last_failed_ms),
    TASK(SLICE, unique_key),
    TASK(SLICE, group),
    TASK(SLICE, topic),
    TASK(SLICE, node),
    TASK(SLICE, progress),
    TASK(SLICE, last_error),
    TASK(SLICE, result),
    TASK(BOOL, cancel_requested),
    TASK(64, unique_until_ms),
    TASK(BOOL, held),
    TASK(U32, partition),
    TASK(SLICE, key),
    TASK(SLICE, past),
};
MR_FLAT(struct mr_task, mr_flat_task, task_fields);

static const struct mr_flat_field enqueue_result_fields[] = {
    FIELD_CHARS(struct mr_enqueue_result, id),
    FIELD_ENUM(struct mr_enqueue_result, state, MR_STATE_COUNT - 1),
    FIELD_ENUM(struct mr_enqueue_result, err, MR_ERR_COUNT - 1),
};
MR_FLAT(struct mr_enqueue_result, mr_flat_enqueue_result, enqueue_result_fields);

#define QUEUE(kind, member) FIELD(kind, struct mr_queue_info, member)
static const struct mr_flat_field queue_fields[] = {
    FIELD_CHARS(struct mr_queue_info, name),
    QUEUE(64, counts[MR_PENDING]),
    QUEUE(64, counts[MR_ACTIVE]),
    QUEUE(64, counts[MR_SCHEDULED]),
    QUEUE(64, counts[MR_RETRY]),
    QUEUE(64, counts[MR_ARCHIVED]),
    QUEUE(64, counts[MR_COMPLETED]),
    QUEUE(BOOL, paused),
    QUEUE(64, oldest_pending_ms),
    QUEUE(64, processed_total),
    QUEUE(64, failed_total),
    QUEUE(64, processed_today),
    QUEUE(64, failed_today),
    QUEUE(64, max_length),
    QUEUE(64, wait_p50_us),
    QUEUE(64, wait_p99_us),
    QUEUE(64, run_p50_us),
    QUEUE(64, run_p99_us),
    QUEUE(64, counts[MR_AGGREGATING]),
    QUEUE(U32, partitions),
    FIELD_ENUM(struct mr_queue_info, assign, MR_ASSIGN_COUNT - 1),
    QUEUE(64, trimmed),
    QUEUE(64, quarantined),
    FIELD_ENUM(struct mr_queue_info, retry_mode, MR_RETRY_MODE_COUNT - 1),
    QUEUE(64, retry_wait_ms),
    QUEUE(U32, rate),
    QUEUE(64, rate_ms),
    QUEUE(U32, concurrency),
    QUEUE(U32, limits),
};
MR_FLAT(struct mr_queue_info, mr_flat_queue, queue_fields);

#define STATS(kind, member) FIELD(kind, struct mr_stats, member)
static const struct mr_flat_field stats_fields[] = {
    STATS(64, tasks),         STATS(64, memory_bytes), STATS(64, disk_bytes),
    STATS(64, live_bytes),    STATS(64, segments),     STATS(64, syncs),
    STATS(64, sync_p50_us),   STATS(64, sync_p99_us),  STATS(64, records_damaged),
    STATS(64, stale_refused), STATS(64, deleted),      STATS(64, expired),
    STATS(64, snapshots),     STATS(BOOL, disk_full),  STATS(BOOL, failed),
    STATS(64, texts_dropped), STATS(BOOL, upkeep),     STATS(64, gathered),
    STATS(64, carried),       STATS(64, moved),        STATS(64, results),
    STATS(64, trimmed),       STATS(64, quarantined),  STATS(64, leaderless_ms),
};
MR_FLAT(struct mr_stats, mr_flat_stats, stats_fields);
