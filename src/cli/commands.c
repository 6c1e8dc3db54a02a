/* SPDX-License-Identifier: Apache-2.0 */
/* What there is: help, man pages and completions are made from these tables. */
#include "cli/cli.h"

const struct cli_command *const cli_commands[] = {
    &cli_serve, &cli_nameserver, &cli_enqueue, &cli_work, &cli_queue,   &cli_task,  &cli_job,
    &cli_timer, &cli_dead,       &cli_result,  &cli_node, &cli_top,     &cli_token, &cli_config,
    &cli_bench, &cli_selftest,   &cli_backup,  &cli_fsck, &cli_migrate, NULL,
};

const struct cli_exit_row cli_exits[] = {
    {CLI_OK, "done"},
    {CLI_FAILED, "failed"},
    {CLI_USAGE, "usage"},
    {CLI_NOT_FOUND, "not found"},
    {CLI_CONFLICT, "conflict or duplicate"},
    {CLI_NOT_ALLOWED, "not allowed"},
    {CLI_UNREACHABLE, "broker out of reach"},
    {CLI_TIMED_OUT, "timed out"},
    {CLI_TASK_FAILED, "the awaited task or job failed"},
};
const size_t cli_exits_n = CLI_LEN(cli_exits);
