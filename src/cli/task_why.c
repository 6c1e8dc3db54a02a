/* SPDX-License-Identifier: Apache-2.0 */
/* millrace task why: the reasons for a task's state (client/why.h), and what can be done about them. */
#include <stdlib.h>

#include "cli/out.h"
#include "cli/show.h"
#include "cli/task.h"
#include "client/why.h"

/* The command that helps; its argument is the queue or the task, and what stands behind that. */
static const struct {
    const char *command;
    bool of_queue;
    const char *behind;
} helps[MR_WHY_COUNT] = {
    [MR_WHY_PAUSED] = {"millrace queue resume", true},
    [MR_WHY_NO_WORKER] = {"millrace work -q", true, " -- CMD"},
    [MR_WHY_LIMIT] = {"millrace queue show", true},
    [MR_WHY_CRASHED] = {"millrace task run", false},
    [MR_WHY_FAILED] = {"millrace task run", false},
    [MR_WHY_ARCHIVED] = {"millrace task run", false},
};

static void print_text(const struct mr_task *task, const struct mr_why *why)
{
    struct mr_buf scratch = {0};
    out_printf("%s%s%s\n", out_colour(out_state_colour(task->state)), mr_state_name(task->state),
               out_colour(OUT_PLAIN));
    for (size_t i = 0; i < why->n; i++) {
        enum mr_why_reason reason = why->reasons[i].reason;
        out_printf("  %s\n", out_escaped(&scratch, mr_slice_str(why->reasons[i].text)));
        if (helps[reason].command)
            out_printf("    %s %s%s\n", helps[reason].command,
                       out_escaped(&scratch, helps[reason].of_queue ? task->queue : task->id),
                       helps[reason].behind ? helps[reason].behind : "");
    }
    mr_buf_done(&scratch);
}

static void print_json(const struct mr_task *task, const struct mr_why *why)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "id", task->id);
    jw_text(&jw, "state", mr_state_name(task->state));
    jw_array_begin(&jw, "reasons");
    for (size_t i = 0; i < why->n; i++) {
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "reason", mr_why_word(why->reasons[i].reason));
        jw_text(&jw, "text", why->reasons[i].text);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    jw_object_end(&jw);
    jw_finish(&jw);
}

static enum mr_err explain(struct cli *cli, const struct mr_task *task, struct mr_why *why)
{
    struct mr_queue_info queue;
    struct mr_node_list *nodes = NULL;
    struct mr_limit limits[MR_LIMIT_SCOPE_COUNT];
    size_t limits_n = 0;
    MR_TRY(mr_queue_get(cli->client, task->queue, &queue));
    if (queue.rate > 0 || queue.concurrency > 0 || queue.limits > 0)
        MR_TRY(mr_task_limits(cli->client, task->queue, task->id, limits, &limits_n));
    MR_TRY(mr_node_list_get(cli->client, &nodes));
    mr_why(
        &(struct mr_why_facts){
            .task = task,
            .queue = &queue,
            .nodes = mr_node_list_at(nodes, 0),
            .nodes_n = mr_node_list_count(nodes),
            .limits = limits,
            .limits_n = limits_n,
            .now_ms = out_now_ms(),
        },
        why);
    mr_node_list_free(nodes);
    return MR_OK;
}

int task_why(struct cli *cli, void *args)
{
    (void)args;
    struct mr_task_list *list = NULL;
    enum mr_err err = mr_task_get(cli->client, mr_slice_str(cli->words[0]), &list);
    if (err != MR_OK)
        return cli_fail_err(err, "task %s", cli->words[0]);
    const struct mr_task *task = mr_task_list_at(list, 0);
    struct mr_why *why = cli_alloc(1, sizeof *why);
    err = explain(cli, task, why);
    if (err == MR_OK && cli->json)
        print_json(task, why);
    else if (err == MR_OK)
        print_text(task, why);
    int code = err == MR_OK ? CLI_OK : cli_fail_err(err, "why task %s waits", cli->words[0]);
    free(why);
    mr_task_list_free(list);
    return code;
}
