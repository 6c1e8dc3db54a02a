/* SPDX-License-Identifier: Apache-2.0 */
/* millrace task why: the reasons for a task's state in sentences, the decisive one first. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/out.h"
#include "cli/show.h"
#include "cli/task.h"

enum { REASONS_MAX = 8, REASON_BYTES = 1024 };

struct why {
    const struct mr_task *task;
    struct mr_queue_info queue;
    char reasons[REASONS_MAX][REASON_BYTES];
    size_t n;
    struct mr_buf scratch;
};

MR_PRINTF(2, 3) static void because(struct why *why, const char *fmt, ...)
{
    if (why->n == REASONS_MAX)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why->reasons[why->n++], REASON_BYTES, fmt, ap);
    va_end(ap);
}

static const char *when(int64_t ms, char text[96])
{
    char at[32], relative[48];
    mr_format_time_ms(ms, at);
    out_relative(ms, out_now_ms(), relative);
    snprintf(text, 96, "%s (%s)", at, relative);
    return text;
}

static const char *error_of(struct why *why)
{
    enum { SHOWN = 500 };
    struct mr_slice error = why->task->last_error;
    error.len = error.len < SHOWN ? error.len : SHOWN;
    return error.len ? out_escaped(&why->scratch, error) : "none recorded";
}

static void why_scheduled(struct why *why)
{
    char text[96];
    because(why, "it is due at %s", when(why->task->due_ms, text));
}

static void why_pending(struct why *why)
{
    if (why->queue.paused)
        because(why, "its queue %s is paused; millrace queue resume %s", why->queue.name,
                why->queue.name);
    because(why, "it waits for a free slot of a worker of queue %s, where %llu wait and %llu run",
            why->queue.name, (unsigned long long)why->queue.counts[MR_PENDING],
            (unsigned long long)why->queue.counts[MR_ACTIVE]);
}

static void why_active(struct why *why)
{
    char text[96];
    const struct mr_task *task = why->task;
    because(why, "it runs on node %.*s as attempt %u since %s", (int)task->node.len,
            (const char *)task->node.data, task->attempt, when(task->started_ms, text));
    if (task->cancel_requested)
        because(why, "it has been told to stop");
}

static void why_retry(struct why *why)
{
    char text[96];
    because(why, "it failed %u of %u times and is tried again at %s", why->task->retried,
            why->task->max_retry, when(why->task->due_ms, text));
    because(why, "the last error: %s", error_of(why));
}

static void why_archived(struct why *why)
{
    const struct mr_task *task = why->task;
    if (task->crashes >= MR_CRASHES_MAX)
        because(why, "it lost its worker %u times and was set aside", task->crashes);
    else if (task->retried >= task->max_retry && task->last_error.len > 0)
        because(why, "it failed %u times, of %u allowed", task->retried, task->max_retry);
    because(why, "the last error: %s", error_of(why));
    because(why, "millrace task run ID makes it pending again");
}

static void why_completed(struct why *why)
{
    char text[96];
    because(why, "it succeeded at %s", when(why->task->finished_ms, text));
}

static void (*const explain[MR_STATE_COUNT])(struct why *) = {
    [MR_SCHEDULED] = why_scheduled, [MR_PENDING] = why_pending,   [MR_ACTIVE] = why_active,
    [MR_RETRY] = why_retry,         [MR_ARCHIVED] = why_archived, [MR_COMPLETED] = why_completed,
};

static void print_why(struct cli *cli, struct why *why)
{
    if (!cli->json) {
        out_printf("%s%s%s\n", out_colour(out_state_colour(why->task->state)),
                   mr_state_name(why->task->state), out_colour(OUT_PLAIN));
        for (size_t i = 0; i < why->n; i++)
            out_printf("  %s\n", why->reasons[i]);
        return;
    }
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "id", why->task->id);
    jw_text(&jw, "state", mr_state_name(why->task->state));
    jw_array_begin(&jw, "reasons");
    for (size_t i = 0; i < why->n; i++)
        jw_text(&jw, NULL, why->reasons[i]);
    jw_array_end(&jw);
    jw_object_end(&jw);
    jw_finish(&jw);
}

int task_why(struct cli *cli, void *args)
{
    (void)args;
    struct mr_task_list *list = NULL;
    enum mr_err err = mr_task_get(cli->client, mr_slice_str(cli->words[0]), &list);
    if (err != MR_OK)
        return cli_fail_err(err, "task %s", cli->words[0]);
    struct why *why = cli_alloc(1, sizeof *why);
    why->task = mr_task_list_at(list, 0);
    err = mr_queue_get(cli->client, why->task->queue, &why->queue);
    if (err == MR_OK && explain[why->task->state])
        explain[why->task->state](why);
    if (err == MR_OK)
        print_why(cli, why);
    int code = err == MR_OK ? CLI_OK : cli_fail_err(err, "queue of task %s", cli->words[0]);
    mr_buf_done(&why->scratch);
    free(why);
    mr_task_list_free(list);
    return code;
}
