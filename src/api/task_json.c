/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task from JSON, field by field from a table. A field that no producer may set, or a word that
 * nobody knows, is an error that names it: a misspelt delay must not run a task at once.
 */
#include "api/task_json.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "broker/broker.h"
#include "wire/task.h"

struct reading {
    struct mr_task_options *task;
    struct mr_arena *arena;
    enum mr_err err;
    struct mr_detail *detail;
};

struct field {
    const char *name;
    /* Puts the value into the task; on failure fills err and detail. */
    void (*set)(struct reading *reading, const struct field *field, json_t *value);
    size_t offset; /* into struct mr_task_options */
};

static MR_PRINTF(3, 4) void refuse(struct reading *reading, enum mr_err err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(reading->detail->text, sizeof reading->detail->text, fmt, ap);
    va_end(ap);
    reading->err = err;
}

static void *place(struct reading *reading, const struct field *field)
{
    return (char *)reading->task + field->offset;
}

/* ---- setters -------------------------------------------------------------------------------- */

static void set_text(struct reading *reading, const struct field *field, json_t *value)
{
    if (!json_is_string(value)) {
        refuse(reading, MR_INVALID, "\"%s\" must be a string", field->name);
        return;
    }
    *(struct mr_slice *)place(reading, field) =
        mr_slice_make(json_string_value(value), json_string_length(value));
}

static void set_ms(struct reading *reading, const struct field *field, json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        refuse(reading, MR_INVALID, "\"%s\" must be a whole number of milliseconds, 0 or more",
               field->name);
    else
        *(int64_t *)place(reading, field) = json_integer_value(value);
}

/* 0 stands for none, where the C API has its own word for that. */
static void set_timeout(struct reading *reading, const struct field *field, json_t *value)
{
    set_ms(reading, field, value);
    if (reading->err == MR_OK && reading->task->timeout_ms == 0)
        reading->task->timeout_ms = MR_NO_TIMEOUT;
}

static void set_retry(struct reading *reading, const struct field *field, json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > MR_RETRY_MAX)
        refuse(reading, MR_INVALID, "\"%s\" must be a whole number within 0 and %d", field->name,
               MR_RETRY_MAX);
    else
        reading->task->max_retry = n == 0 ? MR_NO_RETRY : (int32_t)n;
}

static void set_number(struct reading *reading, const struct field *field, json_t *value)
{
    if (!json_is_number(value))
        refuse(reading, MR_INVALID, "\"%s\" must be a number", field->name);
    else
        *(double *)place(reading, field) = json_number_value(value);
}

static void set_on_duplicate(struct reading *reading, const struct field *field, json_t *value)
{
    static const char *const words[] = {"reject", "ignore", "replace"};
    const char *word = json_string_value(value);
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            reading->task->on_duplicate = (enum mr_on_duplicate)i;
            return;
        }
    }
    refuse(reading, MR_INVALID, "\"%s\" must be reject, ignore or replace", field->name);
}

static void set_headers(struct reading *reading, const struct field *field, json_t *value)
{
    if (!json_is_object(value) || json_object_size(value) > MR_HEADERS_MAX) {
        refuse(reading, MR_INVALID, "\"%s\" must be an object of at most %d strings", field->name,
               MR_HEADERS_MAX);
        return;
    }
    const char *name;
    json_t *text;
    size_t n = 0;
    struct mr_header *headers =
        mr_arena_calloc(reading->arena, json_object_size(value) + 1, sizeof *headers);
    if (headers == NULL) {
        refuse(reading, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    json_object_foreach(value, name, text)
    {
        if (!json_is_string(text)) {
            refuse(reading, MR_INVALID, "header \"%.100s\" must be a string", name);
            return;
        }
        headers[n++] = (struct mr_header){
            mr_slice_str(name), mr_slice_make(json_string_value(text), json_string_length(text))};
    }
    reading->task->headers = headers;
    reading->task->headers_n = n;
}

static void set_id(struct reading *reading, const struct field *field, json_t *value)
{
    set_text(reading, field, value);
    if (reading->err == MR_OK && reading->task->id.len == 0)
        refuse(reading, MR_INVALID, "\"id\" is empty; leave it out for a generated one");
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static void set_payload_base64(struct reading *reading, const struct field *field, json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : NULL;
    size_t whole = text ? json_string_length(value) : 1, len = whole, n = 0;
    while (text && len > 0 && text[len - 1] == '=' && len + 2 >= whole)
        len--;
    bool valid = text && len % 4 != 1 && whole % 4 == 0;
    uint8_t *bytes = mr_arena_alloc(reading->arena, len + 1);
    uint32_t bits = 0;
    if (!bytes) {
        refuse(reading, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
        return;
    }
    for (size_t i = 0; valid && i < len; i++) {
        int digit = base64_digit(text[i]);
        valid = digit >= 0;
        bits = bits << 6 | (uint32_t)(digit & 63);
        size_t have = i % 4; /* a byte is complete at every digit but the first of four */
        if (have > 0)
            bytes[n++] = (uint8_t)(bits >> (6 - 2 * have));
    }
    if (!valid)
        refuse(reading, MR_INVALID, "\"%s\" must be a string in base64", field->name);
    else
        reading->task->payload = mr_slice_make(bytes, n);
}

static void set_by_broker(struct reading *reading, const struct field *field, json_t *value)
{
    (void)value;
    refuse(reading, MR_INVALID, "\"%s\" is not for a producer to set; leave it out", field->name);
}

static void set_partition(struct reading *reading, const struct field *field, json_t *value)
{
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : 0;
    if (number < 1 || number > MR_PARTITIONS_MAX)
        refuse(reading, MR_INVALID, "\"%s\" must be a whole number from 1 to %d", field->name,
               MR_PARTITIONS_MAX);
    else
        reading->task->partition = (uint32_t)number;
}

#define AT(member) offsetof(struct mr_task_options, member)

static const struct field fields[] = {
    {"id", set_id, AT(id)},
    {"queue", set_text, AT(queue)},
    {"type", set_text, AT(type)},
    {"payload", set_text, AT(payload)},
    {"payload_base64", set_payload_base64, 0},
    {"headers", set_headers, 0},
    {"priority", set_number, AT(priority_s)},
    {"delay_ms", set_ms, AT(delay_ms)},
    {"at_ms", set_ms, AT(at_ms)},
    {"max_retry", set_retry, 0},
    {"timeout_ms", set_timeout, AT(timeout_ms)},
    {"deadline_ms", set_ms, AT(deadline_ms)},
    {"retention_ms", set_ms, AT(retention_ms)},
    {"unique_ms", set_ms, AT(unique_ms)},
    {"unique_key", set_text, AT(unique_key)},
    {"on_duplicate", set_on_duplicate, 0},
    {"group", set_text, AT(group)},
    {"topic", set_text, AT(topic)},
    {"key", set_text, AT(key)},
    {"partition", set_partition, 0},
    {"state", set_by_broker, 0},
    {"order_time_ms", set_by_broker, 0},
    {"attempt", set_by_broker, 0},
    {"retried", set_by_broker, 0},
    {"crashes", set_by_broker, 0},
    {"epoch", set_by_broker, 0},
    {"created_ms", set_by_broker, 0},
    {"due_ms", set_by_broker, 0},
    {"started_ms", set_by_broker, 0},
    {"finished_ms", set_by_broker, 0},
    {"node", set_by_broker, 0},
    {"progress", set_by_broker, 0},
    {"last_error", set_by_broker, 0},
    {"last_failed_ms", set_by_broker, 0},
    {"result", set_by_broker, 0},
};

/* ---- tasks ---------------------------------------------------------------------------------- */

enum { FIELDS_N = sizeof fields / sizeof *fields };

static void refuse_unknown(struct reading *reading, const char *name)
{
    const char *words[FIELDS_N + 1] = {0};
    for (size_t i = 0; i < FIELDS_N; i++)
        words[i] = fields[i].name;
    const char *nearest = mr_nearest_word(name, words);
    refuse(reading, MR_INVALID, "unknown field \"%.100s\"%s%s%s", name,
           nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

static void set_field(struct reading *reading, const char *name, json_t *value)
{
    size_t i = 0;
    while (i < FIELDS_N && strcmp(name, fields[i].name) != 0)
        i++;
    if (i == FIELDS_N)
        refuse_unknown(reading, name);
    else if (!json_is_null(value))
        fields[i].set(reading, &fields[i], value);
}

enum mr_err mr_task_from_json(json_t *json, struct mr_arena *arena, struct mr_task_options *task,
                              struct mr_detail *detail)
{
    struct reading reading = {.task = task, .arena = arena, .detail = detail};
    const char *name;
    json_t *value;
    if (!json_is_object(json)) {
        refuse(&reading, MR_INVALID,
               "a task must be a JSON object such as {\"payload\":\"hello\"}");
        return reading.err;
    }
    json_object_foreach(json, name, value)
    {
        if (reading.err == MR_OK)
            set_field(&reading, name, value);
    }
    if (reading.err == MR_OK && json_object_get(json, "payload") &&
        json_object_get(json, "payload_base64"))
        refuse(&reading, MR_INVALID,
               "\"payload\" and \"payload_base64\" are two payloads; give one");
    return reading.err;
}

bool mr_task_refusal(const struct mr_task_options *task, const struct mr_enqueue_result *result,
                     struct mr_detail *detail)
{
    struct mr_slice queue = mr_queue_or_default(task->queue);
    if (result->err == MR_CONFLICT)
        mr_detail_set(detail, "a task with the id %s exists (%s)", result->id,
                      mr_state_name(result->state));
    else if (result->err == MR_DUPLICATE)
        mr_detail_set(detail, "a task with this unique key exists: %s (%s)", result->id,
                      mr_state_name(result->state));
    else if (result->err == MR_QUEUE_FULL)
        mr_detail_set(detail,
                      "queue %.*s is at its maximum length; try later, or millrace queue set",
                      (int)queue.len, (const char *)queue.data);
    else if (result->err == MR_INVALID && task->partition > 0)
        mr_detail_set(detail, "queue %.*s has no partition %u; they are counted from 1",
                      (int)queue.len, (const char *)queue.data, task->partition);
    else if (result->unknown)
        mr_detail_set(detail,
                      "the answer was lost: task %s may be there or not; millrace task show "
                      "tells",
                      result->id);
    else
        return false;
    return true;
}

void mr_task_answer_json(struct jw *jw, struct mr_slice id, const struct mr_enqueue_result *result,
                         const char *why)
{
    enum mr_err err = result->err;
    bool there = err == MR_OK || err == MR_CONFLICT || err == MR_DUPLICATE;
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "id", there ? mr_slice_str(result->id) : id);
    if (there)
        jw_text(jw, "state", mr_state_name(result->state));
    if (err != MR_OK)
        jw_error(jw, err, why, there ? result->state : MR_STATE_NONE);
    jw_object_end(jw);
}
