/* SPDX-License-Identifier: Apache-2.0 */
/* One task, field by field, for people. */
#include "cli/show.h"
#include "base/text.h"
#include "broker/hidden.h"
#include "cli/out.h"
#include "wire/timer.h"

const char *const show_states[] = {"scheduled", "pending",   "active",      "retry",
                                   "archived",  "completed", "aggregating", NULL};

bool show_operation(const struct mr_task *task, struct mr_buf *text)
{
    struct mr_timer_operation op;
    if (!jw_operation_of(task, &op))
        return false;
    cli_must(mr_buf_printf(text, "%s ", mr_timer_verb_name(op.verb)));
    cli_must(mr_buf_append_slice(text, op.app));
    cli_must(mr_buf_append(text, "/", 1));
    cli_must(mr_buf_append_slice(text, op.name));
    return true;
}

void show_field(const char *name, enum out_colour colour, const char *text)
{
    enum { NAME_COLUMN = 12 };
    out_printf("%s%-*s%s %s%s%s\n", out_colour(OUT_DIM), NAME_COLUMN, name, out_colour(OUT_PLAIN),
               out_colour(colour), text, out_colour(OUT_PLAIN));
}

void show_bytes(const char *name, enum out_colour colour, struct mr_slice bytes)
{
    if (bytes.len == 0)
        return;
    enum { SHOWN_MAX = 4096 };
    struct mr_buf text = {0};
    size_t len = bytes.len;
    bytes.len = len < SHOWN_MAX ? len : SHOWN_MAX;
    out_escape(&text, bytes);
    if (len > SHOWN_MAX)
        cli_must(mr_buf_printf(&text, "... (%zu bytes; --json has them all)", len));
    cli_must(mr_buf_append(&text, "", 1));
    show_field(name, colour, (const char *)text.data);
    mr_buf_done(&text);
}

void show_time(const char *name, int64_t ms)
{
    if (ms == 0)
        return;
    char at[32], ago[48], both[96];
    mr_format_time_ms(ms, at);
    out_relative(ms, out_now_ms(), ago);
    snprintf(both, sizeof both, "%s (%s)", at, ago);
    show_field(name, OUT_PLAIN, both);
}

void show_span(const char *name, int64_t ms)
{
    if (ms <= 0)
        return;
    char text[32];
    mr_format_duration_ms(ms, text);
    show_field(name, OUT_PLAIN, text);
}

void show_headers(const struct mr_header *headers, size_t n)
{
    struct mr_buf line = {0};
    for (size_t i = 0; i < n; i++) {
        mr_buf_clear(&line);
        out_escape(&line, headers[i].name);
        cli_must(mr_buf_append(&line, "=", 1));
        out_escape(&line, headers[i].value);
        cli_must(mr_buf_append(&line, "", 1));
        show_field("header", OUT_PLAIN, (const char *)line.data);
    }
    mr_buf_done(&line);
}

void show_task_text(const struct mr_task *task)
{
    char attempts[128];
    snprintf(attempts, sizeof attempts, "%u (retried %u of %u, crashes %u, epoch %llu)",
             task->attempt, task->retried, task->max_retry, task->crashes,
             (unsigned long long)task->epoch);
    show_bytes("id", OUT_BOLD, task->id);
    show_field("state", out_state_colour(task->state), mr_state_name(task->state));
    if (task->held)
        show_field("held", OUT_YELLOW, "carried here by millrace migrate, and not released yet");
    struct mr_buf operation = {0};
    bool operates = show_operation(task, &operation);
    show_bytes("queue", OUT_PLAIN, mr_queue_shown(task->queue));
    show_bytes("operation", OUT_PLAIN, mr_buf_slice(&operation));
    mr_buf_done(&operation);
    if (task->partition > 1)
        out_printf("%s%-12s%s %u\n", out_colour(OUT_DIM), "partition", out_colour(OUT_PLAIN),
                   task->partition);
    show_bytes("type", OUT_PLAIN, task->type);
    if (task->priority_s != 0)
        out_printf("%s%-12s%s %g s ahead\n", out_colour(OUT_DIM), "priority", out_colour(OUT_PLAIN),
                   task->priority_s);
    show_field("attempt", OUT_PLAIN, attempts);
    show_time("created", task->created_ms);
    show_time("due", task->due_ms);
    show_time("started", task->started_ms);
    show_time("finished", task->finished_ms);
    show_time("deadline", task->deadline_ms);
    show_span("timeout", task->timeout_ms);
    show_span("retention", task->retention_ms);
    show_bytes("unique key", OUT_PLAIN, task->unique_key);
    show_bytes("group", OUT_PLAIN, task->group);
    show_bytes("topic", OUT_PLAIN, task->topic);
    show_bytes("key", OUT_PLAIN, task->key);
    show_bytes("node", OUT_PLAIN, task->node);
    show_headers(task->headers, task->headers_n);
    show_bytes("progress", OUT_CYAN, task->progress);
    if (!operates)
        show_bytes("payload", OUT_PLAIN, task->payload);
    show_time("last failed", task->last_failed_ms);
    show_bytes("last error", OUT_RED, task->last_error);
    show_bytes("result", OUT_GREEN, task->result);
}
