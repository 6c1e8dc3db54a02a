/* SPDX-License-Identifier: Apache-2.0 */
/* See task.h for the layout. Decoding trusts nothing: every length is checked against what is
 * there. */
#include "wire/task.h"

#include <math.h>

enum task_field {
    FIELD_TIMEOUT = 1 << 0, /* absent: the default */
    FIELD_DEADLINE = 1 << 1,
    FIELD_RETENTION = 1 << 2,
    FIELD_UNIQUE_MS = 1 << 3,
    FIELD_PRIORITY = 1 << 4,
    FIELD_UNIQUE_KEY = 1 << 5,
    FIELD_GROUP = 1 << 6,
    FIELD_TOPIC = 1 << 7,
    FIELD_HEADERS = 1 << 8,
    FIELD_KEY = 1 << 9,
    FIELDS_KNOWN = (1 << 10) - 1,
};

/* ---- encoding ------------------------------------------------------------------------------- */

struct writer {
    uint8_t *at;
    uint16_t fields;
};

static void put_bytes(struct writer *w, struct mr_slice bytes)
{
    if (bytes.len > 0)
        memcpy(w->at, bytes.data, bytes.len);
    w->at += bytes.len;
}

static void put_number(struct writer *w, uint16_t field, int64_t value)
{
    mr_store64(w->at, (uint64_t)value);
    w->at += 8;
    w->fields |= field;
}

static void put_name(struct writer *w, uint16_t field, struct mr_slice name)
{
    if (name.len == 0)
        return;
    *w->at++ = (uint8_t)name.len;
    put_bytes(w, name);
    w->fields |= field;
}

static void put_headers(struct writer *w, const struct mr_task_options *options)
{
    if (options->headers_n == 0)
        return;
    mr_store16(w->at, (uint16_t)options->headers_n);
    w->at += 2;
    for (size_t i = 0; i < options->headers_n; i++) {
        const struct mr_header *header = &options->headers[i];
        mr_store16(w->at, (uint16_t)header->name.len);
        mr_store16(w->at + 2, (uint16_t)header->value.len);
        w->at += 4;
        put_bytes(w, header->name);
        put_bytes(w, header->value);
    }
    w->fields |= FIELD_HEADERS;
}

static void put_fields(struct writer *w, const struct mr_task_options *options)
{
    int64_t priority_ms = mr_priority_ms(options->priority_s);
    if (options->timeout_ms != 0)
        put_number(w, FIELD_TIMEOUT, options->timeout_ms < 0 ? 0 : options->timeout_ms);
    if (options->deadline_ms != 0)
        put_number(w, FIELD_DEADLINE, options->deadline_ms);
    if (options->retention_ms != 0)
        put_number(w, FIELD_RETENTION, options->retention_ms);
    if (options->unique_ms != 0)
        put_number(w, FIELD_UNIQUE_MS, options->unique_ms);
    if (priority_ms != 0)
        put_number(w, FIELD_PRIORITY, priority_ms);
    put_name(w, FIELD_UNIQUE_KEY, options->unique_key);
    put_name(w, FIELD_GROUP, options->group);
    put_name(w, FIELD_TOPIC, options->topic);
    put_headers(w, options);
    put_name(w, FIELD_KEY, options->key);
}

int64_t mr_priority_ms(double priority_s)
{
    return llround(priority_s * 1000.0);
}

size_t mr_task_msg_bound(const struct mr_task_options *options, struct mr_slice id)
{
    size_t n = MR_TASK_FIXED + 5 * 8 + 4 + 2 + options->unique_key.len + options->group.len +
               options->topic.len + options->key.len + options->queue.len + options->type.len +
               id.len + options->payload.len + sizeof MR_DEFAULT_QUEUE + sizeof MR_DEFAULT_TYPE;
    for (size_t i = 0; i < options->headers_n; i++)
        n += 4 + options->headers[i].name.len + options->headers[i].value.len;
    return n;
}

enum mr_err mr_task_msg_encode(const struct mr_task_options *options, struct mr_slice id,
                               struct mr_buf *buf)
{
    struct mr_slice queue = mr_queue_or_default(options->queue);
    struct mr_slice type = options->type.len ? options->type : MR_SLICE_LIT(MR_DEFAULT_TYPE);
    MR_TRY(mr_buf_reserve(buf, mr_task_msg_bound(options, id)));
    uint8_t *start = buf->data + buf->len;
    struct writer w = {.at = start + MR_TASK_FIXED};
    put_fields(&w, options);
    put_bytes(&w, queue);
    put_bytes(&w, type);
    put_bytes(&w, id);
    put_bytes(&w, options->payload);
    int32_t retry = options->max_retry == 0 ? MR_DEFAULT_MAX_RETRY : options->max_retry;
    start[0] = MR_TASK_VERSION;
    start[1] = (uint8_t)queue.len;
    start[2] = (uint8_t)type.len;
    start[3] = (uint8_t)id.len;
    mr_store16(start + 4, (uint16_t)(retry < 0 ? 0 : retry));
    mr_store16(start + 6, w.fields);
    mr_store32(start + 8, (uint32_t)options->payload.len);
    buf->len += (size_t)(w.at - start);
    return MR_OK;
}

/* ---- decoding ------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

static struct mr_slice get_bytes(struct reader *r, size_t len)
{
    if (len > r->left) {
        r->bad = true;
        r->left = 0;
        return mr_slice_make(NULL, 0);
    }
    struct mr_slice bytes = mr_slice_make(r->at, len);
    r->at += len;
    r->left -= len;
    return bytes;
}

static int64_t get_number(struct reader *r, bool present, int64_t absent)
{
    if (!present)
        return absent;
    struct mr_slice bytes = get_bytes(r, 8);
    return r->bad ? absent : (int64_t)mr_load64(bytes.data);
}

static struct mr_slice get_name(struct reader *r, bool present)
{
    struct mr_slice len = get_bytes(r, present ? 1 : 0);
    return present && !r->bad ? get_bytes(r, *(const uint8_t *)len.data) : mr_slice_make(NULL, 0);
}

static void get_headers(struct reader *r, bool present, struct mr_task_msg *msg)
{
    msg->headers = mr_slice_make(NULL, 0);
    msg->headers_n = 0;
    struct mr_slice count = get_bytes(r, present ? 2 : 0);
    if (!present || r->bad)
        return;
    const uint8_t *start = r->at;
    size_t n = mr_load16(count.data);
    if (n > MR_HEADERS_MAX)
        r->bad = true;
    for (size_t i = 0; i < n && !r->bad; i++) {
        struct mr_slice lens = get_bytes(r, 4);
        if (!r->bad)
            get_bytes(r, (size_t)mr_load16(lens.data) + mr_load16((const uint8_t *)lens.data + 2));
    }
    if (r->bad)
        return;
    msg->headers = mr_slice_make(start, (size_t)(r->at - start));
    msg->headers_n = n;
}

void mr_task_msg_headers(const struct mr_task_msg *msg, struct mr_header *ret_headers)
{
    const uint8_t *at = msg->headers.data;
    for (size_t i = 0; i < msg->headers_n; i++) {
        size_t name_len = mr_load16(at), value_len = mr_load16(at + 2);
        ret_headers[i].name = mr_slice_make(at + 4, name_len);
        ret_headers[i].value = mr_slice_make(at + 4 + name_len, value_len);
        at += 4 + name_len + value_len;
    }
}

static bool names_fit(const struct mr_task_msg *msg)
{
    return msg->queue.len > 0 && msg->queue.len <= MR_NAME_MAX && msg->type.len > 0 &&
           msg->type.len <= MR_NAME_MAX && msg->id.len <= MR_ID_MAX &&
           msg->unique_key.len <= MR_NAME_MAX && msg->group.len <= MR_NAME_MAX &&
           msg->topic.len <= MR_NAME_MAX && msg->key.len <= MR_NAME_MAX;
}

enum mr_err mr_task_msg_decode(struct mr_slice bytes, struct mr_task_msg *ret_msg)
{
    const uint8_t *fixed = bytes.data;
    if (bytes.len < MR_TASK_FIXED)
        return MR_DAMAGED;
    if (fixed[0] != MR_TASK_VERSION)
        return fixed[0] > MR_TASK_VERSION ? MR_VERSION : MR_DAMAGED;
    uint16_t fields = mr_load16(fixed + 6);
    if (fields & ~FIELDS_KNOWN)
        return MR_DAMAGED;
    struct reader r = {fixed + MR_TASK_FIXED, bytes.len - MR_TASK_FIXED, false};
    struct mr_task_msg msg = {.max_retry = mr_load16(fixed + 4)};
    msg.timeout_ms = get_number(&r, fields & FIELD_TIMEOUT, MR_DEFAULT_TIMEOUT_MS);
    msg.deadline_ms = get_number(&r, fields & FIELD_DEADLINE, 0);
    msg.retention_ms = get_number(&r, fields & FIELD_RETENTION, 0);
    msg.unique_ms = get_number(&r, fields & FIELD_UNIQUE_MS, 0);
    msg.priority_ms = get_number(&r, fields & FIELD_PRIORITY, 0);
    msg.unique_key = get_name(&r, fields & FIELD_UNIQUE_KEY);
    msg.group = get_name(&r, fields & FIELD_GROUP);
    msg.topic = get_name(&r, fields & FIELD_TOPIC);
    get_headers(&r, fields & FIELD_HEADERS, &msg);
    msg.key = get_name(&r, fields & FIELD_KEY);
    msg.queue = get_bytes(&r, fixed[1]);
    msg.type = get_bytes(&r, fixed[2]);
    msg.id = get_bytes(&r, fixed[3]);
    msg.payload = get_bytes(&r, mr_load32(fixed + 8));
    if (r.bad || r.left != 0 || !names_fit(&msg))
        return MR_DAMAGED;
    *ret_msg = msg;
    return MR_OK;
}
