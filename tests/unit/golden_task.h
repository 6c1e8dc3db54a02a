/* SPDX-License-Identifier: Apache-2.0 */
/* A task as one line: everything that is known of it, for tests of what earlier versions wrote. */
#ifndef MR_TESTS_GOLDEN_TASK_H
#define MR_TESTS_GOLDEN_TASK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "broker/broker.h"

static inline void put_text(struct mr_buf *buf, const char *fmt, ...) MR_PRINTF(2, 3);
static inline void put_text(struct mr_buf *buf, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_int_equal(mr_buf_append(buf, text, strlen(text)), MR_OK);
}

/* " name=bytes", nothing for none; what is not printable as hex. */
static inline void put_bytes(struct mr_buf *buf, const char *name, struct mr_slice bytes)
{
    if (bytes.len == 0)
        return;
    put_text(buf, " %s=", name);
    for (size_t i = 0; i < bytes.len; i++) {
        uint8_t byte = ((const uint8_t *)bytes.data)[i];
        put_text(buf, byte >= ' ' && byte < 127 ? "%c" : "\\x%02x", byte);
    }
}

static inline void put_number(struct mr_buf *buf, const char *name, int64_t value)
{
    if (value != 0)
        put_text(buf, " %s=%lld", name, (long long)value);
}

/* Everything that is known of a task, as one line. */
static inline void put_task(struct mr_buf *buf, const struct mr_task *task)
{
    put_text(buf, "%.*s: %s", (int)task->id.len, (const char *)task->id.data,
             mr_state_name(task->state));
    put_bytes(buf, "queue", task->queue);
    put_number(buf, "partition", task->partition > 1 ? task->partition : 0);
    put_bytes(buf, "type", task->type);
    put_bytes(buf, "payload", task->payload);
    put_bytes(buf, "unique", task->unique_key);
    put_bytes(buf, "group", task->group);
    put_bytes(buf, "topic", task->topic);
    for (size_t i = 0; i < task->headers_n; i++) {
        put_bytes(buf, "header", task->headers[i].name);
        put_bytes(buf, "value", task->headers[i].value);
    }
    put_number(buf, "priority_ms", (int64_t)(task->priority_s * 1000));
    if (task->state != MR_ARCHIVED && task->state != MR_COMPLETED)
        put_number(buf, "order", task->order_time_ms);
    put_number(buf, "due", task->due_ms);
    put_number(buf, "attempt", task->attempt);
    put_number(buf, "retried", task->retried);
    put_number(buf, "max_retry", task->max_retry);
    put_number(buf, "crashes", task->crashes);
    put_number(buf, "timeout", task->timeout_ms);
    put_number(buf, "deadline", task->deadline_ms);
    put_number(buf, "retention", task->retention_ms);
    put_number(buf, "created", task->created_ms);
    put_number(buf, "started", task->started_ms);
    put_number(buf, "finished", task->finished_ms);
    put_number(buf, "failed", task->last_failed_ms);
    put_bytes(buf, "error", task->last_error);
    put_bytes(buf, "result", task->result);
    if (task->cancel_requested)
        put_text(buf, " cancel");
}

#endif
