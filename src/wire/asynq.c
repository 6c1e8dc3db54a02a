/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain fields of a message are a table (wire/flat.h). Maps and times stand between them and are
 * written by hand: Go writes both halves of a map's entry, empty ones too.
 */
#include "wire/asynq.h"

#include <openssl/evp.h>

#include "wire/flat.h"

enum { KEY_AND_VALUE = 2 };
enum { TASK_HEADERS = 15, SERVER_QUEUES = 5, SERVER_STARTED = 8, SERVER_ACTIVE = 9 };
enum { WORKER_STARTED = 8, WORKER_DEADLINE = 9 };
enum { ENTRY_OPTIONS = 5, ENTRY_NEXT = 6, ENTRY_PREV = 7, ENQUEUED_AT = 2 };
enum { TIME_MAX = 24, ENTRY_HEAD_MAX = 32 }; /* bytes of a time, and around the text of an entry */

#define MD5_BYTES 16

/* ---- tables: row i is field i + 1 ----------------------------------------------------------- */

#define FIELD(kind, type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(type, member), 0                                                  \
    }
#define NO_FIELD                                                                                   \
    {                                                                                              \
        MR_FLAT_NONE, 0, 0                                                                         \
    }

#define TASK(kind, member) FIELD(kind, struct mr_asynq_task, member)
static const struct mr_flat_field task_fields[] = {
    TASK(SLICE, type),     TASK(SLICE, payload),    TASK(SLICE, id),         TASK(SLICE, queue),
    TASK(32, retry),       TASK(32, retried),       TASK(SLICE, error),      TASK(64, timeout_s),
    TASK(64, deadline_s),  TASK(SLICE, unique_key), TASK(64, last_failed_s), TASK(64, retention_s),
    TASK(64, completed_s), TASK(SLICE, group),
};
static MR_FLAT(struct mr_asynq_task, task_flat, task_fields);

#define SERVER(kind, member) FIELD(kind, struct mr_asynq_server, member)
static const struct mr_flat_field server_fields[] = {
    SERVER(SLICE, host),     SERVER(32, pid), SERVER(SLICE, id),
    SERVER(32, concurrency), NO_FIELD,        SERVER(BOOL, strict),
    SERVER(SLICE, status),   NO_FIELD,        SERVER(32, active),
};
static MR_FLAT(struct mr_asynq_server, server_flat, server_fields);
/* The same in three parts, with what is written by hand between them. */
static const struct mr_flat_field server_middle_fields[] = {
    NO_FIELD, NO_FIELD, NO_FIELD, NO_FIELD, NO_FIELD, SERVER(BOOL, strict), SERVER(SLICE, status),
};
static const struct mr_flat server_first = {server_fields, 4, sizeof(struct mr_asynq_server)};
static MR_FLAT(struct mr_asynq_server, server_middle, server_middle_fields);

#define WORKER(kind, member) FIELD(kind, struct mr_asynq_worker, member)
static const struct mr_flat_field worker_fields[] = {
    WORKER(SLICE, host),    WORKER(32, pid),          WORKER(SLICE, server_id),
    WORKER(SLICE, task_id), WORKER(SLICE, task_type), WORKER(SLICE, task_payload),
    WORKER(SLICE, queue),
};
static MR_FLAT(struct mr_asynq_worker, worker_flat, worker_fields);

#define ENTRY(kind, member) FIELD(kind, struct mr_asynq_entry, member)
static const struct mr_flat_field entry_fields[] = {
    ENTRY(SLICE, id),
    ENTRY(SLICE, spec),
    ENTRY(SLICE, task_type),
    ENTRY(SLICE, task_payload),
};
static MR_FLAT(struct mr_asynq_entry, entry_flat, entry_fields);

static const struct mr_flat_field time_fields[] = {
    FIELD(64, struct mr_asynq_time, seconds),
    FIELD(32, struct mr_asynq_time, nanos),
};
static MR_FLAT(struct mr_asynq_time, time_flat, time_fields);

static const struct mr_flat_field queue_fields[] = {
    FIELD(SLICE, struct mr_worker_queue, name),
    FIELD(U32, struct mr_worker_queue, weight),
};
static MR_FLAT(struct mr_worker_queue, queue_flat, queue_fields);

static const struct mr_flat_field header_fields[] = {
    FIELD(SLICE, struct mr_header, name),
    FIELD(SLICE, struct mr_header, value),
};
static MR_FLAT(struct mr_header, header_flat, header_fields);

/* ---- writing -------------------------------------------------------------------------------- */

static uint8_t *put_text(uint8_t *at, unsigned number, struct mr_slice text)
{
    at = mr_flat_put_head(at, number, text.len);
    if (text.len > 0)
        memcpy(at, text.data, text.len);
    return at + text.len;
}

static enum mr_err append_header(const struct mr_header *header, struct mr_buf *out)
{
    size_t len = mr_flat_head_size(header->name.len) + header->name.len +
                 mr_flat_head_size(header->value.len) + header->value.len;
    if (!mr_utf8_valid(header->name) || !mr_utf8_valid(header->value))
        return MR_INVALID;
    MR_TRY(mr_buf_reserve(out, len + ENTRY_HEAD_MAX));
    uint8_t *at = mr_flat_put_head(out->data + out->len, TASK_HEADERS, len);
    at = put_text(at, 1, header->name);
    at = put_text(at, KEY_AND_VALUE, header->value);
    out->len = (size_t)(at - out->data);
    return MR_OK;
}

static enum mr_err append_queue(const struct mr_worker_queue *queue, struct mr_buf *out)
{
    uint32_t weight = queue->weight > 0 ? queue->weight : 1;
    size_t len =
        mr_flat_head_size(queue->name.len) + queue->name.len + 1 + mr_flat_varint_size(weight);
    MR_TRY(mr_buf_reserve(out, len + ENTRY_HEAD_MAX));
    uint8_t *at = mr_flat_put_head(out->data + out->len, SERVER_QUEUES, len);
    at = put_text(at, 1, queue->name);
    at = mr_flat_put_varint(at, KEY_AND_VALUE, weight);
    out->len = (size_t)(at - out->data);
    return MR_OK;
}

static enum mr_err append_time(const struct mr_asynq_time *time, unsigned number,
                               struct mr_buf *out)
{
    size_t len = mr_flat_size(&time_flat, time);
    if (len == 0)
        return MR_OK;
    MR_TRY(mr_buf_reserve(out, TIME_MAX));
    uint8_t *at = mr_flat_put_head(out->data + out->len, number, len);
    at = mr_flat_write(&time_flat, time, at);
    out->len = (size_t)(at - out->data);
    return MR_OK;
}

/* All or nothing: what a failed step left is cut off. */
static enum mr_err whole(enum mr_err err, size_t before, struct mr_buf *out)
{
    if (err != MR_OK)
        out->len = before;
    return err;
}

/* With the error text as it is. */
static enum mr_err task_encode(const struct mr_asynq_task *task, struct mr_buf *out)
{
    MR_TRY(mr_flat_append(&task_flat, task, out));
    for (size_t i = 0; i < task->headers_n; i++)
        MR_TRY(append_header(&task->headers[i], out));
    return MR_OK;
}

enum mr_err mr_asynq_task_encode(const struct mr_asynq_task *task, struct mr_buf *out)
{
    size_t before = out->len;
    if (mr_utf8_valid(task->error))
        return whole(task_encode(task, out), before, out);
    struct mr_buf error = {0};
    struct mr_asynq_task clean = *task;
    enum mr_err err = mr_buf_append_slice(&error, task->error);
    if (err == MR_OK) {
        mr_utf8_clean(error.data, error.len);
        clean.error = mr_buf_slice(&error);
        err = task_encode(&clean, out);
    }
    mr_buf_done(&error);
    return whole(err, before, out);
}

static enum mr_err server_encode(const struct mr_asynq_server *server, struct mr_buf *out)
{
    MR_TRY(mr_flat_append(&server_first, server, out));
    for (size_t i = 0; i < server->queues_n; i++)
        MR_TRY(append_queue(&server->queues[i], out));
    MR_TRY(mr_flat_append(&server_middle, server, out));
    MR_TRY(append_time(&server->started, SERVER_STARTED, out));
    if (server->active == 0)
        return MR_OK;
    MR_TRY(mr_buf_reserve(out, ENTRY_HEAD_MAX));
    uint8_t *at =
        mr_flat_put_varint(out->data + out->len, SERVER_ACTIVE, (uint64_t)(int64_t)server->active);
    out->len = (size_t)(at - out->data);
    return MR_OK;
}

enum mr_err mr_asynq_server_encode(const struct mr_asynq_server *server, struct mr_buf *out)
{
    size_t before = out->len;
    return whole(server_encode(server, out), before, out);
}

static enum mr_err worker_encode(const struct mr_asynq_worker *worker, struct mr_buf *out)
{
    MR_TRY(mr_flat_append(&worker_flat, worker, out));
    MR_TRY(append_time(&worker->started, WORKER_STARTED, out));
    return append_time(&worker->deadline, WORKER_DEADLINE, out);
}

enum mr_err mr_asynq_worker_encode(const struct mr_asynq_worker *worker, struct mr_buf *out)
{
    size_t before = out->len;
    return whole(worker_encode(worker, out), before, out);
}

static enum mr_err entry_encode(const struct mr_asynq_entry *entry, struct mr_buf *out)
{
    MR_TRY(mr_flat_append(&entry_flat, entry, out));
    for (size_t i = 0; i < entry->options_n; i++) {
        MR_TRY(mr_buf_reserve(out, entry->options[i].len + ENTRY_HEAD_MAX));
        uint8_t *at = put_text(out->data + out->len, ENTRY_OPTIONS, entry->options[i]);
        out->len = (size_t)(at - out->data);
    }
    MR_TRY(append_time(&entry->next, ENTRY_NEXT, out));
    return append_time(&entry->prev, ENTRY_PREV, out);
}

enum mr_err mr_asynq_entry_encode(const struct mr_asynq_entry *entry, struct mr_buf *out)
{
    size_t before = out->len;
    return whole(entry_encode(entry, out), before, out);
}

static enum mr_err enqueued_encode(struct mr_slice task_id, const struct mr_asynq_time *at,
                                   struct mr_buf *out)
{
    MR_TRY(mr_buf_reserve(out, task_id.len + ENTRY_HEAD_MAX));
    uint8_t *end = put_text(out->data + out->len, 1, task_id);
    out->len = (size_t)(end - out->data);
    return append_time(at, ENQUEUED_AT, out);
}

enum mr_err mr_asynq_enqueued_encode(struct mr_slice task_id, const struct mr_asynq_time *at,
                                     struct mr_buf *out)
{
    size_t before = out->len;
    return whole(enqueued_encode(task_id, at, out), before, out);
}

static enum mr_err append_md5(struct mr_slice bytes, struct mr_buf *out)
{
    unsigned char md5[EVP_MAX_MD_SIZE];
    unsigned len;
    if (EVP_Digest(bytes.data, bytes.len, md5, &len, EVP_md5(), NULL) != 1 || len != MD5_BYTES)
        return MR_UNSUPPORTED;
    for (size_t i = 0; i < MD5_BYTES; i++)
        MR_TRY(mr_buf_printf(out, "%02x", md5[i]));
    return MR_OK;
}

static enum mr_err unique_key(struct mr_slice prefix, struct mr_slice queue, struct mr_slice type,
                              struct mr_slice payload, struct mr_buf *out)
{
    const struct mr_slice parts[] = {
        prefix, MR_SLICE_LIT("asynq:{"), queue, MR_SLICE_LIT("}:unique:"), type, MR_SLICE_LIT(":")};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        MR_TRY(mr_buf_append_slice(out, parts[i]));
    return payload.data == NULL ? MR_OK : append_md5(payload, out);
}

/* ---- reading -------------------------------------------------------------------------------- */

static enum mr_err damaged(enum mr_err err)
{
    return err == MR_INVALID ? MR_DAMAGED : err;
}

/* The entries of a map, in the arena. */
static enum mr_err read_entries(const struct mr_flat *entry, uint32_t number, struct mr_slice bytes,
                                struct mr_arena *arena, uint8_t **ret_entries, size_t *ret_n)
{
    size_t n;
    MR_TRY(mr_flat_count(bytes, number, &n));
    if (n == 0)
        return MR_OK;
    uint8_t *entries = mr_arena_calloc(arena, n, entry->size);
    if (entries == NULL)
        return MR_NOMEM;
    *ret_entries = entries;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != number || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(mr_flat_read(entry, item.bytes, NULL, entries));
        entries += entry->size;
    }
    *ret_n = n;
    return MR_OK;
}

enum mr_err mr_asynq_task_decode(struct mr_slice bytes, struct mr_arena *arena,
                                 struct mr_asynq_task *ret_task)
{
    struct mr_asynq_task task;
    uint8_t *headers = NULL;
    MR_TRY(damaged(mr_flat_read(&task_flat, bytes, NULL, &task)));
    *ret_task = task; /* all but headers: without memory for those, it is known what it is */
    MR_TRY(
        damaged(read_entries(&header_flat, TASK_HEADERS, bytes, arena, &headers, &task.headers_n)));
    task.headers = (const void *)headers;
    *ret_task = task;
    return MR_OK;
}

static enum mr_err read_time(struct mr_slice bytes, uint32_t number, struct mr_asynq_time *ret_time)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == number && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&time_flat, item.bytes, NULL, ret_time));
    }
    return MR_OK;
}

enum mr_err mr_asynq_server_decode(struct mr_slice bytes, struct mr_arena *arena,
                                   struct mr_asynq_server *ret_server)
{
    struct mr_asynq_server server;
    uint8_t *queues = NULL;
    MR_TRY(damaged(mr_flat_read(&server_flat, bytes, NULL, &server)));
    MR_TRY(
        damaged(read_entries(&queue_flat, SERVER_QUEUES, bytes, arena, &queues, &server.queues_n)));
    MR_TRY(damaged(read_time(bytes, SERVER_STARTED, &server.started)));
    server.queues = (const void *)queues;
    *ret_server = server;
    return MR_OK;
}

/* ---- locks ---------------------------------------------------------------------------------- */

enum mr_err mr_asynq_unique_key(struct mr_slice prefix, struct mr_slice queue, struct mr_slice type,
                                struct mr_slice payload, struct mr_buf *out)
{
    size_t before = out->len;
    return whole(unique_key(prefix, queue, type, payload, out), before, out);
}
