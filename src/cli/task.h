/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs of millrace task that have a file of their own. */
#ifndef MR_CLI_TASK_H
#define MR_CLI_TASK_H

#include "cli/cli.h"

int task_why(struct cli *cli, void *args);

#endif
