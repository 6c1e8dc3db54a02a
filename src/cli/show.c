/* SPDX-License-Identifier: Apache-2.0 */
/* One task, field by field, in JSON and for people. Fields that are not set are 0 or empty in JSON.
 */
#include "cli/show.h"
#include "base/text.h"
#include "broker/hidden.h"
#include "cli/out.h"
#include "wire/timer.h"

const char *const show_states[] = {"scheduled", "pending",   "active",      "retry",
                                   "archived",  "completed", "aggregating", NULL};

static void headers_json(struct jw *jw, const struct mr_task *task)
{
    struct mr_buf name = {0};
    jw_object_begin(jw, "headers");
    for (size_t i = 0; i < task->headers_n; i++) {
        mr_buf_clear(&name);
        cli_must(mr_buf_append_slice(&name, task->headers[i].name));
        cli_must(mr_buf_append(&name, "", 1));
        jw_bytes(jw, (const char *)name.data, task->headers[i].value);
    }
    jw_object_end(jw);
    mr_buf_done(&name);
}

static bool read_operation(const struct mr_task *task, struct mr_timer_operation *ret_op)
{
    *ret_op = (struct mr_timer_operation){0};
    return mr_queue_is_inner(task->queue) &&
           mr_flat_read(&mr_flat_timer_operation, task->payload, NULL, ret_op) == MR_OK;
}

bool show_operation(const struct mr_task *task, struct mr_buf *text)
{
    struct mr_timer_operation op;
    if (!read_operation(task, &op))
        return false;
    cli_must(mr_buf_printf(text, "%s ", mr_timer_verb_name(op.verb)));
    cli_must(mr_buf_append_slice(text, op.app));
    cli_must(mr_buf_append(text, "/", 1));
    cli_must(mr_buf_append_slice(text, op.name));
    return true;
}

static void operation_json(struct jw *jw, const struct mr_task *task)
{
    struct mr_timer_operation op;
    if (!read_operation(task, &op))
        return;
    jw_object_begin(jw, "operation");
    jw_text(jw, "verb", mr_timer_verb_name(op.verb));
    jw_bytes(jw, "app", op.app);
    jw_bytes(jw, "timer", op.name);
    jw_uint(jw, "version", op.version);
    jw_object_end(jw);
}

void show_task_json(struct jw *jw, const struct mr_task *task)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "id", task->id);
    jw_bytes(jw, "queue", mr_queue_shown(task->queue));
    operation_json(jw, task);
    jw_uint(jw, "partition", task->partition);
    jw_bytes(jw, "type", task->type);
    jw_text(jw, "state", mr_state_name(task->state));
    jw_bytes(jw, "payload", task->payload);
    headers_json(jw, task);
    jw_real(jw, "priority", task->priority_s);
    jw_int(jw, "order_time_ms", task->order_time_ms);
    jw_uint(jw, "attempt", task->attempt);
    jw_uint(jw, "retried", task->retried);
    jw_uint(jw, "max_retry", task->max_retry);
    jw_uint(jw, "crashes", task->crashes);
    jw_uint(jw, "epoch", task->epoch);
    jw_int(jw, "timeout_ms", task->timeout_ms);
    jw_int(jw, "deadline_ms", task->deadline_ms);
    jw_bytes(jw, "unique_key", task->unique_key);
    jw_bytes(jw, "group", task->group);
    jw_bytes(jw, "topic", task->topic);
    jw_bytes(jw, "key", task->key);
    jw_int(jw, "retention_ms", task->retention_ms);
    jw_int(jw, "created_ms", task->created_ms);
    jw_int(jw, "due_ms", task->due_ms);
    jw_int(jw, "started_ms", task->started_ms);
    jw_int(jw, "finished_ms", task->finished_ms);
    jw_bytes(jw, "node", task->node);
    jw_bytes(jw, "progress", task->progress);
    jw_bytes(jw, "last_error", task->last_error);
    jw_int(jw, "last_failed_ms", task->last_failed_ms);
    jw_bytes(jw, "result", task->result);
    jw_object_end(jw);
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

static void print_headers(const struct mr_task *task)
{
    struct mr_buf line = {0};
    for (size_t i = 0; i < task->headers_n; i++) {
        mr_buf_clear(&line);
        out_escape(&line, task->headers[i].name);
        cli_must(mr_buf_append(&line, "=", 1));
        out_escape(&line, task->headers[i].value);
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
    print_headers(task);
    show_bytes("progress", OUT_CYAN, task->progress);
    if (!operates)
        show_bytes("payload", OUT_PLAIN, task->payload);
    show_time("last failed", task->last_failed_ms);
    show_bytes("last error", OUT_RED, task->last_error);
    show_bytes("result", OUT_GREEN, task->result);
}

void show_queue_fields_json(struct jw *jw, const struct mr_queue_info *info)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "queue", info->name);
    jw_uint(jw, "partitions", info->partitions);
    jw_text(jw, "assign", mr_assign_name(info->assign));
    jw_uint(jw, "pending", info->counts[MR_PENDING]);
    jw_uint(jw, "active", info->counts[MR_ACTIVE]);
    jw_uint(jw, "scheduled", info->counts[MR_SCHEDULED]);
    jw_uint(jw, "retry", info->counts[MR_RETRY]);
    jw_uint(jw, "archived", info->counts[MR_ARCHIVED]);
    jw_uint(jw, "completed", info->counts[MR_COMPLETED]);
    jw_uint(jw, "aggregating", info->counts[MR_AGGREGATING]);
    jw_bool(jw, "paused", info->paused);
    jw_int(jw, "oldest_pending_ms", info->oldest_pending_ms);
    jw_uint(jw, "processed_total", info->processed_total);
    jw_uint(jw, "failed_total", info->failed_total);
    jw_uint(jw, "processed_today", info->processed_today);
    jw_uint(jw, "failed_today", info->failed_today);
    jw_uint(jw, "max_length", info->max_length);
    jw_text(jw, "retry_mode", mr_retry_mode_name(info->retry_mode));
    jw_int(jw, "retry_wait_ms", info->retry_wait_ms);
    jw_uint(jw, "rate", info->rate);
    jw_int(jw, "rate_ms", info->rate_ms);
    jw_uint(jw, "concurrency", info->concurrency);
    jw_uint(jw, "limits", info->limits);
    jw_uint(jw, "wait_p50_us", info->wait_p50_us);
    jw_uint(jw, "wait_p99_us", info->wait_p99_us);
    jw_uint(jw, "run_p50_us", info->run_p50_us);
    jw_uint(jw, "run_p99_us", info->run_p99_us);
    jw_uint(jw, "trimmed", info->trimmed);
    jw_uint(jw, "quarantined", info->quarantined);
}

void show_queue_json(struct jw *jw, const struct mr_queue_info *info)
{
    show_queue_fields_json(jw, info);
    jw_object_end(jw);
}
