/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that runs a command once per task: the worker for every language. The contract with the
 * command (payload on stdin, result on stdout, environment, exit codes) is in docs/process.md.
 */
#ifndef MR_WORKER_EXEC_H
#define MR_WORKER_EXEC_H

#include <millrace.h>

/* What to run; must outlive the worker. */
struct mr_exec_command {
    char *const *argv; /* ends with NULL; argv[0] is looked up in PATH */
};

/* arg is a struct mr_exec_command. For mr_worker_handle. Thread: a slot's (all signals blocked). */
enum mr_outcome mr_exec_handler(struct mr_run *run, void *arg);

#endif
