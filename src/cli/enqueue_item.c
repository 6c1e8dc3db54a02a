/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task from JSON, field by field from a table. A field that no producer may set, or a word that
 * nobody knows, is an error that names it: a misspelt delay must not run a task at once.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "base/text.h"
#include "broker/broker.h"
#include "cli/enqueue.h"

struct field {
    const char *name;
    /* Puts the value into the item; on failure fills item->err and item->why. */
    void (*set)(struct enqueue_item *item, const struct field *field, json_t *value);
    size_t offset; /* into struct mr_task_options */
};

void enqueue_item_refuse(struct enqueue_item *item, enum mr_err err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    free(item->why);
    if (vasprintf(&item->why, fmt, ap) < 0)
        cli_must(MR_NOMEM);
    va_end(ap);
    item->err = err;
}

static void *place(struct enqueue_item *item, const struct field *field)
{
    return (char *)&item->task + field->offset;
}

/* ---- setters -------------------------------------------------------------------------------- */

static void set_text(struct enqueue_item *item, const struct field *field, json_t *value)
{
    if (!json_is_string(value)) {
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be a string", field->name);
        return;
    }
    *(struct mr_slice *)place(item, field) =
        mr_slice_make(json_string_value(value), json_string_length(value));
}

static void set_ms(struct enqueue_item *item, const struct field *field, json_t *value)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        enqueue_item_refuse(item, MR_INVALID,
                            "\"%s\" must be a whole number of milliseconds, 0 or more",
                            field->name);
    else
        *(int64_t *)place(item, field) = json_integer_value(value);
}

/* 0 stands for none, where the C API has its own word for that. */
static void set_timeout(struct enqueue_item *item, const struct field *field, json_t *value)
{
    set_ms(item, field, value);
    if (item->err == MR_OK && item->task.timeout_ms == 0)
        item->task.timeout_ms = MR_NO_TIMEOUT;
}

static void set_retry(struct enqueue_item *item, const struct field *field, json_t *value)
{
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > MR_RETRY_MAX)
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be a whole number within 0 and %d",
                            field->name, MR_RETRY_MAX);
    else
        item->task.max_retry = n == 0 ? MR_NO_RETRY : (int32_t)n;
}

static void set_number(struct enqueue_item *item, const struct field *field, json_t *value)
{
    if (!json_is_number(value))
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be a number", field->name);
    else
        *(double *)place(item, field) = json_number_value(value);
}

static void set_on_duplicate(struct enqueue_item *item, const struct field *field, json_t *value)
{
    static const char *const words[] = {"reject", "ignore", "replace"};
    const char *word = json_string_value(value);
    for (size_t i = 0; word && i < CLI_LEN(words); i++) {
        if (strcmp(word, words[i]) == 0) {
            item->task.on_duplicate = (enum mr_on_duplicate)i;
            return;
        }
    }
    enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be reject, ignore or replace", field->name);
}

static void set_headers(struct enqueue_item *item, const struct field *field, json_t *value)
{
    if (!json_is_object(value) || json_object_size(value) > MR_HEADERS_MAX) {
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be an object of at most %d strings",
                            field->name, MR_HEADERS_MAX);
        return;
    }
    const char *name;
    json_t *text;
    size_t n = 0;
    item->headers = cli_alloc(json_object_size(value), sizeof *item->headers);
    json_object_foreach(value, name, text)
    {
        if (!json_is_string(text)) {
            enqueue_item_refuse(item, MR_INVALID, "header \"%.100s\" must be a string", name);
            return;
        }
        item->headers[n++] = (struct mr_header){
            mr_slice_str(name), mr_slice_make(json_string_value(text), json_string_length(text))};
    }
    item->task.headers = item->headers;
    item->task.headers_n = n;
}

static void set_id(struct enqueue_item *item, const struct field *field, json_t *value)
{
    set_text(item, field, value);
    if (item->err == MR_OK && item->task.id.len == 0)
        enqueue_item_refuse(item, MR_INVALID, "\"id\" is empty; leave it out for a generated one");
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static void set_payload_base64(struct enqueue_item *item, const struct field *field, json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : NULL;
    size_t len = text ? json_string_length(value) : 1;
    while (text && len > 0 && text[len - 1] == '=' && len + 2 >= json_string_length(value))
        len--;
    bool valid = text && len % 4 != 1 && json_string_length(value) % 4 == 0;
    uint32_t bits = 0;
    mr_buf_clear(&item->payload);
    for (size_t i = 0; valid && i < len; i++) {
        int digit = base64_digit(text[i]);
        valid = digit >= 0;
        bits = bits << 6 | (uint32_t)(digit & 63);
        size_t have = i % 4; /* a byte is complete at every digit but the first of four */
        if (valid && have > 0)
            cli_must(
                mr_buf_append(&item->payload, &(uint8_t){(uint8_t)(bits >> (6 - 2 * have))}, 1));
    }
    if (!valid)
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be a string in base64", field->name);
    else
        item->task.payload = mr_buf_slice(&item->payload);
}

static void set_by_broker(struct enqueue_item *item, const struct field *field, json_t *value)
{
    (void)value;
    enqueue_item_refuse(item, MR_INVALID, "\"%s\" is not for a producer to set; leave it out",
                        field->name);
}

static void set_partition(struct enqueue_item *item, const struct field *field, json_t *value)
{
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : 0;
    if (number < 1 || number > MR_PARTITIONS_MAX)
        enqueue_item_refuse(item, MR_INVALID, "\"%s\" must be a whole number from 1 to %d",
                            field->name, MR_PARTITIONS_MAX);
    else
        item->task.partition = (uint32_t)number;
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

/* ---- items ---------------------------------------------------------------------------------- */

static void set_field(struct enqueue_item *item, const char *name, json_t *value)
{
    const char *words[CLI_LEN(fields) + 1] = {0};
    for (size_t i = 0; i < CLI_LEN(fields); i++) {
        if (strcmp(name, fields[i].name) == 0) {
            if (!json_is_null(value))
                fields[i].set(item, &fields[i], value);
            return;
        }
        words[i] = fields[i].name;
    }
    const char *nearest = mr_nearest_word(name, words);
    enqueue_item_refuse(item, MR_INVALID, "unknown field \"%.100s\"%s%s%s", name,
                        nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                        nearest ? "\"?" : "");
}

void enqueue_item_from_json(struct enqueue_item *item, const struct enqueue_template *template_,
                            json_t *json)
{
    item->task = template_->task;
    item->json = json_incref(json);
    if (!json_is_object(json)) {
        enqueue_item_refuse(item, MR_INVALID,
                            "a task must be a JSON object such as {\"payload\":\"hello\"}");
        return;
    }
    const char *name;
    json_t *value;
    json_object_foreach(json, name, value)
    {
        if (item->err == MR_OK)
            set_field(item, name, value);
    }
    if (item->err == MR_OK && json_object_get(json, "payload") &&
        json_object_get(json, "payload_base64"))
        enqueue_item_refuse(item, MR_INVALID,
                            "\"payload\" and \"payload_base64\" are two payloads; give one");
    if (item->err == MR_OK)
        enqueue_item_check(item);
}

void enqueue_item_from_json_text(struct enqueue_item *item,
                                 const struct enqueue_template *template_, struct mr_slice text)
{
    json_error_t error;
    json_t *json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json) {
        item->task = template_->task;
        enqueue_item_refuse(item, MR_INVALID, "not JSON: %s at byte %d", error.text,
                            error.position);
        return;
    }
    enqueue_item_from_json(item, template_, json);
    json_decref(json);
}

void enqueue_item_check(struct enqueue_item *item)
{
    struct mr_detail detail = {0};
    enum mr_err err = mr_task_options_check(&item->task, MR_PAYLOAD_MAX, &detail);
    if (err != MR_OK)
        enqueue_item_refuse(item, err, "%s", detail.text[0] ? detail.text : mr_err_text(err));
}

void enqueue_item_done(struct enqueue_item *item)
{
    json_decref(item->json);
    mr_buf_done(&item->payload);
    free(item->headers);
    free(item->why);
}

/* ---- answers -------------------------------------------------------------------------------- */

const char *enqueue_reason(const struct enqueue_item *item, const struct mr_enqueue_result *result,
                           char text[600])
{
    enum { SIZE = 600 };
    struct mr_detail said;
    struct mr_slice queue = item->task.queue.len > 0 ? item->task.queue : MR_SLICE_LIT("default");
    if (item->err != MR_OK)
        snprintf(text, SIZE, "%s", item->why);
    else if (result->err == MR_CONFLICT)
        snprintf(text, SIZE, "a task with the id %s exists (%s)", result->id,
                 mr_state_name(result->state));
    else if (result->err == MR_DUPLICATE)
        snprintf(text, SIZE, "a task with this unique key exists: %s (%s)", result->id,
                 mr_state_name(result->state));
    else if (result->err == MR_QUEUE_FULL)
        snprintf(text, SIZE,
                 "queue %.*s is at its maximum length; try later, or millrace queue set",
                 (int)queue.len, (const char *)queue.data);
    else if (result->err == MR_INVALID && item->task.partition > 0)
        snprintf(text, SIZE, "queue %.*s has no partition %u; they are counted from 1",
                 (int)queue.len, (const char *)queue.data, item->task.partition);
    else if (result->unknown)
        snprintf(text, SIZE,
                 "the answer was lost: task %s may be there or not; millrace task show "
                 "tells",
                 result->id);
    else {
        cli_err_text(result->err, &said);
        snprintf(text, SIZE, "%s", said.text);
    }
    return text;
}

int enqueue_fail(const struct cli *cli, enum mr_err err, const struct mr_enqueue_result *first)
{
    if (!first->unknown)
        return cli_fail_err(err, "cannot enqueue on %s", cli->shown);
    return cli_fail(mr_err_exit_code(err),
                    "the answer of %s was lost: task %s may be there or not; millrace task show %s "
                    "tells",
                    cli->shown, first->id, first->id);
}

void enqueue_answer_json(struct jw *jw, const struct enqueue_item *item,
                         const struct mr_enqueue_result *result)
{
    char reason[600];
    enum mr_err err = item->err != MR_OK ? item->err : result->err;
    bool there = err == MR_OK || err == MR_CONFLICT || err == MR_DUPLICATE;
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "id", there ? mr_slice_str(result->id) : item->task.id);
    if (there)
        jw_text(jw, "state", mr_state_name(result->state));
    if (err != MR_OK)
        jw_error(jw, err, enqueue_reason(item, result, reason),
                 there ? result->state : MR_STATE_NONE);
    jw_object_end(jw);
}
