/* SPDX-License-Identifier: Apache-2.0 */
/* The part of millrace work that deals with the processes it has started. */
#ifndef MR_CLI_WORK_H
#define MR_CLI_WORK_H

/* Kills every child of this process with its process group. */
void work_kill_children(void);

#endif
