/* SPDX-License-Identifier: Apache-2.0 */
/* enqueue --wait: the end of the task, its result on stdout, its outcome as the exit code. */
#include "cli/enqueue.h"
#include "cli/interrupt.h"
#include "cli/out.h"
#include "cli/show.h"

int enqueue_check_wait(const struct cli *cli, const struct enqueue_args *args)
{
    if (args->wait_timeout.given && !args->wait.given)
        return cli_usage(cli, "--wait-timeout needs --wait");
    if (!args->wait.given)
        return CLI_OK;
    if (cli_file_dir(cli->broker))
        return cli_usage(cli,
                         "--wait: needs a server: a file: broker is open in this process alone");
    if (args->lines.given)
        return cli_usage(cli, "--wait is for one task; --lines makes many");
    if (args->retention.given && args->retention.number == 0)
        return cli_usage(cli,
                         "--wait: with --retention 0 the result may be gone before it is read");
    return CLI_OK;
}

/* The bytes as they are; on a terminal nothing among them may act on it, and the line ends. */
static void print_result(struct mr_slice result)
{
    if (!out_is_terminal()) {
        out_write(result);
        return;
    }
    struct mr_buf line = {0};
    const char *at = result.data, *end = at + result.len;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t len = line_end ? (size_t)(line_end - at) : (size_t)(end - at);
        out_printf("%s\n", out_escaped(&line, mr_slice_make(at, len)));
        at += len + (line_end ? 1 : 0);
    }
    mr_buf_done(&line);
}

static int report(const struct cli *cli, const char *id, const struct mr_task *task)
{
    if (cli->json) {
        struct jw jw = {0};
        jw_task(&jw, task);
        jw_finish(&jw);
    } else if (task->state == MR_COMPLETED) {
        print_result(task->result);
    }
    if (task->state == MR_COMPLETED)
        return CLI_OK;
    if (task->last_error.len == 0)
        return cli_fail(CLI_TASK_FAILED, "task %s is %s", id, mr_state_name(task->state));
    return cli_fail(CLI_TASK_FAILED, "task %s failed: %.*s", id, (int)task->last_error.len,
                    (const char *)task->last_error.data);
}

int enqueue_wait(struct cli *cli, const char *id, int64_t timeout_ms)
{
    struct mr_task_list *list = NULL;
    char line[MR_ID_MAX + 80];
    if (!cli->quiet)
        out_status("waiting for task %s", id);
    snprintf(line, sizeof line, "interrupted; task %s goes on: millrace task show tells more", id);
    interrupt_say(line);
    enum mr_err err = mr_task_wait(cli->client, mr_slice_str(id), timeout_ms, &list);
    interrupt_say(NULL);
    out_status_clear();
    if (err == MR_TIMEOUT)
        return cli_fail(CLI_TIMED_OUT,
                        "task %s has not ended in time; millrace task why tells more", id);
    if (err == MR_NOT_FOUND)
        return cli_fail(CLI_NOT_FOUND, "task %s was deleted", id);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot wait for task %s", id);
    int code = report(cli, id, mr_task_list_at(list, 0));
    mr_task_list_free(list);
    return code;
}
